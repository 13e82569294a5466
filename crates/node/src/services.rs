//! What an operator does with one declared service without its file: another number of clones, or its end.

use clones::Size;
use clones::spec::ServiceSpec;
use cluster::root::{Change, Declared};

use crate::declared::{Diff, Kept, after, all, json, kept, kind, listed, remove_service};
use crate::deploy;
use crate::mistakes::mistakes;
use crate::runs::no_scale;

/// Another number of clones.
///
/// # Errors
/// A sentence that says what would be right.
pub fn scale(now: &Declared, service: &str, size: Size) -> Result<Diff, String> {
    let Kept { file, spec: before } = record(now, service)?;
    let mut diff = Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } };
    if let Some(why) = no_scale(&before, service) {
        return Err(why);
    }
    if before.clones == size {
        return Ok(diff);
    }
    if deploy::deployed(now, service).is_some_and(|deployed| deployed.next.is_some()) {
        return Err(format!(
            "a version of {service} is being rolled out; wait, or `coppice rollback {service}` takes it back"
        ));
    }
    diff.lines.push(format!("~ service {service}: clones {} -> {size}", before.clones));
    let mut spec = ServiceSpec { clones: size, ..before };
    if size.is_fixed() && spec.wait.take().is_some() {
        diff.lines.push(format!("! service {service}: `wait` is of a range, and goes with it"));
    }
    diff.lines.push(format!("! the next apply of {file} sets the clones that it declares; change them there, too"));
    let put = (kind::SERVICE.to_owned(), service.to_owned(), json(&Kept { file, spec }));
    diff.change.puts.push(put);
    let errors = mistakes(&after(now, &diff.change), &[service]);
    if errors.is_empty() { Ok(diff) } else { Err(sentences(&errors)) }
}

/// Ends a service: its clones, versions and secrets. Namespaces stay.
///
/// # Errors
/// A sentence: there is none of this name, or something declared needs it.
pub fn remove(now: &Declared, service: &str) -> Result<Diff, String> {
    let Kept { spec, .. } = record(now, service)?;
    let mut diff = Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } };
    diff.lines.push(format!("- service {service}"));
    remove_service(now, service, &mut diff);
    let errors = mistakes(&after(now, &diff.change), &[]);
    if !errors.is_empty() {
        return Err(format!("{service} is needed, and was not removed: {}", sentences(&errors)));
    }
    if !spec.namespaces.is_empty() {
        diff.lines.push(format!("! its namespaces stay, with what they hold: {}", spec.namespaces.join(", ")));
    }
    Ok(diff)
}

fn record(now: &Declared, service: &str) -> Result<Kept<ServiceSpec>, String> {
    let found = now.get(kind::SERVICE, service).and_then(|bytes| {
        let file = serde_json::from_slice::<Kept<serde_json::Value>>(bytes).ok()?.file;
        Some(Kept { file, spec: kept::<ServiceSpec>(bytes)? })
    });
    found.ok_or_else(|| {
        let known = listed(all::<ServiceSpec>(now, kind::SERVICE).keys().map(String::as_str));
        format!("there is no service {service:?}; declared are: {known}")
    })
}

fn sentences(errors: &[clones::spec::SpecError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "[service.shop]\nrun = [\"a\"]\nhttp = {}\nclones = { min = 1, max = 4 }\nwait = \"1s\"\nnamespaces = [\"carts\"]\n\
        [service.api]\nrun = [\"a\"]\nhttp = { path = \"/api\" }\n\
        [[service.api.partition]]\nname = \"all\"\ndrop = { service = \"shop\" }\n\
        [service.job]\nrun = [\"a\"]\n[namespace.carts]\nclass = \"session\"\n\
        [service.nightly]\nrun = [\"a\"]\nschedule = \"@daily\"\n";

    fn with(text: &str) -> Declared {
        let now = Declared { version: 1, ..Declared::default() };
        let diff = crate::declared::diff(&now, "shop.toml", text, &[7; 32]).unwrap();
        after(&now, &diff.change)
    }

    #[test]
    fn a_service_gets_another_number_of_clones_and_keeps_the_rest() {
        let now = with(TWO);
        let diff = scale(&now, "shop", 3.into()).unwrap();
        assert_eq!(diff.lines[0], "~ service shop: clones 1 to 4 -> 3");
        assert!(diff.lines[1].contains("`wait`") && diff.lines[2].contains("apply of shop.toml"), "{:?}", diff.lines);
        let later = after(&now, &diff.change);
        let (before, spec) = (record(&now, "shop").unwrap(), record(&later, "shop").unwrap());
        assert_eq!(spec.spec, ServiceSpec { clones: 3.into(), wait: None, ..before.spec });
        assert_eq!(spec.file, "shop.toml", "the file still removes it");
        assert!(scale(&later, "shop", 3.into()).unwrap().lines.is_empty());
        let other = scale(&now, "shop", Size { min: 2, max: 5 }).unwrap();
        assert_eq!(other.lines.len(), 2, "a range keeps its wait: {:?}", other.lines);
        for (service, size, why) in [
            ("shop", Size::from(300), "clones: 300 is over the limit of 256"),
            ("shop", Size { min: 0, max: 4 }, "min is 1 at least"),
            ("shop", Size { min: 5, max: 4 }, "min 5 is over max 4"),
            ("job", Size { min: 1, max: 4 }, "write a number"),
            ("nightly", Size::from(1), "no standing clones to scale"),
            ("shp", Size::from(1), "declared are: api, job, nightly, shop"),
        ] {
            let told = scale(&now, service, size).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_service_is_removed_with_what_is_its_own_and_not_if_another_needs_it() {
        let now = with(TWO);
        let told = remove(&now, "shop").unwrap_err();
        assert!(told.contains("was not removed") && told.contains("service.api.partition.all.drop"), "{told}");
        assert!(remove(&now, "nobody").unwrap_err().contains("declared are: api, job, nightly, shop"));
        let now = after(&now, &remove(&now, "api").unwrap().change);
        let secret = base::process::Private(b"x".as_slice().into());
        let set = crate::secrets::set(&now, ("shop", "PW"), &secret, 1, &[1; 32]).unwrap();
        let now = after(&now, &set.change);
        let diff = remove(&now, "shop").unwrap();
        let lines = ["- service shop", "- secret shop PW", "! its namespaces stay, with what they hold: carts"];
        assert_eq!(diff.lines, lines);
        let now = after(&now, &diff.change);
        let left: Vec<&str> = now.of_kind(kind::SERVICE).map(|(name, _)| name).collect();
        assert_eq!((left, now.of_kind(kind::NAMESPACE).count()), (vec!["job", "nightly"], 1));
        assert!(crate::secrets::opened(&now).is_empty());
    }
}
