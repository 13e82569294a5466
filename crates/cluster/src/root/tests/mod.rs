//! Stories of whole groups, in virtual time. Random ones are in `faults`, bytes in `bytes`, the world in `net`.

mod bytes;
mod faults;
mod net;

use base::{NodeId, Outcome, Span};

use super::limits::*;
use super::{Change, Conflict};
use crate::raft::limits::LOG_HELD_BYTES;
use net::{Net, put};

/// A group of so many nodes that has its voters.
fn grown(seed: u64, nodes: u64) -> Net {
    let mut net = Net::new(seed, nodes);
    let voters = if nodes < 3 { 1 } else { 3 };
    net.until(Span::secs(5), |net| {
        let all = net.up().iter().all(|id| net.root(*id).voters().len() == voters && !net.root(*id).is_joint());
        all && net.leader().is_some() && net.all_show(1)
    });
    net
}

#[test]
fn one_node_founds_a_group_and_takes_changes() {
    let mut net = Net::new(1, 1);
    assert!(net.until(Span::millis(100), |net| net.root(1).is_leader()) <= Span::millis(100));
    assert_eq!(net.root(1).declared().version, 1);
    assert_eq!(net.apply(1, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)));
    assert_eq!(net.root(1).declared().get("test", "a").unwrap(), "1");
    assert_eq!(net.root(1).voters(), [NodeId(1)]);
}

#[test]
fn the_group_grows_from_one_to_three_by_itself_and_everybody_has_a_copy() {
    let mut net = Net::new(2, 2);
    net.until(Span::secs(2), |net| net.all_show(1));
    net.run(Span::secs(2));
    assert_eq!(net.root(2).voters(), [NodeId(1)], "two voters would be worse than one");
    for id in 3..=5 {
        net.add(id);
    }
    net.until(Span::secs(2), |net| net.all_show(1) && net.up().iter().all(|id| net.root(*id).voters().len() == 3));
    assert_eq!(net.apply(5, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)), "from a learner");
    assert!(net.root(5).declared().get("test", "a").is_some(), "who made the change reads it at once");
    net.until(Span::millis(500), |net| net.all_show(2));
}

#[test]
fn a_killed_leader_is_replaced_in_one_and_a_half_seconds_and_no_change_is_lost() {
    for seed in 0..20 {
        let mut net = grown(seed, 3);
        let leader = net.leader().unwrap();
        assert!(matches!(net.apply(1, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2))));
        net.kill(leader);
        let took = net.until(Span::secs(5), |net| net.leader().is_some());
        assert!(took <= Span::millis(1500), "seed {seed}: {took:?}");
        let other = net.up()[0];
        assert_eq!(net.apply(other, Span::secs(1), put("b", "1")), Outcome::Done(Ok(3)), "seed {seed}");
        net.start(leader);
        net.until(Span::secs(2), |net| net.all_show(3) && net.leader().is_some());
    }
}

#[test]
fn a_voter_that_comes_back_with_an_older_disk_finds_it_out_from_those_whom_it_promised_more() {
    for seed in 0..20 {
        let mut net = grown(seed, 3);
        let older = net.leader().unwrap() % 3 + 1;
        assert!(matches!(net.apply(1, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2))));
        net.until(Span::secs(1), |net| net.all_show(2));
        let disk = net.nodes[&older].disk.clone();
        assert!(matches!(net.apply(1, Span::secs(1), put("a", "2")), Outcome::Done(Ok(3))));
        net.until(Span::secs(1), |net| net.all_show(3));
        net.kill(older);
        net.nodes.get_mut(&older).unwrap().disk = disk;
        net.older = Some(older);
        net.start(older);
        net.until(Span::secs(1), |net| net.distrusted.contains(&older));
    }
}

#[test]
fn a_full_disk_takes_its_node_out_of_the_group_and_only_that() {
    for seed in 0..20 {
        let mut net = grown(seed, 3);
        let full = net.leader().unwrap();
        net.disk_full(full, true);
        let took = net.until(Span::secs(2), |net| net.leader().is_some_and(|leader| leader != full));
        assert!(took < Span::millis(500), "seed {seed}: it gives the lead away at once, not after {took:?}");
        let other = full % 3 + 1;
        assert_eq!(net.apply(other, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)), "seed {seed}");
        net.run(Span::secs(3));
        assert_eq!(net.root(full).declared().version, 1, "it takes no part");
        net.disk_full(full, false);
        net.until(Span::secs(2), |net| net.all_show(2));
    }
}

#[test]
fn a_change_goes_on_over_a_change_of_leaders_and_happens_once() {
    for seed in 0..20 {
        let mut net = grown(seed, 3);
        let leader = net.leader().unwrap();
        let asker = leader % 3 + 1;
        net.faults.delay_max = Span::millis(20);
        let id = net.propose(asker, Span::secs(5), put("a", "1"));
        // In the midst of it: sent, perhaps in the leader's log, perhaps even committed.
        net.run(Span(1_000 * seed));
        net.kill(leader);
        net.until(Span::secs(5), |net| net.ends.contains_key(&id));
        assert_eq!(net.ends[&id], Outcome::Done(Ok(2)), "seed {seed}: {}", net.picture());
        net.run(Span::secs(2));
        assert_eq!(net.root(asker).declared().version, 2, "seed {seed}: applied once");
    }
}

#[test]
fn answers_may_all_be_lost_and_the_change_still_happens_once_and_is_known() {
    let mut net = grown(3, 3);
    let leader = net.leader().unwrap();
    let asker = leader % 3 + 1;
    net.faults.loss = 0.5;
    net.faults.double = 0.5;
    for n in 0..20 {
        let end = net.apply(asker, Span::secs(20), put(&format!("n{n}"), "1"));
        assert_eq!(end, Outcome::Done(Ok(n + 2)));
    }
}

#[test]
fn a_conflict_is_told_and_changes_nothing() {
    let mut net = grown(4, 3);
    let expecting = |expect| Change { expect: Some(expect), ..put("a", "1") };
    assert_eq!(net.apply(2, Span::secs(1), expecting(7)), Outcome::Done(Err(Conflict { version: 1 })));
    assert_eq!(net.apply(2, Span::secs(1), expecting(1)), Outcome::Done(Ok(2)));
    assert_eq!(net.apply(3, Span::secs(1), expecting(1)), Outcome::Done(Err(Conflict { version: 2 })));
    let (a, b) = (net.propose(1, Span::secs(1), expecting(2)), net.propose(2, Span::secs(1), expecting(2)));
    net.until(Span::secs(1), |net| net.ends.contains_key(&a) && net.ends.contains_key(&b));
    let won = [a, b].iter().filter(|id| net.ends[id] == Outcome::Done(Ok(3))).count();
    assert_eq!(won, 1, "of two that expect the same, one wins: {:?}", net.ends);
}

#[test]
fn a_dead_majority_stops_changes_only() {
    let mut net = grown(5, 3);
    assert_eq!(net.apply(1, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)));
    net.until(Span::secs(1), |net| net.all_show(2));
    let leader = net.leader().unwrap();
    let last = leader % 3 + 1;
    for id in (1..=3).filter(|id| *id != last) {
        net.kill(id);
    }
    net.run(Span::secs(3));
    assert_eq!(net.root(last).declared().get("test", "a").unwrap(), "1", "reads go on");
    assert_eq!(net.root(last).leader(), None);
    match net.apply(last, Span::secs(2), put("b", "1")) {
        Outcome::Refused(refused) => assert!(refused.retry_after.is_some(), "it was never sent: {refused}"),
        other => panic!("{other:?}"),
    }
    net.start(leader);
    net.until(Span::secs(3), |net| net.leader().is_some());
    assert_eq!(net.apply(last, Span::secs(1), put("c", "1")), Outcome::Done(Ok(3)), "the refused one did not happen");
}

#[test]
fn a_leader_alone_cannot_say_that_it_happened() {
    let mut net = grown(6, 3);
    let leader = net.leader().unwrap();
    net.isolate(leader);
    let id = net.propose(leader, Span::secs(3), put("a", "1"));
    net.until(Span::secs(4), |net| net.ends.contains_key(&id));
    assert!(matches!(net.ends[&id], Outcome::Unknown(_)), "{:?}", net.ends[&id]);
    assert!(!net.root(leader).is_leader(), "check-quorum: it steps down");
    net.cuts.clear();
    net.run(Span::secs(3));
    assert!(net.leader().is_some());
}

#[test]
fn the_whole_cluster_may_be_killed_at_once_and_starts_with_all_it_promised() {
    for seed in 0..10 {
        let mut net = grown(seed, 4);
        for n in 0..5 {
            assert_eq!(net.apply(n % 4 + 1, Span::secs(2), put(&format!("n{n}"), "1")), Outcome::Done(Ok(n + 2)));
        }
        for id in 1..=4 {
            net.kill(id);
        }
        net.run(Span::secs(1));
        for id in [4, 3, 2, 1] {
            net.start(id);
        }
        net.until(Span::secs(3), |net| net.all_show(6) && net.leader().is_some());
        assert_eq!(net.apply(2, Span::secs(1), put("z", "1")), Outcome::Done(Ok(7)), "seed {seed}");
    }
}

#[test]
fn a_voter_that_is_away_for_long_is_replaced_by_a_node_that_has_everything() {
    let mut net = grown(7, 4);
    let leader = net.leader().unwrap();
    let learner = (1..=4).find(|id| !net.root(1).voters().contains(&NodeId(*id))).unwrap();
    let lost = net.root(1).voters().iter().map(|id| id.0).find(|id| *id != leader).unwrap();
    net.kill(lost);
    net.run(Span(VOTER_AWAY_MAX.0 - Span::secs(1).0));
    assert!(net.root(leader).voters().contains(&NodeId(lost)), "it may still come back");
    let replaced = |net: &Net| {
        net.up().iter().all(|id| {
            let voters = net.root(*id).voters();
            voters.contains(&NodeId(learner))
                && !voters.contains(&NodeId(lost))
                && voters.len() == 3
                && !net.root(*id).is_joint()
        })
    };
    net.until(Span::secs(3), replaced);
    // The new group stands the loss of one of the old.
    net.kill(leader);
    net.until(Span::secs(3), |net| net.leader().is_some());
    assert_eq!(net.apply(learner, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)));
    // Who was replaced comes back as a learner, and disturbs nobody.
    let now_leads = net.leader();
    net.start(lost);
    net.until(Span::secs(2), |net| net.all_show(2));
    net.run(Span::secs(3));
    assert_eq!(net.leader(), now_leads);
    assert!(!net.root(lost).voters().contains(&NodeId(lost)));
}

#[test]
fn who_has_no_vote_and_stays_away_is_dropped_and_let_in_again_when_it_is_back() {
    let mut net = grown(11, 5);
    let leader = net.leader().unwrap();
    let learner = (1..=5).find(|id| !net.root(1).voters().contains(&NodeId(*id))).unwrap();
    net.kill(learner);
    let has = |net: &Net| net.root(leader).has(NodeId(learner));
    net.run(Span(LEARNER_AWAY_MAX.0 / 2));
    assert!(has(&net), "it may still come back");
    net.until(LEARNER_AWAY_MAX, |net| !has(net));
    assert_eq!(net.apply(leader, Span::secs(1), put("a", "1")), Outcome::Done(Ok(2)));
    net.start(learner);
    net.until(Span::secs(5), |net| has(net) && net.all_show(2));
    assert_eq!(net.apply(learner, Span::secs(1), put("a", "2")), Outcome::Done(Ok(3)), "it is one of them again");
}

#[test]
fn a_long_log_becomes_a_snapshot_and_whoever_was_away_gets_it() {
    let mut net = grown(8, 3);
    let leader = net.leader().unwrap();
    let away = leader % 3 + 1;
    net.kill(away);
    let changes = LOG_RECORDS_MAX as u64 + 200;
    for n in 0..changes {
        let end = net.apply(leader, Span::secs(1), put(&format!("n{}", n % 10), &n.to_string()));
        assert_eq!(end, Outcome::Done(Ok(n + 2)));
    }
    assert!(net.nodes[&leader].rewrites > 0);
    assert!(net.nodes[&leader].disk.len() <= LOG_RECORDS_MAX + 1, "{}", net.nodes[&leader].disk.len());
    net.start(away);
    net.until(Span::secs(3), |net| net.all_show(changes + 1));
    for id in 1..=3 {
        net.kill(id);
    }
    for id in 1..=3 {
        net.start(id);
    }
    net.until(Span::secs(3), |net| net.all_show(changes + 1) && net.leader().is_some());
}

/// All groups of a node share one log, and the root group writes next to nothing.
#[test]
fn what_others_write_does_not_have_to_be_kept_for_the_root_group() {
    let mut net = grown(9, 3);
    let rewrites = |net: &Net| net.nodes[&1].rewrites;
    let (before, much) = (rewrites(&net), LOG_HELD_BYTES.0 + 1);
    net.logged(1, LOG_HELD_BYTES.0);
    net.run(Span::secs(1));
    assert_eq!(rewrites(&net), before);
    net.logged(1, much);
    net.run(Span::secs(1));
    assert_eq!(rewrites(&net), before + 1);
    let leader = net.leader().unwrap();
    net.apply(leader, Span::secs(1), put("n", "1"));
    net.run(Span::secs(1));
    net.logged(1, much + LOG_HELD_BYTES.0);
    net.run(Span::secs(1));
    assert_eq!(rewrites(&net), before + 1, "not yet again");
    net.logged(1, 2 * much);
    net.run(Span::secs(1));
    assert_eq!(rewrites(&net), before + 2);
}

#[test]
fn a_member_whose_snapshot_is_not_on_disk_yet_waits_with_elections() {
    // Found by a storm: raft-rs stopped the process, as it looked for entries that the snapshot had replaced.
    let mut net = grown(13, 3);
    let leader = net.leader().unwrap();
    let away = leader % 3 + 1;
    net.kill(away);
    let changes = LOG_RECORDS_MAX as u64 * 2;
    for n in 0..changes {
        assert_eq!(net.apply(leader, Span::secs(1), put("a", &n.to_string())), Outcome::Done(Ok(n + 2)));
    }
    net.start(away);
    net.until(Span::secs(1), |net| net.root(away).leader().is_some());
    net.slow = Some((away, Span::secs(5)));
    net.until(Span::secs(10), |net| net.root(away).declared().version > 1);
    net.isolate(away);
    net.run(Span::secs(4));
    net.slow = None;
    net.cuts.clear();
    net.until(Span::secs(12), |net| net.all_show(changes + 1) && net.leader().is_some());
}

#[test]
fn a_lost_snapshot_is_sent_again() {
    let mut net = Net::new(9, 1);
    net.until(Span::secs(1), |net| net.root(1).is_leader());
    net.cuts.insert((1, 2));
    net.add(2);
    net.run(Span::millis(500));
    net.cuts.clear();
    // Now everything else arrives, so that the leader does send a snapshot, and half of all frames are lost.
    net.faults.loss = 0.5;
    net.until(Span::secs(20), |net| net.all_show(1));
}

#[test]
fn a_promise_before_the_disk_has_it_is_caught() {
    // The bug: messages and raft's own count do not wait for `Appended`. The disk is slow, then the power fails.
    let loses = |seed: u64, hasty: bool| {
        let mut net = grown(seed, 3);
        net.hasty = hasty;
        for id in 1..=3 {
            net.kill(id);
            net.start(id);
        }
        net.until(Span::secs(3), |net| net.leader().is_some());
        net.faults.disk_max = Span::millis(200);
        assert_eq!(net.apply(1, Span::secs(10), put("a", "1")), Outcome::Done(Ok(2)));
        for id in 1..=3 {
            net.kill(id);
        }
        net.hasty = false;
        for id in 1..=3 {
            net.start(id);
        }
        net.until(Span::secs(10), |net| net.leader().is_some());
        net.run(Span::secs(1));
        net.root(1).declared().get("test", "a").is_none()
    };
    assert_eq!((0..20).filter(|seed| loses(*seed, false)).count(), 0, "the real thing keeps what it promised");
    assert!((0..20).any(|seed| loses(seed, true)), "the planted bug loses changes, and this test sees that");
}

#[test]
fn a_node_that_nobody_contacted_waits_and_refuses_in_time() {
    let mut net = Net::new(11, 0);
    net.add(2);
    net.run(Span::secs(3));
    assert_eq!((net.root(2).leader(), net.root(2).declared().version), (None, 0));
    assert!(matches!(net.apply(2, Span::millis(300), put("a", "1")), Outcome::Refused(_)));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    // The world's generator is asked for each frame and each write, so its state stands for the whole run.
    let run = |seed| {
        let mut net = grown(seed, 5);
        net.faults.loss = 0.1;
        for _ in 0..5 {
            if let Some(leader) = net.leader() {
                net.kill(leader);
                net.run(Span::secs(3));
                net.start(leader);
            }
            net.propose(net.up()[0], Span::secs(1), put("a", "1"));
            net.run(Span::secs(2));
        }
        (net.rng.u64(), net.picture())
    };
    assert_eq!(run(12), run(12));
    assert_ne!(run(12), run(13));
}
