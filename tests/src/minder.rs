//! Ends what a test started even if the test itself is killed: a shell that waits for the end of its input, which is a
//! pipe from this process, and then ends its ward and removes its folder. Also ends what a static holds at the end.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Minder(Child);

/// $1 is the ward. Its folder comes as the first line: on the command line it would mark the minder as one of those that
/// the test has started (`procs::marked`).
const SCRIPT: &str = "read -r folder; read -r end; kill -TERM $1 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9; do kill -0 $1 2>/dev/null || break; sleep 0.2; done
kill -KILL $1 2>/dev/null; rm -rf \"$folder\"";

impl Minder {
    pub fn of(pid: u32, folder: &Path) -> Minder {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "minder", &pid.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let minder = command.spawn().expect("there is a shell");
        // The pipe stays open for as long as this process, or the minder's value, lives.
        writeln!(minder.stdin.as_ref().expect("piped"), "{}", folder.display()).expect("it reads");
        Minder(minder)
    }
}

impl Drop for Minder {
    /// The ward has been seen to: the minder goes without a word.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
