//! Operations of this node's doors: each first asks all nodes what they have of it, and then writes (`write.rs`) or reads (`read.rs`).
//! Where there is a directory it asks that first, and then those nodes alone that have objects of the owner; the others, too, as soon as
//! these do not do.
//! A put does not wait for who is slow to say: what it then misses is affinity. A read waits until somebody has the object, or all have
//! said that they do not.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, NodeId, Outcome, Priority, Refused, Span, Time, Unknown};
use bytes::Bytes;

use crate::directory::Known;
use crate::held::Held;
use crate::limits::{
    LIST_MAX, LOOK_FOR, LOOK_LONG, OBJECT_BYTES_MAX, OPS_BYTES_MAX, OPS_MAX, OWNER_BYTES_MAX, PIECE_BYTES, PIECES_MAX,
};
use crate::read::Read;
use crate::watch::{Changed, Watch};
use crate::wire::{Here, ListMessage, PutMessage, What};
use crate::write::Write;
use crate::{Action, Body, Bug, Call, Id, Key, Object, Op, Output, Reply, Spec};

/// What is under way.
pub(crate) struct Ops {
    of: BTreeMap<u64, Running>,
    timers: BTreeSet<(Time, u64)>,
    next: u64,
    bytes: usize,
}

pub(crate) struct Running {
    pub ask: AskId,
    pub priority: Priority,
    pub deadline: Time,
    /// When it looks again, whatever comes.
    pub wake: Time,
    /// When nodes were asked last.
    pub since: Time,
    /// Nodes that were not asked yet are to be asked, too.
    pub wants_rest: bool,
    pub spec: Spec,
    /// The object; in a list the id behind which it begins, if any.
    pub key: Key,
    pub goal: Goal,
    /// All nodes that may have something.
    pub looks: BTreeMap<NodeId, Look>,
    pub step: Step,
}

pub(crate) enum Goal {
    Put {
        body: Body,
    },
    Get {
        at: u32,
    },
    Delete,
    List {
        after: Option<Id>,
        limit: usize,
    },
    /// Changes of owners whose names begin as that of the key.
    Watch(Watch),
    /// Behind the owner of the key.
    Owners {
        limit: usize,
    },
}

/// What a node said that it has.
pub(crate) enum Look {
    Waiting,
    /// The node is away, or went.
    Lost,
    /// Nobody has asked it: others have what is looked for, it seems.
    Unasked,
    /// Its manager says that it has nothing of the owner, as of now.
    Nothing,
    Here {
        objects: u64,
        held: Option<Held>,
    },
    Page {
        items: Vec<(Id, Held)>,
        more: bool,
    },
    Changes(Changed),
    Owners {
        owners: Vec<Bytes>,
        more: bool,
    },
}

pub(crate) enum Step {
    /// This manager was asked which nodes have objects of the owner.
    Where(NodeId),
    /// This is what it said; none: all nodes are to be asked.
    Known(Option<Known>),
    Look,
    Write(Write),
    Read(Read),
}

pub(crate) type Ended = Option<Outcome<Reply>>;

impl Ops {
    /// Number of the next question; no two of this life have the same.
    pub fn next_id(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }

    /// `first`: by chance, so that answers to a former life of this node fit nothing.
    pub fn new(first: u64) -> Self {
        Self { of: BTreeMap::new(), timers: BTreeSet::new(), next: first, bytes: 0 }
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }
}

impl Running {
    pub fn bytes(&self) -> usize {
        if let Goal::Put { body } = &self.goal { body.len() } else { 0 }
    }

    pub fn is_waiting(&self) -> bool {
        self.looks.values().any(|look| matches!(look, Look::Waiting))
    }

    pub fn has_unasked(&self) -> bool {
        self.looks.values().any(|look| matches!(look, Look::Unasked))
    }

    pub fn held(&self) -> impl Iterator<Item = (NodeId, &Held)> {
        self.looks.iter().filter_map(|(node, look)| match look {
            Look::Here { held: Some(held), .. } => Some((*node, held)),
            _ => None,
        })
    }

    /// The write that stands above all that were heard of.
    pub fn best(&self) -> Option<&Held> {
        self.held().map(|(_, held)| held).reduce(|best, held| if held.stamp.beats(&best.stamp) { held } else { best })
    }

    /// Nodes that have not said what they have.
    pub fn silent(&self) -> impl Iterator<Item = NodeId> {
        let is_silent = |look: &Look| matches!(look, Look::Waiting | Look::Lost | Look::Unasked);
        self.looks.iter().filter(move |(_, look)| is_silent(look)).map(|(node, _)| *node)
    }
}

impl Object {
    pub(crate) fn ask(&mut self, call: &mut Call, ask: AskId, budget: Span, op: Op) {
        match self.begin(call, ask, budget, op) {
            Ok(mut running) => {
                let id = self.ops.next_id();
                self.ops.bytes += running.bytes();
                match self.manager_for(&running) {
                    Some(manager) => self.ask_where(call, id, &mut running, manager),
                    None => self.ask_rest(call, id, &mut running),
                }
                self.ops.timers.insert((running.wake, id));
                self.ops.of.insert(id, running);
            }
            Err(refused) => {
                self.figures.refused += 1;
                call.out.push(Output::Answer { id: ask, answer: Outcome::Refused(refused) });
            }
        }
    }

    fn begin(&mut self, call: &Call, ask: AskId, budget: Span, op: Op) -> Result<Running, Refused> {
        let Op { namespace, owner, action, priority } = op;
        let soon = Span::millis(500);
        let least = usize::from(!matches!(action, Action::Owners { .. } | Action::Watch { .. }));
        if !(least..=OWNER_BYTES_MAX).contains(&owner.len()) {
            let why = format!("the name of an owner has 1 to {OWNER_BYTES_MAX} bytes, not {}", owner.len());
            return Err(Refused::wrong(why));
        }
        let Some((ns, spec)) = self.spaces.get(&namespace).cloned() else {
            return Err(Refused::busy(format!("namespace {namespace} is not known here"), soon));
        };
        if self.peers.nodes().is_empty() {
            return Err(Refused::busy("this node does not know yet which others there are", soon));
        }
        let (goal, id) = match action {
            Action::Put { body, .. } if body.len() > OBJECT_BYTES_MAX || body.pieces().len() > PIECES_MAX => {
                let why = format!("an object may have {OBJECT_BYTES_MAX} bytes, not {}", body.len());
                return Err(Refused::wrong(why));
            }
            // An older node could not take its pieces.
            Action::Put { body, .. } if body.is_in_pieces() && self.level < crate::PIECES_LEVEL => {
                let why = format!("objects of more than {PIECE_BYTES} bytes are taken when all nodes run this version");
                return Err(Refused::busy(why, Span::secs(10)));
            }
            Action::Put { id, body } => {
                self.figures.puts += 1;
                (Goal::Put { body }, id)
            }
            Action::Get { id, at } => {
                self.figures.gets += u64::from(at == 0);
                (Goal::Get { at }, id)
            }
            Action::Delete { id } => {
                self.figures.deletes += 1;
                (Goal::Delete, id)
            }
            Action::List { after, limit } => (Goal::List { after, limit: limit.clamp(1, LIST_MAX) }, Id::default()),
            Action::Watch { .. } if self.level < crate::WATCH_LEVEL => {
                let why = "objects are watched when all nodes run this version";
                return Err(Refused::busy(why, Span::secs(10)));
            }
            Action::Watch { after, hold, by } => (Goal::Watch(Watch::begin(ns, after, hold, by)?), Id::default()),
            Action::Owners { limit } => (Goal::Owners { limit: limit.clamp(1, LIST_MAX) }, Id::default()),
        };
        let look = |node: &NodeId| match *node == self.me || self.peers.is_live(*node) {
            true => (*node, Look::Unasked),
            false => (*node, Look::Lost),
        };
        let looks: BTreeMap<NodeId, Look> = self.peers.nodes().iter().chain([&self.me]).map(look).collect();
        let live = looks.values().filter(|look| matches!(look, Look::Unasked)).count();
        if matches!(goal, Goal::Put { .. } | Goal::Delete) && live < spec.copies_min as usize {
            let why = format!("{} nodes must have it, and {live} live", spec.copies_min);
            return Err(Refused::busy(why, soon));
        }
        let running = Running {
            ask,
            priority,
            deadline: call.now + budget,
            wake: call.now,
            since: call.now,
            wants_rest: false,
            spec,
            key: Key { ns, owner, id },
            goal,
            looks,
            step: Step::Look,
        };
        let bytes = self.ops.bytes + running.bytes();
        if self.ops.of.len() >= OPS_MAX || bytes > OPS_BYTES_MAX {
            return Err(Refused::busy("this node has too many operations on objects under way", soon));
        }
        Ok(running)
    }

    /// Has an operation hear something, and go on.
    pub(crate) fn with(&mut self, call: &mut Call, id: u64, hear: impl FnOnce(&mut Self, &mut Running) -> Ended) {
        // Whoever is too late with an answer finds nobody.
        let Some(mut op) = self.ops.of.remove(&id) else { return };
        self.ops.timers.remove(&(op.wake, id));
        let ended = hear(self, &mut op).or_else(|| self.go_on(call, id, &mut op));
        let Some(outcome) = ended else {
            op.wake = op.wake.min(op.deadline);
            self.ops.timers.insert((op.wake, id));
            self.ops.of.insert(id, op);
            return;
        };
        self.ops.bytes -= op.bytes();
        for to in self.ships.drop_op(id) {
            self.ship_on(call, to);
        }
        match &outcome {
            Outcome::Done(_) => (),
            Outcome::Refused(_) => self.figures.refused += 1,
            Outcome::Unknown(_) => self.figures.unknown += 1,
        }
        call.out.push(Output::Answer { id: op.ask, answer: outcome });
    }

    pub(crate) fn ops_that_watch(&self) -> Vec<u64> {
        self.ops.of.iter().filter(|(_, op)| matches!(op.goal, Goal::Watch(_))).map(|(id, _)| *id).collect()
    }

    /// Looks again at operations whose moment has come.
    pub(crate) fn wake_ops(&mut self, call: &mut Call) {
        while let Some((_, id)) = self.ops.timers.first().copied().filter(|(at, _)| *at <= call.now) {
            self.with(call, id, |_, op| {
                op.wake = op.deadline;
                None
            });
        }
    }

    /// A node went: nothing is to be heard of it.
    pub(crate) fn lose(&mut self, call: &mut Call, peer: NodeId) {
        let ids: Vec<u64> = self.ops.of.keys().copied().collect();
        for id in ids {
            self.with(call, id, |_, op| {
                if let Some(look @ (Look::Waiting | Look::Unasked)) = op.looks.get_mut(&peer) {
                    *look = Look::Lost;
                }
                match &mut op.step {
                    Step::Where(_) | Step::Known(_) | Step::Look => (),
                    Step::Write(write) => write.lose(peer),
                    Step::Read(read) => read.lose(peer),
                }
                None
            });
        }
    }

    fn go_on(&mut self, call: &mut Call, id: u64, op: &mut Running) -> Ended {
        if call.now >= op.deadline {
            return Some(op.late());
        }
        op.wake = op.deadline;
        if self.waits_for_where(call, id, op) {
            return None;
        }
        let was_looking = matches!(op.step, Step::Look);
        let ended = self.look_on(call, op);
        if was_looking && (ended.is_some() || !matches!(op.step, Step::Look)) {
            self.reconcile(call, op);
        }
        if ended.is_some() {
            return ended;
        }
        let ended = match op.step {
            Step::Where(_) | Step::Known(_) | Step::Look => None,
            Step::Write(_) => self.write_on(call, id, op),
            Step::Read(_) => self.read_on(call, id, op),
        };
        if std::mem::take(&mut op.wants_rest) {
            self.ask_rest(call, id, op);
        }
        ended
    }

    /// Asks those that were not asked yet.
    pub(crate) fn ask_rest(&mut self, call: &mut Call, id: u64, op: &mut Running) {
        op.since = call.now;
        let unasked = op.looks.iter().filter(|(_, look)| matches!(look, Look::Unasked)).map(|(node, _)| *node);
        for node in unasked.collect::<Vec<_>>() {
            op.looks.insert(node, Look::Waiting);
            self.send(call, node, id, op.priority, op.question(node), Bytes::new());
        }
    }

    /// Goes on with what comes after the looks, if they are enough.
    fn look_on(&mut self, call: &Call, op: &mut Running) -> Ended {
        if let Step::Look = op.step {
            match op.goal {
                Goal::Put { .. } | Goal::Delete => {
                    // A list of who has it is worth more to a deletion: whom it does not ask, it leaves to be told later.
                    let patience = if matches!(op.goal, Goal::Delete) { LOOK_LONG } else { LOOK_FOR };
                    if op.waits(call.now, patience) {
                        return None;
                    }
                    if let Some(ended) = self.begin_write(op) {
                        return Some(ended);
                    }
                }
                Goal::Get { .. } => {
                    let is_found = op.best().is_some();
                    if !is_found && op.has_unasked() {
                        // Who is slow to say is waited for no longer than the others need.
                        op.wants_rest = !op.waits(call.now, LOOK_FOR);
                        return None;
                    }
                    if is_found && op.waits(call.now, LOOK_FOR) || !is_found && op.is_waiting() {
                        return None;
                    }
                    if !is_found {
                        if self.has_bug(Bug::Hasty) {
                            return Some(Outcome::Done(Reply::Absent));
                        }
                        return Some(op.not_found());
                    }
                    op.step = Step::Read(Read::default());
                }
                Goal::Watch(_) => return op.watch_on(call.now),
                Goal::List { .. } | Goal::Owners { .. } => {
                    if op.waits(call.now, LOOK_LONG) {
                        return None;
                    }
                    return Some(Outcome::Done(match op.goal {
                        Goal::Owners { limit } => Reply::Owners(op.owners(limit)),
                        _ => Reply::List(op.list()),
                    }));
                }
            }
        }
        None
    }

    /// Holders that do not know of each other, or have different writes, are told: a put that was repeated while its first holders were
    /// away makes such. Those with the write that stands push it to the others.
    fn reconcile(&mut self, call: &mut Call, op: &Running) {
        let Some(best) = op.best() else { return };
        let agrees = |(node, held): (NodeId, &Held)| {
            held.stamp.is_same(&best.stamp) && held.homes == best.homes && held.homes.contains(&node)
        };
        if op.held().all(agrees) {
            return;
        }
        let all: Vec<(NodeId, Held)> = op.held().map(|(node, held)| (node, held.clone())).collect();
        for (to, _) in all.iter().filter(|(_, held)| held.stamp.is_same(&best.stamp)) {
            for (node, held) in all.iter().filter(|(node, _)| node != to) {
                // Who has it is not on all their disks yet, maybe.
                let mut held = held.clone();
                held.has.clear();
                held.homes.insert(*node);
                let done =
                    PutMessage { key: Some((&op.key).into()), held: Some((&held).into()), push: false, stage: 0 };
                self.send(call, *to, 0, Priority::LOWEST, What::Done(done), Bytes::new());
            }
        }
    }

    pub(crate) fn here(&mut self, call: &mut Call, from: NodeId, id: u64, here: Here) -> Option<()> {
        let held = match here.held {
            Some(held) => Some(held.held()?),
            None => None,
        };
        if self.giving.is_asked(id) {
            self.holds_it(call, from, id, held.filter(|_| here.safe));
            return Some(());
        }
        if let Some(held) = &held
            && held.stamp.version.ms <= call.wall_ms.saturating_add(crate::limits::AHEAD_MS_MAX)
        {
            self.clock.pass(held.stamp.version);
        }
        self.with(call, id, |_, op| {
            op.hear(from, Look::Here { objects: here.objects, held });
            None
        });
        Some(())
    }

    pub(crate) fn page(&mut self, call: &mut Call, from: NodeId, id: u64, page: crate::wire::Page) -> Option<()> {
        let item = |item: crate::wire::Item| Some((crate::wire::id_of(&item.id)?, item.held?.held()?));
        let items: Vec<_> = page.items.into_iter().map(item).collect::<Option<_>>()?;
        if items.len() > LIST_MAX || !items.is_sorted_by(|a, b| a.0 < b.0) || page.more && items.is_empty() {
            return None;
        }
        self.with(call, id, |_, op| {
            op.hear(from, Look::Page { items, more: page.more });
            None
        });
        Some(())
    }

    pub(crate) fn owners(
        &mut self,
        call: &mut Call,
        from: NodeId,
        id: u64,
        page: crate::wire::OwnersPage,
    ) -> Option<()> {
        let crate::wire::OwnersPage { owners, more } = page;
        let are_owners = owners.iter().all(|owner| (1..=OWNER_BYTES_MAX).contains(&owner.len()));
        if owners.len() > LIST_MAX || !are_owners || !owners.is_sorted_by(|a, b| a < b) || more && owners.is_empty() {
            return None;
        }
        self.with(call, id, |_, op| {
            op.hear(from, Look::Owners { owners, more });
            None
        });
        Some(())
    }
}

impl Running {
    pub(crate) fn question(&self, to: NodeId) -> What {
        match &self.goal {
            Goal::Watch(watch) => What::Watch(watch.question(&self.key, to)),
            Goal::List { after, limit } => What::List(ListMessage {
                ns: self.key.ns,
                owner: self.key.owner.clone(),
                after: after.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id.0)),
                limit: *limit as u64,
            }),
            Goal::Owners { limit } => What::Walk(ListMessage {
                ns: self.key.ns,
                owner: self.key.owner.clone(),
                after: Bytes::new(),
                limit: *limit as u64,
            }),
            Goal::Put { .. } | Goal::Get { .. } | Goal::Delete => What::Look((&self.key).into()),
        }
    }

    /// An answer to its question; not one that nobody was asked for, nor one of the other kind.
    pub(crate) fn hear(&mut self, from: NodeId, said: Look) {
        let fits = match self.goal {
            Goal::List { .. } => matches!(said, Look::Page { .. }),
            Goal::Owners { .. } => matches!(said, Look::Owners { .. }),
            Goal::Watch(_) => matches!(said, Look::Changes(_)),
            Goal::Put { .. } | Goal::Get { .. } | Goal::Delete => matches!(said, Look::Here { .. }),
        };
        if let Some(look) = self.looks.get_mut(&from).filter(|_| fits) {
            *look = said;
        }
    }

    /// Somebody has not answered, and may have so long since it was asked. Then it looks again after that.
    fn waits(&mut self, now: Time, patience: Span) -> bool {
        let until = self.since + patience;
        // What is deleted for good is known at the first word of it.
        let is_decided = self.best().is_some_and(|best| best.stamp.once && best.stamp.gone);
        let waits = self.is_waiting()
            && now < until
            && !(is_decided && matches!(self.goal, Goal::Put { .. } | Goal::Get { .. }));
        if waits {
            self.wake = until;
        }
        waits
    }

    fn late(&self) -> Outcome<Reply> {
        match &self.step {
            Step::Write(write) if write.has_begun() => {
                Outcome::Unknown(Unknown { why: "not enough nodes said in time that they have it".into() })
            }
            Step::Where(_) | Step::Look if matches!(self.goal, Goal::Get { .. }) => self.not_found(),
            _ => Outcome::Refused(Refused::busy("the nodes that were asked did not answer in time", Span::millis(250))),
        }
    }

    /// Nobody who answered has it. That is no answer while one has not said so that may have it.
    fn not_found(&self) -> Outcome<Reply> {
        let silent = self.silent().count();
        if silent == 0 {
            return Outcome::Done(Reply::Absent);
        }
        let why = format!("{silent} nodes that may have it are away or do not answer, and the others do not have it");
        Outcome::Refused(Refused::busy(why, Span::millis(1000)))
    }
}
