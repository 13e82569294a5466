//! Long connections to a clone that leaves, or through a node that does: each gets a goodbye of its own, one after the other,
//! while it still can.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use base::Span;
use clones::limits::LEAVE_ROUTES;
use clones::route::{RouteService, Routes};
use clones::spec::{HttpRoute, ServiceSpec, TcpRoute};
use edge::closing::{LAST_TIME, QUIET_TIME};
use edge::http::Config;
use edge::http::limits::EVENTS_LAST;
use node::{Leaving, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const DRAIN: Span = Span::millis(1800);
/// Masked, 1001, with a mask of zeros.
const CLIENT_CLOSES: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];
const MANY: u64 = 24;

/// The service with these clones: the first is number 0.
fn shop(clones: &[SocketAddr], tcp: Option<u16>) -> Arc<View> {
    let mut spec = ServiceSpec::new(["shop"]);
    (spec.http, spec.tcp, spec.stop.drain) =
        (Some(HttpRoute::default()), tcp.map(TcpRoute::on).into_iter().collect(), DRAIN);
    let clones = clones.iter().enumerate().map(|(i, addr)| clone(i, *addr, true)).collect();
    view(Arc::new(Routes::new(vec![RouteService { clones, ..RouteService::new("shop", &spec) }])))
}

/// Until the clone would be killed.
fn time() -> Duration {
    Duration::from(LEAVE_ROUTES) + Duration::from(DRAIN)
}

/// They went one after the other: none in the last moment, and no third of the time took most of them.
fn assert_spread(mut at: Vec<Duration>, time: Duration) {
    at.sort();
    assert_eq!(at.len(), MANY as usize);
    // A busy machine is late by a little.
    assert!(*at.last().unwrap() < time * 11 / 10, "{at:?}");
    for third in 0..3 {
        let end = if third == 2 { time * 2 } else { time * (third + 1) / 3 };
        let within = time * third / 3..end;
        let count = at.iter().filter(|at| within.contains(*at)).count();
        assert!((MANY as usize / 8..=MANY as usize / 2).contains(&count), "{count} in part {third} of {at:?}");
    }
}

/// Sends text frames of odd lengths in odd pieces until it is told to close; then it says so, and ends.
async fn chatter(toy: Toy, mut stream: TcpStream, number: usize) -> io::Result<()> {
    toy.read_request(&mut stream).await?;
    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n").await?;
    let mut frame = vec![0x81, 126, 3, 232];
    frame.extend([0x88; 1000]);
    let (mut from, mut to) = stream.into_split();
    let talks = async {
        loop {
            for piece in frame.chunks(100 + number) {
                to.write_all(piece).await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let mut heard = [0; 8];
    let ended: io::Result<()> = tokio::select! {
        read = from.read_exact(&mut heard) => read.map(drop),
        failed = talks => failed,
    };
    ended?;
    assert_eq!(heard, CLIENT_CLOSES, "the client's own words");
    to.write_all(&[0x88, 2, 0x03, 0xe9]).await
}

/// Reads whole frames until one closes: after how long. Then it answers, and sees the end.
async fn listens(door: SocketAddr) -> impl Future<Output = Instant> {
    let mut client = Client(connect(door).await);
    client
        .send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    async move {
        loop {
            let [opcode, length] = client.bytes::<2>().await;
            if opcode == 0x88 {
                assert_eq!((length, client.bytes::<2>().await), (2, [0x03, 0xe9]));
                break;
            }
            assert_eq!((opcode, length, client.bytes::<2>().await), (0x81, 126, [3, 232]), "it is a whole frame");
            assert_eq!(client.bytes::<1000>().await, [0x88; 1000]);
        }
        let at = Instant::now();
        client.send(CLIENT_CLOSES).await;
        assert_eq!(client.until_end().await.unwrap(), "", "nothing follows");
        at
    }
}

#[tokio::test]
async fn web_sockets_to_a_clone_that_leaves_get_a_close_frame_between_two_others_one_after_the_other() {
    let (old, new) = (Toy::start(chatter).await, Toy::steady("new").await);
    let door = Door::with(vec![clone(0, old.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[old.addr], None));
    let mut clients = JoinSet::new();
    for _ in 0..MANY {
        clients.spawn(listens(door.addr).await);
    }
    let began = Instant::now();
    door.view.send_replace(shop(&[new.addr], None));
    let at = soon(clients.join_all()).await;
    assert_spread(at.into_iter().map(|at| at - began).collect(), time());
}

#[tokio::test]
async fn connections_of_a_tcp_service_end_one_after_the_other_and_what_the_clone_still_says_arrives() {
    let toy = Toy::start(|_, mut stream, _| async move {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await?;
        stream.write_all(b"bye").await
    })
    .await;
    let (addr, sender, _) = tcp_door(vec![clone(0, toy.addr, true)]).await;
    sender.send_replace(shop(&[toy.addr], Some(addr.port())));
    let mut clients = JoinSet::new();
    let mut open = Vec::new();
    for _ in 0..MANY {
        open.push(connect(addr).await);
    }
    while toy.connections() < MANY as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Whoever has just connected is taken for busy.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let began = Instant::now();
    for mut client in open {
        clients.spawn(async move {
            let mut heard = String::new();
            soon(client.read_to_string(&mut heard)).await.unwrap();
            assert_eq!(heard, "bye");
            began.elapsed()
        });
    }
    sender.send_replace(shop(&[], Some(addr.port())));
    assert_spread(soon(clients.join_all()).await, time());
}

#[tokio::test]
async fn a_request_under_way_is_left_its_time() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl").await?;
        tokio::time::sleep(time() * 4 / 3).await;
        stream.write_all(b"ow").await
    })
    .await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let mut client = door.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    let head = client.head().await;
    door.view.send_replace(shop(&[], None));
    assert_eq!(client.rest(head).await.body, "slow");
}

/// An answer without a length: an event now and then, in pieces, until nobody takes them.
async fn events(toy: Toy, mut stream: TcpStream, kind: &'static str, pause: Duration) -> io::Result<()> {
    toy.read_request(&mut stream).await?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    loop {
        for piece in ["data: some", "thing\n", "\n"] {
            stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Opens streams, lets them last, and has their clone leave: after how long each ended, cleanly and behind a whole event.
async fn ends_of_events(door: &Door) -> Vec<Duration> {
    let mut clients = JoinSet::new();
    for _ in 0..MANY {
        let mut client = door.client().await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        clients.spawn(async move {
            let mut all = String::new();
            loop {
                let chunk = client.chunk().await;
                if chunk.is_empty() {
                    break;
                }
                all += &chunk;
            }
            assert!(all.replace("data: something\n\n", "").is_empty(), "whole events: {all:?}");
            Instant::now()
        });
    }
    tokio::time::sleep(EVENTS_LAST + Duration::from_millis(300)).await;
    let began = Instant::now();
    door.view.send_replace(shop(&[], None));
    soon(clients.join_all()).await.into_iter().map(|at| at - began).collect()
}

#[tokio::test]
async fn event_streams_of_a_clone_that_leaves_end_one_after_the_other_each_behind_a_whole_event() {
    let quiet = PATIENCE;
    let toy = Toy::start(move |toy, stream, _| events(toy, stream, "text/event-stream", quiet)).await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let at = ends_of_events(&door).await;
    assert_spread(at, time());
}

#[tokio::test]
async fn event_streams_that_are_busy_are_spared_and_then_end_one_after_the_other() {
    let busy = Duration::from_millis(20);
    let toy = Toy::start(move |toy, stream, _| events(toy, stream, "text/event-stream", busy)).await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let mut at = ends_of_events(&door).await;
    at.sort();
    assert!(at[0] > time() / 2 && *at.last().unwrap() < time() * 11 / 10, "{at:?}");
    assert!(at[MANY as usize - 3] - at[2] > time() / 16, "{at:?}");
}

/// Of these nobody knows where they may end, and a half must not pass for a whole.
#[tokio::test]
async fn another_answer_without_a_length_is_left_its_time() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n\r\nsl").await?;
        tokio::time::sleep(EVENTS_LAST + time() * 4 / 3).await;
        stream.write_all(b"ow").await
    })
    .await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let mut client = door.client().await;
    client.send(GET).await;
    let head = client.head().await;
    tokio::time::sleep(EVENTS_LAST).await;
    door.view.send_replace(shop(&[], None));
    assert_eq!(client.rest(head).await.body, "slow");
}

/// The same, and its node is to end.
fn closing(view: Arc<View>) -> Arc<View> {
    Arc::new(View { closing: Some(Leaving::Restart), ..View::clone(&view) })
}

#[tokio::test]
async fn web_sockets_through_a_node_that_ends_go_one_after_the_other_while_its_door_is_open() {
    let toy = Toy::start(chatter).await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let mut clients = JoinSet::new();
    for _ in 0..MANY {
        clients.spawn(listens(door.addr).await);
    }
    let began = Instant::now();
    door.view.send_replace(closing(shop(&[toy.addr], None)));
    tokio::time::sleep(Duration::from(DRAIN) / 2).await;
    // It is let in, and goes when the others have.
    let came_back = tokio::spawn(listens(door.addr).await);
    let at = soon(clients.join_all()).await;
    let last = *at.iter().max().unwrap();
    assert_spread(at.into_iter().map(|at| at - began).collect(), DRAIN.into());
    let gone = soon(came_back).await.unwrap();
    assert!(gone > last && gone < last + LAST_TIME * 2, "{:?} after the last one", gone - last);
    closed(&door).await;
}

/// Nobody more is let in, and all have gone.
async fn closed(door: &Door) {
    soon(async {
        while !door.meter.http.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_door_without_long_connections_closes_at_once() {
    let toy = Toy::start(chatter).await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    drop(listens(door.addr).await);
    let began = Instant::now();
    door.view.send_replace(closing(shop(&[toy.addr], None)));
    assert!(!door.meter.http.is_empty());
    closed(&door).await;
    assert!(began.elapsed() < Duration::from(DRAIN) / 3, "{:?}", began.elapsed());
}

fn close(door: &Door) {
    let view = Arc::clone(&door.view.borrow());
    door.view.send_replace(closing(view));
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn kept_connections_are_told_with_their_next_answer_and_none_ends_while_its_client_sends() {
    let toy = Toy::steady("here").await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    let (mut clients, mut silent) = (JoinSet::new(), door.client().await);
    for nth in 1..=20 {
        let mut client = door.client().await;
        client.send(GET).await;
        assert_eq!(client.answer().await.field("connection"), None);
        clients.spawn(async move {
            // Pools give connections out again after seconds.
            let pause = QUIET_TIME * nth / 25;
            loop {
                tokio::time::sleep(pause).await;
                client.send(GET).await;
                let answer = client.answer().await;
                assert_eq!((answer.status, answer.body.as_str()), (200, "here"));
                if let Some(said) = answer.field("connection") {
                    assert_eq!((said.as_str(), client.until_end().await.unwrap().as_str()), ("close", ""));
                    return;
                }
            }
        });
    }
    silent.send(GET).await;
    silent.answer().await;
    let began = Instant::now();
    close(&door);
    // Who has to come again is let in, and has one request.
    tokio::time::sleep(QUIET_TIME / 3).await;
    let anew = door.ask(GET).await;
    assert_eq!((anew.status, anew.field("connection").as_deref()), (200, Some("close")));
    soon(clients.join_all()).await;
    assert_eq!(silent.until_end().await.unwrap(), "");
    let waited = began.elapsed();
    assert!(waited >= QUIET_TIME && waited < QUIET_TIME * 2, "who sends nothing is closed after {waited:?}");
    closed(&door).await;
}

#[tokio::test]
async fn a_door_whose_kept_connections_are_used_closes_as_soon_as_they_were() {
    let toy = Toy::steady("here").await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    let mut client = door.client().await;
    client.send(GET).await;
    client.answer().await;
    let began = Instant::now();
    close(&door);
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.send(GET).await;
    assert_eq!(client.answer().await.field("connection").as_deref(), Some("close"));
    drop(client);
    closed(&door).await;
    assert!(began.elapsed() < QUIET_TIME / 2, "{:?}", began.elapsed());
}

/// Who connects to a closed door waits for the next program, and that for all answers.
#[tokio::test]
async fn a_door_does_not_close_in_the_middle_of_a_long_answer_to_who_came_since() {
    let toy = Toy::start(|toy, mut stream, number| async move {
        toy.read_request(&mut stream).await?;
        tokio::time::sleep(if number == 1 { QUIET_TIME / 2 } else { Duration::ZERO }).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhere").await
    })
    .await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    let mut kept = door.client().await;
    kept.send(GET).await;
    assert_eq!(kept.answer().await.status, 200);
    close(&door);
    // It is told to go with its next answer, and keeps the door open until then.
    let mut long = door.client().await;
    long.send(GET).await;
    let long = tokio::spawn(async move { long.answer().await.status });
    tokio::time::sleep(QUIET_TIME / 6).await;
    drop(kept);
    tokio::time::sleep(QUIET_TIME / 6).await;
    assert!(!long.is_finished() && door.ask(GET).await.status == 200, "others are let in beside it");
    assert_eq!(soon(long).await.unwrap(), 200);
    closed(&door).await;
}

/// Its head could not say that it is the last.
#[tokio::test]
async fn after_an_answer_that_began_before_the_client_may_send_once_more() {
    let toy = Toy::start(|toy, mut stream, number| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl").await?;
        tokio::time::sleep(if number == 0 { QUIET_TIME * 5 / 4 } else { Duration::ZERO }).await;
        stream.write_all(b"ow").await
    })
    .await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config::default()).await;
    let mut client = door.client().await;
    client.send(GET).await;
    let head = client.head().await;
    close(&door);
    assert_eq!(client.rest(head).await.body, "slow");
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.send(GET).await;
    let answer = client.answer().await;
    assert_eq!((answer.body.as_str(), answer.field("connection").as_deref()), ("slow", Some("close")));
    closed(&door).await;
}

#[tokio::test]
async fn a_web_socket_counts_as_a_connection_until_it_ends() {
    let toy = Toy::start(chatter).await;
    let door = Door::with(vec![clone(0, toy.addr, true)], Config { connections_max: 3, ..Config::default() }).await;
    door.view.send_replace(shop(&[toy.addr], None));
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(listens(door.addr).await);
    }
    // Also when who spoke HTTP on them has long let go of them.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(door.meter.http.connections(), 3);
    let full = door.client().await.answer().await;
    assert!(full.status == 503 && full.body.contains("too many connections"), "{full:?}");
    door.view.send_replace(shop(&[], None));
    soon(clients.join_all()).await;
    soon(async {
        while door.meter.http.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
