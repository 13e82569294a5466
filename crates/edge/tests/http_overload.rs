//! Admission at the HTTP door: who is refused when clones have no room, and with what; what programs are told.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use clones::Partition;
use clones::partition::{DropHandler, Priority};
use clones::route::{RouteService, Routes};
use clones::spec::{HttpRoute, ServiceSpec};
use common::{Client, Door, Toy, clone, field, ok, parted, soon};
use edge::http::{Config, limits};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

/// So many may be under way before the door has learned anything.
const ROOM: usize = limits::ADMISSION.first as usize;

/// A clone that answers when it is told to, and a stranger's request at once.
async fn holding() -> (Toy, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let toy = Toy::start(move |toy, mut stream, _| {
        let told = Arc::clone(&told);
        async move {
            while let Ok(head) = toy.read_request(&mut stream).await {
                if !head.starts_with("GET /quick") {
                    told.notified().await;
                }
                stream.write_all(ok("served").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    (toy, go)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Sends so many requests that the clone keeps.
async fn fill(door: &Door, toy: &Toy, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = door.client().await;
        client.send(get("/held")).await;
        clients.push(client);
    }
    soon(async {
        while toy.seen().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    clients
}

fn with_drop(drop: DropHandler) -> Partition {
    Partition { drop: Some(drop), ..Partition::new("all") }
}

#[tokio::test]
async fn more_than_there_is_room_for_waits_a_little_and_is_then_refused_with_a_time_to_come_back() {
    let (toy, go) = holding().await;
    let door = Door::to(&[toy.addr]).await;
    let mut held = fill(&door, &toy, ROOM).await;
    let answer = door.ask(&get("/more")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("was not carried out"), "{answer:?}");
    let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((limits::RETRY_AFTER_SECONDS.0..=limits::RETRY_AFTER_SECONDS.1).contains(&after));
    assert!(!toy.seen().iter().any(|seen| seen.contains("/more")));
    // Somebody else waits just when one is answered: he gets the room.
    let mut late = door.client().await;
    late.send(get("/quick/late")).await;
    go.notify_one();
    let served = late.answer().await;
    assert_eq!((served.status, served.body.as_str()), (200, "served"));
    go.notify_waiters();
    assert_eq!(held.pop().unwrap().answer().await.status, 200);
    assert_eq!(door.meter.gauges()["stage.http-shop.refused_total"], 1);
}

#[tokio::test]
async fn a_drop_handler_answers_with_its_status_and_its_file() {
    let dir = std::env::temp_dir().join(format!("coppice-drop-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("busy.html"), "<h1>busy</h1>").unwrap();
    for (file, body, kind) in
        [("busy.html", "<h1>busy</h1>", "text/html; charset=utf-8"), ("gone.html", "", "text/plain; charset=utf-8")]
    {
        let (toy, _go) = holding().await;
        let drop = DropHandler { status: Some(429), file: Some(file.into()), service: None };
        let config = Config { files_dir: dir.clone(), ..Config::default() };
        let door = Door::at(parted(vec![clone(0, toy.addr, true)], None, vec![with_drop(drop)]), config).await;
        let _held = fill(&door, &toy, ROOM).await;
        let answer = door.ask(&get("/more")).await;
        assert_eq!((answer.status, answer.field("content-type").as_deref()), (429, Some(kind)));
        assert!(answer.field("retry-after").is_some());
        // A file that is not there is no reason to say nothing.
        assert!(if body.is_empty() { answer.body.contains("try again") } else { answer.body == body }, "{answer:?}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn another_service_answers_for_one_that_has_no_room() {
    let (toy, _go) = holding().await;
    let other = Toy::steady("please wait").await;
    let drop = DropHandler { service: Some("waiting".into()), ..DropHandler::default() };
    let service = |name: &str, host: &str, clones, partitions| {
        let mut spec = ServiceSpec::new([name]);
        spec.http = Some(HttpRoute { host: host.into(), path: "/".into() });
        (spec.partitions, spec.clones) = (partitions, 1.into());
        RouteService { clones, ..RouteService::new(name, &spec) }
    };
    let shop = service("shop", "*", vec![clone(0, toy.addr, true)], vec![with_drop(drop)]);
    let mut room = clone(0, other.addr, true);
    room.name = "waiting/0".into();
    let waiting = service("waiting", "waiting.example", vec![room], Vec::new());
    let door = Door::at(Arc::new(Routes::new(vec![shop, waiting])), Config::default()).await;
    let _held = fill(&door, &toy, ROOM).await;
    let answer = door.ask(&get("/more")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "please wait"));
    assert!(other.seen()[0].starts_with("GET /more "), "{:?}", other.seen());
}

#[tokio::test]
async fn programs_hear_priority_pressure_and_deadline() {
    let (toy, _go) = holding().await;
    let pay = Partition { path: Some("/quick/pay".into()), priority: Priority(8), ..Partition::new("pay") };
    let door = Door::at(parted(vec![clone(0, toy.addr, true)], None, vec![pay]), Config::default()).await;
    door.ask(&get("/quick/pay")).await;
    let _held = fill(&door, &toy, ROOM / 2 + 1).await;
    door.ask(&get("/quick")).await;
    let told = |of: &str, name: &str| field(toy.seen().iter().find(|seen| seen.contains(of)).unwrap(), name).unwrap();
    assert_eq!((told("/quick/pay", "coppice-priority"), told("/quick ", "coppice-priority")), ("8".into(), "5".into()));
    assert_eq!(
        (told("/quick/pay", "coppice-pressure"), told("/quick ", "coppice-pressure")),
        ("0.0".into(), "0.5".into())
    );
    assert_eq!(told("/quick ", "coppice-deadline-ms"), "60000");
}

#[tokio::test]
async fn a_clone_is_free_for_others_once_a_connection_was_upgraded() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let head = toy.read_request(&mut stream).await?;
        if head.contains("/socket") {
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
                .await?;
            std::future::pending::<()>().await;
        }
        stream.write_all(ok("served").as_bytes()).await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let upgrade = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut sockets = Vec::new();
    for _ in 0..ROOM + 5 {
        let mut client = door.client().await;
        client.send(upgrade).await;
        assert!(client.head().await.starts_with("HTTP/1.1 101"));
        sockets.push(client);
    }
    assert_eq!(door.ask(&get("/")).await.status, 200);
}
