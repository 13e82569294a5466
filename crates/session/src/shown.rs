//! What this node shows of its stub and its brick: figures, windows, write intervals; and the hook by which tests damage
//! memory.

use base::{NodeId, Time};
use bytes::Bytes;
use class::Figure;
use flow::histogram::percentile;
use flow::stage::Shown;

use super::brick::Intervals;
use super::cookie_ops::COOKIE_BIT;
use super::limits::{INTERVALS_TOLD, SHARDS};
use super::table::Key;
use super::{BrickMap, CookieError, Namespace, Session};

/// What this node's stub has to do with one brick.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stub {
    pub brick: NodeId,
    /// Requests that may be under way at once (AIMD).
    pub window: f64,
    pub under_way: u32,
    /// Its last request was not answered in time.
    pub slow: bool,
    /// Counted since this node started.
    pub timeouts: u64,
    /// Requests that were not sent because the window was full, counted likewise.
    pub no_room: u64,
    /// Requests that were not sent because the brick, which had too much to do, said that it turns away what matters so little.
    pub turned_away: u64,
    /// Writes that the brick refused as its memory is full.
    pub full: u64,
}

impl Session {
    /// This node's stub towards each live brick of the map.
    pub fn stubs(&self) -> Vec<Stub> {
        let members = self.map.as_ref().map(BrickMap::everyone).unwrap_or_default();
        let stub = |brick: NodeId| {
            let peer = self.peers.get(&brick).filter(|peer| peer.live)?;
            Some(Stub {
                brick,
                window: peer.window.size(),
                under_way: peer.window.under_way(),
                slow: peer.slow,
                timeouts: peer.counts.timeouts,
                no_room: peer.counts.no_room,
                turned_away: peer.counts.turned_away,
                full: peer.counts.full,
            })
        };
        members.into_iter().filter_map(stub).collect()
    }

    /// How long values of each namespace stood until they were written anew, as this node's brick saw it: of the
    /// [`INTERVALS_TOLD`] namespaces that were written most.
    pub fn intervals(&self) -> Vec<(&str, Intervals)> {
        let of = |namespace: &Namespace| {
            let modes = [namespace.id, namespace.id | COOKIE_BIT];
            modes.iter().filter_map(|id| self.brick.intervals.get(id)).fold(Intervals::default(), |all, one| {
                Intervals { count: all.count + one.count, sum_ms: all.sum_ms.saturating_add(one.sum_ms) }
            })
        };
        let mut all: Vec<_> = self.namespaces.iter().map(|(name, namespace)| (&**name, of(namespace))).collect();
        all.retain(|(_, intervals)| intervals.count > 0);
        all.sort_unstable_by(|(a, x), (b, y)| (y.count, a).cmp(&(x.count, b)));
        all.truncate(INTERVALS_TOLD);
        all
    }

    /// The stages of this class: the brick, with how long requests lay in queues before it took them up (to the millisecond, as
    /// far as clocks tell); and the stub, with how long other bricks took to answer. Of the time since the last look. The stub is
    /// overloaded while a brick's window is full, as looks see it: between two it is full and not full again many times.
    pub(super) fn show_stages(&mut self, now: Time) -> [(&'static str, Shown); 2] {
        let live = || self.peers.values().filter(|peer| peer.live);
        let of = |percent| percentile(self.answers.counts(), percent);
        let is_overloaded = live().any(|peer| !peer.window.has_room());
        let rises = u64::from(is_overloaded && !self.stub_overload.0);
        self.stub_overload = (is_overloaded, self.stub_overload.1 + rises);
        let mut stub = Shown {
            under_way: live().map(|peer| u64::from(peer.window.under_way())).sum(),
            limit: live().map(|peer| peer.window.size() as u64).sum(),
            is_overloaded,
            started: self.peers.values().map(|peer| peer.counts.sent).sum(),
            overloads: self.stub_overload.1,
            refused: self.peers.values().map(|peer| peer.counts.no_room + peer.counts.turned_away).sum(),
            service_p50_us: of(50),
            service_p99_us: of(99),
            ..Shown::default()
        };
        self.answers.clear_into(&mut self.answers_all);
        stub.services = self.answers_all;
        [("session-brick", self.intake.show(now)), ("session-stub", stub)]
    }

    /// Times that this node's brick gave up its memory and started anew.
    pub fn starts_anew(&self) -> u64 {
        self.figures.starts_anew
    }

    /// Flips a bit of some stored value, as failing memory would: for tests and simulations of that, never called by a
    /// node. `key` is one of namespace number 1; without it, it is the first value from the `nth` shard on. False if
    /// there is none.
    pub fn flip_bit(&mut self, key: Option<&[u8]>, nth: u64) -> bool {
        let key = key.map(|key| Key::new(1, Bytes::copy_from_slice(key)));
        self.brick.flip_bit(key.as_ref(), nth as usize % SHARDS)
    }

    /// Likewise a bit of what stands beside the value of a key of namespace number 1: its version becomes a newer one.
    pub fn flip_version(&mut self, key: &[u8]) -> bool {
        self.brick.flip_version(&Key::new(1, Bytes::copy_from_slice(key)))
    }

    /// Values of [`FIGURES`], in the same order.
    pub(super) fn values_of_figures(&self) -> Vec<u64> {
        let f = &self.figures;
        vec![
            self.brick.operations,
            self.brick.bytes(),
            self.brick.bytes_max(),
            f.conflicts,
            f.bad_cookies[CookieError::Expired as usize],
            f.bad_cookies[CookieError::Foreign as usize],
            f.bad_cookies[CookieError::Forged as usize],
            f.bad_cookies[CookieError::Truncated as usize],
            self.brick.damaged,
            f.damaged_frames,
            self.brick.entries(),
            f.filled_values,
            self.brick.full,
            self.missed(),
            f.late,
            f.lost,
            f.ended,
            f.plain,
            f.merged,
            self.brick.over,
            f.reads,
            f.refused,
            f.repairs,
            self.ops.len(),
            f.served,
            f.starts_anew,
            f.timeouts,
            self.peers.values().map(|peer| peer.counts.turned_away).sum(),
            f.undos,
            f.unknown,
            f.writes,
        ]
    }
}

/// All figures of the class, in order of their names.
pub(super) const FIGURES: &[Figure] = &[
    Figure::counter("session.brick_operations", "Reads and writes that this node's brick was asked for."),
    Figure::gauge("session.bytes", "Memory that the values of this node's brick take."),
    Figure::gauge("session.bytes_max", "Memory that this node's brick may take."),
    Figure::counter("session.conflicts", "Conditional writes that were refused as somebody else was faster."),
    Figure::counter("session.cookies_expired", "Cookies refused as their lease is over."),
    Figure::counter("session.cookies_foreign", "Cookies refused as they are of another namespace or cluster."),
    Figure::counter("session.cookies_forged", "Cookies refused as nobody here has sealed them."),
    Figure::counter("session.cookies_truncated", "Cookies refused as they are not whole."),
    Figure::counter("session.damaged", "Values whose checksum did not fit, found in the memory of this node."),
    Figure::counter("session.damaged_frames", "Values whose checksum did not fit when they came from another node."),
    Figure::gauge("session.entries", "Values and marks of removed ones in this node's brick."),
    Figure::counter(
        "session.filled_values",
        "Values that this brick got from others, as it had begun empty or lacked them.",
    ),
    Figure::counter("session.full", "Writes that this brick refused as its memory is full."),
    Figure::gauge(
        "session.lacking",
        "Acknowledged writes of which a brick is known to lack its copy, and has not heard so or not looked for it yet.",
    ),
    Figure::counter("session.late_dropped", "Requests that this brick dropped as nobody waited for them any more."),
    Figure::counter("session.lost", "Reads that found that all bricks of a value had lost it."),
    Figure::counter("session.merge_ended", "Merges that were given up as somebody else kept writing."),
    Figure::counter("session.merge_plain", "Values that could not be merged, as they are no maps."),
    Figure::counter("session.merged", "Writes whose fields were merged into a newer value."),
    Figure::counter(
        "session.over",
        "Writes that this brick refused as their namespace has all that is declared for it: bytes_max, keys_max.",
    ),
    Figure::counter("session.reads", "Reads that were asked for at this node's doors."),
    Figure::counter("session.refused", "Operations that were refused: nothing was changed."),
    Figure::counter("session.repairs", "Bricks that a read brought up to date."),
    Figure::gauge("session.running", "Operations of this node's doors that are under way."),
    Figure::counter("session.served", "Requests of other nodes that this brick answered."),
    Figure::counter("session.starts_anew", "Times that this brick gave up its memory and started anew."),
    Figure::counter("session.timeouts", "Requests to bricks that were not answered in time."),
    Figure::counter(
        "session.turned_away",
        "Requests that were not sent, as the brick turns away what matters so little.",
    ),
    Figure::counter("session.undos", "Writes that were taken back at a minority of bricks."),
    Figure::counter("session.unknown", "Writes of which it is not known whether they happened."),
    Figure::counter("session.writes", "Writes that were asked for at this node's doors."),
];
