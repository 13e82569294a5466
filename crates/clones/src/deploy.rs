//! Versions of a service's program: what a deploy changes, which versions are kept, and which of them clones are to run. The
//! declared service is what stands; a version that is being rolled out stands beside it until it is kept, or taken back.
//! How it is rolled out, and by what it is judged, is `rollout`'s matter.

use std::collections::BTreeMap;

use base::Span;
use serde::{Deserialize, Serialize};

use crate::Health;
use crate::ServiceSpec;
use crate::bounds::Bounds;
use crate::limits::VERSIONS_KEPT;
use crate::sandbox::Sandbox;
use crate::spec::Stop;
use crate::worker::Worker;

/// What a version of a service has of its own: all that its processes are started, probed and stopped with. The rest (where
/// it is reached, how many clones) is the service's, whatever version runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// SHA-256 of its folder as an archive; none of one that was not deployed but declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub run: Vec<String>,
    /// Name of the built-in service that it is, in place of `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    #[serde(default)]
    pub dir: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_timeout: Option<Span>,
    #[serde(default)]
    pub health: Option<Health>,
    #[serde(default)]
    pub namespaces: Vec<String>,
    #[serde(default, skip_serializing_if = "Sandbox::is_default")]
    pub sandbox: Sandbox,
    #[serde(default, skip_serializing_if = "Bounds::is_none")]
    pub limits: Bounds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    pub start_timeout: Span,
    pub stop: Stop,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Version {
    pub number: u32,
    /// Wall clock when it was deployed.
    pub at_ms: u64,
    pub files: u64,
    pub bytes: u64,
    pub program: Program,
    /// What goes before it has run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed: bool,
    /// What became of it, for people: `serves`, `is rolled out`, `was taken back: ...`, `was replaced`.
    pub fate: String,
}

/// All versions of one service: a record of the root group.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Deployed {
    /// Oldest first.
    pub versions: Vec<Version>,
    /// The one that is being rolled out.
    pub next: Option<u32>,
    /// It goes back by itself if it is worse. One that an operator went back to does not.
    pub judged: bool,
}

pub const SERVES: &str = "serves";
pub const ROLLED_OUT: &str = "is rolled out";
pub const REPLACED: &str = "was replaced";
/// Its reason follows.
pub const TAKEN_BACK: &str = "was taken back";

impl Version {
    /// Something is to run before any clone of it starts.
    pub fn waits(&self) -> bool {
        !self.passed && !self.program.before.is_empty()
    }
}

impl Program {
    pub fn of(spec: &ServiceSpec) -> Self {
        // All keys are named: whoever adds one says here whether it is a version's or the service's.
        let ServiceSpec {
            code,
            run,
            builtin,
            dir,
            env,
            secret_files,
            before,
            before_timeout,
            health,
            namespaces,
            sandbox,
            limits,
            user,
            worker,
            start_timeout,
            stop,
            version: _,
            clones: _,
            queues: _,
            wait: _,
            http: _,
            https: _,
            hsts: _,
            tcp: _,
            partitions: _,
            certificates: _,
            session: _,
            cache: _,
            profile: _,
            pipeline: _,
            access_log: _,
            downlink: _,
            answer_timeout: _,
            idle_timeout: _,
            body_max: _,
            schedule: _,
            every: _,
            catch_up: _,
            rerun: _,
            run_timeout: _,
            ask: _,
            ask_late: _,
            openapi: _,
        } = spec.clone();
        Self {
            code,
            run,
            builtin,
            dir,
            env,
            secret_files,
            before,
            before_timeout,
            health,
            namespaces,
            sandbox,
            limits,
            user,
            worker,
            start_timeout,
            stop,
        }
    }

    /// To be started in the folder that is deployed: a folder of the nodes, where it was so far, is none below that.
    pub fn in_folder(self) -> Self {
        let is_elsewhere = self.code.is_none() && self.dir.as_ref().is_some_and(|dir| dir.starts_with('/'));
        Self { dir: self.dir.filter(|_| !is_elsewhere), ..self }
    }

    /// The service as it is with this program.
    pub fn on(&self, spec: &ServiceSpec, version: u32) -> ServiceSpec {
        let Self {
            code,
            run,
            builtin,
            dir,
            env,
            secret_files,
            before,
            before_timeout,
            health,
            namespaces,
            sandbox,
            limits,
            user,
            worker,
            start_timeout,
            stop,
        } = self.clone();
        let rest = spec.clone();
        ServiceSpec {
            code,
            version,
            run,
            builtin,
            dir,
            env,
            secret_files,
            before,
            before_timeout,
            health,
            namespaces,
            sandbox,
            limits,
            user,
            worker,
            start_timeout,
            stop,
            ..rest
        }
    }
}

impl Deployed {
    pub fn version(&self, number: u32) -> Option<&Version> {
        self.versions.iter().find(|version| version.number == number)
    }

    /// The version that is being rolled out, and the service as it is with it.
    pub fn next_on(&self, spec: &ServiceSpec) -> Option<ServiceSpec> {
        let version = self.version(self.next?)?;
        Some(version.program.on(spec, version.number))
    }

    /// Begins with one that runs nowhere yet, or that stands: it just serves. Its number, which is the given one if it has one
    /// already.
    pub fn begin(&mut self, mut version: Version) -> u32 {
        let number = version.number.max(1);
        (version.number, version.fate) = (number, SERVES.into());
        (self.versions, self.next, self.judged) = (vec![version], None, true);
        number
    }

    /// Adds a version and begins to roll it out; its number.
    pub fn add(&mut self, mut version: Version) -> u32 {
        let number = self.versions.last().map_or(0, |last| last.number) + 1;
        (version.number, version.fate) = (number, ROLLED_OUT.into());
        self.versions.push(version);
        (self.next, self.judged) = (Some(number), true);
        self.forget();
        number
    }

    /// Begins to go back to an older one.
    pub fn back_to(&mut self, number: u32) {
        self.set_fate(number, ROLLED_OUT);
        (self.next, self.judged) = (Some(number), false);
    }

    /// What was rolled out stays.
    pub fn keep(&mut self) {
        let Some(number) = self.next.take() else { return };
        for version in self.versions.iter_mut().filter(|version| version.fate == SERVES) {
            version.fate = REPLACED.into();
        }
        self.set_fate(number, SERVES);
        self.forget();
    }

    /// What goes before a version has run.
    pub fn pass(&mut self, number: u32) {
        if let Some(version) = self.versions.iter_mut().find(|version| version.number == number) {
            version.passed = true;
        }
    }

    /// What was rolled out goes.
    pub fn take_back(&mut self, why: &str) {
        if let Some(number) = self.next.take() {
            self.set_fate(number, &format!("{TAKEN_BACK}: {why}"));
        }
    }

    fn set_fate(&mut self, number: u32, fate: &str) {
        if let Some(version) = self.versions.iter_mut().find(|version| version.number == number) {
            version.fate = fate.into();
        }
    }

    fn forget(&mut self) {
        while self.versions.len() > VERSIONS_KEPT {
            let is_in_use = |v: &Version| v.fate == SERVES || Some(v.number) == self.next;
            let Some(oldest) = self.versions.iter().position(|version| !is_in_use(version)) else { return };
            self.versions.remove(oldest);
        }
    }

    /// Archives that must be kept.
    pub fn codes(&self) -> impl Iterator<Item = &String> {
        self.versions.iter().filter_map(|version| version.program.code.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(code: &str) -> Version {
        let mut program = Program::of(&ServiceSpec::new(["app"]));
        program.code = Some(code.into());
        Version { number: 0, at_ms: 0, files: 1, bytes: 1, program, passed: false, fate: String::new() }
    }

    fn fates(deployed: &Deployed) -> Vec<String> {
        deployed.versions.iter().map(|v| format!("{} {}", v.number, v.fate)).collect()
    }

    #[test]
    fn versions_come_stay_go_and_come_back() {
        let mut all = Deployed::default();
        assert_eq!((all.begin(version("a")), all.next), (1, None));
        assert_eq!((all.add(version("b")), all.next), (2, Some(2)));
        all.take_back("it fails");
        assert_eq!(fates(&all), ["1 serves", "2 was taken back: it fails"]);
        all.add(version("c"));
        all.keep();
        assert_eq!((fates(&all)[0].as_str(), fates(&all)[2].as_str()), ("1 was replaced", "3 serves"));
        all.back_to(1);
        assert!(!all.judged);
        let spec = ServiceSpec { clones: 7.into(), ..ServiceSpec::new(["other"]) };
        let next = all.next_on(&spec).unwrap();
        assert_eq!((next.version, next.code.as_deref(), next.clones.max), (1, Some("a"), 7));
        assert_eq!(next.run, ["app"]);
        all.keep();
        assert_eq!((fates(&all)[0].as_str(), fates(&all)[2].as_str()), ("1 serves", "3 was replaced"));
    }

    #[test]
    fn what_comes_with_a_number_keeps_it_and_the_next_one_follows() {
        let mut all = Deployed::default();
        assert_eq!(all.begin(Version { number: 7, ..version("a") }), 7);
        assert_eq!((all.add(version("b")), fates(&all)), (8, vec!["7 serves".into(), "8 is rolled out".into()]));
    }

    #[test]
    fn the_oldest_are_forgotten_but_not_those_in_use() {
        let mut all = Deployed::default();
        all.begin(version("first"));
        for n in 0..30 {
            all.add(version(&n.to_string()));
            all.take_back("no");
        }
        assert_eq!(all.versions.len(), VERSIONS_KEPT);
        assert_eq!((all.versions[0].number, all.versions[1].number), (1, 31 - VERSIONS_KEPT as u32 + 2));
    }
}
