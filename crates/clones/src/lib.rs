//! What the cluster runs: services as groups of clones.
//!
//! An operator declares a service ([`ServiceSpec`]). The [`Manager`], at the root group's leader, decides how its clones
//! are spread over the live nodes ([`Assignments`], a beacon: soft state). On each node the [`Group`] starts, probes,
//! restarts and drains the clones that fall to it, and says in a beacon what it runs ([`NodeClones`]). From those
//! beacons the node builds the [`Routes`] by which the edges of all nodes find the clones.
//!
//! Both machines are pure: time and one input in, outputs out. Nothing here knows HTTP, a process or a socket.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod allows;
mod asks;
pub mod assign;
mod at_times;
pub mod backlog;
pub mod bounds;
pub mod cache;
pub mod certificate;
pub mod clone;
mod conduct;
pub mod demand;
pub mod deploy;
pub mod doors;
pub mod group;
pub mod heal;
mod health;
pub mod https;
mod index;
mod life;
pub mod limits;
pub mod manager;
pub mod members;
pub mod off;
pub mod partition;
mod partition_check;
pub mod parts;
pub mod path;
pub mod pipeline;
pub mod plan;
pub mod profile;
mod rollout;
pub mod route;
pub mod runs;
pub mod sandbox;
pub mod secrets;
pub mod session;
pub mod size;
pub mod sizing;
pub mod spec;
mod tcp;
pub mod text;
pub mod wire;
pub mod worker;

/// The level from which a declaration may say what [`Allows`] holds, `sandbox`, and more of `health` than a path (`base/src/level.rs`).
pub const LEVEL: u32 = 4;
/// ... and from which it may say `cache`.
pub const CACHE_LEVEL: u32 = 5;

/// The level from which a service may have doors with names, and `certificates`.
pub const LEVEL_DOORS: u32 = 5;
/// ... and from which it may be a worker, and be sent through a pipeline.
pub const LEVEL_WORKERS: u32 = 6;
/// The level from which a pipeline may say `on_fail = "near"`.
pub const LEVEL_NEAR: u32 = 8;
/// ... and from which it may have secrets, and an access log.
pub const LEVEL_SECRETS: u32 = 6;
/// ... and from which something may go before its versions, and it may run at times.
pub const LEVEL_RUNS: u32 = 7;
/// ... and from which it may ask several clones, and name the text that describes it to programs.
pub const LEVEL_ASKS: u32 = 7;

/// ... and from which its clones may have bounds, and another user than their node's.
pub const LEVEL_BOUNDS: u32 = 9;

/// ... and from which profiles may be declared.
pub const LEVEL_PROFILES: u32 = 10;

/// ... and from which it may say which queues of jobs it works on.
pub const LEVEL_QUEUES: u32 = 14;
/// Steps of pipelines gather parts.
pub const LEVEL_GATHER: u32 = 14;
/// Services are told what is measured of their clients' lines.
pub const LEVEL_DOWNLINK: u32 = 15;

/// ... and from which certificates may be declared, and services have `https` and `hsts`.
pub const LEVEL_CERTIFICATES: u32 = 7;
/// ... and from which nodes show over TLS that names are ours.
pub const LEVEL_CHALLENGES: u32 = 9;

/// ... and from which what nodes say of services goes in parts where it is long.
pub const LEVEL_PARTS: u32 = 9;

pub use access::AccessLog;
pub use allows::Allows;
pub use asks::Asks;
pub use assign::{Assignments, Version};
pub use backlog::{Backlog, Backlogs};
pub use bounds::Bounds;
pub use cache::EdgeCache;
pub use certificate::{CertificateSpec, Challenge};
pub use clone::{CloneId, CloneState, CloneStatus, NodeClones};
pub use conduct::Ill;
pub use demand::Demand;
pub use doors::Doors;
pub use group::Group;
pub use heal::Sick;
pub use health::Health;
pub use https::{Https, RouteHttps};
pub use manager::{Manager, NodeLoad};
pub use members::Members;
pub use off::Off;
pub use partition::Partition;
pub use partition_check::tcp_ports;
pub use parts::Parted;
pub use pipeline::PipelineSpec;
pub use profile::ProfileSpec;
pub use route::{Found, RouteClone, RoutePipeline, RouteProfile, RouteService, RouteSession, Routes};
pub use sandbox::Sandbox;
pub use session::SessionCookie;
pub use size::Size;
pub use spec::{HttpRoute, ServiceSpec, SpecError, Stop, TcpRoute};
pub use worker::Worker;
