//! The words every part of Coppice shares.
//!
//! What decides (below the waterline) is a [`Machine`]: time and one [`Event`] in, [`Effect`]s out. The two enums are
//! closed lists: together they are everything that can happen to a node and everything it can ask of the world.
//! `host` carries effects out in the real world, `sim` in a fake one. This crate knows neither, and no protocol.

pub mod checksum;
pub mod event;
pub mod frame;
pub mod glob;
pub mod hash;
pub mod ids;
pub mod level;
pub mod limits;
pub mod outcome;
pub mod pack;
pub mod process;
pub mod record;
pub mod rng;
pub mod schedule;
pub mod text;
pub mod time;

pub use event::{Effect, Event, LinkEnd, Machine, Note, NoteLevel, Parts, Work};
pub use frame::{Frame, Lane, Priority, kind};
pub use ids::{AskId, Boot, ClusterId, GroupId, NodeId, ProcId, Ticket};
pub use level::LEVEL;
pub use outcome::{Because, Outcome, Refused, Unknown};
pub use pack::{PackSaid, PackWant};
pub use process::{Exit, ProcSpec, ProcUse, Signal};
pub use record::Record;
pub use rng::Rng;
pub use time::{Now, Span, Time};
