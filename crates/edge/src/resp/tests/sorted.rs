//! Sorted sets: what is answered is what Redis answers, in both dialects. Scores have the form of Redis since 7.2.

use super::*;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const NO_FLOAT: &str = "-ERR value is not a valid float\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";
const NONE: &str = "*0\r\n";

/// A list of bulk strings.
fn list(items: &str) -> String {
    let items: Vec<&str> = items.split_whitespace().collect();
    let bulk = |item: &&str| format!("${}\r\n{item}\r\n", item.len());
    format!("*{}\r\n{}", items.len(), items.iter().map(bulk).collect::<String>())
}

/// Commands, and lists that answer them.
fn check_lists(before: &[(&str, &str)], script: &[(&str, &str)]) {
    let lists: Vec<_> = script.iter().map(|(command, items)| (*command, list(items))).collect();
    let script: Vec<_> = lists.iter().map(|(command, reply)| (*command, reply.as_str())).collect();
    check_linear(&[before, &script].concat());
}

#[test]
fn scores_are_given_and_changed_as_options_say() {
    let xx_nx = "-ERR XX and NX options at the same time are not compatible\r\n";
    let gt_lt = "-ERR GT, LT, and/or NX options at the same time are not compatible\r\n";
    check_linear(&[
        ("ZADD z 1 a 2 b 3 c", ":3\r\n"),
        ("ZADD z 1 a 5 b 4 d", ":1\r\n"),
        ("ZADD z CH 1 a 6 b 5 e", ":2\r\n"),
        ("ZADD z NX CH 9 a 9 f", ":1\r\n"),
        ("ZADD z XX CH 9 a 9 g", ":1\r\n"),
        ("ZADD z gt ch 8 a 10 b 7 h", ":2\r\n"),
        ("ZADD z LT XX CH 8 a 11 b 7 i", ":1\r\n"),
        ("ZADD z INCR 1.5 a", "$3\r\n9.5\r\n"),
        ("ZADD z NX INCR 1 a", "$-1\r\n"),
        ("ZADD z XX INCR 1 nope", "$-1\r\n"),
        ("ZADD z GT INCR -1 a", "$-1\r\n"),
        ("ZADD none XX 1 a", ":0\r\n"),
        ("EXISTS none", ":0\r\n"),
        ("ZINCRBY z 0.1 a", "$3\r\n9.6\r\n"),
        ("ZINCRBY z -inf low", "$4\r\n-inf\r\n"),
        ("ZINCRBY z +inf low", "-ERR resulting score is not a number (NaN)\r\n"),
        ("ZADD z INCR inf low", "-ERR resulting score is not a number (NaN)\r\n"),
        ("ZADD z NX XX 1 a", xx_nx),
        ("ZADD z NX XX GT 1 a", xx_nx),
        ("ZADD z NX GT 1 a", gt_lt),
        ("ZADD z GT LT 1 a", gt_lt),
        ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair\r\n"),
        (
            "ZADD z 1",
            "-ERR wrong number of arguments for 'zadd' command: it is ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]\r\n",
        ),
        ("ZADD z NX 1", SYNTAX),
        ("ZADD z 1 a 2", SYNTAX),
        ("ZADD z NX CH", SYNTAX),
        ("ZADD z one a", NO_FLOAT),
        ("ZADD z nan a", NO_FLOAT),
        ("ZADD z 1 a 1e400 b", NO_FLOAT),
        ("ZINCRBY z one a", NO_FLOAT),
        ("ZCARD z", ":8\r\n"),
        ("SADD s a", ":1\r\n"),
        ("ZADD s one a", NO_FLOAT),
        ("ZADD s 1 a", WRONG_TYPE),
        ("ZINCRBY s 1 a", WRONG_TYPE),
        ("ZCARD s", WRONG_TYPE),
        ("SADD z a", WRONG_TYPE),
        ("GET z", WRONG_TYPE),
        ("TYPE z", "+zset\r\n"),
        ("OBJECT ENCODING z", "$8\r\nskiplist\r\n"),
        ("EXPIRE z 100", ":1\r\n"),
        ("ZREM z a b nope", ":2\r\n"),
        ("TTL z", ":100\r\n"),
        ("RENAME z y", "+OK\r\n"),
        ("COPY y z", ":1\r\n"),
        ("ZREM y c d e f h low", ":6\r\n"),
        ("EXISTS y z", ":1\r\n"),
        ("DEL z", ":1\r\n"),
        ("ZREM z a", ":0\r\n"),
    ]);
}

#[test]
fn scores_and_ranks_are_looked_up() {
    check_linear(&[
        ("ZADD z 1 a 1 b 3.2 c -0 d 1e20 e", ":5\r\n"),
        ("ZSCORE z c", "$3\r\n3.2\r\n"),
        ("ZSCORE z d", "$1\r\n0\r\n"),
        ("ZSCORE z e", "$5\r\n1e+20\r\n"),
        ("ZSCORE z nope", "$-1\r\n"),
        ("ZSCORE none a", "$-1\r\n"),
        ("ZMSCORE z a nope", "*2\r\n$1\r\n1\r\n$-1\r\n"),
        ("ZMSCORE none a b", "*2\r\n$-1\r\n$-1\r\n"),
        ("ZRANK z b", ":2\r\n"),
        ("ZREVRANK z b", ":2\r\n"),
        ("ZRANK z d", ":0\r\n"),
        ("ZREVRANK z d WITHSCORE", "*2\r\n:4\r\n$1\r\n0\r\n"),
        ("ZRANK z nope", "$-1\r\n"),
        ("ZRANK z nope WITHSCORE", "*-1\r\n"),
        ("ZRANK none a WITHSCORE", "*-1\r\n"),
        ("ZRANK z a WITHSCORES", SYNTAX),
        (
            "ZRANK z a WITHSCORE x",
            "-ERR wrong number of arguments for 'zrank' command: it is ZRANK key member [WITHSCORE]\r\n",
        ),
        ("ZCOUNT z 1 (3.2", ":2\r\n"),
        ("ZCOUNT z -inf +inf", ":5\r\n"),
        ("ZCOUNT z x 1", "-ERR min or max is not a float\r\n"),
        ("ZCOUNT z 1 (", "-ERR min or max is not a float\r\n"),
        ("ZCOUNT z 1 nan", "-ERR min or max is not a float\r\n"),
        ("ZLEXCOUNT z a b", "-ERR min or max not valid string range item\r\n"),
        ("SADD s a", ":1\r\n"),
        ("ZSCORE s a", WRONG_TYPE),
        ("ZMSCORE s a", WRONG_TYPE),
        ("ZRANK s a", WRONG_TYPE),
        ("ZRANK s a WITHSCORE", WRONG_TYPE),
        ("ZCOUNT s 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn ranges_have_all_their_forms() {
    let added = [("ZADD z 1 a 2 b 3 c 4 d", ":4\r\n"), ("ZADD l 0 a 0 b 0 c 0 d", ":4\r\n")];
    check_lists(
        &added,
        &[
            ("ZRANGE z 0 -1", "a b c d"),
            ("ZRANGE z 0 1 WITHSCORES", "a 1 b 2"),
            ("ZRANGE z 0 1 REV", "d c"),
            ("ZRANGE z 5 9", ""),
            ("ZRANGE z -2 99", "c d"),
            ("ZRANGE z 0 -1 LIMIT 1 -1", "a b c d"),
            ("ZRANGE z (1 3 BYSCORE", "b c"),
            ("ZRANGE z 3 (1 BYSCORE REV WITHSCORES", "c 3 b 2"),
            ("ZRANGE z -inf +inf BYSCORE LIMIT 1 2", "b c"),
            ("ZRANGE z inf -inf REV BYSCORE LIMIT 1 2", "c b"),
            ("ZRANGE z -inf +inf BYSCORE LIMIT -1 2", ""),
            ("ZRANGE z -inf +inf BYSCORE LIMIT 2 -5", "c d"),
            ("ZRANGE l [b + BYLEX", "b c d"),
            ("ZRANGE l + (b BYLEX REV LIMIT 0 1", "d"),
            ("ZREVRANGE z 0 1 WITHSCORES", "d 4 c 3"),
            ("ZRANGEBYSCORE z 2 3 WITHSCORES LIMIT 1 9", "c 3"),
            ("ZREVRANGEBYSCORE z (4 2", "c b"),
            ("ZREVRANGEBYSCORE z 2 4", ""),
            ("ZRANGEBYLEX l - (c LIMIT 1 1", "b"),
            ("ZREVRANGEBYLEX l [c -", "c b a"),
            ("ZRANGE none 0 -1", ""),
            ("ZRANGE z 0 -1 WITHSCORES WITHSCORES", "a 1 b 2 c 3 d 4"),
        ],
    );
    let limit = "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX\r\n";
    let by_lex = "-ERR syntax error, WITHSCORES not supported in combination with BYLEX\r\n";
    let no_integer = "-ERR value is not an integer or out of range\r\n";
    check_linear(&[
        ("ZADD z 1 a", ":1\r\n"),
        ("ZRANGE z 0 -1 LIMIT 0 1", limit),
        ("ZREVRANGE z 0 -1 LIMIT 0 1", limit),
        ("ZRANGE z - + BYLEX WITHSCORES", by_lex),
        ("ZRANGEBYLEX z - + WITHSCORES", by_lex),
        ("ZRANGE z a b", no_integer),
        ("ZRANGE z 0 1 BYSCORE LIMIT a 1", no_integer),
        ("ZRANGE z (a 1 BYSCORE", "-ERR min or max is not a float\r\n"),
        ("ZRANGE z a + BYLEX", "-ERR min or max not valid string range item\r\n"),
        ("ZRANGE z - ++ BYLEX", "-ERR min or max not valid string range item\r\n"),
        ("ZRANGE z 0 1 BYSCORE BYLEX", SYNTAX),
        ("ZRANGE z 0 1 REV REV", SYNTAX),
        ("ZRANGE z 0 1 BYSCORE LIMIT 1", SYNTAX),
        ("ZREVRANGE z 0 1 REV", SYNTAX),
        ("ZRANGEBYSCORE z 0 1 BYLEX", SYNTAX),
        ("SET t x", "+OK\r\n"),
        ("ZRANGE t 0 -1", WRONG_TYPE),
        ("ZRANGE t a b", no_integer),
        ("ZRANGESTORE to z 0 -1", ":1\r\n"),
        ("ZRANGESTORE to z (1 9 BYSCORE", ":0\r\n"),
        ("EXISTS to", ":0\r\n"),
        ("ZRANGESTORE to z 0 -1 WITHSCORES", SYNTAX),
        ("ZRANGESTORE t z 1 1 BYSCORE REV LIMIT 0 5", ":1\r\n"),
        ("TYPE t", "+zset\r\n"),
        ("ZADD z 0 b 0 c 5 d", ":3\r\n"),
        ("ZREMRANGEBYRANK z 0 a", no_integer),
        ("ZREMRANGEBYSCORE z 5 (x", "-ERR min or max is not a float\r\n"),
        ("ZREMRANGEBYLEX z a b", "-ERR min or max not valid string range item\r\n"),
        ("ZREMRANGEBYRANK z -1 -1", ":1\r\n"),
        ("ZREMRANGEBYLEX z - (c", ":1\r\n"),
        ("ZREMRANGEBYSCORE z -inf (1", ":1\r\n"),
        ("ZREMRANGEBYSCORE z -inf inf", ":1\r\n"),
        ("ZREMRANGEBYSCORE z -inf inf", ":0\r\n"),
        ("EXISTS z", ":0\r\n"),
    ]);
}

#[test]
fn members_are_taken_and_drawn() {
    let positive = "-ERR value is out of range, must be positive\r\n";
    check_linear(&[
        ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5\r\n"),
        ("ZPOPMIN z", "*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        ("ZPOPMAX z 2", "*4\r\n$1\r\ne\r\n$1\r\n5\r\n$1\r\nd\r\n$1\r\n4\r\n"),
        ("ZPOPMIN z 0", NONE),
        ("ZPOPMIN none", NONE),
        ("ZPOPMIN none 5", NONE),
        ("ZPOPMIN z -1", positive),
        ("ZPOPMIN z x", positive),
        ("ZPOPMIN z 1 2", SYNTAX),
        (
            "ZMPOP 2 none z MAX COUNT 9",
            "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n",
        ),
        ("ZMPOP 2 none z MAX", "*-1\r\n"),
        ("ZMPOP 0 z MAX", "-ERR numkeys should be greater than 0\r\n"),
        ("ZMPOP a z MAX", "-ERR numkeys should be greater than 0\r\n"),
        ("ZMPOP 2 z MAX", SYNTAX),
        ("ZMPOP 1 z MIDDLE", SYNTAX),
        ("ZMPOP 1 z MIN COUNT 0", "-ERR count should be greater than 0\r\n"),
        ("ZMPOP 1 z MIN COUNT 1 COUNT 2", SYNTAX),
        ("ZADD z 7 x", ":1\r\n"),
        ("ZRANDMEMBER z", "$1\r\nx\r\n"),
        ("ZRANDMEMBER z 9", "*1\r\n$1\r\nx\r\n"),
        ("ZRANDMEMBER z -2 WITHSCORES", "*4\r\n$1\r\nx\r\n$1\r\n7\r\n$1\r\nx\r\n$1\r\n7\r\n"),
        ("ZRANDMEMBER z 1 WITHSCORE", SYNTAX),
        ("ZRANDMEMBER z x", "-ERR value is not an integer or out of range\r\n"),
        ("ZRANDMEMBER none", "$-1\r\n"),
        ("ZRANDMEMBER none 3 WITHSCORES", NONE),
        ("ZSCAN z 0", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nx\r\n$1\r\n7\r\n"),
        ("ZSCAN z 0 MATCH y*", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("ZSCAN z 0 NOVALUES", SYNTAX),
        ("ZSCAN none 0", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("BZPOPMIN none z 0", "*3\r\n$1\r\nz\r\n$1\r\nx\r\n$1\r\n7\r\n"),
        ("ZADD z 1 a 2 b", ":2\r\n"),
        (
            "BZMPOP 0 2 none z MIN COUNT 5",
            "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n",
        ),
        ("ZADD z 1 a 2 b", ":2\r\n"),
        ("MULTI", "+OK\r\n"),
        ("BZPOPMAX none z 0", "+QUEUED\r\n"),
        ("BZPOPMIN none 0", "+QUEUED\r\n"),
        ("BZMPOP 0 1 z MIN", "+QUEUED\r\n"),
        (
            "EXEC",
            "*3\r\n*3\r\n$1\r\nz\r\n$1\r\nb\r\n$1\r\n2\r\n*-1\r\n*2\r\n$1\r\nz\r\n*1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        ),
        ("BZPOPMIN z x", "-ERR timeout is not a float or is out of range\r\n"),
        ("BZPOPMIN z -1", "-ERR timeout is negative\r\n"),
        ("SADD s a", ":1\r\n"),
        ("ZPOPMIN s", WRONG_TYPE),
        ("ZMPOP 1 s MIN", WRONG_TYPE),
        ("BZPOPMIN s 0", WRONG_TYPE),
        ("ZRANDMEMBER s", WRONG_TYPE),
        ("ZRANDMEMBER s 2", WRONG_TYPE),
        ("ZSCAN s 0", WRONG_TYPE),
    ]);
}

#[test]
fn several_are_combined() {
    let added = [
        ("ZADD a 1 x 2 y 3 z", ":3\r\n"),
        ("ZADD b 10 y 20 z 30 w", ":3\r\n"),
        ("SADD s x y", ":2\r\n"),
        ("SET t x", "+OK\r\n"),
    ];
    check_lists(
        &added,
        &[
            ("ZUNION 2 a b", "x y z w"),
            ("ZUNION 2 a b WITHSCORES", "x 1 y 12 z 23 w 30"),
            ("ZUNION 2 a b WEIGHTS 2 0.5 WITHSCORES", "x 2 y 9 w 15 z 16"),
            ("ZUNION 2 a b AGGREGATE MAX WITHSCORES", "x 1 y 10 z 20 w 30"),
            ("ZUNION 2 a s WITHSCORES", "x 2 y 3 z 3"),
            ("ZINTER 2 a b WITHSCORES WEIGHTS -1 inf AGGREGATE min", "z -3 y -2"),
            ("ZINTER 2 a none", ""),
            ("ZDIFF 2 a b WITHSCORES", "x 1"),
            ("ZDIFF 2 none a", ""),
            ("ZDIFF 1 s", "x y"),
        ],
    );
    let check_stored = [
        ("ZUNIONSTORE to 2 a b WEIGHTS 1 2", ":4\r\n"),
        ("ZSCORE to w", "$2\r\n60\r\n"),
        ("ZINTERSTORE t 2 a s", ":2\r\n"),
        ("TYPE t", "+zset\r\n"),
        ("ZDIFFSTORE a 2 a b", ":1\r\n"),
        ("ZINTERSTORE a 2 a b", ":0\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("ZINTERCARD 2 b to", ":3\r\n"),
        ("ZINTERCARD 2 b to LIMIT 2", ":2\r\n"),
        ("ZINTERCARD 2 b to LIMIT -1", "-ERR LIMIT can't be negative\r\n"),
        ("ZINTERCARD 2 b to WITHSCORES", SYNTAX),
        ("SET t x", "+OK\r\n"),
        ("ZUNION 1 t", WRONG_TYPE),
        ("ZUNIONSTORE to 1 t", WRONG_TYPE),
        ("ZUNION 0 b", "-ERR at least 1 input key is needed for 'zunion' command\r\n"),
        ("ZUNIONSTORE to -1 b", "-ERR at least 1 input key is needed for 'zunionstore' command\r\n"),
        ("ZINTERCARD 0 b", "-ERR at least 1 input key is needed for 'zintercard' command\r\n"),
        ("ZUNION x b", "-ERR value is not an integer or out of range\r\n"),
        ("ZUNION 2 b", SYNTAX),
        ("ZUNION 1 b WEIGHTS", SYNTAX),
        ("ZUNION 1 b WEIGHTS x", "-ERR weight value is not a float\r\n"),
        ("ZUNION 1 b WEIGHTS nan", "-ERR weight value is not a float\r\n"),
        ("ZUNION 1 b AGGREGATE mean", SYNTAX),
        ("ZUNIONSTORE to 1 b WITHSCORES", SYNTAX),
        ("ZDIFF 1 b WEIGHTS 1", SYNTAX),
        ("ZUNION 9223372036854775807 b", SYNTAX),
    ];
    check_linear(&[&added[..], &check_stored].concat());
}

#[test]
fn newer_clients_get_doubles_and_a_list_for_each_member() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        // What HELLO answers other tests look at.
        send(&mut stream, &["HELLO 3", "ECHO end"]).await;
        let mut got = vec![];
        while !got.ends_with(b"$3\r\nend\r\n") {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0);
        }
        let script = [
            ("ZADD z 1.5 a inf b -inf c", ":3\r\n"),
            ("ZSCORE z a", ",1.5\r\n"),
            ("ZSCORE z nope", "_\r\n"),
            ("ZMSCORE z b c nope", "*3\r\n,inf\r\n,-inf\r\n_\r\n"),
            ("ZADD z INCR 1 a", ",2.5\r\n"),
            ("ZADD z NX INCR 1 a", "_\r\n"),
            ("ZINCRBY z 1 a", ",3.5\r\n"),
            ("ZRANK z a WITHSCORE", "*2\r\n:1\r\n,3.5\r\n"),
            ("ZRANK z nope WITHSCORE", "_\r\n"),
            ("ZRANGE z 0 1 WITHSCORES", "*2\r\n*2\r\n$1\r\nc\r\n,-inf\r\n*2\r\n$1\r\na\r\n,3.5\r\n"),
            ("ZRANGE z 0 0", "*1\r\n$1\r\nc\r\n"),
            (
                "ZUNION 1 z WITHSCORES AGGREGATE MAX WEIGHTS 0",
                "*3\r\n*2\r\n$1\r\na\r\n,0\r\n*2\r\n$1\r\nb\r\n,0\r\n*2\r\n$1\r\nc\r\n,0\r\n",
            ),
            ("ZSCAN z 0 MATCH a", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$3\r\n3.5\r\n"),
            ("ZPOPMAX z", "*2\r\n$1\r\nb\r\n,inf\r\n"),
            ("ZPOPMAX z 1", "*1\r\n*2\r\n$1\r\na\r\n,3.5\r\n"),
            ("ZRANDMEMBER z 1 WITHSCORES", "*1\r\n*2\r\n$1\r\nc\r\n,-inf\r\n"),
            ("ZMPOP 1 z MIN", "*2\r\n$1\r\nz\r\n*1\r\n*2\r\n$1\r\nc\r\n,-inf\r\n"),
            ("ZMPOP 1 z MIN", "_\r\n"),
            ("ZADD z 1 a", ":1\r\n"),
            ("BZPOPMIN z 0", "*3\r\n$1\r\nz\r\n$1\r\na\r\n,1\r\n"),
        ];
        for (command, reply) in script {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
    });
}
