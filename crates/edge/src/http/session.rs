//! Sessions that the edge carries: the browser's cookie is opened, the program gets the value with its request and
//! returns the new one with its answer, and the answer leaves only when the value is stored. The program never sees the
//! cookie; it may set no cookie of that name; and what clients say under our names is taken out before it sees them.
//!
//! A cookie that opens nothing is no session: the program is asked as for a new visitor, and the cookie is cleared. A
//! session that cannot be read *now* is another matter: that ends in 503, or a moment's trouble would log people out.
//! How programs speak this is written down in docs/guide/sessions.md.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::{Outcome, Priority, Refused, Span, Unknown};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use clones::RouteSession;
use clones::session::SameSite;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use node::{Answer, Ask, View};
use state::session::{Action, Kind, Lease, Op, Reply, When};
use tokio::sync::watch;

use super::limits::{
    ANSWER_TIME, COOKIES_TRIED_MAX, HANDLE_LIFE, SESSION_HEADER_BYTES_MAX, SESSION_OP_BUDGET, TOUCH_AFTER_PERCENT,
};
use super::refusal::Refusal;
use crate::ask::Backend;
use crate::cookie::{self, Held};
use crate::fields::AnyFields;
use crate::handle::Handle;
use crate::meter::Sessions as Meter;
pub use crate::wall::wall_ms;

const VALUE: HeaderName = HeaderName::from_static("coppice-session");
const HANDLE: HeaderName = HeaderName::from_static("coppice-session-handle");
const RENEW: HeaderName = HeaderName::from_static("coppice-session-renew");
/// What we tell programs, and they us, begins with this and a dash, or what some take for one.
const OURS: &str = "coppice";
/// What a client may read of what a program says under our name: how good an answer is, and how large the original was.
const TO_CLIENTS: [&str; 2] = ["coppice-answer", "coppice-original-bytes"];
/// To the program: there is no session. From the program: there is to be none.
const NONE: &[u8] = b"-";
/// To the program: the value is large, and the handle gets it.
const LARGE: &[u8] = b"*";

/// What sessions need of the node.
pub struct Sessions {
    pub backend: Arc<dyn Backend>,
    pub view: watch::Receiver<Arc<View>>,
    pub meter: Arc<Meter>,
}

/// The session of one request, from its cookie to its answer.
pub struct Carried {
    route: Arc<RouteSession>,
    /// A session that is there, or the id of one that may come to be.
    held: Held,
    /// None if there is no session yet.
    lease_left: Option<Span>,
    /// The client showed a cookie, but there is no session.
    to_clear: bool,
    over_tls: bool,
    /// Priority of the request, 0 to 9: in overload bricks turn away first what matters less.
    pub class: u8,
}

/// What the program's answer says about the session.
enum Said {
    Nothing,
    /// Keep this. Under a new id if `renew`.
    Value(Bytes, bool),
    End,
    /// The program has stored it by a call.
    Stored(Held),
}

impl Carried {
    /// The client's cookie opened a session.
    pub fn is_there(&self) -> bool {
        self.lease_left.is_some()
    }

    /// Id of the session, which may not be there yet.
    pub fn id(&self) -> &str {
        &self.held.id
    }

    pub fn is_of(&self, route: &RouteSession) -> bool {
        *self.route == *route
    }
}

impl Sessions {
    async fn ask(&self, op: Op, class: u8) -> Outcome<Reply> {
        let op = Op { priority: Priority::of_ten(class), ..op };
        match self.backend.ask(Ask::Session(op), SESSION_OP_BUDGET).await {
            Ok(Answer::Session(outcome)) => outcome,
            Ok(other) => unreachable!("a session operation was answered by {other:?}"),
            Err(crate::ask::Gone) => Outcome::Unknown(Unknown { why: "the node stopped".into() }),
        }
    }

    fn token(&self, namespace: &str) -> String {
        self.view.borrow().tokens.get(namespace).cloned().unwrap_or_default()
    }

    /// Reads the session that a request's cookie names, and gives it to the program in place of the cookie. `class`:
    /// the request's priority, 0 to 9; `answer`: how long its answer may take to begin.
    pub async fn begin(
        &self,
        route: Arc<RouteSession>,
        headers: &mut HeaderMap,
        class: u8,
        answer: Duration,
    ) -> Result<Carried, Refusal> {
        let name = &route.spec.cookie;
        let shown = cookie::values(headers, name);
        cookie::remove(headers, name);
        let mut found = None;
        for text in shown.iter().take(COOKIES_TRIED_MAX) {
            let held = Held::shown(text);
            match self.ask(held.op(&route.spec.namespace, Action::Get), class).await {
                Outcome::Done(Reply::Value { value, lease_left, .. }) => {
                    found = Some((held, value, lease_left));
                    break;
                }
                // Each is counted where it was found out.
                Outcome::Done(Reply::BadCookie(_) | Reply::Absent | Reply::Lost) => (),
                Outcome::Done(other) => unreachable!("a get by cookie was answered by {other:?}"),
                Outcome::Refused(Refused { why, .. }) | Outcome::Unknown(Unknown { why }) => {
                    tracing::debug!(namespace = route.spec.namespace, why, "a session could not be read");
                    self.meter.failed.fetch_add(1, Relaxed);
                    return Err(Refusal::SessionUnread);
                }
            }
        }
        let (held, value, lease_left) = match found {
            Some((held, value, lease_left)) => (held, Some(value), Some(lease_left)),
            None => (Held::fresh().map_err(|_| Refusal::SessionUnread)?, None, None),
        };
        let handle = Handle {
            held: held.clone(),
            max_bytes: route.spec.max_bytes,
            until_ms: wall_ms() + (HANDLE_LIFE + answer.saturating_sub(ANSWER_TIME)).as_millis() as u64,
        };
        let namespace = &route.spec.namespace;
        let handle = handle.seal(namespace, &self.token(namespace)).map_err(|_| Refusal::SessionUnread)?;
        headers.insert(HANDLE, HeaderValue::try_from(handle).expect("a name and base64url"));
        headers.insert(VALUE, shown_to_program(value.as_ref()));
        if value.is_some() {
            self.meter.read.fetch_add(1, Relaxed);
        }
        let over_tls = headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes() == b"https");
        let to_clear = value.is_none() && !shown.is_empty();
        Ok(Carried { route, held, lease_left, to_clear, over_tls, class })
    }

    /// Stores what the program's answer says, and gives the client its cookie. The answer may leave when this is done.
    pub async fn finish(&self, carried: Carried, headers: &mut HeaderMap) -> Result<(), Refusal> {
        let said = self.said(&carried, headers);
        remove_from_answer(headers);
        cookie::remove_set(headers, &carried.route.spec.cookie);
        match said? {
            Said::Value(value, renew) => {
                let held = self.store(&carried, value, renew).await?;
                carried.set_cookie(headers, Some(&held));
            }
            Said::Stored(held) => carried.set_cookie(headers, Some(&held)),
            Said::End => {
                self.end(&carried).await?;
                if carried.lease_left.is_some() || carried.to_clear {
                    carried.set_cookie(headers, None);
                }
            }
            Said::Nothing => {
                if let Some(held) = self.touch(&carried).await {
                    carried.set_cookie(headers, Some(&held));
                } else if carried.to_clear {
                    carried.set_cookie(headers, None);
                }
            }
        }
        Ok(())
    }

    fn said(&self, carried: &Carried, headers: &HeaderMap) -> Result<Said, Refusal> {
        let (value, handle) = (one(headers, &VALUE)?, one(headers, &HANDLE)?);
        let renew = headers.contains_key(RENEW);
        if renew && value.is_none_or(|value| value.is_empty() || value == NONE) {
            return Err(Refusal::SessionSaid("Coppice-Session-Renew needs a value in Coppice-Session"));
        }
        match (value, handle) {
            (None, None) => Ok(Said::Nothing),
            (Some(_), Some(_)) => {
                Err(Refusal::SessionSaid("Coppice-Session and Coppice-Session-Handle; one of them is possible"))
            }
            (Some(b"" | NONE), None) => Ok(Said::End),
            (Some(value), None) => {
                let value = URL_SAFE_NO_PAD.decode(value.trim_ascii_end());
                let value = value.map_err(|_| Refusal::SessionSaid("a Coppice-Session that is not base64url"))?;
                if value.len() > SESSION_HEADER_BYTES_MAX {
                    return Err(Refusal::SessionSaid(
                        "a Coppice-Session of more than 4096 bytes; PUT it by its handle",
                    ));
                }
                if value.len() > carried.route.spec.max_bytes as usize {
                    return Err(Refusal::SessionSaid("a Coppice-Session over the service's max_bytes"));
                }
                Ok(Said::Value(value.into(), renew))
            }
            (None, Some(handle)) => {
                let not_its = Refusal::SessionSaid("a Coppice-Session-Handle that is not of this request's session");
                let text = std::str::from_utf8(handle).unwrap_or_default();
                let namespace = &carried.route.spec.namespace;
                let opened = Handle::open(text, &self.token(namespace), wall_ms())
                    .filter(|handle| Handle::namespace(text) == Some(namespace) && handle.held.id == carried.held.id);
                match opened {
                    Some(Handle { held, .. }) if held.cookie.is_some() => Ok(Said::Stored(held)),
                    // The handle that came with the request of a new visitor: nothing was stored by it.
                    Some(_) => Ok(Said::Nothing),
                    None => Err(not_its),
                }
            }
        }
    }

    async fn store(&self, carried: &Carried, value: Bytes, renew: bool) -> Result<Held, Refusal> {
        let namespace = &carried.route.spec.namespace;
        let put = || Action::Put {
            kind: Kind::Text,
            value: value.clone(),
            lease: Lease::Default,
            when: When::Always,
            want_old: false,
        };
        let mut held = if renew { Held::fresh().map_err(|_| Refusal::SessionUnstored)? } else { carried.held.clone() };
        let mut outcome = self.ask(held.op(namespace, put()), carried.class).await;
        if matches!(outcome, Outcome::Done(Reply::BadCookie(_))) {
            // It was good a moment ago: it has expired meanwhile, and what is written now begins anew.
            held.cookie = None;
            outcome = self.ask(held.op(namespace, put()), carried.class).await;
        }
        held.cookie = match outcome {
            Outcome::Done(Reply::Stored { cookie, .. }) => cookie,
            Outcome::Done(other) => unreachable!("a put by cookie was answered by {other:?}"),
            Outcome::Refused(refused) => return Err(self.failed(namespace, &refused.why, Refusal::SessionUnstored)),
            Outcome::Unknown(unknown) => return Err(self.failed(namespace, &unknown.why, Refusal::SessionUnknown)),
        };
        self.meter.stored.fetch_add(1, Relaxed);
        if renew && carried.lease_left.is_some() {
            // If that fails the old id still finds what was there before, and nothing of what is new.
            let _ = self.ask(carried.held.op(namespace, Action::Remove), carried.class).await;
        }
        Ok(held)
    }

    async fn end(&self, carried: &Carried) -> Result<(), Refusal> {
        if carried.lease_left.is_none() {
            return Ok(());
        }
        let namespace = &carried.route.spec.namespace;
        match self.ask(carried.held.op(namespace, Action::Remove), carried.class).await {
            Outcome::Done(_) => {
                self.meter.ended.fetch_add(1, Relaxed);
                Ok(())
            }
            Outcome::Refused(refused) => Err(self.failed(namespace, &refused.why, Refusal::SessionUnstored)),
            Outcome::Unknown(unknown) => Err(self.failed(namespace, &unknown.why, Refusal::SessionUnknown)),
        }
    }

    /// Prolongs a session that was not written, if it was not prolonged a moment ago. That this fails is no reason to
    /// keep the answer back: the session is there, and the next request tries again.
    async fn touch(&self, carried: &Carried) -> Option<Held> {
        let left_ms = carried.lease_left?.as_millis();
        if left_ms > carried.route.lease_ms / 100 * (100 - TOUCH_AFTER_PERCENT) {
            return None;
        }
        let namespace = &carried.route.spec.namespace;
        match self.ask(carried.held.op(namespace, Action::Touch { lease: Lease::Default }), carried.class).await {
            Outcome::Done(Reply::Stored { cookie, .. }) => {
                self.meter.touched.fetch_add(1, Relaxed);
                Some(Held { cookie, ..carried.held.clone() })
            }
            other => {
                tracing::debug!(namespace, ?other, "a session could not be prolonged");
                None
            }
        }
    }

    fn failed(&self, namespace: &str, why: &str, refusal: Refusal) -> Refusal {
        tracing::debug!(namespace, why, "a session could not be stored");
        self.meter.failed.fetch_add(1, Relaxed);
        refusal
    }
}

impl Carried {
    /// Sets the cookie, or clears it. Such an answer is for one person: no cache in between may keep it.
    fn set_cookie(&self, headers: &mut HeaderMap, held: Option<&Held>) {
        let RouteSession { spec, path, lease_ms } = &*self.route;
        let (text, age) = held.map_or((String::new(), 0), |held| (held.text(), lease_ms / 1000));
        let secure = if spec.is_secure(self.over_tls) { "; Secure" } else { "" };
        let same_site = match spec.same_site {
            SameSite::Lax => "Lax",
            SameSite::Strict => "Strict",
            SameSite::None => "None",
        };
        let line =
            format!("{}={text}; Path={path}; Max-Age={age}; HttpOnly{secure}; SameSite={same_site}", spec.cookie);
        let line = HeaderValue::try_from(line).expect("name and path were checked when they were declared");
        headers.append(header::SET_COOKIE, line);
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private"));
    }
}

/// Takes out what clients must not say, and programs say to the edge alone: all that begins with our name, whatever it
/// may mean one day, also in the spelling that WSGI and CGI programs take for the same. A deadline may be said by
/// anybody: it has been read by then, and what is left of it is told anew with each try.
pub fn remove_ours(headers: &mut impl AnyFields) {
    headers.take_if(is_ours);
}

/// Takes our fields out of an answer, but for what programs say to their clients under our name ([`TO_CLIENTS`]).
pub fn remove_from_answer(headers: &mut HeaderMap) {
    headers.take_if(|name| is_ours(name) && !TO_CLIENTS.contains(&name.as_str()));
}

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().strip_prefix(OURS).is_some_and(|rest| rest.starts_with(['-', '_']))
}

fn shown_to_program(value: Option<&Bytes>) -> HeaderValue {
    match value {
        None => HeaderValue::from_bytes(NONE).expect("plain ASCII"),
        Some(value) if value.len() > SESSION_HEADER_BYTES_MAX => HeaderValue::from_bytes(LARGE).expect("plain ASCII"),
        Some(value) => HeaderValue::try_from(URL_SAFE_NO_PAD.encode(value)).expect("base64url is plain ASCII"),
    }
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(|value| value.as_bytes().trim_ascii())),
        (_, Some(_)) => Err(Refusal::SessionSaid("more than one Coppice-Session")),
    }
}

impl Sessions {
    /// What answers a challenge, if the host that is asked for is one whose certificate comes by itself.
    pub fn challenge(&self, method: &Method, host: Option<&HeaderValue>, token: &str) -> Option<String> {
        let host = host?.to_str().ok()?;
        let acme = Arc::clone(&self.view.borrow().acme);
        acme.answer(host, token).filter(|_| matches!(*method, Method::GET | Method::HEAD))
    }

    /// The certificate of this host comes by itself.
    pub fn comes_by_itself(&self, host: &HeaderValue) -> bool {
        let acme = Arc::clone(&self.view.borrow().acme);
        host.to_str().is_ok_and(|host| acme.is_ours(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_but_the_edge_speaks_under_our_names() {
        let mut headers = HeaderMap::new();
        for name in [
            "coppice-session",
            "coppice_session",
            "coppice-session-handle",
            "coppice_session_x",
            "coppice-member",
            "coppice-profile",
            "coppice_what-is-to-come",
            "coppice_deadline_ms",
            "coppice-deadline-ms",
            "coppice-answer",
            "coppices",
            "x-coppice-other",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let mut answer = headers.clone();
        remove_ours(&mut headers);
        let left = |headers: &HeaderMap| {
            let mut left: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(left(&headers), ["coppices", "x-coppice-other"]);
        remove_from_answer(&mut answer);
        assert_eq!(left(&answer), ["coppice-answer", "coppices", "x-coppice-other"]);
    }
}
