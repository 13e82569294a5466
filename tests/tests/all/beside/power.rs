//! Real power cuts: each node's folder is a file system of its own, which is shut down under it without a word to the disk.
//! What was not forced by then is gone when it is mounted again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::history::{History, can_judge};
use e2e::procs::{self, Signal};
use e2e::resp::Word;
use e2e::writes::Writes;
use e2e::{Yard, apart, say, skip, tools, wait_for};

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\n";
const SOON: Duration = Duration::from_secs(60);
const SIZE: u64 = 1 << 30;

/// The disks of a yard's nodes.
struct Disks(PathBuf);

impl Disks {
    fn image(&self, node: u8) -> PathBuf {
        self.0.join(format!("disk{node}"))
    }

    fn place(&self, node: u8) -> PathBuf {
        self.0.join(format!("n{node}"))
    }

    /// An error if there can be none here.
    fn make(dir: &Path, nodes: u8) -> Result<Disks, String> {
        let disks = Disks(dir.to_owned());
        for node in 1..=nodes {
            std::fs::File::create(disks.image(node)).unwrap().set_len(SIZE).unwrap();
            let mut mkfs = Command::new("mkfs.ext4");
            tools::run(mkfs.args(["-q", "-F"]).arg(disks.image(node)), SOON).good();
            std::fs::create_dir_all(disks.place(node)).unwrap();
            let said = disks.mount(node);
            if !said.is_good() {
                return Err(format!("a file cannot be mounted here: {}", said.err.trim()));
            }
            // `init` and `join` want an empty folder.
            let _ = std::fs::remove_dir(disks.place(node).join("lost+found"));
        }
        Ok(disks)
    }

    fn mount(&self, node: u8) -> tools::Said {
        tools::run(Command::new("mount").args(["-o", "loop"]).arg(self.image(node)).arg(self.place(node)), SOON)
    }

    /// Nothing that is not on the disk by now gets there.
    fn cut(&self, node: u8) {
        let mut cut = Command::new("xfs_io");
        tools::run(cut.args(["-x", "-c", "shutdown"]).arg(self.place(node)), SOON).good();
    }

    /// The machine comes back: its file system puts itself in order.
    fn back(&self, node: u8) {
        wait_for("nobody holds it", SOON, || {
            let said = tools::run(Command::new("umount").arg(self.place(node)), SOON);
            if said.is_good() { Ok(()) } else { Err(said.err) }
        });
        self.mount(node).good();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for node in 1..=3 {
            let _ = Command::new("umount").arg("-l").arg(self.place(node)).status();
        }
    }
}

/// Why something is not so yet, and the ends of the nodes' logs: their disks are gone before the yard could show them.
fn with_logs(yard: &Yard, why: &str) -> String {
    let end = |node| {
        yard.log(node).lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    };
    (1..=3).fold(why.to_owned(), |told, node| format!("{told}\n--- n{node}\n{}", end(node)))
}

#[test]
fn what_was_acknowledged_outlives_real_power_cuts() {
    let _turn = e2e::beside();
    match apart::enter(
        module_path!(),
        "what_was_acknowledged_outlives_real_power_cuts",
        "--mount",
        &["mkfs.ext4", "mount", "xfs_io"],
    ) {
        Ok(true) => (),
        Ok(false) => return,
        Err(why) => return skip(&why),
    }
    let mut yard = Yard::new();
    // Before the yard goes, its folder must be free; so these are dropped by hand below.
    let disks = match Disks::make(&yard.dir, 3) {
        Ok(disks) => disks,
        Err(why) => return skip(&why),
    };
    yard.found("home");
    for node in 2..=3 {
        let token = yard.token("10m");
        yard.join(node, &token).good();
        yard.run(node);
    }
    yard.apply(1, "bank.toml", FILE).good();
    let token = yard.namespace_token("bank");
    let whole = |yard: &Yard| match yard.status(1)?["namespaces"][0]["shards"][0]["members"].as_array().map(Vec::len) {
        Some(3) => Ok(()),
        other => Err(format!("{other:?} members")),
    };
    wait_for("three have it", SOON, || whole(&yard));
    let doors: Vec<_> = (1..=3).map(|n| yard.at(n).resp).collect();
    let mut kept = Vec::new();
    let history = can_judge().then(|| History::start(&doors, "bank", &token));
    // All at one moment; one alone; two; all again.
    for (round, nodes) in [&[1, 2, 3][..], &[1], &[2, 3], &[1, 2, 3]].into_iter().enumerate() {
        let writes = Writes::start(&doors, "bank", &token);
        writes.go_on(300);
        // A machine without power does nothing more, and its disk answers nothing: this kernel's shutdown of a file system may let a
        // force that is under way end well although its bytes are lost, which no disk without power does.
        nodes.iter().for_each(|node| procs::kill(yard.pid(*node), Signal::STOP));
        nodes.iter().for_each(|node| disks.cut(*node));
        nodes.iter().for_each(|node| yard.kill(*node));
        nodes.iter().for_each(|node| disks.back(*node));
        nodes.iter().for_each(|node| yard.begin(*node, &[]));
        writes.go_on(100);
        let written = writes.end();
        say(&format!("round {round}: power of {nodes:?}: {} writes acknowledged", written.keys.len()));
        let (mut resp, _) = wait_for("node 2 answers", SOON, || {
            let opened = e2e::resp::Resp::open(yard.at(2).resp, "bank", &token);
            let mut resp = opened.map_err(|why| with_logs(&yard, &why.to_string()))?;
            match resp.ask(&["DBSIZE"])? {
                Word::Int(_) => Ok(resp),
                other => Err(format!("{other:?}")),
            }
        });
        written.are_kept(&mut resp);
        // Keys of the next round begin anew.
        for key in &written.keys {
            kept.push(format!("{round}-{key}"));
        }
        for keys in written.keys.chunks(200) {
            let new: Vec<String> = keys.iter().map(|key| format!("{round}-{key}")).collect();
            let pairs: Vec<&str> = ["MSET"].into_iter().chain(new.iter().flat_map(|key| [key.as_str(), key])).collect();
            assert_eq!(resp.ask(&pairs).unwrap(), Word::Simple("OK".into()));
        }
        let all = e2e::writes::Written { keys: kept.clone(), ..Default::default() };
        all.are_kept(&mut resp);
        wait_for("three have it again", SOON, || whole(&yard).map_err(|why| with_logs(&yard, &why)));
    }
    if let Some(history) = history {
        history.judge(&yard.dir);
    }
    yard.kill_everything();
    drop(disks);
}
