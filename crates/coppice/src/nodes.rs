//! `coppice node`: restart a node so that nobody notices, all of them one after the other, let one leave for good, or take
//! one out of use for a while.
//! Only one is ever asked to end at a time, and a node that was asked comes back without us: this may be interrupted at
//! any moment.

use std::time::{Duration, Instant};

use bytes::Bytes;
use node::view::{CloneState, CloneView, NodeState, NodeView, ServiceView, View};
use serde_json::json;

use crate::client::{Api, At};
use crate::operate::NodeArgs;
use crate::plain::say;

/// A node that is not back by then has trouble that a person should see.
const BACK_WITHIN: Duration = Duration::from_secs(120);
/// Copying all that a node holds takes its time.
const GONE_WITHIN: Duration = Duration::from_secs(660);
/// Clones start elsewhere, leave the routes and finish what they have, some at a time.
const DRAINED_WITHIN: Duration = Duration::from_secs(300);
/// What was declared is seen by all nodes within this.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);
/// A node that does not let go hangs, or is cut off.
const SHUT_OUT_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bricks that are being filled, and groups whose members are not all back, are waited for before a node of a rolling restart is asked.
pub const CALM_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, clap::Subcommand)]
pub enum NodeCommand {
    /// Let a node close its doors, end, and be started again by what watches over it (`up`, systemd)
    #[command(after_help = "Examples:\n  coppice node restart n2\n  coppice node restart --rolling --json")]
    Restart(RestartArgs),
    /// Let a node hand on what it holds, and end for good (exit status 76)
    #[command(
        after_help = "Examples:\n  coppice node remove n4\n  coppice node remove n4 --now      the machine was stolen, or is not coming back"
    )]
    Remove(RemoveArgs),
    /// Take a node out of use: its clones move elsewhere first, and it gets no new ones, until `undrain`
    #[command(after_help = "Example:\n  coppice node drain n2")]
    Drain(DrainArgs),
    /// Put a drained node back into use
    #[command(after_help = "Example:\n  coppice node undrain n2")]
    Undrain(DrainArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub struct RestartArgs {
    /// Name of the node
    #[arg(group = "which")]
    pub name: Option<String>,
    /// All nodes, one after the other, each after the last is back, its brick settled and its groups whole
    #[arg(long, group = "which")]
    pub rolling: bool,
    /// Even if sessions may be lost or refused by it
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// Name of the node
    pub name: String,
    /// Even if fewer than three bricks remain, or fewer copies of something than are declared; says what that is
    #[arg(long)]
    pub force: bool,
    /// Shut it out at once: it hands on nothing, and its certificate opens nothing any more
    #[arg(long)]
    pub now: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the node
    pub name: String,
    /// Do not wait until its clones have moved
    #[arg(long)]
    pub no_wait: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

pub async fn node(command: NodeCommand) -> Result<(), String> {
    match command {
        NodeCommand::Restart(args) => {
            let mut cluster = Cluster::new(&args.node, args.json)?;
            let names = match &args.name {
                Some(name) => vec![name.clone()],
                None => rolling_order(&cluster.view().await?),
            };
            for (done, name) in names.iter().enumerate() {
                if args.rolling {
                    cluster.calm(name, args.force).await?;
                }
                // What a node sees of the others is a moment old: a refusal may be out of date at once.
                let patience = if args.rolling { CALM_WITHIN } else { Duration::ZERO };
                if let Err(why) = cluster.restart(name, args.force, patience).await {
                    let left = names[done..].join(", ");
                    return Err(if args.rolling { format!("{why}\n  not restarted: {left}") } else { why });
                }
            }
            Ok(())
        }
        NodeCommand::Drain(args) => {
            let mut cluster = Cluster::new(&args.node, args.json)?;
            cluster.ask(&args.name, "drain").await?;
            cluster.tell("draining", &args.name, "gets no clones; those that it has move", &json!({}));
            if args.no_wait { Ok(()) } else { cluster.drained(&args.name).await }
        }
        NodeCommand::Undrain(args) => {
            let cluster = Cluster::new(&args.node, args.json)?;
            cluster.ask(&args.name, "undrain").await?;
            cluster.tell("undrained", &args.name, "is in use again", &json!({}));
            Ok(())
        }
        NodeCommand::Remove(args) => {
            let mut cluster = Cluster::new(&args.node, args.json)?;
            if args.now || cluster.is_away(&args.name).await? {
                return cluster.shut_out(&args.name, args.force).await;
            }
            cluster.remove(&args.name, args.force).await
        }
    }
}

/// By name, the leader of the root group last: so it changes once.
pub fn rolling_order(view: &View) -> Vec<String> {
    let mut names: Vec<String> =
        view.nodes.iter().filter(|n| n.state != NodeState::Dead).map(|n| n.name.clone()).collect();
    names.sort_by_key(|name| (view.root.leader.as_ref() == Some(name), name.clone()));
    names
}

/// Asks any node that answers: the one that was named may be the one that restarts.
pub struct Cluster {
    token: Option<String>,
    apis: Vec<At>,
    json: bool,
}

impl Cluster {
    pub fn new(node: &NodeArgs, json: bool) -> Result<Self, String> {
        let api = node.operator()?;
        Ok(Self { token: api.token, apis: vec![api.at], json })
    }

    /// What the first node that answers sees. Addresses of others are remembered.
    pub async fn view(&mut self) -> Result<View, String> {
        let mut problem = String::new();
        for at in 0..self.apis.len() {
            let api = Api { at: self.apis[at].clone(), token: self.token.clone() };
            match api.get("/v1/status").await.and_then(|reply| reply.json()) {
                Ok(json) => {
                    let view: View = serde_json::from_value(json)
                        .map_err(|e| format!("the node's answer is of another version: {e}"))?;
                    // A node that is about to end sees less every moment.
                    if view.nodes.iter().any(|n| n.name == view.me && n.leaving.is_some()) && self.apis.len() > 1 {
                        continue;
                    }
                    let others = view.nodes.iter().filter(|n| n.state == NodeState::Live);
                    let others = others.filter_map(|n| api.at.of(n, &view));
                    let new: Vec<At> = others.filter(|api| !self.apis.contains(api)).collect();
                    self.apis.extend(new);
                    // Who answered is asked first from now on.
                    self.apis.swap(0, at);
                    return Ok(view);
                }
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    async fn node(&mut self, name: &str) -> Result<NodeView, String> {
        let view = self.view().await?;
        let names: Vec<&str> = view.nodes.iter().map(|n| n.name.as_str()).collect();
        let found = view.nodes.iter().find(|n| n.name == name).cloned();
        found.ok_or_else(|| format!("no node is named \"{name}\"; there are: {}", names.join(", ")))
    }

    /// Asks the first node that answers to do `what` with the node of this name.
    async fn ask(&self, name: &str, what: &str) -> Result<(), String> {
        let mut problem = String::new();
        for at in &self.apis {
            let api = Api { at: at.clone(), token: self.token.clone() };
            match api.post(&format!("/v1/nodes/{name}/{what}"), "", "").await {
                Ok(reply) => return reply.json().map(|_| ()),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    /// What the first node says that answers, and knows what is asked for.
    pub async fn first(&self, method: &str, path: &str, body: Bytes) -> Result<serde_json::Value, String> {
        let mut problem = String::new();
        for at in &self.apis {
            let api = Api { at: at.clone(), token: self.token.clone() };
            match api.request(method, path, "", body.clone()).await {
                Ok(reply) if reply.status == 404 => problem = reply.json().err().unwrap_or_default(),
                Ok(reply) => return reply.json(),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    pub fn tell(&self, event: &str, name: &str, text: &str, more: &serde_json::Value) {
        if self.json {
            let mut line = json!({"event": event, "name": name});
            if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
                line.extend(more.clone());
            }
            say!("{line}");
        } else {
            say!("{name} {text}");
        }
    }

    /// Waits until no other brick is being filled, and all groups are whole.
    pub async fn calm(&mut self, name: &str, force: bool) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let view = self.view().await?;
            let busy = view.nodes.iter().filter(|n| n.name != name).find(|n| !is_well(n));
            let busy = match (busy, unwhole(&view)) {
                (Some(n), _) => format!("{} is not live with a settled brick", n.name),
                (None, 0) => return Ok(()),
                (None, shards) => format!("members of {shards} shards are not all there, or have not all yet"),
            };
            if force {
                return Ok(());
            }
            if begun.elapsed() > CALM_WITHIN {
                return Err(format!("{busy}; nothing is restarted meanwhile"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub async fn restart(&mut self, name: &str, force: bool, patience: Duration) -> Result<(), String> {
        let before = self.node(name).await?;
        // What does not serve now need not serve afterwards.
        let view = self.view().await?;
        let (lacked, unwhole_before) = (lacking(&view), unwhole(&view));
        let asked = Instant::now();
        while let Err(why) = self.ask(name, &format!("restart?force={force}")).await {
            if asked.elapsed() >= patience {
                return Err(format!("{name} is not restarted: {why}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let begun = Instant::now();
        self.tell("restarting", name, "closes its doors", &json!({"pid": before.pid}));
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // Nobody may answer for a moment, if it is the only node that we can reach.
            let view = self.view().await.ok();
            let now = view.as_ref().and_then(|view| view.nodes.iter().find(|n| n.name == name));
            let now = now.filter(|now| now.boot > before.boot && is_well(now));
            let lacks: Vec<String> = view.as_ref().map(lacking).unwrap_or_default();
            let lacks = lacks.into_iter().find(|service| !lacked.contains(service));
            let shards = view.as_ref().map(unwhole).filter(|shards| *shards > unwhole_before);
            if let Some(now) = now
                && lacks.is_none()
                && shards.is_none()
            {
                let millis = begun.elapsed().as_millis() as u64;
                let text = format!("is back (pid {}) and settled after {:.1} s", now.pid, millis as f64 / 1000.0);
                self.tell("restarted", name, &text, &json!({"pid": now.pid, "millis": millis}));
                return Ok(());
            }
            if begun.elapsed() > BACK_WITHIN {
                let within = BACK_WITHIN.as_secs();
                return Err(match (now, lacks, shards) {
                    (Some(_), None, Some(shards)) => format!(
                        "{name} is back, but members of {shards} shards are not all there, or have not all yet, {within} s after"
                    ),
                    (Some(_), Some(service), _) => format!(
                        "{name} is back, but service {service} has fewer clones that serve than before, {within} s after; \
                         `coppice status` says why"
                    ),
                    _ => format!(
                        "{name} was not back and settled within {within} s; does something start it again (`coppice up`, a \
                         systemd unit with Restart=always)?"
                    ),
                });
            }
        }
    }

    /// Waits until a drained node runs nothing.
    async fn drained(&mut self, name: &str) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let view = self.view().await?;
            let here = view.nodes.iter().find(|n| n.name == name);
            if here.is_some_and(|n| n.state == NodeState::Live && !n.drained) && begun.elapsed() > SHOWN_WITHIN {
                return Err(format!("{name} is not drained any more"));
            }
            let left: Vec<&str> = clones_at(&view, name).map(|c| c.name.as_str()).collect();
            if left.is_empty() && here.is_none_or(|n| n.drained || n.state == NodeState::Dead) {
                let millis = begun.elapsed().as_millis() as u64;
                let text = format!("is drained after {:.1} s", millis as f64 / 1000.0);
                self.tell("drained", name, &text, &json!({"millis": millis}));
                return Ok(());
            }
            if view.nodes.iter().filter(|n| n.state == NodeState::Live).all(|n| n.drained) {
                return Err("all live nodes are drained: clones stay where they are".into());
            }
            if begun.elapsed() > DRAINED_WITHIN {
                let left = left.join(", ");
                return Err(format!(
                    "after {} s these still run on {name}: {left}; `coppice status` says why they do not come up elsewhere",
                    DRAINED_WITHIN.as_secs()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// It cannot be asked to leave.
    async fn is_away(&mut self, name: &str) -> Result<bool, String> {
        let view = self.view().await?;
        Ok(!view.nodes.iter().any(|n| n.name == name && n.state != NodeState::Dead))
    }

    /// The others hang up on it as soon as they hear of the new declaration.
    async fn shut_out(&mut self, name: &str, force: bool) -> Result<(), String> {
        let begun = Instant::now();
        // One that asks about itself is not asked.
        self.apis_but(name).await?;
        self.ask(name, &format!("remove?now=true&force={force}")).await.map_err(|why| {
            let more = if force { "" } else { "\n  --force removes it all the same, and what only it has is lost" };
            format!("{name} is not removed: {why}{more}")
        })?;
        while self.view().await?.nodes.iter().any(|n| n.name == name && n.state != NodeState::Dead) {
            if begun.elapsed() > SHUT_OUT_WITHIN {
                return Err(format!(
                    "{name} is removed, but {} s later a node still counts it as live",
                    SHUT_OUT_WITHIN.as_secs()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let millis = begun.elapsed().as_millis() as u64;
        let text = format!(
            "is shut out after {:.1} s; its folder, if it is there, holds secrets: delete it",
            millis as f64 / 1000.0
        );
        self.tell("removed", name, &text, &json!({"millis": millis}));
        Ok(())
    }

    /// Knows where the others are, and does not ask this one.
    async fn apis_but(&mut self, name: &str) -> Result<(), String> {
        let view = self.view().await?;
        if let Some(node) = view.nodes.iter().find(|n| n.name == name) {
            self.leave_out(node, &view);
        }
        Ok(())
    }

    /// Asks this one no more, if there are others.
    fn leave_out(&mut self, node: &NodeView, view: &View) {
        let its = self.apis[0].of(node, view);
        if self.apis.len() > 1 {
            self.apis.retain(|api| Some(api) != its.as_ref());
        }
    }

    async fn remove(&mut self, name: &str, force: bool) -> Result<(), String> {
        let before = self.node(name).await?;
        let begun = Instant::now();
        if let Err(why) = self.ask(name, "remove?force=false").await {
            if !force {
                return Err(format!("{name} is not removed: {why}"));
            }
            self.tell("forcing", name, &format!("is removed although {why}"), &json!({"although": why}));
        }
        if force {
            self.ask(name, "remove?force=true").await.map_err(|why| format!("{name} is not removed: {why}"))?;
        }
        self.tell("removing", name, "hands on what it holds", &json!({"pid": before.pid}));
        let mut waits = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let view = self.view().await?;
            let now = view.nodes.iter().find(|n| n.name == name);
            if let Some(why) = now.and_then(|n| n.waits.clone()).filter(|why| waits.as_ref() != Some(why)) {
                self.tell("waiting", name, &format!("waits: {why}"), &json!({"for": why}));
                waits = Some(why);
            }
            match now {
                None => break,
                Some(n) if n.state == NodeState::Dead => break,
                Some(n) if n.boot > before.boot => {
                    return Err(format!("{name} ended and was started again by what watches over it; stop that first"));
                }
                Some(n) if n.leaving.is_none() && begun.elapsed() > Duration::from_secs(5) => {
                    let waits = waits.map_or_else(String::new, |why| format!(": {why}"));
                    return Err(format!("{name} stays, as it is still needed{waits}"));
                }
                Some(_) if begun.elapsed() > GONE_WITHIN => {
                    let waits = waits.map_or_else(String::new, |why| format!("; it waits: {why}"));
                    return Err(format!("{name} has not left within {} s{waits}", GONE_WITHIN.as_secs()));
                }
                Some(_) => (),
            }
        }
        if let Ok(view) = self.view().await {
            self.leave_out(&before, &view);
        }
        // One with an older program has not said so itself.
        if let Err(why) = self.ask(name, "remove?now=true&force=true").await {
            self.tell(
                "warning",
                name,
                &format!("has left, but its certificate may still open doors: {why}"),
                &json!({"text": why}),
            );
        }
        let millis = begun.elapsed().as_millis() as u64;
        let text = format!("has left after {:.1} s; its folder may be deleted", millis as f64 / 1000.0);
        self.tell("removed", name, &text, &json!({"millis": millis}));
        Ok(())
    }
}

fn clones_at<'a>(view: &'a View, node: &'a str) -> impl Iterator<Item = &'a CloneView> {
    view.services.iter().flat_map(|s| &s.clones).filter(move |c| c.node == node)
}

fn is_well(n: &NodeView) -> bool {
    n.state == NodeState::Live && n.brick.settled && n.leaving.is_none()
}

/// Shards of which not all members are there and have all.
fn unwhole(view: &View) -> u64 {
    view.groups.all.saturating_sub(view.groups.whole)
}

/// Services with fewer clones that serve than there should be.
fn lacking(view: &View) -> Vec<String> {
    let serving = |s: &ServiceView| s.clones.iter().filter(|c| c.state == CloneState::Serving).count();
    view.services.iter().filter(|s| serving(s) < s.wanted as usize).map(|s| s.name.clone()).collect()
}
