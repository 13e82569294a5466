//! Numbers of the `session` class, with units and reasons.

use base::Span;

/// Bricks a write is sent to (SSM's W).
pub const BRICKS_ASKED: usize = 3;
/// Answers a write waits for (SSM's WQ): two copies survive the death of one.
pub const BRICKS_ACKED: usize = 2;
/// Bricks a read by cookie asks (SSM's R).
pub const BRICKS_READ: usize = 2;

const _: () = assert!(BRICKS_ACKED <= BRICKS_ASKED, "cannot wait for bricks that were not asked");
const _: () = assert!(2 * BRICKS_ACKED > BRICKS_ASKED, "two writes of one key must meet in a brick");

/// A brick that has not answered by then is passed over, unless the namespace declares another `timeout`: far above a
/// round trip of a busy network (1 ms), far below what a person notices.
pub const BRICK_TIMEOUT: Span = Span::millis(60);
/// A read by key that waits for a brick asks another one as well after so many times what the quickest brick takes of late,
pub const HEDGE_TIMES: u64 = 4;
/// and not sooner: a process that does not run for a moment is no slow brick.
pub const HEDGE_MIN: Span = Span::millis(4);
/// Only answers quicker than this let a window grow: it should find its size before requests time out.
pub const QUICK: Span = Span(BRICK_TIMEOUT.0 / 2);
/// A member that is dead for so long leaves the map: longer than a restart of its machine's program.
pub const DEAD_LEAVES_AFTER: Span = Span::secs(60);
/// The map does not shrink below this: with fewer there is no third copy to give.
pub const MEMBERS_MIN: usize = 3;
/// A node that sees less than half of the map stops serving after this, well before the others may drop it from the
/// map ([`DEAD_LEAVES_AFTER`]): or both sides of a partition would acknowledge writes of one key.
pub const MINORITY_SERVES: Span = Span::secs(30);
const _: () = assert!(MINORITY_SERVES.0 < DEAD_LEAVES_AFTER.0, "who is dropped must have stopped before");
/// A brick cut off for so long forgets all and is filled anew: the others' tombstones may be gone by then.
pub const CUT_OFF_FORGETS: Span = Span::secs(600);
/// Who has been out of reach for so long has nothing any more: it is dead, or was cut off and has forgotten all; and a little, as
/// two nodes lose sight of each other within some seconds.
pub const DEAD_HAS_NOTHING: Span = Span(CUT_OFF_FORGETS.0 + Span::secs(20).0);
/// Who sends requests that seem late is told so this often: that its clock stood still it needs to hear but once, and where
/// queues are long answers make them longer.
pub const LATE_TOLD_EVERY: Span = Span::millis(20);
/// What waits for longer than this is told so with its answer.
pub const WAIT_TOLD_MS: u64 = 4;
/// Two stamps, and what a request waited, are rounded to the millisecond.
pub const STAMP_COARSE_MS: u64 = 3;
/// People are told of a clock that stood still for so long: shorter stops are made up for without a word.
pub const STOOD_NOTED_MS: u64 = 100;
/// A removal is remembered at least so long, so that a brick which missed it cannot bring the value back.
pub const TOMBSTONE_KEPT: Span = Span::secs(1800);
const _: () = assert!(CUT_OFF_FORGETS.0 < TOMBSTONE_KEPT.0, "who comes back must find the tombstones");
/// A removal that all bricks of its key have is remembered so long: longer than any operation that began before it.
pub const SETTLED_KEPT: Span = Span::secs(30);
const _: () = assert!(SETTLED_KEPT.0 > BUDGET_MAX.0, "an older write may still be under way");
/// Values of a shorter lease are remembered for [`TOMBSTONE_KEPT`] only until all bricks have them, which costs a frame
/// to each; with a longer lease, the mere version that stays costs less than the value did.
pub const SETTLED_BELOW: Span = Span::secs(300);
/// A restarted brick waits so long for members that are not there before it counts as settled without them.
pub const SETTLE_GRACE: Span = Span::secs(10);
/// A version this far ahead of the brick's clock is refused and its writer reported.
pub const CLOCK_AHEAD_MS_MAX: u64 = 1000;
/// A copy of what other bricks hold is taken whatever clock its version is of: they accepted it, and clocks are put right later. But
/// a year ahead no clock ever was, and what nobody can overtake any more would stay for ever.
pub const COPY_AHEAD_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// Milliseconds since 1970 (in the year 10889) past which no message has a time: as large as a cookie's, and what is added to it fits.
pub const TIME_MS_MAX: u64 = (1 << 48) - 1;
/// Between two such reports.
pub const AHEAD_NOTED_EVERY: Span = Span::secs(10);
/// What a conditional write replaced is kept so long, should it have to be undone: longer than its writer sees to it.
pub const UNDO_KEPT: Span = Span::secs(12);
/// A conditional write whose asker has given up is seen to so long, until it is confirmed or taken back: beyond the time in
/// which a death is known, and no longer, for one of these may be left by each operation.
pub const OPEN_MAX: Span = Span::secs(10);
/// Longest budget of one operation: front doors ask for 1 to 2 s.
pub const BUDGET_MAX: Span = Span::secs(10);
/// Memory of one brick before new keys are refused, bytes; unless its node is told otherwise.
pub const BRICK_BYTES: u64 = 1 << 30;
/// Less would not hold a few of the largest values.
pub const BRICK_BYTES_MIN: u64 = 16 << 20;
/// What a full brick still takes, as a share of its memory: growth of values that it has,
pub const GROWTH_SHARE: u64 = 16;
/// and copies of what other bricks have acknowledged, which were never new to the cluster. Keys are spread within a few
/// per cent, so this is used up only where nodes were given less memory than others.
pub const COPY_SHARE: u64 = 4;
const _: () = assert!(COPY_SHARE < GROWTH_SHARE, "what is acknowledged comes before growth");
/// When a retry of a write is worth it that found no memory: leases end all the time.
pub const FULL_RETRY_AFTER: Span = Span::secs(1);
/// Damaged values within [`DAMAGE_SPAN`] after which a brick takes its memory for failing, and starts anew.
pub const DAMAGE_MAX: usize = 3;
pub const DAMAGE_SPAN: Span = Span::secs(60);
/// Outlier detection: bricks are measured by what a stub saw of this many of its requests at least,
pub const OUTLIER_ASKED_MIN: u64 = 20;
/// by so many looks together, more or less (exponentially weighted),
pub const OUTLIER_SMOOTH: f64 = 4.0;
/// no more often than this (nodes tell each other each second, more or less),
pub const OUTLIER_LOOKS_EVERY: Span = Span::millis(500);
/// and compared if there are so many beside the stub's own: W more than the one that is to restart, with the own.
pub const OUTLIER_AMONG: usize = BRICKS_ASKED + 1;
/// It differs that deviates from the median by so many times what others do (as standard deviations),
pub const OUTLIER_DEVIATIONS: f64 = 5.0;
/// and does worse than twice as bad, by this much at least: half a millisecond in the mean (SSM 5.8 has a fault of one),
pub const OUTLIER_TOOK: Span = Span::micros(500);
/// 2 of 100 requests late,
pub const OUTLIER_LATE: f64 = 200.0;
/// 1 of 100 answers damaged,
pub const OUTLIER_DAMAGED: f64 = 100.0;
/// for so long, less the time for which it did not: a machine may be busy with something for a moment. With what it takes until its mean
/// shows it and nodes have told each other it starts anew after 6 to 8 s; SSM's took 5 to 10 (5.8).
pub const OUTLIER_AFTER: Span = Span::secs(5);
/// What was measured of a brick is compared for so long, if it is asked too little to be measured again.
pub const OUTLIER_KNOWN_FOR: Span = Span::secs(10);
/// A stub knows what is usual for a brick after so many looks, so that one that is far away is told from one that is slow,
pub const OUTLIER_LEARNS: u32 = 30;
/// and what was is forgotten by so much as it would be by the mean of so many.
pub const OUTLIER_LEARNS_OF: u32 = 256;
/// An opinion counts for so long; it is repeated each second.
pub const OUTLIER_SAID_FOR: Span = Span::secs(5);
/// Whatever one stub alone thinks may be the stub's fault.
pub const OUTLIER_SAID_MIN: usize = 2;
/// What starts anew for that and goes on to differ does so again after this, and then after twice as long:
pub const OUTLIER_RESTS: Span = Span::secs(600);
/// so often, and then it is left alone
pub const OUTLIER_RESTARTS_MAX: usize = 3;
/// until this has passed since.
pub const OUTLIER_FORGIVEN: Span = Span::secs(4 * 3600);
/// Queues of timers that are kept when they are empty: namespaces rarely have more different timeouts.
pub const TIMER_QUEUES_KEPT: usize = 8;
/// Namespaces whose write intervals a brick tells of; a report is a few kilobytes.
pub const INTERVALS_TOLD: usize = 64;
/// A table of a brick gives memory back when it is emptier than one in so many slots. A generation from which sessions move on,
/// each time they are touched, would stay as large as it was until its last lease ends.
pub const SHRINK_BELOW: usize = 4;
/// Beside its bytes a handle ([`bytes::Bytes`]) with more than one holder has a counter, their place and their number.
pub const HANDLE_BYTES: u64 = 24;
/// The level ([`base::level`]) from which on every program keeps the kind beside a value.
pub const KINDS_SINCE: u32 = 2;
/// From it on every brick says that it has heard what it lacks; an older one would be told again and again.
pub const LACKS_SINCE: u32 = 2;
/// Values below this are copied when a brick stores them: a slice would hold the read buffer it came in.
pub const COPY_BELOW: usize = 64 << 10;
/// Shards of a brick's index. A page of a walk is some whole shards, so a walk needs no lock and no snapshot; one
/// shard of a brick with a million keys has 256.
pub const SHARDS: usize = 4096;
/// Lease ends are rounded up to this for expiry tables (SSM 3.3): at most so long is a dead value's memory held.
pub const GENERATION: Span = Span::secs(10);
/// Expired entries freed per call: bounds a call to some 100 µs.
pub const FREED_PER_CALL: usize = 512;
/// How long the brick rests between looks for expired tables.
pub const SWEEP_EVERY: Span = Span::secs(1);
/// Entries listed in one page of a fill or walk; a page of longest keys is 512 KiB.
pub const PAGE_ENTRIES: usize = 1024;
/// Keys that a dump walks over at a time,
pub const DUMP_KEYS: u32 = 256;
/// ... and reads at once: at 1 MiB each at most what one of the largest values of `linear` has.
pub const DUMP_GETS: usize = 16;
/// Who lacks writes is told so after this, and again until it has heard: one look makes up for all that were missed together.
pub const LACKS_TOLD_EVERY: Span = Span::secs(1);
/// A brick looks through the others for what it lacks no more often: with a million keys that costs each of them a second of work,
/// and where too much is asked of it all the time there is always something.
pub const LOOKS_AGAIN_EVERY: Span = Span::secs(10);
/// Values a filling brick has on order from one peer: 16 of 8 KiB a round trip is 100 MB/s and leaves room for work.
pub const FILL_UNDER_WAY: usize = 16;
/// Silence after which a filling brick asks again.
pub const FILL_TIMEOUT: Span = Span::millis(250);
/// So long after its start a node is still meeting the others: operations that need more bricks than it knows wait
/// within their budgets.
pub const YOUNG: Span = Span::secs(3);
/// Between two looks of such an operation.
pub const YOUNG_RESTS: Span = Span::millis(20);
/// Tries of one attempt's legs, and of writes that lost to newer ones, within one operation.
pub const ROUNDS_MAX: u8 = 60;
/// Times that the third brick of a write already answered is asked again.
pub const FINISH_TRIES: u8 = 3;
/// An undo is asked for again so often (every [`BRICK_TIMEOUT`] or longer) before it is given up: 3 s, when the brick is dead.
pub const UNDO_TRIES: u8 = 50;
/// Fields of one document that are merged one by one; with so many its mark has 16 KiB.
pub const FIELDS_MAX: usize = 1024;
/// Fields of the documents that readers wrote last, all of them together, each 16 bytes: 4 MiB.
pub const WRITERS_FIELDS_MAX: usize = 256 << 10;
const _: () = assert!(FIELDS_MAX < WRITERS_FIELDS_MAX, "the last one written must be remembered");
/// Between two notes that a namespace which merges fields is given something else.
pub const PLAIN_NOTED_EVERY: Span = Span::secs(60);
/// A conditional write rests at most so long while it is open which of two others was the faster: a taking back needs a
/// round trip, and [`BRICK_TIMEOUT`] where its frame was lost.
pub const DOUBT_RESTS: Span = Span::millis(10);
/// A write that is to be refused for this node's clock first waits so long for what the bricks say of theirs, and they are asked
/// no more often.
pub const CLOCKS_RESTS: Span = Span(BRICK_TIMEOUT.0 / 2);
/// Between two doubts about one peer.
pub const DOUBT_EVERY: Span = Span::millis(200);
/// Requests that have lain in queues for longer than this on their way to a brick are too many for it: a third of the time that
/// their stubs wait, so that there is room left to do something about it.
pub const INTAKE_WAIT: Span = Span(BRICK_TIMEOUT.0 / 3);
/// Retry hint of a refusal for lack of room or bricks.
pub const RETRY_AFTER: Span = Span::millis(100);
/// Refused cookies are logged so often at most: whoever forges them must not fill the disk.
pub const COOKIES_NOTED_EVERY: Span = Span::secs(10);
/// How long a value is kept after it was last written, where nothing else is declared: as sessions of the web are.
pub const LEASE_MS_DEFAULT: u64 = 30 * 60 * 1000;
/// Shorter leases end before their owner's next request.
pub const LEASE_MS_MIN: u64 = 1000;
/// 400 days: the longest life browsers give a cookie.
pub const LEASE_MS_MAX: u64 = 400 * 24 * 3600 * 1000;
/// Shorter, and a busy moment of the network looks like overload.
pub const TIMEOUT_MS_MIN: u64 = 5;
/// Longer is longer than front doors wait for a whole operation.
pub const TIMEOUT_MS_MAX: u64 = 5000;
