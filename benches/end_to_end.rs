//! Delivered events a second over loopback AMQP, beside fe2o3-amqp alone.
//!
//! Both send to the same emulator, which parses, stores (the oldest are dropped at 64 MiB) and
//! settles, in this process and on these cores. hublane: default settings, and four batches in
//! flight; outcome tracking and a delivery handler are on; a round ends when every event has
//! its outcome. fe2o3-amqp: 128 KiB batches of the same encoded events, built before the clock
//! starts, four in flight, on one current-thread runtime.

mod support;

use fe2o3_amqp::connection::Connection;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::DeliveryFut;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::Session;
use fe2o3_amqp::types::messaging::{Batch, Data, Message, Outcome as FeOutcome};
use fe2o3_amqp::{Sendable, Sender};
use hublane::{Event, Outcome, ProducerBuilder, Target, codec};
use hublane_emulator::{Emulator, Retention};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{compare, first, rate};

const ROUNDS: usize = 5;
const BATCH: usize = 128 * 1024;
const WINDOW: usize = 4;

fn emulator() -> Emulator {
    Emulator::builder()
        .hub("hub", 1)
        .max_memory_bytes(64 << 20)
        .retention(Retention::DropOldest)
        .start()
        .expect("loopback")
}

fn hublane_rate(emulator: &Emulator, size: usize, events: u64, window: usize) -> f64 {
    let text = emulator.connection_string("hub");
    let delivered = Arc::new(AtomicU64::new(0));
    let handled = Arc::clone(&delivered);
    let producer = ProducerBuilder::from_connection_string(&text, None)
        .expect("a connection string")
        .max_in_flight(window)
        .on_delivery(move |report, _| {
            if report.outcome == Outcome::Delivered {
                handled.fetch_add(report.events.len() as u64, Ordering::Relaxed);
            }
        })
        .build()
        .expect("the emulator answers");
    let target: Target = first();
    let body: &'static [u8] = vec![b'x'; size].leak();
    // The link attaches with the first event.
    producer
        .enqueue_to(&target, Event::new(body))
        .expect("open");
    producer.flush().expect("delivered");
    let began = Instant::now();
    for _ in 0..events {
        producer
            .enqueue_to(&target, Event::new(body))
            .expect("open");
    }
    producer.flush().expect("all delivered");
    let figure = rate(events, began);
    assert_eq!(delivered.load(Ordering::Relaxed), events + 1);
    producer.close().expect("all delivered");
    figure
}

/// One batch of encoded events, and how many they are.
fn prebuilt(size: usize) -> (Sendable<Batch<Data>>, u64) {
    let mut encoded = Vec::new();
    codec::encode(&Event::new(vec![b'x'; size]), None, &mut encoded);
    let count = BATCH / codec::section_len(encoded.len());
    let batch: Vec<Data> = (0..count).map(|_| Data::from(encoded.clone())).collect();
    let message = Message::builder().data_batch(Batch::new(batch)).build();
    let sendable = Sendable::builder()
        .message(message)
        .message_format(codec::BATCH_MESSAGE_FORMAT)
        .build();
    (sendable, count as u64)
}

async fn fe2o3_sends(emulator: &Emulator, size: usize, events: u64) -> f64 {
    let stream = tokio::net::TcpStream::connect(emulator.local_addr())
        .await
        .expect("loopback");
    stream.set_nodelay(true).expect("a socket option");
    let mut connection = Connection::builder()
        .container_id("bench")
        .hostname("127.0.0.1")
        .max_frame_size(65_536)
        .sasl_profile(SaslProfile::Anonymous)
        .open_with_stream(stream)
        .await
        .expect("open");
    let mut session = Session::begin(&mut connection).await.expect("begin");
    let mut sender = Sender::attach(&mut session, "bench", "hub/Partitions/0")
        .await
        .expect("attach");
    let (sendable, count) = prebuilt(size);
    let batches = events / count;
    let began = Instant::now();
    let mut in_flight: VecDeque<DeliveryFut<Result<FeOutcome, SendError>>> = VecDeque::new();
    for _ in 0..batches {
        if in_flight.len() == WINDOW {
            let oldest = in_flight.pop_front().expect("the window is full");
            let outcome = oldest.await;
            assert!(outcome.expect("answered").is_accepted());
        }
        in_flight.push_back(sender.send_batchable_ref(&sendable).await.expect("sent"));
    }
    for delivery in in_flight {
        assert!(delivery.await.expect("answered").is_accepted());
    }
    let figure = rate(batches * count, began);
    drop((
        sender.close().await,
        session.end().await,
        connection.close().await,
    ));
    figure
}

fn fe2o3_rate(emulator: &Emulator, size: usize, events: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), fe2o3_sends(emulator, size, events))
            .await
            .expect("fe2o3-amqp ends within a minute")
    })
}

fn main() {
    let emulator = emulator();
    println!(
        "end to end: loopback, one caller, one partition, sink in the same process, {ROUNDS} rounds"
    );
    for (size, events) in [(100, 1_500_000), (1024, 300_000)] {
        for (settings, window) in [("default settings", 1), ("window 4", WINDOW)] {
            compare(
                &format!("{size} B, {settings}, delivered"),
                "events/s",
                ROUNDS,
                || hublane_rate(&emulator, size, events, window),
                ("fe2o3-amqp alone", || fe2o3_rate(&emulator, size, events)),
            );
        }
    }
}
