//! Programs run to their end, with a deadline, and what they said.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::wait::poll;

#[derive(Clone, Debug)]
pub struct Said {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn is_good(&self) -> bool {
        self.code == Some(0)
    }

    /// What it printed, if it ended well.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.is_good(), "it failed: {self:?}");
        self.out
    }

    /// What it complained of, if it ended with status 1.
    #[track_caller]
    pub fn wrong(self) -> String {
        assert!(
            self.code == Some(1) && !self.err.trim().is_empty(),
            "it should end with status 1 and say why: {self:?}"
        );
        self.err
    }
}

/// Runs it to its end. After the deadline it is killed, and has no code.
pub fn run(command: &mut Command, within: Duration) -> Said {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
    fn drain<R: Read + Send + 'static>(mut from: R) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let out = drain(child.stdout.take().expect("piped"));
    let err = drain(child.stderr.take().expect("piped"));
    let ended = poll(within, || match child.try_wait() {
        Ok(Some(status)) => Ok(status.code()),
        Ok(None) => Err(String::new()),
        Err(e) => panic!("{shown}: {e}"),
    });
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Said { code: ended.unwrap_or(None), out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default() }
}

/// Whether a program can be run here.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Makes an authority, and in the folder `files` a certificate for these hosts that it has signed, with its key. The authority's
/// certificate. By openssl.
#[track_caller]
pub fn signed(dir: &Path, hosts: &[&str]) -> PathBuf {
    let files = dir.join("files");
    std::fs::create_dir_all(&files).expect("a folder is made");
    certificate(dir, "authority.example");
    let names: Vec<String> = hosts.iter().map(|host| format!("DNS:{host}")).collect();
    std::fs::write(dir.join("names"), format!("subjectAltName={}\n", names.join(","))).expect("a file is written");
    let openssl = |words: &str| {
        let words = words.replace("DIR", &dir.display().to_string());
        run(Command::new("openssl").args(words.split(' ')), Duration::from_secs(20)).good();
    };
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -keyout DIR/files/b.key -out DIR/b.csr",
    );
    openssl(
        "x509 -req -in DIR/b.csr -CA DIR/a.crt -CAkey DIR/a.key -CAcreateserial -days 2 -extfile DIR/names -out DIR/files/b.crt",
    );
    dir.join("a.crt")
}

/// Makes a certificate for a host, signed by itself, with its key: `a.crt` and `a.key`. By openssl.
#[track_caller]
pub fn certificate(dir: &Path, host: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=x", "-addext", &format!("subjectAltName=DNS:{host}"), "-keyout"]);
    openssl.arg(dir.join("a.key")).arg("-out").arg(dir.join("a.crt"));
    run(&mut openssl, Duration::from_secs(20)).good();
}
