//! Calls of the Redis protocol, each with a check of what comes back.

use crate::client::{Conn, command};
use crate::closed::{Caller, Ran, Shape, run};
use crate::load::Target;

pub const VALUE_BYTES: usize = 100;
/// Commands of a pipeline.
pub const PIPELINE: usize = 100;
/// Members of each client's sorted set, where one is read.
const MEMBERS: usize = 1000;
const RANGE: usize = 10;
const SCRIPT: &str = "return redis.call('SET', KEYS[1], ARGV[1])";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// An update and a read of the same key in turn.
    Half,
    Set,
    Get,
    Zadd,
    Xadd,
    Zrange,
    /// What `Set` does, by a script.
    Script,
    /// As many at once as a pipeline has, each of a key of its own.
    Sets,
    Gets,
    /// ... or all of one.
    SetsOfOne,
}

pub struct Words {
    conn: Conn,
    does: Does,
    wait: Option<(u32, u32)>,
    /// Nobody else's.
    key: String,
    /// What the key has, if it has one.
    value: Vec<u8>,
    sha: String,
    /// Entries that this connection was told of.
    added: u64,
    before: u64,
}

/// A run of so many clients, spread over the target's addresses, each with a key of its own.
pub fn load(target: &Target, pids: &[i32], does: Does, shape: &Shape) -> Result<Ran, String> {
    let target = target.clone();
    run(shape, pids, move |index| {
        let target = target.clone();
        async move { Words::open(&target, does, index).await }
    })
}

impl Does {
    pub fn each(self) -> u64 {
        if matches!(self, Does::Sets | Does::Gets | Does::SetsOfOne) { PIPELINE as u64 } else { 1 }
    }
}

impl Words {
    async fn open(target: &Target, does: Does, index: usize) -> Result<Words, String> {
        let conn = Conn::open(target.addrs[index % target.addrs.len()], target.auth.as_ref()).await?;
        let key = format!("{does:?}:{index}");
        let mut words =
            Words { conn, does, wait: target.wait, key, value: Vec::new(), sha: String::new(), added: 0, before: 0 };
        match does {
            Does::Half | Does::Set | Does::Zadd => (),
            Does::Xadd => words.before = words.number(&[b"XLEN"]).await?,
            Does::Get => drop(words.set(0).await?),
            Does::Sets | Does::SetsOfOne | Does::Gets => drop(words.many(0, true).await?),
            Does::Script => {
                command(&mut words.conn.out, &[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]);
                words.conn.send().await?;
                words.sha = String::from_utf8_lossy(&words.conn.bulk().await?.unwrap_or_default()).into_owned();
            }
            Does::Zrange => {
                let all: Vec<(String, String)> = (0..MEMBERS).map(|n| (n.to_string(), member(n))).collect();
                let mut parts: Vec<&[u8]> = vec![b"ZADD", words.key.as_bytes()];
                all.iter().for_each(|(score, member)| parts.extend([score.as_bytes(), member.as_bytes()]));
                command(&mut words.conn.out, &parts);
                words.conn.send().await?;
                words.conn.status().await?;
            }
        }
        Ok(words)
    }

    /// What a command says that begins with these words, goes on with the key, and is answered by a number.
    async fn number(&mut self, words: &[&[u8]]) -> Result<u64, String> {
        let all: Vec<&[u8]> = words.iter().copied().chain([self.key.as_bytes()]).collect();
        command(&mut self.conn.out, &all);
        self.conn.send().await?;
        let said = self.conn.status().await?;
        said.trim_start_matches(':').parse().map_err(|_| format!("no number: {said}"))
    }

    /// A value that no turn before had.
    fn put_value(&mut self, turn: u64) {
        self.value = format!("{}:{turn}:", self.key).into_bytes();
        self.value.resize(VALUE_BYTES, b'x');
    }

    async fn set(&mut self, turn: u64) -> Result<bool, String> {
        self.put_value(turn);
        command(&mut self.conn.out, &[b"SET", self.key.as_bytes(), &self.value]);
        if let Some((replicas, ms)) = self.wait {
            command(&mut self.conn.out, &[b"WAIT", replicas.to_string().as_bytes(), ms.to_string().as_bytes()]);
        }
        self.conn.send().await?;
        let good = self.conn.exactly(b"+OK\r\n", 1).await?;
        if let Some((replicas, _)) = self.wait {
            let acked = self.conn.status().await?;
            if acked.trim_start_matches(':').parse::<u32>().unwrap_or(0) < replicas {
                return Err(format!("only {acked} replicas had it in time"));
            }
        }
        Ok(good)
    }

    async fn get(&mut self) -> Result<bool, String> {
        command(&mut self.conn.out, &[b"GET", self.key.as_bytes()]);
        self.conn.send().await?;
        let expected = bulk(&self.value);
        self.conn.exactly(&expected, 1).await
    }

    async fn script(&mut self, turn: u64) -> Result<bool, String> {
        self.put_value(turn);
        let words = [b"EVALSHA", self.sha.as_bytes(), b"1", self.key.as_bytes(), &self.value];
        command(&mut self.conn.out, &words);
        self.conn.send().await?;
        self.conn.exactly(b"+OK\r\n", 1).await
    }

    /// The key of this place in a pipeline; the first one is the key itself.
    fn nth(&self, n: usize) -> String {
        if n == 0 || self.does == Does::SetsOfOne { self.key.clone() } else { format!("{}:{n}", self.key) }
    }

    async fn many(&mut self, turn: u64, is_set: bool) -> Result<bool, String> {
        if is_set {
            self.put_value(turn);
        }
        for n in 0..PIPELINE {
            let key = self.nth(n);
            if is_set {
                command(&mut self.conn.out, &[b"SET", key.as_bytes(), &self.value]);
            } else {
                command(&mut self.conn.out, &[b"GET", key.as_bytes()]);
            }
        }
        self.conn.send().await?;
        let one = if is_set { b"+OK\r\n".to_vec() } else { bulk(&self.value) };
        self.conn.exactly(&one, PIPELINE).await
    }

    async fn zrange(&mut self, turn: u64) -> Result<bool, String> {
        let first = turn as usize * RANGE % MEMBERS;
        let (from, to) = (first.to_string(), (first + RANGE - 1).to_string());
        command(&mut self.conn.out, &[b"ZRANGE", self.key.as_bytes(), from.as_bytes(), to.as_bytes()]);
        self.conn.send().await?;
        let mut expected = format!("*{RANGE}\r\n").into_bytes();
        (first..first + RANGE).for_each(|n| expected.extend(bulk(member(n).as_bytes())));
        self.conn.exactly(&expected, 1).await
    }
}

fn member(n: usize) -> String {
    format!("member:{n:06}")
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

impl Caller for Words {
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        match self.does {
            Does::Half if self.value.is_empty() || turn % 2 == 1 => self.set(turn).await,
            Does::Half | Does::Get => self.get().await,
            Does::Set => self.set(turn).await,
            Does::Script => self.script(turn).await,
            Does::Sets | Does::SetsOfOne => self.many(turn, true).await,
            Does::Gets => self.many(turn, false).await,
            Does::Zrange => self.zrange(turn).await,
            Does::Zadd => {
                let (score, member) = (turn.to_string(), member(turn as usize % MEMBERS));
                let words = [b"ZADD", self.key.as_bytes(), score.as_bytes(), member.as_bytes()];
                command(&mut self.conn.out, &words);
                self.conn.send().await?;
                self.added = turn;
                Ok(self.conn.status().await?.starts_with(':'))
            }
            Does::Xadd => {
                self.put_value(turn);
                command(&mut self.conn.out, &[b"XADD", self.key.as_bytes(), b"*", b"f", &self.value]);
                self.conn.send().await?;
                let id = self.conn.bulk().await?;
                self.added += 1;
                Ok(id.is_some())
            }
        }
    }

    /// What was written last is read.
    async fn check(&mut self) -> Result<u64, String> {
        let good = match self.does {
            Does::Zrange => true,
            Does::Zadd => {
                let member = member(self.added as usize % MEMBERS);
                command(&mut self.conn.out, &[b"ZSCORE", self.key.as_bytes(), member.as_bytes()]);
                self.conn.send().await?;
                self.added == 0 || self.conn.bulk().await? == Some(self.added.to_string().into_bytes())
            }
            Does::Xadd => self.number(&[b"XLEN"]).await? == self.before + self.added,
            Does::Sets | Does::SetsOfOne | Does::Gets => self.many(0, false).await?,
            Does::Half | Does::Set | Does::Get | Does::Script => self.value.is_empty() || self.get().await?,
        };
        Ok(u64::from(!good))
    }
}
