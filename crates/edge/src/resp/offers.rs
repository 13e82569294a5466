//! What each class of namespaces offers to clients of the Redis protocol: a line in the list below says it for one class. The commands
//! are in `commands/`. A class without commands needs no line; its clients have those of the connection, as `PING`.

use base::Span;
use flow::stage::Shape;
use futures_util::future::LocalBoxFuture;
use state::Class;

use super::commands::{Spec, cache, keyspace, linear, refused, soft};
use super::limits::{
    CACHE_BUDGET, CACHE_STAGE, LINEAR_BUDGET, LINEAR_STAGE, OP_BUDGET, SESSION_STAGE, SOFT_BUDGET, SOFT_STAGE,
};
use super::ops::Space;
use super::{commands, commands::keyspace::Keys};

/// What one class offers.
pub struct Offer {
    /// The command of a name, in any case: one of its own, or one that belongs to the connection.
    pub find: fn(&[u8]) -> Option<&'static Spec>,
    /// Its own commands, without those of the connection.
    pub own: fn() -> Vec<&'static Spec>,
    /// What to use in place of commands that it lacks.
    pub instead: refused::Table,
    /// Where its operations wait at the gate.
    pub lane: Lane,
    /// Counts its keys, for INFO.
    pub count: for<'a> fn(&'a Space) -> LocalBoxFuture<'a, Option<Keys>>,
}

/// The place of a class at the gate.
pub struct Lane {
    /// What its stage is called; none of a class that asks nothing here, whose lane stays empty.
    pub name: Option<&'static str>,
    pub shape: Shape,
    /// How long an operation may take.
    pub budget: Span,
}

/// What a class offers.
pub fn of(class: Class) -> &'static Offer {
    match class {
        Class::Session => &SESSION,
        Class::Linear => &LINEAR,
        Class::Cache => &CACHE,
        Class::Soft => &SOFT,
        Class::Object => &OBJECT,
        Class::Sql => &SQL,
        _ => &NONE,
    }
}

/// The classes that ask something here, with what their stages are called.
pub fn lanes() -> impl Iterator<Item = (Class, &'static str)> {
    Class::ALL.iter().filter_map(|class| Some((*class, of(*class).lane.name?)))
}

const SESSION: Offer = Offer {
    find: commands::find,
    own: || commands::ALL.iter().copied().filter(|spec| !spec.does.is_of_connection()).collect(),
    instead: refused::INSTEAD,
    lane: Lane { name: Some("resp-session"), shape: SESSION_STAGE, budget: OP_BUDGET },
    count: |space| Box::pin(keyspace::count_session(space)),
};

const LINEAR: Offer = Offer {
    find: linear::find,
    own: || linear::ALL.iter().flat_map(|some| some.iter()).collect(),
    instead: linear::INSTEAD,
    lane: Lane { name: Some("resp-linear"), shape: LINEAR_STAGE, budget: LINEAR_BUDGET },
    count: |space| Box::pin(keyspace::count_linear(space)),
};

const CACHE: Offer = Offer {
    find: cache::find,
    own: || cache::ALL.iter().collect(),
    instead: cache::INSTEAD,
    // A purge may have to wait for the leases of a hung node.
    lane: Lane { name: Some("resp-cache"), shape: CACHE_STAGE, budget: CACHE_BUDGET },
    count: |space| Box::pin(keyspace::count_cache(space)),
};

const SOFT: Offer = Offer {
    find: soft::find,
    own: || soft::ALL.iter().flat_map(|some| some.iter()).collect(),
    instead: soft::INSTEAD,
    lane: Lane { name: Some("resp-soft"), shape: SOFT_STAGE, budget: SOFT_BUDGET },
    count: |space| Box::pin(keyspace::count_soft(space)),
};

/// A class without commands.
const NONE: Offer = Offer {
    find: |name| commands::find(name).filter(|spec| spec.does.is_of_connection()),
    own: Vec::new,
    instead: &[(&["*"], "its values are at /v1/ns/NAMESPACE/keys of the HTTP API: docs/api.md")],
    lane: Lane { name: None, shape: SESSION_STAGE, budget: OP_BUDGET },
    count: |_| Box::pin(std::future::ready(None)),
};

const OBJECT: Offer = Offer {
    instead: &[(&["*"], "objects are at /v1/ns/NAMESPACE/objects of the HTTP API: docs/guide/objects.md")],
    ..NONE
};

const SQL: Offer =
    Offer { instead: &[(&["*"], "statements go to /v1/ns/NAMESPACE/sql of the HTTP API: docs/guide/sql.md")], ..NONE };
