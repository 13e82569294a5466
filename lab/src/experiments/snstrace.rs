//! A trace of people behind modems, made up so that it has the figures that the paper gives of its own, which is lost
//! (SNS 4.1, 4.2 and 4.4):
//! what files there are and how long they are (figure 5), how many requests come in each second, half minute and two minutes (figure 6),
//! and how often a cache has what is asked for, by its size and by how many people there are. `coppice load --trace` plays it.
//!
//! Everything in it is drawn from a seed. It is no measurement of anybody: plots say that it is generated.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use base::Rng;

use crate::Plan;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};

/// People of the paper's dialup lines, the requests of its trace, and how long that was.
const PEOPLE: u64 = 8_000;
const REQUESTS: u64 = 20_000_000;
/// Both, and caches, are so many times smaller here: shares stay as they are.
const SMALLER: u64 = 20;
/// Files that many ask for, and those that one asks for alone.
const SHARED: u64 = 2_500_000;
const OWN: u64 = 650;
/// Part of requests that are for the former; and how unevenly both are asked for (Zipf).
const OF_SHARED: f64 = 0.6;
const SHARED_SKEW: f64 = 0.85;
const OWN_SKEW: f64 = 0.9;
/// GB of caches, in the paper's measure.
const CACHES: [f64; 6] = [0.5, 1.0, 2.0, 4.0, 6.0, 10.0];
/// Lines of the file that is to be played.
const PLAYED: usize = 20_000;
const SEED: u64 = 1997;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Gif,
    Html,
    Jpeg,
    Other,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Gif => "GIF",
            Self::Html => "HTML",
            Self::Jpeg => "JPEG",
            Self::Other => "other",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Gif => "gif",
            Self::Html => "html",
            Self::Jpeg => "jpg",
            Self::Other => "bin",
        }
    }
}

fn part(rng: &mut Rng) -> f64 {
    (rng.u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number whose logarithm is normal, with this mean.
fn log_normal(rng: &mut Rng, mean: f64, sigma: f64) -> f64 {
    let normal = (-2.0 * (1.0 - part(rng)).ln()).sqrt() * (std::f64::consts::TAU * part(rng)).cos();
    (mean.ln() - sigma * sigma / 2.0 + sigma * normal).exp()
}

/// Each length as likely as any other on a scale of logarithms: a plateau of figure 5.
fn plateau(rng: &mut Rng, from: f64, to: f64) -> f64 {
    from * (to / from).powf(part(rng))
}

/// What a file is, by its number alone.
fn file(number: u64) -> (Kind, u64) {
    let mut rng = Rng::new(number ^ (SEED << 32));
    let kind = match part(&mut rng) {
        at if at < 0.50 => Kind::Gif,
        at if at < 0.72 => Kind::Html,
        at if at < 0.90 => Kind::Jpeg,
        _ => Kind::Other,
    };
    // Messages of errors under the name of a picture: the spikes at the left.
    let is_message = matches!(kind, Kind::Gif | Kind::Jpeg) && part(&mut rng) < 0.03;
    let bytes = match kind {
        _ if is_message => 200.0 + 12.0 * (part(&mut rng) * 4.0).floor(),
        // Icons and bullets below 1 KB, drawings above.
        Kind::Gif if part(&mut rng) < 0.63 => plateau(&mut rng, 40.0, 1024.0),
        Kind::Gif => plateau(&mut rng, 1024.0, 32_768.0),
        Kind::Html => log_normal(&mut rng, 5_131.0, 1.2),
        Kind::Jpeg => log_normal(&mut rng, 12_440.0, 1.0),
        Kind::Other => log_normal(&mut rng, 8_000.0, 1.5),
    };
    (kind, (bytes as u64).clamp(32, 4 << 20))
}

/// One of so many, the first the likeliest.
fn zipf(rng: &mut Rng, of: u64, skew: f64) -> u64 {
    let at = (((of as f64).powf(1.0 - skew) - 1.0) * part(rng) + 1.0).powf(1.0 / (1.0 - skew));
    (at as u64).min(of)
}

/// What one of so many people asks for.
fn asked(rng: &mut Rng, people: u64) -> u64 {
    if rng.chance(OF_SHARED) {
        return zipf(rng, SHARED / SMALLER, SHARED_SKEW);
    }
    let who = rng.below(people) + 1;
    (who << 32) | zipf(rng, OWN, OWN_SKEW)
}

/// A cache that lets go what was not asked for for longest: bytes, and files by the turn in which they were asked for last.
#[derive(Default)]
struct Lru {
    bytes_max: u64,
    bytes: u64,
    turns: HashMap<u64, u64>,
    files: BTreeMap<u64, (u64, u64)>,
    turn: u64,
}

impl Lru {
    fn of(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Whether it was there.
    fn ask(&mut self, file: u64, bytes: u64) -> bool {
        self.turn += 1;
        let before = self.turns.insert(file, self.turn);
        let was_there = before.and_then(|turn| self.files.remove(&turn)).is_some();
        self.files.insert(self.turn, (file, bytes));
        if was_there {
            return true;
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max {
            let Some((_, (file, bytes))) = self.files.pop_first() else { break };
            self.turns.remove(&file);
            self.bytes -= bytes;
        }
        false
    }
}

/// Of the second half of the requests of so many people: how many the caches had.
fn hits(people: u64, caches: &[f64]) -> Vec<f64> {
    let (people, requests) = (people / SMALLER, people * (REQUESTS / PEOPLE) / SMALLER);
    let bytes = |gb: &f64| (gb * 1e9 / SMALLER as f64) as u64;
    let mut all: Vec<(Lru, u64)> = caches.iter().map(|gb| (Lru::of(bytes(gb)), 0)).collect();
    let mut rng = Rng::new(SEED);
    for nth in 0..requests {
        let number = asked(&mut rng, people.max(1));
        let (_, bytes) = file(number);
        for (cache, count) in &mut all {
            let hit = cache.ask(number, bytes);
            *count += u64::from(hit && nth >= requests / 2);
        }
    }
    all.iter().map(|(_, count)| *count as f64 / (requests - requests / 2) as f64).collect()
}

/// Requests of each second of a day, of which the night has few. What makes a second differ from its neighbours comes and goes by half
/// minutes and by seconds, as people come and go, and as a page asks for its pictures at once.
fn seconds() -> Vec<u32> {
    let mut rng = Rng::new(SEED);
    let (mut crowd, mut page) = (1.0_f64, 1.0_f64);
    (0..86_400_u32)
        .map(|second| {
            let day = f64::from(second) / 86_400.0;
            let rate = 5.8 * (1.0 + 0.62 * (std::f64::consts::TAU * (day - 0.62)).cos());
            if second % 30 == 0 {
                crowd = 0.7 * crowd + 0.3 * log_normal(&mut rng, 1.0, 0.55);
            }
            page = 0.5 * page + 0.5 * log_normal(&mut rng, 1.0, 0.5);
            poisson(&mut rng, rate * crowd * page)
        })
        .collect()
}

fn poisson(rng: &mut Rng, mean: f64) -> u32 {
    let (end, mut product, mut count) = ((-mean).exp(), part(rng), 0);
    while product > end && count < 1_000 {
        product *= part(rng);
        count += 1;
    }
    count
}

/// Requests a second in each piece of so many seconds.
fn buckets(seconds: &[u32], long: usize) -> Vec<(f64, f64)> {
    let rate = |piece: &[u32]| f64::from(piece.iter().sum::<u32>()) / piece.len() as f64;
    seconds.chunks(long).enumerate().map(|(nth, piece)| ((nth * long) as f64, rate(piece))).collect()
}

fn mean_and_most(rates: &[(f64, f64)]) -> (f64, f64) {
    let sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
    (sum / rates.len().max(1) as f64, rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max))
}

/// Part of the files of a kind in each twentieth of a decade of lengths.
fn lengths(kind: Kind, files: &[(Kind, u64)]) -> Vec<(f64, f64)> {
    let of: Vec<f64> = files.iter().filter(|(of, _)| *of == kind).map(|(_, bytes)| (*bytes as f64).log10()).collect();
    let mut counts = BTreeMap::<u32, u32>::new();
    of.iter().for_each(|at| *counts.entry((at * 20.0) as u32).or_default() += 1);
    counts.into_iter().map(|(at, n)| (f64::from(at) / 20.0, f64::from(n) / of.len() as f64)).collect()
}

fn mean_of(kind: Kind, files: &[(Kind, u64)]) -> f64 {
    let of: Vec<u64> = files.iter().filter(|(of, _)| *of == kind).map(|(_, bytes)| *bytes).collect();
    of.iter().sum::<u64>() as f64 / of.len().max(1) as f64
}

/// As `coppice load --trace` reads it.
fn trace(seconds: &[u32]) -> String {
    let (mut rng, mut out) = (Rng::new(SEED), String::new());
    let peak = seconds.len() * 62 / 100;
    let times = seconds[peak..].iter().enumerate().flat_map(|(at, count)| (0..*count).map(move |_| at));
    for at in times.take(PLAYED) {
        let number = asked(&mut rng, PEOPLE / SMALLER);
        let (kind, bytes) = file(number);
        let _ = writeln!(
            out,
            "{{\"time\":{:.3},\"path\":\"/{number:x}.{}?bytes={bytes}\"}}",
            at as f64 + 0.5,
            kind.ending()
        );
    }
    out
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("snstrace");
    let mut push = |measure: &str, unit: &str, value: f64, paper: f64| {
        report.figures.push(Figure::new(measure, unit, value, "the paper", Some(paper)));
    };
    let mut rng = Rng::new(SEED);
    let files: Vec<(Kind, u64)> = (0..200_000).map(|_| file(asked(&mut rng, PEOPLE / SMALLER))).collect();
    for (kind, bytes, share) in [(Kind::Gif, 3_428.0, 50.0), (Kind::Html, 5_131.0, 22.0), (Kind::Jpeg, 12_070.0, 18.0)]
    {
        let of = files.iter().filter(|(of, _)| *of == kind).count() as f64;
        push(&format!("{}: part of requests", kind.name()), "%", of * 100.0 / files.len() as f64, share);
        push(&format!("{}: mean length", kind.name()), "B", mean_of(kind, &files), bytes);
    }
    let seconds = seconds();
    let peak = seconds.len() * 62 / 100;
    let figure6 = [
        ("a", "24 hours by 2 minutes", &seconds[..], 120, 5.8, 12.6),
        ("b", "3 h 20 min by 30 seconds", &seconds[peak / 2..peak / 2 + 12_000], 30, 5.6, 10.3),
        ("c", "3 min 20 s by seconds", &seconds[peak..peak + 200], 1, 8.1, 20.0),
    ];
    let mut drawn = Vec::new();
    for (which, title, of, long, mean, most) in figure6 {
        let rates = buckets(of, long);
        let (is_mean, is_most) = mean_and_most(&rates);
        push(&format!("requests, {title}: mean"), "1/s", is_mean, mean);
        push(&format!("requests, {title}: most"), "1/s", is_most, most);
        drawn.push((which, title, rates));
    }
    let of_all = hits(PEOPLE, &CACHES);
    let at_six = CACHES.iter().position(|gb| *gb == 6.0).map_or(0.0, |at| of_all[at]);
    push("hit rate of 6 GB, 8,000 people", "%", at_six * 100.0, 56.0);

    let mut csv = "people,gigabytes,hit_rate\n".to_owned();
    let mut curves = Vec::new();
    for people in [1_000, 2_000, 4_000, PEOPLE] {
        let rates = if people == PEOPLE { of_all.clone() } else { hits(people, &CACHES) };
        for (gb, rate) in CACHES.iter().zip(&rates) {
            let _ = writeln!(csv, "{people},{gb},{rate:.4}");
        }
        let points = CACHES.iter().copied().zip(rates).collect();
        curves.push(Line { name: format!("{people} people"), points });
    }
    report.write(&plan.out, "snstrace-hits.csv", &csv)?;
    let title = "Hit rate of an LRU cache (generated trace)";
    report.write(&plan.out, "snstrace-hits.svg", &lines(title, "GB", "part of requests", &curves, &[]))?;
    let curves: Vec<Line> = [Kind::Gif, Kind::Html, Kind::Jpeg]
        .map(|kind| Line { name: kind.name().into(), points: lengths(kind, &files) })
        .into();
    let title = "Lengths of files (SNS figure 5; generated)";
    report.write(&plan.out, "snstrace-5.svg", &lines(title, "log10 of bytes", "part of files", &curves, &[]))?;
    for (which, title, points) in drawn {
        let title = format!("Requests a second, {title} (SNS figure 6 {which}; generated)");
        let curve = [Line { name: "requests".into(), points }];
        report.write(&plan.out, &format!("snstrace-6{which}.svg"), &lines(&title, "seconds", "1/s", &curve, &[]))?;
    }
    report.write(&plan.out, "snstrace.jsonl", &trace(&seconds))?;
    report.notes.push("coppice load --trace snstrace.jsonl plays it; the origin has to give what ?bytes= says".into());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_as_long_and_requests_as_many_as_the_paper_says() {
        let mut rng = Rng::new(3);
        let files: Vec<(Kind, u64)> = (0..60_000).map(|_| file(rng.u64())).collect();
        for (kind, mean, share) in
            [(Kind::Gif, 3_428.0, 0.50), (Kind::Html, 5_131.0, 0.22), (Kind::Jpeg, 12_070.0, 0.18)]
        {
            let of = files.iter().filter(|(of, _)| *of == kind).count() as f64 / files.len() as f64;
            let is = mean_of(kind, &files);
            assert!((of - share).abs() < 0.01 && (is / mean - 1.0).abs() < 0.1, "{}: {of}, {is}", kind.name());
        }
        let small = files.iter().filter(|(kind, bytes)| *kind == Kind::Gif && *bytes < 1_024).count();
        let gifs = files.iter().filter(|(kind, _)| *kind == Kind::Gif).count();
        assert!((0.55..0.75).contains(&(small as f64 / gifs as f64)), "two plateaus");
        let seconds = seconds();
        let (mean, most) = mean_and_most(&buckets(&seconds, 120));
        assert!((mean / 5.8 - 1.0).abs() < 0.15 && (9.0..18.0).contains(&most), "{mean} {most}");
        let (_, by_seconds) = mean_and_most(&buckets(&seconds, 1));
        assert!(by_seconds > 1.5 * most, "it is uneven on each scale");
    }

    #[test]
    fn a_larger_cache_has_more_and_the_oldest_goes_first() {
        let mut cache = Lru::of(100);
        assert!(!cache.ask(1, 40) && !cache.ask(2, 40) && cache.ask(1, 40));
        assert!(!cache.ask(3, 40), "now 2 has gone");
        assert!(cache.ask(1, 40) && !cache.ask(2, 40));
        assert!(cache.bytes <= 100 && cache.turns.len() == cache.files.len());
        assert!(!cache.ask(9, 500) && cache.bytes == 0, "what is larger than all of it does not stay");
        let rates = hits(400, &[0.01, 0.1, 1.0]);
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
    }

    #[test]
    fn the_trace_can_be_played() {
        let text = trace(&seconds());
        let mut last = 0.0;
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let at = line["time"].as_f64().unwrap();
            assert!(at >= last && line["path"].as_str().unwrap().starts_with('/'));
            last = at;
        }
        assert_eq!(text.lines().count(), PLAYED);
    }
}
