//! A service's clones as a group, for any program: who is a member and who leads (once, or each change as an event), a message
//! to all of them, a barrier. Who they are anybody may read, as in `/v1/status`; the rest needs the service's token.
//!
//! Events of membership are the differences of two views: a reader that is slow sees fewer of them and the same end.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::Span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clones::members::limits::MESSAGE_BYTES_MAX;
use clones::members::{Message, Op, Reply};
use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use node::view::{CloneState, ServiceView};
use node::{Answer, Ask, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::address::{Path, Query};
use super::declare::whole;
use super::limits::*;
use super::places::{From, Who, held};
use super::problem::done;
use super::{Api, Problem, guard};

/// Which life of a clone asks: what its environment has as `COPPICE_MEMBER`.
const LIFE: &str = "coppice-member";

type Done = Result<Response, Problem>;

/// One life of a clone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Member {
    life: String,
    clone: String,
    node: String,
    state: CloneState,
    pid: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
struct Group {
    service: String,
    /// The life that leads.
    leader: Option<String>,
    members: Vec<Member>,
}

impl Group {
    fn of(service: &ServiceView) -> Self {
        let lives = service.clones.iter().filter(|clone| !clone.life.is_empty());
        let member = |clone: &node::view::CloneView| Member {
            life: clone.life.clone(),
            clone: clone.name.clone(),
            node: clone.node.clone(),
            state: clone.state,
            pid: clone.pid,
        };
        Self { service: service.name.clone(), leader: service.leader.clone(), members: lives.map(member).collect() }
    }

    /// What happened between an earlier look and this one, in the order in which it can be told.
    fn since(&self, before: &Self) -> Vec<(&'static str, Value)> {
        let (old, new) = (by_life(before), by_life(self));
        let gone = old.iter().filter(|(life, _)| !new.contains_key(*life)).map(|(_, m)| ("death", json!(m)));
        let born = new.iter().filter(|(life, _)| !old.contains_key(*life)).map(|(_, m)| ("birth", json!(m)));
        let changed = new.iter().filter(|(life, m)| old.get(*life).is_some_and(|was| was.state != m.state));
        let changed = changed.map(|(_, m)| ("state", json!(m)));
        let leader = self.leader.as_deref().and_then(|life| new.get(life));
        let leads = (before.leader != self.leader).then(|| ("leader", json!(leader)));
        gone.chain(born).chain(changed).chain(leads).collect()
    }
}

fn by_life(group: &Group) -> BTreeMap<&str, &Member> {
    group.members.iter().map(|member| (member.life.as_str(), member)).collect()
}

fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("plain data")
}

fn group(view: &View, service: &str) -> Result<Group, Problem> {
    let found = view.services.iter().find(|s| s.name == service).map(Group::of);
    found.ok_or_else(|| Problem::not_found(format!("there is no service {service:?}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    watch: Option<String>,
}

/// Who is a member and who leads; with `?watch` as a stream: `members` (all of it), then `birth`, `state`, `death`, `leader`.
pub async fn members(
    State(api): State<Api>,
    Path(service): Path<String>,
    look: Result<Query<Look>, Problem>,
    From(from): From,
    headers: HeaderMap,
) -> Done {
    let Query(look) = look?;
    let view = api.view();
    let now = group(&view, &service)?;
    if look.watch.is_none() {
        return Ok(Json(now).into_response());
    }
    let is_member = guard::member(&headers, &view, &service).is_ok();
    let who = if is_member { Who::Service(service.as_str().into()) } else { Who::Address(from) };
    let place = api.member_streams.take(who)?;
    let first = stream::iter([Ok::<_, Infallible>(event("members", &now))]);
    let views = api.backend.watch();
    let changes = stream::unfold((views, now), move |(mut views, before)| {
        let service = service.clone();
        async move {
            loop {
                // Ends when the node or the service does.
                views.changed().await.ok()?;
                let now = group(&views.borrow_and_update(), &service).ok()?;
                let told = now.since(&before);
                if !told.is_empty() {
                    let events: Vec<_> = told.iter().map(|(name, data)| Ok(event(name, data))).collect();
                    return Some((stream::iter(events), (views, now)));
                }
            }
        }
    });
    Ok(lasting(held(first.chain(changes.flatten()), place)))
}

/// The token of a service's clones, for programs that are none: `{"token": "..."}`.
pub async fn token(State(api): State<Api>, Path(service): Path<String>, headers: HeaderMap) -> Done {
    let view = api.view();
    guard::operator(&headers, &view)?;
    let Some(token) = view.service_tokens.get(&service) else {
        return Err(Problem::not_found(format!("there is no service {service:?}")));
    };
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(json!({"token": token}))).into_response())
}

/// A message for all members. 200 with how many nodes have it.
pub async fn broadcast(State(api): State<Api>, Path(service): Path<String>, headers: HeaderMap, body: Body) -> Done {
    guard::member(&headers, &api.view(), &service)?;
    let body = whole(body, MESSAGE_BYTES_MAX).await?;
    let from = life(&headers)?.unwrap_or_default();
    match ask(&api, Op::Tell { service, from, body }, BROADCAST_BUDGET).await? {
        Reply::Told { nodes } => Ok(Json(json!({"nodes": nodes})).into_response()),
        other => unreachable!("a broadcast was answered by {other:?}"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meet {
    #[serde(default = "first")]
    phase: u64,
    #[serde(default)]
    at_least: u32,
    #[serde(default = "a_while")]
    wait_ms: u64,
}

fn first() -> u64 {
    1
}

fn a_while() -> u64 {
    BARRIER_WAIT.as_millis()
}

/// The member of `Coppice-Member` has reached a barrier. 200 when all have, 202 with who has not when the time is over.
pub async fn barrier(
    State(api): State<Api>,
    Path((service, barrier)): Path<(String, String)>,
    meet: Result<Query<Meet>, Problem>,
    headers: HeaderMap,
) -> Done {
    let Query(Meet { phase, at_least, wait_ms }) = meet?;
    guard::member(&headers, &api.view(), &service)?;
    let life = life(&headers)?.ok_or_else(|| Problem::wrong("Coppice-Member must say which life of a clone asks"))?;
    if wait_ms > BARRIER_WAIT_MAX.as_millis() {
        return Err(Problem::wrong(format!("wait_ms may be {} at most", BARRIER_WAIT_MAX.as_millis())));
    }
    let op = Op::Arrive { service, life, barrier, phase, at_least };
    match ask(&api, op, Span::millis(wait_ms)).await? {
        Reply::Arrived { passed, there, missing } => {
            let status = if passed { StatusCode::OK } else { StatusCode::ACCEPTED };
            let body = json!({"passed": passed, "reached": there, "missing": missing});
            Ok((status, Json(body)).into_response())
        }
        other => unreachable!("a barrier was answered by {other:?}"),
    }
}

/// Messages to the members, as a stream: `message` with a text or base64, `missed` if some were dropped before they were
/// read. A reader that comes back with `Last-Event-ID` goes on where it was.
pub async fn messages(State(api): State<Api>, Path(service): Path<String>, headers: HeaderMap) -> Done {
    guard::member(&headers, &api.view(), &service)?;
    let place = api.member_streams.take(Who::Service(service.as_str().into()))?;
    let boot = api.view().nodes.iter().find(|n| n.name == api.view().me).map_or(0, |n| n.boot.0);
    let me = format!("{}.{boot}", api.view().me);
    // Numbers of another node, or of another life of this one, say nothing here.
    let was = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after = was.and_then(|id| id.rsplit_once('/')).filter(|(of, _)| *of == me).and_then(|(_, at)| at.parse().ok());
    let cut = was.is_some() && after.is_none();
    let at = match after {
        Some(after) => after,
        None => match ask(&api, Op::Listen { service: service.clone(), after: None }, LIVE_WITHIN).await? {
            Reply::News { at, .. } => at,
            other => unreachable!("a reader was answered by {other:?}"),
        },
    };
    // Told at once, so that a reader knows from when on it hears everything.
    let hello = Event::default().event("listening").id(format!("{me}/{at}")).data("{}");
    let missed = cut.then(|| event("missed", &json!({"count": null})));
    let first = stream::iter(missed.into_iter().chain([hello]).map(Ok::<_, Infallible>));
    let news = stream::unfold((api, at), move |(api, at)| {
        let (service, me) = (service.clone(), me.clone());
        async move {
            let op = Op::Listen { service, after: Some(at) };
            // Ends when the node or the service does.
            let Ok(Reply::News { messages, at, missed }) = ask(&api, op, LISTEN_FOR).await else { return None };
            let lost = (missed > 0).then(|| event("missed", &json!({"count": missed})));
            let events: Vec<Event> = lost.into_iter().chain(messages.iter().map(|m| shown(&me, m))).collect();
            Some((stream::iter(events.into_iter().map(Ok)), (api, at)))
        }
    });
    Ok(lasting(held(first.chain(news.flatten()), place)))
}

fn shown(me: &str, message: &Message) -> Event {
    let body = match std::str::from_utf8(&message.body) {
        Ok(text) => json!({"from": message.from, "text": text}),
        Err(_) => json!({"from": message.from, "base64": STANDARD.encode(&message.body)}),
    };
    event("message", &body).id(format!("{me}/{}", message.at))
}

async fn ask(api: &Api, op: Op, budget: Span) -> Result<Reply, Problem> {
    match api.backend.ask(Ask::Members(op), budget).await? {
        Answer::Members(outcome) => done(outcome),
        other => unreachable!("a question about members was answered by {other:?}"),
    }
}

pub fn life(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(life) = headers.get(LIFE) else { return Ok(None) };
    life.to_str().map(|life| Some(life.to_owned())).map_err(|_| Problem::wrong("Coppice-Member is not text"))
}

fn lasting(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(leader: Option<&str>, lives: &[(&str, CloneState)]) -> Group {
        let member = |(life, state): &(&str, CloneState)| Member {
            life: (*life).into(),
            clone: "shop/0".into(),
            node: "n1".into(),
            state: *state,
            pid: 1,
        };
        Group { service: "shop".into(), leader: leader.map(str::to_owned), members: lives.iter().map(member).collect() }
    }

    fn told(before: &Group, now: &Group) -> Vec<String> {
        let one = |(name, data): &(&str, Value)| format!("{name} {}", data["life"].as_str().unwrap_or("none"));
        now.since(before).iter().map(one).collect()
    }

    #[test]
    fn changes_are_told_as_deaths_births_states_and_leaders() {
        use CloneState::{Serving, Starting};
        let one = group(Some("a"), &[("a", Serving)]);
        assert_eq!(told(&one, &one), [""; 0]);
        let two = group(Some("a"), &[("a", Serving), ("b", Starting)]);
        assert_eq!(told(&one, &two), ["birth b"]);
        let serves = group(Some("a"), &[("a", Serving), ("b", Serving)]);
        assert_eq!(told(&two, &serves), ["state b"]);
        // A life that came and went between two looks is not told; one that was replaced is a death and a birth.
        let other = group(Some("b"), &[("b", Serving)]);
        assert_eq!(told(&serves, &other), ["death a", "leader b"]);
        assert_eq!(told(&one, &other), ["death a", "birth b", "leader b"]);
        assert_eq!(told(&one, &group(None, &[])), ["death a", "leader none"]);
    }
}
