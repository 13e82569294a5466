//! Accounts, aliases and domains: values of class `linear`, changed by operators and read at each recipient and
//! login. A read may be old, so that mail is taken in and read also where no majority can be heard; while one is
//! heard it is some hundred milliseconds old at most.
//!
//! Keys: `user/ann@example.org`, `alias/info@example.org`, `alias/@example.org` (catches all that nobody has),
//! `domain/example.org`.

use std::collections::BTreeSet;

use sdk::{Linear, LinearError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Address;
use crate::auth::password;
use crate::limits::*;
use crate::smtp::Recipient;

/// Somebody with a mailbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// argon2id, in the usual text form.
    pub password: String,
    /// Gets no mail and is not let in.
    #[serde(default)]
    pub disabled: bool,
    /// What the mailbox may hold; without, as much as there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_max: Option<u64>,
}

/// Who gets what is sent to an address that is nobody's own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alias {
    pub to: Vec<String>,
}

/// As clones see them.
#[derive(Clone)]
pub struct Accounts(Linear<Value>);

fn user_key(address: &str) -> String {
    format!("user/{address}")
}

fn alias_key(address: &str) -> String {
    format!("alias/{address}")
}

fn domain_key(domain: &str) -> String {
    format!("domain/{domain}")
}

/// What one address leads to, before aliases are followed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    User(String, Account),
    Alias(Vec<String>),
    Unknown,
    Elsewhere,
}

/// Keys that say who has an address, the most exact one first; the last one says whether its domain is ours.
fn keys_of(address: &Address) -> Vec<String> {
    let exact = address.key();
    let mut keys = vec![user_key(&exact), alias_key(&exact)];
    if let Some(plain) = address.without_detail() {
        keys.extend([user_key(&plain.key()), alias_key(&plain.key())]);
    }
    keys.push(alias_key(&format!("@{}", address.domain)));
    keys.push(domain_key(&address.domain));
    keys
}

/// What the values under [`keys_of`] mean. A value that is none of ours is as good as none.
fn step(keys: &[String], values: &[Option<Value>]) -> Step {
    for (key, value) in keys.iter().zip(values) {
        let Some(value) = value else { continue };
        if let Some(user) = key.strip_prefix("user/")
            && let Ok(account) = serde_json::from_value(value.clone())
        {
            return Step::User(user.to_owned(), account);
        }
        if key.starts_with("alias/")
            && let Ok(Alias { to }) = serde_json::from_value(value.clone())
        {
            return Step::Alias(to);
        }
    }
    if values.last().is_some_and(Option::is_some) { Step::Unknown } else { Step::Elsewhere }
}

impl Accounts {
    pub fn new(values: &Linear<Value>) -> Self {
        Self(values.stale(ACCOUNT_STALE))
    }

    async fn look(&self, address: &Address) -> Result<Step, LinearError> {
        let keys = keys_of(address);
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let values = self.0.mget(&names).await?;
        let values: Vec<Option<Value>> = values.into_iter().map(|stored| stored.map(|stored| stored.value)).collect();
        Ok(step(&keys, &values))
    }

    /// Who gets what is sent to this address, with the accounts. Aliases are followed; each mailbox is there once.
    pub async fn whose(&self, address: &Address) -> Result<Result<Vec<(String, Account)>, Recipient>, LinearError> {
        let mut found: Vec<(String, Account)> = Vec::new();
        let (mut seen, mut is_disabled) = (BTreeSet::from([address.key()]), false);
        let mut ahead = vec![(address.clone(), 0)];
        while let Some((next, depth)) = ahead.pop() {
            match self.look(&next).await? {
                Step::User(_, account) if account.disabled => is_disabled = true,
                Step::User(user, account) if found.iter().all(|(other, _)| *other != user) => {
                    found.push((user, account));
                }
                Step::Alias(to) if depth < ALIAS_DEPTH_MAX => {
                    let to = to.iter().take(ALIAS_TARGETS_MAX).filter_map(|to| Address::parse(to));
                    ahead.extend(to.filter(|to| seen.insert(to.key())).map(|to| (to, depth + 1)));
                }
                Step::Elsewhere if depth == 0 => return Ok(Err(Recipient::Elsewhere)),
                // One of many that an alias names, or the same one again.
                Step::User(..) | Step::Alias(_) | Step::Unknown | Step::Elsewhere => (),
            }
            if found.len() > ALIAS_TARGETS_MAX || seen.len() > ALIAS_TARGETS_MAX {
                break;
            }
        }
        if !found.is_empty() {
            return Ok(Ok(found));
        }
        Ok(Err(if is_disabled { Recipient::Disabled } else { Recipient::Unknown }))
    }

    /// The account whose own address this is, with its version.
    pub async fn account(&self, address: &str) -> Result<Option<(Account, u64)>, LinearError> {
        let stored = self.0.get(&user_key(address)).await?;
        Ok(stored.and_then(|stored| Some((serde_json::from_value(stored.value).ok()?, stored.version))))
    }
}

/// As operators change them: `coppice mail`.
pub struct Managed(Linear<Value>);

impl Managed {
    pub fn new(values: Linear<Value>) -> Self {
        Self(values)
    }

    /// Makes an account, and its domain one of ours.
    pub async fn add(&self, address: &str, account: &Account) -> Result<(), String> {
        let key = self.place(address).await?;
        match self.0.of().cas(&key, None, account).await {
            Ok(_) => Ok(()),
            Err(LinearError::Conflict(_)) => Err(format!("{address} is there already")),
            Err(error) => Err(told(error)),
        }
    }

    /// The same, in the place of what is there.
    pub async fn put(&self, address: &str, account: &Account) -> Result<(), String> {
        let key = self.place(address).await?;
        self.0.of().put(&key, account).await.map(|_| ()).map_err(told)
    }

    /// The key of an account that is to be, in a domain that is ours from now on.
    async fn place(&self, address: &str) -> Result<String, String> {
        let address = parsed(address)?;
        if address.local.contains('+') {
            return Err(format!("{address} is a sub-address: ann+anything@ reaches ann@ by itself"));
        }
        self.0.put(&domain_key(&address.domain), &Value::Object(serde_json::Map::new())).await.map_err(told)?;
        Ok(user_key(&address.key()))
    }

    /// Changes an account; `change` may run several times.
    pub async fn change(&self, address: &str, mut change: impl FnMut(&mut Account)) -> Result<(), String> {
        let address = parsed(address)?;
        let key = user_key(&address.key());
        for _ in 0..8 {
            let stored = self.0.of::<Account>().get(&key).await.map_err(told)?;
            let Some(mut stored) = stored else { return Err(format!("there is no account {address}")) };
            change(&mut stored.value);
            match self.0.of().cas(&key, Some(stored.version), &stored.value).await {
                Ok(_) => return Ok(()),
                Err(LinearError::Conflict(_)) => (),
                Err(error) => return Err(told(error)),
            }
        }
        Err(format!("somebody else changes {address} all the time"))
    }

    /// Takes an account away. Its messages stay until they are deleted, and are there again with an account of this
    /// name.
    pub async fn remove(&self, address: &str) -> Result<(), String> {
        let address = parsed(address)?;
        let was_there = self.0.remove(&user_key(&address.key())).await.map_err(told)?;
        if was_there { Ok(()) } else { Err(format!("there is no account {address}")) }
    }

    pub async fn list(&self) -> Result<Vec<(String, Account)>, String> {
        self.all("user/").await
    }

    /// Makes or replaces an alias. `@example.org` catches all that nobody there has.
    pub async fn alias(&self, alias: &str, to: &[String]) -> Result<(), String> {
        let (key, domain) = alias_named(alias)?;
        if to.is_empty() || to.len() > ALIAS_TARGETS_MAX {
            return Err(format!("an alias leads to 1 to {ALIAS_TARGETS_MAX} addresses"));
        }
        let mut targets = Vec::new();
        for target in to {
            let address = parsed(target)?;
            let ours = self.0.get(&domain_key(&address.domain)).await.map_err(told)?;
            if ours.is_none() {
                return Err(format!("{address} is not here: mail is not passed on to others"));
            }
            targets.push(address.key());
        }
        if let Some(domain) = domain {
            self.0.put(&domain_key(&domain), &Value::Object(serde_json::Map::new())).await.map_err(told)?;
        }
        self.0.of().put(&key, &Alias { to: targets }).await.map_err(told)?;
        Ok(())
    }

    pub async fn remove_alias(&self, alias: &str) -> Result<(), String> {
        let (key, _) = alias_named(alias)?;
        let was_there = self.0.remove(&key).await.map_err(told)?;
        if was_there { Ok(()) } else { Err(format!("there is no alias {alias}")) }
    }

    pub async fn aliases(&self) -> Result<Vec<(String, Alias)>, String> {
        self.all("alias/").await
    }

    async fn all<T: serde::de::DeserializeOwned>(&self, prefix: &str) -> Result<Vec<(String, T)>, String> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.0.scan(prefix, after.as_deref(), 1000).await.map_err(told)?;
            let keys: Vec<&str> = page.keys.iter().map(String::as_str).collect();
            if !keys.is_empty() {
                let values = self.0.of::<T>().mget(&keys).await.map_err(told)?;
                let named = |key: &&str| key.trim_start_matches(prefix).to_owned();
                let there = keys.iter().zip(values).filter_map(|(key, stored)| Some((named(key), stored?.value)));
                all.extend(there);
            }
            after = page.after;
            if after.is_none() {
                return Ok(all);
            }
        }
    }
}

impl Account {
    /// One with this password. Takes a core for tens of milliseconds.
    pub fn with_password(password: &str) -> Result<Self, String> {
        Ok(Self { password: password::hash(password)?, disabled: false, bytes_max: None, messages_max: None })
    }
}

/// The key of an alias, and its domain if it has one.
fn alias_named(alias: &str) -> Result<(String, Option<String>), String> {
    let wrong = || format!("{alias:?} is no address, and not @example.org, which catches all");
    if let Some(domain) = alias.strip_prefix('@') {
        let domain = crate::address::domain_of(domain).ok_or_else(wrong)?;
        return Ok((alias_key(&format!("@{domain}")), Some(domain)));
    }
    if alias.eq_ignore_ascii_case("postmaster") {
        return Ok((alias_key("postmaster"), None));
    }
    let address = Address::parse(alias).ok_or_else(wrong)?;
    Ok((alias_key(&address.key()), Some(address.domain)))
}

fn parsed(address: &str) -> Result<Address, String> {
    let address = Address::parse(address).filter(|address| !address.is_route() && !address.domain.starts_with('['));
    address.ok_or_else(|| "an address is like ann@example.org".to_owned())
}

fn told(error: LinearError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str, values: &[(&str, Value)]) -> Step {
        let keys = keys_of(&Address::parse(address).unwrap());
        let value = |key: &String| values.iter().find(|(name, _)| key == name).map(|(_, value)| value.clone());
        step(&keys, &keys.iter().map(value).collect::<Vec<_>>())
    }

    #[test]
    fn the_most_exact_one_has_an_address() {
        let ann = serde_json::json!({"password": "x"});
        let all = [
            ("user/ann@b", ann.clone()),
            ("alias/ann+list@b", serde_json::json!({"to": ["bob@b"]})),
            ("alias/@b", serde_json::json!({"to": ["all@b"]})),
            ("user/odd@b", serde_json::json!([1])),
            ("domain/b", serde_json::json!({})),
        ];
        let account = Account { password: "x".into(), disabled: false, bytes_max: None, messages_max: None };
        let user = Step::User("ann@b".into(), account);
        let alias = |to: &str| Step::Alias(vec![to.to_owned()]);
        assert_eq!(of("ANN@B", &all), user);
        assert_eq!(of("ann+news@b", &all), user);
        assert_eq!(of("ann+list@b", &all), alias("bob@b"));
        assert_eq!(of("nobody@b", &all), alias("all@b"));
        assert_eq!(of("odd@b", &all), alias("all@b"), "what is no account is nobody's");
        let without = [all[0].clone(), all[4].clone()];
        assert_eq!(of("nobody@b", &without), Step::Unknown);
        assert_eq!(of("ann@c", &without), Step::Elsewhere);
        assert_eq!(of("ann@b", &[all[0].clone()]), user);
    }

    #[test]
    fn aliases_are_named_by_addresses_or_catch_all() {
        assert_eq!(alias_named("@B.c").unwrap(), ("alias/@b.c".to_owned(), Some("b.c".to_owned())));
        assert_eq!(alias_named("Info@B").unwrap().0, "alias/info@b");
        assert_eq!(alias_named("postmaster").unwrap(), ("alias/postmaster".to_owned(), None));
        assert!(alias_named("info").is_err() && alias_named("@").is_err());
        assert!(parsed("a%b@c").is_err() && parsed("a@[127.0.0.1]").is_err() && parsed("a@b").is_ok());
    }
}
