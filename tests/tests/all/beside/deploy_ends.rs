//! What becomes of a deploy when programs cannot start, services are out of use, or folders are missing: each command ends
//! with a reason, and a good version follows a bad one.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::{Up, wait_for};
use serde_json::Value;

/// Its port comes by its command line alone.
const OWN: &str = r#"
[service.app]
run = ["python3", "-u", "app.py", "--port=$PORT"]
clones = 2
health = "/health"
http = { host = "*" }
"#;

fn folder(up: &Up, program: &str) -> PathBuf {
    let dir = up.dir.join("app");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("coppice.toml"), OWN).unwrap();
    fs::write(dir.join("app.py"), program).unwrap();
    dir
}

fn says(word: &str) -> String {
    let program = fs::read_to_string(e2e::program::service_program("says.py")).unwrap();
    let by_words = program.replace("os.environ[\"PORT\"]", "__import__(\"sys\").argv[1].removeprefix(\"--port=\")");
    assert_ne!(by_words, program);
    by_words.replace("SAYS", word).replace("FAILS", "False")
}

const TYPO: &str = "import sys\nprint('typo')\nsys.exit(2)\n";

/// Versions of the clones that serve.
fn serving(up: &Up) -> Result<Vec<u64>, String> {
    let view = up.status(1)?;
    let clones = view["services"][0]["clones"].as_array().cloned().unwrap_or_default();
    Ok(clones.iter().filter(|c| c["state"] == "serving").filter_map(|c| c["version"].as_u64()).collect())
}

/// What happened to clones of the app since some number of events: kind and text.
fn events(up: &Up) -> Vec<(String, String)> {
    let all = up.coppice(&["events", "--json"]).good();
    let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let its = all.filter(|e| e["who"].as_str().is_some_and(|who| who.starts_with("app/")));
    its.map(|e| (e["kind"].as_str().unwrap().into(), e["text"].as_str().unwrap().into())).collect()
}

#[test]
fn a_good_version_follows_one_that_cannot_start_and_every_wait_ends_with_its_reason() {
    let _turn = e2e::beside();
    let up = Up::bare(2);
    let dir = folder(&up, TYPO).display().to_string();
    let said = up.coppice(&["deploy", &dir]).wrong();
    for part in ["version 1 of app does not serve: app/", "died 2 times on n", "exit status 2", "| typo", "logs/app-"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    folder(&up, &says("two"));
    let said = up.coppice(&["deploy", &dir]).good();
    assert!(said.contains("version 2 serves after"), "{said}");
    assert_eq!(serving(&up).unwrap(), [2, 2]);

    // Of one that follows a good one nothing is told but that its clones come and the others go.
    let before = events(&up).len();
    folder(&up, &says("three"));
    up.coppice(&["deploy", &dir]).good();
    wait_for("the former clones are gone", Duration::from_secs(20), || {
        let view = up.status(1)?;
        let clones = view["services"][0]["clones"].as_array().map_or(0, Vec::len);
        if clones == 2 { Ok(()) } else { Err(view["services"][0].to_string()) }
    });
    let told = events(&up).split_off(before);
    let count = |kind: &str| told.iter().filter(|(of, _)| of == kind).count();
    assert_eq!((count("clone-started"), count("clone-stopped"), count("clone-died")), (2, 2, 0), "{told:?}");

    // Out of use: that is said, and it comes to its clones when it is in use again, whatever stood before.
    up.coppice(&["disable", "app"]).good();
    folder(&up, TYPO);
    let said = up.coppice(&["deploy", &dir]).wrong();
    assert!(said.contains("app is out of use") && said.contains("coppice enable app"), "{said}");
    up.coppice(&["rollback", "app", "--no-wait"]).good();
    folder(&up, &says("five"));
    up.coppice(&["deploy", &dir]).wrong();
    up.coppice(&["enable", "app"]).good();
    wait_for("the new version serves", Duration::from_secs(60), || {
        let versions = serving(&up)?;
        if versions == [5, 5] { Ok(()) } else { Err(format!("{versions:?}")) }
    });

    // A file that says something else of the program makes the next version, and leaves those that were.
    wait_for("the new version stands", Duration::from_secs(20), || {
        let view = up.status(1)?;
        if view["services"][0]["next"].is_null() { Ok(()) } else { Err(view["services"][0].to_string()) }
    });
    let said = up.apply("app.toml", &OWN.replace("\"-u\", ", "")).good();
    assert!(said.contains("version 5 -> 6, which is rolled out"), "{said}");
    // What is exported names a folder; one that is not here is named, and nothing waits for it.
    let exported = up.coppice(&["export"]).good();
    let line = exported.lines().find(|line| line.starts_with("code = ")).unwrap();
    let other = "ab".repeat(32);
    let path = up.write("all.toml", &exported.replace(line, &format!("code = \"{other}\"")));
    let said = up.coppice(&["apply", "-f", &path.display().to_string()]).wrong();
    assert!(said.contains(&format!("service.app.code: the folder {other} is not in this cluster")), "{said}");
}
