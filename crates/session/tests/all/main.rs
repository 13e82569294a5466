//! What the session class promises, in virtual time. One program holds it all, so that it is linked once.
#![allow(clippy::unwrap_used)]

mod claims;
mod claims_3;
mod claims_4;
mod claims_5;
mod cookies;
mod merge;
mod world;
