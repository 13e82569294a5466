//! The rule, by table and beside a model of queues and workers: what waits too long brings clones, what is worked off in time brings
//! none, and nothing flaps, whoever leads.

use super::*;

const QUEUE: &str = "jobs/mails";
const OTHER: &str = "jobs/pictures";
const START: Span = Span::secs(1);

fn spec(min: u32, max: u32) -> ServiceSpec {
    let clones = Size { min, max };
    ServiceSpec { clones, queues: vec![QUEUE.into()], wait: Some(Span::secs(5)), ..ServiceSpec::new(["worker"]) }
}

fn backlog(waiting: u64, held: u64, oldest_s: u64) -> Backlog {
    Backlog { waiting, held, oldest: Span::secs(oldest_s) }
}

/// A second of a service whose clones all serve: what is told then, and what its size is afterwards.
struct Desk {
    sizer: QueueSizer,
    now: Time,
    spec: ServiceSpec,
    target: u32,
    changes: Vec<u32>,
    why: String,
}

impl Desk {
    fn new(spec: ServiceSpec, target: u32) -> Self {
        let now = Time(1_000_000);
        Self { sizer: QueueSizer::new(now), now, spec, target, changes: Vec::new(), why: String::new() }
    }

    fn second(&mut self, told: &[(&str, Backlog)]) {
        let told = told.iter().map(|(name, backlog)| ((*name).to_owned(), *backlog)).collect();
        for _ in 0..4 {
            self.now = self.now + LOAD_EVERY;
            self.sizer.observe(self.now, &self.spec.queues, &told);
            if let Some(decision) = self.sizer.decide(self.now, &self.spec, START, (self.target, self.target)) {
                (self.target, self.why) = (decision.to, decision.why);
                self.changes.push(decision.to);
            }
        }
    }

    fn seconds(&mut self, seconds: u32, told: &[(&str, Backlog)]) {
        (0..seconds).for_each(|_| self.second(told));
    }
}

#[test]
fn clones_follow_the_oldest_job() {
    // What is told for so many seconds, with so many clones of 1 to 8, and how many there are then.
    for (of, target, seconds, to) in [
        // Nothing is in it.
        (backlog(0, 0, 0), 1, 60, 1),
        // The oldest waits long, but not too long.
        (backlog(100, 1, 5), 1, 60, 1),
        (backlog(100, 1, 6), 1, 1, 2),
        // A rest lies between two growths.
        (backlog(100, 2, 9), 2, 3, 4),
        (backlog(100, 2, 9), 2, 5, 8),
        (backlog(100, 8, 99), 8, 60, 8),
        // No more than find a job.
        (backlog(1, 2, 9), 2, 1, 3),
        // Each has ten jobs at a time: ten more that wait are work for one.
        (backlog(10, 20, 9), 2, 1, 3),
        // All are busy, and nobody waits for long.
        (backlog(3, 8, 1), 8, 120, 8),
        // Half of the fewer would do.
        (backlog(0, 0, 0), 8, 19, 8),
        (backlog(0, 0, 0), 8, 21, 4),
        (backlog(0, 2, 0), 8, 120, 4),
        // Nobody waits too long, but it is not at ease.
        (backlog(3, 0, 3), 8, 120, 8),
    ] {
        let mut desk = Desk::new(spec(1, 8), target);
        desk.seconds(seconds, &[(QUEUE, of)]);
        assert_eq!(desk.target, to, "{of:?} with {target} for {seconds} s: {:?} {}", desk.changes, desk.why);
    }
    let mut desk = Desk::new(spec(1, 8), 1);
    desk.second(&[(QUEUE, backlog(12, 1, 7))]);
    assert_eq!(
        desk.why,
        "1 -> 2 clones: the oldest job of jobs/mails waits 7000ms (5s hurt), 12 wait; a start takes 1000ms, so nothing changes for \
         4000ms"
    );
}

#[test]
fn a_range_from_none_starts_the_first_clone_with_the_first_job_and_ends_the_last_when_nothing_is_left() {
    let mut desk = Desk::new(spec(0, 4), 0);
    desk.seconds(100, &[(QUEUE, backlog(0, 0, 0))]);
    assert!(desk.changes.is_empty(), "{:?}", desk.changes);
    desk.second(&[(QUEUE, backlog(1, 0, 0))]);
    assert_eq!(desk.changes, [1]);
    desk.seconds(100, &[(QUEUE, backlog(0, 1, 0))]);
    assert_eq!(desk.changes, [1], "it has a job");
    desk.seconds(30, &[(QUEUE, backlog(0, 0, 0))]);
    assert_eq!(desk.changes, [1, 0]);
}

#[test]
fn the_queue_that_waits_longest_counts_and_none_that_is_silent_makes_clones_go() {
    let mut desk = Desk::new(ServiceSpec { queues: vec![QUEUE.into(), OTHER.into()], ..spec(1, 8) }, 4);
    let idle = backlog(0, 0, 0);
    desk.seconds(30, &[(QUEUE, idle)]);
    assert!(desk.changes.is_empty(), "nobody has told of the other one");
    desk.second(&[(QUEUE, idle), (OTHER, backlog(9, 4, 8))]);
    assert_eq!(desk.changes, [8]);
    assert!(desk.why.contains("oldest job of jobs/pictures waits 8000ms"), "{}", desk.why);
    // Its leader is gone, and the next one tells of it after a while: over and over.
    for _ in 0..10 {
        desk.seconds(12, &[(QUEUE, idle), (OTHER, backlog(0, 8, 1))]);
        desk.seconds(12, &[(QUEUE, idle)]);
        desk.seconds(12, &[]);
    }
    assert_eq!(desk.changes, [8]);
    // A queue that was removed holds nothing up for ever.
    desk.seconds(180, &[(QUEUE, idle)]);
    assert_eq!(desk.changes, [8, 4, 2, 1]);
}

#[test]
fn a_new_leader_of_the_cluster_changes_nothing_until_it_has_heard_of_the_queues() {
    let mut desk = Desk::new(spec(1, 8), 6);
    for _ in 0..10 {
        desk.sizer = QueueSizer::new(desk.now);
        desk.seconds(8, &[]);
        desk.seconds(8, &[(QUEUE, backlog(0, 1, 0))]);
    }
    assert!(desk.changes.is_empty(), "{:?}", desk.changes);
    desk.seconds(60, &[(QUEUE, backlog(0, 1, 0))]);
    assert_eq!(desk.changes, [3, 2]);
}

#[test]
fn what_lies_outside_its_range_is_put_right_at_once_and_a_number_is_left_alone() {
    let mut desk = Desk::new(spec(2, 4), 7);
    desk.second(&[]);
    assert_eq!(desk.changes, [4]);
    let mut desk = Desk::new(spec(3, 3), 3);
    desk.seconds(60, &[(QUEUE, backlog(99, 3, 99))]);
    assert!(desk.changes.is_empty(), "{:?}", desk.changes);
}

/// Jobs that come so often, and workers of which each does one at a time.
struct Model {
    desk: Desk,
    /// When each that waits was put.
    waiting: std::collections::VecDeque<Time>,
    put: f64,
    done: f64,
    /// Clones serve this long after they were decided.
    serve_at: Vec<Time>,
    oldest_max: Span,
}

impl Model {
    /// `rate` jobs a second for so long, each of which takes a clone `takes`.
    fn run(&mut self, seconds: u32, rate: f64, takes: f64) {
        for _ in 0..seconds {
            self.put += rate;
            let now = self.desk.now;
            while self.put >= 1.0 {
                self.put -= 1.0;
                self.waiting.push_back(now);
            }
            let serving = self.serve_at.iter().filter(|at| **at <= now).count();
            self.done += serving as f64 / takes;
            let mut held = 0.0;
            while self.done >= 1.0 && !self.waiting.is_empty() {
                (self.done, held) = (self.done - 1.0, held + takes);
                self.waiting.pop_front();
            }
            self.done = self.done.min(serving as f64 / takes);
            let oldest = self.waiting.front().map_or(Span::ZERO, |put| now.since(*put));
            self.oldest_max = self.oldest_max.max(oldest);
            let (waiting, held) = (self.waiting.len() as u64, (held.round() as u64).min(serving as u64));
            self.desk.second(&[(QUEUE, Backlog { waiting, held, oldest })]);
            self.serve_at.resize(self.desk.target as usize, self.desk.now + START);
        }
    }
}

#[test]
fn a_burst_is_worked_off_and_nothing_flaps_before_or_after() {
    let desk = Desk::new(spec(1, 16), 1);
    let (waiting, serve_at) = (std::collections::VecDeque::new(), vec![Time::ZERO]);
    let mut model = Model { desk, waiting, put: 0.0, done: 0.0, serve_at, oldest_max: Span::ZERO };
    model.run(120, 0.4, 1.0);
    assert!(model.desk.changes.is_empty(), "one does them");
    model.run(120, 6.0, 1.0);
    let grown = model.desk.changes.clone();
    // Twice as many until it is enough, and what was too many is put right.
    assert!(grown.len() <= 5 && (7..=16).contains(&model.desk.target), "{grown:?}");
    assert!(model.oldest_max < Span::secs(20), "{:?} {grown:?}", model.oldest_max);
    assert!(model.waiting.len() < 7, "{}", model.waiting.len());
    model.run(300, 6.0, 1.0);
    assert!(model.desk.changes.len() <= grown.len() + 1, "it flaps: {:?}", model.desk.changes);
    model.run(300, 0.4, 1.0);
    let all = &model.desk.changes;
    assert!(model.desk.target <= 2, "{all:?}");
    let turns = all.windows(3).filter(|w| (w[0] < w[1]) != (w[1] < w[2])).count();
    assert_eq!(turns, 1, "it grows and then it goes: {all:?}");
}

#[test]
fn jobs_of_one_moment_that_are_gone_soon_enough_bring_no_clones() {
    let mut desk = Desk::new(spec(1, 8), 1);
    // A hundred, of which twenty a second are done: the last waits five seconds.
    for second in 0..6_u64 {
        desk.second(&[(QUEUE, backlog(100 - (20 * second).min(100), 1, second))]);
    }
    desk.seconds(5, &[(QUEUE, backlog(0, 0, 0))]);
    assert!(desk.changes.is_empty(), "{:?}", desk.changes);
}
