//! What the clones of a service have printed, on all nodes. The operator's token is needed: programs print secrets.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use host::logs::LogWish;
use serde::Deserialize;

pub use crate::ask::{Gathered, Wanted};

use super::address::{Path, Query};
use super::limits::{LOG_LINES, LOG_LINES_MAX};
use super::{Api, Problem, guard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    clone: Option<u32>,
    version: Option<u32>,
    /// Its access log, not what its clones print.
    #[serde(default)]
    access: bool,
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
    let Asked { clone, version, access, since_ms, lines, after } = asked;
    if access && (clone.is_some() || version.is_some()) {
        return Err("clone and version are not of the access log: its lines of the form json have `clone`".into());
    }
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
    let name = if access { host::access::log_name(&service) } else { service.clone() };
    let wish = LogWish { service: name, clone, version, after_us: since_us, lines, oldest };
    Ok(Wanted { service, access, wish, after_us })
}

#[cfg(test)]
mod tests {
    use host::logs::{LogLine, LogPart, Source};

    use super::*;

    fn part(node: &str, at_us: &[u64]) -> (String, LogPart) {
        let line = |&at_us: &u64| LogLine {
            at_us,
            node: String::new(),
            clone: 0,
            version: 1,
            source: Source::Out,
            line: at_us.to_string(),
        };
        (node.into(), LogPart { lines: at_us.iter().map(line).collect(), more: false })
    }

    #[test]
    fn whoever_reads_on_from_where_the_answer_says_gets_each_line_once() {
        let shown = |all: &Gathered| all.lines.iter().map(|line| line.at_us).collect::<Vec<_>>();
        let after = |all: &Gathered| all.after.values().copied().collect::<Vec<_>>();
        // The newest two: n1's older lines, and all of n3, are left out for good.
        let first = asked("lines=2&since_ms=1").unwrap();
        let all =
            first.gathered(9, vec![part("n1", &[3, 5]), part("n2", &[]), part("n3", &[2]), part("n4", &[4])], vec![]);
        assert_eq!((shown(&all), all.more, after(&all)), (vec![4, 5], true, vec![5, 1000, 2, 4]));
        // Behind that the oldest two: what has no room comes in the next answer.
        let on = asked("lines=2&after=n1:5,n2:1000,n3:2,n4:4").unwrap();
        let all = on.gathered(9, vec![part("n1", &[7, 8]), part("n3", &[6]), part("n4", &[])], vec!["n2".into()]);
        assert_eq!((shown(&all), all.more), (vec![6, 7], true));
        assert_eq!(after(&all), [7, 6, 4]);
        assert_eq!(all.lines.iter().map(|line| &*line.node).collect::<Vec<_>>(), ["n3", "n1"]);
    }

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
        let access = asked("access=true").unwrap();
        assert_eq!((&*access.service, access.access, &*access.wish.service), ("shop", true, "_access_shop"));
        assert!(asked("access=true&clone=1").unwrap_err().contains("not of the access log"));
        for wrong in ["lines=0", "lines=10001", "after=n1", "after=n1:x", "clone=-1", "clone=x", "else=1"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
        assert_eq!(asked("since_ms=18446744073709551615").unwrap().wish.after_us, u64::MAX);
    }
}
