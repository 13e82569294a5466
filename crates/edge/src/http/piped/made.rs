//! What a worker made of a content before, in a namespace of class `cache`: by the worker and its version, parameters,
//! type and content, so an entry is never wrong, and may be lost at any time. And what a pipeline made last for a URL.

use std::sync::Arc;

use base::{Outcome, Span};
use bytes::{BufMut, Bytes, BytesMut};
use clones::pipeline::Step;
use node::{Answer, Ask};
use ring::digest::{Context, SHA256};
use state::cache::{Act, Mark, Op, Reply};

use super::content::Content;
use crate::ask::Backend;
use crate::http::limits::{CACHED_BODY_BYTES_MAX, CACHED_READ_BUDGET, CACHED_WRITE_BUDGET, PIPED_NEAR_KEPT};
use crate::http::passage::Edge;

/// Entries of this kind are ours.
const KIND: &[u8] = b"made";

pub struct Made {
    backend: Arc<dyn Backend>,
    namespace: Arc<str>,
    key: Bytes,
    ttl: Option<Span>,
}

impl Made {
    pub fn new(edge: &Edge, namespace: &str, step: &Step, version: u64, content: &Content) -> Self {
        let backend = Arc::clone(edge.cached.backend());
        Self { backend, namespace: namespace.into(), key: key(step, version, content), ttl: None }
    }

    /// What is there, and with what something may be written if nothing is. In what is there none: the content stays as
    /// it is.
    pub async fn read(&self) -> (Option<Option<Content>>, Option<Mark>) {
        let op = Op::new(Arc::clone(&self.namespace), self.key.clone(), Act::Read);
        match self.backend.ask(Ask::Cache(op), CACHED_READ_BUDGET).await {
            Ok(Answer::Cache(Outcome::Done(Reply::Read { entry, mark }))) => {
                (entry.filter(|entry| entry.kind == KIND).and_then(|entry| decode(entry.value)), mark)
            }
            _ => (None, None),
        }
    }

    /// What was made last for a URL by this pipeline.
    pub fn last(edge: &Edge, namespace: &str, pipeline: &str, url: &str) -> Self {
        let digest = ring::digest::digest(&SHA256, url.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let backend = Arc::clone(edge.cached.backend());
        Self {
            backend,
            namespace: namespace.into(),
            key: format!("near:{pipeline}:{hex}").into(),
            ttl: Some(PIPED_NEAR_KEPT),
        }
    }

    pub async fn write(&self, made: Option<&Content>, mark: Mark) {
        let value = encode(made);
        if value.len() > CACHED_BODY_BYTES_MAX {
            return;
        }
        let (kind, tags, ttl) = (Bytes::from_static(KIND), Vec::new(), self.ttl);
        let act = Act::Set { value, kind, tags, ttl, only_present: false, mark: Some(mark) };
        let op = Op::new(Arc::clone(&self.namespace), self.key.clone(), act);
        // Else it is made anew.
        let _ = self.backend.ask(Ask::Cache(op), CACHED_WRITE_BUDGET).await;
    }
}

fn key(step: &Step, version: u64, content: &Content) -> Bytes {
    let mut hash = Context::new(&SHA256);
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(step.worker.as_bytes());
    part(&version.to_be_bytes());
    for (name, value) in &step.params {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(content.kind.as_bytes());
    part(&content.body);
    let digest = hash.finish();
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("made:{}:{hex}", step.worker).into()
}

/// A byte that says whether anything was made, the length of its type, the type, the content.
fn encode(made: Option<&Content>) -> Bytes {
    let Some(Content { kind, body }) = made else { return Bytes::from_static(&[0]) };
    let mut bytes = BytesMut::with_capacity(kind.len() + body.len() + 3);
    bytes.put_u8(1);
    bytes.put_u16(kind.len().min(usize::from(u16::MAX)) as u16);
    bytes.put_slice(&kind.as_bytes()[..kind.len().min(usize::from(u16::MAX))]);
    bytes.put_slice(body);
    bytes.freeze()
}

/// None: it is none of ours.
fn decode(mut bytes: Bytes) -> Option<Option<Content>> {
    match bytes.split_to_checked(1)?[0] {
        0 => bytes.is_empty().then_some(None),
        1 => {
            let length = bytes.split_to_checked(2)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let kind = String::from_utf8(bytes.split_to_checked(length)?.to_vec()).ok()?;
            Some(Some(Content { kind, body: bytes }))
        }
        _ => None,
    }
}

trait SplitChecked: Sized {
    fn split_to_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, at: usize) -> Option<Self> {
        (self.len() >= at).then(|| self.split_to(at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn content(kind: &str, body: &str) -> Content {
        Content { kind: kind.into(), body: body.to_owned().into() }
    }

    #[test]
    fn what_is_kept_reads_as_it_was_and_what_is_none_is_none() {
        for made in [None, Some(content("text/html", "x")), Some(content("", ""))] {
            assert_eq!(decode(encode(made.as_ref())), Some(made));
        }
        for bytes in [&b""[..], &[2], &[0, 1], &[1], &[1, 0], &[1, 0, 2, b'a'], &[1, 0, 1, 0xff]] {
            assert_eq!(decode(Bytes::copy_from_slice(bytes)), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_key_is_of_all_that_a_result_depends_on() {
        let step = |json: &str| -> Step { serde_json::from_str(json).unwrap() };
        let (plain, with) = (step(r#"{"worker":"a"}"#), step(r#"{"worker":"a","params":{"p":"q"}}"#));
        let page = content("text/html", "x");
        let all = [
            key(&plain, 1, &page),
            key(&plain, 2, &page),
            key(&step(r#"{"worker":"b"}"#), 1, &page),
            key(&with, 1, &page),
            key(&plain, 1, &content("text/html", "y")),
            key(&plain, 1, &content("text/plain", "x")),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        // What decides whether a step applies is not in what it makes.
        assert_eq!(key(&step(r#"{"worker":"a","size_min":1,"type":["text/html"]}"#), 1, &page), all[0]);
    }
}
