//! Sends three readings to the hub that HUBLANE_CONNECTION_STRING names.

use hublane::{Event, Outcome, PartitionKey, ProducerBuilder, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = std::env::var("HUBLANE_CONNECTION_STRING")?;
    let producer = ProducerBuilder::from_connection_string(&hub, None)?
        .on_delivery(|report, _| {
            if report.outcome != Outcome::Delivered {
                eprintln!("{} events: {:?}", report.events.len(), report.outcome);
            }
        })
        .build()?;
    let roof = Target::from(PartitionKey::new("roof")?);
    for celsius in [21.5, 21.6, 21.9] {
        producer.enqueue_to(&roof, Event::json(&celsius)?)?;
    }
    let report = producer.close()?;
    println!("{} events stored", report.outcomes.delivered);
    Ok(())
}
