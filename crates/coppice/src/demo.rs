//! What `coppice up` deploys, once: the example shop of `examples/cart`, carried inside the program so that it runs from any
//! folder, or the built-in service that `--demo` names, or `transend`: a site of photographs, and the same distilled.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use node::view::View;
use serde::{Deserialize, Serialize};

use crate::client::Api;
use crate::{found, postmaster, services};

/// Below that of `up`.
const FOLDER: &str = "demo";
/// What was declared; says that it was.
const APPLIED: &str = "coppice.toml";
const PROGRAM: &str = include_str!("../../../examples/cart/cart.py");
const DECLARATION: &str = include_str!("../../../examples/cart/coppice.toml");

/// What is distilled, and what distils it.
const TRANSEND: &str = "transend";
const TRANSEND_DECLARATION: &str = include_str!("../../../services/distill/transend.toml");
/// What stands there for the addresses of the site.
const SITE_AT: &str = "photos=AT";
/// Where the site is at each node.
const SITE_PATH: &str = "/original";

/// The built-in pet store, whose page is made of other services.
const PETSTORE: &str = "petstore";
const PETSTORE_PARTS: &[&str] = &[
    "petstore-pets",
    "petstore-stock",
    "petstore-cart",
    "petstore-viewed",
    "petstore-rating",
    "petstore-visits",
    "petstore-advice",
];

/// The service of the example shop, be it that of `examples/cart` or the built-in one.
const SHOP: &str = "shop";

/// The built-in mail, and who has a mailbox in its demo.
const MAIL: &str = "mail";
const PEOPLE: [&str; 2] = ["ann@mail.test", "bob@mail.test"];
/// In its certificate: their domain, and where `up` has its nodes.
const NAMES: [&str; 5] = ["mail.test", "localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"];
/// With their passwords, below the demo's folder.
const ACCOUNTS: &str = "accounts.json";
/// The group that keeps accounts elects its first leader meanwhile.
const ACCOUNTS_WITHIN: Duration = Duration::from_secs(15);

/// Somebody with a mailbox in the demo of mail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Person {
    pub address: String,
    pub password: String,
}

/// A service that is deployed into a cluster that has none.
#[derive(Clone, Copy)]
pub struct Demo {
    pub service: &'static str,
    /// Others that are there with it.
    beside: &'static [&'static str],
    /// As a file: complete for a built-in service, else with the folder of the repository.
    declaration: &'static str,
    is_builtin: bool,
}

impl Demo {
    /// The built-in service of this name; without a name, the shop of `examples/cart`.
    pub fn named(name: Option<&str>) -> Result<Self, String> {
        let Some(name) = name else { return Ok(Self::of(SHOP, DECLARATION, false)) };
        if name == TRANSEND {
            return Ok(Self { beside: &["photos"], ..Self::of("distill", TRANSEND_DECLARATION, true) });
        }
        let missing = || {
            format!("there is no built-in service {name:?}; there are: {}, and {TRANSEND}", services::NAMES.join(", "))
        };
        let builtin = services::named(name).ok_or_else(missing)?;
        let beside = if name == PETSTORE { PETSTORE_PARTS } else { &[] };
        Ok(Self { beside, ..Self::of(builtin.name, builtin.declaration, true) })
    }

    fn of(service: &'static str, declaration: &'static str, is_builtin: bool) -> Self {
        Self { service, beside: &[], declaration, is_builtin }
    }

    /// All services that are waited for.
    pub fn services(self) -> Vec<&'static str> {
        self.beside.iter().copied().chain([self.service]).collect()
    }

    /// Where what it shows is, at a node whose HTTP door is here; empty where one address says it all.
    pub fn addresses(self, http: SocketAddr) -> Vec<(&'static str, String)> {
        if self.declaration != TRANSEND_DECLARATION {
            return Vec::new();
        }
        vec![
            ("original", format!("http://{http}{SITE_PATH}/")),
            ("distilled", format!("http://{http}/")),
            ("image", format!("http://{http}/insecure/rs:fit:320:240/q:30/plain/origin://photos/photo/1.jpg")),
        ]
    }

    /// Whether its carts can be shown at the edge.
    pub fn is_shop(self) -> bool {
        self.service == SHOP
    }

    /// Its named doors for TCP, with their ports.
    pub fn doors(self) -> Vec<(String, u16)> {
        if !self.is_builtin || !self.beside.is_empty() {
            return Vec::new();
        }
        let (_, spec) = node::declared::only_service(APPLIED, self.declaration).expect("it is tried by a test");
        spec.tcp.into_iter().filter_map(|door| Some((door.name?, door.port))).collect()
    }

    /// Who has a mailbox. Made when the demo is, and known again when `up` starts again.
    pub async fn people(self, dir: &Path, api: &Api) -> Result<Vec<Person>, String> {
        if self.service != MAIL {
            return Ok(Vec::new());
        }
        let path = dir.join(FOLDER).join(ACCOUNTS);
        if let Ok(text) = std::fs::read(&path) {
            return serde_json::from_slice(&text).map_err(|e| format!("{} is damaged: {e}", path.display()));
        }
        let mut people = Vec::new();
        for address in PEOPLE {
            people.push(Person { address: address.to_owned(), password: mail::password::fresh()? });
        }
        for person in &people {
            let account = mail::Account::with_password(&person.password)?;
            let begun = Instant::now();
            loop {
                let added = match postmaster::accounts(api).await {
                    // One that was interrupted before has made it with a password that nobody knows.
                    Ok(accounts) => accounts.put(&person.address, &account).await,
                    Err(why) => Err(why),
                };
                match added {
                    Ok(()) => break,
                    Err(why) if begun.elapsed() > ACCOUNTS_WITHIN => {
                        return Err(format!("cannot make accounts: {why}"));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        }
        found::write_private(&path, &serde_json::to_vec(&people).expect("plain data"))?;
        Ok(people)
    }

    /// Whether clients begin TLS at its own doors, whether or not the node has a door for HTTPS.
    pub fn has_certificate(self) -> bool {
        self.service == MAIL
    }

    /// Gives a demo that speaks TLS a certificate: one of its own, which nobody vouches for, as nobody has its names.
    pub async fn certify(self, api: &Api) -> Result<(), String> {
        if !self.has_certificate() {
            return Ok(());
        }
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned))
            .map_err(|e| format!("cannot make a certificate: {e}"))?;
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        // The group may be between two leaders for a moment after its start.
        let mut last = String::new();
        for _ in 0..50 {
            match api.put("/v1/certificates/default", pem.clone()).await.and_then(|reply| reply.json()) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("cannot give the example {} a certificate: {last}", self.service))
    }

    /// Whether it is there, as far as can be seen: no other was deployed in its place.
    pub fn is_there(self, view: &View) -> bool {
        view.services.iter().any(|service| service.name == self.service && service.version == 0)
    }

    /// Lays its program down under `dir`, if it is not inside this one, and declares it.
    /// `nodes`: their HTTP doors.
    pub async fn deploy(self, dir: &Path, api: &Api, nodes: &[SocketAddr]) -> Result<(), String> {
        let folder = dir.join(FOLDER);
        let wrong = |e: std::io::Error| format!("cannot write {}: {e}", folder.display());
        std::fs::create_dir_all(&folder).map_err(wrong)?;
        let declaration = if self.is_builtin {
            let at: Vec<String> = nodes.iter().map(|http| format!("http://{http}{SITE_PATH}")).collect();
            self.declaration.replace(SITE_AT, &format!("photos={}", at.join("|")))
        } else {
            std::fs::write(folder.join("cart.py"), PROGRAM).map_err(wrong)?;
            declaration(&folder.canonicalize().map_err(wrong)?.display().to_string())
        };
        // The group may be between two leaders for a moment after its start; the declaration is idempotent.
        let mut last = String::new();
        for _ in 0..50 {
            match api.post("/v1/apply", "demo.toml", declaration.clone()).await.and_then(|reply| reply.json()) {
                // Last, so that one who was interrupted before does it once more.
                Ok(_) => return std::fs::write(folder.join(APPLIED), declaration).map_err(wrong),
                Err(error) => last = error,
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Err(format!("cannot deploy the example {}: {last}", self.service))
    }
}

/// Whether a demo is to be deployed: none ever was, and nothing else is there. What an operator made of it since, or put in
/// its place, stays when `up` starts again.
pub fn is_wanted(dir: &Path, view: &View) -> bool {
    view.services.is_empty() && !dir.join(FOLDER).join(APPLIED).exists()
}

fn declaration(folder: &str) -> String {
    let quoted = serde_json::to_string(folder).expect("a string is JSON");
    DECLARATION.replace("dir = \"examples/cart\"", &format!("dir = {quoted}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_examples_folder_is_replaced_by_where_it_was_laid_down() {
        let text = super::declaration("/some where");
        assert!(text.contains("dir = \"/some where\"") && !text.contains("examples/cart\""));
    }

    #[test]
    fn the_shop_is_deployed_once_and_never_beside_something_else() {
        let dir = std::env::temp_dir().join(format!("coppice-demo-{}", std::process::id()));
        std::fs::create_dir_all(dir.join(super::FOLDER)).unwrap();
        let view =
            |services| -> super::View { serde_json::from_value(serde_json::json!({"services": services})).unwrap() };
        let shop = |version: u32| serde_json::json!([{"name": "shop", "wanted": 3, "clones": [], "at": [], "version": version}]);
        let (none, declared, deployed) = (view(serde_json::json!([])), view(shop(0)), view(shop(2)));
        assert!(super::is_wanted(&dir, &none) && !super::is_wanted(&dir, &declared));
        let demo = super::Demo::named(None).unwrap();
        assert_eq!([&none, &declared, &deployed].map(|view| demo.is_there(view)), [false, true, false]);
        std::fs::write(dir.join(super::FOLDER).join(super::APPLIED), "").unwrap();
        assert!(!super::is_wanted(&dir, &none), "it was removed");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_demo_that_is_not_built_in_is_told_which_there_are() {
        let told = super::Demo::named(Some("shoe")).err().unwrap();
        let all = crate::services::NAMES.join(", ");
        assert!(told.starts_with(&format!("there is no built-in service \"shoe\"; there are: {all}")), "{told}");
        let store = super::Demo::named(Some("petstore")).unwrap();
        let services = node::declared::each_service("coppice.toml", store.declaration).unwrap();
        let declared: std::collections::BTreeSet<&str> = services.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(store.services().into_iter().collect::<std::collections::BTreeSet<_>>(), declared);
        let transend = super::Demo::named(Some("transend")).unwrap();
        assert!(transend.declaration.contains(super::SITE_AT) && transend.declaration.contains("path = \"/original\""));
        let names: Vec<_> =
            transend.addresses(([127, 0, 0, 1], 8080).into()).into_iter().map(|(name, _)| name).collect();
        assert_eq!((names, transend.services()), (vec!["original", "distilled", "image"], vec!["photos", "distill"]));
        assert!(super::Demo::named(Some("shop")).unwrap().declaration.contains("builtin = \"shop\""));
    }

    #[test]
    fn the_shop_stays_under_80_lines() {
        assert!(super::PROGRAM.lines().count() < 80);
    }
}
