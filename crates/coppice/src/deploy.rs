//! `coppice deploy`, `rollback`, `versions`: a folder becomes a version of a service, kept by the cluster and rolled out clone
//! by clone; what is worse goes back by itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clones::runs::Slot;
use node::deploy::{FILE, Wish};
use node::view::{CloneState, ServiceView, View};
use serde_json::json;

use crate::client::Api;
use crate::follow::{Follow, Look};
use crate::operate::NodeArgs;
use crate::plain::{plain, say};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A roll-out of hundreds of clones takes minutes; longer, and nobody looks any more.
const ROLLED_OUT_WITHIN: Duration = Duration::from_secs(1800);

#[derive(Clone, Debug, clap::Args)]
pub struct DeployArgs {
    /// The folder: all that the service's clones run. A coppice.toml in it may declare the service
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The service, if the folder does not declare one, or one of several that it declares
    #[arg(long)]
    pub service: Option<String>,
    #[command(flatten)]
    pub how: FollowArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RollbackArgs {
    pub service: String,
    /// Number of the version to go back to (default: the one before)
    #[arg(long)]
    pub to: Option<u32>,
    #[command(flatten)]
    pub how: FollowArgs,
}

/// How a roll-out is told.
#[derive(Clone, Debug, clap::Args)]
pub struct FollowArgs {
    /// Do not wait until all clones run it
    #[arg(long)]
    pub no_wait: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct VersionsArgs {
    pub service: String,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

/// More files that look like secrets are only counted.
const SECRETS_SHOWN: usize = 5;

pub async fn deploy(args: DeployArgs) -> Result<(), String> {
    let packed = host::code::pack(&args.folder)?;
    let own = args.folder.join(FILE);
    let declaration = match own.is_file() {
        true => Some(std::fs::read_to_string(&own).map_err(|e| format!("cannot read {}: {e}", own.display()))?),
        false => None,
    };
    let (left_out, secrets) = (packed.left_out, packed.secrets);
    let (code, files, bytes) = (packed.digest.clone(), packed.files as u64, packed.bytes.len() as u64);
    let mut parts = match (&args.service, &declaration) {
        (only, Some(text)) => those_of(&own.display().to_string(), text, only.as_deref())?,
        (Some(service), None) => vec![(service.clone(), None)],
        (None, None) => {
            return Err(format!("{} has no {FILE}; name a declared service with --service", args.folder.display()));
        }
    };
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    let told = Told { json: args.how.json, service: names.join(",") };
    if !secrets.is_empty() {
        let some: Vec<String> = secrets.iter().take(SECRETS_SHOWN).map(|path| format!("{path:?}")).collect();
        let more = secrets.len().saturating_sub(SECRETS_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!(
            "packs what looks like secrets: {}{more}; who can read a node's folder has them: name them in {}, and give them by `coppice secret set`",
            some.join(", "),
            host::code::IGNORE_FILE
        );
        told.tell("secrets", &text, json!({"files": secrets}));
    }
    let api = args.how.node.operator()?;
    if parts.len() > 1 {
        let down = down(&view(&api).await?.services);
        parts.sort_by_key(|(name, _)| !down.contains(name));
    }
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    let kept = api.put(&format!("/v1/code/{}", packed.digest), packed.bytes).await?.json()?;
    told.tell(
        "kept",
        &format!("{files} files ({left_out} left out), {bytes} bytes, on {} nodes", kept["copies"]),
        json!({"code": code, "files": files, "left_out": left_out, "bytes": bytes, "copies": kept["copies"]}),
    );
    for (at, (service, declaration)) in parts.iter().enumerate() {
        let (service, declaration, code) = (service.clone(), declaration.clone(), code.clone());
        let wish = Wish { service: Some(service.clone()), declaration, code, files, bytes };
        let rolled_out = roll_out(&api, &args.how, wish, service).await;
        rolled_out.map_err(|why| match names[at + 1..].join(", ") {
            rest if rest.is_empty() => why,
            rest => format!("{why}\n  not begun: {rest}"),
        })?;
    }
    Ok(())
}

/// Services that have a version and no clone that serves: whoever deploys then wants those mended before all others.
fn down(services: &[ServiceView]) -> BTreeSet<String> {
    let has_been = |service: &&ServiceView| service.version > 0 || service.next.is_some();
    let serves = |service: &ServiceView| service.clones.iter().any(|clone| clone.state == CloneState::Serving);
    let down = services.iter().filter(has_been).filter(|service| service.wanted > 0 && !serves(service));
    down.map(|service| service.name.clone()).collect()
}

async fn roll_out(api: &Api, how: &FollowArgs, wish: Wish, service: String) -> Result<(), String> {
    let told = Told { json: how.json, service };
    let body = serde_json::to_string(&wish).map_err(|e| e.to_string())?;
    let reply = api.post("/v1/deploy", "", body).await?.json()?;
    told.follow(&how.node.reader()?, &reply, how.no_wait).await
}

/// The services that a folder's declaration has, or one of them, in the order in which they are rolled out.
fn those_of(file: &str, text: &str, only: Option<&str>) -> Result<Vec<(String, Option<String>)>, String> {
    let all = node::declared::each_service(file, text)?;
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(only) = only.filter(|only| !names.contains(only)) {
        return Err(format!("{file} declares {}, and no service {only:?}", names.join(", ")));
    }
    let wanted = all.into_iter().filter(|(name, _)| only.is_none_or(|only| only == name));
    Ok(wanted.map(|(name, text)| (name, Some(text))).collect())
}

pub async fn rollback(args: RollbackArgs) -> Result<(), String> {
    let told = Told { json: args.how.json, service: args.service.clone() };
    let to = args.to.map_or_else(String::new, |to| format!("?to={to}"));
    let reply =
        args.how.node.operator()?.post(&format!("/v1/services/{}/rollback{to}", args.service), "", "").await?.json()?;
    told.follow(&args.how.node.reader()?, &reply, args.how.no_wait).await
}

pub async fn versions(args: VersionsArgs) -> Result<(), String> {
    let service = service(&args.node.reader()?, &args.service).await?;
    if args.json {
        say!("{}", serde_json::to_string(&service.versions).map_err(|e| e.to_string())?);
        return Ok(());
    }
    if service.versions.is_empty() {
        say!("{} was never deployed", args.service);
    }
    for v in &service.versions {
        let code = v.code.as_deref().map_or("declared", |code| &code[..code.len().min(12)]);
        say!("{:>6}  {code:<12}  {:>6} files {:>10} bytes  {}", v.number, v.files, v.bytes, v.fate);
    }
    Ok(())
}

async fn view(api: &Api) -> Result<View, String> {
    let json = api.get("/v1/status").await?.json()?;
    serde_json::from_value(json).map_err(|e| format!("the node's answer is of another version: {e}"))
}

async fn service(api: &Api, name: &str) -> Result<ServiceView, String> {
    let view = view(api).await?;
    let names: Vec<String> = view.services.iter().map(|s| s.name.clone()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let found = view.services.into_iter().find(|s| s.name == name);
    found.ok_or_else(|| format!("there is no service {name:?}; declared are: {known}"))
}

/// The last lines of what went before a version, if that failed.
async fn printed_before(api: &Api, service_name: &str, number: u32) -> Vec<String> {
    let last = service(api, service_name).await.ok().and_then(|service| service.runs?.before.last);
    last.filter(|last| last.version == number && !last.good).map_or_else(Vec::new, |last| last.lines)
}

fn shown(service: &str, printed: &[String]) -> String {
    if printed.is_empty() {
        return String::new();
    }
    let lines: String = printed.iter().map(|line| format!("\n    | {}", plain(line))).collect();
    format!("{lines}\n  all it printed: coppice logs {service} --clone {}", Slot::Before.number())
}

struct Told {
    json: bool,
    service: String,
}

impl Told {
    fn tell(&self, event: &str, text: &str, more: serde_json::Value) {
        if self.json {
            let mut line = json!({"event": event, "service": self.service});
            if let (Some(line), serde_json::Value::Object(more)) = (line.as_object_mut(), more) {
                line.extend(more);
            }
            say!("{line}");
        } else {
            say!("{}: {text}", self.service);
        }
    }

    /// Tells how a roll-out goes on, until its end.
    async fn follow(&self, api: &Api, reply: &serde_json::Value, no_wait: bool) -> Result<(), String> {
        let changes: Vec<&str> = reply["changes"].as_array().into_iter().flatten().filter_map(|c| c.as_str()).collect();
        if changes.is_empty() {
            self.tell("same", "this is what serves already", json!({}));
            return Ok(());
        }
        self.tell("begun", &changes.join("; "), json!({"changes": changes}));
        if no_wait {
            return Ok(());
        }
        let begun = Instant::now();
        let mut follow = Follow::new(&self.service, reply["version"].as_u64().unwrap_or(0));
        loop {
            match follow.look(begun.elapsed(), &view(api).await?) {
                Look::Nothing => (),
                Look::Runs { number, clones, wanted } => self.tell(
                    "runs",
                    &format!("version {number} serves as {clones} of {wanted} clones"),
                    json!({"version": number, "clones": clones, "wanted": wanted}),
                ),
                Look::Before { number, node } => self.tell(
                    "before",
                    &format!("what goes before version {number} runs on {node}"),
                    json!({"version": number, "node": node}),
                ),
                Look::Serves { number } => {
                    let millis = begun.elapsed().as_millis() as u64;
                    let text = format!("version {number} serves after {:.1} s", millis as f64 / 1000.0);
                    self.tell("serves", &text, json!({"version": number, "millis": millis}));
                    return Ok(());
                }
                Look::TakenBack { number, fate } => {
                    let text = format!("version {number} {fate}");
                    let printed = printed_before(api, &self.service, number).await;
                    self.tell("taken-back", &text, json!({"version": number, "why": fate, "printed": printed}));
                    return Err(format!(
                        "version {number} of {} {fate}{}",
                        self.service,
                        shown(&self.service, &printed)
                    ));
                }
                Look::Stuck { number, why } => {
                    let printed = printed_before(api, &self.service, number).await;
                    if self.json {
                        self.tell("stuck", &why, json!({"version": number, "why": why, "printed": printed}));
                    }
                    let printed = shown(&self.service, &printed);
                    return Err(format!("version {number} of {} does not serve: {why}{printed}", self.service));
                }
            }
            if begun.elapsed() > ROLLED_OUT_WITHIN {
                return Err(format!(
                    "not over after {} s; `coppice versions {}` shows how it goes on",
                    ROLLED_OUT_WITHIN.as_secs(),
                    self.service
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_folders_services_may_be_named_and_a_wrong_name_says_which_there_are() {
        let text = "[service.web]\nrun = [\"a\"]\nhttp = {}\n[service.worker]\nrun = [\"b\"]\n";
        let names = |only| -> Result<Vec<String>, String> {
            Ok(those_of("coppice.toml", text, only)?.into_iter().map(|(name, _)| name).collect())
        };
        assert_eq!(names(None).unwrap(), ["worker", "web"]);
        assert_eq!(names(Some("web")).unwrap(), ["web"]);
        // A version that was never begun is not down, nor what wants no clones.
        let service = |name: &str, version: u32, wanted: u32, states: &[&str]| {
            let clone = |state: &&str| {
                serde_json::json!({"name": "x/0", "node": "n1", "state": state, "pid": 1, "port": 1, "restarts": 0,
                    "since_ms": 0, "last_exit": null, "last_output": []})
            };
            let clones: Vec<_> = states.iter().map(clone).collect();
            let of =
                serde_json::json!({"name": name, "version": version, "wanted": wanted, "at": [], "clones": clones});
            serde_json::from_value::<ServiceView>(of).unwrap()
        };
        let all = [
            service("well", 1, 2, &["backoff", "serving"]),
            service("loops", 1, 2, &["backoff", "starting"]),
            service("new", 0, 1, &[]),
            service("nightly", 3, 0, &[]),
        ];
        assert_eq!(down(&all), BTreeSet::from(["loops".to_owned()]));
        assert_eq!(names(Some("wep")).unwrap_err(), "coppice.toml declares worker, web, and no service \"wep\"");
    }
}
