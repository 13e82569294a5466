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
    assert!(why_left_out("session", 10).contains("--all"));
    assert!(why_left_out("cache", 10).contains("a copy of what is kept elsewhere"));
    let too_new = why_left_out("sql", 9);
    assert!(too_new.contains("from level 10 on, and the nodes agree on level 9"), "{too_new}");
    assert_eq!((super::too_new("sql", 10), super::too_new("linear", 1)), (None, None));
}

#[test]
fn the_address_of_a_store_is_no_folder_and_says_what_to_do() {
    let wrong = super::folder("s3://bucket/b").unwrap_err();
    assert!(wrong.contains("aws s3 sync /mnt/b s3://bucket/b") && wrong.contains("rclone"), "{wrong}");
    for place in ["/mnt/b", "b", "C:/b", "./a://b"] {
        assert_eq!(super::folder(place), Ok(place.into()));
    }
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
fn a_folder_is_of_one_cluster() {
    let folder = folder("whose");
    assert_eq!(is_of(&folder, "other"), Ok(()), "nobody's yet");
    one(&folder, "2026-11-24T00-00-00Z", "a");
    assert_eq!(is_of(&folder, "c"), Ok(()));
    let wrong = is_of(&folder, "other").unwrap_err();
    assert!(wrong.contains("has backups of the cluster c, and this one is other: name another folder"), "{wrong}");
    fs::remove_dir_all(folder).unwrap();
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
fn a_folder_is_called_as_its_moment() {
    assert_eq!(moment(1_795_662_727_123), "2026-11-26T03-12-07Z");
    assert!(is_moment(&moment(0)) && is_moment(&moment(1_795_662_727_123)));
    for other in ["", "code", ".part-2026-11-26T03-12-07Z", "2026-11-26T03:12:07Z", "2026-11-26T03-12-07Zx"] {
        assert!(!is_moment(other), "{other}");
    }
}

/// A dump without keys.
fn empty_dump() -> Vec<u8> {
    use state::class::dump::{Head, Part, Record, Writer};
    let head = Head {
        format: 1,
        namespace: "bank".into(),
        class: "linear".into(),
        at_ms: 1,
        on_disk: true,
        program: "0.1.0".into(),
    };
    let (mut writer, mut out) = (Writer::default(), bytes::BytesMut::new());
    writer.write(&Record::Head(head), &mut out);
    writer.write(&Record::Part(Part { from: 0, to: u64::MAX, version: 1 }), &mut out);
    writer.end(&mut out);
    out.to_vec()
}

/// A backup whose only namespace has what changed since another one, or all of it.
fn with_namespace(folder: &Path, name: &str, since: Option<&str>) {
    let place = one(folder, name, "code");
    let mut manifest = Manifest::read(&place.join("manifest.json")).unwrap();
    let file = |name: &str| {
        let bytes = if name == GONE { Vec::new() } else { empty_dump() };
        write(&place.join(format!("ns/bank.{name}")), &bytes).unwrap()
    };
    let written = file(if since.is_some() { CHANGED } else { "dump" });
    let (bytes, sha256) = (written.bytes, written.sha256.clone());
    let since = since.map(|at| Since { at: at.into(), base: written, gone: file(GONE) });
    let namespace = Namespace { class: "linear".into(), at_ms: 1, keys: 0, bytes, sha256, since };
    manifest.namespaces.insert("bank".into(), namespace);
    write(&place.join("manifest.json"), &manifest.written()).unwrap();
}

#[test]
fn what_others_stand_on_is_kept_and_looked_at() {
    let folder = folder("stands");
    let [whole, changed, other, newest] =
        ["2026-11-24T00-00-00Z", "2026-11-25T00-00-00Z", "2026-11-26T00-00-00Z", "2026-11-27T00-00-00Z"];
    with_namespace(&folder, whole, None);
    with_namespace(&folder, changed, Some(whole));
    with_namespace(&folder, other, Some(whole));
    let check = || read(&folder, None).and_then(|(place, manifest)| manifest.check(&folder, &place));
    check().unwrap();
    assert_eq!(remove_older(&folder, 1).unwrap(), [changed]);
    check().unwrap();
    let base = folder.join(whole).join("ns/bank.dump");
    let bytes = fs::read(&base).unwrap();
    fs::write(&base, &bytes[1..]).unwrap();
    let why = check().unwrap_err();
    assert!(
        why.contains("has what changed since 2026-11-24T00-00-00Z, and needs it") && why.contains("cut short"),
        "{why}"
    );
    assert!(base_of(&folder, "bank", "linear").unwrap().is_none(), "nothing stands on what is damaged");
    fs::write(&base, &bytes).unwrap();
    let at = |class| base_of(&folder, "bank", class).unwrap().map(|base| base.at);
    assert_eq!(at("soft"), None, "of another class");
    assert_eq!(at("linear"), None, "changes as large as all of it: the next one is whole");
    with_namespace(&folder, newest, None);
    assert_eq!(at("linear").as_deref(), Some(newest));
    assert_eq!(remove_older(&folder, 1).unwrap(), [whole, other]);
    fs::remove_dir_all(&folder).unwrap();
}
