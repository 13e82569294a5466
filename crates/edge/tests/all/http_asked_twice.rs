//! A request that is asked of several clones: who wins, what becomes of the others, and what is never asked twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{Door, Toy, clone, ok, soon};
use clones::spec::{HttpRoute, ServiceSpec};
use clones::{Partition, RouteService, Routes};
use edge::http::Config;
use edge::part::PartFigures;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn door(toys: &[&Toy], say: impl FnOnce(&mut ServiceSpec)) -> Door {
    let mut spec = ServiceSpec::new(["shop"]);
    (spec.http, spec.ask) = (Some(HttpRoute::default()), Some(2));
    say(&mut spec);
    assert_eq!(spec.validate(), Ok(()));
    let clones = toys.iter().enumerate().map(|(number, toy)| clone(number, toy.addr, true)).collect();
    let routes = Routes::new(vec![RouteService { clones, ..RouteService::new("shop", &spec) }]);
    Door::at(Arc::new(routes), Config::default()).await
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Of the service's rest.
fn figures(door: &Door) -> PartFigures {
    door.meter.turnstiles.figures().find(|part| part.partition.is_empty()).unwrap()
}

/// Takes requests and says nothing; counts connections that the other side gave up.
async fn hung(given_up: Arc<AtomicUsize>) -> Toy {
    Toy::start(move |toy, mut stream, _| {
        let given_up = Arc::clone(&given_up);
        async move {
            toy.read_request(&mut stream).await?;
            let _ = stream.read(&mut [0]).await;
            given_up.fetch_add(1, SeqCst);
            Ok(())
        }
    })
    .await
}

/// Answers with this body, every tenth time after so many milliseconds, and while it is told to hang not at all.
async fn timed(body: &'static str, millis: u64, hangs: Arc<AtomicBool>) -> Toy {
    Toy::start(move |toy, mut stream, _| {
        let hangs = Arc::clone(&hangs);
        async move {
            while toy.read_request(&mut stream).await.is_ok() {
                if hangs.load(SeqCst) {
                    return stream.read(&mut [0]).await.map(drop);
                }
                if toy.seen().len().is_multiple_of(10) {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                }
                stream.write_all(ok(body).as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn the_first_answer_wins_and_the_other_clone_is_broken_off() {
    let given_up = Arc::new(AtomicUsize::new(0));
    let (hung, quick) = (hung(Arc::clone(&given_up)).await, Toy::steady("quick").await);
    let door = door(&[&hung, &quick], |_| ()).await;
    let mut client = door.client().await;
    for _ in 0..3 {
        client.send(get("/")).await;
        assert_eq!(client.answer().await.body, "quick");
    }
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    soon(async {
        while given_up.load(SeqCst) < hung.connections() || figures(&door).cancelled < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let PartFigures { asked_more, cancelled, won_by_other, withheld, .. } = figures(&door);
    assert_eq!((asked_more, cancelled, withheld), (4, 4, 0));
    assert!(won_by_other <= asked_more);
}

#[tokio::test]
async fn what_changes_something_or_brings_something_is_asked_of_one() {
    let (one, two) = (Toy::steady("hi").await, Toy::steady("hi").await);
    let pinned = Partition {
        path: Some("/pinned".into()),
        affinity: "hash:client".parse().unwrap(),
        ..Partition::new("pinned")
    };
    let single = Partition { path: Some("/single".into()), ask: Some(1), ..Partition::new("single") };
    let door = door(&[&one, &two], |spec| spec.partitions = vec![pinned, single]).await;
    let requests = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: 1\r\nContent-Length: 0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: thing\r\n\r\n",
        "GET /pinned HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /single HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for request in requests {
        let before = one.seen().len() + two.seen().len();
        let answer = door.ask(request).await;
        assert_eq!(answer.status, 200, "{request}");
        assert_eq!(one.seen().len() + two.seen().len(), before + 1, "{request}");
    }
    assert_eq!(figures(&door).asked_more, 0);
    door.ask(&get("/")).await;
    assert_eq!(figures(&door).asked_more, 1);
}

#[tokio::test]
async fn a_bad_answer_waits_for_a_good_one_and_the_dead_lose() {
    let bad = || {
        Toy::start(|toy, mut stream, _| async move {
            toy.read_request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad").await
        })
    };
    let late = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(ok("good").as_bytes()).await
    })
    .await;
    let (one, two) = (bad().await, bad().await);
    let first = door(&[&one, &late], |_| ()).await;
    for _ in 0..3 {
        assert_eq!(first.ask(&get("/")).await.body, "good");
    }
    let answer = door(&[&one, &two], |_| ()).await.ask(&get("/")).await;
    assert_eq!((answer.status, &*answer.body), (500, "bad"), "there is no better one");

    let (dead, other) = (Toy::deadly().await, Toy::deadly().await);
    let second = door(&[&dead, &late], |_| ()).await;
    for _ in 0..3 {
        assert_eq!(second.ask(&get("/")).await.body, "good");
    }
    assert_eq!(door(&[&dead, &other], |_| ()).await.ask(&get("/")).await.status, 502);
}

#[tokio::test]
async fn the_second_is_asked_when_the_first_is_late_and_seldom() {
    let hangs = Arc::new(AtomicBool::new(false));
    let one = timed("one", 60, Arc::clone(&hangs)).await;
    let two = timed("two", 60, Arc::default()).await;
    let door = door(&[&one, &two], |spec| spec.ask_late = Some(true)).await;
    // One in ten takes 60 ms, so that is not late; what is by chance, on a machine with much to do, has used up what may be asked.
    let may_be_asked = |door: &Door| {
        let PartFigures { requests, asked_more, .. } = figures(door);
        assert!(asked_more * 20 <= requests, "{asked_more} of {requests}");
        requests as i64 - asked_more as i64 * 20
    };
    for nth in 0.. {
        door.ask(&get("/")).await;
        if nth >= 40 && may_be_asked(&door) >= 40 {
            break;
        }
        assert!(nth < 2000, "nearly all are late");
    }
    let before = figures(&door);
    hangs.store(true, SeqCst);
    let mut asked = 0;
    while figures(&door).won_by_other == before.won_by_other {
        assert_eq!(door.ask(&get("/")).await.body, "two");
        asked += 1;
        assert!(asked < 50, "no request came to the clone that hangs");
    }
    assert!(figures(&door).cancelled > before.cancelled);
    may_be_asked(&door);
}
