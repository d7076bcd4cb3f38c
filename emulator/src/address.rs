//! What a link address names.

/// A node of the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// `$cbs`, where tokens are put.
    Cbs,
    /// `$management`, where hubs and partitions are read.
    Management,
    /// `{hub}`, `{hub}/Partitions/{id}` or `{hub}/Publishers/{name}`.
    Ingress {
        hub: String,
        partition: Option<String>,
    },
    /// `{hub}/ConsumerGroups/{group}/Partitions/{id}`.
    Egress {
        hub: String,
        group: String,
        partition: String,
    },
}

/// The path of an address: clients send bare paths and whole URLs.
pub(crate) fn path(address: &str) -> &str {
    let path = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    };
    path.trim_matches('/')
}

impl Address {
    /// Reads an address; `None` when it names no kind of node that exists.
    pub(crate) fn parse(address: &str) -> Option<Self> {
        let segments: Vec<&str> = path(address).split('/').collect();
        let named = |index: usize, name: &str| {
            segments
                .get(index)
                .is_some_and(|segment| segment.eq_ignore_ascii_case(name))
        };
        match segments.as_slice() {
            ["$cbs"] => Some(Self::Cbs),
            // Some clients address the management node below the hub.
            ["$management"] | [_, "$management"] => Some(Self::Management),
            [""] => None,
            [hub] => Some(Self::Ingress {
                hub: (*hub).to_owned(),
                partition: None,
            }),
            [hub, _, id] if named(1, "partitions") => Some(Self::Ingress {
                hub: (*hub).to_owned(),
                partition: Some((*id).to_owned()),
            }),
            [hub, _, _] if named(1, "publishers") => Some(Self::Ingress {
                hub: (*hub).to_owned(),
                partition: None,
            }),
            [hub, _, group, _, id] if named(1, "consumergroups") && named(3, "partitions") => {
                Some(Self::Egress {
                    hub: (*hub).to_owned(),
                    group: (*group).to_owned(),
                    partition: (*id).to_owned(),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingress(hub: &str, partition: Option<&str>) -> Option<Address> {
        Some(Address::Ingress {
            hub: hub.into(),
            partition: partition.map(Into::into),
        })
    }

    #[test]
    fn paths_and_urls_name_the_same_node() {
        assert_eq!(Address::parse("hub"), ingress("hub", None));
        assert_eq!(
            Address::parse("amqps://127.0.0.1:5672/hub/Partitions/3"),
            ingress("hub", Some("3"))
        );
        assert_eq!(
            Address::parse("hub/partitions/3"),
            ingress("hub", Some("3"))
        );
        assert_eq!(Address::parse("sb://h/hub/"), ingress("hub", None));
        assert_eq!(Address::parse("hub/Publishers/me"), ingress("hub", None));
        assert_eq!(Address::parse("amqp://h:1/$cbs"), Some(Address::Cbs));
        assert_eq!(Address::parse("$management"), Some(Address::Management));
    }

    #[test]
    fn consumer_groups_are_read() {
        let expected = Address::Egress {
            hub: "hub".into(),
            group: "$Default".into(),
            partition: "0".into(),
        };
        let address = "amqps://h/hub/ConsumerGroups/$Default/Partitions/0";
        assert_eq!(Address::parse(address), Some(expected));
    }

    #[test]
    fn other_shapes_name_nothing() {
        for address in [
            "",
            "amqps://host",
            "hub/Partitions",
            "hub/Parts/0",
            "a/b/c/d/e",
            "a/b/c/d",
        ] {
            assert_eq!(Address::parse(address), None, "{address}");
        }
    }
}
