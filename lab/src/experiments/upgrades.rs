//! Twenty versions of a service follow each other under load, and then Coppice itself is upgraded twenty times, node by node:
//! what do clients notice? Some keep their connections, some make one for each request, some have WebSockets open, some speak HTTP/2.

use std::net::SocketAddr;
use std::time::Instant;

use crate::Plan;
use crate::cluster::{Cluster, free_port};
use crate::h2;
use crate::report::{Figure, Report};
use crate::sockets::{Fates, Sockets};
use crate::web::{CSV, Load, ONCE, STEP, Seen, rows};
use crate::worker;

const CLONES: usize = 3;
const AT_ONCE: usize = 5;
const TAKES: std::time::Duration = std::time::Duration::from_millis(25);
const KINDS: [&str; 3] = ["/page", ONCE, "/long"];
/// Requests a second of each kind. Two clones must be able to do it, as while a node of one changes: of their ten places these take
/// seven, and the clients of HTTP/2 some one and a half.
const RATES: [f64; 3] = [120.0, 40.0, 3.0];
const SOCKETS: usize = 60;
const SLOT: f64 = 1.0;
/// More than both take; then something is wrong.
const LENGTH_MAX: f64 = 2400.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let tls = std::env::temp_dir().join(format!("coppice-lab-tls-{}", std::process::id()));
    std::fs::create_dir_all(&tls).map_err(|e| format!("cannot make {}: {e}", tls.display()))?;
    let certificate = h2::certificate(&tls)?;
    let https = free_port(3)?;
    let cluster =
        Cluster::with_options(3, &["--tls-dir", &tls.display().to_string(), "--https-port", &https.to_string()])?;
    let secure: Vec<_> = cluster.doors("http").into_iter().map(|at| SocketAddr::new(at.ip(), https)).collect();
    let program = worker::run_line(AT_ONCE, TAKES)?;
    let folder = cluster.folder("work")?;
    let put = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).map_err(|e| format!("cannot write {name}: {e}"))
    };
    put(
        "coppice.toml",
        &format!(
            "[service.work]\n{program}clones = {CLONES}\nhealth = \"/health\"\nhttp = {{}}\nstop = {{ drain = \"3s\" }}\n"
        ),
    )?;
    put("page", "0\n")?;
    cluster.deploy(&folder)?;
    cluster.wait_served()?;

    let mut report = Report::new("upgrades");
    let mut csv = format!("part,{CSV}");
    let mut part = |name: &str, upgrade: &mut dyn FnMut(usize) -> Result<(), String>| -> Result<(), String> {
        let steps = (LENGTH_MAX / STEP.as_secs_f64()) as usize;
        let load = Load {
            doors: cluster.doors("http"),
            kinds: KINDS.to_vec(),
            rates: vec![RATES.to_vec(); steps],
            apart: false,
        };
        let (running, sockets) = (load.start(), Sockets::start(cluster.doors("http"), SOCKETS));
        let clients = h2::Clients::start(secure.clone(), &certificate)?;
        let calm = plan.seconds as f64;
        running.wait_until(calm);
        let mut took: Vec<f64> = Vec::new();
        let mut broken = None;
        for nth in 1..=plan.upgrades {
            let begun = Instant::now();
            if let Err(why) = upgrade(nth) {
                broken = Some(format!("upgrade {nth} of {name}: {why}"));
                break;
            }
            took.push(begun.elapsed().as_secs_f64());
        }
        let ended = running.seconds();
        running.wait_until(ended + 2.0);
        let until = running.seconds();
        let (seen, fates, of_h2) = (running.end()?, sockets.end()?, clients.end()?);
        tell(&mut report, name, &seen, &fates, &of_h2, calm, ended, &took);
        report.notes.extend(broken);
        csv.extend(rows(&seen, &KINDS, SLOT, until).lines().map(|row| format!("{name},{row}\n")));
        Ok(())
    };
    part("the service", &mut |nth| {
        put("page", &format!("{nth}\n"))?;
        cluster.deploy(&folder).map(|_| ())
    })?;
    part("Coppice", &mut |_| cluster.restart_rolling())?;
    let _ = std::fs::remove_dir_all(&tls);
    report.write(&plan.out, "upgrades.csv", &csv)?;
    Ok(report)
}

#[expect(clippy::too_many_arguments, reason = "all that one part of the run gave")]
fn tell(
    report: &mut Report,
    name: &str,
    seen: &Seen,
    fates: &Fates,
    of_h2: &h2::Fates,
    calm: f64,
    ended: f64,
    took: &[f64],
) {
    let mut push = |measure: &str, unit: &str, value: f64, peer: &str, other: Option<f64>| {
        report.figures.push(Figure::new(format!("{name}: {measure}"), unit, value, peer, other));
    };
    push("upgrades", "upgrades", took.len() as f64, "", None);
    push("an upgrade takes", "s", took.iter().sum::<f64>() / took.len().max(1) as f64, "", None);
    for (kind, what) in ["keep-alive", "connection per request", "a second long"].iter().enumerate() {
        let all = seen.of_kind(kind, 0.0, f64::INFINITY);
        push(&format!("{what}, requests"), "requests", all.offered as f64, "", None);
        push(&format!("{what}, failed or reset"), "requests", all.failed as f64, "the goal", Some(0.0));
        push(&format!("{what}, refused"), "requests", all.refused as f64, "the goal", Some(0.0));
        if kind < 2 {
            let (before, during) = (seen.of_kind(kind, 0.5, calm), seen.of_kind(kind, calm, ended));
            push(&format!("{what}, p99"), "ms", during.ms(0.99), "before", Some(before.ms(0.99)));
        }
    }
    push("WebSockets opened", "sockets", fates.opened as f64, "", None);
    push("WebSockets, frames there and back", "frames", fates.frames as f64, "", None);
    push("WebSockets told to connect anew", "sockets", fates.told_to_go as f64, "", None);
    push("WebSockets reset", "sockets", fates.reset as f64, "the goal", Some(0.0));
    push("WebSockets not opened", "tries", fates.not_opened as f64, "the goal", Some(0.0));
    push("HTTP/2, requests", "requests", of_h2.requests as f64, "", None);
    push("HTTP/2, failed or reset", "requests", of_h2.failed as f64, "the goal", Some(0.0));
    push("HTTP/2, refused", "requests", of_h2.refused as f64, "the goal", Some(0.0));
    push("HTTP/2, connections opened", "connections", of_h2.connections as f64, "", None);
    let first =
        seen.all().first_failure.into_iter().chain(fates.first_failure.clone()).chain(of_h2.first_failure.clone());
    report.notes.extend(first.map(|why| format!("{name}, first failure: {why}")));
}
