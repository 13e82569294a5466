//! Long connections through a node that is restarted: each gets its own goodbye, one after the other, and none is cut.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use e2e::at::free_port;
use e2e::program::service_program;
use e2e::{Up, wait_for};

const MANY: usize = 120;
const TCP: usize = 20;
/// Nine tenths of this are theirs (docs/guide/first-service.md).
const DRAIN: Duration = Duration::from_secs(5);
/// Masked with zeros: a text of two bytes, and 1001.
const HELLO: &[u8] = &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
const GOES: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

fn connect(door: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(door).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// A WebSocket that is idle after one message each way.
fn web_socket(door: SocketAddr) -> TcpStream {
    let mut stream = connect(door);
    let ask = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream.write_all(HELLO).unwrap();
    let mut said = [0; 4];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said, [0x81, 2, b'h', b'i']);
    stream
}

/// When it was told to go. Then both say goodbye, and it ends in order.
fn goodbye(mut stream: TcpStream) -> Instant {
    let mut said = [0; 4];
    stream.read_exact(&mut said).expect("a close frame, not a reset");
    let at = Instant::now();
    assert_eq!(said, [0x88, 2, 0x03, 0xe9], "1001, going away");
    stream.write_all(GOES).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an end, not a reset");
    assert!(rest.is_empty(), "{rest:?}");
    at
}

#[test]
fn all_web_sockets_through_a_restarting_node_are_told_one_after_the_other_and_none_is_cut() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let (web, echo, port) = (service_program("websocket.py"), service_program("echo.py"), free_port(3));
    let text = format!(
        "[service.web]\nrun = [\"python3\", {web:?}]\nclones = 3\nhttp = {{ path = \"/\" }}\nstop = {{ drain = \"5s\" }}\n\
         [service.echo]\nrun = [\"python3\", {echo:?}]\nclones = 3\ntcp = {{ port = {port} }}\n"
    );
    up.apply("web.toml", &text).good();
    up.settle(Duration::from_secs(60), 2);
    let door = up.at(2).http;
    let mut open: Vec<TcpStream> = (0..MANY).map(|_| web_socket(door)).collect();
    let streams: Vec<TcpStream> = (0..TCP).map(|_| connect(SocketAddr::new(door.ip(), port))).collect();
    wait_for("all are counted", Duration::from_secs(10), || {
        let view = up.status(2)?;
        let gauges = &view["nodes"][1]["gauges"];
        let count = |name: &str| gauges[name].as_u64().unwrap_or(0) as usize;
        let all = count("http.connections") >= MANY && count("tcp.connections") >= TCP;
        if all { Ok(()) } else { Err(gauges.to_string()) }
    });
    let spare = open.pop().unwrap();
    let began = Instant::now();
    let (mut at, ended) = std::thread::scope(|scope| {
        let sockets: Vec<_> = open.into_iter().map(|stream| scope.spawn(|| goodbye(stream))).collect();
        let streams: Vec<_> = streams
            .into_iter()
            .map(|mut stream| {
                scope.spawn(move || {
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).map(|_| rest)
                })
            })
            .collect();
        // Who comes back to the same node is let in, and once more told.
        let back = scope.spawn(move || {
            goodbye(spare);
            goodbye(web_socket(door))
        });
        let before = up.status(1).unwrap()["nodes"][1]["boot"].as_u64();
        wait_for("n2 restarts", Duration::from_secs(60), || {
            let said = up.coppice(&["node", "restart", "n2"]);
            if said.is_good() { Ok(()) } else { Err(said.err) }
        });
        assert!(up.status(1).unwrap()["nodes"][1]["boot"].as_u64() > before);
        back.join().unwrap();
        let at: Vec<Instant> = sockets.into_iter().map(|socket| socket.join().unwrap()).collect();
        (at, streams.into_iter().map(|stream| stream.join().unwrap()).collect::<Vec<_>>())
    });
    for end in ended {
        assert_eq!(end.expect("an end, not a reset"), b"");
    }
    at.sort();
    let (first, last) = (at[0], at[at.len() - 1]);
    let took = last - first;
    let most =
        at.iter().map(|from| at.iter().filter(|at| **at >= *from && **at < *from + took / 5).count()).max().unwrap();
    e2e::say(&format!(
        "{} WebSockets told over {took:?}, from {:?} after the restart was asked; at most {most} in a fifth of that",
        at.len(),
        first - began
    ));
    assert!(took > DRAIN / 2 && took < DRAIN * 3, "they were told over {took:?}");
    assert!(most < at.len() / 2, "{most} of {} in a fifth of the time", at.len());
    // The new program serves.
    goodbye_of_ours(web_socket(door));
}

fn goodbye_of_ours(mut stream: TcpStream) {
    stream.write_all(GOES).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [0x88, 2, 0x03, 0xe9]);
}
