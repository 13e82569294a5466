//! The machine: tells peers the interest of this node and hears theirs, sends what is published to those that want it, and takes what
//! comes for the front door. Frames go at the end of a turn, one batch a peer. They may be lost, doubled, late or reordered: interest is
//! told until it is acknowledged, a message is delivered in order or not at all, and each that is missing is counted.

use std::collections::BTreeMap;

use base::{AskId, Boot, NodeId, Now, Outcome, Refused, Span, Time};
use bytes::Bytes;
use prost::Message as _;

use crate::interest::{Own, Theirs};
use crate::limits::*;
use crate::wire::{Ack, Batch, Sent, Told};
use crate::{Input, Kind, LEVEL, Message, Op, Output, Reply};

pub struct Channels {
    boot: Boot,
    /// All nodes have agreed on this level.
    level: u32,
    own: Own,
    peers: BTreeMap<NodeId, Peer>,
    /// Streams begun, each with a life of a peer.
    streams: u64,
    /// Subscriptions that not all live peers have. Not more than [`WAITS_MAX`].
    waits: BTreeMap<AskId, Wait>,
    /// Who is told of messages.
    listener: Option<AskId>,
    /// Messages for it.
    inbox: Vec<Message>,
    inbox_bytes: usize,
    /// Something is to be sent at the end of this turn.
    is_due: bool,
    seen: Seen,
}

struct Wait {
    /// Peers must have this number of changes.
    number: u64,
    deadline: Time,
}

/// One life of a peer.
struct Peer {
    boot: Boot,
    /// Of this node's interest: acknowledged, and sent.
    acked: Option<u64>,
    sent: Option<u64>,
    again_at: Time,
    theirs: Theirs,
    owes_ack: bool,
    ask_at: Time,
    /// Messages to it.
    stream: u64,
    next: u64,
    out: Vec<Sent>,
    out_bytes: usize,
    /// Messages from it: of which stream, and the next number there.
    hears: (u64, u64),
}

/// What is counted since the start.
#[derive(Default, Clone, Copy)]
struct Seen {
    lost: u64,
    sent: u64,
    heard: u64,
    unknown: u64,
}

impl Channels {
    pub fn new(boot: Boot) -> Self {
        Self {
            boot,
            level: 0,
            own: Own::default(),
            peers: BTreeMap::new(),
            streams: 0,
            waits: BTreeMap::new(),
            listener: None,
            inbox: Vec::new(),
            inbox_bytes: 0,
            is_due: false,
            seen: Seen::default(),
        }
    }

    /// Heard, interest, lost, sent, unknown: what a node shows as `channels.*`.
    pub fn figures(&self) -> [u64; 5] {
        let Seen { lost, sent, heard, unknown } = self.seen;
        [heard, self.own.entries() as u64, lost, sent, unknown]
    }

    /// The next moment this machine wants `Input::Wake`, if any.
    pub fn wake_at(&self) -> Option<Time> {
        if self.is_due {
            return Some(Time::ZERO);
        }
        let waits = self.waits.values().map(|wait| wait.deadline);
        let peers = self.peers.values().filter(|_| self.crosses()).flat_map(|peer| {
            let again = (peer.sent != peer.acked).then_some(peer.again_at);
            [again, (!peer.theirs.is_complete).then_some(peer.ask_at)].into_iter().flatten()
        });
        waits.chain(peers).min()
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let now = now.mono;
        match input {
            Input::Ask { id, op } => self.ask(now, id, op, out),
            Input::Birth { peer, boot } => self.birth(now, peer, boot),
            Input::Death { peer } => drop(self.peers.remove(&peer)),
            Input::Level(level) => {
                self.is_due |= level >= LEVEL && !self.crosses();
                self.level = level;
            }
            Input::News { channel, payload } => self.news(&channel, &payload),
            Input::Told { from, head } => self.told(from, &head, out),
            Input::Messages { from, head } => self.messages(from, head, out),
            Input::Wake => self.flush(now, out),
        }
        self.end_waits(now, out);
        self.give(out);
    }

    fn crosses(&self) -> bool {
        self.level >= LEVEL
    }

    fn birth(&mut self, now: Time, id: NodeId, boot: Boot) {
        if self.peers.get(&id).is_some_and(|peer| peer.boot == boot) {
            return;
        }
        self.streams += 1;
        let peer = Peer {
            boot,
            acked: None,
            sent: None,
            again_at: now,
            theirs: Theirs::default(),
            owes_ack: true,
            ask_at: now + ASK_AGAIN,
            stream: self.streams,
            next: 1,
            out: Vec::new(),
            out_bytes: 0,
            hears: (0, 1),
        };
        self.peers.insert(id, peer);
        self.is_due = true;
    }

    fn ask(&mut self, now: Time, id: AskId, op: Op, out: &mut Vec<Output>) {
        let mut answer = |outcome| out.push(Output::Answer { id, outcome });
        if !self.crosses() && matches!(op, Op::Subscribe { .. } | Op::Publish(_)) {
            let why = format!(
                "not every node has a program with channels yet: this cluster agreed on level {}, they need {LEVEL}",
                self.level
            );
            return answer(Outcome::Refused(Refused::busy(why, Span::secs(1))));
        }
        match op {
            Op::Subscribe { namespace, kind, names } => {
                if self.waits.len() >= WAITS_MAX {
                    let why = format!("{WAITS_MAX} subscriptions wait here already");
                    return answer(Outcome::Refused(Refused::busy(why, AGAIN)));
                }
                let number = names.iter().map(|name| self.own.add(&namespace, kind, name)).max().unwrap_or(0);
                self.is_due = true;
                self.waits.insert(id, Wait { number, deadline: now + KNOWN_WITHIN });
            }
            Op::Unsubscribe { namespace, kind, names } => {
                names.iter().for_each(|name| self.own.remove(&namespace, kind, name));
                self.is_due = true;
                answer(Outcome::Done(Reply::Done));
            }
            Op::Publish(message) => {
                let receivers = self.publish(&message, out);
                out.push(Output::Answer { id, outcome: Outcome::Done(Reply::Published { receivers }) });
            }
            Op::Listen => {
                if let Some(former) = self.listener.replace(id) {
                    out.push(Output::Answer { id: former, outcome: Outcome::Done(Reply::Heard(Vec::new())) });
                }
            }
            Op::Names { namespace, kind } => answer(Outcome::Done(Reply::Names(self.names(&namespace, kind)))),
            Op::Counts { namespace, kind, names } => {
                let counts = names.iter().map(|name| {
                    let theirs = self.peers.values().map(|peer| peer.theirs.count(&namespace, kind, name));
                    self.own.count(&namespace, kind, name) + theirs.sum::<u64>()
                });
                answer(Outcome::Done(Reply::Counts(counts.collect())));
            }
        }
    }

    fn names(&self, namespace: &str, kind: Kind) -> Vec<Bytes> {
        let theirs = self.peers.values().flat_map(|peer| peer.theirs.names(namespace, kind));
        let all: std::collections::BTreeSet<&Bytes> = self.own.names(namespace, kind).chain(theirs).collect();
        all.into_iter().take(NAMES_LISTED_MAX).cloned().collect()
    }

    /// To each peer that wants it, and each of which it is not known.
    fn publish(&mut self, message: &Message, out: &mut Vec<Output>) -> u64 {
        let Message { namespace, shard, channel, payload } = message;
        let mut all = 0;
        for (id, peer) in &mut self.peers {
            let (wanted, receivers) = peer.theirs.wants(namespace, *shard, channel);
            all += receivers;
            if !wanted {
                continue;
            }
            let (namespace, channel, payload) = (namespace.clone(), channel.clone(), payload.clone());
            peer.out_bytes += namespace.len() + channel.len() + payload.len();
            peer.out.push(Sent { namespace, shard: *shard, channel, payload });
            self.seen.sent += 1;
            self.is_due = true;
            if peer.out_bytes >= BATCH_BYTES {
                out.push(peer.batch(*id, self.boot));
            }
        }
        all
    }

    /// Sends what this turn has brought.
    fn flush(&mut self, now: Time, out: &mut Vec<Output>) {
        self.is_due = false;
        if !self.crosses() {
            return;
        }
        if let Some(number) = self.peers.values().map(|peer| peer.acked).min().unwrap_or(Some(self.own.number())) {
            self.own.all_have(number);
        }
        for (id, peer) in &mut self.peers {
            if !peer.out.is_empty() {
                out.push(peer.batch(*id, self.boot));
            }
            if peer.sent != peer.acked && peer.again_at <= now {
                peer.sent = peer.acked;
            }
            let under_way = peer.sent.unwrap_or(0) - peer.acked.unwrap_or(0);
            let has_news = peer.sent.is_none_or(|sent| sent < self.own.number()) && under_way < UNDER_WAY_MAX;
            let page = has_news.then(|| self.own.page(peer.sent));
            if let Some(page) = &page {
                peer.sent = Some(page.to);
                peer.again_at = now + AGAIN;
            }
            let asks = !peer.theirs.is_complete && peer.ask_at <= now;
            if page.is_none() && !peer.owes_ack && !asks {
                continue;
            }
            (peer.owes_ack, peer.ask_at) = (false, now + ASK_AGAIN);
            let ack = Some(Ack { have: peer.theirs.have });
            let told = Told { boot: self.boot.0, of: peer.boot.0, page, ack };
            out.push(Output::Tell { to: *id, head: told.encode_to_vec().into() });
        }
    }

    fn told(&mut self, from: NodeId, head: &[u8], out: &mut Vec<Output>) {
        let Ok(told) = Told::decode(head) else { return out.push(Output::Bad { from }) };
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if told.boot != peer.boot.0 || told.of != self.boot.0 {
            return;
        }
        if let Some(page) = told.page {
            if !Theirs::can_be(&page) {
                return out.push(Output::Bad { from });
            }
            peer.theirs.take(page);
            peer.owes_ack = true;
            self.is_due = true;
        }
        if let Some(Ack { have }) = told.ack {
            // Of more than there is nobody can have heard.
            if have.is_some_and(|have| have > self.own.number()) {
                return out.push(Output::Bad { from });
            }
            // What ended until then need not be kept any more.
            self.is_due |= have > peer.acked;
            if have < peer.acked {
                // It has forgotten, as it held this node dead; or this is an old word, and the next one puts it right.
                (peer.acked, peer.sent) = (have, have);
            }
            (peer.acked, peer.sent) = (have, peer.sent.max(have));
            self.is_due |= peer.sent.is_none_or(|sent| sent < self.own.number());
        }
    }

    fn messages(&mut self, from: NodeId, head: Bytes, out: &mut Vec<Output>) {
        let Ok(batch) = Batch::decode(head) else { return out.push(Output::Bad { from }) };
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if batch.boot != peer.boot.0 || batch.of != self.boot.0 || batch.stream < peer.hears.0 {
            return;
        }
        if batch.stream > peer.hears.0 {
            peer.hears = (batch.stream, 1);
        }
        let next = peer.hears.1;
        if batch.first < next {
            // Twice, or behind later ones: those were counted as lost.
            return;
        }
        let Some(end) = batch.first.checked_add(batch.messages.len() as u64) else {
            return out.push(Output::Bad { from });
        };
        self.seen.lost = self.seen.lost.saturating_add(batch.first - next);
        peer.hears.1 = end;
        for Sent { namespace, shard, channel, payload } in batch.messages {
            self.seen.heard += u64::from(self.keep(Message { namespace, shard, channel, payload }));
        }
    }

    /// For the clients of this node in each namespace in which one listens.
    fn news(&mut self, channel: &Bytes, payload: &Bytes) {
        let spaces: Vec<String> = self.own.spaces_with(channel).map(str::to_owned).collect();
        for namespace in spaces {
            self.keep(Message { namespace, shard: false, channel: channel.clone(), payload: payload.clone() });
        }
    }

    /// Until the listener takes it; without room it is lost.
    fn keep(&mut self, message: Message) -> bool {
        let Message { namespace, channel, payload, .. } = &message;
        let bytes = namespace.len() + channel.len() + payload.len() + size_of::<Message>();
        if self.inbox_bytes + bytes > INBOX_BYTES_MAX {
            self.seen.lost += 1;
            return false;
        }
        self.inbox_bytes += bytes;
        self.inbox.push(message);
        true
    }

    /// The listener gets what is there.
    fn give(&mut self, out: &mut Vec<Output>) {
        if !self.inbox.is_empty()
            && let Some(id) = self.listener.take()
        {
            self.inbox_bytes = 0;
            let heard = Reply::Heard(std::mem::take(&mut self.inbox));
            out.push(Output::Answer { id, outcome: Outcome::Done(heard) });
        }
    }

    /// Answers subscriptions that all live peers have, or that have waited long enough.
    fn end_waits(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.waits.is_empty() {
            return;
        }
        let known = self.peers.values().map(|peer| peer.acked).min().unwrap_or(Some(u64::MAX));
        self.waits.retain(|id, wait| {
            let is_known = known >= Some(wait.number);
            let is_over = is_known || wait.deadline <= now;
            if is_over {
                self.seen.unknown += u64::from(!is_known);
                out.push(Output::Answer { id: *id, outcome: Outcome::Done(Reply::Done) });
            }
            !is_over
        });
    }
}

impl Peer {
    fn batch(&mut self, to: NodeId, boot: Boot) -> Output {
        let messages = std::mem::take(&mut self.out);
        let (stream, first) = (self.stream, self.next);
        (self.next, self.out_bytes) = (first + messages.len() as u64, 0);
        let batch = Batch { boot: boot.0, of: self.boot.0, stream, first, messages };
        Output::Send { to, head: batch.encode_to_vec().into() }
    }
}
