//! The last minute, second by second, of all nodes together.

use std::collections::VecDeque;

use crate::limits::SAMPLES;
use crate::picture::Picture;

/// What is drawn: a figure's name for people, its unit, and how it is read from a picture.
pub struct Measure {
    pub id: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    read: fn(&Picture) -> f64,
}

pub static MEASURES: [Measure; 4] = [
    Measure { id: "http-rate", title: "HTTP requests", unit: "a second", read: |p| p.sum("http.requests") as f64 },
    Measure {
        id: "http-p99",
        title: "HTTP latency, 99 of 100 below",
        unit: "ms",
        read: |p| p.most("http.p99_us") as f64 / 1000.0,
    },
    Measure { id: "resp-rate", title: "Redis commands", unit: "a second", read: |p| p.sum("resp.commands") as f64 },
    Measure {
        id: "resp-p99",
        title: "Redis latency, 99 of 100 below",
        unit: "ms",
        read: |p| p.most("resp.p99_us") as f64 / 1000.0,
    },
];

#[derive(Clone, Debug, Default)]
pub struct History {
    /// Oldest first.
    samples: VecDeque<[f64; MEASURES.len()]>,
}

impl History {
    /// Takes what a second brought.
    pub fn push(&mut self, picture: &Picture) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(std::array::from_fn(|i| (MEASURES[i].read)(picture)));
    }

    /// One measure, oldest first.
    pub fn of(&self, measure: usize) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.samples.iter().map(move |sample| sample[measure])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Node;

    #[test]
    fn it_keeps_a_minute() {
        let mut history = History::default();
        for n in 0..100 {
            let gauges = [("http.requests".into(), n), ("http.p99_us".into(), 1500)].into();
            history.push(&Picture { nodes: vec![Node { gauges, ..Node::default() }], ..Picture::default() });
        }
        let rates: Vec<f64> = history.of(0).collect();
        assert_eq!((rates.len(), rates[0], rates[59]), (60, 40.0, 99.0));
        assert_eq!(history.of(1).last(), Some(1.5));
    }
}
