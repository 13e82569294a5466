//! Whether a declaration fits the nodes that are there: it is refused before anything is changed if it does not.

use std::collections::BTreeMap;

use cluster::{Card, Door};
use serde_json::{Map, Value};
use state::{Class, NamespaceSpec};
use toml::Spanned;

use crate::declared::{self, File, at_key};
use crate::node::Node;

impl Node {
    /// Whether what a declaration needs of nodes is there: free ports, the classes and built-in services that it names,
    /// and programs that know its keys.
    pub(crate) fn fits_here(&self, file: &str, text: &str) -> Result<(), String> {
        declared::is_understood(file, text, self.agreed().max(self.level_of_all()))?;
        declared::free_ports(file, text, &self.doors())?;
        has_classes(file, text, |class| self.classes.lacks(class))?;
        declared::has_builtins(file, text, self.builtins)
    }

    /// Ports on which live nodes listen themselves, and for what.
    fn doors(&self) -> BTreeMap<u16, String> {
        let of = |card: &Card| {
            let name = card.name.clone();
            let text = move |door: Door| format!("where node {name} listens ({})", door.about().purpose);
            card.doors.open().map(move |(door, at)| (at.port(), text(door)))
        };
        self.live_cards().flat_map(of).collect()
    }
}

/// A node may have been started without what a class of the declaration needs: `lacks` says why.
fn has_classes(file: &str, text: &str, lacks: impl Fn(Class) -> Option<&'static str>) -> Result<(), String> {
    // What cannot be read is told by `declared::diff`.
    let Ok(parsed) = toml::from_str::<File>(text) else { return Ok(()) };
    let wrong = |(name, spec): (&String, &Spanned<Map<String, Value>>)| {
        let why = lacks(NamespaceSpec::read(spec.get_ref()).ok()?.class())?;
        Some(at_key(file, text, &parsed, &format!("namespace.{name}.class"), why))
    };
    let errors: Vec<String> = parsed.namespace.iter().filter_map(wrong).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_these_nodes_were_not_started_for_is_refused_with_its_line() {
        let text = "[namespace.carts]\nclass = \"session\"\n[namespace.notes]\nclass = \"cache\"\n";
        let lacks = |class: Class| (class == Class::Cache).then_some("not here");
        assert_eq!(has_classes("shop.toml", text, lacks), Err("shop.toml:4: namespace.notes.class: not here".into()));
        assert_eq!(has_classes("shop.toml", text, |_| None), Ok(()));
        assert_eq!(has_classes("shop.toml", "[namespace.notes]\nclass = 7\n", lacks), Ok(()), "that is told elsewhere");
    }
}
