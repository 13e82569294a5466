//! Failed logins, counted for an account and for the network that they come from, over all protocols and nodes
//! together: else who guesses goes round. They are values of class `linear` that end by themselves. Where no majority
//! can be heard each clone counts for itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sdk::{Function, Linear, Transaction};

use crate::limits::*;

#[derive(Clone)]
pub struct Guesses {
    counts: Linear<i64>,
    here: Arc<Mutex<HashMap<String, (Instant, i64)>>>,
}

/// Whom a failed login is counted for, and how many are too many.
fn counted(account: &str, peer: Option<IpAddr>) -> Vec<(String, i64)> {
    let mut keys = vec![(format!("account/{account}"), GUESSES_OF_ACCOUNT_MAX)];
    match peer.map(|peer| peer.to_canonical()) {
        // Whoever is on this machine is not stopped by others there.
        Some(peer) if peer.is_loopback() => (),
        Some(IpAddr::V4(peer)) => {
            let [a, b, c, _] = peer.octets();
            keys.push((format!("network/{a}.{b}.{c}"), GUESSES_OF_NETWORK_MAX));
        }
        Some(IpAddr::V6(peer)) => {
            let [a, b, c, ..] = peer.segments();
            keys.push((format!("network/{a:x}:{b:x}:{c:x}"), GUESSES_OF_NETWORK_MAX));
        }
        None => (),
    }
    keys
}

impl Guesses {
    pub fn new(counts: &Linear<i64>) -> Self {
        Self { counts: counts.stale(GUESS_STALE), here: Arc::default() }
    }

    /// Whether another try is to be heard at all.
    pub async fn are_few(&self, account: &str, peer: Option<IpAddr>) -> bool {
        let keys = counted(account, peer);
        {
            let here = self.here();
            let of_now = |(since, count): &(Instant, i64)| if since.elapsed() < GUESS_TIME { *count } else { 0 };
            if keys.iter().any(|(key, max)| here.get(key).map_or(0, of_now) >= *max) {
                return false;
            }
        }
        let names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
        match self.counts.mget(&names).await {
            Ok(counts) => keys.iter().zip(counts).all(|((_, max), count)| count.is_none_or(|count| count.value < *max)),
            // Who has the password gets in also where nobody can be asked.
            Err(_) => true,
        }
    }

    /// Counts a failed login.
    pub async fn failed(&self, account: &str, peer: Option<IpAddr>) {
        for (key, _) in counted(account, peer) {
            {
                let mut here = self.here();
                if here.len() >= VERIFIED_MAX {
                    here.clear();
                }
                let count = here.entry(key.clone()).or_insert((Instant::now(), 0));
                *count = if count.0.elapsed() < GUESS_TIME { (count.0, count.1 + 1) } else { (Instant::now(), 1) };
            }
            let ends = GUESS_TIME.as_millis();
            let count = Transaction::new()
                .apply(&key, Function::new("put").arg(0).arg("absent").arg(ends))
                .apply(&key, Function::new("number.add").arg(1));
            if let Err(error) = self.counts.transact(&count).await {
                tracing::info!(%error, "a failed login is counted by this clone alone");
            }
        }
    }

    fn here(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, i64)>> {
        // What is inside is whole at every moment.
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_counted_by_account_and_network() {
        let keys = |peer: &str| counted("a@b", peer.parse().ok()).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys("192.0.2.7"), ["account/a@b", "network/192.0.2"]);
        assert_eq!(keys("::ffff:192.0.2.9"), ["account/a@b", "network/192.0.2"]);
        assert_eq!(keys("2001:db8:7:8::1"), ["account/a@b", "network/2001:db8:7"]);
        assert_eq!(keys("127.0.0.1"), ["account/a@b"]);
        assert_eq!(keys(""), ["account/a@b"]);
    }
}
