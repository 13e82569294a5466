//! The threads that run scripts, and the door inside of them: a script's commands are those of every door, asked of the draft that
//! was lent.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use base::checksum::place_hash;
use base::{Outcome, Span, Work};
use bytes::Bytes;
use futures_util::FutureExt;
use node::{Answer, Ask, View};
use state::linear::Step;
use state::linear::script::{Draft, Loan, Returned, Scripts};
use tokio::sync::oneshot;

use super::harm::{Harm, Slot};
use super::library::About;
use super::limits::*;
use super::request::{Request, What};
use super::texts::{Texts, sha1hex};
use super::vm::{Ran, Vm, error_line};
use crate::resp::client::Client;
use crate::resp::commands::{self, Act, Call, Does, Spec};
use crate::resp::encode::Reply;
use crate::resp::gate::Gate;
use crate::resp::parse::Command;
use crate::resp::{Backend, Node, Room};
use crate::{Functions, Meter};

/// Takes what groups lend to threads that run scripts.
pub struct ScriptDesk {
    threads: Vec<SyncSender<(Loan, oneshot::Sender<Work>)>>,
    harm: Arc<Harm>,
    remarks: Vec<String>,
}

impl ScriptDesk {
    /// For the node of this folder.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn open(dir: &Path) -> std::io::Result<Self> {
        let (harm, remarks) = Harm::open(dir, crate::wall::wall_ms());
        let harm = Arc::new(harm);
        let thread = |n: usize| {
            let (sender, loans) = sync_channel(LOANS_MAX);
            let (name, harm) = (format!("coppice-lua-{n}"), Arc::clone(&harm));
            let work = move || run(&loans, Slot::new(harm, n));
            std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(work)?;
            Ok(sender)
        };
        let threads = (0..THREADS).map(thread).collect::<std::io::Result<_>>()?;
        Ok(Self { threads, harm, remarks })
    }

    /// Scripts that are withheld here.
    pub fn withheld(&self) -> u64 {
        self.harm.count()
    }
}

impl host::WorkDesk for ScriptDesk {
    fn work(&self, work: Work, done: oneshot::Sender<Work>) {
        let Ok(loan) = work.0.downcast::<Loan>() else { return };
        let at = place_hash(loan.namespace.as_bytes()) as usize % self.threads.len();
        // Without room the group goes on without: it hears nothing.
        let _ = self.threads[at].try_send((*loan, done));
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    fn close(&self) {
        self.harm.end();
    }
}

fn run(loans: &Receiver<(Loan, oneshot::Sender<Work>)>, slot: Slot) {
    let mut runner = Runner::with(slot);
    while let Ok((loan, done)) = loans.recv() {
        let returned = runner.work(loan);
        // The node may be about to end.
        let _ = done.send(Work(Box::new(returned)));
    }
}

/// Runs scripts of several namespaces on one thread.
#[derive(Default)]
pub struct Runner {
    texts: Texts,
    /// The one that was used last is last.
    states: VecDeque<(String, Vm)>,
    began: Option<Instant>,
    slot: Rc<Slot>,
    /// What the library that was called last is known by, and its digest.
    library: (u64, Bytes),
}

impl Runner {
    /// One that says in this place what it runs.
    pub fn with(slot: Slot) -> Self {
        Self { slot: Rc::new(slot), ..Self::default() }
    }

    /// Runs all of a loan.
    pub fn work(&mut self, loan: Loan) -> Returned {
        self.began = Some(Instant::now());
        let returned = loan.work(self);
        self.slot.rest();
        returned
    }

    fn state(&mut self, namespace: &str) -> Result<&mut Vm, Bytes> {
        let found = self.states.iter().position(|(name, _)| name == namespace);
        let state = match found.and_then(|at| self.states.remove(at)) {
            Some(state) => state,
            None => {
                if self.states.len() == STATES_MAX {
                    self.states.pop_front();
                }
                let vm = Vm::new(Door::new(namespace.into()), Rc::clone(&self.slot));
                (namespace.to_owned(), vm.map_err(|error| error_line(&format!("ERR no Lua state: {error}")))?)
            }
        };
        self.states.push_back(state);
        Ok(&mut self.states.back_mut().expect("it was just put there").1)
    }

    fn forget_state(&mut self, namespace: &str) {
        self.states.retain(|(name, _)| name != namespace);
    }

    /// The digest of what runs for it: of a function, that of its library.
    fn digest(&mut self, draft: &Draft, what: &What) -> Option<Bytes> {
        match what {
            What::Run { sha, .. } => Some(sha.clone()),
            What::Load { text } => Some(sha1hex(text)),
            What::Library { code } => Some(sha1hex(code)),
            What::Call { function } => {
                let kept = draft.texts().libraries().values().find(|kept| kept.functions.contains(function))?;
                let known_by = place_hash(&kept.text);
                if self.library.0 != known_by || self.library.1.is_empty() {
                    self.library = (known_by, sha1hex(&About::of(&kept.text)?.1));
                }
                Some(self.library.1.clone())
            }
            What::Exists | What::Flush | What::Withheld | What::Release => None,
        }
    }

    /// Runs it, and says meanwhile that it is at work.
    fn watched(&mut self, namespace: &str, draft: &mut Draft, request: &Request) -> Ran {
        let Some(sha) = self.digest(draft, &request.what) else { return self.script(namespace, draft, request) };
        if self.slot.harm().withholds(namespace, &sha) {
            return Ran::Said(error_line(&format!(
                "ERR Script withheld: this node ended {DEATHS_MAX} times while it ran. SCRIPT RELEASE lets it run again. script: {}",
                String::from_utf8_lossy(&sha)
            )));
        }
        self.slot.begin(namespace, &sha);
        self.script(namespace, draft, request)
    }

    fn script(&mut self, namespace: &str, draft: &mut Draft, request: &Request) -> Ran {
        let flushes = draft.texts().flushes();
        self.texts.follow(namespace, flushes);
        let (sha, text) = match &request.what {
            What::Flush => {
                self.texts.forget(namespace);
                return Ran::Said(Bytes::from_static(b"+OK\r\n"));
            }
            What::Withheld => {
                let all = self.slot.harm().of(namespace);
                let lines: String = all.iter().map(|sha| format!("${}\r\n{sha}\r\n", sha.len())).collect();
                return Ran::Said(format!("*{}\r\n{lines}", all.len()).into());
            }
            What::Release => {
                let was = request.args.iter().filter(|sha| self.slot.harm().release(namespace, sha)).count();
                return Ran::Said(format!(":{was}\r\n").into());
            }
            What::Exists => {
                let is_known = |sha: &Bytes| {
                    let kept = draft.texts().script(&sha.to_ascii_lowercase());
                    kept.is_some() || self.texts.get(namespace, sha).is_some()
                };
                let known = request.args.iter().map(|sha| i32::from(is_known(sha)));
                let lines: String = known.map(|is| format!(":{is}\r\n")).collect();
                return Ran::Said(format!("*{}\r\n{lines}", request.args.len()).into());
            }
            What::Load { text } => {
                let sha = sha1hex(text);
                let compiled = self.state(namespace).and_then(|state| state.compile(&sha, text).map(|_| ()));
                return Ran::Said(match compiled {
                    Ok(()) => {
                        self.texts.keep(namespace, text, flushes);
                        draft.keep_script(&sha, text);
                        format!("${}\r\n{}\r\n", sha.len(), String::from_utf8_lossy(&sha)).into()
                    }
                    Err(why) => why,
                });
            }
            What::Library { code } => {
                return Ran::Said(match self.state(namespace).and_then(|state| state.register(code)) {
                    Ok(about) => {
                        let about = about.with(b"");
                        [format!("${}\r\n", about.len()).as_bytes(), &about, b"\r\n"].concat().into()
                    }
                    Err(why) => why,
                });
            }
            What::Call { function } => {
                return match self.state(namespace) {
                    Ok(state) => state.call_function(draft, request, function),
                    Err(why) => Ran::Said(why),
                };
            }
            What::Run { sha, text: Some(text) } => {
                self.texts.keep(namespace, text, flushes);
                (sha.clone(), text.clone())
            }
            What::Run { sha, text: None } => match draft.texts().script(sha).cloned() {
                Some(text) => (sha.clone(), text),
                None => match self.texts.get(namespace, sha) {
                    // Who asks for it so will again, perhaps when another node leads.
                    Some(text) => {
                        draft.keep_script(sha, &text);
                        (sha.clone(), text)
                    }
                    None => return Ran::Said(error_line("NOSCRIPT No matching script. Please use EVAL.")),
                },
            },
        };
        match self.state(namespace) {
            Ok(state) => state.run(draft, request, &sha, &text),
            Err(why) => Ran::Said(why),
        }
    }
}

impl Scripts for Runner {
    fn run(&mut self, namespace: &str, draft: &mut Draft, step: &Step) -> Result<Bytes, Bytes> {
        let Some(request) = Request::of(step) else { return Ok(error_line("ERR this is no script")) };
        // What goes wrong in here is one script's matter.
        let ran = catch_unwind(AssertUnwindSafe(|| self.watched(namespace, draft, &request)));
        self.slot.end();
        let ran = ran.unwrap_or_else(|_| {
            tracing::error!(namespace, "a script has broken its Lua state");
            self.forget_state(namespace);
            Ran::Ended(error_line("ERR the script broke what runs it, and nothing of it was done"))
        });
        let is_spent = self.states.back().is_some_and(|(name, state)| name == namespace && state.is_spent());
        if is_spent {
            self.forget_state(namespace);
        }
        match ran {
            Ran::Said(said) => match draft.too_much() {
                None => Ok(said),
                Some(why) => Err(error_line(&format!("ERR {why}"))),
            },
            Ran::Ended(told) => Err(told),
        }
    }

    fn goes_on(&mut self) -> bool {
        self.began.is_none_or(|began| began.elapsed() < BATCH_TIME_MAX)
    }

    fn wall_ms(&self) -> u64 {
        crate::wall::wall_ms()
    }
}

/// Where a script's commands go: a door like any other, with a draft behind it.
pub struct Door {
    lent: Rc<Lent>,
    node: Rc<Node>,
    client: RefCell<Client>,
}

/// The draft of the script that is at work; an empty one, if none is.
#[derive(Default)]
struct Lent(RefCell<Draft>);

impl Lent {
    fn run(&self, op: state::linear::Op) -> Outcome<state::linear::Ran> {
        self.0.borrow_mut().run(op, crate::wall::wall_ms())
    }
}

impl Backend for Lent {
    fn ask(&self, ask: Ask, _: Span, answer: oneshot::Sender<Answer>) {
        // Nothing else can be asked here: whoever tries hears that nobody answers.
        if let Ask::Linear(op) = ask {
            let _ = answer.send(Answer::Linear(self.run(op)));
        }
    }

    fn sheds(&self) -> bool {
        false
    }

    fn is_at_once(&self) -> bool {
        true
    }

    fn view(&self) -> Arc<View> {
        Arc::default()
    }

    fn agreed(&self) -> u32 {
        self.0.borrow().agreed()
    }
}

impl Door {
    pub fn new(namespace: Arc<str>) -> Self {
        let lent = Rc::new(Lent::default());
        let gate = Rc::new(Gate::new(Rc::clone(&lent) as Rc<dyn Backend>, false));
        let meter = Arc::new(Meter::new());
        let functions = Functions::new(&meter);
        // Nobody connects to it.
        let room = Room { strangers: 1, known: 1 };
        let node = Rc::new(Node::new(gate, meter, functions, String::new(), room));
        Self { lent, node, client: RefCell::new(Client::inside(namespace)) }
    }

    /// Runs something with this draft behind the door.
    pub fn with<T>(&self, draft: &mut Draft, act: impl FnOnce() -> T) -> T {
        /// Gives it back, also if `act` panics.
        struct Back<'a>(&'a Lent, &'a mut Draft);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                *self.1 = self.0.0.take();
            }
        }
        self.lent.0.replace(std::mem::take(draft));
        let _back = Back(&self.lent, draft);
        act()
    }

    /// A command of the script.
    pub fn run(&self, words: Vec<Bytes>, reads_only: bool) -> Reply {
        let command = Command::of(&words);
        let Some(spec) = commands::linear::find(command.arg(0)) else {
            return Reply::error("ERR Unknown Redis command called from script");
        };
        if !spec.is_arity_right(command.len()) {
            return Reply::error("ERR Wrong number of args calling Redis command from script");
        }
        if !is_for_scripts(spec) {
            return Reply::error("ERR This Redis command is not allowed from script");
        }
        if reads_only && matches!(spec.does, Does::Write | Does::WriteAll) {
            return Reply::error("ERR Write commands are not allowed from read-only scripts.");
        }
        if let Some(reply) = self.without_waiting(spec, &words, reads_only) {
            return reply;
        }
        let Ok(mut client) = self.client.try_borrow_mut() else {
            return Reply::error("ERR a command cannot call another one");
        };
        let act = (spec.run)(&mut Call { command: &command, client: &mut client, node: &self.node, once: None });
        drop(client);
        match act {
            Act::Now(reply) => reply,
            Act::Linear(op, then) => commands::linear::reply(self.lent.run(op), then),
            // All that it waits for is there at once.
            Act::Later(later) => later
                .now_or_never()
                .unwrap_or_else(|| Reply::error("ERR This Redis command is not allowed from script")),
            Act::Op(..) | Act::Cache(..) | Act::Soft(..) | Act::Block(_) | Act::Close(_) => {
                Reply::error("ERR This Redis command is not allowed from script")
            }
        }
    }

    /// What waits for an item anywhere else takes one that is there, or none.
    fn without_waiting(&self, spec: &Spec, words: &[Bytes], reads_only: bool) -> Option<Reply> {
        let run = |name: &'static str, args: &[Bytes]| {
            self.run([&[Bytes::from_static(name.as_bytes())], args].concat(), reads_only)
        };
        let last = words.len() - 1;
        let pop = match spec.name {
            "BLMOVE" => return Some(run("LMOVE", &words[1..last])),
            "BRPOPLPUSH" => return Some(run("RPOPLPUSH", &words[1..last])),
            "BLMPOP" => return Some(run("LMPOP", &words[2..])),
            "BZMPOP" => return Some(run("ZMPOP", &words[2..])),
            "BLPOP" => "LPOP",
            "BRPOP" => "RPOP",
            "BZPOPMIN" => "ZPOPMIN",
            "BZPOPMAX" => "ZPOPMAX",
            _ => return None,
        };
        for key in &words[1..last] {
            let named = |items: Vec<Reply>| Reply::List([vec![Reply::Bulk(key.clone())], items].concat());
            match run(pop, std::slice::from_ref(key)) {
                Reply::Nil | Reply::NilList => (),
                Reply::List(items) if items.is_empty() => (),
                Reply::Pairs(pairs) if pairs.is_empty() => (),
                Reply::Pairs(pairs) => return Some(named(pairs.into_iter().flat_map(|(a, b)| [a, b]).collect())),
                Reply::List(items) => return Some(named(items)),
                error @ Reply::Error(_) => return Some(error),
                item => return Some(named(vec![item])),
            }
        }
        Some(Reply::NilList)
    }
}

/// Some have to do with a connection, or with other scripts.
fn is_for_scripts(spec: &Spec) -> bool {
    let never = [
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH",
        "UNWATCH",
        "ONCE",
        "EVAL",
        "EVALSHA",
        "EVAL_RO",
        "EVALSHA_RO",
        "SCRIPT",
        "FUNCTION",
        "FCALL",
        "FCALL_RO",
    ];
    let of_door = ["CLIENT", "READONLY", "READWRITE", "PRIORITY", "PUBLISH", "SPUBLISH", "PUBSUB", "INFO", "RESET"];
    let is_plain =
        matches!(spec.name, "PING" | "ECHO" | "SELECT") || !matches!(spec.does, Does::Connect | Does::Listen);
    is_plain && !never.contains(&spec.name) && !of_door.contains(&spec.name)
}
