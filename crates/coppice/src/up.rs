//! `coppice up`: a whole cluster on one machine, one process a node, each on its own loopback address. Starts nodes,
//! restarts those that die, tells scripts what happens, and takes everything down with itself: each node asks the
//! kernel to end it when this process ends, however that comes about.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cluster::doors::{Door, DoorAddrs, Opens};
use futures_util::future::join_all;
use node::view::{CloneState, NodeState, NodeView, View};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::away_for::AwayFor;
use crate::class_flags::ClassFlags;
use crate::client::{Api, At};
use crate::demo::{self, Demo};
use crate::doors::{self, DoorPorts};
use crate::events::{Told, UpEvent};
use crate::plain::complain;
use crate::ports::check_free;
use crate::run::{EXIT_REMOVED, EXIT_RESTART};
use crate::size::{Size, brick_memory};
use crate::{found, handover};

/// Most nodes on one machine: a look at a cluster, not a data centre.
pub const NODES_MAX: u8 = 16;
/// A node that cannot say it is ready by then will not.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The others can do without a node whose folder is empty by then, or say why not.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(15);
/// Between the death of a node and its restart: doubling up to the second figure while it keeps dying at once.
const RESTART_AFTER: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// A node that lived this long starts anew with the short wait.
const LIVED_LONG: Duration = Duration::from_secs(20);
/// A node's log is set aside when it is longer than this at its start.
const LOG_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, clap::Args)]
pub struct UpArgs {
    /// Number of nodes; node i listens on 127.0.0.i
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u8,
    /// Where the nodes keep their identities, logs and state
    #[arg(long, env = "COPPICE_DIR", default_value = ".coppice")]
    pub dir: PathBuf,
    /// Do not deploy the example shop, which a cluster without services gets when it first starts
    #[arg(long)]
    pub no_demo: bool,
    /// Deploy this built-in service, or `transend`, in place of the example shop
    #[arg(long, value_name = "NAME", conflicts_with = "no_demo")]
    pub demo: Option<String>,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    /// Memory for session values of each node, like 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = brick_memory, default_value = "1GiB")]
    pub brick_memory: Size,
    /// So many of the nodes, the last ones, run clones only while all others are full
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub overflow: u8,
    /// Clones that each node is meant to run at most (default: 4 for each processor)
    #[arg(long, value_name = "COUNT")]
    pub clones_max: Option<u32>,
    /// What a node misses that is away is kept for it for so long, like 7d or 36h: one that is back later enters the cluster anew
    /// (default: 7d)
    #[arg(long, value_name = "TIME")]
    pub away_for: Option<AwayFor>,
    /// Certificates for HTTPS: NAME.crt with NAME.key, or fullchain.pem with privkey.pem; with --https-port alone, those of
    /// `coppice certificate`
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,
    /// The API of each node shows nothing to who shows no token
    #[arg(long)]
    pub api_private: bool,
    #[command(flatten)]
    pub classes: ClassFlags,
    #[command(flatten)]
    pub ports: DoorPorts,
}

impl UpArgs {
    /// Where the doors of the node at this address are.
    fn doors(&self, host: IpAddr) -> DoorAddrs {
        self.ports.on(host, self.tls_dir.is_some())
    }
}

/// One node as `up` sees it.
struct Ward {
    /// From 1.
    index: u8,
    name: String,
    host: IpAddr,
    dir: PathBuf,
    /// What it runs: what lies there by then may be newer than ourselves.
    program: PathBuf,
    child: Option<Child>,
    pid: u32,
    started: Instant,
    wait: Duration,
    restarts: u32,
    /// It was removed from the cluster: it is not started again.
    removed: bool,
}

pub async fn up(args: UpArgs) -> Result<(), String> {
    let told = Told { json: args.json };
    let result = run(&args, told).await;
    if let Err(error) = &result {
        told.tell(&UpEvent::Error { text: error.clone() });
    }
    result
}

async fn run(args: &UpArgs, told: Told) -> Result<(), String> {
    let mut stop = stop_signal()?;
    if let Some(dir) = &args.tls_dir {
        // A mistake is told here, once, beside the log of each node.
        edge::tls::Certs::load(dir)?.wrong().iter().for_each(|wrong| complain!("coppice: not taken: {wrong}"));
    }
    // A name that is none is told before anything is made.
    Demo::named(args.demo.as_deref())?;
    let mut wards = wards(args)?;
    for ward in &wards {
        check_free(&doors::wanted(&args.doors(ward.host), |about| about.port_option))?;
    }
    tokio::select! {
        ready = bring_up(args, &mut wards, told) => told.tell(&ready?),
        () = stop.wait() => return take_down(wards).await,
    }
    loop {
        let turn = tokio::select! {
            turn = next_turn(&mut wards) => turn,
            () = stop.wait() => return take_down(wards).await,
        };
        match turn {
            Turn::Died(index) => {
                let ward = &mut wards[index];
                let (how, code) = reap(ward).await;
                ward.removed = code == Some(EXIT_REMOVED);
                told.tell(&match code {
                    Some(EXIT_REMOVED) => UpEvent::Removed { name: ward.name.clone(), pid: ward.pid },
                    _ => UpEvent::Died { name: ward.name.clone(), pid: ward.pid, how },
                });
                ward.wait = if code == Some(EXIT_RESTART) || ward.started.elapsed() > LIVED_LONG {
                    RESTART_AFTER.0
                } else {
                    (ward.wait * 2).min(RESTART_AFTER.1)
                };
                ward.started = Instant::now();
            }
            Turn::Restart(index) => {
                let ward = &mut wards[index];
                ward.restarts += 1;
                match start(args, ward) {
                    Ok(()) => told.tell(&UpEvent::Restarted {
                        name: ward.name.clone(),
                        pid: ward.pid,
                        restarts: ward.restarts,
                    }),
                    Err(text) => {
                        ward.started = Instant::now();
                        told.tell(&UpEvent::Error { text });
                    }
                }
            }
        }
    }
}

/// What a node has in its folder: the doors that it has anyway. The others are there as long as `up` is told so.
fn kept(at: &DoorAddrs) -> DoorAddrs {
    let always = |door: Door| at.get(door).filter(|_| door.about().opens == Opens::Always);
    DoorAddrs::of(always).expect("a door that is always open has an address")
}

/// What `up` does next: a node has ended, or the wait of one is over. By index.
enum Turn {
    Died(usize),
    Restart(usize),
}

fn wards(args: &UpArgs) -> Result<Vec<Ward>, String> {
    let program = handover::program()?;
    let wards = (1..=args.nodes)
        .map(|i| Ward {
            index: i,
            name: format!("n{i}"),
            host: IpAddr::V4(Ipv4Addr::new(127, 0, 0, i)),
            dir: args.dir.join(format!("n{i}")),
            program: program.clone(),
            child: None,
            pid: 0,
            started: Instant::now(),
            wait: RESTART_AFTER.0,
            restarts: 0,
            removed: false,
        })
        .collect();
    Ok(wards)
}

/// Founds or revives the cluster, deploys the demo, and waits until all of it works.
async fn bring_up(args: &UpArgs, wards: &mut [Ward], told: Told) -> Result<UpEvent, String> {
    let begun = Instant::now();
    // The first one may have been removed: then it joins as the others do.
    let first = wards.iter().position(|w| found::is_node(&w.dir)).unwrap_or(0);
    if !found::is_node(&wards[first].dir) {
        let host = wards[first].host;
        found::init(&wards[first].dir, "local", &wards[first].name, kept(&args.doors(host)))?;
    }
    found::keep_admin_token(&args.dir)?;
    wards.swap(0, first);
    let (first, rest) = wards.split_first_mut().expect("at least one node");
    start(args, first)?;
    let api = operator(args, first.host)?;
    for ward in rest.iter_mut().filter(|w| found::is_node(&w.dir)) {
        start(args, ward)?;
    }
    // A cluster that was here before needs its majority to say anything, so newcomers come last.
    let newcomers: Vec<&mut Ward> = rest.iter_mut().filter(|w| w.child.is_none()).collect();
    if !newcomers.is_empty() {
        ready(&api, first).await?;
        let token = join_token(&api, newcomers.len()).await?;
        let joins = newcomers.into_iter().map(|ward| async {
            enter(args, &api, ward, &token, told).await?;
            Ok::<_, String>(ward)
        });
        for joined in join_all(joins).await {
            start(args, joined?)?;
        }
    }
    for ward in wards.iter_mut() {
        ready(&Api { at: At::Plain(args.doors(ward.host).at(Door::Api)), token: None }, ward).await?;
    }
    wards.sort_by_key(|ward| ward.index);
    // The demo comes when all nodes are there, so that its clones are spread from the start.
    let mut view = settled(args, wards, &[]).await?;
    let demo = Demo::named(args.demo.as_deref())?;
    let is_new = !args.no_demo && demo::is_wanted(&args.dir, &view);
    if is_new {
        let fronts: Vec<SocketAddr> = wards.iter().map(|ward| args.doors(ward.host).at(Door::Http)).collect();
        if args.tls_dir.is_none() {
            demo.certify(&api).await?;
        }
        demo.deploy(&args.dir, &api, &fronts).await?;
    }
    let demo = Some(demo).filter(|demo| is_new || (!args.no_demo && demo.is_there(&view)));
    if let Some(demo) = demo {
        match settled(args, wards, &demo.services()).await {
            Ok(now) => view = now,
            Err(why) if is_new => return Err(why),
            // What an operator has made of it since may not come up: that is no reason to end.
            Err(_) => (),
        }
    }
    let people = match demo {
        Some(demo) => demo.people(&args.dir, &api).await?,
        None => Vec::new(),
    };
    let namespaces = namespace_urls(args, &api, &view).await?;
    let nodes = wards.iter().map(|w| (w.name.clone(), w.pid, args.doors(w.host))).collect();
    Ok(UpEvent::Ready { nodes, namespaces, demo, people, millis: begun.elapsed().as_millis() as u64 })
}

/// Lets a node in. One that the cluster knows, and whose folder is empty, has lost its disk: the cluster gives up who it
/// was, as far as it can do without what only that one had, and it enters as another one under its name.
async fn enter(args: &UpArgs, api: &Api, ward: &Ward, token: &str, told: Told) -> Result<(), String> {
    let at = || kept(&args.doors(ward.host));
    let Err(refused) = found::join(&ward.dir, &ward.name, at(), token, base::LEVEL).await else { return Ok(()) };
    give_up(api, &ward.name).await.map_err(|why| {
        format!("node {} cannot enter: {refused}\n  nor be given up for another one of this name: {why}", ward.name)
    })?;
    told.tell(&UpEvent::Emptied { name: ward.name.clone() });
    found::join(&ward.dir, &ward.name, at(), token, base::LEVEL).await
}

/// Takes a node out of the cluster that does not run.
async fn give_up(api: &Api, name: &str) -> Result<(), String> {
    let begun = Instant::now();
    let view: View = serde_json::from_value(api.get("/v1/status").await?.json()?).map_err(|e| e.to_string())?;
    if view.nodes.iter().any(|node| node.name == name && node.state != NodeState::Dead) {
        return Err("a node of this name runs elsewhere".to_owned());
    }
    loop {
        let reply = api.post(&format!("/v1/nodes/{name}/remove?now=true"), "", "").await?;
        // The groups that it was in may be choosing their leaders.
        let later = reply.status == 503 && begun.elapsed() < GIVEN_UP_WITHIN;
        match reply.json() {
            Ok(_) => return Ok(()),
            Err(_) if later => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(why) => return Err(why),
        }
    }
}

/// Starts one node as a child that ends with us.
fn start(args: &UpArgs, ward: &mut Ward) -> Result<(), String> {
    let log_path = ward.dir.join("node.log");
    if std::fs::metadata(&log_path).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
        std::fs::rename(&log_path, ward.dir.join("node.log.1"))
            .map_err(|e| format!("cannot set {} aside: {e}", log_path.display()))?;
    }
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(|e| format!("cannot write {}: {e}", log_path.display()))?;
    let log_too = log.try_clone().map_err(|e| format!("cannot write {}: {e}", log_path.display()))?;
    let at = args.doors(ward.host);
    let mut command = Command::new(&ward.program);
    command
        .args(["keep", &std::process::id().to_string(), "--"])
        .arg(&ward.program)
        .arg("run")
        .arg("--dir")
        .arg(&ward.dir);
    command.args(doors::options(&at));
    command.args(["--brick-memory", &args.brick_memory.to_string()]);
    if ward.index > args.nodes.saturating_sub(args.overflow) {
        command.arg("--overflow");
    }
    if args.api_private {
        command.arg("--api-private");
    }
    command.args(args.classes.options());
    if let Some(most) = args.clones_max {
        command.args(["--clones-max", &most.to_string()]);
    }
    if let Some(away_for) = args.away_for {
        command.args(["--away-for", &away_for.to_string()]);
    }
    if let Some(dir) = &args.tls_dir {
        command.arg("--tls-dir").arg(dir);
    }
    for i in 1..=args.nodes {
        let seed = args.doors(IpAddr::V4(Ipv4Addr::new(127, 0, 0, i))).at(Door::Peer);
        if seed != at.at(Door::Peer) {
            command.args(["--seed", &seed.to_string()]);
        }
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_too)
        .spawn()
        .map_err(|e| format!("cannot start node {}: {e}", ward.name))?;
    ward.pid = child.id().unwrap_or_default();
    ward.child = Some(child);
    ward.started = Instant::now();
    Ok(())
}

/// The API of this node with the operator's token.
fn operator(args: &UpArgs, host: IpAddr) -> Result<Api, String> {
    let token = found::admin_token(&args.dir)?;
    Ok(Api { at: At::Plain(args.doors(host).at(Door::Api)), token: Some(token) })
}

/// Waits until a node answers and has the declaration, or says why it does not.
async fn ready(api: &Api, ward: &mut Ward) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        if matches!(api.get("/readyz").await, Ok(reply) if reply.status == 200) {
            return Ok(());
        }
        if let Some(child) = &mut ward.child
            && let Ok(Some(status)) = child.try_wait()
        {
            return Err(format!("node {} ended at its start ({status}):\n{}", ward.name, last_lines(ward)));
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(format!("node {} was not ready within {READY_WITHIN:?}:\n{}", ward.name, last_lines(ward)));
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

fn last_lines(ward: &Ward) -> String {
    let path = ward.dir.join("node.log");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(8).collect();
    let shown: Vec<String> = lines.iter().rev().map(|l| format!("  | {l}")).collect();
    format!("{}\n  the whole log: {}", shown.join("\n"), path.display())
}

/// Waits until every node sees every node live and all clones of these services serving.
async fn settled(args: &UpArgs, wards: &[Ward], services: &[&str]) -> Result<View, String> {
    let begun = Instant::now();
    let token = found::admin_token(&args.dir)?;
    loop {
        let views =
            join_all(
                wards.iter().map(|w| {
                    let api = Api { at: At::Plain(args.doors(w.host).at(Door::Api)), token: Some(token.clone()) };
                    async move {
                        api.get("/v1/status").await.ok().and_then(|r| serde_json::from_slice::<View>(&r.body).ok())
                    }
                }),
            )
            .await;
        let whole = |view: &View| {
            // Until its brick has what it is to have, a first request may be told that its session is lost.
            let is_well = |n: &&NodeView| n.state == NodeState::Live && n.brick.settled;
            let well = view.nodes.iter().filter(is_well).count();
            let serving = |name: &&str| {
                view.services.iter().any(|s| {
                    s.name == **name
                        && s.clones.iter().filter(|c| c.state == CloneState::Serving).count() >= s.wanted as usize
                })
            };
            // A leader is known a moment before what its group has agreed on.
            let declared = view.root.leader.is_some() && view.root.version > 0;
            well >= wards.len() && declared && services.iter().all(serving)
        };
        if let Some(view) = views.first().cloned().flatten()
            && views.iter().all(|v| v.as_ref().is_some_and(whole))
        {
            return Ok(view);
        }
        if begun.elapsed() > READY_WITHIN {
            let seen = views.iter().flatten().map(|v| crate::status::page(v, v.at_ms)).collect::<Vec<_>>().join("\n");
            return Err(format!(
                "the cluster did not settle within {READY_WITHIN:?}; what the nodes saw last:\n{seen}"
            ));
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

async fn join_token(api: &Api, uses: usize) -> Result<String, String> {
    let wish = serde_json::json!({"lifetime_ms": 600_000, "uses": uses});
    let reply = api.post("/v1/tokens", "", wish.to_string()).await?.json()?;
    reply["token"].as_str().map(str::to_owned).ok_or_else(|| "the node's answer has no token".to_owned())
}

/// `redis://carts:TOKEN@127.0.0.1:6379` for each namespace.
async fn namespace_urls(args: &UpArgs, api: &Api, view: &View) -> Result<BTreeMap<String, String>, String> {
    let mut urls = BTreeMap::new();
    for namespace in &view.namespaces {
        let reply = api.get(&format!("/v1/ns/{}/token", namespace.name)).await?.json()?;
        let token = reply["token"].as_str().unwrap_or_default().to_owned();
        let at = args.doors(IpAddr::V4(Ipv4Addr::LOCALHOST)).at(Door::Resp);
        urls.insert(namespace.name.clone(), format!("redis://{}:{token}@{at}", namespace.name));
    }
    Ok(urls)
}

async fn next_turn(wards: &mut [Ward]) -> Turn {
    let dead = wards.iter().enumerate().filter(|(_, w)| w.child.is_none() && !w.removed);
    let restart = dead.map(|(i, w)| (w.started + w.wait, i)).min();
    let restart = async move {
        match restart {
            Some((at, index)) => {
                tokio::time::sleep_until(at.into()).await;
                Turn::Restart(index)
            }
            None => std::future::pending().await,
        }
    };
    let mut waits: Vec<futures_util::future::LocalBoxFuture<'_, Turn>> = vec![Box::pin(restart)];
    for (index, ward) in wards.iter_mut().enumerate() {
        if let Some(child) = &mut ward.child {
            waits.push(Box::pin(async move {
                // However the wait ends, the process is not there any more.
                let _ended = child.wait().await;
                Turn::Died(index)
            }));
        }
    }
    futures_util::future::select_all(waits).await.0
}

/// How its process ended, in words, and its exit status.
async fn reap(ward: &mut Ward) -> (String, Option<i32>) {
    match ward.child.take() {
        Some(mut child) => match child.wait().await {
            Ok(status) => (status.to_string(), status.code()),
            Err(error) => (error.to_string(), None),
        },
        None => ("gone".to_owned(), None),
    }
}

/// Crash-only: nodes are simply ended. Their children end with them.
async fn take_down(wards: Vec<Ward>) -> Result<(), String> {
    for mut ward in wards {
        if let Some(child) = &mut ward.child {
            child.kill().await.map_err(|e| format!("cannot end node {}: {e}", ward.name))?;
        }
    }
    Ok(())
}

struct Stop {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

fn stop_signal() -> Result<Stop, String> {
    let on = |kind| signal(kind).map_err(|e| format!("cannot wait for signals: {e}"));
    Ok(Stop { int: on(SignalKind::interrupt())?, term: on(SignalKind::terminate())?, hup: on(SignalKind::hangup())? })
}

impl Stop {
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.int.recv() => (),
            _ = self.term.recv() => (),
            _ = self.hup.recv() => (),
        }
    }
}
