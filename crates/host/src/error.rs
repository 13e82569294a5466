//! What can keep a node from starting. Each message names the thing that was wrong and, where there is one, the way out.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{addr} is taken{}", .holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default())]
    PortTaken { addr: SocketAddr, holder: Option<String> },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{} is in use by another node{}; give this one a folder of its own", .dir.display(),
        .pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    Locked { dir: PathBuf, pid: Option<u32> },
    /// What is in a node's folder is for nobody else.
    #[error("{} is open to others: {why}\n  a node's folder holds keys: make it the node's own (chown, chmod 0700), or name a folder in it with --dir, which the \
        node makes", .dir.display())]
    Open { dir: PathBuf, why: String },
    /// This is no write that a crash cut short: something that was promised is not there.
    #[error("{} is damaged at byte {offset}", .file.display())]
    Damaged { file: PathBuf, offset: u64 },
    #[error("{}: a part of the log is missing: {what}", .file.display())]
    Lost { file: PathBuf, what: String },
    /// An earlier life of this node found that its disk is not what it should be.
    #[error("the log is not to be trusted: {0}")]
    Distrusted(String),
    #[error("{}: {what}", .file.display())]
    NotOurs { file: PathBuf, what: String },
    #[error("identity: {0}")]
    Identity(String),
}

impl Error {
    /// The disk has not kept what it should have: this node must not take part in anything with what it has.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Damaged { .. } | Error::Lost { .. } | Error::Distrusted(_) => true,
            // What the disk itself says of a sector that it cannot read.
            Error::Io { source, .. } => source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()),
            Error::PortTaken { .. }
            | Error::Locked { .. }
            | Error::Open { .. }
            | Error::NotOurs { .. }
            | Error::Identity(_) => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
