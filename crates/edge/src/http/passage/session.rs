//! The fifth step and the eighth: the session of a request is opened at the place where it goes, and what its answer
//! says of it is stored before that leaves. What sessions are to the edge: `http/session.rs`.

use std::sync::Arc;

use clones::RouteSession;
use http::HeaderMap;

use super::{Client, Edge, Passage};
use crate::http::profile;
use crate::http::refusal::Refusal;
use crate::http::session::{Carried, remove_from_answer, remove_ours};
use crate::table::Place;

/// A request's session, if its place has any. In a box, as are all ways that few requests take.
pub type Opened = Option<Box<Carried>>;

/// Opens it, unless that was needed before (`rank`).
pub async fn open_session(
    edge: &Edge,
    passage: &mut Passage,
    place: &Place,
    class: u8,
    mut opened: Opened,
) -> Result<Opened, Refusal> {
    // Another service may answer for it, and that one's sessions are others.
    let route = place.doorway.session.as_ref();
    if opened.as_ref().is_some_and(|session| route.is_none_or(|route| !session.is_of(route))) {
        opened = None;
        remove_ours(&mut passage.request.fields);
    }
    let mut session = match (opened, route) {
        (Some(session), _) => session,
        (None, Some(route)) => open(edge, route, passage, class).await?,
        (None, None) => return Ok(None),
    };
    session.class = class;
    Ok(Some(session))
}

pub async fn open(
    edge: &Edge,
    route: &Arc<RouteSession>,
    passage: &mut Passage,
    class: u8,
) -> Result<Box<Carried>, Refusal> {
    let answer_time = passage.terms.answer_time;
    let begins = edge.sessions.begin(Arc::clone(route), passage.request.fields.map(), class, answer_time);
    Ok(Box::new(Box::pin(begins).await?))
}

/// Tells the program, and a pipeline that waits for it, who asks and what that one wants.
pub async fn tell_profile(
    edge: &Edge,
    client: &Client,
    passage: &mut Passage,
    place: &Place,
    class: u8,
    session: Option<&Carried>,
) {
    let Some(route) = &place.doorway.profile else { return };
    let who = (passage.request.fields.map(), client.peer.ip, session);
    let wants = Box::pin(profile::tell(edge, route, who, class)).await;
    if let Some(profile) = &passage.profile {
        let _ = profile.set(wants);
    }
}

/// Does what an answer says of the session, and takes out of it what is not for clients.
pub async fn close_session(edge: &Edge, session: Opened, answer: &mut HeaderMap) -> Result<(), Refusal> {
    match session {
        Some(session) => Box::pin(edge.sessions.finish(*session, answer)).await,
        None => {
            remove_from_answer(answer);
            Ok(())
        }
    }
}
