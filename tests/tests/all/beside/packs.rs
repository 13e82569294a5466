//! Bytes of objects lie in files of their nodes: they outlive SIGKILL of all nodes, what is damaged in a file of one node is read elsewhere
//! and mended, and what is deleted gives the disk back.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Up, http, wait_for};

const FILE: &str = "[namespace.mail]\nclass = \"object\"\n";
const SOON: Duration = Duration::from_secs(60);
const OBJECTS: u32 = 14;
const BYTES: usize = 3 << 20;

fn body(id: u32) -> Vec<u8> {
    (0..BYTES / 4).flat_map(|n| (n as u32).wrapping_mul(id).to_be_bytes()).collect()
}

struct Mail<'a> {
    up: &'a Up,
    bearer: String,
}

impl Mail<'_> {
    fn answer(&self, node: u8, method: &str, id: u32, body: &[u8]) -> http::Reply {
        let path = format!("/v1/ns/mail/objects/ann/{id:032x}");
        let headers = [("Authorization", self.bearer.as_str())];
        let ask = || {
            let reply =
                http::request(self.up.at(node).api, method, &path, &headers, body).map_err(|e| e.to_string())?;
            if matches!(reply.status, 503 | 504) { Err(reply.text()) } else { Ok(reply) }
        };
        wait_for(&format!("n{node} answers {method} {id}"), SOON, ask).0
    }

    fn reads_all(&self, node: u8) {
        for id in 1..=OBJECTS {
            let reply = self.answer(node, "GET", id, b"");
            assert!(reply.status == 200 && reply.body == body(id), "{id} at n{node}: {}", reply.status);
        }
    }
}

fn figure(up: &Up, node: u8, name: &str) -> Result<u64, String> {
    let text = http::get(up.at(node).api, "/metrics").map_err(|e| e.to_string())?.text();
    let of = |line: &str| line.strip_prefix(&format!("coppice_object_{name} "))?.trim().parse().ok();
    text.lines().find_map(of).ok_or_else(|| format!("n{node} does not say {name}"))
}

fn packs(dir: &Path, node: u8) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join(format!("n{node}/log/packs"))).into_iter().flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "pack")).collect()
}

/// A byte in each piece is another one.
fn rot(dir: &Path) {
    let all = packs(dir, 1);
    assert!(!all.is_empty());
    for path in all {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        for at in (500_000..len).step_by(1 << 20) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    }
}

#[test]
fn objects_lie_on_the_disk_outlive_sigkill_and_are_mended_where_they_rot() {
    let _turn = e2e::beside();
    let up = Up::start(2, &["--no-demo"]);
    wait_for("all nodes agree on the class", SOON, || {
        let said = up.apply("mail.toml", FILE);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    let bearer = format!("Bearer {}", up.token("mail"));
    let mail = Mail { up: &up, bearer: bearer.clone() };
    for id in 1..=OBJECTS {
        assert_eq!(mail.answer(1 + (id % 2) as u8, "PUT", id, &body(id)).status, 204);
    }
    // Less than a pack (16 MiB) stays in memory.
    for node in [1, 2] {
        wait_for("the rest is on the disk", SOON, || {
            let (here, disk) = (figure(&up, node, "memory_bytes")?, figure(&up, node, "disk_bytes")?);
            let all = u64::from(OBJECTS) * BYTES as u64;
            let is_so = here < 16 << 20 && disk >= all - (16 << 20) && disk <= all;
            if is_so { Ok(()) } else { Err(format!("{here} bytes in memory, {disk} in packs")) }
        });
    }

    let up = up.kill_all_change_and_start(rot);
    let mail = Mail { up: &up, bearer };
    mail.reads_all(1);
    wait_for("what is bad at n1 is mended", SOON, || {
        match (figure(&up, 1, "damaged_total")?, figure(&up, 1, "mended_total")?) {
            (bad, mended) if bad > 5 && bad == mended => Ok(()),
            other => Err(format!("{other:?} were damaged and mended")),
        }
    });
    mail.reads_all(2);
    assert_eq!(figure(&up, 2, "damaged_total").unwrap(), 0);

    for id in 1..=OBJECTS {
        assert_eq!(mail.answer(1, "DELETE", id, b"").status, 204);
    }
    for node in [1, 2] {
        wait_for("the disk is given back", SOON, || match packs(&up.dir, node) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
    }
}
