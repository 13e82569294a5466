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
    /// Valid records lie behind the damage, so this is no write that a crash cut short: something was lost.
    #[error("{} is damaged at byte {offset}, and valid records lie behind it; restore the file, or empty the folder \
        and join the node anew", .file.display())]
    Damaged { file: PathBuf, offset: u64 },
    #[error("{}: {what}", .file.display())]
    NotOurs { file: PathBuf, what: String },
    #[error("identity: {0}")]
    Identity(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
