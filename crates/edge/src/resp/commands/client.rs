//! CLIENT: what a client calls itself. Libraries send this on connecting; nothing depends on it.

use super::*;
use crate::resp::encode::Protocol;
use crate::resp::limits::*;

pub static CLIENT: Spec = Spec {
    name: "CLIENT",
    arity: -2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "SETINFO LIB-NAME|LIB-VER text | SETNAME name | GETNAME | ID | INFO | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | LIST | REPLY ON | GETREDIR | TRACKING OFF",
    summary: "names this connection, and tells about it",
    note: "about this connection alone; what means nothing here is 0 or -1",
    run,
};

const OFFERED: &str = "SETINFO, SETNAME, GETNAME, ID, INFO, LIST, NO-EVICT, NO-TOUCH, REPLY ON, GETREDIR, TRACKING OFF";

fn run(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let args = command.len();
    let sub = command.arg(1).to_ascii_uppercase();
    let reply = match (&sub[..], args) {
        (b"ID", 2) => Reply::Int(call.client.id as i64),
        (b"GETNAME", 2) if call.client.name.is_empty() => Reply::Nil,
        (b"GETNAME", 2) => Reply::text(call.client.name.clone()),
        (b"SETNAME", 3) => match checked_name(command.arg(2)) {
            Ok(name) => {
                call.client.name = name;
                Reply::OK
            }
            Err(error) => error,
        },
        (b"SETINFO", 4) => match checked_name(command.arg(3)) {
            Ok(text) if is(command.arg(2), "LIB-NAME") => {
                call.client.lib_name = text;
                Reply::OK
            }
            Ok(text) if is(command.arg(2), "LIB-VER") => {
                call.client.lib_version = text;
                Reply::OK
            }
            Ok(_) => Reply::error("ERR Unrecognized option: LIB-NAME and LIB-VER are offered"),
            Err(error) => error,
        },
        // Nothing is evicted before its lease ends, and reading changes no order: both hold already.
        (b"NO-EVICT" | b"NO-TOUCH", 3) if is(command.arg(2), "ON") || is(command.arg(2), "OFF") => Reply::OK,
        (b"NO-EVICT" | b"NO-TOUCH", 3) => Reply::error("ERR syntax error"),
        (b"INFO", 2) => Reply::Text(about(call, "info")),
        (b"LIST", 2) => Reply::Text(about(call, "list")),
        // Answers are always given, and keys are not followed for clients.
        (b"REPLY", 3) if is(command.arg(2), "ON") => Reply::OK,
        (b"REPLY", 3) => Reply::error("ERR only CLIENT REPLY ON is offered: every command is answered"),
        (b"GETREDIR", 2) => Reply::Int(-1),
        (b"TRACKING", 3) if is(command.arg(2), "OFF") => Reply::OK,
        (b"TRACKING", _) => {
            Reply::error("ERR CLIENT TRACKING is not offered: nobody tells clients of changes by this protocol")
        }
        (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"INFO", _) => {
            let sub = String::from_utf8_lossy(&sub).to_lowercase();
            Reply::Error(format!("ERR wrong number of arguments for 'client|{sub}' command"))
        }
        _ => return unknown_subcommand(call, OFFERED),
    };
    Act::Now(reply)
}

/// Every field that Redis 8 has, as libraries parse them by name: true where it means something here, else 0 or -1.
fn about(call: &Call<'_>, sub: &str) -> String {
    let client = &call.client;
    let user = client.known.as_ref().map_or("", |known| &*known.namespace);
    let protocol = if client.protocol == Protocol::Resp3 { 3 } else { 2 };
    let (flags, multi, multi_bytes) = match &client.multi {
        Some(multi) => ("x", multi.kept() as i64, multi.bytes()),
        None => ("N", -1, 0),
    };
    let (addr, laddr, name) = (client.addr, client.local, &client.name);
    let (id, age, watch) = (client.id, client.since.elapsed().as_secs(), client.watched.borrow().len());
    format!(
        "id={id} addr={addr} laddr={laddr} fd=-1 name={name} age={age} idle=0 flags={flags} db=0 sub=0 psub=0 ssub=0 \
         multi={multi} watch={watch} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={multi_bytes} rbs=0 rbp=0 obl=0 oll=0 omem=0 \
         tot-mem={multi_bytes} events=r cmd=client|{sub} user={user} redir=-1 resp={protocol} lib-name={} lib-ver={} io-thread=0 \
         tot-net-in=0 tot-net-out=0 tot-cmds=0\n",
        client.lib_name, client.lib_version,
    )
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
