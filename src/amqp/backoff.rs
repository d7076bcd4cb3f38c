//! How long to wait before something is tried again.

use crate::condition::{RetryClass, classify};
use crate::retry::RetryPolicy;
use crate::transport::LinkError;
use std::time::Duration;

/// Between the attempts of one node, and between connections.
pub(super) fn backoff_policy() -> RetryPolicy {
    RetryPolicy {
        max_retries: u32::MAX,
        delay: Duration::from_millis(200),
        // A service that is back is found while events still have most of their time.
        max_delay: Duration::from_secs(10),
        server_busy_delay: Duration::from_secs(4),
    }
}

/// Whether the peer asked for a longer wait.
pub(super) fn is_busy(error: &LinkError) -> bool {
    classify(&error.condition) == RetryClass::ServerBusy
}
