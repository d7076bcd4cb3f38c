use crate::event::Event;
use crate::partition::PartitionKey;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct DecodeError;
pub fn decode(message: &[u8]) -> Result<(Event, Option<PartitionKey>), DecodeError> {
    Ok((Event::new(message.to_vec()), None))
}
