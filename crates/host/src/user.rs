//! A clone that runs as another user than its node. The node's folder is closed to all others, so `keep`, while it is still root's,
//! lets that one user through it (an access list of the file system), to the clone's code and to its temporary folder, and then
//! becomes him.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User, getgrouplist, setgid, setgroups, setuid};
use rustix::fs::{FlockOperation, XattrFlags, flock, getxattr, setxattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What `keep` is told of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct As {
    pub name: String,
    /// The node's folder.
    pub node: PathBuf,
    /// In it: what was deployed.
    pub code: Option<PathBuf>,
    /// In it: temporary files of this clone.
    pub scratch: PathBuf,
}

/// These tell a program who it is; the rest of the environment is the node's or was declared.
pub(crate) const WHO: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Of a file system's access list.
const LIST: &str = "system.posix_acl_access";
const LIST_VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// A list has some entries of 8 bytes, one for each user that has been let in.
const LIST_BYTES_MAX: usize = 64 << 10;
const NO_ID: u32 = u32::MAX;
/// Kinds of entries, in the order that they stand in a list.
const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const OTHER_GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const READ: u16 = 4;
const PASS: u16 = 1;

impl As {
    /// Who that is, if this process may become him; none if it is him.
    pub fn find(&self) -> Result<(User, bool), String> {
        let name = &self.name;
        let found = User::from_name(name).map_err(|e| format!("cannot look up user {name}: {e}"))?;
        let user =
            found.ok_or_else(|| format!("there is no user {name} on this machine; add it, or leave `user` out"))?;
        let me = Uid::effective();
        if user.uid != me && !me.is_root() {
            return Err(format!(
                "the node runs as user {me} and may not become {name}; run it as root, or leave `user` out"
            ));
        }
        Ok((user.clone(), user.uid != me))
    }

    /// Opens to him what a clone needs of the node's folder.
    pub fn let_in(&self, user: &User) -> Result<(), String> {
        let uid = user.uid.as_raw();
        let wrong = |path: &Path, e: io::Error| format!("cannot open {} to {}: {e}", path.display(), self.name);
        // Two that start at the same time would each write a list without the other's user.
        let all = self.scratch.parent().unwrap_or(&self.scratch);
        let held = fs::File::open(all).map_err(|e| wrong(all, e))?;
        flock(&held, FlockOperation::LockExclusive).map_err(|e| wrong(all, e.into()))?;
        let mut through: Vec<&Path> = vec![&self.node, all];
        through.extend(self.code.iter().filter_map(|code| code.parent()));
        for path in through {
            admit(path, uid, PASS).map_err(|e| wrong(path, e))?;
        }
        if let Some(code) = self.code.as_ref().filter(|code| !is_admitted(code, uid, READ | PASS)) {
            // The folder itself last: it says that all below it is done.
            each(code, &mut |path, meta| {
                let may = if meta.is_dir() || meta.mode() & 0o100 != 0 { READ | PASS } else { READ };
                admit(path, uid, may)
            })
            .map_err(|e| wrong(code, e))?;
        }
        each(&self.scratch, &mut |path, _| lchown(path, Some(uid), Some(user.gid.as_raw())))
            .map_err(|e| wrong(&self.scratch, e))
    }

    /// Becomes him, for good.
    pub fn become_him(&self, user: &User) -> Result<(), String> {
        let wrong = |e: nix::Error| format!("cannot become user {}: {e}", self.name);
        let name = std::ffi::CString::new(user.name.as_str()).map_err(|e| e.to_string())?;
        setgroups(&getgrouplist(&name, user.gid).map_err(wrong)?).map_err(wrong)?;
        setgid(user.gid).map_err(wrong)?;
        setuid(user.uid).map_err(wrong)?;
        for path in self.code.iter().chain([&self.scratch]) {
            fs::metadata(path).map_err(|e| {
                let name = &self.name;
                format!(
                    "user {name} cannot reach {}: {e}; a folder above {} is closed",
                    path.display(),
                    self.node.display()
                )
            })?;
        }
        Ok(())
    }
}

/// What a program of his finds in its environment.
pub(crate) fn who(user: &User) -> [(&'static str, std::ffi::OsString); 4] {
    let [home, name, login, shell] = WHO;
    let of_name = || user.name.clone().into();
    [(home, user.dir.clone().into()), (name, of_name()), (login, of_name()), (shell, user.shell.clone().into())]
}

/// A folder and all that is in it, what is inside first; links are neither followed nor told of.
fn each(path: &Path, act: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        return Ok(());
    }
    if meta.is_dir() {
        for found in fs::read_dir(path)? {
            each(&found?.path(), act)?;
        }
    }
    act(path, &meta)
}

/// Entries of a list by kind and id, with what they allow.
type List = BTreeMap<(u16, u32), u16>;

/// Gives a user rights to a file or folder, beside what its mode says.
fn admit(path: &Path, uid: u32, may: u16) -> io::Result<()> {
    let mut list = list_of(path)?;
    *list.entry((USER, uid)).or_default() |= may;
    let bounded = list.iter().filter(|((kind, _), _)| [USER, GROUP, OTHER_GROUP].contains(kind));
    let mask = bounded.fold(0, |all, (_, may)| all | may);
    list.insert((MASK, NO_ID), mask);
    let mut bytes = LIST_VERSION.to_vec();
    for ((kind, id), may) in list {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(may.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Ok(setxattr(path, LIST, &bytes, XattrFlags::empty())?)
}

fn is_admitted(path: &Path, uid: u32, may: u16) -> bool {
    let Ok(list) = list_of(path) else { return false };
    let of = |kind, id| list.get(&(kind, id)).copied().unwrap_or_default();
    of(USER, uid) & of(MASK, NO_ID) & may == may
}

/// As it is, or as the mode says where there is none.
fn list_of(path: &Path) -> io::Result<List> {
    let mut bytes = vec![0; LIST_BYTES_MAX];
    match getxattr(path, LIST, &mut bytes[..]) {
        Ok(found) => bytes.truncate(found),
        Err(Errno::NODATA) => {
            let mode = fs::symlink_metadata(path)?.mode();
            let may = |shift: u32| (mode >> shift & 0o7) as u16;
            return Ok([((OWNER, NO_ID), may(6)), ((GROUP, NO_ID), may(3)), ((OTHERS, NO_ID), may(0))].into());
        }
        Err(e) => return Err(e.into()),
    }
    let entries = bytes.strip_prefix(&LIST_VERSION[..]).ok_or(io::ErrorKind::InvalidData)?;
    let entry = |e: &[u8]| {
        let of = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        ((of(0), u32::from_le_bytes([e[4], e[5], e[6], e[7]])), of(2))
    };
    Ok(entries.chunks_exact(8).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private;
    use crate::tls::temp_dir;

    #[test]
    fn users_are_let_through_a_closed_folder_one_by_one_and_the_mode_shuts_it_again() {
        let temp = temp_dir("user");
        let dir = temp.0.join("node");
        private::make_dir(&dir).unwrap();
        match admit(&dir, 65_534, PASS) {
            // Not each file system has lists; what then is told is for the clone that wants one.
            Err(e) if e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => return,
            done => done.unwrap(),
        }
        admit(&dir, 1, READ | PASS).unwrap();
        assert!(is_admitted(&dir, 65_534, PASS) && !is_admitted(&dir, 65_534, READ) && is_admitted(&dir, 1, READ));
        assert!(!is_admitted(&dir, 2, PASS));
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o707, 0o700, "others are as they were");
        private::make_own(&dir).unwrap();
        assert!(!is_admitted(&dir, 65_534, PASS), "a node that starts closes its folder");
        admit(&dir, 1, PASS).unwrap();
        assert!(is_admitted(&dir, 1, PASS));
    }

    #[test]
    fn who_is_no_user_or_may_not_be_taken_is_refused_with_what_to_do() {
        let of = |name: &str| As { name: name.into(), node: "/x".into(), code: None, scratch: "/x/scratch/a".into() };
        let why = of("no-such-user-here").find().err().unwrap();
        assert!(why.contains("no user no-such-user-here"), "{why}");
        let me = User::from_uid(Uid::effective()).unwrap().unwrap();
        assert!(!of(&me.name).find().unwrap().1, "it is him already");
        if !Uid::effective().is_root() {
            assert!(of("root").find().err().unwrap().contains("run it as root"));
        }
    }
}
