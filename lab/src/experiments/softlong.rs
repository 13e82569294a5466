//! The long parts of `soft`: a million entries, and what it costs to bring them to a node, to join what two sides did, to keep them on
//! disk and to forget them; loss between nodes; idle namespaces. They run only if they are asked for (`--part cut`).
//!
//! Bytes between nodes are counted by `nft`, and packets are dropped by it, in a network of the experiment's own: those parts need root,
//! or a kernel that lets users make networks (`unshare --user --net`), and say so.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::closed::Shape;
use crate::experiments::memory::resident;
use crate::faults::{Between, enter_network};
use crate::load::Target;
use crate::peers::Redis;
use crate::procs::used_us;
use crate::report::{Figure, Report, median};
use crate::space::Space;
use crate::words::{Does, load};

pub const PARTS: [&str; 7] = ["cut", "away", "fill", "memory", "checkpoint", "loss", "idle"];
/// Parts that drop packets or count their bytes.
const APART: [&str; 5] = ["cut", "away", "fill", "loss", "idle"];
const VALUE_BYTES: usize = 100;
/// Commands that are sent at once.
const BATCH: usize = 500;
/// Longer than anything here is to take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether all have the same.
const LOOKS: Duration = Duration::from_millis(5);
const CUT: Duration = Duration::from_secs(30);
const CHANGED: usize = 1_000;
/// An index with more updates waits for nobody who is dead (`INDEX_MAX` of `crates/soft/src/limits.rs`).
const INDEX_MAX: usize = 1 << 20;
const UPDATES_A_SECOND: u64 = 5_000;
/// Updates a second while packets are lost.
const SLOW_A_SECOND: u64 = 50;
const NAMESPACES: usize = 100;

/// Measures, and tells.
type Part = fn(&Plan, &mut Report) -> Result<(), String>;

pub fn run(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let asked = |part: &str| plan.parts.iter().any(|wanted| wanted == part);
    if APART.into_iter().any(asked) {
        enter_network().map_err(|why| format!("{why} (parts {} need a network of their own)", APART.join(", ")))?;
    }
    report.notes.push(format!(
        "long parts: {} entries of {VALUE_BYTES} B; `peer` is what is to be reached, or Redis",
        plan.entries
    ));
    let all: [(&str, Part); 7] = [
        ("cut", cut),
        ("away", away),
        ("fill", fill),
        ("memory", memory),
        ("checkpoint", checkpoint),
        ("loss", loss),
        ("idle", idle),
    ];
    for (_, part) in all.into_iter().filter(|(name, _)| asked(name)) {
        part(plan, report)?;
    }
    Ok(())
}

fn goal(report: &mut Report, measure: impl Into<String>, unit: &str, is: f64, goal: f64) {
    report.figures.push(Figure::new(measure, unit, is, "goal", Some(goal)));
}

/// A plain connection for commands that are sent in numbers.
struct Pipe {
    stream: BufReader<TcpStream>,
}

impl Pipe {
    fn open(at: SocketAddr, target: &Target) -> Result<Pipe, String> {
        let stream = TcpStream::connect(at).map_err(|e| format!("{at}: {e}"))?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(|e| e.to_string())?;
        let mut pipe = Pipe { stream: BufReader::new(stream) };
        if let Some((user, token)) = &target.auth {
            pipe.ask(&format!("AUTH {user} {token}"))?;
        }
        Ok(pipe)
    }

    fn tell(&mut self, commands: &str) -> Result<(), String> {
        self.stream.get_mut().write_all(commands.as_bytes()).map_err(|e| e.to_string())
    }

    /// A line of an answer; an error of the server is one.
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(|e| e.to_string())?;
        match line.trim_end() {
            "" => Err("the connection was closed".into()),
            said if said.starts_with('-') => Err(said.to_owned()),
            said => Ok(said.to_owned()),
        }
    }

    /// An inline command with a short answer.
    fn ask(&mut self, command: &str) -> Result<String, String> {
        self.tell(&format!("{command}\r\n"))?;
        self.line()
    }

    /// Values of these keys.
    fn values(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, String> {
        let mut all = Vec::with_capacity(keys.len());
        for some in keys.chunks(BATCH) {
            self.tell(&words(&[&["MGET"], &some.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat()))?;
            self.line()?;
            for _ in some {
                all.push(if self.line()? == "$-1" { None } else { Some(self.line()?) });
            }
        }
        Ok(all)
    }

    /// Sets these keys to what the mark says, many at once.
    fn set(&mut self, keys: impl Iterator<Item = usize>, mark: &str) -> Result<(), String> {
        let keys: Vec<usize> = keys.collect();
        for some in keys.chunks(BATCH) {
            let all: String = some.iter().map(|n| words(&["SET", &key(*n), &value(*n, mark)])).collect();
            self.tell(&all)?;
            for _ in some {
                self.line()?;
            }
        }
        Ok(())
    }
}

fn words(words: &[&str]) -> String {
    let each: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{each}", words.len())
}

fn key(n: usize) -> String {
    format!("entry:{n:08}")
}

fn value(n: usize, mark: &str) -> String {
    format!("{:x<VALUE_BYTES$}", format!("{n}:{mark}:"))
}

/// A figure of a node.
fn figure(api: SocketAddr, name: &str) -> Result<f64, String> {
    let page = crate::load::http_get(api, "/metrics", None)?;
    let line = page.lines().find(|line| line.split([' ', '{']).next() == Some(name));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    number.ok_or_else(|| format!("{api} shows no {name}"))
}

fn until(what: &str, mut is: impl FnMut() -> Result<bool, String>) -> Result<Duration, String> {
    let begun = Instant::now();
    while !is()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what}: not within {PATIENCE:?}"));
        }
        std::thread::sleep(LOOKS);
    }
    Ok(begun.elapsed())
}

/// A cluster whose namespace has all entries, at every node.
fn full(plan: &Plan, nodes: u8, lines: &str) -> Result<Space, String> {
    let space = Space::start(nodes, &format!("class = \"soft\"\nsize_max = \"4GiB\"\n{lines}"))?;
    let at = space.target.addrs[0];
    Pipe::open(at, &space.target)?.set(0..plan.entries, "first")?;
    for api in space.cluster.doors("api") {
        until("all nodes have all entries", || Ok(figure(api, "coppice_soft_keys")? as usize >= plan.entries))?;
    }
    Ok(space)
}

/// What is between nodes: all but what doors are asked.
fn between(space: &Space) -> Result<Between, String> {
    let doors = ["api", "resp", "http"].into_iter().flat_map(|door| space.cluster.doors(door));
    Between::of(&doors.map(|door| door.port()).collect::<Vec<_>>())
}

/// All nodes read this of each of these.
fn all_read(space: &Space, wanted: &BTreeMap<String, String>) -> Result<Duration, String> {
    let mut pipes =
        space.target.addrs.iter().map(|at| Pipe::open(*at, &space.target)).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<String> = wanted.keys().cloned().collect();
    until("all nodes read the same", || {
        for pipe in &mut pipes {
            let values = pipe.values(&keys)?;
            if !values.iter().zip(wanted.values()).all(|(is, wanted)| is.as_ref() == Some(wanted)) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

fn cut(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let (mut seconds, mut times) = (Vec::new(), Vec::new());
    let changed = CHANGED.min(plan.entries / 2);
    for round in 0..plan.rounds {
        let space = full(plan, 3, "")?;
        let net = between(&space)?;
        std::thread::sleep(Duration::from_secs(2));
        let alone = space.target.addrs[2];
        net.cut(alone.ip())?;
        let begun = Instant::now();
        let mut wanted = BTreeMap::new();
        for (at, keys) in [(space.target.addrs[0], 0..changed), (alone, changed..2 * changed)] {
            let mark = format!("cut {round}");
            // Until it is known that the others are gone writes wait for them.
            Pipe::open(at, &space.target)?.set(keys.clone(), &mark)?;
            wanted.extend(keys.map(|n| (key(n), value(n, &mark))));
        }
        std::thread::sleep(CUT.saturating_sub(begun.elapsed()));
        let before = net.bytes()?;
        net.heal()?;
        let took = all_read(&space, &wanted)?;
        let bytes = net.bytes()? - before;
        seconds.push(took.as_secs_f64());
        times.push(bytes / (2 * changed * (VALUE_BYTES + key(0).len())) as f64);
    }
    goal(report, format!("{} s cut, {changed} changed on each side: equal", CUT.as_secs()), "s", median(seconds), 1.0);
    goal(report, "... bytes between all nodes, of those changed", "times", median(times), 3.0);
    Ok(())
}

fn away(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let (mut parts, mut seconds) = (Vec::new(), Vec::new());
    let changed = (plan.entries / 100).max(1);
    for round in 0..plan.rounds {
        let space = full(plan, 3, "copies = 1\ncheckpoint = \"off\"")?;
        let net = between(&space)?;
        let (near, alone) = (space.target.addrs[0], space.target.addrs[2]);
        net.cut(alone.ip())?;
        let api = space.cluster.doors("api");
        until("the others take it for dead", || Ok(live(api[0])? < 3))?;
        // More updates than are remembered for who is dead.
        let mark = format!("away {round}");
        let mut pipe = Pipe::open(near, &space.target)?;
        pipe.set((0..INDEX_MAX + INDEX_MAX / 8).map(|n| n % changed), &mark)?;
        let mut apart = Pipe::open(alone, &space.target)?;
        apart.set(changed..changed + 10, &mark)?;
        for at in &api[..2] {
            until("what was done is forgotten", || Ok(figure(*at, "coppice_soft_index")? < (INDEX_MAX / 4) as f64))?;
        }
        let before = net.bytes()?;
        net.heal()?;
        let wanted = (0..changed + 10).map(|n| (key(n), value(n, &mark))).collect();
        seconds.push(all_read(&space, &wanted)?.as_secs_f64());
        until("it is compared", || Ok(figure(api[2], "coppice_soft_transfers_total")? > 0.0))?;
        let compared = net.bytes()? - before;
        parts.push(compared / transfer(&space, &net, plan)?.1);
    }
    goal(report, "away past collection, 1 % changed: bytes of a full transfer", "part", median(parts), 0.05);
    report.figures.push(Figure::new("... equal", "s", median(seconds), "", None));
    Ok(())
}

/// Nodes that a node takes for live.
fn live(api: SocketAddr) -> Result<usize, String> {
    let status = crate::cluster::Cluster::look(api)?;
    Ok(status["nodes"].as_array().into_iter().flatten().filter(|node| node["state"] == "live").count())
}

/// The third node is killed, and has everything again: seconds and bytes.
fn transfer(space: &Space, net: &Between, plan: &Plan) -> Result<(f64, f64), String> {
    let api = space.cluster.doors("api")[2];
    let before = net.bytes()?;
    space.cluster.kill(2)?;
    std::thread::sleep(Duration::from_millis(300));
    let has_all = || {
        let settled = figure(api, "coppice_soft_settled").is_ok_and(|is| is > 0.0);
        settled && figure(api, "coppice_soft_keys").is_ok_and(|keys| keys as usize >= plan.entries)
    };
    let mut begun = None;
    until("it has all again", || {
        // From when it is there.
        if begun.is_none() && figure(api, "coppice_soft_settled").is_ok() {
            begun = Some(Instant::now());
        }
        Ok(has_all())
    })?;
    Ok((begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()), net.bytes()? - before))
}

fn fill(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let (mut seconds, mut mib, mut slower) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let space = full(plan, 3, "checkpoint = \"off\"")?;
        let net = between(&space)?;
        let others = Target { addrs: space.target.addrs[..2].to_vec(), ..space.target.clone() };
        let shape = Shape { clients: 20, length: Duration::from_secs(plan.seconds), each: 1 };
        let calm = load(&others, &space.cluster.pids(), Does::Half, &shape)?.out.p99_us;
        let beside = std::thread::spawn({
            let (others, pids) = (others.clone(), space.cluster.pids());
            move || load(&others, &pids, Does::Half, &shape)
        });
        std::thread::sleep(Duration::from_millis(600));
        let (took, bytes) = transfer(&space, &net, plan)?;
        let busy = beside.join().map_err(|_| "the load ended badly")??.out;
        if busy.failed + busy.wrong > 0 {
            report.notes.push(format!("fill: {} failed and {} wrong while a node was filled", busy.failed, busy.wrong));
        }
        seconds.push(took);
        mib.push(bytes / f64::from(1 << 20));
        slower.push(busy.p99_us / calm);
    }
    goal(report, format!("new node, {} entries", plan.entries), "s", median(seconds), 5.0);
    goal(report, "... others' p99, of that before", "times", median(slower), 2.0);
    report.figures.push(Figure::new("... bytes", "MiB", median(mib), "", None));
    Ok(())
}

fn memory(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..plan.rounds {
        let space = Space::start(1, "class = \"soft\"\nsize_max = \"4GiB\"")?;
        let pid = space.cluster.pid(0).ok_or("no pid")?;
        let (each, left) = grown(plan, &space.target, pid)?;
        drop(space);
        let redis = Redis::start(0)?;
        let (theirs, their_left) = grown(plan, &redis.target, redis.pid())?;
        for (what, is) in [("each", each), ("left", left), ("theirs", theirs), ("their left", their_left)] {
            all.entry(what).or_default().push(is);
        }
    }
    let of = |what: &str| median(all.get(what).cloned().unwrap_or_default());
    let (each, theirs) = (of("each"), of("theirs"));
    report.figures.push(Figure::new("resident memory of an entry", "bytes", each, "redis", Some(theirs)));
    report.figures.push(Figure::new(
        "... 60 s after all are removed, of that",
        "part",
        of("left"),
        "redis",
        Some(of("their left")),
    ));
    Ok(())
}

/// Resident bytes of an entry, and what is left of that when all have been removed.
fn grown(plan: &Plan, target: &Target, pid: i32) -> Result<(f64, f64), String> {
    let mut pipe = Pipe::open(target.addrs[0], target)?;
    pipe.set(0..BATCH, "first")?;
    let before = resident(pid)?;
    pipe.set(0..plan.entries, "first")?;
    // A settling while: checkpoints, and what the index forgets.
    std::thread::sleep(Duration::from_secs(30));
    let full = resident(pid)? - before;
    // The answer may say that it goes on.
    let said = pipe.ask("FLUSHDB");
    if !said.as_ref().is_ok_and(|said| said == "+OK") && !said.as_ref().is_err_and(|why| why.contains("UNKNOWN")) {
        return Err(format!("FLUSHDB: {said:?}"));
    }
    until("all is removed", || Ok(pipe.ask("DBSIZE")? == ":0"))?;
    std::thread::sleep(Duration::from_secs(60));
    Ok((full / plan.entries as f64, (resident(pid)? - before).max(0.0) / full))
}

/// Updates that leave by the clock, over one connection, and how long each took; in microseconds, in order.
fn paced(pipe: Pipe, entries: usize, for_: Duration) -> Result<Vec<f64>, String> {
    let sent: Arc<Mutex<std::collections::VecDeque<Instant>>> = Arc::default();
    let mut out = pipe.stream.get_ref().try_clone().map_err(|e| e.to_string())?;
    let (due, begun) = (Arc::clone(&sent), Instant::now());
    let count = UPDATES_A_SECOND * for_.as_secs();
    let writer = std::thread::spawn(move || {
        let mut at = 0u64;
        while at < count {
            let now = (begun.elapsed().as_micros() as u64 * UPDATES_A_SECOND / 1_000_000).min(count);
            let mut all = String::new();
            for n in at..now {
                let n = (n as usize).wrapping_mul(7_919) % entries;
                all += &words(&["SET", &key(n), &value(n, "paced")]);
            }
            let moments = (at..now).map(|n| begun + Duration::from_micros(n * 1_000_000 / UPDATES_A_SECOND));
            due.lock().expect("nobody panics holding it").extend(moments);
            if out.write_all(all.as_bytes()).is_err() {
                return;
            }
            at = now;
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut pipe, mut took) = (pipe, Vec::new());
    for _ in 0..count {
        pipe.line()?;
        let due =
            sent.lock().expect("nobody panics holding it").pop_front().ok_or("an answer that nobody asked for")?;
        took.push(due.elapsed().as_micros() as f64);
    }
    writer.join().map_err(|_| "the writer ended badly")?;
    Ok(took)
}

fn checkpoint(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let (mut pauses, mut calm_pauses, mut more) = (Vec::new(), Vec::new(), Vec::new());
    let length = Duration::from_secs(25);
    for _ in 0..plan.rounds {
        let lines = |every: &str| format!("class = \"soft\"\nsize_max = \"4GiB\"\ncheckpoint = \"{every}\"\n");
        let space = full(plan, 1, "checkpoint = \"off\"")?;
        let pid = space.cluster.pid(0).ok_or("no pid")?;
        let most = |took: Vec<f64>| took.into_iter().fold(0.0, f64::max) / 1_000.0;
        let open = || Pipe::open(space.target.addrs[0], &space.target);
        calm_pauses.push(most(paced(open()?, plan.entries, length)?));
        let before = resident(pid)?;
        let peak = Arc::new(Mutex::new((before, true)));
        let watcher = std::thread::spawn({
            let peak = Arc::clone(&peak);
            move || loop {
                let mut peak = peak.lock().expect("nobody panics holding it");
                let (most, goes_on) = *peak;
                *peak = (most.max(resident(pid).unwrap_or(0.0)), goes_on);
                drop(peak);
                if !goes_on {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // One that begins writes everything first, and then what changes.
        space.cluster.apply(&format!("[namespace.lab]\n{}", lines("5s")))?;
        let took = paced(open()?, plan.entries, length)?;
        peak.lock().expect("nobody panics holding it").1 = false;
        watcher.join().map_err(|_| "the watcher ended badly")?;
        pauses.push(most(took));
        let (most, _) = *peak.lock().expect("nobody panics holding it");
        more.push((most - before) / before);
    }
    let what = format!("checkpoints of {} entries under {UPDATES_A_SECOND} updates/s: longest answer", plan.entries);
    goal(report, what, "ms", median(pauses), 5.0);
    report.figures.push(Figure::new("... the same without checkpoints", "ms", median(calm_pauses), "", None));
    goal(report, "... more memory meanwhile", "part", median(more), 0.25);
    Ok(())
}

fn loss(plan: &Plan, report: &mut Report) -> Result<(), String> {
    for (percent, goal_ms) in [(10u8, 300.0), (30, 600.0)] {
        let mut all = Vec::new();
        for round in 0..plan.rounds {
            let space = Space::start(3, "class = \"soft\"\ncopies = 1")?;
            let net = between(&space)?;
            net.lose(percent)?;
            let count = SLOW_A_SECOND * plan.seconds * 4;
            let mark = format!("loss {round}");
            let sent: Arc<Mutex<Vec<Instant>>> = Arc::default();
            let readers: Vec<_> = space.target.addrs[1..]
                .iter()
                .map(|at| {
                    let (pipe, sent, mark) = (Pipe::open(*at, &space.target), Arc::clone(&sent), mark.clone());
                    std::thread::spawn(move || seen(pipe?, &sent, count as usize, &mark))
                })
                .collect();
            let mut pipe = Pipe::open(space.target.addrs[0], &space.target)?;
            for n in 0..count as usize {
                sent.lock().expect("nobody panics holding it").push(Instant::now());
                pipe.set(n..=n, &mark)?;
                std::thread::sleep(Duration::from_micros(1_000_000 / SLOW_A_SECOND));
            }
            let mut ms = readers
                .into_iter()
                .map(|reader| reader.join().map_err(|_| "a reader ended badly")?)
                .collect::<Result<Vec<Vec<f64>>, String>>()?;
            // Everywhere: at the later of the two.
            let (one, other) = (ms.pop().unwrap_or_default(), ms.pop().unwrap_or_default());
            let mut later: Vec<f64> = one.into_iter().zip(other).map(|(a, b)| a.max(b)).collect();
            later.sort_by(f64::total_cmp);
            all.push(later.get(later.len() * 999 / 1_000).copied().unwrap_or(0.0));
        }
        goal(report, format!("{percent} % loss: 99.9 % of updates everywhere"), "ms", median(all), goal_ms);
    }
    Ok(())
}

/// Milliseconds until each of these is read here.
fn seen(mut pipe: Pipe, sent: &Mutex<Vec<Instant>>, count: usize, mark: &str) -> Result<Vec<f64>, String> {
    let mut ms = vec![None; count];
    let begun = Instant::now();
    while ms.iter().any(Option::is_none) {
        if begun.elapsed() > PATIENCE {
            return Err("some updates did not come".into());
        }
        let moments = sent.lock().expect("nobody panics holding it").clone();
        let open: Vec<usize> = (0..moments.len()).filter(|n| ms[*n].is_none()).collect();
        let keys: Vec<String> = open.iter().map(|n| key(*n)).collect();
        let values = if keys.is_empty() { Vec::new() } else { pipe.values(&keys)? };
        for (n, found) in open.into_iter().zip(values) {
            if found.as_deref() == Some(&value(n, mark)) {
                ms[n] = Some(moments[n].elapsed().as_secs_f64() * 1_000.0);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(ms.into_iter().flatten().collect())
}

fn idle(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let length = Duration::from_secs(plan.seconds * 4);
    let (mut cpu, mut bytes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..plan.rounds {
        let space = Space::start(3, "class = \"soft\"")?;
        let net = between(&space)?;
        for nth in 0..2 {
            if nth == 1 {
                let more = (0..NAMESPACES).map(|n| format!("[namespace.idle{n}]\nclass = \"soft\"\n"));
                space.cluster.apply(&more.collect::<String>())?;
            }
            std::thread::sleep(Duration::from_secs(15));
            let (pids, sent) = (space.cluster.pids(), net.bytes()?);
            let (used, begun) = (used_us(&pids), Instant::now());
            std::thread::sleep(length);
            let node_seconds = 3.0 * begun.elapsed().as_secs_f64();
            cpu[nth].push((used_us(&pids) - used) / 10_000.0 / node_seconds);
            bytes[nth].push((net.bytes()? - sent) / 1_024.0 / node_seconds);
        }
    }
    let [cpu_before, cpu] = cpu.map(median);
    let [bytes_before, bytes] = bytes.map(median);
    goal(
        report,
        format!("{NAMESPACES} idle namespaces: processor of a node, more than with one"),
        "%",
        cpu - cpu_before,
        1.0,
    );
    goal(report, "... bytes that a node sends, more than with one", "KiB/s", bytes - bytes_before, 10.0);
    report.figures.push(Figure::new("... with one: processor of a node", "%", cpu_before, "", None));
    report.figures.push(Figure::new("... with one: bytes that a node sends", "KiB/s", bytes_before, "", None));
    Ok(())
}
