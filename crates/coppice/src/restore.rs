//! `coppice restore`: what [`crate::backup`] has written goes into a new cluster, or a namespace of it into any. All of
//! it is read and checked before anything changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use node::sealed::Contents;
use serde_json::json;

use crate::backup::{self, CHANGED, GONE, Manifest, Namespace, beside, dump_file, read, text_of, view};
use crate::client::Api;
use crate::dump::{self, Source};
use crate::happened::clock;
use crate::ns;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};
use crate::sealed::{self, Key};
use crate::since::Merged;
use crate::size::Size;

/// As which file a restored declaration was applied.
const RESTORED: &str = "restored.toml";

#[derive(Clone, Debug, clap::Args)]
pub struct RestoreArgs {
    /// What `coppice backup` has written
    #[arg(value_name = "DIR", value_parser = backup::folder)]
    folder: PathBuf,
    /// The backup of this moment, as its folder is called (default: the newest)
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
    /// Only this namespace, also into a cluster that is in use
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// ... under this name
    #[arg(long = "as", value_name = "OTHER", requires = "namespace")]
    other: Option<String>,
    /// The key with which its secrets and certificates were sealed
    #[arg(long, value_name = "FILE", conflicts_with = "namespace")]
    key: Option<PathBuf>,
    /// Leave out its secrets and certificates, whose key is lost
    #[arg(long, conflicts_with_all = ["key", "namespace"])]
    without_secrets: bool,
    /// So much a second at most, like 5MiB. Without it half of the time is left to others that use the cluster
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// As fast as the cluster takes it, though others have to wait: for a new cluster that nobody uses yet
    #[arg(long)]
    full_speed: bool,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub const RESTORE_MORE: &str = "\
Examples:
  coppice restore /mnt/b
  coppice restore /mnt/b --at 2026-11-26T10-12-00Z --key backup.key --full-speed
  coppice restore /mnt/b --namespace bank --as bank-before --rate 5MiB

All of it goes into a new cluster, in which nothing is declared yet. It is read and checked before anything changes.
It waits as long as it works, so that others who use the cluster have half of the time; --full-speed does not.";

pub async fn restore(args: RestoreArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let (place, manifest) = read(&args.folder, args.at.as_deref())?;
    if let Some(namespace) = &args.namespace {
        return restore_one(&args, &api, &place, &manifest, namespace).await;
    }
    let key = args.key.as_ref().map(|file| Key::read(file, &args.folder)).transpose()?;
    manifest.check(&args.folder, &place)?;
    let opened = match (&manifest.sealed, key) {
        (_, Some(key)) => manifest.open(&place, &key)?,
        (Some(sealed), None) if !args.without_secrets => {
            return Err(format!(
                "{} has {}: --key FILE, the one with key {}, puts them back; --without-secrets leaves them out",
                place.display(),
                sealed.text(),
                sealed.key
            ));
        }
        (Some(_) | None, None) => Contents::default(),
    };
    let view = view(&api).await?;
    let other = view.namespaces.iter().find(|namespace| !manifest.has(&namespace.name)).map(|of| &of.name);
    if let Some(name) = view.services.first().map(|service| &service.name).or(other) {
        return Err(format!(
            "{} is declared in this cluster, and a backup is restored into a new one (`coppice init`); \
             --namespace NAME puts back one namespace, also under another name",
            plain(name)
        ));
    }
    let declaration = text_of(&place.join("declaration.toml"))?;
    // Services come last: they are to find all that they had.
    let first = namespaces_of(&declaration, &|name| Some(name.to_owned()))?;
    for line in sealed::set(&api, &opened).await? {
        complain!("coppice: {line}");
    }
    api.post("/v1/apply", RESTORED, first).await?.json()?;
    let mut restored = BTreeMap::new();
    for (name, of) in &manifest.namespaces {
        let loaded = load(&args, &api, &place, (name, name), of).await?;
        restored.insert(name, json!({"keys": loaded.keys, "ended": loaded.ended}));
    }
    for digest in manifest.code.keys() {
        let file = args.folder.join("code").join(digest);
        let archive = fs::read(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        api.put(&format!("/v1/code/{digest}"), archive).await?.json()?;
    }
    api.post("/v1/apply", RESTORED, declaration).await?.json()?;
    for (name, class) in &manifest.left_out {
        complain!("coppice: {} is empty: the backup has nothing of it (class {})", plain(name), plain(class));
    }
    if args.json {
        say!(
            "{}",
            json!({"path": place, "cluster": manifest.cluster, "at_ms": manifest.at_ms, "namespaces": restored})
        );
    } else {
        say!(
            "{} is as cluster {} was at {}: {}; tokens, cookie keys and nodes' certificates are new",
            plain(&view.cluster),
            plain(&manifest.cluster),
            clock(manifest.at_ms),
            manifest.text(),
        );
    }
    Ok(())
}

async fn restore_one(
    args: &RestoreArgs,
    api: &Api,
    place: &Path,
    manifest: &Manifest,
    name: &str,
) -> Result<(), String> {
    let Some(of) = manifest.namespaces.get(name) else {
        let names: Vec<&str> = manifest.namespaces.keys().map(String::as_str).collect();
        return Err(format!("{} has no namespace {name:?}; it has: {}", place.display(), names.join(", ")));
    };
    of.check(place, name)?;
    let to = args.other.as_deref().unwrap_or(name);
    ns::name(to)?;
    if !view(api).await?.namespaces.iter().any(|namespace| namespace.name == to) {
        let file = place.join("declaration.toml");
        manifest.declaration.check(&file)?;
        let declared = namespaces_of(&text_of(&file)?, &|of| (of == name).then(|| to.to_owned()))?;
        api.post("/v1/apply", &format!("restored-{to}.toml"), declared).await?.json()?;
    }
    let loaded = load(args, api, place, (name, to), of).await?;
    if args.json {
        let (keys, ended) = (loaded.keys, loaded.ended);
        say!("{}", json!({"path": place, "namespace": to, "at_ms": of.at_ms, "keys": keys, "ended": ended}));
    } else {
        say!(
            "{to} is as {name} was at {}: {} keys; {} more have ended since",
            clock(of.at_ms),
            loaded.keys,
            loaded.ended
        );
    }
    Ok(())
}

async fn load(
    args: &RestoreArgs,
    api: &Api,
    place: &Path,
    (name, to): (&str, &str),
    of: &Namespace,
) -> Result<edge::api::dump::Loaded, String> {
    let file = dump_file(place, name)?;
    let (from, bytes) = match &of.since {
        None => (Source::File(file), of.bytes),
        Some(since) => {
            let base = dump_file(&beside(place, &since.at), name)?;
            let (changed, gone) = (file.with_extension(CHANGED), file.with_extension(GONE));
            (Source::Merged(Merged { base, changed, gone }), since.base.bytes + of.bytes)
        }
    };
    let loaded = dump::load(api, to, from, (&of.class, bytes), (args.rate, args.full_speed)).await?;
    complain!("coppice: {}: {} keys loaded, {} have ended since", plain(to), loaded.keys, loaded.ended);
    Ok(loaded)
}

/// Of a declaration the namespaces alone, those that have a name for it, and of those what needs no service.
fn namespaces_of(declaration: &str, name: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let odd = |e: String| format!("the backup's declaration cannot be read: {e}");
    let mut table: toml::Table = declaration.parse().map_err(|e: toml::de::Error| odd(e.to_string()))?;
    let all = match table.remove("namespace") {
        Some(toml::Value::Table(all)) => all,
        Some(_) => return Err(odd("`namespace` is no table".into())),
        None => toml::Table::new(),
    };
    let mut named = toml::Table::new();
    for (of, mut spec) in all {
        if let Some(keys) = spec.as_table_mut() {
            keys.remove("functions");
        }
        named.extend(name(&of).map(|name| (name, spec)));
    }
    let only = toml::Table::from_iter([("namespace".to_owned(), toml::Value::Table(named))]);
    toml::to_string(&only).map_err(|e| odd(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_declared_before_the_services_that_use_them() {
        let text =
            "[namespace.a]\nclass = \"linear\"\nfunctions = \"s\"\n\n[namespace.b]\n\n[service.s]\nrun = [\"x\"]\n";
        let all = namespaces_of(text, &|name| Some(name.to_owned())).unwrap();
        assert_eq!(all, "[namespace.a]\nclass = \"linear\"\n\n[namespace.b]\n");
        let one = namespaces_of(text, &|name| (name == "b").then(|| "c".to_owned())).unwrap();
        assert_eq!(one, "[namespace.c]\n");
        assert_eq!(namespaces_of("", &|_| None).unwrap(), "[namespace]\n");
        assert!(namespaces_of("namespace = 1", &|_| None).is_err());
    }
}
