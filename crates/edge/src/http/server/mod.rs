//! A client's connection of HTTP/1, on which we are the server; `line` is its counterpart towards clones. One task has it, and drives all
//! that its request needs: the request's road (`proxy`), its body, the line to its clone.
//!
//! Heads are read by `check` and made requests of in `head`, answers are written in `answer`; both are pure. Bytes and waits are `wire`'s.
//! What a request needs is in a box that goes with it: most connections wait for their next one, and there are many.

mod answer;
mod head;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdicts;
mod wire;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use futures_util::future::poll_fn;
use http::{HeaderMap, Method, Response, StatusCode, Version, header};
use http_body::Body as _;
use tokio::sync::watch;

use super::body::{Counted, DownBody};
use super::check::HeadScan;
use super::headers::Peer;
use super::limits::{HEAR_OUT, WRITE_IDLE};
use super::proxy::{self, Client, Edge};
use crate::meter::Opened;
use crate::pool::Duplex;
use answer::{Asked, Framed};
use head::Head;
pub use wire::FromClient;
use wire::{Said, Wire};

/// How an answer leaves its connection.
enum End {
    /// Another request may follow.
    Kept,
    /// We close it.
    Parts,
    /// It is not ours any more: the client is gone, or speaks something else.
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
    let wire = Arc::new(Wire::new(stream));
    let client = Client { peer, flags: Arc::default(), open: Some(Arc::new(open)) };
    let client = Arc::new(client);
    let (mut is_new, mut is_closing) = (true, false);
    loop {
        // Seen once: from then on it is no change any more.
        is_closing |= closing.has_changed().unwrap_or(false);
        let end = match next(&wire, &mut closing, is_new, &mut is_closing).await {
            Said::Head(head) => Box::pin(exchange(&edge, &client, &wire, head)).await,
            Said::Refused(violation) => {
                let asked = Asked { is_head: false, is_new: true, keeps: false };
                Box::pin(send(&edge, &client, &wire, asked, proxy::refuse(&edge, violation))).await
            }
            Said::Ended => Ok(End::Parts),
        };
        is_new = false;
        match end {
            Ok(End::Kept) => wire.lock().rest(),
            Ok(End::Parts) => break,
            Ok(End::Gone) => return,
            Err(error) => return tracing::debug!(%error, peer = %client.peer.ip, "client's connection ended"),
        }
    }
    Box::pin(part(&wire)).await;
}

/// The next head. When the doors close a connection ends that says nothing; but who has just connected, or could not know yet when it
/// was answered, may be about to say something.
async fn next(wire: &Wire, closing: &mut watch::Receiver<bool>, is_new: bool, is_closing: &mut bool) -> Said {
    let mut scan = HeadScan::default();
    let mut head = poll_fn(|cx| wire.lock().poll_head(cx, &mut scan));
    if !*is_closing {
        tokio::select! {
            biased;
            said = &mut head => return said,
            // Changed once: from false to true. Its sender lives as long as the door.
            Ok(()) = closing.changed() => *is_closing = true,
        }
        if !is_new && wire.lock().is_idle() {
            return Said::Ended;
        }
    }
    Box::pin(tokio::time::timeout(HEAR_OUT, head)).await.unwrap_or(Said::Ended)
}

/// One request and its answer.
async fn exchange(edge: &Arc<Edge>, client: &Arc<Client>, wire: &Arc<Wire>, head: Box<Head>) -> io::Result<End> {
    let Head { request, keeps } = *head;
    let (is_head, is_new) = (*request.method() == Method::HEAD, request.version() == Version::HTTP_11);
    let asked = Asked { is_head, is_new, keeps };
    client.flags.begin();
    let request = request.map(|()| Counted::of_http1(FromClient::new(wire), &client.flags));
    let response = {
        let mut answering = pin!(proxy::answer(edge, client, request));
        poll_fn(|cx| {
            let polled = answering.as_mut().poll(cx);
            let mut wire = wire.lock();
            if let Poll::Ready(response) = polled {
                return Poll::Ready(Ok(response));
            }
            loop {
                // Not before what was taken is written: who gives them has a bound.
                if client.flags.has_interim() && wire.out.is_empty() {
                    wire.out.bytes = client.flags.take_interim();
                }
                match wire.poll_write(cx) {
                    Poll::Ready(Ok(())) if client.flags.has_interim() => (),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) | Poll::Pending => break,
                }
            }
            wire.poll_gone(cx).map(|()| Err(io::ErrorKind::UnexpectedEof.into()))
        })
        .await?
    };
    send(edge, client, wire, asked, response).await
}

/// Sends an answer, and looks how its connection goes on.
async fn send(
    edge: &Edge,
    client: &Client,
    wire: &Wire,
    asked: Asked,
    response: Response<DownBody>,
) -> io::Result<End> {
    let (head, body) = response.into_parts();
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let changes = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let says_close = !changes && head.headers.contains_key(header::CONNECTION);
    let response = Response::from_parts(head, ());
    let (framed, is_last) = {
        let mut wire = wire.lock();
        let has_end = asked.is_new || length.is_some() || has_no_body(asked, &response);
        let keeps = asked.keeps && has_end && !edge.door.parts() && wire.keeps_rest(client.flags.owes_continue());
        let is_last = says_close || !keeps;
        // What comes before it.
        let interim = if client.flags.has_interim() { client.flags.take_interim() } else { Vec::new() };
        let out = &mut wire.out.bytes;
        out.extend_from_slice(&interim);
        (answer::head(out, &response, asked, length, is_last), is_last)
    };
    drop(response);
    let is_whole = write(wire, framed, body).await?;
    if changes {
        if let Some(heir) = client.flags.heir() {
            // Who waits for it may have given up.
            drop(heir.send(wire.lock().hand_over()));
        }
        return Ok(End::Gone);
    }
    if is_last || !is_whole {
        return Ok(End::Parts);
    }
    let is_clear = poll_fn(|cx| wire.lock().poll_rest(cx)).await;
    Ok(if is_clear { End::Kept } else { End::Parts })
}

fn has_no_body(asked: Asked, response: &Response<()>) -> bool {
    asked.is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes what there is to write, and a body as it comes. False: it broke off; what came of it is with the client.
async fn write(wire: &Wire, mut framed: Framed, body: DownBody) -> io::Result<bool> {
    let (mut body, mut is_whole) = (Some(body), true);
    poll_fn(|cx| {
        loop {
            if framed.is_over() || !is_whole {
                // Its line goes back, or ends, whether the client has taken all or not.
                body = None;
            }
            let mut is_waiting = false;
            if let Some(of) = &mut body
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
    .await
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
