//! What children print: cut into lines of bounded length, told to the machine at a bounded rate, and written to bounded
//! files by a thread of its own, so that a slow disk never holds up the node.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::limits::{LINE_BYTES_MAX, LINES_PER_SECOND_MAX, LOG_FILE_BYTES_MAX, LOG_LINES_WAITING_MAX};
use crate::logs::{Source, Written, older};
use crate::{Error, private};

/// Cuts bytes into lines.
#[derive(Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    /// Bytes of this line that had no room.
    cut: u64,
}

/// For the words that say how much was cut.
const CUT_BYTES: usize = 48;

impl Lines {
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(String)) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            // What is over the limit is dropped up to the line's end.
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            self.cut += text.len().saturating_sub(room) as u64;
            if ends {
                each(self.take());
            }
        }
    }

    /// A last line without an end.
    pub fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let cut = std::mem::take(&mut self.cut);
        let kept = if cut > 0 { LINE_BYTES_MAX - CUT_BYTES } else { self.line.len() };
        let mut line = String::from_utf8_lossy(&self.line[..kept]).trim_end_matches('\r').to_string();
        if cut > 0 {
            line += &format!(" (cut: {} bytes more)", cut + (self.line.len() - kept) as u64);
        }
        self.line.clear();
        line
    }
}

/// Lets so many lines a second through, and counts the others.
pub(crate) struct Gate {
    second: Instant,
    passed: u32,
    held: u32,
}

impl Gate {
    pub fn new(now: Instant) -> Self {
        Self { second: now, passed: 0, held: 0 }
    }

    /// Whether this line passes, and how many were held back right before it.
    pub fn pass(&mut self, now: Instant) -> Option<u32> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.passed) = (now, 0);
        }
        if self.passed >= LINES_PER_SECOND_MAX {
            self.held += 1;
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.held))
    }
}

/// Writes lines to `<name>.log`. Full files become `<name>.log.1`; the former `.1` goes.
#[derive(Clone)]
pub(crate) struct LogFiles {
    lines: SyncSender<(String, String)>,
    /// Moment of the last line, microseconds since 1970.
    last_us: Arc<AtomicU64>,
    /// Lines that had no room since the last one that had.
    lost: Arc<AtomicU64>,
}

impl LogFiles {
    pub fn start(dir: PathBuf) -> Result<LogFiles, Error> {
        private::make_dir(&dir).map_err(Error::io(dir.display().to_string()))?;
        let (lines, waiting) = sync_channel(LOG_LINES_WAITING_MAX);
        std::thread::Builder::new()
            .name(crate::access::WRITER.into())
            .spawn(move || write_all(&dir, &waiting))
            .map_err(Error::io("log thread"))?;
        Ok(LogFiles { lines, last_us: Arc::default(), lost: Arc::default() })
    }

    /// Does not wait: with a slow disk, lines are lost before time is. The next one that has room says how many.
    pub fn write(&self, name: &str, version: u32, source: Source, text: &str) {
        let lost = self.lost.swap(0, Relaxed);
        if lost > 0 {
            let text = format!("{lost} lines of this node are missing here: the disk was too slow");
            if !self.send(name, version, Source::Node, &text) {
                self.lost.fetch_add(lost, Relaxed);
            }
        }
        if !self.send(name, version, source, text) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    fn send(&self, name: &str, version: u32, source: Source, text: &str) -> bool {
        let line = Written { at_us: self.stamp(), version, source, text }.to_string();
        self.lines.try_send((file_name(name), line)).is_ok()
    }

    /// The time, or a microsecond more than the last one: who reads on from a line misses none, also when the clock is set back.
    fn stamp(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let last = self.last_us.fetch_update(Relaxed, Relaxed, |last| Some(now.max(last + 1)));
        now.max(last.unwrap_or_default() + 1)
    }
}

/// A file name for a child's name: `shop/2` becomes `shop-2`.
pub(crate) fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

fn write_all(dir: &std::path::Path, waiting: &Receiver<(String, String)>) {
    let mut files: BTreeMap<String, (File, u64)> = BTreeMap::new();
    while let Ok((name, line)) = waiting.recv() {
        let path = dir.join(format!("{name}.log"));
        let mut write = || {
            let (mut file, mut bytes) = match files.remove(&name) {
                Some(open) => open,
                None => {
                    let file = private::options().create(true).append(true).open(&path)?;
                    let bytes = file.metadata()?.len();
                    (file, bytes)
                }
            };
            if bytes + line.len() as u64 + 1 > LOG_FILE_BYTES_MAX {
                fs::rename(&path, older(&path))?;
                file = private::options().create(true).append(true).open(&path)?;
                bytes = 0;
            }
            file.write_all(format!("{line}\n").as_bytes())?;
            files.insert(name.clone(), (file, bytes + line.len() as u64 + 1));
            std::io::Result::Ok(())
        };
        if let Err(e) = write() {
            tracing::warn!("cannot write {}: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::temp_dir;

    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, |line| out.push(line)));
        out.extend(lines.finish());
        out
    }

    #[test]
    fn lines_are_whole_wherever_they_were_cut() {
        assert_eq!(cut(&[b"on", b"e\r\ntwo\n\nfo", b"ur"]), ["one", "two", "", "four"]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_is_whole() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let lines = cut(&[&long, b"y\nnext\n"]);
        assert!(lines[0].len() <= LINE_BYTES_MAX && lines[0].ends_with("xx (cut: 8241 bytes more)"), "{}", lines[0]);
        assert_eq!(lines[1], "next");
    }

    #[test]
    fn too_many_lines_are_held_back_and_counted() {
        let start = Instant::now();
        let mut gate = Gate::new(start);
        let passed = (0..LINES_PER_SECOND_MAX + 7).filter(|_| gate.pass(start).is_some()).count();
        assert_eq!(passed, LINES_PER_SECOND_MAX as usize);
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Some(7));
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn no_two_lines_have_one_time_and_what_had_no_room_is_counted_in_the_next() {
        let (lines, waiting) = sync_channel(3);
        let logs = LogFiles { lines, last_us: Arc::default(), lost: Arc::default() };
        for n in 0..5 {
            logs.write("shop/0", 2, Source::Err, &format!("line {n}"));
        }
        let ahead = u64::MAX / 2;
        logs.last_us.store(ahead, Relaxed);
        let mut written: Vec<String> = waiting.try_iter().map(|(_, line)| line).collect();
        logs.write("shop/0", 2, Source::Out, "line 5");
        written.extend(waiting.try_iter().map(|(_, line)| line));
        let stamps: Vec<&str> = written.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert!(stamps.is_sorted_by(|a, b| (a.len(), a) < (b.len(), b)), "{stamps:?}");
        assert_eq!(stamps[4], format!("{}.{:06}", (ahead + 2) / 1_000_000, (ahead + 2) % 1_000_000));
        let rest: Vec<&str> = written.iter().map(|line| line.split_once(' ').unwrap().1).collect();
        let missing = "v2 node 2 lines of this node are missing here: the disk was too slow";
        assert_eq!(rest, ["v2 err line 0", "v2 err line 1", "v2 err line 2", missing, "v2 out line 5"]);
    }

    #[test]
    fn a_full_log_file_becomes_the_older_one() {
        let dir = temp_dir("logs");
        let (lines, waiting) = sync_channel(4096);
        let line = "z".repeat(LINE_BYTES_MAX - 1);
        for _ in 0..=LOG_FILE_BYTES_MAX / LINE_BYTES_MAX as u64 {
            lines.send((file_name("shop/2"), line.clone())).unwrap();
        }
        drop(lines);
        write_all(&dir.0, &waiting);
        let len = |name: &str| fs::metadata(dir.0.join(name)).unwrap().len();
        assert_eq!(len("shop-2.log.1"), LOG_FILE_BYTES_MAX);
        assert_eq!(len("shop-2.log"), LINE_BYTES_MAX as u64);
    }
}
