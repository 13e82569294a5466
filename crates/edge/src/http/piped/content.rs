//! Which answers a pipeline takes, and how their heads look when they have passed it.

use bytes::Bytes;
use clones::PipelineSpec;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::http::cached::says;

/// What a client gets: `exact`, as the pipeline makes it, `partial`, without some parts, `near`, as it made it of an earlier content, or
/// `original`.
pub const ANSWER: HeaderName = HeaderName::from_static("coppice-answer");
/// Names of the parts that did not come.
const MISSING: HeaderName = HeaderName::from_static("coppice-missing");
/// What is made instead of it may be there soon.
const SOON: &str = "max-age=5";
/// Types that never end, or come in parts.
const LASTING: [&str; 2] = ["text/event-stream", "multipart/"];
/// Fields that are of one body and no other.
const OF_BODY: [HeaderName; 8] = [
    header::CONTENT_LENGTH,
    header::ETAG,
    header::LAST_MODIFIED,
    header::ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// Its type.
    pub kind: String,
    pub body: Bytes,
}

pub fn kind(fields: &HeaderMap) -> &str {
    fields.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// Whether any step is for this type: what none is for is not held.
pub fn takes_any(spec: &PipelineSpec, fields: &HeaderMap) -> bool {
    spec.steps.iter().any(|step| step.is_for(kind(fields)))
}

/// Whether it may be changed, and has an end that is not too far away.
pub fn is_changeable(method: &Method, fields: &HeaderMap, bytes_max: u64) -> bool {
    let of = kind(fields).trim().to_ascii_lowercase();
    let is_lasting = LASTING.iter().any(|kind| of.starts_with(kind));
    let length = fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let is_plain = fields
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let is_asked = matches!(*method, Method::GET | Method::POST);
    let is_whole = !fields.contains_key(header::CONTENT_RANGE);
    is_asked
        && is_plain
        && is_whole
        && !is_lasting
        && !says(fields, "no-transform")
        && length.is_none_or(|length| length <= bytes_max)
}

fn strip(fields: &mut HeaderMap) {
    OF_BODY.iter().for_each(|name| _ = fields.remove(name));
}

/// Makes the fields of an answer those of what workers made of it, in this media type.
pub fn of_made(fields: &mut HeaderMap, kind: &str) {
    strip(fields);
    if let Ok(kind) = HeaderValue::from_str(kind)
        && !kind.is_empty()
    {
        fields.insert(header::CONTENT_TYPE, kind);
    }
    fields.insert(ANSWER, HeaderValue::from_static("exact"));
}

/// Whether an answer is the same for whoever asks for its URL: then what was made of it may stand in for what is made of another one.
pub fn is_for_all(fields: &HeaderMap) -> bool {
    let names =
        |name| fields.get_all(name).iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let varies = names(header::VARY).any(|name| !name.trim().eq_ignore_ascii_case("accept-encoding"));
    let is_own = ["private", "no-store"].iter().any(|word| says(fields, word));
    !is_own && !varies && !fields.contains_key(header::SET_COOKIE)
}

/// Makes the fields of an answer those of what was made of an earlier content of the same page.
pub fn of_near(fields: &mut HeaderMap, kind: &str) {
    of_made(fields, kind);
    for_a_moment(fields);
    fields.insert(ANSWER, HeaderValue::from_static("near"));
}

/// Of what was made without some parts.
pub fn of_partial(fields: &mut HeaderMap, kind: &str, missing: &[String]) {
    of_made(fields, kind);
    for_a_moment(fields);
    fields.insert(ANSWER, HeaderValue::from_static("partial"));
    if let Ok(names) = HeaderValue::try_from(missing.join(", ")) {
        fields.insert(MISSING, names);
    }
}

/// As it came; `soon` it may be as it should.
pub fn of_original(fields: &mut HeaderMap, soon: bool) {
    fields.insert(ANSWER, HeaderValue::from_static("original"));
    if soon {
        for_a_moment(fields);
    }
}

/// Lets caches keep an answer for a moment only: a better one is about to be there.
fn for_a_moment(fields: &mut HeaderMap) {
    // A browser that has these would be told later that nothing has changed.
    for name in [header::ETAG, header::LAST_MODIFIED, header::EXPIRES] {
        fields.remove(name);
    }
    if ["no-store", "no-cache"].iter().any(|word| says(fields, word)) {
        return;
    }
    let value = if says(fields, "private") { format!("private, {SOON}") } else { SOON.to_owned() };
    fields.insert(header::CACHE_CONTROL, HeaderValue::try_from(value).expect("our own words"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().copied().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn what_must_not_or_cannot_be_changed_passes() {
        let html = ("content-type", "text/html");
        for (method, with, expect) in [
            (Method::GET, &[][..], true),
            (Method::POST, &[], true),
            (Method::PUT, &[], false),
            (Method::GET, &[("content-length", "100")], true),
            (Method::GET, &[("content-length", "101")], false),
            (Method::GET, &[("content-encoding", "gzip")], false),
            (Method::GET, &[("content-encoding", "identity")], true),
            (Method::GET, &[("content-range", "bytes 0-1/2")], false),
            (Method::GET, &[("cache-control", "max-age=1, No-Transform")], false),
            (Method::GET, &[("cache-control", "max-age=1")], true),
        ] {
            let of: Vec<_> = [html].iter().chain(with).copied().collect();
            assert_eq!(is_changeable(&method, &fields(&of), 100), expect, "{method} {with:?}");
        }
        for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8", "multipart/x-mixed-replace"] {
            assert!(!is_changeable(&Method::GET, &fields(&[("content-type", kind)]), 100), "{kind}");
        }
    }

    #[test]
    fn an_original_that_stands_in_is_kept_for_a_moment_and_never_longer_than_it_says() {
        for (says, expect) in [
            (None, Some("max-age=5")),
            (Some("max-age=3600"), Some("max-age=5")),
            (Some("private, max-age=60"), Some("private, max-age=5")),
            (Some("no-store"), Some("no-store")),
            (Some("no-cache"), Some("no-cache")),
        ] {
            let mut of = fields(&[("etag", "\"1\""), ("expires", "x")]);
            of.extend(says.map(|says| (header::CACHE_CONTROL, HeaderValue::from_static(says))));
            of_original(&mut of, true);
            let got = of.get(header::CACHE_CONTROL).map(|value| value.to_str().unwrap());
            assert_eq!((got, of.contains_key(header::ETAG)), (expect, false), "{says:?}");
        }
        let mut of = fields(&[("etag", "\"1\""), ("cache-control", "max-age=60")]);
        of_original(&mut of, false);
        assert_eq!((of.len(), &of[ANSWER]), (3, &HeaderValue::from_static("original")), "nothing else is coming");
    }

    #[test]
    fn only_what_is_for_everybody_stands_in_and_for_a_moment() {
        for (with, expect) in [
            (&[][..], true),
            (&[("cache-control", "max-age=60"), ("vary", "Accept-Encoding")], true),
            (&[("cache-control", "private")], false),
            (&[("cache-control", "no-store")], false),
            (&[("vary", "accept-encoding, cookie")], false),
            (&[("set-cookie", "a=b")], false),
        ] {
            assert_eq!(is_for_all(&fields(with)), expect, "{with:?}");
        }
        let mut of = fields(&[("etag", "\"1\""), ("cache-control", "max-age=60"), ("content-type", "a/b")]);
        of_near(&mut of, "text/plain");
        assert_eq!((of.get(header::ETAG), &of[header::CACHE_CONTROL]), (None, &HeaderValue::from_static(SOON)));
        assert_eq!(
            (&of[ANSWER], &of[header::CONTENT_TYPE]),
            (&HeaderValue::from_static("near"), &HeaderValue::from_static("text/plain"))
        );
    }

    #[test]
    fn what_is_missing_is_named_and_asked_for_anew_soon() {
        let mut of = fields(&[("etag", "\"1\""), ("cache-control", "max-age=60"), ("content-type", "a/b")]);
        of_partial(&mut of, "application/json", &["news".into(), "town".into()]);
        assert_eq!((of.get(header::ETAG), &of[header::CACHE_CONTROL]), (None, &HeaderValue::from_static(SOON)));
        let said = [&ANSWER, &MISSING, &header::CONTENT_TYPE].map(|name| of[name].to_str().unwrap().to_owned());
        assert_eq!(said, ["partial", "news, town", "application/json"]);
    }

    #[test]
    fn what_was_made_has_nothing_of_the_body_before() {
        let mut of = fields(&[("etag", "\"1\""), ("content-length", "5"), ("content-type", "a/b"), ("x-own", "1")]);
        of_made(&mut of, "text/html");
        let names: BTreeSet<&str> = of.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "coppice-answer", "x-own"].into());
        assert_eq!(of[header::CONTENT_TYPE], "text/html");
    }
}
