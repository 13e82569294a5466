//! Tempest's pet store on clones of known times (`worker.rs`): how long a service takes by its number of clones (figure 6), how
//! long a page of all seven takes with one clone each and with eight (7), and a page of one to seven services when k clones are
//! asked for each part, beside the paper's baseline: who answered first once is asked from then on (8). A clone's time is slept,
//! not worked: what is seen is the edge, and the luck of those who are asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Plan;
use crate::closed::runtime;
use crate::cluster::Cluster;
use crate::load::http_get;
use crate::peers::wait_until;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};
use crate::web::{Door, ask};
use crate::worker;

/// A service, what it takes at least, and what now and then comes to that, milliseconds: one that does nothing, and those that the paper
/// calls bound by disk, by processor and by both, each with small and with large variance.
const KINDS: [(&str, u64, u64); 7] = [
    ("null", 0, 0),
    ("io", 10, 4),
    ("iolarge", 10, 60),
    ("cpu", 5, 2),
    ("cpularge", 5, 30),
    ("both", 15, 6),
    ("bothlarge", 15, 90),
];
const NODES: u8 = 3;
const ALONE: [usize; 3] = [1, 3, 5];
const PAGES: [usize; 2] = [1, 8];
/// Clones of each service in figure 8.
const CLONES: usize = 5;
const ASKED: [usize; 4] = [1, 2, 3, 5];
const BASELINE: &str = "the first that answered";
/// Clients of one service, and of pages; a request of each begins no sooner than this after the one before.
const FRONTS: usize = 2;
const FRONT_EVERY: Duration = Duration::from_millis(40);
const PAGE_CLIENTS: usize = 4;
const PAGE_EVERY: Duration = Duration::from_millis(50);
/// One point takes no longer, seconds.
const POINT_MAX: u64 = 2;
const HISTOGRAM_MAX: u64 = 10;
const BIN_MS: f64 = 10.0;

/// Where each service is asked.
#[derive(Clone)]
enum Where {
    Doors(Arc<Vec<Door>>),
    /// One clone of each.
    Clones(Arc<Vec<Door>>),
}

/// Times of pages, milliseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        let (mean, count) = (self.mean(), self.0.len().max(2) as f64);
        (self.0.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / (count - 1.0) / count).sqrt()
    }
}

fn serve(cluster: &Cluster, clones: usize, asked: usize) -> Result<(), String> {
    let mut text = String::new();
    for (name, takes, varies) in KINDS {
        let program = worker::run_line_of(1, Duration::from_millis(takes), Duration::from_millis(varies))?;
        text += &format!(
            "[service.{name}]\n{program}clones = {clones}\nhealth = \"/health\"\nhttp = {{ path = \"/{name}\" }}\nask = {asked}\n\n"
        );
    }
    cluster.apply(&text)?;
    // The services have paths of their own: nothing is at `/health` of a door.
    let doors = cluster.doors("http");
    let serves = |name: &str| doors.iter().all(|door| http_get(*door, &format!("/{name}"), None).is_ok());
    let has_all = |name: &str| cluster.clone_addrs(name).is_ok_and(|all| all.len() == clones) && serves(name);
    wait_until("each service serves at every node", || KINDS.iter().all(|(name, ..)| has_all(name)))
}

fn doors(addrs: Vec<SocketAddr>) -> Arc<Vec<Door>> {
    Arc::new(addrs.into_iter().map(Door::of).collect())
}

/// Figure 6.
pub fn services(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let length = Duration::from_secs(plan.seconds.min(POINT_MAX));
    let mut csv = "service,clones,mean_ms,error_ms\n".to_owned();
    let mut curves: Vec<Line> =
        KINDS.iter().map(|(name, ..)| Line { name: (*name).into(), points: Vec::new() }).collect();
    for clones in ALONE {
        eprintln!("tempest: seven services of {clones} clones each");
        let cluster = Cluster::start(NODES, false)?;
        serve(&cluster, clones, 1)?;
        let at = Where::Doors(doors(cluster.doors("http")));
        for (nth, (name, ..)) in KINDS.iter().enumerate() {
            let times = pages(&at, &[nth], 1, (FRONTS, FRONT_EVERY), length)?;
            csv += &format!("{name},{clones},{:.2},{:.2}\n", times.mean(), times.error());
            curves[nth].points.push((clones as f64, times.mean()));
            report.figures.push(Figure::new(format!("{name}, {clones} clones, mean"), "ms", times.mean(), "", None));
        }
    }
    report.write(&plan.out, "tempest6.csv", &csv)?;
    report.write(&plan.out, "tempest6.svg", &lines("One service alone", "clones", "ms", &curves, &[]))
}

/// Figure 7.
pub fn histogram(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let length = Duration::from_secs(plan.seconds.min(HISTOGRAM_MAX));
    let all: Vec<usize> = (0..KINDS.len()).collect();
    let (mut csv, mut means) = ("clones,from_ms,pages\n".to_owned(), Vec::new());
    for clones in PAGES {
        eprintln!("tempest: pages of seven services, {clones} clones each");
        let cluster = Cluster::start(NODES, false)?;
        serve(&cluster, clones, 2)?;
        let at = Where::Doors(doors(cluster.doors("http")));
        let times = pages(&at, &all, all.len(), (PAGE_CLIENTS, PAGE_EVERY), length)?;
        let bins = (times.0.iter().fold(0.0, |most: f64, ms| most.max(*ms)) / BIN_MS) as usize + 1;
        for bin in 0..bins {
            let count = times.0.iter().filter(|ms| (**ms / BIN_MS) as usize == bin).count();
            csv += &format!("{clones},{},{count}\n", bin as f64 * BIN_MS);
        }
        means.push(times.mean());
    }
    let name = format!("pages of seven services, k = 2, {} clones each, mean", PAGES[1]);
    report.figures.push(Figure::new(name, "ms", means[1], "one clone each", Some(means[0])));
    report.write(&plan.out, "tempest7.csv", &csv)
}

/// Figure 8.
pub fn redundant(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let length = Duration::from_secs(plan.seconds.min(POINT_MAX));
    let all: Vec<usize> = (0..KINDS.len()).collect();
    let cluster = Cluster::start(NODES, false)?;
    let (mut csv, mut curves) = ("asked,services,mean_ms,error_ms\n".to_owned(), Vec::new());
    let mut measure = |name: String, at: &Where| {
        eprintln!("tempest: pages of one to seven services of {CLONES} clones, {name}");
        let mut points = Vec::new();
        for count in 1..=KINDS.len() {
            let times = pages(at, &all, count, (PAGE_CLIENTS, PAGE_EVERY), length)?;
            csv += &format!("{name},{count},{:.2},{:.2}\n", times.mean(), times.error());
            points.push((count as f64, times.mean()));
        }
        curves.push(Line { name, points });
        Ok::<(), String>(())
    };
    for asked in ASKED {
        serve(&cluster, CLONES, asked)?;
        measure(format!("k = {asked}"), &Where::Doors(doors(cluster.doors("http"))))?;
    }
    measure(BASELINE.into(), &Where::Clones(doors(first(&cluster)?)))?;
    let baseline = curves.last().map(|line| line.points.clone()).unwrap_or_default();
    for line in curves.iter().filter(|line| line.name != BASELINE) {
        for ((count, mean), (_, theirs)) in line.points.iter().zip(&baseline) {
            let name = format!("{count} services, {}, mean", line.name);
            report.figures.push(Figure::new(name, "ms", *mean, BASELINE, Some(*theirs)));
        }
    }
    report.write(&plan.out, "tempest8.csv", &csv)?;
    report.write(&plan.out, "tempest8.svg", &lines("Pages of several services", "services", "ms", &curves, &[]))
}

/// Finds of each service the clone that answers first when all are asked.
fn first(cluster: &Cluster) -> Result<Vec<SocketAddr>, String> {
    runtime()?.block_on(async {
        let mut found = Vec::new();
        for (name, ..) in KINDS {
            let mut all = JoinSet::new();
            for addr in cluster.clone_addrs(name)? {
                all.spawn(async move { ask(&Door::of(addr), "GET", "/").await.map(|_| addr) });
            }
            let one = all.join_next().await.ok_or_else(|| format!("{name} has no clone"))?;
            found.push(one.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?);
        }
        Ok(found)
    })
}

/// Clients in closed loops: each asks so many of these services at once, every other time to change something, and goes on when all have
/// answered.
fn pages(
    at: &Where,
    of: &[usize],
    count: usize,
    (clients, every): (usize, Duration),
    length: Duration,
) -> Result<Times, String> {
    runtime()?.block_on(async {
        let mut all = JoinSet::new();
        for client in 0..clients {
            let (at, of, until) = (at.clone(), of.to_vec(), Instant::now() + length);
            all.spawn(async move {
                let (mut rng, mut times) = (base::Rng::new(client as u64 + 1), Vec::new());
                while Instant::now() < until {
                    let mut chosen = of.clone();
                    rng.shuffle(&mut chosen);
                    let (begun, mut parts) = (Instant::now(), JoinSet::new());
                    for nth in chosen.into_iter().take(count) {
                        let at = at.clone();
                        let (door, method) =
                            (rng.below(NODES.into()) as usize, if rng.below(2) == 0 { "GET" } else { "POST" });
                        parts.spawn(async move { part(&at, nth, door, method).await });
                    }
                    while let Some(done) = parts.join_next().await {
                        done.map_err(|e| e.to_string())??;
                    }
                    times.push(begun.elapsed().as_secs_f64() * 1e3);
                    tokio::time::sleep(every.saturating_sub(begun.elapsed())).await;
                }
                Ok::<Vec<f64>, String>(times)
            });
        }
        let mut times = Times::default();
        while let Some(done) = all.join_next().await {
            times.0.extend(done.map_err(|e| e.to_string())??);
        }
        Ok(times)
    })
}

async fn part(at: &Where, nth: usize, door: usize, method: &str) -> Result<(), String> {
    let door = match at {
        Where::Doors(doors) => &doors[door % doors.len()],
        Where::Clones(clones) => &clones[nth],
    };
    let path = format!("/{}", KINDS[nth].0);
    let reply = ask(door, method, &path).await.map_err(|e| e.to_string())?;
    if reply.status == 200 { Ok(()) } else { Err(format!("{method} {path}: HTTP {}: {}", reply.status, reply.body)) }
}
