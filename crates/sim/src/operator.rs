//! The one operator of a run: when declarations are applied, what they say, and which node is drained.

use base::{Rng, Span};

use crate::plays::linear::load::WIDE_SHARDS;
use crate::plays::session::load::NAMESPACE;
use crate::plays::{Declared, Name};

/// Namespace whose lease is the operator's mark.
const MARK: &str = "mark";
/// The mark's lease is so much more than its number, in seconds.
const MARK_BASE_SECS: u64 = 60;

pub struct Operator {
    rng: Rng,
    marks: u64,
    /// Of what is declared.
    memory: bool,
    on: Vec<Name>,
}

impl Operator {
    pub fn new(memory: bool, on: Vec<Name>, rng: Rng) -> Self {
        Self { rng, marks: 0, memory, on }
    }

    /// Until the next apply.
    pub fn pause(&mut self) -> Span {
        Span::millis(self.rng.between(2_000, 15_000))
    }

    /// Whether a node is drained now or put back (in place of a declaration), its number from 0, which way, and which of `n` nodes to
    /// ask.
    pub fn switch(&mut self, machines: usize, n: usize) -> Option<(usize, bool, usize)> {
        let rng = &mut self.rng;
        let now = rng.chance(0.3);
        now.then(|| (rng.below(machines as u64) as usize, rng.chance(0.4), rng.below(n as u64) as usize))
    }

    /// The next declaration, its mark, and which of `n` nodes to ask.
    pub fn declare(&mut self, n: usize) -> (String, u64, usize) {
        self.marks += 1;
        let text = declaration(self.marks, self.memory, &self.on, &mut self.rng);
        (text, self.marks, self.rng.below(n as u64) as usize)
    }
}

/// A declaration that shows its mark. Mark 0 is the one that the cluster is founded with.
/// `memory`: what class `linear` acknowledges is not forced yet. `on`: plays with clients; those of every run are there besides.
pub fn declaration(mark: u64, memory: bool, on: &[Name], rng: &mut Rng) -> String {
    let clones = rng.between(1, 4);
    let colour = rng.below(3);
    let mut text = format!(
        "[namespace.{MARK}]\nclass = \"session\"\nlease = \"{}s\"\n\
         [service.shop]\nrun = [\"shop\"]\nclones = {clones}\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n\
         namespaces = [\"{NAMESPACE}\"]\nenv = {{ COLOUR = \"{colour}\" }}\n",
        MARK_BASE_SECS + mark,
    );
    let declared = Declared { mark, memory };
    let played = |name: &&Name| name.is_always() || on.contains(name);
    Name::ALL.iter().filter(played).for_each(|name| text += &name.declares(&declared));
    for extra in 0..rng.below(3) {
        let clones = rng.between(1, 3);
        text += &format!("[service.extra{extra}]\nrun = [\"extra\"]\nclones = {clones}\n");
    }
    text
}

/// Shards of the namespace with many that are declared with this mark.
pub fn wide_shards(mark: u64) -> u64 {
    (1 + mark / 2).min(WIDE_SHARDS)
}

/// The mark that a view shows.
pub fn mark(view: &node::View) -> Option<u64> {
    let namespace = view.namespaces.iter().find(|namespace| namespace.name == MARK)?;
    (namespace.lease_ms / 1000).checked_sub(MARK_BASE_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_is_right_and_shows_its_mark() {
        let mut rng = Rng::new(5);
        for mark in 0..50_u64 {
            let nothing = cluster::root::Declared::default();
            let every = |(nth, _): &(usize, Name)| mark.is_multiple_of(2 * *nth as u64 + 3);
            let on: Vec<Name> = Name::ALL.iter().copied().enumerate().filter(every).map(|(_, name)| name).collect();
            let text = declaration(mark, mark.is_multiple_of(2), &on, &mut rng);
            let diff = node::declared::diff(&nothing, "sim.toml", &text, &[1; 32]).unwrap();
            assert!(diff.lines.contains(&"+ service shop".to_string()), "{:?}", diff.lines);
        }
    }
}
