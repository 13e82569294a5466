//! Routes: which clones serve what the outside asks for. Built by the node from beacons, so possibly a moment old, and
//! replaced whole; the edges only read them. How a clone is chosen and reached is the edges' matter.

use std::net::SocketAddr;
use std::sync::Arc;

use base::NodeId;

use crate::session::SessionCookie;
use crate::spec::HttpRoute;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Routes {
    pub services: Vec<RouteService>,
}

/// A declared service and where it is reached. Without a serving clone it is listed with no clones: an edge may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteService {
    pub name: String,
    pub http: Option<HttpRoute>,
    /// Every edge listens on this port for it.
    pub tcp: Option<u16>,
    /// The edge keeps its users' sessions.
    pub session: Option<Arc<RouteSession>>,
    /// Those that serve; starting, draining and dead ones are not here.
    pub clones: Vec<RouteClone>,
}

/// What an edge must know to keep a service's sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteSession {
    pub spec: SessionCookie,
    /// The cookie's path.
    pub path: String,
    /// How long a session lives after its last request, milliseconds.
    pub lease_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteClone {
    /// `shop/2`.
    pub name: String,
    pub node: NodeId,
    /// It runs on the node that reads this.
    pub local: bool,
    /// Where it listens, on its own node.
    pub addr: SocketAddr,
    /// Its node's peer address, for a tunnel.
    pub peer: SocketAddr,
    /// Its node's load, 0 (idle) to 1000 (full).
    pub node_load: u16,
}

impl Routes {
    /// The service for a `Host` (a port and letter case do not matter) and a path (a query does not matter). An exact
    /// host goes before `*`, then the longest path prefix; prefixes end at segment borders: `/api` is not for `/apiary`.
    pub fn find(&self, host: &str, path: &str) -> Option<&RouteService> {
        let host = bare_host(host);
        let path = path.split(['?', '#']).next().unwrap_or("");
        let mut best: Option<(&RouteService, (bool, usize))> = None;
        for service in &self.services {
            let Some(http) = &service.http else { continue };
            let exact = http.host != "*";
            if exact && !bare_host(&http.host).eq_ignore_ascii_case(host) {
                continue;
            }
            let Some(length) = prefix_length(&http.path, path) else { continue };
            if best.is_none_or(|(_, rank)| (exact, length) > rank) {
                best = Some((service, (exact, length)));
            }
        }
        best.map(|(service, _)| service)
    }

    /// The service that listens on this TCP port.
    pub fn find_tcp(&self, port: u16) -> Option<&RouteService> {
        self.services.iter().find(|service| service.tcp == Some(port))
    }
}

/// A host without its port and without the dot that ends a full name.
pub(crate) fn bare_host(host: &str) -> &str {
    let name = if host.starts_with('[') {
        host.find(']').map_or(host, |end| &host[..=end])
    } else {
        host.split_once(':').map_or(host, |(name, _)| name)
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// How much of `path` the prefix covers, if it covers it up to a segment border.
fn prefix_length(prefix: &str, path: &str) -> Option<usize> {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/') || prefix.is_empty()).then_some(prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(of: &[(&str, &str, &str)]) -> Routes {
        let service = |&(name, host, path): &(&str, &str, &str)| RouteService {
            name: name.into(),
            http: Some(HttpRoute { host: host.into(), path: path.into() }),
            tcp: None,
            session: None,
            clones: Vec::new(),
        };
        Routes { services: of.iter().map(service).collect() }
    }

    #[test]
    fn exact_host_then_longest_prefix_at_a_segment_border() {
        let all = [
            ("any", "*", "/"),
            ("api", "*", "/api"),
            ("deep", "*", "/api/v1/"),
            ("shop", "shop.example", "/"),
            ("six", "[::1]", "/"),
        ];
        let mut turned = all;
        turned.reverse();
        for routes in [routes(&all), routes(&turned)] {
            for (host, path, expect) in [
                ("x", "/", "any"),
                ("x", "", "any"),
                ("x", "*", "any"),
                ("x", "/apiary", "any"),
                ("x", "/api", "api"),
                ("x", "/api?q=/api/v1/", "api"),
                ("x", "/api/", "api"),
                ("x", "/api/v1", "deep"),
                ("x", "/api/v1/x", "deep"),
                ("x", "/api/v10", "api"),
                ("shop.example", "/api", "shop"),
                ("SHOP.example.:8080", "/", "shop"),
                ("notshop.example", "/", "any"),
                ("[::1]:8080", "/", "six"),
                ("[::2]:8080", "/", "any"),
            ] {
                let found = routes.find(host, path).map(|s| s.name.as_str());
                assert_eq!(found, Some(expect), "{host:?} {path:?}");
            }
        }
    }

    #[test]
    fn what_nobody_declared_is_not_found() {
        let routes = routes(&[("shop", "shop.example", "/cart")]);
        for (host, path) in [("x", "/cart"), ("shop.example", "/"), ("shop.example", "/carts"), ("", "")] {
            assert_eq!(routes.find(host, path), None, "{host:?} {path:?}");
        }
        assert_eq!(routes.find_tcp(25), None);
        assert_eq!(Routes::default().find("x", "/"), None);
    }

    #[test]
    fn a_tcp_service_is_found_by_its_port() {
        let mail = RouteService { name: "mail".into(), http: None, tcp: Some(25), session: None, clones: Vec::new() };
        let routes = Routes { services: vec![mail.clone()] };
        assert_eq!(routes.find_tcp(25), Some(&mail));
        assert_eq!(routes.find("x", "/"), None, "a service without an HTTP route is not reached by HTTP");
    }
}
