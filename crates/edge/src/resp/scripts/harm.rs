//! Scripts that were at work when their node ended without a word: Lua is written in C, and what breaks it ends the process.
//!
//! Each thread that runs scripts says in a small file which one it is about to run. What stands there at the next start was at work
//! when the node ended; a script that was so twice within a day is withheld, until somebody releases it. Whatever else kills nodes
//! must blame nobody: so only scripts are written down that have not come to their end often in this life of the node yet, and
//! those that are at work for long. What is written is not forced to the disk: a machine without power blames no script.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use super::limits::*;

/// What is at work, a record of fixed length for each thread.
pub const AT_WORK: &str = "scripts.running";
/// Which scripts were when the node ended.
const DEATHS: &str = "scripts.harm";
const RECORD: usize = 160;

/// A namespace, and the digest of a script of its.
type Id = (String, String);

#[derive(Clone, Copy, PartialEq, Debug)]
struct Deaths {
    times: u32,
    last_ms: u64,
}

impl Deaths {
    fn is_withheld(self) -> bool {
        self.times >= DEATHS_MAX
    }
}

/// What is known of scripts that did harm, and what of it is on disk.
#[derive(Default)]
pub struct Harm {
    /// Without one nothing is kept.
    dir: Option<PathBuf>,
    known: Mutex<BTreeMap<Id, Deaths>>,
    /// How many of them are withheld.
    withheld: AtomicU64,
    /// The node ends as it should: nothing is at work any more.
    ended: AtomicBool,
}

impl Harm {
    /// Reads what the last life of the node has left, and says what people should hear of it.
    pub fn open(dir: &Path, now_ms: u64) -> (Self, Vec<String>) {
        let read = |name| fs::read(dir.join(name)).unwrap_or_default();
        let mut known: BTreeMap<Id, Deaths> =
            String::from_utf8_lossy(&read(DEATHS)).lines().filter_map(death).collect();
        // What was released is not in the file; what is old and not withheld was by chance.
        known.retain(|_, of| of.is_withheld() || of.last_ms.saturating_add(DEATHS_KEPT_MS) > now_ms);
        let mut remarks = Vec::new();
        for id in read(AT_WORK).chunks(RECORD).filter_map(at_work) {
            let of = known.entry(id.clone()).or_insert(Deaths { times: 0, last_ms: 0 });
            *of = Deaths { times: of.times.saturating_add(1), last_ms: now_ms };
            let (space, sha) = id;
            remarks.push(match of.is_withheld() {
                false => format!("script {sha} of {space} was at work when this node ended; a second time, and it is withheld"),
                true => format!(
                    "script {sha} of {space} was at work {} times when this node ended: it is withheld here until SCRIPT RELEASE",
                    of.times
                ),
            });
        }
        while known.len() > DEATHS_KEPT_MAX {
            let Some(oldest) = known.iter().min_by_key(|(_, of)| of.last_ms).map(|(id, _)| id.clone()) else { break };
            known.remove(&oldest);
        }
        let harm = Self { dir: Some(dir.to_owned()), known: Mutex::new(known), ..Self::default() };
        harm.keep(&harm.known.lock().unwrap_or_else(PoisonError::into_inner));
        // From now on it counts anew.
        if let Err(error) = create(&dir.join(AT_WORK)) {
            tracing::warn!(%error, "what scripts do when a node ends is not written down");
        }
        (harm, remarks)
    }

    /// How many scripts are withheld.
    pub fn count(&self) -> u64 {
        self.withheld.load(Relaxed)
    }

    /// Digests of the namespace's scripts that are withheld.
    pub fn of(&self, space: &str) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let own = known.iter().filter(|((name, _), of)| name == space && of.is_withheld());
        own.map(|((_, sha), _)| sha.clone()).collect()
    }

    /// Is it withheld?
    pub fn withholds(&self, space: &str, sha: &[u8]) -> bool {
        self.count() > 0 && self.of(space).iter().any(|of| of.as_bytes() == sha)
    }

    /// Forgets what a script did. Was it withheld?
    pub fn release(&self, space: &str, sha: &[u8]) -> bool {
        let id = (space.to_owned(), String::from_utf8_lossy(sha).to_ascii_lowercase());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of) = known.remove(&id) else { return false };
        self.keep(&known);
        of.is_withheld()
    }

    /// The node ends as it should.
    pub fn end(&self) {
        self.ended.store(true, Relaxed);
        if let Some(dir) = &self.dir {
            let _ = fs::remove_file(dir.join(AT_WORK));
        }
    }

    /// Writes it down. Who cannot knows it for this life.
    fn keep(&self, known: &BTreeMap<Id, Deaths>) {
        self.withheld.store(known.values().filter(|of| of.is_withheld()).count() as u64, Relaxed);
        let Some(dir) = &self.dir else { return };
        let (path, new) = (dir.join(DEATHS), dir.join(format!("{DEATHS}.new")));
        let line = |((space, sha), of): (&Id, &Deaths)| format!("{} {} {sha} {space}\n", of.times, of.last_ms);
        let text: String = known.iter().map(line).collect();
        let done = match known.is_empty() {
            true => fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => create(&new)
                .and_then(|file| file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_all()))
                .and_then(|()| fs::rename(&new, &path)),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "what scripts do when a node ends is not written down");
        }
    }
}

/// For this user alone, as all files of a node.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)
}

fn death(line: &str) -> Option<(Id, Deaths)> {
    let mut words = line.split(' ');
    let (times, last_ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (sha, space) = (words.next()?, words.next()?);
    (words.next().is_none() && is_id(space, sha))
        .then(|| ((space.to_owned(), sha.to_owned()), Deaths { times, last_ms }))
}

fn at_work(record: &[u8]) -> Option<Id> {
    let (sha, space) = std::str::from_utf8(record).ok()?.trim_end_matches([' ', '\0', '\n']).split_once(' ')?;
    is_id(space, sha).then(|| (space.to_owned(), sha.to_owned()))
}

fn is_id(space: &str, sha: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    sha.len() == 40
        && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !space.is_empty()
        && space.bytes().all(is_plain)
}

/// What one thread says of the script that it is about to run.
#[derive(Default)]
pub struct Slot {
    harm: Arc<Harm>,
    file: Option<File>,
    at: u64,
    /// The script at work, and since when.
    now: RefCell<Option<(String, Bytes)>>,
    since: Cell<Option<Instant>>,
    /// Is that one written down?
    is_said: Cell<bool>,
    /// Does anything stand in its place?
    is_written: Cell<bool>,
    /// How often scripts have come to their end in this life.
    done: RefCell<HashMap<String, HashMap<Bytes, u32>>>,
    known: Cell<usize>,
}

impl Slot {
    pub fn new(harm: Arc<Harm>, nth: usize) -> Self {
        let open = |dir: &PathBuf| File::options().write(true).open(dir.join(AT_WORK)).ok();
        let file = harm.dir.as_ref().and_then(open);
        Self { harm, file, at: (nth * RECORD) as u64, ..Self::default() }
    }

    pub fn harm(&self) -> &Harm {
        &self.harm
    }

    /// A script is about to run.
    pub fn begin(&self, space: &str, sha: &Bytes) {
        if self.file.is_none() {
            return;
        }
        let done = self.done.borrow().get(space).and_then(|of| of.get(sha)).copied().unwrap_or(0);
        let is_same = self.now.borrow().as_ref().is_some_and(|(name, at)| name == space && at == sha);
        if !is_same {
            *self.now.borrow_mut() = Some((space.to_owned(), sha.clone()));
            self.is_said.set(false);
        }
        self.since.set(Some(Instant::now()));
        if done < HARMLESS_AFTER {
            self.say();
        } else if self.is_written.get() && !self.is_said.get() {
            self.clear();
        }
    }

    /// A script has come so far: what takes long is written down, whatever it did before.
    pub fn goes_on(&self, now: Instant) {
        let Some(since) = self.since.get() else { return };
        if !self.is_said.get() && now.duration_since(since) > LONG {
            self.say();
        }
    }

    /// The script at work has come to its end.
    pub fn end(&self) {
        if self.since.take().is_none() {
            return;
        }
        let Some((space, sha)) = &*self.now.borrow() else { return };
        let mut done = self.done.borrow_mut();
        if self.known.get() >= HARMLESS_MAX {
            done.clear();
            self.known.set(0);
        }
        if let Some(times) = done.get_mut(space).and_then(|of| of.get_mut(sha)) {
            *times = times.saturating_add(1);
            return;
        }
        self.known.set(self.known.get() + 1);
        done.entry(space.clone()).or_default().insert(sha.clone(), 1);
    }

    /// The thread waits for scripts.
    pub fn rest(&self) {
        if self.is_written.get() {
            self.clear();
        }
        self.is_said.set(false);
    }

    fn say(&self) {
        let now = self.now.borrow();
        let Some((space, sha)) = &*now else { return };
        if !self.is_said.get() {
            self.write(&[&sha[..], b" ", space.as_bytes()].concat());
            self.is_said.set(true);
            self.is_written.set(true);
        }
    }

    fn clear(&self) {
        self.write(b"");
        self.is_said.set(false);
        self.is_written.set(false);
    }

    fn write(&self, text: &[u8]) {
        if text.len() >= RECORD || self.harm.ended.load(Relaxed) {
            return;
        }
        let mut record = [b' '; RECORD];
        record[..text.len()].copy_from_slice(text);
        record[RECORD - 1] = b'\n';
        // Where there is no room nobody is blamed.
        if let Some(file) = &self.file {
            let _ = file.write_all_at(&record, self.at);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";
    const DAY: u64 = DEATHS_KEPT_MS;

    pub struct Dir(pub PathBuf);

    impl Dir {
        pub fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("coppice-harm-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        /// A life of a node: what it hears when it begins.
        pub fn open(&self, now_ms: u64) -> (Arc<Harm>, Vec<String>) {
            let (harm, remarks) = Harm::open(&self.0, now_ms);
            (Arc::new(harm), remarks)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn sha() -> Bytes {
        Bytes::from_static(SHA.as_bytes())
    }

    #[test]
    fn what_was_at_work_twice_when_its_node_ended_is_withheld_until_it_is_released() {
        let dir = Dir::new("twice");
        let (harm, remarks) = dir.open(1);
        assert_eq!(remarks, [] as [&str; 0]);
        Slot::new(harm, 3).begin("bank", &sha());
        let (harm, remarks) = dir.open(2);
        assert!(remarks.len() == 1 && remarks[0].contains("a second time"), "{remarks:?}");
        assert!(!harm.withholds("bank", SHA.as_bytes()));
        Slot::new(Arc::clone(&harm), 0).begin("bank", &sha());
        let (harm, remarks) = dir.open(3);
        assert!(remarks.len() == 1 && remarks[0].contains("it is withheld here"), "{remarks:?}");
        assert!(harm.withholds("bank", SHA.as_bytes()) && !harm.withholds("other", SHA.as_bytes()));
        assert_eq!((harm.of("bank"), harm.count()), (vec![SHA.to_owned()], 1));
        // It stays so, however long.
        let (harm, remarks) = dir.open(3 + 9 * DAY);
        assert!(remarks.is_empty() && harm.withholds("bank", SHA.as_bytes()));
        assert!(!harm.release("other", SHA.as_bytes()));
        assert!(harm.release("bank", SHA.to_ascii_uppercase().as_bytes()) && !harm.withholds("bank", SHA.as_bytes()));
        let (harm, remarks) = dir.open(4 + 9 * DAY);
        assert!(remarks.is_empty() && harm.count() == 0 && !harm.release("bank", SHA.as_bytes()));
    }

    #[test]
    fn nobody_is_blamed_for_what_was_not_at_work() {
        let dir = Dir::new("nobody");
        for now in 1..9 {
            let (harm, remarks) = dir.open(now);
            assert_eq!(remarks, [] as [&str; 0], "{now}");
            let slot = Slot::new(Arc::clone(&harm), 1);
            slot.begin("bank", &sha());
            slot.end();
            match now % 3 {
                // It waits.
                0 => slot.rest(),
                // The node was told to end.
                1 => harm.end(),
                // Another one is at work that has done no harm so often.
                _ => {
                    for _ in 0..HARMLESS_AFTER {
                        slot.begin("bank", &sha());
                        slot.end();
                    }
                    slot.rest();
                    slot.begin("bank", &sha());
                }
            }
        }
        // What is at work for long is noted even so.
        let (harm, _) = dir.open(9);
        let slot = Slot::new(harm, 1);
        for _ in 0..=HARMLESS_AFTER {
            slot.begin("bank", &sha());
            slot.end();
        }
        slot.rest();
        slot.begin("bank", &sha());
        slot.goes_on(Instant::now());
        assert!(dir.open(9).1.is_empty());
        let slot = Slot::new(dir.open(9).0, 1);
        slot.begin("bank", &sha());
        slot.end();
        slot.goes_on(Instant::now() + 2 * LONG);
        drop(slot);
        assert_eq!(dir.open(9).1.len(), 1, "it was at work for the first time");
        // Two deaths on different days are chance.
        let (harm, _) = dir.open(10 + DAY);
        Slot::new(harm, 0).begin("bank", &sha());
        let (harm, remarks) = dir.open(11 + DAY);
        assert!(remarks.len() == 1 && harm.count() == 0, "{remarks:?}");
    }

    #[test]
    fn what_takes_long_is_written_down_whatever_it_did_before() {
        let dir = Dir::new("long");
        let slot = Slot::new(dir.open(1).0, 2);
        for _ in 0..HARMLESS_AFTER {
            slot.begin("bank", &sha());
            slot.end();
        }
        slot.rest();
        slot.begin("bank", &sha());
        slot.goes_on(Instant::now() + 2 * LONG);
        assert_eq!(dir.open(2).1.len(), 1);
    }

    #[test]
    fn files_with_rubbish_blame_nobody() {
        let dir = Dir::new("rubbish");
        for bytes in [&b"\xff\xfe"[..], b"x", &[b' '; 700], b"1 2 3\n9 9 9 9 9\n", SHA.as_bytes(), &[0; 320]] {
            fs::write(dir.0.join(AT_WORK), bytes).unwrap();
            fs::write(dir.0.join(DEATHS), bytes).unwrap();
            let (harm, remarks) = dir.open(5);
            assert!(remarks.is_empty() && harm.count() == 0, "{bytes:?}: {remarks:?}");
        }
        // More than are kept: the oldest go.
        let lines = (0..2 * DEATHS_KEPT_MAX).map(|n| format!("2 {n} {n:040x} bank\n"));
        fs::write(dir.0.join(DEATHS), lines.collect::<String>()).unwrap();
        let (harm, _) = dir.open(5);
        assert_eq!(harm.count(), DEATHS_KEPT_MAX as u64);
        assert!(!harm.withholds("bank", &[b'0'; 40]));
    }
}
