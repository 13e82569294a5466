# `just check` is the gate and writes nothing; `just fix` writes.

default:
    @just --list

# everything .ci/run checks
check: lint test

lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo run -q --locked -p xtask -- tidy

test:
    cargo test --workspace --locked

# licences and sources of dependencies (needs cargo-deny)
deny:
    cargo deny --locked check bans licenses sources

# known weaknesses of dependencies, anew: `just advisories ../advisory-db`, a clone of github.com/RustSec/advisory-db
advisories clone:
    cargo run -q --locked -p xtask -- advisories {{clone}} > target/advisories.txt
    mv target/advisories.txt xtask/advisories.txt

fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# writes the pages that are printed from the program
docs:
    UPDATE_DOCS=1 cargo test --workspace --locked --lib in_the_docs

# a .deb in target/debian (needs cargo-deb)
deb:
    cargo build --release --locked --package coppice
    mkdir -p target/package/completions
    target/release/coppice completions bash > target/package/completions/coppice.bash
    target/release/coppice completions zsh > target/package/completions/_coppice
    target/release/coppice completions fish > target/package/completions/coppice.fish
    target/release/coppice man target/package/man
    cargo deb --locked --no-build --strip --package coppice

# three nodes and the example shop
up *args:
    cargo run --release -- up {{args}}

# fresh seeds through the simulator, e.g. `just sim 100 10`: 100 seeds of 10 simulated minutes
sim seeds="100" minutes="10":
    cargo run --release --locked -p sim -- --seeds {{seeds}} --minutes {{minutes}}

# the same with few operations and faults, for long: each seed 100 simulated minutes in 4 to 10 s
sim-calm seeds="100":
    cargo run --profile search --locked -p sim -- --seeds {{seeds}} --pace calm

# the figures of docs/performance.md, one experiment after the other
lab name:
    cargo run --release --locked -p lab -- run {{name}}
