//! What this process and its machine use, from `/proc`: processor time since the last look, and resident memory.

use std::time::Instant;

pub(crate) struct Vitals {
    at: Instant,
    ticks: u64,
    machine: MachineTicks,
}

/// Of all processors since the machine started.
#[derive(Clone, Copy, Default)]
struct MachineTicks {
    idle: u64,
    all: u64,
}

/// Linux shows processor time in hundredths of a second to every program, whatever the kernel was built with (USER_HZ).
const MICROS_PER_TICK: u64 = 10_000;

impl Vitals {
    pub fn new() -> Self {
        Self { at: Instant::now(), ticks: cpu_ticks().unwrap_or(0), machine: machine_ticks().unwrap_or_default() }
    }

    /// CPU in thousandths of one core since the last look, and resident bytes; 0 where `/proc` does not say.
    pub fn read(&mut self) -> (u32, u64) {
        let (at, ticks) = (Instant::now(), cpu_ticks().unwrap_or(self.ticks));
        let elapsed = at.duration_since(self.at).as_micros().max(1) as u64;
        let used = ticks.saturating_sub(self.ticks) * MICROS_PER_TICK;
        (self.at, self.ticks) = (at, ticks);
        (u32::try_from(used * 1000 / elapsed).unwrap_or(u32::MAX), resident_bytes().unwrap_or(0))
    }

    /// How busy all processors of the machine were since the last look, in thousandths; 0 where `/proc` does not say.
    pub fn machine_busy(&mut self) -> u64 {
        let now = machine_ticks().unwrap_or(self.machine);
        let before = std::mem::replace(&mut self.machine, now);
        let all = now.all.saturating_sub(before.all);
        let idle = now.idle.saturating_sub(before.idle).min(all);
        ((all - idle) * 1000).checked_div(all).unwrap_or(0)
    }
}

/// `cpu  user nice system idle iowait irq softirq steal ...`: what other machines took (steal) is busy for us.
fn machine_ticks() -> Option<MachineTicks> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    Some(MachineTicks { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
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
        assert!((1..=1000).contains(&vitals.machine_busy()), "the machine did that work");
        assert!(resident > 500_000, "{resident}");
    }
}
