//! A namespace goes to a file, and a cluster to a folder, and they come back, here and elsewhere; what is not whole
//! changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::procs::{self, Signal};
use e2e::resp::{Resp, Word};
use e2e::{Up, http, tools, wait_for};
use serde_json::{Value, json};

const NAMESPACES: &str = r#"
[namespace.bank]
class = "linear"
shards = 3

[namespace.bank-before]
class = "linear"
shards = 1

[namespace.carts]
class = "session"
merge = "fields"
"#;

/// Of other classes whose values outlive a stop of all nodes. The nodes must have agreed that all know these classes.
const OTHERS: &str = "[namespace.mail]\nclass = \"object\"\n\n[namespace.floor]\nclass = \"soft\"\n";

fn declare_others(up: &Up) {
    wait_for("all nodes agree on the classes", Duration::from_secs(30), || {
        let said = up.apply("others.toml", OTHERS);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
}

/// Asks for an object of ann's; the status and the bytes.
fn object(up: &Up, method: &str, id: u32, body: &str) -> (u16, String) {
    let bearer = format!("Bearer {}", up.token("mail"));
    let path = format!("/v1/ns/mail/objects/ann/{id:032x}");
    let asked = || http::request(up.at(2).api, method, &path, &[("Authorization", &bearer)], body.as_bytes());
    let (reply, _) = wait_for("the node answers", Duration::from_secs(30), || match asked() {
        Ok(reply) if !matches!(reply.status, 503 | 504) => Ok(reply),
        other => Err(format!("{other:?}")),
    });
    (reply.status, reply.text())
}

/// Asks the database of people, at whichever node.
fn people(up: &Up, body: &Value) -> Value {
    let bearer = format!("Bearer {}", up.token("people"));
    let (path, body) = ("/v1/ns/people/sql", body.to_string());
    let asked = || http::request(up.at(1).api, "POST", path, &[("Authorization", &bearer)], body.as_bytes());
    let (answer, _) = wait_for("the database answers", Duration::from_secs(30), || match asked() {
        Ok(reply) if reply.status == 200 => reply.json().map_err(|error| error.to_string()),
        other => Err(format!("{other:?}")),
    });
    answer
}

/// Values of all kinds, and many.
fn fill(bank: &mut Resp, carts: &mut Resp) {
    for n in 0..300 {
        bank.ask(&["SET", &format!("n{n}"), &format!("{n} {}", "x".repeat(2_000))]).unwrap();
    }
    for line in [
        "SET empty x",
        "INCRBY counter 41",
        "SET ends soon EX 5000",
        "HSET hash a 1 b 2",
        "RPUSH list b a b",
        "SADD set x y",
        "FCALL lease.claim 1 lease me 5000000",
        "SET flags \u{1}\u{2}\u{fffd}",
        "JSON.SET doc $ {\"a\":1}",
    ] {
        let said = bank.ask(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert!(!matches!(said, Word::Error(_)) || line.starts_with("JSON"), "{line}: {said:?}");
    }
    for line in ["SET ada cart-of-ada EX 3000", "HSET bob a 1 b 2", "SET eve x"] {
        carts.ask(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
}

/// All that is there, as clients see it.
fn all(resp: &mut Resp) -> BTreeMap<String, Vec<Word>> {
    let mut ask = |words: &[&str]| resp.ask(words).unwrap();
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let Word::List(page) = ask(&["SCAN", &cursor, "COUNT", "500"]) else { panic!() };
        let (Word::Bulk(next), Word::List(some)) = (&page[0], &page[1]) else { panic!("{page:?}") };
        keys.extend(some.iter().map(|key| if let Word::Bulk(key) = key { key.clone() } else { panic!() }));
        cursor.clone_from(next);
        if cursor == "0" {
            break;
        }
    }
    let mut all = BTreeMap::new();
    for key in keys {
        let Word::Simple(kind) = ask(&["TYPE", &key]) else { panic!("{key}") };
        let value = match &*kind {
            "string" => ask(&["GET", &key]),
            "hash" => ask(&["HGETALL", &key]),
            "list" => ask(&["LRANGE", &key, "0", "-1"]),
            "set" => ask(&["SMEMBERS", &key]),
            _ => ask(&["FCALL_RO", "lease.holder", "1", &key]),
        };
        let ends = matches!(ask(&["TTL", &key]), Word::Int(1..));
        all.insert(key, vec![Word::Simple(kind), value, Word::Int(ends.into())]);
    }
    all
}

fn open(up: &Up, namespace: &str) -> Resp {
    up.linear(2, namespace, &up.token(namespace))
}

fn token_of(bank: &mut Resp, name: &str) -> i64 {
    match bank.ask(&["FCALL", "lease.claim", "1", name, "me", "1000"]).unwrap() {
        Word::Int(token) => token,
        other => panic!("{other:?}"),
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_namespace_goes_to_a_file_and_comes_back() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("all.toml", NAMESPACES).good();
    let (mut bank, mut carts) = (open(&up, "bank"), open(&up, "carts"));
    fill(&mut bank, &mut carts);
    let (banked, carted) = (all(&mut bank), all(&mut carts));
    assert!(banked.len() >= 308 && carted.len() == 3, "{} {}", banked.len(), carted.len());

    let dir = up.write("x", "").parent().unwrap().to_owned();
    let (file, carts_file) = (path(&dir.join("bank.dump")), path(&dir.join("carts.dump")));
    up.coppice(&["ns", "dump", "carts", &carts_file]).good();
    let said = up.coppice(&["ns", "dump", "bank", &file, "--json"]).good();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["keys"], &said["class"]), (&banked.len().into(), &"linear".into()), "{said}");
    assert_eq!(fs::read(&file).unwrap().len() as u64, said["bytes"].as_u64().unwrap());

    // By mistake. Under another name it is what it was, and its fencing tokens go on above.
    let newest = token_of(&mut bank, "last");
    bank.ask(&["FLUSHALL"]).unwrap();
    carts.ask(&["FLUSHALL"]).unwrap();
    let said = up.coppice(&["ns", "load", "bank", &file, "--as", "bank-before"]).good();
    assert!(said.contains(&format!("bank-before: {} keys", banked.len())), "{said}");
    let mut before = open(&up, "bank-before");
    assert_eq!(all(&mut before), banked);
    assert!(token_of(&mut before, "new") > newest - 3, "as high as any that was there");
    for _ in 0..2 {
        up.coppice(&["ns", "load", "bank", &file]).good();
        up.coppice(&["ns", "load", "carts", &carts_file]).good();
        assert_eq!((all(&mut bank), all(&mut carts)), (banked.clone(), carted.clone()));
    }

    // Nothing of a file that is not whole, or of another class, is loaded.
    bank.ask(&["FLUSHALL"]).unwrap();
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, why) in [(&whole[..whole.len() - 50], "cut short"), (&flipped[..], "damaged"), (&b"{}"[..], "no dump")]
    {
        fs::write(&file, bytes).unwrap();
        let said = up.coppice(&["ns", "load", "bank", &file]);
        assert!(!said.is_good() && said.err.contains(why), "{why}: {}", said.err);
    }
    fs::write(&file, &whole).unwrap();
    for (args, why) in [
        (
            &["ns", "load", "carts", &carts_file, "--as", "bank"][..],
            "of class session, and namespace bank is of class linear",
        ),
        (&["ns", "load", "carts", &file], "is a dump of namespace bank"),
        (&["ns", "load", "bank", &file, "--as", "nowhere"], "no namespace \"nowhere\""),
        (&["ns", "dump", "nowhere", &path(&dir.join("nowhere.dump"))], "no namespace \"nowhere\""),
    ] {
        let said = up.coppice(args);
        assert!(!said.is_good() && said.err.contains(why), "{why}: {}", said.err);
    }
    assert!(!dir.join("nowhere.dump").exists() && !dir.join("nowhere.dump.part").exists());
    assert_eq!(bank.ask(&["DBSIZE"]).unwrap(), Word::Int(0));
}

const SERVICE: &str = r#"
[service.app]
run = ["python3", "app.py"]
clones = 3
health = "/health"
http = { host = "*" }
secret_files = ["KEY"]
"#;

/// Two secrets of the service, one of them no text, and a certificate if there is who makes one.
fn set_secrets(up: &Up) {
    for (name, value) in [("PIN", "s3same"), ("KEY", "\\377\\001")] {
        let (api, dir) = (up.at(1).api, &up.dir);
        let line = format!("printf '{value}' | \"$0\" secret set app {name} --api {api} --dir {dir:?}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).arg(e2e::program::coppice());
        tools::run(&mut shell, Duration::from_secs(30)).good();
    }
    if tools::has("openssl") {
        tools::certificate(&up.dir, "shop.example");
        let [cert, key] = ["a.crt", "a.key"].map(|name| path(&up.dir.join(name)));
        up.coppice(&["certificate", "set", "shop", "--cert", &cert, "--key", &key]).good();
    }
}

/// A command that asks no node.
fn alone(args: &[&str]) -> tools::Said {
    tools::run(Command::new(e2e::program::coppice()).args(args), Duration::from_secs(30))
}

/// Writes to a file what `change` makes of it; what it was.
fn changed(file: &Path, change: fn(&mut Vec<u8>)) -> Vec<u8> {
    let was = fs::read(file).unwrap();
    let mut bytes = was.clone();
    change(&mut bytes);
    fs::write(file, &bytes).unwrap();
    was
}

/// A folder outside of any cluster's.
struct Outside(PathBuf);

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A node of the level before stands for a cluster of which some nodes run the older program.
#[test]
fn what_older_nodes_cannot_read_out_is_left_out_and_named() {
    let _turn = e2e::beside();
    let mut yard = e2e::Yard::on(e2e::at::Ports::free(1));
    yard.found_with("home", &["--level", "9"]);
    let declared = "[namespace.people]\nclass = \"sql\"\n\n[namespace.bank]\nclass = \"linear\"\n";
    wait_for("the node is asked", Duration::from_secs(30), || {
        let said = yard.apply(1, "all.toml", declared);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    let folder = |name: &str| path(&yard.node_dir(1).with_file_name(name));
    let made = wait_for("a backup", Duration::from_secs(30), || {
        let said = yard.coppice(1, &["backup", &folder("one"), "--json"]);
        if said.is_good() { Ok(said.good()) } else { Err(said.err) }
    });
    let without: Value = serde_json::from_str(&made.0).unwrap();
    let why = without["left_out"]["people"].as_str().unwrap();
    assert!(why.contains("the nodes agree on level 9"), "{without}");
    assert!(without["manifest"]["namespaces"]["bank"].is_object(), "{without}");
    let said = yard.coppice(1, &["backup", &folder("two")]).good();
    assert!(said.contains("left out: people (class sql is dumped from level 10 on"), "{said}");
    assert!(alone(&["backup", "verify", &folder("two")]).is_good());
}

#[test]
fn a_cluster_that_is_lost_comes_back_elsewhere() {
    let _turn = e2e::beside();
    let outside = Outside(std::env::temp_dir().join(format!("coppice-e2e-backup-{}", std::process::id())));
    let folder = path(&outside.0.join("b"));
    let [key, other_key] = ["key", "other-key"].map(|name| path(&outside.0.join(name)));
    fs::create_dir(&outside.0).unwrap();
    let certificates = usize::from(tools::has("openssl"));
    let (banked, carted, peopled): (BTreeMap<_, _>, BTreeMap<_, _>, _);
    let everybody = "select count(*), sum(length(likes)), max(likes), min(likes) from person";
    {
        let up = Up::bare(3);
        up.apply("all.toml", NAMESPACES).good();
        let app = up.dir.join("app");
        fs::create_dir_all(&app).unwrap();
        fs::write(app.join("coppice.toml"), SERVICE).unwrap();
        let program = fs::read_to_string(e2e::program::service_program("says.py")).unwrap();
        let says = "(os.environ['PIN'] + ' ' + open(os.environ['KEY_FILE'], 'rb').read().hex()).encode()";
        fs::write(app.join("app.py"), program.replace("b\"SAYS\\n\"", says).replace("FAILS", "False")).unwrap();
        wait_for("all nodes agree on what they know", Duration::from_secs(30), || match up.status(1)?["root"]["level"]
            .as_u64()
        {
            Some(10..) => Ok(()),
            other => Err(format!("level {other:?}")),
        });
        set_secrets(&up);
        up.coppice(&["deploy", &path(&app)]).good();
        let (mut bank, mut carts) = (open(&up, "bank"), open(&up, "carts"));
        fill(&mut bank, &mut carts);
        carted = all(&mut carts);
        declare_others(&up);
        (1..=3).for_each(|id| assert!(object(&up, "PUT", id, &format!("letter {id}")).0 < 300));
        assert!(object(&up, "DELETE", 2, "").0 < 300);
        let mut floor = open(&up, "floor");
        for line in ["HINCRBY cart honey 2", "SADD online ann", "SET flag on EX 5000"] {
            floor.ask(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        up.apply("people.toml", "[namespace.people]\nclass = \"sql\"\n").good();
        let fill = "with recursive n(i) as (select 1 union all select i + 1 from n limit 900) insert into person select i, hex(randomblob(200)) from n";
        people(&up, &json!({"batch": ["create table person (id integer primary key, likes text not null)", fill]}));
        let said = up.coppice(&["backup", &folder]).good();
        assert!(said.contains("left out: carts (class session"), "{said}");
        assert!(said.contains(&format!("left out: 2 secrets and {certificates} certificates; --key")), "{said}");
        for key in [&key, &other_key] {
            alone(&["backup", "key", key]).good();
        }
        // What the second one has of it is this.
        bank.ask(&["SET", "n1", "changed"]).unwrap();
        bank.ask(&["DEL", "n2"]).unwrap();
        banked = all(&mut bank);
        people(&up, &json!({"batch": ["update person set likes = 'honey' where id = 450"]}));
        peopled = people(&up, &json!({"query": everybody}));
        // The second of the same second would have the same name.
        let (second, _) = wait_for("a second later", Duration::from_secs(20), || {
            let said = up.coppice(&["backup", &folder, "--all", "--keep", "1", "--key", &key, "--json"]);
            if said.is_good() { Ok(said.out) } else { Err(said.err) }
        });
        let second: Value = serde_json::from_str(&second).unwrap();
        assert_eq!(second["removed"].as_array().unwrap().len(), 0, "the second one stands on the first: {second}");
        let namespaces = &second["manifest"]["namespaces"];
        assert_eq!((&namespaces["carts"]["keys"], &namespaces["carts"]["since"]), (&3.into(), &Value::Null));
        assert_eq!(namespaces["bank"]["keys"], banked.len(), "{second}");
        assert!(namespaces["bank"]["bytes"].as_u64().unwrap() < 2_000, "only what changed: {second}");
        let people = &namespaces["people"];
        assert!(people["keys"].as_u64().unwrap() > 20, "pieces of 16 KiB: {people}");
        assert!((4_000..80_000).contains(&people["bytes"].as_u64().unwrap()), "some pages changed: {people}");
        assert_eq!(second["manifest"]["sealed"]["secrets"], 2, "{second}");
        assert!(up.coppice(&["events"]).good().contains("sealed for a backup"));
        assert!(up.coppice(&["restore", &folder, "--key", &key]).err.contains("app is declared in this cluster"));
        up.everything().iter().for_each(|one| procs::kill(one.pid, Signal::KILL));
    }

    let https = e2e::at::free_port(2);
    let up = Up::start(3, &["--no-demo", "--https-port", &https.to_string()]);
    let verify = |key: &str| alone(&["backup", "verify", &folder, "--key", key]);
    let restore = |key: &str| up.coppice(&["restore", &folder, "--key", key]);
    let said = verify(&key).good();
    assert!(said.contains("is whole: 6 namespaces with") && said.contains("open with this key"), "{said}");
    assert!(alone(&["backup", "verify", &folder]).good().contains("were not opened: --key FILE"));
    let mut moments: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).filter(|p| p.join("ns").exists()).collect();
    moments.sort();
    let [first, moment] = &moments[..] else { panic!("{moments:?}") };
    let sealed = fs::read(moment.join("secrets.sealed")).unwrap();
    for plain in [&b"s3same"[..], b"PIN", b"PRIVATE KEY"] {
        assert!(sealed.windows(plain.len()).all(|part| part != plain));
    }
    for file in [first.join("ns/bank.dump"), moment.join("ns/bank.changed"), moment.join("secrets.sealed")] {
        let name = &path(&file);
        let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() - 1);
        let flip: fn(&mut Vec<u8>) = |bytes| *bytes.last_mut().unwrap() ^= 1;
        for (change, why) in [(cut, "cut short"), (flip, "damaged")] {
            let whole = changed(&file, change);
            for said in [verify(&key), restore(&key)] {
                assert!(!said.is_good() && said.err.contains(name) && said.err.contains(why), "{}", said.err);
            }
            fs::write(&file, &whole).unwrap();
        }
    }
    for said in [verify(&other_key), restore(&other_key)] {
        assert!(!said.is_good() && said.err.contains("was sealed with key"), "{}", said.err);
    }
    let said = up.coppice(&["restore", &folder]);
    assert!(!said.is_good() && said.err.contains("--without-secrets"), "{}", said.err);
    assert_eq!(up.coppice(&["export"]).good().trim(), "", "nothing was changed");

    // All nodes have to know that they all know what certificates are.
    wait_for("it is restored", Duration::from_secs(30), || {
        let said = restore(&key);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    up.settle(Duration::from_secs(30), 1);
    assert_eq!(http::get(up.at(3).http, "/").unwrap().text().trim(), "s3same ff01");
    if certificates > 0 {
        let to = format!("127.0.0.2:{https}");
        let line = format!(
            "openssl s_client -connect {to} -servername shop.example </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName"
        );
        wait_for("another node shows the certificate", Duration::from_secs(20), || {
            let said = tools::run(Command::new("sh").args(["-c", &line]), Duration::from_secs(20));
            if said.out.contains("shop.example") { Ok(()) } else { Err(format!("{said:?}")) }
        });
    }
    assert_eq!((all(&mut open(&up, "bank")), all(&mut open(&up, "carts"))), (banked.clone(), carted));
    assert_eq!(people(&up, &json!({"query": everybody})), peopled);
    assert_eq!(object(&up, "GET", 1, ""), (200, "letter 1".to_owned()));
    assert_eq!(object(&up, "GET", 2, "").0, 404);
    assert_eq!(object(&up, "GET", 3, "").1, "letter 3");
    let mut floor = open(&up, "floor");
    let word = |text: &str| Word::Bulk(text.into());
    assert_eq!(floor.ask(&["HGETALL", "cart"]), Ok(Word::List(vec![word("honey"), word("2")])));
    assert_eq!(floor.ask(&["SMEMBERS", "online"]), Ok(Word::List(vec![word("ann")])));
    assert!(matches!(floor.ask(&["TTL", "flag"]), Ok(Word::Int(4_000..=5_000))));
    // One of it, under a name that nobody has declared.
    up.coppice(&["restore", &folder, "--namespace", "bank", "--as", "bank-then"]).good();
    assert_eq!(all(&mut open(&up, "bank-then")), banked);
}
