//! Is a port free, and if not, who has it? Asked before anything starts, so that the answer names the option to change.

use std::net::{SocketAddr, TcpListener};

/// A port a node listens on: what for, and the option that changes it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub addr: SocketAddr,
    pub purpose: &'static str,
    pub option: &'static str,
}

/// Errors name the port, its holder if `/proc` tells, and the option to change.
pub fn check_free(wanted: &[Wanted]) -> Result<(), String> {
    for want in wanted {
        if let Err(error) = TcpListener::bind(want.addr) {
            return Err(match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    let holder = host::ports::holder(want.addr).unwrap_or_else(|| "another program".to_owned());
                    format!(
                        "port {} on {} ({}) is taken by {holder}\n  choose another with {} PORT, or end that program",
                        want.addr.port(),
                        want.addr.ip(),
                        want.purpose,
                        want.option
                    )
                }
                std::io::ErrorKind::PermissionDenied => {
                    format!(
                        "port {} ({}) needs privileges this user lacks\n  choose one above 1023 with {} PORT",
                        want.addr.port(),
                        want.purpose,
                        want.option
                    )
                }
                _ => format!(
                    "cannot listen on {} ({}): {error}\n  choose another with {} PORT",
                    want.addr, want.purpose, want.option
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named_with_its_holder_and_the_option() {
        let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = held.local_addr().expect("bound");
        let want = Wanted { addr, purpose: "HTTP edge", option: "--http-port" };
        let error = check_free(&[want]).expect_err("taken");
        assert!(error.contains(&addr.port().to_string()) && error.contains("--http-port"), "{error}");
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        drop(held);
        check_free(&[want]).expect("free again");
    }
}
