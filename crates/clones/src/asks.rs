//! How many clones are asked for one thing (Tempest 3.1, redundant querying): what a service, or one of its partitions, says of it.
//! The first good answer is taken, and the others are broken off. Only requests that change nothing and bring nothing are
//! asked of several; which ones, and when an edge asks one after all, is the edges' matter (`edge/src/http/errand/race.rs`).

use crate::limits::ASK_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    /// Clones that are asked, the one included that would be anyway.
    pub ask: Option<u8>,
    /// The others are asked when the one before is late, and few requests are.
    pub ask_late: Option<bool>,
}

impl Asks {
    /// What this does not say, the other does.
    pub fn or(self, other: Self) -> Self {
        Self { ask: self.ask.or(other.ask), ask_late: self.ask_late.or(other.ask_late) }
    }

    /// How many clones are asked at most.
    pub fn most(self) -> usize {
        usize::from(self.ask.unwrap_or(1))
    }

    pub fn is_late(self) -> bool {
        self.ask_late.unwrap_or(false)
    }

    /// The first key that is set.
    pub fn key(self) -> Option<&'static str> {
        let Self { ask, ask_late } = self;
        ask.map(|_| "ask").or(ask_late.map(|_| "ask_late"))
    }

    /// What is wrong with each key, of something that is reached so. `of` is what holds where these say nothing.
    pub(crate) fn mistakes(self, of: Self, has_http: bool) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Some(ask) = self.ask.filter(|ask| !(1..=ASK_MAX).contains(ask)) {
            wrong.push(("ask", format!("{ask} is not between 1 (one clone is asked) and {ASK_MAX}")));
        }
        if self.ask_late == Some(true) && self.or(of).most() < 2 {
            wrong.push(("ask_late", "says when a second clone is asked, and none is; add ask = 2".into()));
        }
        if let Some(key) = self.key().filter(|_| !has_http) {
            wrong.push((key, "is of HTTP requests, and this service has no http; leave it out".into()));
        }
        wrong
    }
}
