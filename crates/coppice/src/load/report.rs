//! What became of the requests, for people each second and at the end, and for scripts. Memory does not grow with the load.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Failure {
    Connect,
    Closed,
    Late,
}

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Late => "timeout",
        }
    }
}

pub struct Report {
    took: Duration,
    offered: u64,
    /// There was no room to let them wait.
    overflow: u64,
    answered: u64,
    statuses: BTreeMap<u16, u64>,
    failures: BTreeMap<Failure, u64>,
    /// Microseconds from when a request was due; of answers.
    latency: Histogram<u64>,
    /// The same from when it was sent.
    service: Histogram<u64>,
    /// How late this program was itself.
    behind: Duration,
    rate: Option<f64>,
    second: Second,
}

struct Second {
    latency: Histogram<u64>,
    offered: u64,
    bad: u64,
}

/// Latencies of up to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("sound bounds")
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
/// A generator that is later than that measures itself.
const BEHIND_TOLD: Duration = Duration::from_millis(20);

impl Report {
    pub fn new() -> Self {
        Self {
            took: Duration::ZERO,
            offered: 0,
            overflow: 0,
            answered: 0,
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency: histogram(),
            service: histogram(),
            behind: Duration::ZERO,
            rate: None,
            second: Second { latency: histogram(), offered: 0, bad: 0 },
        }
    }

    /// A request was due, and looked at so much later.
    pub fn offered(&mut self, behind: Duration, has_room: bool, rate: Option<f64>) {
        self.offered += 1;
        self.second.offered += 1;
        self.overflow += u64::from(!has_room);
        self.second.bad += u64::from(!has_room);
        self.behind = self.behind.max(behind);
        self.rate = rate;
    }

    pub fn answered(&mut self, answer: Result<u16, Failure>, latency: Duration, service: Duration) {
        let us = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        match answer {
            Ok(status) => {
                self.answered += 1;
                *self.statuses.entry(status).or_default() += 1;
                self.second.bad += u64::from(status >= 400);
                self.latency.saturating_record(us(latency));
                self.second.latency.saturating_record(us(latency));
                self.service.saturating_record(us(service));
            }
            Err(failure) => {
                *self.failures.entry(failure).or_default() += 1;
                self.second.bad += 1;
            }
        }
    }

    /// Neither answered nor failed yet.
    pub fn under_way(&self) -> u64 {
        self.offered - self.overflow - self.answered - self.failures.values().sum::<u64>()
    }

    pub fn ended(&mut self, took: Duration) {
        self.took = took;
    }

    fn failed(&self) -> u64 {
        let refused = self.statuses.range(400..).map(|(_, n)| n).sum::<u64>();
        refused + self.failures.values().sum::<u64>()
    }

    fn not_sent(&self) -> u64 {
        self.overflow + self.under_way()
    }

    /// All were sent, and answered with a status below 400.
    pub fn is_good(&self) -> bool {
        self.offered > 0 && self.failed() == 0 && self.not_sent() == 0
    }

    /// The line of one second, whose figures then begin anew.
    pub fn second(&mut self, number: u64) -> String {
        let quantile = |q| ms(self.second.latency.value_at_quantile(q));
        let rate = self.rate.map_or_else(String::new, |rate| format!("rate {rate}  "));
        let line = format!(
            "{number:>5} s  {rate}offered {}  answered {}  bad {}  p50 {}  p99 {}  max {} ms",
            self.second.offered,
            self.second.latency.len(),
            self.second.bad,
            quantile(0.5),
            quantile(0.99),
            ms(self.second.latency.max()),
        );
        self.second.latency.reset();
        (self.second.offered, self.second.bad) = (0, 0);
        line
    }

    pub fn json(&self) -> Value {
        let figures = |of: &Histogram<u64>| {
            let mut all: serde_json::Map<String, Value> =
                QUANTILES.iter().map(|(name, q)| ((*name).to_owned(), of.value_at_quantile(*q).into())).collect();
            all.insert("max".into(), of.max().into());
            all.insert("mean".into(), (of.mean().round() as u64).into());
            all
        };
        let failures: BTreeMap<&str, u64> = self.failures.iter().map(|(why, n)| (why.name(), *n)).collect();
        json!({
            "seconds": self.took.as_secs_f64(),
            "offered": self.offered,
            "answered": self.answered,
            "failed": self.failed(),
            "not_sent": self.not_sent(),
            "answered_per_second": self.per_second(),
            "statuses": self.statuses,
            "failures": failures,
            "latency_us": figures(&self.latency),
            "service_us": figures(&self.service),
            "generator_behind_us": self.behind.as_micros() as u64,
        })
    }

    fn per_second(&self) -> f64 {
        if self.took.is_zero() { 0.0 } else { self.answered as f64 / self.took.as_secs_f64() }
    }

    pub fn page(&self) -> String {
        let list = |of: &Histogram<u64>| {
            let quantiles = QUANTILES.iter().map(|(name, q)| format!("{name} {}", ms(of.value_at_quantile(*q))));
            format!("{}  max {} ms", quantiles.collect::<Vec<_>>().join("  "), ms(of.max()))
        };
        let statuses = self.statuses.iter().map(|(status, n)| format!("{n} with {status}"));
        let failures = self.failures.iter().map(|(why, n)| format!("{n} {}", why.name()));
        let ends: Vec<String> = statuses.chain(failures).collect();
        let ends = if ends.is_empty() { "nothing".to_owned() } else { ends.join(", ") };
        let mut page = format!(
            "{} requests were due in {:.1} s; answered {} ({:.1} a second), failed {}, not sent {}\n  ends     {ends}\n  latency  {}\n  service  {}\n",
            self.offered,
            self.took.as_secs_f64(),
            self.answered,
            self.per_second(),
            self.failed(),
            self.not_sent(),
            list(&self.latency),
            list(&self.service),
        );
        if self.behind > BEHIND_TOLD {
            let behind = self.behind.as_millis();
            page += &format!("  the generator itself was up to {behind} ms behind: this machine is too busy for it\n");
        }
        page
    }
}

fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_request_is_counted_once() {
        let mut report = Report::new();
        for n in 0..5 {
            report.offered(MS * n, n < 4, Some(2.0));
        }
        assert_eq!(report.under_way(), 4);
        report.answered(Ok(200), MS * 50, MS);
        report.answered(Ok(503), MS * 2, MS * 2);
        report.answered(Err(Failure::Late), MS, MS);
        assert_eq!(
            report.second(1),
            "    1 s  rate 2  offered 5  answered 2  bad 3  p50 2.00  p99 50.02  max 50.02 ms"
        );
        assert_eq!(report.second(2), "    2 s  rate 2  offered 0  answered 0  bad 0  p50 0.00  p99 0.00  max 0.00 ms");
        report.ended(MS * 2000);
        let json = report.json();
        let get = |name: &str| json[name].clone();
        assert_eq!(
            (get("offered"), get("answered"), get("failed"), get("not_sent")),
            (5.into(), 2.into(), 2.into(), 2.into())
        );
        assert_eq!(get("statuses"), serde_json::json!({"200": 1, "503": 1}));
        assert_eq!(get("failures"), serde_json::json!({"timeout": 1}));
        let near = |value: &Value, us: u64| (us..us + us / 500).contains(&value.as_u64().unwrap());
        assert!(near(&json["latency_us"]["max"], 50_000) && near(&json["service_us"]["max"], 2000), "{json}");
        assert!(!report.is_good() && report.page().contains("1 with 200, 1 with 503, 1 timeout"), "{}", report.page());
    }

    #[test]
    fn it_is_good_if_all_were_answered_well() {
        let mut report = Report::new();
        assert!(!report.is_good(), "nothing was done");
        report.offered(MS, true, None);
        assert!(!report.is_good());
        report.answered(Ok(302), MS, MS);
        assert!(report.is_good());
    }
}
