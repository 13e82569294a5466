//! Bytes of frames, and what is refused.

use super::super::cookie_ops::COOKIE_BIT;
use super::super::doc::HASH_MAGIC;
use super::*;
use proptest::prelude::*;

fn head(what: What) -> Head {
    let what = Some(what);
    Head { id: 0x0102, epoch: 3, clock_ms: 1000, stamp_ms: 5, filled: 3, boot: 4, what, ..Head::default() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

const VERSION: Version = Version { ms: 300, counter: 2, node: NodeId(5) };

fn sample() -> Write {
    let value = Value { bytes: Bytes::from_static(b"v"), kind: Kind::Text, sum: Checksum(7) };
    Write {
        version: VERSION,
        value: Some(value),
        lease: Span::secs(1),
        keep: Span::secs(2),
        guard: Some(VERSION),
        repair: true,
        extend: false,
        standing: Standing::Plain,
        bricks: Placement::default(),
    }
}

fn hash() -> Write {
    let value = Value { bytes: Bytes::from_static(HASH_MAGIC), kind: Kind::Hash, sum: Checksum(7) };
    Write { value: Some(value), ..sample() }
}

fn answer(written: &Write) -> Found {
    let (version, value) = (Some(written.version), written.value.clone());
    Found { version, live: true, value, lease_left: written.lease, keep_left: written.keep, ..Found::default() }
}

/// A node whose word was added to ended over it.
#[test]
fn a_head_with_a_time_that_no_clock_shows_is_none() {
    let opens = |head: Head| open(head.encode_to_vec().into()).is_some();
    for (ms, is_shown) in [(TIME_MS_MAX, true), (TIME_MS_MAX + 1, false), (u64::MAX, false)] {
        let version = Version { ms, ..VERSION };
        let key = Key::new(9, Bytes::from_static(b"k"));
        let written = [
            Write { version, ..sample() },
            Write { guard: Some(version), ..sample() },
            Write { standing: Standing::Open(version), ..sample() },
        ];
        let standing = Standing::Open(version);
        let page = |line| page(vec![line], 0, None);
        let line = Line {
            key: key.clone(),
            version: VERSION,
            live: true,
            keep_left: Span::ZERO,
            standing: Standing::Plain,
            kind: Kind::Text,
        };
        let mut said = vec![
            read(&key, Want::Newer(version)),
            undo(&key, version),
            settle(&key, version),
            confirm(&key, version),
            found(Found { version: Some(version), ..Found::default() }).0,
            found(Found { standing, ..Found::default() }).0,
            wrote(Wrote::Conflict(version)),
            wrote(Wrote::Ahead(ms)),
            page(Line { version, ..line.clone() }),
            page(Line { standing, ..line }),
        ];
        said.extend(written.map(|written| write(&key, &written).0));
        for what in said {
            assert_eq!(opens(head(what.clone())), is_shown, "{what:?}");
        }
        let plain = || head(undo(&key, VERSION));
        assert_eq!(opens(Head { clock_ms: ms, ..plain() }), is_shown);
        assert_eq!(opens(Head { stamp_ms: ms, ..plain() }), is_shown);
        assert_eq!(opens(Head { waited_ms: ms, ..plain() }), is_shown);
        assert_eq!(opens(Head { asked_ms: ms, ..plain() }), is_shown);
    }
}

/// As a program of the version before writes it.
fn before_kinds(what: What) -> What {
    match what {
        What::Write(message) => What::Write(WriteMessage { kind: 0, ..message }),
        What::Found(message) => What::Found(FoundMessage { kind: 0, ..message }),
        other => other,
    }
}

#[test]
fn the_kind_is_what_was_said_and_without_a_word_what_it_was_before() {
    let by_key = Key::new(9, Bytes::from_static(b"k"));
    let by_cookie = Key::new(9 | COOKIE_BIT, Bytes::from_static(b"k"));
    let taken = |key: &Key, (what, body): (What, Bytes)| {
        let value = match what {
            What::Write(message) => message.take(body).unwrap().1.value,
            What::Found(message) => message.take(body, key).value,
            other => panic!("{other:?}"),
        };
        value.unwrap().kind
    };
    let text_like_a_hash = {
        let mut write = hash();
        write.value.as_mut().unwrap().kind = Kind::Text;
        write
    };
    let broken = {
        let mut write = text_like_a_hash.clone();
        write.value.as_mut().unwrap().bytes = [HASH_MAGIC, b"no"].concat().into();
        write
    };
    for (written, said, before) in [
        (sample(), Kind::Text, Kind::Text),
        (hash(), Kind::Hash, Kind::Hash),
        (text_like_a_hash, Kind::Text, Kind::Hash),
        (broken, Kind::Text, Kind::Text),
    ] {
        for (key, before) in [(&by_key, before), (&by_cookie, Kind::Text)] {
            for (what, body) in [write(key, &written), found(answer(&written))] {
                assert_eq!(taken(key, (before_kinds(what.clone()), body.clone())), before, "{written:?}");
                assert_eq!(taken(key, (what, body)), said, "{written:?}");
            }
        }
    }
}

#[test]
fn fixtures_are_read() {
    let key = Key::new(9, Bytes::from_static(b"k"));
    let (version, sample, hash) = (VERSION, sample(), hash());
    let line = Line {
        key: key.clone(),
        version,
        standing: Standing::Plain,
        live: true,
        kind: Kind::Hash,
        keep_left: Span::secs(1),
    };
    let samples = [
        ("read-newer", read(&key, Want::Newer(version))),
        ("read-under", read(&key, Want::Under(version))),
        ("write", before_kinds(write(&key, &sample).0)),
        ("write-text", write(&key, &sample).0),
        ("write-hash", write(&key, &hash).0),
        ("found-text", found(answer(&sample)).0),
        ("found-hash", found(answer(&hash)).0),
        ("page", page(vec![line.clone()], 7, None)),
        ("page-values", page(vec![line], 7, Some(8))),
        ("undo", undo(&key, version)),
        ("settle", settle(&key, version)),
        ("confirm", confirm(&key, version)),
        ("resolve", resolve(&key)),
        ("list", What::List(ListMessage { cursor: 1, count: 2, namespace: 3, fill: true })),
        ("conflict", wrote(Wrote::Conflict(version))),
        ("undone", What::Undone(UndoneMessage {})),
        ("behind", What::Behind(BehindMessage { map: Bytes::from_static(b"m") })),
        ("late", What::Late(LateMessage {})),
        ("lacks", What::Lacks(LacksMessage { writes: 300 })),
        ("heard", What::Heard(LacksMessage { writes: 300 })),
    ];
    let samples = samples.map(|(name, what)| (name, head(what.clone()).encode_to_vec(), head(what)));
    crate::kept::frames("session", &samples, open);
}

#[test]
fn heads_have_these_bytes() {
    let key = Key::new(9, Bytes::from_static(b"k"));
    let (version, sample) = (VERSION, sample());
    let v = "08ac021502000000190500000000000000";
    let start = "090201000000000000100318e807200528033004";
    for (what, tail) in [
        (read(&key, Want::Newer(version)), format!("421a080912016b18012211{v}")),
        (read(&key, Want::Under(version)), format!("421c080912016b18012211{v}2801")),
        (write(&key, &sample).0, format!("4a3a080912016b1a11{v}28e80730d00f3d070000004211{v}48017001")),
        (found(answer(&hash())).0, format!("8201240a11{v}100128e80730d00f380145070000006002")),
        (undo(&key, version), format!("5218080912016b1a11{v}")),
        (settle(&key, version), format!("6218080912016b1a11{v}")),
        (confirm(&key, version), format!("6a18080912016b1a11{v}")),
        (resolve(&key), "7205080912016b".into()),
        (What::List(ListMessage { cursor: 1, count: 2, namespace: 3, fill: true }), "5a080801100218032001".into()),
        (wrote(Wrote::Conflict(version)), format!("8a011508011a11{v}")),
        (What::Undone(UndoneMessage {}), "920100".into()),
        (What::Behind(BehindMessage { map: Bytes::from_static(b"m") }), "a201030a016d".into()),
        (What::Late(LateMessage {}), "aa0100".into()),
    ] {
        let bytes = head(what.clone()).encode_to_vec();
        assert_eq!(hex(&bytes), format!("{start}{tail}"), "{what:?}");
        assert_eq!(open(bytes.into()), Some(head(what)));
    }
    let turns_away = Head { floor: 4, ..head(What::Undone(UndoneMessage {})) };
    assert_eq!(hex(&turns_away.encode_to_vec()), format!("{start}3804920100"));
    let waited = Head { waited_ms: 5, asked_ms: 6, ..head(What::Undone(UndoneMessage {})) };
    let bytes = waited.encode_to_vec();
    assert_eq!(hex(&bytes), format!("{start}920100b00105b80106"));
    assert_eq!(open(bytes.into()), Some(waited));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(Head { what: Some(what), .. }) = open(bytes.into()) {
            let body = Bytes::from_static(b"x");
            match what {
                What::Read(m) | What::Resolve(m) => drop(m.take()),
                What::Write(m) => drop(m.take(body)),
                What::Undo(m) | What::Settle(m) | What::Confirm(m) => drop(m.take()),
                What::Found(m) => drop(m.take(body, &Key::new(9, Bytes::from_static(b"k")))),
                What::Wrote(m) => drop(m.take()),
                What::Page(m) => drop(m.take()),
                What::List(_) | What::Undone(_) | What::Behind(_) | What::Late(_) => (),
                What::Lacks(_) | What::Heard(_) => (),
            }
        }
    }
}
