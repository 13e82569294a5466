//! Some entries of a stream, packed: names of fields that are those of the block's first entry are not said again.
//!
//! ```text
//! names of the first entry, then for each entry:
//! ms behind the first's, seq, 0 (names as above) and values | 1 + number of pairs, and names and values in turn
//! Numbers: 7 bits a byte, low ones first. Texts: their length, then their bytes.
//! ```

use bytes::Bytes;

use super::Id;

/// Entries of one block, as Redis has them: what `~` trims is whole blocks.
pub const BLOCK_ENTRIES: u16 = 100;
/// Bytes of one, but for an entry that is larger alone.
const BLOCK_BYTES: usize = 4_096;
/// What a block counts beside its bytes.
pub const BLOCK_COST: usize = 112;

/// Invariant: it has an entry.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Of the first that was put in; it may have gone.
    first: Id,
    /// Of the last that is in it.
    last: Id,
    /// Entries that were put in, with those that have gone.
    put: u16,
    len: u16,
    /// Of the first entry.
    names: u32,
    /// Bytes of these.
    head: u32,
    data: Vec<u8>,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub id: Id,
    /// Of all its bytes.
    start: usize,
    /// Of what is behind its id.
    body: usize,
    end: usize,
}

impl Block {
    pub fn of(id: Id, fields: &[Bytes]) -> Self {
        let mut data = Vec::new();
        fields.iter().step_by(2).for_each(|name| put_text(&mut data, name));
        let (names, head) = ((fields.len() / 2) as u32, data.len() as u32);
        let mut block = Self { first: id, last: id, put: 0, len: 0, names, head, data };
        block.push(id, fields);
        block
    }

    /// Of what was in one; none, if that makes no sense.
    pub fn read(first: Id, put: u16, names: u32, data: Vec<u8>) -> Option<Self> {
        let mut rest = &data[..];
        for _ in 0..names {
            take_text(&mut rest)?;
        }
        let head = u32::try_from(data.len() - rest.len()).ok()?;
        let mut block = Self { first, last: first, put, len: 0, names, head, data };
        let mut last = None;
        let mut at = head as usize;
        while at < block.data.len() {
            let place = block.place(at)?;
            if last.is_some_and(|last| last >= place.id) || place.id < first {
                return None;
            }
            (last, at) = (Some(place.id), place.end);
            block.len = block.len.checked_add(1)?;
        }
        block.last = last?;
        (put >= block.len && put <= BLOCK_ENTRIES && names > 0).then_some(block)
    }

    /// What [`Block::read`] takes.
    pub fn parts(&self) -> (Id, u16, u32, &[u8]) {
        (self.first, self.put, self.names, &self.data)
    }

    /// No entry has a lower id.
    pub fn first(&self) -> Id {
        self.first
    }

    pub fn last(&self) -> Id {
        self.last
    }

    pub fn len(&self) -> u64 {
        self.len.into()
    }

    pub fn bytes(&self) -> usize {
        self.data.len() + BLOCK_COST
    }

    pub fn has_room(&self, fields: &[Bytes]) -> bool {
        let more: usize = fields.iter().map(Bytes::len).sum();
        self.put < BLOCK_ENTRIES && self.data.len() + more < BLOCK_BYTES
    }

    /// No more comes into it.
    pub fn close(&mut self) {
        self.data.shrink_to_fit();
    }

    /// Behind all others.
    pub fn push(&mut self, id: Id, fields: &[Bytes]) {
        put_number(&mut self.data, id.ms - self.first.ms);
        put_number(&mut self.data, id.seq);
        if self.are_names(fields) {
            put_number(&mut self.data, 0);
            fields.iter().skip(1).step_by(2).for_each(|value| put_text(&mut self.data, value));
        } else {
            put_number(&mut self.data, 1 + fields.len() as u64 / 2);
            fields.iter().for_each(|text| put_text(&mut self.data, text));
        }
        self.last = id;
        self.put += 1;
        self.len += 1;
    }

    fn are_names(&self, fields: &[Bytes]) -> bool {
        let mut names = &self.data[..self.head as usize];
        fields.len() as u64 / 2 == u64::from(self.names)
            && fields.iter().step_by(2).all(|name| take_text(&mut names) == Some(name))
    }

    /// Removes those of these ids, and says how many there were. The block may be empty then, and must go.
    pub fn remove(&mut self, is_gone: impl Fn(Id) -> bool) -> u64 {
        let (mut gone, mut last) = (0, self.first);
        let mut kept = self.data[..self.head as usize].to_vec();
        for place in self.places() {
            if is_gone(place.id) {
                gone += 1;
            } else {
                kept.extend_from_slice(&self.data[place.start..place.end]);
                last = place.id;
            }
        }
        if gone > 0 {
            (self.data, self.last) = (kept, last);
            self.len -= gone;
        }
        gone.into()
    }

    pub fn places(&self) -> Vec<Place> {
        let (mut places, mut at) = (Vec::with_capacity(self.len.into()), self.head as usize);
        while at < self.data.len() {
            let place = self.place(at).expect("what is in a block was put there, or looked at");
            at = place.end;
            places.push(place);
        }
        places
    }

    fn place(&self, start: usize) -> Option<Place> {
        let mut rest = self.data.get(start..)?;
        let (ms, seq) = (take_number(&mut rest)?, take_number(&mut rest)?);
        let id = Id { ms: self.first.ms.checked_add(ms)?, seq };
        let body = self.data.len() - rest.len();
        let texts = match take_number(&mut rest)? {
            0 => u64::from(self.names),
            more => (more - 1).checked_mul(2).filter(|texts| *texts > 0)?,
        };
        for _ in 0..texts {
            take_text(&mut rest)?;
        }
        Some(Place { id, start, body, end: self.data.len() - rest.len() })
    }

    /// Names and values in turn.
    pub fn fields(&self, place: &Place) -> Vec<Bytes> {
        let (mut rest, mut names) = (&self.data[place.body..place.end], &self.data[..self.head as usize]);
        let is_alike = take_number(&mut rest) == Some(0);
        let mut fields = Vec::new();
        while let Some(text) = take_text(&mut rest) {
            if is_alike {
                fields.extend(take_text(&mut names).map(Bytes::copy_from_slice));
            }
            fields.push(Bytes::copy_from_slice(text));
        }
        fields
    }
}

fn put_number(data: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        data.push(number as u8 | 0x80);
        number >>= 7;
    }
    data.push(number as u8);
}

fn put_text(data: &mut Vec<u8>, text: &[u8]) {
    put_number(data, text.len() as u64);
    data.extend_from_slice(text);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(text)
}
