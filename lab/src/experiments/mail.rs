//! Mail as Porcupine measured it: nine sessions of SMTP with a letter of 4.7 KB to one of POP3 that reads and deletes all,
//! 40 at a time, some users with most of the letters (Zipf 1.3). Three nodes, two forced copies, beside one Postfix with
//! Dovecot. Then what a killed node costs those who are at the others, and how soon the first letter is taken when all
//! were killed.

use std::time::{Duration, Instant};

use crate::Plan;
use crate::client::{Conn, command};
use crate::closed::{Ran, runtime};
use crate::cluster::{Cluster, free_port};
use crate::letters::{DOMAIN, Door, Post, Seen, Session};
use crate::load::{Outcome, histogram};
use crate::peers::wait_until;
use crate::postfix::{Postfix, greets};
use crate::procs::used_us;
use crate::report::{Figure, Report, median};
use crate::sides::{OURS, Sides};

/// In this order.
pub const PARTS: [&str; 3] = ["load", "kill", "start"];
const SESSIONS: usize = 40;
const NODES: u8 = 3;
const PEER: &str = "postfix with dovecot, one copy";
/// Of [`crate::letters::PASSWORD`], by the cheapest parameters, as the peer's passwords are plain: what is measured is mail.
const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$Y29wcGljZWxhYnNhbHQ$qLtnBC6DKAO6mCgolPmcYvkwAd4AAkx1NvSXLpy5dMA";
const BATCH: usize = 500;
/// When no letter more is found for so long, it is missing.
const PATIENCE: Duration = Duration::from_secs(15);
const WARM: f64 = 0.5;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("mail");
    report.notes.push(format!(
        "{} users; the first has a quarter of all letters. Passwords are plain at the peer, and hashed by the cheapest argon2id here",
        plan.users
    ));
    let mut sides = Sides::default();
    let (mut kills, mut starts) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        if plan.has("load") {
            loads(plan, round, &mut sides, &mut report)?;
        }
        if plan.has("kill") || plan.has("start") {
            let mut office = Office::start(plan)?;
            if plan.has("kill") {
                kills.push(kill(plan, &mut office)?);
            }
            if plan.has("start") {
                starts.push(start(&office)?);
            }
        }
    }
    sides.tell(&mut report, &plan.out)?;
    let sum = |of: fn(&Kill) -> u64| kills.iter().map(of).sum::<u64>() as f64;
    let alone = |what: &str, unit: &str, value| Figure::new(what, unit, value, "none", None);
    if !kills.is_empty() {
        report.figures.extend([
            alone("a node killed: acknowledged", "letters", sum(|kill| kill.acked)),
            alone("a node killed: missing on the others", "letters", sum(|kill| kill.missing)),
            alone("a node killed: in a mailbox twice", "letters", sum(|kill| kill.doubled)),
            alone("a node killed: failed through live nodes", "sessions", sum(|kill| kill.failed)),
            alone(
                "a node killed: slowest session through live nodes",
                "ms",
                kills.iter().map(|k| k.slowest).fold(0.0, f64::max),
            ),
        ]);
        report.notes.extend(kills.iter().filter_map(|kill| kill.why.clone()));
    }
    if !starts.is_empty() {
        report.figures.push(alone("all killed: from their start to the first 250", "s", median(starts)));
    }
    Ok(report)
}

/// Three nodes with the mail service and its accounts.
pub(super) struct Office {
    pub cluster: Cluster,
    pub post: Post,
}

impl Office {
    fn start(plan: &Plan) -> Result<Office, String> {
        Self::start_with(plan.users.max(1))
    }

    pub fn start_with(users: usize) -> Result<Office, String> {
        let cluster = Cluster::start(NODES, false)?;
        let (smtp, pop) = (free_port(NODES)?, free_port(NODES)?);
        cluster.apply(&format!(
            "[namespace.mail]\nclass = \"object\"\nwrites = \"once\"\n[namespace.mail-accounts]\nclass = \"linear\"\n\
             [namespace.mail-guesses]\nclass = \"linear\"\n[service.mail]\nbuiltin = \"mail\"\nclones = {NODES}\ncertificates = true\n\
             tcp = [{{ name = \"smtp\", port = {smtp} }}, {{ name = \"pop3\", port = {pop} }}]\n\
             namespaces = [\"mail\", \"mail-accounts\", \"mail-guesses\"]\n"
        ))?;
        let doors = cluster.doors("api").into_iter().map(|addr| {
            let of = |port| std::net::SocketAddr::new(addr.ip(), port);
            Door { smtp: of(smtp), pop: of(pop) }
        });
        let post = Post { doors: doors.collect(), users, sessions: SESSIONS };
        accounts(&cluster, post.users)?;
        wait_until("mail is served at every node", || post.doors.iter().all(|door| greets(*door)))?;
        post.first_accepted(Duration::from_secs(20))?;
        Ok(Office { cluster, post })
    }
}

/// What `coppice mail user add` would write, at once for all.
fn accounts(cluster: &Cluster, users: usize) -> Result<(), String> {
    let auth = ("mail-accounts".to_owned(), cluster.namespace_token("mail-accounts")?);
    let addr = cluster.doors("resp").first().copied().ok_or("no node")?;
    let account = serde_json::json!({ "password": HASH }).to_string();
    let write = || {
        runtime()?.block_on(async {
            let mut conn = Conn::open(addr, Some(&auth)).await?;
            for from in (0..users).step_by(BATCH) {
                let names: Vec<String> =
                    (from..(from + BATCH).min(users)).map(|n| format!("user/u{n}@{DOMAIN}")).collect();
                let domain = format!("domain/{DOMAIN}");
                let mut words: Vec<&[u8]> = vec![b"MSET", domain.as_bytes(), b"{}"];
                names.iter().for_each(|name| words.extend([name.as_bytes(), account.as_bytes()]));
                command(&mut conn.out, &words);
                conn.send().await?;
                conn.status().await?;
            }
            Ok::<_, String>(())
        })
    };
    let mut last = Ok(());
    wait_until("the accounts are made", || {
        last = write();
        last.is_ok()
    })
    .map_err(|why| format!("{why}: {last:?}"))
}

fn loads(plan: &Plan, round: usize, sides: &mut Sides, report: &mut Report) -> Result<(), String> {
    let office = Office::start(plan)?;
    side(plan, &office.post, &office.cluster.pids(), OURS, round, sides)?;
    drop(office);
    match Postfix::start(plan.users.max(1)) {
        Ok(peer) => {
            let post = Post { doors: vec![peer.door], users: plan.users.max(1), sessions: SESSIONS };
            side(plan, &post, &peer.pids(), PEER, round, sides)?;
        }
        Err(why) if round == 0 => report.notes.push(why),
        Err(_) => (),
    }
    Ok(())
}

fn side(plan: &Plan, post: &Post, pids: &[i32], name: &str, round: usize, sides: &mut Sides) -> Result<(), String> {
    let running = post.start();
    std::thread::sleep(Duration::from_secs_f64(WARM));
    let (from, before) = (running.seconds(), used_us(pids));
    std::thread::sleep(Duration::from_secs(plan.seconds));
    let (to, used) = (running.seconds(), used_us(pids) - before);
    let mut seen = running.end()?;
    let within = |session: &&Session| (from..to).contains(&(session.at + session.ms / 1e3));
    let counted: Vec<&Session> = seen.sessions.iter().filter(within).collect();
    let letters = counted.iter().filter(|session| !session.is_pop && session.why.is_none()).count().max(1);
    let ran = |is_pop| {
        let mut times = histogram();
        let mut out = Outcome::default();
        for session in counted.iter().filter(|session| session.is_pop == is_pop) {
            match &session.why {
                None => times.saturating_record((session.ms * 1e3) as u64),
                Some(why) => {
                    out.failed += 1;
                    out.first_failure.get_or_insert_with(|| why.clone());
                }
            }
        }
        out.done = times.len();
        out.per_second = out.done as f64 / (to - from);
        out.p50_us = times.value_at_quantile(0.5) as f64;
        out.p99_us = times.value_at_quantile(0.99) as f64;
        out.p999_us = times.value_at_quantile(0.999) as f64;
        // Of all that it does for a letter that comes in, reading included.
        Ran { out, cpu_us: used / letters as f64 }
    };
    let (mut smtp, pop) = (ran(false), ran(true));
    let read: u64 = counted.iter().filter(|session| session.is_pop).map(|session| session.letters).sum();
    let read = Ran {
        out: Outcome { done: read, per_second: read as f64 / (to - from), ..Outcome::default() },
        cpu_us: used / letters as f64,
    };
    drop(counted);
    let (missing, doubled) = post.missing(&mut seen, PATIENCE)?;
    // They are told with the letters that came in.
    smtp.out.wrong = missing + doubled;
    sides.add("letters taken by SMTP, 40 sessions", name, round, smtp);
    sides.add("sessions of POP3", name, round, pop);
    sides.add("letters read by POP3", name, round, read);
    Ok(())
}

struct Kill {
    acked: u64,
    missing: u64,
    doubled: u64,
    failed: u64,
    slowest: f64,
    why: Option<String>,
}

/// The last node is killed in the midst, and stays away until all letters were looked for at the others.
fn kill(plan: &Plan, office: &mut Office) -> Result<Kill, String> {
    let victim = usize::from(NODES) - 1;
    let running = office.post.start();
    std::thread::sleep(Duration::from_secs(plan.seconds));
    office.cluster.hold_restarts(true)?;
    let killed_at = running.seconds();
    office.cluster.kill(victim)?;
    std::thread::sleep(Duration::from_secs(plan.seconds));
    let mut seen: Seen = running.end()?;
    let through: Vec<&Session> = seen.sessions.iter().filter(|session| session.door != victim).collect();
    let failed = through.iter().filter(|session| session.why.is_some()).count() as u64;
    let slowest = through.iter().map(|session| session.ms).fold(0.0, f64::max);
    let first = through.iter().find_map(|session| session.why.as_ref().map(|why| (session, why)));
    let why = first.map(|(session, why)| {
        let (begun, ended) = (session.at - killed_at, session.at + session.ms / 1e3 - killed_at);
        let kind = if session.is_pop { "POP3" } else { "SMTP" };
        format!(
            "first that failed through a live node: a session of {kind} from {begun:.2} to {ended:.2} s after the kill: {why}"
        )
    });
    drop(through);
    let acked = seen.acked.len() as u64;
    let others = Post { doors: office.post.doors[..victim].to_vec(), ..office.post.clone() };
    let (missing, doubled) = others.missing(&mut seen, PATIENCE)?;
    office.cluster.hold_restarts(false)?;
    office.cluster.wait_restarted(victim)?;
    Ok(Kill { acked, missing, doubled, failed, slowest, why })
}

/// Seconds from when the nodes may start again to the first letter that one of them takes.
fn start(office: &Office) -> Result<f64, String> {
    wait_until("mail is served at every node", || office.post.doors.iter().all(|door| greets(*door)))?;
    office.cluster.hold_restarts(true)?;
    for node in 0..usize::from(NODES) {
        office.cluster.kill(node)?;
    }
    let dead = |door: &Door| std::net::TcpStream::connect(door.smtp).is_err();
    wait_until("no node is left", || office.post.doors.iter().all(dead))?;
    let begun = Instant::now();
    office.cluster.hold_restarts(false)?;
    office.post.first_accepted(Duration::from_secs(60))?;
    Ok(begun.elapsed().as_secs_f64())
}
