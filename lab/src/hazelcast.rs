//! Hazelcast's ReplicatedMap as a peer of class `soft` with one copy: members behind a door of the Redis protocol that is a Java program of
//! one file (`lab/peers/HazelcastDoor.java`), with the jar that `COPPICE_LAB_HAZELCAST` names.

use std::net::SocketAddr;
use std::path::Path;

use crate::cluster::free_port;
use crate::load::Target;
use crate::peers::{Program, ask, scratch, wait_until};

const MISSING: &str = "a JDK (java); Hazelcast's jar is named by COPPICE_LAB_HAZELCAST";
const DOOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/HazelcastDoor.java");

pub struct Hazelcast {
    programs: Vec<Program>,
    pub target: Target,
}

impl Hazelcast {
    pub fn start(members: u8) -> Result<Hazelcast, String> {
        let jar = std::env::var("COPPICE_LAB_HAZELCAST").unwrap_or_default();
        if !Path::new(&jar).is_file() {
            return Err("Hazelcast was not measured: COPPICE_LAB_HAZELCAST does not name its jar (Maven: com.hazelcast:hazelcast)".into());
        }
        let ports = (0..members).map(|_| Ok((free_port(1)?, free_port(1)?))).collect::<Result<Vec<_>, String>>()?;
        let all: Vec<String> = ports.iter().map(|(_, member)| member.to_string()).collect();
        let (mut programs, mut addrs) = (Vec::new(), Vec::new());
        for (door, member) in &ports {
            let (port, own) = (door.to_string(), member.to_string());
            let args = ["-Xmx512m", "-cp", &jar, DOOR, &port, &own];
            let args: Vec<&str> = args.into_iter().chain(all.iter().map(String::as_str)).collect();
            programs.push(Program::start(MISSING, "java", scratch(&format!("hazelcast-{door}")), &args)?);
            addrs.push(SocketAddr::from(([127, 0, 0, 1], *door)));
        }
        let is_whole =
            |addr: &SocketAddr| ask(*addr, b"*1\r\n$4\r\nPING\r\n").is_some_and(|said| said.starts_with("+PONG"));
        wait_until("Hazelcast's members know each other", || addrs.iter().all(is_whole))?;
        Ok(Hazelcast { programs, target: Target { addrs, auth: None, wait: None } })
    }

    pub fn pids(&self) -> Vec<i32> {
        self.programs.iter().map(Program::pid).collect()
    }
}
