//! What the doors want done: who has an address, who somebody is, a message stored or read. All connections of a
//! clone share one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use futures_util::future::join_all;
use ring::hmac;
use sdk::ObjectId;
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::auth::guess::Guesses;
use crate::auth::password;
use crate::check::{Checked, Checks};
use crate::letter::{self, Letter, Stamp};
use crate::limits::*;
use crate::notice::Notice;
use crate::pop::{Entry, Refused};
use crate::smtp::{Delivered, Envelope, Recipient};
use crate::store::{Account, Accounts, Ahead, Mailboxes, Turn, Turns};

/// The post office of this clone.
pub struct Post {
    /// The name by which it speaks.
    pub host: String,
    pub accounts: Accounts,
    pub mailboxes: Mailboxes,
    pub guesses: Guesses,
    pub verified: Verified,
    /// Sessions of one mailbox come one after the other.
    pub turns: Turns,
    /// Messages that are read ahead, over all sessions.
    pub ahead: Arc<Semaphore>,
    /// None: nobody is asked about senders.
    pub checks: Option<Checks>,
    /// Messages that are being stored.
    pub storing: Semaphore,
    /// Passwords that are being compared.
    pub verifying: Arc<Semaphore>,
}

impl Post {
    /// Who gets what is sent to this address.
    pub async fn recipient(&self, address: &Address) -> Recipient {
        let found = match self.accounts.whose(address).await {
            Ok(Ok(found)) => found,
            Ok(Err(refusal)) => return refusal,
            Err(error) => {
                tracing::warn!(%error, "accounts cannot be read");
                return Recipient::Later;
            }
        };
        for (mailbox, account) in &found {
            if self.is_full(mailbox, account).await {
                return Recipient::Full;
            }
        }
        Recipient::Here(found.into_iter().map(|(mailbox, _)| mailbox).collect())
    }

    async fn is_full(&self, mailbox: &str, account: &Account) -> bool {
        if account.bytes_max.is_none() && account.messages_max.is_none() {
            return false;
        }
        match self.mailboxes.used(mailbox).await {
            Ok(used) => {
                account.bytes_max.is_some_and(|max| used.bytes >= max)
                    || account.messages_max.is_some_and(|max| used.messages >= max)
            }
            Err(error) => {
                // Better too much in a mailbox than mail that waits for days.
                tracing::info!(%error, mailbox, "what a mailbox holds is not known");
                false
            }
        }
    }

    /// Stores a message for all its recipients at the same time. What became of it for each, in order.
    pub async fn deliver(&self, envelope: &Envelope, peer: Option<IpAddr>) -> Vec<Delivered> {
        let letter = match Letter::of(&envelope.message, &self.host) {
            Ok(letter) => letter,
            Err(letter::Unfit::Loops) => return vec![Delivered::Loop; envelope.to.len()],
            Err(letter::Unfit::Fields) => return vec![Delivered::Unfit; envelope.to.len()],
        };
        let checked = match &self.checks {
            Some(checks) => checks.of(envelope, peer).await,
            None => Checked::not(),
        };
        if checked.is_refused {
            return vec![Delivered::Forged; envelope.to.len()];
        }
        let Ok(_turn) = self.storing.acquire().await else { return vec![Delivered::Later; envelope.to.len()] };
        let stamp = Stamp { host: &self.host, peer, at: SystemTime::now(), results: &checked.results };
        let each = envelope.to.iter().map(|target| {
            let puts = target.mailboxes.iter().map(|mailbox| {
                let id = letter.id(mailbox, &envelope.message);
                self.mailboxes.put(mailbox, id, letter.stored(envelope, &target.address, id, &stamp))
            });
            let puts: Vec<_> = puts.collect();
            async move {
                let ends = join_all(puts).await;
                let is_any = |end: Delivered| ends.contains(&end);
                // Room does not come by itself, so that is the one to be told.
                match (is_any(Delivered::Full), is_any(Delivered::Later)) {
                    (true, _) => Delivered::Full,
                    (false, true) => Delivered::Later,
                    (false, false) => Delivered::Stored,
                }
            }
        });
        let ends = join_all(each).await;
        // Who is on this host, or hands on what it has taken, says who the sender is. Anybody else may name anybody.
        let is_known = peer.is_some_and(|peer| peer.is_loopback()) || envelope.protocol.contains("LMTP");
        if is_known || checked.is_of_sender {
            self.give_notice(envelope, &letter, &ends, stamp.at).await;
        }
        ends
    }

    /// Tells a sender who has a mailbox here, and asked for it, that a message was delivered: one notice for all its recipients, and one
    /// if it comes again. If that fails the message is delivered all the same.
    async fn give_notice(&self, envelope: &Envelope, letter: &Letter<'_>, ends: &[Delivered], at: SystemTime) {
        let both = envelope.to.iter().zip(ends);
        let asked = both.filter(|(target, end)| target.report.success && **end == Delivered::Stored);
        let delivered: Vec<_> = asked.map(|(target, _)| target).collect();
        let Some(sender) = envelope.from.as_ref().filter(|_| !delivered.is_empty()) else { return };
        let Recipient::Here(mailboxes) = self.recipient(sender).await else { return };
        for mailbox in mailboxes {
            let id = letter.id(&format!("notice {mailbox}"), &envelope.message);
            let envid = envelope.envid.as_deref();
            let notice = Notice { host: &self.host, id, at, sender, envid, delivered: &delivered };
            let text = [notice.text(letter).into(), bytes::Bytes::new()];
            if self.mailboxes.put(&mailbox, id, text).await != Delivered::Stored {
                tracing::info!(mailbox, "a notice of delivery was not stored");
            }
        }
    }

    /// Lets somebody in: who it is, and what is in the mailbox.
    pub async fn log_in(
        &self,
        user: &str,
        password: String,
        peer: Option<IpAddr>,
    ) -> Result<(Login, Vec<Entry>), Refused> {
        let Some(mailbox) = Address::parse(user).map(|address| address.key()) else {
            return self.fails(user, peer).await;
        };
        if !self.guesses.are_few(&mailbox, peer).await {
            return Err(Refused::TooOften);
        }
        let account = self.accounts.account(&mailbox).await.map_err(|error| {
            tracing::warn!(%error, "accounts cannot be read");
            Refused::Later
        })?;
        if !self.is_right(&mailbox, account.as_ref(), password).await? {
            return self.fails(&mailbox, peer).await;
        }
        let (password, checked) = (account.map(|(account, _)| account.password).unwrap_or_default(), Instant::now());
        // What is listed before may be what another session is about to delete.
        let turn = self.turns.take(&mailbox, TURN_WAIT_MAX).await;
        match self.mailboxes.list(&mailbox).await {
            Ok(entries) => {
                let ahead = Ahead::new(self.mailboxes.clone(), &mailbox, entries.clone(), Arc::clone(&self.ahead));
                Ok((Login { mailbox, password, checked, ahead, _turn: turn }, entries))
            }
            Err(error) => {
                tracing::warn!(%error, mailbox, "a mailbox cannot be listed");
                Err(Refused::Later)
            }
        }
    }

    /// Whether somebody who was let in would be let in now: the account is there, not disabled, and has the password that
    /// it had. Looks at most each [`LOGIN_GOOD`]. While accounts cannot be read, who is in stays in.
    pub async fn is_still(&self, login: &mut Login) -> bool {
        if login.checked.elapsed() < LOGIN_GOOD {
            return true;
        }
        match self.accounts.account(&login.mailbox).await {
            Ok(account) => {
                login.checked = Instant::now();
                account.is_some_and(|(account, _)| login.is_of(&account))
            }
            Err(error) => {
                tracing::warn!(%error, "accounts cannot be read");
                true
            }
        }
    }

    async fn fails<T>(&self, user: &str, peer: Option<IpAddr>) -> Result<T, Refused> {
        self.guesses.failed(user, peer).await;
        tokio::time::sleep(GUESS_PAUSE).await;
        Err(Refused::Wrong)
    }

    async fn is_right(
        &self,
        mailbox: &str,
        account: Option<&(Account, u64)>,
        password: String,
    ) -> Result<bool, Refused> {
        let open = account.filter(|(account, _)| !account.disabled);
        if let Some((_, version)) = open
            && self.verified.is_known(mailbox, *version, &password)
        {
            return Ok(true);
        }
        let hash = open.map(|(account, _)| account.password.clone());
        let Ok(turn) = Arc::clone(&self.verifying).acquire_owned().await else { return Err(Refused::Later) };
        let compared = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            (password::is_right(&password, hash.as_deref()), password)
        });
        let Ok((is_right, password)) = compared.await else { return Err(Refused::Later) };
        if let Some((_, version)) = open
            && is_right
        {
            self.verified.know(mailbox, *version, &password);
        }
        Ok(is_right)
    }

    pub async fn delete(&self, mailbox: &str, ids: Vec<ObjectId>) -> usize {
        self.mailboxes.delete(mailbox, ids).await
    }
}

/// Somebody who was let in.
pub struct Login {
    pub mailbox: String,
    /// The sum of the password that was right.
    password: String,
    /// When the account was looked at last.
    checked: Instant,
    /// How it reads its messages.
    pub ahead: Ahead,
    /// The next session of this mailbox waits for its end.
    _turn: Turn,
}

impl Login {
    fn is_of(&self, account: &Account) -> bool {
        !account.disabled && account.password == self.password
    }
}

/// Passwords that were right a short time ago, by a sum under a key that only this process has: a client that comes
/// each minute does not cost a hash each time. An account that was changed has another version, so its old password
/// is not known here any more.
pub struct Verified {
    key: hmac::Key,
    known: Mutex<HashMap<String, (Instant, hmac::Tag)>>,
}

impl Verified {
    pub fn new() -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new());
        Ok(Self { key: key.map_err(|_| "there are no random bytes")?, known: Mutex::default() })
    }

    fn said(mailbox: &str, version: u64, password: &str) -> Vec<u8> {
        [mailbox.as_bytes(), &[0], &version.to_be_bytes(), password.as_bytes()].concat()
    }

    fn is_known(&self, mailbox: &str, version: u64, password: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(mailbox).is_some_and(|(since, tag)| {
            let is_same = hmac::verify(&self.key, &Self::said(mailbox, version, password), tag.as_ref()).is_ok();
            is_same && since.elapsed() < VERIFIED_TIME
        })
    }

    fn know(&self, mailbox: &str, version: u64, password: &str) {
        let tag = hmac::sign(&self.key, &Self::said(mailbox, version, password));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= VERIFIED_MAX {
            known.clear();
        }
        known.insert(mailbox.to_owned(), (Instant::now(), tag));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use sdk::{Linear, Node, Objects};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// A node whose only account is of `a@b` with the password `p` and nine messages; it notes what it is asked for.
    async fn node(asked: Arc<Mutex<Vec<String>>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let account = serde_json::json!({"password": password::hash("p").unwrap()}).to_string();
        let whose = serde_json::json!({"values": [{"value": account, "version": 7}, null, null, null]}).to_string();
        tokio::spawn(async move {
            loop {
                let (asked, account, whose) = (Arc::clone(&asked), account.clone(), whose.clone());
                let mut stream = BufReader::new(listener.accept().await.unwrap().0);
                tokio::spawn(async move {
                    loop {
                        let (mut first, mut length) = (String::new(), 0);
                        loop {
                            let mut line = String::new();
                            stream.read_line(&mut line).await.unwrap();
                            if let Some(said) = line.strip_prefix("content-length: ") {
                                length = said.trim().parse().unwrap();
                            }
                            if line.trim().is_empty() {
                                break;
                            }
                            first = if first.is_empty() { line } else { first };
                        }
                        if first.is_empty() {
                            return;
                        }
                        stream.read_exact(&mut vec![0; length]).await.unwrap();
                        let path = first.split(' ').nth(1).unwrap();
                        let name = path.rsplit('/').next().unwrap();
                        let (what, body) = match path {
                            _ if path.contains("/keys/user") => ("account", account.clone()),
                            _ if path.contains("/ns/a/") => ("whose", whose.clone()),
                            _ if path.contains("limit=") => ("list", listed()),
                            _ if first.starts_with("PUT ") => (name, String::new()),
                            _ if path.contains("/objects/") => (name, "a letter".to_owned()),
                            _ => ("guesses", r#"{"values": [null]}"#.to_owned()),
                        };
                        asked.lock().unwrap().push(what.to_owned());
                        let status = if body.is_empty() { "204 No Content" } else { "200 OK" };
                        let fields = format!("etag: \"7\"\r\ncoppice-copies: 2\r\ncontent-length: {}", body.len());
                        let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n");
                        stream.write_all((head + &body).as_bytes()).await.unwrap();
                    }
                });
            }
        });
        at
    }

    fn id(n: u8) -> ObjectId {
        ObjectId([n; 16])
    }

    /// Of nine messages; the last but one is large.
    fn listed() -> String {
        let one = |n: u8| {
            let bytes = if n == 8 { AHEAD_BYTES_MAX + 1 } else { 8 };
            serde_json::json!({"id": id(n).to_string(), "version": format!("{n}"), "bytes": bytes})
        };
        serde_json::json!({"objects": (1..=9).map(one).collect::<Vec<_>>(), "complete": true}).to_string()
    }

    async fn post(asked: &Arc<Mutex<Vec<String>>>) -> Post {
        let node = Node::at([node(Arc::clone(asked)).await]).unwrap();
        Post {
            host: "mx.example".into(),
            accounts: Accounts::new(&Linear::new(node.clone(), "a", "t")),
            mailboxes: Mailboxes::new(Objects::new(node.clone(), "m", "t")),
            guesses: Guesses::new(&Linear::new(node, "g", "t")),
            verified: Verified::new().unwrap(),
            turns: Turns::default(),
            ahead: Arc::new(Semaphore::new(AHEAD_OF_ALL)),
            checks: None,
            storing: Semaphore::new(1),
            verifying: Arc::new(Semaphore::new(1)),
        }
    }

    #[tokio::test]
    async fn who_reads_in_order_does_not_wait_for_each_and_nothing_is_asked_for_twice_or_in_vain() {
        let asked = Arc::default();
        let post = post(&asked).await;
        let (mut login, entries) = post.log_in("a@b", "p".into(), None).await.ok().unwrap();
        assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), (1..=9).map(id).collect::<Vec<_>>());
        let seen = |of: u8| asked.lock().unwrap().iter().filter(|what| **what == id(of).to_string()).count();
        // One alone, and one that does not follow upon it: nobody knows which comes next.
        for n in [9, 1] {
            assert_eq!(login.ahead.open(id(n)).await.map(|reader| reader.bytes()), Ok(8));
        }
        assert_eq!((1..=9).map(seen).collect::<Vec<_>>(), [1, 0, 0, 0, 0, 0, 0, 0, 1]);
        for n in 2..=7 {
            assert!(login.ahead.open(id(n)).await.is_ok());
            // The third in a row: the next ones come without being asked for.
            let until = Instant::now() + Duration::from_secs(30);
            while n == 3 && seen(5) == 0 {
                assert!(Instant::now() < until, "nothing was asked for ahead");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!((1..=9).map(seen).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, 0, 1], "the eighth is too large");
        drop(login);
        assert_eq!(post.ahead.available_permits(), AHEAD_OF_ALL);
    }

    #[tokio::test]
    async fn a_sender_with_a_mailbox_is_told_of_delivery_and_nobody_who_may_be_another() {
        use crate::smtp::{Report, Target};
        let target = |success| {
            let report = Report { success, original: None };
            Target { address: Address::parse("a@b").unwrap(), mailboxes: vec!["a@b".into()], report }
        };
        let letter = |from: Option<&str>, protocol, success| Envelope {
            from: from.and_then(Address::parse),
            to: vec![target(success), target(false)],
            message: "Message-ID: <1>\r\n\r\n".into(),
            hello: "me".into(),
            protocol,
            envid: None,
        };
        let (here, out) = (Some([127, 0, 0, 1].into()), Some([192, 0, 2, 1].into()));
        for (envelope, peer, notices) in [
            (letter(Some("a@b"), "ESMTP", true), here, 1),
            (letter(Some("a@b"), "LMTP", true), out, 1),
            (letter(Some("a@b"), "ESMTP", false), here, 0),
            (letter(None, "ESMTP", true), here, 0),
            // Anybody may say that they are somebody here: those are not written to.
            (letter(Some("a@b"), "ESMTP", true), out, 0),
        ] {
            let asked = Arc::default();
            let post = post(&asked).await;
            assert_eq!(post.deliver(&envelope, peer).await, [Delivered::Stored, Delivered::Stored]);
            let letter = Letter::of(&envelope.message, "mx.example").unwrap();
            let (mail, notice) = ("a@b", "notice a@b");
            let stored = |mailbox: &str| {
                let id = letter.id(mailbox, &envelope.message).to_string();
                asked.lock().unwrap().iter().filter(|what| **what == id).count()
            };
            assert_eq!(
                (stored(mail), stored(notice)),
                (2, notices),
                "{envelope:?} {peer:?}: {:?}",
                asked.lock().unwrap()
            );
        }
    }

    #[tokio::test]
    async fn a_session_sees_the_mailbox_as_the_one_before_has_left_it() {
        let asked = Arc::default();
        let post = post(&asked).await;
        let log_in = || post.log_in("a@b", "p".into(), None);
        let first = log_in().await.ok().unwrap();
        let mut second = std::pin::pin!(log_in());
        tokio::select! {
            biased;
            _ = &mut second => panic!("it was let in while the first one was there"),
            () = tokio::time::sleep(Duration::from_millis(300)) => (),
        }
        asked.lock().unwrap().push("the first one goes".to_owned());
        drop(first);
        assert!(second.await.is_ok());
        let each = ["guesses", "account", "list", "guesses", "account", "the first one goes", "list"];
        assert_eq!(*asked.lock().unwrap(), each);
    }

    #[tokio::test]
    async fn a_login_ends_with_its_password_and_when_the_account_is_disabled() {
        let objects = Objects::new(Node::at(["127.0.0.1:1".parse().unwrap()]).unwrap(), "m", "t");
        let login = Login {
            mailbox: "a@b".into(),
            password: "sum".into(),
            checked: Instant::now(),
            ahead: Ahead::new(Mailboxes::new(objects), "a@b", Vec::new(), Arc::new(Semaphore::new(1))),
            _turn: Turns::default().take("a@b", Duration::ZERO).await,
        };
        let account = Account { password: "sum".into(), disabled: false, bytes_max: None, messages_max: None };
        assert!(login.is_of(&account) && login.is_of(&Account { bytes_max: Some(1), ..account.clone() }));
        assert!(!login.is_of(&Account { password: "other".into(), ..account.clone() }));
        assert!(!login.is_of(&Account { disabled: true, ..account }));
    }

    #[test]
    fn a_password_is_known_again_until_its_account_changes() {
        let verified = Verified::new().unwrap();
        assert!(!verified.is_known("a@b", 1, "p"));
        verified.know("a@b", 1, "p");
        assert!(verified.is_known("a@b", 1, "p"));
        for (mailbox, version, password) in [("a@b", 2, "p"), ("a@b", 1, "q"), ("c@b", 1, "p")] {
            assert!(!verified.is_known(mailbox, version, password));
        }
    }
}
