//! `cargo run -p xtask -- tidy`: checks that the house is in order. Writes nothing. The same checks run in `cargo test`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::FAILURE;
    }
    match xtask::tidy(&xtask::root()) {
        Ok(checked) => {
            println!("tidy: {checked} files are in order");
            ExitCode::SUCCESS
        }
        Err(findings) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            println!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
    }
}
