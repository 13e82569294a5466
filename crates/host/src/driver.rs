//! Runs one machine on a thread of its own: events in, effects out, in real time. The thread has a single-threaded
//! runtime, so links, timers and front doors that live on it reach the machine by a direct call, without a lock. Effects
//! are carried out right after each event and never call back into the machine; what they cause comes as a later event.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::{AskId, Boot, Effect, Event, Frame, GroupId, Machine, NodeId, Note, NoteLevel, Now, Span, Time, Work};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::disk::{self, Disk, Opened, Safe};
use crate::limits::ASKS_WAITING_MAX;
use crate::net::{Desks, Net};
use crate::process::Procs;
use crate::tls::Tls;
use crate::uses::Uses;
use crate::vitals::Vitals;
use crate::{Error, Identity, JoinDesk, TunnelDesk};

/// What a host needs to run a machine.
pub struct HostConfig {
    /// The node's folder (`DataDir::path`): `log/` and `logs/` go there. The caller holds its lock.
    pub dir: PathBuf,
    /// Listens for peers, newcomers and tunnels; from [`crate::ports::listen`].
    pub peer: TcpListener,
    /// The address that children serve on, given to them as `HOST`.
    pub proc_host: IpAddr,
    pub identity: Identity,
    /// Of that identity; what it shows may change.
    pub tls: Tls,
    pub boot: Boot,
    /// What this node says of itself on each link; the host does not look into it.
    pub card: Bytes,
    /// Relative working folders of children are below this one.
    pub services_dir: PathBuf,
    /// Deployed folders are below this one, by digest ([`crate::CodeStore`]).
    pub code_dir: PathBuf,
    /// The program that understands `keep` and `reap` (see `process`); normally `/proc/self/exe`.
    pub keeper: PathBuf,
    /// Who does what the machine wants done beside it.
    pub work: Option<Arc<dyn WorkDesk>>,
    pub join: Option<Arc<dyn JoinDesk>>,
    pub tunnels: Option<Arc<dyn TunnelDesk>>,
    /// Runtime for joins and tunnels, so that they do not take time from the machine's thread.
    pub io: tokio::runtime::Handle,
}

/// Does work beside the machine, on threads of its own.
pub trait WorkDesk: Send + Sync {
    /// Begins it; what came of it is sent, or the sender is dropped if nothing can.
    fn work(&self, work: Work, done: oneshot::Sender<Work>);
    /// What people should hear of what it did in former lives of the node.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
    /// The node ends as it should.
    fn close(&self) {}
}

/// The node is gone: its thread has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the node has stopped")]
pub struct Gone;

/// Asks the machine from any thread.
pub struct Port<M: Machine> {
    asks: mpsc::Sender<PortAsk<M>>,
    view: watch::Receiver<Arc<M::View>>,
    clock: Clock,
}

type PortAsk<M> = (<M as Machine>::Ask, Span, oneshot::Sender<<M as Machine>::Answer>);

/// Asks the machine on its own thread: one call, no channel in between.
pub struct LocalPort<M: Machine> {
    core: Rc<Core<M>>,
}

/// A running machine. Dropping it ends its thread, links and children.
pub struct Running<M: Machine> {
    port: Port<M>,
    peer_addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a machine. `make` builds it on its thread; `front` runs there too, for doors that want the direct call;
/// `gauges` is read once a second and handed to the machine with its vitals.
///
/// Errors are what keeps a node from starting: its log, its identity. A panic on the machine's thread later on ends the
/// whole process: half a node is worse than none.
pub fn start<M>(
    config: HostConfig,
    make: impl FnOnce() -> M + Send + 'static,
    front: impl FnOnce(LocalPort<M>) -> LocalBoxFuture<'static, ()> + Send + 'static,
    gauges: impl Fn() -> BTreeMap<String, u64> + Send + 'static,
) -> Result<Running<M>, Error>
where
    M: Machine + 'static,
    M::Ask: Send + 'static,
    M::Answer: Send + 'static,
    M::View: Default + Send + Sync + 'static,
{
    let Opened { disk, kept: log, packs: there, safe: appended, mut remarks, rebooted } = Disk::open(&config.dir)?;
    remarks.extend(config.work.iter().flat_map(|work| work.remarks()));
    let dir = config.dir.clone();
    let prepared = Procs::prepare(&config)?;
    let peer_addr = config.peer.local_addr().map_err(Error::io("peer listener"))?;
    config.peer.set_nonblocking(true).map_err(Error::io("peer listener"))?;
    let (asks, asked) = mpsc::channel(ASKS_WAITING_MAX);
    let (view_tx, view) = watch::channel(Arc::new(M::View::default()));
    let (stop, stopped) = oneshot::channel();
    let clock = Clock::new();
    // Before it waits for news it lets others run who can: on a busy machine more has come by then, and one wake-up serves
    // it all (a quarter more operations a second, and a third less waiting at the 99th percentile; docs/performance.md).
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(rustix::thread::sched_yield)
        .build()
        .map_err(Error::io("cannot start the machine's runtime"))?;

    let body = move || {
        let _guard = AbortOnPanic;
        let local = LocalSet::new();
        let name = config.identity.name.clone();
        local.block_on(&runtime, async move {
            let core = Rc::new_cyclic(|weak: &Weak<Core<M>>| Core {
                machine: RefCell::new(make()),
                effects: RefCell::new(Vec::new()),
                asks: RefCell::new(Asks { slots: Vec::new(), free: Vec::new() }),
                view: view_tx,
                clock,
                armed: Cell::new(Time::NEVER),
                rearm: Notify::new(),
                net: Net::new(&config, peer_addr, weak.clone()),
                procs: Procs::new(&config, prepared, weak.clone()),
                disk,
                dir,
                work: config.work.clone(),
                me: weak.clone(),
            });
            let listener = tokio::net::TcpListener::from_std(config.peer).expect("a listening socket");
            let desks = Desks { join: config.join, tunnels: config.tunnels, io: config.io };
            core.procs.start();
            core.event(Event::Start { log, remarks, rebooted });
            core.event(Event::Packs { there });
            spawn(core.net.clone().listen(listener, desks));
            spawn(timers(core.clone()));
            spawn(appends(core.clone(), appended));
            spawn(vitals(core.clone(), gauges));
            spawn(questions(core.clone(), asked));
            spawn(front(LocalPort { core: core.clone() }));
            let _ = stopped.await;
            core.procs.kill_all();
            core.work.iter().for_each(|work| work.close());
        });
        tracing::debug!(node = name, "the machine's thread ends");
    };
    let thread =
        std::thread::Builder::new().name("coppice-core".into()).spawn(body).map_err(Error::io("machine's thread"))?;
    Ok(Running { port: Port { asks, view, clock }, peer_addr, stop: Some(stop), thread: Some(thread) })
}

impl<M: Machine> Running<M> {
    pub fn port(&self) -> Port<M> {
        self.port.clone()
    }

    /// Where peers reach this node.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }
}

impl<M: Machine> Drop for Running<M> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process already.
            let _ = thread.join();
        }
    }
}

impl<M: Machine> Clone for Port<M> {
    fn clone(&self) -> Self {
        Self { asks: self.asks.clone(), view: self.view.clone(), clock: self.clock }
    }
}

impl<M: Machine> Port<M> {
    /// Waits for the machine's answer, which comes within about `budget`.
    pub async fn ask(&self, ask: M::Ask, budget: Span) -> Result<M::Answer, Gone> {
        let (tx, rx) = oneshot::channel();
        self.asks.send((ask, budget, tx)).await.map_err(|_| Gone)?;
        rx.await.map_err(|_| Gone)
    }

    /// Now, on the machine's clock.
    pub fn now(&self) -> Time {
        self.clock.now().mono
    }

    /// What the machine last published; before that, the default.
    pub fn view(&self) -> Arc<M::View> {
        self.view.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<M::View>> {
        self.view.clone()
    }
}

impl<M: Machine> Clone for LocalPort<M> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<M: Machine + 'static> LocalPort<M> {
    /// Asks at once; the machine has seen the question when this returns. An error from the receiver means that the
    /// machine dropped the question.
    pub fn ask(&self, ask: M::Ask, budget: Span, answer: oneshot::Sender<M::Answer>) {
        self.core.ask(ask, budget, answer);
    }

    pub fn view(&self) -> Arc<M::View> {
        self.core.view.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<M::View>> {
        self.core.view.subscribe()
    }
}

/// What the parts of a host tell the machine.
pub(crate) trait Sink {
    fn happened(&self, event: Event<Infallible>);
    /// Frames of one peer, in the order they came. Leaves `frames` empty.
    fn frames(&self, from: NodeId, frames: &mut Vec<Frame>);
}

struct Core<M: Machine> {
    machine: RefCell<M>,
    /// Empty between events; kept for its memory.
    effects: RefCell<Vec<Effect<M::Answer, M::View>>>,
    asks: RefCell<Asks<M::Answer>>,
    view: watch::Sender<Arc<M::View>>,
    clock: Clock,
    /// When the timer task will wake by itself; the machine may want to be woken later than that, never earlier.
    armed: Cell<Time>,
    rearm: Notify,
    net: Rc<Net>,
    procs: Rc<Procs>,
    disk: Disk,
    dir: PathBuf,
    work: Option<Arc<dyn WorkDesk>>,
    me: Weak<Core<M>>,
}

impl<M: Machine + 'static> Core<M> {
    fn event(&self, event: Event<M::Ask>) {
        self.handle(self.clock.now(), event);
        self.arm();
    }

    fn handle(&self, now: Now, event: Event<M::Ask>) {
        let mut effects = self.effects.borrow_mut();
        self.machine.borrow_mut().handle(now, event, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
    }

    fn arm(&self) {
        let wanted = self.machine.borrow().wake_at().unwrap_or(Time::NEVER);
        if wanted < self.armed.get() {
            self.armed.set(wanted);
            self.rearm.notify_one();
        }
    }

    /// The time that was armed has come.
    fn due(&self) {
        self.armed.set(Time::NEVER);
        let due = self.machine.borrow().wake_at().is_some_and(|at| at <= self.clock.now().mono);
        if due { self.event(Event::Wake) } else { self.arm() }
    }

    fn ask(&self, ask: M::Ask, budget: Span, answer: oneshot::Sender<M::Answer>) {
        let id = self.asks.borrow_mut().insert(answer);
        self.event(Event::Ask { id, budget, ask });
    }

    fn carry_out(&self, effect: Effect<M::Answer, M::View>) {
        match effect {
            Effect::Dial { addr, peer } => self.net.dial(addr, peer),
            Effect::Hangup { peer } => self.net.hangup(peer),
            Effect::Send { to, frame } => self.net.send(to, frame),
            Effect::Answer { id, answer } => {
                if let Some(asker) = self.asks.borrow_mut().take(id) {
                    // Whoever asked may have gone.
                    let _ = asker.send(answer);
                }
            }
            Effect::Append { group, records, ticket, force } => self.disk.append(group, records, ticket, force),
            Effect::Save { group, parts, ticket } => self.disk.save(group, parts, ticket),
            Effect::Forget { group } => self.disk.forget(group),
            Effect::Pack { group, want } => self.disk.pack(group, want),
            Effect::Work { group, number, work } => self.begin_work(group, number, work),
            Effect::Recovered => self.disk.recovered(),
            Effect::Distrust { why } => disk::distrust(&self.dir, &why),
            Effect::Outdated { why } => outdated(&why),
            Effect::Spawn { proc, spec } => self.procs.spawn(proc, spec),
            Effect::Signal { proc, signal } => self.procs.signal(proc, signal),
            Effect::Probe { proc, probe } => self.procs.probe(proc, probe),
            Effect::Publish(view) => drop(self.view.send_replace(Arc::new(view))),
            Effect::Note(note) => log(&note),
        }
    }
}

impl<M: Machine + 'static> Core<M> {
    fn begin_work(&self, group: GroupId, number: u64, work: Work) {
        let (Some(desk), Some(core)) = (&self.work, self.me.upgrade()) else { return };
        let (done, waiting) = oneshot::channel();
        desk.work(work, done);
        spawn(async move {
            // Who did it may be gone: then whoever wanted it goes on without.
            if let Ok(work) = waiting.await {
                core.event(Event::Worked { group, number, work });
            }
        });
    }
}

impl<M: Machine + 'static> Sink for Core<M> {
    fn happened(&self, event: Event<Infallible>) {
        self.event(match event {
            Event::Start { log, remarks, rebooted } => Event::Start { log, remarks, rebooted },
            Event::Packs { there } => Event::Packs { there },
            Event::Pack { group, said } => Event::Pack { group, said },
            Event::Disk { trouble } => Event::Disk { trouble },
            Event::Wake => Event::Wake,
            Event::Linked { peer, boot, card } => Event::Linked { peer, boot, card },
            Event::Unlinked { peer, addr, why } => Event::Unlinked { peer, addr, why },
            Event::Frame { from, frame } => Event::Frame { from, frame },
            Event::Ask { ask, .. } => match ask {},
            Event::Appended { group, ticket } => Event::Appended { group, ticket },
            Event::Saved { group, ticket } => Event::Saved { group, ticket },
            Event::Worked { group, number, work } => Event::Worked { group, number, work },
            Event::Spawned { proc, pid, port } => Event::Spawned { proc, pid, port },
            Event::Output { proc, line } => Event::Output { proc, line },
            Event::Exited { proc, exit } => Event::Exited { proc, exit },
            Event::Probed { proc, result } => Event::Probed { proc, result },
            Event::Vitals { cpu_millis, resident_bytes, gauges, procs } => {
                Event::Vitals { cpu_millis, resident_bytes, gauges, procs }
            }
        });
    }

    fn frames(&self, from: NodeId, frames: &mut Vec<Frame>) {
        // One look at the clock for all frames of one read: they came together.
        let now = self.clock.now();
        for frame in frames.drain(..) {
            self.handle(now, Event::Frame { from, frame });
        }
        self.arm();
    }
}

/// Exit status of a program that knows less than the cluster has agreed on (EX_CONFIG of sysexits).
pub const EXIT_OUTDATED: i32 = 78;

/// Ends the process, and leaves the disk as it is.
fn outdated(why: &str) -> ! {
    tracing::error!("the node stops: {why}");
    eprintln!("coppice: {why}");
    std::process::exit(EXIT_OUTDATED)
}

fn log(note: &Note) {
    match note.level {
        NoteLevel::Info => tracing::info!("{}", note.text),
        NoteLevel::Warn => tracing::warn!("{}", note.text),
        NoteLevel::Error => tracing::error!("{}", note.text),
    }
}

/// Questions without an answer yet. An id is a slot and how often it was used, so that a late answer finds nobody.
struct Asks<A> {
    slots: Vec<(u32, Option<oneshot::Sender<A>>)>,
    free: Vec<u32>,
}

impl<A> Asks<A> {
    fn insert(&mut self, asker: oneshot::Sender<A>) -> AskId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("memory ends before four billion questions wait")
        });
        let (uses, place) = &mut self.slots[slot as usize];
        *uses = uses.wrapping_add(1);
        *place = Some(asker);
        AskId(u64::from(*uses) << 32 | u64::from(slot))
    }

    fn take(&mut self, id: AskId) -> Option<oneshot::Sender<A>> {
        let slot = id.0 as u32;
        let (uses, place) = self.slots.get_mut(slot as usize)?;
        if u64::from(*uses) != id.0 >> 32 {
            return None;
        }
        let asker = place.take()?;
        self.free.push(slot);
        Some(asker)
    }
}

async fn timers<M: Machine + 'static>(core: Rc<Core<M>>) {
    loop {
        let armed = core.armed.get();
        if armed == Time::NEVER {
            core.rearm.notified().await;
            continue;
        }
        match core.clock.wait(armed) {
            // This task is behind all those that have something to handle by now.
            Duration::ZERO => {
                core.due();
                tokio::task::yield_now().await;
            }
            left => tokio::select! {
                () = tokio::time::sleep(left) => core.due(),
                () = core.rearm.notified() => (),
            },
        }
    }
}

async fn appends<M: Machine + 'static>(core: Rc<Core<M>>, mut safe: mpsc::UnboundedReceiver<Safe>) {
    while let Some(safe) = safe.recv().await {
        core.event(match safe {
            Safe::Appended(group, ticket) => Event::Appended { group, ticket },
            Safe::Saved(group, ticket) => Event::Saved { group, ticket },
            Safe::Pack(group, said) => Event::Pack { group, said },
            Safe::Trouble(trouble) => Event::Disk { trouble },
        });
    }
}

async fn questions<M: Machine + 'static>(core: Rc<Core<M>>, mut asked: mpsc::Receiver<PortAsk<M>>) {
    while let Some((ask, budget, answer)) = asked.recv().await {
        core.ask(ask, budget, answer);
    }
}

async fn vitals<M: Machine + 'static>(core: Rc<Core<M>>, gauges: impl Fn() -> BTreeMap<String, u64>) {
    let mut vitals = Vitals::new();
    let uses = Uses::start(core.procs.clone());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // At once for the first time: a node that is asked as soon as it runs has figures to show.
    loop {
        tick.tick().await;
        let (cpu_millis, resident_bytes) = vitals.read();
        let mut gauges = gauges();
        core.net.gauges(&mut gauges);
        gauges.insert("machine.busy".into(), vitals.machine_busy());
        gauges.insert("disk.unforced_ms_max".into(), core.disk.unforced_ms_max());
        if let Some((free, size)) = core.disk.room() {
            gauges.insert("disk.free_bytes".into(), free);
            gauges.insert("disk.size_bytes".into(), size);
        }
        let procs = uses.latest();
        core.event(Event::Vitals { cpu_millis, resident_bytes, gauges, procs });
    }
}

/// Runs a task on the machine's thread, called from there. Its panic ends the process instead of vanishing in a
/// handle that nobody reads.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    tokio::task::spawn_local(async move {
        let _guard = AbortOnPanic;
        task.await;
    });
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("coppice: the node's core has panicked; the process ends, its peers take over");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_asker_once_and_no_later_user_of_the_slot() {
        let mut asks = Asks { slots: Vec::new(), free: Vec::new() };
        let (tx, mut rx) = oneshot::channel();
        let first = asks.insert(tx);
        asks.take(first).unwrap().send(7).unwrap();
        assert_eq!(rx.try_recv(), Ok(7));
        assert!(asks.take(first).is_none());
        let (tx, _rx) = oneshot::channel();
        let second = asks.insert(tx);
        assert_eq!(first.0 as u32, second.0 as u32, "the slot is used again");
        assert!(asks.take(first).is_none(), "a late answer reached a stranger");
        assert!(asks.take(second).is_some());
        assert!(asks.take(AskId(u64::MAX)).is_none());
    }
}
