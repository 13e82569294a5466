//! Where a path below a folder really leads, links followed one by one. Whoever unpacks, packs or serves foreign files asks
//! here before it opens them: counting the parts of a path does not see that a part is itself a link.
//! It says what is true now. A folder that others write into may be another one a moment later.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::limits::{LINK_PARTS_MAX, LINKS_MAX};

/// The path of the same thing below `root`, without links and `..`. Parts that do not exist are taken as they are written.
///
/// # Errors
/// The way leaves the folder, even if it comes back later; it goes over too many links; or the disk fails.
pub fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut here = PathBuf::new();
    let mut ahead = parts(path)?;
    let (mut links, mut steps) = (0, 0);
    while let Some(part) = ahead.pop() {
        steps += 1;
        if steps > LINK_PARTS_MAX {
            return Err(io::Error::other(format!("its way has more than {LINK_PARTS_MAX} parts")));
        }
        if part == ".." {
            if !here.pop() {
                return Err(outside());
            }
            continue;
        }
        here.push(&part);
        match fs::read_link(root.join(&here)) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::other(format!("its way has more than {LINKS_MAX} links")));
                }
                here.pop();
                ahead.extend(parts(&target)?);
            }
            // No link, or nothing at all.
            Err(e) if matches!(e.kind(), Kind::InvalidInput | Kind::NotFound | Kind::NotADirectory) => (),
            Err(e) => return Err(e),
        }
    }
    Ok(here)
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> io::Result<Vec<OsString>> {
    let part = |part| match part {
        Component::Normal(_) | Component::ParentDir => Some(Ok(part.as_os_str().to_owned())),
        Component::CurDir => None,
        Component::RootDir | Component::Prefix(_) => Some(Err(outside())),
    };
    path.components().rev().filter_map(part).collect()
}

fn outside() -> io::Error {
    io::Error::new(Kind::PermissionDenied, "its way leaves the folder")
}

type Kind = io::ErrorKind;
