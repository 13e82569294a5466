//! What a node says of many services, as several facts: a head, and parts that each hold some services whole. So it may be longer than
//! one fact, and only parts in which something changed travel. Each service has its part by its name, whatever others do. The head
//! lists the parts with a hash of each: who reads takes all of them as they were said together, or waits for those that are missing.
//!
//! What is short stays one fact, as programs before [`crate::LEVEL_PARTS`] say it always.

use std::collections::BTreeMap;

use base::checksum::place_hash;
use bytes::Bytes;

use crate::limits::{PART_BYTES, PARTS, PARTS_MAX};

/// The values of facts that say one thing together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parted {
    /// All of it, if there are no parts.
    pub head: Bytes,
    /// By their numbers.
    pub parts: BTreeMap<u32, Bytes>,
}

impl Parted {
    pub fn whole(head: Bytes) -> Self {
        Self { head, parts: BTreeMap::new() }
    }
}

/// The part of each service, by what the services take there at most, bytes.
pub(crate) fn numbers<'a>(services: &BTreeMap<&'a str, usize>) -> BTreeMap<&'a str, u32> {
    // By slot: how many parts it has besides the first, and what is in the last one.
    let mut slots: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
    let number = |(service, bytes): (&&'a str, &usize)| {
        let slot = (place_hash(service.as_bytes()) % u64::from(PARTS)) as u32;
        let (more, filled) = slots.entry(slot).or_default();
        if *filled > 0 && *filled + bytes > PART_BYTES {
            (*more, *filled) = (*more + 1, 0);
        }
        *filled += bytes;
        (*service, slot + *more * PARTS)
    };
    services.iter().map(number).collect()
}

/// Numbers and hashes of parts, as a head lists them.
pub(crate) fn list(parts: &BTreeMap<u32, Bytes>) -> (Vec<u32>, Vec<u64>) {
    parts.iter().map(|(number, bytes)| (*number, place_hash(bytes))).unzip()
}

/// The parts that a head lists. None if one of them is not here, or is another than was meant.
pub(crate) fn listed<'a>(
    numbers: &[u32],
    hashes: &[u64],
    part: impl Fn(u32) -> Option<&'a Bytes>,
) -> Option<Vec<&'a Bytes>> {
    if numbers.len() != hashes.len() || numbers.len() > PARTS_MAX {
        return None;
    }
    let meant = |(number, hash): (&u32, &u64)| part(*number).filter(|bytes| place_hash(bytes) == *hash);
    numbers.iter().zip(hashes).map(meant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SERVICES_MAX;

    #[test]
    fn a_service_stays_in_its_part_whatever_others_do_and_parts_that_are_full_are_followed_by_others() {
        let names: Vec<String> = (0..SERVICES_MAX).map(|n| format!("s{n}")).collect();
        let all: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 100)).collect();
        let before = numbers(&all);
        let (mut less, gone) = (all.clone(), names[7].as_str());
        less.remove(gone);
        let after = numbers(&less);
        assert!(after.iter().all(|(service, part)| before[service] == *part));
        let mut filled: BTreeMap<u32, usize> = BTreeMap::new();
        before.values().for_each(|part| *filled.entry(*part).or_default() += 1);
        assert!(filled.len() == PARTS as usize && filled.values().all(|services| *services < 80), "{filled:?}");

        let large: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), PART_BYTES / 2)).collect();
        let mut filled: BTreeMap<u32, usize> = BTreeMap::new();
        numbers(&large).values().for_each(|part| *filled.entry(*part).or_default() += 1);
        assert!(filled.values().all(|services| *services <= 2), "{filled:?}");
    }
}
