//! Deploys and rollbacks as changes of the declaration: a folder that every node can fetch becomes a version of a
//! service. A version that follows another is rolled out by the manager, whose verdict is a change, too.

use clones::deploy::{Deployed, Program, TAKEN_BACK, Version};
use clones::spec::ServiceSpec;
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};

use crate::declared::{self, Diff, Kept, json, kept, kind};
use crate::runs;

/// A folder that is to become a version of a service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wish {
    /// The service; none if the folder declares it.
    #[serde(default)]
    pub service: Option<String>,
    /// The folder's own declaration: the text of its `coppice.toml`.
    #[serde(default)]
    pub declaration: Option<String>,
    /// SHA-256 of the archive.
    pub code: String,
    pub files: u64,
    pub bytes: u64,
}

/// Versions of a service, if it was ever deployed.
pub fn deployed(now: &Declared, service: &str) -> Option<Deployed> {
    serde_json::from_slice(now.get(kind::DEPLOY, service)?).ok()
}

/// Archives that must be on every node.
pub fn codes(now: &Declared) -> std::collections::BTreeSet<String> {
    let all = now.of_kind(kind::DEPLOY).filter_map(|(_, bytes)| serde_json::from_slice::<Deployed>(bytes).ok());
    let mut codes: std::collections::BTreeSet<String> =
        all.flat_map(|deployed| deployed.codes().cloned().collect::<Vec<_>>()).collect();
    codes.extend(declared::all::<ServiceSpec>(now, kind::SERVICE).into_values().filter_map(|spec| spec.code));
    codes
}

fn record(now: &Declared, service: &str) -> Result<Kept<ServiceSpec>, String> {
    let missing = || {
        let known = declared::listed(now.of_kind(kind::SERVICE).map(|(name, _)| name));
        format!("there is no service {service:?}; declared are: {known}. A folder with a coppice.toml declares its own")
    };
    let bytes = now.get(kind::SERVICE, service).ok_or_else(missing)?;
    let spec = kept::<ServiceSpec>(bytes).ok_or_else(missing)?;
    let file =
        serde_json::from_slice::<Kept<serde_json::Value>>(bytes).map_or_else(|_| String::new(), |kept| kept.file);
    Ok(Kept { file, spec })
}

fn put(change: &mut Change, service: &str, file: String, spec: ServiceSpec, deployed: &Deployed) {
    change.puts.retain(|(of, name, _)| !((of == kind::SERVICE || of == kind::DEPLOY) && name == service));
    change.puts.push((kind::SERVICE.into(), service.into(), json(&Kept { file, spec })));
    change.puts.push((kind::DEPLOY.into(), service.into(), json(deployed)));
}

/// What applying a file changes. A version stays what it is: where a file declares another program for a service that
/// was deployed, that is its next version, and is rolled out.
///
/// # Errors
/// As of [`declared::diff`].
pub fn apply(now: &Declared, file: &str, text: &str, wall_ms: u64, entropy: &[u8; 32]) -> Result<Diff, String> {
    let mut diff = declared::diff(now, file, text, entropy)?;
    let puts = diff.change.puts.iter().filter(|(of, ..)| of == kind::SERVICE);
    let services: Vec<(String, ServiceSpec)> =
        puts.filter_map(|(_, name, bytes)| Some((name.clone(), kept::<ServiceSpec>(bytes)?))).collect();
    for (name, mut spec) in services {
        let known = deployed(now, &name);
        if known.is_none() && spec.code.is_none() {
            if !spec.before.is_empty() {
                return Err(runs::no_versions(file, &name));
            }
            continue;
        }
        let mut all = known.unwrap_or_default();
        let same = |code: &Option<String>| all.versions.iter().rev().find(|v| v.program.code == *code);
        let version = |number: u32, program: Program| {
            let (files, bytes) = same(&program.code).map_or((0, 0), |v| (v.files, v.bytes));
            Version { number, at_ms: wall_ms, files, bytes, program, passed: false, fate: String::new() }
        };
        let program = Program::of(&spec);
        let Some(before) = now.get(kind::SERVICE, &name).and_then(|bytes| kept::<ServiceSpec>(bytes)) else {
            // Named with its folder, which is here: as it was exported elsewhere.
            spec.version = all.begin(version(spec.version, program));
            put(&mut diff.change, &name, file.to_owned(), spec, &all);
            continue;
        };
        let stands = Program::of(&before);
        if stands == program {
            continue;
        }
        let next = version(0, program);
        spec = stands.on(&spec, before.version);
        if all.versions.is_empty() {
            spec.version = all.begin(version(before.version, stands));
        }
        let number = all.add(next);
        diff.lines.push(format!("~ service {name}: version {} -> {number}, which is rolled out", spec.version));
        put(&mut diff.change, &name, file.to_owned(), spec, &all);
    }
    Ok(diff)
}

/// Makes a folder the next version of a service.
///
/// # Errors
/// A sentence that says what would be right.
pub fn deploy(now: &Declared, wish: &Wish, wall_ms: u64, entropy: &[u8; 32]) -> Result<Diff, String> {
    let own = wish.declaration.as_deref().map(|text| declared::only_service(FILE, text)).transpose()?;
    let service = match (&wish.service, &own) {
        (Some(given), Some((own, _))) if given != own => {
            return Err(format!("{FILE} declares service {own:?}, not {given:?}"));
        }
        (Some(name), _) | (None, Some((name, _))) => name.clone(),
        (None, None) => return Err(format!("the folder has no {FILE}; name a declared service with --service")),
    };
    let mut all = deployed(now, &service).unwrap_or_default();
    if let Some(number) = all.next {
        return Err(format!(
            "version {number} of {service} is being rolled out; wait, or `coppice rollback {service}` takes it back"
        ));
    }
    // What the folder declares beside its program holds at once, as if it were applied.
    let mut diff = match &wish.declaration {
        Some(text) => declared::diff(now, &format!("{FILE} of {service}"), text, entropy)?,
        None => Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } },
    };
    let version = |program: Program| {
        let (at_ms, files, bytes) = (wall_ms, wish.files, wish.bytes);
        Version { number: 0, at_ms, files, bytes, program, passed: false, fate: String::new() }
    };
    let before = record(now, &service);
    let mut program = match (&own, &before) {
        (Some((_, spec)), _) => Program::of(spec),
        (None, Ok(before)) => Program::of(&before.spec).in_folder(),
        (None, Err(why)) => return Err(why.clone()),
    };
    program.code = Some(wish.code.clone());
    program
        .on(
            &own.as_ref().map_or_else(|| before.as_ref().expect("looked at just above").spec.clone(), |o| o.1.clone()),
            1,
        )
        .validate()
        .map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(|error| format!("service.{service}.{error}")).collect();
            errors.join("; ")
        })?;
    let Ok(before) = before else {
        let (_, spec) = own.expect("without it there is a service before");
        let number = all.begin(version(program.clone()));
        diff.lines = vec![format!("+ service {service}: version {number}")];
        put(&mut diff.change, &service, format!("{FILE} of {service}"), program.on(&spec, number), &all);
        return Ok(diff);
    };
    let stands = Program::of(&before.spec);
    let (file, mut spec) = match &own {
        Some((_, spec)) => (format!("{FILE} of {service}"), stands.on(spec, before.spec.version)),
        None => (before.file, before.spec.clone()),
    };
    if stands == program {
        let lines = if spec == before.spec { Vec::new() } else { diff.lines };
        let mut change = Change { expect: Some(now.version), ..Change::default() };
        let stands = spec.version;
        if spec != before.spec {
            put(&mut change, &service, file, spec, &all);
        }
        let mut diff = Diff { lines, change };
        runs::again(now, &service, &all, stands, &mut diff);
        return Ok(diff);
    }
    if all.versions.is_empty() {
        // What was declared until now can be gone back to.
        spec.version = all.begin(Version { number: spec.version, files: 0, bytes: 0, ..version(stands) });
    }
    let number = all.add(version(program));
    diff.lines = vec![format!("~ service {service}: version {} -> {number}", spec.version)];
    put(&mut diff.change, &service, file, spec, &all);
    Ok(diff)
}

/// Takes back what is being rolled out, or goes back to an older version.
///
/// # Errors
/// A sentence: there is nothing to go back to.
pub fn rollback(now: &Declared, service: &str, to: Option<u32>) -> Result<Diff, String> {
    let Kept { file, spec } = record(now, service)?;
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    let mut all = deployed(now, service).ok_or_else(|| format!("{service} was never deployed"))?;
    let line = if let (Some(number), None) = (all.next, to) {
        all.take_back("an operator did");
        format!("~ service {service}: version {number} is taken back")
    } else if let Some(number) = all.next {
        return Err(format!("version {number} of {service} is being rolled out; take it back first"));
    } else {
        let older = |v: &&Version| v.number < spec.version && !v.fate.starts_with(TAKEN_BACK);
        let number = match to {
            Some(number) if number == spec.version => return Err(format!("version {number} is the one that serves")),
            Some(number) => number,
            None => match all.versions.iter().rev().find(older) {
                Some(version) => version.number,
                None => return Err(format!("there is no version of {service} before {}", spec.version)),
            },
        };
        if all.version(number).is_none() {
            let known: Vec<String> = all.versions.iter().map(|v| v.number.to_string()).collect();
            return Err(format!("{service} has no version {number}; kept are: {}", known.join(", ")));
        }
        if all.version(number).is_some_and(Version::waits) {
            // It failed before it was to come, and is tried again.
            change.removes.extend(runs::forget_before(now, service));
        }
        all.back_to(number);
        format!("~ service {service}: version {} -> {number}", spec.version)
    };
    put(&mut change, service, file, spec, &all);
    Ok(Diff { lines: vec![line], change })
}

/// What the manager says of a version that it rolled out. None if that is not being rolled out any more.
pub fn verdict(now: &Declared, service: &str, number: u32, take_back: Option<&str>) -> Option<Change> {
    let Kept { file, mut spec } = record(now, service).ok()?;
    let mut all = deployed(now, service).filter(|all| all.next == Some(number))?;
    match take_back {
        Some(why) => all.take_back(why),
        None => {
            spec = all.next_on(&spec)?;
            all.keep();
        }
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    put(&mut change, service, file, spec, &all);
    Some(change)
}

/// What went before a version is done, or failed: then it goes. None if it is no matter any more.
pub fn passed(now: &Declared, service: &str, number: u32, failed: Option<&str>) -> Option<Change> {
    let Kept { file, mut spec } = record(now, service).ok()?;
    let mut all = deployed(now, service).filter(|all| all.version(number).is_some_and(Version::waits))?;
    match failed {
        None => {
            all.pass(number);
            // None of what stands ever started, so there is nobody to be replaced.
            if all.next == Some(number) && all.version(spec.version).is_some_and(Version::waits) {
                spec = all.next_on(&spec)?;
                all.keep();
            }
        }
        Some(why) if all.next == Some(number) => all.take_back(why),
        // The first version has none before it: it waits for a deploy that tries again.
        Some(_) => (),
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    put(&mut change, service, file, spec, &all);
    Some(change)
}

/// The declaration that a folder may bring with it.
pub const FILE: &str = "coppice.toml";

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[service.shop]\nrun = [\"python3\", \"app.py\"]\nhttp = {}\n";

    fn code(n: u8) -> String {
        format!("{n:02x}").repeat(32)
    }

    fn wish(n: u8, declaration: Option<&str>) -> Wish {
        let service = declaration.is_none().then(|| "shop".to_owned());
        Wish { service, declaration: declaration.map(str::to_owned), code: code(n), files: 1, bytes: 10 }
    }

    fn apply(now: &mut Declared, change: Change) {
        assert_eq!(change.expect, Some(now.version));
        for (kind, name) in change.removes {
            now.records.remove(&(kind, name));
        }
        for (kind, name, bytes) in change.puts {
            now.records.insert((kind, name), bytes);
        }
        now.version += 1;
    }

    fn service(now: &Declared) -> ServiceSpec {
        declared::all::<ServiceSpec>(now, kind::SERVICE).remove("shop").unwrap()
    }

    fn empty() -> Declared {
        Declared { version: 1, ..Declared::default() }
    }

    #[test]
    fn a_folder_becomes_a_service_then_a_version_that_is_kept_then_one_goes_back() {
        let mut now = empty();
        let first = deploy(&now, &wish(1, Some(OWN)), 5, &[7; 32]).unwrap();
        assert_eq!(first.lines, ["+ service shop: version 1"]);
        apply(&mut now, first.change);
        assert_eq!((service(&now).code, service(&now).version), (Some(code(1)), 1));
        assert!(deploy(&now, &wish(1, Some(OWN)), 5, &[7; 32]).unwrap().lines.is_empty(), "the same again");

        let second = deploy(&now, &wish(2, None), 6, &[7; 32]).unwrap();
        assert_eq!(second.lines, ["~ service shop: version 1 -> 2"]);
        apply(&mut now, second.change);
        assert_eq!(service(&now).code, Some(code(1)), "it stands until the new one is kept");
        let why = deploy(&now, &wish(3, None), 6, &[7; 32]).unwrap_err();
        assert!(why.contains("version 2 of shop is being rolled out"), "{why}");
        assert_eq!(codes(&now), [code(1), code(2)].into());
        let file = declared::diff(&now, "x.toml", "[service.shop]\nrun = [\"other\"]\n", &[7; 32]).unwrap_err();
        assert!(file.contains("being rolled out"), "{file}");

        let kept = verdict(&now, "shop", 2, None).unwrap();
        apply(&mut now, kept);
        assert_eq!((service(&now).code, service(&now).version), (Some(code(2)), 2));
        assert_eq!(verdict(&now, "shop", 2, None), None, "said again");

        let back = rollback(&now, "shop", None).unwrap();
        assert_eq!(back.lines, ["~ service shop: version 2 -> 1"]);
        apply(&mut now, back.change);
        let kept = verdict(&now, "shop", 1, None).unwrap();
        apply(&mut now, kept);
        assert_eq!((service(&now).code, service(&now).version), (Some(code(1)), 1));
    }

    #[test]
    fn a_bad_version_is_taken_back_and_a_declared_service_can_be_gone_back_to() {
        let mut now = empty();
        let declared = declared::diff(&now, "shop.toml", OWN, &[7; 32]).unwrap();
        apply(&mut now, declared.change);
        let next = deploy(&now, &wish(1, None), 5, &[7; 32]).unwrap();
        apply(&mut now, next.change);
        let taken = verdict(&now, "shop", 2, Some("it fails")).unwrap();
        apply(&mut now, taken);
        assert_eq!((service(&now).code, service(&now).version), (None, 1));
        assert_eq!(deployed(&now, "shop").unwrap().version(2).unwrap().fate, "was taken back: it fails");
        assert!(rollback(&now, "shop", None).unwrap_err().contains("no version of shop before 1"));
        assert!(rollback(&now, "shop", Some(9)).unwrap_err().contains("kept are: 1, 2"));
        // The file that declared it is applied again, and changes nothing of that.
        assert!(declared::diff(&now, "shop.toml", OWN, &[7; 32]).unwrap().lines.is_empty());
    }

    #[test]
    fn a_service_that_ran_in_a_folder_of_the_nodes_runs_in_the_deployed_one() {
        let mut now = empty();
        let elsewhere = format!("{OWN}dir = \"/srv/shop\"\n");
        let declared = declared::diff(&now, "shop.toml", &elsewhere, &[7; 32]).unwrap();
        apply(&mut now, declared.change);
        let next = deploy(&now, &wish(1, None), 5, &[7; 32]).unwrap();
        apply(&mut now, next.change);
        let all = deployed(&now, "shop").unwrap();
        let dirs = [1, 2].map(|number| all.version(number).unwrap().program.dir.as_deref());
        assert_eq!(dirs, [Some("/srv/shop"), None], "gone back to it runs where it did");
        let why = deploy(&empty(), &wish(1, Some(&elsewhere)), 5, &[7; 32]).unwrap_err();
        assert!(why.contains("service.shop.dir: leads out of the folder") && why.contains("leave dir out"), "{why}");
    }

    fn applied(now: &mut Declared, text: &str) -> Vec<String> {
        let diff = super::apply(now, "shop.toml", text, 9, &[7; 32]).unwrap();
        apply(now, diff.change);
        diff.lines
    }

    /// Each key that belongs to a version, and another service's value of it.
    const KEYS: [&str; 7] = [
        "run = [\"python3\", \"other.py\"]",
        "dir = \"sub\"",
        "env = { A = \"1\" }",
        "health = \"/well\"",
        "start_timeout = \"7s\"",
        "stop = { drain = \"7s\" }",
        "namespaces = [\"carts\"]",
    ];

    #[test]
    fn what_belongs_to_a_version_never_changes_a_file_that_says_otherwise_makes_the_next_one() {
        for key in KEYS {
            let mut now = empty();
            let own = "[namespace.carts]\nclass = \"session\"\n[service.shop]\nhttp = {}\n";
            let first = format!("{own}run = [\"python3\", \"app.py\"]\n");
            let wish = Wish { declaration: Some(first.clone()), service: None, ..wish(1, None) };
            let deployed_first = deploy(&now, &wish, 5, &[7; 32]).unwrap();
            apply(&mut now, deployed_first.change);
            let before = service(&now);
            let other = if key.starts_with("run") { format!("{own}{key}\n") } else { format!("{first}{key}\n") };
            let lines = applied(&mut now, &format!("{other}clones = 7\n"));
            assert_eq!(lines.last().unwrap(), "~ service shop: version 1 -> 2, which is rolled out", "{key}");
            assert_eq!(Program::of(&service(&now)), Program::of(&before), "{key}: it stands until the new one is kept");
            assert_eq!((service(&now).clones.max, service(&now).version), (7, 1), "{key}: the rest holds at once");
            let why = super::apply(&now, "shop.toml", &first, 9, &[7; 32]).unwrap_err();
            assert!(why.contains("being rolled out"), "{why}");
            let kept = verdict(&now, "shop", 2, None).unwrap();
            apply(&mut now, kept);
            assert_ne!(Program::of(&service(&now)), Program::of(&before), "{key}");
            assert_eq!(service(&now).code, before.code, "{key}: the folder is the same");
            assert!(applied(&mut now, &format!("{other}clones = 7\n")).is_empty(), "{key}: the same again");
            let back = rollback(&now, "shop", None).unwrap();
            apply(&mut now, back.change);
            let kept = verdict(&now, "shop", 1, None).unwrap();
            apply(&mut now, kept);
            assert_eq!(service(&now), ServiceSpec { clones: 7.into(), ..before }, "{key}: as it was");
        }
    }

    #[test]
    fn what_was_never_deployed_has_no_versions_and_what_is_exported_keeps_its_own() {
        let mut now = empty();
        applied(&mut now, OWN);
        applied(&mut now, &OWN.replace("app.py", "other.py"));
        assert_eq!((service(&now).run[1].as_str(), service(&now).version), ("other.py", 0));
        assert_eq!(deployed(&now, "shop"), None);
        // As another cluster exported it, to one that has its folder.
        let mut now = empty();
        let exported = format!("{OWN}code = \"{}\"\nversion = 7\n", code(1));
        assert_eq!(applied(&mut now, &exported), ["+ service shop"]);
        let next = deploy(&now, &wish(2, None), 6, &[7; 32]).unwrap();
        assert_eq!(next.lines, ["~ service shop: version 7 -> 8"]);
        apply(&mut now, next.change);
        let kept = verdict(&now, "shop", 8, None).unwrap();
        apply(&mut now, kept);
        // A file of an older time names an older folder: that is a new version, as all that follows is.
        let lines = applied(&mut now, &exported);
        assert_eq!(lines.last().unwrap(), "~ service shop: version 8 -> 9, which is rolled out");
        assert_eq!((service(&now).code, service(&now).version), (Some(code(2)), 8));
    }

    #[test]
    fn a_built_in_service_becomes_a_folder_by_its_declaration_and_back() {
        let builtin = "[service.shop]\nbuiltin = \"shop\"\nhttp = {}\n";
        let mut now = empty();
        assert_eq!(applied(&mut now, builtin), ["+ service shop"]);
        let why = deploy(&now, &wish(1, None), 5, &[7; 32]).unwrap_err();
        assert!(why.contains("code: is of another program, and builtin = \"shop\""), "{why}");
        let first = deploy(&now, &wish(1, Some(OWN)), 5, &[7; 32]).unwrap();
        assert_eq!(first.lines, ["~ service shop: version 1 -> 2"]);
        apply(&mut now, first.change);
        assert_eq!(service(&now).command()[1..], ["serve-builtin", "shop"], "it stands until the new one is kept");
        let kept = verdict(&now, "shop", 2, None).unwrap();
        apply(&mut now, kept);
        assert_eq!(
            (service(&now).command(), service(&now).code),
            (vec!["python3".into(), "app.py".into()], Some(code(1)))
        );
        // The file is applied again: the node's own program is the next version, without the folder.
        let lines = applied(&mut now, builtin);
        assert_eq!(lines.last().unwrap(), "~ service shop: version 2 -> 3, which is rolled out");
        let kept = verdict(&now, "shop", 3, None).unwrap();
        apply(&mut now, kept);
        assert_eq!((service(&now).builtin.as_deref(), service(&now).code), (Some("shop"), None));
        let back = rollback(&now, "shop", Some(2)).unwrap();
        apply(&mut now, back.change);
        let kept = verdict(&now, "shop", 2, None).unwrap();
        apply(&mut now, kept);
        assert_eq!((service(&now).builtin, service(&now).code), (None, Some(code(1))));
    }

    #[test]
    fn bad_wishes_say_what_would_be_right() {
        let now = empty();
        for (wish, part) in [
            (Wish { service: None, ..wish(1, None) }, "--service"),
            (wish(1, None), "there is no service"),
            (wish(1, Some("[service.a]\nrun=[\"a\"]\n[service.b]\nrun=[\"b\"]\n")), "declares 2 services"),
            (wish(1, Some("[service.shop]\nrun = []\n")), "names no program"),
            (Wish { service: Some("x".into()), ..wish(1, Some(OWN)) }, "declares service \"shop\", not \"x\""),
            (Wish { code: "zz".into(), ..wish(1, Some(OWN)) }, "SHA-256"),
        ] {
            let why = deploy(&now, &wish, 5, &[7; 32]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
