//! The clones of a service as a group (Ninja 3.1): who is a member and who leads, messages to all, barriers. What is promised:
//! docs/guide/sdk.md.

use std::sync::Arc;
use std::time::Duration;

use base::{Outcome, Refused};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::limits::*;
use crate::node::{Call, Failed, Node, quoted};
use crate::stream::{Event, Events};
use crate::{Given, StartError};

const LIFE: HeaderName = HeaderName::from_static("coppice-member");

/// The group that this clone is in. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    node: Node,
    service: Arc<str>,
    token: Arc<str>,
    life: Arc<str>,
}

/// One life of a clone. A clone that is started anew is another member.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Member {
    /// The name that no other life has.
    pub life: String,
    /// `shop/2`
    pub clone: String,
    pub node: String,
    pub state: State,
    pub pid: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Serving,
    /// It was asked to go, and finishes what it has.
    Draining,
    /// A state that a newer node knows.
    #[serde(other)]
    Other,
}

/// All members, as one node knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Members {
    /// The life that leads.
    pub leader: Option<String>,
    pub members: Vec<Member>,
}

/// What happened to the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// How it is now: at first, and after the stream was cut.
    Now(Members),
    Birth(Member),
    State(Member),
    Death(Member),
    Leader(Option<Member>),
}

/// What came to all members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    Message {
        from: String,
        body: Bytes,
    },
    /// Messages that came were dropped before they were read, or the stream was cut: look at what they tell of anew.
    Missed,
}

/// How a barrier stands.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Meeting {
    pub passed: bool,
    /// So many have reached it.
    pub reached: u32,
    /// These have not.
    pub missing: Vec<String>,
}

/// Birth and death events, for ever.
pub struct Changes(Events);

/// Messages, for ever.
pub struct Messages(Events);

impl Group {
    pub fn of(given: &Given, node: Node) -> Result<Self, StartError> {
        let Some((life, token)) = given.life.as_deref().zip(given.token_of_service.as_deref()) else {
            let why = "COPPICE_MEMBER and COPPICE_TOKEN are not set: only a clone of a service has a group";
            return Err(StartError(why.into()));
        };
        Ok(Self { node, service: given.service.as_str().into(), token: token.into(), life: life.into() })
    }

    /// The name of this life of this clone.
    pub fn life(&self) -> &str {
        &self.life
    }

    pub async fn members(&self) -> Result<Members, Refused> {
        let answer = self.node.call(&self.call(Method::GET, "members")).await.map_err(of_read)?;
        serde_json::from_slice(&answer.body).map_err(|_| of_read(answer.unexpected()))
    }

    /// Whether this clone leads. Of two that are asked at one moment both may believe so for as long as nodes see the cluster
    /// differently: what must never be done twice needs a [`crate::Lease`] as well.
    pub async fn leads(&self) -> Result<bool, Refused> {
        Ok(self.members().await?.leader.as_deref() == Some(&*self.life))
    }

    /// Births, deaths and leaders from now on.
    pub fn watch(&self) -> Changes {
        Changes(Events::new(self.node.clone(), self.call(Method::GET, "members?watch")))
    }

    /// Messages to all members from now on; this clone's own too.
    pub fn messages(&self) -> Messages {
        Messages(Events::new(self.node.clone(), self.call(Method::GET, "messages")))
    }

    /// Sends a message of 16 KiB at most to all members. Done: so many nodes have it, which are all that live. Unknown: some
    /// have it. For words like "read the settings anew"; what must not be lost belongs into a namespace.
    pub async fn broadcast(&self, message: impl Into<Bytes>) -> Outcome<u32> {
        let call = match self.call(Method::POST, "broadcast").header(LIFE, &self.life) {
            Ok(call) => call.body(message),
            Err(failed) => return ended(failed),
        };
        let answer = match self.node.call(&call).await {
            Ok(answer) if answer.status == StatusCode::OK => answer,
            Ok(answer) => return ended(answer.unexpected()),
            Err(failed) => return ended(failed),
        };
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        match body.and_then(|body| u32::try_from(body.get("nodes")?.as_u64()?).ok()) {
            Some(nodes) => Outcome::Done(nodes),
            None => ended(answer.unexpected()),
        }
    }

    /// This member has reached a phase of a barrier; waits until all that live have, and at least so many. Whoever dies is not
    /// waited for. Reaching a phase is reaching those before it, and stays so for as long as this clone lives.
    pub async fn barrier(&self, name: &str, phase: u64, at_least: u32, wait: Duration) -> Result<Meeting, Refused> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait_ms = left.min(BARRIER_ASK).as_millis();
            let path = format!("barrier/{}?phase={phase}&at_least={at_least}&wait_ms={wait_ms}", quoted(name));
            let mut call = self.call(Method::POST, &path).header(LIFE, &self.life).map_err(of_read)?;
            // Having reached it twice is having reached it.
            call.repeats = true;
            let meeting = match self.node.call(&call).await {
                Ok(answer) => serde_json::from_slice::<Meeting>(&answer.body).map_err(|_| of_read(answer.unexpected())),
                Err(failed) => Err(of_read(failed)),
            };
            let over = Instant::now() >= end;
            match meeting {
                Ok(meeting) if meeting.passed || over => return Ok(meeting),
                Ok(_) => (),
                // A node that restarts, or has not heard of this life yet, will take it in a moment.
                Err(Refused { retry_after: Some(after), .. }) if !over => tokio::time::sleep(after.into()).await,
                Err(refused) => return Err(refused),
            }
        }
    }

    fn call(&self, method: Method, rest: &str) -> Call {
        Call::new(method, format!("/v1/services/{}/{rest}", quoted(&self.service)), &self.token)
    }
}

impl Changes {
    /// The next one. If the node goes, the stream goes on at another with [`Change::Now`].
    pub async fn next(&mut self) -> Change {
        loop {
            let Event { name, data, .. } = self.0.next().await;
            let member = || serde_json::from_str::<Member>(&data);
            let change = match name.as_str() {
                "members" => serde_json::from_str(&data).map(Change::Now),
                "birth" => member().map(Change::Birth),
                "state" => member().map(Change::State),
                "death" => member().map(Change::Death),
                "leader" => serde_json::from_str(&data).map(Change::Leader),
                // Of a newer node.
                _ => continue,
            };
            if let Ok(change) = change {
                return change;
            }
        }
    }
}

impl Messages {
    /// The next one. If the node goes, the stream goes on at another with [`Heard::Missed`].
    pub async fn next(&mut self) -> Heard {
        loop {
            let Event { name, data, .. } = self.0.next().await;
            match name.as_str() {
                "message" => {
                    if let Some(heard) = message(&data) {
                        return heard;
                    }
                }
                "missed" => return Heard::Missed,
                // "listening", or of a newer node.
                _ => (),
            }
        }
    }
}

fn message(data: &str) -> Option<Heard> {
    let data: Value = serde_json::from_str(data).ok()?;
    let body = match (data.get("text"), data.get("base64")) {
        (Some(text), _) => Bytes::from(text.as_str()?.to_owned()),
        (None, Some(bytes)) => STANDARD.decode(bytes.as_str()?).ok()?.into(),
        (None, None) => return None,
    };
    Some(Heard::Message { from: data["from"].as_str().unwrap_or_default().to_owned(), body })
}

fn of_read(failed: Failed) -> Refused {
    match failed {
        Failed::Refused(refused) => refused,
        Failed::Unknown(unknown) => Refused::busy(unknown.why, RETRY_AFTER),
    }
}

fn ended<T>(failed: Failed) -> Outcome<T> {
    match failed {
        Failed::Refused(refused) => Outcome::Refused(refused),
        Failed::Unknown(unknown) => Outcome::Unknown(unknown),
    }
}
