//! Doors before one service, millisecond by millisecond: requests come by chance, wait, are let in or refused as a door's
//! admission says, wait at the service if that has too much to do, and doors hear late of each other.

use std::collections::VecDeque;

use base::{Rng, Span, Time};

use super::*;
use crate::admission::{Admission, Came, Rooms};
use crate::histogram::Histogram;
use crate::limit::{Bounds, Seen, most_log};

const BOUNDS: Bounds = Bounds { first: 128, min: 2, max: 2048, tolerance_percent: 125, slack: Span::millis(4) };
const WORKERS: usize = 10;
/// Requests a second that they can do.
const CAPACITY: f64 = 400.0;
const LOOK_EVERY: u64 = 100;
const TELL_EVERY: u64 = 250;
const WAIT_MAX: u64 = 1000;

/// One door.
struct At {
    admission: Admission,
    rooms: Rooms,
    under_way: u32,
    waiting: [VecDeque<u64>; CLASSES],
    seen: Seen,
    /// All of the requests in `seen`, together.
    took: Histogram,
    took_ms: u64,
    came: Came,
    /// What it said, and when that arrives.
    says: VecDeque<(u64, Door)>,
    heard: Door,
    counts: [Counts; CLASSES],
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    came: u64,
    done: u64,
}

struct World {
    now_ms: u64,
    rng: Rng,
    doors: Vec<At>,
    at_work: Vec<Work>,
    queue: VecDeque<Request>,
    takes_ms: u64,
    delay_ms: u64,
    tells: bool,
}

#[derive(Clone, Copy)]
struct Request {
    door: usize,
    class: usize,
    /// Let in.
    since: u64,
}

#[derive(Clone, Copy)]
struct Work {
    until: u64,
    request: Request,
}

impl At {
    fn let_in(&mut self, door: usize, now: u64, queue: &mut VecDeque<Request>) {
        for class in (0..CLASSES).rev() {
            let waiting = &mut self.waiting[class];
            waiting.retain(|since| now - since < WAIT_MAX);
            while self.under_way < self.rooms.room[class]
                && let Some(since) = waiting.pop_front()
            {
                self.came.waited = self.came.waited.max(Span::millis(now - since));
                self.came.let_in[class] += 1;
                self.under_way += 1;
                self.seen.under_way_max = self.seen.under_way_max.max(self.under_way);
                queue.push_back(Request { door, class, since: now });
            }
            self.seen.no_room += waiting.iter().filter(|since| **since == now).count() as u64;
            while waiting.len() > self.rooms.waiting[class] as usize {
                waiting.pop_back();
                self.came.refused += 1;
            }
        }
    }

    fn look(&mut self, now: u64) {
        self.came.under_way = self.under_way;
        let (seen, came) = (std::mem::take(&mut self.seen), std::mem::take(&mut self.came));
        self.took_ms = 0;
        let seen = Seen { took_log: most_log(self.took.counts()), ..seen };
        self.took.clear();
        self.rooms = self.admission.look(Time(now * 1000), &seen, &came);
        self.seen.under_way_max = self.under_way;
    }
}

impl World {
    fn new(doors: usize) -> Self {
        let door = |_| {
            let admission = Admission::new(BOUNDS);
            let rooms = admission.rooms();
            At {
                admission,
                rooms,
                under_way: 0,
                waiting: Default::default(),
                seen: Seen::default(),
                took: Histogram::default(),
                took_ms: 0,
                came: Came::default(),
                says: VecDeque::new(),
                heard: Door::default(),
                counts: Default::default(),
            }
        };
        Self {
            now_ms: 100_000,
            rng: Rng::new(7),
            doors: (0..doors).map(door).collect(),
            at_work: Vec::new(),
            queue: VecDeque::new(),
            takes_ms: 25,
            delay_ms: 250,
            tells: true,
        }
    }

    /// Of each door, (priority, requests that come over what all workers can do), for so many seconds.
    fn run(&mut self, seconds: f64, load: &[&[(usize, f64)]]) -> Vec<[Counts; CLASSES]> {
        self.doors.iter_mut().for_each(|door| door.counts = Default::default());
        for _ in 0..(seconds * 1000.0) as u64 {
            self.step(load);
        }
        self.doors.iter().map(|door| door.counts).collect()
    }

    fn step(&mut self, load: &[&[(usize, f64)]]) {
        self.now_ms += 1;
        let now = self.now_ms;
        let ended: Vec<_> = self.at_work.iter().copied().filter(|work| work.until <= now).collect();
        self.at_work.retain(|work| work.until > now);
        for Work { request: Request { door, class, since }, .. } in ended {
            let door = &mut self.doors[door];
            door.under_way -= 1;
            door.seen.done += 1;
            door.took.note(Span::millis(now - since));
            door.took_ms += now - since;
            door.counts[class].done += 1;
        }
        for (index, door) in self.doors.iter_mut().enumerate() {
            for (class, load) in load[index] {
                // Up to three a millisecond.
                for _ in 0..3 {
                    if self.rng.chance(load * CAPACITY / 3000.0) {
                        door.counts[*class].came += 1;
                        door.came.arrived[*class] += 1;
                        door.waiting[*class].push_back(now);
                    }
                }
            }
            door.let_in(index, now, &mut self.queue);
            if (now + index as u64 * 37).is_multiple_of(LOOK_EVERY) {
                door.look(now);
            }
        }
        while self.at_work.len() < WORKERS
            && let Some(request) = self.queue.pop_front()
        {
            // Half to one and a half of the mean.
            let takes = self.rng.between(self.takes_ms / 2, self.takes_ms * 3 / 2);
            self.at_work.push(Work { until: now + takes, request });
        }
        if self.tells {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let now = self.now_ms;
        for (index, door) in self.doors.iter_mut().enumerate() {
            if (now + index as u64 * 83).is_multiple_of(TELL_EVERY) {
                door.says.push_back((now + self.delay_ms, door.admission.door()));
            }
            while let Some((_, said)) = door.says.pop_front_if(|(at, _)| *at <= now) {
                door.heard = said;
            }
        }
        let heard: Vec<Door> = self.doors.iter().map(|door| door.heard).collect();
        for (index, door) in self.doors.iter_mut().enumerate() {
            if (now + index as u64 * 51).is_multiple_of(TELL_EVERY) {
                let others = heard.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, door)| *door);
                door.admission.hear(Time(now * 1000), Others::new(others.collect()));
            }
        }
    }
}

type Load<'a> = &'a [&'a [(usize, f64)]];

/// Of what came.
fn served(counts: &Counts) -> f64 {
    counts.done as f64 / counts.came.max(1) as f64
}

/// What was done, of what all workers can do in so many seconds.
fn part(counts: &Counts, seconds: f64) -> f64 {
    counts.done as f64 / (CAPACITY * seconds)
}

const TOP: usize = 9;
const LOW: usize = 3;

/// Two doors, each with a priority of its own, in load that rises for half a minute to where the upper one needs all: what was
/// served of the upper one in all this time, and what was done in overload.
fn rise(delay_ms: u64, tells: bool, seed: u64) -> (f64, f64) {
    let mut world = World { delay_ms, tells, rng: Rng::new(seed), ..World::new(2) };
    let (mut upper, mut all) = (Counts::default(), 0.0);
    for second in 0..30 {
        let load = 0.3 + 0.65 * f64::from(second) / 30.0;
        let counts = world.run(1.0, &[&[(TOP, load)], &[(LOW, load)]]);
        (upper.came, upper.done) = (upper.came + counts[0][TOP].came, upper.done + counts[0][TOP].done);
        if load > 0.6 {
            all += part(&counts[0][TOP], 16.0) + part(&counts[1][LOW], 16.0);
        }
    }
    (served(&upper), all)
}

#[test]
fn what_matters_more_loses_nothing_to_what_comes_to_another_door() {
    for delay in [20, 250, 1000] {
        let runs: Vec<_> = (0..12).map(|seed| rise(delay, true, seed)).collect();
        let mean = runs.iter().map(|(upper, _)| upper).sum::<f64>() / runs.len() as f64;
        assert!(mean > 0.99, "late by {delay} ms: {mean} of the upper one served");
        for (seed, (upper, all)) in runs.into_iter().enumerate() {
            assert!(upper > 0.95, "late by {delay} ms, seed {seed}: {upper} of the upper one served");
            assert!(all > 0.8, "late by {delay} ms, seed {seed}: {all} of the capacity used");
        }
    }
    let (upper, _) = rise(0, false, 0);
    assert!(upper < 0.9, "doors that tell each other nothing cannot do that: {upper}");
}

#[test]
fn what_one_door_does_not_need_the_other_gets_and_gives_back() {
    for seed in 0..4 {
        let mut world = World { rng: Rng::new(seed), ..World::new(2) };
        let (busy, quiet): (Load, Load) = (&[&[(TOP, 0.9)], &[(LOW, 0.9)]], &[&[(TOP, 0.2)], &[(LOW, 0.9)]]);
        world.run(10.0, busy);
        world.run(3.0, quiet);
        let free = world.run(5.0, quiet);
        assert!(served(&free[0][TOP]) > 0.98, "seed {seed}: {free:?}");
        assert!(part(&free[1][LOW], 5.0) > 0.5, "seed {seed}: {free:?}");
        let again = world.run(5.0, busy);
        assert!(served(&again[0][TOP]) > 0.95, "seed {seed}: {again:?}");
        assert!(part(&again[1][LOW], 5.0) < 0.15, "seed {seed}: {again:?}");
    }
}

#[test]
fn with_equal_priorities_doors_get_equal_parts_and_who_asks_little_gets_it() {
    for seed in 0..4 {
        let mut world = World { rng: Rng::new(seed), ..World::new(3) };
        let load: Load = &[&[(5, 0.2)], &[(5, 0.9)], &[(5, 0.7)]];
        world.run(10.0, load);
        let counts = world.run(15.0, load);
        let (little, more, much) = (served(&counts[0][5]), part(&counts[2][5], 15.0), part(&counts[1][5], 15.0));
        assert!(little > 0.85, "seed {seed}: {little}");
        assert!((0.75..1.33).contains(&(more / much)), "seed {seed}: {more} and {much}");
        assert!(more + much > 0.7, "seed {seed}: {more} and {much}");
    }
}

#[test]
fn steady_load_is_served_steadily() {
    for delay_ms in [20, 250, 1000] {
        let mut world = World { delay_ms, ..World::new(2) };
        let load: Load = &[&[(TOP, 0.6)], &[(LOW, 0.8)]];
        world.run(10.0, load);
        for second in 0..20 {
            let counts = world.run(1.0, load);
            let all = part(&counts[0][TOP], 1.0) + part(&counts[1][LOW], 1.0);
            assert!(served(&counts[0][TOP]) > 0.9 && all > 0.6, "late by {delay_ms} ms, second {second}: {counts:?}");
        }
    }
}

#[test]
fn doors_that_do_not_hear_of_each_other_any_more_use_all_there_is() {
    let mut world = World::new(2);
    let load: Load = &[&[(TOP, 0.8)], &[(LOW, 0.8)]];
    world.run(10.0, load);
    world.tells = false;
    world.run(3.0, load);
    let counts = world.run(5.0, load);
    assert!(part(&counts[0][TOP], 5.0) + part(&counts[1][LOW], 5.0) > 0.9, "{counts:?}");
    // Nothing comes to one of them any more.
    let load: Load = &[&[], &[(LOW, 0.8)]];
    world.run(3.0, load);
    let counts = world.run(5.0, load);
    assert!(served(&counts[1][LOW]) > 0.97, "{counts:?}");
}

#[test]
fn clones_that_became_slower_for_good_are_used_as_before() {
    for load in [[&[(5, 0.8)], &[(5, 0.8)]], [&[(TOP, 0.8)], &[(LOW, 0.8)]]] {
        let load: [&[(usize, f64)]; 2] = load.map(|door| &door[..]);
        let mut world = World::new(2);
        world.run(10.0, &load);
        world.takes_ms *= 3;
        world.run(15.0, &load);
        let done: u64 = world.run(10.0, &load).iter().flatten().map(|counts| counts.done).sum();
        assert!(done as f64 > 0.8 * CAPACITY / 3.0 * 10.0, "{done} of {load:?}");
    }
}

#[test]
fn many_doors_share_little() {
    let mut world = World::new(12);
    let some: &[(usize, f64)] = &[(5, 0.3)];
    let load = [some; 12];
    world.run(10.0, &load);
    for counts in world.run(10.0, &load) {
        assert!((0.05..0.12).contains(&part(&counts[5], 10.0)), "{counts:?}");
    }
}

#[test]
fn many_full_doors_do_not_take_their_own_queue_for_what_clones_need() {
    let mut world = World::new(12);
    let some: &[(usize, f64)] = &[(5, 0.3)];
    let load = [some; 12];
    // They begin one after the other, so they test at different times.
    for doors in 1..12 {
        let first: Vec<&[(usize, f64)]> = (0..12).map(|door| if door < doors { some } else { &[][..] }).collect();
        world.run(0.8, &first);
    }
    world.run(160.0, &load);
    // From look to look, over 20 s: in a single one it may be a fifth more or less.
    let (mut done, mut took) = (0, 0);
    for _ in 0..200 {
        world.run(0.099, &load);
        (done, took) =
            world.doors.iter().fold((done, took), |sum, door| (sum.0 + door.seen.done, sum.1 + door.took_ms));
    }
    assert!(took / done.max(1) < 240, "answers of 25 ms take {} ms", took / done.max(1));
}

#[test]
fn a_door_has_what_the_others_leave_and_no_less_than_each_of_them() {
    let wants = |wishes: &[f64]| {
        let door = |wish: &f64| Door { rates: std::array::from_fn(|_| *wish), ..Door::default() };
        Others::new(wishes.iter().map(door).collect())
    };
    assert_eq!(wants(&[]).share(0, 10.0, 1.0), 10.0);
    assert_eq!(wants(&[2.0]).share(0, 10.0, 1.0), 8.0);
    assert_eq!(wants(&[20.0]).share(0, 10.0, 1.0), 5.0);
    assert_eq!(wants(&[20.0, 1.0, 20.0]).share(0, 10.0, 1.0), 3.0);
    assert_eq!(wants(&[20.0, 1.0]).share(0, 10.0, 0.1), 7.9, "a tenth of a second each");
}

#[test]
fn a_door_with_room_gives_way_to_one_where_the_same_is_refused() {
    for seed in 0..4 {
        let mut world = World { rng: Rng::new(seed), ..World::new(2) };
        let load: Load = &[&[(TOP, 0.35), (LOW, 0.35)], &[(LOW, 0.45)]];
        for step in 0..20 {
            let less = 0.1 + 0.0125 * f64::from(step);
            world.run(1.0, &[&[(TOP, less), (LOW, less)], load[1]]);
        }
        let counts = world.run(10.0, load);
        let (first, second) = (served(&counts[0][LOW]), served(&counts[1][LOW]));
        assert!(served(&counts[0][TOP]) > 0.98, "seed {seed}: {counts:?}");
        assert!((0.7..1.43).contains(&(first / second)), "seed {seed}: {first} and {second}");
    }
}
