//! `cjson`: what `cjson.encode` and `cjson.decode` do in Redis.

use mlua::{Lua, Result, Table, Value};

use super::convert::{number, shortest, type_name};
use super::limits::DEPTH_MAX;

pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let encode = lua.create_function(|lua, value: Value| {
        let mut out = Vec::new();
        let (went, text) = match encode(&value, &mut out, 0) {
            Ok(()) => (true, out),
            Err(Error::Why(why)) => (false, why.into_bytes()),
            Err(Error::Lua(error)) => return Err(error),
        };
        Ok((went, lua.create_string(text)?))
    })?;
    let decode = lua.create_function(|lua, text: Value| {
        let text = match &text {
            Value::String(text) => text.as_bytes().to_vec(),
            other if number(other).is_some() => shortest(number(other).unwrap_or(0.0), 14).into_bytes(),
            other => {
                let why = format!("bad argument #1 to 'decode' (string expected, got {})", type_name(other));
                return Ok((false, Value::String(lua.create_string(why)?)));
            }
        };
        let mut reader = Reader { lua, text: &text, at: 0 };
        match reader.document() {
            Ok(value) => Ok((true, value)),
            Err(Error::Why(why)) => Ok((false, Value::String(lua.create_string(why)?))),
            Err(Error::Lua(error)) => Err(error),
        }
    })?;
    table.raw_set("encode", encode)?;
    table.raw_set("decode", decode)?;
    Ok(table)
}

enum Error {
    /// What the script is told.
    Why(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Error {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

type Done<T> = std::result::Result<T, Error>;

fn why<T>(text: impl Into<String>) -> Done<T> {
    Err(Error::Why(text.into()))
}

fn encode(value: &Value, out: &mut Vec<u8>, depth: usize) -> Done<()> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(data) if data.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        Value::Integer(_) | Value::Number(_) => out.extend_from_slice(shown(value)?.as_bytes()),
        Value::String(text) => quote(&text.as_bytes(), out),
        Value::Table(table) => {
            if depth >= DEPTH_MAX {
                return why(format!("Cannot serialise, excessive nesting ({})", depth + 1));
            }
            match array_len(table)? {
                Some(len) => {
                    out.push(b'[');
                    for at in 1..=len {
                        if at > 1 {
                            out.push(b',');
                        }
                        encode(&table.raw_get::<Value>(at)?, out, depth + 1)?;
                    }
                    out.push(b']');
                }
                None => object(table, out, depth)?,
            }
        }
        other => return why(format!("Cannot serialise {}: type not supported", type_name(other))),
    }
    Ok(())
}

fn object(table: &Table, out: &mut Vec<u8>, depth: usize) -> Done<()> {
    out.push(b'{');
    for (nth, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if nth > 0 {
            out.push(b',');
        }
        match &key {
            Value::String(text) => quote(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                out.extend_from_slice(shown(&key)?.as_bytes());
                out.push(b'"');
            }
            _ => return why(format!("Cannot serialise {}: table key must be a number or string", type_name(&key))),
        }
        out.push(b':');
        encode(&value, out, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}

fn shown(value: &Value) -> Done<String> {
    let n = number(value).unwrap_or(f64::NAN);
    if n.is_finite() { Ok(shortest(n, 14)) } else { why("Cannot serialise number: must not be NaN or Inf") }
}

/// How long the array is that a table is; none if it is an object, as an empty one is.
fn array_len(table: &Table) -> Done<Option<usize>> {
    let (mut most, mut count) = (0.0_f64, 0.0);
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            Value::Integer(n) if n > 0 => most = most.max(n as f64),
            Value::Number(n) if n > 0.0 && n.floor() == n => most = most.max(n),
            _ => return Ok(None),
        }
        count += 1.0;
    }
    if count == 0.0 {
        return Ok(None);
    }
    if most > count * 2.0 && most > 10.0 {
        return why("Cannot serialise table: excessively sparse array");
    }
    Ok(Some(most as usize))
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..=31 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn document(&mut self) -> Done<Value> {
        let value = self.value(0)?;
        self.blank();
        if self.at < self.text.len() { self.expected("the end") } else { Ok(value) }
    }

    fn blank(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            self.at += 1;
        }
    }

    fn expected<T>(&self, what: &str) -> Done<T> {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b'"') => "T_STRING",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'0'..=b'9' | b'-') => "T_NUMBER",
            Some(_) => "invalid token",
        };
        why(format!("Expected {what} but found {found} at character {}", self.at + 1))
    }

    fn value(&mut self, depth: usize) -> Done<Value> {
        self.blank();
        let rest = &self.text[self.at..];
        for (word, value) in
            [(&b"true"[..], Value::Boolean(true)), (b"false", Value::Boolean(false)), (b"null", Value::NULL)]
        {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match rest.first() {
            Some(b'"') => Ok(Value::String(self.lua.create_string(self.string()?)?)),
            Some(b'{' | b'[') if depth >= DEPTH_MAX => {
                why(format!("Found too many nested data structures ({}) at character {}", depth + 1, self.at + 1))
            }
            Some(b'[') => self.array(depth),
            Some(b'{') => self.map(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.expected("value"),
        }
    }

    fn array(&mut self, depth: usize) -> Done<Value> {
        let table = self.lua.create_table()?;
        self.at += 1;
        self.blank();
        if self.takes(b']') {
            return Ok(Value::Table(table));
        }
        for nth in 1.. {
            table.raw_set(nth, self.value(depth + 1)?)?;
            self.blank();
            if self.takes(b']') {
                break;
            }
            if !self.takes(b',') {
                return self.expected("comma or array end");
            }
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, depth: usize) -> Done<Value> {
        let table = self.lua.create_table()?;
        self.at += 1;
        self.blank();
        if self.takes(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            self.blank();
            if self.text.get(self.at) != Some(&b'"') {
                return self.expected("object key string");
            }
            let key = self.lua.create_string(self.string()?)?;
            self.blank();
            if !self.takes(b':') {
                return self.expected("colon");
            }
            let value = self.value(depth + 1)?;
            table.raw_set(key, value)?;
            self.blank();
            if self.takes(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.takes(b',') {
                return self.expected("comma or object end");
            }
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is);
        is
    }

    fn number(&mut self) -> Done<Value> {
        let len = self.text[self.at..].iter().take_while(|byte| b"+-0123456789.eE".contains(byte)).count();
        let text = std::str::from_utf8(&self.text[self.at..self.at + len]).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(n) => {
                self.at += len;
                Ok(Value::Number(n))
            }
            Err(_) => why(format!("Expected value but found invalid number at character {}", self.at + 1)),
        }
    }

    fn string(&mut self) -> Done<Vec<u8>> {
        let mut out = Vec::new();
        let start = self.at;
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return why(format!("Expected value but found unexpected end of string at character {}", self.at + 1));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(out),
                b'\\' => {
                    let Some(&escaped) = self.text.get(self.at) else { continue };
                    self.at += 1;
                    match escaped {
                        b'"' | b'\\' | b'/' => out.push(escaped),
                        b'b' => out.push(8),
                        b'f' => out.push(12),
                        b'n' => out.push(10),
                        b'r' => out.push(13),
                        b't' => out.push(9),
                        b'u' => match self.code_point() {
                            Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                            None => {
                                let at = self.at - 1;
                                return why(format!(
                                    "Expected value but found invalid unicode escape code at character {at}"
                                ));
                            }
                        },
                        _ => {
                            let at = self.at - 1;
                            return why(format!("Expected value but found invalid escape code at character {at}"));
                        }
                    }
                }
                0 => return why(format!("Expected value but found invalid token at character {}", start + 1)),
                _ => out.push(byte),
            }
        }
    }

    fn code_point(&mut self) -> Option<char> {
        let high = self.hex4()?;
        if !(0xD800..0xDC00).contains(&high) {
            return char::from_u32(high);
        }
        if self.text.get(self.at..self.at + 2)? != b"\\u" {
            return None;
        }
        self.at += 2;
        let low = self.hex4().filter(|low| (0xDC00..0xE000).contains(low))?;
        char::from_u32(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        self.at += 4;
        Some(code)
    }
}
