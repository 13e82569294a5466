//! A service with several TCP doors through three nodes: the parrot of examples/. Its clones are told who came at which door, end TLS
//! with the certificates of their node's folder, and when they are replaced no session is cut.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::at::{free_port, new_folder};
use e2e::http;
use e2e::tools::{self, has, run};
use e2e::{Up, program, skip, wait_for};

const SOON: Duration = Duration::from_secs(30);

/// A client that has heard the parrot's hello.
struct Session {
    stream: BufReader<TcpStream>,
    hello: String,
}

impl Session {
    fn open(at: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(at).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(SOON)).map_err(|e| e.to_string())?;
        let mut session = Self { stream: BufReader::new(stream), hello: String::new() };
        session.hello = session.line()?;
        if session.hello.starts_with("220 ") { Ok(session) } else { Err(format!("no hello: {:?}", session.hello)) }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line)
    }

    fn say(&mut self, text: &str) -> Result<String, String> {
        self.stream.get_mut().write_all(text.as_bytes()).map_err(|e| e.to_string())?;
        self.line()
    }
}

#[test]
fn one_port_of_a_clone_has_three_doors_and_no_session_is_cut_when_it_leaves() {
    let _turn = e2e::beside();
    if !has("openssl") {
        return skip("openssl is not installed");
    }
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    tools::certificate(&folder, "parrot.example");
    let https = free_port(3).to_string();
    let up = Up::start(3, &["--no-demo", "--tls-dir", &folder.display().to_string(), "--https-port", &https]);
    let ports: Vec<u16> = std::iter::repeat_with(|| free_port(3)).take(3).collect();
    let declaration = fs::read_to_string(program::repository().join("examples/parrot/coppice.toml")).unwrap();
    let declaration = declaration.replace("target/release/parrot", &program::example("parrot").display().to_string());
    let declaration = (0..3).fold(declaration, |text, n| text.replace(&format!("700{}", n + 1), &ports[n].to_string()));
    let said = up.apply("parrot.toml", &declaration).good();
    assert!(said.contains("! service parrot: private keys of all certificates"), "{said}");
    let at = |node: u8, door: usize| SocketAddr::new(up.at(node).http.ip(), ports[door]);
    let open = |node: u8, door: usize| {
        wait_for(&format!("door {door} of n{node} answers"), SOON, || Session::open(at(node, door))).0
    };

    for node in 1..=3 {
        for (door, name, answer) in [(0, "say", "honey\n"), (1, "shout", "HONEY\n")] {
            let mut session = open(node, door);
            let client = session.stream.get_ref().local_addr().unwrap();
            assert!(session.hello.starts_with(&format!("220 {client} at {name} of n")), "{}", session.hello);
            assert_eq!(session.say("honey\n").unwrap(), answer);
        }
        // Its TLS is the program's, and the certificate the folder's.
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", "parrot.example"]);
        client.args(["-servername", "parrot.example", "-CAfile"]).arg(folder.join("a.crt"));
        client.args(["-connect", &at(node, 2).to_string()]);
        let said = run(&mut client, SOON);
        assert!(said.out.contains(" at whisper of n"), "{said:?}");
    }

    // Shown, exported, and refused where it cannot be.
    let shown = up.coppice(&["status"]).good();
    let all = format!("tcp {} (say) tcp {} (shout) tcp {} (whisper)", ports[0], ports[1], ports[2]);
    assert!(shown.contains(&all), "{shown}");
    let exported = up.coppice(&["export"]).good();
    assert!(exported.contains("name = \"whisper\"") && exported.contains("certificates = true"), "{exported}");
    let other = format!("[service.other]\nrun = [\"x\"]\ntcp = {{ port = {} }}\n", ports[1]);
    let why = up.apply("other.toml", &other).wrong();
    assert!(why.contains("already belongs to service \"parrot\""), "{why}");
    let bearer = format!("Bearer {}", up.admin_token());
    let path = "/v1/services/parrot/certificates";
    let refused = http::request(up.at(1).api, "GET", path, &[("Authorization", &bearer)], b"").unwrap();
    assert_eq!((refused.status, refused.text().contains("PRIVATE")), (401, false));

    // All clones are replaced, one after the other, while sessions go on: half of them talk, half are silent.
    let sessions: Vec<_> = (0..24u8).map(|n| open(n % 3 + 1, usize::from(n % 2))).enumerate().collect();
    let users: Vec<_> = sessions
        .into_iter()
        .map(|(n, mut session)| {
            std::thread::spawn(move || {
                let mut heard = String::new();
                while heard != "421 come again\n" {
                    heard = if n % 4 < 2 { session.say("Honey\n") } else { session.line() }?;
                    if heard.is_empty() {
                        return Err(format!("session {n} was cut"));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            })
        })
        .collect();
    up.apply("parrot.toml", &format!("{declaration}env = {{ MOOD = \"new\" }}\n")).good();
    let mut fresh = 0;
    while users.iter().any(|user| !user.is_finished()) {
        let mut session = Session::open(at(fresh % 3 + 1, 0)).unwrap();
        let said = session.say("honey\n").unwrap();
        assert!(["honey\n", "421 come again\n"].contains(&said.as_str()), "{said}");
        fresh = fresh.wrapping_add(1);
        std::thread::sleep(Duration::from_millis(20));
    }
    for user in users {
        user.join().unwrap().unwrap();
    }
    a_wrong_pair_is_told(&up, &folder);
}

/// Case E3: what is wrong with one pair of files is told by an event and by figures; a test of `edge/src/tls.rs` has what the others do.
fn a_wrong_pair_is_told(up: &Up, folder: &Path) {
    let figure = |name: &str| {
        let text = http::get(up.at(1).api, "/metrics").unwrap().text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("{text}"))
    };
    assert!(figure("coppice_certificate_files_end_seconds ") > 1_700_000_000);
    fs::write(folder.join("b.crt"), "nothing").unwrap();
    wait_for("the wrong pair is told", SOON, || {
        let said = up.coppice(&["events"]).good();
        let (told, wrong) =
            (said.contains("a certificate of its files is not taken"), figure("coppice_certificate_files_wrong "));
        if told && said.contains("b.key") && wrong == 1 { Ok(()) } else { Err(format!("{wrong}: {said}")) }
    });
}
