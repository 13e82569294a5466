//! `coppice load`: sends requests as a crowd does. Arrivals are open-loop: they come by the clock (at a rate that may be changed
//! while it runs, or as a trace has them), whatever became of those before; and latency counts from the moment a request was
//! due, so a stall is not spared the requests of its time.
//!
//! `schedule.rs` says when; `trace.rs` reads what; `engine.rs` sends and waits, with bounded memory; `report.rs` counts and shows.

mod engine;
mod report;
mod schedule;
mod trace;

use std::io::{BufRead, BufReader, IsTerminal};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Uri};
use tokio::sync::mpsc;

use crate::plain::{complain, said, say};
use engine::{Plan, Want};
use schedule::{Pace, Schedule};

/// Some requests failed, or were not sent in time.
const FAILED: i32 = 3;
/// Words from standard input that are not obeyed yet. People and scripts do not say more.
const WORDS_MAX: usize = 16;
const RATE_MAX: f64 = 1_000_000.0;
/// Enough to see something, and too little to hurt anybody.
const RATE_DEFAULT: f64 = 100.0;

#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Where to: http://HOST[:PORT][/PATH]. A trace's paths are put in place of this path
    #[arg(value_name = "URL", value_parser = address)]
    pub url: Uri,
    /// Requests a second (default: 100). With --trace: its requests, in their order, at this rate (default: by its times)
    #[arg(long, value_name = "N", value_parser = rate)]
    pub rate: Option<f64>,
    /// Requests by their timestamps: JSON lines {"time": SECONDS, "method": "GET", "path": "/", "body": "..."} or CSV
    /// time,method,path. Time counts from the first line's; method and body may be left out
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Play a trace so many times faster
    #[arg(long, value_name = "X", default_value = "1", value_parser = rate)]
    pub speed: f64,
    /// How long: 30s, 10m. Else until a trace ends, or 10s
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub duration: Option<Duration>,
    /// Arrivals at random around the rate (Poisson), as strangers come, instead of evenly
    #[arg(long)]
    pub poisson: bool,
    /// Seed of --poisson
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Connections at most; they stay open
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub connections: u16,
    /// Requests that wait for a connection at most; further ones are counted as not sent
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub waiting: u32,
    /// An answer that takes longer (from when the request is sent) is a failure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    pub timeout: Duration,
    /// Method of requests that no trace gives one
    #[arg(short = 'X', long, default_value = "GET")]
    pub method: Method,
    /// A header field of all requests, 'Name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = field)]
    pub header: Vec<(HeaderName, HeaderValue)>,
    /// Body of requests that no trace gives one
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub body: String,
    /// Obey lines on standard input while it runs: `rate 500`, `stop`
    #[arg(long)]
    pub control: bool,
    /// The other side is not this machine, and I may load it
    #[arg(long)]
    pub remote: bool,
    /// No line each second
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub const EXAMPLES: &str = "\
Examples:
  coppice load http://127.0.0.1:8080/ --rate 500 --duration 30s
  coppice load http://127.0.0.1:8080/add -X POST --body ware=honey -H 'Content-Type: application/x-www-form-urlencoded' --rate 50
  coppice load http://127.0.0.1:8080/ --trace day.jsonl --speed 60 --json | jq .latency_us
  (sleep 5; echo rate 2000; sleep 5; echo stop) | coppice load http://127.0.0.1:8080/ --rate 200 --duration 1h --control

A line each second goes to standard error. `latency` counts from when a request was due, `service` from when it was sent.
Exit status: 0 all were answered with a status below 400, 1 it could not run, 2 wrong arguments, 3 some failed or were not sent.";

pub fn load(args: LoadArgs) -> Result<(), String> {
    if args.trace.is_some() && args.rate.is_none() && (args.control || args.poisson) {
        let why = "--control and --poisson need --rate: without it a trace's own times hold\n";
        clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, why).exit();
    }
    let plan = plan(&args)?;
    let schedule = schedule(&args)?;
    let words = args.control.then(words);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| format!("cannot start: {e}"))?;
    let report = runtime.block_on(engine::run(plan, schedule, words))?;
    // Readers of standard input cannot be woken: the program ends without them.
    runtime.shutdown_background();
    if args.json {
        say!("{}", report.json())
    } else {
        said(&report.page())
    }
    if report.is_good() {
        return Ok(());
    }
    std::process::exit(FAILED);
}

fn plan(args: &LoadArgs) -> Result<Plan, String> {
    let (addr, want, host) = target(args)?;
    let mut headers = vec![(hyper::header::HOST, host)];
    for (name, value) in &args.header {
        // A name of one's own in place of the URL's.
        headers.retain(|(has, _)| *has != hyper::header::HOST || name != has);
        headers.push((name.clone(), value.clone()));
    }
    let (waiting, connections) = (args.waiting as usize, args.connections.into());
    Ok(Plan { addr, want, headers, connections, waiting, timeout: args.timeout, quiet: args.quiet })
}

fn target(args: &LoadArgs) -> Result<(SocketAddr, Want, HeaderValue), String> {
    let wrong = |why: &str| format!("{} cannot be loaded: {why}", args.url);
    let authority = args.url.authority().ok_or_else(|| wrong("it names no host"))?;
    let (name, port) = (authority.host(), authority.port_u16().unwrap_or(80));
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().map_err(|e| wrong(&e.to_string()))?;
    let all: Vec<SocketAddr> = found.collect();
    let addr = *all.first().ok_or_else(|| wrong("its host has no address"))?;
    if !args.remote && !all.iter().all(|addr| addr.ip().is_loopback()) {
        return Err(format!("{addr} is not this machine; say --remote if you may load it"));
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|e| wrong(&e.to_string()))?;
    let path = args.url.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let want = Want { method: args.method.clone(), path, body: Bytes::from(args.body.clone()) };
    Ok((addr, want, host))
}

/// What can be an address to load.
fn address(text: &str) -> Result<Uri, String> {
    let wrong = |why: &str| format!("{why}; http://127.0.0.1:8080/ is an address to load");
    let url: Uri = text.parse().map_err(|e| wrong(&format!("{e}")))?;
    match url.scheme_str() {
        Some("http") => Ok(url),
        Some("https") => Err(wrong("TLS is not spoken here, load the plain port")),
        _ => Err(wrong("it does not begin with http://")),
    }
}

fn schedule(args: &LoadArgs) -> Result<Schedule, String> {
    let trace = args.trace.as_deref().map(trace::Trace::open).transpose()?;
    if trace.is_some() && args.rate.is_none() {
        return Ok(Schedule::new(Pace::Trace { speed: args.speed }, trace, args.duration));
    }
    let pace = Pace::Rate { per_second: args.rate.unwrap_or(RATE_DEFAULT), poisson: args.poisson.then_some(args.seed) };
    let duration = args.duration.or_else(|| trace.is_none().then_some(Duration::from_secs(10)));
    Ok(Schedule::new(pace, trace, duration))
}

/// What is said while it runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Word {
    Rate(f64),
    Stop,
}

impl std::str::FromStr for Word {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["rate", per_second] => rate(per_second).map(Word::Rate),
            ["stop"] => Ok(Word::Stop),
            _ => Err(format!("{line:?} is not understood: say `rate 500` or `stop`")),
        }
    }
}

/// Lines of standard input, read by a thread that ends with the program.
fn words() -> mpsc::Receiver<Word> {
    let (say, words) = mpsc::channel(WORDS_MAX);
    std::thread::spawn(move || {
        if std::io::stdin().is_terminal() {
            complain!("say `rate N` or `stop`");
        }
        for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok).filter(|l| !l.trim().is_empty()) {
            match line.parse() {
                Ok(word) => {
                    if say.blocking_send(word).is_err() {
                        return;
                    }
                }
                Err(why) => complain!("coppice: {why}"),
            }
        }
    });
    words
}

fn rate(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    let fits = number > 0.0 && number <= RATE_MAX;
    fits.then_some(number).ok_or_else(|| format!("{text} is not above 0 and at most {RATE_MAX}"))
}

fn span(text: &str) -> Result<Duration, String> {
    base::text::span_from_text(text).map(Duration::from_millis)
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'Name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is no header's name"))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| format!("{value:?} cannot be a header's value"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn args(words: &[&str]) -> LoadArgs {
        <Cli as clap::Parser>::try_parse_from([&["load"], words].concat()).unwrap().load
    }

    #[test]
    fn only_this_machine_is_loaded_unless_one_says_so() {
        let told = |url: &str| target(&args(&[url])).map(|(addr, want, _)| (addr.to_string(), want.path));
        assert_eq!(told("http://127.0.0.1:8080/a?b=c"), Ok(("127.0.0.1:8080".into(), "/a?b=c".into())));
        assert_eq!(told("http://[::1]:81"), Ok(("[::1]:81".into(), "/".into())));
        assert!(told("http://192.0.2.1/").unwrap_err().contains("--remote"));
        assert!(target(&args(&["http://192.0.2.1/", "--remote"])).is_ok());
        for (url, why) in [("https://127.0.0.1/", "TLS"), ("127.0.0.1:80", "http://"), ("http://", "an address")] {
            assert!(address(url).unwrap_err().contains(why), "{url}: {:?}", address(url));
        }
    }

    #[test]
    fn a_header_of_ones_own_replaces_the_host() {
        let plan = plan(&args(&["http://127.0.0.1:1/", "-H", "Host: shop.example", "-H", "A: b"])).unwrap();
        let shown: Vec<_> = plan.headers.iter().map(|(n, v)| format!("{n}={}", v.to_str().unwrap())).collect();
        assert_eq!(shown, ["host=shop.example", "a=b"]);
    }

    #[test]
    fn words_are_understood_or_told_what_would_be() {
        assert_eq!("rate 2.5".parse(), Ok(Word::Rate(2.5)));
        assert_eq!(" stop ".parse(), Ok(Word::Stop));
        for wrong in ["rate", "rate 0", "rate -1", "rate NaN", "faster"] {
            assert!(wrong.parse::<Word>().is_err(), "{wrong}");
        }
    }
}
