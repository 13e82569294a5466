//! Certificates of the cluster: set at one node, shown by others to openssl's client, kept over the death of all nodes, taken away.

use std::process::Command;
use std::time::Duration;

use e2e::tools::{self, run};
use e2e::{Up, at, http, skip, wait_for};

const SOON: Duration = Duration::from_secs(20);

/// The names in the certificate that a node's HTTPS door shows who asks for this one.
fn shown(node: u8, port: u16, name: &str) -> Result<String, String> {
    let line = format!(
        "openssl s_client -connect 127.0.0.{node}:{port} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -subject \
         -ext subjectAltName"
    );
    let said = run(Command::new("sh").args(["-c", &line]), SOON);
    if said.out.contains("subject") { Ok(said.out) } else { Err(format!("{said:?}")) }
}

fn shows(node: u8, port: u16, name: &str, expect: &str) -> Result<(), String> {
    let told = shown(node, port, name)?;
    if told.contains(expect) { Ok(()) } else { Err(told) }
}

const WEB: &str = r#"
[service.web]
run = ["python3", "-c", "import http.server as h, os; H = type('H', (h.BaseHTTPRequestHandler,), dict(do_GET=lambda s: (s.send_response(200), s.send_header('Content-Length', '2'), s.end_headers(), s.wfile.write(b'ok')), log_message=lambda *a: None)); h.ThreadingHTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()"]
clones = 1
http = { host = "*" }
https = "redirect"
hsts = "365d"
"#;

/// Plain HTTP leads to HTTPS for a host that has a certificate, and is told so at the port that speaks it.
fn leads_to_https(up: &Up, https: u16) {
    up.apply("web.toml", WEB).good();
    let plain = |host: &str, path: &str| {
        let reply = http::request(up.at(2).http, "GET", path, &[("Host", host)], b"").map_err(|e| e.to_string())?;
        let place = reply.header("location").unwrap_or_default().to_owned();
        Ok::<_, String>((reply.status, place))
    };
    wait_for("the service answers", SOON, || match plain("other.example", "/")? {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let place = format!("https://shop.example:{https}/a?b=c");
    assert_eq!(plain("shop.example:1", "/a?b=c"), Ok((308, place.clone())));
    // Port 80 is not this door's: whoever maps it maps 443, too.
    assert_eq!(plain("shop.example", "/a?b=c"), Ok((308, "https://shop.example/a?b=c".to_owned())));
    let to = format!("shop.example:{https}:127.0.0.2");
    let said = run(Command::new("curl").args(["-sik", "--max-time", "10", "--resolve", &to, &place]), SOON);
    let said = said.good().to_lowercase();
    assert!(said.contains("strict-transport-security: max-age=31536000") && said.ends_with("ok"), "{said}");
    let reply = http::get((at::host(2), https).into(), "/").unwrap();
    assert!(reply.status == 400 && reply.text().contains("this port speaks HTTPS"), "{reply:?}");
}

#[test]
fn a_certificate_that_is_set_at_one_node_is_shown_by_all_until_it_is_taken_away() {
    let _turn = e2e::beside();
    if !tools::has("openssl") || !tools::has("curl") {
        return skip("openssl or curl is not installed");
    }
    let https = at::free_port(2);
    let up = Up::start(2, &["--no-demo", "--https-port", &https.to_string()]);
    let [made, other] = ["made", "other"].map(|name| up.dir.join(name));
    for (dir, host) in [(&made, "shop.example"), (&other, "bank.example")] {
        std::fs::create_dir_all(dir).unwrap();
        tools::certificate(dir, host);
    }
    let [cert, key, strange] =
        [made.join("a.crt"), made.join("a.key"), other.join("a.key")].map(|file| file.display().to_string());
    let nothing = "no certificate for this name";
    shows(2, https, "shop.example", nothing).expect("a door without any certificate has one that it signed itself");
    let wrong = up.coppice(&["certificate", "set", "shop", "--cert", &cert, "--key", &strange]).wrong();
    assert!(wrong.contains("is not the key of the certificate"), "{wrong}");

    // By standard input, at the first node; the second one shows it.
    let line =
        format!("cat {cert} {key} | \"$0\" certificate set shop --cert - --api {} --dir {:?}", up.at(1).api, up.dir);
    let said = run(Command::new("sh").args(["-c", &line]).arg(e2e::program::coppice()), SOON).good();
    assert!(said.contains("+ certificate shop for shop.example"), "{said}");
    wait_for("the other node shows it", SOON, || shows(2, https, "shop.example", "DNS:shop.example"));
    shows(1, https, "SHOP.example", "DNS:shop.example").unwrap();
    shows(2, https, "bank.example", nothing).unwrap();
    leads_to_https(&up, https);
    let again = up.coppice(&["certificate", "set", "shop", "--cert", &cert, "--key", &key]).good();
    assert!(again.contains("nothing to change"), "{again}");

    // Nothing that is printed or written has its key, in clear or as the root group keeps bytes.
    let pem = std::fs::read_to_string(&key).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    for words in [&["export"][..], &["status"], &["status", "--json"], &["events"], &["certificate", "list", "--json"]]
    {
        let said = up.coppice(words).good();
        assert!(!said.contains(secret) && !said.contains("PRIVATE"), "{words:?}: {said}");
    }
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    for part in [secret, &hex] {
        let found =
            Command::new("grep").args(["-rqaF", "--", part]).args([up.dir.join("n1"), up.dir.join("n2")]).status();
        assert_eq!(found.unwrap().code(), Some(1), "in clear on a disk");
    }
    let list = up.coppice(&["certificate", "list"]).good();
    assert!(list.starts_with("shop ") && list.contains("(in 4") && list.contains("for shop.example"), "{list}");
    assert!(up.coppice(&["status"]).good().contains("certificate shop "));
    let metrics = http::get(up.at(2).api, "/metrics").unwrap().text();
    assert!(metrics.contains("coppice_certificate_ends_seconds{name=\"shop\"} 1"), "{metrics}");
    let told = up.coppice(&["events"]).good();
    assert!(told.contains("ends in less than 3 days"), "it lives two days: {told}");

    let up = up.kill_all_and_start();
    wait_for("all were dead, and have it", SOON, || {
        shows(1, https, "shop.example", "DNS:shop.example").and(shows(2, https, "shop.example", "DNS:shop.example"))
    });
    let gone = up.coppice(&["certificate", "remove", "shop"]).good();
    assert!(gone.contains("- certificate shop"), "{gone}");
    wait_for("it is gone", SOON, || shows(2, https, "shop.example", nothing));
    assert!(up.coppice(&["certificate", "remove", "shop"]).wrong().contains("there are: none"));
}
