//! One node's disk: the log of all groups, their snapshots, and what is on its way to it. A forced write is safe when it
//! completes; a crash keeps a prefix of the appends under way, as a real file system may. One without force completes when it
//! is written: a crash keeps it, a power cut may take it as long as it is not forced, and all behind it. Snapshots are
//! written beside the log, each in its own time: one happens whole or not at all, and only when all before it is forced. So are packs,
//! which lie beside all that: one is there with all its bytes, or not at all.

use std::collections::{BTreeMap, VecDeque};

use base::limits::UNFORCED_MAX;
use base::{GroupId, PackSaid, Parts, Rng, Span, Ticket, Time};
use bytes::{Bytes, BytesMut};

use super::saved::Saved;

/// A write into the kernel's memory, microseconds.
const WRITE_MICROS: (u64, u64) = (5, 200);
/// An SSD's flush, microseconds.
pub const FLUSH_MICROS: (u64, u64) = (100, 4_000);

#[derive(Default)]
pub struct Disk {
    /// Records that are written, with the number that says which a snapshot replaces.
    log: Vec<(u64, GroupId, Bytes)>,
    /// Records from this number on may go with the power.
    forced: u64,
    /// When such were written, and the number behind them.
    unforced: VecDeque<(Time, u64)>,
    snapshots: BTreeMap<GroupId, Snapshot>,
    /// Number of the next record.
    next: u64,
    appends: VecDeque<Append>,
    saves: BTreeMap<u64, Save>,
    packs: BTreeMap<(GroupId, u64), Bytes>,
    /// Packs that are being written.
    packing: BTreeMap<u64, (GroupId, u64, Bytes)>,
    writes: u64,
    /// How many of `appends` the disk is at: all that waited when it became free go together.
    forcing: usize,
    /// Each flush takes so much longer, at most; zero for a healthy disk.
    slow: Span,
    /// It takes nothing.
    full: bool,
    /// Saves that wait for room.
    held: Vec<u64>,
    /// It says that it has kept what it only holds in its own memory; this is what it really has.
    honest: Option<Image>,
}

/// What a disk has at one moment.
#[derive(Clone)]
pub struct Image {
    log: Vec<(u64, GroupId, Bytes)>,
    snapshots: BTreeMap<GroupId, Snapshot>,
    packs: BTreeMap<(GroupId, u64), Bytes>,
    next: u64,
}

#[derive(Clone)]
struct Snapshot {
    /// The number of the first record behind it; then, which save it was: of two without a record between them the later one holds.
    upto: (u64, u64),
    records: Saved,
}

struct Append {
    ticket: Ticket,
    group: GroupId,
    records: Vec<(u64, Bytes)>,
    force: bool,
}

struct Save {
    ticket: Option<Ticket>,
    group: GroupId,
    snapshot: Snapshot,
}

pub enum Write {
    /// With or without force.
    Append(GroupId, Vec<Bytes>, Ticket, bool),
    Save(GroupId, Parts, Ticket),
    Forget(GroupId),
    Pack(GroupId, u64, Vec<Bytes>),
}

/// Which write has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    Append,
    Save(u64),
    Pack(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Safe {
    Appended(GroupId, Ticket),
    Saved(GroupId, Ticket),
    Pack(GroupId, PackSaid),
}

impl Disk {
    /// Takes a write; says when to ask for what has completed. None: with those that wait for the flush under way.
    pub fn submit(&mut self, at: Time, write: Write, rng: &mut Rng) -> Option<(Time, Done)> {
        let (group, records, ticket) = match write {
            Write::Append(group, records, ticket, force) => {
                let first = self.next;
                self.next += records.len() as u64;
                let records = (first..).zip(records).collect();
                self.appends.push_back(Append { ticket, group, records, force });
                return if self.forcing == 0 { self.force(at, rng) } else { None };
            }
            Write::Save(group, parts, ticket) => (group, Saved::new(parts), Some(ticket)),
            Write::Forget(group) => (group, Saved::none(), None),
            Write::Pack(group, pack, parts) => {
                self.writes += 1;
                let mut bytes = BytesMut::new();
                parts.iter().for_each(|part| bytes.extend_from_slice(part));
                self.packing.insert(self.writes, (group, pack, bytes.freeze()));
                return self.beside(at, self.writes, Done::Pack(self.writes), rng);
            }
        };
        self.writes += 1;
        let snapshot = Snapshot { upto: (self.next, self.writes), records };
        self.saves.insert(self.writes, Save { ticket, group, snapshot });
        self.beside(at, self.writes, Done::Save(self.writes), rng)
    }

    /// When something beside the log is on the disk.
    fn beside(&mut self, at: Time, number: u64, done: Done, rng: &mut Rng) -> Option<(Time, Done)> {
        if self.full {
            self.held.push(number);
            return None;
        }
        let took = self.flush(rng);
        Some((at + took.times(rng.between(1, 20)), done))
    }

    /// What it is called that waits for room, or is under way beside the log.
    fn done_of(&self, number: u64) -> Done {
        if self.packing.contains_key(&number) { Done::Pack(number) } else { Done::Save(number) }
    }

    /// Some bytes of a pack; none if it has not so many.
    pub fn read(&self, group: GroupId, pack: u64, from: u64, len: u32) -> Option<Bytes> {
        let bytes = self.packs.get(&(group, pack))?;
        let range = from as usize..from as usize + len as usize;
        (range.end <= bytes.len()).then(|| bytes.slice(range))
    }

    pub fn drop_pack(&mut self, group: GroupId, pack: u64) {
        self.packs.remove(&(group, pack));
    }

    /// The packs that are here, with their sizes.
    pub fn packs(&self) -> BTreeMap<GroupId, BTreeMap<u64, u64>> {
        let mut there: BTreeMap<GroupId, BTreeMap<u64, u64>> = BTreeMap::new();
        for ((group, pack), bytes) in &self.packs {
            there.entry(*group).or_default().insert(*pack, bytes.len() as u64);
        }
        there
    }

    fn flush(&self, rng: &mut Rng) -> Span {
        let slow = if self.slow == Span::ZERO { 0 } else { rng.below(self.slow.0) };
        Span(rng.between(FLUSH_MICROS.0, FLUSH_MICROS.1) + slow)
    }

    fn force(&mut self, at: Time, rng: &mut Rng) -> Option<(Time, Done)> {
        self.forcing = if self.full { 0 } else { self.appends.len() };
        let force = self.appends.iter().take(self.forcing).any(|append| append.force);
        let took =
            |rng: &mut Rng| if force { self.flush(rng) } else { Span(rng.between(WRITE_MICROS.0, WRITE_MICROS.1)) };
        (self.forcing > 0).then(|| (at + took(rng), Done::Append))
    }

    /// A write is safe now: what that is for whom, and when to ask again. Nothing if a crash took it.
    pub fn complete(&mut self, at: Time, done: Done, rng: &mut Rng) -> (Vec<Safe>, Option<(Time, Done)>) {
        match done {
            Done::Append => {
                let (mut safe, mut forced) = (Vec::new(), false);
                for _ in 0..std::mem::take(&mut self.forcing) {
                    let Some(Append { ticket, group, records, force }) = self.appends.pop_front() else { break };
                    forced |= force;
                    self.keep(group, records);
                    safe.push(Safe::Appended(group, ticket));
                }
                match forced {
                    true => self.all_forced(),
                    false => self.unforced.push_back((at, self.written())),
                }
                (safe, self.force(at, rng))
            }
            Done::Pack(number) => {
                let Some((group, pack, bytes)) = self.packing.remove(&number) else { return (Vec::new(), None) };
                self.packs.insert((group, pack), bytes);
                (vec![Safe::Pack(group, PackSaid::Written { pack })], None)
            }
            Done::Save(number) => {
                let Some(save) = self.saves.remove(&number) else { return (Vec::new(), None) };
                self.forced = self.forced.max(save.snapshot.upto.0);
                let (group, ticket) = (save.group, save.ticket);
                self.replace(save);
                (ticket.map(|ticket| Safe::Saved(group, ticket)).into_iter().collect(), None)
            }
        }
    }

    fn keep(&mut self, group: GroupId, records: Vec<(u64, Bytes)>) {
        self.log.extend(records.into_iter().map(|(number, record)| (number, group, record)));
    }

    /// The number behind the last record that is written.
    fn written(&self) -> u64 {
        self.log.last().map_or(self.forced, |(number, ..)| number + 1).max(self.forced)
    }

    fn all_forced(&mut self) {
        self.forced = self.written();
        self.unforced.clear();
    }

    /// The program starts: it forces what a killed one has written before it believes it.
    pub fn open(&mut self) {
        self.all_forced();
    }

    fn replace(&mut self, save: Save) {
        let upto = save.snapshot.upto;
        if self.snapshots.get(&save.group).is_none_or(|before| before.upto <= upto) {
            self.log.retain(|(number, group, _)| *group != save.group || *number >= upto.0);
            self.snapshots.insert(save.group, save.snapshot);
        }
    }

    /// The process dies: of the appends under way a random prefix reached the disk, record by record; of the snapshots
    /// any. What was written and not forced by now nobody forces any more. Returns how many records were lost.
    pub fn crash(&mut self, at: Time, rng: &mut Rng) -> usize {
        let took = UNFORCED_MAX + Span(FLUSH_MICROS.1) + self.slow;
        for (since, number) in std::mem::take(&mut self.unforced) {
            if since + took <= at {
                self.forced = self.forced.max(number);
            }
        }
        self.forcing = 0;
        self.held.clear();
        let appends = std::mem::take(&mut self.appends);
        let (mut lost, mut torn) = (0, false);
        for Append { group, mut records, .. } in appends {
            if torn || rng.chance(0.5) {
                let kept = if torn { 0 } else { rng.below(records.len() as u64 + 1) as usize };
                lost += records.len() - kept;
                records.truncate(kept);
                torn = true;
            }
            self.keep(group, records);
        }
        for save in std::mem::take(&mut self.saves).into_values() {
            if rng.chance(0.5) {
                self.forced = self.forced.max(save.snapshot.upto.0);
                self.replace(save);
            }
        }
        for (group, pack, bytes) in std::mem::take(&mut self.packing).into_values() {
            if rng.chance(0.5) {
                self.packs.insert((group, pack), bytes);
            }
        }
        lost
    }

    /// What each group has here.
    pub fn kept(&self) -> BTreeMap<GroupId, Vec<Bytes>> {
        let mut kept: BTreeMap<GroupId, Vec<Bytes>> =
            self.snapshots.iter().map(|(group, snapshot)| (*group, snapshot.records.records())).collect();
        for (number, group, record) in &self.log {
            if self.snapshots.get(group).is_none_or(|snapshot| *number >= snapshot.upto.0) {
                kept.entry(*group).or_default().push(record.clone());
            }
        }
        kept.retain(|_, records| !records.is_empty());
        kept
    }

    /// Each flush takes so much longer from now on. A healthy disk is soon done with the snapshots that it was slow with: says when.
    pub fn slow_down(&mut self, at: Time, by: Span, rng: &mut Rng) -> Vec<(Time, Done)> {
        self.slow = by;
        let beside = self.saves.keys().chain(self.packing.keys()).copied();
        let under_way: Vec<u64> = beside.filter(|number| !self.held.contains(number)).collect();
        let healthy = under_way.into_iter().filter(|_| by == Span::ZERO);
        healthy.map(|number| (at + self.flush(rng), self.done_of(number))).collect()
    }

    pub fn is_full(&self) -> bool {
        self.full
    }

    /// It takes nothing from now on, or takes all again; then says when what has waited completes.
    pub fn fill(&mut self, at: Time, full: bool, rng: &mut Rng) -> Vec<(Time, Done)> {
        self.full = full;
        if full {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.held);
        let mut due: Vec<_> = held.into_iter().map(|n| (at + self.flush(rng), self.done_of(n))).collect();
        if self.forcing == 0 {
            due.extend(self.force(at, rng));
        }
        due
    }

    /// From now on it lies about what it has kept, or it has kept all by now.
    pub fn lie(&mut self, lies: bool) {
        self.honest = lies.then(|| self.image());
    }

    pub fn image(&self) -> Image {
        let (log, snapshots, packs) = (self.log.clone(), self.snapshots.clone(), self.packs.clone());
        Image { log, snapshots, packs, next: self.next }
    }

    /// After the crash, what a machine that lost its power finds: without what the disk lied about, and of what was not
    /// forced a part. Returns how many records went, and whether it lied.
    pub fn power_off(&mut self, rng: &mut Rng) -> (usize, bool) {
        let had = self.log.len();
        let end = rng.between(self.forced, self.written());
        self.log.retain(|(number, ..)| *number < end);
        let lost = had - self.log.len();
        let Some(honest) = self.honest.take() else { return (lost, false) };
        let lied = honest.next != self.next;
        self.put_back(honest);
        (lost, lied)
    }

    pub fn put_back(&mut self, image: Image) {
        (self.log, self.snapshots, self.packs, self.next) = (image.log, image.snapshots, image.packs, image.next);
        self.honest = None;
        self.forced = 0;
        self.all_forced();
    }

    /// The disk is swapped for an empty one.
    pub fn empty(&mut self) {
        *self = Self { slow: self.slow, full: self.full, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);

    fn records(numbers: &[u8]) -> Vec<Bytes> {
        numbers.iter().map(|n| Bytes::copy_from_slice(&[*n])).collect()
    }

    fn shown(disk: &Disk) -> Vec<u8> {
        disk.kept().get(&GROUP).into_iter().flatten().map(|record| record[0]).collect()
    }

    /// A disk on which the first append is safe, and the others wait.
    fn with(appends: &[&[u8]], rng: &mut Rng) -> Disk {
        let mut disk = Disk::default();
        for (n, numbers) in appends.iter().enumerate() {
            disk.submit(Time(0), Write::Append(GROUP, records(numbers), Ticket(n as u64 + 1), true), rng);
        }
        assert_eq!(disk.complete(Time(1), Done::Append, rng).0, [Safe::Appended(GROUP, Ticket(1))]);
        disk
    }

    #[test]
    fn a_crash_keeps_all_that_was_safe_and_a_prefix_of_the_rest() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let mut disk = with(&[&[1, 2], &[3, 4], &[5]], &mut rng);
            disk.crash(Time(2), &mut rng);
            let log = shown(&disk);
            assert!([1, 2, 3, 4, 5].starts_with(&log) && log.len() >= 2, "{log:?}");
            assert_eq!(disk.complete(Time(9), Done::Append, &mut rng), (vec![], None));
            seen.insert(log.len());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5], "every prefix occurs");
    }

    #[test]
    fn a_save_replaces_what_came_before_it_whole_or_not_at_all() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut disk = with(&[&[1]], &mut rng);
            disk.submit(Time(2), Write::Save(GROUP, Parts::of(records(&[9])), Ticket(2)), &mut rng);
            disk.submit(Time(3), Write::Append(GROUP, records(&[2]), Ticket(3), true), &mut rng);
            disk.complete(Time(4), Done::Append, &mut rng);
            disk.crash(Time(5), &mut rng);
            seen.insert(shown(&disk));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [vec![1, 2], vec![9, 2]]);
    }

    #[test]
    fn of_two_saves_without_a_record_between_them_the_later_one_holds() {
        let mut rng = Rng::new(1);
        let mut disk = with(&[&[1]], &mut rng);
        let mut save = |disk: &mut Disk, record, ticket| {
            disk.submit(Time(2), Write::Save(GROUP, Parts::of(records(&[record])), Ticket(ticket)), &mut rng).unwrap().1
        };
        let (first, second) = (save(&mut disk, 8, 2), save(&mut disk, 9, 3));
        for done in [second, first] {
            disk.complete(Time(3), done, &mut Rng::new(1));
            assert_eq!(shown(&disk), [9]);
        }
    }

    #[test]
    fn what_is_written_without_force_outlives_the_process_and_goes_with_the_power_until_it_is_forced() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let unforced = |rng: &mut Rng| {
                let mut disk = with(&[&[1]], rng);
                disk.submit(Time(2), Write::Append(GROUP, records(&[2, 3]), Ticket(2), false), rng);
                assert_eq!(disk.complete(Time(9), Done::Append, rng).0, [Safe::Appended(GROUP, Ticket(2))]);
                disk
            };
            let mut killed = unforced(&mut rng);
            killed.crash(Time(10), &mut rng);
            assert_eq!(shown(&killed), [1, 2, 3], "SIGKILL takes nothing that was acknowledged");
            killed.open();
            killed.power_off(&mut rng);
            assert_eq!(shown(&killed), [1, 2, 3], "it was forced when it was read");
            let mut cut = unforced(&mut rng);
            cut.crash(Time(10), &mut rng);
            cut.power_off(&mut rng);
            seen.insert(shown(&cut));
            let mut later = unforced(&mut rng);
            later.crash(Time(10) + UNFORCED_MAX + Span(FLUSH_MICROS.1), &mut rng);
            later.power_off(&mut rng);
            assert_eq!(shown(&later), [1, 2, 3], "it has been forced meanwhile");
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [vec![1], vec![1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn what_waits_is_forced_together_and_told_in_order() {
        let mut rng = Rng::new(4);
        let mut disk = with(&[&[1], &[2], &[3]], &mut rng);
        let (safe, next) = disk.complete(Time(9), Done::Append, &mut rng);
        assert_eq!(safe, [Safe::Appended(GROUP, Ticket(2)), Safe::Appended(GROUP, Ticket(3))]);
        assert_eq!((next, shown(&disk)), (None, vec![1, 2, 3]));
    }
}
