//! Versions of programs as this node keeps them: a folder packed into one archive, named by the SHA-256 of its bytes, and
//! unpacked beside it for clones to run in. Where a version is needed and from whom it is fetched is others' matter.
//!
//! ```text
//! code/<digest>.archive     as it travels        code/<digest>/     unpacked
//! ```
//! The archive is a tar file whose entries stand in order of their paths and have no times and owners, so that one folder gives
//! the same bytes, and so the same name, whoever packs it and when.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use ignore::gitignore::Gitignore;

use crate::limits::{CODE_BYTES_MAX, CODE_DEPTH_MAX, CODE_FILES_MAX, CODE_PATH_BYTES_MAX, CODE_UNUSED_KEPT};
use crate::{inside, private};

/// A packed folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// SHA-256 in hex.
    pub digest: String,
    pub bytes: Vec<u8>,
    pub files: usize,
    /// Files and folders that [`IGNORE_FILE`] leaves out; what is in such a folder does not count.
    pub left_out: usize,
    /// Files whose names are those of secrets: every node gets them, and whoever may read its folder.
    pub secrets: Vec<PathBuf>,
}

/// Names what of its folder, and of those below, is not deployed, as git reads a `.gitignore`.
pub const IGNORE_FILE: &str = ".coppiceignore";

/// The node's versions.
#[derive(Debug)]
pub struct CodeStore {
    dir: PathBuf,
}

/// Packs a folder. `.git` is left out, and what [`IGNORE_FILE`] names.
///
/// # Errors
/// A sentence for a person: what in the folder cannot be taken, or what is too much.
pub fn pack(dir: &Path) -> Result<Packed, String> {
    if !dir.is_dir() {
        return Err(format!("{} is not a folder", dir.display()));
    }
    let mut walk = Walk { root: dir, rules: Vec::new(), paths: Vec::new(), left_out: 0 };
    walk.below(Path::new(""))?;
    let Walk { mut paths, left_out, .. } = walk;
    if paths.is_empty() {
        return Err(format!("{} is empty: there is nothing to run", dir.display()));
    }
    paths.sort();
    let mut archive = tar::Builder::new(Vec::new());
    let mut count = Count::default();
    for path in &paths {
        count.add(path).map_err(|wrong| format!("{}: {wrong}", dir.display()))?;
        entry(dir, path, &mut archive)?;
        if archive.get_ref().len() as u64 > CODE_BYTES_MAX {
            let mib = CODE_BYTES_MAX >> 20;
            return Err(format!(
                "{} has more than {mib} MiB; what is largest: {}; {LEAVE_OUT}",
                dir.display(),
                largest(dir, &paths)
            ));
        }
    }
    let bytes = archive.into_inner().map_err(|e| format!("cannot pack {}: {e}", dir.display()))?;
    let (digest, files) = (digest(&bytes), paths.len());
    paths.retain(|path| is_secret(path));
    Ok(Packed { digest, files, bytes, left_out, secrets: paths })
}

pub fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

const LEAVE_OUT: &str = "name what clones do not need in .coppiceignore, written like a .gitignore";

/// Names of files that mostly hold secrets: by their whole, or by their end.
const SECRET_NAMES: [&str; 9] =
    [".env", ".npmrc", ".pypirc", ".netrc", ".htpasswd", "id_rsa", "id_ecdsa", "id_ed25519", "credentials.json"];
const SECRET_ENDS: [&str; 5] = [".pem", ".key", ".p12", ".pfx", ".keystore"];
/// `.env.local` is one, and an example of one is none; nor are the roots that packages bring.
const NO_SECRET_ENDS: [&str; 5] = [".example", ".sample", ".template", ".dist", "cacert.pem"];

fn is_secret(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let is_named = SECRET_NAMES.contains(&name) || name.starts_with(".env.");
    (is_named || SECRET_ENDS.iter().any(|end| name.ends_with(end)))
        && !NO_SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// A look for all that is packed.
struct Walk<'a> {
    root: &'a Path,
    /// Of the folders on the way, the outermost first.
    rules: Vec<Gitignore>,
    paths: Vec<PathBuf>,
    left_out: usize,
}

impl Walk<'_> {
    fn below(&mut self, below: &Path) -> Result<(), String> {
        let dir = self.root.join(below);
        let rules = self.rules.len();
        let own = dir.join(IGNORE_FILE);
        if own.is_file() {
            let (own, wrong) = Gitignore::new(&own);
            if let Some(wrong) = wrong {
                return Err(format!("{IGNORE_FILE}: {wrong}"));
            }
            self.rules.push(own);
        }
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
            if self.is_left_out(&found.path(), kind.is_dir()) {
                self.left_out += 1;
                continue;
            }
            if kind.is_dir() {
                not_deep(&path)?;
                self.below(&path)?;
            } else if kind.is_file() || kind.is_symlink() {
                self.paths.push(path);
            } else {
                let path = found.path();
                return Err(format!("{} is neither file, folder nor link; {LEAVE_OUT}", path.display()));
            }
            if self.paths.len() > CODE_FILES_MAX {
                return Err(format!(
                    "{} has more than {CODE_FILES_MAX} files; where most of the first ones lie: {}; {LEAVE_OUT}",
                    self.root.display(),
                    fullest(&self.paths)
                ));
            }
        }
        if empty && below != Path::new("") {
            self.paths.push(below.to_owned());
        }
        self.rules.truncate(rules);
        Ok(())
    }

    /// What the innermost rule says that says something.
    fn is_left_out(&self, path: &Path, is_dir: bool) -> bool {
        let says = self.rules.iter().rev().map(|rules| rules.matched(path, is_dir)).find(|says| !says.is_none());
        says.is_some_and(|says| says.is_ignore())
    }
}

fn entry(root: &Path, path: &Path, archive: &mut tar::Builder<Vec<u8>>) -> Result<(), String> {
    let full = root.join(path);
    let cannot = |e: io::Error| format!("cannot read {}: {e}", full.display());
    let name = path.to_str().ok_or_else(|| format!("the name of {} is not UTF-8", full.display()))?;
    if name.len() > CODE_PATH_BYTES_MAX {
        return Err(format!("the path {name:?} is longer than {CODE_PATH_BYTES_MAX} bytes"));
    }
    let meta = fs::symlink_metadata(&full).map_err(cannot)?;
    let mut header = tar::Header::new_gnu();
    let runs = meta.is_dir() || meta.permissions().mode() & 0o111 != 0;
    header.set_mode(if runs { 0o755 } else { 0o644 });
    header.set_size(0);
    if meta.is_symlink() {
        let target = fs::read_link(&full).map_err(cannot)?;
        if let Err(wrong) = inside::resolve(root, path) {
            let target = target.display();
            return Err(format!(
                "{} is a link to {target}, outside of the folder: {wrong}; put what it leads to in its place (a venv: python3 -m venv \
                 --copies), or {LEAVE_OUT}",
                full.display()
            ));
        }
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        return archive.append_link(&mut header, path, target).map_err(cannot);
    }
    if meta.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        return archive.append_data(&mut header, path, io::empty()).map_err(cannot);
    }
    if meta.len() > CODE_BYTES_MAX {
        return Err(format!("{} alone has more than {} MiB", full.display(), CODE_BYTES_MAX >> 20));
    }
    let content = fs::read(&full).map_err(cannot)?;
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, path, content.as_slice()).map_err(cannot)
}

fn largest(root: &Path, paths: &[PathBuf]) -> String {
    let size = |path: &PathBuf| fs::symlink_metadata(root.join(path)).map_or(0, |meta| meta.len());
    let mut sizes: Vec<(u64, &PathBuf)> = paths.iter().map(|path| (size(path), path)).collect();
    sizes.sort_by(|a, b| b.cmp(a));
    let shown = sizes.iter().take(3).map(|(size, path)| format!("{} ({} MiB)", path.display(), size >> 20));
    shown.collect::<Vec<_>>().join(", ")
}

/// The folders with the most files, of those that lie in the packed one or a level below.
fn fullest(paths: &[PathBuf]) -> String {
    let mut count: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in paths {
        let folder: PathBuf = path.parent().into_iter().flat_map(Path::components).take(2).collect();
        *count.entry(folder).or_default() += 1;
    }
    let mut all: Vec<(usize, PathBuf)> = count.into_iter().map(|(path, files)| (files, path)).collect();
    all.sort_by(|a, b| b.cmp(a));
    let shown = all.iter().take(3).map(|(files, path)| format!("{} ({files})", Path::new(".").join(path).display()));
    shown.collect::<Vec<_>>().join(", ")
}

/// Counts what an archive makes: its entries, and the folders on the way to them.
#[derive(Debug, Default)]
struct Count {
    known: BTreeSet<PathBuf>,
    entries: usize,
    /// Folders that no entry before had named.
    folders: usize,
}

impl Count {
    fn add(&mut self, path: &Path) -> Result<(), String> {
        not_deep(path)?;
        self.entries += 1;
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if !self.known.insert(above.to_owned()) {
                break;
            }
            self.folders += 1;
        }
        self.known.insert(path.to_owned());
        let many = self.entries + self.folders > CODE_FILES_MAX;
        if many { Err(format!("it has more than {CODE_FILES_MAX} files and folders")) } else { Ok(()) }
    }
}

fn not_deep(path: &Path) -> Result<(), String> {
    let deep = path.components().count() > CODE_DEPTH_MAX;
    if deep { Err(format!("a path in it is more than {CODE_DEPTH_MAX} folders deep")) } else { Ok(()) }
}

/// Makes the files of an archive below `to`, an empty folder.
///
/// # Errors
/// What is wrong with it. Nothing outside of `to` was touched; what is in it is of no use.
pub fn unpack(archive: &[u8], to: &Path) -> Result<(), String> {
    let cannot = |e: io::Error| format!("cannot unpack it: {e}");
    let mut tar = tar::Archive::new(archive);
    tar.set_overwrite(false);
    tar.set_preserve_mtime(false);
    // The library sets modes whatever the umask is.
    tar.set_mask(0o077);
    let mut count = Count::default();
    let mut links = Vec::new();
    let leads_in = |link: &Path| {
        inside::resolve(to, link).map_err(|wrong| format!("the link {link:?} leads out of its folder: {wrong}"))
    };
    for entry in tar.entries().map_err(cannot)? {
        let mut entry = entry.map_err(cannot)?;
        let path = entry.path().map_err(cannot)?.into_owned();
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || path.as_os_str().len() > CODE_PATH_BYTES_MAX {
            return Err(format!("the path {path:?} leads out of its folder"));
        }
        count.add(&path)?;
        let kind = entry.header().entry_type();
        match kind {
            tar::EntryType::Regular | tar::EntryType::Directory | tar::EntryType::Symlink => (),
            other => return Err(format!("{path:?} is of kind {other:?}, which is not taken")),
        }
        // Looks where the folders on the way really lead to.
        if !entry.unpack_in(to).map_err(cannot)? {
            return Err(format!("the path {path:?} leads out of its folder"));
        }
        if kind.is_symlink() {
            leads_in(&path)?;
            links.push(path);
        }
    }
    // Once more: what came later may have changed where they lead.
    for link in &links {
        leads_in(link)?;
    }
    if count.entries == 0 { Err("it is empty, or no archive".into()) } else { Ok(()) }
}

impl CodeStore {
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        private::make_dir(&dir)?;
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

    /// A file of a version, its first bytes: so many at most.
    ///
    /// # Errors
    /// The version is not here, has no such file, or leads out of itself to it; or the disk fails.
    pub fn file(&self, wanted: &str, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        if !self.has(wanted) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let root = self.dir.join(wanted);
        let file = File::open(root.join(inside::resolve(&root, path)?))?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
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
        let made = private::make_dir(&folder).map_err(cannot).and_then(|()| unpack(bytes, &folder)).and_then(|()| {
            let mut archive = private::create(&file).map_err(cannot)?;
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
    use std::os::unix::fs::symlink;

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
        let file = |path: &str, most| store.file(&packed.digest, Path::new(path), most).ok();
        assert_eq!(file("static/app", 5).as_deref(), Some(&b"print"[..]));
        assert!(["", "empty", "none", "../", "/etc/passwd"].iter().all(|path| file(path, 9).is_none()));
        assert!(here.join("empty").is_dir() && !here.join(".git").exists());
        assert_eq!(fs::metadata(here.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(pack(&here).unwrap().digest, packed.digest);
        fs::write(two.join("app.py"), "print(2)\n").unwrap();
        assert_ne!(pack(&two).unwrap().digest, packed.digest);
        assert!(store.put(&packed.digest, b"other").unwrap_err().contains("these bytes are"));
    }

    #[test]
    fn what_an_ignore_file_names_stays_behind_and_secrets_are_named() {
        let dir = folder("ignore");
        sample(&dir);
        for (path, content) in [
            (".coppiceignore", "node_modules/\n*.log\n!keep.log\n/static/*.css\nsock\nout\n"),
            ("node_modules/a/index.js", ""),
            ("lib/node_modules/b.js", ""),
            ("debug.log", ""),
            ("keep.log", ""),
            ("static/top.css", ""),
            ("static/.coppiceignore", "deep/*\n"),
            (".env", "KEY=1"),
            ("conf/.env.local", "KEY=1"),
            ("conf/.env.example", "KEY="),
            ("conf/tls.key", ""),
            ("packages/certifi/cacert.pem", ""),
        ] {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), content).unwrap();
        }
        // Nor does it matter what could not be packed.
        symlink("/etc/passwd", dir.join("out")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("sock")).unwrap();
        let packed = pack(&dir).unwrap();
        let store = CodeStore::open(folder("ignore-store")).unwrap();
        store.put(&packed.digest, &packed.bytes).unwrap();
        let here = store.dir.join(&packed.digest);
        for path in ["app.py", "keep.log", ".coppiceignore", "static/app", ".env", "conf/.env.example", "empty"] {
            assert!(here.join(path).exists(), "{path}");
        }
        for path in ["node_modules", "lib", "debug.log", "static/top.css", "static/deep", "out", "sock", ".git"] {
            assert!(fs::symlink_metadata(here.join(path)).is_err(), "{path}");
        }
        assert_eq!(packed.left_out, 7);
        assert_eq!(packed.secrets, [".env", "conf/.env.local", "conf/tls.key"].map(PathBuf::from));
        fs::write(dir.join(".coppiceignore"), "[z-a]\n").unwrap();
        let why = pack(&dir).unwrap_err();
        assert!(why.starts_with(".coppiceignore: "), "{why}");
    }

    #[test]
    fn what_cannot_be_packed_says_why() {
        let dir = folder("bad");
        assert!(pack(&dir.join("nowhere")).unwrap_err().contains("is not a folder"));
        assert!(pack(&dir).unwrap_err().contains("is empty"));
        symlink("/etc/passwd", dir.join("out")).unwrap();
        let why = pack(&dir).unwrap_err();
        assert!(why.contains("outside of the folder") && why.contains(".coppiceignore"), "{why}");
        fs::remove_file(dir.join("out")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("sock")).unwrap();
        assert!(pack(&dir).unwrap_err().contains("neither file, folder nor link"));
    }

    type Entry<'a> = (tar::EntryType, &'a str, &'a str);

    fn archive(entries: &[Entry]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (kind, path, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
            let content = if kind.is_symlink() || kind.is_hard_link() {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
                ""
            } else {
                content
            };
            header.set_size(content.len() as u64);
            if path.len() > 100 {
                archive.append_data(&mut header, path, content.as_bytes()).unwrap();
                continue;
            }
            // As it is: the library does not write what leads out.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            archive.append(&header, content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn links_over_links_that_lead_out_are_refused_wherever_they_come_from() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let one = [(Directory, "a", ""), (Symlink, "a/b", ".."), (Symlink, "key", "a/b/../../node.key")];
        let three = [
            (Directory, "a/b/c", ""),
            (Symlink, "x", "a/b/c"),
            (Symlink, "a/b/c/up", "../.."),
            (Symlink, "y", "x/up/../z"),
            (Symlink, "z", "x/up/../../store"),
        ];
        // Leads nowhere when it comes, and out with what comes later.
        let later = [(Symlink, "key", "a/b/../node.key"), (Directory, "a", ""), (Symlink, "a/b", "..")];
        let folders = [(Regular, "d/e/f", "x"), (Symlink, "l", "d/e"), (Symlink, "out", "l/../../..")];
        for (n, entries) in [&one[..], &three, &later, &folders].into_iter().enumerate() {
            let to = folder(&format!("over{n}"));
            let said = unpack(&archive(entries), &to).unwrap_err();
            assert!(said.contains("leads out of its folder"), "{n}: {said}");
            // The same from a folder.
            let dir = folder(&format!("from{n}"));
            for (kind, path, content) in entries {
                let path = dir.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match kind {
                    Directory => fs::create_dir_all(path).unwrap(),
                    Symlink => symlink(content, path).unwrap(),
                    _ => fs::write(path, content).unwrap(),
                }
            }
            let said = pack(&dir).unwrap_err();
            assert!(said.contains("outside of the folder"), "{n}: {said}");
        }
        let to = folder("within");
        let good = [(Regular, "a/f", "x"), (Symlink, "a/b", ".."), (Symlink, "l", "a/b/a/f"), (Symlink, "no", "gone")];
        unpack(&archive(&good), &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("l")).unwrap(), "x");
        pack(&to).unwrap();
    }

    #[test]
    fn too_many_files_are_refused_with_where_they_lie() {
        let dir = folder("many");
        fs::create_dir_all(dir.join("node_modules/big/deep")).unwrap();
        fs::write(dir.join("app.py"), "").unwrap();
        fs::write(dir.join("node_modules/big/deep/0"), "").unwrap();
        // Links of one file take no time to make.
        let some = 1_000;
        for n in 1..some {
            fs::hard_link(dir.join("node_modules/big/deep/0"), dir.join(format!("node_modules/big/deep/{n}"))).unwrap();
        }
        let mut walk = Walk { root: &dir, rules: Vec::new(), paths: Vec::new(), left_out: 0 };
        walk.paths = (0..CODE_FILES_MAX - some).map(|n| PathBuf::from(format!("static/{n}"))).collect();
        let said = walk.below(Path::new("")).unwrap_err();
        for part in
            [&format!("more than {CODE_FILES_MAX} files"), "./static (", "./node_modules/big (", ".coppiceignore"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn folders_count_and_are_not_deep() {
        use tar::EntryType::Regular;
        let deep = "d/".repeat(CODE_DEPTH_MAX - 1) + "f";
        unpack(&archive(&[(Regular, &deep, "x")]), &folder("deep")).unwrap();
        let deeper = "d/".repeat(CODE_DEPTH_MAX) + "f";
        let to = folder("deeper");
        let said = unpack(&archive(&[(Regular, &deeper, "x")]), &to).unwrap_err();
        assert!(said.contains("folders deep") && !to.join("d").exists(), "{said}");
        fs::create_dir_all(to.join(&deeper)).unwrap();
        assert!(pack(&to).unwrap_err().contains("folders deep"));
        let mut count = Count::default();
        for n in 0..CODE_FILES_MAX / 2 {
            count.add(Path::new(&format!("{n}/f"))).unwrap();
        }
        assert!(count.add(Path::new("0/g")).unwrap_err().contains("files and folders"));
    }

    #[test]
    fn archives_that_lead_out_of_their_folder_are_refused() {
        use tar::EntryType::{Fifo, Link, Regular, Symlink};
        for (n, entries) in [
            vec![(Regular, "../out", "x")],
            vec![(Regular, "/out", "x")],
            vec![(Regular, "a/../../out", "x")],
            vec![(Symlink, "a", "..")],
            vec![(Symlink, "a", "/etc")],
            vec![(Link, "a", "/etc/passwd")],
            vec![(Regular, "a", "x"), (Regular, "a", "y")],
            vec![(Fifo, "a", "")],
        ]
        .into_iter()
        .enumerate()
        {
            let to = folder(&format!("out{n}"));
            fs::create_dir(to.join("in")).unwrap();
            assert!(unpack(&archive(&entries), &to.join("in")).is_err(), "{n}");
            assert!(!to.join("out").exists());
        }
        let to = folder("cut");
        let good = archive(&[(Regular, "a", "hello")]);
        for len in 0..512 + 5 {
            assert!(unpack(&good[..len], &to).is_err(), "{len} bytes");
            let _ = fs::remove_file(to.join("a"));
        }
        assert!(unpack(b"no archive at all", &to).is_err());
        unpack(&good, &to).unwrap();
    }
}
