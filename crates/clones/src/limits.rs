//! Numbers of this crate, with units and reasons.

use base::Span;

/// Clones of one service at most.
pub const CLONES_PER_SERVICE_MAX: u32 = 256;
/// Clones of all services at most: two of each service that may be. A leader plans them all within some milliseconds.
pub const CLONES_MAX: u32 = 4096;
/// ... before all nodes have [`crate::LEVEL_PARTS`]: even if one node runs them all, what it says of them (about 40 bytes each) and
/// the assignments (about 4 bytes each) stay under the 64 KiB of one fact.
pub const CLONES_MAX_BEFORE: u32 = 1024;
/// A service's name is part of a host label, of log lines and of environment variables.
pub const NAME_BYTES_MAX: usize = 63;
/// Of a path that is open to clones (`sandbox`).
pub const PATH_BYTES_MAX: usize = 1024;
/// Paths in each list of `sandbox`. All stand in an argument of the program that starts a clone.
pub const PATHS_OPEN_MAX: usize = 64;
/// Least bytes that a clone may be bounded to: no interpreter starts with fewer.
pub const BOUND_MEMORY_MIN: u64 = 8 << 20;
/// Fewest processes and threads: the program that starts a clone is one, and few programs have no other.
pub const BOUND_PIDS_MIN: u64 = 2;
/// Fewest open files: three are there at the start, and libraries are files, too.
pub const BOUND_FILES_MIN: u64 = 16;
/// Most of processes, and of files; what Linux gives at most unless it is told otherwise.
pub const BOUND_COUNT_MAX: u64 = 1 << 20;
/// A user's name on Linux, bytes.
pub const USER_BYTES_MAX: usize = 32;
/// Of a secret, which is a variable's, bytes.
pub const SECRET_NAME_BYTES_MAX: usize = 64;
/// Secrets of one service that are files: each is written when a clone starts.
pub const SECRET_FILES_MAX: usize = 64;
/// Services at most: with some 300 bytes each they are declared by one change (1 MiB at most).
pub const SERVICES_MAX: usize = 2048;
/// ... before all nodes have [`crate::LEVEL_PARTS`]: their names travel in one fact, so 256 x 64 bytes are a quarter of it.
pub const SERVICES_MAX_BEFORE: usize = 256;

/// Partitions of one service at most, and of all. Each is some 100 bytes of the declaration (1 MiB at most) and of the
/// route table; a test holds 10,000 to 2 microseconds a look-up.
pub const PARTITIONS_PER_SERVICE_MAX: usize = 10_000;
/// So many of them, the first ones, are compared with each that follows, to find those that never take a request: it is done for each
/// declaration, and takes some tenths of a second at most.
pub const PARTITIONS_COMPARED_MAX: usize = 256;
/// Doors for TCP of one service. Each node listens at every one.
pub const TCP_DOORS_MAX: usize = 32;
pub const PARTITIONS_MAX: usize = 16_384;
/// Hosts, paths, header names and values in a partition, bytes: longer ones match nothing that gets through the edge.
pub const MATCH_BYTES_MAX: usize = 1024;
/// Priorities are 0 to this.
pub use base::frame::PRIORITY_MAX;

/// Clones of a service that does not say how many: two, so that any one may die and the other serves.
pub const CLONES_DEFAULT: u32 = 2;
/// From the start of a process to its first healthy answer. An interpreter with a busy disk takes a few seconds.
pub const START_TIMEOUT_DEFAULT: Span = Span::secs(10);
/// Clones of a node that start at the same time: more would take the processors from each other until none is up within its time.
pub const STARTS_AT_ONCE: usize = 16;
/// One that takes longer to start than this no longer keeps others from it.
pub const STARTS_WAIT: Span = Span::secs(5);
/// From the stop signal to the kill. Most requests end sooner; longer ones belong in the declaration.
pub const DRAIN_DEFAULT: Span = Span::secs(5);
/// Longest drain or start time that makes sense to declare.
pub const PATIENCE_MAX: Span = Span::secs(3600);
/// Clones that one request may be asked of. The paper's figure 8 has 5, which is worse than 2 already.
pub const ASK_MAX: u8 = 5;
/// Length of the path of a service's description, in the folder that was deployed.
pub const OPENAPI_PATH_BYTES_MAX: usize = 255;
/// What `answer_timeout` may be: below that a full machine fails all, and what takes longer than an hour is a job that is
/// asked for its end.
pub const ANSWER_TIMEOUT_MIN: Span = Span::millis(100);
pub const ANSWER_TIMEOUT_MAX: Span = Span::secs(3600);
/// What `idle_timeout` may be: a network's hiccup is shorter than a second, and who is silent for a week is gone.
pub const IDLE_TIMEOUT_MIN: Span = Span::secs(1);
pub const IDLE_TIMEOUT_MAX: Span = Span::secs(7 * 24 * 3600);
/// What `body_max` may be, bytes: bodies are not kept, so only the length of the number bounds it.
pub const BODY_MAX_MAX: u64 = 1 << 40;

/// Between "out of the routes" and the stop signal: the beacon reaches every edge within a round trip, and its once a
/// second repair exchange makes good what was lost.
pub const LEAVE_ROUTES: Span = Span::millis(1200);
/// While a clone starts, its health is asked this often: a user waits for it.
pub const PROBE_STARTING_EVERY: Span = Span::millis(100);
/// While it serves, this often. A death is noticed at once by its exit; probes find the hung.
pub const PROBE_SERVING_EVERY: Span = Span::secs(2);
/// A healthy clone on a saturated machine answers within this.
pub const PROBE_TIMEOUT: Span = Span::secs(2);
/// A probe without any answer by then was lost, and counts as failed.
pub const PROBE_LOST: Span = Span::secs(3);
/// Failed probes in a row that make a serving clone be restarted.
pub const PROBES_FAILED_MAX: u32 = 3;
/// Of a service's clones that fail their probes, one in so many (of all it has), at least one, is killed at a time.
pub const HEAL_PART: usize = 4;
/// A clone is killed only so long after all were told that it fails: else two nodes begin at once. A beacon reaches everyone
/// within a round trip, and its once a second repair exchange makes good what was lost.
pub const HEAL_TOLD: Span = Span::millis(1200);
/// Fewer sick clones are no panic, whatever part of their service they are: one is always killed.
pub const PANIC_SICK_MIN: usize = 2;
/// First and longest wait from kill to kill in a panic. The first lets a restarted clone show by its probes whether it stays
/// well; the longest is about how often a person who mends the cause wants to see another attempt.
pub const PANIC_WAIT_FIRST: Span = Span::secs(20);
pub const PANIC_WAIT_MAX: Span = Span::secs(300);
/// A panic is over when fewer than half have failed for so long: more than restarted clones need to fail again.
pub const PANIC_CALM: Span = Span::secs(30);
/// A clone that took so many requests and answered none of them for so long, or for so many times what the slowest answer of
/// its service took of late, is hung: three are no accident, and people have long given up.
pub const HUNG_OWES: u64 = 3;
pub const HUNG_AFTER: Span = Span::secs(10);
pub const HUNG_SLOWEST: u64 = 3;
/// So many failures in a row over so long are no accident either: an edge leaves such a clone alone for growing times, and it
/// fails again after each.
pub const FAILING_ROW: u64 = 6;
pub const FAILING_AFTER: Span = Span::secs(5);
/// A clone is well that gave a good answer within this.
pub const WELL_WITHIN: Span = Span::secs(10);
/// When it last did so is forgotten after this.
pub const WELL_KEPT: Span = Span::secs(3600);
/// Who was found ill may be so for twice as long the next time, this often at most; and is forgiven after this.
pub const ILL_DOUBLED_MAX: u32 = 6;
pub const ILL_FORGIVEN: Span = Span::secs(1800);
/// Why, for people, bytes: it stands in a beacon.
pub const ILL_WHY_BYTES: usize = 128;
/// A killed process that is still there is killed again this often.
pub const KILL_AGAIN: Span = Span::secs(1);

/// First and longest wait before a clone that died is started again.
pub const BACKOFF_FIRST: Span = Span::millis(100);
pub const BACKOFF_MAX: Span = Span::secs(10);
/// Having served so long, a clone has proved itself: its next death is a first one again.
pub const BACKOFF_FORGIVEN: Span = Span::secs(10);

/// Lines of output kept for each clone.
pub const OUTPUT_LINES: usize = 20;
/// Longest line kept, bytes. The whole line is in the log.
pub const OUTPUT_LINE_BYTES: usize = 256;
/// A beacon carries at most this much (its limit is 64 KiB): older output is left out first.
pub const BEACON_BYTES_MAX: usize = 56 << 10;
/// Up to so many clones are told in one fact: a change of it costs less than parts would.
pub const PARTS_FROM: usize = 100;
/// Parts that services are spread over: with [`SERVICES_MAX`] of them, 32 services are told anew when one has changed.
pub const PARTS: u32 = 64;
/// Of one part, as far as several services are in it: half of what a fact may have, as sizes are estimated.
pub const PART_BYTES: usize = 32 << 10;
/// Parts of one thing that a node says: a few for each slot. Three things are said so, and a node has 1,024 facts.
pub const PARTS_MAX: usize = 256;
/// What a service takes in a part at most, bytes: its name, and its index.
pub const PART_SERVICE_BYTES: usize = 80;
/// What a clone takes there at most, bytes, without texts: where it is and comes from, with the ids of both nodes.
pub const PART_PLACE_BYTES: usize = 48;
/// ... of what its node says of it.
pub const PART_CLONE_BYTES: usize = 72;

/// A new leader believes that a node is gone of which it never heard only after this: what it knows is soft and must be
/// collected first. One that it saw die is gone at once.
pub const SETTLE: Span = Span::secs(2);
/// A clone moved for balance must serve at its new node by then, or the move is taken back.
pub const MOVE_TIME_MAX: Span = Span::secs(30);
/// Clones that leave draining nodes at once, over the whole cluster: each runs twice for a moment, and starting costs.
pub const MOVES_AT_ONCE: usize = 8;
/// After a move was taken back, nothing of that service is moved for balance for so long.
pub const MOVE_REST: Span = Span::secs(300);

/// The wait that hurts, unless the service says: about what people begin to feel.
pub const WAIT_HURTS_DEFAULT: Span = Span::millis(100);
/// A shorter one is lost in what requests take anyway.
pub const WAIT_HURTS_MIN: Span = Span::millis(5);
/// The wait of a job that hurts, unless the service says: nobody sits before it.
pub const WAIT_JOBS_DEFAULT: Span = Span::secs(5);
/// Queues that one service works on.
pub const QUEUES_PER_SERVICE_MAX: usize = 8;
/// Bytes of the name of one: longer names are cut off where queues are shown.
pub const QUEUE_NAME_BYTES_MAX: usize = 63;
/// What queues are like is told once a second, and of what was told then: so long after a change it is seen.
pub const QUEUE_SHOWN_AFTER: Span = Span::secs(3);
/// Over so long it is seen whether jobs become fewer, ...
pub const QUEUE_TREND_OVER: Span = Span::secs(3);
/// ... and how many workers have on average.
pub const QUEUE_HELD_OVER: Span = Span::secs(10);
/// What is told of a queue is of use so long: two tellings were lost.
pub const QUEUE_GOOD_FOR: Span = Span::secs(4);
/// A queue of which nobody tells for so long is none: changes of leaders take seconds.
pub const QUEUE_GONE_AFTER: Span = Span::secs(60);
/// Between what an edge says of its requests and the next, and between two looks of the manager: quick enough for a burst, and
/// a small frame to one node.
pub const LOAD_EVERY: Span = Span::millis(250);
/// What an edge said is of no use after so long: three were lost, or it is gone.
pub const LOAD_GOOD_FOR: Span = Span::secs(1);
/// Moving averages look back about so far: over a few of its reports.
pub const AVERAGE_OVER: Span = Span::millis(400);
/// And those that must not follow chance, so far.
pub const AVERAGE_LONG_OVER: Span = Span::secs(2);
/// Nothing is learned from fewer answers.
pub const ANSWERS_MIN: f64 = 30.0;
/// But the first so many may turn out to have been quicker than those that come in a burst right after.
pub const ANSWERS_FIRST: f64 = 10.0;
/// So many requests under way for each that clones can do at once are a queue.
pub const BACKLOG: f64 = 3.0;
/// How long clones take to start, before any has shown it; and how much each start counts.
pub const START_GUESS: Span = Span::secs(1);
pub const START_WEIGHT: f64 = 0.3;
/// H is this share of the wait that hurts: REACT_IN / (REACT_IN + start), but not less than the minimum.
pub const REACT_IN: Span = Span::secs(1);
pub const THRESHOLD_SHARE_MIN: f64 = 0.1;
/// Below this many requests under way for each clone, what they take may be learned as what they take without waiting.
pub const AT_EASE: f64 = 0.5;
/// Requests under way on average that may be one after the other.
pub const ALONE: f64 = 1.1;
/// And so much of the difference is taken over each time.
pub const LEARN_WEIGHT: f64 = 0.02;
/// What requests take when none is answered any more.
pub const TAKES_MAX: Span = Span::secs(60);
/// Requests that a clone can be believed to do at once.
pub const WIDTH_MAX: f64 = 4096.0;
/// New clones are as many as makes each so busy, and some go when the fewer would be no busier than the lower: between the
/// two nothing changes, so nothing flaps.
pub const BUSY_WANTED: f64 = 0.7;
pub const BUSY_LOW: f64 = 0.5;
/// When more than this part of what comes is refused for lack of room, clones are added, however short the waits of the others.
pub const REFUSED_PART: f64 = 0.02;
/// For so long: a moment in which a machine stood still is no reason.
pub const REFUSED_FOR: Span = Span::secs(1);
/// So many times as much comes as the last growth was made for: that is news, and no reason to rest.
pub const MUCH_MORE: f64 = 1.5;
/// More than this times as many requests come as are answered: a queue grows.
pub const GROWING: f64 = 1.1;
/// One decision grows a service to this many times its size at most: an estimate may be wrong.
pub const GROW_MAX: u32 = 4;
/// Less than this is taken as no change, when it is asked whether growth has helped.
pub const SAME: f64 = 0.85;
/// Clones go after fewer would have done for so many rests D, and at least for so long.
pub const SHRINK_RESTS: u64 = 5;
pub const SHRINK_AFTER_MIN: Span = Span::secs(10);
/// A node is full when its machine was so busy on average, in thousandths, and has room again below the lower.
pub const NODE_FULL: f64 = 900.0;
pub const NODE_HAS_ROOM: f64 = 600.0;
/// That average looks back about so far.
pub const NODE_AVERAGE_OVER: Span = Span::secs(5);
/// Clones on one node for each of its processors, unless it says otherwise; more are for when all nodes are full.
pub const CLONES_PER_PROCESSOR: u32 = 4;
/// Bytes of what an edge says: all services and clones at some 150 bytes.
pub const DEMAND_BYTES_MAX: usize = 1 << 20;
/// Bytes of what an edge tells others by priority: some hundred services at some 100 bytes, as it goes to every node.
pub const DOORS_BYTES_MAX: usize = 32 << 10;

/// Versions of a service that are kept, with their archives on every node.
pub const VERSIONS_KEPT: usize = 10;
/// New clones are judged after so many answers and so long, or, of services that are asked little, after the longer time.
pub const JUDGE_ANSWERS: u64 = 20;
pub const JUDGE_MIN: Span = Span::secs(1);
pub const JUDGE_MAX: Span = Span::secs(4);
/// And all of them at last so long, before the old version is given up.
pub const JUDGE_LAST: Span = Span::secs(2);
/// After the first, this part of a service's clones is replaced at once.
pub const ROLLED_AT_ONCE_PART: usize = 8;
/// A new clone that died so often is a bad one.
pub const DEATHS_MAX: u32 = 2;
/// On top of the time to start: its node fetches the version's archive first.
pub const CODE_PATIENCE: Span = Span::secs(30);
/// New ones are worse with this many times as many failed answers as the old ones, and a little more, or answers that take so
/// many times as long, and a little more: what differs less may be chance.
pub const WORSE: f64 = 2.0;
pub const FAILURES_MIN: u64 = 3;
pub const FAILURE_RATE_MAX: f64 = 0.02;
pub const SLOWER_MAX: Span = Span::millis(20);
/// ... or with so many times as many answers that say they have too much to do, and a little more; ...
pub const OVERLOAD_RATE_MAX: f64 = 0.1;
/// ... or with some requests that they have owed for so long, or so many times as long as the slowest answer took. Less than it
/// takes to judge who is asked little.
pub const OWES_AFTER: Span = Span::millis(2500);

/// Jobs that one clone of a worker does at a time: processes beside each other. More are for more clones.
pub const WORKER_RUN_AT_ONCE_MAX: u32 = 64;
/// Types that a worker, or a step of a pipeline, takes.
pub const WORKER_TYPES_MAX: usize = 32;
/// Of the name of a type of content.
pub const TYPE_BYTES_MAX: usize = 127;
/// One job of a worker. People wait for what it makes.
pub const WORKER_TIMEOUT_DEFAULT: Span = Span::secs(10);
pub const WORKER_TIMEOUT_MIN: Span = Span::millis(10);
pub const WORKER_TIMEOUT_MAX: Span = Span::secs(600);
/// Data of a worker's process: a large picture and what a decoder needs for it, and no node is brought down.
pub const WORKER_MEMORY_DEFAULT: u64 = 1 << 30;
pub const WORKER_MEMORY_MIN: u64 = 8 << 20;

/// All steps of a pipeline: people wait, and better get the original than wait for longer.
pub const PIPELINE_TIMEOUT_DEFAULT: Span = Span::secs(5);
pub const PIPELINE_TIMEOUT_MAX: Span = Span::secs(60);
/// An answer that is held whole at the edge, for its pipeline.
pub const PIPELINE_BODY_DEFAULT: u64 = 2 << 20;
/// ... and what a stub takes.
pub const PIPELINE_BODY_MAX: u64 = 16 << 20;
pub const PIPELINE_STEPS_MAX: usize = 16;
/// Jobs that one step asks for at once.
pub const PIPELINE_PARTS_MAX: usize = 16;
pub const PIPELINES_MAX: usize = 256;
/// Parameters of a step: what a stub takes as a query, percent-encoded.
pub const PIPELINE_PARAMS_MAX: usize = 32;
pub const PIPELINE_PARAMS_BYTES_MAX: usize = 2 << 10;

/// What goes before a version, if nothing else is declared: most migrations take seconds, a large index some minutes.
pub const BEFORE_TIMEOUT_DEFAULT: Span = Span::secs(600);
/// A run that comes at times, if nothing else is declared.
pub const RUN_TIMEOUT_DEFAULT: Span = Span::secs(3600);
/// The longest of both that makes sense to declare.
pub const RUN_TIMEOUT_MAX: Span = Span::secs(7 * 24 * 3600);
/// A run is two changes of the root group, each forced to the disks of a majority.
pub const EVERY_MIN: Span = Span::secs(1);
pub const EVERY_MAX: Span = Span::secs(366 * 24 * 3600);
/// A run waits so long for what it needs: its folder is fetched meanwhile; a secret that nobody sets is not waited for.
pub const RUN_WAITS_MAX: Span = Span::secs(60);
/// The leader's word that a run may go on is good for so long, from when it was asked for: longer than a change of leaders takes.
pub const RUN_LEASE: Span = Span::secs(6);
/// ... and when the leader last gave it so long ago, or came to lead, the run has ended: what is between is for clocks that go apart,
/// for a leader that does not know yet that it is none, and for the kill.
pub const RUN_GIVE_UP: Span = Span::secs(9);
/// How often nodes ask for it.
pub const RUN_ASKED_EVERY: Span = Span::secs(1);
/// A run that was lost and may be tried again is tried so often in all.
pub const RUN_ATTEMPTS_MAX: u32 = 3;
/// A time that came so long ago has passed: nobody was there to run it. A leader is followed by the next well within this.
pub const RUN_LATE_MAX: Span = Span::secs(60);
/// Lines of a run's output that its record keeps; all are in its log.
pub const RUN_LINES: usize = 10;
/// Runs that are begun or ended by one change of the root group.
pub const RUNS_PER_CHANGE: usize = 16;
/// Runs that one word between nodes names: one a service and kind.
pub const RUNS_SAID_MAX: usize = 2 * SERVICES_MAX;
/// What operators run by hand on a node at once.
pub const ONCE_MAX: u32 = 4;
/// How that ended is known for so long.
pub const ONCE_KEPT: Span = Span::secs(30);

const _: () = assert!(RUN_ASKED_EVERY.0 * 4 < RUN_LEASE.0, "three lost frames end no run");
const _: () = assert!(RUN_LEASE.0 + 2_000_000 < RUN_GIVE_UP.0, "a run has ended when it is given up");
const _: () = assert!(QUEUE_GOOD_FOR.0 < QUEUE_GONE_AFTER.0, "between the two nothing changes");
const _: () = assert!(BUSY_LOW < BUSY_WANTED && NODE_HAS_ROOM < NODE_FULL, "between the two nothing changes");
const _: () = assert!(LOAD_EVERY.0 * 3 < LOAD_GOOD_FOR.0, "two lost reports must not silence an edge");
const _: () = assert!(CLONES_PER_SERVICE_MAX <= CLONES_MAX, "one service cannot have more clones than all");
const _: () = assert!(PARTITIONS_PER_SERVICE_MAX <= PARTITIONS_MAX, "one service cannot have more than all");
const _: () = assert!(CLONES_DEFAULT <= CLONES_PER_SERVICE_MAX, "the default is allowed");
const _: () = assert!(
    SERVICES_MAX * CLONES_DEFAULT as usize <= CLONES_MAX as usize,
    "as many may be declared without more words"
);
const ONE_PLACED: usize = PART_SERVICE_BYTES + CLONES_PER_SERVICE_MAX as usize * (PART_PLACE_BYTES + ILL_WHY_BYTES);
const _: () = assert!(ONE_PLACED <= BEACON_BYTES_MAX, "one service fits into a part");
// Twice: while clones are replaced, two of each are listed.
const ONE_RUN: usize = PART_SERVICE_BYTES + 2 * CLONES_PER_SERVICE_MAX as usize * PART_CLONE_BYTES;
const _: () = assert!(ONE_RUN <= BEACON_BYTES_MAX, "and so does what one node says of it");
const _: () = assert!(
    2 * CLONES_MAX as usize * (PART_SERVICE_BYTES + PART_CLONE_BYTES) / PART_BYTES + 2 * (PARTS as usize) <= PARTS_MAX
);
const _: () = assert!(PROBE_TIMEOUT.0 < PROBE_LOST.0, "a probe's own timeout ends it before it counts as lost");
const SICK_WITHIN: u64 = (PROBE_SERVING_EVERY.0 + PROBE_LOST.0) * PROBES_FAILED_MAX as u64;
const _: () =
    assert!(PANIC_WAIT_FIRST.0 > SICK_WITHIN && PANIC_CALM.0 > SICK_WITHIN, "whether a restart helped shows later");
const _: () = assert!((HUNG_AFTER.0 << ILL_DOUBLED_MAX) < ILL_FORGIVEN.0, "who is found ill again was not forgiven");
const _: () = assert!(OWES_AFTER.0 < JUDGE_MAX.0, "who hangs is found before it is given up");
const _: () = assert!(PANIC_WAIT_FIRST.0 <= PANIC_WAIT_MAX.0, "waits grow");
const _: () = assert!(STARTS_WAIT.0 < START_TIMEOUT_DEFAULT.0, "who never comes up keeps nobody for long");
const _: () = assert!(START_TIMEOUT_DEFAULT.0 < MOVE_TIME_MAX.0, "a moved clone has time to start twice");
const _: () = assert!(BACKOFF_FIRST.0 <= BACKOFF_MAX.0, "waits grow");

/// Bytes of a profile as JSON: it goes with each request, in a header.
pub const PROFILE_BYTES_MAX: usize = 3_000;
/// Fields of a schema.
pub const PROFILE_FIELDS_MAX: usize = 64;
/// Bytes of what a person is called.
pub const PROFILE_ID_BYTES_MAX: usize = 200;
/// Memory of each node for profiles of one namespace that it has read: some thousands of the largest.
pub const PROFILES_KEPT_BYTES: u64 = 16 << 20;
/// Profiles of one cluster that may be declared.
pub const PROFILES_MAX: usize = 64;
/// Host names of one certificate: what public directories take.
pub const CERTIFICATE_NAMES_MAX: usize = 100;
/// Addresses that a directory may write to.
pub const CERTIFICATE_CONTACTS_MAX: usize = 8;
/// Roots of a private directory; one has some kilobytes.
pub const CERTIFICATE_CA_BYTES_MAX: usize = 32 << 10;
/// A host name (RFC 1035 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;
/// Browsers that were told so come by HTTPS alone, also when there is none any more: lists of browsers ask for one year.
pub const HSTS_MAX: Span = Span::secs(2 * 366 * 86_400);
