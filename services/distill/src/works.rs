//! Where pictures are made: on as many threads as there are processors, a bounded number of them and of pixels at a time. What was made is
//! kept by the content of the original and by what was wanted of it, so a hit is never of another picture.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ring::digest;
use sdk::{Shape, Stage};
use tokio::sync::{Semaphore, oneshot};

use crate::image::{Bad, Edit, Format, Made, decode, distill};
use crate::limits::{KEPT_BYTES_MAX, MEGAPIXELS_AT_ONCE, NICE, SVG_SIDE, WAITING_MAX};

/// Content and wishes.
pub type Key = [u8; 32];

/// A file that was made.
pub type Picture = (Format, Bytes);

/// Why a picture was not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotMade {
    /// Not now: there is too much to do.
    Busy,
    Bad(Bad),
    /// The decoder gave up in a way that it should not.
    Crashed,
    /// Its original is not there any more.
    Gone,
}

#[derive(Clone)]
pub struct Works {
    pub stage: Stage,
    megapixels: Arc<Semaphore>,
    /// What takes long is made one at a time.
    slow: Arc<Semaphore>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    made: HashMap<Key, Option<Picture>>,
    /// Oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 160;

impl Works {
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, |n| n.get() as u32);
        Self {
            stage: Stage::of(shape(processors)),
            megapixels: Arc::new(Semaphore::new(MEGAPIXELS_AT_ONCE as usize)),
            slow: Arc::new(Semaphore::new(1)),
            kept: Arc::default(),
        }
    }

    /// What was made under this key here.
    pub fn kept(&self, key: &Key) -> Option<Option<Picture>> {
        self.lock().made.get(key).cloned()
    }

    /// What another clone made.
    pub fn keep(&self, key: Key, made: Option<Picture>) {
        self.lock().keep(key, made);
    }

    /// What is made under this key, which is of the original and the wishes; None where the original is the best answer.
    pub async fn make(&self, key: Key, original: &Bytes, edit: &Edit) -> Result<Option<Picture>, NotMade> {
        if let Some(made) = self.kept(&key) {
            return Ok(made);
        }
        let turn = self.stage.enter().await.map_err(|_| NotMade::Busy)?;
        let megapixels = match decode::measure(original) {
            Ok((width, height)) => (u64::from(width) * u64::from(height) / 1_000_000) as u32 + 1,
            // How large it becomes is found out on the way; not larger than this.
            Err(_) if Format::of(original) == Some(Format::Svg) => SVG_SIDE * SVG_SIDE / 1_000_000 + 1,
            // Tiny ones need no reading.
            Err(_) if original.len() < crate::limits::SMALL_BYTES && !edit.must_be_made() => 1,
            Err(bad) => return Err(NotMade::Bad(bad)),
        };
        let room = Arc::clone(&self.megapixels).acquire_many_owned(megapixels.min(MEGAPIXELS_AT_ONCE)).await;
        let (original, edit) = (original.clone(), edit.clone());
        // Both places are held until the thread is done, also when nobody waits for it any more.
        let done = tokio::task::spawn_blocking(move || {
            let made = distill(&original, &edit);
            drop(room);
            turn.done();
            made
        });
        let made = match done.await {
            Ok(Ok(Made::New { format, bytes })) => Some((format, Bytes::from(bytes))),
            Ok(Ok(Made::Unchanged)) => None,
            Ok(Err(bad)) => return Err(NotMade::Bad(bad)),
            Err(_) => return Err(NotMade::Crashed),
        };
        self.lock().keep(key, made.clone());
        Ok(made)
    }

    /// Nobody waits for a picture.
    pub fn is_idle(&self) -> bool {
        self.megapixels.available_permits() == MEGAPIXELS_AT_ONCE as usize
    }

    /// What takes long, on a thread that gives way to all others; None where it has not fewer than `most` bytes, or would not move any
    /// more. It counts neither as a picture that is made nor as load.
    pub async fn make_slowly(
        &self,
        original: Bytes,
        edit: &Edit,
        most: Option<u64>,
    ) -> Result<Option<Picture>, NotMade> {
        let place = Arc::clone(&self.slow).acquire_owned().await.map_err(|_| NotMade::Busy)?;
        if most.is_some() && matches!(Format::of(&original), Some(Format::Gif | Format::Webp)) {
            return Ok(None);
        }
        let (send, done) = oneshot::channel();
        let edit = edit.clone();
        let thread = std::thread::Builder::new().name("afterwards".to_owned()).spawn(move || {
            // Of this thread alone: so it is on Linux.
            let _ = rustix::process::nice(i32::from(NICE));
            let made = distill(&original, &edit);
            drop(place);
            let _ = send.send(made);
        });
        if thread.is_err() {
            return Err(NotMade::Busy);
        }
        match done.await {
            Ok(Ok(Made::New { format, bytes })) if most.is_none_or(|most| (bytes.len() as u64) < most) => {
                Ok(Some((format, Bytes::from(bytes))))
            }
            Ok(Ok(Made::New { .. } | Made::Unchanged)) => Ok(None),
            Ok(Err(bad)) => Err(NotMade::Bad(bad)),
            Err(_) => Err(NotMade::Crashed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shape(processors: u32) -> Shape {
    let mut shape = sdk::limits::STAGE;
    shape.queue_max = WAITING_MAX;
    // What is computed takes no longer because others are: the processors are the limit, and it is known.
    (shape.limit.first, shape.limit.min, shape.limit.max) = (processors, processors, processors);
    shape
}

impl Kept {
    fn keep(&mut self, key: Key, made: Option<Picture>) {
        let cost = |made: &Option<Picture>| ENTRY_BYTES + made.as_ref().map_or(0, |(_, bytes)| bytes.len());
        if cost(&made) > KEPT_BYTES_MAX / 4 || self.made.contains_key(&key) {
            return;
        }
        self.bytes += cost(&made);
        self.made.insert(key, made);
        self.order.push_back(key);
        while self.bytes > KEPT_BYTES_MAX {
            let Some(gone) = self.order.pop_front().and_then(|oldest| self.made.remove(&oldest)) else { return };
            self.bytes -= cost(&gone);
        }
    }
}

/// Of the hash of an original and what is wanted of it.
pub fn key(content: &str, edit: &Edit) -> Key {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(format!("{VERSION} {edit:?}\n{content}").as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(hash.finish().as_ref());
    key
}

/// As [`crate::shelf::hex`] writes it.
pub fn key_of(hex: &str) -> Option<Key> {
    let mut key = [0; 32];
    let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    (digits.len() == 64).then(|| {
        key.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        key
    })
}

/// Raised when the same original and wishes make another picture.
const VERSION: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image;
    use crate::site::photograph;

    #[tokio::test]
    async fn what_was_made_is_kept_by_content_and_wishes() {
        let works = Works::new();
        let original = Bytes::from(image::jpeg(&photograph(1, 120, 90), 90).unwrap());
        let edit = Edit { quality: Some(20), ..Edit::default() };
        let content = |bytes: &[u8]| crate::shelf::hash(bytes);
        let key_of = |edit: &Edit| key(&content(&original), edit);
        let first = works.make(key_of(&edit), &original, &edit).await.unwrap().unwrap();
        assert_eq!(works.stage.show().started, 1);
        let second = works.make(key_of(&edit), &Bytes::copy_from_slice(&original), &edit).await.unwrap().unwrap();
        assert_eq!((first.1 == second.1, works.stage.show().started), (true, 1));
        let grey = Edit { grey: true, ..edit };
        works.make(key_of(&grey), &original, &grey).await.unwrap();
        assert_eq!(works.stage.show().started, 2);
        let broken = Bytes::from(vec![0xff; 4000]);
        assert!(matches!(
            works.make(key(&content(&broken), &Edit::default()), &broken, &Edit::default()).await,
            Err(NotMade::Bad(_))
        ));
    }

    #[test]
    fn what_is_kept_has_a_bound_and_the_oldest_go() {
        let mut kept = Kept::default();
        let piece = Bytes::from(vec![0; KEPT_BYTES_MAX / 8]);
        for nth in 0..20_u8 {
            kept.keep([nth; 32], Some((Format::Jpeg, piece.clone())));
            assert!(kept.bytes <= KEPT_BYTES_MAX);
        }
        assert!(!kept.made.contains_key(&[0; 32]) && kept.made.contains_key(&[19; 32]));
        kept.keep([99; 32], Some((Format::Jpeg, Bytes::from(vec![0; KEPT_BYTES_MAX]))));
        assert!(!kept.made.contains_key(&[99; 32]) && kept.made.len() == kept.order.len());
    }
}
