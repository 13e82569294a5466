//! What is read of a folder of backups.

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("coppice-backup-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    make_folder(&folder.join("code")).unwrap();
    folder
}

#[test]
fn what_is_left_out_says_why() {
    assert!(why_left_out("session").contains("--all"));
    assert!(why_left_out("cache").contains("a copy of what is kept elsewhere"));
}

/// A backup without namespaces, with code of this digest.
fn one(folder: &Path, name: &str, code: &str) -> PathBuf {
    let place = folder.join(name);
    make_folder(&place.join("ns")).unwrap();
    let declaration = write(&place.join("declaration.toml"), b"[namespace.a]\n").unwrap();
    let digest = hex(code.as_bytes());
    write(&folder.join("code").join(&digest), code.as_bytes()).unwrap();
    let manifest = Manifest {
        format: FORMAT,
        program: "0.1.0".into(),
        cluster: "c".into(),
        at_ms: 1,
        ended_ms: 2,
        declaration,
        code: [(digest, code.len() as u64)].into(),
        namespaces: BTreeMap::new(),
        left_out: BTreeMap::new(),
        sealed: None,
    };
    write(&place.join("manifest.json"), &manifest.written()).unwrap();
    place
}

#[test]
fn the_newest_is_taken_and_older_ones_go_with_their_code() {
    let folder = folder("older");
    assert!(read(&folder, None).unwrap_err().contains("no backup in"));
    for (name, code) in [("2026-11-24T00-00-00Z", "a"), ("2026-11-25T00-00-00Z", "b"), ("2026-11-26T00-00-00Z", "b")] {
        one(&folder, name, code);
    }
    make_folder(&folder.join(".part-2026-11-27T00-00-00Z")).unwrap();
    make_folder(&folder.join("2026-11-28T00-00-00Z")).unwrap();
    let (place, manifest) = read(&folder, None).unwrap();
    assert!(place.ends_with("2026-11-26T00-00-00Z"), "one without a manifest is none");
    manifest.check(&folder, &place).unwrap();
    assert!(read(&folder, Some("2026-11-24T00-00-00Z")).is_ok());
    assert!(read(&folder, Some("2026-11-23T00-00-00Z")).unwrap_err().contains("2026-11-25T00-00-00Z"));
    assert_eq!(remove_older(&folder, 2).unwrap(), ["2026-11-24T00-00-00Z"]);
    assert_eq!(names(&folder.join("code")).unwrap(), [hex(b"b")]);
    assert_eq!(remove_older(&folder, 2).unwrap(), Vec::<String>::new());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_byte_that_is_another_one_is_noticed_in_every_file() {
    let folder = folder("flipped");
    let place = one(&folder, "2026-11-26T00-00-00Z", "code");
    let code = folder.join("code").join(hex(b"code"));
    for file in [place.join("manifest.json"), place.join("declaration.toml"), code] {
        let whole = fs::read(&file).unwrap();
        let check = || read(&folder, None).and_then(|(place, manifest)| manifest.check(&folder, &place));
        check().unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&file, &flipped).unwrap();
            // Space between the words of the manifest means nothing.
            let is_space = file.ends_with("manifest.json") && whole[at].is_ascii_whitespace();
            assert!(check().is_err() || is_space, "{} at {at}", file.display());
        }
        fs::write(&file, &whole[..whole.len() - 2]).unwrap();
        assert!(check().is_err(), "{} is cut", file.display());
        fs::write(&file, &whole).unwrap();
    }
    let newer = json!({"manifest": {"format": FORMAT + 1, "else": 1}, "sha256": ""}).to_string();
    fs::write(place.join("manifest.json"), newer).unwrap();
    assert!(read(&folder, None).unwrap_err().contains("a newer one wrote it"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn namespaces_are_declared_before_the_services_that_use_them() {
    let text = "[namespace.a]\nclass = \"linear\"\nfunctions = \"s\"\n\n[namespace.b]\n\n[service.s]\nrun = [\"x\"]\n";
    let all = namespaces_of(text, &|name| Some(name.to_owned())).unwrap();
    assert_eq!(all, "[namespace.a]\nclass = \"linear\"\n\n[namespace.b]\n");
    let one = namespaces_of(text, &|name| (name == "b").then(|| "c".to_owned())).unwrap();
    assert_eq!(one, "[namespace.c]\n");
    assert_eq!(namespaces_of("", &|_| None).unwrap(), "[namespace]\n");
    assert!(namespaces_of("namespace = 1", &|_| None).is_err());
}

#[test]
fn a_folder_is_called_as_its_moment() {
    assert_eq!(moment(1_795_662_727_123), "2026-11-26T03-12-07Z");
    assert!(is_moment(&moment(0)) && is_moment(&moment(1_795_662_727_123)));
    for other in ["", "code", ".part-2026-11-26T03-12-07Z", "2026-11-26T03:12:07Z", "2026-11-26T03-12-07Zx"] {
        assert!(!is_moment(other), "{other}");
    }
}
