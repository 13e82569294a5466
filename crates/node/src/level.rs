//! The cluster's level ([`base::level`]): which functions, arguments and log entries all nodes understand alike. It is a record of
//! the root group, which its leader raises as soon as all nodes have more. It never sinks: what came with it may be in any log.
//!
//! A node whose program has less does not take part. It finds out by its own log, by the record when the root group brings it, or
//! because whoever it connects to says so and hangs up; then it ends, and leaves all that it has to the newer program.

use base::{Effect, Frame, NodeId, Note, Now, kind};
use cluster::Card;
use cluster::root::Declared;

use crate::declared::kind as record;
use crate::facts;
use crate::node::{Node, Out};

/// The one record of its kind.
const NAME: &str = "cluster";

/// What the cluster has agreed on.
pub fn agreed(declared: &Declared) -> u32 {
    declared.get(record::LEVEL, NAME).and_then(|bytes| facts::decode(bytes)).unwrap_or(1)
}

/// The record, as a part of a [`cluster::root::Change`].
pub fn put(level: u32) -> (String, String, bytes::Bytes) {
    (record::LEVEL.to_owned(), NAME.to_owned(), facts::encode(&level))
}

/// What a program is told that has too little, if it has.
pub(crate) fn lacks(has: u32, agreed: u32) -> Option<String> {
    let why = || format!("this cluster agreed on level {agreed}, this program has {has}: start the newer program");
    (has < agreed).then(why)
}

impl Node {
    pub(crate) fn agreed(&self) -> u32 {
        agreed(self.root.declared())
    }

    /// Ends this node if its program has less than that. True: it ends.
    pub(crate) fn ends_below(&mut self, agreed: u32, out: &mut Out) -> bool {
        let why = lacks(self.card.level, agreed);
        let ends = why.is_some();
        out.extend(why.map(|why| Effect::Outdated { why }));
        ends
    }

    /// Somebody connects whose program has less than all have agreed on: it is told so, and is nobody here.
    pub(crate) fn turn_away(&mut self, card: &Card, out: &mut Out) {
        let (agreed, name) = (self.agreed(), &card.name);
        let text = format!("{name} runs a program of level {}, this cluster agreed on {agreed}; hung up", card.level);
        out.push(Effect::Note(Note::warn(text)));
        out.push(Effect::Send { to: card.id, frame: Frame::new(kind::LEVEL, facts::encode(&agreed)) });
        // What was sent has a moment to arrive.
        self.turned_away.insert(card.id);
    }

    pub(crate) fn hang_up_outdated(&mut self, out: &mut Out) {
        out.extend(std::mem::take(&mut self.turned_away).into_iter().map(|peer| Effect::Hangup { peer }));
    }

    /// At the root group's leader: what all nodes have becomes what they agree on. One that is away may come back with any program,
    /// so it is waited for as long as it is a member of a group; later it has to come with one that will do.
    pub(crate) fn keep_level(&mut self, now: Now, out: &mut Out) {
        let level = |id: NodeId| self.live_cards().find(|card| card.id == id).map_or(0, |card| card.level);
        let members = self.root.members().into_iter();
        let members = members.chain(self.placed.values().flat_map(|placed| placed.members.iter().copied()));
        // Who entered anew does not come back as who it was.
        let members = members.filter(|id| self.former(*id).is_none());
        let all = members.chain(self.live_cards().map(|card| card.id)).map(level).min().unwrap_or(0);
        if all > self.agreed() {
            self.propose_level(now, all, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn without_a_record_it_is_the_first() {
        let mut declared = Declared { version: 1, records: BTreeMap::new() };
        assert_eq!(agreed(&declared), 1);
        let (kind, name, value) = put(7);
        declared.records.insert((kind, name), value);
        assert_eq!(agreed(&declared), 7);
    }

    #[test]
    fn who_has_less_is_told_what_to_do() {
        assert_eq!((lacks(3, 3), lacks(4, 3)), (None, None));
        let why = lacks(2, 3).unwrap();
        assert_eq!(why, "this cluster agreed on level 3, this program has 2: start the newer program");
    }
}
