//! The cluster's level ([`base::level`]): which functions, arguments and log entries all nodes understand alike. It is
//! a record of the root group, which its leader raises as soon as all nodes have more. It never sinks: what came with
//! it may be in any log.
//!
//! A node whose program has less does not take part. It finds out by its own log, by the record when the root group
//! brings it, or because whoever it connects to says so and hangs up; then it ends, and leaves all that it has to the
//! newer program. Such a word ends a process, so it counts only of those that this node has dialled itself and that say
//! nothing else, while nobody takes it in; and if it knows who the root group is, only of most of that.

use base::{Effect, Frame, NodeId, Note, Now, Time, kind};
use cluster::Card;
use cluster::root::Declared;

use crate::declared::kind as record;
use crate::facts;
use crate::limits::{TURNED_AWAY_KEPT, TURNED_AWAY_WAIT};
use crate::node::{Node, Out};

/// Somebody says that this node's program is too old.
pub(crate) struct Word {
    since: Time,
    last: Time,
    level: u32,
}

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

    /// A peer says what is agreed on: it may be that it turns this node away.
    pub(crate) fn told_level(&mut self, now: Now, from: NodeId, head: &[u8], out: &mut Out) {
        let Some(level) = facts::decode::<u32>(head) else {
            return self.bad_frame(now, from, "does not say a level", out);
        };
        // Nobody takes part in a cluster that has agreed on more than its own program has.
        let has = self.seen.get(&from).map_or(0, |seen| seen.card.level);
        if level > has {
            return self.bad_frame(now, from, "says a level that its own program has not", out);
        }
        if !self.membership.is_silent(from) {
            return;
        }
        let word = self.turned_away_by.entry(from).or_insert(Word { since: now.mono, last: now.mono, level });
        (word.last, word.level) = (now.mono, level);
    }

    /// Ends this node if those count that have turned it away.
    pub(crate) fn keep_turned_away(&mut self, now: Now, out: &mut Out) {
        if self.membership.is_in_touch() {
            self.turned_away_by.clear();
        }
        self.turned_away_by.retain(|_, word| now.mono.since(word.last) < TURNED_AWAY_KEPT);
        let ripe = self.turned_away_by.iter().filter(|(_, word)| now.mono.since(word.since) >= TURNED_AWAY_WAIT);
        let words: Vec<(NodeId, u32)> = ripe.map(|(id, word)| (*id, word.level)).collect();
        let others: Vec<NodeId> = self.root.voters().into_iter().filter(|id| *id != self.me()).collect();
        let agreed = if self.root.declared().version == 0 {
            words.iter().map(|(_, level)| *level).min()
        } else {
            most_say(words.into_iter().filter(|(id, _)| others.contains(id)).map(|(_, level)| level), others.len())
        };
        if let Some(agreed) = agreed {
            self.ends_below(agreed, out);
        }
    }

    pub(crate) fn hang_up_outdated(&mut self, out: &mut Out) {
        out.extend(std::mem::take(&mut self.turned_away).into_iter().map(|peer| Effect::Hangup { peer }));
    }

    /// At the root group's leader: what all nodes have becomes what they agree on. One that is away may come back with
    /// any program, so it is waited for as long as it is a member of a group; later it has to come with one that will
    /// do.
    pub(crate) fn keep_level(&mut self, now: Now, out: &mut Out) {
        let all = self.level_of_all();
        if all > self.agreed() {
            self.propose_level(now, all, out);
        }
    }

    /// What all nodes have that it depends on; 0 while one of them is away.
    pub(crate) fn level_of_all(&self) -> u32 {
        let level = |id: NodeId| self.live_cards().find(|card| card.id == id).map_or(0, |card| card.level);
        let members = self.root.members().into_iter();
        let members = members.chain(self.placed.values().flat_map(|placed| placed.members.iter().copied()));
        // Who entered anew does not come back as who it was.
        let members = members.filter(|id| self.former(*id).is_none());
        members.chain(self.live_cards().map(|card| card.id)).map(level).min().unwrap_or(0)
    }
}

/// The level that more than half of so many say at least.
fn most_say(levels: impl Iterator<Item = u32>, of: usize) -> Option<u32> {
    let mut levels: Vec<u32> = levels.collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.get(of / 2).copied().filter(|_| of > 0)
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
    fn of_those_who_vote_more_than_half_have_to_say_it() {
        assert_eq!(most_say([9].into_iter(), 2), None);
        assert_eq!(most_say([9, 2].into_iter(), 2), Some(2));
        assert_eq!(most_say([9, 3, 2].into_iter(), 3), Some(3));
        assert_eq!(most_say([9].into_iter(), 1), Some(9));
        assert_eq!(most_say([].into_iter(), 0), None);
    }

    #[test]
    fn who_has_less_is_told_what_to_do() {
        assert_eq!((lacks(3, 3), lacks(4, 3)), (None, None));
        let why = lacks(2, 3).unwrap();
        assert_eq!(why, "this cluster agreed on level 3, this program has 2: start the newer program");
    }
}
