//! Versions of programs as this node keeps them: a folder packed into one archive, named by the SHA-256 of its bytes, and
//! unpacked beside it for clones to run in. Where a version is needed and from whom it is fetched is others' matter.
//!
//! ```text
//! code/<digest>.archive     as it travels        code/<digest>/     unpacked
//! ```
//! The archive is ours, so that one folder gives the same bytes, and so the same name, whoever packs it and when: a mark,
//! then entries in order of their paths, then a zero byte.
//! ```text
//! u8 kind ('f' file, 'x' program, 'l' link, 'd' empty folder)   u16 length, path   u64 length, bytes (of a link its target)
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::limits::{CODE_BYTES_MAX, CODE_FILES_MAX, CODE_PATH_BYTES_MAX, CODE_UNUSED_KEPT};

const MARK: &[u8] = b"coppice code 1\n";

/// A packed folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// SHA-256 in hex.
    pub digest: String,
    pub bytes: Vec<u8>,
    pub files: usize,
}

/// The node's versions.
#[derive(Debug)]
pub struct CodeStore {
    dir: PathBuf,
}

/// Packs a folder. `.git` is left out.
///
/// # Errors
/// A sentence for a person: what in the folder cannot be taken, or what is too much.
pub fn pack(dir: &Path) -> Result<Packed, String> {
    if !dir.is_dir() {
        return Err(format!("{} is not a folder", dir.display()));
    }
    let mut paths = Vec::new();
    walk(dir, Path::new(""), &mut paths)?;
    if paths.is_empty() {
        return Err(format!("{} is empty: there is nothing to run", dir.display()));
    }
    paths.sort();
    let mut bytes = MARK.to_vec();
    for path in &paths {
        entry(dir, path, &mut bytes)?;
        if bytes.len() as u64 > CODE_BYTES_MAX {
            let mib = CODE_BYTES_MAX >> 20;
            return Err(format!(
                "{} has more than {mib} MiB; what is largest: {}",
                dir.display(),
                largest(dir, &paths)
            ));
        }
    }
    bytes.push(0);
    Ok(Packed { digest: digest(&bytes), files: paths.len(), bytes })
}

pub fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn walk(root: &Path, below: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let dir = root.join(below);
    let entries = fs::read_dir(&dir).map_err(|e| format!("cannot read {}: {e}", dir.display()))?;
    let mut empty = true;
    for found in entries {
        let found = found.map_err(|e| format!("cannot read {}: {e}", dir.display()))?;
        empty = false;
        if found.file_name() == ".git" {
            continue;
        }
        let path = below.join(found.file_name());
        let kind = found.file_type().map_err(|e| format!("cannot look at {}: {e}", found.path().display()))?;
        if kind.is_dir() {
            walk(root, &path, paths)?;
        } else if kind.is_file() || kind.is_symlink() {
            paths.push(path);
        } else {
            return Err(format!("{} is neither file, folder nor link; leave it out", found.path().display()));
        }
        if paths.len() > CODE_FILES_MAX {
            return Err(format!("{} has more than {CODE_FILES_MAX} files", root.display()));
        }
    }
    if empty && below != Path::new("") {
        paths.push(below.to_owned());
    }
    Ok(())
}

fn entry(root: &Path, path: &Path, bytes: &mut Vec<u8>) -> Result<(), String> {
    let full = root.join(path);
    let cannot = |e: io::Error| format!("cannot read {}: {e}", full.display());
    let name = path.to_str().ok_or_else(|| format!("the name of {} is not UTF-8", full.display()))?;
    if name.len() > CODE_PATH_BYTES_MAX {
        return Err(format!("the path {name:?} is longer than {CODE_PATH_BYTES_MAX} bytes"));
    }
    let meta = fs::symlink_metadata(&full).map_err(cannot)?;
    let (kind, content) = if meta.is_symlink() {
        let target = fs::read_link(&full).map_err(cannot)?;
        if !stays_inside(path, &target) {
            return Err(format!("{} is a link to {}, outside of the folder", full.display(), target.display()));
        }
        let target = target.to_str().ok_or_else(|| format!("the target of {} is not UTF-8", full.display()))?;
        (b'l', target.as_bytes().to_vec())
    } else if meta.is_dir() {
        (b'd', Vec::new())
    } else {
        if meta.len() > CODE_BYTES_MAX {
            return Err(format!("{} alone has more than {} MiB", full.display(), CODE_BYTES_MAX >> 20));
        }
        let kind = if meta.permissions().mode() & 0o111 == 0 { b'f' } else { b'x' };
        (kind, fs::read(&full).map_err(cannot)?)
    };
    bytes.push(kind);
    bytes.extend_from_slice(&u16::try_from(name.len()).expect("limited just above").to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_be_bytes());
    bytes.extend_from_slice(&content);
    Ok(())
}

fn largest(root: &Path, paths: &[PathBuf]) -> String {
    let size = |path: &PathBuf| fs::symlink_metadata(root.join(path)).map_or(0, |meta| meta.len());
    let mut sizes: Vec<(u64, &PathBuf)> = paths.iter().map(|path| (size(path), path)).collect();
    sizes.sort_by(|a, b| b.cmp(a));
    let shown = sizes.iter().take(3).map(|(size, path)| format!("{} ({} MiB)", path.display(), size >> 20));
    shown.collect::<Vec<_>>().join(", ")
}

/// Whether a link at `path` to `target` leads to something in the same folder.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count() as i64 - 1;
    target.components().all(|part| {
        depth += match part {
            Component::Normal(_) => 1,
            Component::CurDir => 0,
            Component::ParentDir => -1,
            Component::RootDir | Component::Prefix(_) => i64::MIN / 2,
        };
        depth >= 0
    })
}

/// Whether a path of an archive is below the folder that it is unpacked in.
fn is_plain(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= CODE_PATH_BYTES_MAX
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Takes a piece off the front.
fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], String> {
    let (piece, rest) = bytes.split_at_checked(len).ok_or("it ends in the middle of an entry")?;
    *bytes = rest;
    Ok(piece)
}

/// Makes the files of an archive below `to`, an empty folder.
///
/// # Errors
/// What is wrong with it. Nothing outside of `to` was touched; what is in it is of no use.
pub fn unpack(archive: &[u8], to: &Path) -> Result<(), String> {
    let mut rest = archive.strip_prefix(MARK).ok_or("it is no archive of this version")?;
    let mut files = 0;
    loop {
        let kind = take(&mut rest, 1)?[0];
        if kind == 0 {
            return if rest.is_empty() { Ok(()) } else { Err("something follows its end".into()) };
        }
        files += 1;
        if files > CODE_FILES_MAX {
            return Err(format!("it has more than {CODE_FILES_MAX} files"));
        }
        let len = take(&mut rest, 2)?;
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        let name = std::str::from_utf8(take(&mut rest, len)?).map_err(|_| "a path is not UTF-8")?;
        if !is_plain(name) {
            return Err(format!("the path {name:?} leads out of its folder"));
        }
        let len = u64::from_be_bytes(*take(&mut rest, 8)?.first_chunk().expect("eight bytes were taken"));
        let content = take(&mut rest, usize::try_from(len).unwrap_or(usize::MAX))?;
        make(to, name, kind, content)?;
    }
}

fn make(to: &Path, name: &str, kind: u8, content: &[u8]) -> Result<(), String> {
    let path = to.join(name);
    let cannot = |e: io::Error| format!("cannot make {}: {e}", path.display());
    // A folder on the way that is a link could lead anywhere: what was made is looked at, not what was meant.
    let parent = path.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(cannot)?;
    let (inside, root) = (parent.canonicalize().map_err(cannot)?, to.canonicalize().map_err(cannot)?);
    if !inside.starts_with(root) {
        return Err(format!("the path {name:?} leads out of its folder"));
    }
    match kind {
        b'd' => fs::create_dir_all(&path).map_err(cannot),
        b'l' => {
            let target = Path::new(std::str::from_utf8(content).map_err(|_| "the target of a link is not UTF-8")?);
            if !stays_inside(Path::new(name), target) {
                return Err(format!("the link {name:?} leads out of its folder"));
            }
            symlink(target, &path).map_err(cannot)
        }
        b'f' | b'x' => {
            let mode = if kind == b'x' { 0o755 } else { 0o644 };
            let made = File::options().write(true).create_new(true).mode(mode).open(&path);
            made.and_then(|mut file| file.write_all(content)).map_err(cannot)
        }
        _ => Err(format!("{name:?} is of a kind that this version does not know")),
    }
}

impl CodeStore {
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        // What a former life left half made.
        for found in fs::read_dir(&dir)?.flatten() {
            if found.file_name().to_string_lossy().starts_with(".new-") {
                let path = found.path();
                let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            }
        }
        Ok(Self { dir })
    }

    /// Digests of the versions that are here whole.
    pub fn all(&self) -> BTreeSet<String> {
        let found = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = found.filter_map(|found| found.file_name().into_string().ok());
        let digests = names.filter_map(|name| name.strip_suffix(".archive").map(str::to_owned));
        digests.filter(|digest| is_digest(digest) && self.dir.join(digest).is_dir()).collect()
    }

    pub fn has(&self, digest: &str) -> bool {
        is_digest(digest) && self.archive(digest).is_file() && self.dir.join(digest).is_dir()
    }

    fn archive(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}.archive"))
    }

    /// The archive as it travels.
    ///
    /// # Errors
    /// It is not here, or its disk fails.
    pub fn get(&self, wanted: &str) -> io::Result<Vec<u8>> {
        if !self.has(wanted) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let bytes = fs::read(self.archive(wanted))?;
        if digest(&bytes) == wanted { Ok(bytes) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Keeps a version: when this returns it is on the disk, and unpacked.
    ///
    /// # Errors
    /// A sentence: these are other bytes than the name says, or no archive, or the disk is full.
    pub fn put(&self, wanted: &str, bytes: &[u8]) -> Result<(), String> {
        let is = digest(bytes);
        if is != wanted {
            return Err(format!("these bytes are {is}, not {wanted}"));
        }
        if self.has(wanted) {
            return Ok(());
        }
        let cannot = |e: io::Error| format!("cannot keep it below {}: {e}", self.dir.display());
        let mine = format!("{wanted}-{:x}", SystemTime::now().elapsed().map_or(0, |d| d.as_nanos()) ^ thread_mark());
        let (folder, file) = (self.dir.join(format!(".new-{mine}")), self.dir.join(format!(".new-{mine}.archive")));
        let made = fs::create_dir(&folder).map_err(cannot).and_then(|()| unpack(bytes, &folder)).and_then(|()| {
            let mut archive = File::create(&file).map_err(cannot)?;
            archive.write_all(bytes).and_then(|()| archive.sync_all()).map_err(cannot)?;
            // Another one may have been quicker; its folder has the same content.
            let _ = fs::rename(&folder, self.dir.join(wanted));
            fs::rename(&file, self.archive(wanted)).map_err(cannot)?;
            File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(cannot)
        });
        let _ = (fs::remove_dir_all(&folder), fs::remove_file(&file));
        made
    }

    /// Forgets versions that nobody declares, unless they came a moment ago.
    pub fn keep_only(&self, declared: &BTreeSet<String>) {
        for digest in self.all().difference(declared) {
            let archive = self.archive(digest);
            let age =
                fs::metadata(&archive).and_then(|meta| meta.modified()).map(|at| at.elapsed().unwrap_or_default());
            if age.unwrap_or(Duration::ZERO) > CODE_UNUSED_KEPT {
                let _ = (fs::remove_file(archive), fs::remove_dir_all(self.dir.join(digest)));
            }
        }
    }
}

/// Tells writers of one moment apart.
fn thread_mark() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static COUNT: AtomicU64 = AtomicU64::new(1);
    u128::from(COUNT.fetch_add(1, Relaxed)) << 64 | u128::from(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("coppice-code-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn sample(dir: &Path) {
        fs::create_dir_all(dir.join("static/deep")).unwrap();
        fs::create_dir_all(dir.join("empty")).unwrap();
        fs::create_dir_all(dir.join(".git")).unwrap();
        fs::write(dir.join(".git/config"), "secret").unwrap();
        fs::write(dir.join("app.py"), "print(1)\n").unwrap();
        fs::write(dir.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.join("static/deep/a.css"), "").unwrap();
        symlink("../app.py", dir.join("static/app")).unwrap();
    }

    #[test]
    fn a_folder_comes_back_as_it_was_and_has_one_name() {
        let (one, two, store) = (folder("one"), folder("two"), folder("store"));
        sample(&one);
        sample(&two);
        let packed = pack(&one).unwrap();
        assert_eq!(packed, pack(&two).unwrap(), "packed by somebody else, at another time");
        assert_eq!(packed.files, 5);
        let store = CodeStore::open(store).unwrap();
        assert!(!store.has(&packed.digest));
        store.put(&packed.digest, &packed.bytes).unwrap();
        store.put(&packed.digest, &packed.bytes).unwrap();
        assert_eq!(store.all(), [packed.digest.clone()].into());
        assert_eq!(store.get(&packed.digest).unwrap(), packed.bytes);
        let here = store.dir.join(&packed.digest);
        assert_eq!(fs::read_to_string(here.join("static/app")).unwrap(), "print(1)\n");
        assert!(here.join("empty").is_dir() && !here.join(".git").exists());
        assert_eq!(fs::metadata(here.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(pack(&here).unwrap().digest, packed.digest);
        fs::write(two.join("app.py"), "print(2)\n").unwrap();
        assert_ne!(pack(&two).unwrap().digest, packed.digest);
        assert!(store.put(&packed.digest, b"other").unwrap_err().contains("these bytes are"));
    }

    #[test]
    fn what_cannot_be_packed_says_why() {
        let dir = folder("bad");
        assert!(pack(&dir.join("nowhere")).unwrap_err().contains("is not a folder"));
        assert!(pack(&dir).unwrap_err().contains("is empty"));
        symlink("/etc/passwd", dir.join("out")).unwrap();
        assert!(pack(&dir).unwrap_err().contains("outside of the folder"));
        fs::remove_file(dir.join("out")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("sock")).unwrap();
        assert!(pack(&dir).unwrap_err().contains("neither file, folder nor link"));
    }

    #[test]
    fn archives_that_lead_out_of_their_folder_are_refused() {
        let entry = |kind: u8, path: &str, content: &[u8]| {
            let mut bytes = vec![kind];
            bytes.extend_from_slice(&(path.len() as u16).to_be_bytes());
            bytes.extend_from_slice(path.as_bytes());
            bytes.extend_from_slice(&(content.len() as u64).to_be_bytes());
            bytes.extend_from_slice(content);
            bytes
        };
        let archive = |entries: &[Vec<u8>]| [MARK, &entries.concat(), &[0]].concat();
        for (n, entries) in [
            vec![entry(b'f', "../out", b"x")],
            vec![entry(b'f', "/out", b"x")],
            vec![entry(b'f', "a//b", b"x")],
            vec![entry(b'l', "a", b"..")],
            vec![entry(b'l', "a", b"/etc")],
            vec![entry(b'f', "a", b"x"), entry(b'f', "a", b"y")],
            vec![entry(b'q', "a", b"x")],
        ]
        .into_iter()
        .enumerate()
        {
            let to = folder(&format!("out{n}"));
            assert!(unpack(&archive(&entries), &to.join("in")).is_err(), "{n}");
            assert!(!to.join("out").exists());
        }
        let to = folder("cut");
        let good = archive(&[entry(b'f', "a", b"hello")]);
        for len in 0..good.len() {
            assert!(unpack(&good[..len], &to.join(len.to_string())).is_err(), "{len} bytes");
        }
        assert!(unpack(&[&good[..], b"x"].concat(), &to.join("more")).unwrap_err().contains("follows its end"));
    }
}
