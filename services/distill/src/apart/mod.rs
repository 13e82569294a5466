//! Others' sites by HTTPS, each under a host name of its own below one that the operator declares: `https://example.org` is
//! `https://s-example-org.d.example`. So browsers keep them apart as they are apart without us: scripts, storage and cookies of one are
//! nothing to another. Who may have them shows a password first (`door.rs`), and they lead where `fetch/` lets them.
//!
//! What browsers allow among names below one name, and not among strangers, is taken away here:
//! - Cookies that a site sets are `__Host-` ones, which browsers take for one host alone; no others are passed on to it. So none can set a
//!   cookie for a neighbour. `Domain` is dropped.
//! - To browsers neighbours are the same site (`SameSite`, `Sec-Fetch-Site`). What one has another asked for carries no cookies, but for a
//!   link that is followed, and says that it is of another site.
//! - `Origin-Agent-Cluster` keeps them from becoming one origin by `document.domain`; service workers are refused.

mod door;
#[cfg(test)]
mod tests;
mod wrong;

use ring::hmac;
use sdk::StartError;
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::fetch::Url;
use crate::limits::LABEL_BYTES_MAX;
use crate::proxy::Allowed;

pub use door::answer;

/// Before each name, so that none begins with `xn--`, which browsers would read as letters.
const BEGIN: &str = "s-";
/// Under which people say who they are. No site's name is without [`BEGIN`].
const ENTRANCE: &str = "enter";
/// What browsers bind to one host.
const BOUND: &str = "__Host-";

#[derive(Debug)]
pub(crate) struct Apart {
    /// Below which all names are.
    base: Url,
    allowed: Allowed,
    /// Seals passes.
    key: hmac::Key,
    wrong: wrong::Wrong,
}

impl Apart {
    /// # Errors
    /// It names no host, or nobody has a password.
    pub fn of(text: &str, allowed: Allowed) -> Result<Self, StartError> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let base = Url::parse(&whole).map_err(|error| StartError(format!("WILDCARD is {text:?}: {error}")))?;
        if base.path != "/" || labels(&base.host).is_none() && base.host != "localhost" {
            let why = "d.example is one, and https://d.example:8443";
            return Err(StartError(format!("WILDCARD is {text:?}, which is no host name alone; {why}")));
        }
        if !allowed.has_users() {
            return Err(StartError(
                "WILDCARD is set, and USERS is not: whoever comes would fetch what he likes by this cluster".into(),
            ));
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, allowed.secret().as_ref());
        Ok(Self { base, allowed, key, wrong: wrong::Wrong::default() })
    }

    /// The first part of a host name (as `Host` has it), if it is one below ours.
    fn label<'h>(&self, host: &'h str) -> Option<&'h str> {
        let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.contains(']') { host } else { name });
        let below = name.trim_end_matches('.').len().checked_sub(self.base.host.len() + 1)?;
        let (label, rest) = name.split_at_checked(below)?;
        let is_below = rest.strip_prefix('.')?.trim_end_matches('.').eq_ignore_ascii_case(&self.base.host);
        (is_below && !label.is_empty() && !label.contains('.')).then_some(label)
    }

    /// Whether a request with these headers is for a site below our name.
    pub fn is_for(&self, headers: &HeaderMap) -> bool {
        headers.get(header::HOST).and_then(|host| host.to_str().ok()).and_then(|host| self.label(host)).is_some()
    }

    /// The site that a name stands for. A name has one form alone.
    fn site(&self, label: &str) -> Option<String> {
        let label = label.to_ascii_lowercase();
        let coded = label.strip_prefix(BEGIN)?;
        let mut host = String::with_capacity(coded.len());
        let mut rest = coded.bytes().peekable();
        while let Some(byte) = rest.next() {
            host.push(match byte {
                b'-' if rest.next_if_eq(&b'-').is_some() => '-',
                b'-' => '.',
                other => char::from(other),
            });
        }
        (self.name(&host)? == label).then_some(host)
    }

    /// The name that stands for a site: dots are `-`, and dashes two of them. None: it has none, as it is too long, no name, or ours.
    fn name(&self, host: &str) -> Option<String> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let labels = labels(&host)?;
        let is_number = labels.last()?.bytes().all(|byte| byte.is_ascii_digit());
        let is_ours = host == self.base.host || host.strip_suffix(&self.base.host).is_some_and(|it| it.ends_with('.'));
        let name = format!("{BEGIN}{}", host.replace('-', "--").replace('.', "-"));
        (!is_number && !is_ours && name.len() <= LABEL_BYTES_MAX).then_some(name)
    }

    /// Scheme and host under which a URL's site is: `https://s-example-org.d.example`.
    pub fn begin(&self, url: &Url) -> Option<String> {
        let is_usual = url.is_tls && url.port == 443;
        let name = self.name(&url.host).filter(|_| is_usual)?;
        Some(format!("{}://{name}.{}", self.base.scheme(), self.base.authority()))
    }

    fn entrance(&self) -> String {
        format!("{}://{ENTRANCE}.{}", self.base.scheme(), self.base.authority())
    }

    /// What a link of a page by HTTPS has to be, if it names the host of another site, or of its own. What comes behind the host stays as
    /// it is, in HTML as in headers.
    pub fn link(&self, link: &str) -> Option<String> {
        let link = link.trim_matches(|c: char| c.is_ascii_whitespace());
        let begin = ["https://", "//"]
            .into_iter()
            .find(|begin| link.get(..begin.len()).is_some_and(|it| it.eq_ignore_ascii_case(begin)))?;
        let rest = &link[begin.len()..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, behind) = rest.split_at(end);
        let host = host.strip_suffix(":443").unwrap_or(host);
        let url = Url { is_tls: true, host: host.to_owned(), port: 443, path: "/".to_owned() };
        Some(format!("{}{behind}", self.begin(&url)?))
    }

    /// The other way: what a URL below our name means at its site.
    fn meant(&self, link: &str) -> Option<String> {
        let rest = link.strip_prefix(self.base.scheme())?.strip_prefix("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, behind) = rest.split_at(end);
        Some(format!("https://{}{behind}", self.site(self.label(host)?)?))
    }

    /// What the site is to see of a request, in place of what the browser says.
    fn inward(&self, headers: &mut HeaderMap, method: &Method) {
        let said = |name: &str| headers.get(name).map(|value| value.as_bytes().to_ascii_lowercase());
        let is_neighbour = said("sec-fetch-site").is_some_and(|site| site == b"same-site");
        let is_followed = method.is_safe() && said("sec-fetch-mode").is_none_or(|mode| mode == b"navigate");
        let mut cookies = bound_cookies(headers);
        if is_neighbour {
            headers.insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
            if !is_followed {
                cookies.clear();
            }
        }
        headers.remove(header::COOKIE);
        if let Some(cookies) = HeaderValue::from_str(&cookies).ok().filter(|cookies| !cookies.is_empty()) {
            headers.insert(header::COOKIE, cookies);
        }
        for name in [header::ORIGIN, header::REFERER] {
            let Some(value) = headers.remove(&name) else { continue };
            let meant = value.to_str().ok().and_then(|value| self.meant(value));
            // Who asks from elsewhere is a stranger there, and `null` says so.
            let null = || (name == header::ORIGIN).then(|| "null".to_owned());
            if let Some(meant) = meant.or_else(null).and_then(|meant| HeaderValue::from_str(&meant).ok()) {
                headers.insert(name, meant);
            }
        }
        // Whose reader this is, and how he comes here, is nothing to others' sites.
        let own: Vec<HeaderName> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-forwarded") || *name == header::FORWARDED)
            .cloned()
            .collect();
        for name in own {
            headers.remove(name);
        }
    }

    /// What the browser is to see of the answer of a site.
    pub fn outward(&self, headers: &mut HeaderMap, from: &Url) {
        const OF_THEIR_HOST: [&str; 10] = [
            "strict-transport-security",
            "public-key-pins",
            "expect-ct",
            "alt-svc",
            "clear-site-data",
            "service-worker-allowed",
            "report-to",
            "reporting-endpoints",
            "nel",
            "link",
        ];
        for name in OF_THEIR_HOST {
            headers.remove(name);
        }
        headers.remove(header::CONTENT_LOCATION);
        let set: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().filter_map(bound).collect();
        headers.remove(header::SET_COOKIE);
        for cookie in set {
            headers.append(header::SET_COOKIE, cookie);
        }
        self.change(headers, header::LOCATION, |to| {
            let to = from.follow(to).ok()?;
            Some(match self.begin(&to) {
                Some(begin) => format!("{begin}{}", to.path),
                None => format!("{}://{}{}", to.scheme(), to.authority(), to.path),
            })
        });
        self.change(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, |origin| self.link(origin));
        for name in [header::CONTENT_SECURITY_POLICY, header::CONTENT_SECURITY_POLICY_REPORT_ONLY] {
            let all: Vec<HeaderValue> = headers.get_all(&name).iter().filter_map(|it| self.policy(it)).collect();
            headers.remove(&name);
            for policy in all {
                headers.append(name.clone(), policy);
            }
        }
        // No cache before the door gives it to who has not shown his pass.
        self.change(headers, header::CACHE_CONTROL, |control| {
            let kept = control.split(',').map(str::trim).filter(|word| {
                let name = word.split('=').next().unwrap_or_default().trim();
                !["public", "private", "s-maxage"].iter().any(|it| name.eq_ignore_ascii_case(it))
            });
            Some(std::iter::once("private").chain(kept).collect::<Vec<_>>().join(", "))
        });
        headers.insert("origin-agent-cluster", HeaderValue::from_static("?1"));
    }

    fn change(&self, headers: &mut HeaderMap, name: HeaderName, into: impl FnOnce(&str) -> Option<String>) {
        let changed = headers.get(&name).and_then(|value| into(value.to_str().ok()?));
        if let Some(changed) = changed.and_then(|changed| HeaderValue::from_str(&changed).ok()) {
            headers.insert(name, changed);
        }
    }

    /// A policy, with hosts under their names here. A source that is a pattern fits nothing here, so it allows nothing.
    fn policy(&self, policy: &HeaderValue) -> Option<HeaderValue> {
        let source = |word: &str| {
            let whole = if word.contains("://") { word.to_owned() } else { format!("https://{word}") };
            let is_host = word.contains('.') && !word.contains('\'');
            is_host.then(|| self.link(&whole)).flatten().unwrap_or_else(|| word.to_owned())
        };
        let words =
            policy.to_str().ok()?.split(';').map(|part| part.split(' ').map(source).collect::<Vec<_>>().join(" "));
        HeaderValue::from_str(&words.collect::<Vec<_>>().join(";")).ok()
    }
}

/// The parts of a host name, of two at least; None if it is none that DNS has.
fn labels(host: &str) -> Option<Vec<&str>> {
    let labels: Vec<&str> = host.split('.').collect();
    let is_good = |label: &&str| {
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_plain && (1..=LABEL_BYTES_MAX).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    (labels.len() > 1 && labels.iter().all(is_good)).then_some(labels)
}

/// The cookies of one host alone, as its site named them.
fn bound_cookies(headers: &HeaderMap) -> String {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().strip_prefix(BOUND));
    pairs.filter(|pair| pair.split('=').next().is_some_and(|name| !name.is_empty())).collect::<Vec<_>>().join("; ")
}

/// A cookie that a site sets, for its own host alone.
fn bound(cookie: &HeaderValue) -> Option<HeaderValue> {
    let mut parts = cookie.to_str().ok()?.split(';').map(str::trim);
    let (name, value) = parts.next()?.split_once('=')?;
    let name = name.trim();
    if name.is_empty() {
        return None;
    }
    let kept = parts.filter(|part| {
        let attribute = part.split('=').next().unwrap_or_default().trim();
        ["expires", "max-age", "httponly", "samesite"].iter().any(|it| attribute.eq_ignore_ascii_case(it))
    });
    let kept: String = kept.map(|part| format!("; {part}")).collect();
    HeaderValue::from_str(&format!("{BOUND}{name}={value}; Path=/; Secure{kept}")).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
