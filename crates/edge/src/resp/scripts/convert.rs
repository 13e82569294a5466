//! Values on their way: replies of commands to Lua, what a script returns to the protocol, numbers to texts.

use bytes::Bytes;
use mlua::{Lua, Result, Table, Value};

use super::limits::{ANSWER_BYTES_MAX, DEPTH_MAX};
use crate::resp::encode::{Protocol, Reply};

/// The number that a value is, or that Lua takes a text for.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) => Some(*n),
        Value::String(text) => text.to_str().ok()?.trim().parse().ok(),
        _ => None,
    }
}

pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// As C's `%.*g` writes it.
pub fn shortest(n: f64, digits: usize) -> String {
    if n.is_nan() {
        return if n.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if n.is_infinite() {
        return if n < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let text = format!("{:.*e}", digits - 1, n);
    let (mantissa, exponent) = text.split_once('e').expect("that is how it is written");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{:.*}", (digits as i32 - 1 - exponent).max(0) as usize, n))
}

/// A reply of a command, as a script sees it.
pub fn to_lua(lua: &Lua, reply: Reply, protocol: Protocol) -> Result<Value> {
    let three = protocol == Protocol::Resp3;
    let field = |name: &str, value: Value| {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    match reply {
        Reply::Simple(word) => field("ok", text(word.as_bytes())?),
        Reply::Error(why) => field("err", text(why.as_bytes())?),
        Reply::Int(n) => Ok(Value::Number(n as f64)),
        Reply::Bulk(bytes) | Reply::Made(bytes) | Reply::Told(bytes) | Reply::Stale(Some(bytes)) => text(&bytes),
        Reply::Stale(None) => Ok(Value::Nil),
        Reply::Text(said) if three => {
            let table = lua.create_table()?;
            table.raw_set("format", "txt")?;
            table.raw_set("string", said)?;
            field("verbatim_string", Value::Table(table))
        }
        Reply::Text(said) => text(said.as_bytes()),
        Reply::Double(bytes) if three => {
            let n = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
            field("double", Value::Number(n))
        }
        Reply::Double(bytes) => text(&bytes),
        Reply::Nil | Reply::NilList if three => Ok(Value::Nil),
        Reply::Nil | Reply::NilList => Ok(Value::Boolean(false)),
        Reply::Set(items) if three => {
            let set = lua.create_table()?;
            for item in items {
                set.raw_set(to_lua(lua, item, protocol)?, true)?;
            }
            field("set", Value::Table(set))
        }
        Reply::List(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            list(lua, items.into_iter(), protocol)
        }
        Reply::Map(pairs) if three => {
            let map = lua.create_table()?;
            for (key, value) in pairs {
                map.raw_set(to_lua(lua, key, protocol)?, to_lua(lua, value, protocol)?)?;
            }
            field("map", Value::Table(map))
        }
        Reply::Named(pairs) if three => to_lua(lua, Reply::Map(pairs), protocol),
        Reply::Pairs(pairs) if three => {
            list(lua, pairs.into_iter().map(|(key, value)| Reply::List(vec![key, value])), protocol)
        }
        Reply::Named(pairs) => list(lua, pairs.into_iter().map(|(key, value)| Reply::List(vec![key, value])), protocol),
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            list(lua, pairs.into_iter().flat_map(|(key, value)| [key, value]), protocol)
        }
    }
}

fn list(lua: &Lua, items: impl Iterator<Item = Reply>, protocol: Protocol) -> Result<Value> {
    let table = lua.create_table()?;
    for (at, item) in items.enumerate() {
        table.raw_set(at + 1, to_lua(lua, item, protocol)?)?;
    }
    Ok(Value::Table(table))
}

/// Writes what a script returns. `inner`: the dialect that the script asked for (`redis.setresp`). Err: why it cannot be written.
pub fn write(value: &Value, inner: Protocol, outer: Protocol) -> std::result::Result<Bytes, String> {
    let mut out = Writer { bytes: Vec::new(), inner, outer };
    out.value(value, 0).map_err(|error| match error {
        mlua::Error::RuntimeError(why) => why,
        other => other.to_string(),
    })?;
    Ok(out.bytes.into())
}

struct Writer {
    bytes: Vec<u8>,
    inner: Protocol,
    outer: Protocol,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(mlua::Error::runtime("ERR reached lua stack limit"));
        }
        if self.bytes.len() > ANSWER_BYTES_MAX {
            return Err(mlua::Error::runtime(format!("ERR a script returns at most {ANSWER_BYTES_MAX} bytes")));
        }
        let three = self.outer == Protocol::Resp3;
        match value {
            Value::String(text) => self.bulk(&text.as_bytes()),
            Value::Integer(n) => self.line(b':', &n.to_string()),
            Value::Number(n) => self.line(b':', &(*n as i64).to_string()),
            Value::Boolean(is) if self.inner == Protocol::Resp3 && three => {
                self.line(b'#', if *is { "t" } else { "f" })
            }
            Value::Boolean(true) => self.line(b':', "1"),
            Value::Table(table) => return self.table(table, depth),
            Value::Boolean(false) if self.inner == Protocol::Resp3 => self.line(b':', "0"),
            _ => self.nil(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let text = |name: &str| {
            Ok::<_, mlua::Error>(match table.raw_get::<Value>(name)? {
                Value::String(text) => Some(text.as_bytes().to_vec()),
                _ => None,
            })
        };
        if let Some(err) = text("err")? {
            self.line_of(b'-', &err);
            return Ok(());
        }
        if let Some(ok) = text("ok")? {
            self.line_of(b'+', &ok);
            return Ok(());
        }
        let three = self.outer == Protocol::Resp3;
        if let Some(n) = match table.raw_get::<Value>("double")? {
            Value::Integer(n) => Some(n as f64),
            Value::Number(n) => Some(n),
            _ => None,
        } {
            let shown = shortest(n, 17);
            if three {
                self.line(b',', &shown)
            } else {
                self.bulk(shown.as_bytes())
            }
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get::<Value>("map")? {
            let pairs: Vec<(Value, Value)> = map.pairs().collect::<Result<_>>()?;
            if three {
                self.line(b'%', &pairs.len().to_string())
            } else {
                self.line(b'*', &(pairs.len() * 2).to_string())
            }
            for (key, value) in pairs {
                self.value(&key, depth + 1)?;
                self.value(&value, depth + 1)?;
            }
            return Ok(());
        }
        if let Value::Table(set) = table.raw_get::<Value>("set")? {
            let pairs: Vec<(Value, Value)> = set.pairs().collect::<Result<_>>()?;
            self.line(if three { b'~' } else { b'*' }, &pairs.len().to_string());
            return pairs.iter().try_for_each(|(key, _)| self.value(key, depth + 1));
        }
        if let Some(big) = text("big_number")? {
            if three {
                self.line_of(b'(', &big)
            } else {
                self.bulk(&big)
            }
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get::<Value>("verbatim_string")? {
            let part = |name: &str| verbatim.raw_get::<mlua::LuaString>(name).map(|text| text.as_bytes().to_vec());
            if let (Ok(format), Ok(string)) = (part("format"), part("string")) {
                if three {
                    let mut format = format;
                    format.resize(3, b' ');
                    self.line(b'=', &(string.len() + 4).to_string());
                    self.bytes.extend([&format[..], b":", &string[..], b"\r\n"].concat());
                } else {
                    self.bulk(&string);
                }
                return Ok(());
            }
        }
        let mut items = Vec::new();
        // An array ends at the first nil.
        loop {
            match table.raw_get::<Value>(items.len() + 1)? {
                Value::Nil => break,
                item => items.push(item),
            }
        }
        self.line(b'*', &items.len().to_string());
        items.iter().try_for_each(|item| self.value(item, depth + 1))
    }

    fn nil(&mut self) {
        self.bytes.extend_from_slice(if self.outer == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', &bytes.len().to_string());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.line_of(kind, text.as_bytes());
    }

    /// A line end in it would be read as the start of the next reply.
    fn line_of(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_c_writes_them() {
        for (n, digits, text) in [
            (0.0, 17, "0"),
            (-0.0, 17, "-0"),
            (3.0, 17, "3"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (1e15, 17, "1000000000000000"),
            (123456789012345678.0, 17, "1.2345678901234568e+17"),
            (1.5e-7, 14, "1.5e-07"),
            (0.0001, 14, "0.0001"),
            (99999999999999.9, 14, "1e+14"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(shortest(n, digits), text);
        }
    }
}
