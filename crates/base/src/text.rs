//! Lengths of time as people write them, in declarations, answers and tables.

/// Milliseconds from `1500ms`, `20s`, `30m`, `2h` or `7d`.
pub fn span_from_text(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let number = text[..digits].parse::<u64>().ok().filter(|_| unit > 0);
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(|| {
        format!("\"{text}\" is not a length of time; write a whole number and ms, s, m, h or d, like \"30m\"")
    })
}

/// The shortest text that [`span_from_text`] reads back.
pub fn span_text(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_written_back() {
        for (text, ms) in
            [("30m", 1_800_000), ("1500ms", 1500), ("20s", 20_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(span_from_text(text), Ok(ms));
            assert_eq!(span_text(ms), text);
        }
        for wrong in ["", "30", "m", "-1s", "1.5h", "30 m", "99999999999999999999s", "18446744073709551615d"] {
            assert!(span_from_text(wrong).is_err_and(|why| why.contains("like \"30m\"")), "{wrong}");
        }
    }
}
