//! Numbers of 1 to 64 bits that lie anywhere in a text. Bit 0 is the highest of the first byte. Each of them is asked for by five
//! arguments: what is done, what becomes of a number that has no room, its kind (`i8`, `u63`), its first bit, and a number.

use super::*;
use crate::limits::VALUE_BYTES_MAX;

type Found<T> = std::result::Result<T, Wrong>;

const ARGS: &str = "(get|set|add wrap|sat|fail i|uBITS OFFSET NUMBER)...";

pub const ALL: &[Function] = &[
    since(
        7,
        read("text.fields", "(get wrap|sat|fail i|uBITS OFFSET NUMBER)...", |space, key, args| {
            let fields = Field::all(args)?;
            if fields.iter().any(|field| field.act != Act::Get) {
                return Err(Wrong::Arguments);
            }
            let text = text_of(space, key)?.cloned().unwrap_or_default();
            Ok(Reply::List(fields.iter().map(|field| Reply::Int(field.get(&text))).collect()))
        }),
    ),
    // For each the number that was there, or that is there after something was added; nothing, if it had no room and fails then.
    since(
        7,
        write("text.change-fields", ARGS, |space, key, args| {
            let fields = Field::all(args)?;
            let writes = fields.iter().filter(|field| field.act != Act::Get);
            let bytes = writes.map(|field| (field.offset + u64::from(field.bits)).div_ceil(8)).max();
            let now = text_of(space, key)?.cloned();
            let Some(bytes) = bytes else { return Err(Wrong::Arguments) };
            let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX).ok_or(Wrong::TooLarge)?;
            let mut text = now.as_deref().map_or(Vec::new(), <[u8]>::to_vec);
            text.resize(text.len().max(bytes), 0);
            let mut said = Vec::with_capacity(fields.len());
            for field in fields {
                let old = field.get(&text);
                said.push(match field.becomes(old) {
                    _ if field.act == Act::Get => Reply::Int(old),
                    None => Reply::Nil,
                    Some(new) => {
                        field.put(&mut text, new);
                        Reply::Int(if field.act == Act::Set { old } else { new })
                    }
                });
            }
            // It grows also where nothing had room.
            if now.as_deref() != Some(&text[..]) {
                space.set_keeping_end(key, Value::Text(text.into()));
            }
            Ok(Reply::List(said))
        }),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Get,
    Set,
    Add,
}

/// What becomes of a number that has no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// Its lowest bits.
    Wrap,
    /// The nearest one that has.
    Sat,
    /// Nothing is done.
    Fail,
}

#[derive(Clone, Copy)]
struct Field {
    act: Act,
    over: Over,
    signed: bool,
    /// 1 to 64, of one without a sign to 63.
    bits: u32,
    offset: u64,
    number: i64,
}

impl Field {
    fn all(args: &[Bytes]) -> Found<Vec<Self>> {
        if !args.len().is_multiple_of(5) {
            return Err(Wrong::Arguments);
        }
        args.chunks_exact(5).map(Self::read).collect()
    }

    fn read(args: &[Bytes]) -> Found<Self> {
        let act = match &args[0][..] {
            b"get" => Act::Get,
            b"set" => Act::Set,
            b"add" => Act::Add,
            _ => return Err(Wrong::Arguments),
        };
        let over = match &args[1][..] {
            b"wrap" => Over::Wrap,
            b"sat" => Over::Sat,
            b"fail" => Over::Fail,
            _ => return Err(Wrong::Arguments),
        };
        let (signed, bits) = kind(&args[2]).ok_or(Wrong::Arguments)?;
        let offset = unsigned(&args[3]).ok().filter(|offset| *offset <= 1 << 40).ok_or(Wrong::Arguments)?;
        Ok(Self { act, over, signed, bits, offset, number: integer(&args[4])? })
    }

    fn get(self, text: &[u8]) -> i64 {
        // Nine bytes at most; those behind the end are zeros.
        let first = usize::try_from(self.offset / 8).unwrap_or(usize::MAX);
        let byte = |n: usize| first.checked_add(n).and_then(|at| text.get(at)).copied().unwrap_or(0);
        let window = (0..9).fold(0_u128, |window, n| window << 8 | u128::from(byte(n)));
        let behind = 72 - (self.offset % 8) as u32 - self.bits;
        self.fit((window >> behind) as u64)
    }

    fn put(self, text: &mut [u8], number: i64) {
        for bit in 0..self.bits {
            let at = self.offset + u64::from(bit);
            let (byte, mask) = (&mut text[(at / 8) as usize], 0x80 >> (at % 8));
            let is_one = number as u64 >> (self.bits - 1 - bit) & 1 == 1;
            *byte = if is_one { *byte | mask } else { *byte & !mask };
        }
    }

    /// The lowest bits, as a number of this kind.
    fn fit(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        if self.signed { (bits << unused) as i64 >> unused } else { (bits << unused >> unused) as i64 }
    }

    /// What is there then.
    fn becomes(self, old: i64) -> Option<i64> {
        let (min, max) = if self.signed {
            (-(1_i128 << (self.bits - 1)), (1_i128 << (self.bits - 1)) - 1)
        } else {
            (0, (1_i128 << self.bits) - 1)
        };
        let wanted = match self.act {
            Act::Add => i128::from(old) + i128::from(self.number),
            // As Redis: one below 0 is one far above for a kind without a sign.
            _ if !self.signed => i128::from(self.number as u64),
            _ => i128::from(self.number),
        };
        match self.over {
            _ if (min..=max).contains(&wanted) => Some(wanted as i64),
            Over::Wrap => Some(self.fit(wanted as u64)),
            Over::Sat => Some(wanted.clamp(min, max) as i64),
            Over::Fail => None,
        }
    }
}

/// With a sign, and of so many bits.
pub fn kind(text: &[u8]) -> Option<(bool, u32)> {
    let (sign, bits) = text.split_first()?;
    let bits = u32::try_from(integer(bits).ok()?).ok()?;
    match sign {
        b'i' if (1..=64).contains(&bits) => Some((true, bits)),
        b'u' if (1..=63).contains(&bits) => Some((false, bits)),
        _ => None,
    }
}
