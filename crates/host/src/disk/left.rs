//! What a log that was set aside has of one group, for the node that has entered anew: it goes on with some of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use base::{GroupId, NodeId, Record, Ticket};
use bytes::Bytes;

use super::{Disk, LOG_DIR, Opened, Safe, log, packs};
use crate::renew::{FORMER, SET_ASIDE};
use crate::{DataDir, Error};

/// So much waits for the disk at a time, bytes.
const AT_ONCE: usize = 32 << 20;

/// Records for the new log, and packs of the old one that they name.
pub type LeftRecords = (Vec<Record>, BTreeSet<u64>);

impl DataDir {
    /// Appends what `find` makes of the records that the log set aside has of a group, if it was left to be taken over. A crash has it
    /// happen again, before anything else was appended. How many records there were.
    ///
    /// # Errors
    /// What is wrong with the one log or the other. It is tried again with the next start.
    pub fn take_over(
        &self,
        group: GroupId,
        find: impl FnOnce(NodeId, Vec<Bytes>) -> Result<LeftRecords, String>,
    ) -> Result<usize, Error> {
        let aside = self.path().join(SET_ASIDE);
        let word = aside.join(FORMER);
        let text = match fs::read_to_string(&word) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(Error::io(word.display().to_string())(error)),
        };
        let not_ours = |what: String| Error::NotOurs { file: word.clone(), what };
        let former = text.trim().parse::<u64>().map_err(|error| not_ours(error.to_string()))?;
        let (_, mut kept, _) = log::open(&aside)?;
        let (records, shared) = find(NodeId(former), kept.remove(&group).unwrap_or_default()).map_err(&not_ours)?;
        let count = records.len();
        let Opened { disk, mut safe, .. } = Disk::open(self.path())?;
        let failed = || Error::io(format!("cannot take over what {} has", aside.display()));
        for pack in shared {
            packs::share(&aside, &self.path().join(LOG_DIR), group, pack).map_err(failed())?;
        }
        let (mut some, mut bytes) = (Vec::new(), 0);
        let mut records = records.into_iter().peekable();
        while let Some(record) = records.next() {
            bytes += record.len();
            some.push(record);
            if bytes >= AT_ONCE || records.peek().is_none() {
                disk.append(group, std::mem::take(&mut some), Ticket(0), true);
                bytes = 0;
                while safe.blocking_recv().is_some_and(|said| said != Safe::Appended(group, Ticket(0))) {}
            }
        }
        drop(disk);
        fs::remove_file(&word).and_then(|()| fs::File::open(&aside)?.sync_all()).map_err(failed())?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tls::temp_dir;

    const MINE: GroupId = GroupId(7);

    fn append(dir: &Path, group: GroupId, text: &'static str) {
        let Opened { disk, mut safe, .. } = Disk::open(dir).unwrap();
        disk.append(group, vec![Record::from(Bytes::from_static(text.as_bytes()))], Ticket(1), true);
        assert_eq!(safe.blocking_recv(), Some(Safe::Appended(group, Ticket(1))));
    }

    #[test]
    fn what_is_found_in_the_log_set_aside_is_in_the_new_one_once_and_after_a_crash_too() {
        let temp = temp_dir("left");
        let dir = DataDir::open(&temp.0).unwrap();
        let find = |_: NodeId, _: Vec<Bytes>| -> Result<LeftRecords, String> { panic!("nothing was left") };
        assert_eq!(dir.take_over(MINE, find).unwrap(), 0);
        append(&temp.0, MINE, "mine");
        append(&temp.0, GroupId(9), "another's");
        let (log, aside) = (temp.0.join(LOG_DIR), temp.0.join(SET_ASIDE));
        fs::write(log.join("packs").join("g0000000000000007-0000000000000003.pack"), "COPPAK1\nhello").unwrap();
        dir.leaves_its_own(NodeId(5)).unwrap();
        fs::rename(&log, &aside).unwrap();
        // A crash came before it was known to be done.
        for _ in 0..2 {
            let find = |former: NodeId, kept: Vec<Bytes>| {
                assert_eq!((former, &kept[..]), (NodeId(5), &[Bytes::from_static(b"mine")][..]));
                Ok((kept.into_iter().map(Record::from).collect(), [3].into()))
            };
            assert_eq!(dir.take_over(MINE, find).unwrap(), 1);
            dir_has(&temp.0);
            fs::write(aside.join(FORMER), "5").unwrap();
        }
        fs::remove_file(aside.join(FORMER)).unwrap();
        assert_eq!(dir.take_over(MINE, find).unwrap(), 0, "it is done");
        dir_has(&temp.0);
    }

    fn dir_has(dir: &Path) {
        let Opened { kept, packs, .. } = Disk::open(dir).unwrap();
        assert!(kept[&MINE].iter().all(|record| record == "mine") && !kept.contains_key(&GroupId(9)));
        assert_eq!(packs[&MINE], [(3, 5)].into());
    }
}
