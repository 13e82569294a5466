//! An order (RFC 8555 7.4) from its beginning to the certificate. It may be dropped at any point and begun anew by another node with the
//! same account's key: nothing of it has to be kept, as what answers its challenges follows from that key.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clones::Challenge as Way;
use http::StatusCode;
use node::Certificate;
use node::acme::Proofs;
use serde::Deserialize;
use serde_json::{Value, json};

use super::jws::AccountKey;
use super::wire::{Problem, Reply, Wire, host_of};
use super::{Failed, LOOK_EVERY, LOOK_EVERY_MAX, NONCES_MAX, ORDER_WITHIN};
use crate::wall::wall_ms;

/// What is asked for.
pub struct Wish<'a> {
    pub names: &'a [String],
    pub directory: &'a str,
    pub contact: &'a [String],
    pub ca: Option<&'a str>,
    pub account: &'a AccountKey,
    /// How names may be shown to be ours, in the order in which it is tried.
    pub ways: &'a [Way],
    /// The request, DER, and the key that it is for, PEM.
    pub request: &'a [u8],
    pub key_pem: &'a str,
}

/// Whoever has all nodes show over TLS that names are ours.
pub trait Shows {
    /// Comes back when they do.
    fn show(&self, proofs: Proofs) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// How an order ends without a certificate.
enum Ends {
    /// The directory does not believe that a name is ours, or knows no such way to show it: another way may do.
    Name(Failed),
    Order(Failed),
}

impl From<Failed> for Ends {
    fn from(failed: Failed) -> Self {
        Self::Order(failed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    external_account_required: bool,
}

#[derive(Deserialize)]
struct Order {
    status: String,
    #[serde(default)]
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Authorization {
    status: String,
    identifier: Identifier,
    #[serde(default)]
    challenges: Vec<Challenge>,
}

#[derive(Deserialize)]
struct Identifier {
    value: String,
}

#[derive(Deserialize)]
struct Challenge {
    #[serde(rename = "type")]
    kind: String,
    url: String,
    #[serde(default)]
    token: String,
    error: Option<Problem>,
}

/// Asks for a certificate, and looks at it.
///
/// # Errors
/// A sentence for people; the directory may have said when to come again.
pub async fn obtain(wish: &Wish<'_>, shows: &(impl Shows + Sync)) -> Result<Certificate, Failed> {
    let late =
        |_| Err(Failed::new(format!("{} did not end the order within {ORDER_WITHIN:?}", host_of(wish.directory))));
    tokio::time::timeout(ORDER_WITHIN, ordered(wish, shows)).await.unwrap_or_else(late)
}

async fn ordered(wish: &Wish<'_>, shows: &(impl Shows + Sync)) -> Result<Certificate, Failed> {
    let wire = Wire::new(wish.ca)?;
    let reply = wire.get(wish.directory).await?;
    if !reply.status.is_success() {
        return Err(reply.problem("its directory", wish.directory));
    }
    let directory: Directory = reply.json("its directory", wish.directory)?;
    if directory.meta.external_account_required {
        let why = "wants accounts that were made elsewhere (external account binding), which is not offered here";
        return Err(Failed::new(format!("{} {why}", host_of(wish.directory))));
    }
    let mut asks = Asks { wire, nonce: None, new_nonce: directory.new_nonce, key: wish.account, account: None };
    let account = json!({"termsOfServiceAgreed": true, "contact": wish.contact});
    let reply = asks.ask(&directory.new_account, Some(&account), "an account").await?;
    asks.account = Some(reply.location("the account", &directory.new_account)?);
    let mut failures: Vec<(Way, Failed)> = Vec::new();
    for way in wish.ways {
        match asks.order_by(*way, wish, &directory.new_order, shows).await {
            Ok(certificate) => return Ok(certificate),
            Err(Ends::Name(failed)) => failures.push((*way, failed)),
            Err(Ends::Order(failed)) => return Err(failed),
        }
    }
    let why: Vec<String> = failures.iter().map(|(way, failed)| format!("by {}: {failed}", way.name())).collect();
    Err(Failed { why: why.join("; "), after: failures.iter().filter_map(|(_, failed)| failed.after).max() })
}

impl Asks<'_> {
    /// One order, in which each name is shown to be ours in this way.
    async fn order_by(
        &mut self,
        way: Way,
        wish: &Wish<'_>,
        new_order: &str,
        shows: &(impl Shows + Sync),
    ) -> Result<Certificate, Ends> {
        let names: Vec<Value> = wish.names.iter().map(|name| json!({"type": "dns", "value": name})).collect();
        let reply = self.ask(new_order, Some(&json!({"identifiers": names})), "an order").await?;
        let (at, order): (String, Order) =
            (reply.location("the order", new_order)?, reply.json("an order", new_order)?);
        if way == Way::TlsAlpn01 {
            self.show(&order.authorizations, wish.names, shows).await?;
        }
        for authorization in &order.authorizations {
            self.authorize(authorization, way).await?;
        }
        let order = self.order(&at, |order| matches!(&*order.status, "ready" | "valid")).await?;
        if order.status == "ready" {
            let request = json!({"csr": URL_SAFE_NO_PAD.encode(wish.request)});
            self.ask(&order.finalize, Some(&request), "the request").await?;
        }
        let order = self.order(&at, |order| order.status == "valid").await?;
        let url = order.certificate.ok_or_else(|| Failed::new(format!("{} gives no certificate", host_of(&at))))?;
        let chain = self.ask(&url, None, "the certificate").await?.body;
        let pem = [&chain, b"\n".as_slice(), wish.key_pem.as_bytes()].concat();
        let nonsense = |why| Failed::new(format!("what {} gave is not taken: {why}", host_of(&url)));
        let certificate = crate::tls::checked("", &pem, wall_ms()).map_err(nonsense)?;
        match wish.names.iter().find(|name| !certificate.names.contains(name)) {
            Some(name) => Err(nonsense(format!("it is not for {name}")).into()),
            None => Ok(certificate),
        }
    }

    /// Has all nodes show over TLS what these authorizations ask for, before the directory looks at the first.
    async fn show(
        &mut self,
        authorizations: &[String],
        names: &[String],
        shows: &(impl Shows + Sync),
    ) -> Result<(), Failed> {
        let mut proofs = Proofs::new();
        for url in authorizations {
            let found: Authorization = self.ask(url, None, "an authorization").await?.json("an authorization", url)?;
            let name = found.identifier.value.to_ascii_lowercase();
            let Some(challenge) = found.challenge(Way::TlsAlpn01).filter(|_| found.status == "pending") else {
                continue;
            };
            // What it says is shown by our doors: for names that were ordered alone.
            if !names.contains(&name) {
                return Err(Failed::new(format!("{} asks for {name:?}, which was not ordered", host_of(url))));
            }
            proofs.insert(name, self.key.proof(&challenge.token));
        }
        if proofs.is_empty() { Ok(()) } else { shows.show(proofs).await }
    }
}

impl Authorization {
    fn challenge(&self, way: Way) -> Option<&Challenge> {
        self.challenges.iter().find(|challenge| challenge.kind == way.name())
    }
}
/// Signed requests of one account, one after the other.
struct Asks<'a> {
    wire: Wire,
    nonce: Option<String>,
    new_nonce: String,
    key: &'a AccountKey,
    /// Its URL, when that is known.
    account: Option<String>,
}

impl Asks<'_> {
    async fn ask(&mut self, url: &str, payload: Option<&Value>, doing: &str) -> Result<Reply, Failed> {
        for _ in 0..NONCES_MAX {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => {
                    let reply = self.wire.head(&self.new_nonce).await?;
                    let nonce = reply.header("replay-nonce").map(str::to_owned);
                    nonce.ok_or_else(|| reply.problem("a nonce", &self.new_nonce))?
                }
            };
            let body = self.key.sign(url, &nonce, self.account.as_deref(), payload).map_err(Failed::new)?;
            let reply = self.wire.post(url, body).await?;
            self.nonce = reply.header("replay-nonce").map(str::to_owned);
            if reply.status.is_success() {
                return Ok(reply);
            }
            let is_old = || serde_json::from_slice::<Problem>(&reply.body).is_ok_and(|said| said.is("badNonce"));
            if reply.status != StatusCode::BAD_REQUEST || !is_old() {
                return Err(reply.problem(doing, url));
            }
        }
        Err(Failed::new(format!("{} took none of {NONCES_MAX} of its own nonces", host_of(url))))
    }

    /// Has the directory look at a name, and waits until it has.
    async fn authorize(&mut self, url: &str, way: Way) -> Result<(), Ends> {
        let mut is_asked = false;
        loop {
            let reply = self.ask(url, None, "an authorization").await?;
            let found: Authorization = reply.json("an authorization", url)?;
            let name = &found.identifier.value;
            let challenge = found.challenge(way);
            match (&*found.status, challenge) {
                ("valid", _) => return Ok(()),
                ("pending", Some(challenge)) if !is_asked => {
                    self.ask(&challenge.url, Some(&json!({})), "a challenge").await?;
                    is_asked = true;
                }
                ("pending", Some(_)) => pause(reply.after()).await,
                ("pending", None) => {
                    let why = format!("{} offers no challenge {} for {name}", host_of(url), way.name());
                    return Err(Ends::Name(Failed::new(why)));
                }
                (status, challenge) => {
                    let error = challenge.and_then(|challenge| challenge.error.as_ref()).map(Problem::text);
                    let error = error.unwrap_or_else(|| format!("the authorization is {status}"));
                    let why = format!("{} does not believe that {name} is here: {error}", host_of(url));
                    return Err(Ends::Name(Failed::new(why)));
                }
            }
        }
    }

    /// The order, when it has come so far.
    async fn order(&mut self, url: &str, is_there: impl Fn(&Order) -> bool) -> Result<Order, Failed> {
        loop {
            let reply = self.ask(url, None, "the order").await?;
            let order: Order = reply.json("the order", url)?;
            if is_there(&order) {
                return Ok(order);
            }
            if !matches!(&*order.status, "pending" | "processing" | "ready") {
                let error = order.error.as_ref().map_or_else(|| format!("it is {}", order.status), Problem::text);
                return Err(Failed::new(format!("{} ended the order: {error}", host_of(url))));
            }
            pause(reply.after()).await;
        }
    }
}

async fn pause(said: Option<Duration>) {
    tokio::time::sleep(said.unwrap_or(LOOK_EVERY).clamp(LOOK_EVERY / 4, LOOK_EVERY_MAX)).await;
}

impl Reply {
    fn location(&self, what: &str, url: &str) -> Result<String, Failed> {
        let nowhere = || Failed::new(format!("{} does not say where {what} is", host_of(url)));
        self.header("location").map(str::to_owned).ok_or_else(nowhere)
    }
}
