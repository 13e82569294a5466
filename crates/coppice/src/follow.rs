//! How a version of a service comes to its clones, followed from view to view: what is to be told, and when it is over. Its
//! end is that it serves, that it went back, or that nothing more is to be expected, with the reason. What is asked of the
//! cluster, and how it is printed, is `deploy`'s matter.

use std::time::Duration;

use clones::deploy::{REPLACED, ROLLED_OUT, SERVES, TAKEN_BACK};
use clones::limits::{CODE_PATIENCE, DEATHS_MAX, JUDGE_LAST, JUDGE_MAX, START_TIMEOUT_DEFAULT};
use node::view::{CloneState, CloneView, ServiceView, View};

use crate::plain::plain;

/// Lines of output that are told of a clone that does not serve.
const LINES: usize = 5;

/// What a view says.
#[derive(Debug, PartialEq)]
pub enum Look {
    Nothing,
    /// So many of so many clones serve with it.
    Runs {
        number: u32,
        clones: usize,
        wanted: u32,
    },
    /// What goes before it runs there.
    Before {
        number: u32,
        node: String,
    },
    Serves {
        number: u32,
    },
    TakenBack {
        number: u32,
        fate: String,
    },
    /// It does not come up, and why.
    Stuck {
        number: u32,
        why: String,
    },
}

#[derive(Debug)]
pub struct Follow {
    service: String,
    /// Views of an older declaration do not know of it.
    declared: u64,
    number: Option<u32>,
    shown: Option<usize>,
    /// When clones last came to serve with it, since it began.
    moved_at: Duration,
    told_before: bool,
}

impl Follow {
    pub fn new(service: &str, declared: u64) -> Self {
        Self {
            service: service.into(),
            declared,
            number: None,
            shown: None,
            moved_at: Duration::ZERO,
            told_before: false,
        }
    }

    /// What this view says, so long after the beginning.
    pub fn look(&mut self, at: Duration, view: &View) -> Look {
        if view.root.version < self.declared {
            return Look::Nothing;
        }
        let Some(service) = view.services.iter().find(|s| s.name == self.service) else {
            let why = format!("service {} is not declared any more", self.service);
            return Look::Stuck { number: self.number.unwrap_or(0), why };
        };
        let number = *self.number.get_or_insert(service.next.unwrap_or(service.version));
        let serves = |c: &&CloneView| c.version == number && c.state == CloneState::Serving;
        let run = service.clones.iter().filter(serves).count();
        if self.shown != Some(run) && service.wanted > 0 {
            (self.shown, self.moved_at) = (Some(run), at);
            return Look::Runs { number, clones: run, wanted: service.wanted };
        }
        let fate = service.versions.iter().find(|v| v.number == number).map_or("", |v| v.fate.as_str());
        let stuck = |why: String| Look::Stuck { number, why };
        if fate.starts_with(TAKEN_BACK) {
            return Look::TakenBack { number, fate: fate.into() };
        }
        if fate == REPLACED || fate.is_empty() {
            return stuck(format!("version {} took its place meanwhile", service.version));
        }
        if service.off.contains(&service.name) {
            let name = &service.name;
            return stuck(format!(
                "{name} is out of use; the version comes to its clones after `coppice enable {name}`"
            ));
        }
        if let Some(runs) = service.runs.as_ref().filter(|runs| runs.waits_for_before == Some(number)) {
            self.moved_at = at;
            let failed = runs.before.last.as_ref().filter(|last| last.version == number && !last.good);
            if let Some(last) = failed.filter(|_| runs.before.node.is_none() && fate == SERVES) {
                return stuck(format!("what goes before it failed on {}: {}", last.node, plain(&last.how)));
            }
            let node = runs.before.node.clone().filter(|_| !std::mem::replace(&mut self.told_before, true));
            return node.map_or(Look::Nothing, |node| Look::Before { number, node });
        }
        // Once it stands it is not judged any more; the clones of the next one come to run that.
        if fate == SERVES && (run >= service.wanted as usize || service.next.is_some()) {
            return Look::Serves { number };
        }
        let dead = |c: &&CloneView| c.version == number && c.deaths.is_some_and(|deaths| deaths >= DEATHS_MAX);
        let dead = service.clones.iter().filter(|c| c.state != CloneState::Serving).find(dead);
        if let Some(clone) = dead.filter(|_| fate == SERVES) {
            return stuck(
                format!("{} died {} times on {}", clone.name, clone.deaths.unwrap_or(0), clone.node) + &words(clone),
            );
        }
        let waited = at.saturating_sub(self.moved_at);
        if waited > patience(service, number, fate) {
            return stuck(waits(view, service, number, waited));
        }
        Look::Nothing
    }
}

/// How long nothing needs to change. Who judges it has its time first.
fn patience(service: &ServiceView, number: u32, fate: &str) -> Duration {
    let start = Duration::from_millis(match service.start_timeout_ms {
        0 => START_TIMEOUT_DEFAULT.as_millis(),
        told => told,
    });
    let fetches = |c: &&CloneView| c.version == number && c.state == CloneState::Backoff && c.deaths == Some(0);
    let is_on_its_way = fate == ROLLED_OUT || service.clones.iter().any(|c| fetches(&c));
    let judged = if fate == ROLLED_OUT { JUDGE_MAX.as_millis() + JUDGE_LAST.as_millis() } else { 0 };
    let fetched = if is_on_its_way { CODE_PATIENCE.as_millis() } else { 0 };
    start * 2 + Duration::from_millis(judged + fetched)
}

/// Why it goes no further, as far as that is to be seen.
fn waits(view: &View, service: &ServiceView, number: u32, waited: Duration) -> String {
    let since = waited.as_secs();
    if view.root.leader.is_none() {
        return format!(
            "nothing has changed for {since} s: the root group has no leader, so nobody decides where clones run"
        );
    }
    let down = service.clones.iter().find(|c| c.version == number && c.state != CloneState::Serving);
    match down {
        Some(clone) => format!("{} on {} does not serve after {since} s", clone.name, clone.node) + &words(clone),
        None => format!(
            "nothing has changed for {since} s, and no clone of it waits to serve; `coppice status` and `coppice events` say more"
        ),
    }
}

/// How a clone ended last, and its last lines.
fn words(clone: &CloneView) -> String {
    let exit = clone.last_exit.as_ref().map_or_else(String::new, |exit| format!(": {}", plain(exit)));
    let from = clone.last_output.len().saturating_sub(LINES);
    let lines: String = clone.last_output[from..].iter().map(|line| format!("\n    | {}", plain(line))).collect();
    let log = clone.name.replace('/', "-");
    format!("{exit}{lines}\n  all it printed: logs/{log}.log in the folder of {}", clone.node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A view of service "app" with three clones of version 1, each in a state and after so many deaths.
    fn view(fate: &str, clones: &[(&str, u32)], more: &[(&str, serde_json::Value)]) -> View {
        let clone = |(number, (state, deaths)): (usize, &(&str, u32))| {
            json!({"name": format!("app/{number}"), "node": "n2", "state": state, "pid": 0, "port": 0, "restarts": 0,
                "version": 1, "deaths": deaths, "since_ms": 0, "last_exit": "exit status 2",
                "last_output": ["one", "\u{1b}[2Jtwo"]})
        };
        let clones: Vec<_> = clones.iter().enumerate().map(clone).collect();
        let version = json!({"number": 1, "at_ms": 0, "code": null, "files": 0, "bytes": 0, "fate": fate});
        let mut service = json!({"name": "app", "wanted": 3, "clones": clones, "at": [], "version": 1,
            "start_timeout_ms": 10_000, "versions": [version]});
        for (key, value) in more {
            service[*key] = value.clone();
        }
        let root = json!({"leader": "n1", "voters": ["n1"], "version": 7});
        serde_json::from_value(json!({"services": [service], "root": root})).unwrap()
    }

    /// Looks at the same view until it is over, or for ten minutes; when, and what it is.
    fn end(view: &View) -> (u64, Look) {
        let mut follow = Follow::new("app", 7);
        for second in 0..600 {
            match follow.look(Duration::from_secs(second), view) {
                Look::Nothing | Look::Runs { .. } => (),
                end => return (second, end),
            }
        }
        panic!("it never ends: {follow:?}");
    }

    #[test]
    fn every_wait_ends_with_a_reason() {
        let (up, down) = (("serving", 0), ("backoff", 2));
        let off = [("off", json!(["app"]))];
        let rolled = [("next", json!(1)), ("version", json!(0))];
        let serves = [up; 3];
        for (name, view, until, part) in [
            ("dies", view("serves", &[up, down, up], &[]), 1, "app/1 died 2 times on n2: exit status 2\n    | one"),
            ("control", view("serves", &[down; 3], &[]), 1, "| \\u001b[2Jtwo\n  all it printed: logs/app-0.log in the"),
            (
                "off",
                view("serves", &[], &off),
                1,
                "app is out of use; the version comes to its clones after `coppice enable app`",
            ),
            ("off, rolled out", view("is rolled out", &serves, &off), 1, "app is out of use"),
            ("hangs", view("serves", &[("starting", 0); 3], &[]), 21, "app/0 on n2 does not serve after 21 s: exit"),
            ("no code", view("serves", &[("backoff", 0); 3], &[]), 51, "app/0 on n2 does not serve after 51 s"),
            ("no clone", view("serves", &[], &[]), 21, "no clone of it waits to serve"),
            ("judged", view("is rolled out", &[down; 3], &rolled), 57, "app/0 on n2 does not serve after 57 s"),
            (
                "replaced",
                view("was replaced", &serves, &[("version", json!(2)), ("next", json!(1))]),
                1,
                "version 2 took",
            ),
        ] {
            let (at, end) = end(&view);
            let Look::Stuck { number: 1, why } = end else { panic!("{name}: {end:?}") };
            assert!(why.contains(part), "{name}: {why}");
            assert_eq!(at, until, "{name}");
        }
        let mut leaderless = view("serves", &[("starting", 0); 3], &[]);
        leaderless.root.leader = None;
        assert!(matches!(end(&leaderless), (21, Look::Stuck { why, .. }) if why.contains("has no leader")));
        let gone = View { services: Vec::new(), ..view("serves", &[], &[]) };
        assert!(matches!(end(&gone), (0, Look::Stuck { why, .. }) if why.contains("not declared any more")));
    }

    #[test]
    fn what_serves_or_went_back_is_over_at_once() {
        let serves = view("serves", &[("serving", 0), ("serving", 5), ("serving", 0)], &[]);
        assert_eq!(end(&serves), (1, Look::Serves { number: 1 }));
        let back = view("was taken back: it fails", &[], &[]);
        assert_eq!(end(&back), (1, Look::TakenBack { number: 1, fate: "was taken back: it fails".into() }));
        // The next one is under way already.
        let next = view("serves", &[("serving", 0)], &[("next", json!(2))]);
        let mut follow = Follow { number: Some(1), ..Follow::new("app", 7) };
        follow.look(Duration::ZERO, &next);
        assert_eq!(follow.look(Duration::ZERO, &next), Look::Serves { number: 1 });
        let mut early = Follow::new("app", 8);
        assert_eq!(early.look(Duration::ZERO, &next), Look::Nothing, "the view is of an older declaration");
    }

    #[test]
    fn each_clone_that_comes_to_serve_gives_the_others_their_time_anew() {
        let mut follow = Follow::new("app", 7);
        let starting = view("serves", &[("starting", 0); 3], &[]);
        let one = view("serves", &[("serving", 0), ("starting", 0), ("starting", 0)], &[]);
        let at = |second| Duration::from_secs(second);
        assert!(matches!(follow.look(at(0), &starting), Look::Runs { clones: 0, wanted: 3, .. }));
        assert_eq!(follow.look(at(19), &starting), Look::Nothing);
        assert!(matches!(follow.look(at(20), &one), Look::Runs { clones: 1, .. }));
        assert_eq!(follow.look(at(39), &one), Look::Nothing);
        assert!(matches!(follow.look(at(41), &one), Look::Stuck { .. }));
    }
}
