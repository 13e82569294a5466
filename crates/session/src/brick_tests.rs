//! The brick against a dumb twin: one ordered map, searched from end to end; and what it must do at its limits.

use std::collections::BTreeMap;

use base::{NodeId, Span, Time};
use bytes::Bytes;
use class::{Bound, Bounds, Used};
use proptest::prelude::*;

use super::Version;
use super::brick::{Brick, Line, Standing, Want, Write, Wrote, seal};
use super::limits::{TOMBSTONE_KEPT, UNDO_KEPT};
use super::map::Placement;
use super::table::Key;

fn key(name: &str) -> Key {
    Key::new(1, Bytes::copy_from_slice(name.as_bytes()))
}

fn version(n: u64) -> Version {
    Version { ms: n, counter: 0, node: NodeId(1) }
}

fn write(n: u64, value: Option<&str>, lease: Span) -> Write {
    let value = value.map(|text| seal(Bytes::copy_from_slice(text.as_bytes()), super::Kind::Text));
    Write {
        version: version(n),
        value,
        lease,
        keep: Span::ZERO,
        guard: None,
        repair: false,
        extend: false,
        standing: Standing::Plain,
        bricks: Placement::default(),
    }
}

fn text(brick: &mut Brick, now: Time, name: &str) -> Option<String> {
    let value = brick.read(now, &key(name), Want::Newer(Version::default())).value?;
    Some(String::from_utf8(value.bytes.to_vec()).unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Write { key: u8, version: u64, value: Option<u8>, lease_s: u64 },
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..4, 1u64..60, proptest::option::of(any::<u8>()), 1u64..90).prop_map(|(key, version, value, lease_s)| {
            Step::Write { key, version, value, lease_s }
        }),
        1 => (0u64..50).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// Version, value, end of its lease, end of its memory.
type Twin = BTreeMap<u8, (u64, Option<u8>, Time, Time)>;

proptest! {
    #[test]
    fn the_brick_is_like_its_dumb_twin(steps in proptest::collection::vec(step(), 0..80)) {
        let (mut brick, mut twin, mut now) = (Brick::new(), Twin::new(), Time(5_000_000));
        for step in steps {
            match step {
                Step::Pass { seconds } => now = now + Span::secs(seconds),
                Step::Write { key: at, version, value, lease_s } => {
                    let value_text = value.map(|v| v.to_string());
                    let wrote = brick.write(
                        now,
                        100,
                        &key(&at.to_string()),
                        write(version, value_text.as_deref(), Span::secs(lease_s)),
                    );
                    let have = twin.get(&at).copied().filter(|have| have.3 > now || (have.1.is_some() && have.2 > now));
                    let expect = match have {
                        Some(have) if have.0 == version => Wrote::Stored { had: false },
                        Some(have) if have.0 > version => Wrote::Conflict(self::version(have.0)),
                        have => {
                            let lease_end = if value.is_some() { now + Span::secs(lease_s) } else { now };
                            let kept = if value.is_some() { lease_end } else { now + TOMBSTONE_KEPT };
                            let kept = have.map_or(kept, |have| have.3.max(kept));
                            twin.insert(at, (version, value, lease_end, kept));
                            Wrote::Stored { had: have.is_some_and(|have| have.1.is_some() && have.2 > now) }
                        }
                    };
                    prop_assert_eq!(wrote, expect);
                }
            }
            brick.sweep(now);
            for at in 0..4 {
                let expect = twin.get(&at).filter(|have| have.2 > now).and_then(|have| have.1);
                prop_assert_eq!(text(&mut brick, now, &at.to_string()), expect.map(|v| v.to_string()));
            }
        }
        // In the end all memory is given back.
        let end = now + Span::secs(100_000);
        for n in 0..1000 {
            brick.sweep(end + Span::secs(n));
        }
        prop_assert_eq!((brick.entries(), brick.bytes()), (0, 0));
    }
}

#[test]
fn a_conditional_write_is_taken_back_whole_also_before_it_arrives() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    brick.write(now, 100, &key("k"), write(1, Some("old"), Span::secs(60)));
    let guarded = |n, guard| Write { guard: Some(version(guard)), ..write(n, Some("new"), Span::secs(60)) };
    assert_eq!(brick.write(now, 100, &key("k"), guarded(5, 1)), Wrote::Stored { had: true });
    assert!(brick.read(now, &key("k"), Want::Version).tentative);
    brick.undo(now, &key("k"), version(5));
    assert_eq!(text(&mut brick, now, "k"), Some("old".into()));
    assert_eq!(brick.version(&key("k")), Some(version(1)));
    assert_eq!(brick.write(now, 100, &key("k"), guarded(5, 1)), Wrote::Undone, "a delayed copy of it");
    brick.undo(now, &key("k"), version(6));
    assert_eq!(brick.write(now, 100, &key("k"), guarded(6, 1)), Wrote::Undone, "the undo overtook it");
    assert_eq!(brick.write(now, 100, &key("k"), guarded(7, 0)), Wrote::Conflict(version(1)), "newer than its guard");
    assert_eq!(brick.write(now, 100, &key("new"), guarded(8, 0)), Wrote::Stored { had: false });
    brick.undo(now, &key("new"), version(8));
    assert_eq!(brick.version(&key("new")), None);
    // What is not undone in time stays.
    brick.write(now, 100, &key("k"), guarded(9, 1));
    brick.sweep(now + UNDO_KEPT);
    brick.undo(now + UNDO_KEPT, &key("k"), version(9));
    assert_eq!(text(&mut brick, now + UNDO_KEPT, "k"), Some("new".into()));
}

#[test]
fn what_is_below_a_version_that_may_be_taken_back_is_told_and_taken_over() {
    let (mut old, mut new, now) = (Brick::new(), Brick::new(), Time(1_000_000));
    let guarded = || Write { guard: Some(version(5)), ..write(5, Some("new"), Span::secs(60)) };
    old.write(now, 100, &key("k"), write(1, Some("old"), Span::secs(60)));
    // The other has restarted, and knows what was written since.
    for brick in [&mut old, &mut new] {
        assert!(matches!(brick.write(now, 100, &key("k"), guarded()), Wrote::Stored { .. }));
    }
    let below = old.read(now, &key("k"), Want::Under(version(5)));
    assert_eq!((below.version, below.live, below.tentative), (Some(version(1)), true, false));
    assert!(!new.put_under(now, &key("k"), version(4), &below), "that is not what it has");
    assert!(new.put_under(now, &key("k"), version(5), &below));
    assert_eq!(text(&mut new, now, "k"), Some("new".into()));
    new.undo(now, &key("k"), version(5));
    assert_eq!(text(&mut new, now, "k"), Some("old".into()));
    // Where nothing was, nothing is; what is confirmed has nothing below.
    old.write(now, 100, &key("first"), guarded());
    assert_eq!(old.read(now, &key("first"), Want::Under(version(5))).version, None);
    old.confirm(&key("k"), version(5));
    assert_eq!(old.read(now, &key("k"), Want::Under(version(5))).version, Some(version(5)));
}

#[test]
fn what_was_confirmed_replaces_the_newer_that_lost_to_it_and_nothing_else() {
    let now = Time(1_000_000);
    let guarded = |n, guard| Write { guard: Some(version(guard)), ..write(n, Some("open"), Span::secs(60)) };
    let copy = |n, standing| Write { repair: true, standing, ..write(n, Some("copy"), Span::secs(60)) };
    for (guard, standing, wins) in [
        (1, Standing::Confirmed, true),
        (5, Standing::Confirmed, false),
        (1, Standing::Plain, false),
        (1, Standing::Open(version(1)), false),
    ] {
        let mut brick = Brick::new();
        brick.write(now, 100, &key("k"), guarded(7, guard));
        let kind = super::Kind::Text;
        let line = |n| Line { key: key("k"), version: version(n), standing, live: true, kind, keep_left: Span::ZERO };
        assert_eq!(brick.wants(&line(5)), wins, "{guard} {standing:?}");
        let wrote = brick.write(now, 100, &key("k"), copy(5, standing));
        assert_eq!(wrote == Wrote::Stored { had: true }, wins, "{guard} {standing:?}: {wrote:?}");
        // And it does not come back.
        let again = brick.write(now, 100, &key("k"), copy(7, Standing::Open(version(guard))));
        assert_eq!(again == Wrote::Conflict(version(5)), wins, "{guard} {standing:?}: {again:?}");
    }
    // What was confirmed is not taken back any more, and a confirmation that came late finds it open still.
    let mut brick = Brick::new();
    brick.write(now, 100, &key("k"), guarded(7, 1));
    brick.sweep(now + UNDO_KEPT);
    let standing = |brick: &mut Brick| brick.read(now + UNDO_KEPT, &key("k"), Want::Version).standing;
    assert_eq!(standing(&mut brick), Standing::Open(version(1)));
    brick.confirm(&key("k"), version(7));
    brick.undo(now + UNDO_KEPT, &key("k"), version(7));
    assert_eq!(standing(&mut brick), Standing::Confirmed);
}

#[test]
fn a_full_brick_refuses_new_keys_first() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    brick.set_bytes_max(100_000);
    let big = "x".repeat(1000);
    let mut stored = 0;
    for n in 0..200 {
        if brick.write(now, 100, &key(&n.to_string()), write(1, Some(&big), Span::secs(60))) != Wrote::Full {
            stored += 1;
        }
    }
    assert!((50..100).contains(&stored), "{stored} of 1 kB each in 100 kB");
    assert!(brick.bytes() <= 100_000);
    assert_eq!(brick.write(now, 100, &key("0"), write(2, Some(&big), Span::secs(60))), Wrote::Stored { had: true });
    assert_eq!(brick.write(now, 100, &key("0"), write(3, None, Span::ZERO)), Wrote::Stored { had: true });
}

#[test]
fn a_version_far_ahead_is_refused_unless_another_brick_has_accepted_it() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    assert_eq!(brick.write(now, 100, &key("k"), write(1101, Some("v"), Span::secs(60))), Wrote::Ahead(1001));
    let copy = Write { repair: true, ..write(1101, Some("v"), Span::secs(60)) };
    assert_eq!(brick.write(now, 100, &key("k"), copy), Wrote::Stored { had: false });
}

#[test]
fn a_short_lease_does_not_uncover_what_it_overwrote() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    brick.write(now, 100, &key("k"), write(1, Some("long"), Span::secs(3600)));
    brick.write(now, 100, &key("k"), write(2, Some("short"), Span::secs(1)));
    let later = now + Span::secs(60);
    brick.sweep(later);
    let found = brick.read(later, &key("k"), Want::Version);
    assert_eq!((found.version, found.live), (Some(version(2)), false), "the version outlives its value");
    let stale = Write { repair: true, ..write(1, Some("long"), Span::secs(3500)) };
    assert_eq!(brick.write(later, 100, &key("k"), stale), Wrote::Conflict(version(2)));
}

#[test]
fn a_walk_lists_every_key_once_in_pages_of_whole_shards() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    for n in 0..5000 {
        brick.write(now, 100, &key(&n.to_string()), write(1, Some("v"), Span::secs(60)));
    }
    let (mut cursor, mut seen, mut pages) = (0, BTreeMap::new(), 0);
    loop {
        let (lines, next) = brick.list(now, cursor, 100, |_, _| true);
        assert!(lines.len() < 130, "{} lines on a page", lines.len());
        for line in lines {
            *seen.entry(line.key.bytes).or_insert(0) += 1;
        }
        pages += 1;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 5000);
    assert!(seen.values().all(|times| *times == 1) && pages >= 40);
    assert_eq!(brick.list(now, u64::MAX, 100, |_, _| true), (Vec::new(), 0));
}

#[test]
fn what_a_namespace_has_too_much_of_is_refused_and_copies_and_removals_are_not() {
    let (mut brick, now) = (Brick::new(), Time(1_000_000));
    let lease = Span::secs(60);
    let bounds = |bytes, keys| BTreeMap::from([(1, Bounds { bytes, keys })]);
    brick.set_bounds(bounds(None, Some(2)));
    let stored = |had| Wrote::Stored { had };
    let put = |brick: &mut Brick, name: &str, n, value| brick.write(now, 100, &key(name), write(n, value, lease));
    assert_eq!(put(&mut brick, "a", 1, Some("v")), stored(false));
    assert_eq!(put(&mut brick, "b", 1, Some("v")), stored(false));
    assert_eq!(put(&mut brick, "c", 1, Some("v")), Wrote::Over(Bound::Keys));
    assert_eq!(put(&mut brick, "a", 2, Some("longer")), stored(true), "it is there already");
    // Another namespace has no bound, and by cookie it is the same one.
    let other = Key::new(2, Bytes::from_static(b"c"));
    assert_eq!(brick.write(now, 100, &other, write(1, Some("v"), lease)), stored(false));
    let by_cookie = Key::new(1 | super::cookie_ops::COOKIE_BIT, Bytes::from_static(b"c"));
    assert_eq!(brick.write(now, 100, &by_cookie, write(1, Some("v"), lease)), Wrote::Over(Bound::Keys));
    // What other bricks accepted is taken: the copy must not be missing.
    let copy = Write { repair: true, ..write(1, Some("v"), lease) };
    assert_eq!(brick.write(now, 100, &key("c"), copy), stored(false));
    assert_eq!(brick.used(1).keys, 3);
    for name in ["a", "b"] {
        assert_eq!(put(&mut brick, name, 9, None), stored(true));
    }
    assert_eq!(put(&mut brick, "b", 10, Some("v")), stored(false), "where one was removed there is room");
    assert_eq!(put(&mut brick, "d", 1, Some("v")), Wrote::Over(Bound::Keys));
    // Of bytes: 49 of each key, and the values.
    brick.set_bounds(bounds(Some(49 * 2 + 10), None));
    assert_eq!(put(&mut brick, "b", 11, Some("123456789")), stored(true));
    assert_eq!(put(&mut brick, "b", 12, Some("1234567890")), Wrote::Over(Bound::Bytes));
    brick.set_bounds(bounds(Some(10), None));
    assert_eq!(put(&mut brick, "b", 13, Some("12345678")), stored(true), "less than before, and still too much");
    // When leases end there is room again.
    brick.sweep(now + Span::secs(90));
    assert_eq!(brick.used(1), Used::default());
    assert_eq!(brick.over, 4);
}
