//! Transfers: all cells of others on their way here, page by page. Whatever is asked of whom, all pages are of one
//! *start*: what the first of those that are asked had seen when it began. Each page tells its cells and the updates
//! since the start that touched them; so when all have come the start was seen here as a whole. Until then a
//! transfer's dots are not in the context one by one: there would be as many ranges as cells, and each look at them
//! would cost what all of it costs.
//!
//! Where there was nothing here, others are asked beside the first, each for stretches of its own: who has seen all
//! of the start, and can still tell every update since. A stretch whose source dies goes on at another one. How much
//! is asked of one at once follows how soon it answers: who is busy with other things is asked for less.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use base::{Boot, Frame, NodeId, Now, Span, Time};
use bytes::Bytes;
use prost::Message;

use crate::catchup::{self, Held};
use crate::cell::Cell;
use crate::compare::{Step, Wanted};
use crate::context::Context;
use crate::limits::*;
use crate::machine::kind;
use crate::op::Kind;
use crate::repair::{address, fits, read_all};
use crate::space::{Address, Odd, Space};
use crate::wire::{ACell, At, Page, PageAsk, Whole, context, ranges, tell};
use crate::{COMPARE_LEVEL, Output, Soft};

/// All cells of others, on their way here.
pub struct Transfer {
    /// What the first source had when it began.
    pub start: Option<Context>,
    /// There was nothing here when it began, or next to nothing.
    pub is_fresh: bool,
    /// How many symbols the next stretch may take.
    pub guess: usize,
    /// What is asked for.
    pub asks: Vec<Ask>,
    /// What nobody is asked for yet: behind this address, up to that one.
    left: VecDeque<(Option<Address>, Option<Address>)>,
    sources: BTreeMap<NodeId, Source>,
    /// What others have told before the start was known: what they had seen, and their floor.
    told: BTreeMap<NodeId, (Boot, Context, Context)>,
}

/// One question for a page, or for what leads to one.
pub(crate) struct Ask {
    pub of: NodeId,
    pub boot: Boot,
    pub after: Option<Address>,
    /// None: to the last one.
    end: Option<Address>,
    pub step: Step,
    pub ticket: u64,
    since: Time,
    again_at: Time,
    pub tries: u32,
}

struct Source {
    boot: Boot,
    /// Questions that may be under way to it.
    window: usize,
}

/// What is remembered of a transfer to a peer: which cells were touched since it began.
pub struct Served {
    start: Context,
    /// Up to here it was looked.
    seen: Context,
    touched: BTreeMap<Address, Context>,
    updates: usize,
    used: Time,
}

impl Transfer {
    pub fn new(of: NodeId, boot: Boot, is_fresh: bool) -> Self {
        let sources = BTreeMap::from([(of, Source { boot, window: 1 })]);
        let (asks, left, told) = (Vec::new(), VecDeque::from([(None, None)]), BTreeMap::new());
        Self { start: None, is_fresh, guess: 0, asks, left, sources, told }
    }

    /// Another one has told what it has seen, and what of that it can tell no more.
    pub fn hears(&mut self, of: NodeId, boot: Boot, theirs: &Context, floor: &Context) {
        let Some(start) = &self.start else {
            self.told.insert(of, (boot, theirs.clone(), floor.clone()));
            return;
        };
        // What was seen once stays so: what it told before it was asked says nothing against it.
        if !floor.is_within(start) {
            self.sources.remove(&of);
        } else if start.is_within(theirs) {
            self.sources.entry(of).or_insert(Source { boot, window: 1 });
        }
    }

    /// Where others may begin while the first stretch goes on, once its first page says how much there is about.
    fn divide(&mut self, first: &Address) {
        let pages = u64::MAX / first.hash().max(1);
        let count = (pages / FILL_PAGES).clamp(1, FILL_STRETCHES);
        let borders: Vec<Address> = borders(count).into_iter().filter(|border| border > first).collect();
        let mut begin = Some(first.clone());
        self.left.clear();
        for border in borders {
            self.left.push_back((begin.replace(border.clone()), Some(border)));
        }
        self.left.push_back((begin, None));
    }
}

/// Addresses that part what there is into about as many equal stretches. An address is told by its key: so they are
/// those of the first keys that are found near where they are to be.
fn borders(stretches: u64) -> Vec<Address> {
    let wide = u64::MAX / stretches.max(1);
    let mut found: BTreeMap<u64, Address> = BTreeMap::new();
    let mut nth = 0u64;
    while (found.len() as u64) < stretches - 1 {
        let at = Address::new(Bytes::from(nth.to_string()), Kind::End, Bytes::new());
        let (border, off) = (at.hash() / wide, at.hash() % wide);
        if (1..stretches).contains(&border) && off < wide / 8 {
            found.entry(border).or_insert(at);
        }
        nth += 1;
    }
    found.into_values().collect()
}

impl Served {
    fn new(start: Context, now: Time) -> Self {
        Self { seen: start.clone(), start, touched: BTreeMap::new(), updates: 0, used: now }
    }

    /// Looks at what has come since it looked last.
    fn look(&mut self, space: &Space, now: Time) {
        self.used = now;
        for range in space.context.minus(&self.seen) {
            for (dot, at) in space.updates(&range).take(BEYOND_MAX.saturating_sub(self.updates)) {
                self.touched.entry(at.clone()).or_default().insert(*dot);
                self.updates += 1;
            }
            self.seen.insert_range(range);
        }
    }

    /// More has come than is remembered.
    pub fn is_over(&self) -> bool {
        self.updates >= BEYOND_MAX
    }

    /// Was something in there touched, or can that not be told?
    pub fn is_touched(&self, after: Option<&Address>, until: Option<&Address>) -> bool {
        let (behind, ahead) = bounds(after, until);
        // An empty stretch is one that leads nowhere: nothing is in it.
        let leads = after.is_none() || until.is_none() || after < until;
        self.is_over() || leads && self.touched.range::<Address, _>((behind, ahead)).next().is_some()
    }
}

fn bounds<'a>(after: Option<&'a Address>, until: Option<&'a Address>) -> (Bound<&'a Address>, Bound<&'a Address>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), until.map_or(Bound::Unbounded, Bound::Included))
}

impl Soft {
    /// Asks again for what does not come, and others for what one that is gone was asked for.
    pub(crate) fn tend_transfers(&mut self, now: Now, out: &mut Vec<Output>) {
        self.fills.retain(|_, served| now.mono.since(served.used) < SERVED_KEPT);
        let ids: Vec<u32> = self.spaces.iter().filter(|(_, held)| held.transfer.is_some()).map(|(id, _)| *id).collect();
        for id in ids {
            self.spread(now, id, out);
            let asks = self.spaces[&id].transfer.iter().flat_map(|transfer| transfer.asks.iter().enumerate());
            let late: Vec<usize> = asks.filter(|(_, ask)| ask.again_at <= now.mono).map(|(nth, _)| nth).collect();
            late.into_iter().for_each(|nth| self.ask_again(now, id, nth, out));
        }
    }

    /// Asks for what nobody is asked for yet, each source for no more than it has room for. Without one it comes to
    /// nothing: another node will be found to have what is missing.
    pub(crate) fn spread(&mut self, now: Now, id: u32, out: &mut Vec<Output>) {
        let may_compare = self.level >= COMPARE_LEVEL;
        let Some(held) = self.spaces.get_mut(&id) else { return };
        let Some(transfer) = &mut held.transfer else { return };
        let is_there = |node: &NodeId, boot: Boot| {
            self.peers.get(node).is_some_and(|peer| peer.dead.is_none() && peer.boot == boot)
        };
        transfer.sources.retain(|node, source| is_there(node, source.boot));
        let sources = &transfer.sources;
        let lost = transfer.asks.extract_if(.., |ask| sources.get(&ask.of).is_none_or(|of| of.boot != ask.boot));
        let lost: Vec<Ask> = lost.collect();
        lost.into_iter().for_each(|ask| transfer.left.push_front((ask.after, ask.end)));
        if transfer.sources.is_empty() {
            held.transfer = None;
            held.space.comes_no_more();
            return;
        }
        let mut begun = Vec::new();
        while !transfer.left.is_empty() {
            let asked = |of: &NodeId| transfer.asks.iter().filter(|ask| ask.of == *of).count();
            let free = transfer.sources.iter().filter(|(of, source)| asked(of) < source.window);
            let Some((of, source)) = free.min_by_key(|(of, _)| asked(of)) else { break };
            let (of, boot) = (*of, source.boot);
            let Some((after, end)) = transfer.left.pop_front() else { break };
            let compares = may_compare && !transfer.is_fresh;
            let step = if compares { Step::sketch(transfer.guess) } else { Step::Whole };
            let (ticket, since) = (self.rng.u64(), now.mono);
            begun.push(transfer.asks.len());
            transfer.asks.push(Ask { of, boot, after, end, step, ticket, since, again_at: now.mono, tries: 0 });
        }
        begun.into_iter().for_each(|nth| self.ask_again(now, id, nth, out));
    }

    /// Sends a question, for the first time or once more.
    pub(crate) fn ask_again(&mut self, now: Now, space: u32, nth: usize, out: &mut Vec<Output>) {
        let Some(transfer) = self.spaces.get_mut(&space).and_then(|held| held.transfer.as_mut()) else { return };
        let Some(asked) = transfer.asks.get_mut(nth) else { return };
        // Who is slow is not made slower.
        asked.again_at = now.mono + Span(PAGE_AGAIN.0 << asked.tries.min(4));
        asked.tries += 1;
        let (differs, until, numbers) = match &asked.step {
            Step::Sketch(_) => return self.ask_sketch(space, nth, out),
            Step::Whole => (false, asked.end.as_ref().map(At::from), Vec::new()),
            Step::Differs { until, theirs, .. } => (true, until.as_ref().map(At::from), theirs.clone()),
        };
        let ask = PageAsk {
            space,
            boot: asked.boot.0,
            after: asked.after.as_ref().map(At::from),
            start: transfer.start.as_ref().map(tell).unwrap_or_default(),
            differs,
            until,
            numbers,
            ticket: asked.ticket,
        };
        out.push(Output::Send { to: asked.of, frame: Frame::new(kind::PAGE_ASK, ask.encode_to_vec()) });
    }

    /// What was touched since a transfer to this peer began.
    pub(crate) fn served(&mut self, now: Now, to: NodeId, space: u32, start: &Context) -> Option<&Served> {
        let held = self.spaces.get(&space)?;
        let served = self.fills.entry((to, space)).or_insert_with(|| Served::new(start.clone(), now.mono));
        if served.start != *start {
            *served = Served::new(start.clone(), now.mono);
        }
        served.look(&held.space, now.mono);
        Some(served)
    }

    pub(crate) fn page_ask(&mut self, now: Now, from: NodeId, ask: PageAsk, out: &mut Vec<Output>) -> Result<(), Odd> {
        if Boot(ask.boot) != self.life.boot {
            return Ok(());
        }
        let after = address(ask.after.clone())?;
        let start = context(&ask.start).ok_or(Odd("a context of what nobody gives"))?;
        let end = address(ask.until.clone())?;
        if end.is_some() && end <= after {
            return Err(Odd("a stretch that leads nowhere"));
        }
        // What came after the transfer began has shaped these cells, too, and removed others that stood here.
        let has_begun = after.is_some() || ask.differs;
        if has_begun {
            self.served(now, from, ask.space, &start);
        }
        let Some(held) = self.spaces.get(&ask.space) else { return Ok(()) };
        let served = self.fills.get(&(from, ask.space)).filter(|_| has_begun);
        let within = bounds(after.as_ref(), end.as_ref());
        let touched = || served.into_iter().flat_map(|served| served.touched.range::<Address, _>(within));
        let is_touched = |at: &Address| served.is_some_and(|served| served.touched.contains_key(at));
        // Past that many it is not known what was touched: then all of the stretch is sent.
        let wanted = Wanted::of(&ask).filter(|_| !served.is_some_and(Served::is_over));
        let is_asked = self.asked_at.is_some_and(|at| now.mono.since(at) < ASKED_LATELY);
        let room = if is_asked { PAGE_BYTES_ASKED } else { PAGE_BYTES };
        let (mut bytes, mut until) = (0, end.as_ref());
        let mut cells: BTreeMap<&Address, Whole> = BTreeMap::new();
        for (at, cell) in held.space.cells.range(within) {
            if wanted.as_ref().is_some_and(|wanted| !is_touched(at) && !wanted.has(at, cell)) {
                continue;
            }
            if bytes >= room {
                until = cells.last_key_value().map(|(at, _)| *at);
                break;
            }
            let whole = Whole { at: At::from(at), cell: ACell::of(cell, now.mono), covers: Vec::new() };
            bytes += whole.encoded_len();
            cells.insert(at, whole);
        }
        for (at, covers) in touched().take_while(|(at, _)| until.is_none_or(|until| *at <= until)) {
            let removed = || Whole { at: At::from(at), cell: ACell::default(), covers: Vec::new() };
            let mut covers = covers.clone();
            // Of what it has itself a cell need not say that it is its outcome.
            let dots = held.space.cells.get(at).into_iter().flat_map(Cell::dots);
            dots.for_each(|dot| covers.remove_range(dot.into()));
            cells.entry(at).or_insert_with(removed).covers = ranges(covers.ranges());
        }
        let page = Page {
            space: ask.space,
            boot: ask.boot,
            after: ask.after,
            until: until.map(At::from),
            cells: cells.into_values().collect(),
            context: tell(&held.space.context),
            floor: tell(&held.space.floor),
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
        let covered = &mut held.covered;
        let Some(transfer) = &mut held.transfer else { return Ok(()) };
        // An older node says back no ticket, and is asked for whole pages alone.
        let is_awaited = |ask: &Ask| {
            let end = match &ask.step {
                Step::Whole if !page.differs => &ask.end,
                Step::Differs { until: end, .. } if page.differs && page.ticket == ask.ticket => end,
                _ => return false,
            };
            let is_within = end.as_ref().is_none_or(|end| until.as_ref().is_some_and(|until| until <= end));
            is_within && (ask.of, ask.boot, &ask.after) == (from, Boot(page.boot), &after)
        };
        let Some(nth) = transfer.asks.iter().position(is_awaited) else { return Ok(()) };
        if until.is_some() && until <= after {
            return Err(Odd("a page that leads nowhere"));
        }
        let known = context(&page.context).ok_or(Odd("a context of what nobody gives"))?;
        held.space.may_know(&known)?;
        let mut cells = read_all(now, page.cells)?;
        if !catchup::has_room_for(covered, from, &cells) {
            return Ok(());
        }
        cells.sort_by(|a, b| a.0.cmp(&b.0));
        let is_within = |at: &Address| {
            after.as_ref().is_none_or(|after| after < at) && until.as_ref().is_none_or(|until| at <= until)
        };
        if !cells.iter().all(|(at, ..)| is_within(at)) {
            return Err(Odd("a page with what stands on another one"));
        }
        let start = transfer.start.get_or_insert_with(|| known.clone());
        // Where the peer has nothing it has seen the end of what was there, as far as it knows of it.
        let within = bounds(after.as_ref(), until.as_ref());
        let is_alone = |at: &&Address| cells.binary_search_by(|(other, ..)| other.cmp(at)).is_err();
        let alone: Vec<Address> = match &transfer.asks[nth].step {
            // Of what is equal nothing is told.
            Step::Differs { mine, .. } => mine.range::<Address, _>(within).filter(is_alone).cloned().collect(),
            _ => held.space.cells.range(within).map(|(at, _)| at).filter(is_alone).cloned().collect(),
        };
        for at in &alone {
            held.space.take_page(now, at, &Cell::default(), &[], &known, start)?;
        }
        for (at, cell, covers) in &cells {
            held.space.take_page(now, at, cell, covers, &known, start)?;
        }
        self.goes_on(now, page.space, nth, until, out)
    }

    /// What this question was about is here up to there.
    pub(crate) fn goes_on(
        &mut self,
        now: Now,
        id: u32,
        nth: usize,
        until: Option<Address>,
        out: &mut Vec<Output>,
    ) -> Result<(), Odd> {
        let divides = self.level >= COMPARE_LEVEL;
        let Some(held) = self.spaces.get_mut(&id) else { return Ok(()) };
        held.comes_on(now.mono);
        let Some(transfer) = &mut held.transfer else { return Ok(()) };
        let ask = transfer.asks.swap_remove(nth);
        if let Some(source) = transfer.sources.get_mut(&ask.of) {
            let took = now.mono.since(ask.since);
            source.window = match took {
                took if took <= FILL_FAST => (source.window + 1).min(FILL_WINDOW),
                took if took > FILL_SLOW => (source.window / 2).max(1),
                _ => source.window,
            };
        }
        for (of, (boot, theirs, floor)) in std::mem::take(&mut transfer.told) {
            transfer.hears(of, boot, &theirs, &floor);
        }
        match &until {
            Some(first) if ask.after.is_none() && transfer.is_fresh && divides => transfer.divide(first),
            Some(_) if until != ask.end => transfer.left.push_front((until, ask.end)),
            _ => (),
        }
        if !transfer.left.is_empty() || !transfer.asks.is_empty() {
            self.spread(now, id, out);
        } else if let Some(Transfer { start: Some(start), .. }) = held.transfer.take() {
            held.space.has_all_of(&start);
            self.seen.transfers += 1;
        }
        Ok(())
    }
}

impl Held {
    /// Does one that has so much have so much more than is here that it is got page by page? Or all but little, if
    /// not even a little is lacking below what it can tell.
    pub fn is_fresh_beside(&self, theirs: &Context) -> bool {
        let count = |of: &[crate::context::Range]| of.iter().map(|r| r.last - r.first + 1).sum::<u64>();
        let missing = count(&theirs.minus(&self.space.context));
        let all = count(&theirs.ranges().collect::<Vec<_>>());
        self.space.cells.is_empty() || self.space.cells.len() <= STRETCH_CELLS && missing > all / 8 * 7
    }

    /// So much is missing that it does not go as repair.
    pub fn lacks_much(&self, theirs: &Context) -> bool {
        let missing = theirs.minus(&self.space.context).iter().map(|r| r.last - r.first + 1).sum::<u64>();
        missing > FILL_UPDATES && self.is_fresh_beside(theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_part_what_there_is_into_equal_stretches() {
        for stretches in [1, 2, 7, FILL_STRETCHES] {
            let all = borders(stretches);
            assert_eq!(all.len() as u64, stretches - 1);
            let wide = u64::MAX / stretches;
            let mut before = 0;
            for at in &all {
                assert!(at.hash() - before < wide / 8 * 10, "{stretches}");
                assert_eq!(At::from(at).read().as_ref(), Some(at), "it can be told");
                before = at.hash();
            }
        }
    }

    #[test]
    fn a_transfer_is_divided_once_it_is_known_how_much_there_is() {
        let mut transfer = Transfer::new(NodeId(1), Boot(1), true);
        transfer.divide(&Address::from_hash(u64::MAX / 2));
        assert_eq!(transfer.left.len(), 1, "two pages");
        transfer.divide(&Address::from_hash(u64::MAX / 4_000));
        assert_eq!(transfer.left.len() as u64, FILL_STRETCHES);
        assert!(transfer.left.iter().zip(transfer.left.iter().skip(1)).all(|(one, next)| one.1 == next.0));
        assert_eq!(transfer.left.back().and_then(|(_, end)| end.clone()), None);
    }

    #[test]
    fn who_lacks_some_of_the_start_or_can_tell_less_is_not_asked() {
        let life = crate::dot::Life { node: NodeId(9), boot: Boot(1) };
        let of = |last| Context::from_iter([crate::context::Range { life, first: 1, last }]);
        let mut transfer = Transfer::new(NodeId(1), Boot(1), true);
        transfer.start = Some(of(10));
        transfer.hears(NodeId(2), Boot(1), &of(9), &of(3));
        transfer.hears(NodeId(3), Boot(1), &of(12), &of(11));
        assert_eq!(transfer.sources.len(), 1);
        transfer.hears(NodeId(2), Boot(1), &of(10), &of(3));
        assert_eq!(transfer.sources.len(), 2);
    }
}
