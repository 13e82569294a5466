//! Costs that grow by what exists: an idle node's are counted, by the number of nodes.

use sim::growth::{Idle, idle};

/// It tells all others how it is, so what it sends grows with them. It must not grow faster.
#[test]
fn what_an_idle_node_sends_grows_no_faster_than_the_number_of_its_peers() {
    let [few, many] = [8, 16].map(|nodes| idle(1, nodes));
    println!("{few:?}\n{many:?}");
    let each = |idle: &Idle, of: f64| of / (idle.nodes - 1) as f64;
    for (what, of) in [("bytes", (|idle| idle.bytes) as fn(&Idle) -> f64), ("events", |idle| idle.events)] {
        let grows = each(&many, of(&many)) / each(&few, of(&few));
        assert!(
            grows < 1.25,
            "{what} for each peer: {grows:.2} times as many with {} nodes as with {}",
            many.nodes,
            few.nodes
        );
    }
}
