//! TLS towards the service.

use super::refusal::Refusal;
use crate::exit::plain;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

/// Agrees with the peer upon TLS, and checks its certificate as the system does.
///
/// # Errors
///
/// [`Refusal`] says what stood in the way.
pub async fn connect(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, Refusal> {
    let config = config().map_err(|error| Refusal::lost(error.to_string()))?;
    let name =
        ServerName::try_from(host.to_owned()).map_err(|error| Refusal::lost(error.to_string()))?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| Refusal::lost(plain(&error)))
}

fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth())
}
