//! Ledgers of class `linear`: folders of numbered items with marks and change numbers, such as a mailbox needs. Items name objects
//! ([`crate::Objects`]); the ledger says in which folders an object is, and under which numbers. A number is never given twice, and
//! none appears below one that was seen. Every call may be repeated.

use std::fmt;
use std::sync::Arc;

use base::Refused;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Function, Linear, LinearError, failed, of_read, unreadable};
use crate::ObjectId;
use crate::limits::{LEDGER_ADDS_MAX, LEDGER_PAGE_MAX};

mod numbering;
mod numbers;

pub use numbering::Numbered;
pub use numbers::{NoNumbers, Numbers};

/// One ledger: a key of a namespace of class `linear`, the owner's name mostly. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    linear: Linear<Value>,
    key: Arc<str>,
}

/// What a ledger holds, without its items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerInfo {
    /// The newest change number: of all folders together.
    pub change: u64,
    pub items: u64,
    /// Objects that no folder has any more, and of which nobody has said yet that they are gone ([`Ledger::close`]).
    pub open: u64,
    /// By their ids. The first one is where objects go whose folder is not there.
    pub folders: Vec<Folder>,
    /// Names of marks from [`Ledger::KEYWORDS_FROM`] on.
    pub keywords: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folder {
    pub id: u32,
    pub name: String,
    /// IMAP's UIDVALIDITY. It never changes.
    pub validity: u32,
    /// The number of the next item: all later ones have higher ones.
    pub next: u64,
    /// The newest change number in it.
    pub changed: u64,
    pub items: u64,
    pub bytes: u64,
    /// Removals up to this change number may be forgotten: [`Ledger::changes`] answers nobody who has seen less.
    pub floor: u64,
    pub is_subscribed: bool,
    /// All marks that an item of it ever had.
    pub marks: u64,
    /// How many items have each of the first eight marks.
    pub marked: [u32; 8],
}

/// An object in a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerItem {
    pub number: u32,
    pub object: ObjectId,
    /// A bit for each: 63 of them.
    pub marks: u64,
    /// When it was added or marked last.
    pub change: u64,
    pub size: u32,
    /// Of its arrival, seconds since 1970.
    pub date: u32,
}

/// What is to be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewItem {
    pub object: ObjectId,
    /// Where it goes if the ledger does not know the object yet, and the first folder if there is no such one.
    pub folder: u32,
    pub size: u32,
    pub date: u32,
    pub marks: u64,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    New {
        folder: u32,
        number: u32,
    },
    /// It had a number already; in which folder, and which.
    Had {
        folder: u32,
        number: u32,
    },
    /// All items of it were removed before.
    Gone,
    /// The ledger has no folder.
    Nowhere,
}

/// How marks are changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marking {
    Add(u64),
    Remove(u64),
    Set(u64),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marked {
    /// The ledger's change number afterwards.
    pub change: u64,
    /// Those whose marks are others now.
    pub changed: Numbers,
    /// Those that had changed since, and stay as they are.
    pub conflicts: Numbers,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    pub change: u64,
    /// The number in the one folder, and that in the other.
    pub pairs: Vec<(u32, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    pub change: u64,
    pub numbers: Numbers,
    /// Objects that no folder has any more. They are to be deleted, and then [`Ledger::close`]d.
    pub objects: Vec<ObjectId>,
}

/// Some items in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ItemPage {
    pub change: u64,
    pub items: Vec<LedgerItem>,
    /// Where to go on, if there are more.
    pub rest: Option<u32>,
}

/// What has happened in a folder since a change number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FolderChanges {
    Since {
        /// For the next question.
        change: u64,
        /// New ones, and those with other marks.
        items: Vec<LedgerItem>,
        removed: Numbers,
    },
    /// Removals of that time are forgotten: read the list.
    TooOld,
}

/// What became of a change of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FolderEnd {
    Done,
    Absent,
    /// Another folder has this name.
    Taken,
    /// The first folder stays.
    Kept,
}

impl Ledger {
    /// Marks below have no names: the program says what they mean.
    pub const KEYWORDS_FROM: u32 = 8;

    /// Those of a namespace whose values may be of any type: clones use `service.linear::<()>("mailboxes")?.ledger("ann")`.
    pub(crate) fn new(linear: Linear<Value>, key: &str) -> Self {
        Self { linear, key: key.into() }
    }

    /// The owner's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it holds; None if there is no such ledger.
    pub async fn info(&self) -> Result<Option<LedgerInfo>, LinearError> {
        let said = self.look(Function::new("ledger.info")).await?;
        if said.is_null() { Ok(None) } else { read_info(&said).map(Some).ok_or_else(unreadable) }
    }

    /// The folder with this name, made if there is none; also the ledger. `validity` is to be higher than any before: seconds since
    /// 1970. Gives the folder's id and its validity.
    pub async fn create_folder(&self, name: &str, validity: u32) -> Result<(u32, u32), LinearError> {
        let said = self.write(Function::new("ledger.folder.create").arg(name).arg(validity)).await?;
        if said.is_null() {
            return Err(LinearError::Refused(Refused::wrong("the ledger has as many folders as it may")));
        }
        number(&said[0]).zip(number(&said[1])).ok_or_else(unreadable)
    }

    pub async fn rename_folder(&self, folder: u32, name: &str) -> Result<FolderEnd, LinearError> {
        let said = self.write(Function::new("ledger.folder.rename").arg(folder).arg(name)).await?;
        folder_end(&said).ok_or_else(unreadable)
    }

    /// Removes a folder and its items, some thousand at a time. The first folder stays.
    pub async fn delete_folder(&self, folder: u32) -> Result<FolderEnd, LinearError> {
        let mut has_begun = false;
        loop {
            let said = self.write(Function::new("ledger.folder.delete").arg(folder)).await?;
            match said.as_str() {
                Some("more") => has_begun = true,
                // Somebody else was quicker.
                Some("absent") if has_begun => return Ok(FolderEnd::Done),
                _ => return folder_end(&said).ok_or_else(unreadable),
            }
        }
    }

    pub async fn subscribe(&self, folder: u32, is_subscribed: bool) -> Result<FolderEnd, LinearError> {
        let yes = if is_subscribed { "yes" } else { "no" };
        let said = self.write(Function::new("ledger.folder.subscribe").arg(folder).arg(yes)).await?;
        folder_end(&said).ok_or_else(unreadable)
    }

    /// Gives numbers to objects, in this order. An object that the ledger knows keeps what it has; one whose items were all removed
    /// stays without.
    pub async fn add(&self, items: &[NewItem]) -> Result<Vec<Added>, LinearError> {
        let mut all = Vec::with_capacity(items.len());
        for some in items.chunks(LEDGER_ADDS_MAX) {
            let add = some.iter().fold(Function::new("ledger.add"), |call, item| {
                call.arg(item.object).arg(item.folder).arg(item.size).arg(item.date).arg(item.marks)
            });
            let said = self.write(add).await?;
            let said = said.as_array().filter(|said| said.len() == some.len()).ok_or_else(unreadable)?;
            for one in said {
                all.push(read_added(one).ok_or_else(unreadable)?);
            }
        }
        Ok(all)
    }

    /// Changes marks; with `since` only of those that have not changed after that change number. None if there is no such folder.
    pub async fn mark(
        &self,
        folder: u32,
        numbers: &Numbers,
        how: Marking,
        since: Option<u64>,
    ) -> Result<Option<Marked>, LinearError> {
        let (how, marks) = match how {
            Marking::Add(marks) => ("add", marks),
            Marking::Remove(marks) => ("remove", marks),
            Marking::Set(marks) => ("set", marks),
        };
        let since = since.map_or("any".to_owned(), |since| since.to_string());
        let call = Function::new("ledger.mark").arg(folder).arg(since).arg(how).arg(marks);
        let mut all = Marked::default();
        let take = |said: &Value| {
            all.change = said[0].as_u64()?;
            all.changed.extend(&read_numbers(&said[1])?);
            all.conflicts.extend(&read_numbers(&said[2])?);
            rest(&said[3])
        };
        Ok(self.in_steps(call, numbers, take).await?.then_some(all))
    }

    /// Puts items into another folder, too. One that is there already keeps its number. None if a folder is not there.
    pub async fn copy(&self, from: u32, to: u32, numbers: &Numbers) -> Result<Option<Copied>, LinearError> {
        self.carry(Function::new("ledger.copy").arg(from).arg(to), numbers).await
    }

    /// Puts items into another folder in place of this one.
    pub async fn move_to(&self, from: u32, to: u32, numbers: &Numbers) -> Result<Option<Copied>, LinearError> {
        self.carry(Function::new("ledger.move").arg(from).arg(to), numbers).await
    }

    async fn carry(&self, call: Function, numbers: &Numbers) -> Result<Option<Copied>, LinearError> {
        let mut all = Copied::default();
        let take = |said: &Value| {
            all.change = said[0].as_u64()?;
            for pair in said[1].as_array()?.chunks(2) {
                all.pairs.push((number(pair.first()?)?, number(pair.get(1)?)?));
            }
            rest(&said[2])
        };
        Ok(self.in_steps(call, numbers, take).await?.then_some(all))
    }

    /// Removes items that have all of these marks (0: any). None if there is no such folder.
    pub async fn remove(&self, folder: u32, numbers: &Numbers, marks: u64) -> Result<Option<Removed>, LinearError> {
        let mut all = Removed::default();
        let take = |said: &Value| {
            all.change = said[0].as_u64()?;
            all.numbers.extend(&read_numbers(&said[1])?);
            all.objects.extend(read_ids(&said[2])?);
            rest(&said[3])
        };
        let call = Function::new("ledger.remove").arg(folder).arg(marks);
        Ok(self.in_steps(call, numbers, take).await?.then_some(all))
    }

    /// Removes all items of these objects; how many. One that the ledger never had stays unknown to it.
    pub async fn remove_objects(&self, objects: &[ObjectId]) -> Result<u64, LinearError> {
        let mut count = 0;
        for some in objects.chunks(LEDGER_ADDS_MAX) {
            let said = self.write(of_ids("ledger.remove-objects", some)).await?;
            count += said[1].as_u64().ok_or_else(unreadable)?;
        }
        Ok(count)
    }

    /// Items from a number on: up to 1,000. None if there is no such folder.
    pub async fn list(&self, folder: u32, from: u32, limit: usize) -> Result<Option<ItemPage>, LinearError> {
        let said = self.look(Function::new("ledger.list").arg(folder).arg(from).arg(limit)).await?;
        if said.is_null() {
            return Ok(None);
        }
        let page = || {
            let rest = rest(&said[2])?;
            Some(ItemPage { change: said[0].as_u64()?, items: read_items(&said[1])?, rest })
        };
        page().map(Some).ok_or_else(unreadable)
    }

    /// The numbers of a folder, with the change number that they are of. None if there is no such folder.
    pub async fn numbers(&self, folder: u32) -> Result<Option<(u64, Numbers)>, LinearError> {
        let said = self.look(Function::new("ledger.numbers").arg(folder)).await?;
        if said.is_null() {
            return Ok(None);
        }
        said[0].as_u64().zip(read_numbers(&said[2])).map(Some).ok_or_else(unreadable)
    }

    /// What has happened in a folder after a change number: whoever had its list as of that has it as of now then. None if there is no
    /// such folder.
    pub async fn changes(&self, folder: u32, since: u64) -> Result<Option<FolderChanges>, LinearError> {
        let (mut change, mut items, mut removed, mut from) = (None, Vec::new(), Numbers::default(), Some(0));
        while let Some(at) = from {
            let call = Function::new("ledger.changes").arg(folder).arg(since).arg(at).arg(LEDGER_PAGE_MAX);
            let said = self.look(call).await?;
            match &said {
                Value::Null => return Ok(None),
                Value::String(old) if old == "old" => return Ok(Some(FolderChanges::TooOld)),
                _ => (),
            }
            let page = || Some((said[0].as_u64()?, read_items(&said[1])?, read_numbers(&said[2])?, rest(&said[3])?));
            let (now, some, gone, rest) = page().ok_or_else(unreadable)?;
            // What changes between two pages is told the next time: the first page's number is the one that counts.
            change.get_or_insert(now);
            items.extend(some);
            removed.extend(&gone);
            from = rest;
        }
        Ok(Some(FolderChanges::Since { change: change.unwrap_or(since), items, removed }))
    }

    /// Where each of these objects is: folders and numbers; `None` if all its items were removed, nothing if it is not known.
    pub async fn find(&self, objects: &[ObjectId]) -> Result<Vec<Option<Vec<(u32, u32)>>>, LinearError> {
        let mut all = Vec::with_capacity(objects.len());
        for some in objects.chunks(LEDGER_ADDS_MAX) {
            let said = self.look(of_ids("ledger.find", some)).await?;
            let said = said.as_array().filter(|said| said.len() == some.len()).ok_or_else(unreadable)?;
            for one in said {
                all.push(read_places(one).ok_or_else(unreadable)?);
            }
        }
        Ok(all)
    }

    /// Objects that no folder has any more, and that are not [closed](Self::close): those behind one, in order.
    pub async fn open(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<ObjectId>, LinearError> {
        let how = if after.is_some() { "after" } else { "first" };
        let call = Function::new("ledger.open").arg(how).arg(after.unwrap_or_default()).arg(limit);
        read_ids(&self.look(call).await?).ok_or_else(unreadable)
    }

    /// These are gone for good: all nodes that may have them know that they were deleted. How many were open.
    pub async fn close(&self, objects: &[ObjectId]) -> Result<u64, LinearError> {
        let mut count = 0;
        for some in objects.chunks(LEDGER_ADDS_MAX) {
            count += self.write(of_ids("ledger.close", some)).await?.as_u64().ok_or_else(unreadable)?;
        }
        Ok(count)
    }

    /// After an older state was loaded: raises all numbers by 1,000,000, so that none that was given since comes again. `change` is
    /// the change number that was seen, so that it happens once. Gives the one of now.
    pub async fn skip(&self, change: u64) -> Result<u64, LinearError> {
        self.write(Function::new("ledger.skip").arg(change)).await?.as_u64().ok_or_else(unreadable)
    }

    /// Which mark has each of these names, given one if it has none yet. None if all 63 marks are in use.
    pub async fn keywords(&self, names: &[&str]) -> Result<Vec<Option<u32>>, LinearError> {
        let call = names.iter().fold(Function::new("ledger.keywords"), |call, name| call.arg(name));
        let said = self.write(call).await?;
        let said = said.as_array().filter(|said| said.len() == names.len()).ok_or_else(unreadable)?;
        Ok(said.iter().map(number).collect())
    }

    /// Does a call for numbers until none is left; false if there is no such folder.
    async fn in_steps(
        &self,
        call: Function,
        numbers: &Numbers,
        mut take: impl FnMut(&Value) -> Option<Option<u32>>,
    ) -> Result<bool, LinearError> {
        let mut left = numbers.clone();
        loop {
            let said = self.write(call.clone().arg(&left)).await?;
            if said.is_null() {
                return Ok(false);
            }
            match take(&said).ok_or_else(unreadable)? {
                None => return Ok(true),
                Some(from) => left = left.from(from),
            }
        }
    }

    async fn write(&self, function: Function) -> Result<Value, LinearError> {
        self.linear.apply(&self.key, function).await
    }

    /// Of what changes nothing: it may be asked again anywhere, and is never unknown.
    async fn look(&self, function: Function) -> Result<Value, LinearError> {
        let body = json!({"function": function.name, "args": function.args}).to_string();
        let mut call = self.linear.on_key(Method::POST, "apply", &self.key).body(body);
        call.repeats = true;
        let answer = self.linear.node.call(&call).await.map_err(of_read)?;
        if answer.status != StatusCode::OK {
            return Err(failed(&answer));
        }
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        body.and_then(|mut body| body.get_mut("result").map(Value::take)).ok_or_else(unreadable)
    }
}

fn of_ids(function: &str, ids: &[ObjectId]) -> Function {
    ids.iter().fold(Function::new(function), |call, id| call.arg(id))
}

fn number<N: TryFrom<u64>>(said: &Value) -> Option<N> {
    said.as_u64()?.try_into().ok()
}

/// Where to go on: 0 is nowhere.
fn rest(said: &Value) -> Option<Option<u32>> {
    let from: u32 = number(said)?;
    Some((from > 0).then_some(from))
}

fn read_numbers(said: &Value) -> Option<Numbers> {
    said.as_str()?.parse().ok()
}

fn read_ids(said: &Value) -> Option<Vec<ObjectId>> {
    said.as_array()?.iter().map(|id| id.as_str()?.parse().ok()).collect()
}

fn folder_end(said: &Value) -> Option<FolderEnd> {
    Some(match said.as_str()? {
        "done" => FolderEnd::Done,
        "absent" => FolderEnd::Absent,
        "taken" => FolderEnd::Taken,
        "kept" => FolderEnd::Kept,
        _ => return None,
    })
}

fn read_added(said: &Value) -> Option<Added> {
    let place = || number(&said[1]).zip(number(&said[2]));
    Some(match said[0].as_str()? {
        "new" => place().map(|(folder, number)| Added::New { folder, number })?,
        "had" => place().map(|(folder, number)| Added::Had { folder, number })?,
        "gone" => Added::Gone,
        "nowhere" => Added::Nowhere,
        _ => return None,
    })
}

fn read_places(said: &Value) -> Option<Option<Vec<(u32, u32)>>> {
    let said = said.as_array()?;
    if said.first().and_then(Value::as_str) == Some("gone") {
        return Some(None);
    }
    let pair = |pair: &[Value]| number(pair.first()?).zip(number(pair.get(1)?));
    said.chunks(2).map(pair).collect::<Option<_>>().map(Some)
}

fn read_items(said: &Value) -> Option<Vec<LedgerItem>> {
    let item = |said: &Value| {
        Some(LedgerItem {
            number: number(&said[0])?,
            object: said[1].as_str()?.parse().ok()?,
            marks: number(&said[2])?,
            change: number(&said[3])?,
            size: number(&said[4])?,
            date: number(&said[5])?,
        })
    };
    said.as_array()?.iter().map(item).collect()
}

fn read_info(said: &Value) -> Option<LedgerInfo> {
    let folder = |said: &Value| {
        let marked: Vec<u32> = said[10].as_array()?.iter().map(number).collect::<Option<_>>()?;
        Some(Folder {
            id: number(&said[0])?,
            name: said[1].as_str()?.to_owned(),
            validity: number(&said[2])?,
            next: number(&said[3])?,
            changed: number(&said[4])?,
            items: number(&said[5])?,
            bytes: number(&said[6])?,
            floor: number(&said[7])?,
            is_subscribed: said[8].as_u64()? != 0,
            marks: number(&said[9])?,
            marked: marked.try_into().ok()?,
        })
    };
    let keywords = said[4].as_array()?.iter().map(|name| Some(name.as_str()?.to_owned()));
    Some(LedgerInfo {
        change: number(&said[0])?,
        items: number(&said[1])?,
        open: number(&said[2])?,
        folders: said[3].as_array()?.iter().map(folder).collect::<Option<_>>()?,
        keywords: keywords.collect::<Option<_>>()?,
    })
}

impl LedgerInfo {
    /// The folder with this name.
    pub fn folder(&self, name: &str) -> Option<&Folder> {
        self.folders.iter().find(|folder| folder.name == name)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("key", &self.key).finish_non_exhaustive()
    }
}
