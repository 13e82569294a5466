//! Scores of sorted sets as texts, as Redis reads and writes them: the same at every replica.

/// A score. None, if it is no number, or one that no double can hold: too large, or so small that it would be 0.
pub fn parse(text: &[u8]) -> Option<f64> {
    let score = edge(text)?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    // Words have no digits.
    let is_said = match score {
        0.0 => !mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9')),
        score if score.is_infinite() => !text.iter().any(u8::is_ascii_digit),
        _ => true,
    };
    Some(score).filter(|_| is_said)
}

/// An edge of a range, which may lie beyond all doubles.
pub fn edge(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(score).filter(|score| !score.is_nan())
}

/// The shortest text that means this score, in the form of Redis since 7.2.
pub fn shown(score: f64) -> String {
    if score.is_infinite() {
        return if score < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    if score == 0.0 {
        return if score.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if score.abs() <= WHOLE_MAX && score.fract() == 0.0 {
        return (score as i64).to_string();
    }
    let sign = if score < 0.0 { "-" } else { "" };
    let text = format!("{:e}", score.abs());
    let (mantissa, exponent) = text.split_once('e').expect("this form has one");
    let (digits, exponent) = (mantissa.replace('.', ""), exponent.parse::<i32>().expect("and a number behind it"));
    let len = digits.len() as i32;
    // It is the digits times ten to this.
    let power = exponent - (len - 1);
    if power >= 0 && exponent < len + 7 {
        return format!("{sign}{digits}{}", "0".repeat(power as usize));
    }
    if power < 0 && (power > -7 || exponent.abs() < 4) {
        let before = len + power;
        return if before <= 0 {
            format!("{sign}0.{}{digits}", "0".repeat(-before as usize))
        } else {
            let (before, behind) = digits.split_at(before as usize);
            format!("{sign}{before}.{behind}")
        };
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { "-" } else { "+" };
    format!("{sign}{first}{point}{rest}e{direction}{}", exponent.abs())
}

/// Whole numbers up to this are shown as such: half of what 64 bits hold.
const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_shown_as_redis_shows_them() {
        let table = [
            (3.2, "3.2"),
            (-0.0, "-0"),
            (0.0, "0"),
            (17.0, "17"),
            (-17.5, "-17.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0001, "0.0001"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (-1.5e-7, "-1.5e-7"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1234.5678901234567, "1234.5678901234567"),
            (12345.678901234567, "1.2345678901234567e+4"),
            (9007199254740993.0, "9007199254740992"),
            (4611686018427387904.0, "4611686018427387904"),
            (4611686018427387904.0 * 2.0, "9223372036854776000"),
            (1e20, "1e+20"),
            (1.5e20, "1.5e+20"),
            (1e300, "1e+300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ];
        for (score, text) in table {
            assert_eq!(shown(score), text);
            assert!(parse(text.as_bytes()).unwrap().total_cmp(&score).is_eq(), "{text}");
        }
    }

    #[test]
    fn what_is_a_score_and_what_is_not() {
        for (text, score) in [("+inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY), ("+1.", 1.0), (".5e1", 5.0)] {
            assert_eq!(parse(text.as_bytes()), Some(score), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "-nan", "one", "1,5", "1e", "1e400", "-1e400", "1e-400", "(1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"0e-999"), Some(0.0));
        assert_eq!(edge(b"1e400"), Some(f64::INFINITY));
        assert_eq!(edge(b"nan"), None);
    }
}
