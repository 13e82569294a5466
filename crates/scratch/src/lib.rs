//! The `scratch` class: each node keeps a map of its own, in memory, and nothing is copied or sent. It is for tests, and the shortest
//! class there can be: it shows what a class needs (`docs/recipes/class.md`). A node takes namespaces of it only if it was started
//! with `--scratch`.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod limits;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::KEY_BYTES_MAX;
use base::{GroupId, Now, Outcome, Refused, Time};
use bytes::Bytes;
use class::dump::{self, Nothing};
use class::limits::KEY_BYTES;
use class::{Birth, Bounds, Class, Declared, Figure, Flag, Number, Used};
use flow::stage::Shown;

use limits::{BYTES_MAX, KEYS_MAX, VALUE_BYTES_MAX};
pub use spec::Spec;

pub type Input = class::Input<Scratch>;
pub type Output = class::Output<Outcome<Reply>>;

/// What whoever starts a node tells its part of the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Namespaces of the class may be declared.
    pub is_allowed: bool,
}

/// One operation. Ends in `Outcome<Reply>`: done or refused, at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    /// 1 to 512 bytes. Empty for [`Act::Count`].
    pub key: Bytes,
    pub act: Act,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Answer: `Value` or `Absent`.
    Get,
    /// Answer: `Stored`.
    Put(Bytes),
    /// Answer: `Removed`, or `Absent`.
    Remove,
    /// Keys at this node. Answer: `Count`.
    Count,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Value(Bytes),
    Absent,
    Stored,
    Removed,
    Count(u64),
}

/// The part of one node.
#[derive(Debug)]
pub struct Scratch {
    is_allowed: bool,
    spaces: BTreeMap<Arc<str>, Space>,
}

/// What this node has of one namespace.
#[derive(Debug, Default)]
struct Space {
    /// Its number: another one is another namespace, of the same name.
    id: u32,
    map: BTreeMap<Bytes, Bytes>,
    used: Used,
}

/// What a namespace may hold here.
const BOUNDS: Bounds = Bounds { bytes: Some(BYTES_MAX), keys: Some(KEYS_MAX) };

/// Why a node without [`Settings::is_allowed`] takes no such namespace.
const NOT_ALLOWED: &str = "class scratch is for tests: start the nodes with --scratch, as `coppice up --scratch` does, \
                           or choose another class";

impl Class for Scratch {
    const NAME: &'static str = "scratch";
    const NUMBER: Number = Number(255);
    const RECORDS: &'static str = "scratch";
    const FIGURES: &'static [Figure] = &[
        Figure::gauge("scratch.bytes", "Bytes of keys and values of class scratch at this node, and 48 for each key."),
        Figure::gauge("scratch.keys", "Keys of class scratch at this node."),
    ];

    type Settings = Settings;
    const FLAGS: &'static [Flag<Settings>] = &[Flag {
        name: "scratch",
        help: "For tests: namespaces of class scratch may be declared, of which each node has a part of its own",
        set: |settings| settings.is_allowed = true,
    }];
    type Spec = Spec;
    type Op = Op;
    type Reply = Reply;
    type Record = ();
    type Report = ();
    type Dump = Nothing<Op, Reply>;

    const ON_DISK: bool = false;
    const DUMPED: &'static str = "nothing";
    const NOT_DUMPED: Option<&'static str> = Some("each node has something else of it");

    fn born(_: &mut Birth, Settings { is_allowed }: Settings) -> Self {
        Self { is_allowed, spaces: BTreeMap::new() }
    }

    fn start(&mut self, _: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        false
    }

    fn lacks(&self) -> Option<&'static str> {
        (!self.is_allowed).then_some(NOT_ALLOWED)
    }

    fn handle(&mut self, _: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask { id, op, .. } => out.push(Output::Answer { id, answer: self.operate(op) }),
            Input::Declared(Declared { spaces, .. }) => {
                let mut before = std::mem::take(&mut self.spaces);
                let kept = |(name, space): (String, class::Space<Self>)| {
                    let kept = before.remove(&*name).filter(|kept| kept.id == space.id);
                    (name.into(), kept.unwrap_or(Space { id: space.id, ..Space::default() }))
                };
                self.spaces = spaces.into_iter().map(kept).collect();
            }
            Input::Frame { from, .. } => out.push(Output::Bad { from, why: "class scratch sends none".into() }),
            Input::Probe { id, .. } => out.push(Output::Probed { id, answers: false }),
            // It has no report, no group, no log, no peers.
            Input::Birth { .. } | Input::Death { .. } | Input::Told { .. } | Input::Tend | Input::Wake => (),
            Input::Appended { .. } | Input::Saved { .. } | Input::Worked { .. } | Input::Packs(_) => (),
            Input::Pack { .. } | Input::DiskFull(_) | Input::DiskRoom { .. } => (),
            Input::Aside(_) | Input::Leaving(_) | Input::Voters(_) => (),
        }
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, 1)
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }

    fn used(&self) -> Vec<(&str, Used, Bounds)> {
        self.spaces.iter().map(|(name, space)| (&**name, space.used, BOUNDS)).collect()
    }

    fn copies(&self, _: &Spec, _: usize) -> Option<u64> {
        Some(1)
    }

    fn figures(&self) -> Vec<u64> {
        let all = self.spaces.values().fold(Used::default(), |all, space| all + space.used);
        vec![all.bytes, all.keys]
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(_: Arc<str>, _: Vec<(u64, u64)>, _: u64) -> Self::Dump {
        Nothing::default()
    }

    fn load(_: &Arc<str>, _: &dump::Record, _: u64) -> Result<Option<Op>, String> {
        Err("values of this class are not loaded".into())
    }

    fn loaded(_: &Reply) -> Result<(), String> {
        Ok(())
    }
}

impl Scratch {
    fn operate(&mut self, Op { namespace, key, act }: Op) -> Outcome<Reply> {
        let refused = |why: String| Outcome::Refused(Refused::wrong(why));
        if !self.is_allowed {
            return refused(NOT_ALLOWED.into());
        }
        let Some(space) = self.spaces.get_mut(&namespace) else {
            return refused(format!("there is no namespace {namespace} of class scratch"));
        };
        if act != Act::Count && !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {}", key.len()));
        }
        Outcome::Done(match act {
            Act::Get => space.map.get(&key).cloned().map_or(Reply::Absent, Reply::Value),
            Act::Count => Reply::Count(space.used.keys),
            Act::Remove => match space.map.remove(&key) {
                Some(value) => {
                    space.used.bytes -= cost(&key, &value);
                    space.used.keys -= 1;
                    Reply::Removed
                }
                None => Reply::Absent,
            },
            Act::Put(value) if value.len() > VALUE_BYTES_MAX => {
                return refused(format!("a value has at most {VALUE_BYTES_MAX} bytes, this one has {}", value.len()));
            }
            Act::Put(value) => {
                let had = space.map.get(&key).map(|had| cost(&key, had));
                let more =
                    Used { bytes: cost(&key, &value).saturating_sub(had.unwrap_or(0)), keys: had.is_none().into() };
                if BOUNDS.over(space.used, more).is_some() {
                    return refused(format!("{namespace} is full here: {BYTES_MAX} bytes and {KEYS_MAX} keys a node"));
                }
                space.used.bytes = space.used.bytes - had.unwrap_or(0) + cost(&key, &value);
                space.used.keys += more.keys;
                // Of their own: what came was part of a larger buffer.
                space.map.insert(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
                Reply::Stored
            }
        })
    }
}

/// What a key counts for, bytes.
fn cost(key: &Bytes, value: &Bytes) -> u64 {
    KEY_BYTES + (key.len() + value.len()) as u64
}
