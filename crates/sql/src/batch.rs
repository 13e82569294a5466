//! What a caller asks, as JSON: statements with their arguments, and how many rows each must give or change.
//!
//! A statement is `"SQL"`, `["SQL", [ARGUMENT, ..]]` or `{"sql": "SQL", "args": [..], "must": 1}`; an argument is null, a boolean, a
//! number, a text, or `{"base64": ".."}` for bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::Value as Arg;
use serde_json::Value;

use super::limits::{ARGS_MAX, BATCH_BYTES_MAX, SEMICOLONS_MAX, SQL_BYTES_MAX, STATEMENTS_MAX, VALUE_BYTES_MAX};
use super::{Failure, Kind};

/// One statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    pub sql: String,
    pub args: Vec<Arg>,
    /// It must change or give so many rows, or nothing of the batch is done.
    pub must: u64,
}

/// The statements of a batch.
///
/// # Errors
/// What is wrong with which of them.
pub fn parse(json: &[u8]) -> Result<Vec<Statement>, Failure> {
    if json.len() > BATCH_BYTES_MAX {
        return Err(too_long(json.len()));
    }
    let value: Value = serde_json::from_slice(json).map_err(|error| bad(None, format!("it is no JSON: {error}")))?;
    let Value::Array(all) = value else {
        return Err(bad(None, "a batch is a list of statements: [[\"insert into t values (?1)\", [1]], ..]".into()));
    };
    if all.is_empty() || all.len() > STATEMENTS_MAX {
        return Err(bad(None, format!("it has {} statements; 1 to {STATEMENTS_MAX} are one batch", all.len())));
    }
    all.into_iter().enumerate().map(|(at, one)| statement(one).map_err(|why| bad(Some(at), why))).collect()
}

/// The one statement of a query.
///
/// # Errors
/// What is wrong with it.
pub fn parse_query(json: &[u8]) -> Result<Statement, Failure> {
    if json.len() > BATCH_BYTES_MAX {
        return Err(too_long(json.len()));
    }
    let value: Value = serde_json::from_slice(json).map_err(|error| bad(None, format!("it is no JSON: {error}")))?;
    let statement = statement(value).map_err(|why| bad(None, why))?;
    if statement.must > 0 {
        return Err(bad(None, "`must` is of statements in a batch".into()));
    }
    Ok(statement)
}

fn too_long(bytes: usize) -> Failure {
    let why = format!("it has {bytes} bytes; {BATCH_BYTES_MAX} are the most of one batch: send several");
    Failure { kind: Kind::Large, statement: None, why }
}

fn bad(statement: Option<usize>, why: String) -> Failure {
    Failure { kind: Kind::Bad, statement, why }
}

/// One of them.
pub fn statement(value: Value) -> Result<Statement, String> {
    const FORMS: &str =
        "write a statement as \"SQL\", [\"SQL\", [ARGUMENT, ..]] or {\"sql\": \"SQL\", \"args\": [..], \"must\": 1}";
    let (sql, args, must) = match value {
        Value::String(sql) => (sql, Vec::new(), 0),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([Value::String(sql), Value::Array(args)]) => (sql, args, 0),
            Ok(_) => return Err(FORMS.into()),
            Err(mut parts) => match (parts.len(), parts.pop()) {
                (1, Some(Value::String(sql))) => (sql, Vec::new(), 0),
                _ => return Err(FORMS.into()),
            },
        },
        Value::Object(mut keys) => {
            let (sql, args, must) = (keys.remove("sql"), keys.remove("args"), keys.remove("must"));
            if let Some(other) = keys.keys().next() {
                return Err(format!("{other:?} is not known: {FORMS}"));
            }
            let must = match must {
                None => 0,
                Some(must) => must.as_u64().ok_or("`must` is how many rows it must change or give at least: 1")?,
            };
            match (sql, args) {
                (Some(Value::String(sql)), None) => (sql, Vec::new(), must),
                (Some(Value::String(sql)), Some(Value::Array(args))) => (sql, args, must),
                _ => return Err(FORMS.into()),
            }
        }
        _ => return Err(FORMS.into()),
    };
    if sql.len() > SQL_BYTES_MAX {
        return Err(format!("its text has {} bytes, {SQL_BYTES_MAX} are the most: put data into arguments", sql.len()));
    }
    if sql.bytes().filter(|byte| *byte == b';').count() > SEMICOLONS_MAX {
        return Err(format!(
            "its text has over {SEMICOLONS_MAX} semicolons: send one statement, with data in arguments"
        ));
    }
    if sql.contains('\0') {
        return Err("its text has a zero byte".into());
    }
    if args.len() > ARGS_MAX {
        return Err(format!("it has {} arguments, {ARGS_MAX} are the most", args.len()));
    }
    let args = args
        .into_iter()
        .enumerate()
        .map(|(at, arg)| argument(arg).map_err(|why| format!("argument {}: {why}", at + 1)));
    Ok(Statement { sql, args: args.collect::<Result<_, _>>()?, must })
}

fn argument(value: Value) -> Result<Arg, String> {
    let arg = match value {
        Value::Null => Arg::Null,
        Value::Bool(is) => Arg::Integer(is.into()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Arg::Integer(whole),
            (None, Some(real)) if !number.is_u64() => Arg::Real(real),
            _ => return Err(format!("{number} is more than an integer of SQLite holds: send it as text")),
        },
        Value::String(text) => Arg::Text(text),
        Value::Object(keys) => match keys.get("base64").filter(|_| keys.len() == 1) {
            Some(Value::String(coded)) => {
                Arg::Blob(STANDARD.decode(coded).map_err(|error| format!("it is not base64: {error}"))?)
            }
            _ => return Err("an object is only {\"base64\": \"..\"}; send JSON as a text".into()),
        },
        Value::Array(_) => return Err("a list is no value of SQLite: send JSON as a text".into()),
    };
    let bytes = match &arg {
        Arg::Text(text) => text.len(),
        Arg::Blob(blob) => blob.len(),
        _ => 0,
    };
    if bytes > VALUE_BYTES_MAX {
        return Err(format!("it has {bytes} bytes; {VALUE_BYTES_MAX} are the most of one value"));
    }
    Ok(arg)
}
