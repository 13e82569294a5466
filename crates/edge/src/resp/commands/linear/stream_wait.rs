//! Reading streams, and waiting for what comes. Of XREAD everyone gets every entry. Of XREADGROUP an entry goes to one consumer:
//! each look is a write, so who is woken asks first if there is anything; clients of one node that wait for one group are served
//! in their order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::block::{Place, Queue, Watch, too_many};
use super::stream::{by_key, id, now};
use super::*;
use crate::resp::limits::BLOCKED_MAX;

/// What XREAD or XREADGROUP asks for.
pub struct Asks {
    keys: Vec<Bytes>,
    /// As functions take them.
    ids: Vec<String>,
    /// -1: all.
    count: i64,
    /// Milliseconds; 0: for ever.
    block: Option<u64>,
    group: Option<(Bytes, Bytes)>,
    no_ack: bool,
}

impl Asks {
    pub fn read(command: &Command, grouped: Option<&str>) -> Result<Self, Reply> {
        let is_grouped = grouped.is_some();
        let wrong_here = |option: &str| {
            Reply::Error(format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."))
        };
        let mut asks = Self { keys: Vec::new(), ids: Vec::new(), count: -1, block: None, group: None, no_ack: false };
        let (mut at, mut streams) = (1, None);
        while at < command.len() {
            let (arg, more) = (command.arg(at), command.len() - 1 - at);
            if is(arg, "BLOCK") && more > 0 {
                let timeout = integer(command.arg(at + 1));
                let timeout = timeout.ok_or_else(|| Reply::error("ERR timeout is not an integer or out of range"))?;
                asks.block = Some(u64::try_from(timeout).map_err(|_| Reply::error("ERR timeout is negative"))?);
                at += 1;
            } else if is(arg, "COUNT") && more > 0 {
                let count = integer(command.arg(at + 1)).ok_or_else(not_an_integer)?;
                asks.count = if count > 0 { count } else { -1 };
                at += 1;
            } else if is(arg, "STREAMS") && more > 0 {
                streams = Some(at + 1);
                break;
            } else if is(arg, "GROUP") && more >= 2 {
                if !is_grouped {
                    return Err(wrong_here("GROUP"));
                }
                asks.group = Some((command.key(at + 1), command.key(at + 2)));
                at += 2;
            } else if is(arg, "NOACK") {
                if !is_grouped {
                    return Err(wrong_here("NOACK"));
                }
                asks.no_ack = true;
            } else {
                return Err(Reply::error("ERR syntax error"));
            }
            at += 1;
        }
        let Some(first) = streams else { return Err(Reply::error("ERR syntax error")) };
        let count = command.len() - first;
        if !count.is_multiple_of(2) {
            let (name, symbol) = if is_grouped { ("xreadgroup", "ID or '>'") } else { ("xread", "ID, '+', or '$'") };
            return Err(Reply::Error(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an {symbol} must be specified."
            )));
        }
        if is_grouped && asks.group.is_none() {
            return Err(Reply::error("ERR Missing GROUP option for XREADGROUP"));
        }
        let ids = first + count / 2;
        asks.keys = (first..ids).map(|i| command.key(i)).collect();
        asks.ids = (ids..command.len()).map(|i| Self::id(command.arg(i), is_grouped)).collect::<Result<_, _>>()?;
        Ok(asks)
    }

    fn id(text: &[u8], is_grouped: bool) -> Result<String, Reply> {
        match text {
            b"$" | b"+" if is_grouped => {
                let text = String::from_utf8_lossy(text);
                Err(Reply::Error(format!(
                    "ERR The {text} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
                     specifying a proper ID, or use the > ID to get new messages. The {text} ID would just return an empty result set."
                )))
            }
            b"$" => Ok("$".into()),
            b"+" => Ok("+".into()),
            b">" if is_grouped => Ok(">".into()),
            b">" => Err(Reply::error(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            text => id(text, 0).map(|id| id.to_string()),
        }
    }

    /// When it ends; none: never.
    fn deadline(&self) -> Option<Instant> {
        let wait = self.block.filter(|wait| *wait > 0)?;
        Instant::now().checked_add(Duration::from_millis(wait))
    }

    fn reads(&self) -> Vec<Step> {
        let step = |(key, id): (&Bytes, &String)| {
            Step::new(key.clone(), "stream.read", vec![word(id.clone()), word(self.count.to_string())])
        };
        self.keys.iter().zip(&self.ids).map(step).collect()
    }

    /// A step of a group on all keys, with these arguments behind the group.
    fn on_all(&self, function: &'static str, options: Vec<Bytes>) -> Step {
        let group = self.group.iter().map(|(group, _)| group.clone());
        let args = self.keys[1..].iter().cloned().chain(group).chain(options).collect();
        Step::new(self.keys[0].clone(), function, args)
    }

    fn delivers(&self) -> Step {
        let consumer = self.group.as_ref().map(|(_, consumer)| consumer.clone()).unwrap_or_default();
        let how = word(if self.no_ack { "noack" } else { "ack" });
        let options = vec![consumer, word(self.ids.join(" ")), now(), word(self.count.to_string()), how];
        self.on_all("stream.read-group", options)
    }
}

pub fn read(call: &mut Call<'_>, asks: Asks) -> Act {
    // Nobody waits inside of MULTI.
    if asks.block.is_none() || call.client.multi.is_some() {
        return over_each(call, asks.reads(), by_key);
    }
    begin(call, asks, Queue::None)
}

pub fn read_group(call: &mut Call<'_>, asks: Asks) -> Act {
    let all_new = asks.ids.iter().all(|id| id == ">");
    if asks.block.is_none() || !all_new || call.client.multi.is_some() {
        return steps(call, vec![asks.delivers()], by_key);
    }
    let group = asks.group.as_ref().map(|(group, _)| group.clone()).unwrap_or_default();
    begin(call, asks, Queue::OfGroup(group))
}

fn begin(call: &Call<'_>, asks: Asks, queue: Queue) -> Act {
    if let Some(why) = too_many(&asks.keys) {
        return Act::Now(why);
    }
    let space = call.space();
    let Some(place) = Place::take(&call.node.blocked, &space.name, &asks.keys, queue) else {
        return Act::Now(Reply::Error(format!(
            "BUSY {BLOCKED_MAX} clients of this node wait already, retry in 1000 ms"
        )));
    };
    let reader = Reader { asks, watch: Watch::new(space, place) };
    Act::Block(Box::new(move |client| reader.run(client)))
}

/// One that waits for entries.
struct Reader {
    asks: Asks,
    watch: Watch,
}

impl Reader {
    fn run(mut self, mut client: oneshot::Sender<Given>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let deadline = self.asks.deadline();
            self.watch.begin();
            let mut reply = self.pin_down().await.err();
            let mut is_first = true;
            while reply.is_none() {
                if client.is_closed() {
                    return;
                }
                reply = self.look(std::mem::take(&mut is_first)).await;
                if reply.is_some() {
                    break;
                }
                let over = async {
                    match deadline {
                        Some(deadline) => sleep_until(deadline).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = self.watch.changed() => reply = changed.err(),
                    () = over => reply = Some(Reply::NilList),
                    () = client.closed() => return,
                }
            }
            // What a client that has gone was given is its consumer's still.
            let _ = client.send(Given::new(reply.unwrap_or(Reply::NilList)).0);
        })
    }

    async fn ask(&self, over: Over, steps: Vec<Step>) -> Result<Vec<Got>, Reply> {
        let space = &self.watch.space;
        let op = Op { over, ..Op::of(Arc::clone(&space.name), steps) };
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => Ok(got),
            other => Err(linear::reply(other, plain)),
        }
    }

    /// `$` is the last id of now, and `+` the one before it.
    async fn pin_down(&mut self) -> Result<(), Reply> {
        let open: Vec<usize> =
            (0..self.asks.ids.len()).filter(|at| ["$", "+"].contains(&&*self.asks.ids[*at])).collect();
        if open.is_empty() {
            return Ok(());
        }
        let step = |at: &usize| Step::new(self.asks.keys[*at].clone(), "stream.last", Vec::new());
        let got = self.ask(Over::Each, open.iter().map(step).collect()).await?;
        for (at, got) in open.into_iter().zip(got) {
            match got {
                Got::Bytes(last) => {
                    let last = id(&last, 0)?;
                    let after = if self.asks.ids[at] == "+" { last.before().unwrap_or_default() } else { last };
                    self.asks.ids[at] = after.to_string();
                }
                other => return Err(plain_one(other)),
            }
        }
        Ok(())
    }

    /// What there is, or an error; nothing: it has to wait.
    async fn look(&mut self, is_first: bool) -> Option<Reply> {
        if !self.watch.take_news() && !is_first {
            return None;
        }
        let looked =
            if self.asks.group.is_some() { self.look_grouped(is_first).await } else { self.look_alone(is_first).await };
        match looked {
            Ok(got) => Some(by_key(got)).filter(|reply| *reply != Reply::NilList),
            Err(error) => Some(error),
        }
    }

    async fn look_alone(&self, is_first: bool) -> Result<Vec<Got>, Reply> {
        let got = self.ask(Over::Each, self.asks.reads()).await?;
        // Who waits waits for a stream.
        let is_other = |got: &Got| matches!(got, Got::Wrong(Wrong::Type)) && !is_first;
        Ok(got.into_iter().filter(|got| !is_other(got)).collect())
    }

    async fn look_grouped(&self, is_first: bool) -> Result<Vec<Got>, Reply> {
        if !is_first {
            let got = self.ask(Over::One, vec![self.asks.on_all("stream.has-news", Vec::new())]).await?;
            match got.first() {
                Some(Got::Int(0)) => return Ok(Vec::new()),
                Some(Got::Int(_)) => (),
                _ => return Ok(got),
            }
        }
        self.ask(Over::One, vec![self.asks.delivers()]).await
    }
}
