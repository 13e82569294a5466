//! Notes on boards, in Rust on the SDK. A note that was accepted is in a `linear` namespace: it is lost only with a majority
//! of disks. What somebody is still writing is in a session that the browser's cookie finds: cheap, and kept for an hour.
//!
//!     POST /boards/NAME   a note                GET /boards/NAME   all of them
//!     PUT  /draft         what one is writing   GET /draft         the same, from any clone

use sdk::axum::extract::{Path, State};
use sdk::axum::http::{HeaderMap, StatusCode, header};
use sdk::axum::response::{IntoResponse, Response};
use sdk::axum::routing::get;
use sdk::axum::{Json, Router};
use sdk::{Linear, LinearError, ReadError, Service, Sessions, StartError, When, WriteError};
use serde::{Deserialize, Serialize};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Board {
    notes: Vec<String>,
}

#[derive(Clone)]
struct App {
    boards: Linear<Board>,
    drafts: Sessions<String>,
}

#[tokio::main]
async fn main() -> Result<(), StartError> {
    let service = Service::from_env()?;
    let app = App { boards: service.linear("boards")?, drafts: service.sessions("drafts")? };
    let routes = Router::new()
        .route("/boards/{name}", get(board).post(note))
        .route("/draft", get(draft).put(keep_draft))
        .with_state(app);
    service.serve(routes).await
}

async fn board(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Board>, Response> {
    let stored = app.boards.get(&name).await.map_err(|error| of_linear(&error))?;
    Ok(Json(stored.map(|stored| stored.value).unwrap_or_default()))
}

/// A note that is there already is not added twice: who got "unknown" may just send it again.
async fn note(State(app): State<App>, Path(name): Path<String>, text: String) -> Result<Json<Board>, Response> {
    let add = |board: &mut Board| {
        if !board.notes.contains(&text) {
            board.notes.push(text.clone());
        }
    };
    let (board, ()) = app.boards.update(&name, add).await.map_err(|error| of_linear(&error))?;
    Ok(Json(board))
}

async fn draft(State(app): State<App>, headers: HeaderMap) -> Result<String, Response> {
    let Some(cookie) = app.drafts.cookie_of(&headers) else { return Ok(String::new()) };
    match app.drafts.open(&cookie).await {
        Ok(held) => Ok(held.map(|held| held.value).unwrap_or_default()),
        // A new visitor, as far as we know.
        Err(ReadError::Cookie(_) | ReadError::Lost) => Ok(String::new()),
        Err(ReadError::Refused(refused)) => Err(busy(&refused.to_string())),
    }
}

async fn keep_draft(State(app): State<App>, headers: HeaderMap, text: String) -> Result<impl IntoResponse, Response> {
    let sealed = match app.drafts.cookie_of(&headers) {
        None => app.drafts.begin(&text).await,
        Some(cookie) => match app.drafts.save(&cookie, &text, When::Always).await {
            Err(WriteError::Cookie(_)) => app.drafts.begin(&text).await,
            sealed => sealed,
        },
    };
    let sealed = sealed.map_err(|error| busy(&error.to_string()))?;
    Ok([(header::SET_COOKIE, app.drafts.set_cookie(&sealed.cookie))])
}

fn of_linear(error: &LinearError) -> Response {
    busy(&error.to_string())
}

/// The client may try again: nothing happened, or what happened may happen twice.
fn busy(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], format!("{why}\n")).into_response()
}
