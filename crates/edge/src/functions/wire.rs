//! What a clone is asked, and what it may answer: JSON, so that a program in any language can.
//!
//! ```text
//! POST /.coppice/functions
//! {"namespace": "bank", "key": "alice", "value": "100", "calls": [{"function": "withdraw", "args": ["30"]}, ...]}
//! 200
//! {"value": "70", "replies": [{"result": 70}, ...]}
//! ```
//! A text that is not UTF-8 is `{"base64": "..."}`. Without a value in the question there is none; an answer without one leaves it
//! as it is, and `null` removes it. A reply is `{"result": ...}` or `{"error": "..."}`, which has changed nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::limits::*;
use super::queue::{Id, Waiting};

/// Where a clone is asked. Nothing from outside gets to this path.
pub const PATH: &str = "/.coppice/functions";

/// What a clone's answer does with the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    None,
    Remove,
    Set(Bytes),
}

/// A clone's answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub change: Change,
    /// One for each call: what it gave, or why it did nothing.
    pub replies: Vec<Result<Value, String>>,
}

#[derive(Serialize)]
struct Question<'a> {
    namespace: &'a str,
    key: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Text<'a>>,
    calls: Vec<Asked<'a>>,
}

#[derive(Serialize)]
struct Asked<'a> {
    function: &'a str,
    args: Vec<Text<'a>>,
}

impl<'a> Asked<'a> {
    fn of(call: &'a Waiting) -> Self {
        Self { function: &call.function, args: call.args.iter().map(|arg| Text(arg)).collect() }
    }
}

/// As JSON: text as it is, other bytes as `{"base64": ...}`.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return to.serialize_str(text);
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.end()
    }
}

/// What came of a call, for whoever asks it again.
pub fn keep(reply: &Result<Value, String>) -> Bytes {
    let kept = match reply {
        Ok(result) => serde_json::json!({"result": result}),
        Err(why) => serde_json::json!({"error": why}),
    };
    kept.to_string().into()
}

pub fn kept(text: &[u8]) -> Result<Value, String> {
    let mut kept: Value = serde_json::from_slice(text).map_err(|error| format!("what was kept is no JSON: {error}"))?;
    match kept.get("error").and_then(Value::as_str) {
        Some(why) => Err(why.to_owned()),
        None => Ok(kept.get_mut("result").map(Value::take).unwrap_or_default()),
    }
}

pub fn question(id: &Id, value: Option<&Bytes>, calls: &[Waiting]) -> Bytes {
    let question = Question {
        namespace: &id.namespace,
        key: Text(&id.key),
        value: value.map(|value| Text(value)),
        calls: calls.iter().map(Asked::of).collect(),
    };
    serde_json::to_vec(&question).expect("plain data").into()
}

#[derive(Deserialize)]
struct Said {
    #[serde(default, deserialize_with = "if_there")]
    value: Option<Option<Given>>,
    replies: Vec<Reply>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Plain(String),
    Coded { base64: String },
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    result: Value,
    error: Option<String>,
}

/// `null` is something else than nothing.
fn if_there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Given>>, D::Error> {
    let wrong = |_: D::Error| serde::de::Error::custom("value is neither a text, nor {\"base64\": \"...\"}, nor null");
    Option::deserialize(from).map(Some).map_err(wrong)
}

/// Reads an answer to so many calls.
///
/// # Errors
/// It is none, and here is why.
pub fn answer(body: &[u8], calls: usize) -> Result<Answer, String> {
    let Said { value, replies } =
        serde_json::from_slice(body).map_err(|e| cut(format!("it is not {{\"value\", \"replies\": [...]}}: {e}")))?;
    if replies.len() != calls {
        return Err(format!("it has {} replies to {calls} calls", replies.len()));
    }
    let change = match value {
        None => Change::None,
        Some(None) => Change::Remove,
        Some(Some(Given::Plain(text))) => Change::Set(text.into()),
        Some(Some(Given::Coded { base64 })) => match STANDARD.decode(&base64) {
            Ok(bytes) => Change::Set(bytes.into()),
            Err(error) => return Err(format!("its value is not base64: {error}")),
        },
    };
    if matches!(&change, Change::Set(value) if value.len() > VALUE_BYTES_MAX) {
        return Err(format!("its value is over {} MiB", VALUE_BYTES_MAX >> 20));
    }
    let reply = |Reply { result, error }| match error {
        None => Ok(result),
        Some(why) => Err(cut(why)),
    };
    Ok(Answer { change, replies: replies.into_iter().map(reply).collect() })
}

/// What a program says of itself may be long.
pub fn cut(mut text: String) -> String {
    let mut at = WHY_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_sets_removes_or_leaves_the_value() {
        let change = |text: &str| answer(text.as_bytes(), 0).map(|answer| answer.change);
        assert_eq!(change(r#"{"replies":[]}"#), Ok(Change::None));
        assert_eq!(change(r#"{"value":null,"replies":[]}"#), Ok(Change::Remove));
        assert_eq!(change(r#"{"value":"7","replies":[],"more":1}"#), Ok(Change::Set("7".into())));
        assert_eq!(change(r#"{"value":{"base64":"AP8="},"replies":[]}"#), Ok(Change::Set([0, 255][..].into())));
        let two = answer(br#"{"replies":[{"result":[1]},{"error":"not enough"},{}]}"#, 3).unwrap();
        assert_eq!(two.replies, [Ok(json!([1])), Err("not enough".into()), Ok(Value::Null)]);
    }

    #[test]
    fn nonsense_is_named() {
        let large = format!(r#"{{"value":"{}","replies":[]}}"#, "x".repeat(VALUE_BYTES_MAX + 1));
        for (text, why) in [
            ("", "it is not"),
            ("<html>", "it is not"),
            ("[]", "it is not"),
            (r#"{"value":"7"}"#, "replies"),
            (r#"{"value":7,"replies":[{}]}"#, "neither a text"),
            (r#"{"value":{"a":1},"replies":[{}]}"#, "neither a text"),
            (r#"{"value":{"base64":"?"},"replies":[{}]}"#, "base64"),
            (r#"{"replies":[]}"#, "0 replies to 1 calls"),
            (r#"{"replies":[{},{}]}"#, "2 replies to 1 calls"),
            (r#"{"replies":[{"error":7}]}"#, "it is not"),
            (&large.replace("[]", "[{}]"), "over 1 MiB"),
        ] {
            let told = answer(text.as_bytes(), 1).unwrap_err();
            assert!(told.contains(why) && told.len() < 300, "{told}");
        }
        let long = format!(r#"{{"replies":[{{"error":"{}"}}]}}"#, "\u{fc}".repeat(WHY_BYTES_MAX));
        let told = answer(long.as_bytes(), 1).unwrap().replies.pop().unwrap().unwrap_err();
        assert!(told.len() <= WHY_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes: Vec<u8>, calls in 0usize..4) {
            let _ = answer(&bytes, calls);
        }

        #[test]
        fn what_is_no_text_goes_and_comes_as_base64(bytes: Vec<u8>) {
            let said = format!(r#"{{"value":{},"replies":[]}}"#, serde_json::to_string(&Text(&bytes)).unwrap());
            prop_assert_eq!(answer(said.as_bytes(), 0).unwrap().change, Change::Set(bytes.into()));
        }
    }
}
