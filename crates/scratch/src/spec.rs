//! What is declared of a `scratch` namespace.

use class::{Key, Quota, Wrong};
use serde_json::{Map, Value};

/// One declared namespace. What it may hold is fixed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spec {
    pub quota: Quota,
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[Quota::RATE_MAX];

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        Ok(Self { quota: Quota::read(keys)? })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        self.quota.write().collect()
    }

    fn validate(&self) -> Result<(), Wrong> {
        self.quota.validate()
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn may_follow(&self, _: &Self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn promise(&self) -> &'static str {
        "for tests: what a node was given it has until it ends, and no other node has it"
    }
}
