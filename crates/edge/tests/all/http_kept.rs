//! What a kept request costs that no load test tells on a busy machine: how often the door asks for memory, and for how much. The
//! door has a thread of its own, on which all is counted; its client and its clone have others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use allocation_counter::{AllocationInfo, measure};

use crate::common::Door;

/// As many as make what the door does once a second small.
const REQUESTS: u64 = 2000;
const WARM_UP: u64 = 50;

/// As a browser asks; wrk says no more than the first line and `Host`.
const PLAIN: &str = "GET /x?y=1 HTTP/1.1\r\nHost: shop:8080\r\n\r\n";
const BROWSER: &str = "GET /x?y=1 HTTP/1.1\r\nHost: shop:8080\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0)\r\n\
    Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, br\r\n\
    Connection: keep-alive\r\nReferer: http://shop:8080/\r\nCookie: a=b; c=d\r\nSec-Fetch-Dest: document\r\nX-Own: 1\r\n\r\n";

fn body() -> String {
    "x".repeat(1024)
}

/// As nginx answers for a file.
fn answer() -> String {
    format!(
        "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Fri, 27 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\
        Last-Modified: Fri, 27 Nov 2026 11:00:00 GMT\r\nConnection: keep-alive\r\nETag: \"6567-400\"\r\nAccept-Ranges: bytes\r\n\r\n{}",
        body()
    )
}

/// Answers each head on each connection, with blocking sockets on threads that nobody counts.
fn clone() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let (mut seen, answer) = (vec![0; 4096], answer());
                while let Ok(1..) = stream.read(&mut seen) {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

/// One request after the other on one connection, and what they cost the door's thread.
fn costs(request: &'static str) -> AllocationInfo {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let door = runtime.block_on(Door::to(&[clone()]));
    let (go, goes) = std::sync::mpsc::channel::<u64>();
    let (done, mut is_done) = tokio::sync::mpsc::unbounded_channel();
    let addr = door.addr;
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut seen = vec![0; 8192];
        for count in goes {
            for _ in 0..count {
                stream.write_all(request.as_bytes()).unwrap();
                let mut got = 0;
                while got == 0 || !seen[..got].ends_with(b"xxxx") || !is_whole(&seen[..got]) {
                    got += stream.read(&mut seen[got..]).unwrap();
                }
                assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&seen[..got]));
            }
            done.send(()).unwrap();
        }
    });
    go.send(WARM_UP).unwrap();
    runtime.block_on(is_done.recv()).unwrap();
    measure(|| {
        go.send(REQUESTS).unwrap();
        runtime.block_on(is_done.recv()).unwrap();
    })
}

fn is_whole(seen: &[u8]) -> bool {
    let end = seen.windows(4).position(|four| four == b"\r\n\r\n");
    end.is_some_and(|end| seen.len() == end + 4 + 1024)
}

/// What the door does once a second, whoever asks, and a line of a date: not so many times in as many requests.
const TIMES_MAX: u64 = REQUESTS / 20;

#[test]
fn a_kept_request_asks_for_no_memory_after_the_first() {
    for request in [PLAIN, BROWSER] {
        let costs = costs(request);
        assert!(costs.count_total <= TIMES_MAX, "{} times in {REQUESTS}: {request}", costs.count_total);
    }
}
