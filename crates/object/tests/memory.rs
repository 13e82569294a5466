//! What an object and a deletion take of a node's memory, against what is counted for them. Alone in its program, so that nothing else
//! takes memory meanwhile.

use object::limits::{ENTRY_BYTES, GRAVE_BYTES};

const MANY: u64 = 300_000;

/// Memory of this process, bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("its second number is resident pages")
        * 4096
}

#[test]
fn an_object_and_a_deletion_take_as_much_memory_as_is_counted() {
    let kept = object::filled(1000, 1000);
    let start = memory();
    let objects = object::filled(MANY, 0);
    let between = memory();
    let graves = object::filled(0, MANY);
    let end = memory();
    let (object, grave) = ((between - start) / MANY, (end - between) / MANY);
    println!("an object {object}, a deletion {grave} bytes");
    assert!((100..=ENTRY_BYTES).contains(&object), "{object}");
    // A page of 2 MiB more or less is 7 bytes of each.
    assert!((50..=GRAVE_BYTES + 8).contains(&grave), "{grave}");
    drop((kept, objects, graves));
}
