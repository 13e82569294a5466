//! The page: asks all parts at once, takes what is there in its time, and says what is left out and why. It also takes what visitors
//! do: what they look at, buy and say.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sdk::axum::extract::{Query, State};
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sdk::axum::response::{Html, IntoResponse, Response};
use sdk::axum::routing::{get, post};
use sdk::axum::{Json, Router};
use sdk::{OnBehalf, Service, Services, Soft, SoftError, Stage, StartError};
use serde_json::{Value, json};

use crate::PREFIX;
use crate::parts::{ALL, PETS, Part, STORE};

/// Names of the parts that are left out.
const LEFT_OUT: HeaderName = HeaderName::from_static("petstore-left-out");
/// A cart, and what somebody looked at, are kept so long.
const KEPT: Duration = Duration::from_secs(3600);
/// Pets that somebody looked at last.
const VIEWED: i64 = 5;

type Form = BTreeMap<String, String>;

#[derive(Clone)]
struct Shop {
    services: Services,
    store: Soft,
    me: String,
}

/// One part of a page: its lines and who answered, or why it is left out.
struct Came {
    part: &'static Part,
    took: Duration,
    said: Result<(Vec<String>, String), String>,
}

pub async fn serve(service: Service) -> Result<(), StartError> {
    let (store, me) = (service.soft(STORE)?, service.given().clone.clone());
    let shop = Shop { services: service.services(), store, me };
    let routes = Router::new()
        .route("/", get(page))
        .route("/page.json", get(page_json))
        .route("/buy", post(buy))
        .route("/rate", post(rate))
        .with_state(shop);
    service.staged(Stage::new()).serve(routes).await
}

/// All parts, in the time of the slowest that is waited for.
async fn gather(shop: &Shop, headers: &HeaderMap, who: &str, pet: &str) -> Vec<Came> {
    let behalf = OnBehalf::of(headers);
    join_all(ALL.iter().map(|part| ask(shop, &behalf, part, who, pet))).await
}

async fn ask(shop: &Shop, behalf: &OnBehalf, part: &'static Part, who: &str, pet: &str) -> Came {
    let began = Instant::now();
    let (service, path) = (format!("{PREFIX}{}", part.name), format!("/parts/{}?who={who}&pet={pet}", part.name));
    let said = match shop.services.get(&service, &path, part.within, behalf).await {
        Ok(reply) if reply.status == StatusCode::OK => lines(&reply.body).ok_or("it said what is no part".to_owned()),
        Ok(reply) => Err(format!("it answered {}", reply.status)),
        Err(error) => Err(error.to_string()),
    };
    Came { part, took: began.elapsed(), said }
}

fn lines(body: &[u8]) -> Option<(Vec<String>, String)> {
    let said: Value = serde_json::from_slice(body).ok()?;
    let line = |line: &Value| line.as_str().map(str::to_owned);
    Some((said["lines"].as_array()?.iter().map(line).collect::<Option<_>>()?, said["clone"].as_str()?.to_owned()))
}

async fn page_json(State(shop): State<Shop>, headers: HeaderMap, Query(asked): Query<Form>) -> Response {
    let began = Instant::now();
    let (who, pet) = (visitor(&headers, &asked), known_pet(&asked));
    let came = gather(&shop, &headers, &who, pet.unwrap_or_default()).await;
    let (mut parts, mut left_out) = (serde_json::Map::new(), serde_json::Map::new());
    for Came { part, took, said } in &came {
        let took_ms = took.as_millis() as u64;
        match said {
            Ok((lines, clone)) => {
                parts.insert(part.name.into(), json!({"lines": lines, "clone": clone, "took_ms": took_ms}));
            }
            Err(why) => drop(left_out.insert(part.name.into(), why.as_str().into())),
        }
    }
    let took_ms = began.elapsed().as_millis() as u64;
    let all = json!({"clone": shop.me, "took_ms": took_ms, "parts": parts, "left_out": left_out});
    ([known(&who), missing(&came)], Json(all)).into_response()
}

async fn page(State(shop): State<Shop>, headers: HeaderMap, Query(asked): Query<Form>) -> Response {
    let began = Instant::now();
    let (who, pet) = (visitor(&headers, &asked), known_pet(&asked));
    let came = gather(&shop, &headers, &who, pet.unwrap_or_default()).await;
    let (store, key) = (shop.store.clone(), format!("viewed:{who}"));
    // Nobody waits for it, and no page fails over it.
    sdk::tokio::spawn(async move { looked(&store, &key, pet).await });
    let there = came.iter().filter(|came| came.said.is_ok()).count();
    let sections: String = came.iter().map(section).collect();
    let pets: String = PETS.iter().map(|(pet, ..)| form(pet)).collect();
    let (me, took) = (&shop.me, began.elapsed().as_millis());
    let page = format!(
        r#"<!doctype html><html lang="en"><meta charset="utf-8"><title>Pet store</title>
<style>body{{font:1rem system-ui;margin:2rem;display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr))}}
h1,footer,nav{{grid-column:1/-1}}section{{border:1px solid #8888;border-radius:.5rem;padding:0 1rem}}.out{{border-style:dashed}}</style>
<h1>Pet store</h1><nav>{pets}</nav>{sections}<footer><p>{there} of {all} parts are here, after {took} ms, put together by clone {me}.
Kill a clone or a node, or make a part late (<code>SET slow:advice 1000</code> in the namespace <code>store</code>): the page goes on without it.</p>
</footer></html>"#,
        all = ALL.len()
    );
    ([known(&who), missing(&came)], Html(page)).into_response()
}

fn section(came: &Came) -> String {
    let Came { part: Part { name, title, .. }, said, .. } = came;
    match said {
        Ok((lines, clone)) => {
            let rows: String = lines.iter().map(|line| format!("<li>{}</li>", plain(line))).collect();
            let rows = if rows.is_empty() { "<li>nothing yet</li>" } else { &rows };
            let clone = plain(clone);
            format!(r#"<section id="{name}" title="{clone}"><h2>{title}</h2><ul>{rows}</ul></section>"#)
        }
        Err(why) => {
            let why = plain(why);
            format!(r#"<section id="{name}" class="out"><h2>{title}</h2><p>left out: {why}</p></section>"#)
        }
    }
}

fn form(pet: &str) -> String {
    format!(
        r#"<form method="post" action="/buy"><input type="hidden" name="pet" value="{pet}"><a href="/?pet={pet}">{pet}</a> <button>buy</button>
<button formaction="/rate" name="stars" value="5">good</button> <button formaction="/rate" name="stars" value="1">bad</button></form>"#
    )
}

fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

async fn looked(store: &Soft, key: &str, pet: Option<&'static str>) -> Result<(), SoftError> {
    store.add("visits", 1).await?;
    let Some(pet) = pet else { return Ok(()) };
    store.push_left(key, pet).await?;
    store.trim(key, 0, VIEWED - 1).await?;
    store.expire(key, KEPT).await.map(drop)
}

async fn buy(State(shop): State<Shop>, headers: HeaderMap, Query(asked): Query<Form>, form: String) -> Response {
    let (who, form) = (visitor(&headers, &asked), fields(&form));
    let Some(pet) = known_pet(&form) else { return wrong("POST /buy pet=NAME") };
    let (store, cart) = (shop.store.during(&headers), format!("cart:{who}"));
    let bought = async {
        store.add_to_field(&cart, pet, 1).await?;
        store.add(&format!("sold:{pet}"), 1).await?;
        store.expire(&cart, KEPT).await
    };
    done(bought.await, &who, pet)
}

async fn rate(State(shop): State<Shop>, headers: HeaderMap, Query(asked): Query<Form>, form: String) -> Response {
    let (who, form) = (visitor(&headers, &asked), fields(&form));
    let stars = form.get("stars").and_then(|stars| stars.parse::<i64>().ok()).filter(|stars| (1..=5).contains(stars));
    let (Some(pet), Some(stars)) = (known_pet(&form), stars) else { return wrong("POST /rate pet=NAME&stars=1..5") };
    let (store, key) = (shop.store.during(&headers), format!("rated:{pet}"));
    let rated = async {
        store.add_to_field(&key, "stars", stars).await?;
        store.add_to_field(&key, "count", 1).await
    };
    done(rated.await, &who, pet)
}

fn done<T>(outcome: Result<T, SoftError>, who: &str, pet: &str) -> Response {
    match outcome {
        Ok(_) => {
            (StatusCode::SEE_OTHER, [known(who), (header::LOCATION, value(&format!("/?pet={pet}")))]).into_response()
        }
        Err(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], format!("{error}\n")).into_response()
        }
    }
}

fn wrong(right: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{right}\n")).into_response()
}

fn fields(form: &str) -> Form {
    let form = format!("/?{form}").parse().ok().and_then(|form| Query::<Form>::try_from_uri(&form).ok());
    form.map(|Query(form)| form).unwrap_or_default()
}

fn known_pet(form: &Form) -> Option<&'static str> {
    let asked = form.get("pet")?;
    PETS.iter().map(|(pet, ..)| *pet).find(|pet| pet == asked)
}

fn known(who: &str) -> (HeaderName, HeaderValue) {
    (header::SET_COOKIE, value(&format!("who={who}; Path=/; HttpOnly; SameSite=Lax")))
}

fn missing(came: &[Came]) -> (HeaderName, HeaderValue) {
    let names: Vec<&str> = came.iter().filter(|came| came.said.is_err()).map(|came| came.part.name).collect();
    (LEFT_OUT, value(&names.join(", ")))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("names are plain text")
}

/// Who asks: `who` of the query or the cookie, else a new one that nobody guesses.
fn visitor(headers: &HeaderMap, asked: &Form) -> String {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let cookie = lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix("who="));
    let is_plain = |who: &&str| (1..=64).contains(&who.len()) && who.bytes().all(|b| b.is_ascii_alphanumeric());
    let shown = asked.get("who").map(String::as_str).or(cookie).filter(is_plain);
    let random = || ring::rand::generate(&ring::rand::SystemRandom::new()).expect("the kernel has random bytes");
    shown.map_or_else(|| format!("{:032x}", u128::from_be_bytes(random().expose())), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_said_and_what_is_no_part_is_none() {
        let part = &ALL[6];
        let late = Came { part, took: part.within, said: Err("not there within <150> ms".into()) };
        let out = section(&late);
        assert!(out.contains("class=\"out\"") && out.contains("left out: not there within &lt;150> ms"), "{out}");
        assert_eq!(missing(&[late]).1, "advice");
        let there = lines(br#"{"lines": ["rex & tom"], "clone": "petstore-advice/0"}"#).unwrap();
        let shown = section(&Came { part, took: part.within, said: Ok(there) });
        assert!(shown.contains("<li>rex &amp; tom</li>"), "{shown}");
        for bad in [&b"no"[..], b"{}", b"{\"lines\": [1], \"clone\": \"x\"}", b"{\"lines\": []}"] {
            assert!(lines(bad).is_none());
        }
    }

    #[test]
    fn forms_name_pets_that_there_are() {
        assert_eq!(known_pet(&fields("pet=rex&x=1")), Some("rex"));
        assert!(["", "pet=", "pet=<b>", "pat=rex"].iter().all(|form| known_pet(&fields(form)).is_none()));
    }
}
