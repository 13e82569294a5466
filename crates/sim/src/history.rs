//! What load asked and got, one JSON line per finished operation, in the form every class of state uses: outside
//! checkers can judge it. Times are world time in microseconds, so they order operations of all nodes.

use std::io::Write;

use base::Time;
use serde::Serialize;

/// One finished operation.
#[derive(Serialize)]
pub struct Line<'a> {
    pub process: u64,
    pub op: &'a str,
    pub key: &'a str,
    pub arg: &'a str,
    /// `ok ...`, `refused ...`, `unknown ...`, or `died`: its node was killed first.
    pub outcome: &'a str,
    pub start: u64,
    pub end: u64,
    pub node: usize,
}

/// Where lines go; nowhere unless asked.
#[derive(Default)]
pub struct History {
    to: Option<Box<dyn Write>>,
}

impl History {
    pub fn to(writer: Box<dyn Write>) -> Self {
        Self { to: Some(writer) }
    }

    /// Writes a line. A disk that fails ends the keeping of history, with a word about it, not the run.
    pub fn keep(&mut self, line: &Line<'_>) {
        let Some(to) = &mut self.to else { return };
        let text = serde_json::to_string(line).expect("a line is plain data");
        if let Err(error) = writeln!(to, "{text}") {
            eprintln!("history ends at {}: {error}", line.end);
            self.to = None;
        }
    }
}

/// World time as histories have it.
pub fn micros(at: Time) -> u64 {
    at.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_this_shape() {
        let kept = Shared::default();
        let mut history = History::to(Box::new(kept.clone()));
        let (op, key, arg, outcome) = ("put", "k1", "v7", "ok");
        history.keep(&Line { process: 3, op, key, arg, outcome, start: 10, end: micros(Time(25)), node: 1 });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let expect = r#"{"process":3,"op":"put","key":"k1","arg":"v7","outcome":"ok","start":10,"end":25,"node":1}"#;
        assert_eq!(text.trim_end(), expect);
    }
}
