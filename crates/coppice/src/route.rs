//! `coppice route explain`: which service, partition and clone a request would go to, and why not the ones before.

use std::net::IpAddr;

use serde::Deserialize;

use crate::operate::NodeArgs;
use crate::plain::{said, say};

#[derive(clap::Subcommand)]
pub enum RouteCommand {
    /// Which service, partition and clone takes a request, and why each one before does not
    #[command(
        after_help = "Examples:\n  coppice route explain http://shop.example/cart\n  coppice route explain http://shop.example/pay --method POST --header 'Cookie: sid=7' --json\n  coppice route explain tcp://mail.example:25"
    )]
    Explain(ExplainArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The address that a client asks for; of a TCP service tcp://HOST:PORT
    #[arg(value_name = "URL")]
    pub url: String,
    /// Its method
    #[arg(short = 'X', long, default_value = "GET")]
    pub method: String,
    /// One of its header fields, 'Name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = field)]
    pub header: Vec<(String, String)>,
    /// The client's address
    #[arg(long, default_value = "127.0.0.1")]
    pub client: IpAddr,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The node's answer (`edge/src/api/explain.rs`).
#[derive(Deserialize)]
struct Explained {
    service: Option<String>,
    partition: Option<String>,
    affinity: String,
    priority: u8,
    #[serde(default)]
    in_session: Option<InSession>,
    #[serde(default)]
    drop: Option<String>,
    clones: Vec<String>,
    target: Option<String>,
    why: String,
    #[serde(default)]
    refused: Option<u16>,
    before: Vec<Before>,
}

#[derive(Deserialize)]
struct InSession {
    cookie: String,
    priority: u8,
}

#[derive(Deserialize)]
struct Before {
    service: String,
    partition: Option<String>,
    why_not: String,
}

pub async fn explain(args: ExplainArgs) -> Result<(), String> {
    let url = if args.url.contains("://") { args.url.clone() } else { format!("http://{}", args.url) };
    let wish = serde_json::json!({"url": url, "method": args.method, "headers": args.header, "client": args.client});
    let reply = args.node.reader()?.post("/v1/route/explain", "", wish.to_string()).await?;
    if args.json {
        say!("{}", reply.json()?);
        return Ok(());
    }
    let explained: Explained =
        serde_json::from_value(reply.json()?).map_err(|e| format!("the node's answer is of another version: {e}"))?;
    said(&page(&args.method, &url, &explained));
    Ok(())
}

fn page(method: &str, url: &str, explained: &Explained) -> String {
    let part = |service: &str, partition: &Option<String>| match partition {
        Some(partition) => format!("{service}, partition {partition}"),
        None => format!("{service}, its rest"),
    };
    let is_tcp = url.starts_with("tcp://");
    let mut text = if is_tcp { format!("{url}\n") } else { format!("{method} {url}\n") };
    for before in &explained.before {
        text += &format!("  not {}: {}\n", part(&before.service, &before.partition), before.why_not);
    }
    if let Some(status) = explained.refused {
        return text + &format!("  is refused with {status}: {}\n", explained.why);
    }
    let Some(service) = &explained.service else {
        return text
            + if is_tcp { "  no service has this port for this host\n" } else { "  no service takes it: 404\n" };
    };
    text += &format!("  goes to {}\n", part(service, &explained.partition));
    let clones = if explained.clones.is_empty() { "none".to_owned() } else { explained.clones.join(", ") };
    let raised = explained.in_session.as_ref().map_or_else(String::new, |in_session| {
        format!(" ({} if its cookie {:?} opens a session)", in_session.priority, in_session.cookie)
    });
    text += &format!("  affinity {}, priority {}{raised}, clones {clones}\n", explained.affinity, explained.priority);
    let without = if is_tcp { "the connection is closed" } else { "status 503 with Retry-After" };
    text += &format!("  without room for it: {}\n", explained.drop.as_deref().unwrap_or(without));
    match &explained.target {
        Some(target) => text + &format!("  clone {target}: {}\n", explained.why),
        None => text + &format!("  clone: {}\n", explained.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_the_order_in_which_it_was_found() {
        let before =
            Before { service: "shop".into(), partition: Some("pay".into()), why_not: "method is not POST".into() };
        let mut explained = Explained {
            service: Some("shop".into()),
            partition: None,
            affinity: "none".into(),
            priority: 5,
            in_session: None,
            drop: Some("status 429".into()),
            clones: vec!["shop/0".into()],
            target: None,
            why: "the less loaded of two".into(),
            refused: None,
            before: vec![before],
        };
        let told = page("GET", "http://x/", &explained);
        assert_eq!(
            told,
            "GET http://x/\n  not shop, partition pay: method is not POST\n  goes to shop, its rest\n  affinity none, \
             priority 5, clones shop/0\n  without room for it: status 429\n  clone: the less loaded of two\n"
        );
        explained.in_session = Some(InSession { cookie: "sid".into(), priority: 7 });
        explained.drop = None;
        let told = page("GET", "http://x/", &explained);
        assert!(told.contains("priority 5 (7 if its cookie \"sid\" opens a session), clones shop/0\n"), "{told}");
        assert!(told.contains("without room for it: status 503"), "{told}");
        explained.service = None;
        assert!(page("GET", "http://x/", &explained).ends_with("404\n"));
        explained.refused = Some(400);
        assert!(page("GET", "http://x/", &explained).ends_with("is refused with 400: the less loaded of two\n"));
        assert_eq!(field("a: b:c"), Ok(("a".into(), "b:c".into())));
    }
}
