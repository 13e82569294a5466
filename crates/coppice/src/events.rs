//! What `coppice up` tells: lines for people, or one JSON object a line for scripts (`--json`). The JSON's shape is
//! described in docs/scripts.md and held fast by the tests below: fields may be added, never renamed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::doors::{Door, DoorAddrs, Opens};
use serde_json::json;

use crate::demo::{Demo, Person};
use crate::plain::say;

#[derive(Clone)]
pub enum UpEvent {
    Ready {
        nodes: Vec<(String, u32, DoorAddrs)>,
        namespaces: BTreeMap<String, String>,
        /// What was deployed to look at, and is there.
        demo: Option<Demo>,
        /// Who has a mailbox, if that is mail.
        people: Vec<Person>,
        millis: u64,
    },
    Died {
        name: String,
        pid: u32,
        how: String,
    },
    /// It left for good, as it was asked to.
    Removed {
        name: String,
        pid: u32,
    },
    Restarted {
        name: String,
        pid: u32,
        restarts: u32,
    },
    /// Its folder was empty: the cluster has given up who it was, and it enters as another one.
    Emptied {
        name: String,
    },
    Error {
        text: String,
    },
}

/// How to tell it.
#[derive(Clone, Copy)]
pub struct Told {
    pub json: bool,
}

impl Told {
    pub fn tell(self, event: &UpEvent) {
        if self.json {
            say!("{}", as_json(event));
        } else if let UpEvent::Error { .. } = event {
            // The caller ends with this error and prints it once.
        } else {
            say!("{}", as_text(event));
        }
    }
}

fn as_json(event: &UpEvent) -> serde_json::Value {
    match event {
        UpEvent::Ready { nodes, namespaces, demo, people, millis } => {
            let first = nodes.first().map(|(_, _, at)| at.at(Door::Http));
            let addresses = demo.zip(first).map(|(demo, http)| demo.addresses(http)).unwrap_or_default();
            let doors = demo.map(Demo::doors).unwrap_or_default();
            let nodes: Vec<_> = nodes
                .iter()
                .map(|(name, pid, at)| {
                    let mut node = json!(at);
                    node["name"] = json!(name);
                    node["pid"] = json!(pid);
                    let has_tls = at.get(Door::Https).is_some() || demo.is_some_and(Demo::has_certificate);
                    for (door, port) in doors.iter().filter(|(door, _)| has_tls || !door.ends_with('s')) {
                        node[door] = json!(SocketAddr::new(at.at(Door::Http).ip(), *port).to_string());
                    }
                    node
                })
                .collect();
            let mut ready = json!({"event": "ready", "nodes": nodes, "namespaces": namespaces, "demo": demo.is_some(), "millis": millis});
            if !addresses.is_empty() {
                ready["addresses"] = addresses.into_iter().collect();
            }
            if !people.is_empty() {
                ready["accounts"] = json!(people);
            }
            ready
        }
        UpEvent::Died { name, pid, how } => json!({"event": "died", "name": name, "pid": pid, "how": how}),
        UpEvent::Removed { name, pid } => json!({"event": "removed", "name": name, "pid": pid}),
        UpEvent::Restarted { name, pid, restarts } => {
            json!({"event": "restarted", "name": name, "pid": pid, "restarts": restarts})
        }
        UpEvent::Emptied { name } => json!({"event": "emptied", "name": name}),
        UpEvent::Error { text } => json!({"event": "error", "text": text}),
    }
}

fn as_text(event: &UpEvent) -> String {
    match event {
        UpEvent::Ready { nodes, namespaces, demo, people, millis } => {
            ready_text(nodes, namespaces, *demo, people, *millis)
        }
        UpEvent::Died { name, pid, how } => format!("{name} (pid {pid}) ended: {how}; starting it again"),
        UpEvent::Removed { name, pid } => format!("{name} (pid {pid}) has left the cluster"),
        UpEvent::Restarted { name, pid, .. } => format!("{name} runs again (pid {pid})"),
        UpEvent::Emptied { name } => {
            format!(
                "{name}'s folder is empty: it enters anew and gets its copies from the others; what only it had is lost"
            )
        }
        UpEvent::Error { text } => text.clone(),
    }
}

fn ready_text(
    nodes: &[(String, u32, DoorAddrs)],
    namespaces: &BTreeMap<String, String>,
    demo: Option<Demo>,
    people: &[Person],
    millis: u64,
) -> String {
    let has_shop = demo.is_some_and(Demo::is_shop);
    let mut out = format!("{} nodes run, ready after {:.1} s\n\n", nodes.len(), millis as f64 / 1000.0);
    let columns = || Door::all().filter(|door| door.about().opens == Opens::Always);
    let row = |cell: &dyn Fn(Door) -> String| columns().map(|door| format!(" {:<20}", cell(door))).collect::<String>();
    out += &format!("  {:<5} {:>8} {}\n", "node", "pid", row(&|door| door.about().purpose.to_owned()));
    for (name, pid, at) in nodes {
        out += &format!("  {name:<5} {pid:>8} {}\n", row(&|door| at.at(door).to_string()));
    }
    if !people.is_empty() {
        out += &mail_text(nodes, demo, people);
    }
    let Some((_, _, first)) = nodes.first() else { return out };
    let (last_name, last_pid, last) = nodes.last().map(|(n, p, a)| (n, p, a)).expect("there is a first");
    out += "\nTry:\n";
    if has_shop {
        out += &format!(
            "  the shop:        curl -b sid=me -d ware=honey http://{}/add    (or open http://{}/ in a browser)\n",
            first.at(Door::Http),
            first.at(Door::Http)
        );
    }
    for (name, address) in demo.map(|demo| demo.addresses(first.at(Door::Http))).unwrap_or_default() {
        out += &format!("  {:<16} {address}\n", format!("{name}:"));
    }
    if let Some(https) = first.get(Door::Https) {
        out += &format!("  HTTPS:           curl -k https://{https}/    (each node at port {})\n", https.port());
    }
    out += &format!("  the monitor:     http://{}/\n", first.at(Door::Api));
    // Of those of mail none is for clients of Redis.
    if let Some(url) = namespaces.values().next().filter(|_| people.is_empty()) {
        out += &format!("  redis-cli:       redis-cli -u {url} SET hello world\n");
    }
    let cart = if has_shop {
        format!("; your cart: curl -b sid=me http://{}/cart.json", first.at(Door::Http))
    } else {
        String::new()
    };
    out += &format!("  kill a node:     kill -9 {last_pid}    ({last_name}{cart})\n");
    out += &format!(
        "  watch it return: coppice status --api {}    ({last_name} answers at {} again)\n",
        first.at(Door::Api),
        last.at(Door::Http)
    );
    out += "\nCtrl-C ends all of it.";
    out
}

/// Accounts of the demo of mail, and what to try with them.
fn mail_text(nodes: &[(String, u32, DoorAddrs)], demo: Option<Demo>, people: &[Person]) -> String {
    let doors: BTreeMap<String, u16> = demo.map(Demo::doors).unwrap_or_default().into_iter().collect();
    let ([first, ..], [.., last], [ann, .., bob]) = (nodes, nodes, people) else { return String::new() };
    let at = |node: &(String, u32, DoorAddrs), door: &str| {
        SocketAddr::new(node.2.at(Door::Http).ip(), doors.get(door).copied().unwrap_or_default())
    };
    let read = |node| {
        format!(
            "curl -k -u {}:{} pop3s://{}/    (a list; /1 is the first message)",
            ann.address,
            ann.password,
            at(node, "pop3s")
        )
    };
    let mut out = "\nAccounts:\n".to_owned();
    people.iter().for_each(|person| out += &format!("  {}  {}\n", person.address, person.password));
    out += "\nTry mail:\n";
    out += &format!(
        "  send:            swaks --server {} --from {} --to {}\n",
        at(first, "smtp"),
        bob.address,
        ann.address
    );
    out += &format!("  read elsewhere:  {}\n", read(last));
    out += &format!("  kill a node:     kill -9 {}    ({})\n", last.1, last.0);
    out += &format!("  read again:      {}\n", read(first));
    out += &format!(
        "  lose a disk:     Ctrl-C, rm -r .coppice/{} (or where --dir says), start again, and read again\n",
        last.0
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_lines_have_their_documented_shape() {
        let addresses = DoorAddrs::on([127, 0, 0, 1].into());
        let ready = UpEvent::Ready {
            nodes: vec![("n1".into(), 7, addresses)],
            namespaces: BTreeMap::from([("carts".into(), "redis://carts:T@127.0.0.1:6379".into())]),
            demo: Some(Demo::named(None).unwrap()),
            people: Vec::new(),
            millis: 900,
        };
        let expect = json!({"event": "ready", "demo": true, "millis": 900,
            "nodes": [{"name": "n1", "pid": 7, "http": "127.0.0.1:8080", "resp": "127.0.0.1:6379", "api": "127.0.0.1:7070", "peer": "127.0.0.1:7071"}],
            "namespaces": {"carts": "redis://carts:T@127.0.0.1:6379"}});
        assert_eq!(as_json(&ready), expect);
        let transend = UpEvent::Ready {
            nodes: vec![("n1".into(), 7, addresses)],
            namespaces: BTreeMap::new(),
            demo: Some(Demo::named(Some("transend")).unwrap()),
            people: Vec::new(),
            millis: 900,
        };
        let image = "http://127.0.0.1:8080/insecure/rs:fit:320:240/q:30/plain/origin://photos/photo/1.jpg";
        let three = json!({"original": "http://127.0.0.1:8080/original/", "distilled": "http://127.0.0.1:8080/", "image": image});
        assert_eq!(as_json(&transend)["addresses"], three);
        assert!(as_text(&transend).contains(&format!("  image:           {image}\n")), "{}", as_text(&transend));
        let person = |name: &str| Person { address: format!("{name}@mail.test"), password: "secret".into() };
        let mail = UpEvent::Ready {
            nodes: vec![("n1".into(), 7, addresses)],
            namespaces: BTreeMap::from([("mail".into(), "redis://mail:T@127.0.0.1:6379".into())]),
            demo: Some(Demo::named(Some("mail")).unwrap()),
            people: vec![person("ann"), person("bob")],
            millis: 900,
        };
        let text = as_text(&mail);
        assert!(text.contains("pop3s://127.0.0.1:2995/") && !text.contains("redis-cli"), "{text}");
        let died = UpEvent::Died { name: "n1".into(), pid: 7, how: "signal: 9 (SIGKILL)".into() };
        assert_eq!(as_json(&died), json!({"event": "died", "name": "n1", "pid": 7, "how": "signal: 9 (SIGKILL)"}));
        let restarted = UpEvent::Restarted { name: "n1".into(), pid: 8, restarts: 1 };
        assert_eq!(as_json(&restarted), json!({"event": "restarted", "name": "n1", "pid": 8, "restarts": 1}));
        let removed = UpEvent::Removed { name: "n4".into(), pid: 8 };
        assert_eq!(as_json(&removed), json!({"event": "removed", "name": "n4", "pid": 8}));
        let emptied = UpEvent::Emptied { name: "n3".into() };
        assert_eq!(as_json(&emptied), json!({"event": "emptied", "name": "n3"}));
        assert_eq!(as_json(&UpEvent::Error { text: "no".into() }), json!({"event": "error", "text": "no"}));
        assert_eq!(as_text(&ready).matches("http").count(), 4, "{}", as_text(&ready));
        let secure = addresses.with(Door::Https, ([127, 0, 0, 1], 8443).into());
        let nodes = vec![("n1".into(), 7, secure)];
        let ready = UpEvent::Ready { nodes, namespaces: BTreeMap::new(), demo: None, people: Vec::new(), millis: 900 };
        assert_eq!(as_json(&ready)["nodes"][0]["https"], json!("127.0.0.1:8443"));
        assert!(as_text(&ready).contains("curl -k https://127.0.0.1:8443/"), "{}", as_text(&ready));
    }
}
