//! A service in the catalogue, of which one clone is hopelessly slow: who asks two never waits for it; its description is told by a node
//! that runs none of it; and who listens hears at once that a clone died and that another was born.

use std::time::{Duration, Instant};

use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::up::clones;
use e2e::{Up, http, wait_for};
use serde_json::Value;

const WELL_WITHIN: Duration = Duration::from_secs(60);
/// What the slow clone takes: half of these requests would wait so long for it.
const SLOW_S: u64 = 30;
const REQUESTS: usize = 21;

const DECLARATION: &str = r#"
[service.app]
run = ["python3", "app.py"]
clones = 2
ask = 2
openapi = "api/openapi.json"
http = { host = "*", path = "/app" }
"#;

const PROGRAM: &str = r#"
import http.server, os, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if os.environ["COPPICE_CLONE"] == "app/0":
            time.sleep(SLOW)
        said = os.environ["COPPICE_CLONE"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *said):
        pass

http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"#;

fn heard(listener: &mut Resp) -> Value {
    let (word, _) = wait_for("something is heard", WELL_WITHIN, || listener.hear());
    match word {
        Word::List(parts) => match &parts[..] {
            [_, _, Word::Bulk(text)] => serde_json::from_str(text).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_clones_the_slow_one_is_not_waited_for_and_the_catalogue_tells_who_lives() {
    let _turn = e2e::beside();
    let up = Up::bare(2);
    let dir = up.dir.join("app");
    std::fs::create_dir_all(dir.join("api")).unwrap();
    std::fs::write(dir.join("coppice.toml"), DECLARATION).unwrap();
    std::fs::write(dir.join("app.py"), PROGRAM.replace("SLOW", &SLOW_S.to_string())).unwrap();
    std::fs::write(dir.join("api/openapi.json"), "{\"openapi\": \"3.1.0\"}").unwrap();
    up.apply("rooms.toml", "[namespace.rooms]\nclass = \"session\"\n").good();
    up.coppice(&["deploy", &dir.display().to_string()]).good();
    up.settle(WELL_WITHIN, 0);

    let mut took = Vec::new();
    for nth in 0..REQUESTS {
        let (began, at) = (Instant::now(), up.at(nth as u8 % 2 + 1).http);
        assert_eq!(http::get(at, "/app").unwrap().text(), "app/1");
        took.push(began.elapsed());
    }
    took.sort();
    assert!(took[REQUESTS / 2] < Duration::from_secs(SLOW_S / 3), "{took:?}");
    let metrics = http::get(up.at(1).api, "/metrics").unwrap().text();
    let counted = |name: &str| {
        let line =
            metrics.lines().find(|line| line.starts_with(&format!("coppice_partition_{name}_total{{service=\"app\"")));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).unwrap_or(0.0)
    };
    assert_eq!(counted("requests"), 11.0, "{metrics}");
    assert!(counted("asked_more") >= 10.0 && counted("cancelled") == counted("asked_more"), "{metrics}");

    for node in [1, 2] {
        let catalog = http::get(up.at(node).api, "/v1/catalog").unwrap().json().unwrap();
        let app = &catalog["services"][0];
        assert_eq!((&app["name"], app["clones"].as_array().unwrap().len()), (&"app".into(), 2), "{catalog}");
        assert_eq!(app["doors"].as_array().unwrap().len(), 2, "{catalog}");
        let described = http::get(up.at(node).api, app["openapi"].as_str().unwrap()).unwrap();
        assert_eq!((described.status, &*described.text()), (200, "{\"openapi\": \"3.1.0\"}"));
        assert_eq!(described.header("content-type"), Some("application/json"));
    }

    let token = up.token("rooms");
    let mut listeners: Vec<Resp> =
        [1, 2].into_iter().map(|node| Resp::open(up.at(node).resp, "rooms", &token).unwrap()).collect();
    for listener in &mut listeners {
        listener.ask(&["SUBSCRIBE", "__members__:app"]).unwrap();
    }
    let mut other = Resp::open(up.at(1).resp, "rooms", &token).unwrap();
    let refused = other.ask(&["PUBLISH", "__members__:app", "{}"]);
    assert!(format!("{refused:?}").contains("the nodes' own"), "{refused:?}");
    let all = clones(&up.status(1).unwrap());
    let victim = all.iter().find(|clone| clone["name"] == "app/1").unwrap();
    Proc::of(victim["pid"].as_u64().unwrap() as u32).unwrap().signal(Signal::KILL);
    for listener in &mut listeners {
        let death = heard(listener);
        assert_eq!((&death["event"], &death["life"]), (&"death".into(), &victim["life"]), "{death}");
        assert_eq!(
            (&death["clone"], &death["service"], &death["node"]),
            (&"app/1".into(), &"app".into(), &victim["node"])
        );
        let birth = heard(listener);
        assert_eq!((&birth["event"], &birth["clone"]), (&"birth".into(), &"app/1".into()), "{birth}");
        assert_ne!(birth["life"], victim["life"]);
    }
    wait_for("the new life serves", WELL_WITHIN, || {
        let catalog = http::get(up.at(2).api, "/v1/catalog").map_err(|e| e.to_string())?.json()?;
        let lives = catalog["services"][0]["clones"].as_array().cloned().unwrap_or_default();
        let serves = lives.iter().any(|clone| clone["clone"] == "app/1" && clone["state"] == "serving");
        if serves && lives.iter().all(|clone| clone["life"] != victim["life"]) {
            Ok(())
        } else {
            Err(catalog.to_string())
        }
    });
}
