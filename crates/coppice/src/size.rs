//! Sizes as people write them: `512MiB`, `2GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 2] = [("MiB", 1 << 20), ("GiB", 1 << 30)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text[digits..])).map(|(_, unit)| unit);
        let number = text[..digits].parse::<u64>().ok();
        number
            .zip(unit)
            .and_then(|(number, unit)| number.checked_mul(*unit))
            .map(Size)
            .ok_or_else(|| format!("\"{text}\" is not a size; write a whole number and MiB or GiB, like \"512MiB\""))
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, unit)| self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// A brick's memory from the command line: enough for a few of the largest values.
pub fn brick_memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let least = Size(state::session::limits::BRICK_BYTES_MIN);
    if size.0 < least.0 { Err(format!("{size} is too little for a brick; {least} at least")) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_back() {
        for (text, bytes) in [("16MiB", 16 << 20), ("2GiB", 2 << 30), ("1536MiB", 1536 << 20)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        for wrong in ["", "1", "MiB", "1 GiB", "1.5GiB", "-1MiB", "99999999999999999999GiB", "18446744073709551615GiB"]
        {
            assert!(wrong.parse::<Size>().unwrap_err().contains("like \"512MiB\""), "{wrong}");
        }
        assert!(brick_memory("15MiB").unwrap_err().contains("16MiB at least"));
    }
}
