//! The edge-carried session of a service: the edge keeps a browser's cookie and the state behind it, the program gets
//! the value with each request and returns the new one. Here is what an operator declares of it, and its mistakes.

use serde::{Deserialize, Serialize};

use crate::partition::Priority;
use crate::spec::{ServiceSpec, SpecError, path_error};

/// In TOML: `session = { namespace = "carts", cookie = "sid" }`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionCookie {
    /// Where sessions are kept; one of the service's `namespaces`, of class `session`.
    pub namespace: String,
    /// Name of the browser's cookie.
    pub cookie: String,
    #[serde(default)]
    pub same_site: SameSite,
    #[serde(default)]
    pub secure: Secure,
    /// The cookie's path; the service's own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Largest value that the program may keep, bytes.
    #[serde(default = "max_bytes_default")]
    pub max_bytes: u32,
    /// Requests with a session that is there have at least this priority (SSM 7: those who are in go on working).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

/// Whether a browser sends the cookie with requests that other sites cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SameSite {
    /// Only when a person follows a link.
    #[default]
    Lax,
    Strict,
    /// Always; browsers take it with `Secure` alone.
    None,
}

/// Whether the cookie is for encrypted connections alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Secure {
    /// If the client came that way, as far as the edge knows; and where browsers demand it.
    #[default]
    Auto,
    Always,
    Never,
}

impl SessionCookie {
    pub fn new(namespace: &str, cookie: &str) -> Self {
        Self {
            namespace: namespace.into(),
            cookie: cookie.into(),
            same_site: SameSite::default(),
            secure: Secure::default(),
            path: None,
            max_bytes: max_bytes_default(),
            priority: None,
        }
    }

    /// Whether it bears the attribute, for a client that came over TLS or not.
    pub fn is_secure(&self, over_tls: bool) -> bool {
        match self.secure {
            Secure::Always => true,
            Secure::Never => false,
            Secure::Auto => over_tls || self.needs_secure(),
        }
    }

    /// Browsers drop such cookies if they are not `Secure`.
    fn needs_secure(&self) -> bool {
        self.same_site == SameSite::None || self.cookie.starts_with("__Host-") || self.cookie.starts_with("__Secure-")
    }

    /// All mistakes that can be seen in this service alone.
    pub(crate) fn validate(&self, service: &ServiceSpec) -> Vec<SpecError> {
        let mut errors = Vec::new();
        let mut wrong = |key: &str, why: String| errors.push(SpecError { key: format!("session.{key}"), why });
        if !service.namespaces.contains(&self.namespace) {
            let why = format!("{:?} is not among the service's namespaces; add it there", self.namespace);
            wrong("namespace", why);
        }
        let path = self.path.as_deref().or(service.http.as_ref().map(|http| http.path.as_str()));
        if service.http.is_none() {
            wrong("cookie", "a session's cookie needs an http route; add for example http = { path = \"/\" }".into());
        }
        if !is_token(&self.cookie) || self.cookie.len() > COOKIE_NAME_BYTES_MAX {
            wrong(
                "cookie",
                format!(
                    "{:?} is not a cookie's name: 1 to {COOKIE_NAME_BYTES_MAX} letters, digits and !#$%&'*+-.^_`|~",
                    self.cookie
                ),
            );
        }
        if let Some(why) = self.path.as_deref().and_then(path_error) {
            wrong("path", why);
        } else if self.path.as_deref().is_some_and(|path| path.contains([';', ','])) {
            wrong("path", "a cookie's path has no ; and no ,".into());
        }
        if self.cookie.starts_with("__Host-") && path.is_some_and(|path| path != "/") {
            wrong("path", "a cookie named __Host-... needs path = \"/\"".into());
        }
        if self.secure == Secure::Never && self.needs_secure() {
            let why = "browsers drop this cookie unless it is secure: __Host- and __Secure- names and same_site = \"none\" \
                       demand it; leave secure out";
            wrong("secure", why.into());
        }
        if self.max_bytes == 0 || self.max_bytes as usize > base::limits::SESSION_VALUE_BYTES_MAX {
            let max = base::limits::SESSION_VALUE_BYTES_MAX;
            wrong("max_bytes", format!("{} is not between 1 and {max}", self.max_bytes));
        }
        errors
    }
}

/// A token as RFC 9110 5.6.2 has it.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Browsers take 4096 bytes for name, value and attributes.
const COOKIE_NAME_BYTES_MAX: usize = 64;
/// What nearly every framework's sessions fit into; more is asked for.
fn max_bytes_default() -> u32 {
    64 << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HttpRoute;

    fn shop() -> ServiceSpec {
        ServiceSpec { http: Some(HttpRoute::default()), namespaces: vec!["carts".into()], ..ServiceSpec::new(["app"]) }
    }

    fn read(session: &str) -> Result<ServiceSpec, String> {
        let toml = format!("run = [\"app\"]\nhttp = {{}}\nnamespaces = [\"carts\"]\nsession = {session}");
        toml::from_str(&toml).map_err(|e| e.to_string())
    }

    #[test]
    fn the_shortest_has_safe_defaults_and_survives_being_kept() {
        let spec = read("{ namespace = \"carts\", cookie = \"sid\" }").unwrap();
        let session = spec.session.clone().unwrap();
        assert_eq!(session, SessionCookie::new("carts", "sid"));
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!((session.same_site, session.max_bytes), (SameSite::Lax, 65536));
        assert_eq!((session.is_secure(true), session.is_secure(false)), (true, false));
        assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
        let newer = String::from_utf8(spec.to_stored().to_vec()).unwrap().replace("\"cookie\"", "\"x\":1,\"cookie\"");
        assert_eq!(ServiceSpec::from_stored(newer.as_bytes()).unwrap(), spec, "a key of a newer version is skipped");
    }

    #[test]
    fn browsers_demands_are_met() {
        for (session, plain) in [
            ("{ namespace = \"carts\", cookie = \"__Host-sid\" }", true),
            ("{ namespace = \"carts\", cookie = \"sid\", same_site = \"none\" }", true),
            ("{ namespace = \"carts\", cookie = \"sid\", secure = \"always\" }", true),
            ("{ namespace = \"carts\", cookie = \"sid\", secure = \"never\", same_site = \"strict\" }", false),
        ] {
            let spec = read(session).unwrap();
            assert_eq!(spec.validate(), Ok(()), "{session}");
            assert_eq!(spec.session.unwrap().is_secure(false), plain, "{session}");
        }
    }

    #[test]
    fn each_mistake_names_its_key_and_what_is_right() {
        type Spoil = fn(&mut ServiceSpec, &mut SessionCookie);
        let cases: &[(Spoil, &str, &str)] = &[
            (|_, s| s.namespace = "cards".into(), "session.namespace", "among the service's namespaces"),
            (|s, _| s.namespaces.clear(), "session.namespace", "among the service's namespaces"),
            (|s, _| s.http = None, "session.cookie", "http = {"),
            (|_, s| s.cookie = "my cookie".into(), "session.cookie", "letters"),
            (|_, s| s.cookie = String::new(), "session.cookie", "letters"),
            (|_, s| s.cookie = "a=b".into(), "session.cookie", "letters"),
            (|_, s| s.path = Some("shop".into()), "session.path", "begin with /"),
            (|_, s| s.path = Some("/a;b".into()), "session.path", "no ;"),
            (
                |s, c| (s.http.as_mut().unwrap().path, c.cookie) = ("/shop".into(), "__Host-a".into()),
                "session.path",
                "\"/\"",
            ),
            (|_, s| (s.same_site, s.secure) = (SameSite::None, Secure::Never), "session.secure", "leave secure out"),
            (|_, s| s.max_bytes = 0, "session.max_bytes", "between 1 and 1048576"),
            (|_, s| s.max_bytes = 2 << 20, "session.max_bytes", "between 1 and 1048576"),
        ];
        for (spoil, key, hint) in cases {
            let (mut spec, mut session) = (shop(), SessionCookie::new("carts", "sid"));
            spoil(&mut spec, &mut session);
            spec.session = Some(session);
            let errors = spec.validate().unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].key, *key);
            assert!(errors[0].why.contains(hint), "{}", errors[0]);
        }
        for (wrong, hint) in [("same_site = \"loose\"", "lax"), ("secure = true", "secure"), ("max = 3", "max_bytes")] {
            let error = read(&format!("{{ namespace = \"carts\", cookie = \"sid\", {wrong} }}")).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
