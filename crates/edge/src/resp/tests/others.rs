//! What a client sees and does of the other connections of its namespace.

use super::*;

/// Two clients of one namespace, and one of another, each with its name.
fn with_three<F: Future<Output = ()>>(test: impl FnOnce(Rc<Toy>, TcpStream, TcpStream, TcpStream) -> F) {
    with_door(|toy, mut one| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut one).await;
        let mut two = another(&one).await;
        let mut stranger = TcpStream::connect(one.peer_addr().unwrap()).await.unwrap();
        sign_in(&mut stranger).await;
        for (stream, name) in [(&mut one, "one"), (&mut two, "two"), (&mut stranger, "other")] {
            send(stream, &[&format!("CLIENT SETNAME {name}")]).await;
            expect(stream, "+OK\r\n", name).await;
        }
        test(toy, one, two, stranger).await;
    });
}

async fn said(stream: &mut TcpStream, command: &str) -> String {
    send(stream, &[command, "ECHO said"]).await;
    let mut got = vec![];
    while !got.ends_with(b"$4\r\nsaid\r\n") {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{command}: {}", String::from_utf8_lossy(&got));
    }
    String::from_utf8_lossy(&got[..got.len() - 10]).into_owned()
}

async fn names(stream: &mut TcpStream, command: &str) -> Vec<String> {
    let said = said(stream, command).await;
    let name = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("name=")).map(str::to_owned);
    said.lines().filter_map(name).collect()
}

#[test]
fn connections_of_a_namespace_are_listed_and_those_of_others_are_not() {
    with_three(|_, mut one, mut two, mut stranger| async move {
        assert_eq!(names(&mut one, "CLIENT LIST").await, ["one", "two"]);
        assert_eq!(names(&mut stranger, "CLIENT LIST").await, ["other"]);
        assert_eq!(names(&mut one, "CLIENT LIST TYPE pubsub").await, [""; 0]);
        send(&mut two, &["SUBSCRIBE c"]).await;
        expect(&mut two, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE").await;
        assert_eq!(names(&mut one, "CLIENT LIST TYPE pubsub").await, ["two"]);
        assert_eq!(names(&mut one, "CLIENT LIST ID 1 3 99").await, ["one"], "the third is of another namespace");
        let list = said(&mut one, "CLIENT LIST ID 2").await;
        assert!(list.contains(" flags=P ") && list.contains(" sub=1 ") && list.contains(" cmd=subscribe "), "{list}");
        assert_eq!(said(&mut one, "CLIENT LIST TYPE what").await, "-ERR Unknown client type 'what'\r\n");
        assert_eq!(said(&mut one, "CLIENT LIST ID x").await, "-ERR Invalid client ID\r\n");
        assert_eq!(said(&mut one, "CLIENT LIST what").await, "-ERR syntax error\r\n");
        drop(two);
        while names(&mut one, "CLIENT LIST").await.len() > 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn connections_are_killed_as_filters_say() {
    with_three(|_, mut one, mut two, mut stranger| async move {
        for (command, reply) in [
            ("CLIENT KILL 127.0.0.1:1", "-ERR No such client\r\n"),
            ("CLIENT KILL ID 3", ":0\r\n"),
            ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0\r\n"),
            ("CLIENT KILL ID 2 TYPE pubsub", ":0\r\n"),
            ("CLIENT KILL ID 2 MAXAGE 100000", ":0\r\n"),
            ("CLIENT KILL ID 2 MAXAGE 0", "-ERR maxage should be greater than 0\r\n"),
            ("CLIENT KILL USER carts", "-ERR No such user 'carts'\r\n"),
            ("CLIENT KILL TYPE what", "-ERR Unknown client type 'what'\r\n"),
            ("CLIENT KILL ID 1 ID", "-ERR syntax error\r\n"),
            ("CLIENT KILL ID 1", ":0\r\n"),
            ("CLIENT KILL SKIPME maybe", "-ERR syntax error\r\n"),
        ] {
            assert_eq!(said(&mut one, command).await, reply, "{command}");
        }
        let addr = two.local_addr().unwrap();
        assert_eq!(said(&mut one, &format!("CLIENT KILL ADDR {addr} USER bank")).await, ":1\r\n");
        assert_eq!(expect_end(&mut two).await, "");
        assert_eq!(names(&mut stranger, "CLIENT LIST").await, ["other"]);
        let addr = one.local_addr().unwrap();
        send(&mut one, &[&format!("CLIENT KILL {addr}")]).await;
        assert_eq!(expect_end(&mut one).await, "+OK\r\n", "it is told before it goes");
    });
}

#[test]
fn who_waits_is_released_and_told_so() {
    with_three(|_, mut one, mut two, _| async move {
        for (command, how, reply) in [
            ("BLPOP q 0", "", "*-1\r\n"),
            ("BLMOVE q to LEFT RIGHT 0", " TIMEOUT", "$-1\r\n"),
            ("XREAD BLOCK 0 STREAMS s $", " ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
        ] {
            assert_eq!(said(&mut one, "CLIENT UNBLOCK 2").await, ":0\r\n", "before {command}");
            send(&mut two, &[command]).await;
            while !said(&mut one, "CLIENT LIST ID 2").await.contains(" flags=b ") {
                tokio::task::yield_now().await;
            }
            assert_eq!(said(&mut one, &format!("CLIENT UNBLOCK 2{how}")).await, ":1\r\n");
            expect(&mut two, reply, command).await;
            assert_eq!(said(&mut two, "ECHO goes-on").await, "$7\r\ngoes-on\r\n");
        }
        assert_eq!(said(&mut one, "RPUSH q a").await, ":1\r\n");
        assert_eq!(said(&mut two, "BLPOP q 0").await, "*2\r\n$1\r\nq\r\n$1\r\na\r\n", "nothing was taken for nobody");
        assert_eq!(said(&mut one, "CLIENT UNBLOCK x").await, "-ERR value is not an integer or out of range\r\n");
        let wrong = "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n";
        assert_eq!(said(&mut one, "CLIENT UNBLOCK 2 what").await, wrong);
    });
}

#[test]
fn a_pause_holds_up_what_it_says_until_it_ends() {
    with_three(|toy, mut one, mut two, mut stranger| async move {
        assert_eq!(said(&mut one, "CLIENT PAUSE 60000 WRITE").await, "+OK\r\n");
        assert_eq!(said(&mut two, "GET a").await, "$-1\r\n");
        let seen = toy.priorities.borrow().len();
        send(&mut two, &["SET a 1", "GET a"]).await;
        assert_eq!(said(&mut stranger, "SET a 1").await, "+OK\r\n", "another namespace goes on");
        pause().await;
        assert_eq!(toy.priorities.borrow().len(), seen + 1, "only the other namespace's was asked");
        assert_eq!(said(&mut one, "CLIENT UNPAUSE").await, "+OK\r\n");
        expect(&mut two, "+OK\r\n$1\r\n1\r\n", "what waited").await;
        assert_eq!(said(&mut one, "CLIENT PAUSE 30").await, "+OK\r\n");
        assert_eq!(said(&mut two, "GET a").await, "$1\r\n1\r\n", "it ends by itself");
        assert_eq!(said(&mut one, "CLIENT PAUSE x").await, "-ERR timeout is not an integer or out of range\r\n");
        assert_eq!(said(&mut one, "CLIENT PAUSE -1").await, "-ERR timeout is negative\r\n");
        assert_eq!(said(&mut one, "CLIENT PAUSE 1 what").await, "-ERR CLIENT PAUSE mode must be WRITE or ALL\r\n");
    });
}

#[test]
fn who_wants_no_answers_gets_none() {
    with_three(|_, mut one, _, _| async move {
        send(&mut one, &["CLIENT REPLY SKIP", "SET a 1", "GET a"]).await;
        expect(&mut one, "$1\r\n1\r\n", "the next one is answered").await;
        send(&mut one, &["CLIENT REPLY OFF", "SET a 2", "nosuch", "CLIENT REPLY SKIP", "GET a", "CLIENT REPLY ON"])
            .await;
        expect(&mut one, "+OK\r\n", "ON").await;
        assert_eq!(said(&mut one, "GET a").await, "$1\r\n2\r\n");
        assert_eq!(said(&mut one, "CLIENT REPLY what").await, "-ERR syntax error\r\n");
    });
}
