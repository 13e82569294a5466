//! Runs: what a service does once and is over. Three kinds have one machinery: what runs before a version (`before`), what runs at
//! times (`schedule`, `every`), and what an operator runs by hand. A run is a clone with a number of its own: it has the folder, the
//! environment, the secrets and the sandbox of its service's clones, and a log as they have; nobody asks it anything, and it is not
//! started again when it ends.
//!
//! - `here.rs`: this node's runs, from their order to their end.
//! - `planner.rs`: at the root group's leader: what is to run now, and where; what has ended, and what is lost.
//!
//! A run that the cluster wants is a record of the root group before it begins, with a number that none had before and the life of
//! the node that has it. The node runs it only while the leader, asked once a second, says that it may ([`RUN_LEASE`]); the leader
//! gives it up only when that word has been over for long ([`RUN_GIVE_UP`]), or that life of the node is. So two runs of a service are
//! never under way at once, whoever leads, however late what frame is. What an operator runs is its node's own matter.
//!
//! A node whose machine stands still does not end what it runs: what must not be done twice at once even then compares
//! `COPPICE_RUN`, which grows from run to run.

use base::{Boot, NodeId};
use serde::{Deserialize, Serialize};

use crate::CloneId;
use crate::limits::ONCE_MAX;

mod here;
mod planner;

pub(crate) use here::{Found, Runs, named};
pub use here::{Once, OnceEnd, Order};
pub use planner::{Place, Plan, Planner, Scene, Verdict};

/// Which of a service's runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// What goes before a version.
    Before,
    /// What comes at times.
    Job,
    /// What an operator runs, each at its node.
    Once(u32),
}

/// Numbers of clones end long before.
const BEFORE_NUMBER: u32 = 1000;
const JOB_NUMBER: u32 = 1001;
const ONCE_NUMBER: u32 = 1002;
const _: () = assert!(crate::limits::CLONES_PER_SERVICE_MAX <= BEFORE_NUMBER, "no clone has a run's number");

impl Slot {
    /// The number that it has as a clone.
    pub fn number(self) -> u32 {
        match self {
            Self::Before => BEFORE_NUMBER,
            Self::Job => JOB_NUMBER,
            Self::Once(n) => ONCE_NUMBER + n,
        }
    }

    pub fn of_number(number: u32) -> Option<Self> {
        match number {
            BEFORE_NUMBER => Some(Self::Before),
            JOB_NUMBER => Some(Self::Job),
            ONCE_NUMBER.. => Some(number - ONCE_NUMBER).filter(|n| *n < ONCE_MAX).map(Self::Once),
            _ => None,
        }
    }

    /// For people: `before`, `job`, `run-1`.
    pub fn word(self) -> String {
        match self {
            Self::Before => "before".to_owned(),
            Self::Job => "job".to_owned(),
            Self::Once(n) => format!("run-{}", n + 1),
        }
    }

    /// Of those that are records, by the end of the record's name.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Before, Self::Job].into_iter().find(|slot| slot.word() == word)
    }

    pub fn id(self, service: &str) -> CloneId {
        CloneId::new(service, self.number())
    }
}

/// What the root group keeps of a slot of a service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Placed, and not known to have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Under>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Ended>,
    /// Times up to here are done with, milliseconds since 1970; 0 of what has no times.
    #[serde(default)]
    pub seen_ms: u64,
}

/// A run under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Under {
    /// No other run has it, and later ones have greater ones.
    pub id: u64,
    /// Version of the service, 0 if it was never deployed.
    pub version: u32,
    /// The time that it is for; 0 if it has none.
    pub due_ms: u64,
    pub node: NodeId,
    /// The node's name, for people who read of it later.
    pub at: String,
    /// Life of the node.
    pub boot: Boot,
    /// When it was placed, milliseconds since 1970.
    pub began_ms: u64,
    /// Which attempt it is, from 1 on.
    pub attempt: u32,
    /// Nobody wants it any more: its node is to end it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub id: u64,
    pub version: u32,
    pub due_ms: u64,
    /// Name of its node.
    pub at: String,
    pub began_ms: u64,
    pub ended_ms: u64,
    pub good: bool,
    /// For people: `exit status 1`.
    pub how: String,
    /// Its last lines of output, newest last.
    pub lines: Vec<String>,
}

/// What a node says of a run that the root group gave it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Said {
    pub id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SaidEnd>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SaidEnd {
    pub good: bool,
    pub how: String,
    pub lines: Vec<String>,
}

/// What nodes and the leader tell each other of runs: JSON, as it is small and once a second.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// A node to the leader. `at` is its own clock, and comes back.
    Ask { at: u64, runs: Vec<Said> },
    /// The leader: these may run for [`RUN_LEASE`] from when they were asked for.
    Grant { at: u64, runs: Vec<u64> },
}

impl Word {
    pub fn encode(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("words are plain data").into()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Under {
    pub fn ended(&self, ended_ms: u64, end: SaidEnd) -> Ended {
        let Self { id, version, due_ms, at, began_ms, .. } = self.clone();
        let SaidEnd { good, how, lines } = end;
        Ended { id, version, due_ms, at, began_ms, ended_ms, good, how, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_numbers_that_no_clone_has_and_words_for_people() {
        for slot in [Slot::Before, Slot::Job, Slot::Once(0), Slot::Once(ONCE_MAX - 1)] {
            assert_eq!(Slot::of_number(slot.number()), Some(slot));
        }
        assert_eq!((Slot::of_number(255), Slot::of_number(ONCE_NUMBER + ONCE_MAX)), (None, None));
        assert_eq!((Slot::of_word("job"), Slot::of_word("run-1")), (Some(Slot::Job), None));
    }

    #[test]
    fn words_between_nodes_have_these_bytes_and_others_are_none() {
        let end = SaidEnd { good: false, how: "exit status 1".into(), lines: vec!["no".into()] };
        let ask = Word::Ask { at: 5, runs: vec![Said { id: 7, end: None }, Said { id: 8, end: Some(end) }] };
        let text =
            r#"{"ask":{"at":5,"runs":[{"id":7},{"id":8,"end":{"good":false,"how":"exit status 1","lines":["no"]}}]}}"#;
        assert_eq!(ask.encode(), text);
        let grant = Word::Grant { at: 5, runs: vec![7] };
        assert_eq!(grant.encode(), r#"{"grant":{"at":5,"runs":[7]}}"#);
        for word in [ask, grant] {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        for bad in ["", "{}", "{\"ask\":{}}", "{\"grant\":{\"at\":-1,\"runs\":[]}}", "\u{0}"] {
            assert_eq!(Word::decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
