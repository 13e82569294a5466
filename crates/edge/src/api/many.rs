//! Several values of class `linear` in one question, each wherever its key is.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use state::linear::limits::STEPS_MAX;
use state::linear::{Op, Over, Reply, Step};

use super::address::{Path, Query};
use super::class::only_linear;
use super::declare::whole;
use super::limits::TRANSACTION_BYTES_MAX;
use super::linear::{Look, Text, aged, run, shown, stale};
use super::problem::odd;
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    keys: Vec<Text>,
}

/// `{"keys": [...]}`; answers `{"values": [...]}`, one for each: `null`, or `{"value", "version", "ends_ms"}`.
pub async fn get(
    State(api): State<Api>,
    Path(ns): Path<String>,
    query: Result<Query<Look>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::holder(&headers, &api.view(), &ns)?;
    only_linear(&api, &ns)?;
    let Query(look) = query?;
    let stale = stale(look.stale.as_deref())?;
    let body = whole(body, TRANSACTION_BYTES_MAX).await?;
    let Many { keys } = serde_json::from_slice(&body)
        .map_err(|e| Problem::wrong(format!("the body must be {{\"keys\": [...]}}: {e}")))?;
    if keys.len() >= STEPS_MAX {
        return Err(Problem::wrong(format!("{} keys are asked for: fewer than {STEPS_MAX} may be", keys.len())));
    }
    let looks = keys.into_iter().map(|key| Ok(Step::new(key.bytes()?, "look", Vec::new())));
    let mut steps = looks.collect::<Result<Vec<_>, Problem>>()?;
    steps.push(Step::new(bytes::Bytes::new(), "age", Vec::new()));
    let mut replies = run(&api, Op { stale, over: Over::Each, ..Op::of(ns.into(), steps) }, &headers).await?;
    let age = match replies.pop() {
        Some(Reply::Int(age)) => age,
        other => return Err(odd(&other)),
    };
    let values = replies.iter().map(seen).collect::<Result<Vec<_>, Problem>>()?;
    Ok(aged(Json(json!({"values": values})).into_response(), stale.map(|_| age)))
}

fn seen(look: &Reply) -> Result<serde_json::Value, Problem> {
    Ok(match look {
        Reply::List(parts) => match &parts[..] {
            [Reply::Wrong(wrong), ..] => json!({"error": crate::said::said(*wrong)}),
            [value, Reply::Int(version), Reply::Int(left)] => {
                let mut one = json!({"value": shown(value), "version": version});
                if *left >= 0 {
                    one["ends_ms"] = json!(left);
                }
                one
            }
            _ => return Err(odd(look)),
        },
        other => shown(other),
    })
}
