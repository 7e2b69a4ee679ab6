//! Where a replica listens: its URL taken apart, and the address its name stands for now.

use arc_swap::ArcSwapOption;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// One endpoint. Shared by everything that talks to the replica.
#[derive(Debug)]
pub struct Endpoint {
    /// `host:port`, as sent in `Host` and as the replica is called everywhere.
    pub authority: String,
    /// Path in front of every route, without a slash at its end.
    pub base: String,
    /// Key sent in place of the client's.
    pub key: Option<String>,
    host: String,
    port: u16,
    is_tls: bool,
    address: ArcSwapOption<SocketAddr>,
    /// Grows whenever pooled connections must not be used again.
    epoch: AtomicU32,
    /// When somebody last made sure who answers here, in nanoseconds of the gateway's clock; 0 is never.
    verified_at: AtomicU64,
    /// A connection to the same process is open and watched: its end would be noticed.
    is_watched: AtomicBool,
}

/// Why a URL is none of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a replica's URL; expected http://HOST:PORT", self.0)
    }
}

impl std::error::Error for BadUrl {}

impl Endpoint {
    /// Takes `http://host:port[/base]` apart.
    pub fn parse(url: &str, key: Option<String>) -> Result<Self, BadUrl> {
        let bad = || BadUrl(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| bad())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad()),
        };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = authority.host().to_owned();
        if host.is_empty() || port == 0 {
            return Err(bad());
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse().ok().map(|ip| Arc::new(SocketAddr::new(ip, port)));
        Ok(Self {
            authority: format!("{host}:{port}"),
            base: uri.path().trim_end_matches('/').to_owned(),
            key,
            host,
            port,
            is_tls,
            address: ArcSwapOption::new(address),
            epoch: AtomicU32::new(0),
            verified_at: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
        })
    }

    /// The URL without a key.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.base)
    }

    /// Asks the resolver where the name leads now; an address stays itself.
    pub async fn resolve(&self) -> std::io::Result<()> {
        if self.host.parse::<std::net::IpAddr>().is_ok() || self.host.starts_with('[') {
            return Ok(());
        }
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.next();
        let known = self.address.load();
        if found.is_some() && known.as_deref().copied() != found {
            self.address.store(found.map(Arc::new));
            self.forget_connections();
        }
        Ok(())
    }

    /// What to connect to; `None` until the name was resolved.
    pub fn peer(&self, connect: Duration) -> Option<HttpPeer> {
        let address = self.address.load();
        let mut peer = HttpPeer::new(**address.as_ref()?, self.is_tls, self.host.clone());
        peer.options.connection_timeout = Some(connect);
        peer.options.total_connection_timeout = Some(connect);
        peer.options.alpn = ALPN::H1;
        Some(peer)
    }

    /// Pooled connections of earlier epochs are dropped instead of used, and the next fresh one is verified.
    pub fn forget_connections(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.verified_at.store(0, Ordering::Relaxed);
    }

    /// The next new connection is verified: a broken one may mean that another process listens here now.
    pub fn distrust(&self) {
        self.verified_at.store(0, Ordering::Relaxed);
    }

    /// See [`Self::forget_connections`].
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Somebody made sure who answers here.
    pub fn set_verified(&self, now: shared::time::Instant) {
        self.verified_at.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Whether that was less than `age` ago, and the process has been there ever since.
    pub fn is_verified(&self, now: shared::time::Instant, age: Duration) -> bool {
        let at = self.verified_at.load(Ordering::Relaxed);
        at != 0 && self.is_watched.load(Ordering::Relaxed) && now.since(shared::time::Instant(at)) <= age
    }

    /// Says whether a connection to the process is watched.
    pub fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let endpoint = Endpoint::parse("http://10.0.0.5:8001/base/", None).unwrap();
        assert_eq!((endpoint.authority.as_str(), endpoint.base.as_str()), ("10.0.0.5:8001", "/base"));
        assert_eq!(Endpoint::parse("https://host", None).unwrap().authority, "host:443");
        assert!(Endpoint::parse("http://[::1]:8001", None).unwrap().peer(Duration::from_secs(1)).is_some());
    }

    #[test]
    fn what_is_no_url_is_named() {
        for url in ["localhost:8001", "ftp://x", "http://", "http://user:pass@host", "/x", ""] {
            let error = Endpoint::parse(url, None).unwrap_err();
            assert!(error.to_string().contains(url), "{error}");
        }
    }
}
