//! The seventh step, and the very end: how a request went is counted, at its turnstile, its partition, its door and its
//! service.

use std::time::{Duration, Instant};

use base::Rng;
use flow::stage::End;
use http::Response;

use super::deliver::{Underway, forbid};
use super::{Client, Edge, admit};
use crate::answers;
use crate::http::access::Record;
use crate::http::body::{DownBody, Source};
use crate::http::check::{TOO_LARGE, Violation};
use crate::http::errand::Answer;
use crate::http::refusal::Refusal;
use crate::table::Place;
use crate::turnstile::Permit;

/// Counts how a request that may have been let in went at the clones.
pub fn settle(
    outcome: Result<Answer, Refusal>,
    permit: Option<Permit>,
    place: Option<&Place>,
    asked: &Underway,
) -> Result<Answer, Refusal> {
    let let_in = permit.zip(place);
    match outcome {
        Ok(mut answer) => {
            let end = admit::end_of(&mut answer.response);
            if end == End::Overload {
                answer.upstream.count.overloaded();
            }
            if let Some((permit, place)) = let_in {
                permit.ended_at(end, answer.at);
                place.doorway.part.done(answer.at.saturating_duration_since(asked.began));
            }
            Ok(answer)
        }
        Err(refusal) => {
            if let Some((permit, place)) = let_in {
                permit.ended(if matches!(refusal, Refusal::CloneSilent(_)) { End::Overload } else { End::Gone });
                place.doorway.part.done(asked.began.elapsed());
            }
            Err(names_limit(refusal, asked.body_max))
        }
    }
}

/// The client's body did not come whole, and it is noted why unless the client just left.
pub fn body_broken(client: &Client) -> Refusal {
    let left = Violation { status: 400, why: "the request's body ended early" };
    Refusal::Violation(client.flags.violation().unwrap_or(left))
}

/// What was found out on the way is told with the number that held.
pub fn names_limit(refusal: Refusal, body_max: u64) -> Refusal {
    match refusal {
        Refusal::Violation(violation) if violation == TOO_LARGE => Refusal::TooLarge(body_max),
        other => other,
    }
}

/// What is to be told of a request, found on its way.
#[derive(Default)]
pub struct Told {
    pub record: Option<Box<Record>>,
    /// Whose it is; none: nobody's.
    pub place: Option<Place>,
}

/// The answer as its client gets it, and it is counted.
pub fn answered(
    edge: &Edge,
    outcome: Result<(Response<()>, Source), Refusal>,
    is_head: bool,
    began: Instant,
    told: Told,
) -> Response<DownBody> {
    let failed = outcome.as_ref().is_err_and(Refusal::is_ours);
    let took = began.elapsed();
    edge.door.done(took, failed);
    let mut response = match outcome {
        Ok((response, source)) => response.map(|()| DownBody::of(source)),
        Err(refusal) => refusal.response(&mut Rng::new(took.as_nanos() as u64)),
    };
    forbid(is_head, &mut response);
    match &told.place {
        Some(place) => {
            let times = place.doorway.answers.get_or_init(|| edge.door.answers.of(place.service_name()));
            answers::note(times, response.status(), took);
        }
        None => edge.door.answers.note("", response.status(), took),
    }
    if let Some(mut record) = told.record {
        let clone = response.body().clone_name().map(str::to_owned);
        record.answered(&mut response, clone.as_deref());
        response.body_mut().recorded(record);
    }
    response
}

/// The answer to what is no request. It is counted as one.
pub fn refuse(edge: &Edge, violation: Violation) -> Response<DownBody> {
    edge.door.done(Duration::ZERO, false);
    let response = Refusal::Violation(violation).response(&mut Rng::new(0));
    edge.door.answers.note("", response.status(), Duration::ZERO);
    response
}
