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
    syntax: "0",
    summary: "does nothing",
    note: "a namespace is one database: only 0 exists",
    run: |call| match integer(call.command.arg(1)) {
        Some(0) => Act::Now(Reply::OK),
        Some(_) => {
            Act::Now(Reply::error("ERR DB index is out of range: a namespace has only 0; AUTH opens another namespace"))
        }
        None => Act::Now(not_an_integer()),
    },
};

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
        let name = call.client.known.as_ref().map(|known| &known.namespace);
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
