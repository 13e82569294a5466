//! A service whose requests pass a stage: it does so much at a time as it can, and says the rest no.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sdk::axum::{Router, routing::get};
use sdk::{Given, Service, Stage};

/// Each request has the one worker for so long.
const TAKES: Duration = Duration::from_millis(10);

async fn ask(at: SocketAddr, path: &'static str) -> String {
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.to_lowercase()
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_program_can_do_is_refused_and_program_and_edge_are_told() {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let vars = [("PORT", at.port().to_string()), ("COPPICE_NODE_API", "http://127.0.0.1:1".into())];
    let given = Given::from_vars(vars.map(|(name, value)| (name.to_owned(), value))).unwrap();
    let (stage, told) = (Stage::new(), Arc::new(Mutex::new(Vec::new())));
    let hears = Arc::clone(&told);
    let service = Service::of(given).unwrap().staged(stage.clone());
    let service = service.on_overload(move |is_high| hears.lock().unwrap().push(is_high));
    let worker = Arc::new(tokio::sync::Mutex::new(()));
    let work = move || {
        let worker = Arc::clone(&worker);
        async move {
            let _one = worker.lock().await;
            tokio::time::sleep(TAKES).await;
            "done"
        }
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let app = Router::new().route("/work", get(work));
    let serving = tokio::spawn(service.serve_until(app, async { drop(stopped.await) }));
    while TcpStream::connect(at).is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(ask(at, "/work").await.ends_with("done"));
    assert_eq!(stage.show().started, 1);

    // Three seconds' work, all at once.
    let all: Vec<_> = (0..300).map(|_| tokio::spawn(ask(at, "/work"))).collect();
    let began = Instant::now();
    while !stage.is_overloaded() {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", stage.show());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Probes pass by.
    assert!(ask(at, "/health").await.starts_with("http/1.1 200"));
    let mut answers = Vec::new();
    for one in all {
        answers.push(one.await.unwrap());
    }
    let (served, refused): (Vec<String>, Vec<String>) =
        answers.into_iter().partition(|answer| answer.starts_with("http/1.1 200"));
    assert!(served.len() >= 64 && refused.len() >= 50, "{} served, {} refused", served.len(), refused.len());
    for answer in &refused {
        assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    }
    let tells = |answers: &[String]| answers.iter().filter(|answer| answer.contains("coppice-pressure: 1.0")).count();
    assert!(tells(&refused) > 0 && tells(&served) > 0, "the edge is told, also by those who are served");
    assert_eq!(told.lock().unwrap().first(), Some(&true));
    assert_eq!(stage.show().refused as usize, refused.len());

    // Then it is over.
    while told.lock().unwrap().last() == Some(&true) {
        assert!(began.elapsed() < Duration::from_secs(20));
        ask(at, "/work").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = ask(at, "/work").await;
    assert!(last.ends_with("done") && !last.contains("coppice-pressure"), "{last}");
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}

async fn waits(future: &mut (impl Future + Unpin)) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

#[tokio::test]
async fn who_leaves_the_queue_or_the_stage_leaves_a_place() {
    let mut shape = sdk::Shape { queue_max: 2, ..sdk::limits::STAGE };
    (shape.limit.first, shape.limit.max) = (1, 1);
    let stage = Stage::of(shape);
    let turn = stage.enter().await.unwrap();
    let (mut first, mut second) = (Box::pin(stage.enter()), Box::pin(stage.enter()));
    assert!(waits(&mut first).await && waits(&mut second).await);
    assert!(stage.enter().await.is_err(), "the queue is full");
    drop(first);
    drop(turn);
    let turn = second.await.unwrap();
    // Who got a turn and left before it took it.
    let mut third = Box::pin(stage.enter());
    assert!(waits(&mut third).await);
    drop(turn);
    drop(third);
    assert_eq!(stage.run(async { 7 }).await, Ok(7));
    assert_eq!((stage.show().under_way, stage.show().waiting), (0, 0));
}
