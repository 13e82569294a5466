//! How many pictures one core makes small, with nothing around it: a JPEG to half its width and height at quality 25, again
//! and again. `cargo run --release -p distill --example shrink -- FILE.jpg [SECONDS]` prints one JSON object.

use std::time::{Duration, Instant};

use distill::image::{Edit, Format, Made, Resize, distill};

fn main() {
    let mut words = std::env::args().skip(1);
    let file = words.next();
    let seconds = words.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let Some(original) = file.as_ref().and_then(|file| std::fs::read(file).ok()) else {
        eprintln!("shrink: give a file that is a JPEG: shrink FILE.jpg [SECONDS]");
        std::process::exit(2);
    };
    let resize = Resize { width: 160, height: 120, ..Resize::default() };
    let edit = Edit { resize, quality: Some(25), format: Some(Format::Jpeg), ..Edit::default() };
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(seconds) {
        let at = Instant::now();
        match distill(&original, &edit) {
            Ok(Made::New { .. }) => took.push(at.elapsed().as_secs_f64() * 1e6),
            other => {
                eprintln!("shrink: {file:?} did not get smaller: {other:?}");
                std::process::exit(1);
            }
        }
    }
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    println!("{{\"per_second\": {rate:.1}, \"p99_us\": {:.0}}}", took[took.len() * 99 / 100]);
}
