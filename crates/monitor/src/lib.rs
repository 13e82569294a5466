//! What people see of the cluster: one page, written by the server and kept current by it, at `/` of each node's API.
//!
//! - `picture.rs`: what is shown, read from the node's view as JSON. This crate knows no node.
//! - `history.rs`: the last minute, second by second. `chart.rs`: it as small pictures.
//! - `page.rs`: the page and its parts; `services.rs`, `stages.rs`: the larger ones. `switch.rs`: buttons that take things
//!   out of use and put them back. `site.rs`: addresses, the stream of changes, headers.
//!
//! Nothing is fetched from elsewhere, no script or style stands in the page, and without scripts the page is still whole:
//! it is then as new as its last load. It never acts itself: its buttons let the browser ask the API, with the operator's token.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answers;
mod chart;
mod headed;
mod history;
mod limits;
mod page;
mod picture;
mod services;
mod site;
mod stages;
mod switch;

pub use picture::Picture;
pub use site::router;

/// Where the picture comes from.
pub trait Source: Send + Sync + 'static {
    /// The node's view as `GET /v1/status` shows it, to the operator or to anybody. Called once a second and at each load of the page.
    fn snapshot(&self, to_operator: bool) -> serde_json::Value;
}
