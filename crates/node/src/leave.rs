//! A node that is asked to restart, or to leave for good; what it waits for is decided in `departure.rs`. Any node may
//! be asked, and passes the wish on as a fact. The one that is meant says that it is leaving; then the manager moves
//! its clones, and others lead the groups that it leads. If it leaves for good, the brick map and all groups go on
//! without it. When all that is done, all other bricks are settled, and the groups that it comes back to are whole, its
//! doors are told to close, and the process ends when they have. A restart is not needed for safety: a node may be
//! killed at any moment. It only makes it unnoticed. Who leaves for good may have the only copy of something, or one of
//! two: it does not end before others have it.

use std::collections::BTreeSet;

use base::{Boot, GroupId, NodeId, Now, Outcome, Refused};
use class::{Leaver, Moment, Peer};
use cluster::Card;
use cluster::root::{self, Parting};
use serde::{Deserialize, Serialize};
use state::NamespaceSpec;
use state::linear::{Placed, place};

use crate::departure::{Departure, Leaving, Next, Ties, Wish};
use crate::facts::{self, BrickReport};
use crate::limits::HANDED_ON_AGAIN;
use crate::node::{Node, Out};
use crate::view::NodeState;

/// The fact [`facts::LEAVING`] of the node that leaves, in this life.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    boot: Boot,
    how: Leaving,
    #[serde(default)]
    force: bool,
    /// What for, in words.
    #[serde(default)]
    pub waits: Option<String>,
}

impl Node {
    /// An operator's wish, asked of this node about any.
    pub(crate) fn ask_leave(&mut self, now: Now, name: &str, how: Leaving, force: bool, out: &mut Out) -> Outcome<()> {
        let Some(card) = self.live_cards().find(|card| card.name == name).cloned() else {
            let live: Vec<&str> = self.live_cards().map(|card| card.name.as_str()).collect();
            let why = format!("no live node is named \"{name}\"; there are: {}", live.join(", "));
            return Outcome::Refused(Refused::wrong(why));
        };
        let no_room = || self.no_room(card.id).filter(|_| how == Leaving::Remove);
        let stays = self.needed(Leaver { who: card.id, how, when: Moment::Wished });
        if let Some(why) = stays.or_else(no_room).filter(|_| !force) {
            return Outcome::Refused(Refused::busy(why, HANDED_ON_AGAIN));
        }
        if self.wish.is_some_and(|(wish, _)| wish.node != card.id) {
            return Outcome::Refused(Refused::busy("another node's wish is still being passed on", HANDED_ON_AGAIN));
        }
        let wish = Wish { node: card.id, boot: card.boot, how, force };
        if card.id == self.me() {
            self.begin_leaving(now, wish, out);
        } else {
            self.wish = Some((wish, now.mono));
            self.put_fact(now, facts::WISH, facts::encode(&wish), out);
        }
        Outcome::Done(())
    }

    pub(crate) fn wished(&mut self, now: Now, wish: Wish, out: &mut Out) {
        if wish.node == self.me() && wish.boot == self.card.boot {
            self.begin_leaving(now, wish, out);
        }
    }

    fn begin_leaving(&mut self, now: Now, wish: Wish, out: &mut Out) {
        let Wish { how, force, .. } = wish;
        if let Some(departure) = &mut self.departure {
            departure.wished_again(how, force);
            return self.say_leaving(now, out);
        }
        self.departure = Some(Departure::begun(how, force, now.mono));
        self.say_leaving(now, out);
        let name = self.card.name.clone();
        let text = match how {
            Leaving::Restart => "was asked to restart",
            Leaving::Remove => "was asked to leave for good",
        };
        self.happened(now, "leaving", &name, text);
        self.tell_parting(now, out);
        self.cluster_changed(now, out);
    }

    /// How a live node leaves, if it does.
    pub(crate) fn leaving(&self, id: NodeId) -> Option<Leaving> {
        self.left(id).map(|left| left.how)
    }

    /// What a live node says of its leaving, if it leaves.
    pub(crate) fn left(&self, id: NodeId) -> Option<Left> {
        if id == self.me() {
            let Departure { how, force, waits, .. } = self.departure.as_ref()?;
            return Some(Left { boot: self.card.boot, how: *how, force: *force, waits: waits.clone() });
        }
        let left: Left = self.beacons.get(id, facts::LEAVING).and_then(|bytes| facts::decode(bytes))?;
        // What a former life said does not hold for this one.
        let card = self.live_cards().find(|card| card.id == id)?;
        (card.boot == left.boot).then_some(left)
    }

    /// Whether a brick has followed the map to where it is now.
    pub(crate) fn is_settled(&self, id: NodeId) -> bool {
        let Some(map) = self.classes.session.map() else { return false };
        let report = if id == self.me() {
            Some(self.classes.session.brick_report())
        } else {
            self.beacons.get(id, facts::BRICK).and_then(|bytes| facts::decode::<BrickReport>(bytes))
        };
        report.is_some_and(|report| report.filled >= map.epoch)
    }

    /// Why a node cannot end now, if it is still needed.
    pub(crate) fn hinders(&self, who: NodeId, how: Leaving) -> Option<String> {
        self.needed(Leaver { who, how, when: Moment::Ends })
    }

    /// Why a node is needed by a class.
    fn needed(&self, leaver: Leaver) -> Option<String> {
        let known = self.seen.values().map(|seen| &seen.card).chain(self.live_cards());
        let peer = |card: &Card| {
            let is_there = self.live_cards().any(|live| live.id == card.id);
            let leaves = self.leaving(card.id);
            let peer = Peer {
                name: self.name_of(card.id),
                is_live: is_there && self.seen.get(&card.id).is_none_or(|seen| seen.state == NodeState::Live),
                leaves,
                is_usable: is_there && leaves != Some(Leaving::Remove) && self.report_of(card.id).disk.is_none(),
            };
            (card.id, peer)
        };
        let (peers, namespaces) = (known.map(peer).collect(), &*self.namespaces);
        let facts = |id: NodeId, key: &str| self.beacons.get(id, key);
        let view = state::View { me: self.me(), peers: &peers, namespaces, facts: &facts };
        self.classes.needs(&view, leaver)
    }

    /// At each tick: lets a wish go that was heard, and takes this node's own leaving on.
    pub(crate) fn keep_leaving(&mut self, now: Now, out: &mut Out) {
        self.tell_parting(now, out);
        if let Some((wish, since)) = self.wish {
            let lives = self.live_cards().any(|card| card.id == wish.node && card.boot == wish.boot);
            let heard = self.left(wish.node).map(|left| left.force);
            if wish.is_over(lives, heard, now.mono.since(since)) {
                self.wish = None;
                self.beacons_in(now, cluster::beacon::Input::Remove { key: facts::WISH.into() }, out);
            }
        }
        let Some(departure) = self.departure.as_ref().filter(|departure| !departure.ready) else { return };
        let how = departure.how;
        let ties = Ties {
            in_map: self.classes.session.map().is_some_and(|map| map.is_brick(self.me())),
            needed: self.hinders(self.me(), how),
            counted_on: self.counted_on(),
            not_whole: self.not_whole(),
            is_alone: self.live_cards().count() < 2,
            clones: !self.group.node_clones().clones.is_empty(),
            runs: !self.runs_here().is_empty(),
            leads: self.root.leads_for_others() || self.classes.linear.leads_for_others() > 0,
        };
        let name = self.card.name.clone();
        match departure.next(now.mono, ties) {
            Next::Waits(why) => return self.wait_for(now, why, out),
            Next::Stays(why) => {
                self.departure = None;
                self.beacons_in(now, cluster::beacon::Input::Remove { key: facts::LEAVING.into() }, out);
                self.happened(now, "warning", &name, format!("stays, as it is still needed: {why}"));
                self.tell_parting(now, out);
                return self.cluster_changed(now, out);
            }
            Next::Goes(Some(why)) => {
                self.happened(now, "warning", &name, format!("leaves although it is still needed: {why}"));
            }
            Next::Goes(None) => (),
        }
        self.departure.as_mut().expect("just looked at").ready = true;
        self.happened(now, "leaving", &name, "closes its doors");
        self.routes_stale = true;
    }

    /// All can see why it has not left yet.
    fn wait_for(&mut self, now: Now, why: String, out: &mut Out) {
        let Some(departure) = &mut self.departure else { return };
        departure.waits = Some(why);
        self.say_leaving(now, out);
    }

    fn say_leaving(&mut self, now: Now, out: &mut Out) {
        if let Some(left) = self.left(self.me()) {
            // Putting what stands changes nothing.
            self.put_fact(now, facts::LEAVING, facts::encode(&left), out);
        }
    }

    /// Lets all groups know who should not lead, and who should not vote.
    pub(crate) fn tell_parting(&mut self, now: Now, out: &mut Out) {
        let mut parting = Parting { aside: self.slow_disks(), ..Parting::default() };
        for card in self.live_cards() {
            let left = self.left(card.id);
            if left.is_some() || self.off.node(&card.name) {
                parting.aside.insert(card.id);
            }
            if let Some(Left { force, .. }) = left.filter(|left| left.how == Leaving::Remove) {
                parting.leaving.insert(card.id, force);
            }
        }
        let gone = |id: &&NodeId| self.admission.is_without_heir(**id);
        parting.gone = self.root.members().iter().filter(gone).copied().collect();
        if parting != self.parting {
            self.parting = parting.clone();
            self.classes_in(now, out, |classes, wants| {
                classes.aside(now, &parting.aside, wants);
                classes.leaving(now, &parting.leaving, wants);
            });
            self.root_in(now, root::Input::Parting(parting), out);
            self.plans.look_again();
        }
    }

    /// Who may leave only when others have what it has, in which groups: what cannot be, said before it is tried.
    fn no_room(&self, who: NodeId) -> Option<String> {
        let is_usable = |card: &&Card| {
            let leaves = self.leaving(card.id) == Some(Leaving::Remove);
            card.id != who && !leaves && self.report_of(card.id).disk.is_none()
        };
        let usable = self.live_cards().filter(is_usable).count();
        let lacks = |placed: &Placed| {
            let wanted = self.namespaces.get(&placed.namespace).and_then(NamespaceSpec::groups);
            wanted.is_some_and(|wanted| place::would_lack(placed, usable, wanted) > 0)
        };
        let its = |placed: &&Placed| placed.members.contains(&who);
        let placed = self.placed.values().filter(its).find(|placed| lacks(placed))?;
        let (namespace, copies) = (&placed.namespace, placed.members.len());
        Some(match usable {
            0 => format!(
                "nobody else could have namespace {namespace}, and it would be lost; let another node join first"
            ),
            _ => format!(
                "namespace {namespace} has {copies} copies, and {usable} other live nodes are not enough for that; let another node join first, or declare fewer replicas"
            ),
        })
    }

    /// What counts on this node, as long as anything does.
    fn counted_on(&self) -> Option<String> {
        let me = self.me();
        let is_in = |placed: &Placed| placed.members.contains(&me) || placed.founders.contains(&me);
        let placed = self.placed.values().filter(|placed| is_in(placed)).map(|placed| placed.id);
        let shards: BTreeSet<GroupId> = placed.chain(self.classes.linear.groups()).collect();
        match shards.len() {
            0 if self.root.counts_on(me) => Some("the root group still counts on its vote".into()),
            0 => self.classes.counted_on(),
            1 => Some("others have yet to take over 1 shard".into()),
            n => Some(format!("others have yet to take over {n} shards")),
        }
    }

    /// A group that would stop, or nearly, if this node's member were away for a moment.
    fn not_whole(&self) -> Option<String> {
        let version = self.root.declared().version;
        let its = |placed: &&Placed| placed.members.contains(&self.me()) && placed.members.len() > 1;
        for (name, placed) in self.placed.iter().filter(|(_, placed)| its(placed)) {
            let Some(leader) = self.classes.linear.leader_of(placed.id) else {
                return Some(format!("shard {name} has no leader"));
            };
            let report = &self.report_of(leader).classes.linear;
            if report.whole.0 < version || report.unwhole.contains(&placed.id) {
                return Some(format!("not all members of shard {name} are there and have all"));
            }
        }
        None
    }
}
