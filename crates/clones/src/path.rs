//! One path has many spellings, and programs differ in which they take for the same: some undo `%2F`, some go up at `..`, some
//! make one slash of two. A partition must not be entered, or evaded, by a spelling that the program then reads otherwise. So
//! requests are matched by the spelling that RFC 3986 calls equivalent ([`canonical`]); and where readings lead to different
//! places, the request is to be refused ([`is_clear`]). Most paths have one reading.

use std::borrow::Cow;

/// Undoes escapes that mean nothing: of visible ASCII characters that divide nothing. Those that stay are in capitals.
pub fn canonical(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return path.into();
    }
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        let escape = rest.get(at..at + 3);
        match escape.and_then(unescaped) {
            Some(byte) if byte.is_ascii_graphic() && !b"/\\%;?#".contains(&byte) => plain.push(byte.into()),
            Some(_) => plain.extend(escape.map(str::to_ascii_uppercase)),
            None => {
                plain.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        }
        rest = &rest[at + 3..];
    }
    (plain + rest).into()
}

/// The byte that `%XX` stands for.
fn unescaped(escape: &str) -> Option<u8> {
    let digits = escape.strip_prefix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// Said of a path that is not clear.
pub const UNCLEAR: &str = "programs could read the request's path in ways that lead to different places; it is sent without dot \
                           segments, double slashes and escaped slashes";

/// Whether `find` gives the same for all ways in which programs may read this canonical path.
pub fn is_clear<T: PartialEq>(path: &str, mut find: impl FnMut(&str) -> T) -> bool {
    if is_plain(path) {
        return true;
    }
    let as_written = find(path);
    let undone = undone(path);
    let mut seen = vec![path.to_owned()];
    for path in [path, &undone] {
        for merges in [false, true] {
            for goes_up in [false, true] {
                let merged = if merges { merged(path) } else { path.to_owned() };
                let reading = if goes_up { resolved(&merged) } else { merged };
                if !seen.contains(&reading) {
                    if find(&reading) != as_written {
                        return false;
                    }
                    seen.push(reading);
                }
            }
        }
    }
    true
}

/// There is one reading.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let divides = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    !bytes.contains(&b'\\') && !bytes.contains(&b'%') && !bytes.windows(2).any(divides)
}

/// Escapes of characters that divide a path undone, however often escaped, and backslashes taken for slashes.
fn undone(path: &str) -> String {
    let mut path = path.replace('\\', "/");
    for (escape, divider) in [("%25", "%"), ("%2F", "/"), ("%5C", "/"), ("%3B", ";")] {
        let mut before = usize::MAX;
        // Each round makes it shorter; `%2525` is `%25` after the first.
        while path.len() < before {
            before = path.len();
            path = path.replace(escape, divider);
            if escape == "%25" {
                path = canonical(&path).into_owned();
            }
        }
    }
    path
}

/// One slash for several.
fn merged(path: &str) -> String {
    let mut before = ' ';
    let keep = |c: &char| {
        let twice = *c == '/' && before == '/';
        before = *c;
        !twice
    };
    path.chars().filter(keep).collect()
}

/// Without dot segments (RFC 3986 5.2.4); `..;x` is one for some.
fn resolved(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        is_folder = matches!(name, "." | "..");
        match name {
            "." => (),
            ".." => _ = kept.pop(),
            _ => kept.push(segment),
        }
    }
    let end = if is_folder && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_that_mean_nothing_are_undone_and_others_stay() {
        for (path, plain) in [
            ("/pay", "/pay"),
            ("/%70a%79", "/pay"),
            ("/a%2eb%7e", "/a.b~"),
            ("/u%40x", "/u@x"),
            ("/a%2fb%5c%25%3b%3f", "/a%2Fb%5C%25%3B%3F"),
            ("/caf%c3%a9%20", "/caf%C3%A9%20"),
            ("/%", "/%"),
            ("/%2", "/%2"),
            ("/%zz%70", "/%zzp"),
            ("/%+1", "/%+1"),
            ("/%é1", "/%é1"),
        ] {
            assert_eq!(canonical(path), plain, "{path}");
        }
    }

    /// As partitions with these paths would take it.
    fn place(path: &str) -> &'static str {
        let below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        ["/pay", "/search"].into_iter().find(|prefix| below(prefix)).unwrap_or("rest")
    }

    fn clear(path: &str) -> bool {
        is_clear(&canonical(path), place)
    }

    #[test]
    fn a_path_that_may_lead_elsewhere_is_not_clear() {
        for path in [
            "/pay/../search",
            "/search/../pay",
            "/pay/%2e%2e/search",
            "/pay/%2E./search",
            "/pay%2f..%2fsearch",
            "/pay/..%2fsearch",
            "/pay%5c..%5csearch",
            "/pay\\..\\search",
            "/pay/..;x=1/search",
            "/pay/..%3b/search",
            "/pay/%252e%252e/search",
            "/pay%25252f..%25252fsearch",
            "/pay/a/../../search",
            "/pay//../search",
            "/pay/..//search",
            "/./pay",
            "/../pay",
            "//pay",
            "/pay/..",
            "/pay%2fx",
            "/search%2fx",
            "/a/..%2f%70ay",
        ] {
            assert!(!clear(path), "{path}");
        }
    }

    #[test]
    fn a_path_that_leads_to_one_place_is_clear_however_odd() {
        for path in [
            "/",
            "/pay",
            "/pay/",
            "/pay/x",
            "/%70ay",
            "/pay/a%2fb",
            "/pay/a//b",
            "/pay/./x",
            "/pay/a/../b",
            "/projects/group%2Fname",
            "/search/%20%C3%A9%25",
            "/search/http://example.com/a",
            "/.well-known/x",
            "/a/.b/..c/...",
            "/pays/..x",
            "/pay;jsessionid=1",
            "*",
            "",
        ] {
            assert!(clear(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(path: String) {
            let plain = canonical(&path);
            prop_assert_eq!(canonical(&plain).len(), plain.len());
            clear(&path);
        }

        #[test]
        fn what_a_normalising_program_reads_is_what_was_matched(
            parts in prop::collection::vec(prop::sample::select(vec![
                "/", "/", "pay", "search", "..", ".", "%2f", "%2e", "%2E%2e", "%5c", "\\", "%70ay", ";x", "%25", "2e", "a",
            ]), 0..9),
        ) {
            let path = format!("/{}", parts.concat());
            let whole = canonical(&path);
            if is_clear(&whole, place) {
                let mut read = undone(&whole);
                prop_assert_eq!(place(&resolved(&merged(&read))), place(&whole));
                read = resolved(&whole);
                prop_assert_eq!(place(&read), place(&whole));
            }
        }
    }
}
