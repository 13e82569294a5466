//! Outlier detection (SSM 4, there by Pinpoint): a brick that does worse than its peers and than it did itself is found by
//! the stubs that ask it, and starts anew.
//!
//! Each stub compares the bricks that it asks, each second, by the median absolute deviation, which one bad brick among few
//! does not spoil. Its opinion goes to all nodes. A brick that most stubs find to differ, and no other beside it, starts
//! anew, by the same way as one whose memory fails: only while all others are live and settled and there are enough, so it
//! is never the second loss; and only so often, as what a restart does not cure is the machine's fault and not the brick's.

use base::{NodeId, Span, Time};
use serde::{Deserialize, Serialize};

use super::limits::*;
use super::peers::{Counts, Peer};
use super::{Call, Session};

/// What a stub thinks of the bricks that it asks: told to all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Opinion {
    /// It asks enough of them to compare.
    pub compares: bool,
    /// Epoch for which its own brick is filled: also those that ask it nothing must know.
    pub filled: u64,
    pub outlier: Option<Outlier>,
}

/// The one brick that has differed from the others for a while.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outlier {
    pub brick: NodeId,
    /// In what.
    pub measure: Measure,
    /// How it does, and how they do in the middle, in units of the measure.
    pub does: u64,
    pub others: u64,
}

/// What is compared; more is worse. Figures that differ by what bricks hold and are asked (memory, operations) say nothing here:
/// keys and clients are not alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Mean time until an answer, of those that came in time, microseconds.
    Took,
    /// Requests that were not answered in time, of 10,000.
    Late,
    /// Answers that were damaged on their way or before, of 10,000.
    Damaged,
}

const MEASURES: [Measure; 3] = [Measure::Took, Measure::Late, Measure::Damaged];

impl Measure {
    fn of(self, seen: &Counts) -> f64 {
        let part = |of: u64, all: u64| 10_000.0 * of as f64 / all.max(1) as f64;
        match self {
            Self::Took => seen.took.0 as f64 / seen.answers.max(1) as f64,
            Self::Late => part(seen.timeouts, seen.timeouts + seen.answers),
            Self::Damaged => part(seen.damaged, seen.answers),
        }
    }

    /// So much more than the others is nothing yet.
    fn slack(self) -> f64 {
        match self {
            Self::Took => OUTLIER_TOOK.0 as f64,
            Self::Late => OUTLIER_LATE,
            Self::Damaged => OUTLIER_DAMAGED,
        }
    }

    fn is_worse(self, than: f64, value: f64) -> bool {
        value > (2.0 * than).max(than + self.slack())
    }
}

impl std::fmt::Display for Outlier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (does, others) = (self.does as f64, self.others as f64);
        match self.measure {
            Measure::Took => write!(f, "it answers in {:.1} ms, they in {:.1} ms", does / 1e3, others / 1e3),
            Measure::Late => write!(f, "it is late {:.1} times of 100, they {:.1}", does / 1e2, others / 1e2),
            Measure::Damaged => {
                write!(f, "{:.1} of 100 answers of it are damaged, {:.1} of theirs", does / 1e2, others / 1e2)
            }
        }
    }
}

/// What a stub remembers of one life of a brick to compare it.
#[derive(Clone, Default)]
pub(super) struct Conduct {
    /// Counts of when it was last measured.
    before: Counts,
    /// When that was; what it did of late, the last few looks together; and how much it was asked, a second.
    now: Option<(Time, [f64; 3], f64)>,
    /// What it usually does, and of how many looks that is known.
    usual: [f64; 3],
    looks: u32,
    /// For how long it was the one that differs, less the time since then when it was not: looks differ by chance.
    differs: Span,
}

impl Conduct {
    /// What was counted before is of another life.
    pub fn since(counts: Counts) -> Self {
        Self { before: counts, ..Self::default() }
    }

    /// Measures it once there was enough to measure. True if so.
    fn measure(&mut self, now: Time, counts: &Counts, span: Span) -> bool {
        let seen = counts.since(&self.before);
        if seen.answers + seen.timeouts < OUTLIER_ASKED_MIN {
            self.now = self.now.filter(|(at, ..)| now.since(*at) < OUTLIER_KNOWN_FOR);
            return false;
        }
        let mut values = MEASURES.map(|measure| measure.of(&seen));
        let mut rate = seen.sent as f64 / self.now.map_or(span, |(at, ..)| now.since(at)).as_secs_f64().max(0.001);
        if let Some((_, before, asked)) = self.now {
            let smooth = |was: f64, is: f64| was + (is - was) / OUTLIER_SMOOTH;
            values = std::array::from_fn(|at| smooth(before[at], values[at]));
            rate = smooth(asked, rate);
        }
        (self.before, self.now) = (*counts, Some((now, values, rate)));
        true
    }

    /// What is usual follows what it does, but not what is out of the ordinary.
    fn learn(&mut self, values: [f64; 3], medians: [f64; 3]) {
        self.looks = self.looks.saturating_add(1);
        for (at, measure) in MEASURES.into_iter().enumerate() {
            if self.is_learned() && measure.is_worse(self.usual[at].max(medians[at]), values[at]) {
                continue;
            }
            self.usual[at] += (values[at] - self.usual[at]) / f64::from(self.looks.min(OUTLIER_LEARNS_OF));
        }
    }

    fn is_learned(&self) -> bool {
        self.looks >= OUTLIER_LEARNS
    }
}

/// In what a brick differs from its peers, where it does: the measure and their median.
fn differs(conduct: &Conduct, values: [f64; 3], rate: f64, all: &[([f64; 3], f64)]) -> Option<(Measure, f64)> {
    let rates = median(all.iter().map(|(_, rate)| *rate).collect());
    if !conduct.is_learned() || rate > 2.0 * rates {
        // Who is asked much more than others has a reason to be slower.
        return None;
    }
    MEASURES.into_iter().enumerate().find_map(|(at, measure)| {
        let theirs: Vec<f64> = all.iter().map(|(values, _)| values[at]).collect();
        let middle = median(theirs.clone());
        // Times 1.4826 it is the standard deviation, where that of many is the normal one.
        let deviation = 1.4826 * median(theirs.iter().map(|value| (value - middle).abs()).collect());
        let value = values[at];
        let is_out = value > middle + OUTLIER_DEVIATIONS * deviation && measure.is_worse(middle, value);
        (is_out && measure.is_worse(conduct.usual[at], value)).then_some((measure, middle))
    })
}

/// 0 of none.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    let middle = of.len() / 2;
    match of.len() {
        0 => 0.0,
        len if len % 2 == 0 => (of[middle - 1] + of[middle]) / 2.0,
        _ => of[middle],
    }
}

impl Session {
    /// Compares the bricks; to be called each second or so. What this node's stub thinks of them, to be told to all others
    /// ([`super::Input::Opinion`]).
    pub fn look(&mut self, now: Time) -> Opinion {
        let span = now.since(self.looked_at);
        if !self.protects || span < OUTLIER_LOOKS_EVERY {
            self.opinion.filled = self.fill.filled;
            return self.opinion.clone();
        }
        self.looked_at = now;
        let wanted = self.settled_wanted();
        let members = self.map.as_ref().map(|map| &*map.members).unwrap_or_default();
        let mut measured = Vec::new();
        for (node, peer) in &mut self.peers {
            if !peer.live || !members.contains(node) || wanted.is_none_or(|wanted| peer.filled < wanted) {
                // It has something else to do.
                peer.conduct.differs = Span::ZERO;
                continue;
            }
            if peer.conduct.measure(now, &peer.counts, span) {
                measured.push(*node);
            }
        }
        let known = |(node, peer): (&NodeId, &Peer)| {
            let (_, values, rate) = peer.conduct.now.filter(|_| peer.live && members.contains(node))?;
            Some((*node, values, rate))
        };
        let known: Vec<_> = self.peers.iter().filter_map(known).collect();
        let all: Vec<_> = known.iter().map(|(_, values, rate)| (*values, *rate)).collect();
        let compares = known.len() >= OUTLIER_AMONG;
        let out: Vec<_> = known
            .iter()
            .filter(|_| compares)
            .filter_map(|(node, values, rate)| {
                let (measure, middle) = differs(&self.peers.get(node)?.conduct, *values, *rate, &all)?;
                let at = MEASURES.iter().position(|of| *of == measure)?;
                Some(Outlier { brick: *node, measure, does: values[at] as u64, others: middle as u64 })
            })
            .collect();
        // Where several differ they rather share a cause, which a restart does not cure.
        let one = <[Outlier; 1]>::try_from(out).ok().map(|[one]| one);
        let medians = [0, 1, 2].map(|at| median(all.iter().map(|(values, _)| values[at]).collect()));
        for (node, values, _) in &known {
            let Some(peer) = self.peers.get_mut(node) else { continue };
            if measured.contains(node) {
                peer.conduct.learn(*values, medians);
            }
            let is_one = one.as_ref().is_some_and(|one| one.brick == *node);
            let (differs, most) = (peer.conduct.differs.0, 2 * OUTLIER_AFTER.0);
            let differs = if is_one { (differs + span.0).min(most) } else { differs.saturating_sub(span.0) };
            peer.conduct.differs = Span(differs);
        }
        let differs = one.as_ref().and_then(|one| Some(self.peers.get(&one.brick)?.conduct.differs));
        let outlier = one.filter(|_| differs >= Some(OUTLIER_AFTER));
        self.opinion = Opinion { compares, filled: self.fill.filled, outlier };
        self.opinion.clone()
    }

    /// What another node's stub thinks.
    pub(super) fn hear_opinion(&mut self, call: &mut Call, from: NodeId, opinion: Opinion) {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.live) else { return };
        let is_meant = opinion.outlier.as_ref().is_some_and(|outlier| outlier.brick == self.me);
        peer.opinion = Some((call.now, opinion));
        if is_meant {
            self.forget_if_outlier(call);
        }
    }

    /// SSM 4: what most find to differ restarts. False positives cost little; but not nothing, as all is copied again.
    fn forget_if_outlier(&mut self, call: &mut Call) {
        let heard = || {
            let told = self.peers.values().filter(|peer| peer.live).filter_map(|peer| peer.opinion.as_ref());
            told.filter(|(at, opinion)| opinion.compares && call.now.since(*at) < OUTLIER_SAID_FOR)
        };
        let compare = heard().count();
        let me = |outlier: &&Outlier| outlier.brick == self.me;
        let say: Vec<&Outlier> = heard().filter_map(|(_, said)| said.outlier.as_ref()).filter(me).collect();
        let members = self.map.as_ref().map_or(0, |map| map.members.len());
        if say.len() < OUTLIER_SAID_MIN
            || say.len() * 2 <= compare
            || members < OUTLIER_AMONG + 1
            || !self.others_are_settled()
        {
            return;
        }
        let why = format!("{} of {compare} nodes find that this brick differs from all others: {}", say.len(), say[0]);
        self.anew.retain(|at| call.now.since(*at) < OUTLIER_FORGIVEN);
        // After each one twice as long.
        let rest = self.anew.last().map(|at| *at + Span(OUTLIER_RESTS.0 << (self.anew.len() - 1)));
        if rest.is_some_and(|until| call.now < until) {
            return;
        }
        if self.anew.len() < OUTLIER_RESTARTS_MAX {
            self.anew.push(call.now);
            return self.start_anew(call, &why);
        }
        if self.incurable_noted.is_none_or(|at| call.now.since(at) >= OUTLIER_FORGIVEN) {
            self.incurable_noted = Some(call.now);
            let text =
                format!("{why}; it started anew {OUTLIER_RESTARTS_MAX} times and is left as it is: see to its machine");
            call.warn(text);
        }
    }
}
