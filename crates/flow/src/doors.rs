//! Several doors to the same clones. Each finds out by itself how much may be under way there, at all doors together, and they
//! tell each other what comes to them and what they found. So each knows which part of it is kept for others: first for what
//! matters more, at whatever door, then an equal part for each. What is told is mostly what clients want, not what was let
//! in: it does not depend on what doors decide, so nobody follows anybody, and late news makes no swings. A door that is
//! not heard counts for nothing; then each gets what it can, as if it were alone.

use std::ops::RangeFrom;

use crate::admission::CLASSES;
use crate::limits::PROBE_PART;

/// What a door says of itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Door {
    /// Requests of each priority a second, refused ones too.
    pub rates: [f64; CLASSES],
    /// What it has under way.
    pub under_way: f64,
    /// Limit of requests under way at all doors together, as this door has found it out.
    pub size: f64,
    /// Some find no room.
    pub is_full: bool,
    /// Seconds that a request takes without a queue.
    pub takes: f64,
    /// How long answers take, over how long they may: above 1 requests wait at the clones.
    pub queue: f64,
}

/// The other doors, as last heard.
#[derive(Clone, Debug, Default)]
pub struct Others(Vec<Door>);

impl Door {
    fn rate(&self, classes: RangeFrom<usize>) -> f64 {
        self.rates[classes].iter().sum()
    }

    /// The lowest priority that comes to it.
    fn lowest(&self) -> Option<usize> {
        self.rates.iter().position(|rate| *rate > 0.0)
    }
}

impl Others {
    pub fn new(mut doors: Vec<Door>) -> Self {
        doors.truncate(DOORS_MAX);
        Self(doors)
    }

    pub fn rate(&self, class: usize) -> f64 {
        self.0.iter().map(|door| door.rates[class]).sum()
    }

    /// What they have under way. While the limit is tested each door lets in but a part of the lowest priority of all, if they
    /// test it together.
    pub fn under_way(&self, tested: Option<usize>, takes: f64) -> f64 {
        let under_way = |door: &Door| {
            let higher = door.under_way.min(door.rate(tested.map_or(0, |lowest| lowest + 1)..) * takes);
            let is_tested = tested.is_some() && door.lowest() == tested;
            if is_tested { higher + (door.under_way - higher) / f64::from(PROBE_PART) } else { door.under_way }
        };
        self.0.iter().map(under_way).sum()
    }

    /// What they have under way that matters less than this priority.
    pub fn below(&self, class: usize, takes: f64) -> f64 {
        let below = |door: &&Door| door.lowest().is_some_and(|lowest| lowest < class);
        self.0.iter().filter(below).map(|door| (door.under_way - door.rate(class..) * takes).max(0.0)).sum()
    }

    pub fn is_full(&self) -> bool {
        self.0.iter().any(|door| door.is_full)
    }

    /// How long answers take where something comes that matters more than this priority, over how long they may.
    pub fn queue_above(&self, class: usize) -> Option<f64> {
        self.mean(|door| door.rate(class + 1..) > 0.0, |door| door.queue)
    }

    /// What they have learned: how long a request takes without a queue, and how long answers take over how long they may.
    pub fn learned(&self) -> Option<(f64, f64)> {
        Some((self.mean(|_| true, |door| door.takes)?, self.mean(|_| true, |door| door.queue)?))
    }

    /// The mean of something, by what is under way.
    fn mean(&self, among: impl Fn(&Door) -> bool, of: impl Fn(&Door) -> f64) -> Option<f64> {
        let doors = || self.0.iter().filter(|door| among(door));
        let under_way: f64 = doors().map(|door| door.under_way).sum();
        (under_way > 0.0).then(|| doors().map(|door| door.under_way * of(door)).sum::<f64>() / under_way)
    }

    /// The mean size that doors have found which are as full as one with this lowest priority: they found it in the same way.
    pub fn size(&self, lowest: usize) -> Option<f64> {
        let alike = || self.0.iter().filter(|door| door.is_full && door.lowest() == Some(lowest));
        let count = alike().count();
        (count > 0).then(|| alike().map(|door| door.size).sum::<f64>() / count as f64)
    }

    /// One more door's part of what is there for a priority: as much as each other door may have, and what those do not want.
    pub fn share(&self, class: usize, rest: f64, takes: f64) -> f64 {
        let mut wishes: Vec<f64> =
            self.0.iter().map(|door| door.rates[class] * takes).filter(|wish| *wish > 0.0).collect();
        wishes.sort_by(f64::total_cmp);
        let mut left = rest;
        for (at, wish) in wishes.iter().enumerate() {
            let share = left / (wishes.len() - at + 1) as f64;
            if *wish > share {
                return share;
            }
            left -= wish;
        }
        left
    }
}

/// Doors that are taken into account: as many as there may be nodes.
const DOORS_MAX: usize = 1024;

#[cfg(test)]
#[path = "doors_tests.rs"]
mod tests;
