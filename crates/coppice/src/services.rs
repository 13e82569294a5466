//! The built-in services: those of `services/`, which are inside this program. A clone of one is this program again, under an
//! argument that only nodes give it, so nothing has to lie on a machine or be deployed, and each node runs its own version.
//! What a service does is in its folder, and how one is added in docs/recipes/service.md.

use std::ffi::OsString;
use std::future::Future;
use std::pin::Pin;
use std::process::exit;

use crate::plain::complain;
use sdk::{Service, StartError};

/// A service, from its start to the end of its clone.
type Serves = Pin<Box<dyn Future<Output = Result<(), StartError>>>>;

pub struct Builtin {
    /// As declarations name it: `builtin = "shop"`.
    pub name: &'static str,
    /// Its `coppice.toml`: a service of the same name, those that belong to it, and the namespaces that they need.
    pub declaration: &'static str,
    serve: fn(Service) -> Serves,
}

/// Names that are crates of `services/`, each with `pub async fn serve(service: sdk::Service)`.
macro_rules! services {
    ($($name:ident)*) => {
        pub const ALL: &[Builtin] = &[$(Builtin {
            name: stringify!($name),
            declaration: include_str!(concat!("../../../services/", stringify!($name), "/coppice.toml")),
            serve: |service| Box::pin($name::serve(service)),
        }),*];
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

services! {
    distill
    mail
    petstore
    shop
}

pub fn named(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

/// Is a clone of the service that the first of `args` names, until its node tells it to stop. What goes wrong stands on
/// standard error, so that its node shows it.
pub fn serve_main(mut args: impl Iterator<Item = OsString>) -> ! {
    let name = args.next().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    crate::run::log();
    let served = match named(&name) {
        Some(builtin) => serve(builtin),
        None => Err(format!("this node's program has no built-in service {name:?}; it has: {}", NAMES.join(", "))),
    };
    if let Err(why) = served {
        complain!("{why}");
        exit(1);
    }
    exit(0)
}

fn serve(builtin: &Builtin) -> Result<(), String> {
    let service = Service::from_env().map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("cannot start: {e}"))?;
    runtime.block_on((builtin.serve)(service)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_declares_a_service_of_its_name_that_is_built_in() {
        for builtin in ALL {
            let all = node::declared::each_service("coppice.toml", builtin.declaration).unwrap();
            assert!(all.iter().any(|(name, _)| name == builtin.name));
            for (name, text) in all {
                let (_, spec) = node::declared::only_service("coppice.toml", &text).unwrap();
                assert!(name.starts_with(builtin.name) && spec.builtin.as_deref() == Some(builtin.name), "{name}");
                assert_eq!(spec.validate(), Ok(()));
            }
        }
    }

    #[test]
    fn the_shop_stays_under_80_lines() {
        assert!(include_str!("../../../services/shop/src/lib.rs").lines().count() < 80);
    }
}
