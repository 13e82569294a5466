//! Real hosts on loopback: links come up, carry frames, lose no race, and tell apart who may not be there.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::{Boot, Effect, Event, Frame, GroupId, LinkEnd, NodeId, Span, Ticket, kind};
use common::{Act, Node, PATIENCE, TURN, TempDir, Toy, cluster, config, listener, member, run, run_with, temp_dir};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use host::{
    Authority, Dialer, Identity, JoinDesk, JoinError, JoinGrant, JoinToken, JoinWish, LocalPort, NotRenewed, RenewWish,
    Target, TunnelDesk, TunnelStream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Where the nodes of one test live.
struct Field {
    io: tokio::runtime::Runtime,
    dirs: Vec<TempDir>,
}

impl Field {
    fn new() -> Field {
        let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Field { io, dirs: Vec::new() }
    }

    fn node(&mut self, identity: &Identity, ip: &str) -> Node {
        self.node_at(identity, listener(ip), |_| ())
    }

    fn node_at(&mut self, id: &Identity, at: TcpListener, change: impl FnOnce(&mut host::HostConfig)) -> Node {
        self.dirs.push(temp_dir("links"));
        let mut config = config(id, self.dirs.last().unwrap(), at, self.io.handle());
        change(&mut config);
        run(config)
    }

    /// Two nodes of one cluster; the first has the lower id.
    fn pair(&mut self) -> (Node, Node) {
        let (ids, _) = cluster(&["a", "b"]);
        (self.node(&ids[0], "127.0.0.1"), self.node(&ids[1], "127.0.0.2"))
    }

    fn linked_pair(&mut self) -> (Node, Node) {
        let (a, b) = self.pair();
        a.act(vec![dial(b.addr, Some(b.id))]);
        a.wait_linked(b.id);
        b.wait_linked(a.id);
        (a, b)
    }
}

fn dial(addr: SocketAddr, peer: Option<NodeId>) -> Act {
    Effect::Dial { addr, peer }
}

fn send(to: NodeId, head: impl Into<bytes::Bytes>, body: Vec<u8>) -> Act {
    let frame = Frame { body: body.into(), budget_ms: 60, load: 321, ..Frame::new(kind::SESSION, head) };
    Effect::Send { to, frame }
}

#[test]
fn a_link_comes_up_and_carries_frames_both_ways() {
    let mut field = Field::new();
    let (a, b) = field.pair();
    a.act(vec![dial(b.addr, None)]);
    let (boot, card) = a.wait_linked(b.id);
    assert_eq!(boot, Boot(1));
    assert!(card.starts_with(b"card of "));
    b.wait_linked(a.id);
    a.act(vec![send(b.id, "question", vec![1; 8192])]);
    let (from, frame) = b.wait_frame();
    assert_eq!((from, frame.body.len(), frame.budget_ms, frame.load), (a.id, 8192, 60, 321));
    assert_eq!(&frame.head[..], b"question");
    b.act(vec![send(a.id, "answer", vec![])]);
    assert_eq!(&a.wait_frame().1.head[..], b"answer");
}

#[test]
fn many_frames_of_all_sizes_arrive_whole_and_in_order() {
    let mut field = Field::new();
    let (a, b) = field.linked_pair();
    let sizes = [0usize, 1, 1000, 1024, 1025, 8192, 16_384, 100_000, 1 << 20];
    for round in 0..20u8 {
        a.act(sizes.iter().map(|&size| send(b.id, vec![round], vec![round; size])).collect());
        for size in sizes {
            let (_, frame) = b.wait_frame();
            assert_eq!((frame.head[0], frame.body.len()), (round, size));
            assert!(frame.body.iter().all(|&byte| byte == round));
        }
    }
}

#[test]
fn two_who_dial_each_other_at_once_end_with_one_working_link() {
    let mut field = Field::new();
    let mut pairs = Vec::new();
    for _ in 0..10 {
        let (a, b) = field.pair();
        let (to_a, to_b) = (a.running.port(), b.running.port());
        field.io.block_on(async {
            let dial_b = to_a.ask(vec![dial(b.addr, Some(b.id))], Span::ZERO);
            let dial_a = to_b.ask(vec![dial(a.addr, Some(a.id))], Span::ZERO);
            let (asked_a, asked_b) = tokio::join!(dial_b, dial_a);
            assert_eq!((asked_a, asked_b), (Ok(1), Ok(1)));
        });
        a.wait_linked(b.id);
        b.wait_linked(a.id);
        for i in 0..200u8 {
            a.act(vec![send(b.id, vec![i], vec![])]);
            b.act(vec![send(a.id, vec![i], vec![])]);
        }
        for node in [&a, &b] {
            let mut got: Vec<u8> = (0..200)
                .map(|_| {
                    node.wait("frame, and no end of the link", |event| match event {
                        Event::Frame { frame, .. } => Some(frame.head[0]),
                        Event::Unlinked { why, .. } => panic!("a crossed dial was told as an end: {why:?}"),
                        _ => None,
                    })
                })
                .collect();
            got.sort_unstable();
            assert!(got.iter().copied().eq(0..200), "{got:?}");
        }
        pairs.push((a, b));
    }
    // The losing links have been closed by now, and nobody has taken that for the end of a peer.
    for (a, b) in &pairs {
        for node in [a, b] {
            let mut seconds = 0;
            node.wait("second second", |event| match event {
                Event::Unlinked { why, .. } => panic!("a crossed dial was told as an end: {why:?}"),
                Event::Vitals { gauges, .. } => {
                    assert_eq!(gauges["net.links"], 1);
                    seconds += 1;
                    (seconds == 2).then_some(())
                }
                _ => None,
            });
        }
    }
}

#[test]
fn a_node_that_dies_is_told_at_once_and_a_dial_to_it_is_refused() {
    let mut field = Field::new();
    let (a, b) = field.linked_pair();
    let (b_id, b_addr) = (b.id, b.addr);
    drop(b);
    assert_eq!(a.wait_unlinked(), (Some(b_id), LinkEnd::Closed));
    a.act(vec![dial(b_addr, Some(b_id))]);
    assert_eq!(a.wait_unlinked(), (Some(b_id), LinkEnd::Refused));
}

#[test]
fn a_hangup_ends_the_link_on_both_sides_each_with_its_reason() {
    let mut field = Field::new();
    let (a, b) = field.linked_pair();
    a.act(vec![Effect::Hangup { peer: b.id }]);
    assert_eq!(a.wait_unlinked(), (Some(b.id), LinkEnd::Ours));
    assert_eq!(b.wait_unlinked(), (Some(a.id), LinkEnd::Closed));
    b.act(vec![dial(a.addr, Some(a.id))]);
    a.wait_linked(b.id);
}

#[test]
fn a_restarted_peer_replaces_its_former_life() {
    let mut field = Field::new();
    let (ids, _) = cluster(&["a", "b"]);
    let (a, b) = (field.node(&ids[0], "127.0.0.1"), field.node(&ids[1], "127.0.0.2"));
    b.act(vec![dial(a.addr, None)]);
    a.wait_linked(b.id);
    // The former life still holds its link: to `a` it looks alive.
    let again = field.node_at(&ids[1], listener("127.0.0.2"), |config| config.boot = Boot(2));
    again.act(vec![dial(a.addr, None)]);
    assert_eq!(a.wait_linked(b.id).0, Boot(2));
    assert_eq!(b.wait_unlinked().0, Some(a.id));
    again.wait_linked(a.id);
    a.act(vec![send(b.id, "to the new life", vec![])]);
    assert_eq!(&again.wait_frame().1.head[..], b"to the new life");
    // And a straggler of the former life does not come back.
    b.act(vec![dial(a.addr, None)]);
    assert_eq!(b.wait_unlinked().1, LinkEnd::Closed);
    a.act(vec![send(b.id, "still there", vec![])]);
    assert_eq!(&again.wait_frame().1.head[..], b"still there");
}

#[test]
fn nobody_of_another_cluster_and_nobody_but_the_expected_node_gets_a_link() {
    let mut field = Field::new();
    let (ids, _) = cluster(&["a", "b"]);
    let (strangers, _) = cluster(&["x"]);
    let (a, b) = (field.node(&ids[0], "127.0.0.1"), field.node(&ids[1], "127.0.0.2"));
    let x = field.node(&strangers[0], "127.0.0.3");
    x.act(vec![dial(a.addr, None)]);
    assert_eq!(x.wait_unlinked(), (None, LinkEnd::Rejected));
    a.act(vec![dial(x.addr, None)]);
    assert_eq!(a.wait_unlinked(), (None, LinkEnd::Rejected));
    // Right cluster, wrong node.
    a.act(vec![dial(b.addr, Some(NodeId(1)))]);
    assert_eq!(a.wait_unlinked(), (Some(NodeId(1)), LinkEnd::Rejected));
    // Itself.
    a.act(vec![dial(a.addr, None)]);
    assert_eq!(a.wait_unlinked(), (None, LinkEnd::Rejected));
    assert!(a.events().iter().all(|event| !matches!(event, Event::Linked { .. })));
}

#[test]
fn strangers_who_speak_something_else_are_closed_and_the_node_goes_on() {
    let mut field = Field::new();
    let (a, b) = field.pair();
    for first in ["GET / HTTP/1.1\r\n\r\n", "COP1L plain text instead of TLS, and more of it", "COP1J\0\0\0\0", "COP9L"]
    {
        let mut tcp = TcpStream::connect(a.addr).unwrap();
        tcp.set_read_timeout(Some(common::PATIENCE)).unwrap();
        tcp.write_all(first.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // An alert may come first; what counts is the end.
        let end = tcp.read_to_end(&mut answer);
        assert!(!matches!(&end, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "{first:?} was not closed");
    }
    b.act(vec![dial(a.addr, None)]);
    a.wait_linked(b.id);
}

#[test]
fn wake_ups_appends_and_views_come_as_asked() {
    let mut field = Field::new();
    let (ids, _) = cluster(&["a"]);
    field.dirs.push(temp_dir("disk"));
    let dir = temp_dir("kept");
    let a = field.node_at(&ids[0], listener("127.0.0.1"), |config| config.dir = dir.0.clone());
    let log = a.wait("start", |event| match event {
        Event::Start { log, .. } => Some(log),
        _ => None,
    });
    assert!(log.is_empty());
    a.act(vec![Effect::Append {
        group: GroupId(3),
        records: ["one", "two"].map(|text| bytes::Bytes::from(text).into()).to_vec(),
        ticket: Ticket(5),
        force: true,
    }]);
    a.wait("append", |event| matches!(event, Event::Appended { group: GroupId(3), ticket: Ticket(5) }).then_some(()));
    assert_eq!(*a.running.port().view(), 1);
    field.io.block_on(a.running.port().ask(vec![], Span::millis(30))).unwrap();
    a.wait("wake-up", |event| matches!(event, Event::Wake).then_some(()));
    a.wait("vitals", |event| match event {
        Event::Vitals { resident_bytes, gauges, .. } => {
            assert!(resident_bytes > 0);
            assert_eq!(gauges.get("toy"), Some(&7));
            Some(())
        }
        _ => None,
    });
    let port = a.running.port();
    drop(a);
    assert_eq!(field.io.block_on(port.ask(vec![], Span::ZERO)), Err(host::Gone));
    let again = field.node_at(&ids[0], listener("127.0.0.1"), |config| config.dir = dir.0.clone());
    again.wait("its log", |event| match event {
        Event::Start { log, .. } => {
            assert_eq!(log[&GroupId(3)], ["one", "two"]);
            Some(())
        }
        _ => None,
    });
}

struct Desk {
    authority: Authority,
    of: Identity,
    good: [u8; 32],
    removed: NodeId,
}

impl JoinDesk for Desk {
    fn admit(&self, wish: JoinWish) -> BoxFuture<'static, Result<JoinGrant, String>> {
        let answer = if wish.secret_hash == self.good {
            Ok(self.grant(wish.node, &wish.request, &wish.name))
        } else {
            Err("this token has expired".to_string())
        };
        Box::pin(std::future::ready(answer))
    }

    fn may_renew(&self, former: NodeId) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(former != self.removed))
    }

    fn renew(&self, wish: RenewWish) -> BoxFuture<'static, Result<JoinGrant, NotRenewed>> {
        let answer = if wish.former == self.of.node {
            Err(NotRenewed { why: "it is needed".into(), later: false })
        } else {
            Ok(self.grant(wish.node, &wish.request, &wish.name))
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Desk {
    fn grant(&self, node: NodeId, request: &[u8], name: &str) -> JoinGrant {
        JoinGrant {
            node,
            cluster: self.of.cluster,
            cluster_name: self.of.cluster_name.clone(),
            cert_pem: self.authority.sign(request, node, self.of.cluster, name).unwrap(),
            ca_pem: self.of.ca_pem.clone(),
        }
    }
}

#[test]
fn a_node_enters_anew_by_its_certificate_and_a_stranger_does_not() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let b = member(&ids[0], &authority, "b");
    let at = listener("127.0.0.1");
    let addr = at.local_addr().unwrap();
    let desk = Arc::new(Desk { authority, of: ids[0].clone(), good: [0; 32], removed: NodeId(0) });
    let a = field.node_at(&ids[0], at, |config| config.join = Some(desk));
    let nobody = listener("127.0.0.9").local_addr().unwrap();
    let renew = |who: &Identity, peers: &[SocketAddr]| field.io.block_on(host::renew::renew(who, peers, "a byte"));
    let new = renew(&b, &[nobody, addr]).unwrap();
    assert_ne!(new.node, b.node);
    assert_eq!((&new.name, new.cluster), (&b.name, b.cluster));
    assert_eq!(renew(&ids[0], &[addr]), Err(NotRenewed { why: "it is needed".into(), later: false }));
    assert!(renew(&b, &[nobody]).unwrap_err().later, "somebody may be there later");
    assert!(!renew(&b, &[]).unwrap_err().later);
    let (others, _) = cluster(&["other"]);
    let error = renew(&others[0], &[addr]).unwrap_err();
    assert!(error.why.contains("certificate") || error.why.contains("authority"), "{error}");
    let again = field.node(&new, "127.0.0.2");
    again.act(vec![dial(a.addr, Some(a.id))]);
    a.wait_linked(new.node);
}

#[test]
fn a_newcomer_with_a_token_becomes_a_member_and_others_learn_why_not() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let at = listener("127.0.0.1");
    let addr = at.local_addr().unwrap();
    let token = JoinToken::new(vec![addr], &ids[0].ca_pem).unwrap();
    let desk = Arc::new(Desk { authority, of: ids[0].clone(), good: token.secret_hash(), removed: NodeId(0) });
    let a = field.node_at(&ids[0], at, |config| config.join = Some(desk));

    let text = token.to_string();
    let joined = field.io.block_on(host::join::join(&text.parse().unwrap(), "newcomer", 1)).unwrap();
    assert_eq!((joined.cluster, joined.name.as_str()), (ids[0].cluster, "newcomer"));
    let newcomer = field.node(&joined, "127.0.0.2");
    newcomer.act(vec![dial(a.addr, Some(a.id))]);
    a.wait_linked(joined.node);

    let join = |token: &JoinToken| field.io.block_on(host::join::join(token, "x", 1)).unwrap_err();
    let unknown = JoinToken::new(vec![addr], &ids[0].ca_pem).unwrap();
    let error = join(&unknown);
    assert!(matches!(&error, JoinError::Refused(why) if why.contains("expired")), "{error}");
    let (others, _) = cluster(&["other"]);
    let wrong = JoinToken::new(vec![addr], &others[0].ca_pem).unwrap();
    assert!(matches!(join(&wrong), JoinError::WrongCluster(at) if at == addr));
    let nobody = listener("127.0.0.9").local_addr().unwrap();
    let unreachable = JoinToken::new(vec![nobody], &ids[0].ca_pem).unwrap();
    assert!(matches!(join(&unreachable), JoinError::Unreachable(tried) if tried.len() == 1));
}

struct Targets {
    echo: SocketAddr,
    dead: SocketAddr,
    /// Who was removed.
    out: tokio::sync::watch::Sender<Option<NodeId>>,
}

impl Targets {
    fn new(echo: SocketAddr, dead: SocketAddr) -> Arc<Self> {
        Arc::new(Self { echo, dead, out: tokio::sync::watch::Sender::default() })
    }
}

impl TunnelDesk for Targets {
    fn lets_in(&self, node: NodeId) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(*self.out.borrow() != Some(node)))
    }

    fn until_out(&self, node: NodeId) -> BoxFuture<'static, ()> {
        let mut out = self.out.subscribe();
        Box::pin(async move { drop(out.wait_for(|out| *out == Some(node)).await) })
    }

    fn target(&self, name: &str) -> Option<Target> {
        match name {
            "echo/0" => Some(Target::At(self.echo)),
            "dead/0" => Some(Target::At(self.dead)),
            "own" => Some(Target::Own(Box::new(|mut stream| {
                Box::pin(async move {
                    let _ = stream.write_all(b"mine").await;
                    let _ = stream.read_u8().await;
                })
            }))),
            _ => None,
        }
    }
}

#[test]
fn a_node_that_is_removed_loses_its_tunnels_at_once_and_opens_no_more() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let (edge, other) = (member(&ids[0], &authority, "edge"), member(&ids[0], &authority, "other"));
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let targets = Targets::new(echo.local_addr().unwrap(), listener("127.0.0.1").local_addr().unwrap());
    let desk = Arc::new(Desk { authority, of: ids[0].clone(), good: [0; 32], removed: edge.node });
    let (at, kept) = (listener("127.0.0.1"), Arc::clone(&targets));
    let addr = at.local_addr().unwrap();
    let a = field.node_at(&ids[0], at, |config| {
        config.tunnels = Some(kept);
        config.join = Some(desk);
    });
    field.io.block_on(async {
        let (dialer, others) = (Dialer::new(&edge, a.addr).unwrap(), Dialer::new(&other, a.addr).unwrap());
        let mut to_clone = dialer.dial(a.addr, a.id, "echo/0").await.unwrap();
        let (mut own, mut stays) =
            (dialer.dial(a.addr, a.id, "own").await.unwrap(), others.dial(a.addr, a.id, "own").await.unwrap());
        for stream in [&mut own, &mut stays] {
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"mine");
        }
        targets.out.send_replace(Some(edge.node));
        let ends = async |stream: &mut host::TunnelStream| {
            let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
            assert!(ended.expect("it is cut").is_err());
        };
        ends(&mut to_clone).await;
        ends(&mut own).await;
        for target in ["echo/0", "own", "gone/0"] {
            let error = dialer.dial(a.addr, a.id, target).await.unwrap_err();
            assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "it is not even told what there is");
        }
        let more = tokio::time::timeout(Duration::from_millis(200), stays.read_u8()).await;
        assert!(more.is_err(), "another node's tunnel ended with it");
        drop(others.dial(a.addr, a.id, "echo/0").await.unwrap());
    });
    // What it would say is not read: the desk would let it in.
    let refused = field.io.block_on(host::renew::renew(&edge, &[addr], "a byte")).unwrap_err();
    assert!(refused.later && refused.why.contains("no node of the cluster can be asked"), "{refused}");
}

#[test]
fn a_tunnel_reaches_a_clone_and_every_failure_has_its_kind() {
    use std::io::ErrorKind;
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let edge = member(&ids[0], &authority, "edge");
    let (echo, dead) = (TcpListener::bind("127.0.0.1:0").unwrap(), listener("127.0.0.1").local_addr().unwrap());
    let targets = Targets::new(echo.local_addr().unwrap(), dead);
    let a = field.node_at(&ids[0], listener("127.0.0.1"), |config| config.tunnels = Some(targets));
    let echoing = std::thread::spawn(move || {
        let (mut tcp, _) = echo.accept().unwrap();
        let mut all = Vec::new();
        // Answers after the other side has ended its half: both halves are separate.
        tcp.read_to_end(&mut all).unwrap();
        tcp.write_all(&all).unwrap();
    });
    let dialer = Dialer::new(&edge, a.addr).unwrap();
    field.io.block_on(async {
        let mut stream = dialer.dial(a.addr, a.id, "echo/0").await.unwrap();
        let sent: Vec<u8> = (0..500_000u32).map(|i| i as u8).collect();
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == sent, "{} bytes came back of {}", got.len(), sent.len());

        let kind = async |addr, node, target: &str| dialer.dial(addr, node, target).await.unwrap_err().kind();
        assert_eq!(kind(a.addr, a.id, "gone/0").await, ErrorKind::NotFound);
        assert_eq!(kind(a.addr, a.id, "dead/0").await, ErrorKind::ConnectionRefused);
        assert_eq!(kind(dead, a.id, "echo/0").await, ErrorKind::ConnectionRefused);
        assert_eq!(kind(a.addr, NodeId(7), "echo/0").await, ErrorKind::PermissionDenied);
        let (strangers, _) = cluster(&["x"]);
        let stranger = Dialer::new(&strangers[0], a.addr).unwrap();
        assert_eq!(stranger.dial(a.addr, a.id, "echo/0").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    echoing.join().unwrap();
}

/// A tunnel to a clone that does this to its one connection.
fn tunnel_to(act: impl FnOnce(TcpStream) + Send + 'static, ask: impl AsyncFnOnce(TunnelStream)) {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let edge = member(&ids[0], &authority, "edge");
    let clone = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = clone.local_addr().unwrap();
    let a = field.node_at(&ids[0], listener("127.0.0.1"), |config| config.tunnels = Some(Targets::new(at, at)));
    let acts = std::thread::spawn(move || act(clone.accept().unwrap().0));
    let dialer = Dialer::new(&edge, a.addr).unwrap();
    field.io.block_on(async {
        let asked = async { ask(dialer.dial(a.addr, a.id, "echo/0").await.unwrap()).await };
        tokio::time::timeout(PATIENCE, asked).await.unwrap();
    });
    acts.join().unwrap();
}

/// What comes, and how it ends.
async fn heard(stream: &mut (impl AsyncReadExt + Unpin)) -> (usize, std::io::Result<()>) {
    let mut got = Vec::new();
    let end = stream.read_to_end(&mut got).await.map(drop);
    assert!(got.iter().all(|byte| *byte == b'x'));
    (got.len(), end)
}

#[test]
fn what_a_clone_said_comes_through_a_tunnel_whole_and_its_end_as_what_it_was() {
    // More than all buffers on the way hold.
    const SAID: usize = 8 << 20;
    for breaks in [false, true] {
        let act = move |mut clone: TcpStream| {
            clone.read_exact(&mut [0; 3]).unwrap();
            clone.write_all(&vec![b'x'; SAID]).unwrap();
            // With bytes that nobody has read it is a reset.
            if !breaks {
                clone.read_exact(&mut [0; 3]).unwrap();
            }
        };
        tunnel_to(act, async |mut stream| {
            stream.write_all(b"askask").await.unwrap();
            stream.flush().await.unwrap();
            let (count, end) = heard(&mut stream).await;
            assert_eq!(end.is_err(), breaks, "{end:?}");
            assert!(count == SAID || breaks && count > 0, "{count} bytes");
        });
    }
}

#[test]
fn a_clone_that_takes_no_more_is_heard_to_the_end() {
    let act = |mut clone: TcpStream| {
        clone.read_exact(&mut [0; 3]).unwrap();
        clone.write_all(&[b'x'; 1000]).unwrap();
    };
    tunnel_to(act, async |stream| {
        let (mut from, mut to) = tokio::io::split(stream);
        // As much as is taken; a part of it is on its way when the clone has gone.
        let sends = async { while to.write_all(&[b'y'; 10_000]).await.is_ok() && to.flush().await.is_ok() {} };
        let (count, _) = tokio::select! {
            heard = heard(&mut from) => heard,
            () = async { sends.await; std::future::pending().await } => unreachable!(),
        };
        assert_eq!(count, 1000);
    });
}

#[test]
fn a_clone_that_answers_in_two_parts_is_not_kept_waiting_between_them() {
    const ROUNDS: usize = 21;
    let act = |mut clone: TcpStream| {
        for _ in 0..ROUNDS {
            clone.read_exact(&mut [0; 3]).unwrap();
            // Its system holds the second back until the first is acknowledged (Nagle).
            clone.write_all(b"head").unwrap();
            clone.write_all(b"body").unwrap();
        }
    };
    tunnel_to(act, async |mut stream| {
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            stream.write_all(b"ask").await.unwrap();
            stream.flush().await.unwrap();
            stream.read_exact(&mut [0; 8]).await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        assert!(took[ROUNDS / 2] < Duration::from_millis(20), "{took:?}");
    });
}

/// A peer by hand: connects as `identity` would, and says these bytes for a hello. Gives what it is told until the end.
async fn hello_by_hand(identity: &Identity, addr: SocketAddr, hello: &[u8]) -> std::io::Result<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(identity.ca_pem.as_bytes()).unwrap()).unwrap();
    let cert = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![cert], key)
        .unwrap();
    let mut tcp = tokio::net::TcpStream::connect(addr).await?;
    tcp.write_all(b"COP1L").await?;
    let name = ServerName::try_from(format!("c-{:016x}.coppice", identity.cluster.0)).unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
    stream.write_all(hello).await?;
    stream.flush().await?;
    let mut told = vec![0; 64];
    let n = stream.read(&mut told).await?;
    told.truncate(n);
    Ok(told)
}

/// A hello as the wire has it: version, the sender's cluster and boot, a card, and what this version does not know.
fn hello_bytes(of: &Identity, [major, minor]: [u8; 2], news: &[u8]) -> Vec<u8> {
    let mut head = vec![major, minor];
    head.extend(of.cluster.0.to_be_bytes());
    head.extend(1u64.to_be_bytes());
    head.extend(*b"\0\0\0\x04card");
    head.extend(news);
    let mut bytes = bytes::BytesMut::new();
    Frame::new(0, head).encode(&mut bytes);
    bytes.to_vec()
}

#[test]
fn a_newer_minor_version_is_understood_and_another_major_one_is_refused() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let (newer, other) = (member(&ids[0], &authority, "newer"), member(&ids[0], &authority, "other"));
    let a = field.node(&ids[0], "127.0.0.1");
    let said = hello_bytes(&other, [2, 0], b"");
    field.io.block_on(hello_by_hand(&other, a.addr, &said)).unwrap();
    let said = hello_bytes(&newer, [1, 7], b"news that this version does not know");
    let told = field.io.block_on(hello_by_hand(&newer, a.addr, &said)).unwrap();
    assert_eq!(told[18..20], [1, 1], "it says its own version");
    // The refused one came first, so it would be seen first.
    let linked = a.wait("link", |event| match event {
        Event::Linked { peer, card, .. } => Some((peer, card)),
        _ => None,
    });
    assert_eq!(linked, (newer.node, "card".into()));
}

#[test]
fn a_certificate_that_has_expired_or_is_somebody_elses_gets_no_link() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a"]);
    let a = field.node(&ids[0], "127.0.0.1");
    let key = rcgen::KeyPair::from_pem(&authority.key_pem).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&authority.cert_pem, key).unwrap();
    let mut params = rcgen::CertificateParams::new(vec![format!("n-{:016x}.c-{:016x}.coppice", 9, ids[0].cluster.0)]);
    let params = params.as_mut().unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let mut hello = |until: i32, cluster: &Identity| {
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let cert_pem = params.signed_by(&key, &issuer).unwrap().pem();
        let identity = Identity { cert_pem, key_pem: key.serialize_pem(), ..ids[0].clone() };
        field.io.block_on(hello_by_hand(&identity, a.addr, &hello_bytes(cluster, [1, 0], b"")))
    };
    let expired = hello(2020, &ids[0]).unwrap_err().to_string();
    assert!(expired.contains("CertificateExpired"), "{expired}");
    // Ours by its certificate, but it says that it belongs elsewhere.
    let (others, _) = cluster(&["x"]);
    hello(2090, &others[0]).unwrap();
    assert!(a.events().iter().all(|event| !matches!(event, Event::Linked { .. })));
    // The same by hand without a fault, so that it is the faults that were refused.
    hello(2090, &ids[0]).unwrap();
    a.wait_linked(NodeId(9));
}

#[test]
fn a_machine_that_is_due_is_woken_at_the_end_of_the_turn_when_all_was_heard() {
    const ASKS: u64 = 20;
    let field = Field::new();
    let (ids, _) = cluster(&["a"]);
    let dir = temp_dir("turn");
    let (answered, told) = std::sync::mpsc::channel();
    let front = move |port: LocalPort<Toy>| -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for _ in 0..ASKS {
                let (answer, came) = tokio::sync::oneshot::channel();
                let port = port.clone();
                host::spawn(async move { port.ask(Vec::new(), TURN, answer) });
                answers.push(came);
            }
            // Timers are a thousand times slower than this.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let heard = answers.iter_mut().map(tokio::sync::oneshot::Receiver::try_recv).filter(Result::is_ok).count();
            answered.send(heard as u64).unwrap();
        })
    };
    let a = run_with(config(&ids[0], &dir, listener("127.0.0.1"), field.io.handle()), front);
    assert_eq!(told.recv().unwrap(), ASKS);
    let wakes = a.events().iter().filter(|event| matches!(event, Event::Wake)).count();
    assert_eq!(wakes, 1);
}

/// Opens up to 1,000 connections a second, says these words on each and then nothing, and keeps a thousand until told to stop.
fn strangers(at: SocketAddr, from: [u8; 4], words: &'static [u8], stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let io = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        io.block_on(async {
            let (mut open, mut count) = (std::collections::VecDeque::new(), 0);
            let mut every = tokio::time::interval(Duration::from_millis(1));
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !stop.load(Relaxed) {
                every.tick().await;
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                // Its ports are free again at once.
                socket.set_zero_linger().unwrap();
                socket.bind((from, 0).into()).unwrap();
                let Ok(mut tcp) = socket.connect(at).await else { continue };
                if tcp.write_all(words).await.is_ok() {
                    count += 1;
                    open.push_back(tcp);
                }
                if open.len() > 1000 {
                    open.pop_front();
                }
            }
            count
        })
    })
}

#[test]
fn strangers_without_end_keep_no_link_tunnel_or_newcomer_from_a_node() {
    let mut field = Field::new();
    let (ids, authority) = cluster(&["a", "b"]);
    let (a, b) = (&ids[0], &ids[1]);
    let clone = TcpListener::bind("127.0.0.1:0").unwrap();
    let at_clone = clone.local_addr().unwrap();
    let targets = Targets::new(at_clone, at_clone);
    // Takes whoever comes, until the test's process ends.
    std::thread::spawn(move || clone.incoming().for_each(drop));
    let at = listener("127.0.0.1");
    let token = JoinToken::new(vec![at.local_addr().unwrap()], &a.ca_pem).unwrap();
    let desk = Arc::new(Desk { authority, of: a.clone(), good: token.secret_hash(), removed: NodeId(0) });
    let a = field.node_at(a, at, |config| {
        config.tunnels = Some(targets);
        config.join = Some(desk);
    });
    let stop = Arc::new(AtomicBool::new(false));
    // From the address that a member's tunnels come from, and from another one; silent, and after the first words.
    let all =
        [([127, 0, 0, 1], &b""[..]), ([127, 0, 0, 66], b""), ([127, 0, 0, 1], b"COP1T"), ([127, 0, 0, 67], b"COP1J")];
    let all = all.map(|(from, words)| strangers(a.addr, from, words, &stop));
    let dialer = Dialer::new(b, "127.0.0.1:1".parse().unwrap()).unwrap();
    let (begun, mut tunnels) = (Instant::now(), 0);
    field.io.block_on(async {
        while begun.elapsed() < Duration::from_secs(3) {
            dialer.dial(a.addr, a.id, "echo/0").await.unwrap_or_else(|e| panic!("tunnel {tunnels}: {e}"));
            tunnels += 1;
        }
        host::join::join(&token, "c", base::LEVEL).await.unwrap();
    });
    let b = field.node(b, "127.0.0.2");
    b.act(vec![dial(a.addr, Some(a.id))]);
    b.wait_linked(a.id);
    stop.store(true, Relaxed);
    let came: usize = all.map(|one| one.join().unwrap()).into_iter().sum();
    let per_second = came as f64 / begun.elapsed().as_secs_f64();
    println!("{tunnels} tunnels beside {came} strangers, {per_second:.0} a second");
    assert!(came > 2000 && tunnels > 2, "{tunnels} tunnels beside {came} strangers say nothing");
}
