//! PRIORITY: how much what a connection asks matters. In overload what matters less is refused first.

use base::frame::PRIORITY_MAX;

use super::*;

pub static PRIORITY: Spec = Spec {
    name: "PRIORITY",
    arity: 2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "number",
    summary: "what this connection asks from now on matters so much: 0 is refused first, 9 last, 5 is usual",
    note: "not in Redis; AUTH makes it 5 again; EXEC goes with what was said last. What was sent before keeps its own, and on one \
           key its turn: who is behind it waits for its answer",
    run,
};

fn run(call: &mut Call<'_>) -> Act {
    let class = integer(call.command.arg(1)).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= PRIORITY_MAX);
    let Some(class) = class else {
        return Act::Now(Reply::Error(format!("ERR a priority is a number from 0 to {PRIORITY_MAX}")));
    };
    call.client.class = class;
    Act::Now(Reply::OK)
}
