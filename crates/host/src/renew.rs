//! Entering the cluster anew: a node whose disk is not to be trusted proves by its certificate who it was, and is given
//! another identity. It never again is who it was, so nothing that it may have forgotten can be held against the cluster.
//! Whether the cluster can do without what it had is for the desk to say, which asks the cluster.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use base::{ClusterId, NodeId};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::crowd::Place;
use crate::disk::DISTRUSTED;
use crate::hello::Purpose;
use crate::identity::{new_request, random_node_id, write_safely};
use crate::join::{read_message, write_message};
use crate::limits::{CONNECT_WAIT, JOIN_WAIT};
use crate::tls::{Tls, explain, node_of};
use crate::{DataDir, Error, Identity, JoinDesk, JoinGrant};

/// What a node asks for that cannot go on as who it was.
#[derive(Clone, Debug)]
pub struct RenewWish {
    /// Who it was: proved.
    pub former: NodeId,
    pub name: String,
    /// What is wrong with its disk.
    pub why: String,
    /// The id it would like, drawn at random.
    pub node: NodeId,
    /// Certificate request (DER) for [`crate::Authority::sign`].
    pub request: Vec<u8>,
}

/// The cluster does not do it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct NotRenewed {
    pub why: String,
    /// It may do it later.
    pub later: bool,
}

#[derive(Serialize, Deserialize)]
struct WishMessage {
    name: String,
    why: String,
    node: NodeId,
    request: String,
}

/// The new identity until it has taken the place of the old one.
pub(crate) const NEXT: &str = "identity.next";
/// What the log was, for whoever wants to look at it.
pub const SET_ASIDE: &str = "log.distrusted";
/// In a log: its node's id. What it alone has is to be taken over when it was set aside.
pub(crate) const FORMER: &str = "former";
/// First records of a cluster that this node once founded: it does not found it again.
pub(crate) const FOUNDING: &str = "founding.json";

/// Asks these peers in turn for another identity. Nothing is written to disk; see [`DataDir::enter_anew`].
pub async fn renew(identity: &Identity, peers: &[SocketAddr], why: &str) -> Result<Identity, NotRenewed> {
    let broken = |e: Error| NotRenewed { why: e.to_string(), later: false };
    let (key_pem, request) = new_request(&identity.name).map_err(broken)?;
    let wish = WishMessage {
        name: identity.name.clone(),
        why: why.to_owned(),
        node: random_node_id().map_err(broken)?,
        request: BASE64_URL_SAFE_NO_PAD.encode(request),
    };
    let wish = serde_json::to_vec(&wish).expect("a wish is plain data");
    let tls = Tls::new(identity).map_err(broken)?;
    let mut refused: Option<NotRenewed> = None;
    let mut unreached = Vec::new();
    for &peer in peers {
        let asked = timeout(JOIN_WAIT, ask(peer, &tls, &wish)).await;
        match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(Ok(grant)) => {
                let new = Identity {
                    node: grant.node,
                    cert_pem: grant.cert_pem,
                    ca_pem: grant.ca_pem,
                    key_pem,
                    ..identity.clone()
                };
                // Finds out that certificate, key and id belong together.
                Tls::new(&new).map_err(broken)?;
                return Ok(new);
            }
            // A word for good counts more than one for now.
            Ok(Err(no)) if refused.as_ref().is_none_or(|old| old.later) => refused = Some(no),
            Ok(Err(_)) => (),
            Err(e) => unreached.push(format!("{peer}: {}", explain(&e).1)),
        }
    }
    let nobody = if peers.is_empty() { "it knows no other node".to_owned() } else { unreached.join("; ") };
    let nobody = NotRenewed { why: format!("no node of the cluster can be asked: {nobody}"), later: !peers.is_empty() };
    Err(refused.unwrap_or(nobody))
}

async fn ask(peer: SocketAddr, tls: &Tls, wish: &[u8]) -> io::Result<Result<JoinGrant, NotRenewed>> {
    let connect = timeout(CONNECT_WAIT, TcpStream::connect(peer));
    let mut tcp = connect.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    tcp.write_all(Purpose::Renew.preface()).await?;
    let mut stream = TlsConnector::from(tls.client()).connect(tls.name_of(None), tcp).await?;
    write_message(&mut stream, wish).await?;
    let answer = read_message(&mut stream).await?;
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

/// One node, from its preface (read already) to its grant. It has this place until it has shown who it was.
pub(crate) async fn serve(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    cluster: ClusterId,
    desk: Arc<dyn JoinDesk>,
    place: Place,
    joins: &Semaphore,
) {
    match timeout(JOIN_WAIT, serve_one(tcp, tls, cluster, &*desk, place, joins)).await {
        Ok(Ok(())) => (),
        Ok(Err(e)) => tracing::warn!("a node that would enter anew is refused: {}", explain(&e).1),
        Err(_) => tracing::warn!("a node that would enter anew took too long"),
    }
}

async fn serve_one(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    cluster: ClusterId,
    desk: &dyn JoinDesk,
    place: Place,
    joins: &Semaphore,
) -> io::Result<()> {
    let tcp = TcpStream::from_std(tcp)?;
    let from = tcp.peer_addr()?;
    let proved = place.within(TlsAcceptor::from(tls).accept(tcp)).await;
    let mut stream = proved.ok_or(io::ErrorKind::ConnectionAborted)??;
    let former = node_of(stream.get_ref().1, cluster)?;
    if !desk.may_renew(former).await {
        return Err(io::Error::other(format!("{former} is not one of the cluster's nodes")));
    }
    let _one = joins.try_acquire().map_err(|_| io::Error::other("too many enter at once"))?;
    drop(place);
    let message: WishMessage = serde_json::from_slice(&read_message(&mut stream).await?)?;
    let request = BASE64_URL_SAFE_NO_PAD.decode(&message.request).map_err(io::Error::other)?;
    let WishMessage { name, why, node, .. } = message;
    let answer = desk.renew(RenewWish { former, name: name.clone(), why: why.clone(), node, request }).await;
    match &answer {
        Ok(grant) => tracing::warn!(%from, name, %former, node = %grant.node, why, "a node enters anew"),
        Err(no) => tracing::warn!(%from, name, %former, "a node that would enter anew is refused: {no}"),
    }
    write_message(&mut stream, &serde_json::to_vec(&answer).expect("a grant is plain data")).await?;
    stream.shutdown().await
}

impl DataDir {
    /// Leaves word that the log is sound, and whose it is: the node was away for too long, and goes on with what it alone has.
    pub fn leaves_its_own(&self, node: NodeId) -> Result<(), Error> {
        write_safely(&self.path().join(crate::disk::LOG_DIR), FORMER, node.0.to_string().as_bytes())
    }

    /// Takes another identity over. The log of the former one is set aside; after a crash the next start goes on here.
    pub fn enter_anew(&self, identity: &Identity) -> Result<(), Error> {
        let json = serde_json::to_vec(identity).expect("an identity is plain data");
        write_safely(self.path(), NEXT, &json)?;
        self.finish_entering()
    }

    /// Goes on where a crash cut [`DataDir::enter_anew`] short. Comes before anything else that reads this folder.
    pub fn finish_entering(&self) -> Result<(), Error> {
        let path = |name: &str| self.path().join(name);
        let json = match fs::read(path(NEXT)) {
            Ok(json) => json,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io(path(NEXT).display().to_string())(e)),
        };
        let identity: Identity =
            serde_json::from_slice(&json).map_err(|e| Error::NotOurs { file: path(NEXT), what: e.to_string() })?;
        let gone = |result: io::Result<()>| match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        let steps = || {
            gone(fs::remove_file(path(FOUNDING)))?;
            // Nobody has lived under the new name.
            gone(fs::remove_file(path("boot")))?;
            if path("log").exists() {
                gone(fs::remove_dir_all(path(SET_ASIDE)))?;
                fs::rename(path("log"), path(SET_ASIDE))?;
            }
            File::open(self.path())?.sync_all()
        };
        steps().map_err(Error::io(format!("cannot set the log in {} aside", self.path().display())))?;
        identity.save(self)?;
        let last = || {
            gone(fs::remove_file(path(DISTRUSTED)))?;
            fs::remove_file(path(NEXT))?;
            File::open(self.path())?.sync_all()
        };
        last().map_err(Error::io(self.path().display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::temp_dir;

    #[test]
    fn whatever_step_a_crash_follows_the_next_start_ends_with_the_new_identity_and_no_log() {
        let (old, authority) = crate::identity::found("home", "a").unwrap();
        let (key_pem, request) = new_request("a").unwrap();
        let node = NodeId(77);
        let cert_pem = authority.sign(&request, node, old.cluster, "a").unwrap();
        let new = Identity { node, cert_pem, key_pem, ..old.clone() };
        // How far it came: the log set aside, the first files of the identity written, the marker removed.
        for crashed_after in 0..4 {
            let temp = temp_dir("anew");
            let dir = DataDir::open(&temp.0).unwrap();
            old.save(&dir).unwrap();
            fs::create_dir(temp.0.join("log")).unwrap();
            fs::write(temp.0.join("log/0.seg"), "what was").unwrap();
            fs::write(temp.0.join(FOUNDING), "{}").unwrap();
            dir.next_boot().unwrap();
            fs::write(temp.0.join(DISTRUSTED), "old").unwrap();
            write_safely(&temp.0, NEXT, &serde_json::to_vec(&new).unwrap()).unwrap();
            if crashed_after > 0 {
                fs::rename(temp.0.join("log"), temp.0.join(SET_ASIDE)).unwrap();
            }
            if crashed_after > 1 {
                write_safely(&temp.0, "node.key", new.key_pem.as_bytes()).unwrap();
            }
            if crashed_after > 2 {
                fs::remove_file(temp.0.join(DISTRUSTED)).unwrap();
            }
            dir.finish_entering().unwrap();
            assert_eq!(Identity::load(&dir).unwrap(), Some(new.clone()), "{crashed_after}");
            for gone in ["log", FOUNDING, DISTRUSTED, NEXT] {
                assert!(!temp.0.join(gone).exists(), "{gone} is there after {crashed_after}");
            }
            assert_eq!(dir.next_boot().unwrap(), base::Boot(1));
            assert_eq!(fs::read(temp.0.join(SET_ASIDE).join("0.seg")).unwrap(), b"what was");
            dir.finish_entering().unwrap();
        }
    }
}
