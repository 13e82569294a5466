//! Profiles over three nodes and a Python program: a change goes with the next request at any node, also after a node was killed, and
//! while the database cannot be read the one that was seen last goes with it.

use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::{Up, http, wait_for};

const WITHIN: Duration = Duration::from_secs(60);

/// What the service is told of a reader who comes through a node; `forged` as if clients could say it themselves.
fn told(up: &Up, n: u8, path: &str, cookie: &str) -> Result<String, String> {
    let headers = [("Cookie", cookie), ("Coppice-Profile", "e30"), ("Coppice-Profile-Id", "forged")];
    let reply = http::request(up.at(n).http, "GET", path, &headers, b"").map_err(|error| error.to_string())?;
    if reply.status == 200 { Ok(reply.text()) } else { Err(format!("{}: {}", reply.status, reply.text())) }
}

fn ask(up: &Up, n: u8, method: &str, headers: &[(&str, &str)], body: &str) -> Result<http::Reply, String> {
    let reply = http::request(up.at(n).api, method, "/v1/profiles/readers/ann", headers, body.as_bytes());
    reply.map_err(|error| error.to_string())
}

#[test]
fn what_a_reader_wants_goes_with_the_next_request_at_any_node() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    let program = e2e::program::service_program("wishes.py");
    let text = format!(
        "[namespace.people]\nclass = \"sql\"\n\
         [profile.readers]\nnamespace = \"people\"\nkey = \"cookie:reader\"\n\
         schema = {{ quality = {{ type = \"integer\", min = 1, max = 100 }}, loud = \"boolean\", word = \"text\" }}\n\
         [service.site]\nrun = [\"python3\", {program:?}]\nclones = 3\nhealth = \"/health\"\nsandbox = \"none\"\n\
         http = {{ path = \"/\" }}\nprofile = \"readers\"\n\
         [[service.site.partition]]\nname = \"made\"\npath = \"/made\"\npipeline = \"page\"\n\
         [[pipeline.page.step]]\nworker = \"loud\"\nprofile = {{ loud = true }}\nparams = {{ word = \"{{profile.word}}\" }}\n\
         [service.loud]\nrun = [\"sh\", \"-c\", \"tr a-z A-Z; printf %s $JOB_PARAM_WORD\"]\nworker = {{ form = \"once\" }}\n"
    );
    up.apply("site.toml", &text).good();
    let token = up.token("people");
    let bearer = format!("Bearer {token}");
    let own = ("Authorization", bearer.as_str());
    wait_for("it is told that there is none", WITHIN, || match told(&up, 1, "/", "reader=ann")? {
        said if said == "ann - now" => Ok(()),
        other => Err(other),
    });
    assert_eq!(told(&up, 2, "/", "other=ann").unwrap(), "nobody - now", "and nothing that clients say themselves");
    assert_eq!(ask(&up, 1, "GET", &[own], "").unwrap().status, 404);
    assert_eq!(ask(&up, 1, "GET", &[("Authorization", "Bearer none")], "").unwrap().status, 401);
    let (deep, long) =
        (format!("{{\"word\": {}", "[".repeat(9_000)), format!(r#"{{"word": "{}"}}"#, "x".repeat(4_000)));
    for (body, status, says) in [
        (r#"{"quality": 101}"#, 422, r#""quality\" must be at most 100"#),
        (r#"{"quality": "9"}"#, 422, r#""quality\" must be an integer"#),
        (r#"{"loud": true, "size": 1}"#, 422, r#""size\" is not in its schema"#),
        (&long, 422, "3000 are the most"),
        (&"x".repeat(99_000), 413, "12000"),
        (&deep, 400, "JSON object"),
        (r#"["loud"]"#, 400, "JSON object"),
    ] {
        let bad = ask(&up, 1, "PUT", &[own], body).unwrap();
        assert!(bad.status == status && bad.text().contains(says), "{}: {}", bad.status, bad.text());
    }

    // What one node acknowledged, the next request at each sees.
    for quality in 1..=12 {
        let n = quality % 3 + 1;
        let put = || match ask(&up, n, "PUT", &[own], &format!("{{\"quality\": {quality}}}"))? {
            reply if reply.status == 200 => Ok(()),
            reply => Err(format!("{}: {}", reply.status, reply.text())),
        };
        wait_for("it is kept", WITHIN, put);
        for n in 1..=3 {
            assert_eq!(told(&up, n, "/", "reader=ann").unwrap(), format!("ann {{\"quality\":{quality}}} now"));
        }
    }
    let kept = || {
        let text = http::get(up.at(2).api, "/metrics").map_err(|error| error.to_string())?.text();
        let count = text.lines().find_map(|line| line.strip_prefix("coppice_http_profiles_kept_total "));
        count.map(str::to_owned).ok_or(text)
    };
    wait_for("nodes keep what they read", WITHIN, || {
        told(&up, 2, "/", "reader=ann")?;
        if kept()? == "0" { Err("it is read each time".to_owned()) } else { Ok(()) }
    });
    // Whoever changes it, and however.
    let sql = r#"{"batch": ["update profile_readers set profile = '{\"word\":\"sql\"}'"]}"#;
    let done = http::request(up.at(3).api, "POST", "/v1/ns/people/sql", &[own], sql.as_bytes()).unwrap();
    assert_eq!(done.status, 200, "{}", done.text());
    for n in 1..=3 {
        assert_eq!(told(&up, n, "/", "reader=ann").unwrap(), "ann {\"word\":\"sql\"} now");
    }
    let shown = ask(&up, 3, "GET", &[own], "").unwrap();
    let (tag, version) = (shown.header("etag").unwrap().to_owned(), shown.json().unwrap()["version"].as_u64().unwrap());
    assert!(version >= 12 && tag == format!("\"{version}\""), "{tag}");
    let lost = ask(&up, 1, "PUT", &[own, ("If-Match", "\"1\"")], "{}").unwrap();
    assert_eq!(lost.status, 412, "{}", lost.text());
    assert_eq!(ask(&up, 1, "PUT", &[own, ("If-None-Match", "*")], "{}").unwrap().status, 412);

    // Steps of a pipeline are for some alone, with what they want.
    let wants = r#"{"loud": true, "word": "please"}"#;
    assert_eq!(ask(&up, 2, "PUT", &[own, ("If-Match", &tag)], wants).unwrap().status, 200);
    wait_for("its answers are made as it wants", WITHIN, || match told(&up, 3, "/made", "reader=ann")? {
        said if said.starts_with("ANN {") && said.ends_with("NOWplease") => Ok(()),
        other => Err(other),
    });
    assert_eq!(told(&up, 1, "/made", "reader=bob").unwrap(), "bob - now", "others' are not");

    // A node that hangs has what was before, and does not give it.
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::STOP);
    let wants = r#"{"word":"late"}"#;
    let put = || match ask(&up, 1, "PUT", &[own], wants)? {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("{}: {}", reply.status, reply.text())),
    };
    wait_for("it is kept without that node", WITHIN, put);
    let late = |n: u8| match told(&up, n, "/", "reader=ann") {
        Ok(said) if said.ends_with(" now") => {
            assert_eq!(said, format!("ann {wants} now"));
            Ok(())
        }
        other => Err(format!("{other:?}")),
    };
    wait_for("others give it", WITHIN, || late(2));
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::CONT);
    wait_for("it goes on", WITHIN, || late(3));

    // A node less is nothing to notice; two less, and what was seen last goes with the request.
    let ann = || told(&up, 1, "/", "reader=ann");
    let now = ann().unwrap();
    assert!(now.ends_with(" now"), "{now}");
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::STOP);
    wait_for("a majority answers", WITHIN, || match ann()? {
        said if said == now => Ok(()),
        other => Err(other),
    });
    Proc::of(up.node_pid(2)).unwrap().signal(Signal::STOP);
    wait_for("the one that was seen last goes with it", WITHIN, || match ann()? {
        said if said == now.replace(" now", " old") => Ok(()),
        other => Err(other),
    });
    for n in [2, 3] {
        Proc::of(up.node_pid(n)).unwrap().signal(Signal::CONT);
    }
    wait_for("it is read again", WITHIN, || match ann()? {
        said if said == now => Ok(()),
        other => Err(other),
    });
    Proc::of(up.node_pid(1)).unwrap().signal(Signal::KILL);
    let gone = || match ask(&up, 2, "DELETE", &[own], "")? {
        reply if reply.status == 204 => Ok(()),
        reply => Err(format!("{}: {}", reply.status, reply.text())),
    };
    wait_for("it is taken away", WITHIN, gone);
    assert_eq!(told(&up, 3, "/", "reader=ann").unwrap(), "ann - now");
}
