//! `coppice run SERVICE -- COMMAND`: runs a command once, as a clone of a service, on a node; its output comes here, and its exit
//! status is that of this command.

use std::ffi::OsString;

use node::View;
use serde::Deserialize;

use crate::client::Api;
use crate::operate::NodeArgs;
use crate::plain::{complain, given, given_aside, plain};

/// The name under which the command line knows it: `run` without a service starts a node.
pub const NAME: &str = "run-once";

#[derive(Clone, Debug, clap::Args)]
pub struct OnceArgs {
    /// The service: its folder, environment, secrets and sandbox
    pub service: String,
    /// The node that runs it (default: the one that is asked)
    #[arg(long = "node", value_name = "NAME")]
    pub at: Option<String>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub node: NodeArgs,
}

pub const USAGE: &str = "coppice run [OPTIONS] <SERVICE> -- <COMMAND>...";
pub const MORE: &str = "\
Examples:
  coppice run shop -- python3 manage.py createsuperuser --noinput
  coppice run shop --node n2 -- sh -c 'ls; env'

Ctrl-C ends it. Its exit status is this command's: 128 and its number if a signal ended it, 127 if it could not be started, 125 if
the node was lost.";

/// `run` with a service, or with a command behind `--`, is this; else it starts a node.
pub fn renamed(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_run = words.get(1).is_some_and(|word| word == "run");
    let names_service = words.get(2).is_some_and(|word| !word.is_empty() && !word.as_encoded_bytes().starts_with(b"-"));
    if is_run && (names_service || words.iter().any(|word| word == "--")) {
        words[1] = NAME.into();
    }
    words
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Told {
    source: Option<String>,
    line: String,
    exit: Option<i32>,
    signal: Option<i32>,
    failed: Option<String>,
    why: Option<String>,
}

/// Never returns where the command has run.
pub async fn once(args: OnceArgs) -> Result<(), String> {
    let asked = args.node.operator()?;
    let api = match &args.at {
        Some(name) => at(&asked, name).await?,
        None => asked,
    };
    let body = serde_json::json!({"run": args.command}).to_string();
    let mut pieces = api.follow(&format!("/v1/services/{}/run", args.service), body).await?;
    let mut rest = Vec::new();
    loop {
        let piece = match pieces.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => lost("the node has ended, and the command with it"),
            Err(why) => lost(&why),
        };
        rest.extend_from_slice(&piece);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(told) => tell(told),
                Err(e) => lost(&format!("the node's answer is of another version: {e}")),
            }
        }
    }
}

fn lost(why: &str) -> ! {
    complain!("coppice: {}", plain(why));
    std::process::exit(125)
}

fn ends(status: i32, why: Option<&String>) -> ! {
    if let Some(why) = why {
        complain!("coppice: {}", plain(why));
    }
    std::process::exit(status)
}

/// Shows a line, or ends as the command has.
fn tell(told: Told) {
    let why = told.why.as_ref();
    match &told {
        Told { exit: Some(status), .. } => ends(*status, why),
        Told { signal: Some(signal), .. } => {
            complain!("coppice: killed by signal {signal}");
            ends(128 + signal, why)
        }
        Told { failed: Some(failed), .. } => {
            complain!("coppice: could not be started: {}", plain(failed));
            ends(127, why)
        }
        Told { source, line, .. } if source.as_deref() == Some("err") => given_aside(&format!("{line}\n")),
        Told { line, .. } => given(&format!("{line}\n")),
    }
}

/// The API of a node by its name.
async fn at(asked: &Api, name: &str) -> Result<Api, String> {
    let json = asked.get("/v1/status").await?.json()?;
    let view: View =
        serde_json::from_value(json).map_err(|e| format!("the node's answer is of another version: {e}"))?;
    let found = view.nodes.iter().find(|node| node.name == name);
    let known = || view.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let node = found.ok_or_else(|| format!("no node is named {name:?}; there are: {}", known()))?;
    let at = asked.at.of(node, &view).ok_or_else(|| format!("{name} has no API with TLS"))?;
    Ok(Api { at, token: asked.token.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_with_a_service_is_another_command_than_run_of_a_node() {
        let name = |words: &[&str]| {
            let words = ["coppice"].iter().chain(words).map(OsString::from).collect();
            renamed(words)[1].to_str().unwrap().to_owned()
        };
        for words in [&["run", "shop", "--", "ls"][..], &["run", "--node", "n2", "shop", "--", "ls"], &["run", "shop"]]
        {
            assert_eq!(name(words), NAME, "{words:?}");
        }
        for words in [&["run"][..], &["run", "--dir", "x"], &["run", "--help"]] {
            assert_eq!(name(words), "run", "{words:?}");
        }
        assert_eq!(name(&["status", "--", "run"]), "status");
    }
}
