//! What an operator has taken out of use for a while: a node that is drained, a service, one clone, a partition. Declared
//! and kept like everything that is declared, so a restart of the node or of the whole cluster does not bring it back.

use std::collections::BTreeSet;
use std::fmt;

use crate::CloneId;

/// One thing that can be taken out of use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A node, by its name: it gets no clones, and those that it has move elsewhere.
    Node(String),
    /// A service: its clones end and its requests are refused.
    Service(String),
    /// One clone: it ends, and the service's other clones serve.
    Clone(CloneId),
    /// A partition: its requests are refused.
    Partition { service: String, name: String },
}

/// All that is out of use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Off(BTreeSet<Target>);

impl Target {
    /// As people write what belongs to services: `shop`, `shop/2`, `shop:search`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not \"SERVICE\", \"SERVICE/NUMBER\" (a clone) or \"SERVICE:PARTITION\"");
        let target = if let Some((service, name)) = text.split_once(':') {
            Target::Partition { service: service.into(), name: name.into() }
        } else if let Some((service, number)) = text.split_once('/') {
            Target::Clone(CloneId::new(service, number.parse().map_err(|_| wrong())?))
        } else {
            Target::Service(text.into())
        };
        let empty = match &target {
            Target::Node(name) | Target::Service(name) => name.is_empty(),
            Target::Clone(id) => id.service.is_empty(),
            Target::Partition { service, name } => service.is_empty() || name.is_empty(),
        };
        if empty { Err(wrong()) } else { Ok(target) }
    }

    /// Name of its record in the root group.
    pub fn record(&self) -> String {
        match self {
            Target::Node(name) => format!("node/{name}"),
            Target::Service(_) | Target::Clone(_) | Target::Partition { .. } => format!("part/{self}"),
        }
    }

    /// None for a record of a newer version.
    pub fn from_record(name: &str) -> Option<Self> {
        match name.split_once('/')? {
            ("node", name) => Some(Target::Node(name.into())),
            ("part", text) => Self::parse(text).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(name) | Target::Service(name) => f.write_str(name),
            Target::Clone(id) => write!(f, "{id}"),
            Target::Partition { service, name } => write!(f, "{service}:{name}"),
        }
    }
}

impl Off {
    pub fn from_records<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self(names.filter_map(Target::from_record).collect())
    }

    pub fn node(&self, name: &str) -> bool {
        self.0.contains(&Target::Node(name.into()))
    }

    pub fn service(&self, name: &str) -> bool {
        self.0.contains(&Target::Service(name.into()))
    }

    pub fn clone(&self, id: &CloneId) -> bool {
        self.0.contains(&Target::Clone(id.clone()))
    }

    pub fn partition(&self, service: &str, name: &str) -> bool {
        self.0.contains(&Target::Partition { service: service.into(), name: name.into() })
    }

    /// Parts of this service, itself included, as people write them.
    pub fn of_service<'a>(&'a self, service: &'a str) -> impl Iterator<Item = String> + 'a {
        let is_its = move |target: &&Target| match target {
            Target::Node(_) => false,
            Target::Service(name) => name == service,
            Target::Clone(id) => id.service == service,
            Target::Partition { service: of, .. } => of == service,
        };
        self.0.iter().filter(is_its).map(ToString::to_string)
    }

    /// Clones that are off by themselves.
    pub fn clones(&self) -> BTreeSet<CloneId> {
        self.0
            .iter()
            .filter_map(|target| match target {
                Target::Clone(id) => Some(id.clone()),
                Target::Node(_) | Target::Service(_) | Target::Partition { .. } => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_from_its_record() {
        for text in ["shop", "shop/2", "shop:search", "shop:a/b"] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(Target::from_record(&target.record()), Some(target));
        }
        let node = Target::Node("n2".into());
        assert_eq!(Target::from_record(&node.record()), Some(node));
        assert_eq!(Target::from_record("galaxy/7"), None);
    }

    #[test]
    fn what_is_nothing_of_a_service_says_what_would_be() {
        for text in ["", "shop/", "shop/x", "/2", ":search", "shop:", "shop/-1"] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains("SERVICE/NUMBER"), "{error}");
        }
    }
}
