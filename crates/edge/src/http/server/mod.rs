//! A client's connection of HTTP/1, on which we are the server; `line` is its counterpart towards clones. One task has
//! it, and drives all that its request needs: the request's road (`passage`), its body, the line to its clone.
//!
//! Heads are read by `check` and made requests of in `head`, answers are written in `answer`; both are pure. Bytes and
//! waits are `wire`'s. What a request needs is in a `way`, which its thread has for all of them in turn: most connections
//! wait for their next one, and there are many.

mod answer;
mod head;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdicts;
mod way;
mod wire;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::poll_fn;
use http::{HeaderMap, Method, Response, StatusCode, Version, header};
use http_body::Body as _;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;

use super::body::{Counted, DownBody};
use super::check::{HeadScan, Violation};
use super::headers::Peer;
use super::limits::{HEAR_OUT, WRITE_IDLE};
use super::passage::{self, Client, Edge, Understood};
use super::rooms;
use crate::meter::Opened;
use crate::pool::Duplex;
use answer::{Asked, Framed};
use head::Head;
pub use wire::FromClient;
use wire::{Said, Wire};

/// How an answer leaves its connection.
#[derive(Debug)]
enum End {
    /// Another request may follow.
    Kept,
    /// We close it.
    Parts,
    /// The connection is not ours any more: the client is gone, or speaks something else.
    Gone,
}

/// Serves a connection to its end, or until something else is spoken on it.
pub async fn talk(
    edge: Arc<Edge>,
    open: Opened,
    stream: Box<dyn Duplex>,
    peer: Arc<Peer>,
    mut closing: watch::Receiver<bool>,
) {
    let _kept = edge.door.keeps();
    let client = Client { peer, flags: Arc::default(), open: Some(Arc::new(open)) };
    let mut talk = Talk { client: Arc::new(client), wire: Arc::new(Wire::new(stream)), edge: Arc::clone(&edge) };
    // Asked once, it wakes this task when the doors close, whatever that waits for then; whether they have closed is a
    // look at a number.
    let doors = closing.clone();
    let mut closes = pin!(unconstrained(closing.changed()));
    let mut is_closing = is_over(closes.as_mut()).await;
    let mut is_new = true;
    loop {
        let Some((asked, heard)) = heard(&talk, next(&talk.wire, &doors, is_new, &mut is_closing).await) else { break };
        let end;
        (talk, end) = way::go(talk, asked, heard).await;
        is_new = false;
        match end {
            Ok(End::Kept) => talk.wire.lock().rest(),
            Ok(End::Parts) => break,
            Ok(End::Gone) => return,
            Err(error) => return tracing::debug!(%error, peer = %talk.client.peer.ip, "client's connection ended"),
        }
    }
    Box::pin(part(&talk.wire)).await;
}

/// What all requests of a connection share, with the way of the one that is answered.
struct Talk {
    edge: Arc<Edge>,
    client: Arc<Client>,
    wire: Arc<Wire>,
}

/// Whether it is ready now; if not, it wakes this task when it is.
async fn is_over(mut of: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(of.as_mut().poll(cx).is_ready())).await
}

/// The next head. When the doors close a connection ends that says nothing; but who has just connected, or could not
/// know yet when it was answered, may be about to say something.
async fn next(wire: &Wire, doors: &watch::Receiver<bool>, is_new: bool, is_closing: &mut bool) -> Said {
    let mut scan = HeadScan::default();
    // Changed once: from false to true. Its sender lives as long as the door.
    let have_closed = || doors.has_changed().unwrap_or(false);
    let is_known = *is_closing || have_closed();
    let said = poll_fn(|cx| match wire.lock().poll_head(cx, &mut scan) {
        Poll::Ready(said) => Poll::Ready(Some(said)),
        Poll::Pending if is_known || have_closed() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    if let Some(said) = said.await {
        return said;
    }
    *is_closing = true;
    if !is_known && !is_new && wire.lock().is_idle() {
        return Said::Ended;
    }
    let head = poll_fn(|cx| wire.lock().poll_head(cx, &mut scan));
    Box::pin(tokio::time::timeout(HEAR_OUT, head)).await.unwrap_or(Said::Ended)
}

/// What was said, made a request of, or refused already.
enum Heard {
    Request(Understood),
    Refused(Violation),
}

/// None: he is gone, or has been silent for long.
fn heard(talk: &Talk, said: Said) -> Option<(Asked, Heard)> {
    let Talk { edge, client, wire } = talk;
    let Head { request, fields, keeps, has_body } = match said {
        Said::Head(head) => head,
        Said::Refused(violation) => {
            return Some((Asked { is_head: false, is_new: true, keeps: false }, Heard::Refused(violation)));
        }
        Said::Ended => return None,
    };
    client.flags.begin();
    let (is_head, is_new) = (*request.method() == Method::HEAD, request.version() == Version::HTTP_11);
    let request = request.map(|()| match has_body {
        true => Counted::of_http1(FromClient::new(wire), &client.flags),
        false => Counted::none(&client.flags),
    });
    Some((Asked { is_head, is_new, keeps }, Heard::Request(Understood::of(edge, client, request, Some(fields)))))
}

/// One request and its answer.
async fn exchange(talk: &Talk, asked: Asked, heard: Heard) -> io::Result<End> {
    let Talk { edge, client, wire } = talk;
    let response = match heard {
        Heard::Refused(violation) => passage::refuse(edge, violation),
        Heard::Request(understood) => {
            let mut answering = pin!(understood.answer(edge, client));
            poll_fn(|cx| match answering.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Ok(response)),
                Poll::Pending => poll_meanwhile(client, wire, cx).map(Err),
            })
            .await?
        }
    };
    send(edge, client, wire, asked, response).await
}

/// While an answer is waited for: interim ones are written. Ready when the client is gone.
fn poll_meanwhile(client: &Client, wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Error> {
    let mut wire = wire.lock();
    loop {
        // Not before what was taken is written: who gives them has a bound.
        if client.flags.has_interim() && wire.out.is_empty() {
            wire.out.bytes = client.flags.take_interim();
        }
        match wire.poll_write(cx) {
            Poll::Ready(Ok(())) if client.flags.has_interim() => (),
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            Poll::Ready(Ok(())) | Poll::Pending => break,
        }
    }
    wire.poll_gone(cx).map(|()| io::ErrorKind::UnexpectedEof.into())
}

/// An answer whose head stands where it will be written from.
struct Begun {
    framed: Framed,
    body: Option<DownBody>,
    /// Both speak something else behind it.
    changes: bool,
    is_last: bool,
}

/// Sends an answer, and looks how its connection goes on.
fn send(
    edge: &Edge,
    client: &Client,
    wire: &Wire,
    asked: Asked,
    response: Response<DownBody>,
) -> impl Future<Output = io::Result<End>> {
    let mut begun = begin(edge, client, wire, asked, response);
    async move {
        let is_whole = write(wire, &mut begun).await?;
        if begun.changes {
            if let Some(heir) = client.flags.heir() {
                // Who waits for it may have given up.
                drop(heir.send(wire.lock().hand_over()));
            }
            return Ok(End::Gone);
        }
        if begun.is_last || !is_whole {
            return Ok(End::Parts);
        }
        let is_clear = poll_fn(|cx| wire.lock().poll_rest(cx)).await;
        Ok(if is_clear { End::Kept } else { End::Parts })
    }
}

fn begin(edge: &Edge, client: &Client, wire: &Wire, asked: Asked, response: Response<DownBody>) -> Begun {
    let (head, body) = response.into_parts();
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let changes = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let says_close = !changes && head.headers.contains_key(header::CONNECTION);
    let response = Response::from_parts(head, ());
    let mut wire = wire.lock();
    let has_end = asked.is_new || length.is_some() || has_no_body(asked, &response);
    let keeps = asked.keeps && has_end && !edge.door.parts() && wire.keeps_rest(client.flags.owes_continue());
    let is_last = says_close || !keeps;
    let out = &mut wire.out.bytes;
    if out.capacity() == 0 {
        *out = rooms::bytes();
    }
    // What comes before it.
    if client.flags.has_interim() {
        out.extend_from_slice(&client.flags.take_interim());
    }
    let framed = answer::head(out, &response, asked, length, is_last);
    rooms::give_map(response.into_parts().0.headers);
    Begun { framed, body: Some(body), changes, is_last }
}

fn has_no_body(asked: Asked, response: &Response<()>) -> bool {
    asked.is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes what there is to write, and a body as it comes. False: it broke off; what came of it is with the client.
fn write(wire: &Wire, begun: &mut Begun) -> impl Future<Output = io::Result<bool>> {
    let Begun { framed, body, .. } = begun;
    let mut is_whole = true;
    poll_fn(move |cx| {
        loop {
            if framed.is_over() || !is_whole {
                // Its line goes back, or ends, whether the client has taken all or not.
                *body = None;
            }
            let mut is_waiting = false;
            if let Some(of) = body.as_mut()
                && wire.lock().out.has_room()
            {
                let polled = Pin::new(of).poll_frame(cx);
                let out = &mut wire.lock().out;
                is_whole = match polled {
                    Poll::Pending => {
                        is_waiting = true;
                        true
                    }
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(part) => framed.data(out, part).is_ok(),
                        Err(frame) => framed.end(out, &frame.into_trailers().unwrap_or_default()).is_ok(),
                    },
                    Poll::Ready(Some(Err(_))) => false,
                    Poll::Ready(None) => framed.end(out, &HeaderMap::new()).is_ok(),
                };
                if !is_waiting {
                    continue;
                }
            }
            let mut wire = wire.lock();
            ready!(wire.poll_write(cx))?;
            if body.is_none() {
                return Poll::Ready(Ok(is_whole));
            }
            if is_waiting {
                return wire.poll_gone(cx).map(|()| Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    })
}

/// Closes our side, and waits a moment for the client's.
async fn part(wire: &Wire) {
    let mut linger = None;
    let parted = poll_fn(|cx| wire.lock().poll_part(cx, &mut linger));
    // One that takes nothing, TLS' last word neither.
    let _ = tokio::time::timeout(WRITE_IDLE, parted).await;
}

/// The body behind the head that comes on this stream.
#[cfg(test)]
pub async fn body_on(stream: Box<dyn Duplex>) -> FromClient {
    let (wire, mut scan) = (Arc::new(Wire::new(stream)), HeadScan::default());
    let said = poll_fn(|cx| wire.lock().poll_head(cx, &mut scan)).await;
    assert!(matches!(said, Said::Head(_)), "it is a sound one");
    FromClient::new(&wire)
}
