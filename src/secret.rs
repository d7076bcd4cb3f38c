//! Text that must not be seen.

use std::fmt;

use zeroize::Zeroizing;

/// A key, a signature or a token: text that is wiped from memory when it is dropped, and never
/// shown by `Debug`.
///
/// Wiping reaches the copy that is held here. What a program kept of the text elsewhere, such as
/// the environment variable that it came from, is not reached.
///
/// # Examples
///
/// ```
/// use hublane::Secret;
///
/// let key = Secret::new("hunter2");
/// assert_eq!(format!("{key:?}"), "Secret(..)");
/// assert_eq!(key.expose(), "hunter2");
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Box<str>>);

impl Secret {
    /// Takes charge of `text`.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(Zeroizing::new(text.into()))
    }

    /// The text. The name is there to be noticed where it is called.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret::new(text)
    }
}
