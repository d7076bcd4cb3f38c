//! A plain AMQP client for the tests, made of a library that has nothing to do with the emulator.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub mod raw;

use std::{future::Future, time::Duration};

use fe2o3_amqp::{
    Connection, Receiver, Sendable, Sender, Session,
    connection::ConnectionHandle,
    link::{SendError, SenderAttachError},
    sasl_profile::SaslProfile,
    session::SessionHandle,
};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Batch, Body, Data, Message, MessageAnnotations, Outcome,
    Properties, message::__private::Serializable,
};
use hublane_emulator::{Builder, Emulator, HubHandle};
use serde_amqp::{Value, primitives::Binary};

pub const HUB: &str = "hub";
pub const BATCH_FORMAT: u32 = 0x8001_3700;
pub const LIMIT: Duration = Duration::from_secs(10);

/// Runs a test with a limit, so that a hang is a failure.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(LIMIT, test)
                .await
                .expect("the test hangs")
        })
}

/// An emulator with a hub of two partitions.
pub fn emulator() -> (Emulator, HubHandle) {
    start(Emulator::builder())
}

pub fn start(builder: Builder) -> (Emulator, HubHandle) {
    let emulator = builder.hub(HUB, 2).start().unwrap();
    let hub = emulator.hub(HUB).unwrap();
    (emulator, hub)
}

pub struct Client {
    pub connection: ConnectionHandle<()>,
    pub session: SessionHandle<()>,
    links: usize,
}

impl Client {
    pub async fn connect(emulator: &Emulator) -> Self {
        Self::connect_with(emulator, SaslProfile::Anonymous).await
    }

    pub async fn connect_with(emulator: &Emulator, profile: SaslProfile) -> Self {
        Self::try_connect(emulator, profile).await.unwrap()
    }

    pub async fn try_connect(
        emulator: &Emulator,
        profile: SaslProfile,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let url = format!("amqp://{}", emulator.local_addr());
        let mut connection = Connection::builder()
            .container_id("test")
            .sasl_profile(profile)
            .max_frame_size(65_536_u32)
            .open(url.as_str())
            .await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Self {
            connection,
            session,
            links: 0,
        })
    }

    fn next_name(&mut self, kind: &str) -> String {
        self.links += 1;
        format!("{kind}-{}", self.links)
    }

    pub async fn sender(&mut self, address: &str) -> Sender {
        self.try_sender(address).await.unwrap()
    }

    pub async fn try_sender(&mut self, address: &str) -> Result<Sender, SenderAttachError> {
        let name = self.next_name("sender");
        Sender::attach(&mut self.session, name, address).await
    }

    pub async fn receiver(&mut self, address: &str) -> Receiver {
        let name = self.next_name("receiver");
        Receiver::attach(&mut self.session, name, address)
            .await
            .unwrap()
    }

    /// Asks a node and gives status code, condition and body of its answer.
    pub async fn request(&mut self, node: &str, request: Request<'_>) -> Answer {
        let mut requests = self.sender(node).await;
        let mut answers = self.receiver(node).await;
        let answer = ask(&mut requests, &mut answers, request).await;
        requests.close().await.unwrap();
        answers.close().await.unwrap();
        answer
    }
}

/// Application properties and a textual body.
pub struct Request<'a>(pub &'a [(&'a str, &'a str)], pub &'a str);

#[derive(Debug)]
pub struct Answer {
    pub status: i32,
    pub condition: Option<String>,
    pub correlation: Option<fe2o3_amqp_types::messaging::MessageId>,
    pub body: Value,
}

pub async fn ask(requests: &mut Sender, answers: &mut Receiver, request: Request<'_>) -> Answer {
    let mut properties = ApplicationProperties::builder();
    for (key, value) in request.0 {
        properties = properties.insert(*key, *value);
    }
    let message = Message::builder()
        .properties(Properties::builder().message_id(7_u64).build())
        .application_properties(properties.build())
        .value(request.1.to_owned())
        .build();
    assert!(requests.send(message).await.unwrap().is_accepted());
    let delivery = answers.recv::<Body<Value>>().await.unwrap();
    answers.accept(&delivery).await.unwrap();
    let message = delivery.into_message();
    let properties = message.application_properties.unwrap();
    let status = match properties.get("status-code") {
        Some(fe2o3_amqp_types::primitives::SimpleValue::Int(code)) => *code,
        other => panic!("status {other:?}"),
    };
    let condition = match properties.get("error-condition") {
        Some(fe2o3_amqp_types::primitives::SimpleValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let body = match message.body {
        Body::Value(AmqpValue(value)) => value,
        _ => Value::Null,
    };
    let correlation = message
        .properties
        .and_then(|properties| properties.correlation_id);
    Answer {
        status,
        condition,
        correlation,
        body,
    }
}

/// An encoded event.
pub fn event(body: &str, key: Option<&str>) -> Vec<u8> {
    let annotations = key.map(|key| {
        MessageAnnotations::builder()
            .insert("x-opt-partition-key", key.to_owned())
            .build()
    });
    let message = Message::builder()
        .message_annotations(annotations)
        .application_properties(
            ApplicationProperties::builder()
                .insert("size", body.len() as i64)
                .build(),
        )
        .data(Binary::from(body.as_bytes().to_vec()))
        .build();
    serde_amqp::to_vec(&Serializable(message)).unwrap()
}

/// A batch of encoded events, ready to be sent.
pub fn batch(events: Vec<Vec<u8>>) -> Sendable<Body<Value>> {
    let sections = events
        .into_iter()
        .map(|event| Data(Binary::from(event)))
        .collect::<Batch<_>>();
    Sendable::builder()
        .message(Message::builder().body(Body::Data(sections)).build())
        .message_format(BATCH_FORMAT)
        .build()
}

/// A batch of events with these bodies.
pub fn bodies(bodies: &[&str]) -> Sendable<Body<Value>> {
    batch(bodies.iter().map(|body| event(body, None)).collect())
}

/// Sends and waits for the outcome, which must come.
pub async fn send(sender: &mut Sender, message: Sendable<Body<Value>>) -> Outcome {
    try_send(sender, message).await.unwrap()
}

pub async fn try_send(
    sender: &mut Sender,
    message: Sendable<Body<Value>>,
) -> Result<Outcome, SendError> {
    tokio::time::timeout(LIMIT / 2, sender.send(message))
        .await
        .expect("no outcome came")
}

/// The bodies of a partition as text.
pub fn stored(hub: &HubHandle, partition: usize) -> Vec<String> {
    hub.events(partition)
        .iter()
        .map(|event| String::from_utf8(event.body().to_vec()).unwrap())
        .collect()
}
