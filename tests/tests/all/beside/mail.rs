//! The built-in mail as its demo starts it, with the clients of Python's own library: what one node took is read
//! through another, and what was answered 250 is there once through every address after a node was killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use e2e::procs::{self, Signal};
use e2e::{Up, http, program, tools, up, wait_for};
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(60);

fn client() -> Command {
    let mut command = Command::new("python3");
    command.arg(program::repository().join("tests/mail/client.py"));
    command
}

fn ask(words: &[&str]) -> Result<Value, String> {
    let said = tools::run(client().args(words), WITHIN);
    if said.is_good() { serde_json::from_str(&said.out).map_err(|e| e.to_string()) } else { Err(said.err) }
}

struct Cluster {
    up: Up,
    /// By node from 1.
    smtp: Vec<String>,
    pop3: Vec<String>,
    /// Address and password.
    accounts: Vec<(String, String)>,
}

impl Cluster {
    fn start() -> Self {
        let up = Up::start(3, &["--demo", "mail"]);
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{}", up.ready)).to_owned();
        let of_nodes = |door: &str| -> Vec<String> {
            up.ready["nodes"].as_array().unwrap().iter().map(|node| text(&node[door])).collect()
        };
        let accounts = up.ready["accounts"].as_array().unwrap_or_else(|| panic!("{}", up.ready));
        let accounts = accounts.iter().map(|of| (text(&of["address"]), text(&of["password"]))).collect();
        let (smtp, pop3) = (of_nodes("smtp"), of_nodes("pop3"));
        Self { up, smtp, pop3, accounts }
    }

    /// Subjects of ann's messages with how often each is there, once the node answers.
    fn read(&self, node: usize) -> BTreeMap<String, usize> {
        let (address, password) = &self.accounts[0];
        let look = || ask(&["read", &self.pop3[node - 1], address, password]);
        let (found, _) = wait_for(&format!("ann's mail is read through n{node}"), WITHIN, look);
        let mut subjects = BTreeMap::new();
        for message in found.as_array().unwrap() {
            *subjects.entry(message["subject"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        subjects
    }

    /// What becomes of one message, when the node answers.
    fn send(&self, node: usize, name: &str, to: &[&str]) -> Value {
        let look = || ask(&[&["send", &self.smtp[node - 1], name], to].concat());
        wait_for(&format!("n{node} says what it does with {name}"), WITHIN, look).0
    }
}

/// A client that sends one message after the other.
struct Loop {
    child: Child,
    taken: mpsc::Receiver<String>,
}

impl Loop {
    fn start(to: &str, servers: &[String]) -> Self {
        let mut child = client().arg("loop").arg(to).args(servers).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, taken) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let names = out.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            names.map_while(|name: String| tell.send(name).ok()).for_each(drop);
        });
        Self { child, taken }
    }

    /// The next so many that were answered 250.
    fn taken(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.taken.recv_timeout(WITHIN).expect("mail is taken all the time")).collect()
    }

    /// Stops it. What was answered 250 since.
    fn end(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.taken.iter().collect()
    }
}

#[test]
fn what_was_answered_250_is_there_once_through_every_address_whoever_dies() {
    let _turn = e2e::beside();
    let mut cluster = Cluster::start();
    let accounts = cluster.accounts.clone();
    let [(ann, password), (bob, _)] = accounts.as_slice() else { panic!("{accounts:?}") };

    // Taken at one node, read through another, with the words and the size that it has; a repetition is the same
    // message.
    for _ in 0..2 {
        assert_eq!(cluster.send(1, "first", &["ANN+news@mail.test"]), "taken");
    }
    let read = ask(&["read", &cluster.pop3[1], ann, password]).unwrap();
    let text = read[0]["text"].as_str().unwrap();
    assert_eq!(read.as_array().unwrap().len(), 1, "{read}");
    for part in [
        "Return-Path: <eve@elsewhere.test>\r\nDelivered-To: ANN+news@mail.test\r\nReceived: from client.test ([127.0.0.1])\r\n",
        "\r\nAuthentication-Results: n1; none\r\nMessage-ID: <first@test>\r\n",
        "\r\nSubject: first\r\n\r\nwords\r\n.dot\r\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    the_demo_speaks_tls(&cluster, bob, &accounts[1].1);
    who_is_refused_and_let_in(&cluster, ann, password, bob);

    what_has_attachments_is_taken_and_read_whole(&cluster, ann, password);

    // A node dies while mail comes in at all of them.
    let sends = Loop::start(ann, &cluster.smtp);
    let mut taken = sends.taken(20);
    let pid = cluster.up.node_pid(3);
    procs::kill(pid, Signal::KILL);
    taken.extend(sends.taken(40));
    taken.extend(sends.end());
    for node in 1..=3 {
        let subjects = cluster.read(node);
        let wrong: Vec<_> = taken.iter().filter(|name| subjects.get(*name) != Some(&1)).collect();
        assert!(wrong.is_empty(), "through n{node}: {wrong:?} of {} are not there once: {subjects:?}", taken.len());
        // The last one may have been stored without its sender's hearing of it.
        assert!(subjects.values().all(|count| *count == 1), "through n{node}: {subjects:?}");
    }

    // A node's whole folder is gone: it enters anew, and what it had is read through it.
    let before = cluster.read(1);
    cluster.up = cluster.up.kill_all_change_and_start(|dir| std::fs::remove_dir_all(dir.join("n3")).unwrap());
    for node in [3, 1] {
        assert_eq!(cluster.read(node), before, "through n{node}, after n3's folder was emptied");
    }

    // What one session deletes is gone everywhere.
    ask(&["empty", &cluster.pop3[0], ann, password]).unwrap();
    for node in 1..=3 {
        assert_eq!(cluster.read(node), BTreeMap::new(), "through n{node}");
    }
    // And stays so when it is sent again.
    assert_eq!(cluster.send(2, "first", &["ANN+news@mail.test"]), "taken");
    assert_eq!(cluster.read(3), BTreeMap::new());
}

/// A message of 12 MiB is read whole through another node when one that has it was killed; one of 60 MiB is refused, whether its size was
/// said before or not, and takes no memory that grows with it.
/// With a certificate of its own, which its nodes hear of some seconds after it began.
fn the_demo_speaks_tls(cluster: &Cluster, bob: &str, password: &str) {
    let pop3s = cluster.up.ready["nodes"][2]["pop3s"].as_str().unwrap_or_else(|| panic!("{}", cluster.up.ready));
    let words = ["secure", &cluster.smtp[1], &cluster.pop3[0], pop3s, bob, password, "by TLS"];
    let (counts, _) = wait_for("all doors speak TLS", WITHIN, || ask(&words));
    assert_eq!((&counts[0], counts[0].as_u64() >= Some(1)), (&counts[1], true), "{counts}");
}

fn what_has_attachments_is_taken_and_read_whole(cluster: &Cluster, ann: &str, password: &str) {
    let Cluster { up, smtp, pop3, .. } = cluster;
    let before: Vec<u64> = held(up);
    let sent = ask(&["large", &smtp[0], "large", ann, "12"]).unwrap();
    assert_eq!(sent[0], 250, "{sent}");
    let of_holder = || {
        let now = held(up);
        let grew = now.iter().zip(&before).position(|(now, before)| now.saturating_sub(*before) >= 12 << 20);
        grew.ok_or_else(|| format!("no node shows it: {before:?} and then {now:?}"))
    };
    let (holder, _) = wait_for("a node says that it has the large message", WITHIN, of_holder);
    procs::kill(up.node_pid(holder as u8 + 1), Signal::KILL);
    let other = (holder + 1) % 3;
    let look = || ask(&["digest", &pop3[other], ann, password, "large"]);
    let (read, _) = wait_for("the large message is read through another node", WITHIN, look);
    assert_eq!(read, serde_json::json!([sent[1]]), "its bytes are what was sent, and it is there once");

    for words in ["large", "large-unsaid"] {
        assert_eq!(ask(&[words, &smtp[other], "too-large", ann, "60"]).unwrap()[0], 552, "{words}");
    }
    let view = up.status(other as u8 + 1).unwrap();
    let name = format!("n{}", other + 1);
    let clone = up::clones(&view).into_iter().find(|clone| clone["node"] == name.as_str());
    let pid = clone.and_then(|clone| clone["pid"].as_u64()).unwrap_or_else(|| panic!("{view}"));
    let peak = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak =
        peak.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.is_some_and(|kib| kib < 200 << 10), "{peak:?} KiB");
    assert_eq!(cluster.read(other + 1).get("too-large"), None);
}

/// Bytes of objects of each node; 0 of one that does not say.
fn held(up: &Up) -> Vec<u64> {
    let bytes = |node: u8| {
        let text = http::get(up.at(node).api, "/metrics").ok()?.text();
        text.lines().find_map(|line| line.strip_prefix("coppice_object_bytes ")?.trim().parse::<u64>().ok())
    };
    (1..=3).map(|node| bytes(node).unwrap_or(0)).collect()
}

/// Failed logins are counted over all nodes: ten at each of two are too many at the third.
fn who_guesses_goes_round_in_vain(cluster: &Cluster) {
    let [_, (bob, password)] = cluster.accounts.as_slice() else { panic!("{:?}", cluster.accounts) };
    let servers: Vec<&str> = cluster.pop3[..2].iter().map(String::as_str).collect();
    let told = ask(&[&["guess", bob, "20"], &servers[..]].concat()).unwrap();
    assert!(told.as_array().unwrap().iter().all(|told| told.as_str().unwrap().starts_with("-ERR ")), "{told}");
    let login = || ask(&["login", &cluster.pop3[2], bob, password]).unwrap();
    // A count may be two seconds old there.
    e2e::soon("bob is not let in at n3, with the right password", 10, || {
        login() == "-ERR [SYS/TEMP] too many failed logins: come again later"
    });
}

/// Accounts and aliases are changed at one node and known at the others.
fn who_is_refused_and_let_in(cluster: &Cluster, ann: &str, password: &str, bob: &str) {
    let Cluster { up, pop3, .. } = cluster;
    let refused = |code: u16| serde_json::json!([code]);
    let login =
        |node: usize, address: &str, password: &str| ask(&["login", &pop3[node - 1], address, password]).unwrap();
    assert_eq!(cluster.send(2, "no", &["nobody@mail.test"]), refused(550));
    assert_eq!(cluster.send(3, "no", &["ann@elsewhere.test"]), refused(550));
    assert_eq!(cluster.send(3, "no", &["ann%elsewhere.test@mail.test"]), refused(550));
    let wrong = "-ERR [AUTH] name or password is wrong";
    assert_eq!(login(1, ann, "wrong"), wrong);
    assert_eq!(login(1, "nobody@mail.test", password), wrong);

    let added = up.coppice(&["mail", "user", "add", "eve@mail.test", "--messages-max", "1"]).good();
    assert!(up.coppice(&["mail", "user", "add", "eve@mail.test"]).wrong().contains("is there already"));
    up.coppice(&["mail", "alias", "add", "all@mail.test", "eve@mail.test", bob]).good();
    assert!(up.coppice(&["mail", "alias", "add", "x@mail.test", "eve@far.test"]).wrong().contains("is not here"));
    let soon = |what: &str, look: &dyn Fn() -> bool| e2e::soon(what, 10, look);
    soon("the alias is known at n3", &|| cluster.send(3, "to-all", &["all@mail.test"]) == "taken");
    soon("eve is let in at n2", &|| login(2, "eve@mail.test", added.trim()) == "in");
    soon("eve's mailbox is full", &|| cluster.send(2, "more", &["eve@mail.test"]) == refused(452));
    let listed = up.coppice(&["mail", "user", "list"]).good();
    assert!(listed.contains("eve@mail.test  at most 1 messages\n"), "{listed}");
    let mut stays = client();
    let mut stays =
        stays.args(["stays", &pop3[2], "eve@mail.test", added.trim()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(stays.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(told.next().as_deref(), Some("\"in\""), "eve's session at n3 began");
    up.coppice(&["mail", "user", "disable", "eve@mail.test"]).good();
    assert_eq!(told.next().as_deref(), Some("\"-ERR [AUTH] the account was changed: log in again\""));
    stays.wait().unwrap();
    soon("eve gets no mail at n1", &|| cluster.send(1, "more", &["eve@mail.test"]) == refused(550));
    assert_eq!(login(1, "eve@mail.test", added.trim()), wrong);
    up.coppice(&["mail", "user", "remove", "eve@mail.test"]).good();
    who_guesses_goes_round_in_vain(cluster);
}
