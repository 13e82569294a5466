//! Letting machines in, one by one, by hand, and keeping everybody else out: each refusal is clear to the one who tries and
//! leaves a line in the log of the node that refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use e2e::wait::poll;
use e2e::{Yard, wait_for};

#[test]
fn a_cluster_is_founded_and_joined_by_hand_and_its_nodes_come_back_without_a_token() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    let view = yard.status(2).unwrap();
    assert_eq!(view["cluster"], "home", "{view}");
    yard.kill(2);
    yard.run(2);
    wait_for("it is one of three again", Duration::from_secs(10), || {
        (1..=3).try_for_each(|n| yard.whole(n, &[1, 2, 3], 0).map(|_| ()))
    });
    let key = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(yard.node_dir(2).join("node.key")).unwrap());
    assert_eq!(key & 0o077, 0, "its key is its own");
}

#[test]
fn who_shows_no_good_token_does_not_get_in() {
    let _turn = e2e::beside();
    let mut yard = Yard::new();
    yard.found("home");
    // What apply has said is on the disk.
    yard.apply(1, "ns.toml", "[namespace.boxes]\nclass = \"session\"\n").good();
    // As it was before it made any token: the same authority, and knows of none.
    let log = yard.node_dir(1).join("log");
    let files = std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let forgetful: Vec<_> = files.map(|path| (std::fs::read(&path).unwrap(), path)).collect();

    for garbage in ["hello", "coppice1-hello", "", &"x".repeat(5000)] {
        let error = yard.join(2, garbage).wrong();
        assert!(error.contains("token"), "{error}");
    }
    let token = yard.token("1h");
    let mistyped: String = token
        .chars()
        .enumerate()
        .map(|(i, c)| {
            if i != 30 {
                c
            } else if c == 'A' {
                'B'
            } else {
                'A'
            }
        })
        .collect();
    assert!(yard.join(2, &mistyped).wrong().contains("mistyped"));

    let short = yard.token("1s");
    let (error, _) = wait_for("it has expired", Duration::from_secs(10), || {
        // A name that is taken, so that it cannot get in before.
        let error = yard.join_as(2, "n1", &short).wrong();
        if error.contains("expired") { Ok(error) } else { Err(error) }
    });
    assert!(error.contains("coppice token"), "it says what to do: {error}");
    yard.logs(1, &["warn", "refused", "expired"]);

    let error = yard.join_as(2, "n1", &token).wrong();
    assert!(error.contains("n1") && error.contains("another name"), "{error}");
    yard.logs(1, &["warn", "refused", "n1", "name"]);
    let error = yard.join_as(2, "Not A Name", &token).wrong();
    assert!(error.contains("Not A Name") && error.contains("lower-case"), "{error}");

    yard.kill(1);
    std::fs::remove_dir_all(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    forgetful.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    yard.run(1);
    let error = yard.join(2, &token).wrong();
    assert!(error.contains("does not know the join token"), "{error}");
    yard.logs(1, &["warn", "refused", "does not know"]);

    // After all that, a good one works.
    let good = yard.token("10m");
    yard.join(2, &good).good();
    yard.run(2);
    wait_for("they are two", Duration::from_secs(10), || {
        (1..=2).try_for_each(|n| yard.whole(n, &[1, 2], 0).map(|_| ()))
    });
    assert!(yard.join(2, &good).wrong().contains("already"), "its folder has a node now");
}

#[test]
fn a_token_of_another_cluster_does_not_open_this_one_and_tells_it_nothing() {
    let _turn = e2e::beside();
    let mut other = Yard::new();
    other.found("other");
    let token = other.token("1h");
    let ports = other.ports;
    drop(other);
    // Now somebody else answers at that address.
    let mut yard = Yard::on(ports);
    yard.found("home");
    let error = yard.join(2, &token).wrong();
    assert!(error.contains("another cluster"), "{error}");
    yard.logs(1, &["warn", "refused"]);
    yard.kill(1);
    let error = yard.join(2, &token).wrong();
    assert!(error.contains("reached"), "nobody is there: {error}");
}

#[test]
fn a_node_of_another_cluster_and_strangers_are_turned_away_with_a_line_in_the_log() {
    let _turn = e2e::beside();
    let mut yard = Yard::new();
    yard.found("home");
    let peer = yard.at(1).peer;

    let mut other = Yard::new();
    other.found("other");
    other.kill(1);
    other.begin(1, &["--seed", &peer.to_string()]);
    yard.logs(1, &["warn", "refused"]);
    other.logs(1, &["warn", &peer.to_string()]);

    let mut views = vec![other.status(1).unwrap()];
    drop(other);
    // Lines about strangers are one a second at most, so each knocks until the node has spoken of it.
    let strangers = [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "stranger"),
        ("SSH-2.0-x\r\n", "stranger"),
        ("COP1Lgarbage instead of TLS, and more of it", "refused"),
    ];
    for (first, word) in strangers {
        let before = yard.log(1).lines().count();
        wait_for("a line about the stranger", Duration::from_secs(10), || {
            knock(peer, first);
            poll(Duration::from_millis(500), || {
                let log = yard.log(1);
                let said = log.lines().skip(before).any(|l| l.contains("WARN 127.0.0.1") && l.contains(word));
                if said { Ok(()) } else { Err(log) }
            })
        });
    }
    // Nobody got in, on either side.
    views.push(yard.status(1).unwrap());
    for view in views {
        assert_eq!(view["nodes"].as_array().map(Vec::len), Some(1), "{view}");
    }
}

/// Says something to the peer port. It must end the connection soon, and tell nothing.
fn knock(peer: SocketAddr, first: &str) {
    let mut stream = TcpStream::connect(peer).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(first.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset is an end, too.
    let ended = stream.read_to_end(&mut answer);
    let has_ended = ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
    assert!(has_ended, "{first:?} is left waiting");
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.len() < 64 && !text.contains("home") && !text.contains("n1"), "{first:?} was told {text:?}");
}
