//! What can be wrong with a service's partitions, found when they are declared: each by itself, and those that could
//! never take a request. Every mistake names its key (`partition.NAME.host`) and what would be right.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::limits::{MATCH_BYTES_MAX, PARTITIONS_COMPARED_MAX, PARTITIONS_PER_SERVICE_MAX};
use crate::partition::{Affinity, DropHandler, Fraction, HashOn, HeaderMatch, Partition, is_token};
use crate::path::canonical;
use crate::route::{bare_host, host_covers, is_below};
use crate::spec::{HttpRoute, ServiceSpec, SpecError, TcpRoute, host_error, name_error, prefix_error};

/// All mistakes in a service's partitions.
pub fn check(spec: &ServiceSpec) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |key: String, why: String| errors.push(SpecError { key, why });
    let all = &spec.partitions;
    if all.is_empty() {
        return errors;
    }
    if all.len() > PARTITIONS_PER_SERVICE_MAX {
        wrong("partition".into(), format!("{} are over the limit of {PARTITIONS_PER_SERVICE_MAX}", all.len()));
        return errors;
    }
    if !spec.is_reached() {
        wrong("partition".into(), "nothing reaches this service; give it an address: http = { host = \"*\" }".into());
    }
    let mut names = BTreeSet::new();
    let everything = all.iter().position(|partition| takes_all_of(partition, &Partition::new("any")));
    for (index, partition) in all.iter().enumerate() {
        let name = &partition.name;
        let mut wrong = |key: &str, why: String| wrong(format!("partition.{name}{key}"), why);
        if let Some(why) = name_error(name) {
            wrong(".name", why.replacen("a service's", "a partition's", 1));
        } else if !names.insert(name) {
            wrong(".name", "another partition of this service has this name; give it one of its own".into());
        }
        match &spec.http {
            Some(http) => http_mistakes(partition, http, &mut wrong),
            None => tcp_mistakes(partition, &mut wrong),
        }
        own_mistakes(partition, &mut wrong);
        for (key, why) in partition.allows().mistakes(spec.http.is_some(), !spec.tcp.is_empty()) {
            wrong(&format!(".{key}"), why);
        }
        for (key, why) in partition.asks().mistakes(spec.asks(), spec.http.is_some()) {
            wrong(&format!(".{key}"), why);
        }
        if partition.ask.is_some_and(|ask| ask > 1) && partition.affinity != Affinity::None {
            wrong(".ask", "asks several clones, and affinity sends a request to one; leave one of them out".into());
        }
        let compared = all[..index.min(PARTITIONS_COMPARED_MAX)].iter();
        let widest = everything.filter(|at| *at < index).map(|at| &all[at]);
        if let Some(before) = compared.chain(widest).find(|before| takes_all_of(before, partition)) {
            let why = "before it takes all of them; put it before that one";
            wrong("", format!("never takes a request, as {:?} {why}", before.name));
        }
    }
    let shares: u32 = all.iter().map(|p| u32::from(p.share.0)).sum();
    if shares > u32::from(Fraction::WHOLE.0) {
        wrong("partition".into(), format!("the shares of all are {}%; together they may be 100%", shares / 100));
    }
    errors
}

/// Does `before` take every request that `after` would?
fn takes_all_of(before: &Partition, after: &Partition) -> bool {
    /// No condition, or one that the other's implies.
    fn holds<T>(before: Option<&T>, after: Option<&T>, implied: impl Fn(&T, &T) -> bool) -> bool {
        before.is_none_or(|before| after.is_some_and(|after| implied(before, after)))
    }
    fn methods(partition: &Partition) -> Option<&Vec<String>> {
        Some(&partition.method).filter(|methods| !methods.is_empty())
    }
    let lower = |host: &str| bare_host(host).to_ascii_lowercase();
    let is_of = |wider: &HeaderMatch, header: &HeaderMatch| {
        let value = header.is.as_ref().or(header.begins.as_ref());
        wider.name.eq_ignore_ascii_case(&header.name)
            && match (&wider.is, &wider.begins) {
                (Some(is), _) => header.is.as_ref() == Some(is),
                (None, Some(begins)) => value.is_some_and(|value| value.starts_with(begins)),
                (None, None) => true,
            }
    };
    holds(before.port.as_ref(), after.port.as_ref(), |a, b| a == b)
        && holds(before.host.as_ref(), after.host.as_ref(), |a, b| host_covers(&lower(a), &lower(b)))
        && holds(before.path.as_ref(), after.path.as_ref(), |a, b| is_below(a, b))
        && holds(before.path_suffix.as_ref(), after.path_suffix.as_ref(), |a, b| b.ends_with(a))
        && holds(before.path_contains.as_ref(), after.path_contains.as_ref(), |a, b| b.contains(a))
        && holds(methods(before), methods(after), |a, b| b.iter().all(|m| a.contains(m)))
        && before.header.iter().all(|wider| after.header.iter().any(|header| is_of(wider, header)))
        && holds(before.hash_range.as_ref(), after.hash_range.as_ref(), |a, b| {
            a.on == b.on && a.from <= b.from && b.to <= a.to
        })
}

fn http_mistakes(partition: &Partition, http: &HttpRoute, wrong: &mut dyn FnMut(&str, String)) {
    if let Some(host) = &partition.host {
        let lower = |host: &str| bare_host(host).to_ascii_lowercase();
        if let Some(why) = host_error(host) {
            wrong(".host", why);
        } else if host_error(&http.host).is_none() && !host_covers(&lower(&http.host), &lower(host)) {
            let why = "never takes a request, as the service is reached at";
            wrong(".host", format!("{host:?} {why} {:?}; widen http.host or change this", http.host));
        }
    }
    if let Some(path) = &partition.path {
        if let Some(why) = prefix_error(path) {
            wrong(".path", why);
        } else if !is_below(&http.path, path) {
            let why = "never takes a request, as the service is reached at";
            wrong(".path", format!("{path:?} {why} {:?}; widen http.path or change this", http.path));
        }
    }
}

/// Of a service without HTTP nothing but ports and addresses is known.
fn tcp_mistakes(partition: &Partition, wrong: &mut dyn FnMut(&str, String)) {
    if let Some(key) = partition.http_key() {
        wrong(&format!(".{key}"), "is known of HTTP requests only, and this service has no http; use port".into());
    }
    if partition.drop.is_some() {
        wrong(".drop", "is an answer to HTTP requests, and this service has no http; leave it out".into());
    }
    match &partition.affinity {
        Affinity::Hash(on) if on.is_http() => {
            wrong(".affinity", format!("{on} is known of HTTP requests only; use \"hash:client\" or \"hash:port\""));
        }
        Affinity::Sticky => {
            wrong(".affinity", "TCP has no cookies; use \"hash:client\" or \"hash:port\"".into());
        }
        Affinity::Hash(HashOn::Client | HashOn::Port | HashOn::Path | HashOn::Header(_) | HashOn::Cookie(_))
        | Affinity::None => (),
    }
}

fn own_mistakes(partition: &Partition, wrong: &mut dyn FnMut(&str, String)) {
    if partition.port == Some(0) {
        wrong(".port", "0 is no port to come to; choose one from 1 to 65535".into());
    }
    for (key, part) in [(".path_suffix", &partition.path_suffix), (".path_contains", &partition.path_contains)] {
        let Some(part) = part else { continue };
        if part.is_empty() {
            wrong(key, "is empty, which every path has; leave it out".into());
        } else if let Some(c) = part.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
            wrong(key, format!("{part:?} contains {c:?}, which no path has; percent-encode it"));
        } else if let plain = canonical(part)
            && plain != *part
        {
            wrong(key, format!("{part:?} is matched as {plain:?}; write it so"));
        }
    }
    for method in &partition.method {
        let upper = method.to_ascii_uppercase();
        if method.is_empty() || !method.bytes().all(is_token) {
            wrong(".method", format!("{method:?} is no method; write for example [\"GET\", \"HEAD\"]"));
        } else if *method != upper {
            wrong(".method", format!("methods are in capitals; write {upper:?}"));
        }
    }
    for header in &partition.header {
        let name = &header.name;
        if name.is_empty() || !name.bytes().all(is_token) {
            wrong(".header", format!("{name:?} is no field's name; write for example {{ name = \"x-plan\" }}"));
        }
        if header.is.is_some() && header.begins.is_some() {
            wrong(".header", format!("{name:?} has both is and begins; one of them is enough"));
        }
        let values = [header.is.as_deref(), header.begins.as_deref()];
        if values.iter().flatten().any(|value| value.bytes().any(|b| matches!(b, 0 | b'\r' | b'\n'))) {
            wrong(".header", format!("{name:?} wants a value that no field can have"));
        }
    }
    if let Some(drop) = &partition.drop {
        drop_mistakes(drop, wrong);
    }
    if let Some(range) = partition.hash_range.as_ref().filter(|range| range.from >= range.to) {
        let why = format!("{} to {} is empty; write for example from = \"0%\", to = \"10%\"", range.from, range.to);
        wrong(".hash_range", why);
    }
    let texts = [&partition.host, &partition.path, &partition.path_suffix, &partition.path_contains];
    let values = partition.header.iter().flat_map(|h| [Some(&h.name), h.is.as_ref(), h.begins.as_ref()]);
    if texts.into_iter().map(Option::as_ref).chain(values).flatten().any(|text| text.len() > MATCH_BYTES_MAX) {
        wrong("", format!("has a text over the limit of {MATCH_BYTES_MAX} bytes"));
    }
}

fn drop_mistakes(drop: &DropHandler, wrong: &mut dyn FnMut(&str, String)) {
    if let Some(status) = drop.status.filter(|status| !(400..600).contains(status)) {
        wrong(
            ".drop",
            format!("status {status} does not say that the request was refused; write 400 to 599, 503 mostly"),
        );
    }
    if drop.service.is_some() && (drop.status.is_some() || drop.file.is_some()) {
        wrong(".drop", "another service says itself what it answers; leave out status and file, or service".into());
    }
    if drop.status.is_none() && drop.file.is_none() && drop.service.is_none() {
        wrong(".drop", "says nothing; write for example { status = 429 }, { file = \"busy.html\" }".into());
    }
    if let Some(file) =
        drop.file.as_ref().filter(|file| file.is_empty() || file.contains('\0') || file.len() > MATCH_BYTES_MAX)
    {
        wrong(".drop", format!("{file:?} is no file; write a path in the node's service folder, like \"busy.html\""));
    }
}

/// Ports on which a service's TCP clients may come, each with its key. Ports of partitions that are no door's are like the first door.
pub fn tcp_ports(spec: &ServiceSpec) -> Vec<(String, u16)> {
    let has_own = |port: u16| !spec.tcp.is_empty() && spec.tcp.iter().all(|door| door.port != port);
    let of = |p: &Partition| Some((format!("partition.{}.port", p.name), p.port.filter(|port| has_own(*port))?));
    let partitions = spec.partitions.iter().filter(|_| spec.http.is_none()).filter_map(of);
    spec.tcp.iter().map(|door| (door.key("port"), door.port)).chain(partitions).collect()
}

/// How clients at one of a service's TCP ports are treated.
pub(crate) fn door_at(doors: &[TcpRoute], port: u16) -> Option<&TcpRoute> {
    doors.iter().find(|door| door.port == port).or(doors.first())
}

/// Why two services cannot both have a TCP port, if they cannot: connections are told apart by the host they ask for.
pub fn port_quarrel(port: u16, spec: &ServiceSpec, other: &str, at: &ServiceSpec) -> Option<String> {
    if std::ptr::eq(spec, at) {
        return None;
    }
    let (mine, theirs) = (door_at(&spec.tcp, port)?, door_at(&at.tcp, port)?);
    let lower = |sni: &str| bare_host(sni).to_ascii_lowercase();
    match (mine.sni.as_deref().map(lower), theirs.sni.as_deref().map(lower)) {
        (Some(mine), Some(theirs)) if mine == theirs => {
            Some(format!("{port} for host {mine:?} already belongs to service {other:?}; choose another host or port"))
        }
        (Some(_), Some(_)) if mine.accept_proxy != theirs.accept_proxy => {
            Some(format!("{port} also belongs to service {other:?}; tcp.accept_proxy must be the same for both"))
        }
        (Some(_), Some(_)) => None,
        _ => Some(format!(
            "{port} already belongs to service {other:?}; choose another port, or share it by tcp.sni in both"
        )),
    }
}

/// Takes out partitions that a newer version wrote with keys this one does not know: without a condition that it does
/// not understand, a partition would take requests that are not its own.
pub fn keep_understood(service: &mut Value) {
    let Some(partitions) = service.get_mut("partition").and_then(Value::as_array_mut) else { return };
    partitions.retain(|one| serde_json::from_value::<Partition>(one.clone()).is_ok());
}
