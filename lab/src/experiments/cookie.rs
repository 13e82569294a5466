//! Cookies of the session class: how long one core needs to seal one, to open it, and to refuse one that was changed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use base::NodeId;
use base::checksum::Checksum;
use state::session::cookie::{Cookie, Sealer};
use state::session::{CookieSecret, Version};

use crate::Plan;
use crate::report::{Figure, Report, median};

/// What issue 3 asks for, nanoseconds.
const PROMISED_NS: f64 = 1000.0;
/// Cookies in a batch between two looks at the clock.
const BATCH: usize = 1000;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let secret = CookieSecret::new(7, [9; 32]);
    // As after two rotations: three keys, the cookie sealed with the oldest.
    let rotated = (1..=2u8)
        .try_fold(secret.clone(), |secret, n| secret.rotated([n; 32], u64::from(n) * 1_000_000, 1000, false))?;
    let (sealer, opener) = (Sealer::new(&secret), Sealer::new(&rotated));
    let of = b"0123456789abcdefghijkl";
    let cookies: Vec<String> = (0..BATCH as u64).map(|n| sealer.seal(&cookie(n), of, 0)).collect();
    let mut changed = cookies.clone();
    for text in &mut changed {
        let flipped = if text.ends_with('A') { 'B' } else { 'A' };
        text.pop();
        text.push(flipped);
    }
    if cookies.iter().any(|text| opener.open(text, of, 0).is_err())
        || changed.iter().any(|text| opener.open(text, of, 0).is_ok())
    {
        return Err("a good cookie was refused, or a changed one opened".into());
    }
    let mut report = Report::new("cookie");
    let mut csv = "what,round,ns\n".to_owned();
    let mut measure = |name: &str, work: &dyn Fn(usize)| {
        let rounds: Vec<f64> = (0..plan.rounds).map(|_| time(plan, work)).collect();
        for (round, ns) in rounds.iter().enumerate() {
            csv += &format!("{name},{round},{ns:.1}\n");
        }
        Figure::new(name, "ns", median(rounds), "promised at most", Some(PROMISED_NS))
    };
    report.figures = vec![
        measure("verify a cookie", &|n| drop(black_box(opener.open(black_box(&cookies[n]), of, 0)))),
        measure("refuse a changed cookie", &|n| drop(black_box(opener.open(black_box(&changed[n]), of, 0)))),
        measure("seal a cookie", &|n| drop(black_box(sealer.seal(black_box(&cookie(n as u64)), of, 0)))),
    ];
    report.notes.push("one core; decoding of the text, HMAC-SHA256 and comparison, as the node does it".into());
    report.write(&plan.out, "cookie.csv", &csv)?;
    Ok(report)
}

fn cookie(n: u64) -> Cookie {
    Cookie {
        bricks: vec![NodeId(n), NodeId(n + 1), NodeId(n + 2)],
        version: Version { ms: 1_700_000_000_000 + n, counter: n as u32, node: NodeId(n) },
        lease_end_ms: 1 << 47,
        sum: Checksum(n as u32),
    }
}

/// Nanoseconds each: the median of batches that are shorter than a time slice, so that what others do on this core
/// between two batches does not count.
fn time(plan: &Plan, work: &dyn Fn(usize)) -> f64 {
    let length = Duration::from_millis(plan.seconds * 200);
    let (start, mut batches) = (Instant::now(), Vec::new());
    while start.elapsed() < length {
        let begun = Instant::now();
        (0..BATCH).for_each(work);
        batches.push(begun.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    median(batches)
}
