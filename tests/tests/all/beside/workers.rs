//! Workers on pipes as real processes: filters and kept programs, killed in the middle of a job, and inputs that crash
//! them.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::{Up, wait_for};

fn job(at: SocketAddr, path: &str, content: &str) -> Result<Reply, String> {
    http::request(at, "POST", path, &[("Content-Type", "text/plain")], content.as_bytes()).map_err(|e| e.to_string())
}

fn ends(at: SocketAddr, path: &str, content: &str) -> (u16, String) {
    let reply = job(at, path, content).unwrap();
    (reply.status, reply.text())
}

#[test]
fn filters_and_kept_programs_do_jobs_and_an_input_that_crashes_twice_is_withheld() {
    let _turn = e2e::beside();
    let up = Up::start(1, &["--no-demo"]);
    let (program, shout) =
        (e2e::program::service_program("worker.py"), e2e::program::repository().join("examples/tacc"));
    let text = format!(
        "[service.upper]\nrun = [\"tr\", \"a-z\", \"{{to=A-Z}}\"]\nclones = 1\nhttp = {{ path = \"/upper\" }}\n\
         worker = {{ form = \"once\", takes = [\"text/*\"], gives = \"text/plain\" }}\n\
         [service.shout]\nrun = [\"python3\", \"shout.py\"]\ndir = {shout:?}\nclones = 1\nhttp = {{ path = \"/shout\" }}\n\
         worker = {{ form = \"stream\" }}\n\
         [service.does]\nrun = [\"python3\", {program:?}]\nclones = 2\nhttp = {{ path = \"/does\" }}\n\
         worker = {{ form = \"stream\" }}\n"
    );
    let rust = e2e::program::example("shout");
    let text = format!(
        "{text}[service.rust]\nrun = [{rust:?}]\nclones = 1\nhttp = {{ path = \"/rust\" }}\n\
         worker = {{ form = \"http\", takes = [\"text/*\"] }}\n"
    );
    up.apply("workers.toml", &text).good();
    let at = up.at(1).http;
    for path in ["/upper", "/shout", "/does", "/rust"] {
        wait_for(&format!("{path} works"), Duration::from_secs(30), || match job(at, path, "hello, you")? {
            reply if (reply.status, &*reply.text()) == (200, "HELLO, YOU") => Ok(()),
            reply => Err(format!("{} {}", reply.status, reply.text())),
        });
    }
    assert_eq!(ends(at, "/upper?to=n-za-m", "uryyb"), (200, "hello".into()));
    assert_eq!(ends(at, "/upper?to=--help", "x").0, 422);
    let page = http::request(at, "POST", "/upper", &[("Content-Type", "image/png")], b"x").unwrap();
    assert_eq!(page.status, 422);
    assert_eq!(ends(at, "/does", "bad"), (422, "\n".into()));
    let no_text = http::request(at, "POST", "/rust", &[("Content-Type", "text/plain")], b"\xff").unwrap();
    assert_eq!((no_text.status, no_text.text()), (422, "it is no text\n".into()));
    // Of a worker on pipes no socket leads anywhere: EPERM.
    assert_eq!(ends(at, "/does", "socket"), (200, "1".into()));

    // Twice at whichever clones; then no clone is lost to it any more, at either.
    for _ in 0..2 {
        let (status, why) = ends(at, "/does", "crash");
        assert_eq!(status, 500, "{why}");
    }
    let withheld = (422, "this input has crashed workers; it is not tried again for an hour\n".to_owned());
    wait_for("both clones withhold it", Duration::from_secs(10), || {
        let all: Vec<_> = (0..6).map(|_| ends(at, "/does", "crash")).collect();
        if all.iter().all(|end| *end == withheld) { Ok(()) } else { Err(format!("{all:?}")) }
    });
    assert_eq!(ends(at, "/does", "another"), (200, "ANOTHER".into()));
    wait_for("the metrics say so", Duration::from_secs(10), || {
        let bearer = format!("Bearer {}", up.admin_token());
        let said = http::request(up.at(1).api, "GET", "/metrics", &[("Authorization", &bearer)], b"");
        let text = said.map_err(|e| e.to_string())?.text();
        let sum = |name: &str| -> u64 {
            let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("does/"));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        let (withheld, crashes) = (sum("coppice_clone_withheld{"), sum("coppice_clone_crashes_total{"));
        if withheld >= 1 && crashes >= 2 { Ok(()) } else { Err(format!("{withheld} withheld, {crashes} crashes")) }
    });
}

/// The process that does the job of the file, once there is one.
fn doing(started: &Path) -> u32 {
    let look = || {
        let text = std::fs::read_to_string(started).map_err(|e| e.to_string())?;
        text.lines().last().and_then(|pid| pid.parse().ok()).ok_or(text)
    };
    wait_for("the job is under way", Duration::from_secs(10), look).0
}

#[test]
fn a_page_whose_worker_is_killed_in_the_middle_comes_as_original_and_is_made_on_reload() {
    let _turn = e2e::beside();
    let up = Up::start(1, &["--no-demo"]);
    let (pages, program) = (up.dir.join("pages"), e2e::program::service_program("worker.py"));
    std::fs::create_dir(&pages).unwrap();
    for (file, text) in [("page.html", "hello"), ("wait.html", "wait a little"), ("bad.html", "bad"), ("a.bin", "x")] {
        std::fs::write(pages.join(file), text).unwrap();
    }
    let (started, go) = (up.dir.join("started"), up.dir.join("go"));
    let text = format!(
        "[namespace.made]\nclass = \"cache\"\n\
         [service.does]\nrun = [\"python3\", {program:?}]\nclones = 2\nsandbox = \"none\"\n\
         env = {{ STARTED = {started:?}, GO = {go:?} }}\nworker = {{ form = \"stream\" }}\n\
         [service.site]\nrun = [\"python3\", \"-m\", \"http.server\", \"--bind\", \"$HOST\", \"$PORT\"]\ndir = {pages:?}\n\
         clones = 1\nhttp = {{ path = \"/\" }}\npipeline = \"page\"\n\
         partition = [{{ name = \"strict\", path = \"/bad.html\", pipeline = \"strict\" }}, \
         {{ name = \"near\", path = \"/near.html\", pipeline = \"near\" }}]\n\
         [pipeline.page]\ncache = \"made\"\n[[pipeline.page.step]]\nworker = \"does\"\ntype = [\"text/*\"]\n\
         [pipeline.near]\ncache = \"made\"\non_fail = \"near\"\n[[pipeline.near.step]]\nworker = \"does\"\n\
         [pipeline.strict]\non_fail = \"error\"\n[[pipeline.strict.step]]\nworker = \"does\"\n"
    );
    up.apply("site.toml", &text).good();
    let at = up.at(1).http;
    let get = move |path: &str| http::get(at, path).unwrap();
    let is =
        |reply: &Reply| (reply.status, reply.header("coppice-answer").unwrap_or_default().to_owned(), reply.text());
    let exact = |text: &str| (200, "exact".to_owned(), text.to_owned());
    wait_for("pages pass the worker", Duration::from_secs(30), || match is(&get("/page.html")) {
        reply if reply == exact("HELLO") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // HEAD says what GET would: also of what passes, whose body comes from the service and goes nowhere.
    for (path, answer, bytes) in [("/page.html", Some("exact"), "5"), ("/a.bin", None, "1")] {
        let head = http::request(at, "HEAD", path, &[], b"").unwrap();
        let said = (head.header("coppice-answer"), head.header("content-length"), head.body.len());
        assert_eq!((head.status, said), (200, (answer, Some(bytes), 0)), "{path}");
    }
    // No step is for it.
    assert_eq!(is(&get("/a.bin")), (200, String::new(), "x".into()));
    assert_eq!(get("/bad.html").status, 502, "what must not be seen as it is, is not");

    let asks = thread::spawn(move || get("/wait.html"));
    e2e::procs::kill(doing(&started), Signal::KILL);
    let reply = asks.join().unwrap();
    assert_eq!(is(&reply), (200, "original".into(), "wait a little".into()));
    assert_eq!((reply.header("cache-control"), reply.header("last-modified")), (Some("max-age=5"), None));
    std::fs::write(&go, "").unwrap();
    assert_eq!(is(&get("/wait.html")), exact("WAIT A LITTLE"));

    // Made once, kept: without any clone of the worker it is there.
    wait_for("the result is kept", Duration::from_secs(10), || {
        let before = std::fs::read_to_string(&started).map_err(|e| e.to_string())?;
        let page = is(&get("/wait.html"));
        let again = std::fs::read_to_string(&started).map_err(|e| e.to_string())?;
        if page == exact("WAIT A LITTLE") && again == before { Ok(()) } else { Err(format!("{page:?} {again}")) }
    });
    // The clone itself is killed in the middle of a job: another one does it.
    std::fs::remove_file(&go).unwrap();
    std::fs::write(&started, "").unwrap();
    std::fs::write(pages.join("wait.html"), "wait once more").unwrap();
    let asks = thread::spawn(move || get("/wait.html"));
    let worker = doing(&started);
    let stub = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap();
    let stub: u32 = stub.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    e2e::procs::kill(stub, Signal::KILL);
    std::fs::write(&go, "").unwrap();
    assert_eq!(is(&asks.join().unwrap()), exact("WAIT ONCE MORE"));
    wait_for("its program has ended with it", Duration::from_secs(5), || {
        if Proc::of(worker).is_none_or(|proc| !proc.is_alive()) { Ok(()) } else { Err("it lives".into()) }
    });

    // What was made of the page before stands in, and what should be there is made by itself.
    let (mut round, mut now) = (0, String::new());
    wait_for("the nearest page comes, though its worker is killed", Duration::from_secs(60), || {
        round += 1;
        let before = format!("page {round}");
        std::fs::write(pages.join("near.html"), &before).unwrap();
        if is(&get("/near.html")) != exact(&before.to_uppercase()) {
            return Err(format!("{before} was not made"));
        }
        let _ = std::fs::remove_file(&go);
        std::fs::write(&started, "").unwrap();
        now = format!("wait, page {round}");
        std::fs::write(pages.join("near.html"), &now).unwrap();
        let asks = thread::spawn(move || get("/near.html"));
        e2e::procs::kill(doing(&started), Signal::KILL);
        let reply = asks.join().unwrap();
        assert_eq!(reply.status, 200);
        std::fs::write(&go, "").unwrap();
        let said = (is(&reply), reply.header("cache-control").map(str::to_owned));
        let near = ((200, "near".to_owned(), before.to_uppercase()), Some("max-age=5".to_owned()));
        // Its cache may not have answered in time.
        if said == near { Ok(()) } else { Err(format!("{said:?}")) }
    });
    wait_for("it is made good without anybody asking", Duration::from_secs(60), || {
        let jobs = std::fs::read_to_string(&started).map_err(|e| e.to_string())?;
        if jobs.lines().count() == 2 { Ok(()) } else { Err(format!("{jobs:?}")) }
    });
    wait_for("and is there", Duration::from_secs(60), || match is(&get("/near.html")) {
        reply if reply == exact(&now.to_uppercase()) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_page_of_parts_comes_without_those_that_are_late_and_with_them_when_they_are_there() {
    let _turn = e2e::beside();
    let up = Up::start(1, &["--no-demo"]);
    let (pages, program) = (up.dir.join("pages"), e2e::program::service_program("worker.py"));
    std::fs::create_dir(&pages).unwrap();
    for (file, text) in
        [("hello.html", "hello"), ("wait.html", "wait a little"), ("bad.html", "bad"), ("all.html", "bad")]
    {
        std::fs::write(pages.join(file), text).unwrap();
    }
    let (started, go) = (up.dir.join("started"), up.dir.join("go"));
    let collate = e2e::program::repository().join("examples/tacc");
    let gathers = |pipeline: &str| {
        format!(
            "[[pipeline.{pipeline}.step.gather]]\nname = \"quick\"\nworker = \"upper\"\n\
             [[pipeline.{pipeline}.step.gather]]\nname = \"slow\"\nworker = \"does\"\n\
             [[pipeline.{pipeline}.step]]\nworker = \"collate\"\n"
        )
    };
    let text = format!(
        "[namespace.made]\nclass = \"cache\"\n\
         [service.upper]\nrun = [\"tr\", \"a-z\", \"A-Z\"]\nclones = 1\nworker = {{ form = \"once\" }}\n\
         [service.does]\nrun = [\"python3\", {program:?}]\nclones = 1\nsandbox = \"none\"\n\
         env = {{ STARTED = {started:?}, GO = {go:?} }}\nworker = {{ form = \"stream\" }}\n\
         [service.collate]\nrun = [\"python3\", \"collate.py\"]\ndir = {collate:?}\nclones = 1\n\
         worker = {{ form = \"stream\", takes = [\"application/json\"], gives = \"text/html\" }}\n\
         [service.site]\nrun = [\"python3\", \"-m\", \"http.server\", \"--bind\", \"$HOST\", \"$PORT\"]\ndir = {pages:?}\n\
         clones = 1\nhttp = {{ path = \"/\" }}\npipeline = \"some\"\n\
         partition = [{{ name = \"all\", path = \"/all.html\", pipeline = \"all\" }}]\n\
         [pipeline.some]\ncache = \"made\"\ntimeout = \"20s\"\n[[pipeline.some.step]]\ntimeout = \"2s\"\n{}\
         [pipeline.all]\n[[pipeline.all.step]]\nneed = 2\n{}",
        gathers("some"),
        gathers("all")
    );
    up.apply("site.toml", &text).good();
    let at = up.at(1).http;
    // How it is, which parts are missing, and the page.
    let get = move |path: &str| {
        let reply = http::get(at, path).unwrap();
        let said = |name: &str| reply.header(name).unwrap_or_default().to_owned();
        (reply.status, said("coppice-answer"), said("coppice-missing"), said("cache-control"), reply.text())
    };
    let part = |name: &str, text: &str| format!("<h2>{name}</h2><pre>{text}</pre>\n");
    let lacks = |name: &str| format!("<h2>{name}</h2><p>is not there now</p>\n");
    let own = String::new;
    let whole = |text: &str| (200, "exact".to_owned(), own(), own(), part("quick", text) + &part("slow", text));
    let without = |text: &str| {
        (200, "partial".to_owned(), "slow".to_owned(), "max-age=5".to_owned(), part("quick", text) + &lacks("slow"))
    };
    wait_for("all parts are there", Duration::from_secs(30), || match get("/hello.html") {
        reply if reply == whole("HELLO") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get("/bad.html"), without("BAD"), "one can do nothing with it");
    let (status, answer, missing, _, page) = get("/all.html");
    assert_eq!((status, &*answer, &*missing, &*page), (200, "original", "", "bad"), "both are needed");
    assert_eq!(get("/wait.html"), without("WAIT A LITTLE"), "one is late");
    std::fs::write(&go, "").unwrap();
    wait_for("what was late is there", Duration::from_secs(60), || match get("/wait.html") {
        reply if reply == whole("WAIT A LITTLE") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let bearer = format!("Bearer {}", up.admin_token());
    let said = http::request(up.at(1).api, "GET", "/metrics", &[("Authorization", &bearer)], b"").unwrap().text();
    let partial = said.lines().find_map(|line| line.strip_prefix("coppice_pipeline_partial_total{pipeline=\"some\"} "));
    assert!(partial.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= 2)), "{partial:?}");
}
