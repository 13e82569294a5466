//! Ports: listeners whose errors say who has the port, and free ports for children. The latter come from below the
//! range the kernel gives to outgoing connections, so that none of those takes the port before the child binds it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use base::Rng;

use crate::Error;
use crate::limits::{BACKLOG, CHILD_PORT_FIRST, CHILD_PORT_TRIES};

/// Listens, or says who else does. The socket is not blocking, as runtimes want it.
pub fn listen(addr: SocketAddr) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind(addr).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => Error::PortTaken { addr, holder: holder(addr) },
        _ => Error::io(format!("cannot listen on {addr}"))(e),
    })?;
    // The library's own choice is 128: at ten thousand a second those of 13 ms, and who comes then comes again after a second.
    rustix::net::listen(&listener, BACKLOG).map_err(|e| Error::io(format!("cannot listen on {addr}"))(e.into()))?;
    listener.set_nonblocking(true).map_err(Error::io(format!("cannot listen on {addr}")))?;
    Ok(listener)
}

/// Who listens on this address, as `name (process 123)`, as far as `/proc` lets us see.
pub fn holder(addr: SocketAddr) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().skip(1).filter_map(|line| listening_inode(line, addr)).collect::<Vec<_>>())
        .collect();
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let Ok(target) = std::fs::read_link(file.path()) else { continue };
            if inodes.iter().any(|inode| target.as_os_str() == format!("socket:[{inode}]").as_str()) {
                let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                return Some(format!("{} (process {pid})", name.trim()));
            }
        }
    }
    None
}

/// The inode of a line of `/proc/net/tcp`, if it listens on the port, at this address or at all of them.
fn listening_inode(line: &str, addr: SocketAddr) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let any = ip.bytes().all(|b| b == b'0');
    let same = match addr.ip() {
        // Written as the number in this machine's byte order.
        IpAddr::V4(v4) => ip == format!("{:08X}", u32::from_ne_bytes(v4.octets())),
        IpAddr::V6(_) => ip.len() == 32,
    };
    let listens = *fields.get(3)? == "0A";
    let matches = listens && (any || same || addr.ip().is_unspecified());
    (matches && u16::from_str_radix(port, 16).ok()? == addr.port()).then(|| fields.get(9).map(ToString::to_string))?
}

/// A port on `host` that nobody uses and that is not in `given`.
pub(crate) fn free_port(host: IpAddr, rng: &mut Rng, given: &BTreeSet<u16>) -> io::Result<u16> {
    let last = first_outgoing_port().unwrap_or(32_768).max(CHILD_PORT_FIRST + 1) - 1;
    for _ in 0..CHILD_PORT_TRIES {
        let port = rng.between(CHILD_PORT_FIRST.into(), last.into()) as u16;
        if !given.contains(&port) && TcpListener::bind((host, port)).is_ok() {
            return Ok(port);
        }
    }
    // Crowded, or not allowed: then whatever the kernel has.
    Ok(TcpListener::bind((host, 0))?.local_addr()?.port())
}

fn first_outgoing_port() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_its_holder() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = first.local_addr().unwrap();
        let Err(Error::PortTaken { holder: Some(holder), .. }) = listen(addr) else { panic!("two have one port") };
        assert!(holder.contains(&format!("process {}", std::process::id())), "{holder}");
        assert_eq!(super::holder("127.0.0.2:1".parse().unwrap()), None);
    }

    #[test]
    fn free_ports_are_free_and_not_those_already_given() {
        let (host, mut rng) = ("127.0.0.1".parse().unwrap(), Rng::new(1));
        let mut given = BTreeSet::new();
        for _ in 0..50 {
            assert!(given.insert(free_port(host, &mut rng, &given).unwrap()));
        }
    }
}
