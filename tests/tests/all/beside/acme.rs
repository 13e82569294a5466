//! A certificate that comes by itself from pebble, an ACME server that is not ours, though the node that asks is killed in mid-order; it is
//! renewed; a directory that is not there is said; and where port 80 leads nowhere it comes by the HTTPS port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use e2e::procs::{self, Signal};
use e2e::program::repository;
use e2e::tools::{self, run};
use e2e::{Up, at, skip, wait_for};

const SOON: Duration = Duration::from_secs(60);
/// Who builds pebble for the first time waits for all of it.
const BUILD_WITHIN: Duration = Duration::from_secs(240);
/// Of pebble's certificates, seconds: one is renewed when two thirds are over.
const LIFE_S: u32 = 15;

/// Names for pebble: all of them are one node's, as soon as it is said which.
struct Names {
    port: u16,
    node: Arc<AtomicU8>,
    asked: Arc<AtomicU32>,
}

impl Names {
    fn serve() -> Names {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (node, asked) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU32::new(0)));
        let names = Names { port, node: Arc::clone(&node), asked: Arc::clone(&asked) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (node, asked) = (Arc::clone(&node), Arc::clone(&asked));
                std::thread::spawn(move || while answer(&stream, &node, &asked).is_some() {});
            }
        });
        names
    }
}

/// One question of a connection (RFC 1035 4.2.2).
fn answer(mut stream: &TcpStream, node: &AtomicU8, asked: &AtomicU32) -> Option<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut question).ok()?;
    let name = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)?;
    let is_a = question.get(name + 1..name + 3)? == [0, 1];
    let mut said = [&question[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]].concat();
    said.extend(question.get(12..name + 5)?);
    if is_a {
        asked.fetch_add(1, SeqCst);
        while node.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        said.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, node.load(SeqCst)]);
    }
    stream.write_all(&(said.len() as u16).to_be_bytes()).ok()?;
    stream.write_all(&said).ok()
}

struct Pebble(Child);

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds it, if it can be had.
fn build(dir: &Path) -> Result<(), String> {
    let folder = repository().join("tests/pebble");
    let go = |args: &[&str], within| run(Command::new("go").args(args).current_dir(&folder), within);
    if !tools::has("openssl") || !tools::has("go") {
        return Err("openssl or go is not installed".into());
    }
    if !go(&["mod", "download"], BUILD_WITHIN).is_good() {
        return Err("pebble cannot be had from the Go module proxy".into());
    }
    let program = dir.join("pebble").display().to_string();
    let said = go(&["build", "-o", &program, "github.com/letsencrypt/pebble/v2/cmd/pebble"], BUILD_WITHIN);
    said.is_good().then_some(()).ok_or(format!("pebble cannot be built: {}", said.err))
}

/// Runs it: where its directory is. `ports`: where it looks whether names are there, over HTTP and over TLS.
fn pebble(dir: &Path, ports: [u16; 2], names: &Names) -> (Pebble, String) {
    let line = "set -e; new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'; \
         openssl req -x509 $new -days 2 -subj /CN=toy -keyout ca.key -out ca.pem; \
         openssl req $new -subj /CN=x -keyout d.key -out d.csr; echo subjectAltName=IP:127.0.0.1 > d.ext; \
         openssl x509 -req -in d.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile d.ext -out d.pem";
    if !dir.join("ca.pem").exists() {
        run(Command::new("sh").args(["-c", line]).current_dir(dir), SOON).good();
    }
    let ([listen, manage], [http, tls]) = ([at::free_port(1), at::free_port(1)], ports);
    let config = serde_json::json!({"pebble": {
        "listenAddress": format!("127.0.0.1:{listen}"), "managementListenAddress": format!("127.0.0.1:{manage}"),
        "certificate": dir.join("d.pem"), "privateKey": dir.join("d.key"), "httpPort": http, "tlsPort": tls,
        "ocspResponderURL": "", "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
        "profiles": {"default": {"description": "short", "validityPeriod": LIFE_S}},
    }});
    let file = dir.join(format!("pebble-{listen}.json"));
    std::fs::write(&file, config.to_string()).unwrap();
    let log = std::fs::File::create(dir.join(format!("pebble-{listen}.log"))).unwrap();
    let mut command = Command::new(dir.join("pebble"));
    command.arg("-config").arg(&file).args(["-strict", "-dnsserver", &format!("127.0.0.1:{}", names.port)]);
    command.env("PEBBLE_VA_NOSLEEP", "1").stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let child = Pebble(command.spawn().unwrap());
    wait_for("pebble listens", SOON, || TcpStream::connect(("127.0.0.1", listen)).map(drop).map_err(|e| e.to_string()));
    (child, format!("https://127.0.0.1:{listen}/dir"))
}

/// The certificate of this name, as a node shows it.
fn kept(up: &Up, node: u8, name: &str) -> Result<serde_json::Value, String> {
    let view = up.status(node)?;
    let all = view["certificates"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|of| of["name"] == name).ok_or_else(|| view["certificates"].to_string())
}

#[test]
fn a_certificate_comes_by_itself_though_the_node_that_asks_is_killed_and_is_renewed() {
    let _turn = e2e::beside();
    let dir = std::env::temp_dir().join(format!("coppice-e2e-acme-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    if let Err(why) = build(&dir) {
        return skip(&why);
    }
    let https = at::free_port(3);
    let up = Up::start(3, &["--no-demo", "--https-port", &https.to_string()]);
    let names = Names::serve();
    let (first_pebble, directory) = pebble(&dir, [up.at(1).http.port(), at::free_port(1)], &names);
    let ca = std::fs::read_to_string(dir.join("ca.pem")).unwrap();
    let declared = |name: &str, directory: &str| {
        format!(
            "[certificate.{name}]\nnames = [\"{name}.example\"]\ndirectory = \"{directory}\"\ncontact = [\"mailto:a@{name}.example\"]\n\
             agree = true\nca = '''\n{ca}'''\n"
        )
    };
    let said = up.apply("shop.toml", &declared("shop", &directory)).good();
    assert!(said.contains("+ certificate shop"), "{said}");

    // Pebble is about to look whether the name leads to us, so that the order is under way: who asked for it dies.
    wait_for("the name is asked for", SOON, || match names.asked.load(SeqCst) {
        0 => Err(up.coppice(&["certificate", "list"]).good()),
        _ => Ok(()),
    });
    let leader = up.status(1).unwrap()["root"]["leader"].as_str().unwrap().to_owned();
    let dead: u8 = leader.trim_start_matches('n').parse().unwrap();
    procs::kill(up.node_pid(dead), Signal::KILL);
    let other = if dead == 1 { 2 } else { 1 };
    names.node.store(other, SeqCst);
    let shown = |node: u8| {
        let line = format!(
            "openssl s_client -connect 127.0.0.{node}:{https} -servername shop.example </dev/null 2>/dev/null | openssl x509 -noout -issuer \
             -ext subjectAltName"
        );
        let said = run(Command::new("sh").args(["-c", &line]), SOON);
        if said.out.contains("Pebble") && said.out.contains("DNS:shop.example") {
            Ok(())
        } else {
            Err(format!("{said:?}\n{}", up.coppice(&["certificate", "list"]).out))
        }
    };
    wait_for("another node ends the order, and all show the certificate", SOON, || shown(other).and(shown(3)));
    let first = kept(&up, other, "shop").unwrap();
    assert_eq!(
        (&first["from"], first["issuer"].as_str().unwrap().contains("Pebble")),
        (&directory.clone().into(), true)
    );
    let list = up.coppice(&["certificate", "list"]).good();
    assert!(list.contains("comes by itself (from https://127.0.0.1:"), "{list}");
    let key = dir.join("d.key").display().to_string();
    let set =
        up.coppice(&["certificate", "set", "shop", "--cert", &dir.join("d.pem").display().to_string(), "--key", &key]);
    let why = set.wrong();
    assert!(why.contains("subjectAltName"), "{why}");
    assert!(up.coppice(&["certificate", "remove", "shop"]).wrong().contains("take [certificate.shop] out"));
    let export = up.coppice(&["export"]).good();
    assert!(export.contains("[certificate.shop]") && !export.contains("PRIVATE"), "{export}");

    // Plain HTTP for that host is led to it, and for others is not.
    let plain = |host: &str| {
        let said = e2e::http::request(up.at(other).http, "GET", "/a?b", &[("Host", host)], b"").unwrap();
        (said.status, said.header("location").map(str::to_owned))
    };
    assert_eq!(plain("shop.example:1"), (308, Some(format!("https://shop.example:{https}/a?b"))));
    assert_eq!(plain("shop.example"), (308, Some("https://shop.example/a?b".to_owned())));
    assert_eq!(plain("other.example").0, 404);

    // Beside it one that nobody gives: in words, and not again at once.
    let nobody = format!("https://127.0.0.1:{}/dir", at::free_port(1));
    up.apply("bank.toml", &declared("bank", &nobody)).good();
    wait_for("a directory that is not there is said", SOON, || {
        let bank = kept(&up, other, "bank")?;
        let why = bank["why"].as_str().unwrap_or_default();
        if why.contains("cannot reach 127.0.0.1:") { Ok(()) } else { Err(bank.to_string()) }
    });
    let page = up.coppice(&["status"]).good();
    assert!(page.contains("cannot be had: cannot reach 127.0.0.1:"), "{page}");
    wait_for("it is renewed", SOON, || {
        let again = kept(&up, other, "shop")?;
        if again["ends_at_ms"].as_u64() > first["ends_at_ms"].as_u64() { Ok(()) } else { Err(again.to_string()) }
    });
    let events = up.coppice(&["events"]).good();
    let times = |text: &str| events.matches(text).count();
    assert_eq!(times("it cannot be had: cannot reach"), 1, "not in a loop: {events}");
    assert!(times("the certificate for shop.example has come") >= 2, "{events}");
    // Whoever mends what was declared waits for none of its failures; and where nothing is at port 80, port 443 will do.
    let (second_pebble, over_tls) = pebble(&dir, [at::free_port(1), https], &names);
    up.apply("bank.toml", &declared("bank", &over_tls)).good();
    wait_for("what is declared anew is asked for at once", SOON, || {
        let bank = kept(&up, other, "bank")?;
        if bank["issuer"].as_str().is_some_and(|by| by.contains("Pebble")) { Ok(()) } else { Err(bank.to_string()) }
    });
    drop((first_pebble, second_pebble));
    let gone = up.apply("shop.toml", "").good();
    assert!(gone.contains("- certificate shop"), "{gone}");
    wait_for("it went with what is declared", SOON, || match shown(other) {
        Err(_) => Ok(()),
        Ok(()) => Err("it is still shown".to_owned()),
    });
    let _ = std::fs::remove_dir_all(&dir);
}
