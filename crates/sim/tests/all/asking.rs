//! What tests with a world of their own have in common: time that passes in it, and questions that are waited for.

use std::collections::BTreeMap;

use base::{AskId, Span};
use node::{Answer, Ask};
use sim::shipped::{Cluster, Shipped};
use sim::world::{Happened, World};

pub trait AsksNodes {
    fn world(&mut self) -> &mut World<Cluster>;

    /// What was answered and is not taken yet.
    fn answers(&mut self) -> &mut BTreeMap<AskId, Answer>;

    fn hear(&mut self, happened: Happened<Shipped>);

    fn run(&mut self, span: Span) {
        let end = self.world().now() + span;
        while let Some(happened) = self.world().next(end) {
            self.hear(happened);
        }
    }

    /// Asks a node, and waits for the answer a second longer than the node may. None: it does not run, or does not answer.
    fn ask(&mut self, node: usize, budget: Span, ask: Ask) -> Option<Answer> {
        let id = self.world().ask(node, budget, ask)?;
        let end = self.world().now() + budget + Span::secs(1);
        while !self.answers().contains_key(&id) {
            let happened = self.world().next(end)?;
            self.hear(happened);
        }
        self.answers().remove(&id)
    }
}
