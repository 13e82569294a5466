//! `coppice queue`: queues of jobs of class `linear`: what is in them, and dead jobs that wait again.

use base::text::span_text;
use serde_json::Value;

use crate::ns;
use crate::operate::NodeArgs;
use crate::plain::{plain, say};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum QueueCommand {
    /// All queues, or those of one namespace: how many jobs wait, and for how long
    #[command(
        after_help = "Examples:\n  coppice queue list\n  coppice queue list jobs --json | jq '.[] | select(.dead > 0).name'"
    )]
    List(ListArgs),
    /// One queue: its jobs, what has happened, what is repeated, and the first of its dead jobs
    #[command(
        after_help = "Examples:\n  coppice queue show jobs/mails\n  coppice queue show jobs/mails --state waiting --json | jq '.jobs[0]'"
    )]
    Show(ShowArgs),
    /// Let dead jobs wait again: all of a queue, or some by their ids
    #[command(after_help = "Examples:\n  coppice queue retry jobs/mails\n  coppice queue retry jobs/mails 17 23")]
    Retry(RetryArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// A namespace of class linear; else all of them
    namespace: Option<String>,
    /// Print JSON (see docs/scripts.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// NAMESPACE/QUEUE
    queue: Which,
    /// Which jobs are listed: waiting, later, held or dead
    #[arg(long, default_value = "dead", value_parser = ["waiting", "later", "held", "dead"])]
    state: String,
    /// Print JSON (see docs/scripts.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RetryArgs {
    /// NAMESPACE/QUEUE
    queue: Which,
    /// Ids of jobs; else all that are dead
    ids: Vec<u64>,
    /// Print JSON: {"retried": n, "dead": n}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

/// `NAMESPACE/QUEUE`, as `list` shows it. Names of queues may contain `/`.
#[derive(Clone, Debug)]
struct Which {
    path: String,
}

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no queue; write NAMESPACE/QUEUE, as `coppice queue list` shows it");
        let (namespace, queue) = text.split_once('/').filter(|(_, queue)| !queue.is_empty()).ok_or_else(wrong)?;
        Ok(Self { path: format!("/v1/ns/{}/queues/{}", ns::name(namespace)?, part(queue)) })
    }
}

/// A name as one part of a path.
fn part(name: &str) -> String {
    let as_is = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.bytes().map(|byte| if as_is(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Jobs that `show` lists.
const SHOWN: u64 = 20;
/// Characters of a payload that a line shows.
const PAYLOAD_SHOWN: usize = 60;

pub async fn queue(command: QueueCommand) -> Result<(), String> {
    match command {
        QueueCommand::List(args) => list(args).await,
        QueueCommand::Show(args) => show(args).await,
        QueueCommand::Retry(args) => retry(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let namespaces = match &args.namespace {
        Some(namespace) => vec![ns::name(namespace)?.to_owned()],
        None => {
            let all = api.get("/v1/ns").await?.json()?;
            let linear = all.as_array().into_iter().flatten().filter(|of| of["class"] == "linear");
            linear.filter_map(|of| of["name"].as_str().map(str::to_owned)).collect()
        }
    };
    let mut all = Vec::new();
    for namespace in namespaces {
        let mut reply = api.get(&format!("/v1/ns/{namespace}/queues")).await?.json()?;
        let Value::Array(queues) = reply["queues"].take() else { return Err(not_ours()) };
        for mut queue in queues {
            queue["namespace"] = namespace.as_str().into();
            all.push(queue);
        }
    }
    if args.json {
        say!("{}", Value::Array(all));
        return Ok(());
    }
    let line = |name: &str, [waiting, oldest, later, held, dead, done]: [&str; 6]| {
        say!("{name:<32} {waiting:>9} {oldest:>8} {later:>9} {held:>7} {dead:>7} {done:>10}");
    };
    line("QUEUE", ["WAITING", "OLDEST", "LATER", "HELD", "DEAD", "DONE"]);
    for queue in &all {
        let name = format!("{}/{}", text(&queue["namespace"]), text(&queue["name"]));
        let count = |name: &str| number(queue, name).to_string();
        let oldest = oldest(queue);
        line(
            &plain(&name),
            [&count("waiting"), &oldest, &count("later"), &count("held"), &count("dead"), &count("done")],
        );
    }
    Ok(())
}

async fn show(args: ShowArgs) -> Result<(), String> {
    let (api, path) = (args.node.operator()?, &args.queue.path);
    let mut shown = api.get(path).await?.json()?;
    let mut jobs = api.get(&format!("{path}/jobs?state={}&limit={SHOWN}", args.state)).await?.json()?;
    let mut repeats = api.get(&format!("{path}/repeats")).await?.json()?;
    (shown["jobs"], shown["repeats"]) = (jobs["jobs"].take(), repeats["repeats"].take());
    if args.json {
        say!("{shown}");
        return Ok(());
    }
    let count = |name: &str| number(&shown, name);
    say!("waiting: {}, the oldest for {}", count("waiting"), oldest(&shown));
    say!("later:   {}", count("later"));
    say!("held:    {}", count("held"));
    say!("dead:    {}", count("dead"));
    let so_far = ["put", "done", "failed", "lapsed", "died", "skipped"].map(|name| format!("{} {name}", count(name)));
    say!("so far:  {}", so_far.join(", "));
    for repeat in shown["repeats"].as_array().into_iter().flatten() {
        say!("repeat:  {} ({}): {}", text(&repeat["name"]), text(&repeat["times"]), payload(&repeat["payload"]));
    }
    for job in shown["jobs"].as_array().into_iter().flatten() {
        let (id, tries, most) = (number(job, "id"), number(job, "tries"), number(job, "tries_max"));
        let why = match &job["why"] {
            Value::String(why) if !why.is_empty() => format!(" ({})", plain(why)),
            _ => String::new(),
        };
        let age = span_text(number(job, "age_ms"));
        say!("{}: job {id}, {age} old, given {tries} of {most} times{why}: {}", args.state, payload(&job["payload"]));
    }
    Ok(())
}

async fn retry(args: RetryArgs) -> Result<(), String> {
    let (api, path) = (args.node.operator()?, format!("{}/retry", args.queue.path));
    let body = if args.ids.is_empty() { String::new() } else { serde_json::json!({"ids": args.ids}).to_string() };
    let mut retried = 0;
    let dead = loop {
        let reply = api.post(&path, "", body.clone()).await?.json()?;
        let now = number(&reply, "retried");
        retried += now;
        // All are a thousand at a time; some may die anew meanwhile.
        if !args.ids.is_empty() || now == 0 || number(&reply, "dead") == 0 {
            break number(&reply, "dead");
        }
    };
    if args.json {
        say!("{}", serde_json::json!({"retried": retried, "dead": dead}));
    } else {
        say!("{retried} jobs wait again; {dead} are dead");
    }
    Ok(())
}

fn not_ours() -> String {
    "the node's answer is of another version".to_owned()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or(0)
}

fn oldest(queue: &Value) -> String {
    if number(queue, "waiting") == 0 { "-".to_owned() } else { span_text(number(queue, "oldest_ms")) }
}

/// A name or a payload for people; other bytes as JSON has them.
fn text(of: &Value) -> String {
    of.as_str().map_or_else(|| of.to_string(), plain)
}

fn payload(of: &Value) -> String {
    let whole = text(of);
    let cut: String = whole.chars().take(PAYLOAD_SHOWN).collect();
    if cut.len() < whole.len() { format!("{cut}...") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_named_as_it_is_shown() {
        for (given, path) in [
            ("jobs/mails", "/v1/ns/jobs/queues/mails"),
            ("jobs/a/b c?", "/v1/ns/jobs/queues/a%2Fb%20c%3F"),
            ("jobs/é", "/v1/ns/jobs/queues/%C3%A9"),
        ] {
            assert_eq!(given.parse::<Which>().unwrap().path, path);
        }
        for wrong in ["mails", "jobs/", "/mails", "Jobs/mails"] {
            assert!(wrong.parse::<Which>().unwrap_err().contains("no "), "{wrong}");
        }
    }

    #[test]
    fn a_long_payload_is_cut_where_a_character_ends() {
        assert_eq!(payload(&"é".repeat(60).into()), "é".repeat(60));
        assert_eq!(payload(&"é".repeat(61).into()), "é".repeat(60) + "...");
        assert_eq!(payload(&serde_json::json!({"base64": "AP8="})), r#"{"base64":"AP8="}"#);
    }
}
