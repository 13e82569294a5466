//! HTML that is rewritten while it flows: pictures and `srcset` become distilled ones, each with a link to its original; words are
//! marked; a toolbar ends the page, without script. What the rewriter cannot go on with flows on as it is: a page is never cut.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aho_corasick::AhoCorasick;
use bytes::Bytes;
use encoding_rs::Encoding;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use lol_html::html_content::{ContentType, TextType};
use lol_html::send::{Element, HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, MemorySettings, doc_text, element, end};
use sdk::axum::body::Body;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::apart::Apart;
use crate::fetch::Url;
use crate::limits::*;
use crate::link;
use crate::preferences::{Preferences, QUALITIES, WIDTHS};
use crate::sizes::Sizes;

/// Where all that is ours lies on the site.
pub const OURS: &str = "/_distill";
/// Below which distilled pictures lie: the wishes, and then the path of the original.
pub const PICTURES: &str = "/_distill/i/";

/// A page as it was asked for.
#[derive(Clone)]
pub struct Page {
    /// With its query.
    pub path: String,
    /// As `Host` has it.
    pub host: String,
    pub wanted: Preferences,
    pub sizes: Sizes,
    /// What stands before its paths, where pages of several sites have pictures; nothing where it is one's own.
    pub begins: String,
    pub others: Others,
}

/// What becomes of links to other sites.
#[derive(Clone, Debug)]
pub(crate) enum Others {
    /// They stay.
    Left,
    /// Pictures by http come by the proxy, too.
    Proxied,
    /// All that is by HTTPS comes by us, under another name.
    Apart(Arc<Apart>),
}

impl Page {
    /// Under what sizes of its own pictures are noted: paths are those of one site.
    fn noted(&self, url: &str) -> String {
        format!("{}{url}", self.begins)
    }
}

/// The encoding that a `Content-Type` names, if pages in it can be rewritten. Without a name, UTF-8 until the page says otherwise.
pub fn encoding(content_type: &str) -> Option<AsciiCompatibleEncoding> {
    let named = content_type.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    match named {
        None => Some(AsciiCompatibleEncoding::utf_8()),
        Some(label) => AsciiCompatibleEncoding::new(Encoding::for_label(label.as_bytes())?),
    }
}

/// What makes another page of one while it comes.
pub trait Flowing: Send + 'static {
    fn write(&mut self, data: &[u8]) -> Bytes;
    fn end(self) -> Bytes;
}

/// What comes of a page, as that comes.
pub fn rewritten(mut body: Incoming, mut flow: impl Flowing) -> Body {
    let (send, receive) = mpsc::channel::<Result<Bytes, io::Error>>(4);
    tokio::spawn(async move {
        loop {
            let out = match timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => flow.write(&data),
                    Err(_) => continue,
                },
                Ok(None) => {
                    let _ = send.send(Ok(flow.end())).await;
                    return;
                }
                // The reader has to see that it is not whole.
                Ok(Some(Err(error))) => {
                    let _ = send.send(Err(io::Error::other(error))).await;
                    return;
                }
                Err(_) => {
                    let _ = send.send(Err(io::ErrorKind::TimedOut.into())).await;
                    return;
                }
            };
            if !out.is_empty() && send.send(Ok(out)).await.is_err() {
                return;
            }
        }
    });
    Body::from_stream(futures_util::stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|part| (part, receive))
    }))
}

type Out = Arc<Mutex<Vec<u8>>>;
/// Takes what is rewritten.
type Sink = Box<dyn FnMut(&[u8]) + Send>;
type Rewriter = HtmlRewriter<'static, Sink>;

/// One page on its way.
pub(crate) struct Flow {
    /// None: it gave up, and all that comes flows on as it is.
    rewriter: Option<Rewriter>,
    out: Out,
}

impl Flow {
    pub fn new(page: Page, encoding: AsciiCompatibleEncoding) -> Self {
        let out = Out::default();
        let sink = Arc::clone(&out);
        let sink: Sink = Box::new(move |bytes| lock(&sink).extend_from_slice(bytes));
        Self { rewriter: Some(HtmlRewriter::new(settings(page, encoding), sink)), out }
    }
}

impl Flowing for Flow {
    fn write(&mut self, data: &[u8]) -> Bytes {
        match &mut self.rewriter {
            Some(rewriter) => {
                if rewriter.write(data).is_err() {
                    self.rewriter = None;
                }
            }
            None => return Bytes::copy_from_slice(data),
        }
        std::mem::take(&mut *lock(&self.out)).into()
    }

    fn end(mut self) -> Bytes {
        if let Some(rewriter) = self.rewriter.take() {
            let _ = rewriter.end();
        }
        std::mem::take(&mut *lock(&self.out)).into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known in the middle of a page.
struct State {
    page: Page,
    /// Of which page links are relative; None: of one elsewhere.
    base: Option<String>,
    has_base: bool,
    /// Open links, in which there can be no other one: what comes after them.
    links: Vec<String>,
    /// Open elements in which no word may be marked.
    unmarked: usize,
    /// Whether a piece of the same text has gone by.
    is_mid_text: bool,
    pictures: Vec<String>,
    has_toolbar: bool,
}

fn settings(page: Page, encoding: AsciiCompatibleEncoding) -> Settings<'static, 'static> {
    let words = (!page.wanted.words.is_empty())
        .then(|| {
            AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .match_kind(aho_corasick::MatchKind::LeftmostLongest)
                .build(&page.wanted.words)
        })
        .and_then(Result::ok);
    let base = Some(page.path.clone());
    let is_renamed = matches!(page.others, Others::Apart(_));
    let state = State {
        page,
        base,
        has_base: false,
        links: Vec::new(),
        unmarked: 0,
        is_mid_text: false,
        pictures: Vec::new(),
        has_toolbar: false,
    };
    let state = Arc::new(Mutex::new(state));
    let of = |state: &Arc<Mutex<State>>| Arc::clone(state);
    let (bases, links, images, sources, bodies, ends) =
        (of(&state), of(&state), of(&state), of(&state), of(&state), of(&state));
    let (unmarked, renamed) = (of(&state), of(&state));
    let mut settings = Settings::new_send()
        .with_encoding(encoding)
        .with_strict(false)
        .with_adjust_charset_on_meta_tag(true)
        .with_graceful_bail_out_on_content_handler_error(true)
        .with_memory_settings(
            MemorySettings::new()
                .with_preallocated_parsing_buffer_size(1024)
                .with_max_allowed_memory_usage(PAGE_BYTES_MAX)
                .with_graceful_bail_out_on_memory_limit_exceeded(true),
        )
        .append_element_content_handler(element!("base[href]", move |base: &mut Element<'_, '_>| {
            let mut state = lock(&bases);
            if !state.has_base {
                state.has_base = true;
                let href = base.get_attribute("href").unwrap_or_default();
                state.base = state.resolve(&href);
            }
            Ok(())
        }))
        .append_element_content_handler(element!("a[href]", move |link: &mut Element<'_, '_>| {
            let mut state = lock(&links);
            // So many are never open where they are closed at all.
            if state.links.len() >= OPEN_LINKS_MAX {
                state.links.clear();
            }
            state.links.push(String::new());
            drop(state);
            let ended = Arc::clone(&links);
            link.on_end_tag(Box::new(move |end| {
                if let Some(after) = lock(&ended).links.pop().filter(|after| !after.is_empty()) {
                    end.after(&after, ContentType::Html);
                }
                Ok(())
            }))
        }))
        .append_element_content_handler(element!("img", move |img: &mut Element<'_, '_>| {
            lock(&images).image(img);
            Ok(())
        }))
        .append_element_content_handler(element!("source[srcset]", move |source: &mut Element<'_, '_>| {
            let mut state = lock(&sources);
            if state.page.wanted.pictures {
                state.srcset(source)
            } else {
                source.remove()
            }
            Ok(())
        }))
        .append_element_content_handler(element!("svg, math, select", move |element: &mut Element<'_, '_>| {
            if element.is_self_closing() || element.end_tag_handlers().is_none() {
                return Ok(());
            }
            lock(&unmarked).unmarked += 1;
            let ended = Arc::clone(&unmarked);
            element.on_end_tag(Box::new(move |_| {
                let mut state = lock(&ended);
                state.unmarked = state.unmarked.saturating_sub(1);
                Ok(())
            }))
        }))
        .append_element_content_handler(element!("body", move |body: &mut Element<'_, '_>| {
            let ended = Arc::clone(&bodies);
            body.on_end_tag(Box::new(move |end| {
                let mut state = lock(&ended);
                if !state.has_toolbar {
                    state.has_toolbar = true;
                    end.before(&state.toolbar(), ContentType::Html);
                }
                Ok(())
            }))
        }))
        .append_document_content_handler(end!(move |end| {
            let state = lock(&ends);
            if !state.has_toolbar {
                end.append(&state.toolbar(), ContentType::Html);
            }
            Ok(())
        }));
    if is_renamed {
        settings = settings.append_element_content_handler(element!("*", move |element: &mut Element<'_, '_>| {
            lock(&renamed).renamed(element);
            Ok(())
        }));
    }
    if let Some(words) = words {
        settings = settings.append_document_content_handler(doc_text!(move |text| {
            let mut state = lock(&state);
            let is_first = !state.is_mid_text;
            state.is_mid_text = !text.last_in_text_node();
            let is_plain = text.text_type() == TextType::Data && state.unmarked == 0;
            if is_plain
                && text.as_str().len() <= TEXT_BYTES_MAX
                && let Some(marked) = marked(text.as_str(), &words, is_first)
            {
                text.replace(&marked, ContentType::Html);
            }
            Ok(())
        }));
    }
    settings
}

/// The text, which is HTML, with its words marked; None if there are none. Text comes in pieces: what begins a later piece may be the
/// rest of a word, or of an entity, and stays as it is.
fn marked(text: &str, words: &AhoCorasick, is_first: bool) -> Option<String> {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut out = String::new();
    let mut done = 0;
    for found in words.find_iter(text) {
        let (before, after) = (&text[..found.start()], &text[found.end()..]);
        let name = before.rfind('&').map(|at| &before[at + 1..]);
        let is_entity = name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#'));
        let begins = if found.start() == 0 { is_first } else { !is_letter(before.chars().next_back()) };
        if !begins || is_entity || is_letter(after.chars().next()) {
            continue;
        }
        out.push_str(&text[done..found.start()]);
        out.push_str("<mark>");
        out.push_str(&text[found.range()]);
        out.push_str("</mark>");
        done = found.end();
    }
    (done > 0).then(|| out + &text[done..])
}

impl State {
    /// What stands before paths of ours: nothing, but where the page has its links begin elsewhere.
    fn here(&self) -> String {
        let host = || if self.page.host.is_empty() { String::new() } else { format!("//{}", self.page.host) };
        match &self.base {
            Some(_) => String::new(),
            None if self.page.begins.is_empty() => escaped(&host().replace('&', "&amp;")),
            None => escaped(&self.page.begins.replace('&', "&amp;")),
        }
    }

    /// The path on this site that a link means, as it stands in the page.
    fn resolve(&self, link: &str) -> Option<String> {
        let path = link::resolve(self.base.as_deref()?, link::own(link, &self.page.host))?;
        (!path.starts_with(OURS) && path.len() <= URL_BYTES_MAX).then_some(path)
    }

    fn picture(&mut self, link: &str) -> Option<String> {
        let part = self.page.wanted.as_part();
        let (url, noted) = match self.resolve(link) {
            Some(path) => {
                let url = format!("{PICTURES}{part}{path}");
                let noted = self.page.noted(&url);
                (url, noted)
            }
            None => {
                let (begin, path) = self.elsewhere(link)?;
                let url = format!("{begin}{PICTURES}{part}{path}");
                (url.clone(), url)
            }
        };
        if self.pictures.len() < PICTURES_MAX && !self.pictures.contains(&noted) {
            self.pictures.push(noted);
        }
        Some(url)
    }

    /// Of a link of a page of others: to which site it leads, if that one comes by us, too, and the path there.
    fn elsewhere(&self, link: &str) -> Option<(String, String)> {
        let scheme = match self.page.others {
            Others::Left => return None,
            Others::Proxied => "http",
            Others::Apart(_) => "https",
        };
        let link = link.trim_matches(|c: char| c.is_ascii_whitespace());
        let link = if link.starts_with("//") { format!("{scheme}:{link}") } else { link.to_owned() };
        // What stands in the page is HTML: an entity may be anything.
        let url = Url::parse(&link).ok().filter(|url| url.scheme() == scheme && !link.contains('&'))?;
        let begin = match &self.page.others {
            Others::Apart(apart) => apart.begin(&url)?,
            Others::Left | Others::Proxied => format!("http://{}", url.authority()),
        };
        (!url.path.starts_with(OURS)).then_some((begin, url.path))
    }

    /// Links of any kind that name the host of a site that comes under another name here.
    fn renamed(&self, element: &mut Element<'_, '_>) {
        const NAMED: [&str; 9] =
            ["href", "src", "action", "formaction", "poster", "data", "cite", "background", "manifest"];
        let Others::Apart(apart) = &self.page.others else { return };
        for name in NAMED {
            let new = element.get_attribute(name).and_then(|link| apart.link(&link));
            if let Some(new) = new {
                let _ = element.set_attribute(name, &new);
            }
        }
        if element.tag_name() == "meta" {
            let content = element.get_attribute("content").unwrap_or_default();
            let at = content.to_ascii_lowercase().find("url=").map(|at| at + 4);
            let new = at.and_then(|at| Some((at, apart.link(content[at..].trim_matches(['\'', '"', ' ']))?)));
            if let Some((at, new)) = new {
                let _ = element.set_attribute("content", &format!("{}{new}", &content[..at]));
            }
        }
    }

    fn image(&mut self, img: &mut Element<'_, '_>) {
        let src = img.get_attribute("src").unwrap_or_default();
        let elsewhere = || self.elsewhere(&src).map(|(begin, path)| format!("{begin}{path}"));
        let Some(original) = self.resolve(&src).or_else(elsewhere) else {
            if !self.page.wanted.pictures {
                img.replace(&escaped(&img.get_attribute("alt").unwrap_or_default()), ContentType::Html);
            }
            return;
        };
        let original = escaped(&original);
        if !self.page.wanted.pictures {
            let alt = escaped(
                &img.get_attribute("alt").filter(|alt| !alt.trim().is_empty()).unwrap_or_else(|| "picture".into()),
            );
            match self.links.last() {
                Some(_) => img.replace(&format!("[{alt}]"), ContentType::Html),
                None => img.replace(&format!("<a href=\"{original}\">[{alt}]</a>"), ContentType::Html),
            }
            return;
        }
        if img.has_attribute("srcset") {
            self.srcset(img);
        }
        if let Some(url) = self.picture(&src) {
            let _ = img.set_attribute("src", &url);
        }
        // What the page says of the bytes holds for others now.
        img.remove_attribute("integrity");
        let link = format!("<a class=\"distill-original\" href=\"{original}\">original</a>");
        match self.links.last_mut() {
            Some(after) if after.len() < TEXT_BYTES_MAX => after.push_str(&link),
            Some(_) => (),
            None => img.after(&link, ContentType::Html),
        }
    }

    fn srcset(&mut self, element: &mut Element<'_, '_>) {
        let set = element.get_attribute("srcset").unwrap_or_default();
        let new: Vec<String> = candidates(&set)
            .into_iter()
            .map(|(url, descriptor)| {
                let url = self.picture(url).unwrap_or_else(|| url.to_owned());
                if descriptor.is_empty() { url } else { format!("{url} {descriptor}") }
            })
            .collect();
        let _ = element.set_attribute("srcset", &new.join(", "));
    }

    fn toolbar(&self) -> String {
        let wanted = &self.page.wanted;
        let (known, (before, after)) = self.page.sizes.of(&self.pictures);
        let saved = match (self.pictures.len(), known) {
            (0, _) => "No picture of this page is distilled.".to_owned(),
            (all, 0) => format!("{all} pictures: load the page once more to see what was saved."),
            (all, known) => {
                let percent = (before.saturating_sub(after) * 100).checked_div(before).unwrap_or(0);
                let of = if known < all { format!(" ({known} of {all} pictures)") } else { String::new() };
                format!("Saved <b>{}</b> bytes of {before}: {percent} %{of}.", before.saturating_sub(after))
            }
        };
        let option = |value: String, name: String, is: bool| {
            format!("<option value=\"{value}\"{}>{name}</option>", if is { " selected" } else { "" })
        };
        let mut qualities = QUALITIES.to_vec();
        if !qualities.contains(&wanted.quality) {
            qualities.push(wanted.quality);
        }
        let qualities: String =
            qualities.iter().map(|q| option(q.to_string(), q.to_string(), *q == wanted.quality)).collect();
        let mut widths = WIDTHS.to_vec();
        if !widths.contains(&wanted.width) {
            widths.push(wanted.width);
        }
        let width = |w: u32| if w == 0 { "as it is".to_owned() } else { format!("up to {w}") };
        let widths: String = widths.iter().map(|w| option(w.to_string(), width(*w), *w == wanted.width)).collect();
        let check = |name: &str, is: bool| {
            format!(
                "<label><input type=\"checkbox\" name=\"{name}\" value=\"on\"{}> {name}</label>",
                if is { " checked" } else { "" }
            )
        };
        let here = self.here();
        format!(
            "<div id=\"distill-toolbar\"><link rel=\"stylesheet\" href=\"{here}{OURS}/toolbar.css\"><form method=\"post\" action=\"{here}{OURS}/preferences\" \
             accept-charset=\"utf-8\"><span>{saved}</span> <label>quality <select name=\"quality\">{qualities}</select></label> <label>width \
             <select name=\"width\">{widths}</select></label> {} {} <label>mark <input name=\"words\" value=\"{}\"></label> <input \
             type=\"hidden\" name=\"back\" value=\"{}\"><button>Keep</button></form></div>\n",
            check("pictures", wanted.pictures),
            check("grey", wanted.grey),
            escaped(&wanted.words.join(" ")),
            escaped(&self.page.path.replace('&', "&amp;")),
        )
    }
}

/// For an attribute or text, of what is HTML already: entities stay.
fn escaped(raw: &str) -> String {
    raw.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// URLs and descriptors of a `srcset`, as the HTML standard reads it.
fn candidates(set: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let mut rest = set;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            return all;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        let bare = url.trim_end_matches(',');
        if bare.len() < url.len() {
            all.push((bare, ""));
            rest = after;
            continue;
        }
        let end = after.find(',').unwrap_or(after.len());
        all.push((url, after[..end].trim()));
        rest = &after[end..];
    }
}

pub const STYLE: &str = "#distill-toolbar { position: sticky; bottom: 0; padding: .4em; background: #eee; color: #222; font: 13px sans-serif; \
     border-top: 1px solid #999 }\n#distill-toolbar form { display: flex; flex-wrap: wrap; gap: .8em; align-items: center }\n\
     .distill-original { font: 11px sans-serif; margin-left: .3em }\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn page(wanted: Preferences) -> Page {
        Page {
            path: "/a/b.html?c=1&d".into(),
            host: "site.org".into(),
            wanted,
            sizes: Sizes::default(),
            begins: String::new(),
            others: Others::Left,
        }
    }

    /// The page without its toolbar, fed in pieces of each length.
    fn through(html: &str, wanted: &Preferences) -> String {
        let ends: Vec<String> = [1, 7, html.len().max(1)]
            .iter()
            .map(|piece| {
                let mut flow = Flow::new(page(wanted.clone()), AsciiCompatibleEncoding::utf_8());
                let mut out: Vec<u8> = html.as_bytes().chunks(*piece).flat_map(|part| flow.write(part)).collect();
                out.extend(flow.end());
                let out = String::from_utf8(out).unwrap();
                let at = out.find("<div id=\"distill-toolbar\">").unwrap();
                let rest = &out[at..];
                format!("{}{}", &out[..at], &rest[rest.find("</div>\n").unwrap() + 7..])
            })
            .collect();
        // Words at the edge of a piece are another matter.
        if wanted.words.is_empty() {
            assert!(ends.iter().all(|end| *end == ends[2]), "{ends:?}");
        }
        ends[2].clone()
    }

    #[test]
    fn pictures_become_distilled_ones_with_a_link_to_each_original() {
        let usual = Preferences::default();
        let original = |href: &str| format!("<a class=\"distill-original\" href=\"{href}\">original</a>");
        for (html, expected) in [
            ("<img src=x.jpg alt=y>", format!("<img src=\"/_distill/i/q40/a/x.jpg\" alt=y>{}", original("/a/x.jpg"))),
            (
                "<img src='/x.jpg?a=1&amp;b'>",
                format!("<img src='/_distill/i/q40/x.jpg?a=1&amp;b'>{}", original("/x.jpg?a=1&amp;b")),
            ),
            (
                "<img src=\"https://site.org/x.jpg\">",
                format!("<img src=\"/_distill/i/q40/x.jpg\">{}", original("/x.jpg")),
            ),
            ("<img src=\"https://other.org/x.jpg\">", "<img src=\"https://other.org/x.jpg\">".into()),
            ("<img src=\"data:image/png;base64,AA\">", "<img src=\"data:image/png;base64,AA\">".into()),
            ("<img src=\"/_distill/i/q1/x\">", "<img src=\"/_distill/i/q1/x\">".into()),
            (
                "<a href=/z><img src=/x.jpg></a>!",
                format!("<a href=/z><img src=\"/_distill/i/q40/x.jpg\"></a>{}!", original("/x.jpg")),
            ),
            (
                "<picture><source srcset='s.webp 2x, //o.org/t.webp, /u.webp 3x'><img src=/x.jpg></picture>",
                format!(
                    "<picture><source srcset='/_distill/i/q40/a/s.webp 2x, //o.org/t.webp, /_distill/i/q40/u.webp 3x'><img \
                     src=\"/_distill/i/q40/x.jpg\">{}</picture>",
                    original("/x.jpg")
                ),
            ),
            (
                "<base href='/other/'><base href='http://no/'><img src=x.jpg>",
                format!(
                    "<base href='/other/'><base href='http://no/'><img src=\"/_distill/i/q40/other/x.jpg\">{}",
                    original("/other/x.jpg")
                ),
            ),
            (
                "<base href='https://other.org/'><img src=x.jpg>",
                "<base href='https://other.org/'><img src=x.jpg>".into(),
            ),
            (
                "<script>'<img src=x.jpg>'</script><!-- <img src=x.jpg> -->",
                "<script>'<img src=x.jpg>'</script><!-- <img src=x.jpg> -->".into(),
            ),
        ] {
            let got = through(html, &usual);
            // Quotes are the rewriter's matter.
            assert_eq!(got.replace('\'', "\""), expected.replace('\'', "\""), "{html}");
        }
    }

    #[test]
    fn without_pictures_there_are_links_in_their_place() {
        let none = Preferences { pictures: false, ..Preferences::default() };
        assert_eq!(
            through("<img src=/x.jpg alt='a &lt;b&gt; \"c\"'>", &none),
            "<a href=\"/x.jpg\">[a &lt;b&gt; &quot;c&quot;]</a>"
        );
        assert_eq!(through("<a href=/><img src=/x.jpg></a>", &none), "<a href=/>[picture]</a>");
        assert_eq!(
            through("<picture><source srcset=a><img src=https://o.org/x alt=o></picture>", &none),
            "<picture>o</picture>"
        );
    }

    #[test]
    fn words_are_marked_in_text_and_nowhere_else() {
        let wanted =
            Preferences { words: vec!["honey".into(), "amp".into(), "été".into()], ..Preferences::default() };
        for (html, expected) in [
            ("<p>Honey, honeycomb; HONEY!</p>", "<p><mark>Honey</mark>, honeycomb; <mark>HONEY</mark>!</p>"),
            ("<p class=honey>a &amp; b &#38;amp</p>", "<p class=honey>a &amp; b &#38;<mark>amp</mark></p>"),
            ("<p>un été &amp;</p>", "<p>un <mark>été</mark> &amp;</p>"),
            ("<title>honey</title><style>honey</style><script>honey</script><textarea>honey</textarea>", ""),
            (
                "<select><option>honey</select><svg><text>honey</text></svg><i>honey</i>",
                "<select><option>honey</select><svg><text>honey</text></svg><i><mark>honey</mark></i>",
            ),
            ("<!-- honey --> &honey;", ""),
        ] {
            assert_eq!(through(html, &wanted), if expected.is_empty() { html } else { expected });
        }
        let words = AhoCorasick::new(["p"]).unwrap();
        assert_eq!(marked("p; p", &words, false).as_deref(), Some("p; <mark>p</mark>"), "it may be the end of &amp;");
    }

    #[test]
    fn the_toolbar_says_what_is_wanted_and_what_was_saved() {
        let wanted = Preferences { quality: 33, grey: true, words: vec!["wax".into()], ..Preferences::default() };
        let page = page(wanted);
        let bar = |page: &Page| {
            let mut flow = Flow::new(page.clone(), AsciiCompatibleEncoding::utf_8());
            let mut out = flow.write(b"<html><body><img src=x.jpg><img src=y.jpg></body></html>").to_vec();
            out.extend(flow.end());
            String::from_utf8(out).unwrap()
        };
        let first = bar(&page);
        assert!(first.ends_with("</div>\n</body></html>") && first.matches("distill-toolbar").count() == 1, "{first}");
        assert!(
            first.contains("value=\"/a/b.html?c=1&amp;d\"") && first.contains("<option value=\"33\" selected>"),
            "{first}"
        );
        assert!(
            first.contains("name=\"grey\" value=\"on\" checked") && first.contains("name=\"words\" value=\"wax\""),
            "{first}"
        );
        assert!(first.contains("2 pictures: load the page once more"), "{first}");
        page.sizes.note("/_distill/i/q33g/a/x.jpg", (1000, 100));
        assert!(bar(&page).contains("Saved <b>900</b> bytes of 1000: 90 % (1 of 2 pictures)."), "{}", bar(&page));
        page.sizes.note("/_distill/i/q33g/a/y.jpg", (1000, 1000));
        assert!(bar(&page).contains("Saved <b>900</b> bytes of 2000: 45 %."), "{}", bar(&page));
    }

    #[test]
    fn the_toolbar_leads_here_wherever_links_of_the_page_begin() {
        for (base, begins, expected) in [
            ("", "", ""),
            ("<base href='/other/'>", "", ""),
            ("<base href='https://site.org/other/'>", "", ""),
            ("<base href='https://other.org/'>", "", "//site.org"),
            ("<base href='//other.org/'>", "https://s-site-org.d.example", "https://s-site-org.d.example"),
        ] {
            let page = Page { begins: begins.into(), ..page(Preferences::default()) };
            let mut flow = Flow::new(page, AsciiCompatibleEncoding::utf_8());
            let mut out = flow.write(format!("<html><head>{base}</head><body>x</body></html>").as_bytes()).to_vec();
            out.extend(flow.end());
            let out = String::from_utf8(out).unwrap();
            for path in ["action=\"HERE/_distill/preferences\"", "href=\"HERE/_distill/toolbar.css\""] {
                assert!(out.contains(&path.replace("HERE", expected)), "{base} {begins}: {out}");
            }
        }
    }

    #[test]
    fn a_page_that_is_too_much_flows_on_as_it_is() {
        let mut flow = Flow::new(page(Preferences::default()), AsciiCompatibleEncoding::utf_8());
        let begin = b"<p>begin</p><img src=x.jpg>";
        let tag = format!("<a href=z title=\"{}", "x".repeat(3 * PAGE_BYTES_MAX));
        let mut out = flow.write(begin).to_vec();
        for part in tag.as_bytes().chunks(100_000) {
            out.extend(flow.write(part));
        }
        out.extend(flow.write(b"\"><img src=y.jpg>end"));
        out.extend(flow.end());
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with("<p>begin</p><img src=\"/_distill/i/q40/a/x.jpg\">")
                && out.ends_with("\"><img src=y.jpg>end")
        );
        assert_eq!(out.matches('x').count(), tag.matches('x').count() + 2, "nothing is lost, nothing comes twice");
    }

    #[test]
    fn encodings_that_are_not_of_ascii_s_kind_are_left_alone() {
        for (text, is) in [
            ("text/html", true),
            ("text/html; charset=ISO-8859-1", true),
            ("text/html; Charset=\"utf-8\"", true),
            ("text/html; charset=utf-16le", false),
            ("text/html; charset=none", false),
        ] {
            assert_eq!(encoding(text).is_some(), is, "{text}");
        }
    }

    #[test]
    fn a_srcset_is_read_as_the_standard_says() {
        assert_eq!(candidates(" a 1x,b  2x , c"), [("a", "1x"), ("b", "2x"), ("c", "")]);
        assert_eq!(
            candidates("a,b 1x, data:image/png,A 2x,, d,"),
            [("a,b", "1x"), ("data:image/png,A", "2x"), ("d", "")]
        );
        assert!(candidates(" ,, ").is_empty());
    }
}
