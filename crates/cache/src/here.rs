//! Copies that each node keeps for itself, of what is kept elsewhere in the cluster: whoever owns the key. They are entries under the
//! same leases, and go with the same purges, so they need no protocol of their own.

use base::checksum::Checksum;
use base::{AskId, Outcome, Span, Time};
use bytes::Bytes;

use super::store::Value;
use super::{Cache, Entry, Mark, Output, Reply};

impl Cache {
    pub(super) fn read_here(&mut self, now: Time, ask: AskId, namespace: u32, key: &Bytes, out: &mut Vec<Output>) {
        let (mut entry, mut mark) = (None, None);
        if self.leases.holds(now) {
            // Before it is fetched: what is purged from now on is about it.
            mark = Some(self.mark());
            let found = self.stores.get_mut(&namespace).and_then(|store| store.get(now, key));
            let sound = found.filter(|(value, _)| Checksum(value.sum).matches(&value.bytes));
            entry = sound.map(|(Value { bytes, kind, tags, ends, .. }, _)| Entry {
                value: bytes.clone(),
                kind: kind.clone(),
                tags: tags.clone(),
                ttl_left: ends.map(|ends| ends.since(now)),
            });
        } else {
            self.counts.unleased += 1;
        }
        *(if entry.is_some() { &mut self.counts.hits } else { &mut self.counts.misses }) += 1;
        out.push(Output::Answer { id: ask, answer: Outcome::Done(Reply::Read { entry, mark }) });
    }

    pub(super) fn keep_here(
        &mut self,
        now: Time,
        (namespace, key): (u32, Bytes),
        value: Bytes,
        ttl: Span,
        mark: Mark,
    ) -> Reply {
        let is_ours = (mark.node, mark.life) == (self.me, self.boot.0);
        let view = self.views.number();
        let Some(store) = self.stores.get_mut(&namespace) else { return Reply::NotStored };
        if !is_ours || !self.marks.is_clear_since(mark.number, namespace, &key, &[]) {
            return Reply::NotStored;
        }
        self.near.changed(&key);
        let sum = Checksum::of(&value).0;
        store.insert(
            key,
            Value { bytes: value, kind: Bytes::new(), sum, ends: Some(now + ttl), tags: Vec::new() },
            view,
        );
        Reply::Stored
    }
}
