//! How the outside gets in: HTTP and TCP to the clones of services, the Redis protocol to namespaces, the JSON API to
//! people and scripts. Doors route by the node's published view; they decide nothing about the cluster, and they reach
//! state only by asking the node.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accept;
pub mod acme;
mod affinity;
pub mod answers;
pub mod api;
mod ask;
pub mod clone_stages;
pub mod closing;
mod cookie;
mod copy;
pub mod demand;
mod downlink;
mod fairness;
#[doc(hidden)]
pub mod fields;
mod frames;
pub mod functions;
mod handle;
pub mod http;
mod limits;
pub mod meter;
pub mod near;
pub mod newcomers;
mod outlier;
pub mod overload;
mod pace;
#[cfg(test)]
mod pages;
pub mod part;
pub mod pool;
mod profiles;
mod proxy_protocol;
pub mod resp;
mod said;
mod secret;
mod share;
mod spread;
mod table;
pub mod tcp;
pub mod tls;
mod tunnels;
pub mod turnstile;
mod under_way;
mod wait;
mod wall;

const _: () = assert!(
    resp::limits::QUESTIONS_MAX + api::limits::WATCHERS_MAX < state::linear::limits::WAITS_MAX,
    "a node lets all of them wait"
);

pub use functions::Functions;
pub use meter::{Meter, stage_gauges};
pub use pool::Dial;
