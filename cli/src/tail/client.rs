//! A small AMQP client that reads: a connection, tokens, `$management`, receivers.
//!
//! Every step has a deadline; only waiting for events has none. A connection whose peer is
//! silent for longer than [`IDLE`] ends by itself.

use super::refusal::{Refusal, judge};
use super::tls;
use crate::args::ReadFrom;
use crate::exit::plain;
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, Properties, Source as LinkSource,
};
use fe2o3_amqp_types::primitives::{Symbol, Value};
use hublane::{ConnectionString, Credential, SasKey, Token};
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// The limit of each step of connecting.
const STEP: Duration = Duration::from_secs(10);

/// The silence of a peer, in milliseconds, that ends a connection; the service's clients use it.
const IDLE: u32 = 60_000;

/// The service's limit.
const MAX_FRAME: u32 = 65_536;

/// How long a signed token lives, and the age at which the next one is put.
const TOKEN_LIFE: Duration = Duration::from_secs(60 * 60);
const TOKEN_RENEWAL: Duration = Duration::from_secs(45 * 60);

/// Events that a partition may send ahead.
const CREDIT: u32 = 300;

/// The name of the filter that says where reading starts.
const SELECTOR: &str = "apache.org:selector-filter:string";

/// The place before the first event.
pub const BEGINNING: &str = "-1";

/// What is to be read.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where the hub is.
    pub connection: ConnectionString,
    /// Its name.
    pub hub: String,
    /// The consumer group.
    pub consumer_group: String,
    /// The only partition, if not all.
    pub partition: Option<String>,
    /// Where reading begins.
    pub from: ReadFrom,
}

/// A connection on which tokens were put. Dropping it closes it.
#[derive(Debug)]
pub struct Client {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    tokens: Node,
    management: Option<Node>,
    token: Token,
    renew_at: Option<Instant>,
    links: u32,
}

/// The pair of links to a node that answers requests.
#[derive(Debug)]
struct Node {
    requests: Sender,
    answers: Receiver,
    reply_to: String,
    asked: u64,
}

impl Client {
    /// Connects and puts a token.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says what stood in the way.
    pub async fn connect(source: &Source) -> Result<Client, Refusal> {
        let mut connection = open(&source.connection).await?;
        let session = Session::begin(&mut connection);
        let mut session = within("begin", session)
            .await?
            .map_err(|error| Refusal::from_error(&error))?;
        let tokens = Node::attach(&mut session, "$cbs").await?;
        let (token, renew_at) = token_for(source)?;
        let mut client = Client {
            connection,
            session,
            tokens,
            management: None,
            token,
            renew_at,
            links: 0,
        };
        client.put_token(source).await?;
        Ok(client)
    }

    /// Puts a token, a new one if they can be signed here.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says why it was not taken.
    pub async fn put_token(&mut self, source: &Source) -> Result<(), Refusal> {
        (self.token, self.renew_at) = token_for(source)?;
        let properties = ApplicationProperties::builder()
            .insert("operation", "put-token")
            .insert("type", Token::TYPE)
            .insert("name", audience(source))
            .build();
        let body = Value::String(self.token.expose().to_owned());
        self.tokens.ask(properties, body).await.map(drop)
    }

    /// Ends when the token should be put again, which may be never.
    pub fn token_is_old(&self) -> impl Future<Output = ()> + use<> {
        let at = self.renew_at;
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Ends when the connection does, and says why.
    pub async fn ended(&mut self) -> Refusal {
        match self.connection.on_close().await {
            Ok(()) => Refusal::lost("the peer closed the connection".to_owned()),
            Err(error) => Refusal::from_error(&error),
        }
    }

    /// The hub's partitions.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if there is no such hub, or no answer.
    pub async fn partitions(&mut self, source: &Source) -> Result<Vec<String>, Refusal> {
        let answer = self
            .management(source, "com.microsoft:eventhub", None)
            .await?;
        let ids: Vec<String> = match field(&answer, "partition_ids") {
            Some(Value::Array(ids)) => ids.iter().filter_map(text_of).collect(),
            Some(Value::List(ids)) => ids.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        };
        if ids.is_empty() {
            return Err(Refusal::for_good("the hub names no partitions".to_owned()));
        }
        Ok(ids)
    }

    /// Where reading a partition begins: an offset, so that nothing is missed between this and
    /// the first event, however often the connection is lost meanwhile.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if there is no answer.
    pub async fn first_place(&mut self, source: &Source, id: &str) -> Result<String, Refusal> {
        if source.from == ReadFrom::Start {
            return Ok(BEGINNING.to_owned());
        }
        let answer = self
            .management(source, "com.microsoft:partition", Some(id))
            .await?;
        let last = field(&answer, "last_enqueued_offset").and_then(text_of);
        Ok(last.unwrap_or_else(|| BEGINNING.to_owned()))
    }

    /// A receiver of what lies behind `place` in a partition.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says why there is none.
    pub async fn receiver(
        &mut self,
        source: &Source,
        id: &str,
        place: &str,
    ) -> Result<Receiver, Refusal> {
        let filter = Described {
            descriptor: Descriptor::Name(Symbol::from(SELECTOR)),
            value: Value::String(format!("amqp.annotation.x-opt-offset > '{place}'")),
        };
        let address = format!(
            "{}/ConsumerGroups/{}/Partitions/{id}",
            source.hub, source.consumer_group
        );
        let origin = LinkSource::builder()
            .address(address)
            .add_to_filter(SELECTOR, Some(filter))
            .build();
        self.links += 1;
        let attach = Receiver::builder()
            .name(format!("hublane-tail-{id}-{}", self.links))
            .source(origin)
            .verify_incoming_source(false)
            .credit_mode(CreditMode::Auto(CREDIT))
            .attach(&mut self.session);
        Ok(within("attach", attach).await??)
    }

    async fn management(
        &mut self,
        source: &Source,
        kind: &str,
        partition: Option<&str>,
    ) -> Result<Value, Refusal> {
        let mut properties = ApplicationProperties::builder()
            .insert("operation", "READ")
            .insert("type", kind)
            .insert("name", source.hub.as_str())
            .insert("security_token", self.token.expose());
        if let Some(id) = partition {
            properties = properties.insert("partition", id);
        }
        let node = match &mut self.management {
            Some(node) => node,
            empty => empty.insert(Node::attach(&mut self.session, "$management").await?),
        };
        node.ask(properties.build(), Value::String(String::new()))
            .await
    }
}

impl Node {
    async fn attach(session: &mut SessionHandle<()>, address: &str) -> Result<Node, Refusal> {
        let reply_to = format!("hublane-tail-{}", address.trim_start_matches('$'));
        let requests = Sender::attach(session, format!("{reply_to}-requests"), address);
        let requests = within("attach", requests).await??;
        let answers = Receiver::builder()
            .name(format!("{reply_to}-answers"))
            .source(address)
            .target(reply_to.as_str())
            .attach(session);
        let answers = within("attach", answers).await??;
        Ok(Node {
            requests,
            answers,
            reply_to,
            asked: 0,
        })
    }

    /// Asks and gives the body of a good answer.
    async fn ask(
        &mut self,
        properties: ApplicationProperties,
        body: Value,
    ) -> Result<Value, Refusal> {
        self.asked += 1;
        let head = Properties::builder()
            .message_id(self.asked)
            .reply_to(self.reply_to.clone())
            .build();
        let request = Message::builder()
            .properties(head)
            .application_properties(properties)
            .value(body)
            .build();
        let sent = within("request", self.requests.send(request)).await?;
        sent.map_err(|error| Refusal::from_error(&error))?;
        let answer = within("answer", self.answers.recv::<Body<Value>>()).await?;
        let answer = answer.map_err(|error| Refusal::from_receiving(&error))?;
        let accepted = self.answers.accept(&answer).await;
        accepted.map_err(|error| Refusal::from_error(&error))?;
        let message = answer.into_message();
        judge(message.application_properties.as_ref())?;
        match message.body {
            Body::Value(AmqpValue(value)) => Ok(value),
            _ => Ok(Value::Null),
        }
    }
}

async fn open(target: &ConnectionString) -> Result<ConnectionHandle<()>, Refusal> {
    let host = target.host();
    let port = target
        .port()
        .unwrap_or(if target.is_emulator() { 5672 } else { 5671 });
    let stream = within("connection", TcpStream::connect((host, port))).await?;
    let stream =
        stream.map_err(|error| Refusal::lost(format!("{host} port {port}: {}", plain(&error))))?;
    let _ = stream.set_nodelay(true);
    let container = format!("hublane-tail-{}", std::process::id());
    let connection = Connection::builder()
        .container_id(container)
        .hostname(host)
        .sasl_profile(SaslProfile::Anonymous)
        .max_frame_size(MAX_FRAME)
        .idle_time_out(IDLE);
    let opened = if target.is_emulator() {
        within("open", connection.open_with_stream(stream)).await?
    } else {
        let stream = within("TLS", tls::connect(host, stream)).await??;
        within("open", connection.open_with_stream(stream)).await?
    };
    opened.map_err(|error| Refusal::from_error(&error))
}

async fn within<T>(step: &str, future: impl Future<Output = T>) -> Result<T, Refusal> {
    timeout(STEP, future).await.map_err(|_| {
        let limit = STEP.as_secs();
        Refusal::lost(format!("no answer to {step} within {limit} s"))
    })
}

fn token_for(source: &Source) -> Result<(Token, Option<Instant>), Refusal> {
    match source.connection.credential() {
        Credential::Key { name, key } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let expiry = now.unwrap_or_default() + TOKEN_LIFE;
            let token =
                SasKey::new(name.as_str(), key.clone()).sign(&audience(source), expiry.as_secs());
            Ok((token, Some(Instant::now() + TOKEN_RENEWAL)))
        }
        Credential::Signature(text) => Ok((Token::from_signature(text.clone())?, None)),
        _ => Err(Refusal::for_good(
            "the connection string lets one in by a way that tail does not know".to_owned(),
        )),
    }
}

fn audience(source: &Source) -> String {
    format!("amqps://{}/{}", source.connection.host(), source.hub)
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(map) = map else { return None };
    map.iter()
        .find(|(key, _)| text_of(key).as_deref() == Some(name))
        .map(|(_, value)| value)
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Symbol(symbol) => Some(symbol.0.clone()),
        _ => None,
    }
}
