//! Functions of ledgers, given any arguments: one on each line of an input, its name without `ledger.` first. A ledger has bounds and
//! rules that no sequence of them may break.

use bytes::Bytes;
use state::linear::functions::{Run, find};
use state::linear::{Reply, Space};

pub const WORDS: &[&[u8]] = &[
    b"folder.create INBOX 0\n",
    b"folder.create INBOX/a 7\n",
    b"folder.rename 1 b\n",
    b"folder.delete 1\n",
    b"folder.subscribe 1 yes\n",
    b"add 00112233445566778899aabbccddeeff 1 100 1 3\n",
    b"add ffeeddccbbaa99887766554433221100 2 100 1 0\n",
    b"mark 1 any add 3 1:4294967295\n",
    b"mark 1 2 set 9 1\n",
    b"copy 1 2 1\n",
    b"move 1 2 1:9\n",
    b"remove 1 0 1\n",
    b"remove-objects 00112233445566778899aabbccddeeff\n",
    b"list 1 0 100\n",
    b"numbers 1\n",
    b"changes 1 0 0 100\n",
    b"find 00112233445566778899aabbccddeeff\n",
    b"open first 9\n",
    b"close 00112233445566778899aabbccddeeff\n",
    b"skip 100\n",
    b"keywords a b\n",
    b"info\n",
    b"1:3,7",
    b"18446744073709551615",
    b"9223372036854775807",
    b"-1",
];

pub fn functions(data: &[u8]) -> bool {
    let (mut space, key, mut done) = (Space::default(), Bytes::from_static(b"ann"), false);
    let mut change = 0;
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        let Some(function) = find(&format!("ledger.{}", String::from_utf8_lossy(name))) else { continue };
        let args: Vec<Bytes> = words.map(Bytes::copy_from_slice).collect();
        let result = match function.run {
            Run::Read(run) => run(&space, &key, &args),
            Run::Write(run) => run(&mut space, &key, &args),
        };
        done |= result.is_ok();
        // Changes are numbered upwards, whatever was asked.
        let now = info(&space, &key);
        assert!(now.is_none_or(|now| now >= change), "{now:?} after {change}");
        change = now.unwrap_or(change);
    }
    done
}

/// The number of the newest change.
fn info(space: &Space, key: &Bytes) -> Option<i64> {
    let Run::Read(run) = find("ledger.info").expect("it is in the list").run else {
        unreachable!("it changes nothing")
    };
    match run(space, key, &[]).ok()? {
        Reply::List(list) => match list.first()? {
            Reply::Int(change) => Some(*change),
            other => panic!("{other:?} is no number"),
        },
        _ => None,
    }
}
