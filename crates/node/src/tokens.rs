//! Join tokens as the root group keeps them: under the hash of their secret, with an end and a number of uses. The
//! change that admits a node is the one that uses the token up, so two newcomers cannot both be the last.

use std::collections::BTreeMap;

use base::NodeId;
use bytes::Bytes;
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};

use crate::JoinTokenView;
use crate::asks::hex;
use crate::declared::kind;
use crate::facts;
use crate::limits::JOIN_TOKENS_MAX;

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct JoinRecord {
    expires_wall_ms: u64,
    /// Nodes that may still join with it; none: any number (of an older program).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uses: Option<u32>,
}

/// How people tell tokens apart: enough of the hash, and nothing of the secret.
const NAME_CHARS: usize = 8;

pub(crate) fn name(secret_hash: &[u8; 32]) -> String {
    hex(&secret_hash[..NAME_CHARS / 2])
}

fn all(now: &Declared) -> impl Iterator<Item = (&str, JoinRecord)> {
    // A record that cannot be read has expired.
    let none = JoinRecord { expires_wall_ms: 0, uses: Some(0) };
    now.of_kind(kind::JOIN).map(move |(key, bytes)| (key, facts::decode(bytes).unwrap_or_else(|| none.clone())))
}

pub(crate) fn live(now: &Declared, wall_ms: u64) -> Vec<JoinTokenView> {
    let live = all(now).filter(|(_, record)| record.expires_wall_ms >= wall_ms);
    let view = |(key, record): (&str, JoinRecord)| JoinTokenView {
        name: key.chars().take(NAME_CHARS).collect(),
        expires_at_ms: record.expires_wall_ms,
        uses_left: record.uses,
    };
    live.map(view).collect()
}

pub(crate) fn add(
    now: &Declared,
    wall_ms: u64,
    secret_hash: &[u8; 32],
    expires_wall_ms: u64,
    uses: u32,
) -> Result<Change, String> {
    let expired = all(now).filter(|(_, record)| record.expires_wall_ms < wall_ms);
    let removes: Vec<(String, String)> = expired.map(|(key, _)| (kind::JOIN.to_owned(), key.to_owned())).collect();
    if now.of_kind(kind::JOIN).count() - removes.len() >= JOIN_TOKENS_MAX {
        return Err(format!("{JOIN_TOKENS_MAX} join tokens are live; wait until some expire, or revoke them"));
    }
    let record: Bytes = facts::encode(&JoinRecord { expires_wall_ms, uses: Some(uses) });
    Ok(Change { expect: None, puts: vec![(kind::JOIN.into(), hex(secret_hash), record)], removes })
}

pub(crate) fn revoke(now: &Declared, name: &str) -> Result<Change, String> {
    let its = |key: &&str| !name.is_empty() && key.starts_with(name);
    let found: Vec<&str> = all(now).map(|(key, _)| key).filter(its).collect();
    match found.as_slice() {
        [key] => {
            let removes = vec![(kind::JOIN.to_owned(), (*key).to_owned())];
            Ok(Change { expect: Some(now.version), puts: Vec::new(), removes })
        }
        [] => Err(format!("there is no join token {name:?}; `coppice token list` shows those that are live")),
        several => Err(format!("{name:?} begins the names of {} join tokens", several.len())),
    }
}

fn record(now: &Declared, secret_hash: &[u8; 32]) -> Option<JoinRecord> {
    facts::decode(now.get(kind::JOIN, &hex(secret_hash))?)
}

/// Is it good at this moment?
pub(crate) fn check(now: &Declared, wall_ms: u64, secret_hash: &[u8; 32]) -> Result<(), String> {
    match record(now, secret_hash) {
        None => Err("this cluster does not know the join token, or it was used; make one with `coppice token`".into()),
        Some(record) if record.expires_wall_ms < wall_ms => {
            Err("the join token has expired; make a new one with `coppice token`".into())
        }
        Some(_) => Ok(()),
    }
}

/// Lets a node in, and uses the token, which is good.
pub(crate) fn admit(now: &Declared, secret_hash: &[u8; 32], name: &str, id: NodeId) -> Result<Change, String> {
    let nodes: BTreeMap<&str, Option<NodeId>> =
        now.of_kind(kind::NODE).map(|(name, bytes)| (name, facts::decode(bytes))).collect();
    if nodes.contains_key(name) {
        return Err(format!("a node named {name:?} was admitted before; choose another name"));
    }
    let was = now.get(kind::FORMER, &crate::former::former_key(id)).is_some();
    if id == NodeId(0) || was || nodes.values().any(|other| *other == Some(id)) {
        return Err(format!("{id} is another node's id; try again"));
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    change.puts.push((kind::NODE.to_owned(), name.to_owned(), facts::encode(&id)));
    let key = hex(secret_hash);
    match record(now, secret_hash).ok_or("the join token is not there any more")? {
        JoinRecord { uses: None, .. } => (),
        JoinRecord { uses: Some(0 | 1), .. } => change.removes.push((kind::JOIN.to_owned(), key)),
        JoinRecord { uses: Some(uses), expires_wall_ms } => {
            let left = JoinRecord { uses: Some(uses - 1), expires_wall_ms };
            change.puts.push((kind::JOIN.to_owned(), key, facts::encode(&left)));
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn after(now: &Declared, change: Change) -> Declared {
        let mut records = now.records.clone();
        change.removes.iter().for_each(|key| drop(records.remove(key)));
        records.extend(change.puts.into_iter().map(|(kind, name, value)| ((kind, name), value)));
        Declared { version: now.version + 1, records }
    }

    fn with_token(uses: u32) -> Declared {
        let now = Declared { version: 1, ..Declared::default() };
        after(&now, add(&now, 0, &SECRET, 1_000, uses).unwrap())
    }

    #[test]
    fn a_token_lets_in_as_many_as_it_was_made_for() {
        let mut now = with_token(2);
        assert_eq!(
            live(&now, 5),
            [JoinTokenView { name: "07070707".into(), expires_at_ms: 1_000, uses_left: Some(2) }]
        );
        for n in 1..=2 {
            check(&now, 5, &SECRET).unwrap();
            now = after(&now, admit(&now, &SECRET, &format!("n{n}"), NodeId(n)).unwrap());
        }
        assert!(check(&now, 5, &SECRET).unwrap_err().contains("it was used"));
        assert_eq!((live(&now, 5), now.of_kind(kind::NODE).count()), (vec![], 2));
    }

    #[test]
    fn a_token_of_an_older_program_lets_in_any_number_until_it_expires() {
        let mut now = with_token(1);
        let old = Bytes::from_static(b"{\"expires_wall_ms\":1000}");
        now.records.insert((kind::JOIN.into(), hex(&SECRET)), old.clone());
        let now = after(&now, admit(&now, &SECRET, "n1", NodeId(1)).unwrap());
        assert_eq!(now.get(kind::JOIN, &hex(&SECRET)), Some(&old));
        assert!(check(&now, 1_000, &SECRET).is_ok());
        assert!(check(&now, 1_001, &SECRET).unwrap_err().contains("expired"));
    }

    #[test]
    fn ids_and_names_that_were_given_are_not_given_again() {
        let now = with_token(9);
        let now = after(&now, admit(&now, &SECRET, "n1", NodeId(1)).unwrap());
        let wrong = |name: &str, id| admit(&now, &SECRET, name, NodeId(id)).unwrap_err();
        assert!(wrong("n1", 2).contains("another name"));
        assert!(wrong("n2", 1).contains("another node's id") && wrong("n2", 0).contains("another node's id"));
    }

    #[test]
    fn a_revoked_token_is_gone() {
        let now = with_token(3);
        assert!(revoke(&now, "08").unwrap_err().contains("token list") && revoke(&now, "").is_err());
        let now = after(&now, revoke(&now, "0707").unwrap());
        assert!(check(&now, 5, &SECRET).is_err());
    }
}
