//! The frozen bytes of both beacons, and what bytes from outside may do.

use proptest::prelude::*;

use super::*;
use crate::limits::{CLONES_MAX_BEFORE, SERVICES_MAX_BEFORE};

fn assignments() -> Assignments {
    let (a, b) = (CloneId::new("shop", 0), CloneId::new("shop", 1));
    Assignments {
        term: 3,
        seq: 7,
        by: NodeId(0x0102),
        boot: Boot(5),
        of: BTreeMap::from([(a, NodeId(0x0102)), (b.clone(), NodeId(0x0203))]),
        leaving: BTreeMap::from([(b, NodeId(0x0102))]),
        fresh: BTreeMap::new(),
        ill: BTreeMap::new(),
        starts: BTreeMap::new(),
        overflow: Overflow { times: 5, ..Overflow::default() },
    }
}

#[test]
fn what_clones_take_to_start_comes_over_also_of_services_without_clones() {
    let starts = BTreeMap::from([("shop".into(), 700), ("pay".into(), 5_000)]);
    let told = Assignments { starts, ..assignments() };
    assert_eq!(Assignments::decode(&told.encode()), Some(told));
}

#[test]
fn who_is_ill_comes_over_and_what_is_said_of_it_is_bounded() {
    let ill = |why: String| BTreeMap::from([(CloneId::new("shop", 1), Ill { since_ms: 7, why })]);
    let told = Assignments { ill: ill("answered none of 5 requests".into()), ..assignments() };
    assert_eq!(Assignments::decode(&told.encode()), Some(told));
    let long = Assignments { ill: ill("ä".repeat(ILL_WHY_BYTES)), ..assignments() };
    let read = Assignments::decode(&long.encode()).unwrap();
    assert_eq!(read.ill, ill("ä".repeat(ILL_WHY_BYTES / 2)));
}

fn clones() -> NodeClones {
    let dead = CloneStatus {
        id: CloneId::new("shop", 2),
        state: CloneState::Backoff,
        pid: 0,
        port: 0,
        restarts: 4,
        since_ms: 1000,
        last_exit: Some("exit status 1".into()),
        last_output: vec!["one".into(), "two".into()],
        spec_hash: 0x11,
        life: 0,
        version: 0,
        deaths: None,
        sick: false,
    };
    let well = CloneStatus {
        id: CloneId::new("shop", 1),
        state: CloneState::Serving,
        pid: 77,
        port: 4001,
        restarts: 0,
        life: 3,
        last_exit: None,
        last_output: Vec::new(),
        ..dead.clone()
    };
    NodeClones { obeys: (3, 7, NodeId(0x0102), Boot(5)), clones: vec![well, dead] }
}

#[test]
fn how_overflow_was_needed_is_told() {
    let overflow = Overflow { times: 3, total_ms: 700, since_ms: Some(5), last_ms: 4 };
    let says = Assignments { overflow, ..assignments() };
    assert_eq!(Assignments::decode(&says.encode()).unwrap().overflow, overflow);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
#[test]
fn assignments_have_these_bytes() {
    let bytes = assignments().encode();
    assert_eq!(
        hex(&bytes),
        "0108031007190201000000000000220473686f702a10020100000000000003020000000000003200320610011801200138054005"
    );
    assert_eq!(Assignments::decode(&bytes), Some(assignments()));
}

#[test]
fn a_nodes_clones_have_these_bytes() {
    let bytes = clones().encode();
    assert_eq!(
        hex(&bytes),
        "010a0473686f70121710011802204d28a11f38e8075111000000000000007803122b10021804300438e807420d65786974207374617475732031\
         4a036f6e654a0374776f511100000000000000180320072902010000000000003005"
    );
    assert_eq!(NodeClones::decode(&bytes), Some(clones()));
}

/// Of a program of 0.1, whose bytes are above, nothing is known.
#[test]
fn how_often_a_version_died_comes_over() {
    let mut told = clones();
    (told.clones[0].deaths, told.clones[1].deaths) = (Some(0), Some(3));
    assert_eq!(NodeClones::decode(&told.encode()), Some(told));
}

#[test]
fn unknown_fields_and_states_are_skipped_and_unknown_versions_are_not_read() {
    let mut longer = clones().encode().to_vec();
    longer.extend(b"\xa2\x06\x03new"); // field 100, three bytes
    assert_eq!(NodeClones::decode(&longer), Some(clones()));
    let mut wire = clones().wire(OUTPUT_LINES);
    wire.clones[0].state = 9;
    assert_eq!(NodeClones::decode(&versioned(VERSION, &wire)).unwrap().clones, clones().clones[1..]);
    longer[0] = 2;
    assert_eq!(NodeClones::decode(&longer), None);
    assert_eq!(Assignments::decode(b""), None);
}

#[test]
fn indexes_past_the_tables_are_refused() {
    let mut wire: WireAssignments = message(VERSION, &assignments().encode()).unwrap();
    wire.of[1].node = 2;
    assert_eq!(Assignments::decode(&versioned(VERSION, &wire)), None);
    wire.of[1].node = 1;
    wire.of[1].leaving = 3;
    assert_eq!(Assignments::decode(&versioned(VERSION, &wire)), None);
    wire.of[1].leaving = 0;
    assert!(Assignments::decode(&versioned(VERSION, &wire)).is_some());
    let mut wire = clones().wire(OUTPUT_LINES);
    wire.clones[0].service = 1;
    assert_eq!(NodeClones::decode(&versioned(VERSION, &wire)), None);
}

#[test]
fn output_is_cut_before_a_beacon_is_too_long() {
    let lines: Vec<String> = (0..OUTPUT_LINES).map(|i| format!("{i} {}", "é".repeat(200))).collect();
    let clone = |number| CloneStatus {
        id: CloneId::new("s".repeat(63), number),
        last_output: lines.clone(),
        ..clones().clones[1].clone()
    };
    for (clones, lines_left) in [(3, OUTPUT_LINES), (20, 10), (60, 2), (CLONES_MAX_BEFORE, 0)] {
        let all = NodeClones { obeys: (1, 1, NodeId(1), Boot(1)), clones: (0..clones).map(clone).collect() };
        let bytes = all.encode();
        assert!(bytes.len() <= BEACON_BYTES_MAX, "{clones} clones: {} bytes", bytes.len());
        let read = NodeClones::decode(&bytes).unwrap();
        assert_eq!(read.clones.len(), clones as usize);
        let output = &read.clones[0].last_output;
        assert_eq!(output.len(), lines_left, "{clones} clones");
        assert!(output.iter().zip(&lines[OUTPUT_LINES - lines_left..]).all(|(short, line)| line.starts_with(short)));
    }
}

#[test]
fn the_most_assignments_fit_into_a_beacon() {
    let mut most = Assignments::default();
    for i in 0..CLONES_MAX_BEFORE {
        let id = CloneId::new(format!("{:063}", i % SERVICES_MAX_BEFORE as u32), i);
        most.leaving.insert(id.clone(), NodeId(u64::from(i % 50)));
        most.of.insert(id, NodeId(u64::from(i % 49)));
    }
    assert!(most.encode().len() <= BEACON_BYTES_MAX, "{}", most.encode().len());
    assert_eq!(Assignments::decode(&most.encode()), Some(most));
}

/// As many as there may be, at one node.
fn most() -> (Assignments, NodeClones) {
    let (mut of, mut leaving, mut ill) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for i in 0..CLONES_MAX {
        let id = CloneId::new(format!("{:063}", i / 2), i % 2);
        leaving.insert(id.clone(), NodeId(u64::from(i % 50)));
        ill.insert(id.clone(), Ill { since_ms: u64::MAX, why: "w".repeat(ILL_WHY_BYTES) });
        of.insert(id, NodeId(u64::from(i % 49)));
    }
    let starts = of.keys().map(|id| (id.service.clone(), u32::MAX)).collect();
    let lines: Vec<String> = (0..OUTPUT_LINES).map(|i| format!("{i} {}", "x".repeat(200))).collect();
    let clone = |id: &CloneId| CloneStatus {
        id: id.clone(),
        restarts: u32::MAX,
        since_ms: u64::MAX,
        last_output: lines.clone(),
        life: u64::MAX,
        spec_hash: u64::MAX,
        version: u32::MAX,
        ..clones().clones[1].clone()
    };
    let clones = of.keys().flat_map(|id| [clone(id), clone(id)]).collect();
    (
        Assignments { of, leaving, ill, starts, ..assignments() },
        NodeClones { obeys: (3, 7, NodeId(1), Boot(5)), clones },
    )
}

#[test]
fn the_most_assignments_and_clones_fit_into_parts_and_are_read_as_they_were() {
    let (assignments, mut clones) = most();
    let told = assignments.told(true);
    let fits = |told: &Parted| told.parts.values().chain([&told.head]).all(|value| value.len() <= BEACON_BYTES_MAX);
    assert!(fits(&told) && told.parts.len() <= crate::limits::PARTS_MAX, "{}", told.parts.len());
    assert_eq!(Assignments::read(&told.head, |number| told.parts.get(&number)), Some(assignments));
    let told = clones.told(true);
    assert!(fits(&told) && told.parts.len() <= crate::limits::PARTS_MAX, "{}", told.parts.len());
    let mut read = NodeClones::read(&told.head, |number| told.parts.get(&number)).unwrap();
    for clone in read.clones.iter_mut().chain(&mut clones.clones) {
        (clone.last_output, clone.last_exit) = (Vec::new(), None);
    }
    assert_eq!(read, clones);
}

#[test]
fn one_service_of_the_most_clones_fits_into_a_part() {
    let (assignments, clones) = most();
    let one = |id: &CloneId| id.service.starts_with(&"0".repeat(61)) && id.number < 256;
    let (mut of, mut leaving, mut ill) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for n in 0..crate::limits::CLONES_PER_SERVICE_MAX {
        let id = CloneId::new("s".repeat(63), n);
        of.insert(id.clone(), NodeId(u64::from(n)));
        leaving.insert(id.clone(), NodeId(u64::from(n) << 32));
        ill.insert(id, Ill { since_ms: u64::MAX, why: "w".repeat(ILL_WHY_BYTES) });
    }
    let many = Assignments { of: of.clone(), leaving, ill, starts: BTreeMap::new(), ..assignments };
    let told = many.told(true);
    assert!(told.parts.len() == 1 && told.parts.values().all(|part| part.len() <= BEACON_BYTES_MAX));
    let example = clones.clones.into_iter().find(|clone| one(&clone.id)).unwrap();
    let clone = |id: &CloneId| CloneStatus { id: id.clone(), ..example.clone() };
    let many = NodeClones { obeys: clones.obeys, clones: of.keys().flat_map(|id| [clone(id), clone(id)]).collect() };
    let told = many.told(true);
    assert!(told.parts.len() == 1 && told.parts.values().all(|part| part.len() <= BEACON_BYTES_MAX));
}

#[test]
fn only_the_part_that_changed_is_told_anew_and_nothing_is_read_of_parts_that_do_not_belong_together() {
    let (mut assignments, _) = most();
    assignments.ill.clear();
    let before = assignments.told(true);
    let moved = assignments.of.keys().nth(7).unwrap().clone();
    assignments.of.insert(moved, NodeId(3));
    assignments.seq += 1;
    let after = assignments.told(true);
    let changed: Vec<u32> =
        after.parts.keys().copied().filter(|number| before.parts.get(number) != after.parts.get(number)).collect();
    assert_eq!((changed.len(), after.parts.len()), (1, before.parts.len()));
    let bytes = after.head.len() + after.parts[&changed[0]].len();
    assert!(bytes < 8 << 10, "{bytes} bytes for one clone of {}", assignments.of.len());
    for (head, others) in [(&before.head, &after), (&after.head, &before)] {
        assert_eq!(Assignments::read(head, |number| others.parts.get(&number)), None);
    }
    assert_eq!(
        Assignments::read(&after.head, |number| after.parts.get(&number).filter(|_| number != changed[0])),
        None
    );
    // A program from before would take a head for assignments of nothing.
    assert_eq!(Assignments::decode(&after.head), None);
    assert_eq!(assignments.told(false), Parted::whole(assignments.encode()));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version: bool) {
        if version && !bytes.is_empty() {
            bytes[0] = VERSION;
        }
        let (all, part) = (Bytes::from(bytes.clone()), Bytes::from(bytes));
        let _ = Assignments::decode(&all);
        let _ = NodeClones::decode(&all);
        let head = Bytes::from([&[IN_PARTS], &all[all.len().min(1)..]].concat());
        let _ = Assignments::read(&head, |_| Some(&part));
        let _ = NodeClones::read(&head, |_| Some(&part));
    }

    #[test]
    fn bent_bytes_never_panic(at in 0usize..120, to: u8) {
        for good in [assignments().encode(), clones().encode()] {
            let mut bytes = good.to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = Assignments::decode(&bytes);
            let _ = NodeClones::decode(&bytes);
        }
    }
}
