//! Who is one of the cluster's nodes now, for whatever begins or lasts beside the node's own links: tunnels, renewals. It follows the
//! node's view, and wakes nobody but when what is declared of nodes has changed.

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use cluster::Admission;
use futures_util::future::BoxFuture;
use node::View;
use tokio::sync::watch;

/// A node that joined a moment ago is known by then, or is none.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

pub struct Doorman(watch::Sender<Arc<Admission>>);

impl Doorman {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::default()))
    }

    /// For as long as the node lives.
    pub async fn follow(self: Arc<Self>, mut view: watch::Receiver<Arc<View>>) {
        loop {
            let now = Arc::clone(&view.borrow_and_update().admission);
            self.0.send_if_modified(|before| {
                let is_new = **before != *now;
                *before = now;
                is_new
            });
            if view.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn lets_in(&self, node: NodeId) -> BoxFuture<'static, bool> {
        self.within(move |now| now.lets_in_id(node), node)
    }

    pub fn may_enter_anew(&self, node: NodeId) -> BoxFuture<'static, bool> {
        self.within(move |now| now.may_enter_anew(node), node)
    }

    pub fn until_out(&self, node: NodeId) -> BoxFuture<'static, ()> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            // If the node has ended, so does all else.
            let _ = now.wait_for(|now| !now.lets_in_id(node)).await;
        })
    }

    fn within(
        &self,
        is_so: impl Fn(&Admission) -> bool + Send + Sync + 'static,
        node: NodeId,
    ) -> BoxFuture<'static, bool> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            let decided = now.wait_for(|now| is_so(now) || now.gone.contains_key(&node));
            match tokio::time::timeout(HEARD_WITHIN, decided).await {
                Ok(Ok(now)) => is_so(&now),
                Ok(Err(_)) | Err(_) => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use cluster::admission::Gone;

    use super::*;

    fn says(doorman: &Doorman, named: &[u64], gone: &[u64]) {
        let named = named.iter().map(|n| (NodeId(*n), format!("n{n}"))).collect();
        let gone = gone.iter().map(|n| (NodeId(*n), Gone::Removed)).collect();
        doorman.0.send_replace(Arc::new(Admission { named, gone, strict: true }));
    }

    #[tokio::test(start_paused = true)]
    async fn who_joined_a_moment_ago_is_waited_for_and_who_is_removed_is_out_at_once() {
        let doorman = Doorman::new();
        says(&doorman, &[1], &[]);
        assert!(doorman.lets_in(NodeId(1)).await);
        let comes = doorman.lets_in(NodeId(2));
        let stranger = doorman.lets_in(NodeId(3));
        let stays = doorman.until_out(NodeId(1));
        let (comes, stranger) = tokio::join!(
            async {
                tokio::time::sleep(HEARD_WITHIN / 2).await;
                says(&doorman, &[1, 2], &[]);
                comes.await
            },
            stranger
        );
        assert_eq!((comes, stranger), (true, false));
        says(&doorman, &[2], &[1]);
        stays.await;
        let before = tokio::time::Instant::now();
        assert!(!doorman.lets_in(NodeId(1)).await && !doorman.may_enter_anew(NodeId(1)).await);
        assert!(before.elapsed() < HEARD_WITHIN, "nobody waits for one who is gone");
    }
}
