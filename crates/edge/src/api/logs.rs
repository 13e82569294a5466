//! What the clones of a service have printed, on all nodes. The operator's token is needed: programs print secrets.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use host::logs::{LogLine, LogWish};
use serde::{Deserialize, Serialize};

use super::address::{Path, Query};
use super::limits::{LOG_LINES, LOG_LINES_MAX};
use super::{Api, Problem, guard};

/// What is asked of the logs of all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// For a node that `after_us` does not name.
    pub wish: LogWish,
    /// Moment of the last line that whoever asks has of a node, by its name.
    pub after_us: BTreeMap<String, u64>,
}

impl Wanted {
    /// What is asked of one node.
    pub fn of(&self, node: &str) -> LogWish {
        let after_us = self.after_us.get(node).copied().unwrap_or(self.wish.after_us);
        LogWish { after_us, ..self.wish.clone() }
    }
}

/// Lines of all nodes, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Gathered {
    pub lines: Vec<LogLine>,
    /// There are more lines than had room: older ones, or with `after` newer ones.
    pub more: bool,
    /// Live nodes that did not answer: their lines are missing.
    pub silent: Vec<String>,
    /// When it was asked, microseconds since 1970.
    pub at_us: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    clone: Option<u32>,
    version: Option<u32>,
    /// Lines after this moment, milliseconds since 1970.
    #[serde(default)]
    since_ms: u64,
    lines: Option<usize>,
    /// `NODE:MICROSECONDS,...`: reads on behind the last lines that were seen of these nodes.
    after: Option<String>,
}

/// Answer: [`Gathered`].
pub async fn logs(
    State(api): State<Api>,
    Path(service): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Json<Gathered>, Problem> {
    guard::operator(&headers, &api.view())?;
    let wanted = wanted(service, asked).map_err(Problem::wrong)?;
    api.backend.logs(wanted).await.map(Json).map_err(Problem::not_found)
}

fn wanted(service: String, asked: Asked) -> Result<Wanted, String> {
    let Asked { clone, version, since_ms, lines, after } = asked;
    let lines = lines.unwrap_or(LOG_LINES);
    if !(1..=LOG_LINES_MAX).contains(&lines) {
        return Err(format!("lines is 1 to {LOG_LINES_MAX}; `more` in the answer says that there are others"));
    }
    let oldest = after.is_some();
    let mut after_us = BTreeMap::new();
    for one in after.iter().flat_map(|after| after.split(',')).filter(|one| !one.is_empty()) {
        let read = one.rsplit_once(':').and_then(|(node, us)| Some((node, us.parse().ok()?)));
        let (node, us) = read.ok_or_else(|| format!("after is NODE:MICROSECONDS,..., and {one:?} is none"))?;
        after_us.insert(node.to_owned(), us);
    }
    let since_us = since_ms.saturating_mul(1000);
    Ok(Wanted { wish: LogWish { service, clone, version, after_us: since_us, lines, oldest }, after_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<Wanted, String> {
        let asked = super::super::address::read(query).map_err(|_| "not read".to_owned())?;
        wanted("shop".into(), asked)
    }

    #[test]
    fn what_is_asked_is_bounded_and_each_node_is_asked_from_its_own_place() {
        let plain = asked("").unwrap();
        assert_eq!((plain.wish.lines, plain.wish.oldest, plain.of("n1").after_us), (LOG_LINES, false, 0));
        let on = asked("after=n1:17,n2:18&since_ms=5&clone=2&version=3&lines=10").unwrap();
        assert_eq!([on.of("n1").after_us, on.of("n2").after_us, on.of("n3").after_us], [17, 18, 5000]);
        assert!(on.wish.oldest && on.wish.clone == Some(2) && on.wish.version == Some(3) && on.wish.lines == 10);
        // Whoever has no line of any node yet.
        assert!(asked("after=&since_ms=9").unwrap().wish.oldest);
        for wrong in ["lines=0", "lines=10001", "after=n1", "after=n1:x", "clone=-1", "clone=x", "else=1"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
        assert_eq!(asked("since_ms=18446744073709551615").unwrap().wish.after_us, u64::MAX);
    }
}
