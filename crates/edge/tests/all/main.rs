//! Tests of the doors with real sockets and toy clones. One program holds them all, so that they are linked once. A new test is a
//! file here, with its line.
#![allow(clippy::unwrap_used)]

mod allows;
mod common;
mod http_access;
mod http_asked_twice;
mod http_between;
mod http_broken_off;
mod http_bytes;
mod http_cached;
mod http_forbidden;
mod http_kept;
mod http_overload;
mod http_proxy;
mod http_refused;
mod http_routes;
mod http_session;
mod http_unasked;
mod https;
mod leaving;
mod shares;
mod tcp_door;
mod websockets;
