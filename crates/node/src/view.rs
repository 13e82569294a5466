//! What the front doors, the monitor and scripts may see of the cluster at any time, without asking. A view is built
//! from soft state, so it may be a moment old; it is replaced whole. `coppice status --json` prints these fields:
//! their names and meaning are held fast by a test, new ones may be added.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Boot, NodeId, ProcUse};
use class::Line;
use clones::ProfileSpec;
use clones::route::Routes;
use cluster::{Admission, DoorAddrs};
use flow::stage::Shown;
use serde::{Deserialize, Serialize};
pub use state::linear::HotShown as HotKeyView;
pub use state::linear::QueueShown as QueueView;
use state::session::odds::Odds;
use state::{Class, NamespaceSpec};

use crate::Keyed;
use crate::acme::Acme;
use crate::authority::AuthorityView;
use crate::renewed::{FormerTokenView, Formers};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// Name of the cluster.
    pub cluster: String,
    /// The node that shows this.
    pub me: String,
    /// Wall clock when it was built, milliseconds since 1970.
    pub at_ms: u64,
    pub nodes: Vec<NodeView>,
    pub services: Vec<ServiceView>,
    pub namespaces: Vec<NamespaceView>,
    /// Certificates of the cluster, by name.
    pub certificates: Arc<[CertificateView]>,
    /// Tokens that were renewed and open for a while longer: whose, and until when.
    #[serde(default, skip_serializing_if = "is_none")]
    pub former_tokens: Arc<[FormerTokenView]>,
    /// How far another authority has come.
    #[serde(default, skip_serializing_if = "is_calm")]
    pub authority: AuthorityView,
    pub root: RootView,
    pub groups: GroupsView,
    pub overflow: OverflowView,
    /// This node's stub towards each other live brick.
    pub stubs: Vec<StubView>,
    /// Set when this node's doors are to close, and how it ends then.
    pub closing: Option<crate::Leaving>,
    /// Newest last, at most 200.
    pub events: Vec<Arc<EventView>>,
    /// Figures of this node's parts, by name (`session.writes`, ...), counted since it started.
    pub figures: BTreeMap<Cow<'static, str>, u64>,
    #[serde(skip)]
    pub routes: Arc<Routes>,
    /// Namespace to its token, for the front doors alone: never shown.
    #[serde(skip)]
    pub tokens: Arc<BTreeMap<String, String>>,
    /// Service to the token of its clones. Never shown.
    #[serde(skip)]
    pub service_tokens: Arc<BTreeMap<String, String>>,
    /// Tokens that open besides those. Never shown.
    #[serde(skip)]
    pub formers: Arc<Formers>,
    /// What is declared of each namespace, for the front doors.
    #[serde(skip)]
    pub specs: Arc<BTreeMap<String, NamespaceSpec>>,
    /// Profiles that are declared, for the front doors.
    #[serde(skip)]
    pub profiles: Arc<BTreeMap<String, ProfileSpec>>,
    /// Namespace to the service whose clones know its functions, for the front doors.
    #[serde(skip)]
    pub functions: Arc<BTreeMap<String, String>>,
    /// The stages of this node's machines, for `/metrics`.
    #[serde(skip)]
    pub stages: Arc<[(&'static str, Shown)]>,
    /// What this node's clones use, exactly, for `/metrics`.
    #[serde(skip)]
    pub uses: Arc<BTreeMap<String, ProcUse>>,
    /// Certificates of the cluster with their keys, for the doors alone: never shown.
    #[serde(skip)]
    pub keyed: Arc<[Keyed]>,
    /// Certificates that come by themselves, with the key of the account: for who asks, and for challenges. Never
    /// shown.
    #[serde(skip)]
    pub acme: Arc<Acme>,
    /// Archives of deployed folders that every node must have.
    #[serde(skip)]
    pub codes: Arc<BTreeSet<String>>,
    /// Which nodes are let in, for the host.
    #[serde(skip)]
    pub admission: Arc<Admission>,
    /// This node was removed: it gives up what it has before it ends.
    #[serde(skip)]
    pub removed: bool,
    /// Who may change the cluster: the operator's token. Never shown.
    #[serde(skip)]
    pub admin_token: Arc<str>,
}

fn is_calm(authority: &AuthorityView) -> bool {
    authority.turn == 0
}

fn is_none(of: &Arc<[FormerTokenView]>) -> bool {
    of.is_empty()
}

impl View {
    /// Whether a token that opens nothing is wrong: a node that has just started knows none, or those of when it ended.
    pub fn has_heard(&self) -> bool {
        self.root.leader.is_some() && self.root.version > 0
    }

    /// The class of a namespace; of one that is not there `session`.
    pub fn class_of(&self, namespace: &str) -> Class {
        self.specs.get(namespace).map_or(Class::Session, NamespaceSpec::class)
    }

    /// Whether a function is declared weak in a namespace of class `linear`.
    pub fn is_weak(&self, namespace: &str, function: &str) -> bool {
        let linear = self.specs.get(namespace).and_then(|spec| spec.linear());
        linear.is_some_and(|spec| spec.weak.iter().any(|weak| weak == function))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Live,
    Suspect,
    Dead,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    pub id: NodeId,
    pub name: String,
    pub state: NodeState,
    pub boot: Boot,
    pub pid: u32,
    pub version: String,
    /// What its program understands, [`RootView::level`] or more.
    #[serde(default)]
    pub level: u32,
    #[serde(flatten)]
    pub doors: DoorAddrs,
    /// 0 (idle) to 1000 (full).
    pub load: u16,
    pub cpu_millis: u32,
    pub resident_bytes: u64,
    /// When it came to be in this state, milliseconds since 1970.
    pub since_ms: u64,
    /// Figures of its front doors over the last second: `http.requests`, `http.errors`, `http.p50_us`, `http.p99_us`,
    /// `resp.commands`, `resp.p99_us`, `resp.connections`, ...
    pub gauges: Arc<BTreeMap<String, u64>>,
    /// When its certificate ends, milliseconds since 1970; it is renewed long before. None of an older program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_ends_at_ms: Option<u64>,
    /// Less than a third of its certificate's time is left, and it could not be renewed; the node's log and an event
    /// say why.
    #[serde(default)]
    pub certificate_fails: bool,
    /// What clones can do there because the kernel cannot keep them from it, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_lacks: Vec<String>,
    #[serde(default)]
    pub brick: BrickView,
    /// What is wrong with its disk: until that is over it takes no part in any group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Its disk is slow: a force takes so long at least, milliseconds. It leads nothing that others can lead, and its
    /// groups go elsewhere if that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_force_ms: Option<u64>,
    /// The node runs clones only when the others are full.
    #[serde(default)]
    pub overflow: bool,
    /// An operator drained it: it gets no clones, and those that it has move elsewhere.
    #[serde(default)]
    pub drained: bool,
    /// How it leaves, if it is about to restart, or to go for good.
    #[serde(default)]
    pub leaving: Option<crate::Leaving>,
    /// ... and waits for this first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// A node's brick, as its last report has it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrickView {
    /// The brick holds all that it should.
    pub settled: bool,
    pub entries: u64,
    pub bytes: u64,
    /// Past it, new sessions are refused (`--brick-memory`).
    pub bytes_max: u64,
    /// Reads and writes since the node started.
    pub operations: u64,
}

/// What this node's stub has to do with one brick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StubView {
    /// Name of the brick's node.
    pub brick: String,
    /// Requests that may be under way at once.
    pub window: u64,
    pub in_flight: u64,
    /// Its last request was not answered in time.
    pub slow: bool,
    /// Requests not answered in time, since this node started.
    pub timeouts: u64,
    /// Requests not sent as the window was full, since this node started.
    pub no_room: u64,
    /// Requests not sent as the brick said that it has too much to do for what matters so little, since this node
    /// started.
    pub turned_away: u64,
    /// Writes that the brick refused as its memory is full, since this node started.
    pub full: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceView {
    pub name: String,
    /// Clones wanted now.
    pub wanted: u32,
    /// Within which the manager chooses how many are wanted.
    #[serde(default)]
    pub clones_min: u32,
    #[serde(default)]
    pub clones_max: u32,
    pub clones: Vec<CloneView>,
    /// The life that leads its clones, if one does ([`CloneView::life`]).
    #[serde(default)]
    pub leader: Option<String>,
    /// Where it is reached: `*` or a host, and a path prefix; or a TCP port.
    pub at: Vec<String>,
    /// Its clones get the certificates of their nodes' folders and of the cluster, with keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certificates: bool,
    /// The file that describes it to programs, in the folder that was deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openapi: Option<String>,
    /// What an operator has taken out of use: the service itself (`shop`), clones (`shop/2`), partitions
    /// (`shop:search`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<String>,
    /// In the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionView>,
    /// Version that stands; 0 if it was never deployed.
    #[serde(default)]
    pub version: u32,
    /// Version that is being rolled out.
    #[serde(default)]
    pub next: Option<u32>,
    /// Within which a clone has to serve, milliseconds; of the version that is being rolled out, if there is one.
    #[serde(default)]
    pub start_timeout_ms: u64,
    /// Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionView>,
    /// Queues of jobs that it works on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<WorkedView>,
    /// What it runs at times, and before its versions; left out if it has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunsView>,
}

/// A queue of jobs that a service works on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkedView {
    pub namespace: String,
    pub queue: String,
    /// Whether somebody tells of it: it has had a job, and its shard has a leader.
    pub is_told: bool,
    /// Jobs that wait, and that workers have.
    pub waiting: u64,
    pub held: u64,
    /// How long the one waits that has waited longest.
    pub oldest_ms: u64,
}

/// What a service runs once and is over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunsView {
    /// When it runs, as declared: `0 3 * * *`, `every 2s`; none of a service with standing clones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    /// Its next time, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// What runs at these times.
    pub job: RunView,
    /// What goes before a version.
    pub before: RunView,
    /// Version of which no clone starts before that has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_before: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunView {
    /// Name of the node where it runs; none while it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when, milliseconds since 1970; 0 while it does not.
    pub since_ms: u64,
    /// The last one that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<RunEndView>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEndView {
    pub node: String,
    pub version: u32,
    /// The time that it was for, milliseconds since 1970; 0 of what has no times.
    pub due_ms: u64,
    pub began_ms: u64,
    pub ended_ms: u64,
    pub good: bool,
    /// For people: `exit status 1`.
    pub how: String,
    /// The last lines of its output.
    pub lines: Vec<String>,
}

/// A certificate of the cluster, without its key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateView {
    pub name: String,
    /// Host names that it is for.
    pub names: Vec<String>,
    /// Who signed it.
    pub issuer: String,
    /// From when and until when it is good; milliseconds since 1970, as all moments here.
    pub begins_at_ms: u64,
    pub ends_at_ms: u64,
    /// When it was set.
    pub at_ms: u64,
    /// The ACME directory that it comes from by itself. Until it is there its moments are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What went wrong when it was asked for the last time, and when it is asked for again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at_ms: Option<u64>,
}

impl CertificateView {
    /// Whether the certificate has come, if it is one that comes by itself.
    pub fn is_there(&self) -> bool {
        self.ends_at_ms > 0
    }
}

/// A part of what comes to a service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionView {
    pub name: String,
    /// 0 to 9; in overload the lowest is refused first.
    pub priority: u8,
    /// Part of the clones that serve it and no other: `25%`; `0%` for none.
    pub share: String,
}

/// How nodes for overflow were needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OverflowView {
    /// How often one was recruited.
    pub times: u64,
    /// For how long at least one had clones, milliseconds, the present time included.
    pub total_ms: u64,
    /// Since when at least one has clones, milliseconds since 1970; none if none has.
    pub since_ms: Option<u64>,
    /// When the last one was released, milliseconds since 1970; 0 if none ever was.
    pub last_ms: u64,
}

/// A version of a service's program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionView {
    pub number: u32,
    pub at_ms: u64,
    /// SHA-256 of its folder as an archive; none if it was declared, not deployed.
    pub code: Option<String>,
    pub files: u64,
    pub bytes: u64,
    /// What became of it, in words.
    pub fate: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneState {
    Starting,
    Serving,
    Draining,
    /// Waiting to be started again after it died.
    Backoff,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneView {
    /// `service/number`.
    pub name: String,
    /// Which life of it: `n1.7.3`; empty when no process runs.
    #[serde(default)]
    pub life: String,
    /// Name of its node.
    pub node: String,
    pub state: CloneState,
    pub pid: u32,
    pub port: u16,
    /// How often it was started again since its node started.
    pub restarts: u32,
    /// Version of its program; 0 if it was never deployed.
    #[serde(default)]
    pub version: u32,
    /// How often processes of that version died there, since the clone is to run it; none if its node does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaths: Option<u32>,
    pub since_ms: u64,
    /// How it last ended, if it did.
    pub last_exit: Option<String>,
    /// Its last lines of output, when it does not serve.
    pub last_output: Vec<String>,
    /// The clone fails its probes, or was restarted for that and does not serve yet.
    #[serde(default)]
    pub sick: bool,
    /// What all doors saw of it in the last 5 to 10 s; left out if it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedView>,
    /// Processor time of its process and of those that this started, in thousandths of a core, as its node last said;
    /// told anew when it is others by a quarter, and by 20. Left out if its node does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// ... and their resident memory, to a MiB; told anew when it is others by an eighth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

/// What doors saw of a clone. While it is replaced, of the old and the new one together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedView {
    pub requests: u64,
    /// Requests among them that it failed (5xx) or never answered.
    pub failed: u64,
    /// Until an answer began, on average.
    pub mean_us: u64,
    /// Half of the answers, and 99 in 100, began within that: at most a quarter too high. Left out of what older nodes
    /// say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// Requests that it has now.
    pub under_way: u64,
}

/// Which of several clones does worse than the others, and how.
#[derive(Clone, Copy, Debug)]
pub struct Slowest<'a> {
    pub clone: &'a CloneView,
    pub asked: AskedView,
    /// What half of the answers of one in the middle of the others take, microseconds.
    pub others_us: u64,
}

impl AskedView {
    /// What half of the answers took; of older nodes, what they took on average.
    pub fn half_us(&self) -> Option<u64> {
        self.p50_us.or((self.requests > 0).then_some(self.mean_us))
    }

    /// Whether the clone has several requests and answered none.
    pub fn is_mute(&self) -> bool {
        self.requests == 0 && self.under_way >= SLOW_ANSWERS_MIN
    }
}

/// Fewer answers say little.
const SLOW_ANSWERS_MIN: u64 = 3;
/// Who takes so many times what the others take is slow; and with few answers, which is what edges leave to who is
/// slow, so many ...
const SLOW_TIMES: u64 = 2;
const SLOW_TIMES_FEW: u64 = 5;
/// ... if it is more than this, microseconds: below it is noise.
const SLOW_MIN_US: u64 = 2_000;

impl ServiceView {
    /// The clone that stands out: it answers nothing while others do, or half of its answers take twice what the
    /// others' take.
    pub fn slowest(&self) -> Option<Slowest<'_>> {
        let asked = || self.clones.iter().filter_map(|clone| Some((clone, clone.asked?)));
        let others = |but: &CloneView| {
            let others = asked().filter(|(clone, asked)| clone.name != but.name && asked.requests >= SLOW_ANSWERS_MIN);
            let mut took: Vec<u64> = others.filter_map(|(_, asked)| asked.half_us()).collect();
            took.sort_unstable();
            took.get(took.len() / 2).copied()
        };
        let all = asked().filter_map(|(clone, asked)| {
            let (others_us, half) = (others(clone)?, asked.half_us());
            let times = if asked.requests >= SLOW_ANSWERS_MIN { SLOW_TIMES } else { SLOW_TIMES_FEW };
            let is_slow = half.is_some_and(|us| us > SLOW_MIN_US && us / times > others_us);
            (is_slow || asked.is_mute()).then_some(Slowest { clone, asked, others_us })
        });
        all.max_by_key(|one| (one.asked.is_mute(), one.asked.half_us()))
    }
}

/// What a namespace holds, copies not counted, as of the last second or two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsedView {
    /// Bytes of keys and values, and 48 for each key.
    pub bytes: u64,
    pub keys: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<u32>,
    /// Percent of what the fullest shard or brick may hold; 0 if it may hold all that there is room for.
    pub percent: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamespaceView {
    pub name: String,
    pub class: String,
    /// Default lease of a value, milliseconds.
    pub lease_ms: u64,
    /// `fields` if parallel writes of different fields of a value are merged, else `none`.
    #[serde(default)]
    pub merge: String,
    /// How long one brick is waited for, milliseconds.
    #[serde(default)]
    pub timeout_ms: u64,
    /// What the class promises, in a sentence.
    pub promise: String,
    /// What the class says of it, for people; none from an older program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
    /// Class `linear`: the service whose clones know its functions, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<String>,
    /// Class `linear`: where an acknowledged write is, `disk` or `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Class `cache`: what it may take at each node, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max: Option<u64>,
    /// Class `cache`: how long an entry is kept at most, milliseconds; none: as long as there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Class `linear`: functions that are declared weak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weak: Vec<String>,
    /// Connections of the Redis door that may have it open on each node; none: as many as there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u32>,
    /// Operations a second that each node does for it; none: as many as come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<u32>,
    /// What it holds, and what it may hold; none of a class that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedView>,
    /// With `durability = "memory"`: what may be lost, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_window: Option<LossWindow>,
    /// What is declared of the number of its consensus groups: a number, `auto`, or nothing, and then it stays as it
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards_declared: Option<String>,
    /// Its consensus groups, if its class has any.
    #[serde(default, skip_serializing_if = "<[ShardView]>::is_empty")]
    pub shards: Arc<[ShardView]>,
    /// Keys of a linear namespace that get many commands, the hottest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotKeyView>,
    /// Queues of jobs of a linear namespace, those whose jobs wait longest first; 64 of each node that leads some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueView>,
    /// The odds that a session is lost to brick deaths, with what the cluster has seen (SSM 3.7). Of class `session`
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odds: Option<Odds>,
}

/// Acknowledged writes are lost only if the power of a majority of a group's machines fails at once, and then those
/// that were not yet forced to disk there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossWindow {
    /// The force of a write begins so many milliseconds after it at the latest.
    pub force_after_ms: u64,
    /// The longest time from a write to the end of its force that the live nodes have seen since they started,
    /// milliseconds; 0: none has written such a one yet.
    pub longest_ms: u64,
}

/// One consensus group of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardView {
    /// `namespace/number`.
    pub name: String,
    /// Keys whose hashes are in `from..=to` are its; 16 hexadecimal digits each.
    #[serde(with = "hash", default)]
    pub from: u64,
    #[serde(with = "hash", default)]
    pub to: u64,
    /// As far as the node knows that shows this.
    pub leader: Option<String>,
    pub members: Vec<String>,
}

/// A hash as text: as a number of JSON it would lose digits.
mod hash {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{hash:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RootView {
    pub leader: Option<String>,
    pub voters: Vec<String>,
    /// Version of the declared configuration: counts up with each change.
    pub version: u64,
    /// What all nodes understand alike (`base/src/level.rs`).
    #[serde(default)]
    pub level: u32,
}

/// Consensus groups of `linear` namespaces.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupsView {
    pub all: u64,
    /// Groups with a leader that says: every member that there should be lives, votes and has (nearly) all.
    pub whole: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventView {
    pub at_ms: u64,
    /// `deployed`, `scaled`, `overflow`, `birth`, `death`, `suspect`, `clone-started`, `clone-died`, `clone-moved`,
    /// `leader`, `applied`, `switched`, `leaving`, `disk`, `anew`, `removed`, `overload`, `warning`.
    pub kind: String,
    /// Whom it concerns: a node's or a clone's name.
    pub who: String,
    pub text: String,
}
