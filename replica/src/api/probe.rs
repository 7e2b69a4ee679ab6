//! `flotilla-replica health` and `ready`: one GET to a replica on this machine, for container health checks.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Whether `GET path` answers 200.
///
/// # Errors
///
/// One line: what came instead.
pub fn get(host: &str, port: u16, path: &str) -> Result<(), String> {
    let status = status(connectable(host), port, path)
        .map_err(|error| format!("{host}:{port} does not answer: {error}"))?;
    if status == "200" { Ok(()) } else { Err(format!("{host}:{port}{path} answers {status}")) }
}

/// Where to reach a replica that listens on all addresses.
fn connectable(host: &str) -> &str {
    match host {
        "0.0.0.0" => "127.0.0.1",
        "::" | "[::]" => "::1",
        host => host,
    }
}

fn status(host: &str, port: u16, path: &str) -> io::Result<String> {
    let address = (host, port).to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(String::from_utf8_lossy(&head[9..]).into_owned())
}
