//! The two closed lists. `Event` is everything that can happen to a node, `Effect` everything it can ask of the world.
//! They grow one entry at a time, when a protocol needs it. The compiler then finds `host`, `sim` and the node.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::process::Probe;
use crate::{
    AskId, Boot, Exit, Frame, GroupId, NodeId, Now, PackSaid, PackWant, ProcId, ProcSpec, ProcUse, Record, Signal,
    Span, Ticket, Time,
};

/// Whatever decides: a clone group's manager, a brick, a whole node. No clock, no socket, no entropy of its own.
pub trait Machine {
    /// A question from this node's front doors.
    type Ask;
    /// Its answer.
    type Answer;
    /// What the front doors may read at any time without asking.
    type View;

    /// Takes the time and one event, appends what it wants done.
    fn handle(&mut self, now: Now, event: Event<Self::Ask>, out: &mut Vec<Effect<Self::Answer, Self::View>>);

    /// When it next wants [`Event::Wake`]; asked after each `handle`. A time that is not after the last one: at the end of this turn,
    /// when all was handled that had come by now.
    fn wake_at(&self) -> Option<Time>;
}

/// What can happen to a node.
#[derive(Debug)]
pub enum Event<Ask> {
    /// Comes first and once. `log` is what the disk has kept of each group: what was saved last, then what was appended
    /// since, in order.
    Start {
        log: BTreeMap<GroupId, Vec<Bytes>>,
        /// What was found out of order on the disk and put right, for people.
        remarks: Vec<String>,
        /// The machine has been without power or rebooted since [`Effect::Recovered`]: what was appended without force may
        /// be missing at the log's end.
        rebooted: bool,
    },
    /// Comes second and once: the packs that the disk has, by group and number, with the bytes in each.
    Packs {
        there: BTreeMap<GroupId, BTreeMap<u64, u64>>,
    },
    /// The moment asked for by `wake_at` has come (or passed).
    Wake,
    /// A mutually authenticated connection to a peer is up. `card` is what the peer says of itself. A peer that
    /// restarted comes with a higher boot; the link of its former life is gone without a further word.
    Linked {
        peer: NodeId,
        boot: Boot,
        card: Bytes,
    },
    /// A connection ended, or a dial came to nothing.
    Unlinked {
        peer: Option<NodeId>,
        addr: Option<SocketAddr>,
        why: LinkEnd,
    },
    Frame {
        from: NodeId,
        frame: Frame,
    },
    Ask {
        id: AskId,
        budget: Span,
        ask: Ask,
    },
    /// All that was appended for this group up to this ticket is on this node's disk, or written there if that was enough.
    Appended {
        group: GroupId,
        ticket: Ticket,
    },
    /// This save is on this node's disk. It may come before or after `Appended` of what was asked for around it.
    Saved {
        group: GroupId,
        ticket: Ticket,
    },
    /// What came of [`Effect::Pack`].
    Pack {
        group: GroupId,
        said: PackSaid,
    },
    /// What came of [`Effect::Work`].
    Worked {
        group: GroupId,
        number: u64,
        work: Work,
    },
    /// The disk is full: nothing becomes safe until there is room, which is said by the same event without trouble.
    Disk {
        trouble: Option<String>,
    },
    /// A child runs and has been given this port.
    Spawned {
        proc: ProcId,
        pid: u32,
        port: u16,
    },
    /// A line that a child printed, without its line end, at most 4 KiB.
    Output {
        proc: ProcId,
        line: String,
    },
    Exited {
        proc: ProcId,
        exit: Exit,
    },
    /// Answer to [`Effect::Probe`]: healthy, or what was wrong.
    Probed {
        proc: ProcId,
        result: Result<(), String>,
    },
    /// Once a second, from the host: CPU of this process in thousandths of one core, resident memory in bytes, and what
    /// the front doors counted over the last second, by name (`http.requests`, ...), and `machine.busy`, thousandths of all
    /// its processors. `procs`: what children use, as of the last second or two; none of one that cannot be looked at.
    Vitals {
        cpu_millis: u32,
        resident_bytes: u64,
        gauges: BTreeMap<String, u64>,
        procs: BTreeMap<ProcId, ProcUse>,
    },
}

/// What a node can ask of the world.
#[derive(Debug)]
pub enum Effect<Answer, View> {
    /// Connect to a peer. Ends in `Linked` or `Unlinked`. `peer` is who must be there; none for a seed.
    Dial {
        addr: SocketAddr,
        peer: Option<NodeId>,
    },
    /// Close the link, if there is one.
    Hangup {
        peer: NodeId,
    },
    /// Send on the peer's link. Without a link, or with a full queue, the frame is dropped: protocols expect loss.
    Send {
        to: NodeId,
        frame: Frame,
    },
    Answer {
        id: AskId,
        answer: Answer,
    },
    /// Append to the group's share of the node's log; `Appended` follows.
    Append {
        group: GroupId,
        records: Vec<Record>,
        ticket: Ticket,
        /// `Appended` only when it is forced to disk. Else when it is written, which outlives this process but not the
        /// machine's power; it is forced within [`crate::limits::UNFORCED_MAX`].
        force: bool,
    },
    /// Replace all that was appended for the group before this by these records, atomically; `Saved` follows. Appends
    /// go on meanwhile.
    Save {
        group: GroupId,
        parts: Parts,
        ticket: Ticket,
    },
    /// The group is no longer this node's: what the disk has of it may go.
    Forget {
        group: GroupId,
    },
    /// Something of the group's packs, beside the log.
    Pack {
        group: GroupId,
        want: PackWant,
    },
    /// Something that takes long, or that no machine may do: it is done beside the machine, and `Worked` follows with the same number.
    /// Nothing follows where nobody does such work.
    Work {
        group: GroupId,
        number: u64,
        work: Work,
    },
    /// Nothing that this node acts on can still be missing for want of a force: the next start comes without `rebooted`
    /// unless the machine is rebooted again.
    Recovered,
    /// What the disk has kept is less than what this node has promised: the process ends, and enters the cluster anew.
    Distrust {
        why: String,
    },
    /// The cluster has agreed on what this program does not know: the process ends, and leaves all as it is for the newer one.
    Outdated {
        why: String,
    },
    /// Start a child; `Spawned` or `Exited` follows.
    Spawn {
        proc: ProcId,
        spec: ProcSpec,
    },
    /// Signal a child and all processes of its group.
    Signal {
        proc: ProcId,
        signal: Signal,
    },
    Probe {
        proc: ProcId,
        probe: Probe,
    },
    /// The front doors see this from now on.
    Publish(View),
    /// A line for the log.
    Note(Note),
}

/// Records that are made one by one when they are asked for, so that a large snapshot never lies in memory twice and
/// never takes the machine's time.
pub struct Parts(pub Box<dyn Iterator<Item = Bytes> + Send>);

impl Parts {
    pub fn of(records: Vec<Bytes>) -> Self {
        Self(Box::new(records.into_iter()))
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// What is to be done, or came of it: whoever asks for it and whoever does it know what it is, those between do not.
pub struct Work(pub Box<dyn std::any::Any + Send>);

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

/// Why a link ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The peer's side closed or reset it. Its process may be dead.
    Closed,
    /// Nobody listens there: the machine is up, the process is not.
    Refused,
    /// No answer in time.
    TimedOut,
    /// Somebody is there who is not who we wanted, or does not want us. Retrying soon is useless.
    Rejected,
    /// We hung up ourselves.
    Ours,
}

/// Something worth a line in the log. Per request nothing is noted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    pub level: NoteLevel,
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoteLevel {
    /// A change of state someone may want to know.
    Info,
    /// Unexpected, but survived.
    Warn,
    /// Needs a person.
    Error,
}

impl Note {
    pub fn info(text: impl Into<String>) -> Self {
        Self { level: NoteLevel::Info, text: text.into() }
    }
    pub fn warn(text: impl Into<String>) -> Self {
        Self { level: NoteLevel::Warn, text: text.into() }
    }
    pub fn error(text: impl Into<String>) -> Self {
        Self { level: NoteLevel::Error, text: text.into() }
    }
}
