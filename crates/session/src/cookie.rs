//! Cookies: what a client of cookie mode holds (SSM 3.1): who has its value, of which version, until when, the value's
//! checksum, and a keyed MAC where the paper has a plain checksum, as clients may change what they hold.

use std::fmt;

use base::NodeId;
use base::checksum::Checksum;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::Version;
use super::limits::BRICKS_ASKED;
use class::{CookieKey, CookieSecret};

/// What a cookie says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Who acknowledged the write, then who was still being asked; one to three.
    pub bricks: Vec<NodeId>,
    pub version: Version,
    /// When the lease ends, by the wall clock of the node that made it; milliseconds since 1970.
    pub lease_end_ms: u64,
    pub sum: Checksum,
}

/// Why a text is not a good cookie. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CookieError {
    /// Not a whole cookie: cut, or not ours at all.
    Truncated,
    /// Its MAC is wrong: it was changed, or shown with another session's key.
    Forged,
    /// Of another namespace or another cluster, or of a format that this version does not know.
    Foreign,
    /// Its lease has ended, or the key that sealed it was removed.
    Expired,
}

impl CookieError {
    pub const ALL: [CookieError; 4] = [Self::Truncated, Self::Forged, Self::Foreign, Self::Expired];

    /// For scripts: `forged`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Forged => "forged",
            Self::Foreign => "foreign",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the cookie is cut or no cookie",
            Self::Forged => "the cookie was changed",
            Self::Foreign => "the cookie is of another namespace or another cluster",
            Self::Expired => "the cookie has expired: its lease has ended, or the key that sealed it was removed",
        })
    }
}

/// What opening a cookie comes to, when it is not a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unopened {
    Bad(CookieError),
    /// It says that it was sealed with the key that comes after ours: a rotation that this node has not heard of yet.
    KeyToCome,
}

/// Seals and opens the cookies of one namespace.
#[derive(Clone)]
pub struct Sealer {
    realm: [u8; 4],
    /// Oldest first, never empty.
    keys: Vec<Ready>,
}

/// A key that is ready for use: the work that depends on it alone is done.
#[derive(Clone)]
struct Ready {
    id: u8,
    from_ms: u64,
    hmac: hmac::Key,
}

/// ```text
/// u8 format  u8 key id  u32 realm  u8 bricks  3 x u64 brick (unused: 0)
/// u48 version ms  u32 counter  u64 node  u48 lease end ms  u32 checksum  16 bytes MAC
/// ```
/// The MAC is over all before it and the session's key, so a cookie opens nothing but its own session.
const COOKIE_BYTES: usize = SIGNED_BYTES + MAC_BYTES;
const SIGNED_BYTES: usize = 1 + 1 + 4 + 1 + 8 * BRICKS_ASKED + 6 + 4 + 8 + 6 + 4;
/// HMAC-SHA256 cut to 16 bytes: nobody finds 128 bits by trying.
const MAC_BYTES: usize = 16;
const FORMAT: u8 = 1;
/// Length of a cookie's text.
pub const COOKIE_TEXT_BYTES: usize = COOKIE_BYTES.div_ceil(3) * 4;
const _: () = assert!(COOKIE_BYTES.is_multiple_of(3), "its text has no loose bits that could be changed unnoticed");
const _: () = assert!(COOKIE_TEXT_BYTES <= 128, "a cookie fits into 128 bytes of text");

impl Sealer {
    pub fn new(secret: &CookieSecret) -> Self {
        assert!(!secret.keys.is_empty(), "a namespace has a key from its birth");
        let ready = |key: &CookieKey| Ready {
            id: key.id,
            from_ms: key.from_ms,
            hmac: hmac::Key::new(hmac::HMAC_SHA256, &key.key),
        };
        Self { realm: secret.realm.to_be_bytes(), keys: secret.keys.iter().map(ready).collect() }
    }

    /// A cookie for the session of this key: at most 128 bytes of base64url.
    pub fn seal(&self, cookie: &Cookie, of: &[u8], wall_ms: u64) -> String {
        assert!((1..=BRICKS_ASKED).contains(&cookie.bricks.len()), "a cookie names one to three bricks");
        // Other nodes may not have heard of a key before its time.
        let key = self.keys.iter().rfind(|key| key.from_ms <= wall_ms).unwrap_or(&self.keys[0]);
        let mut bytes = Vec::with_capacity(COOKIE_BYTES);
        bytes.extend([FORMAT, key.id]);
        bytes.extend(self.realm);
        bytes.push(cookie.bricks.len() as u8);
        for i in 0..BRICKS_ASKED {
            bytes.extend(cookie.bricks.get(i).map_or(0, |node| node.0).to_be_bytes());
        }
        bytes.extend(&cookie.version.ms.to_be_bytes()[2..]);
        bytes.extend(cookie.version.counter.to_be_bytes());
        bytes.extend(cookie.version.node.0.to_be_bytes());
        bytes.extend(&cookie.lease_end_ms.to_be_bytes()[2..]);
        bytes.extend(cookie.sum.0.to_be_bytes());
        let mac = key.mac(&bytes, of);
        bytes.extend(&mac.as_ref()[..MAC_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Opens the cookie of the session with this key. Key id and realm are no secrets: they say which key was used, and
    /// so are looked at first. Whatever they say, one MAC is computed and compared, in time that does not depend on
    /// where it differs; nothing else of the cookie is looked at unless it is right.
    pub fn open(&self, text: &str, of: &[u8], wall_ms: u64) -> Result<Cookie, Unopened> {
        let mut bytes = [0; COOKIE_BYTES];
        let whole = text.len() == COOKIE_TEXT_BYTES
            && URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).is_ok_and(|len| len == COOKIE_BYTES);
        if !whole {
            return Err(Unopened::Bad(CookieError::Truncated));
        }
        let (signed, mac) = bytes.split_at(SIGNED_BYTES);
        let newest = &self.keys[self.keys.len() - 1];
        let (key_id, is_ours) = (signed[1], signed[2..6] == self.realm);
        let known = self.keys.iter().find(|key| key.id == key_id);
        let ours = known.unwrap_or(newest).mac(signed, of);
        let differs = std::hint::black_box(ours.as_ref().iter().zip(mac).fold(0, |sum, (a, b)| sum | (a ^ b)));
        if !is_ours {
            return Err(Unopened::Bad(CookieError::Foreign));
        }
        if known.is_none() {
            return Err(match newest.id.wrapping_sub(key_id) {
                u8::MAX => Unopened::KeyToCome,
                1..KEY_IDS_BEHIND => Unopened::Bad(CookieError::Expired),
                _ => Unopened::Bad(CookieError::Forged),
            });
        }
        if differs != 0 {
            return Err(Unopened::Bad(CookieError::Forged));
        }
        // Made by a newer node.
        if signed[0] != FORMAT {
            return Err(Unopened::Bad(CookieError::Foreign));
        }
        let mut rest = &signed[6..];
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at(n);
            rest = tail;
            head.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let count = take(1) as usize;
        let bricks: Vec<_> = [take(8), take(8), take(8)].into_iter().take(count).map(NodeId).collect();
        let version = Version { ms: take(6), counter: take(4) as u32, node: NodeId(take(8)) };
        let cookie = Cookie { bricks, version, lease_end_ms: take(6), sum: Checksum(take(4) as u32) };
        if cookie.lease_end_ms <= wall_ms {
            return Err(Unopened::Bad(CookieError::Expired));
        }
        Ok(cookie)
    }
}

impl Ready {
    fn mac(&self, signed: &[u8], of: &[u8]) -> hmac::Tag {
        let mut mac = hmac::Context::with_key(&self.hmac);
        mac.update(signed);
        mac.update(of);
        mac.sign()
    }
}

/// Ids count up and wrap; so many before the newest one count as those of removed keys.
const KEY_IDS_BEHIND: u8 = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use class::limits::{COOKIE_KEYS_MAX, ROTATE_LEAD};

    const NOW_MS: u64 = 1_700_000_000_000;

    fn cookie() -> Cookie {
        Cookie {
            bricks: vec![NodeId(0xa1), NodeId(0xb2)],
            version: Version { ms: NOW_MS, counter: 5, node: NodeId(0xa1) },
            lease_end_ms: NOW_MS + 600_000,
            sum: Checksum(0xdead_beef),
        }
    }

    fn secret() -> CookieSecret {
        CookieSecret::new(7, [9; 32])
    }

    fn sealer() -> Sealer {
        Sealer::new(&secret())
    }

    fn bad<T>(error: CookieError) -> Result<T, Unopened> {
        Err(Unopened::Bad(error))
    }

    #[test]
    fn a_cookie_has_these_bytes() {
        let text = sealer().seal(&cookie(), b"user-1", NOW_MS);
        assert_eq!(
            text,
            "AQAAAAAHAgAAAAAAAAChAAAAAAAAALIAAAAAAAAAAAGLz-VoAAAAAAUAAAAAAAAAoQGLz-6PwN6tvu_MF_f2GxmoxSKXZZzWb6so"
        );
        assert_eq!(text.len(), COOKIE_TEXT_BYTES);
        assert_eq!(sealer().open(&text, b"user-1", NOW_MS), Ok(cookie()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = URL_SAFE_NO_PAD.decode(sealer().seal(&cookie(), b"user-1", NOW_MS)).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = sealer().open(&URL_SAFE_NO_PAD.encode(changed), b"user-1", 0).unwrap_err();
            let expect = match bit {
                // The key's id: 1 comes after 0.
                8 => Unopened::KeyToCome,
                16..48 => Unopened::Bad(CookieError::Foreign),
                _ => Unopened::Bad(CookieError::Forged),
            };
            assert_eq!(error, expect, "bit {bit}");
        }
    }

    #[test]
    fn each_mistake_has_its_name() {
        let text = sealer().seal(&cookie(), b"user-1", NOW_MS);
        let open = |sealer: &Sealer, text: &str| sealer.open(text, b"user-1", 0);
        for cut in [&text[..50], "not base64!", "", &text[..99], &format!("{text}A"), &format!("{}=", &text[..99])] {
            assert_eq!(open(&sealer(), cut), bad(CookieError::Truncated), "{cut:?}");
        }
        assert_eq!(sealer().open(&text, b"user-1", NOW_MS + 600_000), bad(CookieError::Expired));
        assert_eq!(sealer().open(&text, b"user-2", 0), bad(CookieError::Forged));
        assert_eq!(open(&Sealer::new(&CookieSecret::new(8, [9; 32])), &text), bad(CookieError::Foreign));
        assert_eq!(open(&Sealer::new(&CookieSecret::new(7, [8; 32])), &text), bad(CookieError::Forged));
    }

    #[test]
    fn a_wrong_mac_says_nothing_of_the_rest() {
        // One that has expired and whose format is unknown, and of which the MAC is wrong, is forged and no more.
        let mut bytes = URL_SAFE_NO_PAD.decode(sealer().seal(&cookie(), b"user-1", NOW_MS)).unwrap();
        bytes[0] = 9;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(sealer().open(&text, b"user-1", u64::MAX), bad(CookieError::Forged));
    }

    #[test]
    fn keys_rotate_and_nobody_is_logged_out() {
        let hour = 3_600_000;
        let first = secret();
        let second = first.rotated([10; 32], NOW_MS, hour, false).unwrap();
        let third = second.rotated([11; 32], NOW_MS + hour / 2, hour, false).unwrap();
        let old = Sealer::new(&first).seal(&cookie(), b"u", NOW_MS);
        for secret in [&first, &second, &third] {
            assert_eq!(Sealer::new(secret).open(&old, b"u", NOW_MS), Ok(cookie()));
        }
        // The new key seals once every node has heard of it, and is known before.
        let sealer = Sealer::new(&second);
        let lead = ROTATE_LEAD.as_millis();
        assert_eq!(sealer.seal(&cookie(), b"u", NOW_MS + lead - 1), old);
        let new = sealer.seal(&cookie(), b"u", NOW_MS + lead);
        assert_ne!(new, old);
        assert_eq!(sealer.open(&new, b"u", NOW_MS), Ok(cookie()));
        assert_eq!(Sealer::new(&first).open(&new, b"u", NOW_MS), Err(Unopened::KeyToCome), "not heard of it yet");
        // A fourth key would push out one whose cookies may live.
        let why = third.rotated([12; 32], NOW_MS + hour, hour, false).unwrap_err();
        assert!(why.contains("--end-sessions") && why.contains("5s"), "{why}");
        let fourth = third.rotated([12; 32], NOW_MS + hour + lead, hour, false).unwrap();
        assert_eq!(fourth.keys.iter().map(|key| key.id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(Sealer::new(&fourth).open(&old, b"u", 0), bad(CookieError::Expired), "its key was removed");
        assert_eq!(Sealer::new(&fourth).open(&new, b"u", 0), Ok(cookie()));
        let ended = fourth.rotated([13; 32], NOW_MS, hour, true).unwrap();
        assert_eq!(ended.keys.len(), 1);
        assert_eq!(Sealer::new(&ended).open(&new, b"u", 0), bad(CookieError::Expired));
        assert!(second.rotated([14; 32], NOW_MS, hour, false).unwrap_err().contains("not in use yet"));
    }

    #[test]
    fn key_ids_wrap() {
        let mut now = secret();
        for round in 0..600u64 {
            let next = now.rotated([round as u8; 32], NOW_MS + round * 10_000, 1000, false).unwrap();
            let text = Sealer::new(&now).seal(&cookie(), b"u", NOW_MS + round * 10_000);
            assert_eq!(Sealer::new(&next).open(&text, b"u", 0), Ok(cookie()), "round {round}");
            now = next;
        }
        assert_eq!(now.keys.len(), COOKIE_KEYS_MAX);
    }

    proptest! {
        #[test]
        fn no_text_is_a_cookie_but_ours(text in "\\PC{0,140}", of in "[a-z]{0,30}", wall in any::<u64>()) {
            prop_assert!(sealer().open(&text, of.as_bytes(), wall).is_err());
        }

        #[test]
        fn no_bytes_are_a_cookie_but_ours(bytes in proptest::collection::vec(any::<u8>(), COOKIE_BYTES), ours: bool) {
            let mut bytes = bytes;
            if ours {
                // As far in as somebody without the key can come.
                bytes[..6].copy_from_slice(&[FORMAT, 0, 0, 0, 0, 7]);
            }
            let opened = sealer().open(&URL_SAFE_NO_PAD.encode(&bytes), b"u", 0);
            prop_assert!(opened.is_err());
            prop_assert!(!ours || opened == Err(Unopened::Bad(CookieError::Forged)));
        }

        #[test]
        fn what_is_sealed_opens_the_same(
            bricks in proptest::collection::vec(any::<u64>().prop_map(NodeId), 1..=BRICKS_ASKED),
            ms in 0u64..1 << 48, counter: u32, node: u64, end in 1u64..1 << 48, sum: u32, of: Vec<u8>,
        ) {
            let version = Version { ms, counter, node: NodeId(node) };
            let cookie = Cookie { bricks, version, lease_end_ms: end, sum: Checksum(sum) };
            let text = sealer().seal(&cookie, &of, NOW_MS);
            prop_assert_eq!(sealer().open(&text, &of, 0), Ok(cookie));
        }
    }
}
