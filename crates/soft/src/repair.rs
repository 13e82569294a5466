//! Repair: what was lost on its way is found by comparing what two nodes have seen, and cells are sent whole. Bytes follow
//! what differs. Who lacks what the other's index has forgotten is sent all cells, page by page, if it has nothing; if it has something (it
//! was away for long, or has an older checkpoint) the two are compared (`compare.rs`). It is joined, too: it keeps what it alone has.
//!
//! ```text
//! Digest   →   hash of what the sender has seen, for all namespaces
//! Have     ←   for each that differs: what it has seen, and its floor
//! Cells    →   what that lacks      Have →   if something is missing here
//! Cells    ←
//! ```

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds as _};

use base::checksum::place_hash;
use base::{Boot, Frame, NodeId, Now, Time};
use prost::Message;

use crate::catchup::Held;
use crate::cell::Cell;
use crate::compare::{Step, Wanted};
use crate::context::{Context, Range};
use crate::dot::{Dot, Life};
use crate::limits::*;
use crate::machine::{Heard, kind};
use crate::space::{Address, Odd, Space};
use crate::wire::{ACell, At, Cells, Digest, DigestOf, Have, Page, PageAsk, Whole, context, pairs, ranges};
use crate::{COMPARE_LEVEL, Output, Soft};

/// All cells of a peer, on their way here.
pub struct Transfer {
    pub from: NodeId,
    pub boot: Boot,
    /// All up to here has come.
    pub after: Option<Address>,
    /// What the peer had when it began.
    pub start: Option<Context>,
    again_at: Time,
    pub step: Step,
    /// Of the question of this step.
    pub ticket: u64,
    /// There was nothing here when it began.
    pub is_fresh: bool,
    /// How many symbols the next stretch may take.
    pub guess: usize,
}

impl Soft {
    /// Now and then: compares with the next peer, asks again for pages, forgets what all have.
    pub(crate) fn gossip(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.gossip_at > now.mono || self.spaces.is_empty() {
            return;
        }
        let period = self.spaces.values().map(|held| held.spec.gossip_ms).min().unwrap_or(GOSSIP_MS_DEFAULT) * 1_000;
        self.gossip_at = now.mono + base::Span(self.rng.between(period * 3 / 4, period * 5 / 4));
        for held in self.spaces.values_mut().filter(|held| held.space.tick != held.space.context) {
            held.space.tick = held.space.context.clone();
        }
        if self.collect_at <= now.mono {
            self.collect_at = now.mono + COLLECT_EVERY;
            self.collect(now);
        }
        let late: Vec<u32> = self.spaces.iter().filter(|(_, held)| held.is_late(now.mono)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.ask_page(now, id, out));
        if let Some(peer) = self.next_peer() {
            self.send_digest(now, peer, false, out);
        }
    }

    /// Each live peer once in a round, in another order each time.
    fn next_peer(&mut self) -> Option<NodeId> {
        while let Some(peer) = self.round.pop() {
            if self.peers.get(&peer).is_some_and(|peer| peer.dead.is_none()) {
                return Some(peer);
            }
        }
        self.round = self.live().collect();
        self.rng.shuffle(&mut self.round);
        self.round.pop()
    }

    /// Tells what has changed since it was told this peer, or `all`; of what has not, a part in turn: idle namespaces cost little.
    pub(crate) fn send_digest(&mut self, now: Now, to: NodeId, all: bool, out: &mut Vec<Output>) {
        let of = |(id, held): (&u32, &Held)| DigestOf {
            space: *id,
            context: digest(&held.space.context),
            settles: !held.is_settled(),
            kept: held.keeper.as_ref().map_or(0, |keeper| digest(keeper.kept())),
            state: held.space.state.whole(),
            updates: held.space.seq() + 1,
        };
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let (mut spaces, mut idle) = (Vec::new(), Vec::new());
        for of in self.spaces.iter().map(of) {
            let is_known = peer.digested.insert(of.space, of) == Some(of);
            if all || of.settles || !is_known { spaces.push(of) } else { idle.push(of) }
        }
        // Those first that had no turn.
        let had_one = idle.partition_point(|of: &DigestOf| of.space <= peer.digested_to);
        idle.rotate_left(had_one);
        idle.truncate(DIGEST_IDLE);
        peer.digested_to = idle.last().map_or(0, |of| of.space);
        spaces.append(&mut idle);
        let message = Digest { boot: self.life.boot.0, spaces, wall_ms: now.wall_ms };
        out.push(Output::Send { to, frame: Frame::new(kind::DIGEST, message.encode_to_vec()) });
    }

    /// Is it from the life of a peer that is known here? What another life had is nobody's now.
    pub(crate) fn is_of_life(&self, from: NodeId, boot: u64) -> bool {
        self.peers.get(&from).is_some_and(|peer| peer.boot == Boot(boot))
    }

    pub(crate) fn digest(&mut self, now: Now, from: NodeId, message: Digest, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, message.boot) {
            return Ok(());
        }
        self.hears_clock(now, from, message.wall_ms);
        for DigestOf { space, context, settles, kept, state, updates } in message.spaces {
            self.hears_serving(from, space, !settles);
            if let Some(updates) = updates.checked_sub(1) {
                self.says(now, from, Boot(message.boot), space, updates);
            }
            let same = self.spaces.get(&space).filter(|held| digest(&held.space.context) == context);
            let (mut wants, is_same) = (false, same.is_some());
            if let (Some(held), Some(peer)) = (same, self.peers.get_mut(&from)) {
                let before = peer.told.remove(&space).and_then(|heard| heard.kept);
                let known =
                    [Some(held.kept()), before.as_ref()].into_iter().flatten().find(|known| digest(known) == kept);
                let context = held.space.context.clone();
                wants = kept != 0 && known.is_none();
                let known = known.cloned();
                let known = (kept != 0).then(|| known.or(before).unwrap_or_default());
                peer.told.insert(space, Heard { context, kept: known });
            }
            if wants || settles || !is_same && self.spaces.contains_key(&space) {
                self.send_have(from, space, (false, wants), out);
            }
            if is_same {
                self.compare_state(from, space, state, out);
            }
        }
        Ok(())
    }

    /// Operations may be passed to who serves.
    fn hears_serving(&mut self, from: NodeId, space: u32, serves: bool) {
        let Some(peer) = self.peers.get_mut(&from).filter(|_| self.spaces.contains_key(&space)) else { return };
        match serves {
            true => peer.serves.insert(space),
            false => peer.serves.remove(&space),
        };
    }

    /// `how`: it is an answer, and it wants one in any case.
    fn send_have(&self, to: NodeId, space: u32, how: (bool, bool), out: &mut Vec<Output>) {
        let keeper = self.spaces.get(&space).and_then(|held| held.keeper.as_ref());
        let of =
            |which: fn(&Space) -> &Context| self.spaces.get(&space).map(|held| ranges(which(&held.space).ranges()));
        let have = Have {
            space,
            boot: self.life.boot.0,
            context: of(|space| &space.context).unwrap_or_default(),
            floor: of(|space| &space.floor).unwrap_or_default(),
            is_answer: how.0,
            kept: keeper.map(|keeper| ranges(keeper.kept().ranges())).unwrap_or_default(),
            keeps: keeper.is_some(),
            wants: how.1,
            serves: self.spaces.get(&space).is_some_and(Held::is_settled),
        };
        out.push(Output::Send { to, frame: Frame::new(kind::HAVE, have.encode_to_vec()) });
    }

    pub(crate) fn have(&mut self, now: Now, from: NodeId, have: &Have, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, have.boot) {
            return Ok(());
        }
        let theirs = context(&have.context).ok_or(Odd("a context of what nobody gives"))?;
        let floor = context(&have.floor).ok_or(Odd("a floor of what nobody gives"))?;
        let kept = context(&have.kept).ok_or(Odd("a checkpoint of what nobody gives"))?;
        let Some(held) = self.spaces.get_mut(&have.space) else { return Ok(()) };
        held.space.may_know(&theirs)?;
        held.tells(from, &theirs);
        let lacks_floor = !floor.is_within(&held.space.context);
        let misses = !theirs.is_within(&held.space.context);
        let starts = lacks_floor && held.has_come();
        if starts {
            let (boot, is_fresh) = (Boot(have.boot), held.space.cells.is_empty());
            let compares = self.level >= COMPARE_LEVEL && !is_fresh;
            let step = if compares { Step::sketch(0) } else { Step::Whole };
            let (after, start, again_at, ticket, guess) = (None, None, now.mono, self.rng.u64(), 0);
            held.transfer = Some(Transfer { from, boot, after, start, again_at, step, ticket, is_fresh, guess });
        }
        let may_repair = held.space.floor.is_within(&theirs);
        if may_repair {
            repairs(now, have.space, &held.space, &theirs, |frame| out.push(Output::Send { to: from, frame }));
        }
        let known: Vec<Range> = theirs.ranges_of(self.life).collect();
        self.has_come(from, have.space, &known);
        self.is_copied(have.space, &known, out);
        self.hears_serving(from, have.space, have.serves);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.told.insert(have.space, Heard { context: theirs, kept: have.keeps.then_some(kept) });
        }
        if starts {
            self.ask_page(now, have.space, out);
        }
        if !have.is_answer && (misses || !may_repair || have.wants) {
            self.send_have(from, have.space, (true, false), out);
        }
        Ok(())
    }

    pub(crate) fn cells(&mut self, now: Now, from: NodeId, message: Cells, out: &mut Vec<Output>) -> Result<(), Odd> {
        let known = context(&message.context).ok_or(Odd("a context of what nobody gives"))?;
        let Some(held) = self.spaces.get_mut(&message.space) else { return Ok(()) };
        held.space.may_know(&known)?;
        for whole in message.cells {
            let (at, cell, covers) = read(now, whole)?;
            held.space.take_whole(now, &at, &cell, &covers, &known)?;
            self.seen.repaired += 1;
        }
        self.seen.conflicts += std::mem::take(&mut held.space.conflicts);
        self.names_ahead(from, message.space, out);
        if let Some(peer) = self.peers.get(&from) {
            self.owes.insert((from, message.space, peer.boot));
            self.is_due = true;
        }
        Ok(())
    }

    // Transfers.

    pub(crate) fn ask_page(&mut self, now: Now, space: u32, out: &mut Vec<Output>) {
        let Some(held) = self.spaces.get_mut(&space) else { return };
        let Some(transfer) = &mut held.transfer else { return };
        if !self.peers.get(&transfer.from).is_some_and(|peer| peer.dead.is_none() && peer.boot == transfer.boot) {
            // Another one will be found to have what is missing.
            held.transfer = None;
            return;
        }
        transfer.again_at = now.mono + PAGE_AGAIN;
        let (differs, until, numbers) = match &transfer.step {
            Step::Sketch(_) => return self.ask_sketch(space, out),
            Step::Whole => (false, None, Vec::new()),
            Step::Differs { until, theirs, .. } => (true, until.as_ref().map(At::from), theirs.clone()),
        };
        let ask = PageAsk {
            space,
            boot: transfer.boot.0,
            after: transfer.after.as_ref().map(At::from),
            start: transfer.start.as_ref().map(|start| ranges(start.ranges())).unwrap_or_default(),
            differs,
            until,
            numbers,
            ticket: transfer.ticket,
        };
        out.push(Output::Send { to: transfer.from, frame: Frame::new(kind::PAGE_ASK, ask.encode_to_vec()) });
    }

    pub(crate) fn page_ask(&mut self, now: Now, from: NodeId, ask: PageAsk, out: &mut Vec<Output>) -> Result<(), Odd> {
        if Boot(ask.boot) != self.life.boot {
            return Ok(());
        }
        let after = address(ask.after.clone())?;
        let start = context(&ask.start).ok_or(Odd("a context of what nobody gives"))?;
        let Some(held) = self.spaces.get(&ask.space) else { return Ok(()) };
        let end = address(ask.until.clone())?;
        if end.is_some() && end <= after {
            return Err(Odd("a stretch that leads nowhere"));
        }
        let behind = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let ahead = end.as_ref().map_or(Bound::Unbounded, Bound::Included);
        // What came after the transfer began has shaped these cells, too, and removed others that stood here.
        let mut covers: BTreeMap<&Address, Context> = BTreeMap::new();
        let mut updates = 0;
        if after.is_some() || ask.differs {
            let since = held.space.context.minus(&start);
            for (dot, at) in since.iter().flat_map(|range| held.space.updates(range)).take(BEYOND_MAX) {
                updates += 1;
                if (behind, ahead).contains(at) {
                    covers.entry(at).or_default().insert(*dot);
                }
            }
        }
        // Past that many it is not known what was touched: then all of the stretch is sent.
        let wanted = Wanted::of(&ask).filter(|_| updates < BEYOND_MAX);
        let (mut bytes, mut until) = (0, end.as_ref());
        let mut cells: BTreeMap<&Address, Whole> = BTreeMap::new();
        for (at, cell) in held.space.cells.range((behind, ahead)) {
            if wanted.as_ref().is_some_and(|wanted| !covers.contains_key(at) && !wanted.has(at, cell)) {
                continue;
            }
            if bytes >= FRAME_BYTES {
                until = cells.last_key_value().map(|(at, _)| *at);
                break;
            }
            let whole = Whole { at: At::from(at), cell: ACell::of(cell, now.mono), covers: Vec::new() };
            bytes += whole.encoded_len();
            cells.insert(at, whole);
        }
        covers.retain(|at, _| until.is_none_or(|until| *at <= until));
        for (at, covers) in covers {
            let removed = || Whole { at: At::from(at), cell: ACell::default(), covers: Vec::new() };
            cells.entry(at).or_insert_with(removed).covers = ranges(covers.ranges());
        }
        let page = Page {
            space: ask.space,
            boot: ask.boot,
            after: ask.after,
            until: until.map(At::from),
            cells: cells.into_values().collect(),
            context: ranges(held.space.context.ranges()),
            floor: ranges(held.space.floor.ranges()),
            differs: ask.differs,
            ticket: ask.ticket,
        };
        let frame = Frame::new(kind::PAGE, page.encode_to_vec());
        out.extend(fits(&frame).then_some(Output::Send { to: from, frame }));
        Ok(())
    }

    pub(crate) fn page(&mut self, now: Now, from: NodeId, page: Page, out: &mut Vec<Output>) -> Result<(), Odd> {
        let (after, until) = (address(page.after)?, address(page.until)?);
        let Some(held) = self.spaces.get_mut(&page.space) else { return Ok(()) };
        // An older node says back no ticket, and is asked for whole pages alone.
        let is_awaited = |transfer: &&mut Transfer| {
            let is_asked = match &transfer.step {
                Step::Whole => !page.differs,
                Step::Sketch(_) => false,
                Step::Differs { until: end, .. } => {
                    page.differs
                        && page.ticket == transfer.ticket
                        && end.as_ref().is_none_or(|end| until.as_ref().is_some_and(|until| until <= end))
                }
            };
            is_asked && (transfer.from, transfer.boot, &transfer.after) == (from, Boot(page.boot), &after)
        };
        let Some(transfer) = held.transfer.as_mut().filter(is_awaited) else { return Ok(()) };
        if until.is_some() && until <= after {
            return Err(Odd("a page that leads nowhere"));
        }
        let known = context(&page.context).ok_or(Odd("a context of what nobody gives"))?;
        held.space.may_know(&known)?;
        let mut cells = page.cells.into_iter().map(|whole| read(now, whole)).collect::<Result<Vec<_>, _>>()?;
        cells.sort_by(|a, b| a.0.cmp(&b.0));
        let is_within = |at: &Address| {
            after.as_ref().is_none_or(|after| after < at) && until.as_ref().is_none_or(|until| at <= until)
        };
        if !cells.iter().all(|(at, ..)| is_within(at)) {
            return Err(Odd("a page with what stands on another one"));
        }
        transfer.start.get_or_insert_with(|| known.clone());
        // Where the peer has nothing it has seen the end of what was there, as far as it knows of it.
        let lower = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let upper = until.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let is_alone = |at: &&Address| cells.binary_search_by(|(other, ..)| other.cmp(at)).is_err();
        let alone: Vec<Address> = match &transfer.step {
            // Of what is equal nothing is told.
            Step::Differs { mine, .. } => mine.range((lower, upper)).filter(is_alone).cloned().collect(),
            _ => held.space.cells.range((lower, upper)).map(|(at, _)| at).filter(is_alone).cloned().collect(),
        };
        for at in &alone {
            held.space.take_whole(now, at, &Cell::default(), &[], &known)?;
        }
        for (at, cell, covers) in &cells {
            held.space.take_whole(now, at, cell, covers, &known)?;
        }
        self.goes_on(now, page.space, until, out)
    }

    // Collecting.

    /// Rids the index of what is forgotten, a little in each turn.
    pub(crate) fn prune(&mut self, now: Now) {
        if self.prune_at > now.mono {
            return;
        }
        for held in self.spaces.values_mut().filter(|held| held.space.is_forgetting()) {
            held.space.prune();
            self.prune_at = now.mono + PRUNE_AGAIN;
        }
    }

    /// What all members have seen, and have in their checkpoints, is forgotten by the index. Those that are dead count for a while.
    /// Where the index is large nobody's disk is waited for.
    fn collect(&mut self, now: Now) {
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| held.is_settled() && held.has_come()) {
            let is_large = held.space.index.len() > INDEX_MAX;
            let counts = |dead: Option<Time>| dead.is_none_or(|since| !is_large && now.mono.since(since) < DEAD_COUNTS);
            let mut stable = if is_large { held.space.context.clone() } else { held.kept().clone() };
            for peer in self.peers.values().filter(|peer| counts(peer.dead)) {
                match peer.told.get(id) {
                    Some(Heard { context, kept }) => {
                        stable = stable.meet(kept.as_ref().filter(|_| !is_large).unwrap_or(context));
                    }
                    None => stable = Context::default(),
                }
            }
            // Who was cut off for a moment goes on with its cursor.
            let watched = held.watched.is_some_and(|at| now.mono.since(at) < WATCH_KEPT) && !is_large;
            match &mut held.stable {
                Some((since, old)) if watched => {
                    if now.mono.since(*since) >= WATCH_KEPT {
                        held.space.forget(old);
                        (*since, *old) = (now.mono, stable);
                    }
                }
                none if watched => *none = Some((now.mono, stable)),
                some => {
                    *some = None;
                    held.space.forget(&stable);
                }
            }
        }
    }
}

impl Held {
    fn is_late(&self, now: Time) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.again_at <= now)
    }
}

/// A cell that many nodes wrote at one moment, each a large value, may be more than a frame takes. It waits for the next
/// write, which replaces them.
pub(crate) fn fits(frame: &Frame) -> bool {
    frame.wire_len() <= base::limits::FRAME_BYTES_MAX
}

pub(crate) fn digest(of: &Context) -> u64 {
    let mut bytes = Vec::new();
    for Range { life, first, last } in of.ranges() {
        [life.node.0, life.boot.0, first, last].iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    }
    place_hash(&bytes)
}

pub(crate) fn address(told: Option<At>) -> Result<Option<Address>, Odd> {
    told.map(|at| at.read().ok_or(Odd("an address that cannot be"))).transpose()
}

pub(crate) fn read(now: Now, whole: Whole) -> Result<(Address, Cell, Vec<Range>), Odd> {
    let at = whole.at.read().ok_or(Odd("an address that cannot be"))?;
    let cell = whole.cell.read(now.mono).ok_or(Odd("a cell that cannot be, or was damaged"))?;
    let mut covers = Vec::new();
    for told in &whole.covers {
        let life = Life { node: NodeId(told.node), boot: Boot(told.boot) };
        covers.extend(pairs(life, &told.bounds).ok_or(Odd("updates that nobody gives"))?);
    }
    Ok((at, cell, covers))
}

/// Frames with the cells that one with this context lacks; each says of which updates its cells are the outcome.
///
/// Cells are sent as they are now. So a chosen cell is the outcome also of updates that choose none: those since the last tick,
/// and those beyond what fits. They are told with it. Else who takes it has what an update did without having seen it, and
/// would never be repaired if the update were lost elsewhere.
fn repairs(now: Now, id: u32, space: &Space, theirs: &Context, mut send: impl FnMut(Frame)) {
    let mut found: BTreeMap<&Address, Context> = BTreeMap::new();
    let mut bytes = 0;
    let mut beyond = 0;
    let older = space.tick.minus(theirs);
    for (dot, at) in older.iter().flat_map(|range| space.updates(range)) {
        if bytes < FRAME_BYTES * REPAIR_FRAMES {
            let covers = found.entry(at).or_insert_with(|| {
                let cell = space.cells.get(at).cloned().unwrap_or_default();
                bytes += at.key.len() + at.element.len() + ACell::of(&cell, now.mono).encoded_len() + 64;
                Context::default()
            });
            if !covers.contains(Dot { seq: dot.seq - 1, ..*dot }) {
                bytes += 24;
            }
            covers.insert(*dot);
        } else if let Some(covers) = found.get_mut(at) {
            covers.insert(*dot);
        }
        beyond += usize::from(bytes >= FRAME_BYTES * REPAIR_FRAMES);
        if beyond > BEYOND_MAX {
            break;
        }
    }
    let newer = space.context.minus(&space.tick);
    for (dot, at) in newer.iter().flat_map(|range| space.updates(range)) {
        if let Some(covers) = found.get_mut(at).filter(|_| !theirs.contains(*dot)) {
            covers.insert(*dot);
        }
    }
    let context = ranges(space.context.ranges());
    let mut frame = Cells { space: id, context, cells: Vec::new() };
    let (mut left, mut bytes) = (found.len(), 0);
    for (at, covers) in found {
        let cell = space.cells.get(at).map(|cell| ACell::of(cell, now.mono)).unwrap_or_default();
        let whole = Whole { at: At::from(at), cell, covers: ranges(covers.ranges()) };
        bytes += whole.encoded_len();
        frame.cells.push(whole);
        left -= 1;
        if bytes >= FRAME_BYTES || left == 0 {
            let cells = Frame::new(kind::CELLS, frame.encode_to_vec());
            if fits(&cells) {
                send(cells);
            }
            frame.cells.clear();
            bytes = 0;
        }
    }
}
