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
        let now = text_of(space, key)?.map_or(&b"0"[..], |text| text);
        let sum = sum(now, one(args)?)?;
        space.set_keeping_end(key, Value::Text(sum.clone()));
        Ok(Reply::Bytes(sum))
    }),
];

/// The sum of two numbers that may have fractions, the same at every replica. Within [`FIXED_DIGITS_MAX`] it is that of their decimal
/// texts: people expect 0.1 and 0.2 to be 0.3. (Redis gets there by the processor's long numbers, which not all have.)
pub fn sum(a: &[u8], b: &[u8]) -> std::result::Result<Bytes, Wrong> {
    let (a, b) = (text(a)?, text(b)?);
    if let Some(sum) = fixed(a).zip(fixed(b)).and_then(|(a, b)| a.checked_add(b)) {
        return Ok(shown(sum).into());
    }
    // IEEE arithmetic and Rust's shortest text of what comes of it are the same everywhere, too.
    let sum = a.parse::<f64>().unwrap_or(f64::NAN) + b.parse::<f64>().unwrap_or(f64::NAN);
    if sum.is_finite() { Ok(sum.to_string().into()) } else { Err(Wrong::Overflow) }
}

/// The text of a number, perhaps of an infinite one.
fn text(bytes: &[u8]) -> std::result::Result<&str, Wrong> {
    let text = std::str::from_utf8(bytes).map_err(|_| Wrong::NotAFloat)?;
    let is_number = text.parse::<f64>().is_ok_and(|number| !number.is_nan());
    if is_number { Ok(text) } else { Err(Wrong::NotAFloat) }
}

/// A number in units of its last place, rounded to that; none if it has too many digits.
fn fixed(text: &str) -> Option<i128> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole.trim_start_matches(['+', '-']), fraction].concat();
    let digits = digits.trim_start_matches('0');
    let exponent: i64 = exponent.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    // So many of the digits, or zeros behind them, stand before the end of the last place.
    let len = (digits.len() as i64 - fraction.len() as i64).checked_add(exponent)?.checked_add(PLACES as i64)?;
    let Ok(len) = usize::try_from(len) else { return Some(0) };
    if len > FIXED_DIGITS_MAX {
        return None;
    }
    let kept = format!("0{:0<len$}", &digits[..len.min(digits.len())]);
    let rounds_up = digits.as_bytes().get(len).is_some_and(|next| *next >= b'5');
    let units = kept.parse::<i128>().ok()? + i128::from(rounds_up);
    Some(if whole.starts_with('-') { -units } else { units })
}

fn shown(units: i128) -> String {
    let (sign, units) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
    let unit = 10u128.pow(PLACES as u32);
    let text = format!("{sign}{}.{:02$}", units / unit, units % unit, PLACES);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Behind the point: as many as Redis shows.
const PLACES: usize = 17;
/// So many digits fit into an `i128`: numbers below 10^21.
const FIXED_DIGITS_MAX: usize = 38;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &str, b: &str, expect: &str) {
        let sum = sum(a.as_bytes(), b.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&sum).unwrap(), expect, "{a} + {b}");
    }

    #[test]
    fn sums_are_those_of_decimal_numbers() {
        check("0.1", "0.2", "0.3");
        check("10.50", "0.1", "10.6");
        check("10.6", "-5", "5.6");
        check("5.0e3", "2.0e2", "5200");
        check("3.0E3", "-.5e-1", "2999.95");
        check("+1.", "1e0", "2");
        check("1", "-1.0", "0");
        check("-0", "-0.0", "0");
        check("-0.1", "0", "-0.1");
        check("0.1", "-0.3", "-0.2");
        check("000000000000000000000000000000000000000000.25", "0.2500000000000000000000000000000000000000000", "0.5");
        // Where a double has no more digits, and where a long one has none.
        check("9007199254740993", "0.00000000000000001", "9007199254740993.00000000000000001");
        check("999999999999999999999", "0.99999999999999999", "999999999999999999999.99999999999999999");
        check("999999999999999999999.9", "0.1", "1000000000000000000000");
        // What is behind the last place is rounded.
        check("0.000000000000000004", "0", "0");
        check("0.000000000000000005", "0", "0.00000000000000001");
        check("-0.000000000000000015", "0", "-0.00000000000000002");
        check("1e-300", "1", "1");
        check("1e-99999999999999999999", "0.1", "0.1");
    }

    #[test]
    fn what_is_larger_is_a_double_and_what_is_no_number_is_refused() {
        check("1e21", "1", "1000000000000000000000");
        check("1e30", "1e30", "2000000000000000000000000000000");
        check("1e300", "-1e300", "0");
        let refused = |a: &str, b: &str| sum(a.as_bytes(), b.as_bytes()).unwrap_err();
        for infinite in ["inf", "-Infinity", "1e400", "1e99999999999999999999", "-1e308"] {
            assert_eq!(refused(infinite, "-1e308"), Wrong::Overflow, "{infinite}");
        }
        for wrong in ["", " 1", "1 ", "nan", "0x10", "1,5", "e5", ".", "-", "--1", "1e", "1_0", "one"] {
            assert_eq!(refused(wrong, "1"), Wrong::NotAFloat, "{wrong:?}");
            assert_eq!(refused("1", wrong), Wrong::NotAFloat, "{wrong:?}");
        }
    }
}
