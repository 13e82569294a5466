//! What the program of a worker on pipes may do: less than a clone, as it needs nothing but three descriptors. Its stub
//! starts it through `keep`, which puts this on before it becomes the program: a bound on its data, and a list of
//! system calls that the kernel refuses it (seccomp). Files are those of the stub, in whose sandbox it starts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::Command;

use base::process::OWN_PROGRAM;
use nix::libc;
use rustix::process::Resource;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use serde::{Deserialize, Serialize};

use crate::bounds::bound;
use crate::skin::Skin;

/// What a worker's program is kept from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cage {
    /// Bytes of data that it may have (`RLIMIT_DATA`).
    pub memory: u64,
    pub calls: Calls,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Calls {
    /// All.
    All,
    /// None by which it looks into others, changes what is mounted, or loads something into the kernel.
    NoPowers,
    /// ... and no sockets; pairs of them, which lead nowhere, are left.
    NoSockets,
}

/// Refused to each program that is caged.
const POWERS: [libc::c_long; 33] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
];
/// On this bit the kernel may know the same calls under other numbers (x32).
const OTHER_NUMBERS: i64 = 0x4000_0000;

impl Cage {
    pub(crate) fn enter(&self) -> Result<(), String> {
        // Its stub may have been bounded to less.
        bound(Resource::Data, self.memory).map_err(|e| format!("cannot bound its memory: {e}"))?;
        let refused = self.refused();
        if refused.is_empty() {
            return Ok(());
        }
        let why = |e: &dyn std::fmt::Display| format!("cannot take system calls from it: {e}");
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| why(&e))?;
        let denied = SeccompAction::Errno(libc::EPERM as u32);
        // No condition: whatever its arguments are.
        let rules: BTreeMap<i64, Vec<_>> = refused.into_iter().map(|number| (number, Vec::new())).collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).map_err(|e| why(&e))?;
        let filter = BpfProgram::try_from(filter).map_err(|e| why(&e))?;
        apply_filter(&filter).map_err(|e| why(&e))
    }

    fn refused(&self) -> Vec<i64> {
        let numbers: Vec<i64> = match self.calls {
            Calls::All => Vec::new(),
            Calls::NoPowers => POWERS.to_vec(),
            Calls::NoSockets => POWERS.into_iter().chain([libc::SYS_socket]).collect(),
        };
        let others = numbers.iter().filter(|_| cfg!(target_arch = "x86_64")).map(|number| number | OTHER_NUMBERS);
        let others: Vec<i64> = others.collect();
        numbers.into_iter().chain(others).collect()
    }
}

/// The command that starts a program in a cage. It is killed when the thread that starts it ends, and is a session of
/// its own, whose number is its process'. Where it cannot be started it ends with 127, and says why on standard error.
pub fn caged(cage: Cage, words: &[impl AsRef<OsStr>]) -> Command {
    let skin = Skin { cage: Some(cage), ..Skin::default() };
    let skin = serde_json::to_string(&skin).expect("plain data");
    let mut command = Command::new(OWN_PROGRAM);
    command.args(["keep", &std::process::id().to_string(), &skin, "--"]).args(words);
    command
}
