//! What this process uses, from `/proc`: processor time since the last look, and resident memory.

use std::time::Instant;

pub(crate) struct Vitals {
    at: Instant,
    ticks: u64,
}

/// Linux shows processor time in hundredths of a second to every program, whatever the kernel was built with (USER_HZ).
const MICROS_PER_TICK: u64 = 10_000;

impl Vitals {
    pub fn new() -> Self {
        Self { at: Instant::now(), ticks: cpu_ticks().unwrap_or(0) }
    }

    /// CPU in thousandths of one core since the last look, and resident bytes; 0 where `/proc` does not say.
    pub fn read(&mut self) -> (u32, u64) {
        let (at, ticks) = (Instant::now(), cpu_ticks().unwrap_or(self.ticks));
        let elapsed = at.duration_since(self.at).as_micros().max(1) as u64;
        let used = ticks.saturating_sub(self.ticks) * MICROS_PER_TICK;
        (self.at, self.ticks) = (at, ticks);
        (u32::try_from(used * 1000 / elapsed).unwrap_or(u32::MAX), resident_bytes().unwrap_or(0))
    }
}

fn cpu_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; what follows its last `)` begins with field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_processor_time_and_memory_is_more_than_nothing() {
        let mut vitals = Vitals::new();
        let mut sum = 0u64;
        let start = Instant::now();
        while start.elapsed().as_millis() < 100 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        let (cpu_millis, resident) = vitals.read();
        assert!(cpu_millis > 50, "{cpu_millis}");
        assert!(resident > 500_000, "{resident}");
    }
}
