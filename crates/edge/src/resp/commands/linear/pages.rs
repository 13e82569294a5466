//! Pages of one collection, and where walks go on.

use std::cell::RefCell;
use std::rc::Rc;

use state::linear::limits::{ANSWER_BYTES_MAX, SCAN_KEYS_MAX};

use super::*;
use crate::resp::commands::page::{Also, Page};
use crate::resp::cursors::{At, Cursors};

/// A page of the first key's collection, by a function that knows places and by that of all levels: an item has `width` parts.
pub fn pages(call: &Call<'_>, [walk, scan]: [&'static str; 2], width: usize, also: Also) -> Act {
    let page = match Page::read(call.command, 2, also, SCAN_KEYS_MAX as u32) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    let way = Way::of(call, &page);
    let count = word(page.count.to_string());
    let key = call.command.key(1);
    let step = match &way.at {
        At::Place(place) => Step::new(key, walk, vec![word(place.to_string()), count]),
        At::Behind(None) => Step::new(key, scan, vec![word("first"), Bytes::new(), count]),
        At::Behind(Some(after)) => Step::new(key, scan, vec![word("after"), after.clone(), count]),
    };
    let op = Op { stale: call.client.stale, ..Op::of(call.space().name, vec![step]) };
    let space = call.space();
    Call::later(async move {
        let (next, items) = match way.went(space.ask_linear(op).await, page.count, width) {
            Ok(went) => went,
            Err(error) => return error,
        };
        let fits = |item: &&[Got]| matches!(&item[0], Got::Bytes(name) if page.fits(name));
        let shown = |item: &[Got]| item[..if page.names_only { 1 } else { width }].to_vec();
        let shown = items.chunks_exact(width).filter(fits).flat_map(shown).map(plain_one).collect();
        Reply::List(vec![Reply::text(next.to_string()), Reply::List(shown)])
    })
}

/// How a walk goes on (`resp/cursors.rs`).
pub struct Way {
    pub at: At,
    cursors: Rc<RefCell<Cursors>>,
}

impl Way {
    pub fn of(call: &Call<'_>, page: &Page) -> Self {
        let cursors = Rc::clone(&call.node.cursors);
        let at = cursors.borrow().at(page.cursor, call.node.gate.agreed());
        Self { at, cursors }
    }

    /// The next cursor, and what a page has: `count` items of `width` parts, if it is not the last.
    pub fn went(&self, outcome: Outcome<Ran>, count: u32, width: usize) -> Result<(u64, Vec<Got>), Reply> {
        let mut page = match outcome {
            Outcome::Done(Ran::Done(got)) => match only(got) {
                Got::List(page) => page,
                other => return Err(plain_one(other)),
            },
            other => return Err(reply(other, plain)),
        };
        if let At::Behind(_) = self.at {
            let last = page.chunks_exact(width).last().filter(|_| !is_last(&page, count as usize * width));
            let next = match last.and_then(|item| item.first()) {
                Some(Got::Bytes(last)) => self.cursors.borrow_mut().keep(last.clone()),
                _ => 0,
            };
            return Ok((next, page));
        }
        let items = page.split_off(1.min(page.len()));
        match page.first() {
            Some(Got::Int(next)) => Ok((next.unsigned_abs(), items)),
            _ => Err(Reply::error("ERR a page of a walk does not say where it ends")),
        }
    }
}

/// Is nothing behind this page of a scan? It is short, and not as its bytes were too many.
pub fn is_last(page: &[Got], asked: usize) -> bool {
    page.len() < asked && page.iter().map(Got::bytes).sum::<usize>() <= ANSWER_BYTES_MAX / 2
}
