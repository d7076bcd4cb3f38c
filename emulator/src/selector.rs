//! Where a reader starts: the selector filter of Event Hubs, and its form in this crate's API.

/// Where reading a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Position {
    /// At the oldest event that is still held.
    #[default]
    Start,
    /// Behind the newest event: only what arrives later.
    End,
    /// At the first event whose offset is greater.
    AfterOffset(u64),
    /// At the first event whose offset is this or greater.
    FromOffset(u64),
    /// At the first event whose sequence number is greater.
    AfterSequenceNumber(i64),
    /// At the first event whose sequence number is this or greater.
    FromSequenceNumber(i64),
    /// At the first event stored later than these milliseconds since the Unix epoch.
    AfterEnqueuedTime(i64),
    /// At the first event stored at these milliseconds since the Unix epoch or later.
    FromEnqueuedTime(i64),
}

impl Position {
    /// Reads a selector such as `amqp.annotation.x-opt-offset > '-1'`.
    pub(crate) fn parse(selector: &str) -> Option<Self> {
        let rest = selector.trim().strip_prefix("amqp.annotation.")?;
        let (name, rest) = rest.split_at(rest.find(['>', ' '])?);
        let rest = rest.trim_start().strip_prefix('>')?;
        let (inclusive, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let value = rest.trim().trim_matches('\'');
        match name {
            "x-opt-offset" | "x-opt-offset-string" => offset(value, inclusive),
            "x-opt-sequence-number" => value.parse().ok().map(|number| {
                if inclusive {
                    Self::FromSequenceNumber(number)
                } else {
                    Self::AfterSequenceNumber(number)
                }
            }),
            "x-opt-enqueued-time" | "x-opt-enqueuedtimeutc" => value.parse().ok().map(|ms| {
                if inclusive {
                    Self::FromEnqueuedTime(ms)
                } else {
                    Self::AfterEnqueuedTime(ms)
                }
            }),
            _ => None,
        }
    }
}

fn offset(value: &str, inclusive: bool) -> Option<Position> {
    match value {
        "-1" => Some(Position::Start),
        "@latest" => Some(Position::End),
        number => number.parse().ok().map(|offset| {
            if inclusive {
                Position::FromOffset(offset)
            } else {
                Position::AfterOffset(offset)
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_of_the_public_clients_are_read() {
        for (selector, expected) in [
            ("amqp.annotation.x-opt-offset > '-1'", Position::Start),
            ("amqp.annotation.x-opt-offset > '@latest'", Position::End),
            (
                "amqp.annotation.x-opt-offset >= '120'",
                Position::FromOffset(120),
            ),
            (
                "amqp.annotation.x-opt-offset > '120'",
                Position::AfterOffset(120),
            ),
            (
                "amqp.annotation.x-opt-sequence-number > '-1'",
                Position::AfterSequenceNumber(-1),
            ),
            (
                "amqp.annotation.x-opt-sequence-number >= 7",
                Position::FromSequenceNumber(7),
            ),
            (
                "amqp.annotation.x-opt-enqueued-time > '1700000000000'",
                Position::AfterEnqueuedTime(1_700_000_000_000),
            ),
            (
                "amqp.annotation.x-opt-enqueued-time>='5'",
                Position::FromEnqueuedTime(5),
            ),
        ] {
            assert_eq!(Position::parse(selector), Some(expected), "{selector}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for selector in [
            "",
            "x > 1",
            "amqp.annotation.x-opt-offset < '1'",
            "amqp.annotation.x-opt-offset > 'x'",
            "amqp.annotation.x-opt-offset",
            "amqp.annotation.other > 1",
        ] {
            assert_eq!(Position::parse(selector), None, "{selector}");
        }
    }
}
