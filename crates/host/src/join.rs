//! Joining: a newcomer with a token becomes a member with a certificate. The token carries some addresses, the
//! fingerprint of the cluster's authority (so that the newcomer gives its secret to nobody else) and a secret that the
//! cluster knows the hash of. Whether the secret still holds is for the desk to say, which asks the cluster.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use base::checksum::Checksum;
use base::{ClusterId, NodeId};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut};
use futures_util::future::BoxFuture;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::crowd::Place;
use crate::hello::Purpose;
use crate::identity::{fill_random, new_request, random_node_id};
use crate::limits::{CONNECT_WAIT, JOIN_BYTES_MAX, JOIN_WAIT};
use crate::renew::{NotRenewed, RenewWish};
use crate::tls::{explain, fingerprint, join_client, sha256};
use crate::{Error, Identity};

/// An invitation. Its text form is one word; whoever has it can join until it expires.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Peer addresses of nodes to try, at most 255.
    pub seeds: Vec<SocketAddr>,
    /// SHA-256 of the certificate of the cluster's authority.
    pub authority: [u8; 32],
    secret: [u8; 16],
}

/// What a newcomer asks for.
#[derive(Clone, Debug)]
pub struct JoinWish {
    /// SHA-256 of the token's secret, as [`JoinToken::secret_hash`] gives it.
    pub secret_hash: [u8; 32],
    pub name: String,
    /// The id it would like, drawn at random.
    pub node: NodeId,
    /// What the newcomer's program understands ([`base::level`]).
    pub level: u32,
    /// Certificate request (DER) for [`crate::Authority::sign`].
    pub request: Vec<u8>,
}

/// What it is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinGrant {
    pub node: NodeId,
    pub cluster: ClusterId,
    pub cluster_name: String,
    pub cert_pem: String,
    pub ca_pem: String,
}

/// Decides who may join; asks the cluster.
pub trait JoinDesk: Send + Sync {
    /// The error is read by the person who tries to join: say whether the token is unknown or expired.
    fn admit(&self, wish: JoinWish) -> BoxFuture<'static, Result<JoinGrant, String>>;

    /// Is it one of the cluster's nodes, or was it before it entered anew? Asked before anything of it is read.
    fn may_renew(&self, former: NodeId) -> BoxFuture<'static, bool>;

    /// May this node, whose disk is not to be trusted, be somebody else from now on?
    fn renew(&self, wish: RenewWish) -> BoxFuture<'static, Result<JoinGrant, NotRenewed>>;
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("this is no join token: {0}")]
    BadToken(&'static str),
    #[error("no node of the cluster can be reached: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    #[error("{0} belongs to another cluster than this token; make a new one with `coppice token` on the right cluster")]
    WrongCluster(SocketAddr),
    #[error("the cluster refuses: {0}")]
    Refused(String),
    #[error(transparent)]
    Own(#[from] Error),
}

#[derive(Serialize, Deserialize)]
struct WishMessage {
    secret: String,
    name: String,
    node: NodeId,
    request: String,
    /// 0: of a program that knows of no levels.
    #[serde(default)]
    level: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrantMessage {
    Granted(JoinGrant),
    Refused(String),
}

const TOKEN_PREFIX: &str = "coppice1-";

impl JoinToken {
    /// A new invitation into the cluster of this authority.
    pub fn new(seeds: Vec<SocketAddr>, ca_pem: &str) -> Result<JoinToken, Error> {
        let mut secret = [0; 16];
        fill_random(&mut secret)?;
        Ok(JoinToken { seeds, authority: fingerprint(ca_pem)?, secret })
    }

    /// What the cluster keeps of it.
    pub fn secret_hash(&self) -> [u8; 32] {
        sha256(&self.secret)
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.authority);
        bytes.extend_from_slice(&self.secret);
        for seed in self.seeds.iter().take(255) {
            match seed.ip() {
                IpAddr::V4(ip) => {
                    bytes.put_u8(4);
                    bytes.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.put_u8(6);
                    bytes.extend_from_slice(&ip.octets());
                }
            }
            bytes.put_u16(seed.port());
        }
        bytes.put_u32(Checksum::of(&bytes).0);
        write!(f, "{TOKEN_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for JoinToken {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<JoinToken, JoinError> {
        let cut = || JoinError::BadToken("it is cut off or mistyped");
        let text = text.trim().strip_prefix(TOKEN_PREFIX);
        let text = text.ok_or(JoinError::BadToken("a token begins with `coppice1-`"))?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| cut())?;
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(cut)?;
        if Checksum::of(body) != Checksum(u32::from_be_bytes(*sum)) {
            return Err(cut());
        }
        let (authority, rest) = body.split_first_chunk::<32>().ok_or_else(cut)?;
        let (secret, mut rest) = rest.split_first_chunk::<16>().ok_or_else(cut)?;
        let mut seeds = Vec::new();
        while rest.has_remaining() {
            let ip = match rest.get_u8() {
                4 => rest.try_get_u32().map_err(|_| cut())?.to_be_bytes().into(),
                6 => rest.try_get_u128().map_err(|_| cut())?.to_be_bytes().into(),
                _ => return Err(cut()),
            };
            seeds.push(SocketAddr::new(ip, rest.try_get_u16().map_err(|_| cut())?));
        }
        Ok(JoinToken { seeds, authority: *authority, secret: *secret })
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken(to {:?})", self.seeds)
    }
}

/// Joins with a program of this level: tries the token's addresses in turn until one grants. Nothing is written to disk; save the
/// identity.
pub async fn join(token: &JoinToken, name: &str, level: u32) -> Result<Identity, JoinError> {
    let (key_pem, request) = new_request(name)?;
    let node = random_node_id()?;
    let wish = WishMessage {
        secret: BASE64_URL_SAFE_NO_PAD.encode(token.secret),
        name: name.into(),
        node,
        request: BASE64_URL_SAFE_NO_PAD.encode(request),
        level,
    };
    let wish = serde_json::to_vec(&wish).expect("a wish is plain data");
    let tls = TlsConnector::from(join_client(token.authority)?);
    let (mut unreached, mut refused) = (Vec::new(), None);
    for &seed in &token.seeds {
        let asked = timeout(JOIN_WAIT, ask(seed, &tls, &wish)).await;
        match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(GrantMessage::Granted(grant)) => return accept(token, name, key_pem, grant),
            Ok(GrantMessage::Refused(why)) => refused = Some(JoinError::Refused(why)),
            Err(e) if matches!(explain(&e), (true, _)) => refused = Some(JoinError::WrongCluster(seed)),
            Err(e) => unreached.push(format!("{seed}: {e}")),
        }
    }
    Err(refused.unwrap_or(JoinError::Unreachable(unreached)))
}

async fn ask(seed: SocketAddr, tls: &TlsConnector, wish: &[u8]) -> io::Result<GrantMessage> {
    let connect = timeout(CONNECT_WAIT, TcpStream::connect(seed));
    let mut tcp = connect.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    tcp.write_all(Purpose::Join.preface()).await?;
    // The fingerprint says who is there, the name says nothing.
    let name = ServerName::try_from("coppice").expect("a DNS name");
    let mut stream = tls.connect(name, tcp).await?;
    write_message(&mut stream, wish).await?;
    let answer = read_message(&mut stream).await?;
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

fn accept(token: &JoinToken, name: &str, key_pem: String, grant: JoinGrant) -> Result<Identity, JoinError> {
    let identity = Identity {
        node: grant.node,
        name: name.into(),
        cluster: grant.cluster,
        cluster_name: grant.cluster_name,
        cert_pem: grant.cert_pem,
        key_pem,
        ca_pem: grant.ca_pem,
    };
    if fingerprint(&identity.ca_pem)? != token.authority {
        return Err(Error::Identity("the cluster sent another authority than the token names".into()).into());
    }
    // Finds out that certificate, key and id belong together.
    crate::tls::Tls::new(&identity)?;
    Ok(identity)
}

/// One newcomer, from its preface (read already) to its grant. It has this place until it has said what it wants.
pub(crate) async fn serve(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    desk: Arc<dyn JoinDesk>,
    place: Place,
    joins: &Semaphore,
) {
    match timeout(JOIN_WAIT, serve_one(tcp, tls, &*desk, place, joins)).await {
        Ok(Ok(())) => (),
        Ok(Err(e)) => tracing::warn!("a newcomer is refused: {}", explain(&e).1),
        Err(_) => tracing::warn!("a newcomer took too long"),
    }
}

async fn serve_one(
    tcp: std::net::TcpStream,
    tls: Arc<ServerConfig>,
    desk: &dyn JoinDesk,
    place: Place,
    joins: &Semaphore,
) -> io::Result<()> {
    let tcp = TcpStream::from_std(tcp)?;
    let from = tcp.peer_addr()?;
    let said = async {
        let mut stream = TlsAcceptor::from(tls).accept(tcp).await?;
        let message = read_message(&mut stream).await?;
        io::Result::Ok((stream, message))
    };
    let (mut stream, message) = place.within(said).await.ok_or(io::ErrorKind::ConnectionAborted)??;
    let message: WishMessage = serde_json::from_slice(&message)?;
    let _one = joins.try_acquire().map_err(|_| io::Error::other("too many join at once"))?;
    drop(place);
    let answer = match (BASE64_URL_SAFE_NO_PAD.decode(&message.secret), BASE64_URL_SAFE_NO_PAD.decode(&message.request))
    {
        (Ok(secret), Ok(request)) => {
            let wish = JoinWish {
                secret_hash: sha256(&secret),
                name: message.name.clone(),
                node: message.node,
                level: message.level.max(1),
                request,
            };
            desk.admit(wish).await
        }
        _ => Err("the request cannot be read; is that node of another version?".into()),
    };
    let answer = match answer {
        Ok(grant) => {
            tracing::info!(%from, name = message.name, node = %grant.node, "a node joins");
            GrantMessage::Granted(grant)
        }
        Err(why) => {
            tracing::warn!(%from, name = message.name, "a newcomer is refused: {why}");
            GrantMessage::Refused(why)
        }
    };
    write_message(&mut stream, &serde_json::to_vec(&answer).expect("a grant is plain data")).await?;
    stream.shutdown().await
}

pub(crate) async fn write_message(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    stream.write_u32(u32::try_from(bytes.len()).map_err(io::Error::other)?).await?;
    stream.write_all(bytes).await?;
    stream.flush().await
}

pub(crate) async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let len = stream.read_u32().await? as usize;
    if len > JOIN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> JoinToken {
        let seeds = vec!["127.0.0.1:7071".parse().unwrap(), "[::1]:80".parse().unwrap()];
        JoinToken { seeds, authority: [7; 32], secret: [9; 16] }
    }

    #[test]
    fn a_token_reads_back_and_one_wrong_letter_is_noticed() {
        let text = sample().to_string();
        assert_eq!(text.parse::<JoinToken>().unwrap(), sample());
        for at in TOKEN_PREFIX.len()..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            assert!(String::from_utf8(wrong).unwrap().parse::<JoinToken>().is_err(), "letter {at}");
            assert!(text[..at].parse::<JoinToken>().is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_token_does_not_show_its_secret_in_logs() {
        assert!(!format!("{:?}", sample()).contains('9'));
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_an_error(text in "(coppice1-)?[A-Za-z0-9_-]{0,120}") {
            let _ = text.parse::<JoinToken>();
        }
    }
}
