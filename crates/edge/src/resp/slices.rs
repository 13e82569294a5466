//! Commands of very many arguments, worked off in slices: so many arguments are one operation, and the next one begins when that has
//! ended. Others have their turns between them, and may see that some are done. What cannot be cut so is refused.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;

use super::Node;
use super::client::Client;
use super::commands::{Act, Call, Does, Spec, arity_error};
use super::encode::Reply;
use super::limits::{ANSWER_BYTES_MAX, ARGS_WHOLE_MAX, SLICE_ARGS, SLICE_BYTES, WHOLE_BYTES_MAX, WIDE_BYTES_ALL_MAX};
use super::parse::Command;
use super::work::Work;

/// How a command is cut: what each slice begins with, and how many arguments belong together behind that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    head: usize,
    step: usize,
    join: Join,
}

/// How the replies of slices are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Join {
    Sum,
    /// Whether any has changed something.
    Any,
    Last,
    Lists,
}

/// Is it one that is cut, or refused?
pub fn is_wide(spec: &Spec, command: &Command) -> bool {
    command.len() > ARGS_WHOLE_MAX || command.bytes() > WHOLE_BYTES_MAX && cut(spec.name, command).is_some()
}

fn cut(name: &str, command: &Command) -> Option<Cut> {
    let (head, step, join) = match name {
        "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => (1, 1, Join::Sum),
        "MGET" => (1, 1, Join::Lists),
        "MSET" => (1, 2, Join::Last),
        "SADD" | "SREM" | "HDEL" | "ZREM" | "XDEL" => (2, 1, Join::Sum),
        "HMGET" | "SMISMEMBER" | "ZMSCORE" => (2, 1, Join::Lists),
        "HSET" => (2, 2, Join::Sum),
        "HMSET" => (2, 2, Join::Last),
        "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" => (2, 1, Join::Last),
        "PFADD" => (2, 1, Join::Any),
        "XACK" => (3, 1, Join::Sum),
        "ZADD" | "GEOADD" => {
            let of = |arg: &[u8], option: &str| arg.eq_ignore_ascii_case(option.as_bytes());
            let is_option = |arg: &[u8]| ["NX", "XX", "GT", "LT", "CH"].iter().any(|option| of(arg, option));
            let options = (2..command.len()).take_while(|at| is_option(command.arg(*at))).count();
            (2 + options, if name == "ZADD" { 2 } else { 3 }, Join::Sum)
        }
        _ => return None,
    };
    Some(Cut { head, step, join })
}

/// Works a wide command off. It is run for the client, but beside it.
pub fn run(client: &Client, node: &Rc<Node>, spec: &'static Spec, command: &Command) -> Act {
    let Some(cut) = cut(spec.name, command).filter(|_| client.multi.is_none()) else {
        let name = spec.name;
        return Act::Now(Reply::Error(format!(
            "ERR '{name}' has {ARGS_WHOLE_MAX} arguments at most here, as it is done at once"
        )));
    };
    if client.tracks.is_some() && spec.does == Does::Read {
        // All that it has read would be remembered for it in one turn.
        let why = format!("ERR with CLIENT TRACKING a command reads less than {ARGS_WHOLE_MAX} at once");
        return Act::Now(Reply::Error(why));
    }
    if !(command.len() - cut.head).is_multiple_of(cut.step) {
        return Act::Now(arity_error(spec));
    }
    let Some(room) = Room::take(&node.wide_bytes, command.bytes()) else {
        let most = WIDE_BYTES_ALL_MAX >> 20;
        return Act::Now(Reply::Error(format!(
            "BUSY commands of {most} MiB are being worked off at this node, ask again"
        )));
    };
    let (client, node, command) = (client.apart(), Rc::clone(node), command.clone());
    Act::Later(Box::pin(async move {
        let _room = room;
        all(client, node, spec, command, cut).await
    }))
}

/// What a command holds while it is worked off.
struct Room {
    all: Rc<Cell<usize>>,
    bytes: usize,
}

impl Room {
    fn take(all: &Rc<Cell<usize>>, bytes: usize) -> Option<Self> {
        let taken = all.get() + bytes;
        (taken <= WIDE_BYTES_ALL_MAX).then(|| {
            all.set(taken);
            Self { all: Rc::clone(all), bytes }
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}

async fn all(mut client: Client, node: Rc<Node>, spec: &'static Spec, command: Command, cut: Cut) -> Reply {
    let (mut at, mut bytes, mut told) = (cut.head, 0, Vec::new());
    while at < command.len() {
        let end = end(&command, at, cut.step);
        let part = command.part(cut.head, at..end);
        let act = (spec.run)(&mut Call { command: &part, client: &mut client, node: &node, once: None });
        let reply = of(act, &client, &node).await;
        if let Reply::Error(why) = reply {
            return not_all(at - cut.head, command.len() - cut.head, spec, why);
        }
        bytes += reply.bytes();
        if bytes > ANSWER_BYTES_MAX * 4 {
            return Reply::error("ERR the answer is too long: ask for fewer at once");
        }
        told.push(reply);
        at = end;
    }
    joined(told, cut.join)
}

/// Where the slice that begins there ends: it has one item at least.
fn end(command: &Command, from: usize, step: usize) -> usize {
    let (mut at, mut bytes) = (from, 0);
    while at < command.len() && at + step - from <= SLICE_ARGS {
        bytes += (at..at + step).map(|arg| command.arg(arg).len()).sum::<usize>();
        if bytes > SLICE_BYTES && at > from {
            break;
        }
        at += step;
    }
    at.min(command.len())
}

/// What comes of a slice.
async fn of(act: Act, client: &Client, node: &Node) -> Reply {
    let (gate, priority) = (&node.gate, client.priority());
    let mut work = match act {
        Act::Now(reply) | Act::Close(reply) => return reply,
        Act::Later(later) => return later.await,
        Act::Op(op, then) => Work::Op(gate.ask(node::Ask::Session(state::session::Op { priority, ..op })), then),
        Act::Linear(op, then) => Work::Linear(gate.ask(node::Ask::Linear(state::linear::Op { priority, ..op })), then),
        Act::Cache(op, then) => Work::Cache(gate.ask(node::Ask::Cache(state::cache::Op { priority, ..op })), then),
        Act::Soft(op, then) => Work::Soft(gate.ask(node::Ask::Soft(state::soft::Op { priority, ..op })), then),
        // None of those that are cut waits.
        Act::Block(_) => return Reply::error("ERR it cannot be cut"),
    };
    poll_fn(|cx| work.poll(cx)).await
}

/// A slice came to nothing. Of a command that writes, those before it are done.
fn not_all(done: usize, all: usize, spec: &Spec, why: String) -> Reply {
    if done == 0 || spec.does != Does::Write {
        return Reply::Error(why);
    }
    let why = why.strip_prefix("UNKNOWN ").unwrap_or(&why);
    Reply::Error(format!("UNKNOWN the first {done} of {all} arguments are done, of the others some may be: {why}"))
}

fn joined(told: Vec<Reply>, join: Join) -> Reply {
    let number = |reply: &Reply| if let Reply::Int(n) = reply { *n } else { 0 };
    match join {
        Join::Sum => Reply::Int(told.iter().map(number).sum()),
        Join::Any => Reply::Int(told.iter().map(number).max().unwrap_or_default()),
        Join::Last => told.into_iter().last().unwrap_or(Reply::OK),
        Join::Lists => {
            let items = |reply| if let Reply::List(items) = reply { items } else { vec![reply] };
            Reply::List(told.into_iter().flat_map(items).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_are_worked_off_hold_so_much_together_and_give_it_back() {
        let all = Rc::<Cell<usize>>::default();
        let half = Room::take(&all, WIDE_BYTES_ALL_MAX / 2).expect("there is room");
        let rest = Room::take(&all, WIDE_BYTES_ALL_MAX / 2).expect("there is just as much");
        assert!(Room::take(&all, 1).is_none());
        drop(half);
        assert!(Room::take(&all, WIDE_BYTES_ALL_MAX / 2 + 1).is_none() && Room::take(&all, 1).is_some());
        drop(rest);
        assert_eq!(all.get(), 0);
    }
}
