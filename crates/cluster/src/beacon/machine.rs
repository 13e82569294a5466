//! The table of facts and how it spreads; the story is in `mod.rs`. It leaves bytes to `wire.rs` and numbers to
//! `limits.rs`. One node's table is one machine, as a digest is about all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::checksum::place_hash_pair;
use base::{Boot, NodeId, Now, Rng, Span, Time};
use bytes::Bytes;

use super::limits::*;
use super::wire::{FactIn, FactWire, Have, HaveFact, Message, Summary, Want};
use super::{Input, Output};

/// What this node holds of all nodes' facts, its own included.
pub struct Beacons {
    me: NodeId,
    rng: Rng,
    /// This node's entry is always there.
    origins: BTreeMap<NodeId, Origin>,
    /// Own facts that stand.
    own: BTreeMap<String, Own>,
    /// The last sequence number given to an own fact.
    seq: u64,
    live: BTreeSet<NodeId>,
    linked: BTreeSet<NodeId>,
    /// All nodes understand that facts last.
    lasting: bool,
    near: Option<NodeId>,
    /// Peers still to be told figures in this turn.
    turn: Vec<NodeId>,
    /// A planted bug: all that is said of others is believed, and nothing is refuted.
    believes: bool,
    /// Peers still to be shown the digest in this round.
    round: Vec<NodeId>,
    digest_at: Time,
    /// Nothing expires before this.
    expiry_at: Time,
}

struct Origin {
    /// As membership says.
    boot: Boot,
    facts: BTreeMap<String, Fact>,
}

#[derive(Clone)]
struct Fact {
    seq: u64,
    /// None: removed.
    value: Option<Bytes>,
    ends: Time,
    ttl: Span,
    is_figure: bool,
    /// Somebody else said so.
    hearsay: bool,
}

struct Own {
    ttl: Span,
    say_at: Time,
}

impl Beacons {
    pub fn new(me: NodeId, boot: Boot, rng: Rng) -> Self {
        assert!(me != NodeId(0), "node id 0 means none");
        let origins = BTreeMap::from([(me, Origin { boot, facts: BTreeMap::new() })]);
        Self {
            me,
            rng,
            origins,
            own: BTreeMap::new(),
            seq: 0,
            live: BTreeSet::new(),
            linked: BTreeSet::new(),
            lasting: false,
            near: None,
            turn: Vec::new(),
            believes: false,
            round: Vec::new(),
            digest_at: Time::ZERO,
            expiry_at: Time::NEVER,
        }
    }

    /// Plants the bug that all is believed, for tests of the promises.
    pub fn believing(self) -> Self {
        Self { believes: true, ..self }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let now = now.mono;
        self.expire(now, out);
        match input {
            Input::Put { key, value, ttl } => self.put_all(now, vec![(key, value)], &[], ttl, out),
            Input::PutAll { puts, removes, ttl } => self.put_all(now, puts, &removes, ttl, out),
            Input::PutFigures { figures, ttl, all } => self.put_figures(now, figures, ttl, all, out),
            Input::Level(level) => self.lasting = level >= super::LEVEL_LASTING,
            Input::Near(near) => self.near = near.filter(|near| *near != self.me),
            Input::Remove { key } => self.put_all(now, Vec::new(), &[key], TTL_MAX, out),
            Input::Birth { peer, boot } => {
                if peer != self.me {
                    self.live.insert(peer);
                    self.lives(peer, boot, out);
                    self.send(peer, self.digest(), out);
                }
            }
            Input::Death { peer } => {
                self.stood(now, peer);
                self.live.remove(&peer);
            }
            Input::Linked { peer, up: true } => {
                if self.linked.insert(peer) && self.live.contains(&peer) {
                    // What was hearsay meanwhile, it says itself.
                    self.send(peer, self.digest(), out);
                }
            }
            Input::Linked { peer, up: false } => {
                self.stood(now, peer);
                self.linked.remove(&peer);
            }
            Input::Frame { from, head } => match Message::of(head) {
                Some(message) => self.message(now, from, message, out),
                None => out.push(Output::Bad { from }),
            },
            Input::Wake => (),
        }
        self.repeat(now, out);
        self.show_digest(now, out);
    }

    /// When this wants [`Input::Wake`] next.
    pub fn wake_at(&self) -> Option<Time> {
        let say = self.own.values().map(|own| own.say_at).min().filter(|_| !self.lasting);
        let digest = (!self.live.is_empty()).then_some(self.digest_at);
        let expiry = (self.expiry_at != Time::NEVER).then_some(self.expiry_at);
        [say, digest, expiry].into_iter().flatten().min()
    }

    /// What this origin says under this key, dead or alive.
    pub fn get(&self, origin: NodeId, key: &str) -> Option<&Bytes> {
        self.origins.get(&origin)?.facts.get(key)?.value.as_ref()
    }

    /// What everybody says under this key, by node id.
    pub fn with_key(&self, key: &str) -> impl Iterator<Item = (NodeId, &Bytes)> {
        self.origins.iter().filter_map(move |(id, o)| Some((*id, o.facts.get(key)?.value.as_ref()?)))
    }

    /// What this origin says under keys that begin like this.
    pub fn of<'a>(&'a self, origin: NodeId, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Bytes)> {
        let facts = self.origins.get(&origin).into_iter();
        let facts = facts.flat_map(move |o| o.facts.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)));
        let its = facts.take_while(move |(key, _)| key.starts_with(prefix));
        its.filter_map(|(key, fact)| Some((key.as_str(), fact.value.as_ref()?)))
    }

    /// All facts whose key begins like this, by node id and key.
    pub fn prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (NodeId, &'a str, &'a Bytes)> {
        self.origins.iter().flat_map(move |(id, origin)| {
            let from = origin
                .facts
                .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                .take_while(move |(key, _)| key.starts_with(prefix));
            from.filter_map(|(key, fact)| Some((*id, key.as_str(), fact.value.as_ref()?)))
        })
    }

    fn put_all(&mut self, now: Time, puts: Vec<(String, Bytes)>, removes: &[String], ttl: Span, out: &mut Vec<Output>) {
        let (mut facts, mut changed) = (Vec::new(), Vec::new());
        for (key, value) in puts {
            facts.extend(self.put(now, key, value, ttl, &mut changed));
        }
        facts.extend(removes.iter().filter_map(|key| self.remove(now, key, &mut changed)));
        self.send_all(facts, out);
        out.append(&mut changed);
    }

    fn put_figures(&mut self, now: Time, figures: Vec<(String, Bytes)>, ttl: Span, all: bool, out: &mut Vec<Output>) {
        if !self.lasting {
            return self.put_all(now, figures, &[], ttl, out);
        }
        let (mut facts, mut changed, me) = (Vec::new(), Vec::new(), self.me);
        for (key, value) in figures {
            self.put(now, key.clone(), value, ttl, &mut changed);
            let mine = self.mine();
            let boot = mine.boot;
            let fact = mine.facts.get_mut(&key).expect("it was just put");
            fact.is_figure = true;
            // Also one that is as it was: nobody finds out that it was lost.
            facts.push(fact.wire(now, true, me, boot, &key));
        }
        let to = if all { self.live.iter().copied().collect() } else { self.next_in_turn() };
        self.send_facts(&to, facts, out);
        out.append(&mut changed);
    }

    /// Who is told of a figure now.
    fn next_in_turn(&mut self) -> Vec<NodeId> {
        if self.live.len() <= FIGURES_TO {
            return self.live.iter().copied().collect();
        }
        let mut to: BTreeSet<NodeId> = self.near.into_iter().filter(|near| self.live.contains(near)).collect();
        let room = FIGURES_TO + to.len();
        while to.len() < room {
            if self.turn.is_empty() {
                self.turn.extend(&self.live);
                self.rng.shuffle(&mut self.turn);
            }
            to.extend(self.turn.pop().filter(|peer| self.live.contains(peer)));
        }
        to.into_iter().collect()
    }

    /// What to tell others, if it is another thing than is said.
    fn put(&mut self, now: Time, key: String, value: Bytes, ttl: Span, changed: &mut Vec<Output>) -> Option<FactWire> {
        assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
        assert!(value.len() <= VALUE_BYTES_MAX, "value of {} bytes under {key}", value.len());
        let ttl = ttl.clamp(TTL_MIN, TTL_MAX);
        let same = self.get(self.me, &key) == Some(&value);
        if same && self.own.get(&key).is_some_and(|own| own.ttl == ttl) {
            return None;
        }
        self.own.insert(key.clone(), Own { ttl, say_at: Time::ZERO });
        assert!(self.own.len() <= FACTS_PER_ORIGIN_MAX, "{} own facts", self.own.len());
        let fact = self.say(now, &key, Some(value), ttl);
        if !same {
            changed.push(Output::Changed { origin: self.me, key });
        }
        Some(fact)
    }

    fn remove(&mut self, now: Time, key: &str, changed: &mut Vec<Output>) -> Option<FactWire> {
        self.own.remove(key)?;
        changed.push(Output::Changed { origin: self.me, key: key.to_owned() });
        Some(self.say(now, key, None, TTL_MAX))
    }

    /// Gives an own fact its next version; the result is what to tell others.
    fn say(&mut self, now: Time, key: &str, value: Option<Bytes>, ttl: Span) -> FactWire {
        self.seq += 1;
        let fact = Fact { seq: self.seq, value, ends: now + ttl, ttl, is_figure: false, hearsay: false };
        self.expiry_at = self.expiry_at.min(fact.ends);
        if let Some(own) = self.own.get_mut(key) {
            own.say_at = now + Span(ttl.0 / REPEATS);
        }
        let me = self.me;
        let mine = self.mine();
        let wire = fact.wire(now, false, me, mine.boot, key);
        mine.facts.insert(key.to_owned(), fact);
        wire
    }

    fn mine(&mut self) -> &mut Origin {
        self.origins.get_mut(&self.me).expect("this node's entry is never removed")
    }

    /// Says own facts again before they expire. What is nearly due goes along.
    fn repeat(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.lasting || self.own.values().all(|own| own.say_at > now) {
            return;
        }
        let nearly = |own: &Own| own.say_at <= now + Span(own.ttl.0 / (4 * REPEATS));
        let due: Vec<_> =
            self.own.iter().filter(|(_, own)| nearly(own)).map(|(key, own)| (key.clone(), own.ttl)).collect();
        let mut facts = Vec::with_capacity(due.len());
        for (key, ttl) in due {
            let value = self.mine().facts.get(&key).and_then(|fact| fact.value.clone());
            facts.push(self.say(now, &key, Some(value.expect("an own fact that stands has a value")), ttl));
        }
        self.send_all(facts, out);
    }

    /// Shows the digest to the next peer. Peers come in a new random order each round, so none waits for long.
    fn show_digest(&mut self, now: Time, out: &mut Vec<Output>) {
        if now < self.digest_at || self.live.is_empty() {
            return;
        }
        self.digest_at = now + Span(self.rng.between(DIGEST_PERIOD.0 * 3 / 4, DIGEST_PERIOD.0 * 5 / 4));
        loop {
            if self.round.is_empty() {
                self.round.extend(&self.live);
                self.rng.shuffle(&mut self.round);
            }
            let peer = self.round.pop().expect("somebody is live");
            if self.live.contains(&peer) {
                let total = Message { total: Some(self.total()), ..Message::default() };
                return self.send(peer, if self.lasting { total } else { self.digest() }, out);
            }
        }
    }

    fn digest(&self) -> Message {
        let line = |(id, o): (&NodeId, &Origin)| Summary { origin: id.0, boot: o.boot.0, sum: o.sum() };
        Message { digest: self.origins.iter().map(line).collect(), is_digest: true, ..Message::default() }
    }

    /// Over all that stands but figures, whoever said it.
    fn total(&self) -> u64 {
        let parts = self.origins.iter().filter(|(_, origin)| origin.facts.values().any(|fact| !fact.is_figure));
        let part = |(id, origin): (&NodeId, &Origin)| {
            let life = place_hash_pair(&id.0.to_le_bytes(), origin.boot.0);
            place_hash_pair(&life.to_le_bytes(), origin.sum())
        };
        parts.map(part).fold(0, u64::wrapping_add)
    }

    /// Does its word stand until it says otherwise? Of this node, and of who lives and speaks for itself.
    fn stands(&self, id: NodeId) -> bool {
        id == self.me || (self.live.contains(&id) && self.linked.contains(&id))
    }

    /// From now on what this origin said stands no longer by itself.
    fn stood(&mut self, now: Time, id: NodeId) {
        if self.stands(id) {
            self.lasts(now, id);
        }
    }

    /// What this origin said has its time to live anew.
    fn lasts(&mut self, now: Time, id: NodeId) {
        let facts = self.origins.get_mut(&id).into_iter().flat_map(|origin| origin.facts.values_mut());
        for fact in facts.filter(|fact| fact.value.is_some()) {
            fact.ends = fact.ends.max(now + fact.ttl);
            self.expiry_at = self.expiry_at.min(fact.ends);
        }
    }

    /// A peer has the same of these origins as this node: of who lives and is not heard here, that is a sign that it still says so.
    fn same(&mut self, now: Time, ids: impl Iterator<Item = NodeId>) {
        let unheard: Vec<NodeId> =
            ids.filter(|id| self.lasting && self.live.contains(id) && !self.stands(*id)).collect();
        unheard.into_iter().for_each(|id| self.lasts(now, id));
    }

    fn message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Output>) {
        let mut asked: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        let (mut refuted, mut lies) = (Vec::new(), Vec::new());
        for fact in message.facts.into_iter().filter_map(FactWire::checked) {
            if fact.origin == self.me {
                if fact.value.is_some() || !self.has_forgotten(&fact.key, fact.seq) {
                    refuted.extend(self.refute(now, fact.boot, &fact.key, fact.seq, &mut lies));
                }
            } else if let Some(key) = self.take(now, from, &fact, out) {
                asked.entry(fact.origin).or_default().push(key);
            }
        }
        for line in &message.digest {
            self.heard_of(NodeId(line.origin), Boot(line.boot), &mut lies, out);
        }
        for (origin, keys) in asked {
            let want = vec![Want { origin: origin.0, keys }];
            self.send(origin, Message { want, ..Message::default() }, out);
        }
        let mut answer = Message::default();
        if message.is_digest {
            answer.have = self.differing(&message.digest);
            let is_same = |line: &&Summary| {
                let ours = self.origins.get(&NodeId(line.origin)).map(|origin| (origin.boot.0, origin.sum()));
                ours == Some((line.boot, line.sum))
            };
            let same: Vec<NodeId> = message.digest.iter().filter(is_same).map(|line| NodeId(line.origin)).collect();
            self.same(now, same.into_iter());
        }
        match message.total {
            Some(total) if total == self.total() => {
                let all: Vec<NodeId> = self.origins.keys().copied().collect();
                self.same(now, all.into_iter());
            }
            Some(_) => self.send(from, self.digest(), out),
            None => (),
        }
        let mut facts = Vec::new();
        for have in message.have.iter().take(ORIGINS_MAX) {
            let (origin, boot) = (NodeId(have.origin), Boot(have.boot));
            self.heard_of(origin, boot, &mut lies, out);
            if origin == self.me {
                let said = have.facts.iter().take(FACTS_PER_ORIGIN_MAX);
                let (unsure, sure): (Vec<_>, Vec<_>) = said.partition(|f| self.has_forgotten(&f.key, f.seq));
                refuted.extend(sure.into_iter().filter_map(|f| self.refute(now, boot, &f.key, f.seq, &mut lies)));
                let keys: Vec<String> = unsure.into_iter().map(|fact| fact.key.clone()).collect();
                answer.want.extend((!keys.is_empty()).then_some(Want { origin: origin.0, keys }));
            }
            let (lacks, wants) = self.compare(now, have);
            facts.extend(lacks);
            let by_itself = |want: &Want| origin == from || !self.linked.contains(&NodeId(want.origin));
            answer.want.extend(wants.filter(|want| self.believes || by_itself(want)));
        }
        // Who else has it shows it, and is told.
        self.send_facts(&[from], refuted, out);
        if let Some(lie) = lies.first() {
            let more = if lies.len() > 1 { format!(", and {} more", lies.len() - 1) } else { String::new() };
            out.push(Output::Refuted { what: format!("{from} has of this node {lie}{more}") });
        }
        for want in message.want {
            facts.extend(self.wanted(now, &want));
        }
        if !answer.have.is_empty() || !answer.want.is_empty() {
            self.send(from, answer, out);
        }
        self.send_facts(&[from], facts, out);
    }

    /// Membership says which life of an origin this is. Another one replaces all that the former one said, even if it says nothing.
    fn lives(&mut self, id: NodeId, boot: Boot, out: &mut Vec<Output>) {
        let full = !self.origins.contains_key(&id) && self.origins.len() >= ORIGINS_MAX;
        if id == self.me || id == NodeId(0) || full {
            return;
        }
        let origin = self.origins.entry(id).or_insert_with(|| Origin { boot, facts: BTreeMap::new() });
        if boot != origin.boot {
            origin.boot = boot;
            let gone = std::mem::take(&mut origin.facts).into_iter().filter(|(_, fact)| fact.value.is_some());
            out.extend(gone.map(|(key, _)| Output::Changed { origin: id, key }));
        }
    }

    /// A peer has this life of an origin. Of itself a node knows better; of others membership does.
    fn heard_of(&mut self, id: NodeId, boot: Boot, lies: &mut Vec<String>, out: &mut Vec<Output>) {
        if self.believes && self.origins.get(&id).is_none_or(|origin| origin.boot < boot) {
            self.lives(id, boot, out);
        }
        let is_lie = id == self.me && boot > self.mine().boot;
        if is_lie && !self.believes {
            lies.push(format!("what it said in {boot}, which it has not had"));
        }
    }

    /// May this be what it removed so long ago that it does not know of it any more?
    fn has_forgotten(&self, key: &str, seq: u64) -> bool {
        seq <= self.seq && !self.origins[&self.me].facts.contains_key(key)
    }

    /// Somebody has a fact of this node. If it did not say so, or has said it since: what to say instead.
    fn refute(&mut self, now: Time, boot: Boot, key: &str, seq: u64, lies: &mut Vec<String>) -> Option<FactWire> {
        let said = self.mine().facts.get(key).map(|fact| fact.seq);
        if self.believes || boot != self.mine().boot || said.is_some_and(|said| said >= seq) {
            return None;
        }
        if key.len() > KEY_BYTES_MAX || self.mine().facts.len() >= 2 * FACTS_PER_ORIGIN_MAX {
            return None;
        }
        lies.push(format!("{key:?} as it has not said it"));
        // Whoever is linked takes this node's own word in any case; for the others it must be newer. It never runs out of
        // numbers over that.
        if seq < SEQ_OUTBID_MAX {
            self.seq = self.seq.max(seq);
        }
        let value = self.mine().facts.get(key).and_then(|fact| fact.value.clone());
        let ttl = self.own.get(key).map_or(TTL_MAX, |own| own.ttl);
        Some(self.say(now, key, value, ttl))
    }

    /// Takes in one fact from outside if it is newer than what is known. The key, if its origin is to be asked instead.
    fn take(&mut self, now: Time, from: NodeId, new: &FactIn, out: &mut Vec<Output>) -> Option<String> {
        let own_word = from == new.origin;
        if new.ttl < TTL_WORTH_SENDING {
            return None;
        }
        if self.believes {
            self.heard_of(new.origin, new.boot, &mut Vec::new(), out);
        }
        let origin = self.origins.get_mut(&new.origin).filter(|origin| origin.boot == new.boot)?;
        let known = origin.facts.get(&new.key);
        let is_newer = known.is_none_or(|fact| fact.seq < new.seq);
        let corrects = own_word && known.is_some_and(|fact| fact.hearsay);
        if !is_newer && !corrects {
            return None;
        }
        if !own_word && !self.believes && self.linked.contains(&new.origin) {
            return Some(new.key.clone());
        }
        let known_value = known.and_then(|fact| fact.value.as_ref());
        let changed = known_value != new.value.as_ref();
        let like_it = origin.facts.values().filter(|f| f.value.is_some() == new.value.is_some()).count();
        if known.is_none() && like_it >= FACTS_PER_ORIGIN_MAX {
            return None;
        }
        let ends = now + new.ttl.min(TTL_MAX);
        self.expiry_at = self.expiry_at.min(ends);
        // Hearsay is compared whatever it is, or it would stay when its origin is heard.
        let (ttl, is_figure) = (new.ttl.min(TTL_MAX), new.is_figure && own_word);
        let fact = Fact { seq: new.seq, value: new.value.clone(), ends, ttl, is_figure, hearsay: !own_word };
        origin.facts.insert(new.key.clone(), fact);
        if changed {
            out.push(Output::Changed { origin: new.origin, key: new.key.clone() });
        }
        None
    }

    /// What we have of all origins where a peer's digest differs from ours.
    fn differing(&self, digest: &[Summary]) -> Vec<Have> {
        let theirs: BTreeMap<NodeId, (Boot, u64)> =
            digest.iter().map(|line| (NodeId(line.origin), (Boot(line.boot), line.sum))).collect();
        let ids: BTreeSet<NodeId> = theirs.keys().chain(self.origins.keys()).copied().collect();
        let differs = |id: &NodeId| self.origins.get(id).map(|o| (o.boot, o.sum())) != theirs.get(id).copied();
        let have = |id: NodeId| match self.origins.get(&id) {
            Some(origin) => Have {
                origin: id.0,
                boot: origin.boot.0,
                facts: origin.facts.iter().map(|(k, f)| HaveFact { key: k.clone(), seq: f.seq }).collect(),
            },
            None => Have { origin: id.0, boot: 0, facts: Vec::new() },
        };
        ids.into_iter().filter(|id| id.0 != 0 && differs(id)).take(ORIGINS_MAX).map(have).collect()
    }

    /// What a peer lacks of one origin, and what it has newer.
    fn compare(&self, now: Time, theirs: &Have) -> (Vec<FactWire>, Option<Want>) {
        let id = NodeId(theirs.origin);
        let seqs: BTreeMap<&str, u64> = theirs.facts.iter().map(|f| (f.key.as_str(), f.seq)).collect();
        let (boot, ours) = match self.origins.get(&id) {
            Some(origin) => (origin.boot, Some(&origin.facts)),
            None => (Boot(0), None),
        };
        let mut lacks = Vec::new();
        if boot.0 >= theirs.boot {
            let newer = |key: &str, f: &Fact| boot.0 > theirs.boot || seqs.get(key).is_none_or(|seq| *seq < f.seq);
            let ours = ours.into_iter().flatten().filter(|(key, f)| newer(key, f));
            lacks.extend(ours.map(|(key, f)| f.wire(now, self.stands(id), id, boot, key)));
        }
        let is_other = theirs.boot < boot.0 || (theirs.boot > boot.0 && !self.believes);
        let keys: Vec<String> = if is_other || id == self.me {
            Vec::new()
        } else {
            let same_boot = ours.filter(|_| theirs.boot == boot.0);
            let older = |f: &&HaveFact| same_boot.and_then(|o| o.get(&f.key)).is_none_or(|known| known.seq < f.seq);
            theirs.facts.iter().filter(older).map(|f| f.key.clone()).collect()
        };
        (lacks, (!keys.is_empty()).then_some(Want { origin: id.0, keys }))
    }

    fn wanted(&self, now: Time, want: &Want) -> Vec<FactWire> {
        let id = NodeId(want.origin);
        let Some(origin) = self.origins.get(&id) else { return Vec::new() };
        // A set: a peer that names one key a thousand times gets it once.
        let keys: BTreeSet<&String> = want.keys.iter().collect();
        let wire = |key: &String| Some(origin.facts.get(key)?.wire(now, self.stands(id), id, origin.boot, key));
        keys.into_iter().filter_map(wire).collect()
    }

    fn expire(&mut self, now: Time, out: &mut Vec<Output>) {
        if now < self.expiry_at {
            return;
        }
        let (me, own, live, linked) = (self.me, &self.own, &self.live, &self.linked);
        for (id, origin) in &mut self.origins {
            let speaks = live.contains(id) && linked.contains(id);
            origin.facts.retain(|key, fact| {
                // An own fact stands until it is removed, however late we are with saying it again.
                let stands = (*id == me && own.contains_key(key)) || (speaks && fact.value.is_some());
                let keep = fact.ends > now || stands;
                if !keep && fact.value.is_some() {
                    out.push(Output::Changed { origin: *id, key: key.clone() });
                }
                keep
            });
        }
        let live = &self.live;
        self.origins.retain(|id, origin| *id == me || !origin.facts.is_empty() || live.contains(id));
        let ends = |fact: &Fact| Some(fact.ends).filter(|ends| *ends > now);
        let next = self.origins.values().flat_map(|origin| origin.facts.values().filter_map(ends)).min();
        self.expiry_at = next.unwrap_or(Time::NEVER);
    }

    fn send_all(&self, facts: Vec<FactWire>, out: &mut Vec<Output>) {
        let to: Vec<NodeId> = self.live.iter().copied().collect();
        self.send_facts(&to, facts, out);
    }

    /// Sends facts in as many frames as they need.
    fn send_facts(&self, to: &[NodeId], facts: Vec<FactWire>, out: &mut Vec<Output>) {
        let worth = |fact: &FactWire| u64::from(fact.ttl_ms) >= TTL_WORTH_SENDING.as_millis();
        let mut batch = Message::default();
        let mut bytes = 0;
        for fact in facts.into_iter().filter(worth) {
            let size = fact.key.len() + fact.value.as_ref().map_or(0, Bytes::len);
            if bytes + size > FACTS_BYTES_MAX {
                self.send_each(to, std::mem::take(&mut batch), out);
                bytes = 0;
            }
            bytes += size;
            batch.facts.push(fact);
        }
        if !batch.facts.is_empty() {
            self.send_each(to, batch, out);
        }
    }

    fn send_each(&self, to: &[NodeId], message: Message, out: &mut Vec<Output>) {
        let head = message.encode();
        out.extend(to.iter().map(|to| Output::Send { to: *to, head: head.clone() }));
    }

    fn send(&self, to: NodeId, message: Message, out: &mut Vec<Output>) {
        self.send_each(&[to], message, out);
    }
}

impl Origin {
    fn sum(&self) -> u64 {
        let compared = self.facts.iter().filter(|(_, fact)| !fact.is_figure);
        compared.fold(0, |sum, (key, fact)| sum.wrapping_add(place_hash_pair(key.as_bytes(), fact.seq)))
    }
}

impl Fact {
    /// `stands`: its origin speaks for itself here, so its time to live does not shrink.
    fn wire(&self, now: Time, stands: bool, origin: NodeId, boot: Boot, key: &str) -> FactWire {
        let left =
            if stands && self.value.is_some() { self.ends.since(now).max(self.ttl) } else { self.ends.since(now) };
        let left = left.as_millis().min(TTL_MAX.as_millis());
        FactWire {
            origin: origin.0,
            boot: boot.0,
            key: key.to_owned(),
            seq: self.seq,
            value: self.value.clone(),
            ttl_ms: left as u32,
            is_figure: self.is_figure,
        }
    }
}

#[cfg(test)]
impl Beacons {
    /// Nothing but facts that stand is kept.
    pub(super) fn origins_are_small(&self) -> bool {
        self.origins.values().all(|origin| origin.facts.values().all(|fact| fact.value.is_some()))
    }
}
