//! A node that restarts becomes the new program without a moment in which its doors are shut: the process runs the program
//! anew in its own place, with the sockets on which it listens still open. Whoever connects meanwhile waits in the
//! kernel's queue. Sockets come in as systemd hands them over (`LISTEN_FDS`, sd_listen_fds(3)), so its socket units work, too.
//!
//! The peers' port is not handed over: that it is shut is how the others know at once that this life of the node is over.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use listenfd::ListenFd;
use rustix::process::{WaitOptions, wait};

/// The first descriptor that is handed over.
const FIRST: i32 = 3;
/// Children end when this life of the node does.
const CHILDREN_END_WITHIN: Duration = Duration::from_secs(1);

/// Sockets that were open before this program began.
pub struct Inherited(Vec<(SocketAddr, TcpListener)>);

impl Inherited {
    /// Takes what was handed over, once in the life of a process; what is no listening TCP socket is left alone.
    pub fn take() -> Self {
        let mut fds = ListenFd::from_env();
        let taken = (0..fds.len()).filter_map(|at| fds.take_tcp_listener(at).ok().flatten());
        Self(taken.filter_map(|listener| Some((listener.local_addr().ok()?, listener))).collect())
    }

    pub fn has(&self, addr: SocketAddr) -> bool {
        self.0.iter().any(|(of, _)| *of == addr)
    }

    /// The socket that listens on this address already, or a new one.
    ///
    /// # Errors
    /// As [`host::ports::listen`].
    pub fn listen(&mut self, addr: SocketAddr) -> Result<TcpListener, String> {
        let Some(at) = self.0.iter().position(|(of, _)| *of == addr) else {
            return host::ports::listen(addr).map_err(|e| e.to_string());
        };
        let (_, listener) = self.0.swap_remove(at);
        listener.set_nonblocking(true).map_err(|e| format!("cannot listen on {addr}: {e}"))?;
        Ok(listener)
    }

    /// What nobody asked for so far: TCP services', or nobody's.
    pub fn rest(&mut self) -> Vec<(SocketAddr, TcpListener)> {
        std::mem::take(&mut self.0)
    }
}

/// Where this program lies. To be asked early: when a newer one has taken its place, the system's answer is no path any more.
///
/// # Errors
/// The system does not tell.
pub fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))
}

/// The program as it was started: what lies at its path by the end may be a newer one.
pub struct Again {
    program: PathBuf,
    args: Vec<OsString>,
}

impl Again {
    /// # Errors
    /// The program cannot be found.
    pub fn remember() -> Result<Self, String> {
        Ok(Self { program: crate::program::installed()?, args: std::env::args_os().skip(1).collect() })
    }

    /// Runs the program in place of this one, with these sockets open. Comes back only if that cannot be done. To be called on the
    /// process' first thread: that it ends with its parent (`keep`) is a property of that one.
    pub fn run(&self, listeners: Vec<TcpListener>) -> io::Error {
        reap();
        let count = listeners.len().to_string();
        let fds = listeners.into_iter().zip(FIRST..);
        let fds = fds.map(|(listener, child_fd)| FdMapping { parent_fd: listener.into(), child_fd }).collect();
        let mut command = Command::new(&self.program);
        host::SOCKET_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        // The installed program looks which one runs.
        command.args(&self.args).env("LISTEN_FDS", count).env_remove(crate::program::INSTALLED);
        match command.fd_mappings(fds) {
            Ok(command) => command.exec(),
            Err(error) => io::Error::other(error.to_string()),
        }
    }
}

/// Waits for children that are about to end: the new program knows nothing of them.
fn reap() {
    let until = Instant::now() + CHILDREN_END_WITHIN;
    while Instant::now() < until {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => (),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            // There are none.
            Err(_) => return,
        }
    }
}
