//! Less than all of a stored answer: nothing, as the client has it already, or a part of it (RFC 9110 13 and 14).

use std::ops::Range;

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode};

use super::directives::{date, date_of, parts};

/// What of a body is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    All,
    /// The client has it: 304.
    None,
    /// 206.
    Of(Range<usize>),
    /// There is no such part: 416.
    Nowhere,
}

/// Does the client have it already? `fields` are the answer's.
pub fn is_known(request: &HeaderMap, fields: &HeaderMap) -> bool {
    if request.contains_key(header::IF_NONE_MATCH) {
        let tag = fields.get(header::ETAG).map(|tag| weak(tag.as_bytes()));
        let mut shown = request.get_all(header::IF_NONE_MATCH).iter().flat_map(|value| parts(value.as_bytes()));
        return shown.any(|shown| shown == b"*" || Some(weak(shown)) == tag);
    }
    let since = date(request, &header::IF_MODIFIED_SINCE);
    let modified = date(fields, &header::LAST_MODIFIED);
    since.zip(modified).is_some_and(|(since, modified)| modified <= since)
}

/// What a request for a whole stored answer gets.
pub fn part(method: &Method, request: &HeaderMap, status: StatusCode, fields: &HeaderMap, length: usize) -> Part {
    if status != StatusCode::OK {
        return Part::All;
    }
    if is_known(request, fields) {
        return Part::None;
    }
    let mut ranges = request.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Part::All };
    if *method != Method::GET || !is_the_same(request, fields) {
        return Part::All;
    }
    of_range(range.as_bytes(), length)
}

/// `If-Range` holds, or is not there: only what is surely the same is sent in parts.
fn is_the_same(request: &HeaderMap, fields: &HeaderMap) -> bool {
    let Some(shown) = request.get(header::IF_RANGE) else { return true };
    let shown = shown.as_bytes();
    if shown.starts_with(b"\"") {
        return fields.get(header::ETAG).is_some_and(|tag| tag.as_bytes() == shown);
    }
    date_of(shown).is_some_and(|shown| date(fields, &header::LAST_MODIFIED) == Some(shown))
}

/// One range of bytes. Several, and what we do not understand, are answered with all of it, as is allowed.
fn of_range(range: &[u8], length: usize) -> Part {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse::<usize>().unwrap_or(usize::MAX))
    };
    let spec = std::str::from_utf8(range).ok().and_then(|text| text.split_once('='));
    let Some((unit, spec)) = spec.filter(|(unit, _)| unit.trim().eq_ignore_ascii_case("bytes")) else {
        return Part::All;
    };
    let _ = unit;
    let Some((first, last)) = spec.trim().split_once('-') else { return Part::All };
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            Some(0) => Part::Nowhere,
            Some(_) if length == 0 => Part::Nowhere,
            Some(last) => Part::Of(length.saturating_sub(last)..length),
            None => Part::All,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), None) if last.is_empty() && first < length => Part::Of(first..length),
            (Some(first), Some(last)) if first > last => Part::All,
            (Some(first), Some(last)) if first < length => Part::Of(first..last.saturating_add(1).min(length)),
            (Some(_), last_number) if last.is_empty() || last_number.is_some() => Part::Nowhere,
            _ => Part::All,
        },
    }
}

/// Fields that a 304 does not have (RFC 9110 15.4.5).
pub fn strip_of_content(fields: &mut HeaderMap) {
    const OF_CONTENT: [HeaderName; 5] = [
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_RANGE,
    ];
    OF_CONTENT.iter().for_each(|name| drop(fields.remove(name)));
}

fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_range_is_a_part_of_what_is_there_or_everything() {
        for (range, expect) in [
            ("bytes=0-3", Part::Of(0..4)),
            ("bytes=8-", Part::Of(8..10)),
            ("bytes=8-99", Part::Of(8..10)),
            ("bytes=9-9", Part::Of(9..10)),
            ("bytes=-3", Part::Of(7..10)),
            ("bytes=-99", Part::Of(0..10)),
            ("Bytes = 0 - 3", Part::Of(0..4)),
            ("bytes=10-", Part::Nowhere),
            ("bytes=10-11", Part::Nowhere),
            ("bytes=-0", Part::Nowhere),
            ("bytes=3-1", Part::All),
            ("bytes=0-1,3-4", Part::All),
            ("bytes=", Part::All),
            ("bytes=-", Part::All),
            ("bytes=a-b", Part::All),
            ("lines=0-3", Part::All),
            ("bytes=99999999999999999999999-", Part::Nowhere),
        ] {
            assert_eq!(of_range(range.as_bytes(), 10), expect, "{range}");
        }
        assert_eq!(of_range(b"bytes=-3", 0), Part::Nowhere);
    }

    #[test]
    fn who_has_it_gets_nothing_and_who_has_another_gets_all() {
        let fields = map(&[("etag", "\"a\""), ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        let (before, same) = ("Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (request, expect) in [
            (map(&[]), Part::All),
            (map(&[("if-none-match", "\"a\"")]), Part::None),
            (map(&[("if-none-match", "W/\"a\"")]), Part::None),
            (map(&[("if-none-match", "\"b\", \"a\"")]), Part::None),
            (map(&[("if-none-match", "*")]), Part::None),
            (map(&[("if-none-match", "\"b\"")]), Part::All),
            (map(&[("if-none-match", "\"b\""), ("if-modified-since", same)]), Part::All),
            (map(&[("if-modified-since", same)]), Part::None),
            (map(&[("if-modified-since", before)]), Part::All),
            (map(&[("if-modified-since", "yesterday")]), Part::All),
            (map(&[("range", "bytes=0-1")]), Part::Of(0..2)),
            (map(&[("range", "bytes=0-1"), ("if-range", "\"a\"")]), Part::Of(0..2)),
            (map(&[("range", "bytes=0-1"), ("if-range", "\"b\"")]), Part::All),
            (map(&[("range", "bytes=0-1"), ("if-range", "W/\"a\"")]), Part::All),
            (map(&[("range", "bytes=0-1"), ("if-range", same)]), Part::Of(0..2)),
            (map(&[("range", "bytes=0-1"), ("if-range", before)]), Part::All),
        ] {
            assert_eq!(part(&Method::GET, &request, StatusCode::OK, &fields, 10), expect, "{request:?}");
        }
        let range = map(&[("range", "bytes=0-1")]);
        assert_eq!(part(&Method::HEAD, &range, StatusCode::OK, &fields, 10), Part::All);
        assert_eq!(part(&Method::GET, &range, StatusCode::NOT_FOUND, &fields, 10), Part::All);
    }
}
