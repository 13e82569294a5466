//! What children print: cut into lines of bounded length, told to the machine at a bounded rate, and written to bounded
//! files by a thread of its own, so that a slow disk never holds up the node.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::limits::{LINE_BYTES_MAX, LINES_PER_SECOND_MAX, LOG_FILE_BYTES_MAX, LOG_LINES_WAITING_MAX};
use crate::{Error, private};

/// Cuts bytes into lines.
#[derive(Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
}

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
        let line = String::from_utf8_lossy(&self.line).trim_end_matches('\r').to_string();
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
}

impl LogFiles {
    pub fn start(dir: PathBuf) -> Result<LogFiles, Error> {
        private::make_dir(&dir).map_err(Error::io(dir.display().to_string()))?;
        let (lines, waiting) = sync_channel(LOG_LINES_WAITING_MAX);
        std::thread::Builder::new()
            .name("coppice-logs".into())
            .spawn(move || write_all(&dir, &waiting))
            .map_err(Error::io("log thread"))?;
        Ok(LogFiles { lines })
    }

    /// Does not wait: with a slow disk, lines are lost before time is.
    pub fn write(&self, name: &str, line: &str) {
        let _ = self.lines.try_send((file_name(name), line.into()));
    }
}

/// A file name for a child's name: `shop/2` becomes `shop-2`.
fn file_name(name: &str) -> String {
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
                fs::rename(&path, dir.join(format!("{name}.log.1")))?;
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
        assert_eq!(lines[0].len(), LINE_BYTES_MAX);
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
