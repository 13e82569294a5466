//! Paths that are between nodes and programs: nobody outside gets to them, however they are written. A program may
//! decode a path in its own way, or have a part of it taken off before it looks; so it is enough that one segment reads
//! as ours.

use std::borrow::Cow;

/// What our paths begin with ([`crate::functions::wire::PATH`]).
const OURS: &[u8] = b".coppice";

pub fn is_reserved(path: &str) -> bool {
    let path =
        if path.contains('%') { Cow::from(decoded(path).collect::<Vec<u8>>()) } else { Cow::from(path.as_bytes()) };
    path.split(|b| matches!(b, b'/' | b'\\')).any(is_ours)
}

/// Whether a segment is ours, or ours and something that some reader takes for its end.
fn is_ours(segment: &[u8]) -> bool {
    let Some((begin, rest)) = segment.split_at_checked(OURS.len()) else { return false };
    let goes_on = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    begin.eq_ignore_ascii_case(OURS) && !rest.first().is_some_and(goes_on)
}

/// Percent signs undone, also of percent signs.
fn decoded(path: &str) -> impl Iterator<Item = u8> + '_ {
    let mut rest = path.as_bytes();
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    std::iter::from_fn(move || {
        let (first, mut behind) = rest.split_first()?;
        let mut byte = *first;
        while byte == b'%'
            && let [high, low, more @ ..] = behind
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            (byte, behind) = (high << 4 | low, more);
        }
        rest = behind;
        Some(byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_paths_are_known_in_any_spelling() {
        for path in [
            crate::functions::wire::PATH,
            "/.coppice",
            "/.coppice/",
            "//.coppice/functions",
            "/./.coppice/functions",
            "/a/../.coppice/functions",
            "/shop/.coppice/functions",
            "/%2ecoppice/functions",
            "/%2Ecoppice%2ffunctions",
            "/.c%6fppice/functions",
            "/%252ecoppice/functions",
            "/.Coppice/functions",
            "/.coppice;x=1/functions",
            "/.coppice%00/functions",
            "/a\\.coppice/functions",
            "/a%2f.coppice/functions",
            "/a%2f..%2f%2ecoppice/functions",
        ] {
            assert!(is_reserved(path), "{path}");
        }
        for path in [
            "/",
            "",
            "/coppice",
            "/.well-known/x",
            "/.coppices",
            "/.coppice-docs/x",
            "/a.coppice",
            "/%",
            "/%2",
            "/%zz",
            "*",
        ] {
            assert!(!is_reserved(path), "{path}");
        }
    }
}
