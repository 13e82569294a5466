//! Numbers of what finds and reaches clones, and of all doors alike, with units and reasons.

use std::time::Duration;

use base::Span;
use flow::limit::Bounds;

/// When the doors close, who has just connected may still say so long what it wants.
pub const HEAR_OUT: Duration = Duration::from_secs(1);
/// From a client's connection to the end of its TLS handshake. As for a head: slower is an attack.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Connect to a clone. It is in the same machine room: 1 s is a lost SYN, and another clone may be tried.
pub const CONNECT_TIME: Duration = Duration::from_secs(1);
/// From the request to a clone until the head of its answer, unless the service says `answer_timeout`.
pub const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Long connections to a clone that leaves end within this part of the time until it is killed.
pub const LEAVE_PART: (u32, u32) = (9, 10);
/// From our goodbye until such a connection is cut: the other side's answer, and the clone's to that, are a round trip away.
pub const GOODBYE_TIME: Duration = Duration::from_secs(2);
/// How long a request waits for a clone to serve it, when there is none: a restart of a quick clone fits in.
pub const CLONE_WAIT: Duration = Duration::from_secs(1);
/// While waiting, clones that were tried are tried again this often.
pub const TRY_AGAIN: Duration = Duration::from_millis(50);
/// A clone that failed is avoided this long if there is another. Its death is in the routes within milliseconds.
pub const AVOID: Duration = Duration::from_secs(1);
/// A clone that failed so many requests in a row is left alone: five by chance are rare even where one in five fails.
pub const OUTLIER_AFTER: u32 = 5;
/// For so long the first time, twice as long each further time: as long as a short stall, at most until an operator looks.
pub const OUTLIER_FIRST: Duration = Duration::from_secs(1);
pub const OUTLIER_MAX: Duration = Duration::from_secs(30);
/// If one in so many of the clones that are meant for a request is left alone, all are used.
pub const PANIC_PART: usize = 2;
/// Of requests that could wait at this node's clones, one in so many goes elsewhere to see what it takes there.
pub const LOOKS_ELSEWHERE: u64 = 64;
/// Of requests that are asked of several clones, one in so many is asked of one that is not known to be among the fastest.
pub const ASKS_ANOTHER: u64 = 32;
/// A clone here may take twice as long as one elsewhere, and so much: a tunnel costs both nodes.
pub const LOCAL_SLOWER: Duration = Duration::from_millis(4);
/// What part of its requests a node gives away to others is found anew so often: as often as nodes report.
pub const GIVEN_AWAY_EVERY: Duration = Duration::from_secs(1);
/// How many requests one clone may have under way, as far as this edge is concerned, until the edge has learned how many
/// are good for it: `first` at the start, and whatever it learns one at least. An answer may take a quarter more than
/// without a queue, and 4 ms, which nobody feels.
pub const ADMISSION: Bounds = Bounds { first: 64, min: 1, max: 1024, tolerance_percent: 125, slack: Span::millis(4) };

/// Who sends a request's body, or takes an answer, has to move so many bytes a second on the whole, of the time in which he is
/// waited for, and may be so much later: a byte each 30 s kept a connection, and a place at a clone, for days. The rate is
/// Kestrel's; half of the slowest modem's. What nobody waits for, as the events of a stream that is quiet, costs nothing.
pub const RATE_MIN: u64 = 240;
pub const RATE_GRACE: Duration = Duration::from_secs(30);
/// Bodies of all answers that wait for pipelines at this node, as large as they may be.
pub const PIPED_BYTES_MAX: usize = 256 << 20;
/// Answers that are made good after others went out in their place, at a time at this node.
pub const PIPED_REPAIRS_MAX: usize = 64;
