//! What this node shows of its stub and its brick: figures, windows, write intervals; and the hook by which tests damage
//! memory.

use base::{NodeId, Time};
use bytes::Bytes;
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
    pub fn stages(&mut self, now: Time) -> [(&'static str, Shown); 2] {
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

    /// Figures for metrics, in order of their names, which makes a map of them cheap. Counted since this life began, but
    /// for `bytes`, `bytes_max`, `entries`, `lacking` and `running`, which are what is now.
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let f = &self.figures;
        vec![
            ("session.brick_operations", self.brick.operations),
            ("session.bytes", self.brick.bytes()),
            ("session.bytes_max", self.brick.bytes_max()),
            ("session.conflicts", f.conflicts),
            ("session.cookies_expired", f.bad_cookies[CookieError::Expired as usize]),
            ("session.cookies_foreign", f.bad_cookies[CookieError::Foreign as usize]),
            ("session.cookies_forged", f.bad_cookies[CookieError::Forged as usize]),
            ("session.cookies_truncated", f.bad_cookies[CookieError::Truncated as usize]),
            ("session.damaged", self.brick.damaged),
            ("session.damaged_frames", f.damaged_frames),
            ("session.entries", self.brick.entries()),
            ("session.filled_values", f.filled_values),
            ("session.full", self.brick.full),
            ("session.lacking", self.missed()),
            ("session.late_dropped", f.late),
            ("session.lost", f.lost),
            ("session.merge_ended", f.ended),
            ("session.merge_plain", f.plain),
            ("session.merged", f.merged),
            ("session.reads", f.reads),
            ("session.refused", f.refused),
            ("session.repairs", f.repairs),
            ("session.running", self.ops.len()),
            ("session.served", f.served),
            ("session.starts_anew", f.starts_anew),
            ("session.timeouts", f.timeouts),
            ("session.turned_away", self.peers.values().map(|peer| peer.counts.turned_away).sum()),
            ("session.undos", f.undos),
            ("session.unknown", f.unknown),
            ("session.writes", f.writes),
        ]
    }
}
