//! What the author of a service in Rust sees of Coppice: a program that serves, and state that outlives it.
//!
//! ```no_run
//! use sdk::axum::{Json, Router, extract::State, http::StatusCode, routing::post};
//!
//! type Votes = sdk::Linear<i64>;
//!
//! async fn vote(State(votes): State<Votes>) -> Result<Json<i64>, StatusCode> {
//!     votes.add("honey", 1).await.map(Json).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), sdk::StartError> {
//!     let service = sdk::Service::from_env()?;
//!     let votes: Votes = service.linear("votes")?;
//!     service.serve(Router::new().route("/vote", post(vote)).with_state(votes)).await
//! }
//! ```
//!
//! - `service.rs`: the program: what its node gives it (`given.rs`), HTTP, health, the stop signal.
//! - `tcp.rs`: connections of its TCP doors, told apart from HTTP by what `proxy.rs` reads.
//! - `certificates.rs`: certificates of its node, for TLS that it ends itself.
//! - `sessions.rs`: values of class `session`, by a cookie that a browser keeps or by key. `linear.rs`: class `linear`.
//!   `objects.rs`: objects of owners, of class `object`; `objects/watch.rs`: their changes. `soft.rs`: class `soft`; `soft/replica.rs`: all of it in this program.
//!   `sql.rs`: databases of class `sql`; `profiles.rs`: what people want, which comes with their requests. `cache.rs`: entries of class `cache`, fetched once for all clones.
//!   `linear/ledger.rs`: ledgers of class `linear`, and numbers for objects.
//! - `functions.rs`: functions that the service offers for values of class `linear`.
//! - `worker.rs`: a program that makes one content of another, in ten lines. `gathered.rs`: what several others made before it.
//! - `group.rs`: the clones of a service as a group: members, leader, messages, barriers; its streams are in `stream.rs`.
//! - `services.rs`: other services, asked by their names.
//! - `on_behalf.rs`: what calls to other services take over of the request that they are made for.
//! - `pressure.rs`: the service is told when it is overloaded. `stage.rs`: it does only so much at a time, and says so; `shown.rs`:
//!   its node shows that.
//! - `node.rs`: the connections to the own node, and to another one if that goes.
//! - `error.rs`: how an operation ends: done, refused (nothing happened), unknown (it may have).
//!
//! Everything here is HTTP that any program could speak (docs/api.md): the crate knows nothing that is not written there.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cache;
mod certificates;
mod error;
mod functions;
mod gathered;
mod given;
mod group;
pub mod limits;
mod linear;
mod node;
mod objects;
mod on_behalf;
mod pressure;
mod profiles;
mod proxy;
mod service;
mod services;
mod sessions;
mod shown;
mod soft;
mod sql;
mod stage;
mod stream;
mod tcp;
mod worker;

pub use axum;
pub use base::{Outcome, Refused, Unknown};
pub use cache::{Cache, CacheError, Entry, Fetched, Missing, Purge};
pub use certificates::Certificates;
pub use error::{BadCookie, Happened, ReadError, StartError, WriteError};
pub use flow::stage::{Shape, Shown};
pub use functions::{Args, FunctionError};
pub use gathered::{Gathered, Part};
pub use given::Given;
pub use group::{Change, Changes, Group, Heard, Meeting, Member, Members, Messages, State};
pub use linear::{
    Added, Copied, Folder, FolderChanges, FolderEnd, ItemPage, Ledger, LedgerInfo, LedgerItem, Marked, Marking,
    NewItem, NoNumbers, Numbered, Numbers, Removed,
};
pub use linear::{Depth, JobFailed, Put, Queue, Taken, Times, Works};
pub use linear::{Function, Lease, Linear, LinearError, Page, Stored, Transaction, Watch, Watched};
pub use node::Node;
pub use objects::{
    NoObjectId, Object, ObjectChange, ObjectError, ObjectHead, ObjectId, ObjectPage, ObjectReader, ObjectWatch,
    Objects, Written,
};
pub use on_behalf::OnBehalf;
pub use pressure::{overloaded, pressure};
pub use profiles::{Profile, ProfileError, Profiles, Wants, profile, profile_id};
pub use proxy::Tls;
pub use service::Service;
pub use services::{CallError, Reply, Services};
pub use sessions::{Cookie, Held, Sealed, Sessions, Version, When};
pub use soft::{Hold, Replica, Soft, SoftChange, SoftChanged, SoftChanges, SoftError, SoftWhy};
pub use sql::{Changed, Rows, Sql, SqlError, Statement};
pub use stage::{Overloaded, Stage, Turn};
pub use tcp::{Conn, Drain};
pub use tokio;
pub use tokio_rustls;
pub use worker::{Job, Made, Worker};
