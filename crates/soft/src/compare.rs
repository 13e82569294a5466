//! Whole states are compared, where ranges of updates say nothing: the other's index has forgotten what is missing here. A stretch of
//! addresses at a time the peer says what it has there as a sketch (`sketch.rs`); what is the same on both sides cancels out, and
//! the cells that differ are asked for. Both ends of a stretch are the peer's, its symbols are made anew for each question.
//!
//! ```text
//! SketchAsk   →   a stretch behind this address
//! Sketch      ←   its end, and symbols                   SketchAsk   →   more symbols, until the difference is known
//! PageAsk     →   the cells of the numbers that are missing here, of this stretch
//! Page        ←   those, and what was touched since the transfer began
//! ```
//!
//! What is missing here and goes, or is other, is in the page or was seen to end by the peer, as on a page of everything
//! (`repair.rs`); what is equal has come already. Where half of a stretch differs, it is sent whole.

use std::collections::BTreeSet;
use std::ops::Bound;

use base::checksum::{place_hash, place_hash_pair};
use base::{Boot, Frame, NodeId, Now};
use prost::Message;

use crate::cell::{Cell, Sibling, Slot};
use crate::dot::Dot;
use crate::fill::Ask;
use crate::limits::*;
use crate::machine::kind;
use crate::repair::address;
use crate::sketch::{Coded, coded, difference};
use crate::space::{Address, Odd, Space};
use crate::wire::{At, PageAsk, Sketch, SketchAsk, context, tell};
use crate::{Output, Soft};

/// What is asked for next in a transfer.
pub enum Step {
    /// A page of everything.
    Whole,
    Sketch(Stretch),
    /// The cells of a stretch that differ.
    Differs {
        until: Option<Address>,
        mine: BTreeSet<Address>,
        theirs: Vec<u64>,
    },
}

/// What the peer has said of a stretch.
#[derive(Default)]
pub struct Stretch {
    /// None before the first answer.
    told: Option<Told>,
    symbols: Vec<Coded>,
    /// So many more are asked for.
    wants: usize,
    /// How often the peer had changed something there between two answers.
    begun: u32,
}

struct Told {
    until: Option<Address>,
    sum: u64,
}

impl Step {
    /// A stretch of which nothing is known, where the one before took so many symbols.
    pub fn sketch(wants: usize) -> Self {
        Self::Sketch(Stretch { wants: wants.clamp(SKETCH_FIRST, SKETCH_MAX), ..Stretch::default() })
    }
}

/// What a cell is, in a sketch: equal numbers are equal cells, also in what no reader sees. Not when it ends, as that is told by what is
/// left; an end has a dot.
pub fn number(at: &Address, cell: &Cell) -> u64 {
    let mut bytes = Vec::with_capacity(160);
    let mut put = |numbers: &[u64]| numbers.iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    let dot = |dot: Dot| [dot.life.node.0, dot.life.boot.0, dot.seq];
    put(&[at.hash(), at.kind as u64, place_hash(&at.element), cell.siblings.len() as u64, cell.slots.len() as u64]);
    for Sibling { dot: of, stamp, value, sum, ends: _, held } in &cell.siblings {
        put(&dot(*of));
        put(&[stamp.ms, stamp.counter.into(), u64::from(value.is_some()) | u64::from(*held) << 1, (*sum).into()]);
    }
    for Slot { birth, last, inc, dec, cut_inc, cut_dec } in &cell.slots {
        put(&dot(*birth));
        put(&[last.seq, *inc, *dec, *cut_inc, *cut_dec]);
    }
    cell.gone.iter().for_each(|of| put(&dot(*of)));
    place_hash_pair(&bytes, 12)
}

impl Space {
    fn stretch<'a>(
        &'a self,
        after: Option<&'a Address>,
        until: Option<&'a Address>,
    ) -> impl Iterator<Item = (&'a Address, &'a Cell)> {
        let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.cells.range((lower, Bound::Unbounded)).take_while(move |(at, _)| until.is_none_or(|until| *at <= until))
    }
}

impl Soft {
    pub(crate) fn ask_sketch(&self, space: u32, nth: usize, out: &mut Vec<Output>) {
        let Some(transfer) = self.spaces.get(&space).and_then(|held| held.transfer.as_ref()) else { return };
        let Some(asked) = transfer.asks.get(nth) else { return };
        let Step::Sketch(stretch) = &asked.step else { return };
        let told = stretch.told.as_ref().filter(|_| !stretch.symbols.is_empty());
        let ask = SketchAsk {
            space,
            boot: asked.boot.0,
            ticket: asked.ticket,
            after: asked.after.as_ref().map(At::from),
            until: told.and_then(|told| told.until.as_ref()).map(At::from),
            from: stretch.symbols.len() as u32,
            count: stretch.wants as u32,
            cells: self.stretch_cells as u32,
            start: transfer.start.as_ref().map(tell).unwrap_or_default(),
        };
        out.push(Output::Send { to: asked.of, frame: Frame::new(kind::SKETCH_ASK, ask.encode_to_vec()) });
    }

    /// A peer compares what it has with what is here.
    pub(crate) fn sketch_ask(
        &mut self,
        now: Now,
        from: NodeId,
        ask: SketchAsk,
        out: &mut Vec<Output>,
    ) -> Result<(), Odd> {
        if Boot(ask.boot) != self.life.boot {
            return Ok(());
        }
        let (first, count) = (ask.from as usize, ask.count as usize);
        if first + count > SKETCH_MAX {
            return Err(Odd("more symbols of a sketch than there are"));
        }
        let (after, until) = (address(ask.after.clone())?, address(ask.until)?);
        let start = context(&ask.start).ok_or(Odd("a context of what nobody gives"))?;
        let Some(held) = self.spaces.get(&ask.space) else { return Ok(()) };
        let room = (ask.cells as usize).clamp(1, STRETCH_CELLS);
        let mut numbers = Vec::with_capacity(room.min(held.space.cells.len()));
        let mut last = None;
        let mut is_more = false;
        // Later questions are about the same stretch: if more than that has come since, the sum says that it is another set.
        let most = if first == 0 { room } else { 2 * room };
        for (at, cell) in held.space.stretch(after.as_ref(), until.as_ref()) {
            if numbers.len() >= most {
                is_more = true;
                break;
            }
            numbers.push(number(at, cell));
            last = Some(at);
        }
        let until = if first == 0 && is_more { last.cloned() } else { until };
        let symbols = coded(&numbers, first + count).split_off(first);
        let (cells, sum) = (numbers.len() as u32, numbers.iter().fold(0, |sum: u64, number| sum.wrapping_add(*number)));
        let context = tell(&held.space.context);
        let until = until.clone();
        // Before the first answer nothing has begun.
        let is_quiet = ask.start.is_empty()
            || self
                .served(now, from, ask.space, &start)
                .is_some_and(|served| !served.is_touched(after.as_ref(), until.as_ref()));
        let sketch = Sketch {
            space: ask.space,
            boot: ask.boot,
            ticket: ask.ticket,
            until: until.as_ref().map(At::from),
            cells,
            sum,
            from: ask.from,
            sums: symbols.iter().map(|symbol| symbol.sum).collect(),
            checks: symbols.iter().map(|symbol| symbol.check).collect(),
            counts: symbols.iter().map(|symbol| symbol.count).collect(),
            context,
            is_quiet,
        };
        out.push(Output::Send { to: from, frame: Frame::new(kind::SKETCH, sketch.encode_to_vec()) });
        Ok(())
    }

    pub(crate) fn sketch(&mut self, now: Now, from: NodeId, told: Sketch, out: &mut Vec<Output>) -> Result<(), Odd> {
        let until = address(told.until.clone())?;
        let known = context(&told.context).ok_or(Odd("a context of what nobody gives"))?;
        let ticket = self.rng.u64();
        let Some(held) = self.spaces.get_mut(&told.space) else { return Ok(()) };
        held.space.may_know(&known)?;
        let Some(transfer) = &mut held.transfer else { return Ok(()) };
        let is_awaited = |ask: &Ask| (ask.of, ask.boot, ask.ticket) == (from, Boot(told.boot), told.ticket);
        let Some(nth) = transfer.asks.iter().position(is_awaited) else { return Ok(()) };
        let ask = &mut transfer.asks[nth];
        let Step::Sketch(stretch) = &mut ask.step else { return Ok(()) };
        if told.from as usize != stretch.symbols.len() {
            return Ok(());
        }
        if until.is_some() && until <= ask.after {
            return Err(Odd("a stretch that leads nowhere"));
        }
        let more = symbols(&told).ok_or(Odd("half a symbol of a sketch"))?;
        if more.is_empty() || more.len() > stretch.wants {
            return Err(Odd("another number of symbols than was asked for"));
        }
        transfer.start.get_or_insert(known);
        (ask.ticket, ask.tries) = (ticket, 0);
        let is_other = stretch.told.as_ref().is_some_and(|before| before.until != until || before.sum != told.sum);
        if is_other && !stretch.symbols.is_empty() {
            // Something was written there meanwhile.
            let wants = (stretch.symbols.len() + stretch.wants).min(SKETCH_MAX);
            let begun = stretch.begun + 1;
            ask.step = match begun > STRETCH_BEGUN_MAX {
                true => Step::Whole,
                false => Step::Sketch(Stretch { wants, begun, ..Stretch::default() }),
            };
            self.ask_again(now, told.space, nth, out);
            return Ok(());
        }
        let cells = told.cells as usize;
        stretch.told = Some(Told { until: until.clone(), sum: told.sum });
        stretch.symbols.extend(more);
        let after = ask.after.clone();
        let here = || held.space.stretch(after.as_ref(), until.as_ref());
        let mine: Vec<u64> = here().take(4 * STRETCH_CELLS).map(|(at, cell)| number(at, cell)).collect();
        let found = match mine.len().abs_diff(cells) > cells / 2 + SKETCH_FIRST {
            true => None,
            false => difference(&stretch.symbols, &mine),
        };
        match found {
            Some(found) => {
                let differ = found.mine.len() + found.theirs.len();
                transfer.guess = differ + differ / 2;
                let numbers: BTreeSet<u64> = found.mine.iter().copied().collect();
                let differs: BTreeSet<Address> = match numbers.is_empty() {
                    true => BTreeSet::new(),
                    false => here()
                        .filter(|(at, cell)| numbers.contains(&number(at, cell)))
                        .map(|(at, _)| at.clone())
                        .collect(),
                };
                self.seen.differed += differ as u64;
                if differ == 0 && told.is_quiet {
                    return self.goes_on(now, told.space, nth, until, out);
                }
                ask.step = Step::Differs { until, mine: differs, theirs: found.theirs };
            }
            None if stretch.symbols.len() > cells / 2 || 2 * stretch.symbols.len() > SKETCH_MAX => {
                ask.step = Step::Whole;
            }
            None if mine.len().abs_diff(cells) > cells / 2 + SKETCH_FIRST => ask.step = Step::Whole,
            None => stretch.wants = stretch.symbols.len(),
        }
        self.ask_again(now, told.space, nth, out);
        Ok(())
    }
}

/// Of what a page has is only what differs wanted: is this one such?
pub(crate) struct Wanted(BTreeSet<u64>);

impl Wanted {
    pub fn of(ask: &PageAsk) -> Option<Self> {
        ask.differs.then(|| Self(ask.numbers.iter().copied().collect()))
    }

    pub fn has(&self, at: &Address, cell: &Cell) -> bool {
        self.0.contains(&number(at, cell))
    }
}

fn symbols(told: &Sketch) -> Option<Vec<Coded>> {
    let Sketch { sums, checks, counts, .. } = told;
    (sums.len() == checks.len() && sums.len() == counts.len()).then_some(())?;
    let each = sums.iter().zip(checks).zip(counts);
    Some(each.map(|((sum, check), count)| Coded { sum: *sum, check: *check, count: *count }).collect())
}
