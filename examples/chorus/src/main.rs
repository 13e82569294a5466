//! Clones that know each other. Each waits at a barrier until all voices are there, hears what any of them says, and shows who
//! leads. Kill one: the others see its death, and a barrier that waited for it is passed.
//!
//!     GET /        who I am, who is here, who leads, what I heard        POST /say   a word to all
//!     POST /meet/N waits until all have reached phase N of a barrier

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdk::axum::extract::{Path, State};
use sdk::axum::http::StatusCode;
use sdk::axum::routing::{get, post};
use sdk::axum::{Json, Router};
use sdk::{Group, Heard, Outcome, Service, StartError};

/// Words that a clone remembers.
const WORDS_MAX: usize = 100;

#[derive(Clone)]
struct Voice {
    group: Group,
    words: Arc<Mutex<VecDeque<String>>>,
}

impl Voice {
    fn hear(&self, word: String) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.truncate(WORDS_MAX - 1);
        words.push_front(word);
    }
}

#[tokio::main]
async fn main() -> Result<(), StartError> {
    let service = Service::from_env()?;
    let voice = Voice { group: service.group()?, words: Arc::default() };
    let voices = std::env::var("VOICES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    tokio::spawn(listen(voice.clone()));
    tokio::spawn(begin(voice.clone(), voices));
    let routes = Router::new()
        .route("/", get(show))
        .route("/say", post(say))
        .route("/meet/{phase}", post(meet))
        .with_state(voice);
    service.serve(routes).await
}

async fn listen(voice: Voice) {
    let mut messages = voice.group.messages();
    loop {
        match messages.next().await {
            Heard::Message { from, body } => voice.hear(format!("{from}: {}", String::from_utf8_lossy(&body))),
            Heard::Missed => voice.hear("(some words were missed)".into()),
        }
    }
}

/// Remembers when all voices had come.
async fn begin(voice: Voice, voices: u32) {
    while !matches!(voice.group.barrier("begin", 1, voices, Duration::from_secs(60)).await, Ok(met) if met.passed) {}
    voice.hear("(all are here)".into());
}

async fn show(State(voice): State<Voice>) -> Result<Json<serde_json::Value>, (StatusCode, String)> {
    let now = voice.group.members().await.map_err(|refused| (StatusCode::SERVICE_UNAVAILABLE, refused.to_string()))?;
    let words = voice.words.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let lives: Vec<&str> = now.members.iter().map(|member| member.life.as_str()).collect();
    Ok(Json(serde_json::json!({"me": voice.group.life(), "leader": now.leader, "members": lives, "words": words})))
}

async fn say(State(voice): State<Voice>, word: String) -> (StatusCode, String) {
    match voice.group.broadcast(word).await {
        Outcome::Done(nodes) => (StatusCode::OK, format!("{nodes}\n")),
        Outcome::Refused(refused) => (StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")),
        Outcome::Unknown(unknown) => (StatusCode::GATEWAY_TIMEOUT, format!("{unknown}\n")),
    }
}

async fn meet(State(voice): State<Voice>, Path(phase): Path<u64>) -> (StatusCode, String) {
    match voice.group.barrier("meet", phase, 0, Duration::from_secs(30)).await {
        Ok(met) if met.passed => (StatusCode::OK, format!("{}\n", met.reached)),
        Ok(met) => (StatusCode::ACCEPTED, format!("waiting for {}\n", met.missing.join(", "))),
        Err(refused) => (StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")),
    }
}
