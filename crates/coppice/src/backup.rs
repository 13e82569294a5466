//! `coppice backup`, `backup verify` and `restore`: a cluster as a folder. Each backup is a folder of its own in it,
//! named by its moment, which appears when all of it is on the disk; code is beside them by its digest, once.
//!
//! ```text
//! DIR/code/<sha256>                          folders of services, as they were deployed
//! DIR/2026-11-26T10-12-00Z/manifest.json     what belongs to it, with sizes and digests, and a digest of that
//!                          declaration.toml  what `coppice export` prints
//!                          ns/<name>.dump    what `coppice ns dump` writes
//!                          secrets.sealed    secrets and certificates, with --key (sealed.rs)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use node::sealed::Contents;
use node::view::{NamespaceView, View};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::json;
use state::Class;

use crate::client::Api;
use crate::dump;
use crate::happened::clock;
use crate::ns;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};
use crate::sealed::{self, Key, KeyArgs};
use crate::size::Size;

/// Of what stands in a folder; a program reads its own and older ones.
const FORMAT: u32 = 2;
/// Of one without secrets: programs from before there were any in backups read it.
const FORMAT_PLAIN: u32 = 1;
/// One that is not done yet begins so.
const PART: &str = ".part-";
/// A manifest: some hundred bytes for each namespace and each service.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// As which file a restored declaration was applied.
const RESTORED: &str = "restored.toml";

#[derive(Clone, Debug, clap::Args)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// The folder: each backup becomes a folder in it, and code that is there is not written again
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,
    /// Also namespaces whose class keeps nothing on disk (session)
    #[arg(long)]
    all: bool,
    /// Keep so many of the newest backups in the folder, and remove older ones
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Also secrets of services and certificates of the cluster, sealed with the key in this file (`coppice backup key` makes one)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// So much a second at most, like 20MiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    rate: Size,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum BackupCommand {
    /// Read all of a backup, and say whether it is whole
    #[command(after_help = "Example:\n  coppice backup verify /mnt/b --at 2026-11-26T10-12-00Z")]
    Verify(VerifyArgs),
    /// Make a key for the secrets and certificates of backups
    #[command(after_help = "Example:\n  coppice backup key backup.key\n\nKeep a copy where the backups are not.")]
    Key(KeyArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct VerifyArgs {
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The backup of this moment, as its folder is called (default: the newest)
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
    /// Open its secrets, too, with the key in this file
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print what is in it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RestoreArgs {
    /// What `coppice backup` has written
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The backup of this moment, as its folder is called (default: the newest)
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
    /// Only this namespace, also into a cluster that is in use
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// ... under this name
    #[arg(long = "as", value_name = "OTHER", requires = "namespace")]
    other: Option<String>,
    /// The key with which its secrets and certificates were sealed
    #[arg(long, value_name = "FILE", conflicts_with = "namespace")]
    key: Option<PathBuf>,
    /// Leave out its secrets and certificates, whose key is lost
    #[arg(long, conflicts_with_all = ["key", "namespace"])]
    without_secrets: bool,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub const BACKUP_MORE: &str = "\
Examples:
  coppice backup /mnt/b
  coppice backup /mnt/b --keep 14 --rate 20MiB
  coppice backup key backup.key && coppice backup /mnt/b --key backup.key
  coppice backup verify /mnt/b --key backup.key

In it are the declaration, the code that it names, and all namespaces that are on disk; with --key also secrets of
services and certificates of the cluster, sealed. Not in it: the cluster's authority and its key, the operator's token,
tokens and cookie keys of namespaces, of which a restored cluster has new ones.";

pub const RESTORE_MORE: &str = "\
Examples:
  coppice restore /mnt/b
  coppice restore /mnt/b --at 2026-11-26T10-12-00Z --key backup.key
  coppice restore /mnt/b --namespace bank --as bank-before

All of it goes into a new cluster, in which nothing is declared yet. It is read and checked before anything changes.";

/// What belongs to a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    program: String,
    cluster: String,
    /// When it began, and when all was written; milliseconds since 1970.
    at_ms: u64,
    ended_ms: u64,
    declaration: Written,
    /// By digest: bytes.
    code: BTreeMap<String, u64>,
    namespaces: BTreeMap<String, Namespace>,
    /// Namespaces that are declared and not in it, with their class: nothing of it is on disk.
    left_out: BTreeMap<String, String>,
    /// Secrets and certificates, if a key was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Sealed>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Sealed {
    secrets: usize,
    certificates: usize,
    /// What its key is called.
    key: String,
    file: Written,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    bytes: u64,
    sha256: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Namespace {
    class: String,
    /// When its dump began.
    at_ms: u64,
    keys: u64,
    bytes: u64,
    sha256: String,
}

pub async fn backup(args: BackupArgs) -> Result<(), String> {
    match (args.command.clone(), args.folder.clone()) {
        (Some(BackupCommand::Verify(args)), _) => verify(&args),
        (Some(BackupCommand::Key(args)), _) => sealed::make(&args),
        (None, Some(folder)) => make(&args, &folder).await,
        (None, None) => Err("name a folder for the backup".into()),
    }
}

async fn make(args: &BackupArgs, folder: &Path) -> Result<(), String> {
    let api = args.node.operator()?;
    let key = args.key.as_ref().map(|file| Key::read(file, folder)).transpose()?;
    let cannot = |e: io::Error| format!("cannot write {}: {e}", folder.display());
    let at_ms = wall_ms();
    let view = view(&api).await?;
    let services: Vec<&str> = view.services.iter().map(|service| &*service.name).collect();
    let not_sealed = match key {
        Some(_) => (0, 0),
        None => sealed::count(&api, services.into_iter()).await?,
    };
    make_folder(&folder.join("code"))?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(".lock"));
    let lock = lock.map_err(cannot)?;
    lock.try_lock().map_err(|_| format!("another backup to {} is under way", folder.display()))?;
    for rest in names(folder)?.into_iter().filter(|name| name.starts_with(PART)) {
        fs::remove_dir_all(folder.join(rest)).map_err(cannot)?;
    }
    let name = moment(at_ms);
    let (part, place) = (folder.join(format!("{PART}{name}")), folder.join(&name));
    if place.exists() {
        return Err(format!("{} is there already: wait a second", place.display()));
    }
    make_folder(&part.join("ns"))?;
    let made = fill(args, (&api, key.as_ref()), folder, &part, (at_ms, view.cluster)).await;
    let manifest = match made {
        Ok(manifest) => manifest,
        Err(why) => {
            let _ = fs::remove_dir_all(&part);
            return Err(why);
        }
    };
    sync(&part.join("ns"))?;
    sync(&part)?;
    sync(&folder.join("code"))?;
    fs::rename(&part, &place).map_err(cannot)?;
    sync(folder)?;
    let removed = args.keep.map_or(Ok(Vec::new()), |keep| remove_older(folder, keep as usize))?;
    if args.json {
        let removed: Vec<&String> = removed.iter().collect();
        say!("{}", json!({"path": place, "removed": removed, "manifest": manifest}));
        return Ok(());
    }
    for (name, class) in &manifest.left_out {
        say!("left out: {name} ({})", why_left_out(class));
    }
    if not_sealed != (0, 0) {
        let (secrets, certificates) = not_sealed;
        say!("left out: {secrets} secrets and {certificates} certificates; --key FILE takes them, sealed");
    }
    say!("{}: {}", place.display(), manifest.text());
    Ok(())
}

async fn fill(
    args: &BackupArgs,
    (api, key): (&Api, Option<&Key>),
    folder: &Path,
    part: &Path,
    (at_ms, cluster): (u64, String),
) -> Result<Manifest, String> {
    let declaration = api.get("/v1/export").await?.text()?;
    let written = write(&part.join("declaration.toml"), declaration.as_bytes())?;
    let sealed = match key {
        None => None,
        Some(key) => {
            let (bytes, contents) = sealed::ask(api, key, (&cluster, at_ms)).await?;
            let file = write(&part.join(sealed::FILE), &bytes)?;
            let (secrets, certificates) = (contents.secrets.len(), contents.certificates.len());
            Some(Sealed { secrets, certificates, key: key.name(), file })
        }
    };
    let mut code = BTreeMap::new();
    for digest in node::declared::codes(&declaration) {
        let bytes = keep_code(api, &folder.join("code"), &digest).await?;
        code.insert(digest, bytes);
    }
    let json = api.get("/v1/ns").await?.json()?;
    let all: Vec<NamespaceView> = serde_json::from_value(json).map_err(other_version)?;
    let (mut namespaces, mut left_out) = (BTreeMap::new(), BTreeMap::new());
    for NamespaceView { name, class, .. } in all {
        if not_dumped(&class).is_some() {
            left_out.insert(name, class);
            continue;
        }
        let file = dump_file(part, &name)?;
        match dump::dump_to(api, &name, args.rate, &file, args.all).await? {
            Some((head, counts)) => {
                let (class, at_ms, keys, bytes) = (head.class, head.at_ms, counts.items, fs::metadata(&file));
                let bytes = bytes.map_err(|e| format!("cannot read {}: {e}", file.display()))?.len();
                complain!("coppice: {}: {keys} keys, {bytes} bytes", plain(&name));
                namespaces.insert(name, Namespace { class, at_ms, keys, bytes, sha256: digest_of(&file)?.1 });
            }
            None => drop(left_out.insert(name, class)),
        }
    }
    let program = env!("CARGO_PKG_VERSION").to_owned();
    let (format, ended_ms) = (if sealed.is_some() { FORMAT } else { FORMAT_PLAIN }, wall_ms());
    let manifest = Manifest {
        format,
        program,
        cluster,
        at_ms,
        ended_ms,
        declaration: written,
        code,
        namespaces,
        left_out,
        sealed,
    };
    write(&part.join("manifest.json"), &manifest.written())?;
    Ok(manifest)
}

/// Why namespaces of a class are in no backup, whatever is asked.
fn not_dumped(class: &str) -> Option<&'static str> {
    Class::ALL.iter().find(|known| known.name() == class).and_then(|known| known.not_dumped())
}

fn why_left_out(class: &str) -> String {
    match not_dumped(class) {
        Some(why) => format!("class {class} is not dumped: {why}"),
        None => format!("class {class} keeps nothing on disk; --all takes it"),
    }
}

/// Writes an archive, if it is not there and whole; how many bytes it has.
async fn keep_code(api: &Api, folder: &Path, digest: &str) -> Result<u64, String> {
    if !host::code::is_digest(digest) {
        return Err(format!("the declaration names code {digest:?}, which is no digest"));
    }
    let file = folder.join(digest);
    if file.exists() {
        let (bytes, is) = digest_of(&file)?;
        if is == digest {
            return Ok(bytes);
        }
        complain!("coppice: {} is damaged, and written anew", file.display());
    }
    let mut pieces = api.open(&format!("/v1/code/{digest}")).await.map_err(|why| format!("code {digest}: {why}"))?;
    let part = folder.join(format!("{PART}{digest}"));
    let cannot = |e: io::Error| format!("cannot write {}: {e}", part.display());
    let mut out = create(&part)?;
    while let Some(piece) = pieces.next().await? {
        out.write_all(&piece).map_err(cannot)?;
    }
    out.sync_all().map_err(cannot)?;
    let (bytes, is) = digest_of(&part)?;
    if is != digest {
        let _ = fs::remove_file(&part);
        return Err(format!("what the node gave for code {digest} has digest {is}"));
    }
    fs::rename(&part, &file).map_err(cannot)?;
    Ok(bytes)
}

fn verify(args: &VerifyArgs) -> Result<(), String> {
    let (place, manifest) = read(&args.folder, args.at.as_deref())?;
    let key = args.key.as_ref().map(|file| Key::read(file, &args.folder)).transpose()?;
    manifest.check(&args.folder, &place)?;
    let opened = key.map(|key| manifest.open(&place, &key)).transpose()?;
    if args.json {
        say!("{}", json!({"path": place, "manifest": manifest, "opened": opened.is_some()}));
    } else {
        say!("{} is whole: {}", place.display(), manifest.text());
        match (&manifest.sealed, opened) {
            (Some(_), Some(_)) => say!("its secrets and certificates open with this key"),
            (Some(sealed), None) => {
                say!("its secrets and certificates were not opened: --key FILE, the one with key {}", sealed.key);
            }
            (None, _) => (),
        }
    }
    Ok(())
}

pub async fn restore(args: RestoreArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let (place, manifest) = read(&args.folder, args.at.as_deref())?;
    if let Some(namespace) = &args.namespace {
        return restore_one(&args, &api, &place, &manifest, namespace).await;
    }
    let key = args.key.as_ref().map(|file| Key::read(file, &args.folder)).transpose()?;
    manifest.check(&args.folder, &place)?;
    let opened = match (&manifest.sealed, key) {
        (_, Some(key)) => manifest.open(&place, &key)?,
        (Some(sealed), None) if !args.without_secrets => {
            return Err(format!(
                "{} has {}: --key FILE, the one with key {}, puts them back; --without-secrets leaves them out",
                place.display(),
                sealed.text(),
                sealed.key
            ));
        }
        (Some(_) | None, None) => Contents::default(),
    };
    let view = view(&api).await?;
    let other = view.namespaces.iter().find(|namespace| !manifest.has(&namespace.name)).map(|of| &of.name);
    if let Some(name) = view.services.first().map(|service| &service.name).or(other) {
        return Err(format!(
            "{} is declared in this cluster, and a backup is restored into a new one (`coppice init`); \
             --namespace NAME puts back one namespace, also under another name",
            plain(name)
        ));
    }
    let declaration = text_of(&place.join("declaration.toml"))?;
    // Services come last: they are to find all that they had.
    let first = namespaces_of(&declaration, &|name| Some(name.to_owned()))?;
    for line in sealed::set(&api, &opened).await? {
        complain!("coppice: {line}");
    }
    api.post("/v1/apply", RESTORED, first).await?.json()?;
    let mut restored = BTreeMap::new();
    for (name, of) in &manifest.namespaces {
        let loaded = load(&api, &place, name, name, of).await?;
        restored.insert(name, json!({"keys": loaded.keys, "ended": loaded.ended}));
    }
    for digest in manifest.code.keys() {
        let file = args.folder.join("code").join(digest);
        let archive = fs::read(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        api.put(&format!("/v1/code/{digest}"), archive).await?.json()?;
    }
    api.post("/v1/apply", RESTORED, declaration).await?.json()?;
    if args.json {
        say!(
            "{}",
            json!({"path": place, "cluster": manifest.cluster, "at_ms": manifest.at_ms, "namespaces": restored})
        );
    } else {
        say!(
            "{} is as cluster {} was at {}: {}; tokens, cookie keys and nodes' certificates are new",
            plain(&view.cluster),
            plain(&manifest.cluster),
            clock(manifest.at_ms),
            manifest.text(),
        );
    }
    Ok(())
}

async fn restore_one(
    args: &RestoreArgs,
    api: &Api,
    place: &Path,
    manifest: &Manifest,
    name: &str,
) -> Result<(), String> {
    let Some(of) = manifest.namespaces.get(name) else {
        let names: Vec<&str> = manifest.namespaces.keys().map(String::as_str).collect();
        return Err(format!("{} has no namespace {name:?}; it has: {}", place.display(), names.join(", ")));
    };
    of.check(&dump_file(place, name)?)?;
    let to = args.other.as_deref().unwrap_or(name);
    ns::name(to)?;
    if !view(api).await?.namespaces.iter().any(|namespace| namespace.name == to) {
        let file = place.join("declaration.toml");
        manifest.declaration.check(&file)?;
        let declared = namespaces_of(&text_of(&file)?, &|of| (of == name).then(|| to.to_owned()))?;
        api.post("/v1/apply", &format!("restored-{to}.toml"), declared).await?.json()?;
    }
    let loaded = load(api, place, name, to, of).await?;
    if args.json {
        let (keys, ended) = (loaded.keys, loaded.ended);
        say!("{}", json!({"path": place, "namespace": to, "at_ms": of.at_ms, "keys": keys, "ended": ended}));
    } else {
        say!(
            "{to} is as {name} was at {}: {} keys; {} more have ended since",
            clock(of.at_ms),
            loaded.keys,
            loaded.ended
        );
    }
    Ok(())
}

async fn load(
    api: &Api,
    place: &Path,
    name: &str,
    to: &str,
    of: &Namespace,
) -> Result<edge::api::dump::Loaded, String> {
    let loaded = dump::load(api, to, &dump_file(place, name)?, (&of.class, of.bytes)).await?;
    complain!("coppice: {}: {} keys loaded, {} have ended since", plain(to), loaded.keys, loaded.ended);
    Ok(loaded)
}

/// Of a declaration the namespaces alone, those that have a name for it, and of those what needs no service.
fn namespaces_of(declaration: &str, name: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let odd = |e: String| format!("the backup's declaration cannot be read: {e}");
    let mut table: toml::Table = declaration.parse().map_err(|e: toml::de::Error| odd(e.to_string()))?;
    let all = match table.remove("namespace") {
        Some(toml::Value::Table(all)) => all,
        Some(_) => return Err(odd("`namespace` is no table".into())),
        None => toml::Table::new(),
    };
    let mut named = toml::Table::new();
    for (of, mut spec) in all {
        if let Some(keys) = spec.as_table_mut() {
            keys.remove("functions");
        }
        named.extend(name(&of).map(|name| (name, spec)));
    }
    let only = toml::Table::from_iter([("namespace".to_owned(), toml::Value::Table(named))]);
    toml::to_string(&only).map_err(|e| odd(e.to_string()))
}

/// The backup of this moment, or the newest.
fn read(folder: &Path, at: Option<&str>) -> Result<(PathBuf, Manifest), String> {
    let all = moments(folder)?;
    let Some(newest) = all.last() else { return Err(format!("there is no backup in {}", folder.display())) };
    let name = match at {
        None => newest,
        Some(at) => all.get(at).ok_or_else(|| {
            format!(
                "{} has no backup of {at}; it has: {}",
                folder.display(),
                Vec::from_iter(all.iter().cloned()).join(", ")
            )
        })?,
    };
    let place = folder.join(name);
    let manifest = Manifest::read(&place.join("manifest.json"))?;
    Ok((place, manifest))
}

impl Manifest {
    /// Behind it stands the digest of what it is without that.
    fn written(&self) -> Vec<u8> {
        let plain = serde_json::to_vec(self).expect("a manifest is plain data");
        let sealed = json!({"manifest": self, "sha256": hex(&plain)});
        let mut text = serde_json::to_vec_pretty(&sealed).expect("a manifest is plain data");
        text.push(b'\n');
        text
    }

    fn read(file: &Path) -> Result<Self, String> {
        let damaged = || format!("{} is damaged", file.display());
        let cannot = |e: io::Error| format!("cannot read {}: {e}", file.display());
        let mut text = Vec::new();
        File::open(file).map_err(cannot)?.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(cannot)?;
        let mut sealed: serde_json::Value = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let format = sealed["manifest"]["format"].as_u64().ok_or_else(damaged)?;
        if format > u64::from(FORMAT) {
            return Err(format!(
                "{} has format {format}, and this program reads formats up to {FORMAT}: a newer one wrote it",
                file.display()
            ));
        }
        let manifest: Self = serde_json::from_value(sealed["manifest"].take()).map_err(|_| damaged())?;
        let plain = serde_json::to_vec(&manifest).expect("a manifest is plain data");
        let names_are_names = manifest.namespaces.keys().all(|name| ns::name(name).is_ok())
            && manifest.code.keys().all(|digest| host::code::is_digest(digest));
        if sealed["sha256"] != hex(&plain) || !names_are_names {
            return Err(damaged());
        }
        Ok(manifest)
    }

    fn has(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace) || self.left_out.contains_key(namespace)
    }

    /// Its secrets and certificates, which were looked at for damage.
    fn open(&self, place: &Path, key: &Key) -> Result<Contents, String> {
        let Some(sealed) = &self.sealed else {
            return Err(format!("{} has no secrets: it was made without --key", place.display()));
        };
        let opened = sealed::open(&place.join(sealed::FILE), key, (&self.cluster, self.at_ms))?;
        let has = (opened.secrets.len(), opened.certificates.len());
        if has != (sealed.secrets, sealed.certificates) {
            return Err(format!("{} is not what its manifest says", place.join(sealed::FILE).display()));
        }
        Ok(opened)
    }

    /// Reads all files that belong to it.
    fn check(&self, folder: &Path, place: &Path) -> Result<(), String> {
        self.declaration.check(&place.join("declaration.toml"))?;
        if let Some(sealed) = &self.sealed {
            sealed.file.check(&place.join(sealed::FILE))?;
        }
        for (digest, bytes) in &self.code {
            Written { bytes: *bytes, sha256: digest.clone() }.check(&folder.join("code").join(digest))?;
        }
        self.namespaces.iter().try_for_each(|(name, of)| of.check(&dump_file(place, name)?))
    }

    fn text(&self) -> String {
        let keys: u64 = self.namespaces.values().map(|namespace| namespace.keys).sum();
        let (namespaces, code) = (self.namespaces.len(), self.code.len());
        let plain = format!("{namespaces} namespaces with {keys} keys, the declaration, and {code} archives of code");
        self.sealed.as_ref().map_or(plain.clone(), |sealed| format!("{plain}; {}, sealed", sealed.text()))
    }
}

impl Sealed {
    fn text(&self) -> String {
        format!("{} secrets and {} certificates", self.secrets, self.certificates)
    }
}

impl Written {
    fn check(&self, file: &Path) -> Result<(), String> {
        let (bytes, is) = digest_of(file)?;
        if bytes < self.bytes {
            return Err(format!("{} is cut short: it has {bytes} bytes of {}", file.display(), self.bytes));
        }
        if (bytes, &is) != (self.bytes, &self.sha256) {
            return Err(format!("{} is damaged: its SHA-256 is not what it was", file.display()));
        }
        Ok(())
    }
}

impl Namespace {
    /// The digest says that it is what was written, and reading it that this is a dump.
    fn check(&self, file: &Path) -> Result<(), String> {
        Written { bytes: self.bytes, sha256: self.sha256.clone() }.check(file)?;
        dump::check(file).map(|_| ())
    }
}

async fn view(api: &Api) -> Result<View, String> {
    serde_json::from_value(api.get("/v1/status").await?.json()?).map_err(other_version)
}

fn other_version(e: serde_json::Error) -> String {
    format!("the node's answer is of another version: {e}")
}

fn dump_file(place: &Path, namespace: &str) -> Result<PathBuf, String> {
    Ok(place.join("ns").join(format!("{}.dump", ns::name(namespace)?)))
}

/// A folder's name: its moment, to the second.
fn moment(ms: u64) -> String {
    let clock = clock(ms);
    format!("{}T{}Z", &clock[..10], clock[11..19].replace(':', "-"))
}

fn is_moment(name: &str) -> bool {
    let form = "0000-00-00T00-00-00Z";
    let fits = |(of, is): (char, char)| if of == '0' { is.is_ascii_digit() } else { of == is };
    name.chars().count() == form.len() && form.chars().zip(name.chars()).all(fits)
}

/// The backups in a folder, oldest first.
fn moments(folder: &Path) -> Result<BTreeSet<String>, String> {
    let is_one = |name: &String| is_moment(name) && folder.join(name).join("manifest.json").exists();
    Ok(names(folder)?.into_iter().filter(is_one).collect())
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let all = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    Ok(all.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Removes all backups but so many of the newest, and code that none of those has.
fn remove_older(folder: &Path, keep: usize) -> Result<Vec<String>, String> {
    let mut all = moments(folder)?;
    let older: Vec<String> = all.iter().take(all.len().saturating_sub(keep)).cloned().collect();
    for name in &older {
        let cannot = |e: io::Error| format!("cannot remove {name}: {e}");
        // Half removed it must not look like one.
        let gone = folder.join(format!("{PART}{name}"));
        fs::rename(folder.join(name), &gone).map_err(cannot)?;
        fs::remove_dir_all(&gone).map_err(cannot)?;
        all.remove(name);
    }
    let mut used = BTreeSet::new();
    for name in &all {
        used.extend(Manifest::read(&folder.join(name).join("manifest.json"))?.code.into_keys());
    }
    for name in names(&folder.join("code"))?.into_iter().filter(|name| !used.contains(name)) {
        fs::remove_file(folder.join("code").join(&name)).map_err(|e| format!("cannot remove code/{name}: {e}"))?;
    }
    Ok(older)
}

/// With those above it; others cannot look into it.
fn make_folder(folder: &Path) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| format!("cannot make {}: {e}", folder.display()))
}

fn create(file: &Path) -> Result<File, String> {
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    open.map_err(|e| format!("cannot write {}: {e}", file.display()))
}

fn write(file: &Path, bytes: &[u8]) -> Result<Written, String> {
    let mut out = create(file)?;
    let done = out.write_all(bytes).and_then(|()| out.sync_all());
    done.map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    Ok(Written { bytes: bytes.len() as u64, sha256: hex(bytes) })
}

/// What a folder has in it is on the disk.
fn sync(folder: &Path) -> Result<(), String> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| format!("cannot write {}: {e}", folder.display()))
}

fn text_of(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}

/// Length and SHA-256 of a file.
fn digest_of(file: &Path) -> Result<(u64, String), String> {
    let cannot = |e: io::Error| format!("cannot read {}: {e}", file.display());
    let mut from = File::open(file).map_err(cannot)?;
    let (mut context, mut piece, mut bytes) = (Context::new(&SHA256), vec![0; 256 << 10], 0);
    loop {
        match from.read(&mut piece).map_err(cannot)? {
            0 => break,
            len => {
                context.update(&piece[..len]);
                bytes += len as u64;
            }
        }
    }
    Ok((bytes, context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn hex(bytes: &[u8]) -> String {
    host::code::digest(bytes)
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
