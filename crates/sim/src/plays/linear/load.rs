//! What clients ask of class `linear`: writes with values of their own, some as large as can be, conditional writes, pushes to
//! lists (of which some are streams), transfers between accounts, drawings from urns (sets, sorted sets, and streams, of which a group
//! reads), values and fields of hashes that end, leases, jobs, and reads of all of these. Half of the writes have
//! ids, and are asked again at
//! other nodes. Judging what came back is for `promise.rs`.

use base::{Rng, Span, Time};
use bytes::Bytes;
use state::linear::limits::WATCH_HOLD;
use state::linear::{Condition, Op, Over, Step};
use uuid::Uuid;

use crate::world::WALL_EPOCH_MS;

/// A namespace of one shard.
pub const NAMESPACE: &str = "bank";
/// One whose shards are split now and then.
pub const WIDE: &str = "wide";
/// Shards that it gets at most.
pub const WIDE_SHARDS: u64 = 6;
/// What the names of its keys begin with, and of its lists.
const WIDE_KEY: &str = "w";
const WIDE_LIST: &str = "v";
const KEYS: u64 = 4;
const WIDE_KEYS: u64 = 12;
/// What their names begin with.
const KEY: &str = "k";
/// Of one whose values are large.
const LARGE_KEY: &str = "g";
/// One of so many operations is on it, be it a write or a read: each takes as long as some hundred others.
const LARGE: f64 = 1.0 / 2_000.0;
const LARGE_BYTES_MAX: u64 = 15 << 20;
const LISTS: u64 = 2;
/// What the names of lists begin with that are streams.
const STREAM: &str = "s";
const URNS: u64 = 3;
/// What the names of urns begin with that are sorted sets, in which each item has itself as its score.
const SORTED_URN: &str = "z";
/// ... and of those that are streams, whose entries a group gives to who draws.
const STREAM_URN: &str = "t";
const GROUP: &str = "g";
/// So many values with an end that are fields are in one hash, about.
const FIELDS: u64 = 16;
/// Items of an urn.
pub const DRAWN_AT_ONCE: usize = 2;
/// Lists are read whole: after so many writes others take their place, or a run's cost would grow with its square.
const LIST_AGE: u64 = 1_000;
pub const ACCOUNTS: u64 = 4;
const LEASES: u64 = 2;
/// Jobs that a worker takes.
pub const TAKEN_AT_ONCE: usize = 2;
/// So many values with an end are looked at by anybody: the last ones, of which some should have ended.
const BRIEFS: usize = 12;
/// So long that it cannot end in a run, whatever clocks do.
pub const LONG: Span = Span::secs(7_200);
/// A caller's clock is behind by so much at most: nodes' are a minute ahead or behind when they jump.
const CALLER_BEHIND: Span = Span::secs(2);

/// Names a write, and the value it stores.
pub type WriteId = u64;

#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    Get {
        key: String,
    },
    /// What may be so old.
    Stale {
        key: String,
        bound: Span,
    },
    Put {
        key: String,
        id: WriteId,
    },
    /// Only if the key has the version that this client read last; `apart`: a transaction with that as its condition.
    Cas {
        key: String,
        id: WriteId,
        version: u64,
        apart: bool,
    },
    Push {
        list: String,
        id: WriteId,
    },
    Range {
        list: String,
    },
    /// From one account of a book to another, with its name in the book's journal: one transaction.
    Transfer {
        book: u64,
        from: u64,
        to: u64,
        id: WriteId,
    },
    /// All accounts of a book and its journal at one moment.
    Sum {
        book: u64,
    },
    /// Puts an item into an urn, named three times; draws some, by a number that each asking draws anew; looks at all.
    Fill {
        urn: String,
        id: WriteId,
    },
    Draw {
        urn: String,
        id: WriteId,
    },
    Urn {
        urn: String,
    },
    /// A key of its own with an end.
    Brief {
        id: WriteId,
        lives: Span,
    },
    /// Looks at one of those; or removes it.
    SeeBrief {
        id: WriteId,
    },
    EndBrief {
        id: WriteId,
    },
    PutJob {
        queue: String,
        id: WriteId,
    },
    /// For so long, unless they are done before.
    TakeJobs {
        queue: String,
        id: WriteId,
        lives: Span,
    },
    /// Says that a job is done.
    EndJob {
        queue: String,
        ticket: JobTicket,
        id: WriteId,
    },
    /// What a queue says of itself.
    Queue {
        queue: String,
    },
    Claim {
        lease: String,
        holder: usize,
        lives: Span,
    },
    Release {
        lease: String,
        token: u64,
    },
    /// All keys of all shards, each at a moment of its own.
    Scan,
    /// What has changed of the keys after a version; `wait`: as soon as there is something.
    Watch {
        after: u64,
        wait: bool,
    },
}

/// What a worker has of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobTicket {
    pub job: u64,
    pub turn: u64,
}

struct Client {
    rng: Rng,
    pause: Span,
    /// What it read last: a key and its version.
    read: Option<(String, u64)>,
    /// How far it has watched.
    watched: u64,
    /// The lease that it was given last, and its token.
    holds: Option<(String, u64)>,
    /// Jobs that it has taken, with their queues.
    jobs: Vec<(String, JobTicket)>,
    /// Its keys are in the namespace with many shards.
    wide: bool,
}

pub struct LinearLoad {
    clients: Vec<Client>,
    writes: WriteId,
    /// The last values with an end.
    briefs: Vec<WriteId>,
}

impl LinearLoad {
    pub fn new(mut rng: Rng) -> Self {
        let pause = Span::millis(*rng.pick(&[30, 100, 300]).expect("it is not empty"));
        let (clients, wide) = (rng.between(2, 6), rng.between(1, 4));
        let client = |n| Client {
            rng: rng.fork(),
            pause,
            read: None,
            watched: 0,
            holds: None,
            jobs: Vec::new(),
            wide: n >= clients,
        };
        Self { clients: (0..clients + wide).map(client).collect(), writes: 0, briefs: Vec::new() }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    pub fn has_read(&mut self, client: usize, key: &str, version: u64) {
        self.clients[client].read = Some((key.to_owned(), version));
    }

    pub fn has_watched(&mut self, client: usize, upto: u64) {
        self.clients[client].watched = upto;
    }

    pub fn has_claimed(&mut self, client: usize, lease: &str, token: u64) {
        self.clients[client].holds = Some((lease.to_owned(), token));
    }

    pub fn has_taken(&mut self, client: usize, queue: &str, ticket: JobTicket) {
        self.clients[client].jobs.push((queue.to_owned(), ticket));
    }

    /// Half of what writes has an id that its client has made.
    pub fn name(&mut self, client: usize, act: &Act, now: Time) -> Option<Uuid> {
        let rng = &mut self.clients[client].rng;
        if !act.writes() || rng.chance(0.5) {
            return None;
        }
        let made = WALL_EPOCH_MS + now.0 / 1_000 - rng.below(CALLER_BEHIND.as_millis());
        Some(uuid::Builder::from_unix_timestamp_millis(made, &[0; 10].map(|_| rng.below(256) as u8)).into_uuid())
    }

    /// Does a client that knows what came of its write ask again?
    pub fn doubts(&mut self, client: usize) -> bool {
        self.clients[client].rng.chance(0.2)
    }

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let Client { rng, read, watched, wide, holds, jobs, .. } = &mut self.clients[client];
        let wide = *wide;
        let key =
            if wide { format!("{WIDE_KEY}{}", rng.below(WIDE_KEYS)) } else { format!("{KEY}{}", rng.below(KEYS)) };
        let age = self.writes / LIST_AGE;
        // Also the ones before: what was pushed late must not appear twice there.
        let age = if rng.chance(0.1) { age.saturating_sub(1) } else { age };
        let nth = rng.below(LISTS);
        let begin = match nth {
            _ if wide => WIDE_LIST,
            0 => "l",
            _ => STREAM,
        };
        let list = format!("{begin}{age}-{nth}");
        let budget = Span::millis(*rng.pick(&[2_000, 3_000]).expect("it is not empty"));
        self.writes += 1;
        let id = self.writes;
        let urn = match rng.below(URNS) {
            0 => format!("u{age}"),
            1 => format!("{STREAM_URN}{age}"),
            n => format!("{SORTED_URN}{age}-{n}"),
        };
        if rng.chance(LARGE) {
            let key = LARGE_KEY.to_owned();
            let act = if rng.chance(0.5) { Act::Put { key, id } } else { Act::Get { key } };
            return (act, budget);
        }
        let queue = format!("q{age}");
        let act = match rng.below(100) {
            0..12 => Act::Get { key },
            12..20 => Act::Stale { key, bound: Span::millis(*rng.pick(&[20, 300, 3_000]).expect("it is not empty")) },
            20..30 if wide => Act::Scan,
            20..30 => Act::Watch { after: *watched, wait: rng.chance(0.5) },
            30..39 => Act::Put { key, id },
            39..47 if wide => Act::Put { key, id },
            39..42 => Act::PutJob { queue, id },
            42..46 => match jobs.pop().filter(|_| rng.chance(0.8)) {
                Some((queue, ticket)) => Act::EndJob { queue, ticket, id },
                None => {
                    let lives = *rng.pick(&[Span::millis(700), Span::secs(4), LONG]).expect("it is not empty");
                    Act::TakeJobs { queue, id, lives }
                }
            },
            46..47 => Act::Queue { queue },
            47..55 if wide => Act::Put { key, id },
            47..51 => Act::Fill { urn, id },
            51..54 => Act::Draw { urn, id },
            // Of a stream nobody sees what its group has not given yet.
            54..55 if urn.starts_with(STREAM_URN) => Act::Draw { urn, id },
            54..55 => Act::Urn { urn },
            55..65 => match read.take() {
                Some((key, version)) => Act::Cas { key, id, version, apart: rng.chance(0.5) },
                None => Act::Get { key },
            },
            65..77 => Act::Push { list, id },
            77..82 => Act::Range { list },
            _ if wide => Act::Put { key, id },
            82..88 => {
                let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                Act::Transfer { book: age, from, to, id }
            }
            88..91 => Act::Sum { book: age },
            91..93 => {
                let lives = *rng.pick(&[Span::millis(700), Span::secs(4), LONG]).expect("it is not empty");
                self.briefs.push(id);
                self.briefs.drain(..self.briefs.len().saturating_sub(BRIEFS));
                Act::Brief { id, lives }
            }
            93..96 => {
                let id = rng.pick(&self.briefs).copied().unwrap_or_default();
                if rng.chance(0.2) { Act::EndBrief { id } } else { Act::SeeBrief { id } }
            }
            _ => match holds.take().filter(|_| rng.chance(0.5)) {
                Some((lease, token)) => Act::Release { lease, token },
                None => {
                    let lives = Span::millis(*rng.pick(&[500, 3_000, 20_000]).expect("it is not empty"));
                    Act::Claim { lease: format!("h{}", rng.below(LEASES)), holder: client, lives }
                }
            },
        };
        // Who leads answers such a one only after a while, if nothing happens.
        let waits = matches!(act, Act::Watch { wait: true, .. });
        (act, if waits { budget + WATCH_HOLD } else { budget })
    }
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Act::Get { .. } => "linear-get",
            Act::Stale { .. } => "linear-stale",
            Act::Put { .. } => "linear-put",
            Act::Cas { .. } => "linear-cas",
            Act::Push { .. } => "linear-push",
            Act::Range { .. } => "linear-range",
            Act::Transfer { .. } => "linear-transfer",
            Act::Sum { .. } => "linear-sum",
            Act::Fill { .. } => "linear-fill",
            Act::Draw { .. } => "linear-draw",
            Act::Urn { .. } => "linear-urn",
            Act::Brief { .. } => "linear-brief",
            Act::SeeBrief { .. } => "linear-see-brief",
            Act::EndBrief { .. } => "linear-end-brief",
            Act::PutJob { .. } => "linear-put-job",
            Act::TakeJobs { .. } => "linear-take-jobs",
            Act::EndJob { .. } => "linear-end-job",
            Act::Queue { .. } => "linear-queue",
            Act::Claim { .. } => "linear-claim",
            Act::Release { .. } => "linear-release",
            Act::Scan => "linear-scan",
            Act::Watch { .. } => "linear-watch",
        }
    }

    fn writes(&self) -> bool {
        match self {
            Act::Put { .. }
            | Act::Cas { .. }
            | Act::Push { .. }
            | Act::Transfer { .. }
            | Act::Fill { .. }
            | Act::Draw { .. }
            | Act::Brief { .. }
            | Act::EndBrief { .. }
            | Act::PutJob { .. }
            | Act::TakeJobs { .. }
            | Act::EndJob { .. }
            | Act::Claim { .. }
            | Act::Release { .. } => true,
            Act::Get { .. } | Act::Stale { .. } | Act::Range { .. } | Act::Sum { .. } | Act::Scan => false,
            Act::Urn { .. } | Act::Queue { .. } => false,
            Act::Watch { .. } | Act::SeeBrief { .. } => false,
        }
    }

    /// Does it need a program of the present level?
    pub fn is_newer(&self) -> bool {
        matches!(self, Act::Transfer { id, .. } if id % 3 == 0)
            || self.is_sorted()
            || self.is_of_stream()
            || self.is_of_field()
            || self.is_of_queue()
    }

    /// Is it about a sorted set?
    pub fn is_sorted(&self) -> bool {
        match self {
            Act::Fill { urn, .. } | Act::Draw { urn, .. } | Act::Urn { urn } => urn.starts_with(SORTED_URN),
            _ => false,
        }
    }

    /// Is it about a stream?
    pub fn is_of_stream(&self) -> bool {
        match self {
            Act::Fill { urn, .. } | Act::Draw { urn, .. } => urn.starts_with(STREAM_URN),
            Act::Push { list, .. } | Act::Range { list } => list.starts_with(STREAM),
            _ => false,
        }
    }

    /// Is it about a value with an end that is a field of a hash?
    fn is_of_field(&self) -> bool {
        match self {
            Act::Brief { id, .. } | Act::SeeBrief { id } | Act::EndBrief { id } => id % 2 == 0,
            _ => false,
        }
    }

    /// Is it about jobs?
    pub fn is_of_queue(&self) -> bool {
        matches!(self, Act::PutJob { .. } | Act::TakeJobs { .. } | Act::EndJob { .. } | Act::Queue { .. })
    }

    fn stale(&self) -> Option<Span> {
        if let Act::Stale { bound, .. } = self { Some(*bound) } else { None }
    }

    pub fn key(&self) -> &str {
        match self {
            Act::Get { key } | Act::Stale { key, .. } | Act::Put { key, .. } | Act::Cas { key, .. } => key,
            Act::Push { list, .. } | Act::Range { list } => list,
            Act::Fill { urn, .. } | Act::Draw { urn, .. } | Act::Urn { urn } => urn,
            Act::Claim { lease, .. } | Act::Release { lease, .. } => lease,
            Act::PutJob { queue, .. } | Act::TakeJobs { queue, .. } => queue,
            Act::EndJob { queue, .. } | Act::Queue { queue } => queue,
            Act::Scan => WIDE_KEY,
            Act::Transfer { .. } | Act::Sum { .. } | Act::Watch { .. } => "",
            Act::Brief { .. } | Act::SeeBrief { .. } | Act::EndBrief { .. } => "",
        }
    }

    /// Is it of the namespace with many shards?
    pub fn is_wide(&self) -> bool {
        [WIDE_KEY, WIDE_LIST].iter().any(|begin| self.key().starts_with(begin))
    }

    /// `nth`: how often it is asked.
    pub fn op(&self, nth: u32) -> Op {
        let step = |key: &str, function, args: Vec<Bytes>| Step::new(Bytes::from(key.to_owned()), function, args);
        let word = |text: String| Bytes::from(text);
        let put = |key: &str, id: &WriteId, when: String| {
            let mut value = id.to_string();
            if key == LARGE_KEY {
                // A number may have spaces behind it.
                let bytes = LARGE_BYTES_MAX - (id * 7_919 * 1_024) % LARGE_BYTES_MAX;
                value.extend(std::iter::repeat_n(' ', bytes as usize));
            }
            step(key, "put", vec![word(value), word(when), word("none".into())])
        };
        // At a time that grows about as names do.
        let add = |key: &str, id: &WriteId| {
            let args = [format!("*{id}"), "any".into(), "-".into(), "n".into(), id.to_string()];
            step(key, "stream.add", args.map(word).into())
        };
        let steps = match self {
            Act::Get { key } => vec![step(key, "look", vec![])],
            Act::Stale { key, .. } => vec![step(key, "look", vec![]), step(key, "age", vec![])],
            Act::Put { key, id } => vec![put(key, id, "always".into())],
            Act::Cas { key, id, apart: true, .. } => vec![put(key, id, "always".into())],
            Act::Cas { key, id, version, apart: false } => vec![put(key, id, format!("version:{version}"))],
            Act::Push { list, id } if self.is_of_stream() => vec![add(list, id), step(list, "stream.length", vec![])],
            Act::Range { list } if self.is_of_stream() => {
                let all = ["0-0", "18446744073709551615-18446744073709551615", "forward", "-1"];
                vec![step(list, "stream.range", all.map(|arg| word(arg.into())).into())]
            }
            Act::Push { list, id } => vec![step(list, "list.push-right", vec![word(id.to_string())])],
            Act::Range { list } => vec![step(list, "list.range", vec![word("0".into()), word("-1".into())])],
            Act::Transfer { book, from, to, id } => {
                let push = || step(&journal(*book), "list.push-right", vec![word(id.to_string())]);
                let mut steps = vec![
                    step(&account(*book, *from), "number.add", vec![word("-1".into())]),
                    step(&account(*book, *to), "number.add", vec![word("1".into())]),
                    push(),
                ];
                if self.is_newer() {
                    // Who does not know the last one has the name twice.
                    let pop = vec![word("right".into()), word("1".into())];
                    steps.extend([push(), step(&journal(*book), "list.pop-first", pop)]);
                }
                steps
            }
            Act::Fill { urn, id } if self.is_of_stream() => {
                // Mostly there is one, and that is an error which changes nothing.
                let make = [GROUP, "0-0", "-", "make"].map(|arg| word(arg.into()));
                vec![step(urn, "stream.group-make", make.into()), add(urn, id)]
            }
            Act::Draw { urn, .. } if self.is_of_stream() => {
                let count = DRAWN_AT_ONCE.to_string();
                let args = [GROUP, "someone", ">", "0", &count, "noack"].map(|arg| word(arg.into()));
                vec![step(urn, "stream.read-group", args.into())]
            }
            Act::Fill { urn, id } if self.is_sorted() => {
                let item = || [word(id.to_string()), word(id.to_string())];
                let args = [word("any".into()), word("any".into())].into_iter().chain(item()).chain(item());
                vec![step(urn, "sorted.add", args.collect())]
            }
            Act::Draw { urn, .. } if self.is_sorted() => {
                vec![step(urn, "sorted.pop", vec![word("min".into()), word(DRAWN_AT_ONCE.to_string())])]
            }
            Act::Urn { urn } if self.is_sorted() => {
                let all = ["rank", "0", "-1", "forward", "0", "-1", "scores"];
                vec![step(urn, "sorted.range", all.map(|arg| word(arg.into())).into())]
            }
            Act::Fill { urn, id } => vec![step(urn, "set.add", vec![word(id.to_string()); 3])],
            Act::Draw { urn, id } => {
                let number = (*id << 8) + u64::from(nth);
                vec![step(urn, "set.pop", vec![word(number.to_string()), word(DRAWN_AT_ONCE.to_string())])]
            }
            Act::Urn { urn } => vec![step(urn, "set.members", vec![])],
            Act::Brief { id, lives } if self.is_of_field() => {
                let args = ["always".into(), lives.as_millis().to_string(), id.to_string(), id.to_string()];
                vec![step(&hash(*id), "hash.set-expire", args.map(word).into())]
            }
            Act::SeeBrief { id } if self.is_of_field() => {
                vec![step(&hash(*id), "hash.get", vec![word(id.to_string())])]
            }
            Act::EndBrief { id } if self.is_of_field() => {
                vec![step(&hash(*id), "hash.remove", vec![word(id.to_string())])]
            }
            Act::Brief { id, lives } => {
                let args = [id.to_string(), "always".into(), lives.as_millis().to_string()];
                vec![step(&brief(*id), "put", args.map(word).into())]
            }
            Act::SeeBrief { id } => vec![step(&brief(*id), "look", vec![])],
            Act::EndBrief { id } => vec![step(&brief(*id), "remove", vec![])],
            Act::PutJob { queue, id } => {
                // More than it can be given: none dies.
                let args = [id.to_string(), "tries".into(), "1000".into()];
                vec![step(queue, "queue.put", args.map(word).into())]
            }
            Act::TakeJobs { queue, lives, .. } => {
                let args = [TAKEN_AT_ONCE.to_string(), lives.as_millis().to_string()];
                vec![step(queue, "queue.take", args.map(word).into())]
            }
            Act::EndJob { queue, ticket, .. } => {
                vec![step(queue, "queue.done", vec![word(format!("{}.{}", ticket.job, ticket.turn))])]
            }
            Act::Queue { queue } => vec![step(queue, "queue.info", vec![])],
            Act::Claim { lease, holder, lives } => {
                vec![step(lease, "lease.claim", vec![word(holder.to_string()), word(lives.as_millis().to_string())])]
            }
            Act::Release { lease, token } => vec![step(lease, "lease.release", vec![word(token.to_string())])],
            Act::Watch { after, wait } => {
                let how = if *wait { "wait" } else { "now" };
                vec![step("", "changes.prefix", vec![word(after.to_string()), word(how.into()), word(KEY.into())])]
            }
            Act::Scan => {
                let args = [WIDE_KEY, "-", "100", "forward", "values"].map(|arg| word(arg.into()));
                vec![step("", "scan", args.into())]
            }
            Act::Sum { book } => {
                let accounts = (0..ACCOUNTS).map(|n| step(&account(*book, n), "get", vec![]));
                let all = vec![word("0".into()), word("-1".into())];
                accounts.chain([step(&journal(*book), "list.range", all)]).collect()
            }
        };
        let namespace = if self.is_wide() { WIDE } else { NAMESPACE };
        // What has a condition is about one shard.
        let over = if self.is_wide() && !matches!(self, Act::Cas { .. }) { Over::Each } else { Over::One };
        // Of pushes every other one need not know how long its list is then.
        let weak = matches!(self, Act::Push { id, .. } if id % 2 == 0) && !self.is_of_stream();
        let conditions = match self {
            Act::Cas { key, version, apart: true, .. } => {
                vec![Condition { key: Bytes::from(key.clone()), version: *version }]
            }
            _ => Vec::new(),
        };
        let said = if let Act::Draw { id, .. } = self { Some(*id) } else { None };
        Op { stale: self.stale(), over, weak, conditions, said, ..Op::of(namespace.into(), steps) }
    }
}

/// Do watchers hear of it?
pub fn is_watched(key: &str) -> bool {
    key.starts_with(KEY)
}

fn account(book: u64, n: u64) -> String {
    format!("a{book}-{n}")
}

fn journal(book: u64) -> String {
    format!("j{book}")
}

/// Where it is a field.
fn hash(id: WriteId) -> String {
    format!("y{}", id / 1_000 % FIELDS)
}

fn brief(id: WriteId) -> String {
    format!("x{id}")
}
