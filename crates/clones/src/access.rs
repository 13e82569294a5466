//! Whether a service has an access log, and in which form its lines are.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    #[default]
    Off,
    /// The Common Log Format of web servers.
    Common,
    /// An object a line.
    Json,
}

impl AccessLog {
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}
