//! One table against a dumb twin: what it has is what was stored last, and it is within its bytes.

use proptest::prelude::*;

use super::*;
use crate::disk::Ring;
use crate::limits::SIZE_MIN;
use crate::store::{Store, Value, cost};

#[derive(Clone, Debug)]
enum Does {
    Insert { key: u8, bytes: usize, tag: u8, ttl: Option<u8> },
    Get(u8),
    Remove(u8),
    End(u8, Option<u8>),
    Purge(u8),
    Pass(u8),
    Resize(u64),
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        6 => (any::<u8>(), 0..60_000usize, 0..4u8, proptest::option::of(any::<u8>()))
            .prop_map(|(key, bytes, tag, ttl)| Does::Insert { key, bytes, tag, ttl }),
        6 => any::<u8>().prop_map(Does::Get),
        1 => any::<u8>().prop_map(Does::Remove),
        1 => (any::<u8>(), proptest::option::of(any::<u8>())).prop_map(|(key, ttl)| Does::End(key, ttl)),
        1 => (0..10u8).prop_map(Does::Purge),
        2 => (0..40u8).prop_map(Does::Pass),
        1 => (200_000..900_000u64).prop_map(Does::Resize),
    ]
}

fn name(key: u8) -> Bytes {
    Bytes::from(format!("{}/{key}", key % 3))
}

fn value(bytes: usize, tag: u8, ends: Option<Time>, stamp: usize) -> Value {
    let tags = vec![Bytes::from(format!("t{tag}"))];
    Value { bytes: Bytes::from(vec![stamp as u8; bytes]), kind: Bytes::new(), sum: stamp as u32, ends, tags }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn it_has_what_was_stored_last_or_nothing_and_is_within_its_bytes(all in proptest::collection::vec(does(), 1..300)) {
        let mut store = Store::new(500_000, Ring::new(1, 0, 0));
        let mut twin: BTreeMap<Bytes, Value> = BTreeMap::new();
        let mut now = Time(1000);
        for (stamp, one) in all.into_iter().enumerate() {
            match one {
                Does::Insert { key, bytes, tag, ttl } => {
                    let ends = ttl.map(|ttl| now + Span(u64::from(ttl)));
                    let value = value(bytes, tag, ends, stamp);
                    twin.insert(name(key), value.clone());
                    store.insert(name(key), value, 1);
                }
                Does::Get(key) => {
                    let got = store.get(now, &name(key)).map(|(value, _)| value.clone());
                    let expect = twin.get(&name(key)).filter(|value| value.ends.is_none_or(|ends| ends > now));
                    prop_assert!(got.is_none() || got.as_ref() == expect);
                }
                Does::Remove(key) => {
                    store.remove(now, &name(key));
                    twin.remove(&name(key));
                }
                Does::End(key, ttl) => {
                    let ends = ttl.map(|ttl| now + Span(u64::from(ttl)));
                    if store.set_end(now, &name(key), ends) {
                        twin.get_mut(&name(key)).unwrap().ends = ends;
                    }
                }
                Does::Purge(which) => {
                    let what = match which {
                        0..=3 => What::Tag(Bytes::from(format!("t{which}"))),
                        4..=6 => What::Prefix(Bytes::from(format!("{}/", which - 4))),
                        7..=8 => What::Key(name(which)),
                        _ => What::All,
                    };
                    store.purge(&what);
                    let purge = crate::Purge { namespace: 7, what };
                    twin.retain(|key, value| !purge.covers(7, key, &value.tags));
                }
                Does::Pass(time) => {
                    now = now + Span(u64::from(time));
                    store.sweep(now);
                    prop_assert!(store.first_end().is_none_or(|ends| ends > now));
                }
                Does::Resize(size) => store.resize(size),
            }
            prop_assert!(store.bytes() <= store.size_max());
            let there: Vec<Bytes> = twin.keys().filter(|key| store.peek(now, key).is_some()).cloned().collect();
            prop_assert_eq!(store.len(), there.len());
            prop_assert_eq!(store.bytes(), there.iter().map(|key| cost(key, &twin[key])).sum::<u64>());
        }
    }
}

#[test]
fn what_is_seen_once_does_not_push_out_what_is_asked_for() {
    let mut store = Store::new(SIZE_MIN, Ring::new(1, 0, 0));
    let now = Time(1);
    let hot: Vec<Bytes> = (0..400).map(|n| Bytes::from(format!("hot{n}"))).collect();
    for key in &hot {
        store.insert(key.clone(), value(10_000, 0, None, 1), 1);
    }
    for _ in 0..3 {
        assert!(hot.iter().all(|key| store.get(now, key).is_some()), "there is room for all of them");
    }
    // Ten times what there is room for.
    for n in 0..8_000 {
        store.insert(Bytes::from(format!("scan{n}")), value(10_000, 0, None, 1), 1);
        assert!(store.peek(now, format!("scan{n}").as_bytes()).is_some(), "what is new is there");
    }
    let left = hot.iter().filter(|key| store.peek(now, key).is_some()).count();
    assert!(left >= 396, "{left} of 400 are left");
    assert!(store.evicted > 7_000);
}

#[test]
fn what_is_asked_for_now_takes_the_place_of_what_was_long_ago() {
    let mut store = Store::new(SIZE_MIN, Ring::new(1, 0, 0));
    let now = Time(1);
    let of = |name: &str| -> Vec<Bytes> { (0..700).map(|n| Bytes::from(format!("{name}{n}"))).collect() };
    let ask = |store: &mut Store, keys: &[Bytes], times: usize| {
        for _ in 0..times {
            for key in keys {
                if store.get(now, key).is_none() {
                    store.insert(key.clone(), value(10_000, 0, None, 1), 1);
                }
            }
        }
    };
    ask(&mut store, &of("old"), 5);
    ask(&mut store, &of("new"), 60);
    let there = of("new").iter().filter(|key| store.peek(now, key).is_some()).count();
    assert!(there > 500, "{there} of 700");
}

#[test]
fn nodes_agree_on_owners_and_a_death_moves_only_its_keys() {
    use crate::view::Views;
    let views = |me: u64, nodes: &[u64]| {
        let mut views = Views::new(NodeId(me));
        nodes.iter().filter(|node| **node != me).for_each(|node| views.change(Time(1), NodeId(*node), true));
        views
    };
    let (one, three) = (views(1, &[1, 2, 3, 4, 5]), views(3, &[5, 4, 3, 2, 1]));
    let less = views(2, &[1, 2, 3, 4]);
    let mut owned = BTreeMap::<NodeId, u32>::new();
    for n in 0..5000u32 {
        let key = n.to_be_bytes();
        let owner = one.owner(&key);
        assert_eq!(owner, three.owner(&key));
        assert!(owner == NodeId(5) || less.owner(&key) == owner);
        *owned.entry(owner).or_default() += 1;
    }
    assert!(owned.values().all(|count| (850..1150).contains(count)), "{owned:?}");
}
