//! Five times more than a service can do, in two priorities (Ninja 3.3; users ask Envoy for it): the upper one is to be
//! served as if nothing were, the rest of the capacity is to be used, and afterwards all is to be as before. Open loop: requests
//! leave by the clock, and latency counts from when they were due.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Plan;
use crate::cluster::Cluster;
use crate::load::histogram;
use crate::peers::wait_until;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};
use crate::web::{Answer, End, Load, STEP};
use crate::worker;

const CLONES: u32 = 4;
/// Requests that one clone serves at once, and how long each takes.
const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
const CAPACITY: f64 = CLONES as f64 * AT_ONCE as f64 / 0.025;
const BIN: Duration = Duration::from_millis(500);
/// A success that comes later is none.
const DEADLINE: Duration = Duration::from_millis(500);
const OVER: f64 = 5.0;

/// What became of requests of one class that were due in one bin.
#[derive(Clone, Debug)]
struct Seen {
    offered: u64,
    good: u64,
    refused: u64,
    other: u64,
    us: Histogram<u64>,
    refused_us: Histogram<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { offered: 0, good: 0, refused: 0, other: 0, us: histogram(), refused_us: histogram() }
    }
}

impl Seen {
    fn note(&mut self, answer: &Answer) {
        let us = ((answer.ms * 1e3) as u64).max(1);
        self.offered += 1;
        match &answer.end {
            End::Done(_) => {
                let is_late = answer.ms > DEADLINE.as_secs_f64() * 1e3;
                self.good += u64::from(!is_late);
                self.other += u64::from(is_late);
                self.us.saturating_record(us);
            }
            End::Refused(_) => {
                self.refused += 1;
                self.refused_us.saturating_record(us);
            }
            End::Failed(_) => self.other += 1,
        }
    }

    fn add(&mut self, other: &Seen) {
        self.offered += other.offered;
        self.good += other.good;
        self.refused += other.refused;
        self.other += other.other;
        self.us.add(&other.us).expect("the same bounds");
        self.refused_us.add(&other.refused_us).expect("the same bounds");
    }
}

/// Upper and lower class.
type Bins = Vec<[Seen; 2]>;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("priorities");
    let mut csv = "upper_share,round,second,class,offered,good,refused,other,p50_us,p99_us,refused_p99_us\n".to_owned();
    // The upper class alone is 20 % of five times the capacity, which is all of it; with 10 % it leaves half.
    for upper_share in [0.2, 0.1] {
        let mut found = Found::default();
        for round in 0..plan.rounds {
            let cluster = Cluster::start(1, false)?;
            cluster.apply(&declaration()?)?;
            let door = cluster.doors("http").first().copied().ok_or("no edge")?;
            wait_until("the service serves", || crate::load::http_get(door, "/health", None).is_ok())?;
            let bins = found.round(door, upper_share, plan)?;
            for (at, classes) in bins.iter().enumerate() {
                for (class, seen) in ["upper", "lower"].iter().zip(classes) {
                    csv += &format!(
                        "{upper_share},{round},{:.1},{class},{},{},{},{},{},{},{}\n",
                        at as f64 * BIN.as_secs_f64(),
                        seen.offered,
                        seen.good,
                        seen.refused,
                        seen.other,
                        seen.us.value_at_quantile(0.5),
                        seen.us.value_at_quantile(0.99),
                        seen.refused_us.value_at_quantile(0.99)
                    );
                }
            }
            if round == 0 {
                let points = |class: usize| {
                    let of = |(at, both): (usize, &[Seen; 2])| {
                        (at as f64 * BIN.as_secs_f64(), both[class].good as f64 / BIN.as_secs_f64())
                    };
                    bins.iter().enumerate().map(of).collect()
                };
                let name = |text: &str| format!("{text} priority");
                let curves =
                    [("upper", 0), ("lower", 1)].map(|(n, class)| Line { name: name(n), points: points(class) });
                let title = format!("{OVER} times the capacity, {:.0} % of it upper", upper_share * 100.0);
                let marks = [plan.seconds as f64, 3.0 * plan.seconds as f64];
                let svg = lines(&title, "seconds", "served in time, 1/s", &curves, &marks);
                report.write(&plan.out, &format!("priorities-{:.0}.svg", upper_share * 100.0), &svg)?;
            }
        }
        found.tell(&mut report, upper_share);
    }
    report.write(&plan.out, "priorities.csv", &csv)?;
    report.notes.push(format!(
        "one node, {CLONES} clones that serve {AT_ONCE} requests at once in {} ms each: {CAPACITY:.0} a second at most; \
         edge, clones and load generator share the machine",
        TAKES.as_millis()
    ));
    Ok(report)
}

fn declaration() -> Result<String, String> {
    let program = worker::run_line(AT_ONCE, TAKES)?;
    Ok(format!(
        "[service.work]\n{program}clones = {CLONES}\nhealth = \"/health\"\nhttp = {{}}\n\
         [[service.work.partition]]\nname = \"upper\"\npath = \"/upper\"\npriority = \"critical\"\n\
         [[service.work.partition]]\nname = \"lower\"\npath = \"/lower\"\npriority = \"low\"\n"
    ))
}

/// Medians over rounds are of these.
#[derive(Default)]
struct Found {
    peak: Vec<f64>,
    unloaded_p99: Vec<f64>,
    upper_success: Vec<f64>,
    upper_failed: Vec<f64>,
    upper_p99: Vec<f64>,
    goodput: Vec<f64>,
    refused_p50: Vec<f64>,
    refused_p99: Vec<f64>,
    normal_after: Vec<f64>,
}

impl Found {
    fn round(&mut self, door: SocketAddr, upper_share: f64, plan: &Plan) -> Result<Bins, String> {
        let per_phase = usize::try_from(plan.seconds * 2).map_err(|e| e.to_string())?;
        // The peak: the most that is served in time, of one class, at any rate up to somewhat more than can be.
        let mut peak = 0.0f64;
        for part in [0.8, 0.9, 1.0, 1.1] {
            let bins = load(door, &vec![[part * CAPACITY, 0.0]; per_phase])?;
            peak = peak.max(sum(&bins, 0).good as f64 / plan.seconds as f64);
        }
        let (quiet, over) = ([0.1 * peak, 0.4 * peak], [upper_share * OVER * peak, (1.0 - upper_share) * OVER * peak]);
        let mut rates = vec![quiet; per_phase];
        rates.extend(vec![over; 2 * per_phase]);
        rates.extend(vec![quiet; per_phase]);
        let bins = load(door, &rates)?;
        let before = sum(&bins[1..per_phase], 0);
        let during = [0, 1].map(|class| sum(&bins[per_phase..3 * per_phase], class));
        self.peak.push(peak);
        let unloaded = before.us.value_at_quantile(0.99);
        self.unloaded_p99.push(unloaded as f64);
        self.upper_success.push(during[0].good as f64 / during[0].offered.max(1) as f64);
        self.upper_failed.push((during[0].offered - during[0].good) as f64);
        self.upper_p99.push(during[0].us.value_at_quantile(0.99) as f64);
        let seconds = 2.0 * plan.seconds as f64;
        self.goodput.push((during[0].good + during[1].good) as f64 / seconds / peak);
        self.refused_p50.push(during[1].refused_us.value_at_quantile(0.5) as f64);
        self.refused_p99.push(during[1].refused_us.value_at_quantile(0.99) as f64);
        // The last bin after the end that was not as before.
        let is_normal = |both: &[Seen; 2]| {
            let all_good = both.iter().all(|seen| seen.good == seen.offered);
            all_good && both[0].us.value_at_quantile(0.99) as f64 <= 1.5 * unloaded as f64
        };
        let last_odd = bins[3 * per_phase..].iter().rposition(|both| !is_normal(both));
        self.normal_after.push(last_odd.map_or(0.0, |at| (at + 1) as f64 * BIN.as_secs_f64()));
        Ok(bins)
    }

    fn tell(self, report: &mut Report, upper_share: f64) {
        let of = format!("{:.0} % upper", upper_share * 100.0);
        let mut push = |what: &str, unit: &str, value: f64, name: &str, peer: Option<f64>| {
            report.figures.push(Figure::new(format!("{what}, {of}"), unit, value, name, peer));
        };
        let (peak, unloaded) = (median(self.peak), median(self.unloaded_p99));
        push("peak goodput of one class", "1/s", peak, "clones can do", Some(CAPACITY));
        push("upper class served in time", "of offered", median(self.upper_success), "all", Some(1.0));
        push("upper class not served in time", "requests", median(self.upper_failed), "", None);
        push("upper class p99", "us", median(self.upper_p99), "itself at half load", Some(unloaded));
        push("goodput of both", "of peak", median(self.goodput), "peak", Some(1.0));
        push("refusal p50", "us", median(self.refused_p50), "", None);
        push("refusal p99", "us", median(self.refused_p99), "", None);
        push("back to normal after", "s", median(self.normal_after), "goal", Some(30.0));
    }
}

fn sum(bins: &[[Seen; 2]], class: usize) -> Seen {
    let mut all = Seen::default();
    bins.iter().for_each(|both| all.add(&both[class]));
    all
}

/// Rates of both classes, one pair for each bin.
fn load(door: SocketAddr, rates: &[[f64; 2]]) -> Result<Bins, String> {
    let of_bin = |rates: &[f64; 2]| vec![rates.to_vec(); (BIN.as_secs_f64() / STEP.as_secs_f64()) as usize];
    let steps = rates.iter().flat_map(of_bin).collect();
    let load = Load { doors: vec![door], kinds: vec!["/upper", "/lower"], rates: steps, apart: false };
    let mut bins = vec![<[Seen; 2]>::default(); rates.len()];
    for answer in load.start().wait()?.answers {
        let at = ((answer.at / BIN.as_secs_f64()) as usize).min(rates.len() - 1);
        bins[at][answer.kind].note(&answer);
    }
    Ok(bins)
}
