//! Names of owners, each once: what is kept of an object has a number in their place, and its id.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{Id, Key};

/// What stands for a key in this node's memory. A number is given again when nothing has it any more, so a slot that is kept beside the
/// table may come to mean something else: whoever keeps one has to be right with that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub owner: u32,
    pub id: Id,
}

#[derive(Default)]
pub(crate) struct Names {
    of: BTreeMap<(u32, Bytes), u32>,
    all: Vec<Name>,
    free: Vec<u32>,
}

struct Name {
    ns: u32,
    owner: Bytes,
    uses: u32,
}

impl Names {
    pub fn number(&self, ns: u32, owner: &Bytes) -> Option<u32> {
        self.of.get(&(ns, owner.clone())).copied()
    }

    pub fn slot(&self, key: &Key) -> Option<Slot> {
        self.number(key.ns, &key.owner).map(|owner| Slot { owner, id: key.id })
    }

    /// The key of what is there.
    pub fn key(&self, slot: Slot) -> Key {
        let name = &self.all[slot.owner as usize];
        Key { ns: name.ns, owner: name.owner.clone(), id: slot.id }
    }

    pub fn ns(&self, slot: Slot) -> u32 {
        self.all[slot.owner as usize].ns
    }

    /// For one more thing under this key.
    pub fn take(&mut self, key: &Key) -> Slot {
        let number = self.number(key.ns, &key.owner).unwrap_or_else(|| {
            let name = Name { ns: key.ns, owner: key.owner.clone(), uses: 0 };
            let number = match self.free.pop() {
                Some(number) => {
                    self.all[number as usize] = name;
                    number
                }
                None => {
                    self.all.push(name);
                    self.all.len() as u32 - 1
                }
            };
            self.of.insert((key.ns, key.owner.clone()), number);
            number
        });
        self.all[number as usize].uses += 1;
        Slot { owner: number, id: key.id }
    }

    /// One thing less is under it.
    pub fn release(&mut self, slot: Slot) {
        let name = &mut self.all[slot.owner as usize];
        name.uses -= 1;
        if name.uses == 0 {
            self.of.remove(&(name.ns, std::mem::take(&mut name.owner)));
            self.free.push(slot.owner);
        }
    }
}
