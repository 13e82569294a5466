//! The desks between the doors and the node: each turns what a door wants into a question for the machine, and the
//! answer into what the door needs. No policy here.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use base::{ClusterId, NodeId, Outcome, Span};
use bytes::Bytes;
use edge::Meter;
use edge::api::program::{Kept, Runs};
use edge::api::{Gone, Minted, Sight, logs};
use edge::near::Shelves;
use edge::tls::{Certs, Pem};
use futures_util::future::BoxFuture;
use host::{
    Authority, Dialer, Identity, JoinGrant, JoinToken, JoinWish, LocalPort, NotRenewed, Port, RenewWish, Target,
};
use node::{Admitted, Answer, Ask, Door, Node, View};
use state::cache::Near;
use tokio::sync::{oneshot, watch};

use crate::doorman::Doorman;
use crate::keeper::{API_TARGET, CODE_LEVEL, CODE_TARGET, Keeper};
use crate::logbook::{LOGS_TARGET, Logbook};
use crate::program_desk::{PROGRAM_TARGET, ProgramDesk};

/// The Redis door asks on the node's own thread.
pub struct RespDesk {
    pub port: LocalPort<Node>,
    pub sheds: bool,
}

impl edge::resp::Backend for RespDesk {
    fn ask(&self, ask: Ask, budget: Span, answer: oneshot::Sender<Answer>) {
        self.port.ask(ask, budget, answer);
    }

    fn sheds(&self) -> bool {
        self.sheds
    }

    fn spans(&self) -> bool {
        true
    }

    fn view(&self) -> Arc<View> {
        self.port.view()
    }
}

/// The API asks from the edge's threads, and makes join tokens.
pub struct ApiDesk {
    port: Port<Node>,
    /// Of its links: knows which authorities it trusts now.
    links: host::Tls,
    cluster_name: String,
    peer: SocketAddr,
    code: Arc<Keeper>,
    logbook: Arc<Logbook>,
    programs: Arc<ProgramDesk>,
    tls: Arc<Certs>,
    /// What need not be asked for.
    shelves: Arc<Shelves>,
}

impl ApiDesk {
    pub fn new(
        port: Port<Node>,
        (identity, links): (&Identity, host::Tls),
        peer: SocketAddr,
        code: Arc<Keeper>,
        (logbook, programs): (Arc<Logbook>, Arc<ProgramDesk>),
        tls: Arc<Certs>,
        near: Near,
    ) -> Self {
        let (cluster_name, shelves) = (identity.cluster_name.clone(), Arc::new(Shelves::new(near)));
        Self { port, links, cluster_name, peer, code, logbook, programs, tls, shelves }
    }
}

impl edge::api::Backend for ApiDesk {
    fn ask(&self, ask: Ask, budget: Span) -> BoxFuture<'static, Result<Answer, Gone>> {
        let port = self.port.clone();
        let asked = match &ask {
            Ask::Cache(op) => match self.shelves.give(port.now(), op) {
                Ok(reply) => return Box::pin(std::future::ready(Ok(Answer::Cache(Outcome::Done(reply))))),
                Err(asked) => asked.map(|asked| (asked, Arc::clone(&self.shelves))),
            },
            _ => None,
        };
        Box::pin(async move {
            let answer = port.ask(ask, budget).await.map_err(|host::Gone| Gone)?;
            if let (Some((asked, shelves)), Answer::Cache(Outcome::Done(reply))) = (asked, &answer) {
                shelves.keep(asked, reply);
            }
            Ok(answer)
        })
    }

    fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.port.watch()
    }

    fn mint(&self) -> Result<Minted, String> {
        let view = self.port.view();
        // This node first, then the others: any one of them will do for the newcomer.
        let mut seeds = vec![self.peer];
        seeds.extend(
            view.nodes
                .iter()
                .map(|n| n.doors.at(Door::Peer))
                .filter(|peer| *peer != self.peer)
                .take(SEEDS_IN_TOKEN - 1),
        );
        let token = JoinToken::new(seeds, &self.links.authorities()).map_err(|e| e.to_string())?;
        Ok(Minted { text: token.to_string(), secret_hash: token.secret_hash() })
    }

    fn new_authority(&self) -> Result<(String, String), String> {
        let Authority { cert_pem, key_pem } = Authority::new(&self.cluster_name).map_err(|e| e.to_string())?;
        Ok((cert_pem, key_pem))
    }

    fn keep_code(&self, digest: String, bytes: Bytes, spread: bool) -> BoxFuture<'static, Result<usize, String>> {
        let keeper = Arc::clone(&self.code);
        Box::pin(async move { keeper.keep(digest, bytes, spread).await })
    }

    fn keep_program(&self, digest: String, bytes: Bytes, token: String) -> BoxFuture<'static, Result<Kept, String>> {
        let programs = Arc::clone(&self.programs);
        Box::pin(async move { programs.spread(digest, bytes, &token).await })
    }

    fn program(&self, node: String, to: Option<String>, token: String) -> BoxFuture<'static, Result<Runs, String>> {
        let programs = Arc::clone(&self.programs);
        Box::pin(async move { programs.of(&node, to, &token).await })
    }

    fn code(&self, digest: String) -> BoxFuture<'static, Option<Bytes>> {
        let keeper = Arc::clone(&self.code);
        Box::pin(async move { keeper.read(digest).await })
    }

    fn code_file(&self, digest: String, path: String, bytes_max: u64) -> BoxFuture<'static, Option<Bytes>> {
        let keeper = Arc::clone(&self.code);
        Box::pin(async move { keeper.file(digest, path, bytes_max).await })
    }

    fn certificates(&self) -> Vec<Pem> {
        self.tls.pems()
    }

    fn certificates_of_files(&self) -> Vec<Pem> {
        self.tls.of_files()
    }

    fn logs(&self, wanted: logs::Wanted) -> BoxFuture<'static, Result<logs::Gathered, String>> {
        let logbook = Arc::clone(&self.logbook);
        Box::pin(async move { logbook.gather(wanted).await })
    }

    fn own_logs(&self, wish: host::logs::LogWish) -> BoxFuture<'static, Result<host::logs::LogPart, String>> {
        let logbook = Arc::clone(&self.logbook);
        Box::pin(async move { logbook.look(wish).await })
    }
}

/// The monitor reads the view, and of this node's own doors all that they count.
pub struct PageSource {
    port: Port<Node>,
    meter: Arc<Meter>,
}

impl PageSource {
    pub fn new(port: Port<Node>, meter: Arc<Meter>) -> Self {
        Self { port, meter }
    }
}

impl monitor::Source for PageSource {
    fn snapshot(&self, to_operator: bool) -> serde_json::Value {
        let view = self.port.view();
        let sight = if to_operator { Sight::operator() } else { Sight::nobody() };
        let mut picture = serde_json::to_value(&*sight.view(&view)).expect("a view is plain data");
        // Other nodes are told of some stages only.
        if let Some(me) = view.nodes.iter().position(|node| node.name == view.me) {
            let gauges = &mut picture["nodes"][me]["gauges"];
            let of_clones = self.meter.clones.all(Instant::now()).into_iter();
            let of_clones = of_clones.map(|(clone, stage, shown)| (edge::clone_stages::name(&clone, &stage), shown));
            for (name, shown) in self.meter.stages().into_iter().chain(of_clones) {
                edge::stage_gauges(&name, &shown).for_each(|(figure, value)| gauges[figure] = value.into());
            }
        }
        picture["partitions"] = self.meter.turnstiles.figures().map(|part| serde_json::json!(part)).collect();
        picture["caches"] = self.meter.caches.figures().into();
        picture["pipelines"] = self.meter.pipes.figures().into();
        picture
    }
}

/// Lets newcomers in: the node says whether, the authority's key (which the node keeps) signs.
pub struct JoinDesk {
    cluster: ClusterId,
    cluster_name: String,
    doorman: Arc<Doorman>,
    port: OnceLock<Port<Node>>,
}

impl JoinDesk {
    pub fn new(identity: &Identity, doorman: Arc<Doorman>) -> Self {
        let (cluster, cluster_name) = (identity.cluster, identity.cluster_name.clone());
        Self { cluster, cluster_name, doorman, port: OnceLock::new() }
    }

    /// From now on newcomers are answered.
    pub fn open(&self, port: Port<Node>) {
        assert!(self.port.set(port).is_ok(), "the desk opens once");
    }
}

impl host::JoinDesk for JoinDesk {
    fn admit(&self, wish: JoinWish) -> BoxFuture<'static, Result<JoinGrant, String>> {
        let (cluster, cluster_name, port) = (self.cluster, self.cluster_name.clone(), self.port.get().cloned());
        Box::pin(async move {
            let JoinWish { secret_hash, name, node, level, request } = wish;
            let ask = Ask::Admit { secret_hash, name: name.clone(), level, wish: node };
            let admitted = admitted(port, ask).await.map_err(|no| no.why)?;
            grant(admitted, &request, cluster, cluster_name, &name)
        })
    }

    fn may_renew(&self, former: NodeId) -> BoxFuture<'static, bool> {
        self.doorman.may_enter_anew(former)
    }

    fn renew(&self, wish: RenewWish) -> BoxFuture<'static, Result<JoinGrant, NotRenewed>> {
        let (cluster, cluster_name, port) = (self.cluster, self.cluster_name.clone(), self.port.get().cloned());
        Box::pin(async move {
            let RenewWish { former, name, why, node, request } = wish;
            let ask = Ask::Renew { former, name: name.clone(), why, wish: node };
            let admitted = admitted(port, ask).await?;
            let grant = grant(admitted, &request, cluster, cluster_name, &name);
            grant.map_err(|why| NotRenewed { why, later: false })
        })
    }
}

async fn admitted(port: Option<Port<Node>>, ask: Ask) -> Result<Admitted, NotRenewed> {
    let later = |why: String| NotRenewed { why, later: true };
    let port = port.ok_or_else(|| later("this node is starting; try again".to_owned()))?;
    match port.ask(ask, ADMIT_WITHIN).await {
        Ok(Answer::Admitted(Outcome::Done(admitted))) => Ok(admitted),
        Ok(Answer::Admitted(Outcome::Refused(refused))) => {
            Err(NotRenewed { later: refused.retry_after.is_some(), why: refused.why })
        }
        Ok(Answer::Admitted(Outcome::Unknown(unknown))) => Err(later(unknown.to_string())),
        Ok(other) => unreachable!("an admission was answered by {other:?}"),
        Err(gone) => Err(later(gone.to_string())),
    }
}

fn grant(
    admitted: Admitted,
    request: &[u8],
    cluster: ClusterId,
    cluster_name: String,
    name: &str,
) -> Result<JoinGrant, String> {
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let ca_pem = crate::certificate::authorities(&admitted);
    let authority = Authority { cert_pem: text(&admitted.ca_cert), key_pem: text(&admitted.ca_key) };
    let cert_pem = authority.sign(request, admitted.id, cluster, name).map_err(|e| e.to_string())?;
    Ok(JoinGrant { node: admitted.id, cluster, cluster_name, cert_pem, ca_pem })
}

/// Streams of other nodes' edges reach clones of this node that serve, and other nodes its archives, logs and programs, and
/// nothing else.
pub struct TunnelDesk {
    api: SocketAddr,
    doorman: Arc<Doorman>,
    open: OnceLock<Open>,
}

/// What answers once the node runs.
type Open = (Port<Node>, Arc<Keeper>, Arc<Logbook>, Arc<ProgramDesk>);

impl TunnelDesk {
    pub fn new(api: SocketAddr, doorman: Arc<Doorman>) -> Self {
        Self { api, doorman, open: OnceLock::new() }
    }

    pub fn open(&self, port: Port<Node>, keeper: Arc<Keeper>, logbook: Arc<Logbook>, programs: Arc<ProgramDesk>) {
        assert!(self.open.set((port, keeper, logbook, programs)).is_ok(), "the desk opens once");
    }
}

impl host::TunnelDesk for TunnelDesk {
    fn lets_in(&self, node: NodeId) -> BoxFuture<'static, bool> {
        self.doorman.lets_in(node)
    }

    fn until_out(&self, node: NodeId) -> BoxFuture<'static, ()> {
        self.doorman.until_out(node)
    }

    fn target(&self, name: &str) -> Option<Target> {
        let (port, keeper, logbook, programs) = self.open.get()?;
        let view = port.view();
        if name == CODE_TARGET {
            let keeper = Arc::clone(keeper);
            return Some(Target::Own(Box::new(move |stream| Box::pin(keeper.serve(stream)))));
        }
        if name == PROGRAM_TARGET {
            let programs = Arc::clone(programs);
            return Some(Target::Own(Box::new(move |stream| Box::pin(programs.serve(stream)))));
        }
        if name == LOGS_TARGET {
            let logbook = Arc::clone(logbook);
            return Some(Target::Own(Box::new(move |stream| Box::pin(logbook.serve(stream)))));
        }
        // Only older programs ask for it; nobody may who has a certificate and no token.
        if name == API_TARGET {
            return (view.root.level < CODE_LEVEL).then_some(Target::At(self.api));
        }
        let clones = view.routes.services.iter().flat_map(|service| &service.clones);
        clones.filter(|clone| clone.local).find(|clone| clone.target() == name).map(|clone| Target::At(clone.addr))
    }
}

/// Opens streams to clones on other nodes.
pub struct EdgeDial(Dialer);

impl EdgeDial {
    pub fn new(dialer: Dialer) -> Self {
        Self(dialer)
    }
}

impl edge::Dial for EdgeDial {
    fn dial(
        &self,
        node: NodeId,
        peer: SocketAddr,
        target: &str,
    ) -> BoxFuture<'static, io::Result<Box<dyn edge::pool::Duplex>>> {
        let (dialer, target) = (self.0.clone(), target.to_owned());
        Box::pin(async move {
            let stream = dialer.dial(peer, node, &target).await?;
            Ok(Box::new(stream) as Box<dyn edge::pool::Duplex>)
        })
    }
}

/// How long an admission may take: one change of the root group, perhaps over a change of its leader.
const ADMIT_WITHIN: Span = Span::secs(8);
/// More would make the token long; any one of these being up is enough.
const SEEDS_IN_TOKEN: usize = 5;
