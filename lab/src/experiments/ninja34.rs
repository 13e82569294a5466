//! Many clients update one and the same value (Ninja figures 3 and 4): by two swaps, one of which takes a lock, by apply, and by
//! weak apply; on one node without replication, and on three. At the end the value must be what all of them made of it.

use std::time::Duration;

use super::linear::bank_of;
use crate::Plan;
use crate::load::Outcome;
use crate::plot::{self, Line};
use crate::puts::{Does, Side, load, number_of};
use crate::report::{Figure, Report, median};

const WRITERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const KINDS: [(&str, Does); 3] = [("two swaps", Does::Swap), ("apply", Does::Add), ("weak apply", Does::WeakAdd)];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("ninja34");
    report.notes.push("each update is forced to a majority's disks before its client hears of it".into());
    let mut csv = "nodes,does,writers,per_second,p50_us,p99_us,failed\n".to_owned();
    for (nodes, name) in [(1, "one node (figure 3)"), (3, "three nodes (figure 4)")] {
        let (cluster, target) = bank_of(nodes, "weak = [\"number.add\"]")?;
        let side = Side::Coppice(target);
        let mut lines: Vec<Line> =
            KINDS.iter().map(|(kind, _)| Line { name: (*kind).into(), points: Vec::new() }).collect();
        for writers in WRITERS {
            for ((kind, does), line) in KINDS.iter().zip(&mut lines) {
                let before = number_of(&side, does.key())?;
                let outs: Vec<Outcome> = (0..plan.rounds)
                    .map(|_| load(&side, *does, writers, 0, Duration::from_secs(plan.seconds)))
                    .collect::<Result<_, _>>()?;
                let (done, failed): (u64, u64) =
                    (outs.iter().map(|out| out.done).sum(), outs.iter().map(|out| out.failed).sum());
                let made = number_of(&side, does.key())? - before;
                if !(done..=done + failed).contains(&made) {
                    return Err(format!(
                        "{done} updates by {kind} were acknowledged, {failed} failed, and {made} are there"
                    ));
                }
                let of = |pick: fn(&Outcome) -> f64| median(outs.iter().map(pick).collect());
                let (rate, p50, p99) = (of(|out| out.per_second), of(|out| out.p50_us), of(|out| out.p99_us));
                csv += &format!("{nodes},{kind},{writers},{rate:.0},{p50:.0},{p99:.0},{failed}\n");
                let alone = line.points.first().map(|(_, rate)| *rate);
                line.points.push((writers as f64, rate));
                let what = format!("{name}: {kind}, {writers} writers");
                report.figures.push(Figure::new(what, "updates a second", rate, "itself with 1 writer", alone));
            }
        }
        drop(cluster);
        let svg = plot::lines(
            &format!("One value updated by many, {name}"),
            "clients that update it all the time",
            "updates a second",
            &lines,
            &[],
        );
        report.write(&plan.out, &format!("ninja34-{nodes}.svg"), &svg)?;
    }
    report.write(&plan.out, "ninja34.csv", &csv)?;
    Ok(report)
}
