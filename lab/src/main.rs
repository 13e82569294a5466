//! The lab: one experiment per figure of the papers and one per promise. Each starts what it needs, runs Coppice and
//! the peers in turn on this machine, prints a table with ratios, and writes CSV and an SVG plot.
//!
//! `cargo run --release -p lab -- list`, `cargo run --release -p lab -- run NAME [--json]`; `lab report` makes tables of runs that
//! are kept.

mod bulk;
mod callers;
mod client;
mod closed;
mod cluster;
mod deliveries;
mod etcd;
mod experiments;
mod faults;
mod h2;
mod hazelcast;
mod keep;
mod letters;
mod load;
mod nats;
mod open;
mod origin;
mod peers;
mod phone;
mod pictures;
mod plot;
mod postfix;
mod postgres;
mod procs;
mod proxies;
mod puts;
mod report;
mod sides;
mod sockets;
mod space;
mod table;
mod users;
mod watch;
mod web;
mod words;
mod worker;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measurements: Coppice and its peers, in turn, in one run on one machine")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The experiments
    List,
    /// Tables of docs/performance.md, in Markdown, of results that are kept
    Report {
        /// Experiments; all that are kept otherwise
        names: Vec<String>,
        /// Where the JSON of their runs is kept, with goals in goals.json
        #[arg(long, default_value = "lab/results")]
        results: PathBuf,
        /// A page that has places for the tables of all that are kept: they are written there
        #[arg(long, conflicts_with = "names")]
        into: Option<PathBuf>,
    },
    /// A service of known capacity, for experiments: runs as a clone
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        at_once: usize,
        #[arg(long)]
        takes_ms: u64,
        /// Now and then so much longer, at most
        #[arg(long, default_value_t = 0)]
        varies_ms: u64,
    },
    /// A service of large bodies, for experiments: runs as a clone
    #[command(hide = true)]
    Bulk,
    /// An application with sessions, for an experiment: runs as a clone
    #[command(hide = true)]
    Phone {
        /// memory, disk or bricks
        #[arg(long)]
        store: String,
        #[arg(long)]
        at_once: usize,
        #[arg(long)]
        takes_ms: u64,
        #[arg(long)]
        disk: PathBuf,
    },
    /// Run one
    Run {
        name: String,
        /// End with one JSON object on standard output; the table goes to standard error
        #[arg(long)]
        json: bool,
        /// Seconds of each measured run
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Runs of each side; the median is reported
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Connections to load with, where the experiment has them: 10,50,200
        #[arg(long, value_delimiter = ',')]
        connections: Vec<usize>,
        /// Only these parts, where the experiment has parts (`backup`: MiB; `linear`: three, one, leader, hot, start, idle; `soft`: updates, local, gets, messages, and only if they are asked for cut, away, fill, memory, checkpoint, loss, idle; `tempest`: latency, rogues, services, histogram, redundant; `redis`: commands, pipelines, memory; `mail`: load, kill, start; `cache`: hits, purge; `profiles`: updates, request; `growth`: nodes, routes and more; `figure11`: values, keys, versions, entries)
        #[arg(long, value_delimiter = ',')]
        part: Vec<String>,
        /// Upgrades of each kind, where the experiment has them
        #[arg(long, default_value_t = 20)]
        upgrades: usize,
        /// Users with a mailbox, where the experiment has them
        #[arg(long, default_value_t = 10_000)]
        users: usize,
        /// Entries, where the experiment has them
        #[arg(long, default_value_t = 1_000_000)]
        entries: usize,
        /// Where CSV, SVG and JSON go
        #[arg(long, default_value = "target/lab")]
        out: PathBuf,
    },
}

/// How long and how often to measure, and where results go.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seconds: u64,
    pub rounds: usize,
    /// Empty: what the experiment usually has.
    pub connections: Vec<usize>,
    /// Empty: all.
    pub parts: Vec<String>,
    pub upgrades: usize,
    pub users: usize,
    pub entries: usize,
    pub out: PathBuf,
}

impl Plan {
    pub fn has(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

/// Tables to print; or they are in a page by then.
fn report(names: &[String], results: &Path, into: Option<&Path>) -> Result<String, String> {
    let Some(into) = into else { return table::tables(results, names) };
    let page = std::fs::read_to_string(into).map_err(|e| format!("cannot read {}: {e}", into.display()))?;
    let made = table::put(&page, results)?;
    std::fs::write(into, made).map_err(|e| format!("cannot write {}: {e}", into.display()))?;
    Ok(String::new())
}

fn main() {
    match Cli::parse().command {
        Command::List => {
            for (name, about, _) in experiments::ALL {
                println!("{name:<10} {about}");
            }
        }
        Command::Report { names, results, into } => match report(&names, &results, into.as_deref()) {
            Ok(tables) => print!("{tables}"),
            Err(error) => {
                eprintln!("lab: {error}");
                std::process::exit(1);
            }
        },
        Command::Worker { at_once, takes_ms, varies_ms } => {
            let [takes, varies] = [takes_ms, varies_ms].map(std::time::Duration::from_millis);
            if let Err(error) = worker::run(at_once, takes, varies) {
                eprintln!("lab: {error}");
                std::process::exit(1);
            }
        }
        Command::Bulk => {
            if let Err(error) = bulk::run() {
                eprintln!("lab: {error}");
                std::process::exit(1);
            }
        }
        Command::Phone { store, at_once, takes_ms, disk } => {
            if let Err(error) = phone::run(&store, at_once, std::time::Duration::from_millis(takes_ms), disk) {
                eprintln!("lab: {error}");
                std::process::exit(1);
            }
        }
        Command::Run { name, json, seconds, rounds, connections, part: parts, upgrades, users, entries, out } => {
            let Some((_, _, run)) = experiments::ALL.iter().find(|(n, _, _)| *n == name) else {
                eprintln!("lab: there is no experiment {name:?}; `lab list` shows those there are");
                std::process::exit(2);
            };
            let known = experiments::parts(&name);
            if let Some(part) = parts.iter().find(|part| !known.contains(&part.as_str())) {
                eprintln!("lab: {name} has no part {part:?}; it has {known:?}");
                std::process::exit(2);
            }
            let plan = Plan { seconds, rounds: rounds.max(1), connections, parts, upgrades, users, entries, out };
            match run(&plan).and_then(|report| report.stored(&plan.out)) {
                Ok(report) => report.print(json),
                Err(error) => {
                    eprintln!("lab: {error}");
                    std::process::exit(1);
                }
            }
        }
    }
}
