//! Mail as a built-in service: SMTP and LMTP in, POP3 out. Messages are objects of the mailbox's owner, so what was
//! answered `250` is on the disks of two nodes and is read through any other; accounts are values of class `linear`.
//! It sends nothing on and sends nothing back: who has no mailbox here is refused while its sender still listens. A sender who has one
//! is told that mail was delivered, if that was asked for (`notice.rs`).
//!
//! - `smtp/`, `pop/`: the protocols, as machines that know no socket and no clock. `lines.rs`, `address.rs`: what they read.
//! - `letter.rs`: a message as it is stored, and its id.
//! - `check/`: SPF, DKIM and DMARC of what comes in.
//! - `auth/`: passwords, and how often they were wrong. `store/`: accounts and mailboxes in the cluster.
//! - `doors.rs`: connections. `post.rs`: what the machines want done.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod auth;
mod check;
mod doors;
mod letter;
pub mod limits;
mod lines;
mod notice;
#[doc(hidden)]
pub mod outside;
mod pop;
mod post;
mod smtp;
mod store;

use std::sync::Arc;

use sdk::{Service, StartError};
use tokio::sync::Semaphore;

pub use auth::password;
pub use store::{Account, Alias, Managed};

use auth::guess::Guesses;
use doors::{Receiving, Setting, Tls};
use post::{Post, Verified};
use smtp::is_web as smtp_is_web;
use store::{Accounts, Mailboxes, Turns};

/// Namespaces: messages, accounts, failed logins.
pub const MESSAGES: &str = "mail";
pub const ACCOUNTS: &str = "mail-accounts";
pub const GUESSES: &str = "mail-guesses";

pub async fn serve(service: Service) -> Result<(), StartError> {
    let host = std::env::var("MAIL_HOST").unwrap_or_else(|_| service.given().node.clone());
    let Some(host) = address::domain_of(&host) else {
        return Err(StartError(format!("MAIL_HOST is {host:?}, which is no name of a host: mx.example.org is one")));
    };
    let plain_login = match std::env::var("MAIL_PLAIN_LOGIN").as_deref() {
        Ok("yes") => true,
        Ok("no" | "") | Err(_) => false,
        Ok(other) => return Err(StartError(format!("MAIL_PLAIN_LOGIN is {other:?}: it is yes or no"))),
    };
    let size = std::env::var("MAIL_SIZE_MIB").unwrap_or_default();
    let bytes_max = size_of(&size).map_err(StartError)?;
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    let checks = check::Checks::named(&said("MAIL_RESOLVER"), &said("MAIL_DMARC")).map_err(StartError)?;
    let post = Arc::new(Post {
        host: host.clone(),
        accounts: Accounts::new(&service.linear(ACCOUNTS)?),
        mailboxes: Mailboxes::new(service.objects(MESSAGES)?),
        guesses: Guesses::new(&service.linear(GUESSES)?),
        verified: Verified::new().map_err(StartError)?,
        turns: Turns::default(),
        ahead: Arc::new(Semaphore::new(limits::AHEAD_OF_ALL)),
        checks,
        storing: Semaphore::new(limits::STORING_MAX),
        verifying: Arc::new(Semaphore::new(limits::VERIFYING_MAX)),
    });
    let (setting, receiving) =
        (Arc::new(Setting { host, plain_login, bytes_max, tls: tls(&service).await? }), Arc::new(Receiving::default()));
    service
        .serve_tcp(move |conn| doors::serve(conn, Arc::clone(&setting), Arc::clone(&post), Arc::clone(&receiving)))
        .await
}

/// The largest message, bytes, of what the operator says.
fn size_of(said: &str) -> Result<usize, String> {
    let mib = if said.is_empty() { Some(limits::MESSAGE_MIB) } else { said.parse().ok() };
    let mib = mib.filter(|mib| (1..=limits::MESSAGE_MIB_MAX).contains(mib));
    let wrong = || {
        format!(
            "MAIL_SIZE_MIB is {said:?}: it is 1 to {} (MiB), and {} unless it is set",
            limits::MESSAGE_MIB_MAX,
            limits::MESSAGE_MIB
        )
    };
    mib.map(|mib| mib << 20).ok_or_else(wrong)
}

/// What TLS begins with: the certificates of the node's folder, as they are when a client comes.
async fn tls(service: &Service) -> Result<Tls, StartError> {
    let certificates = service.certificates().await?;
    let of = |protocol: &[u8]| {
        let config = certificates.config(&[protocol]).map_err(|e| StartError(format!("TLS cannot begin: {e}")))?;
        Ok::<_, StartError>(tokio_rustls::TlsAcceptor::from(config))
    };
    let (smtp, pop3) = (of(b"smtp")?, of(b"pop3")?);
    Ok(Tls { smtp, pop3, is_there: Box::new(move || !certificates.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_message_is_what_an_object_has_room_for() {
        assert_eq!((size_of(""), size_of("63")), (Ok(50 << 20), Ok(63 << 20)));
        for wrong in ["0", "64", "1.5", "25MiB", "-1"] {
            assert!(size_of(wrong).is_err_and(|why| why.contains("1 to 63")), "{wrong}");
        }
    }
}
