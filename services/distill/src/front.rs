//! What comes by HTTP, and what is answered: pages of one's own site, rewritten; their pictures, distilled; pictures by imgproxy's
//! URLs; preferences. Whatever cannot be made small comes as it is, for a few seconds: `Coppice-Answer: original`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::Incoming;
use sdk::axum::body::{Body, to_bytes};
use sdk::axum::extract::{Request, State};
use sdk::axum::http::request::Parts;
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sdk::axum::response::{IntoResponse, Response};

use crate::fetch::{Fetch, FetchError, Source, Url, Whole, is_packed, without_hops};
use crate::image::{Edit, Format, Watermark};
use crate::imgproxy::{self, Wrong};
use crate::limits::*;
use crate::marks::Marks;
use crate::pages::{self, OURS, PICTURES, Page};
use crate::preferences::{self, NotKept, Preferences, Readers};
use crate::settings::Settings;
use crate::sizes::Sizes;
use crate::works::{self, NotMade, Works};

pub const ANSWER: HeaderName = HeaderName::from_static("coppice-answer");
/// Bytes of the original, where something else is answered.
pub const ORIGINAL_BYTES: HeaderName = HeaderName::from_static("coppice-original-bytes");
const SAVE_DATA: HeaderName = HeaderName::from_static("save-data");
/// The best that can be had.
const EXACT: HeaderValue = HeaderValue::from_static("exact");
/// In place of something better.
const ORIGINAL: HeaderValue = HeaderValue::from_static("original");
/// Quality for who asks to save data, where no other one is asked for.
const SAVING_QUALITY: u8 = 30;

pub struct Front {
    pub settings: Settings,
    pub fetch: Fetch,
    pub works: Works,
    pub readers: Readers,
    pub sizes: Sizes,
    pub marks: Marks,
}

/// Answers anything.
pub async fn answer(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if front.fetch.is_loop(&head.headers) {
        return failed(&FetchError::Loop);
    }
    let path = head.uri.path().to_owned();
    let ours = path.strip_prefix(OURS).filter(|rest| rest.starts_with('/'));
    match ours {
        Some("/toolbar.css") => {
            ([(header::CONTENT_TYPE, "text/css"), (header::CACHE_CONTROL, "max-age=3600")], pages::STYLE)
                .into_response()
        }
        Some("/preferences") => front.prefer(head, body).await,
        Some(_) if path.starts_with(PICTURES) && front.settings.site.is_some() => front.picture_of_site(&head).await,
        Some(_) => plain(StatusCode::NOT_FOUND, "there is nothing here"),
        None if imgproxy::is_one(&path, !front.settings.keys.is_empty()) => front.picture_by_url(&head).await,
        None => match front.settings.site.clone() {
            Some(site) => front.page(&site, head, body).await,
            None => plain(
                StatusCode::NOT_FOUND,
                "pictures are at /insecure/OPTIONS/plain/SOURCE, or with a signature; SITE names no site",
            ),
        },
    }
}

fn plain(status: StatusCode, why: &str) -> Response {
    (status, [(header::CACHE_CONTROL, "no-store")], format!("{why}\n")).into_response()
}

fn failed(error: &FetchError) -> Response {
    let status = match error {
        FetchError::BadUrl(_) => StatusCode::BAD_REQUEST,
        FetchError::Refused(_) => StatusCode::FORBIDDEN,
        FetchError::Unreachable(_) => StatusCode::BAD_GATEWAY,
        FetchError::TooLate => StatusCode::GATEWAY_TIMEOUT,
        FetchError::TooLarge => StatusCode::UNPROCESSABLE_ENTITY,
        FetchError::Status(StatusCode::NOT_FOUND | StatusCode::GONE) => StatusCode::NOT_FOUND,
        FetchError::Status(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => *status,
        FetchError::Status(_) => StatusCode::BAD_GATEWAY,
        FetchError::Loop => StatusCode::LOOP_DETECTED,
    };
    plain(status, &error.to_string())
}

fn says(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

fn accepts_webp(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|part| {
        let mut words = part.split(';').map(str::trim);
        words.next().is_some_and(|kind| kind.eq_ignore_ascii_case("image/webp")) && !words.any(|word| word == "q=0")
    })
}

/// Pictures.
impl Front {
    async fn picture_of_site(&self, head: &Parts) -> Response {
        let (path, headers) = (head.uri.path(), &head.headers);
        let asked = path.strip_prefix(PICTURES).and_then(|rest| rest.split_once('/'));
        let Some((edit, rest)) = asked.and_then(|(part, rest)| Some((preferences::edit_of(part)?, rest))) else {
            return plain(
                StatusCode::NOT_FOUND,
                "there is no such picture: its path begins with wishes, like q40w640g",
            );
        };
        let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let url = format!("{path}{query}");
        let name = self.settings.site.clone().unwrap_or_default();
        let source = Source::Origin { name, path: format!("/{rest}{query}") };
        self.picture(&source, edit, headers, Some(&url)).await
    }

    async fn picture_by_url(&self, head: &Parts) -> Response {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "pictures are had by GET");
        }
        let asked = match imgproxy::read(head.uri.path(), &self.settings.keys, &self.settings.presets) {
            Ok(asked) => asked,
            Err(Wrong::Forged) => return plain(StatusCode::FORBIDDEN, "the signature is not right"),
            Err(Wrong::Unreadable(why)) => {
                return plain(StatusCode::BAD_REQUEST, &format!("the URL cannot be read: {why}"));
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if asked.expires.is_some_and(|end| end < now) {
            return plain(StatusCode::NOT_FOUND, "this URL has expired");
        }
        let source = match self.allowed(&asked.source) {
            Ok(source) => source,
            Err(error) => return failed(&error),
        };
        let mut edit = asked.edit;
        if let Some(watermark) = &mut edit.watermark
            && let Err(error) = self.get_mark(watermark).await
        {
            return failed(&error);
        }
        let mut headers = head.headers.clone();
        // Who may use a URL is said by its signature, not by whom it is shown to.
        headers.remove(header::COOKIE);
        headers.remove(header::AUTHORIZATION);
        self.picture(&source, edit, &headers, None).await
    }

    /// A source that a URL may name.
    fn allowed(&self, text: &str) -> Result<Source, FetchError> {
        let source = Source::parse(text)?;
        let is_open = self.settings.sources.iter().any(|begin| text.starts_with(begin.as_str()));
        if matches!(source, Source::Outside(_)) && self.settings.keys.is_empty() && !is_open {
            let why =
                "without a signature only declared origins (origin://NAME/PATH) and what SOURCES names are fetched";
            return Err(FetchError::Refused(why.into()));
        }
        Ok(source)
    }

    async fn get_mark(&self, watermark: &mut Watermark) -> Result<(), FetchError> {
        let at = match (&watermark.source, &self.settings.watermark) {
            (Some(named), _) => self.allowed(named).map(|_| named)?,
            (None, Some(own)) => own,
            (None, None) => {
                let why = "a watermark was asked for, and neither the URL (wmu) nor the service (WATERMARK) says which";
                return Err(FetchError::BadUrl(why.into()));
            }
        };
        watermark.file = Some(self.marks.get(&self.fetch, at).await?);
        Ok(())
    }

    /// `noted`: the URL under which toolbars count it.
    async fn picture(&self, source: &Source, mut edit: Edit, headers: &HeaderMap, noted: Option<&str>) -> Response {
        let original = match self.fetch.whole(source, headers).await {
            Ok(original) => original,
            Err(error) => return failed(&error),
        };
        edit.accepts_webp = accepts_webp(headers);
        if edit.quality.is_none() && says(headers, &SAVE_DATA, "on") {
            edit.quality = Some(SAVING_QUALITY);
        }
        let (made, is_stand_in) = if says(&original.headers, &header::CACHE_CONTROL, "no-transform") {
            (None, false)
        } else {
            match self.works.make(&original.bytes, &edit).await {
                Ok(made) => (made, false),
                Err(NotMade::Busy | NotMade::Crashed) => (None, true),
                Err(NotMade::Bad(bad)) => {
                    tracing::debug!(%bad, "a picture was not made");
                    // What is no kind that is read never will be one.
                    (None, bad != crate::image::Bad::Unknown)
                }
            }
        };
        if made.is_none() && edit.watermark.is_some() {
            // Its original is not to be seen without.
            let why = [(header::RETRY_AFTER, "1"), (header::CACHE_CONTROL, "no-store")];
            return (StatusCode::SERVICE_UNAVAILABLE, why, "the watermark cannot be laid on now\n").into_response();
        }
        if let Some(url) = noted.filter(|_| !is_stand_in) {
            let after = made.as_ref().map_or(original.bytes.len(), |(_, bytes)| bytes.len());
            self.sizes.note(url, (original.bytes.len() as u64, after as u64));
        }
        shown(&original, &edit, made, is_stand_in, headers)
    }
}

/// The answer with a picture: the one that was made, or the original.
fn shown(
    original: &Whole,
    edit: &Edit,
    made: Option<(Format, Bytes)>,
    is_stand_in: bool,
    asked: &HeaderMap,
) -> Response {
    let (kind, bytes) = match made {
        Some((format, bytes)) => (format.mime().to_owned(), bytes),
        None => {
            let said =
                original.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let seen = Format::of(&original.bytes).map(Format::mime);
            let Some(kind) = seen.or(said.starts_with("image/").then_some(said)) else {
                return plain(StatusCode::UNPROCESSABLE_ENTITY, "the source is no picture");
            };
            (kind.to_owned(), original.bytes.clone())
        }
    };
    let key = works::key(&original.bytes, edit);
    let tag: String = key[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}{}\"", if is_stand_in { "o" } else { "" });
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    let said = original.headers.get(header::CACHE_CONTROL).and_then(|said| said.to_str().ok());
    let is_private = asked.contains_key(header::COOKIE) || asked.contains_key(header::AUTHORIZATION);
    let kept = format!("{}, max-age={MADE_SECONDS}", if is_private { "private" } else { "public" });
    let short = format!("max-age={STAND_IN_SECONDS}");
    set(header::CACHE_CONTROL, if is_stand_in { &short } else { said.unwrap_or(&kept) });
    set(header::ETAG, &tag);
    set(header::VARY, "Accept, Save-Data");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // A drawing that is opened by itself runs nothing.
    set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox");
    set(header::CONTENT_TYPE, &kind);
    set(ORIGINAL_BYTES, &original.bytes.len().to_string());
    headers.insert(ANSWER, if is_stand_in { ORIGINAL } else { EXACT });
    if says(asked, &header::IF_NONE_MATCH, &tag) || says(asked, &header::IF_NONE_MATCH, &format!("W/{tag}")) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, bytes).into_response()
}

/// The site.
impl Front {
    async fn page(&self, site: &str, head: Parts, body: Body) -> Response {
        let Ok(body) = to_bytes(body, UPLOAD_BYTES_MAX).await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body has more bytes than are passed on");
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let may_be_page = head.method == Method::GET && is_for_a_page(&head.headers);
        let mut sent = head.headers.clone();
        if may_be_page {
            // The page that the browser has may be of other preferences than the one that it would get.
            for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::RANGE, header::IF_RANGE] {
                sent.remove(name);
            }
        }
        let answer = match self.fetch.pass(site, head.method, &path, &sent, body).await {
            Ok(answer) => answer,
            Err(error) => return failed(&error),
        };
        let (mut answered, body) = answer.into_parts();
        let length = answered
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|n| n.to_str().ok())
            .and_then(|n| n.parse::<usize>().ok());
        let encoding = rewritable(answered.status, &answered.headers, length).filter(|_| may_be_page);
        answered.headers = without_hops(&answered.headers);
        if let Some(base) = self.fetch.origin(site) {
            keep_here(&mut answered.headers, base);
        }
        let Some(encoding) = encoding else { return as_it_is(answered.status, answered.headers, length, body) };
        let reader = preferences::reader(&head.headers);
        let wanted = self.readers.of(reader.as_deref(), &head.headers).await;
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
        let page = Page { path, host, wanted, sizes: self.sizes.clone() };
        for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES, header::AGE, header::EXPIRES] {
            answered.headers.remove(name);
        }
        answered.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        answered.headers.append(header::VARY, HeaderValue::from_static("Cookie"));
        answered.headers.insert(ANSWER, EXACT);
        (answered.status, answered.headers, pages::rewritten(body, page, encoding)).into_response()
    }

    async fn prefer(&self, head: Parts, body: Body) -> Response {
        if head.method != Method::POST {
            return plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "preferences are set by POST: the toolbar of each page has a form",
            );
        }
        // Another site may not set them by a form of its own.
        let from = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !matches!(from, None | Some(b"same-origin" | b"none")) {
            return plain(StatusCode::FORBIDDEN, "preferences are set from pages of this site");
        }
        let Ok(form) = to_bytes(body, FORM_BYTES_MAX).await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the form is too long");
        };
        let (wanted, back) = Preferences::from_form(&form);
        let reader = preferences::reader(&head.headers).unwrap_or_else(preferences::new_reader);
        if let Err(NotKept(why)) = self.readers.keep(&reader, &wanted, &head.headers).await {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                [(header::RETRY_AFTER, "1")],
                format!("the preferences were not kept: {why}\n"),
            )
                .into_response();
        }
        let seconds = PREFERENCES_KEPT.as_secs();
        let cookie = format!("{}={reader}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}", preferences::COOKIE);
        (StatusCode::SEE_OTHER, [(header::LOCATION, back), (header::SET_COOKIE, cookie)]).into_response()
    }
}

/// Whether what is asked for may become a page: browsers say what it is for.
fn is_for_a_page(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-dest").is_none_or(|dest| matches!(dest.as_bytes(), b"document" | b"iframe" | b"frame"))
}

/// The encoding of an answer that is a page to be rewritten.
fn rewritable(
    status: StatusCode,
    headers: &HeaderMap,
    length: Option<usize>,
) -> Option<lol_html::AsciiCompatibleEncoding> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let is_html = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"));
    let is_file = headers.get(header::CONTENT_DISPOSITION).is_some_and(|how| how.as_bytes().starts_with(b"attachment"));
    let is_left = is_packed(headers) || is_file || says(headers, &header::CACHE_CONTROL, "no-transform");
    let is_small = length.is_some_and(|length| length < SMALL_BYTES);
    if status != StatusCode::OK || !is_html || is_left || is_small {
        return None;
    }
    pages::encoding(kind)
}

fn as_it_is(status: StatusCode, mut headers: HeaderMap, length: Option<usize>, body: Incoming) -> Response {
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    (status, headers, Body::new(body)).into_response()
}

/// Redirects of the origin to itself stay on this site.
fn keep_here(headers: &mut HeaderMap, base: &Url) {
    let Some(to) = headers.get(header::LOCATION).and_then(|to| to.to_str().ok()) else { return };
    let begin = format!("{}://{}", base.scheme(), base.authority());
    let path = to.strip_prefix(&begin).unwrap_or(to);
    let below = path.strip_prefix(base.path.trim_end_matches('/')).filter(|rest| rest.starts_with('/'));
    if let Some(to) = below.and_then(|below| HeaderValue::from_str(below).ok()) {
        headers.insert(header::LOCATION, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()))
            .collect()
    }

    #[test]
    fn only_pages_are_rewritten() {
        let is = |status: u16, all: &[(&str, &str)], length: Option<usize>| {
            rewritable(StatusCode::from_u16(status).unwrap(), &headers(all), length).is_some()
        };
        let html = ("content-type", "text/html; charset=utf-8");
        assert!(is(200, &[html], None) && is(200, &[html], Some(5000)));
        assert!(!is(200, &[html], Some(1000)) && !is(404, &[html], None) && !is(200, &[], None));
        assert!(!is(200, &[html, ("cache-control", "public, no-transform")], None));
        assert!(
            !is(200, &[html, ("content-encoding", "gzip")], None)
                && is(200, &[html, ("content-encoding", "identity")], None)
        );
        assert!(!is(200, &[html, ("content-disposition", "attachment; filename=x")], None));
        assert!(
            !is(200, &[("content-type", "application/json")], None)
                && !is(200, &[("content-type", "text/html; charset=utf-16")], None)
        );
    }

    #[test]
    fn what_a_browser_accepts_is_read() {
        assert!(accepts_webp(&headers(&[("accept", "image/avif,image/webp,*/*")])));
        for accept in ["*/*", "image/webp;q=0", "image/webpx"] {
            assert!(!accepts_webp(&headers(&[("accept", accept)])), "{accept}");
        }
    }

    #[test]
    fn redirects_of_the_origin_stay_here() {
        let base = Url::parse("http://10.0.0.1:8000/base/").unwrap();
        for (to, expected) in [
            ("http://10.0.0.1:8000/base/x?y", "/x?y"),
            ("/base/x", "/x"),
            ("x", "x"),
            ("/other", "/other"),
            ("https://example.org/base/x", "https://example.org/base/x"),
        ] {
            let mut answered = headers(&[("location", to)]);
            keep_here(&mut answered, &base);
            assert_eq!(answered["location"], expected);
        }
    }

    #[test]
    fn a_stand_in_is_soon_asked_for_again_and_nothing_but_pictures_is_shown() {
        let whole = |kind: &str, bytes: &'static [u8]| Whole {
            headers: headers(&[("content-type", kind), ("cache-control", "max-age=600")]),
            bytes: Bytes::from_static(bytes),
        };
        let none = HeaderMap::new();
        let answer = shown(&whole("image/jpeg", b"\xff\xd8\xff"), &Edit::default(), None, true, &none);
        assert_eq!(
            (&answer.headers()[ANSWER], &answer.headers()[header::CACHE_CONTROL]),
            (&ORIGINAL, &HeaderValue::from_static("max-age=5"))
        );
        let answer = shown(
            &whole("image/jpeg", b"\xff\xd8\xff"),
            &Edit::default(),
            Some((Format::Webp, Bytes::from_static(b"x"))),
            false,
            &none,
        );
        assert_eq!(
            (&answer.headers()[ANSWER], &answer.headers()[header::CACHE_CONTROL]),
            (&EXACT, &HeaderValue::from_static("max-age=600"))
        );
        assert_eq!(
            (&answer.headers()[header::CONTENT_TYPE], &answer.headers()[ORIGINAL_BYTES]),
            (&HeaderValue::from_static("image/webp"), &HeaderValue::from_static("3"))
        );
        let again = headers(&[("if-none-match", answer.headers()[header::ETAG].to_str().unwrap())]);
        let same = shown(&whole("image/jpeg", b"\xff\xd8\xff"), &Edit::default(), None, false, &again);
        assert_eq!(same.status(), 304);
        assert_eq!(shown(&whole("text/html", b"<script>"), &Edit::default(), None, false, &none).status(), 422);
        let drawing = shown(&whole("image/svg+xml", b"<svg>"), &Edit::default(), None, false, &none);
        assert!(drawing.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("sandbox"));
    }
}
