//! Tests of what is done and said, whatever it takes: several beside each other ([`e2e::beside`]).

mod admission;
mod bad_input;
mod clients;
mod deploy;
mod deploy_ends;
mod deploy_tcp;
mod disk;
mod frameworks;
mod functions;
mod h2spec;
mod http2;
mod join;
mod kept;
mod linear;
mod linear_block;
mod linear_clients;
mod linear_commands;
mod long_connections;
mod maintain;
mod operate;
mod private;
mod routes;
mod sdk;
mod sessions;
mod status;
mod up;
