//! Class `sql` over HTTP: a batch of statements, or a query, as JSON. What is asked becomes an operation of class `linear`
//! (`linear/src/functions/sql.rs`); time and the number for chance are drawn here, so that all replicas see the same.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::checksum::place_hash;
use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use serde_json::Value;
use state::linear::functions::sql::{BATCH, BOUNDED, QUERY, WEIGHED, answer};
use state::linear::{Op, Reply, Step, Wrong};
use state::sql::limits::BATCH_BYTES_MAX;
use state::sql::{Answer, Failure, Kind, LEVEL_BOUNDED, LEVEL_WEIGHED, parse, parse_query};

use super::address::Path;
use super::class::only_sql;
use super::declare::whole;
use super::linear::{once, operate};
use super::problem::odd;
use super::profiles::told_of_all;
use super::{Api, Problem, guard};
use crate::wall::wall_ms;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    batch: Option<Value>,
    query: Option<Value>,
}

/// `{"batch": [STATEMENT, ..]}`: all of it is done, or nothing; 200 with `{"results": [..]}` when a majority has it on disk.
/// `{"query": STATEMENT}`: 200 with `{"columns": [..], "rows": [..]}`, which has all that was acknowledged before.
pub async fn sql(
    State(api): State<Api>,
    Path(ns): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::holder(&headers, &api.view(), &ns)?;
    let size_max = only_sql(&api, &ns)?;
    let body = whole(body, BATCH_BYTES_MAX).await?;
    let form = |why: String| {
        Problem::wrong(format!("the body must be {{\"batch\": [STATEMENT, ..]}} or {{\"query\": STATEMENT}}: {why}"))
    };
    let request: Request = serde_json::from_slice(&body).map_err(|error| form(error.to_string()))?;
    let statements = match (request.batch, request.query) {
        (Some(batch), None) => Statements::Batch(batch),
        (None, Some(query)) => Statements::Query(query),
        _ => return Err(form("one of both".into())),
    };
    let changes = matches!(statements, Statements::Batch(_));
    match run(&api, &ns, size_max, statements, &headers).await? {
        Ok(json) => {
            if changes {
                told_of_all(&api, &ns).await?;
            }
            Ok(([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], json)
                .into_response())
        }
        Err(failure) => Ok(failed(failure)),
    }
}

/// What is asked of a database.
pub(super) enum Statements {
    Batch(Value),
    Query(Value),
}

/// Asks it of a namespace that is of this class.
pub(super) async fn run(
    api: &Api,
    ns: &str,
    size_max: u64,
    statements: Statements,
    headers: &HeaderMap,
) -> Result<Answer, Problem> {
    let mut drawn = [0; 8];
    SystemRandom::new()
        .fill(&mut drawn)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no chance"))?;
    // A function's numbers are below 2^63.
    let mut args = vec![number(wall_ms()), number(u64::from_le_bytes(drawn) >> 1)];
    let (function, json) = match statements {
        Statements::Batch(batch) => {
            let json = batch.to_string();
            parse(json.as_bytes()).map_err(problem)?;
            args.push(number(size_max));
            (BATCH, json)
        }
        Statements::Query(query) => {
            let json = query.to_string();
            parse_query(json.as_bytes()).map_err(problem)?;
            if once(headers)?.is_some() {
                return Err(Problem::wrong("a query changes nothing, so it needs no Idempotency-Key"));
            }
            (QUERY, json)
        }
    };
    // Time and number are others when the same is asked again.
    let said = Some(place_hash(json.as_bytes()));
    args.push(json.into());
    let how = match api.view().root.level {
        LEVEL_WEIGHED.. => Some(WEIGHED),
        LEVEL_BOUNDED.. => Some(BOUNDED),
        _ => None,
    };
    args.extend(how.filter(|_| function == BATCH).map(|how| Bytes::from_static(how.as_bytes())));
    // There is one database, so what it is called does not matter.
    let step = Step::new(Bytes::from_static(b"database"), function, args);
    let op = Op { once: once(headers)?, said, ..Op::of(ns.into(), vec![step]) };
    match operate(api, op, headers).await? {
        state::linear::Ran::Done(replies) => match replies.into_iter().next() {
            Some(Reply::Wrong(Wrong::Undone)) => Err(Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "its leader has failed over it: it may have been done, or not",
            )),
            Some(Reply::Wrong(wrong)) => Err(super::linear::problem(wrong)),
            Some(reply) => answer(reply).ok_or_else(|| odd(&"another reply")),
            None => Err(odd(&"nothing")),
        },
        other => Err(odd(&other)),
    }
}

fn number(number: u64) -> Bytes {
    number.to_string().into()
}

fn status(kind: Kind) -> (StatusCode, &'static str) {
    match kind {
        Kind::Bad => (StatusCode::BAD_REQUEST, "bad"),
        Kind::Sql => (StatusCode::UNPROCESSABLE_ENTITY, "sql"),
        Kind::Refused => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
        Kind::Budget => (StatusCode::UNPROCESSABLE_ENTITY, "budget"),
        Kind::Unmet => (StatusCode::CONFLICT, "unmet"),
        Kind::Constraint => (StatusCode::CONFLICT, "constraint"),
        Kind::Large => (StatusCode::PAYLOAD_TOO_LARGE, "large"),
        Kind::Full => (StatusCode::INSUFFICIENT_STORAGE, "full"),
    }
}

/// What was found before anything was asked.
pub(super) fn problem(Failure { kind, statement, why }: Failure) -> Problem {
    let at = statement.map_or_else(String::new, |at| format!("statement {at}: "));
    let (status, kind) = status(kind);
    Problem { kind: Some(kind), ..Problem::new(status, format!("{at}{why}")) }
}

/// Nothing was done: as any problem, with the statement that it is about.
fn failed(failure: Failure) -> Response {
    let statement = failure.statement;
    let Problem { status, error, kind, .. } = problem(failure);
    (status, Json(serde_json::json!({ "error": error, "type": kind, "statement": statement }))).into_response()
}
