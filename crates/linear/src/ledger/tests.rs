//! A ledger's bytes: what is read is what was written, or nothing.

use super::*;

/// One of each of what there may be. Its bytes stand in tests/fixtures.
pub fn sample() -> Ledger {
    let mut ledger = Ledger::default();
    let id = |n: u8| [n; 16];
    let new = |n: u8, folder, marks| New { object: id(n), folder, size: 100 + u32::from(n), date: 7, marks };
    ledger.create("INBOX".into(), 1_000);
    ledger.create("Trash".into(), 1_000);
    ledger.add((1..=6).map(|n| new(n, 1, u64::from(n))).collect());
    ledger.carry(1, 2, &[1, 2], false);
    ledger.carry(1, 2, &[3], true);
    ledger.mark(1, &[(4, 1 << 62)]);
    ledger.remove([(1, 5), (1, 1), (2, 1)]);
    ledger.remove([(1, 6)]);
    ledger.close(&[id(6)], 5_000);
    ledger.name("Work".into());
    ledger.subscribe(2, false);
    ledger
}

#[test]
fn a_ledger_is_read_as_it_was_written() {
    for ledger in [Ledger::default(), sample()] {
        let read = Ledger::decode(&ledger.encode()).unwrap();
        assert_eq!(read, ledger);
        assert_eq!((read.bytes(), read.encode()), (ledger.bytes(), ledger.encode()));
    }
    let ledger = sample();
    assert_eq!((ledger.len(), ledger.open(), ledger.closed.len(), ledger.removals), (4, 2, 1, 5));
}

/// Whatever stands there: none that would make a promise of the ledger false, and never a panic.
#[test]
fn damaged_bytes_are_no_ledger_or_one_that_holds_together() {
    let good = sample().encode();
    let mut read = 0;
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.to_vec();
            bytes[at] ^= 1 << bit;
            let Some(mut ledger) = Ledger::decode(&bytes) else { continue };
            read += 1;
            assert_eq!(Ledger::decode(&ledger.encode()).as_ref(), Some(&ledger));
            for (id, folder) in ledger.folders() {
                assert_eq!(ledger.items(id, 0..=u32::MAX).count(), folder.count as usize);
            }
            let all: Vec<(u32, u32)> = ledger.items.all().map(Item::key).collect();
            ledger.remove(all);
            let open: Vec<Id> = ledger.open_from([0; 16]).collect();
            ledger.close(&open, 9_000);
            ledger.skip();
            assert_eq!((ledger.len(), ledger.open()), (0, 0));
        }
        assert!(Ledger::decode(&good[..at]).is_none_or(|ledger| ledger != sample()));
    }
    assert!(read > 100, "many bits are names, times and marks: {read}");
}

#[test]
fn a_change_under_a_copy_leaves_it_as_it_was() {
    let mut ledger = sample();
    let (copy, bytes) = (ledger.clone(), ledger.encode());
    let items: Vec<_> = ledger.items.all().map(Item::key).collect();
    ledger.mark(1, &[(2, 0)]);
    ledger.remove(items);
    ledger.create("more".into(), 9);
    assert_eq!(copy.encode(), bytes);
}
