//! What the operator says, in the service's `env`. Each mistake is named with its variable, and the clone does not start.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::hmac;
use sdk::StartError;

use crate::apart::Apart;
use crate::fetch::{Source, Url};
use crate::imgproxy::Pair;
use crate::proxy::Allowed;

/// Whose URLs are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Urls {
    #[default]
    Imgproxy,
    Thumbor,
    Weserv,
}

pub type Presets = BTreeMap<String, Vec<String>>;

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `SERVE=site`: this is the demo's site, below the path `BASE`.
    pub site_at: Option<String>,
    /// `SERVE=proxy`: it is its readers' proxy, at a TCP door.
    pub proxy: Option<Allowed>,
    /// `WILDCARD`: others' sites by HTTPS, each below this name, for `USERS`.
    pub apart: Option<Arc<Apart>>,
    /// `SITE`: the origin before which it stands.
    pub site: Option<String>,
    /// `ORIGINS`: by name, where each is, in the order in which it is tried.
    pub origins: BTreeMap<String, Vec<Url>>,
    /// `SOURCES`: beginnings of URLs of the world that may be fetched for who shows no signature.
    pub sources: Vec<String>,
    pub urls: Urls,
    /// `KEY` and `SALT`.
    pub keys: Vec<Pair>,
    /// `KEY`, of thumbor's URLs.
    pub thumbor_keys: Vec<hmac::Key>,
    pub presets: Presets,
    /// `WATERMARK`: where that of URLs is that name none: a source, or `file://` and a path on each node.
    pub watermark: Option<String>,
}

impl Settings {
    /// Then only what is signed is read, and may name any public source.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty() || !self.thumbor_keys.is_empty()
    }

    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, StartError> {
        let vars: BTreeMap<String, String> = vars.into_iter().collect();
        let has = |name: &str| vars.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let list = |name: &str| {
            has(name).into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty())
        };
        let mut settings = Self {
            site: has("SITE").map(str::to_owned),
            sources: list("SOURCES").map(str::to_owned).collect(),
            ..Self::default()
        };
        match has("SERVE") {
            None | Some("distill") => (),
            Some("site") => settings.site_at = Some(has("BASE").unwrap_or("/").to_owned()),
            Some("proxy") => settings.proxy = Some(Allowed::of(list("CLIENTS"), list("USERS"))?),
            Some(other) => {
                return Err(StartError(format!("SERVE is {other:?}; it is \"distill\", \"proxy\" or \"site\"")));
            }
        }
        if let Some(base) = has("WILDCARD") {
            if settings.proxy.is_some() || settings.site_at.is_some() {
                return Err(StartError("WILDCARD is set, and SERVE is something else than \"distill\"".into()));
            }
            settings.apart = Some(Arc::new(Apart::of(base, Allowed::of([].into_iter(), list("USERS"))?)?));
        }
        let odd = |name: &str, is_used: bool| has(name).is_some() && !is_used;
        if odd("CLIENTS", settings.proxy.is_some()) {
            return Err(StartError("CLIENTS is set, and SERVE is not \"proxy\", which alone has some".into()));
        }
        if odd("USERS", settings.proxy.is_some() || settings.apart.is_some()) {
            return Err(StartError("USERS is set, and neither SERVE is \"proxy\" nor is there a WILDCARD".into()));
        }
        settings.watermark = has("WATERMARK").map(str::to_owned);
        if let Some(at) = settings.watermark.as_ref().filter(|at| !at.starts_with("file:///")) {
            let wrong = |error| StartError(format!("WATERMARK is {at:?}: {error}; or it is file:///PATH"));
            Source::parse(at).map_err(wrong)?;
        }
        for part in list("ORIGINS") {
            let wrong = |why: &str| {
                StartError(format!("ORIGINS has {part:?}, which {why}: photos=http://10.0.0.5:8000/path is one"))
            };
            let (name, at) = part.split_once('=').ok_or_else(|| wrong("is no name with a URL"))?;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
                return Err(wrong("has a name with other characters than letters, digits, - and _"));
            }
            let urls = at.split('|').map(|url| Url::parse(url).map_err(|e| wrong(&format!("is not right ({e})"))));
            settings.origins.insert(name.to_owned(), urls.collect::<Result<_, _>>()?);
        }
        if let Some(site) = settings.site.as_ref().filter(|site| !settings.origins.contains_key(*site)) {
            return Err(StartError(format!("SITE is {site:?}, which ORIGINS does not name")));
        }
        settings.urls = match has("URLS") {
            None | Some("imgproxy") => Urls::Imgproxy,
            Some("thumbor") => Urls::Thumbor,
            Some("weserv") => Urls::Weserv,
            Some(other) => {
                return Err(StartError(format!("URLS is {other:?}; it is \"imgproxy\", \"thumbor\" or \"weserv\"")));
            }
        };
        let not_with = |name: &str, why: &str| match has(name) {
            Some(_) => Err(StartError(format!("{name} is set, and URLS is {:?}: {why}", settings.urls))),
            None => Ok(()),
        };
        if settings.urls == Urls::Thumbor {
            not_with("SALT", "a key of thumbor has none")?;
            let key = |text: &str| hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
            settings.thumbor_keys = list("KEY").map(key).collect();
        }
        if settings.urls == Urls::Weserv {
            not_with("KEY", "its URLs have no signature")?;
            not_with("SITE", "its pictures are at the path /, where the site's first page is")?;
        }
        if settings.urls != Urls::Imgproxy {
            not_with("PRESETS", "presets are imgproxy's")?;
            return Ok(settings);
        }
        let hex = |name: &str| {
            let wrong = |text: &str| {
                StartError(format!("{name} has {} characters that are not bytes in hexadecimal", text.len()))
            };
            list(name).map(|text| unhex(text).ok_or_else(|| wrong(text))).collect::<Result<Vec<_>, _>>()
        };
        let (keys, salts) = (hex("KEY")?, hex("SALT")?);
        if keys.len() != salts.len() {
            return Err(StartError(format!(
                "KEY has {} values and SALT {}: there is one of each",
                keys.len(),
                salts.len()
            )));
        }
        settings.keys =
            keys.iter().zip(salts).map(|(key, salt)| (hmac::Key::new(hmac::HMAC_SHA256, key), salt)).collect();
        for part in list("PRESETS") {
            let (name, options) = part
                .split_once('=')
                .ok_or_else(|| StartError(format!("PRESETS has {part:?}; thumb=rs:fit:200:200/q:40 is one")))?;
            settings.presets.insert(name.to_owned(), options.split('/').map(str::to_owned).collect());
        }
        Ok(settings)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Result<Settings, StartError> {
        Settings::from_vars(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let settings = of(&[
            ("SITE", "photos"),
            ("ORIGINS", "photos=http://10.0.0.1:8000/base|http://10.0.0.2:8000/base, cdn=https://cdn.example.org"),
            ("KEY", "736563726574,00"),
            ("SALT", "68656C6C6F,01"),
            ("PRESETS", "thumb=rs:fit:200:200/q:40"),
        ])
        .unwrap();
        assert_eq!(
            settings.origins["photos"].iter().map(|u| u.host.as_str()).collect::<Vec<_>>(),
            ["10.0.0.1", "10.0.0.2"]
        );
        assert_eq!((settings.keys.len(), &settings.keys[0].1[..]), (2, &b"hello"[..]));
        assert_eq!(settings.presets["thumb"], ["rs:fit:200:200", "q:40"]);
        for (vars, named) in [
            (vec![("SITE", "photos")], "SITE is \"photos\", which ORIGINS does not name"),
            (vec![("ORIGINS", "photos")], "ORIGINS has \"photos\""),
            (vec![("ORIGINS", "a b=http://x")], "ORIGINS has"),
            (vec![("ORIGINS", "a=ftp://x")], "neither http:// nor https://"),
            (vec![("KEY", "00")], "KEY has 1 values and SALT 0"),
            (vec![("KEY", "xyz"), ("SALT", "00")], "KEY has 3 characters that are not bytes"),
            (vec![("WATERMARK", "logo.png")], "WATERMARK is \"logo.png\""),
            (vec![("URLS", "other")], "URLS is \"other\""),
            (vec![("URLS", "weserv"), ("KEY", "00")], "KEY is set, and URLS is Weserv"),
            (vec![("URLS", "thumbor"), ("SALT", "00")], "SALT is set"),
            (vec![("USERS", "ann:sesame")], "USERS is set, and neither"),
            (vec![("CLIENTS", "10.0.0.1")], "CLIENTS is set"),
            (vec![("WILDCARD", "d.example")], "USERS is not"),
            (vec![("WILDCARD", "https://d.example/x"), ("USERS", "ann:sesame")], "WILDCARD is \"https://d.example/x\""),
            (vec![("WILDCARD", "d.example"), ("USERS", "ann:sesame"), ("SERVE", "proxy")], "something else"),
            (vec![("SERVE", "soup")], "SERVE is \"soup\""),
            (vec![("PRESETS", "thumb")], "PRESETS has \"thumb\""),
        ] {
            let told = of(&vars).unwrap_err().to_string();
            assert!(told.contains(named), "{told}");
        }
        assert_eq!(of(&[("URLS", "thumbor"), ("KEY", "a,b")]).unwrap().thumbor_keys.len(), 2);
        assert!(!of(&[("KEY", "secretsecret"), ("SALT", "00")]).unwrap_err().to_string().contains("secret"));
    }
}
