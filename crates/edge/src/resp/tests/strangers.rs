//! Who has a place at the door when more come than there is room for.

use std::time::{Duration, Instant};

use super::*;

/// Runs a test with a door that has so much room.
fn with_room<F: Future<Output = ()>>(room: Room, test: impl FnOnce(Rc<Toy>, std::net::SocketAddr) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let toy = Rc::new(Toy::default());
        toy.set_tokens(&[("carts", "secret"), ("other", "secret2")]);
        let listener = host::ports::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let (meter, functions) = (Arc::clone(&toy.meter), Functions::new(&toy.meter));
        let never = std::future::pending();
        let door = tokio::task::spawn_local(serve_with(listener, None, toy.clone(), meter, functions, never, room));
        let test = tokio::time::timeout(Duration::from_secs(60), test(toy, addr));
        test.await.expect("the door should not take so long");
        door.abort();
    }));
}

async fn comes_as(addr: std::net::SocketAddr, namespace: &str, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    send(&mut stream, &[&format!("AUTH {namespace} {token}")]).await;
    expect(&mut stream, "+OK\r\n", namespace).await;
    stream
}

#[test]
fn strangers_push_out_strangers_the_oldest_first() {
    with_room(Room { strangers: 4, known: 4 }, |toy, addr| async move {
        let mut known = comes_as(addr, "carts", "secret").await;
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(TcpStream::connect(addr).await.unwrap());
        }
        assert_eq!(expect_end(&mut all[0]).await, "");
        until(|| toy.meter.resp.connections() == 5).await;
        send(&mut known, &["GET a"]).await;
        expect(&mut known, "$-1\r\n", "who has said who it is").await;
        // The last one is there, and may still say it.
        let last = all.last_mut().unwrap();
        send(last, &["AUTH carts secret", "GET a"]).await;
        expect(last, "+OK\r\n$-1\r\n", "the last").await;
    });
}

#[test]
fn who_holds_one_namespaces_token_cannot_have_all_places() {
    with_room(Room { strangers: 16, known: 4 }, |_, addr| async move {
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(comes_as(addr, "carts", "secret").await);
        }
        let mut refused = TcpStream::connect(addr).await.unwrap();
        send(&mut refused, &["AUTH carts secret", "GET a"]).await;
        let told = expect_end(&mut refused).await;
        assert!(told.starts_with("-ERR max number of clients reached") && told.lines().count() == 1, "{told}");
        let mut other = comes_as(addr, "other", "secret2").await;
        assert_eq!(expect_end(&mut all[0]).await, "", "the oldest of who has most");
        send(&mut other, &["PING"]).await;
        expect(&mut other, "+PONG\r\n", "the other").await;
        // Who is in and says again who it is has its place already; as somebody else it needs another one.
        send(&mut all[1], &["AUTH carts secret", "PING", "AUTH other secret2", "PING"]).await;
        expect(&mut all[1], "+OK\r\n+PONG\r\n+OK\r\n+PONG\r\n", "again").await;
    });
}

#[test]
fn a_namespace_has_no_more_connections_than_are_declared_and_others_have_theirs() {
    with_room(Room { strangers: 16, known: 16 }, |toy, addr| async move {
        toy.set_connections_max("carts", Some(2));
        let mut first = comes_as(addr, "carts", "secret").await;
        let second = comes_as(addr, "carts", "secret").await;
        let full = "-ERR max number of clients reached: connections_max = 2 of this namespace, on each node\r\n";
        for greeting in ["AUTH carts secret", "HELLO 2 AUTH carts secret"] {
            let mut refused = TcpStream::connect(addr).await.unwrap();
            send(&mut refused, &[greeting, "GET a"]).await;
            assert_eq!(expect_end(&mut refused).await, full, "{greeting}");
        }
        // Who is in stays, also when it says again who it is; who comes from another namespace has no place here.
        send(&mut first, &["AUTH carts secret", "GET a"]).await;
        expect(&mut first, "+OK\r\n$-1\r\n", "again").await;
        let mut other = comes_as(addr, "other", "secret2").await;
        send(&mut other, &["GET a", "AUTH carts secret"]).await;
        assert_eq!(expect_end(&mut other).await, format!("$-1\r\n{full}"));
        // A place is free at once when its connection has ended.
        drop((second, other));
        until(|| toy.meter.resp.connections() == 1).await;
        let mut next = comes_as(addr, "carts", "secret").await;
        // With fewer declared who is in stays; with none declared all come in.
        toy.set_connections_max("carts", Some(1));
        send(&mut next, &["GET a"]).await;
        expect(&mut next, "$-1\r\n", "who was in").await;
        toy.set_connections_max("carts", None);
        comes_as(addr, "carts", "secret").await;
    });
}

#[test]
fn who_lost_its_token_is_a_stranger_again() {
    with_room(Room { strangers: 1, known: 4 }, |toy, addr| async move {
        let mut one = comes_as(addr, "carts", "secret").await;
        toy.set_tokens(&[("carts", "changed")]);
        send(&mut one, &["GET a"]).await;
        expect(&mut one, "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n", "token changed").await;
        pause().await;
        let _next = TcpStream::connect(addr).await.unwrap();
        assert_eq!(expect_end(&mut one).await, "", "the next stranger has its place");
    });
}

#[test]
fn silent_strangers_without_end_fail_no_command() {
    with_room(Room::default(), |_, addr| async move {
        let flood = std::thread::spawn(move || {
            let mut open = std::collections::VecDeque::new();
            for _ in 0..10_000 {
                open.extend(std::net::TcpStream::connect(addr));
                if open.len() > 1000 {
                    open.pop_front();
                }
            }
        });
        let (begun, mut asked) = (Instant::now(), 0);
        while !flood.is_finished() && begun.elapsed() < Duration::from_secs(30) {
            let mut one = comes_as(addr, "carts", "secret").await;
            send(&mut one, &["SET a 1"]).await;
            expect(&mut one, "+OK\r\n", "a command").await;
            asked += 1;
        }
        assert!(asked > 10, "{asked}");
        flood.join().unwrap();
    });
}
