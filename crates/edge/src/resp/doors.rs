//! What one door asks of the doors of all nodes: something of a namespace's connections (`clients.rs`). It goes by channels that no
//! client can listen to, as their namespace has no name that can be declared. Who is not heard of in time is left out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use base::Outcome;
use bytes::{Bytes, BytesMut};
use channels::{Kind, Message, Op, Reply as Got};
use node::Answer;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::clients::Clients;
use super::encode::bulk;
use super::limits::*;
use super::parse::{Bounds, Command, Parsed, Parser};
use super::subscribers::Subscribers;

/// Of these channels.
pub const NAMESPACE: &str = "\0doors";
/// What is asked of all; what answers one has the name of its door.
const ASKS: &[u8] = b"asks";

pub struct Doors {
    clients: Rc<Clients>,
    subscribers: Rc<Subscribers>,
    /// Unlike that of any other door, at any time.
    name: Bytes,
    /// Others hear it.
    spans: Cell<bool>,
    asked: Cell<u64>,
    waiting: RefCell<HashMap<u64, Rc<Waiting>>>,
}

/// What has come of a question.
#[derive(Default)]
struct Waiting {
    /// By door.
    said: RefCell<BTreeMap<Bytes, Vec<u8>>>,
    ended: Cell<u64>,
    bytes: Cell<usize>,
    told: Notify,
}

impl Doors {
    pub fn new(clients: Rc<Clients>, subscribers: Rc<Subscribers>, name: &str) -> Rc<Self> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        Rc::new(Self {
            clients,
            subscribers,
            name,
            spans: Cell::new(false),
            asked: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// From now on others ask this door, and it them. Ends when it is so.
    pub async fn open(self: Rc<Self>) {
        let doors = Rc::clone(&self);
        self.subscribers.hear_doors(Rc::new(move |message: &Message| doors.hear(message)));
        loop {
            let names = vec![Bytes::from_static(ASKS), self.name.clone()];
            let op = Op::Subscribe { namespace: NAMESPACE.into(), kind: Kind::Shard, names };
            match self.subscribers.ask(op).await {
                Ok(Answer::Channels(Outcome::Done(_))) => break,
                Err(_) => return,
                // Not all nodes know channels yet.
                Ok(_) => sleep(DOORS_AGAIN).await,
            }
        }
        self.spans.set(true);
    }

    /// What comes of this at each door, this one first.
    pub async fn ask(self: Rc<Self>, namespace: Arc<str>, words: Vec<Bytes>) -> Vec<Vec<u8>> {
        let own = self.clients.act(&namespace, &words);
        if !self.spans.get() {
            return vec![own];
        }
        let number = self.asked.get() + 1;
        self.asked.set(number);
        let waiting = Rc::new(Waiting::default());
        if self.waiting.borrow().len() >= DOORS_ASKED_MAX {
            return vec![own];
        }
        self.waiting.borrow_mut().insert(number, Rc::clone(&waiting));
        /// Nobody waits any more, also if who asked has gone.
        struct Over(Rc<Doors>, u64);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.waiting.borrow_mut().remove(&self.1);
            }
        }
        let _over = Over(Rc::clone(&self), number);
        let head = [self.name.clone(), number.to_string().into(), Bytes::copy_from_slice(namespace.as_bytes())];
        let message = Self::message(ASKS, &[&head[..], &words].concat());
        let all = async {
            let Ok(Answer::Channels(Outcome::Done(Got::Published { receivers }))) =
                self.subscribers.ask(Op::Publish(message)).await
            else {
                return;
            };
            while waiting.ended.get() < receivers {
                waiting.told.notified().await;
            }
        };
        // Those that are about to be found dead say nothing.
        let _ = timeout(DOORS_ANSWER_WITHIN, all).await;
        std::iter::once(own).chain(waiting.said.take().into_values()).collect()
    }

    fn message(channel: &[u8], words: &[Bytes]) -> Message {
        let mut payload = format!("*{}\r\n", words.len()).into_bytes();
        words.iter().for_each(|word| bulk(&mut payload, word));
        let channel = Bytes::copy_from_slice(channel);
        Message { namespace: NAMESPACE.into(), shard: true, channel, payload: payload.into() }
    }

    fn hear(&self, message: &Message) {
        let mut payload = BytesMut::from(&message.payload[..]);
        let len = payload.len();
        let Ok(Parsed::Command(command)) = Parser::default().next(&mut payload, len, &Bounds::KNOWN) else { return };
        if &message.channel[..] == ASKS { self.answer(&command) } else { self.take(&command) }
    }

    /// `door number namespace word...`
    fn answer(&self, command: &Command) {
        if command.len() < 4 || command.arg(0) == self.name {
            return;
        }
        let Ok(namespace) = std::str::from_utf8(command.arg(2)) else { return };
        let words: Vec<Bytes> = (3..command.len()).map(|at| command.key(at)).collect();
        let said = Bytes::from(self.clients.act(namespace, &words));
        let mut at = 0;
        loop {
            let end = said.len().min(at + DOORS_PART_BYTES);
            let ends = if end == said.len() { "last" } else { "more" };
            let parts = [self.name.clone(), command.key(1), Bytes::from_static(ends.as_bytes()), said.slice(at..end)];
            drop(self.subscribers.ask(Op::Publish(Self::message(command.arg(0), &parts))));
            if end == said.len() {
                return;
            }
            at = end;
        }
    }

    /// `door number more|last bytes`
    fn take(&self, command: &Command) {
        let number = std::str::from_utf8(command.arg(1)).ok().and_then(|number| number.parse().ok());
        let Some(waiting) = number.and_then(|number: u64| self.waiting.borrow().get(&number).cloned()) else { return };
        // Names of doors count, too: whoever lies may use many.
        let (said, bytes) = (command.arg(3), waiting.bytes.get() + command.arg(0).len() + command.arg(3).len());
        if bytes <= DOORS_SAID_BYTES_MAX {
            waiting.bytes.set(bytes);
            waiting.said.borrow_mut().entry(command.key(0)).or_default().extend_from_slice(said);
        }
        if command.arg(2) == b"last" {
            waiting.ended.set(waiting.ended.get() + 1);
            waiting.told.notify_one();
        }
    }
}

/// The sum of numbers.
pub fn sum(said: &[Vec<u8>]) -> i64 {
    let number = |said: &Vec<u8>| std::str::from_utf8(said).ok().and_then(|said| said.parse::<i64>().ok());
    said.iter().filter_map(number).sum()
}

const _: () = assert!(DOORS_PART_BYTES + 1_024 < channels::limits::MESSAGE_BYTES_MAX, "a part is a message");
