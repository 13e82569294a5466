//! Files of a node are its own user's: the folder holds the authority's key, the operator's token and all values. Nothing hangs
//! on the mode of one folder: whatever the host makes, it makes for its owner alone, whatever the process' umask; and what an
//! older program or a person made more open is mended when the folder is taken, or the node does not start.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;

use crate::Error;
use crate::disk::LOG_DIR;
use crate::renew::SET_ASIDE;

/// Folders in a node's folder that hold what others are not to see.
const FOLDERS: [&str; 4] = [LOG_DIR, SET_ASIDE, "logs", "code"];
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// From here on this process makes files for its own user alone. To be called before the first one.
pub fn begin() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// What programs are used to that are no part of a node: its clones.
pub(crate) fn as_usual() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// To make or open a file; one that it makes is private.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().create(true).truncate(true).write(true).open(path)
}

/// Makes a folder and those above it that are missing.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A folder that is somebody's of this user is open to him again.
pub(crate) fn make_own(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// The node's folder is this user's, and from now on closed to all others.
pub(crate) fn close(dir: &Path) -> Result<(), Error> {
    let open = |why: String| Error::Open { dir: dir.into(), why };
    let meta = fs::metadata(dir).map_err(Error::io(dir.display().to_string()))?;
    let (owner, me) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner != me {
        return Err(open(format!("it belongs to user {owner}, and the node runs as user {me}")));
    }
    shut(dir, &meta).map_err(|e| open(format!("its mode cannot be set to 0700: {e}")))
}

/// What lies in it is closed, too. Folders of somebody else in there are left alone.
pub(crate) fn mend(dir: &Path) -> Result<(), Error> {
    each(dir, false)?;
    FOLDERS.iter().map(|name| dir.join(name)).filter(|inner| inner.is_dir()).try_for_each(|inner| {
        let meta = fs::symlink_metadata(&inner).map_err(Error::io(inner.display().to_string()))?;
        if meta.is_symlink() {
            // It was moved to another disk: what it leads to is as much ours.
            close(&inner)?;
        } else {
            shut(&inner, &meta).map_err(|e| cannot(&inner, &e))?;
        }
        each(&inner, true)
    })
}

/// Files, and with `folders` those, one step down.
fn each(dir: &Path, folders: bool) -> Result<(), Error> {
    for found in fs::read_dir(dir).map_err(Error::io(dir.display().to_string()))? {
        let path = found.map_err(Error::io(dir.display().to_string()))?.path();
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            // Somebody removed it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(cannot(&path, &e)),
        };
        if meta.is_file() || (meta.is_dir() && folders) {
            shut(&path, &meta).map_err(|e| cannot(&path, &e))?;
        }
    }
    Ok(())
}

fn shut(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
    let mode = meta.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), was = format_args!("{mode:04o}"), "others could reach this; now they cannot");
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::Open { dir: path.into(), why: format!("others may reach it, and that cannot be changed: {error}") }
}

/// All that group or others could reach, for tests.
#[cfg(test)]
pub(crate) fn open_to_others(dir: &Path) -> Vec<String> {
    let mut open = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|found| found.unwrap().path()));
        }
        if !meta.is_symlink() && meta.mode() & OTHERS != 0 {
            open.push(format!("{} {:o}", path.display(), meta.mode() & 0o7777));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataDir;
    use crate::tls::temp_dir;

    #[test]
    fn a_folder_that_was_made_for_all_and_what_lies_in_it_is_closed() {
        let temp = temp_dir("private");
        let of = |name: &str| temp.0.join(name);
        for folder in ["log", "log.distrusted", "logs", "code/abc/deep", "theirs"] {
            fs::create_dir_all(of(folder)).unwrap();
        }
        let files =
            ["node.key", "log/0.seg", "log.distrusted/0.seg", "logs/shop-0.log", "code/abc.archive", "theirs/x"];
        for file in files {
            fs::write(of(file), "x").unwrap();
        }
        for path in ["", "log", "logs", "code", "code/abc", "theirs"].into_iter().chain(files) {
            let mode = if of(path).is_dir() { 0o755 } else { 0o664 };
            fs::set_permissions(of(path), Permissions::from_mode(mode)).unwrap();
        }
        let _held = DataDir::open(&temp.0).unwrap();
        let open = open_to_others(&temp.0);
        let theirs = |path: &String| path.contains("theirs") || path.contains("code/abc/deep");
        assert!(open.iter().all(theirs), "{open:?}");
        assert_eq!(fs::metadata(of("theirs/x")).unwrap().mode() & 0o777, 0o664, "what is not ours is as it was");
        assert_eq!(fs::metadata(of("code/abc")).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn who_is_not_the_owner_is_told_what_to_do() {
        // Only root may give a folder away, and only then there is one that is somebody else's.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let temp = temp_dir("not-ours");
        std::os::unix::fs::chown(&temp.0, Some(65_534), None).unwrap();
        let error = DataDir::open(&temp.0).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534") && error.contains("--dir"), "{error}");
    }
}
