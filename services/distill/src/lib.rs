//! Distillation, as TranSend did it (Fox et al., 1997): before one's own site it makes pages and pictures small, as each reader
//! wants them, and by imgproxy's URLs single pictures. A clone keeps nothing that cannot be lost: preferences are
//! profiles of the cluster, what was made can be made again.
//!
//! - `front.rs`: requests and answers. `settings.rs`: what the operator says in `env`.
//! - `fetch/`: the one way to URLs that strangers name, and to declared origins.
//! - `image/`: pictures made small. `marks.rs`: watermarks for them. `works.rs`: how many at a time, and what was made already.
//! - `afterwards.rs`: AVIF, which nobody waits for.
//! - `shelf.rs`: what all clones share; `near.rs`: what stands in for what cannot be had; `hints.rs`: what a browser says of its line.
//! - `imgproxy.rs`: its URLs; `thumbor.rs` and `weserv.rs`: those of others. `pages.rs`: HTML, rewritten while it flows; `link.rs`: its links; `preferences.rs`: what a reader wants;
//!   `sizes.rs`: what was saved.
//! - `proxy.rs`: the same as a person's proxy, for all sites by http.
//! - `apart/`: others' sites by HTTPS, each under a host name of its own.
//! - `thin.rs`: pages as text, Markdown and Gemtext.
//! - `site.rs`: the site of the demo.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod afterwards;
mod apart;
mod fetch;
mod front;
mod hints;
pub mod image;
mod imgproxy;
mod limits;
mod link;
mod marks;
mod near;
mod pages;
mod preferences;
mod proxy;
mod settings;
mod shelf;
mod site;
mod sizes;
mod thin;
mod thumbor;
mod weserv;
mod works;

use std::sync::Arc;

use sdk::axum::Router;
use sdk::{Service, StartError};

use crate::afterwards::Often;
use crate::fetch::Fetch;
use crate::front::{Front, Repairs};
use crate::marks::Marks;
use crate::preferences::{BEFORE, PEOPLE, PROFILE, Readers};
use crate::proxy::Proxy;
use crate::settings::Settings;
use crate::shelf::Shelf;
use crate::sizes::Sizes;
use crate::works::Works;

/// The namespace of class `cache` that the clones share.
const PICTURES: &str = "pictures";

pub async fn serve(service: Service) -> Result<(), StartError> {
    let settings = Settings::from_vars(std::env::vars())?;
    if let Some(base) = &settings.site_at {
        let routes = site::routes(base);
        return service.serve(routes).await;
    }
    let given = service.given();
    // Nodes and clones are nobody's business, be their addresses public or not.
    let own = given.apis.iter().chain([&given.listen]).map(|at| at.ip().to_canonical()).collect();
    let fetch = Fetch::new(settings.origins.clone(), own, &format!("coppice-{}", given.service));
    let works = Works::new();
    let sizes = Sizes::default();
    let (proxy, apart) = (settings.proxy.clone(), settings.apart.is_some());
    if settings.site.is_some() || proxy.is_some() || apart {
        sizes.share(service.group()?);
    }
    let profiles = service.profiles(PROFILE, PEOPLE).ok();
    // Where there are profiles, too, clusters of before may still have some readers there.
    let before = if profiles.is_some() || proxy.is_some() || apart {
        service.linear(BEFORE).ok()
    } else {
        Some(service.linear(BEFORE)?)
    };
    let readers = Readers::new(profiles, before);
    // Without it each clone is for itself.
    let shelf = Shelf::new(service.cache(PICTURES).ok());
    let service = service.shows("pictures", &works.stage);
    let front = Arc::new(Front {
        settings,
        fetch,
        works,
        readers,
        sizes,
        marks: Marks::default(),
        shelf,
        repairs: Repairs::default(),
        often: Often::default(),
    });
    if let Some(allowed) = proxy {
        let proxy = Arc::new(Proxy::new(front, allowed));
        return service.serve_tcp(move |conn| Arc::clone(&proxy).serve(conn)).await;
    }
    service.serve(Router::new().fallback(front::answer).with_state(front)).await
}
