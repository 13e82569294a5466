//! What a clone keeps of its node, and what the node shows to others of its user. `keep` gives up new rights, core files and all
//! descriptors but the three standard ones before it becomes the program; of the environment a small set is passed on. Then, by
//! the kernel's Landlock, it closes itself out of all files but those that the clone needs ([`Sandbox`]).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use base::process::own_words;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
};
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::cage::Cage;
use crate::user::{self, As, WHO};
use crate::{Error, private};

/// Of the node's environment a clone gets these, and what begins with `LC_`.
const PASSED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ"];
/// By this the end-to-end tests find what a test left behind.
const TEST_MARK: &str = "COPPICE_E2E";

/// Programs, libraries and settings of the machine: each clone may read and run them.
const SYSTEM: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/proc",
    "/sys",
    "/run/current-system",
    "/run/nscd",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/lib/ca-certificates",
    "/var/lib/gems",
    "/snap",
];
/// Devices that are nobody's: each clone may write them, too.
const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];
/// What belongs to a program in `PREFIX/bin`.
const PREFIX: [&str; 6] = ["bin", "lib", "lib64", "libexec", "conf", "pyvenv.cfg"];
/// What a clone of a node of root keeps of root's powers: to become another user, to give files to one, low ports.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);
/// The newest set of rights that is asked for; an older kernel holds what it knows of it.
const RIGHTS: ABI = ABI::V6;
/// This file makes a folder a node's.
const NODE_MARK: &str = "node.key";
const HOME: &str = "~/";

/// What `keep` is told of a clone, as JSON in an argument.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Skin {
    /// None: the clone may reach all that its user may.
    pub sandbox: Option<Sandbox>,
    #[serde(default)]
    pub bounds: Bounds,
    /// None: the node's user.
    #[serde(default)]
    pub user: Option<As>,
    /// Of a worker's program, which its stub starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cage: Option<Cage>,
}

/// Which files a clone may reach: those of the system and of the program that it is, and these.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    /// The node's folder. It is closed, as are those of other nodes beside it, whatever lies around it is open.
    pub node: PathBuf,
    /// In the node's folder: the folder that was deployed.
    pub code: Option<PathBuf>,
    /// In the node's folder: temporary files of this clone.
    pub scratch: PathBuf,
    /// May be read and run if it is no folder that many share: where services are that name none.
    pub services: Option<PathBuf>,
    /// May be read and run.
    pub read: Vec<PathBuf>,
    /// May be written, too.
    pub write: Vec<PathBuf>,
}

/// The part of this process' environment that is passed on to clones; who is another user (`own`) has a home of his own.
pub(crate) fn passed(own: bool) -> impl Iterator<Item = (OsString, OsString)> {
    let fits = move |name: &str| is_passed(name) && !(own && WHO.contains(&name));
    std::env::vars_os().filter(move |(name, _)| name.to_str().is_some_and(fits))
}

fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || name == TEST_MARK || name.starts_with("LC_")
}

/// Closes this process: programs of this user without further rights look neither into its memory nor into its environment,
/// and it leaves no core.
pub fn close_self() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Error::io("cannot close this process to others")(e.into()))
}

/// Version of the kernel's Landlock as far as it is used here, 0 to 6.
pub fn landlock() -> u64 {
    let has = |abi: ABI| {
        let asked = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let asked = asked.handle_access(AccessFs::from_all(abi));
        asked
            .and_then(|asked| if abi < ABI::V6 { Ok(asked) } else { asked.scope(Scope::Signal) })
            .and_then(Ruleset::create)
            .is_ok()
    };
    // The fourth and fifth version know more of networks and devices, which are left as they are.
    [ABI::V6, ABI::V5, ABI::V3, ABI::V2, ABI::V1].into_iter().find(|abi| has(*abi)).map_or(0, |abi| abi as u64)
}

impl Skin {
    /// Puts it on: this process and all that it starts keep it for ever. `program` and its arguments are what it becomes. Returns
    /// what tells a program which user it is, if it is another one.
    pub fn put_on(&self, program: &[OsString]) -> Result<Vec<(&'static str, OsString)>, String> {
        let user = self.user.as_ref().map(|user| user.find().map(|(him, other)| (user, him, other))).transpose()?;
        let who = user.as_ref().map_or_else(Vec::new, |(_, him, _)| user::who(him).into());
        let home = who.first().map(|(_, home)| home.clone()).or_else(|| std::env::var_os("HOME"));
        let other = user.filter(|(_, _, other)| *other);
        rustix::thread::set_no_new_privs(true).map_err(|e| format!("cannot give up new rights: {e}"))?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
            .map_err(|e| format!("cannot do without core files: {e}"))?;
        if let Some((user, him, _)) = &other {
            user.let_in(him)?;
        }
        self.bounds.enter(other.is_some())?;
        if let Some(sandbox) = &self.sandbox {
            give_up_powers().map_err(|e| format!("cannot give up what root may: {e}"))?;
            let entered = sandbox.enter(program, home.as_deref().map(Path::new));
            entered.map_err(|e| format!("cannot close the node's folder to it: {e}"))?;
        }
        close_descriptors().map_err(|e| format!("cannot close what the node had open: {e}"))?;
        if let Some((user, him, _)) = &other {
            user.become_him(him)?;
        }
        // Last, as it would refuse what comes before.
        self.cage.map_or(Ok(()), |cage| cage.enter())?;
        Ok(who)
    }
}

impl Sandbox {
    /// In the working folder of the program.
    fn enter(&self, program: &[OsString], home: Option<&Path>) -> Result<(), RulesetError> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RIGHTS))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?;
        let closed = closed(&self.node);
        let services = self.services.iter().filter(|dir| !is_wide(dir));
        for path in SYSTEM
            .iter()
            .map(PathBuf::from)
            .chain(of_program(own_words(program)))
            .chain(services.cloned())
            .chain(self.read.iter().map(|path| at_home(path, home)))
        {
            rules = grant(&path, reading(), &closed, rules)?;
        }
        for path in DEVICES.iter().map(PathBuf::from).chain(self.write.iter().map(|path| at_home(path, home))) {
            rules = grant(&path, all(), &closed, rules)?;
        }
        // The node's own program, also when another one lies at its place by now: built-in services are in it.
        rules = allow(Path::new("/proc/self/exe"), reading(), rules)?;
        if let Some(code) = &self.code {
            rules = allow(code, reading(), rules)?;
        }
        rules = allow(&self.scratch, all(), rules)?;
        rules.restrict_self()?;
        Ok(())
    }
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(RIGHTS)
}

fn all() -> BitFlags<AccessFs> {
    AccessFs::from_all(RIGHTS)
}

/// The node's folder, those of other nodes beside it, and what is theirs but lies elsewhere by a link.
fn closed(node: &Path) -> Vec<PathBuf> {
    let own = node.canonicalize().unwrap_or_else(|_| node.into());
    let beside = own.parent().into_iter().flat_map(inner).filter(|path| path.join(NODE_MARK).exists());
    let mut nodes: Vec<PathBuf> = beside.filter_map(|path| path.canonicalize().ok()).collect();
    nodes.push(own);
    let linked = nodes.iter().flat_map(|node| inner(node)).filter(|path| path.is_symlink());
    let linked: Vec<PathBuf> = linked.filter_map(|path| path.canonicalize().ok()).collect();
    nodes.extend(linked);
    nodes.sort();
    nodes.dedup();
    nodes
}

fn inner(of: &Path) -> Vec<PathBuf> {
    fs::read_dir(of).into_iter().flatten().flatten().map(|found| found.path()).collect()
}

/// Folders and files that belong to a command: of each word that is a path, and of all programs that it may find by PATH.
fn of_program(words: &[OsString]) -> Vec<PathBuf> {
    let named = words.iter().filter_map(|word| {
        let path = PathBuf::from(word);
        // A word without a folder is beside the working folder's files.
        if path.components().count() == 1 { path.canonicalize().ok() } else { path.exists().then_some(path) }
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let program = words.first().map(PathBuf::from).filter(|program| program.components().count() == 1);
    let program = program.and_then(|name| found.iter().map(|dir| dir.join(&name)).find(|path| path.is_file()));
    found = found.iter().flat_map(|dir| with_prefix(dir)).collect();
    for file in named.chain(program) {
        // Where a link leads is where the libraries of an interpreter lie.
        for file in [Some(file.clone()), file.canonicalize().ok()].into_iter().flatten() {
            if file.is_dir() {
                found.extend(Some(file).filter(|dir| !is_wide(dir)));
                continue;
            }
            found.extend(file.parent().into_iter().flat_map(with_prefix));
            found.push(file);
        }
    }
    found
}

/// A program's folder, and what beside `bin` is the program's, but none that many have in common.
fn with_prefix(dir: &Path) -> Vec<PathBuf> {
    let parent = |name: &str| dir.parent().filter(|_| dir.file_name() == Some(OsStr::new(name)));
    match parent("bin") {
        Some(prefix) => PREFIX.iter().map(|name| prefix.join(name)).collect(),
        // pyenv, rbenv and their like: programs that look for others all over there.
        None if parent("shims").is_some_and(|parent| !is_wide(parent)) => {
            dir.parent().map(PathBuf::from).into_iter().collect()
        }
        None if is_wide(dir) => Vec::new(),
        None => vec![dir.into()],
    }
}

/// `/`, `/tmp`, `/srv`, somebody's home: what lies there is not one program's.
fn is_wide(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.into());
    dir.components().count() <= 2
        || dir.parent() == Some(Path::new("/home"))
        || dir == Path::new("/var/tmp")
        || dir == std::env::temp_dir()
        || std::env::var_os("HOME").is_some_and(|home| dir == Path::new(&home))
}

/// What begins with `~/` is below the home of the user that the program runs as.
fn at_home(path: &Path, home: Option<&Path>) -> PathBuf {
    let below = path.strip_prefix(HOME).ok().zip(home);
    below.map_or_else(|| path.to_path_buf(), |(below, home)| home.join(below))
}

/// Allows a path, or if something closed is in it, all that lies beside the way there, as it is at this moment.
fn grant(
    path: &Path,
    access: BitFlags<AccessFs>,
    closed: &[PathBuf],
    rules: RulesetCreated,
) -> Result<RulesetCreated, RulesetError> {
    // What is not there, or not this user's, needs no rule.
    let Ok(path) = path.canonicalize() else { return Ok(rules) };
    if closed.iter().any(|closed| path.starts_with(closed)) {
        return Ok(rules);
    }
    if !closed.iter().any(|closed| closed.starts_with(&path)) {
        return allow(&path, access, rules);
    }
    // Interpreters list the folder that a program is in. So names in there can be read, and files cannot.
    let mut rules = allow(&path, AccessFs::ReadDir.into(), rules)?;
    // What a link leads to has a rule where it lies, or none.
    for found in inner(&path).into_iter().filter(|found| !found.is_symlink()) {
        rules = grant(&found, access, closed, rules)?;
    }
    Ok(rules)
}

fn allow(path: &Path, access: BitFlags<AccessFs>, rules: RulesetCreated) -> Result<RulesetCreated, RulesetError> {
    let Ok(at) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RIGHTS) };
    if access.is_empty() { Ok(rules) } else { rules.add_rule(PathBeneath::new(at, access)) }
}

/// Gives up what root may beyond files and users: with it a program looks into other processes (CAP_PERFMON), makes devices of
/// disks, loads modules. A node that is not root's has little of that.
fn give_up_powers() -> std::io::Result<()> {
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        if KEPT.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => (),
            // The kernel knows no more; or this is not root, and gains nothing by its programs.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let [effective, permitted, inheritable] = [effective, permitted, inheritable].map(|set| set & KEPT);
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}

/// Closes all but standard input, output and error: what the shell of whoever started the node had left open.
fn close_descriptors() -> std::io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let open: Vec<i32> = open.filter(|&descriptor| descriptor > 2).collect();
    for descriptor in open {
        // One of them was the listed folder's, which is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Temporary files of clones, below the node's folder: of each life of a clone a folder that ends with it.
pub(crate) struct Scratch(PathBuf);

const SCRATCH_DIR: &str = "scratch";

impl Scratch {
    /// What former lives of the node left is removed.
    pub fn start(node: &Path) -> Result<Self, Error> {
        let dir = node.join(SCRATCH_DIR);
        let wrong = |e| Error::io(dir.display().to_string())(e);
        private::make_dir(&dir).map_err(wrong)?;
        for left in inner(&dir) {
            let gone = if left.is_dir() && !left.is_symlink() { remove(&left) } else { fs::remove_file(&left) };
            gone.map_err(|e| Error::io(left.display().to_string())(e))?;
        }
        // Clones look for it from their working folders.
        Ok(Self(dir.canonicalize().map_err(wrong)?))
    }

    /// A new folder for a life of a clone: `shop/2`, the seventh process of its node.
    pub fn make(&self, name: &str, number: u64) -> Result<PathBuf, String> {
        let dir = self.0.join(format!("{}-{number}", name.replace('/', "-")));
        private::make_dir(&dir).map_err(|e| format!("no folder {}: {e}", dir.display()))?;
        Ok(dir)
    }
}

/// Removes a folder, also where a program has taken its own rights away. No link in it is followed.
pub(crate) fn remove(dir: &Path) -> std::io::Result<()> {
    let Err(first) = fs::remove_dir_all(dir) else { return Ok(()) };
    if first.kind() != std::io::ErrorKind::PermissionDenied {
        return if first.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(first) };
    }
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        private::make_own(&dir)?;
        left.extend(inner(&dir).into_iter().filter(|path| path.is_dir() && !path.is_symlink()));
    }
    fs::remove_dir_all(dir)
}

#[cfg(test)]
#[path = "skin_tests.rs"]
mod tests;
