//! Inputs that crash workers (TACC 2.2.5: "pathological input"). One that did so twice, here or in another clone, is
//! withheld for an hour: who asks is told at once, and no worker is lost to it. What is known is soft: a stub that
//! starts knows of none, and then two more crashes tell. An input is its content, type and parameters, for one version
//! of the worker.

use std::collections::HashMap;

use ring::digest::{Context, SHA256};
use tokio::time::Instant;

use crate::job::Job;
use crate::limits::*;

pub type Input = [u8; 32];

#[derive(Default)]
pub struct Poison {
    /// Invariant: no more than [`SUSPECTS_MAX`].
    suspects: HashMap<Input, Suspect>,
}

struct Suspect {
    crashes: u8,
    last: Instant,
}

pub fn input(version: &str, job: &Job) -> Input {
    let mut hash = Context::new(&SHA256);
    // Each part with its length: no two inputs are one text.
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(version.as_bytes());
    part(job.kind.as_bytes());
    for (name, value) in &job.params {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(&job.content);
    let mut all = Input::default();
    all.copy_from_slice(hash.finish().as_ref());
    all
}

impl Poison {
    /// It crashed a worker. True: from now on it is withheld.
    pub fn crashed(&mut self, now: Instant, input: Input) -> bool {
        self.forget(now);
        if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&input) {
            let oldest = self.suspects.iter().min_by_key(|(_, suspect)| suspect.last).map(|(input, _)| *input);
            if let Some(oldest) = oldest {
                self.suspects.remove(&oldest);
            }
        }
        let suspect = self.suspects.entry(input).or_insert(Suspect { crashes: 0, last: now });
        suspect.last = now;
        suspect.crashes = suspect.crashes.saturating_add(1);
        suspect.crashes == CRASHES_MAX
    }

    pub fn is_withheld(&self, now: Instant, input: &Input) -> bool {
        let suspect = self.suspects.get(input);
        suspect.is_some_and(|suspect| suspect.crashes >= CRASHES_MAX && !suspect.is_old(now))
    }

    /// How many are, now.
    pub fn withheld(&mut self, now: Instant) -> usize {
        self.forget(now);
        self.suspects.values().filter(|suspect| suspect.crashes >= CRASHES_MAX).count()
    }

    fn forget(&mut self, now: Instant) {
        self.suspects.retain(|_, suspect| !suspect.is_old(now));
    }
}

impl Suspect {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= WITHHELD_FOR
    }
}

/// An input in a message to the other clones, and back.
pub fn text(input: &Input) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn read(text: &str) -> Option<Input> {
    let mut input = Input::default();
    if text.len() != 2 * input.len() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in input.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(input)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn job(kind: &str, params: &[(&str, &str)], content: &str) -> Job {
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (content, until) = (content.to_owned().into(), Instant::now());
        Job { content, kind: kind.into(), params, url: None, profile: None, priority: 5, until }
    }

    #[test]
    fn the_second_crash_withholds_an_input_for_an_hour_and_no_other() {
        let (mut poison, now) = (Poison::default(), Instant::now());
        let (bad, other) = ([1; 32], [2; 32]);
        assert!(!poison.crashed(now, bad));
        assert!(!poison.is_withheld(now, &bad), "the first may have been chance");
        assert!(poison.crashed(now, bad), "it is told once");
        assert!(!poison.crashed(now, bad));
        assert!(poison.is_withheld(now, &bad) && !poison.is_withheld(now, &other));
        assert_eq!(poison.withheld(now), 1);
        let later = now + WITHHELD_FOR;
        assert!(poison.is_withheld(later - Duration::from_secs(1), &bad));
        assert!(!poison.is_withheld(later, &bad));
        assert_eq!(poison.withheld(later), 0);
        assert!(!poison.crashed(later, bad), "it begins anew");
    }

    #[test]
    fn no_stream_of_bad_inputs_takes_more_than_its_room() {
        let (mut poison, now) = (Poison::default(), Instant::now());
        for n in 0..SUSPECTS_MAX as u64 + 10 {
            let mut input = [0; 32];
            input[..8].copy_from_slice(&n.to_be_bytes());
            poison.crashed(now + Duration::from_millis(n), input);
        }
        assert_eq!(poison.suspects.len(), SUSPECTS_MAX);
        assert!(!poison.suspects.contains_key(&[0; 32]), "the oldest went");
    }

    #[test]
    fn an_input_is_all_that_a_worker_sees_of_it() {
        let of = |kind: &str, params: &[(&str, &str)], content: &str| input("1", &job(kind, params, content));
        let all = [
            of("a", &[], "x"),
            of("b", &[], "x"),
            of("a", &[], "y"),
            of("a", &[("p", "q")], "x"),
            of("a", &[("pq", "")], "x"),
            of("ap", &[], "x"),
            input("2", &job("a", &[], "x")),
        ];
        let unlike: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(unlike.len(), all.len());
        assert_eq!(of("a", &[("p", "q")], "x"), all[3]);
        assert_eq!(read(&text(&all[0])), Some(all[0]));
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
