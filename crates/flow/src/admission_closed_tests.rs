//! Clients in number that each ask again once they are answered, before one quick clone, in steps of a tenth of a
//! millisecond. However many: as long as the queue that they make drains within what the doors let anybody wait, nobody
//! is refused. Beside them, the same door with more and more new clients: there the queue grows, and most are refused
//! early.

use std::collections::VecDeque;

use base::Rng;

use super::*;
use crate::histogram::Histogram;
use crate::limit::most_log;

const BOUNDS: Bounds = Bounds { first: 64, min: 1, max: 1024, tolerance_percent: 125, slack: Span::millis(4) };
const CLASS: usize = 5;
/// What a clone does at once, and what one takes, in steps: it can do 20,000 a second.
const AT_ONCE: usize = 10;
const TAKES: u64 = 5;
/// From an answer to the next request of the same client, at least.
const AGAIN: u64 = 2;
const SECOND: u64 = 10_000;
const STEPS_OF_LOOK: u64 = SECOND / 10;
/// The doors let nobody wait for longer.
const WAIT_MAX: u64 = SECOND;

struct World {
    now: u64,
    rng: Rng,
    admission: Admission,
    rooms: Rooms,
    /// When clients that have an answer ask again.
    asks: VecDeque<u64>,
    waiting: VecDeque<u64>,
    at_clone: VecDeque<u64>,
    /// With when each ends, and since when it is let in.
    at_work: Vec<(u64, u64)>,
    under_way: u32,
    seen: Seen,
    came: Came,
    took: Histogram,
    shortest: Option<u64>,
    refused: u64,
    done: u64,
    /// Steps that those waited who were let in.
    longest: u64,
}

impl World {
    fn new(clients: usize) -> Self {
        let admission = Admission::new(BOUNDS);
        Self {
            now: SECOND,
            rng: Rng::new(7),
            rooms: admission.rooms(),
            admission,
            // They connect one after the other.
            asks: (0..clients as u64).map(|n| SECOND + n / 4).collect(),
            waiting: VecDeque::new(),
            at_clone: VecDeque::new(),
            at_work: Vec::new(),
            under_way: 0,
            seen: Seen::default(),
            came: Came::default(),
            took: Histogram::default(),
            shortest: None,
            refused: 0,
            done: 0,
            longest: 0,
        }
    }

    /// Whether the clone does anything in a step, and how many of new clients come, who ask once.
    fn step(&mut self, works: bool, new: f64) {
        self.now += 1;
        let now = self.now;
        if works {
            for (_, let_in) in self.at_work.extract_if(.., |(until, _)| *until <= now) {
                self.under_way -= 1;
                self.seen.done += 1;
                self.done += 1;
                self.took.note(Span((now - let_in) * 100));
                if new == 0.0 {
                    self.asks.push_back(now + AGAIN + self.rng.below(4));
                }
            }
        }
        let mut come = new as usize + usize::from(self.rng.chance(new.fract()));
        while self.asks.pop_front_if(|at| *at <= now).is_some() {
            come += 1;
        }
        self.came.arrived[CLASS] += come as u64;
        self.waiting.extend(std::iter::repeat_n(now, come));
        while self.under_way < self.rooms.room[CLASS]
            && let Some(since) = self.waiting.pop_front()
        {
            let waited = now - since;
            self.longest = self.longest.max(waited);
            self.shortest = Some(self.shortest.map_or(waited, |shortest| shortest.min(waited)));
            self.under_way += 1;
            self.came.let_in[CLASS] += 1;
            self.seen.under_way_max = self.seen.under_way_max.max(self.under_way);
            self.at_clone.push_back(now);
        }
        self.seen.no_room += self.waiting.iter().rev().take_while(|since| **since == now).count() as u64;
        let mut refused = self.waiting.len().saturating_sub(self.rooms.waiting[CLASS] as usize);
        self.waiting.truncate(self.waiting.len() - refused);
        while self.waiting.pop_front_if(|since| now - *since >= WAIT_MAX).is_some() {
            refused += 1;
        }
        self.came.refused += refused as u64;
        self.refused += refused as u64;
        if new == 0.0 {
            // They do not heed when they are told to come back.
            self.asks.extend(std::iter::repeat_n(now + 10, refused));
        }
        while works
            && self.at_work.len() < AT_ONCE
            && let Some(let_in) = self.at_clone.pop_front()
        {
            self.at_work.push((now + TAKES, let_in));
        }
        // Who ends looks.
        if works && now.is_multiple_of(STEPS_OF_LOOK) {
            self.look();
        }
    }

    fn look(&mut self) {
        self.came.under_way = self.under_way;
        self.came.waited = Span(self.shortest.take().unwrap_or(0) * 100);
        let seen = Seen { took_log: most_log(self.took.counts()), ..std::mem::take(&mut self.seen) };
        self.took.clear();
        self.rooms = self.admission.look(Time(self.now * 100), &seen, &std::mem::take(&mut self.came));
        self.seen.under_way_max = self.under_way;
    }

    fn run(&mut self, steps: u64, new: f64) {
        (0..steps).for_each(|_| self.step(true, new));
    }
}

#[test]
fn however_many_ask_again_once_answered_nobody_is_refused_while_the_queue_drains_in_time() {
    for clients in [64, 512, 2_000, 4_000, 8_000] {
        // So long they wait at most.
        for stall_ms in [0, 50, 200].into_iter().filter(|stall| stall + clients as u64 / 20 < 500) {
            let mut world = World::new(clients);
            for _ in 0..5 {
                world.run(2 * SECOND, 0.0);
                (0..stall_ms * 10).for_each(|_| world.step(false, 0.0));
            }
            let rate = world.done / 10;
            assert_eq!(world.refused, 0, "{clients} clients, stalls of {stall_ms} ms: refused of {}", world.done);
            assert!(rate > 12_000, "{clients} clients, stalls of {stall_ms} ms: {rate} a second");
        }
    }
}

#[test]
fn where_new_clients_come_without_end_most_of_them_hear_so_early() {
    for over in [1.2, 1.5, 3.0] {
        let mut world = World::new(0);
        world.run(5 * SECOND, over * 2.0);
        (world.longest, world.refused, world.done) = (0, 0, 0);
        let mut waits = Vec::new();
        for _ in 0..200 {
            world.run(STEPS_OF_LOOK, over * 2.0);
            waits.push(std::mem::take(&mut world.longest));
        }
        waits.sort_unstable();
        let came = over * 20_000.0 * 20.0;
        let part = world.refused as f64 / came;
        assert!((part - (1.0 - 1.0 / over)).abs() < 0.1, "{over}: {part} were refused");
        // A trial now and then lets some wait for longer.
        let (most, all) = (waits[waits.len() * 8 / 10], waits[waits.len() - 1]);
        assert!(most < SECOND / 10 && all < SECOND * 6 / 10, "{over}: {most}, {all} steps");
    }
}

#[test]
fn what_a_slow_time_made_of_them_is_over_within_two_seconds() {
    for clients in [2_000, 4_000] {
        let mut world = World::new(clients);
        world.run(3 * SECOND, 0.0);
        assert_eq!(world.refused, 0);
        // A fortieth of what it can do (ten every 200 steps): they would wait for four seconds and more.
        (0..3 * SECOND).for_each(|_| world.step(world.now.is_multiple_of(200), 0.0));
        assert!(world.refused > 1_000, "{clients} clients wait for too long: {} refused", world.refused);
        world.run(2 * SECOND, 0.0);
        let refused = world.refused;
        world.run(10 * SECOND, 0.0);
        assert_eq!(world.refused, refused, "{clients} clients");
    }
}
