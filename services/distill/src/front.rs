//! What comes by HTTP, and what is answered: pages of one's own site, rewritten; their pictures, distilled; pictures by imgproxy's
//! URLs; preferences. Whatever cannot be made small comes as it is, for a few seconds: `Coppice-Answer: original`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::Incoming;
use sdk::axum::body::{Body, to_bytes};
use sdk::axum::extract::{Request, State};
use sdk::axum::http::request::Parts;
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sdk::axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use crate::afterwards::Often;
use crate::apart::{self, Apart};
use crate::fetch::{Fetch, FetchError, Source, Url, is_packed, without_hops};
use crate::hints;
use crate::image::{Bad, Edit, Format, Watermark};
use crate::imgproxy::{self, Wrong};
use crate::limits::*;
use crate::marks::Marks;
use crate::near;
use crate::pages::{self, OURS, Others, PICTURES, Page};
use crate::preferences::{self, NotKept, Preferences, Readers};
use crate::settings::{Settings, Urls};
use crate::shelf::{self, Original, Shelf};
use crate::sizes::Sizes;
use crate::works::{self, Key, NotMade, Picture, Works};
use crate::{thin, thumbor, weserv};

pub const ANSWER: HeaderName = HeaderName::from_static("coppice-answer");
/// Bytes of the original, where something else is answered.
pub const ORIGINAL_BYTES: HeaderName = HeaderName::from_static("coppice-original-bytes");
/// The best that can be had.
const EXACT: HeaderValue = HeaderValue::from_static("exact");
/// In place of something better: another variant, or one of a while ago; or what it would be made of.
const NEAR: HeaderValue = HeaderValue::from_static("near");
const ORIGINAL: HeaderValue = HeaderValue::from_static("original");

/// Whose pages are shown, and to whom.
#[derive(Clone, Debug)]
pub enum Site {
    /// A declared origin's, to whom his cookie names.
    Own(String),
    /// Whoever's this is, to this reader: by the proxy, or under a name of its own.
    Any { url: Url, reader: String, apart: Option<Arc<Apart>> },
}

pub struct Front {
    pub settings: Settings,
    pub fetch: Fetch,
    pub works: Works,
    pub readers: Readers,
    pub sizes: Sizes,
    pub marks: Marks,
    pub shelf: Shelf,
    pub repairs: Repairs,
    pub often: Often,
}

/// What goes out.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Shown {
    Exact(Option<Picture>),
    Near(Picture),
    /// In place of something better.
    Original,
}

/// Answers anything.
pub async fn answer(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if front.fetch.is_loop(&head.headers) {
        return failed(&FetchError::Loop);
    }
    if let Some(names) = front.settings.apart.as_ref().filter(|names| names.is_for(&head.headers)) {
        return apart::answer(&front, &Arc::clone(names), head, body).await;
    }
    let path = head.uri.path().to_owned();
    let ours = path.strip_prefix(OURS).filter(|rest| rest.starts_with('/'));
    match ours {
        Some("/toolbar.css") => style(),
        Some("/preferences") => front.prefer(None, head, body).await,
        Some(_) if path.starts_with(PICTURES) && front.settings.site.is_some() => {
            let site = Site::Own(front.settings.site.clone().unwrap_or_default());
            front.picture_of_site(&site, &head).await
        }
        Some(_) => plain(StatusCode::NOT_FOUND, "there is nothing here"),
        None if front.is_picture(&head) => front.picture_by_url(&head).await,
        None => match front.settings.site.clone() {
            Some(site) => front.page(&Site::Own(site), head, body).await,
            None => plain(
                StatusCode::NOT_FOUND,
                match front.settings.urls {
                    Urls::Imgproxy => {
                        "pictures are at /insecure/OPTIONS/plain/SOURCE, or with a signature; SITE names no site"
                    }
                    Urls::Thumbor => "pictures are at /unsafe/300x200/SOURCE, or with a signature; SITE names no site",
                    Urls::Weserv => "pictures are at /?url=SOURCE&w=300",
                },
            ),
        },
    }
}

/// Answers what a reader asks for of others' sites.
pub async fn proxied(
    front: &Arc<Front>,
    url: Url,
    reader: String,
    apart: Option<Arc<Apart>>,
    head: Parts,
    body: Body,
) -> Response {
    if front.fetch.is_loop(&head.headers) {
        return failed(&FetchError::Loop);
    }
    let path = url.path.split('?').next().unwrap_or_default().to_owned();
    match path.strip_prefix(OURS).filter(|rest| rest.starts_with('/')) {
        Some("/toolbar.css") => style(),
        Some("/preferences") => front.prefer(Some(reader), head, body).await,
        Some(_) if path.starts_with(PICTURES) => front.picture_of_site(&Site::Any { url, reader, apart }, &head).await,
        Some(_) => plain(StatusCode::NOT_FOUND, "there is nothing here"),
        None => front.page(&Site::Any { url, reader, apart }, head, body).await,
    }
}

/// What stands before paths of a site of others, as browsers ask for them.
fn begin(url: &Url, apart: Option<&Arc<Apart>>) -> String {
    let named = apart.and_then(|apart| apart.begin(url));
    named.unwrap_or_else(|| format!("{}://{}", url.scheme(), url.authority()))
}

fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css"), (header::CACHE_CONTROL, "max-age=3600")], pages::STYLE).into_response()
}

pub fn plain(status: StatusCode, why: &str) -> Response {
    (status, [(header::CACHE_CONTROL, "no-store")], format!("{why}\n")).into_response()
}

pub fn failed(error: &FetchError) -> Response {
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
    headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok()).any(|line| has_word(line, word))
}

pub fn has_word(line: &str, word: &str) -> bool {
    line.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
}

pub fn accepts(headers: &HeaderMap, mime: &str) -> bool {
    let lines = headers.get_all(header::ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|part| {
        let mut words = part.split(';').map(str::trim);
        words.next().is_some_and(|kind| kind.eq_ignore_ascii_case(mime)) && !words.any(|word| word == "q=0")
    })
}

/// Pictures.
impl Front {
    async fn picture_of_site(self: &Arc<Self>, site: &Site, head: &Parts) -> Response {
        let (path, headers) = (head.uri.path(), &head.headers);
        let asked = path.strip_prefix(PICTURES).and_then(|rest| rest.split_once('/'));
        let Some((edit, rest)) = asked.and_then(|(part, rest)| Some((preferences::edit_of(part)?, rest))) else {
            return plain(
                StatusCode::NOT_FOUND,
                "there is no such picture: its path begins with wishes, like q40w640g",
            );
        };
        let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let (mut noted, of) = (format!("{path}{query}"), format!("/{rest}{query}"));
        let source = match site {
            Site::Own(name) => Source::Origin { name: name.clone(), path: of },
            Site::Any { url, apart, .. } => {
                noted = format!("{}{noted}", begin(url, apart.as_ref()));
                self.fetch.source_of(Url { path: of, ..url.clone() })
            }
        };
        self.picture(&source, edit, headers, Some(&noted)).await
    }

    async fn picture_by_url(self: &Arc<Self>, head: &Parts) -> Response {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "pictures are had by GET");
        }
        let (path, settings) = (head.uri.path(), &self.settings);
        let asked = match settings.urls {
            Urls::Imgproxy => imgproxy::read(path, &settings.keys, &settings.presets),
            Urls::Thumbor => thumbor::read(path, &settings.thumbor_keys),
            Urls::Weserv => weserv::read(head.uri.query().unwrap_or_default()),
        };
        let asked = match asked {
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

    /// Whether it is for pictures by URL, and not for a site beside them.
    fn is_picture(&self, head: &Parts) -> bool {
        let (path, settings) = (head.uri.path(), &self.settings);
        match settings.urls {
            Urls::Imgproxy => imgproxy::is_one(path, !settings.keys.is_empty()),
            Urls::Thumbor => thumbor::is_one(path, !settings.thumbor_keys.is_empty()),
            Urls::Weserv => weserv::is_one(path, head.uri.query()),
        }
    }

    /// A source that a URL may name.
    fn allowed(&self, text: &str) -> Result<Source, FetchError> {
        let source = Source::parse(text)?;
        let is_open = self.settings.sources.iter().any(|begin| text.starts_with(begin.as_str()));
        if matches!(source, Source::Outside(_)) && !self.settings.has_keys() && !is_open {
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
    async fn picture(
        self: &Arc<Self>,
        source: &Source,
        mut edit: Edit,
        headers: &HeaderMap,
        noted: Option<&str>,
    ) -> Response {
        let original = match self.shelf.original(&self.fetch, source, headers).await {
            Ok(original) => original,
            Err(error) => return failed(&error),
        };
        edit.accepts_webp = accepts(headers, Format::Webp.mime());
        hints::apply(&mut edit, headers);
        let shown = match self.avif(source, &original, &edit, headers) {
            Some((fine, picture)) => {
                edit = fine;
                Shown::Exact(Some(picture))
            }
            None if edit.format == Some(Format::Avif) => {
                edit.format = None;
                match self.best(source, &original, &edit, headers).await {
                    Shown::Exact(Some(picture)) => Shown::Near(picture),
                    Shown::Exact(None) if !original.says_no_transform() => Shown::Original,
                    other => other,
                }
            }
            None => self.best(source, &original, &edit, headers).await,
        };
        if edit.watermark.is_some() && !matches!(shown, Shown::Exact(Some(_)) | Shown::Near(_)) {
            // Its original is not to be seen without.
            let why = [(header::RETRY_AFTER, "1"), (header::CACHE_CONTROL, "no-store")];
            return (StatusCode::SERVICE_UNAVAILABLE, why, "the watermark cannot be laid on now\n").into_response();
        }
        if let (Some(url), Shown::Exact(made)) = (noted, &shown) {
            let after = made.as_ref().map_or(original.known.bytes, |(_, bytes)| bytes.len() as u64);
            self.sizes.note(url, (original.known.bytes, after));
        }
        let bytes = match &shown {
            Shown::Exact(Some((_, bytes))) | Shown::Near((_, bytes)) => bytes.clone(),
            Shown::Exact(None) | Shown::Original => {
                match self.shelf.bytes_to_show(&self.fetch, source, headers, &original).await {
                    Ok(bytes) => bytes,
                    Err(error) => return failed(&error),
                }
            }
        };
        answered(&original, &edit, &shown, bytes, headers)
    }

    /// What was asked for, if it can be had in time; else what is nearest to it, which is made good afterwards.
    async fn best(self: &Arc<Self>, source: &Source, original: &Original, edit: &Edit, headers: &HeaderMap) -> Shown {
        if original.says_no_transform() {
            return Shown::Exact(None);
        }
        let key = works::key(&original.known.content, edit);
        if let Some(made) = self.works.kept(&key) {
            return Shown::Exact(made);
        }
        // It is made to its end, whoever still waits for it.
        let job = {
            let (front, source, original, edit) = (Arc::clone(self), source.clone(), original.clone(), edit.clone());
            let headers = headers.clone();
            tokio::spawn(async move { front.make(&source, &original, &edit, &headers).await })
        };
        let end = match timeout(MAKE_WAIT, job).await {
            Ok(Ok(end)) => end,
            Ok(Err(_)) => Err(NotMade::Crashed),
            Err(_) => Err(NotMade::Busy),
        };
        let why = match end {
            Ok(made) => return Shown::Exact(made),
            // What is no kind that is read never will be one.
            Err(NotMade::Bad(Bad::Unknown)) => return Shown::Exact(None),
            Err(why) => why,
        };
        tracing::debug!(?why, "a picture was not made");
        if matches!(why, NotMade::Busy | NotMade::Gone) {
            self.repair(key, source, original, edit, headers);
        }
        let asked = near::Asked::of(edit, original.known.pixels.unwrap_or((0, 0)));
        let mut kept = self.shelf.variants(&original.known.content).await;
        while let Some(nearest) = asked.nearest(&kept) {
            if let Some(picture) = self.kept(&nearest).await {
                return Shown::Near(picture);
            }
            // It went for want of room.
            kept.retain(|variant| variant.key != nearest.key);
        }
        Shown::Original
    }

    async fn kept(&self, variant: &near::Variant) -> Option<Picture> {
        match works::key_of(&variant.key).and_then(|key| self.works.kept(&key)) {
            Some(made) => made,
            None => self.shelf.variant(variant).await,
        }
    }

    /// Makes a picture, unless another clone does or has done so.
    pub async fn make(
        &self,
        source: &Source,
        original: &Original,
        edit: &Edit,
        headers: &HeaderMap,
    ) -> Result<Option<Picture>, NotMade> {
        let content = &original.known.content;
        let key = works::key(content, edit);
        let work = async |bytes: Bytes| {
            let end = self.works.make(key, &bytes, edit).await;
            if let Ok(Some((format, _))) = &end {
                let (width, height) = edit.wanted(original.known.pixels.unwrap_or((0, 0)));
                let (family, quality, key) = (near::family(edit), edit.quality(), shelf::hex(&key));
                let variant = near::Variant { key, family, format: *format, quality, width, height };
                self.shelf.add_variant(content, variant).await;
            }
            end
        };
        let end = self.once(&key, source, original, headers, work).await;
        if let Ok(made) = &end {
            self.works.keep(key, made.clone());
        }
        end
    }

    /// What is kept under a key; made of the original's bytes, unless another clone does or has done so.
    pub async fn once(
        &self,
        key: &Key,
        source: &Source,
        original: &Original,
        headers: &HeaderMap,
        work: impl AsyncFnOnce(Bytes) -> Result<Option<Picture>, NotMade>,
    ) -> Result<Option<Picture>, NotMade> {
        let missing = match self.shelf.made(key).await {
            Ok(made) => return made,
            Err(missing) => missing,
        };
        let end = match self.shelf.bytes(&self.fetch, source, headers, original).await {
            Ok(bytes) => work(bytes).await,
            Err(error) => {
                tracing::debug!(%error, "an original was there, and is not any more");
                Err(NotMade::Gone)
            }
        };
        if let Some(missing) = missing {
            self.shelf.keep_made(&missing, key, &end).await;
        }
        end
    }

    /// Makes it when there is room for it, so that who asks again gets it.
    fn repair(self: &Arc<Self>, key: Key, source: &Source, original: &Original, edit: &Edit, headers: &HeaderMap) {
        let Some(turn) = self.repairs.begin(key) else { return };
        let (front, source, original, edit) = (Arc::clone(self), source.clone(), original.clone(), edit.clone());
        let headers = headers.clone();
        tokio::spawn(async move {
            for _ in 0..REPAIR_TRIES {
                tokio::time::sleep(REPAIR_EVERY).await;
                // What somebody waits for comes first.
                if front.works.stage.is_overloaded() {
                    continue;
                }
                if !matches!(front.make(&source, &original, &edit, &headers).await, Err(NotMade::Busy)) {
                    break;
                }
            }
            drop(turn);
        });
    }
}

/// The answer with a picture.
fn answered(original: &Original, edit: &Edit, shown: &Shown, bytes: Bytes, asked: &HeaderMap) -> Response {
    let known = &original.known;
    let kind = match shown {
        Shown::Exact(Some((format, _))) | Shown::Near((format, _)) => format.mime().to_owned(),
        Shown::Exact(None) | Shown::Original => {
            let said = known.kind.as_deref().unwrap_or_default();
            let seen = Format::of(&bytes).map(Format::mime);
            let Some(kind) = seen.or(said.starts_with("image/").then_some(said)) else {
                return plain(StatusCode::UNPROCESSABLE_ENTITY, "the source is no picture");
            };
            kind.to_owned()
        }
    };
    let (answer, mark) = match shown {
        Shown::Original => (ORIGINAL, "o"),
        Shown::Near(_) => (NEAR, "n"),
        // The best of what was; what is now, nobody can tell.
        Shown::Exact(_) if original.is_stale => (NEAR, "s"),
        Shown::Exact(_) => (EXACT, ""),
    };
    let is_exact = answer == EXACT;
    let key = works::key(&known.content, edit);
    let tag = format!("\"{}{mark}\"", shelf::hex(&key[..12]));
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    let is_private = asked.contains_key(header::COOKIE) || asked.contains_key(header::AUTHORIZATION);
    let kept = format!("{}, max-age={MADE_SECONDS}", if is_private { "private" } else { "public" });
    let short = format!("max-age={STAND_IN_SECONDS}");
    set(header::CACHE_CONTROL, if is_exact { known.control.as_deref().unwrap_or(&kept) } else { &short });
    let age = original.age();
    if is_exact && age > 0 {
        set(header::AGE, &age.to_string());
    }
    set(header::ETAG, &tag);
    set(header::VARY, hints::VARY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // A drawing that is opened by itself runs nothing.
    set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox");
    set(header::CONTENT_TYPE, &kind);
    set(ORIGINAL_BYTES, &known.bytes.to_string());
    headers.insert(ANSWER, answer);
    if says(asked, &header::IF_NONE_MATCH, &tag) || says(asked, &header::IF_NONE_MATCH, &format!("W/{tag}")) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, bytes).into_response()
}

/// Pictures that are made afterwards.
#[derive(Clone, Default)]
pub struct Repairs(Arc<Mutex<HashSet<Key>>>);

pub struct Repair {
    of: Repairs,
    key: Key,
}

impl Repairs {
    /// None: it is made already, or there are too many.
    pub fn begin(&self, key: Key) -> Option<Repair> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = keys.len() < REPAIRS_MAX && keys.insert(key);
        is_new.then(|| Repair { of: self.clone(), key })
    }
}

impl Drop for Repair {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The site.
impl Front {
    async fn page(&self, site: &Site, head: Parts, body: Body) -> Response {
        let Ok(body) = to_bytes(body, UPLOAD_BYTES_MAX).await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body has more bytes than are passed on");
        };
        let path = match site {
            Site::Own(_) => head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            Site::Any { url, .. } => url.path.clone(),
        };
        let may_be_page = head.method == Method::GET && is_for_a_page(&head.headers);
        let form = thin::Form::asked(&head.headers).filter(|_| may_be_page);
        let mut sent = head.headers.clone();
        if form.is_some() {
            // It is made of a page.
            sent.insert(header::ACCEPT, HeaderValue::from_static("text/html, */*;q=0.5"));
        }
        if may_be_page {
            // The page that the browser has may be of other preferences than the one that it would get.
            for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::RANGE, header::IF_RANGE] {
                sent.remove(name);
            }
        }
        let passed = match site {
            Site::Own(name) => self.fetch.pass(name, head.method, &path, &sent, body).await,
            Site::Any { url, .. } => self.fetch.pass_outside(url, head.method, &sent, body).await,
        };
        let answer = match passed {
            Ok(answer) => answer,
            Err(error) => return failed(&error),
        };
        let (mut answered, body) = answer.into_parts();
        let length = answered
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|n| n.to_str().ok())
            .and_then(|n| n.parse::<usize>().ok());
        // What is small stays as it is; but not for who cannot show it.
        let length_told = length.filter(|_| form.is_none());
        let encoding = rewritable(answered.status, &answered.headers, length_told).filter(|_| may_be_page);
        answered.headers = without_hops(&answered.headers);
        if let Site::Own(name) = site
            && let Some(base) = self.fetch.origin(name)
        {
            keep_here(&mut answered.headers, base);
        }
        if let Site::Any { url, apart: Some(apart), .. } = site {
            apart.outward(&mut answered.headers, url);
        }
        let Some(encoding) = encoding else { return as_it_is(answered.status, answered.headers, length, body) };
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
        let (wanted, host, (begins, others)) = match site {
            Site::Own(_) => {
                let reader = preferences::reader(&head.headers);
                let none = (String::new(), Others::Left);
                (self.readers.of(reader.as_deref(), &head.headers).await, host, none)
            }
            Site::Any { url, reader, apart } => {
                let others = apart.clone().map_or(Others::Proxied, Others::Apart);
                (self.readers.look_up(reader).await, url.authority(), (begin(url, apart.as_ref()), others))
            }
        };
        let is_own = matches!(others, Others::Left);
        let page = Page { path, host, wanted, sizes: self.sizes.clone(), begins, others };
        for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES, header::AGE, header::EXPIRES] {
            answered.headers.remove(name);
        }
        answered.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        if is_own {
            answered.headers.append(header::VARY, HeaderValue::from_static("Cookie"));
        }
        answered.headers.insert(ANSWER, EXACT);
        answered.headers.append(header::VARY, HeaderValue::from_static("Accept, Save-Data, ECT, Downlink"));
        if let Some(form) = form {
            answered.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.mime()));
            let flow = thin::Flow::new(page, encoding, form);
            return (answered.status, answered.headers, pages::rewritten(body, flow)).into_response();
        }
        answered.headers.insert("accept-ch", HeaderValue::from_static(hints::ACCEPT));
        (answered.status, answered.headers, pages::rewritten(body, pages::Flow::new(page, encoding))).into_response()
    }

    /// `known`: who it is, if no cookie has to say it.
    async fn prefer(&self, known: Option<String>, head: Parts, body: Body) -> Response {
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
        let has_cookie = known.is_none();
        let reader = known.or_else(|| preferences::reader(&head.headers)).unwrap_or_else(preferences::new_reader);
        if let Err(NotKept(why)) = self.readers.keep(&reader, &wanted, &head.headers).await {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                [(header::RETRY_AFTER, "1")],
                format!("the preferences were not kept: {why}\n"),
            )
                .into_response();
        }
        if !has_cookie {
            return (StatusCode::SEE_OTHER, [(header::LOCATION, back)]).into_response();
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
        assert!(accepts(&headers(&[("accept", "image/avif,image/webp,*/*")]), "image/webp"));
        for accept in ["*/*", "image/webp;q=0", "image/webpx"] {
            assert!(!accepts(&headers(&[("accept", accept)]), "image/webp"), "{accept}");
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
        let original = |kind: &str, bytes: &'static [u8]| {
            let headers = headers(&[("content-type", kind), ("cache-control", "max-age=600")]);
            Original::of(&crate::fetch::Whole { headers, bytes: Bytes::from_static(bytes) })
        };
        let none = HeaderMap::new();
        let edit = Edit::default();
        const JPEG: &[u8] = b"\xff\xd8\xff";
        let photo = original("image/jpeg", JPEG);
        let webp = (Format::Webp, Bytes::from_static(b"x"));
        let mut stale = photo.clone();
        stale.is_stale = true;
        let mut tags = HashSet::new();
        for (original, shown, answer, control, kind) in [
            (&photo, Shown::Original, "original", "max-age=5", "image/jpeg"),
            (&photo, Shown::Exact(None), "exact", "max-age=600", "image/jpeg"),
            (&photo, Shown::Near(webp.clone()), "near", "max-age=5", "image/webp"),
            (&stale, Shown::Exact(Some(webp.clone())), "near", "max-age=5", "image/webp"),
        ] {
            let bytes = if kind == "image/webp" { Bytes::from_static(b"x") } else { Bytes::from_static(JPEG) };
            let got = answered(original, &edit, &shown, bytes, &none);
            let said = [ANSWER, header::CACHE_CONTROL, header::CONTENT_TYPE, ORIGINAL_BYTES]
                .map(|name| got.headers()[name].to_str().unwrap().to_owned());
            assert_eq!(said, [answer, control, kind, "3"], "{shown:?}");
            assert!(tags.insert(got.headers()[header::ETAG].clone()), "what is exact later is not the same");
        }
        let exact = Shown::Exact(Some(webp));
        let got = answered(&photo, &edit, &exact, Bytes::from_static(b"x"), &none);
        let again = headers(&[("if-none-match", got.headers()[header::ETAG].to_str().unwrap())]);
        assert_eq!(answered(&photo, &edit, &exact, Bytes::from_static(b"x"), &again).status(), 304);
        let text = original("text/html", b"<script>");
        assert_eq!(answered(&text, &edit, &Shown::Exact(None), Bytes::from_static(b"<script>"), &none).status(), 422);
        let drawing = original("image/svg+xml", b"<svg>");
        let got = answered(&drawing, &edit, &Shown::Exact(None), Bytes::from_static(b"<svg>"), &none);
        assert!(got.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("sandbox"));
    }

    #[test]
    fn each_picture_is_made_good_once_and_not_too_many() {
        let repairs = Repairs::default();
        let first = repairs.begin([1; 32]);
        assert!(first.is_some() && repairs.begin([1; 32]).is_none());
        drop(first);
        let all: Vec<_> = (0..=REPAIRS_MAX).map(|n| repairs.begin([n as u8; 32])).collect();
        assert_eq!(all.iter().filter(|turn| turn.is_some()).count(), REPAIRS_MAX);
    }
}
