//! Load of class `sql`.

use base::Span;
use node::Ask;

use super::{Asked, Flight, SQL, Scene, WARM_UP};
use crate::load;

impl Scene {
    pub(super) fn ask_sql(&mut self, client: usize) {
        let now = self.world.now();
        let token = SQL + client as u64;
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let nodes: Vec<usize> = (0..self.world.machines()).filter(warm).collect();
        if nodes.is_empty() {
            return self.world.alarm(Span::millis(300), token);
        }
        let node = nodes[self.sql_load.choose(client, nodes.len())];
        let (act, budget) = self.sql_load.draw(client);
        let op = state::linear::Op { priority: load::priority(self.seed, token, now), ..act.op(now) };
        let id = self.world.ask(node, budget, Ask::Linear(op)).expect("the node was seen to run");
        self.answers.asked(id, node, now, budget, self.world.is_hung(node));
        self.sql.begin(&act);
        let must = self.must_serve();
        self.flights.insert(id, Flight { client: token, node, start: now, must, what: Asked::Sql(act) });
    }
}
