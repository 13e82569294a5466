//! Asks an ACME directory (RFC 8555) for a certificate, over HTTP-01 or TLS-ALPN-01 (RFC 8737). When one is due, and by whom it is asked for, is others' matter
//! (`coppice/src/acme.rs`); what answers the challenge is every node's HTTP door, or its HTTPS door.
//!
//! - `wire.rs`: one request and its answer over TLS, bounded in time and size.
//! - `jws.rs`: the account's key, and what is signed with it.
//! - `order.rs`: an order from its beginning to the certificate.
//!
//! A client of our own: it needs nothing that is not here anyway, and one may see when a directory says to come again (`Retry-After`).

pub mod jws;
mod order;
mod wire;

use std::fmt;
use std::time::Duration;

pub use order::{Shows, Wish, obtain};

/// Why there is no certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    pub why: String,
    /// The directory said when to come again.
    pub after: Option<Duration>,
}

impl Failed {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), after: None }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// All of one request, from the connection to the last byte of the answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A chain is some kilobytes, and nothing else that is said is longer.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// From the first request to the certificate. Directories look at each name from several places, and may be slow.
const ORDER_WITHIN: Duration = Duration::from_secs(600);
/// Between two looks at what is under way, if the directory does not say; and the longest that it is believed meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);
/// A directory may say of a request that its nonce is too old, and gives a new one: so often it is believed.
const NONCES_MAX: u32 = 5;
/// Of what a directory says, letters that are passed on.
const SAID_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests;
