//! Ledgers by script, and by chance against a ledger that anybody can follow.

use std::collections::{BTreeMap, BTreeSet};

use base::Rng;
use cluster::raft::State as _;

use super::*;
use crate::limits::*;

/// One space, whose key `ann` is a ledger. It asks by name, as front doors do.
#[derive(Default)]
pub(super) struct Desk {
    pub space: Space,
}

impl Desk {
    pub fn ask(&mut self, name: &str, args: &[&str]) -> Reply {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        self.ask_with(name, &args)
    }

    fn ask_with(&mut self, name: &str, args: &[Bytes]) -> Reply {
        let key = Bytes::from_static(b"ann");
        let result = match find(name).unwrap_or_else(|| panic!("{name} is in the list")).run {
            Run::Read(run) => run(&self.space, &key, args),
            Run::Write(run) => run(&mut self.space, &key, args),
        };
        let sizes = self.space.map().from(b"").all(|(_, entry)| entry.size == entry.value.bytes());
        assert!(sizes, "sizes kept are sizes counted: {name}");
        result.unwrap_or_else(Reply::Wrong)
    }

    pub fn says(&mut self, name: &str, args: &str) -> String {
        said(&self.ask(name, &args.split_whitespace().collect::<Vec<_>>()))
    }

    fn version(&self) -> u64 {
        self.space.get(b"ann").map_or(0, |entry| entry.version)
    }

    pub fn ledger(&self) -> &crate::ledger::Ledger {
        let Value::Ledger(ledger) = &self.space.get(b"ann").expect("it was made").value else { panic!("no ledger") };
        ledger
    }
}

/// Replies as texts: `-` is nothing.
pub(super) fn said(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "-".into(),
        Reply::Int(number) => number.to_string(),
        Reply::Bytes(bytes) if bytes.is_empty() => "''".into(),
        Reply::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Reply::List(list) => format!("[{}]", list.iter().map(said).collect::<Vec<_>>().join(" ")),
        Reply::Wrong(wrong) => wrong.why().into(),
    }
}

pub(super) fn id(n: u32) -> String {
    format!("{n:032x}")
}

fn check(script: &[(&str, &str, &str)]) {
    let mut desk = Desk::default();
    for (name, args, expect) in script {
        // `#7` is the object 7.
        let args =
            args.split_whitespace().map(|arg| arg.strip_prefix('#').map_or(arg.into(), |n| id(n.parse().unwrap())));
        let args: Vec<String> = args.collect();
        let before = desk.version();
        let reply = said(&desk.ask(name, &args.iter().map(String::as_str).collect::<Vec<_>>()));
        let reply = (0..=9).fold(reply, |text, n| text.replace(&id(n), &format!("#{n}")));
        assert_eq!(reply, *expect, "{name} {args:?}");
        // Whoever says it again changes nothing, but for a step of what is large.
        let again = desk.version();
        if !["ledger.folder.delete", "ledger.move"].contains(name) {
            desk.ask(name, &args.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(desk.version(), again, "{name} {args:?} is done again");
        }
        assert!(again >= before);
    }
}

#[test]
fn folders_and_items() {
    check(&[
        ("ledger.info", "", "-"),
        ("ledger.add", "#1 1 10 100 0 #2 1 10 100 0", "[[nowhere] [nowhere]]"),
        ("ledger.list", "1 0 10", "-"),
        ("ledger.find", "#1", "[[]]"),
        ("ledger.folder.create", "INBOX 1000", "[1 1000 1]"),
        ("type", "", "ledger"),
        ("get", "", Wrong::Type.why()),
        ("ledger.folder.create", "Trash 900", "[2 1001 1]"),
        ("ledger.folder.create", "Sent 4000", "[3 4000 1]"),
        ("ledger.add", "#1 1 10 100 0 #2 7 20 101 1 #1 2 10 100 0", "[[new 1 1] [new 1 2] [had 1 1]]"),
        ("ledger.add", "#3 2 30 102 2", "[[new 2 1]]"),
        ("ledger.list", "1 0 10", "[5 [[1 #1 0 4 10 100] [2 #2 1 4 20 101]] 0]"),
        ("ledger.list", "1 2 1", "[5 [[2 #2 1 4 20 101]] 0]"),
        ("ledger.list", "1 0 1", "[5 [[1 #1 0 4 10 100]] 2]"),
        ("ledger.copy", "1 2 2", "[6 [2 2] 0]"),
        ("ledger.copy", "1 1 1:9", "[6 [1 1 2 2] 0]"),
        ("ledger.copy", "1 9 1", "-"),
        ("ledger.find", "#2 #9 #3", "[[1 2 2 2] [] [2 1]]"),
        ("ledger.mark", "1 any add 8 1:4", "[7 1:2 '' 0]"),
        ("ledger.mark", "1 6 add 16 1:4", "[7 '' 1:2 0]"),
        ("ledger.mark", "1 7 set 3 2", "[8 2 '' 0]"),
        ("ledger.numbers", "1", "[8 3 1:2]"),
        ("ledger.changes", "1 6 0 10", "[8 [[1 #1 8 7 10 100] [2 #2 3 8 20 101]] '' 0]"),
        ("ledger.changes", "1 7 0 10", "[8 [[2 #2 3 8 20 101]] '' 0]"),
        ("ledger.remove", "1 8 1:*", Wrong::Arguments.why()),
        ("ledger.remove", "1 8 1:4294967295", "[9 1 [#1] 0]"),
        ("ledger.remove", "1 0 2", "[10 2 [] 0]"),
        ("ledger.changes", "1 7 0 10", "[10 [] 1:2 0]"),
        ("ledger.changes", "1 9 0 10", "[10 [] 2 0]"),
        ("ledger.add", "#1 1 10 100 0 #2 1 10 100 0", "[[gone] [had 2 2]]"),
        ("ledger.open", &format!("first {} 10", id(0)), "[#1]"),
        ("ledger.open", "after #1 10", "[]"),
        ("ledger.close", "#1 #2 #5", "1"),
        ("ledger.open", &format!("first {} 10", id(0)), "[]"),
        ("ledger.add", "#1 1 10 100 0", "[[gone]]"),
        ("ledger.remove-objects", "#3 #2", "[11 2]"),
        ("ledger.numbers", "2", "[11 3 '']"),
        ("ledger.keywords", "Work Junk", "[8 9]"),
        ("ledger.keywords", "Junk Later", "[9 10]"),
        ("ledger.folder.rename", "3 Trash", "taken"),
        ("ledger.folder.rename", "3 Post", "done"),
        ("ledger.folder.rename", "9 Post", "absent"),
        ("ledger.folder.subscribe", "3 no", "done"),
        ("ledger.folder.delete", "1", "kept"),
        ("ledger.folder.delete", "2", "done"),
        ("ledger.folder.delete", "2", "absent"),
        ("ledger.folder.create", "Trash 5", "[4 4001 1]"),
        (
            "ledger.info",
            "",
            "[18 0 2 [[1 INBOX 1000 3 10 0 0 0 1 11 [0 0 0 0 0 0 0 0]] [3 Post 4000 1 15 0 0 0 0 0 [0 0 0 0 0 0 0 0]] \
             [4 Trash 4001 1 18 0 0 0 1 0 [0 0 0 0 0 0 0 0]]] [Work Junk Later]]",
        ),
        ("ledger.skip", "18", "1000018"),
        ("ledger.add", "#7 1 1 1 0", "[[new 1 1000003]]"),
        ("ledger.changes", "1 18 0 10", "old"),
        ("ledger.changes", "1 1000018 0 10", "[1000019 [[1000003 #7 0 1000019 1 1]] '' 0]"),
    ]);
}

#[test]
fn what_moves_is_never_gone_and_comes_back_under_a_new_number() {
    check(&[
        ("ledger.folder.create", "INBOX 1", "[1 1 1]"),
        ("ledger.folder.create", "Trash 1", "[2 2 1]"),
        ("ledger.add", "#1 1 10 100 0 #2 1 20 100 1", "[[new 1 1] [new 1 2]]"),
        ("ledger.move", "1 1 1:2", "[3 [1 1 2 2] 0]"),
        ("ledger.move", "1 2 1:2", "[4 [1 1 2 2] 0]"),
        ("ledger.changes", "1 3 0 10", "[4 [] 1:2 0]"),
        ("ledger.list", "2 0 10", "[4 [[1 #1 0 4 10 100] [2 #2 1 4 20 100]] 0]"),
        ("ledger.add", "#1 1 10 100 0", "[[had 2 1]]"),
        ("ledger.open", &format!("first {} 10", id(0)), "[]"),
        ("ledger.move", "2 1 1", "[5 [1 3] 0]"),
        ("ledger.copy", "1 2 3", "[6 [3 3] 0]"),
        // It is there already.
        ("ledger.move", "1 2 3", "[7 [3 3] 0]"),
        ("ledger.numbers", "1", "[7 4 '']"),
        ("ledger.numbers", "2", "[7 4 2:3]"),
        ("ledger.move", "2 9 3", "-"),
        ("ledger.move", "9 2 3", "-"),
    ]);
}

#[test]
fn arguments_that_make_no_sense_change_nothing() {
    let mut desk = Desk::default();
    desk.says("ledger.folder.create", "INBOX 1");
    desk.says("ledger.add", &format!("{} 1 1 1 0", id(1)));
    let before = desk.version();
    let (long, short) = ("x".repeat(LEDGER_NAME_BYTES_MAX + 1), &id(1)[1..]);
    for (name, args) in [
        ("ledger.folder.create", "A"),
        ("ledger.folder.create", "A 4294967295"),
        ("ledger.folder.create", "A -1"),
        ("ledger.folder.create", &format!("{long} 1")),
        ("ledger.add", ""),
        ("ledger.add", &format!("{} 1 1 1", id(1))),
        ("ledger.add", &format!("{short} 1 1 1 1")),
        ("ledger.add", &format!("{}g 1 1 1 1", short)),
        ("ledger.add", &format!("{} 1 4294967296 1 1", id(2))),
        ("ledger.add", &format!("{} 1 1 1 9223372036854775808", id(2))),
        ("ledger.mark", "1 any add 1"),
        ("ledger.mark", "1 any plus 1 1"),
        ("ledger.mark", "1 any add 1 0"),
        ("ledger.mark", "1 any add 1 2:1"),
        ("ledger.mark", "1 any add 1 1,1"),
        ("ledger.mark", "1 any add 1 1:3,3"),
        ("ledger.mark", "1 any add 1 1,"),
        ("ledger.remove", "1 0 a"),
        ("ledger.folder.subscribe", "1 maybe"),
        ("ledger.open", "first 1 1"),
        ("ledger.keywords", &long),
    ] {
        let said = desk.says(name, args);
        assert!(Wrong::ALL.iter().any(|wrong| said == wrong.why()), "{name} {args}: {said}");
    }
    let odd = [Bytes::from_static(b"\xff"), Bytes::from_static(b"1")];
    assert_eq!(desk.ask_with("ledger.folder.create", &odd), Reply::Wrong(Wrong::Arguments), "names are texts");
    assert_eq!(desk.version(), before);
    // Another kind of value.
    desk.ask("put", &["v", "always", "none"]);
    for function in ALL.iter().flat_map(|some| some.iter()).filter(|f| f.name.starts_with("ledger.")) {
        let args: &[&str] = match function.name {
            "ledger.info" => &[],
            "ledger.folder.create" | "ledger.folder.rename" => &["1", "1"],
            "ledger.folder.subscribe" => &["1", "no"],
            "ledger.folder.delete" | "ledger.numbers" | "ledger.skip" | "ledger.keywords" => &["1"],
            "ledger.add" => &["00000000000000000000000000000001", "1", "1", "1", "1"],
            "ledger.mark" => &["1", "any", "add", "1", "1"],
            "ledger.changes" => &["1", "1", "1", "1"],
            "ledger.open" => &["first", "00000000000000000000000000000001", "1"],
            "ledger.find" | "ledger.close" | "ledger.remove-objects" => &["00000000000000000000000000000001"],
            _ => &["1", "1", "1"],
        };
        assert_eq!(desk.ask(function.name, args), Reply::Wrong(Wrong::Type), "{}", function.name);
    }
}

#[test]
fn what_is_large_goes_in_steps() {
    let mut desk = Desk::default();
    desk.says("ledger.folder.create", "INBOX 1");
    desk.says("ledger.folder.create", "Old 1");
    let many = 5_000;
    add(&mut desk, 2, 1..=many);
    let step = LEDGER_STEP_MAX as u32;
    assert_eq!(desk.says("ledger.mark", "2 any add 1 1:99999"), format!("[13 1:{step} '' {}]", step + 1));
    assert_eq!(desk.says("ledger.mark", "2 any add 1 4999:99999"), "[14 4999:5000 '' 0]");
    let Reply::List(copied) = desk.ask("ledger.copy", &["2", "1", "1:9999"]) else { panic!() };
    assert_eq!(copied[2], Reply::Int(i64::from(step) + 1));
    let Reply::List(removed) = desk.ask("ledger.remove", &["2", "1", "1:9999"]) else { panic!() };
    assert_eq!((said(&removed[1]), &removed[3]), (format!("1:{step}"), &Reply::Int(4999)), "those with the mark");
    let size = Reply::List(removed).bytes();
    assert!(size <= ONCE_ANSWER_BYTES_MAX, "{size} bytes are kept for who asks again");
    desk.says("ledger.remove", "2 1 1:9999");
    assert_eq!(desk.says("ledger.numbers", "2"), format!("[17 {} {}:{}]", many + 1, step + 1, many - 2));
    add(&mut desk, 2, 5_001..=7_000);
    assert_eq!(desk.says("ledger.folder.delete", "2"), "more");
    assert_eq!(desk.says("ledger.folder.delete", "2"), "done");
    assert_eq!(desk.ledger().len(), step as usize, "copies stay");
}

fn add(desk: &mut Desk, folder: u32, ids: std::ops::RangeInclusive<u32>) {
    let ids: Vec<u32> = ids.collect();
    for some in ids.chunks(LEDGER_ADDS_MAX) {
        let args = some.iter().map(|n| format!("{} {folder} 1 1 0 ", id(*n))).collect::<String>();
        assert!(desk.says("ledger.add", &args).starts_with("[[new"), "they are new");
    }
}

#[test]
fn removals_are_told_as_long_as_they_are_kept() {
    let mut desk = Desk::default();
    desk.says("ledger.folder.create", "INBOX 1");
    let many = LEDGER_REMOVED_KEPT as u32 + 10;
    add(&mut desk, 1, 1..=many);
    let before = desk.ledger().change;
    // The first 20, one by one, then the others.
    (1..=20).for_each(|number| drop(desk.says("ledger.remove", &format!("1 0 {number}"))));
    assert_eq!(desk.says("ledger.changes", &format!("1 {before} 0 9")), format!("[{} [] 1:20 0]", before + 20));
    while desk.ledger().len() > 0 {
        desk.says("ledger.remove", "1 0 1:99999");
    }
    let floor = before + 10;
    assert_eq!(desk.says("ledger.changes", &format!("1 {} 0 9", floor - 1)), "old");
    let Reply::List(changes) = desk.ask("ledger.changes", &["1", &floor.to_string(), "0", "9"]) else { panic!() };
    assert_eq!(said(&changes[2]), format!("11:{many}"));
}

#[test]
fn what_is_gone_is_forgotten_some_time_after_it_was_closed_and_not_before() {
    let mut desk = Desk::default();
    let at = |desk: &mut Desk, clock: u64| {
        let batch = crate::wire::Batch { clock, ..crate::wire::Batch::default() };
        desk.space.apply(1, crate::wire::encode_batch(&batch).into(), &mut Vec::new());
    };
    desk.says("ledger.folder.create", "INBOX 1");
    let many = LEDGER_GONE_KEPT as u32 + 3;
    add(&mut desk, 1, 1..=many);
    let all: Vec<String> = (1..=many).map(id).collect();
    all.chunks(LEDGER_ADDS_MAX).for_each(|some| drop(desk.says("ledger.remove-objects", &some.join(" "))));
    at(&mut desk, LEDGER_GONE_MS * 3);
    let is = |desk: &mut Desk, n: u32| desk.says("ledger.find", &id(n));
    assert_eq!(is(&mut desk, 1), "[[gone]]", "it is open, however long");
    let began = LEDGER_GONE_MS * 3;
    all[..all.len() - 1].chunks(LEDGER_ADDS_MAX).for_each(|some| drop(desk.says("ledger.close", &some.join(" "))));
    assert_eq!(is(&mut desk, 1), "[[gone]]", "there are too many, but that was just now");
    at(&mut desk, began + LEDGER_FORGET_MS);
    assert_eq!(desk.says("ledger.close", &all[all.len() - 1]), "1");
    assert_eq!((1..=4).map(|n| is(&mut desk, n)).collect::<Vec<_>>(), ["[[]]", "[[]]", "[[]]", "[[gone]]"]);
    add(&mut desk, 1, many + 1..=many + 1);
    desk.says("ledger.remove-objects", &id(many + 1));
    at(&mut desk, began + LEDGER_GONE_MS);
    desk.says("ledger.close", &id(many + 1));
    assert_eq!(is(&mut desk, many - 1), "[[]]", "8 days after");
    assert_eq!(is(&mut desk, many), "[[gone]]", "which was closed later");
    assert_eq!(desk.ledger().open(), 0);
}

#[test]
fn a_ledger_takes_no_more_than_a_value_may_hold_and_gives_no_number_that_there_is_not() {
    let mut desk = Desk::default();
    desk.says("ledger.folder.create", "INBOX 1");
    let items = (VALUE_BYTES_MAX - desk.ledger().bytes()) / crate::ledger::ITEM_BYTES;
    add(&mut desk, 1, 1..=items as u32);
    assert_eq!(desk.says("ledger.add", &format!("{} 1 1 1 0", id(u32::MAX))), Wrong::TooLarge.why());
    assert!(desk.ledger().encode().len() < VALUE_BYTES_MAX, "it fits into a frame");
    // It may become less, with all that is kept of that.
    desk.says("ledger.remove", "1 0 1:99999");
    assert!(desk.ledger().bytes() <= VALUE_BYTES_MAX);
    desk.says("remove", "");
    desk.says("ledger.folder.create", "INBOX 1");
    for _ in 0..u64::from(u32::MAX) / LEDGER_SKIP + 1 {
        let change = desk.ledger().change;
        desk.says("ledger.skip", &change.to_string());
    }
    assert_eq!(desk.says("ledger.add", &format!("{} 1 1 1 0", id(1))), Wrong::Overflow.why());
    assert_eq!(desk.says("ledger.numbers", "1").split_whitespace().nth(1), Some("4294967296"));
}

/// A ledger that anybody can follow.
#[derive(Clone, Default)]
struct Model {
    folders: BTreeMap<u32, Shelf>,
    gone: BTreeSet<u32>,
    change: u64,
}

#[derive(Clone, Default)]
struct Shelf {
    next: u64,
    /// By number: object, marks, change.
    items: BTreeMap<u32, (u32, u64, u64)>,
}

impl Model {
    fn places(&self, object: u32) -> Vec<(u32, u32)> {
        let of = |(folder, shelf): (&u32, &Shelf)| {
            let items = shelf.items.iter().filter(|(_, item)| item.0 == object);
            items.map(|(number, _)| (*folder, *number)).collect::<Vec<_>>()
        };
        self.folders.iter().flat_map(of).collect()
    }

    fn put(&mut self, folder: u32, object: u32, marks: u64) -> u32 {
        let change = self.change;
        let shelf = self.folders.get_mut(&folder).unwrap();
        let number = shelf.next as u32;
        shelf.next += 1;
        shelf.items.insert(number, (object, marks, change));
        number
    }

    fn take(&mut self, folder: u32, number: u32) {
        let (object, ..) = self.folders.get_mut(&folder).unwrap().items.remove(&number).unwrap();
        if self.places(object).is_empty() {
            self.gone.insert(object);
        }
    }
}

/// Somebody who has a folder's list and follows it by changes alone.
#[derive(Default)]
struct Reader {
    folder: u32,
    change: u64,
    list: BTreeMap<u32, (u32, u64)>,
    /// The highest number it saw, or was told that would be next.
    most: u64,
}

pub(super) fn items(reply: &Reply) -> Vec<(u32, (u32, u64, u64))> {
    let Reply::List(items) = reply else { panic!("{reply:?}") };
    let item = |item: &Reply| {
        let Reply::List(parts) = item else { panic!("{item:?}") };
        let [Reply::Int(number), Reply::Bytes(object), Reply::Int(marks), Reply::Int(change), ..] = &parts[..] else {
            panic!("{item:?}")
        };
        let object = u128::from_str_radix(std::str::from_utf8(object).unwrap(), 16).unwrap();
        (*number as u32, (object as u32, *marks as u64, *change as u64))
    };
    items.iter().map(item).collect()
}

pub(super) fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once(':').unwrap_or((part, part));
        from.parse::<u32>().unwrap()..=to.parse().unwrap()
    };
    text.split(',').filter(|part| *part != "''").flat_map(range).collect()
}

impl Reader {
    fn sync(&mut self, desk: &mut Desk) {
        let folder = self.folder.to_string();
        match desk.ask("ledger.changes", &[&folder, &self.change.to_string(), "0", "1000"]) {
            Reply::Nil => *self = Self::default(),
            Reply::Bytes(_) => {
                let Reply::List(page) = desk.ask("ledger.list", &[&folder, "0", "1000"]) else { panic!() };
                let list = items(&page[1]);
                self.list = list.into_iter().map(|(number, (object, marks, _))| (number, (object, marks))).collect();
                self.change = said(&page[0]).parse().unwrap();
            }
            Reply::List(page) => {
                numbers(&said(&page[2])).iter().for_each(|number| {
                    self.list.remove(number);
                });
                for (number, (object, marks, change)) in items(&page[1]) {
                    assert!(change > self.change);
                    let known = self.list.insert(number, (object, marks));
                    assert!(known.is_none_or(|(known, _)| known == object), "a number is of one object for ever");
                    assert!(known.is_some() || u64::from(number) >= self.most, "nothing new below what was seen");
                }
                self.change = said(&page[0]).parse().unwrap();
            }
            other => panic!("{other:?}"),
        }
        let Reply::List(now) = desk.ask("ledger.numbers", &[&folder]) else { return };
        self.most = said(&now[1]).parse().unwrap();
    }
}

#[test]
fn by_chance_it_does_what_a_plain_ledger_does() {
    for seed in 1..=6 {
        let mut rng = Rng::new(seed);
        let (mut desk, mut model) = (Desk::default(), Model::default());
        let mut readers: Vec<Reader> = Vec::new();
        let mut given: BTreeSet<(u32, u32)> = BTreeSet::new();
        desk.says("ledger.folder.create", "0 1");
        (model.change, model.folders) = (1, [(1, Shelf { next: 1, ..Shelf::default() })].into());
        for step in 0..3_000 {
            let mut pick = |n: usize| rng.below(n as u64) as usize;
            let folders: Vec<u32> = model.folders.keys().copied().collect();
            let folder = folders[pick(folders.len())];
            let there: Vec<u32> = model.folders[&folder].items.keys().copied().collect();
            let mut some: Vec<u32> = there.iter().copied().filter(|_| pick(4) == 0).collect();
            let mut text = some.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            // Sometimes with what is not there.
            if pick(5) == 0 && !there.is_empty() {
                let (from, to) = (there[pick(there.len())], there[there.len() - 1] + 9);
                some = there.iter().copied().filter(|number| *number >= from).collect();
                text = format!("{from}:{to}");
            }
            let before = model.change;
            let act = pick(20);
            match act {
                0 if folders.len() < 6 => {
                    let reply = desk.says("ledger.folder.create", &format!("{step} {step}"));
                    let id: u32 = reply[1..].split(' ').next().unwrap().parse().unwrap();
                    assert!(id > *folders.last().unwrap(), "no folder's id comes again");
                    model.change += 1;
                    model.folders.insert(id, Shelf { next: 1, ..Shelf::default() });
                }
                1 if pick(8) == 0 && folder != 1 => {
                    assert_eq!(desk.says("ledger.folder.delete", &folder.to_string()), "done");
                    model.change += 1;
                    there.iter().for_each(|number| model.take(folder, *number));
                    model.folders.remove(&folder);
                }
                2..=7 => {
                    let new: Vec<(u32, u64)> = (0..1 + pick(5)).map(|_| (pick(600) as u32, pick(16) as u64)).collect();
                    let args = new.iter().map(|(object, marks)| format!("{} {folder} 1 1 {marks} ", id(*object)));
                    let reply = desk.says("ledger.add", &args.collect::<String>());
                    model.change += 1;
                    let mut is_new = false;
                    let expect = new.iter().map(|(object, marks)| {
                        let places = model.places(*object);
                        let place = places.iter().find(|(at, _)| *at == folder).or(places.first());
                        match place {
                            Some((folder, number)) => format!("[had {folder} {number}]"),
                            None if model.gone.contains(object) => "[gone]".into(),
                            None => {
                                is_new = true;
                                let number = model.put(folder, *object, *marks);
                                assert!(given.insert((folder, number)), "no number comes again");
                                format!("[new {folder} {number}]")
                            }
                        }
                    });
                    assert_eq!(reply, format!("[{}]", expect.collect::<Vec<_>>().join(" ")));
                    if !is_new {
                        model.change = before;
                    }
                }
                8..=10 => {
                    let (bit, since) = (1_u64 << pick(9), before.saturating_sub(pick(30) as u64));
                    let (since, adds) = ((pick(2) == 0).then_some(since), pick(2) == 0);
                    let how = if adds { "add" } else { "remove" };
                    let word = since.map_or("any".into(), |since| since.to_string());
                    let reply = desk.ask("ledger.mark", &[&folder.to_string(), &word, how, &bit.to_string(), &text]);
                    let (mut marked, mut conflicts) = (Vec::new(), Vec::new());
                    for number in &some {
                        let (_, marks, change) = model.folders[&folder].items[number];
                        let now = if adds { marks | bit } else { marks & !bit };
                        if since.is_some_and(|since| change > since) {
                            conflicts.push(*number);
                        } else if now != marks {
                            marked.push((*number, now));
                        }
                    }
                    model.change += u64::from(!marked.is_empty());
                    let change = model.change;
                    for (number, now) in &marked {
                        let item = model.folders.get_mut(&folder).unwrap().items.get_mut(number).unwrap();
                        (item.1, item.2) = (*now, change);
                    }
                    let Reply::List(reply) = reply else { panic!() };
                    assert!(numbers(&said(&reply[1])).into_iter().eq(marked.iter().map(|(number, _)| *number)));
                    assert_eq!(numbers(&said(&reply[2])), conflicts);
                }
                11..=14 => {
                    let (to, moves) = (folders[pick(folders.len())], act < 13);
                    let name = if moves { "ledger.move" } else { "ledger.copy" };
                    let reply =
                        desk.says(name, &format!("{folder} {to} {}", if text.is_empty() { "9" } else { &text }));
                    let some: Vec<u32> =
                        if text.is_empty() { there.iter().copied().filter(|n| *n == 9).collect() } else { some };
                    model.change += 1;
                    let (mut pairs, mut is_new) = (Vec::new(), false);
                    for number in some {
                        let (object, marks, _) = model.folders[&folder].items[&number];
                        let there = model.places(object).into_iter().find(|(at, _)| *at == to);
                        let there = there.map(|(_, number)| number).unwrap_or_else(|| {
                            is_new = true;
                            let number = model.put(to, object, marks);
                            assert!(given.insert((to, number)), "no number comes again");
                            number
                        });
                        pairs.push(format!("{number} {there}"));
                        if moves && to != folder {
                            is_new = true;
                            model.take(folder, number);
                        }
                    }
                    if !is_new {
                        model.change = before;
                    }
                    assert_eq!(reply, format!("[{} [{}] 0]", model.change, pairs.join(" ")));
                }
                15 | 16 => {
                    let mark = if pick(2) == 0 { 0 } else { 1_u64 << pick(3) };
                    let reply = desk.ask("ledger.remove", &[&folder.to_string(), &mark.to_string(), &text]);
                    some.retain(|number| model.folders[&folder].items[number].1 & mark == mark);
                    model.change += u64::from(!some.is_empty());
                    some.iter().for_each(|number| model.take(folder, *number));
                    let Reply::List(reply) = reply else { panic!() };
                    assert_eq!(numbers(&said(&reply[1])), some);
                }
                17 if !model.gone.is_empty() => {
                    let object = *model.gone.iter().nth(pick(model.gone.len())).unwrap();
                    desk.says("ledger.close", &id(object));
                    assert_eq!(desk.says("ledger.find", &id(object)), "[[gone]]");
                }
                18 => {
                    // As a member that was given a snapshot has it.
                    let seen: Vec<_> = desk.space.map().from(b"").cloned().collect();
                    desk.space = Space::from_parts(desk.space.parts().0.collect()).expect("it was just written");
                    assert!(desk.space.map().from(b"").cloned().eq(seen), "a snapshot is the same");
                }
                19 if pick(100) == 0 => {
                    // Loaded again, by chance an older state: here the same.
                    let bytes = desk.ledger().encode();
                    let args = ["ledger", "none", "0"]
                        .map(|arg| Bytes::from_static(arg.as_bytes()))
                        .into_iter()
                        .chain([bytes]);
                    desk.ask_with("load", &args.collect::<Vec<_>>());
                    model.change += LEDGER_SKIP;
                    model.folders.values_mut().for_each(|shelf| shelf.next += LEDGER_SKIP);
                }
                _ => {
                    if readers.len() < 8 {
                        readers.push(Reader { folder, ..Reader::default() });
                    }
                    let at = pick(readers.len());
                    let reader = &mut readers[at];
                    reader.sync(&mut desk);
                    if reader.folder == 0 {
                        readers.remove(at);
                    } else {
                        let items = model.folders[&reader.folder].items.iter();
                        let expect = items.map(|(number, (object, marks, _))| (*number, (*object, *marks)));
                        assert!(
                            reader.list.clone().into_iter().eq(expect),
                            "who follows has the list, at step {step} of {seed}"
                        );
                    }
                }
            }
            if act > 7 || step % 7 == 0 {
                assert_eq!(desk.ledger().change, model.change, "at step {step} of seed {seed}, act {act}");
            }
            if step % 20 == 0 {
                is_model(&desk, &model);
            }
        }
        assert!(model.gone.len() > 100 && given.len() > 500, "{} {}", model.gone.len(), given.len());
    }
}

fn is_model(desk: &Desk, model: &Model) {
    let ledger = desk.ledger();
    assert!(ledger.folders().map(|(id, _)| id).eq(model.folders.keys().copied()));
    for (id, folder) in ledger.folders() {
        let shelf = &model.folders[&id];
        let seen = ledger.items(id, 0..=u32::MAX).map(|item| {
            let object = u128::from_be_bytes(item.object) as u32;
            (item.number, (object, item.marks, item.change))
        });
        assert!(seen.eq(shelf.items.iter().map(|(number, item)| (*number, *item))));
        assert_eq!((folder.next, folder.count as usize), (shelf.next, shelf.items.len()));
        for bit in 0..folder.marked.len() {
            let marked = shelf.items.values().filter(|(_, marks, _)| marks >> bit & 1 == 1).count();
            assert_eq!(folder.marked[bit] as usize, marked);
        }
    }
    let mut open = ledger.open_from([0; 16]).map(|object| u128::from_be_bytes(object) as u32);
    assert!(open.all(|object| model.gone.contains(&object)));
}
