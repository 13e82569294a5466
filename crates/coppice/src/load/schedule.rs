//! When the next request is due: by a rate, which may change, or by a trace's times. Pure: time is told.

use std::time::Duration;

use base::Rng;

use super::trace::{Line, Trace};

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Evenly, or as strangers come, from this seed.
    Rate { per_second: f64, poisson: Option<u64> },
    /// By the times of the trace.
    Trace { speed: f64 },
}

pub struct Schedule {
    pace: Pace,
    rng: Rng,
    trace: Option<Trace>,
    ends: Option<Duration>,
    /// When the next one is due by the rate, seconds from the beginning.
    next_at: f64,
    /// The trace's next line, if it was looked at.
    peeked: Option<Line>,
}

impl Schedule {
    pub fn new(pace: Pace, trace: Option<Trace>, ends: Option<Duration>) -> Self {
        let seed = if let Pace::Rate { poisson: Some(seed), .. } = pace { seed } else { 1 };
        Self { pace, rng: Rng::new(seed), trace, ends, next_at: 0.0, peeked: None }
    }

    /// The moment of the next request, none if it was the last one.
    pub fn due(&mut self) -> Result<Option<Duration>, String> {
        if self.trace.is_some() && self.peeked.is_none() {
            self.peeked = self.trace.as_mut().map_or(Ok(None), Trace::next)?;
            if self.peeked.is_none() {
                return Ok(None);
            }
        }
        let at = match (self.pace, &self.peeked) {
            (Pace::Trace { speed }, Some(line)) => line.at / speed,
            _ => self.next_at,
        };
        let at = Duration::try_from_secs_f64(at).map_err(|_| format!("{at} seconds are too many"))?;
        Ok(Some(at).filter(|at| self.ends.is_none_or(|ends| *at < ends)))
    }

    /// Takes the request that is due: a trace's line, or nothing special.
    pub fn take(&mut self) -> Option<Line> {
        if let Pace::Rate { per_second, poisson } = self.pace {
            let share = match poisson {
                None => 1.0,
                // Between 0 and 1, neither of them; so the gap is finite.
                Some(_) => -((self.rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64).ln(),
            };
            self.next_at += share / per_second;
        }
        self.peeked.take()
    }

    pub fn rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Rate { per_second, .. } => Some(per_second),
            Pace::Trace { .. } => None,
        }
    }

    /// Another rate from this moment on.
    pub fn set_rate(&mut self, now: Duration, rate: f64) {
        if let Pace::Rate { per_second, .. } = &mut self.pace {
            // The next one comes as the new rate has it, not at the end of a long pause of the old one.
            self.next_at = self.next_at.min(now.as_secs_f64() + 1.0 / rate);
            *per_second = rate;
        }
    }

    pub fn stop(&mut self) {
        self.ends = Some(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(schedule: &mut Schedule) -> Vec<u128> {
        let mut all = Vec::new();
        while let Some(at) = schedule.due().unwrap() {
            all.push(at.as_millis());
            schedule.take();
        }
        all
    }

    fn at_rate(per_second: f64, poisson: Option<u64>, secs: u64) -> Schedule {
        Schedule::new(Pace::Rate { per_second, poisson }, None, Some(Duration::from_secs(secs)))
    }

    #[test]
    fn a_rate_is_even_and_ends() {
        assert_eq!(dues(&mut at_rate(4.0, None, 1)), [0, 250, 500, 750]);
    }

    #[test]
    fn a_rate_may_change_while_it_runs() {
        let mut schedule = at_rate(0.01, None, 3);
        schedule.take();
        schedule.set_rate(Duration::from_secs(1), 2.0);
        assert_eq!(dues(&mut schedule), [1500, 2000, 2500], "without waiting out the long gap of before");
        let mut schedule = at_rate(100.0, None, 3);
        schedule.stop();
        assert_eq!(dues(&mut schedule), []);
    }

    #[test]
    fn strangers_come_at_random_and_as_often() {
        let dues = dues(&mut at_rate(1000.0, Some(7), 20));
        assert!((19_000..21_000).contains(&dues.len()), "{}", dues.len());
        let gaps: Vec<f64> = dues.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let long = gaps.iter().filter(|gap| **gap >= 3.0).count() as f64 / gaps.len() as f64;
        // Both ends of a gap are cut to whole milliseconds, so it is the mean of e^-t over t from 2 to 3: 8.5 %.
        assert!((0.075..0.095).contains(&long), "{long}");
    }

    #[test]
    fn a_trace_keeps_its_times_or_takes_a_rate() {
        let trace = || Trace::of("t".into(), &b"5,GET,/a\n6,GET,/b\n8,GET,/c\n"[..]);
        let mut faithful = Schedule::new(Pace::Trace { speed: 2.0 }, Some(trace()), None);
        assert_eq!(dues(&mut faithful), [0, 500, 1500]);
        let mut paced = Schedule::new(Pace::Rate { per_second: 10.0, poisson: None }, Some(trace()), None);
        assert_eq!((paced.due(), paced.take().map(|line| line.path)), (Ok(Some(Duration::ZERO)), Some("/a".into())));
        assert_eq!(dues(&mut paced), [100, 200], "its order, at the rate, to its end");
    }
}
