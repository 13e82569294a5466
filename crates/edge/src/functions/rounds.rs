//! Rounds: read a value, have a clone compute the next one, write it if nobody else has written meanwhile.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use base::{Outcome, Priority, Refused, Rng, Span, Unknown};
use bytes::Bytes;
use flow::Backoff;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use node::{Answer as NodeAnswer, Ask};
use state::linear::once::Once;
use state::linear::{self, Condition, Op, Reply, Step, Wrong};
use tokio::time::{Instant, sleep, timeout_at};

use super::limits::*;
use super::queue::{Id, Waiting, claim, release, retain_wanted};
use super::wire::{self, Answer, Change};
use super::{Desk, End, Functions, Ran};
use crate::http::errand::{self, Own};
use crate::http::passed::{DEADLINE, PRIORITY};
use crate::http::refusal::Refusal;

/// Carries out all that waits for a key, until nobody does.
pub async fn run(functions: Arc<Functions>, id: Id) {
    // Also if something here panics: a queue without rounds would hold up its key for ever.
    let mut ends = Ends(Some((Arc::clone(&functions), id.clone())));
    let desk = functions.desk.get().expect("it was open when the call came in");
    let rounds = functions.rounds_of(&id.service);
    let mut round = Round { functions: &functions, desk, id: &id, beaten: 0, hold: None };
    let (mut batch, mut pause) = (Vec::new(), Pause::new(&id));
    loop {
        let place = rounds.acquire().await.expect("it is never closed");
        if !functions.queues().fill(&id, &mut batch) {
            // Whoever comes now begins anew.
            ends.0 = None;
            return;
        }
        let next = round.carry(&mut batch).await;
        round.release().await;
        drop(place);
        match next {
            Next::Over => pause.0.reset(),
            Next::Again => pause.wait().await,
        }
    }
}

/// None once they have ended well.
struct Ends(Option<(Arc<Functions>, Id)>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some((functions, id)) = &self.0 {
            functions.queues().abandon(id);
        }
    }
}

/// After somebody else was faster.
struct Pause(Backoff, Rng);

impl Pause {
    fn new(id: &Id) -> Self {
        Self(Backoff::new(PAUSE_FIRST, PAUSE_MAX), Rng::new(chance(id)))
    }

    async fn wait(&mut self) {
        sleep(self.0.next(&mut self.1).into()).await;
    }
}

fn chance(id: &Id) -> u64 {
    RandomState::new().hash_one(id)
}

#[derive(PartialEq, Eq)]
enum Next {
    /// All of the batch have been told their end.
    Over,
    /// Somebody else has written the value.
    Again,
}

/// Why a clone has computed nothing.
enum NoAnswer {
    /// Whatever it was asked.
    Busy(Refused),
    /// Perhaps because of one of the calls; what that one is to be told.
    OfOne(String, Option<Span>),
}

/// A value as it was read.
struct Seen {
    value: Option<Bytes>,
    /// 0: there is none.
    version: u64,
}

struct Round<'a> {
    functions: &'a Functions,
    desk: &'a Desk,
    id: &'a Id,
    /// So often in a row somebody else has written the value.
    beaten: u32,
    /// Other writers wait for us; what we call that.
    hold: Option<Bytes>,
}

impl Round<'_> {
    async fn carry(&mut self, batch: &mut Vec<Waiting>) -> Next {
        loop {
            retain_wanted(batch);
            let Some(until) = batch.iter().map(|call| call.deadline).max() else { return Next::Over };
            let onces: Vec<Once> = batch.iter().filter_map(|call| call.once).collect();
            let (seen, found) = match self.read(&onces, priority(batch), until).await {
                Ok(read) => read,
                Err(end) => return tell_all(batch, &end),
            };
            if found.iter().any(|found| *found != Reply::Nil) {
                self.tell_found(batch, found);
                continue;
            }
            let most = BATCH_WORK_MAX / seen.value.as_ref().map_or(1, |value| value.len().max(1));
            if batch.len() > most {
                self.functions.queues().put_back(self.id, batch.split_off(most));
            }
            let Answer { change, replies } = match self.ask(&seen, batch, until).await {
                Ok(answer) => answer,
                Err(NoAnswer::Busy(refused)) => return tell_all(batch, &Outcome::Refused(refused)),
                Err(NoAnswer::OfOne(why, retry_after)) => return self.each_alone(batch, why, retry_after).await,
            };
            if !changes(&change, &seen) {
                return self.tell_each(batch, replies);
            }
            if until < Instant::now() + WRITE_TIME_MIN {
                return tell_all(batch, &Outcome::Refused(Refused::busy("no time was left to write it", RETRY_AFTER)));
            }
            if !claim(batch) {
                // What was computed has the effect of one that was given up. There is one less each time.
                continue;
            }
            return match self.write(change, seen.version, batch, &replies, until).await {
                Written::Done => {
                    self.beaten = 0;
                    self.tell_each(batch, replies)
                }
                Written::Unmet => {
                    self.beaten += 1;
                    self.functions.calls.conflicted();
                    release(batch);
                    Next::Again
                }
                Written::Not(end) => tell_all(batch, &end),
            };
        }
    }

    /// A batch that came to nothing: one call after the other, so that the others do not share the fate of the one whose fault it
    /// is. If it is a single one, that one hears of it.
    async fn each_alone(&mut self, batch: &mut Vec<Waiting>, why: String, retry_after: Option<Span>) -> Next {
        if let [_] = &batch[..] {
            let end = match retry_after {
                Some(after) => Outcome::Refused(Refused::busy(self.says(&batch[0], &why), after)),
                None => Outcome::Done(Ran::Failed(self.says(&batch[0], &why))),
            };
            return tell_all(batch, &end);
        }
        let mut pause = Pause::new(self.id);
        for one in std::mem::take(batch) {
            let mut one = vec![one];
            while Box::pin(self.carry(&mut one)).await == Next::Again {
                pause.wait().await;
            }
        }
        Next::Over
    }

    /// Those of a batch that were done when they were asked before are told what came of them.
    fn tell_found(&self, batch: &mut Vec<Waiting>, found: Vec<Reply>) {
        let mut found = found.into_iter();
        for call in std::mem::take(batch) {
            let end = match call.once.and_then(|_| found.next()) {
                None | Some(Reply::Nil) => {
                    batch.push(call);
                    continue;
                }
                Some(Reply::Bytes(kept)) => match wire::kept(&kept) {
                    Ok(result) => Outcome::Done(Ran::Done(result)),
                    Err(why) => Outcome::Done(Ran::Failed(self.says(&call, &why))),
                },
                Some(Reply::Wrong(wrong)) => Outcome::Refused(wrong.refused()),
                Some(_) => {
                    let why = "its id is so old that what came of it is forgotten";
                    Outcome::Unknown(Unknown { why: why.into() })
                }
            };
            let _ = call.tell.send(end);
        }
    }

    /// The value, and what is known of calls with these ids.
    async fn read(&mut self, onces: &[Once], priority: Priority, until: Instant) -> Result<(Seen, Vec<Reply>), End> {
        let busy = |why: String| Outcome::Refused(Refused::busy(why, RETRY_AFTER));
        let step = |function, args| Step::new(self.id.key.clone(), function, args);
        let looks = onces.iter().map(|once| step("once.look", once.args().into()));
        if self.beaten >= BEATEN_MAX && self.may_hold() {
            self.hold.get_or_insert_with(|| Bytes::copy_from_slice(&chance(self.id).to_be_bytes()));
        }
        let look = match &self.hold {
            Some(token) => step("hold", vec![token.clone()]),
            None => step("look", Vec::new()),
        };
        let steps = looks.chain([look]).collect();
        let op = Op { priority, ..Op::of(Arc::clone(&self.id.namespace), steps) };
        let mut replies = match self.desk.backend.ask(Ask::Linear(op), left(until)).await {
            Ok(NodeAnswer::Linear(Outcome::Done(linear::Ran::Done(replies)))) => replies,
            Ok(NodeAnswer::Linear(Outcome::Refused(refused))) => return Err(Outcome::Refused(refused)),
            // It was only read.
            Ok(NodeAnswer::Linear(Outcome::Unknown(unknown))) => return Err(busy(unknown.why)),
            Ok(_) => return Err(busy(ODD.into())),
            Err(_) => return Err(busy("the node is about to stop".into())),
        };
        let seen = match replies.pop() {
            Some(Reply::Nil) => return Ok((Seen { value: None, version: 0 }, replies)),
            Some(Reply::List(seen)) => seen,
            _ => return Err(busy(ODD.into())),
        };
        match &seen[..] {
            [Reply::Bytes(value), Reply::Int(version), ..] if value.len() <= VALUE_BYTES_MAX => {
                Ok((Seen { value: Some(value.clone()), version: *version as u64 }, replies))
            }
            [Reply::Bytes(_), ..] => {
                let most = VALUE_BYTES_MAX >> 20;
                Err(Outcome::Refused(Refused::wrong(format!(
                    "functions of services take values of {most} MiB at most"
                ))))
            }
            [Reply::Wrong(Wrong::Type), ..] => Err(Outcome::Done(Ran::Type)),
            _ => Err(busy(ODD.into())),
        }
    }

    /// Is what holds a key known to all nodes by now?
    fn may_hold(&self) -> bool {
        let level = self.desk.backend.watch().borrow().root.level;
        linear::functions::find("hold").is_some_and(|hold| hold.level <= level)
    }

    async fn ask(&self, seen: &Seen, batch: &[Waiting], until: Instant) -> Result<Answer, NoAnswer> {
        let service = &self.id.service;
        let busy = |why: &str| NoAnswer::Busy(Refused::busy(format!("service {service:?}: {why}"), RETRY_AFTER));
        let body = wire::question(self.id, seen.value.as_ref(), batch);
        let own = |token: Option<String>| Own {
            service,
            path: wire::PATH,
            headers: self.headers(token, batch, until),
            body: body.clone(),
            patience: PATIENCE,
            answer_bytes_max: ANSWER_BYTES_MAX,
            claim: None,
        };
        self.functions.calls.round();
        let asking = async {
            let mut tokens = self.tokens().into_iter();
            loop {
                let asked = errand::ask(&self.desk.pool, own(tokens.next().flatten())).await;
                if tokens.len() == 0 || !matches!(asked, Ok((StatusCode::UNAUTHORIZED, _))) {
                    return asked;
                }
            }
        };
        let asked = timeout_at(until, asking).await;
        let (status, body) = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(refusal)) => {
                return Err(match refusal {
                    Refusal::Off(_) => busy("it is out of use for maintenance"),
                    Refusal::CloneEnded => {
                        NoAnswer::OfOne("its clone ended before it answered".into(), Some(RETRY_AFTER))
                    }
                    Refusal::CloneSilent(_) => {
                        NoAnswer::OfOne("its clones did not answer in time".into(), Some(RETRY_AFTER))
                    }
                    Refusal::BadAnswer => {
                        NoAnswer::OfOne("its clone's answer is not sound HTTP, or is over 8 MiB".into(), None)
                    }
                    // No clone serves, or none is known here yet.
                    _ => busy("no clone of it answers now"),
                });
            }
            Err(_) => return Err(NoAnswer::OfOne("its clones did not answer in time".into(), Some(RETRY_AFTER))),
        };
        match status {
            StatusCode::OK => wire::answer(&body, batch.len())
                .map_err(|why| NoAnswer::OfOne(format!("what its clone answered is of no use: {why}"), None)),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Err(busy("its clone has too much to do"))
            }
            StatusCode::NOT_FOUND => {
                Err(NoAnswer::OfOne(format!("its clone knows no functions (404 at {})", wire::PATH), None))
            }
            other => {
                let said = wire::cut(String::from_utf8_lossy(&body).trim().to_owned());
                Err(NoAnswer::OfOne(format!("its clone answered HTTP {}: {said}", other.as_u16()), None))
            }
        }
    }

    /// By which its clones know that a node asks. While a renewed one makes its way, some of them know the one before, and the next try
    /// may come to another clone.
    fn tokens(&self) -> Vec<Option<String>> {
        let view = Arc::clone(&self.desk.backend.watch().borrow());
        let is = view.service_tokens.get(&*self.id.service).cloned();
        match view.formers.services.get(&*self.id.service).cloned() {
            None => vec![is],
            was => vec![is.clone(), was.clone(), is, was],
        }
    }

    fn headers(&self, token: Option<String>, batch: &[Waiting], until: Instant) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (PRIORITY, HeaderValue::from(u16::from(class(batch)))),
            (DEADLINE, HeaderValue::from(left(until).as_millis().max(1))),
        ]);
        if let Some(bearer) = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok()) {
            headers.insert(header::AUTHORIZATION, bearer);
        }
        headers
    }

    /// Lets other writers go on, if they still wait for us. Should that not be heard, the hold ends by itself.
    async fn release(&mut self) {
        let Some(token) = self.hold.take() else { return };
        let step = Step::new(self.id.key.clone(), "release", vec![token]);
        // Others wait for it, whoever they are.
        let op = Op { priority: Priority::HIGHEST, ..Op::of(Arc::clone(&self.id.namespace), vec![step]) };
        let _ = self.desk.backend.ask(Ask::Linear(op), RELEASE_TIME).await;
    }

    async fn write(
        &mut self,
        change: Change,
        version: u64,
        batch: &[Waiting],
        replies: &[Result<serde_json::Value, String>],
        until: Instant,
    ) -> Written {
        let (namespace, key) = (Arc::clone(&self.id.namespace), self.id.key.clone());
        let word = Bytes::from_static;
        let step = |function, args| Step::new(key.clone(), function, args);
        let change = match change {
            Change::Set(value) => step("put", vec![value, word(b"always"), word(b"keep")]),
            Change::Remove => step("remove", Vec::new()),
            Change::None => return Written::Done,
        };
        let keep = |(call, reply): (&Waiting, &Result<serde_json::Value, String>)| {
            let [id, of] = call.once?.args();
            Some(step("once.keep", vec![id, of, wire::keep(reply)]))
        };
        let release = self.hold.take().map(|token| step("release", vec![token]));
        let kept = batch.iter().zip(replies).filter_map(keep);
        let steps = [change].into_iter().chain(kept).chain(release).collect();
        let op = Op::of(namespace, steps);
        let op = Op { conditions: vec![Condition { key, version }], priority: priority(batch), ..op };
        match self.desk.backend.ask(Ask::Linear(op), left(until)).await {
            Ok(NodeAnswer::Linear(Outcome::Done(linear::Ran::Unmet))) => Written::Unmet,
            Ok(NodeAnswer::Linear(Outcome::Done(linear::Ran::Done(replies)))) => match replies.first() {
                Some(Reply::Wrong(wrong)) => Written::Not(Outcome::Refused(wrong.refused())),
                _ => Written::Done,
            },
            Ok(NodeAnswer::Linear(Outcome::Refused(refused))) => Written::Not(Outcome::Refused(refused)),
            Ok(NodeAnswer::Linear(Outcome::Unknown(unknown))) => Written::Not(Outcome::Unknown(unknown)),
            Ok(other) => unreachable!("a write was answered by {other:?}"),
            Err(_) => Written::Not(Outcome::Unknown(Unknown { why: "the node stopped before it answered".into() })),
        }
    }

    fn tell_each(&self, batch: &mut Vec<Waiting>, replies: Vec<Result<serde_json::Value, String>>) -> Next {
        for (call, reply) in batch.drain(..).zip(replies) {
            let ran = match reply {
                Ok(result) => Ran::Done(result),
                Err(why) => Ran::Failed(self.says(&call, &why)),
            };
            // Who has gone does not hear it.
            let _ = call.tell.send(Outcome::Done(ran));
        }
        Next::Over
    }

    fn says(&self, call: &Waiting, why: &str) -> String {
        format!("function {:?} of service {:?}: {why}", call.function, self.id.service)
    }
}

/// What became of a write.
enum Written {
    Done,
    Unmet,
    Not(End),
}

/// All of a batch matter as much as the one that matters most.
fn class(batch: &[Waiting]) -> u8 {
    batch.iter().map(|call| call.class).max().unwrap_or_default()
}

fn priority(batch: &[Waiting]) -> Priority {
    Priority::of_ten(class(batch))
}

fn changes(change: &Change, seen: &Seen) -> bool {
    match change {
        Change::None => false,
        Change::Remove => seen.value.is_some(),
        Change::Set(value) => seen.value.as_ref() != Some(value),
    }
}

fn tell_all(batch: &mut Vec<Waiting>, end: &End) -> Next {
    for call in batch.drain(..) {
        let _ = call.tell.send(end.clone());
    }
    Next::Over
}

fn left(until: Instant) -> Span {
    Span::from(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
}

/// Of the group's leader, which may be another node.
const ODD: &str = "a read was answered with what is no answer to it";
