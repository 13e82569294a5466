//! Versions of a TCP service, under load: of a good one nobody notices anything, one that ends its connections or says nothing
//! goes back by itself, judged by nothing but what comes over its connections.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::at::free_port;
use e2e::tcp::ask;
use e2e::{Up, wait_for};

/// Connections without an end, and those of them that failed.
struct Users {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(u64, Vec<String>)>>,
}

impl Users {
    fn start(doors: &[SocketAddr]) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let user = |at: SocketAddr| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let (mut asked, mut failed) = (0, Vec::new());
                while !stop.load(Relaxed) {
                    asked += 1;
                    failed.extend(ask(at).err());
                    std::thread::sleep(Duration::from_millis(15));
                }
                (asked, failed)
            })
        };
        let threads = doors.iter().chain(doors).map(|at| user(*at)).collect();
        Self { stop, threads }
    }

    fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Relaxed);
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap());
        ended.fold((0, Vec::new()), |(asked, mut failed), (more, others)| {
            failed.extend(others);
            (asked + more, failed)
        })
    }
}

fn app(up: &Up, port: u16, says: &str) -> PathBuf {
    let dir = up.dir.join("app");
    fs::create_dir_all(&dir).unwrap();
    let own = format!("[service.app]\nrun = [\"python3\", \"app.py\"]\nclones = 3\ntcp = {{ port = {port} }}\n");
    fs::write(dir.join("coppice.toml"), own).unwrap();
    let program = fs::read_to_string(e2e::program::service_program("word.py")).unwrap();
    fs::write(dir.join("app.py"), program.replace("SAYS", says)).unwrap();
    dir
}

#[test]
fn a_version_that_ends_connections_or_says_nothing_goes_back_by_itself() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let port = free_port(3);
    let doors: Vec<_> = (1..=3).map(|node| SocketAddr::new(up.at(node).http.ip(), port)).collect();
    let deploy = |says| up.coppice(&["deploy", &app(&up, port, says).display().to_string()]);
    let all_say = |word: &str| {
        wait_for(&format!("all say {word}"), Duration::from_secs(30), || {
            // Each door several times: clones take turns.
            let said: Vec<_> = doors.iter().cycle().take(12).map(|at| ask(*at)).collect();
            if said.iter().all(|said| said.as_deref() == Ok(word)) { Ok(()) } else { Err(format!("{said:?}")) }
        })
    };
    deploy("one").good();
    all_say("one");

    let users = Users::start(&doors);
    deploy("two").good();
    all_say("two");
    let (asked, failed) = users.end();
    assert!(failed.is_empty(), "{} of {asked}: {:?}", failed.len(), &failed[..failed.len().min(5)]);
    e2e::say(&format!("a good version: {asked} connections, 0 failed"));

    for (says, why) in [("closes", "answers failed"), ("mute", "none of")] {
        let (users, begun) = (Users::start(&doors), Instant::now());
        let said = deploy(says).wrong();
        assert!(said.contains("was taken back") && said.contains(why), "{said}");
        let took = begun.elapsed();
        all_say("two");
        let (asked, failed) = users.end();
        // One new clone of four was tried; most never met it.
        assert!(failed.len() as u64 * 3 < asked, "{} of {asked}: {:?}", failed.len(), &failed[..5]);
        e2e::say(&format!(
            "{says}: taken back after {} ms, {} of {asked} connections failed",
            took.as_millis(),
            failed.len()
        ));
        let users = Users::start(&doors);
        std::thread::sleep(Duration::from_secs(2));
        let (asked, failed) = users.end();
        assert!(failed.is_empty(), "afterwards {} of {asked}: {failed:?}", failed.len());
    }
}
