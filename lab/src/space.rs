//! A cluster with one namespace, `lab`, that serves at all nodes, and how its clients reach it.

use crate::closed::runtime;
use crate::cluster::Cluster;
use crate::load::Target;
use crate::peers::{ask, wait_until};

pub struct Space {
    pub cluster: Cluster,
    pub target: Target,
}

/// A cluster with the namespace, and its token.
pub fn token_of(nodes: u8, lines: &str) -> Result<(Cluster, String), String> {
    let cluster = Cluster::start(nodes, false)?;
    cluster.apply(&format!("[namespace.lab]\n{lines}\n"))?;
    let token = cluster.namespace_token("lab")?;
    Ok((cluster, token))
}

impl Space {
    /// The namespace is declared with these lines.
    pub fn start(nodes: u8, lines: &str) -> Result<Self, String> {
        let (cluster, token) = token_of(nodes, lines)?;
        let user = "lab".to_owned();
        let line = format!("AUTH {user} {token}\r\n");
        let target = Target { addrs: cluster.doors("resp"), auth: Some((user, token)), wait: None };
        let runtime = runtime()?;
        let serves = |addr| {
            ask(addr, line.as_bytes()).is_some_and(|said| said.starts_with("+OK"))
                && runtime.block_on(async {
                    let Ok(mut conn) = crate::client::Conn::open(addr, target.auth.as_ref()).await else {
                        return false;
                    };
                    crate::client::command(&mut conn.out, &[b"GET", b"nothing"]);
                    conn.send().await.is_ok() && conn.bulk().await.is_ok()
                })
        };
        wait_until("the namespace serves at every node", || target.addrs.iter().all(|addr| serves(*addr)))?;
        Ok(Self { cluster, target })
    }
}

impl Cluster {
    /// Processes of all nodes.
    pub fn pids(&self) -> Vec<i32> {
        (0..self.doors("api").len()).filter_map(|node| self.pid(node)).collect()
    }
}
