//! Operations whose steps need not happen at one moment: each step goes to the shard that has its key, one about all keys to
//! every shard, and the replies are put together again.

use std::collections::BTreeMap;

use base::{Outcome, Refused, Unknown};
use bytes::Bytes;

use super::functions::{self, Function, Merge, Run};
use super::limits::ANSWER_BYTES_MAX;
use super::machine::Asker;
use super::op::{Op, Over, Ran, Reply, Step};
use super::order::place_of;
use super::split::hash_of;

/// A shard, by the range of its hashes, and which of the steps are for it.
pub type Part = ((u64, u64), Vec<usize>);

/// An operation under way in parts.
pub struct Apart {
    pub ask: Asker,
    writes: bool,
    steps: Vec<Step>,
    parts: Vec<Part>,
    ended: Vec<Option<Outcome<Ran>>>,
}

/// The parts of an operation that lies over these shards, each with its range, in order.
pub fn split(op: &Op, shards: &[(u64, u64)]) -> Result<Vec<Part>, Refused> {
    if !op.conditions.is_empty() {
        return Err(Refused::wrong("with conditions all happens at one moment, in one shard"));
    }
    let mut parts: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    let shard_of = |key: &Bytes| shards.iter().find(|(from, to)| (*from..=*to).contains(&hash_of(key))).copied();
    for (at, step) in op.steps.iter().enumerate() {
        let function = functions::find(step.function).ok_or_else(|| Refused::wrong("no function of this name"))?;
        if function.waits {
            return Err(Refused::wrong("what may wait is asked of one shard"));
        }
        if function.whole || function.keyless {
            shards.iter().for_each(|shard| parts.entry(*shard).or_default().push(at));
            continue;
        }
        // All keys of a step must be in one shard; whoever judges the part looks at that.
        let shard = function.keys(step).next().map(shard_of);
        match shard {
            Some(Some(shard)) => parts.entry(shard).or_default().push(at),
            Some(None) => return Err(Refused::wrong("a key is not in the range that was asked")),
            None => (),
        }
    }
    Ok(parts.into_iter().collect())
}

impl Apart {
    pub fn new(ask: Asker, steps: Vec<Step>, parts: Vec<Part>) -> Self {
        let is_write = |step: &Step| functions::find(step.function).is_some_and(|f| matches!(f.run, Run::Write(_)));
        let (writes, ended) = (steps.iter().any(is_write), parts.iter().map(|_| None).collect());
        Self { ask, writes, steps, parts, ended }
    }

    /// A part has ended so. With the last one, how all did.
    pub fn ended(&mut self, nth: usize, outcome: Outcome<Ran>) -> Option<Outcome<Ran>> {
        self.ended[nth] = Some(outcome);
        if self.ended.iter().any(Option::is_none) {
            return None;
        }
        let (mut done, mut refused, mut unknown) = (Vec::new(), None, None);
        for (nth, outcome) in self.ended.drain(..).flatten().enumerate() {
            match outcome {
                Outcome::Done(Ran::Done(replies)) => done.push((nth, replies)),
                // It has no condition: machines take no such answer.
                Outcome::Done(Ran::Unmet) => {
                    unknown = Some(Unknown { why: "a part of it was answered as what it is not".into() })
                }
                Outcome::Refused(why) => refused = Some(why),
                Outcome::Unknown(why) => unknown = Some(why),
            }
        }
        Some(match (refused, unknown) {
            (None, None) => Outcome::Done(Ran::Done(self.join(done))),
            (_, Some(why)) => Outcome::Unknown(why),
            (Some(why), None) if self.writes && !done.is_empty() => {
                Outcome::Unknown(Unknown { why: format!("part of it happened, and part not: {}", why.why) })
            }
            (Some(why), None) => Outcome::Refused(why),
        })
    }

    fn join(&self, done: Vec<(usize, Vec<Reply>)>) -> Vec<Reply> {
        let mut of: Vec<Vec<Reply>> = self.steps.iter().map(|_| Vec::new()).collect();
        for (nth, replies) in done {
            for (at, reply) in self.parts[nth].1.iter().zip(replies) {
                of[*at].push(reply);
            }
        }
        self.steps.iter().zip(of).map(|(step, replies)| merged(step, replies)).collect()
    }
}

/// One reply of those of several shards, in their order.
fn merged(step: &Step, mut replies: Vec<Reply>) -> Reply {
    let of_all = functions::find(step.function).filter(|function| function.whole || function.keyless);
    let Some(Function { merge, .. }) = of_all else { return replies.pop().unwrap_or(Reply::Nil) };
    if let Some(wrong) = replies.iter().position(|reply| matches!(reply, Reply::Wrong(_))) {
        return replies.swap_remove(wrong);
    }
    let numbers = || replies.iter().map(|reply| if let Reply::Int(n) = reply { *n } else { 0 });
    match merge {
        Merge::Sum => Reply::Int(numbers().fold(0, i64::saturating_add)),
        Merge::Most => Reply::Int(numbers().max().unwrap_or(0)),
        Merge::List => {
            // Of a shard that was split meanwhile there is a list already.
            let flat = |reply| if let Reply::List(each) = reply { each } else { vec![reply] };
            Reply::List(replies.into_iter().flat_map(flat).collect())
        }
        Merge::Chance => {
            let number: usize = step.args.first().and_then(|n| std::str::from_utf8(n).ok()?.parse().ok()).unwrap_or(0);
            replies.retain(|reply| *reply != Reply::Nil);
            if replies.is_empty() { Reply::Nil } else { replies.swap_remove(number % replies.len()) }
        }
        Merge::Pages => pages(step, replies),
        Merge::Walk => walk(replies),
    }
}

/// One page of those of several shards, each in order (`functions/space.rs`).
fn pages(step: &Step, pages: Vec<Reply>) -> Reply {
    let [_, _, limit, order, with @ ..] = &step.args[..] else { return Reply::List(Vec::new()) };
    let limit: usize = std::str::from_utf8(limit).ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
    let width = match with.first().map(|with| &with[..]) {
        None => 1,
        Some(b"types") => 2,
        Some(_) => 3,
    };
    let is_back = &order[..] == b"reverse";
    let name = |item: &[Reply]| if let Reply::Bytes(key) = &item[0] { key.clone() } else { Bytes::new() };
    let mut items: BTreeMap<Bytes, Vec<Reply>> = BTreeMap::new();
    // A page that is cut by its bytes says nothing of what is behind it.
    let mut end: Option<Bytes> = None;
    for page in pages {
        let bytes = page.bytes();
        let Reply::List(page) = page else { continue };
        for item in page.chunks_exact(width) {
            items.insert(name(item), item.to_vec());
        }
        if let Some(last) = page.chunks_exact(width).last().filter(|_| bytes > ANSWER_BYTES_MAX / 2).map(name) {
            end = Some(end.map_or(last.clone(), |end| if is_back { end.max(last) } else { end.min(last) }));
        }
    }
    let is_in = |key: &Bytes| end.as_ref().is_none_or(|end| if is_back { key >= end } else { key <= end });
    let mut out = Vec::new();
    let mut bytes = 0;
    let mut take = |(key, item): (Bytes, Vec<Reply>)| {
        if out.len() >= limit.saturating_mul(width) || bytes > ANSWER_BYTES_MAX / 2 || !is_in(&key) {
            return false;
        }
        bytes += item.iter().map(Reply::bytes).sum::<usize>();
        out.extend(item);
        true
    };
    let _ = if is_back { items.into_iter().rev().all(&mut take) } else { items.into_iter().all(&mut take) };
    Reply::List(out)
}

/// One page of those of several shards (`functions/walk.rs`): up to where all of them have come.
fn walk(pages: Vec<Reply>) -> Reply {
    let mut items: BTreeMap<(u64, Bytes), Reply> = BTreeMap::new();
    let mut next: Option<u64> = None;
    for page in pages {
        let Reply::List(page) = page else { continue };
        if let Some(Reply::Int(cursor @ 1..)) = page.first() {
            next = Some(next.map_or(*cursor as u64, |next| next.min(*cursor as u64)));
        }
        for item in page.get(1..).unwrap_or_default().chunks_exact(2) {
            if let Reply::Bytes(key) = &item[0] {
                items.insert((place_of(key), key.clone()), item[1].clone());
            }
        }
    }
    let (mut page, mut bytes, mut last) = (vec![Reply::Nil], 0, 0);
    for ((place, key), kind) in items {
        if bytes > ANSWER_BYTES_MAX / 2 && place != last {
            next = Some(next.map_or(place, |next| next.min(place)));
        }
        if next.is_some_and(|next| place >= next) {
            break;
        }
        (bytes, last) = (bytes + key.len(), place);
        page.extend([Reply::Bytes(key), kind]);
    }
    page[0] = Reply::Int(next.unwrap_or(0) as i64);
    Reply::List(page)
}

impl Op {
    /// The part for one shard, with some of the steps.
    pub fn part(&self, ((from, to), steps): &Part) -> Op {
        let steps = steps.iter().map(|at| self.steps[*at].clone()).collect();
        Op { steps, over: Over::Range { from: *from, to: *to }, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Span;

    fn step(function: &'static str, key: &str, args: &[&str]) -> Step {
        Step::new(Bytes::copy_from_slice(key.as_bytes()), function, args.iter().map(|a| a.to_string().into()).collect())
    }

    fn keys(keys: &[&str]) -> Reply {
        Reply::List(keys.iter().map(|key| Reply::Bytes(Bytes::copy_from_slice(key.as_bytes()))).collect())
    }

    fn done(replies: impl IntoIterator<Item = Reply>) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(replies.into_iter().collect()))
    }

    const SHARDS: [(u64, u64); 3] = [(0, (1 << 62) - 1), (1 << 62, (1 << 63) - 1), (1 << 63, u64::MAX)];

    #[test]
    fn each_step_goes_where_its_key_is_and_replies_come_back_in_order() {
        let names: Vec<String> = (0..20).map(|n| format!("key{n}")).collect();
        let steps: Vec<Step> =
            names.iter().map(|name| step("get", name, &[])).chain([step("count", "", &[])]).collect();
        let op = Op { over: Over::Each, ..Op::of("bank".into(), steps) };
        let parts = split(&op, &SHARDS).unwrap();
        assert_eq!(parts.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), SHARDS);
        let mut apart = Apart::new(Asker::Probe(1), op.steps.clone(), parts.clone());
        let mut outcome = None;
        for (nth, part) in parts.iter().enumerate() {
            assert!(outcome.is_none(), "not all parts are there");
            let part = op.part(part);
            let (from, to) = SHARDS[nth];
            assert_eq!(part.over, Over::Range { from, to });
            let reply =
                |step: &Step| if step.function == "count" { Reply::Int(5) } else { Reply::Bytes(step.key.clone()) };
            outcome = apart.ended(nth, done(part.steps.iter().map(reply)));
        }
        let replies = names.iter().map(|name| Reply::Bytes(Bytes::copy_from_slice(name.as_bytes())));
        assert_eq!(outcome, Some(done(replies.chain([Reply::Int(15)]))));
    }

    #[test]
    fn pages_of_shards_become_one_in_order_with_its_limit() {
        let merged = |args: &[&str], pages: Vec<Reply>| merged(&step("scan", "", args), pages);
        let pages = || vec![keys(&["a", "d", "g"]), keys(&["b", "c", "z"]), keys(&[])];
        assert_eq!(merged(&["", "", "3", "forward"], pages()), keys(&["a", "b", "c"]));
        assert_eq!(merged(&["", "", "9", "forward"], pages()), keys(&["a", "b", "c", "d", "g", "z"]));
        let back = vec![keys(&["g", "d"]), keys(&["z", "c"])];
        assert_eq!(merged(&["", "", "3", "reverse"], back), keys(&["z", "g", "d"]));
        let with = |items: &[(&str, i64)]| {
            let item =
                |(key, n): &(&str, i64)| [Reply::Bytes(Bytes::from(key.to_string())), Reply::Nil, Reply::Int(*n)];
            Reply::List(items.iter().flat_map(item).collect())
        };
        let two = vec![with(&[("b", 2), ("c", 3)]), with(&[("a", 1)])];
        assert_eq!(merged(&["", "", "2", "forward", "values"], two), with(&[("a", 1), ("b", 2)]));
    }

    #[test]
    fn behind_a_page_that_is_cut_by_its_bytes_nothing_is_told() {
        let long = Reply::Bytes(Bytes::from(vec![b'x'; ANSWER_BYTES_MAX / 2]));
        let cut = Reply::List(vec![Reply::Bytes("b".into()), long.clone(), Reply::Int(1)]);
        let short = Reply::List(vec![Reply::Bytes("c".into()), Reply::Nil, Reply::Int(1)]);
        let step = step("scan", "", &["", "", "9", "forward", "values"]);
        // Of the first shard there may be some between b and c.
        assert_eq!(merged(&step, vec![cut.clone(), short]), cut);
    }

    #[test]
    fn a_write_of_which_a_part_did_not_happen_is_not_called_refused() {
        let refused = || Outcome::Refused(Refused::busy("full", Span::millis(50)));
        let ends = |function, outcomes: Vec<Outcome<Ran>>| {
            let steps = vec![step(function, "", &[])];
            let parts = SHARDS[..outcomes.len()].iter().map(|shard| (*shard, vec![0])).collect();
            let mut apart = Apart::new(Asker::Probe(1), steps, parts);
            outcomes.into_iter().enumerate().filter_map(|(nth, outcome)| apart.ended(nth, outcome)).next().unwrap()
        };
        let one = || done([Reply::Int(1)]);
        assert_eq!(ends("clear", vec![one(), one()]), done([Reply::Int(2)]));
        assert!(matches!(ends("clear", vec![one(), refused()]), Outcome::Unknown(_)));
        assert!(matches!(ends("clear", vec![refused(), refused()]), Outcome::Refused(_)));
        assert!(matches!(ends("count", vec![one(), refused()]), Outcome::Refused(_)));
        assert_eq!(ends("age", vec![done([Reply::Int(3)]), one()]), done([Reply::Int(3)]));
        assert_eq!(ends("revision", vec![one(), one()]), done([Reply::List(vec![Reply::Int(1), Reply::Int(1)])]));
    }

    #[test]
    fn what_waits_or_has_conditions_is_not_taken_apart() {
        let wait = Op { over: Over::Each, ..Op::of("bank".into(), vec![step("changes", "a", &["-", "wait"])]) };
        assert!(split(&wait, &SHARDS).is_err());
        let conditions = vec![super::super::op::Condition { key: "a".into(), version: 1 }];
        let conditional = Op { conditions, over: Over::Each, ..Op::of("bank".into(), vec![step("get", "a", &[])]) };
        assert!(split(&conditional, &SHARDS).is_err());
    }
}
