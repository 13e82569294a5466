//! Where something is fetched from: an origin that the operator declared, by its name, or a URL of the world.

use http::Uri;

use super::FetchError;
use crate::limits::URL_BYTES_MAX;

/// `origin://photos/hill.jpg` or `https://example.org/hill.jpg`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A path below a declared origin, beginning with `/`, with its query.
    Origin {
        name: String,
        path: String,
    },
    Outside(Url),
    /// A URL of the world that its own reader asks for by the proxy: it is shown his cookies.
    Shown(Url),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Url {
    pub is_tls: bool,
    /// Without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// With the query.
    pub path: String,
}

impl Source {
    /// # Errors
    /// It is no URL that can be fetched.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        let Some(rest) = text.strip_prefix("origin://") else { return Url::parse(text).map(Self::Outside) };
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = format!("/{path}");
        check(&path)?;
        Ok(Self::Origin { name: name.to_owned(), path })
    }
}

/// A path that can stand in a request as it is.
fn check(path: &str) -> Result<(), FetchError> {
    let is_plain = path.len() <= URL_BYTES_MAX && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    is_plain.then_some(()).ok_or_else(|| bad("it is too long, or has characters that have to be encoded"))
}

fn bad(why: &str) -> FetchError {
    FetchError::BadUrl(why.to_owned())
}

impl Url {
    /// # Errors
    /// As [`Source::parse`].
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        let text = text.split('#').next().unwrap_or_default();
        if text.len() > URL_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        let uri: Uri = text.parse().map_err(|_| bad("it is no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("it begins with neither http:// nor https:// nor origin://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it has a user name"));
        }
        let host =
            authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        check(&path)?;
        Ok(Self { is_tls, host, port, path })
    }

    /// As `Host` has it.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.is_tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }

    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// What a `Location` of this URL's answer means.
    ///
    /// # Errors
    /// It is no URL that can be fetched.
    pub fn follow(&self, location: &str) -> Result<Self, FetchError> {
        let begin = format!("{}://{}", self.scheme(), self.authority());
        if location.contains("://") {
            return Self::parse(location);
        }
        if location.starts_with("//") {
            return Self::parse(&format!("{}:{location}", self.scheme()));
        }
        Self::parse(&format!(
            "{begin}{}",
            crate::link::resolve(&self.path, location).ok_or_else(|| bad("it leads nowhere"))?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let good = [
            ("http://example.org", "http example.org 80 /"),
            ("https://Example.ORG./a?b=c#d", "https example.org 443 /a?b=c"),
            ("http://[::1]:8080/x", "http ::1 8080 /x"),
            ("http://127.1/", "http 127.1 80 /"),
            ("http://example.org?x", "http example.org 80 /?x"),
        ];
        for (text, expected) in good {
            let url = Url::parse(text).unwrap();
            assert_eq!(format!("{} {} {} {}", url.scheme(), url.host, url.port, url.path), expected);
        }
        for text in [
            "",
            "ftp://a/",
            "file:///etc/passwd",
            "//a/b",
            "http://",
            "http://u:p@a/",
            "http://a b/",
            "http:///x",
            "gopher://a",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        let origin = Source::parse("origin://photos/a/b.jpg?x").unwrap();
        assert_eq!(origin, Source::Origin { name: "photos".into(), path: "/a/b.jpg?x".into() });
        assert!(Source::parse("origin://photos/a b").is_err() && Source::parse("origin://p/\r\nX: y").is_err());
    }

    #[test]
    fn redirects_are_followed_from_where_they_are() {
        let from = Url::parse("https://a.org:8443/x/y?q").unwrap();
        let follow = |location: &str| {
            from.follow(location).map(|url| format!("{}://{}{}", url.scheme(), url.authority(), url.path))
        };
        assert_eq!(follow("/z").unwrap(), "https://a.org:8443/z");
        assert_eq!(follow("z?w").unwrap(), "https://a.org:8443/x/z?w");
        assert_eq!(follow("../../../z").unwrap(), "https://a.org:8443/z");
        assert_eq!(follow("//b.org/z").unwrap(), "https://b.org/z");
        assert_eq!(follow("http://10.0.0.1/").unwrap(), "http://10.0.0.1/");
        assert!(follow("file:///etc/passwd").is_err());
    }
}
