//! The third step: how much a request matters. What is done for another request matters as much as that one, wherever
//! it comes in; else its partition says it, and a session that is there may say more.

use clones::RouteSession;

use super::session::{Opened, open};
use super::{Edge, Passage};
use crate::cookie;
use crate::fields::Fields;
use crate::http::refusal::Refusal;
use crate::table::Place;

/// The priority of a request, and its session where that had to be asked.
pub async fn rank(edge: &Edge, passage: &mut Passage, asked: &Place) -> Result<(u8, Opened), Refusal> {
    let (request, route) = (&passage.request, asked.doorway.session.as_ref());
    let class = request.carried_on.unwrap_or(asked.doorway.class);
    let Some((route, raised)) = route.zip(raised(class, route.map(|route| &**route), &request.fields)) else {
        return Ok((class, None));
    };
    let session = open(edge, route, passage, raised).await?;
    let class = if session.is_there() { raised } else { class };
    Ok((class, Some(session)))
}

/// What its session would raise it to, if it is there: that must be known before it is let in.
fn raised(class: u8, route: Option<&RouteSession>, fields: &Fields) -> Option<u8> {
    let spec = &route?.spec;
    let raised = spec.priority?.0;
    (raised > class && cookie::is_shown(fields, &spec.cookie)).then_some(raised)
}
