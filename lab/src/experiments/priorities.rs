//! Five times more than a service can do, in two priorities (Ninja 3.3; users ask Envoy for it): the upper one is to be
//! served as if nothing were, the rest of the capacity is to be used, and afterwards all is to be as before. Open loop: requests
//! leave by the clock, and latency counts from when they were due.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Plan;
use crate::cluster::Cluster;
use crate::load::histogram;
use crate::peers::wait_until;
use crate::plot::{Line, lines};
use crate::report::{Figure, Report, median};

const CLONES: u32 = 4;
/// Requests that one clone serves at once, and how long each takes.
const AT_ONCE: usize = 5;
const TAKES: Duration = Duration::from_millis(25);
const CAPACITY: f64 = CLONES as f64 * AT_ONCE as f64 / 0.025;
const BIN: Duration = Duration::from_millis(500);
/// A success that comes later is none.
const DEADLINE: Duration = Duration::from_millis(500);
const OVER: f64 = 5.0;

/// What became of requests of one class that were due in one bin.
#[derive(Clone, Debug)]
struct Seen {
    offered: u64,
    good: u64,
    refused: u64,
    other: u64,
    us: Histogram<u64>,
    refused_us: Histogram<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { offered: 0, good: 0, refused: 0, other: 0, us: histogram(), refused_us: histogram() }
    }
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.offered += other.offered;
        self.good += other.good;
        self.refused += other.refused;
        self.other += other.other;
        self.us.add(&other.us).expect("the same bounds");
        self.refused_us.add(&other.refused_us).expect("the same bounds");
    }
}

/// Upper and lower class.
type Bins = Vec<[Seen; 2]>;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("priorities");
    let mut csv = "upper_share,round,second,class,offered,good,refused,other,p50_us,p99_us,refused_p99_us\n".to_owned();
    // The upper class alone is 20 % of five times the capacity, which is all of it; with 10 % it leaves half.
    for upper_share in [0.2, 0.1] {
        let mut found = Found::default();
        for round in 0..plan.rounds {
            let cluster = Cluster::start(1, false)?;
            cluster.apply(&declaration()?)?;
            let door = cluster.doors("http").first().copied().ok_or("no edge")?;
            wait_until("the service serves", || crate::load::http_get(door, "/health", None).is_ok())?;
            let bins = found.round(door, upper_share, plan)?;
            for (at, classes) in bins.iter().enumerate() {
                for (class, seen) in ["upper", "lower"].iter().zip(classes) {
                    csv += &format!(
                        "{upper_share},{round},{:.1},{class},{},{},{},{},{},{},{}\n",
                        at as f64 * BIN.as_secs_f64(),
                        seen.offered,
                        seen.good,
                        seen.refused,
                        seen.other,
                        seen.us.value_at_quantile(0.5),
                        seen.us.value_at_quantile(0.99),
                        seen.refused_us.value_at_quantile(0.99)
                    );
                }
            }
            if round == 0 {
                let points = |class: usize| {
                    let of = |(at, both): (usize, &[Seen; 2])| {
                        (at as f64 * BIN.as_secs_f64(), both[class].good as f64 / BIN.as_secs_f64())
                    };
                    bins.iter().enumerate().map(of).collect()
                };
                let name = |text: &str| format!("{text} priority");
                let curves =
                    [("upper", 0), ("lower", 1)].map(|(n, class)| Line { name: name(n), points: points(class) });
                let title = format!("{OVER} times the capacity, {:.0} % of it upper", upper_share * 100.0);
                let marks = [plan.seconds as f64, 3.0 * plan.seconds as f64];
                let svg = lines(&title, "seconds", "served in time, 1/s", &curves, &marks);
                report.write(&plan.out, &format!("priorities-{:.0}.svg", upper_share * 100.0), &svg)?;
            }
        }
        found.tell(&mut report, upper_share);
    }
    report.write(&plan.out, "priorities.csv", &csv)?;
    report.notes.push(format!(
        "one node, {CLONES} clones that serve {AT_ONCE} requests at once in {} ms each: {CAPACITY:.0} a second at most; \
         edge, clones and load generator share the machine",
        TAKES.as_millis()
    ));
    Ok(report)
}

fn declaration() -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let (me, takes) = (me.display().to_string(), TAKES.as_millis());
    Ok(format!(
        "[service.work]\nrun = [{me:?}, \"worker\", \"--at-once\", \"{AT_ONCE}\", \"--takes-ms\", \"{takes}\"]\n\
         clones = {CLONES}\nhealth = \"/health\"\nhttp = {{}}\n\
         [[service.work.partition]]\nname = \"upper\"\npath = \"/upper\"\npriority = \"critical\"\n\
         [[service.work.partition]]\nname = \"lower\"\npath = \"/lower\"\npriority = \"low\"\n"
    ))
}

/// Medians over rounds are of these.
#[derive(Default)]
struct Found {
    peak: Vec<f64>,
    unloaded_p99: Vec<f64>,
    upper_success: Vec<f64>,
    upper_failed: Vec<f64>,
    upper_p99: Vec<f64>,
    goodput: Vec<f64>,
    refused_p50: Vec<f64>,
    refused_p99: Vec<f64>,
    normal_after: Vec<f64>,
}

impl Found {
    fn round(&mut self, door: SocketAddr, upper_share: f64, plan: &Plan) -> Result<Bins, String> {
        let per_phase = usize::try_from(plan.seconds * 2).map_err(|e| e.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        // The peak: the most that is served in time, of one class, at any rate up to somewhat more than can be.
        let mut peak = 0.0f64;
        for part in [0.8, 0.9, 1.0, 1.1] {
            let bins = runtime.block_on(load(door, &vec![[part * CAPACITY, 0.0]; per_phase]));
            peak = peak.max(sum(&bins, 0).good as f64 / plan.seconds as f64);
        }
        let (quiet, over) = ([0.1 * peak, 0.4 * peak], [upper_share * OVER * peak, (1.0 - upper_share) * OVER * peak]);
        let mut rates = vec![quiet; per_phase];
        rates.extend(vec![over; 2 * per_phase]);
        rates.extend(vec![quiet; per_phase]);
        let bins = runtime.block_on(load(door, &rates));
        let before = sum(&bins[1..per_phase], 0);
        let during = [0, 1].map(|class| sum(&bins[per_phase..3 * per_phase], class));
        self.peak.push(peak);
        let unloaded = before.us.value_at_quantile(0.99);
        self.unloaded_p99.push(unloaded as f64);
        self.upper_success.push(during[0].good as f64 / during[0].offered.max(1) as f64);
        self.upper_failed.push((during[0].offered - during[0].good) as f64);
        self.upper_p99.push(during[0].us.value_at_quantile(0.99) as f64);
        let seconds = 2.0 * plan.seconds as f64;
        self.goodput.push((during[0].good + during[1].good) as f64 / seconds / peak);
        self.refused_p50.push(during[1].refused_us.value_at_quantile(0.5) as f64);
        self.refused_p99.push(during[1].refused_us.value_at_quantile(0.99) as f64);
        // The last bin after the end that was not as before.
        let is_normal = |both: &[Seen; 2]| {
            let all_good = both.iter().all(|seen| seen.good == seen.offered);
            all_good && both[0].us.value_at_quantile(0.99) as f64 <= 1.5 * unloaded as f64
        };
        let last_odd = bins[3 * per_phase..].iter().rposition(|both| !is_normal(both));
        self.normal_after.push(last_odd.map_or(0.0, |at| (at + 1) as f64 * BIN.as_secs_f64()));
        Ok(bins)
    }

    fn tell(self, report: &mut Report, upper_share: f64) {
        let of = format!("{:.0} % upper", upper_share * 100.0);
        let mut push = |what: &str, unit: &str, value: f64, name: &str, peer: Option<f64>| {
            report.figures.push(Figure::new(format!("{what}, {of}"), unit, value, name, peer));
        };
        let (peak, unloaded) = (median(self.peak), median(self.unloaded_p99));
        push("peak goodput of one class", "1/s", peak, "clones can do", Some(CAPACITY));
        push("upper class served in time", "of offered", median(self.upper_success), "all", Some(1.0));
        push("upper class not served in time", "requests", median(self.upper_failed), "", None);
        push("upper class p99", "us", median(self.upper_p99), "itself at half load", Some(unloaded));
        push("goodput of both", "of peak", median(self.goodput), "peak", Some(1.0));
        push("refusal p50", "us", median(self.refused_p50), "", None);
        push("refusal p99", "us", median(self.refused_p99), "", None);
        push("back to normal after", "s", median(self.normal_after), "goal", Some(30.0));
    }
}

fn sum(bins: &[[Seen; 2]], class: usize) -> Seen {
    let mut all = Seen::default();
    bins.iter().for_each(|both| all.add(&both[class]));
    all
}

/// Rates of both classes, one pair for each bin.
async fn load(door: SocketAddr, rates: &[[f64; 2]]) -> Bins {
    let bins = Arc::new(Mutex::new(vec![<[Seen; 2]>::default(); rates.len()]));
    let idle = Arc::new(Mutex::new(VecDeque::new()));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (at, rates) in rates.iter().enumerate() {
        let start = begun + BIN * u32::try_from(at).unwrap_or(u32::MAX);
        let mut sent = [0u64; 2];
        loop {
            let now = Instant::now();
            let passed = now.saturating_duration_since(start).min(BIN).as_secs_f64();
            for class in 0..2 {
                while (sent[class] as f64) < passed * rates[class] {
                    let due = start + Duration::from_secs_f64(sent[class] as f64 / rates[class]);
                    tasks.spawn(one(door, class, due, at, Arc::clone(&idle), Arc::clone(&bins)));
                    sent[class] += 1;
                }
            }
            while tasks.try_join_next().is_some() {}
            if now >= start + BIN {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // Each ends by itself within its patience.
    while tasks.join_next().await.is_some() {}
    let bins = bins.lock().unwrap_or_else(PoisonError::into_inner);
    bins.clone()
}

type Idle = Arc<Mutex<VecDeque<TcpStream>>>;

async fn one(door: SocketAddr, class: usize, due: Instant, at: usize, idle: Idle, bins: Arc<Mutex<Bins>>) {
    let patience = Duration::from_secs(3);
    let status = tokio::time::timeout(patience, ask(door, class, &idle)).await;
    let took = due.elapsed();
    let us = (took.as_micros() as u64).max(1);
    let mut bins = bins.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = &mut bins[at][class];
    seen.offered += 1;
    match status {
        Ok(Ok(200)) if took <= DEADLINE => seen.good += 1,
        Ok(Ok(503)) => seen.refused += 1,
        _ => seen.other += 1,
    }
    match status {
        Ok(Ok(200)) => seen.us.saturating_record(us),
        Ok(Ok(503)) => seen.refused_us.saturating_record(us),
        _ => (),
    }
}

async fn ask(door: SocketAddr, class: usize, idle: &Idle) -> std::io::Result<u16> {
    let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop_back();
    let mut stream = match kept {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(door).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    let path = ["upper", "lower"][class];
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: lab\r\n\r\n").as_bytes()).await?;
    let mut buffer = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let Some((status, length)) = whole(&buffer) else { continue };
        if length == buffer.len() {
            idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(stream);
        }
        return Ok(status);
    }
}

/// Status and length of an answer that is all there.
fn whole(bytes: &[u8]) -> Option<(u16, usize)> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?.to_ascii_lowercase();
    let body: usize = text.split("content-length:").nth(1)?.lines().next()?.trim().parse().ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    (bytes.len() >= head + body).then_some((status, head + body))
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn an_answer_counts_when_it_is_whole() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nno\n";
        assert_eq!(whole(answer), Some((503, answer.len())));
        assert_eq!(whole(&answer[..answer.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
