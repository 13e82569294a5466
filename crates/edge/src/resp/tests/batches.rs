//! Commands of a pipeline that are asked as one operation of class `linear`, and what each is told when that ends otherwise.

use super::*;
use linear::{Ran, Reply as Got, Wrong};

/// Answers the first question that is kept.
fn answer(toy: &Toy, outcome: Outcome<Ran>) {
    let (_, answer) = toy.held_linear.borrow_mut().remove(0);
    answer.send(Answer::Linear(outcome)).expect("somebody waits for it");
}

fn done(got: &[Got]) -> Outcome<Ran> {
    Outcome::Done(Ran::Done(got.to_vec()))
}

/// What `put` says that has stored something.
fn stored() -> Got {
    Got::List(vec![Got::Int(1), Got::Int(1)])
}

/// A client of a node that keeps its questions.
fn with_held<F: Future<Output = ()>>(test: impl FnOnce(Rc<Toy>, TcpStream) -> F) {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        toy.holds.set(true);
        test(toy, stream).await;
    });
}

#[test]
fn a_pipeline_of_one_key_waits_for_few_majorities() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        send(&mut stream, &vec!["INCR n"; 100]).await;
        let replies: String = (1..=100).map(|n| format!(":{n}\r\n")).collect();
        expect(&mut stream, &replies, "in order").await;
        let asked = toy.priorities.take().len();
        assert!(asked <= 4, "{asked} operations for what came in one or two pieces");
        let sets: Vec<String> = (0..100).flat_map(|n| [format!("SET k{n} v{n}"), format!("GET k{n}")]).collect();
        send(&mut stream, &sets.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let replies: String = (0..100).map(|n| format!("+OK\r\n${}\r\nv{n}\r\n", format!("v{n}").len())).collect();
        expect(&mut stream, &replies, "each reads what was written before it").await;
        let asked = toy.priorities.take().len();
        assert!(asked <= 8, "{asked} operations for two hundred commands");
    });
}

#[test]
fn what_came_together_is_one_operation_in_its_order() {
    with_held(|toy, mut stream| async move {
        let commands =
            ["SET a 1", "STRLEN a", "INCR a", "EXISTS b", "SET b 2", "GET c", "DEL a", "GET a", "HGET d f", "PING"];
        send(&mut stream, &commands).await;
        until(|| toy.asked().len() == 3).await;
        // What only reads needs no entry of the log, if nothing else of its key is written.
        let one = "put a, text.length a, number.add a, remove a, get a";
        assert_eq!(toy.asked(), [one, "exists b, put b", "get c, hash.get d"]);
    });
}

#[test]
fn long_answers_are_not_put_at_risk() {
    with_held(|toy, mut stream| async move {
        // A write behind a read of its key waits: the read may have to be repeated. So does one that hands out what was there.
        send(&mut stream, &["GET a", "STRLEN b", "SET a 1", "SET b 1", "GETDEL b", "SET c 1 GET"]).await;
        until(|| toy.asked() == ["get a, text.length b"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 1);
        answer(&toy, done(&[Got::Nil, Got::Int(0)]));
        until(|| toy.asked() == ["put a, put b"]).await;
        answer(&toy, done(&[stored(), stored()]));
        until(|| toy.asked() == ["take b", "put c"]).await;
        answer(&toy, done(&[Got::Bytes("1".into())]));
        answer(&toy, done(&[stored()]));
        expect(&mut stream, "$-1\r\n:0\r\n+OK\r\n+OK\r\n$1\r\n1\r\n", "in order").await;
    });
}

#[test]
fn each_of_those_that_came_together_hears_what_came_of_it() {
    with_held(|toy, mut stream| async move {
        let three = ["INCR a", "INCR b", "INCR c"];
        let all = "number.add a, number.add b, number.add c";
        for (outcome, reply) in [
            (Outcome::Unknown(Unknown { why: "its leader died".into() }), "-UNKNOWN"),
            (Outcome::Refused(Refused::busy("no leader", Span::millis(5))), "-BUSY"),
        ] {
            send(&mut stream, &three).await;
            until(|| toy.asked() == [all]).await;
            answer(&toy, outcome);
            for _ in three {
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    line.push(stream.read_u8().await.unwrap());
                }
                assert!(line.starts_with(reply.as_bytes()), "{}", String::from_utf8_lossy(&line));
            }
        }
        // Refused for what one of them says, or as there is no room for all: each by itself, in order.
        let refused = Outcome::Refused(Refused::wrong("a key is too long"));
        for outcome in [refused.clone(), done(&[const { Got::Wrong(Wrong::BytesMax) }; 3])] {
            send(&mut stream, &three).await;
            until(|| toy.asked() == [all]).await;
            answer(&toy, outcome);
            until(|| toy.asked() == ["number.add a"]).await;
            answer(&toy, done(&[Got::Int(1)]));
            until(|| toy.asked() == ["number.add b"]).await;
            answer(&toy, refused.clone());
            until(|| toy.asked() == ["number.add c"]).await;
            answer(&toy, done(&[Got::Int(3)]));
            expect(&mut stream, ":1\r\n-ERR a key is too long\r\n:3\r\n", "its own").await;
        }
        // Answers that are too long together are asked for again.
        send(&mut stream, &["GET a", "GET b", "GET c"]).await;
        until(|| toy.asked() == ["get a, get b, get c"]).await;
        answer(&toy, done(&[Got::Bytes("1".into()), Got::Wrong(Wrong::LongAnswer), Got::Nil]));
        until(|| toy.asked() == ["get b"]).await;
        answer(&toy, done(&[Got::Bytes("2".into())]));
        expect(&mut stream, "$1\r\n1\r\n$1\r\n2\r\n$-1\r\n", "all of them").await;
    });
}

#[test]
fn what_lies_in_several_shards_is_an_operation_for_each() {
    with_held(|toy, mut stream| async move {
        let half = u64::MAX / 2;
        let shard = |name: &str, from, to| node::view::ShardView {
            name: name.into(),
            from,
            to,
            leader: None,
            members: Vec::new(),
        };
        let shards = [shard("bank/2", half + 1, u64::MAX), shard("bank/1", 0, half)].into();
        toy.show(node::view::NamespaceView { class: "linear".into(), shards, ..namespace("bank", "none", None) });
        let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        let incrs: Vec<String> = keys.iter().map(|key| format!("INCR {key}")).collect();
        send(&mut stream, &incrs.iter().map(String::as_str).collect::<Vec<_>>()).await;
        until(|| toy.asked().iter().map(|op| op.split(", ").count()).sum::<usize>() == 20).await;
        for op in &toy.asked() {
            let of = |step: &str| linear::hash_of(step.trim_start_matches("number.add ").as_bytes()) > half;
            let mut steps = op.split(", ").map(of);
            let first = steps.next().expect("it has one");
            assert!(steps.all(|other| other == first), "{op}");
        }
        assert!(toy.asked().len() <= 4, "{:?}", toy.asked());
    });
}

#[test]
fn sixteen_pipelines_of_a_hundred_are_no_overload() {
    let toy = Toy::default();
    toy.sheds.set(true);
    with_door_of(toy, |toy, stream, close| async move {
        toy.set_linear();
        toy.holds.set(true);
        let commands: Vec<String> = (0..100).map(|n| format!("INCR k{n}")).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let mut clients = Vec::new();
        for _ in 0..16 {
            let mut one = another(&stream).await;
            send(&mut one, &commands).await;
            clients.push(one);
        }
        let steps = || toy.held_linear.borrow().iter().map(|(op, _)| op.steps.len()).sum::<usize>();
        until(|| steps() == 1_600).await;
        assert!(toy.held_linear.borrow().len() <= limits::LINEAR_STAGE.limit.min as usize, "as little as there may be");
        for (op, send) in toy.held_linear.take() {
            let _ = send.send(Answer::Linear(done(&vec![Got::Int(1); op.steps.len()])));
        }
        for one in &mut clients {
            expect(one, &":1\r\n".repeat(100), "all are done").await;
        }
        drop(close);
    });
}
