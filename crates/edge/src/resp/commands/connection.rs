//! Saying who one is and in which dialect, and being sure that the other side is there.

use super::*;
use crate::resp::encode::Protocol;
use crate::resp::limits::*;

pub static HELLO: Spec = Spec {
    name: "HELLO",
    arity: -1,
    keys: Keys::None,
    does: Does::Connect,
    syntax: "[2|3 [AUTH namespace token] [SETNAME name]]",
    summary: "chooses RESP2 or RESP3, and may say who the client is",
    note: "inside of MULTI it is an error, and EXEC refuses",
    run: hello,
};

pub static AUTH: Spec = Spec {
    name: "AUTH",
    arity: -2,
    keys: Keys::None,
    does: Does::Connect,
    syntax: "[namespace] token",
    summary: "opens a namespace",
    note: "the user name is the namespace; without one, exactly one namespace must have the token; inside of MULTI it is an error, and EXEC refuses",
    run: auth,
};

pub static PING: Spec = Spec {
    name: "PING",
    arity: -1,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "[message]",
    summary: "answers PONG, or the message",
    note: "",
    run: |call| {
        Act::Now(channels::ping(call).unwrap_or_else(|| match call.command.len() {
            1 => Reply::Simple("PONG"),
            2 => Reply::Bulk(call.command.value(1)),
            _ => wrong_arity("PING"),
        }))
    },
};

pub static ECHO: Spec = Spec {
    name: "ECHO",
    arity: 2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "message",
    summary: "answers the message",
    note: "",
    run: |call| Act::Now(Reply::Bulk(call.command.value(1))),
};

pub static SELECT: Spec = Spec {
    name: "SELECT",
    arity: 2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "database",
    summary: "what comes after it is about the keys of this database",
    note: "0 is the namespace, others are what its key databases names, of any class; channels, and what is told of clients, are the \
           namespace's in all of them. It is an error inside of MULTI, behind WATCH, while CLIENT TRACKING is on, and in scripts",
    run: |call| Act::Now(select(call).map_or_else(|why| Reply::Error(format!("ERR {why}")), |()| Reply::OK)),
};

fn select(call: &mut Call<'_>) -> Result<(), String> {
    let number = integer(call.command.arg(1)).ok_or("value is not an integer or out of range")?;
    let (home, view) = (call.home(), call.node.gate.view());
    let known = call.client.known.as_mut().expect("it has a home");
    if known.is_of_script() {
        return Err("SELECT in a script: it stays in the database that it is called in".to_owned());
    }
    if number == i64::from(known.database) {
        return Ok(());
    }
    let declared = view.specs.get(&*home).and_then(|spec| spec.databases());
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let namespace = match declared.and_then(|declared| declared.get(number)) {
        _ if number == 0 => &home,
        Some(namespace) => namespace,
        None => {
            let others: String =
                declared.into_iter().flat_map(|all| all.iter()).map(|(n, _)| format!(", {n}")).collect();
            return Err(format!(
                "DB index is out of range: this namespace has 0{others}; its key databases names others"
            ));
        }
    };
    if call.client.multi.is_some() {
        return Err("SELECT of another database inside MULTI is not allowed: a transaction is of one".to_owned());
    }
    if !call.client.watched.borrow().is_empty() {
        return Err(format!("keys of database {} are watched: EXEC, DISCARD or UNWATCH before SELECT", known.database));
    }
    if call.client.tracks.is_some() {
        return Err(format!("keys of database {} are tracked: CLIENT TRACKING OFF before SELECT", known.database));
    }
    // Of database 0 the class is known: it may be one that is not in `specs` yet.
    let class = match view.specs.get(namespace) {
        Some(spec) => spec.class(),
        None if number == 0 => view.class_of(namespace),
        None => return Err(format!("database {number} is namespace {namespace:?}, which is not declared")),
    };
    known.select(number, namespace.into(), class);
    Ok(())
}

/// The error of FLUSHALL where there are databases besides 0: in Redis it empties all of them, and here each is a namespace that others
/// may use.
pub fn flushes_others(call: &Call<'_>) -> Option<Act> {
    let declared = call.node.gate.view().specs.get(&*call.home()).and_then(|spec| spec.databases().cloned());
    let is_more = is(call.command.arg(0), "FLUSHALL") && declared.is_some_and(|all| all.iter().next().is_some());
    is_more.then(|| Act::Now(Reply::error("ERR FLUSHALL of a namespace with databases: SELECT each, and FLUSHDB")))
}

pub static QUIT: Spec = Spec {
    name: "QUIT",
    arity: -1,
    keys: Keys::None,
    does: Does::Connect,
    syntax: "",
    summary: "answers OK and closes the connection",
    note: "",
    run: |_| Act::Close(Reply::OK),
};

fn auth(call: &mut Call<'_>) -> Act {
    if let Some(act) = in_multi(call, "AUTH") {
        return act;
    }
    let (user, token) = match call.command.len() {
        2 => (None, call.command.arg(1)),
        3 => (Some(call.command.arg(1)), call.command.arg(2)),
        _ => return syntax_error(),
    };
    sign_in(call, user, token).unwrap_or(Act::Now(Reply::OK))
}

/// A transaction is of one namespace and its answers of one dialect, so EXEC will refuse it. Of a client that is not known any more
/// there is none to keep.
fn in_multi(call: &mut Call<'_>, name: &str) -> Option<Act> {
    call.client.known.as_ref()?;
    call.client.multi.as_mut()?.spoil();
    Some(Act::Now(Reply::Error(format!("ERR {name} inside MULTI is not allowed: DISCARD first, or EXEC"))))
}

/// What to answer if it did not work.
fn sign_in(call: &mut Call<'_>, user: Option<&[u8]>, token: &[u8]) -> Option<Act> {
    let view = call.node.gate.view();
    if call.client.authenticate(&view, user, token) {
        let name = call.client.known.as_ref().map(|known| &known.home);
        let declared = view.namespaces.iter().find(|namespace| name.is_some_and(|name| **name == *namespace.name));
        let most = declared.and_then(|namespace| namespace.connections_max);
        let no_place = call.client.take_place(&call.node.known, most).err()?;
        call.node.turned_away.set(call.node.turned_away.get() + 1);
        return Some(Act::Close(Reply::Error(format!("ERR max number of clients reached: {no_place}"))));
    }
    if !view.has_heard() {
        call.client.wrong_passwords -= 1;
        return Some(Act::Now(Reply::error("LOADING this node has just started and knows no namespaces yet")));
    }
    let wrong = Reply::error("WRONGPASS no namespace of this name has this token; `coppice status` lists namespaces");
    Some(if call.client.wrong_passwords < WRONG_PASSWORDS_MAX { Act::Now(wrong) } else { Act::Close(wrong) })
}

fn hello(call: &mut Call<'_>) -> Act {
    if let Some(act) = in_multi(call, "HELLO") {
        return act;
    }
    let command = call.command;
    let protocol = match (command.len(), command.arg(1)) {
        (1, _) => call.client.protocol,
        (_, b"2") => Protocol::Resp2,
        (_, b"3") => Protocol::Resp3,
        _ => return Act::Now(Reply::error("NOPROTO unsupported protocol version: 2 and 3 are offered")),
    };
    let (mut at, mut name) = (2, None);
    while at < command.len() {
        if is(command.arg(at), "AUTH") && at + 2 < command.len() {
            if let Some(act) = sign_in(call, Some(command.arg(at + 1)), command.arg(at + 2)) {
                return act;
            }
            at += 3;
        } else if is(command.arg(at), "SETNAME") && at + 1 < command.len() {
            match super::client::checked_name(command.arg(at + 1)) {
                Ok(good) => name = Some(good),
                Err(error) => return Act::Now(error),
            }
            at += 2;
        } else {
            return syntax_error();
        }
    }
    if call.client.known.is_none() {
        return Act::Now(Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <namespace> <token> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    call.client.protocol = protocol;
    if let Some(name) = name {
        call.client.name = name;
    }
    Act::Now(Reply::Map(vec![
        // Clients ask for this word before they offer all that they can; INFO says what this is.
        (Reply::word("server"), Reply::word("redis")),
        (Reply::word("version"), Reply::word(super::info::REDIS_VERSION)),
        (Reply::word("proto"), Reply::Int(if protocol == Protocol::Resp3 { 3 } else { 2 })),
        (Reply::word("id"), Reply::Int(call.client.id as i64)),
        (Reply::word("mode"), Reply::word("standalone")),
        (Reply::word("role"), Reply::word("master")),
        (Reply::word("modules"), Reply::List(vec![])),
    ]))
}
