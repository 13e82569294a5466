//! What operators declare, in TOML: any text is a declaration or a sentence that says where it is wrong.

use cluster::root::Declared;
use node::declared::{diff, export};

use crate::memory::bounded;

pub const WORDS: &[&[u8]] = &[
    b"[service.shop]\n",
    b"[namespace.carts]\n",
    b"class = \"session\"\n",
    b"run = [\"x\"]\n",
    b"lease = \"30m\"\n",
    b"clones = 3\n",
    b"http = { path = \"/\" }\n",
    b"tcp = { port = 25 }\n",
    b"[",
    b"]",
    b"{",
    b"}",
    b"=",
    b"\"",
    b"'''",
    b"\"\"\"",
    b".",
    b"\\u0000",
    b"18446744073709551615",
    b"-1",
    b"99999999999d",
    b"#",
    b"\xc3\xa9",
    b"\r\n",
    b"inf",
    b"1979-05-27T07:32:00Z",
];

/// Tables, spans and messages that quote the text. A table inside a table costs the reader most: half a kilobyte for three
/// bytes, 80 deep at most.
const TEXT_TIMES: usize = 512;

pub fn toml(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let nothing = Declared::default();
    let declared = match bounded(text.len(), TEXT_TIMES, || diff(&nothing, "f.toml", &text, &[1; 32])) {
        Err(error) => {
            assert!(error.lines().count() > 0 && error.starts_with("f.toml"), "{error:?} does not say where");
            return false;
        }
        Ok(diff) => after(&nothing, diff.change),
    };
    let again = diff(&declared, "f.toml", &text, &[2; 32]).expect("what was declared can be declared");
    assert!(
        again.lines.is_empty() && again.change.puts.is_empty() && again.change.removes.is_empty(),
        "{:?}",
        again.lines
    );
    let exported = export(&declared);
    let back = diff(&nothing, "f.toml", &exported, &[1; 32]).unwrap_or_else(|e| panic!("{e}\nof\n{exported}"));
    assert_eq!(after(&nothing, back.change), declared, "exported as\n{exported}");
    let empty = diff(&declared, "f.toml", "", &[2; 32]).expect("an empty file is a declaration");
    assert!(after(&declared, empty.change).records.is_empty(), "an empty file takes back what the file declared");
    !declared.records.is_empty()
}

fn after(before: &Declared, change: cluster::root::Change) -> Declared {
    let mut after = Declared { version: before.version + 1, records: before.records.clone() };
    for key in change.removes {
        after.records.remove(&key);
    }
    for (kind, name, value) in change.puts {
        after.records.insert((kind, name), value);
    }
    after
}
