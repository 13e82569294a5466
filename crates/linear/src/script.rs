//! Scripts of a group, run beside it. Its leader lends a draft of the space, with the transactions that have scripts in them;
//! whoever runs scripts (a front door's thread; nobody below the waterline does) gives back what each of them comes to: steps
//! of plain functions, and the replies. Those go into the log as one entry, and every replica does just these steps.
//!
//! The draft is the space as it will be when that entry is applied: all that is in the log has been, and nothing else is put there
//! meanwhile. So each step does in the log what it did in the draft, and needs no condition.

use base::{Outcome, Refused};
use bytes::Bytes;
use class::Bounds;

use super::functions::script::{is_script, says};
use super::functions::{self, Run, texts};
use super::limits::{
    ANSWER_BYTES_MAX, BATCH_BYTES_MAX, COMMAND_BYTES_MAX, SCRIPT_ANSWER_BYTES_MAX, SCRIPT_BYTES_MAX, SCRIPT_KEPT_MAX,
    SCRIPT_STEPS_MAX,
};
use super::moment;
use super::op::{Condition, Op, Ran, Reply, Step, Wrong};
use super::space::Space;
use super::split::hash_of;
use super::texts::Texts;
use super::wire;

/// Runs scripts.
pub trait Scripts {
    /// Runs the script that this step asks for. Err: it was ended by force, and its caller is told this; nothing happens of what it
    /// did, nor of the rest of its transaction.
    fn run(&mut self, namespace: &str, draft: &mut Draft, step: &Step) -> Result<Bytes, Bytes>;
    /// Is there time for one more? Others wait for what was lent.
    fn goes_on(&mut self) -> bool;
    /// Of the wall clock.
    fn wall_ms(&self) -> u64;
}

/// What a group lends.
pub struct Loan {
    pub namespace: String,
    pub draft: Draft,
    pub jobs: Vec<Job>,
}

/// A transaction with scripts among its steps.
pub struct Job {
    pub conditions: Vec<Condition>,
    pub steps: Vec<Step>,
}

/// What became of the first jobs of a loan, in their order: the steps that are to be done in place of each. The others were not
/// begun, or all that they did is forgotten.
#[derive(Debug, Default)]
pub struct Returned(pub Vec<Vec<Step>>);

/// A space that scripts may change.
#[derive(Default)]
pub struct Draft {
    space: Space,
    bounds: Bounds,
    /// Hashes of the keys that are here.
    from: u64,
    to: u64,
    /// The level that the cluster has agreed on.
    agreed: u32,
    /// What has changed the space since the transaction began, and about how many bytes that has.
    steps: Vec<Step>,
    bytes: usize,
    /// That became more than a transaction may have.
    is_over: bool,
}

impl Loan {
    /// Runs what it can.
    pub fn work(mut self, scripts: &mut dyn Scripts) -> Returned {
        let (mut done, mut bytes) = (Vec::new(), 0);
        for job in self.jobs {
            if !done.is_empty() && !scripts.goes_on() {
                break;
            }
            let conditions = wire::command_bytes(&job.conditions, &[]);
            let (steps, is_spoilt) = self.draft.transact(&self.namespace, job, scripts);
            bytes += conditions + wire::command_bytes(&[], &steps);
            if bytes > BATCH_BYTES_MAX && !done.is_empty() {
                // It goes with the next ones, or alone.
                break;
            }
            done.push(steps);
            if is_spoilt {
                break;
            }
        }
        Returned(done)
    }
}

impl Draft {
    pub fn new(space: Space, bounds: Bounds, (from, to): (u64, u64), agreed: u32) -> Self {
        let to = space.above().map_or(to, |above| to.min(above.saturating_sub(1)));
        Self { space, bounds, from, to, agreed, steps: Vec::new(), bytes: 0, is_over: false }
    }

    /// What a transaction comes to; and whether the draft has what is not to happen.
    fn transact(&mut self, namespace: &str, job: Job, scripts: &mut dyn Scripts) -> (Vec<Step>, bool) {
        (self.bytes, self.is_over) = (0, false);
        self.steps.clear();
        if self.space.read(&job.conditions, &[]) == Ran::Unmet {
            return (vec![says(Vec::new())], false);
        }
        let (mut replies, mut ended) = (Vec::with_capacity(job.steps.len()), None);
        for step in &job.steps {
            let reply = if is_script(step) {
                match scripts.run(namespace, self, step) {
                    Ok(said) => Reply::Bytes(said),
                    Err(told) => {
                        ended = Some(Reply::Bytes(told));
                        break;
                    }
                }
            } else {
                self.step(step.clone()).unwrap_or_else(Reply::Wrong)
            };
            replies.push(reply);
        }
        let bytes: usize = replies.iter().map(Reply::bytes).sum();
        let with_conditions = wire::command_bytes(&job.conditions, &[]) + bytes + self.bytes;
        let is_over = self.is_over || bytes > SCRIPT_ANSWER_BYTES_MAX || with_conditions > COMMAND_BYTES_MAX;
        if ended.is_none() && is_over {
            ended = Some(Reply::Wrong(Wrong::TooLarge));
        }
        let Some(told) = ended else {
            let mut steps = vec![says(replies)];
            steps.append(&mut self.steps);
            return (steps, false);
        };
        let undone = |step| if is_script(step) { told.clone() } else { Reply::Wrong(Wrong::Undone) };
        (vec![says(job.steps.iter().map(undone).collect())], !self.steps.is_empty())
    }

    /// Runs an operation of the script that is at work, as if it were asked by itself.
    pub fn run(&mut self, mut op: Op, wall_ms: u64) -> Outcome<Ran> {
        moment::resolve(&mut op.steps, wall_ms, self.agreed);
        if let Some(why) = functions::too_new(&op.steps, self.agreed) {
            return Outcome::Refused(Refused::wrong(why));
        }
        if let Some(why) = op.steps.iter().find_map(|step| self.is_elsewhere(step)) {
            return Outcome::Refused(Refused::wrong(why));
        }
        if self.space.read(&op.conditions, &[]) == Ran::Unmet {
            return Outcome::Done(Ran::Unmet);
        }
        let mut replies = Vec::with_capacity(op.steps.len());
        for step in op.steps {
            if let Some(why) = self.too_much() {
                return Outcome::Refused(Refused::wrong(why));
            }
            replies.push(self.step(step).unwrap_or_else(Reply::Wrong));
        }
        Outcome::Done(Ran::Done(replies))
    }

    /// What all nodes understand alike.
    pub fn agreed(&self) -> u32 {
        self.agreed
    }

    /// The texts that are kept here.
    pub fn texts(&self) -> &Texts {
        self.space.texts()
    }

    /// Has the text of a script kept, with what else the transaction changes.
    pub fn keep_script(&mut self, sha: &Bytes, text: &Bytes) {
        if self.agreed < texts::LEVEL || text.len() > SCRIPT_KEPT_MAX || !self.space.texts_mut().keep(sha, text) {
            return;
        }
        let step = Step::new(Bytes::new(), texts::KEEP, vec![sha.clone(), text.clone()]);
        self.bytes += wire::command_bytes(&[], std::slice::from_ref(&step));
        self.steps.push(step);
    }

    /// The script that is at work has done more than one may; this is what it is told.
    pub fn too_much(&self) -> Option<String> {
        self.is_over.then(|| {
            format!("a script changes at most {SCRIPT_STEPS_MAX} things, of {} MiB together", SCRIPT_BYTES_MAX >> 20)
        })
    }

    /// Why a step cannot be done here.
    fn is_elsewhere(&self, step: &Step) -> Option<String> {
        let is_all = (self.from, self.to) == (0, u64::MAX);
        let function = functions::find(step.function).filter(|_| !is_all)?;
        if function.whole || function.keyless {
            return Some(format!(
                "a script sees one shard, and {} is about all: declare the namespace with shards = 1",
                step.function
            ));
        }
        if matches!(step.function, "sort" | "sort.store")
            && step.args.iter().any(|arg| functions::sort::names_keys(arg))
        {
            return Some("a script sees one shard, and these patterns may name keys of others: declare the namespace with shards = 1".into());
        }
        let is_here = |key: &&Bytes| (self.from..=self.to).contains(&hash_of(key));
        let key = function.keys(step).find(|key| !is_here(key))?;
        Some(format!(
            "key '{}' is in another shard than the script's first key: give them the same {{tag}}, or declare the namespace with shards = 1",
            String::from_utf8_lossy(&key[..key.len().min(64)])
        ))
    }

    #[cfg(test)]
    pub fn changes(&self) -> Vec<Step> {
        self.steps.clone()
    }

    #[cfg(test)]
    pub fn entries(&self) -> Vec<(Bytes, super::value::Entry)> {
        self.space.map().from(b"").cloned().collect()
    }

    fn step(&mut self, step: Step) -> functions::Result {
        let revision = self.space.revision();
        if let Some(over) = self.space.over_of(std::slice::from_ref(&step), self.bounds) {
            return Err(over);
        }
        let reply = self.space.step(&step, self.bounds);
        let writes = functions::find(step.function).is_some_and(|function| matches!(function.run, Run::Write(_)));
        // Each change has a revision.
        if writes && self.space.revision() != revision {
            self.bytes += wire::command_bytes(&[], std::slice::from_ref(&step));
            self.steps.push(step);
            self.is_over |= self.bytes > SCRIPT_BYTES_MAX || self.steps.len() > SCRIPT_STEPS_MAX;
        }
        reply
    }
}

const _: () = assert!(SCRIPT_ANSWER_BYTES_MAX < ANSWER_BYTES_MAX, "what scripts say goes into one answer");

/// A shard of its own, for those who test what runs scripts.
#[derive(Default)]
pub struct Store(Space);

impl Store {
    /// As a leader lends it.
    pub fn draft(&self, bounds: Bounds, agreed: u32) -> Draft {
        Draft::new(self.0.draft(0), bounds, (0, u64::MAX), agreed)
    }

    /// Applies a step by itself.
    pub fn step(&mut self, step: &Step) -> Reply {
        self.0.step(step, Bounds::default()).unwrap_or_else(Reply::Wrong)
    }

    /// As replicas apply it. What the transaction says, one reply behind the other, as text.
    pub fn apply(&mut self, steps: Vec<Step>) -> String {
        let (replies, steps) = functions::script::said(&steps).expect("what is returned says something");
        for step in steps {
            let _ = self.0.step(step, Bounds::default());
        }
        let shown = |reply| match reply {
            Reply::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => format!("{other:?}"),
        };
        replies.into_iter().map(shown).collect()
    }
}
