//! What one edge tells all others of what comes to it, so that priorities act over the edges of all nodes (`flow::doors`). It is sent
//! a few times a second while there is something to say. It may be lost or late, and its edge may be gone: then the others
//! admit without it.

use std::collections::BTreeMap;

use bytes::Bytes;
use flow::doors::Door;
use serde::{Deserialize, Serialize};

use crate::limits::DOORS_BYTES_MAX;

/// What one edge tells the others. The key names the clones that are asked: those of a service (`shop`) or
/// those reserved for a partition of it (`shop/pay`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Doors(pub BTreeMap<String, Says>);

/// [`Door`] in whole numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Says {
    /// Requests of each priority in 1000 seconds.
    pub rates: BTreeMap<u8, u64>,
    /// Requests under way, in thousandths.
    pub under_way: u64,
    pub size: u32,
    pub full: bool,
    pub takes_us: u64,
    /// Queue of [`Door`], in thousandths.
    pub queue: u64,
}

impl Doors {
    /// Bytes for a beacon. If not all doors fit into one, those to which most comes are sent.
    pub fn encode(&self) -> Bytes {
        let json = |doors: &Self| serde_json::to_vec(doors).expect("numbers and names become JSON");
        let bytes = json(self);
        if bytes.len() <= DOORS_BYTES_MAX {
            return bytes.into();
        }
        let mut busiest: Vec<_> = self.0.iter().collect();
        busiest.sort_by_key(|(_, says)| std::cmp::Reverse(says.rates.values().sum::<u64>()));
        loop {
            busiest.truncate(busiest.len() / 2);
            let bytes = json(&Self(busiest.iter().map(|(name, says)| ((*name).clone(), (*says).clone())).collect()));
            if bytes.len() <= DOORS_BYTES_MAX {
                return bytes.into();
            }
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > DOORS_BYTES_MAX { None } else { serde_json::from_slice(bytes).ok() }
    }
}

impl From<Door> for Says {
    fn from(door: Door) -> Self {
        let rates = (0..).zip(door.rates).filter(|(_, rate)| *rate > 0.0);
        Self {
            rates: rates.map(|(class, rate)| (class, thousandths(rate))).collect(),
            under_way: thousandths(door.under_way),
            size: door.size as u32,
            full: door.is_full,
            takes_us: (door.takes * 1e6) as u64,
            queue: thousandths(door.queue),
        }
    }
}

impl From<&Says> for Door {
    fn from(says: &Says) -> Self {
        let mut door = Door {
            under_way: says.under_way as f64 / 1e3,
            size: says.size.into(),
            is_full: says.full,
            takes: says.takes_us as f64 / 1e6,
            queue: says.queue as f64 / 1e3,
            ..Door::default()
        };
        for (class, rate) in &says.rates {
            // A priority that this version does not know is left out.
            if let Some(of_class) = door.rates.get_mut(usize::from(*class)) {
                *of_class = *rate as f64 / 1e3;
            }
        }
        door
    }
}

/// What is there is not nothing.
fn thousandths(number: f64) -> u64 {
    (number * 1e3).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let mut door = Door { under_way: 4.25, size: 14.0, is_full: true, takes: 0.025, queue: 1.5, ..Door::default() };
        (door.rates[3], door.rates[9]) = (120.5, 0.5);
        let says = Doors([("shop".to_owned(), Says::from(door))].into());
        let bytes = says.encode();
        let frozen = br#"{"shop":{"rates":{"3":120500,"9":500},"under_way":4250,"size":14,"full":true,"takes_us":25000,"queue":1500}}"#;
        assert_eq!(bytes, &frozen[..], "as it is on the wire");
        assert_eq!(Door::from(&Doors::decode(&bytes).unwrap().0["shop"]), door);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let newer = Doors::decode(br#"{"shop":{"rates":{"3":1000,"200":5},"more":1}}"#).unwrap();
        assert_eq!(Door::from(&newer.0["shop"]).rates.iter().sum::<f64>(), 1.0);
        assert_eq!(Doors::decode(b"{\"shop\":{\"size\":-1}}"), None);
        assert_eq!(Doors::decode(&[b' '; DOORS_BYTES_MAX + 1]), None);
    }

    #[test]
    fn of_too_many_the_busiest_are_told() {
        let says = |n: u64| Says { rates: [(5, n)].into(), ..Says::default() };
        let many = Doors((0..10_000).map(|n| (n.to_string(), says(n))).collect());
        let told = Doors::decode(&many.encode()).unwrap();
        assert!(
            told.0.len() > 100 && told.0.keys().all(|name| name.parse::<u64>().unwrap() > 9_000),
            "{}",
            told.0.len()
        );
    }
}
