//! TLS below AMQP: the service listens for it from the first byte (port 5671), without the
//! header that AMQP has for it.

use super::errors;
use crate::sync::Arc;
use crate::transport::LinkError;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use std::fmt;
use std::io;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A configuration that a user brought.
#[derive(Clone)]
pub(super) struct UserConfig(pub(super) Arc<ClientConfig>);

/// Shows nothing: there may be a key in it.
impl fmt::Debug for UserConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientConfig(..)")
    }
}

/// The configuration of users who bring none: the certificates that the system trusts, and
/// rustls' safe versions and suites, in ring's implementation. The process-wide default provider
/// of rustls is neither asked for nor set.
fn usual() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth())
}

/// What a transport needs of TLS; made once.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    pub(super) fn new(config: Option<&UserConfig>) -> Result<Tls, LinkError> {
        let config = match config {
            Some(config) => Arc::clone(&config.0),
            None => Arc::new(usual().map_err(|error| {
                let what = format!("the system's certificates cannot be used: {error}");
                LinkError::new(errors::TLS, what)
            })?),
        };
        Ok(Tls(TlsConnector::from(config)))
    }

    /// Agrees on TLS with `host` over `stream`.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, LinkError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            LinkError::new(
                errors::TLS,
                format!("{host} cannot be a name in a certificate"),
            )
        })?;
        let connected = self.0.connect(name, stream).await;
        connected.map_err(|error| failed(host, &error))
    }
}

/// What rustls says comes as the inner error of one of the socket; it will say so again.
fn failed(host: &str, error: &io::Error) -> LinkError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some::<&rustls::Error>(inner) => {
            LinkError::new(errors::TLS, format!("no TLS with {host}: {inner}"))
        }
        None => errors::lost(error),
    }
}
