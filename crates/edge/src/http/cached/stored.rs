//! An answer as a namespace keeps it: its head, what is known of it, and its body, in one value. Programs may write to the namespace,
//! too: what is not one of ours is no answer.
//!
//! ```text
//! u8 version (1)  u16 status  u8 flags  5 x u64 life  32 bytes variant  u64 generation
//! u8 number of names in Vary, each: u16 length, text
//! u16 number of fields, each: u16 length, name, u32 length, value
//! body
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use ring::digest;

use super::directives::parts;
use super::rules::{Life, Shows};
use crate::http::limits::{CACHED_FIELDS_MAX, CACHED_HEAD_BYTES_MAX, CACHED_VARIANTS, CACHED_VARY_MAX};

/// The kind of such values: nobody's content type.
pub const KIND: &[u8] = b"application/x-coppice-answer";
const VERSION: u8 = 1;
const STRICT: u8 = 1;
const PUBLIC: u8 = 2;
const FOR_AUTHORIZED: u8 = 4;

pub type Variant = [u8; 32];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    pub status: StatusCode,
    pub life: Life,
    /// How long the namespace was told to keep it, milliseconds. From what is left of it follows how old it is.
    pub kept_ms: u64,
    /// Names of request fields on which it depends.
    pub vary: Vec<HeaderName>,
    /// Hash of their values in the request that it answers.
    pub variant: Variant,
    /// Variants of one address that belong together.
    pub generation: u64,
    /// Without those for one hop, and without a length.
    pub fields: HeaderMap,
    pub body: Bytes,
}

impl Stored {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.body.len() + 1024);
        let Life { age_ms, fresh_ms, while_ms, error_ms, is_strict, is_public, is_for_authorized } = self.life;
        out.put_u8(VERSION);
        out.put_u16(self.status.as_u16());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.put_u8(flag(is_strict, STRICT) | flag(is_public, PUBLIC) | flag(is_for_authorized, FOR_AUTHORIZED));
        for ms in [age_ms, fresh_ms, while_ms, error_ms, self.kept_ms] {
            out.put_u64(ms);
        }
        out.put_slice(&self.variant);
        out.put_u64(self.generation);
        out.put_u8(self.vary.len() as u8);
        for name in &self.vary {
            put_name(&mut out, name);
        }
        out.put_u16(self.fields.len() as u16);
        for (name, value) in &self.fields {
            put_name(&mut out, name);
            out.put_u32(value.len() as u32);
            out.put_slice(value.as_bytes());
        }
        out.put_slice(&self.body);
        out.freeze()
    }

    /// None: it is none.
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
        let flags = bytes.try_get_u8().ok()?;
        let mut ms = || bytes.try_get_u64().ok();
        let (age_ms, fresh_ms, while_ms, error_ms, kept_ms) = (ms()?, ms()?, ms()?, ms()?, ms()?);
        // Sums of these do not overflow.
        if [age_ms, fresh_ms, while_ms, error_ms, kept_ms].iter().any(|ms| *ms > u64::MAX / 16) {
            return None;
        }
        let variant = take(&mut bytes, 32)?.as_ref().try_into().ok()?;
        let generation = bytes.try_get_u64().ok()?;
        let mut vary = Vec::new();
        for _ in 0..bytes.try_get_u8().ok()? {
            vary.push(take_name(&mut bytes)?);
        }
        let mut fields = HeaderMap::new();
        for _ in 0..bytes.try_get_u16().ok()? {
            let name = take_name(&mut bytes)?;
            let length = bytes.try_get_u32().ok()?;
            let value = take(&mut bytes, length as usize)?;
            if fields.len() >= CACHED_FIELDS_MAX {
                return None;
            }
            fields.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        let life = Life {
            age_ms,
            fresh_ms,
            while_ms,
            error_ms,
            is_strict: flags & STRICT != 0,
            is_public: flags & PUBLIC != 0,
            is_for_authorized: flags & FOR_AUTHORIZED != 0,
        };
        let is_final = !status.is_informational() && vary.len() <= CACHED_VARY_MAX;
        is_final.then_some(Self { status, life, kept_ms, vary, variant, generation, fields, body: bytes })
    }

    /// How old it is, when so much is left of the time for which it is kept.
    pub fn age_ms(&self, left_ms: u64) -> u64 {
        self.life.age_ms.saturating_add(self.kept_ms.saturating_sub(left_ms))
    }

    pub fn has_validator(&self) -> bool {
        self.fields.contains_key(header::ETAG) || self.fields.contains_key(header::LAST_MODIFIED)
    }

    /// Whether the stored answer is one to a request with these fields, by what it varies with.
    pub fn is_for(&self, headers: &HeaderMap) -> bool {
        self.vary.is_empty() || self.variant == variant(&self.vary, headers)
    }

    /// A 304 says that it is still good: its fields go before the stored ones (RFC 9111 3.2).
    pub fn update(&mut self, fields: &HeaderMap) {
        const KEPT: [HeaderName; 5] = [
            header::CONTENT_ENCODING,
            header::CONTENT_RANGE,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::TRANSFER_ENCODING,
        ];
        let fields = kept_fields(fields);
        for name in fields.keys().filter(|name| !KEPT.contains(name)) {
            self.fields.remove(name);
            fields.get_all(name).iter().for_each(|value| _ = self.fields.append(name, value.clone()));
        }
    }
}

/// What of an answer's fields is kept: nothing that is one person's, or of one hop, or said anew each time.
pub fn kept_fields(fields: &HeaderMap) -> HeaderMap {
    let mut fields = fields.clone();
    for name in [header::SET_COOKIE, header::AGE, header::CONTENT_LENGTH, header::TRAILER, header::TRANSFER_ENCODING] {
        fields.remove(name);
    }
    fields
}

/// Whether a head of this size is kept.
pub fn is_small(fields: &HeaderMap) -> bool {
    let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    bytes <= CACHED_HEAD_BYTES_MAX && fields.len() <= CACHED_FIELDS_MAX
}

/// The names of `Vary`, sorted. None: there are too many.
pub fn vary(fields: &HeaderMap) -> Option<Vec<HeaderName>> {
    let listed = fields.get_all(header::VARY).iter().flat_map(|value| parts(value.as_bytes()));
    let mut names = listed.map(|name| HeaderName::from_bytes(name).ok()).collect::<Option<Vec<_>>>()?;
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    (names.len() <= CACHED_VARY_MAX).then_some(names)
}

/// What a request says in these fields, as one hash: nobody can make another request with the same.
pub fn variant(names: &[HeaderName], headers: &HeaderMap) -> Variant {
    let mut context = digest::Context::new(&digest::SHA256);
    for name in names {
        context.update(name.as_str().as_bytes());
        for value in headers.get_all(name) {
            for part in parts(value.as_bytes()) {
                context.update(b",");
                context.update(part);
            }
        }
        context.update(b"\n");
    }
    hash(context)
}

fn hash(context: digest::Context) -> Variant {
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The address as a key: `https://host/path?query`, and what is too long ends in a hash of all of it.
pub fn key(is_https: bool, host: &str, target: &str) -> Bytes {
    let scheme = if is_https { "https://" } else { "http://" };
    let mut key = [scheme.as_bytes(), host.to_ascii_lowercase().as_bytes(), target.as_bytes()].concat();
    // A blank and a number follow, of variants.
    const LONGEST: usize = base::limits::KEY_BYTES_MAX - 8;
    if key.len() > LONGEST {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&key);
        let hash: String = hash(context).iter().map(|byte| format!("{byte:02x}")).collect();
        key.truncate(LONGEST - 1 - hash.len());
        key.push(b'#');
        key.extend_from_slice(hash.as_bytes());
    }
    key.into()
}

/// Where a variant of an address is that is not the first one. They are so many at most.
pub fn variant_key(key: &[u8], generation: u64, variant: &Variant) -> Bytes {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(key);
    context.update(&generation.to_be_bytes());
    context.update(variant);
    let place = u16::from(hash(context)[0]) % CACHED_VARIANTS;
    [key, format!(" {place}").as_bytes()].concat().into()
}

/// What a request shows of its own. `session`: a cookie of a session that the edge carries is there.
pub fn shows(headers: &HeaderMap, session: bool) -> Shows {
    Shows { authorization: headers.contains_key(header::AUTHORIZATION), session }
}

/// Methods that change nothing (RFC 9110 9.2.1).
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn put_name(out: &mut BytesMut, name: &HeaderName) {
    out.put_u16(name.as_str().len() as u16);
    out.put_slice(name.as_str().as_bytes());
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

fn take_name(bytes: &mut Bytes) -> Option<HeaderName> {
    let length = bytes.try_get_u16().ok()?;
    HeaderName::from_bytes(&take(bytes, length.into())?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn stored() -> Stored {
        Stored {
            status: StatusCode::NOT_FOUND,
            life: Life { age_ms: 1, fresh_ms: 2, while_ms: 3, error_ms: 4, is_public: true, ..Life::default() },
            kept_ms: 5,
            vary: vec![header::ACCEPT, header::ACCEPT_LANGUAGE],
            variant: [7; 32],
            generation: 8,
            fields: map(&[("etag", "\"x\""), ("link", "a"), ("link", "b")]),
            body: Bytes::from_static(b"body"),
        }
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let bytes = stored().encode();
        assert_eq!(Stored::decode(bytes.clone()), Some(stored()));
        let head = bytes.len() - stored().body.len();
        for length in 0..head {
            assert_eq!(Stored::decode(bytes.slice(..length)), None, "{length} bytes are too few");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_others_are_believed_to_be_more_than_they_are(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let length = bytes.len();
            if let Some(stored) = Stored::decode(bytes.into()) {
                prop_assert!(stored.encode().len() <= length);
            }
        }
    }

    #[test]
    fn a_variant_is_what_the_request_says_in_the_fields_that_count() {
        let names = vary(&map(&[("vary", "Accept-Language, accept"), ("vary", "accept")])).unwrap();
        assert_eq!(names, [header::ACCEPT, header::ACCEPT_LANGUAGE]);
        let of = |fields: &[(&'static str, &'static str)]| variant(&names, &map(fields));
        let german = of(&[("accept-language", "de,en"), ("accept", "*/*")]);
        assert_eq!(german, of(&[("accept", "*/*"), ("accept-language", "de , en"), ("user-agent", "x")]));
        assert_eq!(german, of(&[("accept", "*/*"), ("accept-language", "de"), ("accept-language", "en")]));
        assert_ne!(german, of(&[("accept", "*/*"), ("accept-language", "en,de")]));
        assert_ne!(german, of(&[("accept", "*/*")]));
        assert_ne!(of(&[("accept", "de")]), of(&[("accept-language", "de")]));
        let many: String = (0..=CACHED_VARY_MAX).map(|n| format!("x-{n},")).collect();
        assert_eq!(vary(&HeaderMap::from_iter([(header::VARY, HeaderValue::try_from(many).unwrap())])), None);
    }

    #[test]
    fn keys_tell_addresses_apart_and_fit() {
        assert_eq!(&key(true, "A.example:8443", "/p?q=1")[..], b"https://a.example:8443/p?q=1");
        assert_ne!(key(true, "a", "/"), key(false, "a", "/"));
        let long = |end: &str| key(false, "a", &format!("/{}{end}", "x".repeat(2000)));
        assert_ne!(long("1"), long("2"));
        let variant = variant_key(&long("1"), 1, &[1; 32]);
        assert!(variant.starts_with(&long("1")) && variant.len() <= base::limits::KEY_BYTES_MAX);
    }

    #[test]
    fn a_confirmation_brings_new_fields_and_leaves_what_is_the_bodys() {
        let mut stored = stored();
        stored.update(&map(&[("link", "c"), ("content-type", "x"), ("content-length", "0"), ("set-cookie", "a=b")]));
        let expect = map(&[("etag", "\"x\""), ("link", "c")]);
        assert_eq!(stored.fields, expect);
    }
}
