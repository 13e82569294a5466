//! What the clones share, in a namespace of class `cache`: originals, and what was made of them. A picture is fetched, and each variant of
//! it made, by one clone in the whole cluster; a clone that dies takes nothing with it. Without that namespace each clone is
//! for itself.
//!
//! | key | |
//! | --- | --- |
//! | `s:` and the hash of a source | what is known of it, for as long as its origin says; or that it could not be had, for a moment |
//! | `l:` and the same | what was known last, a day longer: for when the origin cannot be asked |
//! | `o:` and the hash of a content | its bytes |
//! | `m:` and a key of `works.rs` | what was made |
//! | `v:` and the hash of a content | which variants of it there are |

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ring::digest;
use sdk::axum::http::{HeaderMap, StatusCode, header};
use sdk::{Cache, Entry, Fetched, Missing};
use serde::{Deserialize, Serialize};

use crate::fetch::{Fetch, FetchError, Source, Whole};
use crate::front::has_word;
use crate::image::{Bad, Format, decode};
use crate::limits::*;
use crate::near::Variant;
use crate::preferences;
use crate::works::{Key, NotMade, Picture};

/// What is known of a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Known {
    /// Hash of its bytes.
    pub content: String,
    pub bytes: u64,
    /// `Content-Type` and `Cache-Control`, as they came.
    pub kind: Option<String>,
    pub control: Option<String>,
    /// Pixels across and down, if it is a picture that is read.
    pub pixels: Option<(u32, u32)>,
    /// When it was fetched, in seconds since 1970.
    pub at: u64,
}

/// What stands under `s:`.
#[derive(Serialize, Deserialize)]
enum Said {
    Known(Known),
    /// It is not for everybody: each fetches it for himself.
    Apart,
    /// 0: it could not be reached; 1: it was too late; 2: it is too large; else what it answered.
    Failed(u16),
}

#[derive(Clone, Debug)]
pub struct Original {
    pub known: Known,
    /// Its origin cannot be asked whether it still is so.
    pub is_stale: bool,
    bytes: Option<Bytes>,
}

impl Original {
    pub fn of(whole: &Whole) -> Self {
        let text = |name| whole.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let known = Known {
            content: hash(&whole.bytes),
            bytes: whole.bytes.len() as u64,
            kind: text(header::CONTENT_TYPE),
            control: text(header::CACHE_CONTROL),
            pixels: decode::measure(&whole.bytes).ok(),
            at: now(),
        };
        Self { known, is_stale: false, bytes: Some(whole.bytes.clone()) }
    }

    fn kept(known: Known, is_stale: bool) -> Self {
        Self { known, is_stale, bytes: None }
    }

    /// It is to be left as it is.
    pub fn says_no_transform(&self) -> bool {
        self.known.control.as_deref().is_some_and(|control| has_word(control, "no-transform"))
    }

    /// Seconds since it was fetched.
    pub fn age(&self) -> u64 {
        now().saturating_sub(self.known.at)
    }
}

pub struct Shelf {
    cache: Option<Cache>,
    /// Of this clone alone.
    here: Mutex<Here>,
}

#[derive(Default)]
struct Here {
    /// By content; the newest last.
    variants: HashMap<String, Vec<Variant>>,
    /// Contents, the oldest first.
    order: VecDeque<String>,
}

const UNCHANGED: &str = "x/unchanged";
const BUSY: &str = "x/busy";
const BAD: &str = "x/bad";

impl Shelf {
    pub fn new(cache: Option<Cache>) -> Self {
        Self { cache, here: Mutex::default() }
    }

    /// A source, fetched by whichever clone was first.
    ///
    /// # Errors
    /// It cannot be had, and was not of late.
    pub async fn original(&self, fetch: &Fetch, source: &Source, asked: &HeaderMap) -> Result<Original, FetchError> {
        let asked = without_own_cookie(asked);
        let is_for_all = !asked.contains_key(header::COOKIE) && !asked.contains_key(header::AUTHORIZATION);
        let Some(cache) = self.cache.as_ref().filter(|_| is_for_all && !fetch.is_loop(&asked)) else {
            return fetch.whole(source, &asked).await.map(|whole| Original::of(&whole));
        };
        let name = hash(fetch.name_of(source).as_bytes());
        let key = format!("s:{name}");
        let missing = match cache.fetch(&key, FETCH_TIME_MAX, SHARED_WAIT).await {
            Ok(Fetched::Here(entry)) => match serde_json::from_slice(&entry.value) {
                Ok(Said::Known(known)) => return Ok(Original::kept(known, false)),
                Ok(Said::Failed(code)) => return self.last(&name).await.ok_or_else(|| error_of(code)),
                Ok(Said::Apart) | Err(_) => None,
            },
            Ok(Fetched::Missing(missing)) => Some(missing),
            Err(_) => None,
        };
        match fetch.whole(source, &asked).await {
            Ok(whole) => {
                let original = Original::of(&whole);
                if let Some(missing) = missing {
                    self.keep_original(cache, &missing, &name, &original, &whole).await;
                }
                Ok(original)
            }
            Err(error) => {
                let Some(code) = code_of(&error) else { return Err(error) };
                let last = self.last(&name).await;
                if let Some(missing) = missing {
                    let said = entry_of(&Said::Failed(code)).lasting(FAILED_KEPT);
                    let _ = cache.store(&missing, &key, &said).await;
                }
                last.ok_or(error)
            }
        }
    }

    async fn keep_original(&self, cache: &Cache, missing: &Missing, name: &str, original: &Original, whole: &Whole) {
        let key = format!("s:{name}");
        let fresh = fresh_for(&whole.headers).filter(|_| whole.bytes.len() <= SHARED_BYTES_MAX);
        let Some(fresh) = fresh else {
            let _ = cache.store(missing, &key, &entry_of(&Said::Apart).lasting(APART_KEPT)).await;
            return;
        };
        // Its bytes first: who reads that it is there finds them.
        let said = entry_of(&Said::Known(original.known.clone()));
        let bytes = Entry::new(whole.bytes.clone()).lasting(fresh + STALE_KEPT);
        let _ = cache.put(&format!("o:{}", original.known.content), &bytes).await;
        let _ = cache.put(&format!("l:{name}"), &said.clone().lasting(fresh + STALE_KEPT)).await;
        let _ = cache.store(missing, &key, &said.lasting(fresh)).await;
    }

    async fn last(&self, name: &str) -> Option<Original> {
        let entry = self.cache.as_ref()?.get(&format!("l:{name}")).await.ok()??;
        match serde_json::from_slice(&entry.value) {
            Ok(Said::Known(known)) => Some(Original::kept(known, true)),
            _ => None,
        }
    }

    /// The bytes of an original, to make something of: just these.
    ///
    /// # Errors
    /// They are kept nowhere, and it cannot be fetched anew, or is another one now.
    pub async fn bytes(
        &self,
        fetch: &Fetch,
        source: &Source,
        asked: &HeaderMap,
        original: &Original,
    ) -> Result<Bytes, FetchError> {
        let bytes = self.bytes_to_show(fetch, source, asked, original).await?;
        if original.bytes.is_none() && hash(&bytes) != original.known.content {
            let why = "it is not what it was a moment ago: ask for it anew";
            return Err(FetchError::Unreachable(why.into()));
        }
        Ok(bytes)
    }

    /// The bytes of an original; of the one that there is now, if the one before is gone.
    ///
    /// # Errors
    /// They are kept nowhere, and it cannot be fetched anew.
    pub async fn bytes_to_show(
        &self,
        fetch: &Fetch,
        source: &Source,
        asked: &HeaderMap,
        original: &Original,
    ) -> Result<Bytes, FetchError> {
        if let Some(bytes) = &original.bytes {
            return Ok(bytes.clone());
        }
        if let Some(cache) = &self.cache
            && let Ok(Some(entry)) = cache.get(&format!("o:{}", original.known.content)).await
        {
            return Ok(entry.value);
        }
        fetch.whole(source, &without_own_cookie(asked)).await.map(|whole| whole.bytes)
    }

    /// What was made, or the turn to make it.
    pub async fn made(&self, key: &Key) -> Result<Result<Option<Picture>, NotMade>, Option<Missing>> {
        let Some(cache) = &self.cache else { return Err(None) };
        match cache.fetch(&made_key(key), MAKE_TIME_MAX, MAKE_WAIT).await {
            Ok(Fetched::Here(entry)) => match entry.kind.as_str() {
                UNCHANGED => Ok(Ok(None)),
                BUSY => Ok(Err(NotMade::Busy)),
                BAD => Ok(Err(NotMade::Bad(Bad::Broken("it was found to be broken".into())))),
                kind => Format::by_mime(kind).map(|format| Ok(Some((format, entry.value)))).ok_or(None),
            },
            Ok(Fetched::Missing(missing)) => Err(Some(missing)),
            Err(_) => Err(None),
        }
    }

    /// Tells the other clones what came of it.
    pub async fn keep_made(&self, missing: &Missing, key: &Key, end: &Result<Option<Picture>, NotMade>) {
        let Some(cache) = &self.cache else { return };
        let entry = match end {
            Ok(Some((format, bytes))) => Entry::new(bytes.clone()).kind(format.mime()),
            Ok(None) => Entry::new(Bytes::new()).kind(UNCHANGED),
            // It never will be one that is read.
            Err(NotMade::Bad(Bad::Unknown)) => Entry::new(Bytes::new()).kind(UNCHANGED),
            Err(NotMade::Bad(_)) => Entry::new(Bytes::new()).kind(BAD).lasting(BAD_KEPT),
            Err(NotMade::Busy | NotMade::Crashed | NotMade::Gone) => {
                Entry::new(Bytes::new()).kind(BUSY).lasting(BUSY_KEPT)
            }
        };
        if entry.value.len() <= SHARED_BYTES_MAX {
            let _ = cache.store(missing, &made_key(key), &entry).await;
        }
    }

    /// Variants of a content that are kept, as far as is known.
    pub async fn variants(&self, content: &str) -> Vec<Variant> {
        let mut all = self.lock().variants.get(content).cloned().unwrap_or_default();
        if let Some(cache) = &self.cache
            && let Ok(Some(entry)) = cache.get(&format!("v:{content}")).await
        {
            let shared: Vec<Variant> = serde_json::from_slice(&entry.value).unwrap_or_default();
            all.extend(shared.into_iter().take(VARIANTS_MAX));
        }
        all
    }

    /// One more. What two clones add at once, one of them may lose: then it cannot stand in for others.
    pub async fn add_variant(&self, content: &str, variant: Variant) {
        self.add_here(content, variant.clone());
        let Some(cache) = &self.cache else { return };
        let key = format!("v:{content}");
        let before = match cache.get(&key).await {
            Ok(entry) => entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default(),
            Err(_) => return,
        };
        let all = with(before, variant);
        let entry = Entry::new(serde_json::to_vec(&all).unwrap_or_default()).lasting(STALE_KEPT);
        let _ = cache.put(&key, &entry).await;
    }

    fn add_here(&self, content: &str, variant: Variant) {
        let mut here = self.lock();
        let Here { variants, order } = &mut *here;
        if !variants.contains_key(content) {
            order.push_back(content.to_owned());
        }
        let all = variants.entry(content.to_owned()).or_default();
        *all = with(std::mem::take(all), variant);
        while order.len() > CONTENTS_MAX {
            if let Some(oldest) = order.pop_front() {
                variants.remove(&oldest);
            }
        }
    }

    /// What is kept under the key of a variant.
    pub async fn variant(&self, variant: &Variant) -> Option<Picture> {
        let entry = self.cache.as_ref()?.get(&format!("m:{}", variant.key)).await.ok()??;
        (Format::by_mime(&entry.kind)? == variant.format).then_some((variant.format, entry.value))
    }

    fn lock(&self) -> MutexGuard<'_, Here> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with(mut all: Vec<Variant>, one: Variant) -> Vec<Variant> {
    all.retain(|variant| variant.key != one.key);
    all.push(one);
    let over = all.len().saturating_sub(VARIANTS_MAX);
    all.split_off(over)
}

fn entry_of(said: &Said) -> Entry {
    Entry::new(serde_json::to_vec(said).unwrap_or_default()).kind("application/json")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn made_key(key: &Key) -> String {
    format!("m:{}", hex(key))
}

pub fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Which failures are the same for everybody, and may be over soon.
fn code_of(error: &FetchError) -> Option<u16> {
    match error {
        FetchError::Unreachable(_) => Some(0),
        FetchError::TooLate => Some(1),
        FetchError::TooLarge => Some(2),
        FetchError::Status(status) if status.is_server_error() || *status == StatusCode::NOT_FOUND => {
            Some(status.as_u16())
        }
        _ => None,
    }
}

fn error_of(code: u16) -> FetchError {
    match code {
        0 => FetchError::Unreachable("another clone could not a moment ago".into()),
        1 => FetchError::TooLate,
        2 => FetchError::TooLarge,
        code => FetchError::Status(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY)),
    }
}

/// For how long an answer may be shown to everybody. None: it may not.
fn fresh_for(headers: &HeaderMap) -> Option<Duration> {
    let words = |name| {
        let lines = headers.get_all(name).into_iter().filter_map(|line: &header::HeaderValue| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let control = words(header::CACHE_CONTROL);
    let is_own = control.iter().any(|word| ["no-store", "no-cache", "private"].iter().any(|own| word.starts_with(own)));
    // Each is asked for with the same of these.
    let varies = words(header::VARY).iter().any(|name| !["accept", "accept-encoding", ""].contains(&name.as_str()));
    if is_own || varies || headers.contains_key(header::SET_COOKIE) {
        return None;
    }
    let seconds =
        |name: &str| control.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok());
    let said = seconds("s-maxage").or(seconds("max-age")).unwrap_or(u64::from(MADE_SECONDS));
    let age = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
    Some(said.saturating_sub(age)).filter(|left| *left > 0).map(|left| Duration::from_secs(left).min(FRESH_MAX))
}

/// The cookie by which preferences are found says nothing to a site of pictures.
fn without_own_cookie(asked: &HeaderMap) -> HeaderMap {
    let mut headers = asked.clone();
    let lines: Vec<String> =
        headers.get_all(header::COOKIE).into_iter().filter_map(|line| Some(line.to_str().ok()?.to_owned())).collect();
    headers.remove(header::COOKIE);
    let pairs = lines.iter().flat_map(|line| line.split(';')).map(str::trim);
    let others = pairs.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(preferences::COOKIE));
    let rest = others.collect::<Vec<_>>().join("; ");
    if !rest.is_empty()
        && let Ok(rest) = rest.parse()
    {
        headers.insert(header::COOKIE, rest);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| -> (header::HeaderName, header::HeaderValue) {
            (name.parse().unwrap(), value.parse().unwrap())
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn only_what_is_for_everybody_is_shared_and_for_as_long_as_it_says() {
        for (all, seconds) in [
            (&[][..], Some(3600)),
            (&[("cache-control", "max-age=60")], Some(60)),
            (&[("cache-control", "public, max-age=60, s-maxage=9")], Some(9)),
            (&[("cache-control", "max-age=60"), ("age", "20")], Some(40)),
            (&[("cache-control", "max-age=60"), ("age", "99")], None),
            (&[("cache-control", "max-age=999999999999")], Some(FRESH_MAX.as_secs())),
            (&[("cache-control", "max-age=0")], None),
            (&[("cache-control", "No-Store")], None),
            (&[("cache-control", "private=\"x\", max-age=60")], None),
            (&[("vary", "Accept, Accept-Encoding")], Some(3600)),
            (&[("vary", "Accept"), ("vary", "Cookie")], None),
            (&[("vary", "*")], None),
            (&[("set-cookie", "a=b")], None),
        ] {
            assert_eq!(fresh_for(&headers(all)).map(|fresh| fresh.as_secs()), seconds, "{all:?}");
        }
    }

    #[test]
    fn whose_only_cookie_is_that_of_preferences_is_as_anybody() {
        let own = format!("{}=00112233445566778899aabbccddeeff", preferences::COOKIE);
        assert!(!without_own_cookie(&headers(&[("cookie", &own)])).contains_key(header::COOKIE));
        let both = without_own_cookie(&headers(&[("cookie", &format!("{own}; session=1")), ("cookie", "b=2")]));
        assert_eq!(both[header::COOKIE], "session=1; b=2");
    }

    #[tokio::test]
    async fn variants_are_known_without_the_cluster_and_bounded() {
        let shelf = Shelf::new(None);
        let variant = |n: usize| Variant {
            key: n.to_string(),
            family: "f".into(),
            format: Format::Jpeg,
            quality: 40,
            width: 10,
            height: 10,
        };
        for n in 0..VARIANTS_MAX + 3 {
            shelf.add_variant("a", variant(n)).await;
            shelf.add_variant("a", variant(n)).await;
        }
        let kept = shelf.variants("a").await;
        assert_eq!((kept.len(), kept[0].key.as_str()), (VARIANTS_MAX, "3"));
        for n in 0..CONTENTS_MAX + 5 {
            shelf.add_variant(&n.to_string(), variant(n)).await;
        }
        assert!(shelf.variants("a").await.is_empty());
        let counts = {
            let here = shelf.lock();
            (here.variants.len(), here.order.len())
        };
        assert_eq!(counts, (CONTENTS_MAX, CONTENTS_MAX));
        assert!(matches!(shelf.made(&[0; 32]).await, Err(None)));
    }
}
