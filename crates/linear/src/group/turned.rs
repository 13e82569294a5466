//! Whom a leader turns away, and that it stays so. Whoever asked is told at once that his command did not happen, so nothing may
//! make it happen any more: neither a log that has it already, nor a copy that is still on its way. So only a leader says so
//! that has applied all that was in its log when it began to lead, only of a command that no other node was asked to do
//! ([`Mark::sole`]), and it remembers which, until the command's node wants no answer to it any more.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, NodeId, Priority, Time};

use super::queue::{Entry, Mark, Queue};
use super::{Answered, Group};
use crate::limits::{CALLS_MAX, QUEUE_BYTES_MAX, QUEUE_MAX, TURNED_MAX};
use crate::space::{CommandId, refusal};
use crate::watchers::Read;
use crate::wire::{Answer, Command};

/// By node, what was turned away in its present life, and how many in all.
#[derive(Default)]
pub struct Turned(BTreeMap<NodeId, Of>, usize);

struct Of {
    boot: Boot,
    /// As it last said: it needs no answers to commands below this.
    floor: u64,
    seqs: BTreeSet<u64>,
}

impl Turned {
    /// False: it is a late copy, and what became of the command has been told.
    fn is_wanted(&mut self, command: &Command) -> bool {
        let CommandId { node, boot, seq } = command.id;
        let Some(of) = self.0.get_mut(&node).filter(|of| of.boot == boot) else { return true };
        if command.floor > of.floor {
            of.floor = command.floor;
            let wanted = of.seqs.split_off(&command.floor);
            self.1 -= std::mem::replace(&mut of.seqs, wanted).len();
        }
        seq >= of.floor
    }

    fn has(&self, id: CommandId) -> bool {
        self.0.get(&id.node).is_some_and(|of| of.boot == id.boot && of.seqs.contains(&id.seq))
    }

    /// Its node has asked others, too, and will not believe us alone.
    fn forget(&mut self, id: CommandId) {
        if let Some(of) = self.0.get_mut(&id.node).filter(|of| of.boot == id.boot) {
            self.1 -= usize::from(of.seqs.remove(&id.seq));
        }
    }

    /// False: it cannot be remembered.
    fn add(&mut self, CommandId { node, boot, seq }: CommandId) -> bool {
        let fresh = || Of { boot, floor: 0, seqs: BTreeSet::new() };
        let of = self.0.entry(node).or_insert_with(fresh);
        if of.boot < boot {
            self.1 -= std::mem::replace(of, fresh()).seqs.len();
        }
        let may = of.boot == boot && of.seqs.len() < CALLS_MAX && self.1 < TURNED_MAX;
        self.1 += usize::from(may && of.seqs.insert(seq));
        may
    }
}

/// So many, and bytes of them.
type Size = (usize, usize);

/// There is no room for one more, beside what waits elsewhere.
fn is_full<T>(queue: &Queue<T>, (count, bytes): Size, mark: Mark) -> bool {
    queue.len() + count >= QUEUE_MAX || queue.bytes_from(Priority(0)) + bytes + mark.bytes > QUEUE_BYTES_MAX
}

/// Nor would there be if all went that matters less: it may have room for what is smaller.
fn is_too_large<T>(queue: &Queue<T>, (_, bytes): Size, mark: Mark) -> bool {
    queue.bytes_from(mark.priority) + bytes + mark.bytes > QUEUE_BYTES_MAX
}

impl Group {
    /// A read for the next round.
    pub(super) fn admit_read(&mut self, now: Time, mark: Mark, read: Read, done: &mut Vec<Answered>) {
        let id = read.command.id;
        // Of a read nothing can have happened: nobody has to remember it.
        let away = |id, floor| Answered { id, answer: Answer::TurnedAway { floor } };
        if is_too_large(&self.reads, (0, 0), mark) {
            return done.push(Answered { id, answer: Answer::Busy });
        }
        loop {
            match self.reads.entry(now, mark.priority, is_full(&self.reads, (0, 0), mark)) {
                Entry::Comes => break,
                Entry::Instead(mark, gone) => done.push(away(gone.command.id, mark.priority.0 + 1)),
                Entry::Below(floor) => return done.push(away(id, floor)),
                Entry::Full => return done.push(Answered { id, answer: Answer::Busy }),
            }
        }
        self.reads.push(mark, read);
    }

    /// A command for the log.
    pub(super) fn admit(&mut self, now: Time, mark: Mark, command: Command, done: &mut Vec<Answered>) {
        let id = command.id;
        if !self.turned.is_wanted(&command) {
            return;
        }
        if !mark.sole {
            self.turned.forget(id);
        } else if self.turned.has(id) {
            let floor = self.queue.floor(now);
            return done.push(Answered { id, answer: Answer::TurnedAway { floor } });
        }
        // It would not be done, and its bytes need not go to all disks for that. One that ends a hold has to.
        let ends_hold = || command.steps.iter().any(|step| step.function == "release");
        if let Some(wrong) = self.member.state().over(&command, self.bounds)
            && self.is_sure(mark)
            && !ends_hold()
            && self.turned.add(id)
        {
            return done.push(Answered { id, answer: Answer::Ran(refusal(&command, wrong), 0) });
        }
        let held = (self.holds.len(), self.holds.bytes + self.writing.bytes());
        if is_too_large(&self.queue, held, mark) {
            return done.push(Answered { id, answer: Answer::Busy });
        }
        loop {
            match self.queue.entry(now, mark.priority, is_full(&self.queue, held, mark)) {
                Entry::Comes => break,
                Entry::Instead(mark, gone) => self.turn_away(mark, gone.id, mark.priority.0 + 1, done),
                Entry::Below(floor) => return self.turn_away(mark, id, floor, done),
                Entry::Full => return done.push(Answered { id, answer: Answer::Busy }),
            }
        }
        self.known.insert(id);
        self.enqueue(now, mark, command);
    }

    /// Those that nobody would hear of in time are not begun.
    pub(super) fn end_late(&mut self, now: Time, done: &mut Vec<Answered>) {
        let floor = self.queue.floor(now);
        for (mark, command) in self.queue.late(now) {
            self.turn_away(mark, command.id, floor, done);
        }
    }

    /// No log has it already.
    fn is_sure(&self, mark: Mark) -> bool {
        mark.sole && self.leads.is_some() && self.member.applied() >= self.led_from
    }

    /// It is not put into the log; for good, if that can be said.
    fn turn_away(&mut self, mark: Mark, id: CommandId, floor: u8, done: &mut Vec<Answered>) {
        self.known.remove(&id);
        let answer =
            if self.is_sure(mark) && self.turned.add(id) { Answer::TurnedAway { floor } } else { Answer::Busy };
        done.push(Answered { id, answer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(seq: u64, floor: u64) -> Command {
        let id = CommandId { node: NodeId(1), boot: Boot(2), seq };
        Command { id, floor, conditions: Vec::new(), steps: Vec::new(), splits: 0, once: None }
    }

    #[test]
    fn what_was_turned_away_is_known_until_its_node_wants_no_answer() {
        let mut turned = Turned::default();
        assert!(turned.is_wanted(&command(1, 9)), "nothing is kept of nodes of which nothing was turned away");
        assert!(turned.add(command(5, 0).id) && turned.add(command(7, 0).id));
        assert!(turned.has(command(5, 0).id) && !turned.has(command(6, 0).id));
        assert!(turned.is_wanted(&command(5, 5)) && turned.is_wanted(&command(8, 6)));
        assert!(!turned.has(command(5, 5).id) && turned.has(command(7, 0).id));
        assert!(!turned.is_wanted(&command(5, 5)), "a late copy");
        turned.forget(command(7, 0).id);
        assert!(!turned.has(command(7, 0).id) && turned.is_wanted(&command(7, 6)));
        let next = CommandId { boot: Boot(3), ..command(1, 0).id };
        assert!(turned.add(next) && turned.has(next) && !turned.add(command(9, 0).id), "a former life");
    }

    #[test]
    fn what_cannot_be_remembered_is_not_turned_away_for_good() {
        let mut turned = Turned::default();
        assert!((0..CALLS_MAX as u64).all(|seq| turned.add(command(seq, 0).id)));
        assert!(!turned.add(command(CALLS_MAX as u64, 0).id));
        assert!(turned.is_wanted(&command(20_000, 9_000)) && turned.add(command(20_000, 0).id));
        // Of many nodes, of which some may never come again.
        let of = |node, seq| CommandId { node: NodeId(node), ..command(seq, 0).id };
        let added = (2..).flat_map(|node| (0..CALLS_MAX as u64).map(move |seq| (node, seq)));
        let added = added.take_while(|(node, seq)| turned.add(of(*node, *seq))).count();
        assert_eq!(added + turned.0[&NodeId(1)].seqs.len(), TURNED_MAX);
        turned.forget(of(2, 0));
        assert!(turned.add(of(2, 0)) && !turned.add(of(99, 0)));
    }
}
