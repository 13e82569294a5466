//! Other people's clients against a running cluster: redis-cli in both dialects, redis-py, curl as in the README, and a
//! browser. What is not installed here is skipped with a line that says so.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::tools::{Said, has, run};
use e2e::{Shared, Up, skip, wait_for};

static SHOP: Shared = Shared::beside(Up::shop);

const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn redis_cli_reads_what_it_writes_in_both_dialects_through_any_node() {
    if !has("redis-cli") {
        return skip("redis-cli is not installed (apt install redis-tools)");
    }
    let up = SHOP.take();
    for dialect in ["-2", "-3"] {
        let key = format!("cli{dialect}");
        let cli = |node: u8, words: &[&str]| cli(&up, node, dialect, words).good();
        assert_eq!(cli(1, &["PING"]), "PONG\n");
        assert_eq!(cli(1, &["SET", &key, "honey", "EX", "100"]), "OK\n");
        for node in 1..=3 {
            assert_eq!(cli(node, &["GET", &key]), "honey\n", "through n{node}");
            let ttl: i64 = cli(node, &["TTL", &key]).trim().parse().unwrap();
            assert!((90..=100).contains(&ttl), "{ttl}");
        }
        assert_eq!(cli(2, &["SET", &key, "bread", "NX"]), "\n");
        assert_eq!(cli(2, &["SET", &key, "bread", "XX", "GET"]), "honey\n");
        assert_eq!(cli(3, &["EXPIRE", &key, "5000"]), "1\n");
        assert!(cli(1, &["PTTL", &key]).trim().parse::<i64>().unwrap() > 4_000_000);
        assert_eq!(cli(1, &["EXISTS", &key, "no:such:key"]), "1\n");
        let keys: Vec<String> = (0..30).map(|i| format!("{key}:{i:02}")).collect();
        for (nth, key) in keys.iter().enumerate() {
            assert_eq!(cli(nth as u8 % 3 + 1, &["SET", key, "x"]), "OK\n");
        }
        let size: usize = cli(3, &["DBSIZE"]).trim().parse().unwrap();
        assert!(size > keys.len(), "{size}");
        // redis-cli walks the cursor itself.
        let mut listed: Vec<String> =
            cli(2, &["--scan", "--pattern", &format!("{key}:*")]).lines().map(str::to_owned).collect();
        listed.sort();
        assert_eq!(listed, keys);
        let mut words = vec!["DEL", key.as_str()];
        words.extend(keys.iter().map(String::as_str));
        assert_eq!(cli(1, &words), "31\n");
        assert_eq!(cli(2, &["GET", &key]), "\n");
        assert_eq!(cli(2, &["TTL", &key]), "-2\n");
    }
}

#[test]
fn redis_py_is_content() {
    if !has("python3") || !run(Command::new("python3").args(["-c", "import redis"]), WITHIN).is_good() {
        return skip("redis-py is not installed (python3 -m pip install redis)");
    }
    let up = SHOP.take();
    let urls: Vec<String> = (1..=3).map(|n| format!("redis://carts:{}@{}", up.token("carts"), up.at(n).resp)).collect();
    let program = e2e::program::service_program("redis_py.py");
    let said = run(Command::new("python3").arg(program).args(&urls), Duration::from_secs(60)).good();
    assert!(said.contains("is content"), "{said}");
}

#[test]
fn the_commands_of_the_readme_work_with_curl_through_any_node() {
    if !has("curl") {
        return skip("curl is not installed");
    }
    let up = SHOP.take();
    let curl = |args: &[&str]| run(Command::new("curl").arg("-sS").args(args), WITHIN).good();
    for node in 1..=3 {
        let url = format!("http://{}/add", up.at(node).http);
        let page = curl(&["-b", "sid=curl", "-d", "ware=honey", "-L", &url]);
        assert!(page.contains(&format!("honey: {node}")), "{page}");
        // What a person in a browser follows from one node to another.
        let link = page.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link to this cart");
        let there = curl(&[&format!("http://{}{link}", up.at(node % 3 + 1).http)]);
        assert!(there.contains(&format!("honey: {node}")), "{there}");
    }
    for node in 1..=3 {
        let cart = curl(&["-b", "sid=curl", &format!("http://{}/cart.json", up.at(node).http)]);
        assert!(cart.contains("{\"honey\": 3}"), "{cart}");
    }
    assert!(curl(&[&format!("http://{}/v1/status", up.at(2).api)]).contains("\"nodes\""));
}

#[test]
fn a_value_acknowledged_by_one_node_is_read_through_the_others_at_once() {
    let up = SHOP.take();
    let token = up.token("carts");
    let mut at: Vec<Resp> = (1..=3).map(|n| Resp::open(up.at(n).resp, "carts", &token).unwrap()).collect();
    for round in 0..200 {
        let (writer, value) = (round % 3, format!("value {round}"));
        assert_eq!(at[writer].ask(&["SET", "at once", &value]).unwrap(), Word::Simple("OK".into()));
        for (nth, reader) in at.iter_mut().enumerate() {
            assert_eq!(
                reader.ask(&["GET", "at once"]).unwrap(),
                Word::Bulk(value.clone()),
                "n{} after n{}",
                nth + 1,
                writer + 1
            );
        }
    }
}

#[test]
fn a_wrong_token_opens_nothing_and_one_namespace_never_shows_another() {
    let up = SHOP.take();
    up.apply("second.toml", "[namespace.second]\nclass = \"session\"\n").good();
    let (carts, second) = (up.token("carts"), up.token("second"));
    assert_ne!(carts, second);
    wait_for("each node knows the second one", Duration::from_secs(2), || {
        (1..=3).try_for_each(|n| Resp::open(up.at(n).resp, "second", &second).map(|_| ()))
    });
    let at = up.at(2).resp;
    for (user, token) in [
        ("carts", second.as_str()),
        ("second", carts.as_str()),
        ("carts", ""),
        ("carts", "0123"),
        ("none", carts.as_str()),
    ] {
        let error = Resp::open(at, user, token).err().unwrap_or_else(|| panic!("{user:?} got in with {token:?}"));
        assert!(error.contains("WRONGPASS"), "{error}");
    }
    let mut nobody = Resp::connect(at).unwrap();
    for words in [vec!["GET", "k"], vec!["SET", "k", "v"], vec!["SCAN", "0"], vec!["DBSIZE"], vec!["INFO"]] {
        assert!(matches!(nobody.ask(&words).unwrap(), Word::Error(e) if e.starts_with("NOAUTH")), "{words:?}");
    }
    let (mut first, mut other) = (Resp::open(at, "carts", &carts).unwrap(), Resp::open(at, "second", &second).unwrap());
    first.ask(&["SET", "private", "mine"]).unwrap();
    assert_eq!(other.ask(&["GET", "private"]).unwrap(), Word::Nil);
    assert_eq!(other.ask(&["DBSIZE"]).unwrap(), Word::Int(0));
    let page = other.ask(&["SCAN", "0", "COUNT", "1000"]).unwrap();
    assert_eq!(page, Word::List(vec![Word::Bulk("0".into()), Word::List(vec![])]));
    up.apply("second.toml", "").good();
}

#[test]
fn a_command_that_the_class_cannot_keep_is_refused_with_the_class_and_an_alternative() {
    let up = SHOP.take();
    let mut resp = Resp::open(up.at(3).resp, "carts", &up.token("carts")).unwrap();
    for (words, instead) in [
        (vec!["LPUSH", "k", "v"], "SET"),
        (vec!["INCR", "k"], "GET"),
        (vec!["PERSIST", "k"], "EXPIRE"),
        (vec!["FLUSHDB"], "DEL"),
        (vec!["NONSENSE"], "docs/resp.md"),
    ] {
        let Word::Error(error) = resp.ask(&words).unwrap() else { panic!("{words:?} was taken") };
        assert!(error.contains(words[0]) && error.contains("session") && error.contains(instead), "{words:?}: {error}");
    }
    assert_eq!(resp.ask(&["PING"]).unwrap(), Word::Simple("PONG".into()), "the connection goes on");
}

#[test]
fn a_browser_shows_the_shop() {
    if !has("chromium") {
        return skip("chromium is not installed");
    }
    let up = SHOP.take();
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    command.args(["--disable-component-update", "--disable-sync", "--virtual-time-budget=4000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", up.dir.join("dump").display())).arg(format!("http://{}/", up.at(3).http));
    let shop = run(&mut command, Duration::from_secs(60)).good();
    assert!(shop.contains("<h1>Shop</h1>") && shop.contains("add honey"), "{shop}");
}

#[test]
fn a_browser_that_stays_on_the_monitor_sees_a_node_die_and_come_back() {
    if !has("chromium") {
        return skip("chromium is not installed");
    }
    let mut up = SHOP.take();
    let mut page = Page::open(&up, &format!("http://{}/", up.at(1).api));
    let text = "document.body.innerText";
    let nodes: Vec<String> = (1..=3).map(|n| format!("{text}.includes('{}')", up.at(n).http)).collect();
    page.shows("three live nodes", &format!("{text}.includes('3 nodes live') && {}", nodes.join(" && ")));
    page.shows("that it is live", "document.getElementById('connection').dataset.state == 'live'");
    let wanted = up.status(1).unwrap()["services"][0]["wanted"].clone();
    page.shows("the service in a line, and the namespace", &format!(
        "{text}.includes('{wanted} of {wanted} clones serve') && {text}.includes('carts') && !document.getElementById('service-shop').open"
    ));
    page.shows("what to open", "(document.querySelector('#service-shop summary').focus(), true)");
    page.does("key Enter");
    page.shows("the clones", "document.getElementById('services').innerText.includes('shop/0')");
    page.does("width 360");
    page.shows(
        "all of itself on a narrow screen",
        "[document.documentElement, ...document.querySelectorAll('.wide')].every(e => e.scrollWidth <= e.clientWidth)",
    );
    page.does("width 0");
    let find = |words: &str| {
        format!(
            "(document.getElementById('events-find').value = '{words}', \
             document.getElementById('events-find').dispatchEvent(new Event('input')), true)"
        )
    };
    let hidden = "[...document.querySelectorAll('ol.events li')].every(e => e.hidden)";
    page.shows("a field for words", &find("no-such-word"));
    page.shows("no event with these words", &format!("{hidden} && {text}.includes('0 of ')"));
    page.shows("a field for words", &find(""));
    page.shows("events", &format!("!{hidden}"));
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
    // The event says who; the summary may be whole again before the next look.
    page.shows("the death", "[...document.querySelectorAll('ol.events li')].some(e => e.innerText.includes('n3') && /no longer answers|restarted/.test(e.innerText))");
    up.event("restarted", WITHIN);
    up.settle(Duration::from_secs(30), 0);
    page.shows("three live nodes again", &format!("{text}.includes('3 nodes live')"));
    page.shows("what was opened", "document.getElementById('services').innerText.includes('shop/0')");
    // Without scripts the cells say what they are, too.
    page.does("width 360");
    page.does("scripts off");
    page.shows(
        "itself without scripts",
        "!document.documentElement.classList.contains('scripted') && !!document.querySelector('footer')",
    );
    page.shows(
        "all of itself on a narrow screen",
        "[...document.querySelectorAll('details')].every(e => e.open = true) && \
         [document.documentElement, ...document.querySelectorAll('.wide')].every(e => e.scrollWidth <= e.clientWidth) && \
         [...document.querySelectorAll('#nodes td')].some(e => e.dataset.head == 'Memory' && e.offsetWidth > 0)",
    );
}

#[test]
fn a_person_without_a_mouse_takes_things_out_of_use_in_the_monitor_and_puts_them_back() {
    if !has("chromium") {
        return skip("chromium is not installed");
    }
    let up = SHOP.take();
    let mut page = Page::open(&up, &format!("http://{}/", up.at(1).api));
    page.shows("that it is live", "document.getElementById('connection').dataset.state == 'live'");
    let (text, dialog) = ("document.body.innerText", "document.getElementById('switch')");
    let press = |page: &mut Page, address: &str| {
        let button = format!("document.querySelector('button[data-post=\"{address}\"]')");
        page.shows(&format!("a button for {address}"), &format!("{button} && ({button}.focus(), true)"));
        page.does("key Enter");
        page.shows("that it asks", &format!("{dialog}.open"));
    };
    let is_off = |part: &str, off: bool| {
        wait_for("the cluster knows", WITHIN, || {
            let view = up.status(1)?;
            let is_off = match part {
                "n2" => view["nodes"][1]["drained"] == true,
                _ => view["services"][0]["off"].as_array().is_some_and(|all| all.iter().any(|of| of == part)),
            };
            if is_off == off { Ok(()) } else { Err(format!("{part} is not so: {view}")) }
        });
    };

    page.shows("what to open", "(document.querySelector('#service-shop summary').focus(), true)");
    page.does("key Enter");
    press(&mut page, "/v1/disable/shop/1");
    page.does("type wrong");
    page.does("key Enter");
    page.shows("that the token is wrong", "document.getElementById('switch-problem').innerText.includes('token')");
    page.does("key Escape");
    page.shows("that it asks no more", &format!("!{dialog}.open"));
    is_off("shop/1", false);

    press(&mut page, "/v1/disable/shop/1");
    page.shows(
        "the field of the token",
        "(document.getElementById('switch-token').select(), document.getElementById('switch-token').focus(), true)",
    );
    page.does(&format!("type {}", up.admin_token()));
    page.does("key Enter");
    page.shows("what is out of use", &format!("!{dialog}.open && {text}.includes('Out of use: shop/1')"));
    is_off("shop/1", true);
    // The token is known by now: Enter is on Cancel, so that no second Enter does it by mistake.
    press(&mut page, "/v1/enable/shop/1");
    page.does("key Enter");
    page.shows("that it asks no more", &format!("!{dialog}.open"));
    for (address, part, off) in [
        ("/v1/enable/shop/1", "shop/1", false),
        ("/v1/nodes/n2/drain", "n2", true),
        ("/v1/nodes/n2/undrain", "n2", false),
    ] {
        press(&mut page, address);
        page.shows("the other button", "(document.getElementById('switch-do').focus(), true)");
        page.does("key Enter");
        is_off(part, off);
        page.shows("that it was done", &format!("!{dialog}.open"));
    }
    // The token is in the page: what clones said is read at once.
    page.shows("a button for logs", "(document.querySelector('#logs-form button').focus(), true)");
    page.does("key Enter");
    page.shows("what clones said", "/^[1-9][0-9]* of [1-9]/.test(document.getElementById('logs-found').innerText)");
    up.settle(Duration::from_secs(30), 0);
}

/// A page that stays open in a browser.
struct Page {
    browser: Child,
    ask: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Page {
    fn open(up: &Up, url: &str) -> Page {
        let mut command = Command::new("python3");
        command.arg(e2e::program::service_program("browser.py")).arg(up.dir.join("browser")).arg(url);
        let mut browser = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ask, out) = (browser.stdin.take(), browser.stdout.take().unwrap());
        Page { browser, ask, answers: BufReader::new(out).lines() }
    }

    /// A key, or text that is typed.
    #[track_caller]
    fn does(&mut self, what: &str) {
        writeln!(self.ask.as_ref().unwrap(), "{what}").unwrap();
        let answer = self.answers.next().unwrap_or_else(|| panic!("the browser ended before it did {what}")).unwrap();
        assert!(answer.starts_with("ok "), "{what}: {answer}");
    }

    /// Waits, on the page as it is, until a JavaScript expression is true.
    #[track_caller]
    fn shows(&mut self, what: &str, expression: &str) {
        writeln!(self.ask.as_ref().unwrap(), "{expression}").unwrap();
        let answer =
            self.answers.next().unwrap_or_else(|| panic!("the browser ended before it showed {what}")).unwrap();
        let seconds = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("the page never showed {what}: {answer}"));
        e2e::say(&format!("the page showed {what} after {seconds} s"));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It ends, with its browser, at the end of its input.
        drop(self.ask.take());
        let _ = self.browser.wait();
    }
}

fn cli(up: &Up, node: u8, dialect: &str, words: &[&str]) -> Said {
    let (at, token) = (up.at(node).resp, up.token("carts"));
    let mut command = Command::new("redis-cli");
    command.args([dialect, "-h", &at.ip().to_string(), "-p", &at.port().to_string()]);
    command.args(["--user", "carts", "--pass", &token, "--no-auth-warning"]).args(words);
    run(&mut command, WITHIN)
}
