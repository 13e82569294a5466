//! Figures of a class: what a number means stands beside the class that counts it, not in a list of whoever exports it.

/// A number that a class shows. Declared once, in order of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// `CLASS.WHAT_UNIT`; without a unit it is a plain number.
    pub name: &'static str,
    pub kind: Kind,
    /// One sentence for people; the help of a metric.
    pub about: &'static str,
}

/// How a figure behaves over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Is what is now, and also goes down.
    Gauge,
    /// Counts since the node started.
    Counter,
}

impl Figure {
    pub const fn gauge(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, about }
    }

    pub const fn counter(name: &'static str, about: &'static str) -> Self {
        Self { name, kind: Kind::Counter, about }
    }
}
