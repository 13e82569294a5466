//! Nothing that a node writes can be read by other users of the machine, whatever the folder was that it was given.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use e2e::{Yard, http, wait_for};

/// What group or others could reach, below a folder.
fn open_to_others(dir: &Path) -> Vec<String> {
    let (mut open, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        // Files come and go while a node runs.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|found| found.path()));
        }
        if !meta.is_symlink() && meta.mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), meta.mode() & 0o7777));
        }
    }
    open
}

const APP: &str =
    "[service.app]\nrun = [\"python3\", \"app.py\"]\nclones = 1\nhealth = \"/health\"\nhttp = { host = \"*\" }\n";

#[test]
fn a_folder_that_was_there_before_and_all_that_a_running_node_makes_in_it_are_closed_to_others() {
    let _turn = e2e::beside();
    let mut yard = Yard::new();
    // As a package, a volume or a person makes it.
    let dir = yard.node_dir(1);
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    yard.found("home");
    let file = "[namespace.kept]\nclass = \"linear\"\n[namespace.carts]\nclass = \"session\"\n";
    yard.apply(1, "ns.toml", file).good();
    let app = yard.dir.join("app");
    fs::create_dir_all(app.join("deep")).unwrap();
    fs::write(app.join("coppice.toml"), APP).unwrap();
    fs::write(app.join("deep/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(app.join("deep/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = fs::read_to_string(e2e::program::service_program("says.py")).unwrap();
    let program = program.replace("b\"SAYS\\n\"", "WAS.encode()").replace("FAILS", "False");
    fs::write(app.join("app.py"), format!("import os\nWAS = oct(os.umask(0o022))\n{program}")).unwrap();
    yard.coppice_within(Duration::from_secs(60), 1, &["deploy", &app.display().to_string()]).good();
    let says = wait_for("the service answers", Duration::from_secs(30), || {
        let reply = http::get(yard.at(1).http, "/").map_err(|e| e.to_string())?;
        if reply.status == 200 { Ok(reply.text().trim().to_owned()) } else { Err(reply.text()) }
    });
    assert_eq!(says.0, "0o22", "what clones make is as they are used to");

    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(open_to_others(&dir), [""; 0]);
    let logs = |name: &str| fs::read_dir(dir.join(name)).unwrap().count();
    let counts = ["log", "logs", "code"].map(logs);
    assert!(counts[0] > 1 && counts[1] + counts[2] > 0, "there was something to look at: {counts:?}");

    // Made open by a former program: mended by the next start.
    yard.kill(1);
    let segment = fs::read_dir(dir.join("log")).unwrap().flatten().map(|found| found.path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|e| e == "seg")).unwrap();
    for path in [&dir, &dir.join("log"), &segment] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    yard.run(1);
    assert_eq!(open_to_others(&dir), [""; 0]);
}
