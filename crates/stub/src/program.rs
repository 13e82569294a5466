//! Processes of a worker's program: one for each job (`once`), or one that is kept (`stream`). Each is in the worker's
//! cage, is a session of its own and ends, with all that it started, when its [`Program`] is dropped.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use base::process::Exit;
use bytes::Bytes;
use clones::worker::{Cage, Worker};
use host::{Calls, caged};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::frames::{self, Answer, Word};
use crate::job::{End, Job};
use crate::limits::*;
use crate::words::filled;

/// Of sysexits(3): what a program says that could not do it now, or that got something that is none.
const EX_DATAERR: i32 = 65;
const EX_TEMPFAIL: i32 = 75;
/// The program itself could not be started; whatever it was given has no part in that.
const NOT_STARTED: [i32; 2] = [126, 127];
/// Of its stub, and of no use behind pipes.
const NOT_PASSED: [&str; 5] = ["HOST", "PORT", "COPPICE_TOKEN", "COPPICE_NODE_API", "COPPICE_NODE_APIS"];

/// How a job ended, and whether it took a process with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub end: End,
    /// The input may have done it.
    pub killed: bool,
}

impl Ended {
    pub fn well(end: End) -> Self {
        Self { end, killed: false }
    }

    pub fn crash(why: impl Into<String>) -> Self {
        Self { end: End::Crash(why.into()), killed: true }
    }
}

struct Program {
    child: Child,
    group: Option<Pid>,
}

impl Program {
    fn start(worker: &Worker, words: &[String], env: Vec<(String, String)>) -> std::io::Result<Self> {
        let calls = match worker.sandbox {
            Cage::Strict => Calls::NoSockets,
            Cage::Net => Calls::NoPowers,
            Cage::None => Calls::All,
        };
        let mut command = Command::from(caged(host::Cage { memory: worker.memory(), calls }, words));
        NOT_PASSED.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(env).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn()?;
        let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(Self { child, group })
    }

    fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let pipes = self.child.stdin.take().zip(self.child.stdout.take());
        pipes.expect("both were asked for, and are taken once")
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill_group();
        // In its first moment it is no group yet.
        let _ = self.child.start_kill();
    }
}

/// A job by a process of its own: content to its standard input, the result from its standard output.
pub async fn once(worker: &Worker, words: &[String], job: &Job) -> Ended {
    let words = match filled(words, &job.params) {
        Ok(words) => words,
        Err(why) => return Ended::well(End::Bad(why)),
    };
    let mut program = match Program::start(worker, &words, env(job)) {
        Ok(program) => program,
        Err(e) => return Ended::well(End::Busy(format!("no process could be started: {e}"))),
    };
    let (mut to, from) = program.pipes();
    let write = async {
        // Who needs no more closes its end: no mistake.
        let _ = to.write_all(&job.content).await;
        drop(to);
        Ok(())
    };
    let read = read_most(from);
    let io = async { tokio::try_join!(write, read).map(|((), body)| body) };
    tokio::pin!(io);
    let (mut status, mut read) = (None, None);
    while status.is_none() || read.is_none() {
        tokio::select! {
            body = &mut io, if read.is_none() => match body {
                Ok(body) => read = Some(body),
                Err(why) => return Ended::crash(why),
            },
            ended = program.child.wait(), if status.is_none() => {
                // What it left may hold the pipe.
                program.kill_group();
                status = Some(ended);
            }
        }
    }
    let body = read.unwrap_or_default();
    match status.expect("it was waited for").map(exit_of) {
        Ok(Exit::Code(0)) if body == job.content && worker.gives.is_none() => Ended::well(End::Unchanged),
        Ok(Exit::Code(0)) => {
            Ended::well(End::Done { kind: worker.gives.clone().unwrap_or_else(|| job.kind.clone()), body })
        }
        Ok(Exit::Code(EX_DATAERR)) => Ended::well(End::Bad("the worker can do nothing with this input".into())),
        Ok(Exit::Code(EX_TEMPFAIL)) => Ended::well(End::Busy("the worker says that it cannot do it now".into())),
        Ok(Exit::Code(code)) if NOT_STARTED.contains(&code) => {
            Ended::well(End::Crash(format!("the worker was not started: exit status {code}")))
        }
        Ok(exit) => Ended::crash(format!("the worker ended: {exit}")),
        Err(e) => Ended::crash(format!("the worker's end is not known: {e}")),
    }
}

/// What a program of form `once` finds in its environment, beside what its node gives to all.
fn env(job: &Job) -> Vec<(String, String)> {
    let profile = job.profile.as_ref().and_then(|profile| serde_json::to_string(profile).ok());
    let own = [("JOB_TYPE", Some(&job.kind)), ("JOB_URL", job.url.as_ref()), ("JOB_PROFILE", profile.as_ref())];
    let own = own.map(|(name, value)| Some((name.to_owned(), value?.clone()))).into_iter().flatten();
    let params = job.params.iter().map(|(name, value)| (format!("JOB_PARAM_{}", name.to_uppercase()), value.clone()));
    own.chain(params).collect()
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotStarted(status.to_string()),
    }
}

async fn read_most(from: ChildStdout) -> Result<Bytes, String> {
    let mut body = Vec::new();
    let read = from.take(RESULT_BYTES_MAX as u64 + 1).read_to_end(&mut body).await;
    read.map_err(|e| format!("its output cannot be read: {e}"))?;
    if body.len() > RESULT_BYTES_MAX {
        return Err(format!("the worker gave over {RESULT_BYTES_MAX} bytes"));
    }
    Ok(body.into())
}

/// A process that is kept: one job after the other.
pub struct Kept {
    program: Program,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    jobs: u64,
}

impl Kept {
    pub fn start(worker: &Worker, words: &[String]) -> std::io::Result<Self> {
        let mut program = Program::start(worker, words, Vec::new())?;
        let (to, from) = program.pipes();
        Ok(Self { program, to, from: BufReader::new(from), jobs: 0 })
    }

    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Ends, with the reason, when it is of no use any more: it has ended, or said something without being asked.
    pub async fn spoils(&mut self) -> String {
        match self.from.fill_buf().await {
            Ok([]) => match timeout(END_TIME_MAX, self.program.child.wait()).await {
                Ok(Ok(status)) => exit_of(status).to_string(),
                Ok(Err(e)) => e.to_string(),
                Err(_) => "it closed its output".into(),
            },
            Ok(_) => "it spoke before it was asked".into(),
            Err(e) => e.to_string(),
        }
    }

    /// Does a job. None beside the end: this process is of no use any more.
    pub async fn run(&mut self, job: &Job, left: Duration) -> (Ended, bool) {
        self.jobs += 1;
        let line = frames::ask(self.jobs, job, left);
        let (to, from, id) = (&mut self.to, &mut self.from, self.jobs);
        let write = async {
            to.write_all(&line).await?;
            to.write_all(&job.content).await?;
            to.flush().await
        };
        let (written, read) = tokio::join!(write, read_answer(from, id));
        let (Answer { end, kind, why, .. }, body) = match read {
            Ok(read) => read,
            Err(why) => {
                let exit = self.program.child.try_wait().ok().flatten().map(exit_of);
                let exit = exit.map_or_else(String::new, |exit| format!(" ({exit})"));
                return (Ended::crash(format!("{why}{exit}")), false);
            }
        };
        let end = match end {
            Word::Done => End::Done { kind: kind.unwrap_or_else(|| job.kind.clone()), body },
            Word::Unchanged => End::Unchanged,
            Word::Busy => End::Busy(why),
            Word::Bad => End::Bad(why),
            Word::Failed => End::Crash(why),
        };
        (Ended::well(end), written.is_ok() && self.from.buffer().is_empty())
    }
}

async fn read_answer(from: &mut BufReader<ChildStdout>, id: u64) -> Result<(Answer, Bytes), String> {
    let mut line = Vec::new();
    let read = (&mut *from).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).await;
    read.map_err(|e| format!("the worker cannot be read: {e}"))?;
    if line.pop() != Some(b'\n') {
        return Err(if line.len() + 1 >= LINE_BYTES_MAX {
            format!("the worker's line has over {LINE_BYTES_MAX} bytes")
        } else {
            "the worker ended before it answered".into()
        });
    }
    let answer = frames::answer(&line, id)?;
    let mut body = Vec::new();
    let read = from.take(answer.bytes as u64).read_to_end(&mut body).await;
    read.map_err(|e| format!("the worker cannot be read: {e}"))?;
    if body.len() < answer.bytes {
        return Err("the worker ended before it had given all".into());
    }
    Ok((answer, body.into()))
}
