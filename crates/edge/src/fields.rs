//! Fields of a message. Those of an HTTP/1 request go their road as they came, one after the other, slices of what was
//! read; a map is made of them where something asks for one: sessions, profiles, caches, access logs.

use clones::partition::Headers;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Fields in the order in which they came.
pub type List = Vec<(HeaderName, HeaderValue)>;

/// Fields of a request.
#[derive(Clone, Debug)]
pub enum Fields {
    List(List),
    /// Fields of HTTP/2, and where a map was asked for. A map is larger than all else that is known of most requests.
    Map(Box<HeaderMap>),
}

/// What is done to fields of either form, in time that few fields take.
pub trait AnyFields {
    fn pairs(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)>;
    /// Values of this name, in order.
    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue>;
    /// Takes all of this name out; the first one's value.
    fn take(&mut self, name: &HeaderName) -> Option<HeaderValue>;
    /// Puts one in, behind others of its name.
    fn add(&mut self, name: HeaderName, value: HeaderValue);
    fn reserve(&mut self, more: usize);

    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.pairs().map(|(name, _)| name)
    }

    fn first(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.all(name).next()
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.first(name).is_some()
    }

    /// Puts one in, in place of others of its name.
    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.take(&name);
        self.add(name, value);
    }

    /// Takes those out whose name is such.
    fn take_if(&mut self, is: impl Fn(&HeaderName) -> bool) {
        // First a look without allocating: most messages have none.
        if self.names().any(&is) {
            let found: Vec<HeaderName> = self.names().filter(|name| is(name)).cloned().collect();
            for name in found {
                self.take(&name);
            }
        }
    }
}

impl AnyFields for HeaderMap {
    fn pairs(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.iter()
    }

    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        self.get_all(name).into_iter()
    }

    fn take(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        self.remove(name)
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.append(name, value);
    }

    fn reserve(&mut self, more: usize) {
        HeaderMap::reserve(self, more);
    }
}

impl AnyFields for Fields {
    fn pairs(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let (list, map) = self.parts();
        list.iter().map(|(name, value)| (name, value)).chain(map.into_iter().flatten())
    }

    fn all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        let (list, map) = self.parts();
        let listed = list.iter().filter(move |(of, _)| of == name).map(|(_, value)| value);
        listed.chain(map.into_iter().flat_map(move |map| map.get_all(name)))
    }

    fn take(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        match self {
            Fields::Map(map) => map.remove(name),
            Fields::List(list) => {
                let at = list.iter().position(|(of, _)| of == name)?;
                let (_, first) = list.remove(at);
                list.retain(|(of, _)| of != name);
                Some(first)
            }
        }
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        match self {
            Fields::Map(map) => _ = map.append(name, value),
            Fields::List(list) => list.push((name, value)),
        }
    }

    fn reserve(&mut self, more: usize) {
        match self {
            Fields::Map(map) => map.reserve(more),
            Fields::List(list) => list.reserve(more),
        }
    }
}

impl Fields {
    /// One of both has all.
    fn parts(&self) -> (&[(HeaderName, HeaderValue)], Option<&HeaderMap>) {
        match self {
            Fields::List(list) => (list, None),
            Fields::Map(map) => (&[], Some(map)),
        }
    }

    /// Makes a map of them, from now on.
    pub fn map(&mut self) -> &mut HeaderMap {
        if let Fields::List(list) = self {
            let mut map = HeaderMap::with_capacity(list.len());
            list.drain(..).for_each(|(name, value)| _ = map.append(name, value));
            *self = map.into();
        }
        match self {
            Fields::Map(map) => map,
            Fields::List(_) => unreachable!("it was just made one"),
        }
    }
}

impl From<HeaderMap> for Fields {
    fn from(map: HeaderMap) -> Self {
        Fields::Map(Box::new(map))
    }
}

impl Headers for Fields {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut of_name = self.pairs().filter(|(of, _)| of.as_str().eq_ignore_ascii_case(name));
        of_name.any(|(_, value)| test(value.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use http::header;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [HeaderName; 4] = [header::COOKIE, header::HOST, header::TE, HeaderName::from_static("x-own")];

    /// What is seen of fields.
    fn seen(fields: &Fields) -> Vec<(Vec<HeaderValue>, bool, Option<HeaderValue>, bool)> {
        let any = |name: &HeaderName| {
            let mut found = Vec::new();
            fields.any(&name.as_str().to_ascii_uppercase(), &mut |value| {
                found.push(value.to_vec());
                false
            });
            found == fields.all(name).map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>()
        };
        let of = |name: &HeaderName| {
            (fields.all(name).cloned().collect(), fields.has(name), fields.first(name).cloned(), any(name))
        };
        assert_eq!(fields.pairs().count(), NAMES.iter().map(|name| fields.all(name).count()).sum::<usize>());
        NAMES.iter().map(of).collect()
    }

    proptest! {
        #[test]
        fn a_list_and_a_map_are_the_same(said in prop::collection::vec((0..5, 0..4_usize, "[a-c]{1,2}"), 0..30)) {
            let (mut list, mut map) = (Fields::List(List::new()), Fields::from(HeaderMap::new()));
            for (what, name, value) in said {
                let (name, value) = (&NAMES[name], HeaderValue::try_from(value).unwrap());
                let mut taken = Vec::new();
                for fields in [&mut list, &mut map] {
                    match what {
                        0 | 1 => fields.add(name.clone(), value.clone()),
                        2 => fields.set(name.clone(), value.clone()),
                        3 => taken.push(fields.take(name)),
                        _ => fields.take_if(|of| of == name || *of == header::TE),
                    }
                }
                prop_assert!(taken.windows(2).all(|two| two[0] == two[1]));
                prop_assert_eq!(seen(&list), seen(&map));
                prop_assert!(seen(&list).iter().all(|of| of.3));
            }
            let as_map = list.clone().map().clone();
            prop_assert_eq!(&as_map, map.map());
            list.map();
            prop_assert_eq!(seen(&list), seen(&map));
        }
    }
}
