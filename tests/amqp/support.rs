//! A producer on an emulator, with short times and a limit for every wait.

use hublane::amqp::{AmqpOptions, AmqpTransport};
use hublane::{ConnectionString, Event, Producer, ProducerBuilder, RetryPolicy, Target};
use hublane_emulator::{Builder, Emulator, HubHandle};
use std::time::Duration;

pub const HUB: &str = "hub";

/// No wait in these tests is longer.
pub const LIMIT: Duration = Duration::from_secs(20);

pub const MILLI: Duration = Duration::from_millis(1);

/// An emulator with one hub.
pub fn start(builder: Builder, partitions: usize) -> (Emulator, HubHandle) {
    let emulator = builder.hub(HUB, partitions).start().unwrap();
    let hub = emulator.hub(HUB).unwrap();
    (emulator, hub)
}

/// Options with times that a test can wait for.
pub fn options() -> AmqpOptions {
    AmqpOptions::default().operation_timeout(Duration::from_secs(5))
}

/// A builder for a producer on an emulator.
pub fn builder(emulator: &Emulator, options: AmqpOptions) -> ProducerBuilder {
    over(&emulator.connection_string(HUB), options)
}

/// A builder for a producer on whatever a connection string leads to.
pub fn over(connection_string: &str, options: AmqpOptions) -> ProducerBuilder {
    let target: ConnectionString = connection_string.parse().unwrap();
    let transport = AmqpTransport::new(target, None)
        .unwrap()
        .with_options(options)
        .unwrap();
    let retry = RetryPolicy {
        delay: 10 * MILLI,
        server_busy_delay: 100 * MILLI,
        ..RetryPolicy::default()
    };
    ProducerBuilder::new(transport)
        .start_up_timeout(Duration::from_secs(5))
        .delivery_timeout(LIMIT)
        .max_wait_time(5 * MILLI)
        .retry(retry)
}

/// A producer on an emulator.
pub fn producer(emulator: &Emulator) -> Producer {
    builder(emulator, options()).build().unwrap()
}

/// Sends bodies to a partition and waits until all of them are delivered.
pub fn deliver(producer: &Producer, partition: usize, bodies: &[&str]) {
    enqueue(producer, partition, bodies);
    let report = producer.flush_timeout(LIMIT).unwrap();
    assert!(report.outcomes.all_delivered(), "{report:?}");
}

pub fn enqueue(producer: &Producer, partition: usize, bodies: &[&str]) {
    let target = Target::Partition(partition.to_string().as_str().into());
    for body in bodies {
        producer
            .enqueue_to(&target, Event::new(body.to_string()))
            .unwrap();
    }
}

/// The bodies of a partition as text.
pub fn stored(hub: &HubHandle, partition: usize) -> Vec<String> {
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    let events = hub.events(partition);
    events.iter().map(|event| text(&event.body())).collect()
}

/// Waits until `what` holds, which it must within the limit.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    while !holds() {
        assert!(std::time::Instant::now() < end, "in vain: {what}");
        std::thread::sleep(MILLI);
    }
}
