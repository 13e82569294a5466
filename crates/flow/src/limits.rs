//! Numbers of this crate, with units and reasons. (Those of windows stand beside them.)

use base::Span;

/// How often a limit learns. Long enough for a mean over some requests, short enough that a burst is met within a second.
pub const LEARN_EVERY: Span = Span::millis(100);
/// Fewer answers than this in an interval teach nothing: the interval goes on.
pub const LEARN_SAMPLES_MIN: u64 = 8;
/// An interval that has been going on for so long teaches with whatever it has.
pub const LEARN_AFTER_AT_MOST: Span = Span::secs(1);
/// A limit that is in the way is tested so often, with fewer under way, for what a request takes without a queue.
pub const PROBE_EVERY: Span = Span::secs(10);
/// The next test comes sooner when the last one found much less.
pub const PROBE_AGAIN: Span = Span::millis(500);
/// Part of the limit that remains in a test. A quarter: what is up to four times too large is seen to be.
pub const PROBE_PART: u32 = 4;
/// While others are refused for who matters more, answers may take longer by this part of what they may else.
pub const STRICT_PART: u64 = 2;
/// Then a limit grows in whole steps while answers take less than they may by 1 / this of it; nearer to that the steps are smaller,
pub const STEPS_NEAR: f64 = 5.0;
/// down to this part of a whole one.
pub const STEP_MIN: f64 = 0.1;
/// What has been under way without a queue is forgotten by this part in each interval: half of it in 3.5 s.
pub const PROVEN_KEEPS: f64 = 0.98;
/// Times what was under way without a queue that are let in for a try,
pub const PROVEN_TIMES: f64 = 2.0;
/// and this part of the first limit (1 / this) in any case.
pub const PROVEN_FIRST: f64 = 8.0;
/// A limit never shrinks below this part of itself in one step: one slow interval may be chance.
pub const SHRINK_MIN: f64 = 0.7;

/// While the overload signal is up, waits have to stay below half of the target for so long until it goes down.
pub const CALM_FOR: Span = Span::millis(200);

/// Messages in a row that waited for too long and make a queue; fewer happened to be late.
pub const QUEUE_MIN: u32 = 10;
/// Time from one move of the floor to the next: one priority more is turned away while a queue stands, one less when
/// it is over. Long enough to see what the last move changed.
pub const FLOOR_MOVES_EVERY: Span = Span::millis(100);
/// Who asks believes for so long that a priority is turned away, unless an answer says otherwise; then it asks again.
pub const FLOOR_TOLD_FOR: Span = Span::millis(100);

const _: () = assert!(LEARN_EVERY.0 < PROBE_AGAIN.0 && PROBE_AGAIN.0 < PROBE_EVERY.0, "a test takes two intervals");
const _: () = assert!(LEARN_EVERY.0 < LEARN_AFTER_AT_MOST.0, "an interval that waits for answers is a longer one");
