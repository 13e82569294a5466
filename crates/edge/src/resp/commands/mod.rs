//! The commands: one list, which the dispatcher, COMMAND and the table in docs/resp.md are made from. To add one, write
//! its `Spec` in a file here and put it into `ALL`. A command that the class cannot keep the meaning of is not offered: it
//! gets an error that says what would work (`refused.rs`).

use std::collections::HashMap;
use std::iter::{Chain, StepBy};
use std::ops::Range;
use std::option;
use std::sync::{Arc, LazyLock};

use futures_util::future::LocalBoxFuture;
use state::Class;
use state::linear::Uuid;
use state::session::Op;
use tokio::sync::oneshot;

use super::client::Client;
use super::encode::Reply;
use super::limits::PATTERN_STEPS_MAX;
use super::ops::Space;
use super::parse::{Command, integer};
use super::{Node, offers, ops};

mod asked;
pub mod cache;
pub mod channels;
mod client;
mod command;
pub mod compare;
mod config;
mod connection;
mod hash;
mod info;
mod info_fields;
pub mod keyspace;
mod lease;
pub mod linear;
mod many;
mod monitor;
mod page;
mod priority;
mod read;
pub mod refused;
mod rename;
mod scan;
pub mod soft;
mod tracking;
mod write;

pub use info::redis_version;
pub use keyspace::Keyspace;

/// Everything that is offered, by kind.
pub static ALL: &[&Spec] = &[
    &connection::HELLO,
    &connection::AUTH,
    &connection::PING,
    &connection::ECHO,
    &connection::SELECT,
    &connection::QUIT,
    &client::CLIENT,
    &command::COMMAND,
    &priority::PRIORITY,
    &info::INFO,
    &asked::WAIT,
    &asked::WAITAOF,
    &asked::SLOWLOG,
    &asked::LATENCY,
    &asked::MODULE,
    &asked::ACL,
    &channels::SUBSCRIBE,
    &channels::UNSUBSCRIBE,
    &channels::PSUBSCRIBE,
    &channels::PUNSUBSCRIBE,
    &channels::SSUBSCRIBE,
    &channels::SUNSUBSCRIBE,
    &channels::PUBLISH,
    &channels::SPUBLISH,
    &channels::PUBSUB,
    &channels::RESET,
    &monitor::MONITOR,
    &read::GET,
    &read::STRLEN,
    &read::TYPE,
    &read::TTL,
    &read::PTTL,
    &many::MGET,
    &many::EXISTS,
    &write::SET,
    &write::SETEX,
    &write::PSETEX,
    &write::SETNX,
    &many::MSET,
    &many::DEL,
    &many::UNLINK,
    &rename::RENAME,
    &compare::DIGEST,
    &compare::DELEX,
    &lease::GETEX,
    &lease::GETDEL,
    &lease::EXPIRE,
    &lease::PEXPIRE,
    &lease::EXPIREAT,
    &lease::PEXPIREAT,
    &hash::HSET,
    &hash::HMSET,
    &hash::HSETNX,
    &hash::HGET,
    &hash::HMGET,
    &hash::HGETALL,
    &hash::HKEYS,
    &hash::HVALS,
    &hash::HLEN,
    &hash::HEXISTS,
    &hash::HDEL,
    &scan::DBSIZE,
    &scan::SCAN,
];

/// One command.
pub struct Spec {
    /// In capitals.
    pub name: &'static str,
    /// Arguments with the name; negative: at least so many (Redis' convention).
    pub arity: i32,
    pub keys: Keys,
    pub does: Does,
    /// Arguments, as Redis writes them.
    pub syntax: &'static str,
    /// One line for COMMAND DOCS and the table.
    pub summary: &'static str,
    /// Where it differs from Redis, if it does.
    pub note: &'static str,
    pub run: fn(&mut Call<'_>) -> Act,
}

/// Which arguments are keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    None,
    /// The first.
    One,
    /// All of them.
    All,
    /// The first two.
    Two,
    /// All but the last argument.
    AllButLast,
    /// Every second one, from the first.
    Pairs,
    /// The second, behind a subcommand.
    Second,
    /// All but the first argument.
    AllButFirst,
    /// As many as this argument says, behind it.
    Counted(usize),
    /// As many as this argument says, behind it, each with a value.
    CountedPairs(usize),
    /// The first, and as many as this argument says, behind it.
    AndCounted(usize),
    /// Those of the command that begins with this argument.
    Wrapped(usize),
    /// The first half of what is behind STREAMS.
    Streams,
    /// The first, and what stands behind STORE or STOREDIST; options begin with this argument.
    AndStored(usize),
}

impl Keys {
    /// The first, the last (-1 is the last argument) and the step, as Redis has them; `None` where the arguments must be read.
    pub fn range(self) -> Option<(usize, isize, usize)> {
        match self {
            Keys::None => Some((0, 0, 0)),
            Keys::One => Some((1, 1, 1)),
            Keys::Two => Some((1, 2, 1)),
            Keys::All => Some((1, -1, 1)),
            Keys::AllButLast => Some((1, -2, 1)),
            Keys::Pairs => Some((1, -1, 2)),
            Keys::Second => Some((2, 2, 1)),
            Keys::AllButFirst => Some((2, -1, 1)),
            Keys::Counted(_) | Keys::CountedPairs(_) | Keys::AndCounted(_) => None,
            Keys::Wrapped(_) | Keys::Streams | Keys::AndStored(_) => None,
        }
    }
}

/// Of keys among the arguments.
pub type Positions = Chain<option::IntoIter<usize>, StepBy<Range<usize>>>;

/// What a command does; decides who may call it, and what it waits for in a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// With the connection: also a stranger may.
    Connect,
    /// With the door, not with values: needs AUTH.
    Ask,
    /// Changes what the client listens to: runs alone, and needs AUTH.
    Listen,
    Read,
    Write,
    /// Concerns every key: runs when all before it are done.
    ReadAll,
    /// Likewise, and may change some.
    WriteAll,
}

impl Does {
    /// It has nothing to do with values, and each class offers it.
    pub fn is_of_connection(self) -> bool {
        matches!(self, Does::Connect | Does::Ask | Does::Listen)
    }

    pub fn is_about_all(self) -> bool {
        matches!(self, Does::ReadAll | Does::WriteAll)
    }
}

/// A command at work.
pub struct Call<'a> {
    pub command: &'a Command,
    pub client: &'a mut Client,
    pub node: &'a Node,
    /// What the client calls a write (`ONCE`).
    pub once: Option<Uuid>,
}

/// How a command goes on.
pub enum Act {
    Now(Reply),
    /// One operation; its outcome becomes the reply.
    Op(Op, fn(base::Outcome<state::session::Reply>) -> Reply),
    /// One operation of class `linear`; the replies of its steps become the reply.
    Linear(state::linear::Op, linear::Then),
    /// One operation of class `cache`; its outcome becomes the reply.
    Cache(state::cache::Op, cache::Then),
    /// One operation of class `soft`.
    Soft(state::soft::Op, soft::Then),
    Later(LocalBoxFuture<'static, Reply>),
    /// Waits for something, perhaps for long; it is told when its client goes, and ends by itself.
    Block(Box<dyn FnOnce(oneshot::Sender<Given>) -> LocalBoxFuture<'static, ()>>),
    /// Say this, then close the connection.
    Close(Reply),
}

/// What came of a command that waited. If its client goes before it was taken it is dropped, and who gave it learns that.
#[derive(Debug)]
pub struct Given {
    reply: Reply,
    taken: oneshot::Sender<()>,
}

impl Given {
    /// And what tells that it was taken.
    pub fn new(reply: Reply) -> (Self, oneshot::Receiver<()>) {
        let (taken, is_taken) = oneshot::channel();
        (Self { reply, taken }, is_taken)
    }

    pub fn take(self) -> Reply {
        // Who gave it may not care.
        let _ = self.taken.send(());
        self.reply
    }
}

impl Call<'_> {
    /// The client's namespace. Commands that need AUTH are not run without it.
    pub fn space(&self) -> Space {
        let known = self.client.known.as_ref().expect("the dispatcher lets only known clients come here");
        Space { name: known.namespace.clone(), gate: self.node.gate.clone(), priority: self.client.priority() }
    }

    /// The namespace whose token the client has, whichever database it has selected: channels are its, and what is told of clients.
    pub fn home(&self) -> Arc<str> {
        let known = self.client.known.as_ref().expect("the dispatcher lets only known clients come here");
        Arc::clone(&known.home)
    }

    /// Does the client's namespace merge fields?
    pub fn merges(&self) -> bool {
        let (space, view) = (self.space(), self.node.gate.view());
        view.namespaces.iter().any(|has| *has.name == *space.name && has.merge == state::session::Merges::Fields.name())
    }

    pub fn later(future: impl Future<Output = Reply> + 'static) -> Act {
        Act::Later(Box::pin(future))
    }
}

impl Spec {
    pub fn is_arity_right(&self, args: usize) -> bool {
        let args = args as i64;
        let arity = i64::from(self.arity);
        if arity < 0 { args >= -arity } else { args == arity }
    }

    /// Positions of the keys of this command, whose name is argument `at`; none if it is not well formed.
    pub fn key_positions(&self, command: &Command, at: usize) -> Positions {
        let len = command.len();
        let rest = match self.keys {
            Keys::Counted(numkeys) | Keys::CountedPairs(numkeys) | Keys::AndCounted(numkeys) => {
                let first = at + numkeys + 1;
                let step = if matches!(self.keys, Keys::CountedPairs(_)) { 2 } else { 1 };
                let count = integer(command.arg(first - 1)).and_then(|count| usize::try_from(count).ok());
                let words = count.and_then(|count| count.checked_mul(step));
                let end = words.and_then(|words| first.checked_add(words)).filter(|end| *end <= len);
                (first..end.unwrap_or(first)).step_by(step)
            }
            Keys::Wrapped(inner) => match linear::find(command.arg(at + inner)) {
                Some(spec) if !matches!(spec.keys, Keys::Wrapped(_)) => {
                    return spec.key_positions(command, at + inner);
                }
                _ => (0..0).step_by(1),
            },
            Keys::Streams => {
                let first = streams_of(command, at);
                let count = (len - first) / 2;
                (first..if count * 2 == len - first { first + count } else { first }).step_by(1)
            }
            Keys::AndStored(options) => {
                let to = stored_to(command, at + options).filter(|to| *to > at + 1);
                return Some(at + 1).filter(|first| *first < len).into_iter().chain(match to {
                    Some(to) => (to..to + 1).step_by(1),
                    None => (0..0).step_by(1),
                });
            }
            _ => {
                let (first, last, step) = self.keys.range().unwrap_or_default();
                let end = if last < 0 { len.saturating_add_signed(last + 1) } else { len.min(at + last as usize + 1) };
                // Of none the first is 0, as is the last: the name.
                (at + first.max(1)..end).step_by(step.max(1))
            }
        };
        // Of one that is not well formed it is none.
        let first = matches!(self.keys, Keys::AndCounted(_)).then_some(at + 1).filter(|_| rest.len() > 0);
        first.into_iter().chain(rest)
    }
}

/// What stands behind STREAMS, in a command whose name is argument `at`.
fn streams_of(command: &Command, at: usize) -> usize {
    let mut next = at + 1;
    while next < command.len() {
        let arg = command.arg(next);
        next += 1;
        if is(arg, "STREAMS") {
            break;
        }
        next += if is(arg, "GROUP") { 2 } else { usize::from(is(arg, "COUNT") || is(arg, "BLOCK")) };
    }
    next.min(command.len())
}

/// The key that a command stores to, if its options from this argument on say so.
fn stored_to(command: &Command, mut next: usize) -> Option<usize> {
    let mut to = None;
    while next + 1 < command.len() {
        let arg = command.arg(next);
        if is(arg, "STORE") || is(arg, "STOREDIST") {
            to = Some(next + 1);
        }
        // What stands behind these is none of them.
        let has_one = ["STORE", "STOREDIST", "BY", "GET", "COUNT"].into_iter().any(|word| is(arg, word));
        next += 1 + usize::from(has_one) + 2 * usize::from(is(arg, "LIMIT"));
    }
    to
}

/// The command of this name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Spec>> =
        LazyLock::new(|| ALL.iter().map(|spec| (spec.name.as_bytes(), *spec)).collect());
    let mut upper = [0u8; NAME_BYTES_MAX];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    BY_NAME.get(&*upper).copied()
}

/// The command of this name in a namespace of this class: its own, or one that belongs to the connection.
pub fn of_class(class: Class, name: &[u8]) -> Option<&'static Spec> {
    (offers::of(class).find)(name)
}

/// The error for a command that is not in the list of this class.
pub fn not_offered(class: Class, command: &Command) -> Reply {
    let name = String::from_utf8_lossy(&command.arg(0)[..command.arg(0).len().min(64)]).to_uppercase();
    let instead = refused::found(offers::of(class).instead, &name);
    let instead = instead.unwrap_or("COMMAND DOCS and docs/resp.md list what is");
    Reply::Error(format!("ERR '{name}' is not offered by class {class}: {instead}"))
}

/// Longer than any name.
const NAME_BYTES_MAX: usize = 24;

// What several commands need.

const fn spec(
    name: &'static str,
    arity: i32,
    keys: Keys,
    does: Does,
    syntax: &'static str,
    summary: &'static str,
    run: fn(&mut Call<'_>) -> Act,
) -> Spec {
    Spec { name, arity, keys, does, syntax, summary, note: "", run }
}

const fn noted(spec: Spec, note: &'static str) -> Spec {
    Spec { note, ..spec }
}

/// Does a key fit a pattern, as far as that is known after a bounded time?
fn fits(pattern: &[u8], key: &[u8]) -> bool {
    base::glob::fits_within(pattern, key, PATTERN_STEPS_MAX + 2 * key.len())
}

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// What a command between MULTI and EXEC is answered, when it is kept.
pub const QUEUED: Reply = Reply::Simple("QUEUED");

fn syntax_error() -> Act {
    Act::Now(Reply::error("ERR syntax error"))
}

fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

fn wrong_arity(name: &str) -> Reply {
    find(name.as_bytes()).map_or_else(|| Reply::error("ERR wrong number of arguments"), arity_error)
}

pub fn arity_error(spec: &Spec) -> Reply {
    let (name, syntax) = (spec.name, spec.syntax);
    Reply::Error(format!("ERR wrong number of arguments for '{}' command: it is {name} {syntax}", name.to_lowercase()))
}

/// Subcommands: their reply, or the error that names them.
/// Where none of its subcommands fits: HELP, which each has, tells them, and anything else is none.
fn unknown_subcommand(call: &Call<'_>, offered: &str) -> Act {
    let (command, class) = (call.command, call.client.class());
    if command.len() == 2
        && is(command.arg(1), "HELP")
        && let Some(spec) = of_class(class, command.arg(0))
    {
        return Act::Now(help(spec.name, &subcommands(spec.syntax)));
    }
    let sub = String::from_utf8_lossy(&command.arg(1)[..command.arg(1).len().min(64)]);
    let name = String::from_utf8_lossy(command.arg(0)).to_uppercase();
    // It begins with Redis' words, for programs that look for them.
    Act::Now(Reply::Error(format!(
        "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {name} HELP. Class {class} offers {offered}"
    )))
}

/// The alternatives of a syntax, each as it is to be typed.
fn subcommands(syntax: &'static str) -> Vec<&'static str> {
    let syntax = syntax.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(syntax);
    let (mut all, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, byte) in syntax.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b'|' if depth == 0 && syntax[..at].ends_with(' ') => {
                all.push(syntax[from..at].trim());
                from = at + 1;
            }
            _ => (),
        }
    }
    all.push(syntax[from..].trim());
    all.into_iter().filter(|sub| *sub != "HELP").collect()
}

/// In the form of Redis.
fn help(name: &str, subs: &[&str]) -> Reply {
    let head = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines =
        [head].into_iter().chain(subs.iter().chain(&["HELP", "    Print this help."]).map(|sub| (*sub).to_owned()));
    Reply::List(lines.map(Reply::text).collect())
}

/// `numkeys key [key ...]` at this argument; and where it goes on.
fn counted(command: &Command, at: usize) -> Result<(Vec<bytes::Bytes>, usize), Reply> {
    let Some(count) = integer(command.arg(at)).filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok()) else {
        return Err(Reply::error("ERR numkeys should be greater than 0"));
    };
    let end = (at + 1).checked_add(count).filter(|end| *end <= command.len());
    let end = end.ok_or_else(|| Reply::error("ERR Number of keys can't be greater than number of args"))?;
    Ok(((at + 1..end).map(|i| command.key(i)).collect(), end))
}

/// A number by chance, below 2^63.
fn chance() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Each of these hashers has keys of its own.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_is_taken_apart_at_what_stands_between_alternatives() {
        assert_eq!(subcommands("GET a [b | c] | SET ON|OFF [d] | HELP"), ["GET a [b | c]", "SET ON|OFF [d]"]);
        assert_eq!(subcommands("[COUNT | LIST]"), ["COUNT", "LIST"]);
    }

    /// docs/resp.md is made from the list.
    #[test]
    fn the_table_in_the_docs_is_the_list() {
        crate::pages::is_kept("resp.md", &table());
    }

    fn table() -> String {
        let mut text = String::from(include_str!("intro.md"));
        text.push_str(
            "\n## Commands\n\n| command | arguments | what it does | differs from Redis |\n| --- | --- | --- | --- |\n",
        );
        ALL.iter().for_each(|spec| row(&mut text, spec));
        instead_table(&mut text, "## Not offered, and what works instead", refused::INSTEAD);
        text.push_str(
            "\n## Commands of class `linear`\n\nThose of the connection (`HELLO` to `RESET` above) are offered too.\n\n\
             | command | arguments | what it does | differs from Redis |\n| --- | --- | --- | --- |\n",
        );
        linear::ALL.iter().flat_map(|some| some.iter()).for_each(|spec| row(&mut text, spec));
        instead_table(&mut text, "## Not offered by class `linear`", linear::INSTEAD);
        text.push_str(
            "\n## Commands of class `cache`\n\nThose of the connection are offered too. See [the guide](guide/cache.md).\n\n\
             | command | arguments | what it does | differs from Redis |\n| --- | --- | --- | --- |\n",
        );
        cache::ALL.iter().for_each(|spec| row(&mut text, spec));
        instead_table(&mut text, "## Not offered by class `cache`", cache::INSTEAD);
        text.push_str(
            "\n## Commands of class `soft`\n\nThose of the connection (`HELLO` to `RESET` above) are offered too.\n\n\
             | command | arguments | what it does | differs from Redis |\n| --- | --- | --- | --- |\n",
        );
        soft::ALL.iter().flat_map(|some| some.iter()).for_each(|spec| row(&mut text, spec));
        instead_table(&mut text, "## Not offered by class `soft`", soft::INSTEAD);
        text
    }

    fn row(text: &mut String, spec: &Spec) {
        let (syntax, summary, note) = (cell(spec.syntax), cell(spec.summary), cell(spec.note));
        let syntax = if syntax.is_empty() { String::new() } else { format!("`{syntax}`") };
        text.push_str(&format!("| `{}` | {syntax} | {summary} | {note} |\n", spec.name));
    }

    fn cell(text: &str) -> String {
        text.replace('|', "\\|")
    }

    fn instead_table(text: &mut String, title: &str, table: &[(&[&str], &str)]) {
        text.push_str(&format!("\n{title}\n\n| commands | instead |\n| --- | --- |\n"));
        for (names, instead) in table {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            text.push_str(&format!("| {} | {} |\n", names.join(" "), cell(instead)));
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_stand_once() {
        assert_eq!(find(b"gEt").unwrap().name, "GET");
        assert!(find(b"GETT").is_none() && find(b"").is_none() && find(&[b'A'; 100]).is_none());
        let mut names: Vec<_> = ALL.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    /// What a command's syntax calls `key` or the like is what COMMAND GETKEYS says of it, and nothing else.
    #[test]
    fn keys_are_where_the_syntax_says() {
        let others = linear::ALL.iter().chain(soft::ALL).flat_map(|some| some.iter());
        for spec in ALL.iter().copied().chain(others).chain(cache::ALL) {
            let (args, keys) = example(spec.syntax);
            let line: Vec<&[u8]> =
                [spec.name].into_iter().chain(args.iter().map(|arg| &arg[..])).map(str::as_bytes).collect();
            let command = parsed(&line);
            assert!(spec.is_arity_right(command.len()), "{} {args:?}", spec.name);
            let found: Vec<&[u8]> = spec.key_positions(&command, 0).map(|at| command.arg(at)).collect();
            assert_eq!(found, keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), "{} {args:?}", spec.name);
            assert_eq!(spec.keys == Keys::None, spec.name != "ONCE" && keys.is_empty(), "{}", spec.name);
        }
    }

    /// Arguments that fit a syntax, and which of them are keys: of words to choose from the first, and of what may be left out
    /// keys alone.
    fn example(syntax: &str) -> (Vec<String>, Vec<String>) {
        let (mut args, mut keys) = (Vec::new(), Vec::new());
        let (mut depth, mut wanted, mut skips) = (0, true, false);
        for word in syntax.split_whitespace() {
            if depth == 0 {
                wanted = !word.starts_with('[') || ["[key", "[id"].contains(&word);
            }
            depth += word.matches('[').count() as i32 - word.matches(']').count() as i32;
            match word.trim_matches(['[', ']']) {
                "..." => (),
                "|" => skips = true,
                _ if std::mem::take(&mut skips) || !wanted => (),
                "key" | "to" | "newkey" => {
                    keys.push(format!("k{}", args.len()));
                    args.push(format!("k{}", args.len()));
                }
                word => args.push(word.to_owned()),
            }
        }
        if let Some(at) = args.iter().position(|arg| arg == "numkeys") {
            args[at] = keys.iter().filter(|key| args[at..].contains(key)).count().to_string();
        }
        (args, keys)
    }

    fn parsed(line: &[&[u8]]) -> Command {
        let mut bytes = bytes::BytesMut::from(&crate::resp::tests::resp(line)[..]);
        let len = bytes.len();
        match crate::resp::parse::Parser::default().next(&mut bytes, len, &crate::resp::parse::Bounds::KNOWN) {
            Ok(crate::resp::parse::Parsed::Command(command)) => command,
            _ => panic!("no command: {line:?}"),
        }
    }
}
