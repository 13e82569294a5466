//! Fairness between the clients of one priority, where only some of its requests find room: each is let in so often that all
//! together fit. What matters more loses nothing to it, whoever asks; of what matters less nobody is let in anyway.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use flow::admission::{CLASSES, CLIENTS, fair_share};

pub struct Fairness {
    /// The priority.
    class: AtomicUsize,
    /// Its requests of each client since the last look, and how many of them are let in.
    clients: [AtomicU32; CLIENTS],
    share: AtomicU32,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            class: AtomicUsize::new(NO_CLASS),
            clients: std::array::from_fn(|_| AtomicU32::new(0)),
            share: AtomicU32::new(u32::MAX),
        }
    }
}

impl Fairness {
    /// Counts a request. `client` is a hash of who asks.
    pub fn has_share(&self, class: usize, client: u64) -> bool {
        class != self.class.load(Relaxed)
            || self.clients[client as usize % CLIENTS].fetch_add(1, Relaxed) < self.share.load(Relaxed)
    }

    /// The highest priority of which some were refused in overload since the last look, and how many of it were let in.
    pub fn look(&self, scarce: Option<(usize, u64)>) {
        let clients = self.clients.each_ref().map(|count| count.swap(0, Relaxed));
        let class = scarce.map_or(NO_CLASS, |(class, _)| class);
        let was = self.class.swap(class, Relaxed);
        // What another priority's clients asked for says nothing of these.
        let known = scarce.filter(|_| was == class);
        let share = known.and_then(|(_, let_in)| fair_share(&clients, let_in + let_in / 8 + 1));
        self.share.store(share.unwrap_or(u32::MAX), Relaxed);
    }
}

/// All find room.
const NO_CLASS: usize = CLASSES;

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: usize = 9;
    const LOW: usize = 1;

    #[test]
    fn who_asks_for_much_of_what_is_scarce_gets_what_others_leave_and_loses_nothing_elsewhere() {
        let fairness = Fairness::default();
        let let_in = |class, client| (0..30).filter(|_| fairness.has_share(class, client)).count();
        assert_eq!(let_in(LOW, 7), 30);
        fairness.look(Some((LOW, 10)));
        assert_eq!((let_in(LOW, 7), fairness.has_share(LOW, 8)), (30, true), "first it counts");
        fairness.look(Some((LOW, 10)));
        assert_eq!((let_in(LOW, 7), fairness.has_share(LOW, 8)), (11, true));
        assert_eq!(let_in(TOP, 7), 30, "what matters more");
        fairness.look(Some((TOP, 10)));
        assert_eq!(let_in(TOP, 7), 30, "the others asked for something else");
        fairness.look(None);
        assert_eq!(let_in(TOP, 7), 30);
    }
}
