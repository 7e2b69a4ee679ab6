//! Asks the gateway on this machine one question, for health checks of containers and units.

use gateway::config::Admin;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A gateway that takes longer than this is not healthy.
const PATIENCE: Duration = Duration::from_secs(3);

/// `Ok` when `GET path` on the admin port answers 200.
pub fn ask(admin: &Admin, path: &str) -> io::Result<()> {
    let host = match admin.host.as_str() {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let address = (host, admin.port).to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other(format!("{host} does not resolve")))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    match &status[9..] {
        b"200" => Ok(()),
        other => Err(io::Error::other(format!("{address}{path} answers {}", String::from_utf8_lossy(other)))),
    }
}
