//! What a browser holds of a session in cookie mode, as one text: the session's id, which is its key, and the class's
//! cookie, which finds and proves it. Both the API and the HTTP door speak it; ids are made here alone.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use ring::rand::{SecureRandom, SystemRandom};
use state::session::cookie::COOKIE_TEXT_BYTES;
use state::session::{Action, Op};

use crate::fields::AnyFields;

/// Bytes of chance in a session's id: two sessions never get the same.
const ID_BYTES: usize = 16;
/// An id as text.
const ID_TEXT_BYTES: usize = 22;
const _: () = assert!(ID_TEXT_BYTES + 1 + COOKIE_TEXT_BYTES <= 128, "all that a browser holds has 128 bytes at most");

/// A session as its client names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub id: String,
    /// None for a session that is about to be.
    pub cookie: Option<String>,
}

/// The system gives no chance, so no session can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoChance;

impl Held {
    /// A session that nobody has.
    pub fn fresh() -> Result<Self, NoChance> {
        let mut id = [0; ID_BYTES];
        SystemRandom::new().fill(&mut id).map_err(|_| NoChance)?;
        Ok(Self { id: URL_SAFE_NO_PAD.encode(id), cookie: None })
    }

    /// What a client showed. Text of another form becomes a cookie that is cut, so that it is refused, counted and
    /// reported where the others are.
    pub fn shown(text: &str) -> Self {
        match text.split_once('.') {
            Some((id, cookie)) if id.len() == ID_TEXT_BYTES && cookie.len() <= COOKIE_TEXT_BYTES => {
                Self { id: id.to_owned(), cookie: Some(cookie.to_owned()) }
            }
            _ => Self { id: "-".to_owned(), cookie: Some(String::new()) },
        }
    }

    /// An operation on it.
    pub fn op(&self, namespace: &str, action: Action) -> Op {
        Op::cookie(namespace.into(), Bytes::copy_from_slice(self.id.as_bytes()), action, self.cookie.clone())
    }

    /// What its client is to hold from now on.
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.cookie.as_deref().unwrap_or_default())
    }
}

/// The values of all cookies of this name, in order.
pub fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let fields = headers.get_all(header::COOKIE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    fields.filter_map(|field| value(field, name)).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

/// Whether there is a cookie of this name.
pub fn is_shown(fields: &impl AnyFields, name: &str) -> bool {
    let mut fields = fields.all(&header::COOKIE).flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    fields.any(|field| value(field, name).is_some())
}

/// Takes the cookies of this name out of a request; all others stay as they are.
pub fn remove(headers: &mut HeaderMap, name: &str) {
    let has = |line: &HeaderValue| line.as_bytes().split(|b| *b == b';').any(|field| value(field, name).is_some());
    if !headers.get_all(header::COOKIE).iter().any(has) {
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in lines {
        let others = line.as_bytes().split(|b| *b == b';').filter(|field| value(field, name).is_none());
        let kept = others.collect::<Vec<_>>().join(&b';');
        let kept = kept.trim_ascii();
        if !kept.is_empty()
            && let Ok(kept) = HeaderValue::from_bytes(kept)
        {
            headers.append(header::COOKIE, kept);
        }
    }
}

/// Takes a cookie of this name out of an answer: it is not the program's.
pub fn remove_set(headers: &mut HeaderMap, name: &str) {
    let is_its = |line: &HeaderValue| value(line.as_bytes(), name).is_some();
    if headers.get_all(header::SET_COOKIE).iter().any(is_its) {
        let others: Vec<HeaderValue> =
            headers.get_all(header::SET_COOKIE).iter().filter(|line| !is_its(line)).cloned().collect();
        headers.remove(header::SET_COOKIE);
        for line in others {
            headers.append(header::SET_COOKIE, line);
        }
    }
}

/// The value of `name=value`, if that is its name.
fn value<'a>(field: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let equals = field.iter().position(|b| *b == b'=')?;
    (field[..equals].trim_ascii() == name.as_bytes()).then(|| field[equals + 1..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(name: header::HeaderName, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap, name: header::HeaderName) -> Vec<String> {
        headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn cookies_are_found_and_taken_out_and_others_stay_as_they_are() {
        let mut headers = map(header::COOKIE, &["a=1; sid=x; b=\"2; 3\"", "sid=y", "sid2=z;sidd=q", "SID=w; sid = v "]);
        assert_eq!(values(&headers, "sid"), ["x", "y", "v"]);
        remove(&mut headers, "sid");
        assert_eq!(lines(&headers, header::COOKIE), ["a=1; b=\"2; 3\"", "sid2=z;sidd=q", "SID=w"]);
        remove(&mut headers, "sid");
        assert_eq!(values(&headers, "sid"), [""; 0]);
    }

    #[test]
    fn a_programs_own_cookie_of_that_name_is_not_passed_on() {
        let mut headers = map(header::SET_COOKIE, &["sid=mine; Path=/", "theme=dark; Path=/", "sidx=1"]);
        remove_set(&mut headers, "sid");
        assert_eq!(lines(&headers, header::SET_COOKIE), ["theme=dark; Path=/", "sidx=1"]);
    }

    #[test]
    fn what_a_client_holds_is_short_and_no_two_are_alike() {
        let (one, two) = (Held::fresh().unwrap(), Held::fresh().unwrap());
        assert_ne!(one.id, two.id);
        assert_eq!(one.id.len(), ID_TEXT_BYTES);
        let held = Held { cookie: Some("c".repeat(COOKIE_TEXT_BYTES)), ..one };
        assert!(held.text().len() <= 128);
        assert_eq!(Held::shown(&held.text()), held);
        for odd in ["", ".", "x", "a.b", &"x".repeat(5000), &format!("{}.{}", held.id, "c".repeat(200))] {
            assert_eq!(Held::shown(odd).cookie.as_deref(), Some(""), "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn no_cookie_line_breaks_it(line in proptest::collection::vec(any::<u8>(), 0..80), name in "[a-c=;]{1,3}") {
            if let Ok(line) = HeaderValue::from_bytes(&line) {
                let mut headers = HeaderMap::new();
                headers.append(header::COOKIE, line);
                let found = values(&headers, &name);
                found.iter().for_each(|text| drop(Held::shown(text)));
                remove(&mut headers, &name);
                prop_assert!(values(&headers, &name).is_empty());
            }
        }
    }
}
