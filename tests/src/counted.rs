//! The table of docs/guide/queues.md of what libraries for job queues did while nodes were killed: printed from
//! examples/queues/counted.json, which `tests/all/beside/queues.rs` writes.

/// Between these lines of the page.
const BEGINS: &str = "<!-- printed from examples/queues/counted.json: `just docs` -->\n";
const ENDS: &str = "<!-- end -->\n";

/// The table, as text of a page.
fn table(counted: &std::collections::BTreeMap<String, serde_json::Value>) -> String {
    let mut text = String::from(
        "| library | version | client | jobs | kills | lost | still held | done twice | put again |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, of) in counted {
        let word = |key: &str| of[key].as_str().map_or_else(|| of[key].to_string(), str::to_owned);
        let [version, client, jobs, kills] = ["version", "client", "jobs", "kills"].map(word);
        let [lost, held, twice, again] = ["lost", "held", "twice", "put_again"].map(word);
        text +=
            &format!("| {name} | {version} | {client} | {jobs} | {kills} | {lost} | {held} | {twice} | {again} |\n");
    }
    text
}

#[test]
fn what_was_counted_of_queues_is_in_the_docs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let counted = std::fs::read_to_string(root.join("examples/queues/counted.json")).unwrap();
    let at = root.join("docs/guide/queues.md");
    let page = std::fs::read_to_string(&at).unwrap();
    let (before, rest) = page.split_once(BEGINS).expect("the page has where it begins");
    let (_, behind) = rest.split_once(ENDS).expect("the page has where it ends");
    let text = format!("{before}{BEGINS}\n{}\n{ENDS}{behind}", table(&serde_json::from_str(&counted).unwrap()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&at, &text).unwrap();
    }
    assert!(
        text == std::fs::read_to_string(&at).unwrap(),
        "docs/guide/queues.md is not what was counted: `just docs` writes it"
    );
}
