//! MONITOR, and what CLIENT changes between MULTI and EXEC.

use super::*;

/// A line of MONITOR without its time and address.
async fn line(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    let text = String::from_utf8(seen).unwrap();
    let (head, rest) = text.split_once("] ").unwrap_or_else(|| panic!("no line of MONITOR: {text:?}"));
    let (time, address) = head.split_once(" [").unwrap();
    let (seconds, micros) = time.strip_prefix('+').and_then(|time| time.split_once('.')).unwrap();
    assert!(seconds.parse::<u64>().unwrap() > 1_600_000_000 && micros.len() == 6, "{text}");
    let (database, address) = address.split_once(' ').unwrap();
    assert!(address.parse::<std::net::SocketAddr>().unwrap().ip().is_loopback(), "{text}");
    format!("{database} {}", rest.trim_end())
}

#[test]
fn who_watches_is_shown_the_commands_of_its_namespace_alone() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let mut writer = another(&stream).await;
        let mut stranger = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        sign_in(&mut stranger).await;
        send(&mut writer, &["SET before 1"]).await;
        expect(&mut writer, "+OK\r\n", "SET").await;
        send(&mut stream, &["MONITOR"]).await;
        expect(&mut stream, "+OK\r\n", "MONITOR").await;
        send(&mut stranger, &["SET secret 1"]).await;
        expect(&mut stranger, "+OK\r\n", "of another namespace").await;
        writer.write_all(&resp(&[b"set", b"k", b"\"v\"\xff"])).await.unwrap();
        let said = [
            "AUTH bank secret3",
            "HELLO 2 AUTH bank secret3 SETNAME me",
            "CONFIG GET maxmemory",
            "CLIENT LIST",
            "ACL WHOAMI",
            "NOSUCH a",
            "MULTI",
            "GET k",
            "EXEC",
        ];
        send(&mut writer, &said).await;
        for wanted in [
            "\"set\" \"k\" \"\\\"v\\\"\\xff\"",
            "\"AUTH\" \"(redacted)\" \"(redacted)\"",
            "\"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\"",
            "\"MULTI\"",
            "\"GET\" \"k\"",
            "\"EXEC\"",
        ] {
            assert_eq!(line(&mut stream).await, format!("0 {wanted}"));
        }
        // It may go on saying something, and is shown that, too.
        send(&mut stream, &["ECHO end"]).await;
        expect(&mut stream, "$3\r\nend\r\n", "its own").await;
        assert_eq!(line(&mut stream).await, "0 \"ECHO\" \"end\"");
    });
}

#[test]
fn reset_quit_and_its_end_end_it() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let mut writer = another(&stream).await;
        let mut gone = another(&stream).await;
        send(&mut stream, &["MONITOR", "MONITOR", "RESET", "AUTH bank secret3"]).await;
        expect(&mut stream, "+OK\r\n+OK\r\n+RESET\r\n+OK\r\n", "RESET").await;
        send(&mut gone, &["MULTI", "MONITOR", "DISCARD", "MONITOR", "QUIT"]).await;
        let end = expect_end(&mut gone).await;
        let (before, rest) = end.split_at(end.find("+OK\r\n+OK\r\n").unwrap());
        assert_eq!(before, "+OK\r\n-ERR 'MONITOR' cannot stand inside MULTI\r\n");
        assert_eq!(rest.matches("+OK\r\n").count(), 3, "{end}");
        send(&mut writer, &["SET k 1"]).await;
        expect(&mut writer, "+OK\r\n", "SET").await;
        send(&mut stream, &["PING"]).await;
        expect(&mut stream, "+PONG\r\n", "and no line before it").await;
        // In RESP2 who listens to channels may not begin to watch.
        send(&mut stream, &["SUBSCRIBE a", "MONITOR"]).await;
        expect(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n-ERR Can't execute 'monitor'", "SUBSCRIBE")
            .await;
    });
}

#[test]
fn who_watches_and_does_not_read_is_closed_and_counted() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        let mut writer = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        sign_in(&mut writer).await;
        send(&mut stream, &["MONITOR"]).await;
        expect(&mut stream, "+OK\r\n", "MONITOR").await;
        let closed = || toy.meter.totals()["resp.subscribers_closed_total"];
        let long = resp(&[b"ECHO", &[b'x'; 60 << 10]]);
        let mut sink = vec![0; 64 << 10];
        for _ in 0..2_000 {
            if closed() > 0 {
                break;
            }
            writer.write_all(&long).await.unwrap();
            let mut seen = 0;
            while seen < (60 << 10) + 10 {
                seen += writer.read(&mut sink).await.unwrap();
            }
        }
        assert_eq!(closed(), 1);
        // The one that says something is not disturbed.
        send(&mut writer, &["PING"]).await;
        let mut rest = Vec::new();
        while !rest.ends_with(b"+PONG\r\n") {
            rest.push(writer.read_u8().await.unwrap());
        }
    });
}

#[test]
fn what_client_changes_inside_multi_waits_for_exec() {
    check_linear(&[
        ("MULTI", "+OK\r\n"),
        ("CLIENT SETNAME first", "+QUEUED\r\n"),
        ("CLIENT REPLY OFF", "+QUEUED\r\n"),
        ("DISCARD", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("MULTI", "+OK\r\n"),
        ("CLIENT SETNAME second", "+QUEUED\r\n"),
        ("GET a", "+QUEUED\r\n"),
        ("CLIENT GETREDIR", "+QUEUED\r\n"),
        ("EXEC", "*3\r\n+OK\r\n$-1\r\n:-1\r\n"),
        ("CLIENT GETNAME", "$6\r\nsecond\r\n"),
        // What EXEC does not run changes nothing.
        ("WATCH w", "+OK\r\n"),
        ("SET w 1", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("CLIENT SETNAME third", "+QUEUED\r\n"),
        ("EXEC", "*-1\r\n"),
        ("CLIENT GETNAME", "$6\r\nsecond\r\n"),
        ("MULTI", "+OK\r\n"),
        ("CLIENT REPLY SKIP", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+OK\r\n"),
        ("PING", ""),
        ("ECHO a", "$1\r\na\r\n"),
        ("MULTI", "+OK\r\n"),
        ("CLIENT REPLY OFF", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+OK\r\n"),
        ("PING", ""),
        ("CLIENT REPLY ON", "+OK\r\n"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
    ]);
}
