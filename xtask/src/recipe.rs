//! What a new class costs outside its own folders, counted of class `scratch`, which was made by `docs/recipes/class.md` alone. The recipe
//! names the files; a test fails when they are others.

use std::path::Path;

/// Its own: they are new files, and nothing but the class is in them.
const OWN: [&str; 4] = [
    "crates/scratch/",
    "crates/edge/src/api/offers/scratch.rs",
    "crates/edge/src/api/offers/scratch/",
    "tests/tests/all/beside/scratch.rs",
];

/// How code names it.
const NAMES: [&str; 11] = [
    "Class::Scratch",
    "Scratch: scratch",
    "SCRATCH: Number",
    "scratch::",
    "scratch.workspace",
    "scratch = {",
    "crates/scratch",
    "--scratch",
    "mod scratch",
    "below(\"scratch\"",
    "class = \\\"scratch\\\"",
];

/// Files of code outside its own folders that name it, of `files`, in order.
pub fn mentions(root: &Path, files: &[String]) -> Vec<String> {
    let is_own = |name: &String| OWN.iter().any(|own| name.starts_with(own)) || name == "xtask/src/recipe.rs";
    let names_it = |name: &&String| {
        let text = std::fs::read_to_string(root.join(name)).unwrap_or_default();
        NAMES.iter().any(|word| text.contains(word))
    };
    let mut found: Vec<String> = files.iter().filter(|name| !is_own(name)).filter(names_it).cloned().collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_of_a_class_names_the_files_that_a_new_class_touches() {
        let root = crate::root();
        let named = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let mut files: Vec<String> = crate::sources(&root).iter().map(|path| named(path)).collect();
        let crates = std::fs::read_dir(root.join("crates")).unwrap();
        files.extend(crates.map(|entry| named(&entry.unwrap().path().join("Cargo.toml"))));
        files.push("Cargo.toml".into());
        let found = mentions(&root, &files);
        let recipe = std::fs::read_to_string(root.join("docs/recipes/class.md")).unwrap();
        let walk = recipe.split("## The walk").nth(1).expect("it has the walk");
        let listed: Vec<&str> = walk.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(listed, found, "the walk in docs/recipes/class.md lists what names class scratch");
        let told = format!("**{} files**", found.len());
        assert!(walk.contains(&told), "the walk says {told}");
    }
}
