//! The records of a snapshot on a disk. They are made when somebody reads them, as most snapshots are replaced by the next one
//! before anybody does: they share the memory of the state they were taken of, which does not change under them ([`Parts`]).

use std::cell::RefCell;
use std::rc::Rc;

use base::Parts;
use bytes::Bytes;

/// Copies have the same records.
#[derive(Clone)]
pub struct Saved(Rc<RefCell<Records>>);

enum Records {
    Unmade(Parts),
    Made(Vec<Bytes>),
}

impl Saved {
    pub fn new(parts: Parts) -> Self {
        Self(Rc::new(RefCell::new(Records::Unmade(parts))))
    }

    pub fn none() -> Self {
        Self(Rc::new(RefCell::new(Records::Made(Vec::new()))))
    }

    pub fn records(&self) -> Vec<Bytes> {
        let mut records = self.0.borrow_mut();
        if let Records::Unmade(parts) = &mut *records {
            *records = Records::Made(parts.0.by_ref().collect());
        }
        match &*records {
            Records::Made(made) => made.clone(),
            Records::Unmade(_) => unreachable!("they were just made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_made_once_for_all_copies() {
        let mut made = 0;
        let (tell, told) = std::sync::mpsc::channel();
        let parts = std::iter::from_fn(move || {
            tell.send(()).unwrap();
            made += 1;
            (made < 3).then(|| Bytes::copy_from_slice(&[made]))
        });
        let saved = Saved::new(Parts(Box::new(parts)));
        let copy = saved.clone();
        assert_eq!(told.try_iter().count(), 0);
        assert_eq!(copy.records(), saved.records());
        assert_eq!(saved.records(), [Bytes::from_static(&[1]), Bytes::from_static(&[2])]);
        assert_eq!(told.try_iter().count(), 3);
    }
}
