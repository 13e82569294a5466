//! How long a GIF takes to be made small, by its length (SNS 4.3, figure 7): half as wide and high, a JPEG of quality 25, asked for
//! one after the other through the edge and the service on one core, where nothing is kept as each picture is another one.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base::Rng;

use crate::Plan;
use crate::closed::runtime;
use crate::cluster::Cluster;
use crate::experiments::distill::{declared, request};
use crate::experiments::snstable2::line_through;
use crate::keep::Kept;
use crate::peers::wait_until;
use crate::pictures::{Pictures, size_of};
use crate::plot::{Line, lines};
use crate::report::{Figure, Report};

/// Pixels of the pictures' longer sides.
const SIDES: [u16; 12] = [64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416];
/// Parts of pixels that are as chance would have them: drawings, and what has more in it.
const NOISE: [f64; 3] = [0.02, 0.1, 0.3];
/// The paper's figure, on a machine of 1997.
const PAPER_MS_A_KB: f64 = 8.0;
const SEED: u64 = 1997;

struct Gif {
    width: u16,
    height: u16,
    bytes: Vec<u8>,
}

impl Gif {
    /// Bands of colour with noise over them.
    fn drawn(side: u16, noise: f64, rng: &mut Rng) -> Result<Gif, String> {
        let (width, height) = (side, side * 3 / 4);
        let palette: Vec<u8> = (0..32_u8).flat_map(|at| [at * 8, 255 - at * 7, at * 3]).collect();
        let mut pixels = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let is_noise = rng.chance(noise);
                pixels.push(if is_noise { rng.below(32) as u8 } else { ((x + 2 * y) / 24 % 32) as u8 });
            }
        }
        let mut bytes = Vec::new();
        let frame = gif::Frame { width, height, buffer: pixels.into(), ..gif::Frame::default() };
        let mut encoder = gif::Encoder::new(&mut bytes, width, height, &palette).map_err(|e| e.to_string())?;
        encoder.write_frame(&frame).map_err(|e| e.to_string())?;
        drop(encoder);
        Ok(Gif { width, height, bytes })
    }
}

/// The picture with a comment right before its end, so that it is another one for each path.
fn commented(gif: &[u8], comment: &[u8]) -> Vec<u8> {
    let (picture, end) = gif.split_at(gif.len() - 1);
    let comment = &comment[..comment.len().min(255)];
    [picture, &[0x21, 0xfe, comment.len() as u8], comment, &[0], end].concat()
}

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("sns7");
    let mut rng = Rng::new(SEED);
    let gifs = SIDES.iter().flat_map(|side| NOISE.map(|noise| (*side, noise)));
    let gifs = gifs.map(|(side, noise)| Gif::drawn(side, noise, &mut rng)).collect::<Result<Vec<_>, _>>()?;
    let bodies: Vec<Vec<u8>> = gifs.iter().map(|gif| gif.bytes.clone()).collect();
    let pictures = Pictures::serve("image/gif", move |path| {
        let which = std::str::from_utf8(path).ok().and_then(|path| path[1..].split('-').next()?.parse::<usize>().ok());
        commented(&bodies[which.unwrap_or(0).min(bodies.len() - 1)], path)
    })?;
    let cluster = Cluster::start(1, false)?;
    cluster.set_apart()?;
    cluster.apply(&declared(&format!("lab=http://{}", pictures.addr), ""))?;
    let door = cluster.doors("http").first().copied().ok_or("no edge")?;
    let runtime = runtime()?;
    let ask = |conn: &mut Kept, at: usize, turn: u64| {
        let gif = &gifs[at];
        let fit = format!("rs:fit:{}:{}", gif.width / 2, gif.height / 2);
        let path = format!("/insecure/{fit}/q:25/f:jpg/plain/origin://lab/{at}-{turn}.gif");
        let answer = runtime.block_on(conn.ask(&request(&path)))?;
        let is_made = answer.status == 200 && answer.head.contains("coppice-answer: exact");
        let is_half = size_of(&answer.body) == Some((gif.width / 2, gif.height / 2));
        if is_made && is_half { Ok(()) } else { Err(format!("picture {at} was not made: {}", answer.head)) }
    };
    let open = || runtime.block_on(Kept::open(door));
    wait_until("the service gives pictures", || open().and_then(|mut conn| ask(&mut conn, 0, 0)).is_ok())?;

    let mut conn = open()?;
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); gifs.len()];
    let ends = Instant::now() + Duration::from_secs(plan.seconds);
    let mut turn = 0;
    while Instant::now() < ends || turn < 2 {
        turn += 1;
        for (at, took) in took.iter_mut().enumerate() {
            let began = Instant::now();
            ask(&mut conn, at, turn)?;
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let mut points = Vec::new();
    let mut csv = "bytes,width,milliseconds\n".to_owned();
    for (gif, took) in gifs.iter().zip(&mut took) {
        took.sort_by(f64::total_cmp);
        let median = took[took.len() / 2];
        let _ = writeln!(csv, "{},{},{median:.3}", gif.bytes.len(), gif.width);
        points.push((gif.bytes.len() as f64 / 1e3, median));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (slope, fit) = line_through(&points);
    report.figures.push(Figure::new(
        "each KB more of a GIF takes",
        "ms",
        slope,
        "the paper, 1997",
        Some(PAPER_MS_A_KB),
    ));
    report.figures.push(Figure::new("what a straight line explains of it (R²)", "", fit, "", None));
    let most = points.last().map_or(0.0, |point| point.1);
    report.figures.push(Figure::new("the longest of them", "ms", most, "", None));
    report.write(&plan.out, "sns7.csv", &csv)?;
    let curve = [Line { name: "median".into(), points }];
    let title = "A GIF made half as large, JPEG of quality 25 (SNS figure 7)";
    report.write(&plan.out, "sns7.svg", &lines(title, "KB", "ms", &curve, &[]))?;
    report.notes.push(format!("{turn} times each of {} drawn pictures, one at a time, nothing kept", gifs.len()));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_changes_the_file_and_not_the_picture() {
        let gif = Gif::drawn(64, 0.1, &mut Rng::new(1)).unwrap();
        let read = |bytes: &[u8]| {
            let mut decoder = gif::DecodeOptions::new().read_info(bytes).unwrap();
            decoder.read_next_frame().unwrap().unwrap().buffer.to_vec()
        };
        let other = commented(&gif.bytes, b"/0-7.gif");
        assert_ne!(gif.bytes, other);
        assert_eq!(read(&gif.bytes), read(&other));
        assert_eq!(read(&gif.bytes).len(), 64 * 48);
    }

    #[test]
    fn more_in_a_picture_makes_it_longer() {
        let length = |side, noise| Gif::drawn(side, noise, &mut Rng::new(1)).unwrap().bytes.len();
        assert!(length(64, 0.02) > 500 && length(64, 0.02) < length(64, 0.3) && length(64, 0.3) < length(416, 0.3));
    }
}
