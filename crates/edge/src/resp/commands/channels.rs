//! Messages between clients, in namespaces of all classes. Who listens where is told all nodes (`channels`); what waits for whom is in
//! `subscribers.rs`.

use std::rc::Rc;
use std::sync::Arc;

use ::channels::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use ::channels::{Kind, MEMBERS, Message, Op, Reply as Got};
use base::Outcome;
use bytes::Bytes;
use futures_util::FutureExt;
use node::Answer;
use tokio::sync::oneshot;

use super::*;
use crate::resp::changes;
use crate::resp::client::Queued;
use crate::resp::encode::Protocol;
use crate::resp::limits::PATTERN_BYTES_MAX;
use crate::resp::subscribers::{Subscribers, at_nodes};

const ALL_NODES: &str =
    "of clients at all nodes; the reply comes when all live nodes know it, after 60 ms at the latest";
const EVERYWHERE: &str = "of all nodes, as far as this one knows";

pub static SUBSCRIBE: Spec =
    listen("SUBSCRIBE", -2, "channel [channel ...]", "listens to channels", ALL_NODES, |call| {
        subscribe(call, Kind::Channel, "subscribe")
    });
pub static UNSUBSCRIBE: Spec =
    listen("UNSUBSCRIBE", -1, "[channel ...]", "listens to these no more, or to none", "", |call| {
        unsubscribe(call, Kind::Channel, "unsubscribe")
    });
pub static PSUBSCRIBE: Spec = listen(
    "PSUBSCRIBE",
    -2,
    "pattern [pattern ...]",
    "listens to all channels that fit a pattern",
    "a pattern has 256 KiB at most, and fits nothing for which it takes over 16,384 steps",
    |call| subscribe(call, Kind::Pattern, "psubscribe"),
);
pub static PUNSUBSCRIBE: Spec =
    listen("PUNSUBSCRIBE", -1, "[pattern ...]", "listens to these no more, or to none", "", |call| {
        unsubscribe(call, Kind::Pattern, "punsubscribe")
    });
pub static SSUBSCRIBE: Spec = listen(
    "SSUBSCRIBE",
    -2,
    "channel [channel ...]",
    "listens to shard channels, which have names of their own",
    "every node has all of them",
    |call| subscribe(call, Kind::Shard, "ssubscribe"),
);
pub static SUNSUBSCRIBE: Spec =
    listen("SUNSUBSCRIBE", -1, "[channel ...]", "listens to these no more, or to none", "", |call| {
        unsubscribe(call, Kind::Shard, "sunsubscribe")
    });

pub static PUBLISH: Spec = Spec {
    name: "PUBLISH",
    arity: 3,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "channel message",
    summary: "sends a message to all who listen, at all nodes; answers how many",
    note: "at most once; 1 MiB at most; inside of MULTI it is sent when EXEC was done",
    run: |call| publish(call, false),
};

pub static SPUBLISH: Spec = Spec {
    name: "SPUBLISH",
    arity: 3,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "channel message",
    summary: "the same on a shard channel",
    note: "",
    run: |call| publish(call, true),
};

pub static PUBSUB: Spec = Spec {
    name: "PUBSUB",
    arity: -2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "CHANNELS|SHARDCHANNELS [pattern] | NUMSUB|SHARDNUMSUB [channel ...] | NUMPAT",
    summary: "tells which channels and how many patterns are listened to, and by how many",
    note: EVERYWHERE,
    run: pubsub,
};

pub static RESET: Spec = Spec {
    name: "RESET",
    arity: 1,
    keys: Keys::None,
    does: Does::Connect,
    syntax: "",
    summary: "the connection is as it was at its beginning: RESP2, no namespace, no subscription, no transaction",
    note: "AUTH opens a namespace again",
    run: |call| {
        call.client.reset();
        Act::Now(Reply::Simple("RESET"))
    },
};

/// What a client of RESP2 may say while it listens.
const IN_SUBSCRIBER_MODE: &[&str] = &["PING", "QUIT", "RESET"];

const fn listen(
    name: &'static str,
    arity: i32,
    syntax: &'static str,
    summary: &'static str,
    note: &'static str,
    run: fn(&mut Call<'_>) -> Act,
) -> Spec {
    Spec { name, arity, keys: Keys::None, does: Does::Listen, syntax, summary, note, run }
}

/// Why this client may not say this now.
pub fn is_out_of_place(client: &Client, spec: &Spec) -> Option<Reply> {
    let is_bound = client.hears.as_ref().is_some_and(|hears| hears.is_bound(client.protocol));
    let listens = spec.does == Does::Listen && spec.name != "MONITOR";
    (is_bound && !listens && !IN_SUBSCRIBER_MODE.contains(&spec.name)).then(|| {
        let name = spec.name.to_lowercase();
        Reply::Error(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        ))
    })
}

/// What PING answers a client of RESP2 that listens.
pub fn ping(call: &Call<'_>) -> Option<Reply> {
    let hears = call.client.hears.as_ref().filter(|hears| hears.is_bound(Protocol::Resp2))?;
    let is_bound = hears.is_bound(call.client.protocol) && call.command.len() <= 2;
    let said = if call.command.len() == 2 { call.command.value(1) } else { Bytes::new() };
    is_bound.then(|| Reply::List(vec![Reply::word("pong"), Reply::Bulk(said)]))
}

/// A message leaves when it is said, and a transaction could still be discarded.
fn in_multi(call: &Call<'_>) -> Option<Act> {
    call.client.multi.as_ref()?;
    let name = String::from_utf8_lossy(call.command.arg(0)).to_uppercase();
    Some(Act::Now(Reply::Error(format!("ERR '{name}' cannot stand inside MULTI: say it before, or after EXEC"))))
}

fn names(call: &Call<'_>, kind: Kind) -> Result<Vec<Bytes>, Reply> {
    let names: Vec<Bytes> = (1..call.command.len()).map(|at| call.command.value(at)).collect();
    let most = if kind == Kind::Pattern { PATTERN_BYTES_MAX } else { NAME_BYTES_MAX };
    if names.iter().any(|name| name.len() > most) {
        let what = if kind == Kind::Pattern { "pattern" } else { "channel" };
        return Err(Reply::Error(format!("ERR a {what} has at most {most} bytes")));
    }
    Ok(names)
}

fn subscribe(call: &mut Call<'_>, kind: Kind, word: &'static str) -> Act {
    if let Some(act) = in_multi(call) {
        return act;
    }
    let names = match names(call, kind) {
        Ok(names) => names,
        Err(refused) => return Act::Now(refused),
    };
    let space = call.home();
    let all = Rc::clone(&call.node.subscribers);
    let id = call.client.id;
    let hears = call.client.hears.get_or_insert_with(|| all.enter(id, &space));
    let listener = Rc::clone(&hears.listener);
    let before = listener.count(kind);
    let new = match all.add(&listener, kind, &names) {
        Ok(new) => new,
        Err(why) => return Act::Now(Reply::Error(format!("ERR {why}"))),
    };
    let mut seen = std::collections::BTreeSet::new();
    let fresh: std::collections::BTreeSet<&Bytes> = new.iter().collect();
    let replies = names.iter().map(|name| {
        if fresh.contains(name) {
            seen.insert(name);
        }
        Reply::Push(vec![Reply::word(word), Reply::Bulk(name.clone()), Reply::Int(before + seen.len() as i64)])
    });
    let replies = Reply::Several(replies.collect());
    if new.is_empty() {
        return Act::Now(replies);
    }
    let of_events: Vec<Bytes> =
        new.iter().filter(|name| kind != Kind::Shard && changes::is_of_events(name)).cloned().collect();
    let begun = match (!of_events.is_empty()).then(|| wants_events(call, &of_events)).transpose() {
        Ok(begun) => begun,
        Err(why) => {
            all.remove(&listener, kind, &new);
            return Act::Now(Reply::Error(format!("ERR {why}")));
        }
    };
    let waiting = all.ask(Op::Subscribe { namespace: space.to_string(), kind, names: at_nodes(kind, &new) });
    Call::later(async move {
        let begun = if let Some(begun) = begun { begun.await } else { Ok(()) };
        match (outcome(waiting).await, begun) {
            (Ok(_), Ok(())) => replies,
            (Err(error), _) | (Ok(_), Err(error)) => {
                all.remove(&listener, kind, &new);
                error
            }
        }
    })
}

/// From now on what changes in the databases that are named is told on channels of the namespace; what it gives ends when that has begun.
fn wants_events(call: &mut Call<'_>, names: &[Bytes]) -> Result<LocalBoxFuture<'static, Result<(), Reply>>, String> {
    let (home, view) = (call.home(), call.node.gate.view());
    let others = view.specs.get(&*home).and_then(|spec| spec.databases()).into_iter().flat_map(|all| all.iter());
    let hears = call.client.hears.as_mut().expect("who listens hears");
    let mut begun = Vec::new();
    for (database, namespace) in std::iter::once((0, &*home)).chain(others) {
        let wants = |wanted: fn(Option<u32>, u32) -> bool| {
            names.iter().any(|name| wanted(changes::database_of(name), database))
        };
        let is_named = wants(|named, database| named == Some(database));
        // Of those that only a pattern may mean, some may tell nothing; of itself it is said.
        let is_meant = is_named || wants(|named, _| named.is_none());
        if is_meant && !hears.events.contains_key(&database) {
            let of = Some((Arc::clone(&home), database));
            match call.node.changes.want(&namespace.into(), view.class_of(namespace), of) {
                Ok(wants) => drop(hears.events.insert(database, wants)),
                Err(why) if is_named || database == 0 => return Err(why),
                Err(_) => (),
            }
        }
        begun.extend(hears.events.get(&database).filter(|_| is_meant).map(changes::Wants::begun));
    }
    Ok(async move {
        for begun in begun {
            begun.await?;
        }
        Ok(())
    }
    .boxed_local())
}

fn unsubscribe(call: &mut Call<'_>, kind: Kind, word: &'static str) -> Act {
    if let Some(act) = in_multi(call) {
        return act;
    }
    let names = match names(call, kind) {
        Ok(names) => names,
        Err(refused) => return Act::Now(refused),
    };
    let said = |name: Reply, count| Reply::Push(vec![Reply::word(word), name, Reply::Int(count)]);
    let Some(hears) = &mut call.client.hears else {
        let none = || said(Reply::Nil, 0);
        let replies = names.iter().map(|name| said(Reply::Bulk(name.clone()), 0)).collect();
        return Act::Now(Reply::Several(if names.is_empty() { vec![none()] } else { replies }));
    };
    // What came before is told before.
    let mut replies: Vec<Reply> = std::iter::from_fn(|| hears.next()).collect();
    let listener = Rc::clone(&hears.listener);
    let names = if names.is_empty() { listener.names(kind) } else { names };
    let all = &call.node.subscribers;
    let mut gone = Vec::new();
    for name in &names {
        gone.extend(all.remove(&listener, kind, std::slice::from_ref(name)));
        replies.push(said(Reply::Bulk(name.clone()), listener.count(kind)));
    }
    if names.is_empty() {
        replies.push(said(Reply::Nil, listener.count(kind)));
    }
    if !listener.is_of_events() {
        hears.events.clear();
    }
    if !gone.is_empty() {
        drop(all.ask(Op::Unsubscribe { namespace: hears.namespace().to_owned(), kind, names: at_nodes(kind, &gone) }));
    }
    Act::Now(Reply::Several(replies))
}

fn publish(call: &mut Call<'_>, shard: bool) -> Act {
    let (channel, payload) = (call.command.value(1), call.command.value(2));
    if channel.len() > NAME_BYTES_MAX || payload.len() > MESSAGE_BYTES_MAX {
        let why = format!("ERR a channel has at most {NAME_BYTES_MAX} bytes, a message {MESSAGE_BYTES_MAX}");
        return Act::Now(Reply::Error(why));
    }
    if channel.starts_with(MEMBERS.as_bytes()) {
        let why =
            format!("ERR channels that begin with {MEMBERS} are the nodes' own: listen there, and publish elsewhere");
        return Act::Now(Reply::Error(why));
    }
    let message = Message { namespace: call.home().to_string(), shard, channel, payload };
    if let Some(multi) = &mut call.client.multi {
        // It leaves when EXEC has done what stands beside it.
        return Act::Now(multi.keep(Queued::Message(message)).map_or_else(|full| full, |()| QUEUED));
    }
    Call::later(send(Rc::clone(&call.node.subscribers), message))
}

/// Sends a message; how many hear it.
pub fn send(all: Rc<Subscribers>, message: Message) -> impl Future<Output = Reply> + 'static {
    let here = all.deliver(&message);
    let waiting = all.ask(Op::Publish(message));
    async move {
        match outcome(waiting).await {
            Ok(Got::Published { receivers }) => Reply::Int((here + receivers) as i64),
            Ok(_) => Reply::Int(here as i64),
            Err(error) => error,
        }
    }
}

fn pubsub(call: &mut Call<'_>) -> Act {
    if let Some(act) = in_multi(call) {
        return act;
    }
    let (command, namespace) = (call.command, call.home().to_string());
    let sub = command.arg(1);
    let of_shards = is(sub, "SHARDCHANNELS") || is(sub, "SHARDNUMSUB");
    let kind = if of_shards { Kind::Shard } else { Kind::Channel };
    if (is(sub, "CHANNELS") || is(sub, "SHARDCHANNELS")) && command.len() <= 3 {
        let pattern = (command.len() == 3).then(|| command.value(2));
        if pattern.as_ref().is_some_and(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
            return Act::Now(Reply::error("ERR the pattern is too long"));
        }
        let waiting = call.node.subscribers.ask(Op::Names { namespace, kind });
        return Call::later(async move {
            match outcome(waiting).await {
                Ok(Got::Names(mut names)) => {
                    names.retain(|name| pattern.as_ref().is_none_or(|pattern| fits(pattern, name)));
                    Reply::List(names.into_iter().map(Reply::Bulk).collect())
                }
                Ok(_) => Reply::List(Vec::new()),
                Err(error) => error,
            }
        });
    }
    if is(sub, "NUMSUB") || is(sub, "SHARDNUMSUB") {
        let names: Vec<Bytes> = (2..command.len()).map(|at| command.value(at)).collect();
        let waiting = call.node.subscribers.ask(Op::Counts { namespace, kind, names: names.clone() });
        return Call::later(async move {
            match outcome(waiting).await {
                Ok(Got::Counts(counts)) => Reply::List(
                    names.into_iter().zip(counts).flat_map(|(n, c)| [Reply::Bulk(n), Reply::Int(c as i64)]).collect(),
                ),
                Ok(_) => Reply::List(Vec::new()),
                Err(error) => error,
            }
        });
    }
    if is(sub, "NUMPAT") && command.len() == 2 {
        let waiting = call.node.subscribers.ask(Op::Names { namespace, kind: Kind::Pattern });
        return Call::later(async move {
            match outcome(waiting).await {
                Ok(Got::Names(names)) => Reply::Int(names.len() as i64),
                Ok(_) => Reply::Int(0),
                Err(error) => error,
            }
        });
    }
    unknown_subcommand(call, "CHANNELS, NUMSUB, NUMPAT, SHARDCHANNELS, SHARDNUMSUB")
}

/// What the node answers, or the error to say.
async fn outcome(waiting: oneshot::Receiver<Answer>) -> Result<Got, Reply> {
    match waiting.await {
        Ok(Answer::Channels(Outcome::Done(got))) => Ok(got),
        Ok(Answer::Channels(Outcome::Refused(refused))) => Err(ops::refused(&refused)),
        Ok(Answer::Channels(Outcome::Unknown(unknown))) => Err(ops::unknown(&unknown)),
        Ok(_) | Err(_) => Err(Reply::error("ERR this node is about to end: ask another one")),
    }
}
