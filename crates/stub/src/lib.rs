//! What stands before a worker's program on pipes (TACC 2.2: the worker stub), so that the program knows nothing of
//! networks, queues or deadlines. A node starts it as the clone; it listens on the clone's port, speaks HTTP
//! (`job.rs`), and so a worker is chosen, counted, grown and healed as any other clone.
//!
//! - `stub.rs`: from a request to its end. `queue.rs`: who waits. `poison.rs`: inputs that crash workers.
//! - `program.rs`: the program's processes. `words.rs`: its arguments. `frames.rs`: the pipes of form `stream`.

mod frames;
mod job;
pub mod limits;
mod poison;
mod program;
mod queue;
mod stub;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use clones::worker::Worker;
use sdk::axum::Router;
use sdk::{Group, Heard, Service};
use tokio::sync::mpsc;

use crate::poison::Input;
use crate::stub::{Stub, fatal};

const USAGE: &str = "usage: serve-worker WORKER -- PROGRAM ARGUMENT...";
/// What the node shows of it is a stage of this name.
const JOBS: &str = "jobs";

/// Is a clone of a worker until its node tells it to stop: `args` are what the worker declares, `--`, program,
/// arguments.
pub fn serve_main(args: impl Iterator<Item = OsString>) -> ! {
    let args: Vec<String> = args.map(|word| word.to_string_lossy().into_owned()).collect();
    let [says, dashes, words @ ..] = &args[..] else { fatal(USAGE) };
    let worker = serde_json::from_str::<Worker>(says).ok().filter(|_| dashes == "--");
    let (Some(worker), [program, ..]) = (worker, words) else { fatal(USAGE) };
    if !is_there(program) {
        fatal(&format!("there is no program {program:?}"));
    }
    // What this process holds is not the program's to read.
    if let Err(e) = host::close_self() {
        fatal(&e.to_string());
    }
    // One thread: children end with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served =
        runtime.map_err(|e| format!("cannot start: {e}")).and_then(|runtime| runtime.block_on(serve(worker, words)));
    match served {
        Ok(()) => std::process::exit(0),
        Err(why) => fatal(&why),
    }
}

async fn serve(worker: Worker, words: &[String]) -> Result<(), String> {
    let service = Service::from_env().map_err(|e| e.to_string())?;
    let version = std::env::var("COPPICE_VERSION").unwrap_or_default();
    let (stub, told) = Stub::new(worker, words.to_vec(), version);
    if let Ok(group) = service.group() {
        tokio::spawn(tell(group.clone(), told));
        tokio::spawn(hear(group, Arc::clone(&stub)));
    }
    stub.begin();
    let shown = Arc::clone(&stub);
    let service = service.shows_figures(JOBS, move || shown.figures());
    let routes = Router::new().fallback(stub::job).with_state(stub);
    service.serve(routes).await.map_err(|e| e.to_string())
}

/// Tells the other clones of crashes; whom it does not reach finds out by itself.
async fn tell(group: Group, mut told: mpsc::Receiver<Input>) {
    while let Some(input) = told.recv().await {
        let _ = group.broadcast(poison::text(&input)).await;
    }
}

async fn hear(group: Group, stub: Arc<Stub>) {
    let mut messages = group.messages();
    loop {
        if let Heard::Message { from, body } = messages.next().await
            && from != group.life()
            && let Some(input) = std::str::from_utf8(&body).ok().and_then(poison::read)
        {
            stub.heard(input);
        }
    }
}

/// Whether a program is found, as `exec` will look for it.
fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
