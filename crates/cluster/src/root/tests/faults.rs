//! Random kills, power cuts, partitions, loss, doubles and delays, by seed. Whatever happens: no two nodes show different
//! things for one version, what was done stays, what was refused did not happen, nothing happens twice, and once the
//! faults end all nodes agree and changes work.

use std::collections::BTreeMap;

use base::{Outcome, Span};

use super::net::{Net, put};

/// One run: how many changes came through, or the promise that it broke.
fn storm(seed: u64, hasty: bool) -> Result<usize, String> {
    let mut net = Net::founded(seed, 3 + seed % 3, hasty);
    let ids: Vec<u64> = net.nodes.keys().copied().collect();
    let mut proposed: BTreeMap<u64, String> = BTreeMap::new();
    net.faults.loss = [0.0, 0.05, 0.2][seed as usize % 3];
    net.faults.double = 0.1;
    net.faults.delay_max = Span::millis([3, 30, 120][seed as usize / 3 % 3]);
    net.faults.disk_max = Span::millis([3, 60, 400][seed as usize / 9 % 3]);
    net.run(Span::secs(2));
    for round in 0..60 {
        match net.rng.below(10) {
            0 | 1 => {
                let id = *net.rng.pick(&ids).unwrap();
                if net.nodes[&id].root.is_some() {
                    net.kill(id);
                }
            }
            2 => {
                for id in net.up() {
                    net.kill(id);
                }
            }
            3 => {
                let id = *net.rng.pick(&ids).unwrap();
                net.isolate(id);
            }
            4 | 5 => net.cuts.clear(),
            _ => (),
        }
        for id in ids.clone() {
            if net.nodes[&id].root.is_none() && net.rng.chance(0.4) {
                net.start(id);
            }
        }
        for n in 0..3 {
            let up = net.up();
            if let Some(at) = net.rng.pick(&up).copied() {
                let (name, budget) = (format!("r{round}n{n}"), Span::millis(net.rng.between(50, 4_000)));
                proposed.insert(net.propose(at, budget, put(&name, "1")), name);
            }
            let pause = Span::millis(net.rng.below(300));
            net.run(pause);
        }
    }
    net.cuts.clear();
    net.faults.loss = 0.0;
    for id in ids {
        if net.nodes[&id].root.is_none() {
            net.start(id);
        }
    }
    net.until(Span::secs(10), |net| net.leader().is_some());
    let last = net.apply(2, Span::secs(10), put("last", "1"));
    let Outcome::Done(Ok(version)) = last else { return Err(format!("after the storm: {last:?}; {}", net.picture())) };
    net.until(Span::secs(10), |net| net.all_show(version));
    // The last proposals of the storm end, too.
    net.run(Span::secs(5));
    judge(&net, &proposed)
}

fn judge(net: &Net, proposed: &BTreeMap<u64, String>) -> Result<usize, String> {
    if let Some(broken) = &net.broken {
        return Err(broken.clone());
    }
    let shown = net.root(1).declared();
    if net.up().iter().any(|id| net.root(*id).declared() != shown) {
        return Err(format!("nodes do not agree: {}", net.picture()));
    }
    if shown.version != shown.records.len() as u64 {
        return Err(format!(
            "{} versions for {} records: something happened twice",
            shown.version,
            shown.records.len()
        ));
    }
    for (id, name) in proposed {
        let is_there = shown.get("test", name).is_some();
        match net.ends.get(id) {
            Some(Outcome::Done(Ok(_))) if !is_there => return Err(format!("{name} was done and is lost")),
            Some(Outcome::Refused(_)) if is_there => return Err(format!("{name} was refused and happened")),
            Some(Outcome::Done(Err(conflict))) => return Err(format!("{name} expected nothing: {conflict:?}")),
            // No end: its node was killed.
            Some(Outcome::Done(Ok(_)) | Outcome::Refused(_) | Outcome::Unknown(_)) | None => (),
        }
    }
    Ok(proposed.keys().filter(|id| matches!(net.ends.get(id), Some(Outcome::Done(Ok(_))))).count())
}

fn check(seeds: impl Iterator<Item = u64>) {
    let (mut storms, mut done) = (0, 0);
    for seed in seeds {
        // Seen when it fails, also by an assertion somewhere below.
        println!("seed {seed}");
        match storm(seed, false) {
            Ok(came_through) => done += came_through,
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
        storms += 1;
    }
    // One storm may be so wild that little comes through; if that were the rule, storms would show nothing.
    assert!(done > 20 * storms, "{done} changes in {storms} storms");
}

#[test]
fn storms_break_no_promise() {
    // 153: a torn write once left a commit index on disk without the entries that it counted.
    check((0..36).chain([153]));
}

#[test]
fn storms_see_promises_that_do_not_wait_for_the_disk() {
    // Raft's own assertions find some of it first.
    let breaks = |seed| std::panic::catch_unwind(|| storm(seed, true)).map_or(true, |end| end.is_err());
    assert!((0..36).any(breaks), "the planted bug goes unseen");
}

/// For a longer look: `cargo test -p cluster --release many_storms -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn many_storms_break_no_promise() {
    check(36..2_000);
}
