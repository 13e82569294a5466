//! The binary under test: the one beside this test, of the same profile, as new as its sources.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Path of the `coppice` program. `COPPICE_BIN` names another one, which is then taken as it is.
pub fn coppice() -> &'static Path {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| match std::env::var_os("COPPICE_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => beside("coppice"),
    });
    program.as_ref().unwrap_or_else(|why| panic!("{why}"))
}

/// Path of an example's program, the package of this name.
pub fn example(package: &str) -> PathBuf {
    beside(package).unwrap_or_else(|why| panic!("{why}"))
}

/// `debug` or `release`, or whatever the profile of this test is called.
pub fn profile() -> String {
    let name = target_folder().file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "debug".into())
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository")
}

/// A program that a test's service runs, from tests/programs.
pub fn service_program(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).display().to_string()
}

/// target/debug: tests lie in deps/ below it.
fn target_folder() -> PathBuf {
    let me = std::env::current_exe().expect("a running test has a path");
    let folder = me.parent().expect("a program lies in a folder");
    if folder.ends_with("deps") {
        folder.parent().expect("deps lies in a folder").to_owned()
    } else {
        folder.to_owned()
    }
}

/// The one of this package.
const A_TEST: &str = "all";

fn beside(package: &str) -> Result<PathBuf, String> {
    let folder = target_folder();
    let program = folder.join(package);
    // Several test files start at once under some runners; one of them builds.
    let lock = File::create(folder.join(".e2e-build.lock")).expect("the target folder is ours");
    lock.lock().expect("a lock of our own");
    if !is_fresh(&program) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let profile = if profile() == "debug" { "dev".to_owned() } else { profile() };
        let mut build = Command::new(cargo);
        // As `cargo test --workspace` builds what it is made of: for this package alone, or without a test beside it, other
        // features of dependencies would be chosen, and nearly all of them built once more (two minutes).
        build.args(["build", "--quiet", "--locked", "--workspace", "--bin", package, "--test", A_TEST]);
        build.args(["--profile", &profile]);
        // What cargo told this test of its package is not so of that build: `ring` would be built anew for it, and all that uses it.
        let of_the_test = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_the_test)) {
            build.env_remove(name);
        }
        let built = build.current_dir(repository()).status().expect("cargo starts");
        if !built.success() {
            return Err(format!("{package} does not build"));
        }
        // Cargo leaves a fresh program alone, so an unrelated edit would have it asked again each time.
        let touched = File::open(&program).and_then(|f| f.set_modified(SystemTime::now()));
        touched.expect("the program was just built");
    }
    Ok(program)
}

fn is_fresh(program: &Path) -> bool {
    let Ok(built) = fs::metadata(program).and_then(|m| m.modified()) else { return false };
    let root = repository();
    let newest = ["crates", "examples", "services", "Cargo.lock"].iter().filter_map(|of| newest(&root.join(of))).max();
    newest.is_some_and(|newest| newest <= built)
}

fn newest(path: &Path) -> Option<SystemTime> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_dir() {
        return meta.modified().ok();
    }
    fs::read_dir(path).ok()?.flatten().filter_map(|entry| newest(&entry.path())).max()
}
