//! Drawings (SVG) into pixels. What is drawn is what stands in the file alone: nothing is fetched, neither of a network nor of this
//! machine, and what would make another picture of it without that (texts, whose letters are elsewhere, pictures in it, scripts, what
//! moves) is not drawn at all, so the drawing goes out as it is. How much is read, how large it becomes and how long that takes is bounded.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Group, Node, Options, Tree, roxmltree};

use super::decode::{broken, check};
use super::{Bad, Picture};
use crate::limits::{
    SVG_BYTES_MAX, SVG_DASHES_MAX, SVG_DEPTH_MAX, SVG_NODES_MAX, SVG_SIDE, SVG_USES_MAX, SVG_WORK_MAX,
};

/// Elements without which it would be another picture, and which are not drawn.
const NOT_DRAWN: [&str; 14] = [
    "text",
    "image",
    "script",
    "foreignObject",
    "animate",
    "animateMotion",
    "animateTransform",
    "set",
    "switch",
    "audio",
    "video",
    "iframe",
    // What these take is not known beforehand.
    "filter",
    "pattern",
];

/// Whether a file may be one: an element `svg` comes first.
pub fn is_svg(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut rest = text.trim_ascii_start();
    // Declarations and comments may stand before it, not many.
    for _ in 0..8 {
        let end: &[u8] = match rest {
            [b'<', b's', b'v', b'g', next, ..] => return next.is_ascii_whitespace() || matches!(next, b'>' | b'/'),
            [b'<', b'?', ..] => b"?>",
            [b'<', b'!', b'-', b'-', ..] => b"-->",
            [b'<', b'!', b'D', b'O', b'C', ..] => b">",
            _ => return false,
        };
        let Some(at) = rest.windows(end.len()).take(4096).position(|window| window == end) else { return false };
        rest = rest[at + end.len()..].trim_ascii_start();
    }
    false
}

/// Its pixels, as many as it says; a small drawing has more, since it is sharp at any size: `least` on its longer side.
///
/// # Errors
/// It is broken, larger than what is drawn, or has something that is not drawn.
pub fn draw(bytes: &[u8], least: u32) -> Result<Picture, Bad> {
    let tree = read(bytes)?;
    let (width, height) = (tree.size().width(), tree.size().height());
    let longer = width.max(height);
    let least = least.min(SVG_SIDE) as f32;
    let scale = if longer < least { least / longer } else { 1.0 };
    let side = |side: f32| (side * scale).round().max(1.0) as u32;
    let (across, down) = (side(width), side(height));
    check(across, down, 1)?;
    let pixels = u64::from(across) * u64::from(down);
    let work = layers(tree.root()).map(|layers| pixels.saturating_mul(layers));
    if across.max(down) > SVG_SIDE || work.is_none_or(|work| work > SVG_WORK_MAX) {
        return Err(Bad::TooLarge("it would take too long to draw it".into()));
    }
    let mut pixmap = Pixmap::new(across, down).ok_or_else(|| broken("it has no pixels"))?;
    let fit = Transform::from_scale(across as f32 / width, down as f32 / height);
    resvg::render(&tree, fit, &mut pixmap.as_mut());
    let rgba = pixmap.pixels().iter().flat_map(|pixel| {
        let plain = pixel.demultiply();
        [plain.red(), plain.green(), plain.blue(), plain.alpha()]
    });
    Picture::new(across, down, rgba.collect()).ok_or_else(|| broken("it has not as many pixels as it says"))
}

fn read(bytes: &[u8]) -> Result<Tree, Bad> {
    let text = std::str::from_utf8(bytes).map_err(|_| Bad::Unknown)?;
    // Entities could make much of little.
    if text.len() > SVG_BYTES_MAX || text.contains("<!ENTITY") {
        return Err(Bad::Unknown);
    }
    let options = roxmltree::ParsingOptions { allow_dtd: true, nodes_limit: SVG_NODES_MAX, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options).map_err(broken)?;
    let mut uses = 0;
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        uses += usize::from(name == "use");
        let attributes = node.attributes().any(|attribute| leads_out(attribute.name(), attribute.value()));
        let style = name == "style" && node.descendants().filter_map(|part| part.text()).any(|style| !is_plain(style));
        let is_deep = node.ancestors().nth(SVG_DEPTH_MAX).is_some();
        // What is used within what is used becomes much again.
        if NOT_DRAWN.contains(&name) || attributes || style || is_deep || uses > SVG_USES_MAX {
            return Err(Bad::Unknown);
        }
    }
    Tree::from_xmltree(&document, &Options::default()).map_err(broken)
}

/// Of styles nothing but what stands in them.
fn is_plain(style: &str) -> bool {
    let style = style.to_ascii_lowercase();
    let inner = style
        .match_indices("url(")
        .all(|(at, begin)| style[at + begin.len()..].trim_start_matches([' ', '\'', '"']).starts_with('#'));
    inner && !style.contains("@import") && !style.contains("@keyframes") && !style.contains("animation")
}

fn leads_out(name: &str, value: &str) -> bool {
    match name {
        "href" => !value.trim_start().starts_with('#'),
        _ => !is_plain(value),
    }
}

/// How often each pixel may be painted, about; none: a line has more dashes than are drawn.
fn layers(group: &Group) -> Option<u64> {
    let mut all = 1;
    if let Some(mask) = group.mask() {
        all += 2 + layers(mask.root())? + mask.mask().map_or(Some(0), |mask| layers(mask.root()))?;
    }
    if let Some(clip) = group.clip_path() {
        all += 2 + layers(clip.root())? + clip.clip_path().map_or(Some(0), |clip| layers(clip.root()))?;
    }
    for child in group.children() {
        all += match child {
            Node::Group(group) => layers(group)?,
            Node::Path(path) => {
                let dashes = path.stroke().and_then(|stroke| stroke.dasharray());
                let around = path.bounding_box().width() + path.bounding_box().height();
                let of = |dashes: &[f32]| path.data().len() as f32 * around / dashes.iter().sum::<f32>();
                let count = dashes.map_or(0.0, of);
                if count.is_nan() || count > SVG_DASHES_MAX {
                    return None;
                }
                1
            }
            Node::Image(_) | Node::Text(_) => 1,
        };
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(inner: &str) -> Vec<u8> {
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"40\" height=\"20\">{inner}</svg>")
            .into_bytes()
    }

    const RED: &str = "<rect width=\"20\" height=\"20\" fill=\"#f00\"/>";

    #[test]
    fn shapes_are_drawn_at_the_size_that_is_wanted() {
        for (least, size) in [(0, (40, 20)), (400, (400, 200)), (u32::MAX, (SVG_SIDE, SVG_SIDE / 2))] {
            let picture = draw(&svg(RED), least).unwrap();
            assert_eq!((picture.width, picture.height), size, "{least}");
            assert_eq!(picture.rgba[..4], [255, 0, 0, 255]);
            assert_eq!(picture.rgba[picture.width as usize * 4 - 4..][..4], [0, 0, 0, 0], "nothing is there");
        }
    }

    #[test]
    fn what_would_be_another_picture_or_leads_out_of_the_file_is_not_drawn() {
        for inner in [
            "<text>a</text>",
            "<g><image href=\"file:///etc/passwd\" width=\"9\" height=\"9\"/></g>",
            "<script>1</script>",
            "<foreignObject/>",
            "<rect><animate attributeName=\"x\"/></rect>",
            "<use href=\"http://other.org/a.svg#b\"/>",
            "<use xlink:href=\"a.svg#b\"/>",
            "<rect fill=\"url(http://other.org/#a)\"/>",
            "<rect style=\"fill: URL( 'http://other.org/#a')\"/>",
            "<style>@import 'http://other.org/';</style>",
            "<style>rect { animation: a 1s }</style>",
            "<filter id=\"a\"/>",
        ] {
            let (alone, beside) = (svg(inner), svg(&format!("{RED}{inner}")));
            assert_eq!((draw(&alone, 0), draw(&beside, 0)), (Err(Bad::Unknown), Err(Bad::Unknown)), "{inner}");
        }
        let own = "<defs><linearGradient id=\"a\"/><rect id=\"b\" width=\"9\" height=\"9\"/></defs>\
                   <style>rect { fill: url(#a) }</style><use xlink:href=\"#b\"/>";
        assert!(draw(&svg(own), 0).is_ok());
    }

    #[test]
    fn what_would_take_too_much_is_not_drawn() {
        let laughs = "<!DOCTYPE svg [<!ENTITY a \"b\"><!ENTITY c \"&a;&a;\">]>";
        let deep = format!("{}{RED}{}", "<g opacity=\".5\">".repeat(200), "</g>".repeat(200));
        let doubling: String = (0..30)
            .map(|nth| format!("<g id=\"a{}\"><use href=\"#a{nth}\"/><use href=\"#a{nth}\"/></g>", nth + 1))
            .collect();
        let dashes = "<path d=\"M0 0H1e9\" stroke=\"#000\" stroke-dasharray=\"1e-6\"/>";
        for bytes in [
            [laughs.as_bytes(), &svg(RED)].concat(),
            svg(&deep),
            svg(&format!("<g id=\"a0\">{RED}</g>{doubling}")),
            svg(&RED.repeat(SVG_NODES_MAX as usize + 1)),
            svg(dashes),
            svg(&" ".repeat(SVG_BYTES_MAX)),
            b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1e9\" height=\"1e9\"><rect width=\"9\" height=\"9\"/></svg>".to_vec(),
            svg("<g"),
        ] {
            assert!(draw(&bytes, 0).is_err(), "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
        }
        // Much, large: each pixel would be painted a thousand times.
        let much = svg(&"<rect width=\"40\" height=\"20\" fill-opacity=\".1\"/>".repeat(2_000));
        assert!(draw(&much, 100).is_ok() && matches!(draw(&much, SVG_SIDE), Err(Bad::TooLarge(_))));
    }

    #[test]
    fn a_drawing_is_known_by_its_first_element() {
        let doctype =
            "<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd\">";
        for (text, is) in [
            ("<svg>", true),
            ("\u{feff} <?xml version=\"1.0\"?>\n<!-- <html> -->\n<svg\nwidth='1'>", true),
            (&*format!("<?xml version=\"1.0\"?>{doctype}<svg/>"), true),
            ("<svgs>", false),
            ("<html><svg></svg></html>", false),
            ("<!-- ", false),
            ("", false),
            ("<svg", false),
        ] {
            assert_eq!(is_svg(text.as_bytes()), is, "{text}");
        }
    }
}
