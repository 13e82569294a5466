//! CLIENT: what a client calls itself, and what it may see and do of the other connections of its namespace, at all nodes.

use std::rc::Rc;

use bytes::Bytes;

use super::*;
use crate::resp::client::{Change, Queued, Replies};
use crate::resp::doors;
use crate::resp::limits::*;

pub static CLIENT: Spec = Spec {
    name: "CLIENT",
    arity: -2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "SETINFO LIB-NAME|LIB-VER text | SETNAME name | GETNAME | ID | INFO | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | LIST [TYPE type] [ID id ...] | \
             KILL addr | KILL [ID id] [ADDR addr] [LADDR addr] [TYPE type] [USER namespace] [SKIPME yes|no] [MAXAGE seconds] | PAUSE ms [WRITE|ALL] | \
             UNPAUSE | UNBLOCK id [TIMEOUT|ERROR] | REPLY ON|OFF|SKIP | GETREDIR | TRACKINGINFO | CACHING YES|NO | \
             TRACKING ON|OFF [REDIRECT id] [BCAST] [PREFIX prefix ...] [OPTIN] [OPTOUT] [NOLOOP]",
    summary: "names this connection, and tells about those of its namespace",
    note: "LIST, KILL, PAUSE, UNPAUSE and UNBLOCK are about the namespace's connections at all nodes; a node that does not answer in 1 s is \
           left out. What means nothing here is 0 or -1. PAUSE never holds up CLIENT itself. \
           In MULTI, SETNAME, SETINFO, REPLY and TRACKING OFF wait for EXEC, whose own reply is whole whatever REPLY says. \
           TRACKING is of classes linear and soft, in RESP3 or with REDIRECT to a connection of the same node; what scripts read is not \
           followed; with NOLOOP a client is told of its own changes all the same where scripts, waiting commands (BLPOP), ONCE, \
           commands about all keys or of over 64 of them, or class soft made them",
    run,
};

const OFFERED: &str = "SETINFO, SETNAME, GETNAME, ID, INFO, LIST, KILL, PAUSE, UNPAUSE, UNBLOCK, NO-EVICT, NO-TOUCH, REPLY, TRACKING, \
                       CACHING, GETREDIR, TRACKINGINFO";

fn run(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let args = command.len();
    let sub = command.arg(1).to_ascii_uppercase();
    let reply = match (&sub[..], args) {
        (b"ID", 2) => Reply::Int(call.client.id as i64),
        (b"GETNAME", 2) if call.client.name.is_empty() => Reply::Nil,
        (b"GETNAME", 2) => Reply::text(call.client.name.clone()),
        (b"SETNAME", 3) => match checked_name(command.arg(2)) {
            Ok(name) => change(call, Change::Name(name)),
            Err(error) => error,
        },
        (b"SETINFO", 4) => match checked_name(command.arg(3)) {
            Ok(text) if is(command.arg(2), "LIB-NAME") => change(call, Change::LibName(text)),
            Ok(text) if is(command.arg(2), "LIB-VER") => change(call, Change::LibVersion(text)),
            Ok(_) => Reply::error("ERR Unrecognized option: LIB-NAME and LIB-VER are offered"),
            Err(error) => error,
        },
        // Nothing is evicted before its lease ends, and reading changes no order: both hold already.
        (b"NO-EVICT" | b"NO-TOUCH", 3) if is(command.arg(2), "ON") || is(command.arg(2), "OFF") => Reply::OK,
        (b"NO-EVICT" | b"NO-TOUCH", 3) => Reply::error("ERR syntax error"),
        (b"INFO", 2) => Reply::Text(call.node.clients.own_line(call.client, "info")),
        (b"LIST", _) => return everywhere(call, list_words(call), |said| Reply::Text(joined(said))),
        (b"KILL", 3..) => return kill(call),
        (b"PAUSE", 3 | 4) => return everywhere(call, pause_words(call), |_| Reply::OK),
        (b"UNPAUSE", 2) => return everywhere(call, Ok(vec![word("unpause")]), |_| Reply::OK),
        (b"UNBLOCK", 3 | 4) => {
            return everywhere(call, unblock_words(call), |said| Reply::Int(doors::sum(&said).min(1)));
        }
        (b"REPLY", 3) => {
            let replies = match command.arg(2) {
                how if is(how, "ON") => Replies::All,
                how if is(how, "OFF") => Replies::None,
                // Of one that has said OFF that holds.
                how if is(how, "SKIP") && call.client.replies == Replies::None => Replies::None,
                how if is(how, "SKIP") => Replies::AllBut(2),
                _ => return syntax_error(),
            };
            // EXEC has its own reply by then.
            let of_exec = call.client.multi.is_some() && replies == Replies::AllBut(2);
            change(call, Change::Replies(if of_exec { Replies::AllBut(1) } else { replies }))
        }
        (b"GETREDIR", 2) => tracking::redirect(call),
        (b"TRACKINGINFO", 2) => tracking::info(call),
        (b"CACHING", 3) => tracking::caching(call),
        (b"TRACKING", 3..) => return tracking::tracking(call),
        (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"INFO", _)
        | (b"KILL" | b"PAUSE" | b"UNPAUSE" | b"UNBLOCK" | b"REPLY" | b"GETREDIR", _)
        | (b"TRACKING" | b"TRACKINGINFO" | b"CACHING", _) => {
            let sub = String::from_utf8_lossy(&sub).to_lowercase();
            Reply::Error(format!("ERR wrong number of arguments for 'client|{sub}' command"))
        }
        _ => return unknown_subcommand(call, OFFERED),
    };
    Act::Now(reply)
}

/// Changes something of the client; between MULTI and EXEC, when EXEC is run.
pub fn change(call: &mut Call<'_>, change: Change) -> Reply {
    match &mut call.client.multi {
        Some(multi) => multi.keep(Queued::Change(change)).map_or_else(|full| full, |()| QUEUED),
        None => {
            call.client.change(change);
            Reply::OK
        }
    }
}

type Words = Result<Vec<Bytes>, Reply>;

fn word(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

fn joined(said: Vec<Vec<u8>>) -> String {
    said.iter().map(|said| String::from_utf8_lossy(said)).collect()
}

/// Asks all doors for this, and makes the reply of what they say.
fn everywhere(call: &mut Call<'_>, words: Words, then: fn(Vec<Vec<u8>>) -> Reply) -> Act {
    let words = match words {
        Ok(words) => words,
        Err(error) => return Act::Now(error),
    };
    if let Some(act) = in_multi(call) {
        return act;
    }
    call.node.clients.refresh(call.client);
    let asked = Rc::clone(&call.node.doors).ask(call.home(), words);
    Call::later(async move { then(asked.await) })
}

fn in_multi(call: &Call<'_>) -> Option<Act> {
    call.client.multi.as_ref()?;
    let sub = String::from_utf8_lossy(call.command.arg(1)).to_uppercase();
    Some(Act::Now(Reply::Error(format!("ERR 'CLIENT {sub}' cannot stand inside MULTI"))))
}

fn kind(word: &[u8]) -> Result<Bytes, Reply> {
    let kinds = ["normal", "master", "replica", "pubsub"];
    let name = if is(word, "SLAVE") { Some("replica") } else { kinds.into_iter().find(|kind| is(word, kind)) };
    let unknown = || Reply::Error(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)));
    name.map(|name| Bytes::from_static(name.as_bytes())).ok_or_else(unknown)
}

fn list_words(call: &Call<'_>) -> Words {
    let command = call.command;
    let mut words = vec![word("list"), word(call.client.id.to_string())];
    match command.len() {
        2 => (),
        4 if is(command.arg(2), "TYPE") => words.extend([word("type"), kind(command.arg(3))?]),
        4.. if is(command.arg(2), "ID") => {
            for at in 3..command.len() {
                let id = integer(command.arg(at)).filter(|id| *id > 0);
                let id = id.ok_or_else(|| Reply::error("ERR Invalid client ID"))?;
                words.extend([word("id"), word(id.to_string())]);
            }
        }
        _ => return Err(Reply::error("ERR syntax error")),
    }
    Ok(words)
}

fn kill(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let is_old = command.len() == 3;
    let words = if is_old { Ok((vec![word("kill"), word("addr"), command.value(2)], false)) } else { kill_words(call) };
    let (mut words, spares_own) = match words {
        Ok(words) => words,
        Err(error) => return Act::Now(error),
    };
    if let Some(act) = in_multi(call) {
        return act;
    }
    call.node.clients.refresh(call.client);
    let kills_own = !spares_own && call.node.clients.is_among(call.client.id, &words[1..]);
    // It goes when it has been told.
    words.extend([word("not"), word(call.client.id.to_string())]);
    let (asked, gone) = (Rc::clone(&call.node.doors).ask(call.home(), words), call.client.gone.clone());
    Call::later(async move {
        let count = doors::sum(&asked.await) + i64::from(kills_own);
        if kills_own {
            tokio::task::spawn_local(async move { gone.tell() });
        }
        match count {
            0 if is_old => Reply::error("ERR No such client"),
            _ if is_old => Reply::OK,
            count => Reply::Int(count),
        }
    })
}

/// And whether the one that asks stays in any case.
fn kill_words(call: &Call<'_>) -> Result<(Vec<Bytes>, bool), Reply> {
    let command = call.command;
    let (mut words, mut spares_own, mut at) = (vec![word("kill")], true, 2);
    while at < command.len() {
        let (what, said) = (command.arg(at), command.arg(at + 1));
        if at + 1 == command.len() {
            return Err(Reply::error("ERR syntax error"));
        } else if is(what, "ID") {
            let id = integer(said).filter(|id| *id > 0);
            let id = id.ok_or_else(|| Reply::error("ERR client-id should be greater than 0"))?;
            words.extend([word("id"), word(id.to_string())]);
        } else if is(what, "MAXAGE") {
            let age = integer(said).ok_or_else(|| Reply::error("ERR maxage is not an integer or out of range"))?;
            if age <= 0 {
                return Err(Reply::error("ERR maxage should be greater than 0"));
            }
            words.extend([word("maxage"), word(age.to_string())]);
        } else if is(what, "TYPE") {
            words.extend([word("type"), kind(said)?]);
        } else if is(what, "ADDR") || is(what, "LADDR") {
            words.extend([word(String::from_utf8_lossy(what).to_lowercase()), command.value(at + 1)]);
        } else if is(what, "USER") {
            if said != call.home().as_bytes() {
                return Err(Reply::Error(format!("ERR No such user '{}'", String::from_utf8_lossy(said))));
            }
        } else if is(what, "SKIPME") && (is(said, "YES") || is(said, "NO")) {
            spares_own = is(said, "YES");
        } else {
            return Err(Reply::error("ERR syntax error"));
        }
        at += 2;
    }
    Ok((words, spares_own))
}

fn pause_words(call: &Call<'_>) -> Words {
    let command = call.command;
    let what = match command.arg(3) {
        _ if command.len() == 3 => "all",
        what if is(what, "ALL") => "all",
        what if is(what, "WRITE") => "write",
        _ => return Err(Reply::error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    match integer(command.arg(2)) {
        None => Err(Reply::error("ERR timeout is not an integer or out of range")),
        Some(..0) => Err(Reply::error("ERR timeout is negative")),
        Some(ms) => Ok(vec![word("pause"), word(ms.to_string()), word(what)]),
    }
}

fn unblock_words(call: &Call<'_>) -> Words {
    let command = call.command;
    let how = match command.arg(3) {
        _ if command.len() == 3 => "timeout",
        how if is(how, "TIMEOUT") => "timeout",
        how if is(how, "ERROR") => "error",
        _ => return Err(Reply::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = integer(command.arg(2)).ok_or_else(not_an_integer)?;
    Ok(vec![word("unblock"), word(id.max(0).to_string()), word(how)])
}

/// A name as Redis allows it: printable, no spaces, not too long.
pub fn checked_name(name: &[u8]) -> Result<String, Reply> {
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return Err(Reply::Error(format!("ERR a client's name may have {CLIENT_NAME_BYTES_MAX} bytes")));
    }
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}
