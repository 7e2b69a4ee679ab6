//! One panel: what it asks Prometheus, and how the answer is shown.

use serde_json::{Value, json};

/// How values read, in Grafana's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// 0 to 1, shown as percent.
    Ratio,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Tokens a second.
    TokensPerSecond,
    /// Requests a second.
    RequestsPerSecond,
    /// Events a second.
    EventsPerSecond,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
    /// Hertz.
    Hertz,
    /// A count, or anything without a unit.
    Count,
    /// Dollars.
    Dollars,
}

impl Unit {
    /// Grafana's id.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Ratio => "percentunit",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "Bps",
            Self::TokensPerSecond => "suffix: tok/s",
            Self::RequestsPerSecond => "reqps",
            Self::EventsPerSecond => "cps",
            Self::Celsius => "celsius",
            Self::Watts => "watt",
            Self::Hertz => "rothz",
            Self::Count => "short",
            Self::Dollars => "currencyUSD",
        }
    }
}

/// How a panel looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Curves over time.
    Lines,
    /// Areas on top of each other, over time.
    Stack,
    /// One big number.
    Number,
    /// A bar for each series, now.
    Bars,
    /// The state of each series over time, by colour.
    States,
}

/// One query and the name of what it gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// `PromQL`, with Grafana's variables in it.
    pub expr: String,
    /// The legend, with `{{label}}` in it.
    pub legend: &'static str,
}

/// One panel.
#[derive(Clone, PartialEq, Debug)]
pub struct Panel {
    /// What it shows, in a few words.
    pub title: &'static str,
    /// How to read it, and what to do when it looks bad.
    pub description: &'static str,
    /// Its look.
    pub shape: Shape,
    /// Of its values.
    pub unit: Unit,
    /// What it asks.
    pub queries: Vec<Query>,
    /// Columns of 24.
    pub width: u8,
    /// Rows of Grafana's grid.
    pub height: u8,
    /// Values from which it is yellow, and red.
    pub limits: Option<(f64, f64)>,
    /// Why it may be empty in a healthy fleet, if it may.
    pub may_be_empty: Option<&'static str>,
}

impl Panel {
    /// A panel of a third of the page.
    pub fn new(title: &'static str, description: &'static str, shape: Shape, unit: Unit) -> Self {
        Self {
            title,
            description,
            shape,
            unit,
            queries: Vec::new(),
            width: 8,
            height: 8,
            limits: None,
            may_be_empty: None,
        }
    }

    /// Asks one thing more.
    #[must_use]
    pub fn ask(mut self, legend: &'static str, expr: impl Into<String>) -> Self {
        self.queries.push(Query { expr: expr.into(), legend });
        self
    }

    /// Another size.
    #[must_use]
    pub fn size(mut self, width: u8, height: u8) -> Self {
        (self.width, self.height) = (width, height);
        self
    }

    /// Where it turns yellow, and red.
    #[must_use]
    pub fn limits(mut self, yellow: f64, red: f64) -> Self {
        self.limits = Some((yellow, red));
        self
    }

    /// May be empty, because.
    #[must_use]
    pub fn may_be_empty(mut self, why: &'static str) -> Self {
        self.may_be_empty = Some(why);
        self
    }

    /// Grafana's form, at a place of the grid.
    pub fn json(&self, id: usize, x: u8, y: u32) -> Value {
        let targets: Vec<_> = self.queries.iter().zip('A'..='Z').map(target(self.shape)).collect();
        let description = match self.may_be_empty {
            Some(why) => format!("{} Empty where {why}.", self.description),
            None => self.description.to_owned(),
        };
        json!({
            "id": id,
            "type": self.kind(),
            "title": self.title,
            "description": description,
            "datasource": datasource(),
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": self.defaults(), "overrides": []},
            "options": self.options(),
            "targets": targets,
        })
    }

    const fn kind(&self) -> &'static str {
        match self.shape {
            Shape::Lines | Shape::Stack => "timeseries",
            Shape::Number => "stat",
            Shape::Bars => "bargauge",
            Shape::States => "state-timeline",
        }
    }

    fn defaults(&self) -> Value {
        let mut defaults = json!({"unit": self.unit.id(), "thresholds": self.thresholds()});
        if self.unit == Unit::Ratio {
            defaults["min"] = json!(0);
        }
        if self.unit == Unit::Ratio && self.shape == Shape::Bars {
            defaults["max"] = json!(1);
        }
        match self.shape {
            Shape::Lines => {
                defaults["custom"] = json!({"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"});
            }
            Shape::Stack => {
                defaults["custom"] = json!({"lineWidth": 1, "fillOpacity": 40, "stacking": {"mode": "normal"}, "showPoints": "never"});
            }
            Shape::Number | Shape::Bars | Shape::States => defaults["color"] = json!({"mode": "thresholds"}),
        }
        defaults
    }

    fn thresholds(&self) -> Value {
        let mut steps = vec![json!({"color": "green", "value": null})];
        if let Some((yellow, red)) = self.limits {
            // Where less is worse, the order of the colours turns round.
            let (first, second) = if yellow <= red { ("yellow", "red") } else { ("yellow", "green") };
            if yellow > red {
                steps[0]["color"] = json!("red");
            }
            steps.push(json!({"color": first, "value": yellow.min(red)}));
            steps.push(json!({"color": second, "value": yellow.max(red)}));
        }
        json!({"mode": "absolute", "steps": steps})
    }

    fn options(&self) -> Value {
        let reduce = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        match self.shape {
            Shape::Lines | Shape::Stack => json!({
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Shape::Number => json!({"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"}),
            Shape::Bars => {
                json!({"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "gradient"})
            }
            Shape::States => json!({"mergeValues": true, "showValue": "never", "rowHeight": 0.9}),
        }
    }
}

/// The variable through which every panel reaches Prometheus.
pub fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn target(shape: Shape) -> impl Fn((&Query, char)) -> Value {
    move |(query, letter)| {
        json!({
            "refId": letter.to_string(),
            "datasource": datasource(),
            "expr": query.expr,
            "legendFormat": query.legend,
            "range": !matches!(shape, Shape::Bars),
            "instant": matches!(shape, Shape::Bars),
        })
    }
}
