//! A board: rows of panels on Grafana's grid of 24 columns, and the variables that they share.

use serde_json::{Value, json};

use crate::panel::{Panel, datasource};

/// Columns of the grid.
pub const COLUMNS: u8 = 24;

/// A drop-down at the top of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// `$name`.
    pub name: &'static str,
    /// Where its values come from: `label_values(…)`.
    pub query: &'static str,
    /// Whether all are chosen at first.
    pub is_multi: bool,
}

/// The model, as the gateway names it and as recording rules do.
pub const MODEL: Variable = Variable {
    name: "model",
    query: "label_values({__name__=~\"flotilla_gateway_requests_total|replica:requests_running:sum\"}, model)",
    is_multi: true,
};
/// The replica, by its address.
pub const REPLICA: Variable = Variable {
    name: "replica",
    query: "label_values(replica:requests_running:sum, replica)",
    is_multi: true,
};
/// A card.
pub const GPU: Variable =
    Variable { name: "gpu", query: "label_values(gpu:utilization:ratio, gpu)", is_multi: true };
/// A tenant.
pub const TENANT: Variable = Variable {
    name: "tenant",
    query: "label_values(flotilla_gateway_tenant_requests_total, tenant)",
    is_multi: true,
};
/// The money that one GPU (or machine) costs an hour.
pub const PRICE: Variable = Variable { name: "price", query: "2.50", is_multi: false };

/// One board.
#[derive(Clone, PartialEq, Debug)]
pub struct Board {
    /// Stable for ever: links and bookmarks hold it.
    pub uid: &'static str,
    /// Its name.
    pub title: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Its drop-downs.
    pub variables: Vec<Variable>,
    /// Headed groups of panels, from top to bottom.
    pub groups: Vec<(&'static str, Vec<Panel>)>,
}

impl Board {
    /// All panels.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.groups.iter().flat_map(|(_, panels)| panels)
    }

    /// Where each panel lies, row by row; a panel that does not fit begins a new row.
    pub fn places(&self) -> Vec<(&Panel, u8, u32)> {
        let mut places = Vec::new();
        let mut y = 0;
        for (_, panels) in &self.groups {
            y += 1;
            let (mut x, mut row_height) = (0, 0);
            for panel in panels {
                if x + panel.width > COLUMNS {
                    y += u32::from(row_height);
                    (x, row_height) = (0, 0);
                }
                places.push((panel, x, y));
                x += panel.width;
                row_height = row_height.max(panel.height);
            }
            y += u32::from(row_height);
        }
        places
    }

    /// Where each group's heading lies.
    fn headings(&self) -> Vec<(&'static str, u32)> {
        let places = self.places();
        let mut first = 0;
        let at = |(heading, panels): &(&'static str, Vec<Panel>)| {
            let y = places[first].2 - 1;
            first += panels.len();
            (*heading, y)
        };
        self.groups.iter().map(at).collect()
    }

    /// Grafana's form.
    pub fn json(&self) -> Value {
        let mut panels: Vec<Value> = Vec::new();
        let mut headings = self.headings().into_iter().peekable();
        for (panel, x, y) in self.places() {
            while let Some((title, at)) = headings.next_if(|(_, at)| *at < y) {
                panels.push(heading(panels.len() + 1, title, at));
            }
            panels.push(panel.json(panels.len() + 1, x, y));
        }
        let mut variables = vec![source()];
        variables.extend(self.variables.iter().map(|variable| self::variable(*variable)));
        json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["flotilla"],
            "schemaVersion": 39,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "links": [{
                "type": "dashboards", "tags": ["flotilla"], "title": "Flotilla", "asDropdown": true,
                "includeVars": true, "keepTime": true
            }],
            "templating": {"list": variables},
            "panels": panels,
        })
    }
}

fn heading(id: usize, title: &str, y: u32) -> Value {
    json!({
        "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
    })
}

fn source() -> Value {
    json!({"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"})
}

fn variable(variable: Variable) -> Value {
    let Variable { name, query, is_multi } = variable;
    if !is_multi {
        return json!({
            "name": name, "type": "textbox", "query": query,
            "current": {"text": query, "value": query},
        });
    }
    json!({
        "name": name,
        "type": "query",
        "datasource": datasource(),
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "sort": 1,
        "includeAll": true,
        "multi": true,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    })
}

/// A query as a client without Grafana asks it: every variable means "all", and rates look back this far.
pub fn plain(expr: &str, window: &str) -> String {
    [
        ("$__rate_interval", window),
        ("$__range", window),
        ("$model", ".*"),
        ("$replica", ".*"),
        ("$gpu", ".*"),
        ("$tenant", ".*"),
        ("$price", PRICE.query),
    ]
    .iter()
    .fold(expr.to_owned(), |expr, (name, value)| expr.replace(name, value))
}
