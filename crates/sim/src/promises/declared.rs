//! Declared configuration: an acknowledged apply is never lost. One operator applies, one at a time; each apply carries
//! a mark that can be seen in every node's view, and an acknowledged one a version.

use base::{Span, Time};

use super::Broken;

const PROMISE: &str = "an acknowledged apply is never lost";

/// A heartbeat of the root group and a view: no node shows an older declaration for longer.
const SHOWN_WITHIN: Span = Span::secs(2);

#[derive(Default)]
pub struct Declared {
    acked: Option<(u64, u64)>,
    acked_at: Time,
    /// Marks of applies after the last acknowledged one that may have happened.
    maybe: Vec<u64>,
}

/// How an apply ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Done { version: u64 },
    Refused,
    Unknown,
}

impl Declared {
    pub fn applied(&mut self, at: Time, mark: u64, ended: Ended) -> Result<(), Broken> {
        match ended {
            Ended::Done { version } => {
                if self.acked.is_some_and(|(_, before)| version <= before) {
                    let what = format!("apply {mark} got version {version} after {:?} was acknowledged", self.acked);
                    return Err(Broken { promise: PROMISE, at, what });
                }
                (self.acked, self.acked_at) = (Some((mark, version)), at);
                self.maybe.clear();
            }
            Ended::Unknown => self.maybe.push(mark),
            Ended::Refused => (),
        }
        Ok(())
    }

    /// Long enough after faults: what each live node shows (node, version, mark).
    pub fn check(&self, at: Time, shown: &[(usize, u64, Option<u64>)]) -> Result<(), Broken> {
        let Some((acked, version_min)) = self.acked else { return Ok(()) };
        // Whoever did not ask hears of it with the next heartbeat, and shows it with its next view.
        if at.since(self.acked_at) < SHOWN_WITHIN {
            return Ok(());
        }
        let broken = |what| Err(Broken { promise: PROMISE, at, what });
        for &(node, version, mark) in shown {
            let known = mark.is_some_and(|mark| mark == acked || self.maybe.contains(&mark));
            if version < version_min || !known {
                let may = &self.maybe;
                return broken(format!(
                    "node {node} shows mark {mark:?} at version {version}; acknowledged is {acked} at {version_min}, unknown {may:?}"
                ));
            }
        }
        match shown.iter().find(|one| one.2 != shown[0].2) {
            Some(other) => broken(format!("nodes show different declarations: {:?} and {other:?}", shown[0])),
            None => Ok(()),
        }
    }

    /// The mark acknowledged last.
    pub fn acked(&self) -> Option<u64> {
        self.acked.map(|(mark, _)| mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_apply_is_seen() {
        let mut declared = Declared::default();
        let at = Time(1);
        let later = at + SHOWN_WITHIN;
        declared.applied(at, 1, Ended::Done { version: 5 }).unwrap();
        declared.applied(at, 2, Ended::Refused).unwrap();
        declared.applied(at, 3, Ended::Unknown).unwrap();
        assert_eq!(declared.check(later, &[(0, 5, Some(1)), (1, 5, Some(1))]), Ok(()));
        assert_eq!(declared.check(later, &[(0, 6, Some(3)), (1, 6, Some(3))]), Ok(()));
        assert!(declared.check(later, &[(0, 6, Some(3)), (1, 5, Some(1))]).is_err(), "they differ");
        assert!(declared.check(later, &[(0, 6, Some(2))]).is_err(), "a refused one shows");
        assert!(declared.check(later, &[(0, 4, Some(1))]).is_err(), "an older version");
        assert!(declared.check(later, &[(0, 6, None)]).is_err());
        assert!(declared.applied(at, 4, Ended::Done { version: 5 }).is_err(), "a version given twice");
        declared.applied(at, 4, Ended::Done { version: 9 }).unwrap();
        assert!(
            declared.check(later, &[(0, 9, Some(3))]).is_err(),
            "an acknowledged one was overwritten by an older one"
        );
    }
}
