//! What every class hears and wants. Two closed lists, as of the whole node (`base/src/event.rs`): a class that needs more adds it
//! here, and the compiler finds all who must answer.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, Frame, GroupId, NodeId, Note, PackSaid, PackWant, Parts, Record, Span, Ticket, Work};

use crate::{Class, CookieSecret};

/// What can happen to a class on one node.
#[derive(Debug)]
pub enum Input<C: Class> {
    /// A front door of this node wants something. Ends in [`Output::Answer`] with this id, within the budget.
    Ask { id: AskId, budget: Span, op: C::Op },
    /// A frame of one of its kinds.
    Frame { from: NodeId, frame: Frame },
    /// A peer is live (again), in this life.
    Birth { peer: NodeId, boot: Boot },
    /// A peer is dead, or so it seems from here.
    Death { peer: NodeId },
    /// The declaration is another one.
    Declared(Declared<C>),
    /// What its part of another node told last.
    Told { from: NodeId, report: C::Report },
    /// All that was appended for this group of its own up to this ticket is safe, as it was asked for.
    Appended { group: GroupId, ticket: Ticket },
    /// This save of a group of its own is on the disk.
    Saved { group: GroupId, ticket: Ticket },
    /// Comes once, behind [`Class::start`]: the packs of all classes that the disk has, by group and number, with the bytes in each.
    Packs(BTreeMap<GroupId, BTreeMap<u64, u64>>),
    /// What came of [`Output::Pack`].
    Pack { group: GroupId, said: PackSaid },
    /// What came of [`Output::Work`].
    Worked { group: GroupId, number: u64, work: Work },
    /// The disk takes nothing (true), or takes all again.
    DiskFull(bool),
    /// How many bytes of the disk are free, and how many it has, once a second; not where nobody can say.
    DiskRoom { free: u64, all: u64 },
    /// These nodes lead nothing that another one can lead: they are about to end, drained, or their disks are slow.
    Aside(BTreeSet<NodeId>),
    /// These nodes are about to leave for good, each with whether that is by force: others are to have what they have
    /// ([`Class::counted_on`]).
    Leaving(BTreeMap<NodeId, bool>),
    /// The voters of the root group, as this node knows them.
    Voters(BTreeSet<NodeId>),
    /// Does this group of its own have a majority now? Ends in [`Output::Probed`] with this id, within the budget.
    Probe { id: u64, group: GroupId, budget: Span },
    /// Four times a second or so: see to what no event announces.
    Tend,
    /// The moment of [`Class::wake_at`] has come.
    Wake,
}

/// What is declared for a class: its namespaces, and what its planner keeps.
#[derive(Debug)]
pub struct Declared<C: Class> {
    /// Counts up with each change of the declaration.
    pub version: u64,
    /// The level of programs that the cluster has agreed on (`base/src/level.rs`).
    pub level: u32,
    /// Its namespaces, by name.
    pub spaces: BTreeMap<String, Space<C>>,
    /// Its records, by name.
    pub records: BTreeMap<String, C::Record>,
    /// So many more this program cannot read: what has no record here may have one of these, and is not gone.
    pub unread: usize,
    /// All nodes that were let in and not removed since, whether they live or not.
    pub nodes: BTreeSet<NodeId>,
    /// Of all namespaces, of other classes too.
    pub numbers: Numbers,
}

/// The numbers of namespaces ([`Space::id`]): which are in use, and which was given last.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub used: BTreeSet<u32>,
    /// 0: not known.
    pub last: u32,
}

impl Numbers {
    /// There was a namespace with this number, and never will be one again: what lies under it may go. Never true of one that is declared
    /// later than what this node has heard, nor of one whose declaration this program cannot read.
    pub fn is_over(&self, number: u32) -> bool {
        number <= self.last && !self.used.contains(&number)
    }
}

/// A declared namespace of a class.
#[derive(Clone, Debug)]
pub struct Space<C: Class> {
    /// Never given twice: frames carry it in place of the name.
    pub id: u32,
    pub spec: C::Spec,
    /// Seals what the namespace hands out to clients.
    pub secret: CookieSecret,
}

/// What a class can ask of its node.
#[derive(Debug)]
pub enum Output<Answer> {
    Send {
        to: NodeId,
        frame: Frame,
    },
    Answer {
        id: AskId,
        answer: Answer,
    },
    /// Append to the log of a group of its own; [`Input::Appended`] follows when it is forced, or only written without `force`.
    Append {
        group: GroupId,
        records: Vec<Record>,
        ticket: Ticket,
        force: bool,
    },
    /// Replace all that was appended for the group before this; [`Input::Saved`] follows.
    Save {
        group: GroupId,
        parts: Parts,
        ticket: Ticket,
    },
    /// The group is no longer this node's: what the disk has of it may go.
    Forget {
        group: GroupId,
    },
    /// Something of the packs of a group of its own, beside the log.
    Pack {
        group: GroupId,
        want: PackWant,
    },
    /// Have this done beside the machines; [`Input::Worked`] may follow.
    Work {
        group: GroupId,
        number: u64,
        work: Work,
    },
    /// Whatever a reboot of the machine has cost, the class has again. Said once, after [`Class::start`] has said that it recovers.
    Recovered,
    /// The disk has kept less than was promised: the node enters the cluster anew.
    Distrust {
        why: String,
    },
    /// A peer did not answer in time: membership should probe it.
    Doubt {
        peer: NodeId,
    },
    /// A frame of this peer is none of this class, or claims what cannot be.
    Bad {
        from: NodeId,
        why: String,
    },
    /// Whether a majority of the group has answered since [`Input::Probe`].
    Probed {
        id: u64,
        answers: bool,
    },
    /// Something that people look for in the events.
    Warn {
        text: String,
    },
    /// A line for the log.
    Note(Note),
}

impl<Answer> Output<Answer> {
    /// The same, with the answer in other words.
    pub fn map<Other>(self, words: impl FnOnce(Answer) -> Other) -> Output<Other> {
        match self {
            Output::Send { to, frame } => Output::Send { to, frame },
            Output::Answer { id, answer } => Output::Answer { id, answer: words(answer) },
            Output::Append { group, records, ticket, force } => Output::Append { group, records, ticket, force },
            Output::Save { group, parts, ticket } => Output::Save { group, parts, ticket },
            Output::Forget { group } => Output::Forget { group },
            Output::Pack { group, want } => Output::Pack { group, want },
            Output::Work { group, number, work } => Output::Work { group, number, work },
            Output::Recovered => Output::Recovered,
            Output::Distrust { why } => Output::Distrust { why },
            Output::Doubt { peer } => Output::Doubt { peer },
            Output::Bad { from, why } => Output::Bad { from, why },
            Output::Probed { id, answers } => Output::Probed { id, answers },
            Output::Warn { text } => Output::Warn { text },
            Output::Note(note) => Output::Note(note),
        }
    }
}
