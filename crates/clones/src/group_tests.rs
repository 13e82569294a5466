//! The life of a node's clones, told in virtual time: a fake host starts processes and answers probes as the test says.

use base::{Rng, Span};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::*;

const ME: NodeId = NodeId(1);

struct Fake {
    group: Group,
    now: Now,
    declared: Declared,
    /// All that the group asked for and nobody has looked at.
    out: Vec<Output>,
}

impl Fake {
    fn new() -> Self {
        let now = Now { mono: Time(5_000_000), wall_ms: 1_000_000 };
        let group = Group::new(ME, Boot(4), "n1", "http://10.0.0.1:7070", Rng::new(7));
        Self { group, now, declared: Declared::default(), out: Vec::new() }
    }

    /// A node to which `clones` of the service "shop" are assigned.
    fn with_shop(spec: &ServiceSpec, clones: u32) -> Self {
        let mut fake = Self::new();
        fake.declared.tokens = BTreeMap::from([("shop".into(), "secret".into())]);
        fake.put(Input::Apis(vec!["http://10.0.0.2:7070".into()]));
        fake.declared.urls = BTreeMap::from([("carts".into(), "redis://carts:T@10.0.0.1:6379".into())]);
        fake.declare(spec);
        fake.assign(1, clones);
        fake
    }

    fn put(&mut self, input: Input) {
        self.group.handle(self.now, input, &mut self.out);
        assert!(self.group.wake_at().is_none_or(|at| at > self.now.mono), "it would wake for ever");
    }

    fn declare(&mut self, spec: &ServiceSpec) {
        self.declared.services = BTreeMap::from([("shop".into(), spec.clone())]);
        self.put(Input::Declared(self.declared.clone()));
    }

    fn assign(&mut self, seq: u64, clones: u32) {
        let of = (0..clones).map(|number| (CloneId::new("shop", number), ME)).collect();
        self.put(Input::Assigned(Assignments { term: 1, seq, by: ME, of, ..Assignments::default() }));
    }

    /// Lets time pass, with every wake on the way.
    fn pass(&mut self, span: Span) {
        let end = self.now.mono + span;
        while let Some(at) = self.group.wake_at().filter(|at| *at <= end) {
            self.set(at);
            self.put(Input::Wake);
        }
        self.set(end);
    }

    fn set(&mut self, at: Time) {
        self.now.wall_ms += at.since(self.now.mono).as_millis();
        self.now.mono = at;
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// The processes that were asked for since the last look.
    fn spawned(&mut self) -> Vec<(ProcId, ProcSpec)> {
        let spawn = |output| match output {
            Output::Spawn { proc, spec } => Some((proc, spec)),
            _ => None,
        };
        self.take().into_iter().filter_map(spawn).collect()
    }

    fn signals(&mut self) -> Vec<(u64, Signal)> {
        let signal = |output| match output {
            Output::Signal { proc, signal } => Some((proc.0, signal)),
            _ => None,
        };
        self.take().into_iter().filter_map(signal).collect()
    }

    fn events(&mut self) -> Vec<String> {
        let event = |output| match output {
            Output::Happened(h) => Some(format!("{} {}: {}", h.kind, h.who, h.text)),
            _ => None,
        };
        self.take().into_iter().filter_map(event).collect()
    }

    fn run(&mut self, proc: u64) {
        self.put(Input::Spawned { proc: ProcId(proc), pid: 100 + proc as u32, port: 4000 + proc as u16 });
    }

    fn well(&mut self, proc: u64) {
        self.put(Input::Probed { proc: ProcId(proc), result: Ok(()) });
    }

    fn sick(&mut self, proc: u64) {
        self.put(Input::Probed { proc: ProcId(proc), result: Err("status 500".into()) });
    }

    fn serve(&mut self, proc: u64) {
        self.run(proc);
        self.well(proc);
    }

    fn exit(&mut self, proc: u64, code: i32) {
        self.put(Input::Exited { proc: ProcId(proc), exit: Exit::Code(code) });
    }

    /// `0:serving@101 1:backoff`: number, state and pid of each.
    fn shown(&self) -> String {
        let one = |c: CloneStatus| {
            let pid = if c.pid == 0 { String::new() } else { format!("@{}", c.pid) };
            format!("{}:{:?}{pid}", c.id.number, c.state).to_lowercase()
        };
        self.group.clones().into_iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn shop() -> ServiceSpec {
    let mut spec = ServiceSpec::new(["python3", "cart.py"]);
    spec.health = Some("/health".into());
    spec.namespaces = vec!["carts".into()];
    spec
}

#[test]
fn a_clone_is_started_with_its_environment_probed_until_it_is_well_and_then_serves() {
    let mut fake = Fake::with_shop(&shop(), 1);
    let spawned = fake.spawned();
    let (proc, spec) = &spawned[0];
    assert_eq!((spawned.len(), *proc, spec.name.as_str()), (1, ProcId(1), "shop/0"));
    let env: Vec<(&str, &str)> = spec.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        env,
        [
            ("COPPICE_CARTS_URL", "redis://carts:T@10.0.0.1:6379"),
            ("COPPICE_CLONE", "shop/0"),
            ("COPPICE_DRAIN_MS", "5000"),
            ("COPPICE_MEMBER", "n1.4.1"),
            ("COPPICE_NODE", "n1"),
            ("COPPICE_NODE_API", "http://10.0.0.1:7070"),
            ("COPPICE_NODE_APIS", "http://10.0.0.1:7070,http://10.0.0.2:7070"),
            ("COPPICE_SERVICE", "shop"),
            ("COPPICE_TOKEN", "secret"),
        ]
    );
    fake.run(1);
    let probe = Probe { path: Some("/health".into()), ..Probe::of(4001, PROBE_TIMEOUT) };
    let asked = Output::Probe { proc: ProcId(1), probe };
    assert_eq!(fake.take(), [asked.clone(), Output::Changed]);
    fake.sick(1);
    assert_eq!((fake.take(), fake.shown()), (vec![], "0:starting@101".into()));
    fake.pass(PROBE_STARTING_EVERY);
    assert_eq!(fake.take(), std::slice::from_ref(&asked));
    fake.well(1);
    let text = "serves on port 4001 (pid 101)".into();
    let started = Happened { kind: "clone-started", who: "shop/0".into(), text };
    assert_eq!(fake.take(), [Output::Happened(started), Output::Changed]);
    assert_eq!(fake.shown(), "0:serving@101");
    assert_eq!(fake.group.clones()[0].since_ms, fake.now.wall_ms);
    fake.pass(Span::millis(1999));
    assert_eq!(fake.take(), []);
    fake.pass(Span::millis(1));
    assert_eq!(fake.take(), [asked]);
}

#[test]
fn so_many_start_at_a_time_and_who_takes_long_keeps_others_for_a_moment_alone() {
    let at_once = STARTS_AT_ONCE as u64;
    let mut fake = Fake::with_shop(&shop(), 2 * STARTS_AT_ONCE as u32 + 5);
    assert_eq!(fake.spawned().len() as u64, at_once);
    // Room comes as one is up, as one is dead, and with time.
    fake.serve(1);
    assert_eq!(fake.spawned().len(), 1);
    fake.exit(2, 1);
    assert_eq!(fake.spawned().len(), 1);
    fake.pass(Span(STARTS_WAIT.0 - 1));
    assert_eq!(fake.spawned().len(), 0);
    assert_eq!(fake.group.wake_at(), Some(fake.now.mono + Span(1)));
    fake.pass(Span(1));
    assert_eq!(fake.spawned().len() as u64, at_once, "those of before are waited for no longer");
    fake.serve(at_once + 3);
    assert_eq!(fake.spawned().len(), 1);
}

#[test]
fn a_service_without_a_door_serves_as_soon_as_it_runs_and_is_never_probed() {
    let mut fake = Fake::with_shop(&ServiceSpec::new(["worker"]), 1);
    fake.run(1);
    assert_eq!(fake.shown(), "0:serving@101");
    fake.pass(Span::secs(60));
    assert!(!fake.take().iter().any(|output| matches!(output, Output::Probe { .. })));
    assert_eq!(fake.group.wake_at(), None);
}

#[test]
fn a_clone_that_keeps_dying_is_started_ever_more_slowly_and_quickly_again_once_it_has_proved_itself() {
    let mut fake = Fake::with_shop(&shop(), 1);
    let mut proc = 1;
    for (deaths, full_ms) in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].into_iter().enumerate() {
        assert_eq!(fake.spawned().len(), 1);
        fake.exit(proc, 1);
        assert_eq!(fake.shown(), "0:backoff");
        assert_eq!(fake.group.clones()[0].restarts, deaths as u32);
        fake.pass(Span::micros(full_ms * 500 - 1));
        assert_eq!(fake.spawned().len(), 0, "not before half of {full_ms} ms");
        fake.pass(Span::micros(full_ms * 500 + 1));
        proc += 1;
    }
    assert_eq!(fake.spawned().len(), 1);
    fake.serve(proc);
    for _ in 0..6 {
        fake.pass(Span::secs(2));
        fake.well(proc);
    }
    fake.exit(proc, 1);
    fake.take();
    fake.pass(Span::millis(100));
    assert_eq!(fake.spawned().len(), 1);
}

#[test]
fn a_clone_that_does_not_come_up_in_time_is_killed_and_says_why() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.run(1);
    fake.put(Input::Output { proc: ProcId(1), line: "loading".into() });
    fake.sick(1);
    fake.take();
    fake.pass(Span::micros(9_999_999));
    assert_eq!(fake.signals(), []);
    fake.pass(Span::micros(1));
    assert_eq!(fake.signals(), [(1, Signal::Kill)]);
    fake.pass(KILL_AGAIN);
    assert_eq!(fake.signals(), [(1, Signal::Kill)], "it is still there");
    assert_eq!(fake.shown(), "0:draining@101", "no other is started beside it");
    fake.put(Input::Exited { proc: ProcId(1), exit: Exit::Signal(9) });
    let status = &fake.group.clones()[0];
    let why = "was not well within 10s (no answer); killed by signal 9";
    assert_eq!(status.last_exit.as_deref(), Some(why));
    assert_eq!(status.last_output, ["loading"]);
    let events = fake.events();
    assert!(events[0].starts_with(&format!("clone-died shop/0: {why}; starts again in ")), "{events:?}");
}

#[test]
fn a_hung_clone_is_restarted_after_three_failed_probes_in_a_row_not_after_two() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    for answer in [Fake::sick, Fake::sick, Fake::well, Fake::sick, Fake::sick] {
        fake.pass(PROBE_SERVING_EVERY);
        answer(&mut fake, 1);
        assert_eq!(fake.signals(), []);
    }
    fake.pass(PROBE_SERVING_EVERY);
    fake.sick(1);
    assert_eq!((fake.signals(), fake.shown()), (vec![(1, Signal::Kill)], "0:draining@101".into()));
    fake.put(Input::Exited { proc: ProcId(1), exit: Exit::Signal(9) });
    fake.pass(BACKOFF_FIRST);
    assert_eq!(fake.spawned().len(), 1);
}

#[test]
fn of_two_hung_clones_the_second_waits_until_the_first_serves_again_and_both_are_told_as_sick() {
    let mut fake = Fake::with_shop(&shop(), 5);
    let procs: Vec<u64> = fake.spawned().iter().map(|(proc, _)| proc.0).collect();
    procs.iter().for_each(|proc| fake.serve(*proc));
    let sick = |fake: &Fake| -> Vec<u32> {
        fake.group.clones().iter().filter(|clone| clone.sick).map(|clone| clone.id.number).collect()
    };
    fake.take();
    for _ in 0..PROBES_FAILED_MAX {
        fake.pass(PROBE_SERVING_EVERY);
        procs.iter().for_each(|proc| if *proc < 3 { fake.sick(*proc) } else { fake.well(*proc) });
    }
    assert_eq!((fake.signals(), sick(&fake)), (vec![(1, Signal::Kill)], vec![0, 1]));
    fake.put(Input::Exited { proc: ProcId(1), exit: Exit::Signal(9) });
    assert!(fake.events()[0].starts_with("clone-died shop/0: was not well 3 times in a row (status 500); killed by"));
    fake.pass(BACKOFF_FIRST);
    assert_eq!((fake.spawned().len(), sick(&fake)), (1, vec![0, 1]), "what starts is not well yet");
    fake.run(6);
    assert_eq!(fake.signals(), []);
    fake.well(6);
    assert_eq!((fake.signals(), sick(&fake)), (vec![(2, Signal::Kill)], vec![1]));
}

#[test]
fn a_sick_clone_that_answers_again_before_its_turn_is_left_alone() {
    let mut fake = Fake::with_shop(&shop(), 3);
    (1..4).for_each(|proc| fake.serve(proc));
    let other = Sick { id: CloneId::new("shop", 0), waits: true, restarts: 0 };
    fake.put(Input::Sick(vec![other]));
    for _ in 0..PROBES_FAILED_MAX {
        fake.pass(PROBE_SERVING_EVERY);
        fake.sick(2);
    }
    assert!(fake.group.clones()[1].sick);
    fake.pass(PROBE_SERVING_EVERY);
    fake.well(2);
    fake.put(Input::Sick(vec![]));
    fake.pass(Span::secs(1));
    assert_eq!((fake.group.clones()[1].sick, fake.signals()), (false, vec![]));
}

#[test]
fn a_clone_that_is_found_ill_by_who_asks_it_is_restarted_though_its_probes_are_fine() {
    let mut fake = Fake::with_shop(&shop(), 5);
    (1..6).for_each(|proc| fake.serve(proc));
    fake.take();
    let since_ms = fake.group.clones()[1].since_ms;
    let mut seq = 1;
    let judge = |fake: &mut Fake, seq: &mut u64, since_ms: u64| {
        *seq += 1;
        let of = (0..5).map(|number| (CloneId::new("shop", number), ME)).collect();
        let ill = crate::Ill { since_ms, why: "answered none of 6 requests in 10 s".into() };
        let ill = BTreeMap::from([(CloneId::new("shop", 1), ill)]);
        fake.put(Input::Assigned(Assignments { term: 1, seq: *seq, by: ME, of, ill, ..Assignments::default() }));
    };
    // It is another life that is meant.
    judge(&mut fake, &mut seq, since_ms - 1);
    assert_eq!((fake.signals(), fake.group.clones()[1].sick), (vec![], false));
    // Another is being restarted for its probes: this one waits for its turn, and may be well again before.
    let other = Sick { id: CloneId::new("shop", 7), waits: false, restarts: 1 };
    fake.put(Input::Sick(vec![other]));
    judge(&mut fake, &mut seq, since_ms);
    assert_eq!((fake.signals(), fake.group.clones()[1].sick), (vec![], true));
    fake.assign(seq + 1, 5);
    assert_eq!((fake.signals(), fake.group.clones()[1].sick), (vec![], false));
    fake.put(Input::Sick(vec![]));
    seq += 1;
    judge(&mut fake, &mut seq, since_ms);
    fake.pass(Span::millis(1));
    assert_eq!((fake.signals(), fake.group.clones()[1].sick), (vec![(2, Signal::Kill)], true));
    fake.put(Input::Exited { proc: ProcId(2), exit: Exit::Signal(9) });
    let died = fake.events();
    assert!(died[0].starts_with("clone-died shop/1: answered none of 6 requests in 10 s; killed by"), "{died:?}");
    fake.pass(BACKOFF_FIRST);
    fake.take();
    fake.serve(6);
    fake.pass(Span::secs(1));
    assert_eq!((fake.signals(), fake.group.clones()[1].sick), (vec![], false), "the next life is another one");
}

#[test]
fn probes_that_are_never_answered_count_as_failed() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    fake.take();
    // Three rounds of "asked every 2 s, lost after 3 s".
    fake.pass(Span::micros(14_999_999));
    assert_eq!(fake.signals(), []);
    fake.pass(Span::micros(1));
    assert_eq!(fake.signals(), [(1, Signal::Kill)]);
}

#[test]
fn a_clone_that_is_not_wanted_leaves_the_routes_first_then_is_asked_then_killed() {
    let mut fake = Fake::with_shop(&shop(), 2);
    fake.serve(1);
    fake.serve(2);
    fake.take();
    fake.assign(2, 1);
    assert_eq!((fake.take(), fake.shown()), (vec![Output::Changed], "0:serving@101 1:draining@102".into()));
    fake.pass(LEAVE_ROUTES);
    assert_eq!(fake.signals(), [(2, Signal::Term)]);
    fake.pass(Span(DRAIN_DEFAULT.0 - 1000));
    fake.well(1);
    assert_eq!(fake.signals(), []);
    fake.pass(Span::millis(1));
    assert_eq!(fake.signals(), [(2, Signal::Kill)]);
    fake.put(Input::Exited { proc: ProcId(2), exit: Exit::Signal(9) });
    assert_eq!(fake.events(), ["clone-stopped shop/1: did not stop when asked to: killed by signal 9"]);
    assert_eq!(fake.shown(), "0:serving@101");
    fake.assign(3, 0);
    fake.pass(LEAVE_ROUTES);
    fake.take();
    fake.exit(1, 0);
    assert_eq!(fake.events(), ["clone-stopped shop/0: stopped: exit status 0"]);
    assert_eq!((fake.shown(), fake.group.wake_at()), (String::new(), None));
}

#[test]
fn a_clone_wanted_again_before_it_was_told_to_go_serves_on() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    fake.assign(2, 0);
    fake.pass(Span(LEAVE_ROUTES.0 - 1));
    fake.take();
    fake.assign(3, 1);
    assert_eq!((fake.shown(), fake.spawned().len()), ("0:serving@101".into(), 0));
    fake.assign(4, 0);
    fake.pass(LEAVE_ROUTES);
    assert_eq!(fake.signals(), [(1, Signal::Term)]);
    fake.assign(5, 1);
    assert_eq!((fake.shown(), fake.spawned().len()), ("0:starting 0:draining@101".into(), 1), "too late");
}

#[test]
fn a_removed_service_is_drained_even_if_nobody_assigns_anew() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    fake.put(Input::Declared(Declared::default()));
    assert_eq!(fake.shown(), "0:draining@101");
}

#[test]
fn older_assignments_change_nothing() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.assign(5, 2);
    fake.take();
    fake.assign(4, 0);
    fake.assign(5, 0);
    assert_eq!((fake.take(), fake.shown()), (vec![], "0:starting 1:starting".into()));
    assert_eq!(fake.group.node_clones().obeys, (1, 5, ME, Boot(0)));
}

#[test]
fn a_clone_that_moves_away_stays_until_the_leader_says_that_the_new_one_serves() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    let id = CloneId::new("shop", 0);
    let mut moving = fake.group.assigned().clone();
    moving.seq += 1;
    moving.of.insert(id.clone(), NodeId(2));
    moving.leaving.insert(id, ME);
    fake.put(Input::Assigned(moving.clone()));
    assert_eq!(fake.shown(), "0:serving@101");
    moving.seq += 1;
    moving.leaving.clear();
    fake.put(Input::Assigned(moving));
    assert_eq!(fake.shown(), "0:draining@101");
}

#[test]
fn a_secret_is_waited_for_and_when_it_changes_clones_restart_in_turn() {
    let mut spec = shop();
    spec.env = BTreeMap::from([("DB".into(), "${secret.PW}".into())]);
    let mut fake = Fake::with_shop(&spec, 2);
    assert_eq!(fake.spawned(), []);
    let why = fake.group.clones()[0].last_exit.clone().unwrap();
    assert!(why.contains("waits for secret PW") && why.contains("coppice secret set"), "{why}");
    let set = |fake: &mut Fake, value: &'static [u8], mark: &str| {
        let secret = secrets::Secret { value: Some(base::process::Private(value.into())), mark: mark.into() };
        fake.declared.secrets = BTreeMap::from([("shop".into(), Secrets::from([("PW".into(), secret)]))]);
        fake.declare(&spec);
    };
    set(&mut fake, b"one", "1");
    let spawned = fake.spawned();
    assert_eq!((spawned.len(), spawned[0].1.env["PW"].as_str()), (2, "one"));
    assert_eq!(spawned[0].1.env["DB"], "${secret.PW}", "it is filled in where the process starts");
    assert_eq!(spawned[0].1.given.words["secret.PW"].text(), Some("one"));
    (1..3).for_each(|proc| fake.serve(proc));
    let hash = fake.group.clones()[0].spec_hash;
    fake.take();

    set(&mut fake, b"one", "1");
    assert_eq!(fake.spawned(), [], "nothing has changed");
    set(&mut fake, b"two", "2");
    let spawned = fake.spawned();
    assert_eq!((spawned.len(), spawned[0].1.env["PW"].as_str()), (1, "two"));
    fake.serve(3);
    assert_eq!(fake.spawned().len(), 1, "the next one's turn");
    assert_eq!(fake.shown(), "0:serving@103 0:draining@101 1:starting 1:serving@102");
    assert_ne!(fake.group.clones()[0].spec_hash, hash);

    // One that goes away leaves those that run as they are: none could be started without it.
    fake.serve(4);
    fake.take();
    fake.declared.secrets.clear();
    fake.declare(&spec);
    fake.pass(Span::secs(1));
    assert_eq!(fake.spawned(), []);
    let serving = fake.shown();
    assert!(serving.contains("0:serving@103") && serving.contains("1:serving@104"), "{serving}");
}

#[test]
fn a_changed_service_gets_its_new_clones_beside_the_old_ones_one_at_a_time() {
    let mut fake = Fake::with_shop(&shop(), 2);
    fake.serve(1);
    fake.serve(2);
    fake.take();
    let mut new = shop();
    new.run[1] = "cart2.py".into();
    fake.declare(&new);
    assert_eq!(
        fake.spawned().iter().map(|(proc, spec)| (proc.0, spec.run[1].as_str())).collect::<Vec<_>>(),
        [(3, "cart2.py")]
    );
    assert_eq!(fake.shown(), "0:starting 0:serving@101 1:serving@102");
    fake.run(3);
    assert_eq!(fake.spawned().len(), 0);
    fake.well(3);
    assert_eq!(fake.spawned().len(), 1, "the next one's turn");
    assert_eq!(fake.shown(), "0:serving@103 0:draining@101 1:starting 1:serving@102");
    fake.serve(4);
    fake.pass(LEAVE_ROUTES);
    assert_eq!(fake.signals(), [(1, Signal::Term), (2, Signal::Term)]);
    fake.exit(1, 0);
    fake.exit(2, 0);
    assert_eq!(fake.shown(), "0:serving@103 1:serving@104");
    assert!(fake.group.clones().iter().all(|clone| clone.restarts == 0), "a change is no restart");
}

#[test]
fn if_the_new_ones_do_not_come_up_the_old_ones_go_on_and_the_reason_is_shown() {
    let mut fake = Fake::with_shop(&shop(), 2);
    fake.serve(1);
    fake.serve(2);
    let mut broken = shop();
    broken.run[0] = "pyton3".into();
    fake.declare(&broken);
    let exit = Exit::NotStarted("no such program \"pyton3\"".into());
    for proc in 3..6 {
        fake.put(Input::Exited { proc: ProcId(proc), exit: exit.clone() });
        assert_eq!(fake.shown(), "0:serving@101 0:backoff 1:serving@102");
        fake.take();
        fake.pass(Span::millis(400));
        assert_eq!(fake.spawned().len(), 1, "tried again, that one clone alone");
    }
    let why = "could not be started: no such program \"pyton3\"";
    assert_eq!(fake.group.clones()[0].last_exit.as_deref(), Some(why));
    // Taken back: the old ones are right again.
    fake.declare(&shop());
    fake.pass(Span::millis(1));
    fake.put(Input::Exited { proc: ProcId(6), exit: Exit::Signal(15) });
    assert_eq!((fake.shown(), fake.spawned().len()), ("0:serving@101 1:serving@102".into(), 0));
}

#[test]
fn what_a_process_does_not_see_is_changed_without_a_new_one() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.serve(1);
    fake.take();
    let mut changed = shop();
    changed.clones = 7.into();
    changed.http = Some(crate::HttpRoute { host: "shop.example".into(), ..Default::default() });
    changed.health = Some(crate::Health { status: vec![204], ..crate::Health::from("/well") });
    changed.stop.signal = Signal::Quit;
    fake.declare(&changed);
    assert_eq!(fake.take(), []);
    fake.pass(PROBE_SERVING_EVERY);
    let probe = Probe { path: Some("/well".into()), ..Probe::of(4001, PROBE_TIMEOUT) };
    let probe = Probe { host: Some("shop.example".into()), status: vec![204], ..probe };
    assert_eq!(fake.take(), [Output::Probe { proc: ProcId(1), probe }]);
    fake.assign(2, 0);
    fake.pass(LEAVE_ROUTES);
    assert_eq!(fake.signals(), [(1, Signal::Quit)]);
}

#[test]
fn a_clone_waits_for_its_namespaces_and_says_so() {
    let mut fake = Fake::new();
    fake.declare(&shop());
    fake.assign(1, 1);
    assert_eq!((fake.spawned().len(), fake.shown()), (0, "0:backoff".into()));
    assert_eq!(fake.group.clones()[0].last_exit.as_deref(), Some("waits for namespace \"carts\""));
    assert_eq!(fake.group.wake_at(), None);
    fake.declared.urls = BTreeMap::from([("carts".into(), "redis://x".into())]);
    fake.declare(&shop());
    assert_eq!(fake.spawned().len(), 1);
    assert_eq!(fake.group.clones()[0].last_exit, None);
}

#[test]
fn the_last_lines_are_kept_cut_and_may_come_after_the_death_they_explain() {
    let mut fake = Fake::with_shop(&shop(), 1);
    fake.run(1);
    fake.take();
    for i in 0..18 {
        fake.put(Input::Output { proc: ProcId(1), line: format!("{i} {}", "é".repeat(300)) });
    }
    assert_eq!(fake.take(), [], "lines alone are not published");
    fake.exit(1, 1);
    fake.take();
    for i in 18..30 {
        fake.put(Input::Output { proc: ProcId(1), line: i.to_string() });
    }
    assert_eq!(fake.take(), [Output::Changed, Output::Changed]);
    let output = fake.group.clones()[0].last_output.clone();
    assert_eq!((output.len(), output[19].as_str()), (OUTPUT_LINES, "19"));
    assert!(output[0].starts_with("0 éé") && output[0].len() <= OUTPUT_LINE_BYTES);
    fake.pass(BACKOFF_FIRST);
    let status = &fake.group.clones()[0];
    assert_eq!((status.state, status.last_output.len()), (CloneState::Starting, OUTPUT_LINES), "of the one before");
    for i in 0..25 {
        fake.put(Input::Output { proc: ProcId(2), line: i.to_string() });
    }
    let output = fake.group.clones()[0].last_output.clone();
    assert_eq!((output.len(), output[0].as_str(), output[19].as_str()), (OUTPUT_LINES, "5", "24"));
}

#[test]
fn news_of_unknown_processes_changes_nothing() {
    let mut fake = Fake::new();
    fake.serve(9);
    fake.exit(9, 0);
    fake.put(Input::Output { proc: ProcId(9), line: "x".into() });
    assert_eq!(fake.take(), []);
}

/// The processes as the operating system has them, to judge the group by.
#[derive(Default)]
struct Procs {
    /// Running or about to: the clone's name and the program.
    all: BTreeMap<ProcId, (String, Vec<String>)>,
    asked_to_go: Vec<ProcId>,
    probed: Vec<ProcId>,
}

impl Procs {
    fn see(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Spawn { proc, spec } => {
                    assert!(self.all.insert(proc, (spec.name, spec.run)).is_none(), "{proc} was used twice");
                    let stays = |(p, what): &(&ProcId, &(String, Vec<String>))| {
                        !self.asked_to_go.contains(p) && **what == self.all[&proc]
                    };
                    assert_eq!(self.all.iter().filter(stays).count(), 1, "{proc} runs what another runs");
                }
                Output::Signal { proc, .. } => self.asked_to_go.push(proc),
                Output::Probe { proc, .. } => {
                    assert!(self.all.contains_key(&proc));
                    self.probed.push(proc);
                }
                Output::Changed | Output::Happened(_) => (),
            }
        }
    }
}

proptest! {
    /// Whatever happens, no clone is started twice; and when the trouble ends, what is wanted serves and nothing else runs.
    #[test]
    fn after_any_trouble_the_wanted_clones_serve_and_no_others(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut fake = Fake::with_shop(&shop(), 2);
        let mut procs = Procs::default();
        let (mut wanted, mut version) = (2, 1);
        for round in 0..150 {
            let trouble = round < 100;
            procs.see(fake.take());
            let all: Vec<ProcId> = procs.all.keys().copied().collect();
            let some = rng.pick(&all).map_or(0, |proc| proc.0);
            match if trouble { rng.below(9) } else { 9 } {
                0 => {
                    wanted = rng.below(4) as u32;
                    fake.assign(round + 2, wanted);
                }
                1 => {
                    version = rng.between(1, 3);
                    fake.declare(&ServiceSpec { run: vec![format!("v{version}")], ..shop() });
                }
                2 => fake.run(some),
                3 => fake.well(some),
                4 => fake.sick(some),
                5 | 6 => {
                    procs.all.remove(&ProcId(some));
                    fake.exit(some, 1);
                }
                7 => fake.pass(Span::millis(rng.below(500))),
                8 => fake.pass(Span::secs(rng.below(20))),
                _ => {
                    // A world in which processes start, answer, and go when told.
                    for proc in &all {
                        if procs.asked_to_go.contains(proc) {
                            procs.all.remove(proc);
                            fake.exit(proc.0, 0);
                        } else if fake.group.lives.get(proc).is_some_and(|life| life.port == 0) {
                            fake.run(proc.0);
                        }
                    }
                    for proc in std::mem::take(&mut procs.probed) {
                        fake.well(proc.0);
                    }
                    fake.pass(Span::secs(1));
                }
            }
        }
        procs.see(fake.take());
        let states: Vec<(u32, CloneState)> = fake.group.clones().iter().map(|c| (c.id.number, c.state)).collect();
        let expect: Vec<(u32, CloneState)> = (0..wanted).map(|number| (number, CloneState::Serving)).collect();
        prop_assert_eq!(states, expect);
        let hash = fake.group.wanted.values().next().map(|want| want.hash);
        prop_assert!(fake.group.clones().iter().all(|c| Some(c.spec_hash) == hash), "all run version {}", version);
        prop_assert_eq!(procs.all.len(), wanted as usize);
    }
}
