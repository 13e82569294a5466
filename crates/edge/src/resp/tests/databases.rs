//! SELECT: databases of a namespace, each of which is another one.

use super::*;

/// Namespace `carts` of class `session`, whose database 1 is `bank` of class `linear`, with its one shard.
fn set_databases(toy: &Toy, declared: &str) {
    super::changes::set_bank(toy, base::LEVEL);
    let mut view = View::clone(&toy.view.borrow());
    let carts = serde_json::from_str(&format!(r#"{{"class":"session"{declared}}}"#)).unwrap();
    view.specs = Arc::new([("carts".to_owned(), carts), ("bank".to_owned(), NamespaceSpec::new_linear())].into());
    *toy.view.borrow_mut() = Arc::new(view);
}

const ONE: &str = r#","databases":{"1":"bank"}"#;

fn check_databases(script: &[(&str, &str)]) {
    with_door(|toy, mut stream| async move {
        set_databases(&toy, ONE);
        sign_in(&mut stream).await;
        // As one pipeline: what is behind a SELECT is of its database, whatever is under way before it.
        let commands: Vec<&str> = script.iter().map(|(command, _)| *command).collect();
        send(&mut stream, &commands).await;
        for (command, reply) in script {
            expect(&mut stream, reply, command).await;
        }
    });
}

#[test]
fn what_is_behind_a_select_is_of_its_database() {
    check_databases(&[
        ("SET a 1", "+OK\r\n"),
        ("SELECT 1", "+OK\r\n"),
        ("SET a 2", "+OK\r\n"),
        ("INCR a", ":3\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        (
            "INCR a",
            "-ERR 'INCR' is not offered by class session: a value is read and written whole: GET it, change it, SET it; or keep one key \
             for each field\r\n",
        ),
        ("SELECT 1", "+OK\r\n"),
        ("GET a", "$1\r\n3\r\n"),
        ("SELECT 2", "-ERR DB index is out of range: this namespace has 0, 1; its key databases names others\r\n"),
        ("SELECT -1", "-ERR DB index is out of range: this namespace has 0, 1; its key databases names others\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("GET a", "$1\r\n3\r\n"),
        (
            "HELLO",
            "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        ("AUTH carts secret", "+OK\r\n"),
        ("GET a", "$1\r\n3\r\n"),
        ("AUTH bank secret3", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range: this namespace has 0; its key databases names others\r\n"),
        ("RESET", "+RESET\r\n"),
        ("AUTH carts secret", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
    ]);
}

#[test]
fn a_transaction_is_of_one_database_and_nothing_goes_to_another() {
    check_databases(&[
        ("SELECT 1", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SELECT 1", "+QUEUED\r\n"),
        ("SET a 1", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n+OK\r\n+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET a 2", "+QUEUED\r\n"),
        ("SELECT 0", "-ERR SELECT of another database inside MULTI is not allowed: a transaction is of one\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("WATCH a", "+OK\r\n"),
        ("SELECT 0", "-ERR keys of database 1 are watched: EXEC, DISCARD or UNWATCH before SELECT\r\n"),
        ("UNWATCH", "+OK\r\n"),
        ("COPY a b DB 1", ":1\r\n"),
        (
            "COPY a b DB 0",
            "-ERR COPY stays in the database that is selected: DUMP, SELECT and RESTORE bring a value to another one\r\n",
        ),
        (
            "MOVE a 0",
            "-ERR 'MOVE' is not offered by class linear: keys stay in their database; DUMP, SELECT and RESTORE bring a value to another one\r\n",
        ),
        (
            "SWAPDB 0 1",
            "-ERR 'SWAPDB' is not offered by class linear: keys stay in their database; DUMP, SELECT and RESTORE bring a value to another one\r\n",
        ),
        ("FLUSHALL", "-ERR FLUSHALL of a namespace with databases: SELECT each, and FLUSHDB\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("FLUSHDB", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
}

async fn said(stream: &mut TcpStream, command: &str, end: &str) -> String {
    send(stream, &[command]).await;
    let mut seen = String::new();
    while !seen.ends_with(end) {
        seen.push(char::from(stream.read_u8().await.unwrap()));
    }
    seen
}

#[test]
fn channels_and_clients_are_the_namespaces_in_all_databases_and_who_waits_does_so_where_it_was() {
    with_door(|toy, mut stream| async move {
        set_databases(&toy, ONE);
        let mut writer = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        for stream in [&mut stream, &mut writer] {
            sign_in(stream).await;
        }
        send(&mut stream, &["PSUBSCRIBE __keyspace@1__:*", "SUBSCRIBE news", "SUBSCRIBE __keyspace@7__:a"]).await;
        expect(&mut stream, "*3\r\n$10\r\npsubscribe\r\n$16\r\n__keyspace@1__:*\r\n:1\r\n", "PSUBSCRIBE").await;
        expect(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:2\r\n", "SUBSCRIBE").await;
        expect(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$16\r\n__keyspace@7__:a\r\n:3\r\n", "of none").await;
        // The second to listen is told, too: of both databases there is one feed.
        send(&mut writer, &["SELECT 1", "PUBLISH news x", "SET a 1"]).await;
        expect(&mut writer, "+OK\r\n:3\r\n+OK\r\n", "of this one and two more").await;
        expect(&mut stream, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n", "a message").await;
        let event = "*4\r\n$8\r\npmessage\r\n$16\r\n__keyspace@1__:*\r\n$16\r\n__keyspace@1__:a\r\n$3\r\nset\r\n";
        expect(&mut stream, event, "an event of database 1").await;
        let mut other = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        sign_in(&mut other).await;
        send(&mut other, &["SELECT 1"]).await;
        expect(&mut other, "+OK\r\n", "SELECT").await;
        let list = said(
            &mut other,
            "CLIENT LIST",
            "resp=2 lib-name= lib-ver= io-thread=0 tot-net-in=0 tot-net-out=0 tot-cmds=0\n\r\n",
        )
        .await;
        let databases: Vec<&str> =
            list.split(' ').filter(|word| word.starts_with("db=") || word.starts_with("user=")).collect();
        assert_eq!(databases, ["db=0", "user=carts", "db=1", "user=carts", "db=1", "user=carts"], "{list}");
        send(&mut writer, &["BLPOP l 0.05", "SELECT 0", "GET a", "SELECT 1", "GET a"]).await;
        expect(&mut writer, "*-1\r\n+OK\r\n$-1\r\n+OK\r\n$1\r\n1\r\n", "behind what waited, another database").await;
        send(&mut other, &["SELECT 0", "SET s 1"]).await;
        expect(&mut other, "+OK\r\n+OK\r\n", "a key of 0").await;
        let told = said(&mut other, "INFO keyspace", "avg_ttl=0\r\n\r\n").await;
        assert!(
            told.ends_with("# Keyspace\r\ndb0:keys=1,expires=1,avg_ttl=0\r\ndb1:keys=1,expires=0,avg_ttl=0\r\n\r\n"),
            "{told}"
        );
    });
}

#[test]
fn who_tracks_keys_stays_and_a_database_that_is_not_declared_any_more_is_shut() {
    with_door(|toy, mut stream| async move {
        set_databases(&toy, ONE);
        let mut three = TcpStream::connect(stream.peer_addr().unwrap()).await.unwrap();
        said(&mut three, "HELLO 3 AUTH carts secret", "modules\r\n*0\r\n").await;
        send(&mut three, &["SELECT 1", "CLIENT TRACKING ON"]).await;
        expect(&mut three, "+OK\r\n+OK\r\n", "tracking").await;
        send(&mut three, &["SELECT 0", "CLIENT TRACKING OFF", "SELECT 0"]).await;
        let refused = "-ERR keys of database 1 are tracked: CLIENT TRACKING OFF before SELECT\r\n";
        expect(&mut three, &format!("{refused}+OK\r\n+OK\r\n"), "tracking").await;
        sign_in(&mut stream).await;
        send(&mut stream, &["SELECT 1", "SET a 1"]).await;
        expect(&mut stream, "+OK\r\n+OK\r\n", "SELECT").await;
        set_databases(&toy, "");
        send(&mut stream, &["GET a", "AUTH carts secret", "GET a", "SELECT 1"]).await;
        expect(&mut stream, "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n", "not declared").await;
        expect(&mut stream, "+OK\r\n$-1\r\n-ERR DB index is out of range: this namespace has 0;", "0 again").await;
        send(&mut three, &["GET a"]).await;
        expect(&mut three, "_\r\n", "who was in 0 stays").await;
    });
}
