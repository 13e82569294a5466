//! Profiles over HTTP: what a person wants, by name and id, as the declaration's schema has it. They are rows of a namespace of class `sql`,
//! and whoever has that namespace's token reads and writes them.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use clones::ProfileSpec;
use clones::limits::PROFILE_BYTES_MAX;
use serde::Serialize;
use serde_json::{Map, Value, json};
use state::sql::{Failure, Kind};

use super::address::Path;
use super::class::only_sql;
use super::declare::whole;
use super::limits::PURGE_BUDGET;
use super::sql::{Statements, problem, run};
use super::{Api, Problem, guard};
use crate::profiles::{Changed, Stored, forget, found, is_nobodys, query, table};

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    version: i64,
    profile: Map<String, Value>,
}

/// Whose it is, and what may stand there.
struct Of {
    api: Api,
    name: String,
    id: String,
    spec: ProfileSpec,
    size_max: u64,
    headers: HeaderMap,
}

impl Of {
    fn new(api: Api, (name, id): (String, String), mut headers: HeaderMap) -> Result<Self, Problem> {
        // What is written again is the same again.
        headers.remove(super::linear::ONCE);
        let view = api.view();
        let Some(spec) = view.profiles.get(&name).cloned() else {
            // Strangers are not told which there are.
            let holds = view.tokens.keys().any(|namespace| guard::holder(&headers, &view, namespace).is_ok());
            return Err(if holds || guard::operator(&headers, &view).is_ok() {
                Problem::not_found(format!("no profile {name:?} is declared: write [profile.{name}]"))
            } else {
                Problem::token("the token of the profile's namespace")
            });
        };
        guard::holder(&headers, &view, &spec.namespace)?;
        if !ProfileSpec::is_id(&id) {
            return Err(Problem::wrong("an id has 1 to 200 visible ASCII characters"));
        }
        let size_max = only_sql(&api, &spec.namespace)?;
        Ok(Self { api, name, id, spec, size_max, headers })
    }

    async fn run(&self, statements: Statements) -> Result<Result<bytes::Bytes, Failure>, Problem> {
        run(&self.api, &self.spec.namespace, self.size_max, statements, &self.headers).await
    }

    async fn read(&self) -> Result<Option<Stored>, Problem> {
        match self.run(Statements::Query(query(&self.name, &self.id))).await? {
            Ok(json) => Ok(found(&json)),
            Err(failure) if is_nobodys(&failure) => Ok(None),
            Err(failure) => Err(problem(failure)),
        }
    }

    /// Writes if `when` holds. None: it does not.
    async fn write(&self, profile: &Map<String, Value>, when: When) -> Result<Option<Stored>, Problem> {
        if let Some(flaw) = self.spec.flaw(profile) {
            return Err(Problem { kind: Some("schema"), ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, flaw) });
        }
        let table = table(&self.name);
        let text = Value::Object(profile.clone()).to_string();
        let change = match when {
            When::Always => json!({ "sql": format!(
                "insert into {table} (id, version, profile, changed_at) values (?1, 1, ?2, current_timestamp) on conflict (id) do \
                 update set version = version + 1, profile = excluded.profile, changed_at = excluded.changed_at returning version, profile"
            ), "args": [self.id, text], "must": 1 }),
            When::Absent => json!({ "sql": format!(
                "insert into {table} (id, version, profile, changed_at) values (?1, 1, ?2, current_timestamp) on conflict (id) do \
                 nothing returning version, profile"
            ), "args": [self.id, text], "must": 1 }),
            When::Version(version) => json!({ "sql": format!(
                "update {table} set version = version + 1, profile = ?2, changed_at = current_timestamp where id = ?1 and version = ?3 \
                 returning version, profile"
            ), "args": [self.id, text, version], "must": 1 }),
        };
        let mut done = self.run(Statements::Batch(json!([change]))).await?;
        if done.as_ref().is_err_and(is_nobodys) {
            // The first person that has one brings the table.
            let make = format!(
                "create table if not exists {table} (id text primary key, version integer not null, profile text not null, \
                 changed_at text not null) strict"
            );
            done = self.run(Statements::Batch(json!([make, change]))).await?;
        }
        match done {
            Ok(json) => {
                let answer: Value = serde_json::from_slice(&json).unwrap_or_default();
                let results = answer["results"].as_array();
                let row = results.and_then(|all| Stored::of_row(all.last()?["rows"].get(0)?));
                row.map(Some).ok_or_else(|| super::problem::odd(&"no row"))
            }
            Err(Failure { kind: Kind::Unmet, .. }) => Ok(None),
            Err(failure) => Err(problem(failure)),
        }
    }

    /// No node gives a copy from before.
    async fn told(&self) -> Result<(), Problem> {
        told(&self.api, &self.spec.namespace, Changed::Of(&self.name, &self.id)).await
    }

    fn shown(&self, Stored { version, profile }: Stored) -> Response {
        let tag = HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are allowed in a header");
        let headers = [(header::ETAG, tag), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        (headers, Json(Shown { id: &self.id, version, profile })).into_response()
    }
}

/// Has nodes give up their copies of what was changed.
pub(super) async fn told(api: &Api, namespace: &str, changed: Changed<'_>) -> Result<(), Problem> {
    forget(&*api.backend, namespace, changed, PURGE_BUDGET).await.map_err(|why| {
        let why =
            format!("it is changed, but a node may give the profile from before for 30 seconds; ask again: {why}");
        Problem::new(StatusCode::GATEWAY_TIMEOUT, why)
    })
}

/// The same where a database was changed of which nodes may have copies.
pub(super) async fn told_of_all(api: &Api, namespace: &str) -> Result<(), Problem> {
    match api.view().profiles.values().any(|profile| profile.namespace == namespace) {
        true => told(api, namespace, Changed::Any).await,
        false => Ok(()),
    }
}

/// When a profile is written.
#[derive(Clone, Copy)]
enum When {
    Always,
    Absent,
    Version(i64),
}

impl When {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let says = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
        match (says(header::IF_MATCH), says(header::IF_NONE_MATCH).as_deref()) {
            (None, None) => Ok(Self::Always),
            (None, Some("*")) => Ok(Self::Absent),
            (Some(tag), None) => {
                let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')?.parse().ok());
                version.map(Self::Version).ok_or_else(|| Problem::wrong("If-Match is the ETag of one version: \"3\""))
            }
            _ => Err(Problem::wrong("If-Match with one ETag, or If-None-Match: *; neither: it is written in any case")),
        }
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::wrong(format!("the body is the profile, a JSON object as {{\"quality\": 40}}: {error}"))
    })
}

fn changed() -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "it is another version by now, or is there, or is not")
}

/// 200 with `{"id", "version", "profile"}`, or 404.
pub async fn get(
    State(api): State<Api>,
    Path(of): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let of = Of::new(api, of, headers)?;
    match of.read().await? {
        Some(stored) => Ok(of.shown(stored)),
        None => Err(Problem::not_found("this person has no profile")),
    }
}

/// Body: the profile, which takes the place of what is there. With `If-Match` or `If-None-Match: *` 412 if that does not hold.
pub async fn put(
    State(api): State<Api>,
    Path(of): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let of = Of::new(api, of, headers)?;
    let profile = object(&whole(body, 4 * PROFILE_BYTES_MAX).await?)?;
    let stored = of.write(&profile, When::of(&of.headers)?).await?.ok_or_else(changed)?;
    of.told().await?;
    Ok(of.shown(stored))
}

/// 204, also if there was none.
pub async fn remove(
    State(api): State<Api>,
    Path(of): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let of = Of::new(api, of, headers)?;
    let sql = json!([[format!("delete from {} where id = ?1", table(&of.name)), [of.id]]]);
    match of.run(Statements::Batch(sql)).await? {
        Err(failure) if !is_nobodys(&failure) => Err(problem(failure)),
        _ => {
            of.told().await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
    }
}
