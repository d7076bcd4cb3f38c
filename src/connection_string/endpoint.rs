//! The endpoint in a connection string: where it points, and whether that is near.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ConnectionStringError;

/// Host, in lower case and without brackets, and port of `sb://host[:port][/]`.
pub(super) fn parse(endpoint: &str) -> Result<(String, Option<u16>), ConnectionStringError> {
    const SCHEME: &str = "sb://";
    let malformed = |problem| ConnectionStringError::Endpoint { problem };

    let scheme = endpoint.get(..SCHEME.len()).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(malformed("it does not begin with sb://"));
    }
    let authority = &endpoint[SCHEME.len()..];
    let authority = authority.strip_suffix('/').unwrap_or(authority);

    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed
                .split_once(']')
                .ok_or(malformed("a bracket is not closed"))?;
            host.parse::<Ipv6Addr>()
                .map_err(|_| malformed("the brackets hold no IPv6 address"))?;
            let port = match after {
                "" => None,
                _ => Some(
                    after
                        .strip_prefix(':')
                        .ok_or(malformed("a port follows a colon"))?,
                ),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    // A host name in its wire form is letters, digits, hyphens and dots (RFC 1123, section 2.1);
    // underscores occur in the names of containers. This also keeps out paths, queries and users.
    let in_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if host.is_empty() || !host.chars().all(in_host) {
        return Err(malformed("the host is not a host name or an address"));
    }
    let port = match port {
        None => None,
        Some(digits) => match digits.parse::<u16>() {
            // `parse` also takes a sign.
            Ok(port) if port > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Some(port),
            _ => return Err(malformed("the port is not a number from 1 to 65535")),
        },
    };
    Ok((host.to_ascii_lowercase(), port))
}

/// Whether a host can be the emulator's: without TLS the key's token crosses the network in the
/// clear, so it must not be one on the internet.
///
/// The emulator's documentation names four: `localhost`, an address in the local network, the
/// name of a container in the same network (a name without a dot), and `host.docker.internal`.
pub(super) fn is_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => is_local_v4(address),
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(address) => is_local_v4(address),
            None => {
                address.is_loopback()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
            }
        },
        Err(_) => {
            !host.contains('.') || host.ends_with(".localhost") || host == "host.docker.internal"
        }
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_private() || address.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_has_a_host_and_perhaps_a_port() {
        let rows = [
            ("sb://h.net", "h.net", None),
            ("SB://H.net:1/", "h.net", Some(1)),
            ("sb://127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("sb://[::1]:5672/", "::1", Some(5672)),
            ("sb://[::1]", "::1", None),
        ];
        for (endpoint, host, port) in rows {
            assert_eq!(parse(endpoint), Ok((host.to_owned(), port)), "{endpoint}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        let malformed = "h.net|amqps://h.net|sb:/h.net|sb://|sb:///|sb://:5672|sb://h:|sb://h:0|\
            sb://h:65536|sb://h:+1|sb://h:1:2|sb://h/hub|sb://h//|sb://u@h|sb://h?a|sb://h h|\
            sb://é|é|sb://[::1|sb://[h]|sb://[::1]5|sb://::1";
        for endpoint in malformed.split('|') {
            let refused = parse(endpoint);
            assert!(
                matches!(refused, Err(ConnectionStringError::Endpoint { .. })),
                "{endpoint}: {refused:?}"
            );
        }
    }

    #[test]
    fn hosts_that_cannot_be_on_the_internet_are_local() {
        let local = "localhost 127.0.0.1 127.8.9.1 ::1 ::ffff:127.0.0.1 10.0.0.1 172.31.0.1 \
            192.168.1.2 169.254.1.1 fd00::1 fe80::1 eventhubs-emulator host.docker.internal \
            hub.localhost";
        for host in local.split_whitespace() {
            assert!(is_local(host), "{host}");
        }
        let remote = "example.servicebus.windows.net 8.8.8.8 172.32.0.1 2001:db8::1 \
            ::ffff:8.8.8.8 localhost.example.com 0.0.0.0";
        for host in remote.split_whitespace() {
            assert!(!is_local(host), "{host}");
        }
    }
}
