//! A service that has an access log: each of its requests is a line, however it ended, and has an id that the clone and the client see.
//! One without a log is left as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Door, Toy, clone, field, soon};
use clones::spec::{HttpRoute, ServiceSpec};
use clones::{AccessLog, RouteService, Routes};
use edge::http::Config;
use host::access::{AccessLogs, log_name};
use host::logs::LogWish;
use tokio::io::AsyncWriteExt;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    Folder(std::env::temp_dir().join(format!("coppice-access-{name}-{}", std::process::id())))
}

async fn door(toy: &Toy, dir: &Path, form: AccessLog, say: impl FnOnce(&mut ServiceSpec)) -> Door {
    let mut spec = ServiceSpec::new(["shop"]);
    (spec.http, spec.access_log) = (Some(HttpRoute::default()), form);
    say(&mut spec);
    assert_eq!(spec.validate(), Ok(()));
    let routes = RouteService { clones: vec![clone(1, toy.addr, true)], ..RouteService::new("shop", &spec) };
    let access = Some(AccessLogs::start(dir.to_owned()).unwrap());
    Door::at(Arc::new(Routes::new(vec![routes])), Config { access, ..Config::default() }).await
}

/// The lines of the log once there are so many.
async fn lines(dir: &Path, count: usize) -> Vec<String> {
    let service = log_name("shop");
    let wish = LogWish { service, clone: None, version: None, after_us: 0, lines: 100, oldest: false };
    soon(async {
        loop {
            let found = host::logs::find(dir, &wish).unwrap().lines;
            if found.len() >= count {
                return found.into_iter().map(|line| line.line).collect();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Answers with ten bytes, of which those to `/half` come by half before the clone is gone.
async fn halves() -> Toy {
    Toy::start(|toy, mut stream, _| async move {
        loop {
            let request = toy.read_request(&mut stream).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await?;
            if request.starts_with("GET /half") {
                return Ok(());
            }
            stream.write_all(b"56789").await?;
        }
    })
    .await
}

#[tokio::test]
async fn each_request_is_a_line_however_it_ended_and_has_an_id() {
    let (dir, toy) = (folder("json"), halves().await);
    let door = door(&toy, &dir.0, AccessLog::Json, |spec| spec.body_max = Some(5)).await;
    let named = "GET /whole?a=1 HTTP/1.1\r\nHost: shop\r\nX-Request-Id: mine\r\ntraceparent: 00-ab-cd-01\r\nUser-Agent: t\r\n\r\n";
    let answer = door.ask(named).await;
    assert_eq!((answer.status, answer.field("x-request-id").as_deref()), (200, Some("mine")));
    let large = door.ask("POST /large HTTP/1.1\r\nHost: shop\r\nContent-Length: 6\r\n\r\nabcdef").await;
    let mut client = door.client().await;
    client.send("GET /half HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let half = client.head().await;
    let _ = client.until_end().await;

    let lines = lines(&dir.0, 3).await;
    let one = |path: &str| {
        let all = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let its: Vec<_> = all.filter(|line| line["path"] == path).collect();
        assert_eq!(its.len(), 1, "{path}: {lines:?}");
        its[0].clone()
    };
    let whole = one("/whole?a=1");
    assert_eq!((&whole["id"], &whole["traceparent"]), (&"mine".into(), &"00-ab-cd-01".into()));
    assert_eq!((&whole["status"], &whole["bytes"], &whole["whole"]), (&200.into(), &10.into(), &true.into()));
    assert_eq!((&whole["user_agent"], &whole["client"]), (&"t".into(), &"127.0.0.1".into()));
    assert!(whole["clone"].is_string() && whole["ms"].as_f64() >= whole["head_ms"].as_f64(), "{whole}");
    let refused = one("/large");
    assert_eq!((large.status, &refused["status"], &refused["clone"]), (413, &413.into(), &serde_json::Value::Null));
    let broken = one("/half");
    assert_eq!((&broken["status"], &broken["whole"]), (&200.into(), &false.into()), "{broken}");

    // Whoever brought no id got one, and the clone had the same.
    let seen = toy.seen();
    let at_clone = |path: &str| field(seen.iter().find(|head| head.contains(path)).unwrap(), "x-request-id");
    assert_eq!(at_clone("/whole").as_deref(), Some("mine"));
    let id = at_clone("/half").unwrap();
    assert_eq!((id.len(), field(&half, "x-request-id").as_ref(), broken["id"].as_str()), (32, Some(&id), Some(&*id)));
    assert!(field(seen.iter().find(|head| head.contains("/whole")).unwrap(), "traceparent").is_some());
}

#[tokio::test]
async fn the_common_form_is_a_line_too_and_without_a_log_nothing_is_added() {
    let (dir, toy) = (folder("common"), halves().await);
    let common = door(&toy, &dir.0, AccessLog::Common, |_| ()).await;
    common.ask("GET /a HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    let line = lines(&dir.0, 1).await.remove(0);
    assert!(line.starts_with("127.0.0.1 - - [") && line.ends_with("\"GET /a HTTP/1.1\" 200 10"), "{line}");

    let (none, toy) = (folder("off"), halves().await);
    let off = door(&toy, &none.0, AccessLog::Off, |_| ()).await;
    let answer = off.ask("GET /b HTTP/1.1\r\nHost: shop\r\nX-Request-Id: a b\r\n\r\n").await;
    assert_eq!((answer.status, answer.field("x-request-id")), (200, None));
    assert_eq!(field(&toy.seen()[0], "x-request-id").as_deref(), Some("a b"), "it is the program's");
    assert_eq!(std::fs::read_dir(&none.0).unwrap().count(), 0, "no file");
}
