//! What clients ask: keyed session operations in closed loops. It draws operations and knows their values; judging what came back is
//! for `promise`.

use base::checksum::place_hash_pair;
use base::{Rng, Span};
use bytes::Bytes;
use state::session::{Action, Lease, Version, When};

use super::promise::{What, WriteId};

/// Namespace that load uses.
pub const NAMESPACE: &str = "carts";
/// Lease of [`NAMESPACE`].
pub const LEASE_DEFAULT: Span = Span::secs(30 * 60);

/// A session operation that was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub key: String,
    pub action: Action,
    /// For a write: its name and what it does.
    pub write: Option<(WriteId, What)>,
    pub name: &'static str,
    pub budget: Span,
}

/// One client: a closed loop with pauses.
struct Client {
    rng: Rng,
    pause: Span,
    /// The version it read last, and of which key.
    read: Option<(String, Version)>,
}

pub struct Load {
    clients: Vec<Client>,
    keys: u64,
    writes: WriteId,
}

impl Load {
    pub fn new(rng: &mut Rng) -> Self {
        let clients = rng.between(3, 8);
        let pause = Span::millis(*rng.pick(&[50, 150, 400]).expect("it is not empty"));
        Self {
            keys: *rng.pick(&[3, 20, 100]).expect("it is not empty"),
            clients: (0..clients).map(|_| Client { rng: rng.fork(), pause, read: None }).collect(),
            writes: 0,
        }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Until this client's next operation.
    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    /// A number below `n`, from this client's chance.
    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    /// What this client does next.
    pub fn draw(&mut self, client: usize) -> Drawn {
        let Client { rng, read, .. } = &mut self.clients[client];
        let key = format!("k{}", rng.below(self.keys));
        let budget = Span::millis(*rng.pick(&[500, 1_000, 2_000]).expect("it is not empty"));
        let kind = rng.below(100);
        if kind < 45 {
            return Drawn { key, action: Action::Get, write: None, name: "get", budget };
        }
        self.writes += 1;
        let id = self.writes;
        let (lease, span) = match rng.below(20) {
            0 => (Lease::For(Span::secs(2)), Span::secs(2)),
            1..=5 => (Lease::For(Span::secs(600)), Span::secs(600)),
            _ => (Lease::Default, LEASE_DEFAULT),
        };
        let put =
            |when| Action::Put { kind: state::session::Kind::Text, value: value(id), lease, when, want_old: false };
        let (name, key, action, what) = match kind {
            45..85 => ("put", key, put(When::Always), What::Put { lease: span }),
            85..90 => match read.take() {
                Some((key, version)) => ("put-if-version", key, put(When::Version(version)), What::Put { lease: span }),
                None => ("put-if-absent", key, put(When::Absent), What::Put { lease: span }),
            },
            90..95 => ("touch", key, Action::Touch { lease }, What::Touch { lease: span }),
            _ => ("remove", key, Action::Remove, What::Remove),
        };
        Drawn { key, action, write: Some((id, what)), name, budget }
    }

    /// A client has read this.
    pub fn has_read(&mut self, client: usize, key: &str, version: Version) {
        self.clients[client].read = Some((key.to_owned(), version));
    }
}

/// The value of a write: its name, then bytes that follow from it. One in 16 is a large one.
pub fn value(id: WriteId) -> Bytes {
    let hash = place_hash_pair(b"size", id);
    let size = if hash.is_multiple_of(16) { 8192 } else { 8 + hash % 120 } as usize;
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(std::iter::repeat_n((hash >> 8) as u8, size.saturating_sub(8)));
    bytes.into()
}

/// The write that stored these bytes, and whether they are all as it stored them.
pub fn written(bytes: &[u8]) -> (WriteId, bool) {
    match bytes.first_chunk::<8>() {
        Some(id) => {
            let id = u64::from_be_bytes(*id);
            (id, value(id) == bytes)
        }
        None => (0, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_write_and_every_flipped_bit_is_seen() {
        for id in 1..100 {
            let bytes = value(id);
            assert_eq!(written(&bytes), (id, true));
            let mut other = bytes.to_vec();
            *other.last_mut().unwrap() ^= 1;
            assert_ne!(written(&other), (id, true));
            assert!(!written(&bytes[..bytes.len() - 1]).1);
        }
    }
}
