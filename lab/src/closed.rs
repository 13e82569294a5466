//! Closed-loop load of any kind: clients on connections of their own, each with its next call as soon as the last one is
//! answered. A call that fails opens its connection anew; one whose answer is wrong, too, and both are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::Barrier;

use crate::load::{Outcome, histogram};
use crate::procs::used_us;

/// One client, connected.
pub trait Caller: Send + Sized + 'static {
    /// One call; `turn` counts from 1. False: the answer is not what it must be.
    fn call(&mut self, turn: u64) -> impl Future<Output = Result<bool, String>> + Send;

    /// When the load is over: how much of what was acknowledged is not there.
    fn check(&mut self) -> impl Future<Output = Result<u64, String>> + Send {
        async { Ok(0) }
    }
}

/// What one run of one side found.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Operations a second; times are those of calls.
    pub out: Outcome,
    /// Processor time of the measured programs for one operation.
    pub cpu_us: f64,
}

#[derive(Clone)]
pub struct Shape {
    pub clients: usize,
    pub length: Duration,
    /// Operations of one call: 1, or more in a pipeline.
    pub each: u64,
}

/// An answer that does not come for so long is a failure.
const PATIENCE: Duration = Duration::from_secs(10);
/// The beginning is not counted: connections, windows, memory.
const WARM: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())
}

/// Runs the load, and counts the time of `pids` and all that they have started.
pub fn run<C, F>(shape: &Shape, pids: &[i32], open: impl Fn(usize) -> F + Clone + Send + 'static) -> Result<Ran, String>
where
    C: Caller,
    F: Future<Output = Result<C, String>> + Send + 'static,
{
    runtime()?.block_on(async {
        let ready = Arc::new(Barrier::new(shape.clients + 1));
        let mut all = tokio::task::JoinSet::new();
        for index in 0..shape.clients {
            all.spawn(one(index, shape.length, Arc::clone(&ready), open.clone()));
        }
        ready.wait().await;
        tokio::time::sleep(WARM).await;
        let (before, begun) = (used_us(pids), Instant::now());
        tokio::time::sleep(shape.length).await;
        let (cpu_us, took) = (used_us(pids) - before, begun.elapsed().as_secs_f64());
        let (mut times, mut out) = (histogram(), Outcome::default());
        while let Some(done) = all.join_next().await {
            let one = done.map_err(|e| e.to_string())?;
            times.add(&one.times).map_err(|e| e.to_string())?;
            out.failed += one.failed;
            out.wrong += one.wrong;
            out.first_failure = out.first_failure.or(one.why);
        }
        out.done = times.len() * shape.each;
        out.per_second = out.done as f64 / took;
        out.p50_us = times.value_at_quantile(0.5) as f64;
        out.p99_us = times.value_at_quantile(0.99) as f64;
        out.p999_us = times.value_at_quantile(0.999) as f64;
        let cpu_us = cpu_us / out.done.max(1) as f64;
        Ok(Ran { out, cpu_us })
    })
}

struct One {
    times: Histogram<u64>,
    failed: u64,
    wrong: u64,
    why: Option<String>,
}

async fn one<C, F>(index: usize, length: Duration, ready: Arc<Barrier>, open: impl Fn(usize) -> F) -> One
where
    C: Caller,
    F: Future<Output = Result<C, String>> + 'static,
{
    let mut seen = One { times: histogram(), failed: 0, wrong: 0, why: None };
    // Who waits for the others is not waited for by them.
    let mut caller = within(open(index)).await.map_err(|why| seen.why = Some(why)).ok();
    ready.wait().await;
    let from = Instant::now() + WARM;
    let (end, mut turn) = (from + length, 0);
    while Instant::now() < end {
        let begun = Instant::now();
        let result = match &mut caller {
            None => within(open(index)).await.map(|new| {
                caller = Some(new);
                None
            }),
            Some(open) => {
                turn += 1;
                within(open.call(turn)).await.map(Some)
            }
        };
        match result {
            Ok(None) => (),
            Ok(Some(true)) => {
                if begun >= from {
                    seen.times.saturating_record(begun.elapsed().as_micros().max(1) as u64);
                }
            }
            Ok(Some(false)) => {
                seen.wrong += 1;
                caller = None;
            }
            Err(why) => {
                seen.failed += 1;
                seen.why.get_or_insert(why);
                caller = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    if let Some(caller) = &mut caller {
        match within(caller.check()).await {
            Ok(missing) => seen.wrong += missing,
            Err(why) => {
                seen.failed += 1;
                seen.why.get_or_insert(format!("when all was over: {why}"));
            }
        }
    }
    seen
}

async fn within<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One call in fifty fails, one in thirty is wrong. Each client is so many calls ahead: at the end most have a connection.
    struct Bad(u64);

    impl Caller for Bad {
        async fn call(&mut self, turn: u64) -> Result<bool, String> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let nth = turn + self.0;
            if nth.is_multiple_of(50) { Err("fiftieth".into()) } else { Ok(!nth.is_multiple_of(30)) }
        }

        async fn check(&mut self) -> Result<u64, String> {
            Ok(1000)
        }
    }

    #[test]
    fn what_fails_and_what_is_wrong_is_counted() {
        let shape = Shape { clients: 15, length: Duration::from_millis(300), each: 10 };
        let ran = run(&shape, &[], |n| async move { Ok(Bad(7 * n as u64)) }).expect("it runs");
        assert!(ran.out.failed > 0 && ran.out.done > 0 && ran.out.done.is_multiple_of(10), "{ran:?}");
        // Who ends without a connection checks nothing.
        assert!(ran.out.wrong > 1000, "{ran:?}");
        assert_eq!(ran.out.first_failure.as_deref(), Some("fiftieth"));
    }
}
