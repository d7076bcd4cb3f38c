//! TLS below AMQP, as the service has it.
//!
//! The certificate is for `localhost`, signed by itself, and good for a hundred years:
//! `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
//! -subj "/CN=hublane test" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1"
//! -addext "basicConstraints=critical,CA:FALSE"`.

use crate::support::*;
use hublane::BuildError;
use hublane::amqp::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use hublane::amqp::rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned, crypto::ring,
};
use hublane::transport::ConnectError;
use hublane_emulator::{Disruption, Emulator, SocketDrop};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CERTIFICATE: &[u8] = include_bytes!("tls/cert.der");
const KEY: &[u8] = include_bytes!("tls/key.der");

fn server() -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(KEY).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)
        .unwrap();
    Arc::new(config)
}

fn trusting() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Ends TLS in front of an emulator; the port to connect to.
fn terminator(behind: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = server();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.unwrap(), Arc::clone(&config));
            std::thread::spawn(move || relay(stream, config, behind));
        }
    });
    port
}

/// Carries bytes both ways until one end goes.
fn relay(front: TcpStream, config: Arc<ServerConfig>, behind: SocketAddr) {
    let mut back = TcpStream::connect(behind).unwrap();
    for stream in [&front, &back] {
        stream.set_read_timeout(Some(MILLI)).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let mut front = StreamOwned::new(ServerConnection::new(config).unwrap(), front);
    let mut bytes = vec![0; 16 * 1024];
    loop {
        match front.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => back.write_all(&bytes[..n]).unwrap(),
            Err(error) if is_empty(error.kind()) => {}
            Err(_) => return,
        }
        match back.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => front.write_all(&bytes[..n]).unwrap(),
            Err(error) if is_empty(error.kind()) => {}
            Err(_) => return,
        }
    }
}

fn is_empty(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn namespace(port: u16) -> String {
    format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0;\
         EntityPath={HUB}"
    )
}

#[test]
fn what_is_sent_over_tls_arrives_also_on_the_next_connection() {
    let (emulator, hub) = start(Emulator::builder().sas_key("send", "c2VjcmV0"), 2);
    let port = terminator(emulator.local_addr());
    let options = options().tls(trusting());
    let producer = over(&namespace(port), options).build().unwrap();
    let large = "x".repeat(200_000);
    deliver(&producer, 0, &["a", &large]);
    emulator.disrupt(Disruption::drop_sockets(SocketDrop::Reset));
    deliver(&producer, 0, &["b"]);
    assert_eq!(stored(&hub, 0), ["a", &large, "b"]);
    producer.close_timeout(LIMIT).unwrap();
}

fn refusal(port: u16) -> ConnectError {
    let start = Instant::now();
    let built = over(&namespace(port), options()).build();
    assert!(start.elapsed() < Duration::from_secs(2));
    match built.map(drop).unwrap_err() {
        BuildError::Connect(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_certificate_that_the_system_does_not_trust_is_told_at_once() {
    let (emulator, _) = start(Emulator::builder(), 1);
    let port = terminator(emulator.local_addr());
    match refusal(port) {
        ConnectError::Unreachable(error) => {
            assert_eq!(&*error.condition, "hublane:tls");
        }
        other => panic!("{other}"),
    }
    assert_eq!(emulator.stats().tokens_accepted, 0);
}

#[test]
fn a_peer_without_tls_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    match refusal(port) {
        ConnectError::Unreachable(error) => {
            assert_eq!(&*error.condition, "hublane:tls");
        }
        other => panic!("{other}"),
    }
}
