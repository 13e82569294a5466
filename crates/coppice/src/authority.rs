//! `coppice ca`: another authority for the cluster, whose key signs certificates of nodes, in three turns while all nodes run. The nodes
//! follow by themselves (`certificate.rs`); this begins each turn when all have followed the one before.

use std::time::{Duration, Instant};

use node::view::View;
use serde_json::json;

use crate::client::Api;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum AuthorityCommand {
    /// Give the cluster another authority; all nodes take certificates of it, then the old one counts no more
    #[command(after_help = MORE)]
    Rotate(RotateArgs),
}

const MORE: &str = "\
Example:
  coppice ca rotate

Nodes go on. All of them must be there: remove one that does not come back. If it is cut short, say the same again: it goes
on where it was. Join tokens that were made before open nothing afterwards, and clients that trust `ca.pem` of a node's
folder need the new one.";

#[derive(Clone, Debug, clap::Args)]
pub struct RotateArgs {
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Nodes follow a turn within seconds, and restarts take less than this: who has not by then does not come by itself.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(300);
/// Turns that are one change of the authority.
const STEPS: u64 = 3;

pub async fn authority(command: AuthorityCommand) -> Result<(), String> {
    match command {
        AuthorityCommand::Rotate(args) => rotate(&args).await,
    }
}

async fn rotate(args: &RotateArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let mut at = followed(&api, args.json).await?;
    let mut refused = Instant::now();
    loop {
        let reply = api.post("/v1/authority/rotate", "", json!({"from": at}).to_string()).await?;
        if reply.status == 404 || reply.status == 405 {
            return Err("the node is of an older program, which has one authority for ever: bring it up to date".into());
        }
        match reply.json() {
            Ok(answer) => {
                for line in answer["changes"].as_array().into_iter().flatten().filter_map(|line| line.as_str()) {
                    tell(args.json, "turn", line, &json!({"turn": at + 1}));
                }
            }
            // A node that is asked now may see a moment less than the one before.
            Err(_) if reply.status == 503 && refused.elapsed() < FOLLOWED_WITHIN => {
                tokio::time::sleep(LOOK_EVERY).await
            }
            Err(why) => return Err(why),
        }
        let before = std::mem::replace(&mut at, followed(&api, args.json).await?);
        if at != before {
            refused = Instant::now();
        }
        if at % STEPS == 0 {
            tell(args.json, "rotated", "the cluster has another authority", &json!({"turn": at}));
            return Ok(());
        }
    }
}

/// Waits until all nodes have followed the turn that stands, and says which it is.
async fn followed(api: &Api, json: bool) -> Result<u64, String> {
    let (mut told, begun) = (Vec::new(), Instant::now());
    loop {
        let view: View = serde_json::from_value(api.get("/v1/status").await?.json()?)
            .map_err(|e| format!("the node's answer is of another version: {e}"))?;
        let waits = view.authority.waits;
        if waits.is_empty() {
            return Ok(view.authority.turn);
        }
        if waits != told {
            tell(json, "waiting", &format!("waits for {}", waits.join(", ")), &json!({"for": waits}));
            told = waits;
        }
        if begun.elapsed() > FOLLOWED_WITHIN {
            return Err(format!(
                "{} did not follow within {} minutes: start them, or remove those that do not come back (`coppice node remove`), \
                 and say the same again",
                told.join(", "),
                FOLLOWED_WITHIN.as_secs() / 60
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn tell(as_json: bool, event: &str, text: &str, more: &serde_json::Value) {
    if as_json {
        let mut line = json!({"event": event, "text": text});
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.clone());
        }
        say!("{line}");
    } else if event == "waiting" {
        complain!("{}", plain(text));
    } else {
        say!("{}", plain(text));
    }
}
