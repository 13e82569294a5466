//! Numbers, kept as decimal text.

use super::*;

pub const ALL: &[Function] = &[
    weak(
        sum_of_both,
        write("number.add", "delta", |space, key, args| {
            let delta = integer(one(args)?)?;
            let now = text_of(space, key)?.map_or(Ok(0), |text| integer(text))?;
            let sum = now.checked_add(delta).ok_or(Wrong::Overflow)?;
            space.set_keeping_end(key, Value::Text(sum.to_string().into()));
            Ok(Reply::Int(sum))
        }),
    ),
    write("number.add-float", "delta", |space, key, args| {
        let delta = float(one(args)?)?;
        let now = text_of(space, key)?.map_or(Ok(0.0), |text| float(text))?;
        let sum = sum(now, delta)?;
        space.set_keeping_end(key, Value::Text(sum.clone()));
        Ok(Reply::Bytes(sum))
    }),
];

pub fn float(text: &[u8]) -> std::result::Result<f64, Wrong> {
    let text = std::str::from_utf8(text).map_err(|_| Wrong::NotAFloat)?;
    text.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or(Wrong::NotAFloat)
}

/// Sum and its shortest text: IEEE arithmetic gives the same everywhere.
pub fn sum(a: f64, b: f64) -> std::result::Result<Bytes, Wrong> {
    let sum = a + b;
    if sum.is_finite() { Ok(sum.to_string().into()) } else { Err(Wrong::NotAFloat) }
}
