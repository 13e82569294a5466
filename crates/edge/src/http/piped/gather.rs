//! Parts that a step gathers: jobs for several workers with the same content, all at once and within one time. What comes of them is a
//! document for the step behind, or for who asked; what did not come is missing there, and is told.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use clones::pipeline::{OnFail, Step};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Map;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::content::Content;
use super::made::Made;
use super::{Found, Piped, Why};
use crate::http::claim::Claim;
use crate::http::limits::PIPED_PARTS_BYTES_MAX;
use crate::http::passage::Edge;
use crate::meter::PipeCounts;

/// The type of the document.
const KIND: &str = "application/json";
/// Bytes of a document beside what is in it: names of parts, and JSON's own.
const FRAME_BYTES_MAX: usize = 8 << 10;

/// What has been gathered.
pub struct Gathered {
    pub document: Content,
    pub missing: Vec<String>,
    /// Some part was made of an earlier content.
    pub is_near: bool,
    /// What is missing may be there when it is asked for anew.
    pub may_come: bool,
}

/// Why nothing was: with the worker that is to blame.
pub struct Lacking {
    pub worker: String,
    pub why: Why,
}

/// How a part ended.
enum End {
    Here(Content),
    /// With why no later one is there.
    Near(Content, Why),
    Missing(Why),
}

#[derive(Serialize)]
struct Document<'a> {
    given: Shown<'a>,
    parts: Vec<Part<'a>>,
    missing: &'a [String],
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    #[serde(flatten)]
    content: Shown<'a>,
}

/// A content in a document.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl<'a> Shown<'a> {
    fn of(content: &'a Content) -> Self {
        // Others would become six bytes each.
        let is_plain = |byte: &u8| *byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t');
        let text = std::str::from_utf8(&content.body).ok().filter(|_| content.body.iter().all(is_plain));
        Self { kind: &content.kind, text, base64: text.is_none().then(|| BASE64.encode(&content.body)) }
    }
}

/// Bytes of a content in a document at most, while that is made: a text has up to two for each, base64 is there twice.
fn shown_bytes_max(content: &Content) -> usize {
    2 * content.kind.len() + 3 * content.body.len()
}

impl Piped {
    /// None: no part is for this content, so it stays as it is. `url` is what earlier parts are kept by, if they are for everybody.
    pub(super) async fn gather(
        &self,
        edge: &Edge,
        counts: &PipeCounts,
        (step, versions): (&Step, &[u64]),
        content: &Content,
        url: Option<&str>,
        until: Instant,
    ) -> Result<Option<Gathered>, Lacking> {
        let profile = self.wants.get().cloned().unwrap_or_else(Map::new);
        let parts: Vec<(Step, u64)> = step
            .gather
            .iter()
            .zip(versions)
            .filter(|(part, _)| part.applies(&content.kind, content.body.len() as u64))
            .filter_map(|(part, version)| {
                // A parameter of nobody's profile is left out.
                let part = if part.uses_profile() { part.of_profile(&profile)? } else { part.clone() };
                Some((part, *version))
            })
            .collect();
        if parts.is_empty() {
            return Ok(None);
        }
        let Some(_parts) = Claim::of(&edge.pipes.room, PIPED_PARTS_BYTES_MAX) else {
            let worker = parts[0].0.worker.clone();
            return Err(Lacking { worker, why: Why::of("there is no room for more parts") });
        };
        let bytes_max = PIPED_PARTS_BYTES_MAX / parts.len();
        let jobs = parts
            .iter()
            .map(|(part, version)| self.part(edge, counts, (part, *version), content, url, until, bytes_max));
        let ends = join_all(jobs).await;
        collate(&edge.pipes.room, step, content, parts.iter().map(|(part, _)| part).zip(ends)).map(Some)
    }

    #[allow(clippy::too_many_arguments, reason = "what a part is, what it is of, and its bounds")]
    async fn part(
        &self,
        edge: &Edge,
        counts: &PipeCounts,
        (part, version): (&Step, u64),
        content: &Content,
        url: Option<&str>,
        until: Instant,
        bytes_max: usize,
    ) -> End {
        let own = part.timeout.map(|own| Instant::now() + std::time::Duration::from(own));
        let until = own.map_or(until, |own| own.min(until));
        let is_kept = part.on_fail_of_part() == OnFail::Near;
        let last = url
            .filter(|_| is_kept)
            .zip(self.pipeline.spec.cache.as_ref())
            .map(|(url, cache)| Made::last(edge, cache, &format!("{}/{}", self.pipeline.name, part.part_name()), url));
        let mut mark = None;
        let made = match self.find(edge, counts, (part, version), content).await {
            Found::Here(made) => Ok(made),
            Found::Missing(place) => {
                if let Some(last) = &last {
                    // Before it is made: what is purged meanwhile does not come back.
                    mark = last.read().await.1;
                }
                self.make(edge, counts, part, place, content, until, (bytes_max, None)).await
            }
        };
        let made = made.map(|made| made.unwrap_or_else(|| content.clone()));
        let made =
            made.and_then(|made| if made.body.len() > bytes_max { Err(Why::of("it is too large")) } else { Ok(made) });
        match (made, last) {
            (Ok(made), last) => {
                if let Some((last, mark)) = last.zip(mark) {
                    last.write(Some(&made), mark).await;
                }
                End::Here(made)
            }
            (Err(why), Some(last)) => match last.read().await.0.flatten() {
                Some(near) if near.body.len() <= bytes_max => End::Near(near, why),
                _ => End::Missing(why),
            },
            (Err(why), None) => End::Missing(why),
        }
    }
}

/// What a step makes of what its parts came to: a document that is counted in the room.
fn collate<'a>(
    room: &Arc<Semaphore>,
    step: &Step,
    given: &Content,
    ends: impl Iterator<Item = (&'a Step, End)>,
) -> Result<Gathered, Lacking> {
    let (mut here, mut missing, mut blame) = (Vec::new(), Vec::new(), None);
    let (mut is_near, mut may_come) = (false, false);
    for (part, end) in ends {
        match end {
            End::Here(content) => here.push((part.part_name(), content)),
            End::Near(content, why) => {
                (is_near, may_come) = (true, may_come || !why.is_of_content());
                here.push((part.part_name(), content));
            }
            End::Missing(why) => {
                let nothing = Lacking { worker: part.worker.clone(), why };
                if part.on_fail_of_part() == OnFail::Error {
                    return Err(nothing);
                }
                tracing::debug!(part = part.part_name(), why = nothing.why.text, "a part is missing");
                may_come |= !nothing.why.is_of_content();
                missing.push(part.part_name().to_owned());
                blame.get_or_insert(nothing);
            }
        }
    }
    // Parts that are not for this content are not waited for.
    let need = (step.need() as usize).min(here.len() + missing.len());
    if let Some(nothing) = blame.filter(|_| here.len() < need) {
        return Err(nothing);
    }
    let parts = here.iter().map(|(name, content)| Part { name, content: Shown::of(content) }).collect();
    let bytes_max = here.iter().map(|(_, content)| shown_bytes_max(content)).sum::<usize>() + shown_bytes_max(given);
    let Some(claim) = Claim::of(room, bytes_max + FRAME_BYTES_MAX) else {
        let worker = step.gather[0].worker.clone();
        return Err(Lacking { worker, why: Why::of("there is no room for what is gathered") });
    };
    let document = Document { given: Shown::of(given), parts, missing: &missing };
    let body = claim.keep(Bytes::from(serde_json::to_vec(&document).expect("texts become JSON")));
    Ok(Gathered { document: Content { kind: KIND.to_owned(), body }, missing, is_near, may_come })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn content(kind: &str, body: &[u8]) -> Content {
        Content { kind: kind.into(), body: Bytes::copy_from_slice(body) }
    }

    fn step(json: serde_json::Value) -> Step {
        serde_json::from_value(json).unwrap()
    }

    fn gathered(step: &Step, ends: Vec<End>) -> Result<Gathered, Lacking> {
        gathered_in(&Arc::new(Semaphore::new(1 << 20)), step, ends)
    }

    fn gathered_in(room: &Arc<Semaphore>, step: &Step, ends: Vec<End>) -> Result<Gathered, Lacking> {
        collate(room, step, &content("text/html", b"page"), step.gather.iter().zip(ends))
    }

    fn late() -> End {
        End::Missing(Why::of("it took too long"))
    }

    #[test]
    fn parts_stand_in_order_and_what_is_missing_is_named() {
        let of =
            step(serde_json::json!({"gather": [{"worker": "a"}, {"worker": "b", "name": "news"}, {"worker": "c"}]}));
        let ends = vec![End::Here(content("text/plain", b"x\n")), late(), End::Here(content("image/png", &[0, 255]))];
        let Ok(all) = gathered(&of, ends) else { panic!("two are there") };
        let document: serde_json::Value = serde_json::from_slice(&all.document.body).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "given": {"type": "text/html", "text": "page"},
                "parts": [
                    {"name": "a", "type": "text/plain", "text": "x\n"},
                    {"name": "c", "type": "image/png", "base64": "AP8="},
                ],
                "missing": ["news"],
            })
        );
        assert_eq!((all.missing, all.is_near, all.may_come), (vec!["news".to_owned()], false, true));
    }

    #[test]
    fn too_few_parts_are_a_failure_and_so_is_one_that_must_be_there() {
        let two = |need: u32, on_fail: &str| {
            step(serde_json::json!({"need": need, "gather": [{"worker": "a"}, {"worker": "b", "on_fail": on_fail}]}))
        };
        let here = || End::Here(content("text/plain", b"x"));
        let blamed = |of: &Step, ends| gathered(of, ends).err().map(|nothing| nothing.worker);
        for (need, on_fail, ends, expect) in [
            (1, "bypass", vec![here(), late()], None),
            (2, "bypass", vec![here(), late()], Some("b")),
            (2, "bypass", vec![here(), here()], None),
            (1, "bypass", vec![late(), late()], Some("a")),
            (1, "error", vec![here(), late()], Some("b")),
            (1, "error", vec![late(), here()], None),
        ] {
            assert_eq!(blamed(&two(need, on_fail), ends), expect.map(str::to_owned), "{need} {on_fail}");
        }
        // What stands in counts, and is told.
        let old = || content("text/plain", b"old");
        let near = gathered(&two(2, "near"), vec![here(), End::Near(old(), Why::of("it took too long"))]);
        assert!(near.is_ok_and(|near| near.is_near && near.may_come && near.missing.is_empty()));
        // What a worker can do nothing with does not come by asking anew.
        let bad = || Why { status: Some(StatusCode::UNPROCESSABLE_ENTITY), text: String::new() };
        let all = gathered(&two(1, "bypass"), vec![here(), End::Missing(bad())]);
        assert!(all.is_ok_and(|all| !all.may_come && all.missing == ["b"]));
        let near = gathered(&two(2, "near"), vec![here(), End::Near(old(), bad())]);
        assert!(near.is_ok_and(|near| near.is_near && !near.may_come));
    }

    #[test]
    fn a_document_is_counted_while_anybody_holds_it() {
        let of = step(serde_json::json!({"gather": [{"worker": "a"}]}));
        let part = || vec![End::Here(content("image/png", &[255; 30_000]))];
        let room = Arc::new(Semaphore::new(100_000));
        let Ok(all) = gathered_in(&room, &of, part()) else { panic!("there is room") };
        let length = all.document.body.len();
        assert!(length > 40_000 && room.available_permits() == 100_000 - length, "{length} {room:?}");
        let second = gathered_in(&room, &of, part()).err().map(|nothing| nothing.why.text);
        assert_eq!(second.as_deref(), Some("there is no room for what is gathered"));
        drop(all);
        assert_eq!(room.available_permits(), 100_000);
    }

    #[test]
    fn bytes_that_would_grow_in_json_go_as_base64() {
        for (bytes, is_text) in
            [(&b"a\tb\r\n\xc3\xa9\"\\"[..], true), (b"\x00\x01", false), (b"\xff", false), (b"", true)]
        {
            let content = content("", bytes);
            let shown = Shown::of(&content);
            assert_eq!((shown.text.is_some(), shown.base64.is_some()), (is_text, !is_text), "{bytes:?}");
        }
    }
}
