//! A node that is asked to restart, or to leave for good. Any node may be asked, and passes the wish on as a fact. The one
//! that is meant says that it is leaving; then the manager moves its clones, and if it leaves for good the brick map goes
//! on without it. When both is done, and all other bricks are settled, its doors are told to close, and the process ends
//! when they have. Nothing here is needed for safety: a node may be killed at any moment. It only makes it unnoticed.

use base::{Boot, NodeId, Now, Outcome, Refused, Span, Time};
use serde::{Deserialize, Serialize};
use state::session::limits::{BRICKS_ASKED, MEMBERS_MIN};

use crate::facts::{self, BrickReport};
use crate::limits::{LEAVE_CLONES_MAX, LEAVE_TIME_MAX, REMOVE_TIME_MAX, WISH_KEPT};
use crate::node::{Node, Out};
use crate::view::NodeState;

/// How a node leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// It comes back at once: whoever watches over the process starts it again.
    Restart,
    /// It does not come back.
    Remove,
}

/// What an operator wants of one life of one node: the fact [`facts::WISH`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    node: NodeId,
    boot: Boot,
    how: Leaving,
    force: bool,
}

/// The fact [`facts::LEAVING`] of the node that leaves, in this life.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    boot: Boot,
    how: Leaving,
}

pub(crate) struct Departure {
    pub how: Leaving,
    force: bool,
    since: Time,
    /// The doors may close.
    pub ready: bool,
}

impl Node {
    /// An operator's wish, asked of this node about any.
    pub(crate) fn ask_leave(&mut self, now: Now, name: &str, how: Leaving, force: bool, out: &mut Out) -> Outcome<()> {
        let Some(card) = self.live_cards().find(|card| card.name == name).cloned() else {
            let live: Vec<&str> = self.live_cards().map(|card| card.name.as_str()).collect();
            let why = format!("no live node is named \"{name}\"; there are: {}", live.join(", "));
            return Outcome::Refused(Refused::wrong(why));
        };
        if let Some(why) = self.hinders(card.id, how).filter(|_| !force) {
            return Outcome::Refused(Refused::busy(why, Span::secs(1)));
        }
        if self.wish.is_some_and(|(wish, _)| wish.node != card.id) {
            return Outcome::Refused(Refused::busy("another node's wish is still being passed on", Span::secs(1)));
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
        if self.departure.is_some() {
            return;
        }
        let Wish { how, force, .. } = wish;
        self.departure = Some(Departure { how, force, since: now.mono, ready: false });
        self.put_fact(now, facts::LEAVING, facts::encode(&Left { boot: self.card.boot, how }), out);
        let name = self.card.name.clone();
        let text = match how {
            Leaving::Restart => "was asked to restart",
            Leaving::Remove => "was asked to leave for good",
        };
        self.happened(now, "leaving", &name, text);
        self.cluster_changed(now, out);
    }

    /// How a live node leaves, if it does.
    pub(crate) fn leaving(&self, id: NodeId) -> Option<Leaving> {
        if id == self.me() {
            return self.departure.as_ref().map(|departure| departure.how);
        }
        let left: Left = self.beacons.get(id, facts::LEAVING).and_then(|bytes| facts::decode(bytes))?;
        // What a former life said does not hold for this one.
        let card = self.live_cards().find(|card| card.id == id)?;
        (card.boot == left.boot).then_some(left.how)
    }

    /// Whether a brick has followed the map to where it is now.
    pub(crate) fn is_settled(&self, id: NodeId) -> bool {
        let Some(map) = self.session.map() else { return false };
        let report = if id == self.me() {
            Some(BrickReport { seen: self.session.map_seen(), filled: self.session.filled() })
        } else {
            self.beacons.get(id, facts::BRICK).and_then(|bytes| facts::decode::<BrickReport>(bytes))
        };
        report.is_some_and(|report| report.filled >= map.epoch)
    }

    /// Why this node's memory is needed now, if it is.
    fn hinders(&self, who: NodeId, how: Leaving) -> Option<String> {
        let Some(map) = self.session.map() else { return Some("the brick map is not known yet".into()) };
        if !map.is_brick(who) {
            return None;
        }
        let count = map.members.len();
        if how == Leaving::Remove && count <= MEMBERS_MIN && map.members.contains(&who) {
            return Some(format!("{count} bricks are the fewest that keep three copies; let another node join first"));
        }
        if count < BRICKS_ASKED {
            return Some(format!("with {count} of {BRICKS_ASKED} bricks, sessions would be refused or lost meanwhile"));
        }
        if map.old.is_some() && how == Leaving::Restart {
            return Some("bricks are changing places".into());
        }
        for id in map.everyone().into_iter().filter(|id| *id != who) {
            let name = self.name_of(id);
            let is_live = self.live_cards().any(|card| card.id == id)
                && self.seen.get(&id).is_none_or(|seen| seen.state == NodeState::Live);
            // Of two that leave at the same time the first goes first.
            let goes_first = self.leaving(id).is_some() && id < who;
            match (is_live, goes_first, self.is_settled(id)) {
                (false, ..) => return Some(format!("{name} is not live: its copies are missing already")),
                (_, true, _) => return Some(format!("{name} is leaving")),
                (.., false) => return Some(format!("the brick of {name} is not settled yet")),
                (true, false, true) => (),
            }
        }
        None
    }

    /// At each tick: lets a wish go that was heard, and takes this node's own leaving on.
    pub(crate) fn keep_leaving(&mut self, now: Now, out: &mut Out) {
        if let Some((wish, since)) = self.wish {
            let lives = self.live_cards().any(|card| card.id == wish.node && card.boot == wish.boot);
            if !lives || self.leaving(wish.node).is_some() || now.mono.since(since) > WISH_KEPT {
                self.wish = None;
                self.beacons_in(now, cluster::beacon::Input::Remove { key: facts::WISH.into() }, out);
            }
        }
        let Some(departure) = self.departure.as_ref().filter(|departure| !departure.ready) else { return };
        let (how, force, waited) = (departure.how, departure.force, now.mono.since(departure.since));
        let clones_left = !self.group.node_clones().clones.is_empty() && self.live_cards().count() > 1;
        let in_map = self.session.map().is_some_and(|map| map.is_brick(self.me()));
        let needed = match how {
            // Once it is out of the map nobody counts on it.
            Leaving::Remove if !in_map => None,
            Leaving::Remove => Some("the brick map still counts on it".to_owned()),
            Leaving::Restart => self.hinders(self.me(), how),
        };
        let time_max = if how == Leaving::Remove { REMOVE_TIME_MAX } else { LEAVE_TIME_MAX };
        match needed {
            None if !clones_left || waited > LEAVE_CLONES_MAX => (),
            None => return,
            Some(_) if force && (!clones_left || waited > LEAVE_CLONES_MAX) => (),
            Some(why) if waited > time_max => {
                self.departure = None;
                self.beacons_in(now, cluster::beacon::Input::Remove { key: facts::LEAVING.into() }, out);
                let name = self.card.name.clone();
                self.happened(now, "warning", &name, format!("stays, as it is still needed: {why}"));
                self.cluster_changed(now, out);
                return;
            }
            Some(_) => return,
        }
        self.departure.as_mut().expect("just looked at").ready = true;
        let name = self.card.name.clone();
        self.happened(now, "leaving", &name, "closes its doors");
        self.routes_stale = true;
    }
}
