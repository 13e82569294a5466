//! SMTP (RFC 5321) and LMTP (RFC 2033) in, as a machine: it takes bytes and answers, and gives replies and what it
//! wants done. It cannot open a socket or look at a clock, so any test can play any client.
//!
//! - `command.rs`: lines, and what they ask.
//! - `body.rs`: the message, by `DATA` or in pieces, and what must not stand in it.
//! - `session.rs`: one connection.

mod body;
mod command;
mod session;

#[cfg(test)]
pub use command::Report;
pub use command::is_web;
pub use session::{Delivered, Envelope, Input, Output, Recipient, Session, Setting, Target};
