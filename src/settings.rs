//! What a producer can be told, and the check that it makes sense.

use crate::core::Limits;
use crate::lane::{EVENT_OVERHEAD, MAX_BYTES, MAX_EVENTS};
use crate::retry::RetryPolicy;
use std::time::Duration;

/// Why a producer cannot be built with these settings. Nothing is ever clipped silently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value outside its range.
    #[error("{setting} is {value}; it must be {allowed}")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The values it may have.
        allowed: String,
    },
    /// Two values that cannot both hold.
    #[error("{setting} is {value}, which must not exceed {other_setting}, {other_value}")]
    Exceeds {
        /// The setting that is too large.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The setting that limits it.
        other_setting: &'static str,
        /// That one's value.
        other_value: String,
    },
}

/// The settings of a producer; docs/DEFAULTS.md gives the reason of each default.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_wait_time: Duration,
    pub(crate) max_batch_bytes: usize,
    pub(crate) max_batch_events: usize,
    pub(crate) max_buffered_events: u64,
    pub(crate) max_buffered_bytes: u64,
    pub(crate) max_in_flight: usize,
    pub(crate) delivery_timeout: Duration,
    pub(crate) start_up_timeout: Duration,
    pub(crate) drop_timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) thread_name: String,
    pub(crate) thread_stack_size: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_wait_time: Duration::from_secs(1),
            max_batch_bytes: 128 * 1024,
            max_batch_events: 8192,
            max_buffered_events: 32_768,
            max_buffered_bytes: 32 * 1024 * 1024,
            max_in_flight: 1,
            delivery_timeout: Duration::from_secs(120),
            start_up_timeout: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
            retry: RetryPolicy::default(),
            thread_name: "hublane".to_owned(),
            thread_stack_size: None,
        }
    }
}

impl Settings {
    /// Checks every setting alone and against those that it depends on.
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        let batch_bytes = self.max_batch_bytes as u64;
        let batch_events = self.max_batch_events as u64;
        in_range("max_batch_bytes", batch_bytes, 1, u64::from(u32::MAX))?;
        in_range("max_batch_events", batch_events, 1, MAX_EVENTS)?;
        in_range(
            "max_buffered_events",
            self.max_buffered_events,
            1,
            MAX_EVENTS,
        )?;
        in_range(
            "max_buffered_bytes",
            self.max_buffered_bytes,
            EVENT_OVERHEAD + 1,
            MAX_BYTES,
        )?;
        in_range("max_in_flight", self.max_in_flight as u64, 1, 1024)?;
        for (setting, value) in [
            ("delivery_timeout", self.delivery_timeout),
            ("start_up_timeout", self.start_up_timeout),
        ] {
            if value.is_zero() {
                return Err(SettingsError::OutOfRange {
                    setting,
                    value: "0s".to_owned(),
                    allowed: "more than zero".to_owned(),
                });
            }
        }
        not_above(
            ("max_batch_bytes", batch_bytes),
            ("max_buffered_bytes", self.max_buffered_bytes),
        )?;
        // At that age it is sent, and at this one given up: a lone event must reach the first.
        if self.max_wait_time >= self.delivery_timeout {
            return Err(SettingsError::OutOfRange {
                setting: "max_wait_time",
                value: format!("{:?}", self.max_wait_time),
                allowed: format!("less than delivery_timeout, {:?}", self.delivery_timeout),
            });
        }
        not_above(
            ("retry.delay", self.retry.delay),
            ("retry.max_delay", self.retry.max_delay),
        )?;
        // No system takes one in a thread's name, and the standard library panics.
        if self.thread_name.contains('\0') {
            return Err(SettingsError::OutOfRange {
                setting: "thread_name",
                value: format!("{:?}", self.thread_name),
                allowed: "without NUL".to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_batch_bytes: self.max_batch_bytes,
            max_batch_events: self.max_batch_events,
            max_wait: self.max_wait_time,
            window: self.max_in_flight,
            delivery_timeout: self.delivery_timeout,
            retry: self.retry.clone(),
        }
    }
}

fn in_range(setting: &'static str, value: u64, low: u64, high: u64) -> Result<(), SettingsError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(SettingsError::OutOfRange {
        setting,
        value: value.to_string(),
        allowed: format!("{low} to {high}"),
    })
}

fn not_above<T: PartialOrd + std::fmt::Debug>(
    (setting, value): (&'static str, T),
    (other_setting, other_value): (&'static str, T),
) -> Result<(), SettingsError> {
    if value <= other_value {
        return Ok(());
    }
    Err(SettingsError::Exceeds {
        setting,
        value: format!("{value:?}"),
        other_setting,
        other_value: format!("{other_value:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
            .validate()
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn each_bound_is_refused_one_past_it_and_names_itself() {
        assert!(refused(|s| s.max_buffered_events = 0).contains("max_buffered_events is 0"));
        assert!(refused(|s| s.max_buffered_events = MAX_EVENTS + 1).contains("4194303"));
        assert_eq!(refused(|s| s.max_buffered_events = MAX_EVENTS), "");
        assert!(refused(|s| s.max_buffered_bytes = EVENT_OVERHEAD).contains("max_buffered_bytes"));
        assert!(refused(|s| s.max_buffered_bytes = MAX_BYTES + 1).contains("max_buffered_bytes"));
        assert!(refused(|s| s.max_batch_bytes = 0).contains("max_batch_bytes"));
        assert!(refused(|s| s.max_batch_events = 0).contains("max_batch_events"));
        assert!(refused(|s| s.max_in_flight = 0).contains("max_in_flight"));
        assert!(refused(|s| s.delivery_timeout = Duration::ZERO).contains("delivery_timeout"));
    }

    #[test]
    fn contradictions_name_both_settings() {
        let batch = refused(|s| s.max_batch_bytes = 33 * 1024 * 1024);
        assert!(batch.contains("max_batch_bytes") && batch.contains("max_buffered_bytes"));
        let wait = refused(|s| s.max_wait_time = Duration::from_secs(121));
        assert!(wait.contains("max_wait_time is 121s") && wait.contains("delivery_timeout, 120s"));
    }
}
