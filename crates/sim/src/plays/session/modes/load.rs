//! What clients ask of the `session` class in its two other ways: sessions whose cookie the client keeps, and documents
//! that several clients read, change a field of their own in, and write back whole (`merge = "fields"`). Judging what
//! came back is for `promises::modes`.

use base::{Outcome, Rng, Span};
use bytes::Bytes;
use state::session::doc::Doc;
use state::session::{Action, Lease, Op, Reply, When};

use crate::plays::session::load;

/// The namespace whose documents are merged.
pub const FORMS: &str = "forms";
const DOCUMENTS: u64 = 2;
/// A client begins another session after so many writes of one.
const SESSION_WRITES: u64 = 40;

/// Names a write, and the value it stores.
pub type WriteId = u64;

#[derive(Clone, Debug)]
pub enum Act {
    /// Puts a value under a session, with the cookie of the last one that was acknowledged.
    Put {
        session: String,
        id: WriteId,
        cookie: Option<String>,
    },
    Get {
        session: String,
        cookie: String,
    },
    /// Founds a document that nobody has written yet.
    Found {
        document: String,
    },
    Read {
        document: String,
    },
    /// Sets the client's own field in the document as it was read.
    Set {
        document: String,
        field: String,
        id: WriteId,
        text: Bytes,
    },
}

enum Kind {
    Cookies { session: u64, writes: u64, cookie: Option<String> },
    Fields { read: Option<(String, Bytes)>, missing: Option<u64> },
}

struct Client {
    rng: Rng,
    pause: Span,
    kind: Kind,
}

pub struct ModesLoad {
    clients: Vec<Client>,
    writes: WriteId,
    /// How often a document had to be founded anew, by document; it has another name then.
    ages: Vec<u64>,
    /// Under which name all others know it: since its founder was answered. A put without a mark that is still under way when
    /// somebody writes what was made from it may take effect once more (docs/design/session.md).
    known: Vec<u64>,
}

impl ModesLoad {
    pub fn new(mut rng: Rng) -> Self {
        let pause = Span::millis(*rng.pick(&[60, 200, 500]).expect("it is not empty"));
        let cookies = (0..rng.between(1, 3)).map(|_| Kind::Cookies { session: 0, writes: 0, cookie: None });
        let fields = (0..rng.between(2, 4)).map(|_| Kind::Fields { read: None, missing: None });
        let kinds: Vec<Kind> = fields.chain(cookies).collect();
        let mut clients: Vec<_> = kinds.into_iter().map(|kind| Client { rng: rng.fork(), pause, kind }).collect();
        // The first of all founds the documents.
        if let Kind::Fields { missing, .. } = &mut clients[0].kind {
            *missing = Some(0);
        }
        Self { clients, writes: 0, ages: vec![0; DOCUMENTS as usize], known: vec![0; DOCUMENTS as usize] }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let Client { rng, kind, .. } = &mut self.clients[client];
        let budget = Span::millis(*rng.pick(&[500, 1_000, 2_000]).expect("it is not empty"));
        let mut id = || {
            self.writes += 1;
            self.writes
        };
        let act = match kind {
            Kind::Cookies { session, writes, cookie } => {
                if *writes >= SESSION_WRITES {
                    (*session, *writes, *cookie) = (*session + 1, 0, None);
                }
                let name = format!("c{client}-{session}");
                match cookie.clone() {
                    Some(cookie) if rng.chance(0.5) => Act::Get { session: name, cookie },
                    cookie => {
                        *writes += 1;
                        Act::Put { session: name, id: id(), cookie }
                    }
                }
            }
            Kind::Fields { read, missing } => match (missing.take(), read.take()) {
                (Some(document), _) => {
                    // Each document in turn, at the beginning.
                    let first = document + 1 < DOCUMENTS && self.ages[document as usize + 1] == 0;
                    *missing = first.then_some(document + 1);
                    self.ages[document as usize] += 1;
                    Act::Found { document: format!("d{document}-{}", self.ages[document as usize]) }
                }
                (None, Some((document, text))) => Act::Set { document, field: format!("f{client}"), id: id(), text },
                (None, None) => {
                    let document = rng.below(DOCUMENTS);
                    Act::Read { document: format!("d{document}-{}", self.known[document as usize]) }
                }
            },
        };
        (act, budget)
    }

    /// What a client remembers of an answer.
    pub fn heard(&mut self, client: usize, act: &Act, outcome: &Outcome<Reply>) {
        match (&mut self.clients[client].kind, act, outcome) {
            (Kind::Cookies { cookie, .. }, Act::Put { .. }, Outcome::Done(Reply::Stored { cookie: new, .. })) => {
                cookie.clone_from(new);
            }
            // Its bricks are gone, or its time is over: a new session.
            (Kind::Cookies { writes, .. }, _, Outcome::Done(Reply::Lost | Reply::BadCookie(_))) => {
                *writes = SESSION_WRITES
            }
            (Kind::Fields { read, .. }, Act::Read { document }, Outcome::Done(Reply::Value { value, .. })) => {
                *read = Some((document.clone(), value.clone()));
            }
            (Kind::Fields { .. }, Act::Found { document }, Outcome::Done(Reply::Stored { .. })) => {
                let is_it = |n: &usize| *document == format!("d{n}-{}", self.ages[*n]);
                (0..self.ages.len()).filter(is_it).for_each(|n| self.known[n] = self.ages[n]);
            }
            (Kind::Fields { missing, .. }, Act::Read { document }, Outcome::Done(Reply::Absent | Reply::Lost))
                if client == 0 =>
            {
                *missing = (0..DOCUMENTS).find(|n| *document == format!("d{n}-{}", self.known[*n as usize]));
            }
            _ => (),
        }
    }
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Act::Put { .. } => "cookie-put",
            Act::Get { .. } => "cookie-get",
            Act::Found { .. } => "fields-found",
            Act::Read { .. } => "fields-read",
            Act::Set { .. } => "fields-set",
        }
    }

    pub fn key(&self) -> &str {
        match self {
            Act::Put { session, .. } | Act::Get { session, .. } => session,
            Act::Found { document } | Act::Read { document } | Act::Set { document, .. } => document,
        }
    }

    pub fn op(&self) -> Op {
        let put = |value| Action::Put {
            kind: state::session::Kind::Text,
            value,
            lease: Lease::Default,
            when: When::Always,
            want_old: false,
        };
        let key = Bytes::from(self.key().to_owned());
        match self {
            Act::Put { id, cookie, .. } => {
                Op::cookie(load::NAMESPACE.into(), key, put(load::value(*id)), cookie.clone())
            }
            Act::Get { cookie, .. } => Op::cookie(load::NAMESPACE.into(), key, Action::Get, Some(cookie.clone())),
            Act::Found { .. } => Op::keyed(FORMS.into(), key, put(Bytes::from_static(b"{\"founded\":1}"))),
            Act::Read { .. } => Op::keyed(FORMS.into(), key, Action::Get),
            Act::Set { field, id, text, .. } => {
                let mut doc = Doc::parse(text).expect("the node gave it as a document");
                doc.set(format!("\"{field}\"").into(), id.to_string().into());
                Op::keyed(FORMS.into(), key, put(doc.write()))
            }
        }
    }
}

/// The writes that a document shows, by field. None: it is none of ours.
pub fn fields(text: &Bytes) -> Option<Vec<(String, WriteId)>> {
    let doc = Doc::parse(text)?;
    let mut fields = Vec::new();
    for (name, value) in doc.fields() {
        let name = std::str::from_utf8(name).ok()?.trim_matches('"');
        if let Some(number) = name.strip_prefix('f').filter(|rest| rest.bytes().all(|b| b.is_ascii_digit())) {
            fields.push((format!("f{number}"), std::str::from_utf8(value).ok()?.parse().ok()?));
        }
    }
    Some(fields)
}
