//! Ports: a free one, whether one is taken, and by whom.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::Range;

/// Where free ports are looked for: below the range that Linux gives to outgoing connections, so that none of
/// those takes a replica's port while it is being started again.
const RANGE: Range<u16> = 10_000..32_000;

/// Ports that are free on loopback now, all different. The search begins at a place of this process's own, so
/// that two fleets started together don't choose alike.
///
/// # Errors
///
/// When the machine has too few left.
pub fn free(count: usize) -> Result<Vec<u16>, String> {
    let (from, len) = (std::process::id().wrapping_mul(97), u32::from(RANGE.end - RANGE.start));
    let candidates = (0..len).map(|step| RANGE.start + (from.wrapping_add(step) % len) as u16);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let found: Vec<_> = candidates.filter(is_free).take(count).collect();
    if found.len() == count {
        Ok(found)
    } else {
        Err(format!("fewer than {count} ports are free in {RANGE:?}"))
    }
}

/// Whether this process could listen there.
///
/// # Errors
///
/// Says who listens there already and which flag picks another port.
pub fn check(host: IpAddr, port: u16, flag: &str) -> Result<(), String> {
    let address = SocketAddr::new(host, port);
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let holder = holder(port).unwrap_or_else(|| "another program".to_owned());
            Err(format!("port {port} is taken by {holder}; stop it, or choose another with {flag} PORT"))
        }
        Err(error) => Err(format!("cannot listen on {address}: {error}")),
    }
}

/// Who listens on a port, as `name (process 123)`; `None` where the kernel doesn't let us see.
pub fn holder(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| listener_inode(&table, port))?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find_map(|process| {
        let mut files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        files
            .find(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == socket.as_str()))?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Some(format!("{} (process {process})", name.trim()))
    })
}

/// Finds the socket that listens on `port` in the text of `/proc/net/tcp`: columns are slot, local, remote,
/// state (0A listens), queues, timer, retransmits, user, timeout, inode.
fn listener_inode(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (_, local_port) = columns.get(1)?.rsplit_once(':')?;
        let is_match = u16::from_str_radix(local_port, 16) == Ok(port) && *columns.get(3)? == "0A";
        if is_match { columns.get(9)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 42 1 0000 100 0 0 10 0
   1: 0100007F:1F40 0100007F:8E10 01 00000000:00000000 00:00000000 00000000     0        0 43 1 0000 20 4 30 10 -1
";

    #[test]
    fn only_listening_sockets_hold_a_port() {
        assert_eq!(listener_inode(TABLE, 8080), Some(42));
        assert_eq!(listener_inode(TABLE, 8000), None);
        assert_eq!(listener_inode("", 8080), None);
    }

    #[test]
    fn free_ports_differ_and_lie_below_those_of_outgoing_connections() {
        let ports = free(5).unwrap();
        let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), 5);
        assert!(ports.iter().all(|port| RANGE.contains(port)), "{ports:?}");
    }

    #[test]
    fn a_taken_port_is_reported_with_its_holder_and_the_flag() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let message = check(IpAddr::from([127, 0, 0, 1]), port, "--port").unwrap_err();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        assert!(message.contains("--port PORT"), "{message}");
    }
}
