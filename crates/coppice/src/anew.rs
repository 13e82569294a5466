//! A node whose disk has forgotten something: it enters the cluster anew, under another id and with an empty log, if the
//! others can do without what it had. If they cannot, it says what a person can do. Nothing is ever cut to make it start.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::{DataDir, Identity};
use node::view::NodeState;
use node::{Door, View};
use tokio::sync::watch;

/// The others have to see that this node is down, and perhaps to choose a leader, before they let it in anew.
const ANEW_WITHIN: Duration = Duration::from_secs(60);
const ANEW_AGAIN: Duration = Duration::from_millis(500);
/// Peer addresses that worked last, one a line: a founder is given none.
const PEERS_FILE: &str = "peers";

/// Asks for another identity and takes it over. An error is for a person to read, and changes nothing.
pub fn enter(held: &DataDir, identity: &Identity, seeds: &[SocketAddr], error: &host::Error) -> Result<(), String> {
    tracing::error!("{error}; this node takes no part with what its disk has");
    let peers = peers(held.path(), seeds);
    let io = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let io = io.map_err(|e| format!("cannot start: {e}"))?;
    let (begun, mut told) = (Instant::now(), String::new());
    loop {
        match io.block_on(host::renew::renew(identity, &peers, &error.to_string())) {
            Ok(new) => {
                if matches!(error, host::Error::Distrusted(why) if why == node::away::TOO_LONG) {
                    held.leaves_its_own(identity.node).map_err(|e| e.to_string())?;
                }
                held.enter_anew(&new).map_err(|e| e.to_string())?;
                let kept = held.path().join(host::renew::SET_ASIDE);
                tracing::warn!(former = %identity.node, now = %new.node, log = %kept.display(),
                    "enters the cluster anew and gets its copies from the others; its former log is set aside");
                return Ok(());
            }
            Err(no) if no.later && begun.elapsed() < ANEW_WITHIN => {
                if no.why != told {
                    tracing::warn!("cannot enter the cluster anew yet: {no}");
                    told = no.why;
                }
                std::thread::sleep(ANEW_AGAIN);
            }
            Err(no) => {
                let dir = held.path().display();
                return Err(format!(
                    "{error}\n  the others cannot do without what it had: {no}\n  put the folder {dir}/log back as it \
                     was, or give up what only this node had: empty {dir}, and found or join anew"
                ));
            }
        }
    }
}

/// Has the node go on with what it alone had when it was somebody else. If that cannot be read it stays where it is, and the node runs.
pub fn take_over(held: &DataDir, identity: &Identity) {
    let find = |former, kept| {
        let left = state::object::left_alone(former, identity.node, kept)?;
        Ok((left.records, left.packs))
    };
    match held.take_over(state::object::GROUP, find) {
        Ok(0) => (),
        Ok(records) => tracing::warn!(records, "what this node alone had as who it was is taken over"),
        Err(error) => {
            tracing::error!(%error, "what this node alone had as who it was is not taken over, and stays where it is")
        }
    }
}

fn peers(dir: &Path, seeds: &[SocketAddr]) -> Vec<SocketAddr> {
    let kept = std::fs::read_to_string(dir.join(PEERS_FILE)).unwrap_or_default();
    let mut peers: Vec<SocketAddr> = kept.lines().filter_map(|line| line.parse().ok()).chain(seeds.to_vec()).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// Keeps the addresses of live peers in the folder. A hint: losing it costs nothing but the hint.
pub async fn remember_peers(mut view: watch::Receiver<Arc<View>>, dir: std::path::PathBuf) {
    let mut kept = String::new();
    while view.changed().await.is_ok() {
        let text: String = {
            let view = view.borrow_and_update();
            let others = view.nodes.iter().filter(|n| n.state == NodeState::Live && n.name != view.me);
            others.map(|n| format!("{}\n", n.doors.at(Door::Peer))).collect()
        };
        if text.is_empty() || text == kept {
            continue;
        }
        let temp = dir.join(format!("{PEERS_FILE}.new"));
        if std::fs::write(&temp, &text).and_then(|()| std::fs::rename(&temp, dir.join(PEERS_FILE))).is_ok() {
            kept = text;
        }
    }
}
