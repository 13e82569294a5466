//! Connections by client address: one address may have so many as are an eighth of those that are still free. So whoever
//! asks for many gets a ninth of a door's at most, the next one a ninth of what is left, and it takes many of them until
//! there is no room for who has none. No number has to be set.
//!
//! Clients on the same machine are not told apart, nor those behind a proxy that does not say who they are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use base::checksum::place_hash;
pub use host::crowd::network;

/// What one address may have is to what it leaves free as one to this.
pub const LEAVES: u64 = 8;

#[derive(Debug, Default)]
pub struct Shares {
    /// Of addresses that have some.
    of: Mutex<HashMap<IpAddr, u64>>,
    refused: AtomicU64,
}

/// Counts as one of its address until dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
}

impl Shares {
    /// One more for this client, who may have `most`, and one in any case. None: it has too many.
    pub fn take(self: &Arc<Self>, client: IpAddr, most: u64) -> Option<Share> {
        let address = network(client);
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of.get(&address).copied().unwrap_or(0);
        if count >= most.max(1) {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        of.insert(address, count + 1);
        Some(Share { shares: Arc::clone(self), address })
    }

    /// Since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut of = self.shares.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = of.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                of.remove(&self.address);
            }
        }
    }
}

/// By which clients are told apart where a number is needed.
pub fn hash(client: IpAddr) -> u64 {
    match network(client) {
        IpAddr::V4(ip) => place_hash(&ip.octets()),
        IpAddr::V6(ip) => place_hash(&ip.octets()[..8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 900;

    struct Fake {
        shares: Arc<Shares>,
        open: Vec<Share>,
    }

    impl Fake {
        /// Asks until it is refused; how many it got.
        fn grab(&mut self, client: &str) -> usize {
            let before = self.open.len();
            let client: IpAddr = client.parse().unwrap();
            while let free = MOST - self.open.len() as u64
                && free > 0
                && let Some(share) = self.shares.take(client, free / LEAVES)
            {
                self.open.push(share);
            }
            self.open.len() - before
        }
    }

    #[test]
    fn one_gets_a_ninth_and_the_next_one_of_what_is_left() {
        let mut fake = Fake { shares: Arc::default(), open: Vec::new() };
        assert_eq!(fake.grab("203.0.113.1"), 100);
        assert_eq!(fake.grab("203.0.113.2"), 89);
        assert_eq!(fake.shares.refused(), 2);
        for last in 3..50 {
            assert!(fake.grab(&format!("203.0.113.{last}")) > 0, "{last}");
        }
        // Who gives some back may have them again; nothing is kept of who has none.
        fake.open.clear();
        assert_eq!(fake.grab("203.0.113.1"), 100);
        fake.open.clear();
        assert!(fake.shares.of.lock().unwrap().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_so_is_ipv4_in_ipv6() {
        let mut fake = Fake { shares: Arc::default(), open: Vec::new() };
        assert_eq!((fake.grab("2001:db8::1"), fake.grab("2001:db8::ffff:2")), (100, 0));
        assert_eq!((fake.grab("2001:db8:0:1::1"), fake.grab("203.0.113.1")), (89, 79));
        assert_eq!(fake.grab("::ffff:203.0.113.1"), 0);
    }
}
