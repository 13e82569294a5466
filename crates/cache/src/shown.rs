//! What this node shows of its caches.

use class::Figure;

use super::Cache;

/// What is counted since the start.
#[derive(Default)]
pub struct Counts {
    pub damaged: u64,
    pub evicted: u64,
    pub forgotten: u64,
    pub hits: u64,
    pub misses: u64,
    pub purges: u64,
    pub taken: u64,
    pub unleased: u64,
    pub unreached: u64,
    pub waited: u64,
}

/// All figures of the class, in order of their names.
pub const FIGURES: &[Figure] = &[
    Figure::gauge("cache.bytes", "Memory that entries of caches take at this node."),
    Figure::gauge("cache.bytes_max", "Memory that they may take: size_max of all namespaces together."),
    Figure::counter(
        "cache.damaged",
        "Values whose checksum did not fit when they were to be answered, or that the disk did not give: misses.",
    ),
    Figure::gauge("cache.disk_bytes", "Bytes that entries of caches take on this node's disk."),
    Figure::gauge("cache.disk_bytes_max", "Bytes that they may take there: disk_max of all namespaces together."),
    Figure::gauge("cache.disk_entries", "Entries of caches on this node's disk."),
    Figure::counter(
        "cache.disk_hits",
        "Reads that got a value from this node's disk, at whichever node they were asked.",
    ),
    Figure::counter(
        "cache.disk_late",
        "Entries on this node's disk that were misses, as it took too long to read them.",
    ),
    Figure::counter("cache.disk_passed", "Entries that were not kept on the disk, as it was slower than they came."),
    Figure::gauge("cache.entries", "Entries of caches at this node, in memory and on its disk."),
    Figure::counter("cache.evicted", "Entries that went from memory for want of room, or never got any."),
    Figure::counter(
        "cache.forgotten",
        "Times that this node gave up all entries, as others held it dead or purges may have passed it by.",
    ),
    Figure::counter("cache.hits", "Reads at this node's doors that got a value."),
    Figure::gauge(
        "cache.leased",
        "1 if this node may serve entries: it holds leases of most voters of the root group.",
    ),
    Figure::counter("cache.misses", "Reads at this node's doors that got none, for whatever reason."),
    Figure::counter("cache.purges", "Purges that this node's doors were asked for and that are done."),
    Figure::counter("cache.taken", "Entries that came from the node that had the key before."),
    Figure::counter("cache.unleased", "Operations that this node could not do for want of leases."),
    Figure::counter("cache.unreached", "Operations whose key's node did not answer in time."),
    Figure::counter("cache.waited", "Reads at this node's doors that waited for what somebody else fetched."),
];

impl Cache {
    /// Values of [`FIGURES`], in the same order.
    pub(super) fn values_of_figures(&self) -> Vec<u64> {
        let Counts { damaged, evicted, forgotten, hits, misses, purges, taken, unleased, unreached, waited } =
            self.counts;
        let stores = || self.stores.values();
        vec![
            stores().map(|store| store.bytes()).sum(),
            stores().map(|store| store.size_max()).sum(),
            damaged,
            stores().map(|store| store.ring.bytes()).sum(),
            stores().map(|store| store.ring.size_max()).sum(),
            stores().map(|store| store.ring.len() as u64).sum(),
            self.loads.hits,
            self.loads.late,
            self.loads.passed + stores().map(|store| store.ring.passed).sum::<u64>(),
            stores().map(|store| store.len() as u64).sum(),
            evicted + stores().map(|store| store.evicted).sum::<u64>(),
            forgotten,
            hits + self.near.hits(),
            u64::from(self.is_leased()),
            misses,
            purges,
            taken,
            unleased,
            unreached,
            waited,
        ]
    }
}
