//! What is wrong with a declaration as a whole, where each of its parts may be right: services, namespaces, pipelines
//! and certificates that name each other.

use std::collections::BTreeMap;

use clones::limits::{CLONES_MAX_BEFORE, PIPELINES_MAX, PROFILES_MAX, SERVICES_MAX_BEFORE};
use clones::spec::{ServiceSpec, SpecError};
use clones::{LEVEL_PARTS, PipelineSpec, ProfileSpec};
use cluster::root::Declared;
use state::{Class, NamespaceSpec};

use crate::acme;
use crate::declared::{all, kind, listed};
use crate::level;

/// Mistakes of a whole declaration; `ours` are the services that somebody declares now.
pub(crate) fn mistakes(all_of_it: &Declared, ours: &[&str]) -> Vec<SpecError> {
    let services = all::<ServiceSpec>(all_of_it, kind::SERVICE);
    let specs = all::<NamespaceSpec>(all_of_it, kind::NAMESPACE);
    let mut errors = wrong_classes(&services, &specs);
    errors.extend(wrong_functions(&services, &specs));
    errors.extend(wrong_databases(&specs));
    errors.extend(wrong_pipelines(&all(all_of_it, kind::PIPELINE), &services, &specs));
    let (profiles, pipelines) = (all(all_of_it, kind::PROFILE), all(all_of_it, kind::PIPELINE));
    errors.extend(wrong_profiles(&profiles, &services, &specs));
    let unknown =
        |(name, spec): (&String, &ServiceSpec)| clones::profile::unknown_fields(name, spec, &pipelines, &profiles);
    errors.extend(services.iter().flat_map(unknown));
    errors.extend(acme::too_many(all_of_it));
    errors.extend(more_than_older_programs_take(level::agreed(all_of_it), &services));
    errors.extend(clones::spec::validate_all(&services, &specs.into_keys().collect(), ours).err().unwrap_or_default());
    errors
}

/// Older programs tell each other of all services in one fact each.
fn more_than_older_programs_take(agreed: u32, services: &BTreeMap<String, ServiceSpec>) -> Option<SpecError> {
    if agreed >= LEVEL_PARTS {
        return None;
    }
    let clones: u64 = services.values().map(|spec| u64::from(spec.standing().max)).sum();
    let (many, most) = match services.len() {
        many if many > SERVICES_MAX_BEFORE => (format!("{many} services"), SERVICES_MAX_BEFORE as u64),
        _ if clones > u64::from(CLONES_MAX_BEFORE) => (format!("{clones} clones in all"), CLONES_MAX_BEFORE.into()),
        _ => return None,
    };
    let why = format!(
        "{many} need programs of level {LEVEL_PARTS} on all nodes, and this cluster agreed on level {agreed}: upgrade them all first; \
         until then {most} are the most"
    );
    Some(SpecError { key: "service".into(), why })
}

/// Sessions are kept in namespaces of class `session` alone, answers in those of class `cache`, queues in those of
/// class `linear`.
fn wrong_classes(
    services: &BTreeMap<String, ServiceSpec>,
    namespaces: &BTreeMap<String, NamespaceSpec>,
) -> Vec<SpecError> {
    let wrong = |(name, service): (&String, &ServiceSpec)| {
        let namespace = &service.session.as_ref()?.namespace;
        let class = namespaces.get(namespace)?.class();
        (class != Class::Session).then(|| SpecError {
            key: format!("service.{name}.session.namespace"),
            why: format!("{namespace:?} is of class {class}; sessions need a namespace of class session"),
        })
    };
    let wrong_cache = |(name, service): (&String, &ServiceSpec)| {
        let namespace = &service.cache.as_ref()?.namespace;
        let class = namespaces.get(namespace)?.class();
        (class != Class::Cache).then(|| SpecError {
            key: format!("service.{name}.cache.namespace"),
            why: format!("{namespace:?} is of class {class}; answers are kept in a namespace of class cache"),
        })
    };
    let wrong_queue = |(name, service): (&String, &ServiceSpec)| {
        let why = service.queues.iter().find_map(|queue| {
            let namespace = queue.split_once('/')?.0;
            match namespaces.get(namespace).map(NamespaceSpec::class) {
                Some(Class::Linear) => None,
                Some(class) => {
                    Some(format!("{namespace:?} is of class {class}; queues are in namespaces of class linear"))
                }
                None => Some(format!("{namespace:?} is not declared; it needs class = \"linear\"")),
            }
        })?;
        Some(SpecError { key: format!("service.{name}.queues"), why })
    };
    let own = services.iter().filter_map(wrong).chain(services.iter().filter_map(wrong_cache));
    own.chain(services.iter().filter_map(wrong_queue)).collect()
}

/// Steps are done by workers, and what they make is kept in caches.
fn wrong_pipelines(
    pipelines: &BTreeMap<String, PipelineSpec>,
    services: &BTreeMap<String, ServiceSpec>,
    namespaces: &BTreeMap<String, NamespaceSpec>,
) -> Vec<SpecError> {
    let caches = namespaces.iter().filter(|(_, spec)| spec.class() == Class::Cache).map(|(name, _)| name.clone());
    let caches = caches.collect();
    let of = |(name, spec): (&String, &PipelineSpec)| {
        let found = spec.mistakes(services, &caches).into_iter();
        found.map(|(key, why)| SpecError { key: format!("pipeline.{name}.{key}"), why }).collect::<Vec<_>>()
    };
    let names = pipelines.keys().cloned().collect();
    let unknown = services.iter().flat_map(|(name, spec)| clones::pipeline::unknown(name, spec, &names));
    let many = (pipelines.len() > PIPELINES_MAX).then(|| SpecError {
        key: "pipeline".into(),
        why: format!("{} pipelines are over the limit of {PIPELINES_MAX}", pipelines.len()),
    });
    pipelines.iter().flat_map(of).chain(unknown).chain(many).collect()
}

/// They are kept in databases, and go with requests.
fn wrong_profiles(
    profiles: &BTreeMap<String, ProfileSpec>,
    services: &BTreeMap<String, ServiceSpec>,
    namespaces: &BTreeMap<String, NamespaceSpec>,
) -> Vec<SpecError> {
    let databases = namespaces.iter().filter(|(_, spec)| spec.class() == Class::Sql).map(|(name, _)| name.clone());
    let databases = databases.collect();
    let of = |(name, spec): (&String, &ProfileSpec)| {
        let found = spec.mistakes(&databases).into_iter();
        found.map(|(key, why)| SpecError { key: format!("profile.{name}.{key}"), why }).collect::<Vec<_>>()
    };
    let wrong = services.iter().filter_map(|(name, spec)| clones::profile::wrong(name, spec, profiles));
    let many = (profiles.len() > PROFILES_MAX).then(|| SpecError {
        key: "profile".into(),
        why: format!("{} profiles are over the limit of {PROFILES_MAX}", profiles.len()),
    });
    profiles.iter().flat_map(of).chain(wrong).chain(many).collect()
}

/// What `SELECT` opens is another namespace that has Redis commands.
fn wrong_databases(namespaces: &BTreeMap<String, NamespaceSpec>) -> Vec<SpecError> {
    let of = |(name, spec): (&String, &NamespaceSpec)| {
        let wrong = |(number, other): (u32, &str)| {
            let why = match namespaces.get(other) {
                _ if other == name => format!("{other:?} is this namespace itself, which is database 0"),
                None => {
                    format!(
                        "there is no namespace {other:?}; declared are: {}",
                        listed(namespaces.keys().map(String::as_str))
                    )
                }
                Some(spec) if spec.databases().is_none() => {
                    format!("{other:?} is of class {}, which has no Redis commands", spec.class())
                }
                Some(_) => return None,
            };
            Some(SpecError { key: format!("namespace.{name}.databases.{number}"), why })
        };
        spec.databases().into_iter().flat_map(class::Databases::iter).filter_map(wrong).collect::<Vec<_>>()
    };
    namespaces.iter().flat_map(of).collect()
}

/// Who knows a namespace's functions is a service that nodes can ask over HTTP.
fn wrong_functions(
    services: &BTreeMap<String, ServiceSpec>,
    namespaces: &BTreeMap<String, NamespaceSpec>,
) -> Vec<SpecError> {
    let wrong = |(name, namespace): (&String, &NamespaceSpec)| {
        let service = namespace.linear()?.functions.as_ref()?;
        let why = match services.get(service) {
            None => {
                format!(
                    "there is no service {service:?}; declared are: {}",
                    listed(services.keys().map(String::as_str))
                )
            }
            Some(spec) if spec.http.is_none() => {
                format!("service {service:?} has no `http`, by which its clones are asked for functions")
            }
            Some(spec) if !spec.tcp.is_empty() => {
                format!(
                    "service {service:?} has `tcp`, by which anybody could call its functions; put them into a service of their own"
                )
            }
            Some(_) => return None,
        };
        Some(SpecError { key: format!("namespace.{name}.functions"), why })
    };
    namespaces.iter().filter_map(wrong).collect()
}
