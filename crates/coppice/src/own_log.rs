//! What happens in this process, in lines: to standard error, and once the node has its folder to a log there, too, which
//! `coppice logs --nodes` finds.

use std::io::{self, Write};
use std::sync::RwLock;

use host::access::AccessLogs;

/// Where lines go besides.
static KEPT: RwLock<Option<AccessLogs>> = RwLock::new(None);

/// From now on.
pub fn keep(logs: AccessLogs) {
    if let Ok(mut kept) = KEPT.write() {
        *kept = Some(logs);
    }
}

/// Takes an event at a time.
pub struct OwnLog;

impl Write for OwnLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(event)?;
        // What the thread says that writes these files would be the next line that it cannot write.
        if std::thread::current().name() != Some(host::access::WRITER)
            && let Ok(kept) = KEPT.read()
            && let Some(logs) = &*kept
        {
            for line in String::from_utf8_lossy(event).lines() {
                logs.write_own(without_time(line));
            }
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The log has the time of each line.
fn without_time(line: &str) -> &str {
    let is_time = |word: &str| word.len() > 20 && word.ends_with('Z') && word.as_bytes()[0].is_ascii_digit();
    line.split_once(' ').filter(|(first, _)| is_time(first)).map_or(line, |(_, rest)| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_its_time_once() {
        let line = "2026-11-27T04:09:51.899792Z  INFO node runs node=n1";
        assert_eq!(without_time(line), "INFO node runs node=n1");
        for other in ["", "  at line 2", "Z", "2026 is no time", "thread panicked"] {
            assert_eq!(without_time(other), other);
        }
    }
}
