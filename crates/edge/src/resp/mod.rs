//! The Redis protocol door: any Redis client works, the user name is the namespace and the password its token.
//!
//! ```text
//! socket ──► parse ──► commands (one list) ──► ops ──► gate ──► the node (Ask::Session, Ask::Linear)
//!    ▲                                                              │
//!    └── writev ◄── encode ◄── replies in order ◄───────────────────┘
//! ```
//! - `parse.rs`, `encode.rs`: bytes to commands, replies to bytes. Values are not copied either way.
//! - `conn.rs`: one connection: what is started when, what waits for what, what is read and written when. `input.rs`: its
//!   read buffer. `work.rs`: what one command waits for; `batch.rs`: commands that are asked as one.
//! - `commands/`: what is offered, a kind to a file, in one list; docs/resp.md is made from it.
//! - `secure.rs`: who comes with TLS; `stream.rs`: a connection with it, or without.
//! - `rdb.rs`: values as `DUMP` and `RESTORE` move them, between a Redis and here.
//! - `cursors.rs`: where walks through keys go on.
//! - `slices.rs`: commands of very many arguments.
//! - `slow.rs`: which commands took long.
//! - `unread.rs`: how many answers are kept for clients that do not read yet.
//! - `clients.rs`: connections as others of their namespace see them; `doors.rs`: what one door asks of those of all nodes.
//! - `subscribers.rs`: who listens to channels, and what waits for whom. `changes/`: which keys change, for who listens to
//!   that or keeps values of its own.
//! - `monitors.rs`: who watches commands.
//! - `scripts/`: Lua scripts, run beside the node.
//! - `client.rs`: who a client is. `ops.rs`: what commands ask of the node. `gate.rs`: what is held and refused when
//!   more comes than the node can do.
//!
//! It runs on the node's own thread, so that an operation is a call into the machine and not a message to it. How
//! the node is asked is the wiring's to say ([`Backend`]).

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::Span;
use host::Crowd;
use node::{Answer, Ask, View};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::{Functions, Meter};

mod batch;
mod changes;
pub mod client;
mod clients;
mod commands;
mod conn;
mod cursors;
mod doors;
pub mod encode;
mod gate;
mod input;
pub mod limits;
mod monitors;
mod offers;
mod ops;
pub mod parse;
pub mod rdb;
pub mod scripts;
pub mod secure;
mod slices;
mod slow;
mod stream;
mod subscribers;
mod unread;
mod work;

use changes::Changes;
use clients::Clients;
use commands::linear::block::Blocked;
use cursors::Cursors;
use doors::Doors;
use gate::Gate;
use monitors::Monitors;
use secure::Arrived;
use stream::Stream;
use subscribers::Subscribers;

/// How the node is asked, on its own thread.
pub trait Backend: 'static {
    /// Starts a question at once. The answer comes within the budget, or the sender is dropped if the node stops.
    fn ask(&self, ask: Ask, budget: Span, answer: oneshot::Sender<Answer>);
    /// Does this door refuse what it cannot do in time? Only an experiment says no.
    fn sheds(&self) -> bool {
        true
    }
    /// Does it answer at once, and take any number? So it is inside of a script.
    fn is_at_once(&self) -> bool {
        false
    }
    /// Are there doors of other nodes, which may be asked for something?
    fn spans(&self) -> bool {
        false
    }
    /// What the node shows at this moment.
    fn view(&self) -> Arc<View>;
    /// What all nodes understand alike.
    fn agreed(&self) -> u32 {
        self.view().root.level
    }
}

/// What all connections of this door share.
pub struct Node {
    gate: Rc<Gate>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    since: Instant,
    /// Another at each start, as in Redis.
    run_id: String,
    /// Connections that were taken, and those that were not as there were too many.
    last_id: Cell<u64>,
    turned_away: Cell<u64>,
    /// What is known of how many keys there are (`INFO`).
    keyspace: Rc<commands::Keyspace>,
    /// Where walks of class `linear` go on, as long as they cannot say it by themselves.
    cursors: Rc<RefCell<Cursors>>,
    /// Bytes of large read buffers, all connections together.
    read_bytes: Cell<usize>,
    /// ... and of commands that are being worked off in slices.
    wide_bytes: Rc<Cell<usize>>,
    /// Bytes of answers that clients have not taken, all connections together.
    unread: RefCell<unread::Kept>,
    /// Who listens to channels.
    subscribers: Rc<Subscribers>,
    /// Which keys change, as far as somebody wants to know.
    changes: Rc<Changes>,
    /// Their connections, and those at other doors.
    clients: Rc<Clients>,
    doors: Rc<Doors>,
    /// Who watches commands.
    monitors: Rc<Monitors>,
    /// What took long.
    slow: RefCell<slow::SlowLog>,
    /// Who waits for items of lists.
    blocked: Rc<Blocked>,
    /// Connections end as soon as they have answered what has come.
    closing: Cell<bool>,
    told: Notify,
    /// Who has not said who it is, by address.
    strangers: Arc<Crowd>,
    /// Who has, by namespace.
    known: Arc<Crowd<Arc<str>>>,
}

impl Node {
    fn new(gate: Rc<Gate>, meter: Arc<Meter>, functions: Arc<Functions>, run_id: String, room: Room) -> Self {
        let subscribers = Subscribers::new(Rc::clone(&gate), Arc::clone(&meter));
        let clients = Rc::<Clients>::default();
        Self {
            changes: Changes::new(Rc::clone(&gate), Rc::clone(&subscribers)),
            doors: Doors::new(Rc::clone(&clients), Rc::clone(&subscribers), &run_id),
            clients,
            monitors: Monitors::new(Rc::clone(&subscribers)),
            subscribers,
            gate,
            meter,
            functions,
            since: Instant::now(),
            run_id,
            last_id: Cell::new(0),
            turned_away: Cell::new(0),
            keyspace: Rc::default(),
            cursors: Rc::default(),
            read_bytes: Cell::new(0),
            wide_bytes: Rc::default(),
            unread: RefCell::default(),
            slow: RefCell::default(),
            blocked: Rc::default(),
            closing: Cell::new(false),
            told: Notify::new(),
            strangers: Crowd::of_strangers(room.strangers),
            known: Crowd::new(room.known),
        }
    }
}

/// How many connections there are at most.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub strangers: usize,
    pub known: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { strangers: limits::STRANGERS_MAX, known: limits::CONNECTIONS_MAX }
    }
}

/// 40 hexadecimal digits, by chance.
fn run_id() -> String {
    // Each of these hashers has keys of its own.
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}{:08x}", number(), number(), number() as u32)
}

/// Serves until `stop`: then nobody new is let in, and each connection is closed once it has answered what has come.
/// Runs in a `LocalSet`, on the node's thread. An error: the listener could not be used at all.
pub async fn serve(
    listener: std::net::TcpListener,
    backend: Rc<dyn Backend>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_with(listener, None, backend, meter, functions, stop, Room::default()).await
}

/// [`serve`] with room for more or fewer, also for who comes with TLS ([`secure`]).
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    listener: std::net::TcpListener,
    mut secure: Option<mpsc::Receiver<Arrived>>,
    backend: Rc<dyn Backend>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    stop: impl Future<Output = ()>,
    room: Room,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (sheds, spans) = (backend.sheds(), backend.spans());
    let gate = Rc::new(Gate::new(backend, sheds));
    // Goes on after `stop`: what connections have sent is still answered.
    tokio::task::spawn_local(Rc::clone(&gate).run());
    tokio::task::spawn_local(Rc::clone(&gate).show(Arc::clone(&meter.stages)));
    let node = Rc::new(Node::new(gate, meter, functions, run_id(), room));
    if spans {
        tokio::task::spawn_local(Rc::clone(&node.doors).open());
    }
    // Numbers of connections are unlike those at other nodes.
    let first_id = if spans { RandomState::new().build_hasher().finish() >> 44 << 32 } else { 0 };
    let mut stop = std::pin::pin!(stop);
    let _listens = node.meter.resp.listens();
    let welcome = |stream: Stream, from, local, open| {
        node.last_id.set(node.last_id.get() + 1);
        let client = client::Client::new(first_id + node.last_id.get(), from, local);
        tokio::task::spawn_local(conn::run(stream, client, Rc::clone(&node), open));
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(arrived) = next(&mut secure) => {
                let Arrived { stream, from, local, open } = arrived;
                welcome(Stream::Secure(Box::new(stream)), from, local, open);
                continue;
            }
            () = &mut stop => {
                node.closing.set(true);
                node.told.notify_waiters();
                return Ok(());
            }
        };
        match accepted {
            Ok((stream, addr)) => {
                // Not being able to set these costs speed and notices of dead clients, nothing else.
                let _ = stream.set_nodelay(true);
                let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, limits::KEEPALIVE_IDLE);
                let Ok(local) = stream.local_addr() else { continue };
                welcome(Stream::Plain(stream), addr, local, node.meter.resp.opened());
            }
            Err(error) => {
                tracing::warn!(%error, "resp: a connection could not be accepted");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn next(secure: &mut Option<mpsc::Receiver<Arrived>>) -> Option<Arrived> {
    match secure {
        Some(arrivals) => arrivals.recv().await,
        None => None,
    }
}

#[cfg(test)]
mod tests;
