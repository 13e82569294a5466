//! What a namespace may take of its nodes, as clients of the Redis door and of the API see it.

use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::{Up, wait_for};

const WITHIN: Duration = Duration::from_secs(10);

#[test]
fn one_namespaces_clients_are_no_more_than_declared_on_each_node_and_others_come_in() {
    let _turn = e2e::beside();
    let up = Up::start(2, &["--no-demo"]);
    let few = "[namespace.few]\nclass = \"linear\"\nconnections_max = 2\n";
    up.apply("few.toml", &format!("{few}[namespace.free]\nclass = \"session\"\n")).good();
    let token = up.token("few");
    let open = |n| Resp::open(up.at(n).resp, "few", &token);
    let mut inside: Vec<Resp> = [1, 1, 2, 2].iter().map(|n| open(*n).unwrap()).collect();
    for n in [1, 2] {
        let said = open(n).err().expect("the third one is let in");
        assert!(said.contains("max number of clients reached: connections_max = 2"), "{said}");
    }
    // Who is in goes on, and says AUTH again without being one more; others are not concerned.
    assert_eq!(inside[0].ask(&["AUTH", "few", &token]), Ok(Word::Simple("OK".into())));
    assert_eq!(inside[0].ask(&["PING"]), Ok(Word::Simple("PONG".into())));
    let free = up.token("free");
    let others: Vec<Resp> = (0..5).map(|_| Resp::open(up.at(1).resp, "free", &free).unwrap()).collect();
    // Who leaves makes room at its node.
    drop(inside.pop());
    inside.push(wait_for("a client that has left has left a place", WITHIN, || open(2)).0);
    assert!(open(1).is_err());
    // More are let in at once when more are declared.
    up.apply("few.toml", &few.replace("= 2", "= 3")).good();
    inside.push(wait_for("a third client is let in", WITHIN, || open(1)).0);
    assert!(up.coppice(&["ns", "show", "few"]).good().contains("connections_max:   3 Redis clients on each node"));
    drop(others);
}
