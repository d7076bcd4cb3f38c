//! Serves one hub until standard input ends; prints `PORT` as its first line.
//!
//! `serve [HUB [PARTITIONS [KEY_NAME KEY]]]`

use std::{
    error::Error,
    io::{self, Write},
    time::Duration,
};

use hublane_emulator::Emulator;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let hub = arguments.next().unwrap_or_else(|| "hub".into());
    let partitions = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let mut builder = Emulator::builder().hub(&hub, partitions);
    if let (Some(name), Some(key)) = (arguments.next(), arguments.next()) {
        builder = builder.sas_key(name, key);
    }
    let emulator = builder.start()?;
    println!("{}", emulator.local_addr().port());
    io::stdout().flush()?;
    // What stands there does not matter, only its end does.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    eprintln!("{:?}", emulator.stats());
    emulator.shutdown(Duration::from_secs(5))?;
    Ok(())
}
