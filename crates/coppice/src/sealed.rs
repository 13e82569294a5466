//! What of a backup is for who has its key alone: secrets of services and certificates of the cluster. The key is a file that the operator
//! keeps elsewhere. A node seals with a key that is made of it for one backup; the file's own never leaves this machine.
//!
//! ```text
//! COPSEAL\n  name of the key (4)  salt (32)  what the node sealed (node/src/sealed.rs)
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use node::sealed::{Contents, KEY_BYTES, Kept};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::client::{Api, Reply};
use crate::operate::service_path;
use crate::plain::{plain, say};

/// In a backup's folder.
pub const FILE: &str = "secrets.sealed";

const MAGIC: &[u8; 8] = b"COPSEAL\n";
const NAME_BYTES: usize = 4;
const SALT_BYTES: usize = 32;
/// A key file begins so, that nobody takes another one for it.
const KEY_BEGINS: &str = "coppice backup key ";
/// Key files have one line.
const KEY_FILE_BYTES_MAX: u64 = 1 << 10;

#[derive(Clone, Debug, clap::Args)]
pub struct KeyArgs {
    /// The file; it must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The operator's key of backups.
pub struct Key([u8; KEY_BYTES]);

/// Makes a key file.
pub fn make(args: &KeyArgs) -> Result<(), String> {
    let key = Key(chance()?);
    let cannot = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!(
            "{} is there already, and may be what older backups open with; choose another name",
            args.file.display()
        ),
        _ => format!("cannot write {}: {e}", args.file.display()),
    };
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file).map_err(cannot)?;
    let line = format!("{KEY_BEGINS}{}\n", hex(&key.0));
    out.write_all(line.as_bytes()).and_then(|()| out.sync_all()).map_err(cannot)?;
    say!(
        "{} has key {}: keep a copy of it where the backups are not, as nothing opens their secrets without it",
        args.file.display(),
        key.name()
    );
    Ok(())
}

impl Key {
    /// Reads a key file, which must not be open to others, nor lie in `folder` with what it opens.
    pub fn read(file: &Path, folder: &Path) -> Result<Self, String> {
        let cannot = |e: std::io::Error| format!("cannot read {}: {e}", file.display());
        let from = File::open(file).map_err(cannot)?;
        let mode = from.metadata().map_err(cannot)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!("others may read {0}: chmod 600 {0}", file.display()));
        }
        let inside = |folder: &Path| Ok::<_, std::io::Error>(file.canonicalize()?.starts_with(folder.canonicalize()?));
        if inside(folder).unwrap_or(false) {
            return Err(format!(
                "{} lies in {} with what it opens; keep it elsewhere",
                file.display(),
                folder.display()
            ));
        }
        let mut text = String::new();
        let is_read = from.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).is_ok();
        let key = text.strip_prefix(KEY_BEGINS).filter(|_| is_read).and_then(|rest| unhex(rest.trim_end()));
        let key = key.ok_or_else(|| format!("{0} is no key; `coppice backup key {0}` makes one", file.display()))?;
        Ok(Self(key))
    }

    /// What people tell keys apart by; says nothing of the key.
    pub fn name(&self) -> String {
        hex(&self.name_bytes())
    }

    fn name_bytes(&self) -> [u8; NAME_BYTES] {
        *self.derived(&[], b"name").first_chunk().expect("a key is longer than its name")
    }

    /// The key of one backup: of this cluster, of this moment.
    fn of(&self, salt: &[u8], (cluster, at_ms): (&str, u64)) -> [u8; KEY_BYTES] {
        self.derived(salt, format!("backup {at_ms} {cluster}").as_bytes())
    }

    fn derived(&self, salt: &[u8], what: &[u8]) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        let of = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let what = [what];
        let made = of.expand(&what, hkdf::HKDF_SHA256);
        made.and_then(|made| made.fill(&mut bytes)).expect("a key of HKDF-SHA256 has 32 bytes");
        bytes
    }
}

/// Secrets and certificates of the cluster, sealed by the node that is asked: a file's bytes, and how many they are.
pub async fn ask(api: &Api, key: &Key, of: (&str, u64)) -> Result<(Vec<u8>, Contents), String> {
    let salt: [u8; SALT_BYTES] = chance()?;
    let once = key.of(&salt, of);
    let reply = api.post("/v1/sealed", "", hex(&once)).await?;
    if reply.status == 404 || reply.status == 405 {
        return Err("the node is of an older program, and gives no secrets for a backup; bring it up to date".into());
    }
    let sealed = reply.bytes()?;
    // As it will be read: what does not open now does not open later.
    let contents = node::sealed::open(&once, &sealed).ok_or("what the node sealed does not open")?;
    let bytes = [&MAGIC[..], &key.name_bytes(), &salt, &sealed].concat();
    Ok((bytes, contents))
}

/// Opens what stands in this file of a backup.
pub fn open(file: &Path, key: &Key, of: (&str, u64)) -> Result<Contents, String> {
    let bytes = fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let parts = || {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (name, rest) = rest.split_first_chunk::<NAME_BYTES>()?;
        let (salt, sealed) = rest.split_first_chunk::<SALT_BYTES>()?;
        Some((name, salt, sealed))
    };
    let (name, salt, sealed) = parts().ok_or_else(|| format!("{} is damaged", file.display()))?;
    if *name != key.name_bytes() {
        return Err(format!(
            "{} was sealed with key {}, and the file of --key has key {}",
            file.display(),
            hex(name),
            key.name()
        ));
    }
    node::sealed::open(&key.of(salt, of), sealed)
        .ok_or_else(|| format!("{} is damaged, or is not of this backup", file.display()))
}

/// Sets all of it in a cluster in which no service is declared yet. Returns what could not be set, and why.
pub async fn set(api: &Api, contents: &Contents) -> Result<Vec<String>, String> {
    for Kept { service, name, value } in &contents.secrets {
        let path = service_path(service, &format!("/secrets/{name}"))?;
        api.put(&path, value.0.clone()).await?.json()?;
    }
    let mut left = Vec::new();
    for Kept { name, value, .. } in &contents.certificates {
        let reply = api.put(&format!("/v1/certificates/{name}"), value.0.clone()).await?;
        match (reply.status, reply.json()) {
            (_, Ok(_)) => (),
            // It has ended meanwhile, say; the rest is worth having.
            (400, Err(why)) => left.push(format!("certificate {} was not set: {why}", plain(name))),
            (_, Err(why)) => return Err(why),
        }
    }
    Ok(left)
}

/// How many secrets and certificates the cluster has.
pub async fn count(api: &Api, services: impl Iterator<Item = &str>) -> Result<(usize, usize), String> {
    // Nodes of older programs have none, and do not know the address.
    let list = |reply: Reply| match reply.status {
        404 => Ok(Vec::new()),
        _ => reply.json().map(|json| json.as_array().cloned().unwrap_or_default()),
    };
    let mut secrets = 0;
    for service in services {
        secrets += list(api.get(&service_path(service, "/secrets")?).await?)?.len();
    }
    let all = list(api.get("/v1/certificates").await?)?;
    let has = |of: &&serde_json::Value| of["ends_at_ms"].as_u64().unwrap_or(0) > 0;
    Ok((secrets, all.iter().filter(has).count()))
}

fn chance<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system gives no random numbers".to_owned())?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (digits.len() == 2 * N).then(|| bytes.try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("coppice-sealed-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("backups")).unwrap();
        folder
    }

    #[test]
    fn a_key_is_made_once_is_for_its_owner_alone_and_is_nothing_else() {
        let folder = folder("key");
        let (file, backups) = (folder.join("key"), folder.join("backups"));
        make(&KeyArgs { file: file.clone() }).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let key = Key::read(&file, &backups).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&hex(&key.0)) && !text.contains(&key.name()));
        assert!(make(&KeyArgs { file: file.clone() }).unwrap_err().contains("is there already"));
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "it stays what it was");
        assert_ne!(key.of(b"a", ("c", 1)), key.of(b"b", ("c", 1)));
        assert_ne!(key.of(b"a", ("c", 1)), key.of(b"a", ("c", 2)));
        assert_ne!(key.of(b"a", ("c", 1)), key.of(b"a", ("d", 1)));

        let refused = |file: &Path| Key::read(file, &backups).err().unwrap();
        fs::copy(&file, backups.join("key")).unwrap();
        assert!(refused(&backups.join("key")).contains("lies in"));
        assert!(refused(&folder.join("none")).contains("cannot read"));
        for (bad, at) in
            [("", 0), ("coppice backup key 12", 1), (&text[..text.len() - 2], 2), (&text.replace('k', "c"), 3)]
        {
            let other = folder.join(format!("bad-{at}"));
            fs::write(&other, bad).unwrap();
            fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(refused(&other).contains("is no key"), "{bad:?}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&file).contains("chmod 600"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_a_file_of_this_form_and_of_this_key_is_opened() {
        let folder = folder("file");
        let (file, key, other) = (folder.join(FILE), Key([1; KEY_BYTES]), Key([2; KEY_BYTES]));
        let of = ("c", 7);
        for (bytes, why) in [
            (b"".to_vec(), "is damaged"),
            (MAGIC.to_vec(), "is damaged"),
            ([&b"COPSEAM\n"[..], &[0; 100]].concat(), "is damaged"),
            ([&MAGIC[..], &other.name_bytes(), &[0; 100]].concat(), "was sealed with key"),
            ([&MAGIC[..], &key.name_bytes(), &[0; 100]].concat(), "damaged, or is not of this backup"),
        ] {
            fs::write(&file, &bytes).unwrap();
            let told = open(&file, &key, of).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
