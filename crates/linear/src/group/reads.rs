//! Reads: all that have come by then share one round of heartbeats; then they look, or wait for something to happen.

use base::{Span, Time};

use super::{Answered, Group, dumps};
use crate::functions::changes::{is_quiet, may_wait};
use crate::op::Ran;
use crate::watchers::Read;
use crate::wire::{Answer, Command};

impl Group {
    pub(super) fn start_round(&mut self) -> bool {
        if self.reads.is_empty() || self.round.is_some() || !self.member.read_index(self.rounds + 1) {
            return false;
        }
        self.rounds += 1;
        self.round = Some((self.rounds, self.reads.drain().collect()));
        true
    }

    pub(super) fn answer_reads(&mut self, now: Time, done: &mut Vec<Answered>) {
        if self.ready.is_empty() {
            return;
        }
        let applied = self.member.applied();
        let (now_readable, later) =
            std::mem::take(&mut self.ready).into_iter().partition(|(index, _)| *index <= applied);
        self.ready = later;
        let now_readable: Vec<(u64, Vec<Read>)> = now_readable;
        for read in now_readable.into_iter().flat_map(|(_, reads)| reads) {
            self.look(now, read, done);
        }
    }

    pub(super) fn read(&mut self, now: Time, age: Span, command: &Command) -> Ran {
        let clock = self.clock.now(now);
        self.member.state_mut().show(clock, age.0.div_ceil(1_000));
        self.member.state().read(&command.conditions, &command.steps)
    }

    /// A call of this node that began then was answered by the leader, which knew of so much.
    pub fn learn(&mut self, begun: Time, index: u64) {
        self.freshness.learn(begun, index, self.member.applied());
    }

    /// The clock may have stood still up to now.
    pub fn stood(&mut self, now: Time) {
        self.freshness.stood(now);
    }

    /// How old at most this member's state is: everything that was acknowledged before is in it.
    pub(super) fn age(&mut self, now: Time) -> Option<Span> {
        self.freshness.of(self.member.applied()).map(|since| now.since(since))
    }

    /// Reads the state; or lets the command wait, if there is nothing that it waits for.
    pub(super) fn look(&mut self, now: Time, asked: Read, done: &mut Vec<Answered>) {
        let Read { command, until } = asked;
        let id = command.id;
        if !self.member.state().has(&command) {
            return done.push(Answered { id, answer: Answer::Moved });
        }
        if let Some(page) = dumps::asked(&command) {
            let clock = self.clock.now(now);
            self.member.state_mut().show(clock, 0);
            let answer = match self.dumps.read(now, page, self.member.state(), &command) {
                Some(ran) => Answer::Ran(ran, self.member.applied()),
                None => Answer::Busy,
            };
            return done.push(Answered { id, answer });
        }
        let ran = self.read(now, Span::ZERO, &command);
        let space = self.member.state();
        let answer = match &ran {
            Ran::Done(replies) if may_wait(&command.steps) && until > now && replies.iter().all(is_quiet) => {
                if !self.watchers.is_full() {
                    return self.watchers.wait(space.revision(), Read { command, until });
                }
                Answer::Busy
            }
            Ran::Done(_) | Ran::Unmet => Answer::Ran(ran, self.member.applied()),
        };
        done.push(Answered { id, answer });
    }

    /// Those who wait are told what has come, or that nothing has.
    pub(super) fn tell_watchers(&mut self, now: Time, done: &mut Vec<Answered>) {
        let space = self.member.state();
        for read in self.watchers.changed(space.history(), space.revision()) {
            self.look(now, read, done);
        }
        for command in self.watchers.over(now) {
            let ran = self.read(now, Span::ZERO, &command);
            done.push(Answered { id: command.id, answer: Answer::Ran(ran, self.member.applied()) });
        }
    }
}
