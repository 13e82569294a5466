//! What a put of class `linear` costs the machines of three nodes, without sockets and disks: in one thread, clients in a closed
//! loop at all nodes, a disk that has everything at once. Prints processor time per put, all three nodes together.
//! `cargo run --release -p linear --example puts -- [clients] [value bytes] [seconds]`

use std::collections::VecDeque;
use std::time::Instant;

use base::{AskId, Boot, Frame, GroupId, NodeId, Now, Rng, Span, Time};
use bytes::Bytes;
use class::Class;
use linear::{Input, Linear, Op, Output, Placed};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// In a real batch so many frames lie in one read.
const TURN: usize = 16;
const BUDGET: Span = Span::secs(5);

struct Nodes {
    nodes: Vec<Linear>,
    now: u64,
    inbox: [VecDeque<Input>; 3],
    value: Bytes,
    turns: Vec<u64>,
    done: u64,
}

impl Nodes {
    fn handle(&mut self, at: usize, input: Input) {
        let mut out = Vec::new();
        let mono = Time::ZERO + Span(self.now);
        self.nodes[at].handle(Now { mono, wall_ms: self.now / 1_000 }, input, &mut out);
        for output in out {
            match output {
                Output::Send { to, frame } => {
                    // Over a wire, as links do it: in memory of its own.
                    let mut bytes = bytes::BytesMut::with_capacity(frame.wire_len());
                    frame.encode(&mut bytes);
                    let frame = Frame::decode(&mut bytes).expect("a frame").expect("all of it");
                    self.inbox[to.0 as usize - 1].push_back(Input::Frame { from: NodeId(at as u64 + 1), frame });
                }
                Output::Append { group, ticket, records, .. } => {
                    std::hint::black_box(&records);
                    self.inbox[at].push_back(Input::Appended { group, ticket });
                }
                Output::Save { group, ticket, parts } => {
                    parts.0.for_each(drop);
                    self.inbox[at].push_back(Input::Saved { group, ticket });
                }
                Output::Answer { id, answer: outcome } => {
                    assert!(matches!(outcome, base::Outcome::Done(_)), "{outcome:?}");
                    self.done += 1;
                    self.ask(id.0 as usize);
                }
                _ => (),
            }
        }
    }

    fn ask(&mut self, client: usize) {
        self.turns[client] += 1;
        let key = Bytes::from(format!("{client}:{}", self.turns[client] % 16));
        // As the Redis door has it: a slice of what was read.
        let mut read = bytes::BytesMut::with_capacity(self.value.len() + 64);
        read.extend_from_slice(&self.value);
        let words = [&b"always"[..], b"none"].map(Bytes::from_static);
        let args = [vec![read.split().freeze()], words.to_vec()].concat();
        let op = Op::one("bank".into(), key, "put", args);
        self.inbox[client % 3].push_back(Input::Ask { id: AskId(client as u64), budget: BUDGET, op });
    }

    fn turn(&mut self) {
        for at in 0..3 {
            for _ in 0..TURN {
                let Some(input) = self.inbox[at].pop_front() else { break };
                self.handle(at, input);
            }
            let is_due = |linear: &Linear, now| linear.wake_at().is_some_and(|wake| wake <= Time::ZERO + Span(now));
            if is_due(&self.nodes[at], self.now) {
                self.handle(at, Input::Wake);
            }
        }
        self.now += 20;
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().expect("a number"));
    let clients = args.next().unwrap_or(64);
    let (bytes, seconds) = (args.next().unwrap_or(1_024), args.next().unwrap_or(3));
    let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let nodes = ids.iter().map(|id| Linear::new(*id, Boot(1), Rng::new(id.0))).collect();
    let value = Bytes::from(vec![b'x'; bytes]);
    let mut all = Nodes { nodes, now: 0, inbox: Default::default(), value, turns: vec![0; clients], done: 0 };
    let id = GroupId(1 << 20);
    let placed = Placed {
        id,
        namespace: "bank".into(),
        from: 0,
        to: u64::MAX,
        members: ids.clone(),
        founders: ids.clone(),
        epoch: 0,
        memory: false,
        splits: 0,
        split: None,
    };
    for at in 0..3 {
        for peer in ids.iter().filter(|peer| peer.0 != at as u64 + 1) {
            all.handle(at, Input::Birth { peer: *peer, boot: Boot(1) });
        }
        all.handle(at, linear::declared(1, base::LEVEL, [placed.clone()]));
    }
    while !all.nodes.iter().any(|node| node.led().next().is_some()) {
        all.turn();
    }
    (0..clients).for_each(|client| all.ask(client));
    let (begun, mut from) = (Instant::now(), 0);
    let mut warm = begun;
    while warm.elapsed().as_secs() < seconds as u64 {
        all.turn();
        // The first second is for the allocator.
        if from == 0 && begun.elapsed().as_millis() >= 1_000 {
            (from, warm) = (all.done, Instant::now());
        }
    }
    let puts = all.done - from;
    println!("{puts} puts, {:.2} us each", warm.elapsed().as_secs_f64() * 1e6 / puts as f64);
}
