//! A request that is asked of several clones (Tempest 3.1, redundant querying): the first good answer is taken, and the
//! others are broken off by the end of their connections. Only GET and HEAD without a body are, as nothing comes of
//! being asked twice. How many are asked is declared (`ask`); the second may wait until the first is late (`ask_late`,
//! `flow/src/hedge.rs`). Nobody is asked twice while there is much to do (`Turnstile::one_more`), and what no clone
//! answers goes on as any other request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use base::Span;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Method;
use tokio::time::Instant;

use super::{Answer, Errand, Weighed};
use crate::http::body::UpBody;
use crate::http::check::Framing;
use crate::http::headers::Peer;
use crate::http::line::Line;
use crate::http::passage::Client;
use crate::http::refusal::Refusal;
use crate::pool::{Pool, Upstream};
use crate::table::Doorway;
use crate::turnstile::Extra;

/// How one of those that were asked came to nothing.
enum Lost {
    /// No other clone would do better.
    Over(Refusal),
    /// Another clone may answer; how the request ended at this one, if it may have seen it.
    Another(Option<Refusal>),
}

impl Errand {
    /// Whose requests may be asked of several, if this is one.
    pub(super) fn asks_several(&self) -> Option<Arc<Doorway>> {
        let doorway = &self.place.as_ref().filter(|place| !place.is_off())?.doorway;
        let is_safe = matches!(self.sought.method, Method::GET | Method::HEAD);
        let brings_nothing = matches!((&self.body, self.framing), (Some(UpBody::Empty), Framing::Length(0)));
        let may = doorway.asks.most() > 1 && is_safe && brings_nothing && !self.expects.upgrade && !self.asks_leave;
        may.then(|| Arc::clone(doorway))
    }

    /// Asks several clones, if that is declared and they are there. None: as if none had been asked, but for what is
    /// noted of those that failed.
    pub(super) async fn race(
        &mut self,
        pool: &Pool,
        client: &Client,
        doorway: Arc<Doorway>,
    ) -> Option<Result<Answer, Refusal>> {
        let (asks, part) = (doorway.asks, &doorway.part);
        let mut clones = self.several(pool, &client.peer, &doorway)?.into_iter();
        let late = if asks.is_late() { part.hedge().came() } else { Some(Span::ZERO) };
        let is_over = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let (mut shots, mut asked) = (FuturesUnordered::new(), Vec::new());
        let mut extras: Vec<Extra> = Vec::new();
        let (mut bad, mut ended, mut over) = (None, None, None);
        let this = &*self;
        loop {
            let now = Instant::now();
            // The first is asked at once, each other one when the one before is late.
            let due = match (asked.len(), late) {
                (0, _) => Some(now),
                (before, Some(late)) => Some(began + Duration::from(late) * before as u32),
                (_, None) => None,
            };
            if due.is_some_and(|due| due <= now) && clones.len() > 0 {
                let is_first = asked.is_empty();
                let extra = if is_first { None } else { doorway.turnstile.one_more() };
                let may = is_first || extra.is_some() && (!asks.is_late() || part.hedge().spend());
                let Some(clone) = clones.next().filter(|_| may) else {
                    part.races.withheld.fetch_add(1, Relaxed);
                    clones = Vec::new().into_iter();
                    continue;
                };
                extras.extend(extra);
                part.races.asked.fetch_add(u64::from(!is_first), Relaxed);
                let place = asked.len();
                asked.push(Arc::clone(&clone));
                let is_over = &is_over;
                shots.push(async move { (place, this.shot(pool, client, clone, is_over).await) });
                continue;
            }
            let wait = due.filter(|_| clones.len() > 0).map(|due| due.saturating_duration_since(now));
            let next = match wait {
                None => shots.next().await,
                Some(wait) => match tokio::time::timeout(wait, shots.next()).await {
                    Ok(next) => next,
                    Err(_) => continue,
                },
            };
            // All have ended. Who was not late is not helped by others: the request goes on as any other.
            let Some((place, outcome)) = next else { break };
            match outcome {
                Ok(answer) if answer.response.status().is_server_error() && !shots.is_empty() => {
                    bad.get_or_insert(answer);
                }
                Ok(answer) => {
                    is_over.store(true, Relaxed);
                    part.races.won.fetch_add(u64::from(place > 0), Relaxed);
                    part.races.cancelled.fetch_add(shots.len() as u64, Relaxed);
                    if asks.is_late() {
                        part.hedge().took(began.elapsed().into());
                    }
                    // What one that failed said, another that fails does not say better.
                    let is_bad = answer.response.status().is_server_error();
                    return Some(Ok(if is_bad { bad.unwrap_or(answer) } else { answer }));
                }
                Err(Lost::Over(refusal)) => over = Some(refusal),
                Err(Lost::Another(end)) => ended = end.or(ended),
            }
        }
        drop(shots);
        if let Some(answer) = bad {
            return Some(Ok(answer));
        }
        if let Some(refusal) = over {
            return Some(Err(refusal));
        }
        self.sends += 1;
        self.ended = ended;
        self.tried = asked;
        None
    }

    /// Which clones, if there is more than one.
    fn several(&mut self, pool: &Pool, peer: &Peer, doorway: &Doorway) -> Option<Vec<Arc<Upstream>>> {
        let table = pool.table();
        let asked = self.sought.asked(peer);
        let found = table.find(self.place.as_ref(), &asked).filter(|found| !table.routes.is_off(*found))?;
        let target = table.target(found, &asked);
        // Who is asked alone at first is chosen as for any request: so a service that is seldom late is spread as any
        // other.
        let first = if doorway.asks.is_late() { Some(pool.choose(&target, &[])?) } else { None };
        let some = pool.choose_some(&target, doorway.asks.most(), first.as_ref());
        if some.len() > 1 {
            self.visit.get_or_insert_with(|| table.enter(found));
        }
        Some(some).filter(|some| some.len() > 1)
    }

    /// One clone is asked, on a line that was idle or, if that was none any more, on a new one.
    async fn shot(
        &self,
        pool: &Pool,
        client: &Client,
        upstream: Arc<Upstream>,
        is_over: &Arc<AtomicBool>,
    ) -> Result<Answer, Lost> {
        let in_flight = upstream.begin();
        let mut idle = upstream.idle.take(false);
        loop {
            let is_fresh = idle.is_none();
            let mut line = match idle.take() {
                Some(line) => line,
                None => match pool.connect(&upstream).await {
                    Ok(stream) => Box::new(Line::new(stream)),
                    Err(error) => {
                        tracing::debug!(clone = %upstream.name, %error, "clone not reached");
                        pool.failed(&upstream);
                        return Err(Lost::Another(None));
                    }
                },
            };
            let now = std::time::Instant::now();
            let mut request = self.request(&mut line, &upstream, UpBody::Empty, now).map_err(Lost::Over)?;
            // What comes before an answer may be of one that loses.
            request.interim = None;
            let attempt = upstream.count.begin_at(now).in_race(is_over);
            let end = match line.send(request).await {
                Ok(response) => match self.first_part(&mut line).await {
                    Ok(first) => {
                        let (failed, at) = (response.status().is_server_error(), std::time::Instant::now());
                        attempt.ended_at(failed, at);
                        pool.answered(&upstream, failed);
                        return Ok(Answer { response, first, line, upstream, in_flight, at });
                    }
                    Err(error) => {
                        attempt.ended(true);
                        pool.answered(&upstream, true);
                        tracing::debug!(clone = %upstream.name, %error, "clone ended while it answered");
                        Some(Refusal::CloneEnded)
                    }
                },
                Err(failed) => match self.weigh(pool, client, &upstream, (attempt, is_fresh), failed) {
                    Weighed::Over(refusal) | Weighed::Silent(refusal) => return Err(Lost::Over(refusal)),
                    Weighed::Ended(refusal) => Some(refusal),
                    Weighed::Unsent(_) | Weighed::SpokeFirst(_) => None,
                },
            };
            if is_fresh {
                pool.failed(&upstream);
                return Err(Lost::Another(end));
            }
        }
    }
}
