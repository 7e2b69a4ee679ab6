//! Asks a Prometheus: one HTTP/1.0 request a question, which is all that its API needs.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// One series of an answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Seconds since 1970, and values; those that are no numbers are left out.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A legend with the labels' values in it.
    pub fn legend(&self, template: &str) -> String {
        self.labels
            .iter()
            .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
    }
}

/// Where it listens: `host:port`.
#[derive(Clone, Debug)]
pub struct Prometheus(pub String);

impl Prometheus {
    /// The values of an expression over the last `span`, one every `step`.
    ///
    /// # Errors
    ///
    /// When nobody answers, or the expression is refused: what was said.
    pub fn range(&self, expr: &str, span: Duration, step: Duration) -> Result<Vec<Series>, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let path = format!(
            "/api/v1/query_range?query={}&start={:.3}&end={now:.3}&step={}",
            escape(expr),
            now - span.as_secs_f64(),
            step.as_secs_f64(),
        );
        let answer = self.get(&path)?;
        let found = answer["data"]["result"].as_array().ok_or_else(|| answer.to_string())?;
        Ok(found.iter().map(series).collect())
    }

    /// The JSON at a path.
    ///
    /// # Errors
    ///
    /// When nobody answers, or no JSON comes.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let body = self.exchange(path).map_err(|error| format!("{}: {error}", self.0))?;
        serde_json::from_str(&body).map_err(|error| format!("{path}: {error}: {body}"))
    }

    fn exchange(&self, path: &str) -> Result<String, Error> {
        let mut stream = TcpStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.0)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
    }
}

fn series(found: &Value) -> Series {
    let labels = found["metric"].as_object().into_iter().flatten();
    let point = |point: &Value| {
        let value = point[1].as_str()?.parse::<f64>().ok().filter(|value| value.is_finite())?;
        Some((point[0].as_f64()?, value))
    };
    Series {
        labels: labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").to_owned())).collect(),
        points: found["values"].as_array().into_iter().flatten().filter_map(point).collect(),
    }
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
