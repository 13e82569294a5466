//! Backlogs of jobs that services say they work on: what leaders of class `linear` tell of them goes to the manager,
//! which sizes the services by it, and into the view.

use std::collections::{BTreeMap, BTreeSet};

use base::Span;
use clones::{Backlog, Backlogs, ServiceSpec};

use crate::node::Node;
use crate::view::WorkedView;

impl Node {
    /// Tells class `linear` which queues somebody works on.
    pub(crate) fn tell_worked(&mut self) {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let names = self.services.values().flat_map(|spec| &spec.queues);
        for (namespace, queue) in names.filter_map(|name| name.split_once('/')) {
            all.entry(namespace.to_owned()).or_default().insert(queue.to_owned());
        }
        self.classes.linear.work_on(all);
    }

    /// What is told of the queues that services work on. Who led before may tell of one, too, for a moment: its oldest
    /// job counts.
    pub(crate) fn queues_told(&self) -> Backlogs {
        let names: BTreeSet<&String> = self.services.values().flat_map(|spec| &spec.queues).collect();
        names.into_iter().filter_map(|name| Some((name.clone(), self.backlog(name)?))).collect()
    }

    fn backlog(&self, name: &str) -> Option<Backlog> {
        let (namespace, queue) = name.split_once('/')?;
        let told = self.live_cards().filter_map(|card| self.report_of(card.id).classes.linear.queues.get(namespace));
        let told = told.flatten().filter(|shown| shown.name == queue).max_by_key(|shown| shown.oldest_ms)?;
        Some(Backlog { waiting: told.waiting, held: told.held, oldest: Span::millis(told.oldest_ms) })
    }

    pub(crate) fn worked_view(&self, spec: &ServiceSpec) -> Vec<WorkedView> {
        let view = |name: &String| {
            let (namespace, queue) = name.split_once('/')?;
            let told = self.backlog(name);
            let Backlog { waiting, held, oldest } = told.unwrap_or_default();
            let (namespace, queue, is_told) = (namespace.to_owned(), queue.to_owned(), told.is_some());
            Some(WorkedView { namespace, queue, is_told, waiting, held, oldest_ms: oldest.as_millis() })
        };
        spec.queues.iter().filter_map(view).collect()
    }
}
