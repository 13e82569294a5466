//! Connections: strangers, half requests, many at once, those who do not read, and the door's end.

use base::Because;

use super::*;

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
        toy.forget();
        for _ in 0..limits::WRONG_PASSWORDS_MAX {
            send(&mut stream, &["AUTH carts secret"]).await;
            expect(&mut stream, "-LOADING this node has just started and knows no namespaces yet\r\n", "unheard").await;
        }
        toy.set_tokens(&[("carts", "changed")]);
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
            pause().await;
            let held: Vec<_> = toy.held.borrow().iter().map(|(op, _)| shown(op)).collect();
            assert_eq!(held, step);
            step.iter().for_each(|name| toy.release(name));
        }
        expect(&mut stream, "$-1\r\n$-1\r\n+OK\r\n$1\r\n1\r\n:1\r\n$-1\r\n", "in order").await;
    });
}

#[test]
fn behind_a_command_that_runs_alone_errors_let_nothing_pass() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["DBSIZE", "NOSUCH", "SET k v"]).await;
        until(|| !toy.held.borrow().is_empty()).await;
        pause().await;
        assert_eq!(toy.seen.take(), ["COUNT "]);
        toy.release("COUNT ");
        until(|| toy.held.borrow().len() == 1).await;
        toy.release("PUT k");
        expect(&mut stream, ":0\r\n-ERR 'NOSUCH' is not", "in order").await;
    });
}

#[test]
fn a_command_that_waited_for_its_turn_is_not_run_for_who_is_a_stranger_by_then() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["SET a 1", "SET a 2"]).await;
        until(|| toy.held.borrow().len() == 1).await;
        toy.set_tokens(&[("other", "secret2")]);
        pause().await;
        toy.release("PUT a");
        let strange = "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n";
        expect(&mut stream, &format!("+OK\r\n{strange}"), "its token is gone").await;
        send(&mut stream, &["GET a"]).await;
        expect(&mut stream, strange, "and the connection is there").await;
        assert_eq!(toy.seen.take(), ["PUT a"]);
    });
}

#[test]
fn a_transaction_is_not_refused_in_part() {
    let toy = Toy::default();
    toy.sheds.set(true);
    with_door_of(toy, |toy, mut stream, close| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        toy.holds.set(true);
        // More is held than there may be for long, by so many that nobody's pipeline is to blame.
        let mut crowd = Vec::new();
        let commands: Vec<String> = (0..24).map(|n| format!("GETDEL k{n}")).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        for _ in 0..60 {
            let mut one = another(&stream).await;
            send(&mut one, &commands).await;
            crowd.push(one);
        }
        until(|| toy.asked().len() >= limits::LINEAR_STAGE.limit.first as usize).await;
        let (all_came, target) = (std::time::Instant::now(), limits::LINEAR_STAGE.wait_target.as_millis());
        until(|| all_came.elapsed().as_millis() > 2 * u128::from(target)).await;
        // One more, and it is seen how late they are.
        send(&mut crowd[0], &["INCR more"]).await;
        pause().await;
        send(&mut stream, &["INCR a"]).await;
        expect(&mut stream, "-BUSY overloaded: this node takes no more, retry in 100 ms\r\n", "alone").await;
        send(&mut stream, &["UNWATCH", "MULTI", "INCR a", "INCR b", "DISCARD", "MULTI", "INCR a", "INCR b"]).await;
        let queued = "+OK\r\n+QUEUED\r\n+QUEUED\r\n";
        expect(&mut stream, &format!("+OK\r\n{queued}+OK\r\n{queued}"), "kept").await;
        assert!(!toy.asked().contains(&"number.add a".to_owned()), "nothing goes alone");
        send(&mut stream, &["DISCARD", "EXEC"]).await;
        expect(&mut stream, "+OK\r\n-ERR EXEC without MULTI\r\n", "given up").await;
        send(&mut stream, &["WATCH a", "WATCH a", "MULTI", "INCR a", "EXEC"]).await;
        let busy = "-BUSY overloaded: this node takes no more, retry in 100 ms\r\n".repeat(2);
        expect(&mut stream, &format!("{busy}+OK\r\n+QUEUED\r\n"), "").await;
        // Its turn comes when others have had theirs.
        let conditions = RefCell::new(None);
        until(|| {
            let (op, answer) = toy.held_linear.borrow_mut().remove(0);
            if shown_linear(&op) == "number.add a" {
                conditions.replace(Some(op.conditions.clone()));
            }
            let done = op.steps.iter().map(|_| linear::Reply::Int(1)).collect();
            drop(answer.send(Answer::Linear(Outcome::Done(linear::Ran::Done(done)))));
            conditions.borrow().is_some() || toy.held_linear.borrow().is_empty()
        })
        .await;
        let never = linear::Condition { key: "a".into(), version: u64::MAX };
        assert_eq!(conditions.take(), Some(vec![never]), "it does not run without what it was to watch");
        drop(close);
    });
}

#[test]
fn commands_under_way_have_only_so_many_bytes_together() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        let (size, count) = (4 << 20, 20);
        let most = limits::IN_FLIGHT_BYTES_MAX / size;
        let value = vec![b'v'; size];
        let (mut read, mut write) = stream.split();
        let sending = async {
            for n in 0..count {
                write.write_all(&resp(&[b"SET", format!("k{n}").as_bytes(), &value])).await.unwrap();
            }
        };
        let answering = async {
            until(|| toy.held.borrow().len() >= most).await;
            pause().await;
            assert_eq!(toy.held.borrow().len(), most);
            toy.holds.set(false);
            (0..most).for_each(|n| toy.release(&format!("PUT k{n}")));
            let mut got = vec![0; count * "+OK\r\n".len()];
            read.read_exact(&mut got).await.unwrap();
        };
        tokio::join!(sending, answering);
        assert_eq!(toy.seen.borrow().len(), count);
    });
}

/// It is seen that this client has small answers.
async fn small_answers(stream: &mut TcpStream) {
    send(stream, &["PING"; 8]).await;
    expect(stream, &"+PONG\r\n".repeat(8), "small answers").await;
}

#[test]
fn large_answers_come_a_few_at_a_time() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        let value = vec![b'v'; 12 << 20];
        stream.write_all(&resp(&[b"SET", b"large", &value])).await.unwrap();
        expect(&mut stream, "+OK\r\n", "SET").await;
        toy.holds.set(true);
        send(&mut stream, &["GET large"; 200]).await;
        // AUTH and SET had small ones.
        let first = limits::IN_FLIGHT_BYTES_MAX / (limits::ANSWER_BYTES_FIRST / 4);
        until(|| toy.held.borrow().len() >= first).await;
        let mut got = vec![0; "$12582912\r\n\r\n".len() + value.len()];
        for under_way in (3..first).rev().chain([3, 3]) {
            toy.release("GET large");
            stream.read_exact(&mut got).await.unwrap();
            pause().await;
            assert_eq!(toy.held.borrow().len(), under_way);
        }
    });
}

#[test]
fn a_client_that_sends_without_end_has_only_so_much_under_way() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        small_answers(&mut stream).await;
        toy.holds.set(true);
        let commands: Vec<String> = (0..1000).map(|i| format!("GET k{i}")).collect();
        send(&mut stream, &commands.iter().map(String::as_str).collect::<Vec<_>>()).await;
        until(|| toy.held.borrow().len() == limits::IN_FLIGHT_MAX).await;
        pause().await;
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
        until(|| toy.meter.stages.get("resp-session").is_some_and(|s| s.started > 64 && s.under_way == 0)).await;
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
    let full = base::Refused::busy(format!("{} (more)", state::session::FULL), Span::secs(1)).because(Because::Room);
    let Err(encode::Reply::Error(text)) = ops::done(Outcome::Refused(full)) else { panic!("an error") };
    assert_eq!(text, "OOM the memory of the key's bricks is full (more)");
}

#[test]
fn a_namespace_that_has_all_that_it_may_is_told_so_and_is_no_fault_of_this_door() {
    use class::Bound;
    let over = || ops::refused(&Bound::Keys.refused());
    assert_eq!(over(), encode::Reply::Error(format!("OOM {}", Bound::Keys.why())));
    let rate =
        base::Refused::busy(format!("{}, so and so", node::used::OVER_RATE), Span::millis(7)).because(Because::Rate);
    let rate = ops::refused(&rate);
    assert_eq!(rate, encode::Reply::error("BUSY rate_max of this namespace is reached, so and so, retry in 7 ms"));
    assert!(!ops::is_ours(&over()) && !ops::is_ours(&rate));
    assert!(ops::is_ours(&ops::refused(&base::Refused::busy("so many wait", Span::millis(7)))));
}
