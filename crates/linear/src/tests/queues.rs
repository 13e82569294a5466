//! Queues, as entries and their clock change them: by script, and by chance beside a queue that anybody can follow.

use base::Rng;

use super::*;
use crate::dump::Dump;
use crate::limits::*;
use crate::moment;
use crate::op::Op;
use crate::queue::{Kind, Queue, wire as queue_wire};
use crate::value::Value;

/// One space, whose key `q` is a queue.
#[derive(Default)]
struct Desk {
    space: Space,
    seq: u64,
    clock: u64,
    wall: u64,
}

impl Desk {
    fn ask(&mut self, function: &'static str, args: &[&str]) -> Reply {
        let mut steps = [step("q", function, args)];
        moment::resolve(&mut steps, self.wall + self.clock, base::LEVEL);
        self.seq += 1;
        let [step] = steps;
        run(&mut self.space, self.clock, self.seq, step)
    }

    fn says(&mut self, function: &'static str, args: &[&str]) -> String {
        said(&self.ask(function, args))
    }

    fn queue(&self) -> &Queue {
        let Some(Value::Queue(queue)) = self.space.get(b"q").map(|entry| &entry.value) else { panic!("no queue") };
        queue
    }

    fn lens(&self) -> [usize; 4] {
        [Kind::Waiting, Kind::Later, Kind::Held, Kind::Dead].map(|kind| self.queue().len_of(kind))
    }

    fn version(&self) -> u64 {
        self.space.get(b"q").map_or(0, |entry| entry.version)
    }
}

fn said(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "-".into(),
        Reply::Int(n) => n.to_string(),
        Reply::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::List(all) => format!("[{}]", all.iter().map(said).collect::<Vec<_>>().join(" ")),
        Reply::Wrong(wrong) => wrong.why().into(),
    }
}

#[test]
fn a_queue_by_script() {
    let long = "x".repeat(QUEUE_PAYLOAD_BYTES_MAX + 1);
    let mut desk = Desk { clock: 1_000, wall: 1_790_000_000_000, ..Desk::default() };
    let script: &[(u64, &str, &[&str], &str)] = &[
        (0, "queue.take", &["1", "500"], "-"),
        (0, "queue.info", &[], "-"),
        (0, "queue.put", &["a"], "[1 1]"),
        (0, "queue.put", &["b", "priority", "9"], "[2 1]"),
        (0, "queue.put", &["c", "delay", "100", "tries", "1"], "[3 1]"),
        (0, "queue.put", &["d", "key", "once", "keep", "1000"], "[4 1]"),
        (0, "queue.put", &["e", "key", "once"], "[4 0]"),
        (0, "queue.take", &["2", "500"], "[[2.1 b 1 0] [1.1 a 1 0]]"),
        (5, "queue.done", &["2.1", "2.1", "9.1"], "1"),
        (0, "queue.done", &["2.1"], "0"),
        (0, "queue.renew", &["1.1", "900"], "1"),
        (0, "queue.renew", &["1.2", "900"], "0"),
        // Later ones come when they are due; nobody has to ask.
        (95, "queue.take", &["9", "500"], "[[3.1 c 1 100] [4.1 d 1 100]]"),
        (0, "queue.fail", &["4.1", "delay", "0", "why", "no disk"], "again"),
        (0, "queue.fail", &["4.1"], "-"),
        (0, "queue.take", &["9", "500"], "[[4.2 d 2 100]]"),
        (0, "queue.back", &["4.2", "3.9"], "1"),
        (0, "queue.take", &["9", "500"], "[[4.3 d 2 100]]"),
        // The time of 3 is over, and with it its only try; 4 waits again.
        (500, "queue.list", &["dead", "-", "9"], "[[[3 dead 5 1 1 600 0 its worker said nothing in time c]] -]"),
        (0, "queue.list", &["waiting", "-", "9"], "[[[4 waiting 5 2 5 600 0 its worker said nothing in time d]] -]"),
        (0, "queue.done", &["4.3"], "1"),
        (0, "queue.retry", &["4", "9", "3"], "[1 0]"),
        (0, "queue.take", &["9", "500"], "[[3.2 c 1 600]]"),
        (0, "queue.done", &["3.1"], "0"),
        (0, "queue.fail", &["3.2", "dead", "yes"], "dead"),
        (0, "queue.job", &["3"], "[3 dead 5 1 1 600 0  c]"),
        (0, "queue.job", &["4"], "-"),
        (0, "queue.retry", &["all"], "[1 0]"),
        (0, "queue.drop", &["3", "1", "8"], "2"),
        (
            0,
            "queue.info",
            &[],
            "[waiting 0 later 0 held 0 dead 0 oldest_ms 0 bytes 100 repeats 0 put 4 done 2 failed 2 lapsed 2 died 2 skipped 0]",
        ),
        (0, "queue.put", &["f", "key", "once"], "[4 0]"),
        (400, "queue.put", &["f", "key", "once"], "[5 1]"),
        (0, "queue.drop-dead", &[], "0"),
        // At a moment of the wall clock: 1,790,000,002,100 is a hundred from now.
        (0, "queue.put", &["g", "delay", "at:1790000002100", "key", "at:5"], "[6 1]"),
        (0, "queue.put", &["h", "delay", "at:7", "priority", "8"], "[7 1]"),
        (99, "queue.take", &["9", "9"], "[[7.1 h 1 99] [5.1 f 1 99]]"),
        (1, "queue.take", &["9", "9"], "[[6.1 g 1 100]]"),
        (0, "queue.put", &[&long], Wrong::PayloadTooLarge.why()),
        (0, "queue.put", &["a", "priority", "10"], Wrong::Arguments.why()),
        (0, "queue.put", &["a", "tries", "0"], Wrong::Arguments.why()),
        (0, "queue.put", &["a", "keep", "10"], Wrong::Arguments.why()),
        (0, "queue.put", &["a", "delay"], Wrong::Arguments.why()),
        (0, "queue.take", &["0", "9"], Wrong::Arguments.why()),
        (0, "queue.take", &["1", "0"], Wrong::Arguments.why()),
        (0, "queue.done", &["seven"], Wrong::Arguments.why()),
        (0, "queue.repeat", &["daily", "0 0 30 2 *", "p"], Wrong::NoTimes.why()),
        (0, "queue.repeat", &["often", "every 10", "p"], Wrong::NoTimes.why()),
        (0, "get", &[], Wrong::Type.why()),
        (0, "type", &[], "queue"),
    ];
    for (nth, (wait, function, args, expect)) in script.iter().enumerate() {
        desk.clock += wait;
        assert_eq!(desk.says(function, args), *expect, "{nth}: {function} {args:?}");
    }
}

#[test]
fn what_finds_nothing_changes_nothing_so_nobody_is_woken() {
    let mut desk = Desk { clock: 5, ..Desk::default() };
    desk.ask("queue.put", &["a"]);
    desk.ask("queue.take", &["1", "1000"]);
    let version = desk.version();
    for (function, args) in [
        ("queue.take", &["1", "1000"][..]),
        ("queue.renew", &["1.7", "1000"]),
        ("queue.done", &["2.1"]),
        ("queue.fail", &["2.1"]),
        ("queue.back", &["2.1"]),
        ("queue.retry", &["all"]),
        ("queue.drop", &["9"]),
        ("queue.drop-dead", &[]),
        ("queue.unrepeat", &["none"]),
    ] {
        desk.ask(function, args);
        assert_eq!(desk.version(), version, "{function}");
    }
    // That its time is over is a change of the key, by the entry that shows it: who waits for a job looks again.
    desk.clock = 1_005;
    assert_eq!(desk.space.next_end(), Some(1_005));
    desk.seq += 1;
    run(&mut desk.space, desk.clock, desk.seq, step("other", "exists", &[]));
    assert!(desk.version() > version);
    assert_eq!((desk.lens(), desk.space.next_end()), ([1, 0, 0, 0], None));
}

#[test]
fn repeats_come_by_the_wall_clock_once_each() {
    // Half a minute before a full hour.
    let mut desk = Desk { clock: 30_000, wall: 3_600_000_000 - 60_000, ..Desk::default() };
    assert_eq!(desk.says("queue.repeat", &["hourly", "@hourly", "clean", "priority", "7"]), "3600000000");
    assert_eq!(desk.says("queue.repeat", &["often", "every 20000", "look"]), "3599980000");
    let take = |desk: &mut Desk, wait: u64| {
        desk.clock += wait;
        desk.says("queue.take", &["9", "5"])
    };
    assert_eq!(take(&mut desk, 9_999), "-");
    assert_eq!(take(&mut desk, 1), "[[1.1 look 1 0]]");
    desk.ask("queue.done", &["1.1"]);
    assert_eq!(take(&mut desk, 20_000), "[[2.1 clean 1 0] [3.1 look 1 0]]");
    desk.ask("queue.done", &["2.1", "3.1"]);
    // Many times pass while nobody writes: they are made good once. While it waits there is none beside it.
    desk.clock += 100_000;
    desk.ask("queue.info", &[]);
    assert_eq!(desk.lens(), [1, 0, 0, 0]);
    desk.clock += 20_000;
    desk.ask("queue.info", &[]);
    assert_eq!((desk.lens(), desk.queue().counts().skipped), ([1, 0, 0, 0], 1));
    assert_eq!(desk.says("queue.take", &["9", "60000"]), "[[4.1 look 1 20000]]");
    // All nodes stood still for an hour: the group's clock has not seen it. The next worker says so.
    desk.wall += 3_600_000;
    assert_eq!(desk.says("queue.take", &["9", "60000"]), "-");
    desk.clock += 1;
    assert_eq!(desk.says("queue.take", &["9", "60000"]), "[[5.1 clean 1 0] [6.1 look 1 0]]");
    assert!(said(&desk.ask("queue.repeats", &[])).contains("hourly @hourly 3607200000 5 clean"));
    // A wall clock that goes back, or differs from the last one, makes nothing come twice, and is not heard all the time.
    desk.wall -= 3_600_000;
    let version = desk.version();
    assert_eq!(desk.says("queue.take", &["9", "60000"]), "-");
    assert_eq!(desk.version(), version);
    assert_eq!(desk.says("queue.unrepeat", &["hourly"]), "1");
    assert_eq!(desk.says("queue.unrepeat", &["often"]), "1");
    assert_eq!(desk.says("queue.repeats", &[]), "[]");
}

/// What anybody can follow: a list, looked through from the front each time.
#[derive(Clone, Debug)]
struct Twin {
    id: u64,
    priority: u8,
    tries: u32,
    tries_max: u32,
    turns: u32,
    is: Is,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Is {
    Waiting,
    Later(u64),
    Held(u64),
    Dead,
}

fn settle(twins: &mut [Twin], clock: u64) {
    for twin in twins {
        twin.is = match twin.is {
            Is::Later(until) if until <= clock => Is::Waiting,
            Is::Held(until) if until <= clock && twin.tries >= twin.tries_max => Is::Dead,
            Is::Held(until) if until <= clock => Is::Waiting,
            is => is,
        };
    }
}

/// No job is lost, none is given to two at once within its time, and they come by priority and age.
#[test]
fn a_queue_does_what_a_list_does() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut desk = Desk { clock: 1, ..Desk::default() };
        let (mut twins, mut ids) = (Vec::<Twin>::new(), 0);
        desk.ask("queue.put", &["first"]);
        desk.ask("queue.drop", &["1"]);
        ids += 1;
        for n in 0..400 {
            desk.clock += rng.below(4);
            settle(&mut twins, desk.clock);
            let any = |rng: &mut Rng, twins: &[Twin]| {
                let at = rng.below(twins.len().max(1) as u64) as usize;
                // One of now, or an old one.
                twins.get(at).map(|twin| (twin.id, twin.turns.saturating_sub(rng.below(4) as u32 / 3)))
            };
            match rng.below(12) {
                0..4 => {
                    let (priority, delay, tries) = (rng.below(10), rng.below(2) * rng.below(12), 1 + rng.below(3));
                    let [priority_text, delay_text, tries_text] = [priority, delay, tries].map(|n| n.to_string());
                    let options = ["priority", &priority_text, "delay", &delay_text, "tries", &tries_text];
                    let payload = format!("job {n}");
                    let args = [&[&*payload], &options[..]].concat();
                    ids += 1;
                    assert_eq!(desk.says("queue.put", &args), format!("[{ids} 1]"));
                    let is = if delay == 0 { Is::Waiting } else { Is::Later(desk.clock + delay) };
                    let priority = priority as u8;
                    twins.push(Twin { id: ids, priority, tries: 0, tries_max: tries as u32, turns: 0, is });
                }
                4..7 => {
                    let (many, hold) = (1 + rng.below(4), 1 + rng.below(20));
                    let mut waiting: Vec<&mut Twin> = twins.iter_mut().filter(|twin| twin.is == Is::Waiting).collect();
                    waiting.sort_by_key(|twin| (9 - twin.priority, twin.id));
                    let expect: Vec<String> = waiting
                        .into_iter()
                        .take(many as usize)
                        .map(|twin| {
                            (twin.tries, twin.turns) = (twin.tries + 1, twin.turns + 1);
                            twin.is = Is::Held(desk.clock + hold);
                            format!("{}.{}", twin.id, twin.turns)
                        })
                        .collect();
                    let taken = match desk.ask("queue.take", &[&many.to_string(), &hold.to_string()]) {
                        Reply::Nil => Vec::new(),
                        Reply::List(jobs) => jobs
                            .iter()
                            .map(|job| if let Reply::List(job) = job { said(&job[0]) } else { panic!("{job:?}") })
                            .collect(),
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(taken, expect, "seed {seed}, {n}");
                }
                7 | 8 => {
                    let Some((id, turn)) = any(&mut rng, &twins) else { continue };
                    let fits = |twin: &Twin| twin.id == id && twin.turns == turn && !matches!(twin.is, Is::Later(_));
                    let at = twins.iter().position(fits);
                    assert_eq!(
                        desk.says("queue.done", &[&format!("{id}.{turn}")]),
                        u8::from(at.is_some()).to_string(),
                        "seed {seed}, {n}: {id}.{turn} {twins:?}"
                    );
                    at.map(|at| twins.remove(at));
                }
                9 => {
                    let Some((id, turn)) = any(&mut rng, &twins) else { continue };
                    let delay = rng.below(9);
                    let held = |twin: &&mut Twin| twin.id == id && twin.turns == turn && matches!(twin.is, Is::Held(_));
                    let expect = match twins.iter_mut().find(held) {
                        None => "-",
                        Some(twin) if twin.tries >= twin.tries_max => {
                            twin.is = Is::Dead;
                            "dead"
                        }
                        Some(twin) => {
                            twin.is = if delay == 0 { Is::Waiting } else { Is::Later(desk.clock + delay) };
                            "again"
                        }
                    };
                    let args = [&*format!("{id}.{turn}"), "delay", &delay.to_string()];
                    assert_eq!(desk.says("queue.fail", &args), expect, "seed {seed}, {n}");
                }
                10 => {
                    let Some((id, turn)) = any(&mut rng, &twins) else { continue };
                    let hold = 1 + rng.below(20);
                    let held = |twin: &&mut Twin| twin.id == id && twin.turns == turn && matches!(twin.is, Is::Held(_));
                    let twin = twins.iter_mut().find(held);
                    let args = [&*format!("{id}.{turn}"), &hold.to_string()];
                    assert_eq!(desk.says("queue.renew", &args), u8::from(twin.is_some()).to_string());
                    twin.into_iter().for_each(|twin| twin.is = Is::Held(desk.clock + hold));
                }
                _ => {
                    let dead = twins.iter_mut().filter(|twin| twin.is == Is::Dead);
                    let retried = dead.map(|twin| (twin.is, twin.tries) = (Is::Waiting, 0)).count();
                    assert_eq!(desk.says("queue.retry", &["all"]), format!("[{retried} 0]"));
                }
            }
            let count = |is: fn(&Is) -> bool| twins.iter().filter(|twin| is(&twin.is)).count();
            let lens = [
                count(|is| *is == Is::Waiting),
                count(|is| matches!(is, Is::Later(_))),
                count(|is| matches!(is, Is::Held(_))),
                count(|is| *is == Is::Dead),
            ];
            assert_eq!(desk.lens(), lens, "seed {seed}, {n}: none is lost");
            let entry = desk.space.get(b"q").unwrap();
            assert_eq!(entry.size, entry.value.bytes());
        }
        let whole = desk.space.parts().0.collect::<Vec<_>>();
        let copy = Space::from_parts(whole.clone()).unwrap();
        assert_eq!(copy.get(b"q").unwrap(), desk.space.get(b"q").unwrap());
        assert_eq!((copy.parts().0.collect::<Vec<_>>(), copy.next_end()), (whole, desk.space.next_end()));
        let texts = queue_wire::encode(desk.queue(), desk.clock);
        let elsewhere = queue_wire::decode(&texts, Some(desk.clock + 7_000)).unwrap();
        assert_eq!(elsewhere.bytes(), desk.queue().bytes());
        assert_eq!(
            elsewhere.next_end(),
            desk.queue().next_end() + if desk.queue().next_end() == 0 { 0 } else { 7_000 }
        );
    }
}

#[test]
fn bounds_are_refused_with_what_to_do() {
    let mut desk = Desk { clock: 1, ..Desk::default() };
    let large = "x".repeat(QUEUE_PAYLOAD_BYTES_MAX);
    let room = VALUE_BYTES_MAX / (large.len() + QUEUE_JOB_BYTES);
    (0..room).for_each(|_| assert!(matches!(desk.ask("queue.put", &[&large]), Reply::List(_))));
    assert_eq!(desk.ask("queue.put", &[&large]), Reply::Wrong(Wrong::QueueFull));
    // A repeat that finds no room puts nothing, and what is there goes on.
    assert!(matches!(desk.ask("queue.repeat", &["r", "every 1000", "p"]), Reply::Int(_)));
    let many = desk.ask("queue.take", &["100", "1000"]);
    let Reply::List(taken) = many else { panic!("{many:?}") };
    assert_eq!(taken.len(), 1, "one that is large comes alone");
    assert_eq!(desk.says("queue.done", &["1.1"]), "1");
    assert!(matches!(desk.ask("queue.put", &[&large]), Reply::List(_)));
    for n in 1..QUEUE_REPEATS_MAX {
        assert!(matches!(desk.ask("queue.repeat", &[&n.to_string(), "@daily", ""]), Reply::Int(_)));
    }
    assert_eq!(desk.ask("queue.repeat", &["more", "@daily", ""]), Reply::Wrong(Wrong::RepeatsMax));
    assert!(matches!(desk.ask("queue.repeat", &["r", "@daily", ""]), Reply::Int(_)), "one takes its own place");
    for n in 1..QUEUES_MAX {
        desk.seq += 1;
        run(&mut desk.space, 1, desk.seq, step(&format!("q{n}"), "queue.put", &["a"]));
    }
    desk.seq += 1;
    let more = run(&mut desk.space, 1, desk.seq, step("more", "queue.put", &["a"]));
    assert_eq!(more, Reply::Wrong(Wrong::QueuesMax));
    desk.ask("remove", &[]);
    assert!(matches!(desk.ask("queue.put", &["a"]), Reply::List(_)), "one that is removed makes room");
    let all = desk.space.read(&[], &[step("", "queues", &[])]);
    assert!(
        matches!(&all, Ran::Done(replies) if matches!(&replies[..], [Reply::List(all)] if all.len() == QUEUES_MAX))
    );
}

#[test]
fn keys_are_remembered_for_their_time_and_so_many() {
    let mut desk = Desk { clock: 1, ..Desk::default() };
    for n in 1..=QUEUE_KEYS_MAX {
        let put = desk.ask("queue.put", &["", "key", &n.to_string(), "keep", "50"]);
        assert!(matches!(put, Reply::List(_)), "{put:?}");
        desk.ask("queue.drop", &[&n.to_string()]);
    }
    assert_eq!(desk.ask("queue.put", &["", "key", "more"]), Reply::Wrong(Wrong::KeysRemembered));
    assert_eq!(desk.says("queue.put", &["", "key", "7"]), "[7 0]", "it is remembered");
    desk.clock = 51;
    let bytes = desk.queue().bytes();
    assert!(matches!(desk.ask("queue.put", &["", "key", "more"]), Reply::List(_)));
    assert!(desk.queue().bytes() < bytes, "old ones go");
    assert_eq!(desk.says("queue.put", &["", "key", "65000"]), format!("[{} 1]", QUEUE_KEYS_MAX + 2));
}

#[test]
fn a_queue_is_dumped_and_loaded_with_what_its_jobs_have_left() {
    use class::dump::{Dump as _, Record};
    let mut desk = Desk { clock: 5_000, ..Desk::default() };
    desk.ask("queue.put", &["now"]);
    desk.ask("queue.put", &["later", "delay", "300"]);
    desk.ask("queue.repeat", &["r", "every 1000", "p"]);
    let mut dump = Dump::new("jobs".into(), vec![(0, u64::MAX)], 7);
    let mut asks = dump.asks();
    let ran = desk.space.read(&[], &asks.remove(0).steps);
    let records = dump.take(vec![ran], 9_000).unwrap();
    let item = records.iter().find(|record| matches!(record, Record::Item(_))).unwrap();
    let op: Op = crate::dump::load(&"there".into(), item, 9_000).unwrap();
    let mut there = Desk { clock: 100, ..Desk::default() };
    assert_eq!(op.steps[0].function, "queue.load");
    there.seq += 1;
    run(&mut there.space, 100, there.seq, op.steps[0].clone());
    assert_eq!(there.lens(), [1, 1, 0, 0]);
    there.clock = 399;
    assert_eq!(there.says("queue.take", &["1", "9"]), "[[1.1 now 1 299]]");
    there.clock = 400;
    assert_eq!(there.says("queue.take", &["1", "9"]), "[[2.1 later 1 300]]");
}
