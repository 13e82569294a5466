//! Commands of this door that took long, the latest ones: `SLOWLOG` and `LATENCY` tell of those of a client's own namespace.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::limits::{SLOW_AFTER, SLOW_MAX};

/// One that took long, from when it was read to when its answer was there.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Grows by one with each, in the life of this node.
    pub id: u64,
    /// When its answer was there, seconds since 1970.
    pub at: u64,
    pub took: Duration,
    pub command: &'static str,
    pub namespace: Arc<str>,
    pub client: SocketAddr,
    /// What the client calls itself.
    pub client_name: String,
}

#[derive(Debug, Default)]
pub struct SlowLog {
    last: u64,
    kept: VecDeque<Slow>,
}

impl SlowLog {
    /// Whether it is to be told of a command that took so long.
    pub fn wants(took: Duration) -> bool {
        took >= SLOW_AFTER
    }

    pub fn push(&mut self, command: &'static str, took: Duration, of: (&Arc<str>, SocketAddr, &str)) {
        if self.kept.len() == SLOW_MAX {
            self.kept.pop_front();
        }
        let (namespace, client, client_name) = (Arc::clone(of.0), of.1, of.2.to_owned());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.kept.push_back(Slow { id: self.last, at, took, command, namespace, client, client_name });
        self.last += 1;
    }

    /// Those of a namespace, the latest first.
    pub fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Slow> {
        self.kept.iter().rev().filter(move |slow| *slow.namespace == *namespace)
    }

    pub fn forget(&mut self, namespace: &str) {
        self.kept.retain(|slow| *slow.namespace != *namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_sees_its_own_and_the_oldest_go() {
        let (mut log, client) = (SlowLog::default(), "127.0.0.1:9".parse().unwrap());
        let (jobs, carts): (Arc<str>, Arc<str>) = ("jobs".into(), "carts".into());
        log.push("GET", SLOW_AFTER, (&carts, client, ""));
        for _ in 0..SLOW_MAX {
            log.push("EVAL", SLOW_AFTER, (&jobs, client, "worker"));
        }
        assert_eq!(log.of("carts").count(), 0, "it was the oldest");
        assert_eq!(log.of("jobs").map(|slow| slow.id).next(), Some(SLOW_MAX as u64), "the latest is first");
        log.push("GET", SLOW_AFTER, (&carts, client, ""));
        log.forget("jobs");
        assert_eq!((log.of("jobs").count(), log.of("carts").count()), (0, 1));
        assert!(SlowLog::wants(SLOW_AFTER) && !SlowLog::wants(SLOW_AFTER - Duration::from_micros(1)));
    }
}
