//! Cells that say what they are: on narrow screens each row of a table stands for itself, and the heads of its columns are out of
//! sight. Pages with scripts do the same to what comes later (`label` in monitor.js).

use std::fmt::Write;

use maud::{Markup, PreEscaped};

/// The same with `data-head` at each cell that is one column wide. Tables are as this crate writes them: plain heads, none within another.
pub fn headed(markup: Markup) -> Markup {
    let PreEscaped(html) = markup;
    let mut out = String::with_capacity(html.len() + html.len() / 4);
    let (mut heads, mut column, mut rest) = (Vec::<&str>::new(), 0, &*html);
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        let (tag, after) = tag.split_at(tag.find('>').map_or(tag.len(), |end| end + 1));
        out.push_str(before);
        rest = after;
        match tag.trim_start_matches('<').split([' ', '>']).next() {
            Some("table") => heads.clear(),
            Some("th") if tag.contains("scope=\"col\"") => {
                heads.push(after.split('<').next().unwrap_or_default());
            }
            Some("tr") => column = 0,
            Some("th") => column += 1,
            Some("td") => {
                let wide = tag.split_once("colspan=\"").and_then(|(_, wide)| wide.split('"').next()?.parse().ok());
                if wide.is_none()
                    && let Some(head) = heads.get(column)
                {
                    write!(out, "<td data-head=\"{head}\"").expect("a string takes everything");
                    out.push_str(&tag["<td".len()..]);
                    column += 1;
                    continue;
                }
                column += wide.unwrap_or(1);
            }
            Some(_) | None => (),
        }
        out.push_str(tag);
    }
    out.push_str(rest);
    PreEscaped(out)
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn each_cell_says_which_column_it_is_of() {
        let table = |heads: [&str; 3]| {
            html! {
                p { "a < b" }
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        tr { th scope="row" { "x" } td { "1" } td.n {} }
                        tr { th scope="row" { "y" } td colspan="2" { "<td>" } }
                    }
                }
            }
        };
        let both = html! { (table(["Name", "A & \"b\"", "C"])) (table(["Other", "D", "E"])) };
        let text = headed(both.clone()).into_string();
        for cell in [
            "<td data-head=\"A &amp; &quot;b&quot;\">1</td><td data-head=\"C\" class=\"n\"></td>",
            "<td colspan=\"2\">&lt;td&gt;</td>",
            "<td data-head=\"D\">1</td><td data-head=\"E\" class=\"n\"></td>",
        ] {
            assert!(text.contains(cell), "{cell}: {text}");
        }
        let mut without = text.clone();
        for head in ["A &amp; &quot;b&quot;", "C", "D", "E"] {
            without = without.replace(&format!(" data-head=\"{head}\""), "");
        }
        assert_eq!(without, both.into_string(), "nothing else is changed");
        assert_eq!(headed(PreEscaped("a <td".into())).into_string(), "a <td");
    }
}
