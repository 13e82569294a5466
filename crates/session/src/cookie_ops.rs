//! Operations by cookie (SSM 3.2): a write goes to random live bricks, those with more room more often, and the cookie
//! names the ones that acknowledged; a read asks two of these and takes the first good answer: the cookie's version, or a
//! newer one of the same session.

use std::collections::BTreeMap;

use base::{NodeId, Priority, Refused, Rng, Span, Time};

use super::brick::{Found, Standing, Want, Write};
use super::cookie::{Cookie, CookieError, Unopened};
use super::limits::{BRICKS_ACKED, BRICKS_ASKED, BRICKS_READ, COOKIES_NOTED_EVERY, DEAD_HAS_NOTHING, RETRY_AFTER};
use super::map::Placement;
use super::op::{Action, Reply};
use super::ops::{Leg, LegState, Phase, Running};
use super::peers::Peer;
use super::run::{Next, NotBegun};
use super::table::{Key, Value};
use super::{Call, Session, Version};

/// Set in the namespace's number for keys of cookie mode: they lie elsewhere, so the two ways must not meet.
pub(super) const COOKIE_BIT: u32 = 1 << 31;

pub(super) fn is_cookie_key(key: &Key) -> bool {
    key.namespace & COOKIE_BIT != 0
}

impl Session {
    /// Opens the cookie of an operation, if it has one.
    pub(super) fn open_cookie(&mut self, call: &Call, op: &mut Running, text: Option<&str>) -> Result<(), NotBegun> {
        op.key = Key::new(op.key.namespace | COOKIE_BIT, op.key.bytes.clone());
        let Some(text) = text else { return Ok(()) };
        let namespace = op.namespace.as_deref().and_then(|name| self.namespaces.get(name)).expect("just looked up");
        let cookie = namespace.sealer.open(text, &op.key.bytes, call.wall_ms).map_err(|unopened| match unopened {
            Unopened::Bad(error) => NotBegun::BadCookie(error),
            Unopened::KeyToCome => {
                let why = "this node has not heard of the key that sealed the cookie yet";
                NotBegun::Refused(Refused::busy(why, RETRY_AFTER))
            }
        })?;
        self.clock.pass(cookie.version);
        op.cookie = Some(cookie);
        Ok(())
    }

    /// Counts it, and reports that there are such, now and then. That cookies expire is no news.
    pub(super) fn note_bad_cookie(&mut self, call: &mut Call, error: CookieError) {
        self.figures.bad_cookies[error as usize] += 1;
        let known = self.cookies_noted.unwrap_or((Time::ZERO, 0));
        let rests = self.cookies_noted.is_some_and(|(at, _)| call.now.since(at) < COOKIES_NOTED_EVERY);
        if error == CookieError::Expired || rests {
            return;
        }
        let [truncated, forged, foreign, _] = self.figures.bad_cookies;
        let all = truncated + forged + foreign;
        self.cookies_noted = Some((call.now, all));
        call.warn(format!("{} bad cookies refused, the last: {error}", all - known.1));
    }

    /// Chooses bricks for a write, or takes those of the cookie.
    pub(super) fn place_cookie(&mut self, call: &Call, op: &mut Running) -> Result<(), Refused> {
        let nodes = match (&op.action, &op.cookie) {
            (Action::Put { .. }, Some(cookie)) => self.choose_bricks(call, op.priority, &cookie.bricks.clone())?,
            (_, None) => self.choose_bricks(call, op.priority, &[])?,
            // What is dead has no memory to remove it from.
            (Action::Remove, Some(cookie)) => {
                let live: Vec<_> = cookie.bricks.iter().copied().filter(|node| self.is_live(*node)).collect();
                if live.is_empty() {
                    return Err(Refused::busy("no brick of the cookie is live", RETRY_AFTER));
                }
                live
            }
            (_, Some(cookie)) => cookie.bricks.clone(),
        };
        op.place_at(&nodes);
        Ok(())
    }

    /// Up to three live bricks, at random, those with more room in their windows more often. Of those that hold the
    /// session two stay if they can, so that requests which are under way with an older cookie meet what is newer; the
    /// third is any, so that load spreads also over bricks that come.
    fn choose_bricks(&mut self, call: &Call, priority: Priority, held: &[NodeId]) -> Result<Vec<NodeId>, Refused> {
        let busy = |why: &str| Refused::busy(why, RETRY_AFTER);
        for peer in self.peers.values_mut().filter(|peer| peer.live && !peer.is_usable(call.now, priority)) {
            peer.not_asked();
        }
        let map = self.map.as_ref().ok_or_else(|| busy("this node does not know the bricks yet"))?;
        let room = |node: &NodeId| {
            if *node == self.me {
                return Some(flow::window::WINDOW_FIRST as u64);
            }
            self.peers.get(node).filter(|peer| peer.is_usable(call.now, priority)).map(Peer::room)
        };
        let mut rooms: BTreeMap<NodeId, u64> =
            map.members.iter().filter_map(|node| Some((*node, room(node)?))).collect();
        if rooms.len() < Placement::of(&map.members[..map.members.len().min(BRICKS_ASKED)]).acks() {
            return Err(busy("too few bricks are live and have room"));
        }
        let is_slow = |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.slow);
        let mut staying: BTreeMap<NodeId, u64> = rooms
            .iter()
            .filter(|(node, _)| held.contains(node) && !is_slow(node))
            .map(|(n, room)| (*n, *room))
            .collect();
        let mut chosen = Vec::new();
        while chosen.len() < BRICKS_ASKED && !rooms.is_empty() {
            let from = if chosen.len() < BRICKS_ACKED && !staying.is_empty() { &staying } else { &rooms };
            let node = pick(&mut self.rng, from);
            staying.remove(&node);
            rooms.remove(&node);
            chosen.push(node);
        }
        Ok(chosen)
    }

    pub(super) fn step_cookie_read(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let cookie = op.cookie.clone().expect("checked when it was asked");
        // The cookie's own version; one that is newer if a brick has one, as another request of this session may have
        // written meanwhile. Nothing older than what is known to be there.
        let least = op.met.map_or(cookie.version, |met| met.max(cookie.version));
        loop {
            let is_good = |value: &Value, version: Version| {
                version >= least
                    && if version == cookie.version { value.sum == cookie.sum } else { value.sum.matches(&value.bytes) }
            };
            let answered = || op.legs.iter().filter(|leg| leg.state == LegState::Answered).map(|leg| &leg.found);
            let good = answered().find(|found| {
                found.value.as_ref().zip(found.version).is_some_and(|(value, version)| is_good(value, version))
            });
            if let Some(good) = good {
                let found = good.clone();
                let (value, version) = found.value.clone().zip(found.version).expect("it is good");
                // A brick that the cookie names and that has nothing restarted, or found its copy damaged.
                let empty = |leg: &Leg| leg.state == LegState::Answered && leg.found.version.is_none();
                if op.legs.iter().any(empty) {
                    self.repair(call, op, &found);
                }
                if matches!(op.action, Action::Get) {
                    let lease_left = found.lease_left;
                    let (kind, value) = (value.kind, value.bytes);
                    self.done(call, op, Reply::Value { value, kind, version, lease_left });
                    return Next::Over;
                }
                return self.touch_cookie(call, number, op, found, value, version);
            }
            if answered().any(|found| !found.live && found.version.is_some_and(|version| version >= least)) {
                self.done(call, op, Reply::Absent);
                return Next::Over;
            }
            let under_way = op.legs.iter().filter(|leg| leg.state == LegState::Waiting).count();
            let me = self.me;
            let slow = |leg: &Leg| self.peers.get(&leg.node).is_some_and(|peer| peer.slow);
            let idle = (0..op.legs.len()).filter(|at| op.legs[*at].state == LegState::Idle);
            if under_way < BRICKS_READ
                && let Some(at) = idle.min_by_key(|at| (op.legs[*at].node != me, slow(&op.legs[*at])))
            {
                self.send_read(call, number, op, at, Want::Newer(Version::default()));
                continue;
            }
            if under_way > 0 {
                return Next::Wait;
            }
            if op.legs.iter().any(|leg| leg.state == LegState::TimedOut) && self.ask_again(call, op) {
                continue;
            }
            // Who does not answer in time may have it (seed 447506634818: a user's session was called lost).
            if op.legs.iter().any(|leg| matches!(leg.state, LegState::NoRoom | LegState::TimedOut)) {
                return self.give_up(call, op, super::write::OVERLOADED);
            }
            // Who has not been seen for a while may only be cut off, and then has what it had for as long as bricks keep it; and
            // who was dead, as far as is known here, when the cookie was made has lived since (seed 781220269024). In a map that
            // can do without it the root group says who is gone, which sees more than this node.
            let cookie_age = Span::millis(call.wall_ms.saturating_sub(cookie.version.ms));
            let map = self.map.as_ref().filter(|map| map.can_drop());
            let away = |leg: &Leg| {
                let since = self.peers.get(&leg.node).map(|peer| call.now.since(peer.since));
                since.is_none_or(|dead_for| dead_for.min(cookie_age) < DEAD_HAS_NOTHING)
                    || map.is_some_and(|map| map.members.contains(&leg.node))
            };
            let is_dead = |leg: &Leg| leg.state == LegState::Dead;
            // Who is cut off from most cannot tell what is dead from what is on the other side.
            if self.minority_since.is_some() && op.legs.iter().any(is_dead) {
                return self.wait_or_give_up(call, number, op, "this node is cut off from most bricks");
            }
            if op.legs.iter().any(|leg| is_dead(leg) && away(leg)) {
                return self.wait_or_give_up(call, number, op, "no brick of the cookie that is live has the value");
            }
            self.done(call, op, Reply::Lost);
            return Next::Over;
        }
    }

    /// The same version with a new lease, at three live bricks, under a new cookie. It makes no version: an old value
    /// must not overrule what another request of the session puts meanwhile.
    fn touch_cookie(
        &mut self,
        call: &mut Call,
        number: u64,
        op: &mut Running,
        found: Found,
        value: Value,
        version: Version,
    ) -> Next {
        let held: Vec<NodeId> = op.legs.iter().map(|leg| leg.node).collect();
        op.base = Some(found);
        let nodes = match self.choose_bricks(call, op.priority, &held) {
            Ok(nodes) => nodes,
            Err(refused) => return self.give_up(call, op, &refused.why),
        };
        self.let_go(op);
        op.place_at(&nodes);
        let lease = op.lease_of_action();
        let keep = lease;
        op.write = Some(Write {
            version,
            value: Some(value),
            lease,
            keep,
            guard: None,
            repair: false,
            extend: true,
            standing: Standing::Plain,
            bricks: Placement::default(),
        });
        self.next_round(op, Phase::Write);
        self.step_write(call, number, op)
    }

    pub(super) fn cookie_reply(&mut self, call: &Call, op: &Running, write: &Write) -> Reply {
        let Some(value) = &write.value else { return Reply::Removed(op.had) };
        // Those that will have it in a moment as well: a removal must reach them.
        let stored = op.legs.iter().filter(|leg| leg.has_stored());
        let under_way = op.legs.iter().filter(|leg| leg.state == LegState::Waiting);
        let bricks = stored.chain(under_way).map(|leg| leg.node).collect();
        let lease_end_ms = call.wall_ms + write.lease.as_millis();
        let cookie = Cookie { bricks, version: write.version, lease_end_ms, sum: value.sum };
        let namespace = op.namespace.as_deref().and_then(|name| self.namespaces.get(name));
        let text = namespace.map(|namespace| namespace.sealer.seal(&cookie, &op.key.bytes, call.wall_ms));
        Reply::Stored { version: write.version, old: None, cookie: text }
    }
}

/// One of these, by the room they have. There is at least one.
fn pick(rng: &mut Rng, rooms: &BTreeMap<NodeId, u64>) -> NodeId {
    let mut at = rng.below(rooms.values().sum());
    let pick = rooms.iter().find(|(_, room)| {
        let found = at < **room;
        at = at.saturating_sub(**room);
        found
    });
    *pick.expect("the number is below the sum").0
}

impl Running {
    fn place_at(&mut self, nodes: &[NodeId]) {
        self.places = [Some(Placement::of(nodes)), None];
        self.legs = nodes.iter().copied().map(Leg::new).collect();
    }
}
