//! What Prometheus' own libraries tell of a process, under their names, from `/proc`. What the system does not say is left out.

use std::fs;

/// Units of processor time a second in `/proc`, whatever the kernel's own are.
const TICKS: f64 = 100.0;

/// Name, kind, sentence, value.
pub type Figure = (&'static str, &'static str, &'static str, f64);

/// Of this process.
pub fn figures() -> Vec<Figure> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/stat").unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
    of(&stat, &status, &limits, &kernel, open)
}

fn of(stat: &str, status: &str, limits: &str, kernel: &str, open: Option<f64>) -> Vec<Figure> {
    // The program's name, in brackets, may have anything in it. After it, the first is field 3 (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |nth: usize| fields.get(nth - 3)?.parse::<f64>().ok();
    let line = |text: &str, head: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(head))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let cpu = || Some((field(14)? + field(15)?) / TICKS);
    let began = || Some(line(kernel, "btime ")? + field(22)? / TICKS);
    let kib = |head: &str| Some(line(status, head)? * 1024.0);
    let all = [
        ("process_cpu_seconds_total", "counter", "Processor time of this node's process, seconds.", cpu()),
        (
            "process_max_fds",
            "gauge",
            "Files and sockets that this node's process may have open.",
            line(limits, "Max open files"),
        ),
        ("process_open_fds", "gauge", "Files and sockets that this node's process has open.", open),
        ("process_resident_memory_bytes", "gauge", "Resident memory of this node's process.", kib("VmRSS:")),
        ("process_start_time_seconds", "gauge", "When this node's process began, seconds since 1970.", began()),
        ("process_threads", "gauge", "Threads of this node's process.", line(status, "Threads:")),
        ("process_virtual_memory_bytes", "gauge", "Address space of this node's process.", kib("VmSize:")),
    ];
    all.into_iter().filter_map(|(name, kind, about, value)| Some((name, kind, about, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_whatever_the_program_is_called_and_what_is_missing_is_left_out() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1000 1 1 1";
        let told = of(stat, "VmSize:\t 8 kB\nVmRSS:\t  4 kB\nThreads:\t9\n", "", "cpu 1\nbtime 1700000000\n", None);
        let told: Vec<(&str, f64)> = told.into_iter().map(|(name, _, _, value)| (name, value)).collect();
        assert_eq!(
            told,
            [
                ("process_cpu_seconds_total", 3.0),
                ("process_resident_memory_bytes", 4096.0),
                ("process_start_time_seconds", 1_700_000_010.0),
                ("process_threads", 9.0),
                ("process_virtual_memory_bytes", 8192.0),
            ]
        );
        assert_eq!(figures().len(), 7, "of this very process all is known");
    }
}
