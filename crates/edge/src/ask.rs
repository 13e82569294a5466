//! How the node is asked, from any thread ([`Backend`], which the wiring implements), and what comes back that is no class's: join
//! tokens, programs of nodes, what clones have printed. Doors and what stands below them ask alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Span;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use host::logs::{LogLine, LogPart, LogWish};
use node::{Answer, Ask, View};
use serde::{Deserialize, Serialize};
use tokio::sync::watch as channel;

use crate::tls::Pem;

/// How the node is asked, from any thread.
pub trait Backend: Send + Sync + 'static {
    /// The answer, within about the budget.
    fn ask(&self, ask: Ask, budget: Span) -> BoxFuture<'static, Result<Answer, Gone>>;
    /// What the node shows, now and as it changes.
    fn watch(&self) -> channel::Receiver<Arc<View>>;
    /// A fresh join token: its text (which carries the authority's fingerprint) and the hash the root group keeps.
    fn mint(&self) -> Result<Minted, String>;
    /// A fresh authority for this cluster: its certificate and its key, PEM.
    fn new_authority(&self) -> Result<(String, String), String> {
        Err("this node makes no authorities".to_owned())
    }
    /// Keeps an archive on this node, and if it is to be spread on another one; on how many it is then.
    fn keep_code(&self, digest: String, bytes: Bytes, spread: bool) -> BoxFuture<'static, Result<usize, String>>;
    /// An archive that is here.
    fn code(&self, digest: String) -> BoxFuture<'static, Option<Bytes>>;
    /// A file of a folder that is here, its first bytes, so many at most.
    fn code_file(&self, _digest: String, _path: String, _bytes_max: u64) -> BoxFuture<'static, Option<Bytes>> {
        Box::pin(async { None })
    }

    /// Keeps another program on all live nodes; `token` is the operator's, which each of them asks for.
    fn keep_program(&self, _digest: String, _bytes: Bytes, _token: String) -> BoxFuture<'static, Result<Kept, String>> {
        Box::pin(async { Err("this node keeps no programs".to_owned()) })
    }
    /// What a node runs, after it was told what is next, if something is.
    fn program(&self, _node: String, _to: Option<String>, _token: String) -> BoxFuture<'static, Result<Runs, String>> {
        Box::pin(async { Err("this node keeps no programs".to_owned()) })
    }
    /// The certificates of this node's folder and of the cluster, the one for all other names first.
    fn certificates(&self) -> Vec<Pem> {
        Vec::new()
    }
    /// Certificates of the folder alone.
    fn certificates_of_files(&self) -> Vec<Pem> {
        Vec::new()
    }
    /// What clones have printed on all nodes, or why it cannot be had.
    fn logs(&self, wanted: Wanted) -> BoxFuture<'static, Result<Gathered, String>>;
    /// What this node alone answers.
    fn own_logs(&self, _wish: LogWish) -> BoxFuture<'static, Result<LogPart, String>> {
        Box::pin(async { Err("this node keeps no logs".to_owned()) })
    }
}

/// The node has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A join token before anybody accepts it.
#[derive(Clone, Debug)]
pub struct Minted {
    pub text: String,
    pub secret_hash: [u8; 32],
}

/// A program that all live nodes have by now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// As it says itself.
    pub version: String,
    pub level: u32,
    /// Names of the nodes.
    pub nodes: Vec<String>,
}

/// What a node runs, and what it is to run. Empty: the program that was installed there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Runs {
    /// SHA-256 of the program that runs now.
    pub now: String,
    /// ... that runs from the next start on.
    pub next: String,
    /// ... and the one before that.
    pub before: String,
    /// When the choice was made, milliseconds since 1970; 0: never.
    pub at_ms: u64,
    /// The program that was left because it did not stay up.
    pub failed: String,
}

/// What is asked of the logs of all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Whose they are.
    pub service: String,
    /// Its requests are asked for, not what its clones print.
    pub access: bool,
    /// For a node that `after_us` does not name.
    pub wish: LogWish,
    /// Moment of the last line that whoever asks has of a node, by its name.
    pub after_us: BTreeMap<String, u64>,
}

impl Wanted {
    /// Puts together what nodes have, in order of time, and cuts it to what was asked for.
    pub fn gathered(&self, at_us: u64, parts: Vec<(String, LogPart)>, silent: Vec<String>) -> Gathered {
        let mut all = Gathered { at_us, silent, ..Gathered::default() };
        for (name, part) in parts {
            // Of the newest lines older ones may be left out, and are not asked for again.
            let last = part.lines.last().filter(|_| !self.wish.oldest);
            all.after.insert(name.clone(), last.map_or(self.of(&name).after_us, |line| line.at_us));
            all.more |= part.more;
            all.lines.extend(part.lines.into_iter().map(|line| LogLine { node: name.clone(), ..line }));
        }
        all.lines.sort_by(|a, b| (a.at_us, &a.node).cmp(&(b.at_us, &b.node)));
        all.more |= host::logs::bound(&mut all.lines, &self.wish);
        for line in all.lines.iter().filter(|_| self.wish.oldest) {
            all.after.insert(line.node.clone(), line.at_us);
        }
        all
    }

    /// What is asked of one node.
    pub fn of(&self, node: &str) -> LogWish {
        let after_us = self.after_us.get(node).copied().unwrap_or(self.wish.after_us);
        LogWish { after_us, ..self.wish.clone() }
    }
}

/// Lines of all nodes, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Gathered {
    pub lines: Vec<LogLine>,
    /// There are more lines than had room: older ones, or with `after` newer ones.
    pub more: bool,
    /// Nodes that are dead or did not answer: their lines are missing.
    pub silent: Vec<String>,
    /// Where to read on, for each node that answered: to be asked for as `after`.
    pub after: BTreeMap<String, u64>,
    /// When it was asked, microseconds since 1970.
    pub at_us: u64,
}
