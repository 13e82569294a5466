//! Numbers for objects that have none yet: what is put at any node gets its number when somebody looks, in the order in which the
//! ledger hears of it. Each step may be repeated by anybody, also at once.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Refused};

use super::{Added, Ledger, NewItem};
use crate::limits::{LEDGER_CLOSED_AT_ONCE, LEDGER_PAGE_MAX};
use crate::{LinearError, ObjectError, ObjectHead, ObjectId, Objects};

/// What came of a look for objects without numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbered {
    /// Those that got one: object, folder, number. In the order in which they got them.
    pub new: Vec<(ObjectId, u32, u32)>,
    /// Objects that the ledger had removed, and that are deleted now.
    pub deleted: u64,
    /// Removals of which all nodes know now.
    pub closed: u64,
    /// Objects that had been deleted without the ledger; their items are removed now.
    pub removed: u64,
    /// Nodes that did not say what they have. There may be more objects.
    pub missing: Vec<String>,
}

impl Ledger {
    /// Numbers all objects of the owner who has this ledger's name, in the order of their arrival, in the first folder.
    pub async fn number(&self, objects: &Objects) -> Result<Numbered, LinearError> {
        self.number_as(objects, |_, item| item).await
    }

    /// The same; `place` may change folder, marks, size and date of an item that is to be new.
    pub async fn number_as(
        &self,
        objects: &Objects,
        mut place: impl FnMut(&ObjectHead, NewItem) -> NewItem,
    ) -> Result<Numbered, LinearError> {
        let mut numbered = Numbered::default();
        let (known, first) = self.known().await?;
        let there = self.there(objects, &mut numbered.missing).await?;

        let mut fresh: Vec<&ObjectHead> = there.values().filter(|head| !known.contains(&head.id)).collect();
        // Versions are of one length and begin with the time.
        fresh.sort_by(|a, b| a.version.0.cmp(&b.version.0).then(a.id.cmp(&b.id)));
        let item = |head: &&ObjectHead| {
            let (size, date) = (head.bytes.try_into().unwrap_or(u32::MAX), arrival(head));
            place(head, NewItem { object: head.id, folder: first, size, date, marks: 0 })
        };
        let items: Vec<NewItem> = fresh.iter().map(item).collect();
        let mut back = BTreeSet::new();
        for (item, added) in items.iter().zip(self.add(&items).await?) {
            match added {
                Added::New { folder, number } => numbered.new.push((item.object, folder, number)),
                Added::Had { .. } => (),
                Added::Gone => {
                    back.insert(item.object);
                }
                Added::Nowhere => return Err(LinearError::Refused(Refused::wrong("the ledger has no folder"))),
            }
        }
        self.finish_removals(objects, &there, back, &mut numbered).await?;
        if numbered.missing.is_empty() {
            let lost: Vec<ObjectId> = known.into_iter().filter(|id| !there.contains_key(id)).collect();
            numbered.removed = self.remove_deleted(objects, &lost).await?;
        }
        Ok(numbered)
    }

    /// Objects that have numbers, and the first folder.
    async fn known(&self) -> Result<(BTreeSet<ObjectId>, u32), LinearError> {
        let Some(info) = self.info().await? else {
            return Err(LinearError::Refused(Refused::wrong("there is no such ledger")));
        };
        let (mut known, mut first) = (BTreeSet::new(), 0);
        for folder in info.folders.iter().rev() {
            first = folder.id;
            let mut from = Some(0);
            while let Some(at) = from {
                let Some(page) = self.list(folder.id, at, LEDGER_PAGE_MAX).await? else { break };
                known.extend(page.items.iter().map(|item| item.object));
                from = page.rest;
            }
        }
        Ok((known, first))
    }

    async fn there(
        &self,
        objects: &Objects,
        missing: &mut Vec<String>,
    ) -> Result<BTreeMap<ObjectId, ObjectHead>, LinearError> {
        let (mut there, mut after, mut without) = (BTreeMap::new(), None, BTreeSet::new());
        loop {
            let page = objects.list(&self.key, after, LEDGER_PAGE_MAX).await.map_err(of_object)?;
            there.extend(page.objects.into_iter().map(|head| (head.id, head)));
            without.extend(page.missing);
            after = page.after;
            if after.is_none() {
                missing.extend(without);
                return Ok(there);
            }
        }
    }

    /// Deletes what the ledger has removed. What no node has any more, and all nodes were asked, is closed.
    async fn finish_removals(
        &self,
        objects: &Objects,
        there: &BTreeMap<ObjectId, ObjectHead>,
        mut back: BTreeSet<ObjectId>,
        numbered: &mut Numbered,
    ) -> Result<(), LinearError> {
        let open = self.open(None, LEDGER_CLOSED_AT_ONCE).await?;
        back.extend(&open);
        let mut deleted = BTreeSet::new();
        for id in back {
            objects.delete(&self.key, id).await.map_err(of_object)?;
            deleted.insert(id);
        }
        let gone = |id: &ObjectId| deleted.contains(id) && !there.contains_key(id);
        numbered.deleted = deleted.iter().filter(|id| there.contains_key(id)).count() as u64;
        let gone: Vec<ObjectId> = open.into_iter().filter(gone).collect();
        if numbered.missing.is_empty() && !gone.is_empty() {
            numbered.closed = self.close(&gone).await?;
        }
        Ok(())
    }

    /// Removes those that were deleted by somebody who could not reach the ledger.
    async fn remove_deleted(&self, objects: &Objects, lost: &[ObjectId]) -> Result<u64, LinearError> {
        let mut deleted = Vec::new();
        for id in lost {
            // Else it was just put, is out of reach, or lost: no deletion.
            if let Err(ObjectError::Deleted) = objects.head(&self.key, *id).await {
                deleted.push(*id);
            }
        }
        if deleted.is_empty() { Ok(0) } else { self.remove_objects(&deleted).await }
    }
}

/// Seconds since 1970: the first 16 digits of a version are milliseconds.
fn arrival(head: &ObjectHead) -> u32 {
    let ms = head.version.0.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    ms.map_or(0, |ms| (ms / 1_000).try_into().unwrap_or(u32::MAX))
}

fn of_object(error: ObjectError) -> LinearError {
    match error.outcome::<()>() {
        Outcome::Refused(refused) => LinearError::Refused(refused),
        Outcome::Unknown(unknown) => LinearError::Unknown(unknown),
        Outcome::Done(()) => unreachable!("an error is not the end of what was done"),
    }
}
