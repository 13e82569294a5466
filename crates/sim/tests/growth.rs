//! Costs that grow by what exists: an idle node's are counted, by the number of nodes.

use sim::growth::{Idle, idle};

/// At 15 nodes all of them together sent as many bytes as grow with their square.
#[test]
fn what_an_idle_node_sends_hardly_grows_with_the_number_of_nodes() {
    let [few, many] = [8, 16].map(|nodes| idle(1, nodes));
    println!("{few:?}\n{many:?}");
    let within = |what: &str, of: fn(&Idle) -> f64, times: f64| {
        let grows = of(&many) / of(&few);
        assert!(grows < times, "{what}: {grows:.2} times as many a node at {} nodes as at {}", many.nodes, few.nodes);
    };
    // A digest names each node, and goes to one a second; who leads the root group tells all that it does.
    within("bytes", |idle| idle.bytes, 1.5);
    within("events", |idle| idle.events, 1.5);
}
