//! Class `linear` with `durability = "memory"` against NATS KV with three replicas, and against itself on disk.

use std::time::Duration;

use super::linear::{CONNECTIONS, VALUE_BYTES, bank_of};
use crate::Plan;
use crate::cluster::Cluster;
use crate::load::Outcome;
use crate::nats::Nats;
use crate::puts::{Does, Side, load};
use crate::report::{Figure, Report, median};

/// Puts with `durability = "memory"` against the same on disk and NATS KV, in turn, and what the power of a majority would have cost.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("nats");
    report.notes.push(
        "both answer before a write is on disk: Coppice forces it within moments, NATS within two minutes; TLS between Coppice's \
         nodes, none between those of NATS"
            .into(),
    );
    let has_nats = Nats::start().map(drop).inspect_err(|why| report.notes.push(why.clone())).is_ok();
    let mut csv = "side,nodes,does,clients,round,per_second,p50_us,p99_us,failed,wrong\n".to_owned();
    let connections = if plan.connections.is_empty() { CONNECTIONS.to_vec() } else { plan.connections.clone() };
    for clients in connections {
        let (mut found, mut window) = ([Vec::new(), Vec::new(), Vec::new()], 0);
        for round in 0..plan.rounds {
            for (name, found) in ["coppice-disk", "coppice-memory", "nats"].into_iter().zip(&mut found) {
                let (mut ours, mut theirs) = (None, None);
                let side = match name {
                    "nats" if !has_nats => continue,
                    "nats" => Side::Nats(theirs.insert(Nats::start()?).addrs.clone()),
                    name => {
                        let (cluster, target) =
                            bank_of(3, &format!("durability = \"{}\"", name.trim_start_matches("coppice-")))?;
                        ours = Some(cluster);
                        Side::Coppice(target)
                    }
                };
                let out = load(&side, Does::Put, clients, VALUE_BYTES, Duration::from_secs(plan.seconds))?;
                csv += &format!(
                    "{name},3,puts,{clients},{round},{:.0},{:.0},{:.0},{},{}\n",
                    out.per_second, out.p50_us, out.p99_us, out.failed, out.wrong
                );
                if let Some(why) = out.first_failure.as_ref() {
                    report.notes.push(format!("{name}, {clients} clients: {} failed, first: {why}", out.failed));
                }
                if let Some(ours) = &ours {
                    window = window.max(longest_unforced(ours));
                }
                found.push(out);
                drop((ours, theirs));
            }
        }
        let [disk, memory, nats] = &found;
        let of = |outs: &[Outcome], pick: fn(&Outcome) -> f64| median(outs.iter().map(pick).collect());
        for (peer, theirs) in [("itself on disk", disk), ("NATS KV", nats)] {
            let peers = |pick| (!theirs.is_empty()).then(|| of(theirs, pick));
            let what = format!("puts of 1 KiB in memory, 3 nodes, {clients} clients, {peer} beside it");
            let rate = of(memory, |o| o.per_second);
            report.figures.push(Figure::new(&what, "a second", rate, peer, peers(|o| o.per_second)));
            let p99 = of(memory, |o| o.p99_us / 1e3);
            report.figures.push(Figure::new(format!("{what}, p99"), "ms", p99, peer, peers(|o| o.p99_us / 1e3)));
        }
        let name = format!("longest time from a put to its force, {clients} clients");
        report.figures.push(Figure::new(name, "ms", window as f64, "none", None));
    }
    report.write(&plan.out, "nats.csv", &csv)?;
    Ok(report)
}

fn longest_unforced(cluster: &Cluster) -> u64 {
    let of = |door| {
        let text = crate::load::http_get(door, "/v1/ns/lab", None).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()?["loss_window"]["longest_ms"].as_u64()
    };
    cluster.doors("api").into_iter().filter_map(of).max().unwrap_or(0)
}
