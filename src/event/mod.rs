//! What a caller sends: a body of bytes and, rarely, some properties beside it.

mod value;

use crate::sync::Arc;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Serialize;

pub use value::{MessageId, Symbol, SymbolError, Timestamp, Value};

/// An event on its way to an event hub.
///
/// The body is a sequence of bytes whose meaning is the application's own. Everything else is
/// optional, and costs neither memory nor bytes on the wire until it is set.
///
/// Cloning is cheap for a plain event: the body and the context are shared. Properties are
/// copied.
///
/// Two events are equal if they would be the same bytes on the wire and carry the same context,
/// which is compared by address: the context is opaque, so nothing else can be asked of it.
///
/// # Examples
///
/// ```
/// use hublane::{Event, Symbol, Value};
///
/// let plain = Event::new("21.5");
/// assert_eq!(plain.body().as_ref(), b"21.5");
///
/// let described = Event::from("21.5")
///     .with_content_type(Symbol::from_static("text/plain"))
///     .with_property("sensor", "roof")
///     .with_property("attempt", 3_u32);
/// assert_eq!(described.property("attempt"), Some(&Value::U32(3)));
/// ```
#[derive(Clone)]
pub struct Event {
    body: Bytes,
    /// `None` until something beside the body is set, so a plain event stays small.
    extras: Option<Box<Extras>>,
    context: Option<Arc<dyn Any + Send + Sync>>,
}

/// What an event carries beside its body. Boxed as a whole: few events have any of it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Extras {
    content_type: Option<Symbol>,
    message_id: Option<MessageId>,
    correlation_id: Option<MessageId>,
    /// Unique names, in the order in which they were first set. A vector, because a handful of
    /// names is searched faster in a row than in a tree, and the order is kept.
    properties: Vec<(Cow<'static, str>, Value)>,
}

// An event sits in every slot of a bounded channel, and a bounded channel reserves all its
// slots at once: a word here is a word times the bound of every partition.
const _: () = assert!(size_of::<Event>() <= 56);

impl Event {
    /// An event with this body and nothing else.
    ///
    /// The body may be anything that becomes [`Bytes`] without a copy: a `Vec<u8>`, a `String`,
    /// a `&'static str` or a `&'static [u8]`. For borrowed data copy first, with
    /// [`Bytes::copy_from_slice`]. An empty body is an event like any other.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::Event;
    ///
    /// assert_eq!(Event::new(vec![1, 2, 3]).body().len(), 3);
    /// ```
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Event {
            body: body.into(),
            extras: None,
            context: None,
        }
    }

    /// An event whose body is `value` as JSON text, with the content type `application/json`.
    ///
    /// # Errors
    ///
    /// [`EventError::Json`] if `value` refuses to be serialized or is a map whose keys are not
    /// strings.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::Event;
    ///
    /// #[derive(serde::Serialize)]
    /// struct Reading {
    ///     sensor: &'static str,
    ///     celsius: f64,
    /// }
    ///
    /// let event = Event::json(&Reading { sensor: "roof", celsius: 21.5 })?;
    /// assert_eq!(event.body().as_ref(), br#"{"sensor":"roof","celsius":21.5}"#);
    /// assert_eq!(event.content_type(), Some("application/json"));
    /// # Ok::<(), hublane::EventError>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, EventError> {
        const JSON: Symbol = Symbol::from_static("application/json");
        let body = serde_json::to_vec(value).map_err(EventError::Json)?;
        Ok(Event::new(body).with_content_type(JSON))
    }

    /// Sets an application property. Setting a name again replaces its value and keeps its place:
    /// the properties are a map, in which a name stands once.
    ///
    /// Consumers receive properties beside the body, so they can route or filter without reading
    /// it. AMQP restricts names to strings and values to simple types (AMQP 1.0, section 3.2.5);
    /// [`Value`] has no others.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::{Event, Value};
    ///
    /// let event = Event::new("{}").with_property("tries", 1_u32).with_property("tries", 2_u32);
    /// assert_eq!(event.properties().len(), 1);
    /// assert_eq!(event.property("tries"), Some(&Value::U32(2)));
    /// ```
    #[must_use]
    pub fn with_property(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Value>,
    ) -> Self {
        let (name, value) = (name.into(), value.into());
        let properties = &mut self.extras_mut().properties;
        match properties.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = value,
            None => properties.push((name, value)),
        }
        self
    }

    /// Says what the body is: a media type such as `text/plain` or `application/json`.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::{Event, Symbol};
    ///
    /// let event = Event::new("a,b").with_content_type(Symbol::from_static("text/csv"));
    /// assert_eq!(event.content_type(), Some("text/csv"));
    /// ```
    #[must_use]
    pub fn with_content_type(mut self, content_type: Symbol) -> Self {
        self.extras_mut().content_type = Some(content_type);
        self
    }

    /// Names this event, for consumers that recognise a duplicate by its name.
    ///
    /// Event Hubs stores it and does not look at it: two events with one id are both kept.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::{Event, MessageId};
    ///
    /// let event = Event::new("").with_message_id(17_u64);
    /// assert_eq!(event.message_id(), Some(&MessageId::U64(17)));
    /// ```
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<MessageId>) -> Self {
        self.extras_mut().message_id = Some(id.into());
        self
    }

    /// Names the event or the request that this event belongs to.
    ///
    /// # Examples
    ///
    /// ```
    /// use hublane::{Event, MessageId};
    ///
    /// let event = Event::new("").with_correlation_id("order-9");
    /// assert_eq!(event.correlation_id(), Some(&MessageId::from("order-9")));
    /// ```
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<MessageId>) -> Self {
        self.extras_mut().correlation_id = Some(id.into());
        self
    }

    /// Attaches something of the caller's own that comes back with the event in its report.
    ///
    /// It is never sent, and this crate never looks at it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use hublane::Event;
    ///
    /// let event = Event::new("row 12").with_context(Arc::new(12_usize));
    /// assert_eq!(event.context_as::<usize>(), Some(&12));
    /// ```
    #[must_use]
    pub fn with_context(mut self, context: Arc<dyn Any + Send + Sync>) -> Self {
        self.context = Some(context);
        self
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Gives up the event for its body, without a copy.
    #[must_use]
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The media type of the body, if one was set.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.extras
            .as_ref()?
            .content_type
            .as_ref()
            .map(Symbol::as_str)
    }

    /// The name of this event, if one was set.
    #[must_use]
    pub fn message_id(&self) -> Option<&MessageId> {
        self.extras.as_ref()?.message_id.as_ref()
    }

    /// The name of what this event belongs to, if one was set.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&MessageId> {
        self.extras.as_ref()?.correlation_id.as_ref()
    }

    /// The application properties, in the order in which their names were first set.
    pub fn properties(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        let properties = self
            .extras
            .as_ref()
            .map_or(&[][..], |extras| &extras.properties);
        properties
            .iter()
            .map(|(name, value)| (name.as_ref(), value))
    }

    /// The application property of this name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Value> {
        let properties = &self.extras.as_ref()?.properties;
        properties
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// The caller's own context, if one was attached.
    #[must_use]
    pub fn context(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.context.as_ref()
    }

    /// The caller's own context, if one was attached and it is a `T`.
    #[must_use]
    pub fn context_as<T: Any>(&self) -> Option<&T> {
        self.context.as_ref()?.downcast_ref()
    }

    /// Whether there is nothing but a body to send. The codec's short way out.
    pub(crate) fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

/// Shows the length of the body, not the body, and the names of the properties, not their
/// values: events end up in logs inside errors, and what they say is not the log's business.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.properties().map(|(name, _)| name).collect();
        f.debug_struct("Event")
            .field("body_len", &self.body.len())
            .field("content_type", &self.content_type())
            .field("message_id", &self.message_id())
            .field("correlation_id", &self.correlation_id())
            .field("properties", &names)
            .field("has_context", &self.context.is_some())
            .finish()
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        let same_context = match (&self.context, &other.context) {
            (None, None) => true,
            // The address alone: two tables for one type are possible and mean nothing.
            (Some(a), Some(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            _ => false,
        };
        same_context && self.body == other.body && self.extras == other.extras
    }
}

impl From<Bytes> for Event {
    fn from(body: Bytes) -> Self {
        Event::new(body)
    }
}

impl From<Vec<u8>> for Event {
    fn from(body: Vec<u8>) -> Self {
        Event::new(body)
    }
}

impl From<String> for Event {
    fn from(body: String) -> Self {
        Event::new(body)
    }
}

impl From<&'static str> for Event {
    fn from(body: &'static str) -> Self {
        Event::new(body)
    }
}

/// Why an event could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The value could not be written as JSON.
    #[error("the value cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_plain_event_has_nothing_but_its_body() {
        let event = Event::new("x");
        assert!(event.is_plain());
        assert_eq!(event.properties().len(), 0);
        assert_eq!(event.property("a"), None);
        assert_eq!(event.content_type(), None);
        assert_eq!(event.message_id(), None);
        assert_eq!(event.correlation_id(), None);
        assert!(event.context().is_none());
        assert_eq!(event.into_body(), "x");
    }

    #[test]
    fn every_source_of_a_body_is_taken_as_it_is() {
        assert_eq!(Event::from("ab"), Event::from(String::from("ab")));
        assert_eq!(
            Event::from(vec![97, 98]),
            Event::from(Bytes::from_static(b"ab"))
        );
    }

    #[test]
    fn properties_keep_the_order_in_which_they_were_first_set() {
        let event = Event::new("")
            .with_property("b", 1_i32)
            .with_property("a", true)
            .with_property("b", 'z');
        let seen: Vec<_> = event.properties().collect();
        assert_eq!(seen, [("b", &Value::Char('z')), ("a", &Value::Bool(true))]);
    }

    #[test]
    fn json_that_cannot_be_written_is_an_error() {
        let keyed_by_pairs: HashMap<(i32, i32), i32> = HashMap::from([((1, 2), 3)]);
        assert!(matches!(
            Event::json(&keyed_by_pairs),
            Err(EventError::Json(_))
        ));
    }

    #[test]
    fn a_context_comes_back_as_what_it_was() {
        let event = Event::new("").with_context(Arc::new(String::from("row")));
        assert_eq!(
            event.context_as::<String>().map(String::as_str),
            Some("row")
        );
        assert_eq!(event.context_as::<u8>(), None);
        assert!(event.is_plain());
    }

    #[test]
    fn equality_compares_contexts_by_address() {
        let context: Arc<dyn Any + Send + Sync> = Arc::new(1_u8);
        let event = Event::new("a").with_context(Arc::clone(&context));
        assert_eq!(event, event.clone());
        assert_eq!(event, Event::new("a").with_context(context));
        assert_ne!(event, Event::new("a").with_context(Arc::new(1_u8)));
        assert_ne!(event, Event::new("a"));
        assert_ne!(event.clone(), event.with_property("p", 1_u8));
    }

    #[test]
    fn debug_shows_neither_body_nor_property_values() {
        let event = Event::new("secret-a1").with_property("name", "secret-b2");
        let shown = format!("{event:?}");
        assert!(
            shown.contains("body_len: 9") && shown.contains("\"name\""),
            "{shown}"
        );
        assert!(!shown.contains("secret"), "{shown}");
    }
}
