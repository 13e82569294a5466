//! The TCP door: bytes both ways, half-close, another clone when one is not there, listeners that follow the routes.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{Plain, Toy, clone, connect, dead, routes, soon, tcp_door, view};
use base::NodeId;
use clones::spec::{ProxyVersion, ServiceSpec, TcpRoute};
use clones::{RouteClone, RouteService, Routes};
use edge::{Meter, tcp};
use node::View;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

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
async fn a_connection_to_a_node_that_hangs_ends_when_that_is_known() {
    let toy = Toy::start(|_, stream, _| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let (addr, sender, _) = tcp_door(vec![RouteClone { node: NodeId(2), ..clone(1, toy.addr, false) }]).await;
    let mut client = connect(addr).await;
    client.write_all(b"hello").await.unwrap();
    soon(async {
        while toy.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    sender.send_replace(dead(NodeId(2), routes(Vec::new(), Some(addr.port()))));
    assert_eq!(soon(client.read(&mut [0])).await.unwrap_or(0), 0);
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

/// A door for these services, all on one port.
async fn door(services: impl Fn(u16) -> Vec<(TcpRoute, SocketAddr)>) -> (SocketAddr, watch::Sender<Arc<View>>) {
    let addr = Toy::absent().await;
    let service = |(i, (tcp, at)): (usize, (TcpRoute, SocketAddr))| {
        let spec = ServiceSpec { tcp: vec![tcp], ..ServiceSpec::new(["x"]) };
        RouteService { clones: vec![clone(i, at, true)], ..RouteService::new(&format!("s{i}"), &spec) }
    };
    let services = services(addr.port()).into_iter().enumerate().map(service).collect();
    let (sender, receiver) = watch::channel(view(Arc::new(Routes::new(services))));
    tokio::spawn(tcp::serve(addr.ip(), receiver, Arc::new(Plain), Arc::new(Meter::new()), Arc::default()));
    (addr, sender)
}

#[tokio::test]
async fn a_balancer_says_who_the_client_is_and_the_program_is_told() {
    let toy = echo_at_end().await;
    let at = toy.addr;
    let tcp = move |port| TcpRoute { accept_proxy: true, send_proxy: Some(ProxyVersion::V1), ..TcpRoute::on(port) };
    let (addr, _view) = door(move |port| vec![(tcp(port), at)]).await;
    let got = talk(connect(addr).await, b"PROXY TCP4 192.0.2.1 198.51.100.1 5 6\r\nhello").await;
    let expect = format!("PROXY TCP4 192.0.2.1 127.0.0.1 5 {}\r\nhello", addr.port());
    assert_eq!(String::from_utf8(got).unwrap(), expect);
    let mut bare = connect(addr).await;
    bare.write_all(b"hello, this is longer than it must be").await.unwrap();
    assert!(soon(bare.read_u8()).await.is_err(), "closed");
    assert_eq!(toy.connections(), 1);
}

#[tokio::test]
async fn a_clone_with_one_port_is_told_at_which_door_each_client_came() {
    let toy = echo_at_end().await;
    let ports = [Toy::absent().await, Toy::absent().await];
    let names = ["smtp", "pop3"];
    let tcp = ports.iter().zip(names).map(|(at, name)| TcpRoute::named(name, at.port())).collect();
    let spec = ServiceSpec { tcp, ..ServiceSpec::new(["x"]) };
    let mail = RouteService { clones: vec![clone(1, toy.addr, true)], ..RouteService::new("mail", &spec) };
    let (_sender, view) = watch::channel(view(Arc::new(Routes::new(vec![mail]))));
    tokio::spawn(tcp::serve(ports[0].ip(), view, Arc::new(Plain), Arc::new(Meter::new()), Arc::default()));
    for (at, name) in ports.iter().zip(names) {
        let got = talk(connect(*at).await, b"hello").await;
        assert_eq!(&got[..14], b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
        let length = usize::from(got[15]);
        assert_eq!(&got[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
        assert_eq!(got[28..16 + length], [&[0xe0, 0, 4], name.as_bytes()].concat());
        assert_eq!(&got[16 + length..], b"hello");
    }
}

#[tokio::test]
async fn what_clones_do_with_connections_is_counted_for_the_manager() {
    // The first byte says what the clone does: answers after 50 ms, ends without a word, keeps silent.
    let toy = Toy::start(|_, mut stream, _| async move {
        match stream.read_u8().await? {
            b'a' => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                stream.write_all(b"!").await?;
                stream.read_u8().await.map(drop)
            }
            b'k' => std::future::pending().await,
            _ => Ok(()),
        }
    })
    .await;
    let (addr, _view, meter) = tcp_door(vec![clone(1, toy.addr, true)]).await;
    let say = async |byte: u8| {
        let mut stream = connect(addr).await;
        // What it waits before it speaks is not the clone's time.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stream.write_all(&[byte]).await.unwrap();
        stream
    };
    let told = || meter.demands.take().groups["shop"].clone();
    let mut answered = say(b'a').await;
    assert_eq!(soon(answered.read_u8()).await.unwrap(), b'!');
    let seen = told().clones[0];
    assert_eq!((seen.done, seen.failed), (1, 0));
    assert!((50_000..100_000).contains(&seen.busy_us), "{seen:?}");
    assert!(soon(say(b'x').await.read_u8()).await.is_err());
    let seen = told().clones[0];
    assert_eq!((seen.done, seen.failed, seen.failing), (1, 1, 1));
    let _silent = say(b'k').await;
    soon(async {
        while told().clones.iter().all(|clone| clone.owes == 0) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    // Who says nothing is owed nothing, and what comes after the first answer is nobody's matter.
    let _idle = connect(addr).await;
    drop(answered);
    let seen = told().clones[0];
    assert_eq!((seen.done, seen.owes), (0, 1));
    for _ in 0..edge::http::limits::OUTLIER_AFTER {
        assert!(soon(say(b'x').await.read_u8()).await.is_err());
    }
    assert_eq!(meter.totals()["http.clones_left_alone_total"], 1);
}

#[tokio::test]
async fn tls_is_passed_on_unread_by_the_host_that_is_asked_for() {
    let (one, other) = (echo_at_end().await, echo_at_end().await);
    let at = [("a.db.example", one.addr), ("*.db.example", other.addr)];
    let service = |port, sni: &str| TcpRoute { sni: Some(sni.into()), ..TcpRoute::on(port) };
    let (addr, _view) = door(move |port| at.iter().map(|(sni, at)| (service(port, sni), *at)).collect()).await;
    let hello = |name: &'static str| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    };
    for (name, expect) in [("a.db.example", (1, 0)), ("b.db.example", (1, 1))] {
        let bytes = hello(name);
        // In two packets.
        let mut stream = connect(addr).await;
        stream.write_all(&bytes[..40]).await.unwrap();
        tokio::task::yield_now().await;
        assert!(talk(stream, &bytes[40..]).await == bytes, "{name}");
        assert_eq!((one.connections(), other.connections()), expect, "{name}");
    }
    for bytes in [hello("other.example"), b"SSH-2.0-x\r\n".to_vec()] {
        let mut stream = connect(addr).await;
        stream.write_all(&bytes).await.unwrap();
        assert!(soon(stream.read_u8()).await.is_err(), "closed");
    }
    assert_eq!((one.connections(), other.connections()), (1, 1));
}
