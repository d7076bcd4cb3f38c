//! Shared access signatures: the check that the service makes of a `put-token`.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// A rule name with its key.
#[derive(Clone)]
pub(crate) struct SasKey {
    pub(crate) name: String,
    pub(crate) key: String,
}

impl fmt::Debug for SasKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SasKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum TokenError {
    #[error("the token is no shared access signature")]
    Shape,
    #[error("the token was signed under another key name")]
    KeyName,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the signature does not match")]
    Signature,
}

/// What a good token grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The lower-cased path that the token covers, with all below it.
    pub(crate) path: String,
    /// Seconds since the Unix epoch.
    pub(crate) expires: u64,
}

impl Grant {
    /// True when the token covers `path` (an address without its host) at `now`.
    pub(crate) fn covers(&self, path: &str, now: u64) -> bool {
        let path = path.to_ascii_lowercase();
        let below = path.strip_prefix(&self.path);
        let inside = self.path.is_empty()
            || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        inside && now < self.expires
    }
}

impl SasKey {
    /// Checks a token that was put for `audience` at `now`, in seconds since the Unix epoch.
    pub(crate) fn check(&self, token: &str, audience: &str, now: u64) -> Result<Grant, TokenError> {
        let parts = token
            .strip_prefix("SharedAccessSignature ")
            .ok_or(TokenError::Shape)?;
        let field = |name: &str| {
            parts
                .split('&')
                .find_map(|part| part.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, value)| value)
                .ok_or(TokenError::Shape)
        };
        let (resource, expiry) = (field("sr")?, field("se")?);
        if percent_decode(field("skn")?).as_deref() != Some(self.name.as_bytes()) {
            return Err(TokenError::KeyName);
        }
        let signature = percent_decode(field("sig")?).ok_or(TokenError::Shape)?;
        let signature = STANDARD
            .decode(signature)
            .map_err(|_| TokenError::Signature)?;
        // The signed text is the resource exactly as it stands in the token, still encoded.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes())
            .map_err(|_| TokenError::Signature)?;
        mac.update(resource.as_bytes());
        mac.update(b"\n");
        mac.update(expiry.as_bytes());
        mac.verify_slice(&signature)
            .map_err(|_| TokenError::Signature)?;
        let expires: u64 = expiry.parse().map_err(|_| TokenError::Shape)?;
        if expires <= now {
            return Err(TokenError::Expired);
        }
        let resource = percent_decode(resource)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or(TokenError::Shape)?;
        let grant = Grant {
            path: lower_path(&resource),
            expires,
        };
        if !grant.covers(&lower_path(audience), now) {
            return Err(TokenError::Audience);
        }
        Ok(grant)
    }
}

/// The path of an audience, which unlike an address is always a URL.
pub(crate) fn lower_path(audience: &str) -> String {
    crate::address::path(audience).to_ascii_lowercase()
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        match rest {
            [] => return Some(out),
            [b'%', high, low, tail @ ..] => {
                out.push(hex(*high)? << 4 | hex(*low)?);
                rest = tail;
            }
            [b'%', ..] => return None,
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIENCE: &str = "amqps://example.servicebus.windows.net/myhub";
    const SIGNATURE: &str = "SgJoMn7K6nWDCF6e1%2BfsxrmJLsorqPeZ3B8N1uQ31dc%3D";

    fn key() -> SasKey {
        SasKey {
            name: "RootManageSharedAccessKey".into(),
            key: "mykey".into(),
        }
    }

    fn token() -> String {
        format!(
            "SharedAccessSignature sr=amqps%3a%2f%2fexample.servicebus.windows.net%2fmyhub\
             &sig={SIGNATURE}&se=1700000000&skn=RootManageSharedAccessKey"
        )
    }

    #[test]
    fn a_good_token_grants_its_path_until_it_expires() {
        let grant = key().check(&token(), AUDIENCE, 1_699_999_999).unwrap();
        assert!(grant.covers("myhub", 1_699_999_999));
        assert!(grant.covers("MyHub/Partitions/0", 1_699_999_999));
        assert!(!grant.covers("myhub2", 1_699_999_999));
        assert!(!grant.covers("myhub", 1_700_000_000));
        let below = format!("{AUDIENCE}/Partitions/0");
        assert!(key().check(&token(), &below, 0).is_ok());
    }

    #[test]
    fn each_defect_has_its_error() {
        let check = |token: &str, audience: &str| key().check(token, audience, 1_600_000_000);
        assert_eq!(check("Bearer x", AUDIENCE), Err(TokenError::Shape));
        assert_eq!(
            check(&token().replace("skn=R", "skn=r"), AUDIENCE),
            Err(TokenError::KeyName)
        );
        assert_eq!(
            check(&token().replace("sig=Sg", "sig=SG"), AUDIENCE),
            Err(TokenError::Signature)
        );
        assert_eq!(
            check(&token().replace("=17", "=18"), AUDIENCE),
            Err(TokenError::Signature)
        );
        assert_eq!(
            check(&token(), "amqps://h/other"),
            Err(TokenError::Audience)
        );
        assert_eq!(
            key().check(&token(), AUDIENCE, 1_700_000_000),
            Err(TokenError::Expired)
        );
    }
}
