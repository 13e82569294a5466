//! Session cookies: only what was sealed opens, and it opens to what was sealed.

use base::NodeId;
use base::checksum::Checksum;
use state::session::cookie::Sealer;
use state::session::{Cookie, CookieSecret, Version};

use crate::memory::bounded;

pub const WORDS: &[&[u8]] = &[
    b"AQAAAAAHAgAAAAAAAAChAAAAAAAAALIAAAAAAAAAAAGLz-VoAAAAAAUAAAAAAAAAoQGLz-6PwN6tvu_MF_f2GxmoxSKXZZzWb6so",
    b"=",
    b"==",
    b"-",
    b"_",
    b"+",
    b"/",
    b"%3D",
    b";",
    b"\"",
];

/// The session that the cookies are of.
const OF: &[u8] = b"user-1";

/// Takes the bytes for a cookie's text, and for the numbers of a cookie of ours.
pub fn open(data: &[u8]) -> bool {
    let sealer = Sealer::new(&CookieSecret::new(7, [9; 32]));
    let text = String::from_utf8_lossy(data);
    let opened = bounded(text.len(), 3, || sealer.open(&text, OF, 0));
    if let Ok(cookie) = &opened {
        assert_eq!(sealer.seal(cookie, OF, 0), text, "another text for the same cookie");
    }
    let cookie = cookie_of(data);
    let sealed = sealer.seal(&cookie, OF, 0);
    assert!(sealed.len() <= 128);
    assert_eq!(sealer.open(&sealed, OF, cookie.lease_end_ms - 1), Ok(cookie.clone()));
    assert!(sealer.open(&sealed, OF, cookie.lease_end_ms).is_err(), "it has ended");
    assert!(sealer.open(&sealed, b"user-2", 0).is_err(), "of another session");
    assert!(Sealer::new(&CookieSecret::new(8, [9; 32])).open(&sealed, OF, 0).is_err(), "of another namespace");
    // One letter of it changed, by the bytes' choice.
    let at = data.iter().fold(0usize, |sum, b| sum.wrapping_mul(31).wrapping_add(usize::from(*b))) % sealed.len();
    let letter = data.last().map_or(b'A', |b| b"ABab01-_+/=. ;"[usize::from(*b) % 14]);
    let mut changed = sealed.clone().into_bytes();
    let differs = changed[at] != letter;
    changed[at] = letter;
    let changed = String::from_utf8(changed).expect("letters are ASCII");
    assert_eq!(sealer.open(&changed, OF, 0).is_err(), differs, "{changed} for {sealed}");
    opened.is_ok()
}

fn cookie_of(data: &[u8]) -> Cookie {
    let number = |nth: usize| {
        let bytes = data.iter().skip(nth * 8).take(8);
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    const U48_MAX: u64 = (1 << 48) - 1;
    Cookie {
        bricks: (0..number(0) as usize % 3 + 1).map(|n| NodeId(number(n + 1))).collect(),
        version: Version { ms: number(4) & U48_MAX, counter: number(5) as u32, node: NodeId(number(6)) },
        lease_end_ms: (number(7) & U48_MAX).max(1),
        sum: Checksum(number(8) as u32),
    }
}
