//! Where spans are sent to.

use std::fmt;

/// Where collectors take spans, when a URL names no path (OTLP/HTTP).
const PATH: &str = "/v1/traces";

/// A collector's URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint(String);

impl Endpoint {
    /// Reads a URL; without a path it gets the usual one.
    ///
    /// # Errors
    ///
    /// Says what is expected. Secrets do not belong in a URL, and TLS is a collector's business: it stands near.
    pub fn parse(url: &str) -> Result<Self, String> {
        let expected = || format!("`{url}` is no collector's URL; expected http://HOST:PORT");
        let uri: http::Uri = url.parse().map_err(|_| expected())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        if uri.scheme_str() != Some("http") || authority.is_none() {
            return Err(expected());
        }
        let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        Ok(Self(if is_bare { format!("{}{PATH}", url.trim_end_matches('/')) } else { url.to_owned() }))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: Option<&str>) {
        assert_eq!(
            Endpoint::parse(url).ok().map(|endpoint| endpoint.to_string()).as_deref(),
            expected,
            "{url}"
        );
    }

    #[test]
    fn a_url_without_a_path_gets_the_usual_one() {
        check("http://collector:4318", Some("http://collector:4318/v1/traces"));
        check("http://collector:4318/", Some("http://collector:4318/v1/traces"));
        check("http://collector/otlp/v1/traces", Some("http://collector/otlp/v1/traces"));
    }

    #[test]
    fn what_is_no_plain_url_is_refused() {
        for url in
            ["", "collector:4318", "https://collector:4318", "http://", "/v1/traces", "http://u:p@c:4318"]
        {
            check(url, None);
        }
    }
}
