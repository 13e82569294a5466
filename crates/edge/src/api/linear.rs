//! Values of class `linear` over HTTP: read, write and remove by key with versions as entity tags; functions by name; keys in
//! order and in pages. Who may come in was looked at before (`values.rs`).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clones::partition::Priority;
use node::{Answer, Ask};
use serde::{Deserialize, Serialize};
use state::linear::limits::{SCAN_KEYS_MAX, VALUE_BYTES_MAX};
use state::linear::{Condition, Op, Over, Ran, Reply, Step, Uuid, Wrong, functions};

use super::address::Path;
use super::class::{only_linear, without};
use super::declare::whole;
use super::limits::{LINEAR_BUDGET, TRANSACTION_BYTES_MAX};
use super::problem::{done, odd};
use super::values::{LEASE, for_request, passed_on};
use super::versions::Versions;
use super::{Api, Problem, address, guard};
use crate::functions::{Call, Ran as Of};

/// When a key is to end, milliseconds from now; and what is left, in an answer.
pub const ENDS: HeaderName = HeaderName::from_static("coppice-ends-ms");

/// What the caller calls a write, so that it happens once however often, and at whatever node, it is asked.
pub const ONCE: HeaderName = HeaderName::from_static("idempotency-key");

/// How old at most what was read is, milliseconds.
const AGE: HeaderName = HeaderName::from_static("coppice-age-ms");

type Done = Result<Response, Problem>;

/// One step, and its reply.
async fn one(
    api: &Api,
    ns: &str,
    key: Bytes,
    headers: &HeaderMap,
    function: &'static str,
    args: Vec<Bytes>,
) -> Result<Reply, Problem> {
    let once = once(headers)?;
    let op = Op { once, ..Op::one(ns.into(), key, function, args) };
    run(api, op, headers).await?.pop().ok_or_else(|| odd(&"nothing"))
}

/// Steps without a condition, and their replies; a step that went wrong is the problem.
pub async fn run(api: &Api, op: Op, headers: &HeaderMap) -> Result<Vec<Reply>, Problem> {
    match operate(api, op, headers).await? {
        Ran::Done(replies) => {
            match replies.iter().find_map(|reply| if let Reply::Wrong(why) = reply { Some(*why) } else { None }) {
                Some(wrong) => Err(problem(wrong)),
                None => Ok(replies),
            }
        }
        Ran::Unmet => Err(odd(&Ran::Unmet)),
    }
}

/// With the priority and within the time that a program passes on of the request that it serves.
pub async fn operate(api: &Api, op: Op, headers: &HeaderMap) -> Result<Ran, Problem> {
    known(api, &op)?;
    let (priority, budget) = for_request(headers, LINEAR_BUDGET)?;
    match api.backend.ask(Ask::Linear(Op { priority, ..op }), budget).await? {
        Answer::Linear(outcome) => done(outcome),
        other => unreachable!("a linear operation was answered by {other:?}"),
    }
}

/// The node refuses it, too; here it is no fault of the request.
fn known(api: &Api, op: &Op) -> Result<(), Problem> {
    let agreed = api.view().root.level.max(1);
    functions::too_new(&op.steps, agreed).map_or(Ok(()), |why| Err(Problem::new(StatusCode::CONFLICT, why)))
}

pub fn problem(wrong: Wrong) -> Problem {
    let status = match wrong {
        Wrong::Type => StatusCode::CONFLICT,
        Wrong::BytesMax | Wrong::KeysMax | Wrong::QueueFull | Wrong::KeysRemembered | Wrong::QueuesMax => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        Wrong::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem { wrong: Some(wrong), ..Problem::new(status, wrong.why()) }
}

/// The id of a write, if its caller gave one.
pub fn once(headers: &HeaderMap) -> Result<Option<Uuid>, Problem> {
    let Some(text) = headers.get(ONCE) else { return Ok(None) };
    let text = String::from_utf8_lossy(text.as_bytes());
    state::linear::once::parse(&text).map(Some).map_err(|why| Problem::wrong(format!("{ONCE}: {why}")))
}

fn absent() -> Problem {
    Problem::not_found("there is no value here, or it has ended")
}

fn tag(version: i64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are allowed in a header")
}

pub async fn get(api: &Api, ns: &str, key: Bytes, query: &Look, headers: &HeaderMap) -> Done {
    let stale = stale(query.stale.as_deref())?;
    let step = |function| Step::new(key.clone(), function, Vec::new());
    let reply = run(api, Op { stale, ..Op::of(ns.into(), vec![step("look"), step("age")]) }, headers).await?;
    let (seen, age) = match <[Reply; 2]>::try_from(reply) {
        Ok([seen, Reply::Int(age)]) => (seen, age),
        other => return Err(odd(&other)),
    };
    let age = stale.map(|_| age);
    let Reply::List(seen) = seen else { return Ok(aged(absent().into_response(), age)) };
    let (value, version, left) = match <[Reply; 3]>::try_from(seen) {
        Ok([Reply::Bytes(value), Reply::Int(version), Reply::Int(left)]) => (value, version, left),
        Ok([Reply::Wrong(wrong), ..]) => return Err(problem(wrong)),
        other => return Err(odd(&other)),
    };
    let tag = tag(version);
    let same = headers.get(header::IF_NONE_MATCH).is_some_and(|has| has.as_bytes() == tag.as_bytes());
    let mut response = plain(if same { StatusCode::NOT_MODIFIED.into_response() } else { value.into_response() });
    let out = response.headers_mut();
    out.insert(header::ETAG, tag);
    if left >= 0 {
        out.insert(ENDS, HeaderValue::from(left));
    }
    Ok(aged(response, age))
}

/// Bytes that mean nothing to us, and are nobody's page.
pub(super) fn plain(mut response: Response) -> Response {
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    out.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Of a read.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Look {
    pub stale: Option<String>,
}

/// `stale=500ms`: what is read may be so old.
pub fn stale(text: Option<&str>) -> Result<Option<Span>, Problem> {
    text.map(clones::text::parse_span).transpose().map_err(|why| Problem::wrong(format!("stale: {why}")))
}

/// Says how old the answer may be, if that was allowed.
pub fn aged(mut response: Response, age: Option<i64>) -> Response {
    if let Some(age) = age {
        response.headers_mut().insert(AGE, HeaderValue::from(age));
    }
    response
}

/// Of a write.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Put {
    #[serde(rename = "return")]
    back: Option<Back>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Back {
    /// The value that was there.
    Old,
}

impl Put {
    pub fn wants_old(&self) -> bool {
        matches!(self.back, Some(Back::Old))
    }
}

/// 204, or with `return=old` 200 with the value that was there, if there was one.
pub async fn put(api: &Api, ns: &str, key: Bytes, query: Put, headers: &HeaderMap, body: Body) -> Done {
    without(headers, &LEASE, "for namespaces of class session: in class linear Coppice-Ends-Ms says when a key ends")?;
    let value = whole(body, VALUE_BYTES_MAX).await?;
    let end = match headers.get(ENDS) {
        None => Bytes::from_static(b"none"),
        Some(ms) => match ms.to_str().ok().and_then(|ms| ms.parse::<u64>().ok()).filter(|ms| *ms > 0) {
            Some(ms) => ms.to_string().into(),
            None => return Err(Problem::wrong("Coppice-Ends-Ms must be a positive number")),
        },
    };
    let mut args = vec![value, when(headers)?.into(), end];
    args.extend(query.wants_old().then(|| Bytes::from_static(b"old")));
    let reply = one(api, ns, key, headers, "put", args).await?;
    let Reply::List(seen) = reply else { return Err(odd(&reply)) };
    match &seen[..] {
        [Reply::Int(1), Reply::Bytes(old), Reply::Int(version)] => {
            let mut response = plain(old.clone().into_response());
            response.headers_mut().insert(header::ETAG, tag(*version));
            Ok(response)
        }
        [Reply::Int(1), _, Reply::Int(version)] => {
            Ok((StatusCode::NO_CONTENT, [(header::ETAG, tag(*version))]).into_response())
        }
        [Reply::Int(0), _, Reply::Int(version)] => Ok(unmet(*version)),
        _ => Err(odd(&seen)),
    }
}

pub async fn remove(api: &Api, ns: &str, key: Bytes, headers: &HeaderMap) -> Done {
    let when = when(headers)?;
    let args = match when.as_str() {
        "absent" => return Err(Problem::wrong("a removal with If-None-Match: * would change nothing")),
        "always" | "present" => Vec::new(),
        _ => vec![Bytes::from(when)],
    };
    // At the same moment, so that it is the version that the condition met.
    let look = (!args.is_empty()).then(|| Step::new(key.clone(), "version", Vec::new()));
    let steps = [Step::new(key, "remove", args)].into_iter().chain(look).collect();
    let op = Op { once: once(headers)?, ..Op::of(ns.into(), steps) };
    match run(api, op, headers).await?[..] {
        [Reply::Int(1), ..] => Ok(StatusCode::NO_CONTENT.into_response()),
        [_, Reply::Int(version)] => Ok(unmet(version)),
        _ => Err(absent()),
    }
}

/// The condition of a write, as the functions take it.
fn when(headers: &HeaderMap) -> Result<String, Problem> {
    let wrong = || Problem::wrong("If-Match takes one version in quotes, or *; If-None-Match takes only *");
    match (headers.get(header::IF_MATCH), headers.get(header::IF_NONE_MATCH)) {
        (None, None) => Ok("always".into()),
        (None, Some(any)) if any.as_bytes() == b"*" => Ok("absent".into()),
        (Some(any), None) if any.as_bytes() == b"*" => Ok("present".into()),
        (Some(version), None) => {
            let text = version.to_str().ok().and_then(|t| t.strip_prefix('"')?.strip_suffix('"'));
            let version: Option<u64> = text.and_then(|text| text.parse().ok());
            version.map(|version| format!("version:{version}")).ok_or_else(wrong)
        }
        (_, Some(_)) => Err(wrong()),
    }
}

fn unmet(version: i64) -> Response {
    let why = if version == 0 { "there is no value".to_owned() } else { format!("the value has version {version}") };
    let mut response = Problem::new(StatusCode::PRECONDITION_FAILED, why).into_response();
    if version != 0 {
        response.headers_mut().insert(header::ETAG, tag(version));
    }
    response
}

/// Text, or other bytes as `{"base64": ...}`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text is wanted (numbers too: \"1\"), or {\"base64\": \"...\"} for other bytes")]
pub enum Text {
    Plain(String),
    Coded { base64: String },
}

impl Text {
    pub fn bytes(self) -> Result<Bytes, Problem> {
        match self {
            Text::Plain(text) => Ok(text.into()),
            Text::Coded { base64 } => match STANDARD.decode(&base64) {
                Ok(bytes) => Ok(bytes.into()),
                Err(error) => Err(Problem::wrong(format!("{base64:?} is not base64: {error}"))),
            },
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Apply {
    function: String,
    #[serde(default)]
    args: Vec<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction {
    #[serde(default, rename = "if")]
    conditions: Vec<Holds>,
    #[serde(rename = "do")]
    steps: Vec<Todo>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    key: Text,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Todo {
    key: Text,
    function: String,
    #[serde(default)]
    args: Vec<Text>,
}

/// A step of what was asked for, if there is such a function that may stand there.
fn step(key: Bytes, function: &str, args: Vec<Text>) -> Result<Step, Problem> {
    let Some(function) = functions::find(function).filter(|function| function.is_offered()) else {
        let names = functions::ALL.iter().flat_map(|some| some.iter()).filter(|function| function.is_offered());
        let names = names.map(|function| function.name).collect::<Vec<_>>().join(", ");
        return Err(Problem::wrong(format!("no function {function:?}; there are: {names}")));
    };
    Ok(Step::new(key, function.name, args.into_iter().map(Text::bytes).collect::<Result<_, _>>()?))
}

/// `{"if": [{"key", "version"}], "do": [{"key", "function", "args"}]}`: all at one moment if all conditions hold, else
/// nothing and 412. Answers `{"results": [...]}`, one for each step.
pub async fn transaction(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap, body: Body) -> Done {
    guard::holder(&headers, &api.view(), &ns)?;
    only_linear(&api, &ns)?;
    let body = whole(body, TRANSACTION_BYTES_MAX).await?;
    let Transaction { conditions, steps } = serde_json::from_slice(&body).map_err(|e| {
        Problem::wrong(format!(
            "the body must be {{\"if\": [{{\"key\", \"version\"}}], \"do\": [{{\"key\", \"function\", \"args\"}}]}}: {e}"
        ))
    })?;
    let holds = |holds: Holds| Ok(Condition { key: holds.key.bytes()?, version: holds.version });
    let conditions = conditions.into_iter().map(holds).collect::<Result<_, Problem>>()?;
    let todo = |todo: Todo| step(todo.key.bytes()?, &todo.function, todo.args);
    let steps = steps.into_iter().map(todo).collect::<Result<_, Problem>>();
    let steps = steps.map_err(|problem| match api.view().functions.get(&ns) {
        Some(_) => Problem::wrong(format!("{}; functions of services cannot stand in a transaction", problem.error)),
        None => problem,
    })?;
    let op = Op { conditions, once: once(&headers)?, ..Op::of(ns.into(), steps) };
    match operate(&api, op, &headers).await? {
        Ran::Done(replies) => {
            let results: Vec<_> = replies.iter().map(shown).collect();
            Ok(Json(serde_json::json!({"results": results})).into_response())
        }
        Ran::Unmet => {
            let problem = Problem::new(StatusCode::PRECONDITION_FAILED, "a condition does not hold: nothing happened");
            Err(Problem { kind: Some("unmet"), ..problem })
        }
    }
}

#[derive(Serialize)]
struct Applied {
    result: serde_json::Value,
}

/// `{"function": "number.add", "args": ["1"]}` on a key; answers `{"result": ...}`, which is `null` of a weak function.
pub async fn apply(api: &Api, ns: String, key: Bytes, look: &Look, headers: &HeaderMap, body: Body) -> Done {
    if look.stale.is_some() {
        return Err(Problem::wrong("stale is for GET and mget: what is applied may write, and sees what was written"));
    }
    let body = whole(body, TRANSACTION_BYTES_MAX).await?;
    let apply: Apply = serde_json::from_slice(&body)
        .map_err(|e| Problem::wrong(format!("the body must be {{\"function\": NAME, \"args\": [...]}}: {e}")))?;
    if let Some(service) = api.view().functions.get(&ns)
        && functions::find(&apply.function).is_none_or(|function| !function.is_offered())
    {
        return apply_of(api, service, ns, key, apply, headers).await;
    }
    let step = step(key, &apply.function, apply.args)?;
    let takes = functions::find(step.function).map_or("", |function| function.args);
    let name = step.function;
    let weak = api.view().is_weak(&ns, name);
    let op = Op { weak, once: once(headers)?, ..Op::of(ns.into(), vec![step]) };
    let result = run(api, op, headers).await.map_err(|problem| match problem.status {
        StatusCode::BAD_REQUEST => Problem::wrong(format!("{}; {name} takes: {takes}", problem.error)),
        _ => problem,
    })?;
    let result = result.into_iter().next().expect("one step has one reply");
    let result = if weak { serde_json::Value::Null } else { shown(&result) };
    Ok(Json(Applied { result }).into_response())
}

/// A function that a service's clones know.
async fn apply_of(api: &Api, service: &str, ns: String, key: Bytes, apply: Apply, headers: &HeaderMap) -> Done {
    let (class, left) = passed_on(headers)?;
    let call = Call {
        namespace: ns.into(),
        service: service.into(),
        key,
        function: apply.function,
        args: apply.args.into_iter().map(Text::bytes).collect::<Result<_, _>>()?,
        class: class.unwrap_or(Priority::default().0),
        left,
        once: once(headers)?,
    };
    match done(api.functions.apply(call).await)? {
        Of::Done(result) => Ok(Json(Applied { result }).into_response()),
        Of::Type => Err(problem(Wrong::Type)),
        Of::Failed(why) => Err(Problem { kind: Some("function"), ..Problem::wrong(why) }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default)]
    prefix: Bytes,
    #[serde(default)]
    after: Bytes,
    limit: Option<u64>,
    #[serde(default)]
    reverse: bool,
    stale: Option<String>,
}

/// Keys in order: `{"keys": [...], "after": KEY}`; `after` is there if there may be more.
pub async fn keys(api: &Api, ns: String, query: &str, headers: &HeaderMap) -> Done {
    let page: Page = address::read(query)?;
    let limit = page.limit.unwrap_or(SCAN_KEYS_MAX);
    if !(1..=SCAN_KEYS_MAX).contains(&limit) {
        return Err(Problem::wrong(format!("limit must be 1 to {SCAN_KEYS_MAX} keys, not {limit}")));
    }
    let order = if page.reverse { "reverse" } else { "forward" };
    let args = vec![page.prefix, page.after, limit.to_string().into(), Bytes::from_static(order.as_bytes())];
    let step = |function| Step::new(Bytes::new(), function, Vec::new());
    let steps = vec![Step::new(Bytes::new(), "scan", args), step("revision"), step("age")];
    let stale = stale(page.stale.as_deref())?;
    let reply = run(api, Op { stale, over: Over::Each, ..Op::of(ns.into(), steps) }, headers).await?;
    let [Reply::List(keys), revision, Reply::Int(age)] = &reply[..] else { return Err(odd(&reply)) };
    let after = keys.last().filter(|_| keys.len() as u64 >= limit).map(shown);
    let json = Json(serde_json::json!({"keys": shown(&reply[0]), "after": after, "version": Versions::read(revision)}));
    Ok(aged(json.into_response(), stale.map(|_| *age)))
}

/// As JSON: text as it is, other bytes as `{"base64": ...}`.
pub fn shown_bytes(bytes: &Bytes) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({"base64": STANDARD.encode(bytes)}),
    }
}

/// A reply as JSON.
pub fn shown(reply: &Reply) -> serde_json::Value {
    match reply {
        Reply::Nil => serde_json::Value::Null,
        Reply::Int(n) => (*n).into(),
        Reply::Bytes(bytes) => shown_bytes(bytes),
        Reply::List(list) => list.iter().map(shown).collect(),
        Reply::Wrong(wrong) => serde_json::json!({"error": crate::said::said(*wrong)}),
    }
}
