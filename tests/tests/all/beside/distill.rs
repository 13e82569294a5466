//! `coppice up --demo transend`: a site, the same distilled, one picture by its URL; preferences that hold through every node; and
//! no page that fails when a distiller and then a node is killed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::{Up, wait_for};

const WELL_WITHIN: Duration = Duration::from_secs(60);
/// For so long pages are asked for after a death.
const WATCHED: Duration = Duration::from_secs(6);

fn address(up: &Up, name: &str) -> (SocketAddr, String) {
    let address = up.ready["addresses"][name].as_str().unwrap_or_else(|| panic!("no address {name} in {}", up.ready));
    let (at, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    (at.parse().unwrap(), format!("/{path}"))
}

fn good(at: SocketAddr, path: &str, cookie: &str) -> Reply {
    let reply =
        http::request(at, "GET", path, &[("Cookie", cookie)], b"").unwrap_or_else(|e| panic!("{at}{path}: {e}"));
    assert_eq!(reply.status, 200, "{at}{path}: {}", reply.text());
    reply
}

#[test]
fn a_site_is_distilled_as_its_reader_wants_it_whatever_dies() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--demo", "transend"]);
    let (at, original) = address(&up, "original");
    let (_, distilled) = address(&up, "distilled");
    let (_, image) = address(&up, "image");

    let plain = good(at, &original, "").text();
    assert!(plain.contains("<img src=\"photo/2.jpg\"") && !plain.contains("distill"), "{plain}");
    let photo = good(at, &format!("{original}photo/2.jpg"), "");
    let page = good(at, &distilled, "");
    let text = page.text();
    assert_eq!(page.header("vary"), Some("Cookie"));
    assert!(
        text.contains("<img src=\"/_distill/i/q40/photo/2.jpg\" srcset=\"/_distill/i/q40/photo/2.jpg 1024w\""),
        "{text}"
    );
    assert!(text.contains("href=\"/photo/2.jpg\">original</a>") && text.contains("id=\"distill-toolbar\""), "{text}");
    assert_eq!(good(at, "/photo/2.jpg", "").body, photo.body);
    let small = good(at, "/_distill/i/q40/photo/2.jpg", "");
    assert_eq!(small.header("content-type"), Some("image/jpeg"));
    assert_eq!(small.header("coppice-answer"), Some("exact"));
    assert!(small.body.len() * 2 < photo.body.len(), "{} of {}", small.body.len(), photo.body.len());
    let one = good(at, &image, "");
    assert!(one.body.len() * 10 < photo.body.len() && one.body.starts_with(&[0xff, 0xd8]), "{}", one.body.len());
    let tag = one.header("etag").unwrap().to_owned();
    assert_eq!(http::request(at, "GET", &image, &[("If-None-Match", &tag)], b"").unwrap().status, 304);
    let refused = http::get(at, "/insecure/pixelate:1/plain/origin://photos/photo/1.jpg").unwrap();
    assert!(refused.status == 400 && refused.text().contains("\"pixelate\" is not offered"), "{}", refused.text());
    let webp = http::request(at, "GET", "/_distill/i/q40/photo/2.jpg", &[("Accept", "image/webp")], b"").unwrap();
    assert_eq!(webp.header("content-type"), Some("image/webp"));
    assert!(webp.body.len() < small.body.len(), "{} of {}", webp.body.len(), small.body.len());
    // The ring of the demo, in base64 as a watermark.
    let mark = "wm:1:soea:0:0:0.5/wmu:b3JpZ2luOi8vcGhvdG9zL2RyYXdpbmcucG5n";
    let marked = good(at, &format!("/insecure/w:200/q:40/{mark}/plain/origin://photos/photo/2.jpg"), "");
    let plain = good(at, "/insecure/w:200/q:40/plain/origin://photos/photo/2.jpg", "");
    assert!(marked.body != plain.body && marked.header("coppice-answer") == Some("exact"));
    for inside in ["http://127.0.0.1:7070/v1/status", "origin://none/x"] {
        assert_eq!(http::get(at, &format!("/insecure/plain/{inside}")).unwrap().status, 403, "{inside}");
    }
    // Whichever clone made it, the others hear of it.
    for node in 1..=3 {
        wait_for("the toolbar says what was saved", WELL_WITHIN, || {
            let text = good(up.at(node).http, &distilled, "").text();
            text.contains("Saved <b>").then_some(()).ok_or(text)
        });
    }

    let form = b"quality=10&grey=on&pictures=on&words=evening&back=%2Fabout.html";
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let kept = http::request(at, "POST", "/_distill/preferences", &kind, form).unwrap();
    assert_eq!((kept.status, kept.header("location")), (303, Some("/about.html")), "{}", kept.text());
    let cookie = kept.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let holds = |at: SocketAddr| {
        let text = good(at, &distilled, &cookie).text();
        assert!(text.contains("/_distill/i/q10g/photo/1.jpg") && text.contains("<mark>evening</mark>"), "{at}: {text}");
    };
    (1..=3).for_each(|node| holds(up.at(node).http));

    let view = up.status(1).unwrap();
    let distil = view["services"].as_array().unwrap().iter().find(|service| service["name"] == "distill").unwrap();
    let first = distil["clones"][0]["pid"].as_u64().unwrap() as u32;
    Proc::of(first).unwrap().signal(Signal::KILL);
    (1..=3).for_each(|node| holds(up.at(node).http));
    Proc::of(up.node_pid(2)).unwrap().signal(Signal::KILL);
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        for node in [1, 3] {
            let text = good(up.at(node).http, &distilled, &cookie).text();
            assert!(text.contains("/_distill/i/q") && text.trim_end().ends_with("</html>"), "{text}");
            good(up.at(node).http, "/_distill/i/q10g/photo/3.jpg", &cookie);
        }
    }
    up.settle(WELL_WITHIN, 1);
    (1..=3).for_each(|node| holds(up.at(node).http));
}
