//! Who has whose objects: what this node asks managers, what it tells them, and what it says as one (`map`, `directory`, `feed`).

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Priority, Span};
use bytes::Bytes;

use crate::asker::{Goal, Look, Running, Step};
use crate::directory::{Asked, Known};
use crate::feed::{Feed, Say};
use crate::limits::{LIST_WHERE_FOR, LOOK_FOR, OWNER_BYTES_MAX};
use crate::map::{Map, bucket_of};
use crate::wire::{KnownMessage, TenureMessage, ToldMessage, WantMessage, What, WhereMessage};
use crate::{Bug, Call, DIRECTORIES_LEVEL, Object, Writes};

/// As an asker.
impl Object {
    /// The manager that is asked first, if there is one. A deletion goes to all nodes anyhow, and owners are looked for everywhere.
    pub(crate) fn manager_for(&self, op: &Running) -> Option<NodeId> {
        let asks = matches!(op.goal, Goal::Put { .. } | Goal::Get { .. } | Goal::List { .. });
        self.map.manager(bucket_of(op.key.ns, &op.key.owner)).filter(|_| asks)
    }

    pub(crate) fn ask_where(&mut self, call: &mut Call, id: u64, op: &mut Running, manager: NodeId) {
        op.step = Step::Where(manager);
        let sure = matches!(op.goal, Goal::List { .. });
        let asked = What::Where(WhereMessage { ns: op.key.ns, owner: op.key.owner.clone(), sure });
        self.send(call, manager, id, op.priority, asked, Bytes::new());
        op.wake = call.now + op.where_for();
    }

    /// The manager has time to answer. If it has had enough, all nodes are asked.
    pub(crate) fn waits_for_where(&mut self, call: &mut Call, id: u64, op: &mut Running) -> bool {
        let manager = match &mut op.step {
            Step::Where(manager) => *manager,
            Step::Known(known) => {
                let known = known.take();
                self.look(call, id, op, known);
                return false;
            }
            _ => return false,
        };
        let (until, lives) = (op.since + op.where_for(), manager == self.me || self.peers.is_live(manager));
        let waits = lives && call.now < until;
        match waits {
            true => op.wake = until,
            false => self.look(call, id, op, None),
        }
        waits
    }

    pub(crate) fn known(&mut self, call: &mut Call, from: NodeId, id: u64, known: KnownMessage) -> Option<()> {
        self.with(call, id, |_, op| {
            if matches!(op.step, Step::Where(manager) if manager == from) {
                op.step = Step::Known(known.known());
            }
            None
        });
        Some(())
    }

    /// Asks those that have objects of the owner, and this node itself, which knows of deletions as all nodes do. Of a list all but those
    /// that have nothing.
    fn look(&mut self, call: &mut Call, id: u64, op: &mut Running, known: Option<Known>) {
        op.step = Step::Look;
        // A write that follows a deletion stands above it by what somebody said of that.
        let asks_all = |known: &Known| {
            matches!(op.goal, Goal::Put { .. }) && op.spec.writes == Writes::Newest && known.has.is_empty()
        };
        let Some(known) = known.filter(|known| !asks_all(known)) else {
            self.figures.asked_all += 1;
            return self.ask_rest(call, id, op);
        };
        let (is_list, me) = (matches!(op.goal, Goal::List { .. }), self.me);
        let mut later = Vec::new();
        for (node, look) in op.looks.iter_mut().filter(|(_, look)| matches!(look, Look::Unasked)) {
            if is_list && known.nothing.contains(node) {
                *look = Look::Nothing;
            } else if !is_list && *node != me && !known.has.contains(node) {
                later.push(*node);
            }
        }
        let later: BTreeMap<NodeId, Look> = later.into_iter().filter_map(|node| op.looks.remove_entry(&node)).collect();
        self.ask_rest(call, id, op);
        op.looks.extend(later);
    }
}

impl Running {
    fn where_for(&self) -> Span {
        if matches!(self.goal, Goal::List { .. }) { LIST_WHERE_FOR } else { LOOK_FOR }
    }
}

/// As a manager.
impl Object {
    /// Who lives has changed, or what is declared: buckets move.
    pub(crate) fn map_anew(&mut self, call: &mut Call) {
        let all = self.peers.nodes();
        let is_on = self.level >= DIRECTORIES_LEVEL
            && !self.spaces.is_empty()
            && all.len() >= self.settings.directories_from
            && all.contains(&self.me);
        let live = |node: &NodeId| *node == self.me || self.peers.is_live(*node);
        let nodes: BTreeSet<NodeId> = all.iter().copied().filter(|node| is_on && live(node)).collect();
        if nodes == *self.map.nodes() {
            return;
        }
        self.map = Map::of(nodes);
        let nodes = self.map.nodes();
        self.table.moved = (!nodes.is_empty()).then(|| self.table.moved.take().unwrap_or_default());
        self.feeds.retain(|manager, _| nodes.contains(manager));
        self.directory.listen(nodes);
        self.directory.manage(&self.map.buckets_of(self.me));
        self.want_all(call);
        self.end_round(call);
    }

    /// A node has another life: what its former one told counts no more.
    pub(crate) fn forget_teller(&mut self, peer: NodeId) {
        self.directory.lose(peer);
        self.feeds.remove(&peer);
        self.map = Map::default();
    }

    fn want_all(&mut self, call: &mut Call) {
        for node in self.map.nodes().iter().copied().collect::<Vec<_>>() {
            self.want(call, node);
        }
    }

    /// Has a node tell what it has not told.
    fn want(&mut self, call: &mut Call, node: NodeId) {
        if let Some(wanted) = self.directory.wanted(node) {
            let want = What::Want(WantMessage::from(wanted));
            self.send(call, node, 0, Priority::NORMAL, want, Bytes::new());
        }
    }

    pub(crate) fn told(&mut self, call: &mut Call, from: NodeId, told: ToldMessage) -> Option<()> {
        let told = told.told()?;
        let of = TenureMessage::of(told.tenure, told.seq, 0);
        if self.directory.told(from, told) {
            self.send(call, from, 0, Priority::NORMAL, What::Heard(of), Bytes::new());
            self.end_round(call);
        }
        Some(())
    }

    pub(crate) fn where_is(&mut self, call: &mut Call, from: NodeId, id: u64, asked: WhereMessage) -> Option<()> {
        let WhereMessage { ns, owner, sure } = asked;
        if !(1..=OWNER_BYTES_MAX).contains(&owner.len()) {
            return None;
        }
        let known = self.directory.nodes_of(ns, &owner).map(|has| Known { has, nothing: BTreeSet::new() });
        if sure && known.is_some() {
            let owner = Bytes::copy_from_slice(&owner);
            if self.directory.ask(Asked { from, id, ns, owner }) {
                self.begin_round(call);
                return Some(());
            }
        }
        let known = What::Known(known.filter(|_| !sure).into());
        self.send(call, from, id, Priority::NORMAL, known, Bytes::new());
        Some(())
    }

    fn begin_round(&mut self, call: &mut Call) {
        let Some((round, nodes)) = self.directory.begin(call.now) else { return };
        for (node, tenure) in nodes {
            let confirm = What::Confirm(TenureMessage::of(tenure, 0, round));
            self.send(call, node, 0, Priority::NORMAL, confirm, Bytes::new());
        }
    }

    fn end_round(&mut self, call: &mut Call) {
        for (asked, known) in self.directory.end() {
            self.send(call, asked.from, asked.id, Priority::NORMAL, What::Known(known.into()), Bytes::new());
        }
        self.begin_round(call);
    }

    pub(crate) fn is_sure(&mut self, call: &mut Call, from: NodeId, of: TenureMessage) -> Option<()> {
        if of.life > 0 {
            self.directory.confirmed(from, of.tenure(), of.seq, of.round);
        } else if !self.has_bug(Bug::Tenured) && self.directory.is_unknown_to(from) {
            self.want(call, from);
        }
        self.end_round(call);
        Some(())
    }

    pub(crate) fn tend_directory(&mut self, call: &mut Call) {
        self.directory.tend();
        self.end_round(call);
        self.want_all(call);
        for (manager, told) in
            self.feeds.iter().filter_map(|(node, feed)| Some((*node, feed.again()?))).collect::<Vec<_>>()
        {
            self.send(call, manager, 0, Priority::LOWEST, What::Told((&told).into()), Bytes::new());
        }
    }
}

/// As one that has objects.
impl Object {
    pub(crate) fn wants(&mut self, from: NodeId, want: WantMessage) -> Option<()> {
        let wanted = want.wanted()?;
        // One that this node does not take for a manager asks again.
        if self.map.nodes().contains(&from) {
            let feed = self.feeds.entry(from).or_default();
            feed.want(wanted);
            if self.bug == Some(Bug::Rescans) {
                feed.scan_all();
            }
            self.has_to_tell = true;
        }
        Some(())
    }

    pub(crate) fn heard(&mut self, from: NodeId, of: TenureMessage) -> Option<()> {
        if let Some(feed) = self.feeds.get_mut(&from) {
            feed.heard(of.tenure(), of.seq);
            self.has_to_tell = true;
        }
        Some(())
    }

    pub(crate) fn confirm(&mut self, call: &mut Call, from: NodeId, of: TenureMessage) -> Option<()> {
        match self.feeds.get_mut(&from).filter(|feed| feed.is_under(of.tenure())) {
            Some(feed) => {
                feed.confirm(of.round);
                self.has_to_tell = true;
            }
            None => self.say_unknown(call, from),
        }
        Some(())
    }

    /// A manager may count on being told by this node, which knows of nothing: one of the two has come back.
    pub(crate) fn say_unknown(&mut self, call: &mut Call, manager: NodeId) {
        if self.map.nodes().contains(&manager) {
            let nothing = What::Sure(TenureMessage::default());
            self.send(call, manager, 0, Priority::NORMAL, nothing, Bytes::new());
        }
    }

    /// Says what there is to say, of what has changed in this turn, too.
    pub(crate) fn tell_managers(&mut self, call: &mut Call) {
        self.begin_round(call);
        let moved = self.table.moved.as_mut().map(std::mem::take).unwrap_or_default();
        if !std::mem::take(&mut self.has_to_tell) && moved.is_empty() {
            return;
        }
        let mut dropped = Vec::new();
        for (manager, feed) in &mut self.feeds {
            if !moved.iter().all(|(ns, owner)| feed.change(*ns, owner)) {
                dropped.push(*manager);
            }
        }
        for manager in dropped {
            self.feeds.remove(&manager);
            self.say_unknown(call, manager);
        }
        let next = |(manager, feed): (&NodeId, &mut Feed)| Some((*manager, feed.next(&self.table)?));
        for (manager, say) in self.feeds.iter_mut().filter_map(next).collect::<Vec<_>>() {
            if let Say::Told(told) = &say {
                self.figures.named += told.items.len() as u64;
            }
            let what = match say {
                Say::Told(told) => What::Told((&told).into()),
                Say::Sure { tenure, seq, round } => What::Sure(TenureMessage::of(tenure, seq, round)),
            };
            self.send(call, manager, 0, Priority::NORMAL, what, Bytes::new());
        }
    }
}
