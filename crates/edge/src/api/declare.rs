//! What an operator declares: apply, export, and tokens for nodes that join. All of it needs the operator's token.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::process::Private;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use node::authority::Turn;
use node::limits::TOKEN_CHARS;
use node::renewed::{Renewal, Whose};
use node::{Answer, Ask};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::address::{Path, Query};
use super::limits::*;
use super::problem::done;
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dry {
    #[serde(default)]
    dry_run: bool,
}

/// Body: a declaration in TOML. `X-File` names it in messages. Answer: `{"changes": [...], "version": n}`.
pub async fn apply(
    State(api): State<Api>,
    Query(dry): Query<Dry>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let text = whole(body, DECLARATION_BYTES_MAX).await?;
    let text = String::from_utf8(text.into()).map_err(|_| Problem::wrong("the declaration is not UTF-8 text"))?;
    let file = headers.get("x-file").and_then(|name| name.to_str().ok()).unwrap_or("declaration").to_owned();
    let mut has = BTreeSet::clone(&api.view().codes);
    for code in node::declared::codes(&text) {
        // One that nobody declared yet may have been put here for this.
        if !has.contains(&code) && api.backend.code(code.clone()).await.is_some() {
            has.insert(code);
        }
    }
    node::declared::has_code(&file, &text, &has).map_err(Problem::wrong)?;
    change(&api, Ask::Apply { file, text, dry_run: dry.dry_run, entropy: entropy()? }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// The old keys go at once: all sessions by cookie end.
    #[serde(default)]
    end_sessions: bool,
}

/// A new key for a namespace's cookies. Answer as for `apply`.
pub async fn rotate(
    State(api): State<Api>,
    Path(namespace): Path<String>,
    Query(rotation): Query<Rotation>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let Rotation { end_sessions } = rotation;
    change(&api, Ask::Rotate { namespace, entropy: entropy()?, end_sessions }).await
}

/// Asks for a change, and answers with what it changed when this node shows it: whoever is told that a namespace is declared
/// asks for its token next.
pub async fn change(api: &Api, ask: Ask) -> Result<Response, Problem> {
    match api.backend.ask(ask, CHANGE_BUDGET).await? {
        Answer::Applied(outcome) => {
            let applied = done(outcome)?;
            let mut views = api.backend.watch();
            let shown = views.wait_for(|view| view.root.version >= applied.version);
            // It is done in any case.
            let _ = tokio::time::timeout(SHOWN_TIME_MAX, shown).await;
            Ok(Json(applied).into_response())
        }
        other => unreachable!("a change was answered by {other:?}"),
    }
}

pub fn entropy() -> Result<[u8; 32], Problem> {
    let mut entropy = [0; 32];
    let filled = SystemRandom::new().fill(&mut entropy);
    filled.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers"))?;
    Ok(entropy)
}

/// What is declared, as TOML that `apply` takes.
pub async fn export(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    match api.backend.ask(Ask::Export, CHANGE_BUDGET).await? {
        Answer::Exported(text) => Ok(([(header::CONTENT_TYPE, "application/toml")], text).into_response()),
        other => unreachable!("export was answered by {other:?}"),
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Wish {
    lifetime_ms: Option<u64>,
    uses: Option<u32>,
}

#[derive(Serialize)]
struct Token {
    token: String,
    expires_at_ms: u64,
}

/// Body: nothing, or `{"lifetime_ms": n, "uses": n}`. Answer: `{"token": "...", "expires_at_ms": n}`.
pub async fn token(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, BODY_BYTES_MAX).await?;
    let wish: Wish = if body.is_empty() {
        Wish::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|e| Problem::wrong(format!("the body must be {{\"lifetime_ms\": n, \"uses\": n}}: {e}")))?
    };
    let lifetime = wish.lifetime_ms.map_or(JOIN_TOKEN_LIFE, Duration::from_millis);
    if lifetime.is_zero() || lifetime > JOIN_TOKEN_LIFE_MAX {
        let max = JOIN_TOKEN_LIFE_MAX.as_millis();
        return Err(Problem::wrong(format!("lifetime_ms must be 1 to {max}, not {}", lifetime.as_millis())));
    }
    let uses = wish.uses.unwrap_or(1);
    if !(1..=JOIN_USES_MAX).contains(&uses) {
        return Err(Problem::wrong(format!("uses must be 1 to {JOIN_USES_MAX}, not {uses}")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let expires_at_ms = (now + lifetime).as_millis() as u64;
    let minted = api.backend.mint().map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
    let ask = Ask::JoinToken { secret_hash: minted.secret_hash, expires_wall_ms: expires_at_ms, uses };
    match api.backend.ask(ask, CHANGE_BUDGET).await? {
        Answer::Done(outcome) => {
            done(outcome)?;
            Ok(([(header::CACHE_CONTROL, "no-store")], Json(Token { token: minted.text, expires_at_ms }))
                .into_response())
        }
        other => unreachable!("a join token was answered by {other:?}"),
    }
}

/// Those that are live: `[{"name", "expires_at_ms", "uses_left"}]`.
pub async fn tokens(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    match api.backend.ask(Ask::JoinTokens, CHANGE_BUDGET).await? {
        Answer::JoinTokens(tokens) => Ok(Json(tokens).into_response()),
        other => unreachable!("a question for join tokens was answered by {other:?}"),
    }
}

/// Ends one, by its name. Answer: `{}`.
pub async fn revoke(State(api): State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    match api.backend.ask(Ask::RevokeToken { name }, CHANGE_BUDGET).await? {
        Answer::Done(outcome) => {
            done(outcome)?;
            Ok(Json(serde_json::json!({})).into_response())
        }
        other => unreachable!("the end of a join token was answered by {other:?}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum Of {
    Operator,
    Namespace,
    Service,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalWish {
    of: Of,
    name: Option<String>,
    keep_ms: u64,
    token: Option<String>,
}

/// Body: `{"of": "operator", "token": "...", "keep_ms": n}` or `{"of": "namespace", "name": "...", "keep_ms": n}`, or of a `service`. Answer
/// as for `apply`: it has no token.
pub async fn renew(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, BODY_BYTES_MAX).await?;
    // What the parser says may have a part of the body, and so of a token.
    let wish: RenewalWish = serde_json::from_slice(&body).map_err(|_| Problem::wrong(RENEWAL_BODY))?;
    let (whose, token) = match wish {
        RenewalWish { of: Of::Operator, name: None, token: Some(token), .. } => (Whose::Operator, token),
        RenewalWish { of: of @ (Of::Namespace | Of::Service), name: Some(name), token: None, .. } => {
            let token = entropy()?[..TOKEN_CHARS / 2].iter().map(|byte| format!("{byte:02x}")).collect();
            (if of == Of::Service { Whose::Service(name) } else { Whose::Namespace(name) }, token)
        }
        _ => return Err(Problem::wrong(RENEWAL_BODY)),
    };
    let token = Private(token.into());
    change(&api, Ask::RenewToken(Renewal { whose, token, keep_ms: wish.keep_ms })).await
}

const RENEWAL_BODY: &str = "the body must be {\"of\": \"operator\", \"token\": \"...\", \"keep_ms\": n} or {\"of\": \"namespace\" or \"service\", \"name\": \"...\", \"keep_ms\": n}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnWish {
    from: u64,
}

/// Body: `{"from": n}`, the turn that stands (`authority.turn` of the status, 0 unless it is there). The next one of three towards another
/// authority. Answer as for `apply`: it has no key.
pub async fn rotate_authority(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, BODY_BYTES_MAX).await?;
    let TurnWish { from } =
        serde_json::from_slice(&body).map_err(|e| Problem::wrong(format!("the body must be {{\"from\": n}}: {e}")))?;
    let (cert_pem, key_pem) = api.backend.new_authority().map_err(Problem::wrong)?;
    let turn = Turn { from, cert_pem, key_pem: Private(key_pem.into()) };
    change(&api, Ask::TurnAuthority(turn)).await
}

/// The token with which programs reach a namespace: `{"token": "..."}`.
pub async fn namespace_token(
    State(api): State<Api>,
    Path(namespace): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let view = api.view();
    guard::operator(&headers, &view)?;
    let Some(token) = view.tokens.get(&namespace) else {
        return Err(Problem::not_found(format!("there is no namespace {namespace:?}")));
    };
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(serde_json::json!({"token": token}))).into_response())
}

/// The whole body, if it comes in time and is not too large. Read only after the token was looked at.
pub async fn whole(body: Body, max: usize) -> Result<Bytes, Problem> {
    let reading = Limited::new(body, max).collect();
    match tokio::time::timeout(BODY_TIME_MAX, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have {max} bytes")))
        }
        Ok(Err(error)) => Err(Problem::wrong(format!("the body could not be read: {error}"))),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

const _: () = assert!(OP_BUDGET.as_micros() < CHANGE_BUDGET.as_micros(), "values are quicker than declarations");
