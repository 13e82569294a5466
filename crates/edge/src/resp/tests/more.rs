//! Places, numbers of bits, estimates, SORT and LCS by tables, as Redis 7.0.15 answers; `beside.rs` asks it.

use super::*;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";

#[test]
fn places_are_kept_and_found() {
    let unit = "-ERR unsupported unit provided. please use M, KM, FT, MI\r\n";
    check_linear(&[
        ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2\r\n"),
        ("GEOADD s NX CH 1 1 Palermo", ":0\r\n"),
        ("GEOADD s XX CH 13.5 38.1 Palermo", ":1\r\n"),
        ("GEOADD s 13.361389 38.115556 Palermo", ":0\r\n"),
        ("ZSCORE s Palermo", "$16\r\n3479099956230698\r\n"),
        ("GEODIST s Palermo Catania", "$11\r\n166274.1516\r\n"),
        ("GEODIST s Palermo Catania km", "$8\r\n166.2742\r\n"),
        ("GEODIST s Palermo Catania mi", "$8\r\n103.3182\r\n"),
        ("GEODIST s Palermo nobody", "$-1\r\n"),
        ("GEODIST s Palermo Catania yards", unit),
        ("GEODIST s Palermo Catania km km", SYNTAX),
        ("GEOHASH s Palermo nobody", "*2\r\n$11\r\nsqc8b49rny0\r\n$-1\r\n"),
        (
            "GEOPOS s Palermo nobody",
            "*2\r\n*2\r\n$20\r\n13.36138933897018433\r\n$20\r\n38.11555639549629859\r\n*-1\r\n",
        ),
        ("GEOPOS none Palermo", "*1\r\n*-1\r\n"),
        ("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC", "*2\r\n$7\r\nCatania\r\n$7\r\nPalermo\r\n"),
        ("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km DESC COUNT 1", "*1\r\n$7\r\nPalermo\r\n"),
        (
            "GEOSEARCH s FROMMEMBER Palermo BYBOX 400 400 km ASC WITHDIST WITHHASH",
            "*2\r\n*3\r\n$7\r\nPalermo\r\n$6\r\n0.0000\r\n:3479099956230698\r\n\
             *3\r\n$7\r\nCatania\r\n$8\r\n166.2742\r\n:3479447370796909\r\n",
        ),
        ("GEOSEARCH none FROMMEMBER Palermo BYRADIUS 1 m", "*0\r\n"),
        ("GEOSEARCH s FROMMEMBER nobody BYRADIUS 1 m", "-ERR could not decode requested zset member\r\n"),
        ("GEORADIUSBYMEMBER_RO s Palermo 1 m", "*1\r\n$7\r\nPalermo\r\n"),
        ("GEORADIUSBYMEMBER_RO s Palermo 1 m STORE to", SYNTAX),
        ("GEORADIUS s 15 37 100 km STORE to", ":1\r\n"),
        ("ZRANGE to 0 -1 WITHSCORES", "*2\r\n$7\r\nCatania\r\n$16\r\n3479447370796909\r\n"),
        ("GEOSEARCHSTORE to s FROMMEMBER Palermo BYRADIUS 0 m STOREDIST", ":1\r\n"),
        ("ZRANGE to 0 -1 WITHSCORES", "*2\r\n$7\r\nPalermo\r\n$1\r\n0\r\n"),
        ("GEOSEARCHSTORE to none FROMMEMBER Palermo BYRADIUS 1 m", ":0\r\n"),
        ("EXISTS to", ":0\r\n"),
        ("COMMAND GETKEYS GEORADIUSBYMEMBER s STORE 1 km STOREDIST to", "*2\r\n$1\r\ns\r\n$2\r\nto\r\n"),
        ("COMMAND GETKEYS GEORADIUS s 1 1 1 km COUNT 1 ASC", "*1\r\n$1\r\ns\r\n"),
        ("GEOADD s 180.1 1 a", "-ERR invalid longitude,latitude pair 180.100000,1.000000\r\n"),
        ("GEOADD s 1 85.06 a", "-ERR invalid longitude,latitude pair 1.000000,85.060000\r\n"),
        ("GEOADD s x 1 a", "-ERR value is not a valid float\r\n"),
        ("GEOADD s nan 1 a", "-ERR value is not a valid float\r\n"),
        ("GEOADD s NX XX 1 1 a", SYNTAX),
        ("GEOADD s 1 1 a 1", SYNTAX),
        ("GEORADIUS s 1 1 x km", "-ERR need numeric radius\r\n"),
        ("GEORADIUS s 1 1 -1 km", "-ERR radius cannot be negative\r\n"),
        ("GEORADIUS s 1 1 1 yards", unit),
        ("GEORADIUS s 1 1 1 km COUNT 0", "-ERR COUNT must be > 0\r\n"),
        ("GEORADIUS s 1 1 1 km ANY", "-ERR the ANY argument requires COUNT argument\r\n"),
        (
            "GEORADIUS s 1 1 1 km STORE to WITHDIST",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options\r\n",
        ),
        (
            "geosearch s BYRADIUS 1 km ASC ASC",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch\r\n",
        ),
        ("GEOSEARCH s FROMMEMBER Palermo FROMLONLAT 1 1 BYRADIUS 1 km", SYNTAX),
        ("SET t x", "+OK\r\n"),
        ("GEOADD t 1 1 a", WRONG_TYPE),
        ("GEOPOS t a", WRONG_TYPE),
        ("GEOSEARCH t FROMLONLAT 1 1 BYRADIUS 1 km", WRONG_TYPE),
        ("GEOSEARCHSTORE to t FROMLONLAT 1 1 BYRADIUS 1 km", WRONG_TYPE),
    ]);
}

#[test]
fn numbers_of_bits_are_read_and_changed() {
    let offset = "-ERR bit offset is not an integer or out of range\r\n";
    check_linear(&[
        ("BITFIELD b INCRBY i5 100 1 GET u4 0", "*2\r\n:1\r\n:0\r\n"),
        ("STRLEN b", ":14\r\n"),
        ("BITFIELD c INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2\r\n:1\r\n:1\r\n"),
        ("BITFIELD c INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 5", "*2\r\n:2\r\n:3\r\n"),
        ("BITFIELD c OVERFLOW FAIL INCRBY u2 102 1", "*1\r\n$-1\r\n"),
        ("BITFIELD c SET i8 #1 -129 GET i8 #1 GET u8 #1", "*3\r\n:0\r\n:127\r\n:127\r\n"),
        ("BITFIELD c OVERFLOW SAT SET i8 0 -129 GET i8 0", "*2\r\n:0\r\n:-128\r\n"),
        ("BITFIELD c SET i64 0 -1 GET u63 1", "*2\r\n:-9187624714812522496\r\n:9223372036854775807\r\n"),
        ("BITFIELD new OVERFLOW FAIL SET u1 30 2", "*1\r\n$-1\r\n"),
        ("STRLEN new", ":4\r\n"),
        ("BITFIELD none", "*0\r\n"),
        ("BITFIELD none GET u8 4000000000", "*1\r\n:0\r\n"),
        ("EXISTS none", ":0\r\n"),
        ("BITFIELD_RO c GET u4 0", "*1\r\n:15\r\n"),
        ("BITFIELD_RO c SET u4 0 1", "-ERR BITFIELD_RO only supports the GET subcommand\r\n"),
        (
            "BITFIELD c GET u64 0",
            "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.\r\n",
        ),
        ("BITFIELD c GET u8 4294967296", offset),
        ("BITFIELD c SET u8 4294967296 1", offset),
        ("BITFIELD c SET u8 134217728 1", offset),
        ("BITFIELD c SET u8 134217727 1", "-ERR the value would be over 16 MiB\r\n"),
        ("BITFIELD c GET u8 #9223372036854775807", offset),
        ("BITFIELD c OVERFLOW what", "-ERR Invalid OVERFLOW type specified\r\n"),
        ("BITFIELD c SET u8 0", SYNTAX),
        ("GETBIT c 4294967295", ":0\r\n"),
        ("GETBIT c 4294967296", offset),
        ("RPUSH l a", ":1\r\n"),
        ("BITFIELD l GET u8 0", WRONG_TYPE),
        ("BITFIELD l SET u8 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn elements_are_counted_about() {
    let none = "-WRONGTYPE Key is not a valid HyperLogLog string value.\r\n";
    let corrupt = "-INVALIDOBJ Corrupted HLL object detected\r\n";
    check_linear(&[
        ("PFADD p a b c d e f g", ":1\r\n"),
        ("PFADD p a b c", ":0\r\n"),
        ("PFCOUNT p", ":7\r\n"),
        // What is counted is kept, until something new comes.
        ("GETRANGE p 8 15", "$8\r\n\x07\0\0\0\0\0\0\0\r\n"),
        ("PFADD q x y a", ":1\r\n"),
        ("PFCOUNT p q none", ":9\r\n"),
        ("PFMERGE to p q", "+OK\r\n"),
        ("PFCOUNT to", ":9\r\n"),
        ("PFADD new", ":1\r\n"),
        ("PFADD new", ":0\r\n"),
        ("PFCOUNT new", ":0\r\n"),
        ("PFCOUNT none", ":0\r\n"),
        ("MULTI", "+OK\r\n"),
        ("PFADD q z", "+QUEUED\r\n"),
        ("PFCOUNT q", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n:1\r\n:4\r\n"),
        ("SET t text", "+OK\r\n"),
        ("PFADD t a", none),
        ("PFCOUNT t", none),
        ("PFCOUNT p t", none),
        ("PFMERGE t p", none),
        ("APPEND p what", ":42\r\n"),
        ("PFADD p more", ":1\r\n"),
        ("PFCOUNT p", corrupt),
        ("PFMERGE to p", corrupt),
        ("RPUSH l a", ":1\r\n"),
        ("PFADD l a", WRONG_TYPE),
        ("PFCOUNT l", WRONG_TYPE),
    ]);
}

#[test]
fn items_are_sorted() {
    check_linear(&[
        ("RPUSH l 3 1 2 10", ":4\r\n"),
        ("SORT l", "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$2\r\n10\r\n"),
        ("SORT l DESC LIMIT 0 2", "*2\r\n$2\r\n10\r\n$1\r\n3\r\n"),
        ("SORT l ALPHA LIMIT 1 1", "*1\r\n$2\r\n10\r\n"),
        ("MSET w1 9 w2 8 w3 7 w10 0", "+OK\r\n"),
        ("HSET o1 name one", ":1\r\n"),
        ("SORT l BY w* GET # GET o*->name LIMIT 3 1", "*2\r\n$1\r\n1\r\n$3\r\none\r\n"),
        ("SORT l BY nothing LIMIT 0 1 GET o*->name", "*1\r\n$-1\r\n"),
        ("SORT l BY nothing STORE to", ":4\r\n"),
        ("LRANGE to 0 0", "*1\r\n$1\r\n3\r\n"),
        ("SORT none STORE to", ":0\r\n"),
        ("EXISTS to", ":0\r\n"),
        ("SORT_RO l STORE to", SYNTAX),
        ("RPUSH l a", ":5\r\n"),
        ("SORT l", "-ERR One or more scores can't be converted into double\r\n"),
        ("SORT l LIMIT a 1", "-ERR value is not an integer or out of range\r\n"),
        ("SORT w1", WRONG_TYPE),
        ("COMMAND GETKEYS SORT l BY STORE STORE to", "*2\r\n$1\r\nl\r\n$2\r\nto\r\n"),
    ]);
}

#[test]
fn what_texts_have_in_common_is_told() {
    check_linear(&[
        ("MSET a ohmytext b mynewtext", "+OK\r\n"),
        ("LCS a b", "$6\r\nmytext\r\n"),
        ("LCS a b LEN", ":6\r\n"),
        (
            "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
            "*4\r\n$7\r\nmatches\r\n*1\r\n*3\r\n*2\r\n:4\r\n:7\r\n*2\r\n:5\r\n:8\r\n:4\r\n$3\r\nlen\r\n:6\r\n",
        ),
        ("LCS a none", "$0\r\n\r\n"),
        ("LCS a b LEN IDX", "-ERR If you want both the length and indexes, please just use IDX.\r\n"),
        ("SETBIT long 39999 1", ":0\r\n"),
        ("LCS long long LEN", "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len\r\n"),
        ("RPUSH l a", ":1\r\n"),
        ("LCS a l", "-ERR The specified keys must contain string values\r\n"),
        ("OBJECT FREQ none", "$-1\r\n"),
    ]);
}

#[test]
fn several_values_are_stored_with_one_end_if_there_are_all_or_none_of_their_keys() {
    check_linear(&[
        ("MSETEX 2 a 1 b 2 EX 100", ":1\r\n"),
        ("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"),
        ("MSETEX 2 a 3 c 3 NX", ":0\r\n"),
        ("MSETEX 2 a 3 c 3 XX", ":0\r\n"),
        ("MSETEX 2 a 4 b 4 XX KEEPTTL", ":1\r\n"),
        ("EXISTS a b c", ":2\r\n"),
        ("PERSIST b", ":1\r\n"),
        ("MSETEX 2 c 5 d 5 NX PXAT 1", ":1\r\n"),
        ("EXISTS c d", ":0\r\n"),
        ("COMMAND GETKEYS MSETEX 2 a 1 b 2 NX", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("MSETEX 0 a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 1 a 1 NX XX", "-ERR syntax error\r\n"),
        ("MSETEX 1 a 1 GET", "-ERR syntax error\r\n"),
    ]);
}
