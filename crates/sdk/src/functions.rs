//! Functions that a service offers for values of class `linear`: nodes ask its clones to apply them (docs/guide/linear.md).
//! What is asked and answered is JSON over HTTP, which any program could speak.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits::QUESTION_BYTES_MAX;

/// Where nodes ask. The edge lets nobody else get to it.
const PATH: &str = "/.coppice/functions";

/// Why a function did nothing: who called it is told so. Texts become one: `Err("not enough".into())`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionError(pub String);

/// The arguments of a call: texts, by their place from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Args(Vec<Text>);

/// A text, or bytes that are none.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Coded {
        #[serde(rename = "base64")]
        _base64: String,
    },
}

impl Args {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them, as whatever can be read from text: `args.get::<u64>(0)?`.
    pub fn get<T: FromStr<Err: fmt::Display>>(&self, at: usize) -> Result<T, FunctionError> {
        let text = self.text(at)?;
        text.parse().map_err(|e| FunctionError(format!("argument {at} is {text:?}: {e}")))
    }

    /// One of them, as whatever `serde` reads from JSON.
    pub fn json<T: DeserializeOwned>(&self, at: usize) -> Result<T, FunctionError> {
        let text = self.text(at)?;
        serde_json::from_str(text).map_err(|e| FunctionError(format!("argument {at} is {text:?}: {e}")))
    }

    fn text(&self, at: usize) -> Result<&str, FunctionError> {
        match self.0.get(at) {
            Some(Text::Plain(text)) => Ok(text),
            Some(Text::Coded { .. }) => Err(FunctionError(format!("argument {at} is no text"))),
            None => Err(FunctionError(format!("argument {at} is missing: there are {}", self.0.len()))),
        }
    }
}

/// One function: the value before, as text, and the arguments; the value after, and what it gives.
type Run = dyn Fn(Option<&str>, &Args) -> Result<(Option<String>, Value), FunctionError> + Send + Sync;

/// By name.
#[derive(Clone, Default)]
pub(crate) struct Functions(BTreeMap<String, Arc<Run>>);

#[derive(Deserialize)]
struct Question {
    value: Option<Text>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    function: String,
    args: Args,
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self)
    }
}

impl Functions {
    pub fn add<T, R>(
        &mut self,
        name: &str,
        function: impl Fn(Option<T>, &Args) -> Result<(Option<T>, R), FunctionError> + Send + Sync + 'static,
    ) where
        T: Serialize + DeserializeOwned,
        R: Serialize,
    {
        let run = move |value: Option<&str>, args: &Args| {
            let value = value.map(serde_json::from_str).transpose();
            let value = value.map_err(|e| FunctionError(format!("what is stored is no JSON of its type: {e}")))?;
            let (next, gives) = function(value, args)?;
            let text = next.map(|next| serde_json::to_string(&next)).transpose();
            let unfit = |e| FunctionError(format!("what it made is no JSON: {e}"));
            Ok((text.map_err(unfit)?, serde_json::to_value(gives).map_err(unfit)?))
        };
        self.0.insert(name.to_owned(), Arc::new(run));
    }

    /// Answers nodes, which show the service's token, if there is one.
    pub fn router(self, token: Option<String>) -> Router {
        let answer = move |headers: HeaderMap, body: Bytes| async move {
            let shown = headers.get(header::AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
            if token.is_some_and(|token| !is_same(shown, format!("Bearer {token}").as_bytes())) {
                return (StatusCode::UNAUTHORIZED, "only nodes ask here\n").into_response();
            }
            self.asked(&body)
        };
        Router::new().route(PATH, post(answer)).layer(DefaultBodyLimit::max(QUESTION_BYTES_MAX))
    }

    fn asked(&self, body: &[u8]) -> Response {
        match serde_json::from_slice(body) {
            Ok(question) => axum::Json(self.answer(question)).into_response(),
            Err(error) => {
                (StatusCode::BAD_REQUEST, format!("this is no question for functions: {error}\n")).into_response()
            }
        }
    }

    /// Applies the calls one after the other. One that fails changes nothing, and the next ones go on.
    fn answer(&self, question: Question) -> Value {
        let (before, is_text) = match question.value {
            None => (None, true),
            Some(Text::Plain(text)) => (Some(text), true),
            Some(Text::Coded { .. }) => (None, false),
        };
        let mut now = before.clone();
        let mut replies = Vec::with_capacity(question.calls.len());
        for call in &question.calls {
            let done = if is_text { self.call(now.as_deref(), call) } else { Err("what is stored is no text".into()) };
            replies.push(match done {
                Ok((next, result)) => {
                    now = next;
                    json!({"result": result})
                }
                Err(FunctionError(why)) => json!({"error": why}),
            });
        }
        if now == before { json!({"replies": replies}) } else { json!({"value": now, "replies": replies}) }
    }

    fn call(&self, value: Option<&str>, call: &Call) -> Result<(Option<String>, Value), FunctionError> {
        let Some(function) = self.0.get(&call.function) else {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            return Err(FunctionError(format!("there is none of this name; there are: {}", known.join(", "))));
        };
        // It gets nothing of ours that it could leave half done.
        catch_unwind(AssertUnwindSafe(|| function(value, &call.args)))
            .unwrap_or_else(|panic| Err(FunctionError(format!("it panicked: {}", said(&*panic)))))
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no word of why")
}

/// In a time that does not tell how much of it is right.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl From<&str> for FunctionError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<String> for FunctionError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FunctionError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> Functions {
        let mut functions = Functions::default();
        functions.add("add", |old: Option<i64>, args| {
            let sum = old.unwrap_or(0) + args.get::<i64>(0)?;
            Ok((Some(sum), sum))
        });
        functions.add("withdraw", |old: Option<i64>, args| match old.unwrap_or(0) - args.get::<i64>(0)? {
            0 => Ok((None, 0)),
            left @ 1.. => Ok((Some(left), left)),
            _ => Err("not enough".into()),
        });
        functions.add("crash", |_: Option<i64>, _| -> Result<(Option<i64>, ()), FunctionError> { panic!("by zero") });
        functions
    }

    fn answer(question: Value) -> Value {
        functions().answer(serde_json::from_value(question).unwrap())
    }

    #[test]
    fn calls_follow_each_other_and_one_that_fails_leaves_the_value() {
        let calls = |list: &[(&str, Value)]| -> Vec<Value> {
            list.iter().map(|(name, args)| json!({"function": name, "args": args})).collect()
        };
        let list = [
            ("add", json!(["5"])),
            ("withdraw", json!(["7"])),
            ("crash", json!([])),
            ("withdraw", json!(["2"])),
            ("nope", json!([])),
            ("add", json!(["x"])),
            ("add", json!([])),
            ("add", json!([{"base64": "AP8="}])),
        ];
        let said = answer(json!({"namespace": "n", "key": "k", "value": "1", "calls": calls(&list)}));
        assert_eq!(said["value"], "4", "{said}");
        let replies = said["replies"].as_array().unwrap();
        assert_eq!((&replies[0]["result"], &replies[3]["result"]), (&json!(6), &json!(4)));
        for (at, why) in [
            (1, "not enough"),
            (2, "it panicked: by zero"),
            (4, "there are: add, crash, withdraw"),
            (5, "argument 0 is \"x\""),
            (6, "argument 0 is missing"),
            (7, "argument 0 is no text"),
        ] {
            assert!(replies[at]["error"].as_str().unwrap().contains(why), "{said}");
        }
    }

    #[test]
    fn a_value_is_made_removed_or_left() {
        let one = |value: Value, name: &str, arg: &str| {
            let mut question = json!({"key": "k", "calls": [{"function": name, "args": [arg]}]});
            if !value.is_null() {
                question["value"] = value;
            }
            answer(question)
        };
        assert_eq!(one(Value::Null, "add", "3"), json!({"value": "3", "replies": [{"result": 3}]}));
        assert_eq!(one(json!("3"), "withdraw", "3"), json!({"value": null, "replies": [{"result": 0}]}));
        assert_eq!(one(json!("3"), "add", "0"), json!({"replies": [{"result": 3}]}), "as it was");
        let text = one(json!("a word"), "add", "0");
        assert!(text["replies"][0]["error"].as_str().unwrap().contains("no JSON of its type"), "{text}");
        let bytes = one(json!({"base64": "AP8="}), "add", "0");
        assert!(bytes.get("value").is_none() && bytes["replies"][0]["error"] == "what is stored is no text", "{bytes}");
    }

    #[tokio::test]
    async fn only_who_has_the_token_is_answered() {
        use axum::body::{Body, to_bytes};
        use axum::http::Request;
        use hyper::service::Service;
        use hyper_util::service::TowerToHyperService;

        let body = r#"{"key": "k", "calls": [{"function": "add", "args": ["1"]}]}"#;
        for (token, shown, status) in [
            (Some("secret"), Some("Bearer secret"), 200),
            (Some("secret"), Some("Bearer secre"), 401),
            (Some("secret"), None, 401),
            (None, None, 200),
        ] {
            let mut request = Request::post(PATH);
            if let Some(shown) = shown {
                request = request.header(header::AUTHORIZATION, shown);
            }
            let router = functions().router(token.map(str::to_owned));
            let request = request.body(Body::from(body)).unwrap();
            let response = TowerToHyperService::new(router).call(request).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{token:?} {shown:?}");
            let said = to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(said.starts_with(br#"{"replies":[{"result":1}],"value":"1"}"#), status == 200, "{said:?}");
        }
    }
}
