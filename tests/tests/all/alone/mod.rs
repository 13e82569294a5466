//! Tests that judge times closely or load both cores: one at a time, nothing beside it ([`e2e::alone`]).

mod h2spec;
mod kill;
mod linear_split;
mod load;
mod outlier;
mod pipelines;
mod priorities;
mod scaling;
mod tcp_overload;
