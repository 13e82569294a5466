//! What each clone of a service may take of its node's machine, and whom it runs as. In a declaration
//! `limits = { memory = "512MiB", pids = 100, files = 1024 }` and `user = "www-data"`. How a node holds a clone to it stands in
//! `host/src/bounds.rs`.

use base::process::Limits;
use serde::{Deserialize, Serialize};

use crate::limits::*;
use crate::spec::{ServiceSpec, SpecError};
use crate::text;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table, like limits = { memory = \"512MiB\", pids = 100, files = 1024 }"
)]
pub struct Bounds {
    /// Bytes of a clone with all that it starts.
    #[serde(with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes and threads of a clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Open files and connections of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

pub(crate) const BOUND_KEYS: [&str; 3] = ["memory", "pids", "files"];

impl Bounds {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn of_a_clone(&self) -> Limits {
        let Self { memory, pids, files } = *self;
        Limits { memory, pids, files }
    }
}

/// A key that programs of [`crate::LEVEL_BOUNDS`] and later know.
pub(crate) fn key(service: &ServiceSpec) -> Option<&'static str> {
    if service.limits.is_none() { service.user.as_ref().map(|_| "user") } else { Some("limits") }
}

/// All mistakes that can be seen in this service alone.
pub(crate) fn mistakes(service: &ServiceSpec) -> Vec<SpecError> {
    let Bounds { memory, pids, files } = service.limits;
    let few = memory.filter(|bytes| *bytes < BOUND_MEMORY_MIN).map(|bytes| {
        let [bytes, min] = [bytes, BOUND_MEMORY_MIN].map(text::format_bytes);
        ("limits.memory", format!("{bytes} is under {min}, with which no program starts"))
    });
    let counts = [("limits.pids", pids, BOUND_PIDS_MIN), ("limits.files", files, BOUND_FILES_MIN)];
    let counts = counts.into_iter().filter_map(|(key, count, min)| {
        let count = count.filter(|count| !(min..=BOUND_COUNT_MAX).contains(count))?;
        Some((key, format!("{count} is not between {min} and {BOUND_COUNT_MAX}")))
    });
    let user = service.user.as_ref().filter(|name| !is_user(name)).map(|name| {
        ("user", format!("{name:?} is no name of a user; write it as /etc/passwd has it, like user = \"www-data\""))
    });
    few.into_iter().chain(counts).chain(user).map(|(key, why)| SpecError { key: key.into(), why }).collect()
}

fn is_user(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=USER_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> ServiceSpec {
        toml::from_str(&format!("run = [\"a\"]\n{toml}")).unwrap()
    }

    #[test]
    fn bounds_and_a_user_are_kept_and_need_new_nodes() {
        for (toml, key) in [
            ("limits = { memory = \"512MiB\", pids = 100, files = 1024 }\nuser = \"www-data\"", "limits"),
            ("user = \"www-data\"", "user"),
        ] {
            let spec = read(toml);
            assert_eq!(spec.validate(), Ok(()));
            assert_eq!(spec.newer_key(), Some((key.into(), crate::LEVEL_BOUNDS)));
            assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
            assert_eq!(crate::deploy::Program::of(&spec).on(&ServiceSpec::new(["b"]), 0), spec, "it is the version's");
        }
        let kept = String::from_utf8_lossy(&ServiceSpec::new(["a"]).to_stored()).into_owned();
        assert!(!kept.contains("limits") && !kept.contains("user"), "older nodes read it: {kept}");
    }

    #[test]
    fn what_no_program_could_run_with_is_refused_with_its_key() {
        for (toml, key, why) in [
            ("limits = { memory = \"1MiB\" }", "limits.memory", "under 8MiB"),
            ("limits = { pids = 1 }", "limits.pids", "between 2 and"),
            ("limits = { files = 3 }", "limits.files", "between 16 and"),
            ("limits = { files = 2000000 }", "limits.files", "1048576"),
            ("user = \"\"", "user", "www-data"),
            ("user = \"a b\"", "user", "passwd"),
            ("user = \"-root\"", "user", "passwd"),
        ] {
            let errors = read(toml).validate().unwrap_err();
            assert!(errors.len() == 1 && errors[0].key == key && errors[0].why.contains(why), "{toml}: {errors:?}");
        }
        let unknown = toml::from_str::<ServiceSpec>("run = [\"a\"]\nlimits = { cpu = 1 }").unwrap_err().to_string();
        assert!(unknown.contains("unknown field"), "{unknown}");
    }
}
