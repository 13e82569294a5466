//! Commands that talk to a running node: apply, diff, export, scale, remove, disable, enable, status, token.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base::text::{span_from_text, span_text};
use clones::Size;
use node::JoinTokenView;
use node::view::View;

use crate::client::{Api, ApiUrl};
use crate::plain::{complain, given, plain, said, say};
use crate::{found, renew_token, status as text};

/// Which node to talk to; any node of the cluster will do.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// API of any node of the cluster: ADDRESS:PORT, or https://NAME:PORT where it has a door with TLS (`--api-tls`)
    #[arg(long, env = "COPPICE_API", default_value = "127.0.0.1:7070", value_name = "ADDRESS:PORT|URL")]
    pub api: ApiUrl,
    /// With https://: certificates that are believed, PEM (`ca.pem` of a node's folder), in place of the system's
    #[arg(long, env = "COPPICE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Where the operator's token is: the folder of the node that founded the cluster (`init`), or of `up`
    #[arg(long, env = "COPPICE_DIR", default_value = ".coppice")]
    pub dir: PathBuf,
    /// The operator's token, instead of the one in the folder
    #[arg(long, env = "COPPICE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ApplyArgs {
    /// The declaration, TOML
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Also remove namespaces that a file of this name declared and this one does not, with all that they hold
    #[arg(long)]
    pub remove_namespaces: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct SwitchArgs {
    /// A service (`shop`), a clone (`shop/2`) or a partition (`shop:search`)
    #[arg(value_name = "SERVICE[/CLONE][:PARTITION]")]
    pub part: String,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ScaleArgs {
    /// The service
    pub service: String,
    /// A number, or a range within which the manager chooses
    #[arg(value_name = "CLONES|MIN..MAX", value_parser = size)]
    pub clones: Size,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// The service
    pub service: String,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Print the node's view as JSON (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct TokenArgs {
    /// How long it is good for: 30s, 10m, 2h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span_from_text)]
    pub ttl: u64,
    /// How many machines can join with it
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub uses: u32,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(subcommand)]
    pub command: Option<TokenCommand>,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum TokenCommand {
    /// Show the join tokens that are live: names, not secrets
    List(TokenListArgs),
    /// End a join token
    Revoke(TokenRevokeArgs),
    /// Make the token of the operator, a namespace or a service anew; the one before opens for a while longer
    #[command(after_help = renew_token::MORE)]
    Renew(renew_token::RenewArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct TokenListArgs {
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct TokenRevokeArgs {
    /// Its name, as `coppice token list` shows it
    pub name: String,
    #[command(flatten)]
    pub node: NodeArgs,
}

impl NodeArgs {
    /// With the operator's token, if there is one: it shows more.
    pub fn reader(&self) -> Result<Api, String> {
        let token = self.token.clone().or_else(|| found::admin_token(&self.dir).ok());
        Ok(Api { at: self.api.at(self.ca.as_deref())?, token })
    }

    pub fn operator(&self) -> Result<Api, String> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => found::admin_token(&self.dir)?,
        };
        Ok(Api { at: self.api.at(self.ca.as_deref())?, token: Some(token) })
    }
}

pub async fn apply(args: ApplyArgs, dry_run: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(&args.file).map_err(|e| format!("cannot read {}: {e}", args.file.display()))?;
    let (api, file) = (args.node.operator()?, file_name(&args.file));
    let mut reply = api.post("/v1/apply?dry_run=true", &file, text.clone()).await?.json()?;
    if !dry_run {
        may_remove(&changes(&reply), &file, args.remove_namespaces)?;
        reply = api.post("/v1/apply", &file, text).await?.json()?;
    }
    if args.json {
        say!("{reply}");
        return Ok(());
    }
    let changes = changes(&reply);
    for change in &changes {
        say!("{change}");
    }
    match (changes.is_empty(), dry_run) {
        (true, _) => say!("nothing to change: the cluster is as the file declares it"),
        (false, true) => say!("(nothing was changed; `coppice apply` makes it so)"),
        (false, false) => say!("applied, declaration {}", reply["version"]),
    }
    Ok(())
}

pub async fn scale(args: ScaleArgs) -> Result<(), String> {
    let (path, body) = (service_path(&args.service, "/scale")?, serde_json::json!({"clones": args.clones}));
    let reply = args.node.operator()?.post(&path, "", body.to_string()).await?.json()?;
    tell_changes(&reply, args.json, &format!("nothing to change: {} has {} clones", args.service, args.clones));
    Ok(())
}

pub async fn remove(args: RemoveArgs) -> Result<(), String> {
    let reply = args.node.operator()?.delete(&service_path(&args.service, "")?).await?.json()?;
    tell_changes(&reply, args.json, "");
    Ok(())
}

/// What is no name in a path is told here: a slash would lead elsewhere.
pub fn service_path(service: &str, rest: &str) -> Result<String, String> {
    match clones::spec::name_error(service) {
        Some(why) => Err(why),
        None => Ok(format!("/v1/services/{service}{rest}")),
    }
}

/// What was changed, or `same` if nothing was.
pub fn tell_changes(reply: &serde_json::Value, json: bool, same: &str) {
    if json {
        return say!("{reply}");
    }
    let changes = changes(reply);
    for line in &changes {
        say!("{}", plain(line));
    }
    if changes.is_empty() {
        say!("{same}");
    }
}

/// The wall clock of who reads this.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// `3` or `1..8`.
fn size(text: &str) -> Result<Size, String> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let size = match text.split_once("..") {
        None => number(text).map(Size::from),
        Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Size { min, max }),
    };
    size.ok_or_else(|| "write a number like 3, or a range like 1..8".to_owned())
}

fn changes(reply: &serde_json::Value) -> Vec<&str> {
    reply["changes"].as_array().into_iter().flatten().filter_map(|change| change.as_str()).collect()
}

/// What a namespace holds is gone with it, so that is not done in passing.
fn may_remove(changes: &[&str], file: &str, is_meant: bool) -> Result<(), String> {
    let removed: Vec<&str> = changes.iter().filter_map(|change| change.strip_prefix("- namespace ")).collect();
    if removed.is_empty() || is_meant {
        return Ok(());
    }
    let names = removed.join(", ");
    Err(format!(
        "this would remove what namespaces hold: {names}; nothing was changed\n  a declaration is known by its file's name, and the last \
         {file} that was applied declared more than this one\n  if it is another one, give it another name; if the removal is meant, \
         say --remove-namespaces"
    ))
}

pub async fn switch(args: SwitchArgs, off: bool) -> Result<(), String> {
    let what = if off { "disable" } else { "enable" };
    let reply = args.node.operator()?.post(&format!("/v1/{what}/{}", args.part), "", "").await?.json()?;
    if args.json {
        say!("{reply}");
        return Ok(());
    }
    match changes(&reply).as_slice() {
        [] if off => say!("{} is out of use already", args.part),
        [] => say!("{} is in use already", args.part),
        changes => say!("{}", changes.join("\n")),
    }
    Ok(())
}

pub async fn export(args: NodeArgs) -> Result<(), String> {
    given(&args.operator()?.get("/v1/export").await?.text()?);
    Ok(())
}

pub async fn status(args: StatusArgs) -> Result<(), String> {
    let reply = args.node.reader()?.get("/v1/status").await?;
    if args.json {
        say!("{}", reply.text()?);
        return Ok(());
    }
    let view: View =
        serde_json::from_value(reply.json()?).map_err(|e| format!("the node's answer is of another version: {e}"))?;
    let now_ms = now_ms();
    said(&text::page(&view, now_ms));
    Ok(())
}

pub async fn token(args: TokenArgs) -> Result<(), String> {
    match args.command {
        Some(TokenCommand::List(args)) => return token_list(args).await,
        Some(TokenCommand::Revoke(TokenRevokeArgs { name, node })) => {
            node.operator()?.delete(&format!("/v1/tokens/{name}")).await?.json()?;
            say!("join token {name} is good for nobody any more");
            return Ok(());
        }
        Some(TokenCommand::Renew(args)) => return renew_token::renew(args).await,
        None => (),
    }
    let wish = serde_json::json!({"lifetime_ms": args.ttl, "uses": args.uses}).to_string();
    let reply = args.node.operator()?.post("/v1/tokens", "", wish).await?.json()?;
    let token = reply["token"].as_str().ok_or("the node's answer has no token")?;
    say!("{token}");
    let (ttl, uses) = (span_text(args.ttl), args.uses);
    let whom = if uses == 1 { "one machine".to_owned() } else { format!("{uses} machines") };
    complain!("good for {whom} and {ttl}; there:\n  coppice join --name NAME --host ITS-ADDRESS TOKEN");
    Ok(())
}

async fn token_list(args: TokenListArgs) -> Result<(), String> {
    let reply = args.node.operator()?.get("/v1/tokens").await?.json()?;
    if args.json {
        say!("{reply}");
        return Ok(());
    }
    let tokens: Vec<JoinTokenView> =
        serde_json::from_value(reply).map_err(|e| format!("the node's answer is of another version: {e}"))?;
    if tokens.is_empty() {
        say!("no join token is live");
    }
    let now_ms = now_ms();
    for JoinTokenView { name, expires_at_ms, uses_left } in tokens {
        let uses = match uses_left {
            None => "any number of machines".to_owned(),
            Some(1) => "1 machine".to_owned(),
            Some(uses) => format!("{uses} machines"),
        };
        // To the second: nobody cares for more.
        let left = expires_at_ms.saturating_sub(now_ms) / 1000 * 1000;
        say!("{name}  {uses}, {} left", span_text(left));
    }
    Ok(())
}

/// Things are kept by the name of their file: the same file from another folder is the same declaration.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "stdin".to_owned(), |name| name.to_string_lossy().into_owned())
}
