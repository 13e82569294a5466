//! Who a node is: its id, its cluster, and the certificate that proves both. Also the folder that holds this, which only
//! one process may use, and the boot counter. The cluster's authority (its key signs newcomers) is made here and kept by
//! the root group, not on this disk.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Boot, ClusterId, NodeId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::certificate::{Validity, finish_replacing};
use crate::limits::{AUTHORITY_LIFE, CERTIFICATE_LIFE, PROOF_LIFE};
use crate::{Error, private};

/// A node's identity with all it needs to prove it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub node: NodeId,
    pub name: String,
    pub cluster: ClusterId,
    pub cluster_name: String,
    pub cert_pem: String,
    pub key_pem: String,
    /// Of all authorities that it trusts, the one that signs now first.
    pub ca_pem: String,
}

/// The cluster's own authority: whoever holds the key can let nodes in.
#[derive(Clone)]
pub struct Authority {
    pub cert_pem: String,
    pub key_pem: String,
}

/// A folder in use by this process alone, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Founds a cluster: a new authority, and this node's identity signed by it.
pub fn found(cluster_name: &str, node_name: &str) -> Result<(Identity, Authority), Error> {
    let cluster = ClusterId(random_u64()?);
    let authority = Authority::new(cluster_name)?;
    let node = random_node_id()?;
    let (key_pem, request) = new_request(node_name)?;
    let cert_pem = authority.sign(&request, node, cluster, node_name)?;
    let identity = Identity {
        node,
        name: node_name.into(),
        cluster,
        cluster_name: cluster_name.into(),
        cert_pem,
        key_pem,
        ca_pem: authority.cert_pem.clone(),
    };
    Ok((identity, authority))
}

/// A fresh private key (PEM) and the request (DER) to have it certified.
pub(crate) fn new_request(name: &str) -> Result<(String, Vec<u8>), Error> {
    let key = KeyPair::generate().map_err(failed("key"))?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(&key).map_err(failed("certificate request"))?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

/// A new key, PEM, and the request, DER, for a certificate that is for these host names.
pub fn request_for(names: &[String]) -> Result<(String, Vec<u8>), Error> {
    let key = KeyPair::generate().map_err(failed("key"))?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed("names of the certificate"))?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(failed("certificate request"))?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

/// A certificate that nobody signed but itself, with its key, both PEM: for clients who ask a door for a name that it has none for.
/// Their program says so.
pub fn self_signed() -> Result<(String, String), Error> {
    let key = KeyPair::generate().map_err(failed("key"))?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Coppice has no certificate for this name");
    set_validity(&mut params, AUTHORITY_LIFE);
    let cert = params.self_signed(&key).map_err(failed("certificate that is signed by itself"))?;
    Ok((cert.pem(), key.serialize_pem()))
}

/// What shows over TLS that a host name is ours (RFC 8737 3), with its key, both PEM: signed by itself, for this name alone. `proof` is
/// SHA-256 of what answers the challenge.
pub fn proof_of(name: &str, proof: &[u8; 32]) -> Result<(String, String), Error> {
    let key = KeyPair::generate().map_err(failed("key"))?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed("name of the certificate"))?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(proof)];
    set_validity(&mut params, PROOF_LIFE);
    let cert = params.self_signed(&key).map_err(failed("certificate that is signed by itself"))?;
    Ok((cert.pem(), key.serialize_pem()))
}

/// A new node's id: 47 random bits, never 0, so that it fits every place an id is shown or numbered.
pub fn random_node_id() -> Result<NodeId, Error> {
    Ok(NodeId((random_u64()? & 0x7fff_ffff_ffff).max(1)))
}

pub(crate) fn random_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    SystemRandom::new().fill(bytes).map_err(|_| Error::Identity("the system gives no random numbers".into()))
}

impl Authority {
    /// A new one, for a cluster of this name.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn new(cluster_name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate().map_err(failed("key of the authority"))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("Coppice authority of {cluster_name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, AUTHORITY_LIFE);
        let cert = params.self_signed(&key).map_err(failed("certificate of the authority"))?;
        Ok(Self { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Signs a certificate request (DER) for this node. Only the request's key is used, after its own signature has
    /// been checked; the names come from us.
    pub fn sign(&self, request: &[u8], node: NodeId, cluster: ClusterId, name: &str) -> Result<String, Error> {
        self.sign_for(request, node, cluster, name, CERTIFICATE_LIFE)
    }

    /// The same for a certificate that lives so long.
    pub(crate) fn sign_for(
        &self,
        request: &[u8],
        node: NodeId,
        cluster: ClusterId,
        name: &str,
        life: Duration,
    ) -> Result<String, Error> {
        let request = CertificateSigningRequestParams::from_der(&request.into()).map_err(failed("request"))?;
        let key = KeyPair::from_pem(&self.key_pem).map_err(failed("key of the authority"))?;
        let issuer = Issuer::from_ca_cert_pem(&self.cert_pem, key).map_err(failed("certificate of the authority"))?;
        let mut names = vec![cluster_host(cluster), node_host(node, cluster)];
        // By its own name clients reach its doors. A name with a dot could be another node's or cluster's of the two above.
        names.extend(is_label(name).then(|| name.to_ascii_lowercase()));
        let mut params = CertificateParams::new(names).map_err(failed("names of the node"))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        set_validity(&mut params, life);
        sign_params(&params, &request.public_key, &issuer)
    }
}

/// One label of a host name.
fn is_label(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-') && !name.ends_with('-')
}

fn sign_params(
    params: &CertificateParams,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<String, Error> {
    Ok(params.signed_by(key, issuer).map_err(failed("signature"))?.pem())
}

fn set_validity(params: &mut CertificateParams, life: Duration) {
    let Validity { begin_s, end_s } = Validity::from(SystemTime::now(), life);
    let at = |seconds: i64| (UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned())).into();
    params.not_before = at(begin_s);
    params.not_after = at(end_s);
}

fn failed(what: &'static str) -> impl FnOnce(rcgen::Error) -> Error {
    move |e| Error::Identity(format!("{what}: {e}"))
}

/// The name that every certificate of a cluster carries.
pub(crate) fn cluster_host(cluster: ClusterId) -> String {
    format!("c-{:016x}.coppice", cluster.0)
}

/// The name that only this node's certificate carries.
pub(crate) fn node_host(node: NodeId, cluster: ClusterId) -> String {
    format!("n-{:016x}.c-{:016x}.coppice", node.0, cluster.0)
}

/// Reads the form of [`node_host`].
pub(crate) fn parse_node_host(host: &str) -> Option<(NodeId, ClusterId)> {
    let (node, cluster) = host.strip_prefix("n-")?.strip_suffix(".coppice")?.split_once(".c-")?;
    let hex = |s: &str| if s.len() == 16 { u64::from_str_radix(s, 16).ok() } else { None };
    Some((NodeId(hex(node)?), ClusterId(hex(cluster)?)))
}

#[derive(Serialize, Deserialize)]
struct IdentityFile {
    node: NodeId,
    name: String,
    cluster: ClusterId,
    cluster_name: String,
}

impl Identity {
    /// Writes the identity into the folder. The file that `load` looks for comes last, so a half written identity is none.
    pub fn save(&self, dir: &DataDir) -> Result<(), Error> {
        let file = IdentityFile {
            node: self.node,
            name: self.name.clone(),
            cluster: self.cluster,
            cluster_name: self.cluster_name.clone(),
        };
        let json = serde_json::to_vec_pretty(&file).expect("an identity is plain data");
        write_safely(&dir.path, "node.key", self.key_pem.as_bytes())?;
        write_safely(&dir.path, "node.pem", self.cert_pem.as_bytes())?;
        write_safely(&dir.path, "ca.pem", self.ca_pem.as_bytes())?;
        write_safely(&dir.path, "identity.json", &json)
    }

    /// The identity in the folder, or none if nobody founded or joined there.
    pub fn load(dir: &DataDir) -> Result<Option<Identity>, Error> {
        let path = dir.path.join("identity.json");
        let json = match fs::read(&path) {
            Ok(json) => json,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(path.display().to_string())(e)),
        };
        let file: IdentityFile =
            serde_json::from_slice(&json).map_err(|e| Error::NotOurs { file: path, what: e.to_string() })?;
        finish_replacing(&dir.path, file.node)?;
        let text = |name: &str| {
            let path = dir.path.join(name);
            fs::read_to_string(&path).map_err(Error::io(path.display().to_string()))
        };
        Ok(Some(Identity {
            node: file.node,
            name: file.name,
            cluster: file.cluster,
            cluster_name: file.cluster_name,
            cert_pem: text("node.pem")?,
            key_pem: text("node.key")?,
            ca_pem: text("ca.pem")?,
        }))
    }
}

impl DataDir {
    /// Makes the folder if it is not there, and takes it. From then on nobody else can read what is in it.
    pub fn open(path: impl Into<PathBuf>) -> Result<DataDir, Error> {
        let path = path.into();
        private::make_dir(&path).map_err(Error::io(format!("cannot make the folder {}", path.display())))?;
        private::close(&path)?;
        let file = path.join("lock");
        let mut lock = private::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&file)
            .map_err(Error::io(file.display().to_string()))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
                return Err(Error::Locked { dir: path, pid });
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(file.display().to_string())(e)),
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(Error::io(file.display().to_string()))?;
        private::mend(&path)?;
        Ok(DataDir { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of this life: one more than the last, and safe on disk before it is used.
    pub fn next_boot(&self) -> Result<Boot, Error> {
        let path = self.path.join("boot");
        let last = match fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse::<u64>()
                .map_err(|_| Error::NotOurs { file: path, what: format!("{text:?} is no boot count") })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(Error::io(path.display().to_string())(e)),
        };
        write_safely(&self.path, "boot", format!("{}\n", last + 1).as_bytes())?;
        Ok(Boot(last + 1))
    }
}

/// Replaces a file: after a crash there is the old one or the new one. It is for this user alone.
pub(crate) fn write_safely(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let (path, temp) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = || {
        let mut file = private::create(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temp, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(Error::io(format!("cannot write {}", path.display())))
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} {:?} of {} {:?})", self.node, self.name, self.cluster, self.cluster_name)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::temp_dir;

    #[test]
    fn an_identity_comes_back_as_it_was_saved_and_its_key_is_private() {
        let temp = temp_dir("identity");
        let dir = DataDir::open(&temp.0).unwrap();
        assert_eq!(Identity::load(&dir).unwrap(), None);
        let (identity, _) = found("home", "a").unwrap();
        identity.save(&dir).unwrap();
        assert_eq!(Identity::load(&dir).unwrap(), Some(identity));
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(temp.0.join("node.key")).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_folder_is_used_by_one_at_a_time_and_boots_count_up() {
        let temp = temp_dir("lock");
        let dir = DataDir::open(&temp.0).unwrap();
        assert_eq!(dir.next_boot().unwrap(), Boot(1));
        let Err(Error::Locked { pid, .. }) = DataDir::open(&temp.0) else { panic!("two hold one folder") };
        assert_eq!(pid, Some(std::process::id()));
        drop(dir);
        assert_eq!(DataDir::open(&temp.0).unwrap().next_boot().unwrap(), Boot(2));
    }

    #[test]
    fn a_node_name_reads_back_and_others_do_not() {
        let (node, cluster) = (NodeId(0xabc), ClusterId(u64::MAX));
        assert_eq!(parse_node_host(&node_host(node, cluster)), Some((node, cluster)));
        for other in ["", "n-1.c-1.coppice", "c-0000000000000001.coppice", &cluster_host(cluster)] {
            assert_eq!(parse_node_host(other), None, "{other}");
        }
    }

    #[test]
    fn a_request_whose_signature_is_wrong_is_not_signed() {
        let (identity, authority) = found("home", "a").unwrap();
        let (_, mut request) = new_request("b").unwrap();
        assert!(authority.sign(&request, NodeId(2), identity.cluster, "b").is_ok());
        let last = request.len() - 4;
        request[last] ^= 1;
        assert!(authority.sign(&request, NodeId(2), identity.cluster, "b").is_err());
    }
}
