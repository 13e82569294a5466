//! Links of pages and redirects: what a relative one means (RFC 3986, 5.2), for paths of one host.

/// The path that `link` means on a page of this path (with or without a query). None for links that leave the host or name no
/// path: with a scheme, with a host, or with only a fragment.
pub fn resolve(page: &str, link: &str) -> Option<String> {
    let link = link.trim_matches(|c: char| c.is_ascii_whitespace()).split('#').next()?;
    let page = page.split(['?', '#']).next().unwrap_or_default();
    if link.is_empty() || link.starts_with("//") || link.starts_with('\\') || has_scheme(link) {
        return None;
    }
    if let Some(query) = link.strip_prefix('?') {
        return Some(format!("{page}?{query}"));
    }
    let (path, query) = link.split_once('?').map_or((link, None), |(path, query)| (path, Some(query)));
    let folder = &page[..page.rfind('/').map_or(0, |at| at + 1)];
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{folder}{path}") };
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = whole.split('/').skip(1).peekable();
    while let Some(part) = rest.next() {
        let is_last = rest.peek().is_none();
        match part {
            "." | "%2e" | "%2E" if is_last => parts.push(""),
            "." | "%2e" | "%2E" => (),
            ".." => {
                parts.pop();
                if is_last {
                    parts.push("");
                }
            }
            part => parts.push(part),
        }
    }
    // Two slashes at the start would name a host.
    let path = format!("/{}", parts.join("/").trim_start_matches('/'));
    Some(query.map_or(path.clone(), |query| format!("{path}?{query}")))
}

fn has_scheme(link: &str) -> bool {
    link.split_once(':').is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']))
}

/// The path of a link that names this very host, with or without its scheme.
pub fn own<'a>(link: &'a str, host: &str) -> &'a str {
    let link = link.trim_matches(|c: char| c.is_ascii_whitespace());
    let rest = ["http://", "https://", "//"].iter().find_map(|begin| link.strip_prefix(begin));
    match rest.and_then(|rest| rest.strip_prefix(host)) {
        Some(path) if path.starts_with('/') && !host.is_empty() => path,
        _ => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_mean_what_rfc_3986_says() {
        let cases = [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("g#s", "/b/c/g"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g?y/../x", "/b/c/g?y/../x"),
            (" g ", "/b/c/g"),
            ("/.//x.org/", "/x.org/"),
        ];
        for (link, expected) in cases {
            assert_eq!(resolve("/b/c/d;p?q", link).as_deref(), Some(expected), "{link}");
        }
        for link in ["", "#s", "//g", "data:image/png;base64,AA", "http://g/", "javascript:alert(1)", "\\\\g"] {
            assert_eq!(resolve("/b/c/d;p?q", link), None, "{link}");
        }
        assert_eq!(own("https://a.org:1/x", "a.org:1"), "/x");
        assert_eq!(own("//a.org.evil/x", "a.org"), "//a.org.evil/x");
    }
}
