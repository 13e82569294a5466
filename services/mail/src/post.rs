//! What the doors want done: who has an address, who somebody is, a message stored or read. All connections of a
//! clone share one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use futures_util::future::join_all;
use ring::hmac;
use sdk::{ObjectId, ObjectReader};
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::auth::guess::Guesses;
use crate::auth::password;
use crate::check::{Checked, Checks};
use crate::letter::{self, Letter, Stamp};
use crate::limits::*;
use crate::pop::{Entry, NotOpened, Refused};
use crate::smtp::{Delivered, Envelope, Recipient};
use crate::store::{Account, Accounts, Mailboxes};

/// The post office of this clone.
pub struct Post {
    /// The name by which it speaks.
    pub host: String,
    pub accounts: Accounts,
    pub mailboxes: Mailboxes,
    pub guesses: Guesses,
    pub verified: Verified,
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
                if ends.iter().all(|end| *end == Delivered::Stored) { Delivered::Stored } else { Delivered::Later }
            }
        });
        join_all(each).await
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
        let password = account.map(|(account, _)| account.password).unwrap_or_default();
        match self.mailboxes.list(&mailbox).await {
            Ok(entries) => Ok((Login { mailbox, password, checked: Instant::now() }, entries)),
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

    pub async fn open(&self, mailbox: &str, id: ObjectId) -> Result<ObjectReader, NotOpened> {
        self.mailboxes.open(mailbox, id).await
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
    use super::*;

    #[test]
    fn a_login_ends_with_its_password_and_when_the_account_is_disabled() {
        let login = Login { mailbox: "a@b".into(), password: "sum".into(), checked: Instant::now() };
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
