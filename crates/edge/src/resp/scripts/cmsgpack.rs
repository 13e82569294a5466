//! `cmsgpack`: MessagePack as Redis' library reads and writes it.

use mlua::{Lua, MultiValue, Result, Table, Value, Variadic};

use super::convert::{number, type_name};

/// Deeper tables are written as nil.
const NESTING_MAX: usize = 16;
/// Deeper ones are not read.
const READ_NESTING_MAX: usize = 128;
/// Values that one call gives back: as many as Lua's stack takes.
const VALUES_MAX: usize = 7_000;

pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Ok((false, lua.create_string("bad argument #0 to 'pack' (MessagePack pack needs input.)")?));
        }
        let mut out = Vec::new();
        for value in values.iter() {
            pack(value, &mut out, 0)?;
        }
        Ok((true, lua.create_string(out)?))
    })?;
    table.raw_set("pack", pack)?;
    let all = lua.create_function(|lua, args: Variadic<Value>| unpack(lua, &args, usize::MAX, false))?;
    table.raw_set("unpack", all)?;
    let one = lua.create_function(|lua, args: Variadic<Value>| unpack(lua, &args, 1, true))?;
    table.raw_set("unpack_one", one)?;
    let some = lua.create_function(|lua, args: Variadic<Value>| {
        let limit = args.get(1).and_then(number).unwrap_or(0.0).max(0.0) as usize;
        let args: Vec<Value> = args.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, v)| v.clone()).collect();
        unpack(lua, &args, limit, true)
    })?;
    table.raw_set("unpack_limit", some)?;
    Ok(table)
}

fn pack(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    match value {
        Value::Boolean(is) => out.push(if *is { 0xC3 } else { 0xC2 }),
        Value::Integer(n) => integer(*n, out),
        Value::Number(n) if n.floor() == *n && n.abs() < 9.2e18 => integer(*n as i64, out),
        Value::Number(n) if f64::from(*n as f32) == *n => {
            out.push(0xCA);
            out.extend((*n as f32).to_be_bytes());
        }
        Value::Number(n) => {
            out.push(0xCB);
            out.extend(n.to_be_bytes());
        }
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                len @ 0..32 => out.push(0xA0 | len as u8),
                len @ 32..256 => out.extend([0xD9, len as u8]),
                len @ 256..65_536 => {
                    out.push(0xDA);
                    out.extend((len as u16).to_be_bytes());
                }
                len => {
                    out.push(0xDB);
                    out.extend((len as u32).to_be_bytes());
                }
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < NESTING_MAX => return pack_table(table, out, depth),
        _ => out.push(0xC0),
    }
    Ok(())
}

fn integer(n: i64, out: &mut Vec<u8>) {
    match n {
        0..128 => out.push(n as u8),
        128..256 => out.extend([0xCC, n as u8]),
        256..65_536 => {
            out.push(0xCD);
            out.extend((n as u16).to_be_bytes());
        }
        65_536..0x1_0000_0000 => {
            out.push(0xCE);
            out.extend((n as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xCF);
            out.extend((n as u64).to_be_bytes());
        }
        -32.. => out.push(n as i8 as u8),
        -128.. => out.extend([0xD0, n as i8 as u8]),
        -32_768.. => {
            out.push(0xD1);
            out.extend((n as i16).to_be_bytes());
        }
        -0x8000_0000.. => {
            out.push(0xD2);
            out.extend((n as i32).to_be_bytes());
        }
        _ => {
            out.push(0xD3);
            out.extend(n.to_be_bytes());
        }
    }
}

fn pack_table(table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    let pairs: Vec<(Value, Value)> = table.pairs().collect::<Result<_>>()?;
    let place = |key: &Value| match key {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) if n.floor() == *n => Some(*n),
        _ => None,
    };
    let most = pairs.iter().try_fold(0.0_f64, |most, (key, _)| place(key).filter(|n| *n > 0.0).map(|n| most.max(n)));
    let is_array = most == Some(pairs.len() as f64);
    match (pairs.len(), is_array) {
        (len @ 0..16, true) => out.push(0x90 | len as u8),
        (len @ 0..16, false) => out.push(0x80 | len as u8),
        (len @ 16..65_536, _) => {
            out.push(if is_array { 0xDC } else { 0xDE });
            out.extend((len as u16).to_be_bytes());
        }
        (len, _) => {
            out.push(if is_array { 0xDD } else { 0xDF });
            out.extend((len as u32).to_be_bytes());
        }
    }
    if is_array {
        return (1..=pairs.len()).try_for_each(|at| pack(&table.raw_get::<Value>(at)?, out, depth + 1));
    }
    pairs.iter().try_for_each(|(key, value)| {
        pack(key, out, depth + 1)?;
        pack(value, out, depth + 1)
    })
}

/// Values, behind whether it went well; `partly`: behind where it goes on, -1 at the end.
fn unpack(lua: &Lua, args: &[Value], limit: usize, partly: bool) -> Result<MultiValue> {
    let fails = |why: &str| Ok(MultiValue::from_iter([Value::Boolean(false), Value::String(lua.create_string(why)?)]));
    let Some(Value::String(text)) = args.first() else {
        let got = args.first().map_or("no value", type_name);
        return fails(&format!("bad argument #1 to 'unpack' (string expected, got {got})"));
    };
    let text = text.as_bytes();
    let offset = if partly { args.get(1).and_then(number).unwrap_or(0.0) } else { 0.0 };
    if offset < 0.0 || offset > text.len() as f64 {
        return fails(&format!("Start offset {offset} greater than input length {}.", text.len()));
    }
    let mut reader = Reader { lua, text: &text, at: offset as usize };
    let mut values = Vec::new();
    while values.len() < limit && reader.at < text.len() {
        match reader.value(0) {
            Ok(value) => values.push(value),
            Err(Error::Short) => return fails("Missing bytes in input."),
            Err(Error::Bad) => return fails("Bad data format in input."),
            Err(Error::Lua(error)) => return Err(error),
        }
        if values.len() > VALUES_MAX {
            return fails("Bad data format in input.");
        }
    }
    let mut all = vec![Value::Boolean(true)];
    if partly {
        let next = if reader.at >= text.len() { -1.0 } else { reader.at as f64 };
        all.push(Value::Number(next));
    }
    all.append(&mut values);
    Ok(MultiValue::from_iter(all))
}

enum Error {
    Short,
    Bad,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Error {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bytes(&mut self, len: usize) -> std::result::Result<&[u8], Error> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.text.len()).ok_or(Error::Short)?;
        let bytes = &self.text[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn uint(&mut self, len: usize) -> std::result::Result<u64, Error> {
        Ok(self.bytes(len)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn int(&mut self, len: usize) -> std::result::Result<Value, Error> {
        let shift = 64 - 8 * len as u32;
        Ok(Value::Number(((self.uint(len)? << shift) as i64 >> shift) as f64))
    }

    fn text(&mut self, len: usize) -> std::result::Result<Value, Error> {
        let lua = self.lua;
        let bytes = self.bytes(len)?;
        Ok(Value::String(lua.create_string(bytes)?))
    }

    fn value(&mut self, depth: usize) -> std::result::Result<Value, Error> {
        let kind = self.uint(1)? as u8;
        Ok(match kind {
            0x00..=0x7F => Value::Number(f64::from(kind)),
            0xE0..=0xFF => Value::Number(f64::from(kind as i8)),
            0xA0..=0xBF => self.text(usize::from(kind & 31))?,
            0x90..=0x9F => self.array(usize::from(kind & 15), depth)?,
            0x80..=0x8F => self.map(usize::from(kind & 15), depth)?,
            0xC0 => Value::Nil,
            0xC2 => Value::Boolean(false),
            0xC3 => Value::Boolean(true),
            0xCA => Value::Number(f64::from(f32::from_bits(self.uint(4)? as u32))),
            0xCB => Value::Number(f64::from_bits(self.uint(8)?)),
            0xCC..=0xCF => Value::Number(self.uint(1 << (kind - 0xCC))? as f64),
            0xD0..=0xD3 => self.int(1 << (kind - 0xD0))?,
            0xC4..=0xC6 => {
                let len = self.uint(1 << (kind - 0xC4))?;
                self.text(len as usize)?
            }
            0xD9..=0xDB => {
                let len = self.uint(1 << (kind - 0xD9))?;
                self.text(len as usize)?
            }
            0xDC | 0xDD => {
                let len = self.uint(if kind == 0xDC { 2 } else { 4 })?;
                self.array(len as usize, depth)?
            }
            0xDE | 0xDF => {
                let len = self.uint(if kind == 0xDE { 2 } else { 4 })?;
                self.map(len as usize, depth)?
            }
            _ => return Err(Error::Bad),
        })
    }

    fn array(&mut self, len: usize, depth: usize) -> std::result::Result<Value, Error> {
        if depth > READ_NESTING_MAX {
            return Err(Error::Bad);
        }
        let table = self.lua.create_table()?;
        for at in 1..=len {
            table.raw_set(at, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> std::result::Result<Value, Error> {
        if depth > READ_NESTING_MAX {
            return Err(Error::Bad);
        }
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            // No table has these.
            if !matches!(key, Value::Nil) && !matches!(key, Value::Number(n) if n.is_nan()) {
                table.raw_set(key, value)?;
            }
        }
        Ok(Value::Table(table))
    }
}
