//! How a clone is held to what it may take of its machine: by a control group of its own (cgroup v2), with all that it starts, where
//! the node may make some; else by the limits of processes, which bound each of them apart. Groups end with their clones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use base::process::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// What `keep` is told of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// The clone's control group, which holds it to memory and processes; none, if there is no such thing.
    pub group: Option<PathBuf>,
    pub memory: Option<u64>,
    pub pids: Option<u64>,
    pub files: Option<u64>,
}

/// The folder of the kernel in which this node makes a control group for each clone that has bounds.
pub(crate) struct Groups(PathBuf);

/// The node's own group, beside those of its clones: a group with processes has no groups below it that count.
const OWN: &str = "coppice-node";
/// A clone's group: this, the node's process id, the number of the clone's process.
const CLONE: &str = "coppice-clone-";
/// What has to count in it.
const COUNTED: [&str; 2] = ["memory", "pids"];
/// A group that was told to end its processes is empty so soon, normally at the first look.
const ENDS: [Duration; 5] = [Duration::from_millis(10); 5];

/// Whether clones can have control groups here. To be asked first before this process has children.
pub fn control_groups() -> bool {
    Groups::of_this_process().is_some()
}

impl Groups {
    pub fn of_this_process() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Groups>> = OnceLock::new();
        let find = || {
            let begun = own_group().and_then(|dir| Self::begin(&dir, std::process::id()));
            begun.inspect_err(|why| tracing::info!("clones get no control groups: {why}")).ok()
        };
        FOUND.get_or_init(find).as_ref()
    }

    /// Goes into a group beside those of the clones, so that the one that both are in can bound them.
    fn begin(dir: &Path, pid: u32) -> Result<Self, String> {
        let wrong = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
        // After a restart in place this process is there already.
        let dir = if dir.ends_with(OWN) { dir.parent().unwrap_or(dir) } else { dir };
        let has = |file: &str| -> Result<bool, String> {
            let path = dir.join(file);
            let text = fs::read_to_string(&path).map_err(|e| wrong(&path, e))?;
            Ok(COUNTED.iter().all(|name| text.split_ascii_whitespace().any(|word| word == *name)))
        };
        if !has("cgroup.controllers")? {
            return Err(format!(
                "{} counts no memory and no processes (Delegate=memory pids of a unit)",
                dir.display()
            ));
        }
        let groups = Self(dir.into());
        groups.clear(pid);
        if has("cgroup.subtree_control")? {
            return Ok(groups);
        }
        let (own, control) = (dir.join(OWN), dir.join("cgroup.subtree_control"));
        if !own.is_dir() {
            fs::create_dir(&own).map_err(|e| wrong(&own, e))?;
        }
        let enter = |group: &Path| fs::write(group.join("cgroup.procs"), pid.to_string()).map_err(|e| wrong(group, e));
        enter(&own)?;
        if let Err(e) = fs::write(&control, "+memory +pids") {
            // Somebody else is in there, as the shell that started this.
            enter(dir)?;
            let _ = fs::remove_dir(&own);
            return Err(wrong(&control, e));
        }
        Ok(groups)
    }

    /// Removes what nodes left that were killed.
    fn clear(&self, me: u32) {
        for found in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = found.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix(CLONE)?.split('-').next()?.parse::<u32>().ok());
            if of.is_some_and(|pid| pid == me || !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_dir(found.path());
            }
        }
    }

    /// A group for a clone.
    fn make(&self, number: u64, limits: &Limits) -> Result<PathBuf, String> {
        let dir = self.0.join(format!("{CLONE}{}-{number}", std::process::id()));
        let wrong = |what: &Path, e: std::io::Error| format!("no control group {}: {e}", what.display());
        fs::create_dir(&dir).map_err(|e| wrong(&dir, e))?;
        let set = |file: &str, value: String| fs::write(dir.join(file), value).map_err(|e| wrong(&dir.join(file), e));
        if let Some(bytes) = limits.memory {
            set("memory.max", bytes.to_string())?;
            // All of it or nothing: half a clone answers nobody. A kernel without swap has no such file.
            set("memory.oom.group", "1".into())?;
            let _ = set("memory.swap.max", "0".into());
        }
        limits.pids.map_or(Ok(()), |count| set("pids.max", count.to_string()))?;
        Ok(dir)
    }
}

/// This process' folder in the one tree of control groups of version 2.
fn own_group() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let mounts = read("/proc/self/mounts")?;
    let at = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let at = words.next()?;
        (words.next()? == "cgroup2").then_some(at)
    });
    let own = read("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    match (at, own) {
        (Some(at), Some(own)) => Ok(Path::new(at).join(own)),
        _ => Err("there are none of version 2".into()),
    }
}

/// Removes a clone's group, after all that is in it has been killed.
pub(crate) fn end(group: &Path) {
    let _ = fs::write(group.join("cgroup.kill"), "1");
    for wait in ENDS {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        std::thread::sleep(wait);
    }
    tracing::warn!("the control group {} of a clone that ended stays", group.display());
}

impl Bounds {
    /// By a group, where there are some.
    pub fn of(number: u64, limits: &Limits) -> Result<Self, String> {
        let Limits { memory, pids, files } = *limits;
        let wants = memory.is_some() || pids.is_some();
        let groups = if wants { Groups::of_this_process() } else { None };
        let group = groups.map(|groups| groups.make(number, limits)).transpose()?;
        Ok(Self { group, memory, pids, files })
    }

    /// Puts this process into its group, and bounds what each process may have; `own_user`: nobody else runs as its user but clones of
    /// its service.
    pub fn enter(&self, own_user: bool) -> Result<(), String> {
        let set = |what, value: Option<u64>, of: &str| {
            value.map_or(Ok(()), |most| bound(what, most)).map_err(|e| format!("cannot bound its {of}: {e}"))
        };
        set(Resource::Nofile, self.files, "files")?;
        match &self.group {
            Some(group) => fs::write(group.join("cgroup.procs"), "0")
                .map_err(|e| format!("cannot enter the control group {}: {e}", group.display())),
            None => {
                set(Resource::Data, self.memory, "memory")?;
                // The kernel counts all processes of a user: of the node's own there are many others.
                set(Resource::Nproc, self.pids.filter(|_| own_user), "processes")
            }
        }
    }
}

/// Never more than this process may have already.
pub(crate) fn bound(what: Resource, most: u64) -> Result<(), rustix::io::Errno> {
    let most = Some(getrlimit(what).maximum.map_or(most, |has| has.min(most)));
    setrlimit(what, Rlimit { current: most, maximum: most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::temp_dir;

    fn tree(dir: &Path, controllers: &str, control: &str) {
        fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.join("cgroup.subtree_control"), control).unwrap();
        fs::write(dir.join("cgroup.procs"), "").unwrap();
    }

    fn of(dir: &Path, file: &str) -> String {
        fs::read_to_string(dir.join(file)).unwrap()
    }

    #[test]
    fn a_node_goes_aside_and_makes_a_group_with_bounds_for_a_clone() {
        let temp = temp_dir("groups");
        tree(&temp.0, "cpu memory pids", "");
        fs::create_dir_all(temp.0.join("coppice-clone-4194305-7")).unwrap();
        let groups = Groups::begin(&temp.0, 42).unwrap();
        assert_eq!(of(&temp.0.join(OWN), "cgroup.procs"), "42");
        assert_eq!(of(&temp.0, "cgroup.subtree_control"), "+memory +pids");
        assert!(!temp.0.join("coppice-clone-4194305-7").exists(), "no process has such a number");
        // The same in the group that it is in now, after a restart in place.
        fs::write(temp.0.join("cgroup.subtree_control"), "memory pids").unwrap();
        assert_eq!(Groups::begin(&temp.0.join(OWN), 42).unwrap().0, temp.0);

        let limits = Limits { memory: Some(64 << 20), pids: Some(30), files: None };
        let made = groups.make(3, &limits).unwrap();
        assert_eq!((of(&made, "memory.max"), of(&made, "pids.max")), ("67108864".into(), "30".into()));
        assert_eq!((of(&made, "memory.oom.group"), of(&made, "memory.swap.max")), ("1".into(), "0".into()));
    }

    #[test]
    fn where_nothing_counts_there_are_no_groups_and_it_is_said_why() {
        let temp = temp_dir("groups-none");
        tree(&temp.0, "cpu", "");
        let why = Groups::begin(&temp.0, 42).err().unwrap();
        assert!(why.contains("Delegate") && !temp.0.join(OWN).exists(), "{why}");
        fs::remove_file(temp.0.join("cgroup.controllers")).unwrap();
        assert!(Groups::begin(&temp.0, 42).is_err());
    }
}
