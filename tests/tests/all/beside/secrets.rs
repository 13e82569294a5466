//! Secrets of a service reach its clones, are changed under them, and stand nowhere else; its requests stand in its access log.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::up::clones;
use e2e::{Up, http, program, tools, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);
const VAULT: &str = r#"
[service.vault]
run = ["python3", "-c", '''
import http.server, json, os
class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        named = {name: os.environ.get(name, "") for name in ("PIN", "DB", "CARTS")}
        file = open(os.environ["KEY_FILE"], "rb").read().hex()
        body = json.dumps({**named, "file": file, "id": self.headers["X-Request-Id"], "trace": self.headers["traceparent"]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())
http.server.HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Told).serve_forever()
''']
env = { DB = "db://u:${secret.PIN}@h", CARTS = "${carts.url}" }
namespaces = ["carts"]
secret_files = ["KEY"]
access_log = "json"
clones = 2
http = {}

[namespace.carts]
class = "session"
"#;

fn folder_has(dir: &Path, text: &str) -> bool {
    let found = Command::new("grep").args(["-rqaF", text]).arg(dir.join("n1")).arg(dir.join("n2")).status();
    found.unwrap().code() != Some(1)
}

#[test]
fn secrets_reach_the_clones_and_stand_nowhere_else_and_requests_are_logged() {
    let _turn = e2e::beside();
    let up = Up::bare(2);
    let set = |name: &str, value: &str, how: &str| {
        let mut shell = Command::new("sh");
        let line = format!(
            "printf '{value}' | \"$0\" secret set vault {name} {how} --api {} --dir {:?}",
            up.at(1).api,
            up.dir
        );
        shell.args(["-c", &line]).arg(program::coppice());
        tools::run(&mut shell, SOON)
    };
    assert!(set("PIN", "s3same-one\\n", "").good().contains("vault is not declared yet"));
    up.apply("vault.toml", VAULT).good();
    assert!(set("RAW", "\\377\\001", "").wrong().contains("declare secret_files = [\"RAW\"]"));
    wait_for("a clone waits for what is not set", SOON, || {
        let status = up.coppice(&["status", "--json"]).good();
        if status.contains("waits for secret KEY") { Ok(()) } else { Err(status) }
    });
    set("KEY", "\\377\\001", "").good();
    let told = |trace: &str| -> Result<(Value, http::Reply), String> {
        let fields = [("X-Request-Id", "order-7"), ("traceparent", trace)];
        let reply = http::request(up.at(2).http, "GET", "/a?b=1", &fields, b"").map_err(|e| e.to_string())?;
        Ok((reply.json()?, reply))
    };
    wait_for("a clone has all of them", SOON, || {
        let (said, reply) = told("00-abc-def-01")?;
        let (id, trace) = (said["id"].as_str(), said["trace"].as_str());
        let all = [&said["PIN"], &said["DB"], &said["file"]] == ["s3same-one", "db://u:s3same-one@h", "ff01"];
        let carts = said["CARTS"].as_str().is_some_and(|url| url.starts_with("redis://carts:"));
        assert_eq!(
            (id, trace, reply.header("x-request-id")),
            (Some("order-7"), Some("00-abc-def-01"), Some("order-7"))
        );
        if all && carts { Ok(()) } else { Err(said.to_string()) }
    });

    // Another value, without a restart of anything by hand; the same one again changes nothing.
    assert!(set("PIN", "s3same-two", "--raw").good().contains("~ secret vault PIN"));
    assert!(set("PIN", "s3same-two", "").good().contains("nothing to change"));
    wait_for("all clones have the new one", SOON, || {
        let all = (0..8).map(|_| Ok(told("x")?.0["PIN"] == "s3same-two")).collect::<Result<Vec<_>, String>>()?;
        let states: Vec<Value> = clones(&up.status(1)?).into_iter().map(|clone| clone["state"].clone()).collect();
        if all.iter().all(|is| *is) && states == ["serving", "serving"] {
            Ok(())
        } else {
            Err(format!("{all:?} {states:?}"))
        }
    });
    for shown in [&["export"][..], &["status", "--json"], &["events"], &["secret", "list", "vault"], &["logs", "vault"]]
    {
        let text = up.coppice(shown).good();
        assert!(!text.contains("s3same"), "{shown:?}: {text}");
    }
    assert!(up.coppice(&["secret", "list", "vault"]).good().contains("KEY  set "));
    assert!(!folder_has(&up.dir, "s3same"), "in clear on a disk");

    // Its access log has the requests, by any node, and other services have none.
    let log = up.coppice(&["logs", "--access", "vault", "--json", "-n", "10000"]).good();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first: Value = serde_json::from_str(lines[0]["line"].as_str().unwrap()).unwrap();
    assert!(lines.iter().all(|line| line["node"] == "n2"), "{log}");
    assert_eq!((&first["id"], &first["path"], &first["method"]), (&"order-7".into(), &"/a?b=1".into(), &"GET".into()));

    assert!(up.coppice(&["scale", "vault", "1"]).good().contains("clones 2 -> 1"));
    let gone = up.coppice(&["remove", "vault"]).good();
    assert!(gone.contains("- secret vault KEY") && gone.contains("namespaces stay"), "{gone}");
    assert!(up.coppice(&["secret", "list", "vault"]).wrong().contains("there is no service \"vault\""));
}
