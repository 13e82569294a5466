//! Entries of class `soft` that are there as long as a request is under way: its answer is a stream that does not end. Whoever waits for it
//! holds them; when his connection ends, be it as his process did, they are let go.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use state::soft::{Action, Kind, Op, Reply};
use tokio::time::sleep;

use super::address::Keyed;
use super::changes::sse;
use super::class::only_soft;
use super::declare::whole;
use super::limits::{LET_GO_AGAIN_MAX, OP_BUDGET, TRANSACTION_BYTES_MAX, WATCH_AGAIN};
use super::linear::Text;
use super::places::{Who, held};
use super::soft::{asked, operate};
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Of a set.
    members: Option<Vec<Text>>,
    /// Of a hash, with their values.
    fields: Option<BTreeMap<String, Text>>,
}

/// Whoever holds something at this node has a number, never given twice in a life of it.
static HOLDERS: AtomicU64 = AtomicU64::new(1);

/// Lets go when it goes.
struct Holder {
    api: Api,
    ns: Arc<str>,
    number: u64,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let (api, ns, holder) = (self.api.clone(), Arc::clone(&self.ns), self.number);
        // Outside of the runtime the node ends, and with it all that is held.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let let_go = || Op::of(Arc::clone(&ns), Action::LetGo { holder });
            // Unknown is done: others will hear of it. Only what had no room is tried again, ever later: given up it would be there
            // until the node ends. What is held is bounded by the namespace's size, and so are these.
            let mut pause = WATCH_AGAIN;
            while let Err(Problem { retry_after: Some(_), .. }) = asked(&api, let_go(), OP_BUDGET).await {
                sleep(pause.into()).await;
                pause = pause.times(2).min(LET_GO_AGAIN_MAX);
            }
        });
    }
}

/// `{"members": ["ann"]}` or `{"fields": {"ann": "phone"}}` at a key. `event: held` says that they are there, as `{"new": 1}`.
pub async fn hold(
    State(api): State<Api>,
    Keyed { ns, key }: Keyed,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::holder(&headers, &api.view(), &ns)?;
    only_soft(&api, &ns)?;
    let body = whole(body, TRANSACTION_BYTES_MAX).await?;
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|error| Problem::wrong(error.to_string()))?;
    let (kind, pairs) = match wanted {
        Wanted { members: Some(members), fields: None } => {
            let member = |text: Text| Ok((text.bytes()?, None));
            (Kind::Member, members.into_iter().map(member).collect::<Result<Vec<_>, Problem>>()?)
        }
        Wanted { members: None, fields: Some(fields) } => {
            let field = |(name, text): (String, Text)| Ok((Bytes::from(name), Some(text.bytes()?)));
            (Kind::Field, fields.into_iter().map(field).collect::<Result<Vec<_>, Problem>>()?)
        }
        _ => return Err(Problem::wrong("say what is held: `{\"members\": [...]}` or `{\"fields\": {...}}`")),
    };
    if pairs.is_empty() {
        return Err(Problem::wrong("nothing is held of nothing: name a member or a field"));
    }
    let room = api.watchers.take(Who::Namespace(ns.as_str().into()))?;
    let number = HOLDERS.fetch_add(1, Ordering::Relaxed);
    let holder = Holder { api: api.clone(), ns: ns.as_str().into(), number };
    let new = match operate(&api, ns, Action::Hold { kind, key, pairs, holder: number }, &headers).await? {
        Reply::Int(new) => new,
        other => unreachable!("what is held was answered by {other:?}"),
    };
    let first = Event::default().event("held").data(json!({"new": new}).to_string());
    // It goes with the stream.
    let rest = stream::pending::<Event>().map(move |event| {
        let _ = &holder;
        event
    });
    Ok(sse(held(stream::iter([first]).chain(rest).map(Ok::<Event, Infallible>), room)))
}
