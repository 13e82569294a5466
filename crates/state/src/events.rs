//! What happens to all classes alike, or to the one whose group it is about, in words that know no class.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, GroupId, NodeId, Now, Outcome, PackSaid, Span, Ticket, Work};
use bytes::Bytes;
use class::{CookieSecret, Declared, Groups, Input, Number, Numbers, Space};

use crate::{Answer, Classes, NamespaceSpec, Reports};

/// What a class of this program wants done.
pub type Output = class::Output<Answer>;

/// What is declared, for all classes.
pub struct Declaration<'a> {
    /// Counts up with each change.
    pub version: u64,
    /// The level of programs that the cluster has agreed on.
    pub level: u32,
    pub namespaces: &'a BTreeMap<String, NamespaceSpec>,
    /// By namespace: its number, and the keys that seal what it hands out.
    pub secrets: &'a BTreeMap<String, (u32, CookieSecret)>,
    /// All records of one kind that the root group keeps, by name.
    pub records: &'a dyn Fn(&'static str) -> Vec<(String, Bytes)>,
    /// All nodes that were let in and not removed since.
    pub nodes: &'a BTreeSet<NodeId>,
    /// The number that a namespace was given last; 0 if that is not known.
    pub last: u32,
}

impl Declaration<'_> {
    /// The namespaces of one class. One without secrets is not whole yet, and is left out.
    pub(crate) fn spaces<C: class::Class>(
        &self,
        of: fn(&NamespaceSpec) -> Option<&C::Spec>,
    ) -> BTreeMap<String, Space<C>> {
        let space = |(name, spec): (&String, &NamespaceSpec)| {
            let (id, secret) = self.secrets.get(name)?;
            Some((name.clone(), Space { id: *id, spec: of(spec)?.clone(), secret: secret.clone() }))
        };
        self.namespaces.iter().filter_map(space).collect()
    }

    /// With the records of one class. One that this version cannot read is left out, and counted: a newer one wrote it.
    pub(crate) fn of<C: class::Class>(&self, spaces: BTreeMap<String, Space<C>>) -> Declared<C> {
        let all = (self.records)(C::RECORDS);
        let read = |(name, bytes): &(String, Bytes)| Some((name.clone(), serde_json::from_slice(bytes).ok()?));
        let records: BTreeMap<String, C::Record> = all.iter().filter_map(read).collect();
        let unread = all.len() - records.len();
        let used = self.secrets.values().map(|(id, _)| *id).collect();
        let (nodes, numbers) = (self.nodes.clone(), Numbers { used, last: self.last });
        Declared { version: self.version, level: self.level, spaces, records, unread, nodes, numbers }
    }
}

/// What all classes may look at ([`class::Scene`]).
pub struct View<'a> {
    pub me: NodeId,
    pub peers: &'a BTreeMap<NodeId, class::Peer>,
    pub namespaces: &'a BTreeMap<String, NamespaceSpec>,
    pub facts: &'a dyn Fn(NodeId, &str) -> Option<&'a Bytes>,
}

impl<'a> View<'a> {
    /// For one class.
    pub(crate) fn of<C: class::Class>(&self, of: fn(&NamespaceSpec) -> Option<&C::Spec>) -> class::Scene<'a, C> {
        let spaces = self.namespaces.iter().filter_map(|(name, spec)| Some((name.as_str(), of(spec)?))).collect();
        class::Scene { me: self.me, peers: self.peers, spaces, facts: self.facts }
    }
}

/// What all planners are shown ([`class::Outlook`]).
pub struct Ahead<'a> {
    pub version: u64,
    pub live: &'a [NodeId],
    pub away: &'a BTreeMap<NodeId, Span>,
    pub seen: &'a BTreeSet<NodeId>,
    pub watched: Span,
    pub leaving: &'a BTreeMap<NodeId, bool>,
    pub troubled: &'a BTreeMap<NodeId, Span>,
    pub groups: &'a BTreeMap<&'a str, Groups>,
    /// A record of the root group, by kind and name.
    pub records: &'a dyn Fn(&'static str, &str) -> Option<&'a Bytes>,
    pub reports: &'a dyn Fn(NodeId) -> &'a Reports,
    pub facts: &'a dyn Fn(NodeId, &str) -> Option<&'a Bytes>,
}

impl<'a> Ahead<'a> {
    /// For one class, whose reports are those of all as `of` tells.
    pub(crate) fn of<C>(&self, of: fn(&Reports) -> &C::Report) -> class::Outlook<'a, C>
    where
        C: class::Class + 'a,
        C::Report: 'a,
    {
        let Self { version, live, away, seen, watched, leaving, troubled, groups, records, reports, facts } = *self;
        class::Outlook {
            version,
            live,
            away,
            seen,
            watched,
            leaving,
            troubled,
            groups,
            record: Box::new(move |name| records(C::RECORDS, name)),
            report: Box::new(move |id| of(reports(id))),
            facts,
        }
    }
}

/// A record as it is kept: JSON, like all of the root group's.
pub(crate) fn written(record: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(record).expect("records are plain data").into()
}

/// Why an operation was not done, or may not have been, and when to ask again. What may have happened can be asked again
/// at once, if it does not matter how often it happens.
pub(crate) fn undone<T>(outcome: &Outcome<T>) -> Option<(String, Option<Span>)> {
    match outcome {
        Outcome::Done(_) => None,
        Outcome::Refused(refused) => Some((refused.why.clone(), refused.retry_after)),
        Outcome::Unknown(unknown) => Some((unknown.to_string(), Some(Span::ZERO))),
    }
}

/// An input that is the same for all classes.
pub(crate) enum OfAll {
    Birth { peer: NodeId, boot: Boot },
    Death { peer: NodeId },
    Packs(BTreeMap<GroupId, BTreeMap<u64, u64>>),
    DiskFull(bool),
    DiskRoom { free: u64, all: u64 },
    Aside(BTreeSet<NodeId>),
    Leaving(BTreeMap<NodeId, bool>),
    Voters(BTreeSet<NodeId>),
}

impl OfAll {
    pub fn input<C: class::Class>(&self) -> Input<C> {
        match self {
            OfAll::Birth { peer, boot } => Input::Birth { peer: *peer, boot: *boot },
            OfAll::Death { peer } => Input::Death { peer: *peer },
            OfAll::Packs(there) => Input::Packs(there.clone()),
            OfAll::DiskFull(full) => Input::DiskFull(*full),
            OfAll::DiskRoom { free, all } => Input::DiskRoom { free: *free, all: *all },
            OfAll::Aside(aside) => Input::Aside(aside.clone()),
            OfAll::Leaving(leaving) => Input::Leaving(leaving.clone()),
            OfAll::Voters(voters) => Input::Voters(voters.clone()),
        }
    }
}

/// An input about one group in the node's log.
pub(crate) enum OfGroup {
    Appended(Ticket),
    Saved(Ticket),
    Pack(PackSaid),
    Worked(u64, Work),
}

impl OfGroup {
    pub fn of<C: class::Class>(self, group: GroupId) -> Input<C> {
        match self {
            OfGroup::Appended(ticket) => Input::Appended { group, ticket },
            OfGroup::Saved(ticket) => Input::Saved { group, ticket },
            OfGroup::Pack(said) => Input::Pack { group, said },
            OfGroup::Worked(number, work) => Input::Worked { group, number, work },
        }
    }
}

impl Classes {
    /// A peer is live (again), in this life.
    pub fn birth(&mut self, now: Now, peer: NodeId, boot: Boot, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Birth { peer, boot }, out);
    }

    /// A peer is dead, or so it seems from here.
    pub fn death(&mut self, now: Now, peer: NodeId, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Death { peer }, out);
    }

    /// The disk takes nothing, or takes all again.
    pub fn disk_full(&mut self, now: Now, full: bool, out: &mut Vec<Output>) {
        self.all(now, &OfAll::DiskFull(full), out);
    }

    /// So many bytes of the disk are free, of so many.
    pub fn disk_room(&mut self, now: Now, free: u64, all: u64, out: &mut Vec<Output>) {
        self.all(now, &OfAll::DiskRoom { free, all }, out);
    }

    /// These nodes lead nothing that another one can lead.
    pub fn aside(&mut self, now: Now, aside: &BTreeSet<NodeId>, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Aside(aside.clone()), out);
    }

    /// These are about to leave for good, each with whether that is by force.
    pub fn leaving(&mut self, now: Now, leaving: &BTreeMap<NodeId, bool>, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Leaving(leaving.clone()), out);
    }

    /// These vote in the root group.
    pub fn voters(&mut self, now: Now, voters: &BTreeSet<NodeId>, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Voters(voters.clone()), out);
    }

    /// What was appended for this group up to this ticket is safe.
    pub fn appended(&mut self, now: Now, group: GroupId, ticket: Ticket, out: &mut Vec<Output>) {
        self.of_group(now, group, OfGroup::Appended(ticket), out);
    }

    /// This save of a group is on the disk.
    pub fn saved(&mut self, now: Now, group: GroupId, ticket: Ticket, out: &mut Vec<Output>) {
        self.of_group(now, group, OfGroup::Saved(ticket), out);
    }

    /// The packs that the disk has.
    pub fn packs(&mut self, now: Now, there: BTreeMap<GroupId, BTreeMap<u64, u64>>, out: &mut Vec<Output>) {
        self.all(now, &OfAll::Packs(there), out);
    }

    /// What came of what was wanted of a group's packs.
    pub fn pack(&mut self, now: Now, group: GroupId, said: PackSaid, out: &mut Vec<Output>) {
        self.of_group(now, group, OfGroup::Pack(said), out);
    }

    /// What was to be done for this group has been.
    pub fn worked(&mut self, now: Now, group: GroupId, number: u64, work: Work, out: &mut Vec<Output>) {
        self.of_group(now, group, OfGroup::Worked(number, work), out);
    }
}

/// The classes that a reboot has cost something, and that do not have it again. The node is whole when there is none.
#[derive(Default)]
pub(crate) struct Recovering(BTreeSet<Number>);

impl Recovering {
    pub fn begins(&mut self, class: Number) {
        self.0.insert(class);
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A class has all again. True: it was the last one.
    pub fn ends(&mut self, class: Number) -> bool {
        self.0.remove(&class) && self.is_over()
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, Time};
    use linear::limits::LOG;

    use super::*;
    use crate::Settings;

    const NOW: Now = Now { mono: Time(1), wall_ms: 1 };

    fn classes() -> Classes {
        let (me, boot, rng) = (NodeId(1), Boot(1), Rng::new(1));
        Classes::new(&mut class::Birth { me, boot, rng, level: base::LEVEL, log: LOG }, Settings::default())
    }

    /// How often the node hears that it is whole.
    fn whole(classes: &mut Classes) -> usize {
        let mut out = Vec::new();
        classes.tend(NOW, &mut out);
        out.iter().filter(|want| matches!(want, class::Output::Recovered)).count()
    }

    #[test]
    fn a_node_is_whole_when_all_classes_that_recover_are_done() {
        let mut all = classes();
        assert!(all.start(BTreeMap::new(), false), "nothing is missing");
        assert_eq!(whole(&mut all), 0);

        let mut all = classes();
        assert!(!all.start(BTreeMap::new(), true));
        assert_eq!((whole(&mut all), whole(&mut all)), (1, 0));

        // Another one that recovers: class `linear` is done first, and says nothing for both.
        let (mut all, other) = (classes(), Number(200));
        assert!(!all.start(BTreeMap::new(), true));
        all.recovering.begins(other);
        assert_eq!(whole(&mut all), 0);
        assert!(!all.recovering.ends(Number::SESSION), "it has not said that it recovers");
        assert!(all.recovering.ends(other));
        assert!(!all.recovering.ends(other), "it is said once");
    }
}
