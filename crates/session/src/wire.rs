//! What stub and brick say to each other. Values travel in the frame's body, untouched. Tags are never used twice;
//! unknown fields are skipped. A test holds the bytes.

use base::frame::{Priority, kind};
use base::{Frame, NodeId, Span};
use bytes::Bytes;
use class::Bound;
use prost::{Message, Oneof};

use super::brick::{Found, Line, Standing, Want, Write, Wrote};
use super::doc::kind_of_old;
use super::limits::TIME_MS_MAX;
use super::map::Placement;
use super::table::{Key, Value};
use super::{Kind, Version};
use base::checksum::Checksum;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Head {
    /// Chosen by who asks; the answer carries it back.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Epoch of the sender's map; 0 in cookie mode, where placement does not matter.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The sender's hybrid clock, milliseconds.
    #[prost(uint64, tag = "3")]
    pub clock_ms: u64,
    /// Milliseconds of a clock of the sender's that only goes forward; tells how long a request lay in queues.
    #[prost(uint64, tag = "4")]
    pub stamp_ms: u64,
    /// In answers: epoch for which the brick is filled.
    #[prost(uint64, tag = "5")]
    pub filled: u64,
    /// Life of the sender; 0 from a version that does not say.
    #[prost(uint64, tag = "6")]
    pub boot: u64,
    /// This node's brick has too much to do for what matters less than this: it is better not asked for now.
    #[prost(uint32, tag = "7")]
    pub floor: u32,
    /// In answers: for so long the request seemed to have lain, if that is worth a word,
    #[prost(uint64, tag = "22")]
    pub waited_ms: u64,
    /// ... by this stamp of it.
    #[prost(uint64, tag = "23")]
    pub asked_ms: u64,
    #[prost(oneof = "What", tags = "8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24")]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum What {
    #[prost(message, tag = "8")]
    Read(ReadMessage),
    #[prost(message, tag = "9")]
    Write(WriteMessage),
    #[prost(message, tag = "10")]
    Undo(UndoMessage),
    #[prost(message, tag = "11")]
    List(ListMessage),
    /// All bricks of the key have this removal: it need not be remembered long. No answer.
    #[prost(message, tag = "12")]
    Settle(UndoMessage),
    /// This conditional write was acknowledged: it will not be undone. No answer.
    #[prost(message, tag = "13")]
    Confirm(UndoMessage),
    /// The asker cannot tell which of two conditional writes was decided, and does not reach all who may know: the asked node
    /// should find out, and tell the bricks. No answer.
    #[prost(message, tag = "14")]
    Resolve(ReadMessage),
    /// The asked node's brick has not stored so many acknowledged writes of the asker. Answer: `Heard`.
    #[prost(message, tag = "15")]
    Lacks(LacksMessage),
    #[prost(message, tag = "16")]
    Found(FoundMessage),
    #[prost(message, tag = "17")]
    Wrote(WroteMessage),
    #[prost(message, tag = "18")]
    Undone(UndoneMessage),
    #[prost(message, tag = "19")]
    Page(PageMessage),
    /// The request's map is too old (or, for a fill, not the brick's): here is the brick's.
    #[prost(message, tag = "20")]
    Behind(BehindMessage),
    /// The request was not carried out, as it lay for too long, as far as its stamp tells.
    #[prost(message, tag = "21")]
    Late(LateMessage),
    /// It will see to those.
    #[prost(message, tag = "24")]
    Heard(LacksMessage),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct VersionMessage {
    #[prost(uint64, tag = "1")]
    ms: u64,
    #[prost(fixed32, tag = "2")]
    counter: u32,
    #[prost(fixed64, tag = "3")]
    node: u64,
}

impl From<Version> for VersionMessage {
    fn from(v: Version) -> Self {
        Self { ms: v.ms, counter: v.counter, node: v.node.0 }
    }
}

impl From<VersionMessage> for Version {
    fn from(v: VersionMessage) -> Self {
        Self { ms: v.ms, counter: v.counter, node: NodeId(v.node) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadMessage {
    #[prost(uint32, tag = "1")]
    namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    /// Send the value.
    #[prost(bool, tag = "3")]
    value: bool,
    /// Only if it is newer than this.
    #[prost(message, optional, tag = "4")]
    known: Option<VersionMessage>,
    /// Not that, but what is below this version.
    #[prost(bool, tag = "5")]
    under: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteMessage {
    #[prost(uint32, tag = "1")]
    namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(message, optional, tag = "3")]
    version: Option<VersionMessage>,
    #[prost(bool, tag = "4")]
    remove: bool,
    #[prost(uint64, tag = "5")]
    lease_ms: u64,
    #[prost(uint64, tag = "6")]
    keep_ms: u64,
    #[prost(fixed32, tag = "7")]
    sum: u32,
    #[prost(message, optional, tag = "8")]
    guard: Option<VersionMessage>,
    #[prost(bool, tag = "9")]
    repair: bool,
    #[prost(bool, tag = "10")]
    extend: bool,
    #[prost(message, optional, tag = "11")]
    open: Option<VersionMessage>,
    #[prost(bool, tag = "12")]
    confirmed: bool,
    #[prost(fixed64, repeated, tag = "13")]
    bricks: Vec<u64>,
    /// Of the value: 0 from a program that knows no kinds, or no value; 1 a text, 2 a hash.
    #[prost(uint32, tag = "14")]
    kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UndoMessage {
    #[prost(uint32, tag = "1")]
    namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(message, optional, tag = "3")]
    version: Option<VersionMessage>,
}

/// A page of keys from a shard on: of one namespace, or (`fill`) all that the asker should hold.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct ListMessage {
    #[prost(uint64, tag = "1")]
    pub cursor: u64,
    #[prost(uint32, tag = "2")]
    pub count: u32,
    #[prost(uint32, tag = "3")]
    pub namespace: u32,
    #[prost(bool, tag = "4")]
    pub fill: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FoundMessage {
    #[prost(message, optional, tag = "1")]
    version: Option<VersionMessage>,
    #[prost(bool, tag = "2")]
    live: bool,
    #[prost(bool, tag = "3")]
    tentative: bool,
    #[prost(bool, tag = "4")]
    damaged: bool,
    #[prost(uint64, tag = "5")]
    lease_ms: u64,
    #[prost(uint64, tag = "6")]
    keep_ms: u64,
    /// The body is the value, and this its checksum.
    #[prost(bool, tag = "7")]
    value: bool,
    #[prost(fixed32, tag = "8")]
    sum: u32,
    #[prost(message, optional, tag = "9")]
    open: Option<VersionMessage>,
    #[prost(bool, tag = "10")]
    confirmed: bool,
    #[prost(fixed64, repeated, tag = "11")]
    bricks: Vec<u64>,
    /// As in [`WriteMessage`].
    #[prost(uint32, tag = "12")]
    kind: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct WroteMessage {
    /// 0 stored, 1 conflict, 2 full, 3 ahead, 4 undone.
    #[prost(uint32, tag = "1")]
    how: u32,
    #[prost(bool, tag = "2")]
    had: bool,
    #[prost(message, optional, tag = "3")]
    version: Option<VersionMessage>,
    #[prost(uint64, tag = "4")]
    ahead_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct UndoneMessage {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LineMessage {
    #[prost(uint32, tag = "1")]
    namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(message, optional, tag = "3")]
    version: Option<VersionMessage>,
    #[prost(bool, tag = "4")]
    live: bool,
    #[prost(uint64, tag = "5")]
    keep_ms: u64,
    #[prost(message, optional, tag = "6")]
    open: Option<VersionMessage>,
    #[prost(bool, tag = "7")]
    confirmed: bool,
    /// As in [`WriteMessage`], of a live value.
    #[prost(uint32, tag = "8")]
    kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PageMessage {
    #[prost(message, repeated, tag = "1")]
    lines: Vec<LineMessage>,
    /// Shard to go on with; 0 at the end.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// Of a walk: how many values of the namespace this brick has, more or less. Not said by a program of level 1.
    #[prost(uint64, optional, tag = "3")]
    pub values: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BehindMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub map: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LateMessage {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct LacksMessage {
    #[prost(uint64, tag = "1")]
    pub writes: u64,
}

pub(super) fn read(key: &Key, want: Want) -> What {
    let (value, known) = match want {
        Want::Version => (false, None),
        Want::Newer(known) if known == Version::default() => (true, None),
        Want::Newer(known) | Want::Under(known) => (true, Some(known.into())),
    };
    let under = matches!(want, Want::Under(_));
    What::Read(ReadMessage { namespace: key.namespace, key: key.bytes.clone(), value, known, under })
}

pub(super) fn resolve(key: &Key) -> What {
    match read(key, Want::Version) {
        What::Read(message) => What::Resolve(message),
        other => other,
    }
}

/// The message, and the value that goes into the frame's body.
pub(super) fn write(key: &Key, write: &Write) -> (What, Bytes) {
    let what = What::Write(WriteMessage {
        namespace: key.namespace,
        key: key.bytes.clone(),
        version: Some(write.version.into()),
        remove: write.value.is_none(),
        lease_ms: millis_up(write.lease),
        keep_ms: millis_up(write.keep),
        sum: write.value.as_ref().map_or(0, |v| v.sum.0),
        guard: write.guard.map(Into::into),
        repair: write.repair,
        extend: write.extend,
        open: write.standing.open(),
        confirmed: write.standing == Standing::Confirmed,
        bricks: numbers(&write.bricks),
        kind: number_of(write.value.as_ref()),
    });
    (what, write.value.as_ref().map(|v| v.bytes.clone()).unwrap_or_default())
}

pub(super) fn undo(key: &Key, version: Version) -> What {
    What::Undo(UndoMessage { namespace: key.namespace, key: key.bytes.clone(), version: Some(version.into()) })
}

pub(super) fn settle(key: &Key, version: Version) -> What {
    match undo(key, version) {
        What::Undo(message) => What::Settle(message),
        other => other,
    }
}

pub(super) fn confirm(key: &Key, version: Version) -> What {
    match undo(key, version) {
        What::Undo(message) => What::Confirm(message),
        other => other,
    }
}

pub(super) fn found(found: Found) -> (What, Bytes) {
    let what = What::Found(FoundMessage {
        version: found.version.map(Into::into),
        live: found.live,
        tentative: found.tentative,
        damaged: found.damaged,
        lease_ms: millis_up(found.lease_left),
        keep_ms: millis_up(found.keep_left),
        value: found.value.is_some(),
        sum: found.value.as_ref().map_or(0, |v| v.sum.0),
        open: found.standing.open(),
        confirmed: found.standing == Standing::Confirmed,
        bricks: numbers(&found.bricks),
        kind: number_of(found.value.as_ref()),
    });
    (what, found.value.map(|v| v.bytes).unwrap_or_default())
}

pub(super) fn wrote(wrote: Wrote) -> What {
    let (how, had, version, ahead_ms) = match wrote {
        Wrote::Stored { had } => (0, had, None, 0),
        Wrote::Conflict(version) => (1, false, Some(version.into()), 0),
        Wrote::Full => (2, false, None, 0),
        Wrote::Ahead(ms) => (3, false, None, ms),
        Wrote::Undone => (4, false, None, 0),
        Wrote::Over(Bound::Bytes) => (5, false, None, 0),
        Wrote::Over(Bound::Keys) => (6, false, None, 0),
    };
    What::Wrote(WroteMessage { how, had, version, ahead_ms })
}

pub(super) fn page(lines: Vec<Line>, next: u64, values: Option<u64>) -> What {
    let lines = lines
        .into_iter()
        .map(|line| LineMessage {
            namespace: line.key.namespace,
            key: line.key.bytes,
            version: Some(line.version.into()),
            live: line.live,
            keep_ms: millis_up(line.keep_left),
            open: line.standing.open(),
            confirmed: line.standing == Standing::Confirmed,
            kind: if line.live { line.kind.number() } else { 0 },
        })
        .collect();
    What::Page(PageMessage { lines, next, values })
}

impl Standing {
    fn open(self) -> Option<VersionMessage> {
        if let Standing::Open(guard) = self { Some(guard.into()) } else { None }
    }

    fn of(open: Option<VersionMessage>, confirmed: bool) -> Self {
        match open {
            Some(guard) => Standing::Open(guard.into()),
            None if confirmed => Standing::Confirmed,
            None => Standing::Plain,
        }
    }
}

impl ReadMessage {
    pub fn take(self) -> (Key, Want) {
        let known = self.known.map(Version::from).unwrap_or_default();
        let want = match (self.under, self.value) {
            (true, _) => Want::Under(known),
            (false, true) => Want::Newer(known),
            (false, false) => Want::Version,
        };
        (Key::new(self.namespace, self.key), want)
    }
}

impl WriteMessage {
    pub fn take(self, body: Bytes) -> Option<(Key, Write)> {
        let key = Key::new(self.namespace, self.key);
        let value = (!self.remove).then(|| value(&key, body, self.kind, self.sum));
        let write = Write {
            version: self.version?.into(),
            value,
            lease: span(self.lease_ms),
            keep: span(self.keep_ms),
            guard: self.guard.map(Into::into),
            repair: self.repair,
            extend: self.extend,
            standing: Standing::of(self.open, self.confirmed),
            bricks: placement(&self.bricks),
        };
        Some((key, write))
    }
}

impl UndoMessage {
    pub fn take(self) -> Option<(Key, Version)> {
        Some((Key::new(self.namespace, self.key), self.version?.into()))
    }
}

impl FoundMessage {
    pub fn take(self, body: Bytes, key: &Key) -> Found {
        Found {
            version: self.version.map(Into::into),
            live: self.live,
            tentative: self.tentative,
            standing: Standing::of(self.open, self.confirmed),
            damaged: self.damaged,
            lease_left: span(self.lease_ms),
            keep_left: span(self.keep_ms),
            value: self.value.then(|| value(key, body, self.kind, self.sum)),
            bricks: placement(&self.bricks),
        }
    }
}

/// A program from before kinds says none: then the value is what such a program takes it for, and from here on that is said.
fn value(key: &Key, bytes: Bytes, kind: u32, sum: u32) -> Value {
    let kind = Kind::of_number(kind).unwrap_or_else(|| kind_of_old(key, &bytes));
    Value { bytes, kind, sum: Checksum(sum) }
}

fn number_of(value: Option<&Value>) -> u32 {
    value.map_or(0, |value| value.kind.number())
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Text => 1,
            Kind::Hash => 2,
        }
    }

    /// None: it was not said.
    fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Kind::Text),
            2 => Some(Kind::Hash),
            _ => None,
        }
    }
}

fn numbers(placement: &Placement) -> Vec<u64> {
    placement.nodes().iter().map(|node| node.0).collect()
}

fn placement(numbers: &[u64]) -> Placement {
    Placement::of(&numbers.iter().copied().map(NodeId).collect::<Vec<_>>())
}

impl WroteMessage {
    pub fn take(self) -> Option<Wrote> {
        Some(match self.how {
            0 => Wrote::Stored { had: self.had },
            1 => Wrote::Conflict(self.version?.into()),
            2 => Wrote::Full,
            3 => Wrote::Ahead(self.ahead_ms),
            4 => Wrote::Undone,
            5 => Wrote::Over(Bound::Bytes),
            6 => Wrote::Over(Bound::Keys),
            _ => return None,
        })
    }
}

impl PageMessage {
    pub fn take(self) -> Vec<Line> {
        let line = |line: LineMessage| {
            Some(Line {
                key: Key::new(line.namespace, line.key),
                version: line.version?.into(),
                standing: Standing::of(line.open, line.confirmed),
                live: line.live,
                kind: Kind::of_number(line.kind).unwrap_or_default(),
                keep_left: span(line.keep_ms),
            })
        };
        self.lines.into_iter().filter_map(line).collect()
    }
}

/// One frame of this protocol.
pub(super) fn frame(head: &Head, body: Bytes, budget: Span, priority: Priority) -> Frame {
    let mut frame = Frame::new(kind::SESSION, head.encode_to_vec());
    frame.budget_ms = u32::try_from(millis_up(budget)).unwrap_or(u32::MAX);
    frame.priority = priority;
    frame.body = body;
    frame
}

/// `None` if these bytes are no head, or one with a time that no clock shows.
pub(super) fn open(head: Bytes) -> Option<Head> {
    Head::decode(head).ok().filter(Head::has_times)
}

impl Head {
    /// Whether all its times are some that a clock can show: they are added to later.
    fn has_times(&self) -> bool {
        let clocks = [self.clock_ms, self.stamp_ms, self.waited_ms, self.asked_ms];
        clocks.into_iter().all(is_time) && self.what.as_ref().is_none_or(What::has_times)
    }
}

impl What {
    fn has_times(&self) -> bool {
        let all = |versions: &[Option<VersionMessage>]| versions.iter().flatten().all(|version| is_time(version.ms));
        match self {
            What::Read(it) | What::Resolve(it) => all(&[it.known]),
            What::Write(it) => all(&[it.version, it.guard, it.open]),
            What::Undo(it) | What::Settle(it) | What::Confirm(it) => all(&[it.version]),
            What::Found(it) => all(&[it.version, it.open]),
            What::Wrote(it) => all(&[it.version]) && is_time(it.ahead_ms),
            What::Page(it) => it.lines.iter().all(|line| all(&[line.version, line.open])),
            What::List(_) | What::Lacks(_) | What::Heard(_) | What::Undone(_) | What::Behind(_) | What::Late(_) => true,
        }
    }
}

fn is_time(ms: u64) -> bool {
    ms <= TIME_MS_MAX
}

/// For the fuzz crate: whether these bytes are a message, after asserting that what is understood of one is what would be
/// sent again.
pub fn holds(head: Bytes, body: Bytes) -> bool {
    let Some(head) = open(head) else { return false };
    assert_eq!(open(head.encode_to_vec().into()).as_ref(), Some(&head));
    match head.what {
        None => false,
        Some(What::Read(message) | What::Resolve(message)) => {
            let (key, want) = message.take();
            let What::Read(again) = read(&key, want) else { unreachable!("a read is a read") };
            let (key_again, want_again) = again.take();
            assert_eq!((key_again, want_again), (key, want));
            true
        }
        Some(What::Write(message)) => message.take(body).is_some_and(|(key, asked)| {
            let (What::Write(again), body) = write(&key, &asked) else { unreachable!("a write is a write") };
            assert_eq!(again.take(body), Some((key, asked)));
            true
        }),
        Some(What::Undo(message) | What::Settle(message) | What::Confirm(message)) => {
            message.take().is_some_and(|(key, version)| {
                let What::Settle(again) = settle(&key, version) else { unreachable!("a settlement is one") };
                assert_eq!(again.take(), Some((key, version)));
                true
            })
        }
        Some(What::Found(message)) => {
            // Whose it is tells who asked.
            let key = Key::new(9, Bytes::from_static(b"k"));
            let answer = message.take(body, &key);
            let (What::Found(again), body) = found(answer.clone()) else { unreachable!("an answer is one") };
            assert_eq!(again.take(body, &key), answer);
            true
        }
        Some(What::Wrote(message)) => message.take().is_some_and(|answer| {
            let What::Wrote(again) = wrote(answer) else { unreachable!("an answer is one") };
            assert_eq!(again.take(), Some(answer));
            true
        }),
        Some(What::Page(message)) => {
            let (next, values, lines) = (message.next, message.values, message.take());
            let What::Page(again) = page(lines.clone(), next, values) else { unreachable!("a page is one") };
            assert_eq!((again.next, again.take()), (next, lines));
            true
        }
        Some(What::Behind(message)) => super::BrickMap::decode(&message.map).is_some_and(|map| {
            assert_eq!(super::BrickMap::decode(&map.encode()), Some(map));
            true
        }),
        Some(What::List(_) | What::Undone(_) | What::Late(_) | What::Lacks(_) | What::Heard(_)) => true,
    }
}

/// Rounded up: a lease that still lasts must not arrive as none.
fn millis_up(span: Span) -> u64 {
    span.0.div_ceil(1000)
}

fn span(ms: u64) -> Span {
    Span(ms.saturating_mul(1000))
}

/// A frame as a program of the version before would have sent it.
#[cfg(test)]
pub(super) fn without_kinds(frame: &mut Frame) {
    let Some(mut head) = open(frame.head.clone()) else { return };
    match &mut head.what {
        Some(What::Write(message)) => message.kind = 0,
        Some(What::Found(message)) => message.kind = 0,
        Some(What::Page(message)) => {
            message.values = None;
            message.lines.iter_mut().for_each(|line| line.kind = 0);
        }
        _ => return,
    }
    frame.head = head.encode_to_vec().into();
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
