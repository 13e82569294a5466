//! Ends that a caller names by a moment of the wall clock, `at:UNIX-MS`. Groups have a clock of their own, so each time that a
//! command is sent to a leader what is left until then is put in its place: the time for which it waited to be sent (between MULTI
//! and EXEC, for a new leader) is not added to it. Nothing with such an end is ever in a log.
//!
//! A moment that has passed is `passed` there, and what it ends is gone at once (`functions/key.rs`). There is no other way to
//! that: whoever wants something to end now says `at:0`.

use bytes::Bytes;

use super::functions::{PASSED, queue};
use super::op::Step;

const AT: &str = "at:";
/// Which functions know what it is when something has ended already, and since when.
const PASSED_LEVEL: u32 = 2;

/// The argument of a function that takes an end.
pub fn at(unix_ms: u64) -> String {
    format!("{AT}{unix_ms}")
}

/// The arguments of a function that say when something ends: the first, and of some each after so many more.
fn places_of(function: &str) -> (usize, usize) {
    match function {
        "put" => (2, usize::MAX),
        "load" | "hash.set-expire" => (1, usize::MAX),
        "expire" | "get-expire" | "hash.expire" | "hash.get-expire" => (0, usize::MAX),
        "hash.load" => (0, 3),
        "queue.load" => (0, usize::MAX),
        _ => (usize::MAX, usize::MAX),
    }
}

/// The step's arguments that say when something ends.
fn ends_of(step: &mut Step) -> impl Iterator<Item = &mut Bytes> {
    let delay = delay_of(step);
    let (first, each) = delay.map_or_else(|| places_of(step.function), |at| (at, usize::MAX));
    step.args.iter_mut().skip(first).step_by(each)
}

/// Where the options of a job that is put say when it comes.
fn delay_of(step: &Step) -> Option<usize> {
    let options = if step.function == "queue.put" { step.args.get(1..)? } else { return None };
    options.chunks(2).position(|option| &option[0][..] == b"delay").map(|nth| 2 + 2 * nth)
}

/// Queues are told what the wall clock shows: their repeats come by it.
fn wants_wall(step: &Step) -> bool {
    match step.function {
        "queue.take" => step.args.len() == 2,
        "queue.repeat" => step.args.len() >= 3 && !step.args[3..].chunks(2).any(|option| option[0] == queue::NOW),
        _ => false,
    }
}

/// Steps as the group takes them, if any of them names a moment.
pub fn resolved(steps: &[Step], wall_ms: u64, agreed: u32) -> Option<Vec<Step>> {
    steps.iter().any(names_one).then(|| {
        let mut steps = steps.to_vec();
        resolve(&mut steps, wall_ms, agreed);
        steps
    })
}

fn names_one(step: &Step) -> bool {
    let (first, each) = delay_of(step).map_or_else(|| places_of(step.function), |at| (at, usize::MAX));
    wants_wall(step) || step.args.iter().skip(first).step_by(each).any(|end| end.starts_with(AT.as_bytes()))
}

/// As the group takes them, by this clock, and for programs of this level.
pub fn resolve(steps: &mut [Step], wall_ms: u64, agreed: u32) {
    for step in steps {
        let moment = |end: &Bytes| std::str::from_utf8(end.strip_prefix(AT.as_bytes())?).ok()?.parse::<u64>().ok();
        let mut is_over = false;
        for end in ends_of(step) {
            let Some(at) = moment(end) else { continue };
            match at.saturating_sub(wall_ms) {
                0 if agreed >= PASSED_LEVEL => *end = Bytes::from_static(PASSED),
                // The shortest that older programs have.
                0 => (*end, is_over) = (Bytes::from_static(b"1"), true),
                left => *end = left.to_string().into(),
            }
        }
        if is_over {
            end_for_older(step);
        }
        if wants_wall(step) {
            step.args.extend([Bytes::from_static(queue::NOW), wall_ms.to_string().into()]);
        }
    }
}

/// Where they can say it otherwise, too: it is removed.
fn end_for_older(step: &mut Step) {
    if step.function == "expire" && step.args.get(1).is_some_and(|when| matches!(&when[..], b"any" | b"lt")) {
        (step.function, step.args) = ("remove", Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(function: &'static str, args: &[&str], agreed: u32) -> (&'static str, Vec<String>) {
        let args = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        let mut steps = [Step::new("k".into(), function, args)];
        resolve(&mut steps, 5_000, agreed);
        let [Step { function, args, .. }] = steps;
        (function, args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }

    #[test]
    fn what_is_left_until_a_moment_is_counted_when_it_is_sent() {
        for (function, given, two, one) in [
            ("put", ["at:5", "always", "at:5001"], "put at:5 always 1", "put at:5 always 1"),
            ("put", ["v", "always", "at:5000"], "put v always passed", "put v always 1"),
            ("put", ["v", "always", "none"], "put v always none", "put v always none"),
            ("put", ["v", "always", "at:soon"], "put v always at:soon", "put v always at:soon"),
            ("expire", ["at:0", "any", ""], "expire passed any ", "remove"),
            ("expire", ["at:0", "lt", ""], "expire passed lt ", "remove"),
            ("expire", ["at:0", "nx", ""], "expire passed nx ", "expire 1 nx "),
            ("expire", ["at:9000", "any", ""], "expire 4000 any ", "expire 4000 any "),
            ("get-expire", ["at:4999", "", ""], "get-expire passed  ", "get-expire 1  "),
            ("load", ["string", "at:9000", "0"], "load string 4000 0", "load string 4000 0"),
            ("hash.expire", ["at:9000", "nx", "at:1"], "hash.expire 4000 nx at:1", "hash.expire 4000 nx at:1"),
            (
                "hash.set-expire",
                ["always", "at:1", "at:2"],
                "hash.set-expire always passed at:2",
                "hash.set-expire always 1 at:2",
            ),
            ("list.push-right", ["at:0", "", ""], "list.push-right at:0  ", "list.push-right at:0  "),
        ] {
            let shown = |agreed| {
                let (function, args) = resolved(function, &given, agreed);
                [vec![function.to_owned()], args].concat().join(" ")
            };
            assert_eq!((shown(2), shown(1)), (two.to_owned(), one.to_owned()));
        }
    }
}
