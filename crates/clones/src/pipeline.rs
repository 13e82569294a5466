//! Pipelines (TACC 2.3): what answers of a service pass on their way out, step by step, each a job for a worker. In a
//! declaration
//! `[pipeline.NAME]` with `[[pipeline.NAME.step]]`; a service or one of its partitions says `pipeline = "NAME"`. Which steps apply is
//! decided here, by what an answer is; who asks the workers is the edge.

use std::collections::{BTreeMap, BTreeSet};

use base::Span;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::*;
use crate::spec::{ServiceSpec, SpecError};
use crate::worker::{fits, type_error};
use crate::{LEVEL_GATHER, LEVEL_NEAR, LEVEL_WORKERS, text};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineSpec {
    /// Namespace of class `cache` in which results are kept; none: each answer is made anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// All steps together, and until the whole answer is there.
    #[serde(default = "timeout_default", with = "text::span")]
    pub timeout: Span,
    /// A larger answer passes as it is; none: [`PIPELINE_BODY_DEFAULT`].
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub body_max: Option<u64>,
    #[serde(default, skip_serializing_if = "OnFail::is_default")]
    pub on_fail: OnFail,
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The service that does it; none of what gathers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// In place of `worker`: parts that are made of the same content, all at once. What comes of it is a document of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gather: Vec<Step>,
    /// Of so many parts there must be something, else the step has failed; none: of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub need: Option<u32>,
    /// Of a part: what it is called in the document; none: as its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Types of content that it is for, `text/*` for all of a kind; none: all.
    #[serde(default, rename = "type", skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Bytes of content that it is for.
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub size_min: Option<u64>,
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub size_max: Option<u64>,
    /// It is for people in whose profile these stand, so, alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profile: BTreeMap<String, Value>,
    /// `{profile.NAME}` is what stands there in the profile of who asks; without one, the parameter is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// None: as the pipeline says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_fail: Option<OnFail>,
    /// This step alone; none: what the pipeline leaves.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// What becomes of an answer when a step fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFail {
    /// It goes out as the service gave it.
    #[default]
    Bypass,
    /// What the pipeline made last for the same URL goes out, if that is for everybody; else as the service gave it.
    Near,
    /// 502 goes out: for what must not be seen as it is.
    Error,
}

impl OnFail {
    fn is_default(&self) -> bool {
        *self == Self::Bypass
    }
}

impl Step {
    /// What a part is called.
    pub fn part_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.worker)
    }

    /// Parts of which there must be something.
    pub fn need(&self) -> u32 {
        self.need.unwrap_or(1)
    }

    /// What becomes of a gathering whose part fails: with `error` it has failed, too; else the part is missing.
    pub fn on_fail_of_part(&self) -> OnFail {
        self.on_fail.unwrap_or_default()
    }

    /// Whether it is for content of this type, if its size fits.
    pub fn is_for(&self, kind: &str) -> bool {
        self.types.is_empty() || fits(&self.types, kind)
    }

    pub fn applies(&self, kind: &str, bytes: u64) -> bool {
        let is_large = self.size_min.is_none_or(|min| bytes >= min);
        let is_small = self.size_max.is_none_or(|max| bytes <= max);
        is_large && is_small && self.is_for(kind)
    }
}

/// The name of the field of a profile that a parameter is.
fn field(param: &str) -> Option<&str> {
    param.strip_prefix("{profile.")?.strip_suffix('}')
}

impl Step {
    /// It goes by the profile of who asks.
    pub fn uses_profile(&self) -> bool {
        let of_it = |step: &Self| !step.profile.is_empty() || step.params.values().any(|param| field(param).is_some());
        of_it(self) || self.gather.iter().any(of_it)
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        let params = self.params.values().filter_map(|param| field(param));
        self.profile.keys().map(String::as_str).chain(params)
    }

    /// What is wrong with a step that gathers, or says what only such a one and its parts may say.
    fn mistakes_of_gather(&self, wrong: &mut impl FnMut(&str, String)) {
        if self.name.is_some() {
            wrong("name", "is for parts of `gather`".into());
        }
        if self.gather.is_empty() {
            if self.need.is_some() {
                wrong("need", "is for steps with `gather`".into());
            }
            return;
        }
        if !self.worker.is_empty() {
            wrong("worker", "stands beside `gather`: what is made of the parts is for a step behind it".into());
        }
        if !self.params.is_empty() {
            wrong("params", "stand beside `gather`: parameters are for its parts".into());
        }
        if self.gather.len() > PIPELINE_PARTS_MAX {
            wrong("gather", format!("{} parts are over the limit of {PIPELINE_PARTS_MAX}", self.gather.len()));
        }
        if !(1..=self.gather.len()).contains(&(self.need() as usize)) {
            wrong("need", format!("{} is not between 1 and the number of parts, {}", self.need(), self.gather.len()));
        }
        let mut names = BTreeSet::new();
        for part in &self.gather {
            let name = part.part_name();
            let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
            if part.name.is_some() && !((1..=63).contains(&name.len()) && name.bytes().all(is_plain)) {
                wrong("gather.name", format!("{name:?} is no name: up to 63 of a-z, 0-9, - and _ are one"));
            }
            if !names.insert(name) {
                wrong("gather.name", format!("two parts are called {name:?}; give one another name"));
            }
            if !part.gather.is_empty() || part.need.is_some() {
                wrong("gather.gather", "stands in a part: parts are jobs of workers".into());
            }
        }
    }

    /// The step as it is for somebody with this profile; none: it is not for that one.
    pub fn of_profile(&self, profile: &Map<String, Value>) -> Option<Self> {
        if self.profile.iter().any(|(name, wanted)| profile.get(name) != Some(wanted)) {
            return None;
        }
        let params = self.params.iter().filter_map(|(name, param)| {
            let value = match field(param) {
                None => param.clone(),
                Some(field) => match profile.get(field)? {
                    Value::String(text) => text.clone(),
                    Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
                    other => other.to_string(),
                },
            };
            Some((name.clone(), value))
        });
        Some(Self { params: params.collect(), ..self.clone() })
    }
}

impl PipelineSpec {
    /// Its answers differ from person to person.
    pub fn uses_profile(&self) -> bool {
        self.steps.iter().any(Step::uses_profile)
    }

    /// Fields of a profile by which its steps go.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().flat_map(|step| step.fields().chain(step.gather.iter().flat_map(|part| part.fields())))
    }

    pub fn body_max(&self) -> u64 {
        self.body_max.unwrap_or(PIPELINE_BODY_DEFAULT)
    }

    /// What a failure of this step does.
    pub fn on_fail(&self, step: &Step) -> OnFail {
        step.on_fail.unwrap_or(self.on_fail)
    }

    /// All mistakes that can be seen in a pipeline and in what is declared beside it. `caches` are namespaces of class
    /// `cache`.
    pub fn mistakes(
        &self,
        services: &BTreeMap<String, ServiceSpec>,
        caches: &BTreeSet<String>,
    ) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        if let Some(cache) = self.cache.as_ref().filter(|cache| !caches.contains(*cache)) {
            wrong.push(("cache".into(), format!("{cache:?} is no declared namespace of class cache")));
        }
        let is_without = "is \"near\", and nothing is kept: write cache = \"NAME\" of a namespace of class cache";
        if self.on_fail == OnFail::Near && self.cache.is_none() {
            wrong.push(("on_fail".into(), is_without.into()));
        }
        let span_error = |span: Span| {
            let [span, max] = [span, PIPELINE_TIMEOUT_MAX].map(text::format_span);
            format!("{span} is not between 10ms and {max}")
        };
        let is_span = |span: Span| (WORKER_TIMEOUT_MIN..=PIPELINE_TIMEOUT_MAX).contains(&span);
        if !is_span(self.timeout) {
            wrong.push(("timeout".into(), span_error(self.timeout)));
        }
        if !(1..=PIPELINE_BODY_MAX).contains(&self.body_max()) {
            let [bytes, max] = [self.body_max(), PIPELINE_BODY_MAX].map(text::format_bytes);
            wrong.push(("body_max".into(), format!("{bytes} is not between 1 byte and {max}")));
        }
        if !(1..=PIPELINE_STEPS_MAX).contains(&self.steps.len()) {
            let why = format!(
                "{} steps are not between 1 and {PIPELINE_STEPS_MAX}; a step is [[pipeline.NAME.step]]",
                self.steps.len()
            );
            wrong.push(("step".into(), why));
        }
        for step in &self.steps {
            step.mistakes_of_gather(&mut |key: &str, why: String| wrong.push((format!("step.{key}"), why)));
        }
        let of_steps = self.steps.iter().map(|step| ("step", step));
        let of_parts = self.steps.iter().flat_map(|step| step.gather.iter().map(|part| ("step.gather", part)));
        for (table, step) in of_steps.chain(of_parts) {
            let mut wrong = |key: &str, why: String| wrong.push((format!("{table}.{key}"), why));
            if step.on_fail == Some(OnFail::Near) && self.cache.is_none() {
                wrong("on_fail", is_without.into());
            }
            match services.get(&step.worker) {
                _ if !step.gather.is_empty() => (),
                Some(spec) if spec.worker.is_some() => (),
                None if step.worker.is_empty() => {
                    wrong(
                        "worker",
                        "must be there: the service that does it; or parts: [[pipeline.NAME.step.gather]]".into(),
                    );
                }
                Some(_) => wrong(
                    "worker",
                    format!("service {:?} is no worker; give it worker = {{ form = \"once\" }}", step.worker),
                ),
                None => wrong("worker", format!("service {:?} is not declared", step.worker)),
            }
            if step.types.len() > WORKER_TYPES_MAX {
                wrong("type", format!("{} types are over the limit of {WORKER_TYPES_MAX}", step.types.len()));
            }
            if let Some(why) = step.types.iter().find_map(|of| type_error(of, true)) {
                wrong("type", why);
            }
            if step.size_min.zip(step.size_max).is_some_and(|(min, max)| min > max) {
                wrong("size_min", "is over size_max, so the step is for nothing".into());
            }
            if let Some(span) = step.timeout.filter(|span| !is_span(*span)) {
                wrong("timeout", span_error(span));
            }
            let bytes: usize = step.params.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
            if bytes > PIPELINE_PARAMS_BYTES_MAX || step.params.len() > PIPELINE_PARAMS_MAX {
                wrong("params", format!("are over {PIPELINE_PARAMS_MAX}, or over {PIPELINE_PARAMS_BYTES_MAX} bytes"));
            }
            let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            let is_name = |name: &&String| (1..=32).contains(&name.len()) && name.bytes().all(is_plain);
            if let Some(name) = step.params.keys().find(|name| !is_name(name)) {
                wrong("params", format!("{name:?} is no parameter: up to 32 of a-z, 0-9 and _ are one"));
            }
        }
        wrong
    }

    /// What only newer programs know of it, and since when.
    pub fn newer_key(&self) -> (Option<&'static str>, u32) {
        if self.steps.iter().any(|step| !step.gather.is_empty()) {
            return (Some("step"), LEVEL_GATHER);
        }
        if self.uses_profile() {
            return (Some("step"), crate::LEVEL_PROFILES);
        }
        let says = self.steps.iter().filter_map(|step| step.on_fail).chain([self.on_fail]);
        if says.into_iter().any(|on_fail| on_fail == OnFail::Near) {
            return (Some("on_fail"), LEVEL_NEAR);
        }
        (None, LEVEL_WORKERS)
    }

    /// Reads the kept form, if this version understands all of it.
    pub fn from_stored(value: serde_json::Value) -> Option<Self> {
        serde_json::from_value(value).ok()
    }
}

/// Pipelines that a service and its partitions name and that are not `declared`.
pub fn unknown(name: &str, spec: &ServiceSpec, declared: &BTreeSet<String>) -> Vec<SpecError> {
    let of_partitions = spec.partitions.iter().map(|p| (format!("partition.{}.pipeline", p.name), &p.pipeline));
    let all = [("pipeline".to_owned(), &spec.pipeline)].into_iter().chain(of_partitions);
    let lacks = all.filter_map(|(key, named)| {
        let named = named.as_ref()?;
        let why = match spec.http {
            None => "is for answers to HTTP requests; add for example http = { path = \"/\" }".to_owned(),
            Some(_) if declared.contains(named) => return None,
            Some(_) => format!("{named:?} is not declared; write [pipeline.{named}] with its steps"),
        };
        Some(SpecError { key: format!("service.{name}.{key}"), why })
    });
    lacks.collect()
}

/// The key by which a service says it, and since when that is known.
pub(crate) fn newer_key(spec: &ServiceSpec) -> Option<(String, u32)> {
    let of_partition = || spec.partitions.iter().find(|p| p.pipeline.is_some());
    let own = spec.pipeline.as_ref().map(|_| "pipeline".to_owned());
    let key = own.or_else(|| Some(format!("partition.{}.pipeline", of_partition()?.name)))?;
    Some((key, LEVEL_WORKERS))
}

fn timeout_default() -> Span {
    PIPELINE_TIMEOUT_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(toml: &str) -> PipelineSpec {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn steps_apply_by_type_and_size() {
        let pipeline = pipeline(
            "[[step]]\nworker = \"a\"\ntype = [\"text/html\"]\nsize_min = \"1KiB\"\nsize_max = 2048\n[[step]]\nworker = \"b\"",
        );
        for (kind, bytes, expect) in [
            ("text/html; charset=utf-8", 1024, [true, true]),
            ("text/html", 2048, [true, true]),
            ("text/html", 1023, [false, true]),
            ("text/html", 2049, [false, true]),
            ("image/png", 1500, [false, true]),
            ("", 0, [false, true]),
        ] {
            let got: Vec<bool> = pipeline.steps.iter().map(|step| step.applies(kind, bytes)).collect();
            assert_eq!(got, expect, "{kind} {bytes}");
        }
        assert_eq!((pipeline.timeout, pipeline.body_max()), (PIPELINE_TIMEOUT_DEFAULT, PIPELINE_BODY_DEFAULT));
        let again = serde_json::to_value(&pipeline).unwrap();
        assert_eq!(PipelineSpec::from_stored(again), Some(pipeline));
    }

    #[test]
    fn a_step_that_says_nothing_fails_as_its_pipeline() {
        let pipeline =
            pipeline("on_fail = \"error\"\n[[step]]\nworker = \"a\"\non_fail = \"bypass\"\n[[step]]\nworker = \"b\"");
        let got: Vec<OnFail> = pipeline.steps.iter().map(|step| pipeline.on_fail(step)).collect();
        assert_eq!(got, [OnFail::Bypass, OnFail::Error]);
    }

    #[test]
    fn mistakes_name_their_key() {
        let mut worker = ServiceSpec::new(["tr"]);
        worker.worker = Some(crate::Worker::new(crate::worker::Form::Once));
        let services = [("a".to_owned(), worker), ("plain".to_owned(), ServiceSpec::new(["x"]))].into();
        let caches = ["made".to_owned()].into();
        for (toml, key) in [
            ("", Some("step")),
            ("[[step]]\nworker = \"a\"", None),
            ("cache = \"made\"\n[[step]]\nworker = \"a\"", None),
            ("cache = \"other\"\n[[step]]\nworker = \"a\"", Some("cache")),
            ("on_fail = \"near\"\n[[step]]\nworker = \"a\"", Some("on_fail")),
            ("[[step]]\nworker = \"a\"\non_fail = \"near\"", Some("step.on_fail")),
            ("cache = \"made\"\non_fail = \"near\"\n[[step]]\nworker = \"a\"", None),
            ("timeout = \"0s\"\n[[step]]\nworker = \"a\"", Some("timeout")),
            ("body_max = \"1GiB\"\n[[step]]\nworker = \"a\"", Some("body_max")),
            ("[[step]]\nworker = \"plain\"", Some("step.worker")),
            ("[[step]]\nworker = \"none\"", Some("step.worker")),
            ("[[step]]\nsize_min = 1", Some("step.worker")),
            ("[[step]]\n[[step.gather]]\nworker = \"a\"", None),
            (
                "[[step]]\nneed = 2\n[[step.gather]]\nworker = \"a\"\n[[step.gather]]\nworker = \"a\"\nname = \"b\"",
                None,
            ),
            ("[[step]]\n[[step.gather]]\nworker = \"a\"\n[[step.gather]]\nworker = \"a\"", Some("step.gather.name")),
            ("[[step]]\n[[step.gather]]\nworker = \"a\"\nname = \"A b\"", Some("step.gather.name")),
            ("[[step]]\nneed = 2\n[[step.gather]]\nworker = \"a\"", Some("step.need")),
            ("[[step]]\nneed = 0\n[[step.gather]]\nworker = \"a\"", Some("step.need")),
            ("[[step]]\nworker = \"a\"\nneed = 1", Some("step.need")),
            ("[[step]]\nworker = \"a\"\nname = \"b\"", Some("step.name")),
            ("[[step]]\nworker = \"a\"\n[[step.gather]]\nworker = \"a\"", Some("step.worker")),
            ("[[step]]\nparams = { q = \"1\" }\n[[step.gather]]\nworker = \"a\"", Some("step.params")),
            ("[[step]]\n[[step.gather]]\nworker = \"plain\"", Some("step.gather.worker")),
            ("[[step]]\n[[step.gather]]\nworker = \"a\"\non_fail = \"near\"", Some("step.gather.on_fail")),
            ("[[step]]\n[[step.gather]]\nworker = \"a\"\ntimeout = \"1d\"", Some("step.gather.timeout")),
            (
                "[[step]]\n[[step.gather]]\nworker = \"a\"\n[[step.gather.gather]]\nworker = \"a\"",
                Some("step.gather.gather"),
            ),
            ("[[step]]\nworker = \"a\"\ntype = [\"html\"]", Some("step.type")),
            ("[[step]]\nworker = \"a\"\nsize_min = 2\nsize_max = 1", Some("step.size_min")),
            ("[[step]]\nworker = \"a\"\ntimeout = \"1d\"", Some("step.timeout")),
            ("[[step]]\nworker = \"a\"\nparams = { Word = \"x\" }", Some("step.params")),
        ] {
            let found = pipeline(toml).mistakes(&services, &caches);
            let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(keys, key.into_iter().collect::<Vec<_>>(), "{toml}: {found:?}");
        }
    }

    #[test]
    fn what_gathers_needs_newer_programs_and_goes_by_the_fields_of_its_parts() {
        let gathers = pipeline(
            "[[step]]\n[[step.gather]]\nworker = \"a\"\nparams = { q = \"{profile.town}\" }\n[[step.gather]]\nworker = \"b\"",
        );
        assert_eq!(gathers.newer_key(), (Some("step"), LEVEL_GATHER));
        assert!(gathers.uses_profile() && gathers.fields().eq(["town"]));
        let names: Vec<&str> = gathers.steps[0].gather.iter().map(Step::part_name).collect();
        assert_eq!((names, gathers.steps[0].need()), (vec!["a", "b"], 1));
        let again = serde_json::to_value(&gathers).unwrap();
        assert_eq!(PipelineSpec::from_stored(again), Some(gathers));
    }

    #[test]
    fn a_service_names_pipelines_that_are_there_and_has_answers() {
        let spec = |toml: &str| toml::from_str::<ServiceSpec>(&format!("run = [\"x\"]\n{toml}")).unwrap();
        let declared = ["page".to_owned()].into();
        let keys = |spec: &ServiceSpec| unknown("s", spec, &declared).into_iter().map(|e| e.key).collect::<Vec<_>>();
        let good = spec(
            "http = {}\npipeline = \"page\"\npartition = [{ name = \"all\", path = \"/a\", pipeline = \"page\" }]",
        );
        assert_eq!(keys(&good), [""; 0]);
        assert_eq!(good.newer_key(), Some(("pipeline".into(), LEVEL_WORKERS)));
        let of_partition = spec("http = {}\npartition = [{ name = \"all\", pipeline = \"gone\" }]");
        assert_eq!(keys(&of_partition), ["service.s.partition.all.pipeline"]);
        assert_eq!(of_partition.newer_key(), Some(("partition.all.pipeline".into(), LEVEL_WORKERS)));
        assert_eq!(keys(&spec("pipeline = \"page\"")), ["service.s.pipeline"], "it has no answers");
    }
}
