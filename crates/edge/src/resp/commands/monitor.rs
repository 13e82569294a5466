//! MONITOR: a line for each command of the namespace.

use std::rc::Rc;

use super::*;

pub static MONITOR: Spec = Spec {
    name: "MONITOR",
    arity: 1,
    keys: Keys::None,
    does: Does::Listen,
    syntax: "",
    summary: "shows each command of the namespace that comes to this node, in Redis' form; QUIT, RESET or the end of the connection ends it",
    note: "of the connections of this node, not of the others (ask each), in all databases; commands in MULTI are shown when they are said, those of scripts are not; \
           tokens are `(redacted)`, and ACL, CONFIG and CLIENT LIST, KILL, PAUSE and UNBLOCK are left out, as in Redis; a line is cut \
           behind 64 KiB; who lets 8 MiB of lines wait is closed (`coppice_resp_subscribers_closed_total`)",
    run: |call| {
        if call.client.multi.is_some() {
            return Act::Now(Reply::error("ERR 'MONITOR' cannot stand inside MULTI"));
        }
        let (id, home) = (call.client.id, call.home());
        let all = Rc::clone(&call.node.subscribers);
        let hears = call.client.hears.get_or_insert_with(|| all.enter(id, &home));
        if hears.monitor.is_none() {
            hears.monitor = Some(call.node.monitors.begin(id, &hears.listener));
        }
        Act::Now(Reply::OK)
    },
};
