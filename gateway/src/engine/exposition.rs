//! The Prometheus text format, as far as gauges and info metrics need it.

/// One line of a scrape.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        if line.starts_with('#') {
            return None;
        }
        let name_end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(name_end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inner) => inner.rsplit_once('}')?,
            None => ("", rest),
        };
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Line { name, labels, value })
    })
}

fn values<'a>(text: &'a str, names: &'a [&str]) -> impl Iterator<Item = f64> + 'a {
    // The first of the names that is there at all: a renamed metric may be exported under both names for a while.
    let name = names.iter().copied().find(|name| lines(text).any(|line| line.name == *name));
    lines(text)
        .filter(move |line| Some(line.name) == name)
        .map(|line| line.value)
        .filter(|value| value.is_finite())
}

/// The sum over all label sets (data-parallel ranks, say) of the first of `names` that is there.
pub fn sum(text: &str, names: &[&str]) -> Option<f64> {
    values(text, names).fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// The mean over all label sets.
pub fn mean(text: &str, names: &[&str]) -> Option<f64> {
    let count = values(text, names).count();
    sum(text, names).map(|sum| sum / count as f64)
}

/// A count, from [`sum`].
pub fn count(text: &str, names: &[&str]) -> Option<u32> {
    sum(text, names).filter(|value| *value >= 0.0).map(|value| value as u32)
}

/// A label of an info metric, as a number.
pub fn label(text: &str, name: &str, key: &str) -> Option<u64> {
    let labels = lines(text).find(|line| line.name == name)?.labels;
    let pattern = format!("{key}=\"");
    let at =
        labels.find(&pattern).filter(|&at| at == 0 || labels.as_bytes()[at - 1] == b',')? + pattern.len();
    labels[at..].split('"').next()?.parse().ok()
}

/// Whether any metric's name starts so.
pub fn has_prefix(text: &str, prefix: &str) -> bool {
    lines(text).any(|line| line.name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\n# TYPE a gauge\na{x=\"1\",y=\"q{}\"} 2.0\na{x=\"2\"} 4 1700000000\nb NaN\n\
                        info{num=\"7\",block_num=\"9\"} 1\n";

    #[test]
    fn label_sets_are_joined() {
        assert_eq!(sum(TEXT, &["a"]), Some(6.0));
        assert_eq!(mean(TEXT, &["gone", "a"]), Some(3.0));
        assert_eq!(label(TEXT, "info", "num"), Some(7));
        assert_eq!(label(TEXT, "info", "block_num"), Some(9));
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        assert_eq!(sum(TEXT, &["b"]), None);
        assert_eq!(sum(TEXT, &["c"]), None);
        assert_eq!(label(TEXT, "info", "n"), None);
    }
}
