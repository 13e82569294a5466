//! The odds that a session outlives its bricks (SSM 3.7): bricks die as a Poisson process of rate μ each, a session is
//! written as one of rate λ, and it is lost if all its WQ copies die between two writes. Pure arithmetic; what was
//! observed comes from outside. The paper's bricks come back empty; ours are filled again within seconds, so the odds
//! here are the worse end of what is true.

use serde::{Deserialize, Serialize};

/// With fewer deaths a rate would be a guess: the prior is mixed in.
pub const DEATHS_ENOUGH: u64 = 3;
/// With fewer intervals their mean would be a guess: the lease is taken instead, as the paper does.
pub const INTERVALS_ENOUGH: u64 = 30;
/// The prior: one death in so many hours of one brick, which is 30 days.
pub const PRIOR_MTTF_HOURS: f64 = 720.0;

/// What the cluster has seen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Observed {
    /// Bricks that lost their memory, over so many hours of life of all bricks together.
    pub deaths: u64,
    pub brick_hours: f64,
    /// How often, and after how long in sum, values of the namespace were written anew.
    pub intervals: u64,
    pub intervals_ms: u64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Odds {
    pub deaths: u64,
    pub brick_hours: f64,
    /// Mean time between two deaths of one brick (1/μ), as used below.
    pub mttf_hours: f64,
    /// Too few deaths were seen: a prior of one death in 30 days is mixed in.
    pub mttf_is_guess: bool,
    pub intervals: u64,
    /// Mean time between two writes of one session (1/λ), as used below.
    pub write_interval_s: f64,
    /// Too few intervals were seen: the lease was taken.
    pub write_interval_is_guess: bool,
    /// Copies that a write waits for.
    pub wq: u32,
    /// λ/μ.
    pub rho: f64,
    pub p_loss: f64,
}

/// The odds for values of which `wq` copies are acknowledged.
pub fn odds(observed: Observed, wq: u32, lease_ms: u64) -> Odds {
    let Observed { deaths, brick_hours, intervals, intervals_ms } = observed;
    let mttf_is_guess = deaths < DEATHS_ENOUGH;
    let mttf_hours = if mttf_is_guess {
        (brick_hours + PRIOR_MTTF_HOURS) / (deaths as f64 + 1.0)
    } else {
        brick_hours / deaths as f64
    };
    let write_interval_is_guess = intervals < INTERVALS_ENOUGH;
    let write_interval_ms =
        if write_interval_is_guess { lease_ms as f64 } else { (intervals_ms as f64 / intervals as f64).max(1.0) };
    let rho = mttf_hours * 3_600_000.0 / write_interval_ms;
    Odds {
        deaths,
        brick_hours,
        mttf_hours,
        mttf_is_guess,
        intervals,
        write_interval_s: write_interval_ms / 1000.0,
        write_interval_is_guess,
        wq,
        rho,
        p_loss: loss(wq, rho),
    }
}

/// The probability that all `wq` copies die before the next write; one minus equations 1 and 2 of SSM 3.7, for any WQ:
/// of the WQ + 1 things that can happen next (a copy dies, the session is written) the writes come last each time.
pub fn loss(wq: u32, rho: f64) -> f64 {
    (1..=wq).map(|alive| f64::from(alive) / (f64::from(alive) + rho)).product()
}

impl Odds {
    /// "Number of nines" of the next write finding the session, as table 2 of the paper counts them.
    pub fn nines(&self) -> f64 {
        -self.p_loss.log10()
    }

    /// The whole calculation, for people.
    pub fn text(&self) -> String {
        let guess = |is, why: &str| if is { format!(" ({why})") } else { String::new() };
        let few_deaths =
            format!("too few for a rate: one death in {PRIOR_MTTF_HOURS} brick-hours is assumed beside what was seen");
        let few_writes = format!("only {} intervals seen, too few: the lease is taken", self.intervals);
        let factors: Vec<String> = (1..=self.wq).map(|n| format!("{n}/({n} + ρ)")).collect();
        format!(
            "brick deaths:      {} in {:.1} brick-hours{}\n\
             brick MTTF (1/μ):  {}\n\
             write interval:    {} (1/λ){}\n\
             ρ = λ/μ:           {:.0}\n\
             P(loss), WQ = {}:   {} = {:.2e}, {:.1} nines (SSM 3.7)\n\
             in words:          of {} sessions that wait for their next write, about one is lost to brick deaths",
            self.deaths,
            self.brick_hours,
            guess(self.mttf_is_guess, &few_deaths),
            duration(self.mttf_hours * 3600.0),
            duration(self.write_interval_s),
            guess(self.write_interval_is_guess, &few_writes),
            self.rho,
            self.wq,
            factors.join(" * "),
            self.p_loss,
            self.nines(),
            grouped((1.0 / self.p_loss.max(1e-15)).round()),
        )
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// `1,234,567`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_the_papers() {
        // Equations 1 and 2 as they are printed.
        let two = |rho: f64| rho * (rho + 3.0) / ((rho + 1.0) * (rho + 2.0));
        let three = |rho: f64| rho * (rho * rho + 6.0 * rho + 11.0) / ((rho + 1.0) * (rho + 2.0) * (rho + 3.0));
        for rho in [0.1, 1.0, 3.0, 12.7, 100.0, 446.8] {
            assert!((1.0 - loss(2, rho) - two(rho)).abs() < 1e-12);
            assert!((1.0 - loss(3, rho) - three(rho)).abs() < 1e-12);
        }
    }

    #[test]
    fn little_data_is_said_and_helped_by_a_prior() {
        let nothing = odds(Observed::default(), 2, 1_800_000);
        assert!(nothing.mttf_is_guess && nothing.write_interval_is_guess);
        assert_eq!((nothing.mttf_hours, nothing.write_interval_s), (720.0, 1800.0));
        assert!(nothing.text().contains("too few"), "{}", nothing.text());
        let much = Observed { deaths: 4, brick_hours: 400.0, intervals: 1000, intervals_ms: 300_000_000 };
        let much = odds(much, 2, 1_800_000);
        assert_eq!((much.mttf_hours, much.write_interval_s, much.rho), (100.0, 300.0, 1200.0));
        assert!(!much.text().contains("too few"), "{}", much.text());
    }
}
