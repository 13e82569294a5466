//! What sides did that were measured in turn, round by round: a line of CSV for each run, and figures of their medians.

use std::path::Path;

use crate::closed::Ran;
use crate::report::{Figure, Report, median};

/// The name of our side.
pub const OURS: &str = "coppice";

/// Measures in the order in which they were first added.
#[derive(Default)]
pub struct Sides {
    runs: Vec<Run>,
}

struct Run {
    what: String,
    side: String,
    round: usize,
    ran: Ran,
}

/// One figure of a run.
type Pick = fn(&Ran) -> f64;

const HEAD: &str = "what,side,round,per_second,p50_us,p99_us,p999_us,cpu_us,failed,wrong\n";

impl Sides {
    pub fn add(&mut self, what: &str, side: &str, round: usize, ran: Ran) {
        if let Some(why) = ran.out.first_failure.as_ref().filter(|_| ran.out.failed > 0) {
            eprintln!("{side}, {what}: {} failed, first: {why}", ran.out.failed);
        }
        self.runs.push(Run { what: what.into(), side: side.into(), round, ran });
    }

    /// Rate, p99, processor time and failures of each measure, ours beside each of its peers, and the lines of all runs
    /// as a file.
    pub fn tell(&self, report: &mut Report, out: &Path) -> Result<(), String> {
        let mut told: Vec<&str> = Vec::new();
        for run in self.runs.iter().filter(|run| run.side == OURS) {
            if !told.contains(&run.what.as_str()) {
                told.push(&run.what);
                self.figures(report, &run.what);
            }
        }
        let mut csv = HEAD.to_owned();
        for Run { what, side, round, ran: Ran { out: o, cpu_us } } in &self.runs {
            csv += &format!(
                "{what:?},{side},{round},{:.0},{:.0},{:.0},{:.0},{cpu_us:.2},{},{}\n",
                o.per_second, o.p50_us, o.p99_us, o.p999_us, o.failed, o.wrong
            );
        }
        let name = format!("{}.csv", report.name);
        report.write(out, &name, &csv)
    }

    fn figures(&self, report: &mut Report, what: &str) {
        let mut peers: Vec<&str> = Vec::new();
        for run in self.runs.iter().filter(|run| run.what == what && run.side != OURS) {
            if !peers.contains(&run.side.as_str()) {
                peers.push(&run.side);
            }
        }
        let picks: [(&str, &str, Pick); 3] = [
            ("", "a second", |ran| ran.out.per_second),
            (", p99", "ms", |ran| ran.out.p99_us / 1e3),
            (", processor time", "us for one", |ran| ran.cpu_us),
        ];
        for peer in if peers.is_empty() { vec![""] } else { peers } {
            for (name, unit, pick) in picks {
                let (ours, theirs) = (self.median(what, OURS, pick), self.median(what, peer, pick));
                report.figures.push(Figure::new(format!("{what}{name}"), unit, ours.unwrap_or(0.0), peer, theirs));
            }
            let bad = |side| self.of(what, side).map(|ran| (ran.out.failed + ran.out.wrong) as f64).sum();
            let theirs = (!peer.is_empty()).then(|| bad(peer));
            let name = format!("{what}, failed or wrong");
            report.figures.push(Figure::new(name, "operations", bad(OURS), peer, theirs));
        }
    }

    fn of(&self, what: &str, side: &str) -> impl Iterator<Item = &Ran> {
        self.runs.iter().filter(move |run| run.what == what && run.side == side).map(|run| &run.ran)
    }

    pub fn median(&self, what: &str, side: &str, pick: Pick) -> Option<f64> {
        let all: Vec<f64> = self.of(what, side).map(pick).collect();
        (!all.is_empty()).then(|| median(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Outcome;

    #[test]
    fn a_measure_is_told_beside_each_peer() {
        let ran = |per_second, failed| Ran {
            out: Outcome { per_second, failed, p99_us: 2000.0, ..Outcome::default() },
            cpu_us: 1.0,
        };
        let mut sides = Sides::default();
        for (round, rate) in [100.0, 300.0, 200.0].into_iter().enumerate() {
            sides.add("puts", OURS, round, ran(rate, 1));
            sides.add("puts", "one", round, ran(100.0, 0));
            sides.add("puts", "two", round, ran(400.0, 0));
        }
        sides.add("gets", OURS, 0, ran(7.0, 0));
        let mut report = Report::new("sides");
        let out = std::env::temp_dir().join(format!("coppice-lab-sides-{}", std::process::id()));
        sides.tell(&mut report, &out).expect("written");
        let csv = std::fs::read_to_string(out.join("sides.csv")).expect("a file");
        std::fs::remove_dir_all(&out).expect("it was there");
        let ratios: Vec<Option<f64>> = report.figures.iter().map(|f| f.ratio).collect();
        assert_eq!((report.figures.len(), csv.lines().count()), (12, 11));
        assert_eq!((ratios[0], ratios[1], ratios[4], ratios[8]), (Some(2.0), Some(1.0), Some(0.5), None));
        assert_eq!((report.figures[3].coppice, report.figures[3].peer), (3.0, Some(0.0)));
    }
}
