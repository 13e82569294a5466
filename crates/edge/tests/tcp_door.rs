//! The TCP door: bytes both ways, half-close, another clone when one is not there, listeners that follow the routes.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Toy, clone, connect, routes, soon, tcp_door, view};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends back all it gets once the client has ended its side.
async fn echo_at_end() -> Toy {
    Toy::start(|_, mut stream, _| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        stream.write_all(&all).await
    })
    .await
}

async fn talk(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    soon(async {
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all
    })
    .await
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    let toy = echo_at_end().await;
    let (addr, _view, _) = tcp_door(vec![clone(1, toy.addr, true)]).await;
    let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    assert!(talk(connect(addr).await, &bytes).await == bytes);
}

#[tokio::test]
async fn a_clone_that_is_not_there_is_passed_over_and_one_far_away_is_reached() {
    let toy = echo_at_end().await;
    let mut far = clone(2, Toy::absent().await, false);
    far.peer = toy.addr;
    let (addr, _view, meter) = tcp_door(vec![clone(1, Toy::absent().await, true), far]).await;
    for _ in 0..5 {
        assert_eq!(talk(connect(addr).await, b"hello").await, b"hello");
    }
    assert_eq!(meter.totals()["tcp.errors_total"], 0);
}

#[tokio::test]
async fn a_service_that_leaves_takes_its_listener_along_but_no_open_connection() {
    let toy = echo_at_end().await;
    let (addr, sender, _) = tcp_door(vec![clone(1, toy.addr, true)]).await;
    let mut open = connect(addr).await;
    open.write_all(b"hel").await.unwrap();
    soon(async {
        while toy.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    sender.send_replace(view(routes(Vec::new(), None)));
    soon(async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(talk(open, b"lo").await, b"hello");
}
