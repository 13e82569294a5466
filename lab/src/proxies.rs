//! Proxies of other people in front of one origin, set up for the same work as the edge: HTTP/1.1 on both sides, idle
//! connections to the origin kept, no log.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::cluster::free_port;
use crate::peers::{Program, scratch, wait_until};

/// What a proxy is to be ready for.
#[derive(Clone, Copy)]
pub struct Size {
    pub workers: u32,
    pub connections: u32,
}

pub type Start = fn(SocketAddr, Size) -> Result<(Program, SocketAddr), String>;

/// With certificate and key, two files, TLS, and HTTP/2 for who asks for it.
pub type StartTls = fn(SocketAddr, Size, [&Path; 2]) -> Result<(Program, SocketAddr), String>;

/// Those of [`ALL`], in its order.
pub const ALL_TLS: [(&str, StartTls); 2] = [("nginx", nginx_tls), ("haproxy", haproxy_tls)];

/// Name, as its program and its package are called, and how it is started.
pub const ALL: [(&str, Start); 2] = [("nginx", nginx), ("haproxy", haproxy)];

/// Those that keep what they have got: name, program, how they are started.
pub const CACHES: [(&str, &str, Start); 2] =
    [("varnish", "varnishd", varnish), ("nginx proxy_cache", "nginx", nginx_cache)];

/// Those of [`ALL`] as one sets them up for large bodies, which go past their disk.
pub const BULK: [(&str, Start); 2] = [("nginx", nginx_bulk), ("haproxy", haproxy)];

pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("-v").output().is_ok()
}

fn nginx(origin: SocketAddr, size: Size) -> Result<(Program, SocketAddr), String> {
    nginx_with(origin, size, "nginx", ["", "", ""])
}

fn nginx_tls(origin: SocketAddr, size: Size, [certificate, key]: [&Path; 2]) -> Result<(Program, SocketAddr), String> {
    let (certificate, key) = (certificate.display(), key.display());
    let http = format!(
        "ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:8m;"
    );
    nginx_with(origin, size, "nginx-tls", ["ssl http2", &http, ""])
}

fn nginx_bulk(origin: SocketAddr, size: Size) -> Result<(Program, SocketAddr), String> {
    let http = "client_max_body_size 0; proxy_request_buffering off; proxy_max_temp_file_size 0; proxy_buffers 8 64k; \
        proxy_buffer_size 64k; proxy_busy_buffers_size 128k; client_body_buffer_size 128k;";
    nginx_with(origin, size, "nginx-bulk", ["", http, ""])
}

/// With a cache of 64 MiB in its folder, whose files stay open.
fn nginx_cache(origin: SocketAddr, size: Size) -> Result<(Program, SocketAddr), String> {
    let http = "proxy_cache_path ROOT/c keys_zone=c:10m max_size=64m; sendfile on; tcp_nopush on; \
        open_file_cache max=1000 inactive=60s;";
    nginx_with(origin, size, "nginx-cache", ["", http, "proxy_cache c;"])
}

/// With words of its own in `listen`, in `http` and in `location`.
fn nginx_with(
    origin: SocketAddr,
    size: Size,
    name: &str,
    [listen, http, location]: [&str; 3],
) -> Result<(Program, SocketAddr), String> {
    let (dir, addr) = place(name)?;
    let root = dir.display().to_string();
    let http = http.replace("ROOT", &root);
    let Size { workers, connections } = size;
    let conf = format!(
        "daemon off; worker_processes {workers}; worker_rlimit_nofile {files}; pid {root}/p.pid; error_log /dev/null; \
        events {{ worker_connections {files}; }} \
        http {{ access_log off; keepalive_requests 100000000; proxy_temp_path {root}/t; client_body_temp_path {root}/b; {http} \
        map $http_upgrade $hop {{ default upgrade; '' ''; }} \
        upstream o {{ server {origin}; keepalive 256; keepalive_requests 100000000; }} \
        server {{ listen {addr} {listen}; location / {{ proxy_pass http://o; proxy_http_version 1.1; proxy_read_timeout 1h; \
        proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $hop; {location} }} }} }}",
        files = 2 * connections + 500,
    );
    let file = dir.join("proxy.conf");
    std::fs::write(&file, conf).map_err(|e| e.to_string())?;
    let program =
        Program::start("nginx", "nginx", dir, &["-e", "/dev/null", "-p", &root, "-c", &file.display().to_string()])?;
    started(name, program, addr, listen.is_empty())
}

fn varnish(origin: SocketAddr, _: Size) -> Result<(Program, SocketAddr), String> {
    let (dir, addr) = place("varnish")?;
    let file = dir.join("lab.vcl").display().to_string();
    let vcl = format!("vcl 4.1;\nbackend o {{ .host = \"{}\"; .port = \"{}\"; }}\n", origin.ip(), origin.port());
    std::fs::write(&file, vcl).map_err(|e| e.to_string())?;
    let (listen, own) = (addr.to_string(), dir.join("own").display().to_string());
    let args = ["-F", "-j", "none", "-n", &own, "-a", &listen, "-f", &file, "-s", "malloc,64m"];
    let program = Program::start("varnish", "varnishd", dir, &args)?;
    started("varnish", program, addr, true)
}

fn haproxy(origin: SocketAddr, size: Size) -> Result<(Program, SocketAddr), String> {
    haproxy_with(origin, size, None)
}

/// It wants certificate and key in one file.
fn haproxy_tls(origin: SocketAddr, size: Size, files: [&Path; 2]) -> Result<(Program, SocketAddr), String> {
    let read = |file: &Path| std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()));
    haproxy_with(origin, size, Some(read(files[0])? + &read(files[1])?))
}

fn haproxy_with(origin: SocketAddr, size: Size, both: Option<String>) -> Result<(Program, SocketAddr), String> {
    let (dir, addr) = place("haproxy")?;
    let mut ssl = String::new();
    if let Some(both) = &both {
        let file = dir.join("both.pem");
        std::fs::write(&file, both).map_err(|e| e.to_string())?;
        ssl = format!("ssl crt {} alpn h2,http/1.1", file.display());
    }
    let Size { workers, connections } = size;
    let conf = format!(
        "global\n  nbthread {workers}\n  maxconn {}\n\
        defaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\n  timeout tunnel 1h\n  http-reuse always\n\
        frontend f\n  bind {addr} {ssl}\n  default_backend b\n\
        backend b\n  server o {origin}\n",
        connections + 100,
    );
    let file = dir.join("haproxy.cfg");
    std::fs::write(&file, conf).map_err(|e| e.to_string())?;
    let program = Program::start("haproxy", "haproxy", dir, &["-db", "-f", &file.display().to_string()])?;
    started("haproxy", program, addr, both.is_none())
}

fn place(name: &str) -> Result<(std::path::PathBuf, SocketAddr), String> {
    let port = free_port(1)?;
    let dir = scratch(&format!("{name}-{port}"));
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    Ok((dir, SocketAddr::from(([127, 0, 0, 1], port))))
}

/// The origin answers `/health` through it; with TLS it listens.
fn started(name: &str, program: Program, addr: SocketAddr, is_plain: bool) -> Result<(Program, SocketAddr), String> {
    let proxies = || match is_plain {
        true => crate::load::http_get(addr, "/health", None).is_ok(),
        false => std::net::TcpStream::connect(addr).is_ok(),
    };
    wait_until(&format!("{name} proxies"), proxies)?;
    Ok((program, addr))
}
