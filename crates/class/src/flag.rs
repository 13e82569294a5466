//! Options of the command line that are a class's own: whoever starts nodes passes them on without knowing what they mean.

/// `--NAME`: without a value, it is said or not.
#[derive(Clone, Copy, Debug)]
pub struct Flag<Settings> {
    /// Lower-case letters and `-`. No option of the program has the same.
    pub name: &'static str,
    /// One sentence for `--help`, without a full stop.
    pub help: &'static str,
    /// What it changes.
    pub set: fn(&mut Settings),
}
