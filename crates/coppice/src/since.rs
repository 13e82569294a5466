//! What of a namespace differs from an older dump of it: so much of it is written, and to be put back it is read
//! together with the older one. Keys and values are told apart by digests of them, in whatever order they come: so a
//! shard that was split, a cluster that was restored and a class without versions are all the same here.
//!
//! A backup with changes has, beside the dump that it stands on: a dump of the keys that are new or differ, and the
//! marks of those that are gone, 16 bytes each.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA256};
use state::class::dump::{Item, Record, Writer};

use crate::dump::each;

/// Of a key, or of what it holds: the first bytes of their SHA-256.
pub type Mark = [u8; MARK_BYTES];
const MARK_BYTES: usize = 16;

/// Keys of an index: 40 bytes each in memory. What has more is dumped whole.
pub const INDEX_KEYS_MAX: usize = 32 << 20;
/// Two dumps tell one end with so much between them at most, in milliseconds: it is counted from when a page came.
const END_SLACK_MS: u64 = 1_000;
/// Of a dump that is put together, at a time.
const PIECE_BYTES: usize = 256 << 10;

fn mark(parts: &[&[u8]]) -> Mark {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut mark = [0; MARK_BYTES];
    mark.copy_from_slice(&context.finish().as_ref()[..MARK_BYTES]);
    mark
}

fn mark_of_key(item: &Item) -> Mark {
    mark(&[&item.key])
}

/// A key as an older dump has it.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: Mark,
    /// Of all that it is but its end.
    is: Mark,
    /// Milliseconds since 1970; 0: it does not end.
    end_ms: u64,
}

impl Known {
    fn of(item: &Item) -> Self {
        let token = item.token.to_le_bytes();
        let mut parts: Vec<&[u8]> = vec![item.kind.name().as_bytes(), &token];
        parts.extend(item.values.iter().map(|value| &value[..]));
        Self { key: mark_of_key(item), is: mark(&parts), end_ms: item.end_ms.unwrap_or(0) }
    }

    fn is_as(&self, other: &Self) -> bool {
        let ends_with = match (self.end_ms, other.end_ms) {
            (0, end) | (end, 0) => end == 0,
            (one, other) => one.abs_diff(other) <= END_SLACK_MS,
        };
        self.is == other.is && ends_with
    }
}

/// All keys of a dump.
#[derive(Debug)]
pub struct Index {
    /// Invariant: sorted by key; no two with one key.
    all: Vec<Known>,
}

impl Index {
    /// Reads all of a dump. Nothing: it has too many keys for that.
    pub fn of(file: &Path) -> Result<Option<Self>, String> {
        let mut all = Vec::new();
        each(file, &mut |record| {
            if let Record::Item(item) = record {
                all.push(Known::of(&item));
            }
            all.len() <= INDEX_KEYS_MAX
        })?;
        Ok((all.len() <= INDEX_KEYS_MAX).then(|| Self::sorted(all)))
    }

    fn sorted(mut all: Vec<Known>) -> Self {
        // Of a key that comes twice the last one holds, as it is loaded last.
        all.reverse();
        all.sort_by_key(|known| known.key);
        all.dedup_by_key(|known| known.key);
        Self { all }
    }
}

/// What was found of a key of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    Same,
    Other,
}

/// Picks what differs out of a dump that comes.
pub struct Changes<'a> {
    index: &'a Index,
    found: Vec<Found>,
    writer: Writer,
}

impl<'a> Changes<'a> {
    pub fn since(index: &'a Index) -> Self {
        Self { index, found: vec![Found::Nothing; index.all.len()], writer: Writer::default() }
    }

    /// Takes the next record of the whole; appends what is to be written of it.
    pub fn take(&mut self, record: &Record, out: &mut BytesMut) {
        match record {
            Record::Item(item) if self.is_same(item) => (),
            Record::End(_) => _ = self.writer.end(out),
            record => self.writer.write(record, out),
        }
    }

    fn is_same(&mut self, item: &Item) -> bool {
        let is = Known::of(item);
        let Ok(at) = self.index.all.binary_search_by_key(&is.key, |known| known.key) else { return false };
        // A key that comes twice, and was written once, is written again: what comes last holds.
        let same = self.found[at] != Found::Other && self.index.all[at].is_as(&is);
        self.found[at] = if same { Found::Same } else { Found::Other };
        same
    }

    /// Keys of the index that did not come.
    pub fn gone(&self) -> Vec<Mark> {
        let all = self.index.all.iter().zip(&self.found);
        all.filter(|(_, found)| **found == Found::Nothing).map(|(known, _)| known.key).collect()
    }
}

pub fn bytes_of(gone: &[Mark]) -> Vec<u8> {
    gone.concat()
}

/// A dump and what differs from it, as one dump again.
pub struct Merged {
    pub base: PathBuf,
    pub changed: PathBuf,
    /// Marks of keys, as they were written.
    pub gone: PathBuf,
}

impl Merged {
    /// Gives it piece by piece, until no more is taken.
    pub fn pour(&self, give: &mut dyn FnMut(Bytes) -> bool) -> Result<(), String> {
        let mut not_of_base = self.gone()?;
        let (mut writer, mut out, mut goes_on) = (Writer::default(), BytesMut::new(), true);
        // Parts first: an item may stand behind any of them.
        each(&self.changed, &mut |record| {
            match &record {
                Record::Head(_) | Record::Part(_) => writer.write(&record, &mut out),
                Record::Item(item) => _ = not_of_base.insert(mark_of_key(item)),
                Record::End(_) | Record::Broken(_) => (),
            }
            true
        })?;
        for (file, is_base) in [(&self.base, true), (&self.changed, false)] {
            each(file, &mut |record| {
                if let Record::Item(item) = &record
                    && !(is_base && not_of_base.contains(&mark_of_key(item)))
                {
                    writer.write(&record, &mut out);
                }
                if out.len() >= PIECE_BYTES {
                    goes_on = give(out.split().freeze());
                }
                goes_on
            })?;
        }
        if goes_on {
            writer.end(&mut out);
            give(out.freeze());
        }
        Ok(())
    }

    fn gone(&self) -> Result<HashSet<Mark>, String> {
        let bytes = fs::read(&self.gone).map_err(|e| format!("cannot read {}: {e}", self.gone.display()))?;
        let (marks, rest) = bytes.as_chunks::<MARK_BYTES>();
        if !rest.is_empty() {
            return Err(format!("{} is damaged: it has no whole number of keys", self.gone.display()));
        }
        Ok(marks.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use state::class::dump::{FORMAT, Head, ItemKind, Part, Reader};

    use super::*;

    type Keys = BTreeMap<String, (String, Option<u64>)>;

    fn records(keys: &Keys) -> Vec<Record> {
        let head = Head {
            format: FORMAT,
            namespace: "bank".into(),
            class: "linear".into(),
            at_ms: 1,
            on_disk: true,
            program: "0.1.0".into(),
        };
        let item = |(key, (value, end_ms)): (&String, &(String, Option<u64>))| {
            let (key, values) = (key.clone().into(), vec![value.clone().into()]);
            Record::Item(Item { key, kind: ItemKind::Text, end_ms: *end_ms, token: 0, values })
        };
        let parts = [(0, 9), (10, u64::MAX)].map(|(from, to)| Record::Part(Part { from, to, version: 7 }));
        [Record::Head(head)].into_iter().chain(parts).chain(keys.iter().map(item)).collect()
    }

    fn whole(keys: &Keys) -> Vec<u8> {
        let (mut writer, mut out) = (Writer::default(), BytesMut::new());
        records(keys).iter().for_each(|record| writer.write(record, &mut out));
        writer.end(&mut out);
        out.to_vec()
    }

    fn read(bytes: &[u8]) -> Keys {
        let (mut reader, mut keys) = (Reader::default(), Keys::new());
        reader.push(bytes);
        while let Some(record) = reader.next_record().unwrap() {
            if let Record::Item(item) = record {
                let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                keys.insert(text(&item.key), (text(&item.values[0]), item.end_ms));
            }
        }
        reader.end().unwrap();
        keys
    }

    /// Writes what of `is` differs from `was`, puts it together again; how many keys were written.
    fn check(name: &str, was: &Keys, is: &Keys) -> usize {
        let folder = std::env::temp_dir().join(format!("coppice-since-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [base, changed, gone] = ["base", "changed", "gone"].map(|name| folder.join(name));
        fs::write(&base, whole(was)).unwrap();
        let index = Index::of(&base).unwrap().unwrap();
        let (mut changes, mut out) = (Changes::since(&index), BytesMut::new());
        let end = Record::End(Default::default());
        records(is).iter().chain([&end]).for_each(|record| changes.take(record, &mut out));
        fs::write(&changed, &out).unwrap();
        fs::write(&gone, bytes_of(&changes.gone())).unwrap();
        let mut again = Vec::new();
        let merged = Merged { base, changed, gone };
        merged
            .pour(&mut |piece| {
                again.extend_from_slice(&piece);
                true
            })
            .unwrap();
        let close = |keys: &Keys| -> Vec<(String, String)> {
            keys.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
        };
        let again = read(&again);
        assert_eq!(close(&again), close(is));
        for (key, (_, end)) in is {
            let (one, other) = (end.unwrap_or(0), again[key].1.unwrap_or(0));
            assert!(one.abs_diff(other) <= END_SLACK_MS && (one == 0) == (other == 0), "{key}: {one}, {other}");
        }
        fs::remove_dir_all(&folder).unwrap();
        read(&out).len()
    }

    fn keys(all: &[(&str, &str, u64)]) -> Keys {
        let end = |end| (end != 0).then_some(end);
        all.iter().map(|(key, value, ends)| ((*key).into(), ((*value).into(), end(*ends)))).collect()
    }

    #[test]
    fn only_what_differs_is_written_and_it_is_all_again() {
        let was = keys(&[("a", "1", 0), ("b", "2", 0), ("c", "3", 5_000), ("d", "4", 90_000), ("e", "5", 0)]);
        assert_eq!(check("same", &was, &was), 0);
        let is = keys(&[("a", "1", 0), ("b", "other", 0), ("c", "3", 5_900), ("d", "4", 99_000), ("f", "5", 0)]);
        assert_eq!(check("some", &was, &is), 3, "b, d (another end) and f");
        assert_eq!(check("ends", &keys(&[("a", "1", 500)]), &keys(&[("a", "1", 0)])), 1, "it ends no more");
        assert_eq!(check("none", &was, &Keys::new()), 0);
        assert_eq!(check("all", &Keys::new(), &was), 5);
    }

    #[test]
    fn many_keys_of_chance_are_all_again() {
        let mut rng = base::Rng::new(7);
        for round in 0..20 {
            let mut some = || -> Keys {
                let key = |n: u64| (format!("k{}", n % 60), (format!("v{}", n % 3), None));
                (0..50).map(|_| key(rng.u64() >> 8)).collect()
            };
            let (was, is) = (some(), some());
            let differ = is.iter().filter(|(key, of)| was.get(*key) != Some(*of)).count();
            assert_eq!(check(&format!("chance{round}"), &was, &is), differ);
        }
    }

    #[test]
    fn of_a_key_that_comes_twice_the_last_one_holds() {
        let item = |value: &'static str| {
            let (key, values) = ("a".into(), vec![value.into()]);
            Record::Item(Item { key, kind: ItemKind::Text, end_ms: None, token: 0, values })
        };
        let known = |value| if let Record::Item(item) = item(value) { Known::of(&item) } else { panic!() };
        let index = Index::sorted(vec![known("old"), known("new")]);
        let written = |values: [&'static str; 2]| {
            let mut changes = Changes::since(&index);
            values.map(|value| {
                let mut out = BytesMut::new();
                changes.take(&item(value), &mut out);
                !out.is_empty()
            })
        };
        assert_eq!(written(["new", "new"]), [false, false]);
        assert_eq!(written(["old", "new"]), [true, true], "the new one has to come behind the old one");
        assert_eq!(written(["new", "old"]), [false, true]);
    }
}
