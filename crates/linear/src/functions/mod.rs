//! The functions that can be applied to a key, by name: one list. They run at every replica, so the same must come of them
//! everywhere: they see the space and their arguments, nothing else. Numbers in arguments are decimal text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::LazyLock;

use bytes::Bytes;

use super::limits::{DRAWN_AGAIN_MAX, SCAN_KEYS_MAX};
use super::op::{Reply, Step, Wrong};
use super::space::Space;
use super::value::Value;

mod bits;
pub mod changes;
mod common;
pub mod fields;
pub mod geo;
mod hash;
mod hash_ends;
mod json;
mod key;
mod lease;
mod ledger;
mod list;
mod number;
mod once;
pub mod queue;
pub mod script;
mod set;
mod sketch;
pub mod sort;
mod sorted;
mod space;
pub mod sql;
mod stream;
mod text;
pub mod texts;
mod walk;

pub use hash_ends::{ENDED as FIELDS_ENDED, LEVEL as FIELDS_END_LEVEL};
pub use key::PASSED;
pub use queue::DUE as JOBS_DUE;
pub use walk::LEVEL as WALK_LEVEL;

pub type Result = std::result::Result<Reply, Wrong>;

/// How a function is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// Changes nothing: it needs no entry in the log.
    Read(fn(&Space, &Bytes, &[Bytes]) -> Result),
    Write(fn(&mut Space, &Bytes, &[Bytes]) -> Result),
}

#[derive(Clone, Copy)]
pub struct Function {
    pub name: &'static str,
    /// Arguments, for people.
    pub args: &'static str,
    pub run: Run,
    /// It is about all keys; the key it is given means nothing.
    pub whole: bool,
    /// It is about none: neither does it here.
    pub keyless: bool,
    /// So many of its first arguments are keys, too ...
    pub keys: usize,
    /// ... but for so many at the end, which never are.
    pub options: usize,
    /// Front doors call it, nobody else.
    pub inner: bool,
    /// The leader may wait before it answers (`watchers.rs`). Such a function is an operation of its own.
    pub waits: bool,
    /// It may be declared weak: its order among others of its kind does not matter, and several calls are one with these arguments.
    pub combine: Option<Combine>,
    /// If it is about all keys, or none: how the replies of several shards become one.
    pub merge: Merge,
    /// With which level of programs it came ([`base::level`]), ...
    pub level: u32,
    /// ... and its newest arguments, if these are not as old: with which, and whether they are among some.
    pub newer: Option<(u32, Among)>,
}

/// Are certain arguments among these?
pub type Among = fn(&[Bytes]) -> bool;

/// Adds the arguments of one call to those of others; false: it cannot, and has changed nothing.
pub type Combine = fn(&mut Vec<Bytes>, &[Bytes]) -> bool;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    Sum,
    Most,
    /// One of them, by the number that the step carries.
    Chance,
    /// All of them, in the order of the shards.
    List,
    /// Pages of a scan.
    Pages,
    /// Pages of a walk.
    Walk,
}

impl Function {
    /// May anybody call it by name, on a key?
    pub fn is_offered(&self) -> bool {
        !self.whole && !self.keyless && !self.waits && !self.inner
    }

    /// The level of programs that know it with these arguments.
    pub fn level_of(&self, args: &[Bytes]) -> u32 {
        self.newer.filter(|(_, are_newer)| are_newer(args)).map_or(self.level, |(level, _)| level)
    }

    /// May what is stored become more by it? Whatever else happens, it is done also where a namespace has all that it may.
    pub fn grows(&self) -> bool {
        matches!(self.run, Run::Write(_)) && !NEVER_GROW.contains(&self.name)
    }

    /// The key that a step may make, if there is none.
    pub fn makes<'a>(&self, step: &'a Step) -> Option<&'a Bytes> {
        // The other key of most is the one that it writes to.
        let writes_own = self.keys != 1 || matches!(self.name, "sorted.store-range" | "geo.store");
        let key = if writes_own { Some(&step.key) } else { step.args.first() };
        key.filter(|_| self.grows() && !NEVER_MAKE.contains(&self.name))
    }

    /// The keys that a step has to do with.
    pub fn keys<'a>(&self, step: &'a Step) -> impl Iterator<Item = &'a Bytes> {
        let own = (!self.whole && !self.keyless).then_some(&step.key);
        let others = step.args.len().saturating_sub(self.options).min(self.keys);
        own.into_iter().chain(&step.args[..others])
    }
}

const fn read(name: &'static str, args: &'static str, run: fn(&Space, &Bytes, &[Bytes]) -> Result) -> Function {
    plain(name, args, Run::Read(run))
}

const fn write(name: &'static str, args: &'static str, run: fn(&mut Space, &Bytes, &[Bytes]) -> Result) -> Function {
    plain(name, args, Run::Write(run))
}

/// One of the first level, about the step's own key alone.
const fn plain(name: &'static str, args: &'static str, run: Run) -> Function {
    Function {
        name,
        args,
        run,
        whole: false,
        keyless: false,
        keys: 0,
        options: 0,
        inner: false,
        waits: false,
        combine: None,
        merge: Merge::List,
        level: 1,
        newer: None,
    }
}

/// One that came with a level above the first.
const fn since(level: u32, function: Function) -> Function {
    Function { level, ..function }
}

/// One of which some arguments came later.
const fn args_since(level: u32, are_newer: Among, function: Function) -> Function {
    Function { newer: Some((level, are_newer)), ..function }
}

/// For front doors.
const fn inner(function: Function) -> Function {
    Function { inner: true, ..function }
}

/// One that may be declared weak.
const fn weak(combine: Combine, function: Function) -> Function {
    Function { combine: Some(combine), ..function }
}

/// Writes after which no more is stored than before, but for what is bounded elsewhere (`once.keep`, removals that a ledger keeps, what workers say of failures) and lengths of two keys (`rename`).
const NEVER_GROW: &[&str] = &[
    "hold",
    "release",
    "remove",
    "take",
    "expire",
    "get-expire",
    "rename",
    "lease.renew",
    "lease.release",
    "hash.persist",
    "hash.take",
    "hash.remove",
    "list.pop-first",
    "list.pop-left",
    "list.pop-right",
    "list.trim",
    "list.remove",
    "set.pop",
    "set.remove",
    "sorted.pop",
    "sorted.pop-first",
    "sorted.remove",
    "sorted.remove-range",
    "ledger.folder.delete",
    "ledger.folder.subscribe",
    "ledger.mark",
    "ledger.move",
    "ledger.remove",
    "ledger.remove-objects",
    "ledger.close",
    "ledger.skip",
    "stream.remove",
    "stream.trim",
    "stream.set-id",
    "stream.group-set",
    "stream.group-remove",
    "stream.consumer-remove",
    "stream.ack",
    "queue.take",
    "queue.renew",
    "queue.done",
    "queue.fail",
    "queue.back",
    "queue.retry",
    "queue.drop",
    "queue.drop-dead",
    "queue.unrepeat",
    "clear",
    "once.keep",
    "script.run",
    "script.run-keyless",
    "scripts.keep",
    "scripts.flush",
    "library.put",
    "library.remove",
    "library.flush",
    "versions.above",
    "sql.batch",
    "sql.load",
];
/// Writes that do nothing where there is no key.
const NEVER_MAKE: &[&str] = &[
    "hash.expire",
    "hash.get-expire",
    "list.push-left-present",
    "list.push-right-present",
    "list.set",
    "list.insert",
    "ledger.folder.rename",
    "ledger.add",
    "ledger.copy",
    "ledger.keywords",
    "stream.consumer-make",
    "stream.read-group",
    "stream.claim",
    "stream.claim-auto",
];

/// Everything that is offered.
pub static ALL: &[&[Function]] = &[
    key::ALL,
    text::ALL,
    bits::ALL,
    fields::ALL,
    sketch::ALL,
    common::ALL,
    sort::ALL,
    number::ALL,
    hash::ALL,
    hash_ends::ALL,
    list::ALL,
    set::ALL,
    sorted::ALL,
    geo::ALL,
    stream::ALL,
    json::ALL,
    lease::ALL,
    ledger::ALL,
    queue::ALL,
    once::ALL,
    script::ALL,
    texts::ALL,
    sql::ALL,
    space::ALL,
    walk::ALL,
    changes::ALL,
];

/// The function of this name.
pub fn find(name: &str) -> Option<&'static Function> {
    // Looked for several times for each command, so by a hash of few steps; names are ours, nobody else chooses them.
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Function, BuildHasherDefault<Fnv>>> =
        LazyLock::new(|| ALL.iter().flat_map(|some| some.iter()).map(|f| (f.name, f)).collect());
    BY_NAME.get(name).copied()
}

/// FNV-1a, for the short names of functions.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The highest level that any of these steps needs; none if one is unknown to this program.
pub fn level(steps: &[Step]) -> Option<u32> {
    steps.iter().try_fold(1, |most, step| Some(find(step.function)?.level_of(&step.args).max(most)))
}

/// Has its answer some bytes at most for each of its arguments, whatever is stored?
pub fn is_brief(step: &Step) -> bool {
    // With `old` it gives what was there.
    BRIEF.contains(&step.function) || (step.function == "put" && step.args.len() == 3)
}

/// Functions that answer with numbers, or with words of their own. Sorted by how often they are asked for.
const BRIEF: &[&str] = &[
    "remove",
    "expire",
    "number.add",
    "hash.set",
    "exists",
    "ttl",
    "sorted.add",
    "stream.add",
    "list.push-left",
    "list.push-right",
    "set.add",
    "set.remove",
    "sorted.remove",
    "sorted.remove-range",
    "sorted.increase",
    "sorted.length",
    "sorted.count",
    "hash.add",
    "hash.set-new",
    "hash.remove",
    "hash.has",
    "hash.length",
    "hash.add-float",
    "number.add-float",
    "text.append",
    "text.length",
    "text.set-range",
    "text.set-bit",
    "text.bit",
    "text.bits",
    "list.length",
    "list.push-left-present",
    "list.push-right-present",
    "list.insert",
    "list.set",
    "list.remove",
    "list.trim",
    "set.has",
    "set.length",
    "stream.ack",
    "stream.remove",
    "stream.trim",
    "stream.length",
    "queue.put",
    "queue.renew",
    "queue.done",
    "queue.fail",
    "sketch.add",
    "type",
    "version",
];

/// Is something among these steps that was done already, or perhaps was?
pub fn once_done(space: &Space, steps: &[Step]) -> bool {
    steps.iter().any(|step| step.function == once::KEEP && once::is_known(space, &step.args))
}

/// Why these steps have to wait, if they need a level that the cluster has not agreed on.
pub fn too_new(steps: &[Step], agreed: u32) -> Option<String> {
    let level = |step: &&Step| find(step.function).map_or(1, |function| function.level_of(&step.args));
    let step = steps.iter().find(|step| level(step) > agreed)?;
    let (name, level) = (step.function, level(&step));
    Some(format!(
        "{name} is not to be used so until all nodes run the newer program: it needs level {level}, the cluster has agreed on {agreed}"
    ))
}

/// Names of those that may be declared weak.
pub fn weak_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|some| some.iter()).filter(|function| function.combine.is_some()).map(|function| function.name)
}

// What several functions need.

/// Items of one call behind those of others.
fn items_of_both(args: &mut Vec<Bytes>, more: &[Bytes]) -> bool {
    let both = !args.is_empty() && !more.is_empty();
    if both {
        args.extend_from_slice(more);
    }
    both
}

/// One sum of two, both behind the same words.
fn sum_of_both(args: &mut Vec<Bytes>, more: &[Bytes]) -> bool {
    let (Some((last, words)), Some((delta, same))) = (args.split_last(), more.split_last()) else { return false };
    let sum = integer(last).ok().zip(integer(delta).ok()).and_then(|(last, delta)| last.checked_add(delta));
    let Some(sum) = sum.filter(|_| words == same) else { return false };
    args.pop();
    args.push(sum.to_string().into());
    true
}

fn integer(arg: &[u8]) -> std::result::Result<i64, Wrong> {
    // As Redis: no sign but a minus, no spaces, no leading zeros.
    let text = std::str::from_utf8(arg).map_err(|_| Wrong::NotANumber)?;
    let number: i64 = text.parse().map_err(|_| Wrong::NotANumber)?;
    if text.starts_with('+') || (number.to_string().len() != text.len()) { Err(Wrong::NotANumber) } else { Ok(number) }
}

fn unsigned(arg: &[u8]) -> std::result::Result<u64, Wrong> {
    u64::try_from(integer(arg)?).map_err(|_| Wrong::NotANumber)
}

fn one(args: &[Bytes]) -> std::result::Result<&Bytes, Wrong> {
    match args {
        [only] => Ok(only),
        _ => Err(Wrong::Arguments),
    }
}

fn two(args: &[Bytes]) -> std::result::Result<(&Bytes, &Bytes), Wrong> {
    match args {
        [first, second] => Ok((first, second)),
        _ => Err(Wrong::Arguments),
    }
}

fn none(args: &[Bytes]) -> std::result::Result<(), Wrong> {
    if args.is_empty() { Ok(()) } else { Err(Wrong::Arguments) }
}

fn some(args: &[Bytes]) -> std::result::Result<(), Wrong> {
    if args.is_empty() { Err(Wrong::Arguments) } else { Ok(()) }
}

fn count(n: usize) -> Reply {
    Reply::Int(n as i64)
}

/// A page of sorted items: from the first on, or behind `after`; how many.
fn page(args: &[Bytes]) -> std::result::Result<(Bound<&[u8]>, usize), Wrong> {
    match args {
        [how, after, count] => {
            let from = match &how[..] {
                b"first" => Bound::Unbounded,
                b"after" => Bound::Excluded(&after[..]),
                _ => return Err(Wrong::Arguments),
            };
            Ok((from, unsigned(count)?.min(SCAN_KEYS_MAX) as usize))
        }
        _ => Err(Wrong::Arguments),
    }
}

/// Places of different items among `len`, or with `again` of any, by a number that whoever asks has drawn: the same
/// everywhere.
fn drawn(args: &[Bytes], len: usize) -> std::result::Result<Vec<usize>, Wrong> {
    let (number, count, again) = match args {
        [number, count] => (number, count, false),
        [number, count, again] if &again[..] == b"again" => (number, count, true),
        _ => return Err(Wrong::Arguments),
    };
    let (mut rng, count) = (base::Rng::new(unsigned(number)?), unsigned(count)? as usize);
    if len == 0 {
        return Ok(Vec::new());
    }
    if again {
        return Ok((0..count.min(DRAWN_AGAIN_MAX)).map(|_| rng.below(len as u64) as usize).collect());
    }
    if count >= len {
        return Ok((0..len).collect());
    }
    let mut places = BTreeSet::new();
    // Floyd: each choice of so many is as likely.
    for last in len - count..len {
        let place = rng.below(last as u64 + 1) as usize;
        places.insert(if places.contains(&place) { last } else { place });
    }
    Ok(places.into_iter().collect())
}

/// The items at these places of those that come in order.
fn at_places<T: Clone>(items: impl Iterator<Item = T>, places: &[usize]) -> Vec<T> {
    let wanted: BTreeSet<usize> = places.iter().copied().collect();
    let found: BTreeMap<usize, T> = items.enumerate().filter(|(place, _)| wanted.contains(place)).collect();
    places.iter().filter_map(|place| found.get(place).cloned()).collect()
}

fn flag(is_so: bool) -> Reply {
    Reply::Int(is_so.into())
}

/// Positions `start..end` that Redis' `start` and `stop` mean, for something so long: negative ones count from the end,
/// `stop` is included.
fn slice(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let at = |n: i64| if n < 0 { (len + n).max(0) } else { n };
    let (start, end) = (at(start), if stop < 0 { len + stop + 1 } else { stop.saturating_add(1).min(len) });
    if start >= end { 0..0 } else { start as usize..end as usize }
}

/// A text, or nothing.
fn text_of<'a>(space: &'a Space, key: &[u8]) -> std::result::Result<Option<&'a Bytes>, Wrong> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Wrong::Type),
    }
}

#[cfg(test)]
mod hash_tests;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod numbering_tests;
#[cfg(test)]
mod sorted_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
