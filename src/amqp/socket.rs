//! The socket below a connection.

use super::errors;
use super::options::Settings;
use crate::transport::LinkError;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A stream of bytes to the peer.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to the peer.
pub(super) async fn connect(settings: &Settings) -> Result<Socket, LinkError> {
    let place = (settings.host.as_str(), settings.port);
    let stream = TcpStream::connect(place).await.map_err(|error| {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, TimedOut};
        match error.kind() {
            ConnectionAborted | ConnectionReset | TimedOut => errors::lost(&error),
            // Nobody listens, no such host, no route: no better in a moment, when a user waits.
            _ => {
                let what = format!("{}:{}: {error}", settings.host, settings.port);
                LinkError::new(errors::UNREACHABLE, what)
            }
        }
    })?;
    set_options(&stream, settings.operation_timeout).map_err(|error| errors::lost(&error))?;
    match &settings.tls {
        None => Ok(Socket::Plain(stream)),
        Some(tls) => {
            let stream = tls.connect(&settings.host, stream).await?;
            Ok(Socket::Tls(Box::new(stream)))
        }
    }
}

/// Frames go out at once, and a peer that acknowledges nothing is noticed by the system, too.
fn set_options(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_secs(60)))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(patience))?;
    let _ = patience;
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(context),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }
}
