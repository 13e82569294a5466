//! The seven parts: each reads its own copy of the store, asks nobody, and answers with lines of text. A part can be made late for a
//! look at what the page does then: the key `slow:NAME` of the store has milliseconds, by part or by clone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sdk::axum::extract::{Query, State};
use sdk::axum::routing::get;
use sdk::axum::{Json, Router};
use sdk::tokio::time::sleep;
use sdk::{Replica, Service, Stage, StartError};
use serde_json::{Value, json};

/// The namespace of all that is known.
pub const STORE: &str = "store";
/// Kind and price of each.
pub const PETS: [(&str, &str, u32); 5] = [
    ("rex", "a dog", 120),
    ("tom", "a cat", 80),
    ("bugs", "a rabbit", 25),
    ("jack", "a parrot", 60),
    ("nemo", "a fish", 9),
];
/// Of each pet there are so many at first.
const STOCK: i64 = 10;
/// Nobody waits for longer than a minute, whatever `slow:NAME` has.
const SLOW_MAX: u64 = 60_000;

pub struct Part {
    pub name: &'static str,
    pub title: &'static str,
    /// The page waits for it so long.
    pub within: Duration,
    lines: fn(&Replica, &Asked) -> Vec<String>,
}

/// Who looks, at which pet.
#[derive(Default)]
struct Asked {
    who: String,
    pet: String,
}

/// In the order of the page.
pub static ALL: [Part; 7] = [
    part("pets", "Pets", 500, |_, _| PETS.iter().map(|(pet, kind, price)| format!("{pet}, {kind}: {price}")).collect()),
    part("stock", "In stock", 300, |store, _| {
        PETS.iter().map(|(pet, ..)| format!("{pet}: {}", (STOCK - sold(store, pet)).max(0))).collect()
    }),
    part("cart", "Your cart", 300, |store, asked| {
        let all = store.fields(&format!("cart:{}", asked.who));
        all.iter().map(|(pet, count)| format!("{}: {}", text(pet), text(count))).collect()
    }),
    part("viewed", "What you looked at", 200, |store, asked| {
        store.items(&format!("viewed:{}", asked.who)).iter().take(5).map(|pet| text(pet)).collect()
    }),
    part("rating", "What others say", 200, |store, _| {
        let rated = |pet: &str| -> Option<String> {
            let number = |field| text(&store.field(&format!("rated:{pet}"), field)?).parse::<f64>().ok();
            let (stars, count) = (number("stars")?, number("count").filter(|count| *count > 0.0)?);
            Some(format!("{pet}: {:.1} of 5 ({count})", stars / count))
        };
        PETS.iter().filter_map(|(pet, ..)| rated(pet)).collect()
    }),
    part("visits", "Visits", 200, |store, _| vec![format!("{} so far", store.number("visits").unwrap_or(0))]),
    part("advice", "You may like", 150, |store, asked| {
        let others = PETS.iter().map(|(pet, ..)| *pet).filter(|pet| *pet != asked.pet);
        let best = others.max_by_key(|pet| sold(store, pet)).unwrap_or_default();
        vec![if asked.pet.is_empty() { best.to_owned() } else { format!("{best} gets on well with {}", asked.pet) }]
    }),
];

const fn part(
    name: &'static str,
    title: &'static str,
    within_ms: u64,
    lines: fn(&Replica, &Asked) -> Vec<String>,
) -> Part {
    Part { name, title, within: Duration::from_millis(within_ms), lines }
}

fn sold(store: &Replica, pet: &str) -> i64 {
    store.number(&format!("sold:{pet}")).unwrap_or(0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Serving {
    part: &'static Part,
    store: Replica,
    /// Name of this clone, like `petstore-stock/0`.
    me: String,
}

pub async fn serve(service: Service, part: &'static Part) -> Result<(), StartError> {
    let store = service.soft(STORE)?.replica().await;
    let me = service.given().clone.clone();
    let serving = Arc::new(Serving { part, store, me });
    let routes = Router::new().route(&format!("/parts/{}", part.name), get(answer)).with_state(serving);
    service.staged(Stage::new()).serve(routes).await
}

async fn answer(State(serving): State<Arc<Serving>>, Query(mut asked): Query<BTreeMap<String, String>>) -> Json<Value> {
    let Serving { part, store, me } = &*serving;
    let slow = [part.name, me].map(|name| store.number(&format!("slow:{name}")).unwrap_or(0));
    let slow = slow.into_iter().max().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    if slow > 0 {
        sleep(Duration::from_millis(slow.min(SLOW_MAX))).await;
    }
    let mut take = |name| asked.remove(name).unwrap_or_default();
    let asked = Asked { who: take("who"), pet: take("pet") };
    Json(json!({"clone": me, "lines": (part.lines)(store, &asked)}))
}
