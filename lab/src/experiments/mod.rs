//! One file per experiment, one line per experiment.

mod cookie;
mod edge;
mod kills;
mod session;

use crate::Plan;
use crate::report::Report;

pub type Run = fn(&Plan) -> Result<Report, String>;

/// Name, what it measures, how.
pub const ALL: [(&str, &str, Run); 4] = [
    (
        "session",
        "8 KiB values, write and read in turn, 10, 50, 200 connections, against Redis with two replicas and WAIT 1",
        session::run,
    ),
    ("edge", "HTTP proxying of 1 KiB answers, keep-alive, 64 connections, against nginx", edge::run),
    ("cookie", "sealing and verifying a cookie on one core, against the promised microsecond", cookie::run),
    ("kills", "the shop under load while nodes are killed: requests, failures, slowest", kills::run),
];
