//! `coppice logs`: what the clones of a service have printed, on all nodes, in order of time. The node that is asked gathers it
//! (`logbook.rs`); with `--follow` it is asked again, each time from the last line of each node on.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::text::span_from_text;
use edge::api::logs::Gathered;
use host::access::NODE_LOG;
use host::logs::{LogLine, Source};

use crate::client::Api;
use crate::happened::clock;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};

/// Between two looks with `--follow`, if all was shown.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Clocks of nodes differ: a node that joins or comes back later is asked from so much before the first look on.
const CLOCKS_DIFFER_US: u64 = 2_000_000;

#[derive(Clone, Debug, clap::Args)]
pub struct LogsArgs {
    /// The service
    #[arg(required_unless_present = "nodes")]
    pub service: Option<String>,
    /// What nodes themselves have to say, not what clones print
    #[arg(long, conflicts_with_all = ["service", "access", "clone", "version"])]
    pub nodes: bool,
    /// Go on with what is printed from now on, until it is ended
    #[arg(short, long)]
    pub follow: bool,
    /// Its requests, if it has an access log, in place of what its clones print
    #[arg(long, conflicts_with_all = ["clone", "version"])]
    pub access: bool,
    /// Only of this clone: 0, 1, ...; 1000 is what goes before versions, 1001 what runs at times, from 1002 on `coppice run`
    #[arg(long, value_name = "NUMBER")]
    pub clone: Option<u32>,
    /// Only of this version
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u32>,
    /// Only what is younger: 30s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = span_from_text)]
    pub since: Option<u64>,
    /// The newest lines, so many at most
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub lines: u32,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

pub const MORE: &str = "\
Examples:
  coppice logs shop
  coppice logs -f shop --clone 2
  coppice logs shop --since 10m --lines 1000
  coppice logs --access -f shop
  coppice logs --nodes --since 1h
  coppice logs shop --json | jq 'select(.source == \"err\")'

Each node keeps the last 4 to 8 MiB of each of its clones. Lines of source `node` are the node's own: a start, an end.";

pub async fn logs(args: LogsArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let mut asked = Asked::new(&args);
    loop {
        match asked.look(&api, &args).await {
            Ok(gathered) => {
                for line in &gathered.lines {
                    tell(&args, line);
                }
                asked.tell_missing(&args, &gathered);
                if !args.follow {
                    return Ok(());
                }
                let has_more = gathered.more && asked.reads_on;
                asked.note(gathered);
                if has_more {
                    continue;
                }
                asked.reads_on = true;
            }
            // The node that is asked may be about to come back.
            Err(why) if args.follow && asked.reads_on => complain!("coppice: {}", plain(&why)),
            Err(why) => return Err(why),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl LogsArgs {
    fn whose(&self) -> &str {
        self.service.as_deref().filter(|_| !self.nodes).unwrap_or(NODE_LOG)
    }
}

/// Where the next look begins.
struct Asked {
    since_ms: u64,
    /// Where to read on, by node, as the last answers said.
    after_us: BTreeMap<String, u64>,
    /// The first look is done: from now on nothing is left out.
    reads_on: bool,
    /// Nodes that did not answer the last time.
    silent: Vec<String>,
}

impl Asked {
    fn new(args: &LogsArgs) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let since_ms = args.since.map_or(0, |since| now.saturating_sub(since));
        Self { since_ms, after_us: BTreeMap::new(), reads_on: false, silent: Vec::new() }
    }

    async fn look(&self, api: &Api, args: &LogsArgs) -> Result<Gathered, String> {
        let json = api.get(&self.path(args)).await?.json()?;
        serde_json::from_value(json).map_err(|e| format!("the node's answer is of another version: {e}"))
    }

    fn path(&self, args: &LogsArgs) -> String {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let service: String = args
            .whose()
            .bytes()
            .map(|b| if safe(b as char) { (b as char).into() } else { format!("%{b:02X}") })
            .collect();
        let mut path = format!("/v1/services/{service}/logs?lines={}&since_ms={}", args.lines, self.since_ms);
        args.clone.iter().for_each(|clone| path += &format!("&clone={clone}"));
        if args.access {
            path += "&access=true";
        }
        args.version.iter().for_each(|version| path += &format!("&version={version}"));
        if self.reads_on {
            let after: Vec<String> = self.after_us.iter().map(|(node, us)| format!("{node}:{us}")).collect();
            path += &format!("&after={}", after.join(","));
        }
        path
    }

    fn note(&mut self, gathered: Gathered) {
        if !self.reads_on {
            self.since_ms = self.since_ms.max(gathered.at_us.saturating_sub(CLOCKS_DIFFER_US) / 1000);
        }
        self.after_us.extend(gathered.after);
    }

    /// Says on standard error what is not shown, once.
    fn tell_missing(&mut self, args: &LogsArgs, gathered: &Gathered) {
        if gathered.silent != self.silent {
            if !gathered.silent.is_empty() {
                complain!(
                    "coppice: no answer from {}: lines of theirs are missing",
                    plain(&gathered.silent.join(", "))
                );
            }
            self.silent.clone_from(&gathered.silent);
        }
        if gathered.more && args.since.is_some() && !self.reads_on {
            complain!("coppice: these are the newest {}; --lines shows more", gathered.lines.len());
        }
    }
}

fn tell(args: &LogsArgs, line: &LogLine) {
    if args.json {
        say!("{}", serde_json::to_string(line).expect("a line is plain data"));
    } else {
        let shown = match (args.nodes, args.access) {
            (true, _) => node_text(line),
            (_, true) => access_text(line),
            _ => text(args.whose(), line),
        };
        say!("{shown}");
    }
}

/// `n1 | 192.0.2.1 - - [26/Nov/2026:03:12:07 +0000] "GET / HTTP/1.1" 200 512`: the line says when.
fn access_text(LogLine { node, source, line, .. }: &LogLine) -> String {
    format!("{} {} {}", plain(node), if *source == Source::Node { "*" } else { "|" }, plain(line))
}

/// `2026-11-22 14:03:07.123  n1 INFO leads the root group`
fn node_text(LogLine { at_us, node, line, .. }: &LogLine) -> String {
    format!("{}  {} {}", clock(at_us / 1000), plain(node), plain(line))
}

/// `2026-11-22 14:03:07.123  n1 shop/2 v3 | the line`
fn text(service: &str, line: &LogLine) -> String {
    let LogLine { at_us, node, clone, version, source, line } = line;
    let clone = clones::runs::Slot::of_number(*clone).map_or_else(|| clone.to_string(), |slot| slot.word());
    let of = match version {
        0 => format!("{} {}/{clone}", plain(node), plain(service)),
        version => format!("{} {}/{clone} v{version}", plain(node), plain(service)),
    };
    let mark = if *source == Source::Node { "*" } else { "|" };
    format!("{}  {of} {mark} {}", clock(at_us / 1000), plain(line))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LogsArgs,
    }

    fn line(at_us: u64, node: &str) -> LogLine {
        let line = "\u{1b}[2J{}".to_owned();
        LogLine { at_us, node: node.into(), clone: 2, version: 3, source: Source::Out, line }
    }

    #[test]
    fn a_line_says_when_and_where_and_steers_no_terminal() {
        let mut one = line(1_795_662_727_123_456, "n1");
        assert_eq!(text("shop", &one), "2026-11-26 03:12:07.123  n1 shop/2 v3 | \\u001b[2J{}");
        assert_eq!(access_text(&one), "n1 | \\u001b[2J{}");
        assert_eq!(node_text(&one), "2026-11-26 03:12:07.123  n1 \\u001b[2J{}");
        (one.version, one.source) = (0, Source::Node);
        assert_eq!(text("shop", &one), "2026-11-26 03:12:07.123  n1 shop/2 * \\u001b[2J{}");
    }

    #[test]
    fn the_next_look_begins_where_the_last_answer_said() {
        let args = Line::parse_from(["logs", "-f", "a b", "--clone", "1", "-n", "7"]).args;
        let access = Line::parse_from(["logs", "shop", "--access"]).args;
        assert_eq!(Asked::new(&access).path(&access), "/v1/services/shop/logs?lines=100&since_ms=0&access=true");
        assert!(Line::try_parse_from(["logs", "shop", "--access", "--clone", "1"]).is_err());
        let nodes = Line::parse_from(["logs", "--nodes"]).args;
        assert_eq!(Asked::new(&nodes).path(&nodes), "/v1/services/_node/logs?lines=100&since_ms=0");
        for wrong in [&["logs"][..], &["logs", "--nodes", "shop"], &["logs", "--nodes", "--access"]] {
            assert!(Line::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
        let mut asked = Asked::new(&args);
        assert_eq!(asked.path(&args), "/v1/services/a%20b/logs?lines=7&since_ms=0&clone=1");
        let after = |all: &[(&str, u64)]| all.iter().map(|(node, us)| ((*node).to_owned(), *us)).collect();
        asked.note(Gathered { after: after(&[("n1", 9), ("n2", 6)]), at_us: 30_000_000, ..Gathered::default() });
        asked.reads_on = true;
        assert_eq!(asked.path(&args), "/v1/services/a%20b/logs?lines=7&since_ms=28000&clone=1&after=n1:9,n2:6");
        // A node that does not answer is asked from its former place on.
        asked.note(Gathered { after: after(&[("n2", 17)]), at_us: 40_000_000, ..Gathered::default() });
        assert_eq!(asked.path(&args), "/v1/services/a%20b/logs?lines=7&since_ms=28000&clone=1&after=n1:9,n2:17");
    }
}
