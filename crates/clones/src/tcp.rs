//! Where a service is reached over TCP: one port, or several *doors*, each a port with a name (`smtp`, `pop3`). A clone has one port
//! all the same: by the PROXY protocol it is told for each connection at which door its client came. In a declaration
//! `tcp = { port = 9000 }`, or `tcp = [{ name = "smtp", port = 2525 }, { name = "pop3", port = 2110 }]`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::limits::TCP_DOORS_MAX;
use crate::partition::Partition;
use crate::spec::{SpecError, host_error, keep_known, name_error};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpRoute {
    /// What clones are told of connections that come here; the only door of a service needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Every node listens on this port for the service.
    pub port: u16,
    /// Clients come through a balancer that says by the PROXY protocol who they are. It must.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_proxy: bool,
    /// Clones are told by the PROXY protocol who the client is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_proxy: Option<ProxyVersion>,
    /// Takes TLS connections for this host alone, by the name that they begin with, and passes them on as they are: the
    /// clones have the certificate. A name, `*.` and the end of names, or `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyVersion {
    V1,
    V2,
}

pub(crate) const TCP_KEYS: [&str; 5] = ["name", "port", "accept_proxy", "send_proxy", "sni"];

impl TcpRoute {
    pub fn on(port: u16) -> Self {
        Self { name: None, port, accept_proxy: false, send_proxy: None, sni: None }
    }

    pub fn named(name: &str, port: u16) -> Self {
        Self { name: Some(name.into()), ..Self::on(port) }
    }

    /// How clones are told who the client is, if they are. A door's name goes in version 2 alone.
    pub fn tells(&self) -> Option<ProxyVersion> {
        self.send_proxy.or(self.name.as_ref().map(|_| ProxyVersion::V2))
    }

    /// Its key in the declaration: `tcp.port`, `tcp.smtp.port`.
    pub(crate) fn key(&self, key: &str) -> String {
        match &self.name {
            None => format!("tcp.{key}"),
            Some(name) => format!("tcp.{name}.{key}"),
        }
    }

    /// For people: `tcp 25`, `tcp 25 (smtp)`.
    pub(crate) fn shown(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("tcp {}{name}", self.port)
    }
}

/// What is wrong with a service's doors, each by itself and among each other.
pub(crate) fn mistakes(doors: &[TcpRoute], partitions: &[Partition], has_http: bool) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |key: String, why: String| errors.push(SpecError { key, why });
    let (mut names, mut ports) = (BTreeMap::new(), BTreeMap::new());
    for door in doors {
        let shown = |door: &TcpRoute| door.name.clone().unwrap_or_default();
        if door.port == 0 {
            wrong(door.key("port"), "0 is no port to listen on; choose one from 1 to 65535".into());
        } else if let Some(other) = ports.insert(door.port, shown(door)) {
            let why = format!("{} is the port of door {other:?} of this service; choose another port", door.port);
            wrong(door.key("port"), why);
        }
        if let Some(why) = door.sni.as_deref().and_then(host_error) {
            wrong(door.key("sni"), why);
        }
        match &door.name {
            None if doors.len() > 1 => {
                let why = format!(
                    "the door at port {} has none; each of several doors has a name, like {{ name = \"smtp\", port = {} }}",
                    door.port, door.port
                );
                wrong("tcp.name".into(), why);
            }
            None => (),
            Some(name) => {
                if let Some(why) = name_error(name) {
                    wrong("tcp.name".into(), why.replacen("a service's", "a door's", 1));
                } else if let Some(other) = names.insert(name, door.port) {
                    let why = format!("the door at port {other} is called so, too; give this one another name");
                    wrong(door.key("name"), why);
                }
                if door.send_proxy == Some(ProxyVersion::V1) {
                    let why = "\"v1\" cannot say at which door a client came; write \"v2\", or leave it out".into();
                    wrong(door.key("send_proxy"), why);
                }
            }
        }
    }
    if doors.len() > TCP_DOORS_MAX {
        wrong("tcp".into(), format!("{} doors are over the limit of {TCP_DOORS_MAX}", doors.len()));
    }
    if doors.iter().any(|door| door.name.is_some()) {
        for (partition, port) in partitions.iter().filter(|_| !has_http).filter_map(|p| Some((p, p.port?))) {
            if !doors.iter().any(|door| door.port == port) {
                let ports: Vec<String> = doors.iter().map(|door| door.port.to_string()).collect();
                let why = format!("{port} is the port of no door; there are: {}", ports.join(", "));
                wrong(format!("partition.{}.port", partition.name), why);
            }
        }
    }
    errors
}

/// Takes out what a newer version wrote.
pub(crate) fn keep_tcp_known(tcp: &mut Value) {
    match tcp {
        Value::Array(doors) => doors.iter_mut().for_each(|door| keep_known(door, &TCP_KEYS)),
        one => keep_known(one, &TCP_KEYS),
    }
}

/// For `#[serde(with = "crate::tcp")]`: a door without a name, the only one, is a table as it was before there were several.
pub(crate) fn serialize<S: Serializer>(doors: &[TcpRoute], to: S) -> Result<S::Ok, S::Error> {
    match doors {
        [one] if one.name.is_none() => one.serialize(to),
        several => several.serialize(to),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TcpRoute>, D::Error> {
    from.deserialize_any(Reader)
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Vec<TcpRoute>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a table like { port = 9000 }, or a list like [{ name = \"smtp\", port = 2525 }, { name = \"pop3\", port = 2110 }]",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<TcpRoute>, A::Error> {
        Ok(vec![TcpRoute::deserialize(MapAccessDeserializer::new(map))?])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<TcpRoute>, A::Error> {
        let mut doors = Vec::new();
        while let Some(door) = list.next_element()? {
            doors.push(door);
        }
        Ok(doors)
    }
}
