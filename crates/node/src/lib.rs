//! One whole node: the machines below the waterline, wired together. It decides nothing itself.
//!
//! ```text
//!             Event ──► node.rs ──► membership ─ beacons ─ root ─ classes ─ group (+ manager, at the root's leader)
//!                          ▲            │  births, deaths, facts, declarations, assignments        │
//!             Effect ◄─────┴────────────┴──────────────────────────────────────────────────────────┘
//! ```
//! - `node.rs` takes each event to the machine it is for; `wires.rs` takes each machine's outputs to the next.
//! - `asks.rs` answers the front doors. `declared.rs` is TOML to records and back, `mistakes.rs` what is wrong with it as a whole,
//!   `fits.rs` whether the nodes that are there have what it needs.
//! - `facts.rs` is what nodes tell each other by beacon, `told.rs` what was heard, `parted.rs` what goes in parts; `picture.rs` builds the [`View`] that front doors read.
//! - `runs.rs`: what services run once, or at times.
//! - `secrets.rs`: secrets of services; `certificates.rs`: certificates of the cluster, `acme.rs`: those that come by themselves; `services.rs`: what is done with one service without its file.
//! - `authority.rs`: whose key signs certificates of nodes. `admission.rs`: who is let in, `former.rs`: who is nobody any more, `away.rs`: who is away for too long; `tokens.rs`: with what newcomers come. `level.rs`: what all nodes understand alike.
//!   `frames.rs`: peers' frames that are none.
//! - `leave.rs`: a node that is asked to restart or to leave, `departure.rs`: what it waits for; `lives.rs`: how
//!   often bricks lose their memory; `used.rs`: what namespaces take of what they may.
//!
//! The simulator runs this very struct.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod acme;
mod admission;
#[cfg(test)]
mod answers_tests;
mod ask;
mod asked;
mod asks;
#[cfg(test)]
mod asks_tests;
pub mod authority;
pub mod away;
pub mod certificates;
pub mod declared;
mod departure;
pub mod deploy;
mod facts;
mod fits;
mod former;
mod frames;
#[cfg(test)]
mod frames_tests;
mod leave;
pub mod level;
pub mod limits;
mod lives;
mod mistakes;
pub mod node;
pub mod numbers;
mod pace;
mod parted;
mod picture;
mod plans;
pub mod renewed;
mod runs;
pub mod sealed;
mod secrets;
mod services;
mod tokens;
mod told;
pub mod used;
pub mod view;
mod wires;
mod worked;

pub use certificates::{Certificate, Keyed};
pub use cluster::{Door, DoorAddrs};

pub use ask::{Admitted, Answer, Applied, Ask, JoinTokenView, RunEnd, RunStarted};
pub use departure::Leaving;
pub use node::{Birth, Node};
pub use picture::{
    CERTIFICATE_ENDS, CERTIFICATE_FAILED, CONTROL_GROUPS, FILES_END, FILES_WRONG, LANDLOCK, figure, figures,
};
pub use secrets::SecretView;
pub use view::View;
