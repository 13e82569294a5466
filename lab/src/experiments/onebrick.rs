//! One brick of five has a fault, and users at the other four nodes go on (SSM 5.5 to 5.8): what is common to figures 10 to
//! 13. Beside the users somebody looks all the time at what a healthy node and the ill one say of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::figure4::{failures, plot, users_beside};
use crate::Plan;
use crate::cluster::Cluster;
use crate::load::http_get;
use crate::report::{Figure, Report};
use crate::users::{Running, Seen};

/// Five, so that four compare the fifth with each other and three of them are the bricks of a key.
pub const NODES: u8 = 5;
/// The ill one, counted from 0.
pub const VICTIM: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen of the ill brick at one moment, seconds since the users began.
#[derive(Clone, Debug)]
pub struct Sight {
    pub at: f64,
    /// What the first node says of it.
    pub is_live: bool,
    pub is_settled: bool,
    pub pid: i64,
    /// What its own node counts; of a node that does not answer, what it counted before.
    pub anew: f64,
    pub damaged: f64,
}

pub struct Trial {
    pub cluster: Cluster,
    pub running: Running,
    sights: Arc<Mutex<Vec<Sight>>>,
    stop: Arc<AtomicBool>,
    looker: Option<std::thread::JoinHandle<()>>,
}

impl Trial {
    pub fn start() -> Result<Trial, String> {
        let (cluster, running) = users_beside(NODES, VICTIM)?;
        let apis = cluster.doors("api");
        let (sights, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, until, begun) = (Arc::clone(&sights), Arc::clone(&stop), running.begun);
        let looker = std::thread::spawn(move || {
            let (mut anew, mut damaged) = (0.0, 0.0);
            while !until.load(Ordering::SeqCst) {
                if let Some(sight) = look(&apis, begun, &mut anew, &mut damaged) {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(sight);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Ok(Trial { cluster, running, sights, stop, looker: Some(looker) })
    }

    pub fn pid(&self) -> Result<i32, String> {
        self.cluster.pid(VICTIM).ok_or_else(|| "no pid".into())
    }

    pub fn seconds(&self) -> f64 {
        self.running.seconds()
    }

    /// When this was so for the first time since then, as far as it has been seen.
    pub fn when(&self, since: f64, is_so: impl Fn(&Sight) -> bool) -> Option<f64> {
        let sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        sights.iter().find(|sight| sight.at >= since && is_so(sight)).map(|sight| sight.at)
    }

    /// Waits for it. None if it does not come.
    pub fn wait(&self, within: f64, is_so: impl Fn(&Sight) -> bool) -> Option<f64> {
        let since = self.seconds();
        while self.seconds() < since + within {
            if let Some(at) = self.when(since, &is_so) {
                return Some(at);
            }
            std::thread::sleep(LOOK_EVERY / 2);
        }
        None
    }

    pub fn last(&self) -> Option<Sight> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner).last().cloned()
    }

    /// The users stop; what they saw, and until when. The cluster ends.
    pub fn end(mut self) -> Result<(Seen, f64), String> {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(looker) = self.looker.take() {
            looker.join().map_err(|_| "who looks at the brick panicked")?;
        }
        let until = self.running.seconds();
        Ok((self.running.end()?, until))
    }
}

fn look(apis: &[SocketAddr], begun: Instant, anew: &mut f64, damaged: &mut f64) -> Option<Sight> {
    let status = Cluster::look(apis[0]).ok()?;
    let name = format!("n{}", VICTIM + 1);
    let node = status["nodes"].as_array()?.iter().find(|node| node["name"] == name.as_str())?;
    if let Ok(text) = http_get(apis[VICTIM], "/metrics", None) {
        *anew = metric(&text, "coppice_session_starts_anew").unwrap_or(*anew);
        *damaged = metric(&text, "coppice_session_damaged").unwrap_or(*damaged);
    }
    Some(Sight {
        at: begun.elapsed().as_secs_f64(),
        is_live: node["state"] == "live",
        is_settled: node["brick"]["settled"] == true,
        pid: node["pid"].as_i64()?,
        anew: *anew,
        damaged: *damaged,
    })
}

/// The value of a figure, with or without `_total`, whatever its labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix("_total").unwrap_or(rest);
        (rest.starts_with([' ', '{'])).then(|| rest.rsplit(' ').next()?.parse().ok())?
    };
    text.lines().find_map(of)
}

/// Rows that all of these figures have, then CSV and plot.
pub fn report(
    plan: &Plan,
    report: &mut Report,
    (seen, until): (&Seen, f64),
    (fault, over): (f64, f64),
    marks: &[f64],
    title: &str,
) -> Result<(), String> {
    let before = seen.rate(1.0, fault);
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "itself before", peer));
    };
    push("operations before", "1/s", before, None);
    push("operations from the fault until it is over", "1/s", seen.rate(fault, over), Some(before));
    push("operations after", "1/s", seen.rate(over, until - 0.5), Some(before));
    let p99 = seen.quantile(0.99, 1.0, fault);
    push("p99 from the fault until it is over", "ms", seen.quantile(0.99, fault, over), Some(p99));
    push("slowest", "ms", seen.slowest(), None);
    failures(report, seen);
    plot(plan, report, seen, until, marks, title)
}

#[cfg(test)]
mod tests {
    use super::metric;

    #[test]
    fn a_figure_is_found_by_its_whole_name() {
        let text = "# HELP a_b c\na_b_more 7\na_b_total{node=\"n1\"} 3\nc 4.5\n";
        assert_eq!((metric(text, "a_b"), metric(text, "c"), metric(text, "a")), (Some(3.0), Some(4.5), None));
    }
}
