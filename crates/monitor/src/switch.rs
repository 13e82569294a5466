//! Buttons that take something out of use for maintenance and put it back. The page's script asks the person first, in the
//! page's dialog, and then the API with the operator's token: no page of another site can send that. Without scripts they
//! are not shown; `coppice node drain` and `coppice disable` do the same.

use std::fmt::Write;

use maud::{Markup, html};

pub fn drain(node: &str) -> Markup {
    let what = "Its clones start on other nodes first; it gets no new ones. It stays so, also over restarts, until it is put back.";
    button(&format!("/v1/nodes/{}/drain", plain(node)), "Drain", node, what)
}

pub fn undrain(node: &str) -> Markup {
    button(&format!("/v1/nodes/{}/undrain", plain(node)), "Put back", node, "It may get clones again.")
}

/// `shop`, `shop/2` (a clone) or `shop:search` (a partition).
pub fn disable(part: &str) -> Markup {
    let what = if part.contains(':') {
        "Its requests are refused: by its drop handler, or with 503. The service's clones serve the rest."
    } else if part.contains('/') {
        "It finishes what it has and ends; the service's other clones serve."
    } else {
        "All its requests are refused, and its clones end."
    };
    button(&format!("/v1/disable/{}", plain(part)), "Disable", part, what)
}

pub fn enable(part: &str) -> Markup {
    button(&format!("/v1/enable/{}", plain(part)), "Enable", part, "It is put back into use.")
}

/// Dead jobs of a queue, which may be named by a hash.
pub fn retry(namespace: &str, queue: &str, is_hidden: bool) -> Markup {
    let what = "Its dead jobs wait again as if they had just been put, a thousand at most at a time.";
    let how = if is_hidden { "?hidden=true" } else { "" };
    let path = format!("/v1/ns/{}/queues/{}/retry{how}", segment(namespace), segment(queue));
    button(&path, "Retry", &format!("dead jobs of {queue}"), what)
}

/// What only the operator sees: it is hidden until the token is there.
pub fn show() -> Markup {
    let what = "Keys of namespaces, and what clones said before they ended, are shown to who has the operator's token.";
    html! {
        button.switch type="button" aria-haspopup="dialog" data-show="" data-ask="Show keys and output?" data-what=(what)
            data-verb="Show" { "Show keys and output" }
    }
}

fn button(path: &str, verb: &str, which: &str, what: &str) -> Markup {
    html! {
        button.switch type="button" aria-haspopup="dialog" aria-label={ (verb) " " (which) } data-post=(path)
            data-ask={ (verb) " " (which) "?" } data-what=(what) data-verb=(verb) { (verb) }
    }
}

/// What every button opens.
pub fn dialog() -> Markup {
    html! {
        dialog #switch aria-labelledby="switch-title" aria-describedby="switch-what" {
            form method="dialog" {
                h2 #switch-title {}
                p #switch-what {}
                p {
                    label for="switch-token" { "Operator's token" } " "
                    input #switch-token type="password" autocomplete="current-password" required;
                }
                p.faint { "It is in " code { "admin.token" } " in the data folder of the first node. This page forgets it when it is closed." }
                p #switch-problem role="alert" {}
                p { button #switch-do type="submit" {} " " button #switch-cancel type="button" { "Cancel" } }
            }
        }
    }
}

/// One part of a path, which a `/` would end.
fn segment(name: &str) -> String {
    plain(name).replace('/', "%2F")
}

/// Part of a path of the API: only what needs no care there is left as it is.
fn plain(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a string takes everything"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_button_asks_is_an_address_of_the_api_whatever_the_name() {
        for (part, path) in [
            ("shop/2", "/v1/disable/shop/2"),
            ("shop:a b", "/v1/disable/shop:a%20b"),
            ("x?y#z%", "/v1/disable/x%3Fy%23z%25"),
        ] {
            let shown = disable(part).into_string();
            assert!(shown.contains(&format!("data-post=\"{path}\"")), "{shown}");
        }
        let shown = drain("\" onclick=\"x").into_string();
        assert!(!shown.contains("\" onclick") && shown.contains("/v1/nodes/%22%20onclick%3D%22x/drain"), "{shown}");
    }
}
