//! Lines and points as SVG. Pure.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Width and height.
const SIZE: (u32, u32) = (900, 320);
/// Colours in which series come; told apart by colour-blind eyes (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(90, 90, 90),
];

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Joined.
    Line,
    /// Each by itself.
    Points,
}

/// Named points.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Where.
    pub points: Vec<(f64, f64)>,
    /// How.
    pub mark: Mark,
}

/// A chart with a legend; empty where there is nothing to draw.
pub fn chart(x_label: &str, y_label: &str, series: &[Series]) -> String {
    if series.iter().all(|series| series.points.is_empty()) {
        return String::new();
    }
    let mut svg = String::new();
    draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), (x_label, y_label), series)
        .expect("a string takes all");
    svg
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, labels: (&str, &str), series: &[Series]) -> Drawn<'a> {
    let all = || series.iter().flat_map(|series| &series.points);
    let low = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.0).fold(low + 1e-3, f64::max);
    let top = all().map(|point| point.1).fold(1e-3, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(low.min(0.0)..high, 0.0..top)?;
    chart.configure_mesh().x_desc(labels.0).y_desc(labels.1).light_line_style(TRANSPARENT).draw()?;
    for (series, color) in series.iter().zip(COLORS.iter().cycle()) {
        let style = ShapeStyle::from(color).filled();
        let drawn = match series.mark {
            Mark::Line => {
                chart.draw_series(LineSeries::new(series.points.iter().copied(), style.stroke_width(2)))?
            }
            Mark::Points => {
                chart.draw_series(series.points.iter().map(|&point| Circle::new(point, 2, style)))?
            }
        };
        drawn.label(&series.name).legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_series_and_axes() {
        let points = vec![(0.0, 1.0), (1.0, 3.0)];
        let line = Series { name: "first".to_owned(), points: points.clone(), mark: Mark::Line };
        let dots = Series { name: "second".to_owned(), points, mark: Mark::Points };
        let svg = chart("seconds", "ms", &[line, dots]);
        assert!(["<svg", "first", "second", "seconds", "ms"].iter().all(|part| svg.contains(part)));
        assert_eq!(chart("x", "y", &[]), "");
    }
}
