//! What a clone's node gives it in its environment. Read once, and every mistake is named with its variable.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::StartError;

/// A clone's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// `HOST`, `PORT`: where to listen.
    pub listen: SocketAddr,
    /// `COPPICE_SERVICE`: `shop`.
    pub service: String,
    /// `COPPICE_CLONE`: `shop/2`.
    pub clone: String,
    /// `COPPICE_NODE`: `n1`.
    pub node: String,
    /// `COPPICE_NODE_APIS`, or `COPPICE_NODE_API` alone: the APIs of the nodes, the own one first.
    pub apis: Vec<SocketAddr>,
    /// `COPPICE_MEMBER`: this life of the clone, `n1.7.3`.
    pub life: Option<String>,
    /// `COPPICE_TOKEN`: what the service's clones show each other's nodes.
    pub(crate) token_of_service: Option<String>,
    /// `COPPICE_DRAIN_MS`: how long the program has after the stop signal.
    pub drain: Option<Duration>,
    /// By the namespace's variable (`CARTS` of `COPPICE_CARTS_URL`): its name and token.
    namespaces: BTreeMap<String, (String, String)>,
}

impl Given {
    pub fn from_env() -> Result<Self, StartError> {
        Self::from_vars(std::env::vars())
    }

    /// Of any variables, for tests and for programs that are no clones.
    ///
    /// ```
    /// let vars = [("PORT", "8080"), ("COPPICE_NODE_API", "http://127.0.0.1:7070")];
    /// let given = sdk::Given::from_vars(vars.map(|(name, value)| (name.into(), value.into()))).unwrap();
    /// assert_eq!(given.listen.to_string(), "127.0.0.1:8080");
    ///
    /// let wrong = sdk::Given::from_vars([("PORT".into(), "http".into())]).unwrap_err();
    /// assert_eq!(wrong.to_string(), "PORT is \"http\", which is not a port: a number from 1 to 65535 is needed");
    /// ```
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, StartError> {
        let vars: BTreeMap<String, String> = vars.into_iter().collect();
        let has = |name: &str| vars.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let wrong = |name: &str, is: &str, needed: &str| StartError(format!("{name} is {is:?}, which is not {needed}"));
        let host: IpAddr = match has("HOST") {
            Some(host) => host.parse().map_err(|_| wrong("HOST", host, "an address: 127.0.0.1 is one"))?,
            None => Ipv4Addr::LOCALHOST.into(),
        };
        let Some(port) = has("PORT") else {
            return Err(StartError("PORT is not set: run this under Coppice, or say where it is to listen".into()));
        };
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| wrong("PORT", &vars["PORT"], "a port: a number from 1 to 65535 is needed"))?;
        let apis = has("COPPICE_NODE_APIS").or(has("COPPICE_NODE_API")).unwrap_or_default();
        let api = |text: &str| {
            let addr = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
            addr.parse().map_err(|_| {
                wrong("COPPICE_NODE_APIS", text, "the address of a node's API: http://127.0.0.1:7070 is one")
            })
        };
        let apis = apis.split(',').map(str::trim).filter(|text| !text.is_empty()).map(api);
        Ok(Self {
            listen: SocketAddr::new(host, port),
            service: has("COPPICE_SERVICE").unwrap_or_default().to_owned(),
            clone: has("COPPICE_CLONE").unwrap_or_default().to_owned(),
            node: has("COPPICE_NODE").unwrap_or_default().to_owned(),
            life: has("COPPICE_MEMBER").map(str::to_owned),
            token_of_service: has("COPPICE_TOKEN").map(str::to_owned),
            apis: apis.collect::<Result<_, _>>()?,
            drain: has("COPPICE_DRAIN_MS").and_then(|ms| ms.parse().ok()).map(Duration::from_millis),
            namespaces: vars.iter().filter_map(|(name, url)| namespace(name, url)).collect(),
        })
    }

    /// The token of a namespace that the service names.
    pub fn token(&self, namespace: &str) -> Result<&str, StartError> {
        let found = self.namespaces.get(&variable(namespace)).filter(|(name, _)| name == namespace);
        found.map(|(_, token)| token.as_str()).ok_or_else(|| {
            let mut known: Vec<&str> = self.namespaces.values().map(|(name, _)| name.as_str()).collect();
            known.sort_unstable();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            StartError(format!(
                "COPPICE_{}_URL is not set, so there is no namespace {namespace:?} (there are: {known}): name it in the \
                 service's `namespaces`",
                variable(namespace)
            ))
        })
    }
}

fn variable(namespace: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    namespace.chars().map(upper).collect()
}

/// `COPPICE_CARTS_URL=redis://carts:TOKEN@host:port`.
fn namespace(variable: &str, url: &str) -> Option<(String, (String, String))> {
    let variable = variable.strip_prefix("COPPICE_")?.strip_suffix("_URL")?;
    let (user, _) = url.strip_prefix("redis://")?.rsplit_once('@')?;
    let (name, token) = user.split_once(':')?;
    Some((variable.to_owned(), (name.to_owned(), token.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(vars: &[(&str, &str)]) -> Result<Given, StartError> {
        let port = ("PORT", "80");
        Given::from_vars([&port].into_iter().chain(vars).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn all_that_a_node_gives_is_read() {
        let given = given(&[
            ("HOST", "127.0.0.2"),
            ("COPPICE_SERVICE", "shop"),
            ("COPPICE_CLONE", "shop/2"),
            ("COPPICE_NODE", "n2"),
            ("COPPICE_DRAIN_MS", "2500"),
            ("COPPICE_NODE_API", "http://127.0.0.2:7070"),
            ("COPPICE_NODE_APIS", "http://127.0.0.2:7070,http://127.0.0.1:7070"),
            ("COPPICE_MY_BOXES_URL", "redis://my-boxes:secret@127.0.0.2:6379"),
        ])
        .unwrap();
        assert_eq!(given.listen.to_string(), "127.0.0.2:80");
        assert_eq!((given.service.as_str(), given.clone.as_str(), given.node.as_str()), ("shop", "shop/2", "n2"));
        assert_eq!(
            given.apis.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            ["127.0.0.2:7070", "127.0.0.1:7070"]
        );
        assert_eq!(given.drain, Some(Duration::from_millis(2500)));
        assert_eq!(given.token("my-boxes"), Ok("secret"));
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        let told = |vars: &[(&str, &str)]| given(vars).unwrap_err().to_string();
        assert!(told(&[("HOST", "here")]).contains("HOST is \"here\""));
        assert!(told(&[("COPPICE_NODE_API", "unix:/x")]).contains("http://127.0.0.1:7070 is one"));
        assert!(Given::from_vars([]).unwrap_err().to_string().contains("PORT is not set"));
        let given = given(&[("COPPICE_A_B_URL", "redis://a-b:t@h:1")]).unwrap();
        // Two names share a variable; the token is of the one that is named in it.
        let why = given.token("a.b").unwrap_err().to_string();
        assert!(why.contains("COPPICE_A_B_URL") && why.contains("there are: a-b"), "{why}");
    }
}
