//! Three nodes under loss, doubling, cuts, kills and rebirths, by chance, beside a dumb model.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put {
        at: u64,
        key: u8,
        set: bool,
    },
    Take {
        at: u64,
        key: u8,
        set: bool,
    },
    Count {
        at: u64,
        key: u8,
        by: i64,
    },
    /// Frames arrive out of order, some twice, some never.
    Air {
        salt: u64,
        loss: u8,
    },
    Pass {
        ms: u64,
    },
    Cut {
        at: u64,
        deaths: bool,
    },
    Heal,
    /// All is well for a while; then a node is killed.
    Kill {
        at: u64,
    },
    /// A node is killed at any moment, with what it alone had.
    Die {
        at: u64,
    },
    Reborn,
    /// All end at once, and start from what they have written; of one disk the end is missing.
    AllEnd {
        at: u64,
        missing: u8,
    },
    /// It is written sooner than it would be.
    Keep,
    /// So long that lives are folded, and what they have counted is added up.
    Rest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Put,
    Remove,
    Count(i64),
}

struct Update {
    dot: Dot,
    at: Address,
    what: What,
    saw: Context,
    ask: u64,
}

struct Run {
    world: World,
    updates: Vec<Update>,
    acknowledged: BTreeSet<u64>,
    dead: Option<u64>,
    boot: u64,
}

const NODES: u64 = 3;

impl Run {
    fn step(&mut self, step: &Step) {
        let world = &mut self.world;
        match *step {
            Step::Put { at, key, set } => {
                let (kind, value) = if set { (Kind::Member, None) } else { (Kind::Field, Some(bytes("7"))) };
                self.update(
                    at,
                    What::Put,
                    Address::new(bytes(if set { "set" } else { "map" }), kind, bytes(&key.to_string())),
                    value,
                );
            }
            Step::Take { at, key, set } => {
                let kind = if set { Kind::Member } else { Kind::Field };
                self.update(
                    at,
                    What::Remove,
                    Address::new(bytes(if set { "set" } else { "map" }), kind, bytes(&key.to_string())),
                    None,
                );
            }
            Step::Count { at, key, by } => {
                self.update(
                    at,
                    What::Count(by),
                    Address::new(bytes("map"), Kind::Field, bytes(&key.to_string())),
                    None,
                );
            }
            Step::Air { salt, loss } => {
                world.wake();
                let mut rng = Rng::new(salt);
                let mut air = std::mem::take(&mut world.air);
                rng.shuffle(&mut air);
                for one in air {
                    match rng.below(10) {
                        n if n < u64::from(loss) => (),
                        9 => {
                            world.arrives(one.clone());
                            world.air.push(one);
                        }
                        8 => world.air.push(one),
                        _ => world.arrives(one),
                    }
                }
            }
            Step::Pass { ms } => {
                world.advance(ms);
                world.wake();
            }
            Step::Cut { at, deaths } => {
                if world.nodes.contains_key(&(at % NODES + 1)) {
                    world.cut_off(at % NODES + 1, deaths);
                }
            }
            Step::Heal => world.heal(),
            Step::Kill { at } if self.dead.is_none() => {
                world.heal();
                world.pass(1_500);
                self.heard();
                self.world.dies(at % NODES + 1);
                self.dead = Some(at % NODES + 1);
            }
            Step::Die { at } if self.dead.is_none() => {
                self.heard();
                self.world.dies(at % NODES + 1);
                self.dead = Some(at % NODES + 1);
                // Two had it, and another may have died not long ago.
                self.acknowledged.clear();
            }
            Step::Kill { .. } | Step::Die { .. } => (),
            Step::Keep => world.pass(1_100),
            Step::Rest => world.pass(16_000),
            Step::AllEnd { at, missing } => {
                self.heard();
                let world = &mut self.world;
                let disk = world.disks.entry(at % NODES + 1).or_default();
                disk.values_mut().for_each(|log| log.truncate(log.len().saturating_sub(missing.into())));
                self.boot += 1;
                world.all_end(self.boot);
                world.pass(3_000);
                // What was not in a checkpoint is not promised any more.
                self.acknowledged.clear();
            }
            Step::Reborn => {
                if let Some(dead) = self.dead.take() {
                    self.boot += 1;
                    world.heal();
                    world.born(dead, self.boot);
                    world.pass(200);
                }
            }
        }
        self.heard();
        self.world.check();
    }

    fn update(&mut self, at: u64, what: What, address: Address, value: Option<Bytes>) {
        let n = at % NODES + 1;
        let Some(node) = self.world.nodes.get(&n) else { return };
        if !node.spaces[&7].is_settled() {
            return;
        }
        let (saw, before, alone) = (self.world.space(n).context.clone(), self.world.space(n).seq(), node.seen.alone);
        let (kind, key, element) = (address.kind, address.key.clone(), address.element.clone());
        let ask = self.world.ask(
            n,
            match what {
                What::Put => Action::Put { kind, key, pairs: vec![(element, value)] },
                What::Remove => Action::Take { kind, key, elements: vec![element] },
                What::Count(by) => Action::Add { kind, key, element, by },
            },
        );
        let space = self.world.space(n);
        if space.seq() > before {
            assert_eq!(space.seq(), before + 1);
            let life = Life { node: NodeId(n), boot: Boot(self.world.boots[&n]) };
            self.updates.push(Update { dot: Dot { life, seq: before + 1 }, at: address, what, saw, ask });
        }
        if self.world.nodes[&n].seen.alone > alone {
            // It is at this node alone, and may end with it.
            self.world.answers.remove(&ask);
        }
    }

    fn heard(&mut self) {
        for (id, answer) in std::mem::take(&mut self.world.answers) {
            if matches!(answer, Outcome::Done(_)) {
                self.acknowledged.insert(id);
            }
        }
    }

    /// All nodes run, and have had a while in peace.
    fn end(&mut self) {
        self.step(&Step::Reborn);
        self.world.heal();
        self.world.pass(3_000);
        self.heard();
        self.world.check();
        self.world.are_equal();
        let (cells, seen) = (&self.world.space(1).cells, &self.world.space(1).context);
        for update in self.updates.iter().filter(|u| self.acknowledged.contains(&u.ask)) {
            assert!(seen.contains(update.dot), "{:?} was acknowledged", update.dot);
        }
        let places: BTreeSet<&Address> = self.updates.iter().map(|update| &update.at).collect();
        for at in places {
            let cell = cells.get(at).cloned().unwrap_or_default();
            let dots: Vec<Dot> = cell.siblings.iter().map(|s| s.dot).collect();
            let has = (dots, cell.counted());
            // A folded life says of all its updates that they are accounted for, also of those that ended with it unheard.
            let doubtful = self.updates.iter().filter(|u| u.at == *at && seen.is_over(u.dot.life));
            let doubtful: Vec<Dot> = doubtful.filter(|u| !self.acknowledged.contains(&u.ask)).map(|u| u.dot).collect();
            assert!(doubtful.len() < 20, "as many as can be tried");
            let lost =
                |which: u32| (0..).zip(&doubtful).filter(move |(nth, _)| which >> nth & 1 == 1).map(|(_, dot)| *dot);
            let fits = (0..1 << doubtful.len()).any(|which| self.model(at, seen, &lost(which).collect()) == has);
            assert!(fits, "{at:?}: {has:?}, and not {:?}", self.model(at, seen, &BTreeSet::new()));
            // An update that ended with its life is seen by nobody any more; that it was superseded may be known.
            let is_over = |dot: &Dot| {
                self.world.boots[&dot.life.node.0] != dot.life.boot.0
                    && (!seen.contains(*dot) || seen.is_over(dot.life))
            };
            assert!(cell.gone.iter().all(is_over), "all is seen that anybody has: {at:?} {cell:?}");
        }
    }

    /// Live writes, and the sum. Of those that ended with a life before anybody heard of them (`lost`, where a context does not say so)
    /// nothing is to be seen.
    fn model(&self, at: &Address, seen: &Context, lost: &BTreeSet<Dot>) -> (Vec<Dot>, i128) {
        let of: Vec<&Update> = self.updates.iter().filter(|u| u.at == *at).collect();
        let is_count = |u: &Update| matches!(u.what, What::Count(_));
        // A slot has all that its life has counted, and what that has seen of it to be cut.
        let same_slot =
            |a: &Update, b: &Update| is_count(a) && is_count(b) && a.dot.life == b.dot.life && a.dot.seq <= b.dot.seq;
        let has = |context: &Context, dot: Dot| context.contains(dot) && !lost.contains(&dot);
        let known = |context: &Context, u: &Update| {
            has(context, u.dot) || of.iter().any(|later| same_slot(u, later) && has(context, later.dot))
        };
        let is_cut = |u: &Update, later: &Update| {
            of.iter().any(|x| same_slot(u, x) && has(seen, x.dot) && has(&x.saw, later.dot))
        };
        let removes = |u: &Update, later: &Update| {
            !is_count(later) && known(&later.saw, u) && (known(seen, later) || is_cut(u, later))
        };
        let lives = |u: &&&Update| known(seen, u) && !of.iter().any(|later| removes(u, later));
        let mut puts: Vec<Dot> = of.iter().filter(|u| u.what == What::Put).filter(lives).map(|u| u.dot).collect();
        puts.sort_unstable();
        let count = |u: &&Update| if let What::Count(by) = u.what { i128::from(by) } else { 0 };
        (puts, of.iter().filter(lives).map(count).sum())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (at, key) = (|| 0..NODES, || 0..2u8);
    prop::collection::vec(
        prop_oneof![
            5 => (at(), key(), any::<bool>()).prop_map(|(at, key, set)| Step::Put { at, key, set }),
            3 => (at(), key(), any::<bool>()).prop_map(|(at, key, set)| Step::Take { at, key, set }),
            4 => (at(), key(), prop_oneof![-5..-1i64, 1..9i64]).prop_map(|(at, key, by)| Step::Count { at, key, by }),
            8 => (any::<u64>(), 0..8u8).prop_map(|(salt, loss)| Step::Air { salt, loss }),
            4 => (1..400u64).prop_map(|ms| Step::Pass { ms }),
            1 => (at(), any::<bool>()).prop_map(|(at, deaths)| Step::Cut { at, deaths }),
            1 => Just(Step::Heal),
            1 => at().prop_map(|at| Step::Kill { at }),
            1 => at().prop_map(|at| Step::Die { at }),
            1 => Just(Step::Reborn),
            1 => Just(Step::Keep),
            1 => Just(Step::Rest),
            1 => (at(), 0..4u8).prop_map(|(at, missing)| Step::AllEnd { at, missing }),
        ],
        1..60,
    )
}

proptest! {
    #[test]
    fn after_any_trouble_all_nodes_have_what_the_model_says(steps in steps()) {
        let world = World::of(NODES, Spec { checkpoint_ms: 1_000, ..Spec::default() });
        let mut run = Run { world, updates: Vec::new(), acknowledged: BTreeSet::new(), dead: None, boot: 1 };
        steps.iter().for_each(|step| run.step(step));
        run.end();
    }
}
