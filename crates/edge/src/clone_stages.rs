//! What programs show of their own stages (`sdk::Stage`): the last that each clone of this node told, for as long as it is fresh.
//! Only clones that run here are heard, each a few stages, so there are never more than they can have.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flow::stage::Shown;

/// Stages of one clone.
pub const STAGES_MAX: usize = 8;
/// Bytes of a stage's name: it stands in every figure's.
pub const NAME_BYTES_MAX: usize = 32;
/// The SDK tells each second; who has not been heard for so long is hung or gone.
const FRESH: Duration = Duration::from_secs(5);

/// Figures of a stage, by the names that [`Shown`] has for them.
pub type Figures = BTreeMap<String, u64>;

/// By clone (`shop/2`).
#[derive(Debug, Default)]
pub struct CloneStages(Mutex<BTreeMap<String, Told>>);

/// When, and by stage.
type Told = (Instant, BTreeMap<String, (Shown, Option<Work>)>);

/// What the stub of a worker says beside the rest of its stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Jobs that took a process with them.
    pub crashes: u64,
    /// Inputs that are withheld now, as they did so twice.
    pub withheld: u64,
    /// Jobs that were not begun for that.
    pub withheld_jobs: u64,
}

impl CloneStages {
    /// What a clone of this node says of all its stages.
    ///
    /// # Errors
    /// Too many of them, or a name that is none; nothing of it is kept.
    pub fn told(&self, now: Instant, clone: &str, stages: BTreeMap<String, Figures>) -> Result<(), String> {
        if stages.len() > STAGES_MAX {
            return Err(format!("{} stages are too many; a clone may show {STAGES_MAX}", stages.len()));
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        let is_name = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
        if let Some(wrong) = stages.keys().find(|name| !is_name(name)) {
            return Err(format!(
                "{wrong:?} is no name of a stage: up to {NAME_BYTES_MAX} letters, digits, - and _ are one"
            ));
        }
        let stages = stages.into_iter().map(|(name, figures)| (name, (shown(&figures), work(&figures)))).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (at, _)| now.saturating_duration_since(*at) < FRESH);
        all.insert(clone.to_owned(), (now, stages));
        Ok(())
    }

    /// By clone and stage.
    pub fn all(&self, now: Instant) -> Vec<(String, String, Shown)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = all.iter().filter(|(_, (at, _))| now.saturating_duration_since(*at) < FRESH);
        let each = |(clone, (_, stages)): (&String, &Told)| {
            stages.iter().map(|(stage, (shown, _))| (clone.clone(), stage.clone(), *shown)).collect::<Vec<_>>()
        };
        fresh.flat_map(each).collect()
    }

    /// Of workers, by clone.
    pub fn works(&self, now: Instant) -> Vec<(String, Work)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = all.iter().filter(|(_, (at, _))| now.saturating_duration_since(*at) < FRESH);
        let each = |(clone, (_, stages)): (&String, &Told)| {
            stages.values().find_map(|(_, work)| Some((clone.clone(), (*work)?)))
        };
        fresh.filter_map(each).collect()
    }
}

/// None: it is no worker's stage.
fn work(figures: &Figures) -> Option<Work> {
    let of = |name: &str| figures.get(name).copied().unwrap_or(0);
    let withheld = *figures.get("withheld")?;
    Some(Work { crashes: of("crashes_total"), withheld, withheld_jobs: of("withheld_total") })
}

/// As a name among a node's stages: `clone-shop/2:database`.
pub fn name(clone: &str, stage: &str) -> String {
    format!("clone-{clone}:{stage}")
}

/// What is left out is 0; what this version does not know is left out.
fn shown(figures: &Figures) -> Shown {
    let of = |name: &str| figures.get(name).copied().unwrap_or(0);
    Shown {
        waiting: of("waiting"),
        under_way: of("under_way"),
        limit: of("limit"),
        is_overloaded: of("overloaded") > 0,
        started: of("started_total"),
        refused: of("refused_total"),
        overloads: of("overloads_total"),
        wait_p50_us: of("wait_p50_us"),
        wait_p99_us: of("wait_p99_us"),
        service_p50_us: of("service_p50_us"),
        service_p99_us: of("service_p99_us"),
        ..Shown::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(all: &[(&str, u64)]) -> Figures {
        all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn what_a_clone_said_last_is_shown_while_it_is_fresh() {
        let (stages, now) = (CloneStages::default(), Instant::now());
        // Every figure has its own place.
        let every: Shown = Shown::default();
        let names = every.gauges().into_iter().chain(every.totals()).map(|(name, _)| name);
        let all: Figures = names.zip(1..).map(|(name, nth)| (name.to_owned(), nth)).collect();
        let both = [("requests".to_owned(), all.clone()), ("db".to_owned(), figures(&[("limit", 7), ("newer", 9)]))];
        stages.told(now, "shop/2", both.into()).unwrap();
        let seen = stages.all(now);
        assert_eq!((&*seen[0].1, seen[0].2.limit, seen[0].2.waiting), ("db", 7, 0));
        let again = seen[1].2.gauges().into_iter().chain(seen[1].2.totals());
        let again: Figures = again.map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(again, all.into_iter().map(|(n, v)| if n == "overloaded" { (n, 1) } else { (n, v) }).collect());

        let jobs = figures(&[("withheld", 1), ("withheld_total", 5), ("crashes_total", 2)]);
        stages.told(now, "shout/0", [("jobs".to_owned(), jobs)].into()).unwrap();
        let work = Work { crashes: 2, withheld: 1, withheld_jobs: 5 };
        assert_eq!(stages.works(now), [("shout/0".to_owned(), work)], "no stage of the shop is a worker's");
        let (stages, now) = (CloneStages::default(), Instant::now());
        stages.told(now, "shop/2", [("db".to_owned(), figures(&[("limit", 8)]))].into()).unwrap();
        assert_eq!(stages.all(now).iter().map(|one| one.2.limit).collect::<Vec<_>>(), [8], "it has no other any more");
        assert!(stages.all(now + FRESH).is_empty());
    }

    #[test]
    fn there_are_few_with_short_names() {
        let (stages, now) = (CloneStages::default(), Instant::now());
        for name in ["", "a b", "a\"", "a.b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(stages.told(now, "shop/2", [(name.to_owned(), Figures::new())].into()).is_err(), "{name}");
        }
        let many = |count: usize| (0..count).map(|n| (format!("s{n}"), Figures::new())).collect();
        assert!(stages.told(now, "shop/2", many(STAGES_MAX + 1)).is_err());
        assert!(stages.all(now).is_empty());
        stages.told(now, "shop/2", many(STAGES_MAX)).unwrap();
        assert_eq!(stages.all(now).len(), STAGES_MAX);
    }
}
