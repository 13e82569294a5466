//! Shards that are being read out: with the first page the leader keeps a copy of its keys, which shares their
//! memory, and all other pages are of that moment. What is changed meanwhile costs memory until the copy goes: with
//! the last page, when nobody has asked for the next one for long, or when this member leads no more. Then the reader
//! is told nothing, and begins again.

use std::collections::BTreeMap;

use base::Time;
use bytes::Bytes;

use crate::functions::sql;
use crate::limits::{DUMP_ENDS, DUMP_KEPT, DUMPS_MAX};
use crate::op::{Ran, Reply};
use crate::space::Space;
use crate::wire::Command;

#[derive(Default)]
pub struct Dumps {
    frozen: BTreeMap<Bytes, Frozen>,
}

struct Frozen {
    space: Space,
    until: Time,
}

/// A page of a dump.
pub struct Page<'a> {
    id: &'a Bytes,
    is_first: bool,
    /// Of the database, not of keys.
    of_database: bool,
}

/// The page that a command asks for, if it does.
pub fn asked(command: &Command) -> Option<Page<'_>> {
    match &command.steps[..] {
        [step] if step.function == "dump" || step.function == sql::DUMP => {
            let (id, how) = (step.args.first()?, step.args.get(1)?);
            Some(Page { id, is_first: &how[..] == b"first", of_database: step.function == sql::DUMP })
        }
        _ => None,
    }
}

impl Dumps {
    /// Reads a page. A dump that is not known (any more) has nil for one. None: too many are under way.
    pub fn read(&mut self, now: Time, page: Page<'_>, space: &Space, command: &Command) -> Option<Ran> {
        if page.is_first && !self.frozen.contains_key(page.id) {
            if self.frozen.len() >= DUMPS_MAX {
                return None;
            }
            let space = if page.of_database { space.frozen_database() } else { space.frozen() };
            self.frozen.insert(page.id.clone(), Frozen { space, until: now });
        }
        let Some(frozen) = self.frozen.get_mut(page.id) else { return Some(Ran::Done(vec![Reply::Nil])) };
        let ran = frozen.space.read(&command.conditions, &command.steps);
        frozen.until = now + if goes_on(&ran) { DUMP_KEPT } else { DUMP_ENDS };
        Some(ran)
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.frozen.values().map(|frozen| frozen.until).min()
    }

    pub fn end_late(&mut self, now: Time) {
        self.frozen.retain(|_, frozen| frozen.until > now);
    }

    pub fn clear(&mut self) {
        self.frozen.clear();
    }
}

fn goes_on(ran: &Ran) -> bool {
    let Ran::Done(replies) = ran else { return false };
    matches!(&replies[..], [Reply::List(page)] if matches!(page.get(2), Some(Reply::Bytes(_))))
}

#[cfg(test)]
mod tests {
    use base::{Boot, NodeId, Span};

    use super::*;
    use crate::op::Step;
    use crate::space::CommandId;
    use crate::value::Value;

    fn page(id: &str, how: &str, after: &str) -> Command {
        let args = [id, how, after, "1"].map(|arg| Bytes::copy_from_slice(arg.as_bytes())).to_vec();
        let steps = vec![Step::new(Bytes::new(), "dump", args)];
        let id = CommandId { node: NodeId(1), boot: Boot(1), seq: 1 };
        Command { id, floor: 0, conditions: Vec::new(), steps, splits: 0, once: None }
    }

    /// Version and keys of a page.
    fn told(ran: Option<Ran>) -> Option<(i64, Vec<String>)> {
        let Some(Ran::Done(replies)) = ran else { panic!("{ran:?}") };
        let [Reply::List(page)] = &replies[..] else { return None };
        let (Reply::Int(version), Reply::List(items)) = (&page[0], &page[3]) else { panic!("{page:?}") };
        let key = |item: &Reply| {
            let Reply::List(item) = item else { panic!("{item:?}") };
            let Reply::Bytes(key) = &item[0] else { panic!("{item:?}") };
            String::from_utf8(key.to_vec()).unwrap()
        };
        Some((*version, items.iter().map(key).collect()))
    }

    fn read(dumps: &mut Dumps, now: Time, space: &Space, id: &str, how: &str, after: &str) -> Option<Ran> {
        let command = page(id, how, after);
        dumps.read(now, asked(&command).unwrap(), space, &command)
    }

    fn space(keys: &[&str]) -> Space {
        let mut space = Space::default();
        for key in keys {
            space.set(&Bytes::copy_from_slice(key.as_bytes()), Value::Text("v".into()), 0);
        }
        space
    }

    #[test]
    fn all_pages_are_of_the_moment_of_the_first() {
        let (mut dumps, mut space, now) = (Dumps::default(), space(&["a", "b", "c"]), Time::ZERO);
        assert_eq!(told(read(&mut dumps, now, &space, "x", "first", "")), Some((3, vec!["a".into()])));
        space.remove(&"b".into());
        space.set(&"bb".into(), Value::Text("new".into()), 0);
        // Another one that begins now sees what is there now.
        assert_eq!(told(read(&mut dumps, now, &space, "y", "first", "")), Some((5, vec!["a".into()])));
        assert_eq!(told(read(&mut dumps, now, &space, "x", "after", "a")), Some((3, vec!["b".into()])));
        assert_eq!(told(read(&mut dumps, now, &space, "y", "after", "a")), Some((5, vec!["bb".into()])));
        // The last one is there again for whoever did not get it.
        assert_eq!(told(read(&mut dumps, now, &space, "x", "after", "b")), Some((3, vec!["c".into()])));
        assert_eq!(told(read(&mut dumps, now, &space, "x", "after", "b")), Some((3, vec!["c".into()])));
        assert_eq!(dumps.wake_at(), Some(now + DUMP_ENDS));
        dumps.end_late(now + DUMP_ENDS);
        assert_eq!(told(read(&mut dumps, now, &space, "x", "after", "b")), None, "it is gone");
        assert_eq!(dumps.wake_at(), Some(now + DUMP_KEPT));
    }

    #[test]
    fn there_are_few_at_a_time_and_none_for_long() {
        let (mut dumps, space, now) = (Dumps::default(), space(&["a", "b"]), Time::ZERO);
        for id in 0..DUMPS_MAX {
            assert!(read(&mut dumps, now, &space, &id.to_string(), "first", "").is_some());
        }
        assert_eq!(read(&mut dumps, now, &space, "more", "first", ""), None);
        let later = now + Span::secs(20);
        assert!(told(read(&mut dumps, later, &space, "1", "first", "")).is_some(), "asked again");
        dumps.end_late(now + DUMP_KEPT);
        assert!(told(read(&mut dumps, later, &space, "1", "after", "a")).is_some());
        assert!(told(read(&mut dumps, later, &space, "2", "after", "a")).is_none());
        assert!(read(&mut dumps, later, &space, "more", "first", "").is_some());
    }
}
