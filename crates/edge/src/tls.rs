//! Certificates of the edge: read from a folder, from two files, or both, chosen by the name that a client asks for (SNI), replaced when the
//! files change. A pair that is wrong keeps its former self, and is no other pair's trouble. Keys leave only to clones
//! of services that were declared so (`api/certificates.rs`).
//!
//! Pairs are `NAME.crt` with `NAME.key`, or `fullchain.pem` with `privkey.pem`, in the folder or one folder below (as
//! certbot leaves them). `default` is shown to who asks for a name that none has; else the first one is. Beside the files there are
//! the certificates of the cluster (`tls/shared.rs`).

mod client;
mod shared;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

pub use client::Client;
pub use shared::{Shared, checked};

pub const H2: &[u8] = b"h2";
/// Who speaks it looks whether a name is ours, and says nothing (RFC 8737).
pub const CHALLENGE: &[u8] = b"acme-tls/1";
/// How the certificate is called that is for all names that none has.
const DEFAULT: &str = "default";
/// The files are looked at this often: a renewed certificate has weeks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pairs in a folder; each is some kilobytes in memory.
const PAIRS_MAX: usize = 10_000;
/// Largest file read as a certificate or key: a chain is some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where certificates are: a folder, a certificate and its key, or both; then those two are for all names that none has.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub dir: Option<PathBuf>,
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// A folder alone.
impl<P: AsRef<Path> + ?Sized> From<&P> for Files {
    fn from(dir: &P) -> Self {
        Self { dir: Some(dir.as_ref().to_owned()), pair: None }
    }
}

/// What is shown to clients now.
#[derive(Debug)]
pub struct Certs {
    files: Files,
    now: ArcSwap<Store>,
    /// Those of the cluster, which all nodes have.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Store {
    /// By name in lower case; a wildcard by its `*.` form.
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
    /// What they were read from, the default one first. None of what a node has anyway: that is for nobody else.
    pems: Vec<Pem>,
    /// Each pair of files as it was last right.
    good: BTreeMap<Pair, (Arc<CertifiedKey>, Pem)>,
    /// What is wrong with others, for people.
    wrong: Vec<String>,
    /// When the first of the pairs of files ends, seconds since 1970; 0 without any.
    first_end_s: u64,
    /// Of the files, to see a change.
    seen: Seen,
}

/// A certificate with its chain and its key, as their files have them.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Names that the certificate is for, in lower case.
    pub names: Vec<String>,
    pub chain: Arc<str>,
    pub key: Arc<str>,
}

/// Without the key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").field("names", &self.names).finish_non_exhaustive()
    }
}

type Seen = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// One pair of files.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pair {
    name: String,
    cert: PathBuf,
    key: PathBuf,
}

impl Certs {
    /// # Errors
    /// No pair of files can be used: which is wrong, and what would be right.
    pub fn load(files: impl Into<Files>) -> Result<Arc<Self>, String> {
        Self::load_beside(files, Arc::default())
    }

    /// The same, with the cluster's for names that none of the files has.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_beside(files: impl Into<Files>, shared: Arc<Shared>) -> Result<Arc<Self>, String> {
        let files = files.into();
        let store = Store::read(&files, None)?;
        Ok(Arc::new(Self { files, now: ArcSwap::from_pointee(store), shared }))
    }

    /// Pairs of files that are not taken, a sentence for each. Those that were right before go on as they were.
    pub fn wrong(&self) -> Vec<String> {
        self.now.load().wrong.clone()
    }

    /// When the first of the pairs of files ends, seconds since 1970, 0 without any; and how many pairs are not taken.
    pub fn figures(&self) -> [u64; 2] {
        let now = self.now.load();
        [now.first_end_s, now.wrong.len() as u64]
    }

    /// One certificate for all names: what a node has anyway. It changes by [`show`](Self::show) alone. The chain and the key are in PEM.
    ///
    /// # Errors
    /// They are none, or do not belong together.
    pub fn own(chain: &str, key: &str) -> Result<Arc<Self>, String> {
        Self::own_beside(chain, key, Arc::default())
    }

    /// The same, for names that none of the cluster's has.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub fn own_beside(chain: &str, key: &str, shared: Arc<Shared>) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { files: Files::default(), now: ArcSwap::from_pointee(Store::one(chain, key)?), shared }))
    }

    /// Another one in its place, for whoever comes from now on.
    ///
    /// # Errors
    /// As [`own`](Self::own); then the former one is shown.
    pub fn show(&self, chain: &str, key: &str) -> Result<(), String> {
        self.now.store(Arc::new(Store::one(chain, key)?));
        Ok(())
    }

    /// Agrees on TLS 1.2 or 1.3 and HTTP/2 or HTTP/1.1 with clients, and shows directories that names are ours.
    ///
    /// # Errors
    /// The provider has no such versions, which does not happen.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        self.acceptor_of(&[H2, b"http/1.1", CHALLENGE])
    }

    /// Agrees on one of these protocols (ALPN) with clients that name some; on none if there are none.
    ///
    /// # Errors
    /// As [`acceptor`](Self::acceptor).
    pub fn acceptor_of(self: &Arc<Self>, protocols: &[&[u8]]) -> Result<TlsAcceptor, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Takes over what changes in the folder, for ever.
    pub async fn follow(self: Arc<Self>) {
        let mut complained = self.complain(None);
        let mut unread = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let me = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                let now = me.now.load();
                let seen = look(&all_pairs(&me.files)?);
                (seen != now.seen).then(|| Store::read(&me.files, Some(&now))).transpose()
            });
            match looked.await {
                Ok(Ok(Some(store))) => {
                    tracing::info!(files = ?self.files, names = store.by_name.len(), "certificates were replaced");
                    self.now.store(Arc::new(store));
                    complained = self.complain(complained);
                    unread = None;
                }
                Ok(Ok(None)) => unread = None,
                Ok(Err(error)) if unread.as_ref() != Some(&error) => {
                    tracing::error!(%error, "the certificates cannot be looked at; the former ones go on");
                    unread = Some(error);
                }
                Ok(Err(_)) => (),
                Err(error) => tracing::error!(%error, "looking at the certificates failed"),
            }
        }
    }

    /// Says what is wrong, unless that was said before.
    fn complain(&self, before: Option<Vec<String>>) -> Option<Vec<String>> {
        let wrong = self.wrong();
        for error in wrong.iter().filter(|error| !before.iter().flatten().any(|said| said == *error)) {
            tracing::error!(%error, "a certificate is not taken; the others are, and it goes on as it was, if it was");
        }
        Some(wrong)
    }

    /// All that there are, with their keys, the one for all other names first, those of files before the cluster's. None of what a
    /// node has anyway.
    pub fn pems(&self) -> Vec<Pem> {
        let mut pems = self.of_files();
        pems.extend(self.shared.pems());
        pems
    }

    /// Those of files.
    pub fn of_files(&self) -> Vec<Pem> {
        self.now.load().pems.clone()
    }

    /// There is one for exactly this name, or a wildcard.
    pub fn has(&self, name: &str) -> bool {
        let store = self.now.load();
        self.named(&store, name).is_some()
    }

    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let store = self.now.load();
        let found = name.and_then(|name| self.named(&store, name));
        let has_files = || !store.pems.is_empty();
        let default = || self.shared.for_others().filter(|_| !has_files());
        found.or_else(default).unwrap_or_else(|| Arc::clone(&store.default))
    }
}

impl Certs {
    fn named(&self, store: &Store, name: &str) -> Option<Arc<CertifiedKey>> {
        let exactly = |name: &str| store.by_name.get(name).cloned().or_else(|| self.shared.find(name));
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // A wildcard stands for one label (RFC 6125 6.4.3).
        let wild = || exactly(&format!("*.{}", name.split_once('.')?.1));
        exactly(&name).or_else(wild)
    }
}

impl ResolvesServerCert for Certs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // That one alone is named by who only looks. None: we have nothing to show.
        if hello.alpn().is_some_and(|mut named| named.next() == Some(CHALLENGE) && named.next().is_none()) {
            return self.shared.proof(hello.server_name()?);
        }
        Some(self.find(hello.server_name()))
    }
}

impl Store {
    fn one(chain: &str, key: &str) -> Result<Self, String> {
        let (default, names) = certified("its certificate", chain.as_bytes(), "its key", key.as_bytes())?;
        let by_name = names.into_iter().map(|name| (name, Arc::clone(&default))).collect();
        let (good, wrong) = (BTreeMap::new(), Vec::new());
        Ok(Self { by_name, default, pems: Vec::new(), good, wrong, first_end_s: 0, seen: Seen::new() })
    }

    /// What the files say now; `before`: as they were last, for pairs that are wrong now.
    fn read(files: &Files, before: Option<&Self>) -> Result<Self, String> {
        let pairs = all_pairs(files)?;
        let seen = look(&pairs);
        let (mut by_name, mut default, mut pems) = (BTreeMap::new(), None, Vec::new());
        let (mut good, mut wrong) = (BTreeMap::new(), Vec::new());
        for pair in pairs {
            let (key, pem) = match read(&pair) {
                Ok(read) => read,
                Err(why) => {
                    wrong.push(why);
                    let Some(former) = before.and_then(|before| before.good.get(&pair)) else { continue };
                    former.clone()
                }
            };
            if default.is_none() || pair.name == DEFAULT && files.pair.is_none() {
                default = Some(Arc::clone(&key));
                pems.insert(0, pem.clone());
            } else {
                pems.push(pem.clone());
            }
            for name in &pem.names {
                by_name.entry(name.clone()).or_insert_with(|| Arc::clone(&key));
            }
            good.insert(pair, (key, pem));
        }
        let Some(default) = default else {
            let dir = files.dir.as_deref().unwrap_or(Path::new("")).display();
            return Err(match wrong.is_empty() {
                true => format!(
                    "{dir} has no certificate; put NAME.crt and NAME.key there, or fullchain.pem and privkey.pem"
                ),
                false => wrong.join("\n"),
            });
        };
        let first_end_s = good.values().filter_map(|(key, _)| ends_at_s(key.cert.first()?)).min().unwrap_or(0);
        Ok(Self { by_name, default, pems, good, wrong, first_end_s, seen })
    }
}

/// The pair that stands alone first: it is what is shown if nothing else fits.
fn all_pairs(files: &Files) -> Result<Vec<Pair>, String> {
    let alone = |(cert, key): &(PathBuf, PathBuf)| Pair { name: String::new(), cert: cert.clone(), key: key.clone() };
    let mut all: Vec<Pair> = files.pair.iter().map(alone).collect();
    if let Some(dir) = &files.dir {
        all.extend(pairs(dir)?);
    }
    Ok(all)
}

/// The pairs of a folder and of the folders in it, by name. A certificate without its key is an error.
fn pairs(dir: &Path) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    let mut inner = Vec::new();
    let list = |dir: &Path| -> Result<Vec<PathBuf>, String> {
        let cannot = |e: std::io::Error| format!("cannot read the folder of certificates {}: {e}", dir.display());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(cannot)? {
            paths.push(entry.map_err(cannot)?.path());
        }
        paths.sort();
        Ok(paths)
    };
    let of = |path: &Path| -> Option<Pair> {
        let name = |path: &Path| path.file_name().and_then(|n| n.to_str()).map(str::to_owned);
        if name(path)? == "fullchain.pem" {
            let key = path.with_file_name("privkey.pem");
            return Some(Pair { name: name(path.parent()?)?, cert: path.to_owned(), key });
        }
        let stem = name(path)?.strip_suffix(".crt")?.to_owned();
        Some(Pair { key: path.with_file_name(format!("{stem}.key")), name: stem, cert: path.to_owned() })
    };
    for path in list(dir)? {
        if path.is_dir() {
            inner.push(path);
        } else {
            pairs.extend(of(&path));
        }
    }
    for dir in inner {
        // Folders that are none of ours to read (certbot's archive, lost+found) have no say.
        pairs.extend(list(&dir).unwrap_or_default().iter().filter_map(|path| of(path)));
    }
    if pairs.len() > PAIRS_MAX {
        return Err(format!("{} has {} certificates; {PAIRS_MAX} are the most", dir.display(), pairs.len()));
    }
    Ok(pairs)
}

fn look(pairs: &[Pair]) -> Seen {
    let files = pairs.iter().flat_map(|pair| [&pair.cert, &pair.key]);
    let seen = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok();
        (path.clone(), meta.as_ref().map_or(0, std::fs::Metadata::len), meta.and_then(|m| m.modified().ok()))
    };
    files.map(seen).collect()
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let length = std::fs::metadata(path).map_err(cannot)?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!(
            "{} has {length} bytes; certificates and keys have {FILE_BYTES_MAX} at most",
            path.display()
        ));
    }
    std::fs::read(path).map_err(cannot)
}

/// A pair as rustls takes it, and as its files have it.
fn read(pair: &Pair) -> Result<(Arc<CertifiedKey>, Pem), String> {
    let (cert, key) = (pair.cert.display().to_string(), pair.key.display().to_string());
    let (chain_pem, key_pem) = (bytes_of(&pair.cert)?, bytes_of(&pair.key)?);
    let (certified, names) = certified(&cert, &chain_pem, &key, &key_pem)?;
    // Notes around PEM may be in any encoding.
    let [chain, key] = [chain_pem, key_pem].map(|pem| String::from_utf8_lossy(&pem).into());
    Ok((certified, Pem { names, chain, key }))
}

/// The same of their bytes, with names for people.
fn certified(
    cert: &str,
    cert_pem: &[u8],
    key: &str,
    key_pem: &[u8],
) -> Result<(Arc<CertifiedKey>, Vec<String>), String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert_pem)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{cert} is not a certificate in PEM: {e}"))?;
    let first = chain.first().ok_or_else(|| format!("{cert} has no certificate in PEM"))?;
    let names = names(first).ok_or_else(|| format!("{cert} begins with something else than an X.509 certificate"))?;
    let secret = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|_| format!("{key} has no private key in PEM (one without a password is needed)"))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, secret, &provider).map(|certified| (Arc::new(certified), names)).map_err(
        |e| match e {
            rustls::Error::InconsistentKeys(_) => {
                format!("{key} is not the key of {cert}; the certificate was made for another one")
            }
            other => format!("{key} and {cert} cannot be used: {other}"),
        },
    )
}

fn ends_at_s(cert: &CertificateDer<'_>) -> Option<u64> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    Some(u64::try_from(cert.validity().not_after.timestamp()).unwrap_or(0))
}

fn names(cert: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    let named = cert.subject_alternative_name().ok().flatten();
    let names = named.iter().flat_map(|named| &named.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("coppice-tls-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(dir.join("certbot")).unwrap();
            Self(dir)
        }

        fn put(&self, cert: &str, key: &str, names: &[&str]) {
            let made = rcgen::generate_simple_self_signed(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
            let made = made.unwrap();
            std::fs::write(self.0.join(cert), made.cert.pem()).unwrap();
            std::fs::write(self.0.join(key), made.signing_key.serialize_pem()).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The first name of the certificate that is shown for a name.
    fn shown(certs: &Certs, name: &str) -> String {
        let found = certs.find(Some(name).filter(|name| !name.is_empty()));
        names(&found.cert[0]).unwrap().remove(0)
    }

    #[test]
    fn the_name_that_is_asked_for_decides_and_default_is_shown_to_the_others() {
        let dir = Folder::new("sni");
        dir.put("a.crt", "a.key", &["a.example"]);
        dir.put("certbot/fullchain.pem", "certbot/privkey.pem", &["*.shop.example", "shop.example"]);
        let certs = Certs::load(&dir.0).unwrap();
        for (name, expect) in [
            ("a.example", "a.example"),
            ("A.Example.", "a.example"),
            ("shop.example", "*.shop.example"),
            ("eu.shop.example", "*.shop.example"),
            ("x.eu.shop.example", "a.example"),
            ("other", "a.example"),
            ("", "a.example"),
        ] {
            assert_eq!(shown(&certs, name), expect, "{name:?}");
        }
        dir.put("default.crt", "default.key", &["z.example"]);
        assert_eq!(shown(&Certs::load(&dir.0).unwrap(), "other"), "z.example");
    }

    #[test]
    fn a_mistake_names_the_file() {
        let dir = Folder::new("wrong");
        let error = |hint: &str| {
            let error = Certs::load(&dir.0).unwrap_err();
            assert!(error.contains(hint), "{error}");
        };
        error("put NAME.crt and NAME.key there");
        dir.put("a.crt", "a.key", &["a.example"]);
        std::fs::rename(dir.0.join("a.key"), dir.0.join("b.key")).unwrap();
        error("cannot read");
        dir.put("c.crt", "a.key", &["c.example"]);
        std::fs::remove_file(dir.0.join("c.crt")).unwrap();
        error("a.key is not the key of");
        std::fs::write(dir.0.join("a.key"), "nothing").unwrap();
        error("no private key");
        std::fs::write(dir.0.join("a.crt"), "nothing").unwrap();
        error("no certificate in PEM");
        let missing = Certs::load(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(missing.contains("/nowhere/at/all"), "{missing}");
    }

    #[tokio::test(start_paused = true)]
    async fn two_files_are_enough_and_are_replaced_too() {
        let dir = Folder::new("alone");
        dir.put("site.pem", "site.secret", &["alone.example"]);
        let files = Files { dir: None, pair: Some((dir.0.join("site.pem"), dir.0.join("site.secret"))) };
        let certs = Certs::load(files.clone()).unwrap();
        assert_eq!(shown(&certs, "any"), "alone.example");
        tokio::spawn(Arc::clone(&certs).follow());
        dir.put("site.pem", "site.secret", &["renewed.example"]);
        until(|| shown(&certs, "any") == "renewed.example").await;

        // Beside a folder they are for names that none of its certificates has.
        dir.put("default.crt", "default.key", &["folder.example"]);
        let both = Certs::load(Files { dir: Some(dir.0.clone()), ..files.clone() }).unwrap();
        assert_eq!(
            (shown(&both, "folder.example"), shown(&both, "x")),
            ("folder.example".into(), "renewed.example".into())
        );
        std::fs::remove_file(dir.0.join("site.secret")).unwrap();
        let error = Certs::load(files).unwrap_err();
        assert!(error.contains("site.secret"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_taken_over_and_wrong_ones_are_not() {
        let dir = Folder::new("reload");
        dir.put("a.crt", "a.key", &["old.example"]);
        let certs = Certs::load(&dir.0).unwrap();
        tokio::spawn(Arc::clone(&certs).follow());
        dir.put("a.crt", "a.key", &["new.example"]);
        until(|| shown(&certs, "x") == "new.example").await;
        std::fs::write(dir.0.join("a.key"), "nothing").unwrap();
        tokio::time::sleep(3 * LOOK_EVERY).await;
        assert_eq!(shown(&certs, "x"), "new.example");
        dir.put("a.crt", "a.key", &["newer.example"]);
        until(|| shown(&certs, "x") == "newer.example").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_pair_is_no_other_pairs_trouble() {
        let dir = Folder::new("beside");
        dir.put("a.crt", "a.key", &["a.example"]);
        dir.put("b.crt", "b.key", &["b.example"]);
        std::fs::write(dir.0.join("b.key"), "nothing").unwrap();
        let certs = Certs::load(&dir.0).unwrap();
        assert_eq!(shown(&certs, "a.example"), "a.example");
        assert_eq!(shown(&certs, "b.example"), "a.example", "it was never right");
        assert!(certs.wrong()[0].contains("b.key"), "{:?}", certs.wrong());
        let [first_end_s, wrong] = certs.figures();
        assert!(first_end_s > 1_700_000_000 && wrong == 1, "{first_end_s} {wrong}");
        tokio::spawn(Arc::clone(&certs).follow());

        // The other one is renewed all the same, and it, too, when it is right.
        dir.put("a.crt", "a.key", &["new.example"]);
        until(|| shown(&certs, "new.example") == "new.example").await;
        dir.put("b.crt", "b.key", &["b.example"]);
        until(|| shown(&certs, "b.example") == "b.example").await;
        assert!(certs.wrong().is_empty());

        // Wrong again it goes on as it was.
        std::fs::write(dir.0.join("b.crt"), "nothing").unwrap();
        until(|| !certs.wrong().is_empty()).await;
        assert_eq!(shown(&certs, "b.example"), "b.example");
        assert_eq!(certs.pems().len(), 2);

        // Without its files it is none any more.
        std::fs::remove_file(dir.0.join("b.crt")).unwrap();
        until(|| shown(&certs, "b.example") == "new.example").await;
        assert!(certs.wrong().is_empty());
    }

    async fn until(test: impl Fn() -> bool) {
        for _ in 0..100 {
            if test() {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("it never became so");
    }
}
