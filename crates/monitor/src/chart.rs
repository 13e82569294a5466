//! A measure's last minute as a small picture: an area under a line, its scale, and the same in words for those who
//! do not see it. The newest sample is at the right edge; seconds that are not known yet are left out.

use maud::{Markup, html};

use crate::limits::SAMPLES;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 80.0;

/// `values`: oldest first, at most [`SAMPLES`].
pub fn chart(id: &str, title: &str, unit: &str, values: &[f64]) -> Markup {
    let now = values.last().copied().unwrap_or(0.0);
    let most = values.iter().copied().fold(0.0, f64::max);
    let top = scale(most);
    let line = points(values, top);
    let first = x(SAMPLES - values.len());
    html! {
        figure.chart {
            figcaption {
                span.what { (title) } " "
                span.now { (number(now)) " " (unit) }
            }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby={ (id) "-words" } preserveAspectRatio="none" {
                title id={ (id) "-words" } {
                    (title) ", last minute: now " (number(now)) " " (unit) ", at most " (number(most)) " " (unit)
                }
                line.grid x1="0" y1="0.5" x2=(WIDTH) y2="0.5" {}
                line.grid x1="0" y1=(HEIGHT / 2.0) x2=(WIDTH) y2=(HEIGHT / 2.0) {}
                @if !values.is_empty() {
                    polygon.area points={ (first) "," (HEIGHT) " " (line) " " (WIDTH) "," (HEIGHT) } {}
                    polyline.line points=(line) {}
                }
            }
            p.scale aria-hidden="true" { span { "top " (number(top)) } span { "last minute" } span { "most " (number(most)) } }
        }
    }
}

/// `x,y` pairs.
fn points(values: &[f64], top: f64) -> String {
    let before = SAMPLES - values.len();
    let place = |(i, value): (usize, &f64)| {
        let y = HEIGHT - (value / top).clamp(0.0, 1.0) * (HEIGHT - 2.0);
        format!("{:.1},{y:.1}", x(before + i))
    };
    values.iter().enumerate().map(place).collect::<Vec<_>>().join(" ")
}

fn x(sample: usize) -> f64 {
    sample.min(SAMPLES - 1) as f64 / (SAMPLES - 1) as f64 * WIDTH
}

/// The next of 1, 2, 5, 10, 20, ... so that the scale does not jump about.
fn scale(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let ten = 10f64.powf(most.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|step| step * ten).find(|top| *top >= most).unwrap_or(ten * 10.0)
}

/// As people write it: few digits.
pub fn number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.1} k", v / 1e3),
        v if v >= 100.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_round_and_never_too_small() {
        for (most, expect) in
            [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (37.0, 50.0), (99.0, 100.0), (5001.0, 10000.0)]
        {
            assert!((scale(most) - expect).abs() < 1e-9, "{most}: {}", scale(most));
        }
    }

    #[test]
    fn numbers_have_few_digits() {
        let shown: Vec<String> = [0.0, 0.123, 1.25, 42.0, 123.4, 65_000.0, 2_500_000.0].map(number).to_vec();
        assert_eq!(shown, ["0", "0.12", "1.2", "42", "123", "65.0 k", "2.5 M"]);
    }

    #[test]
    fn the_newest_is_at_the_right_and_the_highest_at_the_top() {
        assert_eq!(points(&[0.0, 10.0], 10.0), "294.9,80.0 300.0,2.0");
        let words = chart("a", "Rate", "a second", &[0.0, 10.0]).into_string();
        assert!(words.contains("Rate, last minute: now 10 a second, at most 10 a second"), "{words}");
        assert!(!chart("a", "Rate", "a second", &[]).into_string().contains("polyline"));
    }
}
