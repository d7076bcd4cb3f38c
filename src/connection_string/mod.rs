//! Connection strings, as the Azure portal hands them out.

mod endpoint;

use std::str::FromStr;

use crate::secret::Secret;

const ENDPOINT: &str = "Endpoint";
const ENTITY_PATH: &str = "EntityPath";
const KEY_NAME: &str = "SharedAccessKeyName";
const KEY: &str = "SharedAccessKey";
const SIGNATURE: &str = "SharedAccessSignature";
const EMULATOR: &str = "UseDevelopmentEmulator";

/// A parsed connection string: where the namespace is, and what lets one in.
///
/// It is read as the Azure SDK for .NET reads it: names in any case, spaces around names and
/// values ignored, unknown names ignored. One thing is stricter: a name that stands twice is an
/// error, where .NET takes the last.
///
/// | name | meaning |
/// |---|---|
/// | `Endpoint` | `sb://host` or `sb://host:port` |
/// | `EntityPath` | the event hub, optional |
/// | `SharedAccessKeyName`, `SharedAccessKey` | a key that tokens are signed with |
/// | `SharedAccessSignature` | a token that was signed before, instead of the key |
/// | `UseDevelopmentEmulator` | `true` for the emulator: without TLS, on a local host only |
///
/// # Examples
///
/// ```
/// use hublane::ConnectionString;
///
/// let parsed: ConnectionString = "Endpoint=sb://example.servicebus.windows.net/;\
///     SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0;EntityPath=readings".parse()?;
/// assert_eq!(parsed.host(), "example.servicebus.windows.net");
/// assert_eq!(parsed.event_hub(None)?, "readings");
/// assert!(!format!("{parsed:?}").contains("c2VjcmV0"));
/// # Ok::<(), hublane::ConnectionStringError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionString {
    host: String,
    port: Option<u16>,
    entity_path: Option<String>,
    credential: Credential,
    emulator: bool,
}

/// What a connection string offers to be let in with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Credential {
    /// A named key, to sign tokens with.
    Key {
        /// The name of the key, which the service looks it up by.
        name: String,
        /// The key. Tokens are signed with these characters; they are not base64 to be decoded.
        key: Secret,
    },
    /// A token that was signed before, and that nobody here can renew.
    Signature(Secret),
}

impl ConnectionString {
    /// Parses a connection string.
    ///
    /// # Errors
    ///
    /// A [`ConnectionStringError`] for each thing that can be wrong. None of them shows a value
    /// that may be secret.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        let fields = Fields::parse(text)?;
        let endpoint = fields
            .endpoint
            .ok_or(ConnectionStringError::Missing { name: ENDPOINT })?;
        let (host, port) = endpoint::parse(endpoint)?;
        let emulator = fields.emulator.map_or(Ok(false), parse_bool)?;
        if emulator && !endpoint::is_local(&host) {
            return Err(ConnectionStringError::EmulatorNotLocal { host });
        }
        Ok(ConnectionString {
            host,
            port,
            entity_path: fields.entity_path.map(str::to_owned),
            credential: credential(fields.key_name, fields.key, fields.signature)?,
            emulator,
        })
    }

    /// The host of the namespace, in lower case; an IPv6 address stands without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port in the endpoint. `None` leaves it to the transport: 5671 with TLS, 5672 for the
    /// emulator.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the namespace is the emulator, which is spoken to without TLS.
    #[must_use]
    pub fn is_emulator(&self) -> bool {
        self.emulator
    }

    /// The name of the event hub in the connection string, if there is one.
    #[must_use]
    pub fn entity_path(&self) -> Option<&str> {
        self.entity_path.as_deref()
    }

    /// What to be let in with.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The event hub to connect to, given the name that was asked for beside the connection
    /// string, if any. Names are compared without regard to case, as the service does.
    ///
    /// # Errors
    ///
    /// [`ConnectionStringError::EventHubMismatch`] if two different names are given, and
    /// [`ConnectionStringError::NoEventHub`] if none is.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::{ConnectionString, ConnectionStringError};
    ///
    /// let parsed: ConnectionString =
    ///     "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b".parse()?;
    /// assert_eq!(parsed.event_hub(Some("readings"))?, "readings");
    /// assert!(matches!(parsed.event_hub(None), Err(ConnectionStringError::NoEventHub)));
    /// # Ok::<(), ConnectionStringError>(())
    /// ```
    pub fn event_hub<'a>(
        &'a self,
        asked: Option<&'a str>,
    ) -> Result<&'a str, ConnectionStringError> {
        match (self.entity_path(), asked.filter(|name| !name.is_empty())) {
            (Some(path), Some(asked)) if !path.eq_ignore_ascii_case(asked) => {
                Err(ConnectionStringError::EventHubMismatch {
                    entity_path: path.to_owned(),
                    asked: asked.to_owned(),
                })
            }
            (Some(name), _) | (None, Some(name)) => Ok(name),
            (None, None) => Err(ConnectionStringError::NoEventHub),
        }
    }
}

impl FromStr for ConnectionString {
    type Err = ConnectionStringError;

    fn from_str(text: &str) -> Result<Self, ConnectionStringError> {
        ConnectionString::parse(text)
    }
}

/// The known fields, still as text.
#[derive(Default)]
struct Fields<'a> {
    endpoint: Option<&'a str>,
    entity_path: Option<&'a str>,
    key_name: Option<&'a str>,
    key: Option<&'a str>,
    signature: Option<&'a str>,
    emulator: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Result<Self, ConnectionStringError> {
        let mut fields = Fields::default();
        for (index, pair) in text.split(';').enumerate() {
            let pair = pair.trim();
            // Semicolons may follow each other, and one may end the string.
            if pair.is_empty() {
                continue;
            }
            // Only the first `=` separates: keys and signatures end in more of them.
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() => (name.trim(), value.trim()),
                _ => {
                    return Err(ConnectionStringError::NotAPair {
                        position: index + 1,
                    });
                }
            };
            if value.is_empty() {
                return Err(ConnectionStringError::NoValue {
                    position: index + 1,
                });
            }
            let Some((name, slot)) = fields.slot(name) else {
                continue;
            };
            if slot.replace(value).is_some() {
                return Err(ConnectionStringError::Repeated { name });
            }
        }
        Ok(fields)
    }

    /// The place of a field, with its name in the usual spelling.
    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'a str>)> {
        [
            (ENDPOINT, &mut self.endpoint),
            (ENTITY_PATH, &mut self.entity_path),
            (KEY_NAME, &mut self.key_name),
            (KEY, &mut self.key),
            (SIGNATURE, &mut self.signature),
            (EMULATOR, &mut self.emulator),
        ]
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

fn credential(
    name: Option<&str>,
    key: Option<&str>,
    signature: Option<&str>,
) -> Result<Credential, ConnectionStringError> {
    match (name, key, signature) {
        (Some(name), Some(key), None) => Ok(Credential::Key {
            name: name.to_owned(),
            key: Secret::new(key),
        }),
        (None, None, Some(signature)) => Ok(Credential::Signature(Secret::new(signature))),
        (None, None, None) => Err(ConnectionStringError::NoCredential),
        (_, _, Some(_)) => Err(ConnectionStringError::TwoCredentials),
        (None, Some(_), None) => Err(ConnectionStringError::Missing { name: KEY_NAME }),
        (Some(_), None, None) => Err(ConnectionStringError::Missing { name: KEY }),
    }
}

fn parse_bool(text: &str) -> Result<bool, ConnectionStringError> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(ConnectionStringError::NotABool)
    }
}

/// Why a connection string cannot be used.
///
/// Values are shown only where they cannot be secret: the host and the name of the event hub.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionStringError {
    /// A part between semicolons is no `name=value`.
    #[error("part {position} of the connection string is not of the form name=value")]
    #[non_exhaustive]
    NotAPair {
        /// Which part, counted from 1.
        position: usize,
    },
    /// A part has nothing after its `=`.
    #[error("part {position} of the connection string has no value")]
    #[non_exhaustive]
    NoValue {
        /// Which part, counted from 1.
        position: usize,
    },
    /// A name stands twice.
    #[error("{name} stands twice in the connection string")]
    #[non_exhaustive]
    Repeated {
        /// The name.
        name: &'static str,
    },
    /// A name that is needed is absent.
    #[error("{name} is missing in the connection string")]
    #[non_exhaustive]
    Missing {
        /// The name.
        name: &'static str,
    },
    /// The endpoint is not `sb://host` or `sb://host:port`.
    #[error("Endpoint is not of the form sb://host or sb://host:port: {problem}")]
    #[non_exhaustive]
    Endpoint {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is neither a key nor a signature.
    #[error("the connection string has neither a SharedAccessKey nor a SharedAccessSignature")]
    NoCredential,
    /// There are both a signature and a key, or the name of one.
    #[error(
        "the connection string has a SharedAccessSignature and a SharedAccessKey or its name; \
         use one of the two"
    )]
    TwoCredentials,
    /// The emulator flag is neither `true` nor `false`.
    #[error("UseDevelopmentEmulator is neither true nor false")]
    NotABool,
    /// The emulator was asked for on a host that is not local.
    #[error(
        "UseDevelopmentEmulator is for local hosts, since it turns TLS off, and {host} is not one"
    )]
    #[non_exhaustive]
    EmulatorNotLocal {
        /// The host.
        host: String,
    },
    /// The connection string and the configuration name different event hubs.
    #[error("EntityPath names the event hub {entity_path}, and the configuration names {asked}")]
    #[non_exhaustive]
    EventHubMismatch {
        /// The name in the connection string.
        entity_path: String,
        /// The name beside it.
        asked: String,
    },
    /// Neither the connection string nor the configuration names an event hub.
    #[error("no event hub is named, neither by EntityPath nor in the configuration")]
    NoEventHub,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYED: &str = "SharedAccessKeyName=name;SharedAccessKey=s3cret/+==";

    fn parse(text: &str) -> Result<ConnectionString, ConnectionStringError> {
        ConnectionString::parse(text)
    }

    #[test]
    fn names_are_read_in_any_case_and_spaces_are_ignored() {
        let parsed = parse(
            "; ENDPOINT = sb://Example.servicebus.windows.net/ ;entitypath=Hub;; \
             sharedAccessKeyname=name ;SharedAccessKey= s3cret/+== ;Unknown=1;",
        )
        .unwrap();
        assert_eq!(parsed.host(), "example.servicebus.windows.net");
        assert_eq!(parsed.port(), None);
        assert_eq!(parsed.entity_path(), Some("Hub"));
        assert!(!parsed.is_emulator());
        let Credential::Key { name, key } = parsed.credential() else {
            panic!()
        };
        assert_eq!((name.as_str(), key.expose()), ("name", "s3cret/+=="));
    }

    #[test]
    fn a_signature_stands_for_a_key() {
        let signature = "SharedAccessSignature sr=a&sig=b%3D&se=1&skn=c";
        let parsed = parse(&format!(
            "Endpoint=sb://h.net;SharedAccessSignature={signature}"
        ))
        .unwrap();
        let Credential::Signature(secret) = parsed.credential() else {
            panic!()
        };
        assert_eq!(secret.expose(), signature);
    }

    #[test]
    fn each_problem_has_its_error() {
        use ConnectionStringError::{
            Missing, NoCredential, NoValue, NotABool, NotAPair, Repeated, TwoCredentials,
        };
        let end = "Endpoint=sb://h.net";
        let cases = [
            (String::new(), Missing { name: ENDPOINT }),
            (KEYED.to_owned(), Missing { name: ENDPOINT }),
            (format!("{end};s3cret"), NotAPair { position: 2 }),
            (format!("{end};=s3cret"), NotAPair { position: 2 }),
            (
                format!("{end};{KEYED};EntityPath= "),
                NoValue { position: 4 },
            ),
            (format!("{end};{KEYED};Unknown="), NoValue { position: 4 }),
            (
                format!("{end};{KEYED};endpoint=sb://h.net"),
                Repeated { name: ENDPOINT },
            ),
            (end.to_owned(), NoCredential),
            (
                format!("{end};SharedAccessKey=s3cret"),
                Missing { name: KEY_NAME },
            ),
            (
                format!("{end};SharedAccessKeyName=s3cret"),
                Missing { name: KEY },
            ),
            (
                format!("{end};{KEYED};SharedAccessSignature=s3cret"),
                TwoCredentials,
            ),
            (
                format!("{end};SharedAccessKeyName=a;SharedAccessSignature=s3cret"),
                TwoCredentials,
            ),
            (
                format!("{end};{KEYED};UseDevelopmentEmulator=s3cret"),
                NotABool,
            ),
        ];
        for (text, expected) in cases {
            let refused = parse(&text).unwrap_err();
            assert_eq!(refused, expected, "{text}");
            assert!(
                !format!("{refused} {refused:?}").contains("s3cret"),
                "{text}"
            );
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let keyed = parse(&format!("Endpoint=sb://h.net;{KEYED}")).unwrap();
        let signed = parse("Endpoint=sb://h.net;SharedAccessSignature=s3cret").unwrap();
        let shown = format!("{keyed:?} {signed:?}");
        assert!(
            shown.contains("h.net") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    #[test]
    fn the_emulator_is_local_and_keeps_its_port() {
        let parsed = |host, flag| {
            parse(&format!(
                "Endpoint=sb://{host};{KEYED};UseDevelopmentEmulator={flag}"
            ))
        };
        let emulator = parsed("localhost:15672", "True").unwrap();
        assert!(emulator.is_emulator());
        assert_eq!(emulator.port(), Some(15672));

        let host = "h.net".to_owned();
        let refused = parsed("h.net", "true").unwrap_err();
        assert_eq!(refused, ConnectionStringError::EmulatorNotLocal { host });
        assert!(!parsed("h.net", "false").unwrap().is_emulator());
    }

    #[test]
    fn event_hubs_named_twice_must_be_the_same() {
        let named = parse(&format!("Endpoint=sb://h.net;{KEYED};EntityPath=Hub")).unwrap();
        assert_eq!(named.event_hub(None), Ok("Hub"));
        assert_eq!(named.event_hub(Some("hub")), Ok("Hub"));
        assert_eq!(
            named.event_hub(Some("other")).unwrap_err().to_string(),
            "EntityPath names the event hub Hub, and the configuration names other"
        );

        let unnamed = parse(&format!("Endpoint=sb://h.net;{KEYED}")).unwrap();
        assert_eq!(unnamed.event_hub(Some("hub")), Ok("hub"));
        assert_eq!(
            unnamed.event_hub(None),
            Err(ConnectionStringError::NoEventHub)
        );
        assert_eq!(
            unnamed.event_hub(Some("")),
            Err(ConnectionStringError::NoEventHub)
        );
    }
}
