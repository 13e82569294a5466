//! The membership machine; the story is in `mod.rs`. It owns foca and tells it what links say; foca's list is the one
//! truth on who lives, and `reconcile` turns its changes into births, deaths and suspicion.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base::{LinkEnd, NodeId, Now, Rng, Span, Time};
use bytes::Bytes;
use foca::{Config, Foca, Member, NoCustomBroadcast, PeriodicParams, State, Timer};

use super::judge::Met;
use super::limits::*;
use super::links::{Dialler, Seed};
use super::peer::{Peer, Suspicion};
use super::who::{FocaRng, Who, Wishes};
use super::wire::{self, Head, Wire};
use super::{Input, Output, Standing};
use crate::{Admission, Card};

/// Who is here, as this node knows it.
pub struct Membership {
    pub(super) me: Arc<Card>,
    pub(super) foca: Foca<Who, Wire, FocaRng, NoCustomBroadcast>,
    pub(super) rng: Rng,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    /// Those of `peers` that have spoken for themselves.
    pub(super) met: BTreeMap<NodeId, Met>,
    /// Who may be here, as far as that is declared; names nobody while nothing is.
    pub(super) admission: Arc<Admission>,
    /// A planted bug: all that is said of third parties is believed.
    pub(super) believes: bool,
    seeds: Vec<Seed>,
    /// What foca waits for, by time and order of request. All times in here are awake time, see `awake`.
    pub(super) timers: BTreeMap<(Time, u64), Timer<Who>>,
    timer_count: u64,
    /// How long this node has not run while it wanted to.
    slept: Span,
    started: bool,
    /// When there is something to do next.
    next: Time,
    /// Foca's list may have changed since `reconcile`.
    is_stale: bool,
    pub(super) frames_rejected: u64,
}

impl Membership {
    /// The first `Wake` (due at once) dials the seeds.
    pub fn new(me: Card, seeds: Vec<SocketAddr>, mut rng: Rng) -> Self {
        assert!(me.id != NodeId(0), "node id 0 means none");
        let me = Arc::new(me);
        let who = Who { card: me.clone(), epoch: 0 };
        let foca = Foca::new(who, config(), FocaRng(rng.fork()), Wire);
        let seeds = seeds.into_iter().filter(|addr| *addr != me.peer());
        let seeds = seeds.map(|addr| Seed { addr, dial: Dialler::new(Time::ZERO) }).collect();
        Self {
            me,
            foca,
            rng,
            peers: BTreeMap::new(),
            admission: Arc::default(),
            met: BTreeMap::new(),
            believes: false,
            seeds,
            timers: BTreeMap::new(),
            timer_count: 0,
            slept: Span::ZERO,
            started: false,
            next: Time::ZERO,
            is_stale: false,
            frames_rejected: 0,
        }
    }

    /// Plants the bug that all is believed, for tests of the promises.
    pub fn believing(self) -> Self {
        Self { believes: true, ..self }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let now = self.awake(now.mono);
        match input {
            Input::Linked { card } => self.linked(now, *card, out),
            Input::Unlinked { peer, addr, why } => self.unlinked(now, peer, addr, why, out),
            Input::Frame { from, head } => {
                self.heard_at(now, from);
                let was_plain = self.frame(now, from, &head, out);
                if was_plain && now < self.next {
                    return;
                }
            }
            Input::Admission { now: admission } => self.admit(now, admission, out),
            Input::Doubt { peer } => self.ask(now, peer, out),
            Input::Wake => (),
        }
        self.run_timers(now, out);
        self.reconcile(now, out);
        self.tend_peers(now, out);
        self.reconcile(now, out);
        self.tend_seeds(now, out);
        self.next = self.next_after(now);
    }

    /// When this wants [`Input::Wake`] next.
    pub fn wake_at(&self) -> Option<Time> {
        (self.next != Time::NEVER).then(|| self.next + self.slept)
    }

    /// Any frame of any protocol came from this peer: it lives. Cheap; call it for each.
    pub fn heard(&mut self, now: Now, from: NodeId) {
        let now = self.awake(now.mono);
        self.heard_at(now, from);
    }

    /// All live nodes, suspects and this node included, by id.
    pub fn live(&self) -> impl Iterator<Item = &Card> {
        self.known().filter(|(_, standing)| *standing != Standing::Dead).map(|(card, _)| card)
    }

    /// All nodes that are not forgotten, this one included, by id.
    pub fn known<'a>(&'a self) -> impl Iterator<Item = (&'a Card, Standing)> {
        let before = self.peers.range(..self.me.id);
        let after = self.peers.range(self.me.id..);
        let card = |(_, peer): (_, &'a Peer)| (&*peer.who.card, peer.standing());
        before.map(card).chain([(&*self.me, Standing::Live)]).chain(after.map(card))
    }

    pub fn standing(&self, id: NodeId) -> Option<Standing> {
        if id == self.me.id {
            return Some(Standing::Live);
        }
        self.peers.get(&id).map(Peer::standing)
    }

    /// Has this node dialled this peer, and heard nothing of it since? Only then it may be that it turns us away.
    pub fn is_silent(&self, id: NodeId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.linked.is_some() && peer.dialled && !peer.spoke)
    }

    /// Has it a link to this node, over which it can be heard?
    pub fn speaks(&self, id: NodeId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.linked.is_some() && !peer.quiet)
    }

    /// Is there anybody who takes this node in: live, and heard of since its link came up?
    pub fn is_in_touch(&self) -> bool {
        self.peers.values().any(|peer| peer.told.is_some() && peer.spoke)
    }

    /// Frames dropped because they were not what they should be, since the start.
    pub fn frames_rejected(&self) -> u64 {
        self.frames_rejected
    }

    /// The time as this machine counts it: without the spans through which this node should have run and did not. So a
    /// node that was stopped, or starved, finds its timers as it left them, and judges nobody by its own absence.
    fn awake(&mut self, mono: Time) -> Time {
        let late = mono.since(self.next + self.slept);
        if self.started && self.next != Time::NEVER && late > STALL {
            self.slept = self.slept + late;
        }
        self.started = true;
        mono - self.slept
    }

    fn heard_at(&mut self, now: Time, from: NodeId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heard = now;
            peer.spoke = true;
            peer.asked = None;
            peer.quiet = false;
            if peer.was_linked.as_ref() != Some(&peer.who) {
                peer.was_linked = Some(peer.who.clone());
            }
        }
    }

    fn linked(&mut self, now: Time, card: Card, out: &mut Vec<Output>) {
        let id = card.id;
        let full = self.peers.len() >= MEMBERS_MAX && !self.peers.contains_key(&id);
        if id == self.me.id || full || !self.admission.lets_in(&card) {
            return;
        }
        let known = match self.believes {
            true => self.peers.get(&id).map(|peer| &*peer.who.card),
            false => self.met.get(&id).map(|met| &met.card),
        };
        if let Some(known) = known.filter(|known| is_after(known, &card)) {
            // Either word of its former life came late, or its disk was put back to an older state. It can tell.
            out.push(Output::Send { to: id, head: wire::known(known) });
            return;
        }
        if self.peers.get(&id).is_some_and(|peer| is_after(&peer.who.card, &card)) {
            self.forget(now, id, out);
            out.push(Output::Refuted { what: format!("others had {} in a life that it has not had", card.name) });
        }
        if self.met.get(&id).is_none_or(|met| met.card != card) {
            self.met.insert(id, Met::new(card.clone()));
        }
        let mut dialled = self.peers.get(&id).is_some_and(|peer| peer.dial.is_running());
        for seed in self.seeds.iter_mut().filter(|seed| seed.addr == card.peer()) {
            dialled |= seed.dial.is_running();
            seed.dial.succeeded();
        }
        let boot = card.boot;
        let alive = Member::alive(Who { card: Arc::new(card), epoch: 0 });
        self.apply(now, alive, out);
        self.reconcile(now, out);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.linked = Some(boot);
        peer.was_linked = Some(peer.who.clone());
        peer.dial.succeeded();
        (peer.dialled, peer.spoke) = (dialled, false);
        peer.heard = now;
        peer.asked = None;
        peer.quiet = false;
        // Each tells the other all it knows.
        peer.announce_at = now + REJOIN_PERIOD;
        self.announce(now, id, out);
    }

    fn unlinked(
        &mut self,
        now: Time,
        id: Option<NodeId>,
        addr: Option<SocketAddr>,
        why: LinkEnd,
        out: &mut Vec<Output>,
    ) {
        let Some(peer) = id.and_then(|id| self.peers.get_mut(&id)) else {
            return self.seed_failed(now, addr);
        };
        let id = peer.who.card.id;
        let has_link = peer.linked.is_some() && !peer.quiet;
        if has_link && addr.is_some() && why != LinkEnd::Closed {
            // Of two crossing dials one was given up. A link that works says more than a dial that did not.
            return;
        }
        if has_link || !peer.dial.is_running() {
            peer.linked = None;
            match why {
                // Both sides redial at once, whoever has the lower id: each has to find out for itself.
                LinkEnd::Closed | LinkEnd::Refused | LinkEnd::TimedOut => peer.dial.try_at(now),
                LinkEnd::Rejected | LinkEnd::Ours => peer.dial.failed(now, DIAL_WAIT_LIVE_MAX, &mut self.rng),
            }
        } else {
            let wait_max = if peer.told.is_some() { DIAL_WAIT_LIVE_MAX } else { DIAL_WAIT_MAX };
            peer.dial.failed(now, wait_max, &mut self.rng);
        }
        // Its machine lives and its process does not, if we knew this very process: an address that never worked for
        // us may be refused by something in between, and then others know better.
        let here = addr.is_none_or(|addr| addr == peer.who.card.peer());
        let gone = why == LinkEnd::Refused && here && peer.was_linked.as_ref() == Some(&peer.who);
        if gone && peer.told.is_some() {
            self.declare_down(now, id, out);
        } else if why != LinkEnd::Ours {
            self.ask(now, id, out);
        }
    }

    fn seed_failed(&mut self, now: Time, addr: Option<SocketAddr>) {
        let alone = self.is_alone();
        for seed in self.seeds.iter_mut().filter(|seed| Some(seed.addr) == addr) {
            seed.dial.failed(now, DIAL_WAIT_MAX, &mut self.rng);
            if !alone {
                seed.dial.wait_until(now + SEED_WAIT_QUIET);
            }
        }
    }

    /// Takes in a frame. The result says that it was just a sign of life: most are, and then nothing else is due.
    fn frame(&mut self, now: Time, from: NodeId, bytes: &Bytes, out: &mut Vec<Output>) -> bool {
        let head = wire::head(bytes);
        let is_plain = matches!(head, Some(Head::Ping | Head::Pong));
        match head {
            Some(Head::Ping) => out.push(Output::Send { to: from, head: wire::pong() }),
            Some(Head::Pong) => (),
            Some(Head::Known(boot, pid)) => {
                if boot > self.me.boot || (boot == self.me.boot && pid != self.me.pid) {
                    let mine = self.me.boot;
                    let why = format!("{from} knows of {boot} in process {pid}, the disk says that this is {mine}");
                    out.push(Output::Older { by: from, why });
                }
            }
            Some(Head::Foca(data)) => {
                if let Some(data) = self.judged(now, from, data, out) {
                    let mut wishes = Wishes::default();
                    if self.foca.handle_data(&data, &mut wishes).is_err() {
                        self.frames_rejected += 1;
                    }
                    self.grant(now, wishes, out);
                }
            }
            // A newer version's.
            None if bytes.first().is_some_and(|version| *version > wire::VERSION) => self.frames_rejected += 1,
            None => self.rejected(from, "is not one of membership", out),
        }
        is_plain
    }

    pub(super) fn rejected(&mut self, from: NodeId, why: &'static str, out: &mut Vec<Output>) {
        self.frames_rejected += 1;
        out.push(Output::Bad { from, why });
    }

    /// Asks a live peer for a sign of life; a moment later if that was done just now.
    pub(super) fn ask(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.told.is_none() || peer.asked.is_some() {
            return;
        }
        peer.wants_asking = now < peer.asked_last + ASK_PAUSE;
        if peer.wants_asking {
            return;
        }
        peer.asked = Some(now);
        peer.asked_last = now;
        out.push(Output::Send { to: id, head: wire::ping() });
    }

    /// Each peer's own duties: silence, suspicion, notices, links.
    fn tend_peers(&mut self, now: Time, out: &mut Vec<Output>) {
        let ids: Vec<NodeId> = self.peers.keys().copied().collect();
        for id in ids {
            self.tend_silence(now, id, out);
            self.tend_suspicion(now, id, out);
            self.tend_link(now, id, out);
        }
    }

    fn tend_silence(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let peer = self.peers.get_mut(&id).expect("only reconcile removes peers");
        if peer.told.is_none() {
            return;
        }
        match peer.asked {
            Some(asked) if now >= asked + ANSWER => {
                peer.asked = None;
                // Once for each time that it falls silent. If it refutes and still we hear nothing, then something is
                // between us, and SWIM's indirect way is the better judge.
                if !std::mem::replace(&mut peer.quiet, true) && peer.state == State::Alive {
                    self.suspect(now, id, out);
                }
            }
            None if now >= peer.silence_ends() => self.ask(now, id, out),
            Some(_) | None => (),
        }
    }

    fn suspect(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let peer = self.peers.get_mut(&id).expect("only reconcile removes peers");
        peer.suspicion = Some(Suspicion { incarnation: peer.incarnation, ends: now + SUSPICION });
        let suspect = Member::new(peer.who.clone(), peer.incarnation, State::Suspect);
        self.apply(now, suspect, out);
        self.gossip(now, out);
        self.reconcile(now, out);
    }

    fn tend_suspicion(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let peer = self.peers.get_mut(&id).expect("only reconcile removes peers");
        if peer.state != State::Suspect {
            peer.suspicion = None;
            return;
        }
        if peer.suspicion.as_ref().is_some_and(|s| s.incarnation != peer.incarnation) {
            peer.suspicion = None;
        }
        if let Some(suspicion) = peer.suspicion.as_mut().filter(|s| now >= s.ends) {
            suspicion.ends = peer.heard + SUSPICION;
            if suspicion.ends <= now {
                return self.declare_down(now, id, out);
            }
        }
        if peer.linked.is_some() && now >= peer.notice_at {
            peer.notice_at = now + NOTICE;
            let news = Member::new(peer.who.clone(), peer.incarnation, State::Suspect);
            let head = wire::tell(self.foca.identity(), &peer.who, &news);
            out.push(Output::Send { to: id, head });
            // Its answer carries its new incarnation.
            self.announce(now, id, out);
        }
    }

    fn declare_down(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let peer = self.peers.get_mut(&id).expect("only reconcile removes peers");
        let down = Member::new(peer.who.clone(), peer.incarnation, State::Down);
        self.apply(now, down, out);
        self.gossip(now, out);
        self.reconcile(now, out);
    }

    fn tend_link(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let peer = &self.peers[&id];
        let addr = peer.who.card.peer();
        let is_taken = peer.told.is_none()
            && peer.dial.is_due(now)
            && self.peers.values().any(|other| other.linked.is_some() && other.who.card.peer() == addr);
        let peer = self.peers.get_mut(&id).expect("only reconcile removes peers");
        let is_linked = peer.linked.is_some();
        if is_taken && !is_linked {
            // Somebody else lives at the dead one's address: it has entered anew, or was replaced.
            return peer.dial.failed(now, DIAL_WAIT_MAX, &mut self.rng);
        }
        let announce = is_linked && peer.told.is_none() && now >= peer.announce_at;
        if (!is_linked || peer.quiet) && peer.dial.is_due(now) {
            if peer.dial.is_running() {
                peer.dial.failed(now, DIAL_WAIT_LIVE_MAX, &mut self.rng);
            } else {
                peer.dial.start(now);
                out.push(Output::Dial { addr: peer.who.card.peer(), peer: Some(id) });
            }
        }
        if announce {
            // We hold it for dead; it may not know. Whatever it answers, it is told, and comes back in a new epoch.
            peer.announce_at = now + REJOIN_PERIOD;
            self.announce(now, id, out);
        }
    }

    fn tend_seeds(&mut self, now: Time, out: &mut Vec<Output>) {
        let alone = self.is_alone();
        for seed in &mut self.seeds {
            let is_known = self.peers.values().any(|peer| peer.who.card.peer() == seed.addr);
            if (!alone && is_known) || !seed.dial.is_due(now) {
                continue;
            }
            if seed.dial.is_running() {
                seed.dial.failed(now, DIAL_WAIT_MAX, &mut self.rng);
                if !alone {
                    seed.dial.wait_until(now + SEED_WAIT_QUIET);
                }
            } else {
                seed.dial.start(now);
                out.push(Output::Dial { addr: seed.addr, peer: None });
            }
        }
    }

    /// Others may not have heard yet who is gone, and go on talking of him.
    fn admit(&mut self, now: Time, admission: Arc<Admission>, out: &mut Vec<Output>) {
        self.admission = admission;
        self.is_stale = true;
        let out_of_it: Vec<Member<Who>> = self
            .peers
            .values()
            .filter(|peer| peer.state != State::Down && !self.admission.lets_in(&peer.who.card))
            .map(|peer| Member::new(peer.who.clone(), peer.incarnation, State::Down))
            .collect();
        for down in out_of_it {
            self.apply(now, down, out);
        }
    }

    fn is_alone(&self) -> bool {
        self.peers.values().all(|peer| peer.told.is_none())
    }

    /// Brings our table up to foca's list and says what changed.
    fn reconcile(&mut self, now: Time, out: &mut Vec<Output>) {
        if !std::mem::replace(&mut self.is_stale, false) {
            return;
        }
        let all = self.foca.iter_membership_state();
        let mut list: Vec<Member<Who>> =
            all.filter(|member| self.admission.lets_in(&member.id().card)).cloned().collect();
        list.sort_by_key(|member| member.id().card.id);
        let was_alone = self.is_alone();
        let me = self.me.id;
        self.peers.retain(|id, peer| {
            let keep = list.binary_search_by_key(id, |member| member.id().card.id).is_ok();
            if !keep && let Some((boot, _)) = peer.told {
                out.push(Output::Death { id: *id, boot });
            }
            keep
        });
        // Who is linked stays: its hello came before its first word.
        let peers = &self.peers;
        self.met.retain(|id, _| peers.contains_key(id) || list.iter().any(|member| member.id().card.id == *id));
        for member in list {
            let id = member.id().card.id;
            if self.peers.len() >= MEMBERS_MAX && !self.peers.contains_key(&id) {
                continue;
            }
            // The lower id dials first; the other gives it a moment.
            let dial_at = if me < id { now } else { now + DIAL_GRACE };
            let peer = self.peers.entry(id).or_insert_with(|| Peer::new(member.id().clone(), now));
            peer.update(member, now, dial_at);
            peer.tell(id, out);
        }
        if self.is_alone() && !was_alone {
            self.seeds.iter_mut().for_each(|seed| seed.dial.try_at(now));
        }
    }

    fn run_timers(&mut self, now: Time, out: &mut Vec<Output>) {
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let timer = entry.remove();
            if let Timer::ChangeSuspectToDown { member_id, .. } = &timer {
                // SWIM would have it dead now. Not if something was heard of it meanwhile.
                let heard = self.peers.get(&member_id.card.id).map_or(Time::ZERO, |peer| peer.heard);
                if heard != Time::ZERO && heard + SUSPICION > now {
                    self.schedule(heard + SUSPICION, timer);
                    continue;
                }
            }
            let mut wishes = Wishes::default();
            // Errors here say that a timer is not current any more, which is what timers are like.
            let _stale = self.foca.handle_timer(timer, &mut wishes);
            self.grant(now, wishes, out);
        }
    }

    fn schedule(&mut self, at: Time, timer: Timer<Who>) {
        if let Timer::RemoveDown(who) = &timer {
            // One is enough for each node, however often it comes and goes.
            self.timers.retain(|_, other| !matches!(other, Timer::RemoveDown(w) if w.card.id == who.card.id));
        }
        self.timer_count += 1;
        self.timers.insert((at, self.timer_count), timer);
    }

    /// Carries out what foca wished for. Called after every call to it that may change its list.
    pub(super) fn grant(&mut self, now: Time, wishes: Wishes, out: &mut Vec<Output>) {
        self.is_stale = true;
        for (after, timer) in wishes.timers {
            self.schedule(now + Span::from(after), timer);
        }
        out.extend(wishes.sends.into_iter().map(|(to, head)| Output::Send { to, head }));
    }

    fn apply(&mut self, now: Time, news: Member<Who>, out: &mut Vec<Output>) {
        let mut wishes = Wishes::default();
        self.foca.apply_many(std::iter::once(news), true, &mut wishes).expect("a member fits into a Vec");
        self.grant(now, wishes, out);
    }

    fn gossip(&mut self, now: Time, out: &mut Vec<Output>) {
        let mut wishes = Wishes::default();
        self.foca.gossip(&mut wishes).expect("a header fits into a packet");
        self.grant(now, wishes, out);
    }

    fn announce(&mut self, now: Time, id: NodeId, out: &mut Vec<Output>) {
        let Some(who) = self.peers.get(&id).map(|peer| peer.who.clone()) else { return };
        let mut wishes = Wishes::default();
        self.foca.announce(who, &mut wishes).expect("a header fits into a packet");
        self.grant(now, wishes, out);
    }

    fn next_after(&self, now: Time) -> Time {
        let alone = self.is_alone();
        let known = |addr| self.peers.values().any(|peer| peer.who.card.peer() == addr);
        let seeds = self.seeds.iter().filter(|seed| alone || !known(seed.addr)).map(|seed| seed.dial.wake());
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        let next = self.peers.values().map(Peer::next).chain(seeds).chain(timer).min();
        // What is due now has been done; a millisecond keeps a mistake in here from becoming a busy loop.
        next.unwrap_or(Time::NEVER).max(now + Span::millis(1))
    }
}

/// Is `known` a later life than `card`, or another one of the same number?
fn is_after(known: &Card, card: &Card) -> bool {
    known.boot > card.boot || (known.boot == card.boot && known.pid != card.pid)
}

pub(super) fn config() -> Config {
    let count = |n| std::num::NonZeroUsize::new(n).expect("limits are not zero");
    Config {
        probe_period: PROBE_PERIOD.into(),
        probe_rtt: PROBE_RTT.into(),
        num_indirect_probes: count(FANOUT),
        max_transmissions: std::num::NonZeroU8::new(TRANSMISSIONS).expect("limits are not zero"),
        suspect_to_down_after: SUSPICION.into(),
        remove_down_after: Some(FORGET.into()),
        max_packet_size: count(PACKET_BYTES_MAX),
        notify_down_members: true,
        periodic_announce: Some(PeriodicParams { frequency: ANNOUNCE_PERIOD.into(), num_members: count(1) }),
        // Done here, over links that are up: foca would only do it while somebody is live.
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(PeriodicParams { frequency: GOSSIP_PERIOD.into(), num_members: count(FANOUT) }),
    }
}
