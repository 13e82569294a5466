//! Plots as plain SVG: lines over x, with axes from zero, labels at the line's end.

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A plot with titled axes. Vertical marks (kills, say) are drawn thin over the whole height.
pub fn lines(title: &str, x_title: &str, y_title: &str, lines: &[Line], marks: &[f64]) -> String {
    let max =
        |pick: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|l| &l.points).map(pick).fold(f64::MIN_POSITIVE, f64::max);
    let (x_max, y_max) = (max(|p| p.0), round_up(max(|p| p.1)));
    let x = |v: f64| LEFT + v / x_max * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - v / y_max * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    for i in 0..=4 {
        let (gx, gy) = (x_max * f64::from(i) / 4.0, y_max * f64::from(i) / 4.0);
        svg += &format!(
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\n",
            WIDTH - RIGHT,
            y(gy),
            y(gy)
        );
        svg +=
            &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n", LEFT - 6.0, y(gy) + 4.0, short(gy));
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            x(gx),
            HEIGHT - BOTTOM + 16.0,
            short(gx)
        );
    }
    for mark in marks {
        svg += &format!(
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1}\" stroke=\"#c33\" stroke-dasharray=\"2 3\"/>\n",
            x(*mark),
            HEIGHT - BOTTOM
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> = line.points.iter().map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
        svg += &format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n",
            points.join(" ")
        );
        if let Some((px, py)) = line.points.last() {
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>\n",
                x(*px) + 5.0,
                y(*py) + 4.0,
                escape(&line.name)
            );
        }
    }
    svg += &format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        WIDTH / 2.0,
        HEIGHT - 6.0,
        escape(x_title)
    );
    svg += &format!(
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>\n",
        HEIGHT / 2.0,
        escape(y_title)
    );
    svg
}

/// 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|v| *v >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => format!("{:.0}k", v / 1000.0),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 46.0;
const COLOURS: [&str; 6] = ["#1668a8", "#d07a00", "#2e8540", "#7a3e9d", "#b3261e", "#5f6368"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_lines_and_escapes_its_words() {
        let svg =
            lines("a < b", "x", "y", &[Line { name: "one".into(), points: vec![(0.0, 1.0), (2.0, 3.0)] }], &[1.0]);
        assert!(svg.contains("a &lt; b") && svg.contains("polyline") && svg.contains("stroke-dasharray"));
        assert_eq!(round_up(3.0), 5.0);
    }
}
