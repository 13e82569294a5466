//! A database of class `sql`: SQLite, the same on a majority of nodes. A batch of statements is done whole or not at all, and has an
//! id, so that it happens once although it is asked again when its node dies before it answers. A query sees all that was
//! acknowledged before it.

use std::fmt;
use std::sync::Arc;

use base::{Outcome, Refused, Unknown};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::node::{Answer, Call, Failed, quoted};
use crate::on_behalf::During;
use crate::{Happened, Node};

/// The database of one namespace. Cheap to clone.
///
/// ```
/// use sdk::Statement;
///
/// # async fn shop(service: sdk::Service) -> Result<(), Box<dyn std::error::Error>> {
/// let stock = service.sql("stock")?;
/// stock.batch([Statement::new("create table if not exists ware (name text primary key, left integer)")]).await?;
/// // Only if there is one left: else nothing of the batch is done.
/// let take = Statement::new("update ware set left = left - 1 where name = ?1 and left > 0").arg("bread").must(1);
/// stock.batch([take]).await?;
/// let left = stock.query(Statement::new("select left from ware where name = ?1").arg("bread")).await?;
/// println!("{}", left.rows[0][0]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sql {
    node: Node,
    namespace: Arc<str>,
    token: Arc<str>,
    during: Option<During>,
}

/// One statement with its arguments, which stand for `?1`, `?2` and so on.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    sql: String,
    args: Vec<Value>,
    must: u64,
}

/// What one statement of a batch did.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct Changed {
    /// Rows that it inserted, updated or deleted.
    pub changed: u64,
    /// The number of the row that it inserted last, if it did.
    pub last_id: Option<i64>,
    /// Of a `select`, or of `returning`.
    #[serde(default)]
    pub columns: Vec<String>,
    #[serde(default)]
    pub rows: Vec<Vec<Value>>,
}

/// What a query gives. Bytes are `{"base64": ".."}`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// Why a batch or query did not end well. A query is never `Unknown`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SqlError {
    /// A statement changed or gave fewer rows than it must: which of the batch, from 0. Nothing changed.
    Unmet(usize),
    /// A constraint of a table does not hold: as SQLite says it. Nothing changed.
    Constraint(String),
    Refused(Refused),
    Unknown(Unknown),
}

impl Sql {
    /// That of a namespace whose token one has. Clones of a service use [`crate::Service::sql`].
    pub fn new(node: Node, namespace: &str, token: &str) -> Self {
        Self { node, namespace: namespace.into(), token: token.into(), during: None }
    }

    /// For what is done for one request: it matters as much as the request does, and is over when nobody waits for the answer
    /// any more. `headers` are the request's, as the edge passed them on.
    pub fn during(&self, headers: &HeaderMap) -> Self {
        Self { during: Some(During::of(headers)), ..self.clone() }
    }

    /// Does all of these, or nothing: what each of them did.
    pub async fn batch(&self, statements: impl IntoIterator<Item = Statement>) -> Result<Vec<Changed>, SqlError> {
        #[derive(Deserialize)]
        struct Results {
            results: Vec<Changed>,
        }
        let batch: Vec<Value> = statements.into_iter().map(Statement::json).collect();
        let call = self.call(json!({ "batch": batch })).once();
        let answer = self.node.call(&call).await?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let unreadable = |error| Unknown { why: format!("the node's answer cannot be read: {error}") };
        let Results { results } =
            serde_json::from_slice(&answer.body).map_err(unreadable).map_err(SqlError::Unknown)?;
        Ok(results)
    }

    /// Reads.
    pub async fn query(&self, statement: Statement) -> Result<Rows, SqlError> {
        let call = Call { repeats: true, ..self.call(json!({ "query": statement.json() })) };
        let answer = self.node.call(&call).await?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let unreadable = |error| Refused::wrong(format!("the node's answer cannot be read: {error}"));
        serde_json::from_slice(&answer.body).map_err(unreadable).map_err(SqlError::Refused)
    }

    fn call(&self, body: Value) -> Call {
        let path = format!("/v1/ns/{}/sql", quoted(&self.namespace));
        let call = Call::new(Method::POST, path, &self.token).body(body.to_string());
        if let Some(during) = &self.during { during.call(call) } else { call }
    }
}

impl Statement {
    pub fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), args: Vec::new(), must: 0 }
    }

    /// The next argument: a text, a number, a boolean, or `None::<i64>` for null.
    pub fn arg(mut self, arg: impl Into<Value>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// The next argument: bytes.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.arg(json!({ "base64": STANDARD.encode(bytes) }))
    }

    /// It must change or give so many rows at least, or nothing of its batch is done.
    pub fn must(self, must: u64) -> Self {
        Self { must, ..self }
    }

    fn json(self) -> Value {
        let Self { sql, args, must } = self;
        if must == 0 { json!([sql, args]) } else { json!({ "sql": sql, "args": args, "must": must }) }
    }
}

fn failed(answer: &Answer) -> SqlError {
    match answer.kind().as_deref() {
        Some("unmet") => {
            let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
            let at = body.and_then(|body| body.get("statement")?.as_u64()).unwrap_or(0);
            SqlError::Unmet(usize::try_from(at).unwrap_or(usize::MAX))
        }
        Some("constraint") => SqlError::Constraint(answer.error()),
        _ => answer.unexpected().into(),
    }
}

impl From<Failed> for SqlError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::Refused(refused),
            Failed::Unknown(unknown) => Self::Unknown(unknown),
        }
    }
}

impl SqlError {
    pub fn happened(&self) -> Happened {
        match self {
            Self::Unmet(_) | Self::Constraint(_) | Self::Refused(_) => Happened::No,
            Self::Unknown(_) => Happened::Maybe,
        }
    }

    /// The three ends of any operation, for whoever does not need the reasons.
    pub fn outcome<T>(self) -> Outcome<T> {
        match self {
            Self::Refused(refused) => Outcome::Refused(refused),
            Self::Unknown(unknown) => Outcome::Unknown(unknown),
            Self::Unmet(_) | Self::Constraint(_) => Outcome::Refused(Refused::wrong(self.to_string())),
        }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmet(at) => write!(f, "statement {at} found or changed fewer rows than it must: nothing was done"),
            Self::Constraint(why) => f.write_str(why),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for SqlError {}
