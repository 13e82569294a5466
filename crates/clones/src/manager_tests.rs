//! A leader's first moments, rivals from the past, and moves that fail.

use super::*;
use base::Span;

/// The life of the manager's node.
const BOOT: Boot = Boot(4);

struct Fake {
    manager: Manager,
    now: Now,
    live: Vec<NodeLoad>,
    dead: BTreeSet<NodeId>,
    clones: u32,
    out: Vec<Output>,
}

/// A serving clone of "shop" by its number.
fn serving(numbers: &[u32]) -> BTreeMap<CloneId, CloneState> {
    numbers.iter().map(|number| (CloneId::new("shop", *number), CloneState::Serving)).collect()
}

fn node(id: u64, numbers: &[u32]) -> NodeLoad {
    let obeys = Version::default();
    let clones = serving(numbers);
    NodeLoad {
        id: NodeId(id),
        name: format!("n{id}"),
        obeys,
        clones,
        ..NodeLoad::new(NodeId(id), "", 0, Some(&NodeClones::default()))
    }
}

fn assigned(term: u64, seq: u64, by: u64, at: &[u64]) -> Assignments {
    let of = at.iter().enumerate().map(|(number, node)| (CloneId::new("shop", number as u32), NodeId(*node))).collect();
    Assignments { term, seq, by: NodeId(by), of, ..Assignments::default() }
}

impl Fake {
    fn new(clones: u32, live: Vec<NodeLoad>) -> Self {
        let now = Now { mono: Time(1_000_000), wall_ms: 0 };
        Self { manager: Manager::new(NodeId(1), BOOT), now, live, dead: BTreeSet::new(), clones, out: Vec::new() }
    }

    fn put(&mut self, input: Input) {
        self.manager.handle(self.now, input, &mut self.out);
        assert!(self.manager.wake_at().is_none_or(|at| at > self.now.mono), "it would wake for ever");
    }

    fn tell(&mut self) {
        let spec = ServiceSpec { clones: self.clones.into(), ..ServiceSpec::new(["app"]) };
        let services = BTreeMap::from([("shop".to_string(), spec)]);
        let (live, dead) = (self.live.clone(), self.dead.clone());
        self.put(Input::Cluster { services, live, dead, off: BTreeSet::new(), next: BTreeMap::new() });
    }

    fn pass(&mut self, span: Span) {
        let end = self.now.mono + span;
        while let Some(at) = self.manager.wake_at().filter(|at| *at <= end) {
            self.now.mono = at;
            self.put(Input::Wake);
        }
        self.now.mono = end;
    }

    /// The newest assignments published since the last look: version, and the node of each clone in order.
    fn published(&mut self) -> Option<((u64, u64, u64), Vec<u64>)> {
        let newest = self.out.drain(..).rev().find_map(|output| match output {
            Output::Assign(a) => Some(a),
            Output::Withdraw | Output::Happened(_) | Output::Verdict { .. } => None,
        })?;
        Some(((newest.term, newest.seq, newest.by.0), newest.of.values().map(|node| node.0).collect()))
    }
}

#[test]
fn a_move_from_a_draining_node_that_fails_is_tried_again_after_its_time_and_no_sooner() {
    let mut fake = Fake::new(1, vec![node(1, &[]), node(2, &[0])]);
    fake.live[1].drains = true;
    fake.put(Input::Seen(assigned(3, 4, 2, &[2])));
    fake.put(Input::Leads(true));
    fake.tell();
    fake.pass(SETTLE);
    let moved = |fake: &mut Fake| fake.published().map(|(_, at)| at);
    assert_eq!(moved(&mut fake), Some(vec![1]), "it begins to move");
    fake.pass(Span(MOVE_TIME_MAX.0 - 1000));
    assert_eq!(moved(&mut fake), None);
    fake.pass(Span::millis(2));
    let warned = fake.out.iter().filter(|o| matches!(o, Output::Happened(h) if h.kind == "warning")).count();
    assert_eq!(warned, 1);
    fake.pass(MOVE_TIME_MAX);
    let warned = fake.out.iter().filter(|o| matches!(o, Output::Happened(h) if h.kind == "warning")).count();
    assert_eq!(warned, 2, "and again");
}

#[test]
fn a_new_leader_replaces_at_once_what_ran_where_it_saw_a_node_die_and_waits_for_one_it_never_heard_of() {
    let mut fake = Fake::new(3, vec![node(1, &[0])]);
    fake.put(Input::Seen(assigned(3, 4, 2, &[1, 2, 4])));
    fake.dead.insert(NodeId(2));
    fake.put(Input::Leads(true));
    fake.tell();
    assert_eq!(fake.published().map(|(_, at)| at), Some(vec![1, 1, 4]));
    fake.pass(SETTLE);
    assert_eq!(fake.published().map(|(_, at)| at), Some(vec![1, 1, 1]));
}

#[test]
fn a_node_that_died_and_is_back_keeps_its_clones() {
    let mut fake = Fake::new(2, vec![node(1, &[0]), node(2, &[1])]);
    fake.put(Input::Seen(assigned(3, 4, 2, &[1, 2])));
    fake.dead.insert(NodeId(2));
    fake.put(Input::Leads(true));
    fake.tell();
    assert_eq!(fake.published().map(|(_, at)| at), Some(vec![1, 2]));
}

#[test]
fn how_often_and_how_long_nodes_for_overflow_were_needed_is_kept() {
    let mut fake = Fake::new(1, vec![node(1, &[]), node(2, &[])]);
    fake.live[0].room = 1;
    fake.live[1].overflow = true;
    let used = |fake: &Fake| fake.manager.assignments().overflow;
    fake.put(Input::Leads(true));
    fake.tell();
    fake.pass(SETTLE);
    assert_eq!(used(&fake), crate::assign::Overflow::default());
    for round in 1..=2 {
        (fake.clones, fake.now.wall_ms) = (2, round * 10_000);
        fake.tell();
        assert_eq!((used(&fake).times, used(&fake).since_ms), (round, Some(round * 10_000)));
        (fake.clones, fake.now.wall_ms) = (1, round * 10_000 + 700);
        fake.tell();
        assert_eq!((used(&fake).total_ms, used(&fake).since_ms), (round * 700, None));
        assert_eq!(used(&fake).last_ms, round * 10_000 + 700);
    }
}

#[test]
fn who_does_not_lead_says_nothing() {
    let mut fake = Fake::new(2, vec![node(1, &[])]);
    fake.tell();
    fake.put(Input::Seen(assigned(3, 4, 2, &[1, 1])));
    fake.pass(Span::secs(10));
    assert_eq!((fake.out, fake.manager.wake_at()), (vec![], None));
}

#[test]
fn a_leader_that_knows_nothing_of_the_cluster_yet_publishes_nothing() {
    let mut fake = Fake::new(2, vec![]);
    fake.put(Input::Seen(assigned(3, 4, 2, &[2, 2])));
    fake.put(Input::Leads(true));
    fake.tell();
    fake.pass(Span::secs(10));
    assert_eq!(fake.published(), None, "an empty plan would stop every service");
}

#[test]
fn who_leads_again_plans_nothing_by_the_cluster_of_its_former_time() {
    let mut fake = Fake::new(2, vec![node(1, &[0, 1])]);
    fake.tell();
    fake.put(Input::Leads(true));
    fake.put(Input::Leads(false));
    fake.published();
    fake.put(Input::Seen(assigned(2, 1, 2, &[1, 1, 2])));
    fake.put(Input::Leads(true));
    assert_eq!(fake.published(), None, "meanwhile the service has three clones");
    fake.clones = 3;
    fake.tell();
    assert_eq!(fake.published(), Some(((3, 1, 1), vec![1, 1, 2])));
}

#[test]
fn a_new_leader_goes_on_from_the_newest_assignments_and_waits_before_it_believes_a_node_is_gone() {
    let mut fake = Fake::new(2, vec![node(1, &[0])]);
    fake.put(Input::Seen(assigned(3, 4, 2, &[1, 2])));
    fake.tell();
    fake.put(Input::Leads(true));
    assert_eq!(fake.published(), Some(((4, 1, 1), vec![1, 2])), "published at once, with nothing moved");
    fake.pass(Span::micros(SETTLE.0 - 1));
    fake.tell();
    assert_eq!(fake.published(), None);
    fake.pass(Span::micros(1));
    assert!(fake.out.contains(&Output::Happened(Happened::new(
        "clone-moved",
        &CloneId::new("shop", 1),
        "starts at n1, as node-000000000002 is gone"
    ))));
    assert_eq!(fake.published(), Some(((4, 2, 1), vec![1, 1])));
    fake.tell();
    assert_eq!(fake.published(), None, "nothing new, nothing said");
}

#[test]
fn a_new_leader_that_heard_no_assignments_takes_over_what_runs_and_outbids_what_nodes_obey() {
    let mut fake = Fake::new(2, vec![node(1, &[1]), node(2, &[0])]);
    fake.live[1].obeys = (7, 3, NodeId(3), Boot(1));
    fake.tell();
    fake.put(Input::Leads(true));
    assert_eq!(fake.published(), Some(((8, 1, 1), vec![2, 1])));
    fake.live[0].obeys = (9, 1, NodeId(2), Boot(1));
    fake.tell();
    assert_eq!(fake.published(), Some(((10, 1, 1), vec![2, 1])));
}

/// Seed 818847985683: a node whose beacon came late went on obeying what the leader had written before it was killed.
#[test]
fn a_leader_that_forgot_what_it_wrote_and_takes_the_same_term_again_is_obeyed() {
    let mut fake = Fake::new(1, vec![node(1, &[0])]);
    fake.tell();
    fake.put(Input::Leads(true));
    let before = fake.manager.assignments().clone();
    fake.manager = Manager::new(NodeId(1), Boot(BOOT.0 + 1));
    fake.tell();
    fake.put(Input::Leads(true));
    let after = fake.manager.assignments();
    assert_eq!((after.term, after.seq, after.by), (before.term, before.seq, before.by));
    assert!(after.is_newer_than(&before));
    // Of the life before, and further than ours has come.
    fake.live.push(node(2, &[]));
    fake.live[1].obeys = (1, 9, NodeId(1), BOOT);
    fake.tell();
    assert_eq!(fake.manager.assignments().term, 2);
}

#[test]
fn a_late_word_of_the_predecessor_is_gone_on_from_but_a_leader_of_the_past_is_outbid() {
    let mut fake = Fake::new(2, vec![node(1, &[0]), node(2, &[]), node(3, &[1])]);
    fake.put(Input::Seen(assigned(3, 4, 3, &[1, 2])));
    fake.tell();
    fake.put(Input::Leads(true));
    fake.put(Input::Seen(assigned(4, 9, 3, &[1, 3])));
    assert_eq!(fake.published(), Some(((5, 1, 1), vec![1, 3])));
    fake.pass(SETTLE);
    fake.published();
    fake.put(Input::Seen(assigned(6, 1, 2, &[2, 2])));
    assert_eq!(fake.published(), Some(((7, 1, 1), vec![1, 3])), "our own plan, under a newer term");
    fake.put(Input::Seen(assigned(6, 5, 2, &[2, 2])));
    assert_eq!(fake.published(), None);
}

#[test]
fn who_led_takes_its_beacon_back_when_it_sees_a_newer_one() {
    let mut fake = Fake::new(1, vec![node(1, &[])]);
    fake.tell();
    fake.put(Input::Leads(true));
    fake.put(Input::Leads(false));
    assert_eq!(fake.published(), Some(((1, 1, 1), vec![1])));
    fake.put(Input::Seen(assigned(2, 1, 2, &[2])));
    fake.put(Input::Seen(assigned(2, 2, 2, &[2])));
    assert_eq!(fake.out, [Output::Withdraw]);
    assert_eq!(fake.manager.assignments().version(), (2, 2, NodeId(2), Boot(0)));
}

#[test]
fn a_move_that_does_not_come_up_is_taken_back_and_the_service_rests() {
    let mut fake = Fake::new(2, vec![node(1, &[0, 1]), node(2, &[])]);
    fake.put(Input::Seen(assigned(1, 1, 2, &[1, 1])));
    fake.tell();
    fake.put(Input::Leads(true));
    fake.pass(SETTLE);
    assert_eq!(fake.published(), Some(((2, 2, 1), vec![1, 2])));
    assert_eq!(fake.manager.assignments().leaving.len(), 1);
    fake.pass(Span::micros(MOVE_TIME_MAX.0 - 1));
    assert_eq!(fake.published(), None);
    fake.pass(Span::micros(1));
    let warns = |output: &Output| matches!(output, Output::Happened(h) if h.kind == "warning" && h.who == "shop/1");
    assert!(fake.out.iter().any(warns), "{:?}", fake.out);
    assert_eq!(fake.published(), Some(((2, 3, 1), vec![1, 1])));
    assert!(fake.manager.assignments().leaving.is_empty());
    fake.tell();
    fake.pass(Span::micros(MOVE_REST.0 - 1));
    assert_eq!(fake.published(), None);
    fake.pass(Span::micros(1));
    assert_eq!(fake.published(), Some(((2, 4, 1), vec![1, 2])), "tried again after its rest");
    // This time it comes up.
    fake.live[1].clones = serving(&[1]);
    fake.tell();
    let text = "moved to n2 from n1 for balance";
    assert!(fake.out.contains(&Output::Happened(Happened::new("clone-moved", &CloneId::new("shop", 1), text))));
    assert_eq!(fake.published(), Some(((2, 5, 1), vec![1, 2])));
    assert_eq!(fake.manager.wake_at(), None);
}

#[test]
fn what_clones_take_to_start_is_known_to_the_next_leader() {
    let tell = |fake: &mut Fake| {
        let spec = ServiceSpec { clones: crate::size::Size { min: 1, max: 4 }, ..ServiceSpec::new(["app"]) };
        let services = BTreeMap::from([("shop".to_string(), spec)]);
        fake.put(Input::Cluster {
            services,
            live: fake.live.clone(),
            off: BTreeSet::new(),
            next: BTreeMap::new(),
            dead: BTreeSet::new(),
        });
    };
    let mut fake = Fake::new(1, vec![node(1, &[])]);
    tell(&mut fake);
    fake.put(Input::Leads(true));
    fake.pass(SETTLE);
    // The sizer is there before its service's clone is.
    assert_eq!(fake.manager.assignments().starts, BTreeMap::new());
    let leading = fake.manager.leading.as_mut().unwrap();
    leading.sizers.get_mut("shop").unwrap().started(Span::secs(11));
    fake.pass(LOAD_EVERY);
    let learned = BTreeMap::from([("shop".to_string(), 4_000)]);
    assert_eq!(fake.manager.assignments().starts, learned);
    // Its successor has it at once, keeps telling it, and goes on from it.
    let mut next = Fake::new(1, vec![node(1, &[0])]);
    next.put(Input::Seen(fake.manager.assignments().clone()));
    tell(&mut next);
    next.put(Input::Leads(true));
    next.pass(Span::millis(500));
    assert_eq!(next.manager.assignments().starts, learned);
    next.pass(SETTLE);
    assert_eq!(next.manager.leading.as_ref().unwrap().sizers["shop"].start(), Some(Span::secs(4)));
}

#[test]
fn who_is_ill_stands_in_the_assignments_until_it_is_well_again() {
    use crate::demand::{CloneDemand, GroupDemand};
    let mut both = node(1, &[0, 1]);
    both.serving = BTreeMap::from([(CloneId::new("shop", 0), (0, 7)), (CloneId::new("shop", 1), (0, 8))]);
    let mut fake = Fake::new(2, vec![both]);
    fake.tell();
    fake.put(Input::Leads(true));
    fake.pass(SETTLE);
    assert_eq!(fake.manager.wake_at(), None);
    let mut ask = |span: Span, hangs: bool| {
        let end = fake.now.mono + span;
        let mut mute_ms = 0;
        while fake.now.mono < end {
            let well = |number| CloneDemand { number, done: 5, ..CloneDemand::default() };
            let hung = CloneDemand { number: 1, owes: 5, mute_ms, ..CloneDemand::default() };
            let clones = vec![well(0), if hangs { hung } else { well(1) }];
            let groups = BTreeMap::from([("shop".into(), GroupDemand { clones, ..GroupDemand::default() })]);
            fake.put(Input::Demand { from: NodeId(2), demand: Demand { span_ms: 250, groups } });
            fake.pass(LOAD_EVERY);
            mute_ms += LOAD_EVERY.as_millis() as u32;
        }
        let ill = fake.manager.assignments().ill.iter().map(|(id, ill)| (id.number, ill.since_ms)).collect::<Vec<_>>();
        let told = fake.out.iter().filter(|out| matches!(out, Output::Happened(h) if h.kind == "warning")).count();
        (ill, told, fake.published().is_some())
    };
    assert_eq!(ask(HUNG_AFTER, true), (vec![], 0, true));
    assert_eq!(ask(HUNG_AFTER, true), (vec![], 0, false));
    assert_eq!(ask(HUNG_AFTER + Span::secs(1), true), (vec![(1, 8)], 1, true));
    assert_eq!(ask(Span::secs(1), false), (vec![], 0, true));
}

#[test]
fn of_a_clone_listed_twice_the_best_state_counts() {
    let status = |state| crate::CloneStatus {
        id: CloneId::new("shop", 0),
        state,
        pid: 0,
        port: 0,
        restarts: 0,
        since_ms: 0,
        last_exit: Some("exit status 1".into()),
        last_output: vec!["one".into(), "two".into()],
        spec_hash: 0,
        life: 3,
        version: 0,
        deaths: Some(0),
        sick: false,
    };
    use CloneState::*;
    for (states, best) in
        [([Draining, Serving], Serving), ([Serving, Backoff], Serving), ([Draining, Backoff], Backoff)]
    {
        let says = NodeClones { obeys: (1, 2, NodeId(3), Boot(4)), clones: states.map(status).into() };
        let load = NodeLoad::new(NodeId(1), "n1", 5, Some(&says));
        let id = CloneId::new("shop", 0);
        assert_eq!((load.clones[&id], load.reported, load.obeys), (best, true, (1, 2, NodeId(3), Boot(4))));
        let said = LastSaid { exit: Some("exit status 1".into()), line: Some("two".into()) };
        assert_eq!(load.last_said.get(&id), states.contains(&Backoff).then_some(&said));
    }
    assert!(!NodeLoad::new(NodeId(1), "n1", 5, None).reported);
}

#[test]
fn a_service_that_listens_nowhere_has_as_many_clones_as_the_jobs_of_its_queue_need() {
    let mut fake = Fake::new(1, vec![node(1, &[]), node(2, &[])]);
    let clones = crate::Size { min: 0, max: 4 };
    let spec = ServiceSpec { clones, queues: vec!["jobs/mails".into()], ..ServiceSpec::new(["worker"]) };
    assert_eq!(spec.validate(), Ok(()));
    // For so many seconds, each with all clones serving that there are then; how many there are in the end.
    let run = |fake: &mut Fake, seconds: u32, told: Option<(u64, u64)>| {
        for _ in 0..seconds {
            let backlog =
                |(waiting, oldest): (u64, u64)| crate::Backlog { waiting, held: 0, oldest: Span::secs(oldest) };
            let queues = told.map(|told| ("jobs/mails".to_owned(), backlog(told)));
            fake.put(Input::Queues(queues.into_iter().collect()));
            let of = fake.manager.assignments().of.clone();
            for node in &mut fake.live {
                node.clones = of
                    .iter()
                    .filter(|(_, at)| **at == node.id)
                    .map(|(id, _)| (id.clone(), CloneState::Serving))
                    .collect();
            }
            let services = BTreeMap::from([("mailer".to_string(), spec.clone())]);
            let (live, dead) = (fake.live.clone(), BTreeSet::new());
            fake.put(Input::Cluster { services, live, dead, off: BTreeSet::new(), next: BTreeMap::new() });
            fake.pass(Span::secs(1));
        }
        fake.manager.assignments().of.len()
    };
    fake.put(Input::Leads(true));
    assert_eq!(run(&mut fake, 5, Some((0, 0))), 0, "there is nothing to do, and nobody asks");
    assert_eq!(run(&mut fake, 2, Some((1, 0))), 1);
    assert_eq!(run(&mut fake, 3, Some((9, 7))), 2, "it has just grown");
    assert_eq!(run(&mut fake, 10, Some((9, 17))), 4);
    // Another one leads, goes on from what there is, and has to hear of the queue first.
    fake.put(Input::Leads(false));
    fake.put(Input::Leads(true));
    assert_eq!(run(&mut fake, 40, None), 4);
    assert_eq!(run(&mut fake, 30, Some((0, 0))), 2);
    let is_scaled = |out: &&Output| matches!(out, Output::Happened(h) if h.kind == "scaled");
    assert_eq!(fake.out.iter().filter(is_scaled).count(), 4);
}
