//! One door before clones that each do some requests at once, in steps of a tenth of a millisecond: much more begins to come, in two
//! priorities, to a door that has never been in anybody's way. The upper one hardly notices, from the first moment on, and what clones can do
//! gets done.

use std::collections::VecDeque;

use base::Rng;

use super::*;
use crate::balance::{Load, pick_less_loaded};
use crate::histogram::Histogram;
use crate::limit::most_log;

const BOUNDS: Bounds = Bounds { first: 256, min: 4, max: 4096, tolerance_percent: 125, slack: Span::millis(4) };
const CLONES: usize = 4;
const AT_ONCE: usize = 5;
/// What one takes, in steps.
const TAKES: u64 = 250;
const CAPACITY: f64 = (CLONES * AT_ONCE) as f64 / TAKES as f64;
const SECOND: u64 = 10_000;
const QUIET: u64 = 3 * SECOND;
const END: u64 = 15 * SECOND;
const UPPER: usize = 9;
const LOWER: usize = 3;

#[derive(Clone, Copy)]
struct Request {
    class: usize,
    came: u64,
    let_in: u64,
}

#[derive(Default)]
struct Clone {
    /// With the step when each ends.
    at_work: Vec<(u64, Request)>,
    queue: VecDeque<Request>,
}

/// 99 of 100 of the upper ones took at most so many steps, and which part of what clones can do was done.
fn overload(seed: u64, upper: f64) -> (u64, f64) {
    let (mut rng, mut admission) = (Rng::new(seed), Admission::new(BOUNDS));
    let mut rooms = admission.rooms();
    let mut clones: Vec<Clone> = (0..CLONES).map(|_| Clone::default()).collect();
    let mut waiting: [VecDeque<u64>; CLASSES] = Default::default();
    let (mut under_way, mut seen, mut came, mut took) = (0, Seen::default(), Came::default(), Histogram::default());
    let mut shortest = [None::<u64>; CLASSES];
    let (mut latencies, mut done) = (Vec::new(), 0);
    for now in 0..END {
        for clone in &mut clones {
            for (_, request) in clone.at_work.extract_if(.., |(until, _)| *until <= now) {
                under_way -= 1;
                seen.done += 1;
                took.note(Span((now - request.let_in) * 100));
                if now > QUIET {
                    done += 1;
                    latencies.extend((request.class == UPPER).then_some(now - request.came));
                }
            }
        }
        let load = if now < QUIET { [(UPPER, 0.1), (LOWER, 0.4)] } else { [(UPPER, upper), (LOWER, 5.0 - upper)] };
        for (class, load) in load {
            if rng.chance(load * CAPACITY) {
                came.arrived[class] += 1;
                waiting[class].push_back(now);
            }
        }
        for class in (0..CLASSES).rev() {
            while under_way < rooms.room[class]
                && let Some(since) = waiting[class].pop_front()
            {
                let waited = now - since;
                shortest[class] = Some(shortest[class].map_or(waited, |shortest| shortest.min(waited)));
                under_way += 1;
                came.let_in[class] += 1;
                seen.under_way_max = seen.under_way_max.max(under_way);
                let load = |at: usize| {
                    let own = (clones[at].at_work.len() + clones[at].queue.len()) as u64;
                    Load { own, reported: 0 }
                };
                let chosen = pick_less_loaded(&mut rng, CLONES, load).unwrap();
                clones[chosen].queue.push_back(Request { class, came: since, let_in: now });
            }
            seen.no_room += waiting[class].iter().filter(|since| **since == now).count() as u64;
            let most = rooms.waiting[class] as usize;
            came.refused += waiting[class].len().saturating_sub(most) as u64;
            waiting[class].truncate(most);
        }
        for clone in &mut clones {
            while clone.at_work.len() < AT_ONCE
                && let Some(request) = clone.queue.pop_front()
            {
                clone.at_work.push((now + TAKES + rng.below(8), request));
            }
        }
        if now.is_multiple_of(SECOND / 10) {
            came.under_way = under_way;
            came.waited = Span(shortest.into_iter().flatten().max().unwrap_or(0) * 100);
            shortest = Default::default();
            let learned = Seen { took_log: most_log(took.counts()), ..std::mem::take(&mut seen) };
            took.clear();
            rooms = admission.look(Time(now * 100), &learned, &std::mem::take(&mut came));
            seen.under_way_max = under_way;
        }
    }
    latencies.sort_unstable();
    let p99 = latencies[latencies.len() * 99 / 100];
    (p99, f64::from(done) / (CAPACITY * (END - QUIET) as f64))
}

#[test]
fn a_flood_that_matters_less_is_hardly_felt_from_its_first_moment_and_all_is_used() {
    for upper in [0.3, 0.5, 0.8] {
        let runs: Vec<_> = (0..6).map(|seed| overload(seed, upper)).collect();
        let mean = |of: &dyn Fn(&(u64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let (p99, done) = (mean(&|run| run.0 as f64), mean(&|run| run.1));
        assert!(p99 < 2.5 * TAKES as f64, "upper {upper}: 99 of 100 take {p99} steps at most, alone {TAKES}");
        assert!(done > 0.94, "upper {upper}: {done} of what clones can do");
    }
}
