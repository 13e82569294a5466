//! How long a node keeps what others miss while they are away: `--away-for`, or `away_for` in `node.toml`.

use std::fmt;
use std::str::FromStr;

use base::{Span, text};
use serde::{Deserialize, Serialize};

/// Each of its 168 parts is a change that all nodes agree on.
const LEAST_MS: u64 = 60_000;
/// A year.
const MOST_MS: u64 = 366 * 86_400_000;

/// Milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AwayFor(u64);

impl AwayFor {
    pub fn span(self) -> Span {
        Span::millis(self.0)
    }
}

impl FromStr for AwayFor {
    type Err = String;

    fn from_str(said: &str) -> Result<Self, String> {
        let ms = text::span_from_text(said)?;
        let (least, most) = (text::span_text(LEAST_MS), text::span_text(MOST_MS));
        match ms {
            ..LEAST_MS => Err(format!("{said} is too short for a node to be away; {least} at least")),
            LEAST_MS..=MOST_MS => Ok(Self(ms)),
            _ => Err(format!("{said} is too long to keep what a node misses; {most} at most")),
        }
    }
}

impl TryFrom<String> for AwayFor {
    type Error = String;

    fn try_from(said: String) -> Result<Self, String> {
        said.parse()
    }
}

impl From<AwayFor> for String {
    fn from(it: AwayFor) -> Self {
        it.to_string()
    }
}

impl fmt::Display for AwayFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::span_text(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_minute_to_a_year_and_is_written_as_it_is_read() {
        for (said, secs) in [("1m", 60), ("90s", 90), ("7d", 7 * 86_400), ("366d", 366 * 86_400)] {
            let it: AwayFor = said.parse().unwrap();
            assert_eq!((it.span(), it.to_string()), (Span::secs(secs), said.to_owned()));
        }
        for (said, why) in [("59s", "1m at least"), ("367d", "366d at most"), ("week", "length of time")] {
            assert!(said.parse::<AwayFor>().unwrap_err().contains(why), "{said}");
        }
        let default: AwayFor = "7d".parse().unwrap();
        assert_eq!(state::Settings::default().object.away_for, default.span(), "as the help and the docs say");
    }
}
