//! `coppice token renew`: another token for the operator, a namespace or a service, with the one before open for a while longer. The operator's is made
//! here and is in a file before any node hears of it, so that nobody is shut out by an answer that got lost.

use std::fs;
use std::path::{Path, PathBuf};

use base::text::{span_from_text, span_text};
use serde_json::json;

use crate::client::{Api, Reply};
use crate::found;
use crate::ns;
use crate::operate::{NodeArgs, tell_changes};
use crate::plain::{plain, say};

pub const MORE: &str = "\
Examples:
  coppice token renew operator
  coppice token renew operator --keep 0s        it has leaked
  coppice token renew ns carts --keep 1d
  coppice token renew service shop              its clones alone; they restart in turn

The token before opens for as long as --keep says, and nothing after that. Nodes go on; clones that are given the token
restart in turn. The operator's new token takes the place of the old one in the folder of --dir; `coppice ns token`
shows a namespace's.";

#[derive(Clone, Debug, clap::Args)]
pub struct RenewArgs {
    #[command(subcommand)]
    whose: WhoseArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum WhoseArgs {
    /// The operator's; those of services follow from it
    Operator(HowArgs),
    /// A namespace's
    Ns(NsArgs),
    /// A service's alone, with which its clones reach each other
    Service(ServiceArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct NsArgs {
    /// The namespace
    name: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct ServiceArgs {
    /// The service
    name: String,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct HowArgs {
    /// How long the token before opens: 0s, 10m, 2h, 7d at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span_from_text)]
    keep: u64,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn renew(args: RenewArgs) -> Result<(), String> {
    match args.whose {
        WhoseArgs::Operator(how) => operator(&how).await,
        WhoseArgs::Ns(NsArgs { name, how }) => {
            ns::name(&name)?;
            made_by_node("namespace", &name, &how).await?;
            if !how.json {
                say!("`coppice ns token {}` shows the new one", plain(&name));
            }
            Ok(())
        }
        WhoseArgs::Service(ServiceArgs { name, how }) => {
            made_by_node("service", &name, &how).await?;
            if !how.json {
                say!("clones of {} get it anew", plain(&name));
            }
            Ok(())
        }
    }
}

/// One that the node makes, and nobody is shown here.
async fn made_by_node(of: &str, name: &str, how: &HowArgs) -> Result<(), String> {
    let wish = json!({"of": of, "name": name, "keep_ms": how.keep}).to_string();
    let reply = how.node.operator()?.post(PATH, "", wish).await?;
    tell_changes(&good(&reply)?, how.json, "");
    Ok(())
}

async fn operator(how: &HowArgs) -> Result<(), String> {
    let dir = &how.node.dir;
    let files = found::admin_token_files(dir);
    let Some(first) = files.first() else {
        return Err(format!(
            "there is no operator's token in {}, where the new one is to take its place: name the founder's folder with --dir",
            dir.display()
        ));
    };
    let api = how.node.operator()?;
    let waiting = waiting_at(first);
    // What an earlier try made: a node may have it already.
    let (token, is_first) = match fs::read_to_string(&waiting) {
        Ok(text) => (text.trim().to_owned(), false),
        Err(_) => {
            let token = found::random_hex::<20>()?;
            found::write_private(&waiting, format!("{token}\n").as_bytes())?;
            (token, true)
        }
    };
    let wish = json!({"of": "operator", "token": token, "keep_ms": how.keep}).to_string();
    let unknown = |why: String| {
        format!("{why}\n  the new token is in {}, and may hold already: say the same again", waiting.display())
    };
    let mut reply = api.post(PATH, "", wish.clone()).await.map_err(unknown)?;
    if reply.status == 401 {
        let new = Api { token: Some(token.clone()), ..api };
        reply = new.post(PATH, "", wish).await.map_err(unknown)?;
    }
    let json = match good(&reply) {
        Ok(json) => json,
        Err(why) if reply.status >= 500 => return Err(unknown(why)),
        Err(why) => {
            if is_first {
                let _ = fs::remove_file(&waiting);
            }
            return Err(why);
        }
    };
    for file in &files {
        let next = waiting_at(file);
        found::write_private(&next, format!("{token}\n").as_bytes())?;
        fs::rename(&next, file)
            .map_err(|e| format!("cannot write {}: {e}; the new token is in {}", file.display(), next.display()))?;
    }
    tell_changes(&json, how.json, "nothing to change: the nodes have the new token");
    if !how.json {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        say!("the new one is in {}; clones of services get theirs anew", names.join(" and "));
        if how.keep > 0 {
            say!("other copies of the old one open for {} more", span_text(how.keep));
        }
    }
    Ok(())
}

fn good(reply: &Reply) -> Result<serde_json::Value, String> {
    match reply.status {
        404 | 405 if reply.json().is_err_and(|why| why.starts_with("HTTP")) => {
            Err("the node is of an older program, which renews no tokens: bring it up to date".into())
        }
        _ => reply.json(),
    }
}

/// Where the new token waits until the nodes have it.
fn waiting_at(file: &Path) -> PathBuf {
    file.with_extension("token.new")
}

const PATH: &str = "/v1/tokens/renew";
