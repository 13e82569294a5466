//! The admission of requests to one set of clones: counts what comes and goes, and compares it with what
//! [`flow::admission`] said when it looked last. Who is let in passes with a few atomic operations and no lock; only who
//! must wait, and whoever makes room for him, takes one. The look itself is taken by the request that ends when it is due.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use base::{Span, Time};
use clones::{Doors, RouteService};
use flow::admission::{Admission, CLASSES, Came, Rooms};
use flow::doors::{Door, Others};
use flow::histogram::{BUCKETS, Powers, bucket_of, percentile};
use flow::limit::{Bounds, Seen, most_log};
use flow::limits::LEARN_EVERY;
use flow::stage::{End, Shown};
use tokio::sync::oneshot;

use crate::fairness::Fairness;
use crate::limits::{ADMISSION, CLONE_WAIT};
use crate::overload::Heat;
use crate::part::{Part, PartFigures};
use crate::wait::Wait;

pub struct Turnstile {
    began: Instant,
    admission: Mutex<Admission>,
    room: [AtomicU32; CLASSES],
    may_wait: [AtomicU32; CLASSES],
    /// For the pressure that programs are told.
    size: AtomicU32,
    under_way: AtomicU32,
    /// At other nodes' doors.
    elsewhere: AtomicU32,
    is_overloaded: AtomicBool,
    /// Microseconds since it began when the next look is due.
    look_at: AtomicU64,
    seen: Counts,
    fairness: Fairness,
    queue: Mutex<[VecDeque<oneshot::Sender<Permit>>; CLASSES]>,
    /// In the queue, those included who have left.
    waiting: AtomicU32,
    shown: Totals,
}

/// Since the last look.
struct Counts {
    arrived: [AtomicU64; CLASSES],
    let_in: [AtomicU64; CLASSES],
    /// How long what was done took.
    took: Box<[AtomicU64]>,
    overloads: AtomicU64,
    under_way_max: AtomicU32,
    no_room: AtomicU64,
    refused: [AtomicU64; CLASSES],
    /// The shortest wait of each class; [`NOBODY`] has come. A queue stands where all wait (CoDel's distinction): what came while the
    /// machine stood still for a moment is let in soon, and then others are again who need not wait.
    waited_us: [AtomicU64; CLASSES],
}

const NOBODY: u64 = u64::MAX;

impl Default for Counts {
    fn default() -> Self {
        Self {
            arrived: Default::default(),
            let_in: Default::default(),
            took: buckets(),
            overloads: AtomicU64::default(),
            under_way_max: AtomicU32::default(),
            no_room: AtomicU64::default(),
            refused: Default::default(),
            waited_us: [const { AtomicU64::new(NOBODY) }; CLASSES],
        }
    }
}

impl Counts {
    fn waited(&self, class: usize, us: u64) {
        // Mostly somebody waited as little before, and nothing is written.
        if us < self.waited_us[class].load(Relaxed) {
            self.waited_us[class].fetch_min(us, Relaxed);
        }
    }
}

pub fn buckets() -> Box<[AtomicU64]> {
    (0..BUCKETS).map(|_| AtomicU64::new(0)).collect()
}

/// What was counted, and it is counted anew. Most are zero: those are looked at, not written.
fn taken(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|n| if n.load(Relaxed) > 0 { n.swap(0, Relaxed) } else { 0 }).collect()
}

struct Totals {
    started: AtomicU64,
    refused: AtomicU64,
    wait: Times,
    service: Times,
}

/// How long something took, since it was shown last and before.
struct Times {
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
    before: Mutex<Powers>,
}

impl Times {
    fn new() -> Self {
        Self { counts: buckets(), sum_us: AtomicU64::new(0), before: Mutex::default() }
    }

    fn note(&self, us: u64) {
        self.counts[bucket_of(us)].fetch_add(1, Relaxed);
        if us > 0 {
            self.sum_us.fetch_add(us, Relaxed);
        }
    }

    /// Half and 99 of 100 since this was asked last, and all since the start.
    fn take(&self) -> (u64, u64, Powers) {
        let counts = taken(&self.counts);
        let mut all = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(&counts, self.sum_us.swap(0, Relaxed));
        (percentile(&counts, 50), percentile(&counts, 99), *all)
    }
}

/// One request is under way until this is dropped.
pub struct Permit {
    of: Arc<Turnstile>,
    began: Instant,
    is_open: bool,
    /// It did not wait.
    is_prompt: bool,
}

/// One clone more has a request that another has, until this is dropped. How long it takes says nothing of the limit.
pub struct Extra(Arc<Turnstile>);

impl Drop for Extra {
    fn drop(&mut self) {
        self.0.left();
    }
}

/// At which doors something comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Front {
    Http,
    Tcp,
}

/// What a turnstile is called among nodes: `shop`, `shop/pay`, `tcp:mail`. A service that is reached both ways has one for each, as a
/// connection's first answer tells nothing of how long a request takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    pub front: Front,
    pub service: &'a str,
    /// Empty for the service's rest.
    pub partition: &'a str,
}

const OF_TCP: &str = "tcp:";

impl<'a> Name<'a> {
    pub fn of(text: &'a str) -> Self {
        let tcp = text.strip_prefix(OF_TCP);
        let front = if tcp.is_some() { Front::Tcp } else { Front::Http };
        let text = tcp.unwrap_or(text);
        let (service, partition) = text.split_once('/').unwrap_or((text, ""));
        Self { front, service, partition }
    }

    /// Among a node's stages: `http-shop`, `http-shop/pay`, `tcp-mail`.
    pub fn stage(&self) -> String {
        let front = match self.front {
            Front::Http => "http",
            Front::Tcp => "tcp",
        };
        format!("{front}-{}", Self { front: Front::Http, ..*self })
    }

    pub fn is_stage(name: &str) -> bool {
        ["http-", "tcp-"].iter().any(|front| name.starts_with(front))
    }
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let front = if self.front == Front::Tcp { OF_TCP } else { "" };
        let slash = if self.partition.is_empty() { "" } else { "/" };
        write!(f, "{front}{}{slash}{}", self.service, self.partition)
    }
}

/// The turnstiles of a node, shared by its doors: they have the same clones before them.
#[derive(Default)]
pub struct Turnstiles(Mutex<BTreeMap<String, Entry>>);

#[derive(Default)]
struct Entry {
    /// None of a partition that has no clones of its own: its requests pass the service's. A turnstile takes some kilobytes.
    turnstile: Option<Arc<Turnstile>>,
    part: Arc<Part>,
}

impl std::fmt::Debug for Turnstiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock_all().keys()).finish()
    }
}

impl Turnstiles {
    fn lock_all(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a partition or a service, by [`Name`], which has so many clones.
    pub fn of(&self, name: &str, clones: usize) -> (Arc<Turnstile>, Arc<Part>) {
        let mut all = self.lock_all();
        let entry = all.entry(name.to_owned()).or_default();
        let turnstile = entry.turnstile.get_or_insert_with(|| Arc::new(Turnstile::new(clones)));
        turnstile.set_clones(clones);
        (Arc::clone(turnstile), Arc::clone(&entry.part))
    }

    /// That of a partition whose requests pass another turnstile.
    pub fn part(&self, name: &str) -> Arc<Part> {
        let mut all = self.lock_all();
        let entry = all.entry(name.to_owned()).or_default();
        entry.turnstile = None;
        Arc::clone(&entry.part)
    }

    /// Those of what is not declared any more are forgotten.
    pub fn keep(&self, declared: &[RouteService]) {
        let mut all: HashSet<(&str, &str)> = HashSet::new();
        for RouteService { name, partitions, .. } in declared {
            all.extend(partitions.iter().map(|partition| (name.as_str(), partition.name.as_str())));
            all.insert((name, ""));
        }
        self.lock_all().retain(|name, _| {
            let Name { service, partition, .. } = Name::of(name);
            all.contains(&(service, partition))
        });
    }

    /// What the doors of other nodes are to know of what comes to these.
    pub fn tell(&self) -> Doors {
        let used = self.each().filter(|(_, turnstile)| !turnstile.is_unused());
        let doors = used.map(|(name, turnstile)| (name, turnstile.door()));
        let asked = doors.filter(|(_, door)| door.rates.iter().any(|rate| *rate > 0.0));
        Doors(asked.map(|(name, door)| (name, door.into())).collect())
    }

    /// What they said.
    pub fn hear(&self, others: &[Doors]) {
        for (name, turnstile) in self.each() {
            turnstile.hear(others.iter().filter_map(|doors| doors.0.get(&name)).map(Door::from).collect());
        }
    }

    /// Of partitions, and of the rest of services, that somebody has asked for.
    pub fn figures(&self) -> impl Iterator<Item = PartFigures> + use<> {
        let is_asked = |(_, entry): &(&String, &Entry)| entry.part.requests.load(Relaxed) > 0;
        let all = self.lock_all();
        let asked = all.iter().filter(is_asked).map(|(name, entry)| (name.clone(), Arc::clone(&entry.part)));
        asked.collect::<Vec<_>>().into_iter().map(|(name, part)| {
            let Name { front, service, partition } = Name::of(&name);
            part.figures(front, service, partition)
        })
    }

    /// By name.
    pub fn each(&self) -> impl Iterator<Item = (String, Arc<Turnstile>)> + use<> {
        let all = self.lock_all();
        let each = all.iter().filter_map(|(name, entry)| Some((name.clone(), Arc::clone(entry.turnstile.as_ref()?))));
        each.collect::<Vec<_>>().into_iter()
    }
}

/// Who found no room at once.
pub struct Waiter {
    class: usize,
    /// Its client has not had its share.
    has_share: bool,
}

/// There is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl Turnstile {
    /// Before so many clones.
    pub fn new(clones: usize) -> Self {
        let admission = Admission::new(bounds(clones));
        let turnstile = Self {
            began: Instant::now(),
            room: Default::default(),
            may_wait: Default::default(),
            size: AtomicU32::new(admission.limit().size()),
            under_way: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            is_overloaded: AtomicBool::new(false),
            look_at: AtomicU64::new(LEARN_EVERY.0),
            seen: Counts::default(),
            fairness: Fairness::default(),
            queue: Mutex::default(),
            waiting: AtomicU32::new(0),
            shown: Totals {
                started: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                wait: Times::new(),
                service: Times::new(),
            },
            admission: Mutex::new(admission),
        };
        turnstile.take(&turnstile.lock().rooms());
        turnstile
    }

    /// What this door says of itself. As it is asked often, it also looks if no request has done so.
    fn door(self: &Arc<Self>) -> Door {
        self.look_if_due(Instant::now());
        // There may be room without anybody having left: what others say has changed.
        self.let_in();
        self.lock().door()
    }

    fn hear(&self, others: Vec<Door>) {
        let mut admission = self.lock();
        admission.hear(self.time(Instant::now()), Others::new(others));
        self.elsewhere.store(admission.elsewhere() as u32, Relaxed);
    }

    pub fn set_clones(&self, clones: usize) {
        self.lock().set_bounds(bounds(clones));
    }

    /// Lets a request in, now or after a short wait for those before it. `client` is a hash of who asks, who waits for `left`
    /// more at most.
    ///
    /// # Errors
    /// There is no room for its class: it is to be refused at once.
    pub async fn enter(self: &Arc<Self>, class: u8, client: u64, left: Duration) -> Result<Permit, Full> {
        match self.enter_now(class, client) {
            Ok(permit) => Ok(permit),
            Err(waiter) => self.enter_later(waiter, left, &Mutex::default()).await,
        }
    }

    /// Lets a request in if nobody waits and there is room.
    ///
    /// # Errors
    /// It may wait ([`Self::enter_later`]).
    pub fn enter_now(self: &Arc<Self>, class: u8, client: u64) -> Result<Permit, Waiter> {
        let class = usize::from(class).min(CLASSES - 1);
        self.seen.arrived[class].fetch_add(1, Relaxed);
        let has_share = self.fairness.has_share(class, client);
        if has_share && self.waiting.load(SeqCst) == 0 && self.grab(class) {
            self.shown.wait.note(0);
            self.seen.waited(class, 0);
            return Ok(self.permit(class, true));
        }
        Err(Waiter { class, has_share })
    }

    /// Lets it in after those before it. `timer` may be of many waits, one after the other.
    ///
    /// # Errors
    /// There is no room for its class, or it was not its turn for so long.
    pub async fn enter_later(
        self: &Arc<Self>,
        waiter: Waiter,
        left: Duration,
        timer: &Mutex<Wait>,
    ) -> Result<Permit, Full> {
        let Waiter { class, has_share } = waiter;
        self.seen.no_room.fetch_add(1, Relaxed);
        self.look_if_due(Instant::now());
        let waited = if has_share { self.wait(class, left.min(CLONE_WAIT), timer).await } else { Err(Full) };
        if waited.is_err() {
            self.shown.refused.fetch_add(1, Relaxed);
            self.seen.refused[class].fetch_add(1, Relaxed);
        }
        waited
    }

    /// Room for asking one more clone for what another has already. Only while there is plenty: who is asked twice leaves half of all to
    /// those who are asked once, and nothing while somebody waits or was refused.
    pub fn one_more(self: &Arc<Self>) -> Option<Extra> {
        let room = self.room[0].load(Relaxed).min(self.size.load(Relaxed)) / 2;
        let room = room.saturating_sub(self.elsewhere.load(Relaxed)).max(1);
        if self.waiting.load(SeqCst) > 0 || self.is_overloaded.load(Relaxed) {
            return None;
        }
        // One is that which is asked more than once.
        let grabbed = self.under_way.fetch_update(SeqCst, SeqCst, |n| (n <= room).then_some(n + 1));
        grabbed.ok().map(|_| Extra(Arc::clone(self)))
    }

    /// 0 (idle) to 10 (as much under way as may be, at all doors).
    pub fn pressure(&self) -> usize {
        let here = self.under_way.load(Relaxed).saturating_sub(1);
        let under_way = here.saturating_add(self.elsewhere.load(Relaxed)) as usize;
        (under_way * 10 / (self.size.load(Relaxed) as usize).max(1)).min(10)
    }

    async fn wait(self: &Arc<Self>, class: usize, patience: Duration, timer: &Mutex<Wait>) -> Result<Permit, Full> {
        let begun = Instant::now();
        let (send, mut receive) = oneshot::channel();
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let most = self.may_wait[class].load(Relaxed) as usize;
            if queue[class].len() >= most {
                // Who has left makes place.
                let before = queue[class].len();
                queue[class].retain(|waiter| !waiter.is_closed());
                self.waiting.fetch_sub((before - queue[class].len()) as u32, SeqCst);
            }
            if queue[class].len() >= most {
                return Err(Full);
            }
            queue[class].push_back(send);
            self.waiting.fetch_add(1, SeqCst);
            // Somebody may have made room meanwhile, who saw nobody waiting.
            self.admit(&mut queue);
        }
        let timer = || timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer().over();
        let permit = poll_fn(|cx| match Pin::new(&mut receive).poll(cx) {
            Poll::Ready(permit) => Poll::Ready(permit.ok()),
            Poll::Pending if timer().is_overdue(cx, patience) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        timer().over();
        let waited = Span::from(begun.elapsed());
        self.seen.waited(class, waited.0);
        self.shown.wait.note(waited.0);
        permit.ok_or(Full)
    }

    /// Lets in who waits, the highest class first.
    fn admit(self: &Arc<Self>, queue: &mut [VecDeque<oneshot::Sender<Permit>>; CLASSES]) {
        for class in (0..CLASSES).rev() {
            while !queue[class].is_empty() && self.grab(class) {
                let waiter = queue[class].pop_front().expect("just seen");
                self.waiting.fetch_sub(1, SeqCst);
                if let Err(mut permit) = waiter.send(self.permit(class, false)) {
                    // He has left. Not dropped open: that would come back to this queue.
                    permit.is_open = false;
                    self.under_way.fetch_sub(1, SeqCst);
                }
            }
        }
    }

    fn grab(&self, class: usize) -> bool {
        let room = self.room[class].load(Relaxed);
        let grabbed = self.under_way.fetch_update(SeqCst, SeqCst, |n| (n < room).then_some(n + 1));
        if let Ok(before) = grabbed {
            self.seen.under_way_max.fetch_max(before + 1, Relaxed);
        }
        grabbed.is_ok()
    }

    fn permit(self: &Arc<Self>, class: usize, is_prompt: bool) -> Permit {
        self.seen.let_in[class].fetch_add(1, Relaxed);
        self.shown.started.fetch_add(1, Relaxed);
        Permit { of: Arc::clone(self), began: Instant::now(), is_open: true, is_prompt }
    }

    fn left(self: &Arc<Self>) {
        self.under_way.fetch_sub(1, SeqCst);
        self.let_in();
    }

    fn let_in(self: &Arc<Self>) {
        if self.waiting.load(SeqCst) > 0 {
            self.admit(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn look_if_due(&self, at: Instant) {
        let now = self.time(at);
        if now.0 >= self.look_at.load(Relaxed)
            && let Ok(mut admission) = self.admission.try_lock()
        {
            self.look(&mut admission, now);
        }
    }

    fn time(&self, at: Instant) -> Time {
        Time(at.saturating_duration_since(self.began).as_micros() as u64)
    }

    fn look(&self, admission: &mut Admission, now: Time) {
        self.look_at.store(now.0 + LEARN_EVERY.0, Relaxed);
        let counts = &self.seen;
        let took = taken(&counts.took);
        let seen = Seen {
            done: took.iter().sum(),
            took_log: most_log(&took),
            overloads: counts.overloads.swap(0, Relaxed),
            under_way_max: counts.under_way_max.swap(self.under_way.load(Relaxed), Relaxed),
            no_room: counts.no_room.swap(0, Relaxed),
            ..Seen::default()
        };
        let waited = counts.waited_us.each_ref().map(|us| us.swap(NOBODY, Relaxed));
        let waited = Span(waited.into_iter().filter(|us| *us != NOBODY).max().unwrap_or(0));
        let of_each = |counts: &[AtomicU64; CLASSES]| counts.each_ref().map(|count| count.swap(0, Relaxed));
        let (arrived, let_in, refused) = (of_each(&counts.arrived), of_each(&counts.let_in), of_each(&counts.refused));
        let under_way = self.under_way.load(Relaxed);
        let came = Came { arrived, let_in, waited, refused: refused.iter().sum(), under_way };
        let rooms = admission.look(now, &seen, &came);
        self.size.store(admission.limit().size(), Relaxed);
        self.is_overloaded.store(admission.is_overloaded(), Relaxed);
        self.take(&rooms);
        // Only while requests are refused: before that nobody takes anything from anybody.
        let scarce = refused.iter().rposition(|count| *count > 0).filter(|_| admission.is_scarce());
        self.fairness.look(scarce.map(|class| (class, let_in[class])));
    }

    fn take(&self, rooms: &Rooms) {
        for class in 0..CLASSES {
            self.room[class].store(rooms.room[class], Relaxed);
            self.may_wait[class].store(rooms.waiting[class], Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of this door's may be under way at each of so many clones, as learned so far; as many as at first at most, so that more than this
    /// node's clones have something to do.
    pub fn for_each(&self, clones: usize) -> u32 {
        let clones = u32::try_from(clones.max(1)).unwrap_or(u32::MAX);
        let size = self.size.load(Relaxed).saturating_sub(self.elsewhere.load(Relaxed));
        (size / clones).clamp(1, ADMISSION.first)
    }

    /// What one takes without a queue, as far as known.
    pub fn base(&self) -> Span {
        self.lock().limit().base()
    }

    #[cfg(test)]
    pub fn learned(&self, size: u32) {
        self.size.store(size, Relaxed);
    }

    /// Nothing has come to it yet.
    pub fn is_unused(&self) -> bool {
        self.shown.started.load(Relaxed) + self.shown.refused.load(Relaxed) == 0
    }

    pub fn heat(&self) -> Heat {
        let admission = self.lock();
        Heat {
            is_overloaded: admission.is_overloaded(),
            limit: admission.limit().size().into(),
            waiting: self.waiting.load(Relaxed).into(),
            refused: self.shown.refused.load(Relaxed),
        }
    }

    /// What to show of the time since it was shown last.
    pub fn show(&self) -> Shown {
        let (wait_p50_us, wait_p99_us, waits) = self.shown.wait.take();
        let (service_p50_us, service_p99_us, services) = self.shown.service.take();
        let admission = self.lock();
        Shown {
            waiting: self.waiting.load(Relaxed).into(),
            under_way: self.under_way.load(Relaxed).into(),
            limit: admission.limit().size().into(),
            is_overloaded: admission.is_overloaded(),
            started: self.shown.started.load(Relaxed),
            refused: self.shown.refused.load(Relaxed),
            overloads: admission.overloads(),
            wait_p50_us,
            wait_p99_us,
            service_p50_us,
            service_p99_us,
            waits,
            services,
        }
    }
}

fn bounds(clones: usize) -> Bounds {
    let clones = u32::try_from(clones.max(1)).unwrap_or(u32::MAX).min(1000);
    Bounds { first: ADMISSION.first * clones, min: ADMISSION.min * clones, max: ADMISSION.max * clones, ..ADMISSION }
}

impl Permit {
    /// When it was let in.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The same, if that was just now: who waited was let in by another one, and heard of it later.
    pub fn now(&self) -> Option<Instant> {
        self.is_prompt.then_some(self.began)
    }

    /// Its answer has begun, or it came to nothing.
    pub fn ended(self, end: End) {
        self.ended_at(end, Instant::now());
    }

    /// The same, of a moment that is known.
    pub fn ended_at(self, end: End, at: Instant) {
        let turnstile = &self.of;
        match end {
            End::Done => {
                let took = at.saturating_duration_since(self.began).as_micros() as u64;
                turnstile.seen.took[bucket_of(took)].fetch_add(1, Relaxed);
                turnstile.shown.service.note(took);
            }
            End::Overload => drop(turnstile.seen.overloads.fetch_add(1, Relaxed)),
            End::Gone => (),
        }
        turnstile.look_if_due(at);
    }

    /// Others may have its room. What it took still counts when it ends.
    pub fn let_go(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.of.left();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
#[path = "turnstile_tests.rs"]
mod tests;
