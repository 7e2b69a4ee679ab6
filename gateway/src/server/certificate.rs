//! The public port's certificate, which can be renewed while the gateway runs.

use arc_swap::ArcSwap;
use pingora::listeners::tls::TlsSettings;
use pingora::tls::sign::CertifiedKey;
use pingora::tls::{ClientHello, CryptoProvider, ResolvesServerCert, load_certs_and_key_files};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A chain and its key, as last read from their files.
#[derive(Clone, Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    ///
    /// When one can't be read, or they don't belong together.
    pub fn load(chain: &Path, key: &Path) -> io::Result<Self> {
        pingora::tls::install_default_crypto_provider();
        let current = Arc::new(Current(ArcSwap::from_pointee(read(chain, key)?)));
        Ok(Self { chain: chain.to_owned(), key: key.to_owned(), current })
    }

    /// Reads both again; new connections get what they hold now.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; the old certificate stays then.
    pub fn renew(&self) -> io::Result<()> {
        self.current.0.store(Arc::new(read(&self.chain, &self.key)?));
        Ok(())
    }

    /// The files it was read from.
    pub fn files(&self) -> [&Path; 2] {
        [&self.chain, &self.key]
    }

    /// For a listener; HTTP/2 is offered.
    pub fn settings(&self) -> io::Result<TlsSettings> {
        let mut settings = TlsSettings::intermediate("", "").map_err(|error| invalid(&error.to_string()))?;
        settings.set_cert_resolver(self.current.clone());
        settings.enable_h2();
        Ok(settings)
    }
}

fn read(chain: &Path, key: &Path) -> io::Result<CertifiedKey> {
    let loaded = load_certs_and_key_files(&chain.to_string_lossy(), &key.to_string_lossy());
    let loaded = loaded.map_err(|error| invalid(&error.to_string()))?;
    let (chain_read, key_read) = loaded.ok_or_else(|| {
        invalid(&format!("no certificate in {} or no key in {}", chain.display(), key.display()))
    })?;
    let provider = CryptoProvider::get_default().expect("it was installed before");
    CertifiedKey::from_der(chain_read, key_read, provider)
        .map_err(|error| invalid(&format!("{} and {}: {error}", chain.display(), key.display())))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
