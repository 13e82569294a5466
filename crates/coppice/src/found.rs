//! Where a node comes from: `init` founds a cluster, `join` enters one. Both leave a folder that `run` starts from:
//! the identity (host's), `node.toml` with what is the machine's own, and for a founder the first records and the
//! operator's token.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::LEVEL;
use cluster::root::Change;
use cluster::{Door, DoorAddrs};
use host::{DataDir, Identity};
use node::declared::kind;
use ring::rand::SecureRandom;
use serde::{Deserialize, Serialize};

use crate::away_for::AwayFor;
use crate::doors::{DoorPorts, DoorWishes};
use crate::plain::say;
use crate::size::Size;

/// `node.toml`: what is the machine's own, beside the addresses of its doors. Everything else is declared to the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Peer addresses of some other nodes.
    #[serde(default)]
    pub seeds: Vec<SocketAddr>,
    /// Memory of this node's brick; 1GiB unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brick_memory: Option<Size>,
    /// This node runs clones only while all others are full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// Clones that it is meant to run at most; 4 for each processor unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones_max: Option<u32>,
    /// What others miss that are away is kept for so long; 7d unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_for: Option<AwayFor>,
}

/// First records of a cluster, until its log has them.
#[derive(Serialize, Deserialize)]
struct Founding {
    ca_cert: String,
    ca_key: String,
    admin_token: String,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// The node's folder: identity, state, logs
    #[arg(long, env = "COPPICE_DIR", default_value = ".coppice")]
    pub dir: PathBuf,
    /// Name of this node, unique in the cluster
    #[arg(long)]
    pub name: String,
    /// Address on which other nodes reach this one
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    #[command(flatten)]
    pub ports: DoorPorts,
}

#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// Name of the cluster, for people
    #[arg(long, default_value = "coppice")]
    pub cluster: String,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Clone, Debug, clap::Args)]
pub struct JoinArgs {
    /// From `coppice token` on a node of the cluster
    pub token: String,
    /// Join as a program of this level would (see `coppice run --help`)
    #[arg(long, value_name = "N", default_value_t = LEVEL, hide_default_value = true, value_parser = crate::run::level)]
    pub level: u32,
    #[command(flatten)]
    pub place: Place,
}

impl Place {
    /// Only other nodes reach a node from outside by default; its front doors stay on loopback.
    fn addresses(&self) -> DoorAddrs {
        let host = if self.host.is_loopback() { self.host } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
        let doors = self.ports.on(host, false);
        doors.with(Door::Peer, SocketAddr::new(self.host, doors.at(Door::Peer).port()))
    }
}

pub fn init_command(args: &InitArgs) -> Result<(), String> {
    let place = &args.place;
    init(&place.dir, &args.cluster, &place.name, place.addresses())?;
    say!("cluster {:?} is founded; its first node {:?} lives in {}", args.cluster, place.name, place.dir.display());
    say!(
        "next:\n  coppice run --dir {}\n  coppice token --dir {}     (for each machine that joins)",
        place.dir.display(),
        place.dir.display()
    );
    Ok(())
}

pub async fn join_command(args: JoinArgs) -> Result<(), String> {
    let place = &args.place;
    join(&place.dir, &place.name, place.addresses(), &args.token, args.level).await?;
    say!("node {:?} has joined; start it:\n  coppice run --dir {}", place.name, place.dir.display());
    Ok(())
}

/// Whether a node was founded or joined in this folder.
pub fn is_node(dir: &Path) -> bool {
    dir.join(NODE_FILE).exists() && !DataDir::was_removed(dir)
}

pub fn init(dir: &Path, cluster: &str, name: &str, at: DoorAddrs) -> Result<(), String> {
    check_name(name)?;
    let held = open_empty(dir)?;
    let (identity, authority) = host::identity::found(cluster, name).map_err(|e| e.to_string())?;
    let admin_token = random_hex::<20>()?;
    let founding =
        Founding { ca_cert: authority.cert_pem, ca_key: authority.key_pem, admin_token: admin_token.clone() };
    write_private(&dir.join(FOUNDING), &serde_json::to_vec(&founding).expect("plain data"))?;
    write_private(&dir.join(ADMIN_TOKEN), format!("{admin_token}\n").as_bytes())?;
    settle(&held, &identity, at, Vec::new())
}

pub async fn join(dir: &Path, name: &str, at: DoorAddrs, token: &str, level: u32) -> Result<(), String> {
    check_name(name)?;
    let token: host::JoinToken = token.trim().parse().map_err(|e| format!("{e}"))?;
    let held = open_empty(dir)?;
    let identity = host::join::join(&token, name, level).await.map_err(|e| e.to_string())?;
    settle(&held, &identity, at, token.seeds.clone())
}

/// What a node's folder says of it.
pub struct Loaded {
    pub identity: Identity,
    pub file: NodeFile,
    pub doors: DoorWishes,
    /// The first records of its cluster, if it has not yet founded that.
    pub founding: Option<Change>,
}

/// The identity of the folder's node, its file, and if it has not yet founded its cluster, the first records, with this level.
pub fn load(held: &DataDir, level: u32) -> Result<Loaded, String> {
    let dir = held.path();
    let nobody = || {
        format!(
            "there is no node in {}\n  found a cluster with `coppice init`, or enter one with `coppice join`",
            dir.display()
        )
    };
    let path = dir.join(NODE_FILE);
    let text = fs::read_to_string(&path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound { nobody() } else { format!("cannot read {}: {e}", path.display()) }
    })?;
    let wrong = |e: String| format!("{}: {e}", path.display());
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let doors = DoorWishes::take(&mut table).map_err(wrong)?;
    let file = table.try_into().map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let identity = Identity::load(held).map_err(|e| e.to_string())?.ok_or_else(nobody)?;
    let founding = founding(dir, &identity, level)?;
    Ok(Loaded { identity, file, doors, founding })
}

/// The operator's token, from a node's folder or that of `up`.
pub fn admin_token(dir: &Path) -> Result<String, String> {
    for path in [dir.join(ADMIN_TOKEN), dir.join("n1").join(ADMIN_TOKEN)] {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(text.trim().to_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
            Err(e) => return Err(format!("cannot read the operator's token: {}: {e}", path.display())),
        }
    }
    Err(format!(
        "there is no operator's token in {}\n  name the founder's folder with --dir, or give the token with --token or COPPICE_TOKEN",
        dir.display()
    ))
}

/// Files of a folder that have the operator's token: of a node's, or of that of `up`, which has two.
pub fn admin_token_files(dir: &Path) -> Vec<PathBuf> {
    let all = [dir.join(ADMIN_TOKEN), dir.join("n1").join(ADMIN_TOKEN)];
    all.into_iter().filter(|path| path.exists()).collect()
}

/// Keeps the operator's token in the folder of `up`, too: whose founder loses its folder has it still.
pub fn keep_admin_token(dir: &Path) -> Result<(), String> {
    let token = admin_token(dir)?;
    let kept = dir.join(ADMIN_TOKEN);
    if kept.exists() { Ok(()) } else { write_private(&kept, format!("{token}\n").as_bytes()) }
}

pub fn random_hex<const N: usize>() -> Result<String, String> {
    Ok(random_bytes::<N>()?.iter().map(|b| format!("{b:02x}")).collect())
}

pub fn random_bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0u8; N];
    ring::rand::SystemRandom::new().fill(&mut bytes).map_err(|_| "the system gives no random bytes".to_owned())?;
    Ok(bytes)
}

fn open_empty(dir: &Path) -> Result<DataDir, String> {
    if is_node(dir) {
        return Err(format!(
            "there is a node in {} already\n  start it with `coppice run --dir {}`, or choose another folder with --dir",
            dir.display(),
            dir.display()
        ));
    }
    let held = DataDir::open(dir).map_err(|e| e.to_string())?;
    // What a node that was removed may have left.
    held.given_up().map_err(|e| e.to_string())?;
    Ok(held)
}

/// `node.toml` comes last, and what says that the node here is one no more goes with it: a folder without it is no node yet.
fn settle(held: &DataDir, identity: &Identity, at: DoorAddrs, seeds: Vec<SocketAddr>) -> Result<(), String> {
    identity.save(held).map_err(|e| e.to_string())?;
    let file = NodeFile { seeds, brick_memory: None, overflow: false, clones_max: None, away_for: None };
    let text = format!(
        "# What is this machine's own. Everything else is declared to the cluster.\n{}{}",
        toml::to_string(&at).expect("plain data"),
        toml::to_string(&file).expect("plain data")
    );
    write_private(&held.path().join(NODE_FILE), text.as_bytes())?;
    held.begin_anew().map_err(|e| e.to_string())
}

/// Once the root group's snapshot has the first records, the key of the authority need not lie about twice.
pub async fn forget_founding(dir: PathBuf) {
    let path = dir.join(FOUNDING);
    while path.exists() {
        if host::has_snapshot(&dir, base::GroupId::ROOT) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, "{} cannot be removed, and is not needed any more", path.display());
            }
            return;
        }
        tokio::time::sleep(FOUNDING_LOOK_EVERY).await;
    }
}

fn founding(dir: &Path, identity: &Identity, level: u32) -> Result<Option<Change>, String> {
    let path = dir.join(FOUNDING);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("cannot read {}: {e}", path.display())),
    };
    // Once the root group's snapshot has the records, the key of the authority need not lie about twice. It is there whole
    // or not at all.
    if host::has_snapshot(dir, base::GroupId::ROOT) {
        fs::remove_file(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
        return Ok(None);
    }
    let founding: Founding = serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    let authority = serde_json::json!({"cert_pem": founding.ca_cert, "key_pem": founding.ca_key});
    let secret = |name: &str, value: Vec<u8>| (kind::SECRET.to_owned(), name.to_owned(), value.into());
    let mut puts =
        vec![secret("ca", authority.to_string().into_bytes()), secret("admin", founding.admin_token.into_bytes())];
    let me = serde_json::to_vec(&identity.node).expect("plain data");
    puts.push((kind::NODE.to_owned(), identity.name.clone(), me.into()));
    puts.push(node::level::put(level));
    puts.extend(node::numbers::founding(level));
    Ok(Some(Change { expect: None, puts, removes: Vec::new() }))
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(())
    } else {
        Err(format!("{name:?} is no name for a node: use 1 to 63 lower-case letters, digits and hyphens"))
    }
}

pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let write = || {
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|e: std::io::Error| format!("cannot write {}: {e}", path.display()))
}

/// Between two looks whether the first records are on the disk.
const FOUNDING_LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(200);
const NODE_FILE: &str = "node.toml";
const FOUNDING: &str = "founding.json";
const ADMIN_TOKEN: &str = "admin.token";
