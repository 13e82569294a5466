//! What an experiment found: figures with ratios, and the files it wrote.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub figures: Vec<Figure>,
    pub files: Vec<PathBuf>,
    /// What a reader must know to compare fairly.
    pub notes: Vec<String>,
    /// When, where and how it was run; known once it is stored.
    #[serde(default)]
    pub made: Option<Made>,
}

/// What is kept of one run of an experiment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Made {
    /// `2026-11-27`
    pub date: String,
    /// Processors and memory.
    pub machine: String,
    pub command: String,
}

impl Made {
    /// Makes that of this process, now.
    fn now() -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib: Option<u64> =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        let machine = match kib {
            Some(kib) => format!("{processors} processors, {} GiB", (kib + (1 << 19)) >> 20),
            None => format!("{processors} processors"),
        };
        // Where its files go is no part of how it was run.
        let mut args: Vec<String> = std::env::args().skip(1).collect();
        if let Some(at) = args.iter().position(|arg| arg == "--out") {
            args.drain(at..args.len().min(at + 2));
        }
        let command = format!("cargo run --release -p lab -- {}", args.join(" "));
        Self { date: date(since.as_secs() / 86_400), machine, command }
    }
}

/// The date of a day since 1970, in the calendar that is counted from 1 March of the year 0, whose leap day is a year's last.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", 400 * era + year + u64::from(month <= 2))
}

/// One measure of both sides. A peer that is not installed has no figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub measure: String,
    pub unit: String,
    pub coppice: f64,
    pub peer: Option<f64>,
    pub peer_name: String,
    /// Coppice over peer.
    pub ratio: Option<f64>,
}

impl Figure {
    pub fn new(measure: impl Into<String>, unit: &str, coppice: f64, peer_name: &str, peer: Option<f64>) -> Self {
        let ratio = peer.filter(|p| *p > 0.0).map(|p| coppice / p);
        Self { measure: measure.into(), unit: unit.into(), coppice, peer, peer_name: peer_name.into(), ratio }
    }
}

impl Report {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), figures: Vec::new(), files: Vec::new(), notes: Vec::new(), made: None }
    }

    pub fn print(&self, json: bool) {
        let mut table =
            format!("{:<44} {:>14} {:>14} {:>8}  {}\n", self.name, "coppice", "peer", "ratio", "unit, peer");
        for f in &self.figures {
            let number = |n: Option<f64>| {
                n.map_or_else(
                    || "not run".to_owned(),
                    |n| if n >= 100.0 { format!("{n:.0}") } else { format!("{n:.2}") },
                )
            };
            let ratio = f.ratio.map_or_else(String::new, |r| format!("{r:.2}"));
            table += &format!(
                "{:<44} {:>14} {:>14} {:>8}  {}, {}\n",
                f.measure,
                number(Some(f.coppice)),
                number(f.peer),
                ratio,
                f.unit,
                f.peer_name
            );
        }
        for note in &self.notes {
            table += &format!("note: {note}\n");
        }
        for file in &self.files {
            table += &format!("wrote {}\n", file.display());
        }
        if json {
            eprint!("{table}");
            println!("{}", serde_json::to_string(self).expect("plain data"));
        } else {
            print!("{table}");
        }
    }

    /// With all that it says in a file of its own, too.
    pub fn stored(mut self, out: &Path) -> Result<Self, String> {
        self.made = Some(Made::now());
        let text = serde_json::to_string_pretty(&self).expect("plain data");
        let name = format!("{}.json", self.name);
        self.write(out, &name, &text)?;
        Ok(self)
    }

    /// Writes a file of this experiment's results.
    pub fn write(&mut self, out: &Path, name: &str, text: &str) -> Result<(), String> {
        let path = out.join(name);
        std::fs::create_dir_all(out)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        if !self.files.contains(&path) {
            self.files.push(path);
        }
        Ok(())
    }
}

/// The middle one; of an even number the lower middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_medians() {
        assert_eq!(Figure::new("m", "u", 3.0, "p", Some(2.0)).ratio, Some(1.5));
        assert_eq!(Figure::new("m", "u", 3.0, "p", None).ratio, None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn days_have_their_dates() {
        let dates = [(0, "1970-01-01"), (789, "1972-02-29"), (790, "1972-03-01"), (11_016, "2000-02-29")];
        for (days, text) in dates.into_iter().chain([(20_784, "2026-11-27"), (47_541, "2100-03-01")]) {
            assert_eq!(date(days), text);
        }
    }

    #[test]
    fn the_json_has_its_documented_fields() {
        let mut report = Report::new("session");
        report.figures.push(Figure::new("m", "u", 3.0, "p", Some(2.0)));
        let json = serde_json::to_value(&report).unwrap_or_default();
        for key in ["name", "figures", "files"] {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in ["measure", "unit", "coppice", "peer", "peer_name", "ratio"] {
            assert!(json["figures"][0].get(key).is_some(), "{key}");
        }
    }
}
