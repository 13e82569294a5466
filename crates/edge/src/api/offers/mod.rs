//! What each class of namespaces offers over HTTP at the addresses that several classes share: a file for each class, and a line in the
//! list below. An address that one class alone has needs no line here: its handler asks `class::only_NAME`.
//!
//! The compiler asks for the line of a new class. A handler of an address (`values.rs`) looks up what the namespace's class offers there
//! and names no class.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use state::Class;

use super::linear::{Look, Put};
use super::{Api, Problem};

mod cache;
mod linear;
mod object;
mod scratch;
mod session;
mod soft;
mod sql;

/// The list, as a look-up that lacks no class.
macro_rules! offers {
    ($($Class:ident: $file:ident),* $(,)?) => {
        fn offer(class: Class) -> &'static Offer {
            match class {
                $(Class::$Class => &$file::OFFER),*
            }
        }
    };
}

offers! {
    Session: session,
    Linear: linear,
    Cache: cache,
    Soft: soft,
    Object: object,
    Sql: sql,
    Scratch: scratch,
}

pub type Done = Result<Response, Problem>;
/// What is done with a request, when it has its answer.
pub type Doing<'a> = BoxFuture<'a, Done>;

/// A request to a namespace, from whoever has its token.
pub struct Request<'a> {
    pub api: &'a Api,
    pub ns: String,
    pub headers: &'a HeaderMap,
}

/// Applies a function to a key of a namespace.
pub type Apply = for<'a> fn(Request<'a>, Bytes, &'a Look, Body) -> Doing<'a>;

/// What one class offers.
pub struct Offer {
    /// Where its values are, for who asks at the wrong address. `{ns}` stands for the namespace.
    pub places: &'static str,
    /// `/v1/ns/NAMESPACE/keys/KEY`, if its values lie at keys.
    pub keys: Option<Keys>,
    /// `GET /v1/ns/NAMESPACE/keys?QUERY`.
    pub list: Option<for<'a> fn(Request<'a>, &'a str) -> Doing<'a>>,
    /// `POST /v1/ns/NAMESPACE/apply/KEY`.
    pub apply: Option<Apply>,
    /// `GET /v1/ns/NAMESPACE/watch?QUERY`.
    pub watch: Option<for<'a> fn(Request<'a>, &'a str) -> Doing<'a>>,
}

/// Values at keys.
pub struct Keys {
    pub get: for<'a> fn(Request<'a>, Bytes, &'a Look) -> Doing<'a>,
    /// `GET ...?stale=SPAN` may be answered with what is older.
    pub reads_stale: bool,
    pub put: fn(Request<'_>, Bytes, Put, Body) -> Doing<'_>,
    /// `PUT ...?return=old` is answered with what was there.
    pub gives_old: bool,
    pub remove: fn(Request<'_>, Bytes) -> Doing<'_>,
}

/// Nothing at shared addresses.
const NOTHING: Offer = Offer { places: "", keys: None, list: None, apply: None, watch: None };

/// What the class of a namespace offers, of what `wanted` looks for.
///
/// # Errors
/// It does not: who does, and what this class has instead.
pub fn of<T>(api: &Api, ns: &str, wanted: fn(&'static Offer) -> Option<T>) -> Result<T, Problem> {
    let class = api.view().class_of(ns);
    wanted(offer(class)).ok_or_else(|| {
        let they = who(|offer| wanted(offer).is_some());
        Problem::wrong(format!("namespace {ns} is of class {class}, and {they} this: {}", places(class, ns)))
    })
}

/// Where values of a class are, in words.
pub fn places(class: Class, ns: &str) -> String {
    offer(class).places.replace("{ns}", ns)
}

/// `class A alone offers`, `classes A and B offer`.
fn who(has: impl Fn(&'static Offer) -> bool) -> String {
    match &names(has)[..] {
        [one] => format!("class {one} alone offers"),
        several => format!("classes {} offer", together(several)),
    }
}

/// Names of the classes of which this is true, in the order of the list.
pub fn names(has: impl Fn(&'static Offer) -> bool) -> Vec<&'static str> {
    Class::ALL.iter().filter(|class| has(offer(**class))).map(|class| class.name()).collect()
}

/// `A, B and C`.
pub fn together(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
