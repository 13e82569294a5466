//! What a declaration does, and what a wrong one is told.

use super::*;

const SHOP: &str = r#"
[namespace.carts]
class = "session"
lease = "1h"

[service.shop]
run = ["python3", "cart.py"]
clones = 3
health = "/health"
http = { host = "*", path = "/" }
namespaces = ["carts"]
"#;

fn empty() -> Declared {
    Declared { version: 1, records: BTreeMap::new() }
}

fn applied(now: &Declared, file: &str, text: &str) -> Declared {
    let diff = diff(now, file, text, &[7; 32]).unwrap();
    Declared { version: now.version + 1, ..after(now, &diff.change) }
}

fn lines(now: &Declared, file: &str, text: &str) -> Vec<String> {
    diff(now, file, text, &[7; 32]).unwrap().lines
}

fn error(text: &str) -> String {
    diff(&empty(), "shop.toml", text, &[7; 32]).unwrap_err()
}

#[test]
fn applying_twice_changes_nothing() {
    assert_eq!(lines(&empty(), "shop.toml", SHOP), ["+ namespace carts", "+ service shop"]);
    let once = applied(&empty(), "shop.toml", SHOP);
    let again = diff(&once, "shop.toml", SHOP, &[9; 32]).unwrap();
    assert!(again.lines.is_empty() && again.change.puts.is_empty() && again.change.removes.is_empty());
}

#[test]
fn a_change_names_the_keys_and_what_is_no_longer_declared_goes() {
    let now = applied(&empty(), "shop.toml", SHOP);
    let more = SHOP.replace("clones = 3", "clones = 5");
    assert_eq!(lines(&now, "shop.toml", &more), ["~ service shop: clones 3 -> 5"]);
    assert_eq!(lines(&now, "shop.toml", ""), ["- namespace carts", "- service shop"]);
    assert_eq!(lines(&now, "other.toml", ""), [""; 0], "another file's things stay");
    let gone = applied(&now, "shop.toml", "");
    assert!(gone.records.is_empty(), "secrets go with their namespace: {:?}", gone.records.keys());
}

/// A cluster that has agreed on this level.
fn agreed(level: u32) -> Declared {
    let (kind, name, bytes) = crate::level::put(level);
    Declared { version: 1, records: [((kind, name), bytes)].into() }
}

fn number(now: &Declared, name: &str) -> u32 {
    secrets(now)[name].id
}

#[test]
fn no_two_namespaces_have_one_number_ever() {
    let (two, one) =
        ("[namespace.a]\nclass = \"soft\"\n[namespace.b]\nclass = \"soft\"\n", "[namespace.a]\nclass = \"soft\"\n");
    let mut founded = agreed(base::LEVEL);
    founded.records.extend(crate::numbers::founding(base::LEVEL).map(|(kind, name, bytes)| ((kind, name), bytes)));
    for now in [founded.clone(), agreed(base::LEVEL)] {
        let mut now = applied(&now, "ns.toml", two);
        let mut given = vec![number(&now, "a"), number(&now, "b")];
        for _ in 0..3 {
            // The highest one goes, and comes back.
            now = applied(&now, "ns.toml", one);
            now = applied(&now, "ns.toml", two);
            given.push(number(&now, "b"));
            assert_eq!(number(&now, "a"), given[0]);
        }
        // All go.
        now = applied(&applied(&now, "ns.toml", ""), "ns.toml", one);
        given.push(number(&now, "a"));
        assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
        assert_eq!(crate::numbers::last(&now), given.last().copied());
        let again = diff(&now, "ns.toml", one, &[9; 32]).unwrap();
        assert!(again.change.puts.is_empty(), "what stands is not kept once more");
    }
    let now = applied(&founded, "ns.toml", one);
    assert_eq!(number(&now, "a"), 1);
}

#[test]
fn a_cluster_of_older_programs_begins_above_all_that_it_may_have_given() {
    let two = "[namespace.a]\nclass = \"soft\"\n[namespace.b]\nclass = \"soft\"\n";
    let old = applied(&agreed(crate::numbers::LEVEL - 1), "ns.toml", two);
    assert_eq!((number(&old, "a"), number(&old, "b"), crate::numbers::last(&old)), (1, 2, None), "as ever");
    let mut now = Declared { version: old.version, ..old };
    let (kind, name, bytes) = crate::level::put(crate::numbers::LEVEL);
    now.records.insert((kind, name), bytes);
    // Its first change takes the highest one away, without giving any.
    let now = applied(&now, "ns.toml", "[namespace.a]\nclass = \"soft\"\n");
    let last = crate::numbers::last(&now).unwrap();
    let now = applied(&now, "ns.toml", two);
    assert!(last > 2 && number(&now, "b") > last);
}

#[test]
fn whoever_lets_keys_leave_to_clones_is_told_so_once() {
    let with = "[service.mail]\nrun = [\"x\"]\ncertificates = true\n";
    let says = "! service mail: private keys of all certificates, of the nodes' folders (--tls-dir) and of the cluster, leave to its clones";
    assert_eq!(lines(&empty(), "mail.toml", with), ["+ service mail", says]);
    let now = applied(&empty(), "mail.toml", with);
    assert_eq!(lines(&now, "mail.toml", with), [""; 0]);
    assert_eq!(lines(&now, "mail.toml", &format!("{with}clones = 3\n")), ["~ service mail: clones 2 -> 3"]);
    let without = applied(&empty(), "mail.toml", "[service.mail]\nrun = [\"x\"]\n");
    assert_eq!(lines(&without, "mail.toml", with), ["~ service mail: certificates none -> true", says]);
    let text = export(&now);
    assert!(text.contains("certificates = true"), "{text}");
    // Programs before it would not know what they are told.
    let why = is_understood("mail.toml", with, 4).unwrap_err();
    assert!(why.contains("mail.toml:3: service.mail.certificates: needs programs of level 5"), "{why}");
    let auto = "[namespace.bank]\nclass = \"linear\"\nshards = \"auto\"\n";
    let why = is_understood("bank.toml", auto, 5).unwrap_err();
    assert!(why.contains("bank.toml:3: namespace.bank.shards: needs programs of level 6"), "{why}");
    assert_eq!(is_understood("bank.toml", auto, 6), Ok(()));
    assert_eq!(is_understood("bank.toml", &auto.replace("\"auto\"", "3"), 5), Ok(()));
    let doors = "[service.mail]\nrun = [\"x\"]\ntcp = [{ name = \"smtp\", port = 25 }]\n";
    let why = is_understood("mail.toml", doors, 4).unwrap_err();
    assert!(why.contains("mail.toml:3: service.mail.tcp: needs programs of level 5"), "{why}");
    assert_eq!(is_understood("mail.toml", doors, 5), Ok(()));
    let text = export(&applied(&empty(), "mail.toml", doors));
    assert_eq!(lines(&applied(&empty(), "mail.toml", doors), "mail.toml", &text), [""; 0], "{text}");
}

#[test]
fn a_wrong_door_is_named_with_its_line() {
    let doors = "[service.mail]\nrun = [\"x\"]\ntcp = [\n    { name = \"smtp\", port = 25 },\n    { name = \"pop3\", port = 25 },\n]\n";
    let why = error(doors);
    assert!(why.starts_with("shop.toml:5: service.mail.tcp.pop3.port: 25 is the port of door \"smtp\""), "{why}");
    let tables = "[service.mail]\nrun = [\"x\"]\n[[service.mail.tcp]]\nname = \"smtp\"\nport = 0\n";
    assert!(error(tables).contains("service.mail.tcp.smtp.port: 0 is no port"), "{}", error(tables));
}

#[test]
fn a_namespace_that_is_in_use_cannot_go() {
    let now = applied(&empty(), "ns.toml", "[namespace.carts]\nclass = \"session\"\n");
    let now = applied(&now, "shop.toml", "[service.shop]\nrun = [\"x\"]\nnamespaces = [\"carts\"]\n");
    let why = diff(&now, "ns.toml", "", &[7; 32]).unwrap_err();
    assert!(why.contains("carts") && why.contains("service.shop"), "{why}");
}

#[test]
fn what_is_exported_is_what_was_applied() {
    let now = applied(&empty(), "shop.toml", SHOP);
    let text = export(&now);
    assert!(!text.contains(&secrets(&now)["carts"].token), "no secret is exported");
    assert_eq!(lines(&now, "shop.toml", &text), [""; 0], "{text}");
}

#[test]
fn a_folder_that_the_cluster_does_not_have_is_named_at_its_line_with_what_to_do() {
    let code = "ab".repeat(32);
    let text = format!("[service.shop]\nrun = [\"x\"]\ncode = \"{code}\"\nversion = 3\n");
    assert_eq!(codes(&text), [code.clone()].into());
    let why = has_code("all.toml", &text, &BTreeSet::new()).unwrap_err();
    assert!(
        why.starts_with(&format!("all.toml:3: service.shop.code: the folder {code} is not in this cluster")),
        "{why}"
    );
    assert!(
        why.contains("coppice deploy DIR --service shop") && why.contains(&format!("PUT /v1/code/{code}")),
        "{why}"
    );
    assert_eq!(has_code("all.toml", &text, &[code].into()), Ok(()));
    assert_eq!(has_code("shop.toml", SHOP, &BTreeSet::new()), Ok(()));
}

#[test]
fn a_built_in_service_that_is_none_is_named_at_its_line_with_those_there_are() {
    let text = "[service.till]\nclones = 2\nbuiltin = \"shoe\"\n";
    let why = has_builtins("till.toml", text, &["shop", "mail"]).unwrap_err();
    assert_eq!(why, "till.toml:3: service.till.builtin: there is no built-in service \"shoe\"; there are: shop, mail");
    assert_eq!(has_builtins("till.toml", &text.replace("shoe", "mail"), &["shop", "mail"]), Ok(()));
    assert_eq!(has_builtins("shop.toml", SHOP, &[]), Ok(()));
}

#[test]
fn secrets_of_namespaces_differ_and_stay() {
    let two = "[namespace.a]\nclass = \"session\"\n[namespace.b]\nclass = \"session\"\n";
    let now = applied(&empty(), "f", two);
    let secrets_now = secrets(&now);
    assert_ne!(secrets_now["a"].token, secrets_now["b"].token);
    assert_ne!(secrets_now["a"].id, secrets_now["b"].id);
    let (a, b) = (&secrets_now["a"].cookie, &secrets_now["b"].cookie);
    assert!(a.realm != b.realm && a.keys[0].key != b.keys[0].key);
    let later = applied(&now, "f", &two.replace("[namespace.b]", "[namespace.c]"));
    assert_eq!(secrets(&later)["a"], secrets_now["a"]);
}

#[test]
fn rotating_adds_a_key_and_keeps_the_old_one_the_token_and_the_number() {
    let now = applied(&empty(), "shop.toml", SHOP);
    let before = secrets(&now).remove("carts").unwrap();
    let diff = rotate(&now, "carts", &[3; 32], 1_000, false).unwrap();
    assert_eq!(diff.lines, ["~ namespace carts: cookie key 0 -> 1; 1 older key opens"]);
    let rotated = Declared { version: 2, ..after(&now, &diff.change) };
    let secret = secrets(&rotated).remove("carts").unwrap();
    assert_eq!((secret.id, &secret.token, secret.cookie.realm), (before.id, &before.token, before.cookie.realm));
    assert_eq!(secret.cookie.keys[0], before.cookie.keys[0]);
    assert_eq!(secret.cookie.keys[1].key, [3; 32]);
    assert_eq!(lines(&rotated, "shop.toml", SHOP), [""; 0], "applying changes no keys");
    assert!(rotate(&now, "cards", &[3; 32], 1_000, false).unwrap_err().contains("no namespace \"cards\""));
    let ended = rotate(&rotated, "carts", &[4; 32], 2_000, true).unwrap();
    assert_eq!(ended.lines, ["~ namespace carts: cookie key 1 -> 2; all sessions end"]);
}

#[test]
fn errors_name_file_line_key_and_what_would_be_right() {
    for (text, expected) in [
        ("[service.shop]\nrun = [\"x\"]\nclonez = 3\n", &["shop.toml", "line 3", "clonez", "clones"][..]),
        (
            "[service.shop]\nrun = [\"x\"]\n\nhealth = \"health\"\n",
            &["shop.toml:4", "service.shop.health", "begin with /"],
        ),
        (
            "[service.shop]\nrun = [\"x\"]\nhttp = {}\n\n[[service.shop.partition]]\nname = \"a\"\npath = \"/a\"\n\n\
             [[service.shop.partition]]\nname = \"b\"\npath = \"b\"\n",
            &["shop.toml:11", "service.shop.partition.b.path", "begin with /"],
        ),
        (
            "[service.shop]\nrun = [\"x\"]\nhttp = {}\npartition = [\n  { name = \"a\", path = \"/a\" },\n  { name = \"b\", host = \"?\" },\n]\n",
            &["shop.toml:6", "service.shop.partition.b.host", "without scheme"],
        ),
        ("[service.shop]\nrun = []\n", &["shop.toml:2", "service.shop.run", "for example"]),
        ("[service.shop]\nrun = [\"x\"]\nnamespaces = [\"cards\"]\n", &["shop.toml:3", "cards", "declared"]),
        (
            "[namespace.carts]\nclass = \"session\"\n[service.shop]\nrun = [\"x\"]\nhttp = {}\nsession = { namespace = \"carts\", cookie = \"sid\" }\n",
            &["shop.toml:6", "session.namespace", "among the service's namespaces"],
        ),
        (
            "[service.shop]\nrun = [\"x\"]\nhttp = {}\nnamespaces = [\"cards\"]\nsession = { namespace = \"cards\", cookie = \"sid\" }\n",
            &["shop.toml:4", "\"cards\" is not declared"],
        ),
        (
            "[service.shop]\nrun = [\"x\"]\nhttp = {}\nsession = { namespace = \"carts\", cookies = \"sid\" }\n",
            &["line 4", "cookies", "cookie"],
        ),
        ("[namespace.carts]\nclass = \"sesion\"\n", &["shop.toml:2: namespace.carts.class", "sesion", "\"session\""]),
        ("[namespace.carts]\nclass = \"session\"\nlease = \"5\"\n", &["shop.toml:3: namespace.carts.lease", "\"30m\""]),
        (
            "[namespace.carts]\nclass = \"session\"\nlease = 3600\n",
            &["shop.toml:3: namespace.carts.lease", "lease = \"1h\""],
        ),
        ("[service.shop]\nrun = \"python3 app.py\"\n", &["line 2", "run = [\"python3\", \"app.py\"]"]),
        ("[service.shop]\nrun = 7\n", &["line 2", "run = [\"python3\", \"app.py\"]"]),
        (
            "[namespace.carts]\n# durability: none\nclass = \"session\"\ndurability = \"disk\"\n",
            &["shop.toml:4: namespace.carts.durability: is of class linear"],
        ),
        (
            "[namespace.bank]\nclass = \"linear\"\nfunctions = \"bnk\"\n[service.bank]\nrun = [\"x\"]\nhttp = {}\n",
            &["shop.toml:3: namespace.bank.functions: there is no service \"bnk\"", "declared are: bank"],
        ),
        (
            "[namespace.bank]\nclass = \"linear\"\nfunctions = \"bank\"\n[service.bank]\nrun = [\"x\"]\ntcp = { port = 7000 }\n",
            &["shop.toml:3: namespace.bank.functions: service \"bank\" has no `http`"],
        ),
        (
            "[namespace.bank]\nclass = \"linear\"\nfunctions = \"bank\"\n[service.bank]\nrun = [\"x\"]\nhttp = {}\ntcp = { port = 7000 }\n",
            &["shop.toml:3: namespace.bank.functions: service \"bank\" has `tcp`"],
        ),
        (
            "[namespace.carts]\nclass = \"session\"\nfunctions = \"shop\"\n",
            &["shop.toml:3: namespace.carts.functions: is of class linear"],
        ),
        (
            "[namespace.jobs]\nclass = \"linear\"\ndatabases = { 1 = \"jobz\" }\n[namespace.results]\nclass = \"session\"\n",
            &["shop.toml:3: namespace.jobs.databases.1: there is no namespace \"jobz\"; declared are: jobs, results"],
        ),
        (
            "[namespace.jobs]\nclass = \"linear\"\ndatabases = { 2 = \"jobs\" }\n",
            &["shop.toml:3: namespace.jobs.databases.2: \"jobs\" is this namespace itself"],
        ),
        (
            "[namespace.jobs]\nclass = \"linear\"\ndatabases = { 1 = \"files\" }\n[namespace.files]\nclass = \"object\"\n",
            &["shop.toml:3: namespace.jobs.databases.1: \"files\" is of class object, which has no Redis commands"],
        ),
        ("[namespace.Carts]\nclass = \"session\"\n", &["shop.toml:1", "lower-case"]),
        (
            "[service.a]\nrun = [\"x\"]\nhttp = {}\n[service.b]\nrun = [\"x\"]\nhttp = {}\n",
            &["shop.toml:6", "service \"a\""],
        ),
        (
            "[service.b]\nrun = [\"x\"]\nhttp = {}\n[service.a]\nrun = [\"x\"]\nhttp = {}\n",
            &["shop.toml:6: service.a.http", "service \"b\""],
        ),
        ("[servise.a]\n", &["line 1", "servise", "service"]),
        ("x = ", &["shop.toml", "line 1"]),
    ] {
        let why = error(text);
        for word in expected {
            assert!(why.contains(word), "{word:?} is not in {why:?}, for {text:?}");
        }
    }
}

#[test]
fn a_service_whose_functions_a_namespace_names_cannot_go() {
    let bank = "[service.bank]\nrun = [\"x\"]\nhttp = {}\n";
    let now = applied(&empty(), "bank.toml", bank);
    let linear = "[namespace.money]\nclass = \"linear\"\nfunctions = \"bank\"\n";
    let now = applied(&now, "money.toml", linear);
    assert!(export(&now).contains("functions = \"bank\""), "{}", export(&now));
    let why = diff(&now, "bank.toml", "", &[7; 32]).unwrap_err();
    assert!(why.contains("namespace.money.functions: there is no service \"bank\""), "{why}");
    let now = applied(&now, "money.toml", "[namespace.money]\nclass = \"linear\"\n");
    assert!(diff(&now, "bank.toml", "", &[7; 32]).is_ok());
}

#[test]
fn a_namespace_that_is_a_database_of_another_one_cannot_go() {
    let now = applied(&empty(), "results.toml", "[namespace.results]\nclass = \"cache\"\n");
    let jobs = "[namespace.jobs]\nclass = \"linear\"\ndatabases = { 1 = \"results\" }\n";
    let now = applied(&now, "jobs.toml", jobs);
    let written: toml::Table = toml::from_str(&export(&now)).unwrap();
    assert_eq!(written["namespace"]["jobs"]["databases"]["1"].as_str(), Some("results"));
    let why = diff(&now, "results.toml", "", &[7; 32]).unwrap_err();
    assert!(why.contains("namespace.jobs.databases.1: there is no namespace \"results\""), "{why}");
    assert!(
        is_understood("jobs.toml", jobs, 12)
            .unwrap_err()
            .contains("jobs.toml:3: namespace.jobs.databases: needs programs of level 13")
    );
    assert_eq!(is_understood("jobs.toml", jobs, 13), Ok(()));
}

#[test]
fn who_declares_what_another_file_has_is_told_at_his_own_line() {
    let now = applied(&empty(), "shop.toml", SHOP);
    let why = diff(&now, "app.toml", "[service.app]\nrun = [\"x\"]\nhttp = {}\n", &[7; 32]).unwrap_err();
    assert!(why.starts_with("app.toml:3: service.app.http: */ is already where service \"shop\" is reached"), "{why}");
}

#[test]
fn what_a_namespace_cannot_become_is_told_once_and_at_its_line() {
    let linear = "[namespace.bank]\nclass = \"linear\"\n";
    let mut now = applied(&empty(), "bank.toml", linear);
    for shard in ["bank/0", "bank/1", "banker/0"] {
        now.records.insert((kind::GROUP.into(), shard.into()), Bytes::new());
    }
    for (more, told) in [
        ("durability = \"memory\"\n", "bank.toml:3: namespace.bank.durability: it is \"disk\""),
        ("shards = 1\n", "bank.toml:3: namespace.bank.shards: it has 2 shards, which cannot become fewer"),
    ] {
        let why = diff(&now, "bank.toml", &format!("{linear}{more}"), &[7; 32]).unwrap_err();
        assert!(why.starts_with(told), "{why}");
    }
    let why = rotate(&now, "bank", &[3; 32], 1_000, false).unwrap_err();
    assert!(why.contains("class linear") && why.contains("no key to rotate"), "{why}");
}

#[test]
fn what_is_not_there_to_be_switched_is_told_with_what_is() {
    let now = applied(&empty(), "shop.toml", SHOP);
    for (part, told) in [
        ("shop:x", "has no partition \"x\", nor any other; a clone is \"shop/0\""),
        ("shop/7", "has clones 0 to 2, no 7"),
        ("web", "declared are: shop"),
    ] {
        let why = switch(&now, &Target::parse(part).unwrap(), true).unwrap_err();
        assert!(why.contains(told), "{why}");
    }
    let why = switch(&empty(), &Target::Service("shop".into()), true).unwrap_err();
    assert!(why.ends_with("declared are: none"), "{why}");
}

#[test]
fn what_is_declared_anew_is_in_use_whatever_was_out_of_use_before() {
    let mut now = applied(&empty(), "shop.toml", SHOP);
    for part in ["shop", "shop/1"] {
        let off = switch(&now, &Target::parse(part).unwrap(), true).unwrap();
        now.records.extend(off.change.puts.into_iter().map(|(kind, name, bytes)| ((kind, name), bytes)));
    }
    assert!(off(&now).service("shop"));
    let now = applied(&applied(&now, "shop.toml", ""), "shop.toml", SHOP);
    assert!(!off(&now).service("shop") && off(&now).clones().is_empty(), "{:?}", off(&now));
}

#[test]
fn a_port_on_which_nodes_listen_themselves_is_told_at_its_line() {
    let doors = [(8080, "where node n1 listens (HTTP edge)".to_owned())].into();
    let text =
        "[service.mail]\nrun = [\"x\"]\ntcp = { port = 25 }\n[[service.mail.partition]]\nname = \"a\"\nport = 8080\n";
    let why = free_ports("mail.toml", text, &doors).unwrap_err();
    assert_eq!(
        why,
        "mail.toml:6: service.mail.partition.a.port: 8080 is where node n1 listens (HTTP edge); choose another port"
    );
    assert_eq!(free_ports("mail.toml", &text.replace("8080", "26"), &doors), Ok(()));
    assert_eq!(free_ports("shop.toml", "[service.shop]\nrun = [\"x\"]\nhttp = {}\n", &doors), Ok(()));
}

#[test]
fn a_record_of_a_newer_version_keeps_what_this_one_knows() {
    let mut now = applied(&empty(), "shop.toml", SHOP);
    for bytes in now.records.values_mut() {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        *bytes = text.replace("\"spec\":{", "\"spec\":{\"new_key\":1,").into();
    }
    assert_eq!(all::<ServiceSpec>(&now, kind::SERVICE)["shop"].clones.max, 3);
    assert_eq!(
        all::<NamespaceSpec>(&now, kind::NAMESPACE)["carts"].session().map(|spec| spec.lease_ms),
        Some(3_600_000)
    );
}

#[test]
fn keys_that_an_older_node_would_not_keep_need_all_nodes_to_be_newer() {
    let text = "[service.shop]\nrun = [\"x\"]\nhttp = {}\nanswer_timeout = \"5m\"\n";
    let why = is_understood("shop.toml", text, clones::LEVEL - 1).unwrap_err();
    for part in ["shop.toml:4", "service.shop.answer_timeout", "upgrade them all first"] {
        assert!(why.contains(part), "{why}");
    }
    let below =
        "[service.shop]\nrun = [\"x\"]\nhttp = {}\n[[service.shop.partition]]\nname = \"up\"\nbody_max = \"2GiB\"\n";
    let why = is_understood("shop.toml", below, clones::LEVEL - 1).unwrap_err();
    assert!(why.contains("partition.up.body_max"), "{why}");
    let open = "[service.shop]\nrun = [\"x\"]\nsandbox = \"none\"\n";
    let why = is_understood("shop.toml", open, clones::LEVEL - 1).unwrap_err();
    assert!(why.contains("service.shop.sandbox"), "{why}");
    let soft = "[namespace.floor]\nclass = \"soft\"\n";
    let why = is_understood("shop.toml", soft, clones::LEVEL - 1).unwrap_err();
    assert!(why.contains("shop.toml:2: namespace.floor.class") && why.contains("needs programs of level 4"), "{why}");
    for text in [text, below, open, soft] {
        assert_eq!(is_understood("shop.toml", text, clones::LEVEL), Ok(()));
    }
    assert_eq!(is_understood("shop.toml", SHOP, 1), Ok(()), "all others are as they were");
}

const PIPED: &str = r#"
[namespace.made]
class = "cache"
[service.shout]
run = ["shout"]
worker = { form = "stream" }
[service.site]
run = ["site"]
http = {}
pipeline = "page"
[pipeline.page]
cache = "made"
[[pipeline.page.step]]
worker = "shout"
"#;

#[test]
fn a_pipeline_comes_changes_and_goes_with_its_file() {
    let said = ["+ namespace made", "+ pipeline page", "+ service shout", "+ service site"];
    assert_eq!(lines(&empty(), "site.toml", PIPED), said);
    let now = applied(&empty(), "site.toml", PIPED);
    assert_eq!(lines(&now, "site.toml", PIPED), [""; 0]);
    assert_eq!(applied(&empty(), "site.toml", &export(&now)).records.len(), now.records.len(), "it is exported whole");
    let faster = PIPED.replace("cache = \"made\"", "cache = \"made\"\ntimeout = \"1s\"");
    assert_eq!(lines(&now, "site.toml", &faster), ["~ pipeline page: timeout \"5s\" -> \"1s\""]);
    let none = PIPED.replace("pipeline = \"page\"\n", "");
    let none = none.split("[pipeline.page]").next().unwrap();
    assert!(lines(&now, "site.toml", none).contains(&"- pipeline page".to_owned()));
    assert!(is_understood("site.toml", PIPED, clones::LEVEL_WORKERS - 1).unwrap_err().contains("pipeline.page: needs"));
    assert_eq!(is_understood("site.toml", PIPED, clones::LEVEL_WORKERS), Ok(()));
    let near = PIPED.replace("cache = \"made\"", "cache = \"made\"\non_fail = \"near\"");
    let told = is_understood("site.toml", &near, clones::LEVEL_NEAR - 1).unwrap_err();
    assert!(told.contains("pipeline.page: needs") || told.contains("pipeline.page.on_fail: needs"), "{told}");
    assert_eq!(is_understood("site.toml", &near, clones::LEVEL_NEAR), Ok(()));
}

#[test]
fn a_pipeline_that_cannot_be_is_told_with_its_line() {
    for (from, to, told) in [
        (
            "worker = \"shout\"",
            "worker = \"site\"",
            "site.toml:13: pipeline.page.step.worker: service \"site\" is no worker",
        ),
        (
            "cache = \"made\"",
            "cache = \"none\"",
            "site.toml:12: pipeline.page.cache: \"none\" is no declared namespace",
        ),
        ("pipeline = \"page\"", "pipeline = \"side\"", "site.toml:10: service.site.pipeline: \"side\" is not declared"),
    ] {
        let why = diff(&empty(), "site.toml", &PIPED.replacen(from, to, 1), &[7; 32]).unwrap_err();
        assert!(why.contains(told), "{why}");
    }
}

#[test]
fn a_folder_of_several_services_is_one_declaration_for_each_with_all_namespaces() {
    let text = "[service.web]\nrun = [\"a\"]\nhttp = {}\n[service.worker]\nrun = [\"b\"]\nnamespaces = [\"jobs\"]\n\
                [service.api]\nrun = [\"c\"]\nhttp = { path = \"/api\" }\n[service.mail]\nrun = [\"d\"]\n\
                [namespace.jobs]\nclass = \"linear\"\n";
    let parts = each_service("coppice.toml", text).unwrap();
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["worker", "mail", "web", "api"], "those that users come to are last");
    for (name, part) in &parts {
        let (only, spec) = only_service("part", part).unwrap();
        let whole: File = toml::from_str(text).unwrap();
        assert_eq!((&only, &spec), (name, whole.service[name].get_ref()));
        let diff = diff(&empty(), "part", part, &[7; 32]).unwrap();
        assert!(diff.lines.contains(&"+ namespace jobs".to_owned()), "no part of the file drops it: {:?}", diff.lines);
    }
    let one = "# mine\n[service.web]\nrun = [\"a\"]\n";
    assert_eq!(each_service("coppice.toml", one).unwrap(), [("web".to_owned(), one.to_owned())], "with its lines");
    assert!(each_service("coppice.toml", "").unwrap_err().contains("declares no service"));
    assert!(each_service("coppice.toml", "[service.web]\nrum = 1\n").unwrap_err().contains("rum"));
}

const READERS: &str = r#"profile = { grey = true }
params = { word = "{profile.word}" }
[namespace.people]
class = "sql"
[profile.readers]
namespace = "people"
key = "cookie:reader"
schema = { grey = "boolean", word = { type = "text", max = 9 } }
"#;

#[test]
fn a_profile_comes_changes_and_goes_with_its_file() {
    let file = format!("{}{READERS}", PIPED.replace("http = {}", "http = {}\nprofile = \"readers\""));
    assert!(lines(&empty(), "shop.toml", &file).contains(&"+ profile readers".to_owned()));
    let now = applied(&empty(), "shop.toml", &file);
    assert_eq!(lines(&now, "shop.toml", &file), [""; 0]);
    assert_eq!(applied(&empty(), "shop.toml", &export(&now)).records.len(), now.records.len(), "it is exported whole");
    let more = file.replace("max = 9", "max = 10");
    assert!(lines(&now, "shop.toml", &more).iter().any(|line| line.starts_with("~ profile readers: schema")));
    let told = is_understood("shop.toml", &file, clones::LEVEL_PROFILES - 1).unwrap_err();
    for newer in ["profile.readers: needs", "service.site.profile: needs", "pipeline.page.step: needs"] {
        assert!(told.contains(newer), "{newer}: {told}");
    }
    assert_eq!(is_understood("shop.toml", &file, clones::LEVEL_PROFILES), Ok(()));
    for (from, to, key, why) in [
        ("profile = \"readers\"\n", "", "service.site.pipeline", "goes by \"grey\" of who asks"),
        ("\"readers\"", "\"reader\"", "service.site.profile", "write [profile.reader]"),
        ("{profile.word}", "{profile.words}", "service.site.pipeline", "\"words\", which is not in the schema"),
        ("namespace = \"people\"", "namespace = \"made\"", "profile.readers.namespace", "of class sql"),
        ("cookie:reader", "session", "service.site.profile", "add session"),
        ("cookie:reader", "cookies", "profile.readers.key", "header:NAME"),
        ("http = {}", "http = {}\ncache = { namespace = \"made\" }", "service.site.profile", "beside `cache`"),
        ("\"boolean\"", "\"bool\"", "line 2", "boolean"),
        ("max = 9", "most = 9", "line 2", "min = 1"),
    ] {
        let told = error(&file.replace(from, to));
        assert!(told.contains(key) && told.contains(why), "{to}: {told}");
    }
}
