//! Pages for programs that show text and little else: plain text, Markdown, or Gemtext, made of HTML while it flows. Who wants one says so
//! with `Accept`. What is no text of the page (scripts, menus, forms) is left out; pictures are links to distilled ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lol_html::send::{Element, HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, MemorySettings, doc_text, element};
use sdk::axum::http::{HeaderMap, header};

use crate::limits::{PAGE_BYTES_MAX, TEXT_BYTES_MAX};
use crate::link;
use crate::pages::{Flowing, Others, PICTURES, Page};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Text,
    Markdown,
    Gemtext,
}

impl Form {
    /// The form that a request asks for before any other: browsers name HTML first, and most programs take anything.
    pub fn asked(headers: &HeaderMap) -> Option<Self> {
        let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
        match accept.split([',', ';']).next()?.trim().to_ascii_lowercase().as_str() {
            "text/plain" => Some(Self::Text),
            "text/markdown" => Some(Self::Markdown),
            "text/gemini" => Some(Self::Gemtext),
            _ => None,
        }
    }

    pub fn mime(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Gemtext => "text/gemini; charset=utf-8",
        }
    }
}

/// What is no text of a page.
const LEFT_OUT: &[&str] = &[
    "script", "style", "noscript", "template", "nav", "aside", "footer", "form", "button", "select", "textarea", "svg",
    "math", "iframe", "object", "video", "audio",
];
/// What stands in lines of its own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "title",
    "tr",
    "ul",
];

/// What the rewriter itself would give is not wanted.
type Sink = Box<dyn FnMut(&[u8]) + Send>;
type Rewriter = HtmlRewriter<'static, Sink>;

/// One page on its way.
pub(crate) struct Flow {
    /// None: it gave up; the rest cannot be read.
    rewriter: Option<Rewriter>,
    state: Arc<Mutex<State>>,
}

struct State {
    page: Page,
    form: Form,
    out: String,
    /// Open elements that are left out.
    left_out: usize,
    /// Open `pre`.
    as_it_is: usize,
    /// Nothing was written since the last line ended, or the last empty line.
    line: Line,
    is_spaced: bool,
    /// The last number of each open list; none where it has no numbers.
    lists: Vec<Option<u32>>,
    link: Option<Open>,
    /// Links that follow when the line ends, as Gemtext has them.
    later: Vec<(String, String)>,
}

/// A link whose text is not over.
struct Open {
    to: String,
    text: String,
    /// Something is between it and the word before.
    is_apart: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Begun,
    Ended,
    Empty,
}

impl Flow {
    pub fn new(page: Page, encoding: AsciiCompatibleEncoding, form: Form) -> Self {
        let state = Arc::new(Mutex::new(State {
            page,
            form,
            out: String::new(),
            left_out: 0,
            as_it_is: 0,
            line: Line::Empty,
            is_spaced: false,
            lists: Vec::new(),
            link: None,
            later: Vec::new(),
        }));
        let (elements, texts) = (Arc::clone(&state), Arc::clone(&state));
        let settings = Settings::new_send()
            .with_encoding(encoding)
            .with_strict(false)
            .with_adjust_charset_on_meta_tag(true)
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(PAGE_BYTES_MAX))
            .append_element_content_handler(element!("*", move |element: &mut Element<'_, '_>| {
                let name = element.tag_name();
                let has_end = !element.is_self_closing() && element.end_tag_handlers().is_some();
                lock(&elements).begins(&name, element, has_end);
                if has_end {
                    let ended = Arc::clone(&elements);
                    element.on_end_tag(Box::new(move |_| {
                        lock(&ended).ends(&name);
                        Ok(())
                    }))?;
                }
                Ok(())
            }))
            .append_document_content_handler(doc_text!(move |text| {
                lock(&texts).text(text.as_str());
                Ok(())
            }));
        let sink: Sink = Box::new(|_| ());
        Self { rewriter: Some(HtmlRewriter::new(settings, sink)), state }
    }
}

impl Flowing for Flow {
    fn write(&mut self, data: &[u8]) -> Bytes {
        if self.rewriter.as_mut().is_some_and(|rewriter| rewriter.write(data).is_err()) {
            self.rewriter = None;
            lock(&self.state).say("\n[This page could not be read on.]\n");
        }
        std::mem::take(&mut lock(&self.state).out).into()
    }

    fn end(mut self) -> Bytes {
        if let Some(rewriter) = self.rewriter.take() {
            let _ = rewriter.end();
        }
        let mut state = lock(&self.state);
        state.ends("a");
        state.breaks(Line::Ended);
        std::mem::take(&mut state.out).into()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn begins(&mut self, name: &str, element: &Element<'_, '_>, has_end: bool) {
        if LEFT_OUT.contains(&name) {
            self.left_out += usize::from(has_end);
        }
        if self.left_out > 0 {
            return;
        }
        if BLOCKS.contains(&name) {
            self.ends("a");
            self.breaks(if matches!(name, "li" | "tr" | "dd" | "dt") { Line::Ended } else { Line::Empty });
        }
        match name {
            "br" => self.breaks(Line::Ended),
            "td" | "th" => self.is_spaced = true,
            "hr" if self.form != Form::Gemtext => self.say("---"),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "title" => {
                let deep = name.strip_prefix('h').and_then(|deep| deep.parse::<usize>().ok()).unwrap_or(1);
                match self.form {
                    Form::Text => (),
                    Form::Markdown => self.say(&format!("{} ", "#".repeat(deep))),
                    Form::Gemtext => self.say(&format!("{} ", "#".repeat(deep.min(3)))),
                }
            }
            "ul" | "ol" if self.lists.len() < 64 => self.lists.push((name == "ol").then_some(0)),
            "li" => {
                let deep = "  ".repeat(self.lists.len().saturating_sub(1));
                let number = self.lists.last_mut().and_then(Option::as_mut).map(|number| {
                    *number += 1;
                    *number
                });
                self.say(&match (self.form, number) {
                    (Form::Gemtext, _) => "* ".to_owned(),
                    (_, Some(number)) => format!("{deep}{number}. "),
                    (_, None) => format!("{deep}- "),
                });
            }
            "blockquote" if self.form != Form::Text => self.say("> "),
            "pre" => {
                if self.form != Form::Text {
                    self.say("```");
                    self.breaks(Line::Ended);
                }
                self.as_it_is += usize::from(has_end);
            }
            "a" => {
                self.ends("a");
                let to = element.get_attribute("href").and_then(|href| self.address(&href));
                if let Some(to) = to.filter(|_| self.form != Form::Text) {
                    let is_apart = std::mem::take(&mut self.is_spaced);
                    self.link = Some(Open { to, text: String::new(), is_apart });
                }
            }
            "img" => {
                let alt = decoded(&element.get_attribute("alt").unwrap_or_default());
                let src = element.get_attribute("src").unwrap_or_default();
                let (alt, at) = (alt.trim(), self.picture(&src));
                match (self.form, at) {
                    (Form::Markdown, Some(at)) if self.link.is_none() => self.word(&format!("![{}]({at})", plain(alt))),
                    (Form::Gemtext, Some(at)) if self.later.len() < 64 => self.later.push((at, format!("[{alt}]"))),
                    _ if alt.is_empty() => (),
                    _ => self.word(&format!("[{alt}]")),
                }
            }
            "b" | "strong" if self.form == Form::Markdown => self.word("**"),
            "i" | "em" if self.form == Form::Markdown => self.word("*"),
            _ => (),
        }
    }

    fn ends(&mut self, name: &str) {
        if LEFT_OUT.contains(&name) {
            self.left_out = self.left_out.saturating_sub(1);
            return;
        }
        if self.left_out > 0 {
            return;
        }
        match name {
            "a" => {
                let Some(Open { to, text, is_apart }) = self.link.take() else { return };
                // What its text ends with is between it and the next word.
                let ends_apart = std::mem::replace(&mut self.is_spaced, is_apart);
                let text = text.trim();
                match self.form {
                    Form::Markdown if !text.is_empty() => self.word(&format!("[{}]({to})", plain(text))),
                    Form::Gemtext if !text.is_empty() => {
                        self.word(text);
                        if self.later.len() < 64 {
                            self.later.push((to, text.to_owned()));
                        }
                    }
                    _ => (),
                }
                self.is_spaced |= ends_apart;
            }
            "b" | "strong" if self.form == Form::Markdown => self.add("**"),
            "i" | "em" if self.form == Form::Markdown => self.add("*"),
            "pre" => {
                self.as_it_is = self.as_it_is.saturating_sub(1);
                if self.form != Form::Text {
                    self.breaks(Line::Ended);
                    self.say("```");
                }
                self.breaks(Line::Empty);
            }
            "ul" | "ol" => {
                self.lists.pop();
                self.breaks(if self.lists.is_empty() { Line::Empty } else { Line::Ended });
            }
            _ if BLOCKS.contains(&name) => {
                self.ends("a");
                self.breaks(if matches!(name, "li" | "tr" | "dd" | "dt") { Line::Ended } else { Line::Empty });
            }
            _ => (),
        }
    }

    fn text(&mut self, text: &str) {
        if self.left_out > 0 {
            return;
        }
        let text = decoded(text);
        if self.as_it_is > 0 && self.link.is_none() {
            self.say(&text);
            return;
        }
        let begins_apart = text.starts_with(|c: char| c.is_whitespace());
        self.is_spaced |= begins_apart;
        for word in text.split_whitespace() {
            self.word(word);
            self.is_spaced = true;
        }
        self.is_spaced = text.ends_with(|c: char| c.is_whitespace()) || text.is_empty() && self.is_spaced;
    }

    /// A word of a line, apart from the one before if something was between them.
    fn word(&mut self, word: &str) {
        let is_apart = std::mem::take(&mut self.is_spaced);
        if let Some(Open { text, is_apart: before, .. }) = &mut self.link {
            *before |= is_apart && text.is_empty();
            if text.len() + word.len() < TEXT_BYTES_MAX {
                text.push_str(if is_apart && !text.is_empty() { " " } else { "" });
                text.push_str(word);
            }
            return;
        }
        if is_apart && self.line == Line::Begun && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
        self.say(word);
    }

    fn add(&mut self, text: &str) {
        match &mut self.link {
            Some(link) if link.text.len() < TEXT_BYTES_MAX => link.text.push_str(text),
            Some(_) => (),
            None => self.say(text),
        }
    }

    fn say(&mut self, text: &str) {
        self.out.push_str(text);
        if !text.is_empty() {
            self.line = if text.ends_with('\n') { Line::Ended } else { Line::Begun };
        }
    }

    /// Ends the line, if one was begun; and leaves an empty one.
    fn breaks(&mut self, to: Line) {
        self.is_spaced = false;
        if self.line == Line::Begun {
            self.out.push('\n');
            self.line = Line::Ended;
        }
        for (at, text) in std::mem::take(&mut self.later) {
            self.out.push_str(&format!("=> {at} {text}\n"));
            self.line = Line::Ended;
        }
        if to == Line::Empty && self.line == Line::Ended {
            self.out.push('\n');
            self.line = Line::Empty;
        }
    }

    /// Where a link leads, from anywhere.
    fn address(&self, href: &str) -> Option<String> {
        let href = decoded(href.trim());
        let is_plain = !href.is_empty() && href.bytes().all(|b| b.is_ascii_graphic() && !b"<>()\"".contains(&b));
        if !is_plain || href.starts_with('#') || href.to_ascii_lowercase().starts_with("javascript:") {
            return None;
        }
        if let Others::Apart(apart) = &self.page.others
            && let Some(named) = apart.link(&href)
        {
            return Some(named);
        }
        match link::resolve(&self.page.path, link::own(&href, &self.page.host)) {
            Some(path) => Some(format!("{}{path}", self.page.begins)),
            None => Some(href),
        }
    }

    fn picture(&self, src: &str) -> Option<String> {
        let src = decoded(src.trim());
        let path = link::resolve(&self.page.path, link::own(&src, &self.page.host))?;
        let is_plain = path.bytes().all(|b| b.is_ascii_graphic() && !b"<>()\"".contains(&b));
        let wanted = &self.page.wanted;
        (is_plain && wanted.pictures).then(|| format!("{}{PICTURES}{}{path}", self.page.begins, wanted.as_part()))
    }
}

/// Without what would end a link's text in Markdown.
fn plain(text: &str) -> String {
    text.replace(['[', ']'], " ")
}

/// Text of HTML with its usual entities as characters.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.bytes().take(10).position(|b| b == b';');
        let meant = end.and_then(|end| match &rest[..end] {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some(' '),
            "shy" => Some('\u{ad}'),
            "mdash" => Some('—'),
            "ndash" => Some('–'),
            "hellip" => Some('…'),
            "lsquo" => Some('‘'),
            "rsquo" => Some('’'),
            "ldquo" => Some('“'),
            "rdquo" => Some('”'),
            "copy" => Some('©'),
            name => {
                let number = name.strip_prefix('#')?;
                let hex = number.strip_prefix(['x', 'X']).map(|hex| u32::from_str_radix(hex, 16));
                let code = hex.unwrap_or_else(|| number.parse()).ok()?;
                char::from_u32(code).filter(|c| !c.is_control() || c.is_whitespace())
            }
        });
        match (meant, end) {
            (Some(meant), Some(end)) => {
                out.push(meant);
                rest = &rest[end + 1..];
            }
            _ => out.push('&'),
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preferences::Preferences;
    use crate::sizes::Sizes;

    fn page() -> Page {
        Page {
            path: "/a/b.html".into(),
            host: "site.org".into(),
            wanted: Preferences::default(),
            sizes: Sizes::default(),
            begins: String::new(),
            others: Others::Left,
        }
    }

    fn made(html: &str, form: Form) -> String {
        // Whatever the pieces in which it comes: but of words, which are not cut in what follows.
        let mut flow = Flow::new(page(), AsciiCompatibleEncoding::utf_8(), form);
        let mut out = flow.write(html.as_bytes()).to_vec();
        out.extend(flow.end());
        String::from_utf8(out).unwrap()
    }

    const HTML: &str = "<!doctype html><title>T &amp; U</title><style>p {}</style><nav><a href=/>Home</a></nav>\
         <h1>Bees</h1>\n<p>They  make\n<b>honey</b>, see <a href=\"c.html?x=1&amp;y\">the <i>other</i> page</a>.<p>More<br>lines\
         <ul><li>one<li>two <a href=https://o.org/>o</a></ul><ol><li>first</li><li>second</li></ol>\
         <pre>a  b\n c</pre><script>no()</script><img src=p.jpg alt='a bee'><blockquote>said</blockquote>\
         <form><input><button>go</button></form><footer>foot</footer>end &#8212; &#x2014; &unknown;";

    #[test]
    fn a_page_becomes_what_such_programs_show() {
        let markdown = "# T & U\n\n# Bees\n\nThey make **honey**, see [the *other* page](/a/c.html?x=1&y).\n\nMore\nlines\n\n- one\n- two \
             [o](https://o.org/)\n\n1. first\n2. second\n\n```\na  b\n c\n```\n\n![a bee](/_distill/i/q40/a/p.jpg)\n\n> said\n\nend — — &unknown;\n";
        assert_eq!(made(HTML, Form::Markdown), markdown);
        let gemtext = "# T & U\n\n# Bees\n\nThey make honey, see the other page.\n=> /a/c.html?x=1&y the other page\n\nMore\nlines\n\n* one\n* two \
             o\n=> https://o.org/ o\n\n* first\n* second\n\n```\na  b\n c\n```\n\n=> /_distill/i/q40/a/p.jpg [a bee]\n\n> said\n\nend — — &unknown;\n";
        assert_eq!(made(HTML, Form::Gemtext), gemtext);
        let text = "T & U\n\nBees\n\nThey make honey, see the other page.\n\nMore\nlines\n\n- one\n- two o\n\n1. first\n2. second\n\na  b\n c\n\n\
             [a bee]\n\nsaid\n\nend — — &unknown;\n";
        assert_eq!(made(HTML, Form::Text), text);
        assert_eq!(made("<a href='javascript:x()'>a</a> <a href=#b>b</a> <a>c</a>", Form::Markdown), "a b c\n");
        assert_eq!(made("", Form::Text), "");
    }

    #[test]
    fn pieces_change_nothing_but_where_a_word_is_cut() {
        let whole = made(HTML, Form::Markdown);
        let mut flow = Flow::new(page(), AsciiCompatibleEncoding::utf_8(), Form::Markdown);
        let mut out: Vec<u8> = HTML.split_inclusive('>').flat_map(|part| flow.write(part.as_bytes())).collect();
        out.extend(flow.end());
        assert_eq!(String::from_utf8(out).unwrap(), whole);
    }

    #[test]
    fn who_asks_for_html_first_gets_it() {
        for (accept, form) in [
            ("text/markdown", Some(Form::Markdown)),
            ("text/markdown, text/html;q=0.8", Some(Form::Markdown)),
            ("Text/Plain; q=1", Some(Form::Text)),
            ("text/gemini", Some(Form::Gemtext)),
            ("text/html,application/xhtml+xml,text/plain", None),
            ("*/*", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(Form::asked(&headers), form, "{accept}");
        }
        assert_eq!(Form::asked(&HeaderMap::new()), None);
    }

    #[test]
    fn what_cannot_be_read_on_says_so_and_nothing_grows_without_bound() {
        let mut flow = Flow::new(page(), AsciiCompatibleEncoding::utf_8(), Form::Text);
        let tag = format!("<p>begin</p><a title=\"{}\">", "x".repeat(3 * PAGE_BYTES_MAX));
        let mut out: Vec<u8> = tag.as_bytes().chunks(100_000).flat_map(|part| flow.write(part)).collect();
        out.extend(flow.end());
        assert_eq!(String::from_utf8(out).unwrap(), "begin\n\n\n[This page could not be read on.]\n");
        let mut flow = Flow::new(page(), AsciiCompatibleEncoding::utf_8(), Form::Markdown);
        flow.write(b"<a href=/x>");
        for _ in 0..200 {
            assert!(flow.write("word ".repeat(2_000).as_bytes()).is_empty());
        }
        assert!(flow.end().len() <= TEXT_BYTES_MAX + 100);
        let deep = "<ul><li>".repeat(100_000);
        assert!(made(&deep, Form::Markdown).len() < 100_000 * 140);
    }
}
