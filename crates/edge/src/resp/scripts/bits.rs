//! `bit`: operations on 32 bits, as LuaJIT has them.

use mlua::{Lua, Result, Table, Value, Variadic};

use super::convert::number;

type Op = fn(u32, u32) -> u32;
/// Of one number.
type One = fn(u32) -> u32;

pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let ones: [(&str, One); 3] = [("tobit", |n| n), ("bnot", |n| !n), ("bswap", u32::swap_bytes)];
    for (name, op) in ones {
        add(lua, &table, name, move |args| Ok(op(of(args, 1)?[0])))?;
    }
    let all: [(&str, Op); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, op) in all {
        add(lua, &table, name, move |args| {
            let bits = of(args, args.len().max(1))?;
            Ok(bits[1..].iter().fold(bits[0], |all, n| op(all, *n)))
        })?;
    }
    let shifts: [(&str, Op); 5] = [
        ("lshift", |a, n| a << (n & 31)),
        ("rshift", |a, n| a >> (n & 31)),
        ("arshift", |a, n| ((a as i32) >> (n & 31)) as u32),
        ("rol", |a, n| a.rotate_left(n & 31)),
        ("ror", |a, n| a.rotate_right(n & 31)),
    ];
    for (name, op) in shifts {
        add(lua, &table, name, move |args| of(args, 2).map(|n| op(n[0], n[1])))?;
    }
    let tohex = lua.create_function(|lua, args: Variadic<Value>| {
        let digits = args.get(1).map_or(Ok(8), |value| bits_of(value, 2).map(|n| n as i32));
        let text = of(&args, 1).and_then(|n| digits.map(|digits| hex(n[0], digits)));
        let (went, text) = text.map_or_else(|why| (false, why), |text| (true, text));
        Ok((went, lua.create_string(text)?))
    })?;
    table.raw_set("tohex", tohex)?;
    Ok(table)
}

/// As prelude.lua takes it: whether it went well, and what came of it.
fn add(
    lua: &Lua,
    table: &Table,
    name: &str,
    run: impl Fn(&[Value]) -> std::result::Result<u32, String> + 'static,
) -> Result<()> {
    let run = lua.create_function(move |lua, args: Variadic<Value>| match run(&args) {
        Ok(bits) => Ok((true, Value::Number(f64::from(bits as i32)))),
        Err(why) => Ok((false, Value::String(lua.create_string(why)?))),
    })?;
    table.raw_set(name, run)
}

fn hex(n: u32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{n:08X}") } else { format!("{n:08x}") };
    text[8 - count..].to_owned()
}

fn of(args: &[Value], count: usize) -> std::result::Result<Vec<u32>, String> {
    (0..count).map(|at| bits_of(args.get(at).unwrap_or(&Value::Nil), at + 1)).collect()
}

fn bits_of(value: &Value, at: usize) -> std::result::Result<u32, String> {
    match number(value) {
        Some(n) => Ok(n.round_ties_even().rem_euclid(4_294_967_296.0) as u32),
        None => Err(format!("bad argument #{at} to '?' (number expected, got {})", super::convert::type_name(value))),
    }
}
