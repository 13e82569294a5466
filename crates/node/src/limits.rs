//! Numbers of the wiring, with units.

use base::Span;

/// Between two looks of the leader at what should run where, and of every node at its own report.
pub const TICK: Span = Span::millis(200);
/// How often it is looked who leads which group, for people.
pub const SHARDS_EVERY: Span = Span::secs(1);
/// A view is rebuilt at most this often, unless routes changed: people and charts do not see faster.
pub const VIEW_EVERY: Span = Span::millis(100);
/// A node of more clones than one fact tells of says what has changed of them so often at most: when all start, each
/// changes twice within moments. Short beside the time between "out of the routes" and the stop signal.
pub const CLONES_TOLD_EVERY: Span = Span::millis(50);
/// How often a node says how it is.
pub const REPORT_EVERY: Span = Span::secs(1);
/// What doors saw of each clone is told of one to two spans of this: some requests of who is asked little, and news to
/// people.
pub const ASKED_OVER: Span = Span::secs(5);
/// Clones of which a report tells that, those that were asked most: some 80 bytes each, a quarter of a beacon.
pub const ASKED_TOLD_MAX: usize = 200;
/// Bytes of a report for how long answers of clones took and what is under way: some 150 for a clone that is asked
/// much.
pub const TOOK_TOLD_BYTES: usize = 12 << 10;
/// Bytes of what a node tells of its clones' processes: half of a beacon, some 1,000 clones.
pub const USES_TOLD_BYTES: usize = 32 << 10;
/// Groups that a node says it leads; as many as fit in a fact.
pub const LEADS_TOLD_MAX: usize = 2_048;
/// A report that was not repeated for so long is gone: several lost ones in a row, and more than a suspicion takes.
pub const REPORT_TTL: Span = Span::secs(10);
/// Events kept for people to read.
pub const EVENTS_MAX: usize = 200;
/// Events about the manager's last decisions that are told to all nodes: some 5 KiB of a beacon.
pub const DECISIONS_TOLD_MAX: usize = 32;
/// Asks of operators under way at once; more are refused. People and scripts do not ask more than this.
pub const PENDING_MAX: usize = 256;
/// An operator's question that cannot be answered now may be asked again after this: by then most changes have ended.
pub const ASK_AGAIN: Span = Span::millis(500);
/// ... and after this where others have yet to take something over.
pub const HANDED_ON_AGAIN: Span = Span::secs(1);
/// A change that the root group's leader makes by itself is given up after so long: it looks again and again anyway.
pub const OWN_CHANGE_BUDGET: Span = Span::secs(2);
/// Nodes that died are shown for this long.
pub const DEAD_SHOWN: Span = Span::secs(3600);
/// Nodes of the past that are remembered, so that they are told, also by a node that is behind; the oldest go. Nobody
/// lets these in either: they are not named.
pub const FORMERS_MAX: usize = 1024;
/// How long a node is away is kept in so many parts of what it may be: a change of the declaration each hour, of a week. A leader that ends
/// loses one at most.
pub const AWAY_PARTS: u32 = 168;
/// After so many of them an operator is told what is to come.
pub const AWAY_WARN_PARTS: u32 = 120;
/// After so many of them, in a row, with no more nodes away than have copies, what a node has is elsewhere: half a day, of a week, and
/// copies are made after ten minutes (`object::limits::REPAIR_AFTER`), at a thousand a second.
pub const AWAY_ALONE_PARTS: u32 = 12;
/// Who may have what is nowhere else, as others went with it, is waited for four times as long: who is not back within a month does not
/// come back.
pub const AWAY_TOGETHER_PARTS: u32 = AWAY_PARTS * 4;
/// Links of nodes that are not named, or not yet: more than join at a time.
pub const WAITING_MAX: usize = 64;
/// A declaration is at all nodes within milliseconds of a join; a busy disk takes some hundred.
pub const ADMISSION_WAIT: Span = Span::secs(2);
/// One line of a refused node in this time: it knocks again at once.
pub const REFUSED_LINES: Span = Span::secs(10);
/// Who has heard of a leader for so long has caught up with what is declared: a snapshot of all of it takes a second.
pub const STRICT_AFTER: Span = Span::secs(3);
/// Join tokens live at once; the ones that expired make room.
pub const JOIN_TOKENS_MAX: usize = 1024;
/// Characters of the operator's token, and of a namespace's: 20 bytes of chance.
pub const TOKEN_CHARS: usize = 40;
/// So long a token opens after another one took its place: until the last program was told, and no longer.
pub const TOKEN_KEPT_MAX: Span = Span::secs(7 * 86_400);

/// Groups that a renewed node was in must answer within this: longer than an election takes.
pub const PROBE_WITHIN: Span = Span::secs(4);
/// A wish that a node restart is repeated for so long; by then it has been heard, or the node is cut off.
pub const WISH_KEPT: Span = Span::secs(15);
/// A node that leaves waits so long for its clones to be moved and drained, then they end with it.
pub const LEAVE_CLONES_MAX: Span = Span::secs(15);
/// ... and so long for what it runs once for services: that cannot move, and may have to begin again elsewhere.
pub const LEAVE_RUNS_MAX: Span = Span::secs(30);
/// A node that leaves waits so long for others to lead what it leads: they do at once, if they have all.
pub const LEAVE_LEADS_MAX: Span = Span::secs(10);
/// A node that is to restart but still needed (another brick is being filled) stays after so long.
pub const LEAVE_TIME_MAX: Span = Span::secs(60);
/// A node that leaves for good but is still needed stays after so long: its values are copied first.
pub const REMOVE_TIME_MAX: Span = Span::secs(600);

const _: () = assert!(REPORT_EVERY.as_micros() * 3 < REPORT_TTL.as_micros(), "two lost reports must not erase a node");

/// Namespaces of which a node tells what it has: a report is a few kilobytes, and sent each second.
pub const USED_TOLD_MAX: usize = 64;
/// Percent of what a namespace may hold at which it is told: when there is time to do something, and when it is too
/// late.
pub const USED_TOLD_AT: [u32; 2] = [80, 100];
/// Percent below which a namespace must have been meanwhile to be told of again.
pub const USED_AGAIN_BELOW: u32 = 70;
const _: () = assert!(USED_AGAIN_BELOW < USED_TOLD_AT[0], "one that goes up and down is told once");

/// A force that takes so long at least is slow: disks that are shared or worn out take a tenth of it.
pub const FORCE_SLOW: Span = Span::secs(1);
/// Forces are judged in spans of this,
pub const PACE_SPAN: Span = Span::secs(5);
/// ... and so many in a row say that a disk is slow, or is not any more.
pub const PACE_SLOW_SPANS: u32 = 2;
/// A slow disk that was given nothing for so long may have become better.
pub const SLOW_KEPT: Span = Span::secs(300);
/// Forces under way that are measured.
pub const PACE_UNDER_WAY_MAX: usize = 4_096;

/// A line in the log about bad frames of peers comes at most so often, as one about strangers: a peer can send
/// thousands a second.
pub const BAD_FRAMES_TOLD_EVERY: Span = Span::secs(1);
/// A peer that sends so many bad frames without a good one between them speaks another protocol, or is ill: it is hung
/// up on.
pub const BAD_FRAMES_IN_ROW_MAX: u32 = 100;
/// An event about lies, or about a peer that was hung up on, comes at most so often: [`EVENTS_MAX`] is all that people
/// see.
pub const LIES_TOLD_EVERY: Span = Span::secs(10);
/// Who is told that it is turned away waits so long before it believes it: all that it has dialled have spoken by then.
pub const TURNED_AWAY_WAIT: Span = Span::secs(1);
/// ... and counts what it was told for so long: dials to those that have hung up are up to 8 s apart.
pub const TURNED_AWAY_KEPT: Span = Span::secs(30);

const _: () = assert!(TICK.as_micros() * 2 < TURNED_AWAY_WAIT.as_micros(), "it is looked at in between");

/// A secret of a service: a key, a certificate, a file of passwords. It is twice as long in its record.
pub const SECRET_BYTES_MAX: usize = 64 << 10;
/// Secrets of one service: variables of its clones, which the kernel bounds.
pub const SECRETS_PER_SERVICE_MAX: usize = 64;
/// Bytes of all services' secrets: a quarter of what may be declared, in records of twice the length.
pub const SECRETS_BYTES_MAX: usize = 1 << 20;
const _: () =
    assert!(SECRET_BYTES_MAX * 4 <= cluster::root::limits::CHANGE_BYTES_MAX, "a secret and its key are one change");

/// Certificates of the cluster: each is shown in every status.
pub const CERTIFICATES_MAX: usize = 256;
/// One with its chain and key: some kilobytes, and keys of RSA with long chains have twenty.
pub const CERTIFICATE_BYTES_MAX: usize = 48 << 10;
/// All of them: a quarter of what may be declared; keys take twice their length.
pub const CERTIFICATES_BYTES_MAX: usize = 2 << 20;
const _: () = assert!(
    CERTIFICATE_BYTES_MAX * 3 <= cluster::root::limits::CHANGE_BYTES_MAX,
    "one is one change, with the key of all"
);
/// So long before its end it is said of a certificate: when there is time to do something, and when somebody has to.
pub const CERTIFICATE_TOLD_AT: [Span; 2] = [Span::secs(14 * 86_400), Span::secs(3 * 86_400)];
