//! Where tokens come from, and when they are renewed.

use super::errors;
use crate::connection_string::Credential;
use crate::sas::{SasKey, Token};
use crate::sync::Instant;
use crate::sync::unix_seconds;
use crate::transport::LinkError;
use std::time::Duration;

/// A token is renewed when this part of its life is left, at most.
const RENEW_AT_A_THIRD: u32 = 3;
/// A longer head start helps nobody.
const MAX_HEAD_START: Duration = Duration::from_secs(10 * 60);

/// Makes tokens for an audience.
#[derive(Debug)]
pub(super) enum TokenSource {
    /// Signs one for each audience.
    Key(SasKey, Duration),
    /// Has one that was signed before, and cannot renew it.
    Fixed(Token),
}

/// A token that is about to be put.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) token: Token,
    /// When to put the next one; `None` if there will be none.
    pub(super) renew_at: Option<Instant>,
}

impl TokenSource {
    /// A source for what a connection string offers; tokens live for `life`.
    pub(super) fn new(credential: &Credential, life: Duration) -> Result<TokenSource, LinkError> {
        match credential {
            Credential::Key { name, key } => {
                Ok(TokenSource::Key(SasKey::new(name, key.clone()), life))
            }
            Credential::Signature(text) => match Token::from_signature(text.clone()) {
                Ok(token) => Ok(TokenSource::Fixed(token)),
                Err(error) => Err(LinkError::new(
                    errors::UNAUTHORIZED,
                    format!("the shared access signature cannot be used: {error}"),
                )),
            },
        }
    }

    /// A token for `audience`, as of `now`.
    pub(super) fn grant(&self, audience: &str, now: Instant) -> Grant {
        match self {
            TokenSource::Key(key, life) => {
                // The second that has begun is not counted: the token lives `life` at least.
                let expiry = unix_seconds().saturating_add(life.as_secs().saturating_add(1));
                Grant {
                    token: key.sign(audience, expiry),
                    renew_at: now.checked_add(*life - head_start(*life)),
                }
            }
            TokenSource::Fixed(token) => Grant {
                token: token.clone(),
                renew_at: None,
            },
        }
    }
}

/// How long before its end a token is renewed.
fn head_start(life: Duration) -> Duration {
    (life / RENEW_AT_A_THIRD).min(MAX_HEAD_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_well_before_its_end() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(head_start(minutes(60)), minutes(10));
        assert_eq!(head_start(minutes(9)), minutes(3));
        assert_eq!(head_start(Duration::from_secs(3)), Duration::from_secs(1));
    }
}
