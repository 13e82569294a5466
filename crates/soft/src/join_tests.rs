//! Joins against a dumb model: the list of all updates, each with all that its origin had seen.

use std::collections::BTreeMap;

use base::{Boot, NodeId};
use bytes::Bytes;
use proptest::prelude::*;

use crate::cell::{Cell, Known, Sibling, Slot};
use crate::context::Context;
use crate::dot::{Dot, Life, Stamp};
use crate::tally::{Below, add_up};

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
    /// All get all.
    Meet,
    /// A member begins a new life, with all that it has.
    Again {
        at: usize,
    },
    /// A member adds up what lives have counted that are over, if it may.
    AddUp {
        at: usize,
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

/// What is added up too soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Counted,
    Cut,
}

#[derive(Default)]
struct Run {
    members: Vec<Member>,
    pushes: Vec<Push>,
    updates: Vec<Update>,
    seqs: Vec<u64>,
    boots: Vec<u64>,
    /// What all are to have before these are added up.
    note: Option<(Below, Context)>,
    may: Below,
    planted: Option<Planted>,
}

impl Run {
    fn of(steps: &[Step], members: usize, planted: Option<Planted>) -> Self {
        let (all, seqs, boots) = (vec![Member::default(); members], vec![0; members], vec![1; members]);
        let mut run = Run { members: all, seqs, boots, planted, ..Run::default() };
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
            Step::Meet => {
                let all = self.members.iter().fold(Member::default(), |all, one| all.joined(one));
                self.members.iter_mut().for_each(|member| member.join(&all));
            }
            Step::Again { at } => {
                self.boots[at % n] += 1;
                self.seqs[at % n] = 0;
            }
            Step::AddUp { at } => self.add_up(at % n),
        }
    }

    /// As `tally.rs` has it, by one who sees all.
    fn add_up(&mut self, at: usize) {
        let have = |dot: Dot| {
            self.planted == Some(Planted::Counted) || self.members.iter().all(|member| member.seen.contains(dot))
        };
        let is_over = |boot: u64, of: NodeId| {
            let dots = self.updates.iter().map(|u| u.dot).filter(|dot| dot.life.node == of);
            dots.filter(|dot| dot.life.boot.0 < boot).all(have)
        };
        let boots = (0..).map(NodeId).zip(&self.boots);
        let over: Below = boots.filter(|(of, boot)| is_over(**boot, *of)).map(|(of, boot)| (of, Boot(*boot))).collect();
        match self.note.take() {
            Some((below, note)) if self.planted.is_some() || self.members.iter().all(|m| note.is_within(&m.seen)) => {
                self.may.extend(below);
            }
            Some(waits) => self.note = Some(waits),
            None => {
                let mut note = Context::default();
                self.members.iter().for_each(|member| note.join(&member.seen));
                self.note = Some((over, note));
            }
        }
        self.members[at].cells.values_mut().for_each(|cell| add_up(&mut cell.slots, &self.may));
    }

    fn update(&mut self, at: usize, key: u8, what: What) {
        self.seqs[at] += 1;
        let dot = Dot { life: Life { node: NodeId(at as u64), boot: Boot(self.boots[at]) }, seq: self.seqs[at] };
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
            1 => Just(Step::Meet),
            1 => member().prop_map(|at| Step::Again { at }),
            2 => member().prop_map(|at| Step::AddUp { at }),
        ],
        1..60,
    )
}

/// All pushes come to all members, in any order.
fn leads_to_the_model(
    steps: &[Step],
    members: usize,
    salt: u64,
    planted: Option<Planted>,
) -> Result<(), TestCaseError> {
    let mut run = Run::of(steps, members, planted);
    for to in 0..members {
        let mut order: Vec<usize> = (0..run.pushes.len()).chain(0..run.pushes.len() / 2).collect();
        base::Rng::new(salt ^ to as u64).shuffle(&mut order);
        order.into_iter().for_each(|nth| run.members[to].take(&run.pushes[nth]));
    }
    run.check()
}

/// A counter that all have added up has a slot for each node's lives that are over, and those of its present one.
fn is_bounded(steps: &[Step], members: usize) -> Result<(), TestCaseError> {
    let mut run = Run::of(steps, members, None);
    run.step(&Step::Meet);
    for at in (0..2 * members).chain(0..members) {
        run.step(&Step::AddUp { at });
    }
    for slots in run.members.iter().flat_map(|member| member.cells.values()).map(|cell| &cell.slots) {
        let over = |slot: &&Slot| slot.birth.life.boot.0 < run.boots[slot.birth.life.node.0 as usize];
        let sums = slots.iter().filter(over).count();
        prop_assert!(sums <= members && slots.iter().filter(over).all(|slot| slot.below().is_some()), "{:?}", slots);
    }
    run.check()
}

proptest! {
    #[test]
    fn pushes_in_any_order_lead_to_the_model(steps in steps(), members in 2..5usize, salt in any::<u64>()) {
        leads_to_the_model(&steps, members, salt, None)?;
    }

    #[test]
    fn counters_are_added_up_at_any_moment(steps in steps(), members in 2..5usize) {
        is_bounded(&steps, members)?;
    }

    #[test]
    fn joins_in_any_order_lead_to_one_state(steps in steps(), members in 2..5usize) {
        let run = Run::of(&steps, members, None);
        let (a, b, c) = (&run.members[0], &run.members[1], run.members.last().expect("two at least"));
        prop_assert_eq!(a.joined(b), b.joined(a), "commutative");
        prop_assert_eq!(a.joined(b).joined(c), a.joined(&b.joined(c)), "associative");
        let both = a.joined(b);
        prop_assert_eq!(both.joined(b), both.clone(), "idempotent");
        prop_assert_eq!(both.joined(&both), both, "idempotent");
    }
}

/// Planted: lives are added up while others have more of them.
#[test]
fn what_is_added_up_before_all_have_it_is_lost() {
    let count = |by| Step::Count { at: 0, key: 0, by };
    let steps = [
        [count(5), Step::Deliver { nth: 0, to: 1 }, Step::Again { at: 0 }, count(7), Step::Again { at: 0 }].to_vec(),
        (0..4).map(|nth| Step::AddUp { at: nth % 2 }).collect(),
    ]
    .concat();
    assert!(leads_to_the_model(&steps, 2, 7, Some(Planted::Counted)).is_err(), "the history sees it");
    assert!(leads_to_the_model(&steps, 2, 7, None).is_ok());
}

/// Planted: lives are added up when all have what they counted, though not all have what was cut of it: of two resets of which each saw a
/// part the smaller comes back.
#[test]
fn what_is_added_up_before_all_have_what_was_cut_of_it_comes_back() {
    let count = |by| Step::Count { at: 0, key: 0, by };
    let deliver = |nth, to| Step::Deliver { nth, to };
    let reset = |at| Step::Remove { at, key: 0 };
    let steps = [
        [count(3), deliver(0, 1), count(2), reset(1), Step::Again { at: 0 }].to_vec(),
        [count(4), deliver(3, 2), count(3), reset(2), Step::Again { at: 0 }].to_vec(),
        [deliver(1, 1), deliver(3, 1), deliver(4, 1), deliver(0, 2), deliver(1, 2), deliver(4, 2)].to_vec(),
        (0..6).map(|nth| Step::AddUp { at: nth % 3 }).collect(),
    ]
    .concat();
    assert!(leads_to_the_model(&steps, 3, 7, Some(Planted::Cut)).is_err(), "the history sees it");
    assert!(leads_to_the_model(&steps, 3, 7, None).is_ok());
    // When all have both resets it is added up, and right.
    let later =
        [&steps[..], &[Step::Meet], &(0..6).map(|nth| Step::AddUp { at: nth % 3 }).collect::<Vec<_>>()].concat();
    let run = Run::of(&later, 3, None);
    assert!(run.members.iter().all(|member| member.cells[&0].slots.len() == 1), "{:?}", run.members);
    assert!(run.members.iter().all(|member| member.cells[&0].counted() == 5));
    assert!(leads_to_the_model(&later, 3, 7, None).is_ok());
}

/// Planted: slots that one side has added up are joined as if they were another life's.
#[test]
fn what_is_added_up_is_not_counted_twice() {
    let steps = [Step::Count { at: 0, key: 0, by: 3 }, Step::Again { at: 0 }, Step::Meet];
    let mut run = Run::of(&[&steps[..], &[Step::AddUp { at: 0 }, Step::AddUp { at: 0 }]].concat(), 2, None);
    let cells = || [&run.members[0].cells[&0], &run.members[1].cells[&0]];
    assert_eq!(cells().map(|cell| cell.slots[0].below()), [Some(Boot(2)), None]);
    let twice: i128 = cells().iter().map(|cell| cell.counted()).sum();
    assert_eq!(twice, 6, "what a join by births alone would come to");
    run.step(&Step::Repair { from: 0, to: 1 });
    run.step(&Step::Repair { from: 1, to: 0 });
    assert!(run.members.iter().all(|member| member.cells[&0].counted() == 3));
}
