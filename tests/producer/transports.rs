//! Transports are foreign code too: one that panics takes no more than its lane with it.

use crate::support::{Running, assert_settled, events, flush, numbers, text, texts, to, within};
use hublane::transport::{
    Busy, ConnectError, Delivery, DeliveryId, HubInfo, Link, LinkInbox, LinkState, Transport,
};
use hublane::{
    EnqueueRefusal, FlushError, Outcome, PartitionId, Producer, ProducerBuilder, RetryPolicy,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// In the first two connects.
    Connect,
    OpenLink,
    Submit,
    Cancel,
}

/// Answers nothing, and panics where it is told to; its links panic when they are dropped.
struct Faulty {
    fault: Fault,
    connects: AtomicUsize,
}

struct FaultyLink(Fault);

impl Faulty {
    fn builder(fault: Fault) -> ProducerBuilder {
        let transport = Faulty {
            fault,
            connects: AtomicUsize::new(0),
        };
        ProducerBuilder::new(transport).retry(RetryPolicy {
            delay: Duration::from_millis(5),
            ..RetryPolicy::default()
        })
    }
}

impl Transport for Faulty {
    fn connect(&self, _deadline: Instant) -> Result<HubInfo, ConnectError> {
        let bomb = self.connects.fetch_add(1, Ordering::Relaxed) < 2;
        assert!(!bomb || self.fault != Fault::Connect, "a fault in connect");
        Ok(HubInfo {
            partitions: vec![PartitionId::from("0")],
            max_message_size: 1 << 20,
        })
    }

    fn open_link(&self, _partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link> {
        assert!(self.fault != Fault::OpenLink, "a fault in open_link");
        inbox.link(LinkState::Up {
            max_message_size: 1 << 20,
        });
        Box::new(FaultyLink(self.fault))
    }

    fn close(&self, _deadline: Instant) {}
}

impl Link for FaultyLink {
    fn submit(&mut self, _delivery: Delivery) -> Result<(), Busy> {
        assert!(self.0 != Fault::Submit, "a fault in submit");
        Ok(())
    }

    fn cancel(&mut self, _id: DeliveryId) {
        assert!(self.0 != Fault::Cancel, "a fault in cancel");
    }
}

impl Drop for FaultyLink {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a fault in drop");
    }
}

#[test]
fn a_transport_that_panics_kills_its_lane_and_nothing_else() {
    for fault in [Fault::OpenLink, Fault::Submit, Fault::Cancel] {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&seen);
        let producer = Faulty::builder(fault)
            .max_wait_time(Duration::ZERO)
            .delivery_timeout(Duration::from_millis(30))
            .on_delivery(move |report, _| {
                let mut seen = record.lock().unwrap();
                seen.extend(texts(report.events.iter().map(|e| &e.event)));
            })
            .build()
            .unwrap();
        let (mut tickets, mut refused) = (Vec::new(), Vec::new());
        for n in 0..20 {
            match producer.enqueue_tracked(&to(0), n.to_string()) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    assert_eq!(*error.reason(), EnqueueRefusal::LaneDead);
                    refused.push(text(&error.into_event()));
                }
            }
        }
        let accepted = tickets.len();
        for ticket in tickets {
            let outcome = within(move || ticket.wait()).unwrap();
            assert!(!matches!(outcome, Outcome::Delivered | Outcome::Returned));
        }
        // A lane may be dead before it has accepted anything.
        let broken = matches!(
            flush(&producer),
            Err(FlushError::Failures(_) | FlushError::LaneDied(_))
        );
        assert_eq!(broken, accepted > 0);
        let closing: Producer = producer.clone();
        let report = crate::support::close_report(within(move || closing.close()));
        assert_eq!(report.still_owned, []);
        assert_settled(&producer, accepted as u64);
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_by_key(|body| body.parse::<usize>().unwrap());
        assert_eq!(seen, numbers(0..accepted));
        assert_eq!(refused, numbers(accepted..20));
        assert!(producer.enqueue_all(&to(0), events(0..2)).is_err());
    }
}

#[test]
fn a_link_whose_destructor_panics_ends_like_any_other() {
    // It panics in none of the other places here.
    let producer = Faulty::builder(Fault::Connect)
        .max_wait_time(Duration::ZERO)
        .delivery_timeout(Duration::from_millis(30));
    let producer = producer.build_lazy().unwrap();
    assert!(producer.wait_ready(Duration::from_secs(20)));
    producer.enqueue("0").unwrap();
    let closing = producer.clone();
    let report = crate::support::close_report(within(move || closing.close()));
    assert_eq!(report.outcomes.indeterminate, 1);
    assert_eq!(report.still_owned, []);
}

#[test]
fn a_panic_while_a_lazy_producer_connects_is_one_more_failed_attempt() {
    let producer = Faulty::builder(Fault::Connect).build_lazy().unwrap();
    let waiting = producer.clone();
    let ready = Running::start(move || waiting.wait_ready(Duration::from_secs(20)));
    assert!(ready.result());
    let closing = producer.clone();
    within(move || closing.close()).unwrap();
}
