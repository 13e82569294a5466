//! What came of calls that callers gave ids, where a front door and not the group computes it (functions of services): the door
//! looks for it when it reads the value, and keeps it when it writes the next one, in the same transaction.

use uuid::Uuid;

use super::*;
use crate::once::{Known, Once};
use crate::op::Ran;

pub const ALL: &[Function] = &[
    // Nil if it was not done; 0 if that is forgotten.
    inner(read("once.look", "id hash", |space, _, args| {
        let (id, of) = two(args)?;
        match space.onces().known(&once(id, of)?) {
            None => Ok(Reply::Nil),
            Some(Known::Forgotten) => Ok(Reply::Int(0)),
            Some(Known::Reused) => Err(Wrong::OnceReused),
            Some(Known::Ran(Some(Ran::Done(mut replies)))) if replies.len() == 1 => Ok(replies.remove(0)),
            Some(Known::Ran(_)) => Err(Wrong::NotKept),
        }
    })),
    // A condition, too: of an id that is known by then nothing is done. Its key need not have changed for that: it may be absent
    // again.
    inner(write(KEEP, "id hash answer", |space, _, args| {
        let [id, of, answer] = args else { return Err(Wrong::Arguments) };
        space.keep_once(&once(id, of)?, &Ran::Done(vec![Reply::Bytes(answer.clone())]));
        Ok(Reply::Nil)
    })),
];

pub const KEEP: &str = "once.keep";

pub fn is_known(space: &Space, args: &[Bytes]) -> bool {
    let [id, of, _] = args else { return false };
    once(id, of).is_ok_and(|once| space.onces().known(&once).is_some())
}

fn once(id: &Bytes, of: &Bytes) -> std::result::Result<Once, Wrong> {
    let id = Uuid::from_slice(id).map_err(|_| Wrong::Arguments)?;
    let of = <[u8; 8]>::try_from(&of[..]).map_err(|_| Wrong::Arguments)?;
    Ok(Once { id, of: u64::from_be_bytes(of) })
}
