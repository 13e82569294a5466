//! Load of classes `session` and `linear`: who asks what of which node.

use base::Span;
use node::Ask;
use state::linear;
use state::session::Op;

use super::{APPLY_BUDGET, Asked, Flight, LINEAR, Linearly, MODES, OPERATOR, Scene, WARM_UP};
use crate::linear_load;
use crate::load::{self, Drawn};
use crate::promises::linear::Linear;

impl Scene {
    /// One client's next operation.
    pub(super) fn ask(&mut self, client: usize) {
        let drawn = self.load.draw(client);
        self.send(client, drawn);
    }

    pub(super) fn send(&mut self, client: usize, drawn: Drawn) {
        let now = self.world.now();
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let nodes: Vec<usize> = (0..self.world.machines()).filter(warm).collect();
        if nodes.is_empty() {
            return self.world.alarm(Span::millis(300), client as u64);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let mut op = Op::keyed(load::NAMESPACE.into(), drawn.key.clone().into_bytes().into(), drawn.action.clone());
        op.priority = load::priority(self.seed, client as u64, now);
        let must = self.must_serve();
        let id = self.world.ask(node, drawn.budget, Ask::Session(op)).expect("the node was seen to run");
        self.answers.asked(id, node, now, drawn.budget, self.world.is_hung(node));
        if let Some((write, what)) = drawn.write {
            self.sessions.begin(&drawn.key, write, what, now);
        }
        self.flights.insert(id, Flight { client: client as u64, node, start: now, must, what: Asked::Session(drawn) });
    }

    pub(super) fn ask_linear(&mut self, client: usize) {
        let now = self.world.now();
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let nodes: Vec<usize> = (0..self.world.machines()).filter(warm).collect();
        let token = LINEAR + client as u64;
        if nodes.is_empty() {
            return self.world.alarm(Span::millis(300), token);
        }
        let node = nodes[self.linear_load.choose(client, nodes.len())];
        let asked = match self.again.remove(&token) {
            Some(again) => Linearly { tries: again.tries + 1, ..again },
            None => {
                let (act, budget) = self.linear_load.draw(client);
                let once = self.linear_load.name(client, &act, now);
                self.promise_of(&act).begin(&act, now);
                Linearly { act, budget, once, begun: now, tries: 1, in_doubt: false, told: None }
            }
        };
        let priority = load::priority(self.seed, token, now);
        let (budget, op) = (asked.budget, linear::Op { once: asked.once, priority, ..asked.act.op(asked.tries) });
        let id = self.world.ask(node, budget, Ask::Linear(op)).expect("the node was seen to run");
        self.answers.asked(id, node, now, budget, self.world.is_hung(node));
        let must = self.must_serve() && !self.waits_for_memory();
        self.flights.insert(id, Flight { client: token, node, start: now, must, what: Asked::Linear(asked) });
    }

    pub(super) fn promise_of(&mut self, act: &linear_load::Act) -> &mut Linear {
        if act.is_wide() { &mut self.wide } else { &mut self.linear }
    }

    pub(super) fn ask_mode(&mut self, client: usize) {
        let now = self.world.now();
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let nodes: Vec<usize> = (0..self.world.machines()).filter(warm).collect();
        let token = MODES + client as u64;
        if nodes.is_empty() {
            return self.world.alarm(Span::millis(300), token);
        }
        let node = nodes[self.modes_load.choose(client, nodes.len())];
        let (act, budget) = self.modes_load.draw(client);
        let op = Op { priority: load::priority(self.seed, token, now), ..act.op() };
        let must = self.must_serve();
        let id = self.world.ask(node, budget, Ask::Session(op)).expect("the node was seen to run");
        self.answers.asked(id, node, now, budget, self.world.is_hung(node));
        self.modes.begin(&act);
        self.flights.insert(id, Flight { client: token, node, start: now, must, what: Asked::Modes(act) });
    }

    /// What an operator asks of a node.
    pub(super) fn send_operator(&mut self, node: usize, ask: Ask, what: Asked) {
        let now = self.world.now();
        let id = self.world.ask(node, APPLY_BUDGET, ask).expect("the node was seen to run");
        self.answers.asked(id, node, now, APPLY_BUDGET, self.world.is_hung(node));
        self.flights.insert(id, Flight { client: OPERATOR, node, start: now, must: false, what });
    }
}
