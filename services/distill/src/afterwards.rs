//! AVIF: the fewest bytes of all, and seconds of a processor for each picture. So nobody waits for one. What is asked for often by who
//! reads AVIF, or by a URL that says so, is made when the clone has nothing else to do, one at a time, on a thread that gives way to all
//! others; until then something else is answered. It is there if the program was built with the feature `avif`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sdk::axum::http::HeaderMap;

use crate::fetch::Source;
use crate::front::{Front, accepts};
use crate::image::{Edit, Format};
use crate::limits::{AVIF_ASKED, AVIF_PIXELS_MAX, OFTEN_MAX, REPAIR_EVERY, REPAIR_TRIES};
use crate::shelf::Original;
use crate::works::{self, Key, NotMade, Picture};

/// Whether the program has what writes it.
pub const IS_BUILT: bool = cfg!(feature = "avif");

/// How often what is not there yet was asked for.
#[derive(Default)]
pub struct Often(Mutex<HashMap<Key, u32>>);

impl Often {
    /// Counts; true for each so manieth time.
    fn is_one(&self, key: &Key, each: u32) -> bool {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() >= OFTEN_MAX && !asked.contains_key(key) {
            // What is asked for often comes back.
            asked.clear();
        }
        let count = asked.entry(*key).or_default();
        *count += 1;
        count.is_multiple_of(each)
    }

    fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// The same picture as AVIF, if that may be answered.
fn wish(edit: &Edit, headers: &HeaderMap, original: &Original) -> Option<Edit> {
    let is_said = edit.format == Some(Format::Avif);
    let (width, height) = edit.wanted(original.known.pixels?);
    let is_small = u64::from(width) * u64::from(height) <= AVIF_PIXELS_MAX;
    let may_be = is_said || edit.format.is_none() && accepts(headers, Format::Avif.mime());
    // Who says so gets it whatever it takes, and others only if it has fewer bytes: so these are two.
    (may_be && is_small).then(|| Edit { format: Some(Format::Avif), accepts_webp: !is_said, ..edit.clone() })
}

impl Front {
    /// The picture as AVIF and how that was asked for, if it is here; else it may be made.
    pub fn avif(
        self: &Arc<Self>,
        source: &Source,
        original: &Original,
        edit: &Edit,
        headers: &HeaderMap,
    ) -> Option<(Edit, Picture)> {
        if !IS_BUILT || original.says_no_transform() {
            return None;
        }
        let fine = wish(edit, headers, original)?;
        let key = works::key(&original.known.content, &fine);
        if let Some(made) = self.works.kept(&key) {
            return Some((fine, made?));
        }
        let each = if edit.format.is_some() { 1 } else { AVIF_ASKED };
        if self.often.is_one(&key, each)
            && let Some(turn) = self.repairs.begin(key)
        {
            let (front, source, original, edit) = (Arc::clone(self), source.clone(), original.clone(), edit.clone());
            let headers = headers.clone();
            tokio::spawn(async move {
                for _ in 0..REPAIR_TRIES {
                    if front.works.is_idle() {
                        let end = front.make_avif(key, (&source, &original), &edit, &fine, &headers).await;
                        tracing::debug!(made = end.as_ref().is_ok_and(Option::is_some), "a picture as AVIF");
                        front.often.forget(&key);
                        break;
                    }
                    tokio::time::sleep(REPAIR_EVERY).await;
                }
                drop(turn);
            });
        }
        None
    }

    async fn make_avif(
        &self,
        key: Key,
        (source, original): (&Source, &Original),
        edit: &Edit,
        fine: &Edit,
        headers: &HeaderMap,
    ) -> Result<Option<Picture>, NotMade> {
        let most = match edit.format {
            Some(_) => None,
            None => Some(match self.make(source, original, edit, headers).await? {
                Some((_, bytes)) => bytes.len() as u64,
                None => original.known.bytes,
            }),
        };
        let made =
            self.once(&key, source, original, headers, |bytes| self.works.make_slowly(bytes, fine, most)).await?;
        self.works.keep(key, made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sdk::axum::http::{HeaderValue, header};

    use super::*;
    use crate::fetch::Whole;
    use crate::image::{self, Resize};
    use crate::site::photograph;

    #[test]
    fn it_is_for_who_reads_it_and_for_what_is_asked_for_often() {
        let file = Bytes::from(image::jpeg(&photograph(1, 300, 200), 90).unwrap());
        let original = Original::of(&Whole { headers: HeaderMap::new(), bytes: file });
        let accept = |text: &'static str| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(text))]);
        let said = |format| Edit { format: Some(format), ..Edit::default() };
        let large = Edit { resize: Resize { width: 16_000, enlarge: true, ..Resize::default() }, ..Edit::default() };
        for (edit, headers, is) in [
            (Edit::default(), "image/avif,image/webp,*/*", true),
            (Edit::default(), "image/webp,*/*", false),
            (Edit::default(), "image/avif;q=0", false),
            (said(Format::Jpeg), "image/avif", false),
            (said(Format::Avif), "*/*", true),
            (large, "image/avif", false),
        ] {
            let wish = wish(&edit, &accept(headers), &original);
            assert_eq!(wish.is_some(), is, "{edit:?} {headers}");
            assert!(wish.is_none_or(|wish| wish.format == Some(Format::Avif)));
        }
        let often = Often::default();
        let counted: Vec<bool> = (0..7).map(|_| often.is_one(&[1; 32], 3)).collect();
        assert_eq!(counted, [false, false, true, false, false, true, false]);
        assert!(often.is_one(&[2; 32], 1), "what a URL says at the first time");
        for n in 0..3 * OFTEN_MAX as u64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_le_bytes());
            often.is_one(&key, 3);
        }
        assert!(often.0.lock().unwrap().len() <= OFTEN_MAX);
    }

    #[cfg(feature = "avif")]
    #[tokio::test]
    async fn it_is_made_afterwards_and_is_fewer_bytes_than_any_other() {
        let works = works::Works::new();
        let file = Bytes::from(image::jpeg(&photograph(8, 160, 120), 92).unwrap());
        let edit = Edit { quality: Some(50), accepts_webp: true, ..Edit::default() };
        let key = |edit: &Edit| works::key("x", edit);
        let (_, webp) = works.make(key(&edit), &file, &edit).await.unwrap().unwrap();
        let fine = Edit { format: Some(Format::Avif), ..edit };
        let (format, avif) = works.make_slowly(file.clone(), &fine, Some(webp.len() as u64)).await.unwrap().unwrap();
        assert!(format == Format::Avif && &avif[4..12] == b"ftypavif" && avif.len() < webp.len(), "{}", avif.len());
        assert_eq!(works.make_slowly(file, &fine, Some(10)).await, Ok(None), "it has more bytes than it may");
        assert!(matches!(works.make_slowly(Bytes::from_static(b"none"), &fine, None).await, Err(NotMade::Bad(_))));
        // What shines through still does, and what is tiny is no trouble.
        for picture in [photograph(1, 1, 1), image::Picture::filled(30, 20, [200, 10, 10, 90]).unwrap()] {
            let file = Bytes::from(image::png(&picture).unwrap());
            assert!(works.make_slowly(file, &fine, None).await.unwrap().is_some());
        }
    }
}
