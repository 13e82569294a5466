//! `struct`: packs values as C lays them out, as Redis' library does.

use mlua::{Lua, MultiValue, Result, Table, Value, Variadic};

use super::convert::{number, type_name};

/// Bytes of one integer, and where values may be made to begin.
const INT_BYTES_MAX: usize = 32;
/// Bytes of what is packed.
const PACKED_BYTES_MAX: usize = 16 << 20;

pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, args: Variadic<Value>| match pack(&args) {
        Ok(bytes) => Ok((true, lua.create_string(bytes)?)),
        Err(why) => Ok((false, lua.create_string(why)?)),
    })?;
    let unpack = lua.create_function(|lua, args: Variadic<Value>| match unpack(lua, &args) {
        Ok(values) => Ok(values),
        Err(Error::Why(why)) => {
            Ok(MultiValue::from_iter([Value::Boolean(false), Value::String(lua.create_string(why)?)]))
        }
        Err(Error::Lua(error)) => Err(error),
    })?;
    let size = lua.create_function(|lua, args: Variadic<Value>| match size(&args) {
        Ok(size) => Ok((true, Value::Number(size as f64))),
        Err(why) => Ok((false, Value::String(lua.create_string(why)?))),
    })?;
    table.raw_set("pack", pack)?;
    table.raw_set("unpack", unpack)?;
    table.raw_set("size", size)?;
    Ok(table)
}

enum Error {
    Why(String),
    Lua(mlua::Error),
}

impl From<String> for Error {
    fn from(why: String) -> Self {
        Self::Why(why)
    }
}

/// What a letter of a format stands for.
enum Item {
    Pad,
    Int {
        bytes: usize,
        signed: bool,
    },
    Float,
    Double,
    /// Ends with a zero.
    Text,
    /// Of so many characters; 0: as many as there are, or as the number before says.
    Chars(usize),
}

struct Format<'a> {
    text: &'a [u8],
    at: usize,
    little: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, little: true, align: 1 }
    }

    fn count(&mut self) -> std::result::Result<Option<usize>, String> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        self.at += digits;
        match digits {
            0 => Ok(None),
            _ => text
                .parse()
                .ok()
                .filter(|n| *n <= PACKED_BYTES_MAX)
                .map(Some)
                .ok_or("integral size overflow".to_owned()),
        }
    }

    fn next(&mut self) -> std::result::Result<Option<Item>, String> {
        while let Some(&letter) = self.text.get(self.at) {
            self.at += 1;
            let int = |bytes, signed| Ok(Some(Item::Int { bytes, signed }));
            match letter {
                b' ' => (),
                b'<' => self.little = true,
                b'>' => self.little = false,
                b'!' => {
                    let align = self.count()?.unwrap_or(8);
                    if align == 0 || !align.is_power_of_two() {
                        return Err("alignment is not a power of 2".to_owned());
                    }
                    self.align = align;
                }
                b'x' => return Ok(Some(Item::Pad)),
                b'b' => return int(1, true),
                b'B' => return int(1, false),
                b'h' => return int(2, true),
                b'H' => return int(2, false),
                b'l' => return int(8, true),
                b'L' | b'T' => return int(8, false),
                b'i' | b'I' => {
                    let bytes = self.count()?.unwrap_or(4);
                    if bytes == 0 || bytes > INT_BYTES_MAX {
                        return Err(format!("integral size {bytes} is larger than limit of {INT_BYTES_MAX}"));
                    }
                    return int(bytes, letter == b'i');
                }
                b'f' => return Ok(Some(Item::Float)),
                b'd' => return Ok(Some(Item::Double)),
                b's' => return Ok(Some(Item::Text)),
                b'c' => return Ok(Some(Item::Chars(self.count()?.unwrap_or(1)))),
                other => return Err(format!("invalid format option '{}'", char::from(other))),
            }
        }
        Ok(None)
    }

    /// How many bytes stand before a value, so that it begins where it may.
    fn padding(&self, item: &Item, at: usize) -> usize {
        let size = match item {
            Item::Int { bytes, .. } => *bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Pad | Item::Text | Item::Chars(_) => 1,
        };
        let align = size.min(self.align);
        if align > 1 && align.is_power_of_two() { (align - (at & (align - 1))) & (align - 1) } else { 0 }
    }
}

fn text_of(args: &[Value], at: usize) -> std::result::Result<Vec<u8>, String> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(other) if number(other).is_some() => Ok(super::convert::shortest(number(other).unwrap_or(0.0), 14).into()),
        other => Err(format!(
            "bad argument #{} to '?' (string expected, got {})",
            at + 1,
            other.map_or("no value", type_name)
        )),
    }
}

fn number_of(args: &[Value], at: usize) -> std::result::Result<f64, String> {
    args.get(at).and_then(number).ok_or_else(|| {
        format!("bad argument #{} to '?' (number expected, got {})", at + 1, args.get(at).map_or("no value", type_name))
    })
}

fn int_bytes(n: f64, bytes: usize, little: bool) -> Vec<u8> {
    let whole = if n < 0.0 { i128::from(n as i64) } else { i128::from(n as u64) };
    let mut out: Vec<u8> = (0..bytes).map(|at| (whole >> (8 * at.min(15))) as u8).collect();
    if !little {
        out.reverse();
    }
    out
}

fn pack(args: &[Value]) -> std::result::Result<Vec<u8>, String> {
    let text = text_of(args, 0)?;
    let (mut format, mut out, mut arg) = (Format::new(&text), Vec::new(), 1);
    while let Some(item) = format.next()? {
        out.resize(out.len() + format.padding(&item, out.len()), 0);
        match item {
            Item::Pad => out.push(0),
            Item::Int { bytes, .. } => out.extend(int_bytes(number_of(args, arg)?, bytes, format.little)),
            Item::Float => {
                let n = number_of(args, arg)? as f32;
                out.extend(if format.little { n.to_le_bytes() } else { n.to_be_bytes() });
            }
            Item::Double => {
                let n = number_of(args, arg)?;
                out.extend(if format.little { n.to_le_bytes() } else { n.to_be_bytes() });
            }
            Item::Text => {
                out.extend(text_of(args, arg)?);
                out.push(0);
            }
            Item::Chars(count) => {
                let text = text_of(args, arg)?;
                let count = if count == 0 { text.len() } else { count };
                let some = text
                    .get(..count)
                    .ok_or_else(|| format!("bad argument #{} to 'pack' (string too short)", arg + 1))?;
                out.extend(some);
            }
        }
        arg += usize::from(!matches!(item, Item::Pad));
        if out.len() > PACKED_BYTES_MAX {
            return Err("result too large".to_owned());
        }
    }
    Ok(out)
}

fn size(args: &[Value]) -> std::result::Result<usize, String> {
    let text = text_of(args, 0)?;
    let (mut format, mut size) = (Format::new(&text), 0);
    while let Some(item) = format.next()? {
        size += format.padding(&item, size);
        size += match item {
            Item::Pad => 1,
            Item::Int { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Text => return Err("variable-size format in 'size'".to_owned()),
            Item::Chars(0) => return Err("variable-length format".to_owned()),
            Item::Chars(count) => count,
        };
        if size > PACKED_BYTES_MAX {
            return Err("result too large".to_owned());
        }
    }
    Ok(size)
}

/// The values, behind whether it went well; last where it goes on.
fn unpack(lua: &Lua, args: &[Value]) -> std::result::Result<MultiValue, Error> {
    let (text, data) = (text_of(args, 0)?, text_of(args, 1)?);
    let start = args.get(2).and_then(number).unwrap_or(1.0);
    if start < 1.0 || start > data.len() as f64 + 1.0 {
        return Err(Error::Why("offset must be 1 or greater".to_owned()));
    }
    let (mut format, mut at) = (Format::new(&text), start as usize - 1);
    let mut values = vec![Value::Boolean(true)];
    while let Some(item) = format.next()? {
        at += format.padding(&item, at);
        let short = || Error::Why("data string too short".to_owned());
        let take = |at: usize, len: usize| data.get(at..).and_then(|rest| rest.get(..len)).ok_or_else(short);
        match item {
            Item::Pad => {
                take(at, 1)?;
                at += 1;
            }
            Item::Int { bytes, signed } => {
                let raw = take(at, bytes)?;
                let ordered = |nth: usize| if format.little { raw[nth] } else { raw[bytes - 1 - nth] };
                let low = (0..bytes.min(8)).fold(0_u64, |all, nth| all | u64::from(ordered(nth)) << (8 * nth));
                let shift = 64 - 8 * bytes.min(8) as u32;
                let n = if signed { ((low << shift) as i64 >> shift) as f64 } else { low as f64 };
                values.push(Value::Number(n));
                at += bytes;
            }
            Item::Float => {
                let raw: [u8; 4] = take(at, 4)?.try_into().map_err(|_| short())?;
                let n = if format.little { f32::from_le_bytes(raw) } else { f32::from_be_bytes(raw) };
                values.push(Value::Number(n.into()));
                at += 4;
            }
            Item::Double => {
                let raw: [u8; 8] = take(at, 8)?.try_into().map_err(|_| short())?;
                values.push(Value::Number(if format.little {
                    f64::from_le_bytes(raw)
                } else {
                    f64::from_be_bytes(raw)
                }));
                at += 8;
            }
            Item::Text => {
                let rest = data.get(at..).ok_or_else(short)?;
                let len = rest.iter().position(|byte| *byte == 0);
                let len = len.ok_or_else(|| Error::Why("unfinished string in data".to_owned()))?;
                values.push(Value::String(lua.create_string(&rest[..len]).map_err(Error::Lua)?));
                at += len + 1;
            }
            Item::Chars(count) => {
                let count = match (count, values.len()) {
                    (0, 2..) => {
                        let len = values.pop().as_ref().and_then(number).filter(|n| *n >= 0.0);
                        len.ok_or_else(|| Error::Why("format 'c0' needs a previous size".to_owned()))? as usize
                    }
                    (0, _) => return Err(Error::Why("format 'c0' needs a previous size".to_owned())),
                    (count, _) => count,
                };
                let chars = take(at, count)?;
                values.push(Value::String(lua.create_string(chars).map_err(Error::Lua)?));
                at += count;
            }
        }
        if values.len() > 7_000 {
            return Err(Error::Why("too many results".to_owned()));
        }
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(MultiValue::from_iter(values))
}
