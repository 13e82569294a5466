//! `cargo run --release -p sim -- --seed N --minutes M [--nodes K] [--pace calm] [--seeds COUNT] [--history FILE]`: runs the
//! shipped node in the fake world and says what came of it. Without a seed it picks fresh ones and prints them. A broken
//! promise prints its seed, which gives the same run again, and ends with status 1.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use base::{Rng, Span};
use clap::Parser;
use sim::growth::NODES_MAX;
use sim::history::History;
use sim::pace::Pace;
use sim::plays::Name;
use sim::plays::linear::load::LONG;
use sim::porcupine::Shape;
use sim::scene::{self, Plan, Report};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Runs whole nodes in virtual time from one seed, with faults, and checks every promise")]
struct Args {
    /// The seed of the (first) run; fresh ones otherwise.
    #[arg(long)]
    seed: Option<u64>,
    /// Virtual minutes per seed, at most 115; 10 at the busy pace and 100 at the calm one, unless it is said.
    #[arg(long)]
    minutes: Option<u64>,
    /// How much happens in how much time.
    #[arg(long, value_enum, default_value_t = Pace::Busy)]
    pace: Pace,
    /// Nodes; otherwise drawn from the seed: mostly 3, sometimes 1 to 9.
    #[arg(long)]
    nodes: Option<usize>,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Where to keep what load asked and got, one JSON line per operation.
    #[arg(long)]
    history: Option<String>,
    /// A peer lies in every round of faults, and nothing else happens.
    #[arg(long)]
    lies: bool,
    /// Clients play this alone.
    #[arg(long, value_name = "PLAY")]
    only: Option<Name>,
    /// Print faults and notes as they come.
    #[arg(long)]
    loud: bool,
    /// Instead of all that: what a node costs when nothing happens, what a change and a request cost, of clusters of so many nodes,
    /// one JSON line each; and the law by which each of these grows from the first to the last.
    #[arg(long, value_delimiter = ',', value_name = "NODES")]
    idle: Vec<usize>,
    /// Instead: Porcupine's figures 7, 10 and 11 and table I, class `object` on made-up machines of so many nodes at most; one JSON line
    /// for each point.
    #[arg(long, value_name = "NODES", num_args = 0..=1, default_missing_value = "30")]
    porcupine: Option<usize>,
}

/// The points of each figure, the baseline first.
fn porcupine(nodes: usize, seed: u64) -> ExitCode {
    if !(1..=PORCUPINE_MAX).contains(&nodes) {
        eprintln!("nodes are 1 to {PORCUPINE_MAX}");
        return ExitCode::FAILURE;
    }
    let all = Shape { nodes, ..Shape::default() };
    let mut shapes = Vec::new();
    for count in [1, 2, 4, 8, 16, 24, 30].into_iter().filter(|count| *count <= nodes) {
        let with = Shape { nodes: count, ..all };
        shapes.extend([
            ("7: no copies", Shape { copies: 1, ..with }),
            ("7: two copies", with),
            ("7: two copies, the log in memory", Shape { in_memory: true, ..with }),
        ]);
    }
    for (copies, skew) in [1, 2].into_iter().flat_map(|copies| [0.0, 0.5, 1.0].map(|skew| (copies, skew))) {
        for (name, spread) in [("10: D1", 1), ("10: D2", 2), ("10: D4", 4), ("10: R", 16)] {
            if spread >= copies {
                shapes.push((name, Shape { copies, spread, skew, ..all }));
            }
        }
    }
    for (copies, fast) in [1, 2].into_iter().flat_map(|copies| [0, 1, 2, 3].map(|fast| (copies, fast))) {
        shapes
            .extend([("11: D2", Shape { copies, fast, ..all }), ("11: D4", Shape { copies, fast, spread: 4, ..all })]);
    }
    for (figure, shape) in shapes {
        let drawn = sim::porcupine::draw(seed, shape);
        println!("{}", serde_json::json!({"figure": figure, "shape": shape, "drawn": drawn}));
    }
    ExitCode::SUCCESS
}

fn idle(clusters: &[usize], seed: u64) -> ExitCode {
    if clusters.iter().any(|nodes| !(1..=NODES_MAX).contains(nodes)) {
        eprintln!("nodes are 1 to {NODES_MAX}");
        return ExitCode::FAILURE;
    }
    let mut all = Vec::new();
    for nodes in clusters {
        let costs = sim::growth::costs(seed, *nodes);
        println!("{}", serde_json::to_string(&costs).expect("plain figures are JSON"));
        all.push(costs);
    }
    if let [few, .., many] = &all[..] {
        let laws: serde_json::Map<_, _> =
            sim::growth::laws(few, many).into_iter().map(|(name, law)| (name.to_owned(), law.into())).collect();
        println!("{}", serde_json::json!({"from": few.nodes, "to": many.nodes, "laws": laws}));
    }
    ExitCode::SUCCESS
}

/// What counts of operations end with that were compared with what had to be seen.
const JUDGED: &str = " judged";
/// Some values of class `linear` have an end that must not come within a run.
const PORCUPINE_MAX: usize = 60;
const MINUTES_MAX: u64 = LONG.as_millis() / 60_000 - 5;

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.idle.is_empty() {
        return idle(&args.idle, args.seed.unwrap_or(1));
    }
    if let Some(nodes) = args.porcupine {
        return porcupine(nodes, args.seed.unwrap_or(1));
    }
    let minutes = args.minutes.unwrap_or(if args.pace == Pace::Busy { 10 } else { 100 });
    if !(1..=MINUTES_MAX).contains(&minutes) || args.seeds == 0 || args.nodes.is_some_and(|n| !(1..=50).contains(&n)) {
        eprintln!("minutes are 1 to {MINUTES_MAX}, seeds begin with 1, nodes are 1 to 50");
        return ExitCode::FAILURE;
    }
    let mut total = Total::default();
    for n in 0..args.seeds {
        let seed = match args.seed {
            Some(seed) => seed.wrapping_add(n),
            None => match fresh_seed() {
                Ok(seed) => seed,
                Err(error) => {
                    eprintln!("no entropy for a seed: {error}; name one with --seed");
                    return ExitCode::FAILURE;
                }
            },
        };
        let history = match args.history.as_ref().map(File::create) {
            None => History::default(),
            Some(Ok(file)) => History::to(Box::new(BufWriter::new(file))),
            Some(Err(error)) => {
                eprintln!("history cannot be kept: {error}");
                return ExitCode::FAILURE;
            }
        };
        let nodes = args.nodes.unwrap_or_else(|| nodes_of(seed));
        // Before the run, so that one which never ends can be told by its seed.
        print!("seed {seed} nodes {nodes}: ");
        let _ = std::io::stdout().flush();
        let began = Instant::now();
        let length = Span::secs(60 * minutes);
        let report = scene::run(Plan {
            seed,
            length,
            nodes,
            pace: args.pace,
            bug: None,
            lies: args.lies,
            only: args.only,
            history,
            loud: args.loud,
        });
        let speed = report.ran.as_secs_f64() / began.elapsed().as_secs_f64();
        print(&report, speed);
        total.add(&report);
        if report.broken.is_some() {
            if n > 0 {
                total.print(n + 1, true);
            }
            let pace = if args.pace == Pace::Calm { " --pace calm" } else { "" };
            let lies = if args.lies { " --lies" } else { "" };
            let only = args.only.map(|only| format!(" --only {}", only.text())).unwrap_or_default();
            println!(
                "again: cargo run --release -p sim -- --seed {seed} --minutes {minutes} --nodes {nodes}{pace}{lies}{only}"
            );
            return ExitCode::FAILURE;
        }
    }
    if args.seeds > 1 {
        total.print(args.seeds, false);
    }
    ExitCode::SUCCESS
}

fn print(report: &Report, speed: f64) {
    println!(
        "{:.1} simulated minutes, {} events, {speed:.0} x real time, trace {:016x}",
        report.ran.as_secs_f64() / 60.0,
        report.events,
        report.hash
    );
    println!("  faults: {}", counts(&report.faults));
    println!("  ops: {}", counts(&report.ops));
    if let Some(broken) = &report.broken {
        println!("{}", report.last);
        println!("SEED {} {broken}", report.seed);
    }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct Total {
    ran: Span,
    faults: BTreeMap<String, u64>,
    ops: BTreeMap<String, u64>,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.ran = self.ran + report.ran;
        for (to, from) in [(&mut self.faults, &report.faults), (&mut self.ops, &report.ops)] {
            from.iter().for_each(|(name, count)| *to.entry(name.clone()).or_default() += count);
        }
    }

    fn print(&self, seeds: u64, broken: bool) {
        let (hours, ended) =
            (self.ran.as_secs_f64() / 3600.0, if broken { "a promise broken" } else { "no promise broken" });
        let sum = |counts: &BTreeMap<String, u64>, of: &str| {
            counts.iter().filter(|(name, _)| name.ends_with(of)).map(|(_, count)| count).sum::<u64>()
        };
        let (faults, judged) = (sum(&self.faults, ""), sum(&self.ops, JUDGED));
        println!("{seeds} seeds, {hours:.2} simulated hours, {faults} faults, {judged} operations judged, {ended}");
        println!("  faults: {}", counts(&self.faults));
        println!("  ops: {}", counts(&self.ops));
    }
}

/// Mostly three, as that is what people run and where the promises are tightest.
fn nodes_of(seed: u64) -> usize {
    let mut rng = Rng::new(seed ^ 0x006e_6f64_6573);
    if rng.chance(0.7) { 3 } else { rng.between(1, 9) as usize }
}

/// The only chance in the simulator: everything else follows from it.
fn fresh_seed() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    // Short enough to copy by hand.
    Ok(u64::from_le_bytes(bytes) >> 24)
}
