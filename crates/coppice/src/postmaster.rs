//! `coppice mail`: who has a mailbox, and which other addresses lead there. They are values of the namespace
//! `mail-accounts`, so any node takes them, and all know of them at once.

use std::io::Read;

use mail::{Account, Managed};
use sdk::Linear;
use serde_json::json;

use crate::client::{Api, At};
use crate::operate::NodeArgs;
use crate::plain::say;
use crate::size::Size;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum MailCommand {
    /// Accounts: an address, a password and a mailbox each
    #[command(subcommand)]
    User(UserCommand),
    /// Addresses that lead to accounts
    #[command(subcommand)]
    Alias(AliasCommand),
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum UserCommand {
    /// Make an account; without --password-stdin it gets a password, which is printed
    #[command(
        after_help = "Examples:\n  coppice mail user add ann@example.org\n  coppice mail user add ann@example.org --password-stdin --bytes-max 2GiB < secret"
    )]
    Add(AddArgs),
    /// All accounts, one a line
    List(ListArgs),
    /// Give an account another password
    Passwd(PasswdArgs),
    /// Take an account out of use: it gets no mail and nobody is let in; its messages stay
    Disable(NamedArgs),
    /// Put an account back into use
    Enable(NamedArgs),
    /// Remove an account; its messages stay until they are deleted
    Remove(NamedArgs),
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum AliasCommand {
    /// Make or replace an alias
    #[command(
        after_help = "Examples:\n  coppice mail alias add info@example.org ann@example.org bob@example.org\n  coppice mail alias add @example.org ann@example.org    all that nobody there has"
    )]
    Add(AliasArgs),
    /// All aliases, one a line
    List(ListArgs),
    /// Remove an alias
    Remove(NamedArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct AddArgs {
    /// Its address
    address: String,
    /// Read the password from standard input, up to the end of its first line
    #[arg(long)]
    password_stdin: bool,
    /// Most bytes that its mailbox holds, like 2GiB; more mail is told to come later
    #[arg(long, value_name = "SIZE")]
    bytes_max: Option<Size>,
    /// Most messages that its mailbox holds
    #[arg(long, value_name = "COUNT")]
    messages_max: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct PasswdArgs {
    /// Address of the account
    address: String,
    /// Read the password from standard input, up to the end of its first line
    #[arg(long)]
    password_stdin: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct NamedArgs {
    /// The address
    address: String,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct AliasArgs {
    /// The address, or @DOMAIN for all that nobody there has
    alias: String,
    /// Addresses that it leads to
    #[arg(required = true)]
    to: Vec<String>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn mail(command: MailCommand) -> Result<(), String> {
    match command {
        MailCommand::User(command) => user(command).await,
        MailCommand::Alias(command) => alias(command).await,
    }
}

async fn user(command: UserCommand) -> Result<(), String> {
    match command {
        UserCommand::Add(args) => {
            let password = password(args.password_stdin)?;
            let mut account = Account::with_password(&password)?;
            (account.bytes_max, account.messages_max) = (args.bytes_max.map(|size| size.0), args.messages_max);
            accounts(&args.node.operator()?).await?.add(&args.address, &account).await?;
            tell_password(&args.address, &password, args.password_stdin, args.json);
        }
        UserCommand::Passwd(args) => {
            let password = password(args.password_stdin)?;
            let hash = mail::password::hash(&password)?;
            let accounts = accounts(&args.node.operator()?).await?;
            accounts.change(&args.address, |account| account.password.clone_from(&hash)).await?;
            tell_password(&args.address, &password, args.password_stdin, args.json);
        }
        UserCommand::List(args) => {
            let all = accounts(&args.node.operator()?).await?.list().await?;
            if args.json {
                let shown = |(address, account): &(String, Account)| {
                    let Account { disabled, bytes_max, messages_max, .. } = account;
                    json!({"address": address, "disabled": disabled, "bytes_max": bytes_max, "messages_max": messages_max})
                };
                say!("{}", json!(all.iter().map(shown).collect::<Vec<_>>()));
                return Ok(());
            }
            for (address, account) in all {
                let bytes = account.bytes_max.map(|max| format!("  at most {}", Size(max))).unwrap_or_default();
                let messages = account.messages_max.map(|max| format!("  at most {max} messages")).unwrap_or_default();
                say!("{address}{bytes}{messages}{}", if account.disabled { "  disabled" } else { "" });
            }
        }
        UserCommand::Disable(args) => set_disabled(&args, true).await?,
        UserCommand::Enable(args) => set_disabled(&args, false).await?,
        UserCommand::Remove(args) => accounts(&args.node.operator()?).await?.remove(&args.address).await?,
    }
    Ok(())
}

async fn set_disabled(args: &NamedArgs, disabled: bool) -> Result<(), String> {
    let accounts = accounts(&args.node.operator()?).await?;
    accounts.change(&args.address, |account| account.disabled = disabled).await
}

async fn alias(command: AliasCommand) -> Result<(), String> {
    match command {
        AliasCommand::Add(args) => accounts(&args.node.operator()?).await?.alias(&args.alias, &args.to).await,
        AliasCommand::Remove(args) => accounts(&args.node.operator()?).await?.remove_alias(&args.address).await,
        AliasCommand::List(args) => {
            let all = accounts(&args.node.operator()?).await?.aliases().await?;
            if args.json {
                let shown = all.iter().map(|(alias, to)| json!({"alias": alias, "to": to.to})).collect::<Vec<_>>();
                say!("{}", json!(shown));
            } else {
                all.iter().for_each(|(alias, to)| say!("{alias}  {}", to.to.join(" ")));
            }
            Ok(())
        }
    }
}

/// The accounts of the cluster that this node belongs to.
pub async fn accounts(api: &Api) -> Result<Managed, String> {
    let reply = api.get(&format!("/v1/ns/{}/token", mail::ACCOUNTS)).await?.json()?;
    let token = reply["token"].as_str().ok_or("the node's answer has no token")?;
    let At::Plain(addr) = api.at else {
        return Err("accounts are kept over a plain API: --api ADDRESS:PORT, on a node's own machine".to_owned());
    };
    let node = sdk::Node::at([addr]).map_err(|e| e.to_string())?;
    Ok(Managed::new(Linear::new(node, mail::ACCOUNTS, token)))
}

/// The one that is given, or a new one.
fn password(from_stdin: bool) -> Result<String, String> {
    if !from_stdin {
        return mail::password::fresh();
    }
    let mut text = String::new();
    let read = std::io::stdin().take(64 << 10).read_to_string(&mut text);
    read.map_err(|e| format!("the password cannot be read: {e}"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn tell_password(address: &str, password: &str, was_given: bool, json: bool) {
    match (json, was_given) {
        (true, true) => say!("{}", json!({"address": address})),
        (true, false) => say!("{}", json!({"address": address, "password": password})),
        (false, true) => (),
        (false, false) => say!("{password}"),
    }
}
