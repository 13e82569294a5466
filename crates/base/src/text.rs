//! Lengths of time and sizes as people write them, in declarations, answers and tables.

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

const SIZES: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Bytes from `512KiB`, `64MiB`, `2GiB` or `1TiB`.
pub fn size_from_text(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = SIZES.iter().find(|(name, _)| *name == &text[digits..]);
    let size = text[..digits].parse::<u64>().ok().zip(unit).and_then(|(n, (_, unit))| n.checked_mul(*unit));
    size.ok_or_else(|| {
        format!("\"{text}\" is not a size; write a whole number and KiB, MiB, GiB or TiB, like \"64MiB\"")
    })
}

/// A size: one of whole units as [`size_from_text`] reads it back, any other about.
pub fn size_text(bytes: u64) -> String {
    match SIZES.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => match SIZES.iter().find(|(_, unit)| bytes >= *unit) {
            Some((name, unit)) => format!("{:.1}{name}", bytes as f64 / *unit as f64),
            None => format!("{bytes} bytes"),
        },
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

    #[test]
    fn sizes_are_read_and_written_back() {
        for (text, bytes) in
            [("1KiB", 1024), ("1000KiB", 1_024_000), ("64MiB", 64 << 20), ("2GiB", 2 << 30), ("3TiB", 3 << 40)]
        {
            assert_eq!(size_from_text(text), Ok(bytes));
            assert_eq!(size_text(bytes), text);
        }
        for (bytes, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5KiB"), (u64::MAX, "16777216.0TiB")] {
            assert_eq!(size_text(bytes), text);
        }
        for wrong in
            ["", "64", "MiB", "-1MiB", "1.5GiB", "1 MiB", "1MB", "1mib", "99999999999999999999KiB", "17179869184GiB"]
        {
            assert!(size_from_text(wrong).is_err_and(|why| why.contains("like \"64MiB\"")), "{wrong}");
        }
    }
}
