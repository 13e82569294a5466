//! Links and frames between nodes. A link is two half-open ends, as a TCP connection is: each side believes in its own
//! until it hears otherwise. Partitions are one-way cuts between two machines; what is sent into one is lost, or kept
//! by the sender's kernel and delivered late, or ends the link after a while. Weather is what befalls single frames.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{Event, Frame, LinkEnd, NodeId, Span, Time};

use super::{AskOf, Due, Factory, World};

/// A connect to a machine that does not answer ends after this (contract of `host`: 300 ms).
pub const CONNECT_MAX: Span = Span::millis(300);
/// A handshake with a process that does not answer: connect and 1 s for TLS and hello.
pub const HANDSHAKE_MAX: Span = Span::millis(1_300);
/// A kernel gives up a connection whose data was not acknowledged for so long (TCP_USER_TIMEOUT).
pub const STUCK_MAX: Span = Span::secs(10);
/// Frames a kernel keeps per direction while it cannot send: its socket buffers.
const HELD_MAX: usize = 2_000;

/// What befalls single frames, everywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// Shortest way between two machines.
    pub delay: Span,
    /// Up to so much more, drawn for each frame, mostly little.
    pub jitter: Span,
    pub loss: f64,
    pub duplicate: f64,
    /// Chance that a frame does not wait for the ones before it, and takes up to four jitters longer.
    pub reorder: f64,
}

impl Weather {
    pub const CALM: Self = Self { delay: Span(150), jitter: Span(400), loss: 0.0, duplicate: 0.0, reorder: 0.0 };
}

/// Frames, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Sent into a partition and kept for later.
    pub held: u64,
    /// Delivered to a machine.
    pub arrived: u64,
    /// Of those sent, as they stand on the wire.
    pub bytes: u64,
}

pub(super) struct Net {
    pub weather: Weather,
    pub counts: Counts,
    /// Bytes of [`Counts::bytes`], by kind of frame.
    by_kind: BTreeMap<u16, u64>,
    links: u64,
    /// `ends[a][b]`: what a believes of its link with b.
    ends: Vec<Vec<Option<End>>>,
    /// From, to.
    cuts: BTreeMap<(usize, usize), Cut>,
}

struct End {
    link: u64,
    /// When the last frame in order arrives over there.
    last_arrival: Time,
    /// Since when nothing gets through.
    stuck: Option<Time>,
}

struct Cut {
    since: Time,
    /// The kernel keeps frames and sends them after the heal; otherwise they are lost.
    holds: bool,
    held: Vec<(u64, Frame)>,
}

impl Net {
    pub fn new(machines: usize) -> Self {
        Self {
            weather: Weather::CALM,
            counts: Counts::default(),
            by_kind: BTreeMap::new(),
            links: 0,
            ends: (0..machines).map(|_| (0..machines).map(|_| None).collect()).collect(),
            cuts: BTreeMap::new(),
        }
    }
}

impl<F: Factory> World<F> {
    pub fn weather(&self) -> Weather {
        self.net.weather
    }

    pub fn set_weather(&mut self, weather: Weather) {
        self.trace.remark(self.now, format!("weather: {weather:?}"));
        self.net.weather = weather;
    }

    pub fn counts(&self) -> Counts {
        self.net.counts
    }

    /// Bytes that were sent, by kind of frame.
    pub fn bytes_by_kind(&self) -> &BTreeMap<u16, u64> {
        &self.net.by_kind
    }

    /// From now on nothing gets from one machine to the other; `holds`: what is sent arrives after the heal.
    pub fn cut(&mut self, from: usize, to: usize, holds: bool) {
        if from != to {
            self.trace.remark(self.now, format!("cut {from} -> {to}, holds: {holds}"));
            let fresh = Cut { since: self.now, holds, held: Vec::new() };
            self.net.cuts.entry((from, to)).or_insert(fresh).holds = holds;
        }
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.net.cuts.contains_key(&(from, to))
    }

    /// How long nothing has got through between two machines, in one direction or both; zero if all does.
    pub fn cut_for(&self, a: usize, b: usize) -> Span {
        let since = |from, to| self.net.cuts.get(&(from, to)).map_or(self.now, |cut| cut.since);
        self.now.since(since(a, b).min(since(b, a)))
    }

    /// Ends a cut and sends what was kept.
    pub fn heal(&mut self, from: usize, to: usize) {
        let Some(cut) = self.net.cuts.remove(&(from, to)) else { return };
        self.trace.remark(self.now, format!("heal {from} -> {to}, {} frames were held", cut.held.len()));
        if let Some(end) = &mut self.net.ends[from][to] {
            end.stuck = None;
        }
        let mut at = self.now;
        for (link, frame) in cut.held {
            at = at.max(self.now + self.flight());
            self.queue.push(at, Due::Arrive { to, from, link, frame });
        }
    }

    pub fn heal_all(&mut self) {
        let cuts: Vec<_> = self.net.cuts.keys().copied().collect();
        for (from, to) in cuts {
            self.heal(from, to);
        }
    }

    /// Whether this node has a link with that one, as it believes.
    pub fn is_linked(&self, node: usize, peer: usize) -> bool {
        self.net.ends[node][peer].is_some()
    }

    /// Calm weather, no cuts, no machine without power, no process stopped.
    pub fn is_quiet(&self) -> bool {
        let well = |n: usize| self.places[n].powered && !self.is_hung(n);
        self.net.weather == Weather::CALM && self.net.cuts.is_empty() && (0..self.places.len()).all(well)
    }

    fn flight(&mut self) -> Span {
        let Weather { delay, jitter, .. } = self.net.weather;
        // The square makes most frames quick and a few slow.
        let x = self.rng.below(1 << 20) as f64 / (1u64 << 20) as f64;
        delay + Span((jitter.0 as f64 * x * x) as u64)
    }

    pub(super) fn dial(&mut self, node: usize, addr: SocketAddr, peer: Option<NodeId>) {
        let Some(running) = &self.places[node].running else { return };
        let life = running.life;
        // One way for the connect, and back and forth for the handshake.
        let took = self.flight() + self.flight() + self.flight();
        self.queue.push(self.now + took, Due::DialEnds { node, life, addr, peer, began: self.now });
    }

    pub(super) fn dial_ends(&mut self, node: usize, addr: SocketAddr, peer: Option<NodeId>, began: Time) {
        let failed = |why| Event::Unlinked { peer, addr: Some(addr), why };
        let Some(&there) = self.by_addr.get(&addr) else { return self.deliver(node, failed(LinkEnd::Refused)) };
        if there == node {
            return self.deliver(node, failed(LinkEnd::Rejected));
        }
        let gives_up = |world: &mut Self, after: Span| {
            let wait = (began + after).since(world.now);
            world.deliver_after(node, wait, failed(LinkEnd::TimedOut));
        };
        if self.is_cut(node, there) || self.is_cut(there, node) || !self.places[there].powered {
            return gives_up(self, CONNECT_MAX);
        }
        let Some(other) = &self.places[there].running else { return self.deliver(node, failed(LinkEnd::Refused)) };
        if other.stopped.is_some() {
            return gives_up(self, HANDSHAKE_MAX);
        }
        // A lost SYN or two: the connect times out.
        let loss = self.net.weather.loss;
        if self.rng.chance(loss * loss) {
            return gives_up(self, CONNECT_MAX);
        }
        if peer.is_some_and(|wanted| wanted != self.places[there].id) {
            return self.deliver(node, failed(LinkEnd::Rejected));
        }
        self.link(node, there);
    }

    fn link(&mut self, dialler: usize, acceptor: usize) {
        let link_of = |end: &Option<End>| end.as_ref().map(|end| end.link);
        let (ours, theirs) = (&self.net.ends[dialler][acceptor], &self.net.ends[acceptor][dialler]);
        // Both dialled at once: one connection stays, and who dialled second hears of it as of its own.
        if ours.is_some() && link_of(ours) == link_of(theirs) {
            let event = self.linked_event(acceptor);
            return self.deliver(dialler, event);
        }
        self.net.links += 1;
        for (side, other) in [(acceptor, dialler), (dialler, acceptor)] {
            self.net.ends[side][other] = Some(End { link: self.net.links, last_arrival: self.now, stuck: None });
        }
        let (of_dialler, of_acceptor) = (self.linked_event(dialler), self.linked_event(acceptor));
        self.deliver(acceptor, of_dialler);
        self.deliver(dialler, of_acceptor);
    }

    fn linked_event(&self, of: usize) -> Event<AskOf<F>> {
        let place = &self.places[of];
        let running = place.running.as_ref().expect("a link has a process at each end");
        Event::Linked { peer: place.id, boot: place.boot, card: running.card.clone() }
    }

    pub(super) fn hangup(&mut self, node: usize, peer: NodeId) {
        if self.leave_liar(node, peer) {
            return;
        }
        let Some(other) = self.index(peer) else { return };
        let Some(end) = self.net.ends[node][other].take() else { return };
        self.reset(other, node, end.link);
        self.deliver_after(node, Span::ZERO, Event::Unlinked { peer: Some(peer), addr: None, why: LinkEnd::Ours });
    }

    /// Tells `side` that its link with `other` is gone, if word can get there.
    fn reset(&mut self, side: usize, other: usize, link: u64) {
        if !self.is_cut(other, side) && self.places[other].powered {
            let at = self.now + self.flight();
            self.queue.push(at, Due::LinkEnds { node: side, peer: other, link, why: LinkEnd::Closed });
        }
    }

    /// The process of a machine is gone: its kernel closes what was open.
    pub(super) fn close_all(&mut self, node: usize) {
        for other in 0..self.places.len() {
            if let Some(end) = self.net.ends[node][other].take() {
                self.reset(other, node, end.link);
            }
        }
    }

    pub(super) fn link_ends(&mut self, node: usize, peer: usize, link: u64, why: LinkEnd) {
        if self.net.ends[node][peer].as_ref().is_some_and(|end| end.link == link) {
            self.net.ends[node][peer] = None;
            let peer = Some(self.places[peer].id);
            self.deliver(node, Event::Unlinked { peer, addr: None, why });
        }
    }

    pub(super) fn link_stuck(&mut self, node: usize, peer: usize, link: u64, since: Time) {
        let end = self.net.ends[node][peer].as_ref();
        if end.is_some_and(|end| end.link == link && end.stuck == Some(since)) {
            self.queue.push(self.now, Due::LinkEnds { node, peer, link, why: LinkEnd::TimedOut });
        }
    }

    pub(super) fn send(&mut self, from: usize, to: NodeId, frame: Frame) {
        self.net.counts.sent += 1;
        self.net.counts.bytes += frame.wire_len() as u64;
        *self.net.by_kind.entry(frame.kind).or_default() += frame.wire_len() as u64;
        let weather = self.net.weather;
        let Some(to) = self.index(to) else { return self.net.counts.lost += 1 };
        self.overhear(from, to, &frame);
        if self.net.ends[from][to].is_none() || self.rng.chance(weather.loss) {
            self.net.counts.lost += 1;
            return;
        }
        if self.rng.chance(weather.duplicate) {
            self.net.counts.duplicated += 1;
            self.fly(from, to, frame.clone());
        }
        self.fly(from, to, frame);
    }

    fn fly(&mut self, from: usize, to: usize, frame: Frame) {
        let Weather { reorder, jitter, .. } = self.net.weather;
        let mut at = self.now + self.flight();
        let overtakes = self.rng.chance(reorder);
        if overtakes {
            self.net.counts.reordered += 1;
            at = at + Span(self.rng.below(4 * jitter.0 + 1));
        }
        let end = self.net.ends[from][to].as_mut().expect("a frame flies over a link");
        if !overtakes {
            at = at.max(end.last_arrival);
            end.last_arrival = at;
        }
        let link = end.link;
        self.queue.push(at, Due::Arrive { to, from, link, frame });
    }

    pub(super) fn arrive(&mut self, to: usize, from: usize, link: u64, frame: Frame) {
        if self.is_cut(from, to) || !self.places[to].powered {
            return self.cannot_arrive(to, from, link, frame);
        }
        if self.net.ends[to][from].as_ref().is_none_or(|end| end.link != link) {
            self.net.counts.lost += 1;
            // Nobody knows this connection any more: the sender is told.
            return self.reset(from, to, link);
        }
        self.net.counts.arrived += 1;
        let event = Event::Frame { from: self.places[from].id, frame };
        let running = self.places[to].running.as_mut().expect("an end of a link has a process");
        match &mut running.stopped {
            Some(stopped) => stopped.push(Due::Deliver { node: to, life: running.life, event }),
            None => self.deliver(to, event),
        }
    }

    fn cannot_arrive(&mut self, to: usize, from: usize, link: u64, frame: Frame) {
        if let Some(end) = &mut self.net.ends[from][to]
            && end.link == link
            && end.stuck.is_none()
        {
            end.stuck = Some(self.now);
            let due = Due::LinkStuck { node: from, peer: to, link, since: self.now };
            self.queue.push(self.now + STUCK_MAX, due);
        }
        match self.net.cuts.get_mut(&(from, to)) {
            Some(cut) if cut.holds && cut.held.len() < HELD_MAX => {
                self.net.counts.held += 1;
                cut.held.push((link, frame));
            }
            _ => self.net.counts.lost += 1,
        }
    }
}
