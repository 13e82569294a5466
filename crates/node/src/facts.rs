//! What nodes tell each other by beacon, under which keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::asked::{Tally, Took};

/// [`NodeReport`]: each node, each second, to a few others and the root group's leader; to all if it is worth that.
pub const REPORT: &str = "report";
/// [`clones::NodeClones`]: each node, at each change.
pub const CLONES: &str = "clones";
/// [`clones::Assignments`]: the root group's leader, at each change.
pub const ASSIGNMENTS: &str = "assignments";
/// [`BrickReport`]: each node, at each change.
pub use state::session::{BRICK, BrickReport};

/// [`crate::departure::Wish`]: the node that an operator asked to let some node restart or leave.
pub const WISH: &str = "wish";
/// [`crate::leave::Left`]: a node that is about to end.
pub const LEAVING: &str = "leaving";
/// [`crate::lives::Record`]: each node, each second, to a few others.
pub const LIVES: &str = "lives";
/// What the manager decided last, newest last, as [`crate::view::EventView`]s: every node shows it.
pub const DECISIONS: &str = "decisions";
/// How long a force takes at least, milliseconds, of a node whose disk is slow; else 0: each node, at each change.
pub const SLOW_DISK: &str = "slow-disk";
/// Groups that this node leads and that have just formed: each node, at each change.
pub use state::linear::FORMED;
/// Groups that this node leads, at most [`crate::limits::LEADS_TOLD_MAX`] of them: each node, at each change. Those
/// that are not their members know their leaders by it; to show them.
pub const LEADS: &str = "leads";

/// The voters of the root group: its leader, at each change. Those that are not its members know them by it.
pub const VOTERS: &str = "voters";

/// [`clones::members::Said`]: each node, at each change.
pub const MEMBERS: &str = "members";

/// [`crate::asked::UsesTold`]: each node that has clones, when they use another thing than it said.
pub const USES: &str = "uses";

/// The key of a part of what is said under this one ([`clones::parts`]): of clones, assignments and members.
pub fn part(key: &str, number: u32) -> String {
    format!("{key}.{number}")
}

/// Under which key that is said which has this key, or a part of it.
pub fn whole(key: &str) -> &str {
    key.split_once('.').map_or(key, |(whole, _)| whole)
}

/// How a node is. JSON, as it is small, sent once a second, and read by people in traces.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    pub load: u16,
    pub cpu_millis: u32,
    pub resident_bytes: u64,
    pub gauges: Arc<BTreeMap<String, u64>>,
    /// On their way: the gauges of stages, by stage, each in the order of [`STAGE_GAUGES`]. Their names would be most
    /// of what is sent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<String, Vec<u64>>,
    /// What its state classes tell.
    #[serde(flatten)]
    pub classes: state::Reports,
    /// What is wrong with its disk, if it can take nothing.
    pub disk: Option<String>,
    /// The node runs clones only when the others are full.
    pub overflow: bool,
    /// Clones that it is meant to run at most; 0 from a version that does not say.
    pub room: u32,
    /// What this node's doors saw of each clone in the last moments, by clone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, Tally>,
    /// Requests under way at this node's doors, and how long answers took then, by clone. Older programs do not say it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub took: BTreeMap<String, Took>,
    /// What lies in the node's brick, and in the groups that it leads, by namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, UsedThere>,
}

/// Level from which all nodes read [`NodeReport::packed`].
pub const LEVEL_PACKED: u32 = 10;

/// What each stage shows, in the order in which it is told; what comes later stands at the end.
const STAGE_GAUGES: [&str; 11] = [
    "waiting",
    "under_way",
    "limit",
    "overloaded",
    "wait_p50_us",
    "wait_p99_us",
    "service_p50_us",
    "service_p99_us",
    "started_total",
    "refused_total",
    "overloads_total",
];

/// What a node has of a namespace.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsedThere {
    pub bytes: u64,
    pub keys: u64,
    /// Percent of what the fullest part there may have; 0 if it may have all that there is room for.
    pub percent: u32,
}

impl NodeReport {
    /// As it is sent.
    pub fn packed(&self) -> Bytes {
        let (mut gauges, mut stages) = (BTreeMap::new(), BTreeMap::<String, Vec<u64>>::new());
        for (name, value) in &*self.gauges {
            let of_stage = name.strip_prefix("stage.").and_then(|rest| rest.rsplit_once('.'));
            match of_stage.and_then(|(stage, figure)| Some((stage, place(figure)?))) {
                Some((stage, at)) => {
                    stages.entry(stage.to_owned()).or_insert_with(|| vec![0; STAGE_GAUGES.len()])[at] = *value;
                }
                None => _ = gauges.insert(name.clone(), *value),
            }
        }
        encode(&Self { gauges: Arc::new(gauges), stages, ..self.clone() })
    }

    /// One that was sent, packed or not.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut report: Self = decode(bytes)?;
        let stages = std::mem::take(&mut report.stages);
        if !stages.is_empty() {
            let gauges = Arc::make_mut(&mut report.gauges);
            for (stage, values) in stages {
                let named = STAGE_GAUGES.iter().zip(values);
                gauges.extend(named.map(|(figure, value)| (format!("stage.{stage}.{figure}"), value)));
            }
        }
        Some(report)
    }

    /// What of it is worth telling all nodes at once. The rest are figures, which change all the time.
    pub fn standing(&self) -> Self {
        let Self { disk, overflow, room, classes, .. } = self;
        let (disk, classes) = (disk.clone(), classes.standing());
        Self { disk, overflow: *overflow, room: *room, classes, ..Self::default() }
    }

    /// How busy its machine is, 0 to 1000; as far as it says so, clones and all else included.
    pub fn busy(&self) -> u16 {
        self.gauges.get("machine.busy").map_or(self.load, |busy| (*busy).min(1000) as u16)
    }
}

fn place(figure: &str) -> Option<usize> {
    STAGE_GAUGES.iter().position(|known| *known == figure)
}

pub fn encode<T: Serialize>(fact: &T) -> Bytes {
    serde_json::to_vec(fact).expect("facts are plain data").into()
}

pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nodes of level 10 write it.
    const OF_BEFORE: &str = r#"{"load":5,"cpu_millis":7,"resident_bytes":8,"gauges":{"a":1},
        "brick":{"entries":1,"bytes":2,"bytes_max":3,"operations":4,"anew":5},
        "opinion":{"compares":true,"filled":3,"outlier":{"brick":9,"measure":"took","does":1,"others":2}},
        "disk":"full","overflow":true,"room":4,"intervals":{"carts":[2,3]},"whole":[7,8],"unwhole":[65536],"large":[65537],
        "asked":{"shop/0":{"done":1,"failed":0,"busy_us":4}},"hot":{"bank":[{"key":"k","rate":100,"waiters":1}]},
        "used":{"bank":{"bytes":1,"keys":2,"percent":3}}}"#;

    #[test]
    fn a_report_is_to_older_nodes_what_theirs_are() {
        let report = NodeReport::read(OF_BEFORE.as_bytes()).unwrap();
        let state::Reports { session, linear, .. } = &report.classes;
        let outlier = session.opinion.outlier.as_ref().unwrap();
        assert_eq!((session.brick.anew, outlier.brick, session.intervals["carts"]), (5, base::NodeId(9), (2, 3)));
        assert_eq!((linear.whole, linear.unwhole.len(), linear.large.len()), ((7, 8), 1, 1));
        assert_eq!((&*linear.hot["bank"][0].key, report.room, report.used["bank"].keys), ("k", 4, 2));
        let both = [OF_BEFORE.as_bytes(), &encode(&report)].map(|text| decode::<serde_json::Value>(text).unwrap());
        assert_eq!(both[0], both[1]);
        assert_eq!(NodeReport::read(b"{}"), Some(NodeReport::default()), "what is missing is as by default");
        let unread = OF_BEFORE.replace("\"whole\":[7,8]", "\"later\":{\"a\":1}");
        assert_eq!(
            NodeReport::read(unread.as_bytes()).unwrap().classes.linear.whole,
            (0, 0),
            "nor does it take what is new"
        );
    }

    #[test]
    fn a_report_on_its_way_is_small_and_means_what_it_meant() {
        let shown = flow::stage::Shown { waiting: 3, overloads: 9, ..flow::stage::Shown::default() };
        let of = |stage| {
            let all = shown.gauges().into_iter().chain(shown.totals());
            all.map(move |(figure, value)| (format!("stage.{stage}.{figure}"), value))
        };
        let others = [("net.links".to_owned(), 0), ("stage.odd".to_owned(), 1), ("stage.s.new".to_owned(), 2)];
        let gauges = of("session-brick").chain(of("resp-linear")).chain(others).collect();
        let report = NodeReport { load: 7, gauges: Arc::new(gauges), ..NodeReport::default() };
        let packed = report.packed();
        assert_eq!(NodeReport::read(&packed).as_ref(), Some(&report));
        assert_eq!(NodeReport::read(&encode(&report)).as_ref(), Some(&report), "of an older node");
        assert!(packed.len() + 600 < encode(&report).len(), "{} bytes", packed.len());
        assert_eq!(shown.gauges().len() + shown.totals().len(), STAGE_GAUGES.len(), "each has its place");
    }
}
