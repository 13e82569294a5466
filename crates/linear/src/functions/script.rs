//! Scripts. A script is run by its group's leader, beside the group (`linear/src/script.rs`), and what it did goes into the log as
//! steps of other functions: replicas never run one. So the functions that ask for one are in no log.

use super::*;
use crate::op::Ran;
use crate::wire;

/// The level from which there are scripts (`base/src/level.rs`).
const LEVEL: u32 = 5;
/// Asks for a script, with all its keys and, last, what only who runs it reads.
pub const RUN: &str = "script.run";
/// ... that names no key.
pub const RUN_KEYLESS: &str = "script.run-keyless";
/// First of the steps that became of a transaction with scripts: the replies of all its steps, which are computed already.
pub const SAYS: &str = "script.says";

pub const ALL: &[Function] = &[
    inner(since(LEVEL, Function { keys: usize::MAX, options: 1, ..write(RUN, "[key ...] request", in_no_log) })),
    inner(since(LEVEL, Function { keyless: true, ..write(RUN_KEYLESS, "request", in_no_log) })),
    inner(since(
        LEVEL,
        Function { keyless: true, ..read(SAYS, "replies", |_, _, args| one(args).cloned().map(Reply::Bytes)) },
    )),
];

fn in_no_log(_: &mut Space, _: &Bytes, _: &[Bytes]) -> Result {
    Err(Wrong::Unknown)
}

/// Is a script among these?
pub fn is_among(steps: &[Step]) -> bool {
    steps.iter().any(is_script)
}

pub fn is_script(step: &Step) -> bool {
    step.function == RUN || step.function == RUN_KEYLESS
}

/// The step that says these replies.
pub fn says(replies: Vec<Reply>) -> Step {
    Step::new(Bytes::new(), SAYS, vec![wire::encode_ran(&Ran::Done(replies))])
}

/// Steps that became of scripts: their replies, and the steps.
pub fn said(steps: &[Step]) -> Option<(Vec<Reply>, &[Step])> {
    let (first, steps) = steps.split_first().filter(|(first, _)| first.function == SAYS)?;
    let ran = first.args.first().and_then(|said| wire::decode_ran(said.clone()));
    let replies = if let Some(Ran::Done(replies)) = ran { replies } else { vec![Reply::Wrong(Wrong::Unknown)] };
    Some((replies, steps))
}
