//! Children of a node: started through `keep`, listened to, signalled as a group, and reported when they end. A child
//! gets `HOST` and `PORT` in its environment. Whatever happens to the node, `keep` and `reap` (see `keeper`) end its
//! children with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use base::process::{Open, Private, Probe};
use base::{Event, Exit, ProcId, ProcSpec, Rng, Signal};
use rustix::process::{Pid, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bounds::{self, Bounds};
use crate::driver::{HostConfig, Sink, spawn};
use crate::identity::random_u64;
use crate::keeper::{LIFE_MARK, MEMBER_MARK, NOT_STARTED, kill_left};
pub use crate::keeper::{keep_main, reap_main};
use crate::limits::{LEFT_AT_ONCE, OUTPUT_LINGERS};
use crate::logs::Source;
use crate::output::{Gate, Lines, LogFiles};
use crate::ports::free_port;
use crate::skin::{self, Sandbox, Scratch, Skin};
use crate::user::As;
use crate::words::filled;
use crate::{Error, private, probe};

pub(crate) struct Procs {
    host: IpAddr,
    /// The node's own folder.
    dir: PathBuf,
    scratch: Scratch,
    services_dir: PathBuf,
    code_dir: PathBuf,
    keeper: PathBuf,
    /// Marks everything that this life of this node starts.
    life: String,
    logs: LogFiles,
    sink: Weak<dyn Sink>,
    rng: RefCell<Rng>,
    running: RefCell<BTreeMap<ProcId, Running>>,
    reaper: mpsc::UnboundedSender<String>,
    ended: mpsc::UnboundedSender<Left>,
    /// Taken by the reaper's task.
    reaper_lines: RefCell<Option<mpsc::UnboundedReceiver<String>>>,
    /// Taken by the task that clears away.
    ended_left: RefCell<Option<mpsc::UnboundedReceiver<Left>>>,
}

/// What is left of a child that has ended.
struct Left {
    /// Mark of what it started; none of one that is no clone.
    member: Option<String>,
    scratch: PathBuf,
    /// Its control group.
    group: Option<PathBuf>,
}

/// What there is before the machine's thread.
pub(crate) struct Prepared {
    logs: LogFiles,
    scratch: Scratch,
    random: u64,
}

#[derive(Clone, Copy)]
struct Running {
    /// Also the number of its group and session.
    pid: Pid,
    port: u16,
}

/// What a child said about why it never ran.
type NotStarted = Rc<RefCell<Option<String>>>;

impl Procs {
    pub fn prepare(config: &HostConfig) -> Result<Prepared, Error> {
        let logs = LogFiles::start(config.dir.join("logs"))?;
        Ok(Prepared { logs, scratch: Scratch::start(&config.dir)?, random: random_u64()? })
    }

    pub fn new(config: &HostConfig, prepared: Prepared, sink: Weak<dyn Sink>) -> Rc<Procs> {
        let Prepared { logs, scratch, random } = prepared;
        // A child looks for them from a working folder of its own. What cannot be made whole is as it was.
        let whole = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.into());
        let (reaper, lines) = mpsc::unbounded_channel();
        let (ended, left) = mpsc::unbounded_channel();
        Rc::new(Procs {
            host: config.proc_host,
            dir: whole(&config.dir),
            scratch,
            services_dir: whole(&config.services_dir),
            code_dir: whole(&config.code_dir),
            keeper: config.keeper.clone(),
            life: format!("{:x}-{}-{random:016x}", config.identity.node.0, config.boot.0),
            logs,
            sink,
            rng: RefCell::new(Rng::new(random)),
            running: RefCell::default(),
            reaper,
            ended,
            reaper_lines: RefCell::new(Some(lines)),
            ended_left: RefCell::new(Some(left)),
        })
    }

    /// Starts the reaper, and again whenever it ends; and clears away what children leave.
    pub fn start(self: &Rc<Self>) {
        let left = self.ended_left.borrow_mut().take().expect("started once");
        spawn(clear_away(self.life.clone(), left));
        let mut lines = self.reaper_lines.borrow_mut().take().expect("started once");
        let procs = self.clone();
        spawn(async move {
            loop {
                if let Err(e) = procs.reaper(&mut lines).await {
                    tracing::warn!("the reaper has ended, another one follows: {e}");
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }

    async fn reaper(&self, lines: &mut mpsc::UnboundedReceiver<String>) -> std::io::Result<()> {
        let mut reaper = Command::new(&self.keeper)
            .args(["reap", &self.life])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .env_remove(LIFE_MARK)
            .spawn()?;
        let mut input = reaper.stdin.take().expect("it was asked for");
        let known: String = self.running.borrow().values().map(|run| format!("+{}\n", run.pid)).collect();
        input.write_all(known.as_bytes()).await?;
        loop {
            tokio::select! {
                status = reaper.wait() => return Err(std::io::Error::other(status?.to_string())),
                line = lines.recv() => {
                    // The sender is in `self`.
                    let line = line.expect("the channel is open while we are");
                    input.write_all(line.as_bytes()).await?;
                }
            }
        }
    }

    /// Starts a child; `Spawned` and `Exited` follow, or `Exited` alone.
    pub fn spawn(self: &Rc<Self>, proc: ProcId, spec: ProcSpec) {
        let started = self.start_child(proc, &spec);
        let procs = self.clone();
        match started {
            Ok((child, run, left)) => {
                self.running.borrow_mut().insert(proc, run);
                let _ = self.reaper.send(format!("+{}\n", run.pid));
                spawn(async move {
                    procs.live(proc, (spec.name, spec.version), child, run).await;
                    let _ = procs.ended.send(left);
                });
            }
            Err(why) => {
                procs.logs.write(&spec.name, spec.version, Source::Node, &format!("not started: {why}"));
                spawn(async move { procs.tell(Event::Exited { proc, exit: Exit::NotStarted(why) }) });
            }
        }
    }

    fn start_child(&self, proc: ProcId, spec: &ProcSpec) -> Result<(Child, Running, Left), String> {
        if spec.run.is_empty() {
            return Err("there is no program to run".into());
        }
        let below = match &spec.code {
            Some(code) => self.code_dir.join(code),
            None => self.services_dir.clone(),
        };
        let dir = below.join(spec.dir.as_deref().unwrap_or("."));
        if !dir.is_dir() {
            return Err(format!("there is no folder {}", dir.display()));
        }
        let given: BTreeSet<u16> = self.running.borrow().values().map(|run| run.port).collect();
        let port = free_port(self.host, &mut self.rng.borrow_mut(), &given).map_err(|e| format!("no port: {e}"))?;
        let (host_text, port_text) = (self.host.to_string(), port.to_string());
        let scratch = self.scratch.make(&spec.name, proc.0)?;
        let scratch_text = scratch.to_string_lossy();
        let value = |name: &str| match name {
            "HOST" => Some(host_text.as_str()),
            "TMPDIR" => Some(spec.env.get(name).map_or(&*scratch_text, String::as_str)),
            "PORT" => Some(port_text.as_str()),
            other => match spec.given.words.get(other) {
                Some(word) => word.text(),
                None => spec.env.get(other).map(String::as_str),
            },
        };
        let files = own_files(&scratch, &spec.given.files).inspect_err(|_| cleared(&scratch))?;
        let bounds = Bounds::of(proc.0, &spec.limits).inspect_err(|_| cleared(&scratch))?;
        let group = bounds.group.clone();
        let clear = || {
            group.iter().for_each(|group| bounds::end(group));
            cleared(&scratch);
        };
        let skin = serde_json::to_string(&self.skin(spec, bounds, &dir, &scratch));
        let skin = skin.inspect_err(|_| clear()).map_err(|e| format!("a path is not text: {e}"))?;
        // A variable that would name itself names what the node gives.
        let of_env = |name: &str| if name == "TMPDIR" { Some(&*scratch_text) } else { value(name) };
        let env = spec.env.iter().map(|(name, text)| (name, filled(text, of_env)));
        let child = Command::new(&self.keeper)
            .args(["keep", &std::process::id().to_string(), &skin, "--"])
            .args(spec.run.iter().map(|word| filled(word, value)))
            .current_dir(&dir)
            .env_clear()
            .envs(skin::passed(spec.user.is_some()))
            .env("TMPDIR", &scratch)
            .envs(files)
            .envs(env)
            .env("HOST", &host_text)
            .env("PORT", &port_text)
            .env(LIFE_MARK, &self.life)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .inspect_err(|_| clear())
            .map_err(|e| format!("{} in {}: {e}", self.keeper.display(), dir.display()))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let run = Running { pid: pid.expect("a child that was not waited for has a number"), port };
        Ok((child, run, Left { member: spec.env.get(MEMBER_MARK).cloned(), scratch, group }))
    }

    /// What a child keeps of this node. A folder that is declared is its own to write; that of all services is not.
    fn skin(&self, spec: &ProcSpec, bounds: Bounds, dir: &Path, scratch: &Path) -> Skin {
        let code = spec.code.as_ref().map(|code| self.code_dir.join(code));
        let own = (self.dir.clone(), code.clone(), scratch.to_path_buf());
        let user = spec.user.clone().map(|name| {
            let (node, code, scratch) = own;
            As { name, node, code, scratch }
        });
        let sandbox = spec.sandbox.clone().map(|Open { read, write }| {
            let (read, mut write) = (paths(read), paths(write));
            let is_own = spec.code.is_none() && spec.dir.is_some();
            write.extend(is_own.then(|| dir.into()));
            let services = (spec.code.is_none() && spec.dir.is_none()).then(|| dir.into());
            Sandbox { node: self.dir.clone(), code, scratch: scratch.into(), services, read, write }
        });
        Skin { sandbox, bounds, user, cage: None }
    }

    async fn live(self: &Rc<Self>, proc: ProcId, name: (String, u32), mut child: Child, run: Running) {
        let log = |text: &str| self.logs.write(&name.0, name.1, Source::Node, text);
        log(&format!("started, pid {}, port {}", run.pid.as_raw_nonzero(), run.port));
        self.tell(Event::Spawned { proc, pid: run.pid.as_raw_nonzero().get().unsigned_abs(), port: run.port });
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let not_started = NotStarted::default();
        let gate = RefCell::new(Gate::new(Instant::now()));
        let listen = async {
            let out = self.listen(proc, (&name, Source::Out), stdout, &gate, &not_started);
            let err = self.listen(proc, (&name, Source::Err), stderr, &gate, &not_started);
            tokio::join!(out, err);
        };
        tokio::pin!(listen);
        let mut silent = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = &mut listen, if !silent => silent = true,
            }
        };
        // Whatever of its group is left belongs to nobody now.
        let _ = kill_process_group(run.pid, rustix::process::Signal::KILL);
        let _ = self.reaper.send(format!("-{}\n", run.pid));
        if !silent {
            // Its last lines are what people want to see; a grandchild that left the group may hold the pipe for ever.
            let _ = timeout(OUTPUT_LINGERS, listen).await;
        }
        self.running.borrow_mut().remove(&proc);
        let exit = match (not_started.take(), status) {
            (Some(why), _) => Exit::NotStarted(why),
            (None, Ok(status)) => exit_of(status),
            (None, Err(e)) => Exit::NotStarted(e.to_string()),
        };
        log(&format!("ended: {exit}"));
        self.tell(Event::Exited { proc, exit });
    }

    async fn listen(
        &self,
        proc: ProcId,
        (name, source): (&(String, u32), Source),
        pipe: Option<impl AsyncRead + Unpin>,
        gate: &RefCell<Gate>,
        not_started: &NotStarted,
    ) {
        let Some(mut pipe) = pipe else { return };
        let (mut lines, mut piece) = (Lines::default(), vec![0; 8 << 10]);
        let each = |line: String| {
            if let Some(why) = line.strip_prefix(NOT_STARTED) {
                *not_started.borrow_mut() = Some(why.into());
                return;
            }
            self.logs.write(&name.0, name.1, source, &line);
            match gate.borrow_mut().pass(Instant::now()) {
                Some(0) => (),
                Some(held) => self.tell(Event::Output { proc, line: format!("({held} lines more, see the log)") }),
                None => return,
            }
            self.tell(Event::Output { proc, line });
        };
        while let Ok(n @ 1..) = pipe.read(&mut piece).await {
            lines.push(&piece[..n], each);
        }
        lines.finish().into_iter().for_each(each);
    }

    /// Those that run, and the number of each one's process.
    pub fn pids(&self) -> Vec<(ProcId, u32)> {
        let running = self.running.borrow();
        running.iter().map(|(proc, run)| (*proc, run.pid.as_raw_nonzero().get().unsigned_abs())).collect()
    }

    /// Signals a child and its group; one that has ended is left alone.
    pub fn signal(&self, proc: ProcId, signal: Signal) {
        use rustix::process::Signal as Real;
        let Some(run) = self.running.borrow().get(&proc).copied() else { return };
        let signal = match signal {
            Signal::Term => Real::TERM,
            Signal::Int => Real::INT,
            Signal::Hup => Real::HUP,
            Signal::Quit => Real::QUIT,
            Signal::Usr1 => Real::USR1,
            Signal::Usr2 => Real::USR2,
            Signal::Kill => Real::KILL,
        };
        // In its first moments the child is still `keep`, alone and without a group of its own.
        if kill_process_group(run.pid, signal).is_err() {
            let _ = rustix::process::kill_process(run.pid, signal);
        }
    }

    pub fn probe(self: &Rc<Self>, proc: ProcId, probe: Probe) {
        let procs = self.clone();
        spawn(async move {
            let addr = (procs.host, probe.port).into();
            let result = probe::probe(addr, &probe).await;
            procs.tell(Event::Probed { proc, result });
        });
    }

    /// The end of this node's life within a process that goes on (tests).
    pub fn kill_all(&self) {
        for proc in self.running.borrow().keys().copied().collect::<Vec<_>>() {
            self.signal(proc, Signal::Kill);
        }
    }

    fn tell(&self, event: Event<std::convert::Infallible>) {
        if let Some(sink) = self.sink.upgrade() {
            sink.happened(event);
        }
    }
}

/// Ends what clones left in sessions of their own, then removes their files: of all that have ended meanwhile at once, as it
/// takes a look at every process of the machine.
async fn clear_away(life: String, mut ended: mpsc::UnboundedReceiver<Left>) {
    let mut all = Vec::new();
    while ended.recv_many(&mut all, LEFT_AT_ONCE).await > 0 {
        let (life, all) = (life.clone(), std::mem::take(&mut all));
        let clear = move || {
            let members: BTreeSet<String> = all.iter().filter_map(|left: &Left| left.member.clone()).collect();
            if !members.is_empty() {
                kill_left(&BTreeSet::new(), &life, Some(&members));
            }
            for Left { scratch: dir, group, .. } in all {
                group.iter().for_each(|group| bounds::end(group));
                if let Err(e) = skin::remove(&dir) {
                    tracing::warn!("temporary files of a clone stay in {}: {e}", dir.display());
                }
            }
        };
        let _ = tokio::task::spawn_blocking(clear).await;
    }
}

/// Files that a child alone is given, in a folder that ends with it; the variables that say where they are.
fn own_files(scratch: &Path, files: &BTreeMap<String, Private>) -> Result<Vec<(String, PathBuf)>, String> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let dir = scratch.join(SECRETS_DIR);
    private::make_dir(&dir).map_err(|e| format!("no folder {}: {e}", dir.display()))?;
    let write = |(name, value): (&String, &Private)| {
        let path = dir.join(name);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path);
        let written = file.and_then(|mut file| file.write_all(&value.0));
        written.map_err(|e| format!("secret {name} cannot be written: {e}"))?;
        Ok((format!("{name}_FILE"), path))
    };
    files.iter().map(write).collect()
}

/// Of a child that did not start.
fn cleared(scratch: &Path) {
    let _ = skin::remove(scratch);
}

/// Below a child's temporary folder.
const SECRETS_DIR: &str = ".secrets";

fn paths(texts: Vec<String>) -> Vec<PathBuf> {
    texts.into_iter().map(PathBuf::from).collect()
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotStarted(status.to_string()),
    }
}
