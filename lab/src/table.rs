//! Tables of `docs/performance.md`, made from the results that are kept: one for each experiment, in Markdown. Goals stand beside the
//! results, in `goals.json`: bounds of ratios by experiment and measure, `>=1.0` or `<=1.1`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::report::{Figure, Report};

/// Before and behind a table in a page: `<!-- lab report NAME -->`, and this.
const END: &str = "<!-- lab report ends -->";

/// Goals of all experiments.
pub const GOALS: &str = "goals.json";

type Goals = BTreeMap<String, BTreeMap<String, String>>;

/// The tables of the experiments of these names, or of all that are kept.
///
/// # Errors
/// What cannot be read, or is no result; a goal that is no bound or has no figure.
pub fn tables(results: &Path, names: &[String]) -> Result<String, String> {
    let all = all(results)?;
    if let Some(name) = names.iter().find(|name| !all.contains_key(*name)) {
        return Err(format!("no result of {name:?} is kept in {}", results.display()));
    }
    let wanted = all.into_iter().filter(|(name, _)| names.is_empty() || names.contains(name));
    Ok(wanted.map(|(_, table)| table).collect::<Vec<_>>().join("\n"))
}

/// A page with the tables of the results that are kept, each where the page has a place for it.
///
/// # Errors
/// As [`tables`]; a result without a place, a place without a result or an end.
pub fn put(page: &str, results: &Path) -> Result<String, String> {
    let mut all = all(results)?;
    let (mut made, mut rest) = (String::new(), page);
    while let Some((before, behind)) = rest.split_once("<!-- lab report ") {
        let place = behind.split_once(" -->\n").and_then(|(name, old)| Some((name, old.split_once(END)?.1)));
        let (name, after) = place.ok_or("a table in the page has no end")?;
        let table =
            all.remove(name).ok_or_else(|| format!("no result of {name:?} is kept, or its table is there twice"))?;
        made += &format!("{before}<!-- lab report {name} -->\n{table}{END}");
        rest = after;
    }
    if let Some(name) = all.keys().next() {
        return Err(format!(
            "the page has no place for the table of {name:?}: `<!-- lab report {name} -->` and `{END}`"
        ));
    }
    Ok(made + rest)
}

/// The tables of all results that are kept, by experiment.
fn all(results: &Path) -> Result<BTreeMap<String, String>, String> {
    let goals: Goals = if results.join(GOALS).exists() { read(&results.join(GOALS))? } else { Goals::new() };
    let none = BTreeMap::new();
    let mut tables = BTreeMap::new();
    let entries = std::fs::read_dir(results).map_err(|e| format!("cannot read {}: {e}", results.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_some_and(|e| e == "json") && path.file_name().is_some_and(|n| n != GOALS) {
            let report: Report = read(&path)?;
            let made = table(&report, goals.get(&report.name).unwrap_or(&none))?;
            tables.insert(report.name, made);
        }
    }
    Ok(tables)
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
    fn a_page_gets_its_tables_where_it_has_places_for_them() {
        let folder = folder("page", "{}");
        let page = format!("before\n<!-- lab report session -->\nold\n{END}\nbehind\n");
        let made = put(&page, &folder).unwrap();
        let table = tables(&folder, &[]).unwrap();
        assert_eq!(made, format!("before\n<!-- lab report session -->\n{table}{END}\nbehind\n"));
        assert_eq!(put(&made, &folder).unwrap(), made);
        for wrong in
            ["no place", "<!-- lab report session -->\nno end", &page.replace("session", "edge"), &page.repeat(2)]
        {
            assert!(put(wrong, &folder).is_err(), "{wrong}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_page_of_figures_has_the_tables_of_the_results_that_are_kept() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(lab.join("../docs/performance.md")).unwrap();
        let made = put(&page, &lab.join("results")).unwrap();
        assert!(made == page, "`cargo run -p lab -- report --into docs/performance.md` has something to write");
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
