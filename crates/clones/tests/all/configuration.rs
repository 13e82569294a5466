//! The page of all keys of a declaration, compared with the types that read them: docs/configuration.md has each key in the table of
//! its type and no other. What a key means there is for people to keep true.

use std::collections::BTreeSet;

use clones::partition::{DropHandler, HashRange, HeaderMatch, Partition};
use clones::pipeline::Step;
use clones::sandbox::Sandbox;
use clones::session::SessionCookie;
use clones::size::Size;
use clones::spec::{HttpRoute, ServiceSpec, Stop, TcpRoute};
use clones::{Bounds, CertificateSpec, EdgeCache, Health, PipelineSpec, ProfileSpec, Worker};
use serde::de::DeserializeOwned;
use state::Class;

const PAGE: &str = include_str!("../../../../docs/configuration.md");
/// A key that no type has.
const NO_KEY: &str = "no key has this name";

/// Keys that stand in the tables of the page below a heading.
fn on_page(heading: &str) -> BTreeSet<String> {
    let below = PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}")).1;
    let section = below.split("\n## ").next().unwrap_or(below);
    let key = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(key).collect()
}

/// Keys that a type reads: its refusal of an unknown key names them all.
fn of_type<T: DeserializeOwned>() -> BTreeSet<String> {
    let Err(refusal) = serde_json::from_value::<T>(serde_json::json!({ NO_KEY: 1 })) else {
        panic!("a key that is unknown was taken");
    };
    let refusal = refusal.to_string();
    let (_, known) = refusal.split_once("expected ").unwrap_or_else(|| panic!("names no keys: {refusal}"));
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_page_has_every_key_of_a_declaration_and_no_other() {
    let tables = [
        ("service", of_type::<ServiceSpec>()),
        ("clones", of_type::<Size>()),
        ("health", of_type::<Health>()),
        ("http", of_type::<HttpRoute>()),
        ("tcp", of_type::<TcpRoute>()),
        ("cache", of_type::<EdgeCache>()),
        ("worker", of_type::<Worker>()),
        ("pipeline", of_type::<PipelineSpec>()),
        ("step", of_type::<Step>()),
        ("profile", of_type::<ProfileSpec>()),
        ("certificate", of_type::<CertificateSpec>()),
        ("sandbox", of_type::<Sandbox>()),
        ("limits", of_type::<Bounds>()),
        ("stop", of_type::<Stop>()),
        ("session", of_type::<SessionCookie>()),
        ("partition", of_type::<Partition>()),
        ("header", of_type::<HeaderMatch>()),
        ("hash_range", of_type::<HashRange>()),
        ("drop", of_type::<DropHandler>()),
    ];
    for (heading, keys) in tables {
        assert_eq!(on_page(heading), keys, "of {heading}: on the page, and in the type");
    }
    for class in Class::ALL {
        let keys: BTreeSet<String> = class.keys().iter().map(|key| key.name.to_owned()).collect();
        assert_eq!(
            on_page(&format!("namespace of class {class}")),
            keys,
            "of class {class}: on the page, and in the class"
        );
    }
}
