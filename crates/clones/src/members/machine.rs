//! The machine of `members`: takes what this node knows of all clones, and what front doors and other nodes ask.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, NodeId, Now, Outcome, Refused, Span, Time, Unknown};
use bytes::Bytes;

use super::limits::*;
use super::news::News;
use super::wire::Head;
use super::{Input, Member, Op, Output, Reply, Said, Scene};
use crate::CloneState;
use crate::limits::SERVICES_MAX_BEFORE;

pub struct Members {
    me: NodeId,
    boot: Boot,
    scene: Scene,
    said: Said,
    /// Invariant: of declared services only.
    news: BTreeMap<String, News>,
    /// Who waits for messages or at a barrier. Not more than [`WAITS_MAX`].
    waits: BTreeMap<AskId, Wait>,
    /// Broadcasts of this node that some live node has not confirmed, by their number. Not more than [`TELLS_MAX`].
    tells: BTreeMap<u64, Tell>,
    tells_begun: u64,
    /// Broadcasts that other nodes have told here.
    heard: BTreeMap<NodeId, Heard>,
}

struct Wait {
    deadline: Time,
    for_what: WaitFor,
}

enum WaitFor {
    News { service: String, after: u64 },
    Barrier(Barrier),
}

struct Barrier {
    service: String,
    barrier: String,
    phase: u64,
    at_least: u32,
}

struct Tell {
    ask: AskId,
    deadline: Time,
    again_at: Time,
    missing: BTreeSet<NodeId>,
    reached: u32,
    head: Bytes,
    body: Bytes,
}

#[derive(Default)]
struct Heard {
    boot: Boot,
    /// Numbers seen; all up to `floor` count as seen.
    numbers: BTreeSet<u64>,
    floor: u64,
}

impl Members {
    pub fn new(me: NodeId, boot: Boot) -> Self {
        Self {
            me,
            boot,
            scene: Scene::default(),
            said: Said::default(),
            news: BTreeMap::new(),
            waits: BTreeMap::new(),
            tells: BTreeMap::new(),
            tells_begun: 0,
            heard: BTreeMap::new(),
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Scene(scene) => self.scene_changed(scene, out),
            Input::Ask { id, budget, op } => self.ask(now.mono, id, budget, op, out),
            Input::Frame { from, head, body } => self.frame(from, &head, body, out),
            Input::Wake => (),
        }
        self.expire(now.mono, out);
    }

    /// The next moment this machine wants `Input::Wake`, if any.
    pub fn wake_at(&self) -> Option<Time> {
        let waits = self.waits.values().map(|wait| wait.deadline);
        waits.chain(self.tells.values().map(|tell| tell.again_at.min(tell.deadline))).min()
    }

    /// The serving member that has been there longest, as far as this node knows.
    pub fn leader(&self, service: &str) -> Option<&str> {
        let members = self.scene.members.get(service)?.iter();
        let ranked = members.filter(|m| m.state == CloneState::Serving).filter_map(|m| {
            let rank = self.everybody().find_map(|said| said.rank(service, &m.life))?;
            Some((rank, m.life.as_str()))
        });
        ranked.min().map(|(_, life)| life)
    }

    fn everybody(&self) -> impl Iterator<Item = &Said> {
        std::iter::once(&self.said).chain(self.scene.said.values())
    }

    fn scene_changed(&mut self, scene: Scene, out: &mut Vec<Output>) {
        self.scene = scene;
        let members = &self.scene.members;
        self.news.retain(|service, _| members.contains_key(service));
        self.heard.retain(|node, _| self.scene.live.contains(node));
        let before = self.said.clone();
        let lives: BTreeMap<&str, BTreeSet<&str>> =
            members.iter().map(|(s, all)| (s.as_str(), all.iter().map(|m| m.life.as_str()).collect())).collect();
        self.said.keep(|service, life| lives.get(service).is_some_and(|lives| lives.contains(life)));
        self.rank_newcomers();
        if self.said != before {
            out.push(Output::Say(self.said.clone()));
        }
        for tell in self.tells.values_mut() {
            // The dead need no message.
            tell.missing.retain(|node| self.scene.live.contains(node));
        }
        self.end_tells(out);
        self.pass_barriers(out);
    }

    fn rank_newcomers(&mut self) {
        for (service, members) in &self.scene.members {
            let new = |m: &&Member| m.node == self.me && self.said.rank(service, &m.life).is_none();
            let new: Vec<String> = members.iter().filter(new).map(|m| m.life.clone()).collect();
            if new.is_empty() {
                continue;
            }
            let of = |said: &Said| said.ranks.get(service).and_then(|ranks| ranks.values().max().copied());
            let highest = self.everybody().filter_map(of).max().unwrap_or(0);
            let ranks = self.said.ranks.entry(service.clone()).or_default();
            ranks.extend((highest + 1..).zip(new).map(|(rank, life)| (life, rank)));
        }
    }

    fn ask(&mut self, now: Time, id: AskId, budget: Span, op: Op, out: &mut Vec<Output>) {
        let refused = |refused: Refused| Output::Answer { id, outcome: Outcome::Refused(refused) };
        let (Op::Arrive { service, .. } | Op::Tell { service, .. } | Op::Listen { service, .. }) = &op;
        if !self.scene.members.contains_key(service) {
            return out.push(refused(Refused::wrong(format!("there is no service {service:?}"))));
        }
        if self.waits.len() >= WAITS_MAX && !matches!(op, Op::Tell { .. }) {
            return out.push(refused(Refused::busy(format!("{WAITS_MAX} wait here already"), Span::secs(1))));
        }
        let deadline = now + budget;
        match op {
            Op::Arrive { service, life, barrier, phase, at_least } => {
                if let Err(why) = self.arrive(&service, &life, &barrier, phase, out) {
                    return out.push(refused(why));
                }
                let barrier = Barrier { service, barrier, phase, at_least };
                self.waits.insert(id, Wait { deadline, for_what: WaitFor::Barrier(barrier) });
                self.pass_barriers(out);
            }
            Op::Listen { service, after } => {
                let news = self.news.entry(service.clone()).or_default();
                // Somebody who was further than we are was so in another life of this node.
                let after = after.filter(|after| *after <= news.last());
                match after {
                    Some(after) if after == news.last() => {
                        self.waits.insert(id, Wait { deadline, for_what: WaitFor::News { service, after } });
                    }
                    Some(after) => {
                        let (messages, at, missed) = news.after(after);
                        out.push(done(id, Reply::News { messages, at, missed }));
                    }
                    None => out.push(done(id, Reply::News { messages: Vec::new(), at: news.last(), missed: 0 })),
                }
            }
            Op::Tell { service, from, body } => self.tell(now, id, deadline, service, from, body, out),
        }
    }

    fn arrive(
        &mut self,
        service: &str,
        life: &str,
        barrier: &str,
        phase: u64,
        out: &mut Vec<Output>,
    ) -> Result<(), Refused> {
        if barrier.is_empty() || barrier.len() > BARRIER_BYTES_MAX {
            return Err(Refused::wrong(format!("a barrier's name has 1 to {BARRIER_BYTES_MAX} bytes")));
        }
        if !self.scene.members.get(service).is_some_and(|members| members.iter().any(|m| m.life == life)) {
            let why = format!("{life:?} is no life of a clone of {service} that this node knows");
            return Err(Refused::busy(why, NOT_KNOWN_YET));
        }
        let before = self.said.phase(service, barrier, life);
        let in_parts = self.scene.members.len() > SERVICES_MAX_BEFORE;
        let bytes_max = if in_parts { SAID_BYTES_IN_PARTS } else { SAID_BYTES_MAX };
        if !self.said.reach(service, barrier, life, phase, bytes_max) {
            let why = "this node has no room for more barriers: use phases of one, instead of new names";
            return Err(Refused::wrong(why));
        }
        if self.said.phase(service, barrier, life) != before {
            out.push(Output::Say(self.said.clone()));
        }
        Ok(())
    }

    /// Ends the waits of all barriers that are passed now.
    fn pass_barriers(&mut self, out: &mut Vec<Output>) {
        let passed = |wait: &Wait| match &wait.for_what {
            WaitFor::Barrier(barrier) => Some(self.at_barrier(barrier))
                .filter(|(there, missing)| missing.is_empty() && *there >= barrier.at_least),
            WaitFor::News { .. } => None,
        };
        let passed: Vec<(AskId, u32)> =
            self.waits.iter().filter_map(|(id, wait)| Some((*id, passed(wait)?.0))).collect();
        for (id, there) in passed {
            self.waits.remove(&id);
            out.push(done(id, Reply::Arrived { passed: true, there, missing: Vec::new() }));
        }
    }

    /// How many have reached it, and who of those that live has not. Who is on its way out is not waited for.
    fn at_barrier(&self, at: &Barrier) -> (u32, Vec<String>) {
        let members = self.scene.members.get(&at.service).into_iter().flatten();
        let counts = |m: &&Member| matches!(m.state, CloneState::Starting | CloneState::Serving);
        let (mut there, mut missing) = (0, Vec::new());
        for member in members.filter(counts) {
            let phase = self.everybody().filter_map(|said| said.phase(&at.service, &at.barrier, &member.life)).max();
            if phase >= Some(at.phase) { there += 1 } else { missing.push(member.life.clone()) }
        }
        (there, missing)
    }

    #[expect(clippy::too_many_arguments, reason = "one call, all of it is one broadcast")]
    fn tell(
        &mut self,
        now: Time,
        ask: AskId,
        deadline: Time,
        service: String,
        from: String,
        body: Bytes,
        out: &mut Vec<Output>,
    ) {
        let refuse = |why: Refused| Output::Answer { id: ask, outcome: Outcome::Refused(why) };
        if body.len() > MESSAGE_BYTES_MAX || from.len() > FROM_BYTES_MAX {
            let why = format!("a message has {MESSAGE_BYTES_MAX} bytes at most, its sender's name {FROM_BYTES_MAX}");
            return out.push(refuse(Refused::wrong(why)));
        }
        if self.tells.len() >= TELLS_MAX {
            return out.push(refuse(Refused::busy("too many broadcasts are under way", TELL_AGAIN)));
        }
        self.tells_begun += 1;
        let number = self.tells_begun;
        let head = Head { boot: self.boot.0, number, service: service.clone(), from: from.clone() }.bytes();
        self.deliver(&service, from, body.clone(), out);
        let missing: BTreeSet<NodeId> = self.scene.live.iter().copied().filter(|node| *node != self.me).collect();
        out.extend(missing.iter().map(|to| Output::Send { to: *to, head: head.clone(), body: body.clone() }));
        let tell = Tell { ask, deadline, again_at: now + TELL_AGAIN, missing, reached: 1, head, body };
        self.tells.insert(number, tell);
        self.end_tells(out);
    }

    fn end_tells(&mut self, out: &mut Vec<Output>) {
        self.tells.retain(|_, tell| {
            if tell.missing.is_empty() {
                out.push(done(tell.ask, Reply::Told { nodes: tell.reached }));
            }
            !tell.missing.is_empty()
        });
    }

    fn frame(&mut self, from: NodeId, head: &[u8], body: Bytes, out: &mut Vec<Output>) {
        let Some(head) = Head::read(head) else { return out.push(Output::Bad { from }) };
        if head.service.is_empty() {
            if head.boot == self.boot.0
                && let Some(tell) = self.tells.get_mut(&head.number)
                && tell.missing.remove(&from)
            {
                tell.reached += 1;
                self.end_tells(out);
            }
            return;
        }
        // Not declared here yet: its sender will say it again.
        let fits = body.len() <= MESSAGE_BYTES_MAX && head.from.len() <= FROM_BYTES_MAX;
        if !fits || !self.scene.members.contains_key(&head.service) {
            return;
        }
        let heard = self.heard.entry(from).or_default();
        if heard.is_new(Boot(head.boot), head.number) {
            self.deliver(&head.service, head.from, body, out);
        }
        let confirms = Head { boot: head.boot, number: head.number, ..Head::default() };
        out.push(Output::Send { to: from, head: confirms.bytes(), body: Bytes::new() });
    }

    fn deliver(&mut self, service: &str, from: String, body: Bytes, out: &mut Vec<Output>) {
        let bytes_max = KEPT_BYTES_MAX.min(KEPT_BYTES_OF_ALL / self.scene.members.len().max(1));
        let news = self.news.entry(service.to_owned()).or_default();
        news.push(from, body, bytes_max);
        self.waits.retain(|id, wait| match &wait.for_what {
            WaitFor::News { service: of, after } if of == service => {
                let (messages, at, missed) = news.after(*after);
                out.push(done(*id, Reply::News { messages, at, missed }));
                false
            }
            WaitFor::News { .. } | WaitFor::Barrier(_) => true,
        });
    }

    /// What time has brought: answers that are due, and broadcasts that are sent again.
    fn expire(&mut self, now: Time, out: &mut Vec<Output>) {
        let due: Vec<AskId> = self.waits.iter().filter(|(_, w)| w.deadline <= now).map(|(id, _)| *id).collect();
        for id in due {
            let wait = self.waits.remove(&id).expect("it was just there");
            let reply = match wait.for_what {
                WaitFor::News { after, .. } => Reply::News { messages: Vec::new(), at: after, missed: 0 },
                WaitFor::Barrier(barrier) => {
                    let (there, missing) = self.at_barrier(&barrier);
                    Reply::Arrived { passed: false, there, missing }
                }
            };
            out.push(done(id, reply));
        }
        self.tells.retain(|_, tell| {
            if tell.deadline <= now {
                let names: Vec<String> = tell.missing.iter().map(NodeId::to_string).collect();
                let why = format!("{} nodes have it, not confirmed by {}", tell.reached, names.join(", "));
                out.push(Output::Answer { id: tell.ask, outcome: Outcome::Unknown(Unknown { why }) });
                return false;
            }
            if tell.again_at <= now {
                tell.again_at = now + TELL_AGAIN;
                let send = |to: &NodeId| Output::Send { to: *to, head: tell.head.clone(), body: tell.body.clone() };
                out.extend(tell.missing.iter().map(send));
            }
            true
        });
    }
}

impl Heard {
    fn is_new(&mut self, boot: Boot, number: u64) -> bool {
        if boot > self.boot {
            *self = Self { boot, ..Self::default() };
        }
        if boot < self.boot || number <= self.floor || !self.numbers.insert(number) {
            return false;
        }
        self.floor = self.floor.max(number.saturating_sub(HEARD_MAX));
        while self.numbers.first().is_some_and(|first| *first <= self.floor) {
            self.numbers.pop_first();
        }
        true
    }
}

fn done(id: AskId, reply: Reply) -> Output {
    Output::Answer { id, outcome: Outcome::Done(reply) }
}
