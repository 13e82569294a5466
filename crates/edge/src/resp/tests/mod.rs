//! The door over a real socket, with a toy node behind it: a map that answers at once, or when the test lets it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use base::{NodeId, Outcome, Priority, Refused, Unknown};
use bytes::Bytes;
use state::NamespaceSpec;
use state::linear;
use state::session::{Action, Kind, Lease, Op, Reply as Found, Version, When};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::*;

mod batches;
mod beside;
mod blocked;
mod cache_commands;
mod changes;
mod channels;
mod commands;
mod conduct;
mod cursors;
mod databases;
mod fields;
mod linear_commands;
mod monitor;
mod more;
mod options;
mod others;
mod sorted;
mod strangers;
mod streams;
mod texts;
mod unread;
mod wide;

#[derive(Default)]
struct Toy {
    values: RefCell<BTreeMap<Bytes, Entry>>,
    /// While true, questions are kept instead of answered.
    holds: Cell<bool>,
    held: RefCell<Vec<(Op, oneshot::Sender<Answer>)>>,
    /// The same of class `linear`.
    held_linear: RefCell<Vec<(linear::Op, oneshot::Sender<Answer>)>>,
    /// Does the door refuse what it cannot do in time? Mostly not: whether a busy machine is late is not what these tests
    /// are about.
    sheds: Cell<bool>,
    /// All operations that were ever started, as `GET a`.
    seen: RefCell<Vec<String>>,
    /// The same of both classes, with all that was said of them, if it is wanted.
    asked: RefCell<Option<Vec<String>>>,
    /// Runs steps of class `linear`, if they are run at all.
    bank: RefCell<Option<Bank>>,
    /// How much each of them matters.
    priorities: RefCell<Vec<Priority>>,
    /// Answers everything with this instead.
    always: RefCell<Option<Outcome<Found>>>,
    /// What was asked of channels, and who waits for messages of other nodes.
    channels: RefCell<Vec<::channels::Op>>,
    listens: RefCell<Option<oneshot::Sender<Answer>>>,
    /// Channels are refused with this.
    too_old: Cell<bool>,
    /// Runs operations of class `cache`, if they are run at all.
    cache: RefCell<Option<state::cache::Cache>>,
    view: RefCell<Arc<View>>,
    meter: Arc<Meter>,
}

type Bank = Box<dyn FnMut(&linear::Step) -> linear::Reply>;

/// One shard, alone.
fn bank() -> Bank {
    let mut space = linear::Space::default();
    Box::new(move |step| space.step(step, Default::default()).unwrap_or_else(linear::Reply::Wrong))
}

#[derive(Clone)]
struct Entry {
    value: Bytes,
    kind: Kind,
    version: Version,
    lease: Span,
}

const DEFAULT_LEASE: Span = Span::secs(1800);

impl Toy {
    fn run(&self, op: Op) -> Outcome<Found> {
        if let Some(outcome) = &*self.always.borrow() {
            return outcome.clone();
        }
        let mut values = self.values.borrow_mut();
        let present = values.get(&op.key).cloned();
        let version = present.as_ref().map(|e| e.version);
        let found = |e: Entry| Found::Value { value: e.value, kind: e.kind, version: e.version, lease_left: e.lease };
        let hands_out =
            matches!(op.action, Action::GetTouch { .. } | Action::Take | Action::Put { want_old: true, .. });
        if let Some(kind) = present.as_ref().map(|e| e.kind).filter(|kind| hands_out && *kind != Kind::Text) {
            return Outcome::Done(Found::OtherKind(kind));
        }
        let span = |lease| match lease {
            Lease::Default => DEFAULT_LEASE,
            Lease::For(span) => span,
            Lease::Keep => present.as_ref().map_or(DEFAULT_LEASE, |e| e.lease),
        };
        Outcome::Done(match op.action {
            Action::Get => present.map_or(Found::Absent, found),
            Action::Put { value, kind, lease, when, want_old } => {
                let holds = match when {
                    When::Always => true,
                    When::Absent => present.is_none(),
                    When::Present => present.is_some(),
                    When::Version(wanted) => version == Some(wanted),
                };
                let lease = span(lease);
                let old = present.map(|e| e.value).filter(|_| want_old);
                if holds {
                    let ms = version.map_or(1, |v| v.ms + 1);
                    let version = Version { ms, counter: 0, node: NodeId(1) };
                    values.insert(op.key, Entry { value, kind, version, lease });
                    Found::Stored { version, old, cookie: None }
                } else {
                    Found::NotStored { version, old }
                }
            }
            Action::Touch { lease } => {
                let lease = span(lease);
                Found::Touched(values.get_mut(&op.key).map(|e| e.lease = lease).is_some())
            }
            Action::GetTouch { lease } => {
                let lease = span(lease);
                values.get_mut(&op.key).map_or(Found::Absent, |e| {
                    e.lease = lease;
                    found(e.clone())
                })
            }
            Action::Remove => Found::Removed(values.remove(&op.key).is_some()),
            Action::RemoveIf { version: wanted } => match version {
                Some(version) if version != wanted => Found::NotStored { version: Some(version), old: None },
                _ => Found::Removed(values.remove(&op.key).is_some()),
            },
            Action::Take => values.remove(&op.key).map_or(Found::Absent, found),
            Action::Count => Found::Count(values.len() as u64),
            Action::Scan { cursor, count } => {
                let keys = values.iter().map(|(key, entry)| (key.clone(), entry.kind));
                let keys: Vec<_> = keys.skip(cursor as usize).take(count as usize).collect();
                let next = cursor + keys.len() as u64;
                Found::Page { cursor: if next < values.len() as u64 { next } else { 0 }, keys }
            }
        })
    }

    /// Answers the held question that looks like this.
    fn release(&self, name: &str) {
        let at = self.held.borrow().iter().position(|(op, _)| shown(op) == name).expect(name);
        let (op, answer) = self.held.borrow_mut().remove(at);
        answer.send(Answer::Session(self.run(op))).expect("the connection waits for it");
    }

    /// Kept questions of class `linear`, as `list.pop-left q`.
    fn asked(&self) -> Vec<String> {
        self.held_linear.borrow().iter().map(|(op, _)| shown_linear(op)).collect()
    }

    /// Answers the kept question of class `linear` that looks like this.
    fn give(&self, name: &str, reply: linear::Reply) {
        let at = self.held_linear.borrow().iter().position(|(op, _)| shown_linear(op) == name).expect(name);
        let (_, answer) = self.held_linear.borrow_mut().remove(at);
        let done = Outcome::Done(linear::Ran::Done(vec![reply]));
        answer.send(Answer::Linear(done)).expect("somebody waits for it");
    }

    /// From now on the namespace merges fields.
    fn merges(&self) {
        self.show(namespace("carts", "fields", None));
    }

    /// From now on so many connections may have the namespace open.
    fn set_connections_max(&self, name: &str, most: Option<u32>) {
        self.show(namespace(name, "none", most));
    }

    fn show(&self, namespace: node::view::NamespaceView) {
        let mut view = View::clone(&self.view.borrow());
        view.namespaces.retain(|other| other.name != namespace.name);
        view.namespaces.push(namespace);
        *self.view.borrow_mut() = Arc::new(view);
    }

    /// There is a namespace of class `linear`, too.
    fn set_linear(&self) {
        self.set_tokens(&[("carts", "secret"), ("bank", "secret3")]);
        let mut view = View::clone(&self.view.borrow());
        view.specs = Arc::new([("bank".to_owned(), NamespaceSpec::new_linear())].into());
        *self.view.borrow_mut() = Arc::new(view);
    }

    fn set_tokens(&self, tokens: &[(&str, &str)]) {
        let tokens = tokens.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        let root = node::view::RootView { leader: Some("n1".into()), version: 1, ..Default::default() };
        let view = View { tokens: Arc::new(tokens), me: "n1".into(), root, ..View::default() };
        *self.view.borrow_mut() = Arc::new(view);
    }

    /// A node that has just started.
    fn forget(&self) {
        *self.view.borrow_mut() = Arc::default();
    }
}

fn namespace(name: &str, merge: &str, connections_max: Option<u32>) -> node::view::NamespaceView {
    node::view::NamespaceView {
        name: name.into(),
        class: "session".into(),
        lease_ms: 1,
        merge: merge.into(),
        functions: None,
        durability: None,
        size_max: None,
        ttl_ms: None,
        weak: Vec::new(),
        connections_max,
        rate_max: None,
        used: Default::default(),
        loss_window: None,
        promise: String::new(),
        timeout_ms: 60,
        hot: Vec::new(),
        queues: Vec::new(),
        odds: Default::default(),
        shards_declared: None,
        lines: Vec::new(),
        shards: [].into(),
    }
}

fn shown(op: &Op) -> String {
    let action = format!("{:?}", op.action);
    let name = action.split([' ', '{']).next().unwrap().to_uppercase();
    format!("{name} {}", String::from_utf8_lossy(&op.key))
}

fn shown_linear(op: &linear::Op) -> String {
    let step = |step: &linear::Step| format!("{} {}", step.function, String::from_utf8_lossy(&step.key));
    op.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

impl Backend for Toy {
    fn ask(&self, ask: Ask, budget: Span, send: oneshot::Sender<Answer>) {
        assert!(budget > Span::ZERO);
        if let Some(asked) = &mut *self.asked.borrow_mut() {
            asked.push(format!("{ask:?}"));
        }
        let op = match ask {
            Ask::Session(op) => op,
            // Whatever it is, it gives 1, unless there is a bank.
            Ask::Linear(op) => {
                assert_eq!(&*op.namespace, "bank");
                self.priorities.borrow_mut().push(op.priority);
                if self.holds.get() {
                    return self.held_linear.borrow_mut().push((op, send));
                }
                // As whoever sends to a group does: ends by the wall clock become time that is left.
                let mut op = op;
                linear::moment::resolve(&mut op.steps, crate::wall::wall_ms(), base::LEVEL);
                let mut bank = self.bank.borrow_mut();
                let mut run = |step: &linear::Step| bank.as_mut().map_or(linear::Reply::Int(1), |bank| bank(step));
                let is_met = |condition: &linear::Condition| {
                    let version = linear::Step::new(condition.key.clone(), "version", Vec::new());
                    run(&version) == linear::Reply::Int(condition.version as i64)
                };
                let done = match op.conditions.iter().all(is_met) {
                    true => linear::Ran::Done(op.steps.iter().map(run).collect()),
                    false => linear::Ran::Unmet,
                };
                return drop(send.send(Answer::Linear(Outcome::Done(done))));
            }
            Ask::Cache(op) => {
                let mut cache = self.cache.borrow_mut();
                let done = cache_commands::run(cache.as_mut().expect("there is a cache"), op);
                return drop(send.send(Answer::Cache(done)));
            }
            Ask::Channels(::channels::Op::Listen) => return drop(self.listens.replace(Some(send))),
            Ask::Channels(op) => {
                use ::channels::{Op, Reply};
                let reply = match &op {
                    Op::Publish(_) => Reply::Published { receivers: 2 },
                    Op::Names { .. } => Reply::Names(vec!["a".into(), "b".into()]),
                    Op::Counts { names, .. } => Reply::Counts(vec![3; names.len()]),
                    Op::Subscribe { .. } | Op::Unsubscribe { .. } | Op::Listen => Reply::Done,
                };
                self.channels.borrow_mut().push(op);
                let refused = || Outcome::Refused(Refused::wrong("too old"));
                let outcome = if self.too_old.get() { refused() } else { Outcome::Done(reply) };
                return drop(send.send(Answer::Channels(outcome)));
            }
            other => panic!("this door asks for values only, not for {other:?}"),
        };
        assert!(self.view.borrow().tokens.contains_key(&*op.namespace), "{} is declared", op.namespace);
        self.seen.borrow_mut().push(shown(&op));
        self.priorities.borrow_mut().push(op.priority);
        if self.holds.get() {
            self.held.borrow_mut().push((op, send));
        } else {
            let _ = send.send(Answer::Session(self.run(op)));
        }
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    fn sheds(&self) -> bool {
        self.sheds.get()
    }
}

/// Runs a test with a door and a client connected to it.
fn with_door<F: Future<Output = ()>>(test: impl FnOnce(Rc<Toy>, TcpStream) -> F) {
    with_door_of(Toy::default(), |toy, stream, close| async {
        test(toy, stream).await;
        drop(close);
    });
}

/// The same, and the door closes when it is told.
fn with_door_of<F: Future<Output = ()>>(toy: Toy, test: impl FnOnce(Rc<Toy>, TcpStream, oneshot::Sender<()>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let toy = Rc::new(toy);
        let (close, closed) = oneshot::channel::<()>();
        toy.set_tokens(&[("carts", "secret"), ("other", "secret2")]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let door = tokio::task::spawn_local(serve(
            listener,
            toy.clone(),
            Arc::clone(&toy.meter),
            Functions::new(&toy.meter),
            async move { _ = closed.await },
        ));
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        // None takes a second; one that waits for what does not come has failed. The clock is not the one that tests put forward.
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let (late, is_late) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            if is_done.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                let _ = late.send(());
            }
        });
        tokio::select! {
            () = test(toy, stream, close) => drop(done),
            _ = is_late => panic!("the door should not take so long"),
        }
        door.abort();
    }));
}

pub fn resp(command: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// `SET a 1` to its bytes.
fn line(command: &str) -> Vec<u8> {
    resp(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

async fn send(stream: &mut TcpStream, commands: &[&str]) {
    let bytes: Vec<u8> = commands.iter().flat_map(|c| line(c)).collect();
    stream.write_all(&bytes).await.unwrap();
}

async fn expect(stream: &mut TcpStream, reply: &str, why: &str) {
    let mut got = vec![0; reply.len()];
    let mut at = 0;
    // Stops at the first byte that differs, so that a wrong answer is shown instead of waited for.
    while at < got.len() && got[..at] == reply.as_bytes()[..at] {
        match stream.read(&mut got[at..]).await.unwrap() {
            0 => break,
            n => at += n,
        }
    }
    assert_eq!(String::from_utf8_lossy(&got[..at]), reply, "{why}");
}

async fn expect_end(stream: &mut TcpStream) -> String {
    let mut rest = vec![];
    stream.read_to_end(&mut rest).await.unwrap();
    String::from_utf8(rest).unwrap()
}

/// Another connection to the same door, into the namespace of class `linear`.
async fn another(stream: &TcpStream) -> TcpStream {
    let mut other = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
    other.set_nodelay(true).unwrap();
    sign_in_linear(&mut other).await;
    other
}

async fn sign_in_linear(stream: &mut TcpStream) {
    send(stream, &["AUTH bank secret3"]).await;
    expect(stream, "+OK\r\n", "AUTH").await;
}

async fn sign_in(stream: &mut TcpStream) {
    send(stream, &["AUTH carts secret"]).await;
    expect(stream, "+OK\r\n", "AUTH").await;
}

/// Waits until the door has done what it can for now.
async fn until(mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "it did not come to be");
        tokio::task::yield_now().await;
    }
}

/// The door does all that it can for now, and hears what its sockets have to say: between so many turns the runtime asks them
/// several times.
async fn pause() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Each command in turn gets its reply.
fn check(script: &[(&str, &str)]) {
    with_door(|_, mut stream| async move {
        sign_in(&mut stream).await;
        for (command, reply) in script {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
    });
}

/// The same in class `linear`, where the steps are really run.
fn check_linear(script: &[(&str, &str)]) {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        for (command, reply) in script {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
    });
}
