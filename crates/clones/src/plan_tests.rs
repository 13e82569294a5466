//! Tests of plan.

use proptest::prelude::*;

use super::*;
use crate::NodeClones;

/// A live node that says it serves all that `of` gives it, or nothing.
fn node(id: u64, of: &Assignments) -> NodeLoad {
    let clones = of.at(NodeId(id)).map(|clone| (clone.clone(), CloneState::Serving)).collect();
    let obeys = of.version();
    NodeLoad {
        id: NodeId(id),
        name: format!("n{id}"),
        obeys,
        clones,
        ..NodeLoad::new(NodeId(id), "", 0, Some(&NodeClones::default()))
    }
}

fn cluster(services: &[(&str, u32)], live: &[u64], serving: &Assignments) -> Cluster {
    let spec = |clones: u32| ServiceSpec { clones: clones.into(), ..ServiceSpec::new(["app"]) };
    Cluster {
        services: services.iter().map(|(name, clones)| (name.to_string(), spec(*clones))).collect(),
        live: live.iter().map(|id| node(*id, serving)).collect(),
        absence: Absence::Believed,
        dead: BTreeSet::new(),
        resting: BTreeSet::new(),
        off: BTreeSet::new(),
        next: BTreeMap::new(),
        sizes: BTreeMap::new(),
        busy: BTreeSet::new(),
    }
}

/// `shop/0@1 shop/1@2>1`: the clones in order, each at its node, and the one it leaves.
fn shown(of: &Assignments) -> String {
    let one = |(id, node): (&CloneId, &NodeId)| {
        let from = of.leaving.get(id).map_or_else(String::new, |from| format!("{}>", from.0));
        format!("{id}@{from}{}", node.0)
    };
    of.of.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn assigned(text: &str) -> Assignments {
    let mut read = Assignments::default();
    for word in text.split_whitespace() {
        let (id, at) = word.split_once('@').unwrap();
        let (service, number) = id.split_once('/').unwrap();
        let id = CloneId::new(service, number.parse().unwrap());
        let to = at.split_once('>').map_or(at, |(from, to)| {
            read.leaving.insert(id.clone(), NodeId(from.parse().unwrap()));
            to
        });
        read.of.insert(id, NodeId(to.parse().unwrap()));
    }
    read
}

/// From `before`, with these nodes alive and all clones serving where they are assigned, the plan is `expect`.
fn check(services: &[(&str, u32)], live: &[u64], before: &str, expect: &str) {
    let before = assigned(before);
    let next = plan(&cluster(services, live, &before), &before);
    assert_eq!(shown(&next), expect, "from {}", shown(&before));
}

#[test]
fn clones_are_spread_over_the_nodes() {
    check(&[("shop", 3)], &[1, 2, 3], "", "shop/0@1 shop/1@2 shop/2@3");
    check(&[("a", 1), ("b", 1), ("c", 2)], &[1, 2], "", "a/0@1 b/0@2 c/0@1 c/1@2");
    check(&[("shop", 3)], &[7], "", "shop/0@7 shop/1@7 shop/2@7");
}

#[test]
fn the_less_loaded_node_gets_the_clone() {
    let mut cluster = cluster(&[("shop", 1)], &[1, 2], &Assignments::default());
    cluster.live[0].load = 500;
    assert_eq!(shown(&plan(&cluster, &Assignments::default())), "shop/0@2");
}

/// As `check`, with these nodes draining.
fn check_drain(services: &[(&str, u32)], live: &[u64], drain: &[u64], before: &str, expect: &str) {
    let before = assigned(before);
    let mut cluster = cluster(services, live, &before);
    cluster.live.iter_mut().for_each(|node| node.drains = drain.contains(&node.id.0));
    let next = plan(&cluster, &before);
    assert_eq!(shown(&next), expect, "from {}", shown(&before));
}

#[test]
fn clones_leave_a_node_that_drains_and_stay_until_the_new_ones_serve() {
    let shop = &[("shop", 3)];
    let before = "shop/0@1 shop/1@2 shop/2@2";
    check_drain(shop, &[1, 2, 3], &[2], before, "shop/0@1 shop/1@2>3 shop/2@2>1");
    // The new ones serve: the moves are over, and nothing comes back for balance.
    check_drain(shop, &[1, 2, 3], &[2], "shop/0@1 shop/1@2>3 shop/2@2>1", "shop/0@1 shop/1@3 shop/2@1");
    check_drain(shop, &[1, 2, 3], &[2], "shop/0@1 shop/1@3 shop/2@1", "shop/0@1 shop/1@3 shop/2@1");
    // A new clone, and one whose node died, find another place.
    check_drain(&[("shop", 2)], &[1, 2], &[2], "shop/0@3", "shop/0@1 shop/1@1");
}

#[test]
fn a_cluster_that_drains_as_a_whole_keeps_its_clones() {
    check_drain(&[("shop", 2)], &[1, 2], &[1, 2], "shop/0@1 shop/1@2", "shop/0@1 shop/1@2");
}

#[test]
fn what_does_not_serve_leaves_a_draining_node_at_once() {
    let before = assigned("shop/0@2");
    let mut cluster = cluster(&[("shop", 1)], &[1, 2], &before);
    cluster.live[1].drains = true;
    cluster.live[1].clones.insert(CloneId::new("shop", 0), CloneState::Backoff);
    assert_eq!(shown(&plan(&cluster, &before)), "shop/0@1");
}

#[test]
fn only_so_many_leave_a_draining_node_at_once() {
    let before: Vec<String> = (0..20).map(|n| format!("shop/{n}@1")).collect();
    let before = assigned(&before.join(" "));
    let mut cluster = cluster(&[("shop", 20)], &[1, 2], &before);
    cluster.live[0].drains = true;
    assert_eq!(plan(&cluster, &before).leaving.len(), MOVES_AT_ONCE);
}

#[test]
fn a_clone_that_is_off_does_not_run() {
    let before = assigned("shop/0@1 shop/1@2");
    let mut cluster = cluster(&[("shop", 2)], &[1, 2], &before);
    cluster.off.insert(CloneId::new("shop", 1));
    assert_eq!(shown(&plan(&cluster, &before)), "shop/0@1");
}

#[test]
fn only_the_clones_of_a_dead_node_move() {
    check(&[("shop", 3)], &[1, 3], "shop/0@1 shop/1@2 shop/2@3", "shop/0@1 shop/1@1 shop/2@3");
    check(&[("shop", 3)], &[2], "shop/0@1 shop/1@2 shop/2@3", "shop/0@2 shop/1@2 shop/2@2");
    check(&[("shop", 3)], &[], "shop/0@1 shop/1@2 shop/2@3", "shop/0@1 shop/1@2 shop/2@3");
}

#[test]
fn a_node_that_comes_gets_one_clone_at_a_time_and_only_if_it_has_two_less() {
    let shop = [("shop", 3)];
    check(&shop, &[1, 2, 3], "shop/0@1 shop/1@2 shop/2@2", "shop/0@1 shop/1@2 shop/2@2>3");
    check(&shop, &[1, 2], "shop/0@1 shop/1@2 shop/2@2", "shop/0@1 shop/1@2 shop/2@2");
    check(&[("a", 2), ("b", 2)], &[1, 2], "a/0@1 a/1@1 b/0@1 b/1@1", "a/0@1 a/1@1>2 b/0@1 b/1@1");
}

#[test]
fn a_move_ends_when_the_new_clone_serves_and_the_next_one_may_begin() {
    let before = assigned("shop/0@1 shop/1@1 shop/2@1 shop/3@1>2");
    let mut cluster = cluster(&[("shop", 4)], &[1, 2], &before);
    let new = CloneId::new("shop", 3);
    cluster.live[1].clones.insert(new.clone(), CloneState::Starting);
    assert_eq!(shown(&plan(&cluster, &before)), shown(&before), "it waits, and nothing else moves");
    cluster.live[1].clones.insert(new, CloneState::Serving);
    assert_eq!(shown(&plan(&cluster, &before)), "shop/0@1 shop/1@1 shop/2@1>2 shop/3@2");
}

#[test]
fn one_clone_moves_at_a_time_in_the_whole_cluster() {
    let before = assigned("a/0@1 a/1@1>2 b/0@1 b/1@1");
    let mut cluster = cluster(&[("a", 2), ("b", 2)], &[1, 2], &before);
    cluster.live[1].clones.clear();
    assert_eq!(shown(&plan(&cluster, &before)), shown(&before));
    cluster.live[1].clones.insert(CloneId::new("a", 1), CloneState::Serving);
    assert_eq!(shown(&plan(&cluster, &before)), "a/0@1 a/1@2 b/0@1 b/1@1>2");
}

#[test]
fn a_death_in_the_middle_of_a_move_leaves_the_clone_where_it_lives() {
    let shop = [("shop", 1)];
    check(&shop, &[1], "shop/0@1>2", "shop/0@1");
    let before = assigned("shop/0@1>2");
    let mut target_only = cluster(&shop, &[2], &before);
    target_only.live[0].clones.clear();
    assert_eq!(shown(&plan(&target_only, &before)), "shop/0@2");
    check(&shop, &[3], "shop/0@1>2", "shop/0@3");
}

#[test]
fn a_service_that_is_not_well_or_rests_is_not_moved_for_balance() {
    let before = assigned("shop/0@1 shop/1@1");
    let mut cluster = cluster(&[("shop", 2)], &[1, 2], &before);
    assert_eq!(shown(&plan(&cluster, &before)), "shop/0@1 shop/1@1>2");
    cluster.resting.insert("shop".into());
    assert_eq!(shown(&plan(&cluster, &before)), shown(&before));
    cluster.resting.clear();
    cluster.live[0].clones.insert(CloneId::new("shop", 0), CloneState::Backoff);
    assert_eq!(shown(&plan(&cluster, &before)), shown(&before));
}

#[test]
fn fewer_clones_and_removed_services_drop_the_highest_numbers() {
    check(&[("shop", 1)], &[1, 2], "old/0@1 shop/0@1 shop/1@2", "shop/0@1");
    check(&[("shop", 0)], &[1, 2], "shop/0@1", "");
}

#[test]
fn a_new_leader_takes_over_what_runs_and_moves_nothing_while_it_doubts() {
    let runs = assigned("shop/0@2 shop/1@3");
    let mut doubts = cluster(&[("shop", 3)], &[1, 2], &runs);
    doubts.absence = Absence::Doubted;
    // shop/1 at the silent node 3 stays; shop/2 is nowhere and starts; shop/0 is known from node 2's beacon alone.
    assert_eq!(shown(&plan(&doubts, &assigned("shop/1@3"))), "shop/0@2 shop/1@3 shop/2@1");
    doubts.live[0].reported = false;
    assert_eq!(shown(&plan(&doubts, &assigned("shop/1@3"))), "shop/0@2 shop/1@3", "node 1 might run shop/2");
    doubts.absence = Absence::Believed;
    assert_eq!(shown(&plan(&doubts, &assigned("shop/1@3"))), "shop/0@2 shop/1@1 shop/2@1");
    // A draining clone is not a running one.
    doubts.live[1].clones = [(CloneId::new("shop", 0), CloneState::Draining)].into();
    assert_eq!(shown(&plan(&doubts, &Assignments::default())), "shop/0@1 shop/1@2 shop/2@1");
}

fn names(services: &[u32]) -> Vec<(String, u32)> {
    services.iter().enumerate().map(|(i, clones)| (format!("s{i}"), *clones)).collect()
}

/// Plans until nothing changes, every clone serving where it is assigned. The number of steps is bounded by the moves.
fn settle(services: &[(&str, u32)], live: &[u64], mut current: Assignments) -> Assignments {
    for _ in 0..400 {
        let next = plan(&cluster(services, live, &current), &current);
        let moved = next.of.iter().filter(|(id, node)| current.of.get(id).is_some_and(|old| old != *node));
        let between_living = moved.filter(|(id, _)| live.contains(&current.of[*id].0)).count();
        assert!(between_living <= 1 && next.leaving.len() <= 1, "more than one moved for balance");
        if next == current {
            return current;
        }
        current = next;
    }
    panic!("no rest after 400 plans: {}", shown(&current));
}

fn promises(services: &[(&str, u32)], live: &[u64], rest: &Assignments) {
    assert!(rest.leaving.is_empty());
    let ids: BTreeSet<CloneId> =
        services.iter().flat_map(|(name, clones)| (0..*clones).map(|n| CloneId::new(*name, n))).collect();
    assert_eq!(rest.of.keys().cloned().collect::<BTreeSet<_>>(), ids, "each clone is somewhere, once");
    for (name, _) in services {
        let at = |node: u64| rest.of.iter().filter(|(id, at)| id.service == *name && at.0 == node).count();
        let counts: Vec<usize> = live.iter().map(|node| at(*node)).collect();
        assert!(rest.of.values().all(|node| live.contains(&node.0)), "{}", shown(rest));
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{name}: {counts:?}");
    }
}

proptest! {
    #[test]
    fn from_nothing_and_after_any_change_of_nodes_all_run_evenly_with_the_fewest_moves(
        sizes in proptest::collection::vec(0u32..8, 1..4),
        changes in proptest::collection::vec(proptest::collection::btree_set(1u64..7, 1..6), 1..5),
    ) {
        let services = names(&sizes);
        let services: Vec<(&str, u32)> = services.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let mut current = Assignments::default();
        for live in changes {
            let live: Vec<u64> = live.into_iter().collect();
            let first = plan(&cluster(&services, &live, &current), &current);
            for (id, node) in current.of.iter().filter(|(_, node)| live.contains(&node.0)) {
                prop_assert!(first.has(id, *node), "{} left its living node in {}", id, shown(&first));
            }
            current = settle(&services, &live, first);
            promises(&services, &live, &current);
        }
    }

    #[test]
    fn whatever_the_beacons_say_the_plan_is_whole_and_a_doubting_leader_moves_nothing(
        seed: u64,
        sizes in proptest::collection::vec(0u32..6, 1..4),
        live in proptest::collection::btree_set(1u64..5, 1..5),
    ) {
        let mut rng = base::Rng::new(seed);
        let services = names(&sizes);
        let services: Vec<(&str, u32)> = services.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let live: Vec<u64> = live.into_iter().collect();
        let mut current = Assignments::default();
        let mut cluster = cluster(&services, &live, &current);
        let states = [CloneState::Starting, CloneState::Serving, CloneState::Draining, CloneState::Backoff];
        for (name, clones) in &services {
            for id in (0..clones + 1).map(|number| CloneId::new(*name, number)) {
                if rng.chance(0.7) {
                    current.of.insert(id.clone(), NodeId(rng.between(1, 5)));
                    if rng.chance(0.3) {
                        current.leaving.insert(id.clone(), NodeId(rng.between(1, 5)));
                    }
                }
                for node in &mut cluster.live {
                    if rng.chance(0.4) {
                        node.clones.insert(id.clone(), *rng.pick(&states).unwrap());
                    }
                }
            }
        }
        let next = plan(&cluster, &current);
        let wanted: usize = sizes.iter().map(|n| *n as usize).sum();
        prop_assert_eq!(next.of.len(), wanted);
        prop_assert!(next.of.values().chain(next.leaving.values()).all(|node| live.contains(&node.0)));
        prop_assert!(next.leaving.keys().all(|id| next.of.contains_key(id)));
        cluster.absence = Absence::Doubted;
        let doubted = plan(&cluster, &current);
        for (id, node) in &doubted.of {
            prop_assert!(current.of.get(id).is_none_or(|old| old == node), "{} moved", id);
        }
    }
}
