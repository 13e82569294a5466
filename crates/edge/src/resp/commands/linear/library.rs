//! FUNCTION: libraries of functions in Lua, beside those that are built in. What a library registers is found out by a leader, which
//! loads it (`resp/scripts/`); then every shard keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::glob;
use state::linear::functions;
use state::linear::functions::texts::{EXISTS, FULL};

use super::script::{everywhere, said};
use super::*;
use crate::resp::encode::Protocol;
use crate::resp::scripts::library::{About, dump, header, undump};
use crate::resp::scripts::request::{Request, What};

pub const ALL: &[Spec] = &[noted(
    spec(
        "FUNCTION",
        -2,
        Keys::None,
        Does::Ask,
        "LOAD [REPLACE] code | LIST [LIBRARYNAME pattern] [WITHCODE] | DELETE library | FLUSH [ASYNC | SYNC] | \
         DUMP | RESTORE payload \
         [FLUSH | APPEND | REPLACE] | STATS | KILL",
        "libraries of functions in Lua",
        function,
    ),
    "LIST LIBRARYNAME coppice has the functions that are built in; libraries are 1,000 of 4 MiB together, in all shards, and \
     not where the namespace declares \
     functions of a service; KILL finds nothing to end",
)];

fn function(call: &mut Call<'_>) -> Act {
    let (command, len) = (call.command, call.command.len());
    let sub = command.arg(1).to_ascii_uppercase();
    let desk = Desk { space: call.space(), protocol: call.client.protocol };
    let changes = matches!(&sub[..], b"LOAD" | b"RESTORE");
    if changes && call.node.gate.view().functions.contains_key(&*desk.space.name) {
        return Act::Now(Reply::error(
            "ERR this namespace declares functions of a service: no libraries go beside them",
        ));
    }
    match (&sub[..], len) {
        (b"LOAD", 3..) => {
            let is_option = |at: &usize| !is(command.arg(*at), "REPLACE");
            let replaces = len > 3;
            if let Some(other) = (2..len - 1).find(is_option) {
                let option = String::from_utf8_lossy(command.arg(other)).into_owned();
                return Act::Now(Reply::Error(format!("ERR Unknown option given: {option}")));
            }
            let code = command.value(len - 1);
            Call::later(async move { desk.load(code, replaces).await.unwrap_or_else(|wrong| wrong) })
        }
        (b"DELETE", 3) => {
            let op = everywhere(&desk.space, "library.remove", vec![command.value(2)]);
            Call::later(async move {
                match reply(desk.space.ask_linear(op).await, one_of_all) {
                    Reply::Int(0) => Reply::error("ERR Library not found"),
                    Reply::Int(_) => Reply::OK,
                    wrong => wrong,
                }
            })
        }
        (b"FLUSH", 2..=3) if len == 2 || is(command.arg(2), "ASYNC") || is(command.arg(2), "SYNC") => {
            Call::later(async move { desk.flush().await.map_or_else(|wrong| wrong, |()| Reply::OK) })
        }
        (b"FLUSH", 3) => Act::Now(Reply::error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        (b"LIST", _) => {
            let (mut pattern, mut with_code, mut at) = (None, false, 2);
            while at < len {
                if is(command.arg(at), "WITHCODE") && !with_code {
                    with_code = true;
                } else if is(command.arg(at), "LIBRARYNAME") && pattern.is_none() {
                    at += 1;
                    if at == len {
                        return Act::Now(Reply::error("ERR library name argument was not given"));
                    }
                    pattern = Some(command.value(at));
                } else {
                    let option = String::from_utf8_lossy(command.arg(at)).into_owned();
                    return Act::Now(Reply::Error(format!("ERR Unknown argument {option}")));
                }
                at += 1;
            }
            Call::later(async move {
                let fits = |name: &[u8]| pattern.as_ref().is_none_or(|pattern| glob::fits(pattern, name));
                // Nobody has loaded it: who asks for all wants those that somebody has.
                let mut all = if pattern.is_some() && fits(b"coppice") { vec![built_in()] } else { Vec::new() };
                match desk.libraries().await {
                    Ok(kept) => all.extend(
                        kept.values().filter(|(about, _)| fits(about.name.as_bytes())).map(|one| shown(one, with_code)),
                    ),
                    Err(wrong) => return wrong,
                }
                Reply::List(all)
            })
        }
        (b"DUMP", 2) => Call::later(async move {
            let codes =
                |kept: BTreeMap<Bytes, (About, Bytes)>| kept.into_values().map(|(_, code)| code).collect::<Vec<_>>();
            desk.libraries().await.map_or_else(|wrong| wrong, |kept| Reply::Bulk(dump(&codes(kept))))
        }),
        (b"RESTORE", 3..=4) => {
            let how = if len == 3 { b"APPEND".to_vec() } else { command.arg(3).to_ascii_uppercase() };
            if !matches!(&how[..], b"FLUSH" | b"APPEND" | b"REPLACE") {
                let why = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
                return Act::Now(Reply::error(why));
            }
            let Some(codes) = undump(&command.value(2)) else {
                return Act::Now(Reply::error("ERR DUMP payload version or checksum are wrong"));
            };
            Call::later(async move { desk.restore(codes, &how).await.map_or_else(|wrong| wrong, |()| Reply::OK) })
        }
        (b"STATS", 2) => Call::later(async move {
            let kept = match desk.libraries().await {
                Ok(kept) => kept,
                Err(wrong) => return wrong,
            };
            let functions: usize = kept.values().map(|(about, _)| about.functions.len()).sum();
            Reply::Map(vec![
                (Reply::word("running_script"), Reply::Nil),
                (
                    Reply::word("engines"),
                    Reply::Map(vec![(
                        Reply::word("LUA"),
                        Reply::Map(vec![
                            (Reply::word("libraries_count"), Reply::Int(kept.len() as i64)),
                            (Reply::word("functions_count"), Reply::Int(functions as i64)),
                        ]),
                    )]),
                ),
            ])
        }),
        (b"KILL", 2) => Act::Now(Reply::error("NOTBUSY No scripts in execution right now.")),
        _ => unknown_subcommand(call, "LOAD, LIST, DELETE, FLUSH, DUMP, RESTORE, STATS and KILL"),
    }
}

/// Libraries of a namespace.
struct Desk {
    space: ops::Space,
    protocol: Protocol,
}

type Kept = BTreeMap<Bytes, (About, Bytes)>;

impl Desk {
    /// By their names: what is known of each, and its code.
    async fn libraries(&self) -> Result<Kept, Reply> {
        let op = everywhere(&self.space, "library.list", Vec::new());
        let got = match self.space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => only(got),
            outcome => return Err(reply(outcome, |got| plain_one(only(got)))),
        };
        let Got::List(all) = got else { return Err(plain_one(got)) };
        let one = |pair: &[Got]| match pair {
            [Got::Bytes(name), Got::Bytes(text)] => Some((name.clone(), About::of(text)?)),
            _ => None,
        };
        Ok(all.chunks(2).filter_map(one).collect())
    }

    async fn flush(&self) -> Result<(), Reply> {
        let op = everywhere(&self.space, "library.flush", Vec::new());
        match reply(self.space.ask_linear(op).await, |got| plain_one(only(got))) {
            wrong if wrong.is_error() => Err(wrong),
            _ => Ok(()),
        }
    }

    /// What a library registers, as whoever runs scripts for one of the shards has found.
    async fn about(&self, code: &Bytes) -> Result<About, Reply> {
        let (name, _) = header(code).map_err(Reply::Error)?;
        let what = What::Library { code: code.clone() };
        let keys = vec![Bytes::from(name.into_bytes())];
        let request = Request { what, reads_only: true, protocol: self.protocol, keys, args: Vec::new() };
        let op = Op::of(Arc::clone(&self.space.name), vec![request.step()]);
        let made = match reply(self.space.ask_linear(op).await, said) {
            Reply::Made(made) => made,
            wrong => return Err(wrong),
        };
        // Behind its length.
        let text = memchr::memchr(b'\n', &made).map(|end| made.slice(end + 1..));
        let about = text.as_ref().and_then(About::of).map(|(about, _)| about);
        let about = about.ok_or_else(|| Reply::error("ERR what the library registers was not understood"))?;
        let is_built_in = |name: &str| functions::find(name).is_some_and(functions::Function::is_offered);
        match about.functions.iter().find(|function| is_built_in(&function.name)) {
            Some(function) => Err(Reply::Error(format!("ERR Function {} already exists", function.name))),
            None => Ok(about),
        }
    }

    async fn load(&self, code: Bytes, replaces: bool) -> Result<Reply, Reply> {
        let about = self.about(&code).await?;
        let how = if replaces { "replace" } else { "new" };
        let name = Bytes::from(about.name.clone().into_bytes());
        let mut args = vec![name.clone(), Bytes::from(how), about.with(&code)];
        args.extend(about.functions.iter().map(|function| Bytes::from(function.name.clone().into_bytes())));
        match reply(self.space.ask_linear(everywhere(&self.space, "library.put", args)).await, one_of_all) {
            Reply::Int(EXISTS) => Err(Reply::Error(format!("ERR Library '{}' already exists", about.name))),
            Reply::Int(FULL) => Err(Reply::error("ERR there is no room for more libraries")),
            Reply::Bulk(function) => {
                Err(Reply::Error(format!("ERR Function {} already exists", String::from_utf8_lossy(&function))))
            }
            Reply::Int(_) => Ok(Reply::Bulk(name)),
            wrong => Err(wrong),
        }
    }

    /// All or none, unless others load some meanwhile.
    async fn restore(&self, codes: Vec<Bytes>, how: &[u8]) -> Result<(), Reply> {
        let (mut all, mut names) = (Vec::new(), BTreeSet::new());
        for code in codes {
            let about = self.about(&code).await?;
            names.insert(about.name.clone());
            all.push((about, code));
        }
        if how == b"FLUSH" {
            self.flush().await?;
        } else {
            let there = self.libraries().await?;
            let stays = |about: &&About| how == b"APPEND" || !names.contains(&about.name);
            for old in there.values().map(|(about, _)| about).filter(stays) {
                if names.contains(&old.name) {
                    return Err(Reply::Error(format!("ERR Library {} already exists", old.name)));
                }
                let has = |name: &str| old.functions.iter().any(|function| function.name == name);
                if let Some(twice) = all.iter().flat_map(|(about, _)| &about.functions).find(|one| has(&one.name)) {
                    return Err(Reply::Error(format!("ERR Function {} already exists", twice.name)));
                }
            }
        }
        for (_, code) in all {
            self.load(code, true).await?;
        }
        Ok(())
    }
}

/// What shards say that did the same: if they differ, that of the one where something was done.
fn one_of_all(got: Vec<Got>) -> Reply {
    let all = match only(got) {
        Got::List(all) => all,
        other => vec![other],
    };
    let wrong = all.iter().find(|one| !matches!(one, Got::Int(_)));
    let most = || all.iter().filter_map(|one| if let Got::Int(n) = one { Some(*n) } else { None }).max();
    match wrong {
        Some(wrong) => plain_one(wrong.clone()),
        None => Reply::Int(most().unwrap_or(0)),
    }
}

fn shown((about, code): &(About, Bytes), with_code: bool) -> Reply {
    let text = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
    let one = |function: &crate::resp::scripts::library::Function| {
        Reply::Map(vec![
            (Reply::word("name"), text(&function.name)),
            (Reply::word("description"), function.description.as_deref().map_or(Reply::Nil, text)),
            (Reply::word("flags"), Reply::Set(function.flags.iter().map(|flag| text(flag)).collect())),
        ])
    };
    let mut all = vec![
        (Reply::word("library_name"), text(&about.name)),
        (Reply::word("engine"), Reply::word("LUA")),
        (Reply::word("functions"), Reply::List(about.functions.iter().map(one).collect())),
    ];
    if with_code {
        all.push((Reply::word("library_code"), Reply::Bulk(code.clone())));
    }
    Reply::Map(all)
}

/// The functions that every namespace has.
fn built_in() -> Reply {
    let one = |function: &functions::Function| {
        let reads = matches!(function.run, functions::Run::Read(_));
        let flags = if reads { vec![Reply::Simple("no-writes")] } else { Vec::new() };
        Reply::Map(vec![
            (Reply::word("name"), Reply::word(function.name)),
            (Reply::word("description"), Reply::word(function.args)),
            (Reply::word("flags"), Reply::Set(flags)),
        ])
    };
    let all = functions::ALL.iter().flat_map(|some| some.iter());
    let all = all.filter(|function| function.is_offered()).map(one).collect();
    Reply::Map(vec![
        (Reply::word("library_name"), Reply::word("coppice")),
        (Reply::word("engine"), Reply::word("BUILT-IN")),
        (Reply::word("functions"), Reply::List(all)),
    ])
}
