//! `cargo run -p xtask -- tidy`: checks that the house is in order. Writes nothing. The same checks run in `cargo test`.
//! `... advisories CLONE` prints what `xtask/advisories.txt` is to be, from a clone of RustSec's list.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, clone] = &args[..]
        && command == "advisories"
    {
        return match xtask::advisories::copy(clone.as_ref()) {
            Ok(copy) => {
                print!("{copy}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("{clone}: {why}");
                ExitCode::FAILURE
            }
        };
    }
    if args != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy|advisories CLONE");
        return ExitCode::FAILURE;
    }
    println!("tidy: {}", xtask::advisories::age(&xtask::root()));
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
