//! Streams held to a dumb model, and their bytes: what they hold, what a group was given, what a flipped bit does.

use std::collections::BTreeMap;

use base::Rng;

use super::group::Consumer;
use super::paged::Paged;
use super::*;

fn id(ms: u64, seq: u64) -> Id {
    Id { ms, seq }
}

fn text(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

#[test]
fn ids_are_read_as_redis_reads_them() {
    assert_eq!(Id::parse(b"7-3", 9), Some(id(7, 3)));
    assert_eq!(Id::parse(b"7", 9), Some(id(7, 9)));
    assert_eq!(Id::parse(b"18446744073709551615-18446744073709551615", 0), Some(Id::MAX));
    for none in
        ["", "-", "-1", "1-", "a", "1-b", "+1-2", "1 -2", "1-2-3", "18446744073709551616", "1-18446744073709551616"]
    {
        assert_eq!(Id::parse(none.as_bytes(), 0), None, "{none}");
    }
    assert_eq!((id(3, u64::MAX).next(), Id::MAX.next()), (Some(id(4, 0)), None));
    assert_eq!((id(4, 0).before(), Id::MIN.before()), (Some(id(3, u64::MAX)), None));
    assert_eq!(id(4, 2).to_string(), "4-2");
}

#[test]
fn pages_hold_what_a_map_holds() {
    for seed in 0..4 {
        let (mut rng, mut paged, mut twin) = (Rng::new(seed), Paged::default(), BTreeMap::new());
        let mut kept = (Paged::default(), BTreeMap::new());
        for n in 0..4_000u64 {
            let at = id(rng.below(40), rng.below(20));
            match rng.below(5) {
                // Mostly at the end, as deliveries come.
                0 => assert_eq!(paged.insert(id(100, n), n), twin.insert(id(100, n), n)),
                1 | 2 => assert_eq!(paged.insert(at, n), twin.insert(at, n)),
                3 => assert_eq!(paged.remove(at), twin.remove(&at)),
                _ if n % 3 == 0 => {
                    let first = twin.first_key_value().map(|(id, _)| *id);
                    assert_eq!(paged.first(), first);
                    assert_eq!(first.and_then(|first| paged.remove(first)), twin.pop_first().map(|(_, n)| n));
                }
                _ => assert_eq!(paged.get(at), twin.get(&at)),
            }
            assert_eq!((paged.len(), paged.last()), (twin.len(), twin.last_key_value().map(|(id, _)| *id)));
            if n % 500 == 0 {
                assert!(paged.from(at).map(|(id, n)| (id, n)).eq(twin.range(at..)), "{at}");
                // What a copy holds does not change under it.
                assert!(kept.0.from(Id::MIN).map(|(id, n)| (id, n)).eq(&kept.1));
                kept = (paged.clone(), twin.clone());
            }
        }
    }
}

fn fields(rng: &mut Rng, n: u64) -> Vec<Bytes> {
    let names: &[&str] = if rng.chance(0.7) { &["a", "b"] } else { &["other"] };
    let large = if rng.chance(0.02) { "x".repeat(5_000) } else { String::new() };
    names.iter().flat_map(|name| [text(*name), text(format!("{n}{large}"))]).collect()
}

fn check(log: &Log, twin: &BTreeMap<Id, Vec<Bytes>>, rng: &mut Rng) {
    assert_eq!(log.len(), twin.len() as u64);
    let (from, to) = (id(rng.below(2_000), rng.below(3)), id(rng.below(2_000), rng.below(3)));
    for (from, to) in [(Id::MIN, Id::MAX), (from.min(to), from.max(to)), (to, to)] {
        let listed = || log.range(from, to).map(|entry| (entry.id(), entry.fields()));
        let theirs = || twin.range(from..=to).map(|(id, fields)| (*id, fields.clone()));
        assert!(listed().eq(theirs()), "{from} {to}");
        let back = log.range_back(from, to).map(|entry| (entry.id(), entry.fields()));
        assert!(back.eq(theirs().rev()), "{from} {to}");
    }
    assert_eq!(log.bytes(), log.blocks().map(super::block::Block::bytes).sum::<usize>());
    assert_eq!(log.first(), twin.first_key_value().map_or(Id::MIN, |(id, _)| *id));
    assert_eq!(log.has_after(from), twin.range(from..).any(|(id, _)| *id > from));
}

/// Beside a map; and one that was read from its own bytes now and then goes on in the same way, blocks and all.
#[test]
fn entries_are_those_of_a_map_whatever_is_removed() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let (mut stream, mut twin, mut last) = (Stream::default(), BTreeMap::new(), Id::MIN);
        let mut replica = Stream::default();
        for n in 0..2_000u64 {
            match rng.below(10) {
                0..7 => {
                    last = if rng.chance(0.3) { last.next().unwrap() } else { id(last.ms + 1, rng.below(3)) };
                    let fields = fields(&mut rng, n);
                    stream.log.add(last, &fields);
                    replica.log.add(last, &fields);
                    twin.insert(last, fields);
                }
                7 => {
                    let gone =
                        if rng.chance(0.5) { id(rng.below(last.ms + 1), rng.below(3)) } else { stream.log.first() };
                    let was = twin.remove(&gone).is_some();
                    assert_eq!([&mut stream, &mut replica].map(|stream| stream.log.remove(gone)), [was; 2]);
                }
                8 => {
                    let to = if rng.chance(0.5) {
                        TrimTo::Len(stream.log.len().saturating_sub(rng.below(20)))
                    } else {
                        TrimTo::Id(id(stream.log.first().ms + rng.below(9), 1))
                    };
                    let trim = Trim { to, about: false, limit: 0 };
                    let before = twin.len();
                    match to {
                        TrimTo::Len(most) => {
                            while twin.len() as u64 > most {
                                twin.pop_first();
                            }
                        }
                        TrimTo::Id(first) => twin.retain(|id, _| *id >= first),
                    }
                    let gone = (before - twin.len()) as u64;
                    assert_eq!([&mut stream, &mut replica].map(|stream| stream.log.trim(trim)), [gone; 2]);
                }
                _ => {
                    let trim = Trim { to: TrimTo::Len(rng.below(300)), about: true, limit: 150 };
                    let gone = stream.log.trim(trim);
                    (0..gone).for_each(|_| drop(twin.pop_first()));
                    assert_eq!(replica.log.trim(trim), gone, "as its blocks are the same");
                    assert!(gone <= 150);
                }
            }
            if n % 50 == 0 {
                check(&stream.log, &twin, &mut rng);
                replica = wire::decode(&wire::encode(&replica)).unwrap();
                assert_eq!(replica, stream);
            }
        }
    }
}

#[test]
fn a_copy_shares_all_blocks_but_the_one_that_is_changed() {
    let mut stream = Stream::default();
    (1..1_000u64).for_each(|n| stream.log.add(id(n, 0), &[text("field"), text("value")]));
    let copy = stream.clone();
    stream.log.add(id(5_000, 0), &[text("field"), text("value")]);
    assert!(stream.log.remove(id(500, 0)));
    let blocks = |stream: &Stream| stream.log.blocks().map(|block| block as *const _).collect::<Vec<_>>();
    let (old, new) = (blocks(&copy), blocks(&stream));
    assert_eq!(old.iter().filter(|block| !new.contains(block)).count(), 2, "of {}", old.len());
    assert_eq!(copy.log.len(), 999);
    // Names are said once a block: 9 bytes for id and value, and a hundredth of a block's cost.
    assert!(copy.bytes() < 999 * 14, "{}", copy.bytes());
}

#[test]
fn what_is_trimmed_about_are_whole_blocks_and_no_more_than_the_limit() {
    let grown = |count: u64| {
        let mut stream = Stream::default();
        (1..=count).for_each(|n| stream.log.add(id(n, 0), &[text("f"), text("v")]));
        stream.log
    };
    // (entries, to, limit, gone): as Redis 7.0.15 does with blocks of 100.
    for (count, to, limit, gone) in [
        (1_000, TrimTo::Len(555), 0, 400),
        (1_000, TrimTo::Len(500), 0, 500),
        (1_000, TrimTo::Len(1_000), 0, 0),
        (1_000, TrimTo::Len(0), 250, 200),
        (1_000, TrimTo::Len(0), 30, 0),
        (99, TrimTo::Len(1), 0, 0),
        (1_000, TrimTo::Id(id(301, 0)), 0, 300),
        (1_000, TrimTo::Id(id(300, 0)), 0, 200),
        (1_000, TrimTo::Id(Id::MAX), 0, 1_000),
    ] {
        assert_eq!(grown(count).trim(Trim { to, about: true, limit }), gone, "{count} {to:?} {limit}");
    }
}

fn grouped() -> Stream {
    let mut stream = Stream::default();
    (1..=300u64).for_each(|n| stream.log.add(id(n, n), &[text("f"), text("v")]));
    stream.set_group(text("g"), Group::new(id(2, 0), Some(7)));
    stream.set_group(text(""), Group::default());
    let done = stream.change_group(b"g", |_, group| {
        group.add_consumer(text("b"), Consumer::new(5, None));
        assert!(group.see(&text("a"), 9) && !group.see(&text("a"), 10));
        (1..=200).for_each(|n| group.give(id(n, n), &text(if n % 2 == 0 { "a" } else { "b" }), n, 1));
        group.acts(b"a", 11);
    });
    assert!(done.is_some() && stream.change_group(b"none", |_, _| ()).is_none());
    stream
}

#[test]
fn a_group_knows_who_has_what() {
    let mut stream = grouped();
    let counted = |stream: &Stream| {
        let group = stream.group(b"g").unwrap();
        let of = |name: &[u8]| group.consumer(name).map_or(0, |consumer| consumer.pending().len());
        (group.pending().len(), of(b"a"), of(b"b"))
    };
    assert_eq!(counted(&stream), (200, 100, 100));
    let before = stream.bytes();
    stream.change_group(b"g", |_, group| {
        assert!(group.take(id(1, 1)) && !group.take(id(1, 1)));
        group.give(id(3, 3), &text("a"), 50, 2);
        group.give_again(id(3, 3), 60);
        group.give(id(5, 5), &text("nobody"), 60, 2);
        let pending = group.pending().get(id(3, 3)).unwrap();
        assert_eq!((&pending.consumer[..], pending.at, pending.times), (&b"a"[..], 60, 3));
    });
    assert_eq!(counted(&stream), (199, 101, 98));
    stream.change_group(b"g", |_, group| {
        assert_eq!((group.remove_consumer(b"a"), group.remove_consumer(b"a")), (101, 0))
    });
    assert_eq!(counted(&stream), (98, 0, 98));
    assert!(stream.bytes() < before);
    assert!(stream.remove_group(b"g") && stream.remove_group(b"") && !stream.remove_group(b"g"));
    assert_eq!(stream.bytes(), stream.log.bytes());
}

#[test]
fn a_stream_is_what_was_written_of_it_and_nonsense_is_none() {
    let stream = grouped();
    let parts = wire::encode(&stream);
    let read = wire::decode(&parts).unwrap();
    assert_eq!(read, stream);
    assert_eq!(read.bytes(), stream.bytes());
    assert_eq!(wire::decode(&[]), None);
    // A block is missing, or comes twice: then what comes next is none, or not in order.
    assert_eq!(wire::decode(&[&parts[..1], &parts[2..]].concat()), None);
    assert_eq!(wire::decode(&[&parts[..2], &parts[1..]].concat()), None);
    let mut rng = Rng::new(7);
    for n in 0..3_000 {
        let mut parts = parts.clone();
        let at = rng.below(parts.len() as u64) as usize;
        let mut bytes = parts[at].to_vec();
        let within = rng.below(bytes.len().max(1) as u64) as usize;
        if n % 3 == 0 {
            bytes.truncate(within);
        } else if let Some(byte) = bytes.get_mut(within) {
            *byte ^= 1 << rng.below(8);
        }
        parts[at] = bytes.into();
        // What is taken can be gone through, and be written again.
        if let Some(stream) = wire::decode(&parts) {
            let all: Vec<_> = stream.log.range(Id::MIN, Id::MAX).map(|entry| entry.fields()).collect();
            assert_eq!(all.len() as u64, stream.log.len());
            assert_eq!(wire::decode(&wire::encode(&stream)).as_ref(), Some(&stream));
        }
    }
}
