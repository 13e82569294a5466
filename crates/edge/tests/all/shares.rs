//! One address may not have all connections of a door.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{Door, Plain, Toy, clone, connect, soon, view};
use clones::spec::{ServiceSpec, TcpRoute};
use clones::{RouteService, Routes};
use edge::http::Config;
use edge::{Meter, tcp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

fn from(address: &str) -> String {
    format!("PROXY TCP4 {address} 198.51.100.1 5 6\r\n")
}

#[tokio::test]
async fn an_address_gets_a_part_of_the_http_door_and_others_find_room() {
    let toy = Toy::steady("hi").await;
    let config = Config { accept_proxy: true, connections_max: 36, ..Config::default() };
    let door = Door::with(vec![clone(0, toy.addr, true)], config).await;
    let mut open = Vec::new();
    let mut ask = async |who: &str| {
        let mut client = door.client().await;
        client.send(format!("{}GET / HTTP/1.1\r\nHost: a\r\n\r\n", from(who))).await;
        let answer = client.answer().await;
        open.push(client);
        answer
    };
    for _ in 0..4 {
        assert_eq!(ask("203.0.113.1").await.status, 200);
    }
    let refused = ask("203.0.113.1").await;
    assert_eq!((refused.status, refused.body.contains("your address")), (503, true), "{refused:?}");
    assert!(refused.field("retry-after").is_some());
    assert_eq!(ask("203.0.113.2").await.status, 200);
    assert_eq!(door.meter.totals()["http.connections_over_share_total"], 1);
    // Who closes some may come back.
    open.clear();
    soon(async {
        while door.meter.http.connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut client = door.client().await;
    client.send(format!("{}GET / HTTP/1.1\r\nHost: a\r\n\r\n", from("203.0.113.1"))).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn programs_of_the_same_machine_may_have_them_all() {
    let toy = Toy::steady("hi").await;
    let config = Config { connections_max: 8, ..Config::default() };
    let door = Door::with(vec![clone(0, toy.addr, true)], config).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut client = door.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.answer().await.status, 200);
        open.push(client);
    }
    let mut client = door.client().await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.contains("too many connections here")), (503, true), "{answer:?}");
}

#[tokio::test]
async fn an_address_gets_a_part_of_the_tcp_door() {
    let toy = Toy::start(|_, mut stream, _| async move {
        stream.write_all(b"!").await?;
        stream.read_u8().await.map(drop)
    })
    .await;
    let addr: SocketAddr = Toy::absent().await;
    let spec = ServiceSpec {
        tcp: vec![TcpRoute { accept_proxy: true, ..TcpRoute::on(addr.port()) }],
        ..ServiceSpec::new(["x"])
    };
    let service = RouteService { clones: vec![clone(0, toy.addr, true)], ..RouteService::new("shop", &spec) };
    let (_sender, receiver) = watch::channel(view(Arc::new(Routes::new(vec![service]))));
    let meter = Arc::new(Meter::new());
    tokio::spawn(tcp::serve_with(addr.ip(), receiver, Arc::new(Plain), Arc::clone(&meter), Arc::default(), 36));
    let open = async |who: &str| -> Option<TcpStream> {
        let mut stream = connect(addr).await;
        stream.write_all(from(who).as_bytes()).await.unwrap();
        soon(stream.read_u8()).await.ok().map(|_| stream)
    };
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(open("203.0.113.1").await.unwrap());
    }
    assert!(open("203.0.113.1").await.is_none());
    assert!(open("203.0.113.2").await.is_some());
    assert_eq!(meter.totals()["tcp.connections_over_share_total"], 1);
    // The program spoke first, and that was its answer.
    let seen = meter.demands.take().groups["shop"].clones[0];
    assert_eq!((seen.done, seen.failed, seen.owes), (5, 0, 0));
}
