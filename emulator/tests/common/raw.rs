//! A peer with hand-made frames.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use hublane_emulator::{Emulator, Value};
use serde_amqp::{described::Described, descriptor::Descriptor, primitives::Symbol, to_vec};

use super::LIMIT;

pub const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";

/// A socket with hand-made frames.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(emulator: &Emulator) -> Self {
        let stream = TcpStream::connect(emulator.local_addr()).unwrap();
        stream.set_read_timeout(Some(LIMIT / 2)).unwrap();
        Self(stream)
    }

    /// Up to a session in which handle 0 sends to a partition.
    pub fn attached(emulator: &Emulator) -> Self {
        let mut raw = Self::connect(emulator);
        raw.write(AMQP);
        raw.frame(
            0x10,
            vec![text("raw"), Value::Null, Value::Uint(65_536)],
            &[],
        );
        raw.frame(
            0x11,
            vec![
                Value::Null,
                Value::Uint(0),
                Value::Uint(100),
                Value::Uint(100),
            ],
            &[],
        );
        raw.attach(0, "hub/Partitions/0");
        let mut header = [0; 8];
        raw.0.read_exact(&mut header).unwrap();
        assert_eq!(header, AMQP);
        for expected in [0x10, 0x11, 0x12, 0x13] {
            assert_eq!(raw.read_frame().unwrap().0, expected);
        }
        raw
    }

    pub fn attach(&mut self, handle: u32, address: &str) {
        let terminus = |code| described(code, Value::List(vec![text(address)]));
        let fields = vec![
            text(&format!("link {handle}")),
            Value::Uint(handle),
            Value::Bool(false),
            Value::Null,
            Value::Null,
            terminus(0x28),
            terminus(0x29),
        ];
        self.frame(0x12, fields, &[]);
    }

    pub fn transfer(&mut self, id: u32, more: bool, payload: &[u8]) {
        let fields = vec![
            Value::Uint(0),
            Value::Uint(id),
            Value::Binary(vec![1].into()),
            Value::Uint(0),
            Value::Bool(false),
            Value::Bool(more),
        ];
        self.frame(0x14, fields, payload);
    }

    pub fn frame(&mut self, code: u64, fields: Vec<Value>, payload: &[u8]) {
        self.layer_frame(0, code, fields, payload);
    }

    pub fn sasl_frame(&mut self, code: u64, fields: Vec<Value>) {
        self.layer_frame(1, code, fields, &[]);
    }

    fn layer_frame(&mut self, layer: u8, code: u64, fields: Vec<Value>, payload: &[u8]) {
        let mut body = to_vec(&described(code, Value::List(fields))).unwrap();
        body.extend(payload);
        let mut frame = u32::try_from(body.len() + 8)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        frame.extend([2, layer, 0, 0]);
        frame.extend(body);
        self.write(&frame);
    }

    pub fn write(&mut self, bytes: &[u8]) {
        // The emulator may have hung up already, which is an answer, too.
        let _ = self.0.write_all(bytes);
    }

    pub fn read_header(&mut self) -> [u8; 8] {
        let mut header = [0; 8];
        self.0.read_exact(&mut header).unwrap();
        header
    }

    /// The next frame with a body: its code and the fields of its list.
    pub fn read_frame(&mut self) -> Option<(u64, Vec<Value>)> {
        loop {
            let mut size = [0; 4];
            self.0.read_exact(&mut size).ok()?;
            let mut rest = vec![0; u32::from_be_bytes(size) as usize - 4];
            self.0.read_exact(&mut rest).ok()?;
            if rest.len() == 4 {
                continue;
            }
            let value: Value = serde_amqp::from_slice(&rest[4..]).unwrap();
            let Value::Described(value) = value else {
                panic!("{value:?}")
            };
            let Value::List(fields) = value.value else {
                panic!("{value:?}")
            };
            let Descriptor::Code(code) = value.descriptor else {
                panic!("a name")
            };
            return Some((code, fields));
        }
    }

    /// The condition with which link, session or connection is ended.
    pub fn read_error(&mut self) -> (u64, String) {
        while let Some((code, mut fields)) = self.read_frame() {
            let index = if code == 0x16 { 2 } else { 0 };
            if matches!(code, 0x16..=0x18) {
                let Value::Described(error) = fields.swap_remove(index) else {
                    panic!("no error")
                };
                let Value::List(error) = error.value else {
                    panic!("{error:?}")
                };
                let Value::Symbol(Symbol(condition)) = &error[0] else {
                    panic!("{error:?}")
                };
                return (code, condition.clone());
            }
        }
        panic!("no error was told");
    }
}

pub fn text(text: &str) -> Value {
    Value::String(text.into())
}

pub fn described(code: u64, value: Value) -> Value {
    Value::Described(Box::new(Described {
        descriptor: Descriptor::Code(code),
        value,
    }))
}
