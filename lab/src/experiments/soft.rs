//! Class `soft` beside Redis (long parts: `softlong.rs`): updates and reads on three nodes, acknowledged from two memories and from one, reads of one
//! node, and messages to those who listen, beside NATS as well.

use std::time::Duration;

use crate::Plan;
use crate::closed::Shape;
use crate::deliveries::{self, Crowd};
use crate::experiments::softlong;
use crate::hazelcast::Hazelcast;
use crate::nats::Nats;
use crate::peers::Redis;
use crate::report::Report;
use crate::sides::{OURS, Sides};
use crate::space::Space;
use crate::words::{Does, load};

/// In this order.
pub const PARTS: [&str; 11] =
    ["updates", "local", "gets", "messages", "cut", "away", "fill", "memory", "checkpoint", "loss", "idle"];
const CONNECTIONS: [usize; 2] = [50, 200];
const GETS: usize = 50;
/// Channels, and subscribers of each; nodes.
const MESSAGES: [(usize, usize, u8); 2] = [(1, 1000, 1), (100, 10, 3)];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("soft");
    softlong::run(plan, &mut report)?;
    if !plan.parts.is_empty() && plan.parts.iter().all(|part| softlong::PARTS.contains(&part.as_str())) {
        return report.stored(&plan.out);
    }
    report.notes.push(
        "Coppice's clients are spread over its nodes, which speak TLS to each other; Redis' talk to the primary, in the clear"
            .into(),
    );
    let mut sides = Sides::default();
    for round in 0..plan.rounds {
        if plan.has("updates") {
            halves(plan, 2, round, &mut sides)?;
        }
        if plan.has("local") {
            halves(plan, 1, round, &mut sides)?;
            if let Err(why) = replicated(plan, round, &mut sides)
                && round == 0
            {
                report.notes.push(why);
            }
        }
        if plan.has("gets") {
            gets(plan, round, &mut sides)?;
        }
        if plan.has("messages") {
            messages(plan, round, &mut sides, &mut report)?;
        }
    }
    sides.tell(&mut report, &plan.out)?;
    Ok(report)
}

fn halves(plan: &Plan, copies: u8, round: usize, sides: &mut Sides) -> Result<(), String> {
    let connections = if plan.connections.is_empty() { CONNECTIONS.to_vec() } else { plan.connections.clone() };
    let shape = |clients| Shape { clients, length: Duration::from_secs(plan.seconds), each: 1 };
    let what = |clients| format!("updates and reads of 100 B, copies {copies}, {clients} clients");
    let space = Space::start(3, &format!("class = \"soft\"\ncopies = {copies}"))?;
    for &clients in &connections {
        let ran = load(&space.target, &space.cluster.pids(), Does::Half, &shape(clients))?;
        sides.add(&what(clients), OURS, round, ran);
    }
    drop(space);
    let redis = Redis::start(2)?;
    let (mut target, mut name) = (redis.target.clone(), "redis, 2 replicas, WAIT 1");
    if copies == 1 {
        (target.wait, name) = (None, "redis, 2 replicas, not waited for");
    }
    for &clients in &connections {
        sides.add(&what(clients), name, round, load(&target, &redis.pids(), Does::Half, &shape(clients))?);
    }
    Ok(())
}

/// What `copies = 1` is beside: a map of Hazelcast that every member has whole.
fn replicated(plan: &Plan, round: usize, sides: &mut Sides) -> Result<(), String> {
    let connections = if plan.connections.is_empty() { CONNECTIONS.to_vec() } else { plan.connections.clone() };
    let hazelcast = Hazelcast::start(3)?;
    for clients in connections {
        let shape = Shape { clients, length: Duration::from_secs(plan.seconds), each: 1 };
        let what = format!("updates and reads of 100 B, copies 1, {clients} clients");
        let ran = load(&hazelcast.target, &hazelcast.pids(), Does::Half, &shape)?;
        sides.add(&what, "hazelcast, ReplicatedMap", round, ran);
    }
    Ok(())
}

fn gets(plan: &Plan, round: usize, sides: &mut Sides) -> Result<(), String> {
    let shape = Shape { clients: GETS, length: Duration::from_secs(plan.seconds), each: 1 };
    let what = format!("gets of 100 B, one node, {GETS} clients");
    let space = Space::start(1, "class = \"soft\"")?;
    sides.add(&what, OURS, round, load(&space.target, &space.cluster.pids(), Does::Get, &shape)?);
    drop(space);
    let redis = Redis::start(0)?;
    sides.add(&what, "redis", round, load(&redis.target, &redis.pids(), Does::Get, &shape)?);
    Ok(())
}

fn messages(plan: &Plan, round: usize, sides: &mut Sides, report: &mut Report) -> Result<(), String> {
    for (channels, subscribers, nodes) in MESSAGES {
        let shape = deliveries::Shape { channels, subscribers, length: Duration::from_secs(plan.seconds) };
        let what = format!("deliveries of 100 B, {channels} x {subscribers}, {nodes} nodes");
        let space = Space::start(nodes, "class = \"soft\"")?;
        let addrs = space.target.addrs.clone();
        let crowd = Crowd { publish_at: addrs.clone(), addrs, auth: space.target.auth.clone(), is_nats: false };
        sides.add(&what, OURS, round, deliveries::run(&crowd, shape, &space.cluster.pids())?);
        drop(space);
        let redis = Redis::start(u32::from(nodes) - 1)?;
        let crowd = Crowd { addrs: redis.addrs(), publish_at: redis.target.addrs.clone(), auth: None, is_nats: false };
        sides.add(&what, "redis", round, deliveries::run(&crowd, shape, &redis.pids())?);
        drop(redis);
        if nodes > 1 {
            match Nats::start() {
                Ok(nats) => {
                    let addrs = nats.addrs.clone();
                    let crowd = Crowd { publish_at: addrs.clone(), addrs, auth: None, is_nats: true };
                    sides.add(&what, "nats, 3 servers", round, deliveries::run(&crowd, shape, &nats.pids())?);
                }
                Err(why) if round == 0 => report.notes.push(why),
                Err(_) => (),
            }
        }
    }
    Ok(())
}
