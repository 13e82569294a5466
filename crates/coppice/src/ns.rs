//! `coppice ns`: what a namespace promises, and the odds that the promise is kept; new keys for its cookies; its values
//! as a file.

use base::text::{size_text, span_text};
use bytes::Bytes;
use node::view::{HotKeyView, LossWindow, NamespaceView, ShardView, UsedView};
use std::time::{Duration, Instant};

use crate::dump::{self, DumpArgs, LoadArgs};
use crate::operate::NodeArgs;
use crate::plain::{said, say};

/// New groups elect within a second. Who has just applied a declaration wants to see how it came out, and not how it begins.
const ELECTED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, clap::Subcommand)]
pub enum NsCommand {
    /// All namespaces, one a line
    #[command(after_help = "Examples:\n  coppice ns list\n  coppice ns list --json | jq -r '.[].name'")]
    List(ListArgs),
    /// Class and promise; of session: lease, odds of a loss; of linear: durability, groups and who leads them, hot keys
    #[command(
        after_help = "Examples:\n  coppice ns show carts\n  coppice ns show carts --json | jq .odds.p_loss\n  coppice ns show bank --json | jq -r '.shards[].leader'"
    )]
    Show(ShowArgs),
    /// Print the namespace's token: with its name as the user, programs reach it by it
    #[command(after_help = "Examples:\n  redis-cli --user carts --pass \"$(coppice ns token carts)\"")]
    Token(NamedArgs),
    /// Of class session: seal cookies with a new key; cookies of the old keys stay good
    #[command(after_help = "Examples:\n  coppice ns rotate carts\n  coppice ns rotate carts --end-sessions")]
    Rotate(RotateArgs),
    /// Write all that a namespace holds to a file
    #[command(
        after_help = "Examples:\n  coppice ns dump bank bank.dump\n  coppice ns dump bank --rate 10MiB | zstd > bank.dump.zst\n\n\
                            Of class linear all keys of a shard are of one moment; of session each is as it was at some moment\n\
                            meanwhile, and values by cookie are left out."
    )]
    Dump(DumpArgs),
    /// Put what `dump` has written into a namespace: its keys take the place of those there, others stay
    #[command(
        after_help = "Examples:\n  coppice ns load bank bank.dump\n  coppice ns load bank bank.dump --as bank-before\n\n\
                            The file is checked to its end before anything is changed. Loading again does no harm."
    )]
    Load(LoadArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// Name of the namespace
    pub name: String,
    /// Print JSON (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct NamedArgs {
    /// Name of the namespace
    pub name: String,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RotateArgs {
    /// The namespace
    name: String,
    /// Drop the old keys at once, for the case that one has leaked: everyone is logged out
    #[arg(long)]
    end_sessions: bool,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn ns(command: NsCommand) -> Result<(), String> {
    let not_ours = |e| format!("the node's answer is of another version: {e}");
    match command {
        NsCommand::List(args) => {
            let reply = args.node.reader()?.get("/v1/ns").await?;
            if args.json {
                say!("{}", reply.text()?);
                return Ok(());
            }
            let all: Vec<NamespaceView> = serde_json::from_value(reply.json()?).map_err(not_ours)?;
            let head = ["LEASE", "TIMEOUT", "P(LOSS)", "KEYS", "HOLDS"];
            let line = |name: &str, class: &str, [lease, timeout, odds, keys, holds]: [&str; 5]| {
                say!("{name:<16} {class:<8} {lease:>8} {timeout:>8} {odds:>9} {keys:>10} {holds:>16}");
            };
            line("NAMESPACE", "CLASS", head);
            for n in &all {
                let (keys, holds) = (n.used.map_or("-".into(), |used| used.keys.to_string()), holds(n.used));
                // Leases, timeouts and these odds are of bricks.
                let Some(odds) = &n.odds else {
                    line(&n.name, &n.class, ["-", "-", "-", &keys, &holds]);
                    continue;
                };
                let (lease, timeout) = (span_text(n.lease_ms), span_text(n.timeout_ms));
                line(&n.name, &n.class, [&lease, &timeout, &format!("{:.1e}", odds.p_loss), &keys, &holds]);
            }
        }
        NsCommand::Show(args) => {
            let (path, until) = (format!("/v1/ns/{}", name(&args.name)?), Instant::now() + ELECTED_WITHIN);
            let (reply, namespace) = loop {
                let reply = args.node.reader()?.get(&path).await?;
                let namespace: NamespaceView = serde_json::from_value(reply.json()?).map_err(not_ours)?;
                if is_led(&namespace) || Instant::now() >= until {
                    break (reply, namespace);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            };
            if args.json {
                say!("{}", reply.text()?);
            } else {
                said(&page(&namespace));
            }
        }
        NsCommand::Token(args) => {
            let path = format!("/v1/ns/{}/token", name(&args.name)?);
            let reply = args.node.operator()?.get(&path).await?.json()?;
            say!("{}", reply["token"].as_str().ok_or("the node's answer has no token")?);
        }
        NsCommand::Rotate(args) => rotate(args).await?,
        NsCommand::Dump(args) => dump::dump_command(args).await?,
        NsCommand::Load(args) => dump::load_command(args).await?,
    }
    Ok(())
}

/// A namespace's name, to be part of a path.
pub fn name(text: &str) -> Result<&str, String> {
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if text.is_empty() || !text.bytes().all(is_name) {
        return Err(format!("{text:?} is no namespace's name; `coppice ns list` shows those there are"));
    }
    Ok(text)
}

async fn rotate(args: RotateArgs) -> Result<(), String> {
    let path = format!("/v1/ns/{}/rotate?end_sessions={}", name(&args.name)?, args.end_sessions);
    let reply = args.node.operator()?.post(&path, "", Bytes::new()).await?.json()?;
    if args.json {
        say!("{reply}");
        return Ok(());
    }
    for change in reply["changes"].as_array().into_iter().flatten().filter_map(|c| c.as_str()) {
        say!("{change}");
    }
    Ok(())
}

fn window(LossWindow { force_after_ms, longest_ms }: LossWindow) -> String {
    let seen = match longest_ms {
        0 => "none of these nodes has had a write to force yet".to_owned(),
        longest => format!("the longest of these nodes since they started: {longest} ms"),
    };
    format!(
        "loss window:       {force_after_ms} ms and the time of a force, and only if the power of a majority of a group's\n                   \
         machines fails at once; {seen}\n"
    )
}

/// How much it holds, and how near to its bound that is if it has one; a dash of a class that does not tell.
pub fn holds(used: Option<UsedView>) -> String {
    match used {
        None => "-".to_owned(),
        Some(UsedView { percent: 0, bytes, .. }) => size_text(bytes),
        Some(UsedView { percent, bytes, .. }) => format!("{}, {percent} %", size_text(bytes)),
    }
}

/// What it holds, and what it may hold and take of each node.
fn quota(n: &NamespaceView) -> String {
    let of = |text: Option<String>| text.map(|most| format!(" of {most}")).unwrap_or_default();
    let held = |UsedView { bytes, keys, bytes_max, keys_max, percent }| {
        let fullest = if percent > 0 { format!("; {percent} % where it is fullest") } else { String::new() };
        format!(
            "holds:             {keys}{} {}, {}{}{fullest}\n",
            of(keys_max.map(|most: u32| most.to_string())),
            if n.class == "object" { "objects" } else { "keys" },
            size_text(bytes),
            of(bytes_max.map(size_text))
        )
    };
    let line = |most| format!("connections_max:   {most} Redis clients on each node\n");
    let rate = |most| format!("rate_max:          {most} operations a second on each node\n");
    n.used.map(held).unwrap_or_default()
        + &n.connections_max.map(line).unwrap_or_default()
        + &n.rate_max.map(rate).unwrap_or_default()
}

fn hot_keys(hot: &[HotKeyView]) -> String {
    let line = |hot: &HotKeyView| {
        format!("hot key:           {}: {} commands a second, {} wait\n", hot.key, hot.rate, hot.waiters)
    };
    hot.iter().map(line).collect()
}

/// Are all its groups there, with a leader? So it is if its class has none.
fn is_led(n: &NamespaceView) -> bool {
    let is_in_groups = state::Class::named(&n.class).is_some_and(state::Class::is_in_groups);
    !is_in_groups || (!n.shards.is_empty() && n.shards.iter().all(|shard| shard.leader.is_some()))
}

fn line(name: &str, text: &str) -> String {
    format!("{:<19}{text}\n", format!("{name}:"))
}

fn group(shard: &ShardView) -> String {
    let leader = match &shard.leader {
        Some(leader) => format!("led by {leader}"),
        None => "electing: this node has not heard of a leader yet".to_owned(),
    };
    line("group", &format!("{}: {}, {leader}", shard.name, shard.members.join(" ")))
}

/// What its class says of it, and how it does.
fn page(n: &NamespaceView) -> String {
    let mut text = line("namespace", &n.name) + &line("class", &n.class);
    if n.lines.is_empty() {
        text += &line("promise", &n.promise);
    }
    text.extend(n.lines.iter().map(|of| line(&of.name, &of.text)));
    text += &quota(n);
    text += &n.loss_window.map(window).unwrap_or_default();
    text.extend(n.shards.iter().map(group));
    text += &hot_keys(&n.hot);
    if let Some(odds) = &n.odds {
        text += &odds.text();
        text += "\nThe formula takes a dead brick for empty until the next write. Here it is filled again by the others within\n\
                 seconds, so the odds are better than these. Bricks that die together (one power line) are not in the formula.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_shown_as_its_class_says_also_one_that_this_program_does_not_know() {
        let shown = |of: serde_json::Value| {
            let mut namespace = serde_json::json!({"name": "n", "lease_ms": 0, "promise": "p"});
            namespace.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
            let namespace: NamespaceView = serde_json::from_value(namespace).unwrap();
            (is_led(&namespace), page(&namespace))
        };
        let head = |class| format!("namespace:         n\nclass:             {class}\n");
        // Of an older node, which tells no lines.
        assert_eq!(shown(serde_json::json!({"class": "later"})), (true, head("later") + "promise:           p\n"));
        let lines =
            serde_json::json!([{"name": "colour", "text": "red"}, {"name": "groups are split", "text": "never"}]);
        let shard = serde_json::json!({"name": "n/0", "leader": null, "members": ["n1", "n2"]});
        let of = serde_json::json!({"class": "linear", "lines": lines, "rate_max": 5, "shards": [shard]});
        let rest = "colour:            red\ngroups are split:  never\n\
                    rate_max:          5 operations a second on each node\n\
                    group:             n/0: n1 n2, electing: this node has not heard of a leader yet\n";
        assert_eq!(shown(of), (false, head("linear") + rest));
        assert!(shown(serde_json::json!({"class": "soft"})).0, "it has no leaders to wait for");
    }
}
