//! The world, tried with a machine that does what it is asked and writes down what it hears.

use std::collections::BTreeMap;

use base::GroupId;
use base::process::Probe;
use base::{Priority, ProcSpec, Signal, Ticket};

use super::*;

/// Orders for the toy: the effect it is to have.
#[derive(Debug)]
enum Order {
    Dial(SocketAddr, Option<NodeId>),
    Hangup(NodeId),
    Send(NodeId, u8),
    Append(u8),
    Spawn(u64),
    Signal(u64, Signal),
    Probe(u64, u16),
    WakeAfter(Span),
    /// Chatter: every 10 ms something to a random peer, a disk write now and then.
    Chatter,
}

struct Toy {
    rng: Rng,
    heard: Vec<(Time, String)>,
    wake: Option<Time>,
    chats: bool,
    peers: BTreeMap<NodeId, Boot>,
    tickets: u64,
}

impl Machine for Toy {
    type Ask = Order;
    type Answer = &'static str;
    type View = usize;

    fn handle(&mut self, now: Now, event: Event<Order>, out: &mut Vec<Effect<&'static str, usize>>) {
        let text = match event {
            Event::Start { log, .. } => {
                format!("start {:?}", log.values().flatten().map(|r| r[0]).collect::<Vec<_>>())
            }
            Event::Wake => {
                self.wake = None;
                self.chat(now, out);
                "wake".into()
            }
            Event::Linked { peer, boot, card } => {
                self.peers.insert(peer, boot);
                format!("linked {peer} {boot} {}", String::from_utf8_lossy(&card))
            }
            Event::Unlinked { peer, addr, why } => {
                peer.map(|peer| self.peers.remove(&peer));
                format!("unlinked {peer:?} {addr:?} {why:?}")
            }
            Event::Frame { from, frame } => format!("frame {from} {}", frame.head[0]),
            Event::Appended { ticket, .. } => format!("appended {ticket}"),
            Event::Saved { ticket, .. } => format!("saved {ticket}"),
            Event::Packs { .. } => return,
            Event::Pack { said, .. } => format!("{said:?}"),
            Event::Worked { number, .. } => format!("worked {number}"),
            Event::Spawned { proc, port, .. } => format!("spawned {proc} {port}"),
            Event::Output { .. } => "output".into(),
            Event::Disk { trouble } => format!("disk {trouble:?}"),
            Event::Exited { proc, exit } => format!("exited {proc} {exit}"),
            Event::Probed { proc, result } => format!("probed {proc} {result:?}"),
            Event::Vitals { .. } => {
                out.push(Effect::Publish(self.heard.len()));
                "vitals".into()
            }
            Event::Ask { id, ask, .. } => {
                self.obey(now, ask, out);
                out.push(Effect::Answer { id, answer: "aye" });
                return;
            }
        };
        self.heard.push((now.mono, text));
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake
    }
}

impl Toy {
    fn obey(&mut self, now: Now, order: Order, out: &mut Vec<Effect<&'static str, usize>>) {
        let frame = |n: u8| Frame { priority: Priority::NORMAL, ..Frame::new(16, Bytes::copy_from_slice(&[n])) };
        match order {
            Order::Dial(addr, peer) => out.push(Effect::Dial { addr, peer }),
            Order::Hangup(peer) => out.push(Effect::Hangup { peer }),
            Order::Send(to, n) => out.push(Effect::Send { to, frame: frame(n) }),
            Order::Append(n) => {
                self.tickets += 1;
                let records = vec![Bytes::copy_from_slice(&[n]).into()];
                out.push(Effect::Append { group: GroupId::ROOT, records, ticket: Ticket(self.tickets), force: true });
            }
            Order::Spawn(proc) => {
                let spec = ProcSpec {
                    name: "toy".into(),
                    version: 0,
                    run: vec!["toy".into()],
                    code: None,
                    dir: None,
                    env: BTreeMap::new(),
                    sandbox: Some(base::process::Open::default()),
                    limits: Default::default(),
                    user: None,
                    given: Default::default(),
                };
                out.push(Effect::Spawn { proc: ProcId(proc), spec });
            }
            Order::Signal(proc, signal) => out.push(Effect::Signal { proc: ProcId(proc), signal }),
            Order::Probe(proc, port) => {
                let probe = Probe::of(port, Span::secs(1));
                out.push(Effect::Probe { proc: ProcId(proc), probe });
            }
            Order::WakeAfter(span) => self.wake = Some(now.mono + span),
            Order::Chatter => {
                self.chats = true;
                self.chat(now, out);
            }
        }
    }

    fn chat(&mut self, now: Now, out: &mut Vec<Effect<&'static str, usize>>) {
        if !self.chats {
            return;
        }
        self.wake = Some(now.mono + Span::millis(10));
        let peers: Vec<_> = self.peers.keys().copied().collect();
        let n = self.rng.u64() as u8;
        if let Some(peer) = self.rng.pick(&peers) {
            self.obey(now, Order::Send(*peer, n), out);
        }
        if n < 10 {
            self.obey(now, Order::Append(n), out);
        }
    }
}

struct Toys;

impl Factory for Toys {
    type Machine = Toy;
    fn birth(&mut self, life: &Life) -> Birth<Toy> {
        let card = Bytes::from(format!("toy {}", life.index));
        let rng = Rng::new(life.seed);
        Birth {
            machine: Toy { rng, heard: vec![], wake: None, chats: false, peers: BTreeMap::new(), tickets: 0 },
            card,
        }
    }
}

/// A world of started toys.
fn toys(seed: u64, machines: usize) -> World<Toys> {
    let mut world = World::new(seed, machines, Toys);
    (0..machines).for_each(|n| world.start(n));
    world
}

fn run(world: &mut World<Toys>, span: Span) {
    let until = world.now() + span;
    while world.next(until).is_some() {}
}

fn order(world: &mut World<Toys>, node: usize, order: Order) {
    world.ask(node, Span::secs(1), order).unwrap();
}

fn link(world: &mut World<Toys>, from: usize, to: usize) {
    let addr = world.peer_addr(to);
    order(world, from, Order::Dial(addr, None));
    run(world, Span::millis(20));
    assert!(world.is_linked(from, to) && world.is_linked(to, from));
}

fn heard(world: &World<Toys>, node: usize) -> Vec<String> {
    world.machine(node).unwrap().heard.iter().map(|(_, text)| text.clone()).filter(|t| t != "vitals").collect()
}

fn last(world: &World<Toys>, node: usize) -> String {
    heard(world, node).pop().unwrap()
}

#[test]
fn a_dial_links_both_sides_and_frames_go_both_ways() {
    let mut world = toys(1, 2);
    link(&mut world, 0, 1);
    let (a, b) = (world.id(0), world.id(1));
    assert_eq!(last(&world, 0), format!("linked {b} boot-1 toy 1"));
    assert_eq!(last(&world, 1), format!("linked {a} boot-1 toy 0"));
    order(&mut world, 0, Order::Send(b, 7));
    order(&mut world, 1, Order::Send(a, 8));
    run(&mut world, Span::millis(5));
    assert_eq!((last(&world, 0), last(&world, 1)), (format!("frame {b} 8"), format!("frame {a} 7")));
}

#[test]
fn a_link_ends_as_its_peer_did() {
    let mut world = toys(2, 3);
    let (b, addr) = (world.id(1), world.peer_addr(1));
    link(&mut world, 0, 1);
    world.kill(1);
    run(&mut world, Span::millis(5));
    assert_eq!(last(&world, 0), format!("unlinked Some({b}) None Closed"));
    let dial = |world: &mut World<Toys>| {
        order(world, 0, Order::Dial(addr, Some(b)));
        let began = world.now();
        let before = heard(world, 0).len();
        while heard(world, 0).len() == before {
            world.next(world.now() + Span::millis(1));
        }
        (last(world, 0), world.now().since(began).as_millis())
    };
    let (text, took) = dial(&mut world);
    assert_eq!(text, format!("unlinked Some({b}) Some({addr}) Refused"));
    assert!(took < 10, "{took}");
    world.start(1);
    world.hang(1);
    let (text, took) = dial(&mut world);
    assert_eq!(text, format!("unlinked Some({b}) Some({addr}) TimedOut"));
    assert!((1300..1310).contains(&took), "{took}");
    world.resume(1);
    world.cut(1, 0, false);
    let (text, took) = dial(&mut world);
    assert_eq!(text, format!("unlinked Some({b}) Some({addr}) TimedOut"));
    assert!((300..310).contains(&took), "{took}");
    world.heal_all();
    assert_eq!(dial(&mut world).0, format!("linked {b} boot-2 toy 1"));
    world.kill(1);
    world.empty_disk(1);
    world.start(1);
    run(&mut world, Span::millis(5));
    let (text, _) = dial(&mut world);
    assert_eq!(text, format!("unlinked Some({b}) Some({addr}) Rejected"), "another node lives there now");
}

#[test]
fn power_loss_closes_nothing_and_the_kernel_gives_up_after_a_while() {
    let mut world = toys(3, 2);
    link(&mut world, 0, 1);
    let b = world.id(1);
    world.power_off(1);
    run(&mut world, Span::secs(20));
    assert!(world.is_linked(0, 1), "nothing was sent, so nobody noticed");
    order(&mut world, 0, Order::Send(b, 1));
    run(&mut world, Span::secs(11));
    assert_eq!(last(&world, 0), format!("unlinked Some({b}) None TimedOut"));
}

#[test]
fn a_restarted_peer_links_anew_without_an_end_in_between() {
    let mut world = toys(4, 2);
    link(&mut world, 0, 1);
    world.power_off(1);
    world.start(1);
    link(&mut world, 1, 0);
    let ends = heard(&world, 0).iter().filter(|text| text.starts_with("unlinked")).count();
    assert_eq!((ends, last(&world, 0)), (0, format!("linked {} boot-2 toy 1", world.id(1))));
}

#[test]
fn hangups_are_heard_on_both_sides() {
    let mut world = toys(5, 2);
    link(&mut world, 0, 1);
    let (a, b) = (world.id(0), world.id(1));
    order(&mut world, 0, Order::Hangup(b));
    run(&mut world, Span::millis(5));
    assert_eq!(last(&world, 0), format!("unlinked Some({b}) None Ours"));
    assert_eq!(last(&world, 1), format!("unlinked Some({a}) None Closed"));
}

#[test]
fn a_one_way_cut_loses_or_holds_one_direction() {
    for holds in [false, true] {
        let mut world = toys(6, 2);
        link(&mut world, 0, 1);
        let (a, b) = (world.id(0), world.id(1));
        world.cut(0, 1, holds);
        order(&mut world, 0, Order::Send(b, 1));
        order(&mut world, 1, Order::Send(a, 2));
        run(&mut world, Span::secs(2));
        assert_eq!(last(&world, 0), format!("frame {b} 2"));
        assert!(last(&world, 1).starts_with("linked"));
        world.heal_all();
        order(&mut world, 0, Order::Send(b, 3));
        run(&mut world, Span::secs(1));
        let frames: Vec<_> = heard(&world, 1).into_iter().filter(|t| t.starts_with("frame")).collect();
        let (one, three) = (format!("frame {a} 1"), format!("frame {a} 3"));
        assert_eq!(frames, if holds { vec![one, three] } else { vec![three] });
    }
}

#[test]
fn a_kill_loses_what_was_not_synced_and_only_that() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut world = toys(seed, 1);
        order(&mut world, 0, Order::Append(1));
        while last(&world, 0) != "appended ticket-1" {
            world.next(world.now() + Span::millis(1));
        }
        order(&mut world, 0, Order::Append(2));
        run(&mut world, Span(50));
        world.kill(0);
        world.start(0);
        match last(&world, 0).as_str() {
            "start [1]" => lost += 1,
            other => assert_eq!(other, "start [1, 2]"),
        }
    }
    assert!((5..45).contains(&lost), "{lost} of 50 lost");
}

#[test]
fn a_hung_process_hears_all_of_it_late_and_in_order() {
    let mut world = toys(7, 2);
    link(&mut world, 0, 1);
    let b = world.id(1);
    order(&mut world, 1, Order::WakeAfter(Span::millis(100)));
    run(&mut world, Span::millis(1));
    world.hang(1);
    let stopped_at = world.now();
    for n in 0..20 {
        order(&mut world, 0, Order::Send(b, n));
    }
    run(&mut world, Span::secs(3));
    assert!(last(&world, 1).starts_with("linked"), "a stopped process hears nothing");
    world.resume(1);
    run(&mut world, Span::millis(1));
    let texts = heard(&world, 1);
    let frames: Vec<_> = texts.iter().filter_map(|t| t.rsplit_once(' ')?.1.parse::<u8>().ok()).collect();
    assert!(frames.ends_with(&(0..20).collect::<Vec<_>>()), "{texts:?}");
    assert_eq!(texts.iter().filter(|t| *t == "wake").count(), 1);
    let woken = world.machine(1).unwrap().heard.iter().find(|(_, t)| t == "wake").unwrap().0;
    assert!(woken.since(world.places[1].clock.now(stopped_at).mono) >= Span::millis(2990));
}

#[test]
fn children_live_as_they_are_told_and_die_with_their_node() {
    let mut world = toys(8, 1);
    order(&mut world, 0, Order::Spawn(1));
    run(&mut world, Span::secs(1));
    let port = world.children(0).next().unwrap().1.port;
    assert!(heard(&world, 0).contains(&format!("spawned proc-1 {port}")));
    order(&mut world, 0, Order::Probe(1, port));
    run(&mut world, Span::millis(5));
    assert_eq!(last(&world, 0), "probed proc-1 Ok(())");
    world.hang_child(0, ProcId(1));
    order(&mut world, 0, Order::Probe(1, port));
    order(&mut world, 0, Order::Signal(1, Signal::Term));
    run(&mut world, Span::secs(2));
    assert_eq!(last(&world, 0), "probed proc-1 Err(\"no answer in time\")");
    order(&mut world, 0, Order::Signal(1, Signal::Kill));
    run(&mut world, Span::millis(5));
    assert_eq!(last(&world, 0), "exited proc-1 killed by signal 9");
    world.manners.missing = 1.0;
    order(&mut world, 0, Order::Spawn(2));
    run(&mut world, Span::secs(1));
    assert_eq!(last(&world, 0), "exited proc-2 could not be started: no such file or directory");
    world.manners.missing = 0.0;
    order(&mut world, 0, Order::Spawn(3));
    run(&mut world, Span::secs(1));
    assert_eq!(world.children(0).count(), 1);
    world.kill(0);
    world.start(0);
    run(&mut world, Span::secs(1));
    assert_eq!((world.children(0).count(), heard(&world, 0)), (0, vec!["start []".to_string()]));
}

/// Chattering toys in bad weather, with kills, hangs and cuts: the world's whole range in one run.
fn wild(seed: u64) -> World<Toys> {
    let mut world = toys(seed, 4);
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        link(&mut world, a, b);
    }
    (0..4).for_each(|n| order(&mut world, n, Order::Chatter));
    world.set_weather(Weather { loss: 0.1, duplicate: 0.1, reorder: 0.1, ..Weather::CALM });
    run(&mut world, Span::secs(5));
    world.hang(2);
    world.cut(0, 1, true);
    run(&mut world, Span::secs(2));
    world.kill(3);
    world.resume(2);
    world.start(3);
    run(&mut world, Span::secs(2));
    world.heal_all();
    run(&mut world, Span::secs(1));
    world
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let (a, b, c) = (wild(11), wild(11), wild(12));
    assert_eq!((a.trace.hash(), a.trace.events()), (b.trace.hash(), b.trace.events()));
    assert_eq!(a.counts(), b.counts());
    assert_ne!(a.trace.hash(), c.trace.hash());
    assert_eq!(a.trace.last(50, 50), b.trace.last(50, 50));
}

#[test]
fn weather_strikes_as_often_as_it_says() {
    let counts = wild(13).counts();
    let share = |part: u64| part as f64 / counts.sent as f64;
    assert!(counts.sent > 2000, "{counts:?}");
    for part in [counts.duplicated, counts.reordered] {
        assert!((0.05..0.15).contains(&share(part)), "{counts:?}");
    }
    assert!((0.05..0.4).contains(&share(counts.lost)), "{counts:?}");
    assert!(counts.held > 0 && counts.arrived > counts.sent / 2, "{counts:?}");
}

#[test]
fn a_machine_that_always_wants_to_wake_is_reported() {
    struct Restless;
    impl Machine for Restless {
        type Ask = ();
        type Answer = ();
        type View = ();
        fn handle(&mut self, _: Now, _: Event<()>, _: &mut Vec<Effect<(), ()>>) {}
        fn wake_at(&self) -> Option<Time> {
            Some(Time::ZERO)
        }
    }
    impl Factory for Restless {
        type Machine = Restless;
        fn birth(&mut self, _: &Life) -> Birth<Restless> {
            Birth { machine: Restless, card: Bytes::new() }
        }
    }
    let mut world = World::new(14, 1, Restless);
    world.start(0);
    let reported =
        std::iter::from_fn(|| world.next(Time(900_000))).any(|h| matches!(h, Happened::Spins { node: 0, .. }));
    assert!(reported);
}
