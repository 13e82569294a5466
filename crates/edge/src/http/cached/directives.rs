//! `Cache-Control` of requests and answers (RFC 9111 5.2, RFC 5861), and dates. What contradicts itself, or is no number where one
//! belongs, is taken for what keeps less.

use http::header::{self, HeaderMap, HeaderName};

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// More seconds than anybody waits; larger numbers are this one (RFC 9111 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Directives {
    pub no_store: bool,
    pub no_cache: bool,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub only_if_cached: bool,
    /// Seconds, as all below.
    pub max_age: Option<u64>,
    pub s_maxage: Option<u64>,
    pub stale_while_revalidate: Option<u64>,
    pub stale_if_error: Option<u64>,
    pub min_fresh: Option<u64>,
    /// How stale an answer the request takes (`max-stale`); the most that any number says where it names none.
    pub max_stale: Option<u64>,
    /// The field for caches of the server's own (RFC 9213) said it: `Expires` does not count.
    pub is_targeted: bool,
}

impl Directives {
    pub fn of_request(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        all.take(headers, &header::CACHE_CONTROL);
        if !headers.contains_key(header::CACHE_CONTROL) && any_part(headers, &header::PRAGMA, b"no-cache") {
            all.no_cache = true;
        }
        all
    }

    pub fn of_answer(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        if headers.contains_key(CDN_CACHE_CONTROL) {
            all.is_targeted = true;
            all.take(headers, &CDN_CACHE_CONTROL);
        } else {
            all.take(headers, &header::CACHE_CONTROL);
        }
        all
    }

    fn take(&mut self, headers: &HeaderMap, name: &HeaderName) {
        for value in headers.get_all(name) {
            parts(value.as_bytes()).for_each(|part| self.part(part));
        }
    }

    fn part(&mut self, part: &[u8]) {
        let mut halves = part.splitn(2, |b| *b == b'=');
        let name = halves.next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let value = halves.next().map(|value| unquoted(value.trim_ascii()));
        // Of a number that is none, and of two, the smaller.
        let least = |before: Option<u64>| Some(seconds(value).min(before.unwrap_or(SECONDS_MAX)));
        match &name[..] {
            b"no-store" => self.no_store = true,
            // Also where it names fields: more than it asks for.
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = least(self.max_age),
            b"s-maxage" => self.s_maxage = least(self.s_maxage),
            b"stale-while-revalidate" => self.stale_while_revalidate = least(self.stale_while_revalidate),
            b"stale-if-error" => self.stale_if_error = least(self.stale_if_error),
            b"min-fresh" => self.min_fresh = Some(seconds(value)),
            b"max-stale" => self.max_stale = Some(value.map_or(SECONDS_MAX, |value| seconds(Some(value)))),
            _ => (),
        }
    }
}

/// None of a number, and no number, is 0.
fn seconds(value: Option<&[u8]>) -> u64 {
    let digits = value.filter(|value| !value.is_empty() && value.iter().all(u8::is_ascii_digit));
    let Some(digits) = digits else { return 0 };
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS_MAX).min(SECONDS_MAX)
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// The parts of a list, which commas divide that are not between quotation marks.
pub fn parts(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => return *byte == b',' && !is_quoted,
        }
        false
    })
    .map(<[u8]>::trim_ascii)
    .filter(|part| !part.is_empty())
}

pub fn any_part(headers: &HeaderMap, name: &HeaderName, wanted: &[u8]) -> bool {
    headers.get_all(name).iter().flat_map(|value| parts(value.as_bytes())).any(|part| part.eq_ignore_ascii_case(wanted))
}

/// Seconds since 1970 of a field that has a date. None: there is no such field, or no date in it.
pub fn date(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    date_of(headers.get(name)?.as_bytes())
}

pub fn date_of(value: &[u8]) -> Option<u64> {
    let at = httpdate::parse_http_date(std::str::from_utf8(value).ok()?.trim()).ok()?;
    at.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(value: &str) -> Directives {
        let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_str(value).unwrap())]);
        Directives::of_answer(&headers)
    }

    #[test]
    fn directives_are_read_in_any_spelling_and_a_doubtful_number_keeps_less() {
        let none = Directives::default();
        for (text, expect) in [
            ("max-age=60", Directives { max_age: Some(60), ..none }),
            ("Public, MAX-AGE=60", Directives { public: true, max_age: Some(60), ..none }),
            ("max-age = 60 , no-cache", Directives { max_age: Some(60), no_cache: true, ..none }),
            ("max-age=\"60\"", Directives { max_age: Some(60), ..none }),
            ("max-age=60, max-age=5", Directives { max_age: Some(5), ..none }),
            ("max-age=5, max-age=60", Directives { max_age: Some(5), ..none }),
            ("max-age", Directives { max_age: Some(0), ..none }),
            ("max-age=-1", Directives { max_age: Some(0), ..none }),
            ("max-age=1.5", Directives { max_age: Some(0), ..none }),
            ("max-age=99999999999999999999999", Directives { max_age: Some(SECONDS_MAX), ..none }),
            ("x=\"a, no-store\", s-maxage=7", Directives { s_maxage: Some(7), ..none }),
            ("x=\"a\\\", no-store\", private", Directives { private: true, ..none }),
            ("private=\"x, y\"", Directives { private: true, ..none }),
            ("max-stale", Directives { max_stale: Some(SECONDS_MAX), ..none }),
            (",, ,", none),
        ] {
            assert_eq!(of(text), expect, "{text}");
        }
    }

    #[test]
    fn the_field_for_our_own_cache_goes_before_the_one_for_all() {
        let headers = HeaderMap::from_iter([
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (CDN_CACHE_CONTROL, HeaderValue::from_static("max-age=60")),
        ]);
        let expect = Directives { max_age: Some(60), is_targeted: true, ..Directives::default() };
        assert_eq!(Directives::of_answer(&headers), expect);
    }

    #[test]
    fn an_old_client_says_no_cache_by_pragma() {
        let mut headers = HeaderMap::from_iter([(header::PRAGMA, HeaderValue::from_static("no-cache"))]);
        assert!(Directives::of_request(&headers).no_cache);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
        assert!(!Directives::of_request(&headers).no_cache);
    }

    #[test]
    fn dates_of_all_three_forms_are_read() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(date_of(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!((date_of(b"0"), date_of(b"now"), date_of(b"\xff")), (None, None, None));
    }
}
