//! What each class plays in the simulator, one folder a class: what its clients ask (`load.rs`), the checker of what was promised of
//! it (`promise.rs`), how both come together (`mod.rs`, which keeps [`Play`]) and bugs to plant (`bugs.rs`). A checker is told what
//! happened and says what was broken; it knows nothing of how nodes work.
//!
//! A new class is a folder and a line in the list below, at its end: seeds that are kept count clients and draw chances by its order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use base::checksum::place_hash_pair;
use base::{Effect, Event, Priority, Rng, Span, Time};
use node::{Answer, Ask, View};
use state::Settings;

use crate::promises::Broken;
use crate::scene::Plan;
use crate::shipped;
use crate::stage::{Flight, Heard, Stage};

#[macro_use]
mod list;

pub mod hands;
pub mod linear;
pub mod object;
pub mod session;
pub mod soft;
pub mod sql;

plays! {
    session Session: session::Play,
    linear Linear: linear::Play,
    modes Modes: session::modes::Play,
    soft Soft: soft::Play,
    sql Sql: sql::Play,
    object Object: object::Play,
    hands Hands: hands::Play,
}

/// Load and promises of one class.
pub trait Play {
    const NAME: Name;
    /// When the first of its clients asks.
    const BEGINS: Span;
    /// It is in every run, and its namespaces are declared in all of them.
    const ALWAYS: bool = false;
    /// An operation under way.
    type Act;
    /// Bugs to plant in what nodes do of the class.
    type Bug: Copy + PartialEq + Eq + Debug + 'static;

    /// Whether clients use it in the runs of this seed, if nothing else is said. It follows from the seed and is no draw, so that what
    /// the others do stays what it was.
    fn is_in(_seed: u64) -> bool {
        true
    }

    /// The namespaces that it uses, as TOML.
    fn declares(declared: &Declared) -> String;

    /// What nodes are told where it is played.
    fn settings(_settings: &mut Settings) {}

    /// For this run. Without clients (`is_on`) nobody asks anything.
    fn new(cast: &mut Cast, is_on: bool) -> Self;

    fn clients(&self) -> usize;

    /// A client's next operation.
    fn ask(&mut self, client: usize, stage: &mut Stage);

    /// An operation of it has ended.
    ///
    /// # Errors
    /// The promise that was broken.
    fn end(&mut self, flight: &Flight, act: &Self::Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken>;

    /// Something has happened to a node that may lose what the class has there.
    fn excuse(&mut self, _node: usize, _mishap: Mishap, _stage: &mut Stage) {}

    /// Faults begin, or end.
    fn turn(&mut self) {}

    /// Each second.
    ///
    /// # Errors
    /// The promise that was broken.
    fn tick(&mut self, _stage: &mut Stage) -> Result<(), Broken> {
        Ok(())
    }

    /// Whether all that nodes have lost of it is there again.
    fn is_whole(&self) -> bool {
        true
    }

    /// Figures of the run, at its end.
    fn count(&self, stage: &Stage, ops: &mut BTreeMap<String, u64>);

    /// What plants a bug in one life of a node.
    fn plant(bug: Self::Bug, rng: Rng) -> Box<dyn Spoils>;
}

/// A bug at work: it stands between a node and its world.
pub trait Spoils {
    /// Each time before the node has a turn.
    fn turn(&mut self, _now: Time) {}

    /// When the node wants to be woken in place of when it does.
    fn wake_at(&self) -> Option<Time> {
        None
    }

    /// None: the node does not hear of it.
    fn event(&mut self, event: Event<Ask>, _out: &mut Out) -> Option<Event<Ask>> {
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        out.push(effect);
    }
}

/// Effects of a node.
pub type Out = Vec<Effect<Answer, View>>;

/// What a run begins with.
pub struct Cast {
    pub seed: u64,
    pub nodes: usize,
    /// Of which the plays that are in every run take theirs, in the order of the list. Others make theirs from the seed.
    pub rng: Rng,
    /// The operator's chance, which follows on that of the first clients.
    pub operator: Rng,
}

/// What declarations say now.
pub struct Declared {
    pub mark: u64,
    /// What class `linear` acknowledges is not forced yet.
    pub memory: bool,
}

/// What befalls a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its process has ended, and with it its memory.
    Died,
    /// A brick forgets all it has, while its node lives.
    Anew,
    /// Cut off from most for so long that the others may do without it.
    Dropped,
    /// It has another disk than before.
    LostDisk,
}

impl Name {
    /// Counts clients of all plays: those of the first from 0, of each other from a power of two.
    pub const fn token(self, client: usize) -> u64 {
        let base = if self as u64 == 0 { 0 } else { 1 << (31 + self as u64) };
        base + client as u64
    }

    /// Whose token it is, and the how manieth client's.
    pub fn of(token: u64) -> (Name, usize) {
        let nth = (token >> 32).checked_ilog2().map_or(0, |bit| bit as usize + 1);
        (Name::ALL[nth], (token & u64::from(u32::MAX)) as usize)
    }

    /// Plays whose clients take part in a run.
    pub fn on(plan: &Plan) -> Vec<Name> {
        let is_on = |name: &Name| match (plan.only, plan.bug) {
            (only, _) if name.is_always() => only.is_none_or(|only| only == *name),
            (_, Some(bug)) => bug.play() == Some(*name),
            (Some(only), None) => only == *name,
            (None, None) => name.is_in(plan.seed),
        };
        Name::ALL.iter().copied().filter(is_on).collect()
    }
}

/// Tokens of clients are below this.
pub const TOKENS: u64 = 1 << 56;
const _: () = assert!(Name::ALL.len() <= 25, "tokens of clients are below those of others");

/// Whether what clients ask in this round matters more or less; else it all matters the same. It follows from the seed and is no
/// draw, so that what clients do besides stays what it was.
fn has_priorities(seed: u64) -> bool {
    place_hash_pair(b"priorities", seed).is_multiple_of(2)
}

/// How much matters what a client asks at this moment: in some rounds any of the edge's ten classes.
pub fn priority(seed: u64, client: u64, now: Time) -> Priority {
    let class = place_hash_pair(&client.to_be_bytes(), now.0) % 10;
    if has_priorities(seed) { Priority::of_ten(class as u8) } else { Priority::NORMAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_plays_and_clients() {
        for name in Name::ALL {
            for client in [0, 1, 77] {
                assert_eq!(Name::of(name.token(client)), (*name, client));
            }
        }
    }

    /// Classes that nobody plays, and why.
    const NOT_PLAYED: &[(&str, &str)] =
        &[("cache", "what it has may be gone at any moment"), ("scratch", "it is for tests of its own")];

    #[test]
    fn every_class_is_played_or_it_is_said_why_not() {
        let declared = Declared { mark: 0, memory: false };
        let text: String = Name::ALL.iter().map(|name| name.declares(&declared)).collect();
        for class in state::Class::ALL {
            let is_played = text.contains(&format!("class = {:?}", class.name()));
            let is_listed = NOT_PLAYED.iter().any(|(name, _)| *name == class.name());
            assert!(is_played != is_listed, "class {}: played {is_played}, listed {is_listed}", class.name());
        }
    }

    #[test]
    fn in_some_rounds_there_are_all_priorities_and_in_the_others_one() {
        let of = |seed| (0..200).map(|us| priority(seed, 1, Time(us))).collect::<std::collections::BTreeSet<_>>();
        let mixed = (0..100).filter(|seed| of(*seed).len() > 1).count();
        assert!((25..75).contains(&mixed), "{mixed} of 100");
        assert!((0..100).all(|seed| [1, 7].contains(&of(seed).len())));
    }
}
