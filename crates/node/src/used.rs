//! What namespaces take of what they may: operations a second at this node's doors, and what they hold. Of that each
//! node tells what it has of them, all show the sum, and the root group's leader says when one comes near its bound.

use base::text::size_text;
use base::{Because, Now, Refused};
use state::NamespaceSpec;
use state::linear::limits::{SPLIT_BYTES, SPLIT_KEYS};

use crate::Node;
use crate::ask::Answer;
use crate::facts::UsedThere;
use crate::limits::{USED_AGAIN_BELOW, USED_TOLD_AT, USED_TOLD_MAX};
use crate::node::Out;
use crate::view::UsedView;

impl Node {
    /// Into the report: what the classes have of each here.
    pub(crate) fn take_stock_of_namespaces(&mut self) {
        let all = &mut self.report.used;
        all.clear();
        let held = self.classes.used().into_iter();
        for (name, used, bounds) in held.filter(|(_, used, _)| used.keys > 0 || used.bytes > 0) {
            let there = all.entry(name.to_owned()).or_default();
            there.bytes = there.bytes.saturating_add(used.bytes);
            there.keys = there.keys.saturating_add(used.keys);
            there.percent = there.percent.max(bounds.percent(used));
        }
        if all.len() > USED_TOLD_MAX {
            // Those that come near to a bound, and those that have most.
            let mut by: Vec<_> = all.iter().map(|(name, there)| (there.percent, there.bytes, name.clone())).collect();
            by.sort_unstable();
            by.truncate(by.len() - USED_TOLD_MAX);
            for (_, _, name) in by {
                all.remove(&name);
            }
        }
    }

    /// Follows what is declared.
    pub(crate) fn keep_rates(&mut self) {
        let mut before = std::mem::take(&mut self.rates);
        let rated = self.namespaces.iter().filter_map(|(name, spec)| Some((name, spec.quota().rate_max?)));
        self.rates =
            rated.map(|(name, most)| (name.clone(), (most, before.remove(name).unwrap_or_default().1))).collect();
    }

    /// The refusal of an operation, if its namespace has had what it may ask of this node.
    pub(crate) fn over_rate(&mut self, now: Now, op: &state::Op) -> Option<Answer> {
        // What is done together costs as much as one by one.
        let (namespace, count) = op.counts();
        let (most, rate) = self.rates.get_mut(namespace)?;
        let after = rate.admit(now.mono, *most, count).err()?;
        self.over_rates += 1;
        let refused = Refused::busy(format!("{OVER_RATE}, each node does {most} operations a second for it"), after)
            .because(Because::Rate);
        Some(op.refused(refused).into())
    }

    /// What a namespace has in all, copies not counted; as of the nodes' last reports. None of a class that tells
    /// nothing of it.
    pub(crate) fn used_view(&self, name: &str) -> Option<UsedView> {
        let spec = self.namespaces.get(name)?;
        let copies = self.classes.copies(spec, self.live_cards().count())?;
        let told = self.live_cards().filter_map(|card| self.report_of(card.id).used.get(name).copied());
        let all = told.fold(UsedThere::default(), |all, one| UsedThere {
            bytes: all.bytes.saturating_add(one.bytes),
            keys: all.keys.saturating_add(one.keys),
            percent: all.percent.max(one.percent),
        });
        let quota = spec.quota();
        Some(UsedView {
            bytes: all.bytes.div_ceil(copies),
            keys: all.keys.div_ceil(copies),
            bytes_max: spec.bytes_max(),
            keys_max: quota.keys_max,
            percent: all.percent,
        })
    }

    /// At the root group's leader: says it when a namespace whose shards are not declared grows so large that it would
    /// be split, if it said that it may be.
    pub(crate) fn keep_large(&mut self, now: Now, out: &mut Out) {
        let silent = |spec: &NamespaceSpec| spec.linear().is_some_and(|spec| spec.shards.is_none());
        let names: Vec<String> =
            self.namespaces.iter().filter(|(_, spec)| silent(spec)).map(|(name, _)| name.clone()).collect();
        self.large_told.retain(|name, _| names.contains(name));
        for name in names {
            let shards = self.placed.values().filter(|placed| placed.namespace == name).count();
            let used = self.used_view(&name).unwrap_or_default();
            let told = self.large_told.get(&name).copied().unwrap_or(0);
            let Some(reached) = reached(told, large_percent(&used, shards)) else { continue };
            self.large_told.insert(name.clone(), reached);
            if reached > told {
                self.decided(now, "shards", &name, large_text(&used, shards), out);
            }
        }
    }

    /// At the root group's leader: says it when a namespace comes near its bound, and when it is there.
    pub(crate) fn keep_used(&mut self, now: Now, out: &mut Out) {
        let bound: Vec<String> = self
            .namespaces
            .iter()
            .filter(|(_, spec)| spec.quota().bytes_max.is_some() || spec.quota().keys_max.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        self.used_told.retain(|name, _| bound.contains(name));
        for name in bound {
            let used = self.used_view(&name).unwrap_or_default();
            let told = self.used_told.get(&name).copied().unwrap_or(0);
            let Some(reached) = reached(told, used.percent) else { continue };
            self.used_told.insert(name.clone(), reached);
            if reached > told {
                self.decided(now, "quota", &name, text(&used), out);
            }
        }
    }
}

/// Why an operation was refused for its namespace's rate begins with this.
pub const OVER_RATE: &str = "rate_max of this namespace is reached";

/// The step that is told now, if it is another one than was told last.
fn reached(told: u32, percent: u32) -> Option<u32> {
    let step = USED_TOLD_AT.into_iter().rev().find(|step| percent >= *step).unwrap_or(0);
    // One that goes up and down around a step says it once.
    let is_down = step < told && percent < USED_AGAIN_BELOW;
    (step > told || is_down).then_some(step)
}

/// How much it has of what makes a shard large.
fn large_percent(used: &UsedView, shards: usize) -> u32 {
    let of = |has: u64, most: u64| has.saturating_mul(100) / most.saturating_mul(shards.max(1) as u64);
    u32::try_from(of(used.keys, SPLIT_KEYS as u64).max(of(used.bytes, SPLIT_BYTES as u64))).unwrap_or(u32::MAX)
}

fn large_text(used: &UsedView, shards: usize) -> String {
    let (keys, bytes, most) = (used.keys, size_text(used.bytes), size_text(SPLIT_BYTES as u64));
    let (s, are) = if shards == 1 { ("", "is") } else { ("s", "are") };
    format!(
        "has {keys} keys, {bytes}, in {shards} shard{s}, which {are} not split, as its declaration does not say shards: from {SPLIT_KEYS} \
         keys or {most} a shard on, starts and moves of one take longer. If its programs bear it that keys lie apart, declare shards = \
         \"auto\""
    )
}

fn text(used: &UsedView) -> String {
    let bytes = used.bytes_max.map(|most| format!("{} of bytes_max = {}", size_text(used.bytes), size_text(most)));
    let keys = used.keys_max.map(|most| format!("{} of keys_max = {most}", used.keys));
    let what = bytes.into_iter().chain(keys).collect::<Vec<_>>().join(", ");
    let then = if used.percent >= 100 { "; what would be more is refused there" } else { "" };
    format!("has {what}: {} % where it is fullest{then}", used.percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_large_shards_are_goes_by_the_keys_or_bytes_of_each() {
        let has = |keys, bytes| UsedView { keys, bytes, ..UsedView::default() };
        for (used, shards, percent) in [
            (has(799_999, 0), 1, 79),
            (has(800_000, 0), 1, 80),
            (has(800_000, 0), 2, 40),
            (has(3, 256 << 20), 1, 100),
            (has(3, 256 << 20), 0, 100),
            (has(u64::MAX, u64::MAX), 1, u32::MAX),
        ] {
            assert_eq!(large_percent(&used, shards), percent, "{used:?} {shards}");
        }
        assert!(
            large_text(&has(800_000, 5), 1).starts_with("has 800000 keys, 5 bytes, in 1 shard, which is not split")
        );
    }

    #[test]
    fn each_step_is_said_once_and_again_when_there_was_room_meanwhile() {
        let mut told = 0;
        let mut said = Vec::new();
        for percent in [10, 79, 80, 95, 79, 81, 100, 130, 99, 100, 71, 80, 69, 80, 100, 0, 101] {
            if let Some(reached) = reached(told, percent) {
                if reached > told {
                    said.push((percent, reached));
                }
                told = reached;
            }
        }
        assert_eq!(said, [(80, 80), (100, 100), (80, 80), (100, 100), (101, 100)]);
    }

    #[test]
    fn people_read_how_much_it_is() {
        let used = UsedView { bytes: 1 << 19, keys: 9, bytes_max: Some(1 << 20), keys_max: Some(10), percent: 90 };
        assert_eq!(text(&used), "has 512KiB of bytes_max = 1MiB, 9 of keys_max = 10: 90 % where it is fullest");
        let full = text(&UsedView { bytes_max: None, percent: 100, ..used });
        assert_eq!(full, "has 9 of keys_max = 10: 100 % where it is fullest; what would be more is refused there");
    }
}
