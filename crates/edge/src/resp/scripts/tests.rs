//! Scripts beside redis-server, and what scripts may not do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use class::Bounds;
use state::linear::script::{Job, Loan};
use state::linear::{Reply as Got, Step};

use super::desk::Runner;
use super::harm::tests::Dir;
use super::harm::{AT_WORK, Slot};
use super::library::About;
use super::limits::{HARMLESS_AFTER, TIME_MAX};
use super::request::{Request, What};
use super::texts::sha1hex;
use crate::resp::encode::Protocol;

/// A namespace of one shard.
struct Bank {
    runner: Runner,
    store: state::linear::script::Store,
}

impl Bank {
    fn new() -> Self {
        Self { runner: Runner::default(), store: Default::default() }
    }

    fn eval(&mut self, script: &str, keys: &[&str], args: &[&str]) -> String {
        self.request(script, keys, args, false, Protocol::Resp2)
    }

    fn request(&mut self, script: &str, keys: &[&str], args: &[&str], reads_only: bool, protocol: Protocol) -> String {
        let text = Bytes::copy_from_slice(script.as_bytes());
        let what = What::Run { sha: sha1hex(&text), text: Some(text) };
        self.ask(what, keys, args, reads_only, protocol)
    }

    fn ask(&mut self, what: What, keys: &[&str], args: &[&str], reads_only: bool, protocol: Protocol) -> String {
        let own = |all: &[&str]| all.iter().map(|one| Bytes::copy_from_slice(one.as_bytes())).collect();
        let step = Request { what, reads_only, protocol, keys: own(keys), args: own(args) }.step();
        let draft = self.store.draft(Bounds::default(), base::LEVEL);
        let loan = Loan { namespace: "bank".into(), draft, jobs: vec![Job { conditions: vec![], steps: vec![step] }] };
        let returned = self.runner.work(loan);
        self.store.apply(returned.0.into_iter().next().expect("one was run"))
    }

    fn evalsha(&mut self, sha: &str) -> String {
        self.ask(
            What::Run { sha: Bytes::copy_from_slice(sha.as_bytes()), text: None },
            &["k"],
            &[],
            false,
            Protocol::Resp2,
        )
    }

    /// As FUNCTION LOAD does it.
    fn load(&mut self, code: &str, how: &str) -> String {
        let code = Bytes::copy_from_slice(code.as_bytes());
        let said = self.ask(What::Library { code: code.clone() }, &["lib"], &[], true, Protocol::Resp2);
        let Some((_, about)) = said.strip_prefix('$').and_then(|said| said.split_once("\r\n")) else { return said };
        let (about, _) = About::of(&Bytes::copy_from_slice(about.as_bytes())).expect("what is known of it");
        let name = Bytes::from(about.name.clone().into_bytes());
        let mut args = vec![name, Bytes::copy_from_slice(how.as_bytes()), about.with(&code)];
        args.extend(about.functions.iter().map(|one| Bytes::from(one.name.clone().into_bytes())));
        match self.store.step(&Step::new(Bytes::new(), "library.put", args)) {
            Got::Int(1) => format!("${}\r\n{}\r\n", about.name.len(), about.name),
            Got::Int(_) => format!("-ERR Library '{}' already exists\r\n", about.name),
            Got::Bytes(name) => format!("-ERR Function {} already exists\r\n", String::from_utf8_lossy(&name)),
            other => panic!("{other:?}"),
        }
    }

    fn fcall(&mut self, name: &str, keys: &[&str], args: &[&str], reads_only: bool) -> String {
        let what = What::Call { function: Bytes::copy_from_slice(name.as_bytes()) };
        self.ask(what, keys, args, reads_only, Protocol::Resp2)
    }
}

/// redis-server, if there is one, on a socket of its own.
pub struct Redis {
    child: Child,
    stream: BufReader<TcpStream>,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    pub fn start() -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let args = ["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
        let child = Command::new("redis-server").args(args).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            eprintln!("no redis-server here: scripts are compared with nothing");
            return None;
        };
        let mut said = BufReader::new(child.stdout.take()?);
        let mut line = String::new();
        while !line.contains("Ready to accept connections") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "redis-server has ended");
        }
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
        Some(Self { child, stream })
    }

    fn eval(&mut self, script: &str, keys: &[&str], args: &[&str]) -> String {
        let count = keys.len().to_string();
        self.ask(&[&["EVAL", script, &count], keys, args].concat())
    }

    pub fn ask(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        String::from_utf8_lossy(&self.ask_bytes(&crate::resp::tests::resp(&words))).into_owned()
    }

    /// One command, and its reply.
    pub fn ask_bytes(&mut self, command: &[u8]) -> Vec<u8> {
        self.stream.get_mut().write_all(command).unwrap();
        let mut all = Vec::new();
        self.reply(&mut all);
        all
    }

    fn reply(&mut self, all: &mut Vec<u8>) {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).unwrap();
        all.extend_from_slice(&line);
        let count = || std::str::from_utf8(&line[1..line.len() - 2]).unwrap().parse::<i64>().unwrap();
        match line[0] {
            b'$' if count() >= 0 => {
                let mut bulk = vec![0; count() as usize + 2];
                self.stream.read_exact(&mut bulk).unwrap();
                all.extend_from_slice(&bulk);
            }
            b'*' | b'~' => (0..count()).for_each(|_| self.reply(all)),
            b'%' => (0..count() * 2).for_each(|_| self.reply(all)),
            _ => (),
        }
    }
}

/// Scripts whose replies are Redis' to the byte, in this order on the same data.
const LIKE_REDIS: &[&str] = &[
    "return 1",
    "return 3.99",
    "return -3.99",
    "return 'a'",
    "return true",
    "return false",
    "return nil",
    "return",
    "return {1,2,{3,'a'},nil,4}",
    "return {}",
    "return {ok='fine'}",
    "return {err='My Err'}",
    "return {err='Single'}",
    "return {double=3.25}",
    "return {map={a=1}}",
    "return {set={a=true}}",
    "return {1, {err='inside'}}",
    "return redis.error_reply('My Err')",
    "return redis.error_reply('Single')",
    "return redis.error_reply('-CODE more words')",
    "return redis.error_reply('-CODE')",
    "return redis.status_reply('fine')",
    "return redis.error_reply()",
    "return redis.status_reply(1)",
    "return redis.sha1hex('abc')",
    "return redis.sha1hex('')",
    "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}",
    "return {KEYS[3] == nil, ARGV[0] == nil}",
    "return redis.call('SET', KEYS[1], 'x')",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('get', KEYS[2])",
    "return redis.call('GET', KEYS[2]) == false",
    "return type(redis.call('GET', KEYS[2]))",
    "return redis.call('TYPE', KEYS[1])['ok']",
    "return redis.call('LPUSH', KEYS[1], 1)",
    "return redis.pcall('LPUSH', KEYS[1], 1)",
    "return redis.pcall('LPUSH', KEYS[1], 1)['err']",
    "return type(redis.pcall('LPUSH', KEYS[1], 1))",
    "local ok, e = pcall(redis.call, 'LPUSH', KEYS[1], 1) return {tostring(ok), type(e), e.err}",
    "local ok, e = pcall(function() error('boom') end) return e",
    "local ok, e = pcall(function() error({err='ERR mine'}) end) return e",
    "local ok, e = pcall(error, 'boom', 0) return e",
    "redis.call('NOSUCH')",
    "return redis.pcall('NOSUCH', 1)",
    "redis.call('GET')",
    "redis.call()",
    "redis.call('GET', {})",
    "redis.call('GET', nil)",
    "redis.call('MULTI')",
    "redis.call('EVAL', 'return 1', 0)",
    "redis.call('SUBSCRIBE', 'a')",
    "error('boom')",
    "error({err='CODE mine'})",
    "error({err='mine'})",
    "return foo",
    "foo = 1",
    "string.foo = 1",
    "redis.call = 1",
    "function f() return 1 end",
    "return\n\nnosuch(1)",
    "local a = nil; return a.b",
    "return 1 + {}",
    "return 'a' + 1",
    "return ARGV[3] + ARGV[4]",
    "return '10' * '2'",
    "this is no Lua",
    "return tostring(1e15) .. ' ' .. tostring(0.1) .. ' ' .. tostring(1/3) .. ' ' .. 3.0",
    "return redis.call('SET', KEYS[1], 0.1)",
    "return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 1700000000000 * 4096 + 7) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 3) return redis.call('INCRBY', KEYS[1], 2)",
    "redis.call('HSET', 'h', 'a', 1, 'b', 2) return redis.call('HGETALL', 'h')",
    "return redis.call('HMGET', 'h', 'a', 'nope', 'b')",
    "redis.call('RPUSH', 'l', 'a', 'b', 'c') return redis.call('LRANGE', 'l', 0, -1)",
    "redis.call('SADD', 's', 'x') return redis.call('SMEMBERS', 's')",
    "redis.call('ZADD', 'z', 1, 'a', 2.5, 'b') return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
    "return redis.call('ZSCORE', 'z', 'b')",
    "return redis.call('ZPOPMIN', 'z')",
    "return redis.call('EXPIRE', KEYS[1], 100) + redis.call('TTL', KEYS[1])",
    "return redis.call('PERSIST', KEYS[1])",
    "return redis.call('PING')",
    "return redis.call('ECHO', 'a')",
    "return #redis.call('TIME')",
    "local c, n = '0', 0 repeat local r = redis.call('SSCAN', 's', c) c = r[1] n = n + #r[2] until c == '0' return n",
    "redis.setresp(3) return redis.call('HGETALL', 'h').map.a",
    "redis.setresp(3) return redis.call('GET', 'none') == nil",
    "redis.setresp(4)",
    "redis.setresp()",
    "redis.setresp(3) return true",
    "redis.setresp(3) return false",
    "return redis.replicate_commands()",
    "return redis.set_repl(redis.REPL_ALL)",
    "return redis.breakpoint()",
    "return redis.log(redis.LOG_DEBUG, 'a')",
    "redis.log()",
    "redis.log('a', 'b')",
    "redis.log(10, 'b')",
    "return cjson.encode({1,2,3})",
    "return cjson.encode({a=1})",
    "return cjson.encode({})",
    "return cjson.encode({1, 'a', true, cjson.null, {b={}}})",
    "return cjson.encode('a/b\"\\\\\\n\\t\\1\\127é')",
    "return cjson.encode(0.1) .. cjson.encode(1e20) .. cjson.encode(100) .. cjson.encode(-1.5e-9)",
    "return cjson.encode({[1]=1,[3]=3})",
    "return cjson.encode({[1000]=1})",
    "return cjson.encode({[1]=1, a=2}) ~= nil",
    "return cjson.encode(0/0)",
    "return cjson.encode(1/0)",
    "return cjson.encode(print ~= nil)",
    "return cjson.encode(function() end)",
    "return cjson.encode({[true]=1})",
    "return cjson.decode('[1,2,{\"a\":[]}]')[3].a ~= nil",
    "return cjson.decode('{\"a\":\"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\"}').a",
    "return cjson.decode('null') == cjson.null",
    "return cjson.decode(' 12 ')",
    "return cjson.decode('1.5e2')",
    "return cjson.decode('true')",
    "return cjson.decode('')",
    "return cjson.decode('[1,2')",
    "return cjson.decode('{\"a\" 1}')",
    "return cjson.decode('{1:2}')",
    "return cjson.decode('nope')",
    "local t = cjson.decode(string.rep('[', 1001) .. string.rep(']', 1001))",
    "local t = {} local x = t for i = 1, 1100 do x[1] = {} x = x[1] end return cjson.encode(t)",
    "return cmsgpack.unpack(cmsgpack.pack({1,2,3}))",
    "return cmsgpack.pack(1, -1, 127, 128, 255, 256, 65535, 65536, -32, -33, -128, -129, -32768, -32769)",
    "return cmsgpack.pack(4294967295, 4294967296, -2147483648, -2147483649, 9007199254740992)",
    "return cmsgpack.pack(0.5, 0.1, 'a', string.rep('x', 40), true, false, nil, {}, {a=1})",
    "return {cmsgpack.unpack(cmsgpack.pack(1, 'a', {b=2}))}",
    "return cmsgpack.unpack(cmsgpack.pack({a={1,2}, b='x'})).a",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2), 0)}",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2), 1)}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 1)}",
    "return cmsgpack.unpack('\\193')",
    "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
    "return #cmsgpack.pack(string.rep('x', 70000))",
    "local t = {} local x = t for i = 1, 30 do x[1] = {} x = x[1] end return #cmsgpack.pack(t)",
    "return struct.pack('HH', 1, 2)",
    "return struct.pack('>I2i4', 1, -2)",
    "return {struct.unpack('>I2i4', struct.pack('>I2i4', 1, -2))}",
    "return {struct.unpack('<hs', struct.pack('<hs', -5, 'abc'))}",
    "return {struct.unpack('Bc0', struct.pack('Bc0', 3, 'abc'))}",
    "return {struct.unpack('>!4 b i4', struct.pack('>!4 b i4', 1, 2))}",
    "return struct.size('>!4 b i4 d')",
    "return struct.pack('dfx', 0.5, 1.5)",
    "return bit.band(0xff, 0x0f) + bit.bor(1, 2, 4) + bit.bxor(7, 2)",
    "return {bit.tobit(0xffffffff), bit.tobit(2^40 + 5), bit.bnot(0), bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-16, 2)}",
    "return {bit.rol(0x12345678, 12), bit.ror(0x12345678, 12), bit.bswap(0x12345678)}",
    "return {bit.tohex(1), bit.tohex(-1, 4), bit.tohex(255, -2)}",
    "return string.find('hello world', 'o w')",
    "return {string.find('hello', 'l+')}",
    "return {string.find('hello', '(l)(l)')}",
    "return {string.find('hello', 'xyz')}",
    "return {string.find('a.b', '.', 1, true)}",
    "return {string.find('hello', 'l', -2)}",
    "return {string.find('', '')}",
    "return {string.find('abc', '', 10)}",
    "return {string.match('key=value', '(%w+)=(%w+)')}",
    "return string.match('  trim  ', '^%s*(.-)%s*$')",
    "return string.match('2024-01-02', '%d+', 6)",
    "return {string.match('abc', '()b()')}",
    "return string.match('f(a(b)c)d', '%b()')",
    "return string.match('THE (quick) fox', '%f[%a]%a+%f[%A]')",
    "return string.match('abcabc', '(abc)%1')",
    "return string.match('[x]', '[]x]+')",
    "return string.match('a-b', '[a%-b]+')",
    "return string.match('^a', '%^a')",
    "local t = {} for w in string.gmatch('one two three', '%a+') do t[#t+1] = w end return t",
    "local t = {} for k, v in string.gmatch('a=1,b=2', '(%w+)=(%w+)') do t[#t+1] = k .. v end return t",
    "local n = 0 for _ in string.gmatch('abc', '') do n = n + 1 end return n",
    "return {string.gsub('hello world', 'o', '0')}",
    "return {string.gsub('hello', '', '-')}",
    "return {string.gsub('abc', '%w', '%0%0', 2)}",
    "return {string.gsub('hello world', '(%w+)', '<%1>')}",
    "return {string.gsub('$name is $age', '%$(%w+)', {name='Bob', age=7})}",
    "return {string.gsub('abc', '%w', function(c) if c == 'b' then return 'X' end end)}",
    "return {string.gsub('abc', '^a', 'x')}",
    "return {string.gsub('abc d', '%w*', 'x')}",
    "return {string.gsub('abc', '', function() return '.' end)}",
    "return string.gsub('abc', 'b', true)",
    "return string.find('a', '[a')",
    "return string.find('a', '%')",
    "return string.rep('ab', 3) .. string.rep('x', 0) .. string.rep('x', -1)",
    "return string.format('%5.2f|%d|%s|%q|%x', 3.14159, 42, 'a', 'b\"c', 255)",
    "return ('x'):rep(3) .. ('abc'):upper() .. #'four'",
    "return {unpack({1,2,3,4}, 2, 3)}",
    "return unpack({1,2,3}, 1, 1e8)",
    "return #{unpack(ARGV, 1, 2)}",
    "local t = {5,3,1} table.sort(t) return t",
    "local t = {} table.insert(t, 'a') table.insert(t, 1, 'b') return {table.concat(t, ','), table.getn(t), table.remove(t)}",
    "return {math.floor(1.5), math.max(1, 5), math.min(2, 1), math.abs(-3), math.pow(2, 10), math.fmod(7, 3)}",
    "return {tonumber('0x10'), tonumber('12', 8), tostring(tonumber('abc')), tonumber(' 5 ')}",
    "return select('#', 1, nil, 3)",
    "return setmetatable({}, {__index=function() return 7 end}).x",
    "return {pcall(error)}",
    "return tostring(xpcall(function() error('x') end, function(e) return e end))",
    "return loadfile",
    "return print",
    "return require",
    "return dofile",
    "return io",
    "return debug",
    "local function f() return f() + 1 end return f()",
    "return redis.REPL_ALL + redis.LOG_WARNING",
    "return redis.call('SET', 'k', 'v', 'EX', 10, 'NX')",
    "return redis.call('SET', 'k', 'v', 'XX', 'NX')",
    "return redis.call('SET', 'k', 'v', 'NX')",
    "if redis.call('GET', 'k') == ARGV[1] then return redis.call('DEL', 'k') else return 0 end",
    "return redis.call('MSET', 'a', 1, 'b', 2)",
    "return redis.call('MGET', 'a', 'b', 'none')",
    "return redis.call('EXISTS', 'a', 'b', 'none')",
    "return redis.call('DBSIZE') > 3",
    "redis.call('SET', 'left', 'there') error('after')",
    "return redis.call('GET', 'left')",
    "return redis.call('INCR', 'l')",
];

/// On a stack as scripts have it.
fn on_a_thread(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(super::limits::STACK_BYTES).spawn(test).unwrap();
    thread.join().unwrap();
}

#[test]
fn scripts_say_what_they_say_to_redis() {
    on_a_thread(compare);
}

fn compare() {
    let Some(mut redis) = Redis::start() else { return };
    let (keys, args) = (["k1", "k2"], ["x", "y", "3", "4"]);
    let mut bank = Bank::new();
    let mut differ = Vec::new();
    for script in LIKE_REDIS {
        let (ours, theirs) = (bank.eval(script, &keys, &args), redis.eval(script, &keys, &args));
        // In `return f(...)` a function of ours takes the place of the script's, whose line nobody knows then.
        let placed = |said: &str| said.replace("user_script:1: ", "").replace(", on @user_script:1.", "");
        if placed(&ours) != placed(&theirs) {
            differ.push(format!("{script}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    assert!(differ.is_empty(), "{} of {}:\n{}", differ.len(), LIKE_REDIS.len(), differ.join("\n"));
}

/// Libraries, and calls of their functions, whose replies are Redis' to the byte.
const LIBRARIES: &[(&str, &str)] = &[
    (
        "#!lua name=one\nlocal function set(keys, args) return redis.call('SET', keys[1], args[1]) end\n\
         redis.register_function('set_it', set)\n\
         redis.register_function{function_name='get_it', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}, description='gets'}\n\
         redis.register_function{function_name='lies', callback=function(keys) local set = redis.call('SET', keys[1], 'x') return set end, flags={'no-writes'}}\n\
         redis.register_function('all', function(keys, args) return {#keys, #args, keys, args} end)\n\
         redis.register_function('none', function() end)\n\
         redis.register_function('typed', function(keys) local pushed = redis.call('LPUSH', keys[1], 'a') return pushed end)",
        "new",
    ),
    ("#!lua name=one\nredis.register_function('other', function() return 1 end)", "new"),
    ("#!lua name=two\nredis.register_function('get_it', function() return 1 end)", "new"),
    ("#!lua name=two\nredis.register_function('two_f', function() return 2 end)", "replace"),
    ("#!lua name=three\n", "new"),
    ("return 1", "new"),
    ("#!lua name=three\nredis.register_function('f')", "new"),
    ("#!lua name=three\nredis.register_function('f', 'g')", "new"),
    ("#!lua name=three\nredis.register_function()", "new"),
    ("#!lua name=three\nredis.register_function{function_name='f'}", "new"),
    ("#!lua name=three\nredis.register_function{callback=function() end}", "new"),
    ("#!lua name=three\nredis.register_function{function_name='f', callback=function() end, flags={'bad'}}", "new"),
    ("#!lua name=three\nredis.register_function{function_name='f', callback=function() end, what=1}", "new"),
    (
        "#!lua name=three\nredis.register_function('f', function() end)\nredis.register_function('f', function() end)",
        "new",
    ),
];

#[test]
fn libraries_and_their_functions_say_what_they_say_to_redis() {
    on_a_thread(compare_libraries);
}

fn compare_libraries() {
    let mut redis = Redis::start();
    let mut bank = Bank::new();
    let mut differ = Vec::new();
    let mut check = |what: &str, ours: String, theirs: Option<String>| {
        if theirs.as_ref().is_some_and(|theirs| *theirs != ours) {
            differ.push(format!("{what}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
        ours
    };
    for (code, how) in LIBRARIES {
        let ours = bank.load(code, how);
        let words: &[&str] =
            if *how == "replace" { &["FUNCTION", "LOAD", "REPLACE", code] } else { &["FUNCTION", "LOAD", code] };
        check(code, ours, redis.as_mut().map(|redis| redis.ask(words)));
    }
    let mut said = Vec::new();
    for (name, reads_only) in [
        ("set_it", false),
        ("get_it", false),
        ("get_it", true),
        ("set_it", true),
        ("lies", false),
        ("all", false),
        ("none", false),
        ("two_f", false),
        ("typed", false),
        ("nothing", false),
        ("nothing", true),
    ] {
        let ours = bank.fcall(name, &["k"], &["v", "w"], reads_only);
        let command = if reads_only { "FCALL_RO" } else { "FCALL" };
        let theirs = redis.as_mut().map(|redis| redis.ask(&[command, name, "1", "k", "v", "w"]));
        said.push(check(name, ours, theirs));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(said[..3], ["+OK\r\n", "$1\r\nv\r\n", "$1\r\nv\r\n"], "also where there is no redis-server");
}

#[test]
fn a_script_is_known_by_its_digest_where_its_shard_is_until_all_are_forgotten() {
    on_a_thread(|| {
        let mut bank = Bank::new();
        let sha = sha1hex(b"return 7");
        let sha = std::str::from_utf8(&sha).unwrap();
        assert!(bank.evalsha(sha).starts_with("-NOSCRIPT"));
        assert_eq!(bank.eval("return 7", &["k"], &[]), ":7\r\n");
        // Another node that leads has nothing in its memory, and what was only said is not kept ...
        bank.runner = Runner::default();
        assert!(bank.evalsha(sha).starts_with("-NOSCRIPT"));
        assert_eq!(bank.eval("return 7", &["k"], &[]), ":7\r\n");
        // ... but what was asked for by its digest is.
        assert_eq!(bank.evalsha(sha), ":7\r\n");
        bank.runner = Runner::default();
        assert_eq!(bank.evalsha(sha), ":7\r\n");
        // Said in full once more, it is in the memory of who runs it, too.
        assert_eq!(bank.eval("return 7", &["k"], &[]), ":7\r\n");
        bank.store.step(&Step::new(Bytes::new(), "scripts.flush", Vec::new()));
        assert!(bank.evalsha(sha).starts_with("-NOSCRIPT"), "nor does who ran it remember it");
        let load = What::Load { text: "return 7".into() };
        assert!(bank.ask(load, &["any"], &[], true, Protocol::Resp2).contains(sha));
        bank.runner = Runner::default();
        assert_eq!(bank.ask(What::Exists, &[], &[sha, "other"], true, Protocol::Resp2), "*2\r\n:1\r\n:0\r\n");
        assert_eq!(bank.evalsha(sha), ":7\r\n");
    });
}

#[test]
fn what_would_harm_a_node_is_an_error() {
    on_a_thread(harm);
}

fn harm() {
    let mut bank = Bank::new();
    for (script, says) in [
        ("while true do end", "-ERR Script killed"),
        (
            "redis.call('SET', 'harm', 1) while true do pcall(function() while true do end end) end",
            "-ERR Script killed",
        ),
        (
            "while true do xpcall(function() while true do end end, function() while true do end end) end",
            "-ERR Script killed",
        ),
        ("return string.find(('a'):rep(60), ('a*'):rep(30) .. 'b')", "-ERR Script killed"),
        ("local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end", "-ERR not enough memory"),
        ("return string.rep('x', 1e9)", "-ERR not enough memory"),
        ("local s = 'x' while true do s = s .. s end", "-ERR not enough memory"),
        ("local function f(n) return 1 + f(n + 1) end return f(1)", "-ERR user_script:1: stack overflow"),
        ("local t = {} t[1] = t return t", "-ERR reached lua stack limit"),
        ("local t = {} for i = 1, 9000 do t[i] = i end return unpack(t)", "-ERR too many results to unpack"),
        (
            "return load('return 1')",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'load'",
        ),
        ("return loadstring('return 1')", "-ERR user_script:1: Script attempted to access nonexistent global"),
        ("return collectgarbage()", "-ERR user_script:1: Script attempted to access nonexistent global"),
        ("return newproxy()", "-ERR user_script:1: Script attempted to access nonexistent global"),
        ("return getfenv()", "-ERR user_script:1: Script attempted to access nonexistent global"),
        ("return string.dump(function() end)", "-ERR user_script:1: attempt to call field 'dump' (a nil value)"),
        ("rawset(_G, 'a', 1)", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("rawset(string, 'rep', 1)", "-ERR user_script:1: Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "-ERR user_script:1: cannot change a protected metatable"),
        ("getmetatable('').__index = nil", "-ERR user_script:1: attempt to index a boolean value"),
        ("for i = 1, 70000 do redis.call('SET', 'k' .. i, i) end", "-ERR a script changes at most"),
        ("\x1bLuaQ", "-ERR Error compiling script (new function): "),
    ] {
        let said = bank.eval(script, &[], &[]);
        // A slow machine may end the one that changes too much before that.
        let is_late = script.contains("70000") && said.starts_with("-ERR Script killed");
        assert!(said.starts_with(says) || is_late, "{script}: {said}");
        assert_eq!(bank.eval("return 'fine'", &[], &[]), "$4\r\nfine\r\n", "after {script}");
    }
    assert_eq!(
        bank.eval("return redis.call('EXISTS', 'harm', 'k1')", &[], &[]),
        ":0\r\n",
        "nothing of it has happened"
    );
}

#[test]
fn what_only_reads_changes_nothing() {
    let mut bank = Bank::new();
    let mut run = |script| bank.request(script, &[], &[], true, Protocol::Resp2);
    assert!(
        run("redis.call('SET', 'a', 1)").starts_with("-ERR Write commands are not allowed from read-only scripts.")
    );
    assert_eq!(run("return redis.call('GET', 'a')"), "$-1\r\n");
}

#[test]
fn who_speaks_resp3_is_told_so() {
    let mut bank = Bank::new();
    for (script, said) in [
        ("return {map={a=1}}", "%1\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "~1\r\n$1\r\na\r\n"),
        ("return {double=3.25}", ",3.25\r\n"),
        ("return nil", "_\r\n"),
        ("return true", ":1\r\n"),
        ("redis.setresp(3) return true", "#t\r\n"),
        ("return {big_number='12345678901234567890'}", "(12345678901234567890\r\n"),
        ("return {verbatim_string={format='txt', string='a'}}", "=5\r\ntxt:a\r\n"),
        (
            "redis.setresp(3) redis.call('HSET', 'h', 'a', 1) return redis.call('HGETALL', 'h')",
            "%1\r\n$1\r\na\r\n$1\r\n1\r\n",
        ),
    ] {
        assert_eq!(bank.request(script, &[], &[], false, Protocol::Resp3), said, "{script}");
    }
}

#[test]
fn a_script_that_ran_twice_as_its_node_ended_runs_no_more_until_it_is_released() {
    let dir = Dir::new("runner");
    let library = "#!lua name=lib\nredis.register_function('f', function() return 5 end)";
    let [bad, good] = ["return 1", "return 2"];
    let of = |text: &str| sha1hex(text.as_bytes());
    for _ in 0..2 {
        let (harm, _) = dir.open(1);
        // The process ends while these are at work.
        Slot::new(std::sync::Arc::clone(&harm), 0).begin("bank", &of(bad));
        Slot::new(harm, 1).begin("bank", &of(library));
    }
    let (harm, remarks) = dir.open(2);
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    let mut bank = Bank::new();
    bank.load(library, "new");
    bank.runner = Runner::with(Slot::new(harm, 0));
    let withheld = |sha: &Bytes| {
        format!(
            "-ERR Script withheld: this node ended 2 times while it ran. SCRIPT RELEASE lets it run again. script: {}\r\n",
            String::from_utf8_lossy(sha)
        )
    };
    let mut ask = |what, args: &[&str]| bank.ask(what, &["k"], args, false, Protocol::Resp2);
    let run = |text: &'static str| What::Run { sha: of(text), text: Some(text.into()) };
    let call = || What::Call { function: "f".into() };
    assert_eq!(ask(run(bad), &[]), withheld(&of(bad)));
    assert_eq!(ask(What::Run { sha: of(bad), text: None }, &[]), withheld(&of(bad)));
    assert_eq!(ask(What::Load { text: bad.into() }, &[]), withheld(&of(bad)), "what breaks the parser, too");
    assert_eq!(ask(call(), &[]), withheld(&of(library)));
    assert_eq!(ask(run(good), &[]), ":2\r\n");
    let mut both = [of(bad), of(library)];
    both.sort();
    let [one, other] = both.each_ref().map(|sha| String::from_utf8_lossy(sha).into_owned());
    assert_eq!(ask(What::Withheld, &[]), format!("*2\r\n$40\r\n{one}\r\n$40\r\n{other}\r\n"));
    assert_eq!(ask(What::Release, &[&one, "none"]), ":1\r\n");
    assert_eq!(ask(What::Withheld, &[]), format!("*1\r\n$40\r\n{other}\r\n"));
    assert_eq!(ask(What::Release, &[&other]), ":1\r\n");
    assert_eq!((ask(run(bad), &[]), ask(call(), &[])), (":1\r\n".into(), ":5\r\n".into()));
    // It runs to its end, so nothing is left that would blame it.
    assert!(dir.open(3).1.is_empty());
}

#[test]
fn a_script_that_is_at_work_for_long_is_written_down_whatever_it_did_before() {
    let dir = Dir::new("at-work");
    let text = "if ARGV[1] == 'long' then while true do end end";
    let mut bank = Bank::new();
    bank.runner = Runner::with(Slot::new(dir.open(1).0, 2));
    for _ in 0..HARMLESS_AFTER {
        assert_eq!(bank.eval(text, &["k"], &[]), "$-1\r\n");
    }
    let at = dir.0.join(AT_WORK);
    let is_said = move || {
        String::from_utf8_lossy(&std::fs::read(&at).unwrap())
            .contains(&*String::from_utf8_lossy(&sha1hex(text.as_bytes())))
    };
    assert!(!is_said(), "it has come to its end");
    let watch = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        while began.elapsed() < TIME_MAX {
            if is_said() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    });
    assert!(bank.eval(text, &["k"], &["long"]).contains("Script killed"));
    assert!(watch.join().unwrap());
    assert!(dir.open(2).1.is_empty(), "nothing is at work any more");
}
