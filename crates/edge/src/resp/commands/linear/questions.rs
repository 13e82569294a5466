//! What this node asks leaders for those who wait for a key: one question for each key, however many wait and come again.
//! A question cannot be taken back, so one that nobody waits for any more stays for who comes next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::Priority;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::time::{Instant, sleep};

use super::*;
use crate::resp::limits::{LOOK_AGAIN, QUESTION_KEPT, QUESTIONS_MAX};
use crate::resp::ops::{self, Space};

/// What is known of a key then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// All its changes up to this version.
    pub upto: u64,
    /// There may have been some.
    pub is_news: bool,
}

type Answer = Result<Known, Reply>;

#[derive(Default)]
pub struct Questions {
    asked: RefCell<BTreeMap<(Arc<str>, Bytes), Question>>,
    /// When there was no room last, nor any question that could go.
    full: Cell<Option<Instant>>,
}

/// What changes after this version?
struct Question {
    after: u64,
    begun: Instant,
    answer: Shared<LocalBoxFuture<'static, Answer>>,
}

impl Question {
    fn answered(&self) -> Option<Answer> {
        self.answer.clone().now_or_never()
    }

    /// Nobody waits for it here, and it should be over at its leader.
    fn is_stale(&self) -> bool {
        self.answered().is_some() || (self.answer.strong_count() == Some(1) && self.begun.elapsed() > QUESTION_KEPT)
    }
}

impl Questions {
    /// All changes of the key up to this version are known, and it is asked for the next one.
    pub fn known(&self, space: &Space, key: &Bytes) -> Option<u64> {
        let name = (Arc::clone(&space.name), key.clone());
        let asked = self.asked.borrow();
        asked.get(&name).filter(|question| question.answered().is_none()).map(|question| question.after)
    }

    /// Ends when the key has changed after the version `seen`, or nobody knows whether it has, or it has not for long. None: too
    /// many keys are asked for.
    pub fn changed(&self, space: &Space, key: &Bytes, seen: u64) -> Option<LocalBoxFuture<'static, Answer>> {
        let name = (Arc::clone(&space.name), key.clone());
        let mut asked = self.asked.borrow_mut();
        let ready = |upto| Some(std::future::ready(Ok(Known { upto, is_news: true })).boxed_local());
        if let Some(question) = asked.get(&name) {
            match question.answered() {
                // Whoever asked it had seen more.
                None if question.after > seen => return ready(question.after),
                None => return Some(question.answer.clone().boxed_local()),
                Some(Ok(known)) if known.upto > seen && (known.is_news || question.after > seen) => {
                    return ready(known.upto);
                }
                Some(_) => (),
            }
        }
        if asked.len() >= QUESTIONS_MAX && !asked.contains_key(&name) {
            if self.full.get().is_some_and(|full| full.elapsed() < LOOK_AGAIN) {
                return None;
            }
            asked.retain(|_, question| !question.is_stale());
            if asked.len() >= QUESTIONS_MAX {
                self.full.set(Some(Instant::now()));
                return None;
            }
        }
        let answer = ask(space.clone(), key.clone(), Some(seen)).boxed_local().shared();
        asked.insert(name, Question { after: seen, begun: Instant::now(), answer: answer.clone() });
        Some(answer.boxed_local())
    }
}

/// Waits for changes after that version; none: says which one it is now.
pub async fn ask(space: Space, key: Bytes, after: Option<u64>) -> Answer {
    // Whoever joins may matter more than who asked.
    let space = Space { priority: Priority::HIGHEST, ..space };
    let args = match after {
        Some(after) => vec![word(after.to_string()), word("wait")],
        None => vec![word("-"), word("now")],
    };
    loop {
        let op = Op::one(Arc::clone(&space.name), key.clone(), "changes", args.clone());
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => match only(got) {
                Got::List(parts) => match parts[..] {
                    [Got::Int(upto), ref changes, ..] => {
                        let is_news = !matches!(changes, Got::List(changes) if changes.is_empty());
                        return Ok(Known { upto: upto as u64, is_news });
                    }
                    _ => return Err(ops::odd_answer()),
                },
                other => return Err(plain_one(other)),
            },
            // No leader at the moment: nothing is lost by waiting on.
            Outcome::Refused(refused) if refused.retry_after.is_some() => sleep(Duration::from_millis(100)).await,
            other => return Err(reply(other, plain)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use node::{Ask, View};
    use tokio::sync::oneshot;

    use super::*;
    use crate::resp::Backend;
    use crate::resp::gate::Gate;

    /// Keeps what it is asked.
    #[derive(Default)]
    struct Kept(RefCell<Vec<(Ask, oneshot::Sender<node::Answer>)>>);

    impl Backend for Kept {
        fn ask(&self, ask: Ask, _: base::Span, answer: oneshot::Sender<node::Answer>) {
            self.0.borrow_mut().push((ask, answer));
        }

        fn view(&self) -> Arc<View> {
            Arc::default()
        }
    }

    impl Kept {
        fn count(&self) -> usize {
            self.0.borrow().len()
        }

        fn answer(&self, outcome: Outcome<Ran>) {
            let (_, answer) = self.0.borrow_mut().remove(0);
            answer.send(node::Answer::Linear(outcome)).expect("the question is kept");
        }
    }

    /// A change up to this version.
    fn upto(version: i64) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(vec![Got::List(vec![Got::Int(version), Got::List(vec![Got::Nil])])]))
    }

    fn quiet(version: i64) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(vec![Got::List(vec![Got::Int(version), Got::List(Vec::new())])]))
    }

    fn news(upto: u64) -> Answer {
        Ok(Known { upto, is_news: true })
    }

    fn with(check: impl AsyncFnOnce(Rc<Kept>, Space, Questions)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let node = Rc::new(Kept::default());
        let gate = Rc::new(Gate::new(node.clone(), false));
        let space = Space { name: "bank".into(), gate, priority: Priority::NORMAL };
        // Time passes at once where nothing else happens.
        let limit = 10 * QUESTION_KEPT;
        let check = async { tokio::time::timeout(limit, check(node, space, Questions::default())).await };
        runtime.block_on(check).expect("nothing is waited for in vain");
    }

    #[test]
    fn who_waits_joins_a_question_and_nothing_in_between_is_missed() {
        with(async |node, space, questions| {
            let key = Bytes::from("q");
            assert_eq!(questions.known(&space, &key), None);
            let mut first = questions.changed(&space, &key, 5).unwrap();
            assert!((&mut first).now_or_never().is_none());
            assert_eq!(questions.known(&space, &key), Some(5));
            let joined = questions.changed(&space, &key, 6).unwrap();
            // What changed from 4 to 5 may be news to it.
            assert_eq!(questions.changed(&space, &key, 4).unwrap().await, news(5));
            assert_eq!(node.count(), 1);
            node.answer(upto(7));
            assert_eq!((first.await, joined.await), (news(7), news(7)));
            assert_eq!(questions.known(&space, &key), None, "it is answered");
            assert_eq!(questions.changed(&space, &key, 6).unwrap().await, news(7));
            let quietly = questions.changed(&space, &key, 7).unwrap();
            assert!(questions.known(&space, &key).is_some() && node.count() == 1, "a new one");
            node.answer(quiet(9));
            assert_eq!(quietly.await, Ok(Known { upto: 9, is_news: false }));
            // Who had seen 7 knows by that answer that nothing came; who had seen less does not.
            assert_eq!(questions.changed(&space, &key, 6).unwrap().await, news(9));
            assert!(questions.changed(&space, &key, 7).unwrap().now_or_never().is_none());
            assert_eq!(node.count(), 1, "a new one");
        });
    }

    #[test]
    fn an_error_is_for_those_who_waited_for_it() {
        with(async |node, space, questions| {
            let key = Bytes::from("q");
            let waits = questions.changed(&space, &key, 5).unwrap();
            assert!(questions.known(&space, &key).is_some());
            node.answer(Outcome::Refused(base::Refused::wrong("no such namespace")));
            assert!(waits.await.is_err());
            let mut waits = questions.changed(&space, &key, 5).unwrap();
            assert!((&mut waits).now_or_never().is_none());
            node.answer(upto(6));
            assert_eq!(waits.await, news(6));
        });
    }

    #[test]
    fn where_there_is_no_room_for_a_question_those_nobody_waits_for_go_when_they_are_over() {
        with(async |node, space, questions| {
            let key = |n: usize| Bytes::from(n.to_string());
            let mut waits = questions.changed(&space, &key(0), 5).unwrap();
            assert!((&mut waits).now_or_never().is_none());
            for n in 1..QUESTIONS_MAX {
                assert!(questions.changed(&space, &key(n), 5).unwrap().now_or_never().is_none());
            }
            assert!(questions.changed(&space, &key(QUESTIONS_MAX), 5).is_none());
            assert!(questions.changed(&space, &key(1), 5).is_some(), "it is there");
            tokio::time::advance(QUESTION_KEPT).await;
            assert!(questions.changed(&space, &key(QUESTIONS_MAX), 5).is_none());
            tokio::time::advance(LOOK_AGAIN).await;
            assert!(questions.changed(&space, &key(QUESTIONS_MAX), 5).is_some());
            assert_eq!(questions.asked.borrow().len(), 2, "and who waits keeps its own");
            assert_eq!(node.count(), QUESTIONS_MAX);
        });
    }
}
