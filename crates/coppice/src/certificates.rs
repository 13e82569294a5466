//! `coppice certificate`: certificates of the cluster. A key goes to the node and comes back from nowhere.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use node::limits::CERTIFICATE_BYTES_MAX;
use node::view::CertificateView;

use crate::happened::clock;
use crate::operate::{NodeArgs, now_ms, tell_changes};
use crate::plain::{plain, say};
use crate::status::ago;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum CertificateCommand {
    /// Set a certificate with its key: every node's HTTPS door shows it for the names that it has
    #[command(
        after_help = "Examples:\n  coppice certificate set shop --cert fullchain.pem --key privkey.pem\n  cat fullchain.pem privkey.pem | coppice certificate set shop --cert -\n\nThe names in the certificate decide who is shown it (SNI). One that is called `default` is for all names that no other has. What\na node has in --tls-dir for a name goes before."
    )]
    Set(SetArgs),
    /// List the certificates: names, who signed them, when they end; no keys
    #[command(after_help = "Examples:\n  coppice certificate list\n  coppice certificate list --json")]
    List(ListArgs),
    /// Take a certificate away
    #[command(after_help = "Example:\n  coppice certificate remove shop")]
    Remove(RemoveArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct SetArgs {
    /// How it is called
    name: String,
    /// The certificate with its chain, PEM; `-` is standard input
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its private key, PEM (default: in the file of --cert)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// How it is called
    name: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn certificate(command: CertificateCommand) -> Result<(), String> {
    match command {
        CertificateCommand::Set(args) => {
            let (path, api) = (path(&args.name)?, args.node.operator()?);
            let mut pem = read(&args.cert)?;
            if let Some(key) = args.key.filter(|key| *key != args.cert) {
                pem.push(b'\n');
                pem.extend(read(&key)?);
            }
            if pem.len() > CERTIFICATE_BYTES_MAX {
                return Err(format!(
                    "certificate and key have more than {CERTIFICATE_BYTES_MAX} bytes, which are the most"
                ));
            }
            tell_changes(&api.put(&path, pem).await?.json()?, args.json, "nothing to change: it is this certificate");
        }
        CertificateCommand::Remove(args) => {
            let path = path(&args.name)?;
            tell_changes(&args.node.operator()?.delete(&path).await?.json()?, args.json, "");
        }
        CertificateCommand::List(args) => {
            let json = args.node.operator()?.get("/v1/certificates").await?.json()?;
            if args.json {
                say!("{json}");
                return Ok(());
            }
            let all: Vec<CertificateView> =
                serde_json::from_value(json).map_err(|e| format!("the node's answer: {e}"))?;
            if all.is_empty() {
                say!("there are no certificates; `coppice certificate set NAME --cert FILE --key FILE` sets one");
            }
            all.iter().flat_map(|of| lines(of, now_ms())).for_each(|line| say!("{}", plain(&line)));
        }
    }
    Ok(())
}

/// One certificate for people.
pub fn lines(of: &CertificateView, now_ms: u64) -> Vec<String> {
    let ends = match of.ends_at_ms.checked_sub(now_ms) {
        _ if !of.is_there() => "is not there yet".to_owned(),
        Some(_) => format!("ends {} (in {})", clock(of.ends_at_ms), ago(of.ends_at_ms, now_ms)),
        None => format!("ended {}", clock(of.ends_at_ms)),
    };
    let signed = if of.is_there() { format!("  signed by {}", of.issuer) } else { String::new() };
    let mut lines = vec![format!("{:<16} {ends}{signed}  for {}", of.name, of.names.join(", "))];
    if let Some(from) = &of.from {
        let again = of.next_at_ms.map_or(0, |next| next.saturating_sub(now_ms));
        let state = match &of.why {
            Some(why) => format!("cannot be had: {why}; asked for again in {}", ago(again, 0)),
            None => "comes by itself".to_owned(),
        };
        lines.push(format!("{:<16} {state} (from {from})", ""));
    }
    lines
}

fn path(name: &str) -> Result<String, String> {
    match node::declared::check_name(name) {
        Err(why) => Err(format!("{why}; {name:?} does not fit")),
        Ok(()) => Ok(format!("/v1/certificates/{name}")),
    }
}

/// A file, or standard input.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = CERTIFICATE_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        let stdin = std::io::stdin().lock();
        if stdin.is_terminal() {
            return Err("standard input is the terminal; < FILE, or COMMAND |".into());
        }
        stdin.take(most).read_to_end(&mut bytes).map_err(|e| format!("standard input cannot be read: {e}"))?;
    } else {
        let opened = std::fs::File::open(file).and_then(|from| from.take(most).read_to_end(&mut bytes));
        opened.map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else_and_an_end_is_said() {
        assert_eq!(path("shop").unwrap(), "/v1/certificates/shop");
        for name in ["", "../apply", "a/b", "a?b", "A"] {
            assert!(path(name).unwrap_err().contains("lower-case"), "{name}");
        }
        let of = CertificateView {
            name: "shop".into(),
            names: vec!["a.example".into(), "b.example".into()],
            issuer: "Toy CA".into(),
            ends_at_ms: 10 * 86_400_000,
            ..CertificateView::default()
        };
        let line = lines(&of, 5 * 86_400_000).remove(0);
        assert!(
            line.contains("(in 5d)") && line.contains("Toy CA") && line.ends_with("a.example, b.example"),
            "{line}"
        );
        assert!(lines(&of, 11 * 86_400_000)[0].contains("ended 1970-01-11"));
    }
}
