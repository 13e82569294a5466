//! `coppice run`: one node. Opens its folder and its ports, starts the machine on the core thread and the doors around it.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Boot, LEVEL, Outcome, Rng, Span};
use clones::limits::{CLONES_MAX, CLONES_PER_PROCESSOR, LOAD_EVERY};
use cluster::root::Change;
use cluster::{Card, Door, DoorAddrs};
use edge::closing::{LAST_TIME, closes};
use edge::http::secure::Secure;
use edge::resp::scripts::ScriptDesk;
use edge::resp::secure::Arrived;
use edge::tls::{Certs, Files, Shared};
use edge::{Functions, Meter};
use host::access::AccessLogs;
use host::{DataDir, Dialer, HostConfig, Identity, Tls};
use node::{Answer, Ask, Birth, Leaving, Node, View};
use tokio::sync::{mpsc, watch};
use tracing_subscriber::EnvFilter;

use crate::anew;
use crate::away_for::AwayFor;
use crate::certificate::{self, Renewal};
use crate::class_flags::ClassFlags;
use crate::desks::{ApiDesk, EdgeDial, JoinDesk, PageSource, TunnelDesk};
use crate::doorman::Doorman;
use crate::doors::{self, CoreDoors, DoorWishes, Hall, Sockets};
use crate::found::{self, Loaded, NodeFile};
use crate::handover::{Again, Inherited};
use crate::keeper::Keeper;
use crate::logbook::Logbook;
use crate::own_log::{self, OwnLog};
use crate::plain::complain;
use crate::ports::check_free;
use crate::program::{self, Programs};
use crate::program_desk::ProgramDesk;
use crate::services;
use crate::size::{Size, brick_memory};
use crate::starting::{Manner, Starting};
use crate::threads::Threads;

#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The node's folder, from `coppice init` or `coppice join`
    #[arg(long, env = "COPPICE_DIR", default_value = ".coppice")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub doors: DoorWishes,
    /// Certificates: NAME.crt with NAME.key, or fullchain.pem with privkey.pem, in it or one folder below
    #[arg(long, value_name = "DIR", group = "certificates")]
    pub tls_dir: Option<PathBuf>,
    /// A certificate with its chain, PEM; beside --tls-dir it is for all names that none there has
    #[arg(long, value_name = "FILE", requires = "tls_key", group = "certificates")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// HTTP and HTTPS clients come through a balancer that speaks the PROXY protocol (version 1 or 2)
    #[arg(long)]
    pub accept_proxy: bool,
    /// HTTP connections of one client address at most (default: an eighth of those that are still free of 20,000)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub address_connections_max: Option<u64>,
    /// A field that clients may set (CF-Connecting-IP, X-HTTP-Method-Override): what is before this door sets it, or takes out
    /// theirs; may be given several times
    #[arg(long, value_name = "NAME", value_parser = trusted_header)]
    pub trusted_header: Vec<hyper::header::HeaderName>,
    /// The port at which clients find HTTPS, where another one than the door's leads to it: plain HTTP is led there (default: 443
    /// for who came by port 80 though the HTTP door has another, else the HTTPS door's)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub https_outside: Option<u16>,
    /// The API shows nothing to who shows no token, but whether the node lives and is ready
    #[arg(long)]
    pub api_private: bool,
    /// Peer address of another node; may be given several times (default: as in node.toml)
    #[arg(long)]
    pub seed: Vec<SocketAddr>,
    /// Relative working folders of services are below this one (default: where this runs)
    #[arg(long)]
    pub services: Option<PathBuf>,
    /// Memory for session values of this node, like 512MiB or 2GiB (default: as in node.toml, else 1GiB)
    #[arg(long, value_name = "SIZE", value_parser = brick_memory)]
    pub brick_memory: Option<Size>,
    /// Run clones only while all other nodes are full (or overflow = true in node.toml)
    #[arg(long)]
    pub overflow: bool,
    /// Clones that this node is meant to run at most (default: as in node.toml, else 4 for each processor)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLONES_MAX)))]
    pub clones_max: Option<u32>,
    /// What a node misses that is away is kept for it for so long, like 7d or 36h: one that is back later enters the cluster anew.
    /// The same at all nodes (default: as in node.toml, else 7d)
    #[arg(long, value_name = "TIME")]
    pub away_for: Option<AwayFor>,
    #[command(flatten)]
    pub classes: ClassFlags,
    /// Take part as a program of this level would: while an upgrade is on trial, the older program can come back (default: all that
    /// this program has)
    #[arg(long, value_name = "N", default_value_t = LEVEL, hide_default_value = true, value_parser = level)]
    pub level: u32,
}

/// One of the fields that are taken out unless somebody says so.
fn trusted_header(text: &str) -> Result<hyper::header::HeaderName, String> {
    let name = text.to_ascii_lowercase();
    let known = edge::http::headers::BELIEVED;
    if !known.contains(&&*name) {
        return Err(format!("fields that are taken out otherwise are {}", known.join(", ")));
    }
    name.parse().map_err(|_| "no name of a field".to_owned())
}

/// What a program may take part as.
pub fn level(text: &str) -> Result<u32, String> {
    let level = text.parse().ok().filter(|level| (1..=LEVEL).contains(level));
    level.ok_or_else(|| format!("this program has level {LEVEL}; it takes part with 1 to {LEVEL}"))
}

/// Exit status of a node that was asked to restart and cannot by itself, or that is to enter the cluster anew: whoever watches
/// over it starts it again (EX_TEMPFAIL of sysexits).
pub const EXIT_RESTART: i32 = host::EXIT_AGAIN;
/// Exit status of a node that has left for good: it is not to be started again.
pub const EXIT_REMOVED: i32 = 76;
/// One change of the root group, perhaps over a change of its leader.
const DEPARTS_WITHIN: Span = Span::secs(10);
const DEPARTS_AGAIN: Duration = Duration::from_millis(200);
/// Doors that are closing wait so long for clients to take what is theirs.
const DOORS_CLOSE_MAX: Duration = Duration::from_secs(5);
/// Connections of TCP services, which nearly all have had their turn by then, so long at most: the last ones, and a moment.
const TCP_CLOSE_MAX: Duration = LAST_TIME.saturating_add(Duration::from_millis(500));

/// Files and sockets that the doors' own limits on connections may need, and room for disk, peers and children.
const FILES_WANTED: u64 = 64 << 10;

/// Shells give 1024 descriptors where the system allows many more; each connection is one. Where even the allowed ones are
/// few the node runs all the same, and says so.
fn raise_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let have = getrlimit(Resource::Nofile);
    let wanted = have.maximum.map_or(FILES_WANTED, |most| most.min(FILES_WANTED));
    if have.current.is_none_or(|now| now >= wanted) {
        return;
    }
    let raised = Rlimit { current: Some(wanted), maximum: have.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, have = have.current, wanted, "the limit of open files could not be raised");
    }
}

/// Writes what happens in this process to standard error (and where `own_log` keeps it), from the level that COPPICE_LOG
/// names.
pub fn log() {
    let filter = EnvFilter::try_from_env("COPPICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(false).with_writer(|| OwnLog).init();
}

/// Runs until it is killed, or asked to restart or to leave by `coppice node`.
pub fn run(args: RunArgs) -> Result<(), String> {
    log();
    raise_files_limit();
    host::close_self().map_err(|e| e.to_string())?;
    Programs::of(&args.dir, program::installed()?).begin(std::env::args_os().skip(1));
    let (mut inherited, again) = (Inherited::take(), Again::remember()?);
    // Once more if it has entered the cluster anew.
    loop {
        match run_once(args.clone(), &mut inherited, &again)? {
            Ended::Stopped => return Ok(()),
            Ended::Anew => (),
        }
    }
}

enum Ended {
    Stopped,
    /// It is somebody else now, and starts as such.
    Anew,
}

/// One life of a node, step by step: what its folder says, which life this is, its sockets, its machine, its doors, its end.
fn run_once(args: RunArgs, inherited: &mut Inherited, again: &Again) -> Result<Ended, String> {
    let home = Home::open(&args)?;
    home.check_free(inherited)?;
    let boot = match home.next_boot()? {
        Ok(boot) => boot,
        Err(error) => return home.enter_anew(&error),
    };
    anew::take_over(&home.held, &home.identity);
    let near = state::cache::Near::default();
    let birth = home.birth(&args, boot, near.clone())?;
    let mut sockets = Sockets::open(&home.doors, inherited)?;
    let tcp_ports = Arc::new(edge::tcp::Ports::handed_over(inherited.rest()));
    let kept = sockets.kept()?;
    let io = Threads::start()?;
    let started = Started::begin(&home, &args, birth, &mut sockets, &io)?;
    let started = match started {
        Ok(started) => started,
        Err(error) => {
            // Nobody is to be kept waiting at doors that do not open.
            drop((sockets, kept, io));
            return home.enter_anew(&error);
        }
    };
    let (running, leaves) = started.serve(&home, &args, sockets, &tcp_ports, &io, near)?;
    let removed = matches!(leaves, Some(Leaving::Remove)) && io.block_on(departs(&running.port()));
    drop(running);
    home.close(removed)?;
    end(leaves, again, kept, &tcp_ports)
}

/// A node before it runs: its folder, and what this and the command line say of it.
struct Home {
    held: DataDir,
    dir: PathBuf,
    identity: Identity,
    file: NodeFile,
    founding: Option<Change>,
    doors: DoorAddrs,
    /// Certificates for services, if some are of files.
    tls: Option<Arc<Certs>>,
    /// Those of the cluster.
    shared: Arc<Shared>,
    seeds: Vec<SocketAddr>,
    services: PathBuf,
}

impl Home {
    fn open(args: &RunArgs) -> Result<Self, String> {
        let held = DataDir::open(&args.dir).map_err(|e| e.to_string())?;
        if let Some(why) = held.given_up().map_err(|e| e.to_string())? {
            let dir = args.dir.display();
            tracing::error!("the node in {dir} was removed from its cluster ({}), and is not started", why.trim());
            complain!(
                "coppice: the node in {dir} was removed from its cluster; another one can be made there (`coppice join`)"
            );
            std::process::exit(EXIT_REMOVED)
        }
        held.finish_entering().map_err(|e| e.to_string())?;
        let Loaded { identity, file, doors, founding } = found::load(&held, args.level)?;
        let files = Files { dir: args.tls_dir.clone(), pair: args.tls_cert.clone().zip(args.tls_key.clone()) };
        let shared = Arc::new(Shared::default());
        let has_files = files.dir.is_some() || files.pair.is_some();
        let tls = has_files.then(|| Certs::load_beside(files, Arc::clone(&shared))).transpose()?;
        let doors = args.doors.or(&doors, tls.is_some())?;
        let seeds = if args.seed.is_empty() { file.seeds.clone() } else { args.seed.clone() };
        let services = match &args.services {
            Some(dir) => dir.clone(),
            None => std::env::current_dir().map_err(|e| format!("cannot tell the working folder: {e}"))?,
        };
        Ok(Self { held, dir: args.dir.clone(), identity, file, founding, doors, tls, shared, seeds, services })
    }

    /// The ports of its doors are free, but for those that it was handed.
    fn check_free(&self, inherited: &Inherited) -> Result<(), String> {
        let mut wanted = doors::wanted(&self.doors, |about| about.option);
        wanted.retain(|port| !inherited.has(port.addr));
        check_free(&wanted)
    }

    /// Which life of the node this is, or why it has to enter the cluster as somebody else: without its count of lives it may take
    /// itself for a former one, and without its log it has forgotten what it promised.
    fn next_boot(&self) -> Result<Result<Boot, host::Error>, String> {
        let boot = match self.held.next_boot() {
            Ok(boot) => boot,
            Err(error @ host::Error::NotOurs { .. }) => return Ok(Err(error)),
            Err(error) => return Err(error.to_string()),
        };
        if boot > Boot(1) && self.founding.is_none() && !host::has_log(&self.dir) {
            return Ok(Err(host::Error::Distrusted("the log that this node had is not there".to_owned())));
        }
        Ok(Ok(boot))
    }

    fn enter_anew(&self, why: &host::Error) -> Result<Ended, String> {
        anew::enter(&self.held, &self.identity, &self.seeds, why).map(|()| Ended::Anew)
    }

    fn birth(&self, args: &RunArgs, boot: Boot, near: state::cache::Near) -> Result<Birth, String> {
        let card = Card {
            id: self.identity.node,
            boot,
            name: self.identity.name.clone(),
            doors: self.doors,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            level: args.level,
        };
        let brick_bytes = match (args.brick_memory, &self.file.brick_memory) {
            (Some(size), _) => size.0,
            (None, Some(size)) => {
                brick_memory(&size.to_string()).map_err(|e| format!("node.toml: brick_memory: {e}"))?.0
            }
            (None, None) => state::session::limits::BRICK_BYTES,
        };
        let mut settings = args.classes.settings();
        (settings.cache, settings.session.brick_bytes) = (near, brick_bytes);
        if let Some(away_for) = args.away_for.or(self.file.away_for) {
            settings.object.away_for = away_for.span();
        }
        Ok(Birth {
            cluster: self.identity.cluster_name.clone(),
            card,
            seeds: self.seeds.clone(),
            seed: seed()?,
            settings,
            overflow: args.overflow || self.file.overflow,
            room: args.clones_max.or(self.file.clones_max).unwrap_or_else(clones_max_default),
            builtins: services::NAMES,
            linear_log: state::linear::limits::LOG,
            found: self.founding.clone(),
        })
    }

    /// What services' clients are shown: files first, then the cluster's; without files, for all other names, one that is signed by
    /// itself and says so.
    fn certificates(&self) -> Result<Arc<Certs>, String> {
        if let Some(of_files) = &self.tls {
            return Ok(Arc::clone(of_files));
        }
        let (chain, key) = host::self_signed().map_err(|e| e.to_string())?;
        Certs::own_beside(&chain, &key, Arc::clone(&self.shared))
    }

    /// The node has ended; if it was `removed` nothing is left of it.
    fn close(self, removed: bool) -> Result<(), String> {
        if removed {
            self.held.give_up("its cluster does not name it any more").map_err(|e| e.to_string())?;
            tracing::warn!(dir = %self.dir.display(), "key and log of this node are deleted");
        }
        Ok(())
    }
}

/// A node whose machine runs on the core thread, before the doors of the other threads open.
struct Started {
    running: host::Running<Node>,
    card: Card,
    store: host::CodeStore,
    join: Arc<JoinDesk>,
    tunnels: Arc<TunnelDesk>,
    doorman: Arc<Doorman>,
    tls: Tls,
    dialer: Dialer,
    dial: Arc<EdgeDial>,
    certificate: Arc<certificate::Figures>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    arrivals: mpsc::Sender<Arrived>,
    /// Over when the API is served.
    starts: Option<Starting>,
}

impl Started {
    /// The second error is damage: the node has to enter the cluster as somebody else.
    fn begin(
        home: &Home,
        args: &RunArgs,
        birth: Birth,
        sockets: &mut Sockets,
        io: &Threads,
    ) -> Result<Result<Self, host::Error>, String> {
        let (card, peer) = (birth.card.clone(), home.doors.at(Door::Peer));
        let doorman = Doorman::new();
        let join = Arc::new(JoinDesk::new(&home.identity, Arc::clone(&doorman)));
        let tunnels = Arc::new(TunnelDesk::new(home.doors.at(Door::Api), Arc::clone(&doorman)));
        let code_dir = args.dir.join("code");
        let store = host::CodeStore::open(code_dir.clone()).map_err(|e| format!("{}: {e}", code_dir.display()))?;
        let tls = Tls::new(&home.identity).map_err(|e| e.to_string())?;
        let dialer = Dialer::showing(tls.clone(), peer);
        let dial = Arc::new(EdgeDial::new(dialer.clone()));
        let scripts = Arc::new(ScriptDesk::open(&args.dir).map_err(|e| format!("no threads for scripts: {e}"))?);
        let config = HostConfig {
            dir: args.dir.clone(),
            peer: listen(peer)?,
            proc_host: Node::clone_host(peer),
            identity: home.identity.clone(),
            tls: tls.clone(),
            boot: card.boot,
            card: card.encode(),
            services_dir: home.services.clone(),
            code_dir,
            keeper: PathBuf::from("/proc/self/exe"),
            work: Some(Arc::clone(&scripts) as Arc<dyn host::WorkDesk>),
            join: Some(Arc::clone(&join) as Arc<dyn host::JoinDesk>),
            tunnels: Some(Arc::clone(&tunnels) as Arc<dyn host::TunnelDesk>),
            io: io.handle().clone(),
        };
        let starts = sockets.starting(Door::Api, Manner::Api, io.handle())?;
        let starting = sockets.starting(Door::Resp, Manner::Resp, io.handle())?;
        let meter = Arc::new(Meter::new());
        let functions = Functions::new(&meter);
        let (arrivals, come) = edge::resp::secure::arrivals();
        let core = CoreDoors {
            resp: sockets.take(Door::Resp),
            arrivals: come,
            meter: Arc::clone(&meter),
            functions: Arc::clone(&functions),
            sheds: sheds(),
            starting,
        };
        let certificate = Arc::new(certificate::Figures::default());
        let (gauges_meter, gauges_certificate) = (Arc::clone(&meter), Arc::clone(&certificate));
        let kernel = [
            (node::LANDLOCK.to_owned(), host::landlock()),
            (node::CONTROL_GROUPS.to_owned(), u64::from(host::control_groups())),
        ];
        let of_files = home.tls.clone();
        as_with_a_long_log();
        let started = host::start(
            config,
            newborn(birth, core.sheds),
            move |port| Box::pin(core.serve(port)),
            move || {
                let files = of_files.iter().flat_map(|certs| certificate::file_gauges(certs));
                gauges_meter
                    .gauges()
                    .into_iter()
                    .chain(gauges_certificate.gauges())
                    .chain(kernel.clone())
                    .chain([(edge::meter::SCRIPTS_WITHHELD.to_owned(), scripts.withheld())])
                    .chain(files)
                    .collect()
            },
        );
        match started {
            Ok(running) => Ok(Ok(Self {
                running,
                card,
                store,
                join,
                tunnels,
                doorman,
                tls,
                dialer,
                dial,
                certificate,
                meter,
                functions,
                arrivals,
                starts,
            })),
            Err(error) if error.is_damage() => Ok(Err(error)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Opens the doors, and serves until the node leaves, or nothing if a signal ends it.
    fn serve(
        self,
        home: &Home,
        args: &RunArgs,
        sockets: Sockets,
        tcp_ports: &Arc<edge::tcp::Ports>,
        io: &Threads,
        near: state::cache::Near,
    ) -> Result<(host::Running<Node>, Option<Leaving>), String> {
        let Self { running, card, store, join, tunnels, doorman, tls, dialer, dial, certificate, .. } = self;
        let Self { meter, functions, arrivals, starts, .. } = self;
        let (port, peer) = (running.port(), card.peer());
        join.open(port.clone());
        io.spawn(doorman.follow(port.watch()));
        io.spawn(found::forget_founding(home.dir.clone()));
        io.spawn(anew::remember_peers(port.watch(), home.dir.clone()));
        tracing::info!(node = %card.name, id = %card.id, boot = %card.boot, doors = card.doors.shown(), %peer, "node runs");
        let logbook = Logbook::new(args.dir.join("logs"), dialer.clone(), port.clone());
        let programs = Programs::of(&home.dir, program::installed()?);
        let programs = ProgramDesk::new(programs, dialer.clone(), port.clone());
        io.spawn(Arc::clone(&programs).follow());
        let keeper = Keeper::new(store, dialer, port.clone());
        tunnels.open(port.clone(), Arc::clone(&keeper), Arc::clone(&logbook), Arc::clone(&programs));
        io.spawn(Arc::clone(&home.shared).follow(port.watch()));
        let (services_tls, has_files) = (home.certificates()?, home.tls.is_some());
        let desk = ApiDesk::new(
            port.clone(),
            (&home.identity, tls.clone()),
            peer,
            Arc::clone(&keeper),
            (logbook, programs),
            Arc::clone(&services_tls),
            near,
        );
        let desk = Arc::new(desk);
        // The page starts a task that samples.
        let entered = io.enter();
        let pages = monitor::router(Arc::new(PageSource::new(port.clone(), Arc::clone(&meter))));
        functions.open(Arc::clone(&desk) as _, Arc::clone(&dial) as _, &meter);
        let api =
            edge::api::router_with(Arc::clone(&desk) as _, Arc::clone(&meter), functions, pages, args.api_private);
        drop(entered);
        let http = edge::http::Config {
            accept_proxy: args.accept_proxy,
            trusted_headers: args.trusted_header.clone(),
            address_connections_max: args.address_connections_max,
            files_dir: home.services.clone(),
            secure: card.doors.get(Door::Https).map(|at| Secure {
                certs: Arc::clone(&services_tls),
                port: at.port(),
                plain_port: card.doors.get(Door::Http).map_or(80, |at| at.port()),
                outside: args.https_outside,
            }),
            access: Some(AccessLogs::start(args.dir.join("logs")).map_err(|e| e.to_string())?),
            ..Default::default()
        };
        http.access.iter().cloned().for_each(own_log::keep);
        let (chain, key) = (certificate::chain(&home.identity), &home.identity.key_pem);
        let own = Certs::own_beside(&chain, key, Arc::clone(&home.shared))?;
        let renewal = Renewal {
            identity: home.identity.clone(),
            dir: home.dir.clone(),
            life: certificate::life(),
            port: port.clone(),
            tls,
            own: Arc::clone(&own),
            figures: certificate,
        };
        let renewal = io.spawn(renewal.follow(Rng::new(seed()?)));
        io.spawn(crate::acme::follow(port.clone(), Rng::new(seed()?)));
        let view = port.watch();
        let wrong_files = port.clone();
        let hall = Hall { own, arrivals, view, dial, meter, desk, http, tls: services_tls, has_files, api };
        let leaves = io.block_on(async move {
            starts.inspect(Starting::over);
            tokio::spawn(keeper.follow());
            tokio::spawn(tell_overload(port.clone(), Arc::clone(&hall.meter)));
            tokio::spawn(tell_demand(port, Arc::clone(&hall.meter)));
            if hall.has_files {
                tokio::spawn(Arc::clone(&hall.tls).follow());
                tokio::spawn(certificate::tell_wrong_files(Arc::clone(&hall.tls), wrong_files));
            }
            let (view, dial, meter) = (hall.view.clone(), Arc::clone(&hall.dial), Arc::clone(&hall.meter));
            let tcp_host = card.doors.at(Door::Http).ip();
            tokio::select! {
                ended = sockets.serve(&hall) => ended.map(|()| None),
                () = edge::tcp::serve(tcp_host, view.clone(), dial, Arc::clone(&meter), Arc::clone(tcp_ports)) => Ok(None),
                how = doors_closed(view, meter) => Ok(Some(how)),
                () = ended_by_signal() => Ok(None),
            }
        })?;
        // A node that was removed writes no key any more.
        renewal.abort();
        let _ = io.block_on(renewal);
        Ok((running, leaves))
    }
}

/// Whether this node protects itself from overload. Not in the comparison in docs/performance.md, and nowhere else.
fn sheds() -> bool {
    let sheds = std::env::var_os("COPPICE_LAB_NO_SHED").is_none_or(|value| value != "1");
    if !sheds {
        tracing::warn!("COPPICE_LAB_NO_SHED=1: this node does not protect itself from overload; for experiments only");
    }
    sheds
}

/// For the test of what a node says while it reads its log, and nowhere else.
fn as_with_a_long_log() {
    let said = std::env::var("COPPICE_LAB_START_MS").ok().and_then(|ms| ms.parse().ok());
    std::thread::sleep(Duration::from_millis(said.unwrap_or(0)));
}

fn newborn(birth: Birth, sheds: bool) -> impl FnOnce() -> Node + Send {
    // For the test that traffic needs no reports.
    let reports = std::env::var_os("COPPICE_LAB_NO_REPORTS").is_none_or(|value| value != "1");
    move || {
        as_with_a_long_log();
        let node = if sheds { Node::new(birth) } else { Node::new(birth).without_protection() };
        if reports { node } else { node.without_reports() }
    }
}

/// What becomes of the process: it is the new program, or ends with a status for who watches over it.
fn end(
    leaves: Option<Leaving>,
    again: &Again,
    mut kept: Vec<TcpListener>,
    tcp_ports: &edge::tcp::Ports,
) -> Result<Ended, String> {
    match leaves {
        None => Ok(Ended::Stopped),
        Some(Leaving::Restart) => {
            kept.extend(tcp_ports.keep());
            let error = again.run(kept);
            tracing::warn!(%error, "cannot become the new program; whoever watches over this node is to start it");
            std::process::exit(EXIT_RESTART)
        }
        Some(_) => std::process::exit(EXIT_REMOVED),
    }
}

/// Its doors are closed, so nobody misses it: its certificate is to open nothing any more. True: that is declared.
async fn departs(port: &host::Port<Node>) -> bool {
    let begun = Instant::now();
    while !port.view().removed {
        let outcome = match port.ask(Ask::Depart, DEPARTS_WITHIN).await {
            Ok(Answer::Done(Outcome::Done(()))) => return true,
            Ok(Answer::Done(outcome)) => outcome,
            Ok(other) => unreachable!("a departure was answered by {other:?}"),
            Err(host::Gone) => return false,
        };
        // It may have started a moment ago, and know of no declaration yet.
        let later = !matches!(&outcome, Outcome::Refused(refused) if refused.retry_after.is_none());
        if !later || begun.elapsed() > Duration::from(DEPARTS_WITHIN) {
            let advice = "it is still named in the declaration; `coppice node remove` takes it out";
            tracing::warn!(?outcome, "this node leaves, but {advice}");
            return false;
        }
        tokio::time::sleep(DEPARTS_AGAIN).await;
    }
    true
}

/// Tells the node, and it the manager, what the doors see of the services; and it other nodes' doors what comes to these by
/// priority, who tell the same.
async fn tell_demand(port: host::Port<Node>, meter: Arc<Meter>) {
    let mut every = tokio::time::interval(LOAD_EVERY.into());
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let demand = meter.demands.take();
        // A core thread that is too busy for it has others to hear from; the next one comes soon.
        if port.ask(Ask::Demand(demand), LOAD_EVERY).await.is_err() {
            return;
        }
        let Ok(answer) = port.ask(Ask::Doors(meter.turnstiles.tell()), LOAD_EVERY).await else { return };
        if let Answer::Doors(others) = answer {
            meter.turnstiles.hear(&others);
        }
    }
}

/// Tells whose overload begins and ends.
async fn tell_overload(port: host::Port<Node>, meter: Arc<Meter>) {
    let mut every = tokio::time::interval(edge::overload::LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        for told in meter.look_for_overload() {
            let ask = Ask::Overload { of: told.of, text: told.text };
            if port.ask(ask, LOAD_EVERY).await.is_err() {
                return;
            }
        }
    }
}

/// Ends when the node has said that its doors close, and clients have had their answers.
async fn doors_closed(mut view: watch::Receiver<Arc<View>>, meter: Arc<Meter>) -> Leaving {
    let how = match view.wait_for(|view| view.closing.is_some()).await.ok().and_then(|view| view.closing) {
        Some(how) => how,
        // The node's thread is gone, and the process with it.
        None => std::future::pending().await,
    };
    closes(view, Arc::clone(&meter)).await;
    let began = Instant::now();
    let has_some = || {
        // Of a TCP service's connection nobody knows when it is between two requests: the short ones have their time.
        let tcp = meter.tcp.connections() > 0 && began.elapsed() < TCP_CLOSE_MAX;
        let api = !meter.api.is_empty() && began.elapsed() < LAST_TIME;
        tcp || api || !meter.is_empty()
    };
    while has_some() && began.elapsed() < DOORS_CLOSE_MAX {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tracing::info!(?how, connections = ?meter.connections(), "doors are closed; connections that were left are cut");
    how
}

fn listen(addr: SocketAddr) -> Result<TcpListener, String> {
    host::ports::listen(addr).map_err(|e| e.to_string())
}

fn clones_max_default() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    (processors * CLONES_PER_PROCESSOR).min(CLONES_MAX)
}

fn seed() -> Result<u64, String> {
    let hex = found::random_hex::<8>()?;
    u64::from_str_radix(&hex, 16).map_err(|e| e.to_string())
}

/// SIGTERM and SIGINT end the process at once; there is nothing to put in order.
async fn ended_by_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => (),
        _ = int.recv() => (),
    }
}
