//! What clients ask when they connect, and how a client reads.

use base::Span;

use super::*;
use crate::resp::limits::STALE_DEFAULT;

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "READONLY",
            -1,
            Keys::None,
            Does::Ask,
            "[max-age-ms]",
            "what this connection reads from now on may be so old, 1000 ms unless said",
            |call| {
                let bound = match call.command.len() {
                    1 => Some(STALE_DEFAULT),
                    2 => integer(call.command.arg(1)).and_then(|ms| u64::try_from(ms).ok()).map(Span::millis),
                    _ => return syntax_error(),
                };
                let Some(bound) = bound else { return Act::Now(not_an_integer()) };
                call.client.stale = Some(bound);
                Act::Now(Reply::OK)
            },
        ),
        "the node's own copy answers if it is not older; else the leader, as always. Inside of MULTI nothing is stale",
    ),
    spec("READWRITE", 1, Keys::None, Does::Ask, "", "what this connection reads is never stale again", |call| {
        call.client.stale = None;
        Act::Now(Reply::OK)
    }),
];
