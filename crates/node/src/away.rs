//! Nodes that are away for longer than the others keep what they miss ([`class::Class::waits`]): they are gone, nothing is kept for them
//! any more, and when they come back they are told so and enter the cluster anew, with nothing.
//!
//! How long that is no wall clock says: the root group's leader counts what it sees itself, by the clock that never jumps, and keeps
//! each part of it as a record, from which the next leader goes on. So it is a little longer than declared, and never shorter.
//!
//! Nodes that went together may have what is nowhere else. So the leader counts, too, how long each was away while the others that had
//! its copies lived: these have made other copies by then, and it is gone in its time, whoever goes after it. Those of which that cannot
//! be said are waited for four times as long.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Note, Now, Span, Time};
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};
use state::linear::place;

use crate::asks::What;
use crate::declared::kind;
use crate::facts;
use crate::former::{self, Former};
use crate::limits::{AWAY_ALONE_PARTS, AWAY_PARTS, AWAY_TOGETHER_PARTS, AWAY_WARN_PARTS};
use crate::node::{Node, Out};

/// The level of programs from which nodes may be gone, as older ones are not told it.
pub(crate) const LEVEL: u32 = 14;

/// Why a node enters anew that was away for too long: its log is sound.
pub const TOO_LONG: &str = "this node was away for so long that the others keep nothing for it any more";

/// How long a node has been away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub node: NodeId,
    /// Of [`AWAY_PARTS`].
    pub parts: u32,
    /// Parts in a row in which no more nodes were away than had copies of what it has. What it alone has is a copy of what others have
    /// when these are [`AWAY_ALONE_PARTS`]; they count up to that. 0 in records of older programs.
    #[serde(default)]
    pub alone: u32,
}

impl Record {
    /// What it has may be nowhere else.
    fn is_together(&self) -> bool {
        self.alone < AWAY_ALONE_PARTS
    }
}

/// At the root group's leader: until when the time of each that is away is counted.
#[derive(Default)]
pub(crate) struct Away(BTreeMap<NodeId, Time>);

fn record(now: &Declared, name: &str, node: NodeId) -> Option<Record> {
    facts::decode::<Record>(now.get(kind::AWAY, name)?).filter(|record| record.node == node)
}

/// The length of some parts of a time, for people.
fn days(within: Span, parts: u32) -> String {
    let days = within.as_millis() as f64 / 86_400_000.0 * f64::from(parts) / f64::from(AWAY_PARTS);
    format!("{days:.1} days")
}

/// What makes it gone.
fn gone(now: &Declared, name: &str, node: NodeId, why: String, at_ms: u64) -> Change {
    let former = Former { name: name.to_owned(), node, why, at_ms };
    let puts = vec![(kind::FORMER.to_owned(), former::former_key(node), facts::encode(&former))];
    let mut removes = vec![(kind::NODE.to_owned(), name.to_owned()), (kind::AWAY.to_owned(), name.to_owned())];
    removes.extend(former::oldest_former(now, node));
    Change { expect: Some(now.version), puts, removes }
}

impl Node {
    /// At each tick.
    pub(crate) fn keep_away(&mut self, now: Now, out: &mut Out) {
        let waits = self.classes.waits().filter(|_| self.root.is_leader() && self.agreed() >= LEVEL);
        let Some(waits) = waits else { return self.away.0.clear() };
        if self.plans_away() {
            return;
        }
        let live: BTreeSet<NodeId> = self.live_cards().map(|card| card.id).chain([self.me()]).collect();
        let all = self.admission.named.iter().map(|(id, name)| (*id, name.clone()));
        let away: Vec<_> = all.filter(|(id, _)| !live.contains(id)).collect();
        let is_away = |name: &str| away.iter().any(|(_, other)| other == name);
        let records = self.root.declared().of_kind(kind::AWAY).map(|(name, _)| name);
        let back: Vec<_> = records.filter(|name| !is_away(name)).map(|name| (kind::AWAY.into(), name.into())).collect();
        self.away.0.retain(|id, _| away.iter().any(|(other, _)| other == id));
        if !back.is_empty() {
            let change = Change { expect: Some(self.root.declared().version), puts: Vec::new(), removes: back };
            return self.propose_change(now, What::Away { told: None }, change, out);
        }
        let part = Span(waits.within.0 / u64::from(AWAY_PARTS));
        let of = |(id, name): (NodeId, String)| {
            let kept = record(self.root.declared(), &name, id);
            (name, kept.unwrap_or(Record { node: id, parts: 0, alone: 0 }))
        };
        let away: Vec<(String, Record)> = away.into_iter().map(of).collect();
        let is_alone = away.iter().filter(|(_, record)| record.is_together()).count() <= waits.away_max;
        for (name, record) in away {
            let (id, parts) = (record.node, record.parts);
            let counted = *self.away.0.entry(id).or_insert(now.mono);
            // Where one copy is enough there is no other one, ever.
            let due = match record.is_together() {
                true if waits.away_max == 0 => u32::MAX,
                true => AWAY_TOGETHER_PARTS,
                false => AWAY_PARTS,
            };
            let days = days(waits.within, due);
            let may = live.len() > 1 && place::needs(id, |id| live.contains(id), self.placed.values()).is_none();
            if parts >= due && may {
                let declared = self.root.declared();
                let change = gone(declared, &name, id, format!("it was away for {days}"), now.wall_ms);
                let text =
                    format!("was away for {days}: nothing is kept for it any more, and it enters anew when it is back");
                return self.propose_change(now, What::Away { told: Some((name, text)) }, change, out);
            }
            if parts >= AWAY_TOGETHER_PARTS || now.mono.since(counted) < part {
                continue;
            }
            self.away.0.insert(id, counted + part);
            let alone = match (record.is_together(), is_alone) {
                (true, true) => record.alone + 1,
                (true, false) => 0,
                (false, _) => record.alone,
            };
            let record = Record { node: id, parts: parts + 1, alone };
            let told = match record.parts {
                AWAY_WARN_PARTS => Some(format!(
                    "is away for long: after {days} nothing is kept for it, and what it alone has is lost to the cluster"
                )),
                AWAY_PARTS if due > AWAY_PARTS => Some(
                    "is away for long, as others were at the same time: it is waited for, as it may have what is nowhere else".to_owned(),
                ),
                _ => None,
            };
            let told = told.map(|text| (name.clone(), text));
            let puts = vec![(kind::AWAY.to_owned(), name, facts::encode(&record))];
            let change = Change { expect: Some(self.root.declared().version), puts, removes: Vec::new() };
            return self.propose_change(now, What::Away { told }, change, out);
        }
    }

    /// A node says that this one was away for too long. As many have to say so as that it was removed: what it has is set aside.
    pub(crate) fn told_anew(&mut self, from: NodeId, out: &mut Out) {
        let others = self.admission.named.keys().filter(|id| **id != self.me()).count();
        let is_new = self.admission.named.contains_key(&from) && self.told_anew.insert(from);
        if !is_new {
            return;
        }
        let (said, name) = (self.told_anew.len(), self.name_of(from));
        let text = format!("{name} says that this node was away for too long ({said} of {others})");
        out.push(base::Effect::Note(Note::warn(text)));
        if said * 2 > others && said > 1 {
            let why = TOO_LONG.to_owned();
            out.push(base::Effect::Distrust { why });
        }
    }
}
