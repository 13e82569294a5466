//! What each question to a node is answered, by a node alone in its cluster: what changes the declaration does so once,
//! what is so already changes nothing, and what cannot be is refused with words that say what to do.

use std::sync::Arc;

use base::process::Private;
use base::{AskId, Boot, Effect, Event, Frame, Machine, NodeId, Now, Outcome, Span, Time, kind};
use clones::Size;
use clones::off::Target;
use clones::runs::Once;
use cluster::admission::Gone;
use cluster::doors::DoorAddrs;
use cluster::{Admission, Card};
use state::linear::limits::LOG;

use crate::asks_tests::Bench;
use crate::limits::{ADMISSION_WAIT, PENDING_MAX, REFUSED_LINES, WAITING_MAX};
use crate::node::{Birth, Node, Out};
use crate::{Answer, Ask, Leaving};

const SERVICE: &str = "[service.shop]\nrun = [\"shop\"]\nclones = 2\nhttp = { host = \"*\" }\n";
const DECLARED: &str = "[namespace.carts]\nclass = \"session\"\n[namespace.bank]\nclass = \"linear\"\nreplicas = 1\n\
                        [service.shop]\nrun = [\"shop\"]\nclones = 2\nhttp = { host = \"*\" }\n";

fn apply(text: &str) -> Ask {
    Ask::Apply { file: "a.toml".into(), text: text.into(), dry_run: false, entropy: [1; 32] }
}

fn dry(text: &str) -> Ask {
    Ask::Apply { file: "a.toml".into(), text: text.into(), dry_run: true, entropy: [1; 32] }
}

fn set_secret(service: &str, name: &str, value: &'static str) -> Ask {
    let value = Private(value.as_bytes().into());
    Ask::SetSecret { service: service.into(), name: name.into(), value, entropy: [3; 32] }
}

fn scale(service: &str, clones: u32) -> Ask {
    Ask::Scale { service: service.into(), size: Size { min: clones, max: clones } }
}

fn admit(name: &str, secret: u8, level: u32) -> Ask {
    Ask::Admit { secret_hash: [secret; 32], name: name.into(), level, wish: NodeId(70) }
}

fn leave(name: &str, how: Leaving) -> Ask {
    Ask::Leave { name: name.into(), how, force: false }
}

fn switch(target: Target, off: bool) -> Ask {
    Ask::Switch { target, off }
}

/// One after the other: what each is answered, and whether the declaration is another one after it.
#[test]
fn what_changes_the_declaration_does_so_once_and_what_cannot_be_is_refused_with_words() {
    const CHANGED: bool = true;
    const STAYS: bool = false;
    let token = || Ask::JoinToken { secret_hash: [9; 32], expires_wall_ms: u64::MAX, uses: 2 };
    let shop = || "shop".to_owned();
    let mut bench = Bench::new();
    let cases: Vec<(&str, Ask, &str, bool)> = vec![
        ("a comparison", dry(DECLARED), "+ service shop", STAYS),
        ("a declaration", apply(DECLARED), "+ service shop", CHANGED),
        ("the same again", apply(DECLARED), "changes: []", STAYS),
        ("a comparison with the same", dry(DECLARED), "changes: []", STAYS),
        ("a wrong one", apply("[service.shop]\nclones = 2\n"), "a.toml:", STAYS),
        ("a comparison with a wrong one", dry("[namespace.x]\nclass = \"none\"\n"), "a.toml:2", STAYS),
        ("more clones", scale("shop", 3), "clones 2 -> 3", CHANGED),
        ("as many", scale("shop", 3), "changes: []", STAYS),
        ("clones of nobody", scale("shoe", 3), "there is no service", STAYS),
        ("a part out of use", switch(Target::Service(shop()), true), "shop", CHANGED),
        ("it is already", switch(Target::Service(shop()), true), "changes: []", STAYS),
        ("into use again", switch(Target::Service(shop()), false), "shop", CHANGED),
        ("a part of nobody", switch(Target::Service("shoe".into()), true), "there is no service", STAYS),
        ("a node of nobody", switch(Target::Node("n9".into()), true), "n9", STAYS),
        ("a secret", set_secret("shop", "KEY", "value"), "KEY", CHANGED),
        ("a secret before its service", set_secret("shoe", "KEY", "value"), "shoe is not declared yet", CHANGED),
        ("an empty one", set_secret("shop", "KEY", ""), "is empty", STAYS),
        ("which there are", Ask::Secrets { service: shop() }, "KEY", STAYS),
        ("which nobody has", Ask::Secrets { service: "none".into() }, "there is no service", STAYS),
        ("no secret", Ask::RemoveSecret { service: shop(), name: "NONE".into() }, "has no secret", STAYS),
        ("the secret", Ask::RemoveSecret { service: shop(), name: "KEY".into() }, "KEY", CHANGED),
        (
            "another key",
            Ask::Rotate { namespace: "carts".into(), entropy: [4; 32], end_sessions: false },
            "carts",
            CHANGED,
        ),
        (
            "a key of nobody",
            Ask::Rotate { namespace: "none".into(), entropy: [4; 32], end_sessions: false },
            "there is no namespace",
            STAYS,
        ),
        ("no version before", Ask::Rollback { service: shop(), to: None }, "Refused", STAYS),
        ("a token", token(), "Done(())", CHANGED),
        ("which there are", Ask::JoinTokens, "uses_left: Some(2)", STAYS),
        ("a wrong token", admit("m1", 8, base::LEVEL), "does not know the join token", STAYS),
        ("an old program", admit("m1", 9, base::LEVEL - 1), "start the newer program", STAYS),
        ("a newcomer", admit("m1", 9, base::LEVEL), "authority", CHANGED),
        ("no such token", Ask::RevokeToken { name: "zz".into() }, "there is no join token", STAYS),
        ("the token", Ask::RevokeToken { name: "0909".into() }, "Done(())", CHANGED),
        ("a removal of nobody", Ask::Remove { name: "m2".into(), force: false }, "no node is named", STAYS),
        ("a removal", Ask::Remove { name: "m1".into(), force: false }, "Done(())", CHANGED),
        ("it is removed", Ask::Remove { name: "m1".into(), force: false }, "Done(())", STAYS),
        ("nobody else is here", Ask::Depart, "nobody else is here", STAYS),
        ("a wish for nobody", leave("m1", Leaving::Restart), "no live node is named", STAYS),
        ("no certificate", Ask::Certify, "names no n1 of this id", STAYS),
        (
            "nobody was that",
            Ask::Renew { former: NodeId(77), name: "m9".into(), why: "a test".into(), wish: NodeId(78) },
            "was ever admitted",
            STAYS,
        ),
        ("a run of nobody", Ask::Run(Once { service: "shoe".into(), run: vec!["x".into()] }), "shoe", STAYS),
        ("no such run", Ask::RunEnd { number: 77 }, "RunEnd(None)", STAYS),
        ("its end", Ask::EndRun { number: 77 }, "Done(())", STAYS),
        ("news", Ask::Certified { text: "it has another certificate".into() }, "Done(())", STAYS),
        ("no service", Ask::RemoveService { service: "shoe".into() }, "there is no service", STAYS),
        ("the service", Ask::RemoveService { service: shop() }, "- service shop", CHANGED),
    ];
    let mut others = Vec::new();
    for (what, ask, with, changes) in cases {
        let before = bench.node.root.declared().version;
        let answers = bench.ask_all(vec![ask]);
        let (said, after) = (format!("{:?}", answers[0]), bench.node.root.declared().version);
        if !said.contains(with) || (after > before) != changes {
            others.push(format!("{what}: {said} ({before} to {after})"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    let kinds: std::collections::BTreeSet<&str> = bench.node.happened.iter().map(|event| event.kind.as_str()).collect();
    for kind in ["applied", "switched", "secret", "joined", "certificate"] {
        assert!(kinds.contains(kind), "no event says {kind}: {kinds:?}");
    }
}

#[test]
fn what_is_exported_is_what_is_declared() {
    let mut bench = Bench::new();
    bench.ask_all(vec![apply(DECLARED), scale("shop", 5)]);
    let answers = bench.ask_all(vec![Ask::Export]);
    let [Answer::Exported(text)] = &answers[..] else { panic!("{answers:?}") };
    assert!(text.contains("clones = 5"), "{text}");
    let again = format!("{:?}", bench.ask_all(vec![dry(text)]));
    assert!(again.contains("Done") && !again.contains("+ ") && !again.contains("- "), "{again}");
}

/// It has heard of no declaration: whatever it said of it would be made up.
#[test]
fn a_node_that_has_not_heard_of_the_declaration_changes_nothing_and_is_asked_again() {
    let mut node = node(None);
    let asks = [
        dry(SERVICE),
        apply(SERVICE),
        scale("shop", 3),
        admit("m1", 9, base::LEVEL),
        Ask::RevokeToken { name: "09".into() },
        Ask::Certify,
        switch(Target::Service("shop".into()), true),
    ];
    for (id, ask) in (0..).map(AskId).zip(asks) {
        let text = format!("{ask:?}");
        let mut said = Vec::new();
        for event in [Event::Ask { id, budget: Span::secs(1), ask }, Event::Wake] {
            let mut out: Out = Vec::new();
            node.handle(NOW, event, &mut out);
            said.extend(out.into_iter().filter_map(|effect| match effect {
                Effect::Answer { id: of, answer } if of == id => Some(answer),
                _ => None,
            }));
        }
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        let refused = match &said[0] {
            Answer::Applied(Outcome::Refused(refused)) | Answer::Done(Outcome::Refused(refused)) => refused,
            Answer::Admitted(Outcome::Refused(refused)) => refused,
            other => panic!("{text}: {other:?}"),
        };
        assert!(refused.why.contains("has not heard of the declaration"), "{text}: {}", refused.why);
        assert!(refused.retry_after.is_some(), "{text}: it is asked again");
    }
}

#[test]
fn only_so_many_changes_wait_and_those_above_are_refused_at_once() {
    const MORE: usize = 3;
    let mut bench = Bench::new();
    let text = |n: usize| format!("[namespace.n{n}]\nclass = \"session\"\n");
    let asks = (0..PENDING_MAX + MORE).map(|n| apply(&text(n)));
    for (id, ask) in (0..).zip(asks) {
        bench.hear(Event::Ask { id: AskId(id), budget: Span::secs(5), ask });
    }
    let busy = |answer: &Answer| format!("{answer:?}").contains("too many changes are under way");
    assert_eq!(bench.answers.values().filter(|answer| busy(answer)).count(), MORE);
}

/// A restart of it would leave too few bricks: sessions would be refused or lost.
#[test]
fn a_node_is_not_asked_to_restart_while_too_few_bricks_would_be_left() {
    let mut bench = Bench::new();
    let answers = bench.ask_all(vec![leave("n1", Leaving::Restart)]);
    let said = format!("{answers:?}");
    assert!(said.contains("with 1 of 3 bricks") && said.contains("retry_after: Some"), "{said}");
    assert!(bench.node.departure.is_none() && !bench.node.happened.iter().any(|event| event.text.contains("restart")));
}

const NOW: Now = Now { mono: Time(5_000_000), wall_ms: 1_700_000_000_000 };

fn card(id: u64, name: &str, level: u32) -> Card {
    let doors = DoorAddrs::on([10, 0, 0, id as u8].into());
    Card { id: NodeId(id), boot: Boot(1), name: name.into(), doors, pid: 1, version: "0.1.0".into(), level }
}

/// A node that was started and founds nothing.
fn node(admission: Option<Admission>) -> Node {
    let birth = Birth {
        cluster: "home".into(),
        card: card(1, "n1", base::LEVEL),
        seeds: vec!["10.0.0.2:1".parse().unwrap()],
        seed: 1,
        settings: state::Settings::default(),
        overflow: false,
        room: 8,
        builtins: &[],
        linear_log: LOG,
        found: None,
    };
    let mut node = Node::new(birth);
    let start = Event::Start { log: Default::default(), remarks: Vec::new(), rebooted: false };
    node.handle(NOW, start, &mut Vec::new());
    if let Some(admission) = admission {
        node.admission = Arc::new(admission);
    }
    node
}

fn admission(named: u64, strict: bool) -> Admission {
    Admission {
        named: (1..=named).map(|id| (NodeId(id), format!("n{id}"))).collect(),
        gone: [(NodeId(30), Gone::Removed), (NodeId(40), Gone::Anew), (NodeId(50), Gone::Away)].into(),
        strict,
    }
}

#[test]
fn who_links_is_heard_hung_up_on_or_told_by_what_is_declared_of_it() {
    let hangs_up = |out: &Out, id: u64| out.iter().any(|e| matches!(e, Effect::Hangup { peer } if peer.0 == id));
    let is_told = |out: &Out, id: u64| {
        out.iter().any(|e| matches!(e, Effect::Send { to, frame } if to.0 == id && frame.kind == kind::REMOVED))
    };
    // Who comes, whether the node is sure of what is declared, and: it is a member, it is hung up on, it is told, it
    // waits.
    for (id, name, strict, member, hung_up, told, waits) in [
        (2, "n2", true, true, false, false, false),
        (2, "n2", false, true, false, false, false),
        (2, "other", true, false, true, false, false),
        (2, "other", false, false, true, false, false),
        (9, "n9", true, false, false, false, true),
        (9, "n9", false, true, false, false, false),
        (30, "n30", true, false, false, true, false),
        (30, "n30", false, false, false, true, false),
        (40, "n40", true, false, false, false, false),
    ] {
        let mut node = node(Some(admission(3, strict)));
        let mut out = Vec::new();
        node.linked(NOW, card(id, name, base::LEVEL), &mut out);
        let is_member = node.membership.known().any(|(card, _)| card.id.0 == id);
        let is_waiting = node.waiting.contains_key(&NodeId(id));
        let seen = (is_member, hangs_up(&out, id), is_told(&out, id), is_waiting);
        assert_eq!(seen, (member, hung_up, told, waits), "{id} {name}, strict: {strict}");
    }
}

#[test]
fn strangers_wait_in_a_room_of_a_size_and_for_a_time_and_one_line_tells_of_each() {
    let mut node = node(Some(admission(1, true)));
    node.admission_of = (0, false);
    let mut out = Vec::new();
    for n in 0..=WAITING_MAX as u64 {
        node.linked(NOW, card(100 + n, "stranger", base::LEVEL), &mut out);
    }
    let hung_up = |out: &Out| out.iter().filter(|effect| matches!(effect, Effect::Hangup { .. })).count();
    assert_eq!((node.waiting.len(), hung_up(&out)), (WAITING_MAX, 1), "the last one finds no room");
    let at = |after: Span| Now { mono: NOW.mono + after, ..NOW };
    let mut out = Vec::new();
    node.keep_admission(at(Span(ADMISSION_WAIT.0 - 1)), &mut out);
    assert_eq!((node.waiting.len(), hung_up(&out)), (WAITING_MAX, 0));
    node.keep_admission(at(ADMISSION_WAIT), &mut out);
    let lines = |out: &Out| out.iter().filter(|effect| matches!(effect, Effect::Note(_))).count();
    assert_eq!((node.waiting.len(), hung_up(&out), lines(&out)), (0, WAITING_MAX, WAITING_MAX));
    // One that knocks again at once is hung up on again, and no line says so until a while later.
    for (after, told) in [(ADMISSION_WAIT, 0), (ADMISSION_WAIT + REFUSED_LINES + ADMISSION_WAIT, 1)] {
        node.linked(at(after), card(100, "stranger", base::LEVEL), &mut Vec::new());
        let mut out = Vec::new();
        node.keep_admission(at(after + ADMISSION_WAIT), &mut out);
        assert_eq!((hung_up(&out), lines(&out)), (1, told), "{after:?}");
    }
}

#[test]
fn a_node_ends_as_removed_when_more_than_half_of_those_it_knows_say_so_and_never_by_the_word_of_one() {
    for (others, needed) in [(1, None), (2, Some(2)), (3, Some(2)), (4, Some(3)), (5, Some(3)), (8, Some(5))] {
        let mut node = node(Some(admission(1 + others, true)));
        let mut out = Vec::new();
        // Nobody's word, a thousand times.
        (100..1_100).for_each(|stranger| node.told_removed(NOW, NodeId(stranger), &mut out));
        let mut after = None;
        for said in 1..=others {
            // Each says it twice.
            (0..2).for_each(|_| node.told_removed(NOW, NodeId(1 + said), &mut out));
            if node.removed && after.is_none() {
                after = Some(said);
            }
        }
        assert_eq!(after, needed, "of {others} others");
        assert_eq!(node.departure.is_some_and(|departure| departure.ready), needed.is_some());
    }
}

#[test]
fn who_was_away_for_too_long_is_told_and_gives_its_disk_up_by_the_word_of_more_than_half() {
    let mut of_peers = node(Some(admission(3, true)));
    let mut out = Vec::new();
    of_peers.linked(NOW, card(50, "n50", base::LEVEL), &mut out);
    let is_told = |effect: &_| matches!(effect, Effect::Send { to, frame } if to.0 == 50 && frame.kind == kind::ANEW);
    assert!(out.iter().any(is_told) && !of_peers.membership.known().any(|(card, _)| card.id.0 == 50));
    for (others, needed) in [(1, None), (2, Some(2)), (3, Some(2)), (4, Some(3)), (5, Some(3))] {
        let mut node = node(Some(admission(1 + others, true)));
        let (mut out, mut after) = (Vec::new(), None);
        (100..1_100).for_each(|stranger| node.told_anew(NodeId(stranger), &mut out));
        for said in 1..=others {
            (0..2).for_each(|_| node.told_anew(NodeId(1 + said), &mut out));
            let gives_up = out.iter().any(|effect| matches!(effect, Effect::Distrust { .. }));
            after = after.or(gives_up.then_some(said));
        }
        assert_eq!(after, needed, "of {others} others");
    }
}

#[test]
fn a_frame_says_that_this_node_was_removed_only_if_a_peer_sent_it() {
    let mut node = node(Some(admission(3, true)));
    for (from, said) in [(2, 1), (77, 1), (2, 1), (3, 2)] {
        let frame = Frame::new(kind::REMOVED, bytes::Bytes::new());
        node.handle(NOW, Event::Frame { from: NodeId(from), frame }, &mut Vec::new());
        assert_eq!(node.told_removed.len(), said, "{from}");
    }
    assert!(node.removed);
}
