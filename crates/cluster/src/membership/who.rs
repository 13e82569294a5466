//! Who a member is to SWIM: a card, and an epoch that counts how often this life of the node was declared dead by
//! mistake and came back. Also the one bridge to `foca`'s traits for identity, chance and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base::{Boot, NodeId, Rng};
use bytes::Bytes;
use foca::{Identity, Notification, Runtime, Timer};

use crate::Card;

#[derive(Clone, Debug)]
pub(super) struct Who {
    pub card: Arc<Card>,
    pub epoch: u32,
}

impl Who {
    /// A higher life wins, and within one life a higher epoch.
    fn life(&self) -> (Boot, u32) {
        (self.card.boot, self.epoch)
    }
}

/// What else stands on a card cannot differ within one life.
impl PartialEq for Who {
    fn eq(&self, other: &Self) -> bool {
        self.card.id == other.card.id && self.life() == other.life()
    }
}

impl Eq for Who {}

impl Identity for Who {
    type Addr = NodeId;

    fn addr(&self) -> NodeId {
        self.card.id
    }

    fn renew(&self) -> Option<Self> {
        Some(Self { card: self.card.clone(), epoch: self.epoch.checked_add(1)? })
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.life() > adversary.life()
    }
}

/// What foca wants done, kept until it returns.
#[derive(Default)]
pub(super) struct Wishes {
    pub sends: Vec<(NodeId, Bytes)>,
    pub timers: Vec<(Duration, Timer<Who>)>,
}

impl Runtime<Who> for &mut Wishes {
    /// Foca's list is compared before and after instead: that also sees suspicion, of which foca does not notify.
    fn notify(&mut self, _: Notification<'_, Who>) {}

    fn send_to(&mut self, to: Who, data: &[u8]) {
        self.sends.push((to.addr(), super::wire::foca_head(data)));
    }

    fn submit_after(&mut self, event: Timer<Who>, after: Duration) {
        self.timers.push((after, event));
    }
}

/// Our generator, as foca wants one.
pub(super) struct FocaRng(pub Rng);

impl rand_core::TryRng for FocaRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.u64())
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        for chunk in dst.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
