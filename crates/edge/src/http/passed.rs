//! What a request has from the one that it is done for: how much that matters, and how long somebody waits for it. A
//! program is told both (`Coppice-Priority`, `Coppice-Deadline-Ms`) and passes them on with the calls that it makes.
//!
//! A deadline is believed from anybody, as it can only shorten. A priority is believed with the ticket that a program
//! got with a request of that priority (`Coppice-Ticket`): a MAC under a secret that all nodes have, so that the edge
//! of any node takes it, and nobody else makes one. It is the same for all requests of a priority for some time, so it
//! costs them nothing; it ends, as programs may let it out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flow::admission::CLASSES;
use http::header::{HeaderName, HeaderValue};
use ring::hmac;

use super::limits::{ANSWER_TIME, TICKET_ANEW, TICKET_LIFE, TICKET_LIFE_LONG};
use super::session::wall_ms;
use crate::fields::AnyFields;
use crate::secret::same_secret;

pub const PRIORITY: HeaderName = HeaderName::from_static("coppice-priority");
pub const DEADLINE: HeaderName = HeaderName::from_static("coppice-deadline-ms");
pub const TICKET: HeaderName = HeaderName::from_static("coppice-ticket");

/// Bytes of a ticket's MAC that are kept: too many to guess.
const MAC_BYTES: usize = 16;

/// Until when somebody waits for a request's answer to begin.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    pub at: Instant,
    /// Who asks has said so: a clone that is not done by then need not be sick. Else it is ours.
    pub is_said: bool,
}

impl Deadline {
    /// How long who asks will wait, if it says so.
    pub fn said(fields: &impl AnyFields) -> Option<Duration> {
        fields.first(&DEADLINE).and_then(|ms| ms.to_str().ok()?.trim().parse().ok()).map(Duration::from_millis)
    }

    /// The deadline of a request that came at `began`; `said` is how long its client waits, `answer` how long an answer
    /// may take to begin.
    pub fn of(said: Option<Duration>, began: Instant, answer: Duration) -> Self {
        let said = said.filter(|said| *said < answer);
        Self { at: began + said.unwrap_or(answer), is_said: said.is_some() }
    }

    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Whole milliseconds; none if there is no whole one.
    pub fn left_ms(&self) -> Option<u64> {
        self.left_ms_at(Instant::now())
    }

    /// Milliseconds that are left at this moment; none if it is over.
    pub fn left_ms_at(&self, now: Instant) -> Option<u64> {
        Some(self.at.saturating_duration_since(now).as_millis() as u64).filter(|ms| *ms > 0)
    }

    /// The client took so long to send what it has to say: that is not our time.
    pub fn later(self, by: Duration) -> Self {
        Self { at: self.at + by, ..self }
    }
}

/// The tickets that programs get now: those of most, and those that live long enough for any answer.
#[derive(Default)]
pub struct Tickets {
    most: ArcSwapOption<Made>,
    long: ArcSwapOption<Made>,
}

struct Made {
    at: Instant,
    secret: Arc<str>,
    of: [HeaderValue; CLASSES],
}

impl Tickets {
    /// What a program gets with a request of this priority whose answer may take so long to begin. None while this node
    /// does not know the secret.
    pub fn of(&self, class: u8, secret: &Arc<str>, answer: Duration, now: Instant) -> Option<HeaderValue> {
        if secret.is_empty() {
            return None;
        }
        let of = |made: &Made| made.of[usize::from(class).min(CLASSES - 1)].clone();
        let is_good =
            |made: &&Arc<Made>| now.saturating_duration_since(made.at) < TICKET_ANEW && made.secret == *secret;
        let (kept, life) =
            if answer > ANSWER_TIME { (&self.long, TICKET_LIFE_LONG) } else { (&self.most, TICKET_LIFE) };
        if let Some(made) = kept.load().as_ref().filter(is_good) {
            return Some(of(made));
        }
        let until_s = wall_ms() / 1000 + life.as_secs();
        let ticket = |class: usize| HeaderValue::try_from(ticket(class as u8, until_s, secret));
        let ticket = |class: usize| ticket(class).expect("digits and base64url");
        let made = Made { at: now, secret: Arc::clone(secret), of: std::array::from_fn(ticket) };
        let ticket = of(&made);
        kept.store(Some(Arc::new(made)));
        Some(ticket)
    }
}

/// `CLASS.UNTIL.MAC`; `until_s` in seconds since 1970.
fn ticket(class: u8, until_s: u64, secret: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mac = hmac::sign(&key, format!("ticket of priority {class} until {until_s}").as_bytes());
    format!("{class}.{until_s}.{}", URL_SAFE_NO_PAD.encode(&mac.as_ref()[..MAC_BYTES]))
}

/// The priority of the request that this one is done for, if it has a ticket of that.
pub fn class(fields: &impl AnyFields, secret: &str) -> Option<u8> {
    let shown = fields.first(&TICKET)?.to_str().ok()?.trim();
    let mut parts = shown.split('.');
    let (class, until_s) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let is_good = !secret.is_empty() && usize::from(class) < CLASSES && until_s > wall_ms() / 1000;
    (is_good && same_secret(&ticket(class, until_s, secret), shown.as_bytes())).then_some(class)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn shows(ticket: &str) -> HeaderMap {
        HeaderMap::from_iter([(TICKET, HeaderValue::from_str(ticket).unwrap())])
    }

    #[test]
    fn a_ticket_says_its_priority_to_who_has_the_secret_until_its_time_is_over() {
        let secret: Arc<str> = "secret".into();
        let (tickets, now_s) = (Tickets::default(), wall_ms() / 1000);
        for of in 0..10 {
            let given = tickets.of(of, &secret, ANSWER_TIME, Instant::now()).unwrap();
            assert_eq!(tickets.of(of, &secret, ANSWER_TIME, Instant::now()).unwrap(), given, "made once");
            let given = given.to_str().unwrap().to_owned();
            assert_eq!(class(&shows(&given), &secret), Some(of));
            assert_eq!(class(&shows(&given), "other"), None);
            assert_eq!(class(&shows(&given), ""), None);
            let (_, rest) = given.split_once('.').unwrap();
            assert_eq!(class(&shows(&format!("{}.{rest}", (of + 1) % 10)), &secret), None, "of another priority");
            assert_eq!(class(&shows(&format!("+{given}")), &secret), None);
        }
        assert_eq!(class(&shows(&ticket(9, now_s, &secret)), &secret), None, "its time is over");
        assert_eq!(class(&shows(&ticket(9, now_s + 5, &secret)), &secret), Some(9));
        assert_eq!(class(&shows(&ticket(10, now_s + 5, &secret)), &secret), None, "no such priority");
        assert_eq!(class(&HeaderMap::new(), &secret), None);
        for wrong in ["", ".", "9", "9.9", "9.99999999999999999999999.x", "9.99999999999.", "..."] {
            assert_eq!(class(&shows(wrong), &secret), None);
        }
    }

    #[test]
    fn a_node_that_does_not_know_the_secret_gives_no_tickets_and_takes_none() {
        let (tickets, none): (_, Arc<str>) = (Tickets::default(), "".into());
        assert_eq!(tickets.of(9, &none, ANSWER_TIME, Instant::now()), None);
        assert_eq!(class(&shows(&ticket(9, u64::MAX, "")), ""), None);
        let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let of = |secret| tickets.of(9, secret, ANSWER_TIME, Instant::now());
        assert_ne!(of(&first), of(&second), "another secret, other tickets");
    }

    #[test]
    fn a_ticket_outlives_the_longest_answer_that_its_service_may_give() {
        let (tickets, secret): (_, Arc<str>) = (Tickets::default(), "secret".into());
        let lives = |answer: Duration| {
            let ticket = tickets.of(9, &secret, answer, Instant::now()).unwrap();
            let until_s: u64 = ticket.to_str().unwrap().split('.').nth(1).unwrap().parse().unwrap();
            until_s - wall_ms() / 1000
        };
        assert!((240..=300).contains(&lives(Duration::from_secs(5))), "most are short");
        for answer in [61, 301, 3600].map(Duration::from_secs) {
            // One that is given at the end of its time to be given has a minute less.
            assert!(lives(answer) > answer.as_secs() + TICKET_ANEW.as_secs(), "{answer:?}");
        }
        assert!((240..=300).contains(&lives(ANSWER_TIME)), "beside the others");
    }

    #[test]
    fn a_deadline_can_only_shorten() {
        let began = Instant::now();
        for (text, expect) in
            [("70", Some(70)), ("59999", Some(59_999)), ("60000", None), ("99999999", None), ("x", None), ("-1", None)]
        {
            let headers = HeaderMap::from_iter([(DEADLINE, HeaderValue::from_str(text).unwrap())]);
            let deadline = Deadline::of(Deadline::said(&headers), began, ANSWER_TIME);
            assert_eq!(deadline.at, began + expect.map_or(ANSWER_TIME, Duration::from_millis), "{text}");
            assert_eq!(deadline.is_said, expect.is_some(), "{text}");
        }
        let long = Deadline::of(None, began, Duration::from_secs(600));
        assert_eq!((long.at, long.is_said), (began + Duration::from_secs(600), false));
        let over = Deadline { at: began, is_said: true };
        assert_eq!((over.left_ms(), over.later(Duration::from_secs(60)).is_said), (None, true));
    }
}
