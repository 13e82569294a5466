//! A service whose clones are workers (TACC 2.2): programs that make one content of another, and know nothing of
//! networks. In a declaration `worker = { form = "once" }` beside `run`. A stub of the node's own program stands before
//! the program and speaks HTTP for it, so a worker is placed, grown, healed and upgraded as any other clone.

use base::Span;
use base::process::{OWN_PROGRAM, SERVE_WORKER};
use serde::{Deserialize, Serialize};

use crate::limits::*;
use crate::spec::{ServiceSpec, SpecError};
use crate::text;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, like worker = { form = \"once\" }")]
pub struct Worker {
    pub form: Form,
    /// Jobs that a clone does at a time; of form `stream` each in a process of its own that is kept.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub run_at_once: u32,
    /// Types that it takes, `text/*` for all of a kind; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<String>,
    /// Type of what it makes; none: that of what it was given, unless it says another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives: Option<String>,
    /// One job at most; then its process is killed.
    #[serde(default = "timeout_default", with = "text::span")]
    pub timeout: Span,
    /// Bytes of data that a process may have; none: [`WORKER_MEMORY_DEFAULT`].
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Cage::is_default")]
    pub sandbox: Cage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A program for each job: content to its standard input, the result from its standard output.
    Once,
    /// A program that is kept: a line of JSON and then bytes, both ways.
    Stream,
    /// The program listens itself, and gets jobs as HTTP requests.
    Http,
}

/// What the program of a worker on pipes may do beyond the files that its service's `sandbox` leaves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cage {
    /// No sockets, no looking into other processes, no mounts, keys, io_uring.
    #[default]
    Strict,
    /// The same, but for sockets.
    Net,
    None,
}

impl Cage {
    fn is_default(&self) -> bool {
        *self == Self::Strict
    }
}

pub(crate) const WORKER_KEYS: [&str; 7] = ["form", "run_at_once", "takes", "gives", "timeout", "memory", "sandbox"];

impl Worker {
    pub fn new(form: Form) -> Self {
        let (takes, gives, memory, sandbox) = (Vec::new(), None, None, Cage::Strict);
        Self { form, run_at_once: 1, takes, gives, timeout: WORKER_TIMEOUT_DEFAULT, memory, sandbox }
    }

    pub fn memory(&self) -> u64 {
        self.memory.unwrap_or(WORKER_MEMORY_DEFAULT)
    }

    /// Whether it takes content of this type, which may have parameters: `text/html; charset=utf-8`.
    pub fn takes(&self, of: &str) -> bool {
        self.takes.is_empty() || fits(&self.takes, of)
    }

    /// Program and arguments of a clone, whose own are these.
    pub(crate) fn command(&self, own: Vec<String>) -> Vec<String> {
        if self.form == Form::Http {
            return own;
        }
        let says = serde_json::to_string(self).expect("plain data");
        [OWN_PROGRAM, SERVE_WORKER, &says, "--"].map(str::to_owned).into_iter().chain(own).collect()
    }

    /// All mistakes that can be seen in this service alone.
    pub(crate) fn validate(service: &ServiceSpec) -> Vec<SpecError> {
        let Some(worker) = &service.worker else { return Vec::new() };
        let mut errors = Vec::new();
        let mut wrong = |key: &str, why: String| errors.push(SpecError { key: format!("worker.{key}"), why });
        let Self { form, run_at_once, takes, gives, timeout, memory, sandbox } = worker;
        if !(1..=WORKER_RUN_AT_ONCE_MAX).contains(run_at_once) {
            wrong("run_at_once", format!("{run_at_once} is not between 1 and {WORKER_RUN_AT_ONCE_MAX}"));
        }
        if takes.len() > WORKER_TYPES_MAX {
            wrong("takes", format!("{} types are over the limit of {WORKER_TYPES_MAX}", takes.len()));
        }
        if let Some(why) = takes.iter().find_map(|of| type_error(of, true)) {
            wrong("takes", why);
        }
        if let Some(why) = gives.as_ref().and_then(|of| type_error(of, false)) {
            wrong("gives", why);
        }
        if !(WORKER_TIMEOUT_MIN..=WORKER_TIMEOUT_MAX).contains(timeout) {
            let [timeout, min, max] = [*timeout, WORKER_TIMEOUT_MIN, WORKER_TIMEOUT_MAX].map(text::format_span);
            wrong("timeout", format!("{timeout} is not between {min} and {max}"));
        }
        if let Some(bytes) = memory.filter(|bytes| *bytes < WORKER_MEMORY_MIN) {
            let [bytes, min] = [bytes, WORKER_MEMORY_MIN].map(text::format_bytes);
            wrong("memory", format!("{bytes} is under {min}, with which no program starts"));
        }
        if *form == Form::Http {
            let set =
                [("run_at_once", *run_at_once != 1), ("memory", memory.is_some()), ("sandbox", !sandbox.is_default())];
            for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
                wrong(key, "is of a program on pipes, and with form = \"http\" it listens itself; leave it out".into());
            }
            return errors;
        }
        let Some(own) = [("builtin", service.builtin.is_some()), ("tcp", !service.tcp.is_empty())]
            .into_iter()
            .find_map(|(key, is_set)| is_set.then_some(key))
        else {
            return errors;
        };
        wrong(
            "form",
            format!("is of a program on pipes, and {own} is of one that listens itself; leave one of them out"),
        );
        errors
    }
}

/// Whether a type is one of these patterns; what follows it after `;` does not matter.
pub fn fits(patterns: &[String], of: &str) -> bool {
    let of = of.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(begin) => of.starts_with(&begin.to_ascii_lowercase()),
        None => of == pattern.to_ascii_lowercase(),
    })
}

pub(crate) fn type_error(of: &str, is_pattern: bool) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"+-._".contains(&b);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_plain);
    let is_one =
        of.split_once('/').is_some_and(|(kind, own)| is_word(kind) && (is_word(own) || is_pattern && own == "*"));
    let fits = of.len() <= TYPE_BYTES_MAX && (is_one || is_pattern && of == "*");
    let like = if is_pattern { "\"text/html\" or \"image/*\"" } else { "\"text/html\"" };
    (!fits).then(|| format!("{of:?} is no type of content; write for example {like}"))
}

fn one() -> u32 {
    1
}
fn is_one(number: &u32) -> bool {
    *number == 1
}
fn timeout_default() -> Span {
    WORKER_TIMEOUT_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(toml: &str) -> Result<ServiceSpec, String> {
        toml::from_str::<ServiceSpec>(&format!("run = [\"a\", \"{{word}}\"]\n{toml}")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_worker_is_started_behind_its_stub_and_one_that_listens_as_it_is() {
        let spec = service("worker = { form = \"once\", timeout = \"2s\" }").unwrap();
        assert_eq!(spec.validate(), Ok(()));
        let says = r#"{"form":"once","timeout":"2s"}"#;
        assert_eq!(spec.command(), ["/proc/self/exe", "serve-worker", says, "--", "a", "{word}"]);
        assert_eq!(serde_json::from_str::<Worker>(says).unwrap(), spec.worker.clone().unwrap());
        assert!(spec.listens(), "its stub does");
        assert_eq!(spec.newer_key(), Some(("worker".into(), crate::LEVEL_WORKERS)));
        let listens = service("worker = { form = \"http\" }").unwrap();
        assert_eq!(listens.validate(), Ok(()));
        assert_eq!((listens.command(), listens.listens()), (vec!["a".to_owned(), "{word}".to_owned()], true));
    }

    #[test]
    fn clones_of_a_worker_may_be_a_range_though_nothing_outside_reaches_it() {
        let range = "clones = { min = 1, max = 4 }";
        assert_eq!(service(&format!("{range}\nworker = {{ form = \"stream\" }}")).unwrap().validate(), Ok(()));
        assert!(service(range).unwrap().validate().is_err());
    }

    #[test]
    fn mistakes_name_their_key() {
        for (toml, key) in [
            ("worker = { form = \"once\", run_at_once = 0 }", "worker.run_at_once"),
            ("worker = { form = \"once\", run_at_once = 65 }", "worker.run_at_once"),
            ("worker = { form = \"once\", takes = [\"html\"] }", "worker.takes"),
            ("worker = { form = \"once\", takes = [\"$PORT/a\"] }", "worker.takes"),
            ("worker = { form = \"once\", gives = \"text/*\" }", "worker.gives"),
            ("worker = { form = \"once\", timeout = \"0s\" }", "worker.timeout"),
            ("worker = { form = \"once\", memory = \"1KiB\" }", "worker.memory"),
            ("worker = { form = \"http\", run_at_once = 2 }", "worker.run_at_once"),
            ("worker = { form = \"http\", memory = \"1GiB\" }", "worker.memory"),
            ("worker = { form = \"http\", sandbox = \"net\" }", "worker.sandbox"),
            ("tcp = { port = 25 }\nworker = { form = \"once\" }", "worker.form"),
        ] {
            let errors = service(toml).unwrap().validate().unwrap_err();
            assert_eq!(errors.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), [key], "{toml}: {errors:?}");
        }
        for (toml, why) in [
            ("worker = { form = \"twice\" }", "`once`"),
            ("worker = { }", "missing field `form`"),
            ("worker = { form = \"once\", sandbox = \"off\" }", "`strict`"),
            ("worker = { form = \"once\", colour = 1 }", "unknown field"),
        ] {
            let told = service(toml).unwrap_err();
            assert!(told.contains(why), "{toml}: {told}");
        }
    }

    #[test]
    fn a_type_fits_whatever_its_letters_and_parameters() {
        let list = |all: &[&str]| all.iter().map(|of| (*of).to_owned()).collect::<Vec<_>>();
        for (patterns, of, expect) in [
            (&["text/html"][..], "Text/HTML; charset=utf-8", true),
            (&["text/html"], "text/htmlx", false),
            (&["image/*"], "image/png", true),
            (&["image/*"], "imagex/png", false),
            (&["*"], "", true),
            (&["text/plain", "text/html"], "text/html", true),
        ] {
            assert_eq!(fits(&list(patterns), of), expect, "{patterns:?} {of}");
        }
    }
}
