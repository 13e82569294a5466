//! Pops that wait for an item. First come, first served among the clients of a node: only the first that waits for a key
//! takes from it. Nothing is taken for a client that is known to be gone, and what was taken when it went is put back.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Priority;
use futures_util::StreamExt;
use futures_util::future::{FutureExt, LocalBoxFuture, pending, select_all};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::questions::{Known, Questions, ask};
use super::*;
use crate::resp::limits::{
    BLOCKED_KEYS_BYTES_MAX, BLOCKED_KEYS_MAX, BLOCKED_MAX, FAN_OUT_MAX, LOOK_AGAIN, PUT_BACK_TRIES_MAX,
};
use crate::resp::ops::Space;

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "BLPOP",
            -3,
            Keys::AllButLast,
            Does::Write,
            "key [key ...] timeout",
            "LPOP of the first list that has an item; waits for one, timeout seconds at most, 0 for ever",
            |call| pop(call, LEFT),
        ),
        PROMISE,
    ),
    noted(
        spec("BRPOP", -3, Keys::AllButLast, Does::Write, "key [key ...] timeout", "the same with RPOP", |call| {
            pop(call, RIGHT)
        }),
        PROMISE,
    ),
    noted(
        spec(
            "BLMPOP",
            -5,
            Keys::Counted(2),
            Does::Write,
            "timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]",
            "LMPOP that waits for an item",
            |call| match list::Many::read(call.command, 2) {
                Ok(list::Many { keys, end: "left", count }) => pop_many(call, keys, PopMany { count, ..LEFT }),
                Ok(list::Many { keys, count, .. }) => pop_many(call, keys, PopMany { count, ..RIGHT }),
                Err(error) => Act::Now(error),
            },
        ),
        PROMISE,
    ),
    noted(
        spec(
            "BLMOVE",
            6,
            Keys::Two,
            Does::Write,
            "key to LEFT | RIGHT LEFT | RIGHT timeout",
            "LMOVE that waits for an item: nothing is ever lost",
            |call| match (list::end(call.command.arg(3)), list::end(call.command.arg(4))) {
                (Some(from), Some(to)) => move_item(call, from, to, 5),
                _ => syntax_error(),
            },
        ),
        "both keys must be in one shard; order as for BLPOP",
    ),
    noted(
        spec("BRPOPLPUSH", 4, Keys::Two, Does::Write, "key to timeout", "BLMOVE key to RIGHT LEFT", |call| {
            move_item(call, "right", "left", 3)
        }),
        "both keys must be in one shard; order as for BLPOP",
    ),
    noted(
        spec(
            "BZPOPMIN",
            -3,
            Keys::AllButLast,
            Does::Write,
            "key [key ...] timeout",
            "ZPOPMIN of the first sorted set that has a member; waits for one, timeout seconds at most, 0 for ever",
            |call| pop_scored(call, "min"),
        ),
        SCORED_PROMISE,
    ),
    noted(
        spec("BZPOPMAX", -3, Keys::AllButLast, Does::Write, "key [key ...] timeout", "the same with ZPOPMAX", |call| {
            pop_scored(call, "max")
        }),
        SCORED_PROMISE,
    ),
    noted(
        spec(
            "BZMPOP",
            -5,
            Keys::Counted(2),
            Does::Write,
            "timeout numkeys key [key ...] MIN | MAX [COUNT count]",
            "ZMPOP that waits for a member",
            |call| match sorted::Many::read(call.command, 2) {
                Ok(sorted::Many { keys, end, count }) => {
                    let how = PopScored { end, count, takes: Takes::Scored { shown: sorted::many_of } };
                    pop_many_scored(call, keys, 1, how, sorted::popped)
                }
                Err(error) => Act::Now(error),
            },
        ),
        SCORED_PROMISE,
    ),
];

const SCORED_PROMISE: &str = "as BLPOP; a member that is put back keeps the score that it has got meanwhile";

const PROMISE: &str = "clients of one node are served in their order, between nodes whoever is first; an item that was \
                       taken for a client that has gone is put back, but lost if its node dies then: BLMOVE loses nothing";

/// A namespace and a key of it; of who waits for a stream's entries the group.
type Name = (Arc<str>, Bytes, Option<Bytes>);

/// Who waits for each key, in order, on this node.
#[derive(Default)]
pub struct Blocked {
    queues: RefCell<BTreeMap<Name, VecDeque<Rc<Turn>>>>,
    count: std::cell::Cell<usize>,
    questions: Questions,
}

/// Told to who becomes the first that waits for a key.
#[derive(Default)]
struct Turn(Notify);

/// A place in the queues of some keys, until it is dropped.
pub struct Place {
    blocked: Rc<Blocked>,
    namespace: Arc<str>,
    keys: Vec<Bytes>,
    queue: Queue,
    turn: Rc<Turn>,
}

/// With whom somebody waits for a key.
pub enum Queue {
    /// With all who take items from it.
    OfKey,
    /// With those of this group of a stream.
    OfGroup(Bytes),
    /// With nobody: what comes is for everyone.
    None,
}

impl Blocked {
    /// Clients that wait.
    pub fn count(&self) -> usize {
        self.count.get()
    }
}

impl Place {
    pub fn take(blocked: &Rc<Blocked>, namespace: &Arc<str>, keys: &[Bytes], queue: Queue) -> Option<Place> {
        if blocked.count.get() >= BLOCKED_MAX {
            return None;
        }
        blocked.count.set(blocked.count.get() + 1);
        let (namespace, turn) = (Arc::clone(namespace), Rc::new(Turn::default()));
        let place = Place { blocked: Rc::clone(blocked), namespace, keys: keys.to_vec(), queue, turn };
        for name in keys.iter().filter_map(|key| place.name(key)) {
            let mut queues = blocked.queues.borrow_mut();
            let queue = queues.entry(name).or_default();
            if !queue.back().is_some_and(|last| Rc::ptr_eq(last, &place.turn)) {
                queue.push_back(Rc::clone(&place.turn));
            }
        }
        Some(place)
    }

    /// Of the queue for this key, if there is one.
    fn name(&self, key: &Bytes) -> Option<Name> {
        let group = match &self.queue {
            Queue::OfKey => None,
            Queue::OfGroup(group) => Some(group.clone()),
            Queue::None => return None,
        };
        Some((Arc::clone(&self.namespace), key.clone(), group))
    }

    fn is_first(&self, key: &Bytes) -> bool {
        let Some(name) = self.name(key) else { return true };
        let queues = self.blocked.queues.borrow();
        let first = queues.get(&name).and_then(VecDeque::front);
        first.is_some_and(|first| Rc::ptr_eq(first, &self.turn))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.blocked.queues.borrow_mut();
        for name in self.keys.iter().filter_map(|key| self.name(key)) {
            if let Some(queue) = queues.get_mut(&name) {
                let was_first = queue.front().is_some_and(|first| Rc::ptr_eq(first, &self.turn));
                queue.retain(|turn| !Rc::ptr_eq(turn, &self.turn));
                match queue.front() {
                    Some(first) if was_first => first.0.notify_one(),
                    Some(_) => (),
                    None => drop(queues.remove(&name)),
                }
            }
        }
        self.blocked.count.set(self.blocked.count.get() - 1);
    }
}

/// What one that waits does when there is something.
struct Waiter {
    watch: Watch,
    /// Makes the step that takes an item from this key.
    take: Box<dyn Fn(&Bytes) -> Step>,
    takes: Takes,
}

/// One that waits for changes of keys.
pub struct Watch {
    pub space: Space,
    place: Place,
    /// Of each key.
    seen: Vec<Seen>,
}

/// What it takes, and how that goes back if its client has gone.
#[derive(Clone, Copy)]
enum Takes {
    /// Nothing: it is moved.
    Moved,
    /// Items of a list, which this function puts back.
    Items(&'static str),
    /// Members with scores, and how they are shown.
    Scored { shown: fn(Reply, Vec<Got>) -> Reply },
    /// Jobs of a queue, with their tickets.
    Jobs,
}

impl Takes {
    fn shown(self, key: &Bytes, got: Got) -> Reply {
        let name = Reply::Bulk(key.clone());
        match (self, got) {
            (Takes::Items(_), got) => Reply::List(vec![name, plain_one(got)]),
            (Takes::Scored { shown }, Got::List(items)) => shown(name, items),
            (Takes::Moved | Takes::Scored { .. } | Takes::Jobs, got) => plain_one(got),
        }
    }

    fn back(self, key: Bytes, got: Got) -> Option<Step> {
        let bytes = |got| if let Got::Bytes(item) = got { Some(item) } else { None };
        match (self, got) {
            (Takes::Moved, _) => None,
            (Takes::Jobs, got) => {
                let Got::List(jobs) = got else { return None };
                let ticket =
                    |job| if let Got::List(parts) = job { parts.into_iter().next().and_then(bytes) } else { None };
                Some(Step::new(key, "queue.back", jobs.into_iter().filter_map(ticket).collect()))
            }
            // The last that was taken goes back first.
            (Takes::Items(function), Got::List(items)) => {
                Some(Step::new(key, function, items.into_iter().rev().filter_map(bytes).collect()))
            }
            (Takes::Items(function), item) => Some(Step::new(key, function, vec![bytes(item)?])),
            (Takes::Scored { .. }, got) => {
                let Got::List(items) = got else { return None };
                let mut args = vec![word("absent"), word("any")];
                let mut items = items.into_iter().filter_map(bytes);
                while let Some((member, score)) = items.next().zip(items.next()) {
                    args.extend([score, member]);
                }
                Some(Step::new(key, "sorted.add", args))
            }
        }
    }
}

struct Seen {
    /// All changes up to this version are known. None: it has yet to ask where they are.
    upto: Option<u64>,
    /// There may be something: it was not looked at since there was.
    is_news: bool,
}

/// From which end so many items are taken, and how they are put back.
struct PopMany {
    end: &'static str,
    function: &'static str,
    back: &'static str,
    count: u64,
}

const LEFT: PopMany = PopMany { end: "left", function: "list.pop-left", back: "list.push-left", count: 1 };
const RIGHT: PopMany = PopMany { end: "right", function: "list.pop-right", back: "list.push-right", count: 1 };

fn pop(call: &mut Call<'_>, how: PopMany) -> Act {
    let keys: Vec<Bytes> = (1..call.command.len() - 1).map(|i| call.command.key(i)).collect();
    let timeout = call.command.len() - 1;
    if call.client.multi.is_some() {
        // Nobody waits inside of MULTI.
        let options = vec![word(how.end), word("1")];
        return time(call, timeout).map_or_else(Act::Now, |_| {
            on_keys(call, "list.pop-first", keys, options, |got| match only(got) {
                Got::List(mut parts) => match (parts.pop(), parts.pop()) {
                    (Some(Got::List(mut items)), Some(key)) => {
                        Reply::List(vec![plain_one(key), items.pop().map_or(Reply::Nil, plain_one)])
                    }
                    _ => Reply::NilList,
                },
                Got::Nil => Reply::NilList,
                other => plain_one(other),
            })
        });
    }
    begin(call, keys, timeout, Takes::Items(how.back), move |key| Step::new(key.clone(), how.function, Vec::new()))
}

/// From which end so many members are taken, and how they are shown.
struct PopScored {
    end: &'static str,
    count: u64,
    takes: Takes,
}

fn pop_scored(call: &mut Call<'_>, end: &'static str) -> Act {
    let timeout = call.command.len() - 1;
    let keys = (1..timeout).map(|i| call.command.key(i)).collect();
    let how = PopScored { end, count: 1, takes: Takes::Scored { shown: sorted::one_of } };
    pop_many_scored(call, keys, timeout, how, sorted::popped_one)
}

fn pop_many_scored(call: &mut Call<'_>, keys: Vec<Bytes>, timeout: usize, how: PopScored, then: Then) -> Act {
    let args = vec![word(how.end), word(how.count.to_string())];
    if call.client.multi.is_some() {
        return time(call, timeout).map_or_else(Act::Now, |_| on_keys(call, "sorted.pop-first", keys, args, then));
    }
    begin(call, keys, timeout, how.takes, move |key| Step::new(key.clone(), "sorted.pop", args.clone()))
}

fn pop_many(call: &mut Call<'_>, keys: Vec<Bytes>, how: PopMany) -> Act {
    let count = word(how.count.to_string());
    if call.client.multi.is_some() {
        let options = vec![word(how.end), count];
        return time(call, 1)
            .map_or_else(Act::Now, |_| on_keys(call, "list.pop-first", keys, options, list::or_no_list));
    }
    begin(call, keys, 1, Takes::Items(how.back), move |key| Step::new(key.clone(), how.function, vec![count.clone()]))
}

fn move_item(call: &mut Call<'_>, from: &'static str, to: &'static str, timeout: usize) -> Act {
    let args = vec![call.command.key(2), word(from), word(to)];
    let keys = vec![call.command.key(1)];
    if call.client.multi.is_some() {
        return time(call, timeout).map_or_else(Act::Now, |_| one_with(call, "list.move", args, plain));
    }
    begin(call, keys, timeout, Takes::Moved, move |key| Step::new(key.clone(), "list.move", args.clone()))
}

/// Until when a client waits; none: for ever.
fn time(call: &Call<'_>, timeout: usize) -> Result<Option<Instant>, Reply> {
    let seconds = std::str::from_utf8(call.command.arg(timeout)).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(seconds) = seconds.filter(|seconds| !seconds.is_nan()) else {
        return Err(Reply::error("ERR timeout is not a float or is out of range"));
    };
    if seconds < 0.0 {
        return Err(Reply::error("ERR timeout is negative"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let until = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds < SECONDS_MAX);
    let until = until.and_then(|wait| Instant::now().checked_add(wait));
    until.map(Some).ok_or_else(|| Reply::error("ERR timeout is out of range"))
}

/// More is a mistake: what is counted in milliseconds has no room for it.
const SECONDS_MAX: f64 = (i64::MAX / 1_000) as f64;

/// `queue.take` that waits for a job, so many milliseconds at most.
pub fn take_jobs(call: &Call<'_>, key: Bytes, args: Vec<Bytes>, wait_ms: u64) -> Act {
    let Some(deadline) = Instant::now().checked_add(Duration::from_millis(wait_ms)) else {
        return Act::Now(Reply::error("ERR timeout is out of range"));
    };
    let take = move |key: &Bytes| Step::new(key.clone(), "queue.take", args.clone());
    begin_until(call, vec![key], Some(deadline), Takes::Jobs, take)
}

fn begin(
    call: &Call<'_>,
    keys: Vec<Bytes>,
    timeout: usize,
    takes: Takes,
    take: impl Fn(&Bytes) -> Step + 'static,
) -> Act {
    match time(call, timeout) {
        Ok(deadline) => begin_until(call, keys, deadline, takes, take),
        Err(error) => Act::Now(error),
    }
}

/// Why nobody waits for all of these at once.
pub(super) fn too_many(keys: &[Bytes]) -> Option<Reply> {
    if keys.len() > BLOCKED_KEYS_MAX {
        return Some(Reply::Error(format!("ERR waits for at most {BLOCKED_KEYS_MAX} keys at once")));
    }
    let bytes: usize = keys.iter().map(Bytes::len).sum();
    let is_long = bytes > BLOCKED_KEYS_BYTES_MAX && keys.len() > 1;
    is_long.then(|| Reply::Error(format!("ERR waits for keys of {BLOCKED_KEYS_BYTES_MAX} bytes at most at once")))
}

fn begin_until(
    call: &Call<'_>,
    keys: Vec<Bytes>,
    deadline: Option<Instant>,
    takes: Takes,
    take: impl Fn(&Bytes) -> Step + 'static,
) -> Act {
    if let Some(why) = too_many(&keys) {
        return Act::Now(why);
    }
    let space = call.space();
    let Some(place) = Place::take(&call.node.blocked, &space.name, &keys, Queue::OfKey) else {
        return Act::Now(Reply::Error(format!(
            "BUSY {BLOCKED_MAX} clients of this node wait already, retry in 1000 ms"
        )));
    };
    let waiter = Waiter { watch: Watch::new(space, place), take: Box::new(take), takes };
    Act::Block(Box::new(move |client| waiter.run(deadline, client)))
}

impl Waiter {
    fn run(mut self, deadline: Option<Instant>, mut client: oneshot::Sender<Given>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            self.watch.begin();
            let mut is_first = true;
            let reply = loop {
                if client.is_closed() {
                    return;
                }
                if let Some((key, got)) = self.try_each(std::mem::take(&mut is_first)).await {
                    return self.give(client, key, got).await;
                }
                let over = async {
                    match deadline {
                        Some(deadline) => sleep_until(deadline).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = self.watch.changed() => if let Err(error) = changed { break error },
                    () = over => break Reply::NilList,
                    () = client.closed() => return,
                }
            };
            // A client that has gone needs no answer.
            let _ = client.send(Given::new(reply).0);
        })
    }

    /// Takes an item, or gives the error; the key it was.
    async fn try_each(&mut self, is_first: bool) -> Option<(Bytes, Result<Got, Reply>)> {
        let Watch { space, place, seen } = &mut self.watch;
        for (key, seen) in place.keys.iter().zip(seen) {
            // Each look is a write.
            if !seen.is_news || !place.is_first(key) {
                continue;
            }
            seen.is_news = false;
            let op = Op::of(Arc::clone(&space.name), vec![(self.take)(key)]);
            match space.ask_linear(op).await {
                Outcome::Done(Ran::Done(got)) => match only(got) {
                    Got::Nil => (),
                    // Who waits waits for a value of its kind.
                    Got::Wrong(Wrong::Type) if !is_first && !matches!(self.takes, Takes::Moved) => (),
                    got @ (Got::Bytes(_) | Got::List(_)) => return Some((key.clone(), Ok(got))),
                    other => return Some((key.clone(), Err(plain_one(other)))),
                },
                other => return Some((key.clone(), Err(reply(other, plain)))),
            }
        }
        None
    }

    /// Gives the client its item, and puts it back if the client goes before it has taken it.
    async fn give(self, client: oneshot::Sender<Given>, key: Bytes, got: Result<Got, Reply>) {
        let Waiter { watch: Watch { space, place, .. }, takes, .. } = self;
        let (reply, back) = match got {
            Ok(got) => (takes.shown(&key, got.clone()), takes.back(key, got)),
            Err(error) => (error, None),
        };
        let (given, is_taken) = Given::new(reply);
        if client.send(given).is_ok() {
            // Earlier commands of it may take their time: who is next does not wait for them.
            drop(place);
        }
        if is_taken.await.is_err()
            && let Some(step) = back
            && let Err(why) = put_back(space, step).await
        {
            tracing::error!(%why, "resp: an item that was taken for a client that had gone may not be back in its place");
        }
    }
}

impl Watch {
    pub fn new(space: Space, place: Place) -> Self {
        Self { space, place, seen: Vec::new() }
    }

    /// Before the first look: what changes from there on is asked for already, where others wait too.
    pub fn begin(&mut self) {
        let seen = |key| Seen { upto: self.questions().known(&self.space, key), is_news: true };
        self.seen = self.place.keys.iter().map(seen).collect();
    }

    /// May there be something where it is its turn? It will be looked at now.
    pub fn take_news(&mut self) -> bool {
        let mut any = false;
        for (key, seen) in self.place.keys.iter().zip(&mut self.seen) {
            if self.place.is_first(key) {
                any |= std::mem::take(&mut seen.is_news);
            }
        }
        any
    }

    fn questions(&self) -> &Questions {
        &self.place.blocked.questions
    }

    /// Ends when there may be something to take. At first it only learns from where on it has to look.
    pub async fn changed(&mut self) -> Result<(), Reply> {
        let keys = &self.place.keys;
        let unseen: Vec<usize> = (0..keys.len()).filter(|at| self.seen[*at].upto.is_none()).collect();
        if !unseen.is_empty() {
            let asked = unseen.iter().map(|at| ask(self.space.clone(), keys[*at].clone(), None));
            let known: Vec<_> = futures_util::stream::iter(asked).buffered(FAN_OUT_MAX).collect().await;
            for (at, known) in unseen.into_iter().zip(known) {
                self.seen[at] = Seen { upto: Some(known?.upto), is_news: true };
            }
            return Ok(());
        }
        while !keys.iter().zip(&self.seen).any(|(key, seen)| seen.is_news && self.place.is_first(key)) {
            let (mut asked, mut unasked) = (Vec::new(), Vec::new());
            for at in (0..keys.len()).filter(|at| self.place.is_first(&keys[*at])) {
                match self.questions().changed(&self.space, &keys[at], self.seen[at].upto.unwrap_or_default()) {
                    Some(changed) => asked.push(changed.map(move |known| (at, known)).boxed_local()),
                    None => unasked.push(at),
                }
            }
            let changed = async { if asked.is_empty() { pending().await } else { select_all(asked).await } };
            let look = async { if unasked.is_empty() { pending().await } else { sleep(LOOK_AGAIN).await } };
            tokio::select! {
                (first, _, others) = changed => {
                    // Those that were asked at the same time end so, too.
                    let ended = others.into_iter().filter_map(FutureExt::now_or_never);
                    for (at, known) in std::iter::once(first).chain(ended) {
                        let Known { upto, is_news } = known?;
                        self.seen[at] = Seen { upto: Some(upto), is_news };
                    }
                }
                () = look => unasked.into_iter().for_each(|at| self.seen[at].is_news = true),
                () = self.place.turn.0.notified() => (),
            }
        }
        Ok(())
    }
}

/// The client went while its item was on the way. An error: why it may not be back.
async fn put_back(space: Space, step: Step) -> Result<(), String> {
    // Its client does not ask for it any more, we do.
    let space = Space { priority: Priority::HIGHEST, ..space };
    let mut why = String::new();
    for _ in 0..PUT_BACK_TRIES_MAX {
        let op = Op::of(Arc::clone(&space.name), vec![step.clone()]);
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => match only(got) {
                // The key has another type by now, say: asking again would not help.
                Got::Wrong(wrong) => return Err(wrong.why().to_owned()),
                _ => return Ok(()),
            },
            Outcome::Done(Ran::Unmet) => return Err("it was answered with what is no answer to it".to_owned()),
            Outcome::Refused(refused) => {
                why = refused.to_string();
                sleep(Duration::from_millis(200)).await;
            }
            // It may be there: twice would be worse.
            Outcome::Unknown(unknown) => return Err(unknown.to_string()),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use node::{Answer, Ask, View};

    use super::*;
    use crate::resp::Backend;
    use crate::resp::gate::Gate;

    /// Answers with these, one after the other.
    struct Says(RefCell<VecDeque<Outcome<Ran>>>);

    impl Backend for Says {
        fn ask(&self, _: Ask, _: base::Span, answer: oneshot::Sender<Answer>) {
            let next = self.0.borrow_mut().pop_front().expect("it is not asked so often");
            answer.send(Answer::Linear(next)).expect("it is waited for");
        }

        fn view(&self) -> Arc<View> {
            Arc::default()
        }
    }

    fn check(says: &[Outcome<Ran>], expect: Result<(), &str>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let node = Rc::new(Says(RefCell::new(says.iter().cloned().collect())));
        let gate = Rc::new(Gate::new(node.clone(), false));
        let space = Space { name: "bank".into(), gate, priority: Priority::NORMAL };
        let step = Step::new("q".into(), "list.push-left", vec!["item".into()]);
        let done = runtime.block_on(put_back(space, step));
        assert_eq!(done, expect.map_err(str::to_owned), "{says:?}");
        assert!(node.0.borrow().is_empty(), "{says:?}");
    }

    #[test]
    fn what_was_taken_goes_back_as_it_was() {
        let got = |items: &[&'static str]| Got::List(items.iter().map(|item| Got::Bytes(Bytes::from(*item))).collect());
        let check = |takes: Takes, got, function: &str, args: &[&str]| {
            let step = takes.back("k".into(), got).unwrap();
            assert_eq!((step.function, &step.key[..]), (function, &b"k"[..]));
            assert_eq!(step.args, args, "{function}");
        };
        check(Takes::Items("list.push-left"), got(&["a", "b"]), "list.push-left", &["b", "a"]);
        check(Takes::Items("list.push-right"), Got::Bytes("a".into()), "list.push-right", &["a"]);
        let scored = Takes::Scored { shown: sorted::many_of };
        check(scored, got(&["a", "1.5", "b", "inf"]), "sorted.add", &["absent", "any", "1.5", "a", "inf", "b"]);
        assert_eq!(Takes::Moved.back("k".into(), Got::Bytes("a".into())), None);
    }

    #[test]
    fn what_is_put_back_is_only_said_to_be_there_if_it_is() {
        let done = |got| Outcome::Done(Ran::Done(vec![got]));
        let busy = || Outcome::Refused(base::Refused::busy("no leader", base::Span::millis(20)));
        check(&[done(Got::Int(1))], Ok(()));
        check(&[busy(), done(Got::Int(1))], Ok(()));
        check(&vec![busy(); PUT_BACK_TRIES_MAX], Err("no leader"));
        for wrong in [Wrong::Type, Wrong::TooLarge] {
            check(&[done(Got::Wrong(wrong))], Err(wrong.why()));
        }
        check(&[Outcome::Unknown(base::Unknown { why: "no answer".into() })], Err("no answer (it may have happened)"));
    }
}
