//! A bit flips in the memory of a live node (SSM 5.6, figure 11, there by `ptrace` too): in values at rest, found in the process by
//! what they are. It is never returned, it is repaired from another node, it is counted, and when it repeats the brick starts anew.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::{Up, http, skip, wait_for};

/// With this all values begin.
const MARK: &[u8] = b"at rest ";

/// Flips one bit in each copy of these texts in the writable memory of a process; how many copies each had. Buffers that they
/// passed through and that nobody uses any more are among them.
fn flip(pid: u32, texts: &[String]) -> io::Result<Vec<usize>> {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut copies = vec![0; texts.len()];
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
        let Some((from, to)) = range.split_once('-').filter(|_| mode.starts_with("rw")) else { continue };
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        // What is not there to read, as it went meanwhile, holds nothing.
        let Ok(read) = memory.read_at(&mut bytes, from) else { continue };
        for at in memchr::memmem::find_iter(&bytes[..read], MARK) {
            let Some(which) = texts.iter().position(|text| bytes[at..read].starts_with(text.as_bytes())) else {
                continue;
            };
            let middle = at + texts[which].len() / 2;
            memory.write_all_at(&[bytes[middle] ^ 1], from + middle as u64)?;
            copies[which] += 1;
        }
    }
    Ok(copies)
}

fn metric(up: &Up, node: u8, name: &str) -> u64 {
    let text = http::get(up.at(node).api, "/metrics").unwrap().text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("coppice_session_{name}_total ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn bits_that_flip_in_the_memory_of_a_live_node_are_repaired_and_when_it_repeats_the_brick_starts_anew() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("carts.toml", "[namespace.carts]\nclass = \"session\"\n").good();
    let mut door = Resp::open(up.at(2).resp, "carts", &up.token("carts")).unwrap();
    let value = |n: u64| format!("at rest {:016x}{n:04}{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15), !n);
    for n in 0..100 {
        assert_eq!(door.ask(&["SET", &format!("k{n}"), &value(n)]), Ok(Word::Simple("OK".into())));
    }
    wait_for("all three have them", Duration::from_secs(10), || {
        let view = up.status(2)?;
        let nodes = view["nodes"].as_array().ok_or("no nodes")?;
        let all = nodes.iter().all(|node| node["brick"]["entries"] == 100 && node["brick"]["settled"] == true);
        if all { Ok(()) } else { Err(view["nodes"].to_string()) }
    });
    let pid = up.node_pid(2);
    match flip(pid, &[value(0), value(1), value(2)]) {
        Ok(copies) => assert!(!copies.contains(&0), "copies in the memory of n2: {copies:?}"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return skip(&format!("the memory of a child may not be written here ({error})"));
        }
        Err(error) => panic!("{error}"),
    }
    for n in 0..3 {
        // Its own brick is asked first, and has a damaged value.
        assert_eq!(door.ask(&["GET", &format!("k{n}")]), Ok(Word::Bulk(value(n))));
        // That it is damaged shows a moment before that it is repaired, which takes an answer of another node.
        wait_for("it is counted", Duration::from_secs(5), || {
            match (metric(&up, 2, "damaged"), metric(&up, 2, "repairs")) {
                (damaged, repaired) if damaged == n + 1 && repaired > n => Ok(()),
                (damaged, repaired) => Err(format!("{damaged} damaged, {repaired} repaired")),
            }
        });
        // It is whole again: it is not damaged once more.
        assert_eq!(door.ask(&["GET", &format!("k{n}")]), Ok(Word::Bulk(value(n))));
        assert_eq!(metric(&up, 2, "damaged"), n + 1);
        if n < 2 {
            assert_eq!(metric(&up, 2, "starts_anew"), 0);
        }
    }
    wait_for("the brick starts anew and is filled", Duration::from_secs(20), || {
        let view = up.status(2)?;
        let brick = &view["nodes"][1]["brick"];
        let told = view["events"].to_string().contains("this brick starts anew");
        let done = told && brick["settled"] == true && brick["entries"] == 100;
        if done && metric(&up, 2, "starts_anew") == 1 { Ok(()) } else { Err(format!("{brick}, told: {told}")) }
    });
    for n in 0..100 {
        assert_eq!(door.ask(&["GET", &format!("k{n}")]), Ok(Word::Bulk(value(n))));
    }
    assert_eq!((metric(&up, 1, "damaged"), metric(&up, 3, "damaged")), (0, 0));
    assert_eq!(up.node_pid(2), pid, "it is the same process");
}
