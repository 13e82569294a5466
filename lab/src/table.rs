//! Tables of `docs/performance.md`, made from the results that are kept: one for each experiment, in Markdown. Goals stand beside the
//! results, in `goals.json`: bounds of ratios by experiment and measure, `>=1.0` or `<=1.1`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::report::{Figure, Report};

/// Goals of all experiments.
pub const GOALS: &str = "goals.json";

type Goals = BTreeMap<String, BTreeMap<String, String>>;

/// The tables of the experiments of these names, or of all that are kept.
///
/// # Errors
/// What cannot be read, or is no result; a goal that is no bound or has no figure.
pub fn tables(results: &Path, names: &[String]) -> Result<String, String> {
    let mut reports = BTreeMap::new();
    let entries = std::fs::read_dir(results).map_err(|e| format!("cannot read {}: {e}", results.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let is_result = path.extension().is_some_and(|e| e == "json") && path.file_name().is_some_and(|n| n != GOALS);
        if is_result {
            let report: Report = read(&path)?;
            reports.insert(report.name.clone(), report);
        }
    }
    let goals: Goals = if results.join(GOALS).exists() { read(&results.join(GOALS))? } else { Goals::new() };
    if let Some(name) = names.iter().find(|name| !reports.contains_key(*name)) {
        return Err(format!("no result of {name:?} is kept in {}", results.display()));
    }
    let wanted = reports.values().filter(|report| names.is_empty() || names.contains(&report.name));
    let none = BTreeMap::new();
    let made: Vec<String> =
        wanted.map(|report| table(report, goals.get(&report.name).unwrap_or(&none))).collect::<Result<_, _>>()?;
    Ok(made.join("\n"))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn table(report: &Report, goals: &BTreeMap<String, String>) -> Result<String, String> {
    let name = &report.name;
    if let Some(measure) = goals.keys().find(|goal| report.figures.iter().all(|figure| figure.measure != **goal)) {
        return Err(format!("{name} has no figure {measure:?}, of which there is a goal"));
    }
    let made = report.made.as_ref().map_or_else(
        || format!("`lab run {name}`, nobody knows when"),
        |made| format!("`{}`, {}, {}", made.command, made.date, made.machine),
    );
    let mut text = format!("### {name}\n\n{made}\n\n| measure | Coppice | peer | ratio | goal |\n");
    text += "| --- | --- | --- | --- | --- |\n";
    for figure in &report.figures {
        let Figure { measure, unit, coppice, peer, peer_name, ratio } = figure;
        let peer = match peer {
            Some(peer) => format!("{peer_name} {}", number(*peer)),
            None if peer_name.is_empty() => String::new(),
            None => format!("{peer_name} not run"),
        };
        let shown = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let goal = goals.get(measure).map_or(Ok(String::new()), |goal| judged(goal, *ratio))?;
        text += &format!("| {measure}, {unit} | {} | {peer} | {shown} | {goal} |\n", number(*coppice));
    }
    for note in &report.notes {
        text += &format!("\n{note}\n");
    }
    Ok(text)
}

/// A goal, and whether the ratio misses it. What was not run misses nothing.
fn judged(goal: &str, ratio: Option<f64>) -> Result<String, String> {
    let wrong = || format!("a goal is `>=NUMBER` or `<=NUMBER`, not {goal:?}");
    let (is_least, bound) = match (goal.strip_prefix(">="), goal.strip_prefix("<=")) {
        (Some(bound), _) => (true, bound),
        (None, Some(bound)) => (false, bound),
        (None, None) => return Err(wrong()),
    };
    let bound: f64 = bound.trim().parse().map_err(|_| wrong())?;
    let misses = ratio.is_some_and(|ratio| if is_least { ratio < bound } else { ratio > bound });
    Ok(if misses { format!("{goal} **missed**") } else { goal.to_owned() })
}

/// Three digits at least, and thousands apart.
fn number(n: f64) -> String {
    if n.abs() < 100.0 {
        return format!("{n:.2}");
    }
    let digits = format!("{:.0}", n.abs());
    let mut text = if n < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the result of one experiment and goals of it.
    fn folder(name: &str, goals: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("lab-tables-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut report = Report::new("session");
        report.figures.push(Figure::new("50 connections", "operations/s", 27_403.0, "Redis", Some(31_018.0)));
        report.figures.push(Figure::new("p99", "ms", 3.5, "Redis", Some(3.0)));
        report.figures.push(Figure::new("of many", "operations/s", 1_234_567.0, "etcd", None));
        report.notes.push("nothing ran beside it".into());
        report.stored(&folder).unwrap();
        std::fs::write(folder.join(GOALS), goals).unwrap();
        folder
    }

    #[test]
    fn a_kept_result_is_a_table_that_says_what_is_missed() {
        let folder = folder("kept", r#"{"session": {"50 connections": ">=0.85", "p99": "<=1.0"}, "other": {}}"#);
        let text = tables(&folder, &["session".into()]).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"| 50 connections, operations/s | 27,403 | Redis 31,018 | 0.88 | >=0.85 |"), "{text}");
        assert!(lines.contains(&"| p99, ms | 3.50 | Redis 3.00 | 1.17 | <=1.0 **missed** |"), "{text}");
        assert!(lines.contains(&"| of many, operations/s | 1,234,567 | etcd not run |  |  |"), "{text}");
        assert!(text.contains("processors") && text.contains("nothing ran beside it"), "{text}");
        assert_eq!(tables(&folder, &[]).unwrap(), text);
        assert!(tables(&folder, &["edge".into()]).unwrap_err().contains("edge"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn goals_that_are_kept_are_bounds() {
        let kept: Goals = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(GOALS)).unwrap();
        let goals = kept.values().flat_map(BTreeMap::values);
        goals.for_each(|goal| assert_eq!(judged(goal, None).as_ref(), Ok(goal)));
    }

    #[test]
    fn a_goal_without_a_figure_or_a_bound_is_a_mistake() {
        for goals in [r#"{"session": {"60 connections": ">=1"}}"#, r#"{"session": {"p99": "1.0"}}"#, "[]"] {
            let folder = folder("mistake", goals);
            assert!(tables(&folder, &[]).is_err(), "{goals}");
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
