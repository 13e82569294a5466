//! What goes over the pipes of a worker of form `stream`, the same both ways: a line of JSON, then as many bytes as it
//! says.
//!
//! To the worker
//! `{"id":1,"type":"text/html","bytes":512,"params":{"word":"a"},"url":"/x","deadline_ms":900,"priority":5}`, from it
//! `{"id":1,"end":"done","type":"text/html","bytes":498}`. Ends are `done`, `unchanged`, `busy`, `bad` and `failed`; of the last three
//! `why` says more. One job at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::{Job, Profile};
use crate::limits::RESULT_BYTES_MAX;

#[derive(Serialize)]
struct Asks<'a> {
    id: u64,
    #[serde(rename = "type")]
    kind: &'a str,
    bytes: usize,
    params: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a Profile>,
    deadline_ms: u64,
    priority: u8,
}

#[derive(Deserialize)]
struct Answers {
    id: u64,
    end: Word,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    why: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    Done,
    Unchanged,
    Busy,
    Bad,
    Failed,
}

/// What a worker says before the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub end: Word,
    pub kind: Option<String>,
    pub bytes: usize,
    pub why: String,
}

/// The line of a job, its end included.
pub fn ask(id: u64, job: &Job, left: Duration) -> Vec<u8> {
    let Job { content, kind, params, url, profile, priority, until: _ } = job;
    let (deadline_ms, priority, bytes) = (left.as_millis() as u64, *priority, content.len());
    let (url, profile) = (url.as_deref(), profile.as_ref());
    let asks = Asks { id, kind, bytes, params, url, profile, deadline_ms, priority };
    let mut line = serde_json::to_vec(&asks).expect("plain data");
    line.push(b'\n');
    line
}

/// # Errors
/// A sentence: this is no answer to that job.
pub fn answer(line: &[u8], id: u64) -> Result<Answer, String> {
    let said: Answers = serde_json::from_slice(line).map_err(|e| format!("its line is none: {e}"))?;
    let Answers { id: of, end, kind, bytes, why } = said;
    if of != id {
        return Err(format!("it answers job {of} and was asked for {id}"));
    }
    if bytes > RESULT_BYTES_MAX {
        return Err(format!("it wants to give {bytes} bytes, over the limit of {RESULT_BYTES_MAX}"));
    }
    let is_plain = |kind: &String| kind.bytes().all(|b| (0x20..0x7f).contains(&b));
    if kind.as_ref().is_some_and(|kind| !is_plain(kind)) {
        return Err("its type is none".into());
    }
    Ok(Answer { end, kind, bytes, why })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_job_is_one_line_whatever_is_in_it() {
        let params = [("word".to_owned(), "a\n\"b".to_owned())].into();
        let (content, until) = (Bytes::from_static(b"x\ny"), Instant::now());
        let mut job = Job { content, kind: "text/html".into(), params, url: None, profile: None, priority: 7, until };
        let line = String::from_utf8(ask(3, &job, Duration::from_millis(900))).unwrap();
        let expect =
            r#"{"id":3,"type":"text/html","bytes":3,"params":{"word":"a\n\"b"},"deadline_ms":900,"priority":7}"#;
        assert_eq!(line, format!("{expect}\n"));
        job.profile = serde_json::from_str(r#"{"grey":true}"#).unwrap();
        let line = String::from_utf8(ask(3, &job, Duration::from_millis(900))).unwrap();
        assert!(line.contains(r#""profile":{"grey":true},"#), "{line}");
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_refused() {
        let good = answer(br#"{"id":3,"end":"done","type":"text/html","bytes":498,"ttl":1}"#, 3).unwrap();
        let expect = Answer { end: Word::Done, kind: Some("text/html".into()), bytes: 498, why: String::new() };
        assert_eq!(good, expect);
        assert_eq!(answer(br#"{"id":3,"end":"busy"}"#, 3).unwrap().end, Word::Busy);
        for (line, why) in [
            (&b""[..], "its line is none"),
            (b"\xff", "its line is none"),
            (b"[]", "its line is none"),
            (br#"{"id":3}"#, "missing field `end`"),
            (br#"{"id":3,"end":"crashed"}"#, "unknown variant"),
            (br#"{"id":4,"end":"done"}"#, "answers job 4"),
            (br#"{"id":3,"end":"done","bytes":-1}"#, "its line is none"),
            (br#"{"id":3,"end":"done","bytes":99999999999}"#, "over the limit"),
            (br#"{"id":3,"end":"done","type":"a\r\nb: c"}"#, "its type is none"),
        ] {
            let told = answer(line, 3).unwrap_err();
            assert!(told.contains(why), "{}: {told}", String::from_utf8_lossy(line));
        }
    }
}
