//! What a clone may reach, worked out from folders that a test made. That the kernel keeps to it is shown by `tests/processes.rs`.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::tls::temp_dir;

fn tree(dir: &Path, folders: &[&str], files: &[&str]) {
    folders.iter().for_each(|name| fs::create_dir_all(dir.join(name)).unwrap());
    files.iter().for_each(|name| fs::write(dir.join(name), "x").unwrap());
}

#[test]
fn other_nodes_beside_are_closed_too_and_what_is_theirs_elsewhere_and_other_folders_are_not() {
    let temp = temp_dir("skin-closed");
    tree(&temp.0, &["n1", "n2", "app", "disk/log"], &["n1/node.key", "n2/node.key", "app/app.py"]);
    std::os::unix::fs::symlink(temp.0.join("disk/log"), temp.0.join("n1/log")).unwrap();
    let root = temp.0.canonicalize().unwrap();
    assert_eq!(closed(&temp.0.join("n1")), ["disk/log", "n1", "n2"].map(|inner| root.join(inner)));
}

#[test]
fn a_program_has_its_folder_and_what_belongs_to_bin_but_no_folder_that_many_share() {
    let temp = temp_dir("skin-program");
    tree(&temp.0, &["app", "venv/bin"], &["app/app.py", "venv/bin/python"]);
    let of = |words: [PathBuf; 2]| of_program(&words.map(PathBuf::into_os_string));
    let found = of([temp.0.join("venv/bin/python"), temp.0.join("app/app.py")]);
    for inner in ["venv/lib", "venv/pyvenv.cfg", "venv/bin", "app", "app/app.py"] {
        assert!(found.contains(&temp.0.join(inner)), "{inner}: {found:?}");
    }
    assert!(!found.contains(&temp.0) && !found.contains(&temp.0.join("venv")), "{found:?}");
    let found = of([temp.0.join("app"), "/".into()]);
    assert!(found.contains(&temp.0.join("app")) && !found.contains(&temp.0), "{found:?}");
    assert!(!found.contains(&"/".into()), "{found:?}");
    assert!(is_wide(&Path::new("/home").join("somebody")));
    for wide in ["/", "/tmp", "/srv", "/var/tmp"] {
        assert!(is_wide(Path::new(wide)), "{wide}");
        assert_eq!(with_prefix(Path::new(wide)), Vec::<PathBuf>::new(), "{wide}");
    }
}

#[test]
fn scratch_is_removed_whatever_a_program_did_to_it_and_what_its_links_lead_to_stays() {
    let temp = temp_dir("skin-scratch");
    tree(&temp.0, &["n1", "theirs"], &["theirs/kept"]);
    let node = temp.0.join("n1");
    let scratch = Scratch::start(&node).unwrap();
    let made = scratch.make("shop/2", 7).unwrap();
    assert!(made.ends_with("scratch/shop-2-7"), "{made:?}");
    tree(&made, &["shut/deep"], &["shut/deep/file"]);
    std::os::unix::fs::symlink(temp.0.join("theirs"), made.join("out")).unwrap();
    fs::set_permissions(made.join("shut"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    remove(&made).unwrap();
    assert!(!made.exists() && temp.0.join("theirs/kept").exists());
    remove(&made).unwrap();

    // A node that was killed leaves it.
    tree(&scratch.make("shop/2", 8).unwrap(), &[], &["left"]);
    std::os::unix::fs::symlink(temp.0.join("theirs"), node.join("scratch/out")).unwrap();
    Scratch::start(&node).unwrap();
    assert_eq!(inner(&node.join("scratch")), Vec::<PathBuf>::new());
    assert!(temp.0.join("theirs/kept").exists());
}
