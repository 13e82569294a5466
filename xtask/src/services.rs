//! What belongs to a built-in service, whose code is a folder of `services/`: its declaration, its line in the program's list,
//! its page and its end-to-end test. One that lacks any of them would compile, and be known to nobody or tried by nobody.

use std::path::Path;

use crate::Finding;

/// The list of the program, with a line for each.
const LIST: &str = "crates/coppice/src/services.rs";

/// Findings of all services.
pub fn check(root: &Path) -> Vec<Finding> {
    let list = std::fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let folders = std::fs::read_dir(root.join("services")).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let lacks = |name: &String| {
        let lacks = lacking(name, &list, &|path| root.join(path).exists());
        lacks.into_iter().map(|what| Finding { place: format!("services/{name}"), line: 0, what }).collect::<Vec<_>>()
    };
    names.iter().flat_map(lacks).collect()
}

/// What is missing of one.
fn lacking(name: &str, list: &str, is_there: &dyn Fn(&str) -> bool) -> Vec<String> {
    let places = [
        format!("services/{name}/coppice.toml"),
        format!("docs/guide/{name}.md"),
        format!("tests/tests/all/beside/{name}.rs"),
    ];
    let mut lacks: Vec<String> = places.into_iter().filter(|place| !is_there(place)).collect();
    lacks.iter_mut().for_each(|place| place.insert_str(0, "lacks "));
    if !list.lines().any(|line| line.trim() == name) {
        lacks.push(format!("has no line in {LIST}"));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_lacks_is_found() {
        let list = "services! {\n    till\n}\n";
        assert_eq!(lacking("till", list, &|_| true), [""; 0]);
        assert_eq!(lacking("tills", list, &|_| true), ["has no line in crates/coppice/src/services.rs"]);
        let found = lacking("till", list, &|path| !path.starts_with("docs/"));
        assert_eq!(found, ["lacks docs/guide/till.md"]);
    }
}
