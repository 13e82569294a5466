//! What two texts have in common: the longest bytes that stand in both in the same order, though not next to each other.

use super::*;
use crate::limits::COMMON_CELLS_MAX;

pub const ALL: &[Function] = &[
    // The text, how long it is, or both stretches of each part that is so long at least, the last one first, and how long it is in all.
    since(
        7,
        Function {
            keys: 1,
            ..read("text.common", "key text|length|parts BYTES", |space, key, args| {
                let [other, what, least] = args else { return Err(Wrong::Arguments) };
                let (a, b) = (text_of(space, key)?.cloned(), text_of(space, other)?.cloned());
                let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
                let least = unsigned(least)?;
                match &what[..] {
                    b"text" => {
                        let parts = Table::of(&a, &b)?.parts(&a, &b);
                        let bytes = parts.iter().rev().flat_map(|part| &a[part.a..part.a + part.len]).copied();
                        Ok(Reply::Bytes(bytes.collect::<Vec<u8>>().into()))
                    }
                    b"length" => Ok(count(length(&a, &b)?)),
                    b"parts" => {
                        let parts = Table::of(&a, &b)?.parts(&a, &b);
                        let total = parts.iter().map(|part| part.len).sum();
                        let long = parts.iter().filter(|part| part.len as u64 >= least);
                        let shown = |part: &Part| {
                            let Part { a, b, len } = *part;
                            Reply::List([a, a + len - 1, b, b + len - 1, len].map(count).into())
                        };
                        Ok(Reply::List(vec![Reply::List(long.map(shown).collect()), count(total)]))
                    }
                    _ => Err(Wrong::Arguments),
                }
            })
        },
    ),
];

/// Where the same bytes stand in both.
struct Part {
    a: usize,
    b: usize,
    len: usize,
}

/// For so many bytes of the one and of the other how many they have in common.
struct Table {
    width: usize,
    cells: Vec<u32>,
}

fn cells(a: &[u8], b: &[u8]) -> std::result::Result<usize, Wrong> {
    let cells = (a.len() + 1).checked_mul(b.len() + 1);
    cells.filter(|cells| *cells <= COMMON_CELLS_MAX).ok_or(Wrong::TooLarge)
}

/// Two rows are enough for that.
fn length(a: &[u8], b: &[u8]) -> std::result::Result<usize, Wrong> {
    cells(a, b)?;
    let mut above = vec![0_u32; b.len() + 1];
    let mut row = above.clone();
    for byte in a {
        for (at, other) in b.iter().enumerate() {
            row[at + 1] = if byte == other { above[at] + 1 } else { above[at + 1].max(row[at]) };
        }
        std::mem::swap(&mut above, &mut row);
    }
    Ok(above[b.len()] as usize)
}

impl Table {
    fn of(a: &[u8], b: &[u8]) -> std::result::Result<Self, Wrong> {
        let width = b.len() + 1;
        let mut cells = vec![0_u32; cells(a, b)?];
        for (n, byte) in a.iter().enumerate() {
            let (above, row) = cells[n * width..(n + 2) * width].split_at_mut(width);
            for (at, other) in b.iter().enumerate() {
                row[at + 1] = if byte == other { above[at] + 1 } else { above[at + 1].max(row[at]) };
            }
        }
        Ok(Self { width, cells })
    }

    fn at(&self, a: usize, b: usize) -> u32 {
        self.cells[a * self.width + b]
    }

    /// From the end on, in the way of Redis, as there may be several as long.
    fn parts(&self, a: &[u8], b: &[u8]) -> Vec<Part> {
        let (mut i, mut j) = (a.len(), b.len());
        let mut parts: Vec<Part> = Vec::new();
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match parts.last_mut() {
                    Some(part) if part.a == i + 1 && part.b == j + 1 => *part = Part { a: i, b: j, len: part.len + 1 },
                    _ => parts.push(Part { a: i, b: j, len: 1 }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        parts
    }
}
