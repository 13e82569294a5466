//! One Lua state, for one namespace: scripts of one see nothing of another's. It has Redis' libraries and no way to anything else; a
//! script that takes too long or too much memory is ended.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, Variadic, VmState};
use state::linear::script::Draft;
use state::linear::texts::Texts;

use super::convert::{self, number, shortest, type_name};
use super::desk::Door;
use super::harm::Slot;
use super::library::{self, About};
use super::limits::*;
use super::pattern::{self, Captured};
use super::request::Request;
use super::texts::sha1hex;
use super::{bits, cjson, cmsgpack, structs};
use crate::resp::commands::redis_version;
use crate::resp::encode::{Protocol, Reply};

pub struct Vm {
    lua: Lua,
    env: Table,
    run: Function,
    /// What libraries see, and how one is loaded and a function of one is called.
    library_env: Table,
    load: Function,
    call_one: Function,
    /// Functions of the libraries with this id, and whether each only reads.
    functions: HashMap<Bytes, (Function, bool)>,
    libraries: u64,
    compiled: HashMap<Bytes, Function>,
    at: Rc<AtWork>,
}

/// The script that is at work.
pub struct AtWork {
    door: Door,
    /// Where it is said what is at work.
    slot: Rc<Slot>,
    until: Cell<Instant>,
    /// It was ended by force.
    ended: Cell<bool>,
    reads_only: Cell<bool>,
    /// How it wants to see replies.
    protocol: Cell<Protocol>,
    sha: RefCell<Bytes>,
}

/// How a script came to its end.
pub enum Ran {
    /// With this reply, as bytes of the protocol; an error, too.
    Said(Bytes),
    /// By force: nothing of it is to happen.
    Ended(Bytes),
}

impl Vm {
    pub fn new(door: Door, slot: Rc<Slot>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let at = Rc::new(AtWork {
            door,
            slot,
            until: Cell::new(Instant::now()),
            ended: Cell::new(false),
            reads_only: Cell::new(false),
            protocol: Cell::new(Protocol::Resp2),
            sha: RefCell::default(),
        });
        let sha_of = lua.create_function(|lua, text: mlua::LuaString| lua.create_string(sha1hex(&text.as_bytes())))?;
        let made: MultiValue =
            lua.load(include_str!("prelude.lua")).set_name("=prelude").call((Self::ours(&lua, &at)?, sha_of))?;
        let mut made = made.into_iter();
        let mut next = || made.next();
        let (Some(Value::Table(env)), Some(Value::Function(run))) = (next(), next()) else {
            return Err(mlua::Error::runtime("the prelude gives an environment and a function"));
        };
        let (Some(Value::Table(library_env)), Some(Value::Function(load)), Some(Value::Function(call_one))) =
            (next(), next(), next())
        else {
            return Err(mlua::Error::runtime("the prelude gives the same for libraries"));
        };
        let looks = Rc::clone(&at);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(LOOK_AFTER), move |_, _| {
            if looks.is_over() { Err(mlua::Error::runtime("the script was ended")) } else { Ok(VmState::Continue) }
        })?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let (functions, libraries) = (HashMap::new(), Texts::default().libraries_id());
        Ok(Self { lua, env, run, library_env, load, call_one, functions, libraries, compiled: HashMap::new(), at })
    }

    /// What prelude.lua makes libraries of.
    fn ours(lua: &Lua, at: &Rc<AtWork>) -> mlua::Result<Table> {
        let ours = lua.create_table()?;
        let me = Rc::clone(at);
        ours.raw_set("call", lua.create_function(move |lua, args: Variadic<Value>| me.call(lua, &args))?)?;
        let me = Rc::clone(at);
        ours.raw_set("is_ended", lua.create_function(move |_, ()| Ok(me.ended.get()))?)?;
        let me = Rc::clone(at);
        ours.raw_set(
            "setresp",
            lua.create_function(move |_, version: u32| {
                me.protocol.set(if version == 3 { Protocol::Resp3 } else { Protocol::Resp2 });
                Ok(())
            })?,
        )?;
        let me = Rc::clone(at);
        ours.raw_set(
            "scan",
            lua.create_function(move |lua, (text, pattern, init, how): (Value, Value, Value, u32)| {
                me.scan(lua, [&text, &pattern], &init, how)
            })?,
        )?;
        let me = Rc::clone(at);
        ours.raw_set(
            "replace",
            lua.create_function(move |lua, args: Variadic<Value>| {
                let done = me.replace(&args).map(|(text, count)| lua.create_string(text).map(|text| (text, count)));
                Ok(match done {
                    Ok(done) => {
                        let (text, count) = done?;
                        (true, Value::String(text), Some(count))
                    }
                    Err(why) => (false, Value::String(lua.create_string(why)?), None),
                })
            })?,
        )?;
        ours.raw_set(
            "rep",
            lua.create_function(|lua, args: Variadic<Value>| {
                let done = text_of(&args, 0, "rep").and_then(|text| match args.get(1).and_then(number) {
                    Some(n) if n * text.len() as f64 > MEMORY_MAX as f64 => Err("not enough memory".to_owned()),
                    Some(n) if text.is_empty() || n < 1.0 => Ok(Vec::new()),
                    Some(n) => Ok(text.repeat(n as usize)),
                    None => Err("bad argument #2 to 'rep' (number expected, got no value)".to_owned()),
                });
                Ok(match done {
                    Ok(text) => (true, lua.create_string(text)?),
                    Err(why) => (false, lua.create_string(why)?),
                })
            })?,
        )?;
        ours.raw_set(
            "trim",
            lua.create_function(|lua, text: mlua::LuaString| {
                let text = text.as_bytes();
                let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
                let start = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
                let end = text.iter().rposition(|byte| !is_end(byte)).map_or(start, |last| last + 1);
                lua.create_string(&text[start..end])
            })?,
        )?;
        ours.raw_set(
            "log",
            lua.create_function(|_, (level, texts): (f64, Variadic<Value>)| {
                let text = |value: &Value| match value {
                    Value::String(text) => text.to_string_lossy(),
                    other => number(other).map_or(String::new(), |n| shortest(n, 14)),
                };
                let said = texts.iter().map(text).collect::<Vec<_>>().join(" ");
                let said: String = said.chars().take(1_024).collect();
                if level >= 3.0 {
                    tracing::warn!("script: {said}")
                } else {
                    tracing::debug!("script: {said}")
                }
                Ok(())
            })?,
        )?;
        ours.raw_set("where", lua.create_function(at_where)?)?;
        let began = Instant::now();
        ours.raw_set("clock", lua.create_function(move |_, ()| Ok(began.elapsed().as_secs_f64()))?)?;
        ours.raw_set("null", Value::NULL)?;
        let (version, number) = redis_version();
        ours.raw_set("version", version)?;
        ours.raw_set("version_num", number)?;
        ours.raw_set("cjson", cjson::library(lua)?)?;
        ours.raw_set("cmsgpack", cmsgpack::library(lua)?)?;
        ours.raw_set("struct", structs::library(lua)?)?;
        ours.raw_set("bit", bits::library(lua)?)?;
        Ok(ours)
    }

    /// Compiles a script, once. Err: why it cannot be.
    pub fn compile(&mut self, sha: &Bytes, text: &[u8]) -> Result<Function, Bytes> {
        if let Some(known) = self.compiled.get(sha) {
            return Ok(known.clone());
        }
        let made = self
            .chunk(text, "@user_script", &self.env)
            .map_err(|why| error_line(&format!("ERR Error compiling script (new function): {why}")))?;
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(sha.clone(), made.clone());
        Ok(made)
    }

    fn chunk(&self, text: &[u8], name: &str, env: &Table) -> Result<Function, String> {
        // Lua's own parser holds what no collector knows of (CVE-2025-49844).
        self.lua.gc_stop();
        let chunk = self.lua.load(text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
        let made = chunk.set_environment(env.clone()).into_function();
        self.lua.gc_restart();
        made.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// What a library registers, with its functions. Err: why it is none.
    fn library(&self, code: &[u8]) -> Result<(About, Vec<Function>), String> {
        let (name, code) = library::header(code)?;
        let code = self
            .chunk(&code, "@user_function", &self.library_env)
            .map_err(|why| format!("ERR Error compiling function: {why}"))?;
        self.at.begin(true, &Bytes::from(name.clone().into_bytes()));
        let failed = |why: &str| format!("ERR Error registering functions: {why}");
        let (ok, made): (bool, Value) = self.load.call(code).map_err(|error| failed(&error_text(&error)))?;
        if self.at.ended.get() {
            return Err(failed("FUNCTION LOAD timeout"));
        }
        let Value::Table(made) = made else { return Err(failed("unknown")) };
        if !ok {
            let why: Option<mlua::LuaString> = made.raw_get("err").ok();
            let why = why.map_or_else(|| "unknown".to_owned(), |why| why.to_string_lossy());
            return Err(failed(&why));
        }
        let mut about = About { name, functions: Vec::new() };
        let mut functions = Vec::new();
        for one in made.sequence_values::<Table>() {
            let read = one.and_then(|one| {
                let text = |name: &str| one.raw_get::<Option<mlua::LuaString>>(name);
                let flags: Vec<mlua::LuaString> = one.raw_get("flags")?;
                about.functions.push(library::Function {
                    name: text("name")?.map_or_else(String::new, |name| name.to_string_lossy()),
                    description: text("description")?.map(|text| text.to_string_lossy()),
                    flags: flags.iter().map(|flag| flag.to_string_lossy()).collect(),
                });
                one.raw_get("callback")
            });
            functions.push(read.map_err(|error| failed(&error_text(&error)))?);
        }
        if functions.is_empty() {
            return Err("ERR No functions registered".into());
        }
        Ok((about, functions))
    }

    /// What a library would register.
    pub fn register(&mut self, code: &[u8]) -> Result<About, Bytes> {
        self.library(code).map(|(about, _)| about).map_err(|why| error_line(&why))
    }

    /// Has the libraries that the draft keeps, and no others.
    fn follow(&mut self, texts: &Texts) {
        let id = texts.libraries_id();
        if id == self.libraries {
            return;
        }
        self.functions.clear();
        for (name, kept) in texts.libraries() {
            let Some((_, code)) = About::of(&kept.text) else { continue };
            match self.library(&code) {
                Ok((about, functions)) => {
                    let with = about.functions.iter().zip(functions);
                    let named =
                        with.map(|(one, f)| (Bytes::from(one.name.clone().into_bytes()), (f, one.only_reads())));
                    self.functions.extend(named);
                }
                Err(why) => tracing::warn!("library {}: {why}", String::from_utf8_lossy(name)),
            }
        }
        self.libraries = id;
    }

    /// Calls a function of a library.
    pub fn call_function(&mut self, draft: &mut Draft, request: &Request, name: &Bytes) -> Ran {
        self.follow(draft.texts());
        let Some((function, only_reads)) = self.functions.get(name).cloned() else {
            return Ran::Said(error_line("ERR Function not found"));
        };
        if request.reads_only && !only_reads {
            return Ran::Said(error_line("ERR Can not execute a script with write flag using *_ro command."));
        }
        self.at.begin(only_reads, name);
        let said = self.at.door.with(draft, || self.call(&self.call_one, &function, request));
        self.ended(said, name)
    }

    /// Runs a script on a draft.
    pub fn run(&mut self, draft: &mut Draft, request: &Request, sha: &Bytes, text: &[u8]) -> Ran {
        let script = match self.compile(sha, text) {
            Ok(script) => script,
            Err(why) => return Ran::Said(why),
        };
        self.at.begin(request.reads_only, sha);
        let said = self.at.door.with(draft, || self.call(&self.run, &script, request));
        self.ended(said, sha)
    }

    /// What is said, unless it was ended by force.
    fn ended(&self, said: Bytes, sha: &Bytes) -> Ran {
        let is_large = self.lua.used_memory() > MEMORY_KEPT;
        if is_large && self.lua.gc_collect().is_err() {
            self.at.ended.set(true);
        }
        if self.at.ended.get() {
            let why = format!(
                "ERR Script killed: it ran for more than {} ms, and nothing of it was done. script: {}",
                TIME_MAX.as_millis(),
                String::from_utf8_lossy(sha)
            );
            return Ran::Ended(error_line(&why));
        }
        Ran::Said(said)
    }

    /// It has been ended, or its memory cannot be had back: better a new one.
    pub fn is_spent(&self) -> bool {
        self.at.ended.get() || self.lua.used_memory() > MEMORY_KEPT
    }

    fn call(&self, how: &Function, script: &Function, request: &Request) -> Bytes {
        let array = |items: &[Bytes]| {
            let table = self.lua.create_table_with_capacity(items.len(), 0)?;
            for (at, item) in items.iter().enumerate() {
                table.raw_set(at + 1, self.lua.create_string(item)?)?;
            }
            Ok::<_, mlua::Error>(table)
        };
        let ran = array(&request.keys).and_then(|keys| {
            let argv = array(&request.args)?;
            how.call::<(bool, Value)>((script, keys, argv))
        });
        let sha = self.at.sha.borrow().clone();
        let raised = |err: &[u8], at: Option<(String, i64)>| {
            let mut line = err.to_vec();
            match at {
                Some((source, at)) => {
                    line.extend(format!(" script: {}, on {source}:{at}.", String::from_utf8_lossy(&sha)).into_bytes())
                }
                None => line.extend(format!(" script: {}", String::from_utf8_lossy(&sha)).into_bytes()),
            }
            [
                &b"-"[..],
                &line.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }).collect::<Vec<u8>>(),
                b"\r\n",
            ]
            .concat()
            .into()
        };
        match ran {
            Ok((true, value)) => convert::write(&value, self.at.protocol.get(), request.protocol)
                .unwrap_or_else(|why| raised(why.as_bytes(), None)),
            Ok((false, Value::Table(error))) => {
                let text = |name: &str| match error.raw_get::<Value>(name) {
                    Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
                    _ => None,
                };
                let line = error.raw_get::<Value>("line").ok().as_ref().and_then(number);
                let source = text("source").map(|source| String::from_utf8_lossy(&source).into_owned());
                raised(
                    &text("err").unwrap_or_else(|| b"ERR unknown error".to_vec()),
                    source.zip(line.map(|n| n as i64)),
                )
            }
            Ok((false, other)) => {
                let why = match &other {
                    Value::String(text) => text.as_bytes().to_vec(),
                    other => type_name(other).as_bytes().to_vec(),
                };
                raised(&[b"ERR ", &why[..]].concat(), None)
            }
            Err(mlua::Error::MemoryError(_)) => raised(b"ERR not enough memory", None),
            Err(error) => {
                let why = error.to_string();
                raised(format!("ERR {}", why.lines().next().unwrap_or_default()).as_bytes(), None)
            }
        }
    }
}

/// An error's bytes.
pub fn error_line(why: &str) -> Bytes {
    format!("-{}\r\n", why.replace(['\r', '\n'], " ")).into()
}

/// An error as a table, with where it happened: called where it is raised.
fn at_where(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match error {
        Value::Table(table) => table,
        other => {
            let table = lua.create_table()?;
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Error(error) => error_text(error).into_bytes(),
                Value::Nil => b"nil".to_vec(),
                Value::Boolean(is) => is.to_string().into_bytes(),
                other => number(other).map_or_else(|| type_name(other).to_owned(), |n| shortest(n, 14)).into_bytes(),
            };
            table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
            table
        }
    };
    for level in 0..20 {
        let seen = lua.inspect_stack(level, |frame| {
            let source = frame.source().source.map(|source| source.into_owned());
            (source, frame.current_line())
        });
        match seen {
            Some((Some(source), Some(line))) if matches!(&*source, "@user_script" | "@user_function") => {
                table.raw_set("source", source)?;
                table.raw_set("line", line)?;
                break;
            }
            Some(_) => (),
            None => break,
        }
    }
    Ok(Value::Table(table))
}

fn error_text(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => error_text(cause),
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::RuntimeError(why) => why.lines().next().unwrap_or_default().to_owned(),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

fn text_of(args: &[Value], at: usize, of: &str) -> Result<Vec<u8>, String> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Integer(n)) => Ok(n.to_string().into_bytes()),
        Some(Value::Number(n)) => Ok(shortest(*n, 14).into_bytes()),
        other => {
            let got = other.map_or("no value", type_name);
            Err(format!("bad argument #{} to '{of}' (string expected, got {got})", at + 1))
        }
    }
}

impl AtWork {
    fn begin(&self, reads_only: bool, sha: &Bytes) {
        self.until.set(Instant::now() + TIME_MAX);
        self.ended.set(false);
        self.reads_only.set(reads_only);
        self.protocol.set(Protocol::Resp2);
        *self.sha.borrow_mut() = sha.clone();
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        self.slot.goes_on(now);
        if !self.ended.get() && now >= self.until.get() {
            self.ended.set(true);
        }
        self.ended.get()
    }

    /// `redis.call` and `redis.pcall`: whether it is an error, and the reply.
    fn call(&self, lua: &Lua, args: &[Value]) -> mlua::Result<(bool, Value)> {
        if self.is_over() {
            return Err(mlua::Error::runtime("the script was ended"));
        }
        let reply = match words(args) {
            Ok(words) => self.door.run(words, self.reads_only.get()),
            Err(why) => Reply::error(why),
        };
        let is_error = reply.is_error();
        Ok((is_error, convert::to_lua(lua, reply, self.protocol.get())?))
    }

    /// Looks for a pattern. `how`: 0 finds, 1 finds the text as it is, 2 matches, 3 does not know `^`.
    fn scan(&self, lua: &Lua, [text, pattern]: [&Value; 2], init: &Value, how: u32) -> mlua::Result<MultiValue> {
        let fails =
            |why: String| Ok(MultiValue::from_iter([Value::Boolean(false), Value::String(lua.create_string(why)?)]));
        let name = ["find", "find", "match", "gmatch"][how.min(3) as usize];
        let args = [text.clone(), pattern.clone()];
        let (text, pattern) = match text_of(&args, 0, name).and_then(|text| Ok((text, text_of(&args, 1, name)?))) {
            Ok(both) => both,
            Err(why) => return fails(why),
        };
        let init = number(init).unwrap_or(1.0);
        let from = if init < 0.0 { (text.len() as f64 + init).max(0.0) } else { (init - 1.0).max(0.0) };
        let from = (from as usize).min(text.len());
        let found = if how == 1 || (how == 0 && pattern::is_plain(&pattern)) {
            let at = memchr::memmem::find(&text[from..], &pattern);
            Ok(at.map(|at| (from + at, from + at + pattern.len(), Vec::new())))
        } else {
            pattern::find(&text, &pattern, from, how != 3, &|| self.is_over())
        };
        let (start, end, captures) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(MultiValue::from_iter([Value::Boolean(true), Value::Nil])),
            Err(why) => return fails(why),
        };
        let mut all = vec![Value::Boolean(true), Value::Number(start as f64 + 1.0), Value::Number(end as f64)];
        for capture in captures {
            all.push(match capture {
                Captured::Text(text) => Value::String(lua.create_string(text)?),
                Captured::Position(at) => Value::Number(at as f64),
            });
        }
        Ok(MultiValue::from_iter(all))
    }

    fn replace(&self, args: &[Value]) -> Result<(Vec<u8>, usize), String> {
        let text = |at| text_of(args, at, "gsub");
        let most = args.get(3).and_then(number).map_or(usize::MAX, |n| n.max(0.0) as usize);
        pattern::replace(&text(0)?, &text(1)?, &text(2)?, most, MEMORY_MAX, &|| self.is_over())
    }
}

/// The words of a command.
fn words(args: &[Value]) -> Result<Vec<Bytes>, &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let word = |value: &Value| match value {
        Value::String(text) => Ok(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(n) => Ok(shortest(*n as f64, 17).into()),
        Value::Number(n) => Ok(shortest(*n, 17).into()),
        _ => Err("ERR Lua redis lib command arguments must be strings or integers"),
    };
    args.iter().map(word).collect()
}
