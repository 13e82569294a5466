//! Room that requests need one after the other, kept for the next one of the same thread: an idle connection holds none
//! of it, and a busy one does not ask the allocator for it with each request.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, InvalidHeaderName};

use super::check::Field;
use super::limits::{HEAD_ROOM_BYTES, OUT_BYTES_MAX};
use crate::fields::{Fields, List};

/// Rooms of each kind that are kept at most,
const KEPT_MAX: usize = 16;
/// ... and of maps those of so many fields, of lists of twice as many.
const MAP_FIELDS_MAX: usize = 64;
/// A larger head has memory of its own. Others share theirs: one that lives long holds [`HEAD_ROOM_BYTES`].
const SHARED_HEAD_BYTES_MAX: usize = HEAD_ROOM_BYTES / 4;

/// Names of fields that are remembered, and how long those are at most.
const NAMES: usize = 256;
const NAME_BYTES_MAX: usize = 40;

#[derive(Default)]
struct Rooms {
    maps: Vec<HeaderMap>,
    lists: Vec<List>,
    bytes: Vec<Vec<u8>>,
    fields: Vec<Field>,
    heads: BytesMut,
    /// Rooms of heads that are full, the oldest first: none is used again before the last head in it is gone.
    full_heads: Vec<BytesMut>,
    /// Names of fields that were read, each where [`place`] says.
    names: Vec<Option<HeaderName>>,
}

impl Rooms {
    /// Room for more heads: one of which none lives any more, or new memory.
    fn next_heads(&mut self) {
        self.full_heads.push(std::mem::take(&mut self.heads));
        if let Some(at) = self.full_heads.iter_mut().position(|heads| heads.try_reclaim(HEAD_ROOM_BYTES)) {
            self.heads = self.full_heads.remove(at);
            return;
        }
        if self.full_heads.len() > KEPT_MAX {
            self.full_heads.remove(0);
        }
        self.heads.reserve(HEAD_ROOM_BYTES);
    }
}

thread_local! {
    static ROOMS: RefCell<Rooms> = RefCell::default();
}

/// An empty map for so many fields.
pub fn map(fields: usize) -> HeaderMap {
    let mut map = ROOMS.with_borrow_mut(|rooms| rooms.maps.pop()).unwrap_or_default();
    map.reserve(fields);
    map
}

pub fn give_map(mut map: HeaderMap) {
    map.clear();
    ROOMS.with_borrow_mut(|rooms| {
        if map.capacity() <= MAP_FIELDS_MAX && rooms.maps.len() < KEPT_MAX {
            rooms.maps.push(map);
        }
    });
}

/// An empty list for so many fields.
pub fn list(fields: usize) -> List {
    let mut list = ROOMS.with_borrow_mut(|rooms| rooms.lists.pop()).unwrap_or_default();
    list.reserve(fields);
    list
}

pub fn give_list(of: Fields) {
    match of {
        Fields::Map(map) => give_map(*map),
        Fields::List(mut list) => {
            list.clear();
            ROOMS.with_borrow_mut(|rooms| {
                if list.capacity() <= 2 * MAP_FIELDS_MAX && rooms.lists.len() < KEPT_MAX {
                    rooms.lists.push(list);
                }
            });
        }
    }
}

/// Empty, for what is to be written.
pub fn bytes() -> Vec<u8> {
    ROOMS.with_borrow_mut(|rooms| rooms.bytes.pop()).unwrap_or_default()
}

pub fn give_bytes(mut bytes: Vec<u8>) {
    bytes.clear();
    ROOMS.with_borrow_mut(|rooms| {
        if (1..=OUT_BYTES_MAX).contains(&bytes.capacity()) && rooms.bytes.len() < KEPT_MAX {
            rooms.bytes.push(bytes);
        }
    });
}

/// Empty, for the places of a head's fields.
pub fn fields() -> Vec<Field> {
    ROOMS.with_borrow_mut(|rooms| std::mem::take(&mut rooms.fields))
}

pub fn give_fields(mut fields: Vec<Field>) {
    fields.clear();
    ROOMS.with_borrow_mut(|rooms| rooms.fields = fields);
}

/// A copy of a head, of which values are to be slices.
pub fn head(bytes: &[u8]) -> Bytes {
    if bytes.len() > SHARED_HEAD_BYTES_MAX {
        return Bytes::copy_from_slice(bytes);
    }
    ROOMS.with_borrow_mut(|rooms| {
        if rooms.heads.capacity() < bytes.len() {
            rooms.next_heads();
        }
        rooms.heads.extend_from_slice(bytes);
        rooms.heads.split().freeze()
    })
}

/// The name of a field. Those that no list of `http` has are copied each time that they are read; most are the same as
/// before.
///
/// # Errors
/// It is none.
pub fn name(bytes: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    if bytes.len() > NAME_BYTES_MAX {
        return HeaderName::from_bytes(bytes);
    }
    ROOMS.with_borrow_mut(|rooms| {
        rooms.names.resize(NAMES, None);
        let known = &mut rooms.names[place(bytes)];
        if let Some(name) = known.as_ref().filter(|name| name.as_str().as_bytes().eq_ignore_ascii_case(bytes)) {
            return Ok(name.clone());
        }
        let name = HeaderName::from_bytes(bytes)?;
        *known = Some(name.clone());
        Ok(name)
    })
}

/// Where a name is remembered, the same in capitals and without. Two with one place put each other out, which costs
/// what it did before.
fn place(name: &[u8]) -> usize {
    let at = |index: usize| usize::from(name.get(index).copied().unwrap_or(0) | 0x20);
    (name.len() * 31 + at(0) * 7 + at(name.len() / 2) * 13 + at(name.len().saturating_sub(1)) * 3 + at(3)) % NAMES
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn what_is_given_back_is_empty_when_it_is_taken_again() {
        let mut map = map(9);
        map.append(header::COOKIE, header::HeaderValue::from_static("a=b"));
        map.append(header::COOKIE, header::HeaderValue::from_static("c=d"));
        let room = map.capacity();
        give_map(map);
        let again = super::map(1);
        assert!(again.is_empty() && again.get(header::COOKIE).is_none() && again.capacity() == room);
        give_bytes(b"secret".to_vec());
        assert!(bytes().is_empty());
    }

    #[test]
    fn a_name_is_what_it_says_however_often_and_in_whatever_case_it_is_read() {
        for _ in 0..3 {
            for number in 0..2000 {
                for said in [format!("x-own-{number}"), format!("X-Own-{number}"), format!("{number}a"), "HOST".into()]
                {
                    let read = name(said.as_bytes()).unwrap();
                    assert_eq!(read, HeaderName::from_bytes(said.as_bytes()).unwrap(), "{said}");
                }
            }
        }
        assert!(name(b"").is_err() && name(b"a b").is_err() && name("\u{e9}".as_bytes()).is_err());
    }

    #[test]
    fn heads_are_as_they_came_and_what_lives_long_holds_little() {
        let all: Vec<(String, Bytes)> = (0..500)
            .map(|n| "x".repeat(n * 7) + &n.to_string())
            .map(|text| {
                let head = head(text.as_bytes());
                (text, head)
            })
            .collect();
        assert!(all.iter().all(|(text, head)| text.as_bytes() == head));
        let room = ROOMS.with_borrow(|rooms| rooms.heads.capacity());
        assert!(room <= HEAD_ROOM_BYTES, "{room}");
    }

    #[test]
    fn a_head_that_lives_is_not_written_over_and_its_room_is_used_again_behind_it() {
        ROOMS.with_borrow_mut(|rooms| *rooms = Rooms::default());
        let (mut lives, mut places) = (Bytes::new(), std::collections::BTreeSet::new());
        for number in 0..2000 {
            let text = format!("{number:0>300}");
            let head = head(text.as_bytes());
            places.insert(head.as_ptr().addr() / HEAD_ROOM_BYTES);
            if number > 0 {
                assert_eq!(lives, format!("{:0>300}", number - 1));
            }
            lives = head;
        }
        // Rooms of 4 KiB that begin anywhere.
        assert!(places.len() <= 6, "{places:?}");
        let all: Vec<Bytes> = (0..2000).map(|number| head(format!("{number:0>300}").as_bytes())).collect();
        assert!(all.iter().enumerate().all(|(number, head)| *head == format!("{number:0>300}")));
        assert!(ROOMS.with_borrow(|rooms| rooms.full_heads.len()) <= KEPT_MAX + 1);
    }
}
