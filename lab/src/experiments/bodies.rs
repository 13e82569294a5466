//! Large bodies through the edge: one of 1 GiB down and up, with a clone on the node that is asked and on another one,
//! against nginx and HAProxy before the same clone. Counted are bytes for each second of the proxies' processor time:
//! on a machine with clients, proxies and clones together the rate alone tells little.

use std::net::SocketAddr;

use crate::Plan;
use crate::bulk;
use crate::cluster::Cluster;
use crate::peers::{Program, wait_until};
use crate::procs::used_us;
use crate::proxies::{self, Size};
use crate::report::{Figure, Report, median};

const BYTES: u64 = 1 << 30;
const MIB: f64 = (1 << 20) as f64;
/// Passes so many bytes through a door, and gives seconds.
type Go = fn(SocketAddr, u64) -> Result<f64, String>;
const WAYS: [(&str, Go); 2] = [("down", bulk::down), ("up", bulk::up)];

/// One that passes bodies on.
struct Side {
    name: String,
    door: SocketAddr,
    /// Its processes.
    pids: Vec<i32>,
    /// Those among what they started that are not measured.
    without: Vec<i32>,
    /// MiB for a second of processor time, MiB a second, by way.
    seen: [(Vec<f64>, Vec<f64>); 2],
    _program: Option<Program>,
}

impl Side {
    fn used_s(&self) -> f64 {
        (used_us(&self.pids) - used_us(&self.without)) / 1e6
    }
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("bodies");
    let cluster = Cluster::with_options(2, &[])?;
    let line = bulk::run_line()?;
    cluster
        .serve(&format!("[service.bulk]\n{line}clones = 1\nhealth = \"/health\"\nhttp = {{}}\nsandbox = \"none\"\n"))?;
    let clone = cluster.first_clone("bulk")?;
    let (home, pid) = (clone.node, clone.pid);
    let nodes = [cluster.pid(0).ok_or("no pid")?, cluster.pid(1).ok_or("no pid")?];
    let doors = cluster.doors("http");
    let of = |name: &str, door, pids: &[i32], without: &[i32], program| Side {
        name: name.into(),
        door,
        pids: pids.to_vec(),
        without: without.to_vec(),
        seen: Default::default(),
        _program: program,
    };
    let mut sides = vec![
        of("coppice", doors[home], &[nodes[home]], &[pid], None),
        of("coppice, by another node", doors[1 - home], &nodes, &[pid], None),
    ];
    for (name, start) in proxies::BULK {
        if !proxies::is_installed(name) {
            report.notes.push(format!("{name} is not installed (package {name}), so it was not run"));
            continue;
        }
        let (program, door) = start(clone.addr, Size { workers: 2, connections: 64 })?;
        sides.push(of(name, door, &[program.pid()], &[], Some(program)));
    }
    wait_until("all pass bodies on", || sides.iter().all(|side| bulk::down(side.door, 1 << 16).is_ok()))?;
    let mut csv = "way,side,round,seconds,processor_seconds\n".to_owned();
    for round in 0..plan.rounds {
        for (way, (what, go)) in WAYS.iter().enumerate() {
            for side in &mut sides {
                let before = side.used_s();
                let seconds = go(side.door, BYTES)?;
                let used = (side.used_s() - before).max(0.01);
                csv += &format!("{what},{},{round},{seconds:.3},{used:.2}\n", side.name);
                side.seen[way].0.push(BYTES as f64 / MIB / used);
                side.seen[way].1.push(BYTES as f64 / MIB / seconds);
            }
        }
    }
    figures(&mut report, &sides);
    report.notes.push(
        "one body of 1 GiB at a time, each side in turn; every byte is compared; processor time of the proxies alone, \
         by another node of both nodes"
            .into(),
    );
    report.write(&plan.out, "bodies.csv", &csv)?;
    Ok(report)
}

fn figures(report: &mut Report, sides: &[Side]) {
    let (ours, theirs): (Vec<_>, Vec<_>) = sides.iter().partition(|side| side.name.starts_with("coppice"));
    for (way, (what, _)) in WAYS.iter().enumerate() {
        for our in &ours {
            for (measure, unit, pick) in [
                ("a second of processor", "MiB", (|seen: &(Vec<f64>, Vec<f64>)| seen.0.clone()) as fn(&_) -> Vec<f64>),
                ("a second", "MiB", |seen| seen.1.clone()),
            ] {
                let name = format!("1 GiB {what}, {measure}{}", our.name.trim_start_matches("coppice"));
                let mine = median(pick(&our.seen[way]));
                if theirs.is_empty() {
                    report.figures.push(Figure::new(name.clone(), unit, mine, "", None));
                }
                for their in &theirs {
                    let peer = Some(median(pick(&their.seen[way])));
                    report.figures.push(Figure::new(name.clone(), unit, mine, &their.name, peer));
                }
            }
        }
    }
}
