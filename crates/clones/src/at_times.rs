//! What a declaration says of runs: what goes before a version, and when a service runs that has no standing clones.

use base::Span;
use base::schedule::Schedule;

use crate::limits::*;
use crate::size::Size;
use crate::text::format_span;
use crate::{ServiceSpec, SpecError};

impl ServiceSpec {
    /// Whether it runs at times, and has no standing clones.
    pub fn is_at_times(&self) -> bool {
        self.schedule.is_some() || self.every.is_some()
    }

    /// How many standing clones it has.
    pub fn standing(&self) -> Size {
        if self.is_at_times() { 0.into() } else { self.clones }
    }

    /// When it runs, if it runs at times.
    pub fn times(&self) -> Option<Schedule> {
        match (&self.schedule, self.every) {
            (Some(text), _) => Schedule::parse(text).ok(),
            (None, Some(every)) => Some(Schedule::every(every)),
            (None, None) => None,
        }
    }

    /// Its times, for people: `0 3 * * *`, `every 2s`.
    pub fn times_text(&self) -> Option<String> {
        self.schedule.clone().or_else(|| Some(format!("every {}", format_span(self.every?))))
    }
}

/// A key that came with [`crate::LEVEL_RUNS`].
pub(crate) fn key(spec: &ServiceSpec) -> Option<&'static str> {
    let set = [
        ("before", !spec.before.is_empty()),
        ("before_timeout", spec.before_timeout.is_some()),
        ("schedule", spec.schedule.is_some()),
        ("every", spec.every.is_some()),
        ("catch_up", spec.catch_up),
        ("rerun", spec.rerun),
        ("run_timeout", spec.run_timeout.is_some()),
    ];
    set.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
}

pub(crate) fn mistakes(spec: &ServiceSpec) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |key: &str, why: String| errors.push(SpecError { key: key.into(), why });
    if !spec.before.is_empty() {
        if spec.before[0].is_empty() || spec.before.iter().any(|word| word.contains('\0')) {
            let why = "names no program; write for example before = [\"python3\", \"manage.py\", \"migrate\"]";
            wrong("before", why.into());
        }
        if spec.builtin.is_some() || spec.worker.is_some() {
            wrong("before", "is of a program of one's own, and goes with neither builtin nor worker".into());
        }
    } else if spec.before_timeout.is_some() {
        wrong("before_timeout", "is of `before`, which is not there; leave it out".into());
    }
    for (key, span) in [("before_timeout", spec.before_timeout), ("run_timeout", spec.run_timeout)] {
        if let Some(span) = span.filter(|span| *span == Span::ZERO || *span > RUN_TIMEOUT_MAX) {
            let (span, max) = (format_span(span), format_span(RUN_TIMEOUT_MAX));
            wrong(key, format!("{span} is not between 1ms and {max}"));
        }
    }
    if let Some(Err(why)) = spec.schedule.as_deref().map(Schedule::parse) {
        wrong("schedule", why);
    }
    if let Some(every) = spec.every.filter(|every| !(EVERY_MIN..=EVERY_MAX).contains(every)) {
        let [every, min, max] = [every, EVERY_MIN, EVERY_MAX].map(format_span);
        wrong("every", format!("{every} is not between {min} and {max}"));
    }
    if !spec.is_at_times() {
        for (key, is_set) in
            [("catch_up", spec.catch_up), ("rerun", spec.rerun), ("run_timeout", spec.run_timeout.is_some())]
        {
            if is_set {
                wrong(key, "is of a service that runs at times; add `schedule` or `every`, or leave it out".into());
            }
        }
        return errors;
    }
    if spec.schedule.is_some() && spec.every.is_some() {
        wrong("every", "says when it runs, and so does `schedule`; keep one of them".into());
    }
    let key = if spec.schedule.is_some() { "schedule" } else { "every" };
    let asked = [
        ("http", spec.http.is_some()),
        ("tcp", !spec.tcp.is_empty()),
        ("worker", spec.worker.is_some()),
        ("health", spec.health.is_some()),
    ];
    for (other, _) in asked.into_iter().filter(|(_, is_set)| *is_set) {
        wrong(other, format!("is of clones that stand, and with `{key}` there are none; make it two services"));
    }
    let Size { min, max } = spec.clones;
    if (min, max) != (0, 0) && (min, max) != (CLONES_DEFAULT, CLONES_DEFAULT) {
        wrong("clones", format!("with `{key}` none stand, and one runs at a time; leave it out"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(toml: &str) -> ServiceSpec {
        toml::from_str(&format!("run = [\"a\"]\n{toml}")).unwrap()
    }

    #[test]
    fn what_runs_at_times_has_no_clones_and_says_when() {
        let daily = spec("schedule = \"@daily\"\ncatch_up = true\nrerun = true\nrun_timeout = \"2h\"");
        assert!(daily.validate().is_ok() && daily.is_at_times());
        assert_eq!((daily.standing(), daily.times_text()), (0.into(), Some("@daily".into())));
        let often = spec("every = \"2s\"");
        assert_eq!((often.validate(), often.times_text()), (Ok(()), Some("every 2s".into())));
        assert_eq!((often.newer_key(), key(&spec(""))), (Some(("every".into(), crate::LEVEL_RUNS)), None));
        assert_eq!(spec("").standing(), CLONES_DEFAULT.into());
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_words() {
        for (toml, key, why) in [
            ("schedule = \"0 0 30 2 *\"", "schedule", "never comes"),
            ("schedule = \"daily\"", "schedule", "has 1 fields"),
            ("every = \"500ms\"", "every", "between 1s and"),
            ("every = \"5s\"\nschedule = \"@daily\"", "every", "keep one"),
            ("every = \"5s\"\nclones = 3", "clones", "leave it out"),
            ("every = \"5s\"\nhttp = {}", "http", "make it two services"),
            ("catch_up = true", "catch_up", "add `schedule`"),
            ("run_timeout = \"5s\"", "run_timeout", "add `schedule`"),
            ("every = \"5s\"\nrun_timeout = \"8d\"", "run_timeout", "and 7d"),
            ("before_timeout = \"5s\"", "before_timeout", "leave it out"),
            ("before = [\"\"]", "before", "names no program"),
        ] {
            let errors = spec(toml).validate().unwrap_err();
            assert!(errors.len() == 1 && errors[0].key == key && errors[0].why.contains(why), "{toml}: {errors:?}");
        }
    }
}
