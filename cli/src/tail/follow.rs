//! Reading on, whatever happens to connections.

use super::News;
use super::client::{Client, Source};
use super::record::Record;
use super::refusal::Refusal;
use fe2o3_amqp::Receiver;
use fe2o3_amqp_types::messaging::Body;
use fe2o3_amqp_types::primitives::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

/// The wait before the first attempt to connect anew; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(200);

/// The longest wait between two attempts.
const LAST_DELAY: Duration = Duration::from_secs(10);

/// The offset of the last event of each partition that was handed on; reading goes on behind it.
type Places = Arc<Mutex<BTreeMap<String, String>>>;

/// Reads until nobody wants it, or the hub refuses for good.
pub fn follow(source: &Source, news: Sender<News>) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = news.blocking_send(News::Refused(error.to_string()));
            return;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            () = read_on(source, &news) => {}
            () = news.closed() => {}
        }
    });
}

async fn read_on(source: &Source, news: &Sender<News>) {
    let places = Places::default();
    let mut delay = FIRST_DELAY;
    loop {
        let refusal = match Client::connect(source).await {
            Ok(mut client) => match attach_all(&mut client, source, &places).await {
                Ok(receivers) => {
                    delay = FIRST_DELAY;
                    read(client, source, receivers, &places, news).await
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let never_connected = lock(&places).is_empty();
        if never_connected || refusal.is_final() {
            let _ = news.send(News::Refused(refusal.to_string())).await;
            return;
        }
        let _ = news.send(News::Lost(refusal.to_string())).await;
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LAST_DELAY);
    }
}

/// Reads over one connection until it breaks, and says how it did.
async fn read(
    mut client: Client,
    source: &Source,
    receivers: Vec<(String, Receiver)>,
    places: &Places,
    news: &Sender<News>,
) -> Refusal {
    let reading = News::Reading {
        partitions: receivers.len(),
    };
    let _ = news.send(reading).await;
    // Dropped at the end, which ends the tasks.
    let mut partitions = JoinSet::new();
    for (partition, receiver) in receivers {
        let (places, news) = (Arc::clone(places), news.clone());
        partitions.spawn(read_partition(partition, receiver, places, news));
    }
    loop {
        let token_is_old = client.token_is_old();
        tokio::select! {
            ended = partitions.join_next() => return match ended {
                Some(Ok(refusal)) => refusal,
                Some(Err(error)) => Refusal::lost(error.to_string()),
                None => Refusal::lost("no partition is left".to_owned()),
            },
            refusal = client.ended() => return refusal,
            () = token_is_old => {}
        }
        if let Err(refusal) = client.put_token(source).await {
            return refusal;
        }
    }
}

async fn attach_all(
    client: &mut Client,
    source: &Source,
    places: &Places,
) -> Result<Vec<(String, Receiver)>, Refusal> {
    let ids = client.partitions(source).await?;
    let ids = match &source.partition {
        None => ids,
        Some(id) if ids.contains(id) => vec![id.clone()],
        Some(id) => return Err(Refusal::unknown_partition(&source.hub, id)),
    };
    let mut receivers = Vec::with_capacity(ids.len());
    for id in ids {
        let known = lock(places).get(&id).cloned();
        let place = match known {
            Some(place) => place,
            None => client.first_place(source, &id).await?,
        };
        let receiver = client.receiver(source, &id, &place).await?;
        lock(places).insert(id.clone(), place);
        receivers.push((id, receiver));
    }
    Ok(receivers)
}

async fn read_partition(
    partition: String,
    mut receiver: Receiver,
    places: Places,
    news: Sender<News>,
) -> Refusal {
    loop {
        let delivery = match receiver.recv::<Body<Value>>().await {
            Ok(delivery) => delivery,
            Err(error) => return Refusal::from_receiving(&error),
        };
        let record = Record::new(&partition, delivery.message());
        let place = record.offset.clone();
        if news.send(News::Event(record.json())).await.is_err() {
            return Refusal::lost("nobody reads".to_owned());
        }
        // Only now: an event that was not handed on must come again.
        if let Some(place) = place {
            lock(&places).insert(partition.clone(), place);
        }
        if let Err(error) = receiver.accept(&delivery).await {
            return Refusal::lost(error.to_string());
        }
    }
}

fn lock(places: &Places) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
