//! Connections: bytes to a machine and what it says back, and what it wants done in between. The deadlines are here,
//! as the machines have no clock.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sdk::{Conn, ObjectReader};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::limits::*;
use crate::post::{Login, Post};
use crate::{pop, smtp};

/// How this service's doors are: what its operator says in `env`, and its certificates.
pub struct Setting {
    /// `MAIL_HOST`: the name by which it speaks.
    pub host: String,
    /// `MAIL_PLAIN_LOGIN=yes`: passwords are taken from other machines without TLS, too.
    pub plain_login: bool,
    /// `MAIL_SIZE_MIB`: the largest message, bytes.
    pub bytes_max: usize,
    pub tls: Tls,
}

/// Begins TLS, for clients that name a protocol only with the right one.
pub struct Tls {
    pub smtp: TlsAcceptor,
    pub pop3: TlsAcceptor,
    /// Whether there is a certificate at this moment.
    pub is_there: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Who talks, and with what.
struct Talk<'a> {
    setting: &'a Setting,
    post: &'a Post,
    peer: IpAddr,
    stop: Stop,
}

/// All of one connection, from the greeting to its end.
pub async fn serve(conn: Conn, setting: Arc<Setting>, post: Arc<Post>, receiving: Arc<Receiving>) {
    let Conn { stream, peer, door, drain, .. } = conn;
    // Answers are written whole: nothing is won by waiting for more.
    let _ = stream.set_nodelay(true);
    let stop = Stop::when(async move { drain.told().await });
    let talk = Talk { setting: &setting, post: &post, peer: peer.ip().to_canonical(), stop };
    let ended = match door.as_str() {
        "smtp" => talk.smtp(stream, false, &receiving).await,
        "lmtp" => talk.smtp(stream, true, &receiving).await,
        "pop3" => talk.pop3(stream, false).await,
        "pop3s" => talk.pop3_by_tls(stream).await,
        other => {
            return tracing::warn!(door = other, "there is no such door: mail has smtp, lmtp, pop3 and pop3s");
        }
    };
    if let Err(error) = ended {
        // Clients go away without a word; that is no news.
        tracing::debug!(%error, %peer, door, "a connection broke off");
    }
}

impl Talk<'_> {
    async fn smtp<S>(mut self, stream: S, is_lmtp: bool, receiving: &Arc<Receiving>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Setting { host, tls, bytes_max, .. } = self.setting;
        let (host, offers_tls) = (host.clone(), (tls.is_there)());
        let setting = smtp::Setting { host, is_lmtp, offers_tls, is_tls: false, bytes_max: *bytes_max };
        let (mut talk, peer) = (SmtpTalk::new(setting, receiving, self.peer), Some(self.peer));
        let Next::Tls(stream) = talk.run(stream, peer, self.post, &mut self.stop).await? else { return Ok(()) };
        let stream = begin_tls(&tls.smtp, stream).await?;
        talk.is_secured();
        talk.run(stream, peer, self.post, &mut self.stop).await.map(|_| ())
    }

    async fn pop3<S>(mut self, stream: S, is_tls: bool) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Setting { host, plain_login, tls, .. } = self.setting;
        let takes_passwords = is_tls || *plain_login || self.peer.is_loopback();
        let offers_tls = !is_tls && (tls.is_there)();
        let setting = pop::Setting { host: host.clone(), offers_tls, takes_passwords };
        let (mut talk, peer) = (PopTalk::new(setting), Some(self.peer));
        let Next::Tls(stream) = talk.run(stream, peer, self.post, &mut self.stop).await? else { return Ok(()) };
        let stream = begin_tls(&tls.pop3, stream).await?;
        talk.is_secured();
        talk.run(stream, peer, self.post, &mut self.stop).await.map(|_| ())
    }

    async fn pop3_by_tls<S>(self, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = begin_tls(&self.setting.tls.pop3, stream).await?;
        self.pop3(stream, true).await
    }
}

async fn begin_tls<S>(tls: &TlsAcceptor, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Bytes of messages that are being received, over all connections, by who sends them.
#[derive(Default)]
pub struct Receiving(Mutex<BTreeMap<IpAddr, usize>>);

/// What one connection has of it.
struct Share {
    all: Arc<Receiving>,
    /// Its client, as far as clients are told apart.
    of: IpAddr,
    held: usize,
}

impl Share {
    fn new(all: &Arc<Receiving>, peer: IpAddr) -> Self {
        Self { all: Arc::clone(all), of: network(peer), held: 0 }
    }

    /// False: there is no room for so much. Who has much already leaves half of all to others.
    fn holds(&mut self, now: usize) -> bool {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let grew = now > self.held;
        let its = all.get(&self.of).map_or(0, |bytes| bytes - self.held) + now;
        if its == 0 {
            all.remove(&self.of);
        } else {
            all.insert(self.of, its);
        }
        self.held = now;
        let most = if its > RECEIVING_OF_ONE { RECEIVING_BYTES_MAX / 2 } else { RECEIVING_BYTES_MAX };
        !grew || all.values().sum::<usize>() <= most
    }
}

/// One machine, or one network of IPv6: its owner has as many addresses there as he likes.
fn network(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => of,
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.holds(0);
    }
}

/// A connection, and what is to be sent over it.
struct Wire<S> {
    stream: S,
    to_send: Vec<u8>,
}

/// What came of waiting for a client.
enum Came {
    Bytes(usize),
    Silence,
    /// This clone is to end.
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    fn new(stream: S) -> Self {
        Self { stream, to_send: Vec::new() }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.to_send.extend_from_slice(bytes);
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.to_send.is_empty() {
            return Ok(());
        }
        let write = async {
            self.stream.write_all(&self.to_send).await?;
            self.stream.flush().await
        };
        timeout(WRITE_TIME_MAX, write).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.to_send.clear();
        Ok(())
    }

    /// Sends what was said, and waits for what the client says to it.
    async fn hear(&mut self, into: &mut [u8], until: Instant, stop: &mut Stop) -> io::Result<Came> {
        self.flush().await?;
        tokio::select! {
            biased;
            () = stop.wait() => Ok(Came::Stop),
            read = timeout_at(until, self.stream.read(into)) => match read {
                Err(_) => Ok(Came::Silence),
                Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read.map(Came::Bytes),
            },
        }
    }

    async fn end(&mut self) -> io::Result<()> {
        self.flush().await?;
        timeout(WRITE_TIME_MAX, self.stream.shutdown()).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// Tells once that this clone is to end.
struct Stop(Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Stop {
    fn when(told: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(told)))
    }

    async fn wait(&mut self) {
        match &mut self.0 {
            Some(told) => {
                told.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }
}

/// How a conversation goes on.
enum Next<S> {
    Ended,
    /// TLS is to begin on this stream, and the conversation to go on over it.
    Tls(S),
}

/// One conversation of SMTP or LMTP, over any stream; with TLS in between it has two.
struct SmtpTalk {
    session: smtp::Session,
    first: Vec<smtp::Output>,
    share: Share,
}

impl SmtpTalk {
    fn new(setting: smtp::Setting, receiving: &Arc<Receiving>, peer: IpAddr) -> Self {
        let mut first = Vec::new();
        let session = smtp::Session::new(setting, &mut first);
        Self { session, first, share: Share::new(receiving, peer) }
    }

    fn is_secured(&mut self) {
        self.session.handle(smtp::Input::Secured, &mut self.first);
    }

    async fn run<S>(&mut self, stream: S, peer: Option<IpAddr>, post: &Post, stop: &mut Stop) -> io::Result<Next<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut wire = Wire::new(stream);
        let mut buffer = vec![0; READ_BYTES];
        let mut out = std::mem::take(&mut self.first);
        let mut received_by: Option<Instant> = None;
        loop {
            while !out.is_empty() {
                for output in std::mem::take(&mut out) {
                    match output {
                        smtp::Output::Say(bytes) => wire.say(&bytes),
                        smtp::Output::Ask(address) => {
                            let known = post.recipient(&address).await;
                            self.session.handle(smtp::Input::Known(known), &mut out);
                        }
                        smtp::Output::Deliver(envelope) => {
                            let each = post.deliver(&envelope, peer).await;
                            self.session.handle(smtp::Input::Delivered(each), &mut out);
                        }
                        smtp::Output::StartTls => {
                            wire.flush().await?;
                            return Ok(Next::Tls(wire.stream));
                        }
                        smtp::Output::Close => {
                            wire.end().await?;
                            return Ok(Next::Ended);
                        }
                    }
                }
            }
            if !self.share.holds(self.session.held()) {
                self.session.handle(smtp::Input::NoRoom, &mut out);
                continue;
            }
            let now = Instant::now();
            received_by = self.session.is_receiving().then(|| received_by.unwrap_or(now + RECEIVE_TIME_MAX));
            let until = received_by.map_or(now + SMTP_SILENCE_MAX, |by| by.min(now + SMTP_SILENCE_MAX));
            let input = match wire.hear(&mut buffer, until, stop).await? {
                Came::Bytes(count) => smtp::Input::Bytes(&buffer[..count]),
                Came::Silence => smtp::Input::Silence,
                Came::Stop => smtp::Input::Goodbye,
            };
            self.session.handle(input, &mut out);
        }
    }
}

/// One conversation of POP3.
struct PopTalk {
    session: pop::Session,
    first: Vec<pop::Output>,
}

impl PopTalk {
    fn new(setting: pop::Setting) -> Self {
        let mut first = Vec::new();
        let session = pop::Session::new(setting, &mut first);
        Self { session, first }
    }

    fn is_secured(&mut self) {
        self.session.handle(pop::Input::Secured, &mut self.first);
    }

    async fn run<S>(&mut self, stream: S, peer: Option<IpAddr>, post: &Post, stop: &mut Stop) -> io::Result<Next<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut wire = Wire::new(stream);
        let mut buffer = vec![0; READ_BYTES];
        let mut out = std::mem::take(&mut self.first);
        let (mut login, mut reader) = (None::<Login>, None::<ObjectReader>);
        loop {
            while !out.is_empty() {
                for output in std::mem::take(&mut out) {
                    match output {
                        pop::Output::Say(bytes) => say_large(&mut wire, &bytes).await?,
                        pop::Output::LogIn { user, password } => {
                            let entries = post.log_in(&user, password, peer).await.map(|(who, entries)| {
                                login = Some(who);
                                entries
                            });
                            self.session.handle(pop::Input::LoggedIn(entries), &mut out);
                        }
                        pop::Output::Fetch(id) => {
                            let opened = match &mut login {
                                Some(login) => login.ahead.open(id).await,
                                None => Err(pop::NotOpened::Gone),
                            };
                            let bytes = opened.as_ref().map(ObjectReader::bytes).map_err(|not| *not);
                            reader = opened.ok();
                            self.session.handle(pop::Input::Opened(bytes), &mut out);
                        }
                        pop::Output::More => {
                            let piece = match &mut reader {
                                Some(reader) => reader.next().await,
                                None => Ok(None),
                            };
                            let piece = piece.map_err(|error| {
                                tracing::warn!(%error, mailbox = mailbox_of(&login), "a message breaks off");
                                pop::Broken
                            });
                            self.session.handle(pop::Input::Piece(piece), &mut out);
                        }
                        pop::Output::Delete(ids) => {
                            let failed = post.delete(mailbox_of(&login), ids).await;
                            self.session.handle(pop::Input::Deleted { failed }, &mut out);
                        }
                        pop::Output::StartTls => {
                            wire.flush().await?;
                            return Ok(Next::Tls(wire.stream));
                        }
                        pop::Output::Close => {
                            wire.end().await?;
                            return Ok(Next::Ended);
                        }
                    }
                }
            }
            let input = match wire.hear(&mut buffer, Instant::now() + POP_SILENCE_MAX, stop).await? {
                Came::Bytes(count) => match &mut login {
                    Some(login) => match post.is_still(login).await {
                        true => pop::Input::Bytes(&buffer[..count]),
                        false => pop::Input::Revoked,
                    },
                    None => pop::Input::Bytes(&buffer[..count]),
                },
                Came::Silence => pop::Input::Silence,
                Came::Stop => pop::Input::Goodbye,
            };
            self.session.handle(input, &mut out);
        }
    }
}

/// The mailbox of who is logged in.
fn mailbox_of(login: &Option<Login>) -> &str {
    login.as_ref().map_or("", |login| &login.mailbox)
}

/// Gathers small answers, and sends large ones before the next is read: a client that asks for many ahead holds one
/// in memory.
async fn say_large<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>, bytes: &Bytes) -> io::Result<()> {
    wire.say(bytes);
    if wire.to_send.len() >= READ_BYTES { wire.flush().await } else { Ok(()) }
}

const _: () =
    assert!(Duration::as_secs(&SMTP_SILENCE_MAX) < Duration::as_secs(&RECEIVE_TIME_MAX), "silence ends first");

#[cfg(test)]
mod tests {
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use sdk::{Linear, Node, Objects};
    use tokio::io::DuplexStream;
    use tokio::sync::Semaphore;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::auth::guess::Guesses;
    use crate::post::Verified;
    use crate::store::{Accounts, Mailboxes, Turns};

    /// A post office whose cluster is away.
    fn post() -> Post {
        let node = Node::at(["127.0.0.1:1".parse().unwrap()]).unwrap();
        Post {
            host: "mx.example".into(),
            accounts: Accounts::new(&Linear::new(node.clone(), "a", "t")),
            mailboxes: Mailboxes::new(Objects::new(node.clone(), "m", "t")),
            guesses: Guesses::new(&Linear::new(node, "g", "t")),
            verified: Verified::new().unwrap(),
            turns: Turns::default(),
            ahead: Arc::new(Semaphore::new(1)),
            checks: None,
            storing: Semaphore::new(1),
            verifying: Arc::new(Semaphore::new(1)),
        }
    }

    fn provider() -> Arc<rustls::crypto::CryptoProvider> {
        Arc::new(rustls::crypto::ring::default_provider())
    }

    /// What begins TLS here, and at the other end.
    fn ends() -> (TlsAcceptor, TlsConnector) {
        let made = rcgen::generate_simple_self_signed(["mx.example".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let server =
            rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let client =
            rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
    }

    fn setting(tls: TlsAcceptor, has_tls: bool) -> Setting {
        let tls = Tls { smtp: tls.clone(), pop3: tls, is_there: Box::new(move || has_tls) };
        Setting { host: "mx.example".into(), plain_login: false, bytes_max: 1 << 20, tls }
    }

    /// Says something and hears up to the end of what is said to it.
    async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), said: &str, end: &str) -> String {
        stream.write_all(said.as_bytes()).await.unwrap();
        let (mut heard, mut buffer) = (String::new(), [0; 1000]);
        while !heard.ends_with(end) {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "it ended after {heard:?}");
            heard += std::str::from_utf8(&buffer[..read]).unwrap();
        }
        heard
    }

    fn pair() -> (DuplexStream, DuplexStream) {
        tokio::io::duplex(1 << 16)
    }

    #[tokio::test]
    async fn tls_begins_in_the_middle_and_nothing_from_before_is_heard() {
        let (accepts, connects) = ends();
        let (setting, post) = (setting(accepts, true), post());
        let name = || ServerName::try_from("mx.example").unwrap();
        let talk = |stop| Talk { setting: &setting, post: &post, peer: "192.0.2.1".parse().unwrap(), stop };
        let never = || Stop::when(std::future::pending());

        let (mut ours, theirs) = pair();
        let receiving = Arc::default();
        let client = async {
            exchange(&mut ours, "EHLO me\r\n", "250 STARTTLS\r\n").await;
            exchange(&mut ours, "STARTTLS\r\nNOOP\r\n", "220 2.0.0 begin TLS\r\n").await;
            let mut ours = connects.connect(name(), ours).await.unwrap();
            let heard = exchange(&mut ours, "MAIL FROM:<a@b>\r\n", "\r\n").await;
            assert!(heard.starts_with("503 5.5.1 say who"), "{heard}");
            let heard = exchange(&mut ours, "EHLO me\r\n", "250 DSN\r\n").await;
            assert!(!heard.contains("STARTTLS"), "{heard}");
            exchange(&mut ours, "QUIT\r\n", "221 2.0.0 goodbye\r\n").await;
        };
        tokio::join!(client, async { talk(never()).smtp(theirs, false, &receiving).await.unwrap() });

        let (mut ours, theirs) = pair();
        let client = async {
            let heard = exchange(&mut ours, "USER ann\r\nSTLS\r\n", "begin TLS\r\n").await;
            assert!(heard.contains("-ERR [AUTH] begin TLS first"), "{heard}");
            let mut ours = connects.connect(name(), ours).await.unwrap();
            exchange(&mut ours, "USER ann\r\n", "+OK and the password?\r\n").await;
            exchange(&mut ours, "QUIT\r\n", "+OK goodbye\r\n").await;
        };
        tokio::join!(client, async { talk(never()).pop3(theirs, false).await.unwrap() });

        let (ours, theirs) = pair();
        let client = async {
            let mut ours = connects.connect(name(), ours).await.unwrap();
            exchange(&mut ours, "CAPA\r\n", "\r\n.\r\n").await;
            exchange(&mut ours, "QUIT\r\n", "+OK goodbye\r\n").await;
        };
        tokio::join!(client, async { talk(never()).pop3_by_tls(theirs).await.unwrap() });
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_or_slow_is_shown_out_and_so_are_all_when_it_stops() {
        let (setting, post) = (setting(ends().0, false), post());
        let receiving: Arc<Receiving> = Arc::default();
        let talk = |stop| Talk { setting: &setting, post: &post, peer: "192.0.2.1".parse().unwrap(), stop };
        let never = || Stop::when(std::future::pending());
        let said = async |mut ours: DuplexStream| {
            let mut heard = String::new();
            ours.read_to_string(&mut heard).await.unwrap();
            heard
        };
        let (ours, theirs) = pair();
        let (heard, ended) = tokio::join!(said(ours), talk(never()).smtp(theirs, false, &receiving));
        assert!(ended.is_ok() && heard.ends_with("421 4.4.2 nothing came for too long\r\n"), "{heard}");

        let (ours, theirs) = pair();
        let stop = Stop::when(tokio::time::sleep(Duration::from_secs(1)));
        let (heard, ended) = tokio::join!(said(ours), talk(stop).pop3(theirs, false));
        assert!(ended.is_ok() && heard.ends_with("is about to stop: come again\r\n"), "{heard}");

        // Nobody can say who has a mailbox: to be sent again, and not to be given up.
        let (mut ours, theirs) = pair();
        let client = async {
            exchange(&mut ours, "", "Coppice\r\n").await;
            exchange(&mut ours, "EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ann@here>\r\n", "cannot be looked up now\r\n")
                .await;
            drop(ours);
        };
        let ((), ended) = tokio::join!(client, talk(never()).smtp(theirs, false, &receiving));
        assert!(ended.is_err());
    }

    #[test]
    fn memory_for_messages_is_counted_over_all_connections_and_nobody_has_all_of_it() {
        let all: Arc<Receiving> = Arc::default();
        let of = |peer: &str| Share::new(&all, peer.parse().unwrap());
        let (mut one, mut again) = (of("192.0.2.1"), of("192.0.2.1"));
        assert!(one.holds(RECEIVING_BYTES_MAX / 2 - 10) && again.holds(10));
        assert!(!again.holds(11) && one.holds(5), "who gives back is never told that there is no room");
        assert!(again.holds(12));
        one.holds(RECEIVING_BYTES_MAX / 2 - 12);
        let mut others: Vec<Share> = (2..6).map(|n| of(&format!("192.0.2.{n}"))).collect();
        assert!(others.iter_mut().all(|share| share.holds(RECEIVING_BYTES_MAX / 8)), "half of it is left to others");
        assert!(!others[0].holds(RECEIVING_BYTES_MAX / 8 + 1), "all of it is taken");
        drop((one, again, others));
        let (mut six, mut beside) = (of("2001:db8::1"), of("2001:db8::2:0:0:1"));
        assert!(six.holds(1) && beside.holds(1));
        assert_eq!(all.0.lock().unwrap().len(), 1, "a network of IPv6 is one");
        drop((six, beside));
        assert!(all.0.lock().unwrap().is_empty());
    }
}
