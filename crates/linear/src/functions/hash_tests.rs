//! Hashes whose fields end by themselves. What is expected is what Redis 7.4 answers (`unit/type/hash-field-expire` of its suite), and 8 for
//! `hash.get-expire` and `hash.set-expire`.

use super::tests::{check, list, text};
use super::*;
use Reply::{Int, Nil};

fn ints(numbers: &[i64]) -> Reply {
    Reply::List(numbers.iter().map(|n| Int(*n)).collect())
}

#[test]
fn fields_end_under_conditions() {
    let wrong = Reply::Wrong;
    check(&[
        ("h", "hash.expire", &["9000", "any", "a", "b"], ints(&[-2, -2])),
        ("h", "hash.persist", &["a"], ints(&[-2])),
        ("h", "hash.ttl", &["a", "a"], ints(&[-2, -2])),
        ("h", "hash.set", &["a", "1", "b", "2", "c", "3"], Int(3)),
        ("h", "hash.ttl", &["a", "x"], ints(&[-1, -2])),
        ("h", "hash.expire", &["9000", "xx", "a"], ints(&[0])),
        ("h", "hash.expire", &["9000", "gt", "a"], ints(&[0])),
        ("h", "hash.expire", &["9000", "nx", "a", "x"], ints(&[1, -2])),
        ("h", "hash.expire", &["8000", "nx", "a", "b"], ints(&[0, 1])),
        ("h", "hash.ttl", &["a", "b", "c"], ints(&[9000, 8000, -1])),
        ("h", "hash.expire", &["8500", "gt", "a", "b", "c"], ints(&[0, 1, 0])),
        ("h", "hash.expire", &["8600", "lt", "a", "b", "c"], ints(&[1, 0, 1])),
        ("h", "hash.expire", &["7000", "xx", "a", "a"], ints(&[1, 1])),
        ("h", "hash.ttl", &["a", "b", "c"], ints(&[7000, 8500, 8600])),
        (
            "h",
            "hash.all-ending",
            &[],
            Reply::List(vec![
                text("a"),
                text("1"),
                Int(7000),
                text("b"),
                text("2"),
                Int(8500),
                text("c"),
                text("3"),
                Int(8600),
            ]),
        ),
        ("h", "hash.persist", &["a", "x", "a"], ints(&[1, -2, -1])),
        // A condition stands before a moment that has passed; such a field is gone at once.
        ("h", "hash.expire", &["passed", "nx", "b"], ints(&[0])),
        ("h", "hash.expire", &["passed", "gt", "b"], ints(&[0])),
        ("h", "hash.expire", &["passed", "any", "b", "b"], ints(&[2, -2])),
        ("h", "hash.all", &[], list(&["a", "1", "c", "3"])),
        ("h", "hash.expire", &["passed", "any", "a", "c"], ints(&[2, 2])),
        ("h", "type", &[], text("none")),
        ("t", "put", &["v", "always", "none"], Reply::List(vec![Int(1), Nil, Int(12)])),
        ("t", "hash.expire", &["9000", "any", "a"], wrong(Wrong::Type)),
        ("t", "hash.ttl", &["a"], wrong(Wrong::Type)),
        ("t", "hash.load", &["none", "f", "v", "passed"], Int(0)),
        ("t", "type", &[], text("none")),
        ("h", "hash.expire", &["none", "any", "a"], wrong(Wrong::Arguments)),
        ("h", "hash.expire", &["9000", "any"], wrong(Wrong::Arguments)),
        ("h", "hash.expire", &["9000", "ny", "a"], wrong(Wrong::Arguments)),
        ("h", "hash.set-expire", &["always", "none", "a"], wrong(Wrong::Arguments)),
        ("h", "hash.load", &["none", "a", "b"], wrong(Wrong::Arguments)),
    ]);
}

#[test]
fn what_sets_a_field_takes_its_end_away_and_what_adds_to_it_does_not() {
    check(&[
        ("h", "hash.set", &["a", "1", "b", "2"], Int(2)),
        ("h", "hash.expire", &["9000", "any", "a", "b"], ints(&[1, 1])),
        ("h", "hash.add", &["a", "4"], Int(5)),
        ("h", "hash.add-float", &["b", "0.5"], text("2.5")),
        ("h", "hash.ttl", &["a", "b"], ints(&[9000, 9000])),
        ("h", "hash.set-new", &["a", "x"], Int(0)),
        ("h", "hash.set", &["a", "9"], Int(0)),
        ("h", "hash.ttl", &["a", "b"], ints(&[-1, 9000])),
        // Keys with such fields go where others do.
        ("h", "copy", &["i"], Int(1)),
        ("h", "rename", &["j"], Int(1)),
        ("i", "hash.ttl", &["a", "b"], ints(&[-1, 9000])),
        ("j", "hash.ttl", &["a", "b"], ints(&[-1, 9000])),
        ("j", "hash.take", &["b", "b"], Reply::List(vec![text("2.5"), Nil])),
        ("j", "hash.set", &["b", "again"], Int(1)),
        ("j", "hash.ttl", &["b"], ints(&[-1])),
    ]);
}

#[test]
fn fields_are_read_and_set_with_their_ends() {
    check(&[
        ("h", "hash.get-expire", &["9000", "a"], Reply::List(vec![Nil])),
        ("h", "exists", &[], Int(0)),
        ("h", "hash.set-expire", &["present", "9000", "a", "1"], Int(0)),
        ("h", "hash.set-expire", &["absent", "9000", "a", "1", "b", "2"], Int(1)),
        ("h", "hash.set-expire", &["absent", "none", "a", "x", "c", "3"], Int(0)),
        ("h", "hash.set-expire", &["present", "keep", "a", "4", "b", "5"], Int(1)),
        ("h", "hash.ttl", &["a", "b"], ints(&[9000, 9000])),
        ("h", "hash.set-expire", &["always", "none", "a", "6"], Int(1)),
        ("h", "hash.ttl", &["a", "b"], ints(&[-1, 9000])),
        ("h", "hash.get-expire", &["7000", "a", "x"], Reply::List(vec![text("6"), Nil])),
        ("h", "hash.get-expire", &["none", "b"], list(&["5"])),
        ("h", "hash.ttl", &["a", "b"], ints(&[7000, -1])),
        ("h", "hash.get-expire", &["passed", "a", "a"], Reply::List(vec![text("6"), Nil])),
        ("h", "hash.set-expire", &["always", "passed", "b", "7", "c", "8"], Int(1)),
        ("h", "exists", &[], Int(0)),
    ]);
}
