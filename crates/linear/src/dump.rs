//! How a namespace is dumped and loaded (`class/src/dump/mod.rs`): shard by shard, each at one version. Loading puts
//! whole values in the place of what is there, and lets versions go on above those of the dump: so fencing tokens and
//! entity tags never come again.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Priority;
use bytes::Bytes;
use class::dump::{self, Item, ItemKind, Part, Record};

use super::functions::sql;
use super::limits::DUMP_PAGE_BYTES;
use super::moment;
use super::op::{Op, Over, Ran, Reply, Step};

/// A namespace that is being read out.
#[derive(Debug)]
pub struct Dump {
    space: Arc<str>,
    /// Those that are yet to be read; the last one is next.
    shards: Vec<(u64, u64)>,
    id: u64,
    /// The database of a namespace of class `sql`, in place of keys.
    of_database: bool,
    /// Of the shard that is being read.
    shard: Option<Shard>,
}

#[derive(Debug)]
struct Shard {
    version: i64,
    /// When its copy was made, milliseconds since 1970.
    at_ms: u64,
    last: Bytes,
}

impl Dump {
    pub fn new(space: Arc<str>, mut shards: Vec<(u64, u64)>, id: u64) -> Self {
        shards.sort_unstable_by(|a, b| b.cmp(a));
        Self { space, shards, id, of_database: false, shard: None }
    }

    /// Of the database of a namespace of class `sql`.
    pub fn of_database(space: Arc<str>, id: u64) -> Self {
        Self { space, shards: vec![(0, u64::MAX)], id, of_database: true, shard: None }
    }
}

impl dump::Dump for Dump {
    type Op = Op;
    type Reply = Ran;

    fn asks(&mut self) -> Vec<Op> {
        let Some((from, to)) = self.shards.last().copied() else { return Vec::new() };
        let (how, after) = match &self.shard {
            None => ("first", Bytes::new()),
            Some(shard) => ("after", shard.last.clone()),
        };
        let id = format!("{:016x}", self.id);
        let args = vec![id.into(), how.into(), after, DUMP_PAGE_BYTES.to_string().into()];
        if self.of_database {
            let steps = vec![Step::new(Bytes::from_static(DATABASE), sql::DUMP, args)];
            return vec![Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(&self.space), steps) }];
        }
        let steps = vec![Step::new(Bytes::new(), "dump", args)];
        let over = Over::Range { from, to };
        vec![Op { over, priority: Priority::LOWEST, ..Op::of(Arc::clone(&self.space), steps) }]
    }

    fn take(&mut self, replies: Vec<Ran>, wall_ms: u64) -> Result<Vec<Record>, String> {
        let odd = || "the leader of a shard answered with what is no page of it".to_owned();
        let Some((from, to)) = self.shards.last().copied() else { return Err(odd()) };
        let reply = match replies.into_iter().next() {
            Some(Ran::Done(mut replies)) => replies.pop().ok_or_else(odd)?,
            _ => return Err(odd()),
        };
        let page = match reply {
            Reply::List(page) => page,
            Reply::Nil => return Err("a shard has another leader now, or its pages were asked for too slowly".into()),
            Reply::Wrong(wrong) => return Err(wrong.why().to_owned()),
            _ => return Err(odd()),
        };
        let Ok([Reply::Int(version), _, last, Reply::List(items)]) = <[Reply; 4]>::try_from(page) else {
            return Err(odd());
        };
        let mut records = Vec::with_capacity(items.len() + 1);
        let at_ms = match &self.shard {
            Some(shard) if shard.version != version => return Err(odd()),
            Some(shard) => shard.at_ms,
            None => {
                let version = u64::try_from(version).map_err(|_| odd())?;
                records.push(Record::Part(Part { from, to, version }));
                wall_ms
            }
        };
        for reply in items {
            records.push(Record::Item(item(reply, at_ms).ok_or_else(odd)?));
        }
        self.shard = match last {
            Reply::Bytes(last) => Some(Shard { version, at_ms, last }),
            _ => {
                self.shards.pop();
                None
            }
        };
        Ok(records)
    }
}

/// The kind of a hash of which some fields end.
pub const HASH_ENDING: &str = "hash-ending";

fn item(reply: Reply, at_ms: u64) -> Option<Item> {
    let Reply::List(all) = reply else { return None };
    let mut all = all.into_iter();
    let (Some(Reply::Bytes(key)), Some(Reply::Bytes(kind))) = (all.next(), all.next()) else { return None };
    let (Some(Reply::Int(left)), Some(Reply::Int(token))) = (all.next(), all.next()) else { return None };
    let end_ms = u64::try_from(left).ok().map(|left| at_ms.saturating_add(left));
    let value = |reply: Reply| if let Reply::Bytes(bytes) = reply { Some(bytes) } else { None };
    let (kind, token, values) = (ItemKind::named(&kind)?, u64::try_from(token).ok()?, all.map(value));
    let mut values = values.collect::<Option<Vec<_>>>()?;
    if kind == ItemKind::HashEnding {
        // What is left becomes the moment at which each ends.
        for left in values.iter_mut().skip(2).step_by(3).filter(|left| !left.is_empty()) {
            let ms: u64 = std::str::from_utf8(left).ok()?.parse().ok()?;
            *left = at_ms.saturating_add(ms).to_string().into();
        }
    }
    Some(Item { key, kind, end_ms, token, values })
}

/// What puts this back.
pub fn load(space: &Arc<str>, record: &Record, wall_ms: u64) -> Option<Op> {
    let step = match record {
        Record::Part(part) => {
            let step = Step::new(Bytes::new(), "versions.above", vec![part.version.to_string().into()]);
            return Some(Op { over: Over::Each, priority: Priority::LOWEST, ..Op::of(Arc::clone(space), vec![step]) });
        }
        Record::Item(item) if item.end_ms.is_some_and(|end| end <= wall_ms) => return None,
        Record::Item(item) => {
            let end = item.end_ms.map_or("none".into(), moment::at);
            if item.kind == ItemKind::HashEnding {
                let step = Step::new(item.key.clone(), "hash.load", ending(end.into(), &item.values)?);
                return Some(Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(space), vec![step]) });
            }
            if item.kind == ItemKind::Queue {
                let args = std::iter::once(end.into()).chain(item.values.iter().cloned()).collect();
                let step = Step::new(item.key.clone(), "queue.load", args);
                return Some(Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(space), vec![step]) });
            }
            let head = [item.kind.name().into(), end.into(), item.token.to_string().into()];
            Step::new(item.key.clone(), "load", head.into_iter().chain(item.values.iter().cloned()).collect())
        }
        Record::Head(_) | Record::End(_) | Record::Broken(_) => return None,
    };
    Some(Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(space), vec![step]) })
}

/// Arguments that make a hash with fields that end at moments; none if these are no moments.
fn ending(end: Bytes, values: &[Bytes]) -> Option<Vec<Bytes>> {
    let mut args = vec![end];
    for triple in values.chunks(3) {
        let [field, value, end] = triple else { return None };
        let end = match &end[..] {
            [] => "none".into(),
            ms => moment::at(std::str::from_utf8(ms).ok()?.parse().ok()?),
        };
        args.extend([field.clone(), value.clone(), end.into()]);
    }
    Some(args)
}

/// A database that is being loaded: its pieces come to lie at keys beside it, each of which ends by itself, and with the last record it takes
/// the place of the one that is there.
#[derive(Debug)]
pub struct LoadDatabase {
    space: Arc<str>,
    /// What its keys begin with.
    prefix: Bytes,
    /// Bytes that it may have.
    size_max: u64,
    /// What nodes agreed on: whether all of them look at it as they do at statements.
    level: u32,
    /// Those that came, in whatever order: so they do where a dump was put together of changes.
    pieces: BTreeSet<u64>,
}

impl LoadDatabase {
    /// `id`: of nothing else that is loaded.
    pub fn new(space: Arc<str>, id: u64, size_max: u64, level: u32) -> Self {
        Self { space, prefix: format!("load/{id:016x}/").into(), size_max, level, pieces: BTreeSet::new() }
    }

    /// What puts this back; none if there is nothing to do.
    ///
    /// # Errors
    /// It is no piece of a database.
    pub fn load(&mut self, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
        let step = match record {
            Record::Item(item) => {
                let Item { key, kind: ItemKind::Text, values, .. } = item else {
                    return Err("it has what is no piece of a database".into());
                };
                let nth = sql::piece_of(key).filter(|nth| *nth < sql::PIECES_MAX);
                let (Some(nth), [piece]) = (nth, &values[..]) else {
                    return Err(format!("{:?} is no piece of a database", String::from_utf8_lossy(key)));
                };
                if !self.pieces.insert(nth) {
                    return Err(format!("piece {nth} of the database comes twice"));
                }
                let end = moment::at(wall_ms + PIECES_KEPT_MS);
                let args = vec!["string".into(), end.into(), "0".into(), piece.clone()];
                Step::new(sql::piece_key(&self.prefix, nth), "load", args)
            }
            Record::End(_) => {
                let pieces = self.pieces.len() as u64;
                if let Some(missing) = (0..pieces).find(|nth| !self.pieces.contains(nth)) {
                    return Err(format!("piece {missing} of the database is missing"));
                }
                let mut args = vec![self.prefix.clone(), pieces.to_string().into(), self.size_max.to_string().into()];
                if self.level >= ::sql::LEVEL_LOAD_WEIGHED {
                    args.push(Bytes::from_static(sql::WEIGHED.as_bytes()));
                }
                Step::new(Bytes::from_static(DATABASE), sql::LOAD, args)
            }
            Record::Head(_) | Record::Part(_) | Record::Broken(_) => return Ok(None),
        };
        Ok(Some(Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(&self.space), vec![step]) }))
    }
}

/// There is one, so what it is called does not matter.
const DATABASE: &[u8] = b"database";
/// Pieces that were never put together go after an hour.
const PIECES_KEPT_MS: u64 = 3_600_000;

pub fn loaded(ran: &Ran) -> Result<(), String> {
    match ran {
        Ran::Done(replies) => {
            match replies.iter().find_map(|r| if let Reply::Wrong(why) = r { Some(why) } else { None }) {
                Some(wrong) => Err(wrong.why().to_owned()),
                // Of a database: it is none, or may not be so large.
                None => match replies.iter().find_map(|reply| sql::answer(reply.clone())) {
                    Some(Err(failure)) => Err(failure.why),
                    Some(Ok(_)) | None => Ok(()),
                },
            }
        }
        Ran::Unmet => Err("it was not done".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::{self, Run};
    use crate::hash::Hash;
    use crate::sorted::{Scored, Sorted};
    use crate::space::Space;
    use crate::stream::{Group, Id, Stream};
    use crate::value::Value;
    use class::dump::Dump as _;

    /// Runs an operation on a space, as its group would.
    fn run(space: &mut Space, op: &Op) -> Ran {
        let mut steps = op.steps.clone();
        moment::resolve(&mut steps, 1_000_000, base::LEVEL);
        let run = |step: &Step| match functions::find(step.function).unwrap().run {
            Run::Read(run) => run(space, &step.key, &step.args).unwrap(),
            Run::Write(run) => run(space, &step.key, &step.args).unwrap(),
        };
        Ran::Done(steps.iter().map(run).collect())
    }

    fn dumped(space: &mut Space) -> Vec<Record> {
        let (mut dump, mut all) = (Dump::new("bank".into(), vec![(0, u64::MAX)], 7), Vec::new());
        loop {
            let asks = dump.asks();
            let Some(op) = asks.first() else { return all };
            let ran = run(space, op);
            all.extend(dump.take(vec![ran], 1_000_000).unwrap());
        }
    }

    #[test]
    fn what_is_loaded_elsewhere_is_what_was_dumped() {
        let (mut here, mut there) = (Space::default(), Space::default());
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let large = Bytes::from(vec![b'x'; 3 * DUMP_PAGE_BYTES / 2]);
        here.set(&bytes("text"), Value::Text(bytes("")), 0);
        here.set(&bytes("ends"), Value::Text(bytes("soon")), 5_000);
        here.set(&bytes("large"), Value::Text(large.clone()), 0);
        here.set(&bytes("larger"), Value::List(Arc::new([large.clone(), large].into())), 0);
        here.set(&bytes("hash"), Value::Hash(Arc::new([(bytes("f"), bytes("v"))].into())), 0);
        let mut ending: Hash = [(bytes("f"), bytes("v")), (bytes("g"), bytes("w")), (bytes("h"), bytes(""))].into();
        ending.set_end(b"g", 4_000);
        ending.set_end(b"h", 7_000);
        here.set(&bytes("hash-ending"), Value::Hash(Arc::new(ending)), 8_000);
        here.set(&bytes("list"), Value::List(Arc::new([bytes("b"), bytes("a"), bytes("b")].into())), 0);
        here.set(&bytes("set"), Value::Set(Arc::new([bytes("a"), bytes("")].into())), 0);
        let scored =
            [("a", 0.1), ("b", f64::NEG_INFINITY)].map(|(member, score)| Scored { member: bytes(member), score });
        here.set(&bytes("sorted"), Value::Sorted(Arc::new(Sorted::of(scored.into()).unwrap())), 0);
        here.set(&bytes("ledger"), Value::Ledger(Arc::new(crate::ledger::sample())), 0);
        let mut stream = Stream::default();
        stream.log.add(Id { ms: 5, seq: 1 }, &[bytes("f"), bytes("v")]);
        stream.set_group(bytes("g"), Group::new(Id { ms: 5, seq: 1 }, Some(1)));
        here.set(&bytes("stream"), Value::Stream(Arc::new(stream)), 0);
        here.set(&bytes("lease"), Value::Lease { holder: bytes("me"), token: 8 }, 9_000);
        let all = dumped(&mut here);
        assert_eq!(all[0], Record::Part(Part { from: 0, to: u64::MAX, version: 12 }));
        assert_eq!(all.len(), 13);
        // Something else is there, and more than once is once.
        there.set(&bytes("list"), Value::Text(bytes("other")), 7);
        for _ in 0..2 {
            for record in &all {
                let op = load(&"bank".into(), record, 1_000_000).unwrap();
                loaded(&run(&mut there, &op)).unwrap();
            }
        }
        // A ledger leaves out numbers that may have been given since, once.
        let skipped = Value::Ledger(Arc::new(crate::ledger::sample().loaded(there.clock())));
        here.set(&bytes("ledger"), skipped, 0);
        let values = |space: &Space| {
            let all = space.map().from(b"").map(|(key, entry)| (key.clone(), entry.value.clone(), entry.end));
            all.collect::<Vec<_>>()
        };
        assert_eq!(values(&there), values(&here));
        assert!(there.revision() > 10 && there.next_revision() > 10, "no token comes again");
        // Of a moment long after.
        let ended = all.iter().filter(|record| load(&"bank".into(), record, 1_005_000).is_none());
        assert_eq!(ended.count(), 1);
    }

    #[test]
    fn what_no_leader_answers_ends_the_dump_and_does_no_harm() {
        let begun = || {
            let mut dump = Dump::new("bank".into(), vec![(0, 5), (6, u64::MAX)], 7);
            assert_eq!(dump.asks()[0].over, Over::Range { from: 0, to: 5 });
            dump
        };
        let page = |items| Reply::List(vec![Reply::Int(3), Reply::Int(0), Reply::Nil, Reply::List(items)]);
        for odd in [
            Reply::Nil,
            Reply::Int(1),
            Reply::Wrong(super::super::op::Wrong::Unknown),
            Reply::List(vec![Reply::Int(1)]),
            page(vec![Reply::Nil]),
            page(vec![Reply::List(vec![Reply::Bytes("k".into()), Reply::Bytes("odd".into())])]),
        ] {
            assert!(begun().take(vec![Ran::Done(vec![odd])], 1).is_err());
        }
        assert!(begun().take(Vec::new(), 1).is_err());
        let mut dump = begun();
        assert_eq!(dump.take(vec![Ran::Done(vec![page(Vec::new())])], 1).unwrap().len(), 1);
        assert_eq!(dump.asks()[0].over, Over::Range { from: 6, to: u64::MAX });
    }
}
