//! Child processes of a node. They start, become healthy, print, end when told or by themselves, and die with their
//! node. What really runs is known here, so that a promise about clones can be checked against it.

use base::process::Probe;
use base::{Event, Exit, ProcId, ProcSpec, Rng, Signal, Span, Time};

use super::{Due, Factory, World};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// How children behave that are started from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Manners {
    /// Until they answer health requests, at most.
    pub start: Span,
    /// Chance that a program is not there at all.
    pub missing: f64,
    /// Chance that it prints something and exits at once.
    pub still_born: f64,
    /// Chance that it does not heed SIGTERM.
    pub stubborn: f64,
    /// Until it has ended after SIGTERM, at most.
    pub stop: Span,
}

impl Manners {
    pub const GOOD: Self =
        Self { start: Span::millis(800), missing: 0.0, still_born: 0.0, stubborn: 0.0, stop: Span::millis(300) };
}

impl Default for Manners {
    fn default() -> Self {
        Self::GOOD
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildState {
    Runs,
    /// Does not answer and does not heed SIGTERM.
    Hangs,
}

/// A process that is there.
#[derive(Clone, Debug)]
pub struct Child {
    pub spec: ProcSpec,
    pub pid: u32,
    pub port: u16,
    pub state: ChildState,
    pub since: Time,
    healthy_at: Time,
    stubborn: bool,
}

impl<F: Factory> World<F> {
    /// All children that run now on a node.
    pub fn children(&self, node: usize) -> impl Iterator<Item = (ProcId, &Child)> {
        self.places[node].running.iter().flat_map(|running| running.children.iter().map(|(id, child)| (*id, child)))
    }

    /// A child dies by itself.
    pub fn crash_child(&mut self, node: usize, proc: ProcId) {
        self.trace.remark(self.now, format!("{proc} of node {node} crashes"));
        self.end_child(node, proc, Span::ZERO, Exit::Signal(11));
    }

    /// A child stops answering.
    pub fn hang_child(&mut self, node: usize, proc: ProcId) {
        self.trace.remark(self.now, format!("{proc} of node {node} hangs"));
        if let Some(child) = self.child(node, proc) {
            child.state = ChildState::Hangs;
        }
    }

    /// Children behave from now on, also those that are there: a slow start beside a long drain may otherwise outlast
    /// the calm that promises are judged in.
    pub fn mend_manners(&mut self) {
        self.manners = Manners::GOOD;
        let latest = self.now + Manners::GOOD.start;
        for child in self.places.iter_mut().flat_map(|p| &mut p.running).flat_map(|r| r.children.values_mut()) {
            child.healthy_at = child.healthy_at.min(latest);
            child.stubborn = false;
        }
    }

    fn child(&mut self, node: usize, proc: ProcId) -> Option<&mut Child> {
        self.places[node].running.as_mut()?.children.get_mut(&proc)
    }

    pub(super) fn spawn(&mut self, node: usize, proc: ProcId, spec: ProcSpec) {
        let manners = self.manners;
        let fork = Span(self.rng.between(500, 20_000));
        if spec.run.is_empty() || self.rng.chance(manners.missing) {
            let exit = Exit::NotStarted("no such file or directory".into());
            return self.deliver_after(node, fork, Event::Exited { proc, exit });
        }
        self.pids += 1;
        let (pid, port) = (self.pids, (20_000 + self.pids % 40_000) as u16);
        let healthy_at = self.now + fork + Span(self.rng.below(manners.start.0 + 1));
        let stubborn = self.rng.chance(manners.stubborn);
        let child = Child { spec, pid, port, state: ChildState::Runs, since: self.now, healthy_at, stubborn };
        let Some(running) = &mut self.places[node].running else { return };
        let before = running.children.insert(proc, child);
        assert!(before.is_none(), "{proc} was given to two children in one boot");
        self.deliver_after(node, fork, Event::Spawned { proc, pid, port });
        self.deliver_after(node, fork + Span(50), Event::Output { proc, line: format!("listening on {port}") });
        if self.rng.chance(manners.still_born) {
            self.deliver_after(node, fork + Span(60), Event::Output { proc, line: "bad configuration".into() });
            self.end_child(node, proc, fork + Span(70), Exit::Code(1));
        }
    }

    pub(super) fn signal(&mut self, node: usize, proc: ProcId, signal: Signal) {
        let longest = self.manners.stop.0;
        let Some(child) = self.child(node, proc) else { return };
        let heeds = child.state == ChildState::Runs && !child.stubborn;
        match signal {
            Signal::Kill => self.end_child(node, proc, Span(300), Exit::Signal(SIGKILL)),
            Signal::Term | Signal::Int | Signal::Quit if heeds => {
                let (after, exit) = how_it_stops(&mut self.rng, longest);
                self.end_child(node, proc, after, exit);
            }
            Signal::Term | Signal::Int | Signal::Quit | Signal::Hup | Signal::Usr1 | Signal::Usr2 => (),
        }
    }

    fn end_child(&mut self, node: usize, proc: ProcId, after: Span, exit: Exit) {
        if let Some(running) = &self.places[node].running {
            self.queue.push(self.now + after, Due::ChildEnds { node, life: running.life, proc, exit });
        }
    }

    pub(super) fn child_ends(&mut self, node: usize, life: u64, proc: ProcId, exit: Exit) {
        let Some(running) = &mut self.places[node].running else { return };
        if running.life == life && running.children.remove(&proc).is_some() {
            self.deliver_after(node, Span(200), Event::Exited { proc, exit });
        }
    }

    pub(super) fn probe(&mut self, node: usize, proc: ProcId, probe: &Probe) {
        let now = self.now;
        let (after, result) = match self.child(node, proc) {
            Some(child) if child.state == ChildState::Hangs => (probe.timeout, Err("no answer in time".into())),
            Some(child) if child.port == probe.port && child.healthy_at <= now => (Span(800), Ok(())),
            _ => (Span(100), Err("connection refused".into())),
        };
        self.deliver_after(node, after, Event::Probed { proc, result });
    }
}

fn how_it_stops(rng: &mut Rng, longest: u64) -> (Span, Exit) {
    let exit = if rng.chance(0.5) { Exit::Code(0) } else { Exit::Signal(SIGTERM) };
    (Span(rng.below(longest + 1)), exit)
}
