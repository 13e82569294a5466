//! Numbers of the monitor, with units and reasons.

use std::time::Duration;

/// A sample each second: what the front doors' gauges cover.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Samples kept: the last minute.
pub const SAMPLES: usize = 60;
/// Events shown, newest first. More is read in the log.
pub const EVENTS_SHOWN: usize = 60;
/// Lines of logs that are read at once, and searched in the page.
pub const LOG_LINES_READ: usize = 2_000;
/// A certificate that ends within this is told of: it should have been renewed.
pub const CERTIFICATE_NEAR_MS: u64 = 14 * 86_400_000;
/// Stages shown, shards of a namespace, and partitions of a service. More is read in `/metrics`.
pub const ROWS_SHOWN: usize = 200;
/// Lines of a clone's last output shown.
pub const OUTPUT_LINES_SHOWN: usize = 20;
/// Open pages that are kept current at a time.
pub const VIEWERS_MAX: usize = 128;
/// A comment line is sent in a quiet stream, so that proxies do not close it.
pub const STREAM_KEEPALIVE: Duration = Duration::from_secs(15);
