//! Connections of a service's TCP doors (`tcp = [{ name = "smtp", port = 2525 }, ...]`). All come to the clone's one port, each with a
//! word of the node before it: who the client is and at which door it came (`proxy.rs`). Over the same port comes HTTP, by which the
//! node asks for the clone's health; the first byte tells which it is. When the program is asked to stop, its connections are told
//! to say goodbye one after the other, so that their clients do not all come back at once.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{FIRST_BYTE_TIME_MAX, PROXY_TIME_MAX};
use crate::proxy::{self, SIGNATURE, Tls};

/// A client's connection.
#[derive(Debug)]
pub struct Conn {
    /// Nothing of what the client said was taken from it yet.
    pub stream: TcpStream,
    /// Who the client is, as its node says.
    pub peer: SocketAddr,
    /// At which door it came; empty where the service has but one, without a name.
    pub door: String,
    /// The node ended its TLS.
    pub tls: Option<Tls>,
    pub drain: Drain,
}

/// Says when a connection is to end because the program does. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain {
    leaves: watch::Receiver<Option<Leave>>,
    /// Its place among all, as a part of the time.
    turn: f64,
}

/// The program is asked to stop, and its connections are to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    pub since: Instant,
    /// The last one is told then.
    pub within: Duration,
}

/// What serves the connections of a program.
#[derive(Clone)]
pub(crate) struct Doors {
    handler: Arc<dyn Fn(Conn) -> BoxFuture<'static, ()> + Send + Sync>,
    entered: Arc<AtomicU64>,
}

/// What a connection turned out to be.
pub(crate) enum Came {
    Tcp(BoxFuture<'static, ()>),
    Http(TcpStream),
    /// Somebody looked whether the port is open, or said what cannot be.
    Nothing,
}

impl Drain {
    /// Ends when it is this connection's turn to say goodbye: at its next moment between two commands, say. Wait for it beside the
    /// client's next word.
    ///
    /// ```
    /// # async fn next(line: impl Future<Output = String>, drain: &sdk::Drain) -> Option<String> {
    /// tokio::select! {
    ///     line = line => Some(line),
    ///     () = drain.told() => None,          // write "421 closing, come again", and end
    /// }
    /// # }
    /// ```
    pub async fn told(&self) {
        let mut leaves = self.leaves.clone();
        let leave = leaves.wait_for(Option::is_some).await.ok().and_then(|leave| *leave);
        // Without one nobody will ever say so: who served is gone.
        if let Some(leave) = leave {
            sleep_until(self.turn_in(leave)).await;
        }
    }

    pub fn is_told(&self) -> bool {
        self.leaves.borrow().is_some_and(|leave| self.turn_in(leave) <= Instant::now())
    }

    fn turn_in(&self, leave: Leave) -> Instant {
        leave.since + leave.within.mul_f64(self.turn)
    }

    /// One that is never told, and one that is told at once: for tests of what serves connections.
    pub fn never() -> Self {
        Self::of(None)
    }

    pub fn at_once() -> Self {
        Self::of(Some(Leave { since: Instant::now(), within: Duration::ZERO }))
    }

    fn of(leave: Option<Leave>) -> Self {
        let (sender, leaves) = watch::channel(leave);
        if leave.is_none() {
            // Kept for ever, as it is never to end.
            tokio::spawn(async move { sender.closed().await });
        }
        Self { leaves, turn: 0.0 }
    }
}

impl Doors {
    pub fn new<F: Future<Output = ()> + Send + 'static>(handler: impl Fn(Conn) -> F + Send + Sync + 'static) -> Self {
        Self { handler: Arc::new(move |conn| Box::pin(handler(conn))), entered: Arc::default() }
    }

    /// Looks what a connection is.
    pub async fn greet(&self, mut stream: TcpStream, leaves: watch::Receiver<Option<Leave>>) -> Came {
        let mut first = [0];
        match timeout(FIRST_BYTE_TIME_MAX, stream.peek(&mut first)).await {
            Ok(Ok(1)) => (),
            Ok(Ok(_) | Err(_)) | Err(_) => return Came::Nothing,
        }
        if first[0] != SIGNATURE[0] {
            return Came::Http(stream);
        }
        let header = match timeout(PROXY_TIME_MAX, proxy::read(&mut stream)).await {
            Ok(Ok(header)) => header,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection was not taken");
                return Came::Nothing;
            }
            Err(_) => {
                tracing::debug!("a connection was not taken: its PROXY header did not come in time");
                return Came::Nothing;
            }
        };
        let number = self.entered.fetch_add(1, Relaxed);
        let drain = Drain { leaves, turn: turn(number) };
        let proxy::Header { peer, door, tls } = header;
        Came::Tcp((self.handler)(Conn { stream, peer, door, tls, drain }))
    }
}

/// Multiples of the golden section: however many of them are left, they lie evenly over the time.
fn turn(number: u64) -> f64 {
    (number as f64 * 0.618_033_988_749_895).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodbyes_of_any_connections_that_are_left_lie_evenly_over_the_time() {
        for first in [0, 7, 1_000_003] {
            let mut turns: Vec<f64> = (first..first + 100).map(turn).collect();
            turns.sort_by(f64::total_cmp);
            let widest = turns.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
            assert!(widest < 0.03 && turns[0] < 0.03 && turns[99] > 0.97, "{first}: {widest}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_connection_is_told_in_its_turn() {
        let (stop, leaves) = watch::channel(None);
        let drain = Drain { leaves, turn: 0.5 };
        assert!(!drain.is_told());
        let waits = tokio::spawn({
            let drain = drain.clone();
            async move { drain.told().await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        let since = Instant::now();
        stop.send(Some(Leave { since, within: Duration::from_secs(4) })).unwrap();
        waits.await.unwrap();
        assert_eq!((since.elapsed(), drain.is_told()), (Duration::from_secs(2), true));
        assert!(Drain::at_once().is_told() && !Drain::never().is_told());
        assert!(timeout(Duration::from_secs(60), Drain::never().told()).await.is_err());
    }
}
