//! Who is let in: the nodes that the declaration names, under the names that it has for them. A certificate says who somebody is, not
//! that he still belongs here: it outlives a removal. So this is asked where something begins, and again whenever what is declared
//! changes. What records these are, and who hangs up, is the node's matter.

use std::collections::BTreeMap;

use base::NodeId;

use crate::Card;

/// What the declaration says of nodes, as far as this node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Admission {
    /// By id; a node has one name.
    pub named: BTreeMap<NodeId, String>,
    /// They were named, and never are again.
    pub gone: BTreeMap<NodeId, Gone>,
    /// Nobody else is let in. Not so while this node may have missed a declaration (it is new, was away for long, or is cut off from
    /// the root group): those whom it has not heard of may be all that is left of the cluster.
    pub strict: bool,
}

/// Why a node is not named any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// An operator removed it.
    Removed,
    /// Its disk forgot something: it is another one since.
    Anew,
    /// It was away for so long that nobody keeps any more what it missed: it may come back as another one.
    Away,
}

/// How somebody stands who shows a certificate of this cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    In,
    /// Not named, or not yet.
    Unheard,
    /// Named otherwise than he says.
    Misnamed,
    Gone(Gone),
}

impl Admission {
    pub fn of(&self, card: &Card) -> Word {
        match self.named.get(&card.id) {
            _ if self.gone.contains_key(&card.id) => Word::Gone(self.gone[&card.id]),
            Some(name) if *name == card.name => Word::In,
            Some(_) => Word::Misnamed,
            None => Word::Unheard,
        }
    }

    pub fn lets_in(&self, card: &Card) -> bool {
        match self.of(card) {
            Word::In => true,
            Word::Unheard => !self.strict,
            Word::Misnamed | Word::Gone(_) => false,
        }
    }

    /// The same of somebody who shows no card.
    pub fn lets_in_id(&self, id: NodeId) -> bool {
        !self.gone.contains_key(&id) && (!self.strict || self.named.contains_key(&id))
    }

    /// May it ask to be somebody else? A crash may have cut it short the last time.
    pub fn may_enter_anew(&self, id: NodeId) -> bool {
        self.lets_in_id(id) || matches!(self.gone.get(&id), Some(Gone::Anew | Gone::Away))
    }

    pub fn is_removed(&self, id: NodeId) -> bool {
        self.gone.get(&id) == Some(&Gone::Removed)
    }

    /// It is nobody, and nobody is what it was.
    pub fn is_without_heir(&self, id: NodeId) -> bool {
        matches!(self.gone.get(&id), Some(Gone::Removed | Gone::Away))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::tests::card;

    fn admission(strict: bool) -> Admission {
        let named = [1, 2].map(|n| (NodeId(n), format!("n{n}"))).into();
        let gone = [(NodeId(7), Gone::Removed), (NodeId(8), Gone::Anew), (NodeId(9), Gone::Away)].into();
        Admission { named, gone, strict }
    }

    #[test]
    fn who_is_named_is_in_under_his_name_alone() {
        let strict = admission(true);
        assert!(strict.lets_in(&card(1, 1)));
        assert!(!strict.lets_in(&Card { name: "n2".into(), ..card(1, 1) }), "another one's name");
        assert!(!strict.lets_in(&Card { name: "evil.example".into(), ..card(1, 1) }));
        assert!(!strict.lets_in(&card(3, 1)) && !strict.lets_in_id(NodeId(3)));
    }

    #[test]
    fn who_may_have_missed_something_lets_in_whom_he_has_not_heard_of_but_nobody_who_is_gone() {
        let lax = admission(false);
        assert!(lax.lets_in(&card(3, 1)) && lax.lets_in_id(NodeId(3)));
        assert!(lax.lets_in(&Card { name: "n2".into(), ..card(3, 1) }), "n2 may have entered anew meanwhile");
        assert!(!lax.lets_in(&Card { name: "n2".into(), ..card(1, 1) }));
        for gone in [7, 8, 9] {
            assert!(!lax.lets_in(&card(gone, 9)) && !lax.lets_in_id(NodeId(gone)));
        }
        assert!(!lax.may_enter_anew(NodeId(7)) && lax.may_enter_anew(NodeId(8)) && lax.may_enter_anew(NodeId(9)));
        assert!(lax.is_without_heir(NodeId(7)) && !lax.is_without_heir(NodeId(8)) && lax.is_without_heir(NodeId(9)));
        assert!(admission(true).may_enter_anew(NodeId(2)) && !admission(true).may_enter_anew(NodeId(3)));
    }
}
