//! What a leader lends to have scripts run (`script.rs`). As long as it is lent nothing is put into the log: reads, ticks and all else
//! go on. A group that loses the lead, or waits for too long, forgets it, and nothing has happened.

use base::{Span, Time};
use class::Bounds;

use super::{Answered, Group, Mark, answer};
use crate::functions::script::is_among;
use crate::limits::{LENT_MAX, SCRIPTS_AT_ONCE};
use crate::script::{Draft, Job, Loan, Returned};
use crate::wire::{self, Answer, Batch, Command};

#[derive(Default)]
pub struct Scripts {
    lent: Option<Lent>,
    /// What is to be taken to who runs it, with its number.
    loan: Option<(u64, Loan)>,
    /// How often something was lent.
    count: u64,
}

/// What the entry will have that is made of it.
struct Lent {
    until: Time,
    clock: u64,
    bounds: Bounds,
    marks: Vec<Mark>,
    commands: Vec<Command>,
}

impl Scripts {
    pub fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.lent.as_ref().map(|lent| lent.until)
    }

    /// What was lent is not ours any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.loan = None;
        self.lent.take().into_iter().flat_map(|lent| lent.commands)
    }
}

impl Group {
    pub(super) fn scripts_wait(&self) -> bool {
        self.queue.iter().any(|command| is_among(&command.steps))
    }

    /// Lends the space, if all that is in the log has been applied.
    pub(super) fn lend(&mut self, now: Time, agreed: u32, done: &mut Vec<Answered>) {
        if self.member.applied() < self.member.end().1 {
            return;
        }
        let mut room = SCRIPTS_AT_ONCE;
        let (marks, commands) = self.queue.part(|command| {
            let goes = room > 0 && is_among(&command.steps);
            room -= usize::from(goes);
            goes
        });
        let (mut kept, mut lent) = (Vec::new(), Vec::new());
        for (mark, command) in marks.into_iter().zip(commands) {
            let space = self.member.state();
            let known = match space.verdict(&command) {
                Some(verdict) => Some(answer(verdict, self.member.applied())),
                None if !space.has(&command) => Some(Answer::Moved),
                None => None,
            };
            match known {
                Some(answer) => {
                    self.known.remove(&command.id);
                    done.push(Answered { id: command.id, answer });
                }
                None => {
                    kept.push(mark);
                    lent.push(command);
                }
            }
        }
        if lent.is_empty() {
            return;
        }
        let (clock, bounds) = (self.clock.now(now), self.bounds);
        let job = |command: &Command| Job { conditions: command.conditions.clone(), steps: command.steps.clone() };
        let draft = Draft::new(self.member.state().draft(clock), bounds, (self.placed.from, self.placed.to), agreed);
        let loan = Loan { namespace: self.placed.namespace.clone(), draft, jobs: lent.iter().map(job).collect() };
        self.scripts.count += 1;
        self.scripts.loan = Some((self.scripts.count, loan));
        self.scripts.lent = Some(Lent { until: now + LENT_MAX, clock, bounds, marks: kept, commands: lent });
    }

    /// What is to be run, with its number.
    pub fn take_loan(&mut self) -> Option<(u64, Loan)> {
        self.scripts.loan.take()
    }

    /// What was lent comes back. What was not begun waits for the next time.
    pub fn returned(&mut self, now: Time, number: u64, Returned(done): Returned) {
        let Some(lent) = self.scripts.lent.take_if(|_| number == self.scripts.count) else { return };
        let Lent { clock, bounds, mut marks, commands, .. } = lent;
        let count = done.len().min(commands.len());
        let mut commands = commands;
        let rest = commands.split_off(count);
        let rest_marks = marks.split_off(count);
        self.queue.give_back(rest_marks, rest);
        if commands.is_empty() {
            return;
        }
        let made = |(command, steps): (&Command, _)| Command { steps, ..command.clone() };
        let made: Vec<Command> = commands.iter().zip(done).map(made).collect();
        let ids: Vec<_> = made.iter().map(|command| command.id).collect();
        let batch = Batch { clock, commands: made, bounds, ..Batch::default() };
        if !self.member.propose(wire::encode_batch(&batch)) {
            return self.queue.give_back(marks, commands);
        }
        self.flying.push_back(ids);
        self.rouse(now);
        // Others have waited for it: they go right behind it, before more scripts do.
        self.propose_plain(clock);
        self.write_pieces(now);
    }

    /// What waits and is no script.
    fn propose_plain(&mut self, clock: u64) {
        let (marks, commands) = self.next_of(|command| !is_among(&command.steps));
        if commands.is_empty() {
            return;
        }
        let batch = Batch { clock, commands, bounds: self.bounds, ..Batch::default() };
        if !self.member.propose(wire::encode_batch(&batch)) {
            return self.queue.give_back(marks, batch.commands);
        }
        self.flying.push_back(batch.commands.iter().map(|command| command.id).collect());
    }

    /// Nobody has brought it back.
    pub(super) fn end_loan(&mut self, now: Time, done: &mut Vec<Answered>) {
        if self.scripts.wake_at().is_some_and(|until| until <= now) {
            for command in self.scripts.drain() {
                self.known.remove(&command.id);
                done.push(Answered { id: command.id, answer: Answer::Busy });
            }
        }
    }
}

const _: () = assert!(LENT_MAX.0 > Span::secs(1).0, "a script may take its time");
