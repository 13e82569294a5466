//! Who has others' sites: people with a name and a password, who say both at one name of ours, where no site is, and get a pass for all
//! names below. Sites never see it: it is no cookie that is passed on.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use ring::hmac;
use sdk::axum::body::{Body, to_bytes};
use sdk::axum::http::request::Parts;
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use sdk::axum::response::{IntoResponse, Response};

use super::{Apart, ENTRANCE, hex, wrong};
use crate::fetch::Url;
use crate::front::{self, Front, plain};
use crate::limits::{FORM_BYTES_MAX, PASS_KEPT, WRONG_SPAN};

/// The cookie with the pass.
const PASS: &str = "distill-pass";
const ENTER: &str = "/_distill/enter";

/// Answers what is asked of a name below ours.
pub async fn answer(front: &Arc<Front>, apart: &Arc<Apart>, head: Parts, body: Body) -> Response {
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let label = apart.label(&host).unwrap_or_default();
    if label.eq_ignore_ascii_case(ENTRANCE) {
        return enter(apart, head, body).await;
    }
    let Some(site) = apart.site(label) else {
        return plain(
            StatusCode::NOT_FOUND,
            "no site has this name: a dot is -, and a dash is --, as in s-example-org",
        );
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let Some(reader) = apart.reader(&head.headers) else {
        return apart.no_pass(&head, &format!("{}://{host}{path}", apart.base.scheme()));
    };
    if head.headers.contains_key("service-worker") {
        return plain(
            StatusCode::FORBIDDEN,
            "service workers are refused here: they would stay when the page has gone",
        );
    }
    let url = match Url::parse(&format!("https://{site}{path}")) {
        Ok(url) => url,
        Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Ok(uri) = url.path.parse::<Uri>() else { return plain(StatusCode::BAD_REQUEST, "its path is none") };
    let mut head = head;
    head.uri = uri;
    apart.inward(&mut head.headers, &head.method);
    front::proxied(front, url, reader, Some(Arc::clone(apart)), head, body).await
}

async fn enter(apart: &Apart, head: Parts, body: Body) -> Response {
    match (head.uri.path(), &head.method) {
        ("/" | ENTER, &Method::GET | &Method::HEAD) => {
            let query = head.uri.query().unwrap_or_default();
            let back = field(query.as_bytes(), "back").unwrap_or_default();
            let is_in = apart.reader(&head.headers).is_some();
            if let Some(to) = field(query.as_bytes(), "to").filter(|_| is_in) {
                return apart.lead_to(&to);
            }
            page(StatusCode::OK, is_in, &back, "")
        }
        (ENTER, &Method::POST) => {
            // A form of another page says nothing of who sits there.
            let from = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            if !matches!(from, None | Some(b"same-origin" | b"none")) {
                return plain(StatusCode::FORBIDDEN, "one enters from this page only");
            }
            let Ok(form) = to_bytes(body, FORM_BYTES_MAX).await else {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the form is too long");
            };
            apart.let_in(&form, wrong::from(&head.headers))
        }
        _ => plain(StatusCode::NOT_FOUND, "there is nothing here"),
    }
}

impl Apart {
    /// Whose pass a request shows.
    pub(super) fn reader(&self, headers: &HeaderMap) -> Option<String> {
        let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        // A site may have set others of that name, for all names here: they are nobody's.
        let mut shown =
            lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().strip_prefix(PASS)?.strip_prefix('='));
        shown.find_map(|pass| self.holder(pass, now()))
    }

    pub(super) fn pass(&self, reader: &str, until: u64) -> String {
        let text = format!("{reader}.{until}");
        let seal = hmac::sign(&self.key, text.as_bytes());
        format!("{text}.{}", hex(seal.as_ref()))
    }

    pub(super) fn holder(&self, pass: &str, now: u64) -> Option<String> {
        let (text, seal) = pass.rsplit_once('.')?;
        let (reader, until) = text.split_once('.')?;
        let seal: Option<Vec<u8>> =
            (0..seal.len()).step_by(2).map(|at| u8::from_str_radix(seal.get(at..at + 2)?, 16).ok()).collect();
        hmac::verify(&self.key, text.as_bytes(), &seal?).ok()?;
        (until.parse::<u64>().ok()? > now).then(|| reader.to_owned())
    }

    /// Who follows a link is led to the entrance, and back; whatever else is asked for is refused.
    fn no_pass(&self, head: &Parts, url: &str) -> Response {
        let said = |name: &str| head.headers.get(name).map(HeaderValue::as_bytes);
        let is_followed = head.method == Method::GET && matches!(said("sec-fetch-mode"), None | Some(b"navigate"));
        if !is_followed {
            return plain(StatusCode::UNAUTHORIZED, "who are you? A page that is opened by itself asks for it");
        }
        let back = utf8_percent_encode(url, NON_ALPHANUMERIC);
        redirect(&format!("{}{ENTER}?back={back}", self.entrance()), None)
    }

    fn lead_to(&self, typed: &str) -> Response {
        let typed = typed.trim();
        let whole = if typed.contains("://") { typed.to_owned() } else { format!("https://{typed}") };
        match Url::parse(&whole).ok().and_then(|url| Some(format!("{}{}", self.begin(&url)?, url.path))) {
            Some(to) => redirect(&to, None),
            None => {
                plain(StatusCode::BAD_REQUEST, "sites by https, on their usual port, come here: https://example.org/")
            }
        }
    }

    fn let_in(&self, form: &[u8], from: Option<IpAddr>) -> Response {
        let asked = Instant::now();
        let of = |name| field(form, name).unwrap_or_default();
        let back = of("back");
        if self.wrong.is_guessing(from, asked) {
            let wait = [(header::RETRY_AFTER, WRONG_SPAN.as_secs().to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, wait, "too many wrong passwords: wait a minute\n").into_response();
        }
        let Some(reader) = self.allowed.reader_of(&of("name"), &of("password")) else {
            self.wrong.note(from, asked);
            return page(StatusCode::FORBIDDEN, false, &back, "That is no name with its password.");
        };
        let pass = self.pass(&reader, now() + PASS_KEPT.as_secs());
        let (host, seconds) = (&self.base.host, PASS_KEPT.as_secs());
        let secure = if self.base.is_tls { "; Secure" } else { "" };
        let cookie = format!("{PASS}={pass}; Domain={host}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        // Back to a site that comes here, and to nobody else's.
        let to = self.meant(&back).and_then(|site| self.link(&site)).unwrap_or_else(|| self.entrance() + "/");
        redirect(&to, HeaderValue::from_str(&cookie).ok())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn redirect(to: &str, cookie: Option<HeaderValue>) -> Response {
    let Ok(to) = HeaderValue::from_str(to) else { return plain(StatusCode::BAD_REQUEST, "it leads nowhere") };
    let mut headers = HeaderMap::from_iter([(header::LOCATION, to)]);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(cookie) = cookie {
        headers.insert(header::SET_COOKIE, cookie);
    }
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// A field of a form or query.
fn field(form: &[u8], name: &str) -> Option<String> {
    let pair =
        form.split(|byte| *byte == b'&').find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    let spaced: Vec<u8> = pair.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8().ok().map(|text| text.into_owned())
}

fn page(status: StatusCode, is_in: bool, back: &str, why: &str) -> Response {
    let escaped = back.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let form = if is_in {
        "<form action=\"/_distill/enter\"><label>Site <input name=\"to\" placeholder=\"https://example.org/\"></label> \
         <button>Open</button></form>"
            .to_owned()
    } else {
        format!(
            "<form method=\"post\" action=\"/_distill/enter\"><p>{why}</p><label>Name <input name=\"name\" autocomplete=\"username\"></label> \
             <label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\"></label> <input type=\"hidden\" \
             name=\"back\" value=\"{escaped}\"><button>Enter</button></form>"
        )
    };
    let text = format!("<!doctype html><meta charset=\"utf-8\"><title>Distill</title>{form}\n");
    let policy = "default-src 'none'; form-action 'self' https: http:; frame-ancestors 'none'";
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (status, headers, text).into_response()
}
