//! The door over a real socket, with a toy node behind it: a map that answers at once, or when the test lets it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::{NodeId, Outcome, Refused, Unknown};
use bytes::Bytes;
use state::session::{Action, Lease, Op, Reply as Found, Version, When};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::*;

#[derive(Default)]
struct Toy {
    values: RefCell<BTreeMap<Bytes, Entry>>,
    /// While true, questions are kept instead of answered.
    holds: Cell<bool>,
    held: RefCell<Vec<(Op, oneshot::Sender<Answer>)>>,
    /// All operations that were ever started, as `GET a`.
    seen: RefCell<Vec<String>>,
    /// Answers everything with this instead.
    always: RefCell<Option<Outcome<Found>>>,
    view: RefCell<Arc<View>>,
    meter: Arc<Meter>,
}

#[derive(Clone)]
struct Entry {
    value: Bytes,
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
        let found = |e: Entry| Found::Value { value: e.value, version: e.version, lease_left: e.lease };
        let span = |lease| match lease {
            Lease::Default => DEFAULT_LEASE,
            Lease::For(span) => span,
            Lease::Keep => present.as_ref().map_or(DEFAULT_LEASE, |e| e.lease),
        };
        Outcome::Done(match op.action {
            Action::Get => present.map_or(Found::Absent, found),
            Action::Put { value, lease, when, want_old } => {
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
                    values.insert(op.key, Entry { value, version, lease });
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
                let keys: Vec<_> = values.keys().skip(cursor as usize).take(count as usize).cloned().collect();
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

    /// From now on the namespace merges fields.
    fn merges(&self) {
        let mut view = View::clone(&self.view.borrow());
        let (name, class, merge) = ("carts".into(), "session".into(), "fields".into());
        view.namespaces.push(node::view::NamespaceView {
            name,
            class,
            lease_ms: 1,
            merge,
            functions: None,
            durability: None,
            weak: Vec::new(),
            loss_window: None,
            promise: String::new(),
            timeout_ms: 60,
            hot: Vec::new(),
            odds: Default::default(),
            shards: [].into(),
        });
        *self.view.borrow_mut() = Arc::new(view);
    }

    fn set_tokens(&self, tokens: &[(&str, &str)]) {
        let tokens = tokens.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        *self.view.borrow_mut() = Arc::new(View { tokens: Arc::new(tokens), me: "n1".into(), ..View::default() });
    }
}

fn shown(op: &Op) -> String {
    let action = format!("{:?}", op.action);
    let name = action.split([' ', '{']).next().unwrap().to_uppercase();
    format!("{name} {}", String::from_utf8_lossy(&op.key))
}

impl Backend for Toy {
    fn ask(&self, ask: Ask, budget: Span, send: oneshot::Sender<Answer>) {
        assert!(budget > Span::ZERO);
        let Ask::Session(op) = ask else { panic!("this door asks for values only") };
        assert_eq!(&*op.namespace, "carts");
        self.seen.borrow_mut().push(shown(&op));
        if self.holds.get() {
            self.held.borrow_mut().push((op, send));
        } else {
            let _ = send.send(Answer::Session(self.run(op)));
        }
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Whether a busy machine is late is not what these tests are about; `gate` has its own.
    fn sheds(&self) -> bool {
        false
    }
}

/// Runs a test with a door and a client connected to it.
fn with_door<F: Future<Output = ()>>(test: impl FnOnce(Rc<Toy>, TcpStream) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let toy = Rc::new(Toy::default());
        toy.set_tokens(&[("carts", "secret"), ("other", "secret2")]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let door = tokio::task::spawn_local(serve(
            listener,
            toy.clone(),
            Arc::clone(&toy.meter),
            Functions::new(&toy.meter),
            std::future::pending(),
        ));
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        test(toy, stream).await;
        door.abort();
    }));
}

fn resp(command: &[&[u8]]) -> Vec<u8> {
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
        at += stream.read(&mut got[at..]).await.unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&got[..at]), reply, "{why}");
}

async fn expect_end(stream: &mut TcpStream) -> String {
    let mut rest = vec![];
    stream.read_to_end(&mut rest).await.unwrap();
    String::from_utf8(rest).unwrap()
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

#[test]
fn values_are_written_and_read() {
    check(&[
        ("GET a", "$-1\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("get a", "$1\r\n1\r\n"),
        ("STRLEN a", ":1\r\n"),
        ("STRLEN b", ":0\r\n"),
        ("TYPE a", "+string\r\n"),
        ("TYPE b", "+none\r\n"),
        ("SET a 2 NX", "$-1\r\n"),
        ("SET b 2 XX", "$-1\r\n"),
        ("SET a 2 XX GET", "$1\r\n1\r\n"),
        ("SET a 3 NX GET", "$1\r\n2\r\n"),
        ("SET c 3 NX GET", "$-1\r\n"),
        ("SET d 3 XX GET", "$-1\r\n"),
        ("SETNX a 9", ":0\r\n"),
        ("SETNX e 9", ":1\r\n"),
        ("MGET a b c", "*3\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n"),
        ("MSET x 1 y 2 x 3", "+OK\r\n"),
        ("GET x", "$1\r\n3\r\n"),
        ("EXISTS x x y nosuch", ":3\r\n"),
        ("DEL x x nosuch", ":1\r\n"),
        ("UNLINK y", ":1\r\n"),
        ("GETDEL a", "$1\r\n2\r\n"),
        ("GETDEL a", "$-1\r\n"),
        ("DBSIZE", ":2\r\n"),
    ]);
}

#[test]
fn leases_are_given_and_told() {
    check(&[
        ("TTL a", ":-2\r\n"),
        ("PTTL a", ":-2\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("TTL a", ":1800\r\n"),
        ("SET a 1 EX 10", "+OK\r\n"),
        ("PTTL a", ":10000\r\n"),
        ("SET a 2 KEEPTTL", "+OK\r\n"),
        ("TTL a", ":10\r\n"),
        ("SET a 2 PX 1500", "+OK\r\n"),
        ("TTL a", ":2\r\n"),
        ("SETEX a 20 v", "+OK\r\n"),
        ("TTL a", ":20\r\n"),
        ("PSETEX a 2500 v", "+OK\r\n"),
        ("PTTL a", ":2500\r\n"),
        ("EXPIRE a 30", ":1\r\n"),
        ("TTL a", ":30\r\n"),
        ("PEXPIRE a 400 XX", ":1\r\n"),
        ("PTTL a", ":400\r\n"),
        ("EXPIRE a 30 NX", ":0\r\n"),
        ("EXPIRE nosuch 30", ":0\r\n"),
        ("GETEX a", "$1\r\nv\r\n"),
        ("PTTL a", ":400\r\n"),
        ("GETEX a EX 50", "$1\r\nv\r\n"),
        ("TTL a", ":50\r\n"),
        ("GETEX nosuch EX 50", "$-1\r\n"),
        ("EXPIRE a -1", ":1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1 EXAT 1", "+OK\r\n"),
        ("PTTL a", ":1\r\n"),
        ("PEXPIREAT a 1", ":1\r\n"),
        ("EXISTS a", ":0\r\n"),
    ]);
}

#[test]
fn wrong_commands_are_told_what_is_wrong() {
    check(&[
        ("GET a b", "-ERR wrong number of arguments for 'get' command: it is GET key\r\n"),
        (
            "SET a",
            "-ERR wrong number of arguments for 'set' command: it is SET key value [NX | XX | IFEQ value | \
             IFNE value | IFDEQ digest | IFDNE digest] [GET] \
             [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]\r\n",
        ),
        ("SET a 1 NX XX", "-ERR syntax error\r\n"),
        ("SET a 1 EX", "-ERR syntax error\r\n"),
        ("SET a 1 EX 1 PX 1", "-ERR syntax error\r\n"),
        ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 EX one", "-ERR value is not an integer or out of range\r\n"),
        ("SETEX a 0 v", "-ERR invalid expire time in 'setex' command\r\n"),
        ("EXPIRE a b", "-ERR value is not an integer or out of range\r\n"),
        ("EXPIRE a 1 GT", "-ERR GT and LT are not offered by class session: look with PTTL, then EXPIRE\r\n"),
        ("SELECT 1", "-ERR DB index is out of range: a namespace has only 0; AUTH opens another namespace\r\n"),
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN 0 COUNT", "-ERR syntax error\r\n"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command: it is MSET key value [key value ...]\r\n"),
        ("KEYS *", "-ERR 'KEYS' is not offered by class session: SCAN with MATCH lists keys in pages\r\n"),
        (
            "lpush a 1",
            "-ERR 'LPUSH' is not offered by class session: a value is read and written whole: GET it, change it, \
             SET it; or keep one key for each field\r\n",
        ),
        (
            "GETEX a PERSIST",
            "-ERR 'PERSIST' is not offered by class session: each value ends with its lease: EXPIRE key SECONDS gives a longer one\r\n",
        ),
        ("NOSUCH", "-ERR 'NOSUCH' is not offered by class session: COMMAND DOCS and docs/resp.md list what is\r\n"),
        (
            "CLIENT KILL x",
            "-ERR 'CLIENT KILL' is not offered by class session: offered are SETINFO, SETNAME, GETNAME, ID, INFO, LIST, NO-EVICT, NO-TOUCH, REPLY ON, GETREDIR, TRACKING OFF\r\n",
        ),
    ]);
}

#[test]
fn a_value_is_written_only_while_it_is_what_the_client_believes() {
    check(&[
        ("SET a 1 IFEQ 0", "$-1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1 IFNE 0", "+OK\r\n"),
        ("SET a 2 IFEQ 0", "$-1\r\n"),
        ("SET a 2 IFEQ 1 EX 50", "+OK\r\n"),
        ("TTL a", ":50\r\n"),
        ("SET a 3 IFNE 2 GET", "$1\r\n2\r\n"),
        ("SET a 3 GET IFEQ 2", "$1\r\n2\r\n"),
        ("GET a", "$1\r\n3\r\n"),
        ("DIGEST none", "$-1\r\n"),
        // XXH3-64 of "3".
        ("DIGEST a", "$16\r\n7324dc1e7e9474f0\r\n"),
        ("SET a 4 IFDEQ 0000000000000000", "$-1\r\n"),
        ("SET a 4 IFDEQ 7324DC1E7E9474F0", "+OK\r\n"),
        ("SET a 5 IFDNE 7324dc1e7e9474f0 KEEPTTL", "+OK\r\n"),
        ("SET a 5 IFDEQ 7324", "-ERR a digest is 16 hexadecimal digits, as DIGEST gives them\r\n"),
        ("SET a 5 IFEQ", "-ERR syntax error\r\n"),
        ("SET a 5 NX IFEQ 1", "-ERR syntax error\r\n"),
        ("SET a 5 IFEQ 1 XX", "-ERR syntax error\r\n"),
        ("GETEX a IFEQ 1", "-ERR syntax error\r\n"),
        ("DELEX a IFEQ 4", ":0\r\n"),
        ("DELEX a IFEQ 5", ":1\r\n"),
        ("DELEX a IFNE 5", ":0\r\n"),
        ("SET a 6", "+OK\r\n"),
        ("DELEX a", ":1\r\n"),
        ("DELEX a XX 1", "-ERR syntax error\r\n"),
    ]);
}

#[test]
fn a_hash_is_changed_field_by_field_where_the_namespace_merges() {
    check(&[
        (
            "HSET h a 1",
            "-ERR 'HSET' is not offered by class session unless the namespace declares merge = \"fields\"; without it a value is read and written whole: GET it, change it, SET it; or keep one key for each field\r\n",
        ),
        (
            "HGETALL h",
            "-ERR 'HGETALL' is not offered by class session unless the namespace declares merge = \"fields\"; without it a value is read and written whole: GET it, change it, SET it; or keep one key for each field\r\n",
        ),
    ]);
    with_door(|toy, mut stream| async move {
        toy.merges();
        sign_in(&mut stream).await;
        for (command, reply) in [
            ("HGETALL h", "*0\r\n"),
            ("HSET h b 2 a 3", ":2\r\n"),
            ("HSET h a 4 c 5", ":1\r\n"),
            (
                "HSET h a",
                "-ERR wrong number of arguments for 'hset' command: it is HSET key field value [field value ...]\r\n",
            ),
            (
                "HSET h a 1 b",
                "-ERR wrong number of arguments for 'hset' command: it is HSET key field value [field value ...]\r\n",
            ),
            ("HGETALL h", "*6\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\na\r\n$1\r\n4\r\n$1\r\nc\r\n$1\r\n5\r\n"),
            ("HMSET h d 6", "+OK\r\n"),
            ("HSETNX h d 7", ":0\r\n"),
            ("HSETNX h e 7", ":1\r\n"),
            ("HGET h d", "$1\r\n6\r\n"),
            ("HGET h x", "$-1\r\n"),
            ("HMGET h a x e", "*3\r\n$1\r\n4\r\n$-1\r\n$1\r\n7\r\n"),
            ("HLEN h", ":5\r\n"),
            ("HEXISTS h a", ":1\r\n"),
            ("HEXISTS h x", ":0\r\n"),
            ("HDEL h a b x", ":2\r\n"),
            ("HKEYS h", "*3\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n"),
            ("HVALS h", "*3\r\n$1\r\n5\r\n$1\r\n6\r\n$1\r\n7\r\n"),
            ("TYPE h", "+hash\r\n"),
            (
                "GET h",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
            ("MGET h", "*1\r\n$-1\r\n"),
            ("EXPIRE h 50", ":1\r\n"),
            ("HSET h f 8", ":1\r\n"),
            ("TTL h", ":50\r\n"),
            ("RENAME h i", "+OK\r\n"),
            ("TTL i", ":50\r\n"),
            ("RENAME h i", "-ERR no such key\r\n"),
            ("HDEL i c d e f", ":4\r\n"),
            ("EXISTS i", ":0\r\n"),
            ("SET s 1", "+OK\r\n"),
            (
                "HGET s a",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
            (
                "HSET s a 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
        ] {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
        // A field more than there may be.
        let many: String = (0..1024).map(|field| format!(" f{field} v")).collect();
        send(&mut stream, &[&format!("HSET big{many}"), "HSET big more v", "HSET big f0 v"]).await;
        let why = "-ERR a hash may have 1024 fields; this one would have 1025\r\n";
        expect(&mut stream, &format!(":1024\r\n{why}:0\r\n"), "bounds").await;
    });
}

#[test]
fn a_walk_lists_all_keys_and_only_those_that_fit() {
    check(&[
        ("MSET a1 x a2 x b1 x", "+OK\r\n"),
        ("SCAN 0 COUNT 2", "*2\r\n$1\r\n2\r\n*2\r\n$2\r\na1\r\n$2\r\na2\r\n"),
        ("SCAN 2 COUNT 2", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nb1\r\n"),
        ("SCAN 0 MATCH a*", "*2\r\n$1\r\n0\r\n*2\r\n$2\r\na1\r\n$2\r\na2\r\n"),
        ("SCAN 0 TYPE hash", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ]);
}

#[test]
fn what_libraries_ask_on_connecting_is_answered() {
    check(&[
        ("PING", "+PONG\r\n"),
        ("PING hi", "$2\r\nhi\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT SETINFO LIB-VER 7.0", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME shop", "+OK\r\n"),
        ("CLIENT GETNAME", "$4\r\nshop\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("COMMAND COUNT", ":45\r\n"),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (
            "COMMAND INFO get nosuch",
            "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        ("INFO replication", "$48\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version: 2 and 3 are offered\r\n"),
        (
            "HELLO 3 SETNAME x",
            "%7\r\n$6\r\nserver\r\n$7\r\ncoppice\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        ("GET nosuch", "_\r\n"),
        ("INFO replication", "=52\r\ntxt:# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n"),
        ("QUIT", "+OK\r\n"),
    ]);
}

#[test]
fn a_stranger_may_only_say_who_they_are() {
    with_door(|toy, mut stream| async move {
        for command in ["GET a", "PING", "NOSUCH", "SET a 1"] {
            send(&mut stream, &[command]).await;
            expect(&mut stream, "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n", command).await;
        }
        send(&mut stream, &["HELLO 3"]).await;
        expect(&mut stream, "-NOAUTH HELLO must", "HELLO").await;
        let mut rest = [0u8; 4096];
        let _ = stream.read(&mut rest).await.unwrap();
        assert!(toy.seen.borrow().is_empty());
        send(&mut stream, &["HELLO 3 AUTH carts secret", "GET a"]).await;
        expect(&mut stream, "%7\r\n", "HELLO with AUTH").await;
        until(|| !toy.seen.borrow().is_empty()).await;
    });
}

#[test]
fn a_token_opens_its_namespace_and_wrong_ones_end_the_connection() {
    with_door(|toy, mut stream| async move {
        send(&mut stream, &["AUTH secret", "SET a 1"]).await;
        expect(&mut stream, "+OK\r\n+OK\r\n", "the token alone").await;
        toy.set_tokens(&[("carts", "changed")]);
        send(&mut stream, &["GET a"]).await;
        expect(&mut stream, "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n", "token changed").await;
        let wrong = "-WRONGPASS no namespace of this name has this token; `coppice status` lists namespaces\r\n";
        for _ in 0..limits::WRONG_PASSWORDS_MAX {
            send(&mut stream, &["AUTH carts secret"]).await;
            expect(&mut stream, wrong, "the old token").await;
        }
        assert_eq!(expect_end(&mut stream).await, "");
    });
}

#[test]
fn a_stranger_who_says_nothing_is_let_go() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let (toy, meter) = (Rc::new(Toy::default()), Arc::new(Meter::new()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::task::spawn_local(serve(
            listener,
            toy,
            Arc::clone(&meter),
            Functions::new(&meter),
            std::future::pending(),
        ));
        let began = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(addr).await.unwrap();
        assert_eq!(expect_end(&mut stream).await, "");
        assert_eq!(began.elapsed().as_secs(), limits::STRANGER_TIME_MAX.as_secs());
    }));
}

#[test]
fn what_is_not_redis_is_told_so_and_closed() {
    for (bytes, reply) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "-ERR this port speaks the Redis protocol, not HTTP\r\n"),
        (b"*1\r\n!", "-ERR Protocol error: expected '$', got '!'\r\n"),
        (b"*17\r\n", "-ERR Protocol error: a command may have 16 arguments here\r\n"),
        (b"*1\r\n$70000\r\n", "-ERR Protocol error: an argument may have 65536 bytes here\r\n"),
    ] {
        with_door(|_, mut stream| async move {
            stream.write_all(bytes).await.unwrap();
            assert_eq!(expect_end(&mut stream).await, reply);
        });
    }
}

#[test]
fn who_sends_all_of_a_value_that_is_too_large_before_reading_is_told_so_too() {
    with_door(|_, mut stream| async move {
        sign_in(&mut stream).await;
        let command = resp(&[b"SET", b"k", &vec![b'x'; super::limits::ARG_BYTES_MAX + 1]]);
        stream.write_all(&command).await.unwrap();
        assert_eq!(expect_end(&mut stream).await, "-ERR Protocol error: an argument may have 16777216 bytes here\r\n");
    });
}

#[test]
fn answers_come_in_order_and_different_keys_run_at_once() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["SET a 1", "SET b 2", "MGET c d", "PING", "GET e"]).await;
        until(|| toy.held.borrow().len() == 5).await;
        for name in ["GET e", "GET d", "PUT b", "GET c", "PUT a"] {
            toy.release(name);
        }
        expect(&mut stream, "+OK\r\n+OK\r\n*2\r\n$-1\r\n$-1\r\n+PONG\r\n$-1\r\n", "in order").await;
    });
}

#[test]
fn commands_on_one_key_run_one_after_the_other() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["GET a", "GET a", "SET a 1", "GET a", "DBSIZE", "GET b"]).await;
        for step in [&["GET a", "GET a"][..], &["PUT a"], &["GET a"], &["COUNT "], &["GET b"]] {
            until(|| toy.held.borrow().len() == step.len()).await;
            // All that may run does: a pass of the door changes nothing.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let held: Vec<_> = toy.held.borrow().iter().map(|(op, _)| shown(op)).collect();
            assert_eq!(held, step);
            step.iter().for_each(|name| toy.release(name));
        }
        expect(&mut stream, "$-1\r\n$-1\r\n+OK\r\n$1\r\n1\r\n:1\r\n$-1\r\n", "in order").await;
    });
}

#[test]
fn a_client_that_sends_without_end_has_only_so_much_under_way() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        let commands: Vec<String> = (0..1000).map(|i| format!("GET k{i}")).collect();
        send(&mut stream, &commands.iter().map(String::as_str).collect::<Vec<_>>()).await;
        until(|| toy.held.borrow().len() == limits::IN_FLIGHT_MAX).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(toy.held.borrow().len(), limits::IN_FLIGHT_MAX);
        toy.holds.set(false);
        for i in 0..limits::IN_FLIGHT_MAX {
            toy.release(&format!("GET k{i}"));
        }
        expect(&mut stream, &"$-1\r\n".repeat(1000), "all of them").await;
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        let value = vec![b'v'; 256 << 10];
        stream.write_all(&resp(&[b"SET", b"a", &value])).await.unwrap();
        expect(&mut stream, "+OK\r\n", "SET").await;
        let before = toy.seen.borrow().len();
        send(&mut stream, &vec!["GET a"; 500]).await;
        // 125 MiB do not fit into the socket's buffers: at some moment nothing more is started.
        let (mut last, mut same) = (before, 0);
        while same < 5000 {
            tokio::task::yield_now().await;
            let now = toy.seen.borrow().len();
            (last, same) = if now == last && now > before { (last, same + 1) } else { (now, 0) };
        }
        assert!(last < before + 400, "{last} started");
        // What was answered is not under way, though its client has not taken it: others need the room.
        until(|| toy.meter.stages.get("resp-session").is_some_and(|s| s.started > 256 && s.under_way == 0)).await;
        let mut sink = vec![0; 1 << 20];
        let mut wanted = 500 * ("$262144\r\n\r\n".len() + value.len());
        while wanted > 0 {
            wanted -= stream.read(&mut sink).await.unwrap();
        }
        assert_eq!(toy.seen.borrow().len(), before + 500);
    });
}

#[test]
fn large_values_go_in_and_out_in_pieces() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        for size in [0, 1, 4095, 8192, 100_000, 1 << 20, 9000, 3] {
            let value: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
            let bytes = resp(&[b"SET", b"key", &value]);
            let (mut read, mut write) = stream.split();
            let sending = async {
                for piece in bytes.chunks(7001) {
                    write.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                write.write_all(&line("GET key")).await.unwrap();
            };
            let mut got = vec![0; 5 + format!("${size}\r\n").len() + size + 2];
            let (_, end) = tokio::join!(sending, read.read_exact(&mut got));
            end.unwrap();
            let expect = [&b"+OK\r\n"[..], format!("${size}\r\n").as_bytes(), &value, b"\r\n"].concat();
            assert!(got == expect, "{size} bytes");
        }
        assert_eq!(toy.values.borrow()[&b"key"[..]].value, "\0\x1f>");
    });
}

#[test]
fn refused_and_unknown_are_told_apart() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        for (outcome, command, reply) in [
            (
                Outcome::Refused(Refused::busy("no room", Span::millis(20))),
                "GET a",
                "-BUSY no room, retry in 20 ms\r\n",
            ),
            (Outcome::Refused(Refused::wrong("key of 600 bytes")), "SET a 1", "-ERR key of 600 bytes\r\n"),
            (
                Outcome::Unknown(Unknown { why: "no answer".into() }),
                "SET a 1",
                "-UNKNOWN no answer (it may have happened)\r\n",
            ),
            (
                Outcome::Unknown(Unknown { why: "no answer".into() }),
                "MSET a 1 b 2",
                "-UNKNOWN no answer (it may have happened)\r\n",
            ),
            (Outcome::Done(Found::Lost), "GET a", "$-1\r\n"),
        ] {
            *toy.always.borrow_mut() = Some(outcome);
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
    });
}

#[test]
fn a_write_of_several_keys_that_failed_in_part_is_unknown() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["MSET a 1 b 2"]).await;
        until(|| toy.held.borrow().len() == 2).await;
        toy.release("PUT a");
        let (_, answer) = toy.held.borrow_mut().pop().unwrap();
        answer.send(Answer::Session(Outcome::Refused(Refused::busy("no room", Span::millis(20))))).unwrap();
        let reply = "-UNKNOWN 1 of 2 keys failed, the others are done: BUSY no room, retry in 20 ms\r\n";
        expect(&mut stream, reply, "MSET").await;
    });
}

#[test]
fn what_was_asked_is_answered_also_after_the_client_ended_its_side() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["SET a 1", "GET a"]).await;
        stream.shutdown().await.unwrap();
        until(|| toy.held.borrow().len() == 1).await;
        toy.release("PUT a");
        until(|| toy.held.borrow().len() == 1).await;
        toy.release("GET a");
        assert_eq!(expect_end(&mut stream).await, "+OK\r\n$1\r\n1\r\n");
    });
}

#[test]
fn a_closing_door_answers_what_has_come_and_then_ends_each_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let toy = Rc::new(Toy::default());
        toy.set_tokens(&[("carts", "secret")]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (close, closed) = oneshot::channel::<()>();
        let stop = async move { closed.await.unwrap() };
        let meter = Arc::new(Meter::new());
        let door =
            tokio::task::spawn_local(serve(listener, toy.clone(), Arc::clone(&meter), Functions::new(&meter), stop));
        let (mut idle, mut busy) = (TcpStream::connect(addr).await.unwrap(), TcpStream::connect(addr).await.unwrap());
        for stream in [&mut idle, &mut busy] {
            send(stream, &["AUTH carts secret"]).await;
            expect(stream, "+OK\r\n", "auth").await;
        }
        send(&mut idle, &["PING"]).await;
        expect(&mut idle, "+PONG\r\n", "a command").await;
        let mut new = TcpStream::connect(addr).await.unwrap();
        toy.holds.set(true);
        send(&mut busy, &["GET a", "GET b"]).await;
        while toy.held.borrow().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!meter.resp.is_empty());
        close.send(()).unwrap();
        assert_eq!(expect_end(&mut idle).await, "");
        // Who has just come is heard out.
        send(&mut new, &["AUTH carts secret"]).await;
        expect(&mut new, "+OK\r\n", "auth of the new one").await;
        send(&mut new, &["PING"]).await;
        assert_eq!(expect_end(&mut new).await, "+PONG\r\n");
        door.await.unwrap().unwrap();
        assert!(TcpStream::connect(addr).await.is_err(), "nobody new is let in");
        // The busy one is open until it has both answers.
        toy.release("GET a");
        expect(&mut busy, "$-1\r\n", "the first").await;
        assert!(!meter.resp.is_empty());
        toy.release("GET b");
        assert_eq!(expect_end(&mut busy).await, "$-1\r\n");
        drop((idle, busy, new));
        until(|| meter.resp.is_empty()).await;
    }));
}

#[test]
fn no_memory_is_told_in_the_word_that_redis_clients_know() {
    let full = base::Refused::busy(format!("{} (more)", state::session::FULL), Span::secs(1));
    let Err(encode::Reply::Error(text)) = ops::done(Outcome::Refused(full)) else { panic!("an error") };
    assert_eq!(text, "OOM the memory of the key's bricks is full (more)");
}
