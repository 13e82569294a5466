//! The doors of a node, in one list: what each is called, where it is unless something else is said, and when it opens. Cards, ports,
//! options of the command line, `node.toml`, status, the page and what `up` tells go over this list. What a door does stands above the
//! waterline, by the same list: `coppice/src/doors.rs`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When a node has a door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opens {
    /// Each node has it.
    Always,
    /// A node that has certificates for services has it.
    WithCertificates,
    /// A node has it that is told to.
    WhenAsked,
}

/// What is the same of a door on each node.
#[derive(Clone, Copy, Debug)]
pub struct AboutDoor {
    /// In text, and in options: `--NAME`, `--NAME-port`.
    pub name: &'static str,
    /// In JSON and `node.toml`. Never changes.
    pub key: &'static str,
    /// What it is for, for people.
    pub purpose: &'static str,
    /// Where it is unless something else is said.
    pub port: u16,
    pub port_text: &'static str,
    pub opens: Opens,
    /// Of `coppice run`, with an address; the name of the argument is without its hyphens.
    pub option: &'static str,
    /// Of `coppice up`, `init` and `join`, with a port.
    pub port_option: &'static str,
}

macro_rules! doors {
    ($($(#[$doc:meta])* $door:ident = $name:literal, $key:literal, $port:literal, $purpose:literal, $opens:ident;)*) => {
        /// One of the doors of a node.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Door {
            $($(#[$doc])* $door,)*
        }

        const DOORS: &[(Door, AboutDoor)] = &[$((Door::$door, AboutDoor {
            name: $name,
            key: $key,
            purpose: $purpose,
            port: $port,
            port_text: stringify!($port),
            opens: Opens::$opens,
            option: concat!("--", $name),
            port_option: concat!("--", $name, "-port"),
        }),)*];
    };
}

doors! {
    /// HTTP to services.
    Http = "http", "http", 8080, "HTTP edge", Always;
    /// The same over TLS.
    Https = "https", "https", 8443, "HTTPS edge", WithCertificates;
    /// The Redis protocol to namespaces.
    Resp = "resp", "resp", 6379, "Redis protocol", Always;
    /// The same over TLS: `rediss://`.
    RespTls = "resp-tls", "resp_tls", 6380, "Redis protocol over TLS", WhenAsked;
    /// The API and the monitor.
    Api = "api", "api", 7070, "API and monitor", Always;
    /// The same over TLS.
    ApiTls = "api-tls", "api_tls", 7443, "API and monitor over TLS", WhenAsked;
    /// Links and tunnels of other nodes, and newcomers.
    Peer = "peer", "peer", 7071, "peers", Always;
}

impl Door {
    /// In the order in which people are told of them.
    pub fn all() -> impl Iterator<Item = Door> {
        DOORS.iter().map(|(door, _)| *door)
    }

    pub fn about(self) -> &'static AboutDoor {
        let (door, about) = &DOORS[self as usize];
        debug_assert_eq!(*door, self, "the list is in the order of the enum");
        about
    }

    pub fn named(key: &str) -> Option<Door> {
        Self::all().find(|door| door.about().key == key)
    }

    fn is_always(self) -> bool {
        self.about().opens == Opens::Always
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about().name)
    }
}

/// Where the doors of one node are; those that it has.
///
/// Invariant: all that each node has are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoorAddrs([Option<SocketAddr>; DOORS.len()]);

impl DoorAddrs {
    /// The answers for each door. The error names one that each node has, and this one has not.
    ///
    /// # Errors
    /// A door is missing.
    pub fn of(mut at: impl FnMut(Door) -> Option<SocketAddr>) -> Result<Self, Door> {
        let mut addrs = [None; DOORS.len()];
        for door in Door::all() {
            addrs[door as usize] = at(door);
            if door.is_always() && addrs[door as usize].is_none() {
                return Err(door);
            }
        }
        Ok(Self(addrs))
    }

    /// The doors that each node has, at their own ports of this address.
    pub fn on(host: IpAddr) -> Self {
        let at = |door: Door| SocketAddr::new(host, door.about().port);
        Self::of(|door| door.is_always().then(|| at(door))).expect("all of them are given")
    }

    /// The same, but for this door.
    #[must_use]
    pub fn with(mut self, door: Door, at: SocketAddr) -> Self {
        self.0[door as usize] = Some(at);
        self
    }

    pub fn get(&self, door: Door) -> Option<SocketAddr> {
        self.0[door as usize]
    }

    /// Where a door is that each node has.
    ///
    /// # Panics
    /// Not each node has it.
    pub fn at(&self, door: Door) -> SocketAddr {
        self.get(door).expect("each node has this door")
    }

    /// In the order of the list.
    pub fn open(&self) -> impl Iterator<Item = (Door, SocketAddr)> + use<> {
        let all = self.0;
        Door::all().filter_map(move |door| Some((door, all[door as usize]?)))
    }

    /// How its doors for clients are shown in a line: `http 127.0.0.1:8080 resp 127.0.0.1:6379`.
    pub fn shown(&self) -> String {
        let all = self.open().filter(|(door, _)| *door != Door::Peer).map(|(door, at)| format!("{door} {at}"));
        all.collect::<Vec<_>>().join(" ")
    }
}

/// A map from each door's key to its address.
impl Serialize for DoorAddrs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (door, at) in self.open() {
            map.serialize_entry(door.about().key, &at)?;
        }
        map.end()
    }
}

/// What else stands in the map is skipped: doors of newer programs, and what this is flattened into.
impl<'de> Deserialize<'de> for DoorAddrs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = DoorAddrs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("addresses of doors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DoorAddrs, A::Error> {
                let mut addrs = [None; DOORS.len()];
                while let Some(key) = map.next_key::<String>()? {
                    match Door::named(&key) {
                        Some(door) => addrs[door as usize] = Some(map.next_value()?),
                        None => _ = map.next_value::<IgnoredAny>()?,
                    }
                }
                DoorAddrs::of(|door| addrs[door as usize]).map_err(|door| A::Error::missing_field(door.about().key))
            }
        }
        from.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_doors_share_a_name_a_key_or_a_port() {
        let distinct = |what: fn(&AboutDoor) -> String| Door::all().map(|d| what(d.about())).collect::<BTreeSet<_>>();
        let count = Door::all().count();
        assert_eq!(distinct(|about| about.name.to_owned()).len(), count);
        assert_eq!(distinct(|about| about.key.to_owned()).len(), count);
        assert_eq!(distinct(|about| about.port.to_string()).len(), count);
        assert!(
            Door::all()
                .enumerate()
                .all(|(at, door)| door as usize == at && Door::named(door.about().key) == Some(door))
        );
    }

    #[test]
    fn addresses_are_a_map_by_key_beside_other_fields() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct Node {
            name: String,
            #[serde(flatten)]
            doors: DoorAddrs,
        }
        let at = DoorAddrs::on([127, 0, 0, 1].into());
        let node = Node { name: "n1".into(), doors: at.with(Door::Https, "127.0.0.1:443".parse().unwrap()) };
        let text = serde_json::to_string(&node).unwrap();
        let expect = r#"{"name":"n1","http":"127.0.0.1:8080","https":"127.0.0.1:443","resp":"127.0.0.1:6379","api":"127.0.0.1:7070","peer":"127.0.0.1:7071"}"#;
        assert_eq!(text, expect);
        let newer = text.replace("{\"name\"", "{\"smtp\":\"127.0.0.1:25\",\"name\"");
        assert_eq!(serde_json::from_str::<Node>(&newer).unwrap(), node);
        let error = serde_json::from_str::<Node>(&text.replace("\"resp\"", "\"rasp\"")).unwrap_err().to_string();
        assert!(error.contains("missing field `resp`"), "{error}");
    }
}
