//! What a step of a pipeline has gathered, as a worker behind it gets it: what the parts made of one content, and which did not come.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;

use crate::Job;

/// The parts of a step with `gather`.
///
/// ```
/// use sdk::{Job, Made};
///
/// /// All parts, one below the other.
/// fn collate(job: Job) -> Made {
///     let Some(gathered) = job.gathered() else { return Made::Bad("it is not gathered".into()) };
///     let mut page = String::new();
///     for part in &gathered.parts {
///         page += &format!("<h2>{}</h2>{}", part.name, String::from_utf8_lossy(&part.content));
///     }
///     Made::new("text/html", page)
/// }
/// # assert!(matches!(collate(Job::default()), Made::Bad(_)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gathered {
    /// What the parts were made of; its name is empty.
    pub given: Part,
    /// In the order of the declaration.
    pub parts: Vec<Part>,
    /// Names of those that did not come.
    pub missing: Vec<String>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub name: String,
    /// `Content-Type`.
    pub kind: String,
    pub content: Bytes,
}

#[derive(Deserialize)]
struct Document {
    given: Shown,
    parts: Vec<Shown>,
    missing: Vec<String>,
}

#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    base64: Option<String>,
}

impl Shown {
    fn part(self) -> Option<Part> {
        let content = match (self.text, self.base64) {
            (Some(text), None) => text.into(),
            (None, Some(coded)) => BASE64.decode(coded).ok()?.into(),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Part { name: self.name, kind: self.kind, content })
    }
}

impl Gathered {
    /// The part of this name, if it came.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

impl Job {
    /// What the step before has gathered; none: its content is something else.
    pub fn gathered(&self) -> Option<Gathered> {
        let Document { given, parts, missing } = serde_json::from_slice(&self.content).ok()?;
        let parts = parts.into_iter().map(Shown::part).collect::<Option<_>>()?;
        Some(Gathered { given: given.part()?, parts, missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_edges_write_them_and_else_there_are_none() {
        let read = |text: &str| Job { content: text.to_owned().into(), ..Job::default() }.gathered();
        let all = read(
            r#"{"given":{"type":"text/html","text":"page"},"parts":[{"name":"a","type":"text/plain","text":"x\n"},
            {"name":"c","type":"image/png","base64":"AP8="}],"missing":["news"]}"#,
        );
        let all = all.unwrap();
        assert_eq!((&*all.given.content, &*all.missing), (&b"page"[..], &["news".to_owned()][..]));
        assert_eq!(all.part("c").map(|part| &*part.content), Some(&[0, 255][..]));
        assert_eq!(all.part("news"), None);
        for text in [
            "",
            "{}",
            "[1]",
            r#"{"given":{"type":""},"parts":[],"missing":[]}"#,
            r#"{"given":{"type":"","base64":"!"},"parts":[],"missing":[]}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
