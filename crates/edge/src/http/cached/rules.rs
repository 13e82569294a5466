//! What may be kept, for how long, and what a request may get of it (RFC 9111, RFC 5861): decisions without a clock or a cache.

use http::StatusCode;
use http::header::{self, HeaderMap};

use super::directives::{Directives, any_part, date};
use crate::http::limits::CACHED_UNASKED;

/// How long an answer is good for what, milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// How old it was when it came.
    pub age_ms: u64,
    /// Up to which age it is fresh.
    pub fresh_ms: u64,
    /// So long after that it may be given while it is asked for anew,
    pub while_ms: u64,
    /// ... and so long if that fails.
    pub error_ms: u64,
    /// The answer is asked for anew as soon as it is not fresh, whatever a request says.
    pub is_strict: bool,
    /// Also for who shows a session.
    pub is_public: bool,
    /// Also for who shows a password (RFC 9111 3.5).
    pub is_for_authorized: bool,
}

/// What a request shows of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shows {
    pub authorization: bool,
    /// A cookie of a session that the edge carries.
    pub session: bool,
}

impl Shows {
    pub fn anything(self) -> bool {
        self.authorization || self.session
    }
}

/// How what is there may be used for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Fresh,
    /// At once, while it is asked for anew.
    Meanwhile,
    /// Not before it was asked for anew. So may it be if that fails.
    Ask {
        on_error: bool,
    },
}

/// Statuses that are kept if the answer says for how long. Errors of the server are not: a moment's trouble is not to last.
const KEPT: [u16; 15] = [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 451, 501];

/// May it be kept, and for how long? `now_s`: the wall clock, seconds since 1970; `took_s`: how long the answer took.
pub fn keep(shows: Shows, status: StatusCode, headers: &HeaderMap, now_s: u64, took_s: u64) -> Option<Life> {
    let says = Directives::of_answer(headers);
    let is_refused = says.no_store
        || says.private
        || !KEPT.contains(&status.as_u16())
        || any_part(headers, &header::VARY, b"*")
        || headers.contains_key(header::CONTENT_RANGE)
        || headers.contains_key(header::TRAILER);
    let for_all = says.public || says.s_maxage.is_some() || says.must_revalidate;
    let is_own =
        shows.authorization && !for_all || (shows.session || headers.contains_key(header::SET_COOKIE)) && !says.public;
    if is_refused || is_own {
        return None;
    }
    let made_s = date(headers, &header::DATE);
    let age_s = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok()).unwrap_or(0);
    let age_s = (age_s.saturating_add(took_s)).max(made_s.map_or(0, |made| now_s.saturating_sub(made)));
    let by_date = || {
        let expires = headers.get(header::EXPIRES).filter(|_| !says.is_targeted)?;
        // What is no date is past.
        let until = super::directives::date_of(expires.as_bytes()).unwrap_or(0);
        Some(until.saturating_sub(made_s.unwrap_or(now_s)))
    };
    let has_validator = headers.contains_key(header::ETAG) || headers.contains_key(header::LAST_MODIFIED);
    // An answer that says nothing of this is not kept: we do not guess.
    let said = says.s_maxage.or(says.max_age).or_else(by_date);
    let fresh_s = if says.no_cache { 0 } else { said.or(says.no_cache.then_some(0))? };
    let is_strict = says.no_cache || says.must_revalidate || says.proxy_revalidate;
    let if_lenient = |seconds: Option<u64>| if is_strict { 0 } else { seconds.unwrap_or(0) };
    let (while_s, error_s) = (if_lenient(says.stale_while_revalidate), if_lenient(says.stale_if_error));
    let is_useful = has_validator || fresh_s.saturating_add(while_s.max(error_s)) > age_s;
    is_useful.then(|| Life {
        age_ms: age_s.saturating_mul(1000),
        fresh_ms: fresh_s * 1000,
        while_ms: while_s * 1000,
        error_ms: error_s * 1000,
        // As with s-maxage, unless it says how stale it may be.
        is_strict: is_strict || says.s_maxage.is_some(),
        is_public: says.public,
        is_for_authorized: for_all,
    })
}

impl Life {
    /// May who shows this get it?
    pub fn is_for(&self, shows: Shows) -> bool {
        (!shows.session || self.is_public) && (!shows.authorization || self.is_for_authorized)
    }

    /// How long the cache has it, milliseconds: a while longer than it may be given, if it can be asked for with less than all of it.
    pub fn kept_ms(&self, has_validator: bool) -> u64 {
        let unasked = if has_validator { CACHED_UNASKED.as_millis() as u64 } else { 0 };
        let longest = self.fresh_ms + self.while_ms.max(self.error_ms).max(unasked);
        longest.saturating_sub(self.age_ms).clamp(1, state::cache::limits::TTL_MS_MAX)
    }

    /// How it may be used at this age by a request that says this.
    pub fn serves(&self, age_ms: u64, says: &Directives) -> Use {
        let stale_ms = age_ms.saturating_sub(self.fresh_ms);
        let is_fresh = age_ms < self.fresh_ms;
        let on_error = stale_ms < self.error_ms || is_fresh;
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        let is_asked_for = says.no_cache
            || says.max_age.is_some_and(|most| age_ms >= ms(most))
            || says.min_fresh.is_some_and(|least| age_ms.saturating_add(ms(least)) > self.fresh_ms);
        if is_fresh && !is_asked_for {
            return Use::Fresh;
        }
        let takes_stale = !self.is_strict && says.max_stale.is_some_and(|most| stale_ms <= ms(most));
        if takes_stale && !says.no_cache {
            return Use::Fresh;
        }
        // A request that wants it no older gets it no older.
        if !is_asked_for && stale_ms < self.while_ms {
            return Use::Meanwhile;
        }
        Use::Ask { on_error }
    }
}

/// Answers that mean that the service cannot answer now (RFC 5861 4).
pub fn is_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const NOW_S: u64 = 1_000_000_000;

    fn map(lines: &str) -> HeaderMap {
        let line = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value.trim()).unwrap())
        };
        lines.split('|').filter(|line| !line.is_empty()).map(line).collect()
    }

    fn kept(shows: Shows, status: u16, lines: &str) -> Option<Life> {
        keep(shows, StatusCode::from_u16(status).unwrap(), &map(lines), NOW_S, 0)
    }

    fn at(seconds: u64) -> String {
        httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
    }

    #[test]
    fn what_is_kept_is_what_says_so_and_is_for_everybody() {
        let none = Shows::default();
        let authorization = Shows { authorization: true, ..none };
        let session = Shows { session: true, ..none };
        for (shows, status, lines, expect) in [
            (none, 200, "cache-control: max-age=60", true),
            (none, 200, "", false),
            (none, 200, "last-modified: Sun, 06 Nov 1994 08:49:37 GMT", false),
            (none, 200, "cache-control: public", false),
            (none, 200, "cache-control: max-age=0", false),
            (none, 200, "cache-control: max-age=0|etag: \"a\"", true),
            (none, 200, "cache-control: no-cache", false),
            (none, 200, "cache-control: no-cache|etag: \"a\"", true),
            (none, 200, "cache-control: max-age=0, stale-if-error=60", true),
            (none, 200, "cache-control: max-age=60, no-store", false),
            (none, 200, "cache-control: max-age=60, private", false),
            (none, 200, "cache-control: max-age=60|vary: accept", true),
            (none, 200, "cache-control: max-age=60|vary: accept, *", false),
            (none, 200, "cache-control: max-age=60|age: 60", false),
            (none, 200, "cache-control: max-age=60|set-cookie: a=b", false),
            (none, 200, "cache-control: s-maxage=60|set-cookie: a=b", false),
            (none, 200, "cache-control: public, max-age=60|set-cookie: a=b", true),
            (none, 200, "cache-control: no-store|cdn-cache-control: max-age=60", true),
            (none, 200, "cache-control: max-age=60|cdn-cache-control: no-store", false),
            (none, 206, "cache-control: max-age=60", false),
            (none, 304, "cache-control: max-age=60", false),
            (none, 404, "cache-control: max-age=60", true),
            (none, 404, "", false),
            (none, 400, "cache-control: max-age=60", false),
            (none, 500, "cache-control: max-age=60", false),
            (none, 503, "cache-control: public, max-age=60", false),
            (none, 200, "cache-control: max-age=60|trailer: x", false),
            (authorization, 200, "cache-control: max-age=60", false),
            (authorization, 200, "cache-control: public, max-age=60", true),
            (authorization, 200, "cache-control: s-maxage=60", true),
            (authorization, 200, "cache-control: max-age=60, must-revalidate", true),
            (session, 200, "cache-control: max-age=60", false),
            (session, 200, "cache-control: s-maxage=60", false),
            (session, 200, "cache-control: public, max-age=60", true),
        ] {
            assert_eq!(kept(shows, status, lines).is_some(), expect, "{shows:?} {status} {lines}");
        }
    }

    #[test]
    fn how_long_it_is_fresh_is_what_counts_most_of_what_is_said() {
        let (now, later, before) = (at(NOW_S), at(NOW_S + 90), at(NOW_S - 30));
        for (lines, fresh_s, age_s) in [
            ("cache-control: max-age=60, s-maxage=20".to_owned(), 20, 0),
            (format!("cache-control: max-age=60|date: {now}|expires: {later}"), 60, 0),
            (format!("date: {now}|expires: {later}"), 90, 0),
            (format!("date: {before}|expires: {later}"), 120, 30),
            (format!("cache-control: max-age=60|date: {before}"), 60, 30),
            (format!("cache-control: max-age=60|date: {before}|age: 40"), 60, 40),
            (format!("cache-control: max-age=60|date: {later}"), 60, 0),
            ("expires: 0|etag: \"a\"".to_owned(), 0, 0),
            (format!("cdn-cache-control: max-age=5|expires: {later}|cache-control: max-age=50"), 5, 0),
        ] {
            let life = kept(Shows::default(), 200, &lines).unwrap_or_else(|| panic!("{lines}"));
            assert_eq!((life.fresh_ms / 1000, life.age_ms / 1000), (fresh_s, age_s), "{lines}");
        }
    }

    #[test]
    fn what_a_request_gets_depends_on_age_and_on_what_both_say() {
        let ask = |on_error| Use::Ask { on_error };
        for (answer, request, age_s, expect) in [
            ("max-age=60", "", 59, Use::Fresh),
            ("max-age=60", "", 60, ask(false)),
            ("max-age=60", "no-cache", 1, ask(true)),
            ("max-age=60", "max-age=0", 1, ask(true)),
            ("max-age=60", "max-age=10", 9, Use::Fresh),
            ("max-age=60", "max-age=10", 10, ask(true)),
            ("max-age=60", "min-fresh=30", 20, Use::Fresh),
            ("max-age=60", "min-fresh=30", 40, ask(true)),
            ("max-age=60", "max-stale", 100, Use::Fresh),
            ("max-age=60", "max-stale=30", 100, ask(false)),
            ("max-age=60, must-revalidate", "max-stale", 100, ask(false)),
            ("s-maxage=60", "max-stale", 100, ask(false)),
            ("max-age=60, stale-while-revalidate=30", "", 89, Use::Meanwhile),
            ("max-age=60, stale-while-revalidate=30", "", 90, ask(false)),
            ("s-maxage=60, stale-while-revalidate=30", "", 89, Use::Meanwhile),
            ("max-age=60, stale-while-revalidate=30", "no-cache", 70, ask(false)),
            ("max-age=60, stale-while-revalidate=30, must-revalidate", "", 70, ask(false)),
            ("max-age=60, stale-if-error=30", "", 89, ask(true)),
            ("max-age=60, stale-if-error=30", "", 90, ask(false)),
            ("max-age=60, stale-if-error=30, proxy-revalidate", "", 70, ask(false)),
        ] {
            let life = kept(Shows::default(), 200, &format!("cache-control: {answer}")).unwrap();
            let says = Directives::of_request(&map(&format!("cache-control: {request}")));
            assert_eq!(life.serves(age_s * 1000, &says), expect, "{answer} asked with {request:?} at {age_s} s");
        }
    }

    #[test]
    fn an_answer_stays_as_long_as_it_may_be_given_and_longer_if_it_can_be_validated() {
        let life = kept(Shows::default(), 200, "age: 10|cache-control: max-age=60, stale-if-error=40").unwrap();
        assert_eq!(life.kept_ms(false), 90_000);
        assert_eq!(life.kept_ms(true), 50_000 + CACHED_UNASKED.as_millis() as u64);
    }
}
