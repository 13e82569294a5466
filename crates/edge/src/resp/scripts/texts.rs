//! Scripts by their digests, of each namespace for itself. As in Redis they are kept in memory: who is told NOSCRIPT sends the text.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::limits::{TEXTS_BYTES_MAX, TEXTS_MAX, TEXTS_SPACES_MAX};

#[derive(Default)]
pub struct Texts {
    spaces: HashMap<Arc<str>, Of>,
    /// In the order in which they came.
    order: VecDeque<Arc<str>>,
}

#[derive(Default)]
struct Of {
    by_sha: HashMap<Bytes, Bytes>,
    order: VecDeque<Bytes>,
    bytes: usize,
    /// How often the namespace's scripts had been forgotten when these came.
    flushes: u64,
}

impl Texts {
    pub fn get(&self, space: &str, sha: &[u8]) -> Option<Bytes> {
        self.spaces.get(space)?.by_sha.get(&sha.to_ascii_lowercase()[..]).cloned()
    }

    pub fn keep(&mut self, space: &str, text: &Bytes, flushes: u64) -> Bytes {
        let sha = sha1hex(text);
        if !self.spaces.contains_key(space) {
            if self.order.len() == TEXTS_SPACES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.spaces.remove(&oldest);
            }
            let name: Arc<str> = space.into();
            self.order.push_back(Arc::clone(&name));
            self.spaces.insert(name, Of { flushes, ..Of::default() });
        }
        let of = self.spaces.get_mut(space).expect("it was just seen or made");
        if of.by_sha.contains_key(&sha) || text.len() > TEXTS_BYTES_MAX {
            return sha;
        }
        while of.order.len() >= TEXTS_MAX || of.bytes + text.len() > TEXTS_BYTES_MAX {
            let Some(gone) = of.order.pop_front().and_then(|oldest| of.by_sha.remove(&oldest)) else { break };
            of.bytes -= gone.len();
        }
        of.bytes += text.len();
        of.order.push_back(sha.clone());
        // Its own memory: it would keep the whole buffer alive that it came in.
        of.by_sha.insert(sha.clone(), Bytes::copy_from_slice(text));
        sha
    }

    /// Forgets what came before the last flush that its shard tells of.
    pub fn follow(&mut self, space: &str, flushes: u64) {
        if let Some(of) = self.spaces.get_mut(space)
            && of.flushes < flushes
        {
            *of = Of { flushes, ..Of::default() };
        }
    }

    pub fn forget(&mut self, space: &str) {
        if self.spaces.remove(space).is_some() {
            self.order.retain(|name| **name != *space);
        }
    }
}

/// 40 digits, in small letters.
pub fn sha1hex(text: &[u8]) -> Bytes {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}
