//! Certificates that come by themselves, as they are declared: `[certificate.NAME]`. What asks for them is the program's
//! (`coppice/src/acme.rs`).

use serde::{Deserialize, Serialize};

use crate::limits::{CERTIFICATE_CA_BYTES_MAX, CERTIFICATE_CONTACTS_MAX, CERTIFICATE_NAMES_MAX, HOST_BYTES_MAX};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateSpec {
    /// Host names that it is for, in lower case.
    pub names: Vec<String>,
    /// URL of the directory of who signs it (RFC 8555 7.1.1).
    pub directory: String,
    /// Where that one writes to if something is wrong: `mailto:` and an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contact: Vec<String>,
    /// The terms of service of the directory are agreed to. Nothing is asked for without.
    #[serde(default)]
    pub agree: bool,
    /// Certificates, PEM, that the directory's own is signed by; none: the system's roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// How it is shown that the names are ours; none: each way in turn, until the directory believes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
}

/// A way to show a directory that names are ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Challenge {
    /// RFC 8555 8.3: at port 80.
    #[serde(rename = "http-01")]
    Http01,
    /// RFC 8737: at port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

impl Challenge {
    /// Those of RFC 8555, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::Http01, Self::TlsAlpn01];

    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

const KEYS: [&str; 6] = ["names", "directory", "contact", "agree", "ca", "challenge"];

impl CertificateSpec {
    /// Reads the stored form; what a newer version wrote is skipped.
    pub fn from_stored(mut value: serde_json::Value) -> Option<Self> {
        crate::spec::keep_known(&mut value, &KEYS);
        serde_json::from_value(value).ok()
    }

    /// What only programs of a newer level than certificates read, and that level.
    pub fn newer_key(&self) -> Option<(&'static str, u32)> {
        self.challenge.map(|_| ("challenge", crate::LEVEL_CHALLENGES))
    }

    /// The first mistake: the key, and what would be right.
    pub fn mistake(&self) -> Option<(String, String)> {
        let wrong = |key: &str, why: String| Some((key.to_owned(), why));
        if self.names.is_empty() || self.names.len() > CERTIFICATE_NAMES_MAX {
            return wrong("names", format!("1 to {CERTIFICATE_NAMES_MAX} host names, as [\"shop.example.org\"]"));
        }
        for (at, name) in self.names.iter().enumerate() {
            if let Some(why) = name_error(name) {
                return wrong("names", why);
            }
            if self.names[..at].contains(name) {
                return wrong("names", format!("{name:?} stands there twice"));
            }
        }
        let host =
            self.directory.strip_prefix("https://").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
        let is_url = |url: &str| url.bytes().all(|b| b.is_ascii_graphic());
        if !host.is_some_and(|host| !host.is_empty() && !host.contains('@')) || !is_url(&self.directory) {
            return wrong(
                "directory",
                "is the URL of an ACME directory, as \"https://acme-v02.api.letsencrypt.org/directory\"".into(),
            );
        }
        let is_mail = |contact: &&String| !contact.strip_prefix("mailto:").is_some_and(|mail| mail.contains('@'));
        if let Some(contact) = self.contact.iter().find(is_mail) {
            return wrong("contact", format!("{contact:?} is not like \"mailto:admin@example.org\""));
        }
        if self.contact.len() > CERTIFICATE_CONTACTS_MAX {
            return wrong("contact", format!("{CERTIFICATE_CONTACTS_MAX} are the most"));
        }
        if let Some(ca) = &self.ca
            && (!ca.contains("-----BEGIN CERTIFICATE-----") || ca.len() > CERTIFICATE_CA_BYTES_MAX)
        {
            return wrong("ca", format!("has certificates in PEM, {CERTIFICATE_CA_BYTES_MAX} bytes at most"));
        }
        if !self.agree {
            return wrong("agree", "agree = true says that you agree to the terms of service of the directory".into());
        }
        None
    }
}

/// Why a certificate for this name cannot be asked for over HTTP-01 or TLS-ALPN-01, if it cannot.
fn name_error(name: &str) -> Option<String> {
    if name.contains('*') {
        return Some(format!(
            "{name:?}: that a wildcard is yours cannot be shown over HTTP or TLS; set such a certificate with `coppice certificate set`"
        ));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let fits = name.len() <= HOST_BYTES_MAX && !is_address && name.split('.').all(label);
    (!fits).then(|| format!("{name:?} is not a host name in lower case (others than ASCII as xn--...)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "names = [\"shop.example.org\"]\ndirectory = \"https://ca.example/dir\"\nagree = true\n";

    #[test]
    fn what_cannot_be_asked_for_is_said_and_keys_are_known() {
        let mistake = |toml: &str| toml::from_str::<CertificateSpec>(toml).unwrap().mistake();
        assert_eq!(mistake(GOOD), None);
        let all = format!(
            "{GOOD}contact = [\"mailto:a@example.org\"]\nca = \"-----BEGIN CERTIFICATE-----\"\nchallenge = \"tls-alpn-01\"\n"
        );
        assert_eq!(mistake(&all), None);
        let value = serde_json::to_value(toml::from_str::<CertificateSpec>(&all).unwrap()).unwrap();
        let mut newer = value.clone();
        assert!(
            value.as_object().unwrap().keys().all(|key| KEYS.contains(&&**key))
                && value.as_object().unwrap().len() == 6
        );
        assert_eq!(newer["challenge"], Challenge::TlsAlpn01.name());
        newer["profile"] = "new".into();
        assert_eq!(CertificateSpec::from_stored(newer), CertificateSpec::from_stored(value));
        for (from, to, key, why) in [
            ("shop.example.org", "*.example.org", "names", "certificate set"),
            ("shop.example.org", "Shop.example.org", "names", "lower case"),
            ("shop.example.org", "10.0.0.1", "names", "host name"),
            ("shop.example.org", "a..b", "names", "host name"),
            ("[\"shop.example.org\"]", "[]", "names", "1 to 100"),
            ("[\"shop.example.org\"]", "[\"a.b\", \"a.b\"]", "names", "twice"),
            ("https://", "http://", "directory", "letsencrypt"),
            ("https://ca.example/dir", "https:///dir", "directory", "letsencrypt"),
            ("agree = true", "agree = false", "agree", "terms of service"),
            ("agree = true", "agree = true\ncontact = [\"me\"]", "contact", "mailto:"),
            ("agree = true", "agree = true\nca = \"x\"", "ca", "PEM"),
        ] {
            let (told, text) = mistake(&GOOD.replace(from, to)).unwrap();
            assert!(told == key && text.contains(why), "{to}: {told}: {text}");
        }
    }
}
