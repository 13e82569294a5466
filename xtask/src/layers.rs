//! Who may use whom: the table of architecture.md as data, compared with the workspace's real dependencies. A crate that
//! is not in the table is a finding, so the table grows with the house. Two kinds of crates are all alike and have no row. Built-in
//! services, the crates of `services/`, use the SDK and nothing else of ours, and the program alone uses them. State classes, the
//! crates that `state` uses, know the contract of `class` and no other class, and `state` alone uses them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Finding;

/// A crate, the crates of ours it may use, and the crates of others that it must not.
struct Layer {
    name: &'static str,
    uses: &'static [&'static str],
    below_water: bool,
}

const fn below(name: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { name, uses, below_water: true }
}

const fn above(name: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { name, uses, below_water: false }
}

const TABLE: &[Layer] = &[
    below("base", &[]),
    below("flow", &["base"]),
    below("cluster", &["base", "flow"]),
    below("class", &["base", "flow", "cluster"]),
    // The exception among classes: a group of `linear` may have a database of class `sql` beside its keys.
    below("sql", &["base", "flow", "class"]),
    below("linear", &["base", "flow", "cluster", "class", "sql"]),
    // The list of classes: the one place that names them all. All that have no row may stand there, too.
    below("state", &["base", "flow", "class", "sql", "linear"]),
    below("clones", &["base", "flow", "cluster", "state"]),
    below("channels", &["base"]),
    below("node", &["base", "flow", "cluster", "class", "state", "clones", "channels"]),
    above("host", &["base", "flow"]),
    above("sim", &["base", "flow", "cluster", "state", "clones", "node"]),
    // `state` for the types of session operations and their replies alone: what a front door asks is `node::Ask`, and
    // that carries them. Nothing of a brick or stub may be reached so; `node` hands none out.
    above("edge", &["base", "flow", "class", "clones", "channels", "node", "host", "state"]),
    above("sdk", &["base", "flow", "state", "host"]),
    // What stands before a worker's program: what is declared of it, its cage, and a service for the rest.
    above("stub", &["base", "clones", "host", "sdk"]),
    above("monitor", &["base", "flow", "cluster", "host"]),
    // The program wires everything that serves; only the simulator is not its business.
    above("coppice", &["base", "flow", "cluster", "state", "clones", "node", "host", "edge", "monitor", "sdk", "stub"]),
    // Parsers from everywhere; nothing may use it.
    above("fuzz", &["base", "cluster", "state", "clones", "node", "edge", "mail"]),
    // Experiments and end-to-end tests run the program from outside, and speak to it as its clients do. Only what takes
    // less than a microsecond cannot be measured from there: `state` and `base` are for the cookies alone.
    above("lab", &["base", "state"]),
    // Services use the SDK, and nothing else of ours.
    above("chorus", &["sdk"]),
    above("notes", &["sdk"]),
    above("parrot", &["sdk"]),
    above("shout", &["sdk"]),
    above("e2e", &[]),
    above("xtask", &[]),
];

/// Crates of others that bring the world with them: clocks, sockets, threads, entropy. `rand_core` is not one: it holds
/// the traits by which a library (foca) takes our seeded generator.
const NOT_BELOW_WATER: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "crossbeam",
    "fastrand",
    "getrandom",
    "hyper",
    "hyper-util",
    "mio",
    "nix",
    "parking_lot",
    "rand",
    "rayon",
    "rcgen",
    "reqwest",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-rustls",
    "tracing",
    "tracing-subscriber",
];

/// What a state class may use of ours.
const OF_CLASSES: &[&str] = &["base", "flow", "class"];
/// The crate that has them all.
const HAS_CLASSES: &str = "state";

/// What a built-in service may use of ours.
const OF_SERVICES: &[&str] = &["sdk"];
/// The crate that has them all.
const HAS_SERVICES: &str = "coppice";

/// Compares the table with what `cargo metadata --no-deps` prints. Dependencies of tests count too, except that tests of
/// anything may use `sim` never and everything else as the table says.
pub fn check(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let is_service = |package: &&Value| {
        let folder = std::path::Path::new(package["manifest_path"].as_str().unwrap_or_default()).ancestors().nth(2);
        folder.is_some_and(|folder| folder.ends_with("services"))
    };
    let services: BTreeSet<&str> = packages.iter().filter(is_service).filter_map(|of| of["name"].as_str()).collect();
    let has_classes = packages.iter().find(|package| package["name"].as_str() == Some(HAS_CLASSES));
    let used_there = has_classes.and_then(|package| package["dependencies"].as_array()).into_iter().flatten();
    let used_there = used_there.filter_map(|dependency| dependency["name"].as_str());
    let has_row = |name: &str| TABLE.iter().any(|layer| layer.name == name);
    let classes: BTreeSet<&str> = used_there.filter(|used| ours.contains(used) && !has_row(used)).collect();
    let mut findings = Vec::new();
    if packages.is_empty() {
        findings.push(finding("workspace", "cargo metadata shows no packages".into()));
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let service = services.contains(name).then_some(&Layer { name: "", uses: OF_SERVICES, below_water: false });
        let class = classes.contains(name).then_some(&Layer { name: "", uses: OF_CLASSES, below_water: true });
        let Some(layer) = service.or(class).or_else(|| TABLE.iter().find(|layer| layer.name == name)) else {
            findings.push(finding(name, "is not in the table of who may use whom (xtask/src/layers.rs)".into()));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"].as_str() == Some("dev");
            let may = layer.uses.contains(&used)
                || name == HAS_SERVICES && services.contains(used)
                || name == HAS_CLASSES && classes.contains(used) && !services.contains(used);
            if used != name && ours.contains(used) && !may {
                let may = layer.uses.join(" ");
                findings.push(finding(name, format!("uses {used}; it may use: {may}")));
            }
            if layer.below_water && !in_tests && NOT_BELOW_WATER.contains(&used) {
                findings.push(finding(name, format!("uses {used}, which brings the world below the waterline")));
            }
        }
    }
    findings
}

/// Whether the file of this path belongs to a crate below the waterline: code of any crate in `crates/` that is not said to be above,
/// as classes have no row.
pub fn is_below_water(path: &str) -> bool {
    let mut parts = path.split('/');
    let (Some("crates"), Some(name), Some("src")) = (parts.next(), parts.next(), parts.next()) else { return false };
    !TABLE.iter().any(|layer| !layer.below_water && layer.name == name)
}

fn finding(place: &str, what: String) -> Finding {
    Finding { place: place.to_owned(), line: 0, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, uses: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<_> = uses.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    fn check_all(packages: &[Value]) -> Vec<String> {
        check(&json!({ "packages": packages })).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_house_in_order_has_no_findings() {
        let packages = [package("base", &[("bytes", None)]), package("flow", &[("base", None)])];
        assert!(check_all(&packages).is_empty());
    }

    #[test]
    fn a_crate_that_reaches_too_far_is_found() {
        let both =
            [package("base", &[]), package("cluster", &[]), package("host", &[("base", None), ("cluster", None)])];
        assert_eq!(check_all(&both), ["host: uses cluster; it may use: base flow"]);
        let in_tests = [package("sim", &[]), package("node", &[("sim", Some("dev"))])];
        assert_eq!(check_all(&in_tests), ["node: uses sim; it may use: base flow cluster class state clones channels"]);
    }

    #[test]
    fn a_crate_that_brings_the_world_below_the_waterline_is_found() {
        let packages =
            [package("state", &[("tokio", None), ("proptest", Some("dev"))]), package("host", &[("tokio", None)])];
        assert_eq!(check_all(&packages), ["state: uses tokio, which brings the world below the waterline"]);
    }

    #[test]
    fn a_built_in_service_uses_the_sdk_alone_and_the_program_alone_uses_it() {
        let service = |uses: &str| {
            let mut package = package("till", &[(uses, None)]);
            package["manifest_path"] = json!("/somewhere/services/till/Cargo.toml");
            package
        };
        let (sdk, program) = (package("sdk", &[]), package("coppice", &[("till", None)]));
        assert_eq!(check_all(&[sdk.clone(), service("sdk"), program]), [""; 0]);
        assert_eq!(check_all(&[package("base", &[]), service("base")]), ["till: uses base; it may use: sdk"]);
        let found = check_all(&[sdk, service("sdk"), package("monitor", &[("till", None)])]);
        assert_eq!(found, ["monitor: uses till; it may use: base flow cluster host"]);
    }

    #[test]
    fn a_state_class_knows_the_contract_alone_and_the_list_of_classes_alone_knows_it() {
        let crates = |uses: &str| {
            let state = package("state", &[("tally", None), ("base", None)]);
            [package("base", &[]), package("clones", &[]), package("tally", &[(uses, None)]), state]
        };
        assert_eq!(check_all(&crates("base")), [""; 0]);
        assert_eq!(check_all(&crates("clones")), ["tally: uses clones; it may use: base flow class"]);
        assert_eq!(check_all(&crates("tokio")), ["tally: uses tokio, which brings the world below the waterline"]);
        let other = [&crates("base")[..], &[package("node", &[("tally", None)])]].concat();
        let found = check_all(&other);
        assert_eq!(found, ["node: uses tally; it may use: base flow cluster class state clones channels"]);
        assert!(is_below_water("crates/tally/src/lib.rs") && is_below_water("crates/base/src/time.rs"));
        assert!(!is_below_water("crates/edge/src/lib.rs") && !is_below_water("crates/tally/tests/all.rs"));
    }

    #[test]
    fn an_unknown_crate_and_an_empty_workspace_are_found() {
        assert!(check_all(&[package("shed", &[])])[0].contains("not in the table"));
        assert_eq!(check_all(&[]).len(), 1);
    }

    #[test]
    fn the_table_has_no_ring() {
        for (at, layer) in TABLE.iter().enumerate() {
            for used in layer.uses {
                let place = TABLE.iter().position(|other| other.name == *used);
                // Services have no row: those whose parsers are fuzzed are named there.
                let is_service = matches!((layer.name, *used), ("fuzz", "mail"));
                let forward_ok = matches!(layer.name, "coppice");
                let is_below = place.is_some_and(|place| place < at || forward_ok);
                assert!(is_below || is_service, "{} uses {used}", layer.name);
            }
        }
    }
}
