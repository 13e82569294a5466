//! What a clone keeps of its node, and what the node shows to others of its user. `keep` gives up new rights, core files and all
//! descriptors but the three standard ones before it becomes the program; of the environment a small set is passed on.
//! A clone still reads the files that the node's user reads.

use std::ffi::OsString;
use std::fs;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::Error;

/// Of the node's environment a clone gets these, and what begins with `LC_`.
const PASSED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];
/// By this the end-to-end tests find what a test left behind.
const TEST_MARK: &str = "COPPICE_E2E";

/// The part of this process' environment that is passed on to clones.
pub(crate) fn passed() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed))
}

fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || name == TEST_MARK || name.starts_with("LC_")
}

/// Closes this process: programs of this user without further rights look neither into its memory nor into its environment,
/// and it leaves no core.
pub fn close_self() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Error::io("cannot close this process to others")(e.into()))
}

/// Puts the skin on: this process and all that it starts keep it for ever.
pub(crate) fn put_on() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|e| format!("cannot give up new rights: {e}"))?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .map_err(|e| format!("cannot do without core files: {e}"))?;
    close_descriptors().map_err(|e| format!("cannot close what the node had open: {e}"))
}

/// Closes all but standard input, output and error: what the shell of whoever started the node had left open.
fn close_descriptors() -> std::io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let open: Vec<i32> = open.filter(|&descriptor| descriptor > 2).collect();
    for descriptor in open {
        // One of them was the listed folder's, which is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
