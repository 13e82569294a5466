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
use sdk::{
    Args, Function, FunctionError, Linear, LinearError, ReadError, Service, Sessions, Stage, StartError, When,
    WriteError,
};
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
    service.staged(Stage::new()).function("pin", pin).serve(routes).await
}

/// A note that is there already is not added twice: who got "unknown" may just send it again. However many pin to one board at a
/// time, none of them has to try again.
fn pin(board: Option<Board>, args: &Args) -> Result<(Option<Board>, Board), FunctionError> {
    let (mut board, text) = (board.unwrap_or_default(), args.get(0)?);
    if !board.notes.contains(&text) {
        board.notes.push(text);
    }
    Ok((Some(board.clone()), board))
}

async fn board(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Board>, Response> {
    let stored = app.boards.get(&name).await.map_err(|error| of_linear(&error))?;
    Ok(Json(stored.map(|stored| stored.value).unwrap_or_default()))
}

async fn note(State(app): State<App>, Path(name): Path<String>, text: String) -> Response {
    match app.boards.apply(&name, Function::new("pin").arg(text)).await {
        Ok(board) => Json(board).into_response(),
        Err(error) => of_linear(&error),
    }
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
