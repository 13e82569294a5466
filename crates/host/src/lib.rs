//! The real world: what carries a machine's effects out and brings its events in.
//!
//! `driver` runs one `base::Machine` on a thread of its own; `net` and `link` are its connections to peers over mutual
//! TLS (`tls`, `identity`, `certificate`), `disk` its one log, `process` its children, `logs` what they printed, `join` how a newcomer
//! gets a certificate, `tunnel` how an edge reaches a clone on another node, `crowd` who is at a door and has not shown who it is. The host
//! knows effects, never a protocol: it cannot tell a beacon from a session. Anything that decides lives below, in a machine.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
mod ahead;
mod bounds;
mod cage;
pub mod certificate;
mod clock;
pub mod code;
pub mod crowd;
mod disk;
pub mod driver;
pub mod error;
mod hello;
pub mod identity;
pub mod inside;
pub mod join;
mod keeper;
#[cfg(test)]
#[path = "../../../tests/fixtures/kept.rs"]
mod kept;
pub mod limits;
mod link;
pub mod logs;
mod net;
mod outbox;
mod output;
mod piece;
pub mod ports;
pub mod private;
mod probe;
pub mod process;
mod relay;
mod removed;
pub mod renew;
mod skin;
pub mod tls;
pub mod tunnel;
mod user;
mod uses;
mod vitals;
mod words;

pub use bounds::control_groups;
pub use cage::{Cage, Calls, caged};
pub use certificate::Validity;
pub use code::CodeStore;
pub use crowd::Crowd;
pub use disk::{EXIT_AGAIN, has_log, has_snapshot};
pub use driver::EXIT_OUTDATED;
pub use driver::WorkDesk;
pub use driver::{Gone, HostConfig, LocalPort, Port, Running, spawn, start};
pub use error::Error;
pub use identity::{Authority, DataDir, Identity, proof_of, request_for, self_signed};
pub use join::{JoinDesk, JoinError, JoinGrant, JoinToken, JoinWish};
pub use keeper::SOCKET_VARIABLES;
pub use process::{keep_main, reap_main};
pub use renew::{NotRenewed, RenewWish};
pub use skin::{close_self, landlock};
pub use tls::{Tls, is_signed_by};
pub use tunnel::{Dialer, OwnStream, Target, TunnelDesk, TunnelStream};
