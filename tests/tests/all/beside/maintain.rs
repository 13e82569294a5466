//! Maintenance under load: nodes are drained and put back, services, clones and partitions are taken out of use, and nobody
//! who did not ask for what is out of use notices.

use std::time::Duration;

use e2e::load::{Does, Load};
use e2e::{Up, http, wait_for};
use serde_json::Value;

fn clones_at(view: &Value, node: &str) -> Vec<String> {
    let clones =
        view["services"].as_array().into_iter().flatten().flat_map(|s| s["clones"].as_array().into_iter().flatten());
    clones.filter(|c| c["node"] == node).map(|c| c["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_is_drained_under_load_and_put_back_and_no_request_fails() {
    let _turn = e2e::beside();
    let up = Up::shop();
    up.settle(Duration::from_secs(30), 1);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).http).collect();
    let load = Load::start(&doors, Does::AddsAndLooks);
    let wrong = up.coppice(&["node", "drain", "n9"]).wrong();
    assert!(wrong.contains("n9") && wrong.contains("n1, n2, n3"), "{wrong}");

    let said = up.coppice(&["node", "drain", "n2", "--json"]).good();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["event"], &events[1]["event"]), (&"draining".into(), &"drained".into()), "{said}");
    e2e::say(&format!("drained after {} ms", events[1]["millis"]));
    let view = up.status(1).unwrap();
    assert_eq!(clones_at(&view, "n2"), [""; 0]);
    assert_eq!(view["nodes"][1]["drained"], true);
    assert!(up.coppice(&["status"]).good().contains("drained"));
    // Balancers are told; clients that come all the same are served.
    assert_eq!(http::get(up.at(2).api, "/readyz").unwrap().status, 503);
    let serving = view["services"][0]["clones"].as_array().unwrap().iter().filter(|c| c["state"] == "serving").count();
    assert_eq!(serving, 3, "{view}");
    load.go_on(100);

    up.coppice(&["node", "undrain", "n2"]).good();
    up.settle(Duration::from_secs(30), 1);
    assert_eq!(http::get(up.at(2).api, "/readyz").unwrap().status, 200);
    load.go_on(40);
    load.end().no_failures("n2 was drained and put back");
}

fn out_of_use(up: &Up, part: &str) -> bool {
    let view = up.status(2).unwrap();
    view["services"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|s| s["off"].as_array().into_iter().flatten())
        .any(|of| of == part)
}

#[test]
fn services_clones_and_partitions_are_taken_out_of_use_and_put_back() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let program = e2e::program::service_program("clumsy.py");
    let text = format!(
        "[service.web]\nrun = [\"python3\", {program:?}]\nclones = 3\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\nenv = {{ NOTES = {:?} }}\nsandbox = \"none\"\n\
         [[service.web.partition]]\nname = \"search\"\npath = \"/search\"\n\
         [[service.web.partition]]\nname = \"sale\"\npath = \"/sale\"\ndrop = {{ status = 410 }}\n\
         [[service.web.partition]]\nname = \"pay\"\npath = \"/pay\"\ndrop = {{ service = \"spare\" }}\n\
         [service.spare]\nrun = [\"python3\", {program:?}]\nclones = 1\nhealth = \"/health\"\nhttp = {{ host = \"spare.example\" }}\n\
         env = {{ NOTES = {:?} }}\nsandbox = \"none\"\n",
        up.dir.join("notes").display().to_string(),
        up.dir.join("spare").display().to_string()
    );
    up.apply("web.toml", &text).good();
    up.settle(Duration::from_secs(30), 1);
    let ask = |path: &str| http::get(up.at(2).http, path).unwrap();
    let soon = |what: &str, path: &str, status: u16| {
        wait_for(what, Duration::from_secs(10), || {
            let reply = ask(path);
            if reply.status == status { Ok(reply) } else { Err(format!("{}: {}", reply.status, reply.text())) }
        })
        .0
    };
    for (part, why) in [
        ("shop", "there is no service \"shop\"; declared are: spare, web"),
        ("web/9", "clones 0 to 2"),
        ("web:x", "search"),
    ] {
        let wrong = up.coppice(&["disable", part]).wrong();
        assert!(wrong.contains(why), "{part}: {wrong}");
    }

    up.coppice(&["disable", "web:search"]).good();
    let refused = soon("the partition is refused", "/search?q=1", 503);
    assert!(refused.text().contains("maintenance") && refused.header("retry-after").is_some(), "{}", refused.text());
    assert_eq!(ask("/").status, 200);
    let why = up.coppice(&["route", "explain", "http://x/search"]).good();
    assert!(why.contains("out of use"), "{why}");

    // What a partition has for requests that are dropped answers for it.
    up.coppice(&["disable", "web:sale"]).good();
    let dropped = soon("the drop handler answers", "/sale", 410);
    assert!(dropped.text().contains("maintenance"), "{}", dropped.text());
    up.coppice(&["disable", "web:pay"]).good();
    let view = up.status(1).unwrap();
    assert_eq!(view["services"][1]["partitions"][2]["name"], "pay", "{view}");
    wait_for("the spare service answers", Duration::from_secs(10), || match ask("/pay") {
        reply if reply.status == 200 && out_of_use(&up, "web:pay") => Ok(()),
        reply => Err(reply.text()),
    });
    up.coppice(&["disable", "spare"]).good();
    soon("nobody answers", "/pay", 503);
    for part in ["web:sale", "web:pay", "spare"] {
        up.coppice(&["enable", part]).good();
    }

    up.coppice(&["disable", "web/1"]).good();
    wait_for("its clone is gone, the others serve", Duration::from_secs(15), || {
        let view = up.status(3)?;
        let names: Vec<_> =
            view["services"][1]["clones"].as_array().unwrap().iter().map(|c| c["name"].to_string()).collect();
        if names == ["\"web/0\"", "\"web/2\""] { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let page = up.coppice(&["status"]).good();
    assert!(page.contains("out of use: web/1, web:search"), "{page}");

    up.coppice(&["disable", "web"]).good();
    soon("the service is refused", "/", 503);
    wait_for("its clones are gone", Duration::from_secs(15), || {
        let clones = up.status(3)?["services"][1]["clones"].clone();
        if clones == serde_json::json!([]) { Ok(()) } else { Err(clones.to_string()) }
    });
    for part in ["web", "web/1", "web:search"] {
        up.coppice(&["enable", part]).good();
    }
    assert!(up.coppice(&["enable", "web"]).good().contains("in use already"));
    up.settle(Duration::from_secs(30), 1);
    assert_eq!((ask("/").status, ask("/search").status), (200, 200));
}
