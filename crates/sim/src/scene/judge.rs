//! What became of each operation: what promises say of it, its line in the history, and when its client goes on.

use base::{Outcome, Span, Time, Unknown};
use node::Answer;
use state::linear::{self, Ran};
use state::session::Reply;

use super::{ANEW, ANEW_AFTER, Asked, Flight, LINEAR, Linearly, MODES, OBJECT, OPERATOR, SOFT, SQL, Scene, TRIES_MAX};
use crate::history::Line;
use crate::linear_load;
use crate::load::{self, Drawn};
use crate::object_load;
use crate::promises::linear::{Linear, ONCE};
use crate::promises::session::{Ended, Found};
use crate::promises::{Broken, SERVED_WITHIN, declared};
use crate::sql_load;

const SERVED: &str = "any one node may be killed: no operation through a live node fails";

/// What came of a write is known for so long at least, by its id: 5 minutes by the group's clock, which may jump by minutes.
const ID_KNOWN: Span = Span::secs(60);

impl Scene {
    /// The node that was asked died first.
    pub(super) fn died(&mut self, flight: Flight) -> Result<(), Broken> {
        let now = self.world.now();
        self.ended(&flight, "died");
        match &flight.what {
            Asked::Session(drawn) => {
                if let Some((id, _)) = drawn.write {
                    self.sessions.end(&drawn.key, id, now, Ended::Unknown)?;
                }
            }
            Asked::Linear(_) => self.judge_linear(flight, Outcome::Unknown(Unknown { why: "its node died".into() }))?,
            Asked::Soft(act) => self.soft.broken_off(act, now),
            Asked::Object(act) => self.object_load.has_heard((flight.client - OBJECT) as usize, act, None),
            // It may have happened: it goes on until somebody has seen it.
            Asked::Sql(_) => (),
            Asked::Look(node, nth) => self.looked(*node, *nth, None)?,
            Asked::Hold(..) => (),
            // It may have happened.
            Asked::Modes(_) | Asked::Anew(_) | Asked::Switch | Asked::Leave | Asked::Former(_) | Asked::Comes(..) => (),
            Asked::Apply(mark) => self.declared.applied(now, *mark, declared::Ended::Unknown)?,
        }
        Ok(())
    }

    pub(super) fn judge(&mut self, flight: Flight, answer: Answer) -> Result<(), Broken> {
        let now = self.world.now();
        match (&flight.what, answer) {
            (Asked::Session(drawn), Answer::Session(outcome)) => {
                self.ended(&flight, &text(&outcome, shown));
                self.must_be_done(&flight, &outcome, || format!("{} {} {:?}", drawn.name, drawn.key, drawn.write))?;
                self.judge_session(&flight, drawn, outcome)
            }
            (Asked::Linear(asked), Answer::Linear(outcome)) => {
                self.ended(&flight, &text(&outcome, shown_linear));
                self.must_be_done(&flight, &outcome, || format!("{:?}", asked.act))?;
                self.judge_linear(flight, outcome)
            }
            (Asked::Modes(act), Answer::Session(outcome)) => {
                self.ended(&flight, &text(&outcome, shown));
                self.must_be_done(&flight, &outcome, || format!("{act:?}"))?;
                self.modes_load.heard((flight.client - MODES) as usize, act, &outcome);
                self.modes.end(act, flight.start, now, &outcome, self.sessions.void_before())
            }
            (Asked::Soft(act), Answer::Soft(outcome)) => {
                self.ended(&flight, &text(&outcome, |reply| format!("{reply:?}")));
                self.must_be_done(&flight, &outcome, || format!("{act:?}"))?;
                self.judge_soft(&flight, act, &outcome)
            }
            (Asked::Sql(act), Answer::Linear(outcome)) => {
                self.ended(&flight, &text(&outcome, sql_load::shown));
                self.must_be_done(&flight, &outcome, || format!("{act:?}"))?;
                if let Some(total) = self.sql.end(act, flight.start, now, outcome)? {
                    self.sql_load.has_read((flight.client - SQL) as usize, total);
                }
                Ok(())
            }
            (Asked::Object(act), Answer::Object(outcome)) => {
                self.ended(&flight, &text(&outcome, object_load::shown));
                self.must_be_done(&flight, &outcome, || format!("{act:?}"))?;
                self.object_load.has_heard((flight.client - OBJECT) as usize, act, Some(&outcome));
                self.judge_object(&flight, act, &outcome)
            }
            (Asked::Look(node, nth), Answer::Soft(outcome)) => {
                self.ended(&flight, &text(&outcome, |reply| format!("{reply:?}")));
                self.looked(*node, *nth, Some(outcome))
            }
            (Asked::Hold(node, since), Answer::Soft(outcome)) => {
                self.holds(*node, *since, &outcome);
                self.ended(&flight, &text(&outcome, |reply| format!("{reply:?}")));
                Ok(())
            }
            (Asked::Former(node), Answer::Done(outcome)) => {
                let (node, asked) = (*node, flight.node);
                self.ended(&flight, &text(&outcome, |()| String::new()));
                // It may have been nobody's before.
                if !matches!(outcome, Outcome::Unknown(_)) {
                    self.comes(node, asked);
                }
                Ok(())
            }
            (Asked::Comes(node, id), Answer::Admitted(outcome)) => {
                let (node, id) = (*node, *id);
                self.ended(&flight, &text(&outcome, |_| String::new()));
                if matches!(outcome, Outcome::Done(_)) {
                    self.admitted[node] = id;
                }
                Ok(())
            }
            (Asked::Leave, Answer::Done(outcome)) => {
                self.ended(&flight, &text(&outcome, |()| String::new()));
                Ok(())
            }
            (Asked::Switch, Answer::Applied(outcome)) => {
                self.ended(&flight, &text(&outcome, |applied| applied.version.to_string()));
                Ok(())
            }
            (Asked::Apply(mark), Answer::Applied(outcome)) => {
                self.ended(&flight, &text(&outcome, |applied| applied.version.to_string()));
                let ended = match outcome {
                    Outcome::Done(applied) => declared::Ended::Done { version: applied.version },
                    Outcome::Refused(_) => declared::Ended::Refused,
                    Outcome::Unknown(_) => declared::Ended::Unknown,
                };
                self.declared.applied(now, *mark, ended)
            }
            (Asked::Anew(node), Answer::Admitted(outcome)) => {
                let node = *node;
                self.ended(&flight, &text(&outcome, |_| String::new()));
                if let Outcome::Done(admitted) = outcome {
                    self.world.enter_anew(node, admitted.id);
                    self.admitted[node] = admitted.id;
                    self.world.start(node);
                }
                Ok(())
            }
            (_, answer) => {
                let what = format!("an answer of another kind: {answer:?}");
                Err(Broken { promise: "an answer is to its question", at: now, what })
            }
        }
    }

    /// While any one node may be killed, what is asked of a live one is done.
    fn must_be_done<T>(&self, flight: &Flight, outcome: &Outcome<T>, asked: impl Fn() -> String) -> Result<(), Broken> {
        // Before all nodes have shown that they agree on it.
        let is_too_new = matches!(&flight.what, Asked::Linear(asked) if asked.act.is_newer()) && !self.all_agree();
        let may_be_lost = matches!(&flight.what, Asked::Modes(act) if self.modes.may_be_lost(act));
        // Nothing of an old id is done any more, and nobody knows whether it was.
        let is_old = matches!(&flight.what, Asked::Linear(asked) if asked.tries > 1 && flight.start.since(asked.begun) > ID_KNOWN)
            && matches!(outcome, Outcome::Unknown(_));
        let excused = is_too_new || may_be_lost || is_old;
        if !flight.must || !self.must_serve() || matches!(outcome, Outcome::Done(_)) || excused {
            return Ok(());
        }
        let why = text(outcome, |_| String::new());
        let what = format!("{} through node {} since {:?}: {why}", asked(), flight.node, flight.start);
        Err(Broken { promise: SERVED, at: self.world.now(), what })
    }

    /// Judges it when its client knows what came of it, or asks no more.
    fn judge_linear(&mut self, flight: Flight, outcome: Outcome<Ran>) -> Result<(), Broken> {
        let Asked::Linear(asked) = flight.what else { unreachable!("it was one of class linear") };
        let (now, client) = (self.world.now(), (flight.client - LINEAR) as usize);
        let may_again = asked.once.is_some() && asked.tries < TRIES_MAX;
        let outcome = match (outcome, &asked.told) {
            (Outcome::Done(ran), Some(told)) if ran != *told => {
                let what = format!("{:?} was {told:?}, and is {ran:?} when it is asked again", asked.act);
                return Err(Broken { promise: ONCE, at: now, what });
            }
            (_, Some(_)) => return Ok(()),
            (Outcome::Unknown(_), None) if may_again => {
                self.again.insert(flight.client, Linearly { in_doubt: true, ..asked });
                return Ok(());
            }
            (Outcome::Refused(refused), None) if asked.in_doubt => {
                if may_again && refused.retry_after.is_some() {
                    self.again.insert(flight.client, asked);
                    return Ok(());
                }
                Outcome::Unknown(Unknown { why: refused.why })
            }
            (outcome, None) => outcome,
        };
        let (act, begun) = (asked.act.clone(), asked.begun);
        if let Outcome::Done(ran) = &outcome {
            match &act {
                linear_load::Act::Get { key } => {
                    if let Some(version) = Linear::version_of(ran) {
                        self.linear_load.has_read(client, key, version);
                    }
                }
                linear_load::Act::Watch { .. } => {
                    if let Some(upto) = Linear::upto(ran) {
                        self.linear_load.has_watched(client, upto);
                    }
                }
                linear_load::Act::Claim { lease, .. } => {
                    if let Ran::Done(replies) = ran
                        && let [linear::Reply::Int(token)] = replies[..]
                    {
                        self.linear_load.has_claimed(client, lease, token as u64);
                    }
                }
                _ => (),
            }
            if asked.once.is_some() && self.linear_load.doubts(client) {
                self.again.insert(flight.client, Linearly { told: Some(ran.clone()), ..asked });
            }
        }
        let calm_since = self.calm_for().map(|_| self.phase_since + SERVED_WITHIN);
        let promise = self.promise_of(&act);
        promise.calm_since(calm_since);
        promise.end(&act, begun, now, &outcome)
    }

    fn judge_session(&mut self, flight: &Flight, drawn: &Drawn, outcome: Outcome<Reply>) -> Result<(), Broken> {
        let now = self.world.now();
        let Some((id, _)) = drawn.write else {
            let found = match outcome {
                Outcome::Done(Reply::Value { value, version, .. }) => {
                    let (id, intact) = load::written(&value);
                    self.load.has_read(flight.client as usize, &drawn.key, version);
                    Found::Value { id, version, intact }
                }
                Outcome::Done(Reply::Absent) => Found::Absent,
                Outcome::Done(Reply::Lost) => Found::Lost,
                Outcome::Done(other) => return Err(of_another_kind(now, &other)),
                Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(()),
            };
            return self.sessions.read(&drawn.key, flight.start, now, found);
        };
        let ended = match outcome {
            Outcome::Done(Reply::Stored { version, .. }) => Ended::Acked { version: Some(version) },
            Outcome::Done(Reply::Removed(true) | Reply::Touched(true)) => Ended::Acked { version: None },
            Outcome::Done(Reply::Removed(false) | Reply::Touched(false)) => {
                // Nothing was there, so nothing was written: as a read that found nothing.
                self.sessions.end(&drawn.key, id, now, Ended::NotStored)?;
                return self.sessions.read(&drawn.key, flight.start, now, Found::Absent);
            }
            Outcome::Done(Reply::NotStored { .. }) => Ended::NotStored,
            Outcome::Done(other) => return Err(of_another_kind(now, &other)),
            Outcome::Refused(_) => Ended::Refused,
            Outcome::Unknown(_) => Ended::Unknown,
        };
        self.sessions.end(&drawn.key, id, now, ended)
    }

    /// Counts an operation, keeps its line, and lets its client go on.
    fn ended(&mut self, flight: &Flight, outcome: &str) {
        let now = self.world.now();
        self.world.trace.mix(outcome.as_bytes());
        let (op, key, arg) = match &flight.what {
            Asked::Session(drawn) => {
                (drawn.name, drawn.key.as_str(), drawn.write.map(|(id, what)| format!("{id} {what:?}")))
            }
            Asked::Linear(asked) => {
                (asked.act.name(), asked.act.key(), Some(format!("{:?} {:?}", asked.act, asked.once)))
            }
            Asked::Modes(act) => (act.name(), act.key(), Some(format!("{act:?}"))),
            Asked::Soft(act) => (act.name(), act.key(), Some(format!("{act:?}"))),
            Asked::Sql(act) => (act.name(), "", Some(format!("{act:?}"))),
            Asked::Object(act) => (act.name(), "", Some(format!("{act:?}"))),
            Asked::Look(..) => ("soft-look", "", None),
            Asked::Hold(..) => ("soft-hold", "", None),
            Asked::Apply(mark) => ("apply", "", Some(mark.to_string())),
            Asked::Anew(_) => ("enter-anew", "", None),
            Asked::Switch => ("switch", "", None),
            Asked::Leave => ("leave", "", None),
            Asked::Former(_) => ("remove", "", None),
            Asked::Comes(..) => ("admit", "", None),
        };
        let word = outcome.split(' ').next().unwrap_or_default();
        *self.ops.entry(format!("{op} {word}")).or_default() += 1;
        let (process, start, node) = (flight.client, flight.start.0, flight.node);
        let arg = arg.unwrap_or_default();
        self.history.keep(&Line { process, op, key, arg: &arg, outcome, start, end: now.0, node });
        match flight.what {
            Asked::Session(_) => {
                let pause = self.load.pause(flight.client as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            Asked::Linear(_) => {
                let pause = self.linear_load.pause((flight.client - LINEAR) as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            Asked::Modes(_) => {
                let pause = self.modes_load.pause((flight.client - MODES) as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            Asked::Soft(_) => {
                let pause = self.soft_load.pause((flight.client - SOFT) as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            Asked::Sql(_) => {
                let pause = self.sql_load.pause((flight.client - SQL) as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            Asked::Object(_) => {
                let pause = self.object_load.pause((flight.client - OBJECT) as usize);
                self.world.alarm(self.pause(pause), flight.client);
            }
            // If it may enter, it is not distrusted any more by then.
            Asked::Anew(node) => self.world.alarm(ANEW_AFTER, ANEW + node as u64),
            // Looked after with each tick.
            Asked::Look(..) | Asked::Hold(..) | Asked::Former(_) | Asked::Comes(..) => (),
            Asked::Apply(_) | Asked::Switch | Asked::Leave => {
                let pause = self.load.operator_pause().times(self.round.operator);
                self.world.alarm(pause, OPERATOR);
            }
        }
    }
}

/// `ok`, `refused` or `unknown`, and what.
fn text<T>(outcome: &Outcome<T>, done: impl Fn(&T) -> String) -> String {
    match outcome {
        Outcome::Done(reply) => format!("ok {}", done(reply)),
        Outcome::Refused(refused) => format!("refused {refused}"),
        Outcome::Unknown(unknown) => format!("unknown {unknown}"),
    }
}

fn of_another_kind(at: Time, reply: &Reply) -> Broken {
    Broken { promise: "an answer is to its question", at, what: format!("{reply:?}") }
}

/// What came of it; of a large value only its begin.
fn shown_linear(ran: &Ran) -> String {
    let is_large = |reply: &linear::Reply| reply.bytes() > SHOWN_BYTES_MAX;
    match ran {
        Ran::Done(replies) if replies.iter().any(is_large) => {
            format!("version {} of a large value", Linear::newest_in(ran))
        }
        ran => format!("{ran:?}"),
    }
}

const SHOWN_BYTES_MAX: usize = 64 << 10;

/// A reply in a few words: values by their write.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Value { value, version, .. } => format!("v{} {version}", load::written(value).0),
        Reply::Stored { version, .. } => format!("stored {version}"),
        Reply::NotStored { .. } => "not stored".into(),
        Reply::Absent => "absent".into(),
        Reply::Lost => "lost".into(),
        Reply::Removed(was) => format!("removed {was}"),
        Reply::OtherKind(kind) => format!("a {kind:?}"),
        Reply::Touched(was) => format!("touched {was}"),
        Reply::BadCookie(error) => format!("{} cookie", error.name()),
        Reply::Count(n) => format!("count {n}"),
        Reply::Page { cursor, keys } => format!("page {cursor} {}", keys.len()),
    }
}
