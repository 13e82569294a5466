//! The state classes that this program has, as one list, and what is common to all of them: namespaces, and the enums of what front
//! doors ask and hear. Each class is a crate of its own that keeps the contract of `class`; everything there is a machine. Services,
//! clones and outside protocols are unknown here.
//!
//! `list.rs` makes enums and machines of the list below. `events.rs` has what is the same for all classes, `namespace.rs` how a
//! declared namespace is read and written.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod events;
mod list;
pub mod namespace;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{AskId, Frame, GroupId, NodeId, Now, Outcome, Span, Time};
use bytes::Bytes;
use class::dump::Record;
use flow::stage::Shown;
use serde::{Deserialize, Serialize};

pub use cache;
pub use class;
pub use linear;
pub use object;
pub use scratch;
pub use session;
pub use soft;
pub use sql;

pub use events::{Ahead, Declaration, Output, View};
use events::{OfAll, OfGroup, Recovering, undone, written};
use list::run;

list::classes! {
    $
    session Session: ::session::Session,
    linear Linear: ::linear::Linear,
    cache Cache: ::cache::Cache,
    soft Soft: ::soft::Soft,
    object Object: ::object::Object,
    sql Sql: ::sql::Sql,
    scratch Scratch: ::scratch::Scratch,
}

/// What is known of a figure of any class.
pub fn figure(name: &str) -> Option<&'static class::Figure> {
    Class::ALL.iter().flat_map(|class| class.figures()).find(|figure| figure.name == name)
}
