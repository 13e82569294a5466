//! The shipped node as the world runs it, and, for the tests of the promises, the same node with one planted bug.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::checksum::place_hash;
use base::{AskId, Boot, Effect, Event, Frame, GroupId, LEVEL, Machine, NodeId, Now, Outcome, ProcId, Rng, Span, Time};
use bytes::Bytes;
use cluster::raft::LogBounds;
use cluster::root::{Change, Declared};
use cluster::{Card, Door, DoorAddrs};
use node::{Answer, Applied, Ask, Node, View};
use prost::Message;
use state::class::Number;
use state::linear::functions::sql::BATCH;
use state::linear::limits::LOG;
use state::linear::{Ran, Reply as Got};
use state::object;
use state::session::doc::Doc;
use state::session::merge::MARK;
use state::session::{Action, Op, Place, Reply, Version};
use state::soft;

use crate::liar::LIAR;
use crate::load;
use crate::modes_load::FORMS;
use crate::scene::Only;
use crate::world::{Birth, Factory, Life};

/// A bug to plant. The promise that it breaks must be reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some reads return the first value that was ever found for their key.
    Stale,
    /// Some reads find nothing.
    Forgets,
    /// Some reads by cookie find nothing.
    CookieForgets,
    /// Documents that are merged are replaced instead.
    Unmerged,
    /// Some questions are never answered.
    Mute,
    /// Nobody dials once the cluster has formed.
    NeverDials,
    /// Every child is started twice.
    Twins,
    /// Some applies are acknowledged and not done.
    FalseApply,
    /// Some operations are refused without need.
    Refuses,
    /// It wants to be woken all the time.
    Spins,
    /// Some reads of class `linear` return what was first read of their key.
    LinearStale,
    /// Some writes of class `linear` are acknowledged and not done.
    LinearFalseAck,
    /// Members answer reads that may be stale however old they are.
    LinearOlder,
    /// Who watches class `linear` is sometimes not told the first of several changes.
    LinearUntold,
    /// Some transactions of class `linear` are done in part.
    LinearTorn,
    /// Ids of callers are not heeded: what is asked again happens again.
    LinearTwice,
    /// Values of class `linear` that end live twice as long as they were to.
    LinearLate,
    /// After a restart the end of each `linear` group's log is not there, and what the others say of it is not heeded.
    LinearForgets,
    /// Some updates of class `soft` are acknowledged and not done.
    SoftFalseAck,
    /// What repairs class `soft` does not say what its sender has seen.
    SoftBlind,
    /// The first cell of what repairs class `soft` stands for all of the frame, and the others are lost.
    SoftCovers,
    /// Some ends of class `soft` come much later than they were to.
    SoftLate,
    /// Some batches of class `sql` are acknowledged and not done.
    SqlFalseAck,
    /// Some batches of class `sql` are done in part.
    SqlTorn,
    /// Some puts of class `object` are acknowledged and not done.
    ObjectFalseAck,
    /// Some deletions of class `object` are acknowledged and not done.
    ObjectRevives,
    /// A byte of some objects is another one.
    ObjectSpoils,
    /// What a peer says of others is believed, and what it says of this node is not refuted.
    Believes,
}

impl Bug {
    /// Clients use its class alone: the bug shows sooner.
    pub fn only(self) -> Option<Only> {
        let (soft, object) = (self.is_of_soft(), self.is_of_object());
        soft.then_some(Only::Soft).or(object.then_some(Only::Object))
    }

    /// Only where there are namespaces of class `soft` it can show.
    pub fn is_of_soft(self) -> bool {
        matches!(self, Bug::SoftFalseAck | Bug::SoftBlind | Bug::SoftCovers | Bug::SoftLate)
    }

    /// ... of class `sql`.
    pub fn is_of_sql(self) -> bool {
        matches!(self, Bug::SqlFalseAck | Bug::SqlTorn)
    }

    /// ... of class `object`.
    pub fn is_of_object(self) -> bool {
        matches!(self, Bug::ObjectFalseAck | Bug::ObjectRevives | Bug::ObjectSpoils)
    }
}

/// Makes nodes of one cluster: node 0 founds it in its first life, everyone knows the first three.
pub struct Cluster {
    pub seeds: Vec<SocketAddr>,
    /// Of the machines, as they are at first.
    pub ids: Vec<NodeId>,
    /// The first declaration: TOML.
    pub declaration: String,
    pub bug: Option<Bug>,
    pub founded: bool,
    pub linear_log: LogBounds,
    pub settings: state::Settings,
    /// A peer that may come is among those that are declared.
    pub lies: bool,
    /// This machine begins with an older program; from its second life on it has the present one, as all others.
    pub older: Option<usize>,
    /// What that program has: the level before, unless a test is about another.
    pub older_level: u32,
}

impl Cluster {
    pub fn new(declaration: String, bug: Option<Bug>) -> Self {
        Self {
            seeds: Vec::new(),
            ids: Vec::new(),
            declaration,
            bug,
            founded: false,
            linear_log: LOG,
            settings: state::Settings::default(),
            lies: false,
            older: None,
            older_level: LEVEL - 1,
        }
    }

    fn first_records(&self, level: u32) -> Change {
        let nothing = Declared::default();
        let diff =
            node::declared::diff(&nothing, FILE, &self.declaration, &[7; 32]).expect("the first declaration is right");
        let mut change = Change { expect: None, ..diff.change };
        // As if all of them had joined.
        let admitted = |(n, id): (usize, &NodeId)| {
            let id = serde_json::to_vec(id).expect("a number is JSON");
            ("node".into(), format!("n{n}"), Bytes::from(id))
        };
        change.puts.extend((1..).zip(&self.ids).map(admitted));
        if self.lies {
            let id = serde_json::to_vec(&LIAR).expect("a number is JSON");
            change.puts.push(("node".into(), "liar".into(), id.into()));
        }
        // Nothing here is signed, but who enters anew is given the authority.
        let authority = Bytes::from_static(b"{\"cert_pem\":\"\",\"key_pem\":\"\"}");
        change.puts.push(node::level::put(level));
        // With it those come in who have lost all that they were.
        let token = Bytes::from(format!("{{\"expires_wall_ms\":{}}}", u64::MAX));
        change.puts.push(("join".into(), TOKEN.iter().map(|byte| format!("{byte:02x}")).collect(), token));
        change.puts.push(("secret".into(), "ca".into(), authority));
        change
    }
}

/// Hash of the secret of a join token that is good for ever.
pub const TOKEN: [u8; 32] = [7; 32];
/// Name of the file that load applies.
pub const FILE: &str = "sim.toml";

impl Factory for Cluster {
    type Machine = Shipped;

    fn birth(&mut self, life: &Life) -> Birth<Shipped> {
        // The cluster begins with what all have.
        let first = if self.older.is_some() { self.older_level } else { LEVEL };
        let is_older = self.older.take_if(|older| *older == life.index).is_some();
        let card = Card {
            id: life.id,
            boot: life.boot,
            name: format!("n{}", life.index + 1),
            doors: DoorAddrs::on(life.peer.ip()).with(Door::Peer, life.peer),
            // Another one in each life.
            pid: 100 + (life.seed % 30_000) as u32,
            version: "0.1.0".into(),
            level: if is_older { self.older_level } else { LEVEL },
        };
        let founds = life.index == 0 && life.boot == Boot(1) && !self.founded;
        self.founded |= founds;
        let node = Node::new(node::Birth {
            cluster: "sim".into(),
            card: card.clone(),
            seeds: self.seeds.iter().copied().filter(|addr| *addr != life.peer).collect(),
            seed: life.seed,
            settings: self.settings.clone(),
            overflow: false,
            room: 64,
            builtins: &[],
            linear_log: self.linear_log,
            found: founds.then(|| self.first_records(first)),
        });
        let node = if self.bug == Some(Bug::Believes) { node.believing() } else { node };
        let planted = self.bug.map(|bug| Planted {
            bug,
            rng: Rng::new(life.seed ^ 1),
            reads: BTreeMap::new(),
            first: BTreeMap::new(),
            gets: BTreeMap::new(),
            first_got: BTreeMap::new(),
            version: 0,
            born: None,
            now: Time::ZERO,
        });
        Birth { machine: Shipped { node, planted }, card: card.encode() }
    }
}

/// The node. Without a planted bug every event and effect passes as it is.
pub struct Shipped {
    node: Node,
    planted: Option<Planted>,
}

struct Planted {
    bug: Bug,
    rng: Rng,
    /// Reads under way, by their key.
    reads: BTreeMap<AskId, Bytes>,
    first: BTreeMap<Bytes, Reply>,
    /// Of class `linear`: reads under way, what was first read, and the newest version seen.
    gets: BTreeMap<AskId, Bytes>,
    first_got: BTreeMap<Bytes, Ran>,
    version: i64,
    born: Option<Time>,
    now: Time,
}

type Out = Vec<Effect<Answer, View>>;

impl Machine for Shipped {
    type Ask = Ask;
    type Answer = Answer;
    type View = View;

    fn handle(&mut self, now: Now, event: Event<Ask>, out: &mut Out) {
        let Some(planted) = &mut self.planted else { return self.node.handle(now, event, out) };
        planted.now = now.mono;
        planted.born.get_or_insert(now.mono);
        let Some(event) = planted.spoil_event(event, out) else { return };
        let first = out.len();
        self.node.handle(now, event, out);
        let effects: Vec<_> = out.drain(first..).collect();
        effects.into_iter().for_each(|effect| planted.spoil_effect(effect, out));
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.planted {
            Some(Planted { bug: Bug::Spins, now, .. }) => Some(*now),
            Some(_) | None => self.node.wake_at(),
        }
    }
}

impl Planted {
    fn spoil_event(&mut self, mut event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        if let (Bug::LinearForgets, Event::Start { log, .. }) = (self.bug, &mut event) {
            for (_, records) in log.iter_mut().filter(|(group, _)| **group != GroupId::ROOT) {
                let kept = records.len().saturating_sub(self.rng.below(40) as usize).max(1);
                records.truncate(kept);
            }
        }
        if let (Bug::Unmerged, Event::Ask { ask: Ask::Session(op), .. }) = (self.bug, &mut event) {
            unmark(op);
        }
        if let (Bug::LinearOlder, Event::Ask { ask: Ask::Linear(op), .. }) = (self.bug, &mut event)
            && op.stale.is_some()
        {
            op.stale = Some(Span::secs(3600));
        }
        if let (Bug::LinearTwice, Event::Ask { ask: Ask::Linear(op), .. }) = (self.bug, &mut event) {
            op.once = None;
        }
        if let (Bug::LinearTorn, Event::Ask { ask: Ask::Linear(op), .. }) = (self.bug, &mut event)
            && let [_, second, _] = &mut op.steps[..]
            && second.function == "number.add"
            // Asked again it is torn likewise, at whatever node: else its id would be another operation's, and that is refused.
            && op.once.as_ref().map_or_else(|| self.rng.chance(0.1), |id| place_hash(id.as_bytes()).is_multiple_of(10))
        {
            second.args = vec![Bytes::from_static(b"0")];
        }
        if let (Bug::LinearLate, Event::Ask { ask: Ask::Linear(op), .. }) = (self.bug, &mut event)
            && let [step] = &mut op.steps[..]
            && let ("put", Some(end)) = (step.function, step.args.get_mut(2))
            && let Some(ms) = std::str::from_utf8(end).ok().and_then(|end| end.parse::<u64>().ok())
        {
            *end = (2 * ms).to_string().into();
        }
        if let (Bug::SoftLate, Event::Ask { ask: Ask::Soft(op), .. }) = (self.bug, &mut event)
            && let soft::Action::Set { end: soft::End::After(span), .. } = &mut op.action
            && self.rng.chance(0.3)
        {
            *span = Span(span.0.saturating_mul(40));
        }
        if let (Bug::SqlFalseAck | Bug::SqlTorn, Event::Ask { ask: Ask::Linear(op), .. }) = (self.bug, &mut event)
            && let [step] = &mut op.steps[..]
            && step.function == BATCH
            && self.rng.chance(0.1)
        {
            let text = String::from_utf8_lossy(&step.args[3]).replace("n = n + 1", "n = n + 0");
            step.args[3] = if self.bug == Bug::SqlTorn { text.into() } else { Bytes::from_static(b"[\"select 1\"]") };
        }
        if let Event::Ask { id, ask, .. } = &event {
            match (self.bug, ask) {
                (Bug::SoftFalseAck, Ask::Soft(op)) if op.action.is_write() && self.rng.chance(0.1) => {
                    let done = Outcome::Done(state::soft::Reply::Done);
                    out.push(Effect::Answer { id: *id, answer: Answer::Soft(done) });
                    return None;
                }
                (Bug::ObjectFalseAck | Bug::ObjectRevives, Ask::Object(op)) if self.rng.chance(0.1) => {
                    let version = Version::default();
                    let reply = match (self.bug, &op.action) {
                        (Bug::ObjectFalseAck, object::Action::Put { .. }) => {
                            object::Reply::Stored { version, copies: 2 }
                        }
                        (Bug::ObjectRevives, object::Action::Delete { .. }) => {
                            object::Reply::Deleted { version, copies: 2 }
                        }
                        _ => return Some(event),
                    };
                    out.push(Effect::Answer { id: *id, answer: Answer::Object(Outcome::Done(reply)) });
                    return None;
                }
                (Bug::Stale | Bug::Forgets, Ask::Session(op)) if op.action == Action::Get && is_plain(op) => {
                    self.reads.insert(*id, op.key.clone());
                }
                (Bug::CookieForgets, Ask::Session(op)) if op.action == Action::Get && op.place != Place::Keyed => {
                    self.reads.insert(*id, op.key.clone());
                }
                (Bug::LinearStale, Ask::Linear(op)) if op.steps[0].function == "look" => {
                    self.gets.insert(*id, op.steps[0].key.clone());
                }
                (Bug::LinearFalseAck, Ask::Linear(op)) if op.steps[0].function == "put" && self.rng.chance(0.1) => {
                    self.version += 1;
                    let stored = vec![Got::Int(1), Got::Nil, Got::Int(self.version)];
                    let ran = Ran::Done(vec![Got::List(stored)]);
                    out.push(Effect::Answer { id: *id, answer: Answer::Linear(Outcome::Done(ran)) });
                    return None;
                }
                (Bug::Refuses, Ask::Session(_)) if self.rng.chance(0.02) => {
                    let refused = base::Refused::busy("no reason", Span::millis(1));
                    out.push(Effect::Answer { id: *id, answer: Answer::Session(Outcome::Refused(refused)) });
                    return None;
                }
                (Bug::FalseApply, Ask::Apply { .. }) if self.rng.chance(0.5) => {
                    let applied = Applied { changes: vec!["~ nothing".into()], version: 1_000_000 };
                    out.push(Effect::Answer { id: *id, answer: Answer::Applied(Outcome::Done(applied)) });
                    return None;
                }
                _ => (),
            }
        }
        Some(event)
    }

    fn spoil_effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        match (self.bug, effect) {
            (Bug::SoftBlind | Bug::SoftCovers, Effect::Send { to, frame }) if frame.kind == REPAIR => {
                let head = Repair::decode(frame.head.clone()).expect("a node made it").spoilt(self.bug).encode_to_vec();
                out.push(Effect::Send { to, frame: Frame::new(REPAIR, head) });
            }
            (
                Bug::ObjectSpoils,
                Effect::Answer {
                    id,
                    answer: Answer::Object(Outcome::Done(object::Reply::Object { version, size, sum, body })),
                },
            ) if self.rng.chance(0.1) => {
                let body = body.iter().rev().copied().collect::<Vec<u8>>().into();
                let reply = object::Reply::Object { version, size, sum, body };
                out.push(Effect::Answer { id, answer: Answer::Object(Outcome::Done(reply)) });
            }
            // Else the node would find out by itself.
            (Bug::LinearForgets, Effect::Distrust { .. }) => (),
            (Bug::Mute, Effect::Answer { .. }) if self.rng.chance(0.02) => (),
            (Bug::NeverDials, Effect::Dial { .. })
                if self.now.since(self.born.unwrap_or_default()) > Span::secs(10) => {}
            (Bug::Twins, Effect::Spawn { proc, spec }) => {
                out.push(Effect::Spawn { proc: ProcId(proc.0 | 1 << 40), spec: spec.clone() });
                out.push(Effect::Spawn { proc, spec });
            }
            (
                Bug::Stale | Bug::Forgets | Bug::CookieForgets,
                Effect::Answer { id, answer: Answer::Session(Outcome::Done(reply)) },
            ) => {
                let reply = match self.reads.remove(&id) {
                    Some(key) => self.spoil_read(key, reply),
                    None => reply,
                };
                out.push(Effect::Answer { id, answer: Answer::Session(Outcome::Done(reply)) });
            }
            (Bug::LinearStale, Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) }) => {
                let first = self.gets.remove(&id).map(|key| self.first_got.entry(key).or_insert_with(|| ran.clone()));
                let ran = first.filter(|_| self.rng.chance(0.1)).map_or(ran, |first| first.clone());
                out.push(Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) });
            }
            (Bug::LinearUntold, Effect::Answer { id, answer: Answer::Linear(Outcome::Done(mut ran)) }) => {
                if let Ran::Done(replies) = &mut ran
                    && let [Got::List(page)] = &mut replies[..]
                    && let [Got::Int(_), Got::List(changes)] = &mut page[..]
                    && changes.len() > 1
                    && self.rng.chance(0.1)
                {
                    changes.remove(0);
                }
                out.push(Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) });
            }
            (Bug::LinearFalseAck, Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) }) => {
                self.version = self.version.max(crate::promises::linear::Linear::newest_in(&ran));
                out.push(Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) });
            }
            (_, effect) => out.push(effect),
        }
    }

    fn spoil_read(&mut self, key: Bytes, reply: Reply) -> Reply {
        if matches!(reply, Reply::Value { .. }) {
            self.first.entry(key.clone()).or_insert_with(|| reply.clone());
        }
        match self.bug {
            _ if !self.rng.chance(0.1) => reply,
            // Nothing is another promise's matter.
            Bug::Stale => self.first.get(&key).cloned().unwrap_or(reply),
            _ => Reply::Absent,
        }
    }
}

/// An operation by key in a namespace that merges nothing.
fn is_plain(op: &Op) -> bool {
    op.place == Place::Keyed && *op.namespace == *load::NAMESPACE
}

/// Frames of class `soft` with whole cells.
const REPAIR: u16 = Number::SOFT.data(1);

/// One of them (`soft/src/wire.rs`); what is in its parts is left as it is.
#[derive(Clone, PartialEq, prost::Message)]
struct Repair {
    #[prost(uint32, tag = "1")]
    space: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    context: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    cells: Vec<RepairCell>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RepairCell {
    #[prost(bytes = "bytes", tag = "1")]
    at: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    cell: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    covers: Vec<Bytes>,
}

impl Repair {
    fn spoilt(mut self, bug: Bug) -> Self {
        match bug {
            Bug::SoftBlind => self.context.clear(),
            _ => {
                let covers = self.cells.iter().flat_map(|cell| cell.covers.clone()).collect();
                self.cells.truncate(1);
                if let Some(first) = self.cells.first_mut() {
                    first.covers = covers;
                }
            }
        }
        self
    }
}

/// Without its mark a document that is written replaces what is there.
fn unmark(op: &mut Op) {
    if let (FORMS, Action::Put { value, .. }) = (&*op.namespace, &mut op.action)
        && let Some(mut doc) = Doc::parse(value)
    {
        doc.remove(format!("\"{MARK}\"").as_bytes());
        *value = doc.write();
    }
}
