//! A lane alone, for the bench of the way into it.

use crate::codec;
use crate::event::Event;
use crate::lane::{Accepted, AnyRoom, Inbox, Lane, Message, Patience, Permits, RefusedBecause};
use crate::report::Counts;
use crate::sync::{Arc, Clock, thread};
use std::time::Duration;

/// The worker gives outcomes in runs of this many, as a batch does, …
const RUN: u64 = 256;

/// … or of those that came within this time.
const AGE: Duration = Duration::from_millis(5);

/// A lane whose worker drops each event, which is its outcome, and gives its permits back.
///
/// Word, permits, channel and wake handshake are the producer's own; core, codec and link are
/// not there.
#[derive(Clone, Debug)]
pub struct LaneAlone {
    lane: Arc<Lane>,
}

impl LaneAlone {
    /// A lane bounded to `events` events, with its worker running.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn start(events: u64) -> std::io::Result<LaneAlone> {
        let bounds = Permits {
            events,
            bytes: 1 << 36,
        };
        let any_room = Arc::new(AnyRoom::new());
        let lane = Arc::new(Lane::unborn("0".into(), bounds, Clock::System, any_room));
        lane.bear(|inbox| {
            let lane = Arc::clone(&lane);
            thread::spawn("lane-alone".to_owned(), None, move || work(&lane, &inbox)).map(drop)
        })?;
        Ok(LaneAlone { lane })
    }

    /// Accepts an event, waiting for room.
    pub fn enqueue(&self, event: Event) -> Result<(), Event> {
        let encoded_len = codec::encoded_len(&event, None) as u32;
        let permits = Permits {
            events: 1,
            bytes: u64::from(encoded_len),
        };
        let admitted = self.lane.admit(permits, Patience::Until(None));
        debug_assert_ne!(admitted, Err(RefusedBecause::Unborn));
        if admitted.is_err() {
            return Err(event);
        }
        let message = Message::One(Accepted {
            event,
            key: None,
            ticket: None,
            encoded_len,
        });
        self.lane.push(message).map_err(|_| Event::new(""))
    }

    /// Shuts the lane and waits for the last outcome.
    pub fn close(&self) {
        self.lane.close();
        self.lane.wait_ended(None);
    }
}

fn work(lane: &Lane, inbox: &Inbox) {
    let mut run = Permits {
        events: 0,
        bytes: 0,
    };
    let mut due = None;
    loop {
        while run.events < RUN {
            let Some(message) = inbox.try_recv() else {
                break;
            };
            let permits = message.permits();
            run.events += permits.events;
            run.bytes += permits.bytes;
        }
        let now = Clock::System.now();
        let word = lane.reading();
        if run.events >= RUN || word.is_closed() || due.is_some_and(|due| now >= due) {
            let full = run.events >= RUN;
            lane.release(run);
            run.events = 0;
            run.bytes = 0;
            due = None;
            if full {
                continue;
            }
        }
        if word.is_closed() && lane.reading().events() == 0 {
            return lane.end(Counts::default());
        }
        let wake_at = match run.events {
            0 => 1,
            _ => RUN,
        };
        if run.events > 0 && due.is_none() {
            due = Some(now + AGE);
        }
        let wake_at = Permits {
            events: wake_at,
            bytes: 1 << 36,
        };
        inbox.doze(lane, Some(wake_at), due);
    }
}
