//! Partitions at the HTTP door: who gets what, and browsers that stay with a clone.

use std::io;

use crate::common::{Door, Toy, clone, field, parted, view};
use clones::Partition;
use clones::partition::Affinity;
use edge::http::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn two() -> (Toy, Toy) {
    (Toy::steady("zero").await, Toy::steady("one").await)
}

#[tokio::test]
async fn a_partition_goes_to_its_own_clones_and_the_rest_to_the_others() {
    let (zero, one) = two().await;
    let clones = vec![clone(0, zero.addr, true), clone(1, one.addr, true)];
    let pay = Partition { method: vec!["POST".into()], share: "50%".parse().unwrap(), ..Partition::new("pay") };
    let door = Door::at(parted(clones, None, vec![pay]), Config::default()).await;
    for _ in 0..10 {
        let post = door.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        let get = door.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!((post.body.as_str(), get.body.as_str()), ("zero", "one"));
    }
}

#[tokio::test]
async fn a_browser_stays_with_its_clone_until_that_is_gone() {
    let (zero, one) = two().await;
    let clones = vec![clone(0, zero.addr, true), clone(1, one.addr, true)];
    let sticky = || vec![Partition { affinity: Affinity::Sticky, ..Partition::new("shop") }];
    let door = Door::at(parted(clones.clone(), None, sticky()), Config::default()).await;
    let first = door.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let set = first.field("set-cookie").unwrap();
    let (cookie, attributes) = set.split_once(';').unwrap();
    assert!(cookie.starts_with("coppice-at-shop.shop="), "{set}");
    assert!(attributes.contains("HttpOnly") && attributes.contains("SameSite=Lax") && !attributes.contains("Secure"));
    assert!(!cookie.contains("shop/") && !cookie.contains("127.0.0.1"), "opaque: {cookie}");

    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: a=b; {cookie}\r\n\r\n");
    for _ in 0..20 {
        let answer = door.ask(&request).await;
        assert_eq!((&answer.body, answer.field("set-cookie")), (&first.body, None));
    }
    let left = clones.into_iter().filter(|c| (c.name == "shop/0") != (first.body == "zero")).collect();
    door.view.send_replace(view(parted(left, None, sticky())));
    let other = crate::common::soon(async {
        loop {
            let answer = door.ask(&request).await;
            if answer.body != first.body {
                return answer;
            }
        }
    })
    .await;
    assert!(other.field("set-cookie").is_some_and(|set| !set.starts_with(cookie)), "{other:?}");
}

#[tokio::test]
async fn a_path_that_may_be_read_in_two_ways_is_refused_only_if_they_lead_to_different_places() {
    let (zero, one) = two().await;
    let clones = vec![clone(0, zero.addr, true), clone(1, one.addr, true)];
    let pay = Partition { path: Some("/pay".into()), share: "50%".parse().unwrap(), ..Partition::new("pay") };
    let door = Door::at(parted(clones, None, vec![pay]), Config::default()).await;
    for (path, body) in [
        ("/pay", Some("zero")),
        ("/p%61y/a%2fb?x=/../", Some("zero")),
        ("/pay/./a//b/../c", Some("zero")),
        ("/search/../%20", Some("one")),
        ("/group%2Fname", Some("one")),
        ("/pay/../search", None),
        ("/search/%2e%2e/pay", None),
        ("/pay%2f..%2fsearch", None),
        ("/pay%2Fx", None),
        ("//pay", None),
    ] {
        let answer = door.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        match body {
            Some(body) => assert_eq!((answer.status, answer.body.as_str()), (200, body), "{path}"),
            None => assert!(answer.status == 400 && answer.body.contains("different places"), "{path}: {answer:?}"),
        }
    }
    // The program gets them as they were written.
    let seen = [zero.seen(), one.seen()].concat();
    for path in ["/p%61y/a%2fb?x=/../", "/pay/./a//b/../c", "/search/../%20"] {
        assert!(seen.iter().any(|head| head.starts_with(&format!("GET {path} HTTP/1.1\r\n"))), "{path}: {seen:?}");
    }
    assert_eq!(seen.len(), 5);
}

/// Says yes to an upgrade and each byte back from there on; answers all else.
async fn talks(toy: Toy, mut stream: TcpStream, _: usize) -> io::Result<()> {
    while field(&toy.read_request(&mut stream).await?, "upgrade").is_none() {
        stream.write_all(crate::common::ok("well").as_bytes()).await?;
    }
    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await?;
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            count => stream.write_all(&bytes[..count]).await?,
        }
    }
}

#[tokio::test]
async fn open_connections_outlive_changes_of_routes() {
    let toy = Toy::start(talks).await;
    let clones = || vec![clone(0, toy.addr, true)];
    let door = Door::at(parted(clones(), None, Vec::new()), Config::default()).await;
    let (mut kept, mut upgraded) = (door.client().await, door.client().await);
    upgraded.send("GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
    assert!(upgraded.head().await.starts_with("HTTP/1.1 101"));
    for name in ["first", "second", "third"] {
        let everything = Partition { affinity: Affinity::Sticky, path: Some("/".into()), ..Partition::new(name) };
        door.view.send_replace(view(parted(clones(), None, vec![everything])));
        // Its cookie tells which routes a request has met.
        crate::common::soon(async {
            loop {
                kept.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n").await;
                let answer = kept.answer().await;
                assert_eq!(answer.body, "well");
                if answer.field("set-cookie").is_some_and(|set| set.starts_with(&format!("coppice-at-shop.{name}="))) {
                    return;
                }
            }
        })
        .await;
        upgraded.send(name).await;
        let mut back = vec![0; name.len()];
        crate::common::soon(upgraded.0.read_exact(&mut back)).await.unwrap();
        assert_eq!(back, name.as_bytes());
    }
}
