//! `durability = "memory"`, and the power: what goes with the power of some machines, of most, and of all, at moments that
//! chance would seldom choose. The swarm of `sim` has one machine at a time lose its power.

use std::collections::BTreeMap;

use base::limits::UNFORCED_MAX;
use base::{AskId, NodeId, Outcome, Rng, Span, Time};
use bytes::Bytes;
use node::{Answer, Ask};
use sim::operator;
use sim::shipped::{Cluster, Shipped};
use sim::world::{Happened, World};
use state::linear::{Op, Ran, Reply, Step};

use crate::asking::AsksNodes;

/// A force takes no longer in a healthy world.
const FORCE_MAX: Span = Span::millis(5);
/// Members that were rebooted wait so long for one that stays away, and then elect.
const SERVES_WITHIN: Span = Span::secs(30);
const BUDGET: Span = Span::secs(2);

struct Bank {
    world: World<Cluster>,
    /// When each write was acknowledged; write `n` puts `n` under `n`.
    acked: BTreeMap<u64, Time>,
    next: u64,
    leader: Option<usize>,
    answers: BTreeMap<AskId, Answer>,
    /// Nodes that do not trust their disks.
    distrusted: Vec<usize>,
    anew: u64,
}

impl AsksNodes for Bank {
    fn world(&mut self) -> &mut World<Cluster> {
        &mut self.world
    }

    fn answers(&mut self) -> &mut BTreeMap<AskId, Answer> {
        &mut self.answers
    }

    fn hear(&mut self, happened: Happened<Shipped>) {
        match happened {
            Happened::Answered { id, answer, .. } => drop(self.answers.insert(id, answer)),
            Happened::Published { view, .. } => {
                let bank = view.namespaces.iter().find(|namespace| namespace.name == "bank");
                let name = bank.and_then(|bank| bank.shards.first()?.leader.clone());
                let number = name.and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok());
                self.leader = number.map(|number| number - 1).or(self.leader);
            }
            Happened::Distrusted { node } => self.distrusted.push(node),
            Happened::Noted { .. }
            | Happened::Started { .. }
            | Happened::Died { .. }
            | Happened::Outdated { .. }
            | Happened::Resumed { .. }
            | Happened::Alarm(_)
            | Happened::Spins { .. } => (),
        }
    }
}

impl Bank {
    /// Three nodes with a namespace of one group that serves.
    fn open(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, 3, Cluster::new(operator::declaration(0, true, &[], &mut rng), None));
        let (seeds, ids) =
            ((0..3).map(|node| world.peer_addr(node)).collect(), (0..3).map(|node| world.id(node)).collect());
        (world.factory_mut().seeds, world.factory_mut().ids) = (seeds, ids);
        (0..3).for_each(|node| world.start(node));
        let (acked, answers) = (BTreeMap::new(), BTreeMap::new());
        let mut bank = Self { world, acked, next: 0, leader: None, answers, distrusted: Vec::new(), anew: 0 };
        bank.run(Span::secs(25));
        assert!(bank.serves(0, SERVES_WITHIN), "seed {seed}: it never began to serve");
        assert!((0..3).all(|node| !bank.world.is_rebooted(node)));
        bank
    }

    fn call(&mut self, node: usize, function: &'static str, n: u64, args: &[&str]) -> Option<Reply> {
        let words = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        let op = Op::of("bank".into(), vec![Step::new(Bytes::from(n.to_string()), function, words)]);
        match self.ask(node, BUDGET, Ask::Linear(op))? {
            Answer::Linear(Outcome::Done(Ran::Done(mut replies))) => replies.pop(),
            _ => None,
        }
    }

    fn put(&mut self, node: usize) -> bool {
        self.next += 1;
        let n = self.next;
        let done = self.call(node, "put", n, &[&n.to_string(), "always", "none"]).is_some();
        if done {
            self.acked.insert(n, self.world.now());
        }
        done
    }

    /// Writes through this node for so long.
    fn write(&mut self, node: usize, span: Span) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            self.put(node);
        }
    }

    fn serves(&mut self, node: usize, within: Span) -> bool {
        let end = self.world.now() + within;
        while self.world.now() < end {
            if self.call(node, "exists", 0, &[]).is_some() {
                return true;
            }
            self.run(Span::millis(100));
        }
        false
    }

    /// Acknowledged writes that are gone, by when they were acknowledged. Those that are there come before them.
    fn lost(&mut self, node: usize) -> Vec<Time> {
        let mut lost = Vec::new();
        for (n, at) in self.acked.clone() {
            match self.call(node, "get", n, &[]) {
                Some(Reply::Bytes(value)) => {
                    assert!(value == n.to_string() && lost.is_empty(), "write {n} is there, earlier ones are not");
                }
                Some(Reply::Nil) => lost.push(at),
                other => panic!("write {n} cannot be read: {other:?}"),
            }
        }
        lost
    }

    /// Nodes that do not trust their disks enter anew, as a host does it.
    fn renew(&mut self) {
        while let Some(node) = self.distrusted.pop() {
            let other = (0..3).find(|n| self.world.is_running(*n)).expect("the others run");
            self.anew += 1;
            let (former, wish) = (self.world.id(node), NodeId(1_000 + self.anew));
            let (name, why) = (format!("n{}", node + 1), "it is older".to_owned());
            match self.ask(other, BUDGET, Ask::Renew { former, name, why, wish }) {
                Some(Answer::Admitted(Outcome::Done(admitted))) => {
                    self.world.enter_anew(node, admitted.id);
                    self.world.start(node);
                }
                _ => {
                    self.distrusted.push(node);
                    self.run(Span::millis(500));
                }
            }
        }
    }
}

#[test]
fn the_power_of_all_takes_the_last_moments_at_most_and_nobody_has_to_help() {
    let (mut cost, mut writes) = (0, 0);
    for seed in 1..9 {
        let mut bank = Bank::open(seed);
        bank.write(seed as usize % 3, Span::secs(2));
        let cut = bank.world.now();
        (0..3).for_each(|node| bank.world.power_off(node));
        (0..3).for_each(|node| bank.world.start(node));
        assert!(bank.serves(0, SERVES_WITHIN), "seed {seed}: it does not serve any more");
        assert_eq!(bank.distrusted, [0; 0], "seed {seed}: all keep who they are");
        let lost = bank.lost(1);
        let window = UNFORCED_MAX + FORCE_MAX;
        assert!(lost.iter().all(|at| *at + window >= cut), "seed {seed}: lost {lost:?}, the power failed at {cut:?}");
        (cost, writes) = (cost + lost.len(), writes + bank.acked.len());
        bank.run(Span::secs(5));
        assert!((0..3).all(|node| !bank.world.is_rebooted(node)), "seed {seed}: all have recovered");
    }
    assert!(cost > 0, "of {writes} writes none was lost: the fault does not strike");
}

#[test]
fn two_of_three_without_power_lose_nothing_that_the_third_has() {
    for seed in 1..9 {
        let mut bank = Bank::open(seed);
        bank.write(0, Span::secs(1));
        let leader = bank.leader.unwrap();
        // The leader has all of it.
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        others.into_iter().for_each(|node| bank.world.power_off(node));
        others.into_iter().for_each(|node| bank.world.start(node));
        assert!(bank.serves(leader, SERVES_WITHIN), "seed {seed}: two that forgot hold each other up");
        assert_eq!((bank.lost(leader), &bank.distrusted[..]), (vec![], &[0; 0][..]), "seed {seed}");
    }
}

#[test]
fn who_lost_its_power_elects_nobody_who_lacks_what_it_had_acknowledged() {
    let mut waited = 0;
    for seed in 1..9 {
        let mut bank = Bank::open(seed);
        let leader = bank.leader.unwrap();
        let (other, behind) = ((leader + 1) % 3, (leader + 2) % 3);
        // One falls behind; what is acknowledged now the leader and the other have.
        for (a, b) in [(leader, behind), (behind, leader), (other, behind), (behind, other)] {
            bank.world.cut(a, b, false);
        }
        bank.write(leader, Span::millis(300));
        bank.world.kill(leader);
        bank.world.power_off(other);
        bank.world.heal_all();
        bank.world.start(other);
        bank.run(Span::secs(15));
        waited += usize::from(!bank.serves(other, Span::secs(3)));
        bank.world.start(leader);
        assert!(bank.serves(behind, SERVES_WITHIN), "seed {seed}: all are back");
        assert_eq!((bank.lost(behind), &bank.distrusted[..]), (vec![], &[0; 0][..]), "seed {seed}");
    }
    assert!(waited > 4, "only the leader had it all, and was not waited for");
}

#[test]
fn a_leader_that_stayed_up_knows_enough_for_one_that_lost_its_power_while_the_third_stays_away() {
    for seed in 1..5 {
        let mut bank = Bank::open(seed);
        let leader = bank.leader.unwrap();
        let (other, third) = ((leader + 1) % 3, (leader + 2) % 3);
        bank.world.kill(third);
        bank.write(leader, Span::secs(1));
        bank.world.power_off(other);
        // Without a majority it leads no more.
        bank.run(Span::secs(4));
        bank.world.start(other);
        assert!(bank.serves(leader, Span::secs(5)), "seed {seed}: two of three are there");
        assert_eq!((bank.lost(other), &bank.distrusted[..]), (vec![], &[0; 0][..]), "seed {seed}");
    }
}

#[test]
fn one_that_stays_away_is_not_waited_for_for_ever_and_then_takes_what_the_others_have() {
    let mut anew = 0;
    for seed in 1..9 {
        let mut bank = Bank::open(seed);
        let leader = bank.leader.unwrap();
        bank.write(leader, Span::secs(1));
        let cut = bank.world.now();
        (0..3).for_each(|node| bank.world.power_off(node));
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        others.into_iter().for_each(|node| bank.world.start(node));
        assert!(bank.serves(others[0], SERVES_WITHIN), "seed {seed}: two are a majority");
        let lost = bank.lost(others[0]);
        assert!(lost.iter().all(|at| *at + UNFORCED_MAX + FORCE_MAX >= cut), "seed {seed}: lost {lost:?}");
        bank.acked.retain(|_, at| !lost.contains(at));
        bank.write(others[0], Span::millis(200));
        bank.world.start(leader);
        bank.run(Span::secs(10));
        anew += bank.distrusted.len();
        bank.renew();
        bank.run(Span::secs(5));
        assert!(bank.serves(leader, SERVES_WITHIN), "seed {seed}: it takes part again");
        assert_eq!(bank.lost(leader), [], "seed {seed}");
    }
    println!("{anew} of 8 had committed what the others lost");
}
