//! Random commands, each sent here and to redis-server, in both dialects: the replies are the same to the byte.

use base::Rng;

use super::*;
use crate::resp::scripts::tests::Redis;

type Words = Vec<Vec<u8>>;

const COMMANDS: usize = 700;

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// All that comes before this.
async fn until_said(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut got = vec![];
    while !got.ends_with(end) {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "closed after {}", String::from_utf8_lossy(&got));
    }
    got.truncate(got.len() - end.len());
    got
}

/// What `make` says, by a generator and the number of the command.
fn alike(seed: u64, make: impl Fn(&mut Rng, usize) -> Words) {
    let Some(mut redis) = Redis::start() else { return };
    for protocol in ["2", "3"] {
        redis.ask(&["HELLO", protocol]);
        redis.ask(&["FLUSHALL"]);
        let (redis, make) = (&mut redis, &make);
        with_door(move |toy, mut stream| async move {
            toy.set_linear();
            *toy.bank.borrow_mut() = Some(bank());
            send(&mut stream, &[&format!("HELLO {protocol} AUTH bank secret3"), "ECHO signed-in"]).await;
            until_said(&mut stream, b"$9\r\nsigned-in\r\n").await;
            let (mut rng, mut differ) = (Rng::new(seed), Vec::new());
            for number in 0..COMMANDS {
                let command = make(&mut rng, number);
                let bytes = resp(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
                let theirs = redis.ask_bytes(&bytes);
                stream.write_all(&[&bytes[..], &line("ECHO said")].concat()).await.unwrap();
                let ours = until_said(&mut stream, b"$4\r\nsaid\r\n").await;
                if ours != theirs {
                    let shown = |bytes: &[u8]| bytes[..bytes.len().min(600)].escape_ascii().to_string();
                    let said: Vec<String> = command.iter().map(|word| shown(word)).collect();
                    differ.push(format!("{}\n  ours   {}\n  theirs {}", said.join(" "), shown(&ours), shown(&theirs)));
                    if differ.len() == 5 {
                        break;
                    }
                }
            }
            assert!(differ.is_empty(), "RESP{protocol}, seed {seed}: {}", differ.join("\n"));
        });
    }
}

fn one<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    rng.pick(of).copied().unwrap_or_default()
}

/// `of` that many times in ten, or nothing.
fn maybe(of: &str, rng: &mut Rng, tenths: u64) -> String {
    if rng.below(10) < tenths { format!(" {of}") } else { String::new() }
}

#[test]
fn places_are_as_in_redis() {
    for seed in 1..=2 {
        alike(seed, |rng, _| words(&place_command(rng)));
    }
}

fn place_command(rng: &mut Rng) -> String {
    // Few, so that some members are at the same place; some are where there is none.
    let degrees = |rng: &mut Rng, most: i64| (rng.below(8) as i64 - 4) as f64 * most as f64 / 3.9 + 0.123456;
    let place = |rng: &mut Rng| match rng.below(60) {
        0 => format!("{} 3.2", one(rng, &["180", "-180", "180.0001", "1e300", "inf", "nan", "x", "-0", ""])),
        1 => format!("3.2 {}", one(rng, &["85.05112878", "-85.05112878", "85.06", "-1e10", "-inf", "0x1p", "+1.5e1"])),
        2..=15 => format!("{} {}", rng.below(360_000) as f64 / 1e3 - 180.0, rng.below(170_000) as f64 / 1e3 - 85.0),
        _ => format!("{} {}", degrees(rng, 4), degrees(rng, 3)),
    };
    let key = one(rng, &["g0", "g1", "g2", "none"]);
    let member = format!("m{}", rng.below(40));
    // Where a member is named, that it is not there Redis says before anything that is wrong behind it.
    let length = |rng: &mut Rng, sound: bool| match rng.below(40) {
        0 if !sound => one(rng, &["-1", "x", "inf", "nan", "1e300", "1e-300", ""]).to_owned(),
        1..=3 => "0".to_owned(),
        _ => format!("{}", (1 + rng.below(9)) * 10_u64.pow(rng.below(5) as u32)),
    };
    let unit = |rng: &mut Rng, sound: bool| match rng.below(8) {
        0 if !sound => "yards",
        _ => one(rng, &["km", "km", "KM", "mi", "m", "ft"]),
    };
    let shows = |rng: &mut Rng| ["WITHDIST", "withcoord", "WITHHASH"].map(|word| maybe(word, rng, 4)).concat();
    let order = |rng: &mut Rng, sound: bool| {
        let odd: &[&str] = if sound { &["1"] } else { &["0", "-1", "x"] };
        let odd = one(rng, odd);
        let count = format!("COUNT {}", one(rng, &["1", "2", "3", "5", "10", "25", odd, "99999999999"]));
        let count = maybe(&count, rng, 6);
        let any = if count.is_empty() { 0 } else { 3 };
        let order = one(rng, &["", " ASC", " DESC", " desc"]);
        format!("{count}{}{order}", maybe("ANY", rng, any))
    };
    let around = |rng: &mut Rng, sound: bool| match rng.below(2) {
        0 => format!("BYRADIUS {} {}", length(rng, sound), unit(rng, sound)),
        _ => format!("BYBOX {} {} {}", length(rng, sound), length(rng, sound), unit(rng, sound)),
    };
    let near = |rng: &mut Rng| match rng.below(2) {
        0 => format!("FROMMEMBER m{} {}{}", rng.below(40), around(rng, true), order(rng, true)),
        _ => format!("FROMLONLAT {} {}{}", place(rng), around(rng, false), order(rng, false)),
    };
    match rng.below(22) {
        0..=6 => {
            let flags = format!("{}{}", maybe(one(rng, &["NX", "XX", "nx"]), rng, 2), maybe("CH", rng, 3));
            let more = maybe(&format!("{} n{}", place(rng), rng.below(9)), rng, 5);
            format!("GEOADD {key}{flags} {} {member}{more}", place(rng))
        }
        7 => format!("GEOPOS {key} {member} m{} none", rng.below(40)),
        8 => format!("GEOHASH {key} {member} m{} none", rng.below(40)),
        9 | 10 => format!("GEODIST {key} {member} m{}{}", rng.below(40), maybe(unit(rng, false), rng, 6)),
        11..=14 => format!("GEOSEARCH {key} {}{}", near(rng), shows(rng)),
        15 | 16 => format!("GEOSEARCHSTORE to {key} {}", near(rng)),
        17 => format!("ZRANGE to 0 -1{}", maybe("WITHSCORES", rng, 5)),
        18 => {
            let stored = maybe(one(rng, &["STORE to", "STORE g2", "STORE none"]), rng, 5);
            let shows = if rng.below(4) == 0 || stored.is_empty() { shows(rng) } else { String::new() };
            format!(
                "GEORADIUS {key} {} {} {}{}{shows}{stored}",
                place(rng),
                length(rng, false),
                unit(rng, false),
                order(rng, false)
            )
        }
        19 => {
            format!("GEORADIUS_RO {key} {} {} km{}{}", place(rng), 1 + rng.below(9_000), order(rng, true), shows(rng))
        }
        20 => format!("GEORADIUSBYMEMBER {key} {member} {} km{}{}", 1 + rng.below(9_000), order(rng, true), shows(rng)),
        _ => match rng.below(4) {
            0 => format!("ZADD {key} {} odd", one(rng, &["-1", "0", "1e16", "1e300", "-inf", "9007199254740992"])),
            1 => format!("GEOSEARCHSTORE far {key} {} STOREDIST", near(rng)),
            2 => "ZRANGE far 0 -1".to_owned(),
            _ => format!("GEORADIUSBYMEMBER_RO {key} {member} 500 mi{}{}", order(rng, true), shows(rng)),
        },
    }
}

#[test]
fn numbers_of_so_many_bits_are_as_in_redis() {
    for seed in 3..=4 {
        alike(seed, |rng, _| words(&field_command(rng)));
    }
}

fn field_command(rng: &mut Rng) -> String {
    let key = one(rng, &["b0", "b1", "b2", "list"]);
    let kind = |rng: &mut Rng| match rng.below(25) {
        0 => one(rng, &["u64", "i65", "i0", "x8", "u", "i-1", "i08"]).to_owned(),
        1 | 2 => one(rng, &["i64", "u63", "i1", "u1"]).to_owned(),
        _ => format!("{}{}", one(rng, &["i", "u"]), 1 + rng.below(20)),
    };
    let offset = |rng: &mut Rng| match rng.below(30) {
        0 => {
            one(rng, &["-1", "x", "#x", "#-1", "4294967296", "9223372036854775807", "#9223372036854775807"]).to_owned()
        }
        1..=6 => format!("#{}", rng.below(9)),
        _ => rng.below(90).to_string(),
    };
    // Not -2^63: with `OVERFLOW SAT` Redis takes it for one above what fits into less than 64 bits (a difference that overflows in its C).
    let number = |rng: &mut Rng| match rng.below(12) {
        0 => one(rng, &["9223372036854775807", "-9223372036854775807", "9223372036854775808", "x"]).to_owned(),
        1..=4 => (rng.below(1 << 22) as i64 - (1 << 21)).to_string(),
        _ => (rng.below(300) as i64 - 150).to_string(),
    };
    let field = |rng: &mut Rng| match rng.below(12) {
        0..=3 => format!(" GET {} {}", kind(rng), offset(rng)),
        4..=6 => format!(" SET {} {} {}", kind(rng), offset(rng), number(rng)),
        7..=9 => format!(" incrby {} {} {}", kind(rng), offset(rng), number(rng)),
        10 => format!(" OVERFLOW {}", one(rng, &["wrap", "SAT", "FAIL", "fail", "other"])),
        _ => one(rng, &[" GET u8", " OVERFLOW", " SET u8 0", " what"]).to_owned(),
    };
    let bits = |rng: &mut Rng| (rng.below(200) as i64 - 100).to_string();
    match rng.below(14) {
        0..=6 => {
            let fields: String = (0..rng.below(5)).map(|_| field(rng)).collect();
            format!("BITFIELD {key}{}{fields}", maybe("OVERFLOW SAT", rng, 4))
        }
        7 => format!("BITFIELD_RO {key} GET u8 {}{}", rng.below(90), maybe("SET u8 0 1", rng, 2)),
        8 => format!("GET {}", one(rng, &["b0", "b1", "b2"])),
        9 => format!("BITCOUNT {key} {} {}{}", bits(rng), bits(rng), maybe(one(rng, &["BIT", "BYTE"]), rng, 5)),
        10 => format!(
            "BITPOS {key} {} {} {}{}",
            rng.below(2),
            bits(rng),
            bits(rng),
            maybe(one(rng, &["BIT", "BYTE"]), rng, 5)
        ),
        11 => format!("BITOP {} b2 b0 b1", one(rng, &["AND", "OR", "XOR"])),
        12 => format!("GETBIT {key} {}", one(rng, &["0", "7", "100", "134217728", "4294967295", "4294967296", "-1"])),
        _ => one(rng, &["DEL b0", "SET b1 12345", "RPUSH list a", "SETBIT b0 33 1"]).to_owned(),
    }
}

#[test]
fn estimates_have_the_bytes_of_redis() {
    for seed in 5..=6 {
        alike(seed, sketch_command);
    }
}

fn sketch_command(rng: &mut Rng, number: usize) -> Words {
    let key = one(rng, &["p0", "p1", "p2", "p3"]);
    match rng.below(20) {
        0..=5 => {
            // So many that one becomes dense now and then, but not soon.
            let many = rng.below([3, 20, 150][number % 3]);
            let elements = (0..many).map(|_| rng.u64().to_be_bytes()[..1 + rng.below(8) as usize].to_vec());
            words(&format!("PFADD {key}")).into_iter().chain(elements).collect()
        }
        6..=9 => words(&format!("GET {key}")),
        10..=12 => words(&format!("PFCOUNT {key}")),
        13 => words(&format!("PFCOUNT {key} p1 none p1")),
        14 => words(&format!("PFMERGE {key} {}", one(rng, &["p0 p1", "none", "p2", "p0 p1 p2 p3", "text"]))),
        15 => words(one(
            rng,
            &["PFMERGE p3", "PFADD p3", "SET text words", "PFADD text a", "PFCOUNT text", "PFCOUNT none"],
        )),
        16 => {
            words(one(rng, &["DEL p3", "DEL p0", "RPUSH list a", "PFADD list a", "PFCOUNT p0 list", "PFMERGE list p0"]))
        }
        // One of which bytes were changed gets one element at a time, as Redis keeps those before an error.
        17 => words(&format!("SETRANGE bad {} {}", 16 + rng.below(60), one(rng, &["a", "\x7f", "zz", "@"]))),
        18 => words(one(rng, &["DEL bad", "COPY p0 bad", "COPY p1 bad REPLACE", "COPY p2 bad REPLACE", "PFADD bad"])),
        _ => words(one(
            rng,
            &["PFCOUNT bad", "PFADD bad x", "PFADD bad yy", "PFMERGE p3 bad", "PFCOUNT p0 bad", "GET bad"],
        )),
    }
}

#[test]
fn items_are_sorted_as_in_redis() {
    for seed in 7..=8 {
        alike(seed, |rng, _| words(&sort_command(rng)));
    }
}

fn sort_command(rng: &mut Rng) -> String {
    let item = |rng: &mut Rng| match rng.below(12) {
        0 => one(rng, &["a", "bb", "B", "-0", "1e3", "+7", "007", "inf", "-inf", "1x", "3.5"]).to_owned(),
        _ => rng.below(30).to_string(),
    };
    match rng.below(16) {
        0 | 1 => format!("RPUSH {} {} {}", one(rng, &["l0", "l1"]), item(rng), item(rng)),
        2 => format!("SADD s0 {}", rng.below(40)),
        3 => format!("ZADD z0 {} {}", rng.below(9), rng.below(40)),
        4 => format!("SET w{} {}", rng.below(30), item(rng)),
        5 => format!("HSET h{} f {} g {}", rng.below(30), item(rng), rng.below(9)),
        6 => format!("LRANGE {} 0 -1", one(rng, &["to", "l0"])),
        7 => one(rng, &["DEL l0", "DEL l1", "DEL to", "SET text a"]).to_owned(),
        _ => {
            let key = one(rng, &["l0", "l0", "l1", "z0", "s0", "none", "text"]);
            // What items of a set that are alike have for an order, Redis' table says.
            let is_list = key.starts_with('l');
            let by =
                if is_list { one(rng, &[" BY w*", " BY h*->f", " BY nothing", ""]) } else { one(rng, &["", " BY w*"]) };
            let gets = [" GET #", " GET w*", " GET h*->g", " GET h*->", " GET w", " get h*->f"];
            let gets: String = (0..rng.below(3)).map(|_| one(rng, &gets)).collect();
            let limit = maybe(&format!("LIMIT {} {}", rng.below(9) as i64 - 2, rng.below(14) as i64 - 2), rng, 4);
            let alpha = if is_list || by.is_empty() { maybe("ALPHA", rng, 4) } else { String::new() };
            let order = one(rng, &["", " ASC", " DESC", " desc"]);
            let (name, store) =
                if rng.below(3) == 0 { ("SORT_RO", String::new()) } else { ("SORT", maybe("STORE to", rng, 3)) };
            format!("{name} {key}{by}{limit}{gets}{order}{alpha}{store}")
        }
    }
}

#[test]
fn what_texts_have_in_common_is_as_in_redis() {
    alike(9, |rng, _| {
        let text = |rng: &mut Rng| (0..1 + rng.below(30)).map(|_| one(rng, &["a", "b", "c", "d"])).collect::<String>();
        words(&match rng.below(6) {
            0 | 1 => format!("SET t{} {}", rng.below(4), text(rng)),
            2 => one(
                rng,
                &[
                    "DEL t0",
                    "RPUSH list a",
                    "LCS t1 list",
                    "LCS t0 t1 LEN IDX",
                    "LCS t0 t1 MINMATCHLEN",
                    "LCS t0 t1 what",
                ],
            )
            .into(),
            _ => {
                let how = one(
                    rng,
                    &["", " LEN", " IDX", " idx", " IDX MINMATCHLEN 3", " IDX MINMATCHLEN -4", " IDX MINMATCHLEN x"],
                );
                format!("LCS t{} t{}{how}{}", rng.below(4), rng.below(4), maybe("WITHMATCHLEN", rng, 5))
            }
        })
    });
}

/// What is dumped here is restored there, and the other way round.
#[test]
fn streams_move_between_redis_and_here() {
    let Some(mut redis) = Redis::start() else { return };
    with_door(move |toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        let mut view = View::clone(&toy.view.borrow());
        view.root.level = base::LEVEL;
        *toy.view.borrow_mut() = Arc::new(view);
        sign_in_linear(&mut stream).await;
        let mut here = async |command: &[&[u8]]| {
            stream.write_all(&[&resp(command)[..], &line("ECHO said")].concat()).await.unwrap();
            until_said(&mut stream, b"$4\r\nsaid\r\n").await
        };
        let long = "x".repeat(5_000);
        let mut makes: Vec<String> = (1..300)
            .map(|n| match n % 7 {
                0 => format!("XADD s {n}-{n} other {n} than -{n}"),
                1 => format!("XADD s {n}-{n} f {} g {long}", i64::MAX - n),
                _ => format!("XADD s {n}-{n} f v{n} g {n}"),
            })
            .collect();
        let more = [
            "XDEL s 3-3 200-200",
            "XTRIM s MINID 2",
            "XADD s 18446744073709551615-5 f v g w",
            "XGROUP CREATE s g 0",
            "XGROUP CREATE s unread 250-0 ENTRIESREAD 7",
            "XREADGROUP GROUP g ann COUNT 120 STREAMS s >",
            "XREADGROUP GROUP g bob COUNT 3 STREAMS s >",
            "XGROUP CREATECONSUMER s g idle",
            "XACK s g 5-5 9-9",
            "XADD empty 1-1 f v",
            "XGROUP CREATE empty g $",
            "XDEL empty 1-1",
        ];
        makes.extend(more.map(str::to_owned));
        for command in &makes {
            let words = words(command);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert_eq!(here(&words).await, redis.ask_bytes(&resp(&words)), "{command}");
        }
        let payload = |bulk: Vec<u8>| {
            let head = bulk.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            bulk[head..bulk.len() - 2].to_vec()
        };
        for key in [&b"s"[..], b"empty"] {
            let ours = payload(here(&[b"DUMP", key]).await);
            let theirs = payload(redis.ask_bytes(&resp(&[b"DUMP", key])));
            let to = [b"moved-", key].concat();
            let there = redis.ask_bytes(&resp(&[b"RESTORE", &to, b"0", &ours]));
            assert_eq!(String::from_utf8_lossy(&there), "+OK\r\n");
            assert_eq!(String::from_utf8_lossy(&here(&[b"RESTORE", &to, b"0", &theirs]).await), "+OK\r\n");
            // By what each wrote itself, too.
            let again = [b"again-", key].concat();
            assert_eq!(String::from_utf8_lossy(&here(&[b"RESTORE", &again, b"0", &ours]).await), "+OK\r\n");
            for read in
                ["XRANGE K - +", "XPENDING K g", "XINFO GROUPS K", "XLEN K", "XADD K 5 f v", "XREVRANGE K + - COUNT 1"]
            {
                let of = |key: &[u8]| words(&read.replace('K', &String::from_utf8_lossy(key)));
                let (moved, again) = (of(&to), of(&again));
                let moved: Vec<&[u8]> = moved.iter().map(Vec::as_slice).collect();
                let again: Vec<&[u8]> = again.iter().map(Vec::as_slice).collect();
                let theirs = redis.ask_bytes(&resp(&moved));
                assert_eq!(here(&moved).await, theirs, "{read}");
                assert_eq!(here(&again).await, theirs, "{read}");
            }
        }
    });
}
