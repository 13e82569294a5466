//! Several keys at once: reads wherever each lies, transactions within one shard.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{AGE, Function, Linear, LinearError, Stored, failed, millis, of_read, other_type, unreadable};

/// Functions that run at one moment, if all conditions hold; else nothing happens. All keys must lie in one shard: give
/// them the same `{tag}`, or declare `shards = 1`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    conditions: Vec<(String, u64)>,
    steps: Vec<(String, Function)>,
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if this key has this version; `None`: only if there is no value.
    pub fn only_if(mut self, key: &str, version: Option<u64>) -> Self {
        self.conditions.push((key.to_owned(), version.unwrap_or(0)));
        self
    }

    /// Runs a function on a key.
    pub fn apply(mut self, key: &str, function: Function) -> Self {
        self.steps.push((key.to_owned(), function));
        self
    }

    /// Stores a value, whatever is there: JSON, as [`Linear::put`] does. One that cannot be JSON is stored as `null`.
    pub fn put(self, key: &str, value: &impl Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.apply(key, Function::new("put").arg(json).arg("always").arg("none"))
    }

    /// Removes a key.
    pub fn remove(self, key: &str) -> Self {
        self.apply(key, Function::new("remove"))
    }
}

impl<T> Linear<T> {
    /// What each function gave, in order. A function that could not be done (a wrong type) has an error in its place; the
    /// others happened. [`LinearError::Conflict`]: a condition did not hold, and nothing happened.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Vec<Result<Value, String>>, LinearError> {
        let conditions = transaction.conditions.iter().map(|(key, version)| json!({"key": key, "version": version}));
        let step = |(key, function): &(String, Function)| {
            let Function { name, args } = function;
            json!({"key": key, "function": name, "args": args})
        };
        let steps: Vec<Value> = transaction.steps.iter().map(step).collect();
        let body = json!({"if": conditions.collect::<Vec<_>>(), "do": steps}).to_string();
        let answer = self.node.call(&self.call(Method::POST, "txn").once().body(body)).await?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let mut body: Value = serde_json::from_slice(&answer.body).map_err(|_| unreadable())?;
        let results = body.get_mut("results").and_then(Value::as_array_mut).ok_or_else(unreadable)?;
        Ok(results.drain(..).map(|result| error_in(&result).map_or(Ok(result), Err)).collect())
    }
}

impl<T: DeserializeOwned> Linear<T> {
    /// The values under several keys, fewer than 1,024, each if there is one; of one moment, if the namespace has one shard.
    pub async fn mget(&self, keys: &[&str]) -> Result<Vec<Option<Stored<T>>>, LinearError> {
        let body = json!({"keys": keys}).to_string();
        let mut call = self.call(Method::POST, &self.may_be_stale("mget".to_owned())).body(body);
        call.repeats = true;
        let answer = self.node.call(&call).await.map_err(of_read)?;
        if answer.status != StatusCode::OK {
            return Err(of_read(answer.unexpected()).into());
        }
        let body: Value = serde_json::from_slice(&answer.body).map_err(|_| unreadable())?;
        let values = body["values"].as_array().filter(|values| values.len() == keys.len()).ok_or_else(unreadable)?;
        values.iter().map(|one| stored(one, millis(&answer, &AGE))).collect()
    }
}

fn stored<T: DeserializeOwned>(one: &Value, age: Option<Duration>) -> Result<Option<Stored<T>>, LinearError> {
    if one.is_null() {
        return Ok(None);
    }
    let (Some(text), Some(version)) = (one["value"].as_str(), one["version"].as_u64()) else {
        let why = error_in(one).unwrap_or_else(|| "one of the values is no text".to_owned());
        return Err(LinearError::Refused(base::Refused::wrong(why)));
    };
    let value = serde_json::from_str(text).map_err(|e| other_type(&e))?;
    Ok(Some(Stored { value, version, ends_in: one["ends_ms"].as_u64().map(Duration::from_millis), age }))
}

/// What the node says instead of a result.
fn error_in(result: &Value) -> Option<String> {
    result.as_object()?.get("error")?.as_str().map(str::to_owned)
}
