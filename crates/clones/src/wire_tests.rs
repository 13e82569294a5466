//! The frozen bytes of both beacons, and what bytes from outside may do.

use proptest::prelude::*;

use super::*;

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
    assert_eq!(NodeClones::decode(&versioned(&wire)).unwrap().clones, clones().clones[1..]);
    longer[0] = 2;
    assert_eq!(NodeClones::decode(&longer), None);
    assert_eq!(Assignments::decode(b""), None);
}

#[test]
fn indexes_past_the_tables_are_refused() {
    let mut wire: WireAssignments = message(&assignments().encode()).unwrap();
    wire.of[1].node = 2;
    assert_eq!(Assignments::decode(&versioned(&wire)), None);
    wire.of[1].node = 1;
    wire.of[1].leaving = 3;
    assert_eq!(Assignments::decode(&versioned(&wire)), None);
    wire.of[1].leaving = 0;
    assert!(Assignments::decode(&versioned(&wire)).is_some());
    let mut wire = clones().wire(OUTPUT_LINES);
    wire.clones[0].service = 1;
    assert_eq!(NodeClones::decode(&versioned(&wire)), None);
}

#[test]
fn output_is_cut_before_a_beacon_is_too_long() {
    let lines: Vec<String> = (0..OUTPUT_LINES).map(|i| format!("{i} {}", "é".repeat(200))).collect();
    let clone = |number| CloneStatus {
        id: CloneId::new("s".repeat(63), number),
        last_output: lines.clone(),
        ..clones().clones[1].clone()
    };
    for (clones, lines_left) in [(3, OUTPUT_LINES), (20, 10), (60, 2), (CLONES_MAX, 0)] {
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
    for i in 0..CLONES_MAX {
        let id = CloneId::new(format!("{:063}", i % SERVICES_MAX as u32), i);
        most.leaving.insert(id.clone(), NodeId(u64::from(i % 50)));
        most.of.insert(id, NodeId(u64::from(i % 49)));
    }
    assert!(most.encode().len() <= BEACON_BYTES_MAX, "{}", most.encode().len());
    assert_eq!(Assignments::decode(&most.encode()), Some(most));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version: bool) {
        if version && !bytes.is_empty() {
            bytes[0] = VERSION;
        }
        let _ = Assignments::decode(&bytes);
        let _ = NodeClones::decode(&bytes);
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
