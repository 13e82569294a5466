//! What a node does with the list of doors ([`cluster::doors`]): their options, their sockets from one program to the next, and who
//! serves what comes in. A new door has an arm in [`serve`], and a folder in `edge`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;

use clap::{Arg, ArgMatches, Command, FromArgMatches, value_parser};
use cluster::doors::{Door, DoorAddrs, Opens};
use edge::resp::secure::Arrived;
use edge::tls::Certs;
use edge::{Functions, Meter};
use node::{Node, View};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::desks::{ApiDesk, EdgeDial, RespDesk};
use crate::handover::Inherited;
use crate::ports::Wanted;
use crate::starting::{Manner, Starting};

/// Where doors are, if that is said: `--http ADDRESS:PORT` and so on, or what stands in `node.toml`.
#[derive(Clone, Debug, Default)]
pub struct DoorWishes(BTreeMap<Door, SocketAddr>);

/// At which ports they are: `--http-port PORT` and so on, the same on each node.
#[derive(Clone, Debug)]
pub struct DoorPorts(BTreeMap<Door, u16>);

impl clap::Args for DoorWishes {
    fn augment_args(command: Command) -> Command {
        Door::all().fold(command, |command, door| {
            let about = door.about();
            let arg = Arg::new(about.name).long(about.name).value_name("ADDRESS:PORT");
            let arg = arg.value_parser(value_parser!(SocketAddr));
            command.arg(match about.opens {
                Opens::Always => arg.help(format!("{} (default: as in node.toml)", about.purpose)),
                Opens::WhenAsked => arg.help(format!("{} (default: as in node.toml, else none)", about.purpose)),
                Opens::WithCertificates => arg.help(format!(
                    "{} (default: as in node.toml, else port {} beside --http if there are certificate files)",
                    about.purpose, about.port
                )),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DoorWishes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |door: Door| Some((door, *matches.get_one::<SocketAddr>(door.about().name)?));
        Ok(Self(Door::all().filter_map(said).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl clap::Args for DoorPorts {
    fn augment_args(command: Command) -> Command {
        Door::all().fold(command, |command, door| {
            let about = door.about();
            let name = about.port_option.trim_start_matches('-');
            let arg = Arg::new(name).long(name).value_name("PORT").value_parser(value_parser!(u16));
            command.arg(match about.opens {
                Opens::Always => arg.help(about.purpose).default_value(about.port_text),
                Opens::WhenAsked => arg.help(format!("{} (default: none)", about.purpose)),
                Opens::WithCertificates => arg.help(format!(
                    "{} (default: {} if there are certificate files, else none)",
                    about.purpose, about.port
                )),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DoorPorts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |door: Door| {
            let name = door.about().port_option.trim_start_matches('-');
            Some((door, *matches.get_one::<u16>(name)?))
        };
        Ok(Self(Door::all().filter_map(said).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl DoorPorts {
    /// The doors that a node on this address has.
    pub fn on(&self, host: IpAddr, has_certificates: bool) -> DoorAddrs {
        let at = |door: Door| {
            let about = door.about();
            let said = self.0.get(&door).copied();
            let port = match about.opens {
                Opens::Always => Some(said.unwrap_or(about.port)),
                Opens::WithCertificates => said.or_else(|| has_certificates.then_some(about.port)),
                Opens::WhenAsked => said,
            };
            Some(SocketAddr::new(host, port?))
        };
        DoorAddrs::of(at).expect("a door that is always open has a port")
    }
}

impl DoorWishes {
    /// Takes what is said of doors out of `node.toml`.
    pub fn take(table: &mut toml::Table) -> Result<Self, String> {
        let mut wishes = BTreeMap::new();
        for door in Door::all() {
            let key = door.about().key;
            let Some(value) = table.remove(key) else { continue };
            wishes.insert(door, value.try_into().map_err(|e: toml::de::Error| format!("{key}: {}", e.message()))?);
        }
        Ok(Self(wishes))
    }

    /// The doors that a node has who is told this, and elsewhere that.
    ///
    /// # Errors
    /// Nobody says where a door is that each node has.
    pub fn or(&self, file: &DoorWishes, has_certificates: bool) -> Result<DoorAddrs, String> {
        let said = |door: Door| self.0.get(&door).or_else(|| file.0.get(&door)).copied();
        let beside = |door: Door| Some(SocketAddr::new(said(Door::Http)?.ip(), door.about().port));
        let at = |door: Door| match door.about().opens {
            Opens::Always | Opens::WhenAsked => said(door),
            Opens::WithCertificates if has_certificates => said(door).or_else(|| beside(door)),
            Opens::WithCertificates => said(door),
        };
        DoorAddrs::of(at).map_err(|door| {
            let about = door.about();
            format!("node.toml does not say where {} is ({}); {} does", about.key, about.purpose, about.option)
        })
    }
}

/// As options of `coppice run`.
pub fn options(at: &DoorAddrs) -> impl Iterator<Item = String> {
    at.open().flat_map(|(door, addr)| [door.about().option.to_owned(), addr.to_string()])
}

/// What has to be free, and with which option another one is chosen.
pub fn wanted(at: &DoorAddrs, option: fn(&cluster::doors::AboutDoor) -> &'static str) -> Vec<Wanted> {
    let wanted = |(door, addr): (Door, SocketAddr)| {
        let about = door.about();
        Wanted { addr, purpose: about.purpose, option: option(about) }
    };
    at.open().map(wanted).collect()
}

/// The sockets of a node's doors, but for the peers': that it is shut is how they know that this life of the node is over.
pub struct Sockets(BTreeMap<Door, TcpListener>);

impl Sockets {
    pub fn open(at: &DoorAddrs, inherited: &mut Inherited) -> Result<Self, String> {
        let open = at.open().filter(|(door, _)| *door != Door::Peer);
        open.map(|(door, addr)| Ok((door, inherited.listen(addr)?))).collect::<Result<_, String>>().map(Self)
    }

    /// The same sockets once more: they stay open when the doors are closed.
    pub fn kept(&self) -> Result<Vec<TcpListener>, String> {
        let kept = self.0.values().map(TcpListener::try_clone);
        kept.collect::<Result<_, _>>().map_err(|e| format!("cannot keep a door open: {e}"))
    }

    /// Says at a door that the node starts, until it is served.
    pub fn starting(&self, door: Door, manner: Manner, io: &Handle) -> Result<Option<Starting>, String> {
        let again = self.0.get(&door).map(TcpListener::try_clone).transpose();
        let again = again.map_err(|e| format!("cannot answer while the node starts: {e}"))?;
        Ok(again.map(|socket| Starting::begin(manner, io, socket)))
    }

    /// The socket of one door, for who serves it.
    pub fn take(&mut self, door: Door) -> Option<TcpListener> {
        self.0.remove(&door)
    }

    /// Serves all of them; ends if one cannot be served.
    pub async fn serve(self, hall: &Hall) -> Result<(), String> {
        let each = self.0.into_iter().map(|(door, socket)| {
            Box::pin(async move {
                let ended = serve(door, socket, hall).await;
                ended.map_err(|e| format!("{} is not served: {e}", door.about().purpose))
            })
        });
        futures_util::future::select_all(each).await.0
    }
}

/// What the doors on the edge's threads have of the node.
pub struct Hall {
    pub view: watch::Receiver<Arc<View>>,
    pub dial: Arc<EdgeDial>,
    pub meter: Arc<Meter>,
    pub desk: Arc<ApiDesk>,
    pub http: edge::http::Config,
    /// Certificates for services: of files, of the cluster, and one that is signed by itself if there are no files.
    pub tls: Arc<Certs>,
    /// Some are of files.
    pub has_files: bool,
    /// The node's own certificate, for its own doors where there are no others.
    pub own: Arc<Certs>,
    /// Who comes to the Redis door with TLS, on the way to the core thread.
    pub arrivals: mpsc::Sender<Arrived>,
    /// The API and the monitor.
    pub api: edge::api::Router,
}

impl Hall {
    /// For namespaces and the API: the same as services have; in place of one that is signed by itself the node's own.
    fn certificates(&self) -> &Arc<Certs> {
        if self.has_files { &self.tls } else { &self.own }
    }
}

/// Serves what comes in by one door.
async fn serve(door: Door, socket: TcpListener, hall: &Hall) -> io::Result<()> {
    match door {
        Door::Http | Door::Https => {
            let tls = (door == Door::Https).then(|| Arc::clone(&hall.tls));
            let config = edge::http::Config { tls, ..hall.http.clone() };
            let (view, dial, meter) = (hall.view.clone(), Arc::clone(&hall.dial), Arc::clone(&hall.meter));
            edge::http::serve_with(socket, view, dial, meter, Arc::clone(&hall.desk) as _, config).await
        }
        Door::Api | Door::ApiTls => {
            let certs = (door == Door::ApiTls).then(|| Arc::clone(hall.certificates()));
            let stop = edge::closing::closes(hall.view.clone(), Arc::clone(&hall.meter));
            edge::api::serve(socket, hall.api.clone(), certs, Arc::clone(&hall.meter), stop).await
        }
        Door::RespTls => {
            let acceptor = hall.certificates().acceptor_of(&[]).map_err(io::Error::other)?;
            let stop = edge::closing::closes(hall.view.clone(), Arc::clone(&hall.meter));
            edge::resp::secure::serve(socket, acceptor, Arc::clone(&hall.meter), hall.arrivals.clone(), stop).await
        }
        Door::Resp | Door::Peer => unreachable!("{door} is served on the core thread"),
    }
}

/// The doors that are served on the core thread, beside the machine. Peers' is the host's own.
pub struct CoreDoors {
    pub resp: Option<TcpListener>,
    pub arrivals: mpsc::Receiver<Arrived>,
    pub meter: Arc<Meter>,
    pub functions: Arc<Functions>,
    pub sheds: bool,
    /// Over when the node has its log, and this serves.
    pub starting: Option<Starting>,
}

impl CoreDoors {
    pub async fn serve(self, port: host::LocalPort<Node>) {
        let Self { resp, arrivals, meter, functions, sheds, starting } = self;
        starting.inspect(Starting::over);
        let stop = edge::closing::closes(port.watch(), Arc::clone(&meter));
        let desk = Rc::new(RespDesk { port, sheds });
        let Some(resp) = resp else { return };
        if let Err(error) =
            edge::resp::serve_with(resp, Some(arrivals), desk, meter, functions, stop, Default::default()).await
        {
            tracing::error!(%error, "the Redis protocol is not served");
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Both {
        #[arg(long, group = "certificates")]
        tls_dir: Option<String>,
        #[command(flatten)]
        wishes: DoorWishes,
        #[command(flatten)]
        ports: DoorPorts,
    }

    fn parse(words: &[&str]) -> Result<Both, String> {
        Both::try_parse_from([&["coppice"], words].concat()).map_err(|e| e.to_string())
    }

    #[test]
    fn doors_are_where_the_line_says_else_where_the_file_says() {
        let mut table = "http = '127.0.0.1:1'\nresp = '127.0.0.1:2'\napi = '127.0.0.1:3'\nseeds = []".parse().unwrap();
        let file = DoorWishes::take(&mut table).unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["seeds"]);
        let none = file.or(&DoorWishes::default(), false).unwrap_err();
        assert!(none.contains("--peer"), "{none}");
        let line = parse(&["--peer", "10.0.0.1:4", "--resp", "10.0.0.1:9", "--tls-dir", "here"]).unwrap();
        let at = line.wishes.or(&file, line.tls_dir.is_some()).unwrap();
        assert_eq!(at.at(Door::Resp).to_string(), "10.0.0.1:9");
        assert_eq!(at.at(Door::Http).to_string(), "127.0.0.1:1");
        assert_eq!(at.get(Door::Https).unwrap().to_string(), "127.0.0.1:8443");
        assert_eq!(line.wishes.or(&file, false).unwrap().get(Door::Https), None);
        let wants = parse(&["--peer", "10.0.0.1:4", "--https", "127.0.0.1:1"]).unwrap();
        let at = wants.wishes.or(&file, false).unwrap();
        assert_eq!(at.get(Door::Https).unwrap().to_string(), "127.0.0.1:1", "the cluster's certificates are enough");
        let error = DoorWishes::take(&mut "api = 'here'".parse().unwrap()).unwrap_err();
        assert!(error.starts_with("api: "), "{error}");
    }

    #[test]
    fn ports_are_the_same_on_each_node_and_come_back_as_options() {
        let line = parse(&["--api-port", "17070"]).unwrap();
        let at = line.ports.on([127, 0, 0, 2].into(), false);
        assert_eq!(at.at(Door::Api).to_string(), "127.0.0.2:17070");
        assert_eq!(at.at(Door::Http).to_string(), "127.0.0.2:8080");
        let words = options(&at).collect::<Vec<_>>();
        let words = words.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(parse(&words).unwrap().wishes.or(&DoorWishes::default(), false).unwrap(), at);
        assert_eq!(wanted(&at, |about| about.port_option).len(), 4);
    }
}
