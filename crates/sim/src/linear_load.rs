//! What clients ask of class `linear`: writes with values of their own, conditional writes, pushes to lists, transfers
//! between accounts, and reads of all of these. Judging what came back is for `promises::linear`.

use base::{Rng, Span};
use bytes::Bytes;
use state::linear::limits::WATCH_HOLD;
use state::linear::{Op, Over, Step};

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
const LISTS: u64 = 2;
/// Lists are read whole: after so many writes others take their place, or a run's cost would grow with its square.
const LIST_AGE: u64 = 1_000;
const ACCOUNTS: u64 = 4;

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
    /// Only if the key has the version that this client read last.
    Cas {
        key: String,
        id: WriteId,
        version: u64,
    },
    Push {
        list: String,
        id: WriteId,
    },
    Range {
        list: String,
    },
    Transfer {
        from: String,
        to: String,
    },
    /// All accounts at one moment.
    Sum,
    /// All keys of all shards, each at a moment of its own.
    Scan,
    /// What has changed of the keys after a version; `wait`: as soon as there is something.
    Watch {
        after: u64,
        wait: bool,
    },
}

struct Client {
    rng: Rng,
    pause: Span,
    /// What it read last: a key and its version.
    read: Option<(String, u64)>,
    /// How far it has watched.
    watched: u64,
    /// Its keys are in the namespace with many shards.
    wide: bool,
}

pub struct LinearLoad {
    clients: Vec<Client>,
    writes: WriteId,
}

impl LinearLoad {
    pub fn new(mut rng: Rng) -> Self {
        let pause = Span::millis(*rng.pick(&[30, 100, 300]).expect("it is not empty"));
        let (clients, wide) = (rng.between(2, 6), rng.between(1, 4));
        let client = |n| Client { rng: rng.fork(), pause, read: None, watched: 0, wide: n >= clients };
        Self { clients: (0..clients + wide).map(client).collect(), writes: 0 }
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

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let Client { rng, read, watched, wide, .. } = &mut self.clients[client];
        let wide = *wide;
        let key =
            if wide { format!("{WIDE_KEY}{}", rng.below(WIDE_KEYS)) } else { format!("{KEY}{}", rng.below(KEYS)) };
        let age = self.writes / LIST_AGE;
        // Also the ones before: what was pushed late must not appear twice there.
        let age = if rng.chance(0.1) { age.saturating_sub(1) } else { age };
        let list = format!("{}{age}-{}", if wide { WIDE_LIST } else { "l" }, rng.below(LISTS));
        let budget = Span::millis(*rng.pick(&[2_000, 3_000]).expect("it is not empty"));
        self.writes += 1;
        let id = self.writes;
        let act = match rng.below(100) {
            0..12 => Act::Get { key },
            12..20 => Act::Stale { key, bound: Span::millis(*rng.pick(&[20, 300, 3_000]).expect("it is not empty")) },
            20..30 if wide => Act::Scan,
            20..30 => Act::Watch { after: *watched, wait: rng.chance(0.5) },
            30..55 => Act::Put { key, id },
            55..65 => match read.take() {
                Some((key, version)) => Act::Cas { key, id, version },
                None => Act::Get { key },
            },
            65..77 => Act::Push { list, id },
            77..82 => Act::Range { list },
            _ if wide => Act::Put { key, id },
            82..94 => {
                let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                Act::Transfer { from: format!("a{from}"), to: format!("a{to}") }
            }
            _ => Act::Sum,
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
            Act::Sum => "linear-sum",
            Act::Scan => "linear-scan",
            Act::Watch { .. } => "linear-watch",
        }
    }

    fn stale(&self) -> Option<Span> {
        if let Act::Stale { bound, .. } = self { Some(*bound) } else { None }
    }

    pub fn key(&self) -> &str {
        match self {
            Act::Get { key } | Act::Stale { key, .. } | Act::Put { key, .. } | Act::Cas { key, .. } => key,
            Act::Push { list, .. } | Act::Range { list } => list,
            Act::Transfer { from, .. } => from,
            Act::Scan => WIDE_KEY,
            Act::Sum | Act::Watch { .. } => "",
        }
    }

    /// Is it of the namespace with many shards?
    pub fn is_wide(&self) -> bool {
        [WIDE_KEY, WIDE_LIST].iter().any(|begin| self.key().starts_with(begin))
    }

    pub fn op(&self) -> Op {
        let step = |key: &str, function, args: Vec<Bytes>| Step::new(Bytes::from(key.to_owned()), function, args);
        let word = |text: String| Bytes::from(text);
        let put = |key: &str, id: &WriteId, when: String| {
            step(key, "put", vec![word(id.to_string()), word(when), word("none".into())])
        };
        let steps = match self {
            Act::Get { key } => vec![step(key, "look", vec![])],
            Act::Stale { key, .. } => vec![step(key, "look", vec![]), step(key, "age", vec![])],
            Act::Put { key, id } => vec![put(key, id, "always".into())],
            Act::Cas { key, id, version } => vec![put(key, id, format!("version:{version}"))],
            Act::Push { list, id } => vec![step(list, "list.push-right", vec![word(id.to_string())])],
            Act::Range { list } => vec![step(list, "list.range", vec![word("0".into()), word("-1".into())])],
            Act::Transfer { from, to } => {
                vec![step(from, "number.add", vec![word("-1".into())]), step(to, "number.add", vec![word("1".into())])]
            }
            Act::Watch { after, wait } => {
                let how = if *wait { "wait" } else { "now" };
                vec![step("", "changes.prefix", vec![word(after.to_string()), word(how.into()), word(KEY.into())])]
            }
            Act::Scan => {
                let args = [WIDE_KEY, "-", "100", "forward", "values"].map(|arg| word(arg.into()));
                vec![step("", "scan", args.into())]
            }
            Act::Sum => (0..ACCOUNTS).map(|n| step(&format!("a{n}"), "get", vec![])).collect(),
        };
        let (namespace, over) = if self.is_wide() { (WIDE, Over::Each) } else { (NAMESPACE, Over::One) };
        // Of pushes every other one need not know how long its list is then.
        let weak = matches!(self, Act::Push { id, .. } if id % 2 == 0);
        Op { stale: self.stale(), over, weak, ..Op::of(namespace.into(), steps) }
    }
}
