//! What of the view is shown to whom. Keys of a namespace, and names of its queues, are often names and addresses of people, so whoever has neither its token
//! nor the operator's sees a hash of each: the same key is recognised from one second to the next, and nothing else. What clones
//! said before they ended may have secrets in it, and is the operator's.

use std::borrow::Cow;

use axum::http::HeaderMap;
use node::View;
use node::view::{NamespaceView, QueueView};
use ring::hmac;

use super::guard;

/// Of the hash, digits.
const DIGITS: usize = 8;

/// Who looks.
#[derive(Clone, Debug)]
pub struct Sight {
    is_operator: bool,
    /// Those whose token was shown.
    namespaces: Vec<String>,
}

impl Sight {
    pub fn of(headers: &HeaderMap, view: &View) -> Self {
        let is_operator = guard::operator(headers, view).is_ok();
        let names = view.tokens.keys().filter(|name| guard::holder(headers, view, name).is_ok());
        Self { is_operator, namespaces: names.cloned().collect() }
    }

    pub fn operator() -> Self {
        Self { is_operator: true, namespaces: Vec::new() }
    }

    pub fn nobody() -> Self {
        Self { is_operator: false, namespaces: Vec::new() }
    }

    /// The view as it is for this one: mostly there is nothing to hide, and it is not copied.
    pub fn view<'a>(&self, view: &'a View) -> Cow<'a, View> {
        let talks = view.services.iter().flat_map(|service| &service.clones).any(|clone| !clone.last_output.is_empty());
        let talks = talks || view.services.iter().any(|service| service.runs.is_some() || !service.queues.is_empty());
        if self.is_operator
            || !talks && view.namespaces.iter().all(|namespace| namespace.hot.is_empty() && namespace.queues.is_empty())
        {
            return Cow::Borrowed(view);
        }
        let mut view = view.clone();
        view.services.iter_mut().flat_map(|service| &mut service.clones).for_each(|clone| clone.last_output.clear());
        for runs in view.services.iter_mut().filter_map(|service| service.runs.as_mut()) {
            [&mut runs.job, &mut runs.before]
                .into_iter()
                .filter_map(|run| run.last.as_mut())
                .for_each(|last| last.lines.clear());
        }
        let key = key(&view);
        view.namespaces.iter_mut().for_each(|namespace| self.hide(namespace, &key));
        for worked in view.services.iter_mut().flat_map(|service| &mut service.queues) {
            if !self.sees(&worked.namespace) {
                worked.queue = hash_of_queue(&key, &worked.namespace, &worked.queue);
            }
        }
        Cow::Owned(view)
    }

    pub fn namespaces(&self, view: &View) -> Vec<NamespaceView> {
        let key = key(view);
        let mut all = view.namespaces.clone();
        all.iter_mut().for_each(|namespace| self.hide(namespace, &key));
        all
    }

    /// Whether names in this namespace are for this one.
    fn sees(&self, namespace: &str) -> bool {
        self.is_operator || self.namespaces.iter().any(|name| name == namespace)
    }

    fn hide(&self, namespace: &mut NamespaceView, key: &hmac::Key) {
        if !self.sees(&namespace.name) {
            for hot in &mut namespace.hot {
                hot.key = hash(key, &format!("hot key of {}: {}", namespace.name, hot.key));
            }
            for queue in &mut namespace.queues {
                queue.name = hash_of_queue(key, &namespace.name, &queue.name);
                queue.is_hidden = true;
            }
        }
    }
}

/// The queue that is shown by this hash to who has no token, as it is shown to the others.
pub fn queue_behind<'a>(view: &'a View, namespace: &str, hash: &str) -> Option<&'a QueueView> {
    let key = key(view);
    let of = view.namespaces.iter().find(|of| of.name == namespace)?;
    let mut found = of.queues.iter().filter(|queue| hash_of_queue(&key, namespace, &queue.name) == hash);
    // Two of one hash are not told apart.
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn hash_of_queue(key: &hmac::Key, namespace: &str, queue: &str) -> String {
    hash(key, &format!("queue of {namespace}: {queue}"))
}

/// The same at every node of the cluster, and known to no one else.
fn key(view: &View) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, view.admin_token.as_bytes())
}

fn hash(key: &hmac::Key, text: &str) -> String {
    let mac = hmac::sign(key, text.as_bytes());
    mac.as_ref()[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}
