//! `coppice up --demo transend`: a site, the same distilled, one picture by its URL; preferences that hold through every node; and
//! no page that fails when a distiller and then a node is killed.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
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

/// A site that counts what it is asked for.
#[derive(Default)]
struct Counting {
    asked: Mutex<BTreeMap<String, usize>>,
    is_down: AtomicBool,
}

impl Counting {
    /// Gives this picture under each path, slowly; for a second only under those that say so.
    fn start(picture: Vec<u8>) -> (Arc<Counting>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (site, port) = (Arc::new(Counting::default()), listener.local_addr().unwrap().port());
        let (of, picture) = (Arc::clone(&site), Arc::new(picture));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (site, picture) = (Arc::clone(&of), Arc::clone(&picture));
                thread::spawn(move || site.serve(stream, &picture));
            }
        });
        (site, port)
    }

    fn serve(&self, mut stream: TcpStream, picture: &[u8]) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        *self.asked.lock().unwrap().entry(path.clone()).or_default() += 1;
        if self.is_down.load(SeqCst) {
            return;
        }
        thread::sleep(Duration::from_millis(300));
        let age = if path.starts_with("/short") { 1 } else { 600 };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nCache-Control: max-age={age}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            picture.len()
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(picture));
    }

    fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

/// Another distiller, under a name of its own, whose origin counts.
fn clones_share_what_they_fetch_and_make(up: &Up, picture: Vec<u8>) {
    let (site, port) = Counting::start(picture);
    let text = format!(
        "[namespace.preferences]\nclass = \"linear\"\n[service.copies]\nbuiltin = \"distill\"\nclones = 3\nhealth = \"/health\"\nhttp = {{ host = \"pictures.test\", path = \"/\" }}\n\
         namespaces = [\"preferences\", \"pictures\"]\nenv = {{ ORIGINS = \"own=http://127.0.0.1:{port}\" }}\n"
    );
    let others = ["thumbor", "weserv"].map(|urls| {
        format!(
            "[service.{urls}]\nbuiltin = \"distill\"\nclones = 1\nhealth = \"/health\"\nhttp = {{ host = \"{urls}.test\", path = \"/\" }}\n\
             namespaces = [\"people\", \"pictures\"]\nenv = {{ URLS = \"{urls}\", ORIGINS = \"own=http://127.0.0.1:{port}\" }}\n"
        )
    });
    up.apply("copies.toml", &format!("{text}{}", others.concat())).good();
    let all: Vec<SocketAddr> = (1..=3).map(|node| up.at(node).http).collect();
    let get = |at: SocketAddr, width: usize, path: &str| -> Result<Reply, String> {
        let url = format!("/insecure/w:{width}/plain/origin://own{path}");
        let reply = http::request(at, "GET", &url, &[("Host", "pictures.test")], b"").map_err(|e| e.to_string())?;
        if reply.status == 200 { Ok(reply) } else { Err(format!("{} {}", reply.status, reply.text())) }
    };
    let mut round = 0;
    let (kept, _) = wait_for("of twelve that ask at once, through all nodes, one fetches", WELL_WITHIN, || {
        round += 1;
        let path = format!("/{round}.jpg");
        let sizes = thread::scope(|scope| {
            let ask = |n: usize| {
                let (path, get, at) = (&path, &get, all[n % 3]);
                scope.spawn(move || get(at, 100 + 20 * n, path).map(|reply| reply.body.len()))
            };
            let asks: Vec<_> = (0..12).map(ask).collect();
            asks.into_iter().map(|ask| ask.join().unwrap()).collect::<Result<Vec<_>, _>>()
        })?;
        let count = site.count(&path);
        if count == 1 { Ok(path) } else { Err(format!("{count} fetches, {sizes:?}")) }
    });
    let view = up.status(1).unwrap();
    let copies = view["services"].as_array().unwrap().iter().find(|service| service["name"] == "copies").unwrap();
    for clone in copies["clones"].as_array().unwrap() {
        Proc::of(clone["pid"].as_u64().unwrap() as u32).unwrap().signal(Signal::KILL);
    }
    wait_for("new clones have it as the dead ones left it", WELL_WITHIN, || {
        let before = site.count(&kept);
        let replies = all.iter().map(|at| get(*at, 333, &kept)).collect::<Result<Vec<_>, _>>()?;
        let alike = replies.iter().all(|reply| reply.body == replies[0].body && reply.header("age").is_some());
        if alike && site.count(&kept) == before { Ok(()) } else { Err(format!("{} fetches", site.count(&kept))) }
    });
    for (host, url, refused) in [
        (
            "thumbor.test",
            "/unsafe/fit-in/90x90/filters:quality(30)/origin://own/thumb.jpg",
            "/unsafe/meta/origin://own/a",
        ),
        ("weserv.test", "/?w=90&q=30&url=origin://own/thumb.jpg", "/?tint=red&url=origin://own/a"),
    ] {
        let get = |url: &str| http::request(all[0], "GET", url, &[("Host", host)], b"").map_err(|e| e.to_string());
        wait_for("a picture by the URL of others", WELL_WITHIN, || match get(url)? {
            reply if reply.status == 200 && reply.header("coppice-answer") == Some("exact") => Ok(()),
            reply => Err(format!("{host}: {} {}", reply.status, reply.text())),
        });
        let reply = get(refused).unwrap();
        assert!(reply.status == 400 && reply.text().contains("is not offered; offered are: "), "{}", reply.text());
    }
    // What was had a moment ago stands in for what cannot be had now, in each size.
    let answer = |width: usize| get(all[width % 3], width, "/short.jpg");
    wait_for("it is had", WELL_WITHIN, || {
        let reply = answer(120)?;
        if reply.header("coppice-answer") == Some("exact") {
            Ok(())
        } else {
            Err(format!("{:?}", reply.header("coppice-answer")))
        }
    });
    site.is_down.store(true, SeqCst);
    for width in [120, 151] {
        wait_for("the one of before stands in", WELL_WITHIN, || {
            let reply = answer(width)?;
            let said = (reply.header("coppice-answer"), reply.header("cache-control"));
            if said == (Some("near"), Some("max-age=5")) { Ok(()) } else { Err(format!("{said:?}")) }
        });
    }
    site.is_down.store(false, SeqCst);
    wait_for("it is made good", WELL_WITHIN, || {
        let reply = answer(120)?;
        if reply.header("coppice-answer") == Some("exact") { Ok(()) } else { Err("not yet".into()) }
    });
}

/// What comes back of what goes there, once it was seen that something comes.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut from = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut from, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

/// The site at an address of its own, by a browser's proxy at any node.
fn a_browser_has_it_as_its_proxy(up: &Up, (at, original): (SocketAddr, &str)) {
    let (door, guarded, echo) = (e2e::at::free_port(3), e2e::at::free_port(3), echo());
    let service = |name: &str, port: u16, env: &str| {
        format!(
            "[service.{name}]\nbuiltin = \"distill\"\nclones = 2\ntcp = {{ port = {port}, send_proxy = \"v2\" }}\n\
             namespaces = [\"people\", \"pictures\"]\nenv = {{ SERVE = \"proxy\", \
             ORIGINS = \"site=http://{at}{original},tls=https://127.0.0.1:{echo}\"{env} }}\n"
        )
    };
    let text = service("proxy", door, "") + &service("guarded", guarded, ", USERS = \"ann:sesame\"");
    up.apply("proxy.toml", &text).good();
    let node = |n: u8, port: u16| SocketAddr::new(e2e::at::host(n), port);
    let host = at.to_string();
    let ask = |n: u8, method: &str, url: &str, body: &[u8]| -> Result<Reply, String> {
        http::request(node(n, door), method, url, &[("Host", &host)], body).map_err(|e| format!("{url}: {e}"))
    };
    let (page, base) = (format!("http://{at}{original}"), format!("http://{at}"));
    let (reply, _) = wait_for("a page comes by the proxy", WELL_WITHIN, || match ask(1, "GET", &page, b"")? {
        reply if reply.status == 200 => Ok(reply),
        reply => Err(format!("{} {}", reply.status, reply.text())),
    });
    let picture = format!("/_distill/i/q40{original}photo/2.jpg");
    assert!(reply.text().contains(&format!("<img src=\"{picture}\"")), "{}", reply.text());
    assert_eq!(reply.header("vary"), Some("Accept, Save-Data, ECT, Downlink"), "no cookie says who it is");
    let small = ask(2, "GET", &format!("{base}{picture}"), b"").unwrap();
    let whole = ask(3, "GET", &format!("{page}photo/2.jpg"), b"").unwrap();
    assert_eq!(
        (small.status, small.header("coppice-answer"), whole.status),
        (200, Some("exact"), 200),
        "{}",
        small.text()
    );
    assert!(small.body.len() * 2 < whole.body.len(), "{} of {}", small.body.len(), whole.body.len());

    let kept =
        ask(1, "POST", &format!("{base}/_distill/preferences"), b"quality=10&grey=on&pictures=on&back=%2F").unwrap();
    assert_eq!((kept.status, kept.header("set-cookie")), (303, None), "{}", kept.text());
    let reply = ask(3, "GET", &page, b"").unwrap();
    assert!(reply.text().contains("/_distill/i/q10g"), "{}", reply.text());

    // It leads nowhere inside, whatever it is called.
    let api = up.at(1).api;
    for url in [
        &*format!("http://{api}/v1/status"),
        "http://localhost/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://0x7f.1/x",
    ] {
        let reply = ask(1, "GET", url, b"").unwrap();
        assert!(reply.status == 403 || reply.status == 502, "{url}: {} {}", reply.status, reply.text());
    }
    assert_eq!(ask(1, "GET", "https://example.org/", b"").unwrap().status, 400);
    for to in ["127.0.0.1:443", "8.8.8.8:22", &*api.to_string(), "[::ffff:10.0.0.1]:443"] {
        let reply = ask(1, "CONNECT", to, b"").unwrap();
        assert_eq!(reply.status, 403, "{to}: {}", reply.text());
    }
    let pac = ask(2, "GET", "/proxy.pac", b"").unwrap();
    assert!(pac.text().contains(&format!("return \"PROXY {host}; DIRECT\"")), "{}", pac.text());

    // A tunnel: what is said is what comes, to its end.
    let mut stream = TcpStream::connect(node(2, door)).unwrap();
    stream.set_read_timeout(Some(WELL_WITHIN)).unwrap();
    stream.write_all(format!("CONNECT 127.0.0.1:{echo} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"\x16\x03\x01 any bytes").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"\x16\x03\x01 any bytes");

    let with = |name: &str, value: &str| {
        http::request(node(1, guarded), "GET", &page, &[("Host", &host), (name, value)], b"").map_err(|e| e.to_string())
    };
    wait_for("one with users asks who it is", WELL_WITHIN, || match with("X-None", "")? {
        reply if reply.status == 407 => Ok(()),
        reply => Err(reply.status.to_string()),
    });
    assert_eq!(with("Proxy-Authorization", "Basic YW5uOnNlc2FtZQ==").unwrap().status, 200);
    assert_eq!(with("Proxy-Authorization", "Basic YW5uOm90aGVy").unwrap().status, 407);
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
    let read = http::request(at, "GET", &distilled, &[("Accept", "text/markdown")], b"").unwrap();
    assert_eq!(read.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert!(read.text().starts_with("# ") && read.text().contains("[About these pictures]("), "{}", read.text());
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

    clones_share_what_they_fetch_and_make(&up, photo.body.clone());
    a_browser_has_it_as_its_proxy(&up, (at, &original));

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
