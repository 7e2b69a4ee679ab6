//! Which fleet is joined.

use std::fmt;

use http::Uri;

use super::OptionError;

/// How to join a gateway's fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Registration {
    /// The gateway's admin port.
    pub gateway: Uri,
    /// Its admin key.
    pub key: Option<String>,
    /// Where this replica is reached; absent for the address listened on.
    pub url: Option<String>,
}

impl Registration {
    pub(super) fn read(
        gateway: Option<String>,
        key: Option<String>,
        url: Option<String>,
        host: Option<&str>,
    ) -> Result<Option<Self>, OptionError> {
        let Some(gateway) = gateway else {
            return match url {
                Some(_) => {
                    Err(OptionError { key: "advertise", what: "needs register (--register) too".to_owned() })
                }
                None => Ok(None),
            };
        };
        let gateway = http_url("register", &gateway)?;
        match &url {
            Some(url) => drop(http_url("advertise", url)?),
            None if matches!(host, Some("0.0.0.0" | "::" | "[::]")) => {
                let what =
                    "is missing: with this host (--host) the gateway can't know where to reach us".to_owned();
                return Err(OptionError { key: "advertise", what });
            }
            None => {}
        }
        Ok(Some(Self { gateway, key, url }))
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("gateway", &self.gateway)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

fn http_url(key: &'static str, text: &str) -> Result<Uri, OptionError> {
    let url = text.parse::<Uri>().ok();
    let url =
        url.filter(|url| url.scheme_str() == Some("http") && url.host().is_some_and(|host| !host.is_empty()));
    url.ok_or_else(|| OptionError { key, what: format!("is {text:?}; it must be http://HOST:PORT") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        gateway: Option<&str>,
        url: Option<&str>,
        host: Option<&str>,
    ) -> Result<Option<Registration>, String> {
        let text = |text: Option<&str>| text.map(ToOwned::to_owned);
        Registration::read(text(gateway), None, text(url), host).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fleet_is_joined_at_a_url_that_can_be_reached() {
        assert_eq!(read(None, None, None), Ok(None));
        assert!(read(Some("http://g:9000"), None, None).unwrap().is_some());
        assert!(read(Some("http://g:9000"), Some("http://me:1"), Some("0.0.0.0")).unwrap().is_some());
        assert!(read(Some("http://g:9000"), None, Some("0.0.0.0")).unwrap_err().starts_with("advertise"));
        assert!(read(Some("g:9000"), None, None).unwrap_err().contains("http://HOST:PORT"));
        assert!(read(None, Some("http://me:1"), None).unwrap_err().starts_with("advertise"));
    }
}
