//! Tests that change what all of a machine sees (its network, its mounts) run as another process, in a namespace of its own:
//! nothing of it is seen outside, and it goes with the process.

use std::process::{Command, Stdio};

use crate::tools;

/// Set for a test that runs within.
const WITHIN: &str = "COPPICE_E2E_APART";

/// Runs this test of this module (`module_path!()`) again in a namespace of this kind (`--net`, `--mount`), and says whether
/// this is that run. An error if there can be no such thing here, or if one of these programs is missing.
pub fn enter(module: &str, test: &str, kind: &str, programs: &[&str]) -> Result<bool, String> {
    if is_within() {
        return Ok(true);
    }
    if let Some(missing) = programs.iter().chain(&["unshare"]).find(|program| !tools::has(program)) {
        return Err(format!("{missing} is not installed"));
    }
    let may = Command::new("unshare").args([kind, "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return Err(format!("`unshare {kind}` is not allowed: it needs root"));
    }
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let within = module.split_once("::").map_or("", |(_, within)| within);
    let test = &format!("{within}::{test}");
    let mut command = Command::new("unshare");
    command.arg(kind).arg(own).args(["--exact", test, "--nocapture"]).env(WITHIN, "1");
    let status = command.status().map_err(|e| e.to_string())?;
    assert!(status.success(), "{test} failed in its namespace");
    Ok(false)
}

pub fn is_within() -> bool {
    std::env::var_os(WITHIN).is_some()
}
