//! Why an update is here, and how it was made where its cell does not say it: for those who are told what changes.
//! Nothing else comes of it.

use crate::context::{Context, Range};
use crate::dot::Dot;
use crate::op::{Did, Why};

/// Marks of updates that the index has.
#[derive(Default)]
pub struct Whys {
    /// They came by comparison with another node.
    pub fetched: Context,
    /// They took away what was over; of these, what was held.
    pub over: Context,
    pub released: Context,
    /// They took something away with its key, or at an end of a list.
    deleted: Context,
    trimmed: Context,
}

impl Whys {
    /// `is_own`: it was made here.
    pub fn why(&self, of: Dot, is_own: bool) -> Why {
        match of {
            of if self.released.contains(of) => Why::Released,
            of if self.over.contains(of) => Why::Ended,
            _ if is_own => Why::Local,
            of if self.fetched.contains(of) => Why::Repair,
            _ => Why::Remote,
        }
    }

    /// How an update took something away.
    pub fn took(&self, of: Dot) -> Did {
        match of {
            of if self.deleted.contains(of) => Did::Deleted,
            of if self.trimmed.contains(of) => Did::Trimmed,
            _ => Did::Put,
        }
    }

    /// Updates that were made so; none: their cells say it.
    pub fn marked(&mut self, did: Did) -> Option<&mut Context> {
        match did {
            Did::Deleted => Some(&mut self.deleted),
            Did::Trimmed => Some(&mut self.trimmed),
            Did::Put | Did::Counted | Did::Pushed(_) | Did::Inserted | Did::Replaced => None,
        }
    }

    /// Forgets marks of updates that nobody is told of any more.
    pub fn forget(&mut self, of: Range) {
        let all = [&mut self.fetched, &mut self.over, &mut self.released, &mut self.deleted, &mut self.trimmed];
        all.into_iter().for_each(|some| some.remove_range(of));
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        let all = [&self.fetched, &self.over, &self.released, &self.deleted, &self.trimmed];
        all.into_iter().flat_map(Context::ranges).count()
    }
}
