//! Numbers of the API, with units and reasons.

use std::time::Duration;

use base::Span;

/// A declaration. The largest known of other systems have some 100 KiB.
pub const DECLARATION_BYTES_MAX: usize = 1 << 20;
/// The archive of a folder that is deployed.
pub const CODE_BYTES_MAX: usize = host::limits::CODE_BYTES_MAX as usize;
/// Archives on their way in at once, each whole in memory; and as many copies from other nodes, which must not wait for those
/// that wait for them.
pub const UPLOADS_MAX: usize = 2;
/// A value over HTTP: what the `session` class takes, and a little, so that the class itself says what is too much.
pub const VALUE_BYTES_MAX: usize = base::limits::SESSION_VALUE_BYTES_MAX + 1024;
/// Certificates and keys that a clone is given: some hundred names. The SDK takes 16 MiB.
pub const CERTIFICATES_BYTES_MAX: usize = 8 << 20;
/// What a clone says of its stages: eight, with a dozen figures each, and room for more figures.
pub const STAGES_BYTES_MAX: usize = 16 << 10;
/// Any other body.
pub const BODY_BYTES_MAX: usize = 16 << 10;
/// A transaction of class `linear`, or a function with its arguments, as JSON: a few values. Large ones go by key.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// Time for an operation on a value, as for Redis clients.
pub const OP_BUDGET: Span = Span::millis(1000);
/// Time for an operation of class `cache`: a purge waits for the leases of a hung node, a second, and is given up after two.
pub const PURGE_BUDGET: Span = Span::millis(2500);
/// Time for a read that waits for what somebody else fetches, unless who asks has less.
pub const FETCH_BUDGET: Span = Span::secs(10);
/// Time for an operation of class `linear`: a leader that hangs is known after under 3 s, and another one elected.
pub const LINEAR_BUDGET: Span = Span::secs(4);
/// Time for an operation on an object: a candidate that is silent is replaced after 250 ms, and the next one too.
pub const OBJECT_BUDGET: Span = Span::secs(4);
/// ... and so much more for each MiB of one that is put: it goes to two disks, which others write to, too.
pub const OBJECT_BUDGET_PER_MIB: Span = Span::millis(500);
/// A large object comes whole in this time, as long as something of it comes in `BODY_TIME_MAX`: 64 MiB over a line of 1 Mbit/s.
pub const OBJECT_BODY_TIME_MAX: Duration = Duration::from_secs(600);
/// Large objects on their way in, MiB, over all connections of a node, beside the first MiB of each. More are told to come again.
pub const OBJECTS_COMING_MIB: usize = 192;
/// ... and of one namespace: two of the largest, and a third of all is for others.
pub const OBJECTS_COMING_OF_ONE_MIB: usize = 128;
/// A piece of an object that is being read is asked for so long: a holder that died is known by then.
pub const OBJECT_PIECE_TIME_MAX: Duration = Duration::from_secs(10);

/// Time for a put of so many bytes.
pub fn object_budget(bytes: usize) -> Span {
    OBJECT_BUDGET + OBJECT_BUDGET_PER_MIB.times((bytes >> 20) as u64)
}
/// Time for a change of the declaration: the root group may be electing a leader, which takes 1.5 s.
pub const CHANGE_BUDGET: Span = Span::secs(10);
/// A change that is done is shown within this, or answered without.
pub const SHOWN_TIME_MAX: Duration = Duration::from_secs(2);
/// The node's own thread must answer `/livez` within this.
pub const LIVE_WITHIN: Span = Span::secs(2);
/// Readers of `/v1/events` and the like at a time: without a token,
pub const STREAMS_MAX: usize = 256;
/// ... with the operator's.
pub const OPERATOR_STREAMS_MAX: usize = 64;
/// Readers of a service's members and messages at a time, with its token: every clone that a node may run, and some people.
pub const MEMBER_STREAMS_MAX: usize = 1280;
/// A broadcast must be confirmed by all live nodes by then; a dead one is known sooner.
pub const BROADCAST_BUDGET: Span = Span::secs(5);
/// A clone waits at a barrier for so long, unless it says, and at most.
pub const BARRIER_WAIT: Span = Span::secs(30);
pub const BARRIER_WAIT_MAX: Span = Span::secs(300);
/// One question of a stream for messages; then it is asked anew.
pub const LISTEN_FOR: Span = Span::secs(20);
/// Lines of clones' logs in an answer, unless it is asked for others, and at most.
pub const LOG_LINES: usize = 100;
pub const LOG_LINES_MAX: usize = 10_000;
/// Namespaces that are dumped or loaded at a node at once.
pub const DUMPS_MAX: usize = 4;
/// Of a dump that its reader has not taken yet: batches.
pub const DUMP_PAGES_AHEAD: usize = 2;
/// Bytes of a dump in a second, unless it is asked for otherwise: a part of what a network card of 1 GBit/s carries.
pub const DUMP_RATE: u64 = 64 << 20;
/// A dump waits so many times as long as its last page took, and a load as its last batch: a third and a half of what they could do.
pub const DUMP_YIELDS: u32 = 2;
pub const LOAD_YIELDS: u32 = 1;
/// ... each time it comes to so much ...
pub const YIELD_MIN: Duration = Duration::from_millis(2);
/// ... but no longer than this: what takes so long waits itself, for a group that elects.
pub const YIELD_MAX: Duration = Duration::from_secs(1);
/// A question of a dump or load is asked again for so long, while a group elects or has too much to do.
pub const DUMP_ASKED_MAX: Duration = Duration::from_secs(20);
/// ... and not sooner than after this.
pub const DUMP_AGAIN: Duration = Duration::from_millis(20);
/// Keys that are loaded at once: enough for an entry of a group's log to hold many.
pub const LOAD_AT_ONCE: usize = 256;
/// ... or bytes of them, with which there is no more: others' writes wait in the log behind them.
pub const LOAD_BYTES_AT_ONCE: usize = 256 << 10;
/// A reader gets at most one view in so long: faster is not seen by people.
pub const STREAM_EVERY: Duration = Duration::from_millis(500);
/// A comment line is sent in a quiet stream, so that proxies do not close it.
pub const STREAM_KEEPALIVE: Duration = Duration::from_secs(15);
/// Clients of a node that watch a namespace, at a time. Each costs a connection and a question.
pub const WATCHERS_MAX: usize = 1024;
/// Who takes a job waits for one for so long at most; then it asks again.
pub const TAKE_WAIT_MAX: Span = Span::secs(30);
/// Clients of a node that wait for jobs, at a time. Each costs a connection; those of one queue one question.
pub const TAKERS_MAX: usize = 1024;
/// A client that watches and has not taken what was told it before for so long is told that it is too slow.
pub const WATCHER_STALL_MAX: Duration = Duration::from_secs(30);
/// Changes of objects that a stream remembers to have told: each node that has an object tells of it, within a second or so.
pub const OBJECTS_TOLD_MAX: usize = 4096;
/// A watch that could not be asked (its group has no leader) is asked again after this.
pub const WATCH_AGAIN: Span = Span::millis(100);
/// What is held no more is let go again after so long at most, where there was no room for that.
pub const LET_GO_AGAIN_MAX: Span = Span::secs(5);
/// A client that takes nothing of its answer for so long is gone.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// Connections to the API at a time that showed a token: clones, clients of `/v1/ns`, operators. When there is no room, whoever has
/// fewer than another one takes the oldest of that one's.
pub const CONNECTIONS_MAX: usize = 2048;
/// ... that asked without one: people, scripts, scrapers; and programs with the handle of a session.
pub const STRANGERS_MAX: usize = 1024;
/// ... that asked only whether the node lives or is ready.
pub const PROBES_MAX: usize = 256;
/// ... that have not asked yet: ten thousand a second push out who says nothing for 400 ms; a request is there after a few.
pub const SILENT_MAX: usize = 4096;
/// A request's header must have come by then.
pub const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// A request's body must have come by then.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// Good for so long unless the request says otherwise.
pub const JOIN_TOKEN_LIFE: Duration = Duration::from_secs(3600);
/// And never longer: a token in a chat log must not open the cluster next year.
pub const JOIN_TOKEN_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Machines that join with one token: a rack, by a script.
pub const JOIN_USES_MAX: u32 = 1000;
/// Longest description of a service that is shown: some hundred paths. It is read anew each time that it is asked for.
pub const OPENAPI_BYTES_MAX: u64 = 256 << 10;
/// Pause after `accept` failed (no descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const _: () = assert!(
    DUMP_ASKED_MAX.as_secs() * 1_000_000 < state::linear::limits::DUMP_KEPT.as_micros(),
    "who asks again for a page finds it"
);
const _: () = assert!(
    (OBJECTS_COMING_MIB << 20) + state::object::limits::OBJECT_BYTES_MAX <= state::object::limits::OPS_BYTES_MAX,
    "what has come may be put"
);
const _: () = assert!(BODY_BYTES_MAX < DECLARATION_BYTES_MAX, "declarations are the large ones");
const _: () = assert!(WATCHER_STALL_MAX.as_secs() < STALL_TIME_MAX.as_secs(), "a slow one can still hear why");
const _: () = assert!(WATCHERS_MAX < CONNECTIONS_MAX, "who watches leaves room for others");
const _: () = assert!(WATCHERS_MAX < state::linear::limits::WAITS_MAX, "every watcher may ask");
