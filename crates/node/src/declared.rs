//! The declared configuration: TOML that people write, records that the root group keeps, and the way between them.
//! A declaration is compared as a whole and becomes one change: all of it or nothing.
//!
//! A file declares only what it names: applying it adds and changes, and removes what an earlier file of the same name
//! declared and this one no longer does. Records keep the name of their file for that.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use clones::off::{Off, Target};
use clones::spec::{ServiceSpec, SpecError};
use clones::{CertificateSpec, CloneId, LEVEL_CERTIFICATES, LEVEL_PROFILES, PipelineSpec, ProfileSpec, tcp_ports};
use cluster::root::{Change, Declared};
use ring::hmac;
use serde::{Deserialize, Serialize};
use state::NamespaceSpec;
use state::linear::Placed;
use state::namespace::Written;
use state::session::CookieSecret;
use toml::Spanned;

use crate::mistakes::mistakes;
use crate::numbers::Giver;
use crate::{acme, deploy, facts, renewed, runs, secrets};

/// Kinds of record in the root group. One list, as with frames.
pub mod kind {
    pub const SERVICE: &str = "service";
    pub const NAMESPACE: &str = "namespace";
    /// What answers of services pass.
    pub const PIPELINE: &str = "pipeline";
    /// Token and cookie keys of a namespace; the cluster's authority; the operator's token; secrets of services and
    /// keys of certificates, sealed, and their key. Never exported.
    pub const SECRET: &str = "secret";
    /// What people want: where it is kept, and what may stand there.
    pub const PROFILE: &str = "profile";
    /// Certificates that come by themselves.
    pub const CERTIFICATE: &str = "certificate";
    /// ... and what went wrong with some: [`crate::acme::Trouble`].
    pub const TROUBLE: &str = "trouble";
    /// ... and what shows a directory over TLS that their names are ours, while it is asked. Not exported.
    pub const PROOF: &str = "proof";
    /// Join tokens, by the hash of their secret.
    pub const JOIN: &str = "join";
    /// Nodes admitted, by name.
    pub const NODE: &str = "node";
    /// Who some nodes were before their disks forgot something, or an operator removed them, by id: see
    /// [`crate::former::Former`]. They are never let in again.
    pub const FORMER: &str = "former";
    /// How long nodes have been away, by name: [`crate::away::Record`].
    pub const AWAY: &str = "away";
    /// Versions of a service: [`clones::deploy::Deployed`].
    pub const DEPLOY: &str = "deploy";
    /// Runs of services ([`clones::runs::Record`]), by `service/before` and `service/job`. Not exported.
    pub const RUN: &str = "run";
    /// What an operator has taken out of use: [`clones::off::Target::record`]. Not exported, as it is for a while.
    pub const OFF: &str = "off";
    /// What all nodes understand alike ([`crate::level`]).
    pub const LEVEL: &str = "level";
    /// The last number that was given to a namespace ([`crate::numbers`]).
    pub const NUMBER: &str = "number";
    /// Consensus groups of `linear` namespaces and their members, by `namespace/shard`.
    pub const GROUP: &str = "group";
}

/// What a file says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    service: BTreeMap<String, Spanned<ServiceSpec>>,
    /// As they are written: what is wrong in one is told with its line.
    #[serde(default)]
    pub(crate) namespace: BTreeMap<String, Spanned<Written>>,
    #[serde(default)]
    pipeline: BTreeMap<String, Spanned<PipelineSpec>>,
    #[serde(default)]
    profile: BTreeMap<String, Spanned<ProfileSpec>>,
    #[serde(default)]
    certificate: BTreeMap<String, Spanned<CertificateSpec>>,
}

/// A record as the root group keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept<T> {
    /// Name of the file that declared it.
    pub file: String,
    pub spec: T,
}

/// A namespace's secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceSecret {
    /// Never used twice: frames carry it in place of the name.
    pub id: u32,
    /// What programs show to reach it.
    pub token: String,
    /// Seals its cookies.
    pub cookie: CookieSecret,
}

/// What would change, in words and as a change for the root group.
#[derive(Debug)]
pub struct Diff {
    pub lines: Vec<String>,
    pub change: Change,
}

/// The one service that a declaration is about, with its name.
///
/// # Errors
/// A sentence: it cannot be read, or declares another number of services.
pub fn only_service(file: &str, text: &str) -> Result<(String, ServiceSpec), String> {
    let parsed: File = toml::from_str(text).map_err(|e| format!("{file}: {}", e.to_string().trim_end()))?;
    let count = parsed.service.len();
    let mut services = parsed.service.into_iter();
    match (services.next(), services.next()) {
        (Some((name, spec)), None) => Ok((name, spec.into_inner())),
        _ => Err(format!("{file} declares {count} services; what is deployed here is one, [service.NAME]")),
    }
}

/// The services of a folder's declaration, each with a declaration of its own that has all namespaces: in the order in
/// which they are rolled out, those that nobody reaches first, else as they stand in the file. Of a single one it is
/// the text itself.
///
/// # Errors
/// A sentence: it cannot be read, or declares no service.
pub fn each_service(file: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let wrong = |e: String| format!("{file}: {}", e.trim_end());
    let parsed: File = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
    let mut services: Vec<(&String, &Spanned<ServiceSpec>)> = parsed.service.iter().collect();
    services.sort_by_key(|(_, spec)| (spec.get_ref().is_reached(), spec.span().start));
    match services[..] {
        [] => {
            Err(format!("{file} declares no service; a folder that is deployed declares one or more, [service.NAME]"))
        }
        [(only, _)] => Ok(vec![(only.clone(), text.to_owned())]),
        _ => {
            let whole: toml::Table = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
            let of = |(name, _): &(&String, &Spanned<ServiceSpec>)| {
                let mut part = whole.clone();
                if let Some(toml::Value::Table(services)) = part.get_mut(kind::SERVICE) {
                    services.retain(|other, _| other == *name);
                }
                let text = toml::to_string(&part).map_err(|e| wrong(e.to_string()))?;
                Ok(((*name).clone(), text))
            };
            services.iter().map(of).collect()
        }
    }
}

/// Reads a declaration and compares it with what is declared. `entropy` makes the secrets of new namespaces.
///
/// # Errors
/// A sentence for a person, one a line: file, line, key, and what would be right.
pub fn diff(now: &Declared, file: &str, text: &str, entropy: &[u8; 32]) -> Result<Diff, String> {
    let parsed: File = toml::from_str(text).map_err(|e| format!("{file}: {}", e.to_string().trim_end()))?;
    let mut diff = Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } };
    let mut numbers = Giver::new(now);
    for (name, spec) in &parsed.namespace {
        check_name(name).map_err(|e| at_key(file, text, &parsed, &format!("namespace.{name}"), &e))?;
        let wrong =
            |(key, why): (String, String)| at_key(file, text, &parsed, &format!("namespace.{name}.{key}"), &why);
        let spec = NamespaceSpec::read(spec.get_ref()).map_err(wrong)?;
        spec.validate().map_err(wrong)?;
        if let Some(before) = now.get(kind::NAMESPACE, name).and_then(|bytes| kept::<NamespaceSpec>(bytes)) {
            spec.may_follow(&before, shards(now, name)).map_err(wrong)?;
        }
        note(now, file, kind::NAMESPACE, name, &spec, &mut diff);
        if now.get(kind::SECRET, &secret_name(name)).is_none() {
            let secret = new_secret(numbers.give(), name, entropy);
            diff.change.puts.push((kind::SECRET.into(), secret_name(name), json(&secret)));
        }
    }
    for (name, spec) in &parsed.pipeline {
        check_name(name).map_err(|e| at_key(file, text, &parsed, &format!("pipeline.{name}"), &e))?;
        note(now, file, kind::PIPELINE, name, spec.get_ref(), &mut diff);
    }
    for (name, spec) in &parsed.profile {
        check_name(name).map_err(|e| at_key(file, text, &parsed, &format!("profile.{name}"), &e))?;
        note(now, file, kind::PROFILE, name, spec.get_ref(), &mut diff);
    }
    for (name, spec) in &parsed.certificate {
        let wrong = |key: &str, why: &str| at_key(file, text, &parsed, &format!("certificate.{name}{key}"), why);
        check_name(name).map_err(|why| wrong("", &why))?;
        if let Some((key, why)) = spec.get_ref().mistake() {
            return Err(wrong(&format!(".{key}"), &why));
        }
        note(now, file, kind::CERTIFICATE, name, spec.get_ref(), &mut diff);
    }
    let mut refused = Vec::new();
    for (name, spec) in &parsed.service {
        let mut spec = spec.get_ref().clone();
        if let Some(before) = now.get(kind::SERVICE, name).and_then(|bytes| kept::<ServiceSpec>(bytes)) {
            // What was deployed stays so; a file that knows nothing of it does not take it away. A built-in service
            // takes its place.
            if spec.code.is_none() && spec.builtin.is_none() {
                spec.code.clone_from(&before.code);
            }
            // Numbers are given, not declared.
            spec.version = before.version;
            if spec != before && deploy::deployed(now, name).is_some_and(|deployed| deployed.next.is_some()) {
                let why = "a version of it is being rolled out; wait, or `coppice rollback` takes it back".into();
                refused.push(SpecError { key: format!("service.{name}"), why });
            }
        }
        for secret in secrets::not_text(now, name, &spec) {
            let why = format!("secret {secret:?} is not text, so that it must stand here, or be removed");
            refused.push(SpecError { key: format!("service.{name}.secret_files"), why });
        }
        let had =
            now.get(kind::SERVICE, name).and_then(|bytes| kept::<ServiceSpec>(bytes)).is_some_and(|s| s.certificates);
        note(now, file, kind::SERVICE, name, &spec, &mut diff);
        if spec.certificates && !had {
            diff.lines.push(format!(
                "! service {name}: private keys of all certificates, of the nodes' folders (--tls-dir) and of the cluster, leave to its clones"
            ));
        }
    }
    let changed =
        |diff: &Diff, name: &str| diff.change.puts.iter().any(|(of, its, _)| of == kind::SERVICE && its == name);
    for (name, spec) in parsed.service.iter().filter(|(name, _)| changed(&diff, name)).collect::<Vec<_>>() {
        for secret in clones::secrets::in_run(spec.get_ref()) {
            diff.lines.push(format!(
                "! service {name}: secret {secret} stands in command lines, which every user of the nodes' machines sees; env is hidden"
            ));
        }
    }
    for (kind, name) in dropped(now, file, &parsed) {
        diff.lines.push(format!("- {kind} {name}"));
        if kind == kind::NAMESPACE {
            diff.change.removes.push((kind::SECRET.into(), secret_name(&name)));
            // Its groups go with it: a namespace that is declared anew begins empty.
            let groups =
                now.of_kind(kind::GROUP).filter(|(group, _)| group.rsplit_once('/').is_some_and(|g| g.0 == name));
            diff.change.removes.extend(groups.map(|(group, _)| (kind::GROUP.to_owned(), group.to_owned())));
        }
        if kind == kind::CERTIFICATE {
            diff.change.removes.extend(acme::gone_with(now, &name));
        }
        if kind == kind::SERVICE {
            remove_service(now, &name, &mut diff);
        } else {
            diff.change.removes.push((kind.into(), name));
        }
    }
    if !diff.change.puts.is_empty() || !diff.change.removes.is_empty() {
        diff.change.puts.extend(numbers.record());
    }
    let mut ours: Vec<(&String, &Spanned<ServiceSpec>)> = parsed.service.iter().collect();
    ours.sort_by_key(|(_, spec)| spec.span().start);
    let ours: Vec<&str> = ours.into_iter().map(|(name, _)| name.as_str()).collect();
    let mut errors = mistakes(&after(now, &diff.change), &ours);
    errors.extend(refused);
    if errors.is_empty() {
        return Ok(diff);
    }
    Err(errors.iter().map(|e| at_key(file, text, &parsed, &e.key, &e.why)).collect::<Vec<_>>().join("\n"))
}

/// Removes a service, with all that is kept of it.
pub(crate) fn remove_service(now: &Declared, name: &str, diff: &mut Diff) {
    // What is declared anew under its name is in use, and has no secrets of somebody else.
    let off = off(now);
    let records = off.of_service(name).filter_map(|part| Some(Target::parse(&part).ok()?.record()));
    diff.change.removes.extend(records.map(|record| (kind::OFF.to_owned(), record)));
    let (records, lines) = secrets::gone_with(now, name);
    diff.change.removes.extend(records);
    diff.change.removes.extend(runs::gone_with(now, name));
    diff.change.removes.extend(renewed::gone_with(now, name));
    diff.lines.extend(lines);
    let deployed = now.get(kind::DEPLOY, name).map(|_| (kind::DEPLOY.to_owned(), name.to_owned()));
    diff.change.removes.extend(deployed);
    diff.change.removes.push((kind::SERVICE.to_owned(), name.to_owned()));
}

/// TCP services of a declaration that want a port on which nodes listen themselves: `doors`, each with what is there.
///
/// # Errors
/// A sentence a line, as of [`diff`].
pub fn free_ports(file: &str, text: &str, doors: &BTreeMap<u16, String>) -> Result<(), String> {
    // What cannot be read is told by `diff`.
    let Ok(parsed) = toml::from_str::<File>(text) else { return Ok(()) };
    let wrong = |(name, spec): (&String, &Spanned<ServiceSpec>)| {
        let taken = tcp_ports(spec.get_ref()).into_iter().filter_map(|(key, port)| {
            let why = format!("{port} is {}; choose another port", doors.get(&port)?);
            Some(at_key(file, text, &parsed, &format!("service.{name}.{key}"), &why))
        });
        taken.collect::<Vec<_>>()
    };
    let errors: Vec<String> = parsed.service.iter().flat_map(wrong).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Built-in services that a declaration names must be of this node's program: `known` are all of them.
///
/// # Errors
/// A sentence a line, as of [`diff`].
pub fn has_builtins(file: &str, text: &str, known: &[&str]) -> Result<(), String> {
    // What cannot be read is told by `diff`.
    let Ok(parsed) = toml::from_str::<File>(text) else { return Ok(()) };
    let wrong = |(name, spec): (&String, &Spanned<ServiceSpec>)| {
        let builtin = spec.get_ref().builtin.as_deref().filter(|builtin| !known.contains(builtin))?;
        let why = format!("there is no built-in service {builtin:?}; there are: {}", listed(known.iter().copied()));
        Some(at_key(file, text, &parsed, &format!("service.{name}.builtin"), &why))
    };
    let errors: Vec<String> = parsed.service.iter().filter_map(wrong).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Keys and classes that only a newer program knows need a cluster that agreed on its level: an older node would go by
/// its defaults.
///
/// # Errors
/// A sentence a line, as of [`diff`].
pub fn is_understood(file: &str, text: &str, agreed: u32) -> Result<(), String> {
    // What cannot be read is told by `diff`.
    let Ok(parsed) = toml::from_str::<File>(text) else { return Ok(()) };
    let newer = |path: String, needs: u32| {
        let why = format!(
            "needs programs of level {needs} on all nodes, and this cluster agreed on level {agreed}: upgrade them all first (one that \
             is away counts, too)"
        );
        (needs > agreed).then(|| at_key(file, text, &parsed, &path, &why))
    };
    let namespaces = parsed.namespace.iter().filter_map(|(name, spec)| {
        let spec = NamespaceSpec::read(spec.get_ref()).ok()?;
        let of_key = spec.newer_key().and_then(|(key, level)| newer(format!("namespace.{name}.{key}"), level));
        newer(format!("namespace.{name}.class"), spec.class().since()).or(of_key)
    });
    let services = parsed.service.iter().filter_map(|(name, spec)| {
        let (key, level) = spec.get_ref().newer_key()?;
        newer(format!("service.{name}.{key}"), level)
    });
    let pipelines = parsed.pipeline.iter().filter_map(|(name, spec)| {
        let (key, level) = spec.get_ref().newer_key();
        newer(key.map_or(format!("pipeline.{name}"), |key| format!("pipeline.{name}.{key}")), level)
    });
    let certificates = parsed.certificate.iter().filter_map(|(name, spec)| {
        let of_key =
            || spec.get_ref().newer_key().and_then(|(key, level)| newer(format!("certificate.{name}.{key}"), level));
        newer(format!("certificate.{name}"), LEVEL_CERTIFICATES).or_else(of_key)
    });
    let profiles = parsed.profile.keys().filter_map(|name| newer(format!("profile.{name}"), LEVEL_PROFILES));
    let errors: Vec<String> = namespaces.chain(services).chain(pipelines).chain(certificates).chain(profiles).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Folders that a declaration names must be here: `has` knows which are. Their clones would wait for ever.
///
/// # Errors
/// A sentence a line, as of [`diff`].
pub fn has_code(file: &str, text: &str, has: &BTreeSet<String>) -> Result<(), String> {
    let Ok(parsed) = toml::from_str::<File>(text) else { return Ok(()) };
    let errors = codes_of(&parsed).filter(|(_, code)| !has.contains(code)).map(|(name, code)| {
        let why = format!(
            "the folder {code} is not in this cluster; `coppice deploy DIR --service {name}` brings it once the service is declared \
             without `code` and `version`, or put its archive here first (code/{code}.archive in the folder of a node that has \
             it): PUT /v1/code/{code}"
        );
        at_key(file, text, &parsed, &format!("service.{name}.code"), &why)
    });
    let errors: Vec<String> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Folders that a declaration names; none if it cannot be read, which [`diff`] tells.
pub fn codes(text: &str) -> BTreeSet<String> {
    toml::from_str::<File>(text)
        .map_or_else(|_| BTreeSet::new(), |file| codes_of(&file).map(|(_, code)| code).collect())
}

fn codes_of(parsed: &File) -> impl Iterator<Item = (&String, String)> {
    parsed.service.iter().filter_map(|(name, spec)| Some((name, spec.get_ref().code.clone()?)))
}

/// A new key for the cookies of a namespace.
///
/// # Errors
/// A sentence: there is no such namespace, or sessions would end.
pub fn rotate(
    now: &Declared,
    namespace: &str,
    entropy: &[u8; 32],
    wall_ms: u64,
    end_sessions: bool,
) -> Result<Diff, String> {
    let spec = all::<NamespaceSpec>(now, kind::NAMESPACE).remove(namespace);
    let (Some(spec), Some(mut secret)) = (spec, secrets(now).remove(namespace)) else {
        return Err(format!("there is no namespace {namespace:?}"));
    };
    let Some(lease_ms) = spec.session().map(|spec| spec.lease_ms) else {
        let class = spec.class();
        return Err(format!(
            "namespace {namespace:?} is of class {class}, which gives no cookies: there is no key to rotate"
        ));
    };
    let before = newest(&secret.cookie);
    secret.cookie = secret.cookie.rotated(*entropy, wall_ms, lease_ms, end_sessions)?;
    let old = match secret.cookie.keys.len() - 1 {
        0 => "all sessions end".to_owned(),
        1 => "1 older key opens".to_owned(),
        n => format!("{n} older keys open"),
    };
    let line = format!("~ namespace {namespace}: cookie key {before} -> {}; {old}", newest(&secret.cookie));
    let put = (kind::SECRET.to_owned(), secret_name(namespace), json(&secret));
    Ok(Diff { lines: vec![line], change: Change { expect: Some(now.version), puts: vec![put], removes: Vec::new() } })
}

fn newest(secret: &CookieSecret) -> u8 {
    secret.keys.last().map_or(0, |key| key.id)
}

/// What an operator has taken out of use.
pub fn off(now: &Declared) -> Off {
    Off::from_records(now.of_kind(kind::OFF).map(|(name, _)| name))
}

/// Takes something out of use, or back into it.
///
/// # Errors
/// A sentence: there is no such thing.
pub fn switch(now: &Declared, target: &Target, off: bool) -> Result<Diff, String> {
    let (record, is_off) = (target.record(), now.get(kind::OFF, &target.record()).is_some());
    // What is gone can still be forgotten.
    if off || !is_off {
        find(now, target)?;
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    let mut lines = Vec::new();
    if off && !is_off {
        change.puts.push((kind::OFF.into(), record, Bytes::from_static(b"{}")));
        lines.push(format!("{target}: out of use"));
    } else if !off && is_off {
        change.removes.push((kind::OFF.into(), record));
        lines.push(format!("{target}: in use again"));
    }
    Ok(Diff { lines, change })
}

fn find(now: &Declared, target: &Target) -> Result<(), String> {
    if let Target::Node(name) = target {
        let mut known = now.of_kind(kind::NODE).map(|(name, _)| name);
        let none = || {
            let known = now.of_kind(kind::NODE).map(|(name, _)| name);
            format!("no node is named {name:?}; there are: {}", listed(known))
        };
        return if known.any(|known| known == name) { Ok(()) } else { Err(none()) };
    }
    let services = all::<ServiceSpec>(now, kind::SERVICE);
    let (Target::Node(service)
    | Target::Service(service)
    | Target::Clone(CloneId { service, .. })
    | Target::Partition { service, .. }) = target;
    let Some(spec) = services.get(service) else {
        let known = listed(services.keys().map(String::as_str));
        return Err(format!("there is no service {service:?}; declared are: {known}"));
    };
    match target {
        Target::Clone(_) if spec.standing().max == 0 => Err(format!("service {service:?} has no clones")),
        Target::Clone(id) if id.number >= spec.clones.max => {
            Err(format!("service {service:?} has clones 0 to {}, no {}", spec.clones.max - 1, id.number))
        }
        Target::Partition { name, .. } if spec.partitions.is_empty() => {
            Err(format!("service {service:?} has no partition {name:?}, nor any other; a clone is \"{service}/0\""))
        }
        Target::Partition { name, .. } if !spec.partitions.iter().any(|p| p.name == *name) => {
            let known = listed(spec.partitions.iter().map(|p| p.name.as_str()));
            Err(format!("service {service:?} has no partition {name:?}; it has: {known}"))
        }
        Target::Node(_) | Target::Service(_) | Target::Clone(_) | Target::Partition { .. } => Ok(()),
    }
}

/// What there is of something, for messages.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Everything declared, as TOML that `diff` reads. Secrets are left out.
pub fn export(now: &Declared) -> String {
    #[derive(Serialize)]
    struct Out {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        namespace: BTreeMap<String, NamespaceSpec>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        service: BTreeMap<String, ServiceSpec>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pipeline: BTreeMap<String, PipelineSpec>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        profile: BTreeMap<String, ProfileSpec>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        certificate: BTreeMap<String, CertificateSpec>,
    }
    let (namespace, service) = (all(now, kind::NAMESPACE), all(now, kind::SERVICE));
    let (pipeline, certificate) = (all(now, kind::PIPELINE), all(now, kind::CERTIFICATE));
    let profile = all(now, kind::PROFILE);
    let out = Out { namespace, service, pipeline, profile, certificate };
    toml::to_string(&out).expect("specs are plain tables")
}

/// What can be declared. Reading the stored form skips what a newer version wrote.
pub trait Spec: Serialize + Clone + PartialEq {
    fn from_stored(value: serde_json::Value) -> Option<Self>;
}

impl Spec for ServiceSpec {
    fn from_stored(value: serde_json::Value) -> Option<Self> {
        ServiceSpec::from_stored(value.to_string().as_bytes()).ok()
    }
}

impl Spec for NamespaceSpec {
    fn from_stored(value: serde_json::Value) -> Option<Self> {
        let serde_json::Value::Object(stored) = value else { return None };
        NamespaceSpec::from_stored(stored)
    }
}

impl Spec for PipelineSpec {
    fn from_stored(value: serde_json::Value) -> Option<Self> {
        PipelineSpec::from_stored(value)
    }
}

impl Spec for ProfileSpec {
    fn from_stored(value: serde_json::Value) -> Option<Self> {
        ProfileSpec::from_stored(value)
    }
}

impl Spec for CertificateSpec {
    fn from_stored(value: serde_json::Value) -> Option<Self> {
        CertificateSpec::from_stored(value)
    }
}

/// All records of one kind, by name. A record this version cannot read is left out: a newer one wrote it.
pub fn all<T: Spec>(now: &Declared, kind: &str) -> BTreeMap<String, T> {
    now.of_kind(kind).filter_map(|(name, bytes)| Some((name.to_owned(), kept::<T>(bytes)?))).collect()
}

pub(crate) fn kept<T: Spec>(bytes: &[u8]) -> Option<T> {
    T::from_stored(serde_json::from_slice::<Kept<serde_json::Value>>(bytes).ok()?.spec)
}

/// How many groups a `linear` namespace has, those included that a split makes now.
fn shards(now: &Declared, namespace: &str) -> u32 {
    let is_its = |(name, _): &(&str, &Bytes)| name.rsplit_once('/').is_some_and(|(of, _)| of == namespace);
    let of = |(_, bytes): (&str, &Bytes)| match facts::decode::<Placed>(bytes) {
        Some(Placed { split: Some(_), .. }) => 2,
        Some(_) | None => 1,
    };
    now.of_kind(kind::GROUP).filter(is_its).map(of).sum()
}

/// Secrets of all namespaces, by namespace.
pub fn secrets(now: &Declared) -> BTreeMap<String, NamespaceSecret> {
    now.of_kind(kind::SECRET)
        .filter_map(|(name, bytes)| Some((name.strip_prefix("ns/")?.to_owned(), serde_json::from_slice(bytes).ok()?)))
        .collect()
}

/// A record that is plain text; empty if it is not there.
pub fn text(now: &Declared, kind: &str, name: &str) -> String {
    now.get(kind, name).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

pub(crate) fn json<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("specs are plain data").into()
}

pub(crate) fn secret_name(namespace: &str) -> String {
    format!("ns/{namespace}")
}

/// With which a service's clones reach each other. It follows from the operator's token and a salt, if it was made anew
/// since, so that every node knows it; neither follows from it. None if there is no operator's token.
pub fn service_token(admin: &str, service: &str, salt: &str) -> Option<String> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, admin.as_bytes());
    let blank = if salt.is_empty() { "" } else { " " };
    let tag = hmac::sign(&key, format!("coppice service {service}{blank}{salt}").as_bytes());
    (!admin.is_empty()).then(|| crate::asks::hex(&tag.as_ref()[..16]))
}

/// Adds one declared thing to the change if it is new or different.
fn note<T: Spec>(now: &Declared, file: &str, kind: &str, name: &str, spec: &T, diff: &mut Diff) {
    match now.get(kind, name).and_then(|bytes| kept::<T>(bytes)) {
        None => diff.lines.push(format!("+ {kind} {name}")),
        Some(before) if before != *spec => diff.lines.push(format!("~ {kind} {name}: {}", differences(&before, spec))),
        Some(_) => return,
    }
    let record = json(&Kept { file: file.to_owned(), spec: spec.clone() });
    diff.change.puts.push((kind.into(), name.into(), record));
}

/// `clones 2 -> 3, health none -> "/health"`
fn differences<T: Serialize>(before: &T, after: &T) -> String {
    let table = |v: &T| match serde_json::to_value(v) {
        Ok(serde_json::Value::Object(map)) => map,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, after) = (table(before), table(after));
    let shown = |v: Option<&serde_json::Value>| v.map_or_else(|| "none".to_owned(), ToString::to_string);
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|k| before.get(*k) != after.get(*k));
    changed.map(|k| format!("{k} {} -> {}", shown(before.get(k)), shown(after.get(k)))).collect::<Vec<_>>().join(", ")
}

/// What this file declared before and no longer does.
fn dropped(now: &Declared, file: &str, parsed: &File) -> Vec<(&'static str, String)> {
    let of_file =
        |bytes: &Bytes| serde_json::from_slice::<Kept<serde_json::Value>>(bytes).is_ok_and(|kept| kept.file == file);
    let mut gone = Vec::new();
    for ((kind, name), bytes) in &now.records {
        let (kind, still) = match kind.as_str() {
            kind::SERVICE => (kind::SERVICE, parsed.service.contains_key(name)),
            kind::NAMESPACE => (kind::NAMESPACE, parsed.namespace.contains_key(name)),
            kind::PIPELINE => (kind::PIPELINE, parsed.pipeline.contains_key(name)),
            kind::PROFILE => (kind::PROFILE, parsed.profile.contains_key(name)),
            kind::CERTIFICATE => (kind::CERTIFICATE, parsed.certificate.contains_key(name)),
            _ => continue,
        };
        if !still && of_file(bytes) {
            gone.push((kind, name.clone()));
        }
    }
    gone
}

/// The declaration as the change would leave it.
pub(crate) fn after(now: &Declared, change: &Change) -> Declared {
    let mut records = now.records.clone();
    for (kind, name) in &change.removes {
        records.remove(&(kind.clone(), name.clone()));
    }
    for (kind, name, bytes) in &change.puts {
        records.insert((kind.clone(), name.clone()), bytes.clone());
    }
    Declared { version: now.version, records }
}

/// A name of a namespace, a pipeline, a profile or a certificate.
///
/// # Errors
/// What would be right.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if good && !name.starts_with('-') {
        Ok(())
    } else {
        Err("a name has 1 to 63 lower-case letters, digits and hyphens, and does not begin with a hyphen".into())
    }
}

/// `file:line: key: why`, at the line of the key (`service.shop.http.path`), else of its table. A mistake in something
/// that this file does not declare has no line.
pub(crate) fn at_key(file: &str, text: &str, parsed: &File, key: &str, why: &str) -> String {
    let mut parts = key.splitn(3, '.');
    let (table, name, rest) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let span = match table {
        Some("service") => parsed.service.get(name).map(Spanned::span),
        Some("namespace") => parsed.namespace.get(name).map(Spanned::span),
        Some("pipeline") => parsed.pipeline.get(name).map(Spanned::span),
        Some("profile") => parsed.profile.get(name).map(Spanned::span),
        Some("certificate") => parsed.certificate.get(name).map(Spanned::span),
        Some(_) | None => None,
    };
    let Some(span) = span else { return format!("{file}: {key}: {why}") };
    let first = text[..span.start.min(text.len())].matches('\n').count();
    let words: Vec<&str> = rest.split('.').filter(|word| !word.is_empty()).collect();
    let own = format!("{}.{name}.", table.unwrap_or_default());
    let within = text.lines().enumerate().skip(first).take_while(|(i, line)| {
        let line = line.trim_start();
        *i == first || !line.starts_with('[') || line.trim_start_matches('[').starts_with(&own)
    });
    let lines: Vec<(usize, &str)> = within.collect();
    let found = match words.as_slice() {
        [] => None,
        ["partition", name, rest @ ..] => partition_line(&lines, name, rest.first().copied()),
        ["tcp", name, key] => partition_line(&lines, name, Some(key)),
        [word, ..] => lines.iter().position(|(_, line)| first_key(line, &own) == *word),
    };
    let found = found.map_or(first, |index| lines[index].0);
    format!("{file}:{}: {key}: {why}", found + 1)
}

/// The first key below the table `own` that a line sets or begins: `http` of `http = {...}`, `http.host = ...` and
/// `[service.shop.http]`.
fn first_key<'a>(line: &'a str, own: &str) -> &'a str {
    let line = line.trim_start();
    let key = match line.strip_prefix('[') {
        Some(table) => table.trim_start_matches('[').strip_prefix(own).unwrap_or_default(),
        None => line,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    &key[..key.find(|c| !is_plain(c)).unwrap_or(key.len())]
}

/// The line of a partition's key, else that of its name. A partition is a table of its own or a line of a list.
fn partition_line(lines: &[(usize, &str)], name: &str, key: Option<&str>) -> Option<usize> {
    let (quoted, single) = (format!("\"{name}\""), format!("'{name}'"));
    let is_name = |line: &str| line.contains("name") && (line.contains(&quoted) || line.contains(&single));
    let at = lines.iter().position(|(_, line)| is_name(line))?;
    let is_table = |(_, line): &(usize, &str)| line.trim_start().starts_with('[');
    let from = lines[..at].iter().rposition(is_table).map_or(at, |table| table + 1);
    let to =
        lines[at + 1..].iter().position(|line| is_table(line) || is_name(line.1)).map_or(lines.len(), |n| at + 1 + n);
    let of_key = |(_, line): &(usize, &str)| key.is_some_and(|key| line.trim_start().starts_with(key));
    Some(lines[from..to].iter().position(of_key).map_or(at, |n| from + n))
}

fn new_secret(id: u32, name: &str, entropy: &[u8; 32]) -> NamespaceSecret {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, entropy);
    let derive = |what: &str| -> [u8; 32] {
        let tag = ring::hmac::sign(&key, format!("{what}/{name}").as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    };
    let realm = derive("realm");
    let realm = realm.first_chunk().expect("32 bytes begin with 4");
    NamespaceSecret {
        id,
        token: derive("token")[..20].iter().map(|b| format!("{b:02x}")).collect(),
        cookie: CookieSecret::new(u32::from_be_bytes(*realm), derive("mac")),
    }
}

#[cfg(test)]
#[path = "declared_tests.rs"]
mod tests;
