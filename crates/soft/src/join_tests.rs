//! Joins against a dumb model: the list of all updates, each with all that its origin had seen.

use std::collections::BTreeMap;

use base::{Boot, NodeId};
use bytes::Bytes;
use proptest::prelude::*;

use crate::cell::{Cell, Known, Sibling};
use crate::context::Context;
use crate::dot::{Dot, Life, Stamp};

const KEYS: u8 = 2;

#[derive(Clone, Debug)]
enum Step {
    Put {
        at: usize,
        key: u8,
        by_clock: u64,
    },
    Remove {
        at: usize,
        key: u8,
    },
    Count {
        at: usize,
        key: u8,
        by: i64,
    },
    /// The push that was made as the `nth` comes to a member: late, doubled and reordered as chance has it, or never.
    Deliver {
        nth: usize,
        to: usize,
    },
    /// A member gets whole cells of another.
    Repair {
        from: usize,
        to: usize,
    },
}

#[derive(Clone, Debug)]
struct Push {
    dot: Dot,
    key: u8,
    part: Cell,
    supersedes: Vec<Dot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Member {
    cells: BTreeMap<u8, Cell>,
    seen: Context,
}

impl Member {
    fn take(&mut self, push: &Push) {
        let cell = self.cells.entry(push.key).or_default();
        cell.join(&push.part, &self.seen, Known::Push { dot: push.dot, supersedes: &push.supersedes });
        self.seen.insert(push.dot);
        push.part.dots().for_each(|dot| self.seen.insert(dot));
        cell.settle(&self.seen);
    }

    fn join(&mut self, other: &Member) {
        let before = self.seen.clone();
        self.seen.join(&other.seen);
        for key in 0..KEYS {
            let cell = self.cells.entry(key).or_default();
            cell.join(other.cells.get(&key).unwrap_or(&Cell::default()), &before, Known::Whole(&other.seen));
            cell.settle(&self.seen);
        }
    }

    fn joined(&self, other: &Member) -> Member {
        let mut both = self.clone();
        both.join(other);
        both
    }
}

/// One update of the model.
struct Update {
    dot: Dot,
    key: u8,
    what: What,
    saw: Context,
}

enum What {
    Put(u64),
    Remove,
    Count(i64),
}

#[derive(Default)]
struct Run {
    members: Vec<Member>,
    pushes: Vec<Push>,
    updates: Vec<Update>,
    seqs: Vec<u64>,
}

impl Run {
    fn of(steps: &[Step], members: usize) -> Self {
        let mut run = Run { members: vec![Member::default(); members], seqs: vec![0; members], ..Run::default() };
        steps.iter().for_each(|step| run.step(step));
        run
    }

    fn step(&mut self, step: &Step) {
        let n = self.members.len();
        match *step {
            Step::Put { at, key, by_clock } => self.update(at % n, key, What::Put(by_clock)),
            Step::Remove { at, key } => self.update(at % n, key, What::Remove),
            Step::Count { at, key, by } => self.update(at % n, key, What::Count(by)),
            Step::Deliver { nth, to } => {
                if let Some(push) = self.pushes.get(nth % self.pushes.len().max(1)) {
                    self.members[to % n].take(push);
                }
            }
            Step::Repair { from, to } => {
                let from = self.members[from % n].clone();
                self.members[to % n].join(&from);
            }
        }
    }

    fn update(&mut self, at: usize, key: u8, what: What) {
        self.seqs[at] += 1;
        let dot = Dot { life: Life { node: NodeId(at as u64), boot: Boot(1) }, seq: self.seqs[at] };
        let member = &mut self.members[at];
        let cell = member.cells.entry(key).or_default();
        let (part, supersedes) = match what {
            What::Put(ms) => {
                let value = Some(Bytes::from(dot.seq.to_string()));
                cell.put(Some(Sibling { dot, stamp: Stamp { ms, counter: 0 }, value, sum: 0, ends: None, held: false }))
            }
            What::Remove => cell.put(None),
            What::Count(by) => (cell.count(dot, by).expect("small numbers"), Vec::new()),
        };
        self.updates.push(Update { dot, key, what, saw: member.seen.clone() });
        member.seen.insert(dot);
        self.pushes.push(Push { dot, key, part, supersedes });
    }

    /// What the model says of a key: live dots of writes, and the sum. An update is replaced by a write or removal of its
    /// key that saw it.
    fn model(&self, key: u8) -> (Vec<Dot>, i128) {
        let of_key = || self.updates.iter().filter(move |u| u.key == key);
        // A slot carries all that its life has counted so far: who saw a later count has seen the earlier ones.
        let saw = |later: &Update, u: &Update| {
            let is_count = |x: &Update| matches!(x.what, What::Count(_));
            later.saw.contains(u.dot)
                || is_count(u)
                    && of_key()
                        .filter(|x| is_count(x) && x.dot.life == u.dot.life && x.dot.seq > u.dot.seq)
                        .any(|x| later.saw.contains(x.dot))
        };
        let lives = |u: &&Update| !of_key().any(|later| !matches!(later.what, What::Count(_)) && saw(later, u));
        let mut puts: Vec<Dot> =
            of_key().filter(|u| matches!(u.what, What::Put(_))).filter(lives).map(|u| u.dot).collect();
        puts.sort_unstable();
        let sum = of_key()
            .filter(lives)
            .map(|u| match u.what {
                What::Count(by) => i128::from(by),
                What::Put(_) | What::Remove => 0,
            })
            .sum();
        (puts, sum)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (nth, member) in self.members.iter().enumerate() {
            prop_assert_eq!(&member.seen, &self.members[0].seen, "context of {}", nth);
            for key in 0..KEYS {
                let cell = member.cells.get(&key).cloned().unwrap_or_default();
                let dots: Vec<Dot> = cell.siblings.iter().map(|s| s.dot).collect();
                prop_assert_eq!((dots, cell.counted()), self.model(key), "key {} at {}", key, nth);
                prop_assert_eq!(&cell.gone, &Vec::new(), "all is seen, nothing waits");
            }
        }
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let member = || 0..4usize;
    let key = || 0..KEYS;
    prop::collection::vec(
        prop_oneof![
            3 => (member(), key(), 1..9u64).prop_map(|(at, key, by_clock)| Step::Put { at, key, by_clock }),
            1 => (member(), key()).prop_map(|(at, key)| Step::Remove { at, key }),
            2 => (member(), key(), -5..9i64).prop_map(|(at, key, by)| Step::Count { at, key, by }),
            6 => (0..40usize, member()).prop_map(|(nth, to)| Step::Deliver { nth, to }),
            1 => (member(), member()).prop_map(|(from, to)| Step::Repair { from, to }),
        ],
        1..40,
    )
}

proptest! {
    #[test]
    fn pushes_in_any_order_lead_to_the_model(steps in steps(), members in 2..5usize, salt in any::<u64>()) {
        let mut run = Run::of(&steps, members);
        for to in 0..members {
            let mut order: Vec<usize> = (0..run.pushes.len()).chain(0..run.pushes.len() / 2).collect();
            base::Rng::new(salt ^ to as u64).shuffle(&mut order);
            order.into_iter().for_each(|nth| run.members[to].take(&run.pushes[nth]));
        }
        run.check()?;
    }

    #[test]
    fn joins_in_any_order_lead_to_one_state(steps in steps(), members in 2..5usize) {
        let run = Run::of(&steps, members);
        let (a, b, c) = (&run.members[0], &run.members[1], run.members.last().expect("two at least"));
        prop_assert_eq!(a.joined(b), b.joined(a), "commutative");
        prop_assert_eq!(a.joined(b).joined(c), a.joined(&b.joined(c)), "associative");
        let both = a.joined(b);
        prop_assert_eq!(both.joined(b), both.clone(), "idempotent");
        prop_assert_eq!(both.joined(&both), both, "idempotent");
    }
}
