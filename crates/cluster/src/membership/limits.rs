//! Membership's numbers, and why they are these.
//!
//! A hung node is down after at most SILENCE + ANSWER + SUSPICION = 2.4 s (promised: 3 s). A node is only believed dead
//! if *nothing at all* came from it over that time: any frame of any protocol counts as life, and the time that this
//! node was itself kept from running does not count ([`STALL`]). A starved process on a saturated machine still gets to
//! run every few tens of milliseconds and answers a two-byte ping then, so load alone cannot make a death.

use base::Span;

/// One SWIM round. It finds what direct links cannot see, so it need not be faster than suspicion.
pub(super) const PROBE_PERIOD: Span = Span::millis(500);
/// Direct answer to a SWIM probe, before others are asked: far over a loopback or LAN round trip, so only a queue of
/// work makes it late. The rest of the round is left for the indirect way.
pub(super) const PROBE_RTT: Span = Span::millis(300);
/// From suspicion to death: three SWIM rounds in which a suspect may refute, ten notices of it on a live link.
pub(super) const SUSPICION: Span = Span::millis(1500);
/// A linked peer that said nothing for this long is pinged.
pub(super) const SILENCE: Span = Span::millis(500);
/// A ping without an answer for this long makes a suspect.
pub(super) const ANSWER: Span = Span::millis(400);
/// Least time between two pings of one peer: an overloaded peer may fail thousands of calls a second.
pub(super) const ASK_PAUSE: Span = Span::millis(100);
/// A suspect hears that it is one this often, so that it can refute as soon as it runs.
pub(super) const NOTICE: Span = Span::millis(150);
/// A wake this late means that we did not run; the time is taken out of all our judgements of others. Shorter delays
/// are ordinary scheduling and small beside SUSPICION.
pub(super) const STALL: Span = Span::millis(250);
/// News spreads this often, to [`FANOUT`] members: 50 nodes know within four rounds.
pub(super) const GOSSIP_PERIOD: Span = Span::millis(100);
pub(super) const FANOUT: usize = 3;
/// How often one piece of news is sent by one node: 3 * log2(50) is under 20.
pub(super) const TRANSMISSIONS: u8 = 20;
/// The whole list of who is live is fetched from one random member this often: repairs lost gossip.
pub(super) const ANNOUNCE_PERIOD: Span = Span::secs(5);
/// A linked peer that we hold for dead hears of it this often until it rejoins.
pub(super) const REJOIN_PERIOD: Span = Span::millis(500);
/// Dead members are remembered this long, so that late gossip cannot bring one back, and so that we dial them.
pub(super) const FORGET: Span = Span::secs(3600);
/// Most members; a cluster is designed for 50. Bounds what a broken peer can make us keep.
pub(super) const MEMBERS_MAX: usize = 1024;
/// One foca message. Over TCP there is no packet to fit into: all of 500 members fit.
pub(super) const PACKET_BYTES_MAX: usize = 64 << 10;

/// The node with the lower id dials; the other only if nothing came of it after this long (two crossing dials cost one).
pub(super) const DIAL_GRACE: Span = Span::millis(300);
pub(super) const DIAL_WAIT_MIN: Span = Span::millis(100);
/// A live member without a link is worth trying often: it is seen only through others.
pub(super) const DIAL_WAIT_LIVE_MAX: Span = Span::secs(2);
/// Dead members and seeds: a healed partition is found after at most this long, at one connection per member.
pub(super) const DIAL_WAIT_MAX: Span = Span::secs(8);
/// A dial that ended in silence: the host gives up after 300 ms and 1 s of handshake, so its answer was lost.
pub(super) const DIAL_LOST: Span = Span::secs(3);
/// Seeds that belong to nobody we know are still tried while others live: they may be the rest of a split cluster.
pub(super) const SEED_WAIT_QUIET: Span = Span::secs(15);

const _: () = assert!(PROBE_RTT.as_micros() < PROBE_PERIOD.as_micros(), "foca wants room for the indirect way");
const _: () =
    assert!(SILENCE.as_micros() + ANSWER.as_micros() + SUSPICION.as_micros() < 2_600_000, "hung: known in 3 s");
const _: () = assert!(NOTICE.as_micros() * 4 < SUSPICION.as_micros(), "a suspect hears of it more than once");
const _: () = assert!(STALL.as_micros() * 4 < SUSPICION.as_micros(), "a stall that is not seen must be small");
