//! Reads that may be stale.

use base::{LEVEL, Outcome, kind};

use super::level::Lone;
use super::*;

/// Node 4 asks for what may be ten seconds old. Whether it got that at once, and not by a round of the group.
fn is_read_at_once(lone: &mut Lone, seq: u64) -> bool {
    let command = Command { id: CommandId { node: NodeId(4), ..id(seq) }, ..command(0, vec![step("k", "get", &[])]) };
    let stale = Some(Span::secs(10));
    let head = wire::encode_call(&Call::Do { group: Lone::ID, reads: true, stale, sole: false, command });
    lone.handle(Input::Frame { from: NodeId(4), frame: Frame::new(kind::LINEAR_CALL, head) });
    let told = lone.told.pop();
    let Some((_, Answer::Ran(Ran::Done(_), index))) = told else { panic!("{told:?}") };
    index == 0
}

#[test]
fn what_was_read_before_the_clock_may_have_stood_still_is_of_no_known_age() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.now.wall_ms = 1_000_000;
    lone.handle(Input::Wake);
    let put = |lone: &mut Lone| {
        lone.now.mono = lone.now.mono + Span::millis(5);
        assert!(matches!(lone.ask("put", &["v", "always", "none"]), Outcome::Done(_)));
    };
    put(&mut lone);
    assert!(is_read_at_once(&mut lone, 1));
    lone.now.wall_ms += 60_000;
    assert!(!is_read_at_once(&mut lone, 2), "a minute may have passed");
    put(&mut lone);
    assert!(is_read_at_once(&mut lone, 3));
}
