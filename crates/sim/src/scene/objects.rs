//! Load of class `object`.

use base::{Outcome, Span};
use node::Ask;
use state::object::{Op, Reply};

use super::{Asked, Flight, OBJECT, Scene, WARM_UP};
use crate::load;
use crate::object_load::Act;
use crate::promises::{Broken, SERVED_WITHIN};

impl Scene {
    pub(super) fn ask_object(&mut self, client: usize) {
        let now = self.world.now();
        let token = OBJECT + client as u64;
        // A node of the cluster may have said that anything was deleted.
        if self.has_lied {
            return;
        }
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let nodes: Vec<usize> = (0..self.world.machines()).filter(warm).collect();
        if nodes.is_empty() {
            return self.world.alarm(Span::millis(300), token);
        }
        let node = nodes[self.object_load.choose(client, nodes.len())];
        let (act, budget) = self.object_load.draw(client);
        let op = Op { priority: load::priority(self.seed, token, now), ..act.op() };
        // Whether something is nowhere is known when all have said so, and who was emptied is waited for.
        let is_known = match act {
            Act::Get(number, _) => self.objects.must_be_there(number, now),
            Act::Put(_) | Act::List(_) => true,
            Act::Delete(number) => self.objects.must_be_there(number, now),
        };
        let must = self.must_serve() && is_known;
        let id = self.world.ask(node, budget, Ask::Object(op)).expect("the node was seen to run");
        self.answers.asked(id, node, now, budget, self.world.is_hung(node));
        self.objects.begin(&act);
        self.flights.insert(id, Flight { client: token, node, start: now, must, what: Asked::Object(act) });
    }

    pub(super) fn judge_object(&mut self, flight: &Flight, act: &Act, outcome: &Outcome<Reply>) -> Result<(), Broken> {
        if self.has_lied {
            return Ok(());
        }
        let quiet = self.calm_for().filter(|calm| *calm > SERVED_WITHIN).map(|_| self.phase_since + SERVED_WITHIN);
        self.objects.end(act, (flight.start, self.world.now()), quiet, outcome)
    }
}
