//! Who is let in at a TCP service: as at the HTTP door by [`crate::turnstile`], only that nobody knows what is a request here. What
//! is limited is what can be told of any protocol: connections that wait for the clone's first byte ([`super::heard`]). Where
//! clients speak first one waits from its first byte on, so who keeps connections for later is in nobody's way; where clones do,
//! from its begin. Who speaks first is seen from connections before; until a clone has spoken nothing is limited, as of some protocols
//! (logs that are sent) none ever does.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base::Span;
use flow::stage::End;
use tokio::net::TcpStream;

use crate::demand::Visit;
use crate::limits::CLONE_WAIT;
use crate::pool::{Unheard, Upstream};
use crate::share;
use crate::table::{Doorway, Place};
use crate::turnstile::{Full, Permit};

/// A client of a protocol in which clients speak first, and that says nothing for so long, has opened the connection for later.
const SPEAKS_WITHIN: Duration = Duration::from_millis(100);
/// A clone that answers at all does so within some times of what it takes without a queue, while not too many are let in. Who waits for
/// longer waits for something else, a message from somebody, and takes nobody's place any more.
const HOLDS: (u64, Span, Span) = (8, Span::millis(50), Span::secs(1));
/// The last so many connections tell who speaks first.
const TELL: i8 = 8;

/// Who speaks first at a port.
#[derive(Debug, Default)]
pub struct First {
    /// Above 0: clones do. Below: clients. An odd connection (a client in a hurry, an error instead of an answer) changes little.
    balance: AtomicI8,
}

impl First {
    /// A clone spoke, after its client or before.
    pub fn heard(&self, client_was_first: bool) {
        let step = if client_was_first { -1 } else { 1 };
        // At 0 nobody would know, so that is passed over.
        let next = |n: i8| if n == -step { step } else { (n + step).clamp(-TELL, TELL) };
        let _ = self.balance.fetch_update(Relaxed, Relaxed, |n| Some(next(n)));
    }

    /// Has this client asked for something by now, or soon after?
    async fn asks(&self, client: &TcpStream) -> bool {
        match self.balance.load(Relaxed) {
            0 => false,
            1.. => true,
            _ => match tokio::time::timeout(SPEAKS_WITHIN, client.peek(&mut [0])).await {
                Ok(Ok(count)) => count > 0,
                Ok(Err(_)) | Err(_) => false,
            },
        }
    }
}

/// A connection that waits for its clone's first byte.
pub struct Asking {
    permit: Permit,
    /// It has its place still.
    visit: Option<Visit>,
    /// Where it waits, once that is chosen.
    at: Option<Unheard>,
    doorway: Arc<Doorway>,
    came: Instant,
    /// How long it may keep its place.
    pub holds: Duration,
}

/// Lets a connection in, now or after a short wait for those before it. None: nothing is known to be asked yet.
///
/// # Errors
/// There is no room for its class.
pub async fn admit(
    place: Option<Place>,
    first: &First,
    client: &TcpStream,
    address: IpAddr,
) -> Result<Option<Asking>, Full> {
    let Some(place) = place.filter(|place| !place.is_off()) else { return Ok(None) };
    if !first.asks(client).await {
        return Ok(None);
    }
    let (doorway, came) = (place.doorway, Instant::now());
    let entered = doorway.turnstile.enter(doorway.class, share::hash(address), CLONE_WAIT).await;
    let Ok(permit) = entered else {
        doorway.part.refused();
        doorway.count.refuse();
        return Err(Full);
    };
    let (times, least, most) = HOLDS;
    let holds = Duration::from(doorway.turnstile.base().times(times).clamp(least, most));
    Ok(Some(Asking { permit, visit: Some(doorway.count.enter()), at: None, doorway, came, holds }))
}

impl Asking {
    /// It is to wait for this one's first word, and for nobody else's.
    pub fn waits_for(&mut self, clone: &Arc<Upstream>) {
        self.at = Some(clone.begin_unheard());
    }

    /// It has waited for too long to be in anybody's way.
    pub fn let_go(&mut self) {
        self.permit.let_go();
        (self.visit, self.at) = (None, None);
    }

    /// The clone has spoken, or ended without a word.
    pub fn ended(self, spoke: bool) {
        if spoke {
            self.doorway.part.done(self.came.elapsed());
        }
        self.permit.ended(if spoke { End::Done } else { End::Gone });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_speaks_first_is_learned_and_an_odd_connection_changes_little() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        let first = First::default();
        assert!(!first.asks(&here).await, "nobody knows");
        (0..20).for_each(|_| first.heard(false));
        first.heard(true);
        assert!(first.asks(&here).await, "the clone is to speak");
        (0..20).for_each(|_| first.heard(true));
        first.heard(false);
        assert!(!first.asks(&here).await, "the client says nothing");
        client.write_all(b"hello").await.unwrap();
        assert!(first.asks(&here).await);
        drop(client);
    }

    #[tokio::test]
    async fn one_connection_is_enough_to_begin_with_and_a_client_that_leaves_asks_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        drop(client);
        let first = First::default();
        first.heard(true);
        assert!(!first.asks(&here).await);
        first.heard(false);
        assert!(first.asks(&here).await);
    }
}
