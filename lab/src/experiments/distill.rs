//! Pictures made small on one core: a JPEG of 320x240 to half of it at quality 25, through the edge and the service, where
//! nothing is kept as each picture is another one; beside the bare function, in turn.

use std::process::Command;
use std::time::Duration;

use crate::Plan;
use crate::closed::{Caller, Ran, Shape, run as run_closed, runtime};
use crate::cluster::Cluster;
use crate::keep::Kept;
use crate::load::Outcome;
use crate::peers::{scratch, wait_until};
use crate::pictures::{Pictures, commented, size_of};
use crate::report::{Figure, Report};
use crate::sides::{OURS, Sides};

/// Clients: more than one, so that the core has always something to do; `--connections` says another number. More than can
/// be made within 100 ms get originals, which count as failed here.
const CLIENTS: usize = 2;
const WHAT: &str = "pictures of 320x240 to half, quality 25, one core";
const SIDE: &str = "the bare function";
/// The example that has nothing but the function.
const BARE: &str = "shrink";
const BUILD: &str = "cargo build --release -p distill --example shrink";

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("distill");
    let mut sides = Sides::default();
    for round in 0..plan.rounds {
        let scene = Scene::start()?;
        sides.add(WHAT, OURS, round, service(plan, &scene)?);
        match bare(plan, &scene) {
            Ok(ran) => sides.add(WHAT, SIDE, round, ran),
            Err(why) if round == 0 => report.notes.push(why),
            Err(_) => (),
        }
    }
    sides.tell(&mut report, &plan.out)?;
    if let Some(rate) = sides.median(WHAT, SIDE, |ran| ran.out.per_second) {
        // Of other runs on this machine; the programs are not started here.
        for (name, theirs) in [("libvips, earlier", 1474.0), ("libjpeg-turbo, earlier", 4424.0)] {
            report.figures.push(Figure::new("the bare function", "a second", rate, name, Some(theirs)));
        }
    }
    report
        .notes
        .push("node and clone on one core, load generator and origin on the other; the clone is in its sandbox".into());
    Ok(report)
}

/// One node on one core with the service, and an origin whose pictures nobody has seen before.
struct Scene {
    cluster: Cluster,
    picture: Vec<u8>,
    pictures: Pictures,
}

impl Scene {
    fn start() -> Result<Scene, String> {
        let picture = photograph()?;
        let cluster = Cluster::start(1, false)?;
        cluster.set_apart()?;
        let pictures = {
            let picture = picture.clone();
            Pictures::serve("image/jpeg", move |path| commented(&picture, path))?
        };
        cluster.apply(&declared(&format!("lab=http://{}", pictures.addr), ""))?;
        let scene = Scene { cluster, picture, pictures };
        let door = scene.cluster.doors("http").first().copied().ok_or("no edge")?;
        let runtime = runtime()?;
        let serves = || runtime.block_on(async { Asks::open(door, 0).await?.call(0).await }).is_ok();
        wait_until("the service gives pictures", serves)?;
        Ok(scene)
    }
}

pub fn declared(origins: &str, more: &str) -> String {
    format!(
        "[service.distill]\nbuiltin = \"distill\"\nclones = 1\nhealth = \"/health\"\nhttp = {{ host = \"*\", path = \"/\" }}\n\
         env = {{ ORIGINS = \"{origins}\" }}\nnamespaces = [\"preferences\"]\n[namespace.preferences]\nclass = \"linear\"\n{more}"
    )
}

/// A photograph of 320x240, made by the service itself of one of its demo's.
fn photograph() -> Result<Vec<u8>, String> {
    let cluster = Cluster::start(1, false)?;
    let photos = "[service.photos]\nbuiltin = \"distill\"\nclones = 1\nhealth = \"/health\"\n\
                  http = { host = \"photos.test\", path = \"/\" }\nenv = { SERVE = \"site\" }\n";
    cluster.apply(photos)?;
    let at = || cluster.clone_addr("photos");
    wait_until("the demo's photographs are there", || {
        at().is_ok_and(|at| crate::load::http_get(at, "/health", None).is_ok())
    })?;
    cluster.apply(&declared(&format!("photos=http://{}", at()?), photos))?;
    let door = cluster.doors("http").first().copied().ok_or("no edge")?;
    let path = "/insecure/rs:fill:320:240/q:85/f:jpg/plain/origin://photos/photo/1.jpg";
    let mut last = String::new();
    let mut found = None;
    let runtime = runtime()?;
    wait_until("a photograph is made", || {
        let answer = runtime.block_on(async { Kept::open(door).await?.ask(&request(path)).await });
        match answer {
            Ok(answer) if answer.status == 200 && size_of(&answer.body) == Some((320, 240)) => {
                found = Some(answer.body)
            }
            Ok(answer) => last = format!("HTTP {} with {:?}", answer.status, size_of(&answer.body)),
            Err(why) => last = why,
        }
        found.is_some()
    })
    .map_err(|why| format!("{why}: {last}"))?;
    found.ok_or(last)
}

pub fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: lab\r\nAccept: image/jpeg\r\n\r\n").into_bytes()
}

struct Asks {
    conn: Kept,
    index: usize,
}

impl Asks {
    async fn open(addr: std::net::SocketAddr, index: usize) -> Result<Asks, String> {
        Ok(Asks { conn: Kept::open(addr).await?, index })
    }
}

impl Caller for Asks {
    /// It must be made, and be half as wide and high.
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        let path = format!("/insecure/rs:fit:160:120/q:25/f:jpg/plain/origin://lab/{}-{turn}.jpg", self.index);
        let answer = self.conn.ask(&request(&path)).await?;
        if answer.status != 200 {
            return Err(format!("HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body)));
        }
        let (is_exact, size) = (answer.head.contains("coppice-answer: exact"), size_of(&answer.body));
        match size {
            Some((160, 120)) if is_exact => Ok(true),
            _ => Err(format!("not made: {size:?} with {}", answer.head.lines().skip(1).collect::<Vec<_>>().join("; "))),
        }
    }
}

fn service(plan: &Plan, scene: &Scene) -> Result<Ran, String> {
    let door = scene.cluster.doors("http").first().copied().ok_or("no edge")?;
    let clients = plan.connections.first().copied().unwrap_or(CLIENTS);
    let shape = Shape { clients, length: Duration::from_secs(plan.seconds), each: 1 };
    // What it asked before has other names.
    run_closed(&shape, &scene.cluster.pids(), move |index| Asks::open(door, index + 1))
}

/// The same work in one thread of a program that does nothing else.
fn bare(plan: &Plan, scene: &Scene) -> Result<Ran, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let program = me.with_file_name("examples").join(BARE);
    let file = scratch(&format!("picture-{}", scene.pictures.addr.port()));
    std::fs::write(&file, &scene.picture).map_err(|e| e.to_string())?;
    let output =
        Command::new("taskset").args(["-c", "0"]).arg(&program).arg(&file).arg(plan.seconds.to_string()).output();
    let _ = std::fs::remove_file(&file);
    let missing = || format!("{SIDE} was not run, as {} is not there: {BUILD}", program.display());
    let output = output.ok().filter(|output| output.status.success()).ok_or_else(missing)?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let rate = said["per_second"].as_f64().ok_or_else(|| format!("no rate in {said}"))?;
    let out = Outcome { per_second: rate, p99_us: said["p99_us"].as_f64().unwrap_or(0.0), ..Outcome::default() };
    Ok(Ran { out, cpu_us: 1e6 / rate.max(1.0) })
}
