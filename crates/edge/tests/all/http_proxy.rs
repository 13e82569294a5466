//! What the HTTP door passes on, and what it does when clones fail: real sockets, toy clones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Door, Toy, clone, dead, field, ok, routes, soon, view};
use base::NodeId;
use clones::{RouteClone, Routes};
use edge::http::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

const GET: &str = "GET /x?y=1 HTTP/1.1\r\nHost: shop:8080\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn a_request_and_its_answer_pass_without_what_was_for_one_hop() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        let answer = "HTTP/1.1 418 Short\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-End: 2\r\n\
            Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nhi";
        stream.write_all(answer.as_bytes()).await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let answer = door
        .ask(
            "GET /a%20b?c=d HTTP/1.1\r\nHost: shop:8080\r\nConnection: keep-alive, x-mine\r\nX-Mine: 1\r\nTE: gzip\r\n\
             X-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Other: y\r\n\r\n",
        )
        .await;
    assert_eq!((answer.status, answer.body.as_str()), (418, "hi"));
    assert_eq!(answer.field("x-end").as_deref(), Some("2"));
    assert!(answer.field("x-hop").is_none() && answer.field("keep-alive").is_none(), "{answer:?}");
    assert_eq!(answer.head.matches("set-cookie").count(), 2);

    let seen = &toy.seen()[0];
    assert!(seen.starts_with("GET /a%20b?c=d HTTP/1.1\r\n"), "{seen}");
    assert!(!seen.contains("6.6.6.6") && field(seen, "x-mine").is_none() && field(seen, "te").is_none(), "{seen}");
    assert_eq!(field(seen, "host").as_deref(), Some("shop:8080"));
    assert_eq!(field(seen, "x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(field(seen, "forwarded").as_deref(), Some("for=127.0.0.1;proto=http;host=\"shop:8080\""));
    assert_eq!(field(seen, "x-other").as_deref(), Some("y"));
}

#[tokio::test]
async fn an_absolute_target_reaches_the_clone_as_a_path() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    assert_eq!(door.ask("GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    assert_eq!(door.ask("GET /1.0 HTTP/1.0\r\n\r\n").await.status, 200);
    let seen = toy.seen();
    assert!(seen[0].starts_with("GET /x?y HTTP/1.1\r\n"), "{seen:?}");
    assert_eq!(field(&seen[1], "host"), Some(toy.addr.to_string()), "HTTP/1.1 needs a host");
}

#[tokio::test]
async fn one_connection_to_the_clone_serves_many_requests_of_many_clients() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    for _ in 0..5 {
        let mut client = door.client().await;
        for request in [GET, POST, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"] {
            client.send(request).await;
            if request.starts_with("HEAD") {
                // The toy sends a body to HEAD, which ends that line; so ask without it.
                continue;
            }
            assert_eq!(client.answer().await.body, "hi");
        }
        assert!(client.head().await.contains("content-length: 2"));
    }
    assert_eq!(toy.seen().len(), 15);
    assert!(toy.connections() <= 6, "{} connections", toy.connections());
    assert_eq!(door.meter.totals()["http.requests_total"], 15);
}

#[tokio::test]
async fn sequential_requests_use_one_line() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    for _ in 0..20 {
        client.send(GET).await;
        assert_eq!(client.answer().await.body, "hi");
        client.send(POST).await;
        assert_eq!(client.answer().await.body, "hi");
    }
    assert_eq!(toy.connections(), 1);
}

#[tokio::test]
async fn a_clone_that_cannot_be_reached_is_passed_over_whatever_the_method() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[Toy::absent().await, Toy::absent().await, toy.addr]).await;
    for _ in 0..20 {
        assert_eq!(door.ask(POST).await.body, "hi");
    }
    assert!(toy.seen().iter().all(|seen| seen.ends_with("hello")));
    assert_eq!(toy.seen().len(), 20);
}

#[tokio::test]
async fn a_get_goes_to_another_clone_when_the_first_dies_on_it() {
    let (deadly, toy) = (Toy::deadly().await, Toy::steady("hi").await);
    let door = Door::to(&[deadly.addr, toy.addr]).await;
    for _ in 0..20 {
        assert_eq!(door.ask(GET).await.body, "hi");
    }
    assert!(!deadly.seen().is_empty(), "20 random choices met it at least once");
    assert_eq!(door.meter.totals()["http.errors_total"], 0);
}

#[tokio::test]
async fn a_get_goes_to_another_clone_when_the_first_dies_between_head_and_body() {
    let half = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").await
    })
    .await;
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[half.addr, toy.addr]).await;
    for _ in 0..20 {
        assert_eq!(door.ask(GET).await.body, "hi");
    }
    assert!(!half.seen().is_empty(), "20 random choices met it at least once");
}

/// What a client hears when its request was given to a clone that dies, with a sound clone beside it.
async fn sent_to_deadly(request: &str) -> (crate::common::Answer, Vec<String>) {
    let deadly = Toy::deadly().await;
    let door = Door::to(&[deadly.addr]).await;
    let toy = Toy::steady("hi").await;
    let mut client = door.client().await;
    // The sound clone appears only once the deadly one has the request: no luck in the choice.
    client.send(request).await;
    soon(async {
        while deadly.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    door.view.send_replace(view(routes(vec![clone(1, deadly.addr, true), clone(2, toy.addr, true)], None)));
    (client.answer().await, toy.seen())
}

#[tokio::test]
async fn a_post_that_a_clone_may_have_seen_is_never_sent_again() {
    let (answer, seen) = sent_to_deadly(POST).await;
    assert_eq!(answer.status, 502);
    assert!(answer.body.contains("unknown"), "{answer:?}");
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn what_may_be_repeated_is_sent_again_with_its_body() {
    for request in [
        POST.replace("POST", "PUT"),
        POST.replace("Host: a", "Host: a\r\nIdempotency-Key: k"),
        POST.replace("POST", "DELETE"),
    ] {
        let (answer, seen) = sent_to_deadly(&request).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hi"), "{request}");
        assert!(seen.len() == 1 && seen[0].ends_with("hello"), "{seen:?}");
    }
}

#[tokio::test]
async fn a_request_at_a_node_that_hangs_ends_when_that_is_known() {
    for (request, status) in [(POST.to_owned(), 502), (POST.replace("POST", "PUT"), 200)] {
        let hung = Toy::start(|toy, mut stream, _| async move {
            toy.read_request(&mut stream).await?;
            std::future::pending().await
        })
        .await;
        let steady = Toy::steady("hi").await;
        let far = RouteClone { node: NodeId(2), ..clone(1, hung.addr, false) };
        let door = Door::with(vec![far], Config::default()).await;
        let mut client = door.client().await;
        client.send(&request).await;
        soon(async {
            while !hung.seen().iter().any(|seen| seen.ends_with("hello")) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        door.view.send_replace(dead(NodeId(2), routes(vec![clone(2, steady.addr, true)], None)));
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[tokio::test]
async fn a_request_that_kills_each_clone_is_given_to_three_at_most() {
    let mut deadly = Vec::new();
    for _ in 0..5 {
        deadly.push(Toy::deadly().await);
    }
    let door = Door::to(&deadly.iter().map(|toy| toy.addr).collect::<Vec<_>>()).await;
    assert_eq!(door.ask(GET).await.status, 502);
    assert_eq!(deadly.iter().map(Toy::connections).sum::<usize>(), 3);
}

#[tokio::test]
async fn a_connection_that_the_clone_closed_while_idle_does_not_fail_the_next_request() {
    for next in [GET, POST] {
        let closed = Arc::new(Notify::new());
        let tell = Arc::clone(&closed);
        // Answers one request on each connection and closes it, without having said so.
        let toy = Toy::start(move |toy, mut stream, _| {
            let tell = Arc::clone(&tell);
            async move {
                toy.read_request(&mut stream).await?;
                stream.write_all(ok("hi").as_bytes()).await?;
                drop(stream);
                tell.notify_one();
                Ok(())
            }
        })
        .await;
        let door = Door::to(&[toy.addr]).await;
        let mut client = door.client().await;
        for _ in 0..20 {
            client.send(next).await;
            assert_eq!(client.answer().await.body, "hi");
            soon(closed.notified()).await;
        }
        assert_eq!((toy.seen().len(), toy.connections()), (20, 20));
    }
}

#[tokio::test]
async fn bodies_stream_both_ways_before_they_end() {
    // Echoes the body's parts as they come, as chunks.
    let toy = Toy::start(|_, mut stream, _| async move {
        let mut bytes = vec![0; 4096];
        let mut got = String::new();
        while !got.contains("one") {
            let count = stream.read(&mut bytes).await?;
            got.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nONE\r\n").await?;
        while !got.contains("two") {
            let count = stream.read(&mut bytes).await?;
            got.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        stream.write_all(b"3\r\nTWO\r\n0\r\n\r\n").await?;
        stream.read(&mut bytes).await.map(drop)
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.chunk().await, "ONE", "before the second part was sent");
    client.send("3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!([client.chunk().await, client.chunk().await], ["TWO", ""]);
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let toy = Toy::start(|_, mut stream, _| async move {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"END") {
            stream.read_buf(&mut bytes).await?;
        }
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len() - at).as_bytes()).await?;
        stream.write_all(&bytes[at..]).await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let body: String = (0..300_000).map(|i| char::from(b'a' + (i % 23) as u8)).collect::<String>() + "END";
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = door.ask(&request).await;
    assert!(answer.body == body, "{} bytes of {}", answer.body.len(), body.len());
}

#[tokio::test]
async fn a_client_that_expects_100_gets_it_before_it_sends() {
    let toy = Toy::steady("hi").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 100"));
    client.send("hello").await;
    assert_eq!(client.answer().await.body, "hi");
    // Whether it wants the body is the program's to say.
    assert!(toy.seen()[0].ends_with("hello") && field(&toy.seen()[0], "expect").as_deref() == Some("100-continue"));
}

const WEBSOCKET: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways_until_both_end() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let head = toy.read_request(&mut stream).await?;
        assert_eq!(field(&head, "upgrade").as_deref(), Some("websocket"));
        assert_eq!(field(&head, "connection").as_deref(), Some("upgrade"));
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nearly";
        stream.write_all(answer.as_bytes()).await?;
        let mut bytes = [0; 64];
        while let count = stream.read(&mut bytes).await?
            && count > 0
        {
            stream.write_all(&bytes[..count]).await?;
        }
        stream.write_all(b"late").await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(format!("{WEBSOCKET}soon")).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(field(&head, "upgrade").as_deref(), Some("websocket"));
    assert!(field(&head, "sec-websocket-accept").is_some());
    assert_eq!(&client.bytes::<9>().await, b"earlysoon");
    for _ in 0..3 {
        client.send(b"\x81\0\n\r\n GET").await;
        assert_eq!(&client.bytes::<9>().await, b"\x81\0\n\r\n GET");
    }
    client.0.shutdown().await.unwrap();
    assert_eq!(client.until_end().await.unwrap(), "late");
}

#[tokio::test]
async fn a_flood_of_web_socket_frames_waits_for_the_clone_and_is_not_kept() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        let head = toy.read_request(&mut stream).await?;
        if field(&head, "upgrade").is_none() {
            return stream.write_all(crate::common::ok("well").as_bytes()).await;
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer.as_bytes()).await?;
        // It never reads.
        std::future::pending().await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(WEBSOCKET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    // Empty masked pings, 6 bytes each.
    let flood = [0x89, 0x80, 0, 0, 0, 0].repeat(10_000);
    let mut taken = 0usize;
    let stalled = async {
        while taken < 256 << 20 {
            client.0.write_all(&flood).await.unwrap();
            taken += flood.len();
        }
    };
    // What the kernel's buffers hold on the way is all that goes.
    let stalled = tokio::time::timeout(std::time::Duration::from_secs(2), stalled).await;
    assert!(stalled.is_err() && taken < 64 << 20, "{taken} bytes were taken for a clone that reads nothing");
    assert_eq!(door.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.body, "well", "others do not notice");
}

#[tokio::test]
async fn an_upgrade_that_the_clone_declines_is_an_ordinary_answer() {
    let toy = Toy::steady("no").await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(WEBSOCKET).await;
    assert_eq!(client.answer().await.body, "no");
    client.send(GET).await;
    assert_eq!(client.answer().await.body, "no");
    client.send(WEBSOCKET.replace("websocket", "h2c")).await;
    assert_eq!(client.answer().await.body, "no");
    assert!(field(&toy.seen()[2], "upgrade").is_none(), "HTTP/2 in the clear is not offered");
}

#[tokio::test]
async fn an_answer_101_that_nobody_asked_for_is_502() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    assert_eq!(door.ask(POST).await.status, 502);
}

#[tokio::test]
async fn without_a_clone_a_request_waits_a_moment_and_then_gets_503() {
    let door = Door::to(&[]).await;
    let began = Instant::now();
    let answer = door.ask(POST).await;
    assert_eq!(answer.status, 503);
    assert!((1..=3).contains(&answer.field("retry-after").unwrap().parse::<u32>().unwrap()));
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < Duration::from_secs(3));
    assert_eq!(door.meter.totals()["http.errors_total"], 1);
}

#[tokio::test]
async fn a_clone_that_comes_while_a_request_waits_serves_it() {
    let (door, toy) = (Door::to(&[Toy::absent().await]).await, Toy::steady("hi").await);
    let mut client = door.client().await;
    client.send(POST).await;
    door.view.send_replace(view(routes(vec![clone(2, toy.addr, true)], None)));
    assert_eq!(client.answer().await.body, "hi");
}

#[tokio::test]
async fn what_is_not_routed_gets_404_at_once() {
    let mut mail = routes(Vec::new(), None).services[0].clone();
    mail.http = None;
    let door = Door::at(Arc::new(Routes::new(vec![mail])), Config::default()).await;
    let answer = door.ask(GET).await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("coppice status"));
}

#[tokio::test]
async fn a_node_that_has_just_started_waits_for_its_first_routes() {
    let (door, toy) = (Door::at(Arc::default(), Config::default()).await, Toy::steady("hi").await);
    let mut client = door.client().await;
    client.send(GET).await;
    door.view.send_replace(view(routes(vec![clone(1, toy.addr, true)], None)));
    assert_eq!(client.answer().await.body, "hi");
}

#[tokio::test]
async fn when_the_client_leaves_its_clone_hears_of_it() {
    let left = Arc::new(Notify::new());
    let tell = Arc::clone(&left);
    let toy = Toy::start(move |toy, mut stream, _| {
        let tell = Arc::clone(&tell);
        async move {
            toy.read_request(&mut stream).await?;
            tell.notify_one();
            assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "the door hangs up");
            tell.notify_one();
            Ok(())
        }
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    client.send(GET).await;
    soon(left.notified()).await;
    drop(client);
    soon(left.notified()).await;
}

/// What a client gets in virtual time, which jumps when no task has anything to do.
async fn get_slowly(door: &Door) -> String {
    let mut client = door.client().await;
    client.0.write_all(GET.replace("Host", "Connection: close\r\nHost").as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_does_not_answer_within_a_minute_is_504() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.read(&mut [0]).await.map(drop)
    })
    .await;
    let began = tokio::time::Instant::now();
    let answer = get_slowly(&Door::to(&[toy.addr]).await).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    // Less what it was with the door before.
    assert!(began.elapsed() >= Duration::from_secs(59) && began.elapsed() < Duration::from_secs(62));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_slow_answer_is_not_let_go() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        toy.read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlo").await?;
        // Longer than an idle client may be silent.
        tokio::time::sleep(Duration::from_secs(200)).await;
        stream.write_all(b"ng").await
    })
    .await;
    let answer = get_slowly(&Door::to(&[toy.addr]).await).await;
    assert!(answer.ends_with("\r\n\r\nlong"), "{answer}");
}

#[tokio::test]
async fn clones_on_other_nodes_are_reached_through_the_dialer() {
    let toy = Toy::steady("far").await;
    let mut far = clone(1, Toy::absent().await, false);
    far.peer = toy.addr;
    let door = Door::with(vec![far], Config::default()).await;
    let mut client = door.client().await;
    for request in [GET, POST, GET, POST] {
        client.send(request).await;
        assert_eq!(client.answer().await.body, "far");
    }
    assert_eq!(toy.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let toy = Toy::start(|toy, mut stream, number| async move {
        toy.read_request(&mut stream).await?;
        let framing = if number == 0 { "Content-Length: 100" } else { "Transfer-Encoding: chunked" };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n4\r\nhalf\r\n").as_bytes()).await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    for _ in 0..2 {
        let mut client = door.client().await;
        client.send(POST).await;
        // The head may or may not have left when the end shows; what counts is that nothing whole arrives.
        let all = client.until_end().await.unwrap_or_default();
        assert!(all.len() < 190 && !all.ends_with("0\r\n\r\n"), "{all:?}");
    }
    assert_eq!(toy.connections(), 2);
}

#[tokio::test]
async fn answers_without_length_and_old_clients_are_served() {
    let toy = Toy::start(|toy, mut stream, number| async move {
        toy.read_request(&mut stream).await?;
        let answer = match number {
            0 => "HTTP/1.0 200 OK\r\n\r\nto the end",
            1 => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n3\r\nhey\r\n0\r\n\r\n",
            2 => "HTTP/1.1 204 No Content\r\n\r\n",
            3 => "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
            _ => "bogus\r\n\r\n",
        };
        stream.write_all(answer.as_bytes()).await
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let answer = door.ask(GET).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "to the end"));
    let mut old = door.client().await;
    old.send("GET / HTTP/1.0\r\n\r\n").await;
    let answer = old.until_end().await.unwrap();
    assert!(answer.ends_with("\r\n\r\nhey") && !answer.contains("chunked") && !answer.contains("99"), "{answer:?}");
    assert_eq!(door.ask(GET).await.status, 204);
    let mut client = door.client().await;
    client.send(GET).await;
    assert!(client.head().await.starts_with("HTTP/1.1 103"));
    assert_eq!(client.answer().await.status, 304);
    assert_eq!(door.ask(POST).await.status, 502);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let toy = Toy::start(|toy, mut stream, _| async move {
        while let Ok(seen) = toy.read_request(&mut stream).await {
            let path = seen.split(' ').nth(1).unwrap().to_string();
            stream.write_all(ok(&path).as_bytes()).await?;
        }
        Ok(())
    })
    .await;
    let door = Door::to(&[toy.addr]).await;
    let mut client = door.client().await;
    let all: String =
        (0..50).map(|i| format!("POST /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")).collect();
    client.send(all).await;
    for i in 0..50 {
        assert_eq!(client.answer().await.body, format!("/{i}"));
    }
    assert_eq!(toy.connections(), 1);
}

#[tokio::test]
async fn behind_a_balancer_the_client_is_who_it_names_and_who_names_none_is_not_heard() {
    let toy = Toy::steady("hi").await;
    let config = Config { accept_proxy: true, ..Config::default() };
    let door = Door::with(vec![clone(1, toy.addr, true)], config).await;
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x08\xc6\x33\x64\x01\0\x05\0\x06";
    for (nth, (says, client)) in [
        (&b"PROXY TCP4 192.0.2.7 198.51.100.1 5 6\r\n"[..], "192.0.2.7"),
        (&b"PROXY TCP6 2001:db8::7 2001:db8::1 5 6\r\n"[..], "2001:db8::7"),
        (&binary[..], "192.0.2.8"),
        (&b"PROXY UNKNOWN\r\n"[..], "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut asks = door.client().await;
        // In two packets, as networks may bring it.
        asks.send(&says[..9]).await;
        tokio::task::yield_now().await;
        asks.send([&says[9..], get].concat()).await;
        assert_eq!(asks.answer().await.status, 200);
        assert_eq!(crate::common::field(&toy.seen()[nth], "x-forwarded-for").as_deref(), Some(client));
    }
    let mut bare = door.client().await;
    bare.send(get).await;
    // Closed or reset, as what it said was not read.
    assert_eq!(bare.until_end().await.unwrap_or_default(), "");
    assert_eq!(toy.seen().len(), 4, "who came past the balancer is not heard");
}
