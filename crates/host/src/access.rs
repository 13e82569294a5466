//! Access logs of services, and the node's own log: one file for each service on each node, as large as that of a clone, beside those of clones in `logs/`, and
//! written by a thread of its own. `logs.rs` finds their lines again, under [`log_name`].

use std::path::PathBuf;

use crate::Error;
use crate::limits::ACCESS_LINE_BYTES_MAX;
use crate::logs::Source;
use crate::output::LogFiles;

/// Under which the node's own log stands among the logs of services: no service can have this name.
pub const NODE_LOG: &str = "_node";
/// Name of the threads that write the files.
pub const WRITER: &str = "coppice-logs";

/// Where lines go. Clones of it write to the same files.
#[derive(Clone)]
pub struct AccessLogs(LogFiles);

impl AccessLogs {
    /// Files in a node's folder `logs`.
    ///
    /// # Errors
    /// The folder cannot be made, or no thread be started.
    pub fn start(dir: PathBuf) -> Result<Self, Error> {
        LogFiles::start(dir).map(Self)
    }

    /// Does not wait: what a slow disk has no time for is left out, and counted in a line of source `node`.
    pub fn write(&self, service: &str, line: &str) {
        let line = &line[..line.floor_char_boundary(ACCESS_LINE_BYTES_MAX)];
        self.0.write(&format!("{}/0", log_name(service)), 0, Source::Out, line);
    }

    /// Does not wait either: a line of the node itself.
    pub fn write_own(&self, line: &str) {
        let line = &line[..line.floor_char_boundary(ACCESS_LINE_BYTES_MAX)];
        self.0.write(&format!("{NODE_LOG}/0"), 0, Source::Node, line);
    }
}

impl std::fmt::Debug for AccessLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessLogs")
    }
}

/// Under which a service's access log stands among the logs of services: no service can have this name.
pub fn log_name(service: &str) -> String {
    format!("_access_{service}")
}
