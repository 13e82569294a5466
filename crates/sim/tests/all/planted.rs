//! Promises can fail: a node with one planted bug is run whole, and the promise that it breaks must be reported.
//! The same runs without a bug end well, and one seed gives one run.

use base::Span;
use sim::history::History;
use sim::pace::Pace;
use sim::plays::{Bug, Name, hands, linear, object, session, soft, sql};
use sim::scene::{self, Plan, Report};
use sim::shipped::Bug as Node;

/// Seeds tried for each bug; one of them must show it.
const SEEDS: std::ops::Range<u64> = 1..5;

fn run(seed: u64, minutes: u64, nodes: usize, bug: Option<Bug>) -> Report {
    let length = Span::secs(60 * minutes);
    scene::run(Plan {
        seed,
        length,
        nodes,
        pace: Pace::Busy,
        bug,
        lies: false,
        only: only(bug),
        history: History::default(),
        loud: false,
    })
}

/// Clients use its class alone: the bug shows sooner.
fn only(bug: Option<Bug>) -> Option<Name> {
    bug.and_then(Bug::play).filter(|play| [Name::Soft, Name::Object].contains(play))
}

/// Runs seeds until the bug shows, and says which promise it broke.
fn caught(bug: Bug) -> Option<&'static str> {
    SEEDS.into_iter().find_map(|seed| run(seed, 3, 3, Some(bug)).broken.map(|broken| broken.promise))
}

#[test]
fn stale_reads_are_caught() {
    assert_eq!(caught(Bug::Session(session::bugs::Bug::Stale)), Some("never a stale read"));
}

#[test]
fn a_brick_that_forgets_is_caught() {
    let promise = "an acknowledged session write is readable while fewer than 2 of its bricks failed";
    assert_eq!(caught(Bug::Session(session::bugs::Bug::Forgets)), Some(promise));
}

#[test]
fn a_brick_that_forgets_what_a_cookie_names_is_caught() {
    let promise = "the last acknowledged write is readable by its cookie while fewer than 2 of its bricks failed";
    assert_eq!(caught(Bug::Modes(session::modes::bugs::Bug::CookieForgets)), Some(promise));
}

#[test]
fn documents_that_overwrite_each_other_are_caught() {
    assert_eq!(
        caught(Bug::Modes(session::modes::bugs::Bug::Unmerged)),
        Some("an acknowledged field stays, whatever others write into the same document")
    );
}

#[test]
fn missing_answers_are_caught() {
    assert_eq!(caught(Bug::Node(Node::Mute)), Some("no operation without an answer past its budget"));
}

#[test]
fn a_cluster_that_does_not_find_itself_again_is_caught() {
    // Whoever is asked may find out first.
    let promises: Vec<_> = (1..12)
        .filter_map(|seed| run(seed, 3, 3, Some(Bug::Node(Node::NeverDials))).broken.map(|broken| broken.promise))
        .collect();
    assert!(promises.contains(&"membership converges after faults end"), "{promises:?}");
}

#[test]
fn clones_that_run_twice_are_caught() {
    assert_eq!(caught(Bug::Node(Node::Twins)), Some("no clone runs twice for long, and every one runs"));
}

#[test]
fn lost_applies_are_caught() {
    assert_eq!(caught(Bug::Node(Node::FalseApply)), Some("an acknowledged apply is never lost"));
}

#[test]
fn needless_refusals_are_caught() {
    assert_eq!(
        caught(Bug::Session(session::bugs::Bug::Refuses)),
        Some("any one node may be killed: no operation through a live node fails")
    );
}

#[test]
fn a_busy_loop_is_caught() {
    assert_eq!(caught(Bug::Node(Node::Spins)), Some("no machine wakes without end"));
}

#[test]
fn batches_of_class_sql_that_are_not_done_or_in_part_are_caught() {
    assert_eq!(caught(Bug::Sql(sql::bugs::Bug::FalseAck)), Some(sql::promise::KEPT));
    assert_eq!(caught(Bug::Sql(sql::bugs::Bug::Torn)), Some(sql::promise::ONCE));
}

#[test]
fn batches_of_class_sql_happen_once_and_stay_under_faults() {
    // The first seeds that have them, one with logs of any length.
    for seed in (1..).filter(|seed| sql::load::is_in(*seed)).take(2) {
        let report = run(seed, 3, 3, None);
        assert_eq!(report.broken, None, "seed {seed}\n{}", report.last);
        assert!(report.ops["sql judged"] > 50, "{:?}", report.ops);
    }
}

#[test]
fn objects_that_are_not_kept_or_come_back_or_change_are_caught() {
    // Who asks finds it gone, or nobody has its bytes.
    let served = "any one node may be killed: no operation through a live node fails";
    let broken = caught(Bug::Object(object::bugs::Bug::FalseAck));
    assert!(broken.is_some_and(|promise| [object::promise::KEPT, served].contains(&promise)), "{broken:?}");
    assert_eq!(caught(Bug::Object(object::bugs::Bug::Revives)), Some(object::promise::GONE));
    assert_eq!(caught(Bug::Object(object::bugs::Bug::Spoils)), Some(object::promise::BYTES));
}

#[test]
fn acknowledged_objects_stay_under_faults() {
    for seed in (1..).filter(|seed| object::load::is_in(*seed)).take(2) {
        let report = run(seed, 3, 3, None);
        assert_eq!(report.broken, None, "seed {seed}\n{}", report.last);
        assert!(report.ops["object judged"] > 50, "{:?}", report.ops);
    }
}

const LINEAR: &str = "every operation of class linear happens at one moment between its start and its end";
const WATCH: &str = "who watches class linear is told each change once, in order";
const STALE: &str = "a stale read of class linear is not older than it says, nor than it may be";
const ONCE: &str = "an acknowledged write of class linear stays, and no write happens twice";

#[test]
fn a_linear_read_that_asks_nobody_is_caught() {
    // Whichever comes first: one that must not be stale, or one that may be and is older than it says.
    let broken = caught(Bug::Linear(linear::bugs::Bug::Stale));
    assert!(broken.is_some_and(|promise| [LINEAR, STALE].contains(&promise)), "{broken:?}");
}

#[test]
fn a_linear_write_acknowledged_before_it_is_agreed_on_is_caught() {
    // Who reads finds it missing, or who watches was not told of it.
    let broken = caught(Bug::Linear(linear::bugs::Bug::FalseAck));
    assert!(broken.is_some_and(|promise| [LINEAR, WATCH].contains(&promise)), "{broken:?}");
}

#[test]
fn a_change_that_who_watches_is_not_told_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::Untold)), Some(WATCH));
}

#[test]
fn a_transaction_that_is_done_in_part_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::Torn)), Some("a transaction is seen whole or not at all"));
}

#[test]
fn a_write_that_happens_again_when_it_is_asked_again_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::Twice)), Some(ONCE));
}

#[test]
fn a_stale_read_that_is_older_than_it_may_be_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::Older)), Some(STALE));
}

#[test]
fn a_value_that_is_there_after_its_end_is_caught() {
    assert_eq!(
        caught(Bug::Linear(linear::bugs::Bug::Late)),
        Some("a value of class linear is gone a moment after its end, however much is written")
    );
}

#[test]
fn a_field_that_is_there_after_its_end_is_caught() {
    assert_eq!(
        caught(Bug::Linear(linear::bugs::Bug::FieldsLate)),
        Some("a value of class linear is gone a moment after its end, however much is written")
    );
}

#[test]
fn a_job_that_two_workers_have_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::JobsShared)), Some(linear::jobs::HELD));
}

/// Jobs pile up for four minutes, of which some are calm.
#[test]
fn workers_of_whose_jobs_nobody_hears_are_caught() {
    let unheard = Bug::Hands(hands::bugs::Bug::Unheard);
    let shown = SEEDS.into_iter().find_map(|seed| run(seed, 4, 3, Some(unheard)).broken.map(|broken| broken.promise));
    assert_eq!(shown, Some(hands::promise::GROWS));
}

#[test]
fn a_group_of_a_stream_that_gives_an_entry_twice_is_caught() {
    assert_eq!(caught(Bug::Linear(linear::bugs::Bug::EntriesTwice)), Some(ONCE));
}

/// That a promise must not leave before the disk has it is tested at the one wrapper (`cluster/root/tests`).
#[test]
fn a_linear_member_that_forgets_at_a_restart_is_caught() {
    // Any of these promises may show it, once the wrong ones have restarted. A split may hang before that.
    let shown = (1..40).find_map(|seed| {
        let broken = run(seed, 3, 3, Some(Bug::Linear(linear::bugs::Bug::Forgets))).broken?.promise;
        [LINEAR, ONCE, WATCH, STALE].contains(&broken).then_some(broken)
    });
    assert!(shown.is_some(), "40 runs, and none says that something was forgotten");
}

const EQUAL: &str = "all nodes have the same of class soft some seconds after the last fault";
const KEPT: &str = "an acknowledged update of class soft is there or superseded, and what was removed stays removed";
const EXACT: &str = "what class soft has counted is exact";
const OWN: &str = "who wrote in class soft reads it at the same node";

const ENDS: &str = "what has ended of class soft is shown by nobody, and what has not is there";

/// Any of them may show it first.
fn caught_in_soft(bug: Bug) {
    let broken = caught(bug);
    assert!(broken.is_some_and(|promise| [EQUAL, KEPT, EXACT, OWN].contains(&promise)), "{bug:?}: {broken:?}");
}

#[test]
fn a_soft_update_that_is_acknowledged_and_not_done_is_caught() {
    caught_in_soft(Bug::Soft(soft::bugs::Bug::FalseAck));
}

#[test]
fn repair_that_does_not_say_what_its_sender_has_seen_is_caught() {
    caught_in_soft(Bug::Soft(soft::bugs::Bug::Blind));
}

#[test]
fn a_cell_that_stands_for_all_of_its_frame_is_caught() {
    caught_in_soft(Bug::Soft(soft::bugs::Bug::Covers));
}

#[test]
fn an_end_that_comes_too_late_is_caught() {
    assert_eq!(caught(Bug::Soft(soft::bugs::Bug::Late)), Some(ENDS));
}

/// What one peer says for ten seconds stays with those that believe it.
#[test]
fn a_node_that_believes_what_a_peer_says_of_others_is_caught() {
    let lied_to = |seed, bug| {
        let (length, history) = (Span::secs(180), History::default());
        scene::run(Plan { seed, length, nodes: 3, pace: Pace::Busy, bug, lies: true, only: None, history, loud: false })
    };
    assert!(SEEDS.into_iter().any(|seed| lied_to(seed, Some(Bug::Node(Node::Believes))).broken.is_some()));
    for seed in SEEDS {
        let report = lied_to(seed, None);
        assert_eq!(report.broken, None, "seed {seed}: {}", report.last);
        assert!(report.faults["Lies"] > 0);
    }
}

#[test]
fn the_shipped_node_keeps_its_promises_and_one_seed_gives_one_run() {
    for (seed, nodes) in [(1, 3), (2, 5)] {
        let (a, b) = (run(seed, 2, nodes, None), run(seed, 2, nodes, None));
        assert_eq!(a.broken, None, "{}", a.last);
        // Else nothing above says anything of splits.
        assert!(a.ops["shards made by splits"] > 0, "no split has ended: {:?}", a.ops);
        assert_eq!((a.hash, a.events, a.faults, a.ops), (b.hash, b.events, b.faults, b.ops));
    }
    assert_ne!(run(3, 1, 3, None).hash, run(4, 1, 3, None).hash);
}
