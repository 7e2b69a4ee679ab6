//! A board as one SVG picture, from a Prometheus' answers: the same grid, titles, units and limits that Grafana gets.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::board::{Board, plain};
use crate::panel::{Panel, Shape, Unit};
use crate::prometheus::{Prometheus, Series};

/// Pixels of a column and of a row of the grid.
const COLUMN: f64 = 60.0;
const ROW: f64 = 30.0;
/// Points of a curve.
const POINTS: u32 = 120;
/// Lines of a legend that fit.
const LEGENDS_MAX: usize = 4;

const COLOURS: [&str; 8] =
    ["#73bf69", "#5794f2", "#f2cc0c", "#ff780a", "#b877d9", "#56b4c9", "#e02f44", "#9fa7b3"];

/// One answer with the legend of its query.
type Curve = (String, Series);

/// Draws every board below a folder.
///
/// # Errors
///
/// When Prometheus does not answer, or a file can't be written.
pub fn write(folder: &Path, boards: &[Board], prometheus: &Prometheus, span: Duration) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for board in boards {
        let text = draw(board, prometheus, span)?;
        let path = folder.join(format!("{}.svg", board.uid));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// One board.
fn draw(board: &Board, prometheus: &Prometheus, span: Duration) -> Result<String, String> {
    let places = board.places();
    let rows = places.iter().map(|(panel, _, y)| y + u32::from(panel.height)).max().unwrap_or(1);
    let (width, height) = (24.0 * COLUMN, f64::from(rows) * ROW + 40.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" \
         fill=\"#111217\"/><text x=\"10\" y=\"25\" fill=\"#eee\" font-size=\"18\">{}</text>",
        escape(board.title)
    );
    let mut places = places.into_iter();
    for (heading, panels) in &board.groups {
        let mut heading = Some(*heading);
        for (panel, x, y) in places.by_ref().take(panels.len()) {
            let (left, top) = (f64::from(x) * COLUMN, f64::from(y) * ROW + 40.0);
            if let Some(heading) = heading.take() {
                text(&mut svg, (10.0, top - 9.0), "#bbb", heading);
            }
            let size = (f64::from(panel.width) * COLUMN - 8.0, f64::from(panel.height) * ROW - 8.0);
            let curves = ask(panel, prometheus, span)?;
            let _ = write!(svg, "<g transform=\"translate({:.1},{top:.1})\">", left + 4.0);
            draw_panel(&mut svg, panel, size, &curves);
            svg.push_str("</g>");
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn ask(panel: &Panel, prometheus: &Prometheus, span: Duration) -> Result<Vec<Curve>, String> {
    let step = span / POINTS;
    let window = format!("{}s", (4 * step.as_secs()).max(10));
    let mut curves = Vec::new();
    for query in &panel.queries {
        let found = prometheus.range(&plain(&query.expr, &window), span, step.max(Duration::from_secs(1)))?;
        let named = found.into_iter().map(|series| (series.legend(query.legend), series));
        curves.extend(named.filter(|(_, series)| !series.points.is_empty()));
    }
    Ok(curves)
}

fn draw_panel(svg: &mut String, panel: &Panel, (width, height): (f64, f64), curves: &[Curve]) {
    let _ = write!(
        svg,
        "<rect width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"#181b1f\" stroke=\"#2c3235\"/>"
    );
    text(svg, (8.0, 17.0), "#ddd", panel.title);
    if curves.is_empty() {
        text(svg, (width / 2.0 - 20.0, height / 2.0), "#888", "no data");
        return;
    }
    match panel.shape {
        Shape::Number => number(svg, panel, height, curves),
        Shape::Bars => bars(svg, panel, (width, height), curves),
        Shape::States => states(svg, (width, height), curves),
        Shape::Lines | Shape::Stack => lines(svg, panel, (width, height), curves),
    }
}

fn last(series: &Series) -> f64 {
    series.points.last().map_or(0.0, |(_, value)| *value)
}

fn number(svg: &mut String, panel: &Panel, height: f64, curves: &[Curve]) {
    for (index, (_, series)) in curves.iter().take(3).enumerate() {
        let value = last(series);
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" font-size=\"26\" fill=\"{}\">{}</text>",
            12 + index * 130,
            height / 2.0 + 16.0,
            colour(panel, value),
            escape(&format(panel.unit, value))
        );
    }
}

/// The limits' colour of a value.
fn colour(panel: &Panel, value: f64) -> &'static str {
    let Some((yellow, red)) = panel.limits else { return COLOURS[0] };
    let reaches = |limit: f64| if yellow <= red { value >= limit } else { value <= limit };
    let is_short = yellow > red && value < yellow;
    if reaches(red) {
        COLOURS[6]
    } else if is_short || (yellow <= red && reaches(yellow)) {
        COLOURS[2]
    } else {
        COLOURS[0]
    }
}

fn bars(svg: &mut String, panel: &Panel, (width, height): (f64, f64), curves: &[Curve]) {
    let full = if panel.unit == Unit::Ratio {
        1.0
    } else {
        curves.iter().map(|(_, s)| last(s)).fold(1e-9, f64::max)
    };
    let pitch = ((height - 26.0) / curves.len() as f64).min(34.0);
    for (index, (legend, series)) in curves.iter().enumerate() {
        let (y, value) = (26.0 + pitch * index as f64, last(series));
        let room = width * 0.45;
        text(svg, (8.0, y + pitch / 2.0 + 4.0), "#ccc", legend);
        let _ = write!(
            svg,
            "<rect x=\"{0}\" y=\"{1:.1}\" width=\"{room}\" height=\"{2:.1}\" fill=\"#22252b\"/>\
             <rect x=\"{0}\" y=\"{1:.1}\" width=\"{3:.1}\" height=\"{2:.1}\" fill=\"{4}\"/>",
            width * 0.38,
            y + 2.0,
            pitch - 6.0,
            room * (value / full).clamp(0.0, 1.0),
            colour(panel, value)
        );
        text(svg, (width * 0.85, y + pitch / 2.0 + 4.0), "#ddd", &format(panel.unit, value));
    }
}

fn states(svg: &mut String, (width, height): (f64, f64), curves: &[Curve]) {
    let (begin, end) = times(curves);
    let pitch = ((height - 26.0) / curves.len() as f64).min(28.0);
    for (index, (legend, series)) in curves.iter().enumerate() {
        let y = 26.0 + pitch * index as f64;
        text(svg, (8.0, y + pitch / 2.0 + 3.0), "#ccc", legend);
        let step = (width * 0.6) / f64::from(POINTS);
        for (at, value) in &series.points {
            let x = width * 0.38 + (at - begin) / (end - begin).max(1.0) * (width * 0.6 - step);
            let fill = if *value >= 1.0 { COLOURS[0] } else { "#2c3235" };
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>",
                y + 1.0,
                step + 0.6,
                (pitch - 3.0).max(1.0)
            );
        }
    }
}

fn times(curves: &[Curve]) -> (f64, f64) {
    let all = || curves.iter().flat_map(|(_, series)| series.points.iter().map(|(at, _)| *at));
    (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
}

fn lines(svg: &mut String, panel: &Panel, (width, height): (f64, f64), curves: &[Curve]) {
    let legends = curves.len().min(LEGENDS_MAX);
    let (top, bottom) = (28.0, height - 10.0 - 14.0 * legends as f64);
    let (begin, end) = times(curves);
    let values = curves.iter().flat_map(|(_, series)| series.points.iter().map(|(_, value)| *value));
    let most = values.fold(0.0, f64::max);
    let full = if most > 0.0 { most * 1.1 } else { 1.0 };
    for part in [0.0, 0.5, 1.0] {
        let y = bottom - (bottom - top) * part;
        let _ = write!(svg, "<path d=\"M70 {y:.1}H{:.1}\" stroke=\"#2c3235\"/>", width - 8.0);
        text(svg, (6.0, y + 4.0), "#999", &format(panel.unit, full * part));
    }
    for (index, (legend, series)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let place = |(at, value): &(f64, f64)| {
            let x = 70.0 + (at - begin) / (end - begin).max(1.0) * (width - 80.0);
            format!("{x:.1},{:.1}", bottom - value / full * (bottom - top))
        };
        let points: Vec<_> = series.points.iter().map(place).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
        if index < LEGENDS_MAX {
            let y = bottom + 16.0 + 14.0 * index as f64;
            text(svg, (70.0, y), colour, &format!("{legend}: {}", format(panel.unit, last(series))));
        }
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), colour: &str, text: &str) {
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>", escape(text));
}

/// A value with its unit, as people write it.
fn format(unit: Unit, value: f64) -> String {
    let scaled = |end: &str| {
        let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")];
        let (size, prefix) = steps.into_iter().find(|(size, _)| value.abs() >= *size).unwrap_or((1.0, ""));
        let number = value / size;
        let digits = if number.fract().abs() < 0.005 { 0 } else { 2 };
        format!("{number:.digits$} {prefix}{end}").trim_end().to_owned()
    };
    match unit {
        Unit::Ratio => format!("{:.1} %", value * 100.0),
        Unit::Seconds => scaled("s"),
        Unit::Bytes => scaled("B"),
        Unit::BytesPerSecond => scaled("B/s"),
        Unit::TokensPerSecond => scaled("tok/s"),
        Unit::RequestsPerSecond => scaled("req/s"),
        Unit::EventsPerSecond => scaled("/s"),
        Unit::Celsius => format!("{value:.0} °C"),
        Unit::Watts => scaled("W"),
        Unit::Hertz => scaled("Hz"),
        Unit::Count if value.abs() >= 1.0 || value == 0.0 => scaled(""),
        Unit::Count => format!("{value:.2}"),
        Unit::Dollars => format!("${value:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
