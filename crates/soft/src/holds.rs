//! For the fuzz crate: bytes of outside, read as this class reads them, and what must be so of whatever they are. Each says whether they
//! were understood.

use std::collections::BTreeSet;

use base::{Boot, NodeId, Now};
use bytes::Bytes;

use crate::checkpoint;
use crate::claims::{self, Weighed};
use crate::context::{Context, Range};
use crate::dot::{Dot, Life};
use crate::machine::kind;
use crate::sketch::{Coded, coded, difference};
use crate::space::Space;
use crate::watch::Cursor;
use crate::wire::{
    ACell, Ack, At, Cells, Digest, Have, Kept, Mend, Page, PageAsk, Parts, Push, Ranges, Relay, Sketch, SketchAsk,
    Whole, context, pairs, tell,
};
use crate::words::{AReply, AnAction, Call, Called};

/// All kinds of frames of the class.
pub const FRAMES: [u16; 14] = [
    kind::DIGEST,
    kind::HAVE,
    kind::ACK,
    kind::PAGE_ASK,
    kind::PARTS,
    kind::SKETCH_ASK,
    kind::PUSH,
    kind::CELLS,
    kind::PAGE,
    kind::MEND,
    kind::SKETCH,
    kind::CALL,
    kind::CALLED,
    kind::RELAY,
];

/// Updates that records of a checkpoint may name in a test: a real one may name so many that their index has gigabytes.
const COVERED_MAX: u64 = 1 << 12;

/// A message of this kind. What is understood of one is what would be sent again.
///
/// # Panics
/// If a promise is broken.
pub fn wire(of: u16, head: &Bytes, now: Now) -> bool {
    match of {
        kind::DIGEST => read::<Digest>(head).is_some(),
        kind::HAVE => read::<Have>(head)
            .is_some_and(|have| [have.context, have.floor, have.kept].iter().all(|told| is_context(told))),
        kind::ACK => read::<Ack>(head).is_some_and(|ack| pairs(NOBODY, &ack.bounds).is_some()),
        kind::PAGE_ASK => read::<PageAsk>(head)
            .is_some_and(|ask| is_context(&ask.start) && [ask.after, ask.until].into_iter().flatten().all(is_address)),
        kind::PARTS => read::<Parts>(head).is_some_and(|parts| parts.only.into_iter().all(is_address)),
        kind::SKETCH_ASK => read::<SketchAsk>(head)
            .is_some_and(|ask| is_context(&ask.start) && [ask.after, ask.until].into_iter().flatten().all(is_address)),
        kind::PUSH => read::<Push>(head)
            .is_some_and(|push| push.deltas.into_iter().all(|delta| is_address(delta.at) && is_cell(delta.part, now))),
        kind::CELLS => {
            read::<Cells>(head).is_some_and(|cells| is_context(&cells.context) && are_whole(cells.cells, now))
        }
        kind::PAGE => read::<Page>(head)
            .is_some_and(|page| is_context(&page.context) && is_context(&page.floor) && are_whole(page.cells, now)),
        kind::MEND => read::<Mend>(head).is_some_and(|mend| is_context(&mend.context) && are_whole(mend.cells, now)),
        kind::SKETCH => read::<Sketch>(head).is_some_and(|told| is_context(&told.context)),
        kind::RELAY => read::<Relay>(head).is_some_and(|relay| wire(kind::PUSH, &relay.push, now)),
        kind::CALL => read::<Call>(head).is_some_and(|call| {
            let action = call.action.read();
            if let Some(again) = action.as_ref().and_then(AnAction::of) {
                assert_eq!(again.read(), action, "another operation would be passed on");
            }
            action.is_some()
        }),
        kind::CALLED => read::<Called>(head).is_some_and(|called| {
            let answer = called.reply.read();
            if let Some(answer) = &answer {
                assert_eq!(AReply::of(answer).read().as_ref(), Some(answer), "another answer would be passed on");
            }
            answer.is_some()
        }),
        _ => false,
    }
}

/// A cursor of a reader of changes.
///
/// # Panics
/// If what is understood of it is not what it would be told as.
pub fn cursor(bytes: &Bytes, space: u32) -> bool {
    let Some(cursor) = Cursor::read(bytes, space) else { return false };
    assert_eq!(Cursor::read(&cursor.text(space), space), Some(cursor), "another cursor");
    true
}

/// Records of a checkpoint, in order: whatever they are, a node starts, and says what it has.
///
/// # Panics
/// If what was put back would be told as something else.
pub fn kept(records: Vec<Bytes>, now: Now) -> bool {
    let covered = |range: &Ranges| {
        let (pairs, _) = range.bounds.as_chunks::<2>();
        pairs.iter().fold(0u64, |sum, [first, last]| sum.saturating_add(last.saturating_sub(*first)))
    };
    let of = |record: &Bytes| claims::read::<Kept>(record.clone()).map_or(Vec::new(), |kept| kept.cells);
    let covers: Vec<Ranges> = records.iter().flat_map(of).flat_map(|whole| whole.covers).collect();
    if covers.iter().map(covered).fold(0, u64::saturating_add) > COVERED_MAX {
        return false;
    }
    let mut space = Space::new(Life { node: NodeId(9), boot: Boot(9) });
    let Ok(Some(_)) = checkpoint::restore(now, &mut space, records) else { return false };
    for (at, cell) in space.cells.iter() {
        assert_eq!(ACell::of(cell, now.mono).read(now.mono).as_ref(), Some(cell), "another cell at {at:?}");
    }
    for (dot, _) in space.index.iter() {
        assert!(space.context.contains(*dot) && !space.floor.contains(*dot), "{dot:?} is nobody's");
    }
    true
}

/// Symbols and numbers: the difference of two sets is exact, or it is none, also of symbols that nobody made.
///
/// # Panics
/// If it is another one.
pub fn sketch(mine: &BTreeSet<u64>, theirs: &BTreeSet<u64>, forged: &[(u64, u64, i64)], length: usize) -> bool {
    let list = |set: &BTreeSet<u64>| set.iter().copied().collect::<Vec<u64>>();
    let found = difference(&coded(&list(theirs), length), &list(mine));
    if let Some(found) = &found {
        let sorted = |of: &[u64]| of.iter().copied().collect::<BTreeSet<u64>>();
        assert_eq!(sorted(&found.mine), mine - theirs, "what only this one has");
        assert_eq!(sorted(&found.theirs), theirs - mine, "what only the other has");
    }
    let forged: Vec<Coded> =
        forged.iter().map(|(sum, check, count)| Coded { sum: *sum, check: *check, count: *count }).collect();
    if let Some(of) = difference(&forged, &list(mine)) {
        assert!(of.mine.len() + of.theirs.len() <= forged.len(), "more than so many symbols can tell");
    }
    found.is_some()
}

/// Contexts, as two peers tell them: their algebra is that of sets.
///
/// # Panics
/// If it is not.
pub fn contexts(one: &Bytes, other: &Bytes) -> bool {
    let told = |bytes: &Bytes| claims::read::<Have>(bytes.clone()).ok().and_then(|have| context(&have.context));
    let (Some(a), Some(b)) = (told(one), told(other)) else { return false };
    let (alone, both) = (a.minus(&b).into_iter().collect::<Context>(), a.meet(&b));
    let mut joined = a.clone();
    joined.join(&b);
    let mut again = b.clone();
    again.join(&a);
    assert_eq!(joined, again, "joined from either side");
    assert_eq!(both, b.meet(&a), "what is in both, from either side");
    assert!(both.is_within(&a) && both.is_within(&b) && a.is_within(&joined) && alone.is_within(&a));
    // About each border of either, also of lives that are folded.
    let borders = [&a, &b].into_iter().flat_map(Context::ranges);
    let borders =
        borders.flat_map(|Range { life, first, last }| [first - 1, first, last, last + 1].map(|seq| Dot { life, seq }));
    for dot in borders.filter(|dot| dot.seq > 0) {
        let (in_a, in_b) = (a.contains(dot), b.contains(dot));
        assert_eq!((both.contains(dot), joined.contains(dot)), (in_a && in_b, in_a || in_b), "{dot:?}");
        assert!(!alone.contains(dot) || in_a && !in_b, "{dot:?} is in both");
    }
    let mut without = a.clone();
    b.ranges().for_each(|range| without.remove_range(range));
    assert!(without.ranges().all(|range| a.contains(Dot { life: range.life, seq: range.first })));
    true
}

/// For what tells ranges of a life that is known otherwise.
const NOBODY: Life = Life { node: NodeId(1), boot: Boot(1) };

fn read<M: Weighed + PartialEq + std::fmt::Debug>(head: &Bytes) -> Option<M> {
    let message = claims::read::<M>(head.clone()).ok()?;
    let again = claims::read::<M>(message.encode_to_vec().into()).expect("our own bytes are a message");
    assert_eq!(again, message, "another message would be sent");
    Some(message)
}

fn is_context(told: &[Ranges]) -> bool {
    let Some(read) = context(told) else { return false };
    assert_eq!(context(&tell(&read)), Some(read), "another context");
    true
}

fn is_address(told: At) -> bool {
    let Some(at) = told.read() else { return false };
    assert_eq!(At::from(&at).read(), Some(at), "another address");
    true
}

fn is_cell(told: ACell, now: Now) -> bool {
    let Some(cell) = told.read(now.mono) else { return false };
    assert_eq!(ACell::of(&cell, now.mono).read(now.mono), Some(cell), "another cell");
    true
}

fn are_whole(cells: Vec<Whole>, now: Now) -> bool {
    cells.into_iter().all(|Whole { at, cell, covers }| is_address(at) && is_cell(cell, now) && is_context(&covers))
}
