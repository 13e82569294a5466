//! Admission at the HTTP door: who is refused when clones have no room, and with what; what programs are told.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, Door, Toy, clone, field, ok, parted, soon};
use clones::Partition;
use clones::partition::{DropHandler, Priority};
use clones::route::{RouteService, Routes};
use clones::spec::{HttpRoute, ServiceSpec};
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
    let left: u64 = told("/quick ", "coppice-deadline-ms").parse().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
}

fn told(seen: &str, name: &str) -> String {
    field(seen, name).unwrap_or_else(|| panic!("{name} in {seen}"))
}

#[tokio::test]
async fn a_program_is_told_what_is_left_of_the_time_after_waits_and_tries() {
    const WAIT: u64 = 200;
    let dying = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        tokio::time::sleep(Duration::from_millis(WAIT)).await;
        Ok(())
    })
    .await;
    let well = Toy::steady("served").await;
    let clones = vec![clone(1, dying.addr, true), clone(2, well.addr, false)];
    let door = Door::with(clones, Config::default()).await;
    assert_eq!(door.ask(&get("/")).await.status, 200);
    let left = |toy: &Toy| told(&toy.seen()[0], "coppice-deadline-ms").parse::<u64>().unwrap();
    assert!(left(&dying) > 60_000 - WAIT, "{}", left(&dying));
    assert!((40_000..=60_000 - WAIT).contains(&left(&well)), "{}", left(&well));
    assert_eq!(told(&well.seen()[0], "coppice-deadline-ms").len(), 5, "once");

    // In the queue it is the same. What a client says can only shorten.
    let (toy, go) = holding().await;
    let door = Door::to(&[toy.addr]).await;
    let _held = fill(&door, &toy, ROOM).await;
    let mut late = door.client().await;
    late.send("GET /quick/late HTTP/1.1\r\nHost: a\r\nCoppice-Deadline-Ms: 90000\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(WAIT)).await;
    go.notify_one();
    assert_eq!(late.answer().await.status, 200);
    let seen = toy.seen().into_iter().find(|seen| seen.contains("/quick/late")).unwrap();
    let left: u64 = told(&seen, "coppice-deadline-ms").parse().unwrap();
    assert!((40_000..=60_000 - WAIT).contains(&left), "{left}");
}

#[tokio::test]
async fn a_request_whose_deadline_passes_in_the_queue_is_not_sent_on() {
    let (toy, go) = holding().await;
    let door = Door::to(&[toy.addr]).await;
    let _held = fill(&door, &toy, ROOM).await;
    let began = std::time::Instant::now();
    let answer = door.ask("GET /quick/late HTTP/1.1\r\nHost: a\r\nCoppice-Deadline-Ms: 100\r\n\r\n").await;
    assert!(began.elapsed() < limits::CLONE_WAIT, "{:?}", began.elapsed());
    assert_eq!((answer.status, answer.body.contains("was not carried out")), (504, true), "{answer:?}");
    go.notify_waiters();
    let answer = door.ask("GET /quick/late HTTP/1.1\r\nHost: a\r\nCoppice-Deadline-Ms: 0\r\n\r\n").await;
    assert_eq!(answer.status, 504, "{answer:?}");
    assert_eq!(door.ask(&get("/quick/more")).await.status, 200);
    assert!(!toy.seen().iter().any(|seen| seen.contains("/late")), "{:?}", toy.seen());
    // The same while it waits for a clone.
    let door = Door::to(&[]).await;
    let answer = door.ask("GET / HTTP/1.1\r\nHost: a\r\nCoppice-Deadline-Ms: 100\r\n\r\n").await;
    assert_eq!((answer.status, answer.body.contains("was not carried out")), (504, true), "{answer:?}");
}

#[tokio::test]
async fn who_gives_a_clone_too_little_time_does_not_make_it_sick() {
    let (toy, _go) = holding().await;
    let well = Toy::steady("served").await;
    let other = Toy::steady("served").await;
    let clones = vec![clone(1, toy.addr, true), clone(2, well.addr, false), clone(3, other.addr, false)];
    let door = Door::with(clones, Config::default()).await;
    for _ in 0..2 * limits::OUTLIER_AFTER {
        let answer = door.ask("GET /held HTTP/1.1\r\nHost: a\r\nCoppice-Deadline-Ms: 150\r\n\r\n").await;
        assert_eq!((answer.status, answer.body.contains("unknown")), (504, true), "{answer:?}");
    }
    assert_eq!(door.meter.totals()["http.clones_left_alone_total"], 0);
    assert_eq!(toy.seen().len() as u32, 2 * limits::OUTLIER_AFTER);
}

#[tokio::test]
async fn the_manager_is_told_how_often_a_clone_says_that_it_has_too_much_to_do() {
    let full = "HTTP/1.1 200 OK\r\nCoppice-Pressure: 1.0\r\nContent-Length: 0\r\n\r\n";
    let toy = Toy::start(move |toy, mut stream, _| async move {
        while let Ok(head) = toy.read_request(&mut stream).await {
            let answer = if head.starts_with("GET /full") { full.to_owned() } else { ok("served") };
            stream.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    for path in ["/full", "/", "/full", "/"] {
        assert_eq!(door.ask(&get(path)).await.status, 200);
    }
    let seen = door.meter.demands.take().groups["shop"].clones[0];
    assert_eq!((seen.done, seen.failed, seen.overloads), (4, 0, 2));
    let next = door.meter.demands.take().groups["shop"].clone();
    assert!(next.clones.is_empty(), "each is told once: {next:?}");
}

#[tokio::test]
async fn what_is_done_for_a_request_matters_as_much_as_that_one_and_nobody_else_can_say_so() {
    let toy = Toy::steady("served").await;
    let part = |name: &str, priority| Partition {
        path: Some(format!("/{name}")),
        priority: Priority(priority),
        ..Partition::new(name)
    };
    let parts = vec![part("pay", 8), part("search", 2)];
    let door = Door::at(parted(vec![clone(0, toy.addr, true)], None, parts), Config::default()).await;
    let class = async |path: &str, fields: &str| {
        door.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await;
        let seen = toy.seen().pop().unwrap();
        (told(&seen, "coppice-priority"), told(&seen, "coppice-ticket"))
    };
    let (is, pay) = class("/pay", "").await;
    assert_eq!(is, "8");
    let (_, search) = class("/search", "").await;
    let with = |ticket: &str| format!("Coppice-Ticket: {ticket}\r\n");
    assert_eq!(class("/", &with(&pay)).await, ("8".into(), pay.clone()), "and so on from there");
    assert_eq!(class("/search", &with(&pay)).await.0, "8");
    assert_eq!(class("/pay", &with(&search)).await.0, "2");
    let rest = pay.split_once('.').unwrap().1;
    for forged in ["9".into(), format!("9.{rest}"), "9.99999999999.AAAAAAAAAAAAAAAAAAAAAA".into(), String::new()] {
        let (is, given) = class("/", &with(&forged)).await;
        assert_eq!(is, "5", "{forged}");
        assert_ne!(given, forged);
    }
    assert_eq!(class("/", "Coppice-Priority: 9\r\n").await.0, "5");
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
