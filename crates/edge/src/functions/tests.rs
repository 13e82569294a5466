//! Calls against a toy node that keeps values in a map, and toy clones on real sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use base::{NodeId, Priority};
use clones::route::{RouteClone, RouteService, Routes};
use clones::spec::{HttpRoute, ServiceSpec};
use futures_util::future::{BoxFuture, join_all};
use node::{Answer, Ask, View};
use serde_json::json;
use state::linear::{self, Op, Reply, Wrong};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use super::*;
use crate::api::{Gone, Minted};
use crate::pool::Duplex;

/// A node with values in a map, which does to writes what the test says.
struct Toy {
    view: watch::Sender<Arc<View>>,
    values: Mutex<BTreeMap<Bytes, (Bytes, u64)>>,
    /// So many times somebody else is faster, but while the key is held.
    rivals: AtomicU32,
    held: Mutex<Option<Bytes>>,
    /// How the next write ends instead.
    ends: Mutex<Option<Outcome<linear::Ran>>>,
    /// The functions and arguments of all writes.
    writes: Mutex<Vec<(&'static str, Vec<Bytes>)>>,
    /// How much what was asked for mattered, by function.
    priorities: Mutex<Vec<(&'static str, Priority)>>,
}

impl Toy {
    fn run(&self, op: Op) -> Outcome<linear::Ran> {
        let released = op.steps.iter().find(|step| step.function == "release").map(|step| step.args[0].clone());
        let step = op.steps.into_iter().next().unwrap();
        self.priorities.lock().unwrap().push((step.function, op.priority));
        let mut held = self.held.lock().unwrap();
        if released.is_some() {
            assert_eq!(*held, released, "who has held it releases it");
        }
        let is_held = held.is_some();
        held.take_if(|token| released.as_ref() == Some(token));
        let mut values = self.values.lock().unwrap();
        let done = |reply| Outcome::Done(linear::Ran::Done(vec![reply]));
        match step.function {
            "release" => return done(Reply::Nil),
            "hold" => *held = Some(step.args[0].clone()),
            _ => (),
        }
        if matches!(step.function, "look" | "hold") {
            let int = |n: u64| Reply::Int(n as i64);
            return done(match values.get(&step.key) {
                None => Reply::Nil,
                Some((value, _)) if &value[..] == b"a list" => {
                    Reply::List(vec![Reply::Wrong(Wrong::Type), int(1), Reply::Int(-1)])
                }
                Some((value, version)) => Reply::List(vec![Reply::Bytes(value.clone()), int(*version), Reply::Int(-1)]),
            });
        }
        if let Some(end) = self.ends.lock().unwrap().take() {
            return end;
        }
        let version = values.get(&step.key).map_or(0, |has| has.1);
        if self.rivals.load(SeqCst) > 0 && !is_held {
            self.rivals.fetch_sub(1, SeqCst);
            let count: u64 =
                values.get(&step.key).map_or(0, |has| std::str::from_utf8(&has.0).unwrap().parse().unwrap());
            values.insert(step.key.clone(), ((count + 1000).to_string().into(), version + 1));
        }
        let version = values.get(&step.key).map_or(0, |has| has.1);
        if op.conditions.iter().any(|holds| holds.version != version) {
            return Outcome::Done(linear::Ran::Unmet);
        }
        self.writes.lock().unwrap().push((step.function, step.args.clone()));
        if step.function == "remove" {
            values.remove(&step.key);
        } else {
            values.insert(step.key, (step.args[0].clone(), version + 1));
        }
        done(Reply::Int(1))
    }
}

impl Backend for Toy {
    fn ask(&self, ask: Ask, _: Span) -> BoxFuture<'static, Result<Answer, Gone>> {
        let Ask::Linear(op) = ask else { panic!("only values are asked for") };
        let answer = Answer::Linear(self.run(op));
        Box::pin(async { Ok(answer) })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    fn mint(&self) -> Result<Minted, String> {
        unreachable!()
    }

    fn keep_code(&self, _: String, _: Bytes, _: bool) -> BoxFuture<'static, Result<usize, String>> {
        unreachable!()
    }

    fn code(&self, _: String) -> BoxFuture<'static, Option<Bytes>> {
        unreachable!()
    }

    fn logs(&self, _: crate::api::logs::Wanted) -> BoxFuture<'static, Result<crate::api::logs::Gathered, String>> {
        unreachable!()
    }
}

/// All clones are near.
struct Nobody;
impl Dial for Nobody {
    fn dial(&self, _: NodeId, _: SocketAddr, _: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Duplex>>> {
        Box::pin(async { Err(std::io::Error::other("there is nobody")) })
    }
}

/// What a clone does with a question.
enum Does {
    Says(u16, String),
    Dies,
    Hangs,
}

/// A program that knows how to add, as it should.
fn adds(question: &Value) -> Does {
    let count = question.get("value").map_or(0, |value| value.as_str().unwrap().parse::<u64>().unwrap());
    let mut now = count;
    let mut replies = Vec::new();
    for call in question["calls"].as_array().unwrap() {
        match call["function"].as_str().unwrap() {
            "add" => now += call["args"][0].as_str().unwrap().parse::<u64>().unwrap(),
            "get" => (),
            _ => {
                replies.push(json!({"error": "there is none of this name"}));
                continue;
            }
        }
        replies.push(json!({"result": now}));
    }
    let answer =
        if now == count { json!({"replies": replies}) } else { json!({"value": now.to_string(), "replies": replies}) };
    Does::Says(200, answer.to_string())
}

struct Clone {
    at: SocketAddr,
    /// Head and body of each question.
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Questions are answered while this is open.
    gate: Arc<Semaphore>,
    came: Arc<Notify>,
}

impl Clone {
    async fn start(does: impl Fn(&Value) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let me = Self { at, asked: Arc::default(), gate: Arc::new(Semaphore::new(1 << 20)), came: Arc::default() };
        let (asked, gate, came, does) =
            (Arc::clone(&me.asked), Arc::clone(&me.gate), Arc::clone(&me.came), Arc::new(does));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (asked, gate, came, does) =
                    (Arc::clone(&asked), Arc::clone(&gate), Arc::clone(&came), Arc::clone(&does));
                tokio::spawn(async move {
                    while let Some((head, body)) = question(&mut stream).await {
                        asked.lock().unwrap().push((head, body.clone()));
                        came.notify_one();
                        gate.acquire().await.unwrap().forget();
                        let Does::Says(status, text) = does(&body) else {
                            if matches!(does(&body), Does::Hangs) {
                                std::future::pending::<()>().await;
                            }
                            return;
                        };
                        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", text.len());
                        stream.write_all((head + &text).as_bytes()).await.unwrap();
                    }
                });
            }
        });
        me
    }

    /// How many calls each question had.
    fn sizes(&self) -> Vec<usize> {
        self.asked.lock().unwrap().iter().map(|(_, body)| body["calls"].as_array().unwrap().len()).collect()
    }
}

async fn question(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, serde_json::from_slice(&body).unwrap()))
}

/// A node that applies functions of these clones.
fn before(clones: &[&Clone]) -> (Arc<Toy>, Arc<Functions>, Meter) {
    let mut spec = ServiceSpec::new(["x"]);
    (spec.http, spec.clones) = (Some(HttpRoute::default()), (clones.len() as u32).into());
    let routed = clones.iter().enumerate().map(|(n, clone)| RouteClone {
        name: format!("teller/{n}"),
        node: NodeId(1),
        local: true,
        addr: clone.at,
        peer: clone.at,
        node_load: 0,
        version: 0,
    });
    let service = RouteService { clones: routed.collect(), ..RouteService::new("teller", &spec) };
    let view = View {
        routes: Arc::new(Routes::new(vec![service])),
        service_tokens: Arc::new([("teller".to_owned(), "secret".to_owned())].into()),
        root: node::view::RootView { level: base::LEVEL, ..Default::default() },
        ..View::default()
    };
    let toy = Arc::new(Toy {
        view: watch::Sender::new(Arc::new(view)),
        values: Mutex::default(),
        rivals: AtomicU32::new(0),
        held: Mutex::default(),
        ends: Mutex::default(),
        writes: Mutex::default(),
        priorities: Mutex::default(),
    });
    let meter = Meter::new();
    let functions = Functions::new(&meter);
    functions.open(Arc::clone(&toy) as _, Arc::new(Nobody), &meter);
    (toy, functions, meter)
}

fn call(function: &str, arg: &str) -> Call {
    Call {
        namespace: "bank".into(),
        service: "teller".into(),
        key: Bytes::from_static(b"k"),
        function: function.into(),
        args: vec![arg.to_owned().into()],
        class: 5,
        left: None,
        once: None,
    }
}

fn done(n: u64) -> End {
    Outcome::Done(Ran::Done(n.into()))
}

fn count(toy: &Toy) -> String {
    toy.values.lock().unwrap().get(&b"k"[..]).map_or(String::new(), |has| String::from_utf8(has.0.to_vec()).unwrap())
}

fn why(end: &End) -> String {
    match end {
        Outcome::Done(Ran::Failed(why)) => format!("failed: {why}"),
        Outcome::Refused(Refused { why, retry_after: Some(_), .. }) => format!("busy: {why}"),
        Outcome::Refused(Refused { why, retry_after: None, .. }) => format!("wrong: {why}"),
        Outcome::Unknown(Unknown { why }) => format!("unknown: {why}"),
        Outcome::Done(other) => format!("{other:?}"),
    }
}

#[tokio::test]
async fn all_that_wait_are_done_together_and_each_hears_its_own() {
    let clone = Clone::start(adds).await;
    let (toy, functions, meter) = before(&[&clone]);
    let closed = clone.gate.forget_permits(1 << 20);
    let first = tokio::spawn({
        let functions = Arc::clone(&functions);
        async move { functions.apply(Call { class: 2, ..call("add", "1") }).await }
    });
    clone.came.notified().await;
    let rest = (0..100).map(|_| functions.apply(call("add", "1")));
    let (ends, ()) = tokio::join!(join_all(rest), async { clone.gate.add_permits(closed) });
    assert_eq!(first.await.unwrap(), done(1));
    assert_eq!(ends, (2..=101).map(done).collect::<Vec<_>>());
    assert_eq!((clone.sizes(), count(&toy).as_str()), (vec![1, 100], "101"));
    let writes = toy.writes.lock().unwrap().clone();
    assert_eq!(writes[1], ("put", ["101", "always", "keep"].map(Bytes::from).to_vec()), "when it ends stays so");
    assert!(functions.queues().is_empty());
    let totals = meter.totals();
    assert_eq!((totals["functions.calls_total"], totals["functions.rounds_total"]), (101, 2));
    let (head, body) = clone.asked.lock().unwrap()[0].clone();
    for part in [
        "post /.coppice/functions http/1.1",
        "authorization: bearer secret",
        "coppice-priority: 2",
        "coppice-deadline-ms: ",
    ] {
        assert!(head.contains(part), "{part:?} is not in {head}");
    }
    assert_eq!(
        body,
        json!({"namespace": "bank", "key": "k", "calls": [{"function": "add", "args": ["1"]}]}),
        "as docs/guide/linear.md has it"
    );
}

#[tokio::test]
async fn who_was_slower_than_another_writer_does_it_again() {
    let clone = Clone::start(adds).await;
    let (toy, functions, meter) = before(&[&clone]);
    toy.rivals.store(1, SeqCst);
    assert_eq!(functions.apply(call("add", "1")).await, done(1001));
    assert_eq!(count(&toy), "1001");
    assert_eq!(meter.totals()["functions.conflicts_total"], 1);
    // What changes nothing is not written.
    assert_eq!(functions.apply(call("get", "")).await, done(1001));
    assert_eq!(toy.writes.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn who_was_slower_twice_lets_others_wait_until_it_is_done() {
    let clone = Clone::start(adds).await;
    let (toy, functions, meter) = before(&[&clone]);
    toy.rivals.store(u32::MAX, SeqCst);
    assert_eq!(functions.apply(call("add", "1")).await, done(2001));
    assert_eq!((meter.totals()["functions.conflicts_total"], &*toy.held.lock().unwrap()), (2, &None));
    assert_eq!(functions.apply(call("add", "1")).await, done(4002), "others write without a pause all the time");
}

#[tokio::test]
async fn what_is_read_and_written_matters_as_much_as_the_highest_of_the_calls() {
    let clone = Clone::start(adds).await;
    let (toy, functions, _) = before(&[&clone]);
    let closed = clone.gate.forget_permits(1 << 20);
    let first = tokio::spawn({
        let functions = Arc::clone(&functions);
        async move { functions.apply(Call { class: 2, ..call("add", "1") }).await }
    });
    clone.came.notified().await;
    let rest = [3, 9, 0].map(|class| functions.apply(Call { class, ..call("add", "1") }));
    tokio::join!(join_all(rest), async { clone.gate.add_permits(closed) });
    first.await.unwrap();
    let priorities = toy.priorities.lock().unwrap().clone();
    assert_eq!(priorities, [("look", 2), ("put", 2), ("look", 6), ("put", 6)].map(|(of, n)| (of, Priority(n))));
}

#[tokio::test]
async fn a_key_is_not_held_before_all_nodes_know_how() {
    let clone = Clone::start(adds).await;
    let (toy, functions, meter) = before(&[&clone]);
    toy.view.send_modify(|view| Arc::make_mut(view).root.level = 1);
    toy.rivals.store(5, SeqCst);
    assert_eq!(functions.apply(call("add", "1")).await, done(5001));
    assert_eq!(meter.totals()["functions.conflicts_total"], 5);
}

#[tokio::test]
async fn others_wait_no_longer_when_nothing_came_of_it() {
    let tries = AtomicU32::new(0);
    let clone = Clone::start(move |question| match tries.fetch_add(1, SeqCst) {
        0 | 1 => adds(question),
        _ => Does::Says(500, "it went wrong".into()),
    })
    .await;
    let (toy, functions, _meter) = before(&[&clone]);
    toy.rivals.store(u32::MAX, SeqCst);
    assert!(why(&functions.apply(call("add", "1")).await).contains("it went wrong"));
    for _ in 0..100 {
        if toy.held.lock().unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is held for nothing");
}

#[tokio::test]
async fn nonsense_changes_nothing_and_is_named_with_function_and_service() {
    for (status, text, says) in [
        (200, "", "failed: function \"add\" of service \"teller\": what its clone answered is of no use"),
        (200, r#"{"replies":[]}"#, "0 replies to 1 calls"),
        (200, r#"{"value":7,"replies":[{}]}"#, "neither a text"),
        (200, r#"{"replies":[{"error":"not enough"}]}"#, "failed: function \"add\" of service \"teller\": not enough"),
        (500, "Traceback", "failed: function \"add\" of service \"teller\": its clone answered HTTP 500: Traceback"),
        (404, "", "knows no functions (404 at /.coppice/functions)"),
        (503, "", "busy: service \"teller\": its clone has too much to do"),
    ] {
        let clone = Clone::start(move |_| Does::Says(status, text.to_owned())).await;
        let (toy, functions, _) = before(&[&clone]);
        let end = functions.apply(call("add", "1")).await;
        assert!(why(&end).contains(says), "{end:?} says not {says:?}");
        assert!(toy.writes.lock().unwrap().is_empty() && functions.queues().is_empty());
    }
    let large = format!(r#"{{"value":"{}","replies":[{{}}]}}"#, "x".repeat(ANSWER_BYTES_MAX));
    let clone = Clone::start(move |_| Does::Says(200, large.clone())).await;
    let (_, functions, _) = before(&[&clone]);
    assert!(why(&functions.apply(call("add", "1")).await).contains("over 8 MiB"));
}

#[tokio::test]
async fn one_that_breaks_the_program_breaks_nobody_elses_call() {
    for deadly in [false, true] {
        let breaks = move |question: &Value| {
            let is_bad = question["calls"].as_array().unwrap().iter().any(|call| call["function"] == "bad");
            match is_bad {
                true if deadly => Does::Dies,
                true => Does::Says(500, "division by zero".into()),
                false => adds(question),
            }
        };
        let clones = [Clone::start(breaks).await, Clone::start(breaks).await];
        let (toy, functions, _) = before(&[&clones[0], &clones[1]]);
        let calls = (0..20).map(|n| functions.apply(call(if n == 7 { "bad" } else { "add" }, "1")));
        let ends = join_all(calls).await;
        for (n, end) in ends.iter().enumerate() {
            let is_done = matches!(end, Outcome::Done(Ran::Done(_)));
            assert_eq!(is_done, n != 7, "{n}: {end:?}");
        }
        let told = if deadly { "busy: function \"bad\"" } else { "failed: function \"bad\"" };
        assert!(why(&ends[7]).starts_with(told), "{:?}", ends[7]);
        assert_eq!(count(&toy), "19");
    }
}

#[tokio::test]
async fn who_gives_up_is_not_done_and_the_others_are() {
    let clone = Clone::start(adds).await;
    let (toy, functions, _) = before(&[&clone]);
    let closed = clone.gate.forget_permits(1 << 20);
    let short = functions.apply(Call { left: Some(Span::millis(50)), ..call("add", "100") });
    let long = functions.apply(call("add", "1"));
    let opens = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        clone.gate.add_permits(closed);
    };
    let (short, long, ()) = tokio::join!(short, long, opens);
    assert!(why(&short).starts_with("busy: it could not be done in time"), "{short:?}");
    assert_eq!((long, count(&toy).as_str()), (done(1), "1"));
}

#[tokio::test]
async fn the_end_of_the_write_is_the_end_of_its_calls() {
    let clone = Clone::start(adds).await;
    let (toy, functions, _) = before(&[&clone]);
    for (end, says) in [
        (Outcome::Unknown(Unknown { why: "no answer".into() }), "unknown: no answer"),
        (Outcome::Refused(Refused::busy("no leader", Span::millis(5))), "busy: no leader"),
        (Outcome::Done(linear::Ran::Done(vec![Reply::Wrong(Wrong::TooLarge)])), "wrong: the value would be over"),
    ] {
        *toy.ends.lock().unwrap() = Some(end);
        let ends = join_all((0..3).map(|_| functions.apply(call("add", "1")))).await;
        // The first may have gone alone.
        assert!(why(&ends[0]).starts_with(says), "{ends:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused_at_once() {
    let clone = Clone::start(adds).await;
    let (toy, functions, meter) = before(&[&clone]);
    let put = |value: Bytes| drop(toy.values.lock().unwrap().insert(Bytes::from_static(b"k"), (value, 1)));
    put(Bytes::from_static(b"a list"));
    assert_eq!(functions.apply(call("add", "1")).await, Outcome::Done(Ran::Type));
    put(vec![b'1'; VALUE_BYTES_MAX + 1].into());
    assert!(why(&functions.apply(call("add", "1")).await).starts_with("wrong: functions of services take values"));
    let long = functions.apply(call("add", &"1".repeat(CALL_BYTES_MAX + 1))).await;
    assert!(why(&long).starts_with("wrong: a function of a service takes arguments"));
    let long = functions.apply(call(&"f".repeat(NAME_BYTES_MAX + 1), "1")).await;
    assert!(why(&long).starts_with("wrong: the name"));
    assert!(clone.sizes().is_empty());
    let closed = Functions::new(&meter).apply(call("add", "1")).await;
    assert!(why(&closed).starts_with("busy: this node has just started"));
}

#[tokio::test]
async fn more_than_a_queue_takes_is_refused_and_what_it_took_is_done() {
    let clone = Clone::start(adds).await;
    let (toy, functions, _) = before(&[&clone]);
    let ends = join_all((0..WAITING_MAX + 10).map(|_| functions.apply(call("add", "1")))).await;
    let done = ends.iter().filter(|end| matches!(end, Outcome::Done(Ran::Done(_)))).count();
    assert_eq!((done, count(&toy)), (WAITING_MAX, WAITING_MAX.to_string()));
    assert!(why(&ends[WAITING_MAX]).starts_with("busy: too many calls"), "{:?}", ends[WAITING_MAX]);
    assert!(clone.sizes().iter().all(|size| *size <= BATCH_CALLS_MAX));
}

#[tokio::test]
async fn without_a_clone_nothing_happens_and_a_hung_one_is_passed_over() {
    let (toy, functions, _) = before(&[]);
    let end = functions.apply(call("add", "1")).await;
    assert!(why(&end).starts_with("busy: service \"teller\": no clone of it answers now"), "{end:?}");
    assert!(toy.writes.lock().unwrap().is_empty());
    let (hung, well) = (Clone::start(|_| Does::Hangs).await, Clone::start(adds).await);
    let (toy, functions, _) = before(&[&hung, &well]);
    for n in 1..=10 {
        assert_eq!(functions.apply(call("add", "1")).await, done(n));
    }
    assert_eq!(count(&toy), "10");
    let (_, functions, _) = before(&[&hung]);
    let end = functions.apply(Call { left: Some(Span::millis(100)), ..call("add", "1") }).await;
    assert!(why(&end).starts_with("busy: "), "{end:?}");
}
