//! What the transport can be told.

use super::tls::{Tls, UserConfig};
use super::token::TokenSource;
use crate::connection_string::ConnectionString;
use crate::settings::SettingsError;
use crate::sync::Arc;
use crate::transport::LinkError;
use std::time::Duration;

/// Where the emulator listens, and where the service does (AMQP over TLS).
const PLAIN_PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;

/// Settings of an [`AmqpTransport`](super::AmqpTransport).
///
/// # Examples
///
/// ```
/// use hublane::amqp::AmqpOptions;
/// use std::time::Duration;
///
/// let options = AmqpOptions::default().operation_timeout(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to a transport"]
pub struct AmqpOptions {
    pub(super) idle_time_out: Duration,
    pub(super) operation_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) sas_life: Duration,
    pub(super) max_frame_size: u32,
    pub(super) tls: Option<UserConfig>,
}

impl Default for AmqpOptions {
    fn default() -> AmqpOptions {
        AmqpOptions {
            // What the SDKs of other languages announce.
            idle_time_out: Duration::from_secs(60),
            // The same that an answer to a send is given there.
            operation_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(15),
            // As the SDK for Rust has it; the one for .NET signs for half as long.
            sas_life: Duration::from_secs(60 * 60),
            // What the service itself announces.
            max_frame_size: 65_536,
            tls: None,
        }
    }
}

impl AmqpOptions {
    /// The silence that is announced to the peer as this end's limit; a connection on which
    /// nothing comes for twice as long is given up. Default 60 s.
    pub fn idle_time_out(mut self, time: Duration) -> AmqpOptions {
        self.idle_time_out = time;
        self
    }

    /// How long an answer may take: to a batch, an attach, a request for a token. A batch that
    /// is not answered within it ends as unknown, and its link is attached anew. To be of use it
    /// must be shorter than the producer's
    /// [`delivery_timeout`](crate::ProducerBuilder::delivery_timeout), which caps it. Default 60 s.
    pub fn operation_timeout(mut self, time: Duration) -> AmqpOptions {
        self.operation_timeout = time;
        self
    }

    /// How long one attempt to connect may take, from the socket to the exchange of `open`.
    /// Default 15 s.
    pub fn connect_timeout(mut self, time: Duration) -> AmqpOptions {
        self.connect_timeout = time;
        self
    }

    /// How long the tokens live that are signed with a shared access key. They are renewed well
    /// before their end: with a third of it to go, or ten minutes if that is less. Default 1 h.
    pub fn sas_life(mut self, life: Duration) -> AmqpOptions {
        self.sas_life = life;
        self
    }

    /// The configuration of TLS, for certificates of one's own and for another provider of
    /// cryptography. Default: the certificates that the system trusts. Without effect on the
    /// emulator, which is spoken to without TLS.
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> AmqpOptions {
        self.tls = Some(UserConfig(config));
        self
    }

    /// The largest frame in bytes, at least 512. Default 65 536, which is the service's own.
    pub fn max_frame_size(mut self, bytes: u32) -> AmqpOptions {
        self.max_frame_size = bytes;
        self
    }

    /// Whether a transport can hold to these.
    pub(super) fn validate(&self) -> Result<(), SettingsError> {
        let times = [
            ("idle_time_out", self.idle_time_out),
            ("operation_timeout", self.operation_timeout),
            ("connect_timeout", self.connect_timeout),
        ];
        for (setting, time) in times {
            check_range(setting, time, SHORTEST, DAY)?;
        }
        check_range("sas_life", self.sas_life, Duration::from_secs(1), 366 * DAY)?;
        if self.max_frame_size < MIN_MAX_FRAME {
            return Err(SettingsError::OutOfRange {
                setting: "max_frame_size",
                value: self.max_frame_size.to_string(),
                allowed: format!("at least {MIN_MAX_FRAME}"),
            });
        }
        Ok(())
    }
}

/// Times go onto the wire in milliseconds, and into 32 bits.
const SHORTEST: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What every peer must take (AMQP 1.0, 2.8.19).
const MIN_MAX_FRAME: u32 = 512;

fn check_range(
    setting: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SettingsError::OutOfRange {
        setting,
        value: format!("{value:?}"),
        allowed: format!("between {least:?} and {most:?}"),
    })
}

/// Options together with where to go.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) host: String,
    pub(super) port: u16,
    /// None for the emulator.
    pub(super) tls: Option<Tls>,
    pub(super) hub: String,
    pub(super) tokens: TokenSource,
    pub(super) container_id: String,
    pub(super) idle_time_out: Duration,
    pub(super) operation_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_frame_size: u32,
}

impl Settings {
    pub(super) fn new(
        target: &ConnectionString,
        hub: String,
        options: AmqpOptions,
        tokens: TokenSource,
        container_id: String,
    ) -> Result<Settings, LinkError> {
        let plain = target.is_emulator();
        let tls = (!plain)
            .then(|| Tls::new(options.tls.as_ref()))
            .transpose()?;
        let usual = if plain { PLAIN_PORT } else { TLS_PORT };
        Ok(Settings {
            host: target.host().to_owned(),
            port: target.port().unwrap_or(usual),
            tls,
            hub,
            tokens,
            container_id,
            idle_time_out: options.idle_time_out,
            operation_timeout: options.operation_timeout,
            connect_timeout: options.connect_timeout,
            max_frame_size: options.max_frame_size,
        })
    }

    /// The address of a partition's links.
    pub(super) fn partition_address(&self, partition: &str) -> String {
        format!("{}/Partitions/{partition}", self.hub)
    }

    /// The URL of a path in the namespace, which tokens are signed for.
    pub(super) fn url(&self, path: &str) -> String {
        // An address of version 6 stands in brackets (RFC 3986, 3.2.2).
        match self.host.contains(':') {
            true => format!("amqps://[{}]/{path}", self.host),
            false => format!("amqps://{}/{path}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_range_and_its_ends_are_inside() {
        let setters: [fn(AmqpOptions, Duration) -> AmqpOptions; 3] = [
            AmqpOptions::idle_time_out,
            AmqpOptions::operation_timeout,
            AmqpOptions::connect_timeout,
        ];
        let nano = Duration::from_nanos(1);
        for set in setters {
            let check = |time| set(AmqpOptions::default(), time).validate().is_ok();
            assert!(check(SHORTEST) && check(DAY));
            assert!(!check(SHORTEST - nano) && !check(DAY + nano));
        }
        let life = |life| AmqpOptions::default().sas_life(life).validate().is_ok();
        assert!(life(Duration::from_secs(1)) && !life(Duration::from_secs(1) - nano));
        assert!(life(366 * DAY) && !life(Duration::MAX));
        let frame = |bytes| AmqpOptions::default().max_frame_size(bytes).validate();
        assert!(frame(512).is_ok() && frame(511).is_err());
    }

    #[test]
    fn options_show_no_secret() {
        let options = AmqpOptions::default();
        assert!(format!("{options:?}").contains("tls: None"));
    }
}
