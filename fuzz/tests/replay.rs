//! Every target over its corpus and over seeded mutations of it, on stable Rust, in a few seconds each. `FUZZ_INPUTS=N` tries
//! more, `FUZZ_SEED=N` others.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base::Rng;
use fuzz::mutate::mutate;
use fuzz::{TARGETS, Target};

/// A second or two of each target in a debug build.
const INPUTS: u64 = 4_000;

/// Targets measure the memory of the whole process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut all: Vec<_> = files
        .map(|file| file.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

/// Says which input it was, if it breaks a promise.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}

fn replay(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Target { run, words, .. } = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = corpus(name);
    let mut understood = 0;
    for (file, data) in &seeds {
        let _shown = Shown(file, data);
        understood += usize::from(run(data));
    }
    assert!(understood > 0, "none of {} inputs in the corpus is understood", seeds.len());
    let mut rng = Rng::new(number("FUZZ_SEED", 1));
    for _ in 0..number("FUZZ_INPUTS", INPUTS) {
        let (_, seed) = rng.pick(&seeds).unwrap();
        let (_, other) = rng.pick(&seeds).unwrap();
        let data = mutate(&mut rng, seed, other, words);
        let _shown = Shown("a mutation", &data);
        run(&data);
    }
}

macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn no_target_is_left_out() {
            let replayed = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|target| target.name), replayed);
        }
    };
}

replayed! {
    resp http_head http_chunks http_headers cookie frame session root beacon membership facts declaration document soft
    soft_kept soft_contexts soft_sketch
    smtp pop3 address ledger record
}

#[test]
fn memory_that_the_input_does_not_justify_is_noticed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // A parser that reserves what a length says.
    let greedy = || fuzz::memory::bounded(4, 8, || Vec::<u8>::with_capacity(1 << 20).capacity());
    assert!(std::panic::catch_unwind(greedy).is_err());
    assert_eq!(fuzz::memory::bounded(4, 8, || vec![0u8; 16].len()), 16);
}
