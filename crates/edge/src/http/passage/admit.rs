//! The fourth step: a request is let in, made to wait a moment, or refused by its partition's drop handler. Also what
//! programs are told of it: how much it matters and how much is under way. How long its client will wait is told when
//! it is sent (`errand`).

use std::path::Path;
use std::time::Instant;

use clones::partition::DropHandler;
use flow::stage::End;
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::{Client, Edge};
use crate::fields::{AnyFields as _, Fields};
use crate::http::drop_files::content_type;
use crate::http::passed::{Deadline, PRIORITY, TICKET};
use crate::http::refusal::{Dropped, Refusal};
use crate::table::Place;
use crate::turnstile::{Full, Permit};

pub const PRESSURE: HeaderName = HeaderName::from_static("coppice-pressure");

const TENTHS: [&str; 11] = ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"];
const CLASSES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Lets a request in that is not for what is out of use, with the place that it goes to: its own, or that of the
/// service that answers for its own.
///
/// # Errors
/// It is refused. It did not happen.
pub async fn admit(
    edge: &Edge,
    client: &Client,
    place: Place,
    class: u8,
    deadline: Deadline,
) -> Result<(Place, Permit), Refusal> {
    if !place.is_off()
        && let Ok(permit) = enter(client, &place, class, deadline).await
    {
        return Ok((place, permit));
    }
    // In a box, as are all ways that few requests take: each request has the room that the largest of them may need.
    Box::pin(elsewhere(edge, client, place, class, deadline)).await
}

async fn enter(client: &Client, place: &Place, class: u8, deadline: Deadline) -> Result<Permit, Full> {
    let turnstile = &place.doorway.turnstile;
    match turnstile.enter_now(class, client.peer.share) {
        Ok(permit) => Ok(permit),
        Err(waiter) => turnstile.enter_later(waiter, deadline.left(), &client.flags.patience).await,
    }
}

/// What becomes of a request for which there is no room at its own place.
async fn elsewhere(
    edge: &Edge,
    client: &Client,
    place: Place,
    class: u8,
    deadline: Deadline,
) -> Result<(Place, Permit), Refusal> {
    let is_off = place.is_off();
    place.doorway.part.refused();
    if deadline.left_ms().is_none() {
        return Err(Refusal::Late);
    }
    if !is_off {
        place.doorway.count.refuse();
    }
    let refusal = if is_off { Refusal::Off } else { Refusal::Dropped };
    let Some(drop) = &place.doorway.drop else { return Err(refusal(Dropped::default())) };
    if let Some(other) = &drop.service {
        let other = edge.pool.table().service(other).ok_or_else(|| refusal(Dropped::default()))?;
        // One hop only: if that one has no room either, the plain refusal tells.
        if other.is_off() {
            return Err(Refusal::Off(Dropped::default()));
        }
        return match enter(client, &other, class, deadline).await {
            Ok(permit) => Ok((other, permit)),
            Err(Full) => Err(Refusal::Dropped(Dropped::default())),
        };
    }
    Err(refusal(dropped(edge, drop).await))
}

async fn dropped(edge: &Edge, drop: &DropHandler) -> Dropped {
    let status = drop.status.and_then(|status| StatusCode::from_u16(status).ok());
    let mut dropped = Dropped { status: status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE), page: None };
    if let Some(file) = &drop.file {
        let path = edge.config.files_dir.join(file);
        dropped.page = edge.files.get(&path).await.map(|bytes| (content_type(Path::new(file)), bytes));
    }
    dropped
}

/// Tells the program, about now. What clients say under these names is overwritten.
pub fn tell(edge: &Edge, fields: &mut Fields, class: u8, place: &Place, now: Instant) {
    fields.set(PRIORITY, HeaderValue::from_static(CLASSES[usize::from(class).min(CLASSES.len() - 1)]));
    fields.set(PRESSURE, HeaderValue::from_static(TENTHS[place.doorway.turnstile.pressure()]));
    if let Some(ticket) = edge.tickets.of(class, edge.pool.table().secret(), place.doorway.answer_time(), now) {
        fields.set(TICKET, ticket);
    }
}

/// What an answer's head says of its clone's load: a clone may say by itself that it has too much to do.
pub fn end_of<T>(answer: &mut Response<T>) -> End {
    let pressure = answer.headers_mut().remove(PRESSURE);
    let says = pressure.as_ref().and_then(|value| value.to_str().ok()?.trim().parse::<f32>().ok());
    // Not 429: that is what one client hears who asks too much.
    let is_full = answer.status() == StatusCode::SERVICE_UNAVAILABLE;
    if is_full || says.is_some_and(|pressure| pressure >= 1.0) { End::Overload } else { End::Done }
}
