//! `coppice backup` and `backup verify`: a cluster as a folder, which restore.rs reads. Each backup is a folder of its
//! own in it, named by its moment, which appears when all of it is on the disk; code is beside them by its digest, once.
//!
//! ```text
//! DIR/code/<sha256>                          folders of services, as they were deployed
//! DIR/2026-11-26T10-12-00Z/manifest.json     what belongs to it, with sizes and digests, and a digest of that
//!                          declaration.toml  what `coppice export` prints
//!                          ns/<name>.dump    what `coppice ns dump` writes; or, since an older backup that has that:
//!                          ns/<name>.changed ns/<name>.gone    what differs from it (since.rs)
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
use crate::dump::{Dumped, Wanted};
use crate::happened::clock;
use crate::ns;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};
use crate::sealed::{self, Key, KeyArgs};
use crate::since::{self, Index};
use crate::size::Size;

/// Of what stands in a folder; a program reads its own and older ones.
const FORMAT: u32 = 3;
/// Of one with secrets, in which all namespaces are whole: programs from before there were changes read it.
const FORMAT_SEALED: u32 = 2;
/// Of one without secrets: programs from before there were any in backups read it.
const FORMAT_PLAIN: u32 = 1;
/// How much sooner everybody else on this machine is to have a processor.
const NICE: i32 = 10;
/// One that is not done yet begins so.
const PART: &str = ".part-";
/// A manifest: some hundred bytes for each namespace and each service.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Behind the name of a namespace: what changed, and which keys are gone.
pub const CHANGED: &str = "changed";
pub const GONE: &str = "gone";
/// Changes of more than one part of so many of what they stand on are the last ones: the next time all is written.
const CHANGES_MAX_OF_BASE: u64 = 2;
#[derive(Clone, Debug, clap::Args)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// The folder: each backup becomes a folder in it, and code that is there is not written again
    #[arg(value_name = "DIR", required = true, value_parser = folder)]
    folder: Option<PathBuf>,
    /// Also namespaces whose class keeps nothing on disk (session)
    #[arg(long)]
    all: bool,
    /// Write each namespace whole, not what changed since an older backup in the folder
    #[arg(long)]
    full: bool,
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
    #[arg(value_name = "DIR", value_parser = folder)]
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

pub const BACKUP_MORE: &str = "\
Examples:
  coppice backup /mnt/b
  coppice backup /mnt/b --keep 14 --rate 20MiB
  coppice backup key backup.key && coppice backup /mnt/b --key backup.key
  coppice backup verify /mnt/b --key backup.key

In it are the declaration, the code that it names, and all namespaces that are on disk; those that are left out are
named, and why (--json: left_out). With --key also secrets of services and certificates of the cluster, sealed. Not in
it: the cluster's authority and its key, the operator's token, tokens and cookie keys of namespaces, of which a restored
cluster has new ones.";

/// A folder, and no address of a store: it would become a folder of that name, and nobody would look there for backups.
///
/// # Errors
/// How backups come there.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    match text.split_once("://") {
        Some((scheme, place)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => Err(format!(
            "backups are folders, and Coppice speaks no {scheme} itself: back up to a folder and copy it \
             (`rclone sync /mnt/b remote:{place}`, `aws s3 sync /mnt/b {text}`), or mount the store at one (`rclone mount`)"
        )),
        _ => Ok(text.into()),
    }
}

/// What belongs to a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub program: String,
    pub cluster: String,
    /// When it began, and when all was written; milliseconds since 1970.
    pub at_ms: u64,
    pub ended_ms: u64,
    pub declaration: Written,
    /// By digest: bytes.
    pub code: BTreeMap<String, u64>,
    pub namespaces: BTreeMap<String, Namespace>,
    /// Namespaces that are declared and not in it, with their class: nothing of it is on disk.
    pub left_out: BTreeMap<String, String>,
    /// Secrets and certificates, if a key was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Sealed>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sealed {
    pub secrets: usize,
    pub certificates: usize,
    /// What its key is called.
    pub key: String,
    pub file: Written,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Written {
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Namespace {
    pub class: String,
    /// When its dump began.
    pub at_ms: u64,
    pub keys: u64,
    /// Of the file that was written.
    pub bytes: u64,
    pub sha256: String,
    /// The file has what changed; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

/// On what the changes of a namespace stand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Since {
    /// The backup that has the namespace whole.
    pub at: String,
    pub base: Written,
    /// Keys that are there and were not any more.
    pub gone: Written,
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
    // Digests of all that is there take processors from a node on the same machine.
    let _ = rustix::process::nice(NICE);
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
    is_of(folder, &view.cluster)?;
    for rest in names(folder)?.into_iter().filter(|name| name.starts_with(PART)) {
        fs::remove_dir_all(folder.join(rest)).map_err(cannot)?;
    }
    let name = moment(at_ms);
    let (part, place) = (folder.join(format!("{PART}{name}")), folder.join(&name));
    if place.exists() {
        return Err(format!("{} is there already: wait a second", place.display()));
    }
    make_folder(&part.join("ns"))?;
    let made = fill(args, (&api, key.as_ref()), folder, &part, (at_ms, view.cluster, view.root.level)).await;
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
    let left_out: BTreeMap<&String, String> =
        manifest.left_out.iter().map(|(name, class)| (name, why_left_out(class, view.root.level))).collect();
    let removed = args.keep.map_or(Ok(Vec::new()), |keep| remove_older(folder, keep as usize))?;
    if args.json {
        let removed: Vec<&String> = removed.iter().collect();
        say!("{}", json!({"path": place, "removed": removed, "left_out": left_out, "manifest": manifest}));
        return Ok(());
    }
    for (name, why) in &left_out {
        say!("left out: {name} ({why})");
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
    (at_ms, cluster, level): (u64, String, u32),
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
        if not_dumped(&class).is_some() || too_new(&class, level).is_some() {
            left_out.insert(name, class);
            continue;
        }
        let base = if args.full { None } else { base_of(folder, &name, &class)? };
        match dump_namespace(args, api, part, &name, base).await? {
            Some(namespace) => drop(namespaces.insert(name, namespace)),
            None => drop(left_out.insert(name, class)),
        }
    }
    let program = env!("CARGO_PKG_VERSION").to_owned();
    let has_changes = namespaces.values().any(|namespace| namespace.since.is_some());
    let format = match &sealed {
        _ if has_changes => FORMAT,
        Some(_) => FORMAT_SEALED,
        None => FORMAT_PLAIN,
    };
    let ended_ms = wall_ms();
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

/// A dump on which changes may stand.
struct Base {
    at: String,
    file: Written,
    index: Index,
}

/// The newest dump of the namespace in the folder, if what has changed since is worth less than a whole one.
fn base_of(folder: &Path, name: &str, class: &str) -> Result<Option<Base>, String> {
    for at in moments(folder)?.into_iter().rev() {
        // What cannot be read stays as it is, and nothing stands on it.
        let Ok(manifest) = Manifest::read(&folder.join(&at).join("manifest.json")) else { continue };
        let Some(newest) = manifest.namespaces.get(name).filter(|newest| newest.class == class) else { continue };
        let (at, file) = match &newest.since {
            Some(since) if newest.bytes > since.base.bytes / CHANGES_MAX_OF_BASE => return Ok(None),
            Some(since) => (since.at.clone(), since.base.clone()),
            None => (at, Written { bytes: newest.bytes, sha256: newest.sha256.clone() }),
        };
        let dump = dump_file(&folder.join(&at), name)?;
        let index = file.check(&dump).and_then(|()| Index::of(&dump));
        return Ok(match index {
            Ok(index) => index.map(|index| Base { at, file, index }),
            Err(why) => {
                complain!("coppice: {} is written whole: {}", plain(name), plain(&why));
                None
            }
        });
    }
    Ok(None)
}

async fn dump_namespace(
    args: &BackupArgs,
    api: &Api,
    part: &Path,
    name: &str,
    base: Option<Base>,
) -> Result<Option<Namespace>, String> {
    let whole = dump_file(part, name)?;
    let file = if base.is_some() { whole.with_extension(CHANGED) } else { whole.clone() };
    let wanted = Wanted { rate: args.rate, all: args.all, index: base.as_ref().map(|base| &base.index) };
    let Some(Dumped { head, counts, gone }) = dump::dump_to(api, name, &wanted, &file).await? else { return Ok(None) };
    let (bytes, sha256) = digest_of(&file)?;
    let since = match base {
        None => None,
        Some(Base { at, file, .. }) => {
            let gone = write(&whole.with_extension(GONE), &since::bytes_of(&gone))?;
            Some(Since { at, base: file, gone })
        }
    };
    let changed = since.as_ref().map_or(String::new(), |since| format!(" of changes since {}", since.at));
    complain!("coppice: {}: {} keys, {bytes} bytes{changed}", plain(name), counts.items);
    Ok(Some(Namespace { class: head.class, at_ms: head.at_ms, keys: counts.items, bytes, sha256, since }))
}

/// Why namespaces of a class are in no backup, whatever is asked.
fn not_dumped(class: &str) -> Option<&'static str> {
    Class::ALL.iter().find(|known| known.name() == class).and_then(|known| known.not_dumped())
}

/// The level that all nodes must have for namespaces of a class to be read out, if they have not yet.
fn too_new(class: &str, agreed: u32) -> Option<u32> {
    let since = if class == Class::Sql.name() { state::sql::LEVEL_DUMPED } else { 0 };
    (agreed < since).then_some(since)
}

/// `agreed`: the level that all nodes have.
fn why_left_out(class: &str, agreed: u32) -> String {
    match (not_dumped(class), too_new(class, agreed)) {
        (Some(why), _) => format!("class {class} is not dumped: {why}"),
        (None, Some(since)) => format!(
            "class {class} is dumped from level {since} on, and the nodes agree on level {agreed}: \
             start the newer program on all of them, then back up again"
        ),
        (None, None) => format!("class {class} keeps nothing on disk; --all takes it"),
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

/// The backup of this moment, or the newest.
pub fn read(folder: &Path, at: Option<&str>) -> Result<(PathBuf, Manifest), String> {
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
    pub fn written(&self) -> Vec<u8> {
        let plain = serde_json::to_vec(self).expect("a manifest is plain data");
        let sealed = json!({"manifest": self, "sha256": hex(&plain)});
        let mut text = serde_json::to_vec_pretty(&sealed).expect("a manifest is plain data");
        text.push(b'\n');
        text
    }

    pub fn read(file: &Path) -> Result<Self, String> {
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
            && manifest.code.keys().all(|digest| host::code::is_digest(digest))
            && manifest.stands_on().all(is_moment);
        if sealed["sha256"] != hex(&plain) || !names_are_names {
            return Err(damaged());
        }
        Ok(manifest)
    }

    /// The backups whose dumps it needs.
    pub fn stands_on(&self) -> impl Iterator<Item = &str> {
        self.namespaces.values().filter_map(|namespace| Some(&*namespace.since.as_ref()?.at))
    }

    pub fn has(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace) || self.left_out.contains_key(namespace)
    }

    /// Its secrets and certificates, which were looked at for damage.
    pub fn open(&self, place: &Path, key: &Key) -> Result<Contents, String> {
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
    pub fn check(&self, folder: &Path, place: &Path) -> Result<(), String> {
        self.declaration.check(&place.join("declaration.toml"))?;
        if let Some(sealed) = &self.sealed {
            sealed.file.check(&place.join(sealed::FILE))?;
        }
        for (digest, bytes) in &self.code {
            Written { bytes: *bytes, sha256: digest.clone() }.check(&folder.join("code").join(digest))?;
        }
        self.namespaces.iter().try_for_each(|(name, of)| of.check(place, name))
    }

    pub fn text(&self) -> String {
        let keys: u64 = self.namespaces.values().map(|namespace| namespace.keys).sum();
        let (namespaces, code) = (self.namespaces.len(), self.code.len());
        let plain = format!("{namespaces} namespaces with {keys} keys, the declaration, and {code} archives of code");
        self.sealed.as_ref().map_or(plain.clone(), |sealed| format!("{plain}; {}, sealed", sealed.text()))
    }
}

impl Sealed {
    pub fn text(&self) -> String {
        format!("{} secrets and {} certificates", self.secrets, self.certificates)
    }
}

impl Written {
    pub fn check(&self, file: &Path) -> Result<(), String> {
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
    /// The digest says that it is what was written, and reading it that this is a dump. So, too, on what it stands.
    pub fn check(&self, place: &Path, name: &str) -> Result<(), String> {
        let mut file = dump_file(place, name)?;
        if let Some(since) = &self.since {
            let base = dump_file(&beside(place, &since.at), name)?;
            let needs = |why| format!("{} has what changed since {}, and needs it: {why}", place.display(), since.at);
            since.base.check(&base).and_then(|()| dump::check(&base).map(|_| ())).map_err(needs)?;
            since.gone.check(&file.with_extension(GONE))?;
            file.set_extension(CHANGED);
        }
        Written { bytes: self.bytes, sha256: self.sha256.clone() }.check(&file)?;
        dump::check(&file).map(|_| ())
    }
}

pub async fn view(api: &Api) -> Result<View, String> {
    serde_json::from_value(api.get("/v1/status").await?.json()?).map_err(other_version)
}

fn other_version(e: serde_json::Error) -> String {
    format!("the node's answer is of another version: {e}")
}

pub fn dump_file(place: &Path, namespace: &str) -> Result<PathBuf, String> {
    Ok(place.join("ns").join(format!("{}.dump", ns::name(namespace)?)))
}

/// Another backup in the same folder.
pub fn beside(place: &Path, at: &str) -> PathBuf {
    place.with_file_name(at)
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

/// Backups of two clusters in one folder would stand on each other, and remove each other.
///
/// # Errors
/// The newest one that can be read is of a cluster of another name.
fn is_of(folder: &Path, cluster: &str) -> Result<(), String> {
    let read = |at: String| Manifest::read(&folder.join(at).join("manifest.json")).ok();
    match moments(folder)?.into_iter().rev().find_map(read) {
        Some(manifest) if manifest.cluster != cluster => Err(format!(
            "{} has backups of the cluster {}, and this one is {cluster}: name another folder, one for each cluster",
            folder.display(),
            manifest.cluster
        )),
        _ => Ok(()),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let all = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    Ok(all.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Removes all backups but so many of the newest and those on which they stand, and code that none of these has.
fn remove_older(folder: &Path, keep: usize) -> Result<Vec<String>, String> {
    let mut all = moments(folder)?;
    let older: Vec<String> = all.iter().take(all.len().saturating_sub(keep)).cloned().collect();
    let mut needed = BTreeSet::new();
    for name in all.iter().skip(older.len()) {
        let manifest = Manifest::read(&folder.join(name).join("manifest.json"))?;
        needed.extend(manifest.stands_on().map(str::to_owned));
    }
    let older: Vec<String> = older.into_iter().filter(|name| !needed.contains(name)).collect();
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

pub fn text_of(file: &Path) -> Result<String, String> {
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
