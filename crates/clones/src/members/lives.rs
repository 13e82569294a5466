//! What becomes of the lives of clones, as this node comes to know it: the difference of two looks, as messages for whoever listens
//! (docs/guide/catalog.md). A node that looks late sees fewer changes of state, and the same births and deaths.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use crate::CloneState;

/// One life of a clone, for people and programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Life {
    /// `shop/2`.
    pub clone: String,
    /// Name of its node.
    pub node: String,
    #[serde(serialize_with = "word")]
    pub state: CloneState,
}

/// By service, and then by the life's name.
pub type Seen = BTreeMap<String, BTreeMap<String, Life>>;

/// What was seen last.
#[derive(Default, Debug)]
pub struct Lives(Seen);

#[derive(Serialize)]
struct Told<'a> {
    event: &'static str,
    service: &'a str,
    life: &'a str,
    #[serde(flatten)]
    of: &'a Life,
}

impl Lives {
    /// What happened since the last look, by service: deaths, births, changes of state.
    pub fn look(&mut self, now: Seen) -> Vec<(String, Bytes)> {
        let mut news = Vec::new();
        let before = std::mem::replace(&mut self.0, now);
        let none = BTreeMap::new();
        let mut services: Vec<&String> = before.keys().chain(self.0.keys()).collect();
        services.sort_unstable();
        services.dedup();
        for service in services {
            let [was, is] = [&before, &self.0].map(|seen| seen.get(service).unwrap_or(&none));
            if was == is {
                continue;
            }
            let mut tell = |event, life: &str, of: &Life| {
                let told = Told { event, service, life, of };
                news.push((service.clone(), serde_json::to_vec(&told).expect("plain data").into()));
            };
            was.iter().filter(|(life, _)| !is.contains_key(*life)).for_each(|(life, of)| tell("death", life, of));
            for (life, of) in is {
                match was.get(life) {
                    None => tell("birth", life, of),
                    Some(was) if was.state != of.state => tell("state", life, of),
                    Some(_) => (),
                }
            }
        }
        news
    }
}

fn word<S: serde::Serializer>(state: &CloneState, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match state {
        CloneState::Starting => "starting",
        CloneState::Serving => "serving",
        CloneState::Draining => "draining",
        CloneState::Backoff => "backoff",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_changes_and_deaths_are_told_once_each() {
        let life = |number: u32, state| Life { clone: format!("shop/{number}"), node: "n1".into(), state };
        let seen = |lives: &[(&str, Life)]| -> Seen {
            [("shop".to_owned(), lives.iter().map(|(name, life)| ((*name).to_owned(), life.clone())).collect())].into()
        };
        let mut lives = Lives::default();
        let mut look = |now: Seen| -> Vec<String> {
            lives.look(now).into_iter().map(|(of, told)| format!("{of} {}", String::from_utf8_lossy(&told))).collect()
        };
        let (starts, serves) = (life(0, CloneState::Starting), life(0, CloneState::Serving));
        let born = r#"shop {"event":"birth","service":"shop","life":"n1.7.1","clone":"shop/0","node":"n1","state":"starting"}"#;
        assert_eq!(look(seen(&[("n1.7.1", starts)])), [born]);
        let told = look(seen(&[("n1.7.1", serves.clone()), ("n1.7.2", life(1, CloneState::Draining))]));
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("\"state\",\"service\"") && told[0].ends_with("\"serving\"}"), "{}", told[0]);
        assert!(look(seen(&[("n1.7.1", serves.clone()), ("n1.7.2", life(1, CloneState::Draining))])).is_empty());
        // A clone that is started anew is another life, though all else is the same.
        let told = look(seen(&[("n1.7.3", serves)]));
        let events: Vec<_> = told.iter().map(|told| &told[15..20]).collect();
        assert_eq!(events, ["death", "death", "birth"], "{told:?}");
        // Its service is declared no more.
        assert!(look(Seen::new())[0].contains("\"death\""));
        assert!(look(Seen::new()).is_empty());
    }
}
