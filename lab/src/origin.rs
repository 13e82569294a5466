//! A service that gives files of a folder: nginx with one worker as a clone, so that what is before it is measured.

use std::path::PathBuf;

use crate::peers::scratch;

/// Its folder, gone with it. Not below the cluster's, which is for its owner alone: nginx reads as another user.
pub struct Origin {
    dir: PathBuf,
}

impl Origin {
    /// With a file `health`.
    pub fn new(name: &str) -> Result<Self, String> {
        let dir = scratch(name);
        std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let origin = Self { dir };
        origin.put("health", b"well\n")?;
        Ok(origin)
    }

    /// Whoever reads has the old file or the new one.
    pub fn put(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        let (new, file) = (self.dir.join("new"), self.dir.join(file));
        std::fs::write(&new, bytes)
            .and_then(|()| std::fs::rename(&new, &file))
            .map_err(|e| format!("cannot write {}: {e}", file.display()))
    }

    /// The declaration of service `origin` with these lines, whose nginx has these words in its `server`.
    pub fn service(&self, lines: &str, words: &str) -> Result<String, String> {
        let (conf, root) = (self.dir.join("origin.conf"), self.dir.display());
        // The origin is a service like any other: the program takes PORT from its environment.
        let text = format!(
            "daemon off; worker_processes 1; pid {root}/o.pid; error_log /dev/null; events {{ worker_connections 4096; }} \
            http {{ access_log off; keepalive_requests 100000000; server {{ listen LISTEN; root {root}; {words} }} }}"
        );
        std::fs::write(&conf, &text).map_err(|e| format!("cannot write {}: {e}", conf.display()))?;
        let shell = format!(
            "sed \"s/LISTEN/$HOST:$PORT/; s/o.pid/$PORT.pid/\" {c} > {c}.$PORT && exec nginx -e /dev/null -p {root} -c {c}.$PORT",
            c = conf.display()
        );
        Ok(format!(
            "[service.origin]\nrun = [\"sh\", \"-c\", {shell:?}]\nhealth = \"/health\"\nhttp = {{}}\nsandbox = \"none\"\n{lines}\n"
        ))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
