//! Random histories against a dumb model: what was acknowledged is there when all is quiet, what was deleted stays deleted, and absent is
//! never said of what was acknowledged.

use std::collections::BTreeMap;

use base::{AskId, NodeId, Outcome, Rng, Span};
use bytes::Bytes;
use object::{Action, Bug, Id, List, NO_CURSOR, Reply, Settings};
use proptest::prelude::*;

use crate::world::{World, id, put};

const NODES: u64 = 4;
const IDS: u64 = 8;

/// What is known of one object.
#[derive(Default)]
struct Known {
    stored: bool,
    /// A deletion was acknowledged.
    deleted: bool,
    /// A deletion was asked for, and may have happened.
    maybe_deleted: bool,
}

#[derive(Clone, PartialEq)]
enum Asked {
    Put,
    Delete,
    /// With whether it was acknowledged, and no deletion asked for, when it began.
    Get {
        must_be: bool,
    },
    /// All of its owner's. With those that were acknowledged when it began.
    List {
        must_be: Vec<u8>,
    },
}

struct Story {
    world: World,
    rng: Rng,
    known: BTreeMap<u8, Known>,
    under_way: BTreeMap<AskId, (u8, Asked, u64)>,
    /// How often the namespace was declared anew: what is answered to questions of before does not count.
    life: u64,
    names: u64,
    acknowledged: u64,
    follower: Follower,
}

/// Somebody who watches all of it, at one node after the other.
#[derive(Default)]
struct Follower {
    asked: Option<AskId>,
    cursor: Bytes,
    /// What it was told of each object: whether that is there.
    told: BTreeMap<Id, bool>,
}

impl Follower {
    fn hear(&mut self, answer: Outcome<Reply>) {
        self.asked = None;
        match answer {
            Outcome::Done(Reply::Changes(told)) => {
                assert!(!told.is_lost, "nothing was forgotten");
                self.cursor = told.cursor;
                for change in told.changes {
                    // A deletion is final.
                    let is_there = self.told.entry(change.id).or_insert(true);
                    *is_there &= change.size.is_some();
                }
            }
            // The namespace is another one.
            Outcome::Refused(why) if why.why == NO_CURSOR => *self = Self::default(),
            Outcome::Refused(_) => (),
            other => panic!("{other:?}"),
        }
    }
}

fn owner(n: u8) -> String {
    format!("owner{}", n % 3)
}

impl Story {
    fn new(seed: u64, loss: f64) -> Self {
        // Most have little packs, so that bytes are always on their way into one or out of it.
        let settings = if seed.is_multiple_of(4) { Settings::default() } else { World::packed(30) };
        // Half of them have directories.
        let directories_from = if seed.is_multiple_of(2) { settings.directories_from } else { 2 };
        let mut world = World::with(seed, NODES, Settings { directories_from, ..settings });
        (world.loss, world.double, world.slow) = (loss, 0.1, 12_000);
        let known = (0..IDS as u8).map(|n| (n, Known::default())).collect();
        let rng = Rng::new(seed);
        let mut story = Self {
            world,
            rng,
            known,
            under_way: BTreeMap::new(),
            life: 0,
            names: NODES,
            acknowledged: 0,
            follower: Follower::default(),
        };
        story.slow_disks();
        story
    }

    fn begin(&mut self, n: u8, asked: Asked) {
        let live = self.world.live();
        let Some(at) = self.rng.pick(&live).copied() else { return };
        let action = match &asked {
            Asked::Put => put(n, &self.body(n)),
            Asked::Delete => Action::Delete { id: id(n) },
            Asked::Get { .. } => Action::Get { id: id(n), at: 6 * (n as u32 % 2) },
            Asked::List { .. } => Action::List { after: None, limit: 100 },
        };
        if asked == Asked::Delete {
            self.known.get_mut(&n).unwrap().maybe_deleted = true;
        }
        let ask = self.world.begin(at.0, "mail", &owner(n), action, Span::secs(2));
        self.under_way.insert(ask, (n, asked, self.life));
    }

    /// Goes on at any node; whoever it asked before may be dead.
    fn follow(&mut self) {
        let live = self.world.live();
        let Some(at) = self.rng.pick(&live).copied() else { return };
        let hold = Span::millis(self.rng.below(2) * 1000);
        let action = Action::Watch { after: Some(self.follower.cursor.clone()), hold, by: 7 };
        self.follower.asked = Some(self.world.begin(at.0, "mail", "owner", action, Span::secs(3)));
    }

    fn body(&self, n: u8) -> String {
        format!("body of {n} in life {}", self.life)
    }

    /// The namespace is removed, and declared anew at once or a moment later: it begins empty.
    fn declare_anew(&mut self) {
        self.life += 1;
        self.known.values_mut().for_each(|known| *known = Known::default());
        let is_seen = self.rng.chance(0.5);
        self.world.declare_anew("mail", is_seen);
    }

    fn hear(&mut self) {
        for (ask, (_, answer)) in std::mem::take(&mut self.world.answers) {
            if self.follower.asked == Some(ask) {
                self.follower.hear(answer);
                continue;
            }
            // Others are of a watch that was given up.
            let Some((n, asked, life)) = self.under_way.remove(&ask) else { continue };
            if life < self.life {
                continue;
            }
            let body_of = self.body(n);
            if matches!(asked, Asked::List { .. }) {
                self.hear_list(&asked, answer);
                continue;
            }
            let known = self.known.get_mut(&n).unwrap();
            match (asked, answer) {
                (Asked::Put, Outcome::Done(Reply::Stored { copies, .. })) => {
                    assert!(copies >= 1);
                    self.acknowledged += 1;
                    known.stored = true;
                }
                (Asked::Put, Outcome::Done(Reply::Gone)) => assert!(known.maybe_deleted),
                (Asked::Delete, Outcome::Done(Reply::Deleted { .. })) => known.deleted = true,
                (Asked::Delete, Outcome::Done(Reply::Absent)) => (),
                (Asked::Get { must_be }, Outcome::Done(Reply::Absent)) => {
                    assert!(!must_be, "{n} was acknowledged, and is said to be absent");
                }
                (Asked::Get { .. }, Outcome::Done(Reply::Gone)) => assert!(known.maybe_deleted),
                (Asked::Get { .. }, Outcome::Done(Reply::Object { body, size, .. })) => {
                    assert_eq!(size as usize, body_of.len());
                    let at = 6 * (n as usize % 2);
                    assert!(!body.is_empty() && body_of.as_bytes()[at..].starts_with(&body), "{body:?}");
                }
                (_, Outcome::Refused(_) | Outcome::Unknown(_)) => (),
                (_, Outcome::Done(reply)) => panic!("{reply:?}"),
            }
        }
    }

    fn hear_list(&self, asked: &Asked, answer: Outcome<Reply>) {
        let (Asked::List { must_be }, Outcome::Done(Reply::List(List { objects, missing, .. }))) = (asked, answer)
        else {
            return;
        };
        let is_there = |n: &u8| objects.iter().any(|listed| listed.id == id(*n));
        // It may have been deleted while it was listed.
        let lost: Vec<&u8> = must_be.iter().filter(|n| !is_there(n) && !self.known[n].maybe_deleted).collect();
        assert!(!missing.is_empty() || lost.is_empty(), "{lost:?} are not listed, and nobody was missing");
    }

    fn step(&mut self, disks_go: bool) {
        let n = self.rng.below(IDS) as u8;
        if self.rng.chance(0.2) {
            self.follow();
        }
        match self.rng.below(100) {
            0..36 => self.begin(n, Asked::Put),
            36 if self.rng.chance(0.3) => self.rot_one(),
            36 => self.declare_anew(),
            37..40 => self.black_out(n),
            40..52 => self.begin(n, Asked::Delete),
            52..60 => {
                let owned = self
                    .known
                    .iter()
                    .filter(|(of, known)| owner(**of) == owner(n) && known.stored && !known.maybe_deleted);
                let must_be = owned.map(|(of, _)| *of).collect();
                self.begin(n, Asked::List { must_be });
            }
            60..75 => {
                let known = &self.known[&n];
                let must_be = known.stored && !known.maybe_deleted;
                self.begin(n, Asked::Get { must_be });
            }
            75..83 => {
                // Two copies outlive one disk: none goes while another is away.
                let live = self.world.live();
                if live.len() > 1 {
                    let node = *self.rng.pick(&live).unwrap();
                    self.world.kill(node);
                    self.forget_asks();
                }
            }
            83..92 => self.start_one(),
            92..95 => {
                let node = NodeId(1 + self.rng.below(NODES));
                let until = self.world.now + Span::millis(self.rng.below(600));
                if let Some(host) = self.world.nodes.get_mut(&node) {
                    host.hung_until = until;
                }
            }
            95..98 => {
                let (a, b) = (NodeId(1 + self.rng.below(NODES)), NodeId(1 + self.rng.below(NODES)));
                if !self.world.cut.remove(&(a, b)) {
                    self.world.cut.insert((a, b));
                }
            }
            98 => self.one_leaves(),
            _ if disks_go => self.replace_one(),
            _ => (),
        }
        let span = Span::millis(self.rng.below(200));
        self.world.run(span);
        self.hear();
    }

    /// The power of all nodes goes at the very moment of an acknowledgement: what lay in a cache alone is gone.
    fn black_out(&mut self, n: u8) {
        self.begin(n, Asked::Put);
        let before = self.acknowledged;
        for _ in 0..200 {
            self.world.run(Span::millis(1));
            self.hear();
            if self.acknowledged > before {
                break;
            }
        }
        for node in self.world.live() {
            self.world.kill(node);
        }
        self.forget_asks();
        while self.world.live().len() < self.world.nodes.len() {
            self.start_one();
        }
        self.slow_disks();
    }

    /// Each disk takes another time for a force, up to 40 ms.
    fn slow_disks(&mut self) {
        for host in self.world.nodes.values_mut() {
            host.force = 1 + self.rng.below(40_000);
        }
    }

    /// Whoever asked a node that was killed hears nothing.
    fn forget_asks(&mut self) {
        self.hear();
    }

    fn start_one(&mut self) {
        let down: Vec<NodeId> =
            self.world.nodes.iter().filter(|(_, host)| host.object.is_none()).map(|(node, _)| *node).collect();
        if let Some(node) = self.rng.pick(&down).copied() {
            self.world.start(node);
        }
    }

    /// All is well for so long that everything has come to rest.
    fn quiet(&mut self) {
        (self.world.loss, self.world.double) = (0.0, 0.0);
        self.world.cut.clear();
        self.world.nodes.values_mut().for_each(|host| host.hung_until = base::Time::ZERO);
        let down: Vec<NodeId> =
            self.world.nodes.iter().filter(|(_, host)| host.object.is_none()).map(|(node, _)| *node).collect();
        down.into_iter().for_each(|node| self.world.start(node));
        self.world.run(Span::secs(90));
        self.hear();
    }

    /// One disk is lost for good, while all else is whole.
    fn replace_one(&mut self) {
        let (loss, double) = (self.world.loss, self.world.double);
        self.quiet();
        (self.world.loss, self.world.double) = (loss, double);
        let live = self.world.live();
        let node = *self.rng.pick(&live).unwrap();
        self.names += 1;
        self.world.replace(node, NodeId(self.names));
    }

    /// The packs of one node rot, while all else is whole: what is bad is found before another node's rot.
    fn rot_one(&mut self) {
        let (loss, double) = (self.world.loss, self.world.double);
        self.quiet();
        let live = self.world.live();
        let node = *self.rng.pick(&live).unwrap();
        self.world.rot_packs(node);
        self.quiet();
        (self.world.loss, self.world.double) = (loss, double);
    }

    /// A node leaves in order while all else is whole, and others go on asking; another one comes in its place.
    fn one_leaves(&mut self) {
        let (loss, double) = (self.world.loss, self.world.double);
        self.quiet();
        (self.world.loss, self.world.double) = (loss, double);
        let live = self.world.live();
        let node = *self.rng.pick(&live).unwrap();
        self.world.leave(node, false);
        for _ in 0..400 {
            let n = self.rng.below(IDS) as u8;
            let asked = if self.rng.chance(0.8) { Asked::Put } else { Asked::Delete };
            self.begin(n, asked);
            self.world.run(Span::millis(250));
            self.hear();
            if self.world.counted_on(node).is_none() {
                break;
            }
        }
        if self.world.counted_on(node).is_none() {
            self.world.leaves(node);
            self.names += 1;
            self.world.members.insert(NodeId(self.names));
            self.world.start(NodeId(self.names));
        } else {
            self.world.leaving.clear();
        }
        self.world.declare_all();
    }

    fn judge(mut self) {
        self.quiet();
        // The first time it may hear that the namespace is another one.
        for _ in 0..2 {
            self.follow();
            self.world.run(Span::secs(4));
            self.hear();
        }
        for (n, known) in &self.known {
            let told = self.follower.told.get(&id(*n)).copied();
            assert!(!known.deleted || told != Some(true), "{n} was deleted, and whoever watches was not told");
            let is_there = known.stored && !known.maybe_deleted;
            assert!(!is_there || told == Some(true), "{n} was acknowledged, and whoever watches was told {told:?}");
        }
        let live = self.world.live();
        for node in &live {
            let open = self.world.figure(node.0, "object.open");
            assert_eq!(open, 0, "all is well, and {node} has writes that not all their homes have");
        }
        for node in live {
            for n in 0..3 {
                let all = self.world.ask(node.0, "mail", &owner(n), Action::List { after: None, limit: 100 });
                let Outcome::Done(Reply::List(all)) = all else { panic!("all is well, and {node} says: {all:?}") };
                for (of, known) in self.known.iter().filter(|(of, _)| owner(**of) == owner(n)) {
                    let is_listed = all.objects.iter().any(|listed| listed.id == id(*of));
                    assert!(!(known.deleted && is_listed), "{of} was deleted, {node} lists it");
                    assert!(is_listed || !known.stored || known.maybe_deleted, "{node} does not list {of}");
                }
            }
            for (n, known) in &self.known {
                let answer = self.world.ask(node.0, "mail", &owner(*n), Action::Get { id: id(*n), at: 0 });
                match answer {
                    Outcome::Done(Reply::Object { body, .. }) => {
                        assert!(!known.deleted, "{n} was deleted, {node} shows it");
                        assert_eq!(body, self.body(*n).into_bytes());
                    }
                    Outcome::Done(Reply::Gone) => assert!(known.maybe_deleted),
                    Outcome::Done(Reply::Absent) => assert!(!known.stored, "{n} was acknowledged, {node} has lost it"),
                    other => panic!("all is well, and {node} says of {n}: {other:?}"),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_objects_are_there_and_deleted_ones_stay_deleted(seed: u64, loss in 0.0..0.3, disks_go: bool) {
        let mut story = Story::new(seed, loss);
        for _ in 0..120 {
            story.step(disks_go);
        }
        story.judge();
    }
}

/// Whether a history breaks a promise, as each node has this bug.
pub fn is_caught(bug: Option<Bug>, seed: u64) -> bool {
    let told = std::panic::catch_unwind(|| {
        let mut story = Story::new(seed, 0.1);
        story.world.plant(bug);
        for _ in 0..120 {
            story.step(false);
        }
        story.judge();
    });
    told.is_err()
}

/// A disk that says of a pack that it is there before it is forced: the log lets go of bytes that a power cut then takes.
#[test]
fn a_pack_that_is_believed_before_it_is_forced_is_caught() {
    let is_caught = |seed: u64| {
        let told = std::panic::catch_unwind(|| {
            let mut story = Story::new(1 + 4 * seed, 0.1);
            story.world.packs_lie = true;
            for _ in 0..120 {
                story.step(false);
            }
            story.judge();
        });
        told.is_err()
    };
    assert!((0..20).any(is_caught), "no history lost anything");
}

/// A deletion that is kept apart, of a namespace that was removed, was taken out again to be pushed to nodes that had dropped theirs.
#[test]
fn what_was_removed_with_its_namespace_is_pushed_to_nobody() {
    for (seed, loss, disks_go) in
        [(15972816898995393004, 0.0, true), (13437515082074813264, 0.23, false), (14059521155174029493, 0.1211, false)]
    {
        let mut story = Story::new(seed, loss);
        for _ in 0..120 {
            story.step(disks_go);
        }
        story.judge();
    }
}

#[test]
fn the_histories_acknowledge_something() {
    let mut story = Story::new(1, 0.1);
    for _ in 0..120 {
        story.step(true);
    }
    assert!(story.acknowledged > 10, "{}", story.acknowledged);
    story.judge();
}
