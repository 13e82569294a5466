//! The cluster's authority, whose key signs the certificates of nodes, and how another one takes its place while nodes
//! run. Three turns, each begun by an operator's command when every node has followed the one before: all trust the new
//! one, too; all take certificates of it; the old one counts no more. What a node has followed it says with its report
//! ([`AUTHORITY_TURN`]); what following is stands in `coppice/src/certificate.rs`.

use base::process::Private;
use base::{Outcome, Refused, Unknown};
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};

use crate::declared::{Diff, json, kind};
use crate::limits::ASK_AGAIN;
use crate::node::Node;
use crate::view::NodeState;
use crate::{Admitted, facts};

/// The gauge by which a node says which turn it has followed.
pub const AUTHORITY_TURN: &str = "authority.turn";

/// The record.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Authority {
    pub cert_pem: String,
    pub key_pem: String,
    /// Is to take its place: all are to trust it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Keys>,
    /// Was in its place: trusted until all nodes have certificates of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<String>,
    /// Turns that were begun, three for each change of the authority.
    #[serde(default, skip_serializing_if = "is_zero")]
    turn: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Keys {
    cert_pem: String,
    key_pem: String,
}

/// A wish for the next turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The one that stands, as who wishes knows it: asked twice it is done once.
    pub from: u64,
    /// Another authority, used by the first turn alone.
    pub cert_pem: String,
    pub key_pem: Private,
}

/// How far it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuthorityView {
    pub turn: u64,
    /// 0: one authority; 1: a new one is to be trusted; 2: certificates are to be of the new one.
    pub step: u64,
    /// Nodes that have not followed.
    #[serde(default)]
    pub waits: Vec<String>,
}

/// The level from which there may be two: an older node would trust the first alone.
pub(crate) const LEVEL_ROTATE: u32 = 9;
const STEPS: u64 = 3;
const RECORD: &str = "ca";

impl Authority {
    pub fn of(now: &Declared) -> Option<Self> {
        facts::decode(now.get(kind::SECRET, RECORD)?)
    }

    /// What the host needs to sign for this node, and whom it is to trust.
    fn admits(self, id: base::NodeId) -> Admitted {
        let also = self.next.map(|next| next.cert_pem).into_iter().chain(self.former);
        Admitted {
            id,
            ca_cert: self.cert_pem.into(),
            ca_key: self.key_pem.into(),
            also: also.map(Into::into).collect(),
            turn: self.turn,
        }
    }

    fn step(&self) -> u64 {
        self.turn % STEPS
    }
}

/// The host signs a certificate for this node.
pub(crate) fn signs(id: base::NodeId, authority: Option<Authority>) -> Outcome<Admitted> {
    match authority {
        Some(authority) => Outcome::Done(authority.admits(id)),
        None => Outcome::Unknown(Unknown { why: "this node does not have the cluster's authority".into() }),
    }
}

/// The next turn; nothing if it was begun already.
fn turned(now: &Declared, wish: &Turn, waits: &[String]) -> Result<Option<Diff>, Refused> {
    let Some(mut is) = Authority::of(now) else {
        return Err(Refused::busy("this node does not have the cluster's authority", ASK_AGAIN));
    };
    if is.turn == wish.from + 1 {
        return Ok(None);
    }
    if is.turn != wish.from {
        return Err(Refused::wrong(format!("the authority stands at turn {}, not {}", is.turn, wish.from)));
    }
    if !waits.is_empty() {
        let why = format!("{} have not followed yet; one that does not come back can be removed", waits.join(", "));
        return Err(Refused::busy(why, ASK_AGAIN));
    }
    let line = match is.step() {
        0 => {
            let Some(key_pem) = wish.key_pem.text().filter(|key| !key.is_empty() && !wish.cert_pem.is_empty()) else {
                return Err(Refused::wrong("another authority is to be given".to_owned()));
            };
            is.next = Some(Keys { cert_pem: wish.cert_pem.clone(), key_pem: key_pem.to_owned() });
            "~ authority: all nodes are to trust a new one, too (1 of 3)"
        }
        1 => {
            let Some(Keys { cert_pem, key_pem }) = is.next.take() else {
                return Err(Refused::wrong("there is no new authority".to_owned()));
            };
            is.former = Some(std::mem::replace(&mut is.cert_pem, cert_pem));
            is.key_pem = key_pem;
            "~ authority: all nodes are to take certificates of the new one (2 of 3)"
        }
        _ => {
            is.former = None;
            "~ authority: the old one counts no more (3 of 3)"
        }
    };
    is.turn += 1;
    let puts = vec![(kind::SECRET.to_owned(), RECORD.to_owned(), json(&is))];
    let change = Change { expect: Some(now.version), puts, removes: Vec::new() };
    Ok(Some(Diff { lines: vec![line.to_owned()], change }))
}

impl Node {
    /// The change that begins the next turn, and its sentence.
    pub(crate) fn turn_authority(&self, wish: &Turn, lines: &mut Vec<String>) -> Result<Option<Change>, Refused> {
        let diff = turned(self.root.declared(), wish, &self.authority_waits())?;
        Ok(diff.map(|diff| {
            *lines = diff.lines;
            diff.change
        }))
    }

    pub(crate) fn authority_view(&self) -> AuthorityView {
        match Authority::of(self.root.declared()) {
            Some(is) if is.turn > 0 => AuthorityView { turn: is.turn, step: is.step(), waits: self.authority_waits() },
            _ => AuthorityView::default(),
        }
    }

    /// Declared nodes that have not said that they followed; those that are away may not have.
    fn authority_waits(&self) -> Vec<String> {
        let turn = Authority::of(self.root.declared()).map_or(0, |is| is.turn);
        let followed = |name: &str| {
            self.seen.values().any(|seen| {
                let at = || self.report_of(seen.card.id).gauges.get(AUTHORITY_TURN).copied();
                seen.card.name == name && seen.state == NodeState::Live && at().is_some_and(|at| at >= turn)
            })
        };
        let declared = self.root.declared().of_kind(kind::NODE).map(|(name, _)| name);
        declared.filter(|name| !followed(name)).map(str::to_owned).collect()
    }
}

fn is_zero(turn: &u64) -> bool {
    *turn == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::after;

    fn wish(from: u64) -> Turn {
        Turn { from, cert_pem: "new".into(), key_pem: Private("new key".into()) }
    }

    fn admits(now: &Declared) -> (String, String, Vec<String>, u64) {
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let Admitted { ca_cert, ca_key, also, turn, .. } = Authority::of(now).unwrap().admits(base::NodeId(1));
        (text(&ca_cert), text(&ca_key), also.iter().map(text).collect(), turn)
    }

    #[test]
    fn all_trust_the_new_one_before_it_signs_and_the_old_one_until_nothing_is_of_it() {
        let mut now = Declared { version: 1, ..Declared::default() };
        // As older programs wrote it.
        let first = br#"{"cert_pem":"old","key_pem":"old key"}"#.to_vec();
        now.records.insert((kind::SECRET.into(), RECORD.into()), first.clone().into());
        assert_eq!(json(&Authority::of(&now).unwrap()), first, "older programs read it until it is changed");
        let of = |cert: &str, also: &[&str], turn| {
            (cert.to_owned(), format!("{cert} key"), also.iter().map(|of| (*of).to_owned()).collect::<Vec<_>>(), turn)
        };
        for (from, expect) in [(0, of("old", &["new"], 1)), (1, of("new", &["old"], 2)), (2, of("new", &[], 3))] {
            let waits = vec!["n2".to_owned()];
            let why = turned(&now, &wish(from), &waits).err().unwrap();
            assert!(why.retry_after.is_some() && why.why.contains("n2"), "{why:?}");
            let diff = turned(&now, &wish(from), &[]).unwrap().unwrap();
            assert!(!diff.lines[0].contains("key"), "{:?}", diff.lines);
            now = after(&now, &diff.change);
            assert_eq!(admits(&now), expect);
            assert!(turned(&now, &wish(from), &waits).unwrap().is_none(), "who asks again begins nothing");
        }
        assert!(turned(&now, &wish(1), &[]).err().unwrap().why.contains("turn 3"));
        let kept = String::from_utf8(now.get(kind::SECRET, RECORD).unwrap().to_vec()).unwrap();
        assert!(!kept.contains("old"), "nothing is kept of it: {kept}");
        assert!(!crate::declared::export(&now).contains("new key"));
    }
}
