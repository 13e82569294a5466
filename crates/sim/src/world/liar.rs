//! A peer that is no machine of the world: it has links to nodes and says what whoever drives the world gives it to say. It sees
//! what nodes send each other, so that what it says can be like that.

use std::collections::VecDeque;

use base::{Boot, Event, Frame, LinkEnd, NodeId};
use bytes::Bytes;

use super::{Due, Factory, World};

/// Frames that it remembers: some seconds of a busy cluster, of all kinds.
const OVERHEARD_MAX: usize = 4_000;

/// A frame on its way from one machine to another.
#[derive(Clone)]
pub struct Overheard {
    pub from: usize,
    pub to: usize,
    pub frame: Frame,
}

pub(super) struct Liar {
    pub id: NodeId,
    boot: Boot,
    card: Bytes,
    /// The nodes that have a link with it.
    linked: Vec<bool>,
    overheard: VecDeque<Overheard>,
}

impl<F: Factory> World<F> {
    /// From now on it is there.
    pub fn let_lie(&mut self, id: NodeId, boot: Boot, card: Bytes) {
        self.trace.remark(self.now, format!("{id} begins to lie"));
        let linked = vec![false; self.machines()];
        self.liar = Some(Liar { id, boot, card, linked, overheard: VecDeque::new() });
    }

    /// It goes, and its links with it.
    pub fn end_lies(&mut self) {
        let Some(liar) = self.liar.take() else { return };
        self.trace.remark(self.now, format!("{} goes", liar.id));
        for node in (0..self.machines()).filter(|node| liar.linked[*node]) {
            self.tell(node, Event::Unlinked { peer: Some(liar.id), addr: None, why: LinkEnd::Closed });
        }
    }

    pub fn is_lied_to(&self) -> bool {
        self.liar.is_some()
    }

    /// Has it a link with this node? If it has none, it gets one, where there is a process.
    pub fn meet_liar(&mut self, node: usize) -> bool {
        let runs = self.is_running(node);
        let Some(liar) = &mut self.liar else { return false };
        if runs && !liar.linked[node] {
            liar.linked[node] = true;
            let event = Event::Linked { peer: liar.id, boot: liar.boot, card: liar.card.clone() };
            self.tell(node, event);
            return false;
        }
        runs
    }

    /// It says this to a node that has a link with it.
    pub fn lie(&mut self, node: usize, frame: Frame) {
        if let Some(from) = self.liar.as_ref().filter(|liar| liar.linked[node]).map(|liar| liar.id) {
            self.tell(node, Event::Frame { from, frame });
        }
    }

    /// What it has overheard last.
    pub fn overheard(&self) -> std::collections::vec_deque::Iter<'_, Overheard> {
        self.liar.as_ref().map(|liar| liar.overheard.iter()).unwrap_or_default()
    }

    pub(super) fn overhear(&mut self, from: usize, to: usize, frame: &Frame) {
        if let Some(liar) = &mut self.liar {
            if liar.overheard.len() == OVERHEARD_MAX {
                liar.overheard.pop_front();
            }
            liar.overheard.push_back(Overheard { from, to, frame: frame.clone() });
        }
    }

    /// A node hangs up on it.
    pub(super) fn leave_liar(&mut self, node: usize, peer: NodeId) -> bool {
        let Some(liar) = self.liar.as_mut().filter(|liar| liar.id == peer) else { return false };
        if std::mem::take(&mut liar.linked[node]) {
            self.tell(node, Event::Unlinked { peer: Some(peer), addr: None, why: LinkEnd::Ours });
        }
        true
    }

    /// The process of a machine is gone.
    pub(super) fn unlink_liar(&mut self, node: usize) {
        if let Some(liar) = &mut self.liar {
            liar.linked[node] = false;
        }
    }

    /// After all that is handled now, if this process still lives then.
    fn tell(&mut self, node: usize, event: Event<super::AskOf<F>>) {
        if let Some(running) = &self.places[node].running {
            self.queue.push(self.now, Due::Deliver { node, life: running.life, event });
        }
    }
}
