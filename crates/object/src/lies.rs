//! Where the bytes of an entry lie: in memory (then the log has them), or in a pack on this node's disk (`base::pack`), of which the log
//! has only the place.

use std::ops::Deref;

use crate::body::{Body, Piece};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lies {
    Here(Body),
    Packed(Place),
}

/// All pieces of an object, one behind the other in a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub pack: u64,
    /// Where the first begins.
    pub from: u64,
    pub parts: Parts,
}

/// The pieces of an object: mostly it is one, and that takes no memory of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    One(Part),
    Many(Box<[Part]>),
}

impl Deref for Parts {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        match self {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }
}

impl FromIterator<Part> for Parts {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let parts: Box<[Part]> = parts.into_iter().collect();
        if let [part] = *parts { Parts::One(part) } else { Parts::Many(parts) }
    }
}

impl Default for Parts {
    fn default() -> Self {
        Parts::Many(Box::default())
    }
}

/// A piece of which the bytes are elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub len: u32,
    /// CRC-32C.
    pub sum: u32,
}

/// A piece, and where its bytes are to be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Here(Piece),
    /// In this pack, from there on.
    Packed {
        pack: u64,
        from: u64,
        part: Part,
    },
}

impl Found {
    pub fn len(&self) -> usize {
        match self {
            Found::Here(piece) => piece.bytes.len(),
            Found::Packed { part, .. } => part.len as usize,
        }
    }
}

impl Lies {
    pub fn len(&self) -> usize {
        match self {
            Lies::Here(body) => body.len(),
            Lies::Packed(place) => place.len() as usize,
        }
    }

    /// Memory that its bytes take.
    pub fn here(&self) -> u64 {
        if let Lies::Here(body) = self { body.len() as u64 } else { 0 }
    }

    /// Whether the bytes are more than one frame, or one record of the log, takes.
    pub fn is_in_pieces(&self) -> bool {
        self.count() > 1
    }

    fn count(&self) -> usize {
        match self {
            Lies::Here(body) => body.pieces().len(),
            Lies::Packed(place) => place.parts.len(),
        }
    }

    pub fn parts(&self) -> Parts {
        match self {
            Lies::Here(body) => parts_of(body),
            Lies::Packed(place) => place.parts.clone(),
        }
    }

    /// What is known to be wrong without a look at the disk.
    pub fn is_bad(&self, sum: u32, size: u32) -> bool {
        match self {
            Lies::Here(body) => !body.is_right(sum),
            Lies::Packed(place) => place.len() != u64::from(size),
        }
    }

    /// The piece in which a byte is, and where it begins in the object; none behind the last one.
    pub fn piece_at(&self, at: usize) -> Option<(usize, Found)> {
        match self {
            Lies::Here(body) => body.piece_at(at).map(|(begins, piece)| (begins, Found::Here(piece.clone()))),
            Lies::Packed(place) => {
                let mut begins = 0;
                place.parts.iter().find_map(|part| {
                    let this = begins;
                    begins += part.len as usize;
                    let found = Found::Packed { pack: place.pack, from: place.from + this as u64, part: *part };
                    (at < begins).then_some((this, found))
                })
            }
        }
    }
}

impl Place {
    pub fn len(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.len)).sum()
    }
}

pub(crate) fn parts_of(body: &Body) -> Parts {
    body.pieces().iter().map(|piece| Part { len: piece.bytes.len() as u32, sum: piece.sum }).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_piece_is_found_wherever_it_lies() {
        let body = Body::cut([Bytes::from_static(b"0123456789abcdefg")], 5);
        let place = Place { pack: 3, from: 100, parts: parts_of(&body) };
        let (here, packed) = (Lies::Here(body.clone()), Lies::Packed(place));
        assert_eq!((here.len(), here.here(), packed.len(), packed.here()), (17, 17, 17, 0));
        for at in 0..20 {
            let begins = here.piece_at(at).map(|(begins, _)| begins);
            assert_eq!(packed.piece_at(at).map(|(begins, _)| begins), begins);
            if let Some((begins, Found::Packed { pack, from, part })) = packed.piece_at(at) {
                let piece = body.piece_at(at).unwrap().1;
                assert_eq!(
                    (pack, from, part.len as usize, part.sum),
                    (3, 100 + begins as u64, piece.bytes.len(), piece.sum)
                );
            }
        }
        assert!(!packed.is_bad(body.sum(), 17) && packed.is_bad(body.sum(), 18) && here.is_bad(0, 17));
    }
}
