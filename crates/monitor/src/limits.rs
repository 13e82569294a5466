//! Numbers of the monitor, with units and reasons.

use std::time::Duration;

/// A sample each second: what the front doors' gauges cover.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Samples kept: the last minute.
pub const SAMPLES: usize = 60;
/// Events shown, newest first. More is read in the log.
pub const EVENTS_SHOWN: usize = 60;
/// Stages shown, and partitions of a service. More is read in `/metrics`.
pub const ROWS_SHOWN: usize = 200;
/// Lines of a clone's last output shown.
pub const OUTPUT_LINES_SHOWN: usize = 20;
/// Open pages that are kept current at a time.
pub const VIEWERS_MAX: usize = 128;
/// A comment line is sent in a quiet stream, so that proxies do not close it.
pub const STREAM_KEEPALIVE: Duration = Duration::from_secs(15);
