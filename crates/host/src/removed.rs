//! A node that was removed gives up what it was: its key, which opens nothing any more, and its log, which has the authority's key
//! and the operator's token. What is the machine's own (`node.toml`, the logs of its clones) stays.

use std::fs::{self, File};
use std::io;

use crate::certificate::RENEWED;
use crate::disk::{DISTRUSTED, LOG_DIR};
use crate::identity::write_safely;
use crate::renew::{FOUNDING, NEXT, SET_ASIDE};
use crate::{DataDir, Error};

/// Says that this was done, and why. Its folder can be that of a new node.
const REMOVED: &str = "removed";
/// The key first. Without a count of lives whoever comes next begins with the first.
const FILES: [&str; 10] =
    ["node.key", RENEWED, NEXT, FOUNDING, "node.pem", "ca.pem", "identity.json", DISTRUSTED, "boot", "peers"];

impl DataDir {
    /// To be called when nothing writes into the folder any more. After a crash the next start goes on here.
    pub fn give_up(&self, why: &str) -> Result<(), Error> {
        write_safely(self.path(), REMOVED, why.as_bytes())?;
        self.given_up().map(|_| ())
    }

    /// Whether the node that was here gave up all that it was; if so, why. Comes before anything else that reads this folder.
    pub fn given_up(&self) -> Result<Option<String>, Error> {
        let path = |name: &str| self.path().join(name);
        let why = match fs::read_to_string(path(REMOVED)) {
            Ok(why) => why,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(path(REMOVED).display().to_string())(e)),
        };
        let gone = |result: io::Result<()>| match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        let delete = || {
            FILES.iter().try_for_each(|name| gone(fs::remove_file(path(name))))?;
            [LOG_DIR, SET_ASIDE].iter().try_for_each(|name| gone(fs::remove_dir_all(path(name))))?;
            File::open(self.path())?.sync_all()
        };
        delete().map_err(Error::io(format!("cannot delete what the node in {} was", self.path().display())))?;
        Ok(Some(why))
    }

    /// A new node lives here from now on.
    pub fn begin_anew(&self) -> Result<(), Error> {
        match fs::remove_file(self.path().join(REMOVED)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(Error::io(self.path().join(REMOVED).display().to_string())),
        }
    }

    /// Whether the node in a folder was removed.
    pub fn was_removed(dir: &std::path::Path) -> bool {
        dir.join(REMOVED).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::tls::temp_dir;

    #[test]
    fn key_and_log_are_gone_even_if_a_crash_comes_between_and_the_folder_can_be_used_again() {
        for crashes in [false, true] {
            let temp = temp_dir("removed");
            let dir = DataDir::open(&temp.0).unwrap();
            assert_eq!(dir.given_up().unwrap(), None);
            let (identity, _) = crate::identity::found("home", "a").unwrap();
            identity.save(&dir).unwrap();
            dir.next_boot().unwrap();
            for name in [LOG_DIR, SET_ASIDE] {
                fs::create_dir(temp.0.join(name)).unwrap();
                fs::write(temp.0.join(name).join("0.seg"), "the authority's key").unwrap();
            }
            fs::write(temp.0.join("node.toml"), "").unwrap();
            if crashes {
                write_safely(&temp.0, REMOVED, b"by an operator").unwrap();
                fs::remove_file(temp.0.join("node.key")).unwrap();
            } else {
                dir.give_up("by an operator").unwrap();
            }
            assert_eq!(dir.given_up().unwrap().as_deref(), Some("by an operator"));
            let mut left: Vec<_> = fs::read_dir(&temp.0).unwrap().map(|file| file.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["lock", "node.toml", REMOVED]);
            let (identity, _) = crate::identity::found("other", "b").unwrap();
            identity.save(&dir).unwrap();
            dir.begin_anew().unwrap();
            assert_eq!(dir.given_up().unwrap(), None);
            assert_eq!(Identity::load(&dir).unwrap(), Some(identity));
            assert_eq!(dir.next_boot().unwrap(), base::Boot(1));
        }
    }
}
