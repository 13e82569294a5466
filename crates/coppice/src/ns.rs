//! `coppice ns`: what an operator does to a namespace that no declaration says.

use bytes::Bytes;
use clap::Subcommand;

use crate::operate::NodeArgs;

#[derive(Clone, Debug, clap::Args)]
pub struct NsArgs {
    #[command(subcommand)]
    command: NsCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum NsCommand {
    /// Seal the namespace's cookies with a new key; cookies of the old keys stay good
    #[command(after_help = "Examples:\n  coppice ns rotate carts\n  coppice ns rotate carts --end-sessions")]
    Rotate(RotateArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct RotateArgs {
    /// The namespace
    name: String,
    /// Drop the old keys at once, for the case that one has leaked: everyone is logged out
    #[arg(long)]
    end_sessions: bool,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn ns(args: NsArgs) -> Result<(), String> {
    match args.command {
        NsCommand::Rotate(args) => rotate(args).await,
    }
}

async fn rotate(args: RotateArgs) -> Result<(), String> {
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if args.name.is_empty() || !args.name.bytes().all(is_name) {
        return Err(format!("{:?} is no namespace's name; `coppice status` lists those there are", args.name));
    }
    let path = format!("/v1/ns/{}/rotate?end_sessions={}", args.name, args.end_sessions);
    let reply = args.node.operator()?.post(&path, "", Bytes::new()).await?.json()?;
    if args.json {
        println!("{reply}");
        return Ok(());
    }
    for change in reply["changes"].as_array().into_iter().flatten().filter_map(|c| c.as_str()) {
        println!("{change}");
    }
    Ok(())
}
