//! Partitions and HTTPS with the real program: what `apply`, `route explain` and curl say.

use std::process::Command;
use std::time::Duration;

use e2e::tools::{self, Said};
use e2e::{Ports, Up, wait_for};
use serde_json::Value;

const SHORT: Duration = Duration::from_secs(20);

/// A service that answers in Python, and the partitions of the guide.
const SHOP: &str = r#"
[service.web]
run = ["python3", "-c", "import http.server as h, os; C = os.environ['COPPICE_CLONE'].encode(); H = type('H', (h.BaseHTTPRequestHandler,), dict(do_GET=lambda s: (s.send_response(200), s.send_header('Content-Length', str(len(C))), s.send_header('X-Proto', s.headers['X-Forwarded-Proto']), s.end_headers(), s.wfile.write(C)), log_message=lambda *a: None)); h.ThreadingHTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()"]
clones = 4
http = { host = "*", path = "/" }

[[service.web.partition]]
name = "images"
path_suffix = ".jpg"
affinity = "hash:path"
share = "50%"

[[service.web.partition]]
name = "visitors"
header = [{ name = "x-visitor" }]
affinity = "sticky"

[[service.web.partition]]
name = "pay"
path = "/pay"
"#;

fn curl(args: &[&str]) -> Said {
    tools::run(Command::new("curl").args(["-s", "-k", "--max-time", "10"]).args(args), SHORT)
}

fn serving(up: &Up, clones: usize) {
    wait_for("all clones serve", SHORT, || {
        let view = up.status(1)?;
        let all = view["services"].as_array().cloned().unwrap_or_default();
        let of = all.iter().flat_map(|s| s["clones"].as_array().cloned().unwrap_or_default());
        let serving = of.filter(|c| c["state"] == "serving").count();
        if serving == clones { Ok(()) } else { Err(format!("{serving} of {clones}")) }
    });
}

#[test]
fn partitions_https_and_a_new_certificate() {
    let _turn = e2e::beside();
    if !tools::has("openssl") || !tools::has("curl") {
        return e2e::skip("openssl or curl is not installed");
    }
    let tls = std::env::temp_dir().join(format!("coppice-e2e-tls-{}", std::process::id()));
    std::fs::create_dir_all(&tls).unwrap();
    tools::certificate(&tls, "old.example");
    let https = Ports::free(2).http;
    let dir = tls.display().to_string();
    let up = Up::start(2, &["--no-demo", "--tls-dir", &dir, "--https-port", &https.to_string()]);

    let wrong = up.apply("web.toml", &SHOP.replace("\"hash:path\"", "\"hash\"")).wrong();
    assert!(wrong.contains("line 10") && wrong.contains("\"hash:\" and one of"), "{wrong}");
    let wrong = up.apply("web.toml", &SHOP.replace("\".jpg\"", "\"\"")).wrong();
    assert!(wrong.contains("web.toml:9") && wrong.contains("leave it out"), "{wrong}");
    up.apply("web.toml", SHOP).good();
    serving(&up, 4);

    // The same clone for one path, through any node, and only reserved ones; explain knows which.
    let explain = |url: &str, more: &[&str]| -> Value {
        let args = [&["route", "explain", url, "--json"], more].concat();
        serde_json::from_str(&up.coppice(&args).good()).unwrap()
    };
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..12 {
        let path = format!("/{i}.jpg");
        let told = explain(&format!("http://x{path}"), &[]);
        assert_eq!((&told["service"], &told["partition"]), (&"web".into(), &"images".into()), "{told}");
        for node in 1..=2 {
            let got = curl(&[&format!("http://{}{path}", up.at(node).http)]).good();
            assert_eq!(told["target"], got.as_str(), "{told}");
            seen.insert(got);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["web/0", "web/1"]);
    let told = explain("http://x/", &["--header", "x-visitor: 1"]);
    assert_eq!(told["before"][0]["why_not"], "path does not end in \".jpg\"", "{told}");
    // The least loaded comes first.
    let mut clones: Vec<_> = told["clones"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    clones.sort_unstable();
    assert_eq!(clones, ["web/2", "web/3"], "{told}");
    let page = up.coppice(&["route", "explain", "x/"]).good();
    assert!(page.contains("not web, partition visitors: header x-visitor is not there"), "{page}");
    assert!(page.contains("goes to web, its rest"), "{page}");

    // A path that programs read in several ways: the same for each protocol, and `explain` knows.
    for (path, status) in
        [("/pay", 200), ("/p%61y/a%2fb", 200), ("/a/../b", 200), ("/pay/%2E%2e/a", 400), ("//pay", 400)]
    {
        let mut told = vec![explain(&format!("http://x{path}"), &[])["refused"].as_u64().unwrap_or(200)];
        let doors =
            [format!("http://{}{path}", up.at(1).http), format!("https://{}:{https}{path}", up.at(1).http.ip())];
        for (door, version) in [(&doors[0], "--http1.1"), (&doors[1], "--http1.1"), (&doors[1], "--http2")] {
            let said = curl(&["--path-as-is", version, "-o", "/dev/null", "-w", "%{http_code}", door]).good();
            told.push(said.parse().unwrap());
        }
        assert_eq!(told, [status; 4], "{path}");
    }

    // HTTP/2, the same visitor at the same clone over another node.
    let url = |node: u8| format!("https://{}:{https}/", up.at(node).http.ip());
    let first = curl(&["--http2", "-i", "-H", "x-visitor: 1", &url(1)]).good();
    assert!(first.starts_with("HTTP/2 200") && first.contains("x-proto: https"), "{first}");
    let cookie = first.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect(&first);
    assert!(cookie.contains("HttpOnly") && cookie.contains("Secure"), "{cookie}");
    let (cookie, clone) = (cookie.split(';').next().unwrap(), first.lines().last().unwrap());
    for _ in 0..6 {
        let again = curl(&["--http2", "-H", "x-visitor: 1", "-b", cookie, &url(2)]).good();
        assert_eq!(again, clone);
    }
    let old = curl(&["--http1.1", "-i", &url(1)]).good();
    assert!(old.starts_with("HTTP/1.1 200"), "{old}");

    // A key that does not fit changes nothing; then a whole pair does.
    let shown = |node: u8| curl(&["-v", "--http2", &url(node)]).err;
    let subject = |name: &str| {
        let at = format!("{}:{https}", up.at(2).http.ip());
        let script =
            format!("openssl s_client -connect {at} </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName");
        let text = tools::run(Command::new("sh").args(["-c", &script]), SHORT).out;
        if text.contains(name) { Ok(()) } else { Err(text) }
    };
    subject("old.example").unwrap();
    let key = std::fs::read(tls.join("a.key")).unwrap();
    tools::certificate(&tls, "new.example");
    let fresh = std::fs::read(tls.join("a.key")).unwrap();
    std::fs::write(tls.join("a.key"), key).unwrap();
    assert!(shown(2).contains("SSL connection"), "it goes on");
    std::fs::write(tls.join("a.key"), fresh).unwrap();
    wait_for("the new certificate is shown", SHORT, || subject("new.example"));
    let _ = std::fs::remove_dir_all(&tls);
}

#[test]
fn a_folder_without_certificates_is_told_before_anything_starts() {
    let _turn = e2e::beside();
    let empty = std::env::temp_dir().join(format!("coppice-e2e-tls-none-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let args = ["up", "--tls-dir", &empty.display().to_string()];
    let told = tools::run(Command::new(e2e::program::coppice()).args(args), SHORT).wrong();
    assert!(told.contains("NAME.crt and NAME.key"), "{told}");
    let _ = std::fs::remove_dir_all(&empty);
}
