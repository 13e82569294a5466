//! Processor time of the programs that are measured, with all that they have started.

use std::collections::HashMap;

/// What `/proc/PID/stat` says of one process: its parent, and its time with that of its children that have ended, in
/// ticks.
fn stat(text: &str) -> Option<(i32, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields.get(11..15)?.iter().filter_map(|n| n.parse::<u64>().ok()).sum();
    Some((parent, ticks))
}

/// A tick is that many microseconds: the kernel tells all programs of 100 a second.
const TICK_US: u64 = 10_000;

/// Microseconds that these processes and their descendants have used so far.
pub fn used_us(pids: &[i32]) -> f64 {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: HashMap<i32, (i32, u64)> = folders
        .filter_map(|folder| {
            let pid = folder.file_name().to_str()?.parse().ok()?;
            Some((pid, stat(&std::fs::read_to_string(folder.path().join("stat")).ok()?)?))
        })
        .collect();
    let is_ours = |mut pid: i32| loop {
        if pids.contains(&pid) {
            return true;
        }
        match all.get(&pid) {
            Some((parent, _)) if *parent > 1 => pid = *parent,
            _ => return false,
        }
    };
    let ticks: u64 = all.iter().filter(|(pid, _)| is_ours(**pid)).map(|(_, (_, ticks))| ticks).sum();
    (ticks * TICK_US) as f64
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_a_bracket_does_not_shift_the_fields() {
        let text = "7 (a) b) S 3 7 7 0 -1 4194304 100 0 0 0 10 20 3 4 20 0 1 0";
        assert_eq!(super::stat(text), Some((3, 37)));
        assert_eq!(super::stat("7 (a"), None);
    }

    #[test]
    fn who_works_has_used_time() {
        let me = [std::process::id().cast_signed()];
        let before = super::used_us(&me);
        let begun = std::time::Instant::now();
        while super::used_us(&me) <= before {
            assert!(begun.elapsed().as_secs() < 20, "no time was counted");
        }
    }
}
