//! Programs that `coppice upgrade` has put on this node, beside the one that was installed: a folder with a file for each, named by its
//! SHA-256, and which of them is to run. The installed program is what is started; it becomes the chosen one at once, in its own
//! place. One that does not stay up goes back to the one before by itself, and who replaces the installed program ends all that.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Where the installed program lies, for the one that it became.
pub const INSTALLED: &str = "COPPICE_INSTALLED";
/// Below the node's folder.
const FOLDER: &str = "programs";
const CHOICE: &str = "choice.json";
/// Starts without staying up, after which a program that was chosen is not believed in any more.
const TRIES_MAX: u32 = 3;
/// A program says what it is within this, also on a slow disk.
const SAYS_WITHIN: Duration = Duration::from_secs(20);
/// Of what it says.
const SAID_BYTES_MAX: usize = 4 << 10;

/// Which program runs. Empty names are the installed one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Choice {
    /// SHA-256 of the program that is to run.
    pub runs: String,
    /// ... and of the one before, which `--undo` goes back to.
    pub before: String,
    /// When it was chosen, milliseconds since 1970; 0: never.
    pub at_ms: u64,
    /// It has not stayed up yet, and was started so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// What did not stay up, when this node went back from it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed: String,
    /// The installed program as it was then.
    over: Installed,
    /// The choice before this one, to which a node goes back by itself; that one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<Box<Choice>>,
}

/// What tells a file from another one that takes its place.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Installed {
    bytes: u64,
    inode: u64,
    modified_s: i64,
}

/// What a program says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Says {
    pub version: String,
    /// Programs of the time before they said it: none.
    pub level: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Programs {
    dir: PathBuf,
    installed: PathBuf,
}

/// What `coppice --version` says: its level, too, for whoever is to become it.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{}\nlevel {}", env!("CARGO_PKG_VERSION"), base::LEVEL));
    &TEXT
}

/// Where the installed program lies. To be asked early: when a newer one has taken its place, the system's answer is no path any more.
///
/// # Errors
/// The system does not tell.
pub fn installed() -> Result<PathBuf, String> {
    match std::env::var_os(INSTALLED) {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(|e| format!("cannot find this program: {e}")),
    }
}

impl Programs {
    /// Those of the node in this folder.
    pub fn of(node: &Path, installed: PathBuf) -> Self {
        Self { dir: node.join(FOLDER), installed }
    }

    /// Becomes the program that was chosen, if this is the installed one and another one was. Comes back otherwise, or if that
    /// cannot be done.
    pub fn begin(&self, args: impl Iterator<Item = OsString>) {
        if std::env::var_os(INSTALLED).is_some() {
            return;
        }
        let Some(program) = self.to_start() else { return };
        let program = match program.canonicalize() {
            Ok(program) => program,
            Err(error) => {
                return tracing::error!(program = %program.display(), %error, "the program of an upgrade is gone");
            }
        };
        tracing::info!(program = %program.display(), "becomes the program of an upgrade");
        let error = Command::new(&program).args(args).env(INSTALLED, &self.installed).exec();
        tracing::error!(program = %program.display(), %error, "cannot become the program of an upgrade; the installed one runs");
    }

    /// SHA-256 of the program that this process is; empty: the installed one.
    pub fn running(&self) -> String {
        let exe = std::env::current_exe().ok().filter(|_| std::env::var_os(INSTALLED).is_some());
        let name =
            exe.and_then(|exe| Some(exe.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned()));
        name.filter(|name| is_digest(name)).unwrap_or_default()
    }

    /// What is to be started in place of the installed program. Counts, and goes back from what does not stay up.
    fn to_start(&self) -> Option<PathBuf> {
        let mut choice = self.choice();
        if choice.runs.is_empty() && choice.before.is_empty() {
            return None;
        }
        if choice.over != Installed::at(&self.installed) {
            tracing::warn!(installed = %self.installed.display(), "it was replaced: programs of upgrades are not used any more");
            self.forget();
            return None;
        }
        if let Some(tries) = &mut choice.tries {
            *tries += 1;
            if *tries > TRIES_MAX {
                tracing::error!(
                    program = choice.runs,
                    before = choice.before,
                    "it did not stay up; the one before runs"
                );
                choice = choice.failed();
            }
            if let Err(error) = self.choose(&choice) {
                tracing::error!(error, "starts of a program are not counted");
            }
        }
        (!choice.runs.is_empty()).then(|| self.path(&choice.runs))
    }

    /// It has stayed up.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn proved(&self) -> Result<(), String> {
        let mut choice = self.choice();
        match choice.tries.take() {
            Some(_) => self.choose(&choice),
            None => Ok(()),
        }
    }

    /// Keeps a program, looks at what it says of itself, and lets go what is neither it nor in use.
    ///
    /// # Errors
    /// A sentence: it is none that runs here, or the disk has no room.
    pub fn keep(&self, digest: &str, bytes: &[u8]) -> Result<Says, String> {
        if !is_digest(digest) {
            return Err(format!("{digest:?} is no SHA-256 in hexadecimal digits"));
        }
        let cannot = |what: &Path| {
            let what = what.display().to_string();
            move |e: std::io::Error| format!("{what}: {e}")
        };
        fs::create_dir_all(&self.dir).map_err(cannot(&self.dir))?;
        let choice = self.choice();
        for entry in fs::read_dir(&self.dir).map_err(cannot(&self.dir))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != CHOICE && name != digest && !choice.needs().contains(&&*name) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let (new, path) = (self.dir.join(format!("{digest}.new")), self.path(digest));
        // What runs it goes on to be told by its file's name.
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return says(&path);
        }
        let written = || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o700).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        written().map_err(cannot(&new))?;
        let says = says(&new).inspect_err(|_| _ = fs::remove_file(&new))?;
        fs::rename(&new, &path).map_err(cannot(&path))?;
        sync(&self.dir);
        Ok(says)
    }

    /// Has this one run from the next start on; none: the one before.
    ///
    /// # Errors
    /// It is not here, or there was none before.
    pub fn switch(&self, to: Option<&str>, at_ms: u64) -> Result<Choice, String> {
        let now = self.choice();
        let mut choice = match to {
            Some(digest) if digest == now.runs => return Ok(now),
            Some(digest) if !is_digest(digest) || !self.path(digest).is_file() => {
                return Err(format!("this node has no program {digest:?}"));
            }
            Some(digest) => Choice { runs: digest.to_owned(), before: now.runs.clone(), ..Choice::default() },
            None if now.at_ms == 0 => return Err("no upgrade was made here".to_owned()),
            None => Choice { runs: now.before.clone(), before: now.runs.clone(), ..Choice::default() },
        };
        choice.at_ms = at_ms;
        choice.former = Some(Box::new(Choice { former: None, tries: None, ..now }));
        choice.tries = (!choice.runs.is_empty()).then_some(0);
        choice.over = Installed::at(&self.installed);
        self.choose(&choice)?;
        Ok(choice)
    }

    pub fn choice(&self) -> Choice {
        let read = fs::read(self.dir.join(CHOICE)).ok();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn choose(&self, choice: &Choice) -> Result<(), String> {
        let (path, new) = (self.dir.join(CHOICE), self.dir.join("choice.new"));
        let written = || {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(choice).expect("it is plain data"))?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        written().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))?;
        sync(&self.dir);
        Ok(())
    }

    fn forget(&self) {
        let choice = self.choice();
        let _ = fs::remove_file(self.dir.join(CHOICE));
        for digest in choice.needs().into_iter().filter(|digest| is_digest(digest)) {
            let _ = fs::remove_file(self.path(digest));
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(digest)
    }
}

impl Choice {
    /// As it was before what did not stay up.
    fn failed(self) -> Self {
        let former = self.former.map(|former| *former).unwrap_or_default();
        Self { failed: self.runs, over: self.over, ..former }
    }

    /// Programs that it may yet need.
    fn needs(&self) -> Vec<&str> {
        let former = self.former.as_deref().map(|former| [&*former.runs, &*former.before]);
        [&*self.runs, &*self.before].into_iter().chain(former.into_iter().flatten()).collect()
    }
}

impl Installed {
    fn at(path: &Path) -> Self {
        let of = |file: fs::Metadata| Self { bytes: file.len(), inode: file.ino(), modified_s: file.mtime() };
        fs::metadata(path).map(of).unwrap_or_default()
    }
}

/// Runs a program with `--version`.
fn says(program: &Path) -> Result<Says, String> {
    let cannot = |e: std::io::Error| format!("it does not run here: {e}");
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = loop {
        match command.spawn() {
            // A child that another thread is about to start still has our file open.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && begun.elapsed() < SAYS_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            spawned => break spawned.map_err(cannot)?,
        }
    };
    let status = loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) => break status,
            None if begun.elapsed() > SAYS_WITHIN => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("with --version it does not end within {SAYS_WITHIN:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        use std::io::Read;
        out.take(SAID_BYTES_MAX as u64).read_to_end(&mut said).map_err(cannot)?;
    }
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines();
    let version = lines.next().and_then(|line| line.strip_prefix("coppice ")).filter(|_| status.success());
    let version = version.ok_or("with --version it does not say that it is coppice")?;
    let level = lines.find_map(|line| line.strip_prefix("level ")?.trim().parse().ok());
    Ok(Says { version: version.chars().filter(|c| !c.is_control()).take(40).collect(), level })
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A name that is in no folder after a power cut is no harm: the program before it runs.
fn sync(dir: &Path) {
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench(PathBuf);

    impl Bench {
        fn new(name: &str) -> (Self, Programs) {
            let dir = std::env::temp_dir().join(format!("coppice-program-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("coppice"), "installed").unwrap();
            let programs = Programs::of(&dir, dir.join("coppice"));
            (Self(dir), programs)
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn script(level: &str) -> Vec<u8> {
        format!("#!/bin/sh\necho coppice 9.9.9\n{level}\n").into_bytes()
    }

    fn digest(letter: char) -> String {
        letter.to_string().repeat(64)
    }

    #[test]
    fn what_is_no_program_is_not_kept_and_nothing_is_left_of_it() {
        let (bench, programs) = Bench::new("none");
        for (bytes, why) in [
            (b"no program".to_vec(), "does not run here"),
            (b"#!/bin/sh\necho hello\n".to_vec(), "does not say that it is coppice"),
            (b"#!/bin/sh\necho coppice 1.2.3\nexit 3\n".to_vec(), "does not say that it is coppice"),
            (Vec::new(), "it"),
        ] {
            let told = programs.keep(&digest('a'), &bytes).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        for name in ["", "../../x", "A", &digest('g')] {
            assert!(programs.keep(name, &script("")).unwrap_err().contains("SHA-256"));
        }
        assert!(programs.switch(Some(&digest('a')), 1).unwrap_err().contains("has no program"));
        assert!(programs.switch(None, 1).unwrap_err().contains("no upgrade"));
        assert_eq!(fs::read_dir(bench.0.join(FOLDER)).unwrap().count(), 0);
        assert_eq!(programs.to_start(), None);
    }

    #[test]
    fn the_chosen_one_is_started_and_undo_goes_there_and_back() {
        let (bench, programs) = Bench::new("chosen");
        let says = programs.keep(&digest('a'), &script("echo level 7")).unwrap();
        assert_eq!(says, Says { version: "9.9.9".into(), level: Some(7) });
        assert_eq!(programs.to_start(), None, "it is only kept");
        programs.switch(Some(&digest('a')), 1).unwrap();
        assert_eq!(programs.to_start(), Some(programs.path(&digest('a'))));
        programs.proved().unwrap();
        assert_eq!(programs.keep(&digest('b'), &script("")).unwrap().level, None);
        let choice = programs.switch(Some(&digest('b')), 2).unwrap();
        assert_eq!((choice.runs, choice.before), (digest('b'), digest('a')));
        assert_eq!(programs.switch(Some(&digest('b')), 3).unwrap().at_ms, 2, "the same again is nothing new");
        assert_eq!(programs.switch(None, 4).unwrap().runs, digest('a'));
        assert_eq!(programs.switch(None, 5).unwrap().runs, digest('b'));
        // What may not be needed any more goes with the next that comes.
        for (letter, at_ms) in [('c', 6), ('d', 7)] {
            programs.keep(&digest(letter), &script("")).unwrap();
            programs.switch(Some(&digest(letter)), at_ms).unwrap();
        }
        programs.keep(&digest('e'), &script("")).unwrap();
        let here = |letter| bench.0.join(FOLDER).join(digest(letter)).exists();
        assert_eq!(['a', 'b', 'c', 'd', 'e'].map(here), [false, true, true, true, true]);
    }

    #[test]
    fn a_program_that_does_not_stay_up_is_left_by_itself() {
        let (_bench, programs) = Bench::new("trial");
        programs.keep(&digest('a'), &script("")).unwrap();
        programs.switch(Some(&digest('a')), 1).unwrap();
        for _ in 0..TRIES_MAX {
            assert_eq!(programs.to_start(), Some(programs.path(&digest('a'))));
        }
        assert_eq!(programs.to_start(), None, "the installed one again");
        assert_eq!((programs.choice().failed, programs.choice().runs), (digest('a'), String::new()));
        assert!(programs.switch(None, 2).is_err(), "there is nothing to go back from");
        programs.switch(Some(&digest('a')), 2).unwrap();
        programs.to_start();
        programs.proved().unwrap();
        for _ in 0..10 {
            assert!(programs.to_start().is_some(), "what has stayed up once is believed in");
        }
        // From a second one it goes back to that one, whose own way back is as it was.
        programs.keep(&digest('b'), &script("")).unwrap();
        programs.switch(Some(&digest('b')), 3).unwrap();
        for _ in 0..=TRIES_MAX {
            programs.to_start();
        }
        let choice = programs.choice();
        assert_eq!(
            (choice.runs, choice.before, choice.failed, choice.at_ms),
            (digest('a'), String::new(), digest('b'), 2)
        );
    }

    #[test]
    fn who_replaces_the_installed_program_means_that_one() {
        let (bench, programs) = Bench::new("package");
        programs.keep(&digest('a'), &script("")).unwrap();
        programs.switch(Some(&digest('a')), 1).unwrap();
        assert!(programs.to_start().is_some());
        fs::write(bench.0.join("new"), "a newer one").unwrap();
        fs::rename(bench.0.join("new"), bench.0.join("coppice")).unwrap();
        assert_eq!(programs.to_start(), None);
        assert_eq!(programs.choice(), Choice::default());
        assert!(!programs.path(&digest('a')).exists());
    }
}
