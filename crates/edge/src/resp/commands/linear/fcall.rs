//! FCALL: a function by name, one that is built in (`state`) or one of the service that the namespace declares (`functions`).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use state::linear::functions;

use super::script::said;
use super::*;
use crate::functions::{Call as Wanted, Ran as Of};
use crate::resp::scripts::request::{Request, What};

const ONE_KEY: &str = "ERR a function is applied to one key: FCALL function 1 key [arg ...]";

pub fn fcall(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let name = String::from_utf8_lossy(command.arg(1));
    let Some(function) = functions::find(&name).filter(|function| function.is_offered()) else {
        if let Some(service) = call.node.gate.view().functions.get(&*call.space().name) {
            return of_service(call, service.as_str().into(), name.into_owned());
        }
        return of_library(call);
    };
    if is(command.arg(0), "FCALL_RO") && !matches!(function.run, functions::Run::Read(_)) {
        return Act::Now(Reply::error("ERR Can not execute a script with write flag using *_ro command."));
    }
    if integer(command.arg(2)) != Some(1) || command.len() < 4 {
        return Act::Now(Reply::error(ONE_KEY));
    }
    let mut args: Vec<Bytes> = (4..command.len()).map(|i| command.value(i)).collect();
    // For who takes from a queue: how long it waits for a job. The function knows no waiting.
    if function.name == "queue.take" && args.len() == 3 {
        let Some(wait_ms) = args.pop().and_then(|ms| integer(&ms)).and_then(|ms| u64::try_from(ms).ok()) else {
            return Act::Now(Reply::error("ERR how long to wait for a job is a number of milliseconds"));
        };
        if wait_ms > 0 && call.client.multi.is_none() {
            return block::take_jobs(call, command.key(3), args, wait_ms);
        }
    }
    let steps = vec![Step::new(command.key(3), function.name, args)];
    let (name, view) = (call.space().name, call.node.gate.view());
    let weak = view.is_weak(&name, function.name);
    let then: Then = if weak { |got| called(got, |_| Reply::OK) } else { |got| called(got, plain_one) };
    Act::Linear(Op { weak, stale: call.client.stale, ..Op::of(name, steps) }, then)
}

fn called(got: Vec<Got>, shown: fn(Got) -> Reply) -> Reply {
    match only(got) {
        Got::Wrong(Wrong::Arguments) => Reply::error(
            "ERR wrong arguments for this function: FUNCTION LIST LIBRARYNAME coppice says what each takes",
        ),
        wrong @ Got::Wrong(_) => plain_one(wrong),
        got => shown(got),
    }
}

/// A function of a library in Lua, if there is one: the leader of its keys' shard knows.
fn of_library(call: &Call<'_>) -> Act {
    let command = call.command;
    let count = match integer(command.arg(2)) {
        None => return Act::Now(Reply::error("ERR Bad number of keys provided")),
        Some(..0) => return Act::Now(Reply::error("ERR Number of keys can't be negative")),
        Some(count) => usize::try_from(count).ok().filter(|count| *count <= command.len() - 3),
    };
    let Some(count) = count else {
        return Act::Now(Reply::error("ERR Number of keys can't be greater than number of args"));
    };
    let request = Request {
        what: What::Call { function: command.value(1) },
        reads_only: is(command.arg(0), "FCALL_RO"),
        protocol: call.client.protocol,
        keys: (3..3 + count).map(|at| command.key(at)).collect(),
        args: (3 + count..command.len()).map(|at| command.value(at)).collect(),
    };
    Act::Linear(Op::of(call.space().name, vec![request.step()]), said)
}

/// A function that a service's clones know.
fn of_service(call: &Call<'_>, service: Arc<str>, function: String) -> Act {
    let command = call.command;
    if is(command.arg(0), "FCALL_RO") {
        return Act::Now(Reply::error("ERR functions of services may write: use FCALL"));
    }
    if integer(command.arg(2)) != Some(1) || command.len() < 4 {
        return Act::Now(Reply::error(ONE_KEY));
    }
    let wanted = Wanted {
        namespace: call.space().name,
        service,
        key: command.key(3),
        function,
        args: (4..command.len()).map(|i| command.value(i)).collect(),
        class: call.client.class,
        left: None,
        once: call.once,
    };
    let functions = Arc::clone(&call.node.functions);
    Call::later(async move {
        match functions.apply(wanted).await {
            Outcome::Done(Of::Done(result)) => of_json(result),
            Outcome::Done(Of::Type) => wrong(Wrong::Type),
            Outcome::Done(Of::Failed(why)) => Reply::Error(format!("ERR {}", one_line(&why))),
            Outcome::Refused(refused) => ops::refused(&refused),
            Outcome::Unknown(unknown) => ops::unknown(&unknown),
        }
    })
}

/// JSON as this protocol has it: numbers that are whole, lists and texts as such, all else as its text.
fn of_json(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Nil,
        Value::Bool(is_so) => Reply::Int(is_so.into()),
        Value::String(text) => Reply::Bulk(text.into()),
        Value::Array(list) => Reply::List(list.into_iter().map(of_json).collect()),
        Value::Number(number) => number.as_i64().map_or_else(|| Reply::Bulk(number.to_string().into()), Reply::Int),
        Value::Object(map) => {
            let coded = map.get("base64").filter(|_| map.len() == 1).and_then(Value::as_str);
            let bytes = coded.and_then(|coded| STANDARD.decode(coded).ok());
            Reply::Bulk(bytes.map_or_else(|| Value::Object(map.clone()).to_string().into(), Bytes::from))
        }
    }
}

/// An error is a line.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_gives_reads_as_redis_has_it() {
        let bulk = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
        for (json, reply) in [
            ("null", Reply::Nil),
            ("true", Reply::Int(1)),
            ("-7", Reply::Int(-7)),
            ("1.5", bulk("1.5")),
            ("18446744073709551615", bulk("18446744073709551615")),
            ("\"a\"", bulk("a")),
            ("[1,[\"a\"]]", Reply::List(vec![Reply::Int(1), Reply::List(vec![bulk("a")])])),
            (r#"{"base64":"AP8="}"#, Reply::Bulk(Bytes::from_static(&[0, 255]))),
            (r#"{"base64":"?"}"#, bulk(r#"{"base64":"?"}"#)),
            (r#"{"a":1}"#, bulk(r#"{"a":1}"#)),
        ] {
            assert_eq!(format!("{:?}", of_json(serde_json::from_str(json).unwrap())), format!("{reply:?}"), "{json}");
        }
        assert_eq!(one_line("a\r\n-b\n"), "a -b");
    }
}
