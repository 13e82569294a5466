//! Clients that listen to channels, in both dialects.

use ::channels::{Kind, Message, Op, Reply as Got};

use super::*;
use crate::resp::limits::*;

const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
const HI: &str = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";

fn message(namespace: &str, payload: &str) -> Message {
    Message { namespace: namespace.into(), shard: false, channel: "a".into(), payload: payload.to_owned().into() }
}

/// Another node brings these.
async fn comes(toy: &Toy, messages: Vec<Message>) {
    until(|| toy.listens.borrow().is_some()).await;
    let listens = toy.listens.take().unwrap();
    listens.send(Answer::Channels(Outcome::Done(Got::Heard(messages)))).unwrap();
}

async fn other(stream: &TcpStream) -> TcpStream {
    let mut other = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
    sign_in(&mut other).await;
    other
}

#[test]
fn messages_of_this_node_and_of_others_come_to_who_listens() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        let mut speaker = other(&stream).await;
        send(&mut stream, &["SUBSCRIBE a"]).await;
        expect(&mut stream, SUBSCRIBED, "SUBSCRIBE").await;
        send(&mut speaker, &["PUBLISH a hi", "PUBLISH b hi", "SPUBLISH a hi"]).await;
        expect(&mut speaker, ":3\r\n:2\r\n:2\r\n", "one here and two elsewhere").await;
        expect(&mut stream, HI, "of this node").await;
        comes(&toy, vec![message("other", "no"), message("carts", "hi")]).await;
        expect(&mut stream, HI, "of its namespace alone").await;
        send(&mut stream, &["PSUBSCRIBE a* [b]", "UNSUBSCRIBE", "PING", "PING x"]).await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:2\r\n", "counted together").await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$3\r\n[b]\r\n:3\r\n", "two replies").await;
        expect(&mut stream, "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n", "UNSUBSCRIBE").await;
        expect(&mut stream, "*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$1\r\nx\r\n", "PING").await;
        comes(&toy, vec![message("carts", "hi")]).await;
        let by_pattern = "*4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$1\r\na\r\n$2\r\nhi\r\n";
        expect(&mut stream, by_pattern, "by the pattern").await;
        drop(stream);
        let ended = |op: &Op| matches!(op, Op::Unsubscribe { kind: Kind::Pattern, names, .. } if names.len() == 2);
        until(|| toy.channels.borrow().iter().any(ended)).await;
    });
}

#[test]
fn in_resp2_who_listens_does_little_else_and_in_resp3_everything() {
    with_door(|_, mut stream| async move {
        sign_in(&mut stream).await;
        send(&mut stream, &["SUBSCRIBE a", "GET x"]).await;
        expect(&mut stream, SUBSCRIBED, "SUBSCRIBE").await;
        let error = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                     this context\r\n";
        expect(&mut stream, error, "GET").await;
        send(&mut stream, &["RESET", "GET x", "HELLO 3 AUTH carts secret"]).await;
        expect(&mut stream, "+RESET\r\n-NOAUTH Authentication required: AUTH <namespace> <token>\r\n%7\r\n", "RESET")
            .await;
        send(&mut stream, &["ECHO end"]).await;
        let mut seen = String::new();
        while !seen.ends_with("$3\r\nend\r\n") {
            seen.push(char::from(stream.read_u8().await.unwrap()));
        }
        send(&mut stream, &["SUBSCRIBE a", "GET x"]).await;
        expect(&mut stream, &SUBSCRIBED.replace('*', ">"), "SUBSCRIBE").await;
        expect(&mut stream, "_\r\n", "GET").await;
        send(&mut stream, &["PUBLISH a hi"]).await;
        expect(&mut stream, &HI.replace('*', ">"), "as a push").await;
        expect(&mut stream, ":3\r\n", "PUBLISH").await;
        send(&mut stream, &["UNSUBSCRIBE", "UNSUBSCRIBE"]).await;
        expect(&mut stream, ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n", "UNSUBSCRIBE").await;
        expect(&mut stream, ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n", "of none").await;
    });
}

#[test]
fn what_is_listened_to_is_told() {
    check(&[
        ("PUBSUB CHANNELS", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("PUBSUB CHANNELS [b]", "*1\r\n$1\r\nb\r\n"),
        ("PUBSUB NUMSUB a", "*2\r\n$1\r\na\r\n:3\r\n"),
        ("PUBSUB NUMPAT", ":2\r\n"),
    ]);
}

#[test]
fn what_cannot_be_is_refused() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.too_old.set(true);
        send(&mut stream, &["SUBSCRIBE a", "PUBLISH a hi"]).await;
        expect(&mut stream, "-ERR too old\r\n-ERR too old\r\n", "not all nodes have it").await;
        toy.too_old.set(false);
        send(&mut stream, &["GET x"]).await;
        expect(&mut stream, "$-1\r\n", "it listens to nothing").await;
        let many: Vec<String> = (0..=PATTERNS_MAX).map(|n| n.to_string()).collect();
        send(&mut stream, &[&format!("PSUBSCRIBE {}", many.join(" "))]).await;
        expect(&mut stream, "-ERR one client listens to 1024 patterns at most\r\n", "too many").await;
        assert_eq!(toy.meter.totals()["resp.subscriptions_refused_total"], 1);
        toy.set_linear();
        let mut bank = another(&stream).await;
        send(&mut bank, &["MULTI", "SUBSCRIBE a", "EXEC"]).await;
        let replies = "+OK\r\n-ERR 'SUBSCRIBE' cannot stand inside MULTI: say it before, or after EXEC\r\n-EXECABORT";
        expect(&mut bank, replies, "in a transaction").await;
    });
}

#[test]
fn a_message_of_a_transaction_is_sent_when_it_was_done_and_not_if_it_was_not() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let mut listener = another(&stream).await;
        send(&mut listener, &["SUBSCRIBE a"]).await;
        expect(&mut listener, SUBSCRIBED, "SUBSCRIBE").await;
        // As Celery stores a result.
        send(&mut stream, &["MULTI", "SET k v", "PUBLISH a first", "GET k"]).await;
        expect(&mut stream, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n", "MULTI").await;
        send(&mut stream, &["EXEC"]).await;
        let others = published(&mut stream, "*3\r\n+OK\r\n:", "\r\n$1\r\nv\r\n").await;
        assert!(others >= 1, "who listens here is one of them");
        // Discarded or refused it is not.
        send(&mut stream, &["MULTI", "PUBLISH a no", "DISCARD", "MULTI", "PUBLISH a no", "NOSUCH", "EXEC"]).await;
        let mut rest = String::new();
        while !rest.contains("EXECABORT") {
            rest.push_str(&some(&mut stream).await);
        }
        send(&mut stream, &["MULTI", "PUBLISH a last", "EXEC"]).await;
        let told = |text: &str| format!("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n${}\r\n{text}\r\n", text.len());
        expect(&mut listener, &(told("first") + &told("last")), "what is heard").await;
    });
}

async fn some(stream: &mut TcpStream) -> String {
    let mut got = vec![0; 4_096];
    let count = stream.read(&mut got).await.unwrap();
    String::from_utf8_lossy(&got[..count]).into_owned()
}

/// How many heard it, between these.
async fn published(stream: &mut TcpStream, before: &str, behind: &str) -> u64 {
    let mut got = String::new();
    while !got.ends_with(behind) {
        got.push_str(&some(stream).await);
    }
    let count = got.strip_prefix(before).and_then(|got| got.strip_suffix(behind));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{got}"))
}

#[test]
fn who_does_not_read_is_closed_and_others_hear_all() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        let mut good = other(&stream).await;
        for one in [&mut stream, &mut good] {
            send(one, &["SUBSCRIBE a"]).await;
            expect(one, SUBSCRIBED, "SUBSCRIBE").await;
        }
        let text = "x".repeat(512 << 10);
        let told = format!("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n${}\r\n{text}\r\n", text.len());
        let mut got = vec![0; told.len()];
        let closed = || toy.meter.totals()["resp.subscribers_closed_total"];
        for _ in 0..100 {
            comes(&toy, vec![message("carts", &text)]).await;
            good.read_exact(&mut got).await.unwrap();
            assert!(got == told.as_bytes());
        }
        assert_eq!(closed(), 1);
        assert_eq!(toy.meter.gauges()["resp.subscribers_bytes"], 0);
    });
}

#[test]
fn a_token_that_was_changed_lets_nobody_listen_on() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        send(&mut stream, &["SUBSCRIBE a"]).await;
        expect(&mut stream, SUBSCRIBED, "SUBSCRIBE").await;
        toy.set_tokens(&[("carts", "new"), ("other", "secret2")]);
        comes(&toy, vec![message("carts", "hi")]).await;
        let ended = |op: &Op| matches!(op, Op::Unsubscribe { .. });
        until(|| toy.channels.borrow().iter().any(ended)).await;
        send(&mut stream, &["GET x"]).await;
        expect(&mut stream, "-NOAUTH", "it is a stranger, and heard nothing").await;
    });
}

#[test]
fn different_patterns_of_a_namespace_have_a_bound_and_the_same_ones_do_not_count_twice() {
    with_door(|_, mut stream| async move {
        sign_in(&mut stream).await;
        let words = |from: usize| (0..PATTERNS_MAX).map(|n| format!(" p{}", from + n)).collect::<String>();
        let mut clients = Vec::new();
        // The last one says what the first one has said.
        for from in (0..PATTERNS_OF_SPACE_MAX).step_by(PATTERNS_MAX).chain([0]) {
            let mut client = other(&stream).await;
            send(&mut client, &[&format!("PSUBSCRIBE{}", words(from))]).await;
            let replies = (0..PATTERNS_MAX).map(|n| {
                let name = format!("p{}", from + n);
                format!("*3\r\n$10\r\npsubscribe\r\n${}\r\n{name}\r\n:{}\r\n", name.len(), n + 1)
            });
            expect(&mut client, &replies.collect::<String>(), "patterns").await;
            clients.push(client);
        }
        send(&mut stream, &["PSUBSCRIBE p0 q"]).await;
        let error = "-ERR clients of a namespace listen to 8192 patterns at a node at most\r\n";
        expect(&mut stream, error, "one pattern more").await;
        send(&mut clients[1], &["PUNSUBSCRIBE p1024"]).await;
        expect(&mut clients[1], "*3\r\n$12\r\npunsubscribe\r\n$5\r\np1024\r\n:1023\r\n", "one less").await;
        send(&mut stream, &["PSUBSCRIBE p0 q"]).await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$2\r\np0\r\n:1\r\n", "there is room for another one").await;
    });
}
