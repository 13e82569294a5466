//! The packs of this node: how much of each is of objects that are there, which are needed no more, and which are worth writing anew. What
//! to do about it is `store.rs`'s business.

use std::collections::BTreeMap;

use base::Ticket;

use crate::lies::Place;
use crate::names::Slot;

#[derive(Default)]
pub(crate) struct Packs {
    of: BTreeMap<u64, Pack>,
    /// The highest number that was ever seen: none is used twice while the log may still name it.
    last: u64,
    /// Nothing of them is needed, and since when the log says so: once that is forced they go.
    dead: BTreeMap<u64, Option<Ticket>>,
}

#[derive(Default)]
struct Pack {
    size: u64,
    /// Bytes of objects that are there.
    live: u64,
    /// What was put into it. What is there no more may be among it.
    slots: Vec<Slot>,
    /// As a whole it cannot be read: it is not written anew.
    is_unreadable: bool,
}

impl Packs {
    pub fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        self.of.values().map(|pack| pack.size).sum()
    }

    pub fn add(&mut self, slot: Slot, place: &Place) {
        self.last = self.last.max(place.pack);
        self.dead.remove(&place.pack);
        let pack = self.of.entry(place.pack).or_default();
        pack.live += place.len();
        pack.slots.push(slot);
    }

    pub fn release(&mut self, place: &Place) {
        let pack = self.of.get_mut(&place.pack).expect("what lies in a pack was added to it");
        pack.live -= place.len();
        if pack.live == 0 {
            self.dead.insert(place.pack, None);
        }
    }

    /// Notes that a pack is on the disk, when what lies in it has been added.
    pub fn is_written(&mut self, number: u64, size: u64) {
        let pack = self.of.entry(number).or_default();
        pack.size = size;
        if pack.live == 0 {
            self.dead.insert(number, None);
        }
    }

    /// What the disk has, at the start. Gives those that nothing of is needed.
    pub fn are_there(&mut self, there: &BTreeMap<u64, u64>) -> Vec<u64> {
        for (number, size) in there {
            self.last = self.last.max(*number);
            self.of.entry(*number).or_default().size = *size;
        }
        let over: Vec<u64> = self.of.iter().filter(|(_, pack)| pack.live == 0).map(|(number, _)| *number).collect();
        over.iter().for_each(|number| self.forget(*number));
        over
    }

    /// At the start: the disk has all of that.
    pub fn has(&self, place: &Place) -> bool {
        self.of.get(&place.pack).is_some_and(|pack| place.from + place.len() <= pack.size)
    }

    fn forget(&mut self, number: u64) {
        self.of.remove(&number);
        self.dead.remove(&number);
    }

    /// Settles packs that died in this turn: all that says so was appended up to this ticket. Gives those that the disk
    /// need not have any more, as the log is forced up to the other one.
    pub fn settle(&mut self, last: Ticket, forced: Ticket) -> Vec<u64> {
        if self.dead.is_empty() {
            return Vec::new();
        }
        self.dead.values_mut().for_each(|at| _ = at.get_or_insert(last));
        let is_over = |at: &Option<Ticket>| at.is_some_and(|at| at <= forced);
        let over: Vec<u64> = self.dead.iter().filter(|(_, at)| is_over(at)).map(|(number, _)| *number).collect();
        over.iter().for_each(|number| self.forget(*number));
        over
    }

    /// The pack that has the least of what is there, if they have too much of what is not: more than half as much as lives, and `slack`.
    /// `gained`: so much goes in any case. `room`: no more than that is to be written anew.
    pub fn worst(&self, slack: u64, gained: u64, room: u64, but: &[u64]) -> Option<(u64, u64)> {
        let there = || self.of.iter().filter(|(_, pack)| pack.live > 0);
        let (size, live) = there().fold((0, 0), |(size, live), (_, pack)| (size + pack.size, live + pack.live));
        if size.saturating_sub(gained) <= live + live / 2 + slack {
            return None;
        }
        let may = |(number, pack): &(&u64, &Pack)| {
            !pack.is_unreadable
                && pack.live <= room
                && pack.size - pack.live.min(pack.size) >= pack.size / 4
                && !but.contains(number)
        };
        let worst = there().filter(may).min_by_key(|(_, pack)| pack.live * 1000 / pack.size.max(1))?;
        Some((*worst.0, worst.1.size))
    }

    pub fn is_unreadable(&mut self, number: u64) {
        if let Some(pack) = self.of.get_mut(&number) {
            pack.is_unreadable = true;
        }
    }

    /// Where to look for what is left in it: something else may have a slot by now.
    pub fn slots(&self, number: u64) -> Vec<Slot> {
        let mut slots = self.of.get(&number).map(|pack| pack.slots.clone()).unwrap_or_default();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    pub fn size(&self, number: u64) -> u64 {
        self.of.get(&number).map_or(0, |pack| pack.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Id;
    use crate::lies::Part;

    fn slot(n: u8) -> Slot {
        Slot { owner: 1, id: Id([n; 16]) }
    }

    fn place(pack: u64, from: u64, len: u32) -> Place {
        Place { pack, from, parts: [Part { len, sum: 0 }].into_iter().collect() }
    }

    #[test]
    fn a_pack_goes_when_the_log_has_forced_that_nothing_is_in_it() {
        let mut packs = Packs::default();
        let number = packs.next();
        packs.add(slot(1), &place(number, 0, 60));
        packs.is_written(number, 100);
        assert!(packs.settle(Ticket(5), Ticket(9)).is_empty(), "something is in it");
        packs.release(&place(number, 0, 60));
        assert!(packs.settle(Ticket(6), Ticket(5)).is_empty(), "a power cut could bring back what was in it");
        assert_eq!((packs.settle(Ticket(7), Ticket(6)), packs.bytes()), (vec![number], 0));
        // One of which all was deleted before it was there.
        let number = packs.next();
        packs.is_written(number, 100);
        assert_eq!(packs.settle(Ticket(8), Ticket(8)), [number]);
    }

    #[test]
    fn the_emptiest_pack_is_written_anew_when_too_much_is_wasted() {
        let mut packs = Packs::default();
        for (number, live) in [(1, 90), (2, 20), (3, 30), (4, 80)] {
            packs.add(slot(number as u8), &place(number, 0, live));
            packs.is_written(number, 100);
        }
        // 400 bytes for 220 that live.
        assert_eq!(packs.worst(70, 0, 100, &[]), None);
        assert_eq!(packs.worst(60, 0, 100, &[]), Some((2, 100)));
        assert_eq!(packs.worst(60, 0, 100, &[2]), Some((3, 100)));
        assert_eq!(packs.worst(60, 0, 25, &[2]), None, "it has no room");
        assert_eq!(packs.worst(60, 80, 100, &[2]), None, "what is under way is enough");
        assert_eq!(packs.worst(0, 0, 100, &[2, 3]), None, "a fifth of one is not worth it");
        packs.is_unreadable(2);
        assert_eq!(packs.worst(0, 0, 100, &[3]), None);
        assert_eq!(packs.next(), 5);
    }

    #[test]
    fn at_the_start_what_nothing_names_goes_and_what_is_cut_is_seen() {
        let mut packs = Packs::default();
        packs.add(slot(1), &place(3, 40, 60));
        packs.add(slot(2), &place(7, 0, 10));
        assert_eq!(packs.are_there(&[(3, 99), (9, 5)].into()), [9]);
        assert!(!packs.has(&place(3, 40, 60)) && packs.has(&place(3, 39, 60)) && !packs.has(&place(7, 0, 10)));
        assert_eq!(packs.next(), 10, "a number is not used twice");
    }
}
