//! Every parser of outside bytes against bytes that nobody means well.
//!
//! A target is a function that takes any bytes and panics if a promise is broken: nothing else panics, what is read is what
//! would be written, bytes that come in pieces mean what they mean whole, and no more memory is taken than the bytes
//! themselves justify. `cargo test -p fuzz` runs each over its corpus and over seeded mutations of it (`mutate`), on
//! stable Rust; `cargo fuzz run NAME` searches for new paths with libFuzzer (docs/testing.md). An input that broke a promise stays
//! in `corpus/NAME` for ever.
#![allow(clippy::unwrap_used)]

mod cookie;
mod declaration;
mod document;
mod frames;
mod http;
mod ledger;
mod mail;
pub mod memory;
pub mod mutate;
mod record;
mod resp;
mod soft;

/// A parser and what to throw at it.
pub struct Target {
    pub name: &'static str,
    /// Panics if a promise is broken. True if the bytes were understood, so that a test can tell a corpus that reaches
    /// the inside from one that is turned away at the door.
    pub run: fn(&[u8]) -> bool,
    /// Words of its language, which blind mutation would not find.
    pub words: &'static [&'static [u8]],
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool, words: &'static [&'static [u8]]) -> Target {
    Target { name, run, words }
}

pub const TARGETS: [Target; 22] = [
    target("resp", resp::commands, resp::WORDS),
    target("http_head", http::head, http::HEAD_WORDS),
    target("http_chunks", http::chunks, http::CHUNK_WORDS),
    target("http_headers", http::forwarded, http::HEAD_WORDS),
    target("cookie", cookie::open, cookie::WORDS),
    target("frame", frames::frame, frames::WORDS),
    target("session", frames::session, frames::WORDS),
    target("root", frames::root, frames::WORDS),
    target("beacon", frames::beacon, frames::WORDS),
    target("membership", frames::membership, frames::WORDS),
    target("facts", frames::facts, frames::WORDS),
    target("declaration", declaration::toml, declaration::WORDS),
    target("document", document::fields, document::WORDS),
    target("soft", soft::frames, soft::WORDS),
    target("soft_kept", soft::kept, soft::WORDS),
    target("soft_contexts", soft::contexts, soft::WORDS),
    target("soft_sketch", soft::sketch, soft::WORDS),
    target("smtp", mail::smtp, mail::SMTP_WORDS),
    target("pop3", mail::pop3, mail::POP3_WORDS),
    target("address", mail::address, mail::ADDRESS_WORDS),
    target("ledger", ledger::functions, ledger::WORDS),
    target("record", record::object, record::WORDS),
];

/// Runs a target by its name.
///
/// # Panics
/// If there is none, or if a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the name of a target");
    (target.run)(data);
}
