//! Bits of a live brick's table are flipped (SSM figure 11, there one bit of one value of one of six bricks): in values that
//! have just been written and are about to be read, in their keys, in their versions, which become years newer, and in whatever
//! else stands beside them in the table: ends of leases, lengths, pointers. Whatever comes of it at this brick, no client of any
//! node may get another value than the last one written, be told that there is none, or fail.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::onebrick::{NODES, Trial, VICTIM, report as common};
use crate::Plan;
use crate::client::{Conn, command};
use crate::faults::{Dice, Memory, Snapshot};
use crate::report::{Figure, Report};

pub const PARTS: [&str; 4] = ["values", "keys", "versions", "entries"];
/// Flips of each part: one for each key.
const KEYS: usize = 48;
const VALUE_BYTES: usize = 2048;
/// How far beside the pointer to a value bits are flipped: most of its entry, and some of its neighbours'.
const BESIDE: u64 = 136;
const BACK_WITHIN: f64 = 30.0;
/// A version that begins with a time this near is one of a value that was just written.
const JUST_NOW: Duration = Duration::from_secs(30);
/// The byte of such a time (of its eight) whose bits but the lowest are not set for centuries: with one of these it is years newer.
const YEARS: u64 = 5;
/// No answer of a door takes longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What clients were told of values that had a bit flipped.
#[derive(Default)]
struct Told {
    reads: u64,
    wrong: u64,
    absent: u64,
    failed: u64,
    first: Option<String>,
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("figure11");
    let mut trial = Trial::start()?;
    let mut asker = Asker::new(&trial)?;
    let apart = plan.seconds as f64;
    let mut dice = Dice::new(11);
    trial.running.wait_until(2.0 * apart);
    let (mut faults, mut over) = (Vec::new(), 0.0);
    let mut csv = "part,flipped,reads,wrong,absent,failed,damaged_found,brick_anew,process_ended,whole_s\n".to_owned();
    for part in PARTS.into_iter().filter(|part| plan.has(part)) {
        let before = trial.last().ok_or("the brick was never seen")?;
        let keys: Vec<String> = (0..KEYS).map(|n| format!("flipped:{part}:{}:{n:04}", std::process::id())).collect();
        let values = |turn: u32| keys.iter().map(move |key| value_of(key, turn));
        for (key, value) in keys.iter().zip(values(1)) {
            asker.set(0, key, &value)?;
        }
        let fault = trial.seconds();
        // It may have another process than at first.
        let pid = i32::try_from(before.pid).map_err(|e| e.to_string())?;
        let flipped = flip(&Memory::of(pid)?, part, &keys, &mut dice)?;
        faults.push(fault);
        let mut told = Told::default();
        // Every other one is written again unread: a read finds out who has what, and a write that follows knows it.
        for (key, value) in keys.iter().zip(values(1)).step_by(2) {
            asker.read_everywhere(key, &value, &mut told);
        }
        // What is written next must be found, too, and not what a flipped version makes newer.
        for (at, (key, value)) in keys.iter().zip(values(2)).enumerate() {
            let door = at % (usize::from(NODES) - 1);
            if let Err(why) = asker.set(door, key, &value) {
                told.failed += 1;
                told.first.get_or_insert(why);
                continue;
            }
            asker.read_everywhere(key, &value, &mut told);
        }
        std::thread::sleep(Duration::from_millis(500));
        let back = trial.wait(BACK_WITHIN, |sight| sight.is_live && sight.is_settled);
        let back = back.ok_or_else(|| format!("{part}: the brick is not whole {BACK_WITHIN} s later"))?;
        let after = trial.last().ok_or("the brick was never seen")?;
        let ended = after.pid != before.pid;
        let unwell = |sight: &super::onebrick::Sight| !sight.is_live || !sight.is_settled;
        let whole = trial.when(fault, unwell).map_or(0.0, |_| back - fault);
        over = back;
        let (anew, damaged) = (since(before.anew, after.anew), since(before.damaged, after.damaged));
        let how = trial.cluster.event("died", Duration::from_millis(u64::from(ended) * 500)).ok();
        let how = how.map_or_else(String::new, |event| format!(" ({})", event["how"].as_str().unwrap_or("?")));
        let Told { reads, wrong, absent, failed, first } = told;
        csv += &format!(
            "{part},{flipped},{reads},{wrong},{absent},{failed},{damaged},{anew},{},{whole:.2}\n",
            u8::from(ended)
        );
        for (measure, n) in [
            ("bits flipped", flipped as f64),
            ("values read that are not the last written", wrong as f64),
            ("values said to be absent", absent as f64),
            ("reads and writes failed", failed as f64),
        ] {
            report.figures.push(Figure::new(format!("{part}: {measure}"), "of all", n, "none", None));
        }
        report.figures.push(Figure::new(
            format!("{part}: until the brick is whole"),
            "s",
            whole,
            "SSM's paper",
            Some(11.0),
        ));
        report.notes.push(format!(
            "{part}: {reads} reads; the brick found {damaged} damaged and started anew {anew} times within its process, which {}{how}",
            if ended { "ended and was started again" } else { "went on" }
        ));
        report.notes.extend(first.map(|why| format!("{part}: first: {why}")));
        trial.running.wait_until(trial.seconds() + apart);
    }
    let (seen, until) = trial.end()?;
    report.write(&plan.out, "figure11-parts.csv", &csv)?;
    let first = faults.first().copied().unwrap_or(until);
    let title = "Bits of the table of one brick of five flipped (dashed)";
    common(plan, &mut report, (&seen, until), (first, over.max(first + 0.1)), &faults, title)?;
    Ok(report)
}

/// A counter of a process that may have begun anew.
fn since(before: f64, after: f64) -> f64 {
    if after >= before { after - before } else { after }
}

/// What a value begins with. The key itself is not in it: who looks for keys must not find values.
fn head_of(key: &str, turn: u32) -> Vec<u8> {
    format!("value {turn} written for{};", key.trim_start_matches("flipped")).into_bytes()
}

fn value_of(key: &str, turn: u32) -> Vec<u8> {
    let mut value = head_of(key, turn);
    value.resize(VALUE_BYTES, b'.');
    value
}

/// Flips one bit for each of these keys that the process holds: how many it were.
fn flip(memory: &Memory, part: &str, keys: &[String], dice: &mut Dice) -> Result<usize, String> {
    let snapshot = memory.snapshot()?;
    let mut heads = Vec::new();
    for key in keys {
        heads.push(snapshot.find(&head_of(key, 1)));
    }
    let mut values: Vec<u64> = heads.iter().flatten().copied().collect();
    values.sort_unstable();
    let pointers = if part == "entries" || part == "versions" { snapshot.pointers(&values) } else { Vec::new() };
    let mut count = 0;
    for (key, copies) in keys.iter().zip(&heads) {
        // Wherever it is: in the table, and in what buffers have left of it.
        let places: Vec<u64> = match part {
            "values" => {
                let (at, value) = (dice.below(VALUE_BYTES as u64), value_of(key, 1));
                // Behind what is left of one may be anything.
                let whole = copies.iter().filter(|place| snapshot.at(**place, VALUE_BYTES) == value);
                whole.map(|place| place + at).collect()
            }
            "keys" => {
                // Its number, so that it is another key's name.
                let at = key.len() as u64 - 1 - dice.below(4);
                snapshot.find(key.as_bytes()).into_iter().map(|place| place + at).collect()
            }
            _ => {
                // A handle has the length beside the pointer.
                let is_handle = |place: u64| {
                    let near = snapshot.at(place - 16, 40).as_chunks::<8>().0;
                    near.iter().any(|word| u64::from_le_bytes(*word) == VALUE_BYTES as u64)
                };
                let of = |(place, to): &(u64, u64)| (copies.contains(to) && is_handle(*place)).then_some(*place);
                let handles = pointers.iter().filter_map(of);
                if part == "versions" {
                    handles.flat_map(|place| times_beside(&snapshot, place)).map(|place| place + YEARS).collect()
                } else {
                    let beside = dice.below(2 * BESIDE);
                    handles.map(|place| place - BESIDE + beside).collect()
                }
            }
        };
        let bit = match part {
            "keys" => dice.below(3),
            "versions" => 1 + dice.below(7),
            _ => dice.below(8),
        };
        // What lies at the end of a range may have gone.
        let flipped = places.iter().filter(|place| memory.flip(**place, bit).is_ok()).count();
        count += usize::from(flipped > 0);
    }
    Ok(count)
}

/// Where the entry of this handle has a time of just now, in milliseconds since 1970: its version begins so.
fn times_beside(snapshot: &Snapshot, place: u64) -> Vec<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let from = place - BESIDE;
    let words = snapshot.at(from, 2 * BESIDE as usize).as_chunks::<8>().0.iter().enumerate();
    let just_now = |word: &[u8; 8]| now.abs_diff(u64::from_le_bytes(*word)) < JUST_NOW.as_millis() as u64;
    words.filter(|(_, word)| just_now(word)).map(|(at, _)| from + 8 * at as u64).collect()
}

/// One connection to each node.
struct Asker {
    runtime: tokio::runtime::Runtime,
    doors: Vec<std::net::SocketAddr>,
    auth: (String, String),
    conns: Vec<Option<Conn>>,
}

impl Asker {
    fn new(trial: &Trial) -> Result<Asker, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let auth = ("lab".to_owned(), trial.cluster.namespace_token("lab")?);
        let doors = trial.cluster.doors("resp");
        let conns = doors.iter().map(|_| None).collect();
        Ok(Asker { runtime, doors, auth, conns })
    }

    fn set(&mut self, door: usize, key: &str, value: &[u8]) -> Result<(), String> {
        self.ask(door, &[b"SET", key.as_bytes(), value, b"EX", b"600"], false).map(|_| ())
    }

    /// Twice at each node; what the ill one's own door does while its process is away is no answer.
    fn read_everywhere(&mut self, key: &str, value: &[u8], told: &mut Told) {
        for door in (0..self.doors.len()).chain(0..self.doors.len()) {
            told.reads += 1;
            let why = match self.ask(door, &[b"GET", key.as_bytes()], true) {
                Ok(Some(found)) if found == value => continue,
                Ok(Some(found)) => {
                    told.wrong += 1;
                    let head = String::from_utf8_lossy(&found[..found.len().min(60)]).into_owned();
                    format!("node {} has {head:?} for {key:?}", door + 1)
                }
                Ok(None) => {
                    told.absent += 1;
                    format!("node {} has nothing for {key:?}", door + 1)
                }
                Err(_) if door == VICTIM => continue,
                Err(why) => {
                    told.failed += 1;
                    format!("node {}: {why}", door + 1)
                }
            };
            told.first.get_or_insert(why);
        }
    }

    fn ask(&mut self, door: usize, words: &[&[u8]], gives_value: bool) -> Result<Option<Vec<u8>>, String> {
        let (addr, auth, conn) = (self.doors[door], &self.auth, &mut self.conns[door]);
        let asked = async {
            let mut open = match conn.take() {
                Some(open) => open,
                None => Conn::open(addr, Some(auth)).await?,
            };
            command(&mut open.out, words);
            open.send().await?;
            let answer = if gives_value { open.bulk().await? } else { open.status().await.map(|_| None)? };
            *conn = Some(open);
            Ok(answer)
        };
        // A time can only be waited for within the runtime.
        let asked = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
        asked.map_err(|_| format!("no answer within {PATIENCE:?}"))?
    }
}
