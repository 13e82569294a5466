//! Whether the machine was rebooted, or lost its power, since this log was last known to be whole: by the id that the
//! kernel draws at each boot, kept in the file `boot` beside the segments.

use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "boot";

/// Also true where the kernel tells no id, and for a log that never said.
pub fn is_another(log: &Path) -> bool {
    current().is_none_or(|id| fs::read_to_string(log.join(FILE)).ok() != Some(id))
}

/// From now on nothing of before this boot matters.
pub fn remember(log: &Path) {
    if let Some(id) = current()
        && let Err(error) = crate::identity::write_safely(log, FILE, id.as_bytes())
    {
        // The next start asks the other members once more.
        tracing::warn!(%error, "it could not be noted that this node has recovered");
    }
}

/// Whatever the kernel says: the end may be missing.
pub fn forget(log: &Path) -> io::Result<()> {
    match fs::remove_file(log.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::File::open(log)?.sync_all(),
    }
}

fn current() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}
