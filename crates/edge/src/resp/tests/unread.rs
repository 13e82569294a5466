//! Clients that write a whole pipeline before they read the first answer of it, and what is kept for them.

use std::time::Duration;

use super::limits::*;
use super::*;

const LARGE: usize = 256 << 10;

/// As a client reads it.
fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

async fn store(stream: &mut TcpStream, key: &[u8], value: &[u8]) {
    stream.write_all(&resp(&[b"SET", key, value])).await.unwrap();
    expect(stream, "+OK\r\n", "SET").await;
}

/// Has it sign in and write so many GETs of a large value, which are as many as fit into a socket.
async fn ask_for_large(stream: &mut TcpStream, count: usize) {
    sign_in(stream).await;
    store(stream, b"large", &vec![b'v'; LARGE]).await;
    send(stream, &vec!["GET large"; count]).await;
}

/// Reads so many answers to that.
async fn read_large(stream: &mut TcpStream, count: usize) {
    let answer = bulk(&vec![b'v'; LARGE]);
    let mut got = vec![0; answer.len()];
    for n in 0..count {
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == answer, "answer {n}");
    }
}

/// More of them than there may be unread.
const TOO_MANY: usize = 2 * (UNREAD_BYTES_FREE + UNREAD_BYTES_SHARE) / LARGE;

fn unread(toy: &Toy) -> u64 {
    toy.meter.gauges()["resp.unread_bytes"]
}

fn closed(toy: &Toy) -> u64 {
    toy.meter.totals()["resp.unread_closed_total"]
}

/// Time passes in which nobody does anything.
async fn time_passes(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

#[test]
fn who_writes_a_whole_pipeline_before_reading_is_answered_in_both_classes() {
    for linear in [false, true] {
        with_door(|toy, mut stream| async move {
            toy.set_linear();
            *toy.bank.borrow_mut() = Some(bank());
            if linear {
                sign_in_linear(&mut stream).await
            } else {
                sign_in(&mut stream).await
            }
            let (key, value, count) = ([b'k'; 250], [b'v'; 1000], 40_000);
            store(&mut stream, &key, &value).await;
            stream.write_all(&resp(&[b"GET", &key]).repeat(count)).await.unwrap();
            let (answer, mut got) = (bulk(&value), vec![]);
            for n in 0..count {
                got.resize(answer.len(), 0);
                stream.read_exact(&mut got).await.unwrap();
                assert!(got == answer, "answer {n}");
            }
            assert_eq!((unread(&toy), closed(&toy)), (0, 0));
        });
    }
}

#[test]
fn who_never_begins_to_read_gets_what_is_there_and_the_reason() {
    with_door(|toy, mut stream| async move {
        ask_for_large(&mut stream, TOO_MANY).await;
        until(|| unread(&toy) >= UNREAD_BYTES_SHARE as u64).await;
        pause().await;
        let most = UNREAD_BYTES_SHARE + IN_FLIGHT_BYTES_MAX;
        assert!(unread(&toy) <= most as u64, "{}", unread(&toy));
        assert_eq!(closed(&toy), 0);
        time_passes(UNREAD_TIME_MAX).await;
        until(|| closed(&toy) == 1).await;
        // It goes on writing: that comes to an end, too.
        let more = line("GET large").repeat(1_000_000);
        stream.write_all(&more).await.unwrap();
        let mut rest = vec![];
        stream.read_to_end(&mut rest).await.unwrap();
        let answer = bulk(&vec![b'v'; LARGE]);
        let count = rest.chunks(answer.len()).take_while(|chunk| *chunk == answer).count();
        assert!(count * LARGE > UNREAD_BYTES_SHARE && count < TOO_MANY, "{count} answers");
        let why = String::from_utf8_lossy(&rest[count * answer.len()..]);
        let expected = "-ERR too many answers are unread: a connection may have 65 MiB of them. Read while you write, or send \
                        shorter pipelines\r\n";
        assert_eq!(why, expected);
        until(|| unread(&toy) == 0).await;
    });
}

#[test]
fn who_reads_slowly_waits_and_is_not_closed() {
    with_door(|toy, mut stream| async move {
        ask_for_large(&mut stream, TOO_MANY).await;
        until(|| unread(&toy) >= UNREAD_BYTES_SHARE as u64).await;
        // Enough that its socket takes more, and that all is over before the test is.
        let some = TOO_MANY / 8;
        for _ in 0..TOO_MANY / some {
            time_passes(UNREAD_TIME_MAX * 3 / 4).await;
            read_large(&mut stream, some).await;
            pause().await;
        }
        assert_eq!(closed(&toy), 0);
    });
}

#[test]
fn who_has_nothing_more_to_say_may_read_when_it_likes() {
    with_door(|toy, mut stream| async move {
        // All of them are under way when there is no room for more.
        ask_for_large(&mut stream, UNREAD_BYTES_SHARE / LARGE).await;
        let mut large = vec![b'v'; 15 << 20];
        large[0] = b'w';
        until(|| toy.seen.borrow().len() == UNREAD_BYTES_SHARE / LARGE + 1).await;
        store_unseen(&toy, b"huge", &large);
        send(&mut stream, &["GET huge"]).await;
        until(|| unread(&toy) > UNREAD_BYTES_SHARE as u64).await;
        time_passes(UNREAD_TIME_MAX * 4).await;
        pause().await;
        assert_eq!(closed(&toy), 0);
        read_large(&mut stream, UNREAD_BYTES_SHARE / LARGE).await;
        let mut got = vec![0; bulk(&large).len()];
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == bulk(&large));
    });
}

/// Puts a value there without a client.
fn store_unseen(toy: &Toy, key: &'static [u8], value: &[u8]) {
    let version = Version { ms: 1, counter: 0, node: NodeId(1) };
    let entry = Entry { value: Bytes::copy_from_slice(value), kind: Kind::Text, version, lease: DEFAULT_LEASE };
    toy.values.borrow_mut().insert(Bytes::from_static(key), entry);
}

#[test]
fn one_namespace_leaves_room_to_others() {
    with_door(|toy, mut stream| async move {
        toy.set_tokens(&[("carts", "secret"), ("other", "secret2")]);
        let mut greedy = vec![];
        for _ in 0..2 * UNREAD_BYTES_ALL_MAX / UNREAD_BYTES_SHARE {
            let mut one = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
            ask_for_large(&mut one, TOO_MANY).await;
            greedy.push(one);
        }
        until(|| unread(&toy) >= UNREAD_BYTES_ALL_MAX as u64 / 2).await;
        pause().await;
        let before = unread(&toy);
        send(&mut stream, &["AUTH other secret2"]).await;
        expect(&mut stream, "+OK\r\n", "AUTH").await;
        store(&mut stream, b"large", &vec![b'v'; LARGE]).await;
        let count = UNREAD_BYTES_SHARE / 2 / LARGE;
        send(&mut stream, &vec!["GET large"; count]).await;
        // All but what it has anyway, and what its socket takes.
        until(|| unread(&toy) >= before + (UNREAD_BYTES_SHARE / 4) as u64).await;
        read_large(&mut stream, count).await;
    });
}

#[test]
fn who_keeps_much_and_takes_little_is_closed() {
    with_door(|toy, mut stream| async move {
        // It has nothing more to say: it may read when it likes, but not for ever.
        ask_for_large(&mut stream, UNREAD_BYTES_SHARE / LARGE).await;
        until(|| unread(&toy) > UNREAD_BYTES_SHARE as u64 / 2).await;
        // Each time its socket takes something.
        for _ in 0..8 {
            if closed(&toy) > 0 {
                break;
            }
            read_large(&mut stream, 6).await;
            pause().await;
            time_passes(STALL_TIME_MAX * 3 / 4).await;
        }
        until(|| closed(&toy) == 1 && unread(&toy) == 0).await;
    });
}

#[test]
fn what_all_may_have_unread_is_bounded_and_each_has_some() {
    with_door(|toy, mut stream| async move {
        let mut others = vec![];
        for _ in 0..UNREAD_BYTES_ALL_MAX / UNREAD_BYTES_SHARE {
            let mut other = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
            ask_for_large(&mut other, TOO_MANY).await;
            others.push(other);
        }
        until(|| unread(&toy) >= UNREAD_BYTES_ALL_MAX as u64 / 2).await;
        // As many as each may have, and a socket takes.
        let few = UNREAD_BYTES_FREE / LARGE;
        ask_for_large(&mut stream, few).await;
        read_large(&mut stream, few).await;
        send(&mut stream, &vec!["GET large"; TOO_MANY]).await;
        pause().await;
        let most = UNREAD_BYTES_ALL_MAX / 2 + 5 * IN_FLIGHT_BYTES_MAX;
        assert!(unread(&toy) <= most as u64, "{}", unread(&toy));
        time_passes(UNREAD_TIME_MAX).await;
        until(|| closed(&toy) == others.len() as u64 + 1).await;
        let mut rest = vec![];
        stream.read_to_end(&mut rest).await.unwrap();
        let why = rest.rsplit(|byte| *byte == b'-').next().unwrap();
        let why = String::from_utf8_lossy(why);
        let expected = "this namespace has as many as are left of the 256 MiB that this node has for them, and each connection \
                        1 MiB more";
        assert!(why.contains(expected), "{why}");
        drop(others);
        until(|| unread(&toy) == 0).await;
        // All is there for the next.
        let mut next = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        ask_for_large(&mut next, TOO_MANY / 2).await;
        until(|| unread(&toy) > (UNREAD_BYTES_SHARE / 2) as u64).await;
        read_large(&mut next, TOO_MANY / 2).await;
    });
}
