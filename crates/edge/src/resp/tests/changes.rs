//! Keyspace events, and clients that keep values (CLIENT TRACKING).

use super::*;

/// A namespace of class `linear` with one shard, in a cluster whose nodes are all new.
pub fn set_bank(toy: &Toy, level: u32) {
    toy.set_linear();
    let shard = node::view::ShardView { name: "bank/0".into(), from: 0, to: u64::MAX, leader: None, members: vec![] };
    toy.show(node::view::NamespaceView {
        class: "linear".into(),
        shards: [shard].into(),
        ..namespace("bank", "none", None)
    });
    let mut view = View::clone(&toy.view.borrow());
    view.root.level = level;
    *toy.view.borrow_mut() = Arc::new(view);
    *toy.bank.borrow_mut() = Some(bank());
}

async fn sign_in_three(stream: &mut TcpStream) {
    send(stream, &["HELLO 3 AUTH bank secret3", "ECHO end"]).await;
    let mut seen = String::new();
    while !seen.ends_with("$3\r\nend\r\n") {
        seen.push(char::from(stream.read_u8().await.unwrap()));
    }
}

fn event(of: &str, channel: &str, said: &str) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let channel = format!("__{of}@0__:{channel}");
    let pattern = format!("__{of}@0__:*");
    format!("*4\r\n{}{}{}{}", bulk("pmessage"), bulk(&pattern), bulk(&channel), bulk(said))
}

fn stale(keys: &[&str]) -> String {
    let keys: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect::<Vec<_>>().concat();
    format!(">2\r\n$10\r\ninvalidate\r\n*{}\r\n{keys}", keys.matches('$').count())
}

const ALL_STALE: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

#[test]
fn who_listens_to_keys_is_told_what_happens_to_them() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        sign_in_linear(&mut stream).await;
        let mut writer = another(&stream).await;
        send(&mut writer, &["SET before 1"]).await;
        expect(&mut writer, "+OK\r\n", "SET").await;
        send(&mut stream, &["PSUBSCRIBE __keyspace@0__:*"]).await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$16\r\n__keyspace@0__:*\r\n:1\r\n", "PSUBSCRIBE").await;
        send(
            &mut writer,
            &["SET k 1", "INCR k", "PERSIST k", "EXPIRE k 100", "PERSIST k", "LPUSH l a", "LMOVE l m LEFT RIGHT"],
        )
        .await;
        expect(&mut writer, "+OK\r\n:2\r\n:0\r\n:1\r\n:1\r\n:1\r\n$1\r\na\r\n", "writes").await;
        send(&mut writer, &["RENAME m n", "SADD s x", "SPOP s", "MULTI", "SET k 2", "DEL k", "EXEC"]).await;
        expect(&mut writer, "+OK\r\n:1\r\n$1\r\nx\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n", "more").await;
        for (key, said) in [
            ("k", "set"),
            ("k", "incrby"),
            ("k", "expire"),
            ("k", "persist"),
            ("l", "lpush"),
            ("l", "lpop"),
            ("l", "del"),
            ("m", "rpush"),
            ("m", "rename_from"),
            ("n", "rename_to"),
            ("s", "sadd"),
            ("s", "spop"),
            ("s", "del"),
            ("k", "set"),
            ("k", "del"),
        ] {
            expect(&mut stream, &event("keyspace", key, said), "in order").await;
        }
        send(&mut stream, &["PUNSUBSCRIBE", "PSUBSCRIBE __keyevent@0__:*"]).await;
        expect(&mut stream, "*3\r\n$12\r\npunsubscribe\r\n$16\r\n__keyspace@0__:*\r\n:0\r\n", "PUNSUBSCRIBE").await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$16\r\n__keyevent@0__:*\r\n:1\r\n", "PSUBSCRIBE").await;
        send(&mut writer, &["APPEND t abc"]).await;
        expect(&mut stream, &event("keyevent", "append", "t"), "by event").await;
    });
}

#[test]
fn where_nobody_can_tell_of_keys_nobody_listens_in_vain() {
    with_door(|toy, mut stream| async move {
        // What they say of it came with level 8.
        set_bank(&toy, 7);
        let mut old = another(&stream).await;
        send(&mut old, &["SUBSCRIBE __keyevent@0__:expired"]).await;
        expect(&mut old, "-ERR changes of keys are told when the last node has the new program\r\n", "old").await;
        sign_in(&mut stream).await;
        send(&mut stream, &["PSUBSCRIBE __keyspace@0__:*", "GET x"]).await;
        expect(
            &mut stream,
            "-ERR class session tells nobody which keys change: classes linear and soft do (docs/guide/channels.md)\r\n$-1\r\n",
            "session",
        )
        .await;
    });
}

#[test]
fn who_keeps_what_it_has_read_is_told_when_that_changes_and_once() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut writer = another(&stream).await;
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON", "GET a", "MGET b c"]).await;
        expect(&mut stream, "+OK\r\n", "TRACKING").await;
        let mut begun = String::new();
        // What was read before the feed began is told of then.
        while !begun.contains("*2\r\n_\r\n_\r\n") {
            begun.push(char::from(stream.read_u8().await.unwrap()));
        }
        send(&mut stream, &["PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        send(&mut stream, &["GET a", "MGET b c"]).await;
        expect(&mut stream, "_\r\n*2\r\n_\r\n_\r\n", "reads").await;
        send(&mut writer, &["SET a 1", "SET x 1", "MSET b 2 c 3"]).await;
        let mut told = String::new();
        while !["a", "b", "c"].iter().all(|key| told.contains(&format!("$1\r\n{key}\r\n"))) {
            told.push(char::from(stream.read_u8().await.unwrap()));
        }
        assert!(!told.contains("$1\r\nx\r\n"), "{told}");
        send(&mut writer, &["SET a 2"]).await;
        expect(&mut writer, "+OK\r\n+OK\r\n+OK\r\n+OK\r\n", "SET").await;
        // It was told of that one already, and has not read it since: what comes next is about another key.
        send(&mut stream, &["GET b"]).await;
        expect(&mut stream, "$1\r\n2\r\n", "it is read again").await;
        send(&mut writer, &["SET b 3"]).await;
        expect(&mut stream, &stale(&["b"]), "and nothing before it").await;
    });
}

/// What one command of a pipeline begins another one of it may end before anybody has told that it has begun.
#[test]
fn what_a_pipeline_begins_and_ends_is_answered_as_if_it_came_one_by_one() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        for (commands, replies) in [
            (&["CLIENT TRACKING ON", "CLIENT TRACKING OFF", "CLIENT GETREDIR"][..], "+OK\r\n+OK\r\n:-1\r\n"),
            (
                &["CLIENT TRACKING ON BCAST", "CLIENT TRACKING OFF", "CLIENT TRACKING ON", "CLIENT GETREDIR"],
                "+OK\r\n+OK\r\n+OK\r\n:0\r\n",
            ),
            (&["CLIENT TRACKING OFF", "CLIENT TRACKING ON", "CLIENT TRACKING ON NOLOOP"], "+OK\r\n+OK\r\n+OK\r\n"),
            (&["CLIENT TRACKING OFF", "CLIENT TRACKING ON", "RESET"], "+OK\r\n+OK\r\n+RESET\r\n"),
            (&["CLIENT TRACKING ON", "AUTH bank secret3", "CLIENT GETREDIR"], "+OK\r\n+OK\r\n:0\r\n"),
            (
                &["CLIENT TRACKING OFF", "PSUBSCRIBE __keyspace@0__:*", "PUNSUBSCRIBE", "PING"],
                "+OK\r\n>3\r\n$10\r\npsubscribe\r\n$16\r\n__keyspace@0__:*\r\n:1\r\n\
                 >3\r\n$12\r\npunsubscribe\r\n$16\r\n__keyspace@0__:*\r\n:0\r\n+PONG\r\n",
            ),
            (&["CLIENT TRACKING ON", "QUIT"], "+OK\r\n+OK\r\n"),
        ] {
            sign_in_three(&mut stream).await;
            send(&mut stream, commands).await;
            expect(&mut stream, replies, &format!("{commands:?}")).await;
        }
    });
}

/// A client that has gone back to RESP2 could not tell what it is told from its replies.
#[test]
fn who_follows_values_and_goes_back_to_resp2_is_told_nothing_between_replies() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut writer = another(&stream).await;
        // Is told of the same, at the same time.
        let mut other = another(&stream).await;
        sign_in_three(&mut other).await;
        send(&mut other, &["CLIENT TRACKING ON BCAST"]).await;
        until_ends(&mut other, "+OK\r\n").await;
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON BCAST", "HELLO 2"]).await;
        until_ends(&mut stream, "modules\r\n*0\r\n").await;
        send(&mut writer, &["SET a 1"]).await;
        until_ends(&mut other, &stale(&["a"])).await;
        pause().await;
        send(&mut stream, &["PING", "HELLO 3"]).await;
        assert_eq!(until_ends(&mut stream, "modules\r\n*0\r\n").await.find("invalidate"), None);
        send(&mut writer, &["SET b 2"]).await;
        expect(&mut stream, &stale(&["b"]), "it is told again, and nothing that is older").await;
    });
}

/// Who hears that it is told nothing keeps nothing: it is as if it had not asked.
#[test]
fn who_could_not_begin_to_follow_values_does_not_follow_them() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut reader = another(&stream).await;
        sign_in_three(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["CLIENT TRACKING ON"]).await;
        until(|| toy.asked().iter().any(|asked| asked.starts_with("changes.prefix"))).await;
        tokio::time::pause();
        let said = until_ends(&mut stream, "\r\n").await;
        tokio::time::resume();
        assert!(said.starts_with("-BUSY nobody tells now"), "{said}");
        toy.holds.set(false);
        send(&mut reader, &["INFO clients"]).await;
        let info = until_ends(&mut reader, "clients_in_timeout_table:0\r\n").await;
        assert!(info.contains("tracking_clients:0\r\n"), "{info}");
        send(&mut stream, &["CLIENT GETREDIR", "GET k", "CLIENT TRACKING ON OPTIN", "CLIENT GETREDIR"]).await;
        expect(&mut stream, ":-1\r\n_\r\n+OK\r\n:0\r\n", "it is off, and can be begun in another way").await;
    });
}

async fn until_ends(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = String::new();
    while !seen.ends_with(end) {
        seen.push(char::from(stream.read_u8().await.unwrap()));
    }
    seen
}

/// Answers what was asked with this function.
async fn answer_held(toy: &Toy, function: &str, reply: linear::Reply) {
    let is_it = |op: &linear::Op| op.steps[0].function == function;
    until(|| toy.held_linear.borrow().iter().any(|(op, _)| is_it(op))).await;
    let mut held = toy.held_linear.borrow_mut();
    let at = held.iter().position(|(op, _)| is_it(op)).unwrap();
    let (_, send) = held.remove(at);
    send.send(Answer::Linear(Outcome::Done(linear::Ran::Done(vec![reply])))).unwrap();
}

fn changes(version: i64, key: &str) -> linear::Reply {
    use linear::Reply::{Bytes, Int, List, Nil};
    let text = |text: &str| Bytes(text.to_owned().into());
    let change = List(vec![Int(version), text(key), text("string"), Nil, text("put")]);
    List(vec![Int(version), List(vec![change])])
}

#[test]
fn a_change_during_a_read_is_told_behind_its_reply() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON"]).await;
        until_ends(&mut stream, "+OK\r\n").await;
        send(&mut stream, &["PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        toy.holds.set(true);
        // Two of them may have read what was there before.
        for (nth, get) in ["GET k", "GET k", "GET other"].iter().enumerate() {
            // Each by itself: what comes together is one operation.
            send(&mut stream, &[get]).await;
            until(|| toy.asked().iter().filter(|asked| asked.starts_with("get ")).count() == nth + 1).await;
        }
        answer_held(&toy, "changes.prefix", changes(5, "k")).await;
        pause().await;
        let old = || linear::Reply::Bytes("old".into());
        answer_held(&toy, "get", old()).await;
        let mut seen = until_ends(&mut stream, "old\r\n").await;
        answer_held(&toy, "get", old()).await;
        answer_held(&toy, "get", old()).await;
        while seen.matches("$3\r\nold\r\n").count() < 3 || seen.matches("invalidate").count() < 2 {
            seen.push(char::from(stream.read_u8().await.unwrap()));
        }
        let last = seen.rfind("invalidate").unwrap();
        let second = seen.match_indices("old").nth(1).unwrap().0;
        assert!(last > second, "{seen:?}");
        assert!(seen.find("invalidate").unwrap() > seen.find("old").unwrap(), "{seen:?}");
        // The other key is kept, and told of now.
        answer_held(&toy, "changes.prefix", changes(6, "other")).await;
        until_ends(&mut stream, &stale(&["other"])).await;
        // Where changes are gone, or all keys, everything is to be forgotten, by who may keep something.
        send(&mut stream, &["GET k"]).await;
        answer_held(&toy, "get", old()).await;
        until_ends(&mut stream, "old\r\n").await;
        let gone = linear::Reply::List(vec![linear::Reply::Int(90), linear::Reply::Nil, linear::Reply::Int(80)]);
        answer_held(&toy, "changes.prefix", gone).await;
        until_ends(&mut stream, ALL_STALE).await;
    });
}

#[test]
fn beginnings_choices_and_other_connections() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut writer = another(&stream).await;
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON BCAST PREFIX user: PREFIX cart:"]).await;
        until_ends(&mut stream, "+OK\r\n").await;
        send(&mut writer, &["SET item:1 x", "SET user:1 x"]).await;
        assert!(!until_ends(&mut stream, "$6\r\nuser:1\r\n").await.contains("item"));
        for (said, why) in [
            ("CLIENT TRACKING ON", "You can't switch BCAST mode on/off before disabling tracking"),
            ("CLIENT TRACKING ON BCAST PREFIX us", "Prefix 'us' overlaps with an existing prefix 'user:'"),
            ("CLIENT TRACKING ON BCAST PREFIX x PREFIX xy", "Prefix 'x' overlaps with another provided prefix 'xy'"),
            ("CLIENT TRACKING ON PREFIX x", "PREFIX option requires BCAST mode"),
            ("CLIENT TRACKING ON BCAST OPTIN", "OPTIN and OPTOUT are not compatible with BCAST"),
            ("CLIENT TRACKING ON OPTIN OPTOUT", "You can't specify both OPTIN mode and OPTOUT mode"),
            ("CLIENT TRACKING ON BCAST REDIRECT 999999", "The client ID you want redirect to does not exist"),
            ("CLIENT CACHING YES", "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode"),
            ("CLIENT TRACKING MAYBE", "syntax error"),
        ] {
            send(&mut stream, &[said]).await;
            let seen = until_ends(&mut stream, "\r\n").await;
            assert!(seen.starts_with(&format!("-ERR {why}")), "{said}: {seen}");
        }
        send(&mut stream, &["CLIENT TRACKING OFF", "CLIENT TRACKING ON OPTIN", "PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        send(&mut stream, &["GET a", "CLIENT CACHING YES", "GET b", "GET c"]).await;
        until_ends(&mut stream, "_\r\n+OK\r\n_\r\n_\r\n").await;
        send(&mut writer, &["MSET a 1 c 1 b 1"]).await;
        let seen = until_ends(&mut stream, &stale(&["b"])).await;
        assert!(!seen.contains("$1\r\na") && !seen.contains("$1\r\nc"), "{seen}");
        // In RESP2 another connection is told.
        let mut old = another(&stream).await;
        send(&mut writer, &["CLIENT ID", "SUBSCRIBE __redis__:invalidate"]).await;
        let seen = until_ends(&mut writer, "__redis__:invalidate\r\n:1\r\n").await;
        let id = seen.split("\r\n").find_map(|line| line.strip_prefix(':')).unwrap().to_owned();
        send(&mut old, &["CLIENT TRACKING ON"]).await;
        assert!(until_ends(&mut old, "\r\n").await.starts_with("-ERR in RESP2 nothing can be told"));
        send(&mut old, &[&format!("CLIENT TRACKING ON REDIRECT {id}"), "GET d", "CLIENT GETREDIR", "SET d 1"]).await;
        until_ends(&mut old, &format!("$-1\r\n:{id}\r\n+OK\r\n")).await;
        let told = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nd\r\n";
        until_ends(&mut writer, told).await;
        // What it follows is of the namespace that it was in.
        send(&mut old, &["AUTH carts secret", "CLIENT GETREDIR"]).await;
        expect(&mut old, "+OK\r\n:-1\r\n", "another namespace").await;
    });
}

#[test]
fn what_a_transaction_reads_is_followed_and_a_client_that_goes_leaves_nothing() {
    with_door(|toy, stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut writer = another(&stream).await;
        let mut reader = another(&stream).await;
        sign_in_three(&mut reader).await;
        send(&mut reader, &["CLIENT TRACKING ON", "PING"]).await;
        until_ends(&mut reader, "+PONG\r\n").await;
        send(&mut reader, &["MULTI", "GET a", "SET b 1", "EXEC", "CLIENT TRACKINGINFO"]).await;
        until_ends(
            &mut reader,
            "*2\r\n_\r\n+OK\r\n%3\r\n$5\r\nflags\r\n~1\r\n$2\r\non\r\n$8\r\nredirect\r\n:0\r\n$8\r\nprefixes\r\n*0\r\n",
        )
        .await;
        send(&mut writer, &["SET a 1"]).await;
        until_ends(&mut reader, &stale(&["a"])).await;
        send(&mut reader, &["GET a"]).await;
        until_ends(&mut reader, "$1\r\n1\r\n").await;
        send(&mut writer, &["INFO clients"]).await;
        let seen = until_ends(&mut writer, "clients_in_timeout_table:0\r\n").await;
        assert!(seen.contains("tracking_clients:1\r\n"), "{seen}");
        drop(reader);
        for _ in 0..100 {
            send(&mut writer, &["INFO stats"]).await;
            let seen = until_ends(&mut writer, "tracking_total_prefixes:0\r\n").await;
            if seen.contains("tracking_total_keys:0\r\n") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("its keys are kept though it has gone");
    });
}

#[test]
fn with_noloop_nobody_is_told_of_his_own_changes() {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, base::LEVEL);
        let mut writer = another(&stream).await;
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON NOLOOP"]).await;
        until_ends(&mut stream, "+OK\r\n").await;
        send(&mut stream, &["GET a", "GET b", "GET z", "PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        let own = [
            "SET a 1",
            "APPEND a x",
            "DEL a",
            "MSET a 2 b 2",
            "INCR b",
            "RENAME b a",
            "DEL none",
            "SADD s x",
            "SADD s x",
        ];
        send(&mut stream, &own).await;
        until_ends(&mut stream, "+OK\r\n:2\r\n:1\r\n+OK\r\n:3\r\n+OK\r\n:0\r\n:1\r\n:0\r\n").await;
        send(&mut stream, &["MULTI", "SET a 3", "INCR a", "EXEC"]).await;
        until_ends(&mut stream, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:4\r\n").await;
        send(&mut writer, &["SET z 1"]).await;
        expect(&mut stream, &stale(&["z"]), "nothing of its own before it").await;
        // What others change of the same keys is told.
        send(&mut writer, &["SET a 5"]).await;
        expect(&mut stream, &stale(&["a"]), "of others").await;
        send(&mut stream, &["CLIENT TRACKING OFF", "CLIENT TRACKING ON BCAST NOLOOP"]).await;
        until_ends(&mut stream, "+OK\r\n+OK\r\n").await;
        send(&mut stream, &["SET a 6", "PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        send(&mut writer, &["SET a 7"]).await;
        expect(&mut stream, &stale(&["a"]), "once: of others").await;
        send(&mut writer, &["SET c 7"]).await;
        expect(&mut stream, &stale(&["c"]), "none was left over").await;
    });
}

#[test]
fn what_is_heard_of_while_a_client_writes_is_told_if_it_was_not_its_own() {
    with_door(|toy, mut stream| async move {
        use linear::Reply::Int;
        set_bank(&toy, base::LEVEL);
        sign_in_three(&mut stream).await;
        send(&mut stream, &["CLIENT TRACKING ON NOLOOP"]).await;
        until_ends(&mut stream, "+OK\r\n").await;
        send(&mut stream, &["GET k", "PING"]).await;
        until_ends(&mut stream, "+PONG\r\n").await;
        toy.holds.set(true);
        send(&mut stream, &["INCR k"]).await;
        until(|| toy.held_linear.borrow().iter().any(|(op, _)| op.steps.len() == 3)).await;
        // One by somebody else just before it, and its own.
        for version in [5, 6] {
            answer_held(&toy, "changes.prefix", changes(version, "k")).await;
        }
        pause().await;
        let (op, send_back) = {
            let mut held = toy.held_linear.borrow_mut();
            let at = held.iter().position(|(op, _)| op.steps.len() == 3).unwrap();
            held.remove(at)
        };
        assert_eq!(op.steps.iter().map(|step| step.function).collect::<Vec<_>>(), ["version", "number.add", "version"]);
        send_back.send(Answer::Linear(Outcome::Done(linear::Ran::Done(vec![Int(5), Int(2), Int(6)])))).unwrap();
        let mut seen = until_ends(&mut stream, "k\r\n").await;
        if !seen.contains(":2\r\n") {
            seen += &until_ends(&mut stream, "\r\n").await;
        }
        assert_eq!((seen.matches("invalidate").count(), seen.matches(":2\r\n").count()), (1, 1), "{seen}");
    });
}
