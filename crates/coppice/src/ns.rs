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

/// Are all its groups there, with a leader?
fn is_led(n: &NamespaceView) -> bool {
    n.class == "object"
        || n.odds.is_some()
        || n.size_max.is_some()
        || (!n.shards.is_empty() && n.shards.iter().all(|shard| shard.leader.is_some()))
}

/// Of class `cache`.
fn cache_page(n: &NamespaceView, size_max: u64) -> String {
    let (name, class, promise, size) = (&n.name, &n.class, &n.promise, base::text::size_text(size_max));
    let ttl = n.ttl_ms.map_or("as long as there is room".to_owned(), |ms| format!("{} at most", span_text(ms)));
    format!(
        "namespace:         {name}\nclass:             {class}\npromise:           {promise}\n\
         size:              {size} at each node; past it, what is asked for least goes\n\
         kept:              {ttl}, unless the write says otherwise\n\
         survives:          nothing: what a node has is gone with it, and asked for anew\n"
    )
}

/// Whether its groups are split by themselves, of class `linear`.
fn splits(n: &NamespaceView) -> String {
    if n.class != "linear" {
        return String::new();
    }
    let text = match n.shards_declared.as_deref() {
        Some("auto") => "by themselves, when they have grown large: shards = \"auto\"".to_owned(),
        Some(count) => format!("only as declared: shards = {count}"),
        None => {
            "never by themselves, as shards is not declared; \"auto\" is for programs that bear it that keys lie apart"
                .into()
        }
    };
    format!("groups are split:  {text}\n")
}

fn page(n: &NamespaceView) -> String {
    if let Some(size_max) = n.size_max {
        return cache_page(n, size_max);
    }
    let Some(odds) = &n.odds else {
        let shard = |s: &ShardView| {
            let leader = match &s.leader {
                Some(leader) => format!("led by {leader}"),
                None => "electing: this node has not heard of a leader yet".to_owned(),
            };
            format!("group:             {}: {}, {leader}\n", s.name, s.members.join(" "))
        };
        let shards: String = n.shards.iter().map(shard).collect();
        let shards = splits(n) + &shards;
        let (name, class, promise) = (&n.name, &n.class, &n.promise);
        let durability =
            n.durability.as_deref().unwrap_or(if n.class == "soft" { "memory, on every node" } else { "disk" });
        let weak = match n.weak.join(", ") {
            none if none.is_empty() => none,
            weak => format!("weak functions:    {weak}\n"),
        };
        let functions = n.functions.as_ref().map(|service| format!("functions:         of service {service}\n"));
        return format!(
            "namespace:         {name}\nclass:             {class}\npromise:           {promise}\n\
             durability:        {durability}\n{weak}{}{}{}{shards}{}",
            functions.unwrap_or_default(),
            quota(n),
            n.loss_window.map(window).unwrap_or_default(),
            hot_keys(&n.hot)
        );
    };
    format!(
        "namespace:         {}\n\
         class:             {}\n\
         lease:             {} after the last write or touch\n\
         timeout:           {}, then a brick is passed over\n\
         promise:           {}\n\
         {}{}\n\
         The formula takes a dead brick for empty until the next write. Here it is filled again by the others within\n\
         seconds, so the odds are better than these. Bricks that die together (one power line) are not in the formula.\n",
        n.name,
        n.class,
        span_text(n.lease_ms),
        span_text(n.timeout_ms),
        n.promise,
        quota(n),
        odds.text(),
    )
}
