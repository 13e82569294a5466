//! Tests that judge times or load both cores: one at a time, nothing beside it ([`e2e::alone`]).

mod clones;
mod conduct;
mod durability;
mod groups;
mod history;
mod kill;
mod level;
mod linear_leave;
mod linear_once;
mod linear_shards;
mod linear_split;
mod load;
#[cfg(target_os = "linux")]
mod memory;
mod outlier;
mod pipelines;
mod power;
mod priorities;
mod root;
mod scaling;
mod soft;
mod strangers;
mod tcp_overload;
