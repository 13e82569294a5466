//! What a node may ask about child processes, and what it hears of them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::Span;

/// Path by which a child starts its node's own program: the one that the node runs, whatever lies at its place by now.
pub const OWN_PROGRAM: &str = "/proc/self/exe";
/// First argument of the node's program when it is to be a clone of a built-in service, whose name follows.
pub const SERVE_BUILTIN: &str = "serve-builtin";

/// ... and when it is to stand before a worker's program: what the worker declares as JSON, `--`, program, arguments.
pub const SERVE_WORKER: &str = "serve-worker";

/// The words of a command line that are the program's own: those behind the stub of a worker.
pub fn own_words<W: AsRef<std::ffi::OsStr>>(words: &[W]) -> &[W] {
    match words {
        [program, serves, _, dashes, own @ ..]
            if program.as_ref() == OWN_PROGRAM && serves.as_ref() == SERVE_WORKER && dashes.as_ref() == "--" =>
        {
            own
        }
        _ => words,
    }
}

/// What a child and the processes that it started use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcUse {
    /// Processor time since it began, of those that ended too, microseconds.
    pub cpu_us: u64,
    /// ... in the last seconds, in thousandths of one core; 0 of one that has just begun.
    pub cpu_millis: u32,
    /// Resident memory. What several of them share counts for each.
    pub resident_bytes: u64,
}

/// How to start a child. The host adds `HOST` and `PORT`, a free port that it chose on the node's own address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcSpec {
    /// Name for logs, e.g. `shop/2`.
    pub name: String,
    /// Of the service, for logs; 0 if it was never deployed.
    pub version: u32,
    /// Program and arguments; never empty.
    pub run: Vec<String>,
    /// Digest of the deployed folder that it runs in, if it was deployed.
    pub code: Option<String>,
    /// Working folder, relative to that; else relative ones are relative to the node's service folder.
    pub dir: Option<String>,
    pub env: BTreeMap<String, String>,
    /// What it may reach besides the system's files and its own; none: all that the node's user may.
    pub sandbox: Option<Open>,
    pub limits: Box<Limits>,
    /// Whom it runs as; none: the node's user.
    pub user: Option<String>,
    pub given: Given,
}

/// What a child, with all that it starts, may take of its machine; none: what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files and connections, of each process.
    pub files: Option<u64>,
}

/// What a child is given that nobody else is to see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// What stands for `${secret.NAME}` and `${NAMESPACE.url}` in its words and its environment, by what is in the braces. Text.
    pub words: BTreeMap<String, Private>,
    /// Files that are its alone, by their names; it finds the path of each in the variable `NAME_FILE`.
    pub files: BTreeMap<String, Private>,
}

/// Bytes that no log, event or message shows.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Private(pub Bytes);

impl Private {
    /// What fits into an environment: text without a zero byte.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok().filter(|text| !text.contains('\0'))
    }
}

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(private)")
    }
}

/// Files and folders that are open to a child. Paths begin with `/`, or with `~/` for the home of the node's user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// To be read and run.
    pub read: Vec<String>,
    /// To be written, too.
    pub write: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    Term,
    Int,
    Hup,
    Quit,
    Usr1,
    Usr2,
    Kill,
}

/// How a child ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It never ran: no such program, no such folder.
    NotStarted(String),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(signal) => write!(f, "killed by signal {signal}"),
            Exit::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

/// A request for the health of a child: an HTTP GET to its port, or just a connection if there is no path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    pub port: u16,
    pub path: Option<String>,
    /// What it has in `Host`; without one, its address.
    pub host: Option<String>,
    /// Statuses that are healthy; without any 200 to 399.
    pub status: Vec<u16>,
    pub timeout: Span,
}

impl Probe {
    /// Just a connection.
    pub fn of(port: u16, timeout: Span) -> Self {
        Self { port, path: None, host: None, status: Vec::new(), timeout }
    }
}
