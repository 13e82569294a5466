//! Payloads of Redis 7.0.15 (`DUMP`), encodings of older ones by hand, and rubbish.

use proptest::prelude::*;

use state::linear::stream::Id;

use super::*;

fn bytes(hex: &str) -> Bytes {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect::<Vec<u8>>().into()
}

fn all(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

fn scores(members: &[(&'static str, f64)]) -> Value {
    Value::Sorted(members.iter().map(|(member, score)| (Bytes::from_static(member.as_bytes()), *score)).collect())
}

fn fields(fields: &[(&'static str, &'static str)]) -> Value {
    Value::Hash(fields.iter().map(|(field, text)| ((*field).into(), (*text).into())).collect())
}

#[test]
fn what_redis_dumps_is_read() {
    let long = "a".repeat(100);
    let text = |text: &str| Value::Text(Bytes::copy_from_slice(text.as_bytes()));
    let list = ["a", "1", "-200", "70000", "5000000000", &"x".repeat(70), "-1000000", "4000"];
    let of_redis = [
        ("000568656c6c6f0a006372df766534200a", text("hello")),
        ("00c139300a009d94ea2793fc08b9", text("12345")),
        ("00c0f90a005e26d130d7a242ab", text("-7")),
        ("00c3094064016161e057000161610a00e8a3b507b06df271", text(&long)),
        (
            "120102c32f406f186f00000008008161020101df3802f270110104f400f2052a0120170309e04678e03c000948f2c0bdf004cfa002ff0a0072e893c01ca39b44",
            Value::List(all(&list)),
        ),
        ("0b0e0200000003000000feff010003000a001b18460ee16f04bb", Value::Set(all(&["-2", "1", "3"]))),
        ("0b10040000000200000001000000a08601000a00d7b548c007796515", Value::Set(all(&["1", "100000"]))),
        (
            "0b180800000002000000fbffffffffffffff00f2052a010000000a00c2011015e31bc22e",
            Value::Set(all(&["-5", "5000000000"])),
        ),
        ("0202016201610a0075d99d835ef85f65", Value::Set(all(&["b", "a"]))),
        (
            "1122220000000800816402dffd02816102010181620283322e350481630283696e6604ff0a00f821e34c7aae5b14",
            scores(&[("d", -3.0), ("a", 1.0), ("b", 2.5), ("c", f64::INFINITY)]),
        ),
        (
            "0503016200000000000004400161000000000000f03f0163000000000000f0ff0a009a24ca8fdcb1d08c",
            scores(&[("b", 2.5), ("a", 1.0), ("c", f64::NEG_INFINITY)]),
        ),
        ("1012120000000400816602817602816e024d01ff0a006b7a6755697719f7", fields(&[("f", "v"), ("n", "77")])),
        ("040201660176016ec04d0a0021a876fb0748b5a2", fields(&[("f", "v"), ("n", "77")])),
    ];
    for (payload, value) in of_redis {
        let payload = bytes(payload);
        assert_eq!(restore(&payload), Ok(value.clone()));
        // Written here and read again it is the same.
        assert_eq!(restore(&dump(&value)), Ok(value));
        for at in 0..payload.len() {
            let mut changed = payload.to_vec();
            changed[at] ^= 1;
            assert_eq!(restore(&changed.into()), Err(Bad::Footer), "byte {at}");
            assert!(restore(&payload.slice(..at)).is_err());
        }
    }
    let stream = bytes(
        "130110000000000000000100000000000000011c1c0000000a00010100010101816102000102010001000101010401ff0101010101000001000a00297d780fd88aa62c",
    );
    let Ok(Value::Stream(stream)) = restore(&stream) else { panic!("a stream") };
    assert_eq!((stream.log.len(), stream.log.added()), (1, 1));
}

/// A body of this kind, with version and checksum.
fn payload(kind: u8, body: &[u8]) -> Bytes {
    sealed([&[kind], body].concat(), 6)
}

/// `text` as a text of one length byte.
fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

#[test]
fn encodings_of_older_ones_are_read() {
    // Items: "ab", 5, -3, 300, -70000, 2^40, -1.
    let items = b"\x00\x02ab\x04\xf6\x02\xfe\xfd\x03\xc0\x2c\x01\x04\xf0\x90\xee\xfe\x05\xe0\0\0\0\0\0\x01\0\0\x0a\xd0\xff\xff\xff\xff\xff";
    let len = u32::try_from(items.len() + 10).unwrap();
    let list = [&len.to_le_bytes()[..], &0u32.to_le_bytes(), &7u16.to_le_bytes(), items].concat();
    let read = all(&["ab", "5", "-3", "300", "-70000", "1099511627776", "-1"]);
    assert_eq!(restore(&payload(kind::LIST_ZIPLIST, &short(&list))), Ok(Value::List(read.clone())));
    let twice = [&[2][..], &short(&list), &short(&list)].concat();
    assert_eq!(restore(&payload(kind::LIST_OF_ZIPLISTS, &twice)), Ok(Value::List([read.clone(), read].concat())));
    let pair = b"\x11\0\0\0\0\0\0\0\x02\0\x00\x01m\x03\xf3\xff";
    let pair = [&u32::try_from(pair.len()).unwrap().to_le_bytes()[..], &pair[4..]].concat();
    assert_eq!(restore(&payload(kind::SORTED_ZIPLIST, &short(&pair))), Ok(scores(&[("m", 2.0)])));
    assert_eq!(restore(&payload(kind::HASH_ZIPLIST, &short(&pair))), Ok(fields(&[("m", "2")])));
    let old = b"\x03\x01a\x031.5\x01b\xfe\x01c\xff";
    let of_texts = scores(&[("a", 1.5), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY)]);
    assert_eq!(restore(&payload(kind::SORTED_OLD, old)), Ok(of_texts));
    let plain = [&[2, 1][..], &short(b"large"), &[2], &short(b"\x09\0\0\0\x01\0\x07\x01\xff")].concat();
    assert_eq!(restore(&payload(kind::LIST_OF_LISTPACKS, &plain)), Ok(Value::List(all(&["large", "7"]))));
    let set = b"\x0b\0\0\0\x01\0\xdf\xff\x02\x05\xff";
    let set = [&u32::try_from(set.len()).unwrap().to_le_bytes()[..], &set[4..6], b"\xdf\xff\x02\xff"].concat();
    let set = [&u32::try_from(set.len()).unwrap().to_le_bytes()[..], &set[4..]].concat();
    assert_eq!(restore(&payload(kind::SET_LISTPACK, &short(&set))), Ok(Value::Set(all(&["-1"]))));
}

#[test]
fn hashes_whose_fields_end_are_those_of_redis_7_4() {
    let value = |fields: &[(&'static str, &'static str, u64)]| {
        Value::HashEnding(fields.iter().map(|(field, text, end)| ((*field).into(), (*text).into(), *end)).collect())
    };
    let first = 1_700_000_000_000_u64;
    let read = value(&[("a", "1", first), ("b", "2", 0), ("c", "3", first + 1_000)]);
    let after = b"\x03\x01\x01a\x011\x00\x01b\x012\x43\xe9\x01c\x013";
    let body = [&first.to_le_bytes()[..], after].concat();
    assert_eq!(restore(&payload(kind::HASH_ENDING, &body)), Ok(read.clone()));
    let dumped = dump(&read);
    assert_eq!(
        (&dumped[..dumped.len() - FOOTER_BYTES], &dumped[dumped.len() - 10..][..2]),
        (&[&[24], &body[..]].concat()[..], &[12, 0][..])
    );
    // Of a candidate of 7.4: the moments themselves.
    let moment = |ms: u64| [&[0x81][..], &ms.to_be_bytes()].concat();
    let old = [&[2][..], &moment(first), b"\x01a\x011\x00\x01b\x012"].concat();
    let two = value(&[("a", "1", first), ("b", "2", 0)]);
    assert_eq!(restore(&payload(kind::HASH_ENDING_OLD, &old)), Ok(two.clone()));
    // Field, value and moment in turn, packed.
    let items = [&b"\x81a\x02\x811\x02\xf4"[..], &first.to_le_bytes(), b"\x09\x81b\x02\x812\x02\x00\x01\xff"].concat();
    let len = u32::try_from(items.len() + 6).unwrap();
    let packed = short(&[&len.to_le_bytes()[..], &6u16.to_le_bytes(), &items].concat());
    assert_eq!(restore(&payload(kind::HASH_ENDING_LISTPACK_OLD, &packed)), Ok(two.clone()));
    let headed = [&first.to_le_bytes()[..], &packed].concat();
    assert_eq!(restore(&payload(kind::HASH_ENDING_LISTPACK, &headed)), Ok(two));
    let twice = [&first.to_le_bytes()[..], b"\x02\x01\x01a\x011\x01\x01a\x012"].concat();
    let late = [&u64::MAX.to_le_bytes()[..], b"\x01\x01\x01a\x011"].concat();
    for bad in [&twice[..], &late, &body[..9], b"\0\0\0\0\0\0\0\0\0"] {
        assert_eq!(restore(&payload(kind::HASH_ENDING, bad)), Err(Bad::Format), "{bad:?}");
    }
}

/// Of Redis 7.0.15: entries with the names of the first and with others, one that was removed, groups with what is not acknowledged.
#[test]
fn a_stream_of_redis_has_its_entries_and_groups() {
    let payload = bytes(
        "13011000000000000000050000000000000001c3406840aa12aa0000001f000301010102018166028167020020090000200109817602f13930030501\
         03200c201c057702dff90205200b11c37f02dfff020101856f7468657206e04678e03c00014806206505f4fb3b534c102093010908209205f4ffe776\
         4817400d020501ff0381000000104c533c0009050105030402016743840081ffffffffffffffff0200000000000000050000000000000001b644991d\
         a20100000100000000000003840000000000000000b644991da2010000010203616e6eb644991da20100000200000000000000050000000000000001\
         0000000000000384000000000000000003626f623045991da201000000046c61746543840081ffffffffffffffff00000a00e1fdaf8c3b49de03",
    );
    let Ok(Value::Stream(stream)) = restore(&payload) else { panic!("a stream") };
    let log = &stream.log;
    let entries = log.range(Id::MIN, Id::MAX).map(|entry| (entry.id().to_string(), entry.fields()));
    let long = "x".repeat(70);
    let expected: [(&str, &[&str]); 3] = [
        ("5-1", &["f", "v", "g", "12345"]),
        ("900-0", &["other", &long]),
        ("70000000000-9", &["f", "1", "g", "99999999999"]),
    ];
    assert!(entries.eq(expected.into_iter().map(|(id, fields)| (id.to_owned(), all(fields)))));
    assert_eq!(
        (log.last().to_string(), log.deleted().to_string(), log.added()),
        ("70000000000-9".into(), "5-3".into(), 4)
    );
    let group = stream.group(b"g").unwrap();
    let pending: Vec<_> =
        group.pending().from(Id::MIN).map(|(id, has)| (id.to_string(), &has.consumer[..], has.times)).collect();
    assert_eq!(pending, [("5-1".into(), &b"ann"[..], 1), ("900-0".into(), b"ann", 1)]);
    assert_eq!((group.consumers().len(), group.read, group.last.to_string()), (2, None, "900-0".into()));
    assert_eq!(stream.groups().len(), 2);
    assert_eq!(restore(&dump(&Value::Stream(stream.clone()))), Ok(Value::Stream(stream)));
    // Whatever else its bytes may be, they are an error or a stream.
    let body = opened(&payload).unwrap();
    for at in 1..body.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = body.to_vec();
            changed[at] = byte;
            if let Ok(value) = restore(&sealed(changed, 10)) {
                assert!(matches!(value, Value::Stream(_)));
            }
        }
    }
}

/// A name that is said once in a payload would stand in many blocks.
#[test]
fn a_stream_does_not_grow_beyond_what_a_value_may_have() {
    let mut stream = Stream::default();
    let fields = [Bytes::from(vec![b'n'; 1 << 20]), Bytes::new()];
    (1..60).for_each(|ms| stream.log.add(Id { ms, seq: 0 }, &fields));
    let payload = dump(&Value::Stream(Box::new(stream)));
    assert!(payload.len() < 2 << 20);
    assert_eq!(restore(&payload), Err(Bad::Format));
}

#[test]
fn what_is_no_value_is_told_so() {
    for (kind, body) in [
        (kind::LIST, &b"\x00"[..]),
        (kind::LIST, b"\x02\x01a"),
        (kind::LIST, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff"),
        (kind::SET, b"\x02\x01a\x01a"),
        (kind::HASH, b"\x02\x01a\x01a\x01a\x01a"),
        (kind::SORTED, b"\x01\x01a\0\0\0\0\0\0\xf8\x7f"),
        (kind::SORTED_OLD, b"\x01\x01a\xfd"),
        (kind::TEXT, b"\x01ab"),
        (kind::SET_INTEGERS, b"\x08\x03\0\0\0\0\0\0\0"),
        (kind::LIST_ZIPLIST, b"\x00"),
        (kind::HASH_LISTPACK, b"\x09\x09\0\0\0\x01\0\x07\x01\xff"),
    ] {
        assert_eq!(restore(&payload(kind, body)), Err(Bad::Format), "{kind}: {body:?}");
    }
    assert_eq!(restore(&payload(99, b"")), Err(Bad::Type(99)));
    assert_eq!(restore(&sealed(vec![kind::TEXT, 0], VERSION_MAX + 1)), Err(Bad::Footer));
    assert_eq!(restore(&sealed(vec![], VERSION)), Err(Bad::Format));
}

#[test]
fn lengths_of_all_sizes_come_back() {
    // Check value of this CRC, as in Redis' own source.
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    for len in [0, 1, 63, 64, 0x3fff, 0x4000, 100_000] {
        let value = Value::List(vec![vec![b'x'; len].into(), Bytes::new()]);
        assert_eq!(restore(&dump(&value)), Ok(value));
    }
    let many = Value::List(vec![Bytes::new(); RESTORED_ITEMS_MAX + 1]);
    assert_eq!(restore(&dump(&many)), Err(Bad::Format), "more than are taken");
}

#[test]
fn packed_texts_are_unpacked_and_rubbish_is_none() {
    assert_eq!(lzf(&[0, b'a', 0xe0, 1, 0], 11), Some(vec![b'a'; 11]));
    assert_eq!(lzf(&[1, b'a', b'b', 0x20, 1], 5), Some(b"ababa".to_vec()));
    for (bad, len) in [(&[5, b'a'][..], 6), (&[0x20, 0], 3), (&[0xe0], 9), (&[0, b'a', 0xe0, 1, 0], 10)] {
        assert_eq!(lzf(bad, len), None, "{bad:?}");
    }
}

proptest! {
    /// With a true checksum, as somebody means ill.
    #[test]
    fn no_bytes_make_it_panic(kind in 0u8..22, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = restore(&payload(kind, &body));
        let packed = [&[u8::try_from(body.len()).unwrap().min(63)], &body[..body.len().min(63)]].concat();
        let _ = restore(&payload(kind, &packed));
    }
}
