//! Faults that are done to a node from outside, as SSM's section 5 does them: bits of its memory and of a register are
//! flipped, and packets that it sends are lost. The shipped program is what runs; nothing in it helps.
//!
//! Memory is read and written as the file `/proc/PID/mem`, which its parent's user may. A register is reached by `gdb`.
//! Packets are dropped by `nft` where they come in, in a network of the experiment's own.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use memchr::memmem::Finder;

/// Random enough for faults, and the same for each run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `end`, which is not 0 (splitmix64).
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// The memory of a process that runs.
pub struct Memory {
    pid: i32,
    file: File,
}

/// What a process had allocated at one moment, or nearly one.
pub struct Snapshot(Vec<(u64, Vec<u8>)>);

impl Snapshot {
    /// Where these bytes lie.
    pub fn find(&self, what: &[u8]) -> Vec<u64> {
        let finder = Finder::new(what);
        self.0.iter().flat_map(|(from, bytes)| finder.find_iter(bytes).map(move |at| from + at as u64)).collect()
    }

    /// What lies there, up to so many bytes.
    pub fn at(&self, place: u64, most: usize) -> &[u8] {
        let holds = |(from, bytes): &&(u64, Vec<u8>)| (*from..from + bytes.len() as u64).contains(&place);
        let Some((from, bytes)) = self.0.iter().find(holds) else { return &[] };
        let at = (place - from) as usize;
        &bytes[at..bytes.len().min(at + most)]
    }

    /// Where addresses lie that are among these, which are in order: place and address.
    pub fn pointers(&self, to: &[u64]) -> Vec<(u64, u64)> {
        let (Some(first), Some(last)) = (to.first(), to.last()) else { return Vec::new() };
        let mut found = Vec::new();
        for (from, bytes) in &self.0 {
            for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let address = u64::from_le_bytes(*word);
                if address >= *first && address <= *last && to.binary_search(&address).is_ok() {
                    found.push((from + 8 * at as u64, address));
                }
            }
        }
        found
    }
}

const PAGE_BYTES: u64 = 4096;

impl Memory {
    pub fn of(pid: i32) -> Result<Memory, String> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let file = file.map_err(|e| format!("the memory of process {pid} cannot be opened: {e}"))?;
        Ok(Memory { pid, file })
    }

    /// All that it has allocated and used: an allocator holds far more that nobody has touched yet.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        let pages = File::open(format!("/proc/{}/pagemap", self.pid)).map_err(|e| e.to_string())?;
        let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
        for (from, to) in self.allocated()? {
            let mut marks = vec![0; ((to - from) / PAGE_BYTES * 8) as usize];
            if pages.read_exact_at(&mut marks, from / PAGE_BYTES * 8).is_err() {
                continue;
            }
            let mut page = from;
            for mark in marks.as_chunks::<8>().0 {
                // The highest bit says that it is in memory.
                if u64::from_le_bytes(*mark) >> 63 == 1 {
                    let mut bytes = [0; PAGE_BYTES as usize];
                    // What has been given back meanwhile cannot be read.
                    if self.file.read_exact_at(&mut bytes, page).is_ok() {
                        match all.last_mut() {
                            Some((from, before)) if *from + before.len() as u64 == page => before.extend(bytes),
                            _ => all.push((page, bytes.to_vec())),
                        }
                    }
                }
                page += PAGE_BYTES;
            }
        }
        Ok(Snapshot(all))
    }

    /// Ranges that can be written and are of no file: heaps and stacks.
    fn allocated(&self) -> Result<Vec<(u64, u64)>, String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).map_err(|e| e.to_string())?;
        Ok(maps.lines().filter_map(range_of).collect())
    }

    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.file.read_exact_at(bytes, at).map_err(|e| format!("{at:#x} of process {} cannot be read: {e}", self.pid))
    }

    /// Flips one bit, 0 to 7, of the byte there.
    pub fn flip(&self, at: u64, bit: u64) -> Result<(), String> {
        let mut byte = [0];
        self.read(at, &mut byte)?;
        let flipped = [byte[0] ^ (1 << (bit % 8))];
        self.file.write_all_at(&flipped, at).map_err(|e| format!("{at:#x} of process {}: {e}", self.pid))
    }
}

/// Of a line of `/proc/PID/maps`.
fn range_of(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (range, rights, _, _, inode) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let (from, to) = range.split_once('-')?;
    let is_own = rights.starts_with("rw") && inode == "0" && !words.next().is_some_and(|name| name.starts_with("[v"));
    is_own.then_some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

/// A thread of a process, by its name.
fn thread_of(pid: i32, name: &str) -> Result<i32, String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())?;
    let is_it = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let it = tasks.filter_map(Result::ok).find(is_it);
    let id = it.and_then(|task| task.file_name().to_str()?.parse().ok());
    id.ok_or_else(|| format!("process {pid} has no thread {name:?}"))
}

/// Flips a bit of the stack pointer of a thread that sleeps or runs, by `gdb`. The process stands still meanwhile, for some
/// tenths of a second, as those did that SSM traced.
pub fn flip_stack_pointer(pid: i32, thread: &str, bit: u32) -> Result<(), String> {
    let id = thread_of(pid, thread)?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|e| e.to_string())?;
    let register = match std::env::consts::ARCH {
        "x86_64" => "$rsp",
        _ => "$sp",
    };
    let mut gdb = Command::new("gdb");
    gdb.args(["--batch", "-nx", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]);
    // Names of functions are not needed, and take long to read while the process stands still.
    gdb.args(["-iex", "set auto-solib-add off", "-iex", "set sysroot /nonexistent"]);
    // Of a program that was built with debug information gdb would read what follows as Rust.
    gdb.args(["-iex", "set language c"]).arg(program);
    gdb.args(["-ex", &format!("attach {id}"), "-ex", &format!("p/x (unsigned long){register}")]);
    gdb.args(["-ex", &format!("set {register} = (unsigned long){register} ^ {:#x}", 1u64 << (bit % 64))]);
    gdb.args(["-ex", &format!("p/x (unsigned long){register}"), "-ex", "detach"]);
    let output = gdb.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("gdb cannot be started ({e}); it is in the package gdb"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |n: u32| said.lines().find_map(|line| line.strip_prefix(&format!("${n} = ")).map(str::to_owned));
    match (of(1), of(2)) {
        (Some(before), Some(after)) if before != after => Ok(()),
        _ => Err(format!("gdb flipped nothing: {said}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Set for an experiment that runs within a network of its own.
const APART: &str = "COPPICE_LAB_APART";

/// Runs this command of `lab` again in a network of its own, where packets may be dropped, and ends with it. Returns at once
/// in there.
pub fn enter_network() -> Result<(), String> {
    if std::env::var_os(APART).is_some() {
        return run(Command::new("ip").args(["link", "set", "lo", "up"]), "iproute2");
    }
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--net").arg(own).args(std::env::args_os().skip(1)).env(APART, "1");
    let status = command.status().map_err(|e| format!("unshare cannot be started ({e}); it is in util-linux"))?;
    std::process::exit(status.code().unwrap_or(1));
}

/// While held, so many of a hundred packets that one node sends to others are lost. Only within [`enter_network`].
pub struct Loss;

impl Loss {
    /// Those from this address, but for answers of doors at these ports, by which the experiment looks at the node.
    pub fn of(from: std::net::IpAddr, percent: u8, but: &[u16]) -> Result<Loss, String> {
        let but = but.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let lost = format!("numgen random mod 100 < {percent} drop");
        let rules = format!(
            "table inet lab {{\n chain hears {{\n  type filter hook input priority 0; policy accept;\n  \
             ip saddr {from} tcp sport != {{ {but} }} {lost}\n  ip saddr {from} ip protocol udp {lost}\n }}\n}}\n"
        );
        run(Command::new("nft").arg(rules), "nftables").map(|()| Loss)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        let _ = run(Command::new("nft").args(["delete", "table", "inet", "lab"]), "nftables");
    }
}

/// What goes between nodes, which are at one machine's addresses: counted, and dropped on demand. Only within [`enter_network`].
pub struct Between {
    but: String,
}

impl Between {
    /// All packets but those to and from doors at these ports.
    pub fn of(but: &[u16]) -> Result<Between, String> {
        let but = but.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let between = Between { but };
        let rules = "table inet lab {\n counter between { }\n chain counts {\n  \
                     type filter hook output priority 0; policy accept;\n }\n chain hears {\n  \
                     type filter hook input priority 0; policy accept;\n }\n}\n";
        nft(&[rules])?;
        between.rule("counts", "", "counter name between")?;
        Ok(between)
    }

    /// What is not asked of doors.
    fn rule(&self, chain: &str, of: &str, what: &str) -> Result<(), String> {
        let but = &self.but;
        nft(&[&format!("add rule inet lab {chain} {of} tcp sport != {{ {but} }} tcp dport != {{ {but} }} {what}")])?;
        nft(&[&format!("add rule inet lab {chain} {of} meta l4proto udp {what}")])
    }

    /// Nothing comes from this address, or goes to it.
    pub fn cut(&self, of: std::net::IpAddr) -> Result<(), String> {
        self.rule("hears", &format!("ip saddr {of} ip daddr != {of}"), "drop")?;
        self.rule("hears", &format!("ip daddr {of} ip saddr != {of}"), "drop")
    }

    /// Loses so many of a hundred packets that come.
    pub fn lose(&self, percent: u8) -> Result<(), String> {
        self.rule("hears", "", &format!("numgen random mod 100 < {percent} drop"))
    }

    pub fn heal(&self) -> Result<(), String> {
        nft(&["flush chain inet lab hears"])
    }

    /// That were sent, with heads of packets.
    pub fn bytes(&self) -> Result<f64, String> {
        let output = Command::new("nft").args(["list", "counter", "inet", "lab", "between"]).output();
        let said = String::from_utf8_lossy(&output.map_err(|e| e.to_string())?.stdout).into_owned();
        let number = said.split_whitespace().skip_while(|word| *word != "bytes").nth(1);
        number.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| format!("nft counts nothing: {said}"))
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        let _ = nft(&["delete table inet lab"]);
    }
}

fn nft(words: &[&str]) -> Result<(), String> {
    run(Command::new("nft").args(words), "nftables")
}

fn run(command: &mut Command, package: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|e| format!("{name} cannot be started ({e}); it is in the package {package}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_its_own_is_searched() {
        let heap = "7f1a2000-7f1a4000 rw-p 00000000 00:00 0 ";
        assert_eq!(range_of(heap), Some((0x7f1a_2000, 0x7f1a_4000)));
        assert_eq!(range_of("55d0a000-55d0b000 rw-p 00000000 00:00 0   [heap]"), Some((0x55d0_a000, 0x55d0_b000)));
        for other in [
            "7f1a2000-7f1a4000 r--p 00000000 00:00 0 ",
            "7f1a2000-7f1a4000 rw-p 00001000 fe:01 1234 /usr/lib/libc.so.6",
            "7ffd1000-7ffd3000 rw-p 00000000 00:00 0 [vvar]",
        ] {
            assert_eq!(range_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_bit_of_a_process_is_found_and_flipped() {
        // Not what the compiler has put into the program itself.
        let secret: Vec<u8> = format!("sought-{}", std::process::id()).into_bytes().repeat(3);
        let own = Memory::of(std::process::id().cast_signed()).expect("its own memory");
        let at = secret.as_ptr() as u64;
        assert!(own.snapshot().expect("its own memory").find(&secret).contains(&at));
        own.flip(at + 3, 2).expect("its own memory");
        let mut now = vec![0; secret.len()];
        own.read(at, &mut now).expect("its own memory");
        assert_eq!((now[3] ^ b'g', &now[..3], &now[4..]), (4, &b"sou"[..], &secret[4..]));
    }
}
