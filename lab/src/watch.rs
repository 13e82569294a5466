//! Looks at a service's clones four times a second while an experiment runs: how many there are and where, what waits
//! before them, and what the manager decided. As `coppice status` shows it, so up to a moment old.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::cluster::Cluster;

const EVERY: Duration = Duration::from_millis(250);

/// One look.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Seconds since the beginning.
    pub at: f64,
    pub wanted: u64,
    pub serving: Vec<CloneSeen>,
    /// Requests that wait in the stages of all edges.
    pub at_edges: u64,
    /// Nodes for overflow that run clones.
    pub overflow: usize,
}

#[derive(Clone, Debug)]
pub struct CloneSeen {
    pub name: String,
    pub node: String,
    pub pid: i32,
}

/// An entry of the event log.
#[derive(Clone, Debug)]
pub struct Happened {
    pub at: f64,
    pub kind: String,
    pub who: String,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Watched {
    pub looks: Vec<Look>,
    pub events: Vec<Happened>,
}

pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Look>>,
    apis: Vec<SocketAddr>,
    begun: Instant,
    begun_ms: f64,
}

impl Watch {
    /// `begun` is the zero of all times.
    pub fn start(apis: Vec<SocketAddr>, service: &'static str, begun: Instant) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begun_ms = (since.as_secs_f64() - begun.elapsed().as_secs_f64()) * 1e3;
        let (until, first) = (Arc::clone(&stop), apis[0]);
        let thread = std::thread::spawn(move || {
            let mut looks = Vec::new();
            while !until.load(Ordering::SeqCst) {
                if let Ok(status) = Cluster::look(first) {
                    looks.push(look(&status, service, begun.elapsed().as_secs_f64()));
                }
                std::thread::sleep(EVERY);
            }
            looks
        });
        Watch { stop, thread, apis, begun, begun_ms }
    }

    /// All that was seen, with the events of all nodes: each tells what it knows, the leader what it decided.
    pub fn end(self) -> Result<Watched, String> {
        self.stop.store(true, Ordering::SeqCst);
        let looks = self.thread.join().map_err(|_| "the watch panicked")?;
        let until = self.begun.elapsed().as_secs_f64();
        let mut events: Vec<Happened> = Vec::new();
        for status in self.apis.iter().filter_map(|api| Cluster::look(*api).ok()) {
            for event in status["events"].as_array().into_iter().flatten() {
                let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
                let at = (event["at_ms"].as_f64().unwrap_or(0.0) - self.begun_ms) / 1e3;
                let (kind, who, text) = (text("kind"), text("who"), text("text"));
                let is_known = events.iter().any(|e| e.kind == kind && e.text == text && (e.at - at).abs() < 1.0);
                if (0.0..=until).contains(&at) && !is_known {
                    events.push(Happened { at, kind, who, text });
                }
            }
        }
        events.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(Watched { looks, events })
    }
}

impl Watched {
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Happened> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    /// How many serve, over time.
    pub fn serving(&self) -> Vec<(f64, f64)> {
        self.looks.iter().map(|look| (look.at, look.serving.len() as f64)).collect()
    }
}

/// The clones of a service that serve.
pub fn look(status: &Value, service: &str, at: f64) -> Look {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let services = list(&status["services"]);
    let Some(service) = services.iter().find(|s| s["name"] == service) else { return Look { at, ..Look::default() } };
    let seen = |clone: &Value| CloneSeen {
        name: text(&clone["name"]),
        node: text(&clone["node"]),
        pid: clone["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0),
    };
    let serving: Vec<CloneSeen> =
        list(&service["clones"]).iter().filter(|clone| clone["state"] == "serving").map(seen).collect();
    let nodes = list(&status["nodes"]);
    let is_recruited = |node: &&Value| {
        node["overflow"].as_bool().unwrap_or(false) && serving.iter().any(|clone| node["name"] == clone.node.as_str())
    };
    let overflow = nodes.iter().filter(is_recruited).count();
    let waiting = |node: &Value| -> u64 {
        let gauges = node["gauges"].as_object().into_iter().flatten();
        gauges.filter(|(name, _)| is_waiting(name)).filter_map(|(_, value)| value.as_u64()).sum()
    };
    let at_edges = nodes.iter().map(waiting).sum();
    Look { at, wanted: service["wanted"].as_u64().unwrap_or(0), serving, at_edges, overflow }
}

/// `stage.http-work.waiting`: what waits in an edge's stage of a service.
fn is_waiting(gauge: &str) -> bool {
    gauge.contains("http-") && gauge.ends_with(".waiting")
}
