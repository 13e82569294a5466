//! `coppice upgrade`: another program on all nodes, and all of them restarted in turn as that one; or the way back. First every node
//! has it and has tried whether it runs; only then the first becomes it. What was begun may be interrupted at any moment, and
//! is ended by the same command again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edge::api::program::{Kept, Runs};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::nodes::{CALM_WITHIN, Cluster, rolling_order};
use crate::operate::NodeArgs;
use crate::program_desk::BEFORE;

/// Below the help of `coppice upgrade`.
pub const MORE: &str = "\
Examples:
  coppice upgrade ./coppice           all nodes keep it, try it, and become it one after the other
  coppice upgrade --undo              back to the program before, likewise

The program lies in each node's folder (programs/) beside the installed one, which starts it from then on, until that one
is itself replaced (by a package, say). One that does not stay up is left again by its node. It is not taken if its level
is below what the cluster agreed on (docs/guide/what-survives-what.md).";

/// How long a node that has just become another program may take to say so.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct UpgradeArgs {
    /// The program
    #[arg(group = "what")]
    pub file: Option<PathBuf>,
    /// Back to the program before, where the last upgrade was made
    #[arg(long, group = "what")]
    pub undo: bool,
    /// Even if sessions may be lost or refused by it
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

pub async fn upgrade(args: UpgradeArgs) -> Result<(), String> {
    let mut cluster = Cluster::new(&args.node, args.json)?;
    match &args.file {
        Some(file) => {
            let program = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
            forward(&mut cluster, program, args.force).await
        }
        None => back(&mut cluster, args.force).await,
    }
}

async fn forward(cluster: &mut Cluster, program: Vec<u8>, force: bool) -> Result<(), String> {
    let hash = digest(&SHA256, &program);
    let name: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let view = cluster.view().await?;
    let order = rolling_order(&view);
    let away: Vec<&str> = view
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .filter(|node| !order.iter().any(|name| name == node))
        .collect();
    if !away.is_empty() && !force {
        return Err(format!(
            "{} is away, and would come back with its former program; --force upgrades the others all the same",
            away.join(", ")
        ));
    }
    let kept = cluster.first("PUT", &format!("/v1/program/{name}"), program.into()).await;
    let kept = kept.map_err(|why| format!("nothing is restarted: {why}"))?;
    let kept: Kept =
        serde_json::from_value(kept).map_err(|e| format!("the node's answer is of another version: {e}"))?;
    let text = format!("keep it (version {}, level {})", kept.version, kept.level);
    let more = json!({"sha256": name, "version": kept.version, "level": kept.level, "nodes": kept.nodes});
    cluster.tell("kept", &kept.nodes.join(", "), &text, &more);
    let mut left = Vec::new();
    for node in order {
        match cluster.program(&node, None).await? {
            runs if runs.now == name && runs.next == name => cluster.tell("is", &node, "runs it already", &json!({})),
            _ => left.push(node),
        }
    }
    restart_as(cluster, &left, &name, force).await
}

async fn back(cluster: &mut Cluster, force: bool) -> Result<(), String> {
    let order = rolling_order(&cluster.view().await?);
    let mut all = Vec::new();
    for node in order {
        let runs = cluster.program(&node, None).await?;
        all.push((node, runs));
    }
    let last = all.iter().map(|(_, runs)| runs).filter(|runs| runs.at_ms > 0).max_by_key(|runs| runs.at_ms);
    let last = last.ok_or("there was no upgrade to go back from")?.next.clone();
    let nodes: Vec<String> =
        all.into_iter().filter(|(_, runs)| runs.at_ms > 0 && runs.next == last).map(|(node, _)| node).collect();
    restart_as(cluster, &nodes, BEFORE, force).await
}

/// One after the other becomes what it is told; the first that does not is the last that is asked.
async fn restart_as(cluster: &mut Cluster, nodes: &[String], to: &str, force: bool) -> Result<(), String> {
    for (done, node) in nodes.iter().enumerate() {
        if let Err(why) = become_it(cluster, node, to, force).await {
            let left = nodes[done + 1..].join(", ");
            let left = if left.is_empty() { String::new() } else { format!("\n  not asked: {left}") };
            let undo =
                if to == BEFORE { "" } else { "\n  `coppice upgrade --undo` goes back, the same command goes on" };
            return Err(format!("{why}{left}{undo}"));
        }
    }
    Ok(())
}

async fn become_it(cluster: &mut Cluster, node: &str, to: &str, force: bool) -> Result<(), String> {
    cluster.calm(node, force).await?;
    let chosen = cluster.program(node, Some(to)).await?;
    cluster.restart(node, force, CALM_WITHIN).await?;
    let begun = Instant::now();
    loop {
        match cluster.program(node, None).await {
            Ok(runs) if runs.now == chosen.next => {
                let which = if runs.now.is_empty() { "the installed program" } else { &runs.now[..12] };
                cluster.tell("runs", node, &format!("runs {which}"), &json!({"sha256": runs.now}));
                return Ok(());
            }
            Ok(runs) if !runs.failed.is_empty() && runs.failed == chosen.next => {
                return Err(format!(
                    "{node} did not stay up with that program, and went back by itself (its log says why)"
                ));
            }
            // What runs now knows nothing of upgrades, and is well.
            Err(_) if begun.elapsed() > TOLD_WITHIN => {
                cluster.tell("runs", node, "does not say what it runs: its program knows of no upgrades", &json!({}));
                return Ok(());
            }
            Ok(_) if begun.elapsed() > TOLD_WITHIN => {
                return Err(format!("{node} is back, but with another program; its log says why"));
            }
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Cluster {
    /// What a node runs, after it was told what is next, if something is.
    async fn program(&self, node: &str, to: Option<&str>) -> Result<Runs, String> {
        let (method, to) = to.map_or(("GET", String::new()), |to| ("POST", format!("?to={to}")));
        let runs = self.first(method, &format!("/v1/nodes/{node}/program{to}"), Bytes::new()).await;
        serde_json::from_value(runs?).map_err(|e| format!("the node's answer is of another version: {e}"))
    }
}
