//! How many events per second the emulator takes from a client that costs next to nothing.
//!
//! `sink_rate [BODY_BYTES [BATCH_BYTES [SECONDS [CONNECTIONS [JOURNAL]]]]]`,
//! by default 100 131072 5 1 and no journal.

use std::{
    error::Error,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use hublane_emulator::{Emulator, Retention, Value};
use serde_amqp::{described::Described, descriptor::Descriptor, to_vec};

const WINDOW: u64 = 4;
const MAX_FRAME: usize = 65_536;
/// The length of a disposition frame of the emulator.
const DISPOSITION: usize = 31;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments
            .next()
            .map_or(Ok(default), |text| text.parse::<usize>())
    };
    let (body, batch) = (number(100)?, number(131_072)?);
    let (seconds, connections) = (number(5)?, number(1)?);
    let mut builder = Emulator::builder()
        .hub("hub", 4)
        .max_memory_bytes(64 << 20)
        .retention(Retention::DropOldest);
    if let Some(path) = arguments.next() {
        builder = builder.journal(path);
    }
    let emulator = builder.start()?;
    let address = emulator.local_addr();
    let duration = Duration::from_secs(seconds as u64);
    let started = Instant::now();
    let clients: Vec<_> = (0..connections)
        .map(|n| {
            thread::spawn(move || {
                client(address, n % 4, body, batch, duration).map_err(|error| error.to_string())
            })
        })
        .collect();
    let mut payload = 0;
    for client in clients {
        payload += client.join().map_err(|_| "a client panicked")??;
    }
    let elapsed = started.elapsed().as_secs_f64();
    let events = emulator.hub("hub").ok_or("no hub")?.stored();
    println!(
        "{events} events of {body} B in {elapsed:.2} s: {:.2} M/s, {:.0} MB/s on the wire",
        events as f64 / elapsed / 1e6,
        payload as f64 / elapsed / 1e6
    );
    Ok(())
}

/// Sends the same batch with four in flight until the time is over; gives the bytes sent.
fn client(
    address: SocketAddr,
    partition: usize,
    body: usize,
    batch: usize,
    duration: Duration,
) -> Result<u64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(b"AMQP\x00\x01\x00\x00")?;
    let null = || Value::Null;
    let text = |text: &str| Value::String(text.into());
    let target = described(0x29, vec![text(&format!("hub/Partitions/{partition}"))])?;
    let window = || Value::Uint(1 << 30);
    let mut hello = frame(
        0x10,
        vec![text("rate"), null(), Value::Uint(MAX_FRAME as u32)],
        &[],
    )?;
    hello.extend(frame(
        0x11,
        vec![null(), Value::Uint(0), window(), window()],
        &[],
    )?);
    let attach = vec![
        text("link"),
        Value::Uint(0),
        Value::Bool(false),
        null(),
        null(),
        null(),
        target,
    ];
    hello.extend(frame(0x12, attach, &[])?);
    stream.write_all(&hello)?;
    stream.read_exact(&mut [0; 8])?;
    // open, begin, attach, flow
    for _ in 0..4 {
        read_frame(&mut stream)?;
    }
    let payload = payload(body, batch);
    let mut wire = Vec::new();
    let end = Instant::now() + duration;
    let (mut sent, mut settled) = (0_u64, 0_u64);
    while Instant::now() < end || settled < sent {
        while sent < settled + WINDOW && Instant::now() < end {
            transfers(&mut wire, u32::try_from(sent)?, &payload)?;
            stream.write_all(&wire)?;
            sent += 1;
        }
        if settled < sent && read_frame(&mut stream)? == DISPOSITION {
            settled += 1;
        }
    }
    Ok(sent * payload.len() as u64)
}

fn described(code: u64, fields: Vec<Value>) -> Result<Value, Box<dyn Error>> {
    let descriptor = Descriptor::Code(code);
    Ok(Value::Described(Box::new(Described {
        descriptor,
        value: Value::List(fields),
    })))
}

fn frame(code: u64, fields: Vec<Value>, payload: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let performative = to_vec(&described(code, fields)?)?;
    let size = u32::try_from(8 + performative.len() + payload.len())?;
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend([2, 0, 0, 0]);
    frame.extend(performative);
    frame.extend(payload);
    Ok(frame)
}

/// A batch of messages that are one data section each.
fn payload(body: usize, batch: usize) -> Vec<u8> {
    let section = |content: &[u8]| {
        let mut section = vec![0x00, 0x53, 0x75];
        match u8::try_from(content.len()) {
            Ok(len) => section.extend([0xa0, len]),
            Err(_) => {
                section.push(0xb0);
                section.extend((content.len() as u32).to_be_bytes());
            }
        }
        section.extend(content);
        section
    };
    let event = section(&section(&vec![b'x'; body]));
    event.repeat((batch / event.len()).max(1))
}

fn transfers(wire: &mut Vec<u8>, id: u32, payload: &[u8]) -> Result<(), Box<dyn Error>> {
    wire.clear();
    let mut chunks = payload.chunks(MAX_FRAME - 64).peekable();
    while let Some(chunk) = chunks.next() {
        let fields = vec![
            Value::Uint(0),
            Value::Uint(id),
            Value::Binary(id.to_be_bytes().to_vec().into()),
            Value::Uint(0x8001_3700),
            Value::Bool(false),
            Value::Bool(chunks.peek().is_some()),
        ];
        wire.extend(frame(0x14, fields, chunk)?);
    }
    Ok(())
}

/// Reads one frame and tells its length.
fn read_frame(stream: &mut TcpStream) -> io::Result<usize> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let len = u32::from_be_bytes(size) as usize;
    let mut rest = vec![0; len.saturating_sub(4)];
    stream.read_exact(&mut rest)?;
    Ok(len)
}
