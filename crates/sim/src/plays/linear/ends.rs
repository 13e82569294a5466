//! What ends by itself: values and fields of hashes with an end, and leases.
//!
//! Clocks of nodes drift and jump, so nobody can say when exactly something ends. But what has ended or was removed stays
//! away, what ends only long after the run is there, and a lease's tokens grow with time and have one holder each. And while
//! no fault strikes a value is there for as long as it was to live, and a moment more, however much is written beside it: time counts
//! from when the cluster had to serve again, as faults may take the leader with its clock.

use std::collections::BTreeMap;

use base::{Span, Time};
use state::linear::Reply;

use super::load::{Act, LONG, WriteId};
use super::promise::{newest_by, note, number};
use crate::promises::Broken;

const ENDS: &str = "a value of class linear that has ended or was removed stays away, and is there until then";
const LATE: &str = "a value of class linear is gone a moment after its end, however much is written";
const LEASE: &str = "a lease has one holder at a time, and its token is higher than any before";

/// A force of a disk and the way there and back take milliseconds; but where all is calm a lead may still be handed over, which at worst
/// takes an election, and the largest values may be before it in the log.
pub const GONE_WITHIN: Span = Span::millis(1_500);

#[derive(Default)]
pub struct Ends {
    /// Since when nothing disturbs the group's clock; none while something may.
    calm_since: Option<Time>,
    briefs: BTreeMap<WriteId, Brief>,
    leases: BTreeMap<String, Lease>,
}

struct Brief {
    lives: Span,
    /// When it was acknowledged.
    there: Option<Time>,
    /// When it was known to be gone, having been there.
    gone: Option<Time>,
    /// When somebody first asked to remove it.
    removal: Option<Time>,
}

#[derive(Default)]
struct Lease {
    holders: BTreeMap<u64, usize>,
    /// The highest token by a moment.
    newest: Vec<(Time, u64)>,
}

impl Ends {
    pub fn calm_since(&mut self, since: Option<Time>) {
        self.calm_since = since;
    }

    pub fn begin(&mut self, act: &Act, start: Time) {
        match act {
            Act::Brief { id, lives } => {
                self.briefs.insert(*id, Brief { lives: *lives, there: None, gone: None, removal: None });
            }
            Act::EndBrief { id } => {
                if let Some(brief) = self.briefs.get_mut(id) {
                    brief.removal.get_or_insert(start);
                }
            }
            _ => (),
        }
    }

    /// Of an act that was done.
    pub fn end(&mut self, act: &Act, reply: &Reply, start: Time, now: Time) -> Result<(), Broken> {
        let wrong = |promise| Err(Broken { promise, at: now, what: format!("{act:?} gave {reply:?}") });
        match (act, reply) {
            (Act::Brief { id, .. }, reply) if is_stored(reply) => {
                let brief = self.briefs.get_mut(id).expect("it began");
                brief.there.get_or_insert(now);
                Ok(())
            }
            (Act::SeeBrief { id }, Reply::List(_) | Reply::Bytes(_)) => {
                // A field alone, or a value with its version.
                let value = if let Reply::List(list) = reply { list.first() } else { Some(reply) };
                let value = value.and_then(|value| if let Reply::Bytes(v) = value { number(v) } else { None });
                match self.briefs.get_mut(id) {
                    Some(brief) if brief.is_late(self.calm_since, start) => wrong(LATE),
                    Some(brief) if value == Some(*id) && brief.gone.is_none_or(|gone| start <= gone) => {
                        brief.there.get_or_insert(now);
                        Ok(())
                    }
                    _ => wrong(ENDS),
                }
            }
            (Act::SeeBrief { id }, Reply::Nil) => match self.briefs.get_mut(id) {
                Some(brief) => brief.is_gone(start, now).or_else(|()| wrong(ENDS)),
                None => Ok(()),
            },
            (Act::EndBrief { id }, Reply::Int(was_there @ 0..=1)) => match self.briefs.get_mut(id) {
                Some(brief) if *was_there == 1 && brief.gone.is_some_and(|gone| gone < start) => wrong(ENDS),
                Some(brief) if *was_there == 1 && brief.is_late(self.calm_since, start) => wrong(LATE),
                Some(brief) if *was_there == 1 => {
                    brief.gone.get_or_insert(now);
                    Ok(())
                }
                Some(brief) => brief.is_gone(start, now).or_else(|()| wrong(ENDS)),
                None if *was_there == 0 => Ok(()),
                None => wrong(ENDS),
            },
            (Act::Claim { lease, holder, .. }, Reply::Int(token)) => {
                let (lease, token) = (self.leases.entry(lease.clone()).or_default(), *token as u64);
                let before = newest_by(&lease.newest, start);
                let same = *lease.holders.entry(token).or_insert(*holder) == *holder;
                if !same || token < before {
                    return wrong(LEASE);
                }
                note(&mut lease.newest, now, token);
                Ok(())
            }
            (Act::Claim { .. }, Reply::Nil) | (Act::Release { .. }, Reply::Int(0..=1)) => Ok(()),
            _ => wrong(ENDS),
        }
    }
}

/// What tells that a value was stored, or a field.
fn is_stored(reply: &Reply) -> bool {
    *reply == Reply::Int(1) || matches!(reply, Reply::List(list) if list.first() == Some(&Reply::Int(1)))
}

impl Brief {
    /// Has it lived for too long by `start`, when somebody began to look who then found it?
    fn is_late(&self, calm_since: Option<Time>, start: Time) -> bool {
        let since = self.there.zip(calm_since).map(|(there, calm)| there.max(calm));
        since.is_some_and(|since| start.since(since) > self.lives + GONE_WITHIN)
    }

    /// It was seen to be away, by somebody who began to look at `start`.
    fn is_gone(&mut self, start: Time, now: Time) -> Result<(), ()> {
        if self.there.is_none_or(|there| there >= start) {
            // It may not have been written yet.
            return Ok(());
        }
        if self.lives == LONG && self.removal.is_none_or(|removal| removal >= now) {
            return Err(());
        }
        self.gone.get_or_insert(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Acts one after the other, each with its answer; the promise that breaks.
    fn check(script: &[(Act, Reply)]) -> Option<&'static str> {
        let mut ends = Ends::default();
        script.iter().enumerate().find_map(|(n, (act, reply))| {
            let start = Time(10 * n as u64 + 1);
            ends.begin(act, start);
            ends.end(act, reply, start, Time(start.0 + 5)).err().map(|broken| broken.promise)
        })
    }

    #[test]
    fn values_that_come_back_or_go_too_soon_are_seen() {
        let put = |lives| (Act::Brief { id: 1, lives }, Reply::List(vec![Reply::Int(1), Reply::Nil, Reply::Int(4)]));
        let (there, away) = (Reply::List(vec![Reply::Bytes(Bytes::from("1")), Reply::Int(4)]), Reply::Nil);
        let see = |reply: &Reply| (Act::SeeBrief { id: 1 }, reply.clone());
        let remove = |n| (Act::EndBrief { id: 1 }, Reply::Int(n));
        let short = Span::millis(500);
        assert_eq!(check(&[put(short), see(&there), see(&away), see(&away), remove(0)]), None);
        assert_eq!(check(&[put(short), see(&away), see(&there)]), Some(ENDS));
        assert_eq!(check(&[put(short), see(&away), remove(1)]), Some(ENDS));
        assert_eq!(check(&[put(LONG), see(&there), remove(1), see(&away)]), None);
        assert_eq!(check(&[put(LONG), see(&away)]), Some(ENDS));
        assert_eq!(check(&[put(LONG), remove(1), see(&there)]), Some(ENDS));
        assert_eq!(check(&[see(&there)]), Some(ENDS));
        // Of a field.
        let put = |lives| (Act::Brief { id: 2, lives }, Reply::Int(1));
        let (there, see) = (Reply::Bytes(Bytes::from("2")), |reply: &Reply| (Act::SeeBrief { id: 2 }, reply.clone()));
        let remove = |n| (Act::EndBrief { id: 2 }, Reply::Int(n));
        assert_eq!(check(&[put(short), see(&there), see(&away), remove(0)]), None);
        assert_eq!(check(&[put(short), see(&away), see(&there)]), Some(ENDS));
        assert_eq!(check(&[put(LONG), see(&away)]), Some(ENDS));
    }

    #[test]
    fn values_that_live_too_long_while_all_is_calm_are_seen() {
        let after = |calm_since: Option<u64>, looks: u64| {
            let (mut ends, lives) = (Ends::default(), Span::millis(700));
            ends.calm_since(calm_since.map(Time));
            let (put, see) = (Act::Brief { id: 1, lives }, Act::SeeBrief { id: 1 });
            ends.begin(&put, Time(1));
            let stored = Reply::List(vec![Reply::Int(1), Reply::Nil, Reply::Int(4)]);
            ends.end(&put, &stored, Time(1), Time(5)).unwrap();
            let there = Reply::List(vec![Reply::Bytes(Bytes::from("1")), Reply::Int(4)]);
            ends.end(&see, &there, Time(looks), Time(looks + 9)).err().map(|broken| broken.promise)
        };
        let last = 5 + (Span::millis(700) + GONE_WITHIN).0;
        assert_eq!((after(Some(0), last), after(Some(0), last + 1)), (None, Some(LATE)));
        assert_eq!(after(None, last + 1), None, "faults may strike");
        assert_eq!((after(Some(9), last + 4), after(Some(9), last + 5)), (None, Some(LATE)));
    }

    #[test]
    fn tokens_that_fall_or_have_two_holders_are_seen() {
        let lives = Span::secs(1);
        let claim = |holder, token| (Act::Claim { lease: "h".into(), holder, lives }, Reply::Int(token));
        let taken = (Act::Claim { lease: "h".into(), holder: 2, lives }, Reply::Nil);
        assert_eq!(check(&[claim(1, 5), claim(1, 5), taken, claim(2, 9)]), None);
        assert_eq!(check(&[claim(1, 5), claim(2, 5)]), Some(LEASE));
        assert_eq!(check(&[claim(1, 5), claim(2, 4)]), Some(LEASE));
    }
}
