//! What is known of some ids, in their order, in pages.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Id;

/// Items of a page: a change under a copy copies so many.
const PAGE_MAX: usize = 64;
/// One with fewer is put together with the next one, if both have room in one page that is not full then.
const PAGE_FEW: usize = PAGE_MAX / 4;
const PAGE_JOINED: usize = PAGE_MAX * 3 / 4;

type Page<T> = Arc<Vec<(Id, T)>>;

#[derive(Clone, Debug)]
pub struct Paged<T> {
    /// Invariant: in order, none is empty.
    pages: VecDeque<Page<T>>,
    len: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: VecDeque::new(), len: 0 }
    }
}

impl<T: PartialEq> PartialEq for Paged<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.from(Id::MIN).eq(other.from(Id::MIN))
    }
}

impl<T> Paged<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn page_of(&self, id: Id) -> usize {
        self.pages.partition_point(|page| page.last().is_some_and(|(last, _)| *last < id))
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        let page = self.pages.get(self.page_of(id))?;
        let at = page.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&page[at].1)
    }

    /// From this one on.
    pub fn from(&self, id: Id) -> impl Iterator<Item = &(Id, T)> {
        self.pages.range(self.page_of(id)..).flat_map(|page| page.iter()).skip_while(move |(at, _)| *at < id)
    }

    pub fn first(&self) -> Option<Id> {
        self.pages.front().and_then(|page| page.first()).map(|(id, _)| *id)
    }

    pub fn last(&self) -> Option<Id> {
        self.pages.back().and_then(|page| page.last()).map(|(id, _)| *id)
    }
}

impl<T: Clone> Paged<T> {
    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let at = self.page_of(id);
        let page = self.pages.get_mut(at)?;
        let within = page.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&mut Arc::make_mut(page)[within].1)
    }

    /// What stood there.
    pub fn insert(&mut self, id: Id, item: T) -> Option<T> {
        let mut at = self.page_of(id);
        if at == self.pages.len() {
            match self.pages.back() {
                Some(page) if page.len() < PAGE_MAX => at -= 1,
                _ => self.pages.push_back(Arc::default()),
            }
        }
        let page = Arc::make_mut(&mut self.pages[at]);
        match page.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(within) => return Some(std::mem::replace(&mut page[within].1, item)),
            Err(within) => page.insert(within, (id, item)),
        }
        self.len += 1;
        if page.len() > PAGE_MAX {
            let upper = page.split_off(PAGE_MAX / 2);
            self.pages.insert(at + 1, Arc::new(upper));
        }
        None
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        let at = self.page_of(id);
        let page = self.pages.get_mut(at)?;
        let within = page.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let page = Arc::make_mut(page);
        let (_, item) = page.remove(within);
        self.len -= 1;
        let len = page.len();
        if len == 0 {
            self.pages.remove(at);
        } else if len < PAGE_FEW && self.pages.get(at + 1).is_some_and(|next| len + next.len() <= PAGE_JOINED) {
            let next = self.pages.remove(at + 1).expect("it was just seen");
            Arc::make_mut(&mut self.pages[at]).extend_from_slice(&next);
        }
        Some(item)
    }
}
