//! Versions of values, and the hybrid logical clock that makes them (Kulkarni et al. 2014): as near to the wall clock
//! as it may be, never twice the same, never behind what this node has seen.

use std::fmt;
use std::str::FromStr;

use base::{Boot, NodeId};
use serde::{Deserialize, Serialize};

/// Orders the writes of one key. Text form: 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Version {
    /// Milliseconds since 1970 by the writer's clock, or ahead of it where it had to overtake another version.
    pub ms: u64,
    /// Orders versions of one millisecond; its low bits are the writer's boot, so that no life repeats another's.
    pub counter: u32,
    /// Who gave it.
    pub node: NodeId,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}{:016x}", self.ms, self.counter, self.node.0)
    }
}

/// The text is not 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAVersion;

impl fmt::Display for NotAVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version is 40 hexadecimal digits")
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        if text.len() != 40 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotAVersion);
        }
        let hex = |from: usize, to: usize| u64::from_str_radix(&text[from..to], 16).map_err(|_| NotAVersion);
        let counter = u32::try_from(hex(16, 24)?).map_err(|_| NotAVersion)?;
        Ok(Self { ms: hex(0, 16)?, counter, node: NodeId(hex(24, 40)?) })
    }
}

/// The clock of one life of one node.
#[derive(Clone, Debug)]
pub struct Clock {
    node: NodeId,
    boot_bits: u32,
    ms: u64,
    ticks: u32,
    /// Highest `ticks` of a version given.
    ticks_max: u32,
    /// The clock was there before it was stepped back. Up to there, ticks begin above all that were given before.
    stepped_from: u64,
    floor: u32,
}

/// Bits of the counter that carry the boot.
const BOOT_BITS: u32 = 10;
const TICKS_END: u32 = 1 << (32 - BOOT_BITS);

impl Clock {
    pub fn new(node: NodeId, boot: Boot) -> Self {
        let boot_bits = (boot.0 & ((1 << BOOT_BITS) - 1)) as u32;
        Self { node, boot_bits, ms: 0, ticks: 0, ticks_max: 0, stepped_from: 0, floor: 0 }
    }

    /// The wall clock moved. The clock never goes back with it.
    pub fn wall(&mut self, wall_ms: u64) {
        if wall_ms > self.ms {
            self.go_to(wall_ms, 0);
        }
    }

    fn go_to(&mut self, ms: u64, ticks: u32) {
        if ms > self.stepped_from {
            self.floor = 0;
        }
        (self.ms, self.ticks) = (ms, ticks.max(self.floor));
    }

    /// A version after every one given or seen before.
    pub fn tick(&mut self) -> Version {
        if self.ticks + 1 >= TICKS_END {
            self.go_to(self.ms.saturating_add(1), 0);
        }
        self.ticks += 1;
        self.ticks_max = self.ticks_max.max(self.ticks);
        Version { ms: self.ms, counter: (self.ticks << BOOT_BITS) | self.boot_bits, node: self.node }
    }

    /// Moves past a version that another clock gave.
    pub fn pass(&mut self, seen: Version) {
        let ticks = (seen.counter >> BOOT_BITS) + 1;
        if seen.ms > self.ms {
            self.go_to(seen.ms, ticks);
        } else if seen.ms == self.ms {
            self.ticks = self.ticks.max(ticks);
        }
    }

    pub fn ms(&self) -> u64 {
        self.ms
    }

    /// Goes back to this time. Versions given from here on differ from those given before, whenever that was.
    pub fn step_back(&mut self, ms: u64) {
        if ms >= self.ms || self.ticks_max >= TICKS_END / 2 {
            return;
        }
        self.stepped_from = self.stepped_from.max(self.ms);
        self.floor = self.ticks_max + 1;
        (self.ms, self.ticks) = (ms, self.floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_only_go_up_whatever_the_wall_clock_does() {
        let mut clock = Clock::new(NodeId(7), Boot(3));
        let mut last = Version::default();
        for wall in [1000, 1000, 900, 1001, 0, 1001] {
            clock.wall(wall);
            let next = clock.tick();
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        let foreign = Version { ms: 5000, counter: u32::MAX, node: NodeId(u64::MAX) };
        clock.pass(foreign);
        assert!(clock.tick() > foreign);
    }

    #[test]
    fn two_lives_of_a_node_do_not_repeat_a_version() {
        let version = |boot| {
            let mut clock = Clock::new(NodeId(7), Boot(boot));
            clock.wall(1000);
            clock.tick()
        };
        assert_ne!(version(1), version(2));
    }

    #[test]
    fn text_and_back() {
        let version = Version { ms: 0x018f_0000_1234, counter: 77, node: NodeId(0xabc) };
        assert_eq!(version.to_string(), "0000018f000012340000004d0000000000000abc");
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!("xyz".parse::<Version>(), Err(NotAVersion));
        assert_eq!("é".repeat(20).parse::<Version>(), Err(NotAVersion));
    }

    #[test]
    fn no_version_is_given_twice_however_often_the_clock_is_put_back() {
        let mut clock = Clock::new(NodeId(7), Boot(3));
        let mut given = std::collections::BTreeSet::new();
        let mut rng = base::Rng::new(1);
        clock.wall(1000);
        for _ in 0..10_000 {
            match rng.below(5) {
                0 => clock.step_back(1000 + rng.below(8)),
                1 => clock.wall(1000 + rng.below(12)),
                2 => clock.pass(Version { ms: 1000 + rng.below(10), counter: rng.below(4096) as u32, node: NodeId(9) }),
                _ => assert!(given.insert(clock.tick())),
            }
        }
    }
}
