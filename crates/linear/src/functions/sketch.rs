//! HyperLogLogs (`sketch.rs`), which are texts. Of a key that has another text nothing is said; `corrupt` of one whose bytes say nothing.

use super::*;
use crate::sketch::{Corrupt, Merged, REGISTERS, Sketch, estimate};

type Found<T> = std::result::Result<T, Wrong>;

/// Why there is no answer, in an answer: no HyperLogLog, or one that is corrupt.
type Said<T> = std::result::Result<T, Reply>;

pub const ALL: &[Function] = &[
    // Whether something has changed.
    since(
        7,
        write("sketch.add", "element...", |space, key, args| {
            told(sketch_of(space, key)?.and_then(|now| {
                let is_new = now.is_none();
                let (mut sketch, mut changed) = (now.unwrap_or_default(), is_new);
                for element in args {
                    changed |= sketch.add(element).map_err(corrupt)?;
                }
                if changed {
                    sketch.outdate();
                    space.set_keeping_end(key, Value::Text(sketch.into_text().into()));
                }
                Ok(flag(changed))
            }))
        }),
    ),
    // Of one key also whether the count was kept.
    since(
        7,
        Function {
            keys: usize::MAX,
            ..read("sketch.count", "key...", |space, key, args| {
                if !args.is_empty() {
                    let merged = merged(space, std::iter::once(key).chain(args))?;
                    let of_all = |(merged, _): (Box<Merged>, bool)| {
                        let mut of_value = [0; 64];
                        merged.iter().for_each(|value| of_value[usize::from(*value)] += 1);
                        Reply::List(vec![Reply::Int(estimate(&of_value)), Reply::Int(1)])
                    };
                    return told(merged.map(of_all));
                }
                told(sketch_of(space, key)?.and_then(|sketch| {
                    let Some(sketch) = sketch else { return Ok(Reply::List(vec![Reply::Int(0), Reply::Int(1)])) };
                    let (count, is_kept) = counted(&sketch)?;
                    Ok(Reply::List(vec![Reply::Int(count), flag(is_kept)]))
                }))
            })
        },
    ),
    // The same of one key, and keeps it.
    since(
        7,
        write("sketch.keep-count", "", |space, key, args| {
            none(args)?;
            told(sketch_of(space, key)?.and_then(|sketch| {
                let Some(mut sketch) = sketch else { return Ok(Reply::List(vec![Reply::Int(0), Reply::Int(1)])) };
                let (count, is_kept) = counted(&sketch)?;
                if !is_kept {
                    sketch.keep_count(count);
                    space.set_keeping_end(key, Value::Text(sketch.into_text().into()));
                }
                Ok(Reply::List(vec![Reply::Int(count), flag(is_kept)]))
            }))
        }),
    ),
    // Adds all that the others have.
    since(
        7,
        Function {
            keys: usize::MAX,
            ..write("sketch.merge", "key...", |space, key, args| {
                let merged = merged(space, std::iter::once(key).chain(args))?;
                let now = sketch_of(space, key)?;
                told(merged.and_then(|(merged, is_dense)| {
                    let mut sketch = now?.unwrap_or_default();
                    if is_dense {
                        sketch.make_dense().map_err(corrupt)?;
                    }
                    for (index, value) in merged.iter().enumerate().filter(|(_, value)| **value > 0) {
                        sketch.raise(index, *value).map_err(corrupt)?;
                    }
                    sketch.outdate();
                    space.set_keeping_end(key, Value::Text(sketch.into_text().into()));
                    Ok(Reply::Int(1))
                }))
            })
        },
    ),
];

fn told(said: Said<Reply>) -> Result {
    Ok(said.unwrap_or_else(|why| why))
}

fn corrupt(_: Corrupt) -> Reply {
    Reply::Bytes(Bytes::from_static(b"corrupt"))
}

fn sketch_of(space: &Space, key: &[u8]) -> Found<Said<Option<Sketch>>> {
    let text = text_of(space, key)?;
    Ok(text.map(|text| Sketch::read(text).ok_or(Reply::Nil)).transpose())
}

fn counted(sketch: &Sketch) -> Said<(i64, bool)> {
    match sketch.kept_count() {
        Some(count) => Ok((count, true)),
        None => Ok((sketch.count().map_err(corrupt)?, false)),
    }
}

/// What comes of all of them, and whether any is a dense one.
fn merged<'a>(space: &Space, keys: impl Iterator<Item = &'a Bytes>) -> Found<Said<(Box<Merged>, bool)>> {
    let (mut merged, mut is_dense) = (Box::new([0; REGISTERS]), false);
    // Many of the same must not take longer than one.
    let mut seen = BTreeSet::new();
    for key in keys.filter(|key| seen.insert(*key)) {
        match sketch_of(space, key)? {
            Err(why) => return Ok(Err(why)),
            Ok(None) => (),
            Ok(Some(sketch)) => {
                is_dense |= sketch.is_dense();
                if let Err(why) = sketch.merge_into(&mut merged) {
                    return Ok(Err(corrupt(why)));
                }
            }
        }
    }
    Ok(Ok((merged, is_dense)))
}
