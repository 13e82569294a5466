//! Commands of Redis that class `session` cannot keep the meaning of, and what would work. Commands not named here get
//! a general answer.

pub const WHOLE: &str = "a value is read and written whole: GET it, change it, SET it; or keep one key for each field";
const FIELDS: &str = "HGETALL, HGET and HSET read and set fields, where the namespace declares merge = \"fields\"";
const NO_TRANSACTION: &str = "send the commands in a pipeline without MULTI (redis-py: pipeline(transaction=False)); for one key, SET with NX or XX decides at once";
const NO_MESSAGES: &str = "values only, no messages: keep what must be known under a key and read it";
const NO_SCRIPTS: &str = "no code runs beside a session value: read and write from your program";
const OPERATOR: &str = "the cluster is configured by `coppice apply`, and looks after itself";

/// Names, and what works instead.
pub static INSTEAD: &[(&[&str], &str)] = &[
    (&["PERSIST"], "each value ends with its lease: EXPIRE key SECONDS gives a longer one"),
    (&["KEYS", "RANDOMKEY"], "SCAN with MATCH lists keys in pages"),
    (&["FLUSHDB", "FLUSHALL", "SWAPDB"], "values end with their leases; DEL the keys that SCAN lists"),
    (&["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"], NO_TRANSACTION),
    (&["MSETNX"], "SET key value NX for each key, and DEL those you got if one fails"),
    (&["GETSET"], "SET key value GET"),
    (&["RENAMENX", "COPY", "MOVE"], "GET the value, SET it under the new key, DEL the old key"),
    (&["TOUCH"], "EXPIRE key SECONDS gives a new lease, EXISTS looks"),
    (&["EXPIRETIME", "PEXPIRETIME"], "TTL and PTTL tell what is left of the lease"),
    (&["INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "APPEND", "SETRANGE", "GETRANGE", "SUBSTR"], WHOLE),
    (&["SETBIT", "GETBIT", "BITCOUNT", "BITOP", "BITPOS", "BITFIELD", "LCS"], WHOLE),
    (&["HINCRBY", "HINCRBYFLOAT", "HSCAN", "HSTRLEN", "HRANDFIELD", "HEXPIRE"], FIELDS),
    (&["LPUSH", "RPUSH", "LPOP", "RPOP", "LRANGE", "LLEN", "LREM", "LTRIM", "LINDEX", "BLPOP", "BRPOP"], WHOLE),
    (&["SADD", "SREM", "SMEMBERS", "SISMEMBER", "SCARD", "SPOP", "SUNION", "SINTER", "SDIFF"], WHOLE),
    (&["ZADD", "ZREM", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE", "ZRANK", "ZCARD", "ZCOUNT", "ZINCRBY"], WHOLE),
    (&["XADD", "XREAD", "XRANGE", "XLEN", "XGROUP", "XREADGROUP", "XACK", "PFADD", "PFCOUNT", "GEOADD", "SORT"], WHOLE),
    (&["DUMP", "RESTORE", "MIGRATE", "OBJECT", "DEBUG", "MEMORY"], "GET and SET move values; TTL tells the lease"),
    (
        &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "SPUBLISH", "PUBSUB", "MONITOR"],
        NO_MESSAGES,
    ),
    (&["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "FUNCTION", "FCALL", "FCALL_RO"], NO_SCRIPTS),
    (&["WAIT", "WAITAOF"], "not needed: an acknowledged write is on two bricks already"),
    (&["RESET"], "QUIT and connect again"),
    (&["CONFIG", "ACL", "MODULE", "SAVE", "BGSAVE", "BGREWRITEAOF", "LASTSAVE", "SHUTDOWN", "FAILOVER"], OPERATOR),
    (
        &["CLUSTER", "ASKING", "READONLY", "READWRITE", "REPLICAOF", "SLAVEOF", "ROLE", "PSYNC", "SYNC", "SENTINEL"],
        "every node serves every key: connect to any of them as to a single Redis",
    ),
    (&["TIME", "LATENCY", "SLOWLOG", "LOLWUT"], "INFO and the monitor tell how the node is"),
];

/// What works instead of a command, for its error.
pub fn instead_of(name: &str) -> &'static str {
    let known = INSTEAD.iter().find(|(names, _)| names.contains(&name));
    known.map_or("COMMAND DOCS and docs/resp.md list what is", |(_, instead)| instead)
}
