//! What ends by the group's clock ends when it should, however much is written beside it.

use base::{LEVEL, kind};

use super::level::Lone;
use super::*;

/// A force of its disk, milliseconds.
const FORCE: u64 = 8;

/// A leader whose disk takes its time, and clients that write as fast as it lets them.
struct Busy {
    lone: Lone,
    seq: u64,
}

impl Busy {
    fn start() -> Self {
        let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
        lone.stalled = Some(Vec::new());
        Self { lone, seq: 0 }
    }

    /// Node 4 asks; what it is told, if that is at once.
    fn call(&mut self, reads: bool, step: Step) -> Option<Reply> {
        self.seq += 1;
        let id = CommandId { node: NodeId(4), ..id(self.seq) };
        let command = Command { id, ..command(0, vec![step]) };
        let call = Call::Do { group: Lone::ID, reads, stale: None, sole: true, command };
        self.lone
            .handle(Input::Frame { from: NodeId(4), frame: Frame::new(kind::LINEAR_CALL, wire::encode_call(&call)) });
        match self.lone.told.pop() {
            Some((seq, Answer::Ran(Ran::Done(mut replies), _))) if seq == self.seq => replies.pop(),
            Some((seq, other)) if seq == self.seq => panic!("{other:?}"),
            Some(_) | None => None,
        }
    }

    /// Somebody writes, and the disk takes what it has until it has all.
    fn write_once(&mut self) {
        self.call(false, step("other", "put", &["1", "always", "none"]));
        self.force();
    }

    fn force(&mut self) {
        self.lone.now.mono = self.lone.now.mono + Span::millis(FORCE);
        while let Some(tickets) = self.lone.stalled.replace(Vec::new()).filter(|tickets| !tickets.is_empty()) {
            tickets.into_iter().for_each(|ticket| self.lone.handle(Input::Appended { group: Lone::ID, ticket }));
        }
    }

    /// How long a key is there under writes.
    fn ends_after(&mut self, key: &str) -> u64 {
        let begun = self.lone.now.mono;
        for _ in 0..10_000 {
            self.write_once();
            if self.call(true, step(key, "exists", &[])) == Some(Reply::Int(0)) {
                break;
            }
        }
        self.lone.now.mono.since(begun).as_millis()
    }
}

#[test]
fn keys_and_leases_end_in_time_however_much_is_written() {
    for (function, args) in [("put", &["v", "always", "10000"][..]), ("lease.claim", &["me", "10000"])] {
        let mut busy = Busy::start();
        busy.call(false, step("k", function, args));
        let took = busy.ends_after("k");
        assert!((10_000..=10_000 + 4 * FORCE).contains(&took), "{function}: {took} ms");
    }
}

#[test]
fn what_is_left_falls_as_time_passes_however_much_is_written() {
    let mut busy = Busy::start();
    busy.call(false, step("k", "put", &["v", "always", "60000"]));
    let begun = busy.lone.now.mono;
    (0..500).for_each(|_| busy.write_once());
    let passed = busy.lone.now.mono.since(begun).as_millis();
    let left = busy.call(true, step("k", "ttl", &[]));
    assert!(matches!(left, Some(Reply::Int(left)) if (left as u64).abs_diff(60_000 - passed) <= FORCE), "{left:?}");
}
