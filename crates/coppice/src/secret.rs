//! `coppice secret`: secrets of a service. A value comes from standard input, never from the command line, where others see it, and
//! none is ever printed.

use std::io::{IsTerminal, Read};

use node::SecretView;
use node::limits::SECRET_BYTES_MAX;

use crate::happened::clock;
use crate::operate::{NodeArgs, service_path, tell_changes};
use crate::plain::{plain, say};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum SecretCommand {
    /// Set a secret to what standard input has; the service's clones restart in turn
    #[command(
        after_help = "Examples:\n  coppice secret set shop DB_PASSWORD < password\n  openssl rand -hex 32 | coppice secret set shop SESSION_KEY\n\nA clone finds it in the variable of its name, and ${secret.NAME} in env and run stands for it. One that secret_files names is a\nfile, whose path is in NAME_FILE. The end of a value's only line is not part of it; --raw keeps it."
    )]
    Set(SetArgs),
    /// List the secrets of a service: names, no values
    #[command(after_help = "Example:\n  coppice secret list shop")]
    List(ListArgs),
    /// Take a secret away; the service's clones restart in turn without it
    #[command(after_help = "Example:\n  coppice secret remove shop DB_PASSWORD")]
    Remove(RemoveArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct SetArgs {
    /// The service
    service: String,
    /// Name of the secret: letters, digits and _
    name: String,
    /// Keep the value as it is, with the end of its line
    #[arg(long)]
    raw: bool,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// The service
    service: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// The service
    service: String,
    /// Name of the secret
    name: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn secret(command: SecretCommand) -> Result<(), String> {
    match command {
        SecretCommand::Set(args) => {
            let path = path(&args.service, Some(&args.name))?;
            let api = args.node.operator()?;
            let value = value(args.raw)?;
            tell_changes(&api.put(&path, value).await?.json()?, args.json, "nothing to change: it has this value");
        }
        SecretCommand::Remove(args) => {
            let path = path(&args.service, Some(&args.name))?;
            tell_changes(&args.node.operator()?.delete(&path).await?.json()?, args.json, "");
        }
        SecretCommand::List(args) => {
            let json = args.node.operator()?.get(&path(&args.service, None)?).await?.json()?;
            if args.json {
                say!("{json}");
                return Ok(());
            }
            let all: Vec<SecretView> = serde_json::from_value(json).map_err(|e| format!("the node's answer: {e}"))?;
            if all.is_empty() {
                let service = plain(&args.service);
                say!("{service} has no secrets; `coppice secret set {service} NAME < FILE` sets one");
            }
            let width = all.iter().map(|secret| secret.name.len()).max().unwrap_or_default();
            for SecretView { name, at_ms, is_file } in all {
                let how = if is_file { "  file" } else { "" };
                say!("{:width$}  set {}{how}", plain(&name), clock(at_ms));
            }
        }
    }
    Ok(())
}

fn path(service: &str, name: Option<&str>) -> Result<String, String> {
    match name.map(|name| (name, clones::secrets::name_error(name))) {
        Some((_, Some(why))) => Err(why),
        Some((name, None)) => service_path(service, &format!("/secrets/{name}")),
        None => service_path(service, "/secrets"),
    }
}

fn value(raw: bool) -> Result<Vec<u8>, String> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        return Err(
            "the value comes from standard input, not from the terminal, which would show it: < FILE, or COMMAND |"
                .into(),
        );
    }
    let mut value = Vec::new();
    let read = stdin.by_ref().take(SECRET_BYTES_MAX as u64 + 3).read_to_end(&mut value);
    read.map_err(|e| format!("standard input cannot be read: {e}"))?;
    let value = if raw { value } else { without_line_end(value) };
    match value.len() {
        0 => Err("standard input is empty: < FILE, or COMMAND |".into()),
        len if len > SECRET_BYTES_MAX => Err(format!("the value is over the limit of {SECRET_BYTES_MAX} bytes")),
        _ => Ok(value),
    }
}

/// `echo` and editors end a line that is meant without its end. What has several lines (a PEM file) stays as it is.
fn without_line_end(mut value: Vec<u8>) -> Vec<u8> {
    if value.iter().position(|byte| *byte == b'\n').is_some_and(|at| at + 1 == value.len()) {
        value.pop();
        if value.last() == Some(&b'\r') {
            value.pop();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_only_line_is_no_part_of_the_value() {
        for (given, value) in [
            ("pw\n", "pw"),
            ("pw\r\n", "pw"),
            ("pw", "pw"),
            ("a\nb\n", "a\nb\n"),
            ("\n\n", "\n\n"),
            ("\n", ""),
            ("", ""),
        ] {
            assert_eq!(without_line_end(given.into()), value.as_bytes(), "{given:?}");
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert_eq!(path("shop", Some("PW")).unwrap(), "/v1/services/shop/secrets/PW");
        for (service, name) in [("shop/../x", "PW"), ("shop", "../../apply"), ("shop", "A?b"), ("shop", "")] {
            assert!(path(service, Some(name)).is_err(), "{service} {name}");
        }
    }
}
