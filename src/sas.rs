//! Shared access signatures: tokens that are signed here, with a key of the namespace or the hub.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

use crate::secret::Secret;

/// What a URL leaves as it is: RFC 3986, section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A named key that signs tokens.
///
/// # Examples
///
/// ```
/// use hublane::SasKey;
///
/// let key = SasKey::new("RootManageSharedAccessKey", "mykey");
/// let token = key.sign("amqps://example.servicebus.windows.net/myhub", 1_700_000_000);
/// assert_eq!(token.expires_at(), 1_700_000_000);
/// assert!(token.expose().ends_with("&se=1700000000&skn=RootManageSharedAccessKey"));
/// ```
#[derive(Clone, Debug)]
pub struct SasKey {
    name: String,
    key: Secret,
}

impl SasKey {
    /// A key and its name, as they stand in a connection string.
    #[must_use]
    pub fn new(name: impl Into<String>, key: impl Into<Secret>) -> Self {
        SasKey {
            name: name.into(),
            key: key.into(),
        }
    }

    /// The name of the key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Signs a token that lets its bearer use `audience`, the URL of a namespace, a hub or a part
    /// of one, until `expires_at`, in seconds since 1970-01-01T00:00:00Z.
    ///
    /// The signature is the HMAC-SHA256 of the escaped audience, in lower case, a line feed and
    /// the expiry in decimal. Its key is the text of the key as it stands, not what that text
    /// would mean in base64.
    #[must_use]
    pub fn sign(&self, audience: &str, expires_at: u64) -> Token {
        let resource = utf8_percent_encode(audience, ESCAPED)
            .to_string()
            .to_ascii_lowercase();
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.expose().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(format!("{resource}\n{expires_at}").as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());

        let text = format!(
            "SharedAccessSignature sr={resource}&sig={}&se={expires_at}&skn={}",
            utf8_percent_encode(&signature, ESCAPED),
            utf8_percent_encode(&self.name, ESCAPED),
        );
        Token {
            text: Secret::new(text),
            expires_at,
        }
    }
}

/// A token, and when it ends.
#[derive(Clone)]
pub struct Token {
    text: Secret,
    expires_at: u64,
}

impl Token {
    /// What AMQP calls a token of this kind when it is put to `$cbs`.
    pub const TYPE: &'static str = "servicebus.windows.net:sastoken";

    /// Takes a token that was signed elsewhere, and reads from its `se` when it ends.
    ///
    /// # Errors
    ///
    /// [`TokenError::NotASignature`] if it does not begin as such tokens do, and
    /// [`TokenError::NoExpiry`] if it does not say when it ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::Token;
    ///
    /// let token = Token::from_signature("SharedAccessSignature sr=a&sig=b&se=1700000000&skn=c")?;
    /// assert_eq!(token.expires_at(), 1_700_000_000);
    /// # Ok::<(), hublane::TokenError>(())
    /// ```
    pub fn from_signature(text: impl Into<Secret>) -> Result<Self, TokenError> {
        let text = text.into();
        let fields = text
            .expose()
            .strip_prefix("SharedAccessSignature ")
            .ok_or(TokenError::NotASignature)?;
        let expires_at = fields
            .split('&')
            .find_map(|field| field.trim().strip_prefix("se="))
            .and_then(|seconds| seconds.parse().ok())
            .ok_or(TokenError::NoExpiry)?;
        Ok(Token { text, expires_at })
    }

    /// The text of the token.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose()
    }

    /// When the token ends, in seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn expires_at(&self) -> u64 {
        self.expires_at
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Why a text is not a token. It does not show the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It does not begin with `SharedAccessSignature` and a space.
    #[error("the token does not begin with \"SharedAccessSignature \"")]
    NotASignature,
    /// It has no `se`, or one that is not a number of seconds.
    #[error("the token does not say when it ends: it has no se=, in seconds since 1970")]
    NoExpiry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_token_is_signed_to_the_letter() {
        let key = SasKey::new("RootManageSharedAccessKey", "mykey");
        let token = key.sign(
            "amqps://example.servicebus.windows.net/myhub",
            1_700_000_000,
        );
        assert_eq!(
            token.expose(),
            "SharedAccessSignature sr=amqps%3a%2f%2fexample.servicebus.windows.net%2fmyhub\
             &sig=SgJoMn7K6nWDCF6e1%2BfsxrmJLsorqPeZ3B8N1uQ31dc%3D\
             &se=1700000000&skn=RootManageSharedAccessKey"
        );
        assert_eq!(
            Token::from_signature(token.expose()).unwrap().expires_at(),
            1_700_000_000
        );
    }

    #[test]
    fn the_case_of_an_audience_makes_no_difference() {
        let key = SasKey::new("n", "k");
        assert_eq!(
            key.sign("amqps://H/Hub", 1).expose(),
            key.sign("amqps://h/hub", 1).expose()
        );
        assert_ne!(
            key.sign("amqps://h/hub", 1).expose(),
            key.sign("amqps://h/hub", 2).expose()
        );
        assert_ne!(
            key.sign("amqps://h/hub", 1).expose(),
            key.sign("amqps://h/huc", 1).expose()
        );
    }

    #[test]
    fn the_name_of_a_key_is_escaped() {
        let token = SasKey::new("a b&c", "k").sign("a", 1);
        assert!(
            token.expose().ends_with("&skn=a%20b%26c"),
            "{}",
            token.expose()
        );
    }

    #[test]
    fn a_token_signed_elsewhere_must_say_when_it_ends() {
        let expiry = |text: &str| Token::from_signature(text).map(|token| token.expires_at());
        assert_eq!(expiry("SharedAccessSignature se=7"), Ok(7));
        assert_eq!(
            expiry("SharedAccessSignature sr=a&se=x"),
            Err(TokenError::NoExpiry)
        );
        assert_eq!(
            expiry("SharedAccessSignature sr=se=7"),
            Err(TokenError::NoExpiry)
        );
        assert_eq!(expiry("Bearer se=7"), Err(TokenError::NotASignature));
    }

    #[test]
    fn debug_shows_neither_key_nor_token() {
        let key = SasKey::new("name", "s3cret");
        assert!(!format!("{key:?}").contains("s3cret"));
        let token = key.sign("a", 7);
        assert_eq!(format!("{token:?}"), "Token { expires_at: 7, .. }");
    }
}
