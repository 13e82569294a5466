//! HTTP proxying: the same origin (nginx with one worker, a 1 KiB file) behind our edge and behind nginx as a proxy.

use std::net::SocketAddr;

use crate::Plan;
use crate::cluster::{Cluster, free_port};
use crate::peers::{Program, scratch, wait_until, wrk};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};

const CONNECTIONS: u32 = 64;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("edge");
    let mut csv = "side,round,per_second,p99_us,errors\n".to_owned();
    let dir = scratch("edge-origin");
    let conf = dir.join("origin.conf");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    std::fs::write(dir.join("1k"), vec![b'x'; 1024]).map_err(|e| e.to_string())?;
    // The origin is a service like any other: the program takes PORT from its environment.
    let root = dir.display();
    let origin = format!(
        "daemon off; worker_processes 1; pid {root}/o.pid; error_log /dev/null; events {{ worker_connections 1024; }} \
        http {{ access_log off; keepalive_requests 100000000; server {{ listen LISTEN; root {root}; }} }}"
    );
    std::fs::write(&conf, &origin).map_err(|e| e.to_string())?;
    let shell = format!(
        "sed \"s/LISTEN/$HOST:$PORT/\" {c} > {c}.$PORT && exec nginx -e /dev/null -p {root} -c {c}.$PORT",
        c = conf.display()
    );
    let service =
        format!("[service.origin]\nrun = [\"sh\", \"-c\", {shell:?}]\nclones = 1\nhealth = \"/1k\"\nhttp = {{}}\n");
    let mut rates = [Vec::new(), Vec::new()];
    let mut tails = [Vec::new(), Vec::new()];
    let mut errors = [0u64; 2];
    for round in 0..plan.rounds {
        let cluster = Cluster::start(1, false)?;
        cluster.apply(&service)?;
        let door = cluster.doors("http").first().copied().ok_or("no edge")?;
        wait_until(
            "the origin serves",
            || matches!(crate::load::http_get(door, "/1k", None), Ok(body) if body.len() == 1024),
        )?;
        let status = cluster.status()?;
        let port = status["services"][0]["clones"][0]["port"]
            .as_u64()
            .and_then(|p| u16::try_from(p).ok())
            .ok_or("the origin has no port")?;
        let proxy = nginx_proxy(SocketAddr::from(([127, 0, 0, 1], port)))?;
        for (side, name, url) in
            [(0, "coppice", format!("http://{door}/1k")), (1, "nginx", format!("http://{}/1k", proxy.1))]
        {
            wrk(&url, CONNECTIONS, 1)?;
            let found = wrk(&url, CONNECTIONS, plan.seconds)?;
            csv += &format!("{name},{round},{:.0},{:.0},{}\n", found.per_second, found.p99_us, found.errors);
            rates[side].push(found.per_second);
            tails[side].push(found.p99_us);
            errors[side] += found.errors;
        }
    }
    let plotted: Vec<Line> = rates
        .iter()
        .zip(["coppice", "nginx"])
        .map(|(r, name)| Line {
            name: name.into(),
            points: r.iter().enumerate().map(|(i, v)| (i as f64 + 1.0, *v)).collect(),
        })
        .collect();
    let [ours, theirs] = rates.map(median);
    let [our_tail, their_tail] = tails.map(median);
    report.figures.push(Figure::new("requests, 64 connections, 1 KiB", "1/s", ours, "nginx proxy_pass", Some(theirs)));
    report.figures.push(Figure::new("p99", "us", our_tail, "nginx proxy_pass", Some(their_tail)));
    report.figures.push(Figure::new(
        "errors",
        "requests",
        errors[0] as f64,
        "nginx proxy_pass",
        Some(errors[1] as f64),
    ));
    report
        .notes
        .push("one node; wrk -t1 -c64, keep-alive; the origin (nginx, 1 worker) is the same process for both".into());
    report.write(&plan.out, "edge.csv", &csv)?;
    report.write(
        &plan.out,
        "edge.svg",
        &lines("HTTP proxying, 1 KiB, 64 connections", "round", "requests a second", &plotted, &[]),
    )?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(report)
}

fn nginx_proxy(origin: SocketAddr) -> Result<(Program, SocketAddr), String> {
    let port = free_port(1)?;
    let dir = scratch("edge-proxy");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let root = dir.display().to_string();
    let conf = format!(
        "daemon off; worker_processes 2; pid {root}/p.pid; error_log /dev/null; events {{ worker_connections 4096; }} \
        http {{ access_log off; keepalive_requests 100000000; proxy_temp_path {root}/t; client_body_temp_path {root}/b; \
        upstream o {{ server {origin}; keepalive 256; keepalive_requests 100000000; }} \
        server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}"
    );
    let file = dir.join("proxy.conf");
    std::fs::write(&file, conf).map_err(|e| e.to_string())?;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let program =
        Program::start("nginx", "nginx", dir, &["-e", "/dev/null", "-p", &root, "-c", &file.display().to_string()])?;
    wait_until("nginx proxies", || matches!(crate::load::http_get(addr, "/1k", None), Ok(body) if body.len() == 1024))?;
    Ok((program, addr))
}
