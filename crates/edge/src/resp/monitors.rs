//! Who watches the commands of a namespace at this node (`MONITOR`): each gets a line for each of them, in the form of Redis. What
//! waits for one that does not read is bounded as messages are (`subscribers.rs`): it is closed, and counted. As long as nobody
//! watches, a command costs one look at a number more.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::client::Client;
use super::encode::Reply;
use super::limits::MONITOR_LINE_BYTES_MAX;
use super::parse::Command;
use super::subscribers::{Listener, Subscribers};

/// Those of one namespace, by their connection's number.
type Listeners = BTreeMap<u64, Rc<Listener>>;

pub struct Monitors {
    subscribers: Rc<Subscribers>,
    of: RefCell<HashMap<Arc<str>, Listeners>>,
    /// How many there are.
    count: Cell<usize>,
}

/// One that watches, until it is dropped.
pub struct Monitor {
    all: Rc<Monitors>,
    namespace: Arc<str>,
    id: u64,
}

impl Monitors {
    pub fn new(subscribers: Rc<Subscribers>) -> Rc<Self> {
        Rc::new(Self { subscribers, of: RefCell::default(), count: Cell::new(0) })
    }

    /// From now on this connection is shown what comes of its namespace.
    pub fn begin(self: &Rc<Self>, id: u64, listener: &Rc<Listener>) -> Monitor {
        let namespace = Arc::clone(&listener.namespace);
        let had = self.of.borrow_mut().entry(Arc::clone(&namespace)).or_default().insert(id, Rc::clone(listener));
        self.count.set(self.count.get() + usize::from(had.is_none()));
        Monitor { all: Rc::clone(self), namespace, id }
    }

    /// Shows a command of a client that was run, or is kept for EXEC, to those who watch.
    pub fn show(&self, client: &Client, name: &str, command: &Command) {
        if self.count.get() == 0 {
            return;
        }
        let Some(known) = &client.known else { return };
        let Some(listeners) = self.of.borrow().get(&known.home).cloned() else { return };
        if is_of_operator(name, command) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = format!(
            "+{}.{:06} [{} {}]",
            now.as_secs(),
            now.subsec_micros(),
            if known.is_of_script() { 0 } else { known.database },
            client.addr
        );
        let line = Bytes::from(line(head, name, command));
        for listener in listeners.values() {
            self.subscribers.put(listener, Reply::Made(line.clone()));
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let mut of = self.all.of.borrow_mut();
        let Some(those) = of.get_mut(&self.namespace) else { return };
        if those.remove(&self.id).is_some() {
            self.all.count.set(self.all.count.get() - 1);
        }
        if those.is_empty() {
            of.remove(&self.namespace);
        }
    }
}

/// Is it a command of whoever looks after the connections? Redis shows none of these either.
fn is_of_operator(name: &str, command: &Command) -> bool {
    let of_client = ["LIST", "KILL", "PAUSE", "UNPAUSE", "UNBLOCK", "NO-EVICT"];
    match name {
        "ACL" | "CONFIG" | "LATENCY" | "MODULE" | "MONITOR" | "SLOWLOG" => true,
        "CLIENT" => of_client.iter().any(|sub| command.arg(1).eq_ignore_ascii_case(sub.as_bytes())),
        _ => false,
    }
}

/// Which arguments say who somebody is. Of what is not well formed all are taken for that.
fn hidden(name: &str, command: &Command) -> Vec<Range<usize>> {
    let mut at = if name == "HELLO" { 2 } else { 1 };
    let mut all = Vec::new();
    while at < command.len() && matches!(name, "AUTH" | "HELLO") {
        let is = |word: &str| name == "HELLO" && command.arg(at).eq_ignore_ascii_case(word.as_bytes());
        let (shown, secret) = if is("AUTH") {
            (1, 2)
        } else if is("SETNAME") {
            (2, 0)
        } else {
            (0, command.len())
        };
        all.push(at + shown..at + shown + secret);
        at += shown + secret;
    }
    all
}

/// Its words, but for tokens. What is longer than a line may be is cut off, and the line says so.
fn line(head: String, name: &str, command: &Command) -> Vec<u8> {
    let mut line = head.into_bytes();
    let hidden = hidden(name, command);
    for (at, arg) in command.args().enumerate() {
        if line.len() >= MONITOR_LINE_BYTES_MAX {
            line.extend_from_slice(format!(" \"... ({} more arguments)\"", command.len() - at).as_bytes());
            break;
        }
        line.push(b' ');
        if hidden.iter().any(|those| those.contains(&at)) {
            line.extend_from_slice(b"\"(redacted)\"");
            continue;
        }
        let shown = &arg[..arg.len().min(MONITOR_LINE_BYTES_MAX - line.len().min(MONITOR_LINE_BYTES_MAX))];
        quoted(&mut line, shown, arg.len() - shown.len());
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// A word as Redis' `sdscatrepr` writes it, and how many bytes of it are left out.
fn quoted(line: &mut Vec<u8>, word: &[u8], more: usize) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    if more > 0 {
        line.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, words: &[&[u8]]) -> String {
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
        String::from_utf8(line("+1.000002 [0 [::1]:9]".to_owned(), name, &Command::of(&words))).unwrap()
    }

    #[test]
    fn words_are_quoted_as_in_redis() {
        assert_eq!(shown("KEYS", &[b"keys", b"*"]), "+1.000002 [0 [::1]:9] \"keys\" \"*\"\r\n");
        assert_eq!(
            shown("SET", &[b"SET", b"a\"\\b", b"\x00\xff\r\n\t\x07\x08 ~"]),
            "+1.000002 [0 [::1]:9] \"SET\" \"a\\\"\\\\b\" \"\\x00\\xff\\r\\n\\t\\a\\b ~\"\r\n"
        );
    }

    #[test]
    fn tokens_are_never_shown() {
        for (name, words) in [
            ("AUTH", &[&b"auth"[..], b"hunter2"][..]),
            ("AUTH", &[b"AUTH", b"user", b"hunter2", b"hunter2"]),
            ("HELLO", &[b"HELLO", b"3", b"auth", b"user", b"hunter2", b"SETNAME", b"me"]),
            ("HELLO", &[b"HELLO", b"3", b"SETNAME", b"auth", b"AUTH", b"auth", b"hunter2"]),
            ("HELLO", &[b"HELLO", b"3", b"AUTH", b"a", b"hunter2", b"AUTH", b"b", b"hunter2"]),
            ("HELLO", &[b"HELLO", b"3", b"AUHT", b"a", b"hunter2"]),
        ] {
            let line = shown(name, words);
            assert!(line.contains("(redacted)") && !line.contains("hunter2"), "{line}");
        }
        assert!(shown("HELLO", &[b"HELLO", b"3", b"AUTH", b"u", b"t", b"SETNAME", b"me"]).ends_with("\"me\"\r\n"));
        let list = Command::of(&["client".into(), "list".into()]);
        assert!(is_of_operator("ACL", &list) && is_of_operator("CLIENT", &list));
        assert!(!is_of_operator("CLIENT", &Command::of(&["CLIENT".into(), "ID".into()])));
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let long = vec![b'x'; MONITOR_LINE_BYTES_MAX * 2];
        let line = shown("SET", &[b"SET", &long, b"y", b"z"]);
        assert!(line.len() < MONITOR_LINE_BYTES_MAX + 128, "{}", line.len());
        assert!(line.contains(" more bytes)\"") && line.ends_with(" \"... (2 more arguments)\"\r\n"), "{line}");
        // Each byte of it may take four.
        let worst = vec![0; MONITOR_LINE_BYTES_MAX * 2];
        assert!(shown("SET", &[b"SET", &worst]).len() < 4 * MONITOR_LINE_BYTES_MAX + 128);
    }
}
