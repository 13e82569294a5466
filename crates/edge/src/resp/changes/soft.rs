//! Follows a namespace of class `soft`: this node has all of it, so it is asked itself.

use std::sync::Arc;

use base::{Outcome, Span};
use bytes::Bytes;
use node::Ask;
use state::Class;
use state::soft::limits::WATCH_HOLD;
use state::soft::{Action, Changes as Told, Op, Reply as Got, Watch};
use tokio::time::{Instant, sleep};

use super::events::of_changes;
use super::{AGAIN, Changed, Changes, Feed, SILENCE_MAX};
use crate::resp::limits::OP_BUDGET;
use crate::resp::ops;

pub async fn follow(all: &Changes, feed: &Feed) {
    let (mut after, mut heard, mut is_silent) = (None, Instant::now(), false);
    while feed.is_wanted() && all.gate.view().class_of(&feed.namespace) == Class::Soft {
        let hold = if after.is_some() { WATCH_HOLD } else { Span::ZERO };
        let watch = Watch { prefix: Bytes::new(), after: after.clone(), hold, ends: true };
        let op = Op::of(Arc::clone(&feed.namespace), Action::Watch(watch));
        let began = Instant::now();
        match ops::soft_outcome(all.gate.ask_for(Ask::Soft(op), WATCH_HOLD + OP_BUDGET).await) {
            Outcome::Done(Got::Changes(Told { is_reset, changes, cursor, .. })) => {
                let is_first = after.is_none();
                (heard, is_silent) = (Instant::now(), false);
                if is_first || is_reset {
                    all.missed(feed);
                }
                if is_reset {
                    // All is told anew: none of that has just changed.
                    after = None;
                    continue;
                }
                after = Some(cursor);
                let is_quiet = changes.is_empty();
                let event = |(key, events)| Changed { version: 0, key, events };
                let mut changed: Vec<Changed> = of_changes(&changes).into_iter().map(event).collect();
                // Fields that were written together are one change, and so is all of a key whose time has come.
                changed.dedup();
                all.changed(feed, &changed);
                feed.runs();
                if is_quiet && !is_first && began.elapsed() < AGAIN {
                    sleep(AGAIN).await;
                }
            }
            _ => {
                if !is_silent && heard.elapsed() > SILENCE_MAX {
                    is_silent = true;
                    all.missed(feed);
                }
                sleep(AGAIN).await;
            }
        }
    }
}
