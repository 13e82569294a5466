//! The keyword filter of TranSend (Fox et al., 1997), a worker of its own in fifteen lines: it marks in a page what its reader's expression
//! finds, in the text and not in tags. Expressions are of the kind that takes linear time, whatever they are.

use regex::{Captures, RegexBuilder};
use sdk::{Job, Made};

fn mark(job: Job) -> Made {
    let wanted = job.params.get("words").map_or("", String::as_str);
    let Ok(page) = std::str::from_utf8(&job.content) else { return Made::Bad("it is no text".into()) };
    // What is skipped comes first: of two that begin at one place the first is taken.
    let all = format!("(?is)<(?:script|style)\\b.*?</(?:script|style)>|<!--.*?-->|<[^>]*>|(?P<word>{wanted})");
    let mark = |one: &Captures<'_>| match one.name("word") {
        Some(word) if !word.is_empty() => format!("<mark>{}</mark>", word.as_str()),
        _ => one[0].to_owned(),
    };
    match RegexBuilder::new(&all).size_limit(1 << 20).build() {
        _ if wanted.is_empty() => Made::Unchanged,
        Ok(found) => Made::new(job.kind.clone(), found.replace_all(page, mark).into_owned()),
        Err(error) => Made::Bad(error.to_string()),
    }
}

#[tokio::main]
async fn main() -> Result<(), sdk::StartError> {
    sdk::Worker::from_env()?.run(mark).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_marked_in_text_and_nowhere_else() {
        let made = |words: &str, page: &str| {
            let params = [("words".to_owned(), words.to_owned())].into();
            let content = page.to_owned().into();
            match mark(Job { kind: "text/html".into(), content, params, url: None }) {
                Made::New { content, .. } => String::from_utf8(content.to_vec()).unwrap(),
                other => format!("{other:?}"),
            }
        };
        let page = "<p title=\"honey\">Honey and wax</p><script>honey</script><!-- honey -->";
        let marked =
            "<p title=\"honey\"><mark>Honey</mark> and <mark>wax</mark></p><script>honey</script><!-- honey -->";
        assert_eq!(made("honey|wax", page), marked);
        assert_eq!(made("", page), "Unchanged");
        assert!(made("(", page).starts_with("Bad"));
        assert!(made(r"(\w{1000}){1000}", page).starts_with("Bad"), "it would take too much memory");
        // Catastrophic for who goes back and forth; a tag that never ends, and a great many of them, are no trouble either.
        let long = format!("{}!<a{}", "a".repeat(50_000), "<".repeat(50_000));
        assert_eq!(made("(a+)+$", &long), long);
    }
}
