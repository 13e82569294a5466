//! What this node's clones have printed: the form of a line in the files of `logs/`, and how lines are found again. `output.rs`
//! writes the files; who asks other nodes for theirs is the wiring's business.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits::{LOG_ANSWER_BYTES_MAX, LOG_READ_BYTES};
use crate::output::file_name;

/// Where a line comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Standard output of the program.
    Out,
    /// Its standard error.
    Err,
    /// The node, of the program: that it was started, how it ended.
    Node,
}

impl Source {
    fn word(self) -> &'static str {
        match self {
            Source::Out => "out",
            Source::Err => "err",
            Source::Node => "node",
        }
    }
}

/// One line of a clone's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// Microseconds since 1970 by the clock of its node. No two lines of a node have the same.
    pub at_us: u64,
    /// Name of the node; empty until whoever gathers lines of several nodes sets it.
    #[serde(default)]
    pub node: String,
    /// Number of the clone within its service.
    pub clone: u32,
    /// Of the service, 0 if it was never deployed.
    pub version: u32,
    pub source: Source,
    pub line: String,
}

/// What is asked of one node's logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogWish {
    pub service: String,
    /// This clone alone.
    pub clone: Option<u32>,
    /// This version alone.
    pub version: Option<u32>,
    /// Lines after this moment, microseconds since 1970.
    pub after_us: u64,
    /// Lines at most.
    pub lines: usize,
    /// If there are more: the oldest of them, for whoever reads on from a place. Else the newest.
    pub oldest: bool,
}

/// What one node has of it, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogPart {
    pub lines: Vec<LogLine>,
    /// There are more, which were asked for and had no room.
    pub more: bool,
}

/// One line as it stands in a file: `SECONDS.MICROSECONDS vVERSION SOURCE TEXT`.
pub(crate) struct Written<'a> {
    pub at_us: u64,
    pub version: u32,
    pub source: Source,
    pub text: &'a str,
}

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(f, "{seconds}.{micros:06} v{} {} {}", self.version, self.source.word(), self.text)
    }
}

impl<'a> Written<'a> {
    /// Nothing for a line of another form: programs before 0.2 wrote the text alone.
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (seconds, micros) = words.next()?.split_once('.')?;
        let at_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
        let version = words.next()?.strip_prefix('v')?.parse().ok()?;
        let word = words.next()?;
        let source = [Source::Out, Source::Err, Source::Node].into_iter().find(|source| source.word() == word)?;
        Some(Self { at_us, version, source, text: words.next()? })
    }
}

/// Looks into the files of a node's folder `logs`. It blocks on the disk.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn find(dir: &Path, wish: &LogWish) -> io::Result<LogPart> {
    let mut part = LogPart::default();
    for (clone, path) in files_of(dir, &wish.service)? {
        if wish.clone.is_some_and(|only| only != clone) {
            continue;
        }
        // The newer file first: if it becomes the older one meanwhile, its lines come twice and not never.
        for path in [path.clone(), older(&path)] {
            match tail(&path, wish) {
                Ok(bytes) => take(&bytes, clone, wish, &mut part.lines),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(error),
            }
        }
        // Clone by clone, so that the lines of many clones are never all in memory.
        part.lines.sort_by_key(|line| line.at_us);
        part.lines.dedup_by_key(|line| line.at_us);
        part.more |= bound(&mut part.lines, wish);
    }
    Ok(part)
}

/// Cuts to the lines that were asked for; whether there were more.
pub fn bound(lines: &mut Vec<LogLine>, wish: &LogWish) -> bool {
    let mut bytes = 0;
    let mut fits = |line: &LogLine| {
        bytes += size_of::<LogLine>() + line.line.len();
        bytes <= LOG_ANSWER_BYTES_MAX
    };
    let all = lines.len();
    if wish.oldest {
        let keep = lines.iter().take(wish.lines).take_while(|line| fits(line)).count();
        lines.truncate(keep);
    } else {
        let keep = lines.iter().rev().take(wish.lines).take_while(|line| fits(line)).count();
        lines.drain(..all - keep);
    }
    lines.len() < all
}

/// The log files of a service's clones, by number.
fn files_of(dir: &Path, service: &str) -> io::Result<Vec<(u32, PathBuf)>> {
    let begin = file_name(&format!("{service}/"));
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&begin)?.strip_suffix(".log"));
        if let Some(clone) = number.and_then(|number| number.parse().ok()) {
            found.push((clone, dir.join(name)));
        }
    }
    found.sort();
    Ok(found)
}

/// What a full file becomes.
pub(crate) fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Reads a file from its end until it is before all that was asked for.
fn tail(path: &Path, wish: &LogWish) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut want = LOG_READ_BYTES;
    loop {
        let from = len.saturating_sub(want);
        let mut bytes = vec![0; (len - from) as usize];
        file.read_exact_at(&mut bytes, from)?;
        if from == 0 {
            return Ok(bytes);
        }
        // The first line is not whole.
        let begin = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let rest = &bytes[begin..];
        let first = rest.split(|&byte| byte == b'\n').next().and_then(|line| str::from_utf8(line).ok());
        let is_before = first.and_then(Written::read).is_some_and(|first| first.at_us <= wish.after_us);
        let is_all = !wish.oldest && wish.version.is_none() && {
            let lines = rest.iter().filter(|&&byte| byte == b'\n').count();
            lines > wish.lines
        };
        if is_before || is_all {
            return Ok(bytes.split_off(begin));
        }
        want *= 4;
    }
}

fn take(bytes: &[u8], clone: u32, wish: &LogWish, lines: &mut Vec<LogLine>) {
    // What has no end is being written.
    let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else { return };
    for line in bytes[..end].split(|&byte| byte == b'\n') {
        let Some(Written { at_us, version, source, text }) = str::from_utf8(line).ok().and_then(Written::read) else {
            continue;
        };
        if at_us > wish.after_us && wish.version.is_none_or(|only| only == version) {
            lines.push(LogLine { at_us, node: String::new(), clone, version, source, line: text.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::temp_dir;

    fn wish(service: &str) -> LogWish {
        LogWish { service: service.into(), clone: None, version: None, after_us: 0, lines: 1000, oldest: false }
    }

    fn written(at_us: u64, version: u32, text: &str) -> String {
        format!("{}\n", Written { at_us, version, source: Source::Out, text })
    }

    fn texts(part: &LogPart) -> Vec<&str> {
        part.lines.iter().map(|line| &*line.line).collect()
    }

    #[test]
    fn lines_of_all_clones_come_in_order_of_time_and_other_services_are_left_out() {
        let dir = temp_dir("find-logs");
        let put = |name: &str, text: String| fs::write(dir.0.join(name), text).unwrap();
        put("shop-0.log", written(1_000_002, 1, "b  {\"json\": true}") + &written(1_000_005, 2, ""));
        put("shop-0.log.1", "from before\n".to_owned() + &written(1_000_001, 1, "a"));
        put("shop-12.log", written(1_000_003, 1, "c") + "1.000009 v1 out without an end");
        put("shop-2-1.log", written(1_000_004, 1, "of service shop-2"));
        put("shopping-1.log", written(1_000_004, 1, "of another one"));
        let all = find(&dir.0, &wish("shop")).unwrap();
        assert_eq!(texts(&all), ["a", "b  {\"json\": true}", "c", ""]);
        assert_eq!(
            all.lines.iter().map(|l| (l.clone, l.version)).collect::<Vec<_>>(),
            [(0, 1), (0, 1), (12, 1), (0, 2)]
        );
        assert!(!all.more);
        assert_eq!(texts(&find(&dir.0, &LogWish { clone: Some(12), ..wish("shop") }).unwrap()), ["c"]);
        assert_eq!(texts(&find(&dir.0, &LogWish { version: Some(2), ..wish("shop") }).unwrap()), [""]);
        assert_eq!(texts(&find(&dir.0, &LogWish { after_us: 1_000_002, ..wish("shop") }).unwrap()), ["c", ""]);
        assert_eq!(texts(&find(&dir.0, &wish("shop-2")).unwrap()), ["of service shop-2"]);
        let newest = find(&dir.0, &LogWish { lines: 2, ..wish("shop") }).unwrap();
        assert_eq!((texts(&newest), newest.more), (vec!["c", ""], true));
        let oldest = find(&dir.0, &LogWish { lines: 2, oldest: true, ..wish("shop") }).unwrap();
        assert_eq!((texts(&oldest), oldest.more), (vec!["a", "b  {\"json\": true}"], true));
    }

    #[test]
    fn whoever_reads_on_from_a_place_gets_each_line_once_however_long_the_files_are() {
        let dir = temp_dir("read-on");
        let line = |at: u64| written(at, 1, &format!("{at} {}", "z".repeat(100)));
        let (old, new) = ((1..4_000).map(line).collect::<String>(), (4_000..9_000).map(line).collect::<String>());
        assert!(new.len() as u64 > 3 * LOG_READ_BYTES);
        fs::write(dir.0.join("shop-0.log.1"), old).unwrap();
        fs::write(dir.0.join("shop-0.log"), new).unwrap();
        let (mut after_us, mut seen) = (0, 0);
        loop {
            let wish = LogWish { after_us, lines: 700, oldest: true, ..wish("shop") };
            let part = find(&dir.0, &wish).unwrap();
            for line in &part.lines {
                assert_eq!(line.at_us, seen + 1);
                seen = line.at_us;
            }
            after_us = seen;
            if !part.more {
                break;
            }
        }
        assert_eq!(seen, 8_999);
        let newest = find(&dir.0, &LogWish { lines: 5, ..wish("shop") }).unwrap();
        assert_eq!(newest.lines.iter().map(|line| line.at_us).collect::<Vec<_>>(), [8_995, 8_996, 8_997, 8_998, 8_999]);
        let since = find(&dir.0, &LogWish { after_us: 8_997, ..wish("shop") }).unwrap();
        assert_eq!((since.lines.len(), since.more), (2, false));
    }

    #[test]
    fn no_bytes_in_a_file_are_more_than_a_line_that_is_left_out() {
        let dir = temp_dir("odd-logs");
        let odd = b"\n\n \n1 v1 out x\n1.x v1 out x\n1.5 v out x\n1.5 v1 odd x\n99999999999999999999.1 v1 out x\n1.5 v1 out\n\xff\xfe v\n";
        fs::write(dir.0.join("shop-0.log"), odd).unwrap();
        assert_eq!(find(&dir.0, &wish("shop")).unwrap(), LogPart::default());
        assert_eq!(find(&dir.0, &wish("../../shop")).unwrap(), LogPart::default());
    }
}
