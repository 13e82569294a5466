//! Commands of Redis that class `session` cannot keep the meaning of, and what would work. Commands not named here get
//! a general answer.

use base::glob;

pub const WHOLE: &str = "a value is read and written whole: GET it, change it, SET it; or keep one key for each field";
const FIELDS: &str = "HGETALL, HGET and HSET read and set fields, where the namespace declares merge = \"fields\"";
const NO_TRANSACTION: &str = "send the commands in a pipeline without MULTI (redis-py: pipeline(transaction=False)); for one key, SET with NX or XX decides at once";
const NO_SCRIPTS: &str = "no code runs beside a session value: read and write from your program";
const OPERATOR: &str = "the cluster is configured by `coppice apply`, and looks after itself";

const NO_MODULES: &str = "values are texts and, where fields are merged, JSON, MessagePack and hashes";
const ENDS_WHOLE: &str =
    "a value ends as a whole, with its lease: EXPIRE; keep what ends by itself under a key of its own";

/// Names, or patterns of names, and what works instead. Of two that fit the first counts.
pub type Table = &'static [(&'static [&'static str], &'static str)];

/// Commands about nodes, for the table of each class.
pub const OF_NODES: (&[&str], &str) = (
    &[
        "CLUSTER",
        "ASKING",
        "READONLY",
        "READWRITE",
        "REPLICAOF",
        "SLAVEOF",
        "ROLE",
        "PSYNC",
        "SYNC",
        "REPLCONF",
        "SENTINEL",
    ],
    "every node serves every key: connect to any of them as to a single Redis",
);

pub static INSTEAD: Table = &[
    (&["PERSIST"], "each value ends with its lease: EXPIRE key SECONDS gives a longer one"),
    (&["KEYS", "RANDOMKEY"], "SCAN with MATCH lists keys in pages"),
    (&["FLUSHDB", "FLUSHALL", "SFLUSH", "SWAPDB"], "values end with their leases; DEL the keys that SCAN lists"),
    (&["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"], NO_TRANSACTION),
    (&["MSETNX"], "SET key value NX for each key, and DEL those you got if one fails"),
    (&["MSETEX"], "SET key value EX seconds for each key"),
    (&["GETSET"], "SET key value GET"),
    (&["RENAMENX", "COPY", "MOVE"], "GET the value, SET it under the new key, DEL the old key"),
    (&["TOUCH"], "EXPIRE key SECONDS gives a new lease, EXISTS looks"),
    (&["EXPIRETIME", "PEXPIRETIME"], "TTL and PTTL tell what is left of the lease"),
    (&["INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "INCREX", "APPEND", "SETRANGE", "GETRANGE", "SUBSTR"], WHOLE),
    (&["SETBIT", "GETBIT", "BITCOUNT", "BITOP", "BITPOS", "BITFIELD", "BITFIELD_RO", "LCS"], WHOLE),
    (&["HINCRBY", "HINCRBYFLOAT", "HSCAN", "HSTRLEN", "HRANDFIELD", "HGETDEL"], FIELDS),
    (&["H*EXPIRE*", "HTTL", "HPTTL", "HPERSIST", "HSETEX", "HGETEX"], ENDS_WHOLE),
    (
        &["LPUSH*", "RPUSH*", "LPOP", "RPOP", "LRANGE", "LLEN", "LREM", "LTRIM", "LINDEX", "LSET", "LINSERT", "LPOS"],
        WHOLE,
    ),
    (&["LMOVE", "LMPOP", "RPOPLPUSH", "BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH"], WHOLE),
    (&["SADD", "SREM", "SMEMBERS", "SISMEMBER", "SMISMEMBER", "SCARD", "SPOP", "SRANDMEMBER", "SMOVE", "SSCAN"], WHOLE),
    (&["SUNION*", "SINTER*", "SDIFF*"], WHOLE),
    (&["Z*", "BZ*"], WHOLE),
    (&["X*", "PF*", "GEO*", "SORT", "SORT_RO"], WHOLE),
    (
        &["JSON.*"],
        "GET and SET a JSON text; where the namespace declares merge = \"fields\" a SET writes the fields that differ",
    ),
    (&["FT.*", "TS.*", "BF.*", "CF.*", "CMS.*", "TOPK.*", "TDIGEST.*", "V*", "AR*"], NO_MODULES),
    (&["DUMP", "RESTORE*", "MIGRATE", "OBJECT", "DEBUG", "MEMORY"], "GET and SET move values; TTL tells the lease"),
    (&["EVAL*", "SCRIPT", "FUNCTION", "FCALL*"], NO_SCRIPTS),
    (&["CONFIG", "SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "SHUTDOWN", "FAILOVER"], OPERATOR),
    OF_NODES,
    (&["TIME", "HOTKEYS", "LOLWUT"], "INFO and the monitor tell how the node is"),
];

/// What a table says of a name.
pub fn found(table: Table, name: &str) -> Option<&'static str> {
    let fits = |pattern: &&str| glob::fits(pattern.as_bytes(), name.as_bytes());
    table.iter().find(|(names, _)| names.iter().any(fits)).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::commands::{ALL, cache, linear, of_class, soft};
    use crate::resp::offers;

    /// All of Redis 8.8 (of the modules that come with it, and of arrays, one each). Who asks for one that is not offered hears what
    /// works instead, not that nobody has heard of it.
    const REDIS: &str = "ACL APPEND ARGET ARSET ASKING AUTH BF.ADD BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS \
        BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CF.ADD CLIENT CLUSTER CMS.QUERY COMMAND CONFIG COPY DBSIZE \
        DEBUG DECR DECRBY DEL DELEX DIGEST DISCARD DUMP ECHO EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME \
        FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FT.SEARCH FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER \
        GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HELLO HEXISTS HEXPIRE \
        HEXPIREAT HEXPIRETIME HGET HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HOTKEYS HPERSIST HPEXPIRE \
        HPEXPIREAT HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSET HSETEX HSETNX HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT INCREX INFO \
        JSON.SET KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MEMORY \
        MGET MIGRATE MODULE MONITOR MOVE MSET MSETEX MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PFCOUNT PFDEBUG \
        PFMERGE PFSELFTEST PING PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE RENAME \
        RENAMENX REPLCONF REPLICAOF RESET RESTORE RESTORE-ASKING ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT SDIFF \
        SDIFFSTORE SELECT SENTINEL SET SETBIT SETEX SETNX SETRANGE SFLUSH SHUTDOWN SINTER SINTERCARD SINTERSTORE SISMEMBER SLAVEOF \
        SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE STRLEN SUBSCRIBE SUBSTR SUNION \
        SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TDIGEST.ADD TIME TOPK.ADD TOUCH TS.ADD TTL TYPE UNLINK UNSUBSCRIBE UNWATCH VADD VSIM WAIT \
        WAITAOF WATCH XACK XACKDEL XADD XAUTOCLAIM XCFGSET XCLAIM XDEL XDELEX XGROUP XINFO XLEN XNACK XPENDING XRANGE XREAD XREADGROUP \
        XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX \
        ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE \
        ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE";

    #[test]
    fn every_command_of_redis_is_offered_or_has_something_instead() {
        for name in REDIS.split_whitespace() {
            for (class, _) in offers::lanes() {
                let table = offers::of(class).instead;
                let offered = of_class(class, name.as_bytes()).is_some();
                assert_ne!(offered, found(table, name).is_some(), "{name} in class {class}");
            }
        }
    }

    #[test]
    fn none_is_offered_and_refused_and_none_in_vain() {
        for spec in ALL {
            assert_eq!(found(INSTEAD, spec.name), None, "{}", spec.name);
        }
        for spec in linear::ALL.iter().flat_map(|some| some.iter()) {
            assert_eq!(found(linear::INSTEAD, spec.name), None, "{}", spec.name);
        }
        for spec in cache::ALL {
            assert_eq!(found(cache::INSTEAD, spec.name), None, "{}", spec.name);
        }
        for spec in soft::ALL.iter().flat_map(|some| some.iter()) {
            assert_eq!(found(soft::INSTEAD, spec.name), None, "{}", spec.name);
        }
        for (names, instead) in INSTEAD.iter().chain(linear::INSTEAD).chain(cache::INSTEAD).chain(soft::INSTEAD) {
            for pattern in *names {
                let fits = |name: &str| glob::fits(pattern.as_bytes(), name.as_bytes());
                assert!(REDIS.split_whitespace().any(fits), "{pattern}: {instead}");
            }
        }
    }
}
