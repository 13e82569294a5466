//! Values of class `soft` over HTTP: texts by key, and what lies in hashes, sets and numbers by named functions, which are called as
//! those of class `linear`. Each is one operation, decided by what this node knows. Its changes: `soft_watch.rs`.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Deserialize;
use serde_json::{Value, json};
use state::soft::limits::{NAME_BYTES_MAX, SCAN_COUNT_MAX, VALUE_BYTES_MAX};
use state::soft::{Action, End, Kind, List, Op, Reply, Side};

use super::class::without;
use super::declare::whole;
use super::limits::{OP_BUDGET, TRANSACTION_BYTES_MAX};
use super::linear::{ENDS, Look, ONCE, Text, aged, plain, shown_bytes, stale};
use super::problem::done;
use super::values::{LEASE, for_request};
use super::{Api, Problem};

type Done = Result<Response, Problem>;

const NO_VERSIONS: &str =
    "not for class soft, whose values have no versions: what only one may get belongs in class linear";
const NO_ONCE: &str = "not for class soft, which has no memory of what was asked: class linear has it";

/// 200 with the text or number, 404 if there is none, 409 if the key has something else. With `?stale=200ms` 503 at a node that may
/// know less than others did so long ago.
pub async fn get(api: &Api, ns: String, key: Bytes, look: &Look, headers: &HeaderMap) -> Done {
    let action = Action::Read { kind: Kind::Register, at: vec![(key, Bytes::new())] };
    let (reply, age) = read_within(api, ns, action, look.stale.as_deref(), headers).await?;
    match reply {
        Reply::Values(values) => Ok(aged(
            match values.into_iter().next().flatten() {
                Some(value) => plain(value.into_response()),
                None => absent().into_response(),
            },
            age,
        )),
        other => Err(odd(&other)),
    }
}

/// 204 when it is stored here and at another node. `Coppice-Ends-Ms` says when the key ends.
pub async fn put(api: &Api, ns: String, key: Bytes, headers: &HeaderMap, body: Body) -> Done {
    unconditional(headers)?;
    let end = match headers.get(ENDS) {
        None => End::Never,
        Some(ms) => End::After(
            ms.to_str()
                .ok()
                .and_then(span)
                .ok_or_else(|| Problem::wrong(format!("{ENDS} must be a positive number")))?,
        ),
    };
    // A little more, so that the class itself says what is too much.
    let value = whole(body, VALUE_BYTES_MAX + 1024).await?;
    match operate(api, ns, Action::Set { pairs: vec![(key, value)], end }, headers).await? {
        Reply::Done => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(odd(&other)),
    }
}

/// 204 when the key is removed, whatever it had; 404 if there was none.
pub async fn remove(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    unconditional(headers)?;
    match operate(api, ns, Action::Remove { keys: vec![key] }, headers).await? {
        Reply::Int(0) => Err(absent()),
        Reply::Int(_) => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(odd(&other)),
    }
}

/// Of a page of keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default)]
    prefix: Bytes,
    /// `after` of the page before.
    after: Option<u64>,
    limit: Option<u32>,
    stale: Option<String>,
}

/// `{"keys": [{"key", "type"}], "after": "..."}`: keys in no order that means anything, a page at a time. With a prefix a page may
/// be empty and not the last one.
pub async fn keys(api: &Api, ns: String, page: Page, headers: &HeaderMap) -> Done {
    let count = page.limit.unwrap_or(KEYS);
    if !(1..=SCAN_COUNT_MAX).contains(&count) {
        return Err(Problem::wrong(format!("limit must be 1 to {SCAN_COUNT_MAX}, not {count}")));
    }
    let scan = Action::Scan { cursor: page.after.unwrap_or(0), count };
    let (reply, age) = read_within(api, ns, scan, page.stale.as_deref(), headers).await?;
    match reply {
        Reply::Page { cursor, keys } => {
            let keys = keys.iter().filter(|(key, _)| key.starts_with(&page.prefix));
            let keys: Vec<Value> =
                keys.map(|(key, kind)| json!({"key": shown_bytes(key), "type": kind.name()})).collect();
            let mut body = json!({"keys": keys});
            if cursor != 0 {
                body["after"] = cursor.to_string().into();
            }
            Ok(aged(Json(body).into_response(), age))
        }
        other => Err(odd(&other)),
    }
}

/// Keys of a page, unless it is asked for others.
const KEYS: u32 = 1_000;

/// What may be done to a key by name.
struct Function {
    name: &'static str,
    /// What it takes, for people.
    args: &'static str,
    /// None: these arguments are none of its.
    action: fn(Bytes, Vec<Bytes>) -> Option<Action>,
}

const fn function(name: &'static str, args: &'static str, action: fn(Bytes, Vec<Bytes>) -> Option<Action>) -> Function {
    Function { name, args, action }
}

/// As those of class `linear` of the same name, as far as a node knows.
const FUNCTIONS: &[Function] = &[
    function("number.add", "NUMBER", |key, args| {
        let [by] = one_of(args)?;
        Some(Action::Add { kind: Kind::Register, key, element: Bytes::new(), by: integer(&by)? })
    }),
    function("hash.set", "field value ...", |key, args| {
        let (pairs, rest) = args.as_chunks::<2>();
        let pairs = pairs.iter().map(|[field, value]| (field.clone(), Some(value.clone()))).collect::<Vec<_>>();
        (rest.is_empty() && !pairs.is_empty()).then_some(Action::Put { kind: Kind::Field, key, pairs })
    }),
    function("hash.get", "field", |key, args| one_of(args).map(|[field]| read(Kind::Field, key, vec![field]))),
    function("hash.get-many", "field ...", |key, args| some(args).map(|fields| read(Kind::Field, key, fields))),
    function("hash.add", "field NUMBER", |key, args| {
        let [element, by] = one_of(args)?;
        Some(Action::Add { kind: Kind::Field, key, element, by: integer(&by)? })
    }),
    function("hash.remove", "field ...", |key, args| {
        Some(Action::Take { kind: Kind::Field, key, elements: some(args)? })
    }),
    function("hash.all", "", |key, args| none(&args).map(|()| Action::All { kind: Kind::Field, key })),
    function("set.add", "member ...", |key, args| {
        let pairs = some(args)?.into_iter().map(|member| (member, None)).collect();
        Some(Action::Put { kind: Kind::Member, key, pairs })
    }),
    function("set.remove", "member ...", |key, args| {
        Some(Action::Take { kind: Kind::Member, key, elements: some(args)? })
    }),
    function("set.has", "member", |key, args| one_of(args).map(|[member]| read(Kind::Member, key, vec![member]))),
    function("set.members", "", |key, args| none(&args).map(|()| Action::All { kind: Kind::Member, key })),
    function("list.push-left", "item ...", |key, args| {
        Some(list(key, List::Push { side: Side::Left, values: some(args)?, only_there: false }))
    }),
    function("list.push-right", "item ...", |key, args| {
        Some(list(key, List::Push { side: Side::Right, values: some(args)?, only_there: false }))
    }),
    function("list.range", "FIRST LAST", |key, args| {
        let [first, last] = one_of(args)?;
        Some(list(key, List::Range { first: integer(&first)?, last: integer(&last)? }))
    }),
    function("list.length", "", |key, args| none(&args).map(|()| list(key, List::Length))),
    function("list.set", "INDEX item", |key, args| {
        let [index, value] = one_of(args)?;
        Some(list(key, List::Set { index: integer(&index)?, value }))
    }),
    function("list.remove", "COUNT item", |key, args| {
        let [count, value] = one_of(args)?;
        Some(list(key, List::Remove { count: integer(&count)?, value }))
    }),
    function("list.trim", "FIRST LAST", |key, args| {
        let [first, last] = one_of(args)?;
        Some(list(key, List::Trim { first: integer(&first)?, last: integer(&last)? }))
    }),
    function("list.insert", "before|after pivot item", |key, args| {
        let [side, pivot, value] = one_of(args)?;
        let side = match &side[..] {
            b"before" => Side::Left,
            b"after" => Side::Right,
            _ => return None,
        };
        Some(list(key, List::Insert { side, pivot, value }))
    }),
    function("expire", "MS", |key, args| {
        let [ms] = one_of(args)?;
        Some(Action::End { key, end: Some(span(std::str::from_utf8(&ms).ok()?)?) })
    }),
    function("persist", "", |key, args| none(&args).map(|()| Action::End { key, end: None })),
    function("ends", "", |key, args| none(&args).map(|()| Action::Left { key })),
    function("type", "", |key, args| none(&args).map(|()| Action::Kind { key })),
];

fn list(key: Bytes, what: List) -> Action {
    Action::List { key, what }
}

fn read(kind: Kind, key: Bytes, elements: Vec<Bytes>) -> Action {
    Action::Read { kind, at: elements.into_iter().map(|element| (key.clone(), element)).collect() }
}

/// Exactly so many.
fn one_of<const N: usize>(args: Vec<Bytes>) -> Option<[Bytes; N]> {
    args.try_into().ok()
}

fn some(args: Vec<Bytes>) -> Option<Vec<Bytes>> {
    (!args.is_empty()).then_some(args)
}

fn none(args: &[Bytes]) -> Option<()> {
    args.is_empty().then_some(())
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn span(ms: &str) -> Option<Span> {
    ms.parse::<u64>().ok().filter(|ms| (1..=u64::MAX / 1000).contains(ms)).map(Span::millis)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Apply {
    function: String,
    #[serde(default)]
    args: Vec<Text>,
}

/// `{"function": "set.add", "args": ["ann"]}` on a key; answers `{"result": ...}`.
pub async fn apply(api: &Api, ns: String, key: Bytes, look: &Look, headers: &HeaderMap, body: Body) -> Done {
    unconditional(headers)?;
    let body = whole(body, TRANSACTION_BYTES_MAX).await?;
    let Apply { function, args } = serde_json::from_slice(&body)
        .map_err(|e| Problem::wrong(format!("the body must be {{\"function\": NAME, \"args\": [...]}}: {e}")))?;
    let Some(Function { name, args: takes, action }) = FUNCTIONS.iter().find(|known| known.name == function) else {
        let names = FUNCTIONS.iter().map(|function| function.name).collect::<Vec<_>>().join(", ");
        return Err(Problem::wrong(format!("class soft has no function {function:?}; there are: {names}")));
    };
    let args = args.into_iter().map(Text::bytes).collect::<Result<_, _>>()?;
    let action = action(key, args).ok_or_else(|| Problem::wrong(format!("{name} takes: {takes}")))?;
    let (reply, age) = read_within(api, ns, action, look.stale.as_deref(), headers).await?;
    Ok(aged(Json(json!({"result": result(name, reply)?})).into_response(), age))
}

/// What a function's answer is as JSON.
fn result(name: &str, reply: Reply) -> Result<Value, Problem> {
    let value = |value: &Option<Bytes>| value.as_ref().map_or(Value::Null, shown_bytes);
    Ok(match reply {
        Reply::Done => Value::Null,
        Reply::Int(n) => n.into(),
        Reply::Values(values) => match (name, &values[..]) {
            ("set.has", [member]) => u8::from(member.is_some()).into(),
            ("hash.get", [one]) => value(one),
            _ => values.iter().map(value).collect(),
        },
        // As in class `linear`: fields and values in turn.
        Reply::Pairs(pairs) => {
            let parts = |(element, of): &(Bytes, Option<Bytes>)| {
                std::iter::once(shown_bytes(element)).chain(of.as_ref().map(shown_bytes)).collect::<Vec<_>>()
            };
            pairs.iter().flat_map(parts).collect()
        }
        Reply::Left(left) => left.flatten().map_or(Value::Null, |left| left.as_millis().into()),
        Reply::Kind(kind) => kind.map_or("none", Kind::name).into(),
        other => return Err(odd(&other)),
    })
}

/// What is so old at most, if that is asked for, and how old it may be, milliseconds.
async fn read_within(
    api: &Api,
    ns: String,
    action: Action,
    most: Option<&str>,
    headers: &HeaderMap,
) -> Result<(Reply, Option<i64>), Problem> {
    let stale = stale(most)?;
    if stale.is_some() && action.is_write() {
        return Err(Problem::wrong("stale is for what reads"));
    }
    let (priority, budget) = for_request(headers, OP_BUDGET)?;
    match asked(api, Op { priority, stale, ..Op::of(ns.into(), action) }, budget).await? {
        Reply::Aged { age, of } => Ok((answered(*of)?, Some(age.as_millis().try_into().unwrap_or(i64::MAX)))),
        reply => Ok((reply, None)),
    }
}

/// With the priority and within the time that a program passes on of the request that it serves.
pub(super) async fn operate(api: &Api, ns: String, action: Action, headers: &HeaderMap) -> Result<Reply, Problem> {
    let (priority, budget) = for_request(headers, OP_BUDGET)?;
    asked(api, Op { priority, ..Op::of(ns.into(), action) }, budget).await
}

pub(super) async fn asked(api: &Api, op: Op, budget: Span) -> Result<Reply, Problem> {
    match api.backend.ask(Ask::Soft(op), budget).await? {
        Answer::Soft(outcome) => answered(done(outcome)?),
        other => unreachable!("a soft operation was answered by {other:?}"),
    }
}

/// What was done, or why that is nothing.
fn answered(reply: Reply) -> Result<Reply, Problem> {
    match reply {
        Reply::WrongKind => {
            Err(Problem::new(StatusCode::CONFLICT, "the key has something of another kind: `type` says what"))
        }
        Reply::NoNumber => Err(Problem::new(StatusCode::CONFLICT, "what is there is no number")),
        Reply::NoKey => Err(absent()),
        Reply::NoIndex => Err(Problem::not_found("the list has no item at that place")),
        Reply::NoRoom => Err(Problem::new(StatusCode::CONFLICT, "there is no place left in this list: write it anew")),
        Reply::Overflow => Err(Problem::wrong("the sum is larger than 64 bits hold")),
        reply => Ok(reply),
    }
}

/// A header of another class would be passed over in silence, and with it what its sender relies on.
fn unconditional(headers: &HeaderMap) -> Result<(), Problem> {
    without(headers, &LEASE, "for namespaces of class session: in class soft Coppice-Ends-Ms says when a key ends")?;
    without(headers, &ONCE, NO_ONCE)?;
    without(headers, &header::IF_MATCH, NO_VERSIONS)?;
    without(headers, &header::IF_NONE_MATCH, NO_VERSIONS)
}

fn absent() -> Problem {
    Problem::not_found("this node knows of no value here, or it has ended")
}

/// This node answers itself, with what fits.
fn odd(reply: &Reply) -> Problem {
    unreachable!("the node answered an operation with {reply:?}")
}

/// A key that is longer makes no sense to send.
const _: () = assert!(NAME_BYTES_MAX < 8 << 10, "a key fits into an address");
