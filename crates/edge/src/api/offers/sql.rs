//! Class `sql` over HTTP: statements have an address of their own (`sql.rs`).

use super::{NOTHING, Offer};

pub const OFFER: Offer = Offer { places: "statements go to /v1/ns/{ns}/sql", ..NOTHING };
