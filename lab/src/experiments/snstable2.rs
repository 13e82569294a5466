//! Load rises slowly while the manager adds clones, until nothing is left to add (SNS table 2): which number of clones
//! carried which load, and whether each clone adds as much as the one before. A clone does 23 requests a second, as a
//! distiller there; four nodes of two clones each and one for overflow, all of them doors.

use crate::Plan;
use crate::cluster::Cluster;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};
use crate::watch::{Watch, Watched};
use crate::web::{CSV, End, Load, STEP, Seen, rows};
use crate::worker;

use super::sns8::TAKES;

const NODES: u8 = 5;
/// On each node; so the ninth and the tenth are on the node for overflow.
const CLONES_EACH: &str = "2";
const CLONES_MAX: usize = 10;
const KINDS: [&str; 1] = ["/distil"];
const FROM: f64 = 4.0;
/// More than ten clones can do.
const TO: f64 = 260.0;
/// Requests a second up to which so many distillers did there, before another one was needed.
const PAPER: [(usize, f64); 7] = [(1, 24.0), (2, 47.0), (3, 72.0), (4, 91.0), (5, 112.0), (6, 135.0), (7, 159.0)];
const SLOT: f64 = 1.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let cluster = Cluster::with_options(NODES, &["--overflow", "1", "--clones-max", CLONES_EACH])?;
    let program = worker::run_line(1, TAKES)?;
    cluster.serve(&format!(
        "[service.work]\n{program}clones = {{ min = 1, max = {CLONES_MAX} }}\nhealth = \"/health\"\nhttp = {{}}\n"
    ))?;
    let steps = (plan.seconds as f64 * 20.0 / STEP.as_secs_f64()) as usize;
    let rates = (0..steps).map(|step| vec![FROM + (TO - FROM) * step as f64 / steps as f64]).collect();
    let load = Load { doors: cluster.doors("http"), kinds: KINDS.to_vec(), rates, apart: false };
    let length = load.seconds();
    let running = load.start();
    let watch = Watch::start(cluster.doors("api"), "work", running.begun);
    let seen = running.wait()?;
    let watched = watch.end()?;
    report(plan, &seen, &watched, length)
}

/// So many clones served until then.
struct Row {
    clones: usize,
    from_s: f64,
    to_s: f64,
    overflow: usize,
}

impl Row {
    /// Clones that were asked for together do not come in the same moment: those numbers carried nothing.
    fn counts(&self) -> bool {
        self.to_s - self.from_s >= 1.0
    }
}

/// A row for each number of clones, in order. One that comes and goes makes a row each time.
fn table(watched: &Watched, length: f64) -> Vec<Row> {
    let mut table: Vec<Row> = Vec::new();
    for look in watched.looks.iter().filter(|look| look.at < length) {
        let clones = look.serving.len();
        match table.last_mut() {
            Some(row) if row.clones == clones => (row.to_s, row.overflow) = (look.at, row.overflow.max(look.overflow)),
            _ => table.push(Row { clones, from_s: look.at, to_s: look.at, overflow: look.overflow }),
        }
    }
    table
}

fn report(plan: &Plan, seen: &Seen, watched: &Watched, length: f64) -> Result<Report, String> {
    let mut report = Report::new("snstable2");
    let rate = |at: f64| FROM + (TO - FROM) * (at / length).clamp(0.0, 1.0);
    let mut push = |measure: String, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, peer, other));
    };
    let rows_found = table(watched, length);
    let mut csv = "clones,from_per_s,to_per_s,overflow_nodes,offered,done,refused,failed,p50_ms,p99_ms\n".to_owned();
    for row in &rows_found {
        let t = seen.of_kind(0, row.from_s, row.to_s);
        csv += &format!(
            "{},{:.0},{:.0},{},{},{},{},{},{:.1},{:.1}\n",
            row.clones,
            rate(row.from_s),
            rate(row.to_s),
            row.overflow,
            t.offered,
            t.done,
            t.refused,
            t.failed,
            t.ms(0.5),
            t.ms(0.99)
        );
        if !row.counts() {
            continue;
        }
        let paper = PAPER.iter().find(|(clones, _)| *clones == row.clones).map(|(_, rate)| *rate);
        let guests = if row.overflow > 0 { ", on overflow too" } else { "" };
        push(format!("{} clone(s) until{guests}", row.clones), "1/s", rate(row.to_s), "the paper", paper);
        push(format!("p99 with {}", row.clones), "ms", t.ms(0.99), "", None);
    }
    let points: Vec<(f64, f64)> = rows_found
        .iter()
        .filter(|row| row.clones < CLONES_MAX && row.counts())
        .map(|row| (row.clones as f64, rate(row.to_s)))
        .collect();
    let (slope, fit) = line_through(&points);
    let paper: Vec<(f64, f64)> = PAPER.iter().map(|(clones, rate)| (*clones as f64, *rate)).collect();
    let (paper_slope, paper_fit) = line_through(&paper);
    push("each clone more carries".into(), "1/s", slope, "the paper", Some(paper_slope));
    push("how straight that is (R2)".into(), "", fit, "the paper", Some(paper_fit));
    let answered = seen.rates("answers/s", 0, SLOT, length).points;
    let most = answered.windows(3).map(|three| three.iter().map(|(_, rate)| rate / 3.0).sum()).fold(0.0, f64::max);
    let can = CLONES_MAX as f64 / TAKES.as_secs_f64();
    push("most answers, of three seconds".into(), "1/s", most, "ten clones can do", Some(can));
    let fits = seen.tally(0.0, length, |a| rate(a.at) < 0.95 * can);
    push(
        "refused while ten clones could do it".into(),
        "requests",
        fits.refused as f64,
        "of",
        Some(fits.offered as f64),
    );
    push("failed, all".into(), "requests", seen.all().failed as f64, "", None);
    let refused = seen.answers.iter().find(|a| matches!(a.end, End::Refused(_)));
    if let Some(first) = refused {
        push("first refusal at".into(), "1/s", rate(first.at), "ten clones can do", Some(can));
    }
    let recruited = watched.of_kind("overflow").next().map(|event| event.at);
    if let Some(at) = recruited {
        push("node for overflow recruited at".into(), "1/s", rate(at), "", None);
    }
    report.notes.extend(seen.all().first_failure.map(|why| format!("first failure: {why}")));
    report.notes.extend(watched.of_kind("scaled").map(|e| format!("{:.0}/s: {}", rate(e.at), e.text)));
    report.notes.extend(watched.of_kind("overflow").map(|e| format!("{:.0}/s: {} {}", rate(e.at), e.who, e.text)));
    report.write(&plan.out, "snstable2.csv", &csv)?;
    report.write(&plan.out, "snstable2-load.csv", &(CSV.to_owned() + &rows(seen, &KINDS, SLOT, length)))?;
    let over_rate = |points: Vec<(f64, f64)>, by: f64| points.into_iter().map(|(at, v)| (rate(at), v * by)).collect();
    let curves = [
        Line { name: "answers/s".into(), points: over_rate(answered, 1.0) },
        Line { name: "clones x 23/s".into(), points: over_rate(watched.serving(), 1.0 / TAKES.as_secs_f64()) },
    ];
    let marks: Vec<f64> = recruited.map(rate).into_iter().collect();
    let title = "Load and what clones can do (dashed: node for overflow recruited)";
    report.write(&plan.out, "snstable2.svg", &lines(title, "requests a second", "1/s", &curves, &marks))?;
    Ok(report)
}

/// Slope of the straight line that is nearest to these points, and how much of what they differ it explains.
pub fn line_through(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let sum = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>();
    let (xx, yy) = (sum(&|p| (p.0 - mx).powi(2)), sum(&|p| (p.1 - my).powi(2)));
    let xy = sum(&|p| (p.0 - mx) * (p.1 - my));
    (xy / xx.max(1e-9), xy * xy / (xx * yy).max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{CloneSeen, Look};

    #[test]
    fn a_straight_line_is_found() {
        let (slope, fit) = line_through(&[(1.0, 23.0), (2.0, 46.0), (3.0, 69.0)]);
        assert!((slope - 23.0).abs() < 1e-9 && (fit - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_number_of_clones_has_its_row() {
        let look = |at: f64, clones: usize| {
            let clone = CloneSeen { name: "work/0".into(), node: "n1".into(), pid: 1 };
            Look { at, serving: vec![clone; clones], ..Look::default() }
        };
        let looks = vec![look(0.0, 1), look(1.0, 1), look(2.0, 3), look(9.0, 4)];
        let rows = table(&Watched { looks, events: Vec::new() }, 8.0);
        let found: Vec<_> = rows.iter().map(|row| (row.clones, row.from_s, row.to_s)).collect();
        assert_eq!(found, vec![(1, 0.0, 1.0), (3, 2.0, 2.0)]);
    }
}
