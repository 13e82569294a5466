//! The site of the demo: text, and photographs that no camera took. They are computed from a number, the same on every clone, so
//! that nothing has to be shipped or stored.

use std::sync::{Arc, OnceLock};

use sdk::axum::Router;
use sdk::axum::extract::Path;
use sdk::axum::http::{HeaderMap, StatusCode, header};
use sdk::axum::response::{Html, IntoResponse, Response};
use sdk::axum::routing::get;

use crate::image::{self, Picture};

/// Photographs of the site, and their size.
pub const PHOTOGRAPHS: u64 = 8;
const SIZE: (u32, u32) = (1024, 768);
const QUALITY: u8 = 92;
const CACHED: (header::HeaderName, &str) = (header::CACHE_CONTROL, "max-age=600");

/// Below `base`, as it is mounted at the edge: the edge passes paths on as they are.
pub fn routes(base: &str) -> Router {
    let site = Router::new()
        .route("/", get(index))
        .route("/about.html", get(about))
        .route("/photo/{name}", get(photo))
        .route("/drawing.png", get(drawing))
        .route("/dot.gif", get(dot));
    let base = base.trim_end_matches('/');
    if base.is_empty() { site } else { Router::new().nest(&format!("{base}/"), site) }
}

fn page(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\n<style>body {{ max-width: 60em; \
         margin: auto }} img {{ max-width: 100% }}</style></head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    ))
}

async fn index() -> Html<String> {
    let hills = (1..=PHOTOGRAPHS).map(|nth| {
        format!(
            "<h2>Hill {nth}</h2>\n<p><img src=\"photo/{nth}.jpg\" srcset=\"photo/{nth}.jpg 1024w\" alt=\"hills, number {nth}\" \
             width=\"1024\" height=\"768\"></p>\n<p>{TEXT}</p>\n"
        )
    });
    let body = format!(
        "<p><img src=\"dot.gif\" alt=\"\"> <a href=\"about.html\">About these pictures</a></p>\n{}\
         <p><a href=\"about.html\"><img src=\"drawing.png\" alt=\"a ring\"></a></p>\n",
        hills.collect::<String>()
    );
    page("Hills that are nowhere", &body)
}

const TEXT: &str = "The evening light comes from the left, as it does on most postcards. Nobody has walked over this hill, since \
    it is a sum of a few waves and some noise; the same number gives the same hill again, on every machine of the cluster.";

async fn about() -> Html<String> {
    let body = format!(
        "<p>Eight photographs of a country that is computed. <a href=\"./\">Back</a></p>\n\
         <p><img src=\"photo/1.jpg\" alt=\"hills\"></p>\n<p>{TEXT}</p>\n<p>{HOW}</p>\n"
    );
    page("About", &body)
}

const HOW: &str = "The sky is two layers of clouds over a colour that grows paler towards the horizon. Three ridges stand before it, each \
    lower and darker than the one behind, with grass that gets coarser as it comes nearer. A little grain lies over all of it, as over \
    each photograph that was taken late in the day; it is what makes such pictures large, and what nobody misses in small ones. Ask for a page by another node and the \
    same hills are there: each clone of the site computes them for itself, from nothing but their numbers.";

async fn photo(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let number = name.strip_suffix(".jpg").and_then(|n| n.parse().ok()).filter(|n| (1..=PHOTOGRAPHS).contains(n));
    let Some(number) = number else { return (StatusCode::NOT_FOUND, "no such photograph\n").into_response() };
    static MADE: [OnceLock<Arc<[u8]>>; PHOTOGRAPHS as usize] = [const { OnceLock::new() }; PHOTOGRAPHS as usize];
    let made = tokio::task::spawn_blocking(move || {
        let slot = &MADE[number as usize - 1];
        slot.get_or_init(|| image::jpeg(&photograph(number, SIZE.0, SIZE.1), QUALITY).unwrap_or_default().into())
            .clone()
    });
    let Ok(bytes) = made.await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let tag = format!("\"hill-{number}\"");
    if headers.get(header::IF_NONE_MATCH).is_some_and(|shown| shown.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    ([(header::CONTENT_TYPE, "image/jpeg"), CACHED], [(header::ETAG, tag)], bytes.to_vec()).into_response()
}

/// A ring of which most shines through.
async fn drawing() -> Response {
    let mut rgba = Vec::with_capacity(400 * 400 * 4);
    for at in 0..400 * 400_i64 {
        let (x, y) = (at % 400 - 200, at / 400 - 200);
        let is_ring = (150 * 150..180 * 180).contains(&(x * x + y * y));
        rgba.extend_from_slice(if is_ring { &[20, 90, 60, 255] } else { &[255, 255, 255, 0] });
    }
    let bytes = Picture::new(400, 400, rgba).and_then(|picture| image::png(&picture).ok()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "image/png"), CACHED], bytes).into_response()
}

/// One pixel: too small to be worth anything.
async fn dot() -> Response {
    let bytes: &[u8] =
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x01D\0;";
    ([(header::CONTENT_TYPE, "image/gif"), CACHED], bytes).into_response()
}

/// Hills under a sky, with grass and haze: as much detail as a photograph has, and the same for the same number.
pub fn photograph(number: u64, width: u32, height: u32) -> Picture {
    let (across, down) = (width as f32, height as f32);
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rgba = Vec::with_capacity(width as usize * height as usize * 4);
    let ridges: Vec<Vec<f32>> =
        (0..3).map(|ridge| (0..width).map(|x| ridge_at(seed, ridge, x as f32 / across)).collect()).collect();
    for y in 0..height {
        let v = y as f32 / down;
        for x in 0..width {
            let u = x as f32 / across;
            let grain = noise(seed, x as f32 * 0.9, y as f32 * 0.9) - 0.5;
            let cloud = noise(seed ^ 1, u * 6.0, v * 14.0) * 0.6 + noise(seed ^ 2, u * 23.0, v * 40.0) * 0.4;
            let mut colour = [90.0 + 120.0 * v + 60.0 * cloud, 130.0 + 80.0 * v + 45.0 * cloud, 190.0 + 30.0 * cloud];
            for (ridge, line) in ridges.iter().enumerate() {
                if v > line[x as usize] {
                    let near = ridge as f32 / 2.0;
                    let grass =
                        noise(seed ^ 3, x as f32 * 0.25, y as f32 * 0.35) * (10.0 + 50.0 * near) + grain * 30.0 * near;
                    let light = 0.55 + 0.45 * (1.0 - u);
                    colour = [
                        (120.0 - 60.0 * near + grass) * light,
                        (140.0 - 30.0 * near + grass) * light,
                        (160.0 - 110.0 * near + grass * 0.5) * light,
                    ];
                }
            }
            rgba.extend(colour.map(|c| (c + grain * 6.0).clamp(0.0, 255.0) as u8));
            rgba.push(255);
        }
    }
    Picture { width, height, rgba }
}

/// Where a ridge stands, as a share of the height; nearer ones lower.
fn ridge_at(seed: u64, ridge: u64, u: f32) -> f32 {
    let wave = |scale: f32, part: u64| noise(seed ^ (ridge + 5) ^ (part << 8), u * scale, 0.5);
    0.35 + 0.2 * ridge as f32 + 0.25 * (wave(3.0, 1) - 0.5) + 0.06 * (wave(17.0, 2) - 0.5)
}

/// Smooth between whole numbers, from 0 to 1.
fn noise(seed: u64, x: f32, y: f32) -> f32 {
    let (left, top) = (x.floor(), y.floor());
    let corner = |dx: i64, dy: i64| {
        let mut h = seed ^ ((left as i64 + dx) as u64).wrapping_mul(0xa076_1d64_78bd_642f);
        h = (h ^ ((top as i64 + dy) as u64).wrapping_mul(0xe703_7ed1_a0b4_28db)).wrapping_mul(0x8ebc_6af0_9c88_c6e3);
        ((h ^ (h >> 32)).wrapping_mul(0x589_9651_f4a7_c15d) >> 40) as f32 / (1 << 24) as f32
    };
    let ease = |t: f32| t * t * (3.0 - 2.0 * t);
    let (a, b) = (ease(x - left), ease(y - top));
    let mix = |from: f32, to: f32, share: f32| from + (to - from) * share;
    mix(mix(corner(0, 0), corner(1, 0), a), mix(corner(0, 1), corner(1, 1), a), b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_photograph_and_another_number_another_one() {
        let all: Vec<_> = (1..4).map(|n| photograph(n, 40, 30)).collect();
        assert_eq!(all[0], photograph(1, 40, 30));
        assert!(all[0] != all[1] && all[1] != all[2]);
    }
}
