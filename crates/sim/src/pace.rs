//! How much happens in how much time. `busy` is a cluster under load in which something breaks every few seconds. `calm` is more like
//! a month of operation: clients think for minutes, faults are far apart and last for minutes, and between them nothing happens for
//! so long that groups fall asleep, leases end, ids are forgotten and whoever stayed away is replaced. Every promise is checked at
//! either; a simulated hour of the calm one costs a tenth of the time or less, and sees fewer faults and operations.

use base::{Rng, Span};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Pace {
    /// Some hundred operations a second, faults every 0.3 to 8 s for up to 40 s each, calms of 22 to 30 s.
    #[default]
    Busy,
    /// From ten operations a second to a few a minute, faults every 3 s to 8 min for up to 13 min each, calms of 1 to 45 min.
    Calm,
}

/// One stretch of faults, or of calm after them, as it is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    pub length: Span,
    /// Clients pause so many times longer than they do when they are busy,
    pub think: u64,
    /// the operator likewise,
    pub operator: u64,
    /// and there is so many times more time between faults,
    pub gap: u64,
    /// each of which lasts so many times longer.
    pub lasts: u64,
    /// Nobody asks anything until so long before its end.
    pub lull: Option<Span>,
}

/// What a busy cluster does.
pub const BUSY: Round = Round { length: Span::ZERO, think: 1, operator: 1, gap: 1, lasts: 1, lull: None };
/// Share of calms, at the calm pace, in which nobody asks for most of the time.
const LULLS: f64 = 0.3;
/// What follows upon a lull is asked when all has been calm for long, and before the next faults.
const LULL_ENDS: Span = Span::secs(60);
/// Beyond what a removal is remembered for (30 min).
const LULL_MAX: Span = Span::secs(45 * 60);

impl Pace {
    /// Faults strike now.
    pub fn faults(self, busy: Span, rng: &mut Rng) -> Round {
        if self == Pace::Busy {
            return Round { length: busy, ..BUSY };
        }
        Round {
            length: Span::secs(rng.between(60, 20 * 60)),
            think: think(rng),
            operator: *rng.pick(&[1, 10, 30]).expect("it is not empty"),
            gap: *rng.pick(&[10, 30, 60]).expect("it is not empty"),
            lasts: *rng.pick(&[1, 1, 4, 20]).expect("it is not empty"),
            lull: None,
        }
    }

    /// They have ended.
    pub fn calm(self, busy: Span, rng: &mut Rng) -> Round {
        if self == Pace::Busy {
            return Round { length: busy, ..BUSY };
        }
        let lull = rng.chance(LULLS).then_some(LULL_ENDS);
        let longest = if lull.is_some() { LULL_MAX } else { Span::secs(600) };
        let length = Span::secs(rng.between(30, longest.as_millis() / 1_000)).max(LULL_ENDS);
        Round { length, think: think(rng), lull, ..BUSY }
    }
}

fn think(rng: &mut Rng) -> u64 {
    *rng.pick(&[10, 100, 1_000]).expect("it is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_pace_takes_lengths_as_they_are_and_draws_nothing() {
        let (mut rng, mut same) = (Rng::new(3), Rng::new(3));
        let length = Span::secs(17);
        for round in [Pace::Busy.faults(length, &mut rng), Pace::Busy.calm(length, &mut rng)] {
            assert_eq!(round, Round { length, ..BUSY });
        }
        assert_eq!(rng.u64(), same.u64());
    }

    #[test]
    fn the_calm_pace_has_faults_for_minutes_and_lulls_beyond_all_that_is_remembered() {
        let mut rng = Rng::new(3);
        let rounds: Vec<_> = (0..300).map(|_| Pace::Calm.faults(Span::ZERO, &mut rng)).collect();
        assert!(rounds.iter().all(|round| round.think >= 10 && round.gap >= 10 && round.length >= Span::secs(60)));
        assert!(rounds.iter().any(|round| round.lasts == 20) && rounds.iter().any(|round| round.lasts == 1));
        let calms: Vec<_> = (0..300).map(|_| Pace::Calm.calm(Span::ZERO, &mut rng)).collect();
        assert!(calms.iter().any(|calm| calm.lull.is_some() && calm.length > Span::secs(31 * 60)));
        assert!(calms.iter().any(|calm| calm.lull.is_none() && calm.length < Span::secs(120)));
    }
}
