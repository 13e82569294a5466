//! The shop of `examples/cart` as a built-in service: the same paths and answers, on the SDK. It keeps nothing itself: any
//! clone serves any visitor, whom the cookie `sid` names; carts are values of the namespace `carts`, of class `session`.

use std::collections::BTreeMap;

use sdk::axum::extract::{Query, State};
use sdk::axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use sdk::axum::response::{Html, IntoResponse, Response};
use sdk::axum::routing::get;
use sdk::axum::{Json, Router};
use sdk::{Service, Sessions, Stage, StartError};

type Asked = Query<BTreeMap<String, String>>;
type Reply = Result<Response, Response>;
const WRONG: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "POST /add ware=NAME\n");

#[derive(Clone)]
struct Shop {
    carts: Sessions<BTreeMap<String, u64>>,
    /// Name of this clone, like `shop/2`.
    me: String,
}

pub async fn serve(service: Service) -> Result<(), StartError> {
    let shop = Shop { carts: service.sessions("carts")?, me: service.given().clone.clone() };
    let routes = Router::new().route("/add", get(look).post(add)).fallback(get(look).post(WRONG)).with_state(shop);
    service.staged(Stage::new()).serve(routes).await
}

async fn look(State(shop): State<Shop>, uri: Uri, headers: HeaderMap, Query(asked): Asked) -> Reply {
    let (sid, me) = (visitor(&headers, &asked), &shop.me);
    let held = shop.carts.during(&headers).get(&sid).await.map_err(|error| busy(&error.to_string()))?;
    let cart = held.map(|held| held.value).unwrap_or_default();
    if uri.path() == "/cart.json" {
        return Ok(([known(&sid)], Json(serde_json::json!({"cart": cart, "clone": me}))).into_response());
    }
    let plain = |ware: &str| ware.replace('&', "&amp;").replace('<', "&lt;");
    let rows: String = cart.iter().map(|(ware, n)| format!("<li>{}: {n}</li>", plain(ware))).collect();
    let rows = if rows.is_empty() { "<li>nothing yet</li>" } else { &rows };
    let wares = ["apple", "bread", "cheese", "honey", "walnut"];
    let buttons = wares.map(|ware| format!(r#"<button name="ware" value="{ware}">add {ware}</button> "#)).concat();
    let page = format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><title>Shop</title><h1>Shop</h1>
<form method="post" action="/add">{buttons}</form><h2>Your cart</h2><ul>{rows}</ul><p>Served by clone {me}.
Kill it, or any node, and go on: <a href="/?sid={sid}">this cart</a> is the same through every node.</p></html>"#
    );
    Ok(([known(&sid)], Html(page)).into_response())
}

async fn add(State(shop): State<Shop>, headers: HeaderMap, Query(asked): Asked, form: String) -> Response {
    let form = format!("/?{form}").parse().ok().and_then(|form| Asked::try_from_uri(&form).ok()).unwrap_or_default();
    let ware = form.get("ware").filter(|ware| (1..=40).contains(&ware.chars().count()));
    let Some(ware) = ware else { return WRONG.into_response() };
    let sid = visitor(&headers, &asked);
    // Two who add to one cart at the same time lose nothing: if it was written in between, it is read and written anew.
    let add = |cart: &mut BTreeMap<_, _>| *cart.entry(ware.clone()).or_default() += 1;
    match shop.carts.during(&headers).update(&sid, add).await {
        Ok(_) => (StatusCode::SEE_OTHER, [known(&sid), (header::LOCATION, "/".to_owned())]).into_response(),
        Err(error) => busy(&error.to_string()),
    }
}

fn busy(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], format!("{why}\n")).into_response()
}

fn known(sid: &str) -> (HeaderName, String) {
    (header::SET_COOKIE, format!("sid={sid}; Path=/; HttpOnly; SameSite=Lax"))
}

/// Who asks: `sid` of the query or the cookie, else a new one that nobody guesses.
fn visitor(headers: &HeaderMap, asked: &BTreeMap<String, String>) -> String {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let cookie = lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix("sid="));
    let is_plain = |sid: &&str| sid.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    let shown = asked.get("sid").map(String::as_str).or(cookie).filter(|sid| (1..=64).contains(&sid.len()));
    let random = || ring::rand::generate(&ring::rand::SystemRandom::new()).expect("the kernel has random bytes");
    shown.filter(is_plain).map_or_else(|| format!("{:032x}", u128::from_be_bytes(random().expose())), str::to_owned)
}
