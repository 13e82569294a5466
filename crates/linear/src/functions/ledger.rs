//! Ledgers. Objects are named by 32 hexadecimal digits, sets of numbers are written as `1:3,7`. Nothing (nil) is said of a folder that is
//! not there. What would change nothing is no change: it may be asked again at any time.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::*;
use crate::ledger::{
    self, Added, FOLDER_BYTES, Folder, ITEM_BYTES, Id, Item, Known, LEVEL, Ledger, MARKS_COUNTED, MARKS_MAX, Marking,
    New, REMOVED_BYTES, VALIDITY_ASKED_MAX,
};
use crate::limits::{
    LEDGER_ADDS_MAX, LEDGER_DELETED_AT_ONCE, LEDGER_FOLDERS_MAX, LEDGER_KEYWORDS_MAX, LEDGER_RANGES_MAX,
    LEDGER_STEP_MAX,
};

type Found<T> = std::result::Result<T, Wrong>;
type Numbers = Vec<RangeInclusive<u32>>;

const fn reads(name: &'static str, args: &'static str, run: fn(&Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, read(name, args, run))
}

const fn writes(name: &'static str, args: &'static str, run: fn(&mut Space, &Bytes, &[Bytes]) -> Result) -> Function {
    since(LEVEL, write(name, args, run))
}

pub const ALL: &[Function] = &[
    // Newest change, items, open removals, folders, keywords.
    reads("ledger.info", "", |space, key, args| {
        none(args)?;
        let Some(ledger) = of(space, key)? else { return Ok(Reply::Nil) };
        let folders = ledger.folders().map(|(id, folder)| shown_folder(id, folder)).collect();
        let keywords = ledger.keywords().iter().cloned().map(Reply::Bytes).collect();
        let numbers = [change_of(ledger), count(ledger.len()), count(ledger.open())];
        Ok(Reply::List(numbers.into_iter().chain([Reply::List(folders), Reply::List(keywords)]).collect()))
    }),
    // Its id, its validity, and whether it is new; nothing, if there is no room for one more.
    writes("ledger.folder.create", "name validity", |space, key, args| {
        let (name, validity) = two(args)?;
        let (name, validity) = (name_of(name)?, unsigned32(validity)?);
        if validity > VALIDITY_ASKED_MAX {
            return Err(Wrong::Arguments);
        }
        let made = |ledger: &Ledger, id: u32, is_new| {
            let validity = ledger.folder(id).map_or(0, |folder| folder.validity);
            Reply::List(vec![shown(id), shown(validity), flag(is_new)])
        };
        if let Some(ledger) = of(space, key)? {
            if let Some(id) = ledger.named(name) {
                return Ok(made(ledger, id, false));
            }
            if ledger.folders().len() >= LEDGER_FOLDERS_MAX || !ledger.has_ids() {
                return Ok(Reply::Nil);
            }
        }
        // Kept is not what an entry of many commands holds.
        let name = Bytes::copy_from_slice(name);
        change(space, key, name.len() + FOLDER_BYTES, |ledger| {
            let id = ledger.create(name, validity);
            made(ledger, id, true)
        })
    }),
    writes("ledger.folder.rename", "FOLDER name", |space, key, args| {
        let (folder, name) = two(args)?;
        let (folder, name) = (unsigned32(folder)?, name_of(name)?);
        let Some((ledger, of)) = folder_of(space, key, folder)? else { return Ok(word("absent")) };
        match ledger.named(name) {
            Some(id) if id == folder => return Ok(word("done")),
            Some(_) => return Ok(word("taken")),
            None => (),
        }
        let (name, more) = (Bytes::copy_from_slice(name), name.len().saturating_sub(of.name.len()));
        change(space, key, more, |ledger| {
            ledger.rename(folder, name);
            word("done")
        })
    }),
    // `more`: it had many items, some are removed, and it is to be said again. The first folder is `kept`.
    writes("ledger.folder.delete", "FOLDER", |space, key, args| {
        let folder = unsigned32(one(args)?)?;
        let Some((ledger, _)) = folder_of(space, key, folder)? else { return Ok(word("absent")) };
        if ledger.first() == Some(folder) {
            return Ok(word("kept"));
        }
        change(space, key, 0, |ledger| {
            word(if ledger.delete(folder, LEDGER_DELETED_AT_ONCE) { "done" } else { "more" })
        })
    }),
    writes("ledger.folder.subscribe", "FOLDER yes|no", |space, key, args| {
        let (folder, yes) = two(args)?;
        let (folder, yes) = (unsigned32(folder)?, yes_or_no(yes)?);
        match folder_of(space, key, folder)? {
            None => Ok(word("absent")),
            Some((_, folder)) if folder.is_subscribed == yes => Ok(word("done")),
            Some(_) => change(space, key, 0, |ledger| {
                ledger.subscribe(folder, yes);
                word("done")
            }),
        }
    }),
    // For each: `new` or `had` with its folder and number, `gone`, or `nowhere` if there is no folder at all.
    writes("ledger.add", "(object FOLDER SIZE DATE MARKS)...", |space, key, args| {
        some(args)?;
        if !args.len().is_multiple_of(ADD_ARGS) || args.len() > ADD_ARGS * LEDGER_ADDS_MAX {
            return Err(Wrong::Arguments);
        }
        let items = args.chunks_exact(ADD_ARGS).map(new_of).collect::<Found<Vec<_>>>()?;
        let Some(ledger) = of(space, key)? else {
            return Ok(Reply::List(items.iter().map(|_| Reply::List(vec![word("nowhere")])).collect()));
        };
        let known = |new: &New| ledger.known(new.object, ledger.target(new.folder).unwrap_or(new.folder));
        let fresh: Vec<&New> = items.iter().filter(|new| known(new) == Known::No).collect();
        if fresh.is_empty() || ledger.first().is_none() {
            return Ok(Reply::List(items.iter().map(|new| shown_added(&Added::Known(known(new)))).collect()));
        }
        let mut wanted = BTreeMap::new();
        fresh.iter().filter_map(|new| ledger.target(new.folder)).for_each(|to| *wanted.entry(to).or_insert(0) += 1);
        has_numbers(ledger, wanted)?;
        let more = fresh.len() * ITEM_BYTES;
        change(space, key, more, |ledger| Reply::List(ledger.add(items).iter().map(shown_added).collect()))
    }),
    // The change, those with other marks now, those that had changed since, and where to go on (0: nowhere).
    writes("ledger.mark", "FOLDER SINCE|any add|remove|set MARKS NUMBERS", |space, key, args| {
        let [folder, since, how, marks, numbers] = args else { return Err(Wrong::Arguments) };
        let (folder, marks, numbers) = (unsigned32(folder)?, marks_of(marks)?, numbers_of(numbers)?);
        let since = if &since[..] == b"any" { None } else { Some(unsigned(since)?) };
        let how = match &how[..] {
            b"add" => Marking::Add,
            b"remove" => Marking::Remove,
            b"set" => Marking::Set,
            _ => return Err(Wrong::Arguments),
        };
        let Some((ledger, _)) = folder_of(space, key, folder)? else { return Ok(Reply::Nil) };
        let (items, rest) = step_of(ledger, folder, &numbers, |_| true);
        let (mut marked, mut conflicts) = (Vec::new(), Ranges::default());
        for item in items {
            match how.of(item.marks, marks) {
                _ if since.is_some_and(|since| item.change > since) => conflicts.add(item.number),
                now if now != item.marks => marked.push((item.number, now)),
                _ => (),
            }
        }
        let (conflicts, now) = (conflicts.shown(), change_of(ledger));
        let changed = ranges(marked.iter().map(|(number, _)| *number));
        let reply = |change| Reply::List(vec![change, changed, conflicts, shown(rest)]);
        if marked.is_empty() {
            return Ok(reply(now));
        }
        change(space, key, 0, |ledger| {
            ledger.mark(folder, &marked);
            reply(change_of(ledger))
        })
    }),
    // The change, the number here and the number there for each, and where to go on (0: nowhere).
    writes("ledger.copy", "FROM TO NUMBERS", |space, key, args| carry(space, key, args, false)),
    writes("ledger.move", "FROM TO NUMBERS", |space, key, args| carry(space, key, args, true)),
    // Of those with all these marks: the change, numbers, objects that have no item any more, where to go on (0: nowhere).
    writes("ledger.remove", "FOLDER MARKS NUMBERS", |space, key, args| {
        let [folder, marks, numbers] = args else { return Err(Wrong::Arguments) };
        let (folder, marks, numbers) = (unsigned32(folder)?, marks_of(marks)?, numbers_of(numbers)?);
        let Some((ledger, _)) = folder_of(space, key, folder)? else { return Ok(Reply::Nil) };
        let (items, rest) = step_of(ledger, folder, &numbers, |item| item.marks & marks == marks);
        let items: Vec<u32> = items.iter().map(|item| item.number).collect();
        let (now, removed) = (change_of(ledger), ranges(items.iter().copied()));
        let reply = |change, objects| Reply::List(vec![change, removed, ids(objects), shown(rest)]);
        if items.is_empty() {
            return Ok(reply(now, Vec::new()));
        }
        change(space, key, 0, |ledger| {
            let objects = ledger.remove(items.into_iter().map(|number| (folder, number)));
            reply(change_of(ledger), objects)
        })
    }),
    // Wherever they are: the change, and how many items there were.
    writes("ledger.remove-objects", "object...", |space, key, args| {
        let objects = ids_of(args)?;
        let Some(ledger) = of(space, key)? else { return Ok(Reply::List(vec![count(0), count(0)])) };
        let items: BTreeSet<(u32, u32)> = objects.iter().flat_map(|object| ledger.places(*object)).collect();
        if items.is_empty() {
            return Ok(Reply::List(vec![change_of(ledger), count(0)]));
        }
        change(space, key, 0, |ledger| {
            let removed = count(items.len());
            ledger.remove(items);
            Reply::List(vec![change_of(ledger), removed])
        })
    }),
    // The change, items, where to go on (0: nowhere). An item: number, object, marks, change, size, date.
    reads("ledger.list", "FOLDER FROM count", |space, key, args| {
        let [folder, from, limit] = args else { return Err(Wrong::Arguments) };
        let (folder, from, limit) = (unsigned32(folder)?, unsigned32(from)?, limit_of(limit)?);
        let Some((ledger, _)) = folder_of(space, key, folder)? else { return Ok(Reply::Nil) };
        let (items, rest) = page_of(ledger.items(folder, from..=u32::MAX), limit);
        Ok(Reply::List(vec![change_of(ledger), items, rest]))
    }),
    // The change, the next number, and those that there are.
    reads("ledger.numbers", "FOLDER", |space, key, args| {
        let folder = unsigned32(one(args)?)?;
        let Some((ledger, of)) = folder_of(space, key, folder)? else { return Ok(Reply::Nil) };
        let numbers = ranges(ledger.items(folder, 0..=u32::MAX).map(|item| item.number));
        Ok(Reply::List(vec![change_of(ledger), Reply::Int(of.next as i64), numbers]))
    }),
    // The change, items that came or were marked after another one, those removed, where to go on (0: nowhere). `old`: not all is known.
    reads("ledger.changes", "FOLDER SINCE FROM count", |space, key, args| {
        let [folder, since, from, limit] = args else { return Err(Wrong::Arguments) };
        let (folder, since, from) = (unsigned32(folder)?, unsigned(since)?, unsigned32(from)?);
        let limit = limit_of(limit)?;
        let Some((ledger, of)) = folder_of(space, key, folder)? else { return Ok(Reply::Nil) };
        if since < of.floor {
            return Ok(word("old"));
        }
        let (items, rest) = page_of(ledger.newer(folder, from, since), limit);
        let mut removed: Vec<u32> = ledger.removed(folder, since).collect();
        removed.sort_unstable();
        Ok(Reply::List(vec![change_of(ledger), items, ranges(removed.into_iter()), rest]))
    }),
    // For each: folders and numbers in turn, or `gone`, or nothing if it is not known.
    reads("ledger.find", "object...", |space, key, args| {
        let (objects, ledger) = (ids_of(args)?, of(space, key)?);
        let find = |object: &Id| match ledger.map_or(Known::No, |ledger| ledger.known(*object, 0)) {
            Known::No => Vec::new(),
            Known::Gone => vec![word("gone")],
            Known::Has { .. } => {
                let places = ledger.into_iter().flat_map(|ledger| ledger.places(*object));
                places.flat_map(|(folder, number)| [shown(folder), shown(number)]).collect()
            }
        };
        Ok(Reply::List(objects.iter().map(|object| Reply::List(find(object))).collect()))
    }),
    // Objects that have no item any more and are not closed, in order.
    reads("ledger.open", "first|after object count", |space, key, args| {
        let [how, after, limit] = args else { return Err(Wrong::Arguments) };
        let (after, limit) = (id_of(after)?, limit_of(limit)?);
        let from = match &how[..] {
            b"first" => [0; 16],
            b"after" => after,
            _ => return Err(Wrong::Arguments),
        };
        let open = of(space, key)?.into_iter().flat_map(|ledger| ledger.open_from(from));
        let open = open.filter(|object| &how[..] == b"first" || *object != after);
        Ok(ids(open.take(limit).collect()))
    }),
    // How many of them were open.
    writes("ledger.close", "object...", |space, key, args| {
        let objects = ids_of(args)?;
        let is_open = |ledger: &Ledger| objects.iter().any(|object| ledger.is_open(*object));
        if !of(space, key)?.is_some_and(is_open) {
            return Ok(count(0));
        }
        let clock = space.clock();
        change(space, key, 0, |ledger| count(ledger.close(&objects, clock)))
    }),
    // If this is still the change: an older state was loaded. The one of now.
    writes("ledger.skip", "CHANGE", |space, key, args| {
        let seen = unsigned(one(args)?)?;
        match of(space, key)? {
            None => Ok(count(0)),
            Some(ledger) if ledger.change > seen => Ok(change_of(ledger)),
            Some(_) => change(space, key, 0, |ledger| {
                ledger.skip();
                change_of(ledger)
            }),
        }
    }),
    // The mark that each has now; nothing, where no mark is left.
    writes("ledger.keywords", "name...", |space, key, args| {
        some(args)?;
        if args.len() > LEDGER_KEYWORDS_MAX {
            return Err(Wrong::Arguments);
        }
        let Some(ledger) = of(space, key)? else { return Ok(Reply::List(vec![Reply::Nil; args.len()])) };
        let (mut all, mut fresh) = (ledger.keywords().to_vec(), Vec::new());
        for name in args {
            name_of(name)?;
            if !all.contains(name) && all.len() < LEDGER_KEYWORDS_MAX {
                fresh.push(Bytes::copy_from_slice(name));
                all.push(name.clone());
            }
        }
        let mark = |name: &Bytes| all.iter().position(|known| known == name).map(|at| count(MARKS_COUNTED + at));
        let reply = Reply::List(args.iter().map(|name| mark(name).unwrap_or(Reply::Nil)).collect());
        if fresh.is_empty() {
            return Ok(reply);
        }
        let more = fresh.iter().map(|name| name.len() + crate::value::ITEM_BYTES).sum();
        change(space, key, more, |ledger| {
            fresh.into_iter().for_each(|name| ledger.name(name));
            reply
        })
    }),
];

/// Arguments of an item to be added.
const ADD_ARGS: usize = 5;
const _: () = assert!(MARKS_COUNTED + LEDGER_KEYWORDS_MAX <= MARKS_MAX, "each keyword has a mark");

fn carry(space: &mut Space, key: &Bytes, args: &[Bytes], moves: bool) -> Result {
    let [from, to, numbers] = args else { return Err(Wrong::Arguments) };
    let (from, to, numbers) = (unsigned32(from)?, unsigned32(to)?, numbers_of(numbers)?);
    let Some((ledger, _)) = folder_of(space, key, from)? else { return Ok(Reply::Nil) };
    if ledger.folder(to).is_none() {
        return Ok(Reply::Nil);
    }
    let (items, rest) = step_of(ledger, from, &numbers, |_| true);
    let fresh =
        items.iter().filter(|item| !matches!(ledger.known(item.object, to), Known::Has { folder, .. } if folder == to));
    let fresh = fresh.count();
    let now = change_of(ledger);
    let reply = |change, pairs: Vec<(u32, u32)>| {
        let pairs = pairs.into_iter().flat_map(|(here, there)| [shown(here), shown(there)]).collect();
        Reply::List(vec![change, Reply::List(pairs), shown(rest)])
    };
    if items.is_empty() || fresh == 0 && (from == to || !moves) {
        let there = |item: &&Item| match ledger.known(item.object, to) {
            Known::Has { number, .. } => (item.number, number),
            Known::Gone | Known::No => unreachable!("it is in this folder"),
        };
        return Ok(reply(now, items.iter().map(there).collect()));
    }
    has_numbers(ledger, [(to, fresh as u64)].into())?;
    let items: Vec<u32> = items.iter().map(|item| item.number).collect();
    let more = fresh * if moves { REMOVED_BYTES } else { ITEM_BYTES };
    change(space, key, more, |ledger| {
        let pairs = ledger.carry(from, to, &items, moves);
        reply(change_of(ledger), pairs)
    })
}

fn of<'a>(space: &'a Space, key: &[u8]) -> Found<Option<&'a Ledger>> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Ledger(ledger)) => Ok(Some(ledger)),
        Some(_) => Err(Wrong::Type),
    }
}

fn folder_of<'a>(space: &'a Space, key: &[u8], folder: u32) -> Found<Option<(&'a Ledger, &'a Folder)>> {
    Ok(of(space, key)?.and_then(|ledger| Some(ledger).zip(ledger.folder(folder))))
}

fn change(space: &mut Space, key: &Bytes, more: usize, act: impl FnOnce(&mut Ledger) -> Reply) -> Result {
    space.change(key, Value::Ledger(Arc::default()), more, |value, size| match value {
        Value::Ledger(ledger) => {
            let reply = act(Arc::make_mut(ledger));
            *size = ledger.bytes();
            Ok(reply)
        }
        _ => Err(Wrong::Type),
    })
}

/// Items of a folder that a call is about, not more than it may do; and the number of the next one, or 0.
fn step_of<'a>(
    ledger: &'a Ledger,
    folder: u32,
    numbers: &Numbers,
    wanted: impl Fn(&Item) -> bool,
) -> (Vec<&'a Item>, u32) {
    let mut items = Vec::new();
    for range in numbers {
        for item in ledger.items(folder, range.clone()).filter(|item| wanted(item)) {
            if items.len() == LEDGER_STEP_MAX {
                return (items, item.number);
            }
            items.push(item);
        }
    }
    (items, 0)
}

fn page_of<'a>(items: impl Iterator<Item = &'a Item>, limit: usize) -> (Reply, Reply) {
    let mut items = items.peekable();
    let page = items.by_ref().take(limit).map(shown_item).collect();
    (Reply::List(page), shown(items.peek().map_or(0, |item| item.number)))
}

fn has_numbers(ledger: &Ledger, wanted: BTreeMap<u32, u64>) -> Found<()> {
    let has = |(folder, count): (u32, u64)| ledger.folder(folder).is_some_and(|folder| folder.room() >= count);
    if wanted.into_iter().all(has) { Ok(()) } else { Err(Wrong::Overflow) }
}

// Arguments.

fn unsigned32(arg: &[u8]) -> Found<u32> {
    u32::try_from(unsigned(arg)?).map_err(|_| Wrong::NotANumber)
}

fn limit_of(arg: &[u8]) -> Found<usize> {
    Ok(unsigned(arg)?.clamp(1, SCAN_KEYS_MAX) as usize)
}

fn marks_of(arg: &[u8]) -> Found<u64> {
    unsigned(arg)
}

fn name_of(arg: &Bytes) -> Found<&[u8]> {
    if ledger::is_name(arg) { Ok(arg) } else { Err(Wrong::Arguments) }
}

fn yes_or_no(arg: &[u8]) -> Found<bool> {
    match arg {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Wrong::Arguments),
    }
}

fn id_of(arg: &[u8]) -> Found<Id> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8).ok_or(Wrong::Arguments);
    if arg.len() != 2 * size_of::<Id>() {
        return Err(Wrong::Arguments);
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(arg.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(id)
}

fn ids_of(args: &[Bytes]) -> Found<Vec<Id>> {
    some(args)?;
    if args.len() > LEDGER_ADDS_MAX {
        return Err(Wrong::Arguments);
    }
    args.iter().map(|arg| id_of(arg)).collect()
}

fn new_of(args: &[Bytes]) -> Found<New> {
    let [object, folder, size, date, marks] = args else { return Err(Wrong::Arguments) };
    Ok(New {
        object: id_of(object)?,
        folder: unsigned32(folder)?,
        size: unsigned32(size)?,
        date: unsigned32(date)?,
        marks: marks_of(marks)?,
    })
}

/// Ranges in order, none of which meets another.
fn numbers_of(arg: &[u8]) -> Found<Numbers> {
    let number = |text: &[u8]| unsigned32(text).ok().filter(|number| *number > 0).ok_or(Wrong::Arguments);
    let mut numbers: Numbers = Vec::new();
    for part in arg.split(|byte| *byte == b',').filter(|_| !arg.is_empty()) {
        let at = part.iter().position(|byte| *byte == b':');
        let (from, to) = at.map_or((part, part), |at| (&part[..at], &part[at + 1..]));
        let (from, to) = (number(from)?, number(to)?);
        let follows = numbers.last().is_none_or(|last| *last.end() < from);
        if from > to || !follows || numbers.len() == LEDGER_RANGES_MAX {
            return Err(Wrong::Arguments);
        }
        numbers.push(from..=to);
    }
    Ok(numbers)
}

// Replies.

fn word(word: &'static str) -> Reply {
    Reply::Bytes(Bytes::from_static(word.as_bytes()))
}

fn shown(number: u32) -> Reply {
    Reply::Int(number.into())
}

fn change_of(ledger: &Ledger) -> Reply {
    Reply::Int(ledger.change as i64)
}

fn id(id: &Id) -> Reply {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]);
    Reply::Bytes(digits.collect::<Vec<u8>>().into())
}

fn ids(all: Vec<Id>) -> Reply {
    Reply::List(all.iter().map(id).collect())
}

fn shown_item(item: &Item) -> Reply {
    let numbers = [item.marks as i64, item.change as i64, item.size.into(), item.date.into()];
    let (number, object) = (shown(item.number), id(&item.object));
    Reply::List([number, object].into_iter().chain(numbers.map(Reply::Int)).collect())
}

fn shown_added(added: &Added) -> Reply {
    let place = |what, folder, number| Reply::List(vec![word(what), shown(folder), shown(number)]);
    match *added {
        Added::New { folder, number } => place("new", folder, number),
        Added::Known(Known::Has { folder, number }) => place("had", folder, number),
        Added::Known(Known::Gone) => Reply::List(vec![word("gone")]),
        Added::Known(Known::No) => Reply::List(vec![word("nowhere")]),
    }
}

/// Id, name, validity, next number, newest change, items, their bytes, floor, whether it is subscribed, all marks, items with each of
/// the first marks.
fn shown_folder(id: u32, folder: &Folder) -> Reply {
    let Folder { next, changed, floor, marks, bytes, .. } = folder;
    let marked = folder.marked.iter().map(|count| shown(*count)).collect();
    Reply::List(vec![
        shown(id),
        Reply::Bytes(folder.name.clone()),
        shown(folder.validity),
        Reply::Int(*next as i64),
        Reply::Int(*changed as i64),
        shown(folder.count),
        Reply::Int(*bytes as i64),
        Reply::Int(*floor as i64),
        flag(folder.is_subscribed),
        Reply::Int(*marks as i64),
        Reply::List(marked),
    ])
}

/// Writes numbers that come in order as ranges.
#[derive(Default)]
struct Ranges {
    text: String,
    last: Option<(u32, u32)>,
}

impl Ranges {
    fn add(&mut self, number: u32) {
        match &mut self.last {
            Some((_, to)) if *to + 1 == number => *to = number,
            last => {
                let before = last.replace((number, number));
                self.write(before);
            }
        }
    }

    fn write(&mut self, range: Option<(u32, u32)>) {
        let Some((from, to)) = range else { return };
        let comma = if self.text.is_empty() { "" } else { "," };
        self.text += &if from == to { format!("{comma}{from}") } else { format!("{comma}{from}:{to}") };
    }

    fn shown(mut self) -> Reply {
        self.write(self.last);
        Reply::Bytes(self.text.into())
    }
}

fn ranges(numbers: impl Iterator<Item = u32>) -> Reply {
    let mut ranges = Ranges::default();
    numbers.for_each(|number| ranges.add(number));
    ranges.shown()
}
