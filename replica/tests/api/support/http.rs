//! HTTP/1.1 spelled out over a socket, so that nothing a client library does hides what the server does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::PATIENCE;

/// One kept-alive connection.
pub struct Connection {
    reader: BufReader<TcpStream>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `data:` payloads of a stream.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        events
            .map(|event| event.strip_prefix("data: ").expect("an event begins with data:").to_owned())
            .collect()
    }

    /// The `param` of an error body.
    pub fn param(&self) -> Value {
        self.json()["error"]["param"].clone()
    }

    /// The `code` of an error body.
    pub fn code(&self) -> Value {
        self.json()["error"]["code"].clone()
    }

    /// The message of an error body.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Connection {
    pub fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sends a request; a body makes it a POST of JSON.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: replica\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if !body.is_empty() || method == "POST" {
            let length = body.len();
            write!(head, "content-type: application/json\r\ncontent-length: {length}\r\n").unwrap();
        }
        self.write(format!("{head}\r\n").as_bytes()).unwrap();
        self.write(body).unwrap();
    }

    /// Reads a whole answer.
    pub fn receive(&mut self) -> Reply {
        let (status, headers) = self.receive_head();
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|encoding| encoding == "chunked") {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = headers.get("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.reader.read_exact(&mut body).unwrap();
        }
        Reply { status, headers, body }
    }

    pub fn receive_head(&mut self) -> (u16, BTreeMap<String, String>) {
        let status = self.line().expect("an answer begins");
        let status = status.split(' ').nth(1).expect("a status line has a status").parse().unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line().expect("a head ends");
            let Some((name, value)) = line.split_once(": ") else { break };
            let earlier = headers.insert(name.to_ascii_lowercase(), value.to_owned());
            assert_eq!(earlier, None, "{name} is sent twice");
        }
        (status, headers)
    }

    /// One chunk of a chunked body; `None` at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }

    /// Says that nothing more comes from here.
    pub fn shut_write(&self) {
        drop(self.reader.get_ref().shutdown(std::net::Shutdown::Write));
    }

    /// All bytes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        drop(self.reader.read_to_end(&mut rest));
        rest
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

/// A stream that is read event by event.
pub struct Events {
    connection: Connection,
    read: String,
}

impl Events {
    /// Waits for the head.
    pub fn of(connection: Connection) -> Self {
        Self::begun(connection).expect("a stream begins")
    }

    /// Waits for the head; none where the queue is full.
    pub fn begun(mut connection: Connection) -> Option<Self> {
        let (status, _) = connection.receive_head();
        assert!([200, 429].contains(&status), "{status}");
        (status == 200).then_some(Self { connection, read: String::new() })
    }

    /// The connection, to close or to reuse.
    pub fn into_connection(self) -> Connection {
        self.connection
    }
}

impl Iterator for Events {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while !self.read.contains("\n\n") {
            let chunk = self.connection.chunk()?;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let end = self.read.find("\n\n")?;
        let event: String = self.read.drain(..end + 2).collect();
        Some(event.trim_end().strip_prefix("data: ").expect("an event begins with data:").to_owned())
    }
}
